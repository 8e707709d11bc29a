// Stateless random numbers: every element is a function of the seed and the element's index.
//
// The generator is Philox. Groups of elements use fixed parts of its sequence, laid out as in TensorFlow's kernels, so
// integers and uniforms are bit-identical to TensorFlow's, and normals agree to rounding. Input 0 is the seed (two
// integers); an optional second input supplies the shape if it is known only at run time.
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/random/random.h"

#include "kernels/kernels.h"

#include <math.h>
#include <muster/ops.h>

enum { GROUP = MU_RANDOM_GROUP, RESERVED = 256 }; // samples reserved for one truncated normal
enum {
    UNIFORM = MU_RANDOM_UNIFORM,
    NORMAL = MU_RANDOM_NORMAL,
    TRUNCATED = MU_RANDOM_TRUNCATED,
    INTEGERS = MU_RANDOM_INTEGERS,
    PERMUTATION = MU_RANDOM_PERMUTATION,
};

// Box-Muller: two normal numbers from two uniform ones.
static void normal_floats(const uint32_t words[2], float out[2])
{
    float radius = mu__random_float(words[0]), angle = (float)(2 * M_PI * mu__random_float(words[1]));
    radius = sqrtf(-2 * logf(radius < 1.0e-7f ? 1.0e-7f : radius));
    out[0] = sinf(angle) * radius;
    out[1] = cosf(angle) * radius;
}

void mu__random_normals(const uint32_t words[4], double out[2])
{
    double radius = mu__random_double(words[0], words[1]), angle = 2 * M_PI * mu__random_double(words[2], words[3]);
    radius = sqrt(-2 * log(radius < 1.0e-7 ? 1.0e-7 : radius));
    out[0] = sin(angle) * radius;
    out[1] = cos(angle) * radius;
}

int mu__random_group_size(int variant, mu_dtype dtype)
{
    return dtype == MU_F64 || (variant == INTEGERS && dtype == MU_I64) ? 2 : 4;
}

static void uniform_group(mu_philox generator, mu_dtype dtype, double out[GROUP])
{
    uint32_t words[4];
    mu__philox_next(&generator, words);
    for (int i = 0; i < mu__random_group_size(UNIFORM, dtype); i++) {
        if (dtype == MU_F64)
            out[i] = mu__random_double(words[2 * i], words[2 * i + 1]);
        else if (dtype == MU_F32)
            out[i] = mu__random_float(words[i]);
        else // as many bits as the type's fraction has
            out[i] = dtype == MU_F16 ? (words[i] & 0x3ff) * 0x1p-10 : (words[i] & 0x7f) * 0x1p-7;
    }
}

static void normal_group(mu_philox generator, mu_dtype dtype, double out[GROUP])
{
    uint32_t words[4];
    mu__philox_next(&generator, words);
    if (dtype == MU_F64) {
        mu__random_normals(words, out);
        return;
    }
    for (int i = 0; i < GROUP; i += 2) {
        float pair[2];
        normal_floats(words + i, pair);
        out[i] = pair[0];
        out[i + 1] = pair[1];
    }
}

// Draws until the group is full of numbers within two standard deviations.
void mu__truncated_group(mu_philox generator, mu_dtype dtype, double out[GROUP])
{
    int n = 0, wanted = mu__random_group_size(TRUNCATED, dtype);
    while (n < wanted) {
        uint32_t words[4];
        double drawn[GROUP];
        int n_drawn = dtype == MU_F64 ? 2 : 4;
        mu_philox here = generator;
        mu__philox_next(&generator, words);
        normal_group(here, dtype, drawn);
        for (int i = 0; i < n_drawn && n < wanted; i++)
            if (fabs(drawn[i]) < 2)
                out[n++] = drawn[i];
    }
}

