// Operations inside a function that runs on replicas: its id, and collectives with the other replicas.
//
// In a trace these are nodes; the engine supplies the id and the communicator when the graph runs.
#include "distribute/servers/aggregation.h"
#include "ops/nn/nn.h"

static const char other_calls[] = "calls run when a worker is free, and cannot wait for each other; return the value "
                                  "and combine the results outside, or use MirroredStrategy";

static mu_strategy *replica_strategy(void)
{
    const mu_strategy_replica *replica = (const mu_strategy_replica *)mu__context()->replica;
    return replica ? replica->strategy : NULL;
}

int mu_replica_count(void)
{
    const mu_strategy *strategy = replica_strategy();
    return strategy ? strategy->n_replicas : 1;
}

mu_tensor *mu_replica_id(void)
{
    if (mu__pending())
        return NULL;
    const struct mu_replica *replica = mu__context()->replica;
    if (mu_in_cross_replica_context()) {
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_replica_id is for functions that run on replicas; this is the cross-replica state of %s",
                  mu_strategy_name(mu__current_strategy()));
        return NULL;
    }
    if (!replica || replica->id >= 0)
        return mu_constant(MU_I32, replica ? replica->id : 0);
    return mu__apply_n(&mu_op_replica_id, NULL, 0, NULL);
}

// ---- Reductions ---------------------------------------------------------------------------------

// Tensors to reduce, in buckets.
typedef struct reduction_list {
    mu_reduction reduction;
    int n;
    mu_tensor *const *in;
    mu_tensor **out;
    const char *const *names; // NULL: none
    bool *done;               // [n]
    int *bucket;              // [n]: tensors of the bucket being filled
} reduction_list;

// Name shown to peers that wait, such as "dense_2/kernel and 3 more".
static void name_bucket(const reduction_list *list, int count, char name[MU_ATTR_TEXT_BYTES])
{
    const char *first = list->names ? list->names[list->bucket[0]] : NULL;
    if (!first)
        snprintf(name, MU_ATTR_TEXT_BYTES, count == 1 ? "a value" : "%d values", count);
    else if (count == 1)
        mu__fit_name(first, MU_ATTR_TEXT_BYTES, name);
    else
        snprintf(name, MU_ATTR_TEXT_BYTES, "%.*s and %d more", MU_ATTR_TEXT_BYTES - 24, first, count - 1);
}

static mu_status reduce_bucket(const reduction_list *list, int count, size_t pack_bytes)
{
    mu_tensor **parts = mu__calloc((size_t)count, 2 * sizeof *parts);
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < count; i++)
        parts[i] = list->in[list->bucket[i]];
    mu_all_reduce_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.reduction = list->reduction;
    attrs.pack_bytes = (int64_t)pack_bytes;
    name_bucket(list, count, attrs.name);
    mu_status status = mu__apply(&mu_op_all_reduce, &attrs, count, parts, 0, NULL, parts + count);
    for (int i = 0; i < count && status == MU_OK; i++)
        list->out[list->bucket[i]] = parts[count + i];
    mu__free(parts);
    return status;
}

static size_t known_bytes(const mu_tensor *tensor)
{
    mu_spec spec = mu__spec_of(tensor);
    return mu__shape_known(&spec.shape) ? mu__spec_bytes(&spec) : 0;
}

// Fills a bucket with tensors from `first` on of the same type, up to the size; returns their number.
static int fill_bucket(reduction_list *list, int first, size_t bytes_per_pack)
{
    size_t bytes = 0;
    int count = 0;
    for (int k = first; k < list->n; k++) {
        const mu_tensor *tensor = list->in[k];
        if (list->done[k] || tensor->dtype != list->in[first]->dtype)
            continue;
        bytes += known_bytes(tensor);
        if (bytes_per_pack && count && bytes > bytes_per_pack)
            break;
        list->done[k] = true;
        list->bucket[count++] = k;
    }
    return count;
}

