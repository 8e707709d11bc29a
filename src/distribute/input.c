// Distributed input: each batch of a dataset is split among the replicas.
//
// A batch of B rows goes to N replicas as contiguous parts of B/N or B/N + 1 rows: views of the batch, no
// copies. Nothing is dropped or repeated; near the end a part may be empty, which a step must and does bear.
// Datasets made for each pipeline by a function hold what one replica gets per element, so a step takes one
// element for each replica; so do TensorFlow's own pieces, which MUSTER_TF_COMPAT asks for.
#include "distribute/distribute.h"

struct mu_distributed_dataset {
    mu_iterable iterable;     // first
    mu_strategy *strategy;
    mu_dataset *dataset;
    bool ready;               // its elements are one replica's, not global batches
};

typedef struct distributed_iterator {
    mu_iterator head;         // first
    mu_strategy *strategy;
    mu_iterator *inner;
    bool ready;
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

// One element for each replica, in turn; those without one get an empty batch, as long as any has one.
static mu_value *next_of_each(const distributed_iterator *iterator)
{
    const int n = iterator->strategy->n_local;
    mu_value *values[MU_MAX_REPLICAS] = {NULL}, *result = NULL;
    int made = 0;
    for (; made < n; made++) {
        mu_value *element = mu_next(iterator->inner);
        if (!element && made > 0 && !mu__pending())
            values[made] = mu__empty_like(values[0]);
        else
            values[made] = mu_retain(element);
        if (!values[made])
            break;
    }
    if (made == n)
        result = mu__regroup(n, values);
    for (int i = 0; i < made; i++)
        mu_release(values[i]);
    return result;
}

static mu_value *distributed_next(mu_iterator *head)
{
    distributed_iterator *iterator = (distributed_iterator *)head;
    if (iterator->ready)
        return next_of_each(iterator);
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
    iterator->ready = distributed->ready;
    iterator->inner = mu__dataset_iterate(distributed->dataset);
    if (iterator->inner)
        return &iterator->head;
    mu_release(iterator);
    return NULL;
}

// Owned by the pool; `dataset` is borrowed.
static mu_distributed_dataset *distribute(mu_strategy *strategy, mu_dataset *dataset, bool ready)
{
    mu_distributed_dataset *distributed = dataset ? mu__new(&distributed_type, sizeof *distributed) : NULL;
    if (!distributed)
        return NULL;
    distributed->iterable.iterate = distributed_iterate;
    distributed->strategy = mu_retain(strategy);
    distributed->dataset = mu_retain(dataset);
    distributed->ready = ready;
    return mu__give(distributed);
}

// ---- TensorFlow's pieces ------------------------------------------------------------------------

// The batch size that the end of a pipeline has, as TensorFlow finds it; -1: not known.
static int64_t static_batch(const mu_dataset *dataset)
{
    static const char *const through[] = {"cache", "cache_file", "filter", "prefetch", "repeat", "shard", "shuffle", "skip", "take", "options"};
    bool passes = true;
    while (passes) {
        if (mu__dataset_is(dataset, "batch") || mu__dataset_is(dataset, "padded_batch"))
            return dataset->args.count;
        passes = false;
        for (size_t i = 0; i < MU_COUNT(through) && !passes; i++)
            passes = dataset->n_inputs == 1 && mu__dataset_is(dataset, through[i]);
        if (passes)
            dataset = dataset->inputs[0];
    }
    return -1;
}

static bool reads_files(const mu_dataset *dataset)
{
    if (mu__dataset_is(dataset, "tfrecord") || mu__dataset_is(dataset, "csv"))
        return true;
    for (int i = 0; i < dataset->n_inputs; i++)
        if (reads_files(dataset->inputs[i]))
            return true;
    return false;
}

// Batches of fixed sizes where the batch size is known and the policy shards files or nothing; in memory every
// batch is cut by itself, with the last pieces short or empty.
static mu_dataset *pieces_of(mu_dataset *dataset, int n)
{
    const mu_auto_shard_policy policy = mu__dataset_auto_shard(dataset);
    const int64_t batch = static_batch(dataset);
    const bool by_data = policy == MU_AUTO_SHARD_DATA || (policy == MU_AUTO_SHARD_AUTO && !reads_files(dataset));
    if (by_data || batch < 0)
        return mu__dataset_split(dataset, n);
    int64_t sizes[MU_MAX_REPLICAS];
    for (int r = 0; r < n; r++)
        sizes[r] = batch / n + (r < batch % n);
    return mu_dataset_rebatch(dataset, n, sizes, false);
}

mu_distributed_dataset *mu_distribute_dataset(mu_strategy *given, mu_dataset *dataset)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || !strategy)
        return NULL;
    if (!dataset) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_dataset: the dataset is NULL");
        return NULL;
    }
    if (strategy->n_local > 1 && mu__setting_bool(MU_SETTING_TF_COMPAT))
        return distribute(strategy, pieces_of(dataset, strategy->n_local), true);
    return distribute(strategy, dataset, false);
}

mu_distributed_dataset *mu_distribute_datasets_from_function(mu_strategy *given, mu_dataset *(*fn)(const mu_input_context *context, void *arg),
                                                             void *arg)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || !strategy)
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_datasets_from_function: the function is NULL");
        return NULL;
    }
    const mu_input_context context = {.num_input_pipelines = 1, .num_replicas_in_sync = strategy->n_replicas};
    mu_dataset *dataset = fn(&context, arg);
    if (!dataset && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_datasets_from_function: the function returned NULL");
    return distribute(strategy, dataset, strategy->n_local > 1);
}

int64_t mu_per_replica_batch_size(const mu_input_context *context, int64_t global_batch_size)
{
    if (mu__pending())
        return -1;
    const int n = context ? context->num_replicas_in_sync : 1;
    if (n >= 1 && global_batch_size % n == 0)
        return global_batch_size / n;
    mu__error(MU_INVALID_ARGUMENT, "mu_per_replica_batch_size: a global batch of %lld cannot be divided among %d replicas; choose a "
              "multiple", (long long)global_batch_size, n);
    return -1;
}
