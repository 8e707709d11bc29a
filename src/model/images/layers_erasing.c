// Layers that replace a rectangle of images, or see them from another side.
#include "model/core/layer.h"
#include "model/images/augment.h"

#include "ops/random/random.h"

#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

// ---- Erasing ------------------------------------------------------------------------------------

static const mu_field erasing_fields[] = {
    MU_FIELD(mu_random_erasing_args, factor, RANGE, .number = 0, .high = 1),
    MU_FIELD(mu_random_erasing_args, scale, RANGE, .number = .02, .high = .33),
    MU_FIELD(mu_random_erasing_args, fill_value, DOUBLES, .second = offsetof(mu_random_erasing_args, n_fill_value),
             .single = true),
    MU_FIELD(mu_random_erasing_args, value_range, RANGE, .number = 0, .high = 255),
    MU_FIELD(mu_random_erasing_args, seed, SEED),
    MU_LAYER_FIELDS(mu_random_erasing_args),
    {0},
};

static mu_status erasing_complete(void *arguments)
{
    const mu_random_erasing_args *args = arguments;
    MU_TRY(mu__in_order(args->factor, 0, 1, "mu_random_erasing", "factor"));
    return mu__in_order(args->scale, 0, 1, "mu_random_erasing", "scale");
}

static mu_status erasing_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_random_erasing_args *args = layer->args;
    MU_TRY(mu__image_sizes_known(layer, n, input));
    MU_TRY(mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL));
    if (args->n_fill_value <= 1 || args->n_fill_value == input->dims[3])
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "layer '%s' has %d numbers in fill_value; give one, or one for each of the %lld channels",
                     mu_layer_name(layer), args->n_fill_value, (long long)input->dims[3]);
}

// Which positions along an axis are inside of a random interval: its length is a share of the axis, its begin anywhere.
static mu_tensor *interval(const mu_layer *layer, mu_tensor *x, int axis, const double scale[2])
{
    const int64_t n = mu_tensor_dim(x, axis);
    mu_shape shape = MU_SHAPE(1, 1, 1, 1);
    shape.dims[axis] = n;
    mu_tensor *positions = mu_reshape(mu_range(x->dtype, 0, (double)n, 1), shape.rank, shape.dims);
    mu_tensor *length =
        mu_multiply(mu_sqrt(mu__image_numbers(layer, x, scale[0], scale[1])), mu__number_like(x, (double)n));
    mu_tensor *first =
        mu_multiply(mu__image_numbers(layer, x, 0, 1), mu_subtract(mu__number_like(x, (double)n), length));
    return mu_logical_and(mu_greater_equal(positions, first), mu_less(positions, mu_add(first, length)));
}

static mu_tensor *filling(const mu_layer *layer, mu_tensor *x, const mu_random_erasing_args *args)
{
    if (args->n_fill_value > 0)
        return mu_cast(mu_tensor_new(MU_F64, 1, (int64_t[]){args->n_fill_value}, args->fill_value), x->dtype);
    mu_tensor *noise = mu__random_normal_like(mu__weight_next_seed(layer), x);
    return noise ? mu_multiply(noise, mu__number_like(x, args->value_range[1])) : NULL;
}

static mu_value *erasing_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_erasing_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    mu_tensor *across = interval(layer, x, 2, args->scale), *down = interval(layer, x, 1, args->scale);
    mu_tensor *erased = mu_logical_and(mu_logical_and(across, down), mu__image_chosen_from(layer, x, args->factor));
    mu_tensor *fill = mu__image_limited(filling(layer, x, args), args->value_range);
    return mu_of(erased && fill ? mu_where(erased, fill, x) : NULL);
}

MU_LAYER_CLASS(random_erasing, "random_erasing", "RandomErasing", mu_random_erasing_args, erasing_fields,
               erasing_complete, .axes = 2, .build = erasing_build, .call = erasing_call)

// ---- Perspective --------------------------------------------------------------------------------

static const char *const interpolations[] = {"bilinear", "nearest", NULL};

static const mu_field perspective_fields[] = {
    MU_FIELD(mu_random_perspective_args, factor, RANGE, .number = 0, .high = 1),
    MU_FIELD(mu_random_perspective_args, scale, DOUBLE, .limit = MU_FRACTION, .number = 1),
    MU_FIELD(mu_random_perspective_args, interpolation, CHOICE, .text = "bilinear", .choices = interpolations),
    MU_FIELD(mu_random_perspective_args, fill_value, DOUBLE),
    MU_FIELD(mu_random_perspective_args, seed, SEED),
    MU_LAYER_FIELDS(mu_random_perspective_args),
    {0},
};

static mu_status perspective_complete(void *args)
{
    return mu__in_order(((const mu_random_perspective_args *)args)->factor, 0, 1, "mu_random_perspective", "factor");
}

