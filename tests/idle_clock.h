// A clock that a busy machine slows down, for limits of time in tests.
//
// Seconds of a machine that has nothing else to do: a process of its own adds up the time that passes, divided by how
// many times slower than alone things run just then. That is the number of threads that want to run over that of
// processors, or how much longer than asked for a short sleep and some work take, whichever is more.
#ifndef MU_TESTS_IDLE_CLOCK_H
#define MU_TESTS_IDLE_CLOCK_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static inline double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void sleep_seconds(double seconds)
{
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

static _Atomic int64_t *idle_ns;

static inline double measured_slowness(double wanted, double passed)
{
    int running = 0;
    FILE *file = fopen("/proc/loadavg", "re");
    if (file != NULL && fscanf(file, "%*f %*f %*f %d/", &running) != 1)
        running = 0;
    if (file != NULL)
        fclose(file);
    const double crowd = (double)running / (double)sysconf(_SC_NPROCESSORS_ONLN), late = passed / wanted;
    return crowd > late && crowd > 1 ? crowd : late > 1 ? late : 1;
}

static inline double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void run_idle_clock(pid_t parent)
{
    enum { WORK = 100000 };
    const double pause = 0.004;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (double before = seconds_now(); getppid() == parent;) {
        const double worked = processor_seconds();
        sleep_seconds(pause);
        for (volatile int i = 0; i < WORK; i++)
            continue;
        const double now = seconds_now(), wanted = pause + 0.0005 + processor_seconds() - worked;
        atomic_fetch_add(idle_ns, (int64_t)((now - before) / measured_slowness(wanted, now - before) * 1e9));
        before = now;
    }
    _exit(0);
}

static inline void start_idle_clock(void)
{
    if (idle_ns != NULL)
        return;
    idle_ns = mmap(NULL, sizeof *idle_ns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (idle_ns == MAP_FAILED)
        abort();
    const pid_t parent = getpid(), clock = fork();
    if (clock < 0)
        abort();
    if (clock == 0)
        run_idle_clock(parent);
}

static inline double idle_now(void)
{
    start_idle_clock();
    return (double)atomic_load(idle_ns) / 1e9;
}

#endif
