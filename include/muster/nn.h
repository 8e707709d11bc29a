// Neural network ops, named as in tf.nn (and tf.matmul). All work eagerly and in traces.
//
// Images have shape [batch, height, width, channels]; convolution kernels [height, width, channels in, channels out].
// Options that are pairs are {height, width}; if the second entry is missing, the first is used for both. Padding is a
// name: "valid" (none), "same" (result size: size / stride, rounded up) or "explicit" (zeros as in .pads); mu_nn_conv1d
// also accepts "causal".
//
// Errors: as in muster/ops.h, and INVALID_ARGUMENT for other names, or sizes and numbers that cannot be.
#ifndef MUSTER_NN_H
#define MUSTER_NN_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Matrix products ----------------------------------------------------------------------------

// mu_matmul multiplies matrices: a: [..., m, k], b: [..., k, n]; result [..., m, n]. Leading axes are batches and
// broadcast. Types: floats, int64, int32, int16, int8, uint8. The result has the same type; integers wrap around (cast
// to int32 first to get TensorFlow's output_type).
MU_API mu_tensor *mu_matmul(mu_tensor *a, mu_tensor *b);
// mu_matmul_transposed multiplies with the last two axes of a, b or both exchanged.
MU_API mu_tensor *mu_matmul_transposed(mu_tensor *a, mu_tensor *b, bool transpose_a, bool transpose_b);

// mu_nn_bias_add adds bias [channels] to the last axis of x. Floats or integers.
MU_API mu_tensor *mu_nn_bias_add(mu_tensor *x, mu_tensor *bias);

// ---- Convolution --------------------------------------------------------------------------------

typedef struct mu_nn_conv2d_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, height, width, channels]
    mu_tensor *kernel; // [height, width, channels / groups, filters]
    mu_keyword_only only_;
    int64_t strides[2];   // default 1
    int64_t dilations[2]; // default 1
    const char *padding;  // "valid" (default), "same" or "explicit"
    int64_t pads[4];      // top, bottom, left, right, for "explicit"
    int64_t groups;       // default 1
} mu_nn_conv2d_args;

// mu_nn_conv2d is a 2-D convolution; result [batch, height out, width out, filters]. All convolutions and transposed
// convolutions accept floats and int32; int32 sums wrap around.
#define mu_nn_conv2d(...) mu_nn_conv2d_with(MU_ARGS(mu_nn_conv2d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv2d_with(const mu_nn_conv2d_args *args);

// mu_nn_depthwise_conv2d convolves each channel separately; kernel [height, width, channels, multiplier]; the result
// has channels * multiplier channels.
#define mu_nn_depthwise_conv2d(...) mu_nn_depthwise_conv2d_with(MU_ARGS(mu_nn_conv2d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_depthwise_conv2d_with(const mu_nn_conv2d_args *args);

// mu_nn_separable_conv2d is a depthwise convolution followed by a 1 x 1 convolution.
typedef struct mu_nn_separable_conv2d_args {
    size_t size;
    const char *given;
    mu_tensor *x;                // [batch, height, width, channels]
    mu_tensor *depthwise_kernel; // [height, width, channels, multiplier]
    mu_tensor *pointwise_kernel; // [1, 1, channels * multiplier, filters]
    mu_keyword_only only_;
    int64_t strides[2];   // default 1
    int64_t dilations[2]; // default 1
    const char *padding;  // "valid" (default), "same" or "explicit"
    int64_t pads[4];      // top, bottom, left, right, for "explicit"
} mu_nn_separable_conv2d_args;

#define mu_nn_separable_conv2d(...) \
    mu_nn_separable_conv2d_with(MU_ARGS(mu_nn_separable_conv2d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_separable_conv2d_with(const mu_nn_separable_conv2d_args *args);

typedef struct mu_nn_conv1d_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, length, channels]
    mu_tensor *kernel; // [length, channels / groups, filters]
    mu_keyword_only only_;
    int64_t stride;      // default 1
    int64_t dilation;    // default 1
    const char *padding; // "valid" (default), "same", "causal" or "explicit"
    int64_t pads[2];     // before, after, for "explicit"
    int64_t groups;      // default 1
} mu_nn_conv1d_args;

// mu_nn_conv1d is a 1-D convolution; result [batch, length out, filters]. "causal" pads in front only, so that no
// output depends on later inputs.
#define mu_nn_conv1d(...) mu_nn_conv1d_with(MU_ARGS(mu_nn_conv1d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv1d_with(const mu_nn_conv1d_args *args);

