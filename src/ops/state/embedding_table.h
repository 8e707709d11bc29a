// Embedding tables inside the library: rows by 64-bit keys, which are made when they are first used.
//
// A table is in stripes by the hash of the key, each with a lock, an index with open addressing, and rows in slabs. A
// call sorts its keys by stripe, so it takes each lock once. embedding_table.c stores rows, embedding_row.c computes on
// one, embedding_batch.c looks up and updates many, embedding_transfer.c saves and restores. A table whose rows are on
// servers is another resource of the same kind name (rpc/remote/remote_table.h).
#ifndef MU_SRC_OPS_EMBEDDING_TABLE_H
#define MU_SRC_OPS_EMBEDDING_TABLE_H

#include "ops/core/op.h"
#include "ops/state/budget.h"

#define MU_TABLE_KIND "embedding_table"

typedef enum mu_table_optimizer {
    MU_TABLE_SGD,
    MU_TABLE_ADAGRAD,
    MU_TABLE_ROWWISE_ADAGRAD,
    MU_TABLE_ADAM,
    MU_TABLE_N_OPTIMIZERS
} mu_table_optimizer;

typedef enum mu_table_initializer {
    MU_TABLE_UNIFORM,
    MU_TABLE_NORMAL,
    MU_TABLE_ZEROS,
    MU_TABLE_N_INITIALIZERS
} mu_table_initializer;

// What a table is made with. It travels to servers as two vectors: the numbers up to max_bytes as int64, the others as
// float64.
typedef struct mu_table_options {
    int64_t dimension, dtype, optimizer, initializer, seed; // dtype: MU_F32 or MU_BF16
    int64_t max_rows, max_age, max_bytes;                   // 0: no limit
    double scale, learning_rate, initial_accumulator, beta_1, beta_2, epsilon;
} mu_table_options;
enum { MU_TABLE_INTS = 8, MU_TABLE_REALS = 6 };

// mu__table_options_check checks options that may come from elsewhere. mu__table_slots returns how many float32 numbers
// a row has in addition to its values.
mu_status mu__table_options_check(const mu_table_options *options, const char *name);
int64_t mu__table_slots(const mu_table_options *options);

// A row: this header, its values in the type of the table, its slots.
typedef struct mu_table_row {
    uint64_t key, used;    // used: number of the table's latest update when the row was last used
    uint32_t updates;      // of this row
    uint32_t newer, older; // in the order of use; 0: none. In a free row, `older` is the next free one
    uint32_t padding;
} mu_table_row;

typedef struct mu_table_entry {
    uint64_t key;
    uint32_t row; // number in the stripe, from 1; 0: free
    uint32_t padding;
} mu_table_entry;

typedef struct mu_table_stripe {
    pthread_mutex_t lock;
    mu_table_entry *index; // [mask + 1]
    size_t mask;
    char **slabs;
    uint32_t n_slabs, n_taken; // rows ever taken from slabs
    uint32_t n, free;          // rows in use; first free row
    uint32_t newest, oldest;   // only kept in order with a limit of rows or age
} mu_table_stripe;

typedef struct mu_table {
    mu_resource resource; // spec: float32 [dimension]
    mu_table_options options;
    size_t values_at, slots_at, row_bytes;
    int slab_shift;      // a slab has 1 << slab_shift rows
    uint32_t most_rows;  // of a stripe; 0: no limit
    int n_stripes, made; // a power of two; stripes whose lock exists
    mu_table_stripe *stripes;
    atomic_ullong n_updates; // calls of mu__table_update
    mu_holder holder;        // of its bytes
} mu_table;

extern const mu_resource_kind mu__table_kind;

// mu__table_new makes a table; the caller owns it. `budget` must outlive it.
mu_table *mu__table_new(const mu_table_options *options, const char *name, mu_byte_budget *budget);

static inline float *mu__table_slots_of(const mu_table *table, mu_table_row *row)
{
    return (float *)(void *)((char *)row + table->slots_at);
}

static inline void *mu__table_values_of(const mu_table *table, mu_table_row *row)
{
    return (char *)row + table->values_at;
}

