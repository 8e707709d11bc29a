// Embedding tables in checkpoints: keys, rows, the optimizer's slots, and when each row was used, by ascending key.
//
// The number of servers is not saved: a restore sends each row to where its key belongs.
#include "model/files/checkpoint.h"

#include "cluster/cluster.h"
#include "distribute/variables/strategy_embedding.h"

enum { KEYS, ROWS, SLOTS, UPDATES };

static const char *const suffixes[MU_TABLE_TENSORS] = {
    [KEYS] = "keys", [ROWS] = "rows", [SLOTS] = "slots", [UPDATES] = "updates"};

static const char *name_of(const mu_embedding_table *table, int which)
{
    char *full = mu__sprintf("%s/%s", table->resource->name, suffixes[which]);
    const char *name = full ? mu__text_give(full) : NULL;
    mu__free(full);
    return name;
}

static mu_spec spec_of(const mu_embedding_table *table, int which, int64_t n)
{
    const mu_table_options *o = &table->options;
    switch (which) {
    case KEYS: return (mu_spec){.dtype = MU_I64, .shape = MU_SHAPE(n)};
    case ROWS: return (mu_spec){.dtype = (mu_dtype)o->dtype, .shape = MU_SHAPE(n, o->dimension)};
    case SLOTS: return (mu_spec){.dtype = MU_F32, .shape = MU_SHAPE(n, mu__table_slots(o))};
    default: return (mu_spec){.dtype = MU_I64, .shape = MU_SHAPE(n, 2)};
    }
}

mu_status mu__table_tensors(mu_embedding_table *table, const char **names, mu_tensor **tensors, int *n)
{
    mu_table_rows rows;
    MU_TRY(mu__embedding_table_read(table, &rows));
    const void *const data[] = {[KEYS] = rows.keys, [ROWS] = rows.values, [SLOTS] = rows.slots, [UPDATES] = rows.about};
    for (int i = 0; i < MU_TABLE_TENSORS && !mu__pending(); i++, ++*n) {
        const mu_spec spec = spec_of(table, i, rows.n);
        names[*n] = name_of(table, i);
        tensors[*n] = mu_tensor_new(spec.dtype, spec.shape.rank, spec.shape.dims, data[i]);
    }
    mu__table_rows_free(&rows);
    return mu_error_code();
}

static mu_status check_tensor(const mu_embedding_table *table, const mu_tensor_file *file, int which, int64_t *n)
{
    char seen_text[MU_SHAPE_TEXT], wanted_text[MU_SHAPE_TEXT];
    const char *name = name_of(table, which);
    if (!name)
        return mu_error_code();
    const int i = mu_tensor_file_find(file, name);
    if (i < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the checkpoint '%s' has no '%s'; it was saved without this embedding table (muster inspect "
                         "lists what it has)",
                         file->path, name);
    const mu_dtype dtype = mu_tensor_file_dtype(file, i);
    const mu_shape shape = mu_tensor_file_shape(file, i);
    if (which == KEYS)
        *n = shape.rank == 1 ? shape.dims[0] : 0;
    const mu_spec wanted = spec_of(table, which, *n);
    if (dtype == wanted.dtype && mu__shape_equal(&shape, &wanted.shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "'%s' in the checkpoint '%s' is %s%s; the embedding table needs %s%s: make it with the dimension, "
                     "type and optimizer of the one that was saved",
                     name, file->path, mu_dtype_name(dtype), mu__shape_text(&shape, seen_text),
                     mu_dtype_name(wanted.dtype), mu__shape_text(&wanted.shape, wanted_text));
}

mu_status mu__table_check_file(const mu_embedding_table *table, const mu_tensor_file *file)
{
    int64_t n = 0;
    for (int i = 0; i < MU_TABLE_TENSORS; i++)
        MU_TRY(check_tensor(table, file, i, &n));
    return MU_OK;
}

mu_status mu__table_restore(mu_embedding_table *table, const mu_tensor_file *file)
{
    mu_tensor *parts[MU_TABLE_TENSORS];
    void *data[MU_TABLE_TENSORS];
    for (int i = 0; i < MU_TABLE_TENSORS; i++) {
        const char *name = name_of(table, i);
        parts[i] = name ? mu_tensor_file_read(file, mu_tensor_file_find(file, name)) : NULL;
        data[i] = parts[i] ? (void *)(uintptr_t)mu__host_read(parts[i]) : NULL;
        if (!data[i])
            return mu_error_code();
    }
    return mu__embedding_table_write(table, &(mu_table_rows){.n = parts[KEYS]->shape.dims[0],
                                                             .keys = data[KEYS],
                                                             .about = data[UPDATES],
                                                             .values = data[ROWS],
                                                             .slots = data[SLOTS]});
}
