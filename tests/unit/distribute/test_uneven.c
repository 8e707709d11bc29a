// Traced functions whose replicas have parts of different sizes: gathers, slices, and ops that use their results.
#include "distribute_test.h"

enum { N = 3 };

static mu_value *parts_of(const int64_t *sizes) { return uneven(N, sizes); }

static mu_value *gather_and_add(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *whole = mu_all_gather(mu_at(arguments, 0), 0);
    return mu_list(whole, mu_add(mu_at(arguments, 0), mu_reduce_sum(whole, MU_ALL_AXES)), MU_END);
}

// One trace serves every division of the rows, also when it changes from step to step.
static void gathers_take_any_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[][N] = {{2, 1, 3}, {2, 2, 2}, {0, 4, 0}, {2, 1, 3}, {0, 0, 0}, {2, 5, 1}};
    mu_strategy *strategy = strategy_of(N);
    mu_function *function = mu_function_new(gather_and_add, NULL);
    for (size_t k = 0; k < MU_COUNT(sizes); k++) {
        mu_value *seen = mu_run(strategy, function, parts_of(sizes[k]));
        if (!seen)
            fail_msg("%s", mu_error_message());
        const int64_t n = sizes[k][0] + sizes[k][1] + sizes[k][2];
        double first = 0;
        for (int r = 0; r < N; first += (double)sizes[k][r++]) {
            mu_value *own = mu_value_at(mu_local_results(strategy, seen), r);
            assert_int_equal(mu_tensor_elements(mu_at(own, 0)), n);
            for (int64_t i = 0; i < n; i++)
                assert_true(doubles(mu_at(own, 0))[i] == (double)i);
            assert_int_equal(mu_tensor_elements(mu_at(own, 1)), sizes[k][r]);
            for (int64_t i = 0; i < sizes[k][r]; i++)
                assert_true(doubles(mu_at(own, 1))[i] == first + (double)i + (double)(n * (n - 1)) / 2);
        }
    }
    assert_int_equal(mu_function_trace_count(function), 1);
}

// Each replica weighs the whole differently; the gradient of the weighted sum is the sum of the weights.
static mu_value *derivative(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *weight = mu_cast(mu_add(mu_replica_id(), mu_constant(MU_I32, 1)), MU_F64);
    mu_tensor *y = mu_multiply(mu_reduce_sum(mu_all_gather(x, 0), MU_ALL_AXES), weight);
    return mu_of(mu_at(mu_gradients(tape, y, mu_list(x, MU_END)), 0));
}

static void gradients_find_their_part(void **state)
{
    (void)state;
    static const int64_t sizes[N] = {2, 0, 3};
    mu_strategy *strategy = strategy_of(N);
    mu_value *seen = mu_run(strategy, mu_function_new(derivative, NULL), parts_of(sizes));
    if (!seen)
        fail_msg("%s", mu_error_message());
    for (int r = 0; r < N; r++) {
        mu_tensor *own = mu_value_tensor(mu_value_at(mu_local_results(strategy, seen), r));
        assert_int_equal(mu_tensor_elements(own), sizes[r]);
        for (int64_t i = 0; i < sizes[r]; i++)
            assert_true(doubles(own)[i] == 6);
    }
}

static mu_value *reduce_slices(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_value *own = mu_indexed_slices(x, mu_cast(x, MU_I64), 1, (int64_t[]){8});
    return mu_of(mu_convert_to_tensor(mu_all_reduce_value(*(mu_reduce_op *)arg, own)));
}

static mu_value *scatter_own(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    return mu_variable_scatter_add(arg, mu_cast(x, MU_I32), x) == MU_OK ? mu_of(mu_variable_read(arg)) : NULL;
}

static void slices_and_scatters_follow(void **state)
{
    (void)state;
    static const int64_t sizes[N] = {4, 0, 3};
    mu_strategy *strategy = strategy_of(N);
    for (mu_reduce_op op = MU_SUM; op <= MU_MEAN; op++) {
        mu_value *seen = mu_run(strategy, mu_function_new(reduce_slices, &op), parts_of(sizes));
        if (!seen)
            fail_msg("%s", mu_error_message());
        for (int i = 0; i < 8; i++)
            assert_number(doubles(mu_value_tensor(mu_value_at(mu_local_results(strategy, seen), 1)))[i],
                          i == 7         ? 0
                          : op == MU_SUM ? i
                                         : i / 3.,
                          1e-15);
    }
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(mu_zeros(MU_F64, 1, (int64_t[]){8}), "v", .aggregation = MU_AGGREGATION_SUM);
    assert_non_null(mu_run(strategy, mu_function_new(scatter_own, v), parts_of(sizes)));
    for (int c = 0; c < N; c++)
        assert_near(doubles(mu__variable_component(v, c)), (double[]){0, 1, 2, 3, 4, 5, 6, 0}, 8, 0);
}

static mu_value *gather_merged(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_strategy_gather(strategy, arguments, 0), mu_reduce(strategy, MU_MEAN, arguments, 0), MU_END);
}

static mu_value *merge(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_merge_call(gather_merged, NULL, mu_of(mu_at(arguments, 0)));
}

static void merges_weigh_every_element_alike(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(N);
    mu_value *seen = mu_run(strategy, mu_function_new(merge, NULL), parts_of((int64_t[]){1, 5, 0}));
    if (!seen)
        fail_msg("%s", mu_error_message());
    for (int r = 0; r < N; r++) {
        mu_value *own = mu_value_at(mu_local_results(strategy, seen), r);
        assert_near(doubles(mu_at(own, 0)), (double[]){0, 1, 2, 3, 4, 5}, 6, 0);
        assert_number(mu_scalar(mu_at(own, 1)), 2.5, 1e-15);
    }
}

// ---- What a failed step left --------------------------------------------------------------------

static mu_value *add_and_fail(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, mu_constant(MU_F64, 1));
    return mu_of(mu_gather(vector(2, (double[]){1, 2}), mu_constant(MU_I32, 5), 0, 0));
}

static mu_value *overwrite(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign(arg, mu_constant(MU_F64, 7));
    mu_variable_assign_add(arg, mu_constant(MU_F64, 1));
    return mu_of(mu_variable_read(arg));
}

static mu_value *read_first(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *before = mu_variable_read(arg);
    mu_variable_assign(arg, mu_constant(MU_F64, 7));
    return mu_of(before);
}

static void overwriting_ends_the_doubt(void **state)
{
    (void)state;
    static const int kinds[] = {0, 2, CENTRAL + 2};
    for (size_t k = 0; k < MU_COUNT(kinds); k++) {
        mu_strategy *strategy = strategy_of(kinds[k]);
        mu_variable *v = NULL;
        MU_SCOPE(strategy)
            v = mu_variable_new(mu_constant(MU_F64, 1), "v", .aggregation = MU_AGGREGATION_MEAN);
        assert_null(mu_run(strategy, mu_function_new(add_and_fail, v), NULL));
        expect_error(MU_INVALID_ARGUMENT, "index 5");
        assert_null(mu_run(strategy, mu_function_new(read_first, v), NULL));
        expect_error(MU_FAILED_PRECONDITION, "in doubt");
        assert_non_null(mu_run(strategy, mu_function_new(overwrite, v), NULL));
        assert_true(mu_scalar(mu_variable_read(v)) == 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(gathers_take_any_sizes),     MODEL_TEST(gradients_find_their_part),
        MODEL_TEST(slices_and_scatters_follow), MODEL_TEST(merges_weigh_every_element_alike),
        MODEL_TEST(overwriting_ends_the_doubt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
