// Reductions between replicas outside of functions: reduce, gather, local results.
//
// Local replicas' values are in one address space; other workers' values are fetched first (workers.c). Then ordinary
// ops combine them in replica order, so every run and every worker gets the same bits.
#include "distribute/distribute.h"

#include <muster/ops.h>

mu_tensor *mu__divide_by_count(mu_tensor *value, int count)
{
    mu_dtype wide = mu__dtype_is_float(value->dtype) ? value->dtype : MU_F64;
    mu_tensor *quotient = mu_divide(mu_cast(value, wide), mu_constant(wide, count));
    return mu_cast(quotient, value->dtype);
}

// True division, as in TensorFlow: the mean of integers is a float64.
mu_tensor *mu__mean_over(mu_tensor *sum, mu_tensor *count)
{
    mu_dtype wide = mu__dtype_is_float(sum->dtype) ? sum->dtype : MU_F64;
    return mu_divide(mu_cast(sum, wide), mu_cast(count, wide));
}

mu_tensor *mu__mean_of(mu_tensor *sum, int count)
{
    return mu__mean_over(sum, mu_constant(MU_F64, count));
}

mu_tensor *mu__reduce_tensors(mu_reduce_op op, int n, mu_tensor *const *tensors)
{
    mu_tensor *sum = tensors[0];
    for (int i = 1; i < n; i++)
        sum = mu_add(sum, tensors[i]);
    return op == MU_MEAN && sum ? mu__mean_over(sum, mu_constant(MU_F64, n)) : sum;
}

// ---- Leaf by leaf -------------------------------------------------------------------------------

typedef struct reduction {
    mu_strategy *strategy;
    const char *what; // the called function, or the variable being read
    mu_reduce_op op;
    int n_axes;       // 0: no reduction inside replicas
    const int *axes;
    const mu_cross_device_ops *ops;
} reduction;

// Names the owner of the n parts: replicas, or this worker for a tensor of its own.
static const char *whose(const reduction *r, int n)
{
    return n < r->strategy->n_local ? "worker" : "replica";
}

static mu_tensor *leaf_tensor(const mu_value *leaf)
{
    if (leaf->kind == MU_VALUE_VARIABLE)
        return mu_variable_read((mu_variable *)leaf->leaf);
    return (mu_tensor *)leaf->leaf;
}

