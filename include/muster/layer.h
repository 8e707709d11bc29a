// Layers as in Keras, and layers of your own. Models are made of them: muster/model.h.
//
// Names, defaults and formulas are those of Keras 3. Where Keras's default is true, the option here is the opposite
// (.no_bias), so that false is the default of every option.
//
// Errors: what makes a layer fails with INVALID_ARGUMENT, for an option outside of its range or a name that is none.
// What a layer cannot compute shows when it is called (mu_call) or built: INVALID_ARGUMENT for inputs of another
// number, type or shape, FAILED_PRECONDITION if it has to learn from data first (mu_adapt). A question about a layer
// does not fail.
#ifndef MUSTER_LAYER_H
#define MUSTER_LAYER_H

#include <muster/distribute.h>
#include <muster/weight.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MU_MAX_SAMPLE_RANK 7 // axes of one sample: MU_MAX_RANK without the batch axis

typedef struct mu_layer mu_layer; // a layer of a model
typedef mu_layer mu_model;        // a model is a layer that can be compiled and trained, so models are parts of models

// mu_set_floatx sets the type of weights and of computation in layers: MU_F32 (default) or MU_F64. Errors:
// INVALID_ARGUMENT for any other type.
MU_API mu_status mu_set_floatx(mu_dtype dtype);

// Dtype policies say in which type layers compute and in which their weights are (Keras's keras.dtype_policies):
//   "float32", "float64", "float16", "bfloat16"   both in this type
//   "mixed_bfloat16", "mixed_float16"             weights in float32, computation in the half type
// A layer has the option .dtype, or the program's policy when it is made; layers that it makes have its policy. Its
// floating-point inputs and, in its call, its weights are converted to the type of computation, and gradients return
// through the same conversions. Normalization layers compute half types in float32. Losses and metrics of half types
// are computed in the type of mu_set_floatx. Under "mixed_float16" mu_compile scales the loss (muster/optimizer.h).
// mu_set_dtype_policy sets the program's policy (default: the type of mu_set_floatx), mu_layer_set_dtype_policy that of
// a layer without weights yet; mu_dtype_policy and mu_layer_dtype_policy return their names (static storage). Errors:
// INVALID_ARGUMENT for a name that is none of these; FAILED_PRECONDITION for a layer that is built.
MU_API mu_status mu_set_dtype_policy(const char *policy);
MU_API const char *mu_dtype_policy(void);
MU_API mu_status mu_layer_set_dtype_policy(mu_layer *layer, const char *policy);
MU_API const char *mu_layer_dtype_policy(const mu_layer *layer); // NULL for NULL

// ---- Layers -------------------------------------------------------------------------------------

// Names that the options of layers accept; any other is an INVALID_ARGUMENT error:
//   activations   "linear", "relu", "sigmoid", "tanh", "softmax" (over the last axis), "exponential", "relu6",
//                 "leaky_relu" (slope 0.2), "elu", "selu", "gelu", "silu" or "swish", "mish", "softplus", "softsign",
//                 "hard_sigmoid", "hard_silu" or "hard_swish", "log_sigmoid", "log_softmax", "celu", "glu" (the
//                 first half of the last axis times the sigmoid of the second), "hard_tanh", "hard_shrink" and
//                 "soft_shrink" (threshold 0.5), "tanh_shrink", "squareplus", "sparse_plus", "sparse_sigmoid"
//   paddings      "valid" (none), "same" (result size: size / strides, rounded up)
// Initializers, regularizers and constraints (muster/weight.h) are objects, which are retained, or names; a regularizer
// or constraint that is left out is none. `name` is the layer's name; by default it follows from the layer's kind,
// with a number if the model has several of that kind; `dtype` is its dtype policy. A layer returns NULL on error.

typedef struct mu_dense_args {
    size_t size;
    const char *given;
    int units; // size of the last axis of the output
    mu_keyword_only only_;
    const char *activation;                // a name listed above; default "linear"
    bool no_bias;                          // leave the bias out
    mu_any_initializer kernel_initializer; // default "glorot_uniform"
    mu_any_initializer bias_initializer;   // default "zeros"
    mu_any_regularizer kernel_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, bias_constraint;
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
} mu_dense_args;
// mu_dense makes a fully connected layer: y = activation(x · kernel + bias); x: [batch, …, in], y: [batch, …, units].
#define mu_dense(...) mu_dense_with(MU_ARGS(mu_dense_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_dense_with(const mu_dense_args *args);

