// One store in one process: what it keeps, the order of changes, and which answers must wait. See store.h.
#include "rpc/stores/store.h"

static const mu_store_part *const parts[] = {&mu__variables_part, &mu__tables_part};

static _Thread_local mu_change *running; // the request that this thread runs on a store

#ifdef MU_PLANT_DEFECTS
size_t mu__large_change = (size_t)4 << 20;
#endif

// ---- Numbers ------------------------------------------------------------------------------------

mu_value *mu__numbers_value(const int64_t *numbers, int n)
{
    const int64_t size = n;
    return mu_of(mu_tensor_new(MU_I64, 1, &size, numbers));
}

mu_status mu__numbers_of(const mu_value *value, int64_t *numbers, int n)
{
    const mu_tensor *tensor = value != NULL && value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    if (tensor == NULL || tensor->dtype != MU_I64 || tensor->shape.rank != 1 || tensor->shape.dims[0] != n)
        return mu__error(MU_INVALID_ARGUMENT, "a message about a store begins with %d numbers of int64", n);
    memcpy(numbers, mu__host_read(tensor), (size_t)n * sizeof *numbers);
    return MU_OK;
}

static bool state_can_be(const int64_t row[MU_N_STATE])
{
    static const int counts[] = {MU_STATE_EPOCH, MU_STATE_CUT, MU_STATE_LOST};
    for (size_t i = 0; i < MU_COUNT(counts); i++)
        if (row[counts[i]] < 0 || row[counts[i]] > MU_STATE_MOST)
            return false;
    return true;
}

int64_t mu__state_rows(const mu_value *answer, const int64_t **rows)
{
    const mu_tensor *tensor =
        answer != NULL && answer->kind == MU_VALUE_TENSOR ? (const mu_tensor *)answer->leaf : NULL;
    if (tensor == NULL || tensor->dtype != MU_I64 || tensor->shape.rank != 1 || tensor->shape.dims[0] % MU_N_STATE != 0)
        return 0;
    *rows = mu__host_read(tensor);
    const int64_t n = *rows != NULL ? tensor->shape.dims[0] / MU_N_STATE : 0;
    for (int64_t i = 0; i < n; i++)
        if (!state_can_be(*rows + i * MU_N_STATE))
            return 0;
    return n;
}

// ---- Contents -----------------------------------------------------------------------------------

static void kept_destroy(void *object)
{
    mu_kept *kept = object;
    if (kept->has_budget)
        mu__budget_end(&kept->budget);
}

static mu_type kept_type = {.name = "bytes that a server keeps", .destroy = kept_destroy};

mu_kept *mu__kept_new(size_t max_bytes)
{
    mu_kept *kept = mu__new(&kept_type, sizeof *kept);
    if (kept != NULL)
        kept->has_budget = mu__budget_init(&kept->budget, max_bytes) == MU_OK;
    if (kept != NULL && kept->has_budget)
        return kept;
    mu_release(kept);
    return NULL;
}

mu_status mu__part_register(mu_rpc_server *server, const mu_store_part *part, void *object)
{
    mu_status status = MU_OK;
    for (int i = 0; i < part->n_methods && status == MU_OK; i++) {
        const mu_store_method *m = &part->methods[i];
        status =
            m->writer != NULL
                ? mu__server_add_writer(server, m->name, m->writer, object)
                : mu__server_add(server, &(mu_rpc_server_register_args){
                                             .name = m->name, .fn = m->fn, .arg = object, .input_signature = m->input});
    }
    return status;
}

static void free_parts(mu_store *store)
{
    for (size_t i = 0; i < MU_COUNT(parts); i++) {
        mu_release(store->parts[i]);
        store->parts[i] = NULL;
    }
}

