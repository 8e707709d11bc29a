// sort, argsort and top_k of every type, of short and long rows: each index occurs once, neighbours are in order, equal
// elements keep their order, NaNs come last, and every value has the bits of the element at its index.
#include "op_check.h"

#include <stdlib.h>
#include <string.h>

static uint64_t random_u64(void)
{
    static uint64_t state = 5;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

enum pattern { ANY_BITS, FEW_VALUES, CLOSE_TOGETHER, ALL_EQUAL, N_PATTERNS };

// ANY_BITS has numbers of all sizes, infinities, NaNs and zeros of both signs; CLOSE_TOGETHER differs in few bits.
static mu_tensor *filled(mu_dtype dtype, int64_t rows, int64_t n, int pattern)
{
    const size_t bytes = mu_dtype_bytes(dtype);
    mu_tensor *x = mu_zeros(dtype, 2, DIMS(rows, n));
    char *data = x ? mu__host_write(x) : NULL;
    for (int64_t i = 0; data && i < rows * n; i++) {
        uint64_t bits = random_u64();
        if (pattern == FEW_VALUES)
            bits = 0;
        else if (pattern != ANY_BITS)
            bits = ((uint64_t)0x3FF1 << 48) + (pattern == ALL_EQUAL ? 0 : bits % 64);
        if (pattern == CLOSE_TOGETHER && i % 5 == 0)
            bits += (uint64_t)1 << 52;
        if (pattern == FEW_VALUES)
            mu__write_element(dtype, data, i, (double)(random_u64() % 5) - (dtype == MU_U8 ? 0 : 2));
        else
            memcpy(data + (size_t)i * bytes, &bits, bytes);
        if (mu__dtype_is_float(dtype) && pattern == ANY_BITS && i % 7 == 3)
            mu__write_element(dtype, data, i, i % 3 == 0 ? -0.0 : i % 3 == 1 ? 0.0 : -(double)INFINITY);
    }
    return x;
}

// Returns whether element i comes before j: less, or greater, or not NaN where j is NaN; equal ones by index.
static bool before(const mu_tensor *x, int64_t i, int64_t j, bool descending)
{
    const void *data = mu__host_read((mu_tensor *)x);
    if (x->dtype == MU_I64) {
        const int64_t a = ((const int64_t *)data)[i], b = ((const int64_t *)data)[j];
        return a != b ? (a < b) != descending : i < j;
    }
    const double a = mu__read_element(x->dtype, data, i), b = mu__read_element(x->dtype, data, j);
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? i < j : isnan(b);
    return a != b ? (a < b) != descending : i < j;
}

static void check_places(mu_tensor *x, mu_tensor *y, mu_tensor *positions, bool descending)
{
    const int64_t n = mu_tensor_dim(x, 1), count = mu_tensor_dim(positions, 1), rows = mu_tensor_dim(x, 0);
    const size_t bytes = mu_dtype_bytes(x->dtype);
    const int32_t *at = mu__host_read(positions);
    bool *seen = calloc((size_t)n + 1, 1);
    assert_non_null(seen);
    for (int64_t row = 0; row < rows; row++) {
        memset(seen, 0, (size_t)n);
        for (int64_t i = 0; i < count; i++) {
            const int64_t place = at[row * count + i];
            assert_true(place >= 0 && place < n && !seen[place]);
            seen[place] = true;
            assert_memory_equal((char *)mu__host_read(y) + (size_t)(row * count + i) * bytes,
                                (char *)mu__host_read(x) + (size_t)(row * n + place) * bytes, bytes);
            if (i > 0)
                assert_true(before(x, row * n + at[row * count + i - 1], row * n + place, descending));
        }
        for (int64_t i = 0; count > 0 && count < n && i < n; i++)
            assert_true(seen[i] || before(x, row * n + at[row * count + count - 1], row * n + i, descending));
    }
    free(seen);
}

static void check_rows(mu_dtype dtype, int64_t rows, int64_t n, int pattern)
{
    const int64_t counts[] = {0, 1, 8, n / 8, n / 2, n - 1, n};
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = filled(dtype, rows, n, pattern), *y, *positions;
    for (int descending = 0; descending < 2; descending++)
        check_places(x, mu_sort(x, 1, descending), mu_argsort(x, 1, descending), descending);
    for (size_t i = 0; i < MU_COUNT(counts); i++)
        if (counts[i] >= 0 && counts[i] <= n) {
            assert_int_equal(mu_top_k(x, counts[i], &y, &positions), MU_OK);
            check_places(x, y, positions, true);
        }
    mu_pool_close(pool);
}

static void test_rows(void **state)
{
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};
    static const int64_t lengths[] = {1, 2, 5, 16, 17, 60, 128, 129, 700, 3000};
    (void)state;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (size_t i = 0; i < MU_COUNT(lengths); i++)
            for (int pattern = 0; pattern < N_PATTERNS; pattern++) {
                check_rows(dtypes[d], 1, lengths[i], pattern);
                check_rows(dtypes[d], 19, lengths[i], pattern);
            }
}

static void test_long_rows(void **state)
{
    (void)state;
    for (int pattern = 0; pattern < N_PATTERNS; pattern++) {
        check_rows(MU_F32, 1, 50000, pattern);
        check_rows(MU_F64, 2, 40000, pattern);
        check_rows(MU_I64, 1, 33000, pattern);
    }
}

static void test_other_axes(void **state)
{
    (void)state;
    mu_tensor *x = mu_reshape(VECTOR(3, 1, 2, 9, -1, 2), 2, DIMS(3, 2));
    EXPECT(mu_sort(x, 0, false), -1, 1, 2, 2, 3, 9);
    EXPECT(mu_argsort(x, 0, true), 0, 1, 1, 2, 2, 0);
    assert_int_equal(mu_tensor_elements(mu_sort(mu_zeros(MU_F32, 2, DIMS(0, 4)), 1, false)), 0);
    assert_null(mu_sort(mu_fill(MU_F32, 0, NULL, 1), 0, false));
    mu_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_long_rows),
                                       cmocka_unit_test(test_other_axes)};
    mu_init();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
