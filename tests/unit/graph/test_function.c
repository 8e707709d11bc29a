// Functions: one trace per signature, unknown axes, structures, and variables made while tracing.
#include "../model/model_test.h"

static mu_value *sum_rows(mu_value *arguments, void *arg)
{
    ++*(int *)arg;
    return mu_of(mu_reduce_sum(mu_at(arguments, 0), 0));
}

static mu_value *ones(mu_dtype dtype, int64_t rows, int64_t columns)
{
    return mu_of(mu_ones(dtype, 2, (int64_t[]){rows, columns}));
}

// Batch axes are unknown from the start; another axis that changes costs one more trace, never two.
static void traces_are_few(void **state)
{
    (void)state;
    int calls = 0;
    mu_function *function = mu_function_new(sum_rows, &calls);
    for (int64_t rows = 0; rows < 50; rows++)
        assert_true(mu_scalar(mu_run(NULL, function, ones(MU_F64, rows, 1))) == (double)rows);
    assert_int_equal(mu_function_trace_count(function), 1);
    for (int64_t columns = 2; columns < 9; columns++) {
        mu_tensor *sums = mu_at(mu_run(NULL, function, ones(MU_F64, 3, columns)), 0);
        assert_int_equal(mu_tensor_dim(sums, 0), columns);
    }
    assert_int_equal(mu_function_trace_count(function), 2);
    assert_non_null(mu_run(NULL, function, ones(MU_F32, 2, 2)));
    assert_int_equal(mu_function_trace_count(function), 3);
    assert_non_null(mu_run(NULL, function, mu_list(ones(MU_F64, 2, 1), MU_END)));
    assert_int_equal(mu_function_trace_count(function), 4);
    assert_non_null(mu_run(strategy_of(2), function, ones(MU_F64, 2, 1)));
    assert_int_equal(mu_function_trace_count(function), 5);
    assert_int_equal(calls, 5);
}

// Plans for many shapes are made and evicted in a bounded cache.
static void plans_are_bounded(void **state)
{
    (void)state;
    int calls = 0;
    mu_function *function = mu_function_new(sum_rows, &calls);
    for (int iteration = 0; iteration < 2; iteration++)
        for (int64_t rows = 0; rows < 300; rows++) {
            mu_pool *pool = mu_pool_open();
            assert_true(mu_scalar(mu_run(NULL, function, ones(MU_F64, rows, 1))) == (double)rows);
            mu_pool_close(pool);
        }
    assert_int_equal(calls, 1);
}

static mu_value *cut_in_two(mu_value *arguments, void *arg)
{
    mu_tensor *halves[2];
    ++*(int *)arg;
    return mu_split(mu_at(arguments, 0), 2, 0, halves) == MU_OK ? mu_of(mu_subtract(halves[1], halves[0])) : NULL;
}

// A function that must know its sizes is traced for each of them; its error says which sizes it needs.
static void sizes_that_a_trace_must_know(void **state)
{
    (void)state;
    int calls = 0;
    mu_function *function = mu_function_new(cut_in_two, &calls);
    for (int iteration = 0; iteration < 2; iteration++)
        for (int64_t rows = 2; rows < 8; rows += 2) {
            const double values[] = {1, 2, 4, 8, 16, 32};
            mu_value *x = mu_of(mu_tensor_new(MU_F64, 1, &rows, values));
            mu_tensor *seen = mu_at(mu_run(NULL, function, x), 0);
            assert_near(doubles(seen), doubles(mu_at(cut_in_two(x, &calls), 0)), rows / 2, 0);
        }
    assert_int_equal(mu_function_trace_count(function), 3);
    assert_int_equal(calls, 1 + 3 + 6); // the first trace failed
    assert_null(mu_run(NULL, function, ones(MU_F64, 3, 1)));
    expect_error(MU_INVALID_ARGUMENT, "axis 0 has size 3");
    assert_null(mu_run(strategy_of(2), function, ones(MU_F64, 2, 1)));
    mu_error_take();
    assert_non_null(mu_run(NULL, function, ones(MU_F64, 2, 1)));
}

typedef struct maker {
    mu_variable *made;
    bool every_time;
} maker;

static mu_value *count_calls(mu_value *arguments, void *arg)
{
    maker *m = arg;
    if (!m->made || m->every_time) {
        mu_variable *made = mu_variable_new(mu_constant(MU_F64, 0), "calls");
        mu_release(m->made);
        m->made = mu_retain(made);
    }
    if (!m->made)
        return NULL;
    mu_variable_assign_add(m->made, mu_constant(MU_F64, 1));
    return mu_of(mu_reduce_sum(mu_at(arguments, 0), MU_ALL_AXES));
}

