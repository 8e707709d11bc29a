// Draws tables with box characters, as the Python package rich does for Keras's summary: a heavy header, thin lines
// between rows, lines that break between words. A word that is longer than its column has a line of its own and ends
// with an ellipsis where the column does.
#include "model/drawing/text_table.h"

// The characters of a horizontal border: its left end, line, crossing, and right end.
typedef struct border {
    const char *left, *line, *crossing, *right;
} border;

static void print_border(const mu_text_table *table, const border *b)
{
    for (int i = 0; i < table->n; i++) {
        fputs(i ? b->crossing : b->left, table->out);
        for (int k = 0; k < table->columns[i].width + 2; k++)
            fputs(b->line, table->out);
    }
    fprintf(table->out, "%s\n", b->right);
}

static int columns_of(const char *text, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += (text[i] & 0xC0) != 0x80;
    return columns;
}

// The bytes of the first `width` characters.
static size_t chop(const char *text, size_t n, int width)
{
    size_t bytes = 0;
    for (int columns = 0; bytes < n; bytes++) {
        columns += (text[bytes] & 0xC0) != 0x80;
        if (columns > width)
            break;
    }
    return bytes;
}

// The bytes of the first line of a text that wraps, with the spaces behind it: the words that fit, or one that is
// longer.
static size_t first_line(const char *text, int width)
{
    size_t used = 0;
    while (text[used]) {
        size_t end = used + strspn(text + used, " ");
        end += strcspn(text + end, " ");
        if (used > 0 && columns_of(text, end) > width)
            break;
        used = end + strspn(text + end, " ");
    }
    return used;
}

// Prints the next line of a cell, and moves `*rest` behind it.
static void print_cell_line(const mu_text_table *table, int column, const char **rest)
{
    const int width = table->columns[column].width;
    const mu_align align = table->columns[column].align;
    const size_t line = first_line(*rest, width);
    size_t n = line;
    while (n > 0 && (*rest)[n - 1] == ' ')
        n--;
    const bool cut = columns_of(*rest, n) > width;
    n = cut ? chop(*rest, n, width - 1) : n;
    const int space = MU_MAX(0, width - columns_of(*rest, n) - cut);
    const int before = align == MU_ALIGN_RIGHT ? space : align == MU_ALIGN_CENTRE ? space / 2 : 0;
    fprintf(table->out, " %*s%.*s%s%*s ", before, "", (int)n, *rest, cut ? "…" : "", space - before, "");
    *rest += line;
}

static int lines_of(const char *text, int width)
{
    int n = 1;
    for (text += first_line(text, width); *text; text += first_line(text, width))
        n++;
    return n;
}

// Prints a row; texts of fewer lines than others are aligned to its top, or to its bottom.
static void print_cells(const mu_text_table *table, const char *const *cells, const char *side, bool at_bottom)
{
    const char *rest[MU_TABLE_COLUMNS];
    int lines[MU_TABLE_COLUMNS], most = 0;
    for (int i = 0; i < table->n; i++) {
        rest[i] = cells[i];
        lines[i] = lines_of(cells[i], table->columns[i].width);
        most = MU_MAX(most, lines[i]);
    }
    for (int line = 0; line < most; line++) {
        for (int i = 0; i < table->n; i++) {
            const char *nothing = "";
            fputs(side, table->out);
            print_cell_line(table, i, at_bottom && line < most - lines[i] ? &nothing : &rest[i]);
        }
        fprintf(table->out, "%s\n", side);
    }
}

void mu__table_header(mu_text_table *table, const char *const *cells)
{
    print_border(table, &(border){"┏", "━", "┳", "┓"});
    print_cells(table, cells, "┃", true);
    print_border(table, &(border){"┡", "━", "╇", "┩"});
}

void mu__table_row(mu_text_table *table, const char *const *cells)
{
    if (table->rows++ > 0)
        print_border(table, &(border){"├", "─", "┼", "┤"});
    print_cells(table, cells, "│", false);
}

void mu__table_end(mu_text_table *table) { print_border(table, &(border){"└", "─", "┴", "┘"}); }
