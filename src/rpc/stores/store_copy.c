// The copy of a store: what its primary sends it, one message at a time, and what the copy does with each.
//
// First everything that the store has, as it was at one moment, then every change since, in order, and a message
// without changes now and then. While the first part lasts, changes are acknowledged without the copy, but no more
// than some and half of what it takes: so what waits for it is bounded, and the transfer ends however many changes come
// (docs/decisions/0114). The copy's answers are also the primary's lease: until a while after it asked, it knows
// that nobody else has become primary, since the copy lets itself be promoted only later. A message that may have been
// lost is sent again under the same position; the copy takes each position once.
#include "rpc/stores/store.h"

enum { MOST_RECORDS = 256, MOST_RECORD_BYTES = 4 << 20, KEPT_SENT = 64 };
#define RETRY_NS        5000000
#define LOOK_NS         20000000
#define PINGS_PER_LEASE 3

static int64_t lease_ns(const mu_store *store, double part) { return (int64_t)(store->stores->heartbeat * part * 1e9); }

// ---- The primary's end --------------------------------------------------------------------------

static void ended(void *arg) { mu__stores_wake(arg); }

static mu_status push(mu_store *store, mu_copied kind, int64_t sequence, mu_value *value)
{
    mu_outbound item = {.kind = kind, .sequence = sequence, .value = value};
    MU_TRY(value != NULL ? mu__message_bytes(value, "what a copy gets", &item.bytes) : mu_error_code());
    MU_TRY(MU_PUSH(&store->outbound, item));
    store->outbound.bytes += item.bytes;
    mu_retain(value);
    return MU_OK;
}

static void drop_sent(mu_store *store, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const mu_outbound *sent = &store->outbound.items[store->outbound.first + i];
        store->outbound.bytes -= sent->bytes;
        store->outbound.taken += sent->bytes;
        mu_release(sent->value);
    }
    store->outbound.first += n;
    // What was sent leaves the array once it is as much as what was not.
    if (store->outbound.first < KEPT_SENT || 2 * store->outbound.first < store->outbound.n)
        return;
    store->outbound.n -= store->outbound.first;
    memmove(store->outbound.items, store->outbound.items + store->outbound.first,
            store->outbound.n * sizeof *store->outbound.items);
    store->outbound.first = 0;
}

// The end of a connection may take a while, so the client is released later, without the lock; at once if there is no
// memory. Works with an error pending.
static void end_client(mu_store *store)
{
    mu_error_value before, ignored;
    mu__error_move(&before);
    if (store->copy != NULL && MU_PUSH(&store->stores->ended, store->copy) == MU_OK)
        mu__stores_wake(store->stores);
    else
        mu_release(store->copy);
    store->copy = NULL;
    mu__error_move(&ignored);
    mu__error_raise(&before);
}

void mu__copying_end(mu_store *store)
{
    if (store->sending != NULL)
        mu_rpc_result_cancel(store->sending);
    mu_release(store->sending);
    store->sending = NULL;
    mu__staging_end(store);
    end_client(store);
    drop_sent(store, store->outbound.n - store->outbound.first);
    mu__free(store->outbound.items);
    memset(&store->outbound, 0, sizeof store->outbound);
    store->n_sending = store->sent_bytes = 0;
    store->complete = store->completion_acknowledged = store->sending_completion = false;
    store->again = store->parted = store->replaced = store->transferred = store->logged_slow = false;
    store->lease_ns = 0;
}

mu_status mu__copying_begin(mu_store *store, const mu_value *captured, const mu_value *seen)
{
    mu_value *none = mu_list(MU_END);
    store->position = 0;
    store->copied = store->applied;
    store->sending_to = store->applied;
    store->retry_ns = 0;
    store->heard_ns = mu__now_ns();
    mu_status status = push(store, MU_COPIED_BEGIN, store->applied, none);
    const int n = captured != NULL ? mu_value_count(captured) : 0;
    for (int i = 0; i < n && status == MU_OK; i++)
        status = push(store, MU_COPIED_RESOURCE, store->applied, mu_value_at(captured, i));
    return status == MU_OK ? push(store, MU_COPIED_SEEN, store->applied, (mu_value *)seen) : status;
}

