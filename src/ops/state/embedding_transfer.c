// Rows of an embedding table as arrays: to save them, and to put them into another table, on any number of servers.
#include "ops/state/embedding_table.h"

#include "ops/array/distinct.h"

static size_t value_bytes(const mu_table *t)
{
    return (size_t)t->options.dimension * mu_dtype_bytes((mu_dtype)t->options.dtype);
}

static mu_status allocate(const mu_table *t, int64_t n, mu_table_rows *out)
{
    const size_t rows = (size_t)n + 1;
    *out = (mu_table_rows){.n = n,
                           .keys = mu__calloc(rows, sizeof *out->keys),
                           .about = mu__calloc(rows, 2 * sizeof *out->about),
                           .values = mu__calloc(rows, value_bytes(t)),
                           .slots = mu__calloc(rows, ((size_t)mu__table_slots(&t->options) + 1) * sizeof *out->slots)};
    if (out->keys && out->about && out->values && out->slots)
        return MU_OK;
    mu__table_rows_free(out);
    return MU_RESOURCE_EXHAUSTED;
}

void mu__table_rows_free(mu_table_rows *rows)
{
    mu__free(rows->keys);
    mu__free(rows->about);
    mu__free(rows->values);
    mu__free(rows->slots);
    *rows = (mu_table_rows){0};
}

static void copy_out(const mu_table *t, mu_table_row *row, const mu_table_rows *out, int64_t i)
{
    const int64_t slots = mu__table_slots(&t->options);
    out->keys[i] = (int64_t)row->key;
    out->about[2 * i] = row->updates;
    out->about[2 * i + 1] = (int64_t)(t->n_updates - row->used);
    memcpy((char *)out->values + (size_t)i * value_bytes(t), mu__table_values_of(t, row), value_bytes(t));
    memcpy(out->slots + i * slots, mu__table_slots_of(t, row), (size_t)slots * sizeof *out->slots);
}

mu_status mu__table_export(mu_table *t, int stripe, mu_table_rows *out)
{
    mu_table_stripe *s = &t->stripes[stripe];
    pthread_mutex_lock(&s->lock);
    mu__table_evict(t, s, t->n_updates);
    const mu_status status = allocate(t, s->n, out);
    int64_t n = 0;
    for (uint32_t at = status == MU_OK ? s->oldest : 0; at != 0; at = mu__table_row_at(t, s, at)->newer)
        copy_out(t, mu__table_row_at(t, s, at), out, n++);
    const bool ordered = s->oldest != 0;
    for (size_t i = 0; !ordered && status == MU_OK && s->index && i <= s->mask; i++)
        if (s->index[i].row != 0)
            copy_out(t, mu__table_row_at(t, s, s->index[i].row), out, n++);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static mu_status copy_in(mu_table *t, const mu_table_rows *rows, int64_t i)
{
    const uint64_t key = (uint64_t)rows->keys[i], hash = mu__hash_id(key), now = t->n_updates;
    const int64_t slots = mu__table_slots(&t->options), age = rows->about[2 * i + 1];
    mu_table_stripe *s = &t->stripes[mu__table_stripe_of(t, hash)];
    pthread_mutex_lock(&s->lock);
    mu_table_row *row = mu__table_find(t, s, key, hash);
    if (!row)
        row = mu__table_add(t, s, key, hash);
    if (row) {
        row->updates = (uint32_t)MU_MIN(MU_MAX(rows->about[2 * i], 0), (int64_t)UINT32_MAX);
        row->used = now - MU_MIN((uint64_t)MU_MAX(age, 0), now);
        memcpy(mu__table_values_of(t, row), (const char *)rows->values + (size_t)i * value_bytes(t), value_bytes(t));
        memcpy(mu__table_slots_of(t, row), rows->slots + i * slots, (size_t)slots * sizeof *rows->slots);
    }
    pthread_mutex_unlock(&s->lock);
    return row ? MU_OK : mu_error_code();
}

mu_status mu__table_import(mu_table *t, const mu_table_rows *rows)
{
    for (int64_t i = 0; i < rows->n; i++)
        MU_TRY(copy_in(t, rows, i));
    return MU_OK;
}
