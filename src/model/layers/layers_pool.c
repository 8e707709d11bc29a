// Pooling layers for 1 to 3 spatial axes: of windows, of all positions, and of a number of windows (adaptive).

#include "model/core/layer.h"

#include <muster/nn.h>
#include <muster/ops.h>

// What a class takes of its windows.
typedef enum pooling { MAXIMUM, AVERAGE } pooling;

// The maximum or the mean of the windows of x, which has `axes` spatial axes.
static mu_tensor *pool(pooling which, int axes, mu_tensor *x, const int *w, const int *s, const char *padding)
{
    if (axes == 1) {
        const mu_nn_pool1d_args one = {.size = sizeof one, .x = x, .window = w[0], .stride = s[0], .padding = padding};
        return which == MAXIMUM ? mu_nn_max_pool1d_with(&one) : mu_nn_avg_pool1d_with(&one);
    }
    if (axes == 2) {
        const mu_nn_pool2d_args two = {
            .size = sizeof two, .x = x, .window = {w[0], w[1]}, .strides = {s[0], s[1]}, .padding = padding};
        return which == MAXIMUM ? mu_nn_max_pool2d_with(&two) : mu_nn_avg_pool2d_with(&two);
    }
    const mu_nn_pool3d_args three = {
        .size = sizeof three, .x = x, .window = {w[0], w[1], w[2]}, .strides = {s[0], s[1], s[2]}, .padding = padding};
    return which == MAXIMUM ? mu_nn_max_pool3d_with(&three) : mu_nn_avg_pool3d_with(&three);
}

// A class for each number of axes.
#define CLASSES(word, snake, keras_class, args_type, fields, completer, ...)                                   \
    MU_LAYER_CLASS(word##1d, snake "1d", keras_class "1D", args_type, fields##1d_fields, completer, .axes = 1, \
                   __VA_ARGS__)                                                                                \
    MU_LAYER_CLASS(word##2d, snake "2d", keras_class "2D", args_type, fields##2d_fields, completer, .axes = 2, \
                   __VA_ARGS__)                                                                                \
    MU_LAYER_CLASS(word##3d, snake "3d", keras_class "3D", args_type, fields##3d_fields, completer, .axes = 3, \
                   __VA_ARGS__)

// ---- Windows ------------------------------------------------------------------------------------

#define POOL_FIELDS(axes)                                                                      \
    {                                                                                          \
        MU_FIELD_PER_AXIS(mu_pool_args, pool_size, axes, .limit = MU_POSITIVE, .number = 2),   \
            MU_FIELD_PER_AXIS(mu_pool_args, strides, axes, .limit = MU_NOT_NEGATIVE),          \
            MU_FIELD(mu_pool_args, padding, CHOICE, .text = "valid", .choices = mu__paddings), \
            MU_LAYER_FIELDS(mu_pool_args),                                                     \
        {                                                                                      \
            0                                                                                  \
        }                                                                                      \
    }
static const mu_field pool1d_fields[] = POOL_FIELDS(1);
static const mu_field pool2d_fields[] = POOL_FIELDS(2);
static const mu_field pool3d_fields[] = POOL_FIELDS(3);

static mu_status pool_complete(void *arguments)
{
    mu_pool_args *args = arguments;
    for (int i = 0; i < 3; i++)
        if (args->strides_per_axis[i] == 0)
            args->strides_per_axis[i] = args->pool_size_per_axis[i];
    return MU_OK;
}

static mu_value *pool_layer(const mu_layer *layer, mu_value *inputs, pooling which)
{
    const mu_pool_args *args = layer->args;
    return mu_of(pool(which, layer->ops->axes, mu_at(inputs, 0), args->pool_size_per_axis, args->strides_per_axis,
                      args->padding));
}

static mu_value *max_pool_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return pool_layer(layer, inputs, MAXIMUM);
}

static mu_value *average_pool_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return pool_layer(layer, inputs, AVERAGE);
}

CLASSES(max_pool, "max_pooling", "MaxPooling", mu_pool_args, pool, pool_complete, .build = mu__need_spatial,
        .call = max_pool_call)
CLASSES(average_pool, "average_pooling", "AveragePooling", mu_pool_args, pool, pool_complete, .build = mu__need_spatial,
        .call = average_pool_call)

// ---- All positions ------------------------------------------------------------------------------

static const int spatial_axes[] = {1, 2, 3};

static const mu_field global_fields[] = {
    MU_FIELD(mu_global_pool_args, keepdims, FLAG),
    MU_LAYER_FIELDS(mu_global_pool_args),
    {0},
};
#define global1d_fields global_fields
#define global2d_fields global_fields
#define global3d_fields global_fields

static mu_value *global_max_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_global_pool_args *args = layer->args;
    return mu_of(
        mu_reduce_max(mu_at(inputs, 0), .axes = spatial_axes, .n_axes = layer->ops->axes, .keep_dims = args->keepdims));
}

