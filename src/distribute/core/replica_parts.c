// Checks that the replicas' parts of a value match: one component per replica, all of one type and shape.
//
// TensorFlow rejects anything else. Broadcasting parts of different shapes would give numbers that no replica has. Also
// here: copies of a value for several devices. This file does not depend on how parts are reduced.
#include "distribute/distribute.h"

#include <muster/ops.h>

// ---- As many components as replicas -------------------------------------------------------------

static bool has_components(const mu_value *value)
{
    return value->kind == MU_VALUE_PER_REPLICA || value->kind == MU_VALUE_MIRRORED;
}

// The first part of a nest whose number of components is not n; NULL if there is none.
static const mu_value *misfit(const mu_value *value, int n)
{
    if (value->leaf)
        return NULL;
    if (has_components(value))
        return value->n == n ? NULL : value;
    for (int i = 0; i < value->n; i++) {
        const mu_value *found = misfit(value->items[i], n);
        if (found)
            return found;
    }
    return NULL;
}

mu_status mu__refuse_remote(const char *function)
{
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: a value that is on the workers of a coordinator was given; give it to mu_schedule, or fetch "
                     "the result of a call with mu_fetch",
                     function);
}

static bool has_remote(const mu_value *value)
{
    bool found = value->leaf && mu__value_is_remote(value);
    for (int i = 0; i < value->n && !found; i++)
        found = has_remote(value->items[i]);
    return found;
}

mu_status mu__need_components(const mu_strategy *strategy, const mu_value *value, const char *function)
{
    if (value && has_remote(value))
        return mu__refuse_remote(function);
    const mu_value *found = value ? misfit(value, strategy->n_local) : NULL;
    if (!found)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: a %s value has %d components, but %s has %d replica%s in this process; give a value that was "
                     "made for this strategy, with one component for each replica",
                     function, found->kind == MU_VALUE_MIRRORED ? "mirrored" : "per-replica", found->n,
                     mu_strategy_name(strategy), strategy->n_local, strategy->n_local == 1 ? "" : "s");
}

mu_status mu__need_reduce_op(mu_reduce_op op, const char *function)
{
    if ((unsigned)op <= MU_MEAN)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the operation is %d, which is neither MU_SUM (0) nor MU_MEAN (1)",
                     function, (int)op);
}

// ---- One type and shape -------------------------------------------------------------------------

// Room for "mu_batch_reduce_to, value 2": the function and the position in its list.
enum { NAME_BYTES = 200 };
static const char *name_text(const mu_parts_name *name, char text[NAME_BYTES])
{
    if (name->value > 0)
        snprintf(text, NAME_BYTES, "%s, value %d", name->what, name->value - 1);
    else
        snprintf(text, NAME_BYTES, "%s", name->what);
    return text;
}

mu_status mu__need_numbers(const mu_parts_name *name, mu_dtype dtype)
{
    char what[NAME_BYTES];
    if (dtype != MU_BOOL && dtype != MU_STRING)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s 0 has type %s, and what is added up or averaged must be numbers; %s",
                     name_text(name, what), name->whose, mu_dtype_name(dtype),
                     dtype == MU_BOOL ? "convert it first (mu_cast)"
                                      : "turn the strings into numbers first (mu_string_lookup, mu_hashing)");
}

const char *mu__parts_advice(mu_dtype first, mu_dtype other, const char *shapes)
{
    return first == other ? shapes : "Convert them to one type (mu_cast)";
}

mu_status mu__same_part(const mu_parts_name *name, int i, const mu_spec *first, const mu_spec *other)
{
    char here[MU_SHAPE_TEXT], there[MU_SHAPE_TEXT], what[NAME_BYTES];
    if (first->dtype == other->dtype && mu__shape_equal(&first->shape, &other->shape))
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT, "%s: %s 0 has %s%s, but %s %d has %s%s; all must have the same type and shape. %s",
        name_text(name, what), name->whose, mu_dtype_name(first->dtype), mu__shape_text(&first->shape, here),
        name->whose, i, mu_dtype_name(other->dtype), mu__shape_text(&other->shape, there),
        mu__parts_advice(first->dtype, other->dtype,
                         "Pad the smaller parts, or reduce the axis in which they differ as well (.axis)"));
}

mu_status mu__same_parts(const mu_parts_name *name, int n, mu_tensor *const *parts)
{
    if (n > 1) // one part is its own sum
        MU_TRY(mu__need_numbers(name, parts[0]->dtype));
    for (int i = 1; i < n; i++) {
        const mu_spec first = mu__spec_of(parts[0]), other = mu__spec_of(parts[i]);
        MU_TRY(mu__same_part(name, i, &first, &other));
    }
    return MU_OK;
}

// The dense shape of slices, from their third tensor: [rank] of int64.
static mu_shape dense_shape(const mu_tensor *tensor)
{
    return mu_shape_make((int)mu__elements(&tensor->shape), mu__host_read(tensor));
}

mu_status mu__same_dense_shapes(const mu_parts_name *name, int n, mu_tensor *const *shapes)
{
    for (int i = 0; i < n; i++)
        if (!mu__host_read(shapes[i]))
            return mu_error_code();
    for (int i = 1; i < n; i++) {
        char here[MU_SHAPE_TEXT], there[MU_SHAPE_TEXT], what[NAME_BYTES];
        const mu_shape first = dense_shape(shapes[0]), other = dense_shape(shapes[i]);
        if (!mu__shape_equal(&first, &other))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: %s 0 has slices of a tensor of shape %s, but %s %d has slices of one of shape %s; "
                             "all must be slices of one shape",
                             name_text(name, what), name->whose, mu__shape_text(&first, here), name->whose, i,
                             mu__shape_text(&other, there));
    }
    return MU_OK;
}

// ---- Copies -------------------------------------------------------------------------------------

// Makes a view, so that each device has a tensor object of its own: results of replicas count as one plain value only
// if all are the same object.
static mu_value *copy_leaf(const mu_value *leaf, const void *arg)
{
    (void)arg;
    mu_tensor *tensor = (mu_tensor *)leaf->leaf;
    if (!mu__is(tensor, &mu__tensor_type))
        return (mu_value *)leaf;
    mu_tensor *copy = mu_identity(tensor);
    return copy ? mu_of(copy) : NULL;
}

mu_value *mu__copy_local(mu_value *value) { return mu__map_parts(value, true, copy_leaf, NULL); }

mu_value *mu__mirror(mu_value *value, int copies)
{
    mu_value *items[MU_MAX_REPLICAS];
    if (!value || copies == 1)
        return value;
    const mu_strategy *strategy = mu_get_strategy();
    for (int i = 0; i < copies; i++)
        if (!strategy || !(items[i] = mu__cross_replica(strategy)->copy(value)))
            return NULL;
    return mu__give(mu__regroup_as(MU_VALUE_MIRRORED, true, copies, items));
}
