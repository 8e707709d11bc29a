// Layers of sequences [batch, steps, channels], images [batch, height, width, channels] and volumes [batch, depth,
// height, width, channels]: convolution, pooling, up-sampling, padding and cropping. Names ending in 1d, 2d and 3d are
// the same layer for each of the three.
//
// Options such as `strides` are one number for all spatial axes; with `_per_axis` appended to the name they are an
// array with a number for each axis, in the order of the input's axes. Give one of the two: mu_conv2d(8, 3, .strides =
// 2), or mu_conv2d(8, .kernel_size_per_axis = {3, 5}). Channels are the last axis. Names of activations, initializers
// and paddings are those of muster/layer.h, and so is what holds for all layers.
//
// Errors: as for all layers (muster/layer.h).
#ifndef MUSTER_SPATIAL_H
#define MUSTER_SPATIAL_H

#include <muster/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Convolution --------------------------------------------------------------------------------

typedef struct mu_conv_args {
    size_t size;
    const char *given;
    int filters, kernel_size;
    mu_keyword_only only_;
    int kernel_size_per_axis[3];
    int strides, strides_per_axis[3];             // default 1
    int dilation_rate, dilation_rate_per_axis[3]; // distance of the kernel's elements; default 1
    int groups;                                   // of channels, each with filters of its own; default 1
    const char *padding;                          // "valid" (default) or "same"; mu_conv1d also "causal"
    const char *activation;                       // default "linear"
    bool no_bias;                                 // leave the bias out
    mu_any_initializer kernel_initializer;        // default "glorot_uniform"
    mu_any_initializer bias_initializer;          // default "zeros"
    mu_any_regularizer kernel_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, bias_constraint;
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
} mu_conv_args;
// mu_conv1d, mu_conv2d and mu_conv3d make convolution layers; y has the axes of x with `filters` channels. "causal"
// pads in front only, so that no step depends on later ones. Weights: kernel [sizes…, channels / groups, filters],
// bias.
#define mu_conv1d(...) mu_conv1d_with(MU_ARGS(mu_conv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv1d_with(const mu_conv_args *args);
#define mu_conv2d(...) mu_conv2d_with(MU_ARGS(mu_conv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv2d_with(const mu_conv_args *args);
#define mu_conv3d(...) mu_conv3d_with(MU_ARGS(mu_conv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv3d_with(const mu_conv_args *args);

typedef struct mu_conv_transpose_args {
    size_t size;
    const char *given;
    int filters, kernel_size;
    mu_keyword_only only_;
    int kernel_size_per_axis[3];
    int strides, strides_per_axis[3];               // default 1
    int dilation_rate, dilation_rate_per_axis[3];   // distance of the kernel's elements; default 1
    int output_padding, output_padding_per_axis[3]; // below strides; default: see below
    const char *padding;                            // "valid" (default) or "same"
    const char *activation;                         // default "linear"
    bool no_bias;                                   // leave the bias out
    mu_any_initializer kernel_initializer;          // default "glorot_uniform"
    mu_any_initializer bias_initializer;            // default "zeros"
    mu_any_regularizer kernel_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, bias_constraint;
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
} mu_conv_transpose_args;
// mu_conv1d_transpose, mu_conv2d_transpose and mu_conv3d_transpose enlarge their input: they are what the gradient of a
// convolution is. An axis of n elements becomes n · strides with "same", and n · strides + max(size - strides, 0) with
// "valid", where size is the dilated kernel's. With output_padding it becomes (n - 1) · strides + size +
// output_padding, and with "same" size % 2 replaces size. Weights: kernel [sizes…, filters, channels], bias. Errors:
// INVALID_ARGUMENT if a spatial axis is unknown, or for a size from which the convolution would not lead back to n.
#define mu_conv1d_transpose(...) mu_conv1d_transpose_with(MU_ARGS(mu_conv_transpose_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv1d_transpose_with(const mu_conv_transpose_args *args);
#define mu_conv2d_transpose(...) mu_conv2d_transpose_with(MU_ARGS(mu_conv_transpose_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv2d_transpose_with(const mu_conv_transpose_args *args);
#define mu_conv3d_transpose(...) mu_conv3d_transpose_with(MU_ARGS(mu_conv_transpose_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_conv3d_transpose_with(const mu_conv_transpose_args *args);

