// Kernels of 16-bit floats, and one that adds up doubles, for every instruction set that this processor has, against
// the same on each alone: what combines two, and functions of every 16-bit float that there is. It must not know how
// vectors are made.
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

static float widened(const mu_kernels *k, bool bfloat, uint16_t half)
{
    float wide;
    (bfloat ? k->widen_bf16 : k->widen_f16)(&half, &wide, 1);
    return wide;
}

static uint16_t of_two_float16(const mu_kernels *k, mu_float16_binary op, bool bfloat, uint16_t a, uint16_t b)
{
    const float x = widened(k, bfloat, a), y = widened(k, bfloat, b);
    const float result = op == MU_FLOAT16_ADD        ? x + y
                         : op == MU_FLOAT16_SUBTRACT ? x - y
                         : op == MU_FLOAT16_MULTIPLY ? x * y
                         : op == MU_FLOAT16_DIVIDE   ? x / y
                         : x != x                   ? x
                         : op == MU_FLOAT16_GREATER  ? (x > y ? x : y)
                                                    : (x < y ? x : y);
    uint16_t half;
    (bfloat ? k->narrow_bf16 : k->narrow_f16)(&result, &half, 1);
    return half;
}

// All kinds of 16-bit floats, against the same op on each alone; two NaNs may differ in what they carry.
static void check_float16_binary(const mu_kernels *k, mu_float16_binary op, bool bfloat, int64_t step_a, int64_t step_b,
                                 int64_t n)
{
    uint16_t a[600] = {0}, b[600] = {0}, y[600];
    for (int64_t i = 0; i < n; i++) {
        a[i] = (uint16_t)random_u32();
        b[i] = (uint16_t)random_u32();
    }
    y[n] = 0xA5A5;
    k->float16_binary(op, bfloat, a, step_a, b, step_b, y, n);
    for (int64_t i = 0; i < n; i++) {
        const uint16_t wanted = of_two_float16(k, op, bfloat, a[i * step_a], b[i * step_b]);
        const float as_float = widened(k, bfloat, wanted);
        if (as_float == as_float)
            assert_int_equal(y[i], wanted);
        else
            assert_true(isnan(widened(k, bfloat, y[i])));
    }
    assert_int_equal(y[n], 0xA5A5);
}

static void test_float16(void **state)
{
    static const int64_t sizes[] = {1, 15, 16, 31, 257, 599};
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int op = MU_FLOAT16_ADD; k && op <= MU_FLOAT16_LESS; op++)
            for (int kind = 0; kind < 8; kind++)
                for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                    check_float16_binary(k, (mu_float16_binary)op, kind & 1, kind >> 1 & 1, kind >> 2, sizes[s]);
    }
}

// Every byte and every half, from a place that is not a multiple of a vector on, and one element more that stays.
static void test_whole_numbers(void **state)
{
    static uint16_t float16s[65536], of_bytes[257];
    static int32_t whole[65537];
    uint8_t bytes[256];
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int i = 0; i < 65536; i++)
            float16s[i] = (uint16_t)i;
        for (int i = 0; i < 256; i++)
            bytes[i] = (uint8_t)i;
        for (int64_t from = 0; k && from < 20; from += 3) {
            of_bytes[256 - from] = 0xA5A5, whole[65536 - from] = 77;
            k->f16_from_u8(bytes + from, of_bytes, 256 - from);
            k->i32_from_f16(float16s + from, whole, 65536 - from);
            for (int64_t i = from; i < 256; i++)
                assert_true(widened(k, false, of_bytes[i - from]) == (float)i);
            for (int64_t i = from; i < 65536; i++) {
                const float x = widened(k, false, (uint16_t)i);
                assert_int_equal(whole[i - from], isfinite(x) ? (int32_t)x : INT32_MIN);
            }
            assert_true(of_bytes[256 - from] == 0xA5A5 && whole[65536 - from] == 77);
        }
    }
}

// Of both signs and every size; rounded to float32 first, as a conversion in two steps does.
static void test_wide_whole_numbers(void **state)
{
    enum { N = 700 };
    int32_t whole[N];
    float wide[N];
    uint16_t float16s[N + 1], wanted[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        whole[i] = (int32_t)((uint32_t)i * 2654435761u) >> i % 32;
        wide[i] = (float)whole[i];
    }
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int kind = 0; k && kind < 40; kind++) {
            const int64_t from = kind / 2, n = N - from;
            float16s[n] = 0xA5A5;
            (kind & 1 ? k->narrow_bf16 : k->narrow_f16)(wide + from, wanted, n);
            k->float16_from_i32(kind & 1, whole + from, float16s, n);
            assert_memory_equal(float16s, wanted, (size_t)n * sizeof *wanted);
            assert_int_equal(float16s[n], 0xA5A5);
        }
    }
}

// ---- Functions ----------------------------------------------------------------------------------

