// Shared by programs under `muster launch --workers 3 --ps 2` that kill or stop other tasks: finding the tasks'
// processes, and small functions on variables of two servers. The program defines _GNU_SOURCE.
#ifndef MU_TESTS_SERVED_TASKS_H
#define MU_TESTS_SERVED_TASKS_H

#include "../launched.h"

#include <muster.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int n_wrong;

static inline void expect(bool good, const char *what)
{
    const mu_error error = good ? (mu_error){.message = ""} : mu_error_take();
    if (!good)
        printf("NOT AS EXPECTED: %s; %s\n", what, error.message ? error.message : "");
    n_wrong += !good;
}

// ---- The other processes ------------------------------------------------------------------------

// Waits until the task's process is there and sends it a signal; returns the process.
static inline long signal_task(const char *job, int index, int number)
{
    long pid = 0;
    for (int i = 0; i < 6000 && (pid = process_of(job, index)) == 0; i++)
        usleep(10000);
    expect(pid > 0 && kill((pid_t)pid, number) == 0, "the process that gets a signal is there");
    return pid;
}

static inline void kill_task(const char *job, int index) { signal_task(job, index, SIGKILL); }

static inline bool thread_is_stopped(long pid, const char *thread)
{
    char path[64], line[400] = "";
    snprintf(path, sizeof path, "/proc/%ld/task/%.20s/stat", pid, thread);
    FILE *file = fopen(path, "re");
    if (!file)
        return true; // it has ended
    const size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = '\0';
    const char *name_end = strrchr(line, ')');
    return name_end && strncmp(name_end, ") T", 3) == 0;
}

static inline bool process_is_stopped(long pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/task", pid);
    DIR *threads = opendir(path);
    bool stopped = threads != NULL;
    for (struct dirent *entry; stopped && (entry = readdir(threads)) != NULL;)
        stopped = entry->d_name[0] == '.' || thread_is_stopped(pid, entry->d_name);
    if (threads)
        closedir(threads);
    return stopped;
}

// Stops a task's process, and returns it once none of its threads runs any more (kill returns earlier).
static inline long stop_task(const char *job, int index)
{
    const long pid = signal_task(job, index, SIGSTOP);
    for (int i = 0; i < 6000 && !process_is_stopped(pid); i++)
        usleep(1000);
    expect(process_is_stopped(pid), "the process is stopped");
    return pid;
}

static inline mu_worker_calls calls_of(mu_coordinator *c, int worker)
{
    mu_worker_calls calls = {0};
    mu_coordinator_worker_calls(c, worker, &calls);
    return calls;
}

static inline mu_ps_recovery recovery_of(mu_strategy *strategy)
{
    mu_ps_recovery recovery = {0};
    expect(mu_parameter_server_recovery(strategy, &recovery) == MU_OK, "the numbers of recoveries are there");
    return recovery;
}

static inline void wait_for_copies(mu_strategy *strategy)
{
    for (int i = 0; i < 6000 && recovery_of(strategy).copies_behind > 0; i++)
        usleep(10000);
    expect(recovery_of(strategy).copies_behind == 0, "every server's variables have a copy again");
}

static inline mu_value *add_to_both(mu_value *arguments, void *arg)
{
    mu_variable **v = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_variable_assign_add(v[0], x);
    mu_variable_assign_add(v[1], x);
    return mu_of(x);
}

static inline void make_two(mu_strategy *strategy, mu_variable **v)
{
    MU_SCOPE(strategy) {
        v[0] = mu_variable_new(mu_constant(MU_F32, 0), "a");
        v[1] = mu_variable_new(mu_constant(MU_F32, 0), "b");
    }
}

#endif
