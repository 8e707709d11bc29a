// Embedding tables inside the library: what checkpoints need.
#ifndef MU_SRC_DISTRIBUTE_EMBEDDING_TABLE_H
#define MU_SRC_DISTRIBUTE_EMBEDDING_TABLE_H

#include "ops/state/embedding_table.h"

#include <muster/embedding_table.h>

struct mu_embedding_table {
    mu_object object;
    mu_resource *resource; // retained; a mu_table, or a table on servers
    mu_table_options options;
};
extern mu_type mu__embedding_table_type;

// mu__embedding_table_read reads all rows, in the order of their keys, into arrays that mu__table_rows_free frees.
// mu__embedding_table_write replaces all rows, wherever each belongs.
mu_status mu__embedding_table_read(mu_embedding_table *table, mu_table_rows *out);
mu_status mu__embedding_table_write(mu_embedding_table *table, const mu_table_rows *rows);

#endif
