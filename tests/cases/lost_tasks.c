// Cases COORD of the parameter-server list in which tasks are lost. The tasks are servers of this process, with sockets
// of their own: one that is stopped is gone, and one that is made at its address is another. tests/ranks/served_job.c
// has the same with processes that are killed.
#include "cases.h"
#include "coordinator/coordinator.h"

#include <muster/control.h>
#include <unistd.h>

enum { MOST_TASKS = 4 };

typedef struct tasks {
    mu_cluster *cluster;
    mu_server *workers[MOST_TASKS], *ps[MOST_TASKS];
    mu_coordinator *coordinator;
    mu_variable *v;
} tasks;

static mu_server *start_task(mu_cluster_spec *spec, const char *job, int i)
{
    mu_server *server = mu_server_create_local_server(true);
    mu_cluster_spec_add(spec, job, i, server ? mu_server_target(server) + strlen("muster://") : "");
    return server;
}

static tasks start(int n_workers, int n_ps)
{
    tasks t = {0};
    mu_cluster_spec *spec = mu_cluster_spec_parse("{}");
    for (int i = 0; i < n_workers; i++)
        t.workers[i] = start_task(spec, "worker", i);
    for (int i = 0; i < n_ps; i++)
        t.ps[i] = start_task(spec, "ps", i);
    t.cluster = mu_simple_cluster_resolver(spec);
    mu_strategy *strategy = mu_parameter_server_strategy(t.cluster);
    t.coordinator = mu_coordinator_new(strategy);
    if (strategy)
        MU_SCOPE(strategy)
            t.v = mu_variable_new(scalar(0), "v");
    return t;
}

static void restart_worker(tasks *t, int i)
{
    mu_server_stop(t->workers[i]);
    t->workers[i] = mu_server_new(t->cluster, .job_name = "worker", .task_index = i);
    CHECK(t->workers[i]);
}

static double value_of(mu_variable *v) { return mu_scalar(mu_variable_read(v)); }

static mu_value *add_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, scalar(1));
    return mu_list(scalar(1), scalar(-1), MU_END);
}

static void ps_064(void)
{
    tasks t = start(2, 1);
    mu_function *step = mu_function_new(add_one, t.v);
    for (int i = 1; i <= 2; i++) {
        mu_schedule(t.coordinator, step);
        mu_schedule(t.coordinator, step);
        CHECK(mu_join(t.coordinator) == MU_OK);
        CHECK(value_of(t.v) == 2 * i);
        if (i == 1)
            restart_worker(&t, 0);
    }
}

// ---- Values of workers ---------------------------------------------------------------------------

static double sum_of(mu_value *values)
{
    double sum = 0;
    for (int i = 0; i < mu_value_count(values); i++)
        sum += mu_scalar(mu_at(values, i));
    return sum;
}

static void increment(mu_coordinator *c, mu_function *step, int n)
{
    for (int i = 0; i < n; i++)
        mu_schedule(c, step);
    CHECK(mu_join(c) == MU_OK);
}

// A worker that comes back begins again from the initial value; this process has a value of its own.
static void ps_055(void)
{
    tasks t = start(2, 1);
    mu_variable *counter = NULL;
    MU_SCOPE(t.coordinator->strategy)
        counter = mu_variable_new(scalar(0), "v", .per_worker_variable = true);
    CHECK(!mu_variable_is_trainable(counter) && !mu_variable_device(counter));
    mu_function *step = mu_function_new(add_one, counter);
    EXPECT(mu_variable_read_all(counter), 0, 0);
    increment(t.coordinator, step, 10);
    CHECK(sum_of(mu_variable_read_all(counter)) == 10);
    CHECK(value_of(counter) == 0);
    for (int i = 0; i < 2; i++)
        restart_worker(&t, i);
    increment(t.coordinator, step, 3);
    CHECK(sum_of(mu_variable_read_all(counter)) == 3);
    CHECK(!mu_variable_read_all(t.v));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- Endless steps ------------------------------------------------------------------------------

typedef struct endless {
    mu_variable *stop, *counter;
} endless;

static mu_tensor *goes_on(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_equal(mu_variable_read(((const endless *)arg)->stop), scalar(0));
}

static mu_value *once_more(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_value_tensor(arguments), scalar(1)));
}

