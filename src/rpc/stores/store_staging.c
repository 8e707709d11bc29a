// Large changes of a store that has a complete copy: what a request brings is sent to the copy before the request has
// its place in the order of changes.
//
// All answers of a store wait until the copy has the changes before them, so one change of hundreds of megabytes would
// hold up every reading, every other update and the lease for as long as it is sent. Therefore its request waits
// (store_blocked.c) while its arguments go to the copy beside the messages that have positions; the copy keeps them
// under a number. Then the change takes its place, and what the copy gets there is the number. If staging fails,
// for whatever reason, the change is sent in its place, as a small one is.
#include "rpc/stores/store.h"

typedef enum staging_state { STAGING_WAITS, STAGING_SENT, STAGING_THERE, STAGING_FAILED } staging_state;

// Arguments that are staged, from the request's arrival until the copy has the change.
struct mu_staging {
    struct mu_staging *next;
    int64_t number;
    staging_state state;
    int64_t sequence; // of the change; 0: it is not made yet
    mu_value *value;  // retained, until it was sent
    size_t bytes;
    mu_rpc_result *result; // owned; NULL: it is not on its way
};

// ---- The primary's end --------------------------------------------------------------------------

static void ended(void *arg) { mu__stores_wake(arg); }

static struct mu_staging **find(mu_store *store, int64_t number)
{
    struct mu_staging **at = &store->first_staging;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

static void end_sending(struct mu_staging *staging)
{
    if (staging->result != NULL)
        mu_rpc_result_cancel(staging->result);
    mu_release(staging->result);
    mu_release(staging->value);
    staging->result = NULL;
    staging->value = NULL;
}

static void take_out(struct mu_staging **at)
{
    struct mu_staging *gone = *at;
    *at = gone->next;
    end_sending(gone);
    mu__free(gone);
}

// NULL without memory: the change is sent in its place.
static struct mu_staging *begin(mu_store *store, mu_value *arguments, size_t bytes)
{
    mu_error_value ignored;
    struct mu_staging *made = mu__calloc(1, sizeof *made), **last = &store->first_staging;
    if (made == NULL) {
        mu__error_move(&ignored);
        return NULL;
    }
    *made = (struct mu_staging){.number = ++store->n_staged, .value = mu_retain(arguments), .bytes = bytes};
    while (*last != NULL)
        last = &(*last)->next;
    mu__stores_wake(store->stores);
    return *last = made;
}

bool mu__staging_wait(mu_store *store, int64_t *number, mu_value *arguments)
{
    size_t bytes = 0;
    mu_error_value ignored;
    const bool copied =
        store->role == MU_STORE_PRIMARY && store->copy != NULL && store->complete && !store->parted && !store->replaced;
    struct mu_staging *staging = copied ? *find(store, *number) : NULL;
    if (!copied || arguments == NULL)
        return false;
    if (staging == NULL && mu__message_bytes(arguments, "what a copy gets", &bytes) != MU_OK)
        mu__error_move(&ignored);
    if (bytes > MU_LARGE_CHANGE && (staging = begin(store, arguments, bytes)) != NULL)
        *number = staging->number;
    return staging != NULL && staging->state < STAGING_THERE;
}

// What the copy has of it, or gets although the call is cancelled, stays there until it hears which is the oldest.
void mu__staging_drop(mu_store *store, int64_t number)
{
    struct mu_staging **at = find(store, number);
    if (*at == NULL || (*at)->sequence != 0)
        return;
    if ((*at)->state != STAGING_WAITS)
        store->dropped_staged = MU_MAX(store->dropped_staged, number);
    take_out(at);
    if (store->dropped_staged > 0)
        mu__stores_wake(store->stores);
}

bool mu__staging_record(mu_store *store, int64_t number, int64_t sequence)
{
    struct mu_staging *staging = *find(store, number);
    if (staging == NULL || staging->state != STAGING_THERE)
        return false;
    staging->sequence = sequence;
    return true;
}

size_t mu__staging_bytes(const mu_store *store)
{
    size_t bytes = 0;
    for (const struct mu_staging *at = store->first_staging; at != NULL; at = at->next)
        bytes += at->bytes;
    return bytes;
}

// The answer: [epoch, status code].
static void take_answer(mu_store *store, struct mu_staging *staging)
{
    int64_t answer[2] = {0, MU_UNAVAILABLE};
    mu_error_value error;
    const mu_value *value = mu_rpc_result_value(staging->result);
    if (value != NULL)
        mu__numbers_of(value, answer, 2);
    mu__error_move(&error);
    staging->state = error.code == MU_OK && answer[1] == MU_OK ? STAGING_THERE : STAGING_FAILED;
    if (staging->state == STAGING_FAILED)
        mu__log(MU_LOG_INFO, "store %d: a change of %zu bytes goes to the copy in its place, and holds up others: %s",
                store->number, staging->bytes,
                error.code != MU_OK ? error.message : "the copy does not keep its arguments");
    store->replaced |= answer[0] > store->epoch && mu__epoch_valid(answer[0]);
    end_sending(staging);
    mu__blocked_due(store, staging->number);
}

static int64_t oldest_used(const mu_store *store)
{
    return store->first_staging != NULL ? store->first_staging->number : store->n_staged + 1;
}

static mu_rpc_result *begin_sending(mu_store *store, int64_t number, mu_value *arguments)
{
    static const mu_wire_need need = {MU_WIRE_STAGED, "arguments that are staged at a copy"};
    const int64_t oldest = oldest_used(store);
    const int64_t head[MU_N_STAGE] = {store->number, store->epoch, (int64_t)store->copy_process, number, oldest};
    const double seconds = store->stores->heartbeat + mu__setting_real(MU_SETTING_TIMEOUT) / 2;
    if (oldest > store->dropped_staged)
        store->dropped_staged = 0;
    return mu__client_call_since(store->copy, &need, "muster.store.ahead",
                                 mu_list(mu__numbers_value(head, MU_N_STAGE), arguments, MU_END), seconds,
                                 number != MU_STAGE_NOTHING ? ended : NULL, store->stores);
}

static void stage(mu_store *store, struct mu_staging *staging)
{
    mu_error_value ignored;
    staging->result = begin_sending(store, staging->number, staging->value);
    staging->state = staging->result != NULL ? STAGING_SENT : STAGING_FAILED;
    if (staging->result != NULL)
        return;
    mu__error_move(&ignored);
    mu__blocked_due(store, staging->number);
}

// If nothing that is sent says so, the copy hears once that what was dropped is no longer used, as soon as nothing
// before it is. If that is lost, what it keeps is bounded anyway.
static void announce_dropped(mu_store *store)
{
    mu_error_value ignored;
    if (store->dropped_staged == 0 || oldest_used(store) <= store->dropped_staged || store->copy == NULL)
        return;
    mu_release(begin_sending(store, MU_STAGE_NOTHING, mu_list(MU_END)));
    mu__error_move(&ignored);
}

// What is on its way, or there and without its place, is at most MU_STAGED_BYTES, or one change: the copy keeps it.
static void send_each(mu_store *store)
{
    size_t bytes = 0;
    for (struct mu_staging *at = store->first_staging; at != NULL; at = at->next) {
        if (at->result != NULL && mu_rpc_result_is_done(at->result))
            take_answer(store, at);
        bytes += at->state == STAGING_SENT || at->state == STAGING_THERE ? at->bytes : 0;
    }
    for (struct mu_staging *at = store->first_staging; at != NULL && store->copy != NULL; at = at->next) {
        if (at->state != STAGING_WAITS)
            continue;
        if (bytes > 0 && bytes + at->bytes > MU_STAGED_BYTES)
            return;
        bytes += at->bytes;
        stage(store, at);
    }
}

void mu__staging_step(mu_store *store)
{
    send_each(store);
    announce_dropped(store);
}

void mu__staging_copied(mu_store *store)
{
    for (struct mu_staging **at = &store->first_staging; *at != NULL;)
        if ((*at)->sequence > 0 && (*at)->sequence <= store->copied)
            take_out(at);
        else
            at = &(*at)->next;
}

// ---- The copy's end -----------------------------------------------------------------------------

static void release_staged(mu_store *store, const mu_staged_arguments *staged)
{
    store->staged.bytes -= staged->bytes;
    mu__holder_give(&store->staged.holder, staged->bytes);
    mu_release(staged->value);
}

static void forget_before(mu_store *store, int64_t number)
{
    size_t kept = 0;
    for (size_t i = 0; i < store->staged.n; i++) {
        const mu_staged_arguments at = store->staged.items[i];
        if (at.number >= number)
            store->staged.items[kept++] = at;
        else
            release_staged(store, &at);
    }
    store->staged.n = kept;
}

static int64_t keep(mu_store *store, const int64_t *head, mu_value *value, size_t bytes)
{
    const mu_staged_arguments staged = {.number = head[MU_STAGE_NUMBER], .value = value, .bytes = bytes};
    mu_error_value ignored;
    if (store->role != MU_STORE_COPY || store->promoting || head[MU_STAGE_EPOCH] != store->epoch)
        return MU_ABORTED;
    store->staged.oldest = MU_MAX(store->staged.oldest, head[MU_STAGE_OLDEST]);
    forget_before(store, store->staged.oldest);
    if (staged.number == MU_STAGE_NOTHING)
        return MU_OK;
    if (staged.number < store->staged.oldest)
        return MU_ABORTED; // it comes late: the primary has given it up
    const size_t has = store->staged.bytes;
    if (store->staged.n > 0 && (has > MU_STAGED_BYTES || bytes > MU_STAGED_BYTES - has))
        return MU_RESOURCE_EXHAUSTED;
    if (!mu__holder_take(&store->staged.holder, bytes))
        return MU_RESOURCE_EXHAUSTED;
    if (MU_PUSH(&store->staged, staged) != MU_OK) {
        mu__error_move(&ignored);
        mu__holder_give(&store->staged.holder, bytes);
        return MU_RESOURCE_EXHAUSTED;
    }
    store->staged.bytes += bytes;
    mu_retain(value);
    return MU_OK;
}

mu_value *mu__staging_take(mu_stores *stores, mu_value *arguments)
{
    int64_t head[MU_N_STAGE], answer[2] = {0, MU_ABORTED};
    size_t bytes = 0;
    if (mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_STAGE) != MU_OK)
        return NULL;
    if (head[MU_STAGE_NUMBER] < MU_STAGE_NOTHING || head[MU_STAGE_NUMBER] == INT64_MAX) {
        mu__error(MU_INVALID_ARGUMENT,
                  "the arguments that a primary stages have number %lld; give 1 to %lld, or %d with nothing",
                  (long long)head[MU_STAGE_NUMBER], (long long)INT64_MAX - 1, MU_STAGE_NOTHING);
        return NULL;
    }
    mu_value *value = mu_value_at(arguments, 1);
    if (value == NULL || mu__message_bytes(value, "the arguments that a primary stages", &bytes) != MU_OK)
        return NULL;
    if ((uint64_t)head[MU_STAGE_PROCESS] != mu__stores_process(stores) && !MU_PLANTED(MU_DEFECT_EARLIER_LIFE)) {
        mu__error(MU_FAILED_PRECONDITION, "the message is for an earlier process at this address");
        return NULL;
    }
    pthread_mutex_lock(&stores->lock);
    mu_store *store = mu__store_find(stores, head[MU_STAGE_STORE]);
    if (store != NULL) {
        answer[1] = keep(store, head, value, bytes);
        answer[0] = store->epoch;
    }
    pthread_mutex_unlock(&stores->lock);
    return mu__numbers_value(answer, 2);
}

