// Waiting for another thread: a short spin, then sleep in the kernel.
//
// A spinning thread yields its processor and stops at once when another program ran there meanwhile: on a busy machine
// whoever sleeps is woken soon, while whoever spins loses its processor when work comes.
#include "base/private.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// LOST_NS: longer than a turn of the loop with its yield takes when nobody else wants the processor.
enum { PAUSES_PER_YIELD = 32, LOST_NS = 15000 };

static void pause_shortly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

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

// The word may be gone by now (a latch ends with its last arrival): the kernel only compares the address,
// and who sleeps on a reused one wakes for no reason.
void mu__futex_wake(atomic_int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool mu__spin(const atomic_int *word, int mask, int value, bool equal, int64_t most_ns)
{
    const int64_t begin = mu__now_ns();
    int64_t before = begin, now = begin;
    do {
        before = now;
        for (int i = 0; i < PAUSES_PER_YIELD; i++) {
            if (((atomic_load_explicit(word, memory_order_acquire) & mask) == value) == equal)
                return true;
            pause_shortly();
        }
        sched_yield();
        now = mu__now_ns();
    } while (now - begin < most_ns && now - before < LOST_NS);
    return ((atomic_load_explicit(word, memory_order_acquire) & mask) == value) == equal;
}
