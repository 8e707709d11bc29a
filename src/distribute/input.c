// Distributed input: each batch of a dataset is split among the replicas.
//
// A batch of B rows goes to N replicas as contiguous parts of B/N or B/N + 1 rows: views of the batch, no
// copies. Nothing is dropped or repeated; near the end a part may be empty, which a step must and does bear.
// Datasets made for each pipeline by a function hold what one replica gets per element, so a step takes one
// element for each replica; so do the pieces of shards.c. Workers agree before each step whether there is one.
#include "distribute/distribute.h"


struct mu_distributed_dataset {
    mu_iterable iterable;     // first
    mu_strategy *strategy;
    mu_shares shares;         // the dataset in it is retained
};

typedef struct distributed_iterator {
    mu_iterator head;         // first
    mu_strategy *strategy;
    mu_iterator *inner;
    mu_dataset *dataset;      // that `inner` iterates; retained
    bool order_to_take;       // before the first step
    bool pieces;              // its elements are one replica's, not this worker's batches
    mu_value *like;           // spec of one replica's batch; NULL before the first step of several workers
    int64_t rows;             // of the last step, on all workers
} distributed_iterator;

static void distributed_destroy(void *object)
{
    mu_distributed_dataset *distributed = object;
    mu_release(distributed->strategy);
    mu_release(distributed->shares.dataset);
}

static mu_type distributed_type = {.name = "distributed dataset", .destroy = distributed_destroy};

static void iterator_destroy(void *object)
{
    distributed_iterator *iterator = object;
    mu__iterator_close(&iterator->head);
    mu_release(iterator->like);
    mu_release(iterator->inner);
    mu_release(iterator->dataset);
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
    return mu__tensor_view(tensor->buffer, tensor->offset + (size_t)begin * mu__spec_bytes(&spec), tensor->dtype,
                           &part);
}

static mu_status check_batch(mu_object *const *leaves, int n, int64_t *rows)
{
    *rows = -1;
    for (int i = 0; i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        if (!mu__is(tensor, &mu__tensor_type) || tensor->shape.rank < 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_distribute_dataset: element %d of a batch is a scalar; batch the dataset "
                             "(mu_dataset_batch) before distributing it",
                             i);
        if (*rows >= 0 && tensor->shape.dims[0] != *rows)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_distribute_dataset: the tensors of a batch have %lld and %lld rows; they must "
                             "share axis 0",
                             (long long)*rows, (long long)tensor->shape.dims[0]);
        *rows = tensor->shape.dims[0];
    }
    return MU_OK;
}

// One replica's part of a batch. Owned.
static mu_value *part_of(const mu_value *batch, mu_object *const *leaves, mu_object **parts, int n, int64_t begin,
                         int64_t end)
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

// What this worker's pipeline has for the next step. Owned; NULL at its end or after an error.
static mu_value *own_next(const distributed_iterator *iterator)
{
    if (iterator->pieces)
        return next_of_each(iterator);
    mu_value *batch = mu_next(iterator->inner);
    if (!batch)
        return NULL;
    return iterator->strategy->n_local == 1 ? mu_retain(batch) : mu__split_batch(iterator->strategy, batch);
}

static int64_t rows_of_one(const mu_value *value)
{
    mu_object *leaf = NULL;
    mu__value_flatten(value, &leaf, 1);
    const mu_tensor *tensor = (const mu_tensor *)leaf;
    return leaf && mu__is(leaf, &mu__tensor_type) && tensor->shape.rank > 0 ? tensor->shape.dims[0] : 1;
}

static int64_t rows_in(const distributed_iterator *iterator, const mu_value *value)
{
    int64_t rows = 0;
    for (int r = 0; r < iterator->strategy->n_local; r++) {
        mu_value *part = mu__select(value, r);
        rows += part ? rows_of_one(part) : 0;
        mu_release(part);
    }
    return rows;
}

// ---- Several workers ----------------------------------------------------------------------------

// Workers that take parts of one sequence must see it in one order: the chief's shuffles are everyone's.
static mu_status take_order(const distributed_iterator *iterator)
{
    const char *own = mu_iterator_state(iterator->inner);
    char *order = own ? mu__workers_take_text(iterator->strategy, "order of the data", own, 0) : NULL;
    mu_status status = order ? MU_OK : mu_error_code();
    if (order && strcmp(own, order) != 0)
        status = mu_iterator_restore(iterator->inner, order);
    mu__free(order);
    return status;
}

// The empty batch of each local replica. Owned.
static mu_value *empty_batches(const distributed_iterator *iterator)
{
    const int n = iterator->strategy->n_local;
    mu_value *one = mu__empty_like(iterator->like), *values[MU_MAX_REPLICAS];
    for (int r = 0; r < n; r++)
        values[r] = one;
    mu_value *all = one ? mu__regroup_as(MU_VALUE_PER_REPLICA, n > 1, n, values) : NULL;
    mu_release(one);
    return all;
}

// What a replica's batch looks like; a worker without any data learns it from the first one that has some. Owned.
static mu_value *learn_like(mu_strategy *strategy, const mu_value *own, bool all_have)
{
    mu_value *one = own ? mu__select(own, 0) : NULL, *like = NULL;
    char *text = one ? mu__element_text(one) : NULL;
    if (!all_have) {
        int64_t first = own ? strategy->worker : strategy->n_workers;
        char *mine = text;
        text = mu__workers_least(strategy, "first batch", &first) == MU_OK
                   ? mu__workers_take_text(strategy, "first batch", mine, (int)first) : NULL;
        mu__free(mine);
    }
    if (text)
        like = mu__element_from_text(text);
    mu__free(text);
    mu_release(one);
    return like;
}

