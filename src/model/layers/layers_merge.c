// Layers of several inputs: add, subtract, multiply, average, maximum, minimum, concatenate, dot.
//
// An input is a list of tensors whose shapes broadcast (concatenate: agree but for one axis). Tensors of fewer axes
// than others get them behind the batch axis, as in Keras.

#include "model/core/layer.h"

#include <muster/ops.h>

static const mu_field merge_fields[] = {MU_LAYER_FIELDS(mu_merge_args), {0}};

static mu_status merge_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    (void)inputs;
    return n >= 2 ? MU_OK
                  : mu__error(MU_INVALID_ARGUMENT,
                              "layer '%s' combines 2 or more tensors; it was given %d. Give them as .inputs = "
                              "mu_list(a, b, MU_END)",
                              mu_layer_name(layer), n);
}

static int most_axes(mu_value *inputs)
{
    int most = 0;
    for (int i = 0; i < mu_value_count(inputs); i++)
        most = MU_MAX(most, mu_tensor_rank(mu_at(inputs, i)));
    return most;
}

static mu_tensor *with_axes(mu_tensor *x, int rank)
{
    while (x && mu_tensor_rank(x) > 0 && mu_tensor_rank(x) < rank)
        x = mu_expand_dims(x, 1);
    return x;
}

// The tensors of a list combined from left to right.
static mu_tensor *combine(mu_value *inputs, mu_tensor *(*op)(mu_tensor *, mu_tensor *))
{
    const int rank = most_axes(inputs);
    mu_tensor *y = with_axes(mu_at(inputs, 0), rank);
    for (int i = 1; i < mu_value_count(inputs) && y; i++)
        y = op(y, with_axes(mu_at(inputs, i), rank));
    return y;
}

static mu_value *add_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    return mu_of(combine(inputs, mu_add));
}

static mu_value *multiply_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    return mu_of(combine(inputs, mu_multiply));
}

static mu_value *maximum_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    return mu_of(combine(inputs, mu_maximum));
}

static mu_value *minimum_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    return mu_of(combine(inputs, mu_minimum));
}

static mu_value *average_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    mu_tensor *sum = combine(inputs, mu_add);
    return sum ? mu_of(mu_divide(sum, mu_constant(sum->dtype, mu_value_count(inputs)))) : NULL;
}

static mu_status subtract_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    (void)inputs;
    return n == 2 ? MU_OK
                  : mu__error(MU_INVALID_ARGUMENT,
                              "layer '%s' subtracts the second of 2 tensors from the first; it was given %d",
                              mu_layer_name(layer), n);
}

static mu_value *subtract_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    return mu_of(combine(inputs, mu_subtract));
}

// A word's class, and the function that makes such a layer.
#define MERGE(word, keras_class, builder)                                                                   \
    const mu_layer_ops mu__##word##_ops = {                                                                 \
        .class = {#word, keras_class, "mu_" #word "_layer", MU_OPTIONS(mu_merge_args), merge_fields, NULL}, \
        .takes_several = true,                                                                              \
        .passes_mask = true,                                                                                \
        .build = builder,                                                                                   \
        .call = word##_call,                                                                                \
    };                                                                                                      \
    mu_layer *mu_##word##_layer_with(const mu_merge_args *args) { return mu__layer_make(&mu__##word##_ops, args); }

MERGE(add, "Add", merge_build)
MERGE(subtract, "Subtract", subtract_build)
MERGE(multiply, "Multiply", merge_build)
MERGE(average, "Average", merge_build)
MERGE(maximum, "Maximum", merge_build)
MERGE(minimum, "Minimum", merge_build)

// ---- Concatenate --------------------------------------------------------------------------------

static const mu_field concatenate_fields[] = {
    MU_FIELD(mu_concatenate_args, axis, INT, .number = -1),
    MU_LAYER_FIELDS(mu_concatenate_args),
    {0},
};

// The mask of an input of concatenate, with all of its axes.
static mu_tensor *whole_mask(mu_tensor *x, mu_tensor *mask)
{
    if (!mask)
        return mu_cast(mu_ones_like(x), MU_BOOL);
    if (mu_tensor_rank(mask) >= mu_tensor_rank(x))
        return mask;
    return mu_logical_or(mu_expand_dims(mask, -1), mu_cast(mu_zeros_like(x), MU_BOOL));
}

// A step counts if any of its elements does.
static mu_status concatenate_masks(mu_value *inputs, const mu_call_context *context, int axis)
{
    const int n = mu_value_count(inputs);
    mu_tensor **masks = mu__calloc((size_t)n, sizeof *masks);
    bool whole = masks != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = (masks[i] = whole_mask(mu_at(inputs, i), mu__mask_at(context->mask, i))) != NULL;
    if (whole)
        mu_call_set_mask(context, mu_of(mu_reduce_any(mu_concat(n, masks, axis), -1)));
    mu__free(masks);
    return whole ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
}

