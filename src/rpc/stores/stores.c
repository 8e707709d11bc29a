// The stores of one server: the methods by which clients, primaries and the coordinator reach them, and the thread that
// repeats their steps.
#include "rpc/stores/store.h"

#include "base/system.h"
#include "rpc/server/server.h"

#include <muster/cancellation.h>

// ---- Finding them -------------------------------------------------------------------------------

mu_store *mu__store_find(mu_stores *stores, int64_t number)
{
    for (size_t i = 0; i < stores->stores.n; i++)
        if (stores->stores.items[i]->number == number)
            return stores->stores.items[i];
    return NULL;
}

// Stores stay until the process ends, so that one may be used without the lock.
mu_store *mu__store_make(mu_stores *stores, int64_t number)
{
    mu_store *store = mu__store_find(stores, number);
    if (store != NULL)
        return store;
    if (number < 0 || number >= MU_MOST_STORES) {
        mu__error(MU_INVALID_ARGUMENT, "there is no store %lld; give 0 to %d", (long long)number, MU_MOST_STORES - 1);
        return NULL;
    }
    store = mu__store_new(stores, (int)number);
    if (store != NULL && MU_PUSH(&stores->stores, store) == MU_OK)
        return store;
    mu_release(store);
    return NULL;
}

uint64_t mu__stores_process(const mu_stores *stores)
{
    uint64_t number = 0;
    memcpy(&number, stores->server->node.own.incarnation, sizeof number);
    return number != 0 ? number : 1;
}

// ---- Clients' requests --------------------------------------------------------------------------

// With the lock held: why a request is not run here; 0: it is. What a client says of epochs and cuts makes a server
// refuse and nothing else: its own numbers come from the coordinator. A client that knows of a cut before this server
// does has heard of it from another server, and asks again while the coordinator's order is on its way here. The number
// of lost updates is theirs, and bounded, because a coordinator ignores a server whose numbers cannot be.
static int64_t refuse(const mu_stores *stores, mu_store *store, const int64_t *ask)
{
    if (store == NULL)
        return MU_NOT_PRIMARY;
    if (store->role != MU_STORE_PRIMARY)
        return store->gone ? MU_UNAVAILABLE : MU_NOT_PRIMARY;
    if (store->replaced || (ask[MU_ASK_CUT] > stores->cut && !MU_PLANTED(MU_DEFECT_OWN_CUT)))
        return MU_NOT_PRIMARY;
    mu__restores_count(&store->restores, ask[MU_ASK_KNOWN], ask[MU_ASK_KNOWN_EPOCH]);
    return ask[MU_ASK_EPOCH] == store->epoch || MU_PLANTED(MU_DEFECT_STALE_PRIMARY) ? 0 : MU_NOT_PRIMARY;
}

mu_value *mu__store_refusal(const mu_stores *stores, const mu_store *store, int64_t code)
{
    const int64_t head[MU_N_ANSWER] = {store != NULL ? store->epoch : 0, stores->cut, code, 0};
    mu_value *numbers = mu__numbers_value(head, MU_N_ANSWER);
    if (code == MU_NOT_PRIMARY && (store == NULL || store->not_back[0] == '\0'))
        return mu_list(numbers, MU_END);
    if (code == MU_NOT_PRIMARY)
        return mu_list(numbers, mu__text_value(store->not_back), MU_END);
    return mu_list(numbers,
                   mu__text_value("the server that had these variables is lost, and nobody has a copy or a snapshot; "
                                  "start the program again, and restore a checkpoint"),
                   MU_END);
}

// With the lock held: answers now, or when the copy has what the answer shows.
static mu_value *answer(mu_store *store, mu_server_call *call, int64_t sequence, int64_t code, mu_value *body)
{
    const int64_t now = mu__now_ns();
    if (store->role == MU_STORE_PRIMARY)
        mu__copying_step(store, now);
    if (store->role != MU_STORE_PRIMARY || store->replaced)
        return mu__store_refusal(store->stores, store, MU_NOT_PRIMARY);
    if (mu__store_settled(store, sequence, now))
        return mu__store_answer(store, code, body);
    call = call != NULL ? call : mu__call_defer();
    if (mu__store_wait(store, call, sequence, code, body) != MU_OK) {
        mu_error_take();
        mu__call_answer(call, mu__store_refusal(store->stores, store, MU_NOT_PRIMARY));
    }
    mu__stores_wake(store->stores);
    return NULL;
}

