// Element-wise ops on two operands whose result is written past the caches, in rows whose ends lie anywhere: every
// element against the same expression in C.
#include "op_check.h"

enum { ROWS = 2999, COLUMNS = 3001 }; // 34 MiB of four bytes

// 0, 1 … before - 1, and again.
static mu_tensor *floats(int64_t rows, int64_t columns, int before)
{
    mu_tensor *x = mu_zeros(MU_F32, 2, DIMS(rows, columns));
    for (int64_t i = 0; x && i < rows * columns; i++)
        ((float *)mu__host_write(x))[i] = (float)(i % before);
    return x;
}

typedef float expected(float a, float b);
static float sum(float a, float b) { return a + b; }
static float quotient(float a, float b) { return b == 0 ? 0 : a / b; }
static float greater(float a, float b) { return a > b ? a : b; }
static float square(float a, float b) { return (a - b) * (a - b); }

static void check(const char *name, const mu_tensor *a, const mu_tensor *b, const mu_tensor *y, expected *f)
{
    assert_non_null(y);
    const float *in_a = mu__host_read(a), *in_b = mu__host_read(b), *out = mu__host_read(y);
    const bool is_row = mu_tensor_elements(b) == COLUMNS;
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        const float wanted = f(in_a[i], in_b[is_row ? i % COLUMNS : i]);
        if (out[i] != wanted)
            fail_msg("%s: element %lld is %g instead of %g", name, (long long)i, (double)out[i], (double)wanted);
    }
}

static void test_floats(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *operands[] = {floats(ROWS, COLUMNS, 251), floats(1, COLUMNS, 17)}, *a = floats(ROWS, COLUMNS, 97);
    for (int i = 0; i < 2; i++) {
        mu_tensor *b = operands[i];
        check("add", a, b, mu_add(a, b), sum);
        check("divide_no_nan", a, b, mu_divide_no_nan(a, b), quotient);
        check("maximum", a, b, mu_maximum(a, b), greater);
        check("squared_difference", a, b, mu_squared_difference(a, b), square);
    }
    mu_pool_close(pool);
}

static void test_integers(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *a = mu_cast(floats(ROWS, COLUMNS, 65521), MU_I64), *b = mu_cast(floats(1, COLUMNS, 99991), MU_I64);
    mu_tensor *y = mu_multiply(a, b);
    assert_non_null(y);
    const int64_t *in_a = mu__host_read(a), *in_b = mu__host_read(b), *out = mu__host_read(y);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        if (out[i] != in_a[i] * in_b[i % COLUMNS])
            fail_msg("element %lld is %lld", (long long)i, (long long)out[i]);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats), cmocka_unit_test(test_integers)};
    mu_init(.threads = 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
