// What each operation of keras.ops computes in a functional model. See operation_kinds.h.
//
// A row is an operation: a function of one or two tensors, a reduction, an activation, or a function here. Axes count
// the batch's, as in Keras.
#include "model/layers/operation_kinds.h"

#include <muster/nn.h>
#include <muster/ops.h>

static mu_tensor *refuse(const mu_operation_call *c, const char *what)
{
    mu__error(MU_UNIMPLEMENTED, "'%s' (%s) has %s, which Muster's operation does not take", c->name, c->kind->keras,
              what);
    return NULL;
}

// ---- Options ------------------------------------------------------------------------------------

static bool is_none(const json_t *json) { return !json || json_is_null(json); }

// Python takes a number other than 0 for True.
static bool flag(const mu_operation_call *c, const char *option)
{
    const json_t *json = json_object_get(c->config, option);
    return json_is_true(json) || json_number_value(json) != 0;
}

// An axis of a result of this rank, from 0; -1 and an error for another.
static int axis_of(const mu_operation_call *c, const json_t *json, int rank)
{
    const json_int_t axis = json_integer_value(json);
    if (json_is_integer(json) && axis >= -rank && axis < rank)
        return (int)(axis < 0 ? axis + rank : axis);
    mu__error(MU_INVALID_ARGUMENT, "'%s' (%s) has an axis that a tensor of rank %d does not have", c->name,
              c->kind->keras, rank);
    return -1;
}

// The axes in an option, an integer or a list; all if it is null. Returns how many, -1 on error.
static int axes_of(const mu_operation_call *c, const char *option, int rank, int *out)
{
    const json_t *json = json_object_get(c->config, option);
    const bool all = is_none(json), list = json_is_array(json);
    const int n = all ? rank : list ? (int)MU_MIN(json_array_size(json), (size_t)MU_MAX_RANK) : 1;
    for (int i = 0; i < n; i++) {
        out[i] = all ? i : axis_of(c, list ? json_array_get(json, (size_t)i) : json, rank);
        if (out[i] < 0)
            return -1;
    }
    return n;
}

static int one_axis(const mu_operation_call *c, const char *option, int rank)
{
    return axis_of(c, json_object_get(c->config, option), rank);
}

// The first operand and the axis in the option 'axis'. Without an axis Keras flattens the operand. NULL: an error.
static mu_tensor *along(const mu_operation_call *c, int *axis)
{
    const bool flat = is_none(json_object_get(c->config, "axis"));
    *axis = flat ? 0 : one_axis(c, "axis", mu_tensor_rank(c->x[0]));
    return *axis < 0 ? NULL : flat ? mu_reshape(c->x[0], 1, (int64_t[]){-1}) : c->x[0];
}

// Whole numbers in a value; null is an unknown size. Returns how many, -1 and an error if they are no such list.
static int sizes_of(const mu_operation_call *c, const json_t *json, int64_t *out)
{
    const int n = json_is_array(json) ? (int)json_array_size(json) : 1;
    for (int i = 0; i < n && n <= MU_MAX_RANK; i++) {
        const json_t *size = json_is_array(json) ? json_array_get(json, (size_t)i) : json;
        if (!json_is_integer(size) && !json_is_null(size))
            return refuse(c, "sizes that are not whole numbers"), -1;
        out[i] = json_is_null(size) ? MU_UNKNOWN : json_integer_value(size);
    }
    return n <= MU_MAX_RANK ? n : (refuse(c, "too many axes"), -1);
}

// ---- Types --------------------------------------------------------------------------------------

// The type to which two tensors are promoted.
static mu_dtype wider(mu_dtype a, mu_dtype b)
{
    const bool float_a = mu__dtype_is_float(a), float_b = mu__dtype_is_float(b);
    if (a == b || float_a != float_b)
        return float_b && !float_a ? b : a;
    if (mu_dtype_bytes(a) != mu_dtype_bytes(b) && a != MU_BOOL && b != MU_BOOL)
        return mu_dtype_bytes(a) > mu_dtype_bytes(b) ? a : b;
    return float_a ? MU_F32 : a == MU_BOOL ? b : b == MU_BOOL ? a : MU_I16;
}

static mu_dtype meeting_type(const mu_operation_call *c, int first)
{
    mu_dtype dtype = mu_tensor_dtype(c->x[first]);
    for (int i = first; i < c->n; i++)
        dtype = wider(dtype, mu_tensor_dtype(c->x[i]));
    return dtype;
}