mu_status mu__copying_record(mu_store *store, int64_t sequence, mu_value *record)
{
    const size_t before = store->outbound.bytes;
    MU_TRY(push(store, MU_COPIED_RECORDS, sequence, record));
    store->outbound.recorded += store->outbound.bytes - before;
    if (store->complete || store->logged_slow || mu__copying_keeps_up(store))
        return MU_OK;
    store->logged_slow = true;
    mu__log(MU_LOG_WARNING,
            "store %d: updates come faster than its new copy takes them, so they wait for it until it has everything",
            store->number);
    return MU_OK;
}

bool mu__copying_keeps_up(const mu_store *store)
{
    const size_t taken = store->outbound.taken + (store->sending_large ? store->sent_bytes : 0);
    return store->outbound.recorded <= MU_COPY_FREE_BYTES + taken / 2;
}

// The records that go together, or one of anything else: together they must not be larger than a server takes.
static size_t next_items(const mu_store *store)
{
    const mu_outbound *items = store->outbound.items + store->outbound.first;
    const size_t left = store->outbound.n - store->outbound.first;
    size_t n = left > 0, bytes = n > 0 ? items[0].bytes : 0;
    while (n > 0 && n < left && n < MOST_RECORDS && items[0].kind == MU_COPIED_RECORDS &&
           items[n].kind == MU_COPIED_RECORDS && (bytes += items[n].bytes) <= MOST_RECORD_BYTES)
        n++;
    return n;
}

static mu_value *body_of(const mu_store *store, size_t n)
{
    mu_value **values = mu__calloc(n + 1, sizeof *values);
    for (size_t i = 0; values != NULL && i < n; i++)
        values[i] = store->outbound.items[store->outbound.first + i].value;
    mu_value *body = values != NULL ? mu_list_of((int)n, values) : NULL;
    mu__free(values);
    return body;
}

static size_t bytes_of(const mu_store *store, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += store->outbound.items[store->outbound.first + i].bytes;
    return bytes;
}

// A large message may take longer than a heartbeat while its parts arrive (see_progress). Once the copy is complete,
// all answers of the store wait for the message, so its deadline is well before theirs.
static double message_seconds(const mu_store *store)
{
    const double answers = mu__setting_real(MU_SETTING_TIMEOUT), large = store->complete ? answers / 2 : answers;
    return store->stores->heartbeat + (store->sending_large ? large : 0);
}

// A message that is sent again under its position is the same message: the copy may have taken it.
static mu_status send_next(mu_store *store, int64_t now)
{
    const size_t n = store->again ? store->n_sending : next_items(store);
    const mu_outbound *last = n > 0 ? &store->outbound.items[store->outbound.first + n - 1] : NULL;
    if (!store->again) {
        store->sending_to = last != NULL ? last->sequence : store->copied;
        store->sending_completion = store->complete && store->sending_to >= store->complete_at;
        store->sending_bytes = bytes_of(store, n);
        store->sending_large = store->sending_bytes > MOST_RECORD_BYTES;
        store->sent_bytes = 0;
    }
    const int64_t head[MU_N_COPY] = {
        store->number,   store->epoch,      (int64_t)store->copy_process, last != NULL ? last->kind : MU_COPIED_RECORDS,
        store->position, store->sending_to, store->sending_completion,    store->cut};
    mu_value *message = mu_list(mu__numbers_value(head, MU_N_COPY), body_of(store, n), MU_END);
    store->sent_link = mu__client_ended(store->copy);
    store->sending =
        mu__client_call(store->copy, "muster.store.copy", message, message_seconds(store), ended, store->stores);
    store->n_sending = n;
    store->sent_ns = now;
    return store->sending != NULL ? MU_OK : mu_error_code();
}

