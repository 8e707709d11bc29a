// Vectorised random numbers: the draws of random.c, computed from as many counters at once as fit a vector.
//
// Random words are made for a run of groups, loops convert them to numbers in the type's precision, and the numbers are
// copied to the result. The results are bit-identical to random.c's, except for the last digit of normal numbers. Does
// not deal with seeds.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/loops.h"
#include "ops/random/random.h"

#include <math.h>

enum { GROUP = MU_RANDOM_GROUP, GROUPS = 64, WORDS = 4 * GROUPS, CHOICES = 2 * GROUPS };

// ---- Words to numbers ---------------------------------------------------------------------------

MU_PER_ISA(uniform_floats, (const uint32_t *words, float *out, int64_t n), (words, out, n))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = mu__random_float(words[i]);
}

// Uses as many random bits as a 16-bit float has fraction bits.
MU_PER_ISA(uniform_float16, (const uint32_t *words, uint32_t mask, float *out, int64_t n), (words, mask, out, n))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(int32_t)(words[i] & mask) * (1 / ((float)(int32_t)mask + 1));
}

MU_PER_ISA(random_doubles, (const uint32_t *words, double *out, int64_t n), (words, out, n))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = mu__random_double(words[2 * i], words[2 * i + 1]);
}

void mu__random_doubles(const uint32_t *words, double *out, int64_t n) { random_doubles(words, out, n); }

MU_PER_ISA(radii_and_angles, (const uint32_t *words, float *radius, float *angle, int64_t pairs),
           (words, radius, angle, pairs))
{
    for (int64_t i = 0; i < pairs; i++) {
        const float drawn = mu__random_float(words[2 * i]);
        radius[i] = drawn < 1.0e-7f ? 1.0e-7f : drawn;
        angle[i] = (float)(2 * M_PI * mu__random_float(words[2 * i + 1])); // one rounding, as in TensorFlow
    }
}

MU_PER_ISA(pairs_of, (const float *log, const float *sine, const float *cosine, float *out, int64_t pairs),
           (log, sine, cosine, out, pairs))
{
    for (int64_t i = 0; i < pairs; i++) {
        const float radius = sqrtf(-2 * log[i]);
        out[2 * i] = sine[i] * radius;
        out[2 * i + 1] = cosine[i] * radius;
    }
}

static void normal_floats(const uint32_t *words, float *out, int64_t n)
{
    const mu_kernels *kernels = mu__kernels();
    float log[WORDS / 2], angle[WORDS / 2], sine[WORDS / 2];
    const int64_t pairs = (n + 1) / 2;
    radii_and_angles(words, log, angle, pairs);
    kernels->math_f32(MU_MATH_LOG, 0, log, log, pairs);
    kernels->math_f32(MU_MATH_SIN, 0, angle, sine, pairs);
    kernels->math_f32(MU_MATH_COS, 0, angle, angle, pairs);
    pairs_of(log, sine, angle, out, pairs);
}

MU_PER_ISA(fine_radii_and_angles, (const uint32_t *words, double *radius, double *angle, int64_t pairs),
           (words, radius, angle, pairs))
{
    for (int64_t i = 0; i < pairs; i++) {
        const double drawn = mu__random_double(words[4 * i], words[4 * i + 1]);
        radius[i] = drawn < 1.0e-7 ? 1.0e-7 : drawn;
        angle[i] = 2 * M_PI * mu__random_double(words[4 * i + 2], words[4 * i + 3]);
    }
}

MU_PER_ISA(fine_pairs_of, (const double *log, const double *sine, const double *cosine, double *out, int64_t pairs),
           (log, sine, cosine, out, pairs))
{
    for (int64_t i = 0; i < pairs; i++) {
        const double radius = sqrt(-2 * log[i]);
        out[2 * i] = sine[i] * radius;
        out[2 * i + 1] = cosine[i] * radius;
    }
}

void mu__random_normals_of(const uint32_t *words, double *out, int64_t pairs)
{
    const mu_kernels *kernels = mu__kernels();
    double log[MU_RANDOM_PAIRS], angle[MU_RANDOM_PAIRS], sine[MU_RANDOM_PAIRS];
    fine_radii_and_angles(words, log, angle, pairs);
    kernels->math_f64(MU_MATH_LOG, 0, log, log, pairs);
    kernels->math_f64(MU_MATH_SIN, 0, angle, sine, pairs);
    kernels->math_f64(MU_MATH_COS, 0, angle, angle, pairs);
    fine_pairs_of(log, sine, angle, out, pairs);
}

