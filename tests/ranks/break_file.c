// Loaded before the C library (LD_PRELOAD): makes the calls that write files below BREAK_FOLDER fail. BREAK_KILL=n
// kills the process before the n-th such call (with BREAK_AFTER: after it), BREAK_FULL=n makes the n-th and all later
// calls fail as on a full disk, BREAK_SLOW=s makes each fsync take s seconds. BREAK_COUNT names a file that gets the
// number of calls. BREAK_VERSION sets the version that the library reports, BREAK_CLOCK=s advances the clock by s
// seconds, BREAK_SEND=ms makes each send take so many milliseconds longer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096 };

static atomic_bool watched[MOST];
static atomic_int calls;

static bool is_ours(const char *path)
{
    const char *folder = getenv("BREAK_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

// Counts a call; returns true if it must fail.
static bool before(void)
{
    const int n = atomic_fetch_add(&calls, 1) + 1;
    if (n == number_of("BREAK_KILL") && !getenv("BREAK_AFTER"))
        kill(getpid(), SIGKILL);
    return number_of("BREAK_FULL") > 0 && n >= number_of("BREAK_FULL");
}

static void after(void)
{
    if (atomic_load(&calls) == number_of("BREAK_KILL") && getenv("BREAK_AFTER"))
        kill(getpid(), SIGKILL);
}

static int full(void)
{
    errno = ENOSPC;
    return -1;
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "open");
    va_list more;
    va_start(more, flags);
    const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    const bool ours = (flags & O_CREAT) && is_ours(path);
    if (ours && before())
        return full();
    const int fd = real(path, flags, mode);
    if (fd >= 0 && fd < MOST)
        atomic_store(&watched[fd], ours);
    if (ours)
        after();
    return fd;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "write");
    const bool ours = fd >= 0 && fd < MOST && atomic_load(&watched[fd]);
    if (ours && before())
        return full();
    // Half of the data is on the disk when the process is killed.
    if (ours && bytes > 1 && atomic_load(&calls) == number_of("BREAK_KILL"))
        bytes /= 2;
    const ssize_t done = real(fd, data, bytes);
    if (ours)
        after();
    return done;
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    const bool ours = fd >= 0 && fd < MOST && atomic_load(&watched[fd]);
    if (!ours)
        return real(fd);
    const char *slow = getenv("BREAK_SLOW");
    if (slow)
        usleep((useconds_t)(1e6 * atof(slow)));
    if (before())
        return full();
    const int result = real(fd);
    after();
    return result;
}

int close(int fd)
{
    static int (*real)(int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "close");
    const bool ours = fd >= 0 && fd < MOST && atomic_load(&watched[fd]);
    if (ours) {
        before();
        atomic_store(&watched[fd], false);
    }
    const int result = real(fd);
    if (ours)
        after();
    return result;
}

int rename(const char *from, const char *to)
{
    static int (*real)(const char *, const char *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "rename");
    const bool ours = is_ours(to);
    if (ours && before())
        return full();
    const int result = real(from, to);
    if (ours)
        after();
    return result;
}

int unlink(const char *path)
{
    static int (*real)(const char *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "unlink");
    const bool ours = is_ours(path);
    if (ours)
        before();
    const int result = real(path);
    if (ours)
        after();
    return result;
}

const char *mu_version(void);

const char *mu_version(void)
{
    static const char *(*real)(void);
    const char *version = getenv("BREAK_VERSION");
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mu_version");
    return version ? version : real();
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    const int result = real(clock, out);
    if (clock == CLOCK_REALTIME)
        out->tv_sec += number_of("BREAK_CLOCK");
    return result;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*real)(int, const struct msghdr *, int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    usleep((useconds_t)number_of("BREAK_SEND") * 1000);
    return real(fd, message, flags);
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    static ssize_t (*real)(int, const void *, size_t, int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "send");
    usleep((useconds_t)number_of("BREAK_SEND") * 1000);
    return real(fd, data, bytes, flags);
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("BREAK_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%d\n", atomic_load(&calls));
        fclose(file);
    }
}
