// Runs clusters of parameter servers in one thread, in a virtual world whose faults are drawn from a seed.
// seeds.h says how it is called. With --defect NAME a defect is planted: each seed must hold, so the program fails if
// the checker finds what was planted.
#include "stores.h"

#include "late.h"

#include "rpc/client/client.h"

#include <stdlib.h>

enum { MOST_ROUNDS = 20000, TWICE_EVERY = 50, LARGE_BYTES = 700 };
#define LIMIT_NS 400000000000

stores_run now_running;
#ifdef MU_PLANT_DEFECTS
mu_defect mu__planted;
#endif

// ---- The plan -----------------------------------------------------------------------------------

// Of ten seeds in a row six (1, 2, 5, 6, 7, 10, …) are what they were before there were other configurations, because
// the seeds that once failed are among them. The others have copies and snapshots, cuts of which a server hears late,
// connections that break, and divided clusters.
static void configure(stores_run *r)
{
    // In every second one of those with copies gradients and whole variables are large changes, others small ones.
    const bool large = r->seed / 10 % 2 == 0 && (r->seed % 10 == 3 || r->seed % 10 == 8);
    mu__large_change = large ? LARGE_BYTES : (size_t)4 << 20;
    switch (r->seed % 10) {
    case 3: r->replicas = r->snapshots = true; break;
    case 4:
        r->skews = r->snapshots = true;
        r->replicas = false;
        r->snapshot_s = 0.25;
        break;
    case 8:
        r->breaks = r->replicas = true;
        r->snapshots = false;
        break;
    case 9:
        r->divides = true;
        r->replicas = r->seed % 20 == 9;
        r->snapshots = !r->replicas;
        r->n_workers = MOST_WORKERS;
        break;
    default: break;
    }
}

static bool remakes(const stores_run *r) { return r->seed % 40 == 28; }

static void plan(stores_run *r)
{
    static const double most_s[] = {0.002, 0.02, 0.15};
    r->n_servers = 2 + (int)world_draw(MOST_SERVERS - 1);
    r->n_workers = 1 + (int)world_draw(MOST_WORKERS);
    r->replicas = world_chance(0.7);
    r->snapshots = !r->replicas;
    r->snapshot_s = 3;
    configure(r);
    r->heartbeat_s = 2;
    r->n_faults = 1 + (int)world_draw(4);
    snprintf(r->folder, sizeof r->folder, "%s", seeds_folder());
    const double longest_s = most_s[world_draw(MU_COUNT(most_s))];
    world_delays(0.0001,
                 r->breaks ? MU_MIN(longest_s, 0.005) : longest_s); // whoever is cut off connects before the next
    for (int i = 0; i < r->n_servers; i++)
        r->servers[i] = (server_task){.process = r->n_processes++, .host = i, .start_ns = world_now()};
    r->coordinator_host = MOST_SERVERS;
    r->coordinator_process = r->n_processes++;
    for (int i = 0; i < r->n_workers; i++)
        r->workers[i] = (worker_task){.process = r->n_processes++, .host = MOST_SERVERS + 1 + i, .number = i};
    r->strikes_ns = r->takes_over_ns = MU_FOREVER;
    r->division.store = -1;
    if (remakes(r))
        r->strikes_ns = world_now() + 4000000000; // until workers know the epochs of stores
}

static void begin(stores_run *r)
{
    plan(r);
    for (int i = 0; i < r->n_servers; i++)
        server_start(&r->servers[i]);
    coordinator_start();
    for (int i = 0; i < r->n_workers; i++)
        worker_start(&r->workers[i], MOST_UPDATES / MOST_WORKERS);
}

// ---- Faults -------------------------------------------------------------------------------------

void cut(int a, int b, int64_t until_ns, bool one_way)
{
    if (a == b)
        return;
    world_cut(a, b, until_ns);
    if (!one_way)
        world_cut(b, a, until_ns);
}

