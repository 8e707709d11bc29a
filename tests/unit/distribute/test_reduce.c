// reduce, gather and local results outside of functions: cases 034 to 047, 059 to 064.
#include "distribute_test.h"

static double reduced(mu_strategy *strategy, mu_reduce_op op, mu_value *value)
{
    mu_value *result = mu_reduce(strategy, op, value);
    if (!result)
        fail_msg("%s", mu_error_message());
    return mu_scalar(result);
}

// Cases 034 and 037.
static void integers(void **state)
{
    (void)state;
    static const double ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int n = 1; n <= DEVICES; n++)
        assert_true(reduced(strategy_of(n), MU_SUM,
                            n > 1 ? scalars_of(n, MU_I32, ids) : mu_of(mu_constant(MU_I32, 0))) == n * (n - 1) / 2);
    mu_strategy *strategy = strategy_of(2);
    mu_value *parts[] = {mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){0, 1})),
                         mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){1}, (int32_t[]){1}))};
    mu_value *value = mu__give(mu__value_container(MU_VALUE_PER_REPLICA, 2, parts, NULL));
    assert_number(mu_scalar(mu_reduce(strategy, MU_MEAN, value, 0)), 2. / 3, 1e-6);
}

// Case 035.
static void nests(void **state)
{
    (void)state;
    for (int n = 2; n <= DEVICES; n++) {
        double up[DEVICES], down[DEVICES];
        for (int r = 0; r < n; r++) {
            up[r] = 4;
            down[r] = 2;
        }
        mu_value *pair = mu_list(scalars_of(n, MU_F64, up), scalars_of(n, MU_F64, down), MU_END);
        mu_value *sums = mu_reduce(strategy_of(n), MU_SUM, pair);
        assert_true(mu_scalar(mu_value_at(sums, 0)) == 4 * n && mu_scalar(mu_value_at(sums, 1)) == 2 * n);
    }
}

// Cases 038, 040, 041, 043 and 044: with an axis every element weighs the same.
static void axes(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_value *value = uneven(2, (int64_t[]){4, 4});
    mu_tensor *sum = mu_value_tensor(mu_reduce(strategy, MU_SUM, value));
    assert_near(doubles(sum), (double[]){4, 6, 8, 10}, 4, 0);
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, value, 0)) == 28);
    mu_value *ragged = uneven(2, (int64_t[]){3, 1}), *half_empty = uneven(2, (int64_t[]){2, 0});
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, ragged, 0)) == 1.5);
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, ragged, -1)) == 1.5);
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, half_empty, 0)) == .5);
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, half_empty, 0)) == 1);
    for (int axis = 1; axis >= -2; axis -= 3) {
        assert_null(mu_reduce(strategy, MU_MEAN, ragged, axis));
        expect_error(MU_INVALID_ARGUMENT, "mu_reduce");
    }
    mu_value *plain = mu_of(vector(2, (double[]){1, 2}));
    for (int n = 1; n <= 3; n++) { // every replica has the same rows
        assert_true(mu_scalar(mu_reduce(strategy_of(n), MU_MEAN, plain, 0)) == 1.5);
        assert_true(mu_scalar(mu_reduce(strategy_of(n), MU_SUM, plain, 0)) == 3 * n);
    }
}

// Case 046.
static void values_that_are_not_per_replica(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_value *five = mu_of(mu_constant(MU_F64, 5));
    assert_null(mu_reduce(strategy, MU_SUM, five));
    expect_error(MU_INVALID_ARGUMENT, "not per replica");
    assert_true(reduced(strategy, MU_MEAN, five) == 5);
    assert_true(reduced(strategy, MU_SUM, mu_of(mu_constant(MU_F64, 0))) == 0);
    assert_true(reduced(strategy_of(1), MU_SUM, five) == 5);
    assert_null(mu_reduce(strategy, (mu_reduce_op)7, five));
    expect_error(MU_INVALID_ARGUMENT, "neither");
    assert_null(mu_reduce(strategy, MU_SUM, NULL));
    expect_error(MU_INVALID_ARGUMENT, "NULL");
}

// Case 047.
static void mirrored_variables(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_variable *variable = NULL;
    MU_SCOPE(strategy) {
        variable = mu_variable_new(mu_constant(MU_F64, 3), "v");
    }
    mu_value *value = mu_value_at(mu_variables(variable, MU_END), 0);
    assert_true(reduced(strategy, MU_MEAN, value) == 3);
    assert_null(mu_reduce(strategy, MU_SUM, value));
    expect_error(MU_INVALID_ARGUMENT, "SUM");
}

// Cases 059, 062 and 064.
static void gathers(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_tensor *whole = mu_value_tensor(mu_strategy_gather(strategy, uneven(3, (int64_t[]){2, 0, 3}), 0));
    assert_near(doubles(whole), (double[]){0, 1, 2, 3, 4}, 5, 0);
    mu_value *rows[3];
    for (int r = 0; r < 3; r++)
        rows[r] = mu_of(mu_ones(MU_F64, 2, (int64_t[]){1, r + 1}));
    mu_value *wide = mu__give(mu__value_container(MU_VALUE_PER_REPLICA, 3, rows, NULL));
    assert_int_equal(mu_tensor_dim(mu_value_tensor(mu_strategy_gather(strategy, wide, 1)), 1), 6);
    assert_null(mu_strategy_gather(strategy, wide, 0));
    expect_error(MU_INVALID_ARGUMENT, "");
    rows[1] = mu_of(mu_ones(MU_F64, 1, (int64_t[]){1}));
    assert_null(mu_strategy_gather(strategy, mu__give(mu__value_container(MU_VALUE_PER_REPLICA, 3, rows, NULL)), 0));
    expect_error(MU_INVALID_ARGUMENT, "");
    mu_value *plain = mu_of(mu_constant(MU_F64, 1));
    assert_ptr_equal(mu_strategy_gather(strategy, plain, 0), plain);
}

static void local_results(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_value *results = mu_local_results(strategy, uneven(3, (int64_t[]){1, 2, 3}));
    assert_int_equal(mu_value_count(results), 3);
    assert_int_equal(mu_tensor_dim(mu_at(results, 2), 0), 3);
    mu_value *mixed = mu_list(uneven(3, (int64_t[]){1, 1, 1}), mu_constant(MU_F64, 7), MU_END);
    results = mu_local_results(strategy, mixed);
    for (int r = 0; r < 3; r++) {
        assert_true(mu_scalar(mu_value_at(mu_value_at(results, r), 0)) == r);
        assert_true(mu_scalar(mu_value_at(mu_value_at(results, r), 1)) == 7);
    }
    assert_int_equal(mu_value_count(mu_local_results(strategy, mu_of(mu_constant(MU_F64, 1)))), 1);
    assert_null(mu_local_results(strategy, NULL));
    expect_error(MU_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(integers),
        MODEL_TEST(nests),
        MODEL_TEST(axes),
        MODEL_TEST(values_that_are_not_per_replica),
        MODEL_TEST(mirrored_variables),
        MODEL_TEST(gathers),
        MODEL_TEST(local_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
