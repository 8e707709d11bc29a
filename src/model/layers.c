// The layers: options, weights and computation of each.
//
// A layer's mu_layer_ops follows its functions. Computations consist of ops, so layers work eagerly, in traces, on
// replicas, and have gradients.
#include "model/model.h"
#include "ops/nn/nn.h"

#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/random.h>

static mu_status need_rank(const mu_layer *layer, const mu_shape *input, int low, int high)
{
    char text[MU_SHAPE_TEXT];
    if (input->rank >= low && input->rank <= high)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "layer '%s' takes inputs of rank %d%s with the batch axis first; it was given %s",
                     mu_layer_name(layer), low, high > low ? " or more" : "", mu__shape_text(input, text));
}

static mu_status need_last(const mu_layer *layer, const mu_shape *input)
{
    char text[MU_SHAPE_TEXT];
    if (input->dims[input->rank - 1] != MU_UNKNOWN)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs a known last axis to make its weights; it was given %s",
                     mu_layer_name(layer), mu__shape_text(input, text));
}

// ---- Dense --------------------------------------------------------------------------------------

static mu_status dense_build(mu_layer *layer, const mu_shape *input)
{
    const mu_dense_args *args = layer->args;
    MU_TRY(need_rank(layer, input, 2, MU_MAX_RANK));
    MU_TRY(need_last(layer, input));
    int64_t in = input->dims[input->rank - 1];
    const char *kernel = args->kernel_initializer ? args->kernel_initializer : "glorot_uniform";
    const char *bias = args->bias_initializer ? args->bias_initializer : "zeros";
    if (!mu__layer_weight(layer, "kernel", MU_SHAPE(in, args->units), kernel, true, args->kernel_regularizer))
        return mu_error_code();
    if (!args->no_bias && !mu__layer_weight(layer, "bias", MU_SHAPE(args->units), bias, true, args->bias_regularizer))
        return mu_error_code();
    return MU_OK;
}

static mu_tensor *dense_call(mu_layer *layer, mu_tensor *x, bool training)
{
    (void)training;
    const mu_dense_args *args = layer->args;
    mu_tensor *y = mu_matmul(x, mu_variable_read(layer->weights[0]));
    if (!args->no_bias)
        y = mu_nn_bias_add(y, mu_variable_read(layer->weights[1]));
    return mu__activate(args->activation, y);
}

static const mu_layer_ops dense_ops = {
    .name = "dense", .args_bytes = sizeof(mu_dense_args), .build = dense_build, .call = dense_call,
    .texts = {offsetof(mu_dense_args, activation), offsetof(mu_dense_args, kernel_initializer),
              offsetof(mu_dense_args, bias_initializer)},
    .objects = {offsetof(mu_dense_args, kernel_regularizer), offsetof(mu_dense_args, bias_regularizer)},
};

mu_layer *mu_dense_with(const mu_dense_args *given)
{
    mu_dense_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_dense") != MU_OK)
        return NULL;
    if (args.units < 1) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dense: units is %d; it must be 1 or more", args.units);
        return NULL;
    }
    if (mu__activation_known(args.activation, "mu_dense") != MU_OK ||
        mu__initializer_known(args.kernel_initializer, "mu_dense") != MU_OK ||
        mu__initializer_known(args.bias_initializer, "mu_dense") != MU_OK)
        return NULL;
    return mu__layer_new(&dense_ops, &args, args.name);
}

// ---- Convolution --------------------------------------------------------------------------------

static int or_one(int value)
{
    return value ? value : 1;
}