// Checks that parts differ only along the reduced axes.
static mu_status same_beside_axes(const reduction *r, int i, mu_tensor *const *parts, const mu_tensor *sum,
                                  const mu_tensor *part)
{
    char first[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    if (part->dtype == sum->dtype && mu__shape_equal(&part->shape, &sum->shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: replica 0 has %s%s, but replica %d has %s%s; they may differ in size along the axes that are "
                     "reduced, and must agree in all else. Name each axis in which they differ, or pad them",
                     r->what, mu_dtype_name(parts[0]->dtype), mu__shape_text(&parts[0]->shape, first), i,
                     mu_dtype_name(parts[i]->dtype), mu__shape_text(&parts[i]->shape, other));
}

// Reduces over an axis inside each replica, then over replicas. For MEAN it adds sums and counts, so that every element
// has the same weight.
static mu_tensor *reduce_with_axis(const reduction *r, int n, mu_tensor *const *parts)
{
    mu_tensor *sum = NULL;
    double count = 0;
    for (int i = 0; i < n; i++) {
        double elements = 1;
        for (int k = 0; k < r->n_axes; k++) {
            const int axis = parts[i] ? mu__axis(r->axes[k], parts[i]->shape.rank, "mu_reduce_axis") : -1;
            if (axis < 0)
                return NULL;
            elements *= (double)parts[i]->shape.dims[axis];
        }
        count += elements;
        mu_tensor *part = mu_reduce_sum_axes(parts[i], r->n_axes, r->axes, false);
        if (!part || (sum && same_beside_axes(r, i, parts, sum, part) != MU_OK))
            return NULL;
        sum = sum ? mu_add(sum, part) : part;
    }
    return r->op == MU_MEAN && sum ? mu__mean_over(sum, mu_constant(MU_F64, count)) : sum;
}

// Text that workers compare before they fetch each other's parts: operation and axes.
static const char *text_of(const reduction *r, char text[MU_WHAT_BYTES])
{
    int n = snprintf(text, MU_WHAT_BYTES, "reduce %s%s", r->op == MU_SUM ? "sum" : "mean", r->n_axes ? ", axis" : "");
    for (int i = 0; i < r->n_axes && n < MU_WHAT_BYTES; i++)
        n += snprintf(text + n, (size_t)(MU_WHAT_BYTES - n), " %d", r->axes[i]);
    return text;
}

static mu_tensor *reduce_parts(const reduction *r, int n, mu_tensor *const *parts)
{
    const mu_parts_name name = {.what = r->what, .whose = whose(r, n)};
    char what[MU_WHAT_BYTES];
    if (r->strategy->n_workers > 1 && r->n_axes == 0)
        return mu__workers_reduce(r->strategy, &name, r->ops, r->op, n, parts);
    if (r->n_axes == 0)
        return mu__same_parts(&name, n, parts) == MU_OK ? mu__cross_device_reduce(r->ops, r->op, n, parts) : NULL;
    mu_tensor **all = mu__workers_gather(r->strategy, text_of(r, what), n, parts);
    mu_tensor *reduced = all ? reduce_with_axis(r, n * r->strategy->n_workers, all) : NULL;
    mu__free(all);
    return reduced;
}

mu_tensor *mu__reduce_replicas(mu_strategy *strategy, const char *what, mu_reduce_op op, int n,
                               mu_tensor *const *parts)
{
    return reduce_parts(&(reduction){.strategy = strategy, .what = what, .op = op}, n, parts);
}

// With axes every replica reduces its own part first; here all replicas have the same tensor.
static mu_tensor *reduce_on_replicas(const reduction *r, mu_tensor *tensor)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    for (int i = 0; i < r->strategy->n_local; i++)
        parts[i] = tensor;
    return reduce_parts(r, r->strategy->n_local, parts);
}

// Reduces a tensor of which each worker has its own.
static mu_tensor *reduce_own(const reduction *r, const mu_value *leaf)
{
    if (mu__merging())
        return r->n_axes ? mu__merged_reduce_axes(r->op, leaf, r->n_axes, r->axes)
                         : mu__merged_reduce_own(r->op, leaf);
    mu_tensor *tensor = leaf_tensor(leaf);
    return !tensor ? NULL : r->n_axes ? reduce_on_replicas(r, tensor) : reduce_parts(r, 1, &tensor);
}

static mu_status need_no_sum(const reduction *r)
{
    if (r->op != MU_SUM)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: SUM of a value that is not per replica (the same on all %d); return it from the function "
                     "that runs on replicas, or use MEAN",
                     r->what, r->strategy->n_replicas);
}

// A value that is the same on all replicas has a mean but no sum.
static mu_tensor *reduce_plain(const reduction *r, const mu_value *leaf)
{
    mu_tensor *tensor = leaf_tensor(leaf);
    if (!tensor)
        return NULL;
    if (r->n_axes)
        return tensor->node && mu__merging() ? mu__merged_reduce_axes(r->op, leaf, r->n_axes, r->axes)
                                             : reduce_on_replicas(r, tensor);
    if (r->strategy->n_replicas == 1)
        return tensor;
    const bool scalar = !tensor->node && mu__elements(&tensor->shape) == 1;
    const void *element = scalar ? mu__host_read(tensor) : NULL;
    if (scalar && !element)
        return NULL;
    const bool zero = scalar && mu__read_element(tensor->dtype, element, 0) == 0;
    return zero || need_no_sum(r) == MU_OK ? tensor : NULL;
}

static mu_tensor *reduce_components(const reduction *r, const mu_value *value)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    for (int i = 0; i < value->n; i++)
        if (!(parts[i] = mu_value_tensor(value->items[i])))
            return NULL;
    return reduce_parts(r, value->n, parts);
}

static mu_value *reduce_placeholders(const reduction *r, const mu_value *value)
{
    if (!r->n_axes)
        return mu__merged_reduce(r->op, value);
    mu_tensor *reduced = mu__merged_reduce_axes(r->op, value, r->n_axes, r->axes);
    return reduced ? mu_of(reduced) : NULL;
}

