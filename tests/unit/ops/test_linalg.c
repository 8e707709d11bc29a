// Cholesky factors and triangular systems of sizes around whole blocks: multiplying the results gives the inputs again;
// the halves of matrices that must not be read hold NaN.
#include "op_check.h"

#include <muster/nn.h>

static double random_number(void)
{
    static uint64_t state = 3;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / (1 << 24) - 0.5;
}

enum half { LOWER, UPPER };

// Matrices whose diagonal outweighs the rest, with NaN in the half that must not be read.
static mu_tensor *triangles(mu_dtype dtype, int64_t batch, int64_t n, int half)
{
    mu_tensor *x = mu_zeros(dtype, 3, DIMS(batch, n, n));
    for (int64_t i = 0; x && i < batch * n * n; i++) {
        const int64_t row = i / n % n, column = i % n;
        const bool outside = half == LOWER ? column > row : column < row;
        mu__write_element(dtype, mu__host_write(x), i, outside ? NAN : row == column ? (double)n + 1 : random_number());
    }
    return x;
}

static mu_tensor *numbers(mu_dtype dtype, int64_t batch, int64_t rows, int64_t columns)
{
    mu_tensor *x = mu_zeros(dtype, 3, DIMS(batch, rows, columns));
    for (int64_t i = 0; x && i < batch * rows * columns; i++)
        mu__write_element(dtype, mu__host_write(x), i, random_number());
    return x;
}

// Zero in the half that is not part of the result.
static mu_tensor *without(mu_tensor *x, int half)
{
    const int64_t n = mu_tensor_dim(x, 1);
    mu_tensor *y = mu_zeros(x->dtype, 3, DIMS(mu_tensor_dim(x, 0), n, n));
    for (int64_t i = 0; y && i < mu_tensor_elements(y); i++)
        if (half == LOWER ? i % n <= i / n % n : i % n >= i / n % n)
            mu__write_element(x->dtype, mu__host_write(y), i, mu__read_element(x->dtype, mu__host_read(x), i));
    return y;
}

static void expect_near(const mu_tensor *x, const mu_tensor *y, double tolerance)
{
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(mu_tensor_elements(x), mu_tensor_elements(y));
    for (int64_t i = 0; i < mu_tensor_elements(x); i++) {
        const double a = mu__read_element(x->dtype, mu__host_read((mu_tensor *)x), i);
        const double b = mu__read_element(y->dtype, mu__host_read((mu_tensor *)y), i);
        if (!(fabs(a - b) <= tolerance))
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i, a, b);
    }
}

static void check_systems(mu_dtype dtype, int64_t n, int64_t columns)
{
    const double tolerance = dtype == MU_F32 ? 3e-6 * (double)n : 1e-14 * (double)n;
    for (int form = 0; form < 4; form++) {
        mu_pool *pool = mu_pool_open();
        const int half = form % 2;
        const bool adjoint = form >= 2;
        mu_tensor *a = triangles(dtype, 2, n, half), *b = numbers(dtype, 2, n, columns);
        mu_tensor *x = mu_triangular_solve(a, b, half == LOWER, adjoint);
        expect_near(mu_matmul_transposed(without(a, half), x, adjoint, false), b, tolerance);
        mu_pool_close(pool);
    }
}

static void test_systems(void **state)
{
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 130, 300}, columns[] = {1, 2, 17, 33, 64, 65, 200};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(sizes); i++)
        for (size_t c = 0; c < MU_COUNT(columns); c++) {
            check_systems(MU_F32, sizes[i], columns[c]);
            check_systems(MU_F64, sizes[i], columns[c]);
        }
}

static void check_factor(mu_dtype dtype, int64_t n)
{
    const double tolerance = dtype == MU_F32 ? 1e-5 * (double)n : 1e-14 * (double)n;
    mu_pool *pool = mu_pool_open();
    mu_tensor *a = triangles(dtype, 3, n, LOWER), *l = mu_cholesky(a);
    expect_near(without(l, LOWER), l, 0);
    expect_near(without(mu_matmul_transposed(l, l, false, true), LOWER), without(a, LOWER), tolerance);
    mu__write_element(dtype, mu__host_write(a), 2 * n * n - 1, -1); // the last pivot of the second
    assert_null(mu_cholesky(a));
    assert_taken(MU_INVALID_ARGUMENT, "matrix 1 of 3 is not positive definite");
    mu_pool_close(pool);
}

static void test_factors(void **state)
{
    static const int64_t sizes[] = {1, 2, 8, 15, 16, 17, 40, 63, 64, 65, 127, 130, 200, 333};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        check_factor(MU_F32, sizes[i]);
        check_factor(MU_F64, sizes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_systems), cmocka_unit_test(test_factors)};
    mu_init();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