static mu_status conv2d_build(mu_layer *layer, const mu_shape *input)
{
    const mu_conv2d_args *args = layer->args;
    MU_TRY(need_rank(layer, input, 4, 4));
    MU_TRY(need_last(layer, input));
    int64_t channels = input->dims[3], groups = or_one(args->groups);
    if (channels % groups || args->filters % groups)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': %lld groups divide neither %lld input channels nor %d filters evenly",
                         mu_layer_name(layer), (long long)groups, (long long)channels, args->filters);
    int64_t width = args->kernel_width ? args->kernel_width : args->kernel_size;
    const char *kernel = args->kernel_initializer ? args->kernel_initializer : "glorot_uniform";
    const char *bias = args->bias_initializer ? args->bias_initializer : "zeros";
    if (!mu__layer_weight(layer, "kernel", MU_SHAPE(args->kernel_size, width, channels / groups, args->filters), kernel,
                          true, args->kernel_regularizer))
        return mu_error_code();
    if (!args->no_bias && !mu__layer_weight(layer, "bias", MU_SHAPE(args->filters), bias, true, args->bias_regularizer))
        return mu_error_code();
    return MU_OK;
}

static mu_tensor *conv2d_call(mu_layer *layer, mu_tensor *x, bool training)
{
    (void)training;
    const mu_conv2d_args *args = layer->args;
    int stride = or_one(args->strides), dilation = or_one(args->dilation_rate);
    mu_tensor *y =
        mu_nn_conv2d(x, mu_variable_read(layer->weights[0]), .strides = {stride, stride},
                     .dilations = {dilation, dilation}, .padding = args->padding, .groups = or_one(args->groups));
    if (!args->no_bias)
        y = mu_nn_bias_add(y, mu_variable_read(layer->weights[1]));
    return mu__activate(args->activation, y);
}

static const mu_layer_ops conv2d_ops = {
    .name = "conv2d", .args_bytes = sizeof(mu_conv2d_args), .build = conv2d_build, .call = conv2d_call,
    .texts = {offsetof(mu_conv2d_args, activation), offsetof(mu_conv2d_args, kernel_initializer),
              offsetof(mu_conv2d_args, bias_initializer), offsetof(mu_conv2d_args, padding)},
    .objects = {offsetof(mu_conv2d_args, kernel_regularizer), offsetof(mu_conv2d_args, bias_regularizer)},
};

static mu_status check_padding(const char *padding, const char *layer)
{
    if (!padding || strcmp(padding, "valid") == 0 || strcmp(padding, "same") == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: padding is '%s'; it must be 'valid' or 'same'", layer, padding);
}

mu_layer *mu_conv2d_with(const mu_conv2d_args *given)
{
    mu_conv2d_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_conv2d") != MU_OK)
        return NULL;
    if (args.filters < 1 || args.kernel_size < 1 || args.kernel_width < 0 || args.strides < 0 ||
        args.dilation_rate < 0 || args.groups < 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_conv2d: filters %d, kernel_size %d, kernel_width %d, strides %d, dilation_rate %d, "
                  "groups %d; all must be positive",
                  args.filters, args.kernel_size, args.kernel_width, args.strides, args.dilation_rate, args.groups);
        return NULL;
    }
    args.padding = args.padding ? args.padding : "valid";
    if (check_padding(args.padding, "mu_conv2d") != MU_OK ||
        mu__activation_known(args.activation, "mu_conv2d") != MU_OK ||
        mu__initializer_known(args.kernel_initializer, "mu_conv2d") != MU_OK ||
        mu__initializer_known(args.bias_initializer, "mu_conv2d") != MU_OK)
        return NULL;
    return mu__layer_new(&conv2d_ops, &args, args.name);
}

// ---- Pooling ------------------------------------------------------------------------------------

static mu_status pool2d_build(mu_layer *layer, const mu_shape *input)
{
    return need_rank(layer, input, 4, 4);
}

static mu_tensor *max_pool2d_call(mu_layer *layer, mu_tensor *x, bool training)
{
    (void)training;
    const mu_pool2d_args *args = layer->args;
    return mu_nn_max_pool2d(x, .window = {args->pool_size, args->pool_size}, .strides = {args->strides, args->strides},
                            .padding = args->padding);
}

