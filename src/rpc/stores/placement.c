// The coordinator's part of stores: decides which server is a store's primary and which has its copy.
//
// It alone decides, so servers never have to agree among each other. A decision is an order to one server under an
// epoch that no decision had before. What an order without an answer has done is not known; it is not taken for done,
// and whoever might have it is not promoted.
#include "rpc/stores/store.h"

#include "base/system.h"

#define PAUSE_NS              20000000
#define PROMOTE_PAUSE_NS      2000000
#define POLLS_PER_LEASE       3
#define MOST_RESTORE_PAUSE_NS 1000000000
#define SAID_AGAIN_NS         10000000000
#define MOST_COPY_PAUSE       64       // heartbeats
enum { NOBODY = -1, FIRST_POLLS = 3 }; // a lease begins with the second

// What is known of a server.
typedef struct server_view {
    mu_rpc_client *client;     // retained
    uint64_t process;          // that is connected now; 0: none
    uint64_t last_process;     // that is connected, or was the last
    int64_t came_ns;           // when that connected first
    bool gone;                 // the process before that has ended its connection, and its address refuses new ones
    mu_rpc_result *poll;       // owned
    int64_t polled, confirmed; // number of the last question; of the last that was answered
    int n_answered;            // by this process
    int64_t asked_ns;
    int64_t promised_ns; // its primaries without copies may answer until then
} server_view;

// What was decided for a store.
typedef struct store_view {
    int64_t epoch, copy_epoch; // of the last order; since when the copy is one
    int64_t led_epoch;         // of the order that made the primary what it is
    int primary, copy;
    uint64_t primary_process, copy_process;
    bool complete, lost;   // lost: nobody has it
    bool promoting;        // the copy was ordered to take over; it refuses its primary from then on
    bool stuck;            // the primary does not reach its copy
    int slow;              // the last server that was there and never had everything as its copy; NOBODY: none
    int64_t slow_ns;       // since when that is known
    int64_t copy_pause_ns; // before the next copy is begun
    bool goes_back;        // to the snapshot, because others have been ordered to
    mu_order order;        // on its way, if there is a result
    int ordered;           // server to which it went
    uint64_t ordered_process;
    mu_rpc_result *result; // owned
    mu_rpc_result *cut;    // owned; of a cut in progress
    bool cut_done;
    int64_t cut_at, written_at; // sequence number of that cut; of the last that all stores have written
    int64_t retry_ns;
    mu_restores restores; // the times that it was ordered back to a snapshot
    int n_unheard;        // of those, the last ones that it may have followed or not
    mu_status not_back;   // why it could not, as the log last said, and when; MU_OK: the log has not said it
    int64_t not_back_ns;
} store_view;

struct mu_placement {
    mu_object object;
    int n, replicas;
    mu_store_client *client; // retained; NULL: none
    server_view *servers;
    store_view *stores;
    int64_t epoch;
    double heartbeat, snapshot_seconds;
    char *folder;
    void (*changed)(void *arg);
    void *changed_arg;
    // Snapshots.
    int64_t known_cut;    // the highest number of one that any server or this process knows
    int64_t cut, written; // the last begun; the last that all stores have written, 0: none
    bool cutting, restoring;
    int64_t restore_due_ns, restore_pause_ns; // before the next attempt to go back, after one that a server refused
    int64_t cut_due_ns;
    mu_placement_numbers numbers;
};

// ---- Making and ending --------------------------------------------------------------------------

static void placement_destroy(void *object)
{
    mu_placement *p = object;
    for (int i = 0; i < p->n && p->servers != NULL && p->stores != NULL; i++) {
        if (p->servers[i].client != NULL)
            mu__client_watch(p->servers[i].client, NULL, NULL);
        mu_rpc_result *results[] = {p->servers[i].poll, p->stores[i].result, p->stores[i].cut};
        for (size_t k = 0; k < MU_COUNT(results); k++) {
            if (results[k] != NULL)
                mu_rpc_result_cancel(results[k]);
            mu_release(results[k]);
        }
        mu_release(p->servers[i].client);
    }
    mu_release(p->client);
    mu__free(p->servers);
    mu__free(p->stores);
    mu__free(p->folder);
}

static mu_type placement_type = {.name = "placement", .destroy = placement_destroy};

