// Convolution, pooling, up-sampling and padding of images and sequences.
#include "model/model.h"

#include <muster/nn.h>
#include <muster/ops.h>

static const char *const paddings[] = {"valid", "same", NULL};
static const char *const causal_paddings[] = {"valid", "same", "causal", NULL};

// ---- Convolution --------------------------------------------------------------------------------

static const mu_field conv2d_fields[] = {
    MU_FIELD(mu_conv2d_args, filters, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_conv2d_args, kernel_size, INT, .limit = MU_POSITIVE, .n = 2,
             .second = offsetof(mu_conv2d_args, kernel_width)),
    MU_FIELD(mu_conv2d_args, kernel_width, INT, .limit = MU_NOT_NEGATIVE, .internal = true),
    MU_FIELD(mu_conv2d_args, strides, INT, .limit = MU_POSITIVE, .number = 1, .n = 2),
    MU_FIELD(mu_conv2d_args, padding, WORD, .text = "valid", .words = paddings),
    MU_FIELD(mu_conv2d_args, dilation_rate, INT, .limit = MU_POSITIVE, .number = 1, .n = 2),
    MU_FIELD(mu_conv2d_args, groups, INT, .limit = MU_POSITIVE, .number = 1),
    MU_FIELD(mu_conv2d_args, activation, ACTIVATION),
    MU_FIELD(mu_conv2d_args, no_bias, NOT, .keras = "use_bias"),
    MU_FIELD(mu_conv2d_args, kernel_initializer, INITIALIZER, .text = "glorot_uniform"),
    MU_FIELD(mu_conv2d_args, bias_initializer, INITIALIZER, .text = "zeros"),
    MU_FIELD(mu_conv2d_args, kernel_regularizer, REGULARIZER),
    MU_FIELD(mu_conv2d_args, bias_regularizer, REGULARIZER),
    MU_FIELD(mu_conv2d_args, name, NAME),
    {0},
};

static mu_status conv2d_complete(void *arguments)
{
    mu_conv2d_args *args = arguments;
    args->kernel_width = args->kernel_width ? args->kernel_width : args->kernel_size;
    return MU_OK;
}

static mu_status check_groups(const mu_layer *layer, int64_t groups, int64_t channels, int filters)
{
    if (channels % groups == 0 && filters % groups == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "layer '%s': %lld groups divide neither %lld input channels nor %d filters evenly",
                     mu_layer_name(layer), (long long)groups, (long long)channels, filters);
}

static mu_status conv2d_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_conv2d_args *args = layer->args;
    MU_TRY(mu__need_input_rank(layer, input, 4, 4));
    MU_TRY(mu__need_last_axis(layer, input));
    MU_TRY(check_groups(layer, args->groups, input->dims[3], args->filters));
    const mu_shape kernel =
        MU_SHAPE(args->kernel_size, args->kernel_width, input->dims[3] / args->groups, args->filters);
    MU_TRY(mu__weight(layer, "kernel", kernel, args->kernel_initializer, true, args->kernel_regularizer));
    return args->no_bias ? MU_OK : mu__weight(layer, "bias", MU_SHAPE(args->filters), args->bias_initializer, true,
                                              args->bias_regularizer);
}

static mu_value *conv2d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_conv2d_args *args = layer->args;
    mu_tensor *y = mu_nn_conv2d(mu_at(inputs, 0), mu__weight_read(layer, "kernel"),
                                .strides = {args->strides, args->strides},
                                .dilations = {args->dilation_rate, args->dilation_rate}, .padding = args->padding,
                                .groups = args->groups);
    if (!args->no_bias)
        y = mu_nn_bias_add(y, mu__weight_read(layer, "bias"));
    return mu_of(mu__activate(args->activation, y));
}

const mu_layer_ops mu__conv2d_ops = {
    .class = {"conv2d", "Conv2D", "mu_conv2d", MU_OPTIONS(mu_conv2d_args), conv2d_fields, conv2d_complete},
    .build = conv2d_build, .call = conv2d_call,
};

mu_layer *mu_conv2d_with(const mu_conv2d_args *args)
{
    return mu__layer_make(&mu__conv2d_ops, args);
}