// From all, from the other servers and the coordinator, from the coordinator, or from one server.
static void cut_off(stores_run *r, int host, int64_t until_ns)
{
    const int how = (int)world_draw(4), other = (int)world_draw((uint64_t)r->n_servers);
    const bool one_way = world_chance(0.3);
    for (int i = 0; i < MOST_SERVERS + 1 + r->n_workers; i++) {
        const bool server = i < r->n_servers, coordinator = i == r->coordinator_host;
        if (how == 0 || (how == 1 && (server || coordinator)) || (how == 2 && coordinator) || (how == 3 && i == other))
            cut(host, i, until_ns, one_way);
    }
}

void kill_server(stores_run *r, server_task *s, int64_t start_ns)
{
    server_kill(s);
    s->process = r->n_processes++;
    s->start_ns = start_ns;
}

static void replace_worker(stores_run *r, worker_task *w)
{
    const int left = w->left;
    worker_kill(w);
    w->process = r->n_processes++;
    worker_start(w, left);
}

// ---- Messages that come late --------------------------------------------------------------------

static late_requests ghost;

// The order by which a server became, or stayed, primary.
static mu_value *order_of(const mu_store *store)
{
    const int64_t head[MU_N_LEAD] = {store->number,
                                     store->epoch,
                                     MU_ORDER_CONTINUE,
                                     0,
                                     (int64_t)mu__stores_process(store->stores),
                                     (int64_t)store->copy_process,
                                     0};
    return mu_list(mu__numbers_value(head, MU_N_LEAD),
                   mu__text_value(store->copy != NULL ? mu__client_address(store->copy) : ""), mu__text_value(""),
                   MU_END);
}

// Sends what it has to whoever has the server's address then.
static void ghost_goes(const server_task *s, const char *method)
{
    late_begin(&ghost, s->host, PORT, method);
    ghost.due_ns = world_now() + world_draw_ns(0.001, 0.1);
}

// The orders that a server has had come again, to the process that has its address now.
static void repeat_orders(stores_run *r, const server_task *s)
{
    mu_stores *stores = mu__stores_of(s->rpc);
    late_end(&ghost);
    mu_pool *pool = mu_pool_open();
    ghost.process = r->n_processes++;
    ghost.host = r->coordinator_host;
    for (size_t i = 0; i < stores->stores.n; i++)
        if (stores->stores.items[i]->role == MU_STORE_PRIMARY)
            late_add(&ghost, order_of(stores->stores.items[i]), world_now());
    if (ghost.n > 0)
        ghost_goes(s, "muster.store.lead");
    mu_pool_close(pool);
}

// Questions that a server, or an earlier process at its address, was asked long ago come late, one after the other.
// None confirms another of them: what it confirms was answered at the time.
static void repeat_questions(stores_run *r, const server_task *s, int host)
{
    const int64_t asked = mu__stores_of(s->rpc)->polls[1];
    late_end(&ghost);
    mu_pool *pool = mu_pool_open();
    ghost.process = r->n_processes++;
    ghost.host = host;
    for (int i = 0; i < MOST_LATE; i++) {
        const int64_t numbers[2] = {asked - 2 * MOST_LATE + 2 * i, asked - 2 * MOST_LATE + 2 * i - 1}, cut = 0;
        late_add(&ghost,
                 mu_list(mu__numbers_value(numbers, 2), mu__numbers_value(NULL, 0), mu__numbers_value(&cut, 1), MU_END),
                 world_now() + 1500000000 + i * (int64_t)400000000);
    }
    ghost_goes(s, "muster.store.state");
    mu_pool_close(pool);
}

static void ghost_run(void)
{
    world_enter(ghost.process, ghost.host);
    mu_pool *pool = mu_pool_open();
    mu_error_value ignored;
    const int64_t next_ns = late_send(&ghost);
    ghost.due_ns = MU_MIN(mu__client_step(ghost.client), next_ns);
    mu__error_move(&ignored);
    mu_pool_close(pool);
}

static void adopt(stores_run *r, server_task *s)
{
    repeat_orders(r, s);
    kill_server(r, s, world_now());
    r->coordinator_due_ns = MU_FOREVER; // it is stopped for a while
    server_start(s);
}