typedef struct mu_flatten_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_flatten_args;
// mu_flatten makes a layer that reshapes [batch, a, b, …] to [batch, a·b·…].
#define mu_flatten(...) mu_flatten_with(MU_ARGS(mu_flatten_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_flatten_with(const mu_flatten_args *args);

typedef struct mu_dropout_args {
    size_t size;
    const char *given;
    double rate; // fraction of elements set to 0 in training, 0 ≤ rate < 1
    mu_keyword_only only_;
    uint64_t seed; // default: from the program's seed
    const char *name;
    const char *dtype;
    // of mu_dropout and mu_alpha_dropout: the shape of what is drawn, for each axis of x, the batch axis too: 1, where
    // all share one draw, or MU_UNKNOWN, the axis as it is; ends with 0; default: the shape of x. {MU_UNKNOWN, 1,
    // MU_UNKNOWN} drops the same features in each step of a sequence
    int64_t noise_shape[MU_MAX_SAMPLE_RANK];
} mu_dropout_args;
// mu_dropout makes a layer that drops elements in training and scales the others by 1 / (1 - rate); the shape stays.
#define mu_dropout(...) mu_dropout_with(MU_ARGS(mu_dropout_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_dropout_with(const mu_dropout_args *args);

// mu_spatial_dropout1d, mu_spatial_dropout2d and mu_spatial_dropout3d drop whole channels of sequences, images and
// volumes. mu_alpha_dropout keeps mean and variance of what "selu" gives; mu_gaussian_dropout multiplies by normal
// numbers of mean 1 and variance rate / (1 - rate).
#define mu_spatial_dropout1d(...) mu_spatial_dropout1d_with(MU_ARGS(mu_dropout_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_spatial_dropout1d_with(const mu_dropout_args *args);
#define mu_spatial_dropout2d(...) mu_spatial_dropout2d_with(MU_ARGS(mu_dropout_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_spatial_dropout2d_with(const mu_dropout_args *args);
#define mu_spatial_dropout3d(...) mu_spatial_dropout3d_with(MU_ARGS(mu_dropout_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_spatial_dropout3d_with(const mu_dropout_args *args);
#define mu_alpha_dropout(...) mu_alpha_dropout_with(MU_ARGS(mu_dropout_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_alpha_dropout_with(const mu_dropout_args *args);
#define mu_gaussian_dropout(...) mu_gaussian_dropout_with(MU_ARGS(mu_dropout_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_gaussian_dropout_with(const mu_dropout_args *args);

typedef struct mu_gaussian_noise_args {
    size_t size;
    const char *given;
    double stddev; // standard deviation, 0 to 1
    mu_keyword_only only_;
    uint64_t seed; // default: from the program's seed
    const char *name;
    const char *dtype;
} mu_gaussian_noise_args;
// mu_gaussian_noise makes a layer that adds normal numbers of mean 0 in training; the shape stays.
#define mu_gaussian_noise(...) mu_gaussian_noise_with(MU_ARGS(mu_gaussian_noise_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_gaussian_noise_with(const mu_gaussian_noise_args *args);

