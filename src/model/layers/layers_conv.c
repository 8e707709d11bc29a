// Convolution layers for 1 to 3 spatial axes: plain, transposed, depthwise and separable.
//
// Classes that differ in the number of axes have the same functions, which read it from ops->axes.

#include "model/core/layer.h"

#include <muster/nn.h>
#include <muster/ops.h>

const char *const mu__paddings[] = {"valid", "same", NULL};
static const char *const causal_paddings[] = {"valid", "same", "causal", NULL};

// ---- Shared -------------------------------------------------------------------------------------

mu_status mu__need_spatial(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    return mu__need_input_rank(layer, input, layer->ops->axes + 2, layer->ops->axes + 2);
}

static mu_status need_channels(mu_layer *layer, const mu_shape *input)
{
    MU_TRY(mu__need_spatial(layer, 1, input));
    return mu__need_last_axis(layer, input);
}

mu_shape mu__kernel_shape(const mu_layer *layer, const int *sizes, int64_t rows, int64_t columns)
{
    const int axes = layer->ops->axes;
    mu_shape shape = {.rank = axes + 2};
    for (int i = 0; i < axes; i++)
        shape.dims[i] = sizes[i];
    shape.dims[axes] = rows;
    shape.dims[axes + 1] = columns;
    return shape;
}

static mu_value *bias_and_activation(const mu_layer *layer, mu_tensor *y, const char *activation)
{
    mu_tensor *bias = mu__weight_read(layer, "bias");
    return mu_of(mu__activate(activation, bias ? mu_nn_bias_add(y, bias) : y));
}

// A kernel's options, and those that all convolutions end with.
#define KERNEL_FIELDS(type, kernel) MU_FIELD_WEIGHT(type, kernel, "glorot_uniform")
#define OUTPUT_FIELDS(type)                                                                      \
    MU_FIELD(type, activation, ACTIVATION), MU_FIELD(type, no_bias, NOT, .keras = "use_bias"),   \
        MU_FIELD_WEIGHT(type, bias, "zeros"), MU_FIELD(type, activity_regularizer, REGULARIZER), \
        MU_LAYER_FIELDS(type),                                                                   \
    {                                                                                            \
        0                                                                                        \
    }

// ---- Convolution --------------------------------------------------------------------------------

#define CONV_FIELDS(axes, padding_words)                                            \
    {                                                                               \
        MU_FIELD(mu_conv_args, filters, INT, .limit = MU_POSITIVE),                 \
            MU_WINDOW_FIELDS(mu_conv_args, axes, padding_words),                    \
            MU_FIELD(mu_conv_args, groups, INT, .limit = MU_POSITIVE, .number = 1), \
            KERNEL_FIELDS(mu_conv_args, kernel), OUTPUT_FIELDS(mu_conv_args)        \
    }
static const mu_field conv1d_fields[] = CONV_FIELDS(1, causal_paddings);
static const mu_field conv2d_fields[] = CONV_FIELDS(2, mu__paddings);
static const mu_field conv3d_fields[] = CONV_FIELDS(3, mu__paddings);

static mu_status conv_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_conv_args *args = layer->args;
    MU_TRY(need_channels(layer, input));
    const int64_t channels = input->dims[input->rank - 1];
    if (channels % args->groups || args->filters % args->groups)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': %d groups divide neither %lld input channels nor %d filters evenly",
                         mu_layer_name(layer), args->groups, (long long)channels, args->filters);
    const mu_shape kernel = mu__kernel_shape(layer, args->kernel_size_per_axis, channels / args->groups, args->filters);
    MU_TRY(mu__weight(layer, "kernel", kernel, MU_OPTIONS_OF(args, kernel)));
    return args->no_bias ? MU_OK : mu__weight(layer, "bias", MU_SHAPE(args->filters), MU_OPTIONS_OF(args, bias));
}