mu_placement *mu__placement_new(const mu_placement_options *options)
{
    mu_placement *p = mu__new(&placement_type, sizeof *p);
    if (p == NULL)
        return NULL;
    p->n = options->n;
    p->replicas = options->n > 1 ? options->replicas : 0;
    p->client = mu_retain(options->client);
    p->heartbeat = options->heartbeat;
    p->snapshot_seconds = options->snapshot_seconds;
    p->folder = mu__strdup(options->snapshot_seconds > 0 && options->folder != NULL ? options->folder : "");
    p->servers = mu__calloc((size_t)p->n, sizeof *p->servers);
    p->stores = mu__calloc((size_t)p->n, sizeof *p->stores);
    int64_t number = 0;
    if (p->folder == NULL || p->servers == NULL || p->stores == NULL || mu__random(&number, sizeof number) != MU_OK) {
        mu_release(p);
        return NULL;
    }
    // Numbers of questions that no coordinator before this one has used. Epochs begin at what servers answer.
    number &= INT64_MAX >> 1;
    for (int i = 0; i < p->n; i++) {
        p->servers[i] = (server_view){.client = mu_retain(options->servers[i]), .polled = number};
        p->stores[i] = (store_view){.primary = NOBODY, .copy = NOBODY, .slow = NOBODY, .ordered = NOBODY};
    }
    p->cut_due_ns = mu__deadline_ns(p->snapshot_seconds);
    return p;
}

void mu__placement_on_change(mu_placement *p, void (*changed)(void *arg), void *arg)
{
    p->changed = changed;
    p->changed_arg = arg;
    for (int i = 0; i < p->n; i++)
        mu__client_watch(p->servers[i].client, changed, arg);
}

// ---- Servers ------------------------------------------------------------------------------------

// Once in each step: the client's thread learns of changes at any time, and all decisions of a step are about one view.
static void look_at(server_view *s)
{
    const uint64_t process = mu__client_server(s->client, &s->gone);
    if (process == s->process)
        return;
    s->process = process;
    s->asked_ns = 0;
    s->n_answered = 0;
    if (process == 0 || process == s->last_process)
        return;
    s->last_process = process;
    s->came_ns = mu__now_ns();
}

static void forget_slow(store_view *store)
{
    store->slow = NOBODY;
    store->copy_pause_ns = 0;
}

static bool is_there(const mu_placement *p, int server, uint64_t process)
{
    return server != NOBODY && p->servers[server].process == process && process != 0;
}

// What a primary says was lost when its store went back in some epoch. It counts for the times in the list (of others,
// clients tell the next primary), and for the last one after the answer to its order, with which it may leave the list.
static void note_lost(mu_placement *p, int number, int64_t epoch, int64_t lost)
{
    store_view *store = &p->stores[number];
    const bool pending = store->result != NULL && store->order == MU_ORDER_RESTORE && store->epoch == epoch;
    mu_restore *at = pending ? NULL : mu__restores_find(&store->restores, epoch);
    const int64_t known = at != NULL && !MU_PLANTED(MU_DEFECT_LOST_TWICE) ? at->lost : 0;
    if (at == NULL || lost <= known)
        return;
    p->numbers.updates_lost += MU_MIN(lost - known, INT64_MAX - p->numbers.updates_lost);
    at->lost = lost;
    mu__log(MU_LOG_WARNING,
            "store %d: %lld updates that were acknowledged are lost; its variables are those of the snapshot", number,
            (long long)lost);
}

// The last time that the primary of a store went back, as it knows: by the order that it follows, or by the list that
// came with that. 0: never.
static int64_t last_restored(const store_view *store)
{
    const int n = store->restores.n;
    return store->order == MU_ORDER_RESTORE ? store->epoch : n > 0 ? store->restores.items[n - 1].epoch : 0;
}

