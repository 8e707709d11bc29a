// Requests that wait before they change something: for others' changes, such as a take for the gradients of other
// clients (mu__change_begin_when), or until the copy has the arguments of a large change (store_staging.c).
//
// One that cannot begin yet gives its thread back and stays here as a call to be answered later. Those that wait for a
// name are tried in the order of their arrival after each change that concerns it, on a thread of their own: a request
// may have to wait for another change, which must not keep leases from being renewed. Only the primary has them:
// whoever is promoted gets them from the clients, which send them again, and one that was done before is answered from
// the table of requests.
#include "rpc/stores/store.h"

#include "base/system.h"

enum { MOST_BLOCKED = 1024 };
#define POLL_NS 100000000

typedef struct mu_blocked {
    struct mu_blocked *next;
    mu_server_call *call;
    int64_t ask[MU_N_ASK];
    char *method, *name; // owned; the name of what others change; NULL: it waits for the copy
    mu_value *arguments; // retained; NULL: none
    uint64_t hash;       // of the name; 0: it has none
    int64_t staged;      // the number under which the copy gets the arguments before the change; 0: it does not
    bool due;            // what it waits for may have come since it was last tried
    int64_t since_ns, until_ns;
} mu_blocked;

// FNV-1a; two names with one hash are only tried more often.
uint64_t mu__blocked_hash(const char *name)
{
    uint64_t hash = 14695981039346656037u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash | 1;
}

static void blocked_free(mu_blocked *blocked)
{
    mu_release(blocked->arguments);
    mu__free(blocked->method);
    mu__free(blocked->name);
    mu__free(blocked);
}

void mu__blocked_free(mu_store *store)
{
    for (mu_blocked *blocked = store->first_blocked, *next; blocked != NULL; blocked = next) {
        next = blocked->next;
        blocked_free(blocked);
    }
    store->first_blocked = NULL;
}

mu_status mu__blocked_add(mu_store *store, mu_server_call *call, mu_change *change, const char *method,
                          mu_value *arguments)
{
    mu_blocked **last = &store->first_blocked;
    int n = 0; // that wait for others' changes; the others are bounded by what the server takes
    for (; *last != NULL; last = &(*last)->next)
        n += (*last)->name != NULL;
    if (n >= MOST_BLOCKED && change->waits_for != NULL)
        return mu__error(MU_RESOURCE_EXHAUSTED,
                         "%d requests wait at store %d for others' changes, which is the limit; let fewer takes wait "
                         "at a time, or add servers",
                         MOST_BLOCKED, store->number);
    mu_blocked *blocked = mu__calloc(1, sizeof *blocked);
    if (blocked == NULL)
        return MU_RESOURCE_EXHAUSTED;
    *blocked = (mu_blocked){.call = call,
                            .method = mu__strdup(method),
                            .name = change->waits_for,
                            .hash = change->waits_for != NULL ? mu__blocked_hash(change->waits_for) : 0,
                            .due = true,
                            .staged = change->staged,
                            .since_ns = change->since_ns,
                            .until_ns = change->until_ns};
    change->waits_for = NULL;
    if (blocked->method == NULL) {
        blocked_free(blocked);
        return MU_RESOURCE_EXHAUSTED;
    }
    memcpy(blocked->ask, change->ask, sizeof blocked->ask);
    blocked->arguments = mu_retain(arguments);
    *last = blocked;
    mu__stores_wake(store->stores);
    return MU_OK;
}

void mu__blocked_concerns(mu_store *store, uint64_t name)
{
    bool any = false;
    for (mu_blocked *blocked = store->first_blocked; blocked != NULL; blocked = blocked->next)
        if (blocked->name != NULL && (blocked->hash == name || name == MU_CONCERNS_ALL))
            any = blocked->due = true;
    if (any)
        mu__stores_wake(store->stores);
}

void mu__blocked_due(mu_store *store, int64_t staged)
{
    for (mu_blocked *blocked = store->first_blocked; blocked != NULL; blocked = blocked->next)
        blocked->due |= blocked->staged == staged;
    mu__stores_wake(store->stores);
}

bool mu__blocked_is_next(const mu_store *store, const mu_blocked *blocked, const char *name)
{
    for (const mu_blocked *at = store->first_blocked; at != NULL && at != blocked; at = at->next)
        if (at->name != NULL && strcmp(at->name, name) == 0)
            return false;
    return true;
}

