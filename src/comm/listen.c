// Listens on this process's own address, and reports which process has the port if it is taken.
//
// Other processes find this process by that address, but the host need not have it: a service may forward to the host,
// and a host's own name often resolves to the loopback. Then it listens on all addresses, but only if a key (or the
// user) allows the network at all.
#include "comm/net.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum { BACKLOG = 512 };
#define BUSY_RETRY_SECONDS 3.0
#define NAME_SECONDS       30.0

// ---- Which process has the port -----------------------------------------------------------------

// The inode of the socket that listens on `port`, from the kernel's table; 0 if there is none.
static unsigned long listening_inode(const char *table, int port)
{
    char line[512];
    unsigned long found = 0;
    FILE *file = fopen(table, "re");
    while (file != NULL && found == 0 && fgets(line, sizeof line, file) != NULL) {
        unsigned here, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", &here, &state, &inode) ==
                3 &&
            here == (unsigned)port && state == 0x0A) // TCP_LISTEN
            found = inode;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static bool process_has(const char *process, const char *link_text)
{
    char path[300], target[64];
    snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    DIR *list = opendir(path);
    bool found = false;
    for (const struct dirent *entry; list != NULL && !found && (entry = readdir(list)) != NULL;) {
        const ssize_t n = readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strcmp(target, link_text) == 0;
    }
    if (list != NULL)
        closedir(list);
    return found;
}

static void name_process(const char *process, char *text, size_t bytes)
{
    char path[64], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%.20s/comm", process);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(name, sizeof name, file) != NULL)
        name[strcspn(name, "\n")] = '\0';
    if (file != NULL)
        fclose(file);
    snprintf(text, bytes, "process %.20s (%s)", process, name);
}

// Writes "process 123 (python3)"; processes of other users cannot be identified.
static void find_holder(int port, char *text, size_t bytes)
{
    snprintf(text, bytes, "a process that this user may not inspect");
    unsigned long inode = listening_inode("/proc/net/tcp", port);
    inode = inode != 0 ? inode : listening_inode("/proc/net/tcp6", port);
    char link_text[40];
    snprintf(link_text, sizeof link_text, "socket:[%lu]", inode);
    DIR *list = inode != 0 ? opendir("/proc") : NULL;
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !process_has(entry->d_name, link_text))
            continue;
        name_process(entry->d_name, text, bytes);
        break;
    }
    if (list != NULL)
        closedir(list);
}

// ---- Listening ----------------------------------------------------------------------------------

// Where to listen, and the names for messages.
typedef struct listen_request {
    const char *address;
    mu_endpoints endpoints;
    bool all; // listen on all addresses of the host
} listen_request;