// Rows of all stores that a server knows: the epochs are what this coordinator must exceed.
static void take_rows(mu_placement *p, int server, const mu_value *value)
{
    const int64_t *rows, n = mu__state_rows(value, &rows);
    for (int64_t i = 0; i < n; i++) {
        const int64_t *row = rows + i * MU_N_STATE;
        p->epoch = MU_MAX(p->epoch, MU_MAX(row[MU_STATE_EPOCH], row[MU_STATE_CUT]));
        p->known_cut = MU_MAX(p->known_cut, row[MU_STATE_CUT]);
        if (row[MU_STATE_STORE] < 0 || row[MU_STATE_STORE] >= p->n)
            continue;
        store_view *store = &p->stores[row[MU_STATE_STORE]];
        if (store->primary == server && row[MU_STATE_ROLE] == MU_ROW_EARLIER)
            note_lost(p, (int)row[MU_STATE_STORE], row[MU_STATE_EPOCH], row[MU_STATE_LOST]);
        if (store->primary != server || row[MU_STATE_ROLE] == MU_ROW_EARLIER || row[MU_STATE_EPOCH] != store->epoch)
            continue;
        store->complete = store->copy != NOBODY && row[MU_STATE_COMPLETE] != 0;
        store->stuck = store->copy != NOBODY && row[MU_STATE_STUCK] != 0;
        if (store->complete)
            forget_slow(store);
        note_lost(p, (int)row[MU_STATE_STORE], last_restored(store), row[MU_STATE_LOST]);
    }
}

static void take_poll(mu_placement *p, int server)
{
    server_view *s = &p->servers[server];
    const mu_value *rows = mu_rpc_result_value(s->poll);
    if (!mu__pending()) {
        s->confirmed = s->polled;
        s->n_answered++;
        s->promised_ns = mu__now_ns() + (int64_t)(p->heartbeat * MU_LEASE_KEPT * 1e9);
        take_rows(p, server, rows);
    }
    mu_error_value ignored;
    mu__error_move(&ignored);
    mu_release(s->poll);
    s->poll = NULL;
}

static bool all_complete(const mu_placement *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->stores[i].primary == NOBODY || (p->stores[i].copy != NOBODY && !p->stores[i].complete))
            return false;
    return true;
}

// The epoch in which another server than this one leads a store, or is to lead it; 0: none is. An order to continue, or
// to go back, makes whatever the others have of the store worthless as soon as it is sent, so nobody else may answer
// while it is on its way, or failed. One to take over, or to tell of a loss, ends nobody before it was followed.
static int64_t led_elsewhere(const store_view *store, int server)
{
    const bool ends = store->order == MU_ORDER_CONTINUE || store->order == MU_ORDER_RESTORE;
    if (ends && store->epoch != store->led_epoch)
        return store->ordered != server ? store->epoch : 0;
    return store->primary != server ? store->led_epoch : 0;
}

// [store, epoch] of every store that another server leads: whoever believes to be its primary must stop before it gets
// a lease.
static mu_value *led_by_others(const mu_placement *p, int server)
{
    int64_t *pairs = mu__calloc((size_t)p->n, 2 * sizeof *pairs);
    int n = 0;
    for (int i = 0; pairs != NULL && i < p->n; i++) {
        const int64_t epoch = led_elsewhere(&p->stores[i], server);
        if (epoch == 0)
            continue;
        pairs[n++] = i;
        pairs[n++] = epoch;
    }
    mu_value *value = pairs != NULL ? mu__numbers_value(pairs, n) : NULL;
    mu__free(pairs);
    return value;
}

// A question soon after the answer while something is to become complete, else often enough for the lease.
static int64_t poll_server(mu_placement *p, int server, int64_t now)
{
    server_view *s = &p->servers[server];
    if (s->poll != NULL && mu_rpc_result_is_done(s->poll))
        take_poll(p, server);
    const double lease = p->heartbeat * MU_LEASE;
    const bool settled = all_complete(p) && s->n_answered >= FIRST_POLLS;
    const int64_t between = settled ? (int64_t)(lease / POLLS_PER_LEASE * 1e9) : PAUSE_NS;
    const int64_t due_ns = s->asked_ns == 0 ? now : s->asked_ns + between;
    if (s->poll != NULL || s->process == 0)
        return MU_FOREVER;
    if (now < due_ns)
        return due_ns;
    s->asked_ns = now;
    s->polled++;
    const int64_t poll[2] = {s->polled, s->confirmed};
    mu_value *question =
        mu_list(mu__numbers_value(poll, 2), led_by_others(p, server), mu__numbers_value(&p->known_cut, 1), MU_END);
    s->poll = mu__client_call(s->client, "muster.store.state", question, p->heartbeat, p->changed, p->changed_arg);
    return MU_FOREVER;
}

// ---- Orders -------------------------------------------------------------------------------------

// Reading a snapshot takes as long as the disk needs; the heartbeat tells whether the server is there.
static double order_seconds(const mu_placement *p, mu_order order)
{
    return order == MU_ORDER_RESTORE ? mu__setting_real(MU_SETTING_TIMEOUT) : 2 * p->heartbeat;
}

