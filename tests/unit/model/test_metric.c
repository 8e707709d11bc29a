// Metrics: values, resets, and exact sums over unequal and empty parts.
#include "model/metrics/metric.h"
#include "model_test.h"

static void eager_accuracy(void **state)
{
    (void)state;
    mu_metric *accuracy = mu_accuracy();
    mu_tensor *labels = mu_tensor_new(MU_I64, 1, (int64_t[]){3}, (int64_t[]){1, 0, 1});
    mu_tensor *scores = mu_tensor_new(MU_F64, 2, (int64_t[]){3, 2}, (double[]){.1, .9, .2, .8, .3, .7});
    assert_true(mu_metric_result(accuracy) == 0);
    assert_int_equal(mu_metric_update(accuracy, labels, scores), MU_OK);
    assert_number(mu_metric_result(accuracy), 2. / 3, 1e-15);
    assert_int_equal(mu_metric_update(accuracy, mu_reshape(labels, 2, (int64_t[]){3, 1}), scores), MU_OK);
    assert_number(mu_metric_result(accuracy), 2. / 3, 1e-15);
    assert_int_equal(mu_metric_reset(accuracy), MU_OK);
    assert_true(mu_metric_result(accuracy) == 0);
}

// Keras's choices: the values are what keras.metrics gives for the same numbers.
static void accuracy_is_chosen_by_shapes(void **state)
{
    (void)state;
    static const int64_t row[] = {4}, column[] = {4, 1}, pairs[] = {4, 2}, steps[] = {2, 2, 1}, flat_steps[] = {2, 2};
    static const double sigmoid[] = {.9, .2, .5, .7}, ones[] = {1, 0, 0, 0}, hot[] = {1, 0, 0, 1, 1, 0, 0, 1},
                        scores[] = {.9, .1, .2, .8, .3, .7, .6, .4}, halves[] = {.5, 1, 1, 0};
    const int64_t whole[] = {1, 0, 0, 0};
    const bool yes[] = {true, false, false, false};
    const struct {
        mu_tensor *labels, *predictions;
        double wanted;
    } cases[] = {
        {mu_tensor_new(MU_F64, 1, row, ones), mu_tensor_new(MU_F64, 2, column, sigmoid), .75},
        {mu_tensor_new(MU_F64, 2, column, ones), mu_tensor_new(MU_F64, 2, column, sigmoid), .75},
        {mu_tensor_new(MU_I64, 1, row, whole), mu_tensor_new(MU_F64, 2, column, sigmoid), .75},
        {mu_tensor_new(MU_BOOL, 1, row, yes), mu_tensor_new(MU_F64, 2, column, sigmoid), .75},
        {mu_tensor_new(MU_F64, 2, flat_steps, ones), mu_tensor_new(MU_F64, 3, steps, sigmoid), .75},
        {mu_tensor_new(MU_F64, 2, pairs, hot), mu_tensor_new(MU_F64, 2, pairs, scores), .5},
        {mu_tensor_new(MU_F64, 1, row, halves), mu_tensor_new(MU_F64, 2, pairs, scores), .75},
    };
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        mu_metric *accuracy = mu_accuracy();
        assert_int_equal(mu_metric_update(accuracy, cases[i].labels, cases[i].predictions), MU_OK);
        if (mu_metric_result(accuracy) != cases[i].wanted)
            fail_msg("case %zu: %g; expected %g", i, mu_metric_result(accuracy), cases[i].wanted);
    }
}

static void accuracy_names_shapes_that_do_not_fit(void **state)
{
    (void)state;
    mu_metric *accuracy = mu_accuracy();
    mu_tensor *two = numbers(2, (int64_t[]){6, 2}, 1), *three = numbers(2, (int64_t[]){6, 3}, 2);
    assert_int_equal(mu_metric_update(accuracy, two, three), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "mu_accuracy: the labels have shape [6, 2], the predictions [6, 3]");
    assert_int_equal(mu_metric_update(accuracy, two, numbers(2, (int64_t[]){6, 1}, 3)), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "one label of 0 or 1 for each prediction");
    assert_int_equal(mu_metric_update(accuracy, two, numbers(1, (int64_t[]){6}, 3)), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "[batch, 1] for two classes");
}

static void eager_mean(void **state)
{
    (void)state;
    mu_metric *mean = mu_mean_metric("seconds");
    assert_string_equal(mu_metric_name(mean), "seconds");
    assert_int_equal(mu_metric_update(mean, vector(2, (double[]){1, 2}), NULL), MU_OK);
    assert_int_equal(mu_metric_update(mean, mu_constant(MU_I32, 6), NULL), MU_OK);
    assert_number(mu_metric_result(mean), 3, 1e-15);
}

static mu_value *add_batch(mu_value *batch, void *arg)
{
    return mu_metric_update(arg, mu_at(batch, 0), NULL) == MU_OK ? mu_list_of(0, NULL) : NULL;
}

static void sums_over_parts(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= DEVICES; replicas++) {
        mu_strategy *strategy = strategy_of(replicas);
        mu_metric *mean = mu_mean_metric(NULL);
        mu_function *function = mu_function_new(add_batch, mean);
        mu_dataset *data = mu_dataset_batch(mu_dataset_range(0, 11, 1), 4);
        for (int turn = 0; turn < 2; turn++) {
            MU_EACH(batch, mu_distribute_dataset(strategy, data))
                mu_run(strategy, function, batch);
            assert_int_equal(mu_error_code(), MU_OK);
            assert_number(mu_metric_result(mean), 5, 1e-15);
            assert_true(mu_scalar(mu_variable_read(mean->states.items[1])) == 11);
            assert_int_equal(mean->states.items[0]->n_components, replicas);
            assert_int_equal(mu_metric_reset(mean), MU_OK);
        }
        assert_int_equal(mu_function_trace_count(function), 1);
    }
}

// A state that was made outside of the scope cannot be written by several replicas at once.
static void state_of_another_scope_is_refused(void **state)
{
    (void)state;
    mu_metric *mean = mu_mean_metric(NULL);
    mu_metric_update(mean, mu_constant(MU_F64, 1), NULL);
    mu_strategy *strategy = strategy_of(2);
    assert_null(mu_run(strategy, mu_function_new(add_batch, mean), mu_of(mu_constant(MU_F64, 1))));
    expect_error(MU_FAILED_PRECONDITION, "mean/total");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(eager_accuracy),
        MODEL_TEST(accuracy_is_chosen_by_shapes),
        MODEL_TEST(accuracy_names_shapes_that_do_not_fit),
        MODEL_TEST(eager_mean),
        MODEL_TEST(sums_over_parts),
        MODEL_TEST(state_of_another_scope_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