static size_t chosen_bytes(const reduction_list *list)
{
    size_t all = 0;
    for (int i = 0; i < list->n; i++)
        all += known_bytes(list->in[i]);
    return MU_MAX(MU_MIN(all / 8, MU_BUCKET_MOST), MU_BUCKET_LEAST);
}

// A trace has a reduction for each tensor: a pass packs them when it knows in which order they become ready.
static mu_status reduce_each(reduction_list *list, size_t bytes_per_pack)
{
    for (int i = 0; i < list->n; i++) {
        list->bucket[0] = i;
        MU_TRY(reduce_bucket(list, 1, bytes_per_pack));
    }
    return MU_OK;
}

static mu_status reduce_in_buckets(reduction_list *list, size_t bytes_per_pack)
{
    for (int first = 0; first < list->n; first++)
        if (!list->done[first])
            MU_TRY(reduce_bucket(list, fill_bucket(list, first, bytes_per_pack), 0));
    return MU_OK;
}

mu_status mu__all_reduce_list(mu_reduction reduction, int n, mu_tensor *const *in, mu_tensor **out,
                              const char *const *names, size_t bytes_per_pack)
{
    if (n == 0)
        return MU_OK;
    if (mu_replica_count() == 1) {
        memcpy(out, in, sizeof *in * (size_t)n);
        return MU_OK;
    }
    reduction_list list = {.reduction = reduction, .n = n, .in = in, .out = out, .names = names};
    list.bucket = mu__calloc((size_t)n + 1, sizeof *list.bucket);
    list.done = mu__calloc((size_t)n + 1, sizeof *list.done);
    mu_status status = list.bucket && list.done ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (bytes_per_pack == MU_BUCKETS_CHOSEN)
        bytes_per_pack = chosen_bytes(&list);
    if (status == MU_OK)
        status = mu__context()->trace && bytes_per_pack > 0 ? reduce_each(&list, bytes_per_pack)
                                                            : reduce_in_buckets(&list, bytes_per_pack);
    mu__free(list.bucket);
    mu__free(list.done);
    return status;
}

static bool is_reduction(mu_reduce_op op, const char *function)
{
    if (op == MU_SUM || op == MU_MEAN)
        return true;
    mu__error(MU_INVALID_ARGUMENT, "%s: the operation is %d; it must be MU_SUM (%d) or MU_MEAN (%d)", function, (int)op,
              MU_SUM, MU_MEAN);
    return false;
}

mu_tensor *mu_all_reduce(mu_reduce_op op, mu_tensor *value)
{
    if (mu__pending())
        return NULL;
    if (mu__need(value, "mu_all_reduce: the value") != MU_OK || !is_reduction(op, "mu_all_reduce"))
        return NULL;
    if (mu_in_cross_replica_context()) {
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_all_reduce is for functions that run on replicas; outside of them use mu_reduce");
        return NULL;
    }
    if (mu__refuse_in_calls(false, "mu_all_reduce", other_calls) != MU_OK)
        return NULL;
    if (mu_replica_count() == 1)
        return value;
    mu_tensor *reduced = NULL;
    const bool whole = op == MU_MEAN && !mu__dtype_is_float(value->dtype); // the mean of integers may be a fraction
    const char *name = whole ? "mean of integers" : NULL;                  // which is a sum to the collective
    const mu_reduction reduction = op == MU_SUM || whole ? MU_REDUCTION_SUM : MU_REDUCTION_MEAN;
    if (mu__all_reduce_list(reduction, 1, &value, &reduced, &name, 0) != MU_OK)
        return NULL;
    return whole ? mu__mean_of(reduced, mu_replica_count()) : reduced;
}

