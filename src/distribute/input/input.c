// Distributed input: splits each batch of a dataset among the replicas.
//
// A batch of B rows is split into N contiguous parts of B/N or B/N + 1 rows, which are views of the batch. No row is
// dropped or repeated. Near the end a part may be empty; steps must accept that. Elements of datasets made by a
// function for each pipeline, and the pieces of sharding.c, are for one replica, so a step takes one element per
// replica. Before each step, workers agree whether there is one (worker_input.c).
#include "base/callback.h"
#include "cluster/cluster.h"
#include "distribute/distribute.h"

struct mu_distributed_dataset {
    mu_iterable iterable; // first
    mu_strategy *strategy;
    mu_shard_plan shares;   // its dataset is retained
    bool batches;           // elements are global batches, which replicas share; else made for one replica each
    int n_pipelines;        // 1, or one for each local replica
    mu_dataset **pipelines; // retained; the first is that of `shares`
};

typedef struct distributed_iterator {
    mu_iterator head; // first
    mu_strategy *strategy;
    mu_distributed_dataset *source; // retained
    int n_inner;                    // number of pipelines
    mu_iterator **inner;
    bool order_to_take; // the order must be agreed before the first step
    bool pieces;        // elements are for one replica, not for this worker
    // With MUSTER_TF_COMPAT, if elements are pieces; else NULL and false:
    mu_value *spec;  // of an element, if it is known: empty ones have 0 wherever a size is not known
    bool drops_rest; // elements for some of the replicas only are dropped
    mu_step_input input;
} distributed_iterator;

static void distributed_destroy(void *object)
{
    mu_distributed_dataset *distributed = object;
    mu_release(distributed->strategy);
    for (int i = 0; distributed->pipelines && i < distributed->n_pipelines; i++)
        mu_release(distributed->pipelines[i]);
    mu__free(distributed->pipelines);
}

mu_type mu__distributed_type = {.name = "distributed dataset", .destroy = distributed_destroy};

