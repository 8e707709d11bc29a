// Element-wise ops on 16-bit floats, which are computed through float32 chunk by chunk: functions of every 16-bit float
// that there is, and pairs of all kinds, against the same computed one by one.
#include "graph/graph.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { ALL = 65536, ROWS = 16 }; // 65536 elements are many chunks; 65521, a prime, ends in a part of one

static const mu_dtype types[] = {MU_F16, MU_BF16};

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static float widened(mu_dtype dtype, uint16_t bits)
{
    float wide;
    mu__convert(MU_F32, &wide, dtype, &bits, 1);
    return wide;
}

static uint16_t narrowed(mu_dtype dtype, double value)
{
    const float wide = (float)value;
    uint16_t bits;
    mu__convert(dtype, &bits, MU_F32, &wide, 1);
    return bits;
}

// Number of a 16-bit float among all of its sign.
static int place_of(uint16_t bits) { return bits & 0x8000 ? -(bits & 0x7fff) : bits; }

static void check_number(mu_dtype dtype, const char *name, double exact, uint16_t got, int places, double absolute)
{
    const uint16_t wanted = narrowed(dtype, exact);
    const float near = widened(dtype, wanted), value = widened(dtype, got);
    if (isnan(near) && isnan(value))
        return;
    const int apart = abs(place_of(wanted) - place_of(got));
    if (isnan(near) || isnan(value) || (apart > places && !(fabs((double)value - exact) <= absolute)))
        fail_msg("%s of %s gives %04x instead of %04x", name, mu_dtype_name(dtype), got, wanted);
}

// ---- Functions of one number --------------------------------------------------------------------

static double gelu(double x) { return x * (0.5 * erfc(-x * 0.70710678118654752440)); }
static double rsqrt(double x) { return 1 / sqrt(x); }
static double square(double x) { return x * x; }
static double negative(double x) { return -x; }
static double sign(double x) { return isnan(x) ? x : (x > 0) - (x < 0); }
static mu_tensor *exact_gelu(mu_tensor *x) { return mu_nn_gelu(x, false); }

static const struct function {
    const char *name;
    mu_tensor *(*op)(mu_tensor *);
    double (*right)(double);
    double absolute; // error allowed beside one place
} functions[] = {
    {"gelu", exact_gelu, gelu, 1e-7}, {"cosh", mu_cosh, cosh, 0}, {"rsqrt", mu_rsqrt, rsqrt, 0},
    {"sqrt", mu_sqrt, sqrt, 0},       {"sin", mu_sin, sin, 0},    {"cos", mu_cos, cos, 0},
    {"exp", mu_exp, exp, 0},          {"erf", mu_erf, erf, 0},    {"square", mu_square, square, 0},
    {"neg", mu_neg, negative, 0},     {"abs", mu_abs, fabs, 0},   {"sign", mu_sign, sign, 0},
    {"floor", mu_floor, floor, 0},
};

static void test_functions_of_all_16_bit_floats(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2 * MU_COUNT(functions); f++) {
        const struct function *function = &functions[f / 2];
        mu_pool *pool = mu_pool_open();
        mu_tensor *x = mu_tensor_new(types[f % 2], 1, (const int64_t[]){ALL}, NULL);
        for (int i = 0; i < ALL; i++)
            ((uint16_t *)mu__host_write(x))[i] = (uint16_t)i;
        const mu_tensor *y = function->op(x);
        assert_non_null(y);
        for (int i = 0; i < ALL; i++)
            check_number(types[f % 2], function->name, function->right((double)widened(types[f % 2], (uint16_t)i)),
                         ((const uint16_t *)mu__host_read(y))[i], 1, function->absolute);
        mu_pool_close(pool);
    }
}

// ---- Pairs --------------------------------------------------------------------------------------

static double plus(double a, double b) { return (double)((float)a + (float)b); }
static double minus(double a, double b) { return (double)((float)a - (float)b); }
static double times(double a, double b) { return (double)((float)a * (float)b); }
static double by(double a, double b) { return (double)((float)a / (float)b); }
static double greater_of(double a, double b) { return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b; }
static double lesser_of(double a, double b) { return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b; }

static const struct pair_function {
    const char *name;
    mu_tensor *(*op)(mu_tensor *, mu_tensor *);
    double (*right)(double, double);
} pairs[] = {
    {"add", mu_add, plus},     {"subtract", mu_subtract, minus},    {"multiply", mu_multiply, times},
    {"divide", mu_divide, by}, {"maximum", mu_maximum, greater_of}, {"minimum", mu_minimum, lesser_of},
};

static mu_tensor *random_numbers(mu_dtype dtype, int rank, const int64_t *dims)
{
    mu_tensor *x = mu_tensor_new(dtype, rank, dims, NULL);
    for (int64_t i = 0; i < mu_tensor_elements(x); i++)
        ((uint16_t *)mu__host_write(x))[i] = (uint16_t)random_u32();
    return x;
}

