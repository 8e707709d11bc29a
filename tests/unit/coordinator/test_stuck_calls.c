// Calls that do not end when they are cancelled, because a function of the program continues inside of them: every wait
// for them fails within a limit, the first error is kept for later, and the watchdog and the end of the coordinator
// name them.
#include "../caught_output.h"
#include "servers_test.h"

#include "coordinator/coordinator.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_bool goes_on, runs, holds, held;

static mu_status stay_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    (void)arg;
    if (*(const float *)in[0].data < 0) {
        held = true;
        while (holds)
            usleep(1000);
        return mu__error(MU_INVALID_ARGUMENT, "not positive");
    }
    runs = true;
    while (goes_on)
        usleep(1000);
    runs = false;
    memcpy(out[0].data, in[0].data, sizeof(float));
    return MU_OK;
}

static mu_value *staying_step(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_of(mu_call_op1("test_stay", 1, &x));
}

static mu_value *positive_step(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_assert(mu_greater(x, mu_constant(MU_F32, 0)), "not positive");
    return mu_of(x);
}

static mu_value *one(void) { return mu_list(mu_constant(MU_F32, 1), MU_END); }

// A call on one of two workers does not end, and another call has failed.
static mu_coordinator *with_a_stuck_call(mu_function *positive)
{
    mu_coordinator *c = mu_coordinator_new(mu_parameter_server_strategy(cluster_of(2, 1), .in_process = true));
    goes_on = true;
    if (!mu_schedule(c, mu_function_new(staying_step), one()))
        fail_msg("%s", mu_error_message());
    while (!runs)
        usleep(1000);
    mu_value *bad = mu_schedule(c, positive, mu_list(mu_constant(MU_F32, -1), MU_END));
    assert_null(mu_fetch(bad));
    expect_error(MU_INVALID_ARGUMENT, "not positive");
    return c;
}

static double seconds_of(mu_status (*wait)(mu_coordinator *c), mu_coordinator *c, const char *text)
{
    const int64_t begin = mu__now_ns();
    assert_int_equal(wait(c), MU_DEADLINE_EXCEEDED);
    if (!strstr(mu_error_message(), "not positive")) // the error that is kept
        fail_msg("%s", mu_error_message());
    expect_error(MU_DEADLINE_EXCEEDED, text);
    return (double)(mu__now_ns() - begin) / 1e9;
}

static mu_status join_shortly(mu_coordinator *c) { return mu_join(c, .timeout_seconds = 0.1); }
static mu_status join(mu_coordinator *c) { return mu_join(c); }

static mu_status ask(mu_coordinator *c)
{
    bool done = false;
    return mu_done(c, &done);
}

static mu_status schedule(mu_coordinator *c)
{
    return mu_schedule(c, mu_function_new(positive_step), one()) ? MU_OK : mu_error_code();
}

static void test_who_waits_for_a_stuck_call_is_told(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_function *positive = mu_function_new(positive_step);
    mu_coordinator *c = with_a_stuck_call(positive);
    assert_true(seconds_of(join_shortly, c, "1 still run, the first of them on worker") < 2);
    assert_true(seconds_of(join, c, "still run") >= 2); // MUSTER_TIMEOUT
    assert_true(seconds_of(ask, c, "still run") >= 2);
    assert_true(seconds_of(schedule, c, "still run") >= 2);
    assert_int_equal(mu_coordinator_queued(c), 0); // the call was cancelled
    goes_on = false;
    assert_int_equal(join(c), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "not positive");
    assert_int_equal(mu_coordinator_queued(c), 0);
    for (int i = 0; i < 8; i++)
        assert_non_null(mu_schedule(c, positive, one()));
    assert_int_equal(join(c), MU_OK); // as new
    mu_pool_close(pool);
}