// The operands from the first one on, converted to the type to which all are promoted.
static mu_status meet(const mu_operation_call *c, int first, mu_tensor **out)
{
    const mu_dtype dtype = meeting_type(c, first);
    for (int i = first; i < c->n; i++)
        out[i] = mu_cast(c->x[i], dtype);
    return mu_error_code();
}

static bool is_bool(const mu_tensor *x) { return mu_tensor_dtype(x) == MU_BOOL; }
static mu_tensor *truth(mu_tensor *x) { return mu_cast(x, MU_BOOL); }
static mu_tensor *counted(mu_tensor *x) { return is_bool(x) ? mu_cast(x, MU_I32) : x; }

// Small integers would overflow in a sum. Keras adds up uint8 as uint32; the type here that has all its values is
// int64.
static mu_dtype sum_type(const mu_tensor *x)
{
    const mu_dtype dtype = mu_tensor_dtype(x);
    return dtype == MU_BOOL || dtype == MU_I8 || dtype == MU_I16 ? MU_I32 : dtype == MU_U8 ? MU_I64 : dtype;
}

static mu_tensor *reduce_as(mu_dtype dtype, const mu_reduction_args *args,
                            mu_tensor *(*reduce)(const mu_reduction_args *args))
{
    mu_reduction_args of_type = *args;
    of_type.x = mu_cast(args->x, dtype);
    return reduce(&of_type);
}

static mu_tensor *sum(const mu_reduction_args *a) { return reduce_as(sum_type(a->x), a, mu_reduce_sum_with); }
static mu_tensor *prod(const mu_reduction_args *a) { return reduce_as(sum_type(a->x), a, mu_reduce_prod_with); }
static mu_tensor *any(const mu_reduction_args *a) { return reduce_as(MU_BOOL, a, mu_reduce_any_with); }
static mu_tensor *all(const mu_reduction_args *a) { return reduce_as(MU_BOOL, a, mu_reduce_all_with); }
static mu_tensor *max(const mu_reduction_args *a) { return is_bool(a->x) ? any(a) : mu_reduce_max_with(a); }
static mu_tensor *min(const mu_reduction_args *a) { return is_bool(a->x) ? all(a) : mu_reduce_min_with(a); }

static mu_tensor *logical_and(mu_tensor *a, mu_tensor *b) { return mu_logical_and(truth(a), truth(b)); }
static mu_tensor *logical_or(mu_tensor *a, mu_tensor *b) { return mu_logical_or(truth(a), truth(b)); }
static mu_tensor *logical_xor(mu_tensor *a, mu_tensor *b) { return mu_logical_xor(truth(a), truth(b)); }
static mu_tensor *logical_not(mu_tensor *x) { return mu_logical_not(truth(x)); }
static mu_tensor *absolute(mu_tensor *x) { return is_bool(x) ? mu_identity(x) : mu_abs(x); }
static mu_tensor *square(mu_tensor *x) { return mu_square(counted(x)); }

// Some operations of Keras make tensors of their operands before these meet: a number in Python does not get the type
// beside it then: x % 7 of uint8 is int32, and 0.1 is not the 0.1 of float16.
mu_tensor *mu__number_alone(const json_t *json)
{
    const json_int_t whole = json_integer_value(json);
    if (!json_is_integer(json))
        return mu_constant(mu__floatx(), json_number_value(json));
    const bool small = whole >= INT32_MIN && whole <= INT32_MAX;
    return mu_cast(mu_tensor_new(MU_I64, 0, NULL, &(int64_t){whole}), small ? MU_I32 : MU_I64);
}

// ---- Shapes -------------------------------------------------------------------------------------

static mu_tensor *reshape(const mu_operation_call *c)
{
    int64_t dims[MU_MAX_RANK];
    const int n = sizes_of(c, json_object_get(c->config, "newshape"), dims);
    return n < 0 ? NULL : mu_reshape(c->x[0], n, dims);
}

static mu_tensor *transpose(const mu_operation_call *c)
{
    const int rank = mu_tensor_rank(c->x[0]);
    int axes[MU_MAX_RANK];
    if (is_none(json_object_get(c->config, "axes")))
        return mu_transpose(c->x[0], NULL);
    const int n = axes_of(c, "axes", rank, axes);
    return n < 0 ? NULL : n == rank ? mu_transpose(c->x[0], axes) : refuse(c, "another number of axes than its input");
}

