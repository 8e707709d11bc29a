// Layers that move the pixels of images in training: rotation, zoom, translation, shear and crop.
//
// Each but the crop is a transform for each image (mu_image_affine_transform), of the numbers that it draws.
#include "model/core/layer.h"
#include "model/images/augment.h"

#include "ops/random/random.h"
#include "ops/spatial/image_size.h"

#include <math.h>

#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

static const char *const interpolations[] = {"bilinear", "nearest", NULL};
static const char *const fill_modes[] = {"reflect", "constant", "wrap", "nearest", NULL};

#define MOVE_FIELDS(type)                                                                     \
    MU_FIELD(type, fill_mode, CHOICE, .text = "reflect", .choices = fill_modes),              \
        MU_FIELD(type, interpolation, CHOICE, .text = "bilinear", .choices = interpolations), \
        MU_FIELD(type, fill_value, DOUBLE), MU_FIELD(type, seed, SEED), MU_LAYER_FIELDS(type)

static const mu_field rotation_fields[] = {
    MU_FIELD(mu_random_rotation_args, factor, RANGE), MOVE_FIELDS(mu_random_rotation_args), {0}};
static const mu_field zoom_fields[] = {MU_FIELD(mu_random_move_args, height_factor, RANGE),
                                       MU_FIELD(mu_random_move_args, width_factor, RANGE, .number = NAN, .high = NAN),
                                       MOVE_FIELDS(mu_random_move_args),
                                       {0}};
static const mu_field translation_fields[] = {MU_FIELD(mu_random_move_args, height_factor, RANGE),
                                              MU_FIELD(mu_random_move_args, width_factor, RANGE),
                                              MOVE_FIELDS(mu_random_move_args),
                                              {0}};
static const mu_field shear_fields[] = {MU_FIELD(mu_random_shear_args, x_factor, RANGE),
                                        MU_FIELD(mu_random_shear_args, y_factor, RANGE),
                                        MOVE_FIELDS(mu_random_shear_args),
                                        {0}};

// Numbers of a range, one for each image: [batch]. In float32 at least: coordinates rounded to a half type would move
// whole pixels.
static mu_tensor *draw(const mu_layer *layer, mu_tensor *x, const double range[2])
{
    mu_tensor *numbers = mu__image_numbers(layer, x, range[0], range[1]);
    mu_tensor *each = numbers ? mu_reshape(numbers, 1, (int64_t[]){mu_tensor_dim(x, 0)}) : NULL;
    return each && each->dtype != MU_F64 ? mu_cast(each, MU_F32) : each;
}

static mu_tensor *scaled(mu_tensor *x, double factor)
{
    return x ? mu_multiply(x, mu_constant(x->dtype, factor)) : NULL;
}

// The offset by which an axis that is scaled keeps its middle: middle · (1 - scale).
static mu_tensor *centred(mu_tensor *scale, double middle)
{
    return scale ? mu_add(scaled(scale, -middle), mu_constant(scale->dtype, middle)) : NULL;
}

// How far the middle of an axis lies from its first pixel.
static double middle_of(mu_tensor *x, int axis) { return ((double)mu_tensor_dim(x, axis) - 1) / 2; }

// Transforms the images by the affine part of their transforms, [a0, a1, a2, b0, b1, b2]; NULL in it is 0.
static mu_value *moved(mu_tensor *x, mu_tensor *const affine[6], const char *interpolation, const char *fill_mode,
                       double fill_value)
{
    mu_tensor *parts[8] = {NULL}, *known = NULL;
    for (int i = 0; i < 6; i++)
        known = affine[i] ? affine[i] : known;
    if (mu__pending() || !known)
        return NULL;
    mu_tensor *zeros = mu_zeros_like(known);
    for (int i = 0; i < 8; i++)
        parts[i] = i < 6 && affine[i] ? affine[i] : zeros;
    return mu_of(mu_image_affine_transform(x, mu_stack(8, parts, 1), .interpolation = interpolation,
                                           .fill_mode = fill_mode, .fill_value = fill_value));
}

// The `build` of a class whose options have a seed.
#define GEOMETRY_BUILD(word, type)                                                           \
    static mu_status word##_build(mu_layer *layer, int n, const mu_shape *input)             \
    {                                                                                        \
        const type *args = layer->args;                                                      \
        MU_TRY(mu__image_sizes_known(layer, n, input));                                      \
        return mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL); \
    }

// ---- Rotation -----------------------------------------------------------------------------------

GEOMETRY_BUILD(rotation, mu_random_rotation_args)

static mu_status rotation_complete(void *args)
{
    return mu__in_order(((const mu_random_rotation_args *)args)->factor, -1, 1, "mu_random_rotation", "factor");
}

static mu_value *rotation_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_rotation_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    const double cx = middle_of(x, 2), cy = middle_of(x, 1);
    mu_tensor *angle = scaled(scaled(draw(layer, x, args->factor), 360), acos(-1) / 180);
    mu_tensor *cosine = mu_cos(angle), *sine = mu_sin(angle);
    mu_tensor *affine[] = {cosine, mu_neg(sine), mu_add(centred(cosine, cx), scaled(sine, cy)),
                           sine,   cosine,       mu_subtract(centred(cosine, cy), scaled(sine, cx))};
    return moved(x, affine, args->interpolation, args->fill_mode, args->fill_value);
}