mu_status mu__store_ready(mu_store *store)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&store->stores->lock);
    for (size_t i = 0; i < MU_COUNT(parts) && status == MU_OK; i++)
        if (store->parts[i] == NULL && (store->parts[i] = parts[i]->make(store->stores->kept)) == NULL)
            status = mu_error_code();
    pthread_mutex_unlock(&store->stores->lock);
    return status;
}

// A part, retained, because the store may be dropped while it is used. Errors: ABORTED if it was dropped.
static void *part_of(const mu_store *store, size_t i)
{
    pthread_mutex_lock(&store->stores->lock);
    void *part = mu_retain(store->parts[i]);
    pthread_mutex_unlock(&store->stores->lock);
    if (part == NULL)
        mu__error(MU_ABORTED, "store %d is no longer here", store->number);
    return part;
}

static mu_value *with_part(const char *part, const mu_value *row)
{
    return mu_list(mu__text_value(part), mu_value_at(row, 0), mu_value_at(row, 1), MU_END);
}

mu_value *mu__store_capture(mu_store *store)
{
    mu_value *saved[MU_COUNT(parts)];
    int n = 0;
    for (size_t i = 0; i < MU_COUNT(parts); i++) {
        void *part = part_of(store, i);
        saved[i] = part != NULL ? parts[i]->save(part) : NULL;
        n += saved[i] != NULL ? mu_value_count(saved[i]) : 0;
        mu_release(part);
    }
    mu_value **rows = mu__pending() ? NULL : mu__calloc((size_t)n + 1, sizeof *rows);
    n = 0;
    for (size_t i = 0; rows != NULL && i < MU_COUNT(parts); i++)
        for (int k = 0; k < mu_value_count(saved[i]); k++)
            rows[n++] = with_part(parts[i]->name, mu_value_at(saved[i], k));
    mu_value *all = rows != NULL ? mu_list_of(n, rows) : NULL;
    mu__free(rows);
    return all;
}

mu_status mu__store_load(mu_store *store, const mu_value *row)
{
    char *kind = NULL, *name = NULL;
    mu_status status = mu__value_text(mu_value_at(row, 0), "a part's name", &kind);
    if (status == MU_OK)
        status = mu__value_text(mu_value_at(row, 1), "a resource's name", &name);
    size_t i = 0;
    while (status == MU_OK && i < MU_COUNT(parts) && strcmp(parts[i]->name, kind) != 0)
        i++;
    if (status == MU_OK && i == MU_COUNT(parts))
        status = mu__error(MU_INVALID_ARGUMENT, "this server keeps no \"%.60s\"", kind);
    void *part = status == MU_OK ? part_of(store, i) : NULL;
    if (status == MU_OK)
        status = part != NULL ? parts[i]->load(part, name, mu_value_at(row, 2)) : mu_error_code();
    mu_release(part);
    mu__free(kind);
    mu__free(name);
    return status;
}

// ---- Making and ending --------------------------------------------------------------------------

void mu__store_drop(mu_store *store)
{
    mu__copying_end(store);
    free_parts(store);
    mu__seen_clear(&store->seen);
    mu_release(store->captured);
    mu_release(store->captured_seen);
    store->captured = store->captured_seen = NULL;
    store->role = MU_STORE_NONE;
    store->begun = store->applied = store->copied = store->position = 0;
    store->restores = (mu_restores){0};
    store->not_back[0] = '\0';
    store->complete = store->completion_acknowledged = store->promoting = store->gone = false;
    store->blocked_ns = 0;
    mu__store_release_waiting(store, mu__now_ns());
}

void mu__store_step_down(mu_store *store, int64_t epoch)
{
    if (epoch <= store->epoch)
        return;
    if (store->role == MU_STORE_PRIMARY)
        mu__log(MU_LOG_WARNING, "store %d: this server is no longer its primary (epoch %lld, now %lld)", store->number,
                (long long)store->epoch, (long long)epoch);
    mu__store_drop(store);
    store->epoch = epoch;
}

