// Sockets of the default system: TCP on Linux.
//
// Every descriptor is non-blocking and close-on-exec. Does not depend on who is at the other end.
#include "base/linux.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BACKLOG = 512 };

static int failed_with(int fd, int error)
{
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

// A socket for both families reports an IPv4 address as an IPv4-mapped IPv6 one; this converts it back.
static void unwrap(mu_endpoint *endpoint)
{
    const struct sockaddr_in6 *v6 = (const void *)&endpoint->address;
    if (endpoint->address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6->sin6_port};
    memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
    *endpoint = (mu_endpoint){.bytes = sizeof v4};
    memcpy(&endpoint->address, &v4, sizeof v4);
}

bool mu__linux_endpoint(int fd, bool there, mu_endpoint *out)
{
    *out = (mu_endpoint){.bytes = sizeof out->address};
    struct sockaddr *address = (struct sockaddr *)&out->address;
    const bool good = (there ? getpeername(fd, address, &out->bytes) : getsockname(fd, address, &out->bytes)) == 0;
    const int error = errno;
    unwrap(out);
    errno = error;
    return good;
}

// ---- Listening ----------------------------------------------------------------------------------

int mu__linux_listen(const mu_endpoint *at, bool both_families)
{
    const int on = 1, only_v6 = !both_families;
    const int fd = socket(at->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
    if (bind(fd, (const struct sockaddr *)&at->address, at->bytes) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    return failed_with(fd, errno);
}

// ---- Connections --------------------------------------------------------------------------------

// Binds the socket to one of the addresses in `own`, except for loopback targets, which they cannot reach.
static int bind_source(int fd, const mu_endpoint *endpoint, const mu_endpoints *own)
{
    for (int i = 0; own->n > 0 && !mu__endpoint_is_loopback(endpoint) && i < own->n; i++)
        if (own->items[i].address.ss_family == endpoint->address.ss_family)
            return bind(fd, (const struct sockaddr *)&own->items[i].address, own->items[i].bytes);
    return 0;
}

// TCP doubles its retransmission pause, so after a network outage a connection could stay silent for most of a
// heartbeat timeout. Linux 6.15 and later can limit the pause; earlier kernels ignore the option.
static void try_again_soon(int fd)
{
    enum { RTO_MAX_MS = 44 }; // TCP_RTO_MAX_MS; older headers lack it
    const int milliseconds = 1000;
    setsockopt(fd, IPPROTO_TCP, RTO_MAX_MS, &milliseconds, sizeof milliseconds);
}

int mu__linux_connect(const mu_endpoint *to, const mu_endpoints *own)
{
    const int fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    try_again_soon(fd);
    if (bind_source(fd, to, own) != 0)
        return failed_with(fd, errno);
    if (connect(fd, (const struct sockaddr *)&to->address, to->bytes) != 0 && errno != EINPROGRESS)
        return failed_with(fd, errno);
    return fd;
}

int mu__linux_connect_result(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return errno;
    if (error != 0)
        return error;
    // A connection to a free port of this host may connect to itself.
    mu_endpoint here, there;
    if (!mu__linux_endpoint(fd, true, &there))
        return errno == ENOTCONN ? EINPROGRESS : errno;
    const bool itself = mu__linux_endpoint(fd, false, &here) && here.bytes == there.bytes &&
                        memcmp(&here.address, &there.address, here.bytes) == 0;
    return itself ? ECONNREFUSED : 0;
}

int mu__linux_accept(int listener)
{
    for (;;) {
        const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0 || (errno != EINTR && errno != ECONNABORTED))
            return fd;
    }
}

// The loopback has no loss or delay, so a congestion control that measures and paces would only cost time.
static void spare_control(int fd)
{
    static const char plain[] = "reno"; // every kernel has it
    mu_endpoint there;
    if (mu__linux_endpoint(fd, true, &there) && mu__endpoint_is_loopback(&there))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof plain - 1);
}

void mu__linux_settle(int fd, double seconds)
{
    const int on = 1;
    const unsigned milliseconds = (unsigned)MU_MIN(MU_MAX(seconds * 1000, 1), 1e9);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    try_again_soon(fd);
    spare_control(fd);
}

// ---- Bytes --------------------------------------------------------------------------------------

// One system call each: a socket that moves less than requested is full, or empty.
ssize_t mu__linux_send(int fd, const struct iovec *extents, int n)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)extents, .msg_iovlen = (size_t)n};
    ssize_t moved;
    do
        moved = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (moved < 0 && errno == EINTR);
    return moved;
}

ssize_t mu__linux_recv(int fd, void *data, size_t bytes)
{
    ssize_t moved;
    do
        moved = recv(fd, data, bytes, MSG_DONTWAIT);
    while (moved < 0 && errno == EINTR);
    return moved;
}

void mu__linux_end_output(int fd) { shutdown(fd, SHUT_WR); }

bool mu__linux_all_received(int fd)
{
    int unread = 0;
    return ioctl(fd, SIOCOUTQ, &unread) != 0 || unread == 0;
}

bool mu__linux_wait(int fd, short events, int64_t deadline_ns)
{
    struct pollfd one = {.fd = fd, .events = events};
    const int64_t left = deadline_ns == MU_FOREVER ? 1000000000 : deadline_ns - mu__now_ns();
    return poll(&one, 1, left <= 0 ? 0 : (int)MU_MIN((left + 999999) / 1000000, 1000)) > 0;
}