static mu_tensor *average_pool2d_call(mu_layer *layer, mu_tensor *x, bool training)
{
    (void)training;
    const mu_pool2d_args *args = layer->args;
    return mu_nn_avg_pool2d(x, .window = {args->pool_size, args->pool_size}, .strides = {args->strides, args->strides},
                            .padding = args->padding);
}

static const mu_layer_ops max_pool2d_ops = {
    .name = "max_pooling2d", .args_bytes = sizeof(mu_pool2d_args), .build = pool2d_build, .call = max_pool2d_call,
    .texts = {offsetof(mu_pool2d_args, padding)},
};
static const mu_layer_ops average_pool2d_ops = {
    .name = "average_pooling2d",
    .args_bytes = sizeof(mu_pool2d_args),
    .build = pool2d_build,
    .call = average_pool2d_call,
    .texts = {offsetof(mu_pool2d_args, padding)},
};

static mu_layer *pool2d(const mu_layer_ops *ops, const mu_pool2d_args *given, const char *function)
{
    mu_pool2d_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK)
        return NULL;
    args.pool_size = args.pool_size ? args.pool_size : 2;
    args.strides = args.strides ? args.strides : args.pool_size;
    args.padding = args.padding ? args.padding : "valid";
    if (args.pool_size < 1 || args.strides < 1) {
        mu__error(MU_INVALID_ARGUMENT, "%s: pool_size %d, strides %d; both must be positive", function, args.pool_size,
                  args.strides);
        return NULL;
    }
    return check_padding(args.padding, function) == MU_OK ? mu__layer_new(ops, &args, args.name) : NULL;
}

mu_layer *mu_max_pool2d_with(const mu_pool2d_args *args)
{
    return pool2d(&max_pool2d_ops, args, "mu_max_pool2d");
}

mu_layer *mu_average_pool2d_with(const mu_pool2d_args *args)
{
    return pool2d(&average_pool2d_ops, args, "mu_average_pool2d");
}

// ---- Flatten ------------------------------------------------------------------------------------

static mu_status flatten_build(mu_layer *layer, const mu_shape *input)
{
    return need_rank(layer, input, 1, MU_MAX_RANK);
}

static mu_tensor *flatten_call(mu_layer *layer, mu_tensor *x, bool training)
{
    (void)layer;
    (void)training;
    mu_shape shape = mu_tensor_shape(x);
    int64_t features = 1;
    for (int i = 1; i < shape.rank; i++)
        features = shape.dims[i] == MU_UNKNOWN || features == MU_UNKNOWN ? MU_UNKNOWN : features * shape.dims[i];
    // The batch axis is -1, so that an empty batch keeps its shape.
    return features > 0 ? mu_reshape(x, 2, (int64_t[]){-1, features})
                        : mu_reshape(x, 2, (int64_t[]){shape.dims[0], -1});
}

static const mu_layer_ops flatten_ops = {
    .name = "flatten", .moves_only = true, .args_bytes = sizeof(char), .build = flatten_build, .call = flatten_call,
};

mu_layer *mu_flatten(void)
{
    return mu__pending() ? NULL : mu__layer_new(&flatten_ops, "", NULL);
}

// ---- Activation ---------------------------------------------------------------------------------

typedef struct activation_args {
    char name[32];
} activation_args;

static mu_tensor *activation_call(mu_layer *layer, mu_tensor *x, bool training)
{
    (void)training;
    return mu__activate(((const activation_args *)layer->args)->name, x);
}

static const mu_layer_ops activation_ops = {
    .name = "activation", .args_bytes = sizeof(activation_args), .call = activation_call,
};

mu_layer *mu_activation(const char *name)
{
    activation_args args = {0};
    if (mu__pending() || mu__activation_known(name, "mu_activation") != MU_OK)
        return NULL;
    snprintf(args.name, sizeof args.name, "%s", name ? name : "linear");
    return mu__layer_new(&activation_ops, &args, NULL);
}

// ---- Dropout ------------------------------------------------------------------------------------