// The request of a running call waits for others' changes.
static mu_value *wait_blocked(mu_change *change, const char *method, mu_value *arguments)
{
    mu_error_value error;
    mu_server_call *call = mu__call_defer();
    if (mu__blocked_add(change->store, call, change, method, arguments) == MU_OK)
        return NULL;
    mu__error_move(&error);
    mu__staging_drop(change->store, change->staged);
    mu__call_answer(call, mu__store_answer(change->store, error.code, mu__text_value(error.message)));
    return NULL;
}

static mu_value *answer_again(const mu_change *change, mu_server_call *call)
{
    mu_store *store = change->store;
    if (change->seen_sequence == 0)
        return mu__store_answer(store, MU_FAILED_PRECONDITION,
                                mu__text_value("the request was done before, and its answer is no longer kept; do not "
                                               "send it again, but read what it has changed"));
    if (MU_PLANTED(MU_DEFECT_EARLY_AGAIN))
        return mu__store_answer(store, MU_OK, change->seen_answer);
    return answer(store, call, change->seen_sequence, MU_OK, change->seen_answer);
}

mu_value *mu__store_finish(mu_change *change, mu_server_call *call, const char *method, mu_value *arguments,
                           mu_value *value)
{
    mu_store *store = change->store;
    mu_error_value error = {.code = MU_OK};
    mu__error_move(&error);
    mu__store_changed(change, method, arguments, value, error.code != MU_OK);
    mu_value *result = NULL;
    if (change->waits)
        return change->blocked != NULL ? NULL : wait_blocked(change, method, arguments);
    if (change->seen)
        result = answer_again(change, call);
    else if (error.code == MU_ABORTED && (store->role != MU_STORE_PRIMARY || store->epoch != change->ask[MU_ASK_EPOCH]))
        result = mu__store_refusal(store->stores, store, MU_NOT_PRIMARY);
    else
        result = answer(store, call, change->begun ? change->sequence : store->begun, error.code,
                        error.code != MU_OK ? mu__text_value(error.message) : value);
    mu_release(change->seen_answer);
    if (call == NULL || result == NULL)
        return result;
    mu__call_answer(call, result);
    return NULL;
}

static mu_status check_request(int64_t number)
{
    if (number >= 1 && number < INT64_MAX)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "a request to a store has number %lld; give 1 to %lld", (long long)number,
                     (long long)INT64_MAX - 1);
}

static mu_value *call_store(mu_value *arguments, void *arg)
{
    mu_stores *stores = arg;
    mu_change change = {.since_ns = mu__now_ns()};
    char *method = NULL;
    if (mu__numbers_of(mu_value_at(arguments, 0), change.ask, MU_N_ASK) != MU_OK ||
        mu__value_text(mu_value_at(arguments, 1), "a method's name", &method) != MU_OK ||
        mu__call_may(method) != MU_OK || check_request(change.ask[MU_ASK_REQUEST]) != MU_OK) {
        mu__free(method);
        return NULL;
    }
    mu_value *body = mu_value_count(arguments) > 2 ? mu_value_at(arguments, 2) : NULL;
    pthread_mutex_lock(&stores->lock);
    change.store = mu__store_find(stores, change.ask[MU_ASK_STORE]);
    const int64_t refused = refuse(stores, change.store, change.ask);
    pthread_mutex_unlock(&stores->lock);
    mu_value *value = refused == 0 ? mu__store_run(&change, method, body) : NULL;
    pthread_mutex_lock(&stores->lock);
    mu_value *result = refused == 0 ? mu__store_finish(&change, NULL, method, body, value)
                                    : mu__store_refusal(stores, change.store, refused);
    pthread_mutex_unlock(&stores->lock);
    mu__free(change.waits_for);
    mu__free(method);
    return result;
}

// ---- The coordinator's orders -------------------------------------------------------------------

