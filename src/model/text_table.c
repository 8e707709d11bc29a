// Draws tables with box characters, as the Python package rich does for Keras's summary: a heavy header, thin lines
// between rows. A word that is longer than its column continues in the next line, so nothing is cut.
#include "model/text_table.h"

// The characters of a horizontal border: its left end, line, crossing, and right end.
typedef struct border { const char *left, *line, *crossing, *right; } border;

static void print_border(const mu_text_table *table, const border *b)
{
    for (int i = 0; i < table->n; i++) {
        fputs(i ? b->crossing : b->left, table->out);
        for (int k = 0; k < table->columns[i].width + 2; k++)
            fputs(b->line, table->out);
    }
    fprintf(table->out, "%s\n", b->right);
}

// The bytes of as many characters as fit; at least one.
static size_t chop(const char *text, int width)
{
    size_t n = 0;
    for (int columns = 0; text[n]; n++) {
        columns += (text[n] & 0xC0) != 0x80;
        if (columns > MU_MAX(width, 1))
            break;
    }
    return n;
}

// The bytes of the first line of a text that wraps: the words that fit, or a part of a word that is longer.
static size_t first_line(const char *text, int width)
{
    const size_t room = chop(text, width);
    size_t used = 0;
    while (text[used]) {
        size_t end = used + strspn(text + used, " ");
        end += strcspn(text + end, " ");
        if (end > room)
            break;
        used = end;
    }
    return used > 0 ? used : room;
}

static int columns_of(const char *text, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += (text[i] & 0xC0) != 0x80;
    return columns;
}

// Prints the next line of a cell, and moves `*rest` behind it.
static void print_cell_line(const mu_text_table *table, int column, const char **rest)
{
    const int width = table->columns[column].width;
    const mu_align align = table->columns[column].align;
    const size_t n = first_line(*rest, width);
    const int space = MU_MAX(0, width - columns_of(*rest, n));
    const int before = align == MU_ALIGN_RIGHT ? space : align == MU_ALIGN_CENTRE ? space / 2 : 0;
    fprintf(table->out, " %*s%.*s%*s ", before, "", (int)n, *rest, space - before, "");
    *rest += n;
    *rest += strspn(*rest, " ");
}

static void print_cells(const mu_text_table *table, const char *const *cells, const char *side)
{
    const char *rest[MU_TABLE_COLUMNS];
    bool more = true;
    for (int i = 0; i < table->n; i++)
        rest[i] = cells[i];
    while (more) {
        more = false;
        for (int i = 0; i < table->n; i++) {
            fputs(side, table->out);
            print_cell_line(table, i, &rest[i]);
            more |= *rest[i] != '\0';
        }
        fprintf(table->out, "%s\n", side);
    }
}

void mu__table_header(mu_text_table *table, const char *const *cells)
{
    print_border(table, &(border){"┏", "━", "┳", "┓"});
    print_cells(table, cells, "┃");
    print_border(table, &(border){"┡", "━", "╇", "┩"});
}

void mu__table_row(mu_text_table *table, const char *const *cells)
{
    if (table->rows++ > 0)
        print_border(table, &(border){"├", "─", "┼", "┤"});
    print_cells(table, cells, "│");
}

void mu__table_end(mu_text_table *table) { print_border(table, &(border){"└", "─", "┴", "┘"}); }