static mu_status dropout_build(mu_layer *layer, const mu_shape *input)
{
    (void)input;
    const mu_dropout_args *args = layer->args;
    char *name = mu__sprintf("%s/seed_generator_state", mu_layer_name(layer));
    if (name)
        layer->generator = mu_retain(MU_GIVEN(args, seed) ? mu__generator_new(args->seed, name)
                                                           : mu_generator_new(0, name));
    mu__free(name);
    return layer->generator ? MU_OK : mu_error_code();
}

static mu_tensor *dropout_call(mu_layer *layer, mu_tensor *x, bool training)
{
    const mu_dropout_args *args = layer->args;
    if (!training || args->rate == 0)
        return x;
    mu_tensor *seed = mu__generator_next(&layer->generator->resource);
    return mu_nn_stateless_dropout(x, args->rate, seed);
}

static const mu_layer_ops dropout_ops = {
    .name = "dropout", .args_bytes = sizeof(mu_dropout_args), .build = dropout_build, .call = dropout_call,
};

mu_layer *mu_dropout_with(const mu_dropout_args *given)
{
    mu_dropout_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_dropout") != MU_OK)
        return NULL;
    if (!(args.rate >= 0 && args.rate < 1)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dropout: the rate is %g; it must be from 0 to below 1", args.rate);
        return NULL;
    }
    args.given = args.seed == 0 && mu__args_given(&args, "seed") ? ".seed" : NULL;  // kept until the layer is built
    return mu__layer_new(&dropout_ops, &args, args.name);
}

// ---- Batch normalisation ------------------------------------------------------------------------

// Weights in Keras's order; gamma and beta may be missing, so their indices vary.
typedef struct normalization_weights {
    mu_variable *gamma, *beta, *mean, *variance;
} normalization_weights;

static normalization_weights weights_of(const mu_layer *layer)
{
    const mu_batch_normalization_args *args = layer->args;
    int next = 0;
    normalization_weights w = {0};
    if (!args->no_scale)
        w.gamma = layer->weights[next++];
    if (!args->no_center)
        w.beta = layer->weights[next++];
    w.mean = layer->weights[next++];
    w.variance = layer->weights[next];
    return w;
}

static mu_status batch_normalization_build(mu_layer *layer, const mu_shape *input)
{
    const mu_batch_normalization_args *args = layer->args;
    MU_TRY(need_rank(layer, input, 2, MU_MAX_RANK));
    MU_TRY(need_last(layer, input));
    mu_shape shape = MU_SHAPE(input->dims[input->rank - 1]);
    if ((!args->no_scale && !mu__layer_weight(layer, "gamma", shape, "ones", true, NULL)) ||
        (!args->no_center && !mu__layer_weight(layer, "beta", shape, "zeros", true, NULL)) ||
        !mu__layer_weight(layer, "moving_mean", shape, "zeros", false, NULL) ||
        !mu__layer_weight(layer, "moving_variance", shape, "ones", false, NULL))
        return mu_error_code();
    return MU_OK;
}

// Sums over all axes but the last.
static mu_tensor *sum_to_channels(mu_tensor *x)
{
    int axes[MU_MAX_RANK], rank = mu_tensor_rank(x);
    for (int i = 0; i + 1 < rank; i++)
        axes[i] = i;
    return mu_reduce_sum_axes(x, rank - 1, axes, false);
}

static mu_tensor *rows_of(mu_tensor *x)
{
    mu_dtype dtype = mu_tensor_dtype(x);
    mu_tensor *elements = mu_cast(mu_dim_size(x, MU_ALL_AXES), dtype);
    return mu_divide(elements, mu_constant(dtype, (double)mu_tensor_dim(x, -1)));
}

typedef struct moments {
    mu_tensor *mean, *variance;
} moments;

