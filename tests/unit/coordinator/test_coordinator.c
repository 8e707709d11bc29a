// A coordinator whose workers are lost and come back: which calls run again, which values are made again, and what
// programs see of it.
//
// The workers are devices of this process behind a switch: while it is off, calls fail as if the worker were lost. The
// switches outlive the tests, because the coordinators end with the library.
#include "../model/model_test.h"
#include "coordinator/coordinator.h"

enum { MOST_WORKERS = 4 };

typedef struct switches {
    atomic_bool off[MOST_WORKERS];
    atomic_int lost[MOST_WORKERS]; // calls that found the switch off
} switches;

typedef struct switched_task {
    mu_task task;
    switches *all;
} switched_task;

static mu_value *switched_call(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    switches *all = ((switched_task *)task)->all;
    if (!all->off[task->worker])
        return mu__served_call(task->strategy, task->worker, function, arguments);
    all->lost[task->worker]++;
    *failure = (mu_task_failure){.blame = MU_BLAME_WORKER};
    mu_fail(MU_UNAVAILABLE, "worker %d is switched off", task->worker);
    return NULL;
}

static mu_status switched_recover(mu_task *task)
{
    return ((switched_task *)task)->all->off[task->worker] ? mu_fail(MU_UNAVAILABLE, "still switched off") : MU_OK;
}

static void switched_free(mu_task *task) { mu__free(task); }

static mu_task *switched(mu_strategy *strategy, int worker, void *arg)
{
    static const mu_task_ops ops = {
        .name = "switched", .call = switched_call, .recover = switched_recover, .free = switched_free};
    switched_task *made = mu__calloc(1, sizeof *made);
    *made = (switched_task){.task = {.ops = &ops, .strategy = strategy, .worker = worker}, .all = arg};
    return &made->task;
}

static mu_coordinator *coordinator_of(mu_strategy *strategy, switches *all)
{
    return mu__give(mu__coordinator_new(&(mu_coordinator_args){.strategy = strategy}, switched, all));
}

static mu_variable *zero(mu_strategy *strategy)
{
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(mu_constant(MU_F64, 0), "v");
    return v;
}

static mu_value *add(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_cast(mu_at(arguments, 0), MU_F64);
    mu_variable_assign_add(arg, x);
    return mu_of(x);
}

static mu_dataset *ones(void *arg)
{
    ++*(atomic_int *)arg;
    return mu_dataset_repeat(mu_dataset_from_tensors(mu_of(mu_constant(MU_F64, 1))), MU_INFINITE);
}

static void wait_until(const atomic_bool *flag, bool value)
{
    while (*flag != value)
        ;
}

static void lost_steps_go_to_another_worker(void **state)
{
    (void)state;
    static switches all = {.off = {true}};
    mu_strategy *strategy = on_servers(3, 1, NULL);
    mu_coordinator *c = coordinator_of(strategy, &all);
    mu_variable *v = zero(strategy);
    mu_function *step = mu_function_new(add, v);
    while (!all.lost[0])
        mu_schedule(c, step, mu_of(mu_constant(MU_F64, 0)));
    for (int i = 0; i < 100; i++)
        mu_schedule(c, step, mu_of(mu_constant(MU_F64, 1)));
    assert_int_equal(mu_join(c), MU_OK);
    assert_true(mu_scalar(mu_variable_read(v)) == 100);
    mu_worker_calls first, second, third;
    mu_coordinator_worker_calls(c, 0, &first);
    mu_coordinator_worker_calls(c, 1, &second);
    mu_coordinator_worker_calls(c, 2, &third);
    assert_true(first.lost && first.retried == 1 && first.done == 0 && first.in_flight == 0);
    assert_true(second.done + third.done >= 100 && second.failed + third.failed == 0);
    assert_true(!second.lost && mu_coordinator_queued(c) == 0);
}

static void a_worker_that_is_back_gets_its_resources(void **state)
{
    (void)state;
    static switches all = {0};
    static atomic_int made;
    mu_strategy *strategy = on_servers(1, 1, NULL);
    mu_coordinator *c = coordinator_of(strategy, &all);
    mu_variable *v = zero(strategy);
    mu_function *step = mu_function_new(add, v);
    mu_value *data = mu_create_per_worker_dataset(c, ones, &made);
    mu_value *kept = mu_schedule(c, step, data);
    assert_int_equal(mu_join(c), MU_OK);
    assert_int_equal(made, 1);
    all.off[0] = true;
    mu_value *second = mu_schedule(c, step, data);
    wait_until(&c->workers[0].lost, true);
    // Fetched results are kept, values on the worker are gone, and no call ends while no worker is there.
    assert_true(mu_scalar(mu_fetch(kept)) == 1);
    assert_int_equal(mu_join(c, .timeout_seconds = 0.02), MU_DEADLINE_EXCEEDED);
    mu_error_take();
    assert_int_equal(mu__remote_value_state(((mu_per_worker_resource *)data->leaf)->values[0]), MU_REMOTE_ABORTED);
    all.off[0] = false;
    assert_int_equal(mu_join(c), MU_OK);
    assert_true(mu_scalar(mu_fetch(second)) == 1 && mu_scalar(mu_variable_read(v)) == 2);
    assert_int_equal(made, 2);
    mu_worker_calls calls;
    mu_coordinator_worker_calls(c, 0, &calls);
    assert_true(!calls.lost && calls.retried == 1 && calls.done == 2 && calls.failed == 0);
}