// Attributes of embedding_table_lookup.
typedef struct mu_table_lookup_attrs {
    bool read_only; // keys without a row get no row
} mu_table_lookup_attrs;

// ---- Storage (embedding_table.c); the caller holds the stripe's lock ----------------------------

int mu__table_stripe_of(const mu_table *table, uint64_t hash);
mu_table_row *mu__table_row_at(const mu_table *table, const mu_table_stripe *stripe, uint32_t number);
mu_table_row *mu__table_find(const mu_table *table, const mu_table_stripe *stripe, uint64_t key, uint64_t hash);
// mu__table_add makes a row that is not there, with its first values. Errors: RESOURCE_EXHAUSTED.
mu_table_row *mu__table_add(mu_table *table, mu_table_stripe *stripe, uint64_t key, uint64_t hash);
// mu__table_touch records that a row is used now. mu__table_evict removes rows that are too old after so many updates
// of the table: an update that is about to use a row does not count yet.
void mu__table_touch(const mu_table *table, mu_table_stripe *stripe, mu_table_row *row);
void mu__table_evict(mu_table *table, mu_table_stripe *stripe, uint64_t n_updates);

// ---- One row (embedding_row.c) ------------------------------------------------------------------

// mu__row_begin writes the first values, which depend on key and seed alone, and the first slots. mu__row_first writes
// these values as float32. mu__row_read writes a row's values as float32. mu__row_update applies a gradient;
// `scratch`: dimension numbers.
void mu__row_begin(const mu_table *table, mu_table_row *row);
void mu__row_first(const mu_table_options *options, uint64_t key, float *out);
void mu__row_read(const mu_table *table, mu_table_row *row, float *out);
void mu__row_update(const mu_table *table, mu_table_row *row, const float *gradient, double rate, float *scratch);

// ---- Many rows (embedding_batch.c) --------------------------------------------------------------

// mu__table_lookup writes n rows as float32, [n, dimension]. Keys that have no row get one if `make`, otherwise the
// values with which it would begin. Errors: RESOURCE_EXHAUSTED naming the table; some rows may have been made.
mu_status mu__table_lookup(mu_table *table, int64_t n, const int64_t *keys, bool make, float *out);
// mu__table_update applies gradients, [n, dimension]; those of one key are added up first, in order. `rate`
// replaces the table's learning rate unless it is negative.
mu_status mu__table_update(mu_table *table, int64_t n, const int64_t *keys, const float *gradients, double rate);
int64_t mu__table_rows(mu_table *table);

// Gradients, [n, dimension], of distinct keys.
typedef struct mu_distinct_gradients {
    int64_t n, *keys;
    const float *gradients; // those given, if their keys were distinct; else `sums`
    float *sums;
} mu_distinct_gradients;

// mu__distinct_gradients adds up the gradients of each key, in order; mu__distinct_gradients_free frees the result.
mu_status mu__distinct_gradients(int64_t n, int64_t dimension, const int64_t *keys, const float *gradients,
                                 mu_distinct_gradients *out);
void mu__distinct_gradients_free(mu_distinct_gradients *gradients);

// ---- Saving and restoring (embedding_transfer.c) ------------------------------------------------

// Rows as they are saved. `about`: [n, 2] updates of the row, and updates of the table since its last use.
typedef struct mu_table_rows {
    int64_t n;
    int64_t *keys, *about;
    void *values; // [n, dimension] in the type of the table
    float *slots; // [n, slots]
} mu_table_rows;

// mu__table_export reads the rows of one stripe into arrays that mu__table_rows_free frees, in the order of use if the
// table keeps it: imported into an empty table in this order, they are used and go as here. mu__table_clear removes all
// rows. mu__table_import adds rows, oldest first, or replaces those that are there. `oldest`: the largest number of
// updates since a last use that any import will name, so that ages stay.
mu_status mu__table_export(mu_table *table, int stripe, mu_table_rows *out);
void mu__table_rows_free(mu_table_rows *rows);
void mu__table_clear(mu_table *table, uint64_t oldest);
mu_status mu__table_import(mu_table *table, const mu_table_rows *rows);

#endif
