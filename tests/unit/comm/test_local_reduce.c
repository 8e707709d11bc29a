// The arithmetic of reductions: wrapping integers, half floats rounded once, NaN, means, many destinations.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm.h"

#include <math.h>

// Reduces two arrays into the first one, as a rank's step does.
static void reduce_two(mu_dtype dtype, mu_reduction reduction, int divide, void *a, const void *b, int64_t n)
{
    void *dst[] = {a};
    const void *src[] = {a, b};
    mu__reduce(&(mu_local_reduce_args){.dtype = dtype,
                                       .reduction = reduction,
                                       .divide = divide,
                                       .n_dst = 1,
                                       .n_src = 2,
                                       .dst = dst,
                                       .src = src,
                                       .count = n});
}

static void test_integers_wrap(void **state)
{
    int8_t a8[] = {127, -128, 100}, b8[] = {1, -1, -100};
    uint8_t au[] = {255, 1}, bu[] = {2, 1};
    int32_t a32[] = {INT32_MAX, -7}, b32[] = {1, 0};
    int64_t a64[] = {INT64_MAX}, b64[] = {1};
    (void)state;
    reduce_two(MU_I8, MU_REDUCTION_SUM, 1, a8, b8, 3);
    assert_true(a8[0] == -128 && a8[1] == 127 && a8[2] == 0);
    reduce_two(MU_U8, MU_REDUCTION_SUM, 1, au, bu, 2);
    assert_true(au[0] == 1 && au[1] == 2);
    reduce_two(MU_I32, MU_REDUCTION_SUM, 1, a32, b32, 2);
    assert_true(a32[0] == INT32_MIN && a32[1] == -7);
    reduce_two(MU_I64, MU_REDUCTION_SUM, 1, a64, b64, 1);
    assert_true(a64[0] == INT64_MIN);
}

static void test_integer_mean_truncates(void **state)
{
    int32_t a[] = {-7, 7, 4}, b[] = {0, 0, 1};
    (void)state;
    reduce_two(MU_I32, MU_REDUCTION_MEAN, 2, a, b, 3);
    assert_true(a[0] == -3 && a[1] == 3 && a[2] == 2);
}

static void test_nan_wins(void **state)
{
    static const mu_reduction reductions[] = {MU_REDUCTION_MIN, MU_REDUCTION_MAX};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(reductions); i++) {
        float a[] = {NAN, 1, 1, -INFINITY}, b[] = {1, NAN, 2, INFINITY};
        reduce_two(MU_F32, reductions[i], 1, a, b, 4);
        assert_true(isnan(a[0]) && isnan(a[1]));
        assert_true(a[2] == (float)(1 + i) && a[3] == (i == 0 ? -INFINITY : INFINITY));
    }
}

// 1 + 2^-11 + 2^-11 is 1 + 2^-10 when rounded once, and 1 when rounded after each addition (f16).
static void test_half_rounds_once(void **state)
{
    uint16_t x[3] = {mu__f32_to_f16(1), mu__f32_to_f16(0x1p-11f), mu__f32_to_f16(0x1p-11f)}, out;
    uint16_t y[3] = {mu__f32_to_bf16(1), mu__f32_to_bf16(0x1p-8f), mu__f32_to_bf16(0x1p-8f)};
    void *dst[] = {&out};
    const void *src_x[] = {&x[0], &x[1], &x[2]}, *src_y[] = {&y[0], &y[1], &y[2]};
    mu_local_reduce_args args = {
        .dtype = MU_F16, .divide = 1, .n_dst = 1, .n_src = 3, .dst = dst, .src = src_x, .count = 1};
    (void)state;
    mu__reduce(&args);
    assert_true(mu__f16_to_f32(out) == 1 + 0x1p-10f);
    args.dtype = MU_BF16;
    args.src = src_y;
    mu__reduce(&args);
    assert_true(mu__bf16_to_f32(out) == 1 + 0x1p-7f);
}

// A mean is a true division, also where the number is not a power of two; every destination gets the same.
static void test_mean_and_push(void **state)
{
    enum { N = 2500 };
    static float x[3][N];
    void *dst[] = {x[0], x[1], x[2]};
    const void *src[] = {x[0], x[1], x[2]};
    (void)state;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < N; i++)
            x[r][i] = (float)(i + r) * 0.37f;
    float wanted[N];
    for (int i = 0; i < N; i++)
        wanted[i] = (x[0][i] + x[1][i] + x[2][i]) / 3.0f;
    mu__reduce(&(mu_local_reduce_args){.dtype = MU_F32,
                                       .reduction = MU_REDUCTION_MEAN,
                                       .divide = 3,
                                       .n_dst = 3,
                                       .n_src = 3,
                                       .dst = dst,
                                       .src = src,
                                       .count = N});
    for (int r = 0; r < 3; r++)
        assert_memory_equal(x[r], wanted, sizeof wanted);
}

static void test_supported(void **state)
{
    (void)state;
    assert_true(mu__reduce_supports(MU_BF16) && mu__reduce_supports(MU_U8));
    assert_false(mu__reduce_supports(MU_BOOL) || mu__reduce_supports(MU_DTYPE_DEFAULT) ||
                 mu__reduce_supports((mu_dtype)77));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_wrap), cmocka_unit_test(test_integer_mean_truncates),
        cmocka_unit_test(test_nan_wins),      cmocka_unit_test(test_half_rounds_once),
        cmocka_unit_test(test_mean_and_push), cmocka_unit_test(test_supported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