static void acknowledged(mu_store *store)
{
    store->transferred |= store->n_sending > 0 &&
                          store->outbound.items[store->outbound.first + store->n_sending - 1].kind == MU_COPIED_SEEN;
    store->position++;
    store->heard_ns = mu__now_ns();
    drop_sent(store, store->n_sending);
    store->sent_bytes = 0; // they are in `taken` now
    store->copied = MU_MAX(store->copied, store->sending_to);
    mu__staging_copied(store);
    store->completion_acknowledged |= store->sending_completion;
    store->lease_ns = store->sent_ns + lease_ns(store, MU_PLANTED(MU_DEFECT_LONG_LEASE) ? 4 * MU_LEASE : MU_LEASE);
    store->lease_link = store->sent_link;
    // With much left to send, all answers would wait for it at once.
    if (store->complete || !store->transferred || store->outbound.bytes > MU_COPY_FREE_BYTES)
        return;
    store->complete = true;
    store->complete_at = store->begun;
    mu__log(MU_LOG_INFO, "store %d: its copy has everything", store->number);
}

// The answer: [epoch, status code]. A copy that refuses waits for the coordinator, as this primary then does: it
// answers nobody any more, and keeps what it has, because the copy may be lost before it has taken over.
static void take_answer(mu_store *store)
{
    int64_t answer[2] = {0, MU_UNAVAILABLE};
    mu_error_value error = {.code = MU_OK};
    mu_value *value = mu_rpc_result_value(store->sending);
    if (value != NULL)
        mu__numbers_of(value, answer, 2);
    mu__error_move(&error);
    mu_release(store->sending);
    store->sending = NULL;
    store->again = answer[1] != MU_OK || error.code != MU_OK;
    if (!store->again)
        acknowledged(store);
    else
        store->retry_ns = mu__now_ns() + RETRY_NS;
    store->replaced |= answer[0] > store->epoch && mu__epoch_valid(answer[0]);
}

// Notes whether the copy is there although it has not answered: parts of a large message arrive, or all have, and the
// copy has not had as long to load them as they took to arrive. Of a message that is sent again, only what goes beyond
// the earlier attempts is progress: a copy that refuses the message again and again is stuck. Returns when to look
// again.
static int64_t see_progress(mu_store *store, int64_t now)
{
    if (!store->sending_large)
        return MU_FOREVER;
    const size_t sent = MU_MIN(mu__client_sent(store->copy, store->sending), store->sending_bytes);
    const bool more = sent > store->sent_bytes;
    if (more) {
        store->sent_bytes = sent;
        store->part_ns = now;
    }
    if (more || (sent == store->sending_bytes && now - store->part_ns < store->part_ns - store->sent_ns))
        store->heard_ns = now;
    const bool answers_wait = store->first_waiting != NULL && !store->complete;
    return now + (answers_wait ? LOOK_NS : lease_ns(store, MU_LEASE / PINGS_PER_LEASE));
}

static int64_t send_messages(mu_store *store, int64_t now)
{
    mu_error_value ignored;
    if (store->sending != NULL && !mu_rpc_result_is_done(store->sending))
        return see_progress(store, now);
    if (store->sending != NULL)
        take_answer(store);
    if (store->parted || store->replaced)
        return MU_FOREVER;
    const bool waits = store->again || store->outbound.n > store->outbound.first ||
                       (store->complete && !store->completion_acknowledged);
    const int64_t due_ns =
        MU_MAX(store->retry_ns, waits ? now : store->sent_ns + lease_ns(store, MU_LEASE / PINGS_PER_LEASE));
    if (now < due_ns)
        return due_ns;
    if (send_next(store, now) == MU_OK)
        return see_progress(store, now);
    mu__error_move(&ignored);
    return store->retry_ns = now + RETRY_NS;
}

int64_t mu__copying_step(mu_store *store, int64_t now)
{
    if (store->copy == NULL)
        return MU_FOREVER;
    const int64_t due_ns = send_messages(store, now);
    if (!store->parted && !store->replaced)
        mu__staging_step(store);
    return due_ns;
}

// ---- The copy's end -----------------------------------------------------------------------------

