// served_cut PART: a coordinator under `muster launch --workers 3 --ps 2`. All connections between the tasks go through
// forwarders, which this process can cut. The environment sets MUSTER_HEARTBEAT.
//
// server:  what comes from a copied server is cut off. With a third argument both servers are cut off in turn, each
//          while it is the primary of all stores: what goes to it, what comes from it, both. The copies continue.
// worker:  a worker is cut off: what goes to it, what comes from it, both. Its steps go to others.
//
// Each cut is reported within the heartbeat's time, every step counts, and after the cut the task works again. The exit
// code is 0 if everything is as expected.
#define _GNU_SOURCE // usleep
#include <muster.h>

#include "../forwarder.h"
#include "../idle_clock.h"
#include "served_log.h"
#include "served_sums.h"

#include <stdlib.h>

enum { WORKERS = 3, SERVERS = 2, STEPS = 120, NO_SERVER = -1 };

static forwarder stretches[WORKERS + SERVERS];

// The same cluster, with a forwarder before each worker and server.
static mu_cluster *behind_stretches(void)
{
    static const char *const jobs[] = {"worker", "ps"};
    static const int counts[] = {WORKERS, SERVERS};
    mu_cluster_spec *real = mu_cluster_get_spec(mu_cluster_from_environment()), *spec = mu_cluster_spec_parse("{}");
    forwarder *f = stretches;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < counts[k]; i++, f++) {
            char address[32];
            const char *at = mu_cluster_spec_task_address(real, jobs[k], i);
            expect(at != NULL && forwarder_start(f, atoi(strrchr(at, ':') + 1)), "a stretch of network begins");
            snprintf(address, sizeof address, "127.0.0.1:%d", f->port);
            mu_cluster_spec_add(spec, jobs[k], i, address);
        }
    return mu_simple_cluster_resolver(spec);
}

static void steps(job *j, const char *when)
{
    schedule(j, STEPS);
    expect_sums(j, when);
}

// Cuts one task off until it is reported, and returns after how many seconds of an idle machine that was: a process
// that did not run for a while gives all others as much more time.
static double named_after(const served_log *l, const char *words, forwarder *f, bool to, bool from)
{
    const double begin = idle_now(), limit = seconds_now() + 60;
    forwarder_cut(f, to, from);
    while (!log_says(l, words) && seconds_now() < limit)
        usleep(20000);
    return idle_now() - begin;
}

static void cut(job *j, int server, bool to, bool from, const char *how)
{
    const double heartbeat = atof(getenv("MUSTER_HEARTBEAT"));
    const bool is_server = server != NO_SERVER;
    forwarder *f = &stretches[is_server ? WORKERS + server : 1];
    char words[64] = "worker 1 is lost";
    served_log l = log_begin();
    if (is_server)
        snprintf(words, sizeof words, "parameter server %d is lost", server);
    wait_for_copies(j->strategy);
    forwarder_cut(f, to, from);
    schedule(j, STEPS);
    const double seconds = named_after(&l, words, f, to, from);
    steps(j, how);
    forwarder_cut(f, false, false);
    log_end(&l);
    printf("%s: named after %.2f s of an idle machine; the heartbeat is %g s\n", how, seconds, heartbeat);
    expect(seconds < 3 * heartbeat, "a cut is named within the heartbeat's time");
    if (is_server)
        wait_for_copies(j->strategy);
    else
        expect_work(j, 1);
    steps(j, "after the cut");
}

int main(int argc, char **argv)
{
    const bool server = argc > 1 && strcmp(argv[1], "server") == 0;
    if (!server && (argc < 2 || strcmp(argv[1], "worker") != 0))
        return 64;
    start_idle_clock(); // a process of its own, so before there are threads
    mu_init(.cpu_devices = 1);
    mu_strategy *strategy = mu_parameter_server_strategy(behind_stretches(), .replicas = 1);
    if (strategy == NULL)
        return mu_exit(false);
    job j = begin(strategy);
    if (j.coordinator == NULL)
        return mu_exit(false);
    steps(&j, "no cut");
    const bool all = !server || argc > 2;
    cut(&j, server ? 0 : NO_SERVER, false, true, "what comes from it is cut");
    if (all)
        cut(&j, server ? 1 : NO_SERVER, true, false, "what goes to it is cut");
    if (all)
        cut(&j, server ? 0 : NO_SERVER, true, true, "both ways are cut");
    expect(!server || recovery_of(j.strategy).failovers >= 1, "copies took over");
    expect(recovery_of(j.strategy).updates_lost == 0, "no update is lost");
    printf("%s: %lld failovers, %d not as expected\n", argv[1], (long long)recovery_of(j.strategy).failovers, n_wrong);
    return mu_exit(n_wrong == 0) || n_wrong > 0;
}