typedef struct mu_depthwise_conv_args {
    size_t size;
    const char *given;
    int kernel_size;
    mu_keyword_only only_;
    int kernel_size_per_axis[3];
    int strides, strides_per_axis[3];             // default 1
    int dilation_rate, dilation_rate_per_axis[3]; // distance of the kernel's elements; default 1
    int depth_multiplier;                         // filters for each channel; default 1
    const char *padding;                          // "valid" (default) or "same"
    const char *activation;                       // default "linear"
    bool no_bias;                                 // leave the bias out
    mu_any_initializer depthwise_initializer;     // default "glorot_uniform"
    mu_any_initializer bias_initializer;          // default "zeros"
    mu_any_regularizer depthwise_regularizer, bias_regularizer;
    mu_any_constraint depthwise_constraint, bias_constraint;
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
} mu_depthwise_conv_args;
// mu_depthwise_conv1d and mu_depthwise_conv2d convolve each channel by itself; y has channels · depth_multiplier
// channels. Weights: kernel [sizes…, channels, depth_multiplier], bias.
#define mu_depthwise_conv1d(...) mu_depthwise_conv1d_with(MU_ARGS(mu_depthwise_conv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_depthwise_conv1d_with(const mu_depthwise_conv_args *args);
#define mu_depthwise_conv2d(...) mu_depthwise_conv2d_with(MU_ARGS(mu_depthwise_conv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_depthwise_conv2d_with(const mu_depthwise_conv_args *args);

typedef struct mu_separable_conv_args {
    size_t size;
    const char *given;
    int filters, kernel_size;
    mu_keyword_only only_;
    int kernel_size_per_axis[3];
    int strides, strides_per_axis[3];                                // default 1
    int dilation_rate, dilation_rate_per_axis[3];                    // distance of the kernel's elements; default 1
    int depth_multiplier;                                            // filters for each channel; default 1
    const char *padding;                                             // "valid" (default) or "same"
    const char *activation;                                          // default "linear"
    bool no_bias;                                                    // leave the bias out
    mu_any_initializer depthwise_initializer, pointwise_initializer; // default "glorot_uniform"
    mu_any_initializer bias_initializer;                             // default "zeros"
    mu_any_regularizer depthwise_regularizer, pointwise_regularizer, bias_regularizer;
    mu_any_constraint depthwise_constraint, pointwise_constraint, bias_constraint;
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
} mu_separable_conv_args;
// mu_separable_conv1d and mu_separable_conv2d convolve each channel by itself and then combine the channels of each
// position. Weights: depthwise_kernel [sizes…, channels, depth_multiplier], pointwise_kernel [1…, channels ·
// depth_multiplier, filters], bias.
#define mu_separable_conv1d(...) mu_separable_conv1d_with(MU_ARGS(mu_separable_conv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_separable_conv1d_with(const mu_separable_conv_args *args);
#define mu_separable_conv2d(...) mu_separable_conv2d_with(MU_ARGS(mu_separable_conv_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_separable_conv2d_with(const mu_separable_conv_args *args);

// ---- Pooling ------------------------------------------------------------------------------------

