// What an operator sees of a job: the numbers of the coordinator and the servers over HTTP, one request in the timeline
// from the coordinator to a worker to a server, and a million steps that take no more memory than a few.
#include "../../metrics_page.h"
#include "../scratch.h"
#include "servers_test.h"

#include "coordinator/coordinator.h"

#include <unistd.h>

enum { STEPS = 5, QUEUED = 64, USUAL_QUEUED = 262144, BYTES_OF_CALL = 2048 };

static const char trace_path[] = "trace.json";

static mu_value *add(mu_value *arguments, void *arg)
{
    mu_variable_assign_add(arg, mu_at(arguments, 0));
    return mu_of(mu_at(arguments, 0));
}

static mu_variable *zero_on(mu_strategy *strategy)
{
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(mu_constant(MU_F32, 0), "v");
    return v;
}

static void run_steps(mu_coordinator *c, mu_variable *v, int n)
{
    mu_function *step = mu_function_new(add, v);
    for (int i = 0; i < n; i++)
        mu_schedule(c, step, mu_of(mu_constant(MU_F32, 1)));
    assert_int_equal(mu_join(c), MU_OK);
    assert_true(mu_scalar(mu_variable_read(v)) == n);
}

// ---- Numbers ------------------------------------------------------------------------------------

static void expect_line(const char *metrics, const char *line)
{
    if (metrics == NULL || strstr(metrics, line) == NULL)
        fail_msg("no \"%s\" in\n%s", line, metrics != NULL ? metrics : "no answer");
}

static void test_numbers_of_a_coordinator(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(2, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    run_steps(c, zero_on(strategy), STEPS);
    const char *metrics = metrics_page(mu__coordinator_metrics_port(c));
    expect_line(metrics, "\nmuster_worker_calls_done_total{worker=\"0\"} 5\n");
    expect_line(metrics, "\nmuster_worker_calls_retried_total{worker=\"0\"} 0\n");
    expect_line(metrics, "\nmuster_worker_lost{worker=\"0\"} 0\n");
    expect_line(metrics, "\nmuster_calls_queued 0\n");
    expect_line(metrics, "\nmuster_closure_execution_seconds_count 5\n");
    expect_line(metrics, "\nmuster_failovers_total 0\n");
    expect_line(metrics, "\nmuster_copies_behind 0\n");
    mu_pool_close(pool);
}

// ---- The timeline -------------------------------------------------------------------------------

// Returns whether the line is a span of this category and name, and writes the number of its request to `request` as
// text.
static bool is_span(const char *line, const char *category, const char *name, char request[32])
{
    char wanted[200];
    snprintf(wanted, sizeof wanted, "\"ph\":\"b\",\"name\":\"%s\",\"cat\":\"%s\"", name, category);
    const char *at = strstr(line, wanted) != NULL ? strstr(line, "\"request\":\"") : NULL;
    return at != NULL && sscanf(at, "\"request\":\"%31[0-9a-fx]\"", request) == 1;
}

// Returns whether one request has all these spans.
static bool has_request(FILE *file)
{
    static const char *const spans[][2] = {{"schedule", "add"},
                                           {"call", "muster.function.run"},
                                           {"serve", "muster.function.run"},
                                           {"call", "muster.apply"},
                                           {"serve", "muster.apply"}};
    char line[2000], first[32], request[32];
    while (fgets(line, sizeof line, file)) {
        bool found[MU_COUNT(spans)] = {false}, all = true;
        if (!is_span(line, "schedule", "add", first))
            continue;
        const long here = ftell(file);
        rewind(file);
        while (fgets(line, sizeof line, file))
            for (size_t i = 0; i < MU_COUNT(spans); i++)
                found[i] |= is_span(line, spans[i][0], spans[i][1], request) && strcmp(request, first) == 0;
        for (size_t i = 0; i < MU_COUNT(spans); i++)
            all &= found[i];
        if (all)
            return true;
        fseek(file, here, SEEK_SET);
    }
    return false;
}

static void test_a_request_in_the_timeline(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    run_steps(c, zero_on(strategy), STEPS);
    mu_pool_close(pool);
    assert_true(mu_exit(true) == 0); // which writes it
    FILE *file = fopen(trace_path, "r");
    assert_non_null(file);
    assert_true(has_request(file));
    fclose(file);
    assert_int_equal(mu_init(.cpu_devices = 1), MU_OK);
}

// ---- Many steps ---------------------------------------------------------------------------------

static long resident_bytes(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void schedule_many(mu_coordinator *c, mu_function *step, mu_value *one, int64_t n, int64_t most)
{
    for (int64_t i = 0; i < n; i++) {
        mu_pool *pool = mu_pool_open();
        assert_non_null(mu_schedule(c, step, one));
        assert_true(mu_coordinator_queued(c) <= most);
        mu_pool_close(pool);
    }
}

// MU_TEST_STEPS sets the number of steps; each is a request to a worker in another thread, which asks a server.
static int64_t many(void)
{
    const char *given = getenv("MU_TEST_STEPS");
    return given ? atoll(given) : 2000;
}

static mu_value *wait_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1));
}

