// The elementary functions of every instruction set against libm in a wider type: over all exponents, both signs,
// denormal numbers, zeros, infinities and NaN, at odd lengths, in place.
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const sets[] = {"avx512", "avx2", "base"};

// ---- What is right ------------------------------------------------------------------------------

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return (x < 0 ? 0 : x) + log1p(exp(-fabs(x))); }
static double log_sigmoid(double x) { return -softplus(-x); }
static double elu(double x) { return x < 0 ? 0.5 * expm1(x) : x; }
static double selu(double x) { return x < 0 ? 1.7580993408473768599 * expm1(x) : 1.0507009873554804934 * x; }
static double gelu(double x) { return x * (0.5 * erfc(-x * 0.70710678118654752440)); }
static double gelu_tanh(double x) { return x * sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)); }
static double silu(double x) { return x * sigmoid(x); }
static double rsqrt(double x) { return 1 / sqrt(x); }
static double mish(double x) { return x * tanh(softplus(x)); }

static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

// Sums the series in steps up to 30, from where three terms are enough.
static double digamma(double x)
{
    double result = 0;
    if (x <= 0)
        return x == floor(x) ? NAN : digamma(1 - x) - M_PI / tan(M_PI * x);
    for (; x < 30; x++)
        result -= 1 / x;
    const double f = 1 / (x * x);
    return result + log(x) - 0.5 / x - f * (1.0 / 12 - f * (1.0 / 120 - f / 252));
}

static const struct function {
    const char *name;
    mu_math function;
    double (*right)(double);
    double ulps, absolute; // what may be missed
} functions[] = {
    {"exp", MU_MATH_EXP, exp, 1, 0},
    {"log", MU_MATH_LOG, log, 2, 0},
    {"expm1", MU_MATH_EXPM1, expm1, 1, 0},
    {"log1p", MU_MATH_LOG1P, log1p, 2, 0},
    {"sin", MU_MATH_SIN, sin, 1, 0},
    {"cos", MU_MATH_COS, cos, 1, 0},
    {"tan", MU_MATH_TAN, tan, 1, 0},
    {"asin", MU_MATH_ASIN, asin, 2, 0},
    {"acos", MU_MATH_ACOS, acos, 2, 0},
    {"atan", MU_MATH_ATAN, atan, 2, 0},
    {"sinh", MU_MATH_SINH, sinh, 1, 0},
    {"cosh", MU_MATH_COSH, cosh, 2, 0},
    {"tanh", MU_MATH_TANH, tanh, 2, 0},
    {"asinh", MU_MATH_ASINH, asinh, 1, 0},
    {"acosh", MU_MATH_ACOSH, acosh, 1, 0},
    {"atanh", MU_MATH_ATANH, atanh, 1, 0},
    {"erf", MU_MATH_ERF, erf, 2, 0},
    {"erfc", MU_MATH_ERFC, erfc, 2, 0},
    {"lgamma", MU_MATH_LGAMMA, log_gamma, 2, 1e-6},
    {"digamma", MU_MATH_DIGAMMA, digamma, 2, 1e-6},
    {"sigmoid", MU_MATH_SIGMOID, sigmoid, 2, 0},
    {"log_sigmoid", MU_MATH_LOG_SIGMOID, log_sigmoid, 2, 0},
    {"softplus", MU_MATH_SOFTPLUS, softplus, 2, 0},
    {"elu", MU_MATH_ELU, elu, 1, 0},
    {"selu", MU_MATH_SELU, selu, 2, 0},
    {"gelu", MU_MATH_GELU, gelu, 2, 1e-7},
    {"gelu_tanh", MU_MATH_GELU_TANH, gelu_tanh, 2, 0},
    {"silu", MU_MATH_SILU, silu, 2, 0},
    {"mish", MU_MATH_MISH, mish, 3, 0},
    {"rsqrt", MU_MATH_RSQRT, rsqrt, 1.5, 0},
    {"sqrt", MU_MATH_SQRT, sqrt, 0.5, 0},
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

// ---- Arguments ----------------------------------------------------------------------------------

enum {
    PER_EXPONENT = 40,
    N_SPECIAL = 12,
    N_FLOATS = 2 * 256 * PER_EXPONENT + N_SPECIAL,
    N_DOUBLES = 2 * 2048 * 8 + N_SPECIAL
};

static uint64_t drawn(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 29;
}

static float *all_floats(void)
{
    static const float special[N_SPECIAL] = {0,        -0.0f,     1,   -1,      0.5f,     -0.5f,
                                             INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, FLT_MIN};
    float *x = malloc(N_FLOATS * sizeof *x);
    uint64_t state = 7;
    assert_non_null(x);
    for (int i = 0; i < N_FLOATS - N_SPECIAL; i++) {
        const uint32_t bits = (uint32_t)(i / PER_EXPONENT) << 23 | (uint32_t)(drawn(&state) & 0x7fffff);
        memcpy(&x[i], &bits, sizeof bits);
    }
    memcpy(x + N_FLOATS - N_SPECIAL, special, sizeof special);
    return x;
}

static double *all_doubles(void)
{
    static const double special[N_SPECIAL] = {0,        -0.0,      1,   -1,      0.5,      -0.5,
                                              INFINITY, -INFINITY, NAN, DBL_MAX, -DBL_MAX, DBL_MIN};
    double *x = malloc(N_DOUBLES * sizeof *x);
    uint64_t state = 7;
    assert_non_null(x);
    for (int i = 0; i < N_DOUBLES - N_SPECIAL; i++) {
        const uint64_t bits =
            (uint64_t)(i / 8) << 52 | (drawn(&state) << 20 & 0xfffffffffffff) | (drawn(&state) & 0xfffff);
        memcpy(&x[i], &bits, sizeof bits);
    }
    memcpy(x + N_DOUBLES - N_SPECIAL, special, sizeof special);
    return x;
}

// Returns about how many float32 numbers lie between two; 0 for two NaNs, many if only one is NaN.
static double ulps_between(float got, double right)
{
    const float near = (float)right;
    if (got == near || (got != got && near != near))
        return 0;
    if (!isfinite(got) || !isfinite(near))
        return 1e9;
    int exponent;
    frexpf(fabsf(near) > FLT_MIN ? near : FLT_MIN, &exponent);
    return fabs((double)got - right) / ldexp(1, exponent - 24);
}

// ---- Tests --------------------------------------------------------------------------------------

static void check_f32(const mu_kernels *k, const struct function *f, const float *x, float *y)
{
    double worst = 0;
    int at = 0;
    memcpy(y, x, N_FLOATS * sizeof *x);
    k->math_f32(f->function, 0.5f, y, y, N_FLOATS);
    for (int i = 0; i < N_FLOATS; i++) {
        const double right = f->right((double)x[i]), ulps = ulps_between(y[i], right);
        if (ulps > worst && !(fabs((double)y[i] - right) <= f->absolute)) {
            worst = ulps;
            at = i;
        }
    }
    if (worst > f->ulps)
        fail_msg("%s (%s): %a gives %a instead of %a: %g ulps", f->name, k->isa, (double)x[at], (double)y[at],
                 f->right((double)x[at]), worst);
}

static void test_f32(void **state)
{
    (void)state;
    float *x = all_floats(), *y = malloc(N_FLOATS * sizeof *y);
    assert_non_null(y);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        const mu_kernels *k = mu__kernels_for(sets[s]);
        for (int i = 0; k && i < N_FUNCTIONS; i++)
            check_f32(k, &functions[i], x, y);
    }
    free(x);
    free(y);
}

