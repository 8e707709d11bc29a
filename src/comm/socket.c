// Addresses and TCP sockets: parsing "host:port", connecting, accepting, and the names of errors.
//
// Every descriptor is non-blocking and close-on-exec. Does not depend on who is at the other end.
#include "comm/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

// ---- Addresses ----------------------------------------------------------------------------------

static mu_status wrong_address(const char *address)
{
    return mu__error(MU_INVALID_ARGUMENT,
                     "\"%.300s\" is not an address; expected \"host:port\" or \"[ipv6]:port\" with a port "
                     "from 1 to 65535",
                     address);
}

mu_status mu__address_split(const char *address, char *host, int *port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address)
        return wrong_address(address);
    const bool bracketed = address[0] == '[' && colon[-1] == ']';
    const char *begin = address + bracketed;
    const size_t length = (size_t)(colon - begin) - bracketed;
    if (length == 0 || length > MU_MAX_HOST || (!bracketed && memchr(begin, ':', length) != NULL))
        return wrong_address(address);
    char *end;
    errno = 0;
    const long number = strtol(colon + 1, &end, 10);
    if (errno != 0 || *end != '\0' || colon[1] < '0' || colon[1] > '9' || number < 1 || number > 65535)
        return wrong_address(address);
    memcpy(host, begin, length);
    host[length] = '\0';
    *port = (int)number;
    return MU_OK;
}

static const struct sockaddr_in *v4_of(const mu_endpoint *endpoint) { return (const void *)&endpoint->address; }
static const struct sockaddr_in6 *v6_of(const mu_endpoint *endpoint) { return (const void *)&endpoint->address; }

bool mu__endpoint_is_loopback(const mu_endpoint *endpoint)
{
    if (endpoint->address.ss_family == AF_INET)
        return ntohl(v4_of(endpoint)->sin_addr.s_addr) >> 24 == 127;
    if (endpoint->address.ss_family != AF_INET6)
        return false;
    const struct in6_addr *address = &v6_of(endpoint)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

int mu__endpoint_port(const mu_endpoint *endpoint)
{
    return ntohs(endpoint->address.ss_family == AF_INET6 ? v6_of(endpoint)->sin6_port : v4_of(endpoint)->sin_port);
}

void mu__endpoint_set_port(mu_endpoint *endpoint, int port)
{
    if (endpoint->address.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&endpoint->address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&endpoint->address)->sin_port = htons((uint16_t)port);
}

void mu__endpoint_text(const mu_endpoint *endpoint, char *text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1] = "?";
    const int failed = getnameinfo((const struct sockaddr *)&endpoint->address, endpoint->bytes, host, sizeof host,
                                   NULL, 0, NI_NUMERICHOST);
    const bool v6 = failed == 0 && strchr(host, ':') != NULL;
    snprintf(text, bytes, v6 ? "[%s]:%d" : "%s:%d", host, mu__endpoint_port(endpoint));
}

// A socket for both families reports an IPv4 address as an IPv4-mapped IPv6 one; this converts it back.
static void unwrap(mu_endpoint *endpoint)
{
    const struct sockaddr_in6 *v6 = v6_of(endpoint);
    if (endpoint->address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6->sin6_port};
    memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
    *endpoint = (mu_endpoint){.bytes = sizeof v4};
    memcpy(&endpoint->address, &v4, sizeof v4);
}

bool mu__endpoint_here(int fd, mu_endpoint *out)
{
    *out = (mu_endpoint){.bytes = sizeof out->address};
    const bool good = getsockname(fd, (struct sockaddr *)&out->address, &out->bytes) == 0;
    unwrap(out);
    return good;
}

bool mu__endpoint_there(int fd, mu_endpoint *out)
{
    *out = (mu_endpoint){.bytes = sizeof out->address};
    const bool good = getpeername(fd, (struct sockaddr *)&out->address, &out->bytes) == 0;
    const int error = errno;
    unwrap(out);
    errno = error;
    return good;
}

static void add_interface(mu_endpoints *out, const struct ifaddrs *at)
{
    const int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : AF_UNSPEC;
    if ((family != AF_INET && family != AF_INET6) || out->n == MU_MAX_ENDPOINTS)
        return;
    mu_endpoint *endpoint = &out->items[out->n++];
    endpoint->bytes = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&endpoint->address, at->ifa_addr, endpoint->bytes);
}