static void iterator_destroy(void *object)
{
    distributed_iterator *iterator = object;
    mu__iterator_close(&iterator->head);
    mu_release(iterator->input.like);
    mu_release(iterator->spec);
    for (int i = 0; iterator->inner && i < iterator->n_inner; i++)
        mu_release(iterator->inner[i]);
    mu__free(iterator->inner);
    mu_release(iterator->source);
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
            return mu__error(
                MU_INVALID_ARGUMENT,
                "mu_distribute_dataset: the tensors of a batch have %lld and %lld rows; they must share axis 0",
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

mu_status mu__split_rows(const mu_value *batch, int parts, mu_value **out)
{
    const int n = mu__value_flatten(batch, NULL, 0);
    int64_t rows = 0;
    mu_object **leaves = mu__calloc((size_t)n + 1, 2 * sizeof *leaves);
    mu_status status = leaves ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (leaves)
        mu__value_flatten(batch, leaves, n);
    if (status == MU_OK)
        status = check_batch(leaves, n, &rows);
    for (int r = 0; r < parts; r++) {
        const int64_t begin = status == MU_OK ? rows / parts * r + MU_MIN(r, rows % parts) : 0;
        const int64_t end = status == MU_OK ? begin + rows / parts + (r < rows % parts) : 0;
        out[r] = status == MU_OK ? part_of(batch, leaves, leaves + n, n, begin, end) : NULL;
        status = out[r] ? status : mu_error_code();
    }
    for (int r = 0; status != MU_OK && r < parts; r++) {
        mu_release(out[r]);
        out[r] = NULL;
    }
    mu__free(leaves);
    return status;
}

mu_value *mu__split_batch(const mu_strategy *strategy, const mu_value *batch)
{
    mu_value **values = mu__calloc((size_t)strategy->n_local, sizeof *values);
    const mu_status status = values ? mu__split_rows(batch, strategy->n_local, values) : MU_RESOURCE_EXHAUSTED;
    mu_value *result = status == MU_OK ? mu__regroup(strategy->n_local, values) : NULL;
    for (int r = 0; values && r < strategy->n_local; r++)
        mu_release(values[r]);
    mu__free(values);
    return result;
}

// Takes one element for each replica in order. Replicas without an element get an empty batch, if any replica has one
// (with `drops_rest` there is no such step).
static mu_value *next_of_each(const distributed_iterator *iterator)
{
    const int n = iterator->strategy->n_local;
    mu_value *values[MU_MAX_REPLICAS] = {NULL}, *result = NULL;
    int first = n;
    for (int r = 0; r < n && !mu__pending(); r++) {
        values[r] = mu_retain(mu_next(iterator->inner[r % iterator->n_inner]));
        if (values[r] && first == n)
            first = r;
    }
    bool whole = first < n && !mu__pending();
    for (int r = 0; whole && r < n; r++)
        whole = values[r] || (!iterator->drops_rest &&
                              (values[r] = mu__empty_like(iterator->spec ? iterator->spec : values[first])));
    if (whole)
        result = mu__regroup(n, values);
    for (int r = 0; r < n; r++)
        mu_release(values[r]);
    return result;
}

// This worker's data for the next step. Owned; NULL at its end or on error.
static mu_value *own_next(const distributed_iterator *iterator)
{
    if (iterator->pieces)
        return next_of_each(iterator);
    mu_value *batch = mu_next(iterator->inner[0]);
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

int64_t mu__step_rows(const mu_strategy *strategy, const mu_value *value)
{
    int64_t rows = 0;
    for (int r = 0; r < strategy->n_local; r++) {
        mu_value *part = mu__select(value, r);
        rows += part ? rows_of_one(part) : 0;
        mu_release(part);
    }
    return rows;
}

mu_value *mu__next_step_local(mu_strategy *strategy, mu_step_input *input, mu_value *own)
{
    input->rows = own ? mu__step_rows(strategy, own) : 0;
    return own;
}

static mu_value *distributed_next(mu_iterator *head)
{
    distributed_iterator *iterator = (distributed_iterator *)head;
    mu_strategy *strategy = iterator->strategy;
    if (mu__need_no_other(strategy, "mu_next on data") != MU_OK)
        return NULL;
    if (mu__replica()) {
        mu__error(MU_INVALID_ARGUMENT, "the next element of a distributed dataset is taken inside a function that runs "
                                       "on replicas; it is for all of them: take it outside, and give it to mu_run");
        return NULL;
    }
    mu__strategy_doing(strategy, "reading its next batch", -1);
    const bool ordered = !iterator->order_to_take || mu__take_order(strategy, iterator->inner[0]) == MU_OK;
    iterator->order_to_take = false;
    mu_value *own = ordered ? own_next(iterator) : NULL;
    if (mu__pending()) {
        mu__strategy_failed(strategy);
        return NULL;
    }
    return strategy->ops->next_step(strategy, &iterator->input, own);
}

int64_t mu__distributed_rows(const mu_iterator *iterator)
{
    return ((const distributed_iterator *)iterator)->input.rows;
}

static mu_status need_one_pipeline(const distributed_iterator *iterator)
{
    return iterator->n_inner == 1
               ? MU_OK
               : mu__error(MU_UNIMPLEMENTED,
                           "the position of input with a pipeline for each replica is not kept; use MU_PER_WORKER");
}

static char *distributed_save(mu_iterator *head)
{
    const distributed_iterator *iterator = (distributed_iterator *)head;
    return need_one_pipeline(iterator) == MU_OK ? mu__strdup(mu_iterator_state(iterator->inner[0])) : NULL;
}

static mu_status distributed_restore(mu_iterator *head, const char *state)
{
    const distributed_iterator *iterator = (distributed_iterator *)head;
    MU_TRY(need_one_pipeline(iterator));
    return mu_iterator_restore(iterator->inner[0], state);
}

static const mu_iterator_ops iterator_ops = {
    .next = distributed_next, .save = distributed_save, .restore = distributed_restore};

static bool sizes_known(const mu_value *spec)
{
    const mu_shape *shape = spec->leaf ? &((const mu_tensor *)spec->leaf)->shape : NULL;
    bool known = true;
    for (int i = 0; shape && i < shape->rank; i++)
        known &= shape->dims[i] != MU_UNKNOWN;
    for (int i = 0; i < spec->n; i++)
        known &= sizes_known(spec->items[i]);
    return known;
}

// Whether TensorFlow would drop elements for some of the replicas only: where it knows all sizes before it reads, or
// under a strategy that never gives such steps.
static bool drops_rest(const mu_strategy *strategy, const mu_value *spec)
{
    const mu_strategy_ops *ops = strategy->ops;
    return mu__setting_bool(MU_SETTING_TF_COMPAT) &&
           (ops->whole_steps || (spec && ops->known_rows && sizes_known(spec)));
}

// What is known of elements before they are read decides what becomes of the last ones.
static void learn_spec(distributed_iterator *iterator, mu_dataset *dataset)
{
    if (!iterator->pieces || !mu__setting_bool(MU_SETTING_TF_COMPAT))
        return;
    iterator->spec = mu_retain(mu__known_spec(dataset));
    iterator->drops_rest = drops_rest(iterator->strategy, iterator->spec);
}

static mu_iterator *distributed_iterate(mu_iterable *iterable)
{
    mu_distributed_dataset *distributed = (mu_distributed_dataset *)iterable;
    // A worker whose cluster variables were set too late would silently train alone.
    if (distributed->strategy->sealed && mu__cluster_check_sealed() != MU_OK)
        return NULL;
    distributed_iterator *iterator = mu__new(&iterator_type, sizeof *iterator);
    if (!iterator)
        return NULL;
    iterator->head.ops = &iterator_ops;
    iterator->strategy = mu_retain(distributed->strategy);
    iterator->pieces = distributed->shares.pieces;
    iterator->source = mu_retain(distributed);
    iterator->inner = mu__calloc((size_t)distributed->n_pipelines, sizeof(mu_iterator *));
    iterator->order_to_take = distributed->shares.same_order;
    if (iterator->inner)
        learn_spec(iterator, distributed->pipelines[0]);
    while (iterator->inner && iterator->n_inner < distributed->n_pipelines &&
           (iterator->inner[iterator->n_inner] = mu__dataset_iterate(distributed->pipelines[iterator->n_inner])))
        iterator->n_inner++;
    if (iterator->inner && iterator->n_inner == distributed->n_pipelines)
        return &iterator->head;
    mu_release(iterator);
    return NULL;
}

// A program's own iteration. Under parameter servers it would be this process that reads, not the workers.
static mu_iterator *iterate_by_program(mu_iterable *iterable)
{
    const mu_strategy *strategy = ((mu_distributed_dataset *)iterable)->strategy;
    if (!strategy->ops->scheduled)
        return distributed_iterate(iterable);
    mu__error(MU_INVALID_ARGUMENT,
              "a dataset that was distributed by %s is iterated here, but the workers read it: give it to "
              "mu_create_per_worker_dataset, and the result to mu_schedule, or give it to mu_fit",
              mu_strategy_name(strategy));
    return NULL;
}

mu_iterator *mu__distributed_iterate(mu_distributed_dataset *distributed)
{
    return distributed_iterate(&distributed->iterable);
}

// The result belongs to the pool; the pipelines are borrowed, the first is that of the shares.
static mu_distributed_dataset *distribute(mu_strategy *strategy, const mu_shard_plan *shares, int n,
                                          mu_dataset *const *pipelines)
{
    mu_distributed_dataset *distributed = shares->dataset ? mu__new(&mu__distributed_type, sizeof *distributed) : NULL;
    if (!distributed)
        return NULL;
    distributed->iterable.iterate = iterate_by_program;
    distributed->strategy = mu_retain(strategy);
    distributed->shares = *shares;
    distributed->pipelines = mu__calloc((size_t)n, sizeof *pipelines);
    if (!distributed->pipelines) {
        mu_release(distributed);
        return NULL;
    }
    for (distributed->n_pipelines = 0; distributed->n_pipelines < n; distributed->n_pipelines++)
        distributed->pipelines[distributed->n_pipelines] = mu_retain(pipelines[distributed->n_pipelines]);
    return mu__give(distributed);
}

// ---- Distributing -------------------------------------------------------------------------------

mu_distributed_dataset *mu_distribute_dataset(mu_strategy *given, mu_dataset *dataset)
{
    return mu_distribute_dataset_options(given, dataset, NULL);
}

static const mu_enum_name replication_modes[] = {
    {MU_PER_WORKER, "PER_WORKER"}, {MU_PER_REPLICA, "PER_REPLICA"}, {0, NULL}};

const char *mu_input_replication_mode_name(mu_input_replication_mode mode)
{
    return mu__enum_name(replication_modes, (int)mode, "UNRECOGNIZED");
}

int mu_input_replication_mode_from_name(const char *name)
{
    return mu__enum_number(replication_modes, name, -1, "mu_input_replication_mode_from_name");
}

static bool for_each_replica(const mu_input_options *options) { return options->replication_mode == MU_PER_REPLICA; }

static mu_status copy_options(mu_input_options *options, const mu_input_options *given, const char *function)
{
    MU_TRY(mu__args_copy(options, sizeof *options, given, function));
    if ((unsigned)options->replication_mode > MU_PER_REPLICA || options->per_replica_buffer_size < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: replication_mode %d is neither MU_PER_WORKER nor MU_PER_REPLICA, or "
                         "per_replica_buffer_size %d is negative",
                         function, (int)options->replication_mode, options->per_replica_buffer_size);
    return MU_OK;
}

mu_distributed_dataset *mu_distribute_dataset_options(mu_strategy *given, mu_dataset *dataset,
                                                      const mu_input_options *given_options)
{
    mu_input_options options;
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || !strategy || copy_options(&options, given_options, "mu_distribute_dataset") != MU_OK)
        return NULL;
    if (!dataset) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_dataset: the dataset is NULL");
        return NULL;
    }
    if (for_each_replica(&options)) {
        mu__error(MU_UNIMPLEMENTED, "mu_distribute_dataset: MU_PER_REPLICA needs a pipeline for each replica; make "
                                    "them with mu_distribute_datasets_from_function_options");
        return NULL;
    }
    const mu_shard_plan shares = strategy->ops->distribute_dataset(strategy, dataset);
    mu_distributed_dataset *distributed = distribute(strategy, &shares, 1, &shares.dataset);
    if (distributed)
        distributed->batches = true;
    return distributed;
}

mu_dataset *mu__distributed_source(const mu_distributed_dataset *distributed, const mu_strategy *strategy,
                                   bool *batches)
{
    *batches = distributed->batches;
    if (distributed->strategy == strategy)
        return distributed->pipelines[0];
    mu__error(MU_INVALID_ARGUMENT,
              "a dataset that was distributed by another %s is given to a coordinator; distribute it with the "
              "coordinator's strategy, or give the plain dataset",
              mu_strategy_name(distributed->strategy));
    return NULL;
}

// Checks which of TensorFlow's options may be combined, and under which strategy.
static mu_status check_pipelines(const mu_strategy *strategy, mu_input_options *options, const mu_input_options *given)
{
    static const char name[] = "mu_distribute_datasets_from_function";
    MU_TRY(copy_options(options, given, name));
    if (options->place_dataset_on_device && (!for_each_replica(options) || !options->no_fetch_to_device))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: place_dataset_on_device goes with MU_PER_REPLICA and no_fetch_to_device only; set both",
                         name);
    if (!for_each_replica(options) || strategy->ops->replica_pipelines)
        return MU_OK;
    return mu__error(MU_UNIMPLEMENTED, "%s: MU_PER_REPLICA is for MirroredStrategy; %s has a pipeline for each worker",
                     name, mu_strategy_name(strategy));
}

