// Central storage: one copy of each variable, written once for all replicas.
#include "variable_of.h"

enum { N = 3 };

static mu_tensor *id_plus(double offset)
{
    return mu_add(mu_cast(mu_replica_id(), MU_F64), mu_constant(MU_F64, offset));
}

static mu_value *run(mu_strategy *strategy, bool traced, mu_value *(*fn)(mu_value *, void *), void *arg)
{
    mu_value *result =
        traced ? mu_run(strategy, mu_function_new(fn, arg), NULL) : mu_run_callback(strategy, fn, arg, NULL);
    if (!result)
        fail_msg("%s", mu_error_message());
    return result;
}

static mu_value *add_twice(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *before = mu_variable_read(arg);
    mu_variable_assign_add(arg, id_plus(1));
    mu_tensor *between = mu_variable_read(arg);
    mu_variable_assign_sub(arg, id_plus(0));
    return mu_list(before, between, mu_variable_read(arg), MU_END);
}

// Every replica sees the values before, between and after the writes, whatever the schedule.
static void assignments_are_made_once(void **state)
{
    (void)state;
    static const double added[] = {0, 1 + 2 + 3, 2, 1}, taken[] = {0, 0 + 1 + 2, 1, 0};
    mu_strategy *strategy = strategy_of(CENTRAL + N);
    for (int synchronization = MU_SYNCHRONIZATION_AUTO; synchronization <= MU_SYNCHRONIZATION_ON_READ;
         synchronization++)
        for (int aggregation = MU_AGGREGATION_SUM; aggregation <= MU_AGGREGATION_ONLY_FIRST_REPLICA; aggregation++)
            for (int traced = 0; traced < 2; traced++) {
                mu_variable *v =
                    variable_of(strategy, mu_constant(MU_F64, 5), (mu_variable_synchronization)synchronization,
                                (mu_variable_aggregation)aggregation);
                assert_int_equal(mu_variable_component_count(v), 1);
                for (int turn = 0; turn < 20; turn++) {
                    const double before = 5 + turn * (added[aggregation] - taken[aggregation]);
                    mu_value *seen = mu_local_results(strategy, run(strategy, traced, add_twice, v));
                    for (int r = 0; r < N; r++) {
                        mu_value *own = mu_value_at(seen, r);
                        assert_true(mu_scalar(mu_at(own, 0)) == before);
                        assert_true(mu_scalar(mu_at(own, 1)) == before + added[aggregation]);
                        assert_true(mu_scalar(mu_at(own, 2)) == before + added[aggregation] - taken[aggregation]);
                    }
                }
            }
}

static mu_value *scatter_own(mu_value *arguments, void *arg)
{
    (void)arguments;
    void **job = arg;
    mu_status (*scatter)(mu_variable *, mu_tensor *, mu_tensor *) =
        *(mu_status(**)(mu_variable *, mu_tensor *, mu_tensor *))job[1];
    const int64_t one = 1;
    mu_tensor *row = mu_tensor_new(MU_I32, 1, &one, (int32_t[]){1});
    return scatter(job[0], row, mu_expand_dims(id_plus(2), 0)) == MU_OK ? mu_of(mu_variable_read(job[0])) : NULL;
}

// Whatever the aggregation is, the slices of each replica are applied as they are.
static void scatters_act_one_after_the_other(void **state)
{
    (void)state;
    static const struct {
        mu_status (*scatter)(mu_variable *, mu_tensor *, mu_tensor *);
        double wanted;
    } kinds[] = {{mu_variable_scatter_add, 8 + 2 + 3 + 4},
                 {mu_variable_scatter_sub, 8 - 2 - 3 - 4},
                 {mu_variable_scatter_mul, 8 * 24},
                 {mu_variable_scatter_div, 8. / 24},
                 {mu_variable_scatter_min, 2},
                 {mu_variable_scatter_max, 8},
                 {mu_variable_scatter_update, 4}};
    mu_strategy *strategy = strategy_of(CENTRAL + N);
    for (size_t k = 0; k < MU_COUNT(kinds); k++)
        for (int aggregation = 0; aggregation <= MU_AGGREGATION_ONLY_FIRST_REPLICA; aggregation++)
            for (int traced = 0; traced < 2; traced++) {
                mu_variable *v = variable_of(strategy, vector(2, (double[]){7, 8}), MU_SYNCHRONIZATION_AUTO,
                                             (mu_variable_aggregation)aggregation);
                void *job[] = {v, (void *)&kinds[k].scatter};
                mu_value *seen = mu_local_results(strategy, run(strategy, traced, scatter_own, job));
                assert_near(doubles(mu_variable_read(v)), (double[]){7, kinds[k].wanted}, 2, 1e-15);
                for (int r = 0; r < N; r++)
                    assert_near(doubles(mu_value_tensor(mu_value_at(seen, r))), doubles(mu_variable_read(v)), 2, 0);
            }
}