static long double sigmoid_l(long double x) { return 1 / (1 + expl(-x)); }
static long double softplus_l(long double x) { return (x < 0 ? 0 : x) + log1pl(expl(-fabsl(x))); }
static long double log_sigmoid_l(long double x) { return -softplus_l(-x); }
static long double elu_l(long double x) { return x < 0 ? 0.5L * expm1l(x) : x; }
static long double selu_l(long double x)
{
    return x < 0 ? 1.7580993408473768599L * expm1l(x) : 1.0507009873554804934L * x;
}
static long double gelu_l(long double x) { return x * (0.5L * erfcl(-x * 0.707106781186547524400844362105L)); }
static long double gelu_tanh_l(long double x)
{
    return x * sigmoid_l(2 * 0.79788456080286535588L * (x + 0.044715L * x * x * x));
}
static long double silu_l(long double x) { return x * sigmoid_l(x); }
#define PI_L 3.14159265358979323846L
static long double digamma_l(long double x)
{
    long double result = 0;
    if (x <= 0)
        return x == floorl(x) ? (long double)NAN : digamma_l(1 - x) - PI_L / tanl(PI_L * (x - rintl(x)));
    for (; x < 40; x++)
        result -= 1 / x;
    const long double f = 1 / (x * x);
    return result + logl(x) - 0.5L / x - f * (1.0L / 12 - f * (1.0L / 120 - f * (1.0L / 252 - f / 240)));
}

static long double log_gamma_l(long double x)
{
    int sign;
    return lgammal_r(x, &sign);
}

static long double rsqrt_l(long double x) { return 1 / sqrtl(x); }
static long double mish_l(long double x) { return x * tanhl(softplus_l(x)); }