// Clients that have not told what they know since the oldest of many times are no longer counted, which is said.
static void note_goes_back(mu_placement *p, int number)
{
    store_view *store = &p->stores[number];
    const int64_t forgotten = store->restores.forgotten;
    mu__restores_add(&store->restores, store->epoch, store->written_at);
    if (forgotten == 0 && store->restores.forgotten != 0)
        mu__log(MU_LOG_WARNING,
                "store %d has gone back to snapshots more than %d times: a lost update is not counted if only clients "
                "know of it that have not called the store since the first",
                number, MU_MOST_RESTORES);
}

static void send_order(mu_placement *p, int number, mu_order order, int server, int copy)
{
    store_view *store = &p->stores[number];
    const uint64_t copy_process = copy != NOBODY ? p->servers[copy].process : 0;
    const int64_t head[MU_N_LEAD] = {
        number,    ++p->epoch, order, store->copy_epoch, (int64_t)p->servers[server].process, (int64_t)copy_process,
        p->written};
    mu_value *order_value = mu_list(mu__numbers_value(head, MU_N_LEAD),
                                    mu__text_value(copy != NOBODY ? mu__client_address(p->servers[copy].client) : ""),
                                    mu__text_value(p->folder), mu__restores_value(&store->restores), MU_END);
    store->result = mu__client_call(p->servers[server].client, "muster.store.lead", order_value,
                                    order_seconds(p, order), p->changed, p->changed_arg);
    if (store->result == NULL)
        return;
    store->retry_ns = mu__now_ns() + (order == MU_ORDER_PROMOTE ? PROMOTE_PAUSE_NS : PAUSE_NS);
    store->order = order;
    store->ordered = server;
    store->ordered_process = p->servers[server].process;
    store->epoch = p->epoch;
    store->promoting = order == MU_ORDER_PROMOTE;
    if (order == MU_ORDER_RESTORE)
        note_goes_back(p, number);
    if (order != MU_ORDER_PROMOTE && order != MU_ORDER_LOST) {
        // Whoever was the copy may from now on lack what the primary acknowledges.
        store->copy = copy;
        store->copy_process = copy_process;
        store->copy_epoch = p->epoch;
        store->complete = store->stuck = false;
    }
}

static void note_order(mu_placement *p, int number, int from)
{
    store_view *store = &p->stores[number];
    if (store->order == MU_ORDER_PROMOTE) {
        p->numbers.failovers++;
        mu__log(MU_LOG_WARNING,
                "parameter server %d is lost: parameter server %d takes over with its copy of store %d (epoch %lld)",
                from, store->ordered, number, (long long)store->epoch);
        store->copy = NOBODY;
        store->complete = false;
        forget_slow(store); // the next copy is on another server
    } else if (store->order == MU_ORDER_RESTORE) {
        p->numbers.restores++;
        p->restore_pause_ns = 0;
        store->n_unheard = 0;
        store->not_back = MU_OK;
        forget_slow(store);
        mu__log(MU_LOG_WARNING,
                "store %d is on parameter server %d as snapshot %lld has it; updates acknowledged since then are lost, "
                "and counted as clients tell",
                number, store->ordered, (long long)p->written);
    }
}

// A server that is there and still does not take a copy, such as one that is too slow for it, holds updates up while it
// is tried: the pause before the next copy grows.
static void wait_before_copying(const mu_placement *p, store_view *store, int64_t now)
{
    const int64_t heartbeat_ns = (int64_t)(p->heartbeat * 1e9);
    store->copy_pause_ns = MU_MIN(MU_MAX(2 * store->copy_pause_ns, heartbeat_ns), MOST_COPY_PAUSE * heartbeat_ns);
    store->slow = store->copy;
    store->slow_ns = now;
}

// A primary that cannot begin a copy, for want of memory or because of what it has, leads on without one.
static void note_no_copy(mu_placement *p, int number, const mu_error_value *error)
{
    store_view *store = &p->stores[number];
    wait_before_copying(p, store, mu__now_ns());
    mu__log(MU_LOG_WARNING,
            "store %d has no copy, because parameter server %d cannot begin one; the next is begun in %.0f s, or when "
            "a server starts: %s",
            number, store->primary, (double)store->copy_pause_ns / 1e9, error->message);
}