typedef struct mu_pool_args {
    size_t size;
    const char *given;
    int pool_size; // default 2
    mu_keyword_only only_;
    int pool_size_per_axis[3];
    int strides, strides_per_axis[3]; // default: the size of the pool
    const char *padding;              // "valid" (default) or "same"
    const char *name;
    const char *dtype;
} mu_pool_args;
// These layers take the maximum or the mean of each window, for each channel. Padding does not count.
#define mu_max_pool1d(...) mu_max_pool1d_with(MU_ARGS(mu_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_max_pool1d_with(const mu_pool_args *args);
#define mu_max_pool2d(...) mu_max_pool2d_with(MU_ARGS(mu_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_max_pool2d_with(const mu_pool_args *args);
#define mu_max_pool3d(...) mu_max_pool3d_with(MU_ARGS(mu_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_max_pool3d_with(const mu_pool_args *args);
#define mu_average_pool1d(...) mu_average_pool1d_with(MU_ARGS(mu_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_average_pool1d_with(const mu_pool_args *args);
#define mu_average_pool2d(...) mu_average_pool2d_with(MU_ARGS(mu_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_average_pool2d_with(const mu_pool_args *args);
#define mu_average_pool3d(...) mu_average_pool3d_with(MU_ARGS(mu_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_average_pool3d_with(const mu_pool_args *args);