mu_tensor *mu__convolve(int axes, mu_tensor *x, mu_tensor *kernel, const mu_conv_args *args)
{
    const int *strides = args->strides_per_axis, *dilations = args->dilation_rate_per_axis;
    if (axes == 1)
        return mu_nn_conv1d(x, kernel, .stride = strides[0], .dilation = dilations[0], .padding = args->padding,
                            .groups = args->groups);
    if (axes == 2)
        return mu_nn_conv2d(x, kernel, .strides = {strides[0], strides[1]}, .dilations = {dilations[0], dilations[1]},
                            .padding = args->padding, .groups = args->groups);
    return mu_nn_conv3d(x, kernel, .strides = {strides[0], strides[1], strides[2]},
                        .dilations = {dilations[0], dilations[1], dilations[2]}, .padding = args->padding,
                        .groups = args->groups);
}

static mu_value *conv_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_conv_args *args = layer->args;
    mu_tensor *y = mu__convolve(layer->ops->axes, mu_at(inputs, 0), mu__weight_read(layer, "kernel"), args);
    return bias_and_activation(layer, y, args->activation);
}

#define CONV(word, snake, keras_class, n_axes)                                                                       \
    MU_LAYER_CLASS(word, snake, keras_class, mu_conv_args, word##_fields, NULL, .axes = n_axes, .build = conv_build, \
                   .call = conv_call)
CONV(conv1d, "conv1d", "Conv1D", 1)
CONV(conv2d, "conv2d", "Conv2D", 2)
CONV(conv3d, "conv3d", "Conv3D", 3)

// ---- Transposed ---------------------------------------------------------------------------------

#define TRANSPOSE_FIELDS(axes)                                                                                       \
    {                                                                                                                \
        MU_FIELD(mu_conv_transpose_args, filters, INT, .limit = MU_POSITIVE),                                        \
            MU_WINDOW_FIELDS(mu_conv_transpose_args, axes, mu__paddings),                                            \
            MU_FIELD_PER_AXIS(mu_conv_transpose_args, output_padding, axes, .limit = MU_NOT_NEGATIVE, .number = -1), \
            KERNEL_FIELDS(mu_conv_transpose_args, kernel), OUTPUT_FIELDS(mu_conv_transpose_args)                     \
    }
static const mu_field conv1d_transpose_fields[] = TRANSPOSE_FIELDS(1);
static const mu_field conv2d_transpose_fields[] = TRANSPOSE_FIELDS(2);
static const mu_field conv3d_transpose_fields[] = TRANSPOSE_FIELDS(3);

static mu_status transpose_complete(void *arguments)
{
    const mu_conv_transpose_args *args = arguments;
    for (int i = 0; i < 3 && args->strides_per_axis[i] > 0; i++)
        if (args->output_padding_per_axis[i] >= args->strides_per_axis[i])
            return mu__error(MU_INVALID_ARGUMENT,
                             "transposed convolution: output_padding is %d along spatial axis %d; it must be below "
                             "strides, which is %d",
                             args->output_padding_per_axis[i], i, args->strides_per_axis[i]);
    return MU_OK;
}

static mu_status transpose_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_conv_transpose_args *args = layer->args;
    MU_TRY(need_channels(layer, input));
    const mu_shape kernel =
        mu__kernel_shape(layer, args->kernel_size_per_axis, args->filters, input->dims[input->rank - 1]);
    MU_TRY(mu__weight(layer, "kernel", kernel, MU_OPTIONS_OF(args, kernel)));
    return args->no_bias ? MU_OK : mu__weight(layer, "bias", MU_SHAPE(args->filters), MU_OPTIONS_OF(args, bias));
}

// The size of the result along each axis; 0: the transposed convolution chooses it as Keras does.
static mu_status result_sizes(const mu_layer *layer, const mu_tensor *x, int64_t *sizes)
{
    const mu_conv_transpose_args *args = layer->args;
    const bool same = strcmp(args->padding, "same") == 0;
    for (int i = 0; i < layer->ops->axes; i++) {
        const int64_t n = mu_tensor_dim(x, i + 1), more = args->output_padding_per_axis[i];
        const int64_t size = (args->kernel_size_per_axis[i] - 1) * (int64_t)args->dilation_rate_per_axis[i] + 1;
        if (n == MU_UNKNOWN)
            return mu__error(
                MU_INVALID_ARGUMENT,
                "layer '%s' needs known spatial axes, which the size of its result follows from; axis %d is unknown",
                mu_layer_name(layer), i + 1);
        sizes[i] = more < 0 ? 0 : (n - 1) * args->strides_per_axis[i] + (same ? size % 2 : size) + more;
    }
    return MU_OK;
}