// A snapshot that a server cannot read now, such as one in a folder that is not mounted, may be there later. Whoever is
// not reached is tried as before.
static void note_not_restored(mu_placement *p, int number, const mu_error_value *error, bool unheard)
{
    store_view *store = &p->stores[number];
    const int64_t now = mu__now_ns();
    store->primary_process = 0;
    // One that was refused has not happened. Of those in a row that may have, two are kept: the list has few places.
    if (!unheard || store->n_unheard == 2)
        store->restores.n -= store->restores.n > 0;
    else
        store->n_unheard++;
    if (!unheard) {
        p->restore_pause_ns = MU_MIN(MU_MAX(2 * p->restore_pause_ns, PAUSE_NS), MOST_RESTORE_PAUSE_NS);
        p->restore_due_ns = now + p->restore_pause_ns;
    }
    if (store->not_back == error->code && now < store->not_back_ns + SAID_AGAIN_NS)
        return;
    store->not_back = error->code;
    store->not_back_ns = now;
    mu__log(MU_LOG_WARNING, "store %d cannot come back from snapshot %lld now: %s", number, (long long)p->written,
            error->message);
}

static void take_order(mu_placement *p, int number)
{
    store_view *store = &p->stores[number];
    mu_error_value error = {.code = MU_OK};
    const int from = store->primary;
    mu_rpc_result_value(store->result);
    mu__error_move(&error);
    mu_release(store->result);
    store->result = NULL;
    const bool unheard = error.code == MU_UNAVAILABLE || error.code == MU_DEADLINE_EXCEEDED;
    if (error.code != MU_OK && (store->order != MU_ORDER_RESTORE || !unheard))
        store->ordered_process = 0; // it does not have the store, or tells nobody that it is lost
    if (error.code == MU_OK && store->order != MU_ORDER_LOST) {
        note_order(p, number, from);
        store->primary = store->ordered;
        store->primary_process = store->ordered_process; // which may have ended since it answered
        store->led_epoch = store->epoch;
        store->promoting = false;
        store->lost = false;
    } else if (store->order == MU_ORDER_PROMOTE && error.code == MU_FAILED_PRECONDITION) {
        mu__log(MU_LOG_ERROR, "parameter server %d was lost before store %d had a complete copy: %s", from, number,
                error.message);
        store->copy = NOBODY;
    } else if (store->order == MU_ORDER_CONTINUE && error.code == MU_FAILED_PRECONDITION) {
        store->primary_process = 0; // it has stepped down, as it learned by muster.store.state
    } else if (store->order == MU_ORDER_CONTINUE && is_there(p, store->primary, store->primary_process)) {
        if (store->copy != NOBODY && !unheard)
            note_no_copy(p, number, &error);
        store->copy = NOBODY;
    } else if (store->order == MU_ORDER_RESTORE) {
        note_not_restored(p, number, &error, unheard);
    }
}

// ---- Decisions ----------------------------------------------------------------------------------

// Whether a process that is not there can no longer answer: another one has its address, it has ended its connection
// and its address refuses a new one, or its lease is over.
static bool is_gone(const mu_placement *p, int server, uint64_t process, int64_t now)
{
    const server_view *s = &p->servers[server];
    const bool another = s->process != 0 && s->process != process;
    return another || s->gone || now >= s->promised_ns;
}

static bool may_replace(const mu_placement *p, const store_view *store, int64_t now)
{
    return is_gone(p, store->primary, store->primary_process, now);
}

// Whether a store has no copy that is there or may come back.
static bool has_no_copy(const mu_placement *p, const store_view *store, int64_t now)
{
    return store->copy == NOBODY ||
           (!is_there(p, store->copy, store->copy_process) && is_gone(p, store->copy, store->copy_process, now));
}

// Whether a store's primary is gone and so is its copy, if it has one. Either may come back before that.
static bool nobody_has(const mu_placement *p, int number, int64_t now)
{
    const store_view *store = &p->stores[number];
    return has_no_copy(p, store, now) && !is_there(p, store->primary, store->primary_process) &&
           may_replace(p, store, now);
}

static bool needs_snapshot(const mu_placement *p, int number, int64_t now)
{
    return p->written > 0 && nobody_has(p, number, now);
}

// The server for a store that nobody has now: its own, or the next that is there.
static int next_server(const mu_placement *p, int number)
{
    for (int i = 0; i < p->n; i++) {
        const int server = (number + i) % p->n;
        if (p->servers[server].process != 0)
            return server;
    }
    return NOBODY;
}