static mu_status check_number(int64_t number, const char *what)
{
    if (mu__epoch_valid(number))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s is %lld; give 0 to %lld", what, (long long)number,
                     (long long)MU_MOST_EPOCH);
}

static mu_status check_process(const mu_stores *stores, int64_t process)
{
    if ((uint64_t)process == mu__stores_process(stores) || MU_PLANTED(MU_DEFECT_EARLIER_LIFE))
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION, "the order is for an earlier process at this address");
}

static mu_value *led(const mu_store *store)
{
    pthread_mutex_lock(&store->stores->lock);
    const int64_t numbers[2] = {store->epoch, store->applied};
    pthread_mutex_unlock(&store->stores->lock);
    return mu__numbers_value(numbers, 2);
}

static mu_status read_lead(const mu_stores *stores, const mu_value *arguments, mu_lead *out)
{
    MU_TRY(mu__numbers_of(mu_value_at(arguments, 0), out->numbers, MU_N_LEAD));
    MU_TRY(check_number(out->numbers[MU_LEAD_EPOCH], "the epoch of an order"));
    MU_TRY(check_number(out->numbers[MU_LEAD_CUT], "the cut of an order"));
    MU_TRY(check_process(stores, out->numbers[MU_LEAD_PROCESS]));
    MU_TRY(mu__value_text(mu_value_at(arguments, 1), "the copy's address", &out->copy));
    MU_TRY(mu__value_text(mu_value_at(arguments, 2), "the folder of snapshots", &out->folder));
    out->has_restores = mu_value_count(arguments) > 3;
    return out->has_restores ? mu__restores_of(mu_value_at(arguments, 3), out->numbers[MU_LEAD_EPOCH], &out->restores)
                             : MU_OK;
}

// [numbers, the copy's address or "", the snapshots' folder or "", times that the store went back] -> [epoch, last
// change].
static mu_value *lead(mu_value *arguments, void *arg)
{
    mu_stores *stores = arg;
    mu_lead order = {.copy = NULL};
    mu_value *result = NULL;
    if (read_lead(stores, arguments, &order) == MU_OK) {
        pthread_mutex_lock(&stores->lock);
        mu_store *store = mu__store_make(stores, order.numbers[MU_LEAD_STORE]);
        pthread_mutex_unlock(&stores->lock);
        if (store != NULL && mu__store_take_lead(store, &order) == MU_OK)
            result = led(store);
    }
    mu__free(order.copy);
    mu__free(order.folder);
    return result;
}

static mu_value *copy(mu_value *arguments, void *arg) { return mu__copying_take(arg, arguments); }

static mu_value *stage(mu_value *arguments, void *arg) { return mu__staging_take(arg, arguments); }

// [[store, epoch, process, cut], folder, [last cut that all stores have written]] -> [sequence number of the cut].
// Coordinators before that deletion came send no third element.
static mu_value *cut(mu_value *arguments, void *arg)
{
    mu_stores *stores = arg;
    int64_t ask[4], at = -1, whole = 0;
    char *folder = NULL;
    if (mu__numbers_of(mu_value_at(arguments, 0), ask, 4) != MU_OK || check_process(stores, ask[2]) != MU_OK ||
        check_number(ask[3], "the number of a cut") != MU_OK ||
        (mu_value_count(arguments) > 2 && mu__numbers_of(mu_value_at(arguments, 2), &whole, 1) != MU_OK) ||
        mu__value_text(mu_value_at(arguments, 1), "the folder of snapshots", &folder) != MU_OK)
        return NULL;
    pthread_mutex_lock(&stores->lock);
    mu_store *store = mu__store_find(stores, ask[0]);
    if (store == NULL || store->role != MU_STORE_PRIMARY || store->epoch != ask[1])
        mu__error(MU_ABORTED, "this server is not the primary of store %lld in epoch %lld", (long long)ask[0],
                  (long long)ask[1]);
    pthread_mutex_unlock(&stores->lock);
    if (!mu__pending())
        at = mu__snapshot_write(store, ask[3], folder);
    if (at >= 0)
        mu__snapshot_delete_before(store, whole, folder);
    mu__free(folder);
    return at >= 0 ? mu__numbers_value(&at, 1) : NULL;
}

