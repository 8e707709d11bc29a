// Elementary functions of float32 arrays, unary and binary. Each function is one expression: on doubles
// (math_scalar.h), which the compiler vectorises, or on vectors of floats where speed matters (math_vf32.h). If a
// piece of the array has an element outside the expression's range, libm computes the whole piece, so that the loops
// stay free of branches.
#include "kernel_slots.h"
#include "math_scalar.h"
#include "math_vf32.h"

#if defined(__clang__)
#define EACH_ALONE
#else
#define EACH_ALONE _Pragma("GCC ivdep") // y may be x, never a shifted x
#endif

#define LOOP(expression)                \
    EACH_ALONE                          \
    for (int64_t i = 0; i < n; i++) {   \
        const double x = (double)in[i]; \
        out[i] = (float)(expression);   \
    }                                   \
    break

#define LOOP_VF32(expression)                        \
    for (int64_t i = 0; i < n; i += MU_LANES) {      \
        const int64_t left = least(n - i, MU_LANES); \
        const mu_vf x = v_load_n(in + i, left);      \
        v_store_n(out + i, (expression), left);      \
    }                                                \
    break

// ---- Functions of all numbers -----------------------------------------------------------------------

// x times a factor that underflows to 0 for very negative x, where -infinity * 0 would be NaN.
MU_INLINE double gated(double x, double share) { return x < -1000 ? x * 0.0 : x * share; }

MU_INLINE double gelu_tanh_of(double x)
{
    return gated(x, sigmoid_of(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x))); // 2 sqrt(2 / pi)
}

static void activation_loops(mu_math function, float alpha, const float *in, float *out, int64_t n)
{
    const float scale = 1.0507009873554804934f, low = 1.7580993408473768599f; // low: scale * alpha of SELU
    switch (function) {
    case MU_MATH_SIGMOID: LOOP_VF32(sigmoid_vf32(x));
    case MU_MATH_LOG_SIGMOID: LOOP_VF32(-softplus_vf32(-x));
    case MU_MATH_SOFTPLUS: LOOP_VF32(softplus_vf32(x));
    case MU_MATH_ELU: LOOP_VF32(elu_vf32(x, alpha, 1));
    case MU_MATH_SELU: LOOP_VF32(elu_vf32(x, low, scale));
    case MU_MATH_SILU: LOOP_VF32(silu_vf32(x));
    case MU_MATH_GELU: LOOP_VF32(gelu_vf32(x));
#if MU_TELLS_LOST
    case MU_MATH_GELU_TANH: LOOP_VF32(gelu_tanh_vf32(x));
#else
    case MU_MATH_GELU_TANH: LOOP(gelu_tanh_of(x));
#endif
    case MU_MATH_MISH: LOOP_VF32(mish_vf32(x));
    default: break;
    }
}

static void plain_loops(mu_math function, float alpha, const float *in, float *out, int64_t n)
{
    switch (function) {
    case MU_MATH_EXP: LOOP_VF32(exp_of_vf32(x));
    case MU_MATH_EXPM1: LOOP(expm1_of(x));
    case MU_MATH_LOG: LOOP_VF32(log_vf32(x));
    case MU_MATH_LOG1P: LOOP_VF32(log1p_vf32(x));
    case MU_MATH_SINH: LOOP(sinh_of(x));
    case MU_MATH_COSH: LOOP_VF32(cosh_vf32(x));
    case MU_MATH_TANH: LOOP_VF32(tanh_vf32(x));
    case MU_MATH_ASINH: LOOP(asinh_of(x));
    case MU_MATH_ACOSH: LOOP(acosh_of(x));
    case MU_MATH_ATANH: LOOP(atanh_of(x));
    case MU_MATH_ASIN: LOOP_VF32(asin_vf32(x));
    case MU_MATH_ACOS: LOOP_VF32(acos_vf32(x));
    case MU_MATH_ATAN: LOOP_VF32(atan_vf32(x));
    case MU_MATH_ERF: LOOP_VF32(erf_vf32(x));
    case MU_MATH_SQRT: LOOP_VF32(v_root(x));
    case MU_MATH_RSQRT: LOOP_VF32(rsqrt_vf32(x));
#if MU_TELLS_LOST
    case MU_MATH_ERFC: LOOP_VF32(erfc_vf32(x));
#else
    case MU_MATH_ERFC: LOOP(erfc_of(x));
#endif
    default: activation_loops(function, alpha, in, out, n); break;
    }
}

// ---- Functions with a limited range -----------------------------------------------------------------

typedef struct range {
    float low, high; // the loops are valid between these
    float (*alone)(float x);
} range;

#define T float
#include "between.inc.c"
#undef T

static float lgamma_alone(float x)
{
    int sign;
    return lgammaf_r(x, &sign);
}

// Uses the reflection formula for x <= 0; the integers there are poles.
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
    default: plain_loops(function, alpha, x, y, n); break;
    }
}

// ---- Binary functions -------------------------------------------------------------------------------

// x^y for x > 0 and finite, y finite.
MU_INLINE double pow_of(double x, double y) { return exp_of(y * log_positive(x)); }

// x - y floor(x / y) for quotients below 2^28, where the product's rounding error has no effect.
MU_INLINE double floor_mod_of(double x, double y)
{
    const double q = (x / y + ROUND_MAGIC) - ROUND_MAGIC; // nearest integer; at most one off
    double rest = x - q * y;
    rest = rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    return rest;
}

#define T                 float
#define FN(name)          name##_f32
#define POW_RIGHT(a, b)   (((a) > 0) & ((a) < INFINITY) & (fabsf(b) < INFINITY))
#define ATAN2_RIGHT(a, b) ((fabsf(a) < INFINITY) & (fabsf(b) < INFINITY))
#define MOD_RIGHT(a, b)   ((fabsf(a) > 0) & (fabsf(b) < INFINITY) & (fabsf(a) < 0x1p28f * fabsf(b)))
#define POW_OF            pow_of
#define ATAN2_OF          atan2_of
#define MOD_OF            floor_mod_of
#define M(name)           name##f
#include "math2.inc.c"