static mu_value *concatenate_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const int axis = ((const mu_concatenate_args *)layer->args)->axis;
    if (context->mask && concatenate_masks(inputs, context, axis) != MU_OK)
        return NULL;
    const int n = mu_value_count(inputs);
    mu_tensor **tensors = mu__calloc((size_t)n, sizeof *tensors), *y = NULL;
    bool whole = tensors != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = (tensors[i] = mu_at(inputs, i)) != NULL;
    if (whole)
        y = mu_concat(n, tensors, axis);
    mu__free(tensors);
    return mu_of(y);
}

const mu_layer_ops mu__concatenate_ops = {
    .class = {"concatenate", "Concatenate", "mu_concatenate", MU_OPTIONS(mu_concatenate_args), concatenate_fields,
              NULL},
    .takes_several = true,
    .build = merge_build,
    .call = concatenate_call,
};

mu_layer *mu_concatenate_with(const mu_concatenate_args *args) { return mu__layer_make(&mu__concatenate_ops, args); }

// ---- Dot ----------------------------------------------------------------------------------------

static const mu_field dot_fields[] = {
    MU_FIELD_ARRAY(mu_dot_args, axes, axes_per_input, 2, .limit = MU_ANY_NUMBER),
    MU_FIELD(mu_dot_args, normalize, FLAG),
    MU_LAYER_FIELDS(mu_dot_args),
    {0},
};

// The axis of input i, counted from the front.
static int dot_axis(const mu_layer *layer, int i, int rank)
{
    const int axis = ((const mu_dot_args *)layer->args)->axes_per_input[i];
    return axis < 0 ? axis + rank : axis;
}

static mu_status dot_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    char first[MU_SHAPE_TEXT], second[MU_SHAPE_TEXT];
    int64_t sizes[2];
    if (n != 2)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "layer '%s' multiplies 2 tensors; it was given %d. Give them as .inputs = mu_list(a, b, MU_END)",
            mu_layer_name(layer), n);
    for (int i = 0; i < 2; i++) {
        const int axis = dot_axis(layer, i, inputs[i].rank);
        if (axis < 1 || axis >= inputs[i].rank)
            return mu__error(MU_INVALID_ARGUMENT, "layer '%s': axis %d of input %d, %s, is none of its samples' axes",
                             mu_layer_name(layer), ((const mu_dot_args *)layer->args)->axes_per_input[i], i,
                             mu__shape_text(&inputs[i], first));
        sizes[i] = inputs[i].dims[axis];
    }
    if (sizes[0] != sizes[1] && sizes[0] != MU_UNKNOWN && sizes[1] != MU_UNKNOWN)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': the axes to sum along have %lld and %lld elements, in %s and %s",
                         mu_layer_name(layer), (long long)sizes[0], (long long)sizes[1],
                         mu__shape_text(&inputs[0], first), mu__shape_text(&inputs[1], second));
    return MU_OK;
}

// The product as an einsum: "a" is the batch axis, "z" the axis that is summed along.
static mu_value *dot_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_dot_args *args = layer->args;
    mu_tensor *x[2] = {mu_at(inputs, 0), mu_at(inputs, 1)};
    char equation[4 * MU_MAX_RANK + 8] = "", result[2 * MU_MAX_RANK] = "a", letter = 'b';
    size_t length = 0, kept = 1;
    for (int i = 0; i < 2; i++) {
        const int axis = dot_axis(layer, i, mu_tensor_rank(x[i]));
        equation[length++] = 'a';
        for (int k = 1; k < mu_tensor_rank(x[i]); k++) {
            equation[length++] = k == axis ? 'z' : letter;
            if (k != axis)
                result[kept++] = letter++;
        }
        if (i == 0)
            equation[length++] = ',';
        if (args->normalize)
            x[i] = mu__unit_norm(x[i], axis);
    }
    snprintf(equation + length, sizeof equation - length, "->%s", result);
    mu_tensor *y = x[0] && x[1] ? mu_einsum(equation, 2, x) : NULL;
    return mu_of(kept > 1 ? y : mu_expand_dims(y, -1));
}

const mu_layer_ops mu__dot_ops = {
    .class = {"dot", "Dot", "mu_dot", MU_OPTIONS(mu_dot_args), dot_fields, NULL},
    .takes_several = true,
    .build = dot_build,
    .call = dot_call,
};

mu_layer *mu_dot_with(const mu_dot_args *args) { return mu__layer_make(&mu__dot_ops, args); }
