// Methods whose calls are done once, however often a request comes: the numbers of the last calls, in a ring.
//
// A number counts from the moment in which its request is read, so that a call which is cancelled before it begins does
// not begin either when its request comes a second time. Requests that are sent again on purpose have numbers of their
// own.
#include "base/planted.h"
#include "rpc/server/server.h"

enum { CALLS_KEPT = 1024 };

struct mu_once {
    uint64_t numbers[CALLS_KEPT], n; // n: calls so far
};

mu_status mu__server_once(mu_rpc_server *server, const char *method)
{
    for (size_t i = 0; i < server->methods.n; i++) {
        mu_rpc_entry *entry = &server->methods.items[i];
        if (strcmp(entry->name, method) == 0 && (entry->once = mu__calloc(1, sizeof *entry->once)) == NULL)
            return MU_RESOURCE_EXHAUSTED;
    }
    return MU_OK;
}

mu_status mu__once_take(mu_rpc_entry *entry, uint64_t number)
{
    struct mu_once *once = entry->once;
    bool again = false;
    if (once == NULL)
        return MU_OK;
    for (uint64_t i = 0; i < MU_MIN(once->n, (uint64_t)CALLS_KEPT); i++)
        again |= once->numbers[i] == number;
    if (!again)
        once->numbers[once->n++ % CALLS_KEPT] = number;
    if (!again || MU_PLANTED(MU_DEFECT_DOUBLED_RUN))
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION, "this request has come before, as call %016llx; a call of \"%s\" is done "
                     "once, so give each a number of its own", (unsigned long long)number, entry->name);
}
