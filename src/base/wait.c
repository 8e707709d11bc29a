// Waits for another thread: spins briefly, then sleeps in the kernel.
//
// A spinning thread yields its processor and stops spinning as soon as another program ran there: on a busy machine a
// sleeping thread is woken soon, while a spinning thread loses its processor when work arrives.
#include "base/private.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// LOST_NS: longer than one iteration of the loop, with its yield, takes on an idle processor.
enum { PAUSES_PER_YIELD = 32, LOST_NS = 15000 };

void mu__futex_sleep(atomic_int *word, int seen, int64_t deadline_ns)
{
    struct timespec left, *timeout = NULL;
    if (deadline_ns != MU_FOREVER) {
        const int64_t ns = MU_MAX(deadline_ns - mu__now_ns(), 0);
        left = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        timeout = &left;
    }
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout, NULL, 0);
}

// The word may be freed by now (a latch ends with its last arrival). The kernel only compares the address, and a
// thread that sleeps on a reused address wakes spuriously.
void mu__futex_wake(atomic_int *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

bool mu__spin(const atomic_int *word, int mask, int value, bool equal, int64_t most_ns)
{
    const int64_t begin = mu__now_ns();
    int64_t before = begin, now = begin;
    do {
        before = now;
        for (int i = 0; i < PAUSES_PER_YIELD; i++) {
            if (((atomic_load_explicit(word, memory_order_acquire) & mask) == value) == equal)
                return true;
            mu__cpu_pause();
        }
        sched_yield();
        now = mu__now_ns();
    } while (now - begin < most_ns && now - before < LOST_NS);
    return ((atomic_load_explicit(word, memory_order_acquire) & mask) == value) == equal;
}
