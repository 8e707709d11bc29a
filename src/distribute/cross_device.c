// Reductions between replicas outside of functions: reduce, gather, local results.
//
// Values of local replicas lie in one address space, so they are combined with ordinary ops in replica order
// (the same bits in every run).
#include "distribute/distribute.h"

#include <muster/ops.h>

mu_tensor *mu__divide_by_count(mu_tensor *value, int count)
{
    mu_dtype wide = mu__dtype_is_float(value->dtype) ? value->dtype : MU_F64;
    mu_tensor *quotient = mu_divide(mu_cast(value, wide), mu_constant(wide, count));
    return mu_cast(quotient, value->dtype);
}

// TensorFlow divides truly: the mean of integers is a float64.
static mu_tensor *mean_of(mu_tensor *sum, mu_tensor *count)
{
    mu_dtype wide = mu__dtype_is_float(sum->dtype) ? sum->dtype : MU_F64;
    return mu_divide(mu_cast(sum, wide), mu_cast(count, wide));
}

mu_tensor *mu__reduce_tensors(mu_reduce_op op, int n, mu_tensor *const *tensors)
{
    mu_tensor *sum = tensors[0];
    for (int i = 1; i < n; i++)
        sum = mu_add(sum, tensors[i]);
    return op == MU_MEAN && sum ? mean_of(sum, mu_constant(MU_F64, n)) : sum;
}

// ---- Leaf by leaf -------------------------------------------------------------------------------

typedef struct reduction {
    mu_strategy *strategy;
    mu_reduce_op op;
    bool has_axis;
    int axis;
} reduction;

static mu_tensor *leaf_tensor(const mu_value *leaf)
{
    if (leaf->kind == MU_VALUE_VARIABLE)
        return mu_variable_read((mu_variable *)leaf->leaf);
    return (mu_tensor *)leaf->leaf;
}

// Over an axis inside each replica, then over replicas: sums, and for MEAN the counts, so that every element
// weighs the same whatever part it came in.
static mu_tensor *reduce_with_axis(const reduction *r, int n, mu_tensor *const *parts)
{
    mu_tensor *sum = NULL;
    double count = 0;
    for (int i = 0; i < n; i++) {
        int axis = parts[i] ? mu__axis(r->axis, parts[i]->shape.rank, "mu_reduce_axis") : -1;
        if (axis < 0)
            return NULL;
        count += (double)parts[i]->shape.dims[axis];
        mu_tensor *part = mu_reduce_sum(parts[i], axis);
        sum = sum ? mu_add(sum, part) : part;
    }
    return r->op == MU_MEAN && sum ? mean_of(sum, mu_constant(MU_F64, count)) : sum;
}

static mu_tensor *reduce_parts(const reduction *r, int n, mu_tensor *const *parts)
{
    return r->has_axis ? reduce_with_axis(r, n, parts) : mu__reduce_tensors(r->op, n, parts);
}

// A value that is the same everywhere has a mean, but no sum. With an axis every replica reduces it first.
static mu_tensor *reduce_plain(const reduction *r, const mu_value *leaf)
{
    mu_tensor *tensor = leaf_tensor(leaf), *parts[MU_MAX_REPLICAS];
    if (!tensor)
        return NULL;
    for (int i = 0; r->has_axis && i < r->strategy->n_local; i++)
        parts[i] = tensor;
    if (r->has_axis)
        return reduce_with_axis(r, r->strategy->n_local, parts);
    if (r->strategy->n_replicas == 1)
        return tensor;
    bool on_read = leaf->kind == MU_VALUE_VARIABLE && ((mu_variable *)leaf->leaf)->synchronization == MU_SYNCHRONIZATION_ON_READ;
    if (r->op == MU_SUM && !on_read && !(mu__elements(&tensor->shape) == 1 && mu__read_element(tensor->dtype, mu__data(tensor), 0) == 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_reduce: SUM of a value that is not per replica (the same tensor on all %d); return it "
                  "from the function that runs on replicas, or use MEAN", r->strategy->n_replicas);
        return NULL;
    }
    return tensor;
}