typedef struct mu_nn_conv3d_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, depth, height, width, channels]
    mu_tensor *kernel; // [depth, height, width, channels / groups, filters]
    mu_keyword_only only_;
    int64_t strides[3];   // default 1
    int64_t dilations[3]; // default 1
    const char *padding;  // "valid" (default), "same" or "explicit"
    int64_t pads[6];      // front, back, top, bottom, left, right, for "explicit"
    int64_t groups;       // default 1
} mu_nn_conv3d_args;

// mu_nn_conv3d is a 3-D convolution; result [batch, depth out, height out, width out, filters].
#define mu_nn_conv3d(...) mu_nn_conv3d_with(MU_ARGS(mu_nn_conv3d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv3d_with(const mu_nn_conv3d_args *args);

// Transposed convolutions: the gradient of a convolution with the same kernel and options with respect to its input,
// where x has the shape of the convolution's result. kernel: […, filters / groups, channels], as in TensorFlow.
typedef struct mu_nn_conv1d_transpose_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, length, channels]
    mu_tensor *kernel; // [length, filters / groups, channels]
    mu_keyword_only only_;
    int64_t output_size; // result length; default: the smallest that yields x's ("same": length * stride)
    int64_t stride;      // default 1
    int64_t dilation;    // default 1
    const char *padding; // "valid" (default), "same" or "explicit"
    int64_t pads[2];     // before, after, for "explicit"
    int64_t groups;      // default 1
} mu_nn_conv1d_transpose_args;

typedef struct mu_nn_conv2d_transpose_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, height, width, channels]
    mu_tensor *kernel; // [height, width, filters / groups, channels]
    mu_keyword_only only_;
    int64_t output_size[2]; // default as above
    int64_t strides[2];     // default 1
    int64_t dilations[2];   // default 1
    const char *padding;    // "valid" (default), "same" or "explicit"
    int64_t pads[4];        // top, bottom, left, right, for "explicit"
    int64_t groups;         // default 1
} mu_nn_conv2d_transpose_args;

typedef struct mu_nn_conv3d_transpose_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, depth, height, width, channels]
    mu_tensor *kernel; // [depth, height, width, filters / groups, channels]
    mu_keyword_only only_;
    int64_t output_size[3]; // default as above
    int64_t strides[3];     // default 1
    int64_t dilations[3];   // default 1
    const char *padding;    // "valid" (default), "same" or "explicit"
    int64_t pads[6];        // front, back, top, bottom, left, right, for "explicit"
    int64_t groups;         // default 1
} mu_nn_conv3d_transpose_args;

