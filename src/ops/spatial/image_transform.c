// Affine and projective transforms of images, made of gathers.
//
// Each output pixel takes its value from a position in the input, which need not be a pixel: positions are computed in
// float32, as TensorFlow does (ImageProjectiveTransformV3), so that the same pixels are chosen. Pixels that are
// integers are mixed in float32 too, and lose their fraction then.
#include "ops/core/composed.h"

#include <muster/nn.h>
#include <muster/ops.h>

typedef enum fill { FILL_CONSTANT, FILL_REFLECT, FILL_WRAP, FILL_NEAREST, FILL_MODES } fill;
static const char *const fills[FILL_MODES] = {"constant", "reflect", "wrap", "nearest"};

// What all of the function's parts need. Positions and `inside` are [batch or 1, height, width].
typedef struct job {
    mu_tensor *images, *pixels; // pixels: [batch, height · width, channels]
    int64_t height, width;
    bool one;          // one transform for all images
    mu_tensor *inside; // where the position is finite
    double fill_value;
} job;

static mu_tensor *number(double value) { return mu_constant(MU_F32, value); }
static mu_tensor *plus(mu_tensor *x, double value) { return mu_add(x, number(value)); }
static mu_tensor *times(mu_tensor *x, double value) { return mu_multiply(x, number(value)); }

// How often a length goes into x, which must not be negative.
static mu_tensor *laps(mu_tensor *x, double length) { return mu_floor(mu_divide(x, number(length))); }

// ---- Positions ----------------------------------------------------------------------------------

// Element i of each transform: [batch or 1, 1, 1].
static mu_tensor *element(mu_tensor *transforms, int i)
{
    return mu_expand_dims(mu_slice(transforms, (int64_t[]){0, i}, (int64_t[]){-1, 1}), -1);
}

static mu_tensor *combine(mu_tensor *transforms, int i, mu_tensor *x, mu_tensor *y)
{
    return mu_add(mu_multiply(element(transforms, i), x), mu_multiply(element(transforms, i + 1), y));
}

// Where the output pixels come from; sets job->inside.
static void positions(job *j, mu_tensor *transforms, mu_tensor **x, mu_tensor **y)
{
    mu_tensor *column = mu_reshape(mu_range(MU_F32, 0, (double)j->width, 1), 3, (int64_t[]){1, 1, j->width});
    mu_tensor *row = mu_reshape(mu_range(MU_F32, 0, (double)j->height, 1), 3, (int64_t[]){1, j->height, 1});
    mu_tensor *scale = plus(combine(transforms, 6, column, row), 1);
    j->inside = mu_not_equal(scale, number(0));
    scale = mu_where(j->inside, scale, number(1));
    *x = mu_divide(mu_add(combine(transforms, 0, column, row), element(transforms, 2)), scale);
    *y = mu_divide(mu_add(combine(transforms, 3, column, row), element(transforms, 5)), scale);
}

static mu_tensor *limited(mu_tensor *x, int64_t length)
{
    return mu_clip_by_value(x, number(0), number((double)length - 1));
}

// [dcba|abcd|dcba]
static mu_tensor *reflected(mu_tensor *x, double length)
{
    mu_tensor *low = mu_add(x, times(laps(mu_neg(x), 2 * length), 2 * length));
    low = mu_where(mu_less(low, number(-length)), plus(low, 2 * length), plus(mu_neg(low), -1));
    mu_tensor *high = mu_subtract(x, times(laps(x, 2 * length), 2 * length));
    high = mu_where(mu_greater_equal(high, number(length)), plus(mu_neg(high), 2 * length - 1), high);
    return mu_where(mu_less(x, number(0)), low, mu_where(mu_greater(x, number(length - 1)), high, x));
}

// [abcd|abcd|abcd]
static mu_tensor *wrapped(mu_tensor *x, double length)
{
    mu_tensor *low = mu_add(x, times(plus(laps(mu_neg(x), length - 1), 1), length));
    mu_tensor *high = mu_subtract(x, times(laps(x, length - 1), length));
    return mu_where(mu_less(x, number(0)), low, mu_where(mu_greater(x, number(length - 1)), high, x));
}

static mu_tensor *filled(mu_tensor *x, fill mode, int64_t length)
{
    if (mode == FILL_CONSTANT)
        return x;
    if (length > 1 && mode != FILL_NEAREST)
        x = mode == FILL_REFLECT ? reflected(x, (double)length) : wrapped(x, (double)length);
    return limited(x, length);
}

// ---- Values -------------------------------------------------------------------------------------

// The values of the pixels at whole positions; the fill value outside of the image: [batch, height, width, channels].
static mu_tensor *values_at(const job *j, mu_tensor *x, mu_tensor *y)
{
    mu_tensor *column = limited(x, j->width), *row = limited(y, j->height);
    mu_tensor *inside = mu_logical_and(mu_equal(column, x), mu_equal(row, y));
    mu_tensor *index =
        mu_add(mu_multiply(mu_cast(row, MU_I32), mu_constant(MU_I32, (double)j->width)), mu_cast(column, MU_I32));
    const int64_t n = j->height * j->width;
    index = mu_reshape(index, j->one ? 1 : 2, j->one ? (int64_t[]){n} : (int64_t[]){mu_tensor_dim(index, 0), n});
    mu_tensor *values = mu_reshape_like(mu_gather(j->pixels, index, 1, !j->one), j->images);
    return mu_where(mu_expand_dims(mu_logical_and(inside, j->inside), -1), values,
                    mu_cast(number(j->fill_value), j->images->dtype));
}

