// Initial values of weights, by Keras's names.
//
// Fans are computed as in Keras: for a kernel of shape [..., in, out] the receptive field times in, and times out.
// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010; He et al.,
// "Delving deep into rectifiers", 2015; LeCun et al., "Efficient backprop", 1998.

#include "base/callback.h"
#include "model/core/layer.h"

#include <math.h>
#include <muster/ops.h>

// ---- Numbers ------------------------------------------------------------------------------------

// The state of TensorFlow's stateless generators: a given seed and 0, as Keras has it, or the program's numbers.
static mu_tensor *state_of(const uint64_t *seed, const uint64_t *numbers)
{
    const uint64_t given[] = {seed ? *seed : 0, 0};
    return mu_tensor_new(MU_I64, 1, (int64_t[]){2}, seed ? given : numbers);
}
#define STATE(args, numbers) state_of(MU_GIVEN(args, seed) ? &(args)->seed : NULL, numbers)

static mu_tensor *moved(mu_tensor *x, double factor, double offset)
{
    mu_tensor *y = x ? mu_multiply(x, mu_constant(x->dtype, factor)) : NULL;
    return y && offset != 0 ? mu_add(y, mu_constant(y->dtype, offset)) : y;
}

static mu_tensor *uniform(mu_tensor *state, mu_dtype dtype, const mu_shape *shape, double low, double high)
{
    return moved(mu_stateless_random_uniform(state, dtype, shape->rank, shape->dims), high - low, low);
}

static mu_tensor *normal(mu_tensor *state, mu_dtype dtype, const mu_shape *shape, double mean, double stddev)
{
    return moved(mu_stateless_random_normal(state, dtype, shape->rank, shape->dims), stddev, mean);
}

static mu_tensor *truncated(mu_tensor *state, mu_dtype dtype, const mu_shape *shape, double mean, double stddev)
{
    return moved(mu_stateless_truncated_normal(state, dtype, shape->rank, shape->dims), stddev, mean);
}

// ---- Constants ----------------------------------------------------------------------------------

typedef struct no_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
} no_args;

static mu_tensor *zeros(const void *args, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    (void)args, (void)numbers;
    return mu_fill(dtype, shape->rank, shape->dims, 0);
}

static mu_tensor *ones(const void *args, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    (void)args, (void)numbers;
    return mu_fill(dtype, shape->rank, shape->dims, 1);
}

static const mu_weight_option_ops zeros_ops = {.class = {"zeros", "Zeros", "the initializer 'zeros'",
                                                         MU_OPTIONS(no_args), NULL, NULL},
                                               .alias = "zero",
                                               .draw = zeros},
                                  ones_ops = {.class = {"ones", "Ones", "the initializer 'ones'", MU_OPTIONS(no_args),
                                                        NULL, NULL},
                                              .alias = "one",
                                              .draw = ones};

// INITIALIZER(the word of mu_WORD_initializer and its name, Keras's class, another name, struct of options, fields,
// function that draws, and other members of mu_weight_option_ops)
#define INITIALIZER(word, keras_class, other_name, args_type, rows, ...)                                       \
    MU_WEIGHT_OPTION(word##_initializer, #word, keras_class, other_name, mu_initializer, mu__initializer_kind, \
                     args_type, rows, NULL, .draw = __VA_ARGS__)

static const mu_field constant_fields[] = {MU_FIELD(mu_constant_initializer_args, value, DOUBLE), {0}};

static mu_tensor *constant(const void *args, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    (void)numbers;
    return mu_fill(dtype, shape->rank, shape->dims, ((const mu_constant_initializer_args *)args)->value);
}

INITIALIZER(constant, "Constant", NULL, mu_constant_initializer_args, constant_fields, constant)

// ---- Matrices -----------------------------------------------------------------------------------

static const mu_field identity_fields[] = {MU_FIELD(mu_gain_initializer_args, gain, DOUBLE, .number = 1), {0}};
static const mu_field orthogonal_fields[] = {
    MU_FIELD(mu_gain_initializer_args, gain, DOUBLE, .number = 1),
    MU_FIELD(mu_gain_initializer_args, seed, SEED),
    {0},
};