static mu_dataset *call_for_pipeline(mu_dataset *(*fn)(const mu_input_context *context, void *arg), void *arg,
                                     const mu_input_context *context)
{
    mu_dataset *dataset;
    MU_CALLBACK("a function that makes a dataset", dataset = fn(context, arg));
    if (!dataset && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_datasets_from_function: the function returned NULL");
    return mu__pending() ? NULL : dataset;
}

mu_distributed_dataset *mu_distribute_datasets_from_function_options(mu_strategy *given,
                                                                     mu_dataset *(*fn)(const mu_input_context *context,
                                                                                       void *arg),
                                                                     void *arg, const mu_input_options *given_options)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    mu_dataset *datasets[MU_MAX_REPLICAS];
    mu_input_options options;
    if (mu__pending() || !strategy || check_pipelines(strategy, &options, given_options) != MU_OK)
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_datasets_from_function: the function is NULL");
        return NULL;
    }
    const bool each = for_each_replica(&options);
    const int n = each ? strategy->n_local : 1;
    for (int i = 0; i < n; i++) {
        const mu_input_context context = {.num_input_pipelines = each ? n : mu_strategy_worker_count(strategy),
                                          .input_pipeline_id = each ? i : mu_strategy_worker_index(strategy),
                                          .num_replicas_in_sync = strategy->n_replicas};
        if (!(datasets[i] = call_for_pipeline(fn, arg, &context)))
            return NULL;
    }
    return distribute(strategy, &(mu_shard_plan){.dataset = datasets[0], .pieces = strategy->n_local > 1}, n, datasets);
}