// Integers in [low, high) by remainder, as in TensorFlow, with a bias of at most range / 2^32 (2^64 for int64).
static void integer_group(mu_philox generator, const mu_kernel *k, int64_t at, int64_t n)
{
    const mu_random_attrs *attrs = k->attrs;
    uint32_t words[4];
    mu__philox_next(&generator, words);
    for (int64_t i = 0; i < n; i++) {
        if (k->out[0].dtype == MU_I64) {
            uint64_t word = words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
            ((int64_t *)k->out[0].data)[at + i] =
                (int64_t)((uint64_t)attrs->low + word % ((uint64_t)attrs->high - (uint64_t)attrs->low));
        } else {
            ((int32_t *)k->out[0].data)[at + i] =
                (int32_t)((uint32_t)attrs->low + words[i] % ((uint32_t)attrs->high - (uint32_t)attrs->low));
        }
    }
}

mu_philox mu__random_generator(const mu_view *seed)
{
    uint64_t seeds[2];
    for (int i = 0; i < 2; i++)
        seeds[i] = seed->dtype == MU_I64 ? (uint64_t)((const int64_t *)seed->data)[i]
                                         : (uint64_t)(int64_t)((const int32_t *)seed->data)[i];
    return mu__philox_seeded(seeds[0], seeds[1]);
}

// Number of counters reserved for each group.
uint64_t mu__random_counters(int variant, int64_t size)
{
    return variant == TRUNCATED ? (uint64_t)size * RESERVED / 4 : 1;
}

static void random_groups(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    int variant = k->op->variant;
    mu_dtype dtype = k->out[0].dtype;
    int64_t size = mu__random_group_size(variant, dtype), n = mu__elements(&k->out[0].shape);
    const mu_philox first = mu__random_generator(&k->in[0]);
    for (int64_t group = begin; group < end; group++) {
        mu_philox generator = first;
        double drawn[GROUP];
        int64_t at = group * size, count = MU_MIN(size, n - at);
        mu__philox_skip(&generator, (uint64_t)group * mu__random_counters(variant, size));
        if (variant == INTEGERS) {
            integer_group(generator, k, at, count);
            continue;
        }
        if (variant == UNIFORM)
            uniform_group(generator, dtype, drawn);
        else if (variant == NORMAL)
            normal_group(generator, dtype, drawn);
        else
            mu__truncated_group(generator, dtype, drawn);
        for (int64_t i = 0; i < count; i++)
            mu__write_element(dtype, k->out[0].data, at + i, drawn[i]);
    }
}

static mu_status random_ref(const mu_kernel *k)
{
    int64_t size = mu__random_group_size(k->op->variant, k->out[0].dtype), n = mu__elements(&k->out[0].shape);
    mu__share_range(k->team, (n + size - 1) / size, 64, n * 8, random_groups, (void *)k);
    return MU_OK;
}

// Fisher-Yates shuffle, from the end; each counter yields two words.
static mu_status permutation_ref(const mu_kernel *k)
{
    mu_philox generator = mu__random_generator(&k->in[0]);
    int64_t *out = k->out[0].data, n = mu__elements(&k->out[0].shape);
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    uint32_t words[4];
    for (int64_t i = n - 1; i > 0; i--) {
        const bool second = (n - 1 - i) % 2 != 0;
        if (!second)
            mu__philox_next(&generator, words);
        const uint32_t *word = words + (second ? 2 : 0);
        const int64_t j = (int64_t)((word[0] | (uint64_t)word[1] << 32) % (uint64_t)(i + 1)), kept = out[i];
        out[i] = out[j];
        out[j] = kept;
    }
    return MU_OK;
}

mu_status mu__need_seed(const mu_infer *infer)
{
    const mu_shape *seed = &infer->in[0].shape;
    char text[MU_SHAPE_TEXT];
    if (seed->rank == 1 && (seed->dims[0] == 2 || seed->dims[0] == MU_UNKNOWN))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the seed has shape %s; it must be two integers, [2]", infer->op->name,
                     mu__shape_text(seed, text));
}