static void store_destroy(void *object)
{
    mu_store *store = object;
    mu__copying_end(store);
    mu__holder_end(&store->staged.holder);
    mu__blocked_free(store);
    free_parts(store);
    mu__seen_clear(&store->seen);
    mu_release(store->captured);
    mu_release(store->captured_seen);
    if (store->has_lock)
        pthread_mutex_destroy(&store->changing);
}

static mu_type store_type = {.name = "store", .destroy = store_destroy};

mu_store *mu__store_new(mu_stores *stores, int number)
{
    mu_store *store = mu__new(&store_type, sizeof *store);
    if (store == NULL)
        return NULL;
    store->stores = stores;
    store->number = number;
    snprintf(store->staged.name, sizeof store->staged.name, "%d", number);
    mu__holder_begin(&store->staged.holder, &stores->kept->budget, "arguments that are staged for store",
                     store->staged.name);
    store->has_lock = mu__lock_init(&store->changing, "a store of a server");
    if (store->has_lock)
        return store;
    mu_release(store);
    return NULL;
}

int64_t mu__store_epoch(const mu_store *store) { return MU_MAX(store->epoch, store->led_epoch); }

// The main row comes last: it says what the last time cost that the store went back, as it always did.
int mu__store_state(const mu_store *store, int64_t *rows)
{
    const mu_restores *restores = &store->restores;
    int n = 0;
    for (int i = 0; i + 1 < restores->n; i++)
        if (restores->items[i].lost > 0) {
            int64_t *row = rows + (size_t)n++ * MU_N_STATE;
            row[MU_STATE_STORE] = store->number;
            row[MU_STATE_ROLE] = MU_ROW_EARLIER;
            row[MU_STATE_EPOCH] = restores->items[i].epoch;
            row[MU_STATE_APPLIED] = restores->items[i].sequence;
            row[MU_STATE_LOST] = restores->items[i].lost;
        }
    int64_t *row = rows + (size_t)n++ * MU_N_STATE;
    row[MU_STATE_STORE] = store->number;
    row[MU_STATE_ROLE] = store->role;
    row[MU_STATE_EPOCH] = mu__store_epoch(store); // which the next coordinator must exceed
    row[MU_STATE_APPLIED] = store->applied;
    row[MU_STATE_COPIED] = store->copy != NULL ? store->copied : store->applied;
    row[MU_STATE_COMPLETE] = store->role == MU_STORE_PRIMARY ? store->completion_acknowledged : store->complete;
    row[MU_STATE_LOST] = restores->n > 0 ? restores->items[restores->n - 1].lost : 0;
    row[MU_STATE_CUT] = store->stores->cut;
    row[MU_STATE_STUCK] =
        store->copy != NULL && (store->parted || store->replaced ||
                                mu__now_ns() - store->heard_ns > (int64_t)(store->stores->heartbeat * 1e9));
    return n;
}

// ---- Changes ------------------------------------------------------------------------------------

// With the lock held. Errors: ABORTED if another process may be primary, or if the request was applied before.
static mu_status check_new(mu_change *change)
{
    mu_store *store = change->store;
    const int64_t *ask = change->ask;
    const mu_seen_request *seen;
    if (store->role != MU_STORE_PRIMARY || store->epoch != ask[MU_ASK_EPOCH])
        return mu__error(MU_ABORTED, "store %d has another primary now", store->number);
    if (mu__seen_find(&store->seen, ask[MU_ASK_CLIENT], ask[MU_ASK_REQUEST], ask[MU_ASK_OLDEST], &seen) !=
        MU_SEEN_NEW) {
        change->seen = true;
        change->seen_sequence = seen != NULL ? seen->sequence : 0;
        change->seen_answer = seen != NULL ? mu_retain(seen->answer) : NULL;
        return mu__error(MU_ABORTED, "the request was applied before");
    }
    return MU_OK;
}