static int listen_at(const mu_endpoint *endpoint, bool both_families)
{
    const int on = 1, only_v6 = !both_families;
    const int fd = socket(endpoint->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (endpoint->address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
    if (bind(fd, (const struct sockaddr *)&endpoint->address, endpoint->bytes) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void keep(mu_listener *out, int fd)
{
    mu_endpoint here;
    out->fds[out->n++] = fd;
    if (mu__endpoint_here(fd, &here))
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
    int fd = listen_at(&v6, true);
    if (fd < 0 && errno != EADDRINUSE)
        fd = listen_at(&v4, false);
    if (fd < 0)
        return errno;
    keep(out, fd);
    return 0;
}

// Listens on each address of the name that this host has; a name may have addresses of both families.
static int listen_each(const listen_request *wanted, mu_listener *out)
{
    int error = EADDRNOTAVAIL;
    for (int i = 0; i < wanted->endpoints.n && out->n < MU_MAX_LISTENERS; i++) {
        const int fd = listen_at(&wanted->endpoints.items[i], false);
        if (fd >= 0)
            keep(out, fd);
        else if (errno == EADDRINUSE || errno == EACCES || errno == EPERM)
            error = errno;
    }
    return out->n > 0 && error == EADDRNOTAVAIL ? 0 : error;
}

static mu_status cannot_listen(const listen_request *wanted, int port, int error)
{
    char holder[128] = "";
    if (error == EADDRINUSE) {
        find_holder(port, holder, sizeof holder);
        return mu__error(MU_ALREADY_EXISTS,
                         "cannot listen at %s: port %d is taken by %s; end it, or give this task another port",
                         wanted->address, port, holder);
    }
    if (error == EADDRNOTAVAIL)
        return mu__error(MU_FAILED_PRECONDITION,
                         "cannot listen at %s: this host has no such address; is this process another "
                         "task of the cluster, or started on the wrong host?",
                         wanted->address);
    return mu__error(mu__errno_code(error), "cannot listen at %s: %s", wanted->address, strerror(error));
}

static mu_status listen_as(const listen_request *wanted, int port, mu_listener *out)
{
    const int64_t deadline = mu__deadline_ns(BUSY_RETRY_SECONDS);
    for (;;) {
        *out = (mu_listener){.port = port};
        const int error = wanted->all ? listen_everywhere(port, out) : listen_each(wanted, out);
        if (error == 0)
            return MU_OK;
        mu__listener_close(out);
        // The previous job may still be shutting down.
        if (error != EADDRINUSE || mu__now_ns() >= deadline)
            return cannot_listen(wanted, port, error);
        usleep(50000);
    }
}

// Looks up this process's own name; a failure is not an error if all addresses may be used.
static mu_status find_own(const char *host, int port, mu_endpoints *out)
{
    mu_lookup *lookup = mu__lookup_start(host, port);
    if (lookup == NULL)
        return MU_RESOURCE_EXHAUSTED;
    const int64_t deadline = mu__deadline_ns(NAME_SECONDS);
    const char *reason = "";
    while (!mu__lookup_done(lookup, out, &reason) && mu__now_ns() < deadline)
        usleep(1000);
    mu__lookup_drop(lookup);
    return MU_OK;
}

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
        const int fd = listen_at(&probe, false);
        if (fd >= 0)
            close(fd);
        if (fd >= 0 || errno != EADDRNOTAVAIL)
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
        strcasecmp(host, "localhost") != 0 && all_loopback(endpoints) ? mu__lookup_start(host, 1) : NULL;
    const bool number = lookup != NULL && mu__lookup_done(lookup, &numeric, &reason) && numeric.n > 0;
    mu__lookup_drop(lookup);
    return all_loopback(endpoints) && (strcasecmp(host, "localhost") == 0 || number);
}

// Uses the addresses of the interface that the user named, with our port.
static void restrict_to(listen_request *wanted, const mu_endpoints *own, int port)
{
    wanted->endpoints = *own;
    wanted->all = false;
    for (int i = 0; i < own->n; i++)
        mu__endpoint_set_port(&wanted->endpoints.items[i], port);
}

static mu_status unknown_port(bool open, const mu_endpoints *own, mu_listener *out)
{
    listen_request wanted = {.address = "a port of the system's choice", .all = open};
    mu_endpoint *loopback = &wanted.endpoints.items[wanted.endpoints.n++];
    *loopback = any_address(AF_INET, 0);
    ((struct sockaddr_in *)&loopback->address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (open && own->n > 0) {
        restrict_to(&wanted, own, 0);
        wanted.endpoints.n = 1;
    }
    return listen_as(&wanted, 0, out);
}

static mu_status closed(const char *address)
{
    return mu__error(MU_UNAUTHENTICATED,
                     "%s is not on this host's loopback, and there is no cluster key: anyone on the network "
                     "could join; give all processes the same MUSTER_CLUSTER_KEY (`openssl rand -hex 32` makes one) or "
                     "MUSTER_CLUSTER_KEY_FILE, or accept strangers with MUSTER_ALLOW_UNAUTHENTICATED=1",
                     address);
}

mu_status mu__listen(const char *address, bool open, const mu_endpoints *own, mu_listener *out)
{
    *out = (mu_listener){0};
    if (address[0] == '\0')
        return unknown_port(open, own, out);
    char host[MU_MAX_HOST + 1];
    int port;
    listen_request wanted = {.address = address};
    MU_TRY(mu__address_split(address, host, &port));
    MU_TRY(find_own(host, port, &wanted.endpoints));
    if (!open && !all_loopback(&wanted.endpoints))
        return closed(address);
    const bool loopback = names_loopback(host, &wanted.endpoints);
    wanted.all = open && !loopback && (all_loopback(&wanted.endpoints) || !any_here(&wanted.endpoints));
    if (!loopback && own->n > 0)
        restrict_to(&wanted, own, port);
    if (wanted.all)
        mu__log(MU_LOG_INFO, "%s is not an address that this host has to itself; listening at port %d of all its "
                             "addresses",
                address, port);
    return listen_as(&wanted, port, out);
}

bool mu__listen_more(const mu_endpoint *at, mu_listener *listener)
{
    mu_endpoint wanted = *at;
    mu__endpoint_set_port(&wanted, listener->port);
    const int fd = listener->n < MU_MAX_LISTENERS ? listen_at(&wanted, false) : -1;
    if (fd >= 0)
        listener->fds[listener->n++] = fd;
    return fd >= 0;
}

void mu__listener_close(mu_listener *listener)
{
    for (int i = 0; i < listener->n; i++)
        close(listener->fds[i]);
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
    return mu__error(mu__errno_code(failed), "cannot get a free port on %s: %s",
                     loopback ? "127.0.0.1" : "this host", strerror(failed));
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
