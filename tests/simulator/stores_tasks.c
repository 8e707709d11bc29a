// The processes of the simulated cluster: servers, workers, the coordinator. Each is the shipped code with a script.
#include "stores.h"

#include "graph/graph.h"
#include "ops/nn/nn.h"
#include "ops/state/embedding_table.h"

// How long a take waits for gradients; one that ends later than without a fault has waited.
#define MOST_TAKE_S 6
#define SLOW_NS     1000000000

static mu_store_client *stores_of_coordinator; // NULL: there is no coordinator

static void address_of(int host, char text[32]) { snprintf(text, 32, "10.0.0.%d:%d", host + 1, PORT); }

static const char *name_of(int store)
{
    static const char *const names[MOST_SERVERS] = {"v0", "v1", "v2", "v3"};
    return names[store];
}

static const char *accumulator_of(int store)
{
    static const char *const names[MOST_SERVERS] = {"a0", "a1", "a2", "a3"};
    return names[store];
}

// ---- Servers ------------------------------------------------------------------------------------

void server_start(server_task *s)
{
    char address[32];
    world_enter(s->process, s->host);
    world_note("server %d starts as process %d", s->host, s->process);
    mu_pool *pool = mu_pool_open();
    address_of(s->host, address);
    s->rpc = mu_retain(mu_rpc_server_new("muster", address));
    mu_kept *kept = mu__kept_new(SIZE_MAX);
    if (s->rpc == NULL || mu__stores_add(s->rpc, kept) != MU_OK || mu_rpc_server_start(s->rpc) != MU_OK)
        run_fails("server %d cannot start: %s", s->host, mu_error_message());
    mu_release(kept);
    mu_pool_close(pool);
    s->alive = true;
    s->due_ns = world_now();
}

void server_run(server_task *s)
{
    world_enter(s->process, s->host);
    mu_pool *pool = mu_pool_open();
    mu_stores *stores = mu__stores_of(s->rpc);
    s->due_ns = mu__server_step(s->rpc);
    for (size_t i = 0; i < stores->stores.n; i++)
        if (stores->stores.items[i]->copy != NULL)
            s->due_ns = MU_MIN(s->due_ns, mu__client_step(stores->stores.items[i]->copy));
    s->due_ns = MU_MIN(s->due_ns, mu__stores_step(stores));
    for (size_t i = 0; i < stores->stores.n; i++)
        if (stores->stores.items[i]->restores.n > 0)
            check_back(stores->stores.items[i]);
    if (mu__pending())
        run_fails("server %d left an error behind: %s", s->host, mu_error_take().message);
    mu_pool_close(pool);
}

void server_kill(server_task *s)
{
    mu_error_value ignored;
    if (!s->alive)
        return;
    world_enter(s->process, s->host);
    world_note("server %d is killed", s->host);
    world_kill(s->process); // what follows is not heard by anybody
    mu_release(s->rpc);
    mu__error_move(&ignored);
    s->rpc = NULL;
    s->alive = false;
}

// ---- Workers ------------------------------------------------------------------------------------

static void connect_to_servers(mu_rpc_client **clients)
{
    for (int i = 0; i < now_running.n_servers; i++) {
        char address[32];
        address_of(i, address);
        clients[i] = mu_retain(mu_rpc_client_new("muster", address, .fail_fast = true));
    }
}

void worker_start(worker_task *w, int left)
{
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(MOST_UPDATES)};
    const mu_spec sums = {.dtype = MU_F32, .shape = {.rank = 1}};
    world_enter(w->process, w->host);
    world_note("worker %d starts as process %d", w->number, w->process);
    mu_pool *pool = mu_pool_open();
    connect_to_servers(w->clients);
    w->stores = mu__store_client_new(now_running.n_servers, w->clients);
    for (int i = 0; i < now_running.n_servers; i++) {
        w->variables[i] = mu__remote_variable(w->clients[i], name_of(i), &spec);
        w->accumulators[i] =
            mu__remote_resource(w->clients[i], mu__remote_kind("conditional_accumulator"), accumulator_of(i), &sums);
    }
    if (mu__pending())
        run_fails("worker %d cannot start: %s", w->number, mu_error_take().message);
    mu_pool_close(pool);
    w->alive = true;
    w->left = left;
    w->due_ns = w->next_ns = world_now();
}

