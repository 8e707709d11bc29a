// Neural-network ops, by TensorFlow's names in tf.nn (and tf.matmul). All work eagerly and in traces.
//
// Images have shape [batch, height, width, channels], convolution kernels [height, width, channels in,
// channels out]. Options with a pair take {height, width}; a missing second entry is the first.
#ifndef MUSTER_NN_H
#define MUSTER_NN_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Matrix products ----------------------------------------------------------------------------

// mu_matmul multiplies matrices: a: [..., m, k], b: [..., k, n]; leading axes are batches and broadcast.
// Floats, int64, int32, int16, int8, uint8; the result has their type, integers wrap around (cast to int32 before for
// TensorFlow's output_type).
MU_API mu_tensor *mu_matmul(mu_tensor *a, mu_tensor *b);
// mu_matmul_transposed takes either of them with its last two axes exchanged.
MU_API mu_tensor *mu_matmul_transposed(mu_tensor *a, mu_tensor *b, bool transpose_a, bool transpose_b);

// mu_nn_bias_add adds bias: [channels] to the last axis of x, floats or integers.
MU_API mu_tensor *mu_nn_bias_add(mu_tensor *x, mu_tensor *bias);

// ---- Convolution --------------------------------------------------------------------------------

typedef struct mu_nn_conv2d_args {
    size_t size;
    mu_tensor *x;           // [batch, height, width, channels]
    mu_tensor *kernel;      // [height, width, channels / groups, filters]
    mu_keyword_only only_;
    int64_t strides[2];     // default 1
    int64_t dilations[2];   // default 1
    const char *padding;    // "valid" (default), "same" or "explicit"
    int64_t pads[4];        // top, bottom, left, right, for "explicit"
    int64_t groups;         // default 1
} mu_nn_conv2d_args;

// mu_nn_conv2d slides filters over images: [batch, height out, width out, filters]. This and the other convolutions and
// transposed ones take floats and int32, whose sums wrap.
#define mu_nn_conv2d(...) mu_nn_conv2d_with(MU_ARGS(mu_nn_conv2d_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv2d_with(const mu_nn_conv2d_args *args);

