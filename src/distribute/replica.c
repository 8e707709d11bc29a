// What a function that runs on replicas can ask and do: its id, and collectives with the other replicas.
//
// In a trace these are nodes; the engine gives the id and the communicator when the graph runs.
#include "distribute/distribute.h"
#include "ops/nn.h"

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
    if (!replica || replica->id >= 0)
        return mu_constant(MU_I32, replica ? replica->id : 0);
    return mu__apply_n(&mu_op_replica_id, NULL, 0, NULL);
}

// ---- Reductions ---------------------------------------------------------------------------------

// Reduces the tensors with these indices as one bucket.
static mu_status reduce_bucket(mu_reduction reduction, int n, const int *indices, mu_tensor *const *in, mu_tensor **out)
{
    mu_tensor **parts = mu__calloc((size_t)n, 2 * sizeof *parts);
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++)
        parts[i] = in[indices[i]];
    mu_all_reduce_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.reduction = reduction;
    snprintf(attrs.name, sizeof attrs.name, "bucket of %d", n);
    mu_status status = mu__apply(&mu_op_all_reduce, &attrs, n, parts, 0, NULL, parts + n);
    for (int i = 0; i < n && status == MU_OK; i++)
        out[indices[i]] = parts[n + i];
    mu__free(parts);
    return status;
}

static size_t known_bytes(const mu_tensor *tensor)
{
    mu_spec spec = mu__spec_of(tensor);
    return mu__shape_known(&spec.shape) ? mu__spec_bytes(&spec) : 0;
}

mu_status mu__all_reduce_list(mu_reduction reduction, int n, mu_tensor *const *in, mu_tensor **out, size_t bytes_per_pack)
{
    if (mu_replica_count() == 1) {
        memcpy(out, in, sizeof *in * (size_t)n);
        return MU_OK;
    }
    int *indices = mu__calloc((size_t)n + 1, sizeof *indices);
    bool *done = mu__calloc((size_t)n + 1, sizeof *done);
    mu_status status = indices && done ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int first = 0; first < n && status == MU_OK; first++) {
        size_t bytes = 0;
        int count = 0;
        for (int i = first; i < n && !done[first]; i++) {
            if (done[i] || in[i]->dtype != in[first]->dtype || (bytes_per_pack && bytes > bytes_per_pack))
                continue;
            bytes += known_bytes(in[i]);
            indices[count++] = i;
        }
        for (int k = 0; k < count; k++)
            done[indices[k]] = true;
        if (count)
            status = reduce_bucket(reduction, count, indices, in, out);
    }
    mu__free(indices);
    mu__free(done);
    return status;
}

mu_tensor *mu_all_reduce(mu_reduce_op op, mu_tensor *value)
{
    if (mu__pending())
        return NULL;
    if (!value || (unsigned)op > MU_MEAN) {
        mu__error(MU_INVALID_ARGUMENT, "mu_all_reduce: %s", value ? "the operation is neither MU_SUM nor MU_MEAN" : "the value is NULL");
        return NULL;
    }
    if (mu_in_cross_replica_context()) {
        mu__error(MU_FAILED_PRECONDITION, "mu_all_reduce is for functions that run on replicas; outside of them use mu_reduce");
        return NULL;
    }
    mu_tensor *reduced = NULL;
    mu_reduction reduction = op == MU_SUM ? MU_REDUCTION_SUM : MU_REDUCTION_MEAN;
    return mu__all_reduce_list(reduction, 1, &value, &reduced, 0) == MU_OK ? reduced : NULL;
}

mu_tensor *mu_all_gather(mu_tensor *value, int axis)
{
    if (mu__pending())
        return NULL;
    if (!value || mu_in_cross_replica_context()) {
        mu__error(value ? MU_FAILED_PRECONDITION : MU_INVALID_ARGUMENT, value ? "mu_all_gather is for functions that run on replicas; "
                  "outside of them use mu_strategy_gather" : "mu_all_gather: the value is NULL");
        return NULL;
    }
    if (mu_replica_count() == 1)
        return value;
    mu_all_gather_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.axis = mu__axis(axis, value->shape.rank, "mu_all_gather");
    attrs.ranks = mu_replica_count();
    snprintf(attrs.name, sizeof attrs.name, "all_gather");
    mu_tensor *out[2];
    return attrs.axis >= 0 && mu__apply(&mu_op_all_gather, &attrs, 1, &value, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

// ---- Nests --------------------------------------------------------------------------------------

// Sparse gradients are put behind each other, not added up; a mean divides the values.
static mu_value *reduce_slices(mu_reduce_op op, const mu_value *slices)
{
    mu_tensor *values = mu_all_gather(mu_at(slices, 0), 0), *indices = mu_all_gather(mu_at(slices, 1), 0);
    if (op == MU_MEAN && values)
        values = mu__divide_by_count(values, mu_replica_count());
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

static mu_value *nest(const nest_call *call, const mu_value *value)
{
    if (value->kind == MU_VALUE_SLICES && call->gather) {
        mu__error(MU_UNIMPLEMENTED, "mu_all_gather: indexed slices cannot be gathered; gather their values and indices, or a dense tensor");
        return NULL;
    }
    if (value->kind == MU_VALUE_SLICES)
        return reduce_slices(call->op, value);
    if (value->kind != MU_VALUE_LIST && value->kind != MU_VALUE_MAP) {
        mu_tensor *own = own_tensor(value);
        mu_tensor *result = !own ? NULL : call->gather ? mu_all_gather(own, call->axis) : mu_all_reduce(call->op, own);
        return result ? mu_of(result) : NULL;
    }
    mu_value **items = mu__calloc((size_t)value->n + 1, sizeof *items), *result = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < value->n; i++)
        whole = (items[i] = nest(call, value->items[i])) != NULL;
    if (whole)
        result = mu__give(mu__value_container(value->kind, value->n, items, (const char *const *)value->keys));
    mu__free(items);
    return result;
}

static mu_value *call_nest(const nest_call *call, const mu_value *value, const char *function)
{
    if (mu__pending())
        return NULL;
    if (value && mu__need_value(value, function) == MU_OK)
        return nest(call, value);
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
        return mu__error(MU_FAILED_PRECONDITION, "mu_sync_on_read is for functions that run on replicas; outside of them every read is "
                         "put together");
    replica->sync_on_read = on;
    return MU_OK;
}

mu_tensor *mu__broadcast_from_first(mu_tensor *value)
{
    mu_broadcast_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    return mu_replica_count() == 1 ? value : mu__apply1(&mu_op_broadcast, &attrs, value);
}