// The coordinator's questions are numbered, and say which answer it has: until a while after that answer was given, it
// replaces no primary here.
static void take_poll(mu_stores *stores, int64_t number, int64_t confirmed)
{
    const int64_t lease = (int64_t)(stores->heartbeat * MU_LEASE * 1e9);
    if (MU_PLANTED(MU_DEFECT_LATE_QUESTION))
        stores->lease_ns = mu__now_ns() + lease;
    for (int i = 0; i < 2; i++)
        if (stores->polls[i] == confirmed && stores->polled_ns[i] != 0)
            stores->lease_ns = MU_MAX(stores->lease_ns, stores->polled_ns[i] + lease);
    stores->polls[0] = stores->polls[1];
    stores->polled_ns[0] = stores->polled_ns[1];
    stores->polls[1] = number;
    stores->polled_ns[1] = mu__now_ns();
}

// With the lock held: stores that another server leads. This one may have led them before, or have said that they are
// lost; or it is still about to follow an order of an earlier epoch (begin_leading). A copy stays one: the
// first message of its primary may be of this epoch.
static void take_led(mu_stores *stores, const mu_value *value)
{
    const mu_tensor *tensor = value != NULL ? mu_value_tensor(value) : NULL;
    if (tensor == NULL || tensor->dtype != MU_I64 || tensor->shape.rank != 1)
        return;
    const int64_t *pairs = mu__host_read(tensor);
    for (int64_t i = 0; i + 1 < tensor->shape.dims[0]; i += 2) {
        mu_store *store = mu__epoch_valid(pairs[i + 1]) ? mu__store_find(stores, pairs[i]) : NULL;
        if (store == NULL || MU_PLANTED(MU_DEFECT_STALE_PRIMARY))
            continue;
        store->led_epoch = MU_MAX(store->led_epoch, pairs[i + 1]);
        store->not_back[0] = '\0';
        if (store->role == MU_STORE_PRIMARY || store->gone)
            mu__store_step_down(store, pairs[i + 1]);
    }
}

// [[number, the last whose answer came], [store, epoch, …] of stores that others lead, [cut]] -> rows of MU_N_STATE
// numbers, one after the other. `cut` is the highest number of one that the coordinator knows of, in case its order
// is lost; older coordinators send none.
static mu_value *state(mu_value *arguments, void *arg)
{
    mu_stores *stores = arg;
    int64_t poll[2], last_cut = 0;
    if (mu__numbers_of(mu_value_at(arguments, 0), poll, 2) != MU_OK ||
        (mu_value_count(arguments) > 2 && mu__numbers_of(mu_value_at(arguments, 2), &last_cut, 1) != MU_OK) ||
        check_number(last_cut, "the number of a cut") != MU_OK)
        return NULL;
    pthread_mutex_lock(&stores->lock);
    stores->cut = MU_MAX(stores->cut, last_cut);
    take_led(stores, mu_value_at(arguments, 1));
    take_poll(stores, poll[0], poll[1]);
    const size_t n_stores = stores->stores.n;
    int n = 0;
    int64_t *rows = mu__calloc(n_stores * MU_MOST_STATE_ROWS + 1, MU_N_STATE * sizeof *rows);
    for (size_t i = 0; i < n_stores && rows != NULL; i++)
        n += mu__store_state(stores->stores.items[i], rows + (size_t)n * MU_N_STATE);
    pthread_mutex_unlock(&stores->lock);
    mu__stores_wake(stores);
    mu_value *value = rows != NULL ? mu__numbers_value(rows, n * MU_N_STATE) : NULL;
    mu__free(rows);
    return value;
}

// ---- The thread ---------------------------------------------------------------------------------

void mu__stores_wake(mu_stores *stores)
{
    pthread_mutex_lock(&stores->wake.lock);
    for (size_t i = 0; i < MU_COUNT(stores->threads); i++)
        stores->threads[i].woken = true;
    pthread_cond_broadcast(&stores->wake.changed);
    pthread_mutex_unlock(&stores->wake.lock);
}

static void release_ended(mu_stores *stores)
{
    pthread_mutex_lock(&stores->lock);
    while (stores->ended.n > 0) {
        mu_rpc_client *client = stores->ended.items[--stores->ended.n];
        pthread_mutex_unlock(&stores->lock);
        mu_release(client);
        pthread_mutex_lock(&stores->lock);
    }
    pthread_mutex_unlock(&stores->lock);
}