static const mu_field conv1d_fields[] = {
    MU_FIELD(mu_conv1d_args, filters, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_conv1d_args, kernel_size, INT, .limit = MU_POSITIVE, .n = 1),
    MU_FIELD(mu_conv1d_args, strides, INT, .limit = MU_POSITIVE, .number = 1, .n = 1),
    MU_FIELD(mu_conv1d_args, padding, WORD, .text = "valid", .words = causal_paddings),
    MU_FIELD(mu_conv1d_args, dilation_rate, INT, .limit = MU_POSITIVE, .number = 1, .n = 1),
    MU_FIELD(mu_conv1d_args, groups, INT, .limit = MU_POSITIVE, .number = 1),
    MU_FIELD(mu_conv1d_args, activation, ACTIVATION),
    MU_FIELD(mu_conv1d_args, no_bias, NOT, .keras = "use_bias"),
    MU_FIELD(mu_conv1d_args, kernel_initializer, INITIALIZER, .text = "glorot_uniform"),
    MU_FIELD(mu_conv1d_args, bias_initializer, INITIALIZER, .text = "zeros"),
    MU_FIELD(mu_conv1d_args, kernel_regularizer, REGULARIZER),
    MU_FIELD(mu_conv1d_args, bias_regularizer, REGULARIZER),
    MU_FIELD(mu_conv1d_args, name, NAME),
    {0},
};

static mu_status conv1d_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_conv1d_args *args = layer->args;
    MU_TRY(mu__need_input_rank(layer, input, 3, 3));
    MU_TRY(mu__need_last_axis(layer, input));
    MU_TRY(check_groups(layer, args->groups, input->dims[2], args->filters));
    const mu_shape kernel = MU_SHAPE(args->kernel_size, input->dims[2] / args->groups, args->filters);
    MU_TRY(mu__weight(layer, "kernel", kernel, args->kernel_initializer, true, args->kernel_regularizer));
    return args->no_bias ? MU_OK : mu__weight(layer, "bias", MU_SHAPE(args->filters), args->bias_initializer, true,
                                              args->bias_regularizer);
}

static mu_value *conv1d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_conv1d_args *args = layer->args;
    mu_tensor *y = mu_nn_conv1d(mu_at(inputs, 0), mu__weight_read(layer, "kernel"), .stride = args->strides,
                                .dilation = args->dilation_rate, .padding = args->padding, .groups = args->groups);
    if (!args->no_bias)
        y = mu_nn_bias_add(y, mu__weight_read(layer, "bias"));
    return mu_of(mu__activate(args->activation, y));
}

const mu_layer_ops mu__conv1d_ops = {
    .class = {"conv1d", "Conv1D", "mu_conv1d", MU_OPTIONS(mu_conv1d_args), conv1d_fields, NULL},
    .build = conv1d_build, .call = conv1d_call,
};

mu_layer *mu_conv1d_with(const mu_conv1d_args *args)
{
    return mu__layer_make(&mu__conv1d_ops, args);
}

static const mu_field depthwise_fields[] = {
    MU_FIELD(mu_depthwise_conv2d_args, kernel_size, INT, .limit = MU_POSITIVE, .n = 2),
    MU_FIELD(mu_depthwise_conv2d_args, strides, INT, .limit = MU_POSITIVE, .number = 1, .n = 2),
    MU_FIELD(mu_depthwise_conv2d_args, padding, WORD, .text = "valid", .words = paddings),
    MU_FIELD(mu_depthwise_conv2d_args, depth_multiplier, INT, .limit = MU_POSITIVE, .number = 1),
    MU_FIELD(mu_depthwise_conv2d_args, dilation_rate, INT, .limit = MU_POSITIVE, .number = 1, .n = 2),
    MU_FIELD(mu_depthwise_conv2d_args, activation, ACTIVATION),
    MU_FIELD(mu_depthwise_conv2d_args, no_bias, NOT, .keras = "use_bias"),
    MU_FIELD(mu_depthwise_conv2d_args, depthwise_initializer, INITIALIZER, .text = "glorot_uniform"),
    MU_FIELD(mu_depthwise_conv2d_args, bias_initializer, INITIALIZER, .text = "zeros"),
    MU_FIELD(mu_depthwise_conv2d_args, depthwise_regularizer, REGULARIZER),
    MU_FIELD(mu_depthwise_conv2d_args, bias_regularizer, REGULARIZER),
    MU_FIELD(mu_depthwise_conv2d_args, name, NAME),
    {0},
};

static mu_status depthwise_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_depthwise_conv2d_args *args = layer->args;
    MU_TRY(mu__need_input_rank(layer, input, 4, 4));
    MU_TRY(mu__need_last_axis(layer, input));
    const int64_t channels = input->dims[3];
    const mu_shape kernel = MU_SHAPE(args->kernel_size, args->kernel_size, channels, args->depth_multiplier);
    MU_TRY(mu__weight(layer, "kernel", kernel, args->depthwise_initializer, true, args->depthwise_regularizer));
    return args->no_bias ? MU_OK : mu__weight(layer, "bias", MU_SHAPE(channels * args->depth_multiplier),
                                              args->bias_initializer, true, args->bias_regularizer);
}

