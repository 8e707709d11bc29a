// Tables of text for a terminal, drawn with box characters: cells wrap between words, and all lines have one width.
#ifndef MU_SRC_MODEL_TEXT_TABLE_H
#define MU_SRC_MODEL_TEXT_TABLE_H

#include "base/base.h"

enum { MU_TABLE_COLUMNS = 5 }; // at most

typedef enum mu_align { MU_ALIGN_LEFT, MU_ALIGN_RIGHT, MU_ALIGN_CENTRE } mu_align;

typedef struct mu_text_table {
    FILE *out;
    int n; // columns
    struct {
        int width;
        mu_align align;
    } columns[MU_TABLE_COLUMNS]; // width: of the text, without borders
    int rows;                    // that were printed
} mu_text_table;

// mu__table_header prints the titles of the columns, mu__table_row a row, mu__table_end the last border. `cells` has a
// text for each column.
void mu__table_header(mu_text_table *table, const char *const *cells);
void mu__table_row(mu_text_table *table, const char *const *cells);
void mu__table_end(mu_text_table *table);

#endif
