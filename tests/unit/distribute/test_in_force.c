// Settings that a program makes for the calls that follow, per-replica values made directly, and variables as text.
#include "../model/model_test.h"

#include "distribute/distribute.h"

#include <muster.h>

static mu_value *first_of(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_at(arguments, 0));
}

static void a_device_is_current(void **state)
{
    (void)state;
    assert_int_equal(mu_set_device("CPU:1"), MU_OK);
    assert_string_equal(mu_strategy_device(mu_get_strategy(), 0), "CPU:1");
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 2), "v");
    assert_ptr_equal(mu_variable_strategy(v), mu_get_strategy());
    assert_int_equal(mu_set_device("CPU:2"), MU_OK);
    assert_string_equal(mu_strategy_device(mu_get_strategy(), 0), "CPU:2");
    assert_int_not_equal(mu_set_device("CPU:99"), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "CPU:99");
    assert_int_equal(mu_set_device(NULL), MU_OK);
    assert_false(mu_has_strategy());
}

static mu_value *assign_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign(arg, mu_add(mu_cast(mu_replica_id(), MU_F64), mu_constant(MU_F64, 10))) == MU_OK
               ? mu_of(mu_variable_read(arg))
               : NULL;
}

// Outside of replicas a variable is its copy on the current device, if it has one there, else its first copy.
static void a_device_has_copies(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 3);
    mu_variable *own = NULL;
    MU_SCOPE(strategy)
        own = mu_variable_new(mu_constant(MU_F64, 0), "own");
    mu_function *function = mu_function_new(assign_id, own);
    assert_non_null(mu_run(strategy, function, NULL));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(mu_set_device(mu_strategy_device(strategy, r)), MU_OK);
        assert_true(mu_scalar(mu_variable_read(own)) == 10 + r);
        assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, function, NULL))) == 33);
    }
    mu_strategy *two = mu_mirrored_strategy(.replicas = 2);
    MU_SCOPE(two)
        own = mu_variable_new(mu_constant(MU_F64, 0), "own");
    assert_ptr_equal(mu_variable_strategy(own), two);
    assert_non_null(mu_run(two, mu_function_new(assign_id, own), NULL));
    assert_true(mu_scalar(mu_variable_read(own)) == 10); // no copy is on the third device
    assert_int_equal(mu_variable_assign_add(own, mu_constant(MU_F64, 5)), MU_OK);
    assert_int_equal(mu_set_device(mu_strategy_device(strategy, 1)), MU_OK);
    assert_true(mu_scalar(mu_variable_read(own)) == 16);
    assert_true(mu_scalar(mu__variable_component(own, 0)) == 15);
    mu_set_device(NULL);
    assert_true(mu_scalar(mu_variable_read(own)) == 15);
    assert_int_equal(mu_error_code(), MU_OK);
}

static void per_replica_values(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2);
    mu_value *parts = mu_per_replica(strategy, mu_constant(MU_F64, 3), mu_constant(MU_F64, 4), MU_END);
    mu_value *results = mu_run(strategy, mu_function_new(first_of), parts);
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, results)) == 7);
    mu_value *nest = mu_list(mu_constant(MU_F64, 5), MU_END);
    parts = mu_per_replica_of(strategy, 2, (mu_value *[]){nest, nest});
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, mu_function_new(first_of), parts))) == 10);
    assert_null(mu_per_replica(strategy, mu_constant(MU_F64, 3), MU_END));
    expect_error(MU_INVALID_ARGUMENT, "1 components for 2 local replicas");
    assert_null(mu_per_replica(strategy, mu_constant(MU_F64, 3), strategy, MU_END));
    expect_error(MU_INVALID_ARGUMENT, "strategy");
    assert_true(mu_scalar(mu_per_replica(NULL, mu_constant(MU_F64, 8), MU_END)) == 8);
}

static void timeouts(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2);
    const double before = mu_strategy_timeout(strategy);
    assert_true(before > 0);
    assert_int_equal(mu_strategy_set_timeout(strategy, 7), MU_OK);
    assert_true(mu_strategy_timeout(strategy) == 7);
    MU_TIMEOUT(strategy, 3)
    {
        assert_true(mu_strategy_timeout(strategy) == 3);
        mu_fail(MU_ABORTED, "an error in the block");
    }
    expect_error(MU_ABORTED, "an error in the block");
    assert_true(mu_strategy_timeout(strategy) == 7);
    assert_int_not_equal(mu_strategy_set_timeout(strategy, 0), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "more than 0");
    assert_true(isnan(mu_strategy_timeout(NULL)));
    expect_error(MU_INVALID_ARGUMENT, "NULL");
}

