// Requests that wait for others' changes, such as a take for the gradients of other clients: see mu__change_begin_when.
//
// One that cannot begin yet gives its thread back and stays here as a call to be answered later. All that wait are tried
// in the order of their arrival after each change, on the thread that repeats the stores' steps. Only the primary has
// them: whoever is promoted gets them from the clients, which send them again, and one that was done before is answered
// from the table of requests.
#include "rpc/store.h"

#include "base/system.h"

enum { MOST_TURNS = 1024 };
#define POLL_NS 100000000

typedef struct mu_turn {
    struct mu_turn *next;
    mu_server_call *call;
    int64_t ask[MU_N_ASK];
    char *method, *name; // owned; the name of what others change
    mu_value *arguments; // retained; NULL: none
    int64_t since_ns, until_ns;
} mu_turn;

static void turn_free(mu_turn *turn)
{
    mu_release(turn->arguments);
    mu__free(turn->method);
    mu__free(turn->name);
    mu__free(turn);
}

void mu__turns_free(mu_store *store)
{
    for (mu_turn *turn = store->first_turn, *next; turn != NULL; turn = next) {
        next = turn->next;
        turn_free(turn);
    }
    store->first_turn = NULL;
}

mu_status mu__turn_add(mu_store *store, mu_server_call *call, mu_change *change, const char *method,
                       mu_value *arguments)
{
    mu_turn **last = &store->first_turn;
    int n = 0;
    for (; *last != NULL; n++)
        last = &(*last)->next;
    if (n == MOST_TURNS)
        return mu__error(MU_RESOURCE_EXHAUSTED, "%d requests wait at store %d for others' changes; no more are "
                         "accepted", MOST_TURNS, store->number);
    mu_turn *turn = mu__calloc(1, sizeof *turn);
    if (turn == NULL)
        return MU_RESOURCE_EXHAUSTED;
    *turn = (mu_turn){.call = call, .method = mu__strdup(method), .name = change->waits_for,
                      .since_ns = change->since_ns, .until_ns = change->until_ns};
    change->waits_for = NULL;
    if (turn->method == NULL) {
        turn_free(turn);
        return MU_RESOURCE_EXHAUSTED;
    }
    memcpy(turn->ask, change->ask, sizeof turn->ask);
    turn->arguments = mu_retain(arguments);
    *last = turn;
    store->turns_due = true; // what it waits for may have come meanwhile
    mu__stores_wake(store->stores);
    return MU_OK;
}

bool mu__turn_is_next(const mu_store *store, const mu_turn *turn, const char *name)
{
    for (const mu_turn *at = store->first_turn; at != NULL && at != turn; at = at->next)
        if (strcmp(at->name, name) == 0)
            return false;
    return true;
}

// With the lock held. Whether somebody else may be primary: then the client must look. A primary that was cut off has
// a heartbeat to hear from its copy, or from the coordinator, again.
static bool is_led_elsewhere(const mu_store *store, const mu_turn *turn)
{
    const int64_t led_ns = MU_MAX(mu__store_led_ns(store), turn->since_ns);
    return store->role != MU_STORE_PRIMARY || store->epoch != turn->ask[MU_ASK_EPOCH] ||
           mu__now_ns() > led_ns + (int64_t)(store->stores->heartbeat * 1e9);
}

// With the lock held, which it gives up while the method runs. Whether the request has ended.
static bool try_turn(mu_store *store, mu_turn *turn)
{
    mu_change change = {.store = store, .turn = turn, .since_ns = turn->since_ns};
    if (is_led_elsewhere(store, turn)) {
        mu__call_answer(turn->call, mu__store_refusal(store->stores, store, MU_NOT_PRIMARY));
        return true;
    }
    if (mu__call_cancelled(turn->call)) {
        mu__call_answer(turn->call, mu__store_answer(store, MU_CANCELLED, mu__text_value("the call was cancelled")));
        return true;
    }
    memcpy(change.ask, turn->ask, sizeof change.ask);
    pthread_mutex_unlock(&store->stores->lock);
    mu_value *value = mu__store_run(&change, turn->method, turn->arguments);
    pthread_mutex_lock(&store->stores->lock);
    mu__store_finish(&change, turn->call, turn->method, turn->arguments, value);
    mu__free(change.waits_for);
    turn->until_ns = change.waits ? change.until_ns : turn->until_ns;
    return !change.waits;
}

// Other threads only append meanwhile.
static void try_all(mu_store *store)
{
    for (mu_turn **at = &store->first_turn, *turn; (turn = *at) != NULL;) {
        mu_pool *pool = mu_pool_open();
        const bool ended = try_turn(store, turn);
        mu_pool_close(pool);
        if (ended) {
            *at = turn->next;
            turn_free(turn);
        } else {
            at = &turn->next;
        }
    }
}

int64_t mu__turns_run(mu_store *store)
{
    mu_error_value ignored;
    pthread_mutex_lock(&store->stores->lock);
    if (store->first_turn != NULL && (store->turns_due || mu__now_ns() >= store->turns_ns)) {
        store->turns_due = false;
        try_all(store);
        mu__error_move(&ignored); // a call without an answer runs into its client's deadline
        store->turns_ns = mu__now_ns() + POLL_NS;
        for (const mu_turn *turn = store->first_turn; turn != NULL; turn = turn->next)
            store->turns_ns = MU_MIN(store->turns_ns, turn->until_ns);
    }
    const int64_t due_ns = store->first_turn == NULL ? MU_FOREVER : store->turns_due ? mu__now_ns() : store->turns_ns;
    pthread_mutex_unlock(&store->stores->lock);
    return due_ns;
}