static mu_tensor *swap_axes(const mu_operation_call *c)
{
    const int rank = mu_tensor_rank(c->x[0]), a = one_axis(c, "axis1", rank), b = one_axis(c, "axis2", rank);
    int axes[MU_MAX_RANK];
    for (int i = 0; i < rank; i++)
        axes[i] = i == a ? b : i == b ? a : i;
    return a < 0 || b < 0 ? NULL : mu_transpose(c->x[0], axes);
}

static mu_tensor *expand_dims(const mu_operation_call *c)
{
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]) + 1);
    return axis < 0 ? NULL : mu_expand_dims(c->x[0], axis);
}

static mu_tensor *squeeze(const mu_operation_call *c)
{
    if (is_none(json_object_get(c->config, "axis")))
        return mu_squeeze(c->x[0], MU_ALL_AXES);
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]));
    return axis < 0 ? NULL : mu_squeeze(c->x[0], axis);
}

static mu_tensor *concatenate(const mu_operation_call *c)
{
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]));
    mu_tensor *x[MU_MAX_MODEL_INPUTS];
    return axis < 0 || meet(c, 0, x) != MU_OK ? NULL : mu_concat(c->n, x, axis);
}

static mu_tensor *stack(const mu_operation_call *c)
{
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]) + 1);
    mu_tensor *x[MU_MAX_MODEL_INPUTS];
    return axis < 0 || meet(c, 0, x) != MU_OK ? NULL : mu_stack(c->n, x, axis);
}

static mu_tensor *flip(const mu_operation_call *c)
{
    int axes[MU_MAX_RANK];
    const int n = axes_of(c, "axis", mu_tensor_rank(c->x[0]), axes);
    mu_tensor *y = n < 0 ? NULL : c->x[0];
    for (int i = 0; i < n && y; i++)
        y = mu_reverse(y, axes[i]);
    return y;
}

static mu_tensor *repeat(const mu_operation_call *c)
{
    const json_t *times = json_object_get(c->config, "repeats");
    int axis;
    mu_tensor *x = along(c, &axis);
    if (!x)
        return NULL;
    return json_is_integer(times) ? mu_repeat(x, json_integer_value(times), axis)
                                  : refuse(c, "a number of repeats for each element");
}

// Repeats fewer than the axes are those of the last ones.
static mu_tensor *tile(const mu_operation_call *c)
{
    int64_t given[MU_MAX_RANK], times[MU_MAX_RANK];
    const int n = sizes_of(c, json_object_get(c->config, "repeats"), given), rank = mu_tensor_rank(c->x[0]);
    if (n < 0 || n > rank)
        return n < 0 ? NULL : refuse(c, "more repeats than axes");
    for (int i = 0; i < rank; i++)
        times[i] = i < rank - n ? 1 : given[i - (rank - n)];
    return mu_tile(c->x[0], times);
}

// ---- Parts --------------------------------------------------------------------------------------

// A key of x[…], for mu_strided_slice.
typedef struct slicing {
    int64_t begin[MU_MAX_RANK], end[MU_MAX_RANK], strides[MU_MAX_RANK];
    unsigned open_begin, open_end, single;
    int axis;                        // of x, which the next item is about
    int added[MU_MAX_RANK], n_added; // new axes of the result
    int place;                       // of the next item in the result
} slicing;

static bool is_class(const json_t *item, const char *name)
{
    const char *class_name = json_string_value(json_object_get(item, "class_name"));
    return class_name && strcmp(class_name, name) == 0;
}

static bool is_ellipsis(const json_t *item) { return is_class(item, "__ellipsis__"); }

// One number of a slice; `none` without one, and then the bit of its axis in `open`, unless that is NULL.
static mu_status bound(const mu_operation_call *c, const json_t *slice, const char *name, int axis, int64_t none,
                       int64_t *out, unsigned *open)
{
    const json_t *json = json_object_get(slice, name);
    if (!is_none(json) && !json_is_integer(json))
        return refuse(c, "a slice whose bounds or step are not whole numbers"), mu_error_code();
    if (open && is_none(json))
        *open |= 1u << axis;
    *out = is_none(json) ? none : json_integer_value(json);
    return MU_OK;
}

static void keep_axes(slicing *s, int n)
{
    for (int i = 0; i < n; i++, s->axis++, s->place++) {
        s->strides[s->axis] = 1;
        s->open_begin |= 1u << s->axis;
        s->open_end |= 1u << s->axis;
    }
}