static mu_tensor *convolve_transposed(int axes, mu_tensor *x, mu_tensor *kernel, const mu_conv_transpose_args *args,
                                      const int64_t *sizes)
{
    const int *strides = args->strides_per_axis, *dilations = args->dilation_rate_per_axis;
    if (axes == 1)
        return mu_nn_conv1d_transpose(x, kernel, .output_size = sizes[0], .stride = strides[0],
                                      .dilation = dilations[0], .padding = args->padding);
    if (axes == 2)
        return mu_nn_conv2d_transpose(x, kernel, .output_size = {sizes[0], sizes[1]},
                                      .strides = {strides[0], strides[1]}, .dilations = {dilations[0], dilations[1]},
                                      .padding = args->padding);
    return mu_nn_conv3d_transpose(x, kernel, .output_size = {sizes[0], sizes[1], sizes[2]},
                                  .strides = {strides[0], strides[1], strides[2]},
                                  .dilations = {dilations[0], dilations[1], dilations[2]}, .padding = args->padding);
}

static mu_value *transpose_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_conv_transpose_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    int64_t sizes[3] = {0};
    if (!x || result_sizes(layer, x, sizes) != MU_OK)
        return NULL;
    mu_tensor *y = convolve_transposed(layer->ops->axes, x, mu__weight_read(layer, "kernel"), args, sizes);
    return bias_and_activation(layer, y, args->activation);
}

#define TRANSPOSE(word, snake, keras_class, n_axes)                                                     \
    MU_LAYER_CLASS(word, snake, keras_class, mu_conv_transpose_args, word##_fields, transpose_complete, \
                   .axes = n_axes, .build = transpose_build, .call = transpose_call)
TRANSPOSE(conv1d_transpose, "conv1d_transpose", "Conv1DTranspose", 1)
TRANSPOSE(conv2d_transpose, "conv2d_transpose", "Conv2DTranspose", 2)
TRANSPOSE(conv3d_transpose, "conv3d_transpose", "Conv3DTranspose", 3)

// ---- Depthwise ----------------------------------------------------------------------------------

#define DEPTHWISE_FIELDS(axes)                                                                          \
    {                                                                                                   \
        MU_WINDOW_FIELDS(mu_depthwise_conv_args, axes, mu__paddings),                                   \
            MU_FIELD(mu_depthwise_conv_args, depth_multiplier, INT, .limit = MU_POSITIVE, .number = 1), \
            KERNEL_FIELDS(mu_depthwise_conv_args, depthwise), OUTPUT_FIELDS(mu_depthwise_conv_args)     \
    }
static const mu_field depthwise_conv1d_fields[] = DEPTHWISE_FIELDS(1);
static const mu_field depthwise_conv2d_fields[] = DEPTHWISE_FIELDS(2);

static mu_status depthwise_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_depthwise_conv_args *args = layer->args;
    MU_TRY(need_channels(layer, input));
    const int64_t channels = input->dims[input->rank - 1];
    const mu_shape kernel = mu__kernel_shape(layer, args->kernel_size_per_axis, channels, args->depth_multiplier);
    MU_TRY(mu__weight(layer, "kernel", kernel, MU_OPTIONS_OF(args, depthwise)));
    return args->no_bias
               ? MU_OK
               : mu__weight(layer, "bias", MU_SHAPE(channels * args->depth_multiplier), MU_OPTIONS_OF(args, bias));
}

// Sequences become images of height 1, whose kernels have height 1 too; along a height of 1 the stride does not matter.
static mu_tensor *as_image(const mu_layer *layer, mu_tensor *x)
{
    return layer->ops->axes == 1 ? mu_expand_dims(x, 1) : x;
}

static mu_tensor *as_image_kernel(const mu_layer *layer, mu_tensor *kernel)
{
    return layer->ops->axes == 1 ? mu_expand_dims(kernel, 0) : kernel;
}

static mu_tensor *from_image(const mu_layer *layer, mu_tensor *y)
{
    return layer->ops->axes == 1 ? mu_squeeze(y, 1) : y;
}

