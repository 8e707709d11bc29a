// A strategy of the test's own, through the slots that all strategies use: each replica trains its own copy of a
// variable, and outside of replicas the variable reads as the mean of the copies ("local SGD"). Its input gives each
// replica elements of its own, and it counts the runs, reductions and gathers that public functions request.
#include "distribute_test.h"

enum { N = 2 };

static struct {
    int reduced, gathered, runs;
} calls;

static mu_tensor *read_average(mu_variable *variable)
{
    if (mu__replica())
        return mu__variable_read(variable);
    mu_value *copies = mu__components_local(variable);
    return mu_divide(mu_add(mu_at(copies, 0), mu_at(copies, 1)), mu_constant(MU_F64, N));
}

static mu_status update_own(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    return mu__replica() ? mu__variable_update(variable, kind, value)
                         : mu__mirrored_rules.update(variable, kind, value); // all copies
}

static const mu_variable_rules averaging = {
    .read = read_average, .update = update_own, .scatter = mu__mirrored_scatter};
static mu_cross_replica_ops values;
static mu_strategy_ops ops;

static mu_value *counted_reduce(const mu_reducing *r, mu_value *value)
{
    calls.reduced++;
    return mu__reduce_local(r, value);
}

static mu_value *counted_gather(mu_strategy *strategy, mu_value *value, int axis)
{
    calls.gathered++;
    return mu__gather_local(strategy, value, axis);
}

static mu_running *counted_run(mu_strategy *strategy, mu_function *function, mu_value *arguments)
{
    calls.runs++;
    return mu__run_replicas(strategy, function, arguments);
}

static mu_shard_plan one_element_each(mu_strategy *strategy, mu_dataset *dataset)
{
    (void)strategy;
    return (mu_shard_plan){.dataset = mu_dataset_batch(dataset, 1), .pieces = true};
}

static mu_value *add_batch(mu_value *batch, void *variable)
{
    mu_variable_assign_add(variable, mu_reduce_sum(mu_cast(mu_value_tensor(batch), MU_F64), MU_ALL_AXES));
    return mu_of(mu_reshape(mu_variable_read(variable), 1, (int64_t[]){1}));
}

static mu_strategy *local_sgd_strategy(void)
{
    mu_device *devices[] = {mu__device_at(mu__runtime(), 0), mu__device_at(mu__runtime(), 1)};
    values = *mu__mirrored_ops.values;
    values.reduce_to = counted_reduce;
    values.gather_to = counted_gather;
    values.run = counted_run;
    ops = mu__mirrored_ops;
    ops.name = "LocalSgdStrategy";
    ops.on_write = &averaging;
    ops.distribute_dataset = one_element_each;
    ops.values = &values;
    return mu__give(mu__strategy_new(&ops, N, devices));
}

static void trains_through_its_slots(void **state)
{
    (void)state;
    mu_strategy *strategy = local_sgd_strategy();
    mu_variable *weight = NULL;
    mu_value *last = NULL;
    MU_SCOPE(strategy)
        weight = mu_variable_new(mu_constant(MU_F64, 0), "weight");
    mu_function *step = mu_function_new(add_batch, weight);
    mu_iterator *batches = mu_iterate(mu_distribute_dataset(strategy, mu_dataset_range(1, 7, 1)));
    for (mu_value *batch; (batch = mu_next(batches));) // 1, 3, 5 on the first replica, 2, 4, 6 on the second
        last = calls.runs < 2 ? mu_run(strategy, step, batch) : mu_run_callback(strategy, add_batch, weight, batch);
    assert_string_equal(mu_strategy_name(strategy), "LocalSgdStrategy");
    assert_true(mu_scalar(mu_variable_read(weight)) == (9 + 12) / 2.0);
    assert_true(mu_scalar(mu_value_tensor(mu_reduce(strategy, MU_SUM, last))) == 9 + 12);
    assert_int_equal(mu_tensor_elements(mu_value_tensor(mu_strategy_gather(strategy, last, 0))), N);
    assert_int_equal(mu_variable_assign(weight, mu_constant(MU_F64, 4)), MU_OK);
    assert_true(on_replica(strategy, mu_run(strategy, step, mu_of(mu_constant(MU_F64, 1))), 1) == 5);
    assert_true(calls.reduced == 1 && calls.gathered == 1 && calls.runs == 3);
    assert_int_equal(mu_error_code(), MU_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(trains_through_its_slots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
