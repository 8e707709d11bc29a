// Products of matrices, for every instruction set that this processor has, against the sums that define them: every
// kind of edge, transposed or not, in parts. The numbers are small, so that every sum is exact.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static const char *const isas[] = {"base", "avx2", "avx512"};

typedef enum kind { F64, I32, I64 } kind;

typedef union array {
    double *f64;
    uint32_t *i32;
    uint64_t *i64;
    void *all;
} array;

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void set(kind type, array x, int64_t i, int64_t value)
{
    if (type == F64)
        x.f64[i] = (double)value;
    else if (type == I32)
        x.i32[i] = (uint32_t)value;
    else
        x.i64[i] = (uint64_t)value;
}

static int64_t get(kind type, array x, int64_t i)
{
    return type == F64 ? (int64_t)x.f64[i] : type == I32 ? (int32_t)x.i32[i] : (int64_t)x.i64[i];
}

static array filled(kind type, int64_t n)
{
    array x = {.all = malloc((size_t)n * 8)};
    assert_non_null(x.all);
    for (int64_t i = 0; i < n; i++)
        set(type, x, i, (int64_t)(random_u32() % 41) - 20);
    return x;
}

static void multiply(const mu_kernels *k, kind type, const mu_product_shape *shape, array a, array b, array c,
                     void *scratch, int64_t begin, int64_t end)
{
    if (type == F64)
        k->product_f64(shape, a.f64, b.f64, c.f64, scratch, begin, end);
    else if (type == I32)
        k->product_i32(shape, a.i32, b.i32, c.i32, scratch, begin, end);
    else
        k->product_i64(shape, a.i64, b.i64, c.i64, scratch, begin, end);
}

// `turned`: bit 0 for a, bit 1 for b.
static void check_product(const mu_kernels *k, kind type, int64_t m, int64_t n, int64_t depth, int turned)
{
    const array a = filled(type, m * depth), b = filled(type, depth * n), c = filled(type, m * n + 1);
    void *scratch = aligned_alloc(64, MU_PRODUCT_SCRATCH);
    const bool a_transposed = turned & 1, b_transposed = turned & 2;
    const mu_product_shape shape = {
        m, n, depth, a_transposed ? 1 : depth, a_transposed ? m : 1, b_transposed ? 1 : n, b_transposed ? depth : 1};
    assert_non_null(scratch);
    memset(scratch, 0xFF, MU_PRODUCT_SCRATCH); // NaNs, where it is read before it is written
    set(type, c, m * n, 77);
    multiply(k, type, &shape, a, b, c, scratch, 0, m / 3);
    multiply(k, type, &shape, a, b, c, scratch, m / 3, m);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t sum = 0;
            for (int64_t p = 0; p < depth; p++)
                sum += get(type, a, i * shape.a_row + p * shape.a_column) *
                       get(type, b, p * shape.b_row + j * shape.b_column);
            assert_int_equal(get(type, c, i * n + j), sum);
        }
    assert_int_equal(get(type, c, m * n), 77);
    free(a.all);
    free(b.all);
    free(c.all);
    free(scratch);
}

static void check_products(const mu_kernels *k, kind type)
{
    for (int64_t m = 0; m < 19; m += 3)
        for (int64_t n = 0; n <= 100; n += n < 64 ? 3 : 12)
            check_product(k, type, m, n, 1 + (m + n) % 7, (int)(m + n) % 4);
    for (int turned = 0; turned < 4; turned++) {
        check_product(k, type, 25, 270, 300, turned);
        check_product(k, type, 3, 24, 600, turned);
    }
    check_product(k, type, 1600, 50, 3, 1);
    check_product(k, type, 9, 1000, 257, 0);
}

static void test_product(void **state)
{
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (kind type = F64; k && type <= I64; type++)
            check_products(k, type);
    }
}

// Integers wrap around.
static void test_wraps(void **state)
{
    const uint32_t words[] = {0x80000001u, 3}, by[] = {2, 0x80000000u};
    const uint64_t longs[] = {UINT64_C(1) << 63, 3}, long_by[] = {3, UINT64_C(1) << 63};
    const mu_product_shape shape = {1, 1, 2, 2, 1, 1, 1};
    void *scratch = aligned_alloc(64, MU_PRODUCT_SCRATCH);
    uint32_t word;
    uint64_t number;
    (void)state;
    assert_non_null(scratch);
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        if (!k)
            continue;
        k->product_i32(&shape, words, by, &word, scratch, 0, 1);
        k->product_i64(&shape, longs, long_by, &number, scratch, 0, 1);
        assert_int_equal(word, 0x80000002u);
        assert_int_equal(number, 0);
    }
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_product), cmocka_unit_test(test_wraps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
