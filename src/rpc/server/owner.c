// What a server keeps for a coordinator, and frees when the coordinator is gone.
//
// A coordinator is gone when the last connection of that role has ended and none has come for a while. The while is a
// heartbeat if the connections were closed, as those of a process that dies are, and MUSTER_TIMEOUT if they became
// silent or were reset by the network, because a network that is cut may heal. A new coordinator frees what the
// previous one has left (muster.variable.clear). That waits for a thread that is freeing it at that moment, so that
// nothing is freed that the new coordinator has made.
#include "rpc/server/server.h"

#include "base/system.h"

// A client that has lost its connection tries again at least every second, also with a shorter heartbeat.
#define LEAST_GRACE_NS 2000000000

mu_status mu__server_owned(mu_rpc_server *server, void (*free)(void *arg), void *arg)
{
    MU_TRY(mu__grow((void **)&server->owned.items, &server->owned.capacity, server->owned.n + 1,
                    sizeof *server->owned.items));
    server->owned.items[server->owned.n].free = free;
    server->owned.items[server->owned.n++].arg = arg;
    return MU_OK;
}

static void free_all(mu_rpc_server *server)
{
    for (size_t i = 0; i < server->owned.n; i++)
        server->owned.items[i].free(server->owned.items[i].arg);
}

void mu__server_free_owned(mu_rpc_server *server)
{
    pthread_mutex_lock(&server->owned.lock);
    free_all(server);
    pthread_mutex_unlock(&server->owned.lock);
}

void mu__owner_joined(mu_rpc_server *server, mu_connection *connection)
{
    connection->is_owner = connection->member.session.role == MU_ROLE_COORDINATOR;
    server->n_owners += connection->is_owner;
    if (connection->is_owner)
        server->orphaned_ns = MU_FOREVER;
}

void mu__owner_left(mu_rpc_server *server, mu_connection *connection)
{
    if (!connection->is_owner)
        return;
    connection->is_owner = false;
    if (--server->n_owners > 0)
        return;
    const double seconds =
        connection->member.session.closed_there ? server->node.heartbeat_seconds : mu__setting_real(MU_SETTING_TIMEOUT);
    server->orphaned_ns = MU_MAX(mu__deadline_ns(seconds), mu__now_ns() + LEAST_GRACE_NS);
    if (server->owner_left != NULL)
        server->owner_left(server->owner_left_arg);
}

void mu__server_on_owner_left(mu_rpc_server *server, void (*left)(void *arg), void *arg)
{
    pthread_mutex_lock(&server->lock);
    server->owner_left = left;
    server->owner_left_arg = arg;
    pthread_mutex_unlock(&server->lock);
}

// When it is due; `now` or earlier: the caller must free everything.
static int64_t take_due(mu_rpc_server *server, int64_t now)
{
    pthread_mutex_lock(&server->lock);
    const int64_t due_ns = server->orphaned_ns;
    if (now >= due_ns)
        server->orphaned_ns = MU_FOREVER;
    pthread_mutex_unlock(&server->lock);
    return due_ns;
}

int64_t mu__server_free_orphans(mu_rpc_server *server, int64_t now)
{
    pthread_mutex_lock(&server->owned.lock);
    const int64_t due_ns = take_due(server, now);
    if (now >= due_ns) {
        mu__log(MU_LOG_WARNING, "RPC server %s: the coordinator is gone; the server frees what it kept for it",
                server->address);
        free_all(server);
    }
    pthread_mutex_unlock(&server->owned.lock);
    return now >= due_ns ? MU_FOREVER : due_ns;
}
