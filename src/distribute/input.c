// Distributed input: each batch of a dataset is split among the replicas.
//
// A batch of B rows goes to N replicas as contiguous parts of B/N or B/N + 1 rows: views of the batch, no
// copies. Nothing is dropped or repeated; near the end a part may be empty, which a step must and does bear.
#include "distribute/distribute.h"

struct mu_distributed_dataset {
    mu_iterable iterable;     // first
    mu_strategy *strategy;
    mu_dataset *dataset;
};

typedef struct distributed_iterator {
    mu_iterator head;         // first
    mu_strategy *strategy;
    mu_iterator *inner;
} distributed_iterator;

static void distributed_destroy(void *object)
{
    mu_distributed_dataset *distributed = object;
    mu_release(distributed->strategy);
    mu_release(distributed->dataset);
}

static mu_type distributed_type = {.name = "distributed dataset", .destroy = distributed_destroy};

static void iterator_destroy(void *object)
{
    distributed_iterator *iterator = object;
    mu__iterator_close(&iterator->head);
    mu_release(iterator->inner);
    mu_release(iterator->strategy);
}

static mu_type iterator_type = {.name = "distributed iterator", .destroy = iterator_destroy};

// Rows [begin, end) of a tensor as a view. Owned.
static mu_tensor *rows_of(const mu_tensor *tensor, int64_t begin, int64_t end)
{
    mu_shape row = tensor->shape, part = tensor->shape;
    row.dims[0] = 1;
    part.dims[0] = end - begin;
    mu_spec spec = {.dtype = tensor->dtype, .shape = row};
    return mu__tensor_view(tensor->buffer, tensor->offset + (size_t)begin * mu__spec_bytes(&spec), tensor->dtype, &part);
}

static mu_status check_batch(mu_object *const *leaves, int n, int64_t *rows)
{
    *rows = -1;
    for (int i = 0; i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        if (!mu__is(tensor, &mu__tensor_type) || tensor->shape.rank < 1)
            return mu__error(MU_INVALID_ARGUMENT, "mu_distribute_dataset: element %d of a batch is a scalar; batch the dataset "
                             "(mu_dataset_batch) before distributing it", i);
        if (*rows >= 0 && tensor->shape.dims[0] != *rows)
            return mu__error(MU_INVALID_ARGUMENT, "mu_distribute_dataset: the tensors of a batch have %lld and %lld rows; they must "
                             "share axis 0", (long long)*rows, (long long)tensor->shape.dims[0]);
        *rows = tensor->shape.dims[0];
    }
    return MU_OK;
}

// One replica's part of a batch. Owned.
static mu_value *part_of(const mu_value *batch, mu_object *const *leaves, mu_object **parts, int n, int64_t begin, int64_t end)
{
    mu_value *value = NULL;
    int made = 0;
    while (made < n && (parts[made] = (mu_object *)rows_of((mu_tensor *)leaves[made], begin, end)))
        made++;
    if (made == n)
        value = mu__value_pack(batch, parts, n);
    for (int i = 0; i < made; i++)
        mu_release(parts[i]);
    return value;
}

mu_value *mu__split_batch(const mu_strategy *strategy, const mu_value *batch)
{
    int n = mu__value_flatten(batch, NULL, 0), replicas = strategy->n_local;
    int64_t rows;
    mu_value *result = NULL;
    mu_object **leaves = mu__calloc((size_t)n + 1, 2 * sizeof *leaves);
    mu_value **values = mu__calloc((size_t)replicas, sizeof *values);
    if (!leaves || !values)
        goto out;
    mu__value_flatten(batch, leaves, n);
    if (check_batch(leaves, n, &rows) != MU_OK)
        goto out;
    for (int r = 0; r < replicas; r++) {
        int64_t begin = rows / replicas * r + MU_MIN(r, rows % replicas);
        int64_t end = begin + rows / replicas + (r < rows % replicas);
        if (!(values[r] = part_of(batch, leaves, leaves + n, n, begin, end)))
            goto out;
    }
    result = mu__regroup(replicas, values);
out:
    for (int r = 0; values && r < replicas; r++)
        mu_release(values[r]);
    mu__free(values);
    mu__free(leaves);
    return result;
}

static mu_value *distributed_next(mu_iterator *head)
{
    distributed_iterator *iterator = (distributed_iterator *)head;
    mu_value *batch = mu_next(iterator->inner);
    if (!batch)
        return NULL;
    return iterator->strategy->n_local == 1 ? mu_retain(batch) : mu__split_batch(iterator->strategy, batch);
}

static char *distributed_save(mu_iterator *head)
{
    return mu__strdup(mu_iterator_state(((distributed_iterator *)head)->inner));
}

static mu_status distributed_restore(mu_iterator *head, const char *state)
{
    return mu_iterator_restore(((distributed_iterator *)head)->inner, state);
}

static const mu_iterator_ops iterator_ops = {.next = distributed_next, .save = distributed_save, .restore = distributed_restore};

static mu_iterator *distributed_iterate(mu_iterable *iterable)
{
    mu_distributed_dataset *distributed = (mu_distributed_dataset *)iterable;
    distributed_iterator *iterator = mu__new(&iterator_type, sizeof *iterator);
    if (!iterator)
        return NULL;
    iterator->head.ops = &iterator_ops;
    iterator->strategy = mu_retain(distributed->strategy);
    iterator->inner = mu__dataset_iterate(distributed->dataset);
    if (iterator->inner)
        return &iterator->head;
    mu_release(iterator);
    return NULL;
}

mu_distributed_dataset *mu_distribute_dataset(mu_strategy *strategy, mu_dataset *dataset)
{
    if (mu__pending())
        return NULL;
    if (!dataset) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_dataset: the dataset is NULL");
        return NULL;
    }
    mu_distributed_dataset *distributed = mu__new(&distributed_type, sizeof *distributed);
    if (!distributed)
        return NULL;
    distributed->iterable.iterate = distributed_iterate;
    distributed->strategy = mu_retain(mu__strategy_or_default(strategy));
    distributed->dataset = mu_retain(dataset);
    return mu__give(distributed);
}