// The table of requests is used with the lock, because the store may be dropped meanwhile.
static void note_done(mu_store *store, const int64_t *head, int64_t sequence, mu_value *answer)
{
    pthread_mutex_lock(&store->stores->lock);
    if (mu__seen_add(&store->seen, head[MU_RECORD_CLIENT], head[MU_RECORD_OLDEST]) == MU_OK)
        mu__seen_done(&store->seen, head[MU_RECORD_CLIENT], head[MU_RECORD_REQUEST], sequence, answer);
    pthread_mutex_unlock(&store->stores->lock);
}

static void note_oldest(mu_store *store, const int64_t *head)
{
    const mu_seen_request *seen;
    pthread_mutex_lock(&store->stores->lock);
    mu__seen_find(&store->seen, head[MU_RECORD_CLIENT], head[MU_RECORD_REQUEST], head[MU_RECORD_OLDEST], &seen);
    pthread_mutex_unlock(&store->stores->lock);
}

static mu_status load_seen(mu_store *store, const mu_value *value)
{
    pthread_mutex_lock(&store->stores->lock);
    const mu_status status = mu__seen_load(&store->seen, value);
    pthread_mutex_unlock(&store->stores->lock);
    return status;
}

// The numbers of a record, and its arguments, which may be staged here.
static mu_status read_record(mu_store *store, const mu_value *record, int64_t head[MU_N_RECORD_STAGED],
                             mu_value **arguments)
{
    const mu_value *numbers = mu_value_at(record, 0);
    const mu_tensor *tensor = numbers != NULL ? mu_value_tensor(numbers) : NULL;
    const bool staged = tensor != NULL && tensor->shape.rank == 1 && tensor->shape.dims[0] == MU_N_RECORD_STAGED;
    if (tensor == NULL)
        return mu_error_code();
    MU_TRY(mu__numbers_of(numbers, head, staged ? MU_N_RECORD_STAGED : MU_N_RECORD));
    if (staged)
        *arguments = mu__staging_received(store, head[MU_RECORD_STAGED]);
    else if (mu_value_count(record) > 2)
        *arguments = mu_value_at(record, 2);
    return mu_error_code();
}

// One record: the request that the primary was asked, here again.
static mu_status repeat(mu_store *store, mu_value *record)
{
    int64_t head[MU_N_RECORD_STAGED];
    char *method = NULL;
    mu_value *arguments = NULL, *answer = NULL;
    MU_TRY(read_record(store, record, head, &arguments));
    MU_TRY(mu__value_text(mu_value_at(record, 1), "a record's method", &method));
    mu_change change = {.store = store, .begun = true, .repeated = true, .sequence = head[MU_RECORD_SEQUENCE]};
    mu_error_value ignored = {.code = MU_OK};
    if (*method != '\0') {
        note_oldest(store, head);
        answer = mu__store_run(&change, method, arguments);
        mu__error_move(&ignored);
        if (ignored.code == MU_OK && !MU_PLANTED(MU_DEFECT_COPY_FORGETS))
            note_done(store, head, change.sequence, answer);
    }
    mu__free(method);
    // What the primary could do and this process cannot makes this process no copy.
    return ignored.code == MU_OK ? mu_error_code() : mu__error_raise(&ignored);
}

static mu_status take_records(mu_store *store, mu_value *body)
{
    for (int i = 0; i < mu_value_count(body); i++) {
        mu_pool *pool = mu_pool_open();
        const mu_status status = repeat(store, mu_value_at(body, i));
        mu_pool_close(pool);
        MU_TRY(status);
    }
    return MU_OK;
}

static mu_status take_body(mu_store *store, const int64_t *head, mu_value *body)
{
    switch (head[MU_COPY_KIND]) {
    case MU_COPIED_BEGIN: return mu__store_ready(store);
    case MU_COPIED_RESOURCE: return mu__store_load(store, mu_value_at(body, 0));
    case MU_COPIED_SEEN: return MU_PLANTED(MU_DEFECT_SEEN_LEFT_OUT) ? MU_OK : load_seen(store, mu_value_at(body, 0));
    case MU_COPIED_RECORDS: return take_records(store, body);
    default:
        return mu__error(MU_INVALID_ARGUMENT, "a copy does not know a message of kind %lld",
                         (long long)head[MU_COPY_KIND]);
    }
}