// What only some configurations have.
static fault other_fault(const stores_run *r, fault what)
{
    if (r->breaks || r->divides)
        return r->breaks ? FAULT_BREAK : FAULT_DIVIDE;
    const uint64_t draw = r->skews || (r->replicas && r->snapshots) ? world_draw(8) : 7;
    if (draw == 0 && r->coordinators == 0)
        return FAULT_COORDINATOR;
    if (draw < 4 && r->skews)
        return FAULT_SKEW;
    if (draw == 5 && r->replicas && r->snapshots && r->n_servers > 2)
        return FAULT_DIVIDE_PAIR;
    if (draw >= 3 && draw < 6 && r->replicas && r->snapshots)
        return FAULT_DISK;
    return draw < 3 && r->replicas ? FAULT_PAIR : what;
}

// A store and its copy.
static void kill_pair(stores_run *r, server_task *s, int64_t start_ns)
{
    r->pair_struck = true;
    kill_server(r, s, start_ns);
    kill_server(r, &r->servers[(s->host + 1) % r->n_servers], start_ns + world_draw_ns(0, 1));
}

// The order to make the next cut reaches a server late, and workers reach it meanwhile.
static void skew(stores_run *r, const server_task *s)
{
    r->doomed_from_ns = world_now() + world_draw_ns(0.5, 0.9);
    world_cut(r->coordinator_host, s->host, r->doomed_from_ns);
    r->doomed = &r->servers[(s->host + 1 + world_draw((uint64_t)r->n_servers - 1)) % (uint64_t)r->n_servers];
}

// When a snapshot is written after that.
static void strike_doomed(stores_run *r)
{
    if (r->doomed == NULL)
        return;
    if (world_now() < r->doomed_from_ns)
        r->doomed_after = r->numbers.snapshots;
    else if (r->numbers.snapshots > r->doomed_after) {
        kill_server(r, r->doomed, world_now() + world_draw_ns(0.1, 2));
        r->doomed = NULL;
    }
}

// What a server has done and not answered is asked again, as is what it has told its copy. In the middle of that it
// dies.
static void begin_breaking(stores_run *r, server_task *s, int64_t start_ns)
{
    const int64_t until_ns = world_now() + world_draw_ns(0.2, 1.2);
    r->breaking.server = s;
    r->breaking.held = world_chance(0.5);
    r->breaking.next_ns = world_now();
    r->breaking.until_ns = until_ns;
    r->breaking.start_ns = start_ns;
    for (int i = 0; i < r->n_servers && r->breaking.held; i++)
        cut(s->host, i, until_ns, true);
}

static void end_breaking(stores_run *r)
{
    server_task *s = r->breaking.server;
    for (int i = 0; i < r->n_servers; i++)
        if (i != s->host)
            world_break(s->host, i);
    kill_server(r, s, r->breaking.start_ns);
    r->breaking.server = NULL;
}

static void break_next(stores_run *r)
{
    server_task *s = r->breaking.server;
    if (s == NULL || world_now() < r->breaking.next_ns)
        return;
    r->breaking.next_ns = world_now() + world_draw_ns(0.01, 0.06);
    if (world_now() >= r->breaking.until_ns)
        end_breaking(r);
    else if (world_chance(0.05)) // the coordinator connects again, and replaces nobody
        world_break(s->host, r->coordinator_host);
    else if (r->breaking.held || world_chance(0.3))
        world_break(s->host, r->workers[world_draw((uint64_t)r->n_workers)].host);
    else
        world_break(s->host, (s->host + 1) % r->n_servers); // which has the copy of its store at first
}

server_task *leader_of(stores_run *r, int number)
{
    for (int i = 0; i < r->n_servers; i++) {
        const mu_store *store = r->servers[i].alive ? mu__store_find(mu__stores_of(r->servers[i].rpc), number) : NULL;
        if (store != NULL && store->role == MU_STORE_PRIMARY)
            return &r->servers[i];
    }
    return NULL;
}

// In every second division by a firewall that answers with resets, as hosts do whose processes have died.
static void divide_hosts(const stores_run *r, int a, int b)
{
    if (r->division.rejects && a != b)
        world_reject(a, b, r->division.until_ns);
    else
        cut(a, b, r->division.until_ns, false);
}