typedef struct mu_batch_normalization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double momentum;                      // momentum of the moving statistics; default 0.99
    double epsilon;                       // default 1e-3
    int axis;                             // of the channels; default -1, the last
    bool no_center, no_scale;             // leave out beta, or gamma
    bool synchronized;                    // compute statistics over the batches of all replicas
    mu_any_initializer beta_initializer;  // default "zeros"
    mu_any_initializer gamma_initializer; // default "ones"
    mu_any_regularizer beta_regularizer, gamma_regularizer;
    mu_any_constraint beta_constraint, gamma_constraint;
    mu_any_initializer moving_mean_initializer;     // default "zeros"
    mu_any_initializer moving_variance_initializer; // default "ones"
    const char *name;
    const char *dtype;
} mu_batch_normalization_args;
// mu_batch_normalization makes a layer that normalizes each channel. In training it uses the batch's mean
// and variance, otherwise their moving averages.
#define mu_batch_normalization(...) \
    mu_batch_normalization_with(MU_ARGS(mu_batch_normalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_batch_normalization_with(const mu_batch_normalization_args *args);

typedef struct mu_einsum_dense_args {
    size_t size;
    const char *given;
    const char *equation;                     // "abc,cd->abd": input, kernel, output; an axis is a letter
    int64_t output_shape[MU_MAX_SAMPLE_RANK]; // without the batch axis and those of "..."; ends with 0; MU_UNKNOWN: any
    mu_keyword_only only_;
    const char *activation;                // default "linear"
    const char *bias_axes;                 // letters of the output's axes that the bias has; default: no bias
    mu_any_initializer kernel_initializer; // default "glorot_uniform"
    mu_any_initializer bias_initializer;   // default "zeros"
    mu_any_regularizer kernel_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, bias_constraint;
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
} mu_einsum_dense_args;
// mu_einsum_dense makes a dense layer whose product is an einsum (mu_einsum): mu_einsum_dense("abc,cde->abde", {-1, 8,
// 64}, .bias_axes = "de"). "..." may precede or follow the letters of input and output. Errors: INVALID_ARGUMENT for an
// equation of another form, or sizes that do not fit it.
#define mu_einsum_dense(...) mu_einsum_dense_with(MU_ARGS(mu_einsum_dense_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_einsum_dense_with(const mu_einsum_dense_args *args);

typedef struct mu_embedding_args {
    size_t size;
    const char *given;
    int64_t input_dim, output_dim; // number of rows of the table, and length of each row
    mu_keyword_only only_;
    mu_any_initializer embeddings_initializer; // default "uniform"
    mu_any_regularizer embeddings_regularizer;
    mu_any_constraint embeddings_constraint;
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
    bool mask_zero; // index 0 is padding: later layers, loss and metrics leave it out
} mu_embedding_args;
// mu_embedding makes a lookup table; x: integers in [0, input_dim), [batch, …]; y: their rows, [batch, …, output_dim].
// The gradient of the table is indexed slices.
#define mu_embedding(...) mu_embedding_with(MU_ARGS(mu_embedding_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_embedding_with(const mu_embedding_args *args);

typedef struct mu_reversible_embedding_args {
    size_t size;
    const char *given;
    int64_t input_dim, output_dim; // number of rows of the table, and length of each row
    mu_keyword_only only_;
    bool no_tie_weights;                       // a weight of its own for the reverse, "reverse_embeddings"
    mu_any_initializer embeddings_initializer; // default "uniform"
    mu_any_regularizer embeddings_regularizer;
    mu_any_constraint embeddings_constraint;
    bool mask_zero;                          // index 0 is padding: later layers, loss and metrics leave it out
    const char *reverse_dtype;               // "float32": the type of the reverse; default: the wider of x and weights
    double logit_soft_cap;                   // c: the reverse is tanh(y / c) · c; default: none
    mu_any_regularizer activity_regularizer; // of the output
    const char *name;
    const char *dtype;
} mu_reversible_embedding_args;
// mu_reversible_embedding makes a lookup table as mu_embedding does, for language models. Called with .reverse = true
// it multiplies floats, [batch, …, output_dim], by the transposed table, to [batch, …, input_dim].
#define mu_reversible_embedding(...) \
    mu_reversible_embedding_with(MU_ARGS(mu_reversible_embedding_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_reversible_embedding_with(const mu_reversible_embedding_args *args);

typedef struct mu_activation_args {
    size_t size;
    const char *given;
    const char *activation; // a name listed above
    mu_keyword_only only_;
    const char *name;
    const char *dtype; // "float32" for the softmax after layers of "mixed_float16"
} mu_activation_args;
// mu_activation makes a layer that applies an activation by its name.
#define mu_activation(...) mu_activation_with(MU_ARGS(mu_activation_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_activation_with(const mu_activation_args *args);

typedef struct mu_leaky_relu_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double negative_slope; // default 0.3
    const char *name;
    const char *dtype;
} mu_leaky_relu_args;
// mu_leaky_relu makes a layer: x where it is positive, negative_slope · x elsewhere; the shape stays.
#define mu_leaky_relu(...) mu_leaky_relu_with(MU_ARGS(mu_leaky_relu_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_leaky_relu_with(const mu_leaky_relu_args *args);

typedef struct mu_relu_layer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double max_value;      // default: none
    double negative_slope; // below the threshold; default 0
    double threshold;      // default 0
    const char *name;
    const char *dtype;
} mu_relu_layer_args;
// mu_relu_layer makes a layer: x above the threshold, at most max_value; negative_slope · (x - threshold) elsewhere.
#define mu_relu_layer(...) mu_relu_layer_with(MU_ARGS(mu_relu_layer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_relu_layer_with(const mu_relu_layer_args *args);

typedef struct mu_prelu_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    mu_any_initializer alpha_initializer; // default "zeros"
    mu_any_regularizer alpha_regularizer;
    mu_any_constraint alpha_constraint;
    int64_t shared_axes[MU_MAX_SAMPLE_RANK]; // axes along which the slopes are the same, from 1; ends with 0
    const char *name;
    const char *dtype;
} mu_prelu_args;
// mu_prelu makes a layer: x where it is positive, alpha · x elsewhere, with a weight alpha for each element of a
// sample.
#define mu_prelu(...) mu_prelu_with(MU_ARGS(mu_prelu_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_prelu_with(const mu_prelu_args *args);

typedef struct mu_elu_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double alpha; // default 1
    const char *name;
    const char *dtype;
} mu_elu_args;
// mu_elu makes a layer: x where it is positive, alpha · (exp(x) - 1) elsewhere; the shape stays.
#define mu_elu(...) mu_elu_with(MU_ARGS(mu_elu_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_elu_with(const mu_elu_args *args);