static double gelu(double x) { return x * (0.5 * erfc(-x * 0.70710678118654752440)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

static const struct function {
    mu_math function;
    double (*right)(double);
    double absolute;  // what may be missed beside one place
} functions[] = {
    {MU_MATH_GELU, gelu, 1e-7}, {MU_MATH_COSH, cosh, 0}, {MU_MATH_RSQRT, rsqrt, 0}, {MU_MATH_SQRT, sqrt, 0},
    {MU_MATH_SIN, sin, 0}, {MU_MATH_COS, cos, 0}, {MU_MATH_EXP, exp, 0},
    {MU_MATH_ERF, erf, 0},
};

// The place of a half among all float16s of its sign.
static int place_of(uint16_t half)
{
    return half & 0x8000 ? -(half & 0x7fff) : half;
}

static void check_half(const mu_kernels *k, const struct function *f, bool bfloat, uint16_t x, uint16_t got)
{
    const double exact = f->right((double)widened(k, bfloat, x));
    const float near = (float)exact, value = widened(k, bfloat, got);
    uint16_t wanted;
    (bfloat ? k->narrow_bf16 : k->narrow_f16)(&near, &wanted, 1);
    if (isnan(near) && isnan(value))
        return;
    const int apart = abs(place_of(wanted) - place_of(got));
    const bool same_sign = (wanted & 0x8000) == (got & 0x8000);
    if (isnan(near) || isnan(value) || !same_sign || (apart > 1 && !(fabs((double)value - exact) <= f->absolute)))
        fail_msg("function %d (%s, %s): %04x gives %04x instead of %04x", (int)f->function, k->isa,
                 bfloat ? "bfloat16" : "float16", x, got, wanted);
}

// In place, and again in pieces of odd lengths: where an element stands must not change its result.
static void check_function(const mu_kernels *k, const struct function *f, bool bfloat)
{
    enum { ALL = 65536 };
    static uint16_t whole[ALL], pieces[ALL + 1];
    for (int i = 0; i < ALL; i++)
        whole[i] = pieces[i] = (uint16_t)i;
    pieces[ALL] = 0xA5A5;
    k->math_float16(f->function, 0, bfloat, whole, whole, ALL);
    for (int at = 0, n = 1; at < ALL; at += n, n = n % 71 + 1)
        k->math_float16(f->function, 0, bfloat, pieces + at, pieces + at, n < ALL - at ? n : ALL - at);
    assert_memory_equal(whole, pieces, sizeof whole);
    assert_int_equal(pieces[ALL], 0xA5A5);
    for (int i = 0; i < ALL; i++)
        check_half(k, f, bfloat, (uint16_t)i, whole[i]);
}

static void test_functions(void **state)
{
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (size_t f = 0; k && f < 2 * sizeof functions / sizeof functions[0]; f++)
            check_function(k, &functions[f / 2], f % 2);
    }
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
                assert_true(k->sum_f64(n % 2, x, n) == sum);
    }
}

// ---- Rows -----------------------------------------------------------------------------------------

enum { ROWS = 5, WIDEST = 300 };

// Softmax of a row of numbers, in double; no number where one of them is NaN.
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
    absolute += logarithm ? one : 0;  // a sum of little more than 1
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

static void check_softmax_float16(const mu_kernels *k, bool bfloat, bool logarithm, int64_t n)
{
    uint16_t x[ROWS * WIDEST], y[ROWS * WIDEST + 1];
    float wide[(WIDEST + MU_WIDE_ROW) / MU_WIDE_ROW * MU_WIDE_ROW];
    for (int64_t i = 0; i < ROWS * n; i++) {
        const float value = (float)element_of_row(i / n, i % n);
        (bfloat ? k->narrow_bf16 : k->narrow_f16)(&value, &x[i], 1);
    }
    y[ROWS * n] = 0xA5A5;
    k->softmax_float16(x, y, wide, n, bfloat, logarithm, 0, ROWS);
    assert_int_equal(y[ROWS * n], 0xA5A5);
    for (int64_t row = 0; row < ROWS; row++) {
        double from[WIDEST], got[WIDEST];
        for (int64_t i = 0; i < n; i++) {
            from[i] = (double)widened(k, bfloat, x[row * n + i]);
            got[i] = (double)widened(k, bfloat, y[row * n + i]);
        }
        check_row(got, from, n, logarithm, bfloat ? 0x1.2p-8 : 0x1.2p-11, bfloat ? 0x1p-120 : 0x1.1p-25, 3e-7);
    }
    k->softmax_float16(x, x, wide, n, bfloat, logarithm, 0, 2);
    assert_memory_equal(x, y, 2 * (size_t)n * sizeof *x);
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
            for (int logarithm = 0; logarithm < 2; logarithm++) {
                check_softmax_float16(k, true, logarithm, widths[w]);
                check_softmax_float16(k, false, logarithm, widths[w]);
                check_softmax_f64(k, logarithm, widths[w]);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float16), cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_wide_whole_numbers),
        cmocka_unit_test(test_functions), cmocka_unit_test(test_sum_f64), cmocka_unit_test(test_softmax)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
