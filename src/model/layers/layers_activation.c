// Activations as layers: any by its name, and those with options or weights.

#include "model/core/layer.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

// ---- By name ------------------------------------------------------------------------------------

static const mu_field activation_fields[] = {
    MU_FIELD(mu_activation_args, activation, ACTIVATION),
    MU_LAYER_FIELDS(mu_activation_args),
    {0},
};

static mu_value *activation_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return mu_of(mu__activate(((const mu_activation_args *)layer->args)->activation, mu_at(inputs, 0)));
}

MU_LAYER_CLASS(activation, "activation", "Activation", mu_activation_args, activation_fields, NULL, .passes_mask = true,
               .call = activation_call)

// ---- Rectifiers ---------------------------------------------------------------------------------

static const mu_field leaky_relu_fields[] = {
    MU_FIELD(mu_leaky_relu_args, negative_slope, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = .3),
    MU_LAYER_FIELDS(mu_leaky_relu_args),
    {0},
};

static mu_value *leaky_relu_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return mu_of(mu_nn_leaky_relu(mu_at(inputs, 0), ((const mu_leaky_relu_args *)layer->args)->negative_slope));
}

const mu_layer_ops mu__leaky_relu_ops = {
    .class = {"leaky_re_lu", "LeakyReLU", "mu_leaky_relu", MU_OPTIONS(mu_leaky_relu_args), leaky_relu_fields, NULL},
    .passes_mask = true,
    .call = leaky_relu_call,
};

mu_layer *mu_leaky_relu_with(const mu_leaky_relu_args *args) { return mu__layer_make(&mu__leaky_relu_ops, args); }

static const mu_field relu_fields[] = {
    MU_FIELD(mu_relu_layer_args, max_value, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = NAN),
    MU_FIELD(mu_relu_layer_args, negative_slope, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_relu_layer_args, threshold, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_LAYER_FIELDS(mu_relu_layer_args),
    {0},
};

// x from the threshold on, up to max_value; below the threshold negative_slope · (x - threshold).
static mu_value *relu_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_relu_layer_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!x)
        return NULL;
    mu_tensor *threshold = mu_constant(x->dtype, args->threshold), *y = mu_nn_relu(x);
    if (args->threshold != 0)
        y = mu_multiply(x, mu_cast(mu_greater(x, threshold), x->dtype));
    if (!isnan(args->max_value))
        y = mu_clip_by_value(y, mu_constant(x->dtype, 0), mu_constant(x->dtype, args->max_value));
    if (args->negative_slope != 0)
        y = mu_subtract(
            y, mu_multiply(mu_constant(x->dtype, args->negative_slope), mu_nn_relu(mu_subtract(threshold, x))));
    return mu_of(y);
}

const mu_layer_ops mu__relu_ops = {
    .class = {"re_lu", "ReLU", "mu_relu_layer", MU_OPTIONS(mu_relu_layer_args), relu_fields, NULL},
    .passes_mask = true,
    .call = relu_call,
};

mu_layer *mu_relu_layer_with(const mu_relu_layer_args *args) { return mu__layer_make(&mu__relu_ops, args); }

static const mu_field prelu_fields[] = {
    MU_FIELD_WEIGHT(mu_prelu_args, alpha, "zeros"),
    MU_FIELD(mu_prelu_args, shared_axes, DIMS),
    MU_LAYER_FIELDS(mu_prelu_args),
    {0},
};

static mu_status prelu_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    char text[MU_SHAPE_TEXT];
    const mu_prelu_args *args = layer->args;
    MU_TRY(mu__need_input_rank(layer, input, 2, MU_MAX_RANK));
    mu_shape alpha = {.rank = input->rank - 1};
    for (int i = 0; i < alpha.rank; i++)
        alpha.dims[i] = input->dims[i + 1];
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && args->shared_axes[i] != 0; i++) {
        if (args->shared_axes[i] < 1 || args->shared_axes[i] >= input->rank)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': shared_axes has %lld; the axes of its samples are 1 to %d",
                             mu_layer_name(layer), (long long)args->shared_axes[i], input->rank - 1);
        alpha.dims[args->shared_axes[i] - 1] = 1;
    }
    for (int i = 0; i < alpha.rank; i++)
        if (alpha.dims[i] == MU_UNKNOWN)
            return mu__error(
                MU_INVALID_ARGUMENT,
                "layer '%s' has a slope for each element of %s; axis %d must be known or among shared_axes",
                mu_layer_name(layer), mu__shape_text(input, text), i + 1);
    return mu__weight(layer, "alpha", alpha, MU_OPTIONS_OF(args, alpha));
}