static mu_tensor *reduce_components(const reduction *r, const mu_value *value)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    if (value->n > (int)MU_COUNT(parts)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_reduce: %d components; at most %zu are supported", value->n, MU_COUNT(parts));
        return NULL;
    }
    for (int i = 0; i < value->n; i++)
        if (!(parts[i] = mu_value_tensor(value->items[i])))
            return NULL;
    return reduce_parts(r, value->n, parts);
}

static mu_value *reduce_value(const reduction *r, const mu_value *value)
{
    if (value->kind == MU_VALUE_LIST || value->kind == MU_VALUE_MAP) {
        mu_value **items = mu__calloc((size_t)value->n + 1, sizeof *items), *result = NULL;
        bool whole = items != NULL;
        for (int i = 0; whole && i < value->n; i++)
            whole = (items[i] = reduce_value(r, value->items[i])) != NULL;
        if (whole)
            result = mu__give(mu__value_container(value->kind, value->n, items, (const char *const *)value->keys));
        mu__free(items);
        return result;
    }
    mu_tensor *reduced = value->kind == MU_VALUE_PER_REPLICA ? reduce_components(r, value)
                         : value->kind == MU_VALUE_MIRRORED ? reduce_plain(r, value->items[0])
                                                            : reduce_plain(r, value);
    return reduced ? mu_of(reduced) : NULL;
}

static mu_value *reduce(const reduction *r, mu_value *value)
{
    if (mu__pending() || mu__need_cross_replica(r->strategy, "mu_reduce") != MU_OK)
        return NULL;
    if (!value || (unsigned)r->op > MU_MEAN) {
        mu__error(MU_INVALID_ARGUMENT, "mu_reduce: %s", value ? "the operation is neither MU_SUM nor MU_MEAN" : "the value is NULL");
        return NULL;
    }
    return reduce_value(r, value);
}

mu_value *mu_reduce(mu_strategy *strategy, mu_reduce_op op, mu_value *value)
{
    return reduce(&(reduction){.strategy = mu__strategy_or_default(strategy), .op = op}, value);
}

mu_value *mu_reduce_axis(mu_strategy *strategy, mu_reduce_op op, mu_value *value, int axis)
{
    return reduce(&(reduction){.strategy = mu__strategy_or_default(strategy), .op = op, .has_axis = true, .axis = axis}, value);
}

// ---- Gather and local results -------------------------------------------------------------------

mu_value *mu_strategy_gather(mu_strategy *strategy, mu_value *value, int axis)
{
    if (mu__pending() || mu__need_cross_replica(mu__strategy_or_default(strategy), "mu_strategy_gather") != MU_OK)
        return NULL;
    if (!value) {
        mu__error(MU_INVALID_ARGUMENT, "mu_strategy_gather: the value is NULL");
        return NULL;
    }
    if (value->kind != MU_VALUE_PER_REPLICA)
        return value;
    mu_tensor *parts[MU_MAX_REPLICAS];
    int n = MU_MIN(value->n, (int)MU_COUNT(parts));
    for (int i = 0; i < n; i++)
        if (!(parts[i] = mu_value_tensor(value->items[i])))
            return NULL;
    mu_tensor *whole = mu_concat(n, parts, axis);
    return whole ? mu_of(whole) : NULL;
}

mu_value *mu_local_results(mu_strategy *strategy, mu_value *value)
{
    if (mu__pending())
        return NULL;
    if (!value) {
        mu__error(MU_INVALID_ARGUMENT, "mu_local_results: the value is NULL");
        return NULL;
    }
    int n = mu__is_distributed(value) ? mu__strategy_or_default(strategy)->n_local : 1;
    mu_value **items = mu__calloc((size_t)n, sizeof *items), *list = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = (items[i] = mu__give(mu__select(value, i))) != NULL;
    if (whole)
        list = mu__give(mu__value_container(MU_VALUE_LIST, n, items, NULL));
    mu__free(items);
    return list;
}