mu_value *mu__staging_received(mu_store *store, int64_t number)
{
    mu_value *value = NULL;
    pthread_mutex_lock(&store->stores->lock);
    for (size_t i = 0; i < store->staged.n && value == NULL; i++)
        if (store->staged.items[i].number == number) {
            value = mu_retain(store->staged.items[i].value);
            release_staged(store, &store->staged.items[i]);
            store->staged.items[i] = store->staged.items[--store->staged.n];
        }
    pthread_mutex_unlock(&store->stores->lock);
    if (value != NULL)
        return mu__give(value);
    mu__error(MU_DATA_LOSS,
              "this copy of store %d does not have the arguments that its primary has staged under number %lld",
              store->number, (long long)number);
    return NULL;
}

// ---- Both ---------------------------------------------------------------------------------------

void mu__staging_end(mu_store *store)
{
    while (store->first_staging != NULL)
        take_out(&store->first_staging);
    for (size_t i = 0; i < store->staged.n; i++)
        release_staged(store, &store->staged.items[i]);
    mu__free(store->staged.items);
    store->staged.items = NULL;
    store->staged.n = store->staged.capacity = 0;
    store->staged.oldest = 0;
    store->dropped_staged = 0;
    store->blocked_ns = 0; // requests that waited for this look again
}
