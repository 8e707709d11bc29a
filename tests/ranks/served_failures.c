// served_failures PART: a coordinator under `muster launch --workers 3 --ps 2` whose tasks fail in other ways than
// being killed once (served_job.c). The environment sets MUSTER_HEARTBEAT.
//
// stopped:   a worker is stopped, and a copied server. The worker is called silent, one that is killed is not. All
//            steps end meanwhile, each counts once, and both work again when they are continued.
// rolling:   each copied server is told to end (SIGTERM), drains and starts again, while steps run. Each counts once.
// snapshots: a server is killed that has snapshots. Its variables go back, what was lost is counted, and old files go.
// cut:       a server is killed that has snapshots, which were taken while steps ran: all go back to one moment.
// both:      servers have copies and snapshots. One that is killed is replaced by its copy, and when both are, all go
//            back to one moment.
// tables:    servers are killed that have copies of embedding tables. Each update counts once, whoever made it.
// large:     copied servers are killed while updates of many megabytes are on their way. Each counts once.
// kills N:   random workers and copied servers are killed N times each, while steps run. Each counts once.
//
// The exit code is 0 if all is as expected.
#define _GNU_SOURCE // usleep, mkdtemp
#include <muster.h>

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "served_log.h"
#include "served_sums.h"

enum { STEPS = 300, BETWEEN = 40 };

// ---- stopped ------------------------------------------------------------------------------------

static void stop_worker(job *j)
{
    expect_work(j, 1);
    const long pid = stop_task("worker", 1);
    schedule(j, STEPS);
    expect_sums(j, "a worker is stopped");
    kill((pid_t)pid, SIGCONT);
    expect_work(j, 1);
}

static void stop_server(job *j)
{
    const int64_t before = recovery_of(j->strategy).failovers;
    wait_for_copies(j->strategy);
    const long pid = stop_task("ps", 0);
    schedule(j, STEPS);
    expect_sums(j, "a server is stopped");
    expect(recovery_of(j->strategy).failovers > before, "its copy took over");
    kill((pid_t)pid, SIGCONT);
    wait_for_copies(j->strategy);
    schedule(j, STEPS);
    expect_sums(j, "the server still works");
}

static void stopped(void)
{
    served_log l = log_begin();
    job j = begin(mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1));
    stop_worker(&j);
    expect(log_says(&l, "no sign of life for"), "a stopped task is called silent");
    kill_task("worker", 2);
    expect_work(&j, 2);
    expect(log_says(&l, "the reply: connection closed") || log_says(&l, "was lost, or is a new process"),
           "and a killed one is not");
    stop_server(&j);
    expect(recovery_of(j.strategy).updates_lost == 0, "no update is lost");
    log_end(&l);
}

// ---- rolling ------------------------------------------------------------------------------------

static void rolling(void)
{
    job j = begin(mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1));
    for (int round = 0; round < 2; round++)
        for (int server = 0; server < 2; server++) {
            wait_for_copies(j.strategy);
            schedule(&j, STEPS);
            const long pid = signal_task("ps", server, SIGTERM);
            schedule(&j, STEPS);
            expect_sums(&j, "a server is told to end");
            for (int i = 0; i < 6000 && process_of("ps", server) == pid; i++)
                usleep(10000);
            expect(process_of("ps", server) != pid, "the server has ended");
        }
    expect(recovery_of(j.strategy).updates_lost == 0, "no update is lost");
}

// ---- snapshots ----------------------------------------------------------------------------------

static void add_once(job *j)
{
    mu_variable_assign_add(j->v[0], mu_constant(MU_F32, 1));
    mu_variable_assign_add(j->v[1], mu_constant(MU_F32, 1));
    j->scheduled++;
}

static void wait_for_snapshots(job *j, int64_t more)
{
    const int64_t wanted = recovery_of(j->strategy).snapshots + more;
    for (int i = 0; i < 6000 && recovery_of(j->strategy).snapshots < wanted; i++)
        usleep(10000);
    expect(recovery_of(j->strategy).snapshots >= wanted, "snapshots are written");
}

static int files_in(const char *folder)
{
    int n = 0;
    DIR *directory = opendir(folder);
    for (const struct dirent *file; directory && (file = readdir(directory));)
        n += file->d_name[0] != '.' && !strstr(file->d_name, ".tmp-"); // a killed server leaves what it was writing
    if (directory)
        closedir(directory);
    return n;
}

// Servers are still writing into it.
static void delete_folder(const char *folder)
{
    char command[80];
    bool deleted = false;
    snprintf(command, sizeof command, "rm -rf '%s' 2>/dev/null", folder);
    for (int i = 0; i < 100 && !deleted; i++)
        deleted = system(command) == 0;
    expect(deleted, "the folder is deleted");
}

