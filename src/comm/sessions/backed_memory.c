// Lengthens files in memory without the signal that `ulimit -f` raises.
//
// The limit applies to a memfd too, and exceeding it raises a signal that ends the program. The signal is blocked, and
// discarded if it was raised here, so that only the error remains.
#include "comm/sessions/backed_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

enum { ATTEMPTS = 100 };

typedef struct no_signal {
    sigset_t before;
    bool was_pending;
} no_signal;

static bool is_pending(void)
{
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ) == 1;
}

static no_signal hold_signal(void)
{
    no_signal held = {.was_pending = is_pending()};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &one, &held.before);
    return held;
}

static void let_signal_go(const no_signal *held)
{
    const struct timespec now = {0};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    while (!held->was_pending && is_pending() && sigtimedwait(&one, NULL, &now) < 0 && errno == EINTR)
        continue;
    pthread_sigmask(SIG_SETMASK, &held->before, NULL);
}

int mu__memory_back(int fd, size_t at, size_t bytes)
{
    int error = EINTR;
    const no_signal held = hold_signal();
    for (int i = 0; i < ATTEMPTS && error == EINTR; i++)
        error = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    let_signal_go(&held);
    return error;
}

int mu__memory_lengthen(int fd, size_t bytes)
{
    const no_signal held = hold_signal();
    const int error = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
    let_signal_go(&held);
    return error;
}
