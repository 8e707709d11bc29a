// Reductions between replicas outside of functions.
//
// Local replicas' values are in one address space; other workers' values are fetched first (workers.c). Then ordinary
// ops combine them in replica order, so every run and every worker gets the same bits. A table says how each kind of
// value is reduced; strategies and contexts differ in their tables.
#include "distribute/strategies/parameter_server.h"
#include "distribute/reduce/reductions.h"

#include <muster/ops.h>

mu_tensor *mu__divide_by_count(mu_tensor *value, int count)
{
    mu_dtype wide = mu__dtype_is_float(value->dtype) ? value->dtype : MU_F64;
    mu_tensor *quotient = mu_divide(mu_cast(value, wide), mu_constant(wide, count));
    return mu_cast(quotient, value->dtype);
}

mu_dtype mu__mean_dtype(mu_dtype dtype)
{
    if (mu__dtype_is_float(dtype))
        return dtype;
    return mu_dtype_bytes(dtype) >= 4 ? MU_F64 : MU_F32;
}

mu_tensor *mu__mean_over(mu_tensor *sum, mu_tensor *count)
{
    const mu_dtype wide = mu__mean_dtype(sum->dtype);
    return mu_divide(mu_cast(sum, wide), mu_cast(count, wide));
}

mu_tensor *mu__mean_of(mu_tensor *sum, int count) { return mu__mean_over(sum, mu_constant(MU_F64, count)); }

mu_tensor *mu__reduce_tensors(mu_reduce_op op, int n, mu_tensor *const *tensors)
{
    mu_tensor *sum = tensors[0];
    for (int i = 1; i < n; i++)
        sum = mu_add(sum, tensors[i]);
    return op == MU_MEAN && sum ? mu__mean_over(sum, mu_constant(MU_F64, n)) : sum;
}

// ---- Leaf by leaf -------------------------------------------------------------------------------

// Names the owner of the n parts: replicas, or this worker for a tensor of its own.
static const char *whose(const mu_reducing *r, int n) { return n < r->strategy->n_local ? "worker" : "replica"; }

// The copy of an only replica is reduced as it is, also where a read would have to combine copies and cannot (NONE).
static mu_tensor *variable_tensor(mu_variable *variable)
{
    const mu_strategy *owner = variable->owner;
    const bool alone = owner && owner->n_replicas == 1 && variable->rules == &mu__on_read_rules;
    return alone ? mu__variable_component(variable, 0) : mu_variable_read(variable);
}

mu_tensor *mu__leaf_tensor(const mu_value *leaf)
{
    return leaf->kind == MU_VALUE_VARIABLE ? variable_tensor((mu_variable *)leaf->leaf) : (mu_tensor *)leaf->leaf;
}

// Checks that parts differ only along the reduced axes.
static mu_status same_beside_axes(const mu_reducing *r, int i, mu_tensor *const *parts, const mu_tensor *sum,
                                  const mu_tensor *part)
{
    char first[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    if (part->dtype == sum->dtype && mu__shape_equal(&part->shape, &sum->shape))
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT,
        "%s: replica 0 has %s%s, but replica %d has %s%s; they may differ in size along the axes that are reduced, and "
        "must agree in all else. %s",
        r->what, mu_dtype_name(parts[0]->dtype), mu__shape_text(&parts[0]->shape, first), i,
        mu_dtype_name(parts[i]->dtype), mu__shape_text(&parts[i]->shape, other),
        mu__parts_advice(parts[0]->dtype, parts[i]->dtype, "Name each axis in which they differ, or pad them"));
}

// The number of elements of one part along the axes, float64; an op where a trace does not know a size.
static mu_tensor *size_along_axes(const mu_reducing *r, mu_tensor *part)
{
    mu_tensor *sizes = NULL;
    double known = 1;
    for (int k = 0; k < r->n_axes; k++) {
        const int axis = part ? mu__axis(r->axes[k], part->shape.rank, "mu_reduce") : -1;
        if (axis < 0)
            return NULL;
        if (part->shape.dims[axis] != MU_UNKNOWN) {
            known *= (double)part->shape.dims[axis];
            continue;
        }
        mu_tensor *size = mu_cast(mu_dim_size(part, axis), MU_F64);
        sizes = sizes ? mu_multiply(sizes, size) : size;
    }
    mu_tensor *product = mu_constant(MU_F64, known);
    return sizes ? mu_multiply(sizes, product) : product;
}