static const struct f64_function {
    const char *name;
    mu_math function;
    long double (*right)(long double);
    long double ulps, absolute; // what may be missed
} f64_functions[] = {
    {"exp", MU_MATH_EXP, expl, 2.5L, 0},
    {"log", MU_MATH_LOG, logl, 2.5L, 0},
    {"sin", MU_MATH_SIN, sinl, 2.5L, 0},
    {"cos", MU_MATH_COS, cosl, 2.5L, 0},
    {"tan", MU_MATH_TAN, tanl, 2.5L, 0},
    {"asin", MU_MATH_ASIN, asinl, 2.5L, 0},
    {"acos", MU_MATH_ACOS, acosl, 2.5L, 0},
    {"atan", MU_MATH_ATAN, atanl, 2.5L, 0},
    {"expm1", MU_MATH_EXPM1, expm1l, 2.5L, 0},
    {"log1p", MU_MATH_LOG1P, log1pl, 2.5L, 0},
    {"sinh", MU_MATH_SINH, sinhl, 2.5L, 0},
    {"cosh", MU_MATH_COSH, coshl, 2.5L, 0},
    {"tanh", MU_MATH_TANH, tanhl, 2.5L, 0},
    {"asinh", MU_MATH_ASINH, asinhl, 2.5L, 0},
    {"acosh", MU_MATH_ACOSH, acoshl, 2.5L, 0},
    {"atanh", MU_MATH_ATANH, atanhl, 2.5L, 0},
    {"erf", MU_MATH_ERF, erfl, 2.5L, 0},
    {"erfc", MU_MATH_ERFC, erfcl, 2.5L, 0},
    {"sigmoid", MU_MATH_SIGMOID, sigmoid_l, 2.5L, 0},
    {"softplus", MU_MATH_SOFTPLUS, softplus_l, 2.5L, 0},
    {"log_sigmoid", MU_MATH_LOG_SIGMOID, log_sigmoid_l, 2.5L, 0},
    {"elu", MU_MATH_ELU, elu_l, 2.5L, 0},
    {"selu", MU_MATH_SELU, selu_l, 2.5L, 0},
    {"gelu", MU_MATH_GELU, gelu_l, 4, 0},
    {"gelu_tanh", MU_MATH_GELU_TANH, gelu_tanh_l, 2.5L, 2e-16L},
    {"silu", MU_MATH_SILU, silu_l, 2.5L, 0},
    {"mish", MU_MATH_MISH, mish_l, 4, 0},
    {"digamma", MU_MATH_DIGAMMA, digamma_l, 4, 4e-15L},
    {"lgamma", MU_MATH_LGAMMA, log_gamma_l, 4, 0},
    {"rsqrt", MU_MATH_RSQRT, rsqrt_l, 2.5L, 0},
    {"sqrt", MU_MATH_SQRT, sqrtl, 0.5L, 0},
};
enum { N_F64 = sizeof f64_functions / sizeof f64_functions[0] };

// Returns about how many float64 numbers lie between two; 0 for two NaNs, many if only one is NaN.
static long double f64_ulps_between(double got, long double exact)
{
    const double near = (double)exact;
    if (got == near || (isnan(got) && isnan(near)))
        return 0;
    if (!isfinite(got) || !isfinite(near))
        return 1e9L;
    int exponent;
    frexp(fabs(near) > DBL_MIN ? near : DBL_MIN, &exponent);
    return fabsl((long double)got - exact) / ldexpl(1, exponent - 53);
}

static void check_f64(const mu_kernels *k, const struct f64_function *f, const double *x, double *y)
{
    long double worst = 0;
    int at = 0;
    memcpy(y, x, N_DOUBLES * sizeof *y);
    k->math_f64(f->function, 0.5, y, y, N_DOUBLES);
    for (int i = 0; i < N_DOUBLES; i++) {
        const long double exact = f->right((long double)x[i]), ulps = f64_ulps_between(y[i], exact);
        if (ulps > worst && !(fabsl((long double)y[i] - exact) <= f->absolute)) {
            worst = ulps;
            at = i;
        }
    }
    if (worst > f->ulps)
        fail_msg("%s (%s) of float64: %a gives %a instead of %a: %Lg ulps", f->name, k->isa, x[at], y[at],
                 (double)f->right((long double)x[at]), worst);
}

// Numbers near the places where the functions change most; most of all_doubles is far from there.
static void fill_near(double *x, double width)
{
    uint64_t state = 5;
    for (int i = 0; i < N_DOUBLES; i++)
        x[i] = width * ((double)drawn(&state) * 0x1p-34 - 1);
}

static void test_f64(void **state)
{
    (void)state;
    double *x = all_doubles(), *y = malloc(N_DOUBLES * sizeof *y);
    static const double widths[] = {0, 1.1, 3, 30, 720};
    assert_non_null(y);
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        if (widths[w] > 0)
            fill_near(x, widths[w]);
        for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
            const mu_kernels *k = mu__kernels_for(sets[s]);
            for (int i = 0; k && i < N_F64; i++)
                check_f64(k, &f64_functions[i], x, y);
        }
    }
    free(x);
    free(y);
}