// The first call waits until as many calls are queued behind it as the default queue holds, or all of them.
static void test_the_usual_queue_takes_bounded_memory(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = zero_on(strategy);
    mu_accumulator *gate = NULL;
    MU_SCOPE(strategy)
        gate = mu_conditional_accumulator(.dtype = MU_F32, .shape = &(mu_shape){0}, .name = "gate");
    mu_function *step = mu_function_new(add, v);
    mu_value *one = mu_of(mu_constant(MU_F32, 1));
    const int64_t n = many(), queued = n < USUAL_QUEUED ? n : USUAL_QUEUED;
    assert_non_null(mu_schedule(c, mu_function_new(wait_step, gate)));
    for (int i = 0; i < 1000 && mu_coordinator_queued(c) > 0; i++)
        usleep(1000);
    const long before = resident_bytes();
    schedule_many(c, step, one, queued, USUAL_QUEUED);
    const long more = resident_bytes() - before;
    if (queued == USUAL_QUEUED) {
        assert_null(mu_schedule(c, step, one, .no_wait = true));
        assert_int_equal(mu_error_take().code, MU_RESOURCE_EXHAUSTED);
    }
    assert_int_equal(mu_accumulator_apply_grad(gate, mu_constant(MU_F32, 1), 0), MU_OK);
    schedule_many(c, step, one, n - queued, USUAL_QUEUED);
    const long after = resident_bytes() - before;
    assert_int_equal(mu_join(c), MU_OK);
    assert_true(mu_scalar(mu_variable_read(v)) == (double)n);
    printf("%lld calls wait in %.1f MB; after %lld calls %.1f MB\n", (long long)queued, (double)more / 1e6,
           (long long)n, (double)after / 1e6);
    if (MU_TEST_SLOWNESS == 1 && (more > queued * BYTES_OF_CALL + (1 << 20) || after > more + (16 << 20)))
        fail_msg("%lld calls that wait took %ld bytes, after all %ld", (long long)queued, more, after);
    mu_pool_close(pool);
}

static void test_many_steps_take_the_memory_of_a_few(void **state)
{
    const int64_t n = many();
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy, .max_queued = QUEUED);
    mu_variable *v = zero_on(strategy);
    mu_function *step = mu_function_new(add, v);
    mu_value *one = mu_of(mu_constant(MU_F32, 1));
    schedule_many(c, step, one, n / 10, QUEUED);
    const long before = resident_bytes();
    schedule_many(c, step, one, n, QUEUED);
    const long more = resident_bytes() - before;
    assert_int_equal(mu_join(c), MU_OK);
    assert_true(mu_scalar(mu_variable_read(v)) == (double)(n + n / 10));
    if (MU_TEST_SLOWNESS == 1 && more > 16 << 20) // sanitizers keep freed memory
        fail_msg("%lld steps took %ld bytes", (long long)n, more);
    mu_pool_close(pool);
}

static int start(void **state)
{
    setenv("MUSTER_METRICS_PORT", "0", 1);
    setenv("MUSTER_TRACE", trace_path, 1);
    return start_with_key(state);
}

static int start_plainly(void **state)
{
    unsetenv("MUSTER_TRACE");
    unsetenv("MUSTER_METRICS_PORT");
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_request_in_the_timeline, start, end_library),
        cmocka_unit_test_setup_teardown(test_numbers_of_a_coordinator, start, end_library),
        cmocka_unit_test_setup_teardown(test_the_usual_queue_takes_bounded_memory, start_plainly, end_library),
        cmocka_unit_test_setup_teardown(test_many_steps_take_the_memory_of_a_few, start_plainly, end_library),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