// Reduces over an axis inside each replica, then over replicas. For MEAN it adds sums and counts, so that every element
// has the same weight.
static mu_tensor *reduce_with_axis(const mu_reducing *r, int n, mu_tensor *const *parts)
{
    mu_tensor *sum = NULL, *count = NULL;
    if (mu__need_numbers(&(mu_parts_name){.what = r->what, .whose = "replica"}, parts[0]->dtype) != MU_OK)
        return NULL;
    for (int i = 0; i < n; i++) {
        mu_tensor *size = size_along_axes(r, parts[i]);
        mu_tensor *part = size ? mu_reduce_sum(parts[i], .axes = r->axes, .n_axes = r->n_axes) : NULL;
        if (!part || (sum && same_beside_axes(r, i, parts, sum, part) != MU_OK))
            return NULL;
        sum = sum ? mu_add(sum, part) : part;
        count = count ? mu_add(count, size) : size;
    }
    return r->op == MU_MEAN && sum ? mu__mean_over(sum, count) : sum;
}

// Text that workers compare before they fetch each other's parts: operation, axes, and who asks.
static const char *text_of(const mu_reducing *r, char text[MU_WHAT_BYTES])
{
    int n = snprintf(text, MU_WHAT_BYTES, "reduce %s%s", r->op == MU_SUM ? "sum" : "mean", r->n_axes ? ", axis" : "");
    for (int i = 0; i < r->n_axes && n < MU_WHAT_BYTES; i++)
        n += snprintf(text + n, (size_t)(MU_WHAT_BYTES - n), " %d", r->axes[i]);
    if (n < MU_WHAT_BYTES)
        snprintf(text + n, (size_t)(MU_WHAT_BYTES - n), ", %s", r->what);
    return text;
}

static mu_tensor *reduce_parts(const mu_reducing *r, int n, mu_tensor *const *parts)
{
    const mu_cross_worker_ops *workers = r->strategy->ops->cross_worker;
    const mu_parts_name name = {.what = r->what, .whose = whose(r, n)};
    char what[MU_WHAT_BYTES];
    int n_all;
    if (r->n_axes == 0)
        return workers->reduce(r->strategy, &name, r->ops, r->op, n, parts);
    mu_tensor **all = workers->gather(r->strategy, text_of(r, what), n, parts, &n_all);
    mu_tensor *reduced = all ? reduce_with_axis(r, n_all, all) : NULL;
    mu__free(all);
    return reduced;
}

mu_tensor *mu__reduce_replicas(mu_strategy *strategy, const char *what, mu_reduce_op op, int n, mu_tensor *const *parts)
{
    return reduce_parts(&(mu_reducing){.strategy = strategy, .what = what, .op = op}, n, parts);
}

// With axes every replica reduces its own part first; here all replicas have the same tensor.
static mu_tensor *reduce_on_replicas(const mu_reducing *r, mu_tensor *tensor)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    for (int i = 0; i < r->strategy->n_local; i++)
        parts[i] = tensor;
    return reduce_parts(r, r->strategy->n_local, parts);
}

static mu_status need_no_sum(const mu_reducing *r)
{
    if (r->op != MU_SUM)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: SUM of a value that is not per replica (the same on all %d); return it from the function "
                     "that runs on replicas, or use MEAN",
                     r->what, r->strategy->n_replicas);
}

static mu_value *as_value(mu_tensor *tensor) { return tensor ? mu_of(tensor) : NULL; }

// A value that is the same on all replicas has a mean but no sum.
mu_value *mu__reduce_copies(const mu_reducing *r, const mu_value *leaf)
{
    mu_tensor *tensor = mu__leaf_tensor(leaf);
    if (!tensor)
        return NULL;
    if (r->n_axes)
        return as_value(reduce_on_replicas(r, tensor));
    return r->strategy->n_replicas == 1 || need_no_sum(r) == MU_OK ? mu_of(tensor) : NULL;
}

// A plain 0 has a sum. What a variable or a mirrored value happens to hold does not matter.
mu_value *mu__reduce_same(const mu_reducing *r, const mu_value *leaf)
{
    const mu_tensor *tensor = leaf->kind == MU_VALUE_TENSOR ? (const mu_tensor *)leaf->leaf : NULL;
    const bool scalar =
        !r->n_axes && tensor && tensor->dtype != MU_STRING && !tensor->node && mu__elements(&tensor->shape) == 1;
    const void *element = scalar ? mu__host_read(tensor) : NULL;
    if (scalar && !element)
        return NULL;
    return scalar && mu__read_element(tensor->dtype, element, 0) == 0 ? (mu_value *)leaf : mu__reduce_copies(r, leaf);
}

