// RandAugment: some of the random layers for images, drawn for each batch.
#include "model/core/layer.h"
#include "model/images/augment.h"

#include <math.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

static const char *const interpolations[] = {"bilinear", "nearest", NULL};

static const mu_field rand_augment_fields[] = {
    MU_FIELD(mu_rand_augment_args, value_range, RANGE, .number = 0, .high = 255),
    MU_FIELD(mu_rand_augment_args, num_ops, INT, .limit = MU_POSITIVE, .number = 2),
    MU_FIELD(mu_rand_augment_args, factor, RANGE, .number = 0, .high = .5),
    MU_FIELD(mu_rand_augment_args, interpolation, CHOICE, .text = "bilinear", .choices = interpolations),
    MU_FIELD(mu_rand_augment_args, seed, SEED),
    MU_LAYER_FIELDS(mu_rand_augment_args),
    {0},
};

static mu_status rand_augment_complete(void *args)
{
    return mu__in_order(((const mu_rand_augment_args *)args)->factor, 0, 1, "mu_rand_augment", "factor");
}

// The options of one of the layers that draw, by its number among them. All that are written count, also zeros; without
// a seed it has one of the program's.
#define ITS(number, type, ...)     \
    (&(type){.size = sizeof(type), \
             .given = given,       \
             .dtype = args->dtype, \
             __VA_ARGS__,          \
             .seed = MU_GIVEN(args, seed) ? args->seed + (number) : 0})
#define BOTH(name, numbers) .name = {(numbers)[0], (numbers)[1]}
static const char given[] = ".factor = 0, .value_range = 0, .x_factor = 0, .y_factor = 0, .height_factor = 0, "
                            ".width_factor = 0, .addition_factor = 0, .threshold_factor = 0";

// In Keras's order: the drawn number of a change is its place here.
static mu_status rand_augment_make(mu_layer *layer)
{
    const mu_rand_augment_args *args = layer->args;
    const double *f = args->factor, *range = args->value_range, bits = floor(MU_MAX(1, 8 * f[1]));
    const char *how = args->interpolation;
#define COLOR(number, ...) ITS(number, mu_random_color_args, BOTH(value_range, range), __VA_ARGS__)
    mu_layer *const layers[] = {
        mu_random_shear_with(ITS(1, mu_random_shear_args, BOTH(x_factor, f), BOTH(y_factor, f), .interpolation = how)),
        mu_random_translation_with(
            ITS(2, mu_random_move_args, BOTH(height_factor, f), BOTH(width_factor, f), .interpolation = how)),
        mu_random_rotation_with(ITS(3, mu_random_rotation_args, BOTH(factor, f), .interpolation = how)),
        mu_random_brightness_with(COLOR(4, BOTH(factor, f))),
        mu_random_color_degeneration_with(COLOR(5, BOTH(factor, f))),
        mu_random_contrast_with(COLOR(6, BOTH(factor, f))),
        mu_random_sharpness_with(COLOR(7, BOTH(factor, f))),
        mu_random_posterization_with(COLOR(8, .factor = {1, bits})),
        mu_solarization_with(ITS(9, mu_solarization_args, BOTH(addition_factor, f), BOTH(threshold_factor, f),
                                 BOTH(value_range, range))),
        mu_auto_contrast(BOTH(value_range, range), .dtype = args->dtype),
        mu_equalization(BOTH(value_range, range), .dtype = args->dtype),
    };
#undef COLOR
    for (size_t i = 0; i < MU_COUNT(layers) && !mu__pending(); i++)
        MU_TRY(mu__layer_adopt(layer, layers[i]));
    return mu__pending() ? mu_error_code() : mu__layer_name_sublayers(layer, "mu_rand_augment");
}

static mu_status rand_augment_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_rand_augment_args *args = layer->args;
    MU_TRY(mu__image_sizes_known(layer, n, input));
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(mu__layer_build(layer->sublayers.items[i], n, input));
    return mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_tensor *changed(const mu_layer *layer, size_t i, mu_tensor *x)
{
    const mu_call_context training = {.training = true};
    mu_value *in = x ? mu_of(x) : NULL;
    mu_value *out = in ? mu__layer_call(layer->sublayers.items[i], in, &training, NULL) : NULL;
    return out ? mu_at(out, 0) : NULL;
}

// The images after the change of a drawn number. In a trace all changes are computed, and one of them is taken.
static mu_tensor *changed_by(const mu_layer *layer, mu_tensor *number, mu_tensor *x)
{
    mu_tensor *y = x;
    if (number && !number->node)
        return changed(layer, (size_t)mu_scalar(number), x);
    for (size_t i = 0; i < layer->sublayers.n && y; i++)
        y = mu_where(mu_equal(number, mu_constant(MU_I32, (double)i)), changed(layer, i, x), y);
    return y;
}

static mu_value *rand_augment_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_rand_augment_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training || !x)
        return inputs;
    for (int i = 0; i < args->num_ops && x; i++) {
        mu_tensor *number = mu_stateless_random_uniform_int(mu__weight_next_seed(layer), MU_I32, 0, NULL, 0,
                                                            (int64_t)layer->sublayers.n);
        x = number ? changed_by(layer, number, x) : NULL;
    }
    return x ? mu_of(x) : NULL;
}

MU_LAYER_CLASS(rand_augment, "rand_augment", "RandAugment", mu_rand_augment_args, rand_augment_fields,
               rand_augment_complete, .axes = 2, .make = rand_augment_make, .build = rand_augment_build,
               .call = rand_augment_call)