// The mask of a sequence says which steps count, in the sum and in the number of steps.
static mu_value *global_average_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_global_pool_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0), *mask = mu__mask_at(context->mask, 0);
    if (!mask || layer->ops->axes > 1)
        return mu_of(mu_reduce_mean(x, .axes = spatial_axes, .n_axes = layer->ops->axes, .keep_dims = args->keepdims));
    if (!(mask = mu__step_mask(layer, x, mask, 2)))
        return NULL;
    mu_tensor *counts = mu_expand_dims(mu_cast(mask, MU_BOOL), -1);
    mu_tensor *sum = mu_reduce_sum(mu_where(counts, x, mu_zeros_like(x)), spatial_axes[0], .keep_dims = args->keepdims);
    mu_tensor *n = mu_reduce_sum(mu_cast(counts, x->dtype), spatial_axes[0], .keep_dims = args->keepdims);
    return mu_of(mu_divide(sum, n));
}

CLASSES(global_max_pool, "global_max_pooling", "GlobalMaxPooling", mu_global_pool_args, global, NULL,
        .build = mu__need_spatial, .call = global_max_call)
CLASSES(global_average_pool, "global_average_pooling", "GlobalAveragePooling", mu_global_pool_args, global, NULL,
        .build = mu__need_spatial, .call = global_average_call)

// ---- Adaptive -----------------------------------------------------------------------------------

#define ADAPTIVE_FIELDS(axes)                                                              \
    {                                                                                      \
        MU_FIELD_PER_AXIS(mu_adaptive_pool_args, output_size, axes, .limit = MU_POSITIVE), \
            MU_LAYER_FIELDS(mu_adaptive_pool_args),                                        \
        {                                                                                  \
            0                                                                              \
        }                                                                                  \
    }
static const mu_field adaptive1d_fields[] = ADAPTIVE_FIELDS(1);
static const mu_field adaptive2d_fields[] = ADAPTIVE_FIELDS(2);
static const mu_field adaptive3d_fields[] = ADAPTIVE_FIELDS(3);

static mu_status adaptive_build(mu_layer *layer, int n, const mu_shape *input)
{
    char text[MU_SHAPE_TEXT];
    MU_TRY(mu__need_spatial(layer, n, input));
    for (int i = 1; i <= layer->ops->axes; i++)
        if (input->dims[i] == MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s' needs known spatial axes, which its windows follow from; it was given %s",
                             mu_layer_name(layer), mu__shape_text(input, text));
    return MU_OK;
}

// Windows have one of at most two sizes: all windows of either size, then those wanted, chosen by their positions.
static mu_tensor *adapt_axis(pooling which, int axes, mu_tensor *x, int axis, int64_t outputs)
{
    const int64_t n = mu_tensor_dim(x, axis + 1);
    int64_t small = n, large = 0;
    int32_t *indices = mu__calloc((size_t)outputs, sizeof *indices);
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t size = ((i + 1) * n + outputs - 1) / outputs - i * n / outputs;
        small = MU_MIN(small, size);
        large = MU_MAX(large, size);
    }
    for (int64_t i = 0; indices && i < outputs; i++) {
        const int64_t begin = i * n / outputs, end = ((i + 1) * n + outputs - 1) / outputs;
        indices[i] = (int32_t)(end - begin == small ? begin : n - small + 1 + begin);
    }
    int sizes[3] = {1, 1, 1};
    const int ones[3] = {1, 1, 1};
    sizes[axis] = (int)small;
    mu_tensor *windows = pool(which, axes, x, sizes, ones, "valid");
    sizes[axis] = (int)large;
    if (large > small) {
        mu_tensor *both[] = {windows, pool(which, axes, x, sizes, ones, "valid")};
        windows = both[0] && both[1] ? mu_concat(2, both, axis + 1) : NULL;
    }
    mu_tensor *chosen = indices ? mu_tensor_new(MU_I32, 1, &outputs, indices) : NULL;
    mu__free(indices);
    return chosen ? mu_gather(windows, chosen, axis + 1, 0) : NULL;
}

static mu_value *adapt(const mu_layer *layer, mu_value *inputs, pooling which)
{
    const mu_adaptive_pool_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    for (int i = 0; i < layer->ops->axes && x; i++)
        x = adapt_axis(which, layer->ops->axes, x, i, args->output_size_per_axis[i]);
    return mu_of(x);
}

static mu_value *adaptive_max_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return adapt(layer, inputs, MAXIMUM);
}

static mu_value *adaptive_average_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return adapt(layer, inputs, AVERAGE);
}

CLASSES(adaptive_max_pool, "adaptive_max_pooling", "AdaptiveMaxPooling", mu_adaptive_pool_args, adaptive, NULL,
        .build = adaptive_build, .call = adaptive_max_call)
CLASSES(adaptive_average_pool, "adaptive_average_pooling", "AdaptiveAveragePooling", mu_adaptive_pool_args, adaptive,
        NULL, .build = adaptive_build, .call = adaptive_average_call)