// Reduces a tensor of which each worker has its own.
static mu_value *reduce_own(const mu_reducing *r, const mu_value *leaf)
{
    mu_tensor *tensor = mu__leaf_tensor(leaf);
    return !tensor ? NULL : r->n_axes ? as_value(reduce_on_replicas(r, tensor)) : as_value(reduce_parts(r, 1, &tensor));
}

// The components of an ON_READ variable differ; those of other variables are one value.
bool mu__components_differ(const mu_reducing *r, const mu_value *leaf)
{
    const mu_variable *variable = (const mu_variable *)leaf->leaf;
    return variable->synchronization == MU_SYNCHRONIZATION_ON_READ && !variable->resource.shared &&
           r->strategy->n_replicas > 1;
}

static mu_value *reduce_variable(const mu_reducing *r, const mu_value *leaf)
{
    mu_variable *variable = (mu_variable *)leaf->leaf;
    mu_tensor *parts[MU_MAX_REPLICAS];
    char access[MU_ATTR_TEXT_BYTES], what[MU_ATTR_TEXT_BYTES];
    if (!mu__components_differ(r, leaf))
        return mu__reduce_copies(r, leaf);
    for (int i = 0; i < variable->n_components; i++)
        if (!(parts[i] = mu__variable_component(variable, i)))
            return NULL;
    mu_reducing named = *r;
    snprintf(access, sizeof access, "%s of", r->what);
    named.what = mu__access_text(access, variable, what);
    return as_value(reduce_parts(&named, variable->n_components, parts));
}

static mu_value *reduce_mirrored(const mu_reducing *r, const mu_value *value)
{
    const mu_value *one = value->items[0];
    return one->kind == MU_VALUE_VARIABLE ? reduce_variable(r, one) : mu__reduce_copies(r, one);
}

// ---- Indexed slices -----------------------------------------------------------------------------

// Concatenates one part (values or indices) of all replicas' slices; *n_all is their number.
static mu_tensor *join_slices(const mu_reducing *r, int n, mu_value *const *slices, int part, int *n_all)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    for (int i = 0; i < n; i++)
        if (!(parts[i] = mu_at(slices[i], part)))
            return NULL;
    char what[MU_WHAT_BYTES];
    mu_tensor **all = r->strategy->ops->cross_worker->gather(r->strategy, text_of(r, what), n, parts, n_all);
    mu_tensor *whole = all ? mu_concat(*n_all, all, 0) : NULL;
    mu__free(all);
    return whole;
}

// Checks that all slices have the same dense shape.
static mu_status same_slices(const mu_reducing *r, int n, mu_value *const *slices)
{
    mu_tensor *shapes[MU_MAX_REPLICAS];
    for (int i = 0; i < n; i++)
        if (!(shapes[i] = mu_at(slices[i], 2)))
            return mu_error_code();
    int n_all;
    mu_tensor **all = r->strategy->ops->cross_worker->gather(r->strategy, "reduce", n, shapes, &n_all);
    const mu_parts_name name = {.what = r->what, .whose = whose(r, n)};
    const mu_status status = all ? mu__same_dense_shapes(&name, n_all, all) : mu_error_code();
    mu__free(all);
    return status;
}

// For MEAN it divides the values.
static mu_value *reduce_slices(const mu_reducing *r, int n, mu_value *const *slices)
{
    int n_all;
    if (r->n_axes) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_reduce: indexed slices have no axes to reduce; leave the axis out, or give a dense tensor");
        return NULL;
    }
    if (same_slices(r, n, slices) != MU_OK)
        return NULL;
    mu_tensor *values = join_slices(r, n, slices, 0, &n_all);
    mu_tensor *indices = values ? join_slices(r, n, slices, 1, &n_all) : NULL;
    if (r->op == MU_MEAN && values)
        values = mu__mean_of(values, n_all);
    mu_value *parts[] = {values ? mu_of(values) : NULL, indices ? mu_of(indices) : NULL, slices[0]->items[2]};
    return mu__pending() ? NULL : mu__give(mu__value_container(MU_VALUE_SLICES, 3, parts, NULL));
}

mu_value *mu__reduce_own_slices(const mu_reducing *r, const mu_value *slices)
{
    return reduce_slices(r, 1, &(mu_value *){(mu_value *)slices});
}

