// Contexts and scopes: cases 001 to 010 of TensorFlow's behaviour, constructors, and wrong uses.
#include "../model/model_test.h"

static void assert_default_state(void)
{
    assert_false(mu_has_strategy());
    assert_false(mu_in_cross_replica_context());
    assert_ptr_equal(mu_get_strategy(), mu_default_strategy());
    assert_int_equal(mu_replica_count(), 1);
    assert_true(mu_scalar(mu_replica_id()) == 0);
}

static void assert_cross_replica(mu_strategy *strategy)
{
    assert_true(mu_has_strategy());
    assert_true(mu_in_cross_replica_context());
    assert_ptr_equal(mu_get_strategy(), strategy);
}

// Cases 001 and 002.
static void scope_changes_the_state(void **state)
{
    (void)state;
    assert_default_state();
    for (int kind = -1; kind <= 3; kind++) {
        if (kind == 0)
            continue;
        mu_strategy *strategy = strategy_of(kind);
        MU_SCOPE(strategy) {
            assert_cross_replica(strategy);
        }
        assert_default_state();
    }
}

// Case 004.
static void scopes_nest(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    MU_SCOPE(strategy) {
        MU_SCOPE(strategy) {
            MU_SCOPE(strategy) {
                assert_cross_replica(strategy);
            }
            assert_cross_replica(strategy);
        }
        assert_cross_replica(strategy);
    }
    assert_default_state();
    MU_SCOPE(strategy) {
        assert_cross_replica(strategy);
    }
    assert_default_state();
}

// Case 005, and the default strategy's scope inside another.
static void scopes_do_not_mix(void **state)
{
    (void)state;
    mu_strategy *first = strategy_of(2), *others[] = {strategy_of(1), strategy_of(-1), strategy_of(0)};
    for (size_t i = 0; i < MU_COUNT(others); i++) {
        int turns = 0;
        MU_SCOPE(first) {
            MU_SCOPE(others[i]) {
                turns++;
            }
            expect_error(MU_FAILED_PRECONDITION, "may not be mixed");
            assert_cross_replica(first);
        }
        assert_int_equal(turns, 1);
        assert_default_state();
    }
}

// The default strategy's scope changes nothing and nests.
static void default_scope_is_transparent(void **state)
{
    (void)state;
    MU_SCOPE(mu_default_strategy()) {
        assert_default_state();
        MU_SCOPE(mu_default_strategy()) {
            assert_default_state();
        }
    }
    assert_default_state();
}

static void null_runs_the_body_once(void **state)
{
    (void)state;
    int turns = 0;
    mu_model *model = NULL;
    MU_SCOPE(NULL) {
        turns++;
        model = mu_sequential(mu_dense(1));
    }
    assert_int_equal(turns, 1);
    assert_null(model);
    expect_error(MU_INVALID_ARGUMENT, "NULL");
    assert_default_state();
}

static void leave_a_scope_open(mu_strategy *strategy)
{
    MU_SCOPE(strategy) {
        return;
    }
}

static void open_scopes_are_noticed(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_pool *pool = mu_pool_open();
    leave_a_scope_open(strategy);
    mu_pool_close(pool);
    expect_error(MU_FAILED_PRECONDITION, "left open");
    assert_default_state();
}

// Case 010, and run under another strategy.
static void calls_under_another_strategy_fail(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(1), *other = strategy_of(2);
    mu_value *one = mu_of(mu_constant(MU_F64, 1));
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, one)) == 1);
    MU_SCOPE(strategy) {
        assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, one)) == 1);
    }
    MU_SCOPE(other) {
        assert_null(mu_reduce(strategy, MU_MEAN, one));
        expect_error(MU_FAILED_PRECONDITION, "may not be mixed");
        assert_null(mu_strategy_gather(strategy, one, 0));
        expect_error(MU_FAILED_PRECONDITION, "may not be mixed");
    }
}

static mu_value *open_a_scope(mu_value *arguments, void *arg)
{
    (void)arguments;
    MU_SCOPE((mu_strategy *)arg) {
    }
    return NULL;
}

static mu_value *reduce_inside(mu_value *arguments, void *arg) { return mu_reduce(arg, MU_SUM, arguments); }

static mu_value *variable_inside(mu_value *arguments, void *arg)
{
    (void)arguments;
    *(mu_variable **)arg = mu_retain(mu_variable_new(mu_constant(MU_F64, 1), "inside"));
    return NULL;
}