// A server that is there tells clients that nobody has the store; another one, if that is lost too.
static void report_lost(mu_placement *p, int number, int64_t now)
{
    store_view *store = &p->stores[number];
    const int server = next_server(p, number);
    store->retry_ns = now + PAUSE_NS;
    if (server == NOBODY || (store->lost && is_there(p, store->ordered, store->ordered_process)))
        return;
    if (!store->lost)
        mu__log(MU_LOG_ERROR,
                "store %d is lost: parameter server %d is gone, and there is neither a copy nor a snapshot; start the "
                "program again, and restore a checkpoint",
                number, store->primary);
    store->lost = true;
    send_order(p, number, MU_ORDER_LOST, server, NOBODY);
}

static void replace_primary(mu_placement *p, int number, int64_t now)
{
    store_view *store = &p->stores[number];
    if (store->copy != NOBODY && p->servers[store->copy].process != 0 &&
        p->servers[store->copy].process != store->copy_process)
        store->copy = NOBODY; // it is a new process
    if (is_there(p, store->copy, store->copy_process) && (store->promoting || may_replace(p, store, now)))
        send_order(p, number, MU_ORDER_PROMOTE, store->copy, NOBODY);
    else if (is_there(p, store->primary, store->primary_process) && has_no_copy(p, store, now))
        send_order(p, number, MU_ORDER_CONTINUE, store->primary, NOBODY); // it is back, and its replacement is lost
    else if (needs_snapshot(p, number, now))
        p->restoring = true; // all stores go back to one cut
    else if (nobody_has(p, number, now))
        report_lost(p, number, now);
}

// The server for the next copy: the one after the slow one, or, while that is waited for, a process that has come since
// it was found slow. NOBODY: none, or none yet.
static int server_for_copy(const mu_placement *p, int number, int64_t now)
{
    const store_view *store = &p->stores[number];
    const bool waits = store->slow != NOBODY && now < store->slow_ns + store->copy_pause_ns;
    const int first = store->slow != NOBODY ? store->slow + 1 : number;
    for (int i = 0; i < p->n; i++) {
        const int server = (first + i) % p->n;
        if (server != store->primary && p->servers[server].process != 0 &&
            (!waits || p->servers[server].came_ns > store->slow_ns))
            return server;
    }
    return NOBODY;
}

static void take_copy_away(mu_placement *p, int number, int64_t now)
{
    store_view *store = &p->stores[number];
    const bool there = store->stuck && is_there(p, store->copy, store->copy_process);
    mu__log(MU_LOG_WARNING, "store %d is without a copy: parameter server %d %s", number, store->copy,
            store->stuck ? "does not follow its primary" : "is lost");
    if (there && !store->complete) {
        wait_before_copying(p, store, now);
        mu__log(MU_LOG_WARNING,
                "store %d: its copy never had everything; the next is begun in %.0f s, or when a server starts", number,
                (double)store->copy_pause_ns / 1e9);
    }
    send_order(p, number, MU_ORDER_CONTINUE, store->primary, NOBODY);
}

// Returns when to look again, if nothing was ordered.
static int64_t give_copy(mu_placement *p, int number, int64_t now)
{
    const store_view *store = &p->stores[number];
    const int copy = p->replicas > 0 ? server_for_copy(p, number, now) : NOBODY;
    const int64_t due_ns = store->slow_ns + store->copy_pause_ns;
    if (copy == NOBODY)
        return store->slow != NOBODY && now < due_ns ? due_ns : MU_FOREVER;
    send_order(p, number, MU_ORDER_CONTINUE, store->primary, copy);
    return now + PAUSE_NS;
}

// Epochs that any server knows of are known.
static bool all_answered(const mu_placement *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->servers[i].confirmed == 0)
            return false;
    return true;
}