static double number_at(const mu_tensor *x, int64_t i)
{
    return (double)widened(x->dtype, ((const uint16_t *)mu__host_read(x))[i % mu_tensor_elements(x)]);
}

// Operands of [3, ROWS, n] that broadcast: in the middle, along rows, as columns, on both sides.
static const int64_t broadcasts[][2][3] = {
    {{3, ROWS, 0}, {3, 1, 0}},
    {{3, ROWS, 0}, {3, ROWS, 1}},
    {{3, 1, 0}, {1, ROWS, 0}},
    {{1, ROWS, 1}, {3, ROWS, 0}},
};

static mu_tensor *one_of(mu_dtype dtype, const int64_t *dims, int64_t n) // n where dims have 0
{
    return random_numbers(dtype, 3, (const int64_t[]){dims[0], dims[1], dims[2] ? dims[2] : n});
}

static int64_t place_in(const mu_tensor *x, int64_t i, int64_t j, int64_t k)
{
    const int64_t *dims = x->shape.dims;
    return ((dims[0] == 1 ? 0 : i) * dims[1] + (dims[1] == 1 ? 0 : j)) * dims[2] + (dims[2] == 1 ? 0 : k);
}

static void check_broadcast(const struct pair_function *function, mu_dtype dtype, const int64_t (*dims)[3], int64_t n)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *a = one_of(dtype, dims[0], n), *b = one_of(dtype, dims[1], n);
    const mu_tensor *y = function->op(a, b), *less = mu_less(a, b);
    assert_non_null(y);
    for (int64_t at = 0; at < 3 * ROWS * n; at++) {
        const int64_t i = at / n / ROWS, j = at / n % ROWS, k = at % n;
        const double first = number_at(a, place_in(a, i, j, k)), second = number_at(b, place_in(b, i, j, k));
        check_number(dtype, function->name, function->right(first, second), ((const uint16_t *)mu__host_read(y))[at], 0,
                     0);
        assert_int_equal(((const bool *)mu__host_read(less))[at], first < second);
    }
    mu_pool_close(pool);
}

static void test_pairs_that_broadcast(void **state)
{
    static const int64_t sizes[] = {0, 2, 32, 100, 1024, 1030};
    (void)state;
    for (size_t d = 0; d < MU_COUNT(types); d++)
        for (size_t f = 0; f < 2; f++) // addition and subtraction: all share the walk
            for (size_t s = 0; s < MU_COUNT(sizes); s++)
                for (size_t i = 0; i < MU_COUNT(broadcasts); i++)
                    check_broadcast(&pairs[f], types[d], broadcasts[i], sizes[s]);
}

// [ROWS, n] with another of that shape, with a row, and with one number.
static void check_pairs(const struct pair_function *function, mu_dtype dtype, int64_t n)
{
    for (int rank = 0; rank <= 2; rank++) {
        mu_pool *pool = mu_pool_open();
        const int64_t dims[] = {ROWS, n};
        mu_tensor *a = random_numbers(dtype, 2, dims), *b = random_numbers(dtype, rank, dims + 2 - rank);
        const mu_tensor *y = function->op(a, b);
        assert_non_null(y);
        for (int64_t i = 0; i < ROWS * n; i++)
            check_number(dtype, function->name, function->right(number_at(a, i), number_at(b, i)),
                         ((const uint16_t *)mu__host_read(y))[i], 0, 0);
        mu_pool_close(pool);
    }
}

static void test_pairs(void **state)
{
    static const int64_t sizes[] = {1, 15, 64, 257, 1023, 1025, 4100};
    (void)state;
    for (size_t f = 0; f < 2 * MU_COUNT(pairs); f++)
        for (size_t s = 0; s < MU_COUNT(sizes); s++)
            check_pairs(&pairs[f / 2], types[f % 2], sizes[s]);
}

static void test_comparisons(void **state)
{
    (void)state;
    for (size_t d = 0; d < MU_COUNT(types); d++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *a = random_numbers(types[d], 1, (const int64_t[]){5000}),
                  *b = random_numbers(types[d], 1, (const int64_t[]){5000});
        memcpy(mu__host_write(b), mu__host_read(a), 1000 * sizeof(uint16_t));
        const mu_tensor *less = mu_less(a, b), *equal = mu_equal(a, b), *not_equal = mu_not_equal(a, b);
        for (int64_t i = 0; i < 5000; i++) {
            const double x = number_at(a, i), y = number_at(b, i);
            assert_int_equal(((const bool *)mu__host_read(less))[i], x < y);
            assert_int_equal(((const bool *)mu__host_read(equal))[i], x == y);
            assert_int_equal(((const bool *)mu__host_read(not_equal))[i], x != y);
        }
        mu_pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_of_all_16_bit_floats),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_pairs_that_broadcast),
        cmocka_unit_test(test_comparisons),
    };
    mu_init();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
