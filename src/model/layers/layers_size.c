// Layers that change the size of sequences, images and volumes: up-sampling, zero padding, cropping.

#include "model/core/layer.h"
#include "ops/spatial/image_size.h"

#include <muster/ops.h>

// ---- Up-sampling --------------------------------------------------------------------------------

static const mu_field up_sampling1d_fields[] = {
    MU_FIELD(mu_up_sampling1d_args, factor, INT, .keras = "size", .limit = MU_POSITIVE, .number = 2),
    MU_LAYER_FIELDS(mu_up_sampling1d_args),
    {0},
};
static const mu_field up_sampling2d_fields[] = {
    MU_FIELD_PER_AXIS(mu_up_sampling2d_args, factor, 2, .keras = "size", .limit = MU_POSITIVE, .number = 2),
    MU_FIELD(mu_up_sampling2d_args, interpolation, CHOICE, .text = "nearest", .choices = mu__interpolations),
    MU_LAYER_FIELDS(mu_up_sampling2d_args),
    {0},
};
static const mu_field up_sampling3d_fields[] = {
    MU_FIELD_PER_AXIS(mu_up_sampling3d_args, factor, 3, .keras = "size", .limit = MU_POSITIVE, .number = 2),
    MU_LAYER_FIELDS(mu_up_sampling3d_args),
    {0},
};

static mu_tensor *repeat_elements(mu_tensor *x, int axes, const int *factors)
{
    for (int i = 0; i < axes && x; i++)
        x = mu_repeat(x, factors[i], i + 1);
    return x;
}

static mu_value *up_sampling1d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return mu_of(repeat_elements(mu_at(inputs, 0), 1, &((const mu_up_sampling1d_args *)layer->args)->factor));
}

static mu_value *up_sampling2d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_up_sampling2d_args *args = layer->args;
    const int *factors = args->factor_per_axis;
    mu_tensor *x = mu_at(inputs, 0);
    if (strcmp(args->interpolation, "nearest") == 0)
        return mu_of(repeat_elements(x, 2, factors));
    const int64_t height = mu_tensor_dim(x, 1), width = mu_tensor_dim(x, 2);
    if (height == MU_UNKNOWN || width == MU_UNKNOWN) {
        mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs images of known height and width for interpolation '%s'",
                  mu_layer_name(layer), args->interpolation);
        return NULL;
    }
    return mu_of(mu__resize_images(x, height * factors[0], width * factors[1], args->interpolation, false));
}

static mu_value *up_sampling3d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return mu_of(repeat_elements(mu_at(inputs, 0), 3, ((const mu_up_sampling3d_args *)layer->args)->factor_per_axis));
}

MU_LAYER_CLASS(up_sampling1d, "up_sampling1d", "UpSampling1D", mu_up_sampling1d_args, up_sampling1d_fields, NULL,
               .keeps_type = true, .axes = 1, .build = mu__need_spatial, .call = up_sampling1d_call)
MU_LAYER_CLASS(up_sampling2d, "up_sampling2d", "UpSampling2D", mu_up_sampling2d_args, up_sampling2d_fields, NULL,
               .keeps_type = true, .axes = 2, .build = mu__need_spatial, .call = up_sampling2d_call)
MU_LAYER_CLASS(up_sampling3d, "up_sampling3d", "UpSampling3D", mu_up_sampling3d_args, up_sampling3d_fields, NULL,
               .keeps_type = true, .axes = 3, .build = mu__need_spatial, .call = up_sampling3d_call)

// ---- Zero padding -------------------------------------------------------------------------------

#define PADDING_FIELDS(axes)                                                                           \
    {                                                                                                  \
        MU_FIELD_PER_SIDE(mu_zero_padding_args, padding, axes, .limit = MU_NOT_NEGATIVE, .number = 1), \
            MU_LAYER_FIELDS(mu_zero_padding_args),                                                     \
        {                                                                                              \
            0                                                                                          \
        }                                                                                              \
    }