static mu_value *until_stopped(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *rounds = mu_while_loop(goes_on, once_more, mu_of(scalar(0)), .arg = arg);
    mu_variable_assign_add(((const endless *)arg)->counter, scalar(1));
    return rounds;
}

static bool is_busy(mu_coordinator *c, int worker)
{
    mu_worker_calls calls = {0};
    return mu_coordinator_worker_calls(c, worker, &calls) == MU_OK && calls.in_flight == 1;
}

static void ps_065(void)
{
    tasks t = start(2, 1);
    endless e = {.counter = t.v};
    MU_SCOPE(t.coordinator->strategy)
        e.stop = mu_variable_new(scalar(0), "stop");
    mu_function *step = mu_function_new(until_stopped, &e);
    for (int i = 0; i < 4; i++)
        mu_schedule(t.coordinator, step);
    while (!is_busy(t.coordinator, 0) || !is_busy(t.coordinator, 1))
        usleep(1000);
    restart_worker(&t, 0);
    mu_variable_assign(e.stop, scalar(1));
    CHECK(mu_join(t.coordinator) == MU_OK);
    CHECK(value_of(t.v) >= 4);
}

// ---- Results and servers ------------------------------------------------------------------------

static void ps_067(void)
{
    tasks t = start(2, 1);
    mu_value *result = mu_schedule(t.coordinator, mu_function_new(add_one, t.v));
    for (int time = 0; time < 2; time++) {
        mu_value *value = mu_fetch(result);
        EXPECT(value, 1, -1);
        for (int i = 0; i < 2 && time == 0; i++)
            mu_server_stop(t.workers[i]);
    }
}

static void ps_068(void)
{
    tasks t = start(1, 1);
    mu_function *step = mu_function_new(add_one, t.v);
    mu_schedule(t.coordinator, step);
    CHECK(mu_join(t.coordinator) == MU_OK);
    mu_server_stop(t.ps[0]);
    mu_value *scheduled = mu_schedule(t.coordinator, step);
    if (scheduled)
        CHECK(mu_join(t.coordinator) == MU_UNAVAILABLE);
    EXPECT_ERROR(MU_UNAVAILABLE);
}

// ---- Times --------------------------------------------------------------------------------------

static mu_value *slow_to_trace(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    usleep(510000);
    return mu_of(scalar(1));
}

static mu_coordinator_times times_of(mu_coordinator *c, const char *name)
{
    mu_coordinator_times times = {0};
    CHECK(mu_coordinator_times_read(c, name, &times) == MU_OK);
    return times;
}

static void ps_071(void)
{
    tasks t = start(1, 1);
    mu_function *step = mu_function_new(slow_to_trace, NULL);
    for (int i = 0; i < 2; i++)
        mu_schedule(t.coordinator, step);
    CHECK(mu_join(t.coordinator) == MU_OK);
    const mu_coordinator_times tracing = times_of(t.coordinator, "function_tracing");
    CHECK(tracing.n == 1 && tracing.sum > 0.5 && tracing.buckets[3] == 1);
    CHECK(times_of(t.coordinator, "closure_execution").n == 2);
    CHECK(times_of(t.coordinator, "remote_value_fetch").n == 2);
    mu_coordinator_times none;
    CHECK(mu_coordinator_times_read(t.coordinator, "server_def_update", &none) == MU_NOT_FOUND);
    EXPECT_ERROR(MU_NOT_FOUND);
}

const one_case lost_task_cases[] = {
    {.name = "ps-055", .run = ps_055},
    {.name = "ps-064", .run = ps_064},
    {.name = "ps-065", .run = ps_065},
    {.name = "ps-067", .run = ps_067},
    {.name = "ps-068", .run = ps_068},
    {.name = "ps-071", .run = ps_071},
    {0},
};