typedef struct mu_softmax_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int axis; // default -1, the last
    const char *name;
    const char *dtype;
} mu_softmax_args;
// mu_softmax makes a layer that turns numbers along an axis into probabilities; the shape stays. Its mask is one of
// elements, which broadcasts to x: those where it is false take no part, and get 0. Errors: INVALID_ARGUMENT for a mask
// with more axes than x, or with an axis that is neither 1 nor that of x.
#define mu_softmax(...) mu_softmax_with(MU_ARGS(mu_softmax_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_softmax_with(const mu_softmax_args *args);

typedef struct mu_identity_layer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_identity_layer_args;
// mu_identity_layer makes a layer that returns its input.
#define mu_identity_layer(...) mu_identity_layer_with(MU_ARGS(mu_identity_layer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_identity_layer_with(const mu_identity_layer_args *args);

typedef struct mu_masking_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double mask_value; // default 0
    const char *name;
    const char *dtype;
} mu_masking_args;
// mu_masking masks the steps of [batch, steps, …] whose features all have mask_value.
#define mu_masking(...) mu_masking_with(MU_ARGS(mu_masking_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_masking_with(const mu_masking_args *args);

typedef struct mu_reshape_layer_args {
    size_t size;
    const char *given;
    int64_t shape[MU_MAX_SAMPLE_RANK]; // of a sample, ends with 0; one dimension may be MU_UNKNOWN
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_reshape_layer_args;
// mu_reshape_layer gives every sample a shape: mu_reshape_layer({7, 7, 64}).
#define mu_reshape_layer(...) mu_reshape_layer_with(MU_ARGS(mu_reshape_layer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_reshape_layer_with(const mu_reshape_layer_args *args);

typedef struct mu_permute_args {
    size_t size;
    const char *given;
    int64_t dims[MU_MAX_SAMPLE_RANK]; // axis dims[i] of the input becomes axis i + 1; the batch axis is 0
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_permute_args;
// mu_permute makes a layer that exchanges the axes of each sample. Errors: INVALID_ARGUMENT unless dims has each once.
#define mu_permute(...) mu_permute_with(MU_ARGS(mu_permute_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_permute_with(const mu_permute_args *args);

typedef struct mu_repeat_vector_args {
    size_t size;
    const char *given;
    int n;
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_repeat_vector_args;
// mu_repeat_vector makes [batch, n, features] of [batch, features].
#define mu_repeat_vector(...) mu_repeat_vector_with(MU_ARGS(mu_repeat_vector_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_repeat_vector_with(const mu_repeat_vector_args *args);

typedef struct mu_layer_normalization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double epsilon;                       // default 1e-3
    bool no_center, no_scale;             // leave out beta, or gamma
    mu_any_initializer beta_initializer;  // default "zeros"
    mu_any_initializer gamma_initializer; // default "ones"
    mu_any_regularizer beta_regularizer, gamma_regularizer;
    mu_any_constraint beta_constraint, gamma_constraint;
    const char *name;
    const char *dtype;
    const int *axes; // in increasing order, without the batch axis; default: the last
    int n_axes;      // the length of axes
} mu_layer_normalization_args;
// mu_layer_normalization normalizes each sample along its last axis, or along several together; gamma and beta have
// the sizes of these axes.
#define mu_layer_normalization(...) \
    mu_layer_normalization_with(MU_ARGS(mu_layer_normalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_layer_normalization_with(const mu_layer_normalization_args *args);

typedef struct mu_rms_normalization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double epsilon; // default 1e-6
    const char *name;
    const char *dtype;
    const int *axes; // in increasing order, without the batch axis; default: the last
    int n_axes;      // the length of axes
} mu_rms_normalization_args;
// mu_rms_normalization divides by the root mean square of the last axis, or of several together.
#define mu_rms_normalization(...) \
    mu_rms_normalization_with(MU_ARGS(mu_rms_normalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_rms_normalization_with(const mu_rms_normalization_args *args);

typedef struct mu_group_normalization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int groups;                           // default 32; must divide the number of channels; -1: one for each channel
    double epsilon;                       // default 1e-3
    int axis;                             // of the channels; default -1, the last
    bool no_center, no_scale;             // leave out beta, or gamma
    mu_any_initializer beta_initializer;  // default "zeros"
    mu_any_initializer gamma_initializer; // default "ones"
    mu_any_regularizer beta_regularizer, gamma_regularizer;
    mu_any_constraint beta_constraint, gamma_constraint;
    const char *name;
    const char *dtype;
} mu_group_normalization_args;
// mu_group_normalization normalizes groups of channels of each sample. With groups -1 it is instance normalization.
#define mu_group_normalization(...) \
    mu_group_normalization_with(MU_ARGS(mu_group_normalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_group_normalization_with(const mu_group_normalization_args *args);

typedef struct mu_unit_normalization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int axis; // default -1, the last
    const char *name;
    const char *dtype;
} mu_unit_normalization_args;
// mu_unit_normalization divides by the Euclidean norm along an axis.
#define mu_unit_normalization(...) \
    mu_unit_normalization_with(MU_ARGS(mu_unit_normalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_unit_normalization_with(const mu_unit_normalization_args *args);

typedef struct mu_spectral_normalization_args {
    size_t size;
    const char *given;
    mu_layer *layer; // with a weight "kernel" or "embeddings"
    mu_keyword_only only_;
    int power_iterations; // in each call in training; default 1
    const char *name;
    const char *dtype;
} mu_spectral_normalization_args;
// mu_spectral_normalization makes a layer that calls `layer`, whose kernel it divides by its spectral norm before each
// call in training, as Keras does: the kernel itself changes. The power iteration continues from call to call in the
// weight "vector_u", which is not trained. Retains: layer. Miyato et al., "Spectral normalization for generative
// adversarial networks", 2018.
#define mu_spectral_normalization(...) \
    mu_spectral_normalization_with(MU_ARGS(mu_spectral_normalization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_spectral_normalization_with(const mu_spectral_normalization_args *args);

typedef struct mu_activity_regularization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double l1, l2; // default 0
    const char *name;
    const char *dtype;
} mu_activity_regularization_args;
// mu_activity_regularization makes a layer that returns its input x, and adds l1 · Σ|x| + l2 · Σx², divided by the
// number of samples, to the loss.
#define mu_activity_regularization(...) \
    mu_activity_regularization_with(MU_ARGS(mu_activity_regularization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_activity_regularization_with(const mu_activity_regularization_args *args);

typedef struct mu_merge_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
    const char *dtype;
} mu_merge_args;
// Layers of several inputs, called with .inputs = mu_list(a, b, MU_END); the shapes broadcast. Inputs of fewer axes
// than others get axes of size 1 after the batch axis, as in Keras.
#define mu_add_layer(...) mu_add_layer_with(MU_ARGS(mu_merge_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_add_layer_with(const mu_merge_args *args);
#define mu_subtract_layer(...) mu_subtract_layer_with(MU_ARGS(mu_merge_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_subtract_layer_with(const mu_merge_args *args);
#define mu_multiply_layer(...) mu_multiply_layer_with(MU_ARGS(mu_merge_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_multiply_layer_with(const mu_merge_args *args);
#define mu_average_layer(...) mu_average_layer_with(MU_ARGS(mu_merge_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_average_layer_with(const mu_merge_args *args);
#define mu_maximum_layer(...) mu_maximum_layer_with(MU_ARGS(mu_merge_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_maximum_layer_with(const mu_merge_args *args);
#define mu_minimum_layer(...) mu_minimum_layer_with(MU_ARGS(mu_merge_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_minimum_layer_with(const mu_merge_args *args);

typedef struct mu_concatenate_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int axis; // default -1, the last
    const char *name;
    const char *dtype;
} mu_concatenate_args;
// mu_concatenate joins its inputs along an axis.
#define mu_concatenate(...) mu_concatenate_with(MU_ARGS(mu_concatenate_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_concatenate_with(const mu_concatenate_args *args);

typedef struct mu_dot_args {
    size_t size;
    const char *given;
    int axes; // of both inputs; negative axes count from the end, 0 is refused
    mu_keyword_only only_;
    int axes_per_input[3]; // instead: the axis of the first input and of the second
    bool normalize;        // to unit length along the axes first: cosine similarity
    const char *name;
    const char *dtype;
} mu_dot_args;
// mu_dot multiplies two inputs [batch, …] and sums along an axis of each, sample by sample: y has the other axes of the
// first input, then those of the second, at least one.
#define mu_dot(...) mu_dot_with(MU_ARGS(mu_dot_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_dot_with(const mu_dot_args *args);

MU_API const char *mu_layer_name(const mu_layer *layer); // belongs to the layer

// mu_layer_set_trainable freezes a layer or model and all of its sublayers, or thaws them: a frozen layer's weights are
// not among mu_trainable_variables, and batch normalization uses its moving statistics. A layer that is thawed inside
// of a frozen one is trained, but a frozen model itself trains nothing. Call mu_compile afterwards.
MU_API mu_status mu_layer_set_trainable(mu_layer *layer, bool trainable);
MU_API bool mu_layer_is_trainable(const mu_layer *layer); // false for NULL

// mu_layer_set_learning_rate_multiplier multiplies the learning rate for the weights of a layer or model and all of its
// sublayers, made or to come, under every optimizer (see mu_variable_set_learning_rate_multiplier). The last call
// counts, so a model comes before its layers. Call mu_compile afterwards. Errors: INVALID_ARGUMENT unless it is above
// 0.
MU_API mu_status mu_layer_set_learning_rate_multiplier(mu_layer *layer, double multiplier);

// ---- Layers of your own -------------------------------------------------------------------------

// What a layer's call gets in addition to its inputs.
typedef struct mu_call_context {
    bool training; // apply dropout, and normalize by the batch's statistics
    // Masks (bool) of the inputs, in their structure; an empty list for an input without one. NULL: there are none.
    mu_value *mask;
    mu_value **output_mask; // see mu_call_set_mask
    bool reverse;           // mu_call was given .reverse
    // `training` is false because mu_call was given none: calls in a functional model that say a mode have that one
    bool training_left_out;
} mu_call_context;

typedef struct mu_layer_args {
    size_t size;
    const char *given;
    const char *class_name; // in snake case, for names and the summary; default "layer"
    mu_keyword_only only_;
    // build makes the weights (mu_layer_add_weight) for n inputs of these shapes, whose batch axes are unknown. Called
    // once, before the first call, also where functions of a dataset call the layer on several threads. Optional.
    mu_status (*build)(mu_layer *layer, int n, const mu_shape *inputs, void *arg);
    // call computes the outputs with ops; it runs eagerly and in traces. Floats arrive in the type that the layer
    // computes in. A single input is a value of one tensor (mu_at(inputs, 0)), several are a list. Returns NULL on
    // error.
    mu_value *(*call)(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg);
    void *arg; // must live as long as the layer
    const char *name;
    const char *dtype;
    // clone makes a copy of the layer for mu_clone_model, by mu_layer_new, with sublayers and an `arg` of its own; the
    // clone gets the layer's name and policy. Returns NULL on error. Left out, a layer without `arg` and sublayers is
    // made of the same functions, and other layers cannot be cloned.
    mu_layer *(*clone)(const mu_layer *layer, void *arg);
} mu_layer_args;
// mu_layer_new makes a layer whose weights and outputs are made by C functions.
#define mu_layer_new(...) mu_layer_new_with(MU_ARGS(mu_layer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_layer_new_with(const mu_layer_args *args);

// mu_register_layer makes mu_layer_from_config and mu_load_model know a class of layers that Keras does not have, or
// has outside of keras.layers, for the rest of the process. registered_name: what the file has as "registered_name",
// such as "package>Name", or where that is null, and the module is not Keras's, as "class_name". from_config makes a
// layer with mu_layer_new of the text of the entry's "config"; the layer gets its name, and is written as it was read.
// .class_name is the class in snake case: weight files have it. Returns NULL after mu_fail. Errors: ALREADY_EXISTS if
// another function has the name.
MU_API mu_status mu_register_layer(const char *registered_name, mu_layer *(*from_config)(const char *config, void *arg),
                                   void *arg);

typedef struct mu_layer_add_weight_args {
    size_t size;
    const char *given;
    mu_layer *layer;
    const char *name; // such as "kernel"; the variable is named LAYER/NAME
    mu_shape shape;
    mu_keyword_only only_;
    mu_any_initializer initializer; // default "glorot_uniform"
    mu_any_regularizer regularizer;
    mu_any_constraint constraint;
    bool not_trainable; // such as moving statistics; replicas' assignments are averaged
} mu_layer_add_weight_args;
// mu_layer_add_weight makes a weight of a layer, which fit trains, files hold and the summary counts; a layer has any
// number. Retains: regularizer, constraint. mu_layer_weight finds one again, which belongs to the layer. Errors:
// INVALID_ARGUMENT for a name that the layer has, or a shape with unknown dimensions; NOT_FOUND, of the latter.
#define mu_layer_add_weight(...) mu_layer_add_weight_with(MU_ARGS(mu_layer_add_weight_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_variable *mu_layer_add_weight_with(const mu_layer_add_weight_args *args);
MU_API mu_variable *mu_layer_weight(const mu_layer *layer, const char *name);
// mu_layer_add_sublayer makes a layer part of another, whose `call` calls it: its weights become the other's. Call it
// before the layer is used. Retains: sublayer. Errors, which add nothing: INVALID_ARGUMENT.
MU_API mu_status mu_layer_add_sublayer(mu_layer *layer, mu_layer *sublayer);
// mu_layer_set_attribute adds a sublayer under a name, as `self.encoder = …` in Keras: Keras's weight files and
// TensorFlow's checkpoints keep the sublayer under this name, which need not be the layer's own (mu_layer_name), with
// which its weights' paths begin. mu_layer_attribute finds the sublayer again, for `call`; it belongs to the layer.
// Layers of mu_layer_new and models of mu_model_subclass have attributes. Retains: sublayer. Errors: ALREADY_EXISTS for
// a name that is taken; INVALID_ARGUMENT for another layer; NOT_FOUND for a name that was not set.
MU_API mu_status mu_layer_set_attribute(mu_layer *layer, const char *name, mu_layer *sublayer);
MU_API mu_layer *mu_layer_attribute(const mu_layer *layer, const char *name);
// mu_layer_add_loss adds a scalar to the loss of the model that the layer is part of: called in `call`, for this call.
// Under several replicas the loss has the mean of what they add. Retains: loss. Errors: INVALID_ARGUMENT unless it is a
// scalar.
MU_API mu_status mu_layer_add_loss(mu_layer *layer, mu_tensor *loss);
// mu_layer_add_metric makes a metric part of a layer, whose `call` updates it (mu_metric_update_weighted): the models
// that the layer is part of log it under its name, reset it and save it, as Keras does with metrics that are attributes
// of a layer. Call it in `build`, or before the layer is used; a callback can watch it only in the latter case.
// Retains: metric.
typedef struct mu_metric mu_metric;
MU_API mu_status mu_layer_add_metric(mu_layer *layer, mu_metric *metric);
// mu_call_set_mask sets the masks of a call's outputs, in their structure; NULL, or an empty list for an output, is no
// mask. Without it, an output has the mask of the layer inside that returned it, or none.
MU_API void mu_call_set_mask(const mu_call_context *context, mu_value *mask);
// mu_mask_of returns the mask (bool) of a tensor that a layer returned, for steps and losses of your own; NULL, without
// an error, if it has none. A mask travels with the tensor: layers that mu_call gives it find the mask, unless .mask is
// given. It belongs to the pool in which the layer was called. What ops make of the tensor has none. In a layer's call,
// its inputs have the masks that the call was given.
MU_API mu_tensor *mu_mask_of(const mu_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
