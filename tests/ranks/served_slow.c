// served_slow: a coordinator under `muster launch --workers 1 --ps 2` whose servers have copies. One server is killed,
// and the process that replaces it is slow, because it is stopped most of the time, while it gets its copies and
// updates continue. The data that the other server keeps for it meanwhile are bounded, the copies become complete, and
// then they are all that is left: no update is lost.
//
// The exit code is 0 if all is as expected.
#define _GNU_SOURCE // usleep
#include <muster.h>

#include <pthread.h>
#include <stdatomic.h>

#include "served_tasks.h"

// Server 0 gets the large variables: 64 MiB, of which a transfer has a copy in memory, besides at most 16 MiB and half
// of that for updates. RUNS and STOPS are in microseconds.
enum { LARGE = 16, ELEMENTS = 1 << 20, MIB = ELEMENTS * 4 >> 20, MOST_GROWTH_MIB = 160, RUNS = 1000, STOPS = 100000 };

static atomic_long slow_pid; // of the process that is slow; 0: none is
static atomic_bool ending;

static void *slow_down(void *arg)
{
    (void)arg;
    while (!ending) {
        const long pid = slow_pid;
        if (pid > 0 && kill((pid_t)pid, SIGSTOP) == 0) {
            usleep(STOPS);
            kill((pid_t)pid, SIGCONT);
        }
        usleep(RUNS);
    }
    return NULL;
}

static long resident_mib(long pid)
{
    char path[64], line[200];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "VmRSS: %ld", &kib) != 1)
        ;
    if (file)
        fclose(file);
    return kib >> 10;
}

static mu_tensor *filled(float value)
{
    static float values[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = value;
    return mu_tensor_new(MU_F32, 1, (int64_t[]){ELEMENTS}, values);
}

static mu_variable *make_variables(mu_strategy *strategy)
{
    mu_variable *first = NULL;
    MU_SCOPE(strategy) {
        for (int i = 0; i < LARGE; i++) {
            mu_variable *large = mu_variable_new(filled(0), "large");
            mu_variable_new(mu_constant(MU_F32, 0), "small");
            first = first ? first : large;
        }
    }
    return first;
}

// The process that replaces the killed one is slow from its beginning.
static void kill_and_slow_down(void)
{
    const long before = process_of("ps", 1);
    kill_task("ps", 1);
    long pid = before;
    for (int i = 0; i < 6000 && (pid == before || pid == 0); i++) {
        usleep(10000);
        pid = process_of("ps", 1);
    }
    slow_pid = pid;
}

// Makes updates until all copies are complete; returns how many.
static int update_meanwhile(mu_strategy *strategy, mu_variable *v, long *most_mib)
{
    const long pid = process_of("ps", 0);
    mu_tensor *one = filled(1);
    int n = 0;
    for (bool behind = true; behind && n < 5000; n++) {
        expect(mu_variable_assign_add(v, one) == MU_OK, "an update succeeds");
        const long now = resident_mib(pid);
        *most_mib = now > *most_mib ? now : *most_mib;
        behind = recovery_of(strategy).copies_behind > 0;
    }
    return n;
}

int main(void)
{
    pthread_t slowing;
    long most_mib = 0;
    mu_init(.cpu_devices = 1);
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1);
    mu_variable *v = make_variables(strategy);
    wait_for_copies(strategy);
    const long before_mib = resident_mib(process_of("ps", 0));
    expect(pthread_create(&slowing, NULL, slow_down, NULL) == 0, "a thread");
    kill_and_slow_down();
    const int n = update_meanwhile(strategy, v, &most_mib);
    printf("%d updates of %d MiB while %d MiB were copied: server 0 had %ld MiB, then at most %ld\n", n, MIB,
           LARGE * MIB, before_mib, most_mib);
    expect(most_mib - before_mib < MOST_GROWTH_MIB, "what is kept for a slow copy is bounded");
    wait_for_copies(strategy);
    ending = true;
    pthread_join(slowing, NULL);
    kill_task("ps", 0);
    mu_tensor *value = mu_variable_read(v);
    expect(value && mu_tensor_item(value, 0) == n && mu_tensor_item(value, ELEMENTS - 1) == n,
           "the copy has every update once");
    expect(recovery_of(strategy).updates_lost == 0, "no update is lost");
    printf("%d not as expected\n", n_wrong);
    return mu_exit(n_wrong == 0) || n_wrong > 0;
}