// The components of an ON_READ variable differ; those of other variables are one value.
static mu_tensor *reduce_variable(const reduction *r, const mu_value *leaf)
{
    mu_variable *variable = (mu_variable *)leaf->leaf;
    mu_tensor *parts[MU_MAX_REPLICAS];
    if (variable->synchronization != MU_SYNCHRONIZATION_ON_READ || variable->resource.shared ||
        r->strategy->n_replicas < 2)
        return reduce_plain(r, leaf);
    if (mu__merging()) {
        mu_value *reduced = reduce_placeholders(r, leaf);
        return reduced ? mu_value_tensor(reduced) : NULL;
    }
    for (int i = 0; i < variable->n_components; i++)
        if (!(parts[i] = mu__variable_component(variable, i)))
            return NULL;
    return reduce_parts(r, variable->n_components, parts);
}

// Concatenates one part (values or indices) of all replicas' slices.
static mu_tensor *join_slices(const reduction *r, int n, mu_value *const *slices, int part)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    for (int i = 0; i < n; i++)
        if (!(parts[i] = mu_at(slices[i], part)))
            return NULL;
    char what[MU_WHAT_BYTES];
    mu_tensor **all = mu__workers_gather(r->strategy, text_of(r, what), n, parts);
    mu_tensor *whole = all ? mu_concat(n * r->strategy->n_workers, all, 0) : NULL;
    mu__free(all);
    return whole;
}

// Checks that all slices have the same dense shape.
static mu_status same_slices(const reduction *r, int n, mu_value *const *slices)
{
    mu_tensor *shapes[MU_MAX_REPLICAS];
    for (int i = 0; i < n; i++)
        if (!(shapes[i] = mu_at(slices[i], 2)))
            return mu_error_code();
    mu_tensor **all = mu__workers_gather(r->strategy, "reduce", n, shapes);
    const mu_parts_name name = {.what = r->what, .whose = whose(r, n)};
    const mu_status status =
        all ? mu__same_dense_shapes(&name, n * r->strategy->n_workers, all) : mu_error_code();
    mu__free(all);
    return status;
}

// For MEAN it divides the values.
static mu_value *reduce_slices(const reduction *r, int n, mu_value *const *slices)
{
    if (r->n_axes) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_reduce_axis: indexed slices have no axes to reduce; use mu_reduce, or a dense tensor");
        return NULL;
    }
    const bool plain = n < r->strategy->n_local && r->strategy->n_workers == 1;
    if ((plain && need_no_sum(r) != MU_OK) || same_slices(r, n, slices) != MU_OK)
        return NULL;
    mu_tensor *values = join_slices(r, n, slices, 0), *indices = values ? join_slices(r, n, slices, 1) : NULL;
    if (r->op == MU_MEAN && values)
        values = mu__mean_of(values, n * r->strategy->n_workers);
    mu_value *parts[] = {values ? mu_of(values) : NULL, indices ? mu_of(indices) : NULL, slices[0]->items[2]};
    return mu__pending() ? NULL : mu__give(mu__value_container(MU_VALUE_SLICES, 3, parts, NULL));
}

static mu_value *reduce_part(const mu_value *value, const void *arg)
{
    const reduction *r = arg;
    const bool parts = value->kind == MU_VALUE_PER_REPLICA;
    if (parts && mu__is_placeholder(value))
        return reduce_placeholders(r, value);
    if (value->kind == MU_VALUE_SLICES || (parts && value->items[0]->kind == MU_VALUE_SLICES))
        return reduce_slices(r, parts ? value->n : 1, parts ? value->items : (mu_value *[]){(mu_value *)value});
    const bool mirrored = value->kind == MU_VALUE_MIRRORED;
    if (mirrored && !(value = mu__is_placeholder(value) ? mu__merged_own(value) : value->items[0]))
        return NULL;
    mu_tensor *reduced = value->kind == MU_VALUE_PER_REPLICA ? reduce_components(r, value)
                         : value->kind == MU_VALUE_VARIABLE ? reduce_variable(r, value)
                         : r->strategy->n_workers > 1 && !mirrored ? reduce_own(r, value)
                                                                   : reduce_plain(r, value);
    return reduced ? mu_of(reduced) : NULL;
}

