// Looks up a host name without blocking the caller.
//
// The system's resolver may block for many seconds if a name server is down, so it runs in its own thread. The caller
// may drop the lookup before the thread ends: whichever of the two finishes last frees it.
#include "base/linux.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>

struct mu_lookup {
    atomic_int holders; // the caller, and the thread while it runs
    atomic_bool done;
    int port, failed; // getaddrinfo's code
    char host[MU_MAX_HOST + 1];
    mu_endpoints found;
};

static int look_up(mu_lookup *lookup, int flags)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *list = NULL;
    const int failed = getaddrinfo(lookup->host, NULL, &hints, &list);
    if (failed != 0)
        return failed;
    for (const struct addrinfo *at = list; at != NULL && lookup->found.n < MU_MAX_ENDPOINTS; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
            continue;
        mu_endpoint *endpoint = &lookup->found.items[lookup->found.n++];
        endpoint->bytes = at->ai_addrlen;
        memcpy(&endpoint->address, at->ai_addr, at->ai_addrlen);
        mu__endpoint_set_port(endpoint, lookup->port);
    }
    freeaddrinfo(list);
    return lookup->found.n > 0 ? 0 : EAI_NONAME;
}

static void *look_up_slowly(void *arg)
{
    mu_lookup *lookup = arg;
    lookup->failed = look_up(lookup, 0);
    atomic_store(&lookup->done, true);
    mu__linux_lookup_drop(lookup);
    return NULL;
}

static bool start_thread(mu_lookup *lookup)
{
    pthread_t thread;
    sigset_t all, own;
    sigfillset(&all);
    atomic_store(&lookup->holders, 2);
    pthread_sigmask(SIG_SETMASK, &all, &own);
    const int failed = pthread_create(&thread, NULL, look_up_slowly, lookup);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    if (failed == 0) {
        pthread_detach(thread);
        return true;
    }
    atomic_store(&lookup->holders, 1);
    return false;
}

mu_lookup *mu__linux_lookup_start(const char *host, int port)
{
    mu_lookup *lookup = mu__calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return NULL;
    lookup->port = port;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    atomic_store(&lookup->holders, 1);
    lookup->failed = look_up(lookup, AI_NUMERICHOST);
    if (lookup->failed != 0 && start_thread(lookup))
        return lookup;
    atomic_store(&lookup->done, true);
    return lookup;
}

bool mu__linux_lookup_done(const mu_lookup *lookup, mu_endpoints *out, const char **reason)
{
    if (!atomic_load(&lookup->done))
        return false;
    *out = lookup->found;
    switch (lookup->failed) {
    case 0: *reason = ""; break;
    case EAI_NONAME:
    case EAI_NODATA: *reason = "name not found"; break;
    case EAI_AGAIN: *reason = "name not found: the name server does not answer"; break;
    default: *reason = gai_strerror(lookup->failed);
    }
    return true;
}

void mu__linux_lookup_drop(mu_lookup *lookup)
{
    if (lookup != NULL && atomic_fetch_sub(&lookup->holders, 1) == 1)
        mu__free(lookup);
}
