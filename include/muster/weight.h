// Options of a layer's weight as in Keras: how it begins (initializer), what large values of it cost (regularizer), and
// which values it may have (constraint).
//
// An option of a layer takes such an object, or the name of one with Keras's defaults: .kernel_initializer =
// mu_random_normal_initializer(.stddev = .02), or "he_normal". What layers keep they retain.
//
// Errors: INVALID_ARGUMENT for an option outside of its range, and for a tensor that it cannot be applied to.
#ifndef MUSTER_WEIGHT_H
#define MUSTER_WEIGHT_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_initializer mu_initializer; // draws the first value of a weight
typedef struct mu_regularizer mu_regularizer; // a penalty that is added to the loss
typedef struct mu_constraint mu_constraint;   // changes a weight after each update

// An object, or the name of one with Keras's defaults.
MU_ANY(mu_any_initializer, mu_initializer *, const char *);
// An object, or the name of one with Keras's defaults.
MU_ANY(mu_any_regularizer, mu_regularizer *, const char *);
// An object, or the name of one with Keras's defaults.
MU_ANY(mu_any_constraint, mu_constraint *, const char *);

// ---- Initializers -------------------------------------------------------------------------------

// Names of initializers: "zeros" or "zero", "ones" or "one", "constant" (0), "identity", "glorot_uniform",
// "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal", "random_uniform" or "uniform" (-0.05 to
// 0.05), "random_normal" or "normal" and "truncated_normal" (deviation 0.05), "variance_scaling", "orthogonal" (at
// least two axes). With a seed, an initializer draws the same numbers each time, those that Keras on TensorFlow draws.