static mu_value *reduce(const reduction *r, mu_value *value)
{
    if (mu__pending() || mu__need_cross_replica(r->strategy, r->what) != MU_OK ||
        mu__need_value(value, r->what) != MU_OK || mu__need_reduce_op(r->op, r->what) != MU_OK)
        return NULL;
    if (!value) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the value is NULL", r->what);
        return NULL;
    }
    if (mu__need_components(r->strategy, value, r->what) != MU_OK)
        return NULL;
    if (r->strategy->ops->plain_variables && !r->n_axes && value->kind != MU_VALUE_VARIABLE)
        return value;
    return mu__map_parts(value, false, reduce_part, r);
}

mu_value *mu__reduce_value(mu_strategy *strategy, const char *what, mu_reduce_op op, mu_value *value)
{
    mu_strategy *in = mu__strategy_or_default(strategy);
    return reduce(&(reduction){.strategy = in, .what = what, .op = op, .ops = in ? in->cross_device : NULL}, value);
}

mu_value *mu_reduce(mu_strategy *strategy, mu_reduce_op op, mu_value *value)
{
    return mu__reduce_value(strategy, "mu_reduce", op, value);
}

mu_value *mu_reduce_axis(mu_strategy *strategy, mu_reduce_op op, mu_value *value, int axis)
{
    return mu_reduce_axes(strategy, op, value, 1, &axis);
}

static mu_status check_axes(int n_axes, const int *axes)
{
    if (n_axes < 1 || n_axes > MU_MAX_RANK || !axes)
        return mu__error(MU_INVALID_ARGUMENT, "mu_reduce_axes: %d axes; give 1 to %d, or use mu_reduce for none",
                         n_axes, MU_MAX_RANK);
    return MU_OK;
}

mu_value *mu_reduce_axes(mu_strategy *strategy, mu_reduce_op op, mu_value *value, int n_axes, const int *axes)
{
    if (mu__pending() || check_axes(n_axes, axes) != MU_OK)
        return NULL;
    const reduction r = {.strategy = mu__strategy_or_default(strategy), .what = "mu_reduce_axis", .op = op,
                         .n_axes = n_axes, .axes = axes};
    return reduce(&r, value);
}

// ---- Gather and local results -------------------------------------------------------------------

// Concatenates components, on several workers those of all.
static mu_value *gather_parts(mu_strategy *strategy, int n, mu_tensor *const *parts, int axis)
{
    for (int i = 0; i < n; i++)
        if (!parts[i])
            return NULL;
    char what[MU_WHAT_BYTES];
    snprintf(what, sizeof what, "gather along axis %d", axis);
    mu_tensor **all = mu__workers_gather(strategy, what, n, parts);
    mu_tensor *whole = all ? mu_concat(n * strategy->n_workers, all, axis) : NULL;
    mu__free(all);
    return whole ? mu_of(whole) : NULL;
}

typedef struct gathering {
    mu_strategy *strategy;
    int axis;
} gathering;

static mu_value *gather_dense(mu_strategy *strategy, const mu_value *value, int axis)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    mu_variable *variable = value->kind == MU_VALUE_VARIABLE ? (mu_variable *)value->leaf : NULL;
    const bool copies = variable && variable->rules && !variable->resource.shared;
    if (mu__is_placeholder(value) || (copies && mu__merging())) {
        mu_tensor *gathered = mu__merged_gather(value, axis);
        return gathered ? mu_of(gathered) : NULL;
    }
    for (int i = 0; copies && i < variable->n_components; i++)
        parts[i] = mu__variable_component(variable, i);
    if (copies)
        return gather_parts(strategy, variable->n_components, parts, axis);
    if (value->kind == MU_VALUE_TENSOR && strategy->n_workers > 1 && mu__merging())
        return mu__merged_gather_own(value, axis);
    if (value->kind == MU_VALUE_TENSOR && strategy->n_workers > 1)  // each worker has its own
        return gather_parts(strategy, 1, (mu_tensor *[]){mu_value_tensor(value)}, axis);
    if (value->kind != MU_VALUE_PER_REPLICA && value->kind != MU_VALUE_MIRRORED)
        return (mu_value *)value;
    for (int i = 0; i < value->n; i++)
        parts[i] = mu_value_tensor(value->items[i]);
    return gather_parts(strategy, value->n, parts, axis);
}

