// Elementary functions of float32 arrays, and of pairs of them. Main idea: each function is one expression on
// doubles (real.h), of which the compiler makes vectors, or on vectors of floats where time matters (single.h);
// elements outside the range of an expression send their piece of the array to libm, element by element, so that loops
// stay free of branches.
#include "parts.h"
#include "real.h"
#include "single.h"

#if defined(__clang__)
#define EACH_ALONE
#else
#define EACH_ALONE _Pragma("GCC ivdep")  // y may be x, never a shifted x
#endif

#define LOOP(expression)                  \
    EACH_ALONE                            \
    for (int64_t i = 0; i < n; i++) {     \
        const double x = (double)in[i];   \
        out[i] = (float)(expression);     \
    }                                     \
    break

// Whole vectors are stored without masks: a later load would wait for a masked store to reach the cache.
#define LOOP_SINGLE(expression)                                    \
    {                                                              \
        const int64_t whole = n - n % MU_LANES, left = n - whole;  \
        for (int64_t i = 0; i < whole; i += MU_LANES) {            \
            const mu_vf x = v_load(in + i);                        \
            v_store(out + i, (expression));                        \
        }                                                          \
        if (left > 0) {                                            \
            const mu_vf x = v_load_n(in + whole, left);            \
            v_store_n(out + whole, (expression), left);            \
        }                                                          \
    }                                                              \
    break

// ---- Exponentials, logarithms, circles --------------------------------------------------------------

static void plain_loops(mu_math function, const float *in, float *out, int64_t n)
{
    switch (function) {
    case MU_MATH_EXP: LOOP_SINGLE(exp_of_single(x));
    case MU_MATH_EXPM1: LOOP(expm1_of(x));
    case MU_MATH_LOG: LOOP(log_of(x));
    case MU_MATH_LOG1P: LOOP_SINGLE(log1p_single(x));
    case MU_MATH_SINH: LOOP(sinh_of(x));
    case MU_MATH_COSH: LOOP(cosh_of(x));
    case MU_MATH_TANH: LOOP_SINGLE(tanh_single(x));
    case MU_MATH_ASINH: LOOP(asinh_of(x));
    case MU_MATH_ACOSH: LOOP(acosh_of(x));
    case MU_MATH_ATANH: LOOP(atanh_of(x));
    case MU_MATH_ASIN: LOOP_SINGLE(asin_single(x));
    case MU_MATH_ACOS: LOOP_SINGLE(acos_single(x));
    case MU_MATH_ATAN: LOOP_SINGLE(atan_single(x));
    case MU_MATH_ERF: LOOP_SINGLE(erf_single(x));
    case MU_MATH_ERFC: LOOP(erfc_of(x));
    default: break;
    }
}

// x times a share of it that vanishes on the far left, where -infinity times nothing is no number.
MU_INLINE double gated(double x, double share)
{
    return x < -1000 ? x * 0.0 : x * share;
}

static void activation_loops(mu_math function, float alpha, const float *in, float *out, int64_t n)
{
    const double slope = (double)alpha, scale = 1.0507009873554804934,
                 low = 1.7580993408473768599;    // scale * alpha of SELU
    const double root = 0.79788456080286535588;  // sqrt(2 / pi)
    switch (function) {
    case MU_MATH_SIGMOID: LOOP_SINGLE(sigmoid_single(x));
    case MU_MATH_LOG_SIGMOID: LOOP_SINGLE(-softplus_single(-x));
    case MU_MATH_SOFTPLUS: LOOP_SINGLE(softplus_single(x));
    case MU_MATH_ELU: LOOP(x < 0 ? slope * expm1_of(x) : x);
    case MU_MATH_SELU: LOOP(x < 0 ? low * expm1_of(x) : scale * x);
    case MU_MATH_SILU: LOOP_SINGLE(silu_single(x));
    case MU_MATH_GELU: LOOP_SINGLE(gelu_single(x));
    case MU_MATH_GELU_TANH: LOOP(gated(x, sigmoid_of(2 * root * (x + 0.044715 * x * x * x))));
    case MU_MATH_MISH: LOOP_SINGLE(mish_single(x));
    default: break;
    }
}

// ---- Functions with a limited range -----------------------------------------------------------------

typedef struct range {
    float low, high;    // inside of which the loops are right
    float (*alone)(float x);
} range;

static bool all_between(const float *in, float low, float high, int64_t n)
{
    int outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside |= !((in[i] > low) & (in[i] < high));
    return outside == 0;
}

static float lgamma_alone(float x)
{
    int sign;
    return lgammaf_r(x, &sign);
}

// Reflected where x is not positive; the whole numbers there are poles.
static float digamma_alone(float x)
{
    if (x > 0 || x != x)
        return x < INFINITY ? (float)digamma_of((double)x) : x;
    if (x == floorf(x))
        return NAN;
    return (float)(digamma_of(1 - (double)x) - 3.14159265358979323846 / tan(3.14159265358979323846 * (double)x));
}