// Servers report the updates that clients have lost when they are asked the next time.
static mu_ps_recovery when_counted(const job *j, int64_t lost)
{
    mu_ps_recovery recovery = recovery_of(j->strategy);
    for (int i = 0; i < 1000 && recovery.updates_lost != lost; i++) {
        usleep(10000);
        recovery = recovery_of(j->strategy);
    }
    return recovery;
}

// Steps of three workers add to the variable of server 0 and, when that is acknowledged, to the one of server 1. So at
// any one moment the first is ahead by at most one step of each worker; if each server made its cut at a moment of its
// own, the second could be ahead.
static void cut(void)
{
    char folder[] = "/tmp/muster-cut-XXXXXX";
    expect(mkdtemp(folder) != NULL, "a folder can be made");
    job j = begin(
        mu_parameter_server_strategy(mu_cluster_from_environment(), .snapshot_every = 0.1, .snapshot_folder = folder));
    while (recovery_of(j.strategy).snapshots < 3) {
        mu_pool *pool = mu_pool_open();
        if (mu_coordinator_queued(j.coordinator) < 10)
            schedule_steps(&j, 10);
        usleep(100);
        mu_pool_close(pool);
    }
    expect(mu_join(j.coordinator) == MU_OK, "steps end");
    kill_task("ps", 0);
    const double a = mu_scalar(mu_variable_read(j.v[0])), b = mu_scalar(mu_variable_read(j.v[1]));
    printf("a server is killed after steps: %g and %g of %lld\n", a, b, (long long)j.scheduled);
    expect(a > 0 && a < (double)j.scheduled, "the snapshot is of a moment while steps ran");
    expect(a - b >= 0 && a - b <= 3, "all servers go back to one moment");
    delete_folder(folder);
}

// This process makes all updates, so it knows all acknowledged ones.
static void snapshots(void)
{
    char folder[] = "/tmp/muster-snapshots-XXXXXX";
    expect(mkdtemp(folder) != NULL, "a folder can be made");
    job j = begin(
        mu_parameter_server_strategy(mu_cluster_from_environment(), .snapshot_every = 0.1, .snapshot_folder = folder));
    for (int server = 0; server < 2; server++) {
        for (int i = 0; i < STEPS; i++)
            add_once(&j);
        wait_for_snapshots(&j, 2); // the second begins after all these updates
        for (int i = 0; i < STEPS; i++)
            add_once(&j);
        kill_task("ps", server);
        add_once(&j);
        const double a = mu_scalar(mu_variable_read(j.v[0])), b = mu_scalar(mu_variable_read(j.v[1]));
        const mu_ps_recovery recovery = when_counted(&j, 2 * j.scheduled - (int64_t)(a + b));
        printf("server %d killed: %g and %g of %lld, %lld updates lost, %lld restores\n", server, a, b,
               (long long)j.scheduled, (long long)recovery.updates_lost, (long long)recovery.restores);
        expect(a + b + (double)recovery.updates_lost == 2 * (double)j.scheduled, "what is lost is counted");
        expect(a >= STEPS * (1 + server) && b >= STEPS * (1 + server), "what a snapshot has comes back");
        expect(recovery.restores >= 2 * (server + 1), "all variables go back to one moment");
    }
    wait_for_snapshots(&j, 3);
    expect(files_in(folder) <= 6, "files of old snapshots are deleted");
    delete_folder(folder);
}

// ---- both ---------------------------------------------------------------------------------------

// While steps run, so that cuts are made between their changes.
static void steps_and_snapshots(job *j, int64_t more)
{
    const int64_t wanted = recovery_of(j->strategy).snapshots + more;
    for (int i = 0; i < 600000 && recovery_of(j->strategy).snapshots < wanted; i++) {
        mu_pool *pool = mu_pool_open();
        if (mu_coordinator_queued(j->coordinator) < 10)
            schedule_steps(j, 10);
        usleep(100);
        mu_pool_close(pool);
    }
    expect(recovery_of(j->strategy).snapshots >= wanted, "snapshots are written");
}

static void one_at_a_time(job *j)
{
    for (int server = 0; server < 2; server++) {
        wait_for_copies(j->strategy);
        steps_and_snapshots(j, 2);
        kill_task("ps", server);
        schedule(j, BETWEEN);
        expect_sums(j, "a server is killed that has a copy and snapshots");
    }
    const mu_ps_recovery recovery = recovery_of(j->strategy);
    expect(recovery.failovers >= 2, "copies took over");
    expect(recovery.restores == 0 && recovery.updates_lost == 0, "no update is lost");
}

