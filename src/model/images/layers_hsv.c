// Layers that change hue and saturation of images, and all four of their colours' properties at once.
#include "model/core/layer.h"
#include "model/images/augment.h"

#include <math.h>

#include <muster/ops.h>
#include <muster/preprocessing.h>

// ---- Hue, saturation and value ------------------------------------------------------------------

typedef struct hsv {
    mu_tensor *hue, *saturation, *value; // [batch, height, width]
} hsv;

static mu_tensor *times(mu_tensor *x, double factor) { return x ? mu_multiply(x, mu__number_like(x, factor)) : NULL; }
static mu_tensor *plus(mu_tensor *x, double number) { return x ? mu_add(x, mu__number_like(x, number)) : NULL; }

// Hues go from 0 to 1; a grey pixel has hue 0, a black one saturation 0. (Smith, "Color gamut transform pairs", 1978)
static mu_status to_hsv(mu_tensor *x, hsv *out)
{
    mu_tensor *rgb[3];
    MU_TRY(x ? mu_unstack(x, 3, -1, rgb) : mu_error_code());
    mu_tensor *r = rgb[0], *g = rgb[1], *b = rgb[2], *zeros = mu_zeros_like(r);
    mu_tensor *value = mu_maximum(mu_maximum(r, g), b);
    mu_tensor *extent = mu_subtract(value, mu_minimum(mu_minimum(r, g), b));
    mu_tensor *coloured = mu_greater(extent, zeros);
    mu_tensor *sixth = mu_divide(mu__number_like(x, 1. / 6), mu_where(coloured, extent, mu_ones_like(r)));
    mu_tensor *of_g = plus(mu_multiply(sixth, mu_subtract(b, r)), 2. / 6);
    mu_tensor *of_b = plus(mu_multiply(sixth, mu_subtract(r, g)), 4. / 6);
    mu_tensor *hue =
        mu_where(mu_equal(r, value), mu_multiply(sixth, mu_subtract(g, b)), mu_where(mu_equal(g, value), of_g, of_b));
    hue = mu_where(coloured, hue, zeros);
    out->hue = mu_where(mu_less(hue, zeros), plus(hue, 1), hue);
    mu_tensor *bright = mu_greater(value, zeros);
    out->saturation = mu_where(bright, mu_divide(extent, mu_where(bright, value, mu_ones_like(r))), zeros);
    out->value = value;
    return mu_error_code();
}

static mu_tensor *between_0_and_1(mu_tensor *x) { return mu__image_limited(x, (double[]){0, 1}); }

static mu_tensor *from_hsv(const hsv *from)
{
    mu_tensor *six = times(from->hue, 6), *rest = plus(mu_neg(from->saturation), 1), *rgb[3];
    rgb[0] = plus(mu_abs(plus(six, -3)), -1);
    rgb[1] = plus(mu_neg(mu_abs(plus(six, -2))), 2);
    rgb[2] = plus(mu_neg(mu_abs(plus(six, -4))), 2);
    for (int i = 0; i < 3; i++)
        rgb[i] = mu_multiply(mu_add(rest, mu_multiply(from->saturation, between_0_and_1(rgb[i]))), from->value);
    return mu__pending() ? NULL : mu_stack(3, rgb, -1);
}

// A number for each image, for one channel: [batch, 1, 1].
static mu_tensor *channel_numbers(const mu_layer *layer, mu_tensor *x, double low, double high)
{
    mu_tensor *numbers = mu__image_numbers(layer, x, low, high);
    return numbers ? mu_squeeze(numbers, 3) : NULL;
}

// Hues move by up to half a turn, to either side.
static mu_tensor *with_hue(const mu_layer *layer, mu_tensor *x, const double factor[2], const double value_range[2])
{
    static const double unit[2] = {0, 1};
    hsv colours;
    if (to_hsv(mu__image_stretched(x, value_range, unit), &colours) != MU_OK)
        return NULL;
    mu_tensor *side = channel_numbers(layer, x, -.5, .5);
    mu_tensor *turn = channel_numbers(layer, x, factor[0] / 2, factor[1] / 2);
    mu_tensor *hue = mu_add(colours.hue, mu_where(mu_less(side, mu__number_like(x, 0)), mu_neg(turn), turn));
    hue = mu_where(mu_greater(hue, mu__number_like(x, 1)), plus(hue, -1), hue);
    colours.hue = mu_where(mu_less(hue, mu__number_like(x, 0)), plus(hue, 1), hue);
    mu_tensor *y = between_0_and_1(from_hsv(&colours));
    return y ? mu__image_stretched(y, unit, value_range) : NULL;
}

// As in Keras, value_range limits the saturation, which is from 0 to 1 in images that were not changed.
static mu_tensor *with_saturation(const mu_layer *layer, mu_tensor *x, const double factor[2],
                                  const double value_range[2])
{
    hsv colours;
    if (to_hsv(x, &colours) != MU_OK)
        return NULL;
    mu_tensor *f = channel_numbers(layer, x, factor[0], factor[1]);
    mu_tensor *ratio = mu_divide(f, plus(mu_neg(f), 1 + 1e-7));
    colours.saturation = mu__image_limited(mu_multiply(colours.saturation, ratio), value_range);
    return from_hsv(&colours);
}

