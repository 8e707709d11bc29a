// Layers that draw random numbers while training: dropout of elements, of channels and with noise.
#include "model/core/layer.h"
#include "ops/nn/nn.h"
#include "ops/random/random.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

#define DROPOUT_FIELDS                                                                                     \
    MU_FIELD(mu_dropout_args, rate, DOUBLE, .limit = MU_BELOW_ONE), MU_FIELD(mu_dropout_args, seed, SEED), \
        MU_LAYER_FIELDS(mu_dropout_args)
// Layers that draw for each element, or in a shape that is given; and layers that draw in a shape of their own.
static const mu_field dropout_fields[] = {
    DROPOUT_FIELDS, MU_FIELD(mu_dropout_args, noise_shape, DIMS, .nulls = true, .none = true), {0}};
static const mu_field shaped_fields[] = {DROPOUT_FIELDS, {0}};

static mu_status dropout_complete(void *arguments)
{
    const mu_dropout_args *args = arguments;
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && args->noise_shape[i] != 0; i++)
        if (args->noise_shape[i] != 1 && args->noise_shape[i] != MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_dropout: axis %d of .noise_shape is %lld; give 1 where all elements along the axis "
                             "share one draw, or MU_UNKNOWN for the axis as it is",
                             i, (long long)args->noise_shape[i]);
    return MU_OK;
}

static mu_status shaped_complete(void *arguments)
{
    return ((const mu_dropout_args *)arguments)->noise_shape[0] == 0
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "dropout of channels or with Gaussian noise draws in a shape of its "
                                                "own; leave .noise_shape out, or use mu_dropout");
}

static mu_status dropout_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_dropout_args *args = layer->args;
    int rank = 0;
    while (rank < MU_MAX_SAMPLE_RANK && args->noise_shape[rank] != 0)
        rank++;
    if (rank > 0 && rank != input->rank)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "layer '%s': .noise_shape has %d axes, and the input %d; give one for each, the batch axis too",
            mu_layer_name(layer), rank, input->rank);
    return mu__weight_seed(layer, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

// Ones in the shape of x, but of size 1 along some axes.
static mu_tensor *ones_without(mu_tensor *x, int n_axes, const int *axes)
{
    return mu_ones_like(mu_reduce_max(x, .axes = axes, .n_axes = n_axes, .keep_dims = true));
}

// Ones in the shape of what is drawn.
static mu_tensor *ones_to_draw(const mu_layer *layer, mu_tensor *x)
{
    const mu_dropout_args *args = layer->args;
    int shared[MU_MAX_SAMPLE_RANK], n = 0;
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && args->noise_shape[i] != 0; i++)
        if (args->noise_shape[i] == 1)
            shared[n++] = i;
    return n > 0 ? ones_without(x, n, shared) : mu_ones_like(x);
}

// Which elements are kept: a product would make NaN of an infinite element and 0, the factor of dropped ones.
static mu_tensor *kept_of(mu_tensor *drawn) { return drawn ? mu_greater(drawn, mu_constant(drawn->dtype, 0)) : NULL; }

// x with the draws of dropout over `ones`, which broadcast to it; 0 where an element is dropped, as mu_nn_dropout has.
static mu_tensor *drop(mu_tensor *x, double rate, mu_tensor *ones, mu_tensor *seed)
{
    mu_tensor *drawn = mu_nn_stateless_dropout(ones, rate, seed);
    return drawn ? mu_where(kept_of(drawn), mu_multiply(x, drawn), mu_constant(drawn->dtype, 0)) : NULL;
}

static mu_value *dropout_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_dropout_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || args->rate == 0)
        return inputs;
    mu_tensor *seed = mu__weight_next_seed(layer);
    if (args->noise_shape[0] == 0)
        return mu_of(mu_nn_stateless_dropout(x, args->rate, seed));
    return mu_of(drop(x, args->rate, ones_to_draw(layer, x), seed));
}

const mu_layer_ops mu__dropout_ops = {
    .class = {"dropout", "Dropout", "mu_dropout", MU_OPTIONS(mu_dropout_args), dropout_fields, dropout_complete},
    .passes_mask = true,
    .build = dropout_build,
    .call = dropout_call,
};

mu_layer *mu_dropout_with(const mu_dropout_args *args) { return mu__layer_make(&mu__dropout_ops, args); }

