// Layers that change the colours of images: to grey, to the negative, by solarization, and the contrast of channels.
#include "model/core/layer.h"
#include "model/images/augment.h"

#include <muster/ops.h>
#include <muster/preprocessing.h>

mu_tensor *mu__image_chosen(const mu_layer *layer, mu_tensor *x, mu_tensor *share)
{
    mu_tensor *u = mu__image_numbers(layer, x, 0, 1);
    return u && share ? mu_less(u, share) : NULL;
}

mu_tensor *mu__image_chosen_from(const mu_layer *layer, mu_tensor *x, const double share[2])
{
    return mu__image_chosen(layer, x, mu__image_numbers(layer, x, share[0], share[1]));
}

// Red, green and blue as one channel of grey (ITU-R BT.601); grey stays.
static mu_tensor *grey(mu_tensor *x)
{
    static const double parts[] = {.2989, .587, .114};
    mu_tensor *weights = mu_cast(mu_tensor_new(MU_F64, 1, (int64_t[]){3}, parts), x->dtype);
    return mu_tensor_dim(x, 3) == 1 ? x : mu_reduce_sum(mu_multiply(x, weights), 3, .keep_dims = true);
}

mu_status mu__need_colors(const mu_layer *layer, const mu_shape *input, bool grey)
{
    const int64_t channels = input->dims[3];
    return channels == 3 || (grey && channels == 1)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs images of 3 channels%s; it was given %lld",
                           mu_layer_name(layer), grey ? ", or of 1" : "", (long long)channels);
}

mu_tensor *mu__image_stretched(mu_tensor *x, const double from[2], const double to[2])
{
    if (from[0] == to[0] && from[1] == to[1])
        return x;
    const double scale = (to[1] - to[0]) / (from[1] - from[0]);
    mu_tensor *shifted = mu_multiply(mu_subtract(x, mu__number_like(x, from[0])), mu__number_like(x, scale));
    return mu_add(shifted, mu__number_like(x, to[0]));
}

const double mu__image_bytes[2] = {0, 255};

mu_tensor *mu__image_limited(mu_tensor *x, const double range[2])
{
    return x ? mu_clip_by_value(x, mu__number_like(x, range[0]), mu__number_like(x, range[1])) : NULL;
}

// ---- Grey ---------------------------------------------------------------------------------------

static const mu_field grayscale_fields[] = {
    MU_FIELD(mu_random_grayscale_args, factor, DOUBLE, .limit = MU_FRACTION, .number = .5),
    MU_FIELD(mu_random_grayscale_args, seed, SEED),
    MU_LAYER_FIELDS(mu_random_grayscale_args),
    {0},
};

static mu_status grayscale_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_random_grayscale_args *args = layer->args;
    MU_TRY(mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL));
    return mu__need_colors(layer, input, true);
}

static mu_value *grayscale_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_grayscale_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    return mu_of(mu_where(mu__image_chosen(layer, x, mu__number_like(x, args->factor)), grey(x), x));
}

MU_LAYER_CLASS(random_grayscale, "random_grayscale", "RandomGrayscale", mu_random_grayscale_args, grayscale_fields,
               NULL, .axes = 2, .build = grayscale_build, .call = grayscale_call)

static const mu_field degeneration_fields[] = MU_COLOR_FIELDS(.number = 0);
static const mu_field invert_fields[] = MU_COLOR_FIELDS(.high = 1);

static mu_status degeneration_build(mu_layer *layer, int n, const mu_shape *input)
{
    MU_TRY(mu__color_build(layer, n, input));
    return mu__need_colors(layer, input, true);
}

static mu_status degeneration_complete(void *args)
{
    return mu__in_order(((const mu_random_color_args *)args)->factor, -1, 1, "mu_random_color_degeneration", "factor");
}

static mu_value *degeneration_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *factor = mu__image_numbers(layer, x, args->factor[0], args->factor[1]);
    mu_tensor *y = mu_add(x, mu_multiply(factor, mu_subtract(grey(x), x)));
    return mu_of(mu__image_limited(y, args->value_range));
}

