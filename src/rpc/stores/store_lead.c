// What a server does when the coordinator orders it to lead a store: it becomes the store's primary, with what it has,
// with what a snapshot has, or with nothing, and begins to send everything to the copy. See store.h.
#include "rpc/stores/store.h"

#include "base/system.h"

// Whether a copy's primary may still answer: what the copy promised is not over, and the primary has not ended.
static bool may_answer(const mu_store *store)
{
    const mu_client_state state = mu__server_client(store->stores->server, store->primary_client);
    const bool ended = state == MU_CLIENT_CLOSED || (state == MU_CLIENT_SILENT && MU_PLANTED(MU_DEFECT_RESET));
    return mu__now_ns() < store->promised_ns && !ended && !MU_PLANTED(MU_DEFECT_STALE_PRIMARY);
}

static mu_status promote(mu_store *store, const int64_t *lead)
{
    if (store->role == MU_STORE_PRIMARY)
        return MU_OK;
    if (store->role != MU_STORE_COPY || !store->complete ||
        (!store->promoting && store->epoch != lead[MU_LEAD_FROM_EPOCH]))
        return mu__error(MU_FAILED_PRECONDITION, "store %d: this server has no complete copy of epoch %lld",
                         store->number, (long long)lead[MU_LEAD_FROM_EPOCH]);
    // From here on the primary's messages are refused, so that it stops at its lease's end at the latest.
    store->promoting = true;
    store->epoch = lead[MU_LEAD_EPOCH];
    if (may_answer(store))
        return mu__error(MU_UNAVAILABLE, "store %d: its primary may still answer; ask again", store->number);
    return MU_OK;
}

// With the lock held: what the coordinator says of the times that the store went back; none: what this server knows.
static void take_restores(mu_store *store, const mu_lead *lead)
{
    if (lead->has_restores)
        mu__restores_take(&store->restores, &lead->restores);
}

// With `changing` held, not the lock.
static mu_status restore(mu_store *store, const mu_lead *lead)
{
    pthread_mutex_lock(&store->stores->lock);
    take_restores(store, lead);
    const mu_restores before = store->restores;
    mu__store_drop(store);
    pthread_mutex_unlock(&store->stores->lock);
    const int64_t at = mu__snapshot_read(store, lead->numbers[MU_LEAD_CUT], lead->folder);
    pthread_mutex_lock(&store->stores->lock);
    if (at < 0) {
        if (mu_error_code() != MU_ABORTED) // which is about another order, not about the file
            snprintf(store->not_back, sizeof store->not_back, "%.*s", (int)sizeof store->not_back - 1,
                     mu_error_message());
        pthread_mutex_unlock(&store->stores->lock);
        return mu_error_code();
    }
    store->begun = store->applied = at;
    store->restores = before;
    mu__restores_add(&store->restores, lead->numbers[MU_LEAD_EPOCH], at);
    store->cut = MU_MAX(store->cut, lead->numbers[MU_LEAD_CUT]);
    pthread_mutex_unlock(&store->stores->lock);
    return MU_OK;
}

static mu_status become_primary(mu_store *store, const mu_lead *lead)
{
    mu_stores *stores = store->stores;
    const int64_t order = lead->numbers[MU_LEAD_ORDER];
    if (order == MU_ORDER_RESTORE)
        return restore(store, lead);
    mu_status status = MU_OK;
    pthread_mutex_lock(&stores->lock);
    if (order == MU_ORDER_EMPTY)
        mu__store_drop(store);
    else if (order == MU_ORDER_PROMOTE)
        status = promote(store, lead->numbers);
    else if (order != MU_ORDER_CONTINUE || (store->role != MU_STORE_PRIMARY && !MU_PLANTED(MU_DEFECT_EARLIER_LIFE)))
        status = mu__error(MU_FAILED_PRECONDITION, "store %d: this server is not its primary", store->number);
    if (status == MU_OK)
        take_restores(store, lead);
    pthread_mutex_unlock(&stores->lock);
    return status == MU_OK ? mu__store_ready(store) : status;
}