// Halves away from zero, as roundf.
static mu_tensor *rounded(mu_tensor *x)
{
    mu_tensor *low = mu_floor(x), *rest = mu_subtract(x, low);
    mu_tensor *up = mu_where(mu_less(x, number(0)), mu_greater(rest, number(.5)), mu_greater_equal(rest, number(.5)));
    return mu_add(low, mu_cast(up, MU_F32));
}

static mu_tensor *weighted(mu_tensor *weight, mu_tensor *values)
{
    const mu_dtype type = values && mu__dtype_is_float(values->dtype) ? values->dtype : MU_F32;
    return mu_multiply(mu_cast(mu_expand_dims(weight, -1), type), mu_cast(values, type));
}

static mu_tensor *mixed(const job *j, mu_tensor *x, mu_tensor *y)
{
    mu_tensor *left = mu_floor(x), *top = mu_floor(y), *right = plus(left, 1), *bottom = plus(top, 1);
    mu_tensor *to_left = mu_subtract(right, x), *to_right = mu_subtract(x, left);
    mu_tensor *above = mu_add(weighted(to_left, values_at(j, left, top)), weighted(to_right, values_at(j, right, top)));
    mu_tensor *below =
        mu_add(weighted(to_left, values_at(j, left, bottom)), weighted(to_right, values_at(j, right, bottom)));
    mu_tensor *value = mu_add(weighted(mu_subtract(bottom, y), above), weighted(mu_subtract(y, top), below));
    return value ? mu_cast(value, j->images->dtype) : NULL;
}

// ---- The function -------------------------------------------------------------------------------

static bool is_pixel(mu_dtype dtype)
{
    return mu__dtype_is_float(dtype) || dtype == MU_U8 || dtype == MU_I32 || dtype == MU_I64;
}

static mu_status check_tensors(const mu_tensor *images, const mu_tensor *transforms)
{
    char text[MU_SHAPE_TEXT];
    bool known = images->shape.rank == 4;
    for (int i = 1; known && i < 4; i++)
        known = images->shape.dims[i] > 0;
    if (!known || !is_pixel(images->dtype))
        return mu__error(MU_INVALID_ARGUMENT,
                         "image_affine_transform: images %s of %s; they must be floating-point numbers, u8, i32 or i64 "
                         "[batch, height, width, channels], all but batch known and not 0",
                         mu__shape_text(&images->shape, text), mu_dtype_name(images->dtype));
    const mu_shape *shape = &transforms->shape;
    if (shape->rank < 1 || shape->rank > 2 || shape->dims[shape->rank - 1] != 8)
        return mu__error(MU_INVALID_ARGUMENT, "image_affine_transform: transforms %s; they must be [8] or [batch, 8]",
                         mu__shape_text(shape, text));
    return MU_OK;
}

// The position of a word in a list; -1, with an error: it is not there.
static int word_of(const char *word, const char *const *words, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!word || strcmp(word, words[i]) == 0)
            return i;
    char known[80] = "";
    for (int i = 0; i < n; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s\"%s\"", i ? ", " : "", words[i]);
    mu__error(MU_INVALID_ARGUMENT, "image_affine_transform: %s is \"%.40s\"; expected one of %s", what, word, known);
    return -1;
}

static mu_tensor *transform(const mu_image_affine_transform_args *args, bool nearest, fill mode)
{
    mu_tensor *images = args->images, *x, *y;
    const int64_t *dims = images->shape.dims;
    job j = {.images = images,
             .height = dims[1],
             .width = dims[2],
             .one = args->transforms->shape.rank == 1,
             .fill_value = args->fill_value};
    j.pixels = mu_reshape(images, 3, (int64_t[]){dims[0], j.height * j.width, dims[3]});
    mu_tensor *transforms = mu_cast(args->transforms, MU_F32);
    positions(&j, j.one ? mu_expand_dims(transforms, 0) : transforms, &x, &y);
    x = filled(x, mode, j.width);
    y = filled(y, mode, j.height);
    return nearest ? values_at(&j, rounded(x), rounded(y)) : mixed(&j, x, y);
}

mu_tensor *mu_image_affine_transform_with(const mu_image_affine_transform_args *given)
{
    static const char *const interpolations[] = {"bilinear", "nearest"};
    mu_image_affine_transform_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_image_affine_transform") != MU_OK ||
        mu__need(args.images, "mu_image_affine_transform: the images") != MU_OK ||
        mu__need(args.transforms, "mu_image_affine_transform: the transforms") != MU_OK ||
        check_tensors(args.images, args.transforms) != MU_OK)
        return NULL;
    const int interpolation = word_of(args.interpolation, interpolations, 2, "interpolation");
    const int mode = interpolation < 0 ? -1 : word_of(args.fill_mode, fills, FILL_MODES, "fill_mode");
    if (mode < 0)
        return NULL;
    return mu__composed2("image_affine_transform", args.images, args.transforms,
                         transform(&args, interpolation == 1, (fill)mode));
}