static void both_at_once(job *j)
{
    wait_for_copies(j->strategy);
    const int64_t cuts = recovery_of(j->strategy).snapshots + 2;
    while (recovery_of(j->strategy).snapshots < cuts) // the second began after all steps until here
        usleep(1000);
    const double least = (double)j->scheduled;
    for (int i = 0; i < BETWEEN; i++)
        add_once(j);
    kill_task("ps", 0);
    kill_task("ps", 1);
    steps_and_snapshots(j, 2);
    expect(mu_join(j->coordinator) == MU_OK, "steps end");
    const double a = mu_scalar(mu_variable_read(j->v[0])), b = mu_scalar(mu_variable_read(j->v[1]));
    printf("both killed: %g and %g of %lld, of which %g were in a snapshot\n", a, b, (long long)j->scheduled, least);
    expect(a >= least && b >= least, "what a snapshot has comes back");
    expect(a == b || a == b + 1, "all servers go back to one moment"); // a step adds to the first one first
    expect(recovery_of(j->strategy).restores >= 2, "all variables go back");
    wait_for_copies(j->strategy);
}

static void both(void)
{
    char folder[] = "/tmp/muster-both-XXXXXX";
    expect(mkdtemp(folder) != NULL, "a folder can be made");
    job j = begin(mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1, .snapshot_every = 0.05,
                                               .snapshot_folder = folder));
    one_at_a_time(&j);
    both_at_once(&j);
    delete_folder(folder);
}

// ---- tables -------------------------------------------------------------------------------------

enum { KEYS = 16 };

static mu_tensor *all_keys(void) { return mu_range(MU_I64, 0, KEYS, 1); }

// Gradient descent with rate 1 from zero: a row's values count the updates of its key.
static void update_all(mu_embedding_table *table)
{
    mu_embedding_table_apply_gradients(table, all_keys(), mu_fill(MU_F32, 2, (int64_t[]){KEYS, 1}, -1));
}

static mu_value *update_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    update_all(arg);
    return mu_of(mu_constant(MU_F32, 1));
}

// This process makes `own` updates, and workers between `fewest` and `most`.
static void expect_rows(mu_embedding_table *table, int64_t own, int64_t fewest, int64_t most, const char *when)
{
    mu_tensor *rows = mu_embedding_table_lookup(table, all_keys(), .read_only = true);
    double low = HUGE_VAL, high = -HUGE_VAL;
    expect(rows != NULL, "rows can be looked up");
    for (int64_t i = 0; rows && i < KEYS; i++) {
        const double row = mu_tensor_item(rows, i);
        low = row < low ? row : low;
        high = row > high ? row : high;
    }
    printf("%s: rows from %g to %g; %lld updates here, %lld to %lld by workers\n", when, low, high, (long long)own,
           (long long)fewest, (long long)most);
    expect(low >= (double)(own + fewest) && high <= (double)(own + most), "each update counts once");
    expect(mu_embedding_table_row_count(table) == KEYS, "each key has one row");
}

static void tables(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_embedding_table *own = NULL, *shared = NULL;
    MU_SCOPE(strategy) {
        own = mu_embedding_table_new(1, .initializer = "zeros", .optimizer = "sgd", .learning_rate = 1, .name = "own");
        shared =
            mu_embedding_table_new(1, .initializer = "zeros", .optimizer = "sgd", .learning_rate = 1, .name = "shared");
    }
    mu_function *step = mu_function_new(update_step, shared);
    int64_t updates = 0, retried = 0, steps = 0;
    for (int server = 0; server < 2; server++) {
        wait_for_copies(strategy);
        for (int i = 0; i < STEPS; i++) {
            mu_schedule(c, step);
            update_all(own);
            if (i == STEPS / 2)
                kill_task("ps", server);
        }
        updates += STEPS;
        steps += STEPS;
        expect(mu_join(c) == MU_OK, "all steps end");
        retried = 0;
        for (int i = 0; i < 3; i++)
            retried += calls_of(c, i).retried;
        expect_rows(own, updates, 0, 0, "a server is killed");
        expect_rows(shared, 0, steps, steps + retried, "with workers");
    }
    expect(recovery_of(strategy).failovers >= 2, "copies took over");
    expect(recovery_of(strategy).updates_lost == 0, "no update is lost");
}

// ---- large --------------------------------------------------------------------------------------

enum { LARGE = 2 << 20, ADDS = 12, ADDERS = 4 };