static bool leads_elsewhere(const struct ifaddrs *at)
{
    const unsigned wanted = IFF_UP | IFF_RUNNING;
    if (at->ifa_addr == NULL || (at->ifa_flags & wanted) != wanted || (at->ifa_flags & IFF_LOOPBACK))
        return false;
    return at->ifa_addr->sa_family != AF_INET6 ||
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr);
}

mu_status mu__network_endpoints(mu_endpoints *out)
{
    struct ifaddrs *list = NULL;
    *out = (mu_endpoints){0};
    if (getifaddrs(&list) != 0)
        return mu__error(mu__errno_code(errno), "cannot list the network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next)
        if (leads_elsewhere(at))
            add_interface(out, at);
    freeifaddrs(list);
    return MU_OK;
}

mu_status mu__interface_endpoints(const char *interface, mu_endpoints *out)
{
    char names[256] = "";
    struct ifaddrs *list = NULL;
    *out = (mu_endpoints){0};
    if (getifaddrs(&list) != 0)
        return mu__error(mu__errno_code(errno), "cannot list the network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        const size_t used = strlen(names);
        if (strcmp(at->ifa_name, interface) == 0)
            add_interface(out, at);
        else if (strstr(names, at->ifa_name) == NULL)
            snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", at->ifa_name);
    }
    freeifaddrs(list);
    return out->n > 0 ? MU_OK
                      : mu__error(MU_NOT_FOUND,
                                  "MUSTER_INTERFACE is \"%.60s\", which is not a network interface with an address; "
                                  "there are %s",
                                  interface, names);
}

// ---- Connecting ---------------------------------------------------------------------------------

static int failed_with(int fd, int error)
{
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

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

int mu__connect_start(const mu_endpoint *endpoint, const mu_endpoints *own)
{
    const int fd = socket(endpoint->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    try_again_soon(fd);
    if (bind_source(fd, endpoint, own) != 0)
        return failed_with(fd, errno);
    if (connect(fd, (const struct sockaddr *)&endpoint->address, endpoint->bytes) != 0 && errno != EINPROGRESS)
        return failed_with(fd, errno);
    return fd;
}

int mu__connect_result(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return errno;
    if (error != 0)
        return error;
    // A connection to a free port of this host may connect to itself.
    mu_endpoint here, there;
    if (!mu__endpoint_there(fd, &there))
        return errno == ENOTCONN ? EINPROGRESS : errno;
    const bool itself = mu__endpoint_here(fd, &here) && here.bytes == there.bytes &&
                        memcmp(&here.address, &there.address, here.bytes) == 0;
    return itself ? ECONNREFUSED : 0;
}

int mu__accept(int listener)
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
    if (mu__endpoint_there(fd, &there) && mu__endpoint_is_loopback(&there))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof plain - 1);
}

void mu__socket_settle(int fd, double seconds)
{
    const int on = 1;
    const unsigned milliseconds = (unsigned)MU_MIN(MU_MAX(seconds * 1000, 1), 1e9);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    try_again_soon(fd);
    spare_control(fd);
}

const char *mu__network_reason(int error_number)
{
    switch (error_number) {
    case ECONNREFUSED: return "connection refused: nothing listens there yet";
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN: return "no route to it";
    case ETIMEDOUT: return "no answer: the host is down, or something drops what is sent to it";
    case ECONNRESET:
    case EPIPE: return "connection closed";
    case EADDRNOTAVAIL: return "no local port or address left";
    case EACCES:
    case EPERM: return "not permitted, by a firewall perhaps";
    case EMFILE:
    case ENFILE: return "too many open files here";
    default: return strerrordesc_np(error_number) != NULL ? strerrordesc_np(error_number) : "unknown error";
    }
}

void mu__socket_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

bool mu__wait_fd(int fd, short events, int64_t deadline_ns)
{
    struct pollfd one = {.fd = fd, .events = events};
    const int64_t left = deadline_ns == MU_FOREVER ? 1000000000 : deadline_ns - mu__now_ns();
    return poll(&one, 1, left <= 0 ? 0 : (int)MU_MIN((left + 999999) / 1000000, 1000)) > 0;
}
