// Kernels of rows of doubles, sums and softmax, for every instruction set that this processor has, against plain loops.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "kernels/kernels.h"

static const char *const isas[] = {"base", "avx2", "avx512"};

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void test_sum_f64(void **state)
{
    static double x[5000];
    (void)state;
    for (int64_t i = 0; i < 5000; i++)
        x[i] = (double)(int32_t)(random_u32() % 4001) / 4 - 500;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        double sum = 0;
        for (int64_t n = 0; k && n < 5000; sum += x[n++])
            if (n < 140 || n % 97 == 0)
                assert_true(k->sum_f64(x, n) == sum);
    }
}

// ---- Rows -----------------------------------------------------------------------------------------

enum { ROWS = 5, WIDEST = 300 };

// Softmax of a row, in double; NaN everywhere if one element is NaN.
static void softmax_right(const double *x, double *y, int64_t n, bool logarithm)
{
    double most = x[0], sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    for (int64_t i = 0; i < n; i++)
        y[i] = logarithm ? x[i] - most - log(sum) : exp(x[i] - most) / sum;
}

static void check_row(const double *got, const double *x, int64_t n, bool logarithm, double relative, double absolute,
                      double one)
{
    double right[WIDEST];
    softmax_right(x, right, n, logarithm);
    absolute += logarithm ? one : 0; // a sum of little more than 1
    for (int64_t i = 0; i < n; i++)
        if (right[i] != right[i])
            assert_true(got[i] != got[i]);
        else if (got[i] != right[i])
            assert_true(fabs(got[i] - right[i]) <= relative * fabs(right[i]) + absolute);
}

// Rows of numbers of either sign, one with -infinity, one with a NaN, one of -infinity alone.
static double element_of_row(int64_t row, int64_t i)
{
    if (row == 4 || (row == 2 && i % 3 == 1))
        return -INFINITY;
    if (row == 3 && i == 0)
        return NAN;
    return ((double)random_u32() / 0x1p30 - 1) * (row == 1 ? 60 : 5);
}

static void check_softmax_f64(const mu_kernels *k, bool logarithm, int64_t n)
{
    double x[ROWS * WIDEST], y[ROWS * WIDEST + 1];
    for (int64_t i = 0; i < ROWS * n; i++)
        x[i] = element_of_row(i / n, i % n);
    y[ROWS * n] = 42;
    k->softmax_f64(x, y, n, logarithm, 0, ROWS);
    assert_true(y[ROWS * n] == 42);
    for (int64_t row = 0; row < ROWS; row++)
        check_row(y + row * n, x + row * n, n, logarithm, 1e-14, 0x1p-1070, 1e-15);
    k->softmax_f64(x, x, n, logarithm, 0, 2);
    assert_memory_equal(x, y, 2 * (size_t)n * sizeof *x);
}

static void test_softmax(void **state)
{
    static const int64_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 100, 127, 128, 257, 300};
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (size_t w = 0; k && w < sizeof widths / sizeof widths[0]; w++)
            for (int logarithm = 0; logarithm < 2; logarithm++)
                check_softmax_f64(k, logarithm, widths[w]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sum_f64), cmocka_unit_test(test_softmax)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
