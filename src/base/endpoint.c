// Addresses of sockets: the port, the loopback, and the text of an address. Calls no system: the addresses are values.
#include "base/system.h"

#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

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
