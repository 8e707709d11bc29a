// Kernels that combine 16-bit floats two by two and add up doubles, for every instruction set that this processor has,
// against the same on each alone. It must not know how vectors are made.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdint.h>

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

static uint16_t of_two_halves(const mu_kernels *k, mu_halves2 op, bool bfloat, uint16_t a, uint16_t b)
{
    const float x = widened(k, bfloat, a), y = widened(k, bfloat, b);
    const float result = op == MU_HALVES_ADD        ? x + y
                         : op == MU_HALVES_SUBTRACT ? x - y
                         : op == MU_HALVES_MULTIPLY ? x * y
                         : op == MU_HALVES_DIVIDE   ? x / y
                         : x != x                   ? x
                         : op == MU_HALVES_GREATER  ? (x > y ? x : y)
                                                    : (x < y ? x : y);
    uint16_t half;
    (bfloat ? k->narrow_bf16 : k->narrow_f16)(&result, &half, 1);
    return half;
}

// All kinds of 16-bit floats, against the same op on each alone; two NaNs may differ in what they carry.
static void check_halves2(const mu_kernels *k, mu_halves2 op, bool bfloat, int64_t step_a, int64_t step_b, int64_t n)
{
    uint16_t a[600] = {0}, b[600] = {0}, y[600];
    for (int64_t i = 0; i < n; i++) {
        a[i] = (uint16_t)random_u32();
        b[i] = (uint16_t)random_u32();
    }
    y[n] = 0xA5A5;
    k->halves2(op, bfloat, a, step_a, b, step_b, y, n);
    for (int64_t i = 0; i < n; i++) {
        const uint16_t wanted = of_two_halves(k, op, bfloat, a[i * step_a], b[i * step_b]);
        const float as_float = widened(k, bfloat, wanted);
        if (as_float == as_float)
            assert_int_equal(y[i], wanted);
        else
            assert_true(isnan(widened(k, bfloat, y[i])));
    }
    assert_int_equal(y[n], 0xA5A5);
}

static void test_halves(void **state)
{
    static const int64_t sizes[] = {1, 15, 16, 31, 257, 599};
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int op = MU_HALVES_ADD; k && op <= MU_HALVES_LESS; op++)
            for (int kind = 0; kind < 8; kind++)
                for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                    check_halves2(k, (mu_halves2)op, kind & 1, kind >> 1 & 1, kind >> 2, sizes[s]);
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
                assert_true(k->sum_f64(x, n) == sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_halves), cmocka_unit_test(test_sum_f64)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