// All workers agree whether there is another step: as long as one of them has data, all take part, those without
// with empty batches. `own` is taken over.
static mu_value *step_of_all(distributed_iterator *iterator, mu_value *own)
{
    int64_t step[] = {own != NULL, own ? rows_in(iterator, own) : 0};
    if (mu__workers_agree(iterator->strategy, "next batch", step) == MU_OK && step[0] > 0 && !iterator->like)
        iterator->like = learn_like(iterator->strategy, own, step[0] == iterator->strategy->n_workers);
    iterator->rows = step[1];
    if (!mu__pending() && step[0] > 0)
        return own ? own : empty_batches(iterator);
    mu_release(own);
    return NULL;
}

static mu_value *distributed_next(mu_iterator *head)
{
    distributed_iterator *iterator = (distributed_iterator *)head;
    mu_strategy *strategy = iterator->strategy;
    mu__strategy_doing(strategy, "reading its next batch", -1);
    const bool ordered = !iterator->order_to_take || take_order(iterator) == MU_OK;
    iterator->order_to_take = false;
    mu_value *own = ordered ? own_next(iterator) : NULL;
    if (mu__pending()) {
        mu__strategy_failed(strategy);
        return NULL;
    }
    if (strategy->n_workers > 1)
        return step_of_all(iterator, own);
    iterator->rows = own ? rows_in(iterator, own) : 0;
    return own;
}

int64_t mu__distributed_rows(const mu_iterator *iterator)
{
    return ((const distributed_iterator *)iterator)->rows;
}

static char *distributed_save(mu_iterator *head)
{
    return mu__strdup(mu_iterator_state(((distributed_iterator *)head)->inner));
}

static mu_status distributed_restore(mu_iterator *head, const char *state)
{
    return mu_iterator_restore(((distributed_iterator *)head)->inner, state);
}

static const mu_iterator_ops iterator_ops = {
    .next = distributed_next, .save = distributed_save, .restore = distributed_restore};

static mu_iterator *distributed_iterate(mu_iterable *iterable)
{
    mu_distributed_dataset *distributed = (mu_distributed_dataset *)iterable;
    distributed_iterator *iterator = mu__new(&iterator_type, sizeof *iterator);
    if (!iterator)
        return NULL;
    iterator->head.ops = &iterator_ops;
    iterator->strategy = mu_retain(distributed->strategy);
    iterator->pieces = distributed->shares.pieces;
    iterator->dataset = mu_retain(distributed->shares.dataset);
    iterator->inner = mu__dataset_iterate(iterator->dataset);
    iterator->order_to_take = distributed->shares.same_order && iterator->strategy->n_workers > 1;
    if (iterator->inner)
        return &iterator->head;
    mu_release(iterator);
    return NULL;
}

mu_iterator *mu__distributed_iterate(mu_distributed_dataset *distributed)
{
    return distributed_iterate(&distributed->iterable);
}

// Owned by the pool; the dataset is borrowed.
static mu_distributed_dataset *distribute(mu_strategy *strategy, const mu_shares *shares)
{
    mu_distributed_dataset *distributed = shares->dataset ? mu__new(&distributed_type, sizeof *distributed) : NULL;
    if (!distributed)
        return NULL;
    distributed->iterable.iterate = distributed_iterate;
    distributed->strategy = mu_retain(strategy);
    distributed->shares = *shares;
    mu_retain(shares->dataset);
    return mu__give(distributed);
}

// ---- Distributing -------------------------------------------------------------------------------

mu_distributed_dataset *mu_distribute_dataset(mu_strategy *given, mu_dataset *dataset)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || !strategy)
        return NULL;
    if (!dataset) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_dataset: the dataset is NULL");
        return NULL;
    }
    const mu_shares shares = mu__shares_of(strategy, dataset);
    return distribute(strategy, &shares);
}

mu_distributed_dataset *
mu_distribute_datasets_from_function(mu_strategy *given, mu_dataset *(*fn)(const mu_input_context *context, void *arg),
                                     void *arg)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || !strategy)
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_datasets_from_function: the function is NULL");
        return NULL;
    }
    const mu_input_context context = {.num_input_pipelines = strategy->n_workers, .input_pipeline_id = strategy->worker,
                                      .num_replicas_in_sync = strategy->n_replicas};
    mu_dataset *dataset = fn(&context, arg);
    if (!dataset && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_datasets_from_function: the function returned NULL");
    return distribute(strategy, &(mu_shares){.dataset = dataset, .pieces = strategy->n_local > 1});
}

int64_t mu_per_replica_batch_size(const mu_input_context *context, int64_t global_batch_size)
{
    if (mu__pending())
        return -1;
    const int n = context ? context->num_replicas_in_sync : 1;
    if (n >= 1 && global_batch_size % n == 0)
        return global_batch_size / n;
    mu__error(MU_INVALID_ARGUMENT,
              "mu_per_replica_batch_size: a global batch of %lld cannot be divided among %d replicas; choose a "
              "multiple",
              (long long)global_batch_size, n);
    return -1;
}