// A store's server and worker 0 on one side, everybody else on the other. Servers are cut off a little later, so that
// the copy has what the server was asked until then, and nothing keeps it from answering but its lease.
static void divide(stores_run *r, int64_t until_ns)
{
    const int store = (int)world_draw((uint64_t)r->n_servers), reader = r->workers[0].host;
    server_task *s = leader_of(r, store);
    if (s == NULL)
        return;
    r->division.store = store;
    r->division.server = s;
    r->division.until_ns = until_ns;
    r->division.closed = false;
    r->division.closes = r->seed % 80 == 49;
    r->division.silent = r->seed % 40 == 9;
    r->division.rejects = r->seed % 40 >= 20 || r->division.silent;
    r->division.next_ns = world_now() + (r->division.rejects ? world_draw_ns(0.5, 0.9) : world_draw_ns(0.2, 0.5));
    divide_hosts(r, s->host, r->coordinator_host);
    for (int i = 1; i < r->n_workers; i++)
        divide_hosts(r, s->host, r->workers[i].host);
    for (int i = 0; i < r->n_servers; i++)
        if (i != s->host)
            divide_hosts(r, reader, i);
    repeat_questions(r, s, reader);
}

// The server has no memory for what its copies say, and closes the connections to them. It is not dead.
static void close_links(const stores_run *r, server_task *s)
{
    mu_stores *stores = mu__stores_of(s->rpc);
    if (!s->alive)
        return;
    world_enter(s->process, s->host);
    world_note("server %d closes its connections to copies (of %d servers)", s->host, r->n_servers);
    for (size_t i = 0; i < stores->stores.n; i++)
        if (stores->stores.items[i]->copy != NULL)
            mu__session_lost(&stores->stores.items[i]->copy->node, 0, "no memory here for what it sent");
}

static void follow_division(stores_run *r)
{
    if (r->division.store < 0 || world_now() < r->division.next_ns)
        return;
    if (!r->division.closed && r->division.closes)
        close_links(r, r->division.server);
    for (int i = 0; i < r->n_servers && !r->division.closed; i++)
        if (r->division.silent)
            cut(r->division.server->host, i, r->division.until_ns, false);
        else
            divide_hosts(r, r->division.server->host, i);
    r->division.store = r->division.closed ? -1 : r->division.store;
    r->division.closed = true;
    r->division.next_ns = r->division.until_ns;
}

// Workers ask servers for a while longer, until these hear of it or the next one comes.
static void lose_coordinator(stores_run *r)
{
    coordinator_kill();
    late_end(&ghost);
    r->coordinators++;
    r->takes_over_ns = world_now() + world_draw_ns(0.01, 6);
    r->coordinator_due_ns = MU_FOREVER;
    r->created = r->ready = false;
}

static void take_over(stores_run *r)
{
    if (world_now() < r->takes_over_ns)
        return;
    r->takes_over_ns = MU_FOREVER;
    r->coordinator_process = r->n_processes++;
    for (int i = 0; i < r->n_workers; i++)
        replace_worker(r, &r->workers[i]);
    check_earlier(); // whatever was made is as if it had not been
    coordinator_start();
}

// A store's server, the one with its copy and worker 0, which changes what they have, on one side. The coordinator is
// on the other, and gives the store to a third server, as the last snapshot has it.
static void divide_pair(stores_run *r, int64_t until_ns)
{
    const int store = (int)world_draw((uint64_t)r->n_servers);
    server_task *s = leader_of(r, store), *other = NULL;
    for (int i = 0; i < r->n_servers; i++) {
        const mu_store *kept = r->servers[i].alive ? mu__store_find(mu__stores_of(r->servers[i].rpc), store) : NULL;
        other = kept != NULL && kept->role == MU_STORE_COPY ? &r->servers[i] : other;
    }
    if (s == NULL || other == NULL)
        return;
    const int here[] = {s->host, other->host, r->workers[0].host};
    for (int i = 0; i < MOST_SERVERS + 1 + r->n_workers; i++)
        for (int k = 0; k < 3 && i != here[0] && i != here[1] && i != here[2]; k++)
            cut(here[k], i, until_ns, false);
    r->pair_struck = true;
    r->division.store = store;
    r->division.server = s;
    r->division.closed = true;
    r->division.next_ns = r->division.until_ns = until_ns;
}