// May wait, for a change or for a connection to end.
static int64_t run_blocked(mu_stores *stores)
{
    mu_pool *pool = mu_pool_open();
    release_ended(stores);
    int64_t due_ns = mu__server_free_orphans(stores->server, mu__now_ns());
    pthread_mutex_lock(&stores->lock);
    for (size_t i = 0; i < stores->stores.n; i++) {
        mu_store *store = stores->stores.items[i];
        pthread_mutex_unlock(&stores->lock);
        due_ns = MU_MIN(due_ns, mu__blocked_run(store));
        pthread_mutex_lock(&stores->lock);
    }
    pthread_mutex_unlock(&stores->lock);
    mu_pool_close(pool);
    return due_ns;
}

static int64_t keep_leases(mu_stores *stores)
{
    int64_t due_ns = MU_FOREVER;
    mu_pool *pool = mu_pool_open();
    pthread_mutex_lock(&stores->lock);
    for (size_t i = 0; i < stores->stores.n; i++)
        due_ns = MU_MIN(due_ns, mu__store_step(stores->stores.items[i], mu__now_ns()));
    pthread_mutex_unlock(&stores->lock);
    mu_pool_close(pool);
    return due_ns;
}

// What waited for the copy may be due after the second.
int64_t mu__stores_step(mu_stores *stores)
{
    const int64_t blocked_ns = run_blocked(stores), leases_ns = keep_leases(stores);
    bool due = false;
    pthread_mutex_lock(&stores->lock);
    for (size_t i = 0; i < stores->stores.n; i++)
        due |= mu__blocked_is_due(stores->stores.items[i]);
    pthread_mutex_unlock(&stores->lock);
    return due ? mu__now_ns() : MU_MIN(blocked_ns, leases_ns);
}

static void repeat_steps(void *arg)
{
    struct mu_stores_thread *thread = arg;
    mu_stores *stores = thread->stores;
    pthread_mutex_lock(&stores->wake.lock);
    while (!stores->ending) {
        thread->woken = false;
        pthread_mutex_unlock(&stores->wake.lock);
        const int64_t due_ns = thread->step(stores);
        pthread_mutex_lock(&stores->wake.lock);
        while (!thread->woken && !stores->ending && mu__monitor_wait(&stores->wake, due_ns))
            ;
    }
    pthread_mutex_unlock(&stores->wake.lock);
}

// ---- Numbers ------------------------------------------------------------------------------------

// How far the copies are behind of the stores that this server leads.
static mu_status write_metrics(void *arg, mu_text *out)
{
    mu_stores *stores = arg;
    int64_t leads = 0, behind = 0, alone = 0, updates = 0, waiting = 0;
    size_t bytes = 0;
    pthread_mutex_lock(&stores->lock);
    for (size_t i = 0; i < stores->stores.n; i++) {
        const mu_store *store = stores->stores.items[i];
        if (store->role != MU_STORE_PRIMARY)
            continue;
        leads++;
        alone += store->copy == NULL;
        const int64_t lacks = store->copy != NULL ? store->applied - MU_MIN(store->copied, store->applied) : 0;
        behind += store->copy != NULL && (!store->completion_acknowledged || lacks > 0);
        updates += lacks;
        bytes += store->outbound.bytes + mu__staging_bytes(store);
        for (const mu_waiting *at = store->first_waiting; at != NULL; at = at->next)
            waiting++;
    }
    pthread_mutex_unlock(&stores->lock);
    MU_TRY(mu__metrics_gauge(out, "stores_led", (double)leads));
    MU_TRY(mu__metrics_gauge(out, "stores_without_copy", (double)alone));
    MU_TRY(mu__metrics_gauge(out, "copies_behind", (double)behind));
    MU_TRY(mu__metrics_gauge(out, "copies_behind_updates", (double)updates));
    MU_TRY(mu__metrics_gauge(out, "copies_behind_bytes", (double)bytes));
    return mu__metrics_gauge(out, "answers_waiting_for_copies", (double)waiting);
}