typedef struct mu_constant_initializer_args {
    size_t size;
    const char *given;
    double value; // default 0
    mu_keyword_only only_;
} mu_constant_initializer_args;
// mu_constant_initializer gives every element one value.
#define mu_constant_initializer(...) \
    mu_constant_initializer_with(MU_ARGS(mu_constant_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_constant_initializer_with(const mu_constant_initializer_args *args);

typedef struct mu_gain_initializer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double gain;   // factor of the matrix; default 1
    uint64_t seed; // of mu_orthogonal_initializer; default: from the program's seed
} mu_gain_initializer_args;
// mu_identity_initializer makes an identity matrix; mu_orthogonal_initializer one whose rows or columns, the fewer of
// them, have length `gain` and are at right angles (axes before the last count as one). Saxe et al., "Exact solutions
// to the nonlinear dynamics of learning in deep linear neural networks", 2014.
#define mu_identity_initializer(...) \
    mu_identity_initializer_with(MU_ARGS(mu_gain_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_identity_initializer_with(const mu_gain_initializer_args *args);
#define mu_orthogonal_initializer(...) \
    mu_orthogonal_initializer_with(MU_ARGS(mu_gain_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_orthogonal_initializer_with(const mu_gain_initializer_args *args);

typedef struct mu_normal_initializer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double mean;   // default 0
    double stddev; // default 0.05
    uint64_t seed; // default: from the program's seed
} mu_normal_initializer_args;
// mu_random_normal_initializer draws normal numbers; mu_truncated_normal_initializer only those within two deviations.
#define mu_random_normal_initializer(...) \
    mu_random_normal_initializer_with(MU_ARGS(mu_normal_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_random_normal_initializer_with(const mu_normal_initializer_args *args);
#define mu_truncated_normal_initializer(...) \
    mu_truncated_normal_initializer_with(MU_ARGS(mu_normal_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_truncated_normal_initializer_with(const mu_normal_initializer_args *args);

typedef struct mu_uniform_initializer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double minval, maxval; // default -0.05 and 0.05
    uint64_t seed;         // default: from the program's seed
} mu_uniform_initializer_args;
// mu_random_uniform_initializer draws numbers from minval to below maxval.
#define mu_random_uniform_initializer(...) \
    mu_random_uniform_initializer_with(MU_ARGS(mu_uniform_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_random_uniform_initializer_with(const mu_uniform_initializer_args *args);

typedef struct mu_variance_scaling_initializer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double scale;             // default 1
    const char *mode;         // "fan_in" (default), "fan_out" or "fan_avg"
    const char *distribution; // "truncated_normal" (default), "untruncated_normal" or "uniform"
    uint64_t seed;            // default: from the program's seed
} mu_variance_scaling_initializer_args;
// mu_variance_scaling_initializer draws numbers whose variance is scale / n, where n is the number of inputs of a unit,
// of its outputs, or their mean.
#define mu_variance_scaling_initializer(...) \
    mu_variance_scaling_initializer_with(MU_ARGS(mu_variance_scaling_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_variance_scaling_initializer_with(const mu_variance_scaling_initializer_args *args);

typedef struct mu_seeded_initializer_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    uint64_t seed; // default: from the program's seed
} mu_seeded_initializer_args;
// Variance scaling with scale 1 and "fan_avg" (Glorot and Bengio, 2010), 2 and "fan_in" (He et al., 2015), 1 and
// "fan_in" (LeCun et al., 1998).
#define mu_glorot_uniform_initializer(...) \
    mu_glorot_uniform_initializer_with(MU_ARGS(mu_seeded_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_glorot_uniform_initializer_with(const mu_seeded_initializer_args *args);
#define mu_glorot_normal_initializer(...) \
    mu_glorot_normal_initializer_with(MU_ARGS(mu_seeded_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_glorot_normal_initializer_with(const mu_seeded_initializer_args *args);
#define mu_he_uniform_initializer(...) \
    mu_he_uniform_initializer_with(MU_ARGS(mu_seeded_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_he_uniform_initializer_with(const mu_seeded_initializer_args *args);
#define mu_he_normal_initializer(...) \
    mu_he_normal_initializer_with(MU_ARGS(mu_seeded_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_he_normal_initializer_with(const mu_seeded_initializer_args *args);
#define mu_lecun_uniform_initializer(...) \
    mu_lecun_uniform_initializer_with(MU_ARGS(mu_seeded_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_lecun_uniform_initializer_with(const mu_seeded_initializer_args *args);
#define mu_lecun_normal_initializer(...) \
    mu_lecun_normal_initializer_with(MU_ARGS(mu_seeded_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_lecun_normal_initializer_with(const mu_seeded_initializer_args *args);

typedef struct mu_own_initializer_args {
    size_t size;
    const char *given;
    // draw returns a tensor of this type and shape, or NULL after mu_fail.
    mu_tensor *(*draw)(mu_dtype dtype, const mu_shape *shape, void *arg);
    mu_keyword_only only_;
    void *arg; // must live as long as the initializer
} mu_own_initializer_args;
// mu_initializer_new makes an initializer of a C function.
#define mu_initializer_new(...) mu_initializer_new_with(MU_ARGS(mu_own_initializer_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_initializer *mu_initializer_new_with(const mu_own_initializer_args *args);

// mu_initializer_call draws a tensor. Errors: INVALID_ARGUMENT for a shape that the initializer cannot make.
MU_API mu_tensor *mu_initializer_call(const mu_initializer *initializer, mu_dtype dtype, mu_shape shape);

// ---- Regularizers -------------------------------------------------------------------------------

// Regularizers add a penalty on a weight w, or on a layer's output, to the loss: mu_l1 factor · Σ |w|, mu_l2
// factor · Σ w², mu_l1_l2 both. Names: "l1" and "l2" (factor 0.01), "l1_l2" (both 0), "orthogonal_regularizer" (0.01,
// rows). Errors: INVALID_ARGUMENT for a negative factor.
MU_API mu_regularizer *mu_l1(double l1);
MU_API mu_regularizer *mu_l2(double l2);
MU_API mu_regularizer *mu_l1_l2(double l1, double l2);
// mu_orthogonal_regularizer adds factor · the mean |cosine| of the angles between different "rows" (mode; also NULL) or
// "columns" of a matrix.
MU_API mu_regularizer *mu_orthogonal_regularizer(double factor, const char *mode);

typedef struct mu_own_weight_function_args {
    size_t size;
    const char *given;
    // apply computes with ops from the weight: a scalar for a regularizer, the new value for a constraint; NULL after
    // mu_fail.
    mu_tensor *(*apply)(mu_tensor *weight, void *arg);
    mu_keyword_only only_;
    void *arg; // must live as long as the object
} mu_own_weight_function_args;
// mu_regularizer_new makes a regularizer of a C function.
#define mu_regularizer_new(...) mu_regularizer_new_with(MU_ARGS(mu_own_weight_function_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_regularizer *mu_regularizer_new_with(const mu_own_weight_function_args *args);

// mu_regularizer_call returns the penalty on a tensor, a scalar.
MU_API mu_tensor *mu_regularizer_call(const mu_regularizer *regularizer, mu_tensor *x);

// ---- Constraints --------------------------------------------------------------------------------

// A weight with a constraint becomes constraint(weight) after each mu_apply_gradients. Names: "non_neg", "max_norm",
// "unit_norm", "min_max_norm". Norms are Euclidean, along `axes`, by default axis 0: of each unit of a dense layer; the
// axes of one filter of mu_conv2d are {0, 1, 2}.

MU_API mu_constraint *mu_non_neg(void); // negative elements become 0

typedef struct mu_max_norm_args {
    size_t size;
    const char *given;
    double max_value; // default 2
    mu_keyword_only only_;
    const int *axes; // default {0}
    int n_axes;
} mu_max_norm_args;
// mu_max_norm shortens what is longer than max_value.
#define mu_max_norm(...) mu_max_norm_with(MU_ARGS(mu_max_norm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_constraint *mu_max_norm_with(const mu_max_norm_args *args);

typedef struct mu_unit_norm_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const int *axes; // default {0}
    int n_axes;
} mu_unit_norm_args;
// mu_unit_norm makes every norm 1.
#define mu_unit_norm(...) mu_unit_norm_with(MU_ARGS(mu_unit_norm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_constraint *mu_unit_norm_with(const mu_unit_norm_args *args);

typedef struct mu_min_max_norm_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double min_value, max_value; // default 0 and 1
    double rate;                 // how far norms move to the interval in an update; default 1: all the way
    const int *axes;             // default {0}
    int n_axes;
} mu_min_max_norm_args;
// mu_min_max_norm moves norms into an interval.
#define mu_min_max_norm(...) mu_min_max_norm_with(MU_ARGS(mu_min_max_norm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_constraint *mu_min_max_norm_with(const mu_min_max_norm_args *args);

// mu_constraint_new makes a constraint of a C function.
#define mu_constraint_new(...) mu_constraint_new_with(MU_ARGS(mu_own_weight_function_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_constraint *mu_constraint_new_with(const mu_own_weight_function_args *args);

// mu_constraint_call returns what a constraint makes of a tensor.
MU_API mu_tensor *mu_constraint_call(const mu_constraint *constraint, mu_tensor *weight);

#ifdef __cplusplus
}
#endif
#endif