static void only_the_first_trace_makes_variables(void **state)
{
    (void)state;
    maker once = {0}, always = {.every_time = true};
    mu_function *good = mu_function_new(count_calls, &once), *bad = mu_function_new(count_calls, &always);
    for (int64_t columns = 1; columns < 4; columns++)
        assert_non_null(mu_run(NULL, good, ones(MU_F64, 1, columns)));
    assert_true(mu_scalar(mu_variable_read(once.made)) == 3);
    assert_non_null(mu_run(NULL, bad, ones(MU_F64, 1, 1)));
    mu_release(always.made);
    always.made = NULL;
    assert_null(mu_run(NULL, bad, ones(MU_F64, 1, 2)));
    expect_error(MU_FAILED_PRECONDITION, "later trace");
    mu_release(once.made);
}

static mu_value *mixed_results(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(x, mu_map("constant", arg, "view", mu_reshape(x, 1, (int64_t[]){-1}), MU_END), x, MU_END);
}

// Inputs, captured constants and views may all be results; a result outlives its source.
static void results_of_every_kind(void **state)
{
    (void)state;
    mu_tensor *constant = vector(2, (double[]){7, 8});
    mu_function *function = mu_function_new(mixed_results, constant);
    mu_pool *pool = mu_pool_open();
    mu_value *result = mu_retain(mu_run(NULL, function, mu_of(mu_ones(MU_F64, 2, (int64_t[]){2, 2}))));
    mu_pool_close(pool);
    assert_near(doubles(mu_at(result, 0)), (double[]){1, 1, 1, 1}, 4, 0);
    mu_value *map = mu_value_at(result, 1);
    assert_near(doubles(mu_value_tensor(mu_value_get(map, "constant"))), (double[]){7, 8}, 2, 0);
    assert_int_equal(mu_tensor_dim(mu_value_tensor(mu_value_get(map, "view")), 0), 4);
    assert_near(doubles(mu_at(result, 2)), (double[]){1, 1, 1, 1}, 4, 0);
    mu_release(result);
}

// With batch_axes, one trace serves all batches, and a callback that must know their size fails at once.
static void batch_axes_are_not_guessed(void **state)
{
    (void)state;
    int calls = 0;
    const int none[] = {MU_NO_BATCH}, second[] = {1}, beyond[] = {2};
    mu_function *along_columns = mu_function_new(sum_rows, &calls, .batch_axes = second, .n_batch_axes = 1);
    for (int64_t columns = 1; columns < 9; columns++)
        assert_int_equal(mu_tensor_dim(mu_at(mu_run(NULL, along_columns, ones(MU_F64, 3, columns)), 0), 0), columns);
    assert_int_equal(calls, 1);
    assert_non_null(mu_run(NULL, along_columns, ones(MU_F64, 4, 2)));
    assert_int_equal(calls, 2);
    mu_function *halves = mu_function_new(cut_in_two, &calls, .batch_axes = (const int[]){0}, .n_batch_axes = 1);
    assert_null(mu_run(NULL, halves, ones(MU_F64, 4, 2)));
    expect_error(MU_INVALID_ARGUMENT, "");
    assert_int_equal(calls, 3); // no second trace
    mu_function *exact = mu_function_new(cut_in_two, &calls, .batch_axes = none, .n_batch_axes = 1);
    assert_non_null(mu_run(NULL, exact, ones(MU_F64, 4, 2)));
    assert_int_equal(calls, 4);
    assert_null(
        mu_run(NULL, mu_function_new(sum_rows, &calls, .batch_axes = beyond, .n_batch_axes = 1), ones(MU_F64, 4, 2)));
    expect_error(MU_INVALID_ARGUMENT, "sum_rows: tensor 0 of the arguments has shape [4, 2] and no axis 2");
    assert_null(mu_function_new(sum_rows, &calls, .batch_axes = none));
    expect_error(MU_INVALID_ARGUMENT, "n_batch_axes");
}

static void functions_have_the_names_of_their_callbacks(void **state)
{
    (void)state;
    mu_traceable *const steps[] = {sum_rows};
    assert_string_equal(mu_function_name(mu_function_new(sum_rows)), "sum_rows");
    assert_string_equal(mu_function_name(mu_function_new(&sum_rows, NULL)), "sum_rows");
    assert_string_equal(mu_function_name(mu_function_new(.fn = sum_rows)), "sum_rows");
    assert_string_equal(mu_function_name(mu_function_new(steps[0])), "steps");
    assert_string_equal(mu_function_name(mu_function_new(sum_rows, .name = "my step")), "my step");
    const mu_function_args args = {.size = sizeof args, .fn = sum_rows};
    assert_string_equal(mu_function_name(mu_function_new_with(&args)), "function");
    assert_null(mu_function_name(NULL));
}

static void null_callbacks_are_refused(void **state)
{
    (void)state;
    assert_null(mu_function_new(NULL, NULL));
    expect_error(MU_INVALID_ARGUMENT, "callback is NULL");
    assert_int_equal(mu_function_trace_count(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(traces_are_few),
        MODEL_TEST(plans_are_bounded),
        MODEL_TEST(sizes_that_a_trace_must_know),
        MODEL_TEST(only_the_first_trace_makes_variables),
        MODEL_TEST(results_of_every_kind),
        MODEL_TEST(batch_axes_are_not_guessed),
        MODEL_TEST(functions_have_the_names_of_their_callbacks),
        MODEL_TEST(null_callbacks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