static mu_status take_slice(const mu_operation_call *c, slicing *s, const json_t *slice)
{
    MU_TRY(bound(c, slice, "start", s->axis, 0, &s->begin[s->axis], &s->open_begin));
    MU_TRY(bound(c, slice, "stop", s->axis, 0, &s->end[s->axis], &s->open_end));
    MU_TRY(bound(c, slice, "step", s->axis, 1, &s->strides[s->axis], NULL));
    s->axis++;
    s->place++;
    return MU_OK;
}

static mu_status take_item(const mu_operation_call *c, slicing *s, const json_t *item, int rank, int n_axes)
{
    if (is_ellipsis(item))
        keep_axes(s, rank - n_axes);
    else if (json_is_null(item) && s->n_added < MU_MAX_RANK)
        s->added[s->n_added++] = s->place++;
    else if (json_is_integer(item)) {
        s->begin[s->axis] = json_integer_value(item);
        s->strides[s->axis] = 1;
        s->single |= 1u << s->axis++;
    } else if (is_class(item, "__slice__"))
        return take_slice(c, s, json_object_get(item, "config"));
    else
        return refuse(c, "a key that is not made of whole numbers and slices"), mu_error_code();
    return MU_OK;
}

static mu_tensor *get_item(const mu_operation_call *c)
{
    json_t *key = json_array_get(c->args, 1), *items = json_is_array(key) ? json_copy(key) : json_pack("[O]", key);
    const int rank = mu_tensor_rank(c->x[0]);
    slicing s = {0};
    int n_axes = 0, n_ellipses = 0;
    if (!items) {
        if (key)
            mu__error(MU_RESOURCE_EXHAUSTED, "'%s' (%s): no memory for its key", c->name, c->kind->keras);
        return key ? NULL : refuse(c, "no key");
    }
    for (size_t i = 0; i < json_array_size(items); i++) {
        n_ellipses += is_ellipsis(json_array_get(items, i));
        n_axes += !json_is_null(json_array_get(items, i)) && !is_ellipsis(json_array_get(items, i));
    }
    mu_status status = n_axes <= rank && n_ellipses <= 1
                           ? MU_OK
                           : (refuse(c, "a key with more parts than its input has axes"), mu_error_code());
    for (size_t i = 0; status == MU_OK && i < json_array_size(items); i++)
        status = take_item(c, &s, json_array_get(items, i), rank, n_axes);
    json_decref(items);
    if (status != MU_OK)
        return NULL;
    if (n_ellipses == 0)
        keep_axes(&s, rank - n_axes);
    mu_tensor *y = mu_strided_slice(c->x[0], s.begin, s.end, s.strides, s.open_begin, s.open_end, s.single);
    for (int i = 0; i < s.n_added && y; i++)
        y = mu_expand_dims(y, s.added[i]);
    return y;
}

// Indices in Python's numbers are not the operands that were made of them: these have the type of x, and lose the list.
static mu_tensor *indices_of(const mu_operation_call *c)
{
    const json_t *given = json_array_get(c->args, 1);
    const bool list = json_is_array(given);
    const size_t n = list ? json_array_size(given) : 1;
    int64_t values[MU_MAX_MODEL_INPUTS];
    if (!list && !json_is_integer(given))
        return c->n == 2 ? mu_cast(c->x[1], MU_I64) : refuse(c, "another number of operands");
    for (size_t i = 0; i < n; i++) {
        const json_t *item = list ? json_array_get(given, i) : given;
        if (!json_is_integer(item) || n > MU_COUNT(values))
            return refuse(c, "a list of indices that are not whole numbers, or too many");
        values[i] = json_integer_value(item);
    }
    if ((size_t)c->n != n + 1)
        return refuse(c, "another number of operands");
    return mu_tensor_new(MU_I64, list, (int64_t[]){(int64_t)n}, values);
}

// Negative indices count from the end.
static mu_tensor *take(const mu_operation_call *c)
{
    int axis;
    mu_tensor *x = along(c, &axis), *i = x ? indices_of(c) : NULL;
    if (!i)
        return NULL;
    i = mu_where(mu_less(i, mu_constant(MU_I64, 0)), mu_add(i, mu_dim_size(x, axis)), i);
    return mu_gather(x, i, axis, 0);
}