static const mu_field zero_padding1d_fields[] = PADDING_FIELDS(1);
static const mu_field zero_padding2d_fields[] = PADDING_FIELDS(2);
static const mu_field zero_padding3d_fields[] = PADDING_FIELDS(3);

static mu_value *zero_padding_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const int *sides = ((const mu_zero_padding_args *)layer->args)->padding_per_side;
    int64_t before[MU_MAX_RANK] = {0}, after[MU_MAX_RANK] = {0};
    for (int i = 0; i < layer->ops->axes; i++) {
        before[i + 1] = sides[2 * i];
        after[i + 1] = sides[2 * i + 1];
    }
    return mu_of(mu_pad(mu_at(inputs, 0), before, after, NULL, 0));
}

#define ZERO_PADDING(word, keras_class, n_axes)                                                             \
    MU_LAYER_CLASS(word, #word, keras_class, mu_zero_padding_args, word##_fields, NULL, .keeps_type = true, \
                   .axes = n_axes, .build = mu__need_spatial, .call = zero_padding_call)
ZERO_PADDING(zero_padding1d, "ZeroPadding1D", 1)
ZERO_PADDING(zero_padding2d, "ZeroPadding2D", 2)
ZERO_PADDING(zero_padding3d, "ZeroPadding3D", 3)

// ---- Cropping -----------------------------------------------------------------------------------

#define CROPPING_FIELDS(axes, by_default)                                                                    \
    {                                                                                                        \
        MU_FIELD_PER_SIDE(mu_cropping_args, cropping, axes, .limit = MU_NOT_NEGATIVE, .number = by_default), \
            MU_LAYER_FIELDS(mu_cropping_args),                                                               \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
static const mu_field cropping1d_fields[] = CROPPING_FIELDS(1, 1);
static const mu_field cropping2d_fields[] = CROPPING_FIELDS(2, 0);
static const mu_field cropping3d_fields[] = CROPPING_FIELDS(3, 1);

static mu_status cropping_build(mu_layer *layer, int n, const mu_shape *input)
{
    const int *sides = ((const mu_cropping_args *)layer->args)->cropping_per_side;
    MU_TRY(mu__need_spatial(layer, n, input));
    for (int i = 0; i < layer->ops->axes; i++)
        if (input->dims[i + 1] != MU_UNKNOWN && input->dims[i + 1] <= (int64_t)sides[2 * i] + sides[2 * i + 1])
            return mu__error(
                MU_INVALID_ARGUMENT,
                "layer '%s' removes %d and %d elements of spatial axis %d, which has %lld; one or more must be left",
                mu_layer_name(layer), sides[2 * i], sides[2 * i + 1], i, (long long)input->dims[i + 1]);
    return MU_OK;
}

static mu_value *cropping_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const int *sides = ((const mu_cropping_args *)layer->args)->cropping_per_side;
    int64_t begin[MU_MAX_RANK] = {0}, end[MU_MAX_RANK] = {0}, strides[MU_MAX_RANK];
    unsigned open = ~0u; // the ends that no element is removed from
    for (int i = 0; i < MU_MAX_RANK; i++)
        strides[i] = 1;
    for (int i = 0; i < layer->ops->axes; i++) {
        begin[i + 1] = sides[2 * i];
        end[i + 1] = -(int64_t)sides[2 * i + 1];
        open &= sides[2 * i + 1] ? ~(1u << (i + 1)) : ~0u;
    }
    return mu_of(mu_strided_slice(mu_at(inputs, 0), begin, end, strides, 0, open, 0));
}

#define CROPPING(word, keras_class, n_axes)                                                             \
    MU_LAYER_CLASS(word, #word, keras_class, mu_cropping_args, word##_fields, NULL, .keeps_type = true, \
                   .axes = n_axes, .build = cropping_build, .call = cropping_call)
CROPPING(cropping1d, "Cropping1D", 1)
CROPPING(cropping2d, "Cropping2D", 2)
CROPPING(cropping3d, "Cropping3D", 3)