// mu_nn_depthwise_conv2d: kernel: [height, width, channels, multiplier]; result channels: channels * multiplier.
#define mu_nn_depthwise_conv2d(...) \
    mu_nn_depthwise_conv2d_with(MU_ARGS(mu_nn_conv2d_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_depthwise_conv2d_with(const mu_nn_conv2d_args *args);

// mu_nn_separable_conv2d: a depthwise convolution, then every pixel's channels through a matrix.
typedef struct mu_nn_separable_conv2d_args {
    size_t size;
    mu_tensor *x;                  // [batch, height, width, channels]
    mu_tensor *depthwise_kernel;   // [height, width, channels, multiplier]
    mu_tensor *pointwise_kernel;   // [1, 1, channels * multiplier, filters]
    mu_keyword_only only_;
    int64_t strides[2];            // default 1
    int64_t dilations[2];          // default 1
    const char *padding;           // "valid" (default), "same" or "explicit"
    int64_t pads[4];               // top, bottom, left, right, for "explicit"
} mu_nn_separable_conv2d_args;

#define mu_nn_separable_conv2d(...) \
    mu_nn_separable_conv2d_with(MU_ARGS(mu_nn_separable_conv2d_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_separable_conv2d_with(const mu_nn_separable_conv2d_args *args);

typedef struct mu_nn_conv1d_args {
    size_t size;
    mu_tensor *x;           // [batch, length, channels]
    mu_tensor *kernel;      // [length, channels / groups, filters]
    mu_keyword_only only_;
    int64_t stride;         // default 1
    int64_t dilation;       // default 1
    const char *padding;    // "valid" (default), "same", "causal" or "explicit"
    int64_t pads[2];        // before, after, for "explicit"
    int64_t groups;         // default 1
} mu_nn_conv1d_args;

// mu_nn_conv1d slides filters over sequences: [batch, length out, filters].
#define mu_nn_conv1d(...) mu_nn_conv1d_with(MU_ARGS(mu_nn_conv1d_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv1d_with(const mu_nn_conv1d_args *args);

typedef struct mu_nn_conv3d_args {
    size_t size;
    mu_tensor *x;           // [batch, depth, height, width, channels]
    mu_tensor *kernel;      // [depth, height, width, channels / groups, filters]
    mu_keyword_only only_;
    int64_t strides[3];     // default 1
    int64_t dilations[3];   // default 1
    const char *padding;    // "valid" (default), "same" or "explicit"
    int64_t pads[6];        // front, back, top, bottom, left, right, for "explicit"
    int64_t groups;         // default 1
} mu_nn_conv3d_args;

// mu_nn_conv3d slides filters over volumes: [batch, depth out, height out, width out, filters].
#define mu_nn_conv3d(...) mu_nn_conv3d_with(MU_ARGS(mu_nn_conv3d_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv3d_with(const mu_nn_conv3d_args *args);

// Transposed convolutions: the gradient of a convolution with the same kernel and options towards its image, whose
// result x would be. kernel: […, filters / groups, channels], as TensorFlow has it.
typedef struct mu_nn_conv1d_transpose_args {
    size_t size;
    mu_tensor *x;            // [batch, length, channels]
    mu_tensor *kernel;       // [length, filters / groups, channels]
    mu_keyword_only only_;
    int64_t output_size;     // length of the result; default: the least that x can come from ("same": times stride)
    int64_t stride;          // default 1
    int64_t dilation;        // default 1
    const char *padding;     // "valid" (default), "same" or "explicit"
    int64_t pads[2];
    int64_t groups;          // default 1
} mu_nn_conv1d_transpose_args;

typedef struct mu_nn_conv2d_transpose_args {
    size_t size;
    mu_tensor *x;            // [batch, height, width, channels]
    mu_tensor *kernel;       // [height, width, filters / groups, channels]
    mu_keyword_only only_;
    int64_t output_size[2];  // default as above
    int64_t strides[2];      // default 1
    int64_t dilations[2];    // default 1
    const char *padding;     // "valid" (default), "same" or "explicit"
    int64_t pads[4];
    int64_t groups;          // default 1
} mu_nn_conv2d_transpose_args;

typedef struct mu_nn_conv3d_transpose_args {
    size_t size;
    mu_tensor *x;            // [batch, depth, height, width, channels]
    mu_tensor *kernel;       // [depth, height, width, filters / groups, channels]
    mu_keyword_only only_;
    int64_t output_size[3];  // default as above
    int64_t strides[3];      // default 1
    int64_t dilations[3];    // default 1
    const char *padding;     // "valid" (default), "same" or "explicit"
    int64_t pads[6];
    int64_t groups;          // default 1
} mu_nn_conv3d_transpose_args;

#define mu_nn_conv1d_transpose(...) \
    mu_nn_conv1d_transpose_with(MU_ARGS(mu_nn_conv1d_transpose_args, __VA_ARGS__))
#define mu_nn_conv2d_transpose(...) \
    mu_nn_conv2d_transpose_with(MU_ARGS(mu_nn_conv2d_transpose_args, __VA_ARGS__))
#define mu_nn_conv3d_transpose(...) \
    mu_nn_conv3d_transpose_with(MU_ARGS(mu_nn_conv3d_transpose_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv1d_transpose_with(const mu_nn_conv1d_transpose_args *args);
MU_API mu_tensor *mu_nn_conv2d_transpose_with(const mu_nn_conv2d_transpose_args *args);
MU_API mu_tensor *mu_nn_conv3d_transpose_with(const mu_nn_conv3d_transpose_args *args);

// ---- Pooling ------------------------------------------------------------------------------------

typedef struct mu_nn_pool2d_args {
    size_t size;
    mu_tensor *x;           // [batch, height, width, channels]
    int64_t window[2];
    mu_keyword_only only_;
    int64_t strides[2];     // default: the window
    const char *padding;    // "valid" (default), "same" or "explicit"
    int64_t pads[4];        // top, bottom, left, right, for "explicit"
} mu_nn_pool2d_args;

// mu_nn_max_pool2d and mu_nn_avg_pool2d reduce each window; padding counts as absent. The gradient of a
// maximum goes to the first of equals. Maxima, of other ranks too, are of floats or integers, averages of floats.
#define mu_nn_max_pool2d(...) \
    mu_nn_max_pool2d_with(MU_ARGS(mu_nn_pool2d_args, __VA_ARGS__))
#define mu_nn_avg_pool2d(...) \
    mu_nn_avg_pool2d_with(MU_ARGS(mu_nn_pool2d_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_max_pool2d_with(const mu_nn_pool2d_args *args);
MU_API mu_tensor *mu_nn_avg_pool2d_with(const mu_nn_pool2d_args *args);

typedef struct mu_nn_pool1d_args {
    size_t size;
    mu_tensor *x;           // [batch, length, channels]
    int64_t window;
    mu_keyword_only only_;
    int64_t stride;         // default: the window
    const char *padding;    // "valid" (default), "same" or "explicit"
    int64_t pads[2];        // before, after, for "explicit"
} mu_nn_pool1d_args;

typedef struct mu_nn_pool3d_args {
    size_t size;
    mu_tensor *x;           // [batch, depth, height, width, channels]; all but the batch known
    int64_t window[3];
    mu_keyword_only only_;
    int64_t strides[3];     // default: the window
    const char *padding;    // "valid" (default), "same" or "explicit"
    int64_t pads[6];        // front, back, top, bottom, left, right, for "explicit"
} mu_nn_pool3d_args;

#define mu_nn_max_pool1d(...) mu_nn_max_pool1d_with(MU_ARGS(mu_nn_pool1d_args, __VA_ARGS__))
#define mu_nn_avg_pool1d(...) mu_nn_avg_pool1d_with(MU_ARGS(mu_nn_pool1d_args, __VA_ARGS__))
#define mu_nn_max_pool3d(...) mu_nn_max_pool3d_with(MU_ARGS(mu_nn_pool3d_args, __VA_ARGS__))
#define mu_nn_avg_pool3d(...) mu_nn_avg_pool3d_with(MU_ARGS(mu_nn_pool3d_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_max_pool1d_with(const mu_nn_pool1d_args *args);
MU_API mu_tensor *mu_nn_avg_pool1d_with(const mu_nn_pool1d_args *args);
MU_API mu_tensor *mu_nn_max_pool3d_with(const mu_nn_pool3d_args *args);
MU_API mu_tensor *mu_nn_avg_pool3d_with(const mu_nn_pool3d_args *args);

// ---- Resizing -----------------------------------------------------------------------------------

typedef enum mu_resize_method { MU_RESIZE_BILINEAR, MU_RESIZE_NEAREST } mu_resize_method;

// mu_image_resize samples images [batch, height, width, channels] (or one, without batch) anew, as tf.image.resize does
// without antialiasing: pixels are squares, so the first one's centre lies at one half. Integers become float32 unless
// the nearest pixel is taken; floats keep their type.
MU_API mu_tensor *mu_image_resize(mu_tensor *x, int64_t height, int64_t width, mu_resize_method method);

// ---- Activations and losses ---------------------------------------------------------------------

MU_API mu_tensor *mu_nn_relu(mu_tensor *x);
MU_API mu_tensor *mu_nn_relu6(mu_tensor *x);
MU_API mu_tensor *mu_nn_leaky_relu(mu_tensor *x, double alpha);
MU_API mu_tensor *mu_nn_elu(mu_tensor *x);
MU_API mu_tensor *mu_nn_selu(mu_tensor *x);
MU_API mu_tensor *mu_nn_gelu(mu_tensor *x, bool approximate);  // approximate: by tanh
MU_API mu_tensor *mu_nn_silu(mu_tensor *x);
MU_API mu_tensor *mu_nn_mish(mu_tensor *x);
MU_API mu_tensor *mu_nn_softplus(mu_tensor *x);
MU_API mu_tensor *mu_nn_softsign(mu_tensor *x);
MU_API mu_tensor *mu_nn_log_sigmoid(mu_tensor *x);
MU_API mu_tensor *mu_nn_hard_sigmoid(mu_tensor *x);
// mu_nn_softmax and mu_nn_log_softmax work along one axis (-1: the last).
MU_API mu_tensor *mu_nn_softmax(mu_tensor *x, int axis);
MU_API mu_tensor *mu_nn_log_softmax(mu_tensor *x, int axis);

// mu_nn_sparse_softmax_cross_entropy: labels: [...] integers, logits: [..., classes]; the loss of each row.
// Errors: INVALID_ARGUMENT naming the row whose label is not a class.
MU_API mu_tensor *mu_nn_sparse_softmax_cross_entropy(mu_tensor *labels, mu_tensor *logits);
// mu_nn_softmax_cross_entropy: labels: [..., classes], distributions that sum to 1.
MU_API mu_tensor *mu_nn_softmax_cross_entropy(mu_tensor *labels, mu_tensor *logits);
// mu_nn_sigmoid_cross_entropy: element by element, labels from 0 to 1 in the shape of the logits.
MU_API mu_tensor *mu_nn_sigmoid_cross_entropy(mu_tensor *labels, mu_tensor *logits);

// ---- Normalisation and dropout ------------------------------------------------------------------

// mu_nn_batch_norm_training normalises each channel (last axis) of x by its own mean and biased variance, which
// are given back too; gamma, beta: [channels].
MU_API mu_status mu_nn_batch_norm_training(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta, double epsilon,
                                           mu_tensor **y, mu_tensor **mean, mu_tensor **variance);
// mu_nn_batch_normalization uses a given mean and variance; offset and scale may be NULL.
MU_API mu_tensor *mu_nn_batch_normalization(mu_tensor *x, mu_tensor *mean, mu_tensor *variance, mu_tensor *offset,
                                            mu_tensor *scale, double epsilon);
// mu_nn_layer_normalization and mu_nn_rms_normalization work along the last axis; gamma and beta may be NULL.
MU_API mu_tensor *mu_nn_layer_normalization(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta, double epsilon);
MU_API mu_tensor *mu_nn_rms_normalization(mu_tensor *x, mu_tensor *gamma, double epsilon);

// mu_nn_group_normalization parts the channels (last axis) into groups and normalises each sample's groups.
MU_API mu_tensor *mu_nn_group_normalization(mu_tensor *x, int64_t groups, mu_tensor *gamma, mu_tensor *beta,
                                            double epsilon);

// mu_nn_stateless_dropout sets elements to 0 with probability rate and scales the others by 1 / (1 - rate). The
// same seed (int32 or int64, shape [2]) drops the same places.
MU_API mu_tensor *mu_nn_stateless_dropout(mu_tensor *x, double rate, mu_tensor *seed);

// ---- Attention ----------------------------------------------------------------------------------

typedef struct mu_nn_attention_args {
    size_t size;
    mu_tensor *query;       // [..., queries, width]
    mu_tensor *key;         // [..., keys, width]
    mu_tensor *value;       // [..., keys, any]
    mu_keyword_only only_;
    mu_tensor *mask;        // bool, broadcast to [..., queries, keys]: true takes part
    bool causal;            // a query sees no later key; the last query sees the last key
    double scale;           // default 1 / sqrt(width)
} mu_nn_attention_args;

// mu_nn_attention mixes values by the softmax of scaled products of queries and keys.
#define mu_nn_attention(...) \
    mu_nn_attention_with(MU_ARGS(mu_nn_attention_args, __VA_ARGS__))
MU_API mu_tensor *mu_nn_attention_with(const mu_nn_attention_args *args);

#ifdef __cplusplus
}
#endif
#endif