typedef struct mu_global_pool_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    bool keepdims; // keep the pooled axes, with size 1
    const char *name;
    const char *dtype;
} mu_global_pool_args;
// Global pooling reduces all spatial axes: y is [batch, channels]. The average of a sequence leaves masked steps out.
#define mu_global_max_pool1d(...) mu_global_max_pool1d_with(MU_ARGS(mu_global_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_global_max_pool1d_with(const mu_global_pool_args *args);
#define mu_global_max_pool2d(...) mu_global_max_pool2d_with(MU_ARGS(mu_global_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_global_max_pool2d_with(const mu_global_pool_args *args);
#define mu_global_max_pool3d(...) mu_global_max_pool3d_with(MU_ARGS(mu_global_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_global_max_pool3d_with(const mu_global_pool_args *args);
#define mu_global_average_pool1d(...) \
    mu_global_average_pool1d_with(MU_ARGS(mu_global_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_global_average_pool1d_with(const mu_global_pool_args *args);
#define mu_global_average_pool2d(...) \
    mu_global_average_pool2d_with(MU_ARGS(mu_global_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_global_average_pool2d_with(const mu_global_pool_args *args);
#define mu_global_average_pool3d(...) \
    mu_global_average_pool3d_with(MU_ARGS(mu_global_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_global_average_pool3d_with(const mu_global_pool_args *args);

typedef struct mu_adaptive_pool_args {
    size_t size;
    const char *given;
    int output_size; // elements of y along each spatial axis
    mu_keyword_only only_;
    int output_size_per_axis[3];
    const char *name;
    const char *dtype;
} mu_adaptive_pool_args;
// Adaptive pooling divides each spatial axis of n elements into output_size windows, from i · n / output_size (rounded
// down) to (i + 1) · n / output_size (rounded up), and takes the maximum or the mean of each. Errors: INVALID_ARGUMENT
// if a spatial axis of the input is unknown.
#define mu_adaptive_max_pool1d(...) \
    mu_adaptive_max_pool1d_with(MU_ARGS(mu_adaptive_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_adaptive_max_pool1d_with(const mu_adaptive_pool_args *args);
#define mu_adaptive_max_pool2d(...) \
    mu_adaptive_max_pool2d_with(MU_ARGS(mu_adaptive_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_adaptive_max_pool2d_with(const mu_adaptive_pool_args *args);
#define mu_adaptive_max_pool3d(...) \
    mu_adaptive_max_pool3d_with(MU_ARGS(mu_adaptive_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_adaptive_max_pool3d_with(const mu_adaptive_pool_args *args);
#define mu_adaptive_average_pool1d(...) \
    mu_adaptive_average_pool1d_with(MU_ARGS(mu_adaptive_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_adaptive_average_pool1d_with(const mu_adaptive_pool_args *args);
#define mu_adaptive_average_pool2d(...) \
    mu_adaptive_average_pool2d_with(MU_ARGS(mu_adaptive_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_adaptive_average_pool2d_with(const mu_adaptive_pool_args *args);
#define mu_adaptive_average_pool3d(...) \
    mu_adaptive_average_pool3d_with(MU_ARGS(mu_adaptive_pool_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_adaptive_average_pool3d_with(const mu_adaptive_pool_args *args);

// ---- Sizes --------------------------------------------------------------------------------------

typedef struct mu_up_sampling1d_args {
    size_t size;
    const char *given;
    int factor; // Keras's size; default 2
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_up_sampling1d_args;
// mu_up_sampling1d repeats each step `factor` times.
#define mu_up_sampling1d(...) mu_up_sampling1d_with(MU_ARGS(mu_up_sampling1d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_up_sampling1d_with(const mu_up_sampling1d_args *args);

typedef struct mu_up_sampling2d_args {
    size_t size;
    const char *given;
    int factor; // Keras's size; default 2
    mu_keyword_only only_;
    int factor_per_axis[3];
    // "nearest" (default), "bilinear", "bicubic", "lanczos3", "lanczos5" or "area"
    const char *interpolation;
    const char *name;
    const char *dtype;
} mu_up_sampling2d_args;
// mu_up_sampling2d enlarges images; y: [batch, factor · height, factor · width, channels], in the type of x: mixed
// pixels of integers are rounded. Errors: INVALID_ARGUMENT for methods but "nearest" if height or width is unknown.
#define mu_up_sampling2d(...) mu_up_sampling2d_with(MU_ARGS(mu_up_sampling2d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_up_sampling2d_with(const mu_up_sampling2d_args *args);

typedef struct mu_up_sampling3d_args {
    size_t size;
    const char *given;
    int factor; // Keras's size; default 2
    mu_keyword_only only_;
    int factor_per_axis[3];
    const char *name;
    const char *dtype;
} mu_up_sampling3d_args;
// mu_up_sampling3d repeats each element along all three axes.
#define mu_up_sampling3d(...) mu_up_sampling3d_with(MU_ARGS(mu_up_sampling3d_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_up_sampling3d_with(const mu_up_sampling3d_args *args);

typedef struct mu_zero_padding_args {
    size_t size;
    const char *given;
    int padding; // zeros on each side; default 1
    mu_keyword_only only_;
    int padding_per_side[6]; // before and after the first axis, the second, the third
    const char *name;
    const char *dtype;
} mu_zero_padding_args;
// These layers add zeros around sequences, images and volumes.
#define mu_zero_padding1d(...) mu_zero_padding1d_with(MU_ARGS(mu_zero_padding_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_zero_padding1d_with(const mu_zero_padding_args *args);
#define mu_zero_padding2d(...) mu_zero_padding2d_with(MU_ARGS(mu_zero_padding_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_zero_padding2d_with(const mu_zero_padding_args *args);
#define mu_zero_padding3d(...) mu_zero_padding3d_with(MU_ARGS(mu_zero_padding_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_zero_padding3d_with(const mu_zero_padding_args *args);

typedef struct mu_cropping_args {
    size_t size;
    const char *given;
    int cropping; // elements to remove on each side; default 1, mu_cropping2d: 0
    mu_keyword_only only_;
    int cropping_per_side[6]; // before and after the first axis, the second, the third
    const char *name;
    const char *dtype;
} mu_cropping_args;
// These layers remove elements around sequences, images and volumes. Errors: INVALID_ARGUMENT if nothing is left.
#define mu_cropping1d(...) mu_cropping1d_with(MU_ARGS(mu_cropping_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_cropping1d_with(const mu_cropping_args *args);
#define mu_cropping2d(...) mu_cropping2d_with(MU_ARGS(mu_cropping_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_cropping2d_with(const mu_cropping_args *args);
#define mu_cropping3d(...) mu_cropping3d_with(MU_ARGS(mu_cropping_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_cropping3d_with(const mu_cropping_args *args);

#ifdef __cplusplus
}
#endif
#endif