// ---- Channels -----------------------------------------------------------------------------------

static mu_status spatial_build(mu_layer *layer, int n, const mu_shape *input)
{
    MU_TRY(mu__need_spatial(layer, n, input));
    return dropout_build(layer, n, input);
}

// One choice for all positions of a channel.
static mu_value *spatial_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    static const int spatial_axes[] = {1, 2, 3};
    const mu_dropout_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || args->rate == 0)
        return inputs;
    mu_tensor *channels = ones_without(x, layer->ops->axes, spatial_axes);
    return mu_of(drop(x, args->rate, channels, mu__weight_next_seed(layer)));
}

#define SPATIAL_DROPOUT(word, keras_class, n_axes)                                                            \
    MU_LAYER_CLASS(word, #word, keras_class, mu_dropout_args, shaped_fields, shaped_complete, .axes = n_axes, \
                   .passes_mask = true, .build = spatial_build, .call = spatial_call)
SPATIAL_DROPOUT(spatial_dropout1d, "SpatialDropout1D", 1)
SPATIAL_DROPOUT(spatial_dropout2d, "SpatialDropout2D", 2)
SPATIAL_DROPOUT(spatial_dropout3d, "SpatialDropout3D", 3)

// ---- Alpha dropout ------------------------------------------------------------------------------

// Klambauer et al., "Self-normalizing neural networks", 2017: dropped elements become selu's lower limit, and the
// result is scaled and shifted to the mean and variance of x.
static mu_value *alpha_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_dropout_args *args = layer->args;
    const double limit = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946;
    const double scale = 1 / sqrt((1 - args->rate) * (1 + args->rate * limit * limit));
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || args->rate == 0 || !x)
        return inputs;
    mu_tensor *drawn = mu_nn_stateless_dropout(ones_to_draw(layer, x), args->rate, mu__weight_next_seed(layer));
    mu_tensor *y = mu_where(kept_of(drawn), x, mu_constant(x->dtype, limit));
    return mu_of(
        mu_add(mu_multiply(y, mu_constant(x->dtype, scale)), mu_constant(x->dtype, -scale * limit * args->rate)));
}

MU_LAYER_CLASS(alpha_dropout, "alpha_dropout", "AlphaDropout", mu_dropout_args, dropout_fields, dropout_complete,
               .passes_mask = true, .build = dropout_build, .call = alpha_call)

// ---- Noise --------------------------------------------------------------------------------------

// Normal numbers of a mean and a deviation, in the shape of x.
static mu_tensor *noise_like(const mu_layer *layer, mu_tensor *x, double mean, double deviation)
{
    mu_tensor *normal = mu__random_normal_like(mu__weight_next_seed(layer), x);
    return normal ? mu_add(mu_multiply(normal, mu_constant(x->dtype, deviation)), mu_constant(x->dtype, mean)) : NULL;
}

static mu_value *gaussian_dropout_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_dropout_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || args->rate == 0)
        return inputs;
    return mu_of(mu_multiply(x, noise_like(layer, x, 1, sqrt(args->rate / (1 - args->rate)))));
}

MU_LAYER_CLASS(gaussian_dropout, "gaussian_dropout", "GaussianDropout", mu_dropout_args, shaped_fields, shaped_complete,
               .passes_mask = true, .build = dropout_build, .call = gaussian_dropout_call)

static const mu_field noise_fields[] = {
    MU_FIELD(mu_gaussian_noise_args, stddev, DOUBLE, .limit = MU_FRACTION),
    MU_FIELD(mu_gaussian_noise_args, seed, SEED),
    MU_LAYER_FIELDS(mu_gaussian_noise_args),
    {0},
};

static mu_status noise_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    (void)input;
    const mu_gaussian_noise_args *args = layer->args;
    return mu__weight_seed(layer, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_value *noise_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_gaussian_noise_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || args->stddev == 0)
        return inputs;
    return mu_of(mu_add(x, noise_like(layer, x, 0, args->stddev)));
}

MU_LAYER_CLASS(gaussian_noise, "gaussian_noise", "GaussianNoise", mu_gaussian_noise_args, noise_fields, NULL,
               .passes_mask = true, .build = noise_build, .call = noise_call)