typedef struct adder {
    pthread_t thread;
    mu_variable *to;
    atomic_int *done; // of all
    mu_status status;
} adder;

static void *add_often(void *arg)
{
    adder *a = arg;
    for (int i = 0; i < ADDS && a->status == MU_OK; i++) {
        mu_pool *pool = mu_pool_open();
        a->status = mu_variable_assign_add(a->to, mu_ones(MU_F32, 1, (int64_t[]){LARGE}));
        if (a->status != MU_OK)
            printf("an update fails: %s\n", mu_error_take().message);
        mu_pool_close(pool);
        ++*a->done;
    }
    return NULL;
}

// Two threads add ones to each variable, and a server is killed in the middle of that.
static void add_and_kill(mu_variable *const v[2], int server)
{
    atomic_int done = 0;
    adder adders[ADDERS];
    for (int i = 0; i < ADDERS; i++) {
        adders[i] = (adder){.to = v[i % 2], .done = &done};
        expect(pthread_create(&adders[i].thread, NULL, add_often, &adders[i]) == 0, "a thread begins");
    }
    while (done < ADDERS * ADDS / 3)
        usleep(1000);
    kill_task("ps", server);
    for (int i = 0; i < ADDERS; i++) {
        pthread_join(adders[i].thread, NULL);
        expect(adders[i].status == MU_OK, "all updates are acknowledged");
    }
}

static void large(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1);
    mu_variable *v[2];
    MU_SCOPE(strategy) {
        for (int i = 0; i < 2; i++)
            v[i] = mu_variable_new(mu_zeros(MU_F32, 1, (int64_t[]){LARGE}), i == 0 ? "a" : "b");
    }
    for (int server = 0; server < 2; server++) {
        wait_for_copies(strategy);
        add_and_kill(v, server);
        for (int i = 0; i < 2; i++) {
            mu_tensor *value = mu_variable_read(v[i]);
            const double low = mu_scalar(mu_reduce_min(value, MU_ALL_AXES));
            const double high = mu_scalar(mu_reduce_max(value, MU_ALL_AXES));
            printf("server %d killed: elements from %g to %g\n", server, low, high);
            expect(low == high && low == ADDERS / 2 * ADDS * (server + 1), "each update counts once in each element");
        }
    }
    expect(recovery_of(strategy).failovers >= 2, "copies took over");
    expect(recovery_of(strategy).updates_lost == 0, "no update is lost");
}

// ---- kills --------------------------------------------------------------------------------------

// The launcher gives up a task that ends five times in a row within 2 s of its start.
typedef struct lives {
    time_t began;
    int short_ones;
} lives;

static void kill_kindly(const char *job, int index, lives *l)
{
    while (l->short_ones == 3 && time(NULL) < l->began + 4)
        usleep(20000);
    kill_task(job, index);
    l->short_ones = time(NULL) >= l->began + 4 ? 0 : l->short_ones + 1;
    l->began = time(NULL);
}

static void kills(int n)
{
    lives servers[2] = {{0}}, workers[3] = {{0}};
    job j = begin(mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1));
    unsigned chance = 1;
    for (int i = 0; i < n && n_wrong == 0; i++) {
        wait_for_copies(j.strategy);
        schedule(&j, BETWEEN);
        usleep(rand_r(&chance) % 20000);
        const int server = (int)(rand_r(&chance) % 2), worker = (int)(rand_r(&chance) % 3);
        kill_kindly("ps", server, &servers[server]);
        schedule(&j, BETWEEN);
        usleep(rand_r(&chance) % 20000);
        kill_kindly("worker", worker, &workers[worker]);
        expect_sums(&j, "killed");
    }
    expect(recovery_of(j.strategy).updates_lost == 0, "no update is lost");
    printf("%d servers and %d workers killed, %lld failovers\n", n, n, (long long)recovery_of(j.strategy).failovers);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    mu_init(.cpu_devices = 1);
    if (strcmp(part, "stopped") == 0)
        stopped();
    else if (strcmp(part, "rolling") == 0)
        rolling();
    else if (strcmp(part, "snapshots") == 0)
        snapshots();
    else if (strcmp(part, "cut") == 0)
        cut();
    else if (strcmp(part, "both") == 0)
        both();
    else if (strcmp(part, "tables") == 0)
        tables();
    else if (strcmp(part, "large") == 0)
        large();
    else if (strcmp(part, "kills") == 0 && argc == 3)
        kills(atoi(argv[2]));
    else
        return 64;
    printf("%s: %d not as expected\n", part, n_wrong);
    return mu_exit(n_wrong == 0) || n_wrong > 0;
}
