// Convolutions and pools expressed by others: depthwise, separable, 1-D, and 3-D pools.
//
// A depthwise convolution is a grouped one with one group per channel; 1-D is 2-D with a height of 1. A 3-D pool is a
// pool over planes, then over depth: maxima of maxima and means of means are correct, because windows are boxes and
// padding is excluded.
#include "ops/core/composed.h"
#include "ops/nn/nn.h"

#include <muster/nn.h>
#include <muster/ops.h>

// Reports an error unless x has this rank; `what` names the tensor.
static bool has_rank(const mu_tensor *x, int rank, const char *op, const char *what)
{
    char text[MU_SHAPE_TEXT];
    if (mu__pending())
        return false;
    if (x && x->shape.rank == rank)
        return true;
    mu__error(MU_INVALID_ARGUMENT, "%s: the %s must have rank %d, got %s", op, what, rank,
              x ? mu__shape_text(&x->shape, text) : "NULL");
    return false;
}

// ---- Depthwise ----------------------------------------------------------------------------------

// A kernel [height, width, channels, multiplier] as [height, width, 1, channels * multiplier].
static mu_tensor *group_kernel(mu_tensor *kernel)
{
    const int64_t *dims = kernel->shape.dims;
    if (dims[0] != MU_UNKNOWN && dims[1] != MU_UNKNOWN && dims[3] != MU_UNKNOWN)
        return mu_reshape(kernel, 4, (const int64_t[]){dims[0], dims[1], 1, dims[2] * dims[3]});
    mu_tensor *first = mu_slice(kernel, (const int64_t[]){0, 0, 0, 0}, (const int64_t[]){-1, -1, 1, -1});
    mu_tensor *like = mu_tile(first, (const int64_t[]){1, 1, 1, dims[2]});
    return mu_reshape_like(kernel, like);
}

mu_tensor *mu_nn_depthwise_conv2d_with(const mu_nn_conv2d_args *args)
{
    mu_nn_conv2d_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_depthwise_conv2d") != MU_OK ||
        !has_rank(a.x, 4, "depthwise_conv2d", "image") || !has_rank(a.kernel, 4, "depthwise_conv2d", "kernel"))
        return NULL;
    a.groups = a.kernel->shape.dims[2];
    if (a.groups < 1) {
        char text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT,
                  "depthwise_conv2d: the kernel has shape %s; its axis 2, the channels, must be known and not empty",
                  mu__shape_text(&a.kernel->shape, text));
        return NULL;
    }
    mu_tensor *in[] = {a.x, a.kernel};
    a.kernel = group_kernel(a.kernel);
    return mu__composed("depthwise_conv2d", 2, in, mu_nn_conv2d_with(&a));
}

mu_tensor *mu_nn_separable_conv2d_with(const mu_nn_separable_conv2d_args *args)
{
    mu_nn_separable_conv2d_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_separable_conv2d") != MU_OK ||
        !has_rank(a.pointwise_kernel, 4, "separable_conv2d", "pointwise kernel"))
        return NULL;
    const int64_t *dims = a.pointwise_kernel->shape.dims;
    if (dims[0] != 1 || dims[1] != 1) {
        mu__error(MU_INVALID_ARGUMENT,
                  "separable_conv2d: the pointwise kernel has height %lld and width %lld; both must be 1",
                  (long long)dims[0], (long long)dims[1]);
        return NULL;
    }
    mu_tensor *channels = mu_nn_depthwise_conv2d(a.x, a.depthwise_kernel, .strides = {a.strides[0], a.strides[1]},
                                                 .dilations = {a.dilations[0], a.dilations[1]}, .padding = a.padding,
                                                 .pads = {a.pads[0], a.pads[1], a.pads[2], a.pads[3]});
    mu_tensor *in[] = {a.x, a.depthwise_kernel, a.pointwise_kernel};
    return mu__composed("separable_conv2d", 3, in, mu_nn_conv2d(channels, a.pointwise_kernel));
}

// ---- One dimension ------------------------------------------------------------------------------

mu_tensor *mu_nn_conv1d_with(const mu_nn_conv1d_args *args)
{
    mu_nn_conv1d_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_conv1d") != MU_OK ||
        !has_rank(a.x, 3, "conv1d", "sequence") || !has_rank(a.kernel, 3, "conv1d", "kernel"))
        return NULL;
    const bool causal = a.padding && strcmp(a.padding, "causal") == 0;
    const int64_t dilation = a.dilation ? a.dilation : 1, before = (a.kernel->shape.dims[0] - 1) * dilation;
    if (causal && a.kernel->shape.dims[0] == MU_UNKNOWN) {
        char text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT,
                  "conv1d: causal padding follows from the kernel's first axis, but the kernel has shape %s in this "
                  "trace; give .pads",
                  mu__shape_text(&a.kernel->shape, text));
        return NULL;
    }
    mu_tensor *x = mu_expand_dims(a.x, 1), *kernel = mu_expand_dims(a.kernel, 0);
    mu_tensor *y =
        mu_nn_conv2d(x, kernel, .strides = {1, a.stride ? a.stride : 1}, .dilations = {1, dilation},
                     .padding = causal ? "explicit" : a.padding,
                     .pads = {0, 0, causal ? before : a.pads[0], causal ? 0 : a.pads[1]}, .groups = a.groups);
    return mu__composed2("conv1d", a.x, a.kernel, mu_squeeze(y, 1));
}

