// Workers that start after their coordinator, or never: such a worker is not lost, gets no calls, and a host that does
// not answer delays nothing.
#include "../caught_output.h"
#include "servers_test.h"

#include "comm/sessions/net.h"
#include "coordinator/coordinator.h"

#include <sys/socket.h>

enum { CALLS = 20 };

// Three tasks: a worker whose port is reserved, so that no other program listens there, a worker that is there, and a
// parameter server. `silent`: connections to the first one are accepted, but nothing is ever said.
typedef struct late_job {
    mu_kept_port port;
    mu_server *present;
    mu_cluster *cluster;
    mu_strategy *strategy;
    mu_variable *v;
    mu_coordinator *coordinator;
} late_job;

static const char *address_of(mu_server *server) { return mu_server_target(server) + strlen("muster://"); }

static late_job start_job(bool with_another, bool silent)
{
    late_job j = {.present = with_another ? mu_server_create_local_server(true) : NULL};
    char text[300], another[100] = "";
    assert_int_equal(mu__ports_keep(&j.port, 1, true), MU_OK);
    if (silent)
        assert_int_equal(listen(j.port.fd, 8), 0);
    if (with_another)
        snprintf(another, sizeof another, ", \"%s\"", address_of(j.present));
    snprintf(text, sizeof text, "{\"worker\": [\"127.0.0.1:%d\"%s], \"ps\": [\"%s\"]}", j.port.port, another,
             address_of(mu_server_create_local_server(true)));
    j.cluster = mu_simple_cluster_resolver(mu_cluster_spec_parse(text));
    j.strategy = mu_parameter_server_strategy(j.cluster);
    if (!j.strategy)
        fail_msg("%s", mu_error_message());
    MU_SCOPE(j.strategy)
        j.v = mu_variable_new(mu_constant(MU_F32, 0), "v");
    j.coordinator = mu_coordinator_new(j.strategy);
    assert_non_null(j.coordinator);
    return j;
}

static void start_late_worker(const late_job *j)
{
    if (!mu_server_new(j->cluster, .job_name = "worker", .task_index = 0))
        fail_msg("%s", mu_error_message());
}

static void end_job(late_job *j, mu_pool *pool)
{
    mu_pool_close(pool);
    mu__ports_give_back(&j->port, 1);
}

static mu_value *add(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_variable_assign_add(arg, x);
    return mu_of(x);
}

static mu_dataset *ones(void *arg)
{
    ++*(atomic_int *)arg;
    return mu_dataset_repeat(mu_dataset_from_tensors(mu_of(mu_constant(MU_F32, 1))), MU_INFINITE);
}

static mu_worker_calls calls_of(const late_job *j, int worker)
{
    mu_worker_calls calls = {0};
    assert_int_equal(mu_coordinator_worker_calls(j->coordinator, worker, &calls), MU_OK);
    return calls;
}

static void schedule(const late_job *j, mu_value *data, int n)
{
    mu_function *step = mu_function_new(add, j->v);
    for (int i = 0; i < n; i++)
        if (!mu_schedule(j->coordinator, step, data))
            fail_msg("%s", mu_error_message());
}

static void join(const late_job *j)
{
    if (mu_join(j->coordinator) != MU_OK)
        fail_msg("%s", mu_error_message());
}

// ---- A worker that comes later --------------------------------------------------------------------

static void test_a_late_worker_is_not_lost(void **state)
{
    (void)state;
    static atomic_int made;
    mu_pool *pool = mu_pool_open();
    late_job j = start_job(true, false);
    mu_value *data = mu_create_per_worker_dataset(j.coordinator, ones, &made);
    schedule(&j, data, CALLS);
    join(&j); // on the other worker
    mu_worker_calls late = calls_of(&j, 0);
    assert_true(!late.lost && late.done == 0 && late.retried == 0 && late.failed == 0);
    assert_int_equal(made, 1);
    start_late_worker(&j);
    for (int i = 0; i < 6000 && late.done == 0; i++, late = calls_of(&j, 0)) {
        schedule(&j, data, 1);
        join(&j);
        usleep(1000);
    }
    assert_true(!late.lost && late.done > 0 && late.retried == 0 && late.failed == 0);
    assert_int_equal(made, 2); // once for each
    assert_true(mu_scalar(mu_variable_read(j.v)) == (double)(late.done + calls_of(&j, 1).done));
    end_job(&j, pool);
}

// The only worker: calls wait for it.
static void test_calls_wait_for_the_first_worker(void **state)
{
    (void)state;
    static atomic_int made;
    mu_pool *pool = mu_pool_open();
    late_job j = start_job(false, false);
    schedule(&j, mu_create_per_worker_dataset(j.coordinator, ones, &made), CALLS);
    assert_int_equal(mu_join(j.coordinator, .timeout_seconds = 0.2), MU_DEADLINE_EXCEEDED);
    expect_error(MU_DEADLINE_EXCEEDED, "0 calls run and 20 wait");
    start_late_worker(&j);
    join(&j);
    assert_true(mu_scalar(mu_variable_read(j.v)) == CALLS && made == 1);
    assert_true(calls_of(&j, 0).done == CALLS && calls_of(&j, 0).retried == 0);
    end_job(&j, pool);
}