bool may_strike(const stores_run *r) { return r->placement != NULL && mu__placement_ready(r->placement); }

// Whether the coordinator has noticed which servers have died: until then all seems to be ready.
bool is_noticed(const stores_run *r)
{
    for (int i = 0; i < r->n_servers; i++) {
        const server_task *s = &r->servers[i];
        if (!s->alive || mu_rpc_client_server(r->clients[i]) != mu__stores_process(mu__stores_of(s->rpc)))
            return false;
    }
    return true;
}

static int64_t coordinator_sleeps_ns;

static void strike(stores_run *r)
{
    fault what = (fault)world_draw(N_FAULTS);
    server_task *s = &r->servers[world_draw((uint64_t)r->n_servers)];
    worker_task *w = &r->workers[world_draw((uint64_t)r->n_workers)];
    const int64_t until_ns = world_now() + (r->divides ? world_draw_ns(4.5, 6) : world_draw_ns(0.2, 6));
    if (what == FAULT_DISK && !r->snapshots)
        what = FAULT_KILL;
    what = other_fault(r, what);
    world_note("fault %d at server %d or worker %d until %.6f", what, s->host, w->number, (double)until_ns / 1e9 - 1);
    switch (what) {
    case FAULT_KILL: kill_server(r, s, until_ns); break;
    case FAULT_STOP: s->paused_ns = until_ns; break;
    case FAULT_CUT: cut_off(r, s->host, until_ns); break;
    case FAULT_WORKER: replace_worker(r, w); break;
    case FAULT_DISK: world_fill_disks(until_ns + world_draw_ns(0, 6)); break;
    case FAULT_PAIR: kill_pair(r, s, until_ns); break;
    case FAULT_SKEW: skew(r, s); break;
    case FAULT_COORDINATOR: lose_coordinator(r); break;
    case FAULT_BREAK:
        if (remakes(r))
            begin_remaking(r, w);
        else
            begin_breaking(r, s, until_ns);
        break;
    case FAULT_DIVIDE: divide(r, until_ns); break;
    case FAULT_DIVIDE_PAIR: divide_pair(r, world_now() + world_draw_ns(4, 8)); break;
    default:
        adopt(r, s);
        coordinator_sleeps_ns = world_now() + world_draw_ns(0.1, 1.5);
        break;
    }
    r->n_faults--;
    r->strikes_ns = until_ns + (r->divides ? world_draw_ns(1, 3) : world_draw_ns(4, 8)); // what it sets off is over
}

// Faults come one at a time: while a store has no complete copy, or no snapshot is there, none does.
static int64_t strike_due(const stores_run *r)
{
    if (r->n_faults == 0 || !r->ready || r->doomed != NULL || r->breaking.server != NULL ||
        r->remaking.server != NULL || r->takes_over_ns < MU_FOREVER)
        return MU_FOREVER;
    return r->strikes_ns == MU_FOREVER ? world_now() : r->strikes_ns;
}

// ---- Playing ------------------------------------------------------------------------------------

static void run_servers(stores_run *r, const bool *ready, bool *any)
{
    for (int i = 0; i < r->n_servers; i++) {
        server_task *s = &r->servers[i];
        if (!s->alive && world_now() >= s->start_ns) {
            server_start(s);
            *any = true;
        } else if (s->alive && world_now() >= s->paused_ns && (s->due_ns <= world_now() || ready[s->process])) {
            server_run(s);
            *any = true;
        }
    }
}

static void run_workers(stores_run *r, const bool *ready, bool *any)
{
    for (int i = 0; i < r->n_workers; i++) {
        worker_task *w = &r->workers[i];
        if (w->due_ns <= world_now() || ready[w->process]) {
            worker_run(w);
            *any = true;
        }
    }
}

