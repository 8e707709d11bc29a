// The bytes that answers take of a server's budget, before memory is taken for them.
#include "rpc/server/server.h"

enum { NAMED = 3, MOST_NAME = 60 };

// The call that holds the most bytes, of those that are not named yet; NULL: no other holds any.
static const mu_server_call *next_largest(const mu_rpc_server *server, const mu_server_call *const *named, int n)
{
    const mu_server_call *largest = NULL;
    for (const mu_server_call *call = server->calls; call != NULL; call = call->next) {
        bool is_named = call->held == 0;
        for (int i = 0; i < n; i++)
            is_named |= named[i] == call;
        if (!is_named && (largest == NULL || call->held > largest->held))
            largest = call;
    }
    return largest;
}

void mu__call_no_room(const mu_rpc_server *server, size_t bytes, char *text, size_t size)
{
    const mu_server_call *named[NAMED];
    int used = snprintf(text, size, "a result of %zu bytes does not fit: the server holds %zu of at most %zu bytes",
                        bytes, server->budget.used, server->budget.limit);
    for (int i = 0; i < NAMED && (named[i] = next_largest(server, named, i)) != NULL; i++)
        used += snprintf(text + used, size - (size_t)used, "%s\"%.*s\" %zu", i == 0 ? ", the largest calls " : ", ",
                         MOST_NAME, named[i]->entry != NULL ? named[i]->entry->name : "muster.methods", named[i]->held);
    snprintf(text + used, size - (size_t)used, "; call less at one time, or raise max_bytes");
}

bool mu__call_reserve_locked(mu_server_call *call, size_t bytes)
{
    const size_t more = bytes > call->reserved ? bytes - call->reserved : 0;
    if (!mu__budget_take(&call->server->budget, more))
        return false;
    call->held += more;
    call->reserved += more;
    return true;
}

mu_status mu__call_reserve_for(mu_server_call *call, size_t bytes)
{
    char text[MU_NO_ROOM_TEXT] = "";
    if (call == NULL || bytes < MU_RESERVE_FROM)
        return MU_OK;
    pthread_mutex_lock(&call->server->lock);
    const bool fits = mu__call_reserve_locked(call, bytes);
    if (!fits)
        mu__call_no_room(call->server, bytes, text, sizeof text);
    pthread_mutex_unlock(&call->server->lock);
    return fits ? MU_OK : mu__error(MU_RESOURCE_EXHAUSTED, "%s", text);
}
