// Calls of the op benchmark: gradients. When a case is selected, its function runs once on a tape; the benchmark
// times the backward pass, from the gradient of the result (the last input) to the gradients of the first inputs.
// cases_grad.py uses the same names.
#include "calls.h"
#include "graph/graph.h"

// forward computes the result from all inputs but the last; inputs `first` to `first + n - 1` receive gradients.
typedef mu_tensor *forward_pass(mu_tensor *const *in);

// The current case: its tape and its result live in the case's pool.
static mu_tape *tape;
static mu_tensor *result;

static void run_forward(forward_pass *forward, mu_tensor *const *in)
{
    tape = mu_tape_open();
    result = forward(in);
    mu_tape_close(tape);
}

static int run_backward(mu_tensor *const *in, int n_in, int first, int n, mu_tensor **out)
{
    return mu__pullback(tape, 1, &result, &in[n_in - 1], n, (void *const *)(in + first), out) == MU_OK ? n : 0;
}

#define BACKWARD(name, n_in, first, n, expression)                                        \
    static mu_tensor *forward_##name(mu_tensor *const *in) { return (expression); }       \
    static void prepare_##name(mu_tensor *const *in) { run_forward(forward_##name, in); } \
    static int call_##name(mu_tensor *const *in, mu_tensor **out) { return run_backward(in, n_in, first, n, out); }
#define CONVOLUTION(X, name, ...)                                  \
    X(name##_dx, 3, 0, 1, mu_nn_conv2d(in[0], in[1], __VA_ARGS__)) \
    X(name##_dw, 3, 1, 1, mu_nn_conv2d(in[0], in[1], __VA_ARGS__))
#define GRADIENTS(X)                                                                                    \
    CONVOLUTION(X, conv2d, .padding = "same")                                                           \
    CONVOLUTION(X, conv2d_stride, .strides = {2, 2})                                                    \
    CONVOLUTION(X, conv2d_groups, .padding = "same", .groups = 4)                                       \
    CONVOLUTION(X, conv2d_dilated, .dilations = {2, 2})                                                 \
    X(conv2d_1x1_dx, 3, 0, 1, mu_nn_conv2d(in[0], in[1]))                                               \
    X(conv2d_1x1_dw, 3, 1, 1, mu_nn_conv2d(in[0], in[1]))                                               \
    X(conv2d_grads, 3, 0, 2, mu_nn_conv2d(in[0], in[1], .padding = "same"))                             \
    X(depthwise_dx, 3, 0, 1, mu_nn_depthwise_conv2d(in[0], in[1], .padding = "same"))                   \
    X(depthwise_dw, 3, 1, 1, mu_nn_depthwise_conv2d(in[0], in[1], .padding = "same"))                   \
    X(conv1d_dx, 3, 0, 1, mu_nn_conv1d(in[0], in[1], .padding = "same"))                                \
    X(conv1d_dw, 3, 1, 1, mu_nn_conv1d(in[0], in[1], .padding = "same"))                                \
    X(conv3d_dx, 3, 0, 1, mu_nn_conv3d(in[0], in[1], .padding = "same"))                                \
    X(conv3d_dw, 3, 1, 1, mu_nn_conv3d(in[0], in[1], .padding = "same"))                                \
    X(matmul_grads, 3, 0, 2, mu_matmul(in[0], in[1]))                                                   \
    X(max_pool_dx, 2, 0, 1, mu_nn_max_pool2d(in[0], {2, 2}))                                            \
    X(max_pool_3x3_dx, 2, 0, 1, mu_nn_max_pool2d(in[0], {3, 3}, .strides = {2, 2}))                     \
    X(avg_pool_dx, 2, 0, 1, mu_nn_avg_pool2d(in[0], {2, 2}))                                            \
    X(avg_pool_same_dx, 2, 0, 1, mu_nn_avg_pool2d(in[0], {3, 3}, .strides = {1, 1}, .padding = "same")) \
    X(softmax_dx, 2, 0, 1, mu_nn_softmax(in[0], -1))                                                    \
    X(log_softmax_dx, 2, 0, 1, mu_nn_log_softmax(in[0], -1))                                            \
    X(sparse_xent_dx, 3, 1, 1, mu_nn_sparse_softmax_cross_entropy(in[0], in[1]))                        \
    X(softmax_xent_dx, 3, 1, 1, mu_nn_softmax_cross_entropy(in[0], in[1]))                              \
    X(sigmoid_xent_dx, 3, 1, 1, mu_nn_sigmoid_cross_entropy(in[0], in[1]))                              \
    X(layer_norm_grads, 4, 0, 3, mu_nn_layer_normalization(in[0], in[1], in[2], 1e-5))                  \
    X(rms_norm_grads, 3, 0, 2, mu_nn_rms_normalization(in[0], in[1], 1e-5))                             \
    X(group_norm_grads, 4, 0, 3, mu_nn_group_normalization(in[0], 4, in[1], in[2], 1e-5))               \
    X(batch_norm_grads, 4, 0, 3, normalized(in))                                                        \
    X(relu_dx, 2, 0, 1, mu_nn_relu(in[0]))                                                              \
    X(gelu_dx, 2, 0, 1, mu_nn_gelu(in[0], false))                                                       \
    X(gelu_tanh_dx, 2, 0, 1, mu_nn_gelu(in[0], true))                                                   \
    X(silu_dx, 2, 0, 1, mu_nn_silu(in[0]))                                                              \
    X(tanh_dx, 2, 0, 1, mu_tanh(in[0]))                                                                 \
    X(sigmoid_dx, 2, 0, 1, mu_sigmoid(in[0]))                                                           \
    X(bias_add_db, 3, 1, 1, mu_nn_bias_add(in[0], in[1]))                                               \
    X(attention_grads, 4, 0, 3, mu_nn_attention(in[0], in[1], in[2]))                                   \
    X(attention_causal_grads, 4, 0, 3, mu_nn_attention(in[0], in[1], in[2], .causal = true))            \
    X(attention_mask_grads, 5, 0, 3, mu_nn_attention(in[0], in[1], in[2], .mask = in[3]))

static mu_tensor *normalized(mu_tensor *const *in)
{
    mu_tensor *y = NULL, *mean, *variance;
    mu_nn_batch_norm_training(in[0], in[1], in[2], 1e-3, &y, &mean, &variance);
    return y;
}

GRADIENTS(BACKWARD)

#define NAMED_GRADIENT(name, ...) {#name, call_##name, prepare_##name},
const call_row call_grad[] = {GRADIENTS(NAMED_GRADIENT){0}};
