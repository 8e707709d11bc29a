// Large changes of a store that has a complete copy: what a request brings is sent to the copy before the request has
// its place in the order of changes.
//
// All answers of a store wait until the copy has the changes before them, so one change of hundreds of megabytes would
// hold up every reading, every other update and the lease for as long as it is sent. Therefore its request waits
// (store_blocked.c) while its arguments go to the copy beside the messages that have positions; the copy keeps them
// under a number. Then the change takes its place, and what the copy gets there is the number. If sending ahead fails,
// for whatever reason, the change is sent in its place, as a small one is.
#include "rpc/stores/store.h"

typedef enum ahead_state { AHEAD_WAITS, AHEAD_SENT, AHEAD_THERE, AHEAD_FAILED } ahead_state;

// What is sent ahead, from the request's arrival until the copy has the change.
struct mu_ahead {
    struct mu_ahead *next;
    int64_t number;
    ahead_state state;
    int64_t sequence;      // of the change; 0: it is not made yet
    mu_value *value;       // retained, until it was sent
    size_t bytes;
    mu_rpc_result *result; // owned; NULL: it is not on its way
};

// ---- The primary's end --------------------------------------------------------------------------

static void ended(void *arg) { mu__stores_wake(arg); }

static struct mu_ahead **find(mu_store *store, int64_t number)
{
    struct mu_ahead **at = &store->first_ahead;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

static void end_sending(struct mu_ahead *ahead)
{
    if (ahead->result != NULL)
        mu_rpc_result_cancel(ahead->result);
    mu_release(ahead->result);
    mu_release(ahead->value);
    ahead->result = NULL;
    ahead->value = NULL;
}

static void take_out(struct mu_ahead **at)
{
    struct mu_ahead *gone = *at;
    *at = gone->next;
    end_sending(gone);
    mu__free(gone);
}

// NULL without memory: the change is sent in its place.
static struct mu_ahead *begin(mu_store *store, mu_value *arguments, size_t bytes)
{
    mu_error_value ignored;
    struct mu_ahead *made = mu__calloc(1, sizeof *made), **last = &store->first_ahead;
    if (made == NULL) {
        mu__error_move(&ignored);
        return NULL;
    }
    *made = (struct mu_ahead){.number = ++store->n_ahead, .value = mu_retain(arguments), .bytes = bytes};
    while (*last != NULL)
        last = &(*last)->next;
    mu__stores_wake(store->stores);
    return *last = made;
}

bool mu__ahead_wait(mu_store *store, int64_t *number, mu_value *arguments)
{
    size_t bytes = 0;
    mu_error_value ignored;
    const bool copied = store->role == MU_STORE_PRIMARY && store->copy != NULL && store->complete && !store->parted &&
                        !store->replaced;
    struct mu_ahead *ahead = copied ? *find(store, *number) : NULL;
    if (!copied || arguments == NULL)
        return false;
    if (ahead == NULL && mu__message_bytes(arguments, "what a copy gets", &bytes) != MU_OK)
        mu__error_move(&ignored);
    if (bytes > MU_LARGE_CHANGE && (ahead = begin(store, arguments, bytes)) != NULL)
        *number = ahead->number;
    return ahead != NULL && ahead->state < AHEAD_THERE;
}

// What the copy has of it, or gets although the call is cancelled, stays there until it hears which is the oldest.
void mu__ahead_drop(mu_store *store, int64_t number)
{
    struct mu_ahead **at = find(store, number);
    if (*at == NULL || (*at)->sequence != 0)
        return;
    if ((*at)->state != AHEAD_WAITS)
        store->dropped_ahead = MU_MAX(store->dropped_ahead, number);
    take_out(at);
    if (store->dropped_ahead > 0)
        mu__stores_wake(store->stores);
}

bool mu__ahead_record(mu_store *store, int64_t number, int64_t sequence)
{
    struct mu_ahead *ahead = *find(store, number);
    if (ahead == NULL || ahead->state != AHEAD_THERE)
        return false;
    ahead->sequence = sequence;
    return true;
}

size_t mu__ahead_bytes(const mu_store *store)
{
    size_t bytes = 0;
    for (const struct mu_ahead *at = store->first_ahead; at != NULL; at = at->next)
        bytes += at->bytes;
    return bytes;
}

// The answer: [epoch, status code].
static void take_answer(mu_store *store, struct mu_ahead *ahead)
{
    int64_t answer[2] = {0, MU_UNAVAILABLE};
    mu_error_value error;
    const mu_value *value = mu_rpc_result_value(ahead->result);
    if (value != NULL)
        mu__numbers_of(value, answer, 2);
    mu__error_move(&error);
    ahead->state = error.code == MU_OK && answer[1] == MU_OK ? AHEAD_THERE : AHEAD_FAILED;
    if (ahead->state == AHEAD_FAILED)
        mu__log(MU_LOG_INFO, "store %d: a change of %zu bytes goes to the copy in its place, and holds up others: %s",
                store->number, ahead->bytes, error.code != MU_OK ? error.message : "the copy does not take it ahead");
    store->replaced |= answer[0] > store->epoch && mu__epoch_valid(answer[0]);
    end_sending(ahead);
    mu__blocked_due(store, ahead->number);
}

static int64_t oldest_used(const mu_store *store)
{
    return store->first_ahead != NULL ? store->first_ahead->number : store->n_ahead + 1;
}

static mu_rpc_result *begin_sending(mu_store *store, int64_t number, mu_value *arguments)
{
    static const mu_wire_need need = {MU_WIRE_AHEAD, "changes that are sent to a copy before their place"};
    const int64_t oldest = oldest_used(store);
    const int64_t head[MU_N_AHEAD] = {store->number, store->epoch, (int64_t)store->copy_process, number, oldest};
    const double seconds = store->stores->heartbeat + mu__setting_real(MU_SETTING_TIMEOUT) / 2;
    if (oldest > store->dropped_ahead)
        store->dropped_ahead = 0;
    return mu__client_call_since(store->copy, &need, "muster.store.ahead",
                                 mu_list(mu__numbers_value(head, MU_N_AHEAD), arguments, MU_END), seconds,
                                 number != MU_NOTHING_AHEAD ? ended : NULL, store->stores);
}

static void send_ahead(mu_store *store, struct mu_ahead *ahead)
{
    mu_error_value ignored;
    ahead->result = begin_sending(store, ahead->number, ahead->value);
    ahead->state = ahead->result != NULL ? AHEAD_SENT : AHEAD_FAILED;
    if (ahead->result != NULL)
        return;
    mu__error_move(&ignored);
    mu__blocked_due(store, ahead->number);
}

// If nothing that is sent says so, the copy is told once that what was dropped is no longer used, as soon as nothing
// before it is. If that is lost, what it keeps is bounded anyway.
static void tell_dropped(mu_store *store)
{
    mu_error_value ignored;
    if (store->dropped_ahead == 0 || oldest_used(store) <= store->dropped_ahead || store->copy == NULL)
        return;
    mu_release(begin_sending(store, MU_NOTHING_AHEAD, mu_list(MU_END)));
    mu__error_move(&ignored);
}

// What is on its way, or there and without its place, is at most MU_AHEAD_BYTES, or one change: the copy keeps it.
static void send_each(mu_store *store)
{
    size_t bytes = 0;
    for (struct mu_ahead *at = store->first_ahead; at != NULL; at = at->next) {
        if (at->result != NULL && mu_rpc_result_is_done(at->result))
            take_answer(store, at);
        bytes += at->state == AHEAD_SENT || at->state == AHEAD_THERE ? at->bytes : 0;
    }
    for (struct mu_ahead *at = store->first_ahead; at != NULL && store->copy != NULL; at = at->next) {
        if (at->state != AHEAD_WAITS)
            continue;
        if (bytes > 0 && bytes + at->bytes > MU_AHEAD_BYTES)
            return;
        bytes += at->bytes;
        send_ahead(store, at);
    }
}

void mu__ahead_step(mu_store *store)
{
    send_each(store);
    tell_dropped(store);
}

void mu__ahead_copied(mu_store *store)
{
    for (struct mu_ahead **at = &store->first_ahead; *at != NULL;)
        if ((*at)->sequence > 0 && (*at)->sequence <= store->copied)
            take_out(at);
        else
            at = &(*at)->next;
}

// ---- The copy's end -----------------------------------------------------------------------------

static void release_arrived(mu_store *store, const mu_arrived_ahead *arrived)
{
    store->arrived.bytes -= arrived->bytes;
    mu__holder_give(&store->arrived.holder, arrived->bytes);
    mu_release(arrived->value);
}

static void forget_before(mu_store *store, int64_t number)
{
    size_t kept = 0;
    for (size_t i = 0; i < store->arrived.n; i++) {
        const mu_arrived_ahead at = store->arrived.items[i];
        if (at.number >= number)
            store->arrived.items[kept++] = at;
        else
            release_arrived(store, &at);
    }
    store->arrived.n = kept;
}

static int64_t keep(mu_store *store, const int64_t *head, mu_value *value, size_t bytes)
{
    const mu_arrived_ahead arrived = {.number = head[MU_AHEAD_NUMBER], .value = value, .bytes = bytes};
    mu_error_value ignored;
    if (store->role != MU_STORE_COPY || store->promoting || head[MU_AHEAD_EPOCH] != store->epoch)
        return MU_ABORTED;
    store->arrived.oldest = MU_MAX(store->arrived.oldest, head[MU_AHEAD_OLDEST]);
    forget_before(store, store->arrived.oldest);
    if (arrived.number == MU_NOTHING_AHEAD)
        return MU_OK;
    if (arrived.number < store->arrived.oldest)
        return MU_ABORTED; // it comes late: the primary has given it up
    const size_t has = store->arrived.bytes;
    if (store->arrived.n > 0 && (has > MU_AHEAD_BYTES || bytes > MU_AHEAD_BYTES - has))
        return MU_RESOURCE_EXHAUSTED;
    if (!mu__holder_take(&store->arrived.holder, bytes))
        return MU_RESOURCE_EXHAUSTED;
    if (MU_PUSH(&store->arrived, arrived) != MU_OK) {
        mu__error_move(&ignored);
        mu__holder_give(&store->arrived.holder, bytes);
        return MU_RESOURCE_EXHAUSTED;
    }
    store->arrived.bytes += bytes;
    mu_retain(value);
    return MU_OK;
}

mu_value *mu__ahead_take(mu_stores *stores, mu_value *arguments)
{
    int64_t head[MU_N_AHEAD], answer[2] = {0, MU_ABORTED};
    size_t bytes = 0;
    if (mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_AHEAD) != MU_OK)
        return NULL;
    if (head[MU_AHEAD_NUMBER] < MU_NOTHING_AHEAD || head[MU_AHEAD_NUMBER] == INT64_MAX) {
        mu__error(MU_INVALID_ARGUMENT, "what a primary sends ahead has number %lld; give 1 to %lld, or %d with nothing",
                  (long long)head[MU_AHEAD_NUMBER], (long long)INT64_MAX - 1, MU_NOTHING_AHEAD);
        return NULL;
    }
    mu_value *value = mu_value_at(arguments, 1);
    if (value == NULL || mu__message_bytes(value, "what a primary sends ahead", &bytes) != MU_OK)
        return NULL;
    if ((uint64_t)head[MU_AHEAD_PROCESS] != mu__stores_process(stores) && !MU_PLANTED(MU_DEFECT_EARLIER_LIFE)) {
        mu__error(MU_FAILED_PRECONDITION, "the message is for an earlier process at this address");
        return NULL;
    }
    pthread_mutex_lock(&stores->lock);
    mu_store *store = mu__store_find(stores, head[MU_AHEAD_STORE]);
    if (store != NULL) {
        answer[1] = keep(store, head, value, bytes);
        answer[0] = store->epoch;
    }
    pthread_mutex_unlock(&stores->lock);
    return mu__numbers_value(answer, 2);
}

