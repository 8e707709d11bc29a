// served_torn PART: a coordinator under `muster launch --workers 3 --ps 2` whose steps are synchronous and have two
// optimizers, one for a variable of each server. The second one's rate is an op of this program, which kills a server
// with SIGKILL after the first variable has been updated and before the second.
//
// copied: servers have copies. Whichever server is killed, the step is applied as a whole, and once.
// alone:  nobody else has the variables. The step fails, and the variables that it writes are in doubt until they are
//         assigned.
//
// The exit code is 0 if all is as expected.
#define _GNU_SOURCE // usleep
#include <muster.h>

#include <stdatomic.h>

#include "../two_optimizers.h"
#include "served_tasks.h"

enum { NOBODY = -1 };

static atomic_int doomed = NOBODY; // the server that dies when the rate is next asked for

static mu_status rate_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    (void)in, (void)arg;
    const int server = atomic_exchange(&doomed, NOBODY);
    if (server != NOBODY)
        kill_task("ps", server);
    *(double *)out[0].data = 1;
    return MU_OK;
}

static mu_tensor *rate(mu_tensor *at, void *arg)
{
    (void)arg;
    return mu_call_op1("test_rate", 1, &at);
}

typedef struct job {
    mu_strategy *strategy;
    mu_coordinator *coordinator;
    two_optimizers two;
    mu_function *function;
    int steps;
} job;

static void begin(job *j, mu_strategy *strategy)
{
    *j = (job){.strategy = strategy, .coordinator = mu_coordinator_new(strategy)};
    j->two = two_optimizers_new(strategy, rate);
    j->function = mu_function_new(step_of_two, &j->two);
}

static void expect_step(job *j, const char *what)
{
    expect(run_step_of_two(j->coordinator, j->function) == MU_OK, what);
    j->steps++;
    mu_tensor *first = mu_variable_read(j->two.first), *second = mu_variable_read(j->two.second);
    expect(first && second, "both variables can be read");
    if (!first || !second)
        return;
    printf("%s: %g and %g after %d steps\n", what, mu_scalar(first), mu_scalar(second), j->steps);
    expect(mu_scalar(first) == -3 * j->steps && mu_scalar(second) == -3 * j->steps, "each step counts once");
}

static void copied(job *j)
{
    begin(j, mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas_to_aggregate = CALLS_OF_TWO,
                                          .replicas = 1));
    expect_step(j, "a step");
    for (int server = 0; server < 2; server++) {
        wait_for_copies(j->strategy);
        doomed = server;
        expect_step(j, server == 0 ? "the first one's server dies" : "the second one's server dies");
        expect(doomed == NOBODY, "a server was killed");
        expect_step(j, "the next step");
    }
    expect(recovery_of(j->strategy).updates_lost == 0, "no update is lost");
}

static void expect_error(bool failed, const char *part)
{
    const mu_error error = mu_error_take();
    if (!failed || !error.message || !strstr(error.message, part)) {
        printf("NOT AS EXPECTED: an error with \"%s\"; there is: %s\n", part, error.message ? error.message : "none");
        n_wrong++;
    }
}

static void alone(job *j)
{
    begin(j, mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas_to_aggregate = CALLS_OF_TWO));
    expect_step(j, "a step");
    doomed = 1;
    expect_error(run_step_of_two(j->coordinator, j->function) != MU_OK, "its variables are in doubt");
    expect_error(!mu_variable_read(j->two.first), "'first' is in doubt");
    expect_error(!mu_schedule(j->coordinator, j->function, mu_list(mu_constant(MU_F64, 1), MU_END)), "is in doubt");
    expect(mu_variable_assign(j->two.first, mu_constant(MU_F64, 5)) == MU_OK,
           "the other server's variable is assigned");
    mu_tensor *first = mu_variable_read(j->two.first);
    expect(first && mu_scalar(first) == 5, "and is no longer in doubt");
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    static job j;
    mu_init(.cpu_devices = 1);
    mu_set_floatx(MU_F64);
    mu_register_op("test_rate", 1, 1, .kernel = rate_kernel, .has_effect = true);
    if (strcmp(part, "copied") == 0)
        copied(&j);
    else if (strcmp(part, "alone") == 0)
        alone(&j);
    else
        return 64;
    printf("%s: %d not as expected\n", part, n_wrong);
    return mu_exit(n_wrong == 0) || n_wrong > 0;
}