static const char *table_of(int store)
{
    static const char *const names[MOST_SERVERS] = {"t0", "t1", "t2", "t3"};
    return names[store];
}

static mu_value *update_arguments(const worker_task *w, int store, int number)
{
    const mu_scatter_attrs add = {.kind = MU_SCATTER_ADD};
    const int32_t index = number;
    const float one = 1;
    const int64_t single = 1;
    mu_tensor *in[] = {mu_tensor_new(MU_I32, 1, &single, &index), mu_tensor_new(MU_F32, 1, &single, &one)};
    return mu__remote_apply_arguments(&mu_op_scatter_variable, &add, 2, in, 1, &w->variables[store]);
}

// By gradient descent with rate 1.
static mu_value *table_update_arguments(int store, int number)
{
    const int64_t key = number, one_by_one[2] = {1, 1};
    const float gradient = -1;
    return mu_list(mu__text_value(table_of(store)), mu_tensor_new(MU_I64, 1, one_by_one, &key),
                   mu_tensor_new(MU_F32, 2, one_by_one, &gradient), mu_constant(MU_F64, 1), MU_END);
}

// With a 1 in the place of the update, and a step that no take makes old.
static mu_value *gradient_arguments(const worker_task *w, int store, int number)
{
    const int64_t n = MOST_UPDATES;
    float gradient[MOST_UPDATES] = {0};
    gradient[number] = 1;
    mu_tensor *in[] = {mu_constant(MU_I64, MOST_UPDATES), mu_tensor_new(MU_F32, 1, &n, gradient)};
    return mu__remote_apply_arguments(&mu_op_resource_accumulator_apply_gradient, NULL, 2, in, 1,
                                      &w->accumulators[store]);
}

mu_store_request *worker_reads(worker_task *w, int store, subject target, int64_t required, double seconds)
{
    if (target == ON_VARIABLE)
        return mu__store_request_new(
            w->stores, store, "muster.apply",
            mu__remote_apply_arguments(&mu_op_read_variable, NULL, 0, NULL, 1, &w->variables[store]), 0);
    if (target == ON_TABLE)
        return mu__store_request_new(w->stores, store, "muster.table.lookup",
                                     mu_list(mu__text_value(table_of(store)), mu_range(MU_I64, 0, MOST_UPDATES, 1),
                                             mu_constant(MU_BOOL, true), MU_END),
                                     0);
    return mu__store_request_new(w->stores, store, "muster.accumulator.take",
                                 mu_list(mu__text_value(accumulator_of(store)),
                                         mu_tensor_new(MU_I64, 0, NULL, &required), mu_constant(MU_F64, seconds),
                                         MU_END),
                                 0);
}

static mu_store_request *worker_updates(worker_task *w)
{
    if (w->target == ON_TABLE)
        return mu__store_request_new(w->stores, w->store, "muster.table.update",
                                     table_update_arguments(w->store, w->update), 0);
    mu_value *arguments = w->target == ON_VARIABLE ? update_arguments(w, w->store, w->update)
                                                   : gradient_arguments(w, w->store, w->update);
    return mu__store_request_new(w->stores, w->store, "muster.apply", arguments, 0);
}

// Where clusters are divided, worker 0 reads the variables for as long as others make updates.
static bool is_reader(const worker_task *w) { return now_running.divides && w->number == 0; }

static bool others_update(void)
{
    int left = 0;
    for (int i = 1; i < now_running.n_workers; i++)
        left += now_running.workers[i].left;
    return left > 0;
}

static void begin(worker_task *w)
{
    const bool divided = now_running.division.store >= 0;
    w->store = divided ? now_running.division.store : (int)world_draw((uint64_t)now_running.n_servers);
    const bool reads = is_reader(w) || world_chance(0.25) || now_running.n_updates == MOST_UPDATES;
    // A take that waits would hold up its worker.
    const int targets = now_running.skews || now_running.divides ? ON_ACCUMULATOR : N_SUBJECTS;
    w->target =
        is_reader(w) ? ON_VARIABLE : (subject)((reads ? now_running.n_readings : now_running.n_updates) % targets);
    w->left = is_reader(w) ? others_update() : w->left;
    w->update = reads ? -1 : check_begin_update(w, w->store, w->target);
    w->begun_ns = world_now();
    w->left -= !reads;
    // As a call of the coordinator tells it (muster.function.run).
    if (now_running.skews && stores_of_coordinator != NULL)
        mu__store_client_hear(w->stores, mu__store_client_cut(stores_of_coordinator));
    static const char *const names[] = {"the variable", "the table", "the accumulator"};
    world_note("worker %d begins %s %d on %s of store %d", w->number, reads ? "a reading" : "update", w->update,
               names[w->target], w->store);
    w->request =
        reads ? worker_reads(w, w->store, w->target, 1 + (int64_t)world_draw(3), MOST_TAKE_S) : worker_updates(w);
}

