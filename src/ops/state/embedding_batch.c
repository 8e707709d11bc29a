// Many rows of an embedding table at once: lookups and updates.
//
// Keys are sorted by stripe, so that each lock is taken once, and go in blocks: of a block first the index entries are
// prefetched, then the rows, and then they are used, so that memory is waited for once per block and not once per row.
#include "ops/state/embedding_table.h"

#include "ops/array/distinct.h"

enum { BLOCK = 16, LINE = 64 };

typedef struct batch {
    mu_table *table;
    int64_t n;
    const int64_t *keys;
    uint32_t *order;    // [n] keys by stripe; NULL: there is one stripe
    int64_t *begin;     // [stripes + 1]
    bool make;          // rows that are not there
    uint64_t n_updates; // of the table before this batch
    // use works with the row of key i; NULL: there is none.
    void (*use)(const struct batch *batch, mu_table_row *row, int64_t i);
    size_t row_bytes;       // of a row that are used
    float *out;             // lookups
    const float *gradients; // updates
    float *scratch;
    double rate;
} batch;

static int64_t key_at(const batch *b, int64_t k) { return b->order ? b->order[k] : k; }

// A counting sort of the keys by stripe.
static mu_status sort_keys(batch *b)
{
    const mu_table *t = b->table;
    if (b->n > INT32_MAX)
        return mu__error(MU_INVALID_ARGUMENT, "embedding table '%s': %lld keys at one time; give fewer than 2^31",
                         t->resource.name, (long long)b->n);
    b->begin = mu__calloc((size_t)t->n_stripes + 1, sizeof *b->begin);
    if (!b->begin)
        return MU_RESOURCE_EXHAUSTED;
    if (t->n_stripes == 1) {
        b->begin[1] = b->n;
        return MU_OK;
    }
    b->order = mu__alloc(((size_t)b->n + 1) * sizeof *b->order);
    if (!b->order)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < b->n; i++)
        b->begin[mu__table_stripe_of(t, mu__hash_id((uint64_t)b->keys[i])) + 1]++;
    for (int s = 0; s < t->n_stripes; s++)
        b->begin[s + 1] += b->begin[s];
    for (int64_t i = 0; i < b->n; i++)
        b->order[b->begin[mu__table_stripe_of(t, mu__hash_id((uint64_t)b->keys[i]))]++] = (uint32_t)i;
    for (int s = t->n_stripes; s > 0; s--)
        b->begin[s] = b->begin[s - 1];
    b->begin[0] = 0;
    return MU_OK;
}

static void drop_order(batch *b)
{
    mu__free(b->order);
    mu__free(b->begin);
}

static void prefetch_row(const batch *b, const mu_table_row *row)
{
    for (size_t at = 0; at < b->row_bytes && at < 16 * LINE; at += LINE)
        __builtin_prefetch((const char *)row + at, 1);
}

// Rows that are missing come last: making one may remove another of the block.
static mu_status use_missing(const batch *b, mu_table_stripe *s, int64_t i)
{
    const uint64_t key = (uint64_t)b->keys[i], hash = mu__hash_id(key);
    mu_table_row *row = mu__table_find(b->table, s, key, hash);
    if (row) // of the same key before, in this block
        mu__table_touch(b->table, s, row);
    else if (b->make && !(row = mu__table_add(b->table, s, key, hash)))
        return mu_error_code();
    b->use(b, row, i);
    return MU_OK;
}

static mu_status use_block(const batch *b, mu_table_stripe *s, int64_t first, int n)
{
    uint64_t hashes[BLOCK];
    mu_table_row *rows[BLOCK];
    for (int k = 0; k < n; k++) {
        hashes[k] = mu__hash_id((uint64_t)b->keys[key_at(b, first + k)]);
        if (s->index)
            __builtin_prefetch(&s->index[hashes[k] & s->mask]);
    }
    for (int k = 0; k < n; k++) {
        rows[k] = mu__table_find(b->table, s, (uint64_t)b->keys[key_at(b, first + k)], hashes[k]);
        if (rows[k])
            prefetch_row(b, rows[k]);
    }
    for (int k = 0; k < n; k++)
        if (rows[k]) {
            mu__table_touch(b->table, s, rows[k]);
            b->use(b, rows[k], key_at(b, first + k));
        }
    for (int k = 0; k < n; k++)
        if (!rows[k])
            MU_TRY(use_missing(b, s, key_at(b, first + k)));
    return MU_OK;
}