mu_tensor *mu__all_gather_named(mu_tensor *value, int axis, const char *name)
{
    if (mu__pending())
        return NULL;
    if (!value || mu_in_cross_replica_context()) {
        mu__error(value ? MU_FAILED_PRECONDITION : MU_INVALID_ARGUMENT,
                  value ? "mu_all_gather is for functions that run on replicas; outside of them use mu_strategy_gather"
                        : "mu_all_gather: the value is NULL");
        return NULL;
    }
    if (mu__refuse_in_calls(false, "mu_all_gather", other_calls) != MU_OK)
        return NULL;
    if (mu_replica_count() == 1)
        return value;
    mu_all_gather_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.axis = mu__axis(axis, value->shape.rank, "mu_all_gather");
    attrs.ranks = mu_replica_count();
    attrs.uneven = attrs.axis >= 0 && value->shape.dims[attrs.axis] == MU_UNKNOWN;
    mu__fit_name(name, sizeof attrs.name, attrs.name);
    mu_tensor *out[2];
    return attrs.axis >= 0 && mu__apply(&mu_op_all_gather, &attrs, 1, &value, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

mu_tensor *mu_all_gather(mu_tensor *value, int axis) { return mu__all_gather_named(value, axis, "all_gather"); }

// ---- Parts and permutations ---------------------------------------------------------------------

static bool can_call(const char *function, const mu_tensor *value, const char *outside)
{
    if (mu__pending())
        return false;
    if (!value)
        mu__error(MU_INVALID_ARGUMENT, "%s: the value is NULL", function);
    else if (mu_in_cross_replica_context())
        mu__error(MU_FAILED_PRECONDITION, "%s is for functions that run on replicas; outside of them %s", function,
                  outside);
    else
        (void)!mu__refuse_in_calls(false, function, other_calls);
    return !mu__pending();
}

mu_tensor *mu_reduce_scatter(mu_reduce_op op, mu_tensor *value, int axis)
{
    const int ranks = mu_replica_count();
    if (!can_call("mu_reduce_scatter", value, "use mu_reduce"))
        return NULL;
    if (!is_reduction(op, "mu_reduce_scatter"))
        return NULL;
    const bool whole = op == MU_MEAN && !mu__dtype_is_float(value->dtype); // the mean of integers may be a fraction
    mu_reduce_scatter_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.reduction = op == MU_SUM || whole ? MU_REDUCTION_SUM : MU_REDUCTION_MEAN;
    attrs.axis = mu__axis(axis, value->shape.rank, "mu_reduce_scatter");
    attrs.ranks = ranks;
    snprintf(attrs.name, sizeof attrs.name, "%s", op == MU_SUM ? "sum" : "mean");
    if (attrs.axis < 0)
        return NULL;
    mu_tensor *reduced = mu__apply1(&mu_op_reduce_scatter, &attrs, value);
    return reduced && whole && ranks > 1 ? mu__mean_of(reduced, ranks) : reduced;
}

static mu_status add_pair(const mu_replica_pair *pairs, int i, int ranks, int64_t *sources)
{
    const int from = pairs[i].source, to = pairs[i].target;
    if (from < 0 || from >= ranks || to < 0 || to >= ranks)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_collective_permute: pair %d is from replica %d to replica %d; there are replicas 0 to %d",
                         i, from, to, ranks - 1);
    for (int k = 0; k < i; k++)
        if (pairs[k].source == from || pairs[k].target == to)
            return mu__error(
                MU_INVALID_ARGUMENT,
                "mu_collective_permute: replica %d is the %s of pair %d and of pair %d; it can be that of one",
                pairs[k].source == from ? from : to, pairs[k].source == from ? "source" : "target", k, i);
    sources[to] = from;
    return MU_OK;
}

mu_tensor *mu_collective_permute(mu_tensor *value, const mu_replica_pair *pairs, int n_pairs)
{
    const int64_t ranks = mu_replica_count();
    const mu_shape shape = {.rank = 1, .dims = {ranks}};
    if (!can_call("mu_collective_permute", value, "choose the components with mu_local_results"))
        return NULL;
    if (n_pairs < 0 || (n_pairs > 0 && !pairs)) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_collective_permute: %d pairs%s; there must be 0 or more, and an array of them", n_pairs,
                  pairs ? "" : " and NULL for their array");
        return NULL;
    }
    mu_tensor *sources = mu__give(mu__tensor_alloc(MU_I64, &shape));
    int64_t *from = sources ? mu__host_write(sources) : NULL;
    for (int64_t r = 0; from && r < ranks; r++)
        from[r] = -1;
    for (int i = 0; from && i < n_pairs; i++)
        if (add_pair(pairs, i, (int)ranks, from) != MU_OK)
            return NULL;
    return from ? mu__apply1(&mu_op_collective_permute, &(mu_permute_attrs){.sources = sources}, value) : NULL;
}

