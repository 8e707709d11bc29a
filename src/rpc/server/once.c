// Methods whose calls are done once, however often a request comes: the numbers of the last calls, in a ring.
//
// A number counts from the moment in which its request is read, so that a call which is cancelled before it begins, or
// refused because there is no room, does not begin either when its request comes a second time. Requests that are sent
// again on purpose have numbers of their own. The numbers are those of all clients together.
#include "base/planted.h"
#include "rpc/server/server.h"

enum { CALLS_KEPT = 1024 };

struct mu_once {
    uint64_t numbers[CALLS_KEPT], n; // n: calls so far
};

mu_status mu__server_once(mu_rpc_server *server, const char *method)
{
    mu_rpc_entry *entry = mu__server_method(server, method);
    if (entry == NULL)
        return mu__error(MU_INTERNAL, "no method \"%s\" was added whose calls could be done once", method);
    if (entry->once == NULL)
        entry->once = mu__calloc(1, sizeof *entry->once);
    return entry->once != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

bool mu__once_take(mu_rpc_entry *entry, uint64_t number)
{
    struct mu_once *once = entry->once;
    if (once == NULL)
        return true;
    for (uint64_t i = 0; i < MU_MIN(once->n, (uint64_t)CALLS_KEPT); i++)
        if (once->numbers[i] == number)
            return MU_PLANTED(MU_DEFECT_DOUBLED_RUN);
    once->numbers[once->n++ % CALLS_KEPT] = number;
    return true;
}