static range range_of(mu_math function)
{
    switch (function) {
    case MU_MATH_SIN: return (range){-(float)CIRCLE_LIMIT, (float)CIRCLE_LIMIT, sinf};
    case MU_MATH_COS: return (range){-(float)CIRCLE_LIMIT, (float)CIRCLE_LIMIT, cosf};
    case MU_MATH_TAN: return (range){-(float)CIRCLE_LIMIT, (float)CIRCLE_LIMIT, tanf};
    case MU_MATH_DIGAMMA: return (range){0, 1e30f, digamma_alone};
    default: return (range){0, 1e30f, lgamma_alone};
    }
}

static void ranged_loops(mu_math function, const float *in, float *out, int64_t n)
{
    switch (function) {
    case MU_MATH_SIN: LOOP(sin_of(x));
    case MU_MATH_COS: LOOP(cos_of(x));
    case MU_MATH_TAN: LOOP(tan_of(x));
    case MU_MATH_DIGAMMA: LOOP(digamma_of(x));
    default: LOOP(lgamma_of(x));
    }
}

static void in_pieces(mu_math function, const float *in, float *out, int64_t n)
{
    enum { PIECE = 128 };
    const range r = range_of(function);
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = least(n - at, PIECE);
        if (all_between(in + at, r.low, r.high, count))
            ranged_loops(function, in + at, out + at, count);
        else
            for (int64_t i = at; i < at + count; i++)
                out[i] = r.alone(in[i]);
    }
}

void MU_KERNEL(math_f32)(mu_math function, float alpha, const float *x, float *y, int64_t n)
{
    switch (function) {
    case MU_MATH_SIN:
    case MU_MATH_COS:
    case MU_MATH_TAN:
    case MU_MATH_DIGAMMA:
    case MU_MATH_LGAMMA: in_pieces(function, x, y, n); break;
    case MU_MATH_SIGMOID:
    case MU_MATH_LOG_SIGMOID:
    case MU_MATH_SOFTPLUS:
    case MU_MATH_ELU:
    case MU_MATH_SELU:
    case MU_MATH_SILU:
    case MU_MATH_GELU:
    case MU_MATH_GELU_TANH:
    case MU_MATH_MISH: activation_loops(function, alpha, x, y, n); break;
    default: plain_loops(function, x, y, n); break;
    }
}

// ---- Functions of two -------------------------------------------------------------------------------

// x^y for x > 0 and finite, y finite.
MU_INLINE double pow_of(double x, double y)
{
    return exp_of(y * log_positive(x));
}

// x - y floor(x / y) for quotients below 2^28, where the product's error does not show.
MU_INLINE double floor_mod_of(double x, double y)
{
    const double q = (x / y + ROUND_MAGIC) - ROUND_MAGIC;  // the nearest; at most one off
    double rest = x - q * y;
    rest = rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    return rest;
}

static float floor_mod_alone(float x, float y)
{
    const float rest = fmodf(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static float alone2(mu_math2 function, float a, float b)
{
    return function == MU_MATH_POW ? powf(a, b) : function == MU_MATH_ATAN2 ? atan2f(a, b) : floor_mod_alone(a, b);
}

static bool loops_are_right(mu_math2 function, const float *a, const float *b, int64_t n)
{
    int wrong = 0;
    switch (function) {
    case MU_MATH_POW:
        for (int64_t i = 0; i < n; i++)
            wrong |= !((a[i] > 0) & (a[i] < INFINITY) & (fabsf(b[i]) < INFINITY));
        break;
    case MU_MATH_ATAN2:
        for (int64_t i = 0; i < n; i++)
            wrong |= !((fabsf(a[i]) < INFINITY) & (fabsf(b[i]) < INFINITY));
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            wrong |= !((fabsf(a[i]) > 0) & (fabsf(b[i]) < INFINITY) & (fabsf(a[i]) < 0x1p28f * fabsf(b[i])));
    }
    return wrong == 0;
}

#define LOOP2(expression)                                     \
    EACH_ALONE                                                \
    for (int64_t i = 0; i < n; i++) {                         \
        const double x = (double)a[i], y = (double)b[i];      \
        out[i] = (float)(expression);                         \
    }                                                         \
    break

static void loops2(mu_math2 function, const float *a, const float *b, float *out, int64_t n)
{
    switch (function) {
    case MU_MATH_POW: LOOP2(pow_of(x, y));
    case MU_MATH_ATAN2: LOOP2(atan2_of(x, y));
    default: LOOP2(floor_mod_of(x, y));
    }
}

void MU_KERNEL(math2_f32)(mu_math2 function, const float *a, int64_t step_a, const float *b, int64_t step_b, float *out,
                          int64_t n)
{
    enum { PIECE = 128 };
    float same_a[PIECE], same_b[PIECE];
    for (int64_t i = 0; i < PIECE && n > 0; i++) {
        same_a[i] = a[0];
        same_b[i] = b[0];
    }
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = least(n - at, PIECE);
        const float *from_a = step_a ? a + at : same_a, *from_b = step_b ? b + at : same_b;
        if (loops_are_right(function, from_a, from_b, count))
            loops2(function, from_a, from_b, out + at, count);
        else
            for (int64_t i = 0; i < count; i++)
                out[at + i] = alone2(function, from_a[i], from_b[i]);
    }
}