mu_status mu__need_known_shape(const mu_shape *shape, const char *what)
{
    char text[MU_SHAPE_TEXT];
    MU_TRY(mu__shape_check(shape, what));
    return mu__shape_known(shape) ? MU_OK
                                  : mu__error(MU_INVALID_ARGUMENT, "%s: shape %s has a negative dimension; give sizes",
                                              what, mu__shape_text(shape, text));
}

static mu_status random_infer(mu_infer *infer)
{
    const mu_random_attrs *attrs = infer->attrs;
    unsigned allowed = infer->op->variant == INTEGERS      ? MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64)
                       : infer->op->variant == PERMUTATION ? MU_DTYPE_BIT(MU_I64)
                                                           : MU_FLOATS;
    MU_TRY(mu__need_seed(infer));
    if (!mu__dtype_ok(attrs->dtype) || !(allowed & MU_DTYPE_BIT(attrs->dtype)))
        return mu__error(MU_INVALID_ARGUMENT, "%s: it does not make %s", infer->op->name, mu_dtype_name(attrs->dtype));
    if (infer->op->variant == INTEGERS && attrs->low >= attrs->high)
        return mu__error(MU_INVALID_ARGUMENT, "%s: no integer is at least %lld and below %lld", infer->op->name,
                         (long long)attrs->low, (long long)attrs->high);
    if (infer->op->variant == INTEGERS && attrs->dtype == MU_I32 && (attrs->low < INT32_MIN || attrs->high > INT32_MAX))
        return mu__error(MU_INVALID_ARGUMENT, "%s: the bounds %lld and %lld are not both int32; make int64",
                         infer->op->name, (long long)attrs->low, (long long)attrs->high);
    MU_TRY(mu__need_known_shape(&attrs->shape, infer->op->name));
    infer->out[0] = (mu_spec){attrs->dtype, infer->n_in > 1 ? infer->in[1].shape : attrs->shape};
    return MU_OK;
}

static const mu_attr_spec random_attrs[] = {
    {"shape", MU_ATTR_SHAPE, offsetof(mu_random_attrs, shape)},
    {"dtype", MU_ATTR_DTYPE, offsetof(mu_random_attrs, dtype)},
    {"low", MU_ATTR_INT, offsetof(mu_random_attrs, low)},
    {"high", MU_ATTR_INT, offsetof(mu_random_attrs, high)},
    {0},
};
static const mu_random_attrs f32_3x5 = {MU_DIMS(3, 5), MU_F32, 0, 0}, f64_7 = {MU_DIMS(7), MU_F64, 0, 0},
                             bf16_0 = {MU_DIMS(0), MU_BF16, 0, 0}, i32_9 = {MU_DIMS(9), MU_I32, -3, 5},
                             i64_9 = {MU_DIMS(9), MU_I64, -3, 5};
static const mu_sample samples_random[] = {
    {.n_in = 1, .in = {MU_DIMS(2)}, .dtypes = {MU_I64}, .attrs = &f32_3x5, .low = {0}, .high = {1000}, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(2)}, .dtypes = {MU_I32}, .attrs = &f64_7, .low = {0}, .high = {1000}, .no_grad = 1},
    {.n_in = 2, .in = {MU_DIMS(2), MU_DIMS(2, 3)}, .dtypes = {MU_I32}, .attrs = &bf16_0, .no_grad = 3},
    {0},
};
static const mu_sample samples_integers[] = {
    {.n_in = 1, .in = {MU_DIMS(2)}, .dtypes = {MU_I64}, .attrs = &i32_9, .low = {0}, .high = {1000}, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(2)}, .dtypes = {MU_I64}, .attrs = &i64_9, .low = {0}, .high = {1000}, .no_grad = 1},
    {0},
};
static const mu_sample samples_permutation[] = {
    {.n_in = 1, .in = {MU_DIMS(2)}, .dtypes = {MU_I64}, .attrs = &i64_9, .low = {0}, .high = {1000}, .no_grad = 1},
    {0},
};

