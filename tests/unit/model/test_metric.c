// Metrics: values, resets, and exact sums over unequal and empty parts.
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
            assert_true(mu_scalar(mu_variable_read(mean->count)) == 11);
            assert_int_equal(mean->total->n_components, replicas);
            assert_int_equal(mu_metric_reset(mean), MU_OK);
        }
        assert_int_equal(mu_function_trace_count(function), 1);
    }
}

// State made outside of the scope cannot be written by several replicas at once.
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
        MODEL_TEST(eager_mean),
        MODEL_TEST(sums_over_parts),
        MODEL_TEST(state_of_another_scope_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