static void end(worker_task *w)
{
    mu_value *value = mu__store_request_value(w->request);
    const bool take = w->update < 0 && w->target == ON_ACCUMULATOR;
    now_running.n_takes += take;
    now_running.n_waits += take && world_now() - w->begun_ns > SLOW_NS;
    if (take && mu_error_code() == MU_DEADLINE_EXCEEDED) {
        mu_error_take();
        now_running.n_readings++;
    } else if (mu__pending()) {
        run_fails("worker %d, store %d: %s", w->number, w->store, mu_error_take().message);
    } else if (w->update >= 0) {
        check_done_update(w->update);
    } else {
        check_reading(w->store, w->target, w->begun_ns, value);
    }
    mu__store_request_free(w->request);
    w->request = NULL;
    // While connections break there is always something on its way.
    const double pause_s = now_running.breaking.server != NULL ? 0.01 : now_running.skews ? 0.05 : 0.3;
    w->next_ns = world_now() + world_draw_ns(0, pause_s);
}

void worker_run(worker_task *w)
{
    world_enter(w->process, w->host);
    mu_pool *pool = mu_pool_open();
    w->due_ns = MU_FOREVER;
    if (w->request == NULL && w->left > 0 && world_now() >= w->next_ns && now_running.ready)
        begin(w);
    for (int i = 0; i < now_running.n_servers; i++)
        w->due_ns = MU_MIN(w->due_ns, mu__client_step(w->clients[i]));
    if (w->request != NULL && mu__store_request_step(w->request))
        end(w);
    for (int i = 0; i < now_running.n_servers; i++)
        w->due_ns = MU_MIN(w->due_ns, mu__client_step(w->clients[i]));
    if (w->request != NULL)
        w->due_ns = MU_MIN(w->due_ns, mu__store_request_due(w->request));
    else if (w->left > 0)
        w->due_ns = MU_MIN(w->due_ns, now_running.ready ? w->next_ns : world_now() + 100000000);
    if (mu__pending())
        run_fails("worker %d left an error behind: %s", w->number, mu_error_take().message);
    mu_pool_close(pool);
}

void worker_kill(worker_task *w)
{
    mu_error_value ignored;
    if (!w->alive)
        return;
    world_enter(w->process, w->host);
    world_note("worker %d is killed", w->number);
    world_kill(w->process);
    now_running.lost_takes[w->store] += w->request != NULL && w->update < 0 && w->target == ON_ACCUMULATOR;
    mu__store_request_free(w->request);
    w->request = NULL;
    for (int i = 0; i < now_running.n_servers; i++) {
        mu_release(w->variables[i]);
        mu_release(w->accumulators[i]);
    }
    mu_release(w->stores);
    for (int i = 0; i < now_running.n_servers; i++)
        mu_release(w->clients[i]);
    mu__error_move(&ignored);
    w->alive = false;
}

// ---- The coordinator ----------------------------------------------------------------------------

static mu_store_request *creating;
static int n_created;
static int64_t snapshots_before; // everything was there

void coordinator_start(void)
{
    stores_run *r = &now_running;
    world_enter(r->coordinator_process, r->coordinator_host);
    mu_pool *pool = mu_pool_open();
    connect_to_servers(r->clients);
    stores_of_coordinator = mu__store_client_new(r->n_servers, r->clients);
    r->placement = mu__placement_new(&(mu_placement_options){.n = r->n_servers,
                                                             .servers = r->clients,
                                                             .client = stores_of_coordinator,
                                                             .replicas = r->replicas,
                                                             .heartbeat = r->heartbeat_s,
                                                             .snapshot_seconds = r->snapshots ? r->snapshot_s : 0,
                                                             .folder = r->folder});
    if (mu__pending())
        run_fails("the coordinator cannot start: %s", mu_error_take().message);
    mu_pool_close(pool);
    n_created = 0;
    r->coordinator_due_ns = world_now();
}