// ---- Integers: remainder by multiplying with the reciprocal; the quotient is at most 2 too small

MU_PER_ISA(remainders_32, (const uint32_t *words, uint32_t range, uint32_t low, int32_t *out, int64_t n),
           (words, range, low, out, n))
{
    const uint32_t reciprocal = UINT32_MAX / range;
    for (int64_t i = 0; i < n; i++) {
        uint32_t rest = words[i] - (uint32_t)((uint64_t)words[i] * reciprocal >> 32) * range;
        rest -= rest >= range ? range : 0;
        rest -= rest >= range ? range : 0;
        out[i] = (int32_t)(low + rest);
    }
}

// Upper 64 bits of a product.
static inline uint64_t product_above(uint64_t a, uint64_t b)
{
    const uint64_t a_low = a & 0xffffffffu, a_high = a >> 32, b_low = b & 0xffffffffu, b_high = b >> 32;
    const uint64_t middle = a_high * b_low + (a_low * b_low >> 32), other = a_low * b_high + (middle & 0xffffffffu);
    return a_high * b_high + (middle >> 32) + (other >> 32);
}

MU_PER_ISA(remainders_64, (const uint32_t *words, uint64_t range, uint64_t low, int64_t *out, int64_t n),
           (words, range, low, out, n))
{
    const uint64_t reciprocal = UINT64_MAX / range;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t word = words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
        uint64_t rest = word - product_above(word, reciprocal) * range;
        rest -= rest >= range ? range : 0;
        rest -= rest >= range ? range : 0;
        out[i] = (int64_t)(low + rest);
    }
}

// ---- Groups -------------------------------------------------------------------------------------

// If some of a group's first numbers exceed two standard deviations, draws the group again, one number at a time.
static void replace_far(const mu_philox *first, uint64_t group, mu_dtype dtype, float *floats, double *doubles)
{
    const int size = mu__random_group_size(MU_RANDOM_TRUNCATED, dtype);
    bool far = false;
    for (int i = 0; i < size; i++)
        far = far || !(dtype == MU_F64 ? fabs(doubles[i]) < 2 : fabsf(floats[i]) < 2);
    if (!far)
        return;
    mu_philox generator = *first;
    double again[GROUP];
    mu__philox_skip(&generator, group * mu__random_counters(MU_RANDOM_TRUNCATED, size));
    mu__truncated_group(generator, dtype, again);
    for (int i = 0; i < size; i++) {
        if (dtype == MU_F64)
            doubles[i] = again[i];
        else
            floats[i] = (float)again[i];
    }
}

// Stores `count` drawn floats in the result's type.
static void put_floats(mu_dtype dtype, const float *drawn, void *out, int64_t count)
{
    if (dtype == MU_F32)
        memcpy(out, drawn, (size_t)count * sizeof *drawn);
    else
        (dtype == MU_F16 ? mu__kernels()->narrow_f16 : mu__kernels()->narrow_bf16)(drawn, out, count);
}

static void draw_floats(const mu_kernel *k, const mu_philox *first, const uint32_t *words, int64_t group,
                        int64_t groups, int64_t count)
{
    const mu_dtype dtype = k->out[0].dtype;
    const int variant = k->op->variant;
    float drawn[WORDS];
    if (variant == MU_RANDOM_UNIFORM && dtype == MU_F32)
        uniform_floats(words, drawn, count);
    else if (variant == MU_RANDOM_UNIFORM)
        uniform_float16(words, dtype == MU_F16 ? 0x3ff : 0x7f, drawn, count);
    else
        normal_floats(words, drawn, groups * GROUP);
    for (int64_t i = 0; i < groups && variant == MU_RANDOM_TRUNCATED; i++)
        replace_far(first, (uint64_t)(group + i), dtype, drawn + i * GROUP, NULL);
    put_floats(dtype, drawn, (char *)k->out[0].data + (size_t)(group * GROUP) * mu_dtype_bytes(dtype), count);
}

static void draw_doubles(const mu_kernel *k, const mu_philox *first, const uint32_t *words, int64_t group,
                         int64_t groups, int64_t count)
{
    double drawn[WORDS / 2];
    if (k->op->variant == MU_RANDOM_UNIFORM)
        mu__random_doubles(words, drawn, count);
    else
        mu__random_normals_of(words, drawn, groups);
    for (int64_t i = 0; i < groups && k->op->variant == MU_RANDOM_TRUNCATED; i++)
        replace_far(first, (uint64_t)(group + i), MU_F64, NULL, drawn + 2 * i);
    memcpy((double *)k->out[0].data + 2 * group, drawn, (size_t)count * sizeof *drawn);
}