static mu_tensor *identity(const void *args, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    char seen[MU_SHAPE_TEXT];
    (void)numbers;
    if (shape->rank == 2)
        return moved(mu_eye(dtype, shape->dims[0], shape->dims[1]), ((const mu_gain_initializer_args *)args)->gain, 0);
    mu__error(MU_INVALID_ARGUMENT,
              "the initializer 'identity' makes matrices, and a weight has shape %s; choose another initializer for it",
              mu__shape_text(shape, seen));
    return NULL;
}

static mu_tensor *orthogonal(const void *arguments, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    const mu_gain_initializer_args *args = arguments;
    return moved(mu__orthogonal(STATE(args, numbers), dtype, shape), args->gain, 0);
}

INITIALIZER(identity, "Identity", "IdentityInitializer", mu_gain_initializer_args, identity_fields, identity)
INITIALIZER(orthogonal, "Orthogonal", "OrthogonalInitializer", mu_gain_initializer_args, orthogonal_fields, orthogonal)

// ---- Random numbers -----------------------------------------------------------------------------

static const mu_field normal_fields[] = {
    MU_FIELD(mu_normal_initializer_args, mean, DOUBLE),
    MU_FIELD(mu_normal_initializer_args, stddev, DOUBLE, .number = .05, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_normal_initializer_args, seed, SEED),
    {0},
};
static const mu_field uniform_fields[] = {
    MU_FIELD(mu_uniform_initializer_args, minval, DOUBLE, .number = -.05),
    MU_FIELD(mu_uniform_initializer_args, maxval, DOUBLE, .number = .05),
    MU_FIELD(mu_uniform_initializer_args, seed, SEED),
    {0},
};

static mu_tensor *random_normal(const void *arguments, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    const mu_normal_initializer_args *args = arguments;
    return normal(STATE(args, numbers), dtype, shape, args->mean, args->stddev);
}

static mu_tensor *truncated_normal(const void *arguments, const uint64_t *numbers, mu_dtype dtype,
                                   const mu_shape *shape)
{
    const mu_normal_initializer_args *args = arguments;
    return truncated(STATE(args, numbers), dtype, shape, args->mean, args->stddev);
}

static mu_tensor *random_uniform(const void *arguments, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    const mu_uniform_initializer_args *args = arguments;
    return uniform(STATE(args, numbers), dtype, shape, args->minval, args->maxval);
}

INITIALIZER(random_normal, "RandomNormal", "normal", mu_normal_initializer_args, normal_fields, random_normal)
INITIALIZER(truncated_normal, "TruncatedNormal", NULL, mu_normal_initializer_args, normal_fields, truncated_normal)
INITIALIZER(random_uniform, "RandomUniform", "uniform", mu_uniform_initializer_args, uniform_fields, random_uniform)

// ---- Variance scaling ---------------------------------------------------------------------------

static const char *const fan_modes[] = {"fan_in", "fan_out", "fan_avg", NULL};
static const char *const distributions[] = {"truncated_normal", "untruncated_normal", "uniform", NULL};

static const mu_field variance_fields[] = {
    MU_FIELD(mu_variance_scaling_initializer_args, scale, DOUBLE, .number = 1, .limit = MU_POSITIVE),
    MU_FIELD(mu_variance_scaling_initializer_args, mode, CHOICE, .text = "fan_in", .choices = fan_modes),
    MU_FIELD(mu_variance_scaling_initializer_args, distribution, CHOICE, .text = "truncated_normal",
             .choices = distributions),
    MU_FIELD(mu_variance_scaling_initializer_args, seed, SEED),
    {0},
};
static const mu_field seeded_fields[] = {MU_FIELD(mu_seeded_initializer_args, seed, SEED), {0}};

// What a mode divides the variance by.
static double fan(const char *mode, const mu_shape *shape)
{
    double field = 1;
    for (int i = 0; i + 2 < shape->rank; i++)
        field *= (double)shape->dims[i];
    const double in = shape->rank >= 2   ? field * (double)shape->dims[shape->rank - 2]
                      : shape->rank == 1 ? (double)shape->dims[0]
                                         : 1;
    const double out = shape->rank >= 2 ? field * (double)shape->dims[shape->rank - 1] : in;
    return fmax(1, strcmp(mode, "fan_in") == 0 ? in : strcmp(mode, "fan_out") == 0 ? out : (in + out) / 2);
}