// ---- Nests --------------------------------------------------------------------------------------

// Concatenates sparse gradients instead of adding them; for MEAN it divides the values.
static mu_value *reduce_slices(mu_reduce_op op, const mu_value *slices)
{
    const char *name = op == MU_SUM ? "sum of slices" : "mean of slices";
    if (mu_replica_count() == 1)
        return (mu_value *)slices;
    mu_tensor *values = mu__all_gather_named(mu_at(slices, 0), 0, name);
    mu_tensor *indices = mu__all_gather_named(mu_at(slices, 1), 0, name);
    if (op == MU_MEAN && values)
        values = mu__mean_of(values, mu_replica_count());
    mu_value *parts[] = {values ? mu_of(values) : NULL, indices ? mu_of(indices) : NULL, slices->items[2]};
    return mu__pending() ? NULL : mu__give(mu__value_container(MU_VALUE_SLICES, 3, parts, NULL));
}

static mu_tensor *own_tensor(const mu_value *leaf)
{
    return leaf->kind == MU_VALUE_VARIABLE ? mu__variable_read((mu_variable *)leaf->leaf) : mu_value_tensor(leaf);
}

typedef struct nest_call {
    mu_reduce_op op;
    bool gather;
    int axis;
} nest_call;

static mu_value *call_part(const mu_value *value, const void *arg)
{
    const nest_call *call = arg;
    if (value->kind == MU_VALUE_SLICES && call->gather) {
        mu__error(
            MU_UNIMPLEMENTED,
            "mu_all_gather: indexed slices cannot be gathered; gather their values and indices, or a dense tensor");
        return NULL;
    }
    if (value->kind == MU_VALUE_SLICES)
        return reduce_slices(call->op, value);
    mu_tensor *own = own_tensor(value);
    mu_tensor *result = !own ? NULL : call->gather ? mu_all_gather(own, call->axis) : mu_all_reduce(call->op, own);
    return result ? mu_of(result) : NULL;
}

static mu_value *call_nest(const nest_call *call, const mu_value *value, const char *function)
{
    if (mu__pending())
        return NULL;
    if (value && mu__need_value(value, function) == MU_OK)
        return mu__map_parts(value, false, call_part, call);
    mu__error(MU_INVALID_ARGUMENT, "%s: the value is NULL", function);
    return NULL;
}

mu_value *mu_all_reduce_value(mu_reduce_op op, mu_value *value)
{
    return call_nest(&(nest_call){.op = op}, value, "mu_all_reduce_value");
}

mu_value *mu_all_gather_value(mu_value *value, int axis)
{
    return call_nest(&(nest_call){.gather = true, .axis = axis}, value, "mu_all_gather_value");
}

mu_status mu_sync_on_read(bool on)
{
    mu_strategy_replica *replica = mu__replica();
    if (mu__pending())
        return mu_error_code();
    if (!replica)
        return mu__error(
            MU_FAILED_PRECONDITION,
            "mu_sync_on_read is for functions that run on replicas; outside of them every read is put together");
    replica->sync_on_read = on;
    return MU_OK;
}

mu_tensor *mu__broadcast_from_first(mu_tensor *value, const char *name)
{
    mu_broadcast_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    mu__fit_name(name, sizeof attrs.name, attrs.name);
    return mu_replica_count() == 1 ? value : mu__apply1(&mu_op_broadcast, &attrs, value);
}