static void draw_integers(const mu_kernel *k, const uint32_t *words, int64_t at, int64_t count)
{
    const mu_random_attrs *attrs = k->attrs;
    if (k->out[0].dtype == MU_I64)
        remainders_64(words, (uint64_t)attrs->high - (uint64_t)attrs->low, (uint64_t)attrs->low,
                      (int64_t *)k->out[0].data + at, count);
    else
        remainders_32(words, (uint32_t)attrs->high - (uint32_t)attrs->low, (uint32_t)attrs->low,
                      (int32_t *)k->out[0].data + at, count);
}

static void draw_groups(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const int variant = k->op->variant;
    const mu_dtype dtype = k->out[0].dtype;
    const int64_t n = mu__elements(&k->out[0].shape), size = mu__random_group_size(variant, dtype);
    const uint64_t step = mu__random_counters(variant, size);
    const mu_philox first = mu__random_generator(&k->in[0]);
    for (int64_t group = begin; group < end; group += GROUPS) {
        const int64_t groups = MU_MIN(end - group, (int64_t)GROUPS), count = MU_MIN(groups * size, n - group * size);
        mu_philox generator = first;
        uint32_t words[WORDS];
        mu__philox_skip(&generator, (uint64_t)group * step);
        mu__philox_fill(&generator, step, groups, words);
        if (variant == MU_RANDOM_INTEGERS)
            draw_integers(k, words, group * size, count);
        else if (dtype == MU_F64)
            draw_doubles(k, &first, words, group, groups, count);
        else
            draw_floats(k, &first, words, group, groups, count);
    }
}

mu_status mu__random_many(const mu_kernel *k)
{
    const int64_t n = mu__elements(&k->out[0].shape);
    const int64_t size = mu__random_group_size(k->op->variant, k->out[0].dtype);
    mu__share_range(k->team, (n + size - 1) / size, GROUPS, n * 8, draw_groups, (void *)k);
    return MU_OK;
}

// ---- Permutations -------------------------------------------------------------------------------

// word % (last - i + 1) of 64-bit words, two per counter. A quotient in doubles leaves a remainder small enough for a
// second quotient, which is off by at most one. Multiplies by the reciprocal instead of dividing.
MU_PER_ISA(choices, (const uint32_t *words, int64_t last, int64_t *chosen, int64_t n), (words, last, chosen, n))
{
    MU_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const uint64_t word = words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
        const int64_t divisor = last - i + 1;
        const double inverse = 1 / (double)divisor;
        // converts the halves separately, because few processors convert uint64_t to double
        const double whole = (double)(int64_t)(word >> 32) * 0x1p32 + (double)(int64_t)(word & 0xffffffffu);
        const double half = whole * 0.5 * inverse;
        int64_t rest = (int64_t)(word - 2 * (uint64_t)(int64_t)half * (uint64_t)divisor);
        rest -= (int64_t)((double)rest * inverse) * divisor;
        rest += rest < 0 ? divisor : 0;
        chosen[i] = rest - (rest >= divisor ? divisor : 0);
    }
}

// As in random.c, shuffles from the end; the indices to swap with are computed several steps in advance.
mu_status mu__permutation_many(const mu_kernel *k)
{
    mu_philox generator = mu__random_generator(&k->in[0]);
    int64_t *out = k->out[0].data;
    const int64_t n = mu__elements(&k->out[0].shape);
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (int64_t last = n - 1; last > 0; last -= CHOICES) {
        const int64_t count = MU_MIN(last, (int64_t)CHOICES);
        uint32_t words[WORDS];
        int64_t chosen[CHOICES];
        mu__philox_fill(&generator, 1, (count + 1) / 2, words);
        mu__philox_skip(&generator, GROUPS);
        choices(words, last, chosen, count);
        for (int64_t i = 0; i < count; i++)
            __builtin_prefetch(out + chosen[i], 1);
        for (int64_t i = 0; i < count; i++) {
            const int64_t kept = out[last - i];
            out[last - i] = out[chosen[i]];
            out[chosen[i]] = kept;
        }
    }
    return MU_OK;
}