static mu_value *prelu_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    mu_tensor *x = mu_at(inputs, 0);
    mu_tensor *below = mu_multiply(mu__weight_read(layer, "alpha"), mu_nn_relu(mu_neg(x)));
    return mu_of(mu_subtract(mu_nn_relu(x), below));
}

const mu_layer_ops mu__prelu_ops = {
    .class = {"p_re_lu", "PReLU", "mu_prelu", MU_OPTIONS(mu_prelu_args), prelu_fields, NULL},
    .passes_mask = true,
    .build = prelu_build,
    .call = prelu_call,
};

mu_layer *mu_prelu_with(const mu_prelu_args *args) { return mu__layer_make(&mu__prelu_ops, args); }

static const mu_field elu_fields[] = {
    MU_FIELD(mu_elu_args, alpha, DOUBLE, .number = 1),
    MU_LAYER_FIELDS(mu_elu_args),
    {0},
};

// Where x is positive, elu is x; elsewhere it is alpha times what elu with alpha 1 is.
static mu_value *elu_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    mu_tensor *x = mu_at(inputs, 0), *y = mu_nn_elu(x), *zero = x ? mu_constant(x->dtype, 0) : NULL;
    mu_tensor *alpha = zero ? mu_constant(x->dtype, ((const mu_elu_args *)layer->args)->alpha) : NULL;
    return mu_of(mu_where(mu_greater(x, zero), y, mu_multiply(y, alpha)));
}

const mu_layer_ops mu__elu_ops = {
    .class = {"elu", "ELU", "mu_elu", MU_OPTIONS(mu_elu_args), elu_fields, NULL},
    .passes_mask = true,
    .call = elu_call,
};

mu_layer *mu_elu_with(const mu_elu_args *args) { return mu__layer_make(&mu__elu_ops, args); }

// ---- Softmax ------------------------------------------------------------------------------------

static const mu_field softmax_fields[] = {
    MU_FIELD(mu_softmax_args, axis, INT, .number = -1),
    MU_LAYER_FIELDS(mu_softmax_args),
    {0},
};

// The mask broadcasts to the input, which it must not enlarge.
static mu_status check_mask(const mu_layer *layer, const mu_shape *x, const mu_shape *mask)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    bool fits = mask->rank <= x->rank;
    for (int i = 1; fits && i <= mask->rank; i++) {
        const int64_t dim = mask->dims[mask->rank - i], of_x = x->dims[x->rank - i];
        fits = dim == 1 || dim == of_x || dim == MU_UNKNOWN || of_x == MU_UNKNOWN;
    }
    if (fits)
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT,
        "layer '%s': its mask has shape %s and its input %s; each axis of the mask, counted from the last, must be 1 "
        "or that of the input, as it leaves out elements, not steps. Give such a mask (.mask), or none: .masks = "
        "mu_list_of(0, NULL), or .activation = \"softmax\" of the layer in front",
        mu_layer_name(layer), mu__shape_text(mask, seen), mu__shape_text(x, wanted));
}

// Numbers mask where they are at most 0.5, as in Keras, which has this rule for this layer only.
static mu_tensor *bool_mask(mu_tensor *mask)
{
    if (mask->dtype == MU_BOOL)
        return mask;
    return mu_greater(mask, mu_constant(mask->dtype, mu__dtype_is_float(mask->dtype) ? .5 : 0));
}

// A masked element takes no part and is 0, as in Keras.
static mu_value *softmax_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const int axis = ((const mu_softmax_args *)layer->args)->axis;
    mu_tensor *x = mu_at(inputs, 0), *mask = mu__mask_at(context->mask, 0);
    if (!x || !mask)
        return x ? mu_of(mu__softmax(x, axis)) : NULL;
    if (check_mask(layer, &x->shape, &mask->shape) != MU_OK || !(mask = bool_mask(mask)))
        return NULL;
    mu_tensor *lowest = mu_constant(x->dtype, x->dtype == MU_F16 ? -3e4 : -1e9);
    mu_tensor *y = mu_nn_softmax(mu_where(mask, x, lowest), axis);
    return y ? mu_of(mu_where(mask, y, mu_zeros_like(y))) : NULL;
}

const mu_layer_ops mu__softmax_ops = {
    .class = {"softmax", "Softmax", "mu_softmax", MU_OPTIONS(mu_softmax_args), softmax_fields, NULL},
    .passes_mask = true,
    .call = softmax_call,
};

mu_layer *mu_softmax_with(const mu_softmax_args *args) { return mu__layer_make(&mu__softmax_ops, args); }
