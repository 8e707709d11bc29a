// How threads wait for each other: a barrier with one counter, a bell, and the patience that every wait shares.
//
// The counter of arrivals only grows; the n-th barrier of r ranks is over when it has reached n * r, and it
// is the word that sleepers sleep on, so nobody can miss it. Abort makes the counter leap past every
// target: all leave, see that it failed and say so, except where all had come before: a rank that went on and
// failed later must not undo what it took part in. Knows nothing of collectives.
#include "comm/comm.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEAP 0x40000000u

enum {
    PAUSES_PER_LOOK = 16, // pauses between two looks at the clock
    SPIN_NS = 20 * 1000,  // with a core for each rank
    YIELD_NS = 300 * 1000,
    SLEEP_NS = 100 * 1000 * 1000
};

static void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool mu__patience_turn(mu_patience *patience)
{
    const bool calm = patience->calm != NULL && atomic_load_explicit(patience->calm, memory_order_relaxed);
    if (!calm && !patience->crowded && patience->turns++ % PAUSES_PER_LOOK != 0) {
        cpu_pause();
        return true;
    }
    const int64_t now = mu__now_ns();
    if (patience->began_ns == 0) {
        patience->began_ns = now;
        patience->deadline_ns = mu__deadline_ns(patience->timeout);
    }
    const int64_t waited = now - patience->began_ns;
    if (calm)
        return false;
    if (patience->crowded || waited > SPIN_NS)
        sched_yield();
    return waited < YIELD_NS;
}

mu_status mu__patience_end(const mu_patience *patience)
{
    if (patience->began_ns != 0 && mu__now_ns() >= patience->deadline_ns)
        return MU_DEADLINE_EXCEEDED;
    return patience->idle != NULL ? patience->idle(patience->idle_arg) : MU_OK;
}

// The kernel finds sleepers of one process faster than those of several.
static int futex_flags(const atomic_bool *between_processes)
{
    return atomic_load_explicit(between_processes, memory_order_relaxed) ? 0 : FUTEX_PRIVATE_FLAG;
}

// Sleeps while the word is `seen`, until woken or some time has passed.
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

// ---- Bell ---------------------------------------------------------------------------------------

void mu__bell_ring(mu_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    wake_all(&bell->rings, &bell->sleepers, futex_flags(&bell->between_processes));
}

// One who sleeps is counted before it looks, so whoever rings after that sees the count.
mu_status mu__bell_wait(mu_bell *bell, bool (*so)(const void *arg), const void *arg, mu_patience patience)
{
    mu_status status = MU_OK;
    while (!so(arg) && status == MU_OK) {
        if (mu__patience_turn(&patience))
            continue;
        atomic_fetch_add(&bell->sleepers, 1);
        const unsigned rings = atomic_load(&bell->rings);
        if (!so(arg) && (status = mu__patience_end(&patience)) == MU_OK)
            sleep_on(&bell->rings, futex_flags(&bell->between_processes), rings, patience.deadline_ns);
        atomic_fetch_sub(&bell->sleepers, 1);
    }
    return status;
}

// ---- Barrier ------------------------------------------------------------------------------------

static bool reached(unsigned arrivals, unsigned target) { return (int32_t)(arrivals - target) >= 0; }

// After an abort nobody comes to another barrier, so without the leap the counter tells who had come to this one.
static bool all_came(unsigned arrivals, unsigned target)
{
    const unsigned past = arrivals - target;
    return reached(past >= LEAP / 2 && past < 2 * LEAP ? arrivals - LEAP : arrivals, target);
}

// One who sleeps is counted before the kernel compares the word, so whoever changes it last sees the count.
static mu_status sleep_until(mu_barrier *barrier, unsigned target, const mu_patience *patience)
{
    mu_status status = MU_OK;
    atomic_fetch_add(&barrier->sleepers, 1);
    for (;;) {
        const unsigned arrivals = atomic_load(&barrier->arrivals);
        if (reached(arrivals, target))
            break;
        status = mu__patience_end(patience);
        if (status != MU_OK)
            break;
        sleep_on(&barrier->arrivals, futex_flags(&barrier->between_processes), arrivals, patience->deadline_ns);
    }
    atomic_fetch_sub(&barrier->sleepers, 1);
    return status;
}

mu_status mu__barrier_wait(mu_barrier *barrier, uint32_t *epoch, int ranks, mu_patience patience)
{
    const unsigned target = ++*epoch * (unsigned)ranks;
    unsigned arrivals = atomic_fetch_add(&barrier->arrivals, 1) + 1;
    if (arrivals == target)
        wake_all(&barrier->arrivals, &barrier->sleepers, futex_flags(&barrier->between_processes));
    while (!reached(arrivals, target)) {
        if (!mu__patience_turn(&patience)) {
            const mu_status status = sleep_until(barrier, target, &patience);
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