static mu_value *depthwise_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_depthwise_conv2d_args *args = layer->args;
    mu_tensor *y = mu_nn_depthwise_conv2d(mu_at(inputs, 0), mu__weight_read(layer, "kernel"),
                                          .strides = {args->strides, args->strides},
                                          .dilations = {args->dilation_rate, args->dilation_rate},
                                          .padding = args->padding);
    if (!args->no_bias)
        y = mu_nn_bias_add(y, mu__weight_read(layer, "bias"));
    return mu_of(mu__activate(args->activation, y));
}

const mu_layer_ops mu__depthwise_conv2d_ops = {
    .class = {"depthwise_conv2d", "DepthwiseConv2D", "mu_depthwise_conv2d", MU_OPTIONS(mu_depthwise_conv2d_args),
              depthwise_fields, NULL},
    .build = depthwise_build, .call = depthwise_call,
};

mu_layer *mu_depthwise_conv2d_with(const mu_depthwise_conv2d_args *args)
{
    return mu__layer_make(&mu__depthwise_conv2d_ops, args);
}

// ---- Pooling ------------------------------------------------------------------------------------

static const mu_field pool2d_fields[] = {
    MU_FIELD(mu_pool2d_args, pool_size, INT, .limit = MU_POSITIVE, .number = 2, .n = 2),
    MU_FIELD(mu_pool2d_args, strides, INT, .limit = MU_NOT_NEGATIVE, .n = 2),
    MU_FIELD(mu_pool2d_args, padding, WORD, .text = "valid", .words = paddings),
    MU_FIELD(mu_pool2d_args, name, NAME),
    {0},
};

static mu_status pool2d_complete(void *arguments)
{
    mu_pool2d_args *args = arguments;
    args->strides = args->strides ? args->strides : args->pool_size;
    return MU_OK;
}

static mu_status image_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    return mu__need_input_rank(layer, input, 4, 4);
}

static mu_value *max_pool2d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_pool2d_args *args = layer->args;
    return mu_of(mu_nn_max_pool2d(mu_at(inputs, 0), .window = {args->pool_size, args->pool_size},
                                  .strides = {args->strides, args->strides}, .padding = args->padding));
}

static mu_value *average_pool2d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_pool2d_args *args = layer->args;
    return mu_of(mu_nn_avg_pool2d(mu_at(inputs, 0), .window = {args->pool_size, args->pool_size},
                                  .strides = {args->strides, args->strides}, .padding = args->padding));
}

const mu_layer_ops mu__max_pool2d_ops = {
    .class = {"max_pooling2d", "MaxPooling2D", "mu_max_pool2d", MU_OPTIONS(mu_pool2d_args), pool2d_fields,
              pool2d_complete},
    .build = image_build, .call = max_pool2d_call,
};
const mu_layer_ops mu__average_pool2d_ops = {
    .class = {"average_pooling2d", "AveragePooling2D", "mu_average_pool2d", MU_OPTIONS(mu_pool2d_args), pool2d_fields,
              pool2d_complete},
    .build = image_build, .call = average_pool2d_call,
};

mu_layer *mu_max_pool2d_with(const mu_pool2d_args *args)
{
    return mu__layer_make(&mu__max_pool2d_ops, args);
}

mu_layer *mu_average_pool2d_with(const mu_pool2d_args *args)
{
    return mu__layer_make(&mu__average_pool2d_ops, args);
}

// ---- Pooling over all positions -----------------------------------------------------------------

static const mu_field global_fields[] = {
    MU_FIELD(mu_global_pool_args, keepdims, FLAG),
    MU_FIELD(mu_global_pool_args, name, NAME),
    {0},
};

static mu_value *global_max2d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_global_pool_args *args = layer->args;
    return mu_of(mu_reduce_max_axes(mu_at(inputs, 0), 2, (int[]){1, 2}, args->keepdims));
}

static mu_value *global_average2d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_global_pool_args *args = layer->args;
    return mu_of(mu_reduce_mean_axes(mu_at(inputs, 0), 2, (int[]){1, 2}, args->keepdims));
}

static mu_status sequence_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    return mu__need_input_rank(layer, input, 3, 3);
}