static mu_value *table_arguments(int store)
{
    const mu_table_options o = {
        .dimension = 1, .dtype = MU_F32, .optimizer = MU_TABLE_SGD, .initializer = MU_TABLE_ZEROS, .learning_rate = 1};
    const int64_t n_ints = MU_TABLE_INTS, n_reals = MU_TABLE_REALS;
    return mu_list(mu__text_value(table_of(store)), mu_tensor_new(MU_I64, 1, &n_ints, &o.dimension),
                   mu_tensor_new(MU_F64, 1, &n_reals, &o.scale), MU_END);
}

static void create_next(void)
{
    const int64_t n = MOST_UPDATES;
    const int store = n_created % now_running.n_servers;
    static const char *const methods[] = {"muster.variable.create", "muster.table.create", "muster.accumulator.create"};
    const subject target = n_created / now_running.n_servers;
    const int64_t about[] = {false, false, MU_F32, 1, MOST_UPDATES}, n_about = MU_COUNT(about);
    mu_value *arguments =
        target == ON_TABLE ? table_arguments(store)
        : target == ON_VARIABLE
            ? mu_list(mu__text_value(name_of(store)), mu_tensor_new(MU_F32, 1, &n, NULL), MU_END)
            : mu_list(mu__text_value(accumulator_of(store)), mu_tensor_new(MU_I64, 1, &n_about, about), MU_END);
    creating = mu__store_request_new(stores_of_coordinator, store, methods[target], arguments, 0);
}

// One variable, one table and one accumulator on each store, before workers begin; and, with snapshots, a first one.
static void create_variables(void)
{
    stores_run *r = &now_running;
    if (creating == NULL && n_created < N_SUBJECTS * r->n_servers && mu__placement_ready(r->placement))
        create_next();
    if (creating != NULL && mu__store_request_step(creating)) {
        mu__store_request_value(creating);
        if (mu__pending())
            run_fails("variable %d cannot be made: %s", n_created, mu_error_take().message);
        mu__store_request_free(creating);
        creating = NULL;
        n_created++;
    }
    if (!r->created && n_created == N_SUBJECTS * r->n_servers) {
        r->created = true;
        snapshots_before = r->numbers.snapshots;
    }
    r->ready = r->created && (!r->snapshots || r->numbers.snapshots > snapshots_before + 1);
}

void coordinator_run(void)
{
    stores_run *r = &now_running;
    world_enter(r->coordinator_process, r->coordinator_host);
    mu_pool *pool = mu_pool_open();
    int64_t due_ns = MU_FOREVER;
    for (int i = 0; i < r->n_servers; i++)
        mu__client_step(r->clients[i]);
    due_ns = MU_MIN(due_ns, mu__placement_step(r->placement));
    check_snapshots();
    if (!r->ready)
        create_variables();
    if (creating != NULL)
        due_ns = MU_MIN(due_ns, mu__store_request_due(creating));
    for (int i = 0; i < r->n_servers; i++)
        due_ns = MU_MIN(due_ns, mu__client_step(r->clients[i]));
    r->coordinator_due_ns = due_ns;
    if (mu__pending())
        run_fails("the coordinator left an error behind: %s", mu_error_take().message);
    mu_pool_close(pool);
}

void coordinator_kill(void)
{
    mu_error_value ignored;
    world_enter(now_running.coordinator_process, now_running.coordinator_host);
    world_note("the coordinator is killed");
    world_kill(now_running.coordinator_process);
    coordinator_end();
    mu__error_move(&ignored);
}

void coordinator_end(void)
{
    stores_run *r = &now_running;
    if (r->placement == NULL)
        return;
    world_enter(r->coordinator_process, r->coordinator_host);
    mu__store_request_free(creating);
    creating = NULL;
    mu_release(r->placement);
    mu_release(stores_of_coordinator);
    stores_of_coordinator = NULL;
    for (int i = 0; i < r->n_servers; i++)
        mu_release(r->clients[i]);
    r->placement = NULL;
}