// mu_nn_conv1d_transpose, mu_nn_conv2d_transpose and mu_nn_conv3d_transpose: result [batch, length or depth, height and
// width of the output, filters]. Errors: INVALID_ARGUMENT for an output_size that does not yield the size of x.
#define mu_nn_conv1d_transpose(...) \
    mu_nn_conv1d_transpose_with(MU_ARGS(mu_nn_conv1d_transpose_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_nn_conv2d_transpose(...) \
    mu_nn_conv2d_transpose_with(MU_ARGS(mu_nn_conv2d_transpose_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_nn_conv3d_transpose(...) \
    mu_nn_conv3d_transpose_with(MU_ARGS(mu_nn_conv3d_transpose_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_conv1d_transpose_with(const mu_nn_conv1d_transpose_args *args);
MU_API mu_tensor *mu_nn_conv2d_transpose_with(const mu_nn_conv2d_transpose_args *args);
MU_API mu_tensor *mu_nn_conv3d_transpose_with(const mu_nn_conv3d_transpose_args *args);

// ---- Pooling ------------------------------------------------------------------------------------

typedef struct mu_nn_pool2d_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, height, width, channels]
    int64_t window[2]; // height, width
    mu_keyword_only only_;
    int64_t strides[2];  // default: the window
    const char *padding; // "valid" (default), "same" or "explicit"
    int64_t pads[4];     // top, bottom, left, right, for "explicit"
} mu_nn_pool2d_args;

// mu_nn_max_pool2d and mu_nn_avg_pool2d take the maximum or mean of each window; padding does not count. The gradient
// of a maximum goes to the first of equal elements. Maximum pooling of any rank accepts floats and integers, average
// pooling floats.
#define mu_nn_max_pool2d(...) mu_nn_max_pool2d_with(MU_ARGS(mu_nn_pool2d_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_nn_avg_pool2d(...) mu_nn_avg_pool2d_with(MU_ARGS(mu_nn_pool2d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_max_pool2d_with(const mu_nn_pool2d_args *args);
MU_API mu_tensor *mu_nn_avg_pool2d_with(const mu_nn_pool2d_args *args);

typedef struct mu_nn_pool1d_args {
    size_t size;
    const char *given;
    mu_tensor *x;   // [batch, length, channels]
    int64_t window; // length
    mu_keyword_only only_;
    int64_t stride;      // default: the window
    const char *padding; // "valid" (default), "same" or "explicit"
    int64_t pads[2];     // before, after, for "explicit"
} mu_nn_pool1d_args;

typedef struct mu_nn_pool3d_args {
    size_t size;
    const char *given;
    mu_tensor *x;      // [batch, depth, height, width, channels]; all but the batch known
    int64_t window[3]; // depth, height, width
    mu_keyword_only only_;
    int64_t strides[3];  // default: the window
    const char *padding; // "valid" (default), "same" or "explicit"
    int64_t pads[6];     // front, back, top, bottom, left, right, for "explicit"
} mu_nn_pool3d_args;

// mu_nn_max_pool1d, mu_nn_avg_pool1d, mu_nn_max_pool3d and mu_nn_avg_pool3d pool 1-D and 3-D data; the result has the
// axes of x: [batch, length out, channels] or [batch, depth out, height out, width out, channels].
#define mu_nn_max_pool1d(...) mu_nn_max_pool1d_with(MU_ARGS(mu_nn_pool1d_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_nn_avg_pool1d(...) mu_nn_avg_pool1d_with(MU_ARGS(mu_nn_pool1d_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_nn_max_pool3d(...) mu_nn_max_pool3d_with(MU_ARGS(mu_nn_pool3d_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_nn_avg_pool3d(...) mu_nn_avg_pool3d_with(MU_ARGS(mu_nn_pool3d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_max_pool1d_with(const mu_nn_pool1d_args *args);
MU_API mu_tensor *mu_nn_avg_pool1d_with(const mu_nn_pool1d_args *args);
MU_API mu_tensor *mu_nn_max_pool3d_with(const mu_nn_pool3d_args *args);
MU_API mu_tensor *mu_nn_avg_pool3d_with(const mu_nn_pool3d_args *args);

// ---- Resizing -----------------------------------------------------------------------------------

typedef enum mu_resize_method { MU_RESIZE_BILINEAR, MU_RESIZE_NEAREST } mu_resize_method;

// mu_image_resize resizes images [batch, height, width, channels], or one image without batch axis, as tf.image.resize
// does without antialiasing: pixels are squares, so the centre of the first is at 0.5. Bilinear resizing turns integers
// into float32; otherwise the type is kept.
MU_API mu_tensor *mu_image_resize(mu_tensor *x, int64_t height, int64_t width, mu_resize_method method);

typedef struct mu_image_affine_transform_args {
    size_t size;
    const char *given;
    mu_tensor *images;     // [batch, height, width, channels]: floating-point, u8, i32 or i64
    mu_tensor *transforms; // [batch, 8], or [8] for all images
    mu_keyword_only only_;
    const char *interpolation; // "bilinear" (default) or "nearest"
    const char *fill_mode;     // "constant" (default), "reflect", "wrap" or "nearest"
    double fill_value;         // beyond the edge where fill_mode is "constant"; default 0
} mu_image_affine_transform_args;
// mu_image_affine_transform moves the pixels of images by a projection, as Keras's ops.image.affine_transform does:
// pixel (x, y) of the result is that of the image at ((a0·x + a1·y + a2) / k, (b0·x + b1·y + b2) / k), where
// k = c0·x + c1·y + 1 and a transform is [a0, a1, a2, b0, b1, b2, c0, c1]. Places beyond the edge: "reflect"
// dcba|abcd|dcba, "wrap" abcd|abcd|abcd, "nearest" aaaa|abcd|dddd. Integers are mixed in float32 and lose the fraction.
// Errors: INVALID_ARGUMENT for images of unknown height, width or channels.
#define mu_image_affine_transform(...) \
    mu_image_affine_transform_with(MU_ARGS(mu_image_affine_transform_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_image_affine_transform_with(const mu_image_affine_transform_args *args);

// ---- Activations and losses ---------------------------------------------------------------------

MU_API mu_tensor *mu_nn_relu(mu_tensor *x);                     // max(x, 0)
MU_API mu_tensor *mu_nn_relu6(mu_tensor *x);                    // min(max(x, 0), 6)
MU_API mu_tensor *mu_nn_leaky_relu(mu_tensor *x, double alpha); // x where x > 0, else alpha * x
MU_API mu_tensor *mu_nn_elu(mu_tensor *x);                      // x where x > 0, else exp(x) - 1
MU_API mu_tensor *mu_nn_selu(mu_tensor *x);                     // scaled elu of self-normalizing networks
MU_API mu_tensor *mu_nn_gelu(mu_tensor *x, bool approximate);   // approximate: uses tanh
MU_API mu_tensor *mu_nn_silu(mu_tensor *x);                     // x * sigmoid(x)
MU_API mu_tensor *mu_nn_mish(mu_tensor *x);                     // x * tanh(softplus(x))
MU_API mu_tensor *mu_nn_softplus(mu_tensor *x);                 // log(1 + exp(x))
MU_API mu_tensor *mu_nn_softsign(mu_tensor *x);                 // x / (1 + |x|)
MU_API mu_tensor *mu_nn_log_sigmoid(mu_tensor *x);              // log(sigmoid(x))
MU_API mu_tensor *mu_nn_hard_sigmoid(mu_tensor *x);             // x / 6 + 1/2, limited to [0, 1]
// mu_nn_softmax and mu_nn_log_softmax normalize along one axis (-1: the last).
MU_API mu_tensor *mu_nn_softmax(mu_tensor *x, int axis);
MU_API mu_tensor *mu_nn_log_softmax(mu_tensor *x, int axis);

// mu_nn_sparse_softmax_cross_entropy returns the loss of each row: labels [...] integers, logits [..., classes]; result
// [...]. Errors: INVALID_ARGUMENT naming the row whose label is not a class.
MU_API mu_tensor *mu_nn_sparse_softmax_cross_entropy(mu_tensor *labels, mu_tensor *logits);
// mu_nn_softmax_cross_entropy returns the cross-entropy for labels that are distributions which sum to 1: [...,
// classes].
MU_API mu_tensor *mu_nn_softmax_cross_entropy(mu_tensor *labels, mu_tensor *logits);
// mu_nn_sigmoid_cross_entropy works per element; labels are in [0, 1] and have the shape of the logits.
MU_API mu_tensor *mu_nn_sigmoid_cross_entropy(mu_tensor *labels, mu_tensor *logits);

// ---- Normalisation and dropout ------------------------------------------------------------------

// mu_nn_batch_norm_training normalizes each channel (last axis) of x by its own mean and biased variance, and returns
// these too; gamma, beta, *mean, *variance: [channels].
MU_API mu_status mu_nn_batch_norm_training(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta, double epsilon,
                                           mu_tensor **y, mu_tensor **mean, mu_tensor **variance);
// mu_nn_batch_normalization normalizes with the given mean and variance; offset and scale may be NULL.
MU_API mu_tensor *mu_nn_batch_normalization(mu_tensor *x, mu_tensor *mean, mu_tensor *variance, mu_tensor *offset,
                                            mu_tensor *scale, double epsilon);
// mu_nn_layer_normalization and mu_nn_rms_normalization normalize along the last axis; gamma and beta may be NULL.
MU_API mu_tensor *mu_nn_layer_normalization(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta, double epsilon);
MU_API mu_tensor *mu_nn_rms_normalization(mu_tensor *x, mu_tensor *gamma, double epsilon);

// mu_nn_group_normalization divides the channels (last axis) into groups and normalizes each group of each sample.
MU_API mu_tensor *mu_nn_group_normalization(mu_tensor *x, int64_t groups, mu_tensor *gamma, mu_tensor *beta,
                                            double epsilon);

// mu_nn_stateless_dropout sets elements to 0 with probability rate and scales the others by 1 / (1 - rate). The same
// seed (int32 or int64 [2]) drops the same elements.
MU_API mu_tensor *mu_nn_stateless_dropout(mu_tensor *x, double rate, mu_tensor *seed);

// ---- Attention ----------------------------------------------------------------------------------

typedef struct mu_nn_attention_args {
    size_t size;
    const char *given;
    mu_tensor *query; // [..., queries, width]
    mu_tensor *key;   // [..., keys, width]
    mu_tensor *value; // [..., keys, any]
    mu_keyword_only only_;
    mu_tensor *mask; // bool, broadcasts to [..., queries, keys]; false ignores the key
    bool causal;     // a query ignores later keys; the last query is aligned with the last key
    double scale;    // default 1 / sqrt(width)
} mu_nn_attention_args;

// mu_nn_attention is dot-product attention: softmax(scale · query · keyᵀ) · value; result [..., queries, any].
#define mu_nn_attention(...) mu_nn_attention_with(MU_ARGS(mu_nn_attention_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_nn_attention_with(const mu_nn_attention_args *args);

#ifdef __cplusplus
}
#endif
#endif
