// Elementary functions of float64 arrays, and of pairs of them, to the last place or two (fine.h). Main idea: as in
// math.c, each function is one expression of which the compiler makes vectors, and a piece of an array with an element
// outside an expression's range is computed by libm.
#include "fine.h"
#include "parts.h"

#if defined(__clang__)
#define EACH_ALONE
#else
#define EACH_ALONE _Pragma("GCC ivdep")
#endif

#define LOOP(expression)               \
    EACH_ALONE                         \
    for (int64_t i = 0; i < n; i++) {  \
        const double x = in[i];        \
        out[i] = (expression);         \
    }                                  \
    break

static void plain_loops(mu_math function, const double *in, double *out, int64_t n)
{
    switch (function) {
    case MU_MATH_EXP: LOOP(exp_fine(x));
    case MU_MATH_EXPM1: LOOP(expm1_fine_any(x));
    case MU_MATH_LOG: LOOP(log_fine(x));
    case MU_MATH_LOG1P: LOOP(log1p_fine(x));
    case MU_MATH_SINH: LOOP(sinh_fine(x));
    case MU_MATH_COSH: LOOP(cosh_fine(x));
    case MU_MATH_TANH: LOOP(tanh_fine(x));
    case MU_MATH_ASINH: LOOP(asinh_fine(x));
    case MU_MATH_ACOSH: LOOP(acosh_fine(x));
    case MU_MATH_ATANH: LOOP(atanh_fine(x));
    case MU_MATH_ASIN: LOOP(asin_fine(x));
    case MU_MATH_ACOS: LOOP(acos_fine(x));
    case MU_MATH_ATAN: LOOP(atan_fine(x));
    case MU_MATH_ERF: LOOP(erf_fine(x));
    case MU_MATH_ERFC: LOOP(erfc_fine(x));
    default: break;
    }
}

static void activation_loops(mu_math function, double slope, const double *in, double *out, int64_t n)
{
    const double scale = 1.0507009873554804934, low = 1.7580993408473768599;  // scale * alpha of SELU
    const double root = 0.79788456080286535588;                               // sqrt(2 / pi)
    switch (function) {
    case MU_MATH_SIGMOID: LOOP(sigmoid_fine(x));
    case MU_MATH_LOG_SIGMOID: LOOP(-softplus_fine(-x));
    case MU_MATH_SOFTPLUS: LOOP(softplus_fine(x));
    case MU_MATH_ELU: LOOP(x < 0 ? slope * expm1_fine_any(x) : x);
    case MU_MATH_SELU: LOOP(x < 0 ? low * expm1_fine_any(x) : scale * x);
    case MU_MATH_SILU: LOOP(silu_fine(x));
    case MU_MATH_GELU: LOOP(gelu_fine(x));
    case MU_MATH_GELU_TANH: LOOP(gated_fine(x, x * sigmoid_fine(2 * root * (x + 0.044715 * x * x * x))));
    case MU_MATH_MISH: LOOP(mish_fine(x));
    default: break;
    }
}

// ---- Functions with a limited range -----------------------------------------------------------------

static void circle_loops(mu_math function, const double *in, double *out, int64_t n)
{
    switch (function) {
    case MU_MATH_SIN: LOOP(sin_fine(x));
    case MU_MATH_COS: LOOP(cos_fine(x));
    default: LOOP(tan_fine(x));
    }
}

static bool all_below(const double *in, double limit, int64_t n)
{
    int outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside |= !(fabs(in[i]) < limit);
    return outside == 0;
}

enum { PIECE = 128 };

static void circles(mu_math function, const double *x, double *y, int64_t n)
{
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = least(n - at, PIECE);
        if (all_below(x + at, CIRCLE_LIMIT, count))
            circle_loops(function, x + at, y + at, count);
        else
            for (int64_t i = at; i < at + count; i++)
                y[i] = function == MU_MATH_SIN ? sin(x[i]) : function == MU_MATH_COS ? cos(x[i]) : tan(x[i]);
    }
}

void MU_KERNEL(math_f64)(mu_math function, double alpha, const double *x, double *y, int64_t n)
{
    switch (function) {
    case MU_MATH_SIN:
    case MU_MATH_COS:
    case MU_MATH_TAN: circles(function, x, y, n); break;
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

// x - y floor(x / y), exact for quotients below 2^50.
MU_INLINE double floor_mod_fine(double x, double y)
{
    const double q = (x / y + ROUND_MAGIC) - ROUND_MAGIC;  // the nearest; at most one off
    const double rest = __builtin_fma(-q, y, x);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static double floor_mod_alone(double x, double y)
{
    const double rest = fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static double alone2(mu_math2 function, double a, double b)
{
    return function == MU_MATH_POW ? pow(a, b) : function == MU_MATH_ATAN2 ? atan2(a, b) : floor_mod_alone(a, b);
}

static bool loops_are_right(mu_math2 function, const double *a, const double *b, int64_t n)
{
    int wrong = 0;
    switch (function) {
    case MU_MATH_POW:
        for (int64_t i = 0; i < n; i++)
            wrong |= !((a[i] >= 0x1p-1022) & (a[i] < INFINITY) & (fabs(b[i]) < 0x1p900));
        break;
    case MU_MATH_ATAN2:
        for (int64_t i = 0; i < n; i++)
            wrong |= !((fabs(a[i]) < 0x1p1000) & (fabs(b[i]) < 0x1p1000));
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            wrong |= !((fabs(a[i]) > 0) & (fabs(b[i]) < INFINITY) & (fabs(a[i]) < 0x1p50 * fabs(b[i])));
        wrong |= !MU_EXACT_PRODUCTS;
    }
    return wrong == 0;
}

#define LOOP2(expression)                                     \
    EACH_ALONE                                                \
    for (int64_t i = 0; i < n; i++) {                         \
        const double x = a[i], y = b[i];                      \
        out[i] = (expression);                                \
    }                                                         \
    break

static void loops2(mu_math2 function, const double *a, const double *b, double *out, int64_t n)
{
    switch (function) {
    case MU_MATH_POW: LOOP2(pow_fine(x, y));
    case MU_MATH_ATAN2: LOOP2(atan2_fine(x, y));
    default: LOOP2(floor_mod_fine(x, y));
    }
}

void MU_KERNEL(math2_f64)(mu_math2 function, const double *a, int64_t step_a, const double *b, int64_t step_b,
                          double *out, int64_t n)
{
    double same_a[PIECE], same_b[PIECE];
    for (int64_t i = 0; i < PIECE && n > 0; i++) {
        same_a[i] = a[0];
        same_b[i] = b[0];
    }
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = least(n - at, PIECE);
        const double *from_a = step_a ? a + at : same_a, *from_b = step_b ? b + at : same_b;
        if (loops_are_right(function, from_a, from_b, count))
            loops2(function, from_a, from_b, out + at, count);
        else
            for (int64_t i = 0; i < count; i++)
                out[at + i] = alone2(function, from_a[i], from_b[i]);
    }
}