static double floor_mod(double x, double y)
{
    const double rest = fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static void check_two(const mu_kernels *k, mu_math2 function, double (*right)(double, double), float a, float b)
{
    float out[3];
    const float many_a[3] = {a, a, a};
    k->math2_f32(function, many_a, 1, &b, 0, out, 3);
    const double wanted = right((double)a, (double)b);
    if (!(ulps_between(out[0], wanted) <= 1) || memcmp(&out[0], &out[2], sizeof out[0]) != 0)
        fail_msg("function %d of two (%s): %a, %a gives %a instead of %a", (int)function, k->isa, (double)a, (double)b,
                 (double)out[0], wanted);
}

static void test_two(void **state)
{
    (void)state;
    static const float some[] = {0,      -0.0f,  1,    -1,      2,        -3,        0.5f, 1e-30f, 1e30f,
                                 1e-42f, -7.25f, 1e5f, 8388609, INFINITY, -INFINITY, NAN,  3};
    enum { N = sizeof some / sizeof some[0] };
    uint64_t drawing = 3;
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        const mu_kernels *k = mu__kernels_for(sets[s]);
        for (int i = 0; k && i < 4000; i++) {
            const float a =
                i < N * N ? some[i / N] : ldexpf((float)(drawn(&drawing) & 0xffffff), (int)(drawn(&drawing) % 50) - 40);
            const float b = i < N * N
                                ? some[i % N]
                                : ldexpf((float)(drawn(&drawing) & 0xffffff), (int)(drawn(&drawing) % 30) - 26) - 3;
            check_two(k, MU_MATH_POW, pow, a, b);
            check_two(k, MU_MATH_ATAN2, atan2, i % 2 ? a : -a, b);
            check_two(k, MU_MATH_FLOOR_MOD, floor_mod, i % 2 ? a : -a, b);
        }
    }
}

static long double floor_mod_l(long double x, long double y)
{
    const long double rest = fmodl(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static void check_f64_two(const mu_kernels *k, mu_math2 function, long double (*right)(long double, long double),
                          double a, double b)
{
    double out[3];
    const double many_a[3] = {a, a, a};
    k->math2_f64(function, many_a, 1, &b, 0, out, 3);
    const long double wanted = right((long double)a, (long double)b);
    if (!(f64_ulps_between(out[0], wanted) <= 2.5L) || memcmp(&out[0], &out[2], sizeof out[0]) != 0)
        fail_msg("function %d of two float64 (%s): %a, %a gives %a instead of %a", (int)function, k->isa, a, b, out[0],
                 (double)wanted);
}

static void test_f64_two(void **state)
{
    (void)state;
    static const double some[] = {0,      -0.0,  1,   -1,    2,        -3,        0.5, 1e-300, 1e300,
                                  1e-310, -7.25, 1e5, 1e-20, INFINITY, -INFINITY, NAN, 3};
    enum { N = sizeof some / sizeof some[0] };
    uint64_t drawing = 3;
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        const mu_kernels *k = mu__kernels_for(sets[s]);
        for (int i = 0; k && i < 20000; i++) {
            const double scale = ldexp(1, (int)(drawn(&drawing) % 60) - 50);
            const double a = i < N * N ? some[i / N] : (double)drawn(&drawing) * 0x1p-20 * scale;
            const double b = i < N * N ? some[i % N] : ((double)drawn(&drawing) * 0x1p-34 - 1) * (i % 3 ? 3 : 200);
            check_f64_two(k, MU_MATH_POW, powl, a, b);
            check_f64_two(k, MU_MATH_ATAN2, atan2l, i % 2 ? a : -a, b);
            check_f64_two(k, MU_MATH_FLOOR_MOD, floor_mod_l, i % 2 ? a : -a, b);
        }
    }
}

static void test_lengths(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        const mu_kernels *k = mu__kernels_for(sets[s]);
        for (int n = 0; k && n < 300; n += n < 70 ? 1 : 29) {
            float x[301], y[301];
            for (int i = 0; i <= n; i++) {
                x[i] = 0.01f * (float)i;
                y[i] = 99;
            }
            k->math_f32(MU_MATH_SIN, 0, x, y, n);
            for (int i = 0; i < n; i++)
                assert_true(fabsf(y[i] - sinf(x[i])) < 1e-6f);
            assert_true(y[n] == 99);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),     cmocka_unit_test(test_f64),     cmocka_unit_test(test_two),
        cmocka_unit_test(test_f64_two), cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
