// The plain loop of the element-wise ops on one tensor: each function as it is defined, in float64 or int64.
#include "ops/core/plain.h"
#include "ops/core/attrs.h"
#include "ops/math/elementwise.h"
#include "ops/random/random.h"

#include <math.h>

// The distance from the nearest whole number, with its sign. Pi times it has no rounding error that counts next to a
// pole, and the same sine and tangent, but for a sign, as pi times x.
static double off_whole(double x) { return x - rint(x); }

// The derivative of log gamma: reflection for x < 0.5, recurrence up to at least 15, then the asymptotic series.
double mu__digamma(double x)
{
    double result = 0;
    if (x <= 0 && x == floor(x))
        return NAN;
    if (x < 0.5) {
        result = -M_PI / tan(M_PI * off_whole(x));
        x = 1 - x;
    }
    for (; x < 15; x++)
        result -= 1 / x;
    const double f = 1 / (x * x);
    const double series = f * (1.0 / 12 - f * (1.0 / 120 - f * (1.0 / 252 - f * (1.0 / 240 - f * (1.0 / 132)))));
    return result + log(x) - 0.5 / x - series;
}

// The sum of 1 / (x + k)^2 over k >= 0. Beyond TERMS terms it is the integral and two corrections.
static double trigamma(double x)
{
    enum { TERMS = 300 };
    double sum = 0;
    if (x <= 0 && x == floor(x))
        return INFINITY;
    if (x < 0.5)
        return pow(M_PI / sin(M_PI * off_whole(x)), 2) - trigamma(1 - x);
    for (int k = 0; k < TERMS; k++)
        sum += 1 / ((x + k) * (x + k));
    const double end = x + TERMS;
    return sum + 1 / end + 1 / (2 * end * end) + 1 / (6 * end * end * end);
}

static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

static double sign_of(double x) { return isnan(x) ? x : (x > 0) - (x < 0); }

static double logistic(double x) { return 1 / (1 + exp(-x)); }

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x))); // log(1 + e^x) without overflow
}

static double gelu(double x, bool by_tanh)
{
    const double inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return by_tanh ? 0.5 * x * (1 + tanh(inner)) : 0.5 * x * erfc(-x / sqrt(2));
}

static double power_of(mu_unary function, double x)
{
    switch (function) {
    case MU_UNARY_NEG: return -x;
    case MU_UNARY_ABS: return fabs(x);
    case MU_UNARY_SIGN: return sign_of(x);
    case MU_UNARY_SQUARE: return x * x;
    case MU_UNARY_FLOOR: return floor(x);
    case MU_UNARY_CEIL: return ceil(x);
    case MU_UNARY_ROUND: return rint(x);
    case MU_UNARY_EXP: return exp(x);
    case MU_UNARY_EXPM1: return expm1(x);
    case MU_UNARY_LOG: return log(x);
    case MU_UNARY_LOG1P: return log1p(x);
    case MU_UNARY_SQRT: return sqrt(x);
    case MU_UNARY_RSQRT: return 1 / sqrt(x);
    case MU_UNARY_RECIPROCAL: return 1 / x;
    case MU_UNARY_ERF: return erf(x);
    case MU_UNARY_ERFC: return erfc(x);
    case MU_UNARY_LGAMMA: return log_gamma(x);
    case MU_UNARY_DIGAMMA: return mu__digamma(x);
    default: return trigamma(x);
    }
}

static double trigonometric_of(mu_unary function, double x)
{
    switch (function) {
    case MU_UNARY_SIN: return sin(x);
    case MU_UNARY_COS: return cos(x);
    case MU_UNARY_TAN: return tan(x);
    case MU_UNARY_ASIN: return asin(x);
    case MU_UNARY_ACOS: return acos(x);
    case MU_UNARY_ATAN: return atan(x);
    case MU_UNARY_SINH: return sinh(x);
    case MU_UNARY_COSH: return cosh(x);
    case MU_UNARY_TANH: return tanh(x);
    case MU_UNARY_ASINH: return asinh(x);
    case MU_UNARY_ACOSH: return acosh(x);
    default: return atanh(x);
    }
}

// NaN propagates through all of these.
static double activation_of(mu_unary function, double x, double alpha)
{
    const double selu_scale = 1.0507009873554804934, selu_alpha = 1.6732632423543772848;
    switch (function) {
    case MU_UNARY_SIGMOID: return logistic(x);
    case MU_UNARY_LOG_SIGMOID: return -softplus(-x);
    case MU_UNARY_SOFTPLUS: return softplus(x);
    case MU_UNARY_SOFTSIGN: return x / (1 + fabs(x));
    case MU_UNARY_RELU: return x < 0 ? 0 : x;
    case MU_UNARY_RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case MU_UNARY_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case MU_UNARY_ELU: return x < 0 ? alpha * expm1(x) : x;
    case MU_UNARY_SELU: return selu_scale * (x < 0 ? selu_alpha * expm1(x) : x);
    case MU_UNARY_GELU: return gelu(x, false);
    case MU_UNARY_GELU_TANH: return gelu(x, true);
    case MU_UNARY_SILU: return x * logistic(x);
    case MU_UNARY_HARD_SIGMOID: return x < -3 ? 0 : x > 3 ? 1 : x / 6 + 0.5;
    default: return x * tanh(softplus(x));
    }
}

static double real_of(mu_unary function, double x, double alpha)
{
    switch (function) {
    case MU_UNARY_IS_NAN: return isnan(x);
    case MU_UNARY_IS_INF: return isinf(x) != 0;
    case MU_UNARY_IS_FINITE: return isfinite(x);
    default:
        return function <= MU_UNARY_TRIGAMMA ? power_of(function, x)
               : function <= MU_UNARY_ATANH  ? trigonometric_of(function, x)
                                             : activation_of(function, x, alpha);
    }
}

// Integers wrap around.
static int64_t whole_of(mu_unary function, int64_t x)
{
    const uint64_t bits = (uint64_t)x;
    switch (function) {
    case MU_UNARY_NEG: return (int64_t)-bits;
    case MU_UNARY_ABS: return (int64_t)(x < 0 ? -bits : bits);
    case MU_UNARY_SIGN: return (x > 0) - (x < 0);
    default: return (int64_t)(bits * bits);
    }
}

mu_status mu__unary_ref(const mu_kernel *kernel)
{
    const mu_view *in = &kernel->in[0], *out = &kernel->out[0];
    const mu_alpha_attrs *attrs = kernel->attrs;
    const mu_unary function = (mu_unary)kernel->op->variant;
    for (int64_t i = 0; i < mu__elements(&in->shape); i++)
        if (mu__dtype_is_float(in->dtype))
            mu__write_real(out, i, real_of(function, mu__read_real(in, i), attrs ? attrs->alpha : 0));
        else
            mu__write_whole(out, i, whole_of(function, mu__read_whole(in, i)));
    return MU_OK;
}