mu_distributed_dataset *
mu_distribute_datasets_from_function(mu_strategy *given, mu_dataset *(*fn)(const mu_input_context *context, void *arg),
                                     void *arg)
{
    return mu_distribute_datasets_from_function_options(given, fn, arg, NULL);
}

int64_t mu_per_replica_batch_size(const mu_input_context *context, int64_t global_batch_size)
{
    const int n = context && context->num_replicas_in_sync != 0 ? context->num_replicas_in_sync : 1;
    if (n >= 1 && global_batch_size % n == 0)
        return global_batch_size / n;
    mu__error(
        MU_INVALID_ARGUMENT,
        "mu_per_replica_batch_size: a global batch of %lld cannot be divided among %d replicas; choose a multiple",
        (long long)global_batch_size, n);
    return -1;
}

// ---- What a step gets ---------------------------------------------------------------------------

// The number of rows of a part is known only if every batch has the same size and all parts are equal, and of an
// element for one replica if no replica gets an empty one at the end.
static mu_status part_rows(mu_spec *leaf, int64_t parts)
{
    int64_t *rows = &leaf->shape.dims[0];
    if (leaf->shape.rank > 0)
        *rows = parts > 0 && *rows >= 0 && *rows % parts == 0 ? *rows / parts : MU_UNKNOWN;
    return MU_OK;
}

mu_value *mu_distributed_element_spec(mu_distributed_dataset *distributed)
{
    if (mu__pending())
        return NULL;
    if (!distributed) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distributed_element_spec: the dataset is NULL");
        return NULL;
    }
    const mu_strategy *strategy = distributed->strategy;
    mu_value *values[MU_MAX_REPLICAS], *spec = mu_retain(mu_dataset_element_spec(distributed->shares.dataset));
    const bool pieces = distributed->shares.pieces, known = strategy->ops->known_rows;
    const int64_t parts = pieces ? spec && drops_rest(strategy, spec) : known ? strategy->n_local : 0;
    if (spec && (spec = mu__map_spec(spec, part_rows, parts)) && strategy->n_local > 1) {
        for (int r = 0; r < strategy->n_local; r++)
            values[r] = spec;
        mu_value *each = mu__regroup_as(MU_VALUE_PER_REPLICA, true, strategy->n_local, values);
        mu_release(spec);
        spec = each;
    }
    return mu__give(spec);
}