// Parts of equal size, or up to each of the given places.
static mu_value *split(const mu_operation_call *c)
{
    const json_t *parts = json_object_get(c->config, "indices_or_sections");
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]));
    const size_t n = json_is_integer(parts) ? (size_t)json_integer_value(parts) : json_array_size(parts) + 1;
    mu_tensor *out[MU_MAX_MODEL_INPUTS];
    mu_value *values[MU_MAX_MODEL_INPUTS];
    int64_t sizes[MU_MAX_MODEL_INPUTS], before = 0;
    if (axis < 0 || n < 1 || n > MU_MAX_MODEL_INPUTS)
        return axis < 0 ? NULL : (refuse(c, "too many parts"), NULL);
    if (!json_is_integer(parts) && !json_is_array(parts))
        return refuse(c, "parts that are neither a number nor a list of places"), NULL;
    for (size_t i = 0; i + 1 < n && json_is_array(parts); i++) {
        if (!json_is_integer(json_array_get(parts, i)))
            return refuse(c, "places of parts that are not whole numbers"), NULL;
        const int64_t end = json_integer_value(json_array_get(parts, i));
        sizes[i] = end - before;
        before = end;
    }
    sizes[n - 1] = -1;
    if ((json_is_integer(parts) ? mu_split(c->x[0], (int)n, axis, out)
                                : mu_split_sizes(c->x[0], (int)n, sizes, axis, out)) != MU_OK)
        return NULL;
    for (size_t i = 0; i < n; i++)
        values[i] = mu_of(out[i]);
    return mu_list_of((int)n, values);
}

// ---- Values -------------------------------------------------------------------------------------

// x in the type of the option, or as it is without one.
static mu_tensor *typed(const mu_operation_call *c, mu_tensor *x)
{
    const json_t *type = json_object_get(c->config, "dtype");
    const mu_dtype dtype = json_is_string(type) ? mu__dtype_from_name(json_string_value(type)) : MU_DTYPE_DEFAULT;
    if (!type || json_is_null(type))
        return x;
    return mu__dtype_ok(dtype) ? mu_cast(x, dtype) : refuse(c, "a type that Muster's tensors cannot have");
}

static mu_tensor *cast(const mu_operation_call *c) { return typed(c, c->x[0]); }
static mu_tensor *zeros_like(const mu_operation_call *c) { return typed(c, mu_zeros_like(c->x[0])); }
static mu_tensor *ones_like(const mu_operation_call *c) { return typed(c, mu_ones_like(c->x[0])); }

// x on one side of the bound in an option, if that has one.
static mu_tensor *limit(const mu_operation_call *c, const char *option, mu_tensor *x,
                        mu_tensor *(*nearer)(mu_tensor *a, mu_tensor *b))
{
    const json_t *json = json_object_get(c->config, option);
    if (!x || is_none(json))
        return x;
    if (!json_is_number(json))
        return refuse(c, "bounds that are not numbers");
    return nearer(x, mu_constant(mu_tensor_dtype(x), json_number_value(json)));
}

static mu_tensor *clip(const mu_operation_call *c)
{
    return limit(c, "x_max", limit(c, "x_min", counted(c->x[0]), mu_maximum), mu_minimum);
}

static mu_tensor *softmax(const mu_operation_call *c)
{
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]));
    return axis < 0 ? NULL : mu__softmax(c->x[0], axis);
}

static mu_tensor *log_softmax(const mu_operation_call *c)
{
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]));
    return axis < 0 ? NULL : mu_nn_log_softmax(c->x[0], axis);
}

static mu_tensor *gelu(const mu_operation_call *c) { return mu_nn_gelu(c->x[0], flag(c, "approximate")); }

static mu_tensor *leaky_relu(const mu_operation_call *c)
{
    const json_t *slope = json_object_get(c->config, "negative_slope");
    return json_is_number(slope) ? mu_nn_leaky_relu(c->x[0], json_number_value(slope))
                                 : refuse(c, "a slope that is not a number");
}

static mu_tensor *cumsum(const mu_operation_call *c)
{
    int axis;
    mu_tensor *x = along(c, &axis);
    return x ? mu_cumsum(counted(x), axis, false, false) : NULL;
}

static mu_tensor *einsum(const mu_operation_call *c)
{
    const char *equation = json_string_value(json_object_get(c->config, "subscripts"));
    mu_tensor *x[MU_MAX_MODEL_INPUTS];
    if (!equation)
        return refuse(c, "no subscripts");
    return meet(c, 0, x) == MU_OK ? mu_einsum(equation, c->n, x) : NULL;
}

