// Coordinators that are killed or end while their servers keep running: the servers free what they kept for the
// coordinator and serve the next one, whatever its options are. The killed coordinators are processes of their own.
#include "../../metrics_page.h"
#include "servers_test.h"

#include "coordinator/coordinator.h"
#include "rpc/services/service.h"

#include <signal.h>
#include <sys/wait.h>

enum { N_PS = 2, N_TASKS = N_PS + 1, N_CLUSTERS = 2, SIZE = 1000, MOST_TEXT = 300, KEPT = SIZE * (int)sizeof(float) };

// The servers of one job: the worker, then the parameter servers.
typedef struct job {
    mu_server *servers[N_TASKS];
    char text[MOST_TEXT];
} job;

static job start_servers(void)
{
    job j = {0};
    const char *at[N_TASKS];
    for (int i = 0; i < N_TASKS; i++) {
        j.servers[i] = mu_server_create_local_server(true);
        at[i] = mu_server_target(j.servers[i]) + strlen("muster://");
    }
    snprintf(j.text, sizeof j.text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\", \"%s\"]}", at[0], at[1], at[2]);
    return j;
}

static double number_of(const job *j, int server, const char *name)
{
    return metrics_number(mu__server_metrics(j->servers[server]), name);
}

static void expect_soon(const job *j, int server, const char *name, double wanted)
{
    for (int i = 0; i < 6000 && number_of(j, server, name) != wanted; i++)
        usleep(5000);
    if (number_of(j, server, name) != wanted)
        fail_msg("server %d: %s is %g, not %g", server, name, number_of(j, server, name), wanted);
}

// ---- A coordinator ------------------------------------------------------------------------------

static mu_value *add(mu_value *arguments, void *arg)
{
    mu_variable_assign_add(arg, mu_at(arguments, 0));
    return mu_of(mu_at(arguments, 0));
}

static mu_value *ones(void *arg)
{
    (void)arg;
    return mu_of(mu_fill(MU_F32, 1, (int64_t[]){SIZE}, 1));
}

// Makes one of everything: a function and an input on the worker; on the servers a variable, an accumulator and a
// table. Returns whether a step has run.
static bool use(const char *text, int replicas)
{
    mu_strategy *strategy =
        mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)), .replicas = replicas);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = NULL;
    mu_tensor *value = NULL;
    MU_SCOPE(strategy) {
        v = mu_variable_new(mu_zeros(MU_F32, 1, (int64_t[]){SIZE}), "v");
        mu_conditional_accumulator(MU_F32);
        mu_embedding_table_new(4);
    }
    mu_schedule(c, mu_function_new(add, v), mu_create_per_worker_values(c, ones, NULL));
    return mu_join(c) == MU_OK && (value = mu_variable_read(v)) != NULL && mu_tensor_item(value, SIZE - 1) == 1;
}

// ---- Coordinators that are killed ---------------------------------------------------------------

// A process that becomes a coordinator as soon as it is told the addresses of its servers.
typedef struct process {
    pid_t pid;
    int to, from;
} process;

static process children[N_CLUSTERS];

// The process: reads the servers' addresses, uses the servers, and stays.
static void coordinate(int in, int out, int replicas)
{
    char text[MOST_TEXT] = "";
    const bool told = read(in, text, sizeof text - 1) > 0 && mu_init(.cpu_devices = 1) == MU_OK;
    mu_pool *pool = mu_pool_open();
    const char good = told && use(text, replicas);
    if (!good)
        fprintf(stderr, "%s\n", mu_error_message());
    if (write(out, &good, 1) == 1)
        while (read(in, text, 1) > 0) // until it is killed, or the test has ended
            ;
    mu_pool_close(pool);
    _exit(0);
}

// Before this process has threads. Each copies its variables as often as its number says.
static void fork_coordinators(void)
{
    for (int i = 0; i < N_CLUSTERS; i++) {
        int in[2], out[2];
        if (pipe(in) != 0 || pipe(out) != 0 || (children[i].pid = fork()) < 0)
            exit(99);
        if (children[i].pid == 0) {
            close(in[1]);
            coordinate(in[0], out[1], i);
        }
        close(in[0]);
        close(out[1]);
        children[i].to = in[1];
        children[i].from = out[0];
    }
}

static void kill_coordinator(const process *p)
{
    assert_int_equal(kill(p->pid, SIGKILL), 0);
    assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
}

static void expect_used(const job *j, int replicas)
{
    expect_soon(j, 0, "functions", 1);
    expect_soon(j, 0, "inputs", 1);
    assert_true(number_of(j, 1, "kept_bytes") >= KEPT);
    assert_true((number_of(j, 2, "kept_bytes") >= KEPT) || replicas == 0);
    assert_true(number_of(j, 1, "stores_led") == (replicas > 0));
}

static void expect_free(const job *j)
{
    expect_soon(j, 0, "functions", 0);
    expect_soon(j, 0, "inputs", 0);
    for (int i = 1; i < N_TASKS; i++) {
        expect_soon(j, i, "kept_bytes", 0);
        expect_soon(j, i, "variables", 0);
        expect_soon(j, i, "stores_led", 0);
    }
}

static void test_killed_coordinators(void **state)
{
    job jobs[N_CLUSTERS];
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < N_CLUSTERS; i++) {
        char good = 0;
        jobs[i] = start_servers();
        assert_int_equal(write(children[i].to, jobs[i].text, strlen(jobs[i].text)), strlen(jobs[i].text));
        assert_int_equal(read(children[i].from, &good, 1), 1);
        assert_int_equal(good, 1);
        expect_used(&jobs[i], i);
    }
    for (int i = 0; i < N_CLUSTERS; i++)
        kill_coordinator(&children[i]);
    for (int i = 0; i < N_CLUSTERS; i++) {
        mu_pool *inner = mu_pool_open();
        expect_free(&jobs[i]);
        assert_true(use(jobs[i].text, 1 - i)); // the next coordinator, with the other options
        mu_pool_close(inner);
    }
    mu_pool_close(pool);
}

// ---- The next coordinator -----------------------------------------------------------------------

// The bytes of the previous coordinator are free at once: none of them counts against the limit of the next one.
static void test_the_next_has_all_the_room(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const job j = start_servers();
    for (int replicas = 1; replicas >= 0; replicas--) {
        mu_pool *inner = mu_pool_open();
        assert_true(use(j.text, replicas));
        if (replicas == 0) {
            assert_true(number_of(&j, 1, "kept_bytes") + number_of(&j, 2, "kept_bytes") < 2 * KEPT);
            assert_true(number_of(&j, 1, "stores_led") == 0 && number_of(&j, 0, "functions") == 1);
        }
        mu_pool_close(inner);
    }
    mu_pool_close(pool);
}

static int start_with_numbers(void **state)
{
    setenv("MUSTER_METRICS_PORT", "0", 1);
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_coordinators),
        cmocka_unit_test(test_the_next_has_all_the_room),
    };
    setenv("MUSTER_HEARTBEAT", "1", 1);
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    fork_coordinators();
    return cmocka_run_group_tests(tests, start_with_numbers, end_library);
}
