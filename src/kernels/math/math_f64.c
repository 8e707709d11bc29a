// Elementary functions of float64 arrays, unary and binary, accurate to one or two ulp (math_f64.h). As in math.c,
// each function is one expression that the compiler vectorises, and libm computes a piece of an array with an element
// outside the expression's range. On processors with vectors of eight doubles the most used functions are written
// with such vectors (math_f64x8.h).
#include "math_f64x8.h"
#include "math_f64.h"
#include "kernel_slots.h"

#if defined(__clang__)
#define EACH_ALONE
#else
#define EACH_ALONE _Pragma("GCC ivdep")
#endif

#define LOOP(expression)              \
    EACH_ALONE                        \
    for (int64_t i = 0; i < n; i++) { \
        const double x = in[i];       \
        out[i] = (expression);        \
    }                                 \
    break

// For a function that math_f64x8.h may provide, too.
#if MU_HAS_F64X8
#define LOOP_F64X8(name)                                                          \
    for (int64_t i = 0; i < n; i += F64X8)                                        \
        d_store_n(out + i, name##_f64x8(d_load_padded(in + i, n - i, 0)), n - i); \
    break
#else
#define LOOP_F64X8(name) LOOP(name##_f64(x))
#endif

static void activation_loops(mu_math function, double slope, const double *in, double *out, int64_t n)
{
    const double scale = 1.0507009873554804934, low = 1.7580993408473768599; // scale * alpha of SELU
    const double root = 0.79788456080286535588;                              // sqrt(2 / pi)
    switch (function) {
    case MU_MATH_SIGMOID: LOOP_F64X8(sigmoid);
    case MU_MATH_LOG_SIGMOID: LOOP(-softplus_f64(-x));
    case MU_MATH_SOFTPLUS: LOOP(softplus_f64(x));
    case MU_MATH_ELU: LOOP(x < 0 ? slope * expm1_f64_any(x) : x);
    case MU_MATH_SELU: LOOP(x < 0 ? low * expm1_f64_any(x) : scale * x);
    case MU_MATH_SILU: LOOP_F64X8(silu);
    case MU_MATH_GELU: LOOP(gelu_f64(x));
    case MU_MATH_GELU_TANH: LOOP(gated_f64(x, x * sigmoid_f64(2 * root * (x + 0.044715 * x * x * x))));
    case MU_MATH_MISH: LOOP(mish_f64(x));
    default: break;
    }
}

static void plain_loops(mu_math function, double alpha, const double *in, double *out, int64_t n)
{
    switch (function) {
    case MU_MATH_EXP: LOOP_F64X8(exp);
    case MU_MATH_EXPM1: LOOP(expm1_f64_any(x));
    case MU_MATH_LOG: LOOP(log_f64(x));
    case MU_MATH_LOG1P: LOOP(log1p_f64(x));
    case MU_MATH_SINH: LOOP(sinh_f64(x));
    case MU_MATH_COSH: LOOP(cosh_f64(x));
    case MU_MATH_TANH: LOOP_F64X8(tanh);
    case MU_MATH_ASINH: LOOP(asinh_f64(x));
    case MU_MATH_ACOSH: LOOP(acosh_f64(x));
    case MU_MATH_ATANH: LOOP(atanh_f64(x));
    case MU_MATH_ASIN: LOOP(asin_f64(x));
    case MU_MATH_ACOS: LOOP(acos_f64(x));
    case MU_MATH_ATAN: LOOP(atan_f64(x));
    case MU_MATH_ERF: LOOP(erf_f64(x));
    case MU_MATH_SQRT: LOOP(__builtin_sqrt(x));
    case MU_MATH_RSQRT: LOOP(1 / __builtin_sqrt(x));
    case MU_MATH_ERFC: LOOP(erfc_f64(x));
    default: activation_loops(function, alpha, in, out, n); break;
    }
}

// ---- Functions with a limited range -----------------------------------------------------------------

static void ranged_loops(mu_math function, const double *in, double *out, int64_t n)
{
    switch (function) {
    case MU_MATH_SIN: LOOP(sin_f64(x));
    case MU_MATH_COS: LOOP(cos_f64(x));
    case MU_MATH_TAN: LOOP(tan_f64(x));
    case MU_MATH_DIGAMMA: LOOP(digamma_f64(x));
    default: LOOP(lgamma_f64(x));
    }
}

// Uses the reflection formula for x <= 0; the integers there are poles.
static double digamma_alone(double x)
{
    const double pi = 3.14159265358979323846;
    if (x > 0 || x != x)
        return x < 1e30 ? digamma_f64(x) : log(x);
    const double part = x - rint(x); // the tangent's period is 1; next to a pole every bit counts
    return part == 0 ? (double)NAN : (1 - x < 1e30 ? digamma_f64(1 - x) : log(-x)) - pi / tan(pi * part);
}

static double lgamma_alone(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

static double ranged_alone(mu_math function, double x)
{
    switch (function) {
    case MU_MATH_SIN: return sin(x);
    case MU_MATH_COS: return cos(x);
    case MU_MATH_TAN: return tan(x);
    case MU_MATH_DIGAMMA: return digamma_alone(x);
    default: return lgamma_alone(x);
    }
}

#define T double
#include "between.inc.c"
#undef T

static void in_pieces(mu_math function, const double *x, double *y, int64_t n)
{
    enum { PIECE = 128 };
    const bool gamma = function == MU_MATH_LGAMMA, circle = !gamma && function != MU_MATH_DIGAMMA;
    const double low = circle ? -CIRCLE_LIMIT : gamma ? 0x1p-1000 : 0, high = circle ? CIRCLE_LIMIT : 1e30;
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = least(n - at, PIECE);
        if (all_between(x + at, low, high, count))
            ranged_loops(function, x + at, y + at, count);
        else
            for (int64_t i = at; i < at + count; i++)
                y[i] = ranged_alone(function, x[i]);
    }
}

void MU_KERNEL(math_f64)(mu_math function, double alpha, const double *x, double *y, int64_t n)
{
    switch (function) {
    case MU_MATH_SIN:
    case MU_MATH_COS:
    case MU_MATH_TAN:
    case MU_MATH_LGAMMA:
    case MU_MATH_DIGAMMA: in_pieces(function, x, y, n); break;
    default: plain_loops(function, alpha, x, y, n); break;
    }
}

// ---- Binary functions -------------------------------------------------------------------------------

// x - y floor(x / y), exact for quotients below 2^50.
MU_INLINE double floor_mod_f64(double x, double y)
{
    const double q = (x / y + ROUND_MAGIC) - ROUND_MAGIC; // nearest integer; at most one off
    const double rest = __builtin_fma(-q, y, x);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

#define T                 double
#define FN(name)          name##_f64
#define POW_RIGHT(a, b)   (((a) >= 0x1p-1022) & ((a) < INFINITY) & (fabs(b) < 0x1p900))
#define ATAN2_RIGHT(a, b) ((fabs(a) < 0x1p1000) & (fabs(b) < 0x1p1000))
#define MOD_RIGHT(a, b)   (MU_EXACT_PRODUCTS & (fabs(a) > 0) & (fabs(b) < INFINITY) & (fabs(a) < 0x1p50 * fabs(b)))
#define POW_OF            pow_f64
#define ATAN2_OF          atan2_f64
#define MOD_OF            floor_mod_f64
#define M(name)           name
#include "math2.inc.c"