// A choice of where: a number in Python has the type of the other choice, not of the condition.
static mu_tensor *choice(const mu_operation_call *c, int i)
{
    const json_t *json = json_array_get(c->args, (size_t)i), *other = json_array_get(c->args, (size_t)(3 - i));
    const mu_dtype beside = mu_tensor_dtype(c->x[3 - i]);
    const bool fits = mu__dtype_is_float(beside) || (json_is_integer(json) && beside != MU_BOOL);
    return json_is_number(json) && !json_is_number(other) && fits ? mu_constant(beside, json_number_value(json))
                                                                  : c->x[i];
}

static mu_tensor *where(const mu_operation_call *c)
{
    mu_operation_call of_choices = *c;
    mu_tensor *x[MU_MAX_MODEL_INPUTS];
    for (int i = 1; i <= 2; i++)
        if (!(of_choices.x[i] = choice(c, i)))
            return NULL;
    return meet(&of_choices, 1, x) == MU_OK ? mu_where(truth(c->x[0]), x[1], x[2]) : NULL;
}

static mu_tensor *index_of(const mu_operation_call *c, mu_tensor *(*find)(mu_tensor *x, int axis))
{
    int axis;
    mu_tensor *x = along(c, &axis), *index = x ? mu_cast(find(x, axis), MU_I32) : NULL;
    for (int rank = mu_tensor_rank(c->x[0]); index && flag(c, "keepdims") && mu_tensor_rank(index) < rank;)
        index = mu_expand_dims(index, axis);
    return index;
}

static mu_tensor *argmax(const mu_operation_call *c) { return index_of(c, mu_argmax); }
static mu_tensor *argmin(const mu_operation_call *c) { return index_of(c, mu_argmin); }

static mu_tensor *one_hot(const mu_operation_call *c)
{
    const int rank = mu_tensor_rank(c->x[0]) + 1;
    const json_t *classes = json_object_get(c->config, "num_classes");
    if (!json_is_integer(classes))
        return refuse(c, "a number of classes that is not a whole number");
    if (one_axis(c, "axis", rank) != rank - 1)
        return mu__pending() ? NULL : refuse(c, "another axis than the last");
    return typed(c, mu_one_hot(mu_cast(c->x[0], MU_I64), json_integer_value(classes), mu__floatx()));
}

static mu_tensor *pad(const mu_operation_call *c)
{
    const json_t *widths = json_object_get(c->config, "pad_width"), *mode = json_object_get(c->config, "mode");
    int64_t sides[MU_MAX_RANK], before[MU_MAX_RANK], after[MU_MAX_RANK];
    const int rank = mu_tensor_rank(c->x[0]);
    if ((int)json_array_size(widths) != rank)
        return refuse(c, "another number of widths than its input has axes");
    for (int i = 0; i < rank; i++) {
        if (sizes_of(c, json_array_get(widths, (size_t)i), sides) != 2)
            return mu__pending() ? NULL : refuse(c, "a width that is not a pair");
        before[i] = sides[0];
        after[i] = sides[1];
    }
    return mu_pad(c->x[0], before, after, json_string_value(mode), 0);
}

// x with length 1 along an axis, where its length is at least Keras's epsilon.
static mu_tensor *normalize(const mu_operation_call *c)
{
    const int axis = one_axis(c, "axis", mu_tensor_rank(c->x[0]));
    mu_tensor *x = c->x[0], *squares = axis < 0 ? NULL : mu_reduce_sum(mu_square(x), axis, .keep_dims = true);
    return squares ? mu_multiply(x, mu_minimum(mu_rsqrt(squares), mu_constant(mu_tensor_dtype(x), 1e7))) : NULL;
}

// ---- The table ----------------------------------------------------------------------------------

#define ONE(class, function)            \
    {                                   \
        .keras = class, .one = function \
    }
#define REAL(class, function)                         \
    {                                                 \
        .keras = class, .one = function, .real = true \
    }
#define TWO(class, function)            \
    {                                   \
        .keras = class, .two = function \
    }
#define REDUCE(class, function, floats)                                                \
    {                                                                                  \
        .keras = class, .reduce = function, .real = floats, .options = "axis keepdims" \
    }
#define ACTIVATE(class, name)                            \
    {                                                    \
        .keras = class, .activation = name, .real = true \
    }
#define ACTIVATE_WITH(class, name, only, value)                                          \
    {                                                                                    \
        .keras = class, .activation = name, .real = true, .option = only, .usual = value \
    }