// ---- The layers ---------------------------------------------------------------------------------

static const mu_field color_fields[] = MU_COLOR_FIELDS(.number = 0);

static mu_status colors_build(mu_layer *layer, int n, const mu_shape *input)
{
    MU_TRY(mu__color_build(layer, n, input));
    return mu__need_colors(layer, input, false);
}

static mu_status hue_complete(void *args)
{
    return mu__in_order(((const mu_random_color_args *)args)->factor, 0, 1, "mu_random_hue", "factor");
}

static mu_value *hue_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_args *args = layer->args;
    return context->training ? mu_of(with_hue(layer, mu_at(inputs, 0), args->factor, args->value_range)) : inputs;
}

static mu_status saturation_complete(void *args)
{
    return mu__in_order(((const mu_random_color_args *)args)->factor, 0, 1, "mu_random_saturation", "factor");
}

static mu_value *saturation_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_args *args = layer->args;
    if (!context->training)
        return inputs;
    return mu_of(with_saturation(layer, mu_at(inputs, 0), args->factor, args->value_range));
}

MU_LAYER_CLASS(random_hue, "random_hue", "RandomHue", mu_random_color_args, color_fields, hue_complete, .axes = 2,
               .build = colors_build, .call = hue_call)
MU_LAYER_CLASS(random_saturation, "random_saturation", "RandomSaturation", mu_random_color_args, color_fields,
               saturation_complete, .axes = 2, .build = colors_build, .call = saturation_call)

// ---- All of them --------------------------------------------------------------------------------

#define OPTIONAL .number = NAN, .high = NAN
static const mu_field jitter_fields[] = {
    MU_FIELD(mu_random_color_jitter_args, value_range, RANGE, .number = 0, .high = 255),
    MU_FIELD(mu_random_color_jitter_args, brightness_factor, RANGE, OPTIONAL),
    MU_FIELD(mu_random_color_jitter_args, contrast_factor, RANGE, OPTIONAL),
    MU_FIELD(mu_random_color_jitter_args, saturation_factor, RANGE, OPTIONAL),
    MU_FIELD(mu_random_color_jitter_args, hue_factor, RANGE, OPTIONAL),
    MU_FIELD(mu_random_color_jitter_args, seed, SEED),
    MU_LAYER_FIELDS(mu_random_color_jitter_args),
    {0},
};

// A single number f in Keras's configuration was read as {-f, f}, which is {low, f} where factors are not negative.
static mu_status complete_factor(double factor[2], double low, const char *option)
{
    if (isnan(factor[0]))
        return MU_OK;
    if (factor[0] < 0 && factor[0] == -factor[1])
        factor[0] = low;
    return mu__in_order(factor, 0, 1, "mu_random_color_jitter", option);
}

static mu_status jitter_complete(void *arguments)
{
    mu_random_color_jitter_args *args = arguments;
    if (!isnan(args->brightness_factor[0]))
        MU_TRY(mu__in_order(args->brightness_factor, -1, 1, "mu_random_color_jitter", "brightness_factor"));
    MU_TRY(complete_factor(args->contrast_factor, args->contrast_factor[1], "contrast_factor"));
    MU_TRY(complete_factor(args->saturation_factor, 0, "saturation_factor"));
    return complete_factor(args->hue_factor, 0, "hue_factor");
}

static mu_status jitter_build(mu_layer *layer, int n, const mu_shape *input)
{
    const mu_random_color_jitter_args *args = layer->args;
    MU_TRY(mu__random_build(layer, n, input, MU_GIVEN(args, seed) ? &args->seed : NULL));
    return isnan(args->saturation_factor[0]) && isnan(args->hue_factor[0]) ? MU_OK
                                                                           : mu__need_colors(layer, input, false);
}

static mu_value *jitter_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_random_color_jitter_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->training)
        return inputs;
    const struct {
        const double *factor;
        mu_tensor *(*changed)(const mu_layer *layer, mu_tensor *x, const double factor[2], const double value_range[2]);
    } steps[] = {{args->brightness_factor, mu__image_brighter},
                 {args->contrast_factor, mu__image_contrasted},
                 {args->saturation_factor, with_saturation},
                 {args->hue_factor, with_hue}};
    for (size_t i = 0; i < MU_COUNT(steps) && x; i++)
        if (!isnan(steps[i].factor[0]))
            x = steps[i].changed(layer, x, steps[i].factor, args->value_range);
    return mu_of(x);
}

MU_LAYER_CLASS(random_color_jitter, "random_color_jitter", "RandomColorJitter", mu_random_color_jitter_args,
               jitter_fields, jitter_complete, .axes = 2, .build = jitter_build, .call = jitter_call)