static int64_t place(mu_placement *p, int number, int64_t now)
{
    store_view *store = &p->stores[number];
    if (store->result != NULL && mu_rpc_result_is_done(store->result))
        take_order(p, number);
    if (store->result != NULL)
        return MU_FOREVER;
    if (now < store->retry_ns)
        return store->retry_ns;
    if (store->primary == NOBODY) {
        if (all_answered(p))
            send_order(p, number, MU_ORDER_EMPTY, number, NOBODY);
    } else if (store->promoting || !is_there(p, store->primary, store->primary_process)) {
        replace_primary(p, number, now);
    } else if (store->lost || store->epoch != store->led_epoch) {
        // Its server was away for long, and has everything; or the last order may not have reached it. Until it follows
        // one, it may wait for a copy that was taken away, and its rows are of an earlier epoch.
        send_order(p, number, MU_ORDER_CONTINUE, store->primary, NOBODY);
    } else if (store->copy != NOBODY && (store->stuck || !is_there(p, store->copy, store->copy_process))) {
        take_copy_away(p, number, now);
    } else if (store->copy == NOBODY) {
        const int64_t due_ns = give_copy(p, number, now);
        return store->result != NULL ? MU_FOREVER : due_ns;
    }
    return store->result != NULL ? MU_FOREVER : store->retry_ns > now ? store->retry_ns : now + PAUSE_NS;
}

// ---- Snapshots ----------------------------------------------------------------------------------

// Whatever a worker has seen of a store after its cut, the coordinator's own requests, and the calls that it sends to
// other workers, know of the cut before it hears of what was seen.
static void begin_cut(mu_placement *p)
{
    p->cutting = true;
    p->cut = p->known_cut = ++p->epoch; // so that it is higher than any of a coordinator before this one
    if (p->client != NULL && !MU_PLANTED(MU_DEFECT_UNSENT_CUT))
        mu__store_client_hear(p->client, p->cut);
    for (int i = 0; i < p->n; i++) {
        store_view *store = &p->stores[i];
        const int64_t head[4] = {i, store->epoch, (int64_t)store->primary_process, p->cut};
        store->cut_done = false;
        store->cut = mu__client_call(
            p->servers[store->primary].client, "muster.store.cut",
            mu_list(mu__numbers_value(head, 4), mu__text_value(p->folder), mu__numbers_value(&p->written, 1), MU_END),
            mu__setting_real(MU_SETTING_TIMEOUT), p->changed, p->changed_arg);
    }
}

static void end_cut(mu_placement *p, bool whole)
{
    p->cutting = false;
    p->cut_due_ns = mu__deadline_ns(p->snapshot_seconds);
    p->numbers.snapshots += whole;
    p->numbers.failed_snapshots += !whole;
    if (whole)
        p->written = p->cut;
    for (int i = 0; i < p->n && whole; i++)
        p->stores[i].written_at = p->stores[i].cut_at;
    mu__log(whole ? MU_LOG_INFO : MU_LOG_WARNING, "snapshot %lld of all parameter servers is %s", (long long)p->cut,
            whole ? "written" : "not complete; the previous one is kept");
}

static void take_cut(store_view *store)
{
    const mu_value *at = mu_rpc_result_value(store->cut);
    if (at != NULL && mu__numbers_of(at, &store->cut_at, 1) == MU_OK && store->cut_at < 0)
        mu__error(MU_DATA_LOSS, "its server says that the snapshot has the change %lld", (long long)store->cut_at);
}

static void follow_cut(mu_placement *p)
{
    bool waits = false, whole = true;
    for (int i = 0; i < p->n; i++) {
        store_view *store = &p->stores[i];
        if (store->cut != NULL && mu_rpc_result_is_done(store->cut)) {
            mu_error_value error;
            take_cut(store);
            mu__error_move(&error);
            if (error.code != MU_OK)
                mu__log(MU_LOG_WARNING, "store %d: its snapshot failed: %s", i, error.message);
            store->cut_done = error.code == MU_OK || MU_PLANTED(MU_DEFECT_PART_OF_SNAPSHOT);
            mu_release(store->cut);
            store->cut = NULL;
        }
        waits |= store->cut != NULL;
        whole &= store->cut_done;
    }
    if (!waits)
        end_cut(p, whole);
}

// A primary that has not followed the last order about its store does not have the epoch of that order, and would
// refuse a cut: its copy may be ordered to take over again and again, or the order to continue did not reach it.
static bool all_led(const mu_placement *p)
{
    for (int i = 0; i < p->n; i++) {
        const store_view *store = &p->stores[i];
        if (store->result != NULL || store->epoch != store->led_epoch ||
            !is_there(p, store->primary, store->primary_process))
            return false;
    }
    return true;
}

static int64_t make_snapshots(mu_placement *p, int64_t now)
{
    if (p->snapshot_seconds <= 0)
        return MU_FOREVER;
    if (p->cutting)
        follow_cut(p);
    else if (now >= p->cut_due_ns && !p->restoring && all_led(p))
        begin_cut(p);
    return p->cutting ? MU_FOREVER : MU_MAX(p->cut_due_ns, now + PAUSE_NS);
}

