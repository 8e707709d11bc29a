// Initial values of weights, by Keras's names.
//
// Fans are computed as in Keras: for a kernel of shape [..., in, out] the receptive field times in, and times out.
// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010; He et al.,
// "Delving deep into rectifiers", 2015.
#include "model/model.h"

#include <ctype.h>
#include <math.h>
#include <muster/ops.h>

typedef struct floatx {
    mu_dtype dtype;
} floatx;

static void *create_floatx(mu_runtime *runtime)
{
    (void)runtime;
    floatx *slot = mu__alloc(sizeof *slot);
    if (slot)
        slot->dtype = MU_F32;
    return slot;
}

mu_dtype mu__floatx(void)
{
    const floatx *slot = mu__runtime_slot(mu__runtime(), MU_SLOT_MODEL, create_floatx, mu__free);
    return slot ? slot->dtype : MU_F32;
}

mu_status mu_set_floatx(mu_dtype dtype)
{
    if (mu__pending())
        return mu_error_code();
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__error(MU_INVALID_ARGUMENT, "mu_set_floatx: %s is neither float32 nor float64", mu_dtype_name(dtype));
    floatx *slot = mu__runtime_slot(mu__runtime(), MU_SLOT_MODEL, create_floatx, mu__free);
    if (!slot)
        return mu_error_code();
    slot->dtype = dtype;
    return MU_OK;
}

static void fans(const mu_shape *shape, double *in, double *out)
{
    double field = 1;
    for (int i = 0; i + 2 < shape->rank; i++)
        field *= (double)shape->dims[i];
    *in = shape->rank >= 2   ? field * (double)shape->dims[shape->rank - 2]
          : shape->rank == 1 ? (double)shape->dims[0]
                             : 1;
    *out = shape->rank >= 1 ? (shape->rank >= 2 ? field : 1) * (double)shape->dims[shape->rank - 1] : 1;
}

typedef enum distribution { CONSTANT, UNIFORM, TRUNCATED_NORMAL, NORMAL, ORTHOGONAL, IDENTITY } distribution;
typedef enum fan { FAN_NONE, FAN_IN, FAN_AVERAGE } fan;

static const struct {
    const char *name;
    distribution distribution;
    fan fan;
    double scale;  // constant: the value; no fan: limit or deviation; else the variance's numerator
} initializers[] = {
    {"zeros", CONSTANT, FAN_NONE, 0},
    {"ones", CONSTANT, FAN_NONE, 1},
    {"glorot_uniform", UNIFORM, FAN_AVERAGE, 1},
    {"glorot_normal", TRUNCATED_NORMAL, FAN_AVERAGE, 1},
    {"he_uniform", UNIFORM, FAN_IN, 2},
    {"he_normal", TRUNCATED_NORMAL, FAN_IN, 2},
    {"lecun_uniform", UNIFORM, FAN_IN, 1},
    {"lecun_normal", TRUNCATED_NORMAL, FAN_IN, 1},
    {"random_uniform", UNIFORM, FAN_NONE, 0.05},
    {"uniform", UNIFORM, FAN_NONE, 0.05},
    {"random_normal", NORMAL, FAN_NONE, 0.05},
    {"truncated_normal", TRUNCATED_NORMAL, FAN_NONE, 0.05},
    {"orthogonal", ORTHOGONAL, FAN_NONE, 1},
    {"identity", IDENTITY, FAN_NONE, 1},
    // Keras's other names, with the defaults of their classes.
    {"zero", CONSTANT, FAN_NONE, 0},
    {"one", CONSTANT, FAN_NONE, 1},
    {"constant", CONSTANT, FAN_NONE, 0},
    {"normal", NORMAL, FAN_NONE, 0.05},
};

static mu_tensor *identity(mu_dtype dtype, const mu_shape *shape)
{
    char seen[MU_SHAPE_TEXT];
    if (shape->rank == 2)
        return mu_eye(dtype, shape->dims[0], shape->dims[1]);
    mu__error(MU_INVALID_ARGUMENT, "the initializer 'identity' makes matrices, and a weight has shape %s; choose "
              "another initializer for it", mu__shape_text(shape, seen));
    return NULL;
}

static mu_tensor *draw(size_t i, mu_dtype dtype, const mu_shape *shape)
{
    double in, out, spread = initializers[i].scale;
    fans(shape, &in, &out);
    if (initializers[i].fan != FAN_NONE) {
        double variance = initializers[i].scale / fmax(1, initializers[i].fan == FAN_IN ? in : (in + out) / 2);
        // A normal distribution truncated at two deviations has 0.8796 of the original deviation.
        spread = initializers[i].distribution == UNIFORM ? sqrt(3 * variance) : sqrt(variance) / .87962566103423978;
    }
    mu_runtime *runtime = mu__runtime();
    uint64_t words[2] = {mu__runtime_next_seed(runtime), mu__runtime_next_seed(runtime)};
    mu_tensor *seed = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, words), *unit;
    switch (initializers[i].distribution) {
    case UNIFORM:
        unit = mu_stateless_random_uniform(seed, dtype, shape->rank, shape->dims);
        return mu_multiply(mu_subtract(unit, mu_constant(dtype, .5)), mu_constant(dtype, 2 * spread));
    case TRUNCATED_NORMAL:
        unit = mu_stateless_truncated_normal(seed, dtype, shape->rank, shape->dims);
        return mu_multiply(unit, mu_constant(dtype, spread));
    case NORMAL:
        unit = mu_stateless_random_normal(seed, dtype, shape->rank, shape->dims);
        return mu_multiply(unit, mu_constant(dtype, spread));
    case ORTHOGONAL:
        return mu__orthogonal(seed, dtype, shape);
    case IDENTITY:
        return identity(dtype, shape);
    case CONSTANT:
        break;
    }
    return mu_fill(dtype, shape->rank, shape->dims, spread);
}

// The index of an initializer; -1 if unknown.
static int find_initializer(const char *name)
{
    for (size_t i = 0; i < MU_COUNT(initializers); i++)
        if (strcmp(initializers[i].name, name) == 0)
            return (int)i;
    return -1;
}

mu_status mu__initializer_known(const char *name, const char *function)
{
    if (!name || find_initializer(name) >= 0)
        return MU_OK;
    char known[512] = "";
    for (size_t i = 0; i < MU_COUNT(initializers); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", initializers[i].name);
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s: no initializer is named '%s'; there are %s", function, name, known);
}

mu_tensor *mu__initial_value(const char *name, mu_dtype dtype, const mu_shape *shape)
{
    if (mu__pending() || mu__initializer_known(name, "a weight") != MU_OK)
        return NULL;
    return draw((size_t)find_initializer(name), dtype, shape);
}

// Whether a class in camel case ("GlorotUniform") is this name ("glorot_uniform").
static bool is_class_of(const char *class_name, const char *name)
{
    while (*class_name && *name)
        if (*name == '_')
            name++;
        else if (tolower((unsigned char)*class_name++) != *name++)
            return false;
    return !*class_name && !*name;
}

const char *mu__keras_name(const char *class_name)
{
    for (size_t i = 0; class_name && i < MU_COUNT(initializers); i++)
        if (is_class_of(class_name, initializers[i].name))
            return initializers[i].name;
    return NULL;
}