#define OTHER(class, function, names)                       \
    {                                                       \
        .keras = class, .other = function, .options = names \
    }

static const mu_operation_kind kinds[] = {
    TWO("Add", mu_add),
    TWO("Subtract", mu_subtract),
    TWO("Multiply", mu_multiply),
    TWO("Power", mu_pow),
    TWO("FloorDivide", mu_floor_divide),
    TWO("Mod", mu_mod),
    TWO("Maximum", mu_maximum),
    TWO("Minimum", mu_minimum),
    TWO("Matmul", mu_matmul),
    TWO("Equal", mu_equal),
    TWO("NotEqual", mu_not_equal),
    TWO("Less", mu_less),
    TWO("LessEqual", mu_less_equal),
    TWO("Greater", mu_greater),
    TWO("GreaterEqual", mu_greater_equal),
    TWO("LogicalAnd", logical_and),
    TWO("LogicalOr", logical_or),
    TWO("LogicalXor", logical_xor),
    {.keras = "Arctan2", .two = mu_atan2, .real = true},
    {.keras = "TrueDivide", .two = mu_divide, .real = true},
    {.keras = "Divide", .two = mu_divide, .real = true},
    {.keras = "DivideNoNan", .two = mu_divide_no_nan, .real = true},
    ONE("Absolute", absolute),
    ONE("Negative", mu_neg),
    ONE("Sign", mu_sign),
    ONE("Square", square),
    ONE("LogicalNot", logical_not),
    ONE("Copy", mu_identity),
    ONE("StopGradient", mu_stop_gradient),
    REAL("Floor", mu_floor),
    REAL("Ceil", mu_ceil),
    REAL("Isnan", mu_is_nan),
    REAL("Isinf", mu_is_inf),
    REAL("Isfinite", mu_is_finite),
    REAL("Exp", mu_exp),
    REAL("Expm1", mu_expm1),
    REAL("Log", mu_log),
    REAL("Log1p", mu_log1p),
    REAL("Sqrt", mu_sqrt),
    REAL("Rsqrt", mu_rsqrt),
    REAL("Reciprocal", mu_reciprocal),
    REAL("Erf", mu_erf),
    REAL("Sin", mu_sin),
    REAL("Cos", mu_cos),
    REAL("Tan", mu_tan),
    REAL("Tanh", mu_tanh),
    REAL("Sinh", mu_sinh),
    REAL("Cosh", mu_cosh),
    REAL("Arcsin", mu_asin),
    REAL("Arccos", mu_acos),
    REAL("Arctan", mu_atan),
    ACTIVATE("Sigmoid", "sigmoid"),
    REDUCE("Sum", sum, false),
    REDUCE("Mean", mu_reduce_mean_with, true),
    REDUCE("Max", max, false),
    REDUCE("Min", min, false),
    REDUCE("Amax", max, false),
    REDUCE("Amin", min, false),
    REDUCE("Prod", prod, false),
    REDUCE("Var", mu_reduce_variance_with, true),
    REDUCE("Std", mu_reduce_std_with, true),
    REDUCE("Logsumexp", mu_reduce_logsumexp_with, true),
    REDUCE("Any", any, false),
    REDUCE("All", all, false),
    ONE("Relu", mu_nn_relu),
    ONE("Relu6", mu_nn_relu6),
    ACTIVATE("Silu", "silu"),
    ACTIVATE("Softplus", "softplus"),
    ACTIVATE("Softsign", "softsign"),
    ACTIVATE("Selu", "selu"),
    ACTIVATE("LogSigmoid", "log_sigmoid"),
    ACTIVATE("HardSigmoid", "hard_sigmoid"),
    ACTIVATE("HardSilu", "hard_silu"),
    ACTIVATE("HardTanh", "hard_tanh"),
    ACTIVATE("TanhShrink", "tanh_shrink"),
    ACTIVATE_WITH("Elu", "elu", "alpha", 1),
    ACTIVATE_WITH("Celu", "celu", "alpha", 1),
    ACTIVATE_WITH("Glu", "glu", "axis", -1),
    {.keras = "Gelu", .other = gelu, .options = "approximate", .real = true},
    {.keras = "LeakyRelu", .other = leaky_relu, .options = "negative_slope", .real = true},
    {.keras = "Softmax", .other = softmax, .options = "axis", .real = true},
    {.keras = "LogSoftmax", .other = log_softmax, .options = "axis", .real = true},
    OTHER("Reshape", reshape, "newshape"),
    OTHER("Transpose", transpose, "axes"),
    OTHER("Swapaxes", swap_axes, "axis1 axis2"),
    OTHER("ExpandDims", expand_dims, "axis"),
    OTHER("Squeeze", squeeze, "axis"),
    OTHER("Concatenate", concatenate, "axis"),
    OTHER("Stack", stack, "axis"),
    OTHER("Flip", flip, "axis"),
    OTHER("Repeat", repeat, "repeats axis"),
    OTHER("Tile", tile, "repeats"),
    OTHER("Take", take, "axis"),
    OTHER("Cast", cast, "dtype"),
    OTHER("ZerosLike", zeros_like, "dtype"),
    OTHER("OnesLike", ones_like, "dtype"),
    OTHER("Clip", clip, "x_min x_max"),
    OTHER("Cumsum", cumsum, "axis"),
    OTHER("Einsum", einsum, "subscripts"),
    OTHER("Where", where, NULL),
    OTHER("Argmax", argmax, "axis keepdims"),
    OTHER("Argmin", argmin, "axis keepdims"),
    OTHER("OneHot", one_hot, "num_classes axis dtype"),
    OTHER("Pad", pad, "pad_width mode"),
    {.keras = "Normalize", .other = normalize, .options = "axis", .option = "order", .usual = 2, .real = true},
    {.keras = "Round", .one = mu_round, .option = "decimals", .usual = 0},
    {.keras = "GetItem", .other = get_item, .first_alone = true},
    {.keras = "Split", .several = split, .options = "indices_or_sections axis"},
};

