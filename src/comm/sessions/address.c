// Addresses: parsing "host:port", the addresses of this host's interfaces, and the names of network errors.
#include "comm/sessions/net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>

// ---- Addresses ----------------------------------------------------------------------------------

static mu_status wrong_address(const char *address)
{
    return mu__error(
        MU_INVALID_ARGUMENT,
        "\"%.300s\" is not an address; expected \"host:port\" or \"[ipv6]:port\" with a port from 1 to 65535", address);
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
    return out->n > 0
               ? MU_OK
               : mu__error(
                     MU_NOT_FOUND,
                     "MUSTER_INTERFACE is \"%.60s\", which is not a network interface with an address; there are %s",
                     interface, names);
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
