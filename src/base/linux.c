// The default system: Linux. Clock, random bytes, the process's identity, pollers, and the table of all functions.
//
// Its clock is the monotonic one: wall-clock time jumps, and no wait may depend on it.
#include "base/linux.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- Time, chance, identity ---------------------------------------------------------------------

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_ns(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static bool random_bytes(void *out, size_t bytes)
{
    uint8_t *at = out;
    while (bytes > 0) {
        const ssize_t n = getrandom(at, bytes, 0);
        if (n < 0 && errno != EINTR)
            return false;
        at += MU_MAX(n, 0);
        bytes -= (size_t)MU_MAX(n, 0);
    }
    return true;
}

static uint32_t process(void) { return (uint32_t)getpid(); }

// Boot, user, and the namespaces of sockets, process IDs and /dev/shm.
static bool memory_domain(char *text, size_t bytes)
{
    char net[64] = "", pid[64] = "", boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL && fgets(boot, sizeof boot, file) == NULL)
        boot[0] = '\0';
    if (file != NULL)
        fclose(file);
    struct stat shm = {0};
    if (boot[0] == '\0' || readlink("/proc/self/ns/net", net, sizeof net - 1) <= 0 ||
        readlink("/proc/self/ns/pid", pid, sizeof pid - 1) <= 0 || stat("/dev/shm", &shm) != 0)
        return false;
    snprintf(text, bytes, "%s %s %s %lu %lu %u", boot, net, pid, (unsigned long)shm.st_dev, (unsigned long)shm.st_ino,
             (unsigned)geteuid());
    return true;
}

// ---- Pollers and wakers -------------------------------------------------------------------------

enum { MOST_EVENTS = 64 }; // that one call reports

static int poller_new(void) { return epoll_create1(EPOLL_CLOEXEC); }

static bool poller_set(int poller, int fd, short events, uint64_t tag)
{
    struct epoll_event event = {.events = (events & POLLIN ? EPOLLIN : 0u) | (events & POLLOUT ? EPOLLOUT : 0u),
                                .data.u64 = tag};
    return epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event) == 0 ||
           (errno == ENOENT && epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void poller_unset(int poller, int fd) { epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL); }

static int poller_wait(int poller, mu_ready *out, int most, int64_t deadline_ns)
{
    struct epoll_event events[MOST_EVENTS];
    const int64_t left = deadline_ns == MU_FOREVER ? INT64_MAX : deadline_ns - now_ns();
    const int wait_ms = left <= 0 ? 0 : (int)MU_MIN(left / 1000000 + 1, (int64_t)INT32_MAX);
    const int n = epoll_wait(poller, events, MU_MIN(most, MOST_EVENTS), wait_ms);
    for (int i = 0; i < n; i++)
        out[i].tag = events[i].data.u64;
    return MU_MAX(n, 0);
}

static int waker_new(void) { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }

static void waker_wake(int waker)
{
    const uint64_t one = 1;
    if (write(waker, &one, sizeof one) < 0)
        return; // already awake: the counter is full
}

static void waker_clear(int waker)
{
    uint64_t count;
    if (read(waker, &count, sizeof count) < 0)
        return; // another wake-up has already been read
}

static void close_fd(int fd) { close(fd); }

static ssize_t write_file(int fd, const void *data, size_t bytes) { return write(fd, data, bytes); }

// ---- The table ----------------------------------------------------------------------------------

const mu_system mu__linux = {
    .name = "linux",
    .threads = true,
    .now_ns = now_ns,
    .sleep_ns = sleep_ns,
    .random = random_bytes,
    .process = process,
    .memory_domain = memory_domain,
    .read_file = mu__linux_read_file,
    .write_file = write_file,
    .lookup_start = mu__linux_lookup_start,
    .lookup_done = mu__linux_lookup_done,
    .lookup_drop = mu__linux_lookup_drop,
    .listen = mu__linux_listen,
    .accept = mu__linux_accept,
    .port_holder = mu__linux_port_holder,
    .connect = mu__linux_connect,
    .connect_result = mu__linux_connect_result,
    .endpoint = mu__linux_endpoint,
    .settle = mu__linux_settle,
    .send = mu__linux_send,
    .recv = mu__linux_recv,
    .end_output = mu__linux_end_output,
    .all_received = mu__linux_all_received,
    .close = close_fd,
    .wait = mu__linux_wait,
    .poller_new = poller_new,
    .poller_set = poller_set,
    .poller_unset = poller_unset,
    .poller_wait = poller_wait,
    .waker_new = waker_new,
    .waker_wake = waker_wake,
    .waker_clear = waker_clear,
};

const mu_system *mu__system = &mu__linux;