static mu_tensor *scaled(mu_tensor *state, mu_dtype dtype, const mu_shape *shape, double variance,
                         const char *distribution)
{
    const double limit = sqrt(3 * variance);
    if (strcmp(distribution, "uniform") == 0)
        return uniform(state, dtype, shape, -limit, limit);
    if (strcmp(distribution, "untruncated_normal") == 0)
        return normal(state, dtype, shape, 0, sqrt(variance));
    // A normal distribution truncated at two deviations has 0.8796 of the original deviation.
    return truncated(state, dtype, shape, 0, sqrt(variance) / .87962566103423978);
}

static mu_tensor *variance_scaling(const void *arguments, const uint64_t *numbers, mu_dtype dtype,
                                   const mu_shape *shape)
{
    const mu_variance_scaling_initializer_args *args = arguments;
    return scaled(STATE(args, numbers), dtype, shape, args->scale / fan(args->mode, shape), args->distribution);
}

INITIALIZER(variance_scaling, "VarianceScaling", NULL, mu_variance_scaling_initializer_args, variance_fields,
            variance_scaling, .by_fans = true)

// A word's initializer: the numerator of its variance, its mode and its distribution.
#define FIXED_SCALING(word, keras_class, numerator, mode, distribution)                                           \
    static mu_tensor *word(const void *arguments, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape) \
    {                                                                                                             \
        const mu_seeded_initializer_args *args = arguments;                                                       \
        return scaled(STATE(args, numbers), dtype, shape, numerator / fan(mode, shape), distribution);            \
    }                                                                                                             \
    INITIALIZER(word, keras_class, NULL, mu_seeded_initializer_args, seeded_fields, word, .by_fans = true)
FIXED_SCALING(glorot_uniform, "GlorotUniform", 1, "fan_avg", "uniform")
FIXED_SCALING(glorot_normal, "GlorotNormal", 1, "fan_avg", "truncated_normal")
FIXED_SCALING(he_uniform, "HeUniform", 2, "fan_in", "uniform")
FIXED_SCALING(he_normal, "HeNormal", 2, "fan_in", "truncated_normal")
FIXED_SCALING(lecun_uniform, "LecunUniform", 1, "fan_in", "uniform")
FIXED_SCALING(lecun_normal, "LecunNormal", 1, "fan_in", "truncated_normal")

// ---- Of the program's own -----------------------------------------------------------------------

static mu_tensor *own(const void *arguments, const uint64_t *numbers, mu_dtype dtype, const mu_shape *shape)
{
    (void)numbers;
    const mu_own_initializer_args *args = arguments;
    mu_tensor *value;
    MU_CALLBACK("the function of an initializer", value = args->draw(dtype, shape, args->arg));
    return value;
}

static mu_status own_complete(void *args)
{
    return ((const mu_own_initializer_args *)args)->draw
               ? MU_OK
               : mu__error(
                     MU_INVALID_ARGUMENT,
                     "mu_initializer_new: .draw is NULL; give the function that makes the first value of a weight");
}

MU_WEIGHT_OPTION(initializer_new, "initializer", NULL, NULL, mu_initializer, mu__initializer_kind,
                 mu_own_initializer_args, NULL, own_complete, .draw = own)

static const mu_weight_option_ops *const classes[] = {
    &zeros_ops,
    &ones_ops,
    &constant_initializer_ops,
    &identity_initializer_ops,
    &orthogonal_initializer_ops,
    &random_normal_initializer_ops,
    &truncated_normal_initializer_ops,
    &random_uniform_initializer_ops,
    &variance_scaling_initializer_ops,
    &glorot_uniform_initializer_ops,
    &glorot_normal_initializer_ops,
    &he_uniform_initializer_ops,
    &he_normal_initializer_ops,
    &lecun_uniform_initializer_ops,
    &lecun_normal_initializer_ops,
    NULL,
};
mu_weight_option_kind mu__initializer_kind = {
    .type = {.name = "initializer", .destroy = mu__weight_option_destroy},
    .module = "keras.initializers",
    .classes = classes,
};