// With both locks held: whether the request may change the store now.
static mu_status admit(mu_change *change)
{
    MU_TRY(check_new(change));
    return mu__seen_add(&change->store->seen, change->ask[MU_ASK_CLIENT], change->ask[MU_ASK_OLDEST]);
}

// Whether the request brings so much that the copy must have it first. One that was done before does not wait.
static bool waits_for_copy(mu_change *change)
{
    mu_store *store = change->store;
    const int64_t *ask = change->ask;
    const mu_seen_request *seen;
    pthread_mutex_lock(&store->stores->lock);
    change->large = !mu__pending() && store->copy != NULL &&
                    mu__seen_find(&store->seen, ask[MU_ASK_CLIENT], ask[MU_ASK_REQUEST], ask[MU_ASK_OLDEST], &seen) ==
                        MU_SEEN_NEW &&
                    mu__staging_wait(store, &change->staged, change->arguments);
    pthread_mutex_unlock(&store->stores->lock);
    if (change->large)
        change->until_ns = MU_FOREVER;
    change->waits = change->large;
    return change->large;
}

mu_status mu__change_begin(void)
{
    mu_change *change = running;
    if (change == NULL || change->begun)
        return mu_error_code();
    mu_store *store = change->store;
    if (waits_for_copy(change))
        return mu__error(MU_ABORTED, "the copy of store %d gets the arguments first", store->number);
    pthread_mutex_lock(&store->changing);
    if (!MU_PLANTED(MU_DEFECT_OWN_CUT))
        mu__snapshot_before(store, change->ask[MU_ASK_CUT]);
    pthread_mutex_lock(&store->stores->lock);
    change->begun = mu_error_code() == MU_OK && admit(change) == MU_OK;
    if (change->begun)
        change->sequence = ++store->begun;
    pthread_mutex_unlock(&store->stores->lock);
    if (!change->begun)
        pthread_mutex_unlock(&store->changing);
    return mu_error_code();
}

static bool is_next(const mu_change *change, const char *name)
{
    pthread_mutex_lock(&change->store->stores->lock);
    const bool next = mu__blocked_is_next(change->store, change->blocked, name);
    pthread_mutex_unlock(&change->store->stores->lock);
    return next;
}

// What was done before must not wait for what its first attempt has used up.
static mu_status wait_for_others(mu_change *change, const char *name, double seconds)
{
    pthread_mutex_lock(&change->store->stores->lock);
    const mu_status status = change->begun ? MU_OK : check_new(change);
    pthread_mutex_unlock(&change->store->stores->lock);
    if (status != MU_OK)
        return status;
    const double limit_ns = seconds * 1e9, most_ns = (double)(MU_FOREVER - change->since_ns);
    change->until_ns = limit_ns < most_ns ? change->since_ns + (int64_t)limit_ns : MU_FOREVER;
    if (mu__now_ns() >= change->until_ns)
        return mu__error(MU_DEADLINE_EXCEEDED, "'%s': the changes that a request waits for did not come in %g s", name,
                         seconds);
    change->waits_for = mu__strdup(name);
    change->waits = change->waits_for != NULL;
    return change->waits ? mu__error(MU_ABORTED, "'%s': others' changes come first", name) : mu_error_code();
}

mu_status mu__change_begin_when(const char *name, double seconds, bool (*ready)(void *arg), void *arg)
{
    mu_change *change = running;
    if (change == NULL || mu__pending())
        return mu_error_code();
    if (change->begun) // the copy: the primary has found it ready
        return ready(arg) ? MU_OK : mu__error(MU_INTERNAL, "'%s' is not what its primary has", name);
    if (is_next(change, name) && ready(arg)) {
        MU_TRY(mu__change_begin());
        if (ready(arg))
            return MU_OK;
    }
    return wait_for_others(change, name, seconds);
}

bool mu__change_in_store(void) { return running != NULL; }

bool mu__change_repeated(void) { return running != NULL && running->repeated; }

