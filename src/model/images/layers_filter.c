// Layers that sharpen and blur images, take bits from their values, and spread them evenly over their range.
#include "model/core/layer.h"
#include "model/images/augment.h"

#include <math.h>

#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

// Convolves each channel with the same kernel [height, width].
static mu_tensor *filtered(mu_tensor *x, mu_tensor *kernel)
{
    if (!x || !kernel)
        return NULL;
    const int64_t h = mu_tensor_dim(kernel, 0), w = mu_tensor_dim(kernel, 1), channels = mu_tensor_dim(x, 3);
    mu_tensor *one = mu_reshape(mu_cast(kernel, x->dtype), 4, (int64_t[]){h, w, 1, 1});
    mu_tensor *each = mu_broadcast_to(one, 4, (int64_t[]){h, w, channels, 1});
    return mu_nn_depthwise_conv2d(x, each, .padding = "same");
}

// ---- Sharpness ----------------------------------------------------------------------------------

static const mu_field sharpness_fields[] = MU_COLOR_FIELDS(.number = 0);

static mu_status sharpness_complete(void *args)
{
    return mu__in_order(((const mu_random_color_args *)args)->factor, 0, 1, "mu_random_sharpness", "factor");
}

static mu_value *sharpness_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    static const double a = 1. / 13, b = 5. / 13;
    const mu_random_color_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    const double kernel[] = {a, a, a, a, b, a, a, a, a};
    mu_tensor *smooth = filtered(x, mu_tensor_new(MU_F64, 2, (int64_t[]){3, 3}, kernel));
    mu_tensor *part = mu__image_numbers(layer, x, 1 - 2 * args->factor[0], 1 - 2 * args->factor[1]);
    return mu_of(mu__image_limited(mu_add(x, mu_multiply(part, mu_subtract(smooth, x))), args->value_range));
}

MU_LAYER_CLASS(random_sharpness, "random_sharpness", "RandomSharpness", mu_random_color_args, sharpness_fields,
               sharpness_complete, .axes = 2, .build = mu__color_build, .call = sharpness_call)

// ---- Blur ---------------------------------------------------------------------------------------

static const mu_field blur_fields[] = {
    MU_FIELD(mu_random_gaussian_blur_args, factor, RANGE, .number = 0, .high = 1),
    MU_FIELD_PER_AXIS(mu_random_gaussian_blur_args, kernel_size, 2, .limit = MU_POSITIVE, .number = 3),
    MU_FIELD(mu_random_gaussian_blur_args, sigma, RANGE, .number = 0, .high = 1),
    MU_FIELD(mu_random_gaussian_blur_args, value_range, RANGE, .number = 0, .high = 255),
    MU_FIELD(mu_random_gaussian_blur_args, seed, SEED),
    MU_LAYER_FIELDS(mu_random_gaussian_blur_args),
    {0},
};

static mu_status blur_complete(void *arguments)
{
    const mu_random_gaussian_blur_args *args = arguments;
    for (int i = 0; i < 2; i++)
        if (args->kernel_size_per_axis[i] % 2 == 0)
            return mu__error(MU_INVALID_ARGUMENT, "mu_random_gaussian_blur: kernel_size is %d; it must be odd",
                             args->kernel_size_per_axis[i]);
    MU_TRY(mu__in_order(args->factor, 0, 1, "mu_random_gaussian_blur", "factor"));
    return mu__in_order(args->sigma, 0, 1, "mu_random_gaussian_blur", "sigma");
}

static mu_status blur_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_random_gaussian_blur_args *args = layer->args;
    return mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

// A normal distribution's density at whole numbers around 0, which add up to 1; its deviation is the same for all
// images.
static mu_tensor *bell(const mu_layer *layer, const mu_tensor *x, const double sigma[2], int size)
{
    mu_tensor *one = mu_ones(x->dtype, 4, (int64_t[]){1, 1, 1, 1});
    mu_tensor *deviation = mu_reshape(mu__image_numbers(layer, one, sigma[0] + 1e-6, sigma[1] + 1e-6), 0, NULL);
    mu_tensor *offsets = mu_divide(mu_range(x->dtype, -(size - 1) / 2., size / 2., 1), deviation);
    mu_tensor *density = mu_exp(mu_multiply(mu_square(offsets), mu__number_like(x, -.5)));
    return density ? mu_divide(density, mu_reduce_sum(density, 0)) : NULL;
}

static mu_value *blur_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_gaussian_blur_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *chosen = mu__image_chosen_from(layer, x, args->factor);
    mu_tensor *across = bell(layer, x, args->sigma, args->kernel_size_per_axis[0]);
    mu_tensor *down = bell(layer, x, args->sigma, args->kernel_size_per_axis[1]);
    mu_tensor *kernel = mu_multiply(mu_expand_dims(down, 1), mu_expand_dims(across, 0));
    // Keras has the sizes of the two axes the other way round when it makes the kernel of their product.
    kernel = mu_reshape(kernel, 2, (int64_t[]){args->kernel_size_per_axis[0], args->kernel_size_per_axis[1]});
    return mu_of(mu__image_limited(mu_where(chosen, filtered(x, kernel), x), args->value_range));
}

