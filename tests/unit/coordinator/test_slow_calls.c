// A worker that is alive but slow is named and counted; backup workers run copies of its calls, and the weights are
// those without a slow worker. A step on a worker in another process may take longer than MUSTER_TIMEOUT.
#include "coordinator/coordinator.h"
#include "servers_test.h"

// ---- A slow worker ------------------------------------------------------------------------------

// Devices of this process as workers, of which worker 0 sleeps before each call.
enum { SLOW_MS = 1400, MOST_WORKERS = 4 };
static atomic_int slow_ms;
static mu_task *inner[MOST_WORKERS];

static mu_value *call_late(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    if (task->worker == 0)
        usleep(1000 * (unsigned)slow_ms);
    return inner[task->worker]->ops->call(inner[task->worker], function, arguments, failure);
}

static void free_late(mu_task *task)
{
    inner[task->worker]->ops->free(inner[task->worker]);
    mu__free(task);
}

static const mu_task_ops late_ops = {.name = "late", .call = call_late, .free = free_late};

static mu_task *late_task(mu_strategy *strategy, int worker, void *arg)
{
    inner[worker] = mu__local_task(strategy, worker, arg);
    mu_task *task = mu__calloc(1, sizeof *task);
    *task = (mu_task){.ops = &late_ops, .strategy = strategy, .worker = worker};
    return task;
}

typedef struct job {
    mu_variable *w;
    mu_optimizer *optimizer;
} job;

static mu_value *step(mu_value *arguments, void *arg)
{
    job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *w = mu_variable_read(j->w), *x = mu_at(arguments, 0);
    mu_tensor *loss = mu_square(mu_subtract(mu_multiply(w, x), mu_constant(MU_F64, 1)));
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_variables(j->w, MU_END)));
    return mu_of(loss);
}

static job make_job(mu_strategy *strategy)
{
    job j = {0};
    MU_SCOPE(strategy) {
        j.w = mu_variable_new(mu_constant(MU_F64, 0.5), "w");
        j.optimizer = mu_adam(.learning_rate = 0.1);
    }
    return j;
}

static void schedule(mu_coordinator *c, mu_function *function, int n)
{
    for (int i = 0; i < n; i++)
        if (!mu_schedule(c, function, mu_list(mu_constant(MU_F64, (i * 7 % 5 - 2) * 0.25), MU_END)))
            fail_msg("%s", mu_error_message());
}

static void join(mu_coordinator *c)
{
    if (mu_join(c) != MU_OK)
        fail_msg("%s", mu_error_message());
}

static mu_worker_calls calls_of(mu_coordinator *c, int worker)
{
    mu_worker_calls calls = {0};
    assert_int_equal(mu_coordinator_worker_calls(c, worker, &calls), MU_OK);
    return calls;
}

static mu_coordinator *late_coordinator(mu_strategy *strategy)
{
    const mu_coordinator_args args = {.size = sizeof args, .strategy = strategy};
    return mu__coordinator_new(&args, late_task, NULL);
}

enum { CALLS = 12 };

static double weight_after(bool late, mu_worker_calls *slowest)
{
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(3, 1), .replicas_to_aggregate = 2, .in_process = true);
    mu_coordinator *c = late_coordinator(strategy);
    job j = make_job(strategy);
    mu_function *function = mu_function_new(step, &j);
    slow_ms = 0;
    schedule(c, function, 2);
    join(c);
    slow_ms = late ? 150 : 0;
    schedule(c, function, CALLS);
    join(c);
    for (int i = 0; late && i < 500 && calls_of(c, 0).in_flight > 0; i++)
        usleep(10000);
    *slowest = calls_of(c, 0);
    const double w = mu_scalar(mu_variable_read(j.w));
    mu_release(c);
    mu_pool_close(pool);
    return w;
}

static void test_copies_run_and_do_not_change_the_weights(void **state)
{
    (void)state;
    mu_worker_calls calls;
    const double wanted = weight_after(false, &calls);
    for (int i = 0; i < 20; i++) { // until worker 0 gets a call that another one ends first
        assert_true(weight_after(true, &calls) == wanted);
        if (calls.dropped > 0)
            return;
    }
    fail_msg("no copy of a late call ended before it");
}