static void wrong_calls_inside_replicas_fail(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_variable *made = NULL;
    mu_value *one = mu_of(mu_constant(MU_F64, 1));
    assert_null(mu_run(strategy, mu_function_new(open_a_scope, strategy), NULL));
    expect_error(MU_FAILED_PRECONDITION, "inside a function that runs on replicas");
    assert_null(mu_run(strategy, mu_function_new(reduce_inside, strategy), one));
    expect_error(MU_FAILED_PRECONDITION, "inside a function that runs on replicas");
    MU_SCOPE(strategy) {
        assert_null(mu_all_reduce(MU_SUM, mu_constant(MU_F64, 1)));
        expect_error(MU_FAILED_PRECONDITION, "mu_reduce");
    }
    assert_non_null(mu_run(strategy, mu_function_new(variable_inside, &made), NULL));
    assert_int_equal(made->n_components, 2);
    mu_release(made);
    assert_default_state();
}

static void constructors_check(void **state)
{
    (void)state;
    static const struct {
        const char *names[4];
        mu_status code;
        const char *part;
    } rows[] = {
        {{NULL}, MU_INVALID_ARGUMENT, "empty"},
        {{"CPU:0", "CPU:0"}, MU_INVALID_ARGUMENT, "named twice"},
        {{"CPU:0", "CPU:99"}, MU_NOT_FOUND, "CPU:99"},
        {{"CPU:8"}, MU_NOT_FOUND, "CPU:8"},
        {{""}, MU_NOT_FOUND, "''"},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        assert_null(mu_mirrored_strategy(rows[i].names));
        mu_error error = mu_error_take();
        assert_true(error.code == rows[i].code || error.code == MU_INVALID_ARGUMENT);
        if (!strstr(error.message, rows[i].part))
            fail_msg("%s", error.message);
    }
    assert_null(mu_mirrored_strategy(.replicas = 9));
    expect_error(MU_INVALID_ARGUMENT, "9 replicas");
    assert_null(mu_mirrored_strategy(.replicas = -1));
    expect_error(MU_INVALID_ARGUMENT, "replicas is -1");
    assert_null(mu_one_device_strategy("CPU:77"));
    assert_non_null(strstr(mu_error_take().message, "CPU:77"));
    const char *const two[] = {"CPU:3", "CPU:1", NULL};
    mu_strategy *strategy = mu_mirrored_strategy(two);
    assert_int_equal(mu_num_replicas_in_sync(strategy), 2);
    assert_string_equal(mu_strategy_name(strategy), "MirroredStrategy");
    assert_int_equal(mu_num_replicas_in_sync(mu_mirrored_strategy()), DEVICES);
}

// A variable or model may outlive the last reference to its strategy.
static void variables_keep_their_strategy(void **state)
{
    (void)state;
    mu_variable *variable = NULL;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of(3);
    MU_SCOPE(strategy) {
        variable = mu_retain(mu_variable_new(mu_constant(MU_F64, 6), "v", .synchronization = MU_SYNCHRONIZATION_ON_READ,
                                             .aggregation = MU_AGGREGATION_SUM));
    }
    mu_pool_close(pool);
    assert_int_equal(mu_variable_assign(variable, mu_constant(MU_F64, 9)), MU_OK);
    assert_true(mu_scalar(mu_variable_read(variable)) == 9);
    mu_release(variable);
}

// TF_CONFIG is set after the strategy was made: the worker would train alone, and nobody would notice.
static void a_cluster_set_too_late_is_refused(void **state)
{
    (void)state;
    unsetenv("TF_CONFIG");
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    assert_non_null(strategy);
    mu_distributed_dataset *data = mu_distribute_dataset(strategy, mu_dataset_batch(mu_dataset_range(0, 8, 1), 4));
    assert_non_null(data);
    setenv("TF_CONFIG",
           "{\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}", 1);
    assert_null(mu_iterate(data));
    expect_error(MU_FAILED_PRECONDITION, "TF_CONFIG is \"{");
    unsetenv("TF_CONFIG");
    assert_non_null(mu_iterate(data));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(scope_changes_the_state),
        MODEL_TEST(scopes_nest),
        MODEL_TEST(scopes_do_not_mix),
        MODEL_TEST(default_scope_is_transparent),
        MODEL_TEST(null_runs_the_body_once),
        MODEL_TEST(open_scopes_are_noticed),
        MODEL_TEST(calls_under_another_strategy_fail),
        MODEL_TEST(wrong_calls_inside_replicas_fail),
        MODEL_TEST(constructors_check),
        MODEL_TEST(variables_keep_their_strategy),
        MODEL_TEST(a_cluster_set_too_late_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