// With a mask, masked steps count neither in the sum nor in the number of steps.
static mu_value *global_average1d_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_global_pool_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!context->mask)
        return mu_of(mu_reduce_mean_axes(x, 1, (int[]){1}, args->keepdims));
    mu_tensor *valid = x ? mu_expand_dims(mu_cast(mu_at(context->mask, 0), x->dtype), -1) : NULL;
    mu_tensor *sum = mu_reduce_sum_axes(mu_multiply(x, valid), 1, (int[]){1}, args->keepdims);
    return mu_of(mu_divide(sum, mu_reduce_sum_axes(valid, 1, (int[]){1}, args->keepdims)));
}

const mu_layer_ops mu__global_max_pool2d_ops = {
    .class = {"global_max_pooling2d", "GlobalMaxPooling2D", "mu_global_max_pool2d", MU_OPTIONS(mu_global_pool_args),
              global_fields, NULL},
    .build = image_build, .call = global_max2d_call,
};
const mu_layer_ops mu__global_average_pool2d_ops = {
    .class = {"global_average_pooling2d", "GlobalAveragePooling2D", "mu_global_average_pool2d",
              MU_OPTIONS(mu_global_pool_args), global_fields, NULL},
    .build = image_build, .call = global_average2d_call,
};
const mu_layer_ops mu__global_average_pool1d_ops = {
    .class = {"global_average_pooling1d", "GlobalAveragePooling1D", "mu_global_average_pool1d",
              MU_OPTIONS(mu_global_pool_args), global_fields, NULL},
    .build = sequence_build, .call = global_average1d_call,
};

mu_layer *mu_global_max_pool2d_with(const mu_global_pool_args *args)
{
    return mu__layer_make(&mu__global_max_pool2d_ops, args);
}

mu_layer *mu_global_average_pool2d_with(const mu_global_pool_args *args)
{
    return mu__layer_make(&mu__global_average_pool2d_ops, args);
}

mu_layer *mu_global_average_pool1d_with(const mu_global_pool_args *args)
{
    return mu__layer_make(&mu__global_average_pool1d_ops, args);
}

// ---- Sizes of images ----------------------------------------------------------------------------

static const char *const interpolations[] = {"nearest", "bilinear", NULL};

static const mu_field up_sampling_fields[] = {
    MU_FIELD(mu_up_sampling2d_args, factor, INT, .keras = "size", .limit = MU_POSITIVE, .number = 2, .n = 2),
    MU_FIELD(mu_up_sampling2d_args, interpolation, WORD, .text = "nearest", .words = interpolations),
    MU_FIELD(mu_up_sampling2d_args, name, NAME),
    {0},
};

static mu_value *up_sampling_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_up_sampling2d_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    const mu_resize_method method =
        strcmp(args->interpolation, "nearest") == 0 ? MU_RESIZE_NEAREST : MU_RESIZE_BILINEAR;
    return mu_of(mu_image_resize(x, mu_tensor_dim(x, 1) * args->factor, mu_tensor_dim(x, 2) * args->factor, method));
}

const mu_layer_ops mu__up_sampling2d_ops = {
    .class = {"up_sampling2d", "UpSampling2D", "mu_up_sampling2d", MU_OPTIONS(mu_up_sampling2d_args),
              up_sampling_fields,
              NULL},
    .build = image_build, .call = up_sampling_call,
};

mu_layer *mu_up_sampling2d_with(const mu_up_sampling2d_args *args)
{
    return mu__layer_make(&mu__up_sampling2d_ops, args);
}

static const mu_field zero_padding_fields[] = {
    MU_FIELD(mu_zero_padding2d_args, padding, INT, .limit = MU_NOT_NEGATIVE, .number = 1, .n = 2, .pairs = true),
    MU_FIELD(mu_zero_padding2d_args, name, NAME),
    {0},
};

static mu_value *zero_padding_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const int64_t n = ((const mu_zero_padding2d_args *)layer->args)->padding, around[] = {0, n, n, 0};
    return mu_of(mu_pad(mu_at(inputs, 0), around, around, NULL, 0));
}

const mu_layer_ops mu__zero_padding2d_ops = {
    .class = {"zero_padding2d", "ZeroPadding2D", "mu_zero_padding2d", MU_OPTIONS(mu_zero_padding2d_args),
              zero_padding_fields, NULL},
    .build = image_build, .call = zero_padding_call,
};

mu_layer *mu_zero_padding2d_with(const mu_zero_padding2d_args *args)
{
    return mu__layer_make(&mu__zero_padding2d_ops, args);
}