static mu_value *depthwise_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_depthwise_conv_args *args = layer->args;
    const int last = layer->ops->axes - 1, *strides = args->strides_per_axis, *dilations = args->dilation_rate_per_axis;
    mu_tensor *y = mu_nn_depthwise_conv2d(
        as_image(layer, mu_at(inputs, 0)), as_image_kernel(layer, mu__weight_read(layer, "kernel")),
        .strides = {strides[0], strides[last]}, .dilations = {dilations[0], dilations[last]}, .padding = args->padding);
    return bias_and_activation(layer, from_image(layer, y), args->activation);
}

MU_LAYER_CLASS(depthwise_conv1d, "depthwise_conv1d", "DepthwiseConv1D", mu_depthwise_conv_args, depthwise_conv1d_fields,
               NULL, .axes = 1, .build = depthwise_build, .call = depthwise_call)
MU_LAYER_CLASS(depthwise_conv2d, "depthwise_conv2d", "DepthwiseConv2D", mu_depthwise_conv_args, depthwise_conv2d_fields,
               NULL, .axes = 2, .build = depthwise_build, .call = depthwise_call)

// ---- Separable ----------------------------------------------------------------------------------

#define SEPARABLE_FIELDS(axes)                                                                                  \
    {                                                                                                           \
        MU_FIELD(mu_separable_conv_args, filters, INT, .limit = MU_POSITIVE),                                   \
            MU_WINDOW_FIELDS(mu_separable_conv_args, axes, mu__paddings),                                       \
            MU_FIELD(mu_separable_conv_args, depth_multiplier, INT, .limit = MU_POSITIVE, .number = 1),         \
            KERNEL_FIELDS(mu_separable_conv_args, depthwise), KERNEL_FIELDS(mu_separable_conv_args, pointwise), \
            OUTPUT_FIELDS(mu_separable_conv_args)                                                               \
    }
static const mu_field separable_conv1d_fields[] = SEPARABLE_FIELDS(1);
static const mu_field separable_conv2d_fields[] = SEPARABLE_FIELDS(2);

static mu_status separable_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_separable_conv_args *args = layer->args;
    MU_TRY(need_channels(layer, input));
    const int64_t channels = input->dims[input->rank - 1];
    const mu_shape depthwise = mu__kernel_shape(layer, args->kernel_size_per_axis, channels, args->depth_multiplier);
    const mu_shape pointwise =
        mu__kernel_shape(layer, (const int[]){1, 1}, channels * args->depth_multiplier, args->filters);
    MU_TRY(mu__weight(layer, "depthwise_kernel", depthwise, MU_OPTIONS_OF(args, depthwise)));
    MU_TRY(mu__weight(layer, "pointwise_kernel", pointwise, MU_OPTIONS_OF(args, pointwise)));
    return args->no_bias ? MU_OK : mu__weight(layer, "bias", MU_SHAPE(args->filters), MU_OPTIONS_OF(args, bias));
}

static mu_value *separable_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_separable_conv_args *args = layer->args;
    const int last = layer->ops->axes - 1, *strides = args->strides_per_axis, *dilations = args->dilation_rate_per_axis;
    mu_tensor *y = mu_nn_separable_conv2d(
        as_image(layer, mu_at(inputs, 0)), as_image_kernel(layer, mu__weight_read(layer, "depthwise_kernel")),
        as_image_kernel(layer, mu__weight_read(layer, "pointwise_kernel")), .strides = {strides[0], strides[last]},
        .dilations = {dilations[0], dilations[last]}, .padding = args->padding);
    return bias_and_activation(layer, from_image(layer, y), args->activation);
}

MU_LAYER_CLASS(separable_conv1d, "separable_conv1d", "SeparableConv1D", mu_separable_conv_args, separable_conv1d_fields,
               NULL, .axes = 1, .build = separable_build, .call = separable_call)
MU_LAYER_CLASS(separable_conv2d, "separable_conv2d", "SeparableConv2D", mu_separable_conv_args, separable_conv2d_fields,
               NULL, .axes = 2, .build = separable_build, .call = separable_call)