static mu_value *gather_part(const mu_value *value, const void *arg)
{
    const gathering *g = arg;
    const bool distributed = value->kind == MU_VALUE_PER_REPLICA || value->kind == MU_VALUE_MIRRORED;
    if (value->kind == MU_VALUE_SLICES || (distributed && value->items[0]->kind == MU_VALUE_SLICES)) {
        mu__error(MU_UNIMPLEMENTED, "mu_strategy_gather: indexed slices cannot be gathered; gather a dense tensor");
        return NULL;
    }
    return gather_dense(g->strategy, value, g->axis);
}

mu_value *mu_strategy_gather(mu_strategy *given, mu_value *value, int axis)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || mu__need_cross_replica(strategy, "mu_strategy_gather") != MU_OK ||
        mu__need_value(value, "mu_strategy_gather") != MU_OK)
        return NULL;
    if (!value) {
        mu__error(MU_INVALID_ARGUMENT, "mu_strategy_gather: the value is NULL");
        return NULL;
    }
    return mu__need_components(strategy, value, "mu_strategy_gather") == MU_OK
               ? mu__map_parts(value, false, gather_part, &(gathering){strategy, axis})
               : NULL;
}

// The copies of a variable as a value.
static mu_value *components_of(mu_variable *variable)
{
    mu_value *items[MU_MAX_REPLICAS];
    if (mu__merging() && variable->n_components > 1) {
        mu_tensor *own = mu__variable_read(variable);
        mu_value *all = own ? mu__merged_results(variable->owner,
                                                 mu__merged_group(variable->owner, MU_VALUE_PER_REPLICA, mu_of(own)))
                            : NULL;
        return all ? mu__give(mu__value_container(MU_VALUE_LIST, all->n, all->items, NULL)) : NULL;
    }
    for (int i = 0; i < variable->n_components; i++) {
        mu_tensor *copy = mu__variable_component(variable, i);
        if (!copy || !(items[i] = mu_of(copy)))
            return NULL;
    }
    return mu__give(mu__value_container(MU_VALUE_LIST, variable->n_components, items, NULL));
}

// Local replica i's part of a value; for a variable with copies its copy. Belongs to the pool.
static mu_value *local_part(const mu_value *value, const void *arg)
{
    const int i = *(const int *)arg;
    const mu_variable *variable = value->kind == MU_VALUE_VARIABLE ? (const mu_variable *)value->leaf : NULL;
    if (variable && variable->rules && !variable->resource.shared) {
        mu_value *copies = components_of((mu_variable *)value->leaf);
        return copies && i < copies->n ? copies->items[i] : NULL;
    }
    return mu__give(mu__select(value, i));
}

mu_value *mu_local_results(mu_strategy *given, mu_value *value)
{
    const mu_strategy *strategy = mu__pending() ? NULL : mu__strategy_or_default(given);
    if (!strategy || mu__need_value(value, "mu_local_results") != MU_OK)
        return NULL;
    if (!value) {
        mu__error(MU_INVALID_ARGUMENT, "mu_local_results: the value is NULL");
        return NULL;
    }
    if (value->kind == MU_VALUE_VARIABLE)
        return components_of((mu_variable *)value->leaf);
    if (mu__merging() && !(value = mu__merged_results(strategy, value)))
        return NULL;
    const bool nest = value->kind == MU_VALUE_LIST || value->kind == MU_VALUE_MAP;
    const bool copies = value->kind == MU_VALUE_MIRRORED;  // one per named device
    const bool as_it_is = strategy->ops->plain_variables && !mu__is_distributed(value);
    const int n = copies ? value->n : nest || mu__is_distributed(value) ? strategy->n_local : 1;
    if (!copies && mu__need_components(strategy, value, "mu_local_results") != MU_OK)
        return NULL;
    mu_value **items = mu__calloc((size_t)n, sizeof *items), *list = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = (items[i] = as_it_is ? value : mu__map_parts(value, false, local_part, &i)) != NULL;
    if (whole)
        list = mu__give(mu__value_container(MU_VALUE_LIST, n, items, NULL));
    mu__free(items);
    return list;
}