// Statistics of this replica's rows, or of all replicas' if synchronized; an empty part has mean 0.
static moments batch_moments(mu_tensor *x, mu_tensor *rows, bool synchronized)
{
    mu_tensor *one = mu_constant(mu_tensor_dtype(x), 1);
    mu_tensor *sum = sum_to_channels(x), *n = rows;
    if (synchronized) {
        sum = mu_all_reduce(MU_SUM, sum);
        n = mu_all_reduce(MU_SUM, rows);
    }
    mu_tensor *mean = mu_divide(sum, mu_maximum(n, one));
    mu_tensor *squares = sum_to_channels(mu_square(mu_subtract(x, mean)));
    if (synchronized)
        squares = mu_all_reduce(MU_SUM, squares);
    return (moments){.mean = mean, .variance = mu_divide(squares, mu_maximum(n, one))};
}

// Moves the statistic towards the mean over all replicas, weighted by rows.
static mu_status move_statistic(mu_variable *variable, mu_tensor *batch, mu_tensor *rows, double momentum)
{
    mu_dtype dtype = mu_variable_dtype(variable);
    mu_tensor *parts[] = {mu_multiply(mu_stop_gradient(batch), rows), rows}, *sums[2] = {NULL};
    if (!parts[0] || mu__all_reduce_list(MU_REDUCTION_SUM, 2, parts, sums, NULL, 0) != MU_OK)
        return mu_error_code();
    mu_tensor *mean = mu_divide(sums[0], mu_maximum(sums[1], mu_constant(dtype, 1)));
    mu_tensor *old = mu_variable_read(variable);
    mu_tensor *moved =
        mu_add(mu_multiply(old, mu_constant(dtype, momentum)), mu_multiply(mean, mu_constant(dtype, 1 - momentum)));
    return moved ? mu__variable_update(variable, MU_UPDATE_ASSIGN, moved) : mu_error_code();
}

static mu_tensor *batch_normalization_call(mu_layer *layer, mu_tensor *x, bool training)
{
    const mu_batch_normalization_args *args = layer->args;
    normalization_weights w = weights_of(layer);
    mu_dtype dtype = mu_tensor_dtype(x);
    moments m;
    if (training) {
        mu_tensor *rows = rows_of(x);
        m = batch_moments(x, rows, args->synchronized && mu_replica_count() > 1);
        if (move_statistic(w.mean, m.mean, rows, args->momentum) != MU_OK ||
            move_statistic(w.variance, m.variance, rows, args->momentum) != MU_OK)
            return NULL;
    } else {
        m = (moments){.mean = mu_variable_read(w.mean), .variance = mu_variable_read(w.variance)};
    }
    mu_tensor *scale = mu_rsqrt(mu_add(m.variance, mu_constant(dtype, args->epsilon)));
    if (w.gamma)
        scale = mu_multiply(scale, mu_variable_read(w.gamma));
    mu_tensor *y = mu_multiply(mu_subtract(x, m.mean), scale);
    return w.beta ? mu_add(y, mu_variable_read(w.beta)) : y;
}

static const mu_layer_ops batch_normalization_ops = {
    .name = "batch_normalization",
    .args_bytes = sizeof(mu_batch_normalization_args),
    .build = batch_normalization_build,
    .call = batch_normalization_call,
};

mu_layer *mu_batch_normalization_with(const mu_batch_normalization_args *given)
{
    mu_batch_normalization_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_batch_normalization") != MU_OK)
        return NULL;
    args.momentum = MU_GIVEN(&args, momentum) ? args.momentum : 0.99;
    args.epsilon = MU_GIVEN(&args, epsilon) ? args.epsilon : 1e-3;
    if (!(args.momentum >= 0 && args.momentum <= 1) || !(args.epsilon >= 0)) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_batch_normalization: momentum %g, epsilon %g; momentum must be from 0 to 1, epsilon 0 "
                  "or more",
                  args.momentum, args.epsilon);
        return NULL;
    }
    return mu__layer_new(&batch_normalization_ops, &args, args.name);
}