void mu__change_concerns(const char *name)
{
    const uint64_t hash = mu__blocked_hash(name);
    if (running != NULL)
        running->concerns = running->concerns == 0 || running->concerns == hash ? hash : MU_CONCERNS_ALL;
}

void mu__change_torn(void)
{
    if (running != NULL)
        running->torn = true;
}

// The part is retained.
static const mu_store_method *method_of(const mu_store *store, const char *name, void **part)
{
    for (size_t i = 0; i < MU_COUNT(parts); i++)
        for (int k = 0; k < parts[i]->n_methods; k++)
            if (strcmp(parts[i]->methods[k].name, name) == 0)
                return (*part = part_of(store, i)) != NULL ? &parts[i]->methods[k] : NULL;
    mu__error(MU_INVALID_ARGUMENT, "a store has no method \"%.60s\"", name);
    return NULL;
}

// A method that writes its answer itself has it read again, because answers here are values with others around them.
static mu_value *run_method(const mu_store_method *method, mu_value *arguments, void *part)
{
    if (method->writer == NULL)
        return method->fn(arguments, part);
    mu_value *value = NULL;
    mu_message *message = method->writer(arguments, part);
    if (message != NULL && mu__message_value(message, 0, &value) != MU_OK)
        mu__change_torn();
    mu_release(message);
    return mu__give(value);
}

mu_value *mu__store_run(mu_change *change, const char *name, mu_value *arguments)
{
    void *part = NULL;
    const mu_store_method *method = method_of(change->store, name, &part);
    mu_value *value = NULL;
    if (method != NULL && (method->input == NULL || mu__signature_check(method->input, arguments) == MU_OK)) {
        change->arguments = arguments;
        running = change;
        value = run_method(method, arguments, part);
        running = NULL;
    }
    mu_release(part);
    return value;
}

static mu_value *record_of(const mu_change *change, bool failed, const char *method, mu_value *arguments)
{
    const int64_t head[MU_N_RECORD_STAGED] = {change->sequence, change->ask[MU_ASK_CLIENT], change->ask[MU_ASK_REQUEST],
                                              change->ask[MU_ASK_OLDEST], change->staged};
    const bool staged = !failed && mu__staging_record(change->store, change->staged, change->sequence);
    mu_value *numbers = mu__numbers_value(head, staged ? MU_N_RECORD_STAGED : MU_N_RECORD);
    mu_value *name = mu__text_value(failed ? "" : method);
    return failed || staged || arguments == NULL ? mu_list(numbers, name, MU_END)
                                                 : mu_list(numbers, name, arguments, MU_END);
}

void mu__store_changed(mu_change *change, const char *method, mu_value *arguments, mu_value *answer, bool failed)
{
    mu_store *store = change->store;
    if (!change->begun)
        return;
    // A store that was dropped meanwhile has forgotten the change.
    if (store->role == MU_STORE_PRIMARY && store->begun == change->sequence) {
        store->applied = change->sequence;
        // One that failed halfway must not be done again either.
        if (!failed || change->torn)
            mu__seen_done(&store->seen, change->ask[MU_ASK_CLIENT], change->ask[MU_ASK_REQUEST],
                          failed ? 0 : change->sequence, failed ? NULL : answer);
        const bool left_out = failed || (change->blocked != NULL && MU_PLANTED(MU_DEFECT_TAKE_NOT_COPIED));
        mu_value *record = store->copy != NULL ? record_of(change, left_out, method, arguments) : NULL;
        const bool copied =
            !change->torn && record != NULL && mu__copying_record(store, change->sequence, record) == MU_OK;
        store->parted |= store->copy != NULL && !copied;
    }
    pthread_mutex_unlock(&store->changing);
    if (change->concerns != 0)
        mu__blocked_concerns(store, change->concerns);
}

// ---- Answers that wait --------------------------------------------------------------------------