mu_value *mu__ahead_arrived(mu_store *store, int64_t number)
{
    mu_value *value = NULL;
    pthread_mutex_lock(&store->stores->lock);
    for (size_t i = 0; i < store->arrived.n && value == NULL; i++)
        if (store->arrived.items[i].number == number) {
            value = mu_retain(store->arrived.items[i].value);
            release_arrived(store, &store->arrived.items[i]);
            store->arrived.items[i] = store->arrived.items[--store->arrived.n];
        }
    pthread_mutex_unlock(&store->stores->lock);
    if (value != NULL)
        return mu__give(value);
    mu__error(MU_DATA_LOSS, "this copy of store %d does not have what its primary has sent ahead under number %lld",
              store->number, (long long)number);
    return NULL;
}

// ---- Both ---------------------------------------------------------------------------------------

void mu__ahead_end(mu_store *store)
{
    while (store->first_ahead != NULL)
        take_out(&store->first_ahead);
    for (size_t i = 0; i < store->arrived.n; i++)
        release_arrived(store, &store->arrived.items[i]);
    mu__free(store->arrived.items);
    store->arrived.items = NULL;
    store->arrived.n = store->arrived.capacity = 0;
    store->arrived.oldest = 0;
    store->dropped_ahead = 0;
    store->blocked_ns = 0; // requests that waited for this look again
}