static bool play_round(stores_run *r)
{
    bool ready[MOST_PROCESSES], any = false;
    world_ready(ready, MOST_PROCESSES);
    const bool servers_first = world_chance(0.5);
    if (servers_first)
        run_servers(r, ready, &any);
    if (r->placement != NULL && world_now() >= coordinator_sleeps_ns &&
        (r->coordinator_due_ns <= world_now() || coordinator_sleeps_ns > 0 || ready[r->coordinator_process])) {
        coordinator_sleeps_ns = 0;
        coordinator_run();
        any = true;
    }
    if (ghost.n > 0 && (ghost.due_ns <= world_now() || ready[ghost.process])) {
        ghost_run();
        any = true;
    }
    run_workers(r, ready, &any);
    if (!servers_first)
        run_servers(r, ready, &any);
    return any;
}

static int64_t next_event(const stores_run *r)
{
    int64_t next = MU_MIN(world_next(), ghost.due_ns);
    for (int i = 0; i < r->n_servers; i++) {
        const server_task *s = &r->servers[i];
        next = MU_MIN(next, s->alive ? MU_MAX(s->due_ns, s->paused_ns) : s->start_ns);
    }
    for (int i = 0; i < r->n_workers; i++)
        next = MU_MIN(next, r->workers[i].due_ns);
    next = MU_MIN(next, r->takes_over_ns);
    if (r->doomed != NULL && r->doomed_from_ns > world_now())
        next = MU_MIN(next, r->doomed_from_ns);
    if (r->breaking.server != NULL)
        next = MU_MIN(next, r->breaking.next_ns);
    if (r->remaking.server != NULL)
        next = MU_MIN(next, r->remaking.copy_due_ns);
    if (r->division.store >= 0)
        next = MU_MIN(next, r->division.next_ns);
    const int64_t strikes_ns = strike_due(r);
    if (strikes_ns > world_now())
        next = MU_MIN(next, strikes_ns);
    return MU_MIN(next, coordinator_sleeps_ns > 0 ? coordinator_sleeps_ns : r->coordinator_due_ns);
}

static bool is_over(const stores_run *r)
{
    for (int i = 0; i < r->n_workers; i++)
        if (r->workers[i].left > 0 || r->workers[i].request != NULL)
            return false;
    return r->doomed == NULL && r->breaking.server == NULL && r->remaking.server == NULL && r->division.store < 0 &&
           may_strike(r) && is_noticed(r);
}

static void play(stores_run *r)
{
    int rounds = 0;
    while (!is_over(r) && !run_failed()) {
        if (strike_due(r) <= world_now() && may_strike(r)) {
            strike(r);
            continue;
        }
        take_over(r);
        strike_doomed(r);
        break_next(r);
        remake_next(r);
        follow_division(r);
        if (play_round(r)) {
            if (++rounds > MOST_ROUNDS)
                run_fails("the tasks are busy without an end");
            continue;
        }
        const int64_t next = MU_MIN(next_event(r), LIMIT_NS + 1);
        if (next > LIMIT_NS)
            run_fails("nothing happens any more, or not all updates were done in %.0f s", LIMIT_NS / 1e9);
        else if (next > world_now())
            rounds = 0;
        else if (++rounds > MOST_ROUNDS)
            run_fails("a task is due, and does nothing");
        world_advance(next);
    }
}

static void read_last(stores_run *r, worker_task *w, int store, subject target)
{
    world_enter(w->process, w->host);
    mu_pool *pool = mu_pool_open();
    mu_store_request *request = worker_reads(w, store, target, 1, 0.5);
    for (int rounds = 0; rounds < MOST_ROUNDS && !run_failed(); rounds++) {
        world_enter(w->process, w->host);
        for (int i = 0; i < r->n_servers; i++)
            mu__client_step(w->clients[i]);
        if (mu__store_request_step(request))
            break;
        w->due_ns = MU_MIN(w->due_ns, mu__store_request_due(request));
        if (!play_round(r))
            world_advance(MU_MIN(next_event(r), world_now() + 10000000));
    }
    world_enter(w->process, w->host);
    mu_value *value = mu__store_request_value(request);
    if (!run_failed() && (target != ON_ACCUMULATOR || mu_error_code() != MU_DEADLINE_EXCEEDED)) // it has none left
        check_end(store, target, value);
    mu__store_request_free(request);
    mu_error_take();
    mu_pool_close(pool);
}

