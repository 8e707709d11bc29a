// Layers for images: their size, and random changes in training.
#include "model/core/layer.h"
#include "model/images/augment.h"

#include "ops/random/random.h"
#include "ops/spatial/image_size.h"

#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

// ---- Sizes --------------------------------------------------------------------------------------

static const mu_field center_crop_fields[] = {
    MU_FIELD(mu_center_crop_args, height, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_center_crop_args, width, INT, .limit = MU_POSITIVE),
    MU_LAYER_FIELDS(mu_center_crop_args),
    {0},
};

mu_status mu__image_sizes_known(mu_layer *layer, int n, const mu_shape *input)
{
    char text[MU_SHAPE_TEXT];
    MU_TRY(mu__need_spatial(layer, n, input));
    if (input->dims[1] != MU_UNKNOWN && input->dims[2] != MU_UNKNOWN)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs images of known height and width; it was given %s",
                     mu_layer_name(layer), mu__shape_text(input, text));
}

static mu_value *center_crop_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_center_crop_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (mu_tensor_dim(x, 1) >= args->height && mu_tensor_dim(x, 2) >= args->width)
        return mu_of(mu__image_middle(x, args->height, args->width));
    return mu_of(mu_image_resize(mu__crop_to_ratio(x, args->height, args->width), args->height, args->width,
                                 MU_RESIZE_BILINEAR));
}

MU_LAYER_CLASS(center_crop, "center_crop", "CenterCrop", mu_center_crop_args, center_crop_fields, NULL, .axes = 2,
               .build = mu__image_sizes_known, .call = center_crop_call)

// ---- Random changes -----------------------------------------------------------------------------

mu_tensor *mu__image_numbers(const mu_layer *layer, mu_tensor *x, double low, double high)
{
    mu_tensor *like = mu_reduce_max(x, .axes = (int[]){1, 2, 3}, .n_axes = 3, .keep_dims = true);
    mu_tensor *u = mu__random_uniform_like(mu__weight_next_seed(layer), like);
    return u ? mu_add(mu_multiply(u, mu_constant(u->dtype, high - low)), mu_constant(u->dtype, low)) : NULL;
}

mu_status mu__random_build(mu_layer *layer, int n, const mu_shape *input, const uint64_t *seed)
{
    MU_TRY(mu__need_spatial(layer, n, input));
    return mu__weight_seed(layer, seed);
}

mu_status mu__in_order(const double range[2], double low, double high, const char *function, const char *option)
{
    if (range[0] >= low && range[0] <= range[1] && range[1] <= high)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is {%g, %g}; give numbers from %g to %g, the lowest first", function,
                     option, range[0], range[1], low, high);
}

static const char *const flips[] = {"horizontal_and_vertical", "horizontal", "vertical", NULL};

static const mu_field flip_fields[] = {
    MU_FIELD(mu_random_flip_args, mode, CHOICE, .text = "horizontal_and_vertical", .choices = flips),
    MU_FIELD(mu_random_flip_args, seed, SEED),
    MU_LAYER_FIELDS(mu_random_flip_args),
    {0},
};

static mu_status flip_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_random_flip_args *args = layer->args;
    return mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_value *flip_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_flip_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0), *flipped = x;
    if (!context->training || !x)
        return inputs;
    if (strcmp(args->mode, "vertical") != 0)
        flipped = mu_reverse(flipped, 2);
    if (strcmp(args->mode, "horizontal") != 0)
        flipped = mu_reverse(flipped, 1);
    mu_tensor *chosen = mu_less_equal(mu__image_numbers(layer, x, 0, 1), mu_constant(x->dtype, .5));
    return mu_of(mu_where(chosen, flipped, x));
}

MU_LAYER_CLASS(random_flip, "random_flip", "RandomFlip", mu_random_flip_args, flip_fields, NULL, .axes = 2,
               .build = flip_build, .call = flip_call)

static const mu_field color_fields[] = MU_COLOR_FIELDS(.number = 0);

static mu_status check_factor(const mu_random_color_args *args, const char *function, double low)
{
    if (args->factor[0] >= low && args->factor[0] <= 1 && args->factor[1] >= low && args->factor[1] <= 1)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: factor is {%g, %g}; both must be from %g to 1", function,
                     args->factor[0], args->factor[1], low);
}

static mu_status brightness_complete(void *args)
{
    const mu_random_color_args *color = args;
    if (color->factor[0] > color->factor[1])
        return mu__error(MU_INVALID_ARGUMENT, "mu_random_brightness: factor is {%g, %g}; give the lowest number first",
                         color->factor[0], color->factor[1]);
    return check_factor(color, "mu_random_brightness", -1);
}

static mu_status contrast_complete(void *args) { return check_factor(args, "mu_random_contrast", 0); }

mu_status mu__color_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_random_color_args *args = layer->args;
    return mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

mu_tensor *mu__image_brighter(const mu_layer *layer, mu_tensor *x, const double factor[2], const double value_range[2])
{
    const double extent = value_range[1] - value_range[0];
    mu_tensor *more = mu__image_numbers(layer, x, factor[0] * extent, factor[1] * extent);
    return mu__image_limited(mu_add(x, more), value_range);
}

mu_tensor *mu__image_contrasted(const mu_layer *layer, mu_tensor *x, const double factor[2],
                                const double value_range[2])
{
    mu_tensor *mean = mu_reduce_mean(x, .axes = (int[]){1, 2}, .n_axes = 2, .keep_dims = true);
    mu_tensor *times = mu__image_numbers(layer, x, 1 - factor[0], 1 + factor[1]);
    return mu__image_limited(mu_add(mu_multiply(mu_subtract(x, mean), times), mean), value_range);
}

static mu_value *brightness_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_args *args = layer->args;
    if (!context->training)
        return inputs;
    return mu_of(mu__image_brighter(layer, mu_at(inputs, 0), args->factor, args->value_range));
}

static mu_value *contrast_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_args *args = layer->args;
    if (!context->training)
        return inputs;
    return mu_of(mu__image_contrasted(layer, mu_at(inputs, 0), args->factor, args->value_range));
}

MU_LAYER_CLASS(random_brightness, "random_brightness", "RandomBrightness", mu_random_color_args, color_fields,
               brightness_complete, .axes = 2, .build = mu__color_build, .call = brightness_call)
MU_LAYER_CLASS(random_contrast, "random_contrast", "RandomContrast", mu_random_color_args, color_fields,
               contrast_complete, .axes = 2, .build = mu__color_build, .call = contrast_call)
