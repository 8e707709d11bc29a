// Listens on this process's own address, and reports which process has the port if it is taken.
//
// Other processes find this process by that address, but the host need not have it: a service may forward to the host,
// and a host's own name often resolves to the loopback. Then it listens on all addresses, but only if a key (or the
// user) allows the network at all. Nothing here blocks: a slow name and a busy port are states.
#include "comm/sessions/net.h"

#include <errno.h>
#include <netinet/in.h>
#include <strings.h>
#include <unistd.h>

#define BUSY_RETRY_SECONDS 3.0
#define NAME_SECONDS       30.0

// ---- Listening ----------------------------------------------------------------------------------

static void keep(mu_listener *out, int fd)
{
    mu_endpoint here;
    out->fds[out->n++] = fd;
    if (mu__system->endpoint(fd, false, &here))
        out->port = mu__endpoint_port(&here);
}

static mu_endpoint any_address(int family, int port)
{
    mu_endpoint any = {.address.ss_family = (sa_family_t)family};
    any.bytes = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    mu__endpoint_set_port(&any, port);
    return any;
}

// Returns 0 or an errno.
static int listen_everywhere(int port, mu_listener *out)
{
    const mu_endpoint v6 = any_address(AF_INET6, port), v4 = any_address(AF_INET, port);
    int fd = mu__system->listen(&v6, true);
    if (fd < 0 && errno != EADDRINUSE)
        fd = mu__system->listen(&v4, false);
    if (fd < 0)
        return errno;
    keep(out, fd);
    return 0;
}

// Listens on each address of the name that this host has; a name may have addresses of both families.
static int listen_each(const mu_listening *wanted, mu_listener *out)
{
    int error = EADDRNOTAVAIL;
    for (int i = 0; i < wanted->endpoints.n && out->n < MU_MAX_LISTENERS; i++) {
        const int fd = mu__system->listen(&wanted->endpoints.items[i], false);
        if (fd >= 0)
            keep(out, fd);
        else if (errno == EADDRINUSE || errno == EACCES || errno == EPERM)
            error = errno;
    }
    return out->n > 0 && error == EADDRNOTAVAIL ? 0 : error;
}

static mu_status cannot_listen(const mu_listening *wanted, int error)
{
    const char *address = wanted->address[0] != '\0' ? wanted->address : "a port of the system's choice";
    char holder[128] = "";
    if (error == EADDRINUSE) {
        mu__system->port_holder(wanted->port, holder, sizeof holder);
        return mu__error(MU_ALREADY_EXISTS,
                         "cannot listen at %s: port %d is taken by %s; end it, or give this task another port", address,
                         wanted->port, holder);
    }
    if (error == EADDRNOTAVAIL)
        return mu__error(MU_FAILED_PRECONDITION,
                         "cannot listen at %s: this host has no such address; is this process another task of the "
                         "cluster, or started on the wrong host?",
                         address);
    return mu__error(mu__errno_code(error), "cannot listen at %s: %s", address, strerror(error));
}

static mu_status try_to_listen(mu_listening *wanted, mu_listener *out, bool *done)
{
    *out = (mu_listener){.port = wanted->port};
    const int error = wanted->all ? listen_everywhere(wanted->port, out) : listen_each(wanted, out);
    *done = error == 0;
    if (*done)
        return MU_OK;
    mu__listener_close(out);
    if (wanted->busy_deadline_ns == 0)
        wanted->busy_deadline_ns = mu__deadline_ns(BUSY_RETRY_SECONDS);
    // The previous job may still be shutting down.
    return error == EADDRINUSE && mu__now_ns() < wanted->busy_deadline_ns ? MU_OK : cannot_listen(wanted, error);
}

// ---- Where to listen ----------------------------------------------------------------------------

static bool all_loopback(const mu_endpoints *endpoints)
{
    for (int i = 0; i < endpoints->n; i++)
        if (!mu__endpoint_is_loopback(&endpoints->items[i]))
            return false;
    return endpoints->n > 0;
}

static bool any_here(const mu_endpoints *endpoints)
{
    for (int i = 0; i < endpoints->n; i++) {
        mu_endpoint probe = endpoints->items[i];
        mu__endpoint_set_port(&probe, 0);
        const int fd = mu__system->listen(&probe, false);
        const int error = errno;
        if (fd >= 0)
            mu__system->close(fd);
        if (fd >= 0 || error != EADDRNOTAVAIL)
            return true;
    }
    return false;
}

// True for the loopback's numeric address or its own names; a host name that resolves to the loopback means the host.
static bool names_loopback(const char *host, const mu_endpoints *endpoints)
{
    mu_endpoints numeric = {0};
    const char *reason;
    mu_lookup *lookup =
        strcasecmp(host, "localhost") != 0 && all_loopback(endpoints) ? mu__system->lookup_start(host, 1) : NULL;
    const bool number = lookup != NULL && mu__system->lookup_done(lookup, &numeric, &reason) && numeric.n > 0;
    mu__system->lookup_drop(lookup);
    return all_loopback(endpoints) && (strcasecmp(host, "localhost") == 0 || number);
}