// The server that takes a store back to a snapshot: its primary, if that is there; NOBODY: none may. A server that was
// ordered to go back, and whose answer did not come, may have done so: it is the primary for this.
static int server_to_restore(const mu_placement *p, int number, int64_t now)
{
    const store_view *store = &p->stores[number];
    const bool unheard =
        store->order == MU_ORDER_RESTORE && store->epoch != store->led_epoch && store->ordered_process != 0;
    const int primary = unheard ? store->ordered : store->primary;
    const uint64_t process = unheard ? store->ordered_process : store->primary_process;
    if (is_there(p, primary, process))
        return primary;
    return is_gone(p, primary, process, now) ? next_server(p, number) : NOBODY;
}

// A disk that takes long to write a cut must not hold up what is lost.
static void give_up_cut(mu_placement *p)
{
    for (int i = 0; i < p->n; i++) {
        if (p->stores[i].cut != NULL)
            mu_rpc_result_cancel(p->stores[i].cut);
        mu_release(p->stores[i].cut);
        p->stores[i].cut = NULL;
    }
    if (p->cutting)
        end_cut(p, false);
}

static void restore_all(mu_placement *p, int64_t now)
{
    give_up_cut(p);
    for (int i = 0; i < p->n; i++) {
        send_order(p, i, MU_ORDER_RESTORE, server_to_restore(p, i, now), NOBODY);
        p->stores[i].goes_back = p->stores[i].result == NULL;
        p->restoring |= p->stores[i].goes_back;
    }
}

// Every store goes back to the last cut that all have written; those that are there too, so that they fit together. All
// at once: one that went back alone would have to go back again with the others. Until then whoever was missing may
// come back with what it has, and nothing is lost.
static int64_t go_back(mu_placement *p, int64_t now)
{
    bool waits = false, all = true, needed = false;
    for (int i = 0; i < p->n; i++) {
        if (p->stores[i].result != NULL && mu_rpc_result_is_done(p->stores[i].result))
            take_order(p, i);
        waits |= p->stores[i].result != NULL;
    }
    for (int i = 0; i < p->n; i++) {
        all &= server_to_restore(p, i, now) != NOBODY;
        needed |= p->stores[i].goes_back || needs_snapshot(p, i, now);
    }
    if (waits || (needed && !all))
        return waits ? MU_FOREVER : now + PAUSE_NS;
    if (needed && now < p->restore_due_ns)
        return p->restore_due_ns;
    p->restoring = false;
    if (needed)
        restore_all(p, now);
    return needed ? now + PAUSE_NS : now;
}

// ---- Steps --------------------------------------------------------------------------------------

int64_t mu__placement_step(mu_placement *p)
{
    mu_error_value ignored;
    const int64_t now = mu__now_ns();
    int64_t due_ns = MU_FOREVER;
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < p->n; i++) {
        look_at(&p->servers[i]);
        due_ns = MU_MIN(due_ns, poll_server(p, i, now));
    }
    for (int i = 0; i < p->n && !p->restoring; i++)
        due_ns = MU_MIN(due_ns, place(p, i, now));
    due_ns = MU_MIN(due_ns, make_snapshots(p, now));
    if (p->restoring)
        due_ns = MU_MIN(due_ns, go_back(p, now));
    mu__error_move(&ignored); // without memory for a call, the next step tries again
    mu_pool_close(pool);
    return due_ns;
}

bool mu__placement_ready(const mu_placement *p)
{
    for (int i = 0; i < p->n; i++) {
        const store_view *store = &p->stores[i];
        if (store->result != NULL || !is_there(p, store->primary, store->primary_process) ||
            (p->replicas > 0 && !store->complete))
            return false;
    }
    return true;
}

mu_placement_numbers mu__placement_numbers(const mu_placement *p)
{
    mu_placement_numbers numbers = p->numbers;
    for (int i = 0; i < p->n; i++) {
        const store_view *store = &p->stores[i];
        // `complete` is of the last answer; since then either server may have gone.
        const bool copied = store->complete && is_there(p, store->primary, store->primary_process) &&
                            is_there(p, store->copy, store->copy_process);
        numbers.behind += p->replicas > 0 && !copied;
        numbers.lost += store->lost;
    }
    return numbers;
}