// A last reading of every store, when all is quiet.
static void read_all(stores_run *r)
{
    for (int i = 0; i < N_SUBJECTS * r->n_servers && !run_failed(); i++)
        read_last(r, &r->workers[0], i / N_SUBJECTS, (subject)(i % N_SUBJECTS));
    if (!run_failed())
        check_taken();
    if (!run_failed())
        check_causes();
}

static void check_open(int process)
{
    if (world_count_open(process) > 0)
        run_fails("process %d left %d descriptors open", process, world_count_open(process));
}

static void end(stores_run *r)
{
    late_end(&ghost);
    for (int i = 0; i < r->n_workers; i++)
        worker_kill(&r->workers[i]);
    coordinator_end();
    for (int i = 0; i < r->n_servers; i++)
        server_kill(&r->servers[i]);
    for (int i = 0; i < r->n_processes; i++)
        check_open(i);
}

static uint64_t run_seed(uint64_t seed, bool print)
{
    static const char *const kept[] = {"nothing", "copies", "snapshots", "copies and snapshots"};
    stores_run *r = &now_running;
    *r = (stores_run){.seed = seed};
    coordinator_sleeps_ns = 0;
    world_begin(seed, print);
    ghost.due_ns = MU_FOREVER;
    begin(r);
    play(r);
    if (!run_failed())
        read_all(r);
    if (print)
        printf("seed %llu: %d servers, %d workers, %s, %d updates, %d readings, of which %d takes (%d waited), %lld "
               "failovers, %lld restores, %lld snapshots, %lld failed, %lld updates lost\n",
               (unsigned long long)seed, r->n_servers, r->n_workers, kept[r->replicas + 2 * r->snapshots], r->n_updates,
               r->n_readings, r->n_takes, r->n_waits, (long long)r->numbers.failovers, (long long)r->numbers.restores,
               (long long)r->numbers.snapshots, (long long)r->numbers.failed_snapshots,
               (long long)r->numbers.updates_lost);
    end(r);
    const uint64_t hash = world_hash();
    world_end();
    return hash;
}

// ---- The program --------------------------------------------------------------------------------

static const char *about(void)
{
    static char text[40];
    snprintf(text, sizeof text, "at %.6f", (double)world_now() / 1e9 - 1);
    return text;
}

static bool plant(const char *name)
{
#ifdef MU_PLANT_DEFECTS
    static const char *const names[] = {"none",    "early",  "twice", "stale", "snapshot", "life",    "cut",
                                        "forgets", "part",   "again", "lease", "question", "repeats", "reset",
                                        "word",    "unsent", "link",  "seen",  "take"};
    for (int i = 0; name != NULL && i < (int)MU_COUNT(names); i++)
        if (strcmp(names[i], name) == 0) {
            mu__planted = (mu_defect)i;
            return true;
        }
#endif
    return name == NULL;
}

int main(int argc, char **argv)
{
    static const simulation stores = {
        .name = "stores_simulator",
        .options = " [--defect early | twice | stale | snapshot | life | cut | forgets | part | again | lease | "
                   "question | repeats | reset | word | unsent | link | seen | take]",
        .twice_every = TWICE_EVERY,
        .play = run_seed,
        .about = about};
    setenv("MUSTER_LOG", seeds_option(argc, argv, "--seed") != NULL ? "debug" : "error", 1);
    setenv("MUSTER_HEARTBEAT", "2", 1);
    setenv("MUSTER_TIMEOUT", "300", 1);
    setenv("MUSTER_ALLOW_UNAUTHENTICATED", "1", 1);
    unsetenv("MUSTER_CLUSTER_KEY");
    if (mu_init(.cpu_devices = 1) != MU_OK || !plant(seeds_option(argc, argv, "--defect"))) {
        fprintf(stderr, "stores_simulator: the library does not begin, or there is no such defect in this build\n");
        return 2;
    }
    return seeds_play(&stores, argc, argv);
}