// Uses the addresses of the interface that the user named, with our port.
static void restrict_to_own(mu_listening *wanted)
{
    wanted->endpoints = wanted->own;
    wanted->all = false;
    for (int i = 0; i < wanted->own.n; i++)
        mu__endpoint_set_port(&wanted->endpoints.items[i], wanted->port);
}

static void choose_any_port(mu_listening *wanted)
{
    wanted->all = wanted->open;
    wanted->endpoints = (mu_endpoints){.n = 1};
    wanted->endpoints.items[0] = any_address(AF_INET, 0);
    ((struct sockaddr_in *)&wanted->endpoints.items[0].address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (wanted->open && wanted->own.n > 0) {
        restrict_to_own(wanted);
        wanted->endpoints.n = 1;
    }
}

static mu_status closed(const char *address)
{
    return mu__error(MU_UNAUTHENTICATED,
                     "%s is not on this host's loopback, and there is no cluster key: anyone on the network could "
                     "join; give all processes the same MUSTER_CLUSTER_KEY (`openssl rand -hex 32` makes one) or "
                     "MUSTER_CLUSTER_KEY_FILE, or accept strangers with MUSTER_ALLOW_UNAUTHENTICATED=1",
                     address);
}

static mu_status choose_addresses(mu_listening *wanted, const char *host)
{
    if (!wanted->open && !all_loopback(&wanted->endpoints))
        return closed(wanted->address);
    const bool loopback = names_loopback(host, &wanted->endpoints);
    wanted->all = wanted->open && !loopback && (all_loopback(&wanted->endpoints) || !any_here(&wanted->endpoints));
    if (!loopback && wanted->own.n > 0)
        restrict_to_own(wanted);
    if (wanted->all)
        mu__log(MU_LOG_INFO,
                "%s is not an address that this host has to itself; listening at port %d of all its addresses",
                wanted->address, wanted->port);
    return MU_OK;
}

// Looks up this process's own name; a failure is not an error if all addresses may be used.
static mu_status find_own_name(mu_listening *wanted)
{
    char host[MU_MAX_HOST + 1];
    const char *reason = "";
    MU_TRY(mu__address_split(wanted->address, host, &wanted->port));
    if (wanted->lookup == NULL) {
        wanted->lookup = mu__system->lookup_start(host, wanted->port);
        wanted->name_deadline_ns = mu__deadline_ns(NAME_SECONDS);
    }
    if (wanted->lookup == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (!mu__system->lookup_done(wanted->lookup, &wanted->endpoints, &reason) &&
        mu__now_ns() < wanted->name_deadline_ns)
        return MU_OK;
    wanted->found = true;
    return choose_addresses(wanted, host);
}

mu_status mu__listen_step(mu_listening *listening, mu_listener *out, bool *done)
{
    *done = false;
    if (!listening->found && listening->address[0] == '\0') {
        choose_any_port(listening);
        listening->found = true;
    }
    if (!listening->found)
        MU_TRY(find_own_name(listening));
    return listening->found ? try_to_listen(listening, out, done) : MU_OK;
}

void mu__listen_end(mu_listening *listening)
{
    mu__system->lookup_drop(listening->lookup);
    listening->lookup = NULL;
}

bool mu__listen_more(const mu_endpoint *at, mu_listener *listener)
{
    mu_endpoint wanted = *at;
    mu__endpoint_set_port(&wanted, listener->port);
    const int fd = listener->n < MU_MAX_LISTENERS ? mu__system->listen(&wanted, false) : -1;
    if (fd >= 0)
        listener->fds[listener->n++] = fd;
    return fd >= 0;
}

void mu__listener_close(mu_listener *listener)
{
    for (int i = 0; i < listener->n; i++)
        mu__system->close(listener->fds[i]);
    listener->n = 0;
}

// ---- Ports to listen on later -------------------------------------------------------------------

// The later listener sets SO_REUSEADDR too; the kernel lets both bind the port as long as only one listens.
static mu_status keep_port(mu_kept_port *port, bool loopback)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY)};
    socklen_t bytes = sizeof address;
    const int on = 1;
    port->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (port->fd >= 0 && setsockopt(port->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(port->fd, (struct sockaddr *)&address, bytes) == 0 &&
        getsockname(port->fd, (struct sockaddr *)&address, &bytes) == 0) {
        port->port = ntohs(address.sin_port);
        return MU_OK;
    }
    const int failed = errno;
    if (port->fd >= 0)
        close(port->fd);
    return mu__error(mu__errno_code(failed), "cannot get a free port on %s: %s", loopback ? "127.0.0.1" : "this host",
                     strerror(failed));
}

mu_status mu__ports_keep(mu_kept_port *ports, int n, bool loopback)
{
    for (int i = 0; i < n; i++)
        if (keep_port(&ports[i], loopback) != MU_OK) {
            mu__ports_give_back(ports, i);
            return mu_error_code();
        }
    return MU_OK;
}

void mu__ports_give_back(mu_kept_port *ports, int n)
{
    for (int i = 0; i < n; i++)
        close(ports[i].fd);
}