// With both locks held. Whether this message is the next one; `code` is the answer if it is not.
static bool expect(mu_store *store, const int64_t *head, int64_t *code)
{
    *code = MU_ABORTED;
    if (head[MU_COPY_EPOCH] < store->epoch)
        return false;
    // A primary gives its store up when the coordinator says who leads it now (muster.store.state), and not before.
    *code = MU_FAILED_PRECONDITION;
    if (store->role == MU_STORE_PRIMARY && head[MU_COPY_EPOCH] > store->epoch)
        return false;
    // A primary that has heard of this epoch has stepped down to it, and has nothing.
    if (head[MU_COPY_KIND] == MU_COPIED_BEGIN && (head[MU_COPY_EPOCH] > store->epoch || store->role == MU_STORE_NONE)) {
        mu__store_drop(store);
        store->epoch = head[MU_COPY_EPOCH];
        store->role = MU_STORE_COPY;
        store->sending_to = 0;
    }
    if (store->role != MU_STORE_COPY || store->promoting || head[MU_COPY_EPOCH] != store->epoch ||
        head[MU_COPY_POSITION] > store->position)
        return false;
    store->primary_client = mu__call_client();
    store->promised_ns = mu__now_ns() + lease_ns(store, MU_LEASE_KEPT);
    *code = MU_OK;
    return head[MU_COPY_POSITION] == store->position || MU_PLANTED(MU_DEFECT_COPY_REPEATS);
}

// `answer`: the store's epoch, and a status code.
static void take(mu_stores *stores, mu_store *store, const int64_t *head, mu_value *body, int64_t answer[2])
{
    int64_t code;
    mu_error_value error = {.code = MU_OK};
    pthread_mutex_lock(&store->changing);
    pthread_mutex_lock(&stores->lock);
    const bool next = expect(store, head, &code);
    pthread_mutex_unlock(&stores->lock);
    if (next) {
        mu__snapshot_before(store, head[MU_COPY_CUT]);
        take_body(store, head, body);
        mu__error_move(&error);
    }
    pthread_mutex_lock(&stores->lock);
    if (error.code != MU_OK) {
        mu__log(MU_LOG_ERROR, "store %d: this copy cannot follow its primary: %s", store->number, error.message);
        mu__store_drop(store);
        code = error.code;
    } else if (next && store->role == MU_STORE_COPY) {
        store->position++;
        store->begun = store->applied = head[MU_COPY_SEQUENCE];
        store->complete |= head[MU_COPY_COMPLETE] != 0;
    } else if (next) {
        code = MU_ABORTED; // the store was dropped meanwhile, so this server has nothing of it
    }
    answer[0] = store->epoch;
    answer[1] = code;
    pthread_mutex_unlock(&stores->lock);
    pthread_mutex_unlock(&store->changing);
}

mu_value *mu__copying_take(mu_stores *stores, mu_value *arguments)
{
    int64_t head[MU_N_COPY], answer[2];
    if (mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_COPY) != MU_OK)
        return NULL;
    mu_value *body = mu_value_at(arguments, 1);
    if (!mu__epoch_valid(head[MU_COPY_EPOCH]) || !mu__epoch_valid(head[MU_COPY_CUT])) {
        mu__error(MU_INVALID_ARGUMENT, "a message for a copy has epoch %lld and cut %lld; give 0 to %lld",
                  (long long)head[MU_COPY_EPOCH], (long long)head[MU_COPY_CUT], (long long)MU_MOST_EPOCH);
        return NULL;
    }
    if ((uint64_t)head[MU_COPY_PROCESS] != mu__stores_process(stores) && !MU_PLANTED(MU_DEFECT_EARLIER_LIFE)) {
        mu__error(MU_FAILED_PRECONDITION, "the message is for an earlier process at this address");
        return NULL;
    }
    pthread_mutex_lock(&stores->lock);
    mu_store *store = body != NULL ? mu__store_make(stores, head[MU_COPY_STORE]) : NULL;
    pthread_mutex_unlock(&stores->lock);
    if (store == NULL)
        return NULL;
    take(stores, store, head, body, answer);
    return mu__numbers_value(answer, 2);
}