static void what_is_made_for_a_lost_worker_is_made_once(void **state)
{
    (void)state;
    static switches all = {.off = {true}};
    static atomic_int made;
    mu_strategy *strategy = on_servers(1, 1, NULL);
    mu_coordinator *c = coordinator_of(strategy, &all);
    mu_function *step = mu_function_new(add, zero(strategy));
    mu_schedule(c, step, mu_of(mu_constant(MU_F64, 1)));
    wait_until(&c->workers[0].lost, true);
    mu_value *data = mu_create_per_worker_dataset(c, ones, &made);
    mu_schedule(c, step, data);
    all.off[0] = false;
    assert_int_equal(mu_join(c), MU_OK);
    assert_int_equal(made, 1);
}

static void ends_while_a_worker_is_lost(void **state)
{
    (void)state;
    static switches all = {.off = {true, true}};
    static atomic_int made;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = on_servers(2, 1, NULL);
    mu_coordinator *c = coordinator_of(strategy, &all);
    mu_value *data = mu_create_per_worker_dataset(c, ones, &made);
    mu_value *result = mu_retain(mu_schedule(c, mu_function_new(add, zero(strategy)), data));
    wait_until(&c->workers[0].lost, true);
    mu_pool_close(pool);
    assert_null(mu_fetch(result));
    assert_int_equal(mu_error_take().code, MU_CANCELLED);
    mu_release(result);
}

static void a_full_queue_can_be_an_error(void **state)
{
    (void)state;
    static switches all = {.off = {true}};
    mu_strategy *strategy = on_servers(1, 1, NULL);
    mu_coordinator_args args = {.strategy = strategy, .max_queued = 2};
    mu_coordinator *c = mu__give(mu__coordinator_new(&args, switched, &all));
    mu_function *step = mu_function_new(add, zero(strategy));
    mu_value *one = mu_of(mu_constant(MU_F64, 1));
    mu_schedule(c, step, one);
    wait_until(&c->workers[0].lost, true);
    mu_schedule(c, step, one);
    assert_null(mu_schedule(c, step, one, .no_wait = true));
    assert_int_equal(mu_error_take().code, MU_RESOURCE_EXHAUSTED);
    all.off[0] = false;
    assert_non_null(mu_schedule(c, step, one));
    assert_int_equal(mu_join(c), MU_OK);
}

static mu_dataset *two_numbers(void *arg)
{
    (void)arg;
    return mu_dataset_range(1, 3, 1);
}

static void the_end_of_data_is_an_error(void **state)
{
    (void)state;
    static switches all = {0};
    mu_strategy *strategy = on_servers(1, 1, NULL);
    mu_coordinator *c = coordinator_of(strategy, &all);
    mu_variable *v = zero(strategy);
    mu_function *step = mu_function_new(add, v);
    mu_value *data = mu_create_per_worker_dataset(c, two_numbers, NULL);
    for (int i = 0; i < 2; i++)
        mu_schedule(c, step, data);
    assert_int_equal(mu_join(c), MU_OK);
    mu_schedule(c, step, data);
    assert_int_equal(mu_join(c), MU_OUT_OF_RANGE);
    mu_error_take();
    assert_true(mu_scalar(mu_variable_read(v)) == 3);
    assert_int_equal(mu_join(c), MU_OK);
}

static void values_on_workers_are_for_calls_only(void **state)
{
    (void)state;
    static switches all = {0};
    mu_strategy *strategy = on_servers(1, 1, NULL);
    mu_coordinator *c = coordinator_of(strategy, &all);
    mu_function *step = mu_function_new(add, zero(strategy));
    mu_value *data = mu_create_per_worker_dataset(c, two_numbers, NULL);
    assert_null(mu_run(strategy, step, data));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_reduce(strategy, MU_SUM, data));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_fetch(data));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_value_tensor(data));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(lost_steps_go_to_another_worker),
        MODEL_TEST(a_worker_that_is_back_gets_its_resources),
        MODEL_TEST(what_is_made_for_a_lost_worker_is_made_once),
        MODEL_TEST(ends_while_a_worker_is_lost),
        MODEL_TEST(a_full_queue_can_be_an_error),
        MODEL_TEST(the_end_of_data_is_an_error),
        MODEL_TEST(values_on_workers_are_for_calls_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
