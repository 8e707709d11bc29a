// How threads wait for each other: a barrier with one counter, an eventcount, and the backoff that all waits use.
//
// The counter of arrivals only grows: the n-th barrier of r ranks ends when it reaches n * r. Sleepers sleep on that
// same word, so no wake-up is lost. Abort adds a large number (LEAP) to the counter, which passes every target: all
// ranks leave and report the failure, except from a barrier that was already complete, because ranks that left it have
// used its result. Independent of collectives.
#include "comm/comm.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEAP 0x40000000u

enum {
    PAUSES_PER_LOOK = 16, // pauses between two reads of the clock
    SPIN_NS = 20 * 1000,  // if each rank has a core
    YIELD_NS = 300 * 1000,
    SLEEP_NS = 100 * 1000 * 1000
};

bool mu__backoff_pause(mu_backoff *backoff)
{
    const bool calm = backoff->calm != NULL && atomic_load_explicit(backoff->calm, memory_order_relaxed);
    if (!calm && !backoff->crowded && backoff->spins++ % PAUSES_PER_LOOK != 0) {
        mu__cpu_pause();
        return true;
    }
    const int64_t now = mu__now_ns();
    if (backoff->began_ns == 0) {
        backoff->began_ns = now;
        backoff->deadline_ns = mu__deadline_ns(backoff->timeout);
    }
    const int64_t waited = now - backoff->began_ns;
    if (calm)
        return false;
    if (backoff->crowded || waited > SPIN_NS)
        sched_yield();
    return waited < YIELD_NS;
}

mu_status mu__backoff_check(const mu_backoff *backoff)
{
    if (backoff->began_ns != 0 && mu__now_ns() >= backoff->deadline_ns)
        return MU_DEADLINE_EXCEEDED;
    return backoff->idle != NULL ? backoff->idle(backoff->idle_arg) : MU_OK;
}

// The kernel finds sleepers faster if they are all in one process.
static int futex_flags(const atomic_bool *between_processes)
{
    return atomic_load_explicit(between_processes, memory_order_relaxed) ? 0 : FUTEX_PRIVATE_FLAG;
}

// Sleeps while the word equals `seen`, until woken, or SLEEP_NS or the deadline has passed.
static void sleep_on(atomic_uint *word, int flags, unsigned seen, int64_t deadline_ns)
{
    const int64_t left = MU_MIN(deadline_ns - mu__now_ns(), (int64_t)SLEEP_NS);
    if (left <= 0)
        return;
    const struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT | flags, seen, &time, NULL, 0);
}

static void wake_all(atomic_uint *word, atomic_int *sleepers, int flags)
{
    if (atomic_load(sleepers) > 0)
        syscall(SYS_futex, word, FUTEX_WAKE | flags, INT32_MAX, NULL, NULL, 0);
}

// ---- Eventcount ---------------------------------------------------------------------------------

void mu__eventcount_notify(mu_eventcount *changes)
{
    atomic_fetch_add(&changes->notified, 1);
    wake_all(&changes->notified, &changes->sleepers, futex_flags(&changes->between_processes));
}

// A sleeper is counted before it tests the condition, so a later notification sees it.
mu_status mu__eventcount_wait(mu_eventcount *changes, bool (*so)(const void *arg), const void *arg, mu_backoff backoff)
{
    mu_status status = MU_OK;
    while (!so(arg) && status == MU_OK) {
        if (mu__backoff_pause(&backoff))
            continue;
        atomic_fetch_add(&changes->sleepers, 1);
        const unsigned notified = atomic_load(&changes->notified);
        if (!so(arg) && (status = mu__backoff_check(&backoff)) == MU_OK)
            sleep_on(&changes->notified, futex_flags(&changes->between_processes), notified, backoff.deadline_ns);
        atomic_fetch_sub(&changes->sleepers, 1);
    }
    return status;
}

// ---- Barrier ------------------------------------------------------------------------------------

static bool reached(unsigned arrivals, unsigned target) { return (int32_t)(arrivals - target) >= 0; }

// After an abort no rank enters another barrier, so the counter without LEAP says whether all had arrived at this one.
static bool all_came(unsigned arrivals, unsigned target)
{
    const unsigned past = arrivals - target;
    return reached(past >= LEAP / 2 && past < 2 * LEAP ? arrivals - LEAP : arrivals, target);
}

// A sleeper is counted before the kernel compares the word, so the thread that changes the word last sees it.
static mu_status sleep_until(mu_barrier *barrier, unsigned target, const mu_backoff *backoff)
{
    mu_status status = MU_OK;
    atomic_fetch_add(&barrier->sleepers, 1);
    for (;;) {
        const unsigned arrivals = atomic_load(&barrier->arrivals);
        if (reached(arrivals, target))
            break;
        status = mu__backoff_check(backoff);
        if (status != MU_OK)
            break;
        sleep_on(&barrier->arrivals, futex_flags(&barrier->between_processes), arrivals, backoff->deadline_ns);
    }
    atomic_fetch_sub(&barrier->sleepers, 1);
    return status;
}

mu_status mu__barrier_wait(mu_barrier *barrier, uint32_t *epoch, int ranks, mu_backoff backoff)
{
    const unsigned target = ++*epoch * (unsigned)ranks;
    unsigned arrivals = atomic_fetch_add(&barrier->arrivals, 1) + 1;
    if (arrivals == target)
        wake_all(&barrier->arrivals, &barrier->sleepers, futex_flags(&barrier->between_processes));
    while (!reached(arrivals, target)) {
        if (!mu__backoff_pause(&backoff)) {
            const mu_status status = sleep_until(barrier, target, &backoff);
            if (status != MU_OK)
                return status;
        }
        arrivals = atomic_load_explicit(&barrier->arrivals, memory_order_acquire);
    }
    return !atomic_load(&barrier->failed) || all_came(atomic_load(&barrier->arrivals), target) ? MU_OK : MU_ABORTED;
}

void mu__barrier_abort(mu_barrier *barrier)
{
    if (atomic_exchange(&barrier->failed, true))
        return;
    atomic_fetch_add(&barrier->arrivals, LEAP);
    wake_all(&barrier->arrivals, &barrier->sleepers, futex_flags(&barrier->between_processes));
}