#define RANDOM(text, which, kernel, inputs)                                                                         \
    .name = text, .variant = which, .n_in = 1, .max_in = 2, .n_out = 1,                                             \
    .dtypes = MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64), .shape_only = 2, .attrs_bytes = sizeof(mu_random_attrs), \
    .attrs = random_attrs, .infer = random_infer, .ref = kernel, .samples = inputs

#define MANY_FAST .lower = mu__lower_random, .cpu = {.run = mu__random_many}

const mu_op mu_op_stateless_random_uniform = {RANDOM("stateless_random_uniform", UNIFORM, random_ref, samples_random),
                                              MANY_FAST};
const mu_op mu_op_stateless_random_normal = {RANDOM("stateless_random_normal", NORMAL, random_ref, samples_random),
                                             MANY_FAST};
const mu_op mu_op_stateless_truncated_normal = {
    RANDOM("stateless_truncated_normal", TRUNCATED, random_ref, samples_random), MANY_FAST};
const mu_op mu_op_stateless_random_uniform_int = {
    RANDOM("stateless_random_uniform_int", INTEGERS, random_ref, samples_integers), MANY_FAST};
const mu_op mu_op_stateless_permutation = {
    RANDOM("stateless_permutation", PERMUTATION, permutation_ref, samples_permutation),
    .cpu = {.run = mu__permutation_many}, .lower = mu__lower_permutation};

// ---- Public functions ---------------------------------------------------------------------------

static mu_tensor *random_tensor(const mu_op *op, mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims,
                                int64_t low, int64_t high)
{
    mu_random_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = mu_shape_make(rank, dims);
    attrs.dtype = dtype;
    attrs.low = low;
    attrs.high = high;
    return mu__apply1(op, &attrs, seed);
}

mu_tensor *mu_stateless_random_uniform(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims)
{
    return random_tensor(&mu_op_stateless_random_uniform, seed, dtype, rank, dims, 0, 0);
}

mu_tensor *mu_stateless_random_normal(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims)
{
    return random_tensor(&mu_op_stateless_random_normal, seed, dtype, rank, dims, 0, 0);
}

mu_tensor *mu_stateless_truncated_normal(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims)
{
    return random_tensor(&mu_op_stateless_truncated_normal, seed, dtype, rank, dims, 0, 0);
}

mu_tensor *mu_stateless_random_uniform_int(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims, int64_t low,
                                           int64_t high)
{
    return random_tensor(&mu_op_stateless_random_uniform_int, seed, dtype, rank, dims, low, high);
}

mu_tensor *mu_stateless_permutation(mu_tensor *seed, int64_t n)
{
    return random_tensor(&mu_op_stateless_permutation, seed, MU_I64, 1, &n, 0, 0);
}

mu_tensor *mu_stateless_random_bernoulli(mu_tensor *seed, double p, int rank, const int64_t *dims)
{
    mu_tensor *u = mu_stateless_random_uniform(seed, MU_F32, rank, dims);
    return mu_less(u, mu__scalar_like(u, p));
}

static mu_tensor *random_like(const mu_op *op, mu_tensor *seed, mu_tensor *like)
{
    mu_random_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.dtype = like ? like->dtype : MU_F32;
    return mu__apply2(op, &attrs, seed, like);
}

mu_tensor *mu__random_uniform_like(mu_tensor *seed, mu_tensor *like)
{
    return random_like(&mu_op_stateless_random_uniform, seed, like);
}

mu_tensor *mu__random_normal_like(mu_tensor *seed, mu_tensor *like)
{
    return random_like(&mu_op_stateless_random_normal, seed, like);
}

// Gumbel-max: the argmax of logits plus Gumbel noise is each class with its probability.
mu_tensor *mu_stateless_random_categorical(mu_tensor *seed, mu_tensor *logits)
{
    mu_tensor *u = mu__random_uniform_like(seed, logits);
    mu_tensor *noise = mu_neg(mu_log(mu_neg(mu_log(mu_maximum(u, mu__scalar_like(u, 1e-30))))));
    return mu_argmax(mu_add(logits, noise), -1);
}