mu_value *mu__reduce_same_slices(const mu_reducing *r, const mu_value *slices)
{
    const bool one = r->n_axes || r->strategy->n_replicas == 1;
    return one || need_no_sum(r) == MU_OK ? mu__reduce_own_slices(r, slices) : NULL;
}

mu_value *mu__reduce_each(const mu_reducing *r, const mu_value *value)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    if (r->strategy->n_replicas == 1 && !r->n_axes) // as of a result of mu_run, which is not wrapped
        return value->items[0];
    if (value->items[0]->kind == MU_VALUE_SLICES)
        return reduce_slices(r, value->n, value->items);
    for (int i = 0; i < value->n; i++)
        if (!(parts[i] = mu_value_tensor(value->items[i])))
            return NULL;
    return as_value(reduce_parts(r, value->n, parts));
}

// ---- Kinds of values ----------------------------------------------------------------------------

static mu_reduce_part *const local_parts[] = {
    [MU_VALUE_TENSOR] = mu__reduce_same,        [MU_VALUE_VARIABLE] = reduce_variable,
    [MU_VALUE_PER_REPLICA] = mu__reduce_each,   [MU_VALUE_MIRRORED] = reduce_mirrored,
    [MU_VALUE_SLICES] = mu__reduce_same_slices,
};

// A tensor or slices that are not distributed are this worker's own.
static mu_reduce_part *const worker_parts[] = {
    [MU_VALUE_TENSOR] = reduce_own,
    [MU_VALUE_VARIABLE] = reduce_variable,
    [MU_VALUE_PER_REPLICA] = mu__reduce_each,
    [MU_VALUE_MIRRORED] = reduce_mirrored,
    [MU_VALUE_SLICES] = mu__reduce_own_slices,
};

typedef struct walk {
    const mu_reducing *r;
    mu_reduce_part *const *by_kind;
} walk;

static mu_value *reduce_part(const mu_value *part, const void *arg)
{
    const walk *w = arg;
    return mu__value_is_remote(part) && mu__refuse_remote(w->r->what) != MU_OK ? NULL
                                                                               : w->by_kind[part->kind](w->r, part);
}

mu_value *mu__reduce_by_kind(const mu_reducing *r, mu_value *value, mu_reduce_part *const *by_kind)
{
    return mu__map_parts(value, false, reduce_part, &(walk){r, by_kind});
}

mu_value *mu__reduce_local(const mu_reducing *r, mu_value *value) { return mu__reduce_by_kind(r, value, local_parts); }

mu_value *mu__reduce_workers(const mu_reducing *r, mu_value *value)
{
    return mu__reduce_by_kind(r, value, worker_parts);
}

// The only replica's value is the sum and the mean.
mu_value *mu__reduce_plain(const mu_reducing *r, mu_value *value)
{
    return r->n_axes || value->kind == MU_VALUE_VARIABLE ? mu__reduce_local(r, value) : value;
}

// ---- The public functions -----------------------------------------------------------------------

static mu_value *reduce(const mu_reducing *r, mu_value *value)
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
    return mu__cross_replica(r->strategy)->reduce_to(r, value);
}

mu_value *mu__reduce_value(mu_strategy *strategy, const char *what, mu_reduce_op op, mu_value *value)
{
    mu_strategy *in = mu__strategy_or_default(strategy);
    return reduce(&(mu_reducing){.strategy = in, .what = what, .op = op, .ops = in ? in->cross_device : NULL}, value);
}

static mu_status check_axes(int n_axes, const int *axes)
{
    if (n_axes < 1 || n_axes > MU_MAX_RANK || !axes)
        return mu__error(MU_INVALID_ARGUMENT, "mu_reduce: %d axes; give 1 to %d, or leave .axes out", n_axes,
                         MU_MAX_RANK);
    return MU_OK;
}

mu_value *mu_reduce_with(const mu_reduce_args *given)
{
    mu_reduce_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_reduce") != MU_OK)
        return NULL;
    mu_axes axes;
    if (MU_AXES_TAKE(&args, 3, &axes, "mu_reduce") != MU_OK)
        return NULL;
    if (args.strategy)
        mu__warn_unscheduled(args.strategy, "mu_reduce");
    if (!axes.named)
        return mu__reduce_value(args.strategy, "mu_reduce", args.op, args.value);
    if (check_axes(axes.n, axes.at) != MU_OK)
        return NULL;
    const mu_reducing r = {.strategy = mu__strategy_or_default(args.strategy),
                           .what = "mu_reduce",
                           .op = args.op,
                           .n_axes = axes.n,
                           .axes = axes.at};
    return reduce(&r, args.value);
}