static void test_a_slow_worker_is_named(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = mu_parameter_server_strategy(cluster_of(2, 1), .in_process = true);
    mu_coordinator *c = late_coordinator(strategy);
    job j = make_job(strategy);
    mu_function *function = mu_function_new(step, &j);
    slow_ms = 0;
    schedule(c, function, 20);
    join(c);
    assert_false(calls_of(c, 0).slow);
    slow_ms = SLOW_MS;
    for (int i = 0; i < 1000 && calls_of(c, 0).in_flight == 0; i++) {
        schedule(c, function, 1);
        usleep(1000);
    }
    mu_worker_calls calls = calls_of(c, 0);
    for (int i = 0; i < 500 && !calls.slow; i++, calls = calls_of(c, 0))
        usleep(10000);
    assert_true(calls.slow);
    assert_true(calls.call_seconds >= 1);
    assert_false(calls.lost);
    assert_false(calls_of(c, 1).slow);
    slow_ms = 0;
    join(c);
    assert_false(calls_of(c, 0).slow);
    assert_true(calls_of(c, 0).call_seconds == 0);
    mu_release(c);
    mu_pool_close(pool);
}

// The watching thread looks at a call, the call ends, and only then is it recorded as slow.
static void test_an_idle_worker_is_not_slow(void **state)
{
    (void)state;
    mu_coordinator c = {.n_workers = 1};
    mu_dispatcher d = {.coordinator = &c, .worker = 0};
    assert_int_equal(mu__monitor_init(&c.watch.monitor, "test"), MU_OK);
    mu__watch_call_begun(&d, "step");
    const int64_t begun = d.begun_ns;
    assert_true(mu__watch_found_slow(&d, begun) && mu__watch_is_slow(&d));
    assert_false(mu__watch_found_slow(&d, begun)); // once for each call
    mu__watch_call_ended(&d);
    assert_false(mu__watch_found_slow(&d, begun) || mu__watch_is_slow(&d));
    mu__watch_call_begun(&d, "step");
    assert_false(mu__watch_found_slow(&d, begun) || mu__watch_is_slow(&d));
    mu__monitor_free(&c.watch.monitor);
}

// ---- A step that takes long ---------------------------------------------------------------------

static mu_status sleep_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    (void)arg;
    usleep(1500000);
    memcpy(out[0].data, in[0].data, sizeof(double));
    return MU_OK;
}

static mu_value *long_step(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_of(mu_call_op1("test_sleep", 1, &x));
}

static mu_value *taking_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1, .timeout_seconds = 30));
}

static void test_a_step_may_take_longer_than_the_usual_limit(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_accumulator *sums = NULL;
    MU_SCOPE(strategy)
        sums = mu_conditional_accumulator(.dtype = MU_F64, .shape = &(mu_shape){0}, .name = "sums");
    mu_value *slept = mu_schedule(c, mu_function_new(long_step), mu_list(mu_constant(MU_F64, 5), MU_END));
    join(c);
    assert_true(mu_scalar(mu_fetch(slept)) == 5);
    mu_value *taken = mu_schedule(c, mu_function_new(taking_step, sums));
    usleep(1500000);
    assert_int_equal(mu_accumulator_apply_grad(sums, mu_constant(MU_F64, 3), 0), MU_OK);
    join(c);
    assert_true(mu_scalar(mu_fetch(taken)) == 3);
    mu_pool_close(pool);
}

// ---- Options ------------------------------------------------------------------------------------

static void test_an_unbounded_queue_and_a_late_start(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = mu_parameter_server_strategy(cluster_of(3, 1), .in_process = true);
    assert_null(mu_coordinator_new(strategy, .schedule_start_delay = -1));
    mu_error_take();
    mu_coordinator *c =
        mu_coordinator_new(strategy, .max_queued = 0, .schedule_start_delay = 1000, .schedule_start_delay_max = 0.5);
    job j = make_job(strategy);
    slow_ms = 0;
    schedule(c, mu_function_new(step, &j), 50);
    join(c);
    assert_int_equal(calls_of(c, 0).done, 50); // the others had not begun
    mu_pool_close(pool);
}

static int start(void **state)
{
    (void)state;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    setenv("MUSTER_TIMEOUT", "1", 1);
    return mu_init(.cpu_devices = 4) == MU_OK && mu_set_floatx(MU_F64) == MU_OK &&
                   mu_register_op("test_sleep", 1, 1, .kernel = sleep_kernel, .has_effect = true) == MU_OK
               ? 0
               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_run_and_do_not_change_the_weights),
                                       cmocka_unit_test(test_a_slow_worker_is_named),
                                       cmocka_unit_test(test_an_idle_worker_is_not_slow),
                                       cmocka_unit_test(test_a_step_may_take_longer_than_the_usual_limit),
                                       cmocka_unit_test(test_an_unbounded_queue_and_a_late_start)};
    return cmocka_run_group_tests_name("coordinator/slow_calls", tests, start, end_library);
}