// Who has a copy is replaced by that alone, whose word is therefore enough; unless the coordinator, which hears neither
// of the two any more, may go back to a snapshot.
int64_t mu__store_led_ns(const mu_store *store)
{
    const int64_t coordinator_ns = store->stores->lease_ns;
    if (!store->complete || store->copy == NULL)
        return coordinator_ns;
    const bool both = store->goes_back && !MU_PLANTED(MU_DEFECT_COPYS_WORD);
    return both ? MU_MIN(store->lease_ns, coordinator_ns) : store->lease_ns;
}

// Where the connection that brought the copy's word has ended, the copy may take this process for dead, and no longer
// wait for its lease.
static bool is_linked(const mu_store *store)
{
    return mu__client_ended(store->copy) == store->lease_link || MU_PLANTED(MU_DEFECT_ENDED_LINK);
}

bool mu__store_settled(const mu_store *store, int64_t sequence, int64_t now)
{
    if (MU_PLANTED(MU_DEFECT_EARLY_ACKNOWLEDGEMENT))
        return true;
    if (store->parted || store->replaced)
        return false;
    const bool led = now < mu__store_led_ns(store) || MU_PLANTED(MU_DEFECT_STALE_PRIMARY);
    if (!led || store->copy == NULL)
        return led;
    return store->complete ? store->copied >= sequence && is_linked(store) : mu__copying_keeps_up(store);
}

mu_value *mu__store_answer(const mu_store *store, int64_t code, mu_value *body)
{
    const int64_t head[MU_N_ANSWER] = {store->epoch, store->stores->cut, code, store->applied};
    mu_value *numbers = mu__numbers_value(head, MU_N_ANSWER);
    return body != NULL ? mu_list(numbers, body, MU_END) : mu_list(numbers, MU_END);
}

mu_status mu__store_wait(mu_store *store, mu_server_call *call, int64_t sequence, int64_t code, mu_value *body)
{
    mu_waiting *waiting = mu__calloc(1, sizeof *waiting);
    if (waiting == NULL)
        return MU_RESOURCE_EXHAUSTED;
    *waiting = (mu_waiting){
        .call = call, .sequence = sequence, .since_ns = mu__now_ns(), .code = code, .body = mu_retain(body)};
    *(store->last_waiting != NULL ? &store->last_waiting->next : &store->first_waiting) = waiting;
    store->last_waiting = waiting;
    return MU_OK;
}

static void answer_waiting(mu_store *store, mu_waiting *waiting, int64_t code)
{
    mu_pool *pool = mu_pool_open();
    mu__call_answer(waiting->call, mu__store_answer(store, code, code == MU_NOT_PRIMARY ? NULL : waiting->body));
    mu_pool_close(pool);
    mu_release(waiting->body);
    mu__free(waiting);
}

// A client whose primary hears neither its copy nor the coordinator looks for another one after a heartbeat.
void mu__store_release_waiting(mu_store *store, int64_t now)
{
    const int64_t patience_ns = (int64_t)(store->stores->heartbeat * 1e9);
    mu_waiting *at = store->first_waiting, *last = NULL, *next, **link = &store->first_waiting;
    for (; at != NULL; at = next) {
        next = at->next;
        const bool settled = store->role == MU_STORE_PRIMARY && mu__store_settled(store, at->sequence, now);
        const bool hopeless = store->role != MU_STORE_PRIMARY || store->replaced || now - at->since_ns > patience_ns;
        if (settled || hopeless) {
            *link = next;
            answer_waiting(store, at, settled ? at->code : MU_NOT_PRIMARY);
        } else {
            link = &at->next;
            last = at;
        }
    }
    store->last_waiting = last;
}

int64_t mu__store_step(mu_store *store, int64_t now)
{
    int64_t due_ns = mu__copying_step(store, now);
    mu__store_release_waiting(store, mu__now_ns());
    if (store->first_waiting != NULL)
        due_ns = MU_MIN(due_ns, now + (int64_t)(store->stores->heartbeat * 1e8));
    return due_ns;
}