// Calls on both workers do not end, another one has failed, and one waits: a wait for that one fails although the two
// go on.
static void test_who_waits_for_a_waiting_call_is_told(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_function *stay = mu_function_new(staying_step);
    mu_coordinator *c = mu_coordinator_new(mu_parameter_server_strategy(cluster_of(2, 1), .in_process = true));
    goes_on = holds = true;
    runs = held = false;
    assert_non_null(mu_schedule(c, stay, one()));
    mu_value *bad = mu_schedule(c, stay, mu_list(mu_constant(MU_F32, -1), MU_END));
    while (!runs || !held)
        usleep(1000);
    assert_non_null(mu_schedule(c, stay, one())); // takes the place of the one that fails
    mu_value *waits = mu_schedule(c, stay, one());
    assert_int_equal(mu_coordinator_queued(c), 2);
    runs = holds = false;
    assert_null(mu_fetch(bad));
    expect_error(MU_INVALID_ARGUMENT, "not positive");
    while (!runs)
        usleep(1000);
    assert_int_equal(mu_coordinator_queued(c), 1);
    seconds_of(join_shortly, c, "2 still run");
    assert_int_equal(mu_coordinator_queued(c), 0);
    assert_null(mu_fetch(waits));
    expect_error(MU_CANCELLED, "another one failed");
    goes_on = false;
    assert_int_equal(join(c), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "not positive");
    mu_pool_close(pool);
}

static void close_pool(void *pool) { mu_pool_close(pool); }

// The end of the coordinator names the call and stops waiting for it after MUSTER_TIMEOUT. The call may still use the
// objects that are left behind; its result is dropped.
static void test_the_end_goes_without_a_stuck_call(void **state)
{
    (void)state;
    static char log[1 << 14];
    mu_pool *outer = mu_pool_open(), *pool = mu_pool_open();
    mu_coordinator *c = mu_coordinator_new(mu_parameter_server_strategy(cluster_of(2, 1), .in_process = true));
    goes_on = true;
    mu_value *stays = mu_retain(mu_schedule(c, mu_function_new(staying_step), one()));
    while (!runs)
        usleep(1000);
    const int64_t begin = mu__now_ns();
    catch_stderr(close_pool, pool, log, sizeof log);
    const double seconds = (double)(mu__now_ns() - begin) / 1e9;
    const char *waits = strstr(log, "the end of the coordinator waits for worker ");
    const char *goes = strstr(log, "the coordinator has ended without worker ");
    if (seconds < 2 || !waits || !goes || !strstr(waits, ": its call of 'staying_step', ") ||
        !strstr(goes, ": its call of 'staying_step', "))
        fail_msg("after %g s the log is: %s", seconds, log);
    assert_null(mu_fetch(stays));
    expect_error(MU_CANCELLED, "because the coordinator ended");
    goes_on = false;
    while (runs)
        usleep(1000);
    usleep(20000); // its thread continues with the objects that were left behind
    mu_release(stays);
    mu_pool_close(outer);
}

static void sleep_while_stuck(void *arg)
{
    (void)arg;
    usleep(1200000);
}

// TensorFlow's watchdog: after so long without a call that ended it logs which calls run, and again after as long.
static void test_the_watchdog_names_a_stuck_call(void **state)
{
    (void)state;
    static char log[1 << 14];
    mu_pool *pool = mu_pool_open();
    mu_coordinator *c = mu_coordinator_new(mu_parameter_server_strategy(cluster_of(2, 1), .in_process = true));
    mu_function *stay = mu_function_new(staying_step);
    goes_on = true;
    for (int i = 0; i < 3; i++)
        assert_non_null(mu_schedule(c, stay, one()));
    catch_stderr(sleep_while_stuck, NULL, log, sizeof log);
    goes_on = false;
    assert_int_equal(join(c), MU_OK);
    const char *first = strstr(log, "no call has ended for 0.4 s (MUSTER_WATCHDOG): 2 run, 1 wait, 0 of 2 workers");
    if (!first || !strstr(first, "worker 0 has run its call for") || !strstr(first, "worker 1 has run its call for") ||
        !strstr(first + 1, "no call has ended for"))
        fail_msg("the log: %s", log);
    mu_pool_close(pool);
}

static int start(void **state)
{
    (void)state;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    setenv("MUSTER_TIMEOUT", "2", 1);
    setenv("MUSTER_HEARTBEAT", "0.5", 1);
    setenv("MUSTER_WATCHDOG", "0.4", 1);
    return mu_init(.cpu_devices = 2) == MU_OK &&
                   mu_register_op("test_stay", 1, 1, .kernel = stay_kernel, .has_effect = true) == MU_OK
               ? 0
               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_waits_for_a_stuck_call_is_told),
                                       cmocka_unit_test(test_who_waits_for_a_waiting_call_is_told),
                                       cmocka_unit_test(test_the_watchdog_names_a_stuck_call),
                                       cmocka_unit_test(test_the_end_goes_without_a_stuck_call)};
    return cmocka_run_group_tests_name("coordinator/stuck_calls", tests, start, end_library);
}
