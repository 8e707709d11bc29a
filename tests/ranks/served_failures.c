// served_failures PART: a coordinator under `muster launch --workers 3 --ps 2` whose tasks fail in other ways than by
// being killed once (served_job.c). The environment sets MUSTER_HEARTBEAT.
//
// stopped:   a worker is stopped, and a copied server. The worker is called silent, one that is killed is not. All
//            steps end meanwhile, each counts once, and both work again when they go on.
// rolling:   each copied server is told to end (SIGTERM), drains and starts again, while steps run. Each counts once.
// snapshots: a server is killed that has snapshots. Its variables go back, what was lost is counted, and old files go.
// kills N:   random workers and copied servers are killed N times each, while steps run. Each counts once.
//
// The exit code is 0 if all is as expected.
#define _GNU_SOURCE // usleep, mkdtemp
#include <muster.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "served_tasks.h"

enum { STEPS = 300, BETWEEN = 40 };

typedef struct job {
    mu_strategy *strategy;
    mu_coordinator *coordinator;
    mu_variable *v[2];
    mu_function *step;
    mu_value *one;
    int64_t scheduled;
} job;

static job begin(mu_strategy *strategy)
{
    static mu_variable *v[2]; // as long as the function
    job j = {.strategy = strategy, .coordinator = mu_coordinator_new(strategy)};
    make_two(strategy, j.v);
    v[0] = j.v[0], v[1] = j.v[1];
    j.step = mu_function_new(add_to_both, v);
    j.one = mu_list(mu_of(mu_constant(MU_F32, 1)), MU_END);
    return j;
}

static void schedule(job *j, int n)
{
    for (int i = 0; i < n; i++)
        mu_schedule(j->coordinator, j->step, j->one);
    j->scheduled += n;
}

// Each step counts once; one that a lost worker had begun may have been applied before it was tried again.
static void expect_sums(job *j, const char *when)
{
    int64_t retried = 0;
    expect(mu_join(j->coordinator) == MU_OK, "all steps end");
    for (int i = 0; i < 3; i++)
        retried += calls_of(j->coordinator, i).retried;
    const double a = mu_scalar(mu_variable_read(j->v[0])), b = mu_scalar(mu_variable_read(j->v[1]));
    printf("%s: %g and %g of %lld steps, %lld of them tried again\n", when, a, b, (long long)j->scheduled,
           (long long)retried);
    expect(a >= (double)j->scheduled && a <= (double)(j->scheduled + retried),
           "each step counts once, one that was tried again perhaps twice");
    expect(b >= (double)j->scheduled && b <= a, "the second variable of a step follows the first");
}

// ---- stopped ------------------------------------------------------------------------------------

// What this process has written to its standard error goes to a file and, at the end of the part, to its old place.
typedef struct log {
    FILE *file;
    int before;
} log;

static log begin_log(void)
{
    log l = {.file = tmpfile(), .before = dup(STDERR_FILENO)};
    expect(l.file && dup2(fileno(l.file), STDERR_FILENO) >= 0, "messages go to a file");
    return l;
}

static bool says(const log *l, const char *words)
{
    char line[2000];
    bool found = false;
    rewind(l->file);
    while (!found && fgets(line, sizeof line, l->file))
        found = strstr(line, words) != NULL;
    fseek(l->file, 0, SEEK_END);
    return found;
}

static void end_log(log *l)
{
    char line[2000];
    rewind(l->file);
    dup2(l->before, STDERR_FILENO);
    while (fgets(line, sizeof line, l->file))
        fputs(line, stderr);
    fclose(l->file);
}

// Steps until a worker has done one more.
static void expect_work(job *j, int worker)
{
    const int64_t before = calls_of(j->coordinator, worker).done;
    for (int i = 0; i < 6000 && calls_of(j->coordinator, worker).done == before; i++) {
        schedule(j, 3);
        expect(mu_join(j->coordinator) == MU_OK, "steps end");
        usleep(1000);
    }
    expect(calls_of(j->coordinator, worker).done > before, "the worker works");
}

static void stop_worker(job *j)
{
    expect_work(j, 1);
    const long pid = signal_task("worker", 1, SIGSTOP);
    schedule(j, STEPS);
    expect_sums(j, "a worker is stopped");
    kill((pid_t)pid, SIGCONT);
    expect_work(j, 1);
}

static void stop_server(job *j)
{
    const int64_t before = recovery_of(j->strategy).failovers;
    wait_for_copies(j->strategy);
    const long pid = signal_task("ps", 0, SIGSTOP);
    schedule(j, STEPS);
    expect_sums(j, "a server is stopped");
    expect(recovery_of(j->strategy).failovers > before, "its copy took over");
    kill((pid_t)pid, SIGCONT);
    wait_for_copies(j->strategy);
    schedule(j, STEPS);
    expect_sums(j, "the server goes on");
}

static void stopped(void)
{
    log l = begin_log();
    job j = begin(mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1));
    stop_worker(&j);
    expect(says(&l, "no sign of life for"), "a stopped task is called silent");
    kill_task("worker", 2);
    expect_work(&j, 2);
    expect(says(&l, "the reply: connection closed") || says(&l, "was lost, or is a new process"),
           "and a killed one is not");
    stop_server(&j);
    expect(recovery_of(j.strategy).updates_lost == 0, "no update is lost");
    end_log(&l);
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
        n += file->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return n;
}

// Servers tell what clients miss when they are asked the next time.
static mu_ps_recovery when_counted(const job *j, int64_t lost)
{
    mu_ps_recovery recovery = recovery_of(j->strategy);
    for (int i = 0; i < 1000 && recovery.updates_lost != lost; i++) {
        usleep(10000);
        recovery = recovery_of(j->strategy);
    }
    return recovery;
}

// This process makes all updates, so it knows all that were acknowledged.
static void snapshots(void)
{
    char folder[] = "/tmp/muster-snapshots-XXXXXX", command[80];
    expect(mkdtemp(folder) != NULL, "a folder can be made");
    job j = begin(mu_parameter_server_strategy(mu_cluster_from_environment(), .snapshot_every = 0.1,
                                               .snapshot_folder = folder));
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
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    expect(system(command) == 0, "the folder is deleted");
}

// ---- kills --------------------------------------------------------------------------------------

// The launcher gives a task up that ends five times in a row within 2 s of its start.
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
    else if (strcmp(part, "kills") == 0 && argc == 3)
        kills(atoi(argv[2]));
    else
        return 64;
    printf("%s: %d not as expected\n", part, n_wrong);
    return mu_exit(n_wrong == 0) || n_wrong > 0;
}
