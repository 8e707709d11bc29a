// How long clients wait when a parameter server with copies dies. Under `muster launch --workers 1 --ps 2`.
//
//   bench_ps_failover KILLS
//
// Kills a server with SIGKILL while its variables are complete on the other, and takes the time from the signal until
// an update of each variable has been acknowledged. Only kills count that made a copy take over. Prints the median and
// the 99th percentile in milliseconds as lines of JSON. At the end each acknowledged update must have been applied
// once.
#define _GNU_SOURCE // usleep
#include "../../tests/launched.h"

#include <muster.h>

#include <signal.h>
#include <stdlib.h>
#include <time.h>

// The launcher gives a task up that ends five times in a row within 2 s of its start; each server is killed every
// second time.
enum { PAUSE_US = 1100000, LIMIT_US = 60000000, POLL_US = 1000 };

static mu_variable *variables[2];
static double n_updates;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void need(bool good, const char *what)
{
    if (good && mu_error_code() == MU_OK)
        return;
    fprintf(stderr, "bench_ps_failover: %s\n", what);
    mu_exit(false);
    exit(1);
}

static mu_ps_recovery recovery_of(mu_strategy *strategy)
{
    mu_ps_recovery recovery = {0};
    need(mu_parameter_server_recovery(strategy, &recovery) == MU_OK, "no numbers of recoveries");
    return recovery;
}

static long ready_server(mu_strategy *strategy, int server)
{
    long pid = 0;
    for (int waited = 0; waited < LIMIT_US; waited += POLL_US) {
        pid = process_of("ps", server);
        if (pid > 0 && recovery_of(strategy).copies_behind == 0)
            return pid;
        usleep(POLL_US);
    }
    need(false, "a server or its copies did not come back within a minute");
    return 0;
}

static void update_both(void)
{
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < 2; i++)
        need(mu_variable_assign_add(variables[i], mu_constant(MU_F32, 1)) == MU_OK, "an update failed");
    mu_pool_close(pool);
    n_updates++;
}

// Milliseconds; negative: the other server had both variables already.
static double kill_one(mu_strategy *strategy, int server)
{
    const long pid = ready_server(strategy, server);
    const int64_t before = recovery_of(strategy).failovers;
    update_both();
    const double begin = now_ms();
    need(kill((pid_t)pid, SIGKILL) == 0, "a server could not be killed");
    update_both();
    const double took = now_ms() - begin;
    return recovery_of(strategy).failovers > before ? took : -1;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_sums(void)
{
    for (int i = 0; i < 2; i++)
        need(mu_scalar(mu_variable_read(variables[i])) == n_updates, "an update is lost or was applied twice");
}

static double percentile(const double *sorted, int n, int percent) { return sorted[(n * percent + 99) / 100 - 1]; }

int main(int argc, char **argv)
{
    const int n = argc == 2 ? atoi(argv[1]) : 0;
    if (n < 1 || n > 100000) {
        fprintf(stderr, "usage: bench_ps_failover KILLS\n");
        return 2;
    }
    mu_init(.cpu_devices = 1);
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1);
    mu_coordinator *coordinator = mu_coordinator_new(strategy);
    need(coordinator != NULL, "no coordinator");
    MU_SCOPE(strategy)
        for (int i = 0; i < 2; i++)
            variables[i] = mu_variable_new(mu_constant(MU_F32, 0), i ? "b" : "a");
    double *took = malloc((size_t)n * sizeof *took);
    need(took != NULL, "no memory");
    for (int i = 0, counted = 0; counted < n; i++) {
        usleep(PAUSE_US);
        took[counted] = kill_one(strategy, i % 2);
        counted += took[counted] >= 0;
        need(i < 4 * n + 4, "too few kills made a copy take over");
    }
    check_sums();
    qsort(took, (size_t)n, sizeof *took, compare);
    printf("{\"what\":\"failover_ms_p50\",\"value\":%.6g}\n", percentile(took, n, 50));
    printf("{\"what\":\"failover_ms_p99\",\"value\":%.6g}\n", percentile(took, n, 99));
    printf("# failover: least %.3g ms, most %.3g ms, %d kills\n", took[0], took[n - 1], n);
    free(took);
    return mu_exit(true);
}