MU_LAYER_CLASS(random_color_degeneration, "random_color_degeneration", "RandomColorDegeneration", mu_random_color_args,
               degeneration_fields, degeneration_complete, .axes = 2, .build = degeneration_build,
               .call = degeneration_call)

// ---- Negatives ----------------------------------------------------------------------------------

static mu_status invert_complete(void *args)
{
    return mu__in_order(((const mu_random_color_args *)args)->factor, 0, 1, "mu_random_invert", "factor");
}

static mu_value *invert_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *share = mu__image_numbers(layer, x, args->factor[0], args->factor[1]);
    mu_tensor *negative = mu_subtract(mu__number_like(x, args->value_range[1]), x);
    return mu_of(mu_where(mu__image_chosen(layer, x, share), negative, x));
}

MU_LAYER_CLASS(random_invert, "random_invert", "RandomInvert", mu_random_color_args, invert_fields, invert_complete,
               .axes = 2, .build = mu__color_build, .call = invert_call)

static const mu_field solarization_fields[] = {
    MU_FIELD(mu_solarization_args, addition_factor, RANGE),
    MU_FIELD(mu_solarization_args, threshold_factor, RANGE),
    MU_FIELD(mu_solarization_args, value_range, RANGE, .number = 0, .high = 255),
    MU_FIELD(mu_solarization_args, seed, SEED),
    MU_LAYER_FIELDS(mu_solarization_args),
    {0},
};

static mu_status solarization_complete(void *arguments)
{
    const mu_solarization_args *args = arguments;
    MU_TRY(mu__in_order(args->addition_factor, 0, 1, "mu_solarization", "addition_factor"));
    return mu__in_order(args->threshold_factor, 0, 1, "mu_solarization", "threshold_factor");
}

static mu_status solarization_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_solarization_args *args = layer->args;
    return mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_value *solarization_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_solarization_args *args = layer->args;
    const double *addition = args->addition_factor, *threshold = args->threshold_factor;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *added = mu__image_numbers(layer, x, 255 * addition[0], 255 * addition[1]);
    mu_tensor *least = mu__image_numbers(layer, x, 255 * threshold[0], 255 * threshold[1]);
    mu_tensor *y = mu_add(mu__image_stretched(x, args->value_range, mu__image_bytes), added);
    y = mu__image_limited(y, mu__image_bytes);
    y = mu_where(mu_less(y, least), y, mu_subtract(mu__number_like(x, 255), y));
    return mu_of(y ? mu__image_stretched(y, mu__image_bytes, args->value_range) : NULL);
}

MU_LAYER_CLASS(solarization, "solarization", "Solarization", mu_solarization_args, solarization_fields,
               solarization_complete, .axes = 2, .build = solarization_build, .call = solarization_call)

// ---- Contrast -----------------------------------------------------------------------------------

static const mu_field auto_contrast_fields[] = {
    MU_FIELD(mu_auto_contrast_args, value_range, RANGE, .number = 0, .high = 255),
    MU_LAYER_FIELDS(mu_auto_contrast_args),
    {0},
};

// A channel of one value stays.
static mu_value *auto_contrast_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_auto_contrast_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!x)
        return NULL;
    mu_tensor *images = mu__image_stretched(x, args->value_range, mu__image_bytes);
    mu_tensor *low = mu_reduce_min(images, .axes = (int[]){1, 2}, .n_axes = 2, .keep_dims = true);
    mu_tensor *extent = mu_subtract(mu_reduce_max(images, .axes = (int[]){1, 2}, .n_axes = 2, .keep_dims = true), low);
    mu_tensor *varies = mu_not_equal(extent, mu__number_like(x, 0));
    mu_tensor *scale = mu_divide(mu__number_like(x, 255), mu_where(varies, extent, mu__number_like(x, 1)));
    mu_tensor *y = mu_multiply(mu_subtract(images, low), scale);
    y = mu__image_limited(y, mu__image_bytes);
    return mu_of(y ? mu_where(varies, mu__image_stretched(y, mu__image_bytes, args->value_range), x) : NULL);
}

MU_LAYER_CLASS(auto_contrast, "auto_contrast", "AutoContrast", mu_auto_contrast_args, auto_contrast_fields, NULL,
               .axes = 2, .build = mu__need_spatial, .call = auto_contrast_call)
