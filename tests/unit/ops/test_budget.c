// Bytes that several owners share: what accumulators take for sums and kept gradients and give back, and which owner is
// the largest.
#include "ops/state/accumulator.h"
#include "../rpc/rpc_test.h"

enum { LIMIT = 1000 };

static mu_view view_of(mu_tensor *x)
{
    return (mu_view){.dtype = x->dtype, .shape = x->shape, .data = mu__host_write(x)};
}

static mu_accumulator *accumulator(mu_byte_budget *budget, const char *name, bool sparse, const mu_shape *shape)
{
    const mu_conditional_accumulator_args args = {.size = sizeof args, .dtype = MU_F64, .name = name, .shape = shape};
    mu_accumulator *a = mu__accumulator_new(&args, sparse);
    assert_int_equal(mu__accumulator_budget(a, budget), MU_OK);
    return a;
}

static mu_tensor *longs(int64_t n, const int64_t *values) { return mu_tensor_new(MU_I64, 1, &n, values); }

static mu_status apply(mu_accumulator *a, int64_t rows, const int64_t *indices)
{
    const mu_view values = view_of(mu_ones(MU_F64, 2, (int64_t[]){rows, 2}));
    const mu_view at = view_of(indices ? longs(rows, indices) : longs(1, (int64_t[]){0}));
    return mu__accumulator_apply(a, 0, &values, indices ? &at : NULL, NULL);
}

static void take_all(mu_accumulator *a)
{
    mu_gradient_sum sum;
    assert_int_equal(mu__accumulator_take(a, 1, 1, NULL, NULL, &sum), MU_OK);
    mu__gradient_sum_free(&sum);
    assert_int_equal(mu__accumulator_set_step(a, 0), MU_OK);
}

static void test_sums(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_byte_budget budget = {0};
    assert_int_equal(mu__budget_init(&budget, LIMIT), MU_OK);
    mu_accumulator *dense = accumulator(&budget, "dense", false, NULL);
    mu_accumulator *sparse = accumulator(&budget, "sparse", true, NULL);
    assert_int_equal(apply(dense, 10, NULL), MU_OK); // 160 bytes, and no more for the second
    assert_int_equal(apply(dense, 10, NULL), MU_OK);
    assert_int_equal(budget.used, 160);
    assert_int_equal(apply(sparse, 2, (int64_t[]){1, 5}), MU_OK); // 16 of values, index and count for each row
    assert_int_equal(budget.used, 160 + 2 * 32);
    assert_int_equal(apply(sparse, 2, (int64_t[]){5, 7}), MU_OK);
    assert_int_equal(budget.used, 160 + 3 * 32);
    int64_t many[40];
    for (int i = 0; i < 40; i++)
        many[i] = 100 + i;
    apply(sparse, 40, many);
    expect_error(
        MU_RESOURCE_EXHAUSTED,
        "this server keeps 256 of at most 1000 bytes, the largest accumulator 'dense' 160, accumulator 'sparse' 96");
    assert_int_equal(budget.used, 256);
    assert_int_equal(apply(sparse, 1, (int64_t[]){6}), MU_OK); // the old content is unchanged
    assert_int_equal(sparse->sum.shape.dims[0], 4);
    take_all(dense);
    take_all(sparse);
    assert_int_equal(budget.used, 0);
    assert_int_equal(apply(sparse, 20, many), MU_OK);
    mu_release(sparse);
    mu_release(dense);
    assert_int_equal(budget.used, 0);
    assert_null(budget.holders);
    mu__budget_end(&budget);
    mu_pool_close(pool);
}

static mu_tensor *ticket(int64_t number) { return mu_tensor_new(MU_I64, 0, NULL, &number); }

static void test_kept_gradients_and_saved_ones(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_byte_budget budget = {0};
    const mu_shape shape = {.rank = 1, .dims = {50}};
    mu_tensor *gradient = mu_ones(MU_F64, 1, shape.dims);
    assert_int_equal(mu__budget_init(&budget, LIMIT), MU_OK);
    mu_accumulator *a = accumulator(&budget, "a", false, &shape);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mu__accumulator_keep(a, ticket(i), gradient), MU_OK);
    assert_int_equal(budget.used, 800);
    mu__accumulator_keep(a, ticket(2), gradient);
    expect_error(MU_RESOURCE_EXHAUSTED, "accumulator 'a' has no room for a gradient of 400 bytes");
    mu_accumulator *copy = mu__accumulator_load("copy", mu__accumulator_save(a));
    assert_non_null(copy);
    assert_int_equal(mu__accumulator_budget(copy, &budget), MU_RESOURCE_EXHAUSTED);
    mu_error_take();
    mu_release(copy);
    assert_int_equal(budget.used, 800);
    assert_non_null(mu__accumulator_take_kept(a, longs(1, (int64_t[]){0}), ticket(1)));
    assert_int_equal(budget.used, 400);
    assert_int_equal(mu__accumulator_keep(a, ticket(2), gradient), MU_OK);
    assert_non_null(mu__accumulator_take_kept(a, longs(1, (int64_t[]){2}), ticket(1))); // not below the step
    assert_int_equal(budget.used, 400);
    assert_int_equal(mu_accumulator_close(a), MU_OK);
    assert_int_equal(budget.used, 0);
    mu_release(a);
    mu__budget_end(&budget);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_kept_gradients_and_saved_ones)};
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