static void items_of_any_type(void **state)
{
    (void)state;
    const int64_t large = (INT64_C(1) << 53) + 1;
    mu_tensor *whole = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){5, large});
    assert_true(mu_tensor_item(whole, 0) == 5 && mu_tensor_item_int(whole, 1) == large);
    mu_tensor *half = mu_cast(vector(2, (double[]){1.5, -2.25}), MU_F16);
    assert_true(mu_tensor_item(half, 1) == -2.25 && mu_tensor_item_int(half, 1) == -2);
    assert_true(mu_tensor_item(mu_constant(MU_BOOL, 1), 0) == 1);
    assert_true(isnan(mu_tensor_item(half, 2)));
    expect_error(MU_OUT_OF_RANGE, "item 2 of a tensor with 2 elements");
    assert_int_equal(mu_tensor_item_int(half, -1), 0);
    expect_error(MU_OUT_OF_RANGE, "item -1");
}

// ---- Variables ----------------------------------------------------------------------------------

static void names_of_settings(void **state)
{
    (void)state;
    assert_string_equal(mu_variable_synchronization_name(MU_SYNCHRONIZATION_ON_READ), "ON_READ");
    assert_string_equal(mu_variable_synchronization_name((mu_variable_synchronization)9), "UNRECOGNIZED");
    assert_string_equal(mu_variable_aggregation_name(MU_AGGREGATION_ONLY_FIRST_REPLICA), "ONLY_FIRST_REPLICA");
    assert_string_equal(mu_variable_aggregation_name((mu_variable_aggregation)-1), "UNRECOGNIZED");
    assert_string_equal(mu_reduce_op_name(MU_MEAN), "MEAN");
    assert_string_equal(mu_auto_shard_policy_name(MU_AUTO_SHARD_OFF), "OFF");
    assert_string_equal(mu_auto_shard_policy_name((mu_auto_shard_policy)4), "UNRECOGNIZED");
    assert_string_equal(mu_input_replication_mode_name(MU_PER_REPLICA), "PER_REPLICA");
    assert_string_equal(mu_input_replication_mode_name((mu_input_replication_mode)2), "UNRECOGNIZED");
    assert_int_equal(mu_auto_shard_policy_from_name("off"), MU_AUTO_SHARD_OFF);
    assert_int_equal(mu_input_replication_mode_from_name("Per_Replica"), MU_PER_REPLICA);
    assert_int_equal(mu_dtype_from_name("bfloat16"), MU_BF16);
    assert_int_equal(mu_dtype_from_name("string"), MU_STRING);
    assert_int_equal(mu_dtype_from_name("float"), MU_DTYPE_DEFAULT);
    expect_error(MU_INVALID_ARGUMENT, "'float' is not a name; expected one of float32, float64");
    assert_int_equal(mu_variable_synchronization_from_name("on_write"), MU_SYNCHRONIZATION_ON_WRITE);
    assert_int_equal(mu_variable_aggregation_from_name("Mean"), MU_AGGREGATION_MEAN);
    assert_int_equal(mu_variable_aggregation_from_name("median"), -1);
    expect_error(MU_INVALID_ARGUMENT, "'median' is not a name; expected one of NONE, SUM, MEAN, ONLY_FIRST_REPLICA");
}

static void a_variable_is_printed(void **state)
{
    (void)state;
    char text[200] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_int_equal(mu_variable_print(mu_variable_new(vector(2, (double[]){1, 2}), "dense/bias"), out), MU_OK);
    assert_int_equal(mu_variable_print(mu_variable_new(mu_constant(MU_I32, 4), "n"), out), MU_OK);
    fclose(out);
    assert_string_equal(text, "dense/bias float64 [2]\n[1. 2.]\nn int32 [] 4\n");
}

static mu_tensor *count_and_make(void *arg)
{
    ++*(int *)arg;
    return mu_constant(MU_F64, 6);
}

struct made {
    mu_variable *variable;
    int calls;
};

static mu_value *makes_a_variable(mu_value *arguments, void *arg)
{
    struct made *made = arg;
    if (!made->variable)
        made->variable =
            mu_retain(mu_variable_new(.name = "v", .initial_value_fn = count_and_make, .arg = &made->calls));
    return mu_of(mu_add(mu_variable_read(made->variable), mu_at(arguments, 0)));
}

static mu_tensor *no_value(void *arg) { return arg; }

static void initial_values_by_callback(void **state)
{
    (void)state;
    struct made made = {0};
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2);
    mu_function *function = mu_function_new(makes_a_variable, &made);
    for (int i = 0; i < 3; i++) {
        mu_value *sums = mu_run(strategy, function, mu_of(mu_constant(MU_F64, i)));
        assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, sums)) == 6 + i);
    }
    assert_int_equal(made.calls, 1);
    mu_release(made.variable);
    assert_null(mu_variable_new(.initial_value_fn = no_value));
    expect_error(MU_INVALID_ARGUMENT, "initial_value_fn returned NULL");
    assert_null(mu_variable_new(mu_constant(MU_F64, 1), .initial_value_fn = no_value));
    expect_error(MU_INVALID_ARGUMENT, "both set");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(a_device_is_current),   MODEL_TEST(a_device_has_copies),
        MODEL_TEST(per_replica_values),    MODEL_TEST(timeouts),
        MODEL_TEST(items_of_any_type),     MODEL_TEST(names_of_settings),
        MODEL_TEST(a_variable_is_printed), MODEL_TEST(initial_values_by_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
