// Calls of the op benchmark: matrix products, convolutions, pools and other parts of networks. cases_nn.py uses the
// same names.
#include "calls.h"

#define BINARY(X)                                      \
    X(matmul, mu_matmul)                               \
    X(bias_add, mu_nn_bias_add)                        \
    X(sparse_xent, mu_nn_sparse_softmax_cross_entropy) \
    X(softmax_xent, mu_nn_softmax_cross_entropy)       \
    X(sigmoid_xent, mu_nn_sigmoid_cross_entropy)
#define PRODUCTS(X)                                                                           \
    X(matmul_ta, mu_matmul_transposed(in[0], in[1], true, false))                             \
    X(matmul_tb, mu_matmul_transposed(in[0], in[1], false, true))                             \
    X(conv2d, mu_nn_conv2d(in[0], in[1], .padding = "same"))                                  \
    X(conv2d_1x1, mu_nn_conv2d(in[0], in[1]))                                                 \
    X(conv2d_stride, mu_nn_conv2d(in[0], in[1], .strides = {2, 2}))                           \
    X(conv2d_groups, mu_nn_conv2d(in[0], in[1], .padding = "same", .groups = 4))              \
    X(conv2d_dilated, mu_nn_conv2d(in[0], in[1], .dilations = {2, 2}))                        \
    X(depthwise, mu_nn_depthwise_conv2d(in[0], in[1], .padding = "same"))                     \
    X(conv1d, mu_nn_conv1d(in[0], in[1], .padding = "same"))                                  \
    X(conv1d_dilated, mu_nn_conv1d(in[0], in[1], .padding = "causal", .dilation = 2))         \
    X(conv2d_valid, mu_nn_conv2d(in[0], in[1]))                                               \
    X(conv2d_same_stride, mu_nn_conv2d(in[0], in[1], .padding = "same", .strides = {2, 2}))   \
    X(conv2d_padded, mu_nn_conv2d(in[0], in[1], .padding = "explicit", .pads = {1, 2, 0, 1})) \
    X(conv2d_groups_dilated, mu_nn_conv2d(in[0], in[1], .dilations = {2, 2}, .groups = 4))    \
    X(depthwise_stride, mu_nn_depthwise_conv2d(in[0], in[1], .strides = {2, 2}))              \
    X(depthwise_dilated, mu_nn_depthwise_conv2d(in[0], in[1], .dilations = {2, 2}))           \
    X(separable, mu_nn_separable_conv2d(in[0], in[1], in[2], .padding = "same"))              \
    X(conv3d, mu_nn_conv3d(in[0], in[1], .padding = "same"))                                  \
    X(conv3d_stride, mu_nn_conv3d(in[0], in[1], .strides = {2, 2, 2}))                        \
    X(conv1d_transpose, mu_nn_conv1d_transpose(in[0], in[1], .stride = 2))                    \
    X(conv2d_transpose, mu_nn_conv2d_transpose(in[0], in[1], .padding = "same"))              \
    X(conv2d_transpose_stride, mu_nn_conv2d_transpose(in[0], in[1], .strides = {2, 2}))       \
    X(conv3d_transpose, mu_nn_conv3d_transpose(in[0], in[1], .strides = {2, 2, 2}))
#define NETWORKS(X)                                                                         \
    X(max_pool, mu_nn_max_pool2d(in[0], {2, 2}))                                            \
    X(max_pool_3x3, mu_nn_max_pool2d(in[0], {3, 3}, .strides = {2, 2}))                     \
    X(avg_pool, mu_nn_avg_pool2d(in[0], {2, 2}))                                            \
    X(max_pool_same, mu_nn_max_pool2d(in[0], {3, 3}, .strides = {1, 1}, .padding = "same")) \
    X(avg_pool_3x3, mu_nn_avg_pool2d(in[0], {3, 3}, .strides = {2, 2}))                     \
    X(avg_pool_same, mu_nn_avg_pool2d(in[0], {3, 3}, .strides = {1, 1}, .padding = "same")) \
    X(max_pool1d, mu_nn_max_pool1d(in[0], 2))                                               \
    X(avg_pool1d, mu_nn_avg_pool1d(in[0], 2))                                               \
    X(max_pool1d_3, mu_nn_max_pool1d(in[0], 3, .stride = 2))                                \
    X(max_pool3d, mu_nn_max_pool3d(in[0], {2, 2, 2}))                                       \
    X(avg_pool3d, mu_nn_avg_pool3d(in[0], {2, 2, 2}))                                       \
    X(max_pool3d_3, mu_nn_max_pool3d(in[0], {3, 3, 3}, .strides = {2, 2, 2}))               \
    X(softmax, mu_nn_softmax(in[0], -1))                                                    \
    X(softmax_0, mu_nn_softmax(in[0], 0))                                                   \
    X(log_softmax, mu_nn_log_softmax(in[0], -1))                                            \
    X(batch_norm, mu_nn_batch_normalization(in[0], in[1], in[2], in[3], in[4], 1e-3))       \
    X(layer_norm, mu_nn_layer_normalization(in[0], in[1], in[2], 1e-5))                     \
    X(rms_norm, mu_nn_rms_normalization(in[0], in[1], 1e-5))                                \
    X(group_norm, mu_nn_group_normalization(in[0], 4, in[1], in[2], 1e-5))                  \
    X(dropout, mu_nn_stateless_dropout(in[0], 0.25, in[1]))                                 \
    X(dropout_half, mu_nn_stateless_dropout(in[0], 0.5, in[1]))                             \
    X(dropout_9, mu_nn_stateless_dropout(in[0], 0.9, in[1]))                                \
    X(attention_mask, mu_nn_attention(in[0], in[1], in[2], .mask = in[3]))                  \
    X(attention, mu_nn_attention(in[0], in[1], in[2]))                                      \
    X(attention_causal, mu_nn_attention(in[0], in[1], in[2], .causal = true))
BINARY(CALL2)
PRODUCTS(ONE)
NETWORKS(ONE)

static int call_batch_norm_training(mu_tensor *const *in, mu_tensor **out)
{
    mu_nn_batch_norm_training(in[0], in[1], in[2], 1e-3, &out[0], &out[1], &out[2]);
    return 1;
}

const call_row call_nn[] = {
    BINARY(NAMED) PRODUCTS(NAMED) NETWORKS(NAMED){"batch_norm_training", call_batch_norm_training, NULL},
    {0},
};