// With the lock held. Whether it is worth while to run the request.
static bool may_begin(mu_store *store, mu_blocked *blocked)
{
    if (blocked->name == NULL)
        return !mu__staging_wait(store, &blocked->staged, blocked->arguments);
    return mu__blocked_is_next(store, blocked, blocked->name) || mu__now_ns() >= blocked->until_ns;
}

// With the lock held. Whether somebody else may be primary: then the client must look. A primary that was cut off has
// a heartbeat to hear from its copy, or from the coordinator, again.
static bool is_led_elsewhere(const mu_store *store, const mu_blocked *blocked)
{
    const int64_t led_ns = MU_MAX(mu__store_led_ns(store), blocked->since_ns);
    return store->role != MU_STORE_PRIMARY || store->replaced || store->epoch != blocked->ask[MU_ASK_EPOCH] ||
           mu__now_ns() > led_ns + (int64_t)(store->stores->heartbeat * 1e9);
}

// With the lock held, which it gives up while the method runs. Whether the request has ended.
static bool try_blocked(mu_store *store, mu_blocked *blocked)
{
    mu_change change = {.store = store, .blocked = blocked, .since_ns = blocked->since_ns};
    if (is_led_elsewhere(store, blocked)) {
        mu__call_answer(blocked->call, mu__store_refusal(store->stores, store, MU_NOT_PRIMARY));
        return true;
    }
    if (mu__call_cancelled(blocked->call)) {
        mu__call_answer(blocked->call, mu__store_answer(store, MU_CANCELLED, mu__text_value("the call was cancelled")));
        return true;
    }
    blocked->due = false;
    if (!may_begin(store, blocked))
        return false;
    memcpy(change.ask, blocked->ask, sizeof change.ask);
    change.staged = blocked->staged;
    pthread_mutex_unlock(&store->stores->lock);
    mu_value *value = mu__store_run(&change, blocked->method, blocked->arguments);
    pthread_mutex_lock(&store->stores->lock);
    mu__store_finish(&change, blocked->call, blocked->method, blocked->arguments, value);
    mu__free(change.waits_for);
    blocked->staged = change.staged;
    blocked->until_ns = change.waits ? change.until_ns : blocked->until_ns;
    return !change.waits;
}

// Tries those that are due, or all. Other threads only append meanwhile. Behind one that has ended the next is due.
static void try_each(mu_store *store, bool all)
{
    mu_error_value ignored;
    for (mu_blocked **at = &store->first_blocked, *blocked; (blocked = *at) != NULL;) {
        mu_pool *pool = mu_pool_open();
        const bool ended = (all || blocked->due) && try_blocked(store, blocked);
        mu_pool_close(pool);
        if (mu__pending()) // a call without an answer runs into its client's deadline; the others are tried
            mu__error_move(&ignored);
        if (ended) {
            const uint64_t hash = blocked->hash;
            *at = blocked->next;
            mu__staging_drop(store, blocked->staged);
            blocked_free(blocked);
            mu__blocked_concerns(store, hash);
        } else {
            at = &blocked->next;
        }
    }
}

bool mu__blocked_is_due(const mu_store *store)
{
    const mu_blocked *blocked = store->first_blocked;
    while (blocked != NULL && !blocked->due)
        blocked = blocked->next;
    return blocked != NULL;
}

// All are tried from time to time: they may be cancelled or late, or wait at a store that is led elsewhere.
int64_t mu__blocked_run(mu_store *store)
{
    pthread_mutex_lock(&store->stores->lock);
    const bool all = mu__now_ns() >= store->blocked_ns;
    if (all)
        store->blocked_ns = mu__now_ns() + POLL_NS;
    try_each(store, all);
    for (const mu_blocked *blocked = store->first_blocked; blocked != NULL; blocked = blocked->next)
        store->blocked_ns = MU_MIN(store->blocked_ns, blocked->until_ns);
    const bool due = mu__blocked_is_due(store);
    const int64_t due_ns = store->first_blocked == NULL ? MU_FOREVER : due ? mu__now_ns() : store->blocked_ns;
    pthread_mutex_unlock(&store->stores->lock);
    return due_ns;
}