static mu_status perspective_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_random_perspective_args *args = layer->args;
    MU_TRY(mu__image_sizes_known(layer, n, input));
    return mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

// One coordinate of where a corner goes, [batch]: `at` of the corner, and up to half of that further or nearer.
static mu_tensor *corner(const mu_layer *layer, mu_tensor *x, double at, double scale)
{
    mu_tensor *numbers = mu__image_numbers(layer, x, at * (1 - scale / 2), at * (1 + scale / 2));
    mu_tensor *each = numbers ? mu_reshape(numbers, 1, (int64_t[]){mu_tensor_dim(x, 0)}) : NULL;
    return each && each->dtype != MU_F64 ? mu_cast(each, MU_F32) : each;
}

static mu_tensor *difference_of_products(mu_tensor *a, mu_tensor *b, mu_tensor *c, mu_tensor *d)
{
    return mu_subtract(mu_multiply(a, b), mu_multiply(c, d));
}

// The projection that takes the unit square to the corners, [a b c; d e f; g h 1], after Heckbert, "Fundamentals of
// texture mapping", 1989. Corners are (0, 0), (1, 0), (0, 1) and (1, 1).
static void square_to_corners(mu_tensor *const x[4], mu_tensor *const y[4], mu_tensor *m[9])
{
    mu_tensor *dx1 = mu_subtract(x[1], x[3]), *dx2 = mu_subtract(x[2], x[3]);
    mu_tensor *dy1 = mu_subtract(y[1], y[3]), *dy2 = mu_subtract(y[2], y[3]);
    mu_tensor *sx = mu_subtract(mu_subtract(x[0], x[1]), dx2), *sy = mu_subtract(mu_subtract(y[0], y[1]), dy2);
    mu_tensor *area = difference_of_products(dx1, dy2, dx2, dy1);
    m[6] = mu_divide(difference_of_products(sx, dy2, dx2, sy), area);
    m[7] = mu_divide(difference_of_products(dx1, sy, sx, dy1), area);
    m[8] = mu_ones_like(area);
    m[0] = mu_add(mu_subtract(x[1], x[0]), mu_multiply(m[6], x[1]));
    m[1] = mu_add(mu_subtract(x[2], x[0]), mu_multiply(m[7], x[2]));
    m[2] = x[0];
    m[3] = mu_add(mu_subtract(y[1], y[0]), mu_multiply(m[6], y[1]));
    m[4] = mu_add(mu_subtract(y[2], y[0]), mu_multiply(m[7], y[2]));
    m[5] = y[0];
}

// The inverse of such a projection, whose square becomes an image of this size, as mu_image_affine_transform takes it.
static mu_tensor *corners_to_image(mu_tensor *const m[9], double width, double height)
{
    static const int minors[9][4] = {{4, 8, 5, 7}, {2, 7, 1, 8}, {1, 5, 2, 4}, {5, 6, 3, 8}, {0, 8, 2, 6},
                                     {2, 3, 0, 5}, {3, 7, 4, 6}, {1, 6, 0, 7}, {0, 4, 1, 3}};
    mu_tensor *parts[9];
    for (int i = 0; i < 9; i++)
        parts[i] = difference_of_products(m[minors[i][0]], m[minors[i][1]], m[minors[i][2]], m[minors[i][3]]);
    for (int i = 0; i < 8; i++) {
        mu_tensor *part = mu_divide(parts[i], parts[8]);
        parts[i] = i < 6 && part ? mu_multiply(part, mu__number_like(part, i < 3 ? width : height)) : part;
    }
    return mu__pending() ? NULL : mu_stack(8, parts, 1);
}

static mu_value *perspective_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_perspective_args *args = layer->args;
    mu_tensor *image = mu_at(inputs, 0), *x[4], *y[4], *m[9];
    if (!context->training || !image)
        return inputs;
    const double width = (double)mu_tensor_dim(image, 2) - 1, height = (double)mu_tensor_dim(image, 1) - 1;
    mu_tensor *chosen = mu__image_chosen_from(layer, image, args->factor);
    for (int i = 0; i < 4; i++) {
        x[i] = corner(layer, image, i % 2 ? width : 0, args->scale);
        y[i] = corner(layer, image, i / 2 ? height : 0, args->scale);
    }
    square_to_corners(x, y, m);
    mu_tensor *transforms = mu__pending() ? NULL : corners_to_image(m, width, height);
    mu_tensor *moved = transforms ? mu_image_affine_transform(image, transforms, .interpolation = args->interpolation,
                                                              .fill_value = args->fill_value)
                                  : NULL;
    return mu_of(moved ? mu_where(chosen, moved, image) : NULL);
}

MU_LAYER_CLASS(random_perspective, "random_perspective", "RandomPerspective", mu_random_perspective_args,
               perspective_fields, perspective_complete, .axes = 2, .build = perspective_build,
               .call = perspective_call)