MU_LAYER_CLASS(random_gaussian_blur, "random_gaussian_blur", "RandomGaussianBlur", mu_random_gaussian_blur_args,
               blur_fields, blur_complete, .axes = 2, .build = blur_build, .call = blur_call)

// ---- Bits ---------------------------------------------------------------------------------------

enum { BITS = 8 };

static const mu_field posterization_fields[] = MU_COLOR_FIELDS(.number = 0, .whole = true);

static mu_status posterization_complete(void *arguments)
{
    const double *factor = ((const mu_random_color_args *)arguments)->factor;
    if (factor[0] != floor(factor[0]) || factor[1] != floor(factor[1]))
        return mu__error(MU_INVALID_ARGUMENT, "mu_random_posterization: factor is {%g, %g}; give whole numbers of bits",
                         factor[0], factor[1]);
    return mu__in_order(factor, 1, BITS, "mu_random_posterization", "factor");
}

static mu_value *posterization_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *kept = mu_floor(mu__image_numbers(layer, x, args->factor[0], args->factor[1]));
    mu_tensor *step = mu_pow(mu__number_like(x, 2), mu_subtract(mu__number_like(x, BITS), kept));
    mu_tensor *whole = mu_floor(mu__image_stretched(x, args->value_range, mu__image_bytes));
    mu_tensor *y = mu_multiply(mu_floor(mu_divide(whole, step)), step);
    return mu_of(y ? mu__image_stretched(y, mu__image_bytes, args->value_range) : NULL);
}

MU_LAYER_CLASS(random_posterization, "random_posterization", "RandomPosterization", mu_random_color_args,
               posterization_fields, posterization_complete, .axes = 2, .build = mu__color_build,
               .call = posterization_call)

// ---- Equalization -------------------------------------------------------------------------------

static const mu_field equalization_fields[] = {
    MU_FIELD(mu_equalization_args, value_range, RANGE, .number = 0, .high = 255),
    MU_FIELD(mu_equalization_args, bins, INT, .limit = MU_POSITIVE, .number = 256),
    MU_LAYER_FIELDS(mu_equalization_args),
    {0},
};

static mu_status equalization_build(mu_layer *layer, int n, const mu_shape *input)
{
    MU_TRY(mu__need_spatial(layer, n, input));
    return mu__need_last_axis(layer, input);
}

// The bins of values from 0 to 255, counted on from channel to channel: int32.
static mu_tensor *bins_of(mu_tensor *x, int bins)
{
    mu_tensor *level = mu_multiply(x, mu__number_like(x, (bins - 1) / 255.));
    mu_tensor *bin = mu_cast(mu_clip_by_value(level, mu__number_like(x, 0), mu__number_like(x, bins - 1)), MU_I32);
    return mu_add(bin, mu_range(MU_I32, 0, (double)mu_tensor_dim(x, 3) * bins, bins));
}

// What the values of each bin become, by how many values lie in it and below it: [channels · bins].
static mu_tensor *table_of(mu_tensor *numbers, int64_t channels, int bins)
{
    mu_tensor *ones = mu_cast(mu_ones_like(numbers), MU_F64);
    const int64_t flat = MU_UNKNOWN;
    mu_tensor *counts =
        mu_unsorted_segment_sum(mu_reshape(ones, 1, &flat), mu_reshape(numbers, 1, &flat), channels * bins);
    mu_tensor *below = mu_cumsum(mu_reshape(counts, 2, (int64_t[]){channels, bins}), 1, false, false);
    mu_tensor *all = mu_reduce_max(below, 1, .keep_dims = true);
    mu_tensor *some = mu_greater(below, mu_zeros_like(below));
    mu_tensor *first = mu_reduce_min(mu_where(some, below, all), 1, .keep_dims = true);
    mu_tensor *rest = mu_subtract(all, first);
    mu_tensor *share = mu_divide(mu_multiply(mu_subtract(below, first), mu__number_like(below, 255)),
                                 mu_maximum(rest, mu__number_like(rest, 1)));
    return mu_reshape(mu__image_limited(mu_round(share), mu__image_bytes), 1, &flat);
}

// A channel of one value in the whole batch stays.
static mu_value *equalization_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_equalization_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    const int64_t channels = mu_tensor_dim(x, 3);
    mu_tensor *images = mu__image_stretched(x, args->value_range, mu__image_bytes);
    mu_tensor *numbers = images ? bins_of(images, args->bins) : NULL;
    mu_tensor *table = numbers ? table_of(numbers, channels, args->bins) : NULL;
    mu_tensor *y = table ? mu_cast(mu_gather(table, numbers, 0, 0), x->dtype) : NULL;
    mu_tensor *low = mu_reduce_min(numbers, .axes = (int[]){0, 1, 2}, .n_axes = 3, .keep_dims = true);
    mu_tensor *high = mu_reduce_max(numbers, .axes = (int[]){0, 1, 2}, .n_axes = 3, .keep_dims = true);
    y = y ? mu_where(mu_equal(low, high), images, y) : NULL;
    return mu_of(y ? mu__image_stretched(y, mu__image_bytes, args->value_range) : NULL);
}

MU_LAYER_CLASS(equalization, "equalization", "Equalization", mu_equalization_args, equalization_fields, NULL, .axes = 2,
               .build = equalization_build, .call = equalization_call)