// ---- Making and ending --------------------------------------------------------------------------

// Epochs stay, so that the next coordinator begins above them.
static void drop_all(void *arg)
{
    mu_stores *stores = arg;
    pthread_mutex_lock(&stores->lock);
    for (size_t i = 0; i < stores->stores.n; i++)
        mu__store_drop(stores->stores.items[i]);
    pthread_mutex_unlock(&stores->lock);
}

static void owner_left(void *arg) { mu__stores_wake(arg); }

static void stop(void *arg)
{
    mu_stores *stores = arg;
    pthread_mutex_lock(&stores->wake.lock);
    stores->ending = true;
    pthread_cond_broadcast(&stores->wake.changed);
    pthread_mutex_unlock(&stores->wake.lock);
    for (size_t i = 0; i < MU_COUNT(stores->threads); i++) {
        mu__worker_free(stores->threads[i].worker);
        stores->threads[i].worker = NULL;
    }
    mu__server_on_owner_left(stores->server, NULL, NULL);
    drop_all(stores);
    release_ended(stores);
}

static void stores_destroy(void *object)
{
    mu_stores *stores = object;
    for (size_t i = 0; i < stores->stores.n; i++)
        mu_release(stores->stores.items[i]);
    if (stores->has_lock)
        release_ended(stores);
    mu__free(stores->stores.items);
    mu__free(stores->ended.items);
    mu_release(stores->kept);
    mu__monitor_free(&stores->wake);
    if (stores->has_lock)
        pthread_mutex_destroy(&stores->lock);
}

static mu_type stores_type = {.name = "stores", .destroy = stores_destroy};

static mu_status start_thread(mu_stores *stores, int i, const char *name, int64_t (*step)(mu_stores *stores))
{
    struct mu_stores_thread *thread = &stores->threads[i];
    *thread = (struct mu_stores_thread){.stores = stores, .step = step};
    thread->worker = mu__worker_new(name, NULL, 1, stores->server->runtime);
    return thread->worker != NULL ? mu__worker_post(thread->worker, repeat_steps, thread) : mu_error_code();
}

static mu_status start(mu_stores *stores)
{
    MU_TRY(mu__monitor_init(&stores->wake, "stores"));
    stores->has_lock = mu__lock_init(&stores->lock, "the stores of a server");
    if (!stores->has_lock)
        return mu_error_code();
    MU_TRY(mu__server_keep(stores->server, stores));
    MU_TRY(mu__server_owned(stores->server, drop_all, stores));
    mu__server_at_stop(stores->server, stop, stores);
    mu__server_on_owner_left(stores->server, owner_left, stores);
    if (!mu__system->threads)
        return MU_OK;
    MU_TRY(start_thread(stores, 0, "stores", keep_leases));
    return start_thread(stores, 1, "requests that wait", run_blocked);
}

mu_stores *mu__stores_of(mu_rpc_server *server)
{
    for (size_t i = 0; i < server->kept.n; i++)
        if (mu__is(server->kept.items[i], &stores_type))
            return server->kept.items[i];
    return NULL;
}

mu_status mu__stores_add(mu_rpc_server *server, mu_kept *kept)
{
    static const struct {
        const char *name;
        mu_rpc_method *fn;
    } methods[] = {{"muster.store.call", call_store}, {"muster.store.copy", copy}, {"muster.store.ahead", stage},
                   {"muster.store.lead", lead},       {"muster.store.cut", cut},   {"muster.store.state", state}};
    mu_stores *stores = mu__new(&stores_type, sizeof *stores);
    if (stores == NULL)
        return MU_RESOURCE_EXHAUSTED;
    stores->server = server;
    stores->kept = mu_retain(kept);
    stores->heartbeat = server->node.heartbeat_seconds;
    mu_status status = start(stores);
    if (status == MU_OK)
        status = mu__server_add_metrics(server, write_metrics, stores);
    for (size_t i = 0; i < MU_COUNT(methods) && status == MU_OK; i++)
        status = mu__server_add(
            server, &(mu_rpc_server_register_args){.name = methods[i].name, .fn = methods[i].fn, .arg = stores});
    mu_release(stores);
    return status;
}
