// A fault of the simulated cluster of parameter servers: a copy that is made anew while a request is not answered.
#include "stores.h"

// A worker's change is done and its answer is held up, while the copy is made anew, so that nothing tells the new one
// of the request but the list of those that were seen. Then the primary dies, and the request comes again.
void begin_remaking(stores_run *r, const worker_task *w)
{
    server_task *s = leader_of(r, (int)world_draw((uint64_t)r->n_servers));
    if (s == NULL)
        return;
    r->remaking.server = s;
    r->remaking.copy_killed = false;
    r->remaking.copy_due_ns = world_now() + world_draw_ns(0.2, 0.8);
    r->remaking.until_ns = world_now() + 8000000000;
    cut(s->host, w->host, r->remaking.until_ns, true);
}

static server_task *server_with_copy(stores_run *r, const server_task *s)
{
    const mu_stores *stores = mu__stores_of(s->rpc);
    for (int i = 0; i < r->n_servers; i++)
        for (size_t k = 0; k < stores->stores.n; k++) {
            const mu_store *led = stores->stores.items[k];
            const mu_store *kept = r->servers[i].alive && &r->servers[i] != s
                                       ? mu__store_find(mu__stores_of(r->servers[i].rpc), led->number)
                                       : NULL;
            if (led->role == MU_STORE_PRIMARY && kept != NULL && kept->role == MU_STORE_COPY)
                return &r->servers[i];
        }
    return NULL;
}

void remake_next(stores_run *r)
{
    server_task *s = r->remaking.server, *copy;
    if (s == NULL || world_now() < r->remaking.copy_due_ns)
        return;
    if (!r->remaking.copy_killed) {
        copy = server_with_copy(r, s);
        if (copy != NULL)
            kill_server(r, copy, world_now() + world_draw_ns(0.01, 0.1));
        r->remaking.copy_killed = true;
        r->remaking.copy_due_ns = world_now() + 300000000; // until that is noticed
    } else if (may_strike(r) && is_noticed(r)) {
        kill_server(r, s, world_now() + world_draw_ns(0.1, 1));
        r->remaking.server = NULL;
    } else {
        r->remaking.copy_due_ns = world_now() + 50000000;
    }
}