static mu_status use_stripe(const batch *b, int stripe)
{
    mu_table_stripe *s = &b->table->stripes[stripe];
    mu_status status = MU_OK;
    if (b->begin[stripe] == b->begin[stripe + 1])
        return MU_OK;
    pthread_mutex_lock(&s->lock);
    mu__table_evict(b->table, s, b->n_updates);
    for (int64_t k = b->begin[stripe]; k < b->begin[stripe + 1] && status == MU_OK; k += BLOCK)
        status = use_block(b, s, k, (int)MU_MIN(BLOCK, b->begin[stripe + 1] - k));
    pthread_mutex_unlock(&s->lock);
    return status;
}

// Calls begin with different stripes, so that those that come together do not follow each other through all of them.
static mu_status use_all(batch *b)
{
    static atomic_uint n_calls;
    const int n = b->table->n_stripes, first = (int)(n_calls++ & (unsigned)(n - 1));
    mu_status status = sort_keys(b);
    for (int s = 0; s < n && status == MU_OK; s++)
        status = use_stripe(b, (first + s) & (n - 1));
    drop_order(b);
    return status;
}

// ---- Lookups ------------------------------------------------------------------------------------

static void read_row(const batch *b, mu_table_row *row, int64_t i)
{
    float *out = b->out + i * b->table->options.dimension;
    if (row)
        mu__row_read(b->table, row, out);
    else
        mu__row_first(&b->table->options, (uint64_t)b->keys[i], out);
}

mu_status mu__table_lookup(mu_table *table, int64_t n, const int64_t *keys, bool make, float *out)
{
    return use_all(&(batch){.table = table,
                            .n = n,
                            .keys = keys,
                            .make = make,
                            .n_updates = table->n_updates,
                            .use = read_row,
                            .row_bytes = table->slots_at,
                            .out = out});
}

// ---- Updates ------------------------------------------------------------------------------------

static void update_row(const batch *b, mu_table_row *row, int64_t i)
{
    mu__row_update(b->table, row, b->gradients + i * b->table->options.dimension, b->rate, b->scratch);
}

static void add_up(int64_t n, int64_t dimension, const uint32_t *number, const float *gradients, float *sums)
{
    for (int64_t i = 0; i < n; i++, gradients += dimension) {
        float *sum = sums + number[i] * dimension;
        for (int64_t k = 0; k < dimension; k++)
            sum[k] += gradients[k];
    }
}

mu_status mu__distinct_gradients(int64_t n, int64_t dimension, const int64_t *keys, const float *gradients,
                                 mu_distinct_gradients *out)
{
    *out = (mu_distinct_gradients){.keys = mu__alloc(((size_t)n + 1) * sizeof *out->keys)};
    uint32_t *number = out->keys ? mu__alloc(((size_t)n + 1) * sizeof *number) : NULL;
    out->n = number ? mu__distinct(n, keys, out->keys, number) : -1;
    out->gradients = gradients;
    if (out->n >= 0 && out->n < n) {
        out->sums = mu__calloc((size_t)(out->n * dimension), sizeof *out->sums);
        out->gradients = out->sums;
        if (out->sums)
            add_up(n, dimension, number, gradients, out->sums);
    }
    mu__free(number);
    if (out->n >= 0 && out->gradients)
        return MU_OK;
    mu__distinct_gradients_free(out);
    return MU_RESOURCE_EXHAUSTED;
}

void mu__distinct_gradients_free(mu_distinct_gradients *gradients)
{
    mu__free(gradients->keys);
    mu__free(gradients->sums);
    *gradients = (mu_distinct_gradients){0};
}

mu_status mu__table_update(mu_table *table, int64_t n, const int64_t *keys, const float *gradients, double rate)
{
    mu_distinct_gradients d;
    float *scratch = mu__alloc((size_t)table->options.dimension * sizeof *scratch);
    mu_status status =
        scratch ? mu__distinct_gradients(n, table->options.dimension, keys, gradients, &d) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK) {
        status = use_all(&(batch){.table = table,
                                  .n = d.n,
                                  .keys = d.keys,
                                  .make = true,
                                  .n_updates = table->n_updates++,
                                  .use = update_row,
                                  .row_bytes = table->row_bytes,
                                  .gradients = d.gradients,
                                  .scratch = scratch,
                                  .rate = rate < 0 ? table->options.learning_rate : rate});
        mu__distinct_gradients_free(&d);
    }
    mu__free(scratch);
    return status;
}

int64_t mu__table_rows(mu_table *table)
{
    int64_t n = 0;
    for (int i = 0; i < table->n_stripes; i++) {
        mu_table_stripe *s = &table->stripes[i];
        pthread_mutex_lock(&s->lock);
        mu__table_evict(table, s, table->n_updates);
        n += s->n;
        pthread_mutex_unlock(&s->lock);
    }
    return n;
}