const mu_operation_kind *mu__operation_kind(const char *keras_class)
{
    for (size_t i = 0; i < MU_COUNT(kinds); i++)
        if (strcmp(kinds[i].keras, keras_class) == 0)
            return &kinds[i];
    return NULL;
}

static mu_tensor *reduce(const mu_operation_call *c)
{
    int axes[MU_MAX_RANK];
    const int n = axes_of(c, "axis", mu_tensor_rank(c->x[0]), axes);
    if (n < 0)
        return NULL;
    return c->kind->reduce(&(mu_reduction_args){
        .size = sizeof(mu_reduction_args), .x = c->x[0], .axes = axes, .n_axes = n, .keep_dims = flag(c, "keepdims")});
}

static mu_tensor *apply_two(const mu_operation_call *c)
{
    mu_tensor *x[MU_MAX_MODEL_INPUTS];
    return meet(c, 0, x) == MU_OK ? c->kind->two(x[0], x[1]) : NULL;
}

// Of where, a number takes the type of the other choice (`choice`), which may not be beside it.
bool mu__takes_numbers_alone(const mu_operation_kind *kind)
{
    static mu_tensor *(*const operations[])(mu_tensor * a, mu_tensor * b) = {
        mu_equal, mu_not_equal, mu_less, mu_less_equal, mu_greater, mu_greater_equal, mu_mod, mu_atan2,
    };
    for (size_t i = 0; i < MU_COUNT(operations); i++)
        if (kind->two == operations[i])
            return true;
    return kind->other == where;
}

// How many operands an operation has; 0: any number, or what it finds itself.
static int operands_of(const mu_operation_kind *kind)
{
    if (kind->other == concatenate || kind->other == stack || kind->other == einsum || kind->other == take)
        return 0;
    return kind->two ? 2 : kind->other == where ? 3 : 1;
}

static mu_status meet_in_floats(mu_operation_call *c)
{
    const mu_dtype dtype = meeting_type(c, 0);
    for (int i = 0; i < c->n; i++)
        c->x[i] = mu_cast(c->x[i], mu__dtype_is_float(dtype) ? dtype : mu__floatx());
    return mu_error_code();
}

mu_value *mu__operation_apply(mu_operation_call *c)
{
    const mu_operation_kind *kind = c->kind;
    const int wanted = operands_of(kind);
    if (c->n == 0 || (wanted > 0 && c->n != wanted))
        return refuse(c, "another number of operands"), NULL;
    if (mu__pending() || (kind->real && meet_in_floats(c) != MU_OK))
        return NULL;
    if (kind->several)
        return kind->several(c);
    mu_tensor *y = kind->one          ? kind->one(c->x[0])
                   : kind->two        ? apply_two(c)
                   : kind->reduce     ? reduce(c)
                   : kind->activation ? mu__activate(kind->activation, c->x[0])
                                      : kind->other(c);
    return y ? mu_of(y) : NULL;
}