// ---- A worker that does not come ------------------------------------------------------------------

// Nothing is scheduled, so no call waits: no error is kept for the first call, and the worker has as long to start
// after it as if the coordinator were new.
static void test_an_idle_coordinator_keeps_no_error(void **state)
{
    (void)state;
    static atomic_int made;
    mu_pool *pool = mu_pool_open();
    late_job j = start_job(false, false);
    usleep(1800000); // MUSTER_TIMEOUT, and the longest pause between two attempts
    schedule(&j, mu_create_per_worker_dataset(j.coordinator, ones, &made), 1);
    start_late_worker(&j);
    join(&j);
    end_job(&j, pool);
}

static void wait_for_nobody(void *arg)
{
    late_job *j = arg;
    mu_value *result = mu_schedule(j->coordinator, mu_function_new(add, j->v), mu_list(mu_constant(MU_F32, 1), MU_END));
    assert_null(mu_fetch(result));
    expect_error(MU_UNAVAILABLE, "none of the 1 workers");
    assert_int_equal(mu_join(j->coordinator), MU_UNAVAILABLE);
}

// A fetch and a join wait for workers none of which comes: both fail and name the result of the last attempt.
static void test_no_worker_is_an_error_with_its_reason(void **state)
{
    (void)state;
    static char log[1 << 14];
    mu_pool *pool = mu_pool_open();
    late_job j = start_job(false, false);
    catch_stderr(wait_for_nobody, &j, log, sizeof log);
    const char *message = mu_error_message();
    if (!strstr(message, "none of the 1 workers") || !strstr(message, "The last attempt: ") ||
        !strstr(message, "refused"))
        fail_msg("%s", message);
    expect_error(MU_UNAVAILABLE, "MUSTER_TIMEOUT");
    if (!strstr(log, "worker 0 has not been reachable since the start") || !strstr(log, "refused"))
        fail_msg("the log: %s", log);
    assert_true(calls_of(&j, 0).lost && j.coordinator->n_lost == 1); // more than a heartbeat has passed
    end_job(&j, pool);
}

// The last steps of an epoch wait for workers, and no further call is scheduled that could raise the error.
static void test_fit_ends_without_workers(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    late_job j = start_job(false, false);
    mu_model *model = NULL;
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){4, 2});
    MU_SCOPE(j.strategy) {
        model = mu_sequential(mu_dense(2));
        mu_compile(model, .optimizer = mu_sgd(), .loss = mu_mean_squared_error_loss());
    }
    assert_null(mu_fit(model, x, x, .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_UNAVAILABLE, "none of the 1 workers");
    start_late_worker(&j);
    if (!mu_fit(model, x, x, .verbose = MU_VERBOSE_SILENT))
        fail_msg("%s", mu_error_message());
    end_job(&j, pool);
}

// A process listens at the worker's address and never says a word. The coordinator still ends.
static void test_a_silent_host_does_not_hold_up_the_end(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    late_job j = start_job(true, true);
    schedule(&j, mu_list(mu_constant(MU_F32, 1), MU_END), CALLS);
    join(&j);
    usleep(200000); // an attempt is on its way
    const int64_t begin = mu__now_ns();
    end_job(&j, pool);
    const double seconds = (double)(mu__now_ns() - begin) / 1e9;
    if (seconds > 5 * MU_TEST_SLOWNESS)
        fail_msg("the end took %.1f s", seconds);
}

static int start(void **state)
{
    (void)state;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    setenv("MUSTER_HEARTBEAT", "20", 1);
    return mu_init(.cpu_devices = 2) == MU_OK ? 0 : -1;
}

static int start_impatiently(void **state)
{
    (void)state;
    setenv("MUSTER_TIMEOUT", "1", 1);
    setenv("MUSTER_HEARTBEAT", "0.5", 1);
    const int started = mu_init(.cpu_devices = 2) == MU_OK ? 0 : -1;
    unsetenv("MUSTER_TIMEOUT");
    unsetenv("MUSTER_HEARTBEAT");
    return started;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_late_worker_is_not_lost, start, end_library),
        cmocka_unit_test_setup_teardown(test_calls_wait_for_the_first_worker, start, end_library),
        cmocka_unit_test_setup_teardown(test_an_idle_coordinator_keeps_no_error, start_impatiently, end_library),
        cmocka_unit_test_setup_teardown(test_no_worker_is_an_error_with_its_reason, start_impatiently, end_library),
        cmocka_unit_test_setup_teardown(test_fit_ends_without_workers, start_impatiently, end_library),
        cmocka_unit_test_setup_teardown(test_a_silent_host_does_not_hold_up_the_end, start, end_library)};
    return cmocka_run_group_tests_name("coordinator/starts", tests, NULL, NULL);
}