static void devices_and_defaults(void **state)
{
    (void)state;
    const char *const compute[] = {"CPU:1", "CPU:2", NULL}, *const twice[] = {"CPU:1", "CPU:1", NULL};
    mu_strategy *strategy = mu_central_storage_strategy(compute, "CPU:3"), *alone = mu_central_storage_strategy();
    assert_string_equal(mu_strategy_name(strategy), "CentralStorageStrategy");
    assert_int_equal(mu_num_replicas_in_sync(strategy), 2);
    assert_int_equal(mu_strategy_device_count(strategy), 2);
    assert_int_equal(mu_strategy_parameter_device_count(strategy), 1);
    assert_string_equal(mu_strategy_parameter_device(strategy, 0), "CPU:3");
    assert_int_equal(mu_num_replicas_in_sync(alone), 1);
    assert_string_equal(mu_strategy_parameter_device(alone, 0), "CPU:0");
    const char *const last[] = {"CPU:5", NULL};
    assert_string_equal(mu_strategy_parameter_device(mu_central_storage_strategy(last), 0), "CPU:5");
    assert_string_equal(mu_strategy_parameter_device(mu_central_storage_strategy(compute), 0), "CPU:0");
    assert_string_equal(mu_strategy_parameter_device(strategy_of(2), 1), "CPU:1");
    assert_null(mu_strategy_parameter_device(strategy_of(2), -1));
    expect_error(MU_OUT_OF_RANGE, "device -1 of 2");
    assert_null(mu_central_storage_strategy(twice));
    expect_error(MU_INVALID_ARGUMENT, "twice");
    assert_null(mu_central_storage_strategy(.replicas = DEVICES + 1));
    expect_error(MU_INVALID_ARGUMENT, "replicas are requested");
    assert_null(mu_central_storage_strategy(compute, "CPU:99"));
    expect_error(MU_INVALID_ARGUMENT, "CPU:99");
}

// With one replica variables are plain.
static void one_replica_has_plain_variables(void **state)
{
    (void)state;
    mu_strategy *alone = mu_central_storage_strategy();
    mu_variable *v = variable_of(alone, mu_constant(MU_F64, 5), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
    assert_true(mu_scalar(mu_at(run(alone, true, add_twice, v), 1)) == 6);
    assert_true(mu_scalar(mu_at(run(alone, false, add_twice, v), 1)) == 7);
}

static mu_value *fail_after_assignment(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, id_plus(1));
    mu_tensor *bad = mu_gather(vector(2, (double[]){1, 2}), mu_replica_id(), 0, 0);
    return mu_of(bad);
}

static void a_failed_step_marks_the_copy(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(CENTRAL + N);
    mu_variable *v = variable_of(strategy, mu_constant(MU_F64, 5), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_SUM);
    assert_null(mu_run(strategy, mu_function_new(fail_after_assignment, v), NULL));
    expect_error(MU_INVALID_ARGUMENT, "index 2");
    assert_null(mu_variable_read(v));
    expect_error(MU_FAILED_PRECONDITION, "in doubt");
    assert_int_equal(mu_variable_assign(v, mu_constant(MU_F64, 1)), MU_OK);
    run(strategy, true, add_twice, v);
    assert_true(mu_scalar(mu_variable_read(v)) == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(assignments_are_made_once),    MODEL_TEST(scatters_act_one_after_the_other),
        MODEL_TEST(devices_and_defaults),         MODEL_TEST(one_replica_has_plain_variables),
        MODEL_TEST(a_failed_step_marks_the_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