mu_tensor *mu_nn_conv1d_transpose_with(const mu_nn_conv1d_transpose_args *args)
{
    mu_nn_conv1d_transpose_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_conv1d_transpose") != MU_OK ||
        !has_rank(a.x, 3, "conv1d_transpose", "sequence") || !has_rank(a.kernel, 3, "conv1d_transpose", "kernel"))
        return NULL;
    mu_tensor *x = mu_expand_dims(a.x, 1), *kernel = mu_expand_dims(a.kernel, 0);
    mu_tensor *y =
        mu_nn_conv2d_transpose(x, kernel, .output_size = {1, a.output_size}, .strides = {1, a.stride ? a.stride : 1},
                               .dilations = {1, a.dilation ? a.dilation : 1}, .padding = a.padding,
                               .pads = {0, 0, a.pads[0], a.pads[1]}, .groups = a.groups);
    return mu__composed2("conv1d_transpose", a.x, a.kernel, mu_squeeze(y, 1));
}

typedef mu_tensor *pool2d(const mu_nn_pool2d_args *args);

static mu_tensor *pool_sequence(pool2d *pool, const mu_nn_pool1d_args *args, const char *function, const char *op)
{
    mu_nn_pool1d_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK || !has_rank(a.x, 3, op, "sequence"))
        return NULL;
    const mu_nn_pool2d_args flat = {
        .size = sizeof flat,
        .x = mu_expand_dims(a.x, 1),
        .window = {1, a.window},
        .strides = {1, a.stride ? a.stride : a.window},
        .padding = a.padding,
        .pads = {0, 0, a.pads[0], a.pads[1]},
    };
    return mu__composed1(op, a.x, mu_squeeze(pool(&flat), 1));
}

mu_tensor *mu_nn_max_pool1d_with(const mu_nn_pool1d_args *args)
{
    return pool_sequence(mu_nn_max_pool2d_with, args, "mu_nn_max_pool1d", "max_pool1d");
}

mu_tensor *mu_nn_avg_pool1d_with(const mu_nn_pool1d_args *args)
{
    return pool_sequence(mu_nn_avg_pool2d_with, args, "mu_nn_avg_pool1d", "avg_pool1d");
}

// ---- Three dimensions ---------------------------------------------------------------------------

static mu_tensor *pool_volume(pool2d *pool, const mu_nn_pool3d_args *args, const char *function, const char *op)
{
    mu_nn_pool3d_args a;
    mu_ints window, strides;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK || !has_rank(a.x, 5, op, "volume") ||
        mu__window_options(&window, 3, a.window, "window", op) != MU_OK ||
        mu__window_options(&strides, 3, a.strides[0] ? a.strides : window.at, "strides", op) != MU_OK)
        return NULL;
    const int64_t *dims = a.x->shape.dims;
    if (dims[1] < 1 || dims[2] < 1 || dims[3] < 1 || dims[4] < 1) {
        char text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: the volume has shape %s; all axes but the batch must be known and not empty", op,
                  mu__shape_text(&a.x->shape, text));
        return NULL;
    }
    const mu_nn_pool2d_args planes = {
        .size = sizeof planes,
        .x = mu_reshape(a.x, 4,
                        (const int64_t[]){dims[0] == MU_UNKNOWN ? -1 : dims[0] * dims[1], dims[2], dims[3], dims[4]}),
        .window = {window.at[1], window.at[2]},
        .strides = {strides.at[1], strides.at[2]},
        .padding = a.padding,
        .pads = {a.pads[2], a.pads[3], a.pads[4], a.pads[5]},
    };
    mu_tensor *y = pool(&planes);
    if (!y)
        return mu__composed1(op, a.x, NULL);
    const int64_t height = y->shape.dims[1], width = y->shape.dims[2];
    const mu_nn_pool2d_args depth = {
        .size = sizeof depth,
        .x = mu_reshape(y, 4, (const int64_t[]){dims[0], dims[1], height * width, dims[4]}),
        .window = {window.at[0], 1},
        .strides = {strides.at[0], 1},
        .padding = a.padding,
        .pads = {a.pads[0], a.pads[1], 0, 0},
    };
    mu_tensor *z = pool(&depth);
    const int64_t depth_out = z ? z->shape.dims[1] : 0;
    return mu__composed1(op, a.x, mu_reshape(z, 5, (const int64_t[]){dims[0], depth_out, height, width, dims[4]}));
}

mu_tensor *mu_nn_max_pool3d_with(const mu_nn_pool3d_args *args)
{
    return pool_volume(mu_nn_max_pool2d_with, args, "mu_nn_max_pool3d", "max_pool3d");
}

mu_tensor *mu_nn_avg_pool3d_with(const mu_nn_pool3d_args *args)
{
    return pool_volume(mu_nn_avg_pool2d_with, args, "mu_nn_avg_pool3d", "avg_pool3d");
}