// Whether the store has what the order is about, and no other server was given it since the order began: a word of a
// later epoch, or the coordinator's end, may have come. Parts that were made again after the store was dropped are
// empty, but a store without a role has none.
static bool is_still_there(const mu_store *store, const int64_t *lead)
{
    const bool kept = lead[MU_LEAD_ORDER] == MU_ORDER_PROMOTE || lead[MU_LEAD_ORDER] == MU_ORDER_CONTINUE;
    return store->parts[0] != NULL && mu__store_epoch(store) <= lead[MU_LEAD_EPOCH] &&
           (!kept || store->role != MU_STORE_NONE || MU_PLANTED(MU_DEFECT_EARLIER_LIFE));
}

// With both locks held.
static mu_status begin_leading(mu_store *store, const int64_t *lead, mu_value *captured, mu_rpc_client *copy,
                               bool goes_back)
{
    if (!is_still_there(store, lead))
        return mu__error(MU_ABORTED, "store %d was dropped, or given to another server, while this server took it over",
                         store->number);
    mu__copying_end(store);
    store->role = MU_STORE_PRIMARY;
    store->epoch = lead[MU_LEAD_EPOCH];
    store->promoting = false;
    store->goes_back = goes_back;
    if (copy == NULL)
        return MU_OK;
    store->copy = mu_retain(copy);
    store->copy_process = (uint64_t)lead[MU_LEAD_COPY_PROCESS];
    const mu_status status = mu__copying_begin(store, captured, mu__seen_value(&store->seen));
    if (status != MU_OK)
        mu__copying_end(store); // a copy that lacks a part would never be complete
    return status;
}

// With `changing` held: takes the role, and begins to send everything to the copy.
static mu_status lead_store(mu_store *store, const mu_lead *lead)
{
    mu_stores *stores = store->stores;
    mu_value *captured = *lead->copy != '\0' ? mu__store_capture(store) : NULL;
    mu_rpc_client *client = captured != NULL ? mu__client_of_task(lead->copy, NULL, MU_ROLE_PS, MU_BEARER_ALL) : NULL;
    if (mu__pending())
        return mu_error_code();
    pthread_mutex_lock(&stores->lock);
    const mu_status status = begin_leading(store, lead->numbers, captured, client, *lead->folder != '\0');
    mu__store_release_waiting(store, mu__now_ns());
    pthread_mutex_unlock(&stores->lock);
    mu_release(client);
    mu__stores_wake(stores);
    return status;
}

// Whether an order is new, or repeats one that waits for a lease. Errors: ABORTED for one that came late, or waited for
// a change until the coordinator had given the store to another server.
static mu_status is_new(mu_store *store, const int64_t *lead, bool *new)
{
    const int64_t epoch = lead[MU_LEAD_EPOCH];
    pthread_mutex_lock(&store->stores->lock);
    const int64_t own = mu__store_epoch(store);
    *new = epoch > own || (epoch == own && store->promoting);
    const bool repeated = epoch == own && store->role == MU_STORE_PRIMARY;
    pthread_mutex_unlock(&store->stores->lock);
    if (*new || repeated)
        return MU_OK;
    return mu__error(MU_ABORTED, "store %d has epoch %lld; the order has %lld", store->number, (long long)own,
                     (long long)epoch);
}

static mu_status tell_lost(mu_store *store, const int64_t *lead)
{
    pthread_mutex_lock(&store->stores->lock);
    mu__store_step_down(store, lead[MU_LEAD_EPOCH]);
    store->gone = true;
    pthread_mutex_unlock(&store->stores->lock);
    return MU_OK;
}

mu_status mu__store_take_lead(mu_store *store, const mu_lead *lead)
{
    bool new = false;
    pthread_mutex_lock(&store->changing);
    mu_status status = is_new(store, lead->numbers, &new);
    if (status == MU_OK && new && lead->numbers[MU_LEAD_ORDER] == MU_ORDER_LOST) {
        status = tell_lost(store, lead->numbers);
    } else if (status == MU_OK && new) {
        status = become_primary(store, lead);
        status = status == MU_OK ? lead_store(store, lead) : status;
    }
    pthread_mutex_unlock(&store->changing);
    return status;
}
