// Elementary functions of 16-bit float arrays. A result of 11 bits needs no polynomial for 24 bits, so the most
// expensive functions are computed here on vectors, to a few bits more than the result has, and rounded once. The
// other functions, and all functions on narrow vectors, go through math_f32 in short pieces. Polynomials were fitted
// for this file.
#include "float16.h"
#include "float16_power.h"
#include "kernel_slots.h"
#include "math_vf32.h"

static void through_f32(mu_math function, float alpha, bool bfloat, const uint16_t *in, uint16_t *out, int64_t n)
{
    enum { PIECE = 512 };
    _Alignas(64) float wide[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = least(n - at, PIECE);
        (bfloat ? MU_KERNEL(widen_bf16) : MU_KERNEL(widen_f16))(in + at, wide, count);
        MU_KERNEL(math_f32)(function, alpha, wide, wide, count);
        (bfloat ? MU_KERNEL(narrow_bf16) : MU_KERNEL(narrow_f16))(wide, out + at, count);
    }
}

#if MU_WIDE_FLOAT16

// ---- Powers ---------------------------------------------------------------------------------------

MU_INLINE mu_vf cosh_float16(mu_vf x)
{
    const whole_and_rest parts = split_at_whole(x * 1.44269504f);
    const power_terms terms = power_terms_of(parts.rest);
    const mu_vf even = terms.even + 1;
    return v_scale(even + terms.odd, parts.whole - 1) + v_scale(even - terms.odd, -1 - parts.whole);
}

// x * Phi(x), where Phi is the normal distribution function. A polynomial gives log2 of Phi(-|x|): for bfloat16 over
// the range where the result is not zero, for IEEE half over the range where Phi is not zero. Beyond that the
// polynomial tends to -infinity and Phi is 0, so that an x of -infinity gives NaN.
MU_INLINE mu_vf gelu_float16(mu_vf x, bool bfloat)
{
    const mu_vf a = v_abs(x);
    mu_vf q;
    if (bfloat) {
        q = (a * -2.88256643e-07f + 1.64853734e-05f) * a - 0.000396364852f;
        q = (q * a + 0.00527622438f) * a - 0.0436678097f;
        q = ((q * a - 0.474367434f) * a - 1.14193018f) * a - 1.00089449f;
    } else {
        q = (a * -1.82873321e-06f + 6.1494937e-05f) * a - 0.000929847447f;
        q = (q * a + 0.00850573875f) * a - 0.0539566536f;
        q = ((q * a - 0.45846689f) * a - 1.15125039f) * a - 0.999995321f;
    }
    const mu_vf tail = power_of_two_float16(q, bfloat);
    return x * v_select(v_greater(x, (mu_vf){0}), 1 - tail, tail);
}

#if MU_LANES == 16
// x times 1 / sqrt(x), from a 14-bit estimate and a Newton step; takes half the time of the processor's square root,
// which handles zeros, infinities, NaN and negative numbers.
MU_INLINE mu_vf root_float16(mu_vf x)
{
    const mu_vf guess = (mu_vf)_mm512_rsqrt14_ps((__m512)x), root = x * guess, lack = 1 - root * guess;
    return m_any(v_unordered(lack, lack)) ? v_root(x) : root + root * 0.5f * lack;
}
#else
MU_INLINE mu_vf root_float16(mu_vf x)
{
    return v_root(x);
}
#endif

// ---- Trigonometric functions ----------------------------------------------------------------------

// Below this limit the number of half turns is exact in the reduction.
#define CIRCLE_LIMIT_FLOAT16 65536.0f

// sin(x + turn * pi), computed from the distance to the nearest zero, for a turn of 0 or 1/2.
MU_INLINE mu_vf sin_float16_turned(mu_vf x, float turn)
{
    const mu_vf shifted = (x * 0.318309886f + turn) + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const mu_vf n = (shifted - 12582912.0f) - turn;
    const mu_vf r = (x - n * 3.1415925f) - n * 1.50995799e-07f, z = r * r;  // zeros keep their sign
    const mu_vf q = (z * -0.000185422228f + 0.00831427475f) * z - 0.166658533f;
    return (mu_vf)((mu_vi)((z * q + 1) * r) ^ (mu_vi)shifted << 31);
}

MU_INLINE bool any_beyond_circles(mu_vf x)
{
    return m_any(m_not(v_greater(v_splat(CIRCLE_LIMIT_FLOAT16), v_abs(x))));
}

static MU_OUTLINE mu_vf each_lane(mu_vf x, float (*alone)(float))
{
    float lanes[MU_LANES];
    v_store(lanes, x);
    for (int lane = 0; lane < MU_LANES; lane++)
        lanes[lane] = alone(lanes[lane]);
    return v_load(lanes);
}

// ---- Loops ----------------------------------------------------------------------------------------

// bfloat16 processes two vectors at a time, the even and the odd elements, without reordering them.
#define LOOP(expression)                                                 \
    do {                                                                 \
        int64_t i = 0;                                                   \
        for (; bfloat && i + 2 * MU_LANES <= n; i += 2 * MU_LANES) {     \
            const float16_pair pair = load_pair(in + i);                 \
            mu_vf x = pair.even;                                         \
            const mu_vf even = (expression);                             \
            x = pair.odd;                                                \
            store_pair(out + i, (float16_pair){even, (expression)});     \
        }                                                                \
        for (; i + MU_LANES <= n; i += MU_LANES) {                       \
            const mu_vf x = load_float16(in + i, bfloat);                \
            store_float16(out + i, (expression), bfloat);                \
        }                                                                \
        if (i < n) {                                                     \
            uint16_t rest[MU_LANES] = {0};                               \
            memcpy(rest, in + i, (size_t)(n - i) * sizeof *in);          \
            const mu_vf x = load_float16(rest, bfloat);                  \
            store_float16(rest, (expression), bfloat);                   \
            memcpy(out + i, rest, (size_t)(n - i) * sizeof *out);        \
        }                                                                \
    } while (0)

// Returns false if math_f32 should compute the function.
MU_INLINE bool loops(mu_math function, bool bfloat, const uint16_t *in, uint16_t *out, int64_t n)
{
    switch (function) {
    case MU_MATH_GELU: LOOP(gelu_float16(x, bfloat)); return true;
    case MU_MATH_COSH: LOOP(cosh_float16(x)); return true;
    case MU_MATH_SQRT: LOOP(root_float16(x)); return true;
    case MU_MATH_RSQRT: LOOP(rsqrt_vf32(x)); return true;
    case MU_MATH_ERF: LOOP(erf_vf32(x)); return true;
    case MU_MATH_SIN: LOOP(any_beyond_circles(x) ? each_lane(x, sinf) : sin_float16_turned(x, 0)); return true;
    case MU_MATH_COS: LOOP(any_beyond_circles(x) ? each_lane(x, cosf) : sin_float16_turned(x, 0.5f)); return true;
    default: return false;
    }
}

void MU_KERNEL(math_float16)(mu_math function, float alpha, bool bfloat, const uint16_t *x, uint16_t *y, int64_t n)
{
    if (!(bfloat ? loops(function, true, x, y, n) : loops(function, false, x, y, n)))
        through_f32(function, alpha, bfloat, x, y, n);
}

#else

void MU_KERNEL(math_float16)(mu_math function, float alpha, bool bfloat, const uint16_t *x, uint16_t *y, int64_t n)
{
    through_f32(function, alpha, bfloat, x, y, n);
}

#endif