MU_LAYER_CLASS(random_rotation, "random_rotation", "RandomRotation", mu_random_rotation_args, rotation_fields,
               rotation_complete, .axes = 2, .build = rotation_build, .call = rotation_call)

// ---- Zoom and translation -----------------------------------------------------------------------

GEOMETRY_BUILD(move, mu_random_move_args)

static mu_status zoom_complete(void *arguments)
{
    const mu_random_move_args *args = arguments;
    MU_TRY(mu__in_order(args->height_factor, -1, 1, "mu_random_zoom", "height_factor"));
    return isnan(args->width_factor[0]) ? MU_OK
                                        : mu__in_order(args->width_factor, -1, 1, "mu_random_zoom", "width_factor");
}

static mu_status translation_complete(void *arguments)
{
    const mu_random_move_args *args = arguments;
    MU_TRY(mu__in_order(args->height_factor, -1, 1, "mu_random_translation", "height_factor"));
    return mu__in_order(args->width_factor, -1, 1, "mu_random_translation", "width_factor");
}

static mu_value *zoom_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_move_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    const double high[] = {1 + args->height_factor[0], 1 + args->height_factor[1]},
                 wide[] = {1 + args->width_factor[0], 1 + args->width_factor[1]};
    mu_tensor *height = draw(layer, x, high), *width = isnan(wide[0]) ? height : draw(layer, x, wide);
    mu_tensor *affine[] = {width, NULL,   centred(width, middle_of(x, 2)),
                           NULL,  height, centred(height, middle_of(x, 1))};
    return moved(x, affine, args->interpolation, args->fill_mode, args->fill_value);
}

static mu_value *translation_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_move_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *down = scaled(draw(layer, x, args->height_factor), -(double)mu_tensor_dim(x, 1));
    mu_tensor *right = scaled(draw(layer, x, args->width_factor), -(double)mu_tensor_dim(x, 2));
    mu_tensor *one = right ? mu_ones_like(right) : NULL;
    return moved(x, (mu_tensor *[]){one, NULL, right, NULL, one, down}, args->interpolation, args->fill_mode,
                 args->fill_value);
}

MU_LAYER_CLASS(random_zoom, "random_zoom", "RandomZoom", mu_random_move_args, zoom_fields, zoom_complete, .axes = 2,
               .build = move_build, .call = zoom_call)
MU_LAYER_CLASS(random_translation, "random_translation", "RandomTranslation", mu_random_move_args, translation_fields,
               translation_complete, .axes = 2, .build = move_build, .call = translation_call)

// ---- Shear --------------------------------------------------------------------------------------

GEOMETRY_BUILD(shear, mu_random_shear_args)

static mu_status shear_complete(void *arguments)
{
    const mu_random_shear_args *args = arguments;
    MU_TRY(mu__in_order(args->x_factor, -1, 1, "mu_random_shear", "x_factor"));
    return mu__in_order(args->y_factor, -1, 1, "mu_random_shear", "y_factor");
}

// As in Keras, half of the images are sheared the other way, and the corner stays in its place.
static mu_value *shear_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_shear_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *side = draw(layer, x, (double[]){-1, 1});
    mu_tensor *one = side ? mu_ones_like(side) : NULL;
    side = one ? mu_where(mu_greater(side, mu_zeros_like(side)), one, mu_neg(one)) : NULL;
    mu_tensor *y_shear = mu_multiply(draw(layer, x, args->y_factor), side);
    mu_tensor *x_shear = mu_multiply(draw(layer, x, args->x_factor), side);
    return moved(x, (mu_tensor *[]){one, x_shear, NULL, y_shear, one, NULL}, args->interpolation, args->fill_mode,
                 args->fill_value);
}

MU_LAYER_CLASS(random_shear, "random_shear", "RandomShear", mu_random_shear_args, shear_fields, shear_complete,
               .axes = 2, .build = shear_build, .call = shear_call)

// ---- Crop ---------------------------------------------------------------------------------------

static const mu_field crop_fields[] = {
    MU_FIELD(mu_random_crop_args, height, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_random_crop_args, width, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_random_crop_args, seed, SEED),
    MU_LAYER_FIELDS(mu_random_crop_args),
    {0},
};

GEOMETRY_BUILD(crop, mu_random_crop_args)

// `size` neighbours along an axis, from a random place that is the same for all images.
static mu_tensor *window(const mu_layer *layer, mu_tensor *x, int axis, int size)
{
    mu_tensor *u = mu__random_uniform_like(mu__weight_next_seed(layer), mu_constant(MU_F32, 0));
    mu_tensor *first = u ? mu_floor(scaled(u, (double)(mu_tensor_dim(x, axis) - size + 1))) : NULL;
    return first ? mu_gather(x, mu_add(mu_cast(first, MU_I32), mu_range(MU_I32, 0, size, 1)), axis, 0) : NULL;
}

static mu_value *crop_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_crop_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (context->training && mu_tensor_dim(x, 1) > args->height && mu_tensor_dim(x, 2) > args->width)
        return mu_of(window(layer, window(layer, x, 1, args->height), 2, args->width));
    return mu_of(mu_image_resize(mu__crop_to_ratio(x, args->height, args->width), args->height, args->width,
                                 MU_RESIZE_BILINEAR));
}

MU_LAYER_CLASS(random_crop, "random_crop", "RandomCrop", mu_random_crop_args, crop_fields, NULL, .axes = 2,
               .build = crop_build, .call = crop_call)
