// Runs clusters with a coordinator, workers and parameter servers in a virtual world whose faults are drawn from a
// seed. seeds.h says how it is called. With --defect NAME a defect is planted: each seed must hold, so the program
// fails if the checker finds what was planted.
#include "steps.h"

#include "base/planted.h"

#include <stdlib.h>
#include <unistd.h>

enum { TWICE_EVERY = 20, MOST_EVENTS = 2000000 };
#ifdef MU_PLANT_DEFECTS
mu_defect mu__planted;
#endif
#define LIMIT_NS     3000000000000
#define END_LIMIT_NS 600000000000

// FAULT_SERVER: a server dies, where variables have copies or snapshots. FAULT_DISK: all disks are full. The others
// strike workers and servers, or workers alone.
typedef enum fault { FAULT_KILL, FAULT_STOP, FAULT_CUT, FAULT_BREAK, FAULT_SERVER, FAULT_DISK } fault;

// ---- Processes --------------------------------------------------------------------------------------

static mu_cluster *cluster_of_task(const steps_task *t)
{
    char text[100];
    snprintf(text, sizeof text, "{\"local\": [\"10.0.0.%d:%d\"]}", t->host + 1, STEP_PORT);
    return mu_simple_cluster_resolver(mu_cluster_spec_parse(text));
}

static void serve(void *arg)
{
    steps_task *t = arg;
    mu_pool *pool = mu_pool_open();
    mu_server *server = mu_server_new(cluster_of_task(t));
    if (server == NULL)
        run_fails("the task at host %d cannot start: %s", t->host, mu_error_take().message);
    t->server = mu_retain(server);
    mu_pool_close(pool);
}

static int new_process(steps_task *t)
{
    steps_run_state *r = &steps_now;
    r->lives[r->n_processes] = (life){.task = t};
    return r->n_processes++;
}

static void start_task(steps_task *t)
{
    t->process = new_process(t);
    t->alive = true;
    t->start_ns = MU_FOREVER;
    world_enter(t->process, t->host);
    world_note("%s %d starts as process %d", t->worker ? "worker" : "server", t->index, t->process);
    threads_start(t->process, t->host, serve, t);
}

static void end_server(void *arg)
{
    life *l = arg;
    mu_server_stop(l->server);
    mu_release(l->server);
    l->server = NULL;
    mu_error_take();
    threads_end_devices();
}

// What the process does from then on reaches nobody.
static void end_task(steps_task *t, bool killed)
{
    life *l = &steps_now.lives[t->process];
    if (!t->alive || t->server == NULL)
        return;
    world_enter(t->process, t->host);
    world_note("%s %d %s", t->worker ? "worker" : "server", t->index, killed ? "is killed" : "ends");
    if (killed)
        world_kill(t->process);
    threads_pause(t->process, 0);
    l->dead = true;
    l->server = t->server;
    t->server = NULL;
    t->alive = false;
    threads_start(t->process, t->host, end_server, l);
}

// ---- The plan -----------------------------------------------------------------------------------------

static bool writes_files(const steps_run_state *r) { return r->snapshot_s > 0 || r->saves; }

static void plan(steps_run_state *r)
{
    static const double most_s[] = {0.001, 0.01, 0.1};
    r->n_workers = 1 + (int)world_draw(MOST_STEP_WORKERS);
    r->only_kills = r->seed % 2 == 1;
    r->replicas = world_chance(0.3);
    r->snapshot_s = world_chance(0.5) ? (double)world_draw_ns(0.4, 3) / 1e9 : 0;
    r->saves = world_chance(0.4);
    r->most_doubles = world_chance(0.5) ? 1 + (int)world_draw(MOST_DOUBLES) : 0;
    r->timeouts_ignored = (int)world_draw(4);
    r->ps_failures_ignored = (int)world_draw(5);
    r->n_rounds = 3 + (int)world_draw(6);
    r->n_faults = (int)world_draw(6) + 2 * writes_files(r);
    r->strikes_ns = MU_FOREVER; // until there is a coordinator
    r->server_ns = -30000000000;
    world_delays(0.0001, most_s[world_draw(MU_COUNT(most_s))]);
    for (int i = 0; i < STEP_SERVERS; i++)
        r->servers[i] = (steps_task){.index = i, .host = i, .start_ns = MU_FOREVER};
    r->coordinator_host = STEP_SERVERS;
    r->coordinator_process = new_process(NULL);
    for (int i = 0; i < r->n_workers; i++)
        r->workers[i] = (steps_task){
            .worker = true, .index = i, .host = STEP_SERVERS + 1 + i, .start_ns = world_now() + world_draw_ns(0, 2)};
}

// ---- Faults ---------------------------------------------------------------------------------------------

static void disturb(steps_run_state *r, int process)
{
    r->disturbed = true;
    r->lives[process].disturbed = true;
}

static void cut(int a, int b, int64_t until_ns)
{
    const int way = (int)world_draw(3);
    if (way != 1)
        world_cut(a, b, until_ns);
    if (way != 0)
        world_cut(b, a, until_ns);
}

// The copies are complete again if nothing has happened to a server for long.
static bool is_recovered(const steps_run_state *r) { return world_now() > r->server_ns + 20000000000; }

static bool may_lose_server(const steps_run_state *r)
{
    return r->round > 0 && (r->recovery.snapshots > 0 || (r->replicas > 0 && is_recovered(r)));
}

static fault draw_fault(const steps_run_state *r)
{
    if (writes_files(r) && world_chance(0.3))
        return FAULT_DISK;
    if (r->only_kills)
        return FAULT_KILL;
    return may_lose_server(r) && world_chance(0.5) ? FAULT_SERVER : (fault)world_draw(FAULT_SERVER);
}

// A fault that is about a server, until a time.
static void note_server(steps_run_state *r, int64_t until_ns)
{
    r->crowded |= !is_recovered(r);
    r->server_ns = MU_MAX(r->server_ns, until_ns);
}

static void fill_disks(steps_run_state *r, int64_t until_ns)
{
    world_fill_disks(until_ns);
    r->full_ns = until_ns;
}

static void strike(steps_run_state *r)
{
    steps_task *w = &r->workers[world_draw((uint64_t)r->n_workers)], *s = &r->servers[world_draw(STEP_SERVERS)];
    const fault what = draw_fault(r);
    const int64_t until_ns = world_now() + world_draw_ns(0.2, 6);
    steps_task *struck = what == FAULT_KILL || (what != FAULT_SERVER && world_chance(0.6)) ? w : s;
    const int other = world_chance(0.5) ? r->coordinator_host : s->host;
    r->n_faults--;
    r->strikes_ns = until_ns + world_draw_ns(0.1, 4);
    if (what == FAULT_DISK)
        fill_disks(r, until_ns);
    if (what == FAULT_DISK || !struck->alive || struck->server == NULL)
        return;
    world_note("fault %d at host %d until %.6f", what, struck->host, (double)until_ns / 1e9 - 1);
    if (what != FAULT_KILL)
        disturb(r, struck->process);
    if (!struck->worker || (what == FAULT_CUT && other != r->coordinator_host))
        note_server(r, until_ns);
    switch (what) {
    case FAULT_KILL:
        end_task(struck, true);
        struck->start_ns = world_chance(0.2) ? world_now() + world_draw_ns(20, 60) : until_ns;
        break;
    case FAULT_SERVER:
        end_task(struck, true);
        struck->start_ns = until_ns;
        break;
    case FAULT_STOP: threads_pause(struck->process, until_ns); break;
    case FAULT_CUT: cut(struck->host, other == struck->host ? r->coordinator_host : other, until_ns); break;
    default:
        if (other != struck->host)
            world_break(struck->host, other);
        break;
    }
}

// ---- Playing ----------------------------------------------------------------------------------------------

static int64_t next_change(const steps_run_state *r)
{
    int64_t next = r->n_faults > 0 ? r->strikes_ns : MU_FOREVER;
    for (int i = 0; i < r->n_workers; i++)
        next = MU_MIN(next, r->workers[i].start_ns);
    for (int i = 0; i < STEP_SERVERS; i++)
        next = MU_MIN(next, r->servers[i].start_ns);
    for (int i = 0; i < r->n_doubles; i++)
        next = MU_MIN(next, r->doubles[i].at_ns);
    return next;
}

static void send_doubles(steps_run_state *r)
{
    for (int i = 0; i < r->n_doubles; i++) {
        doubled *d = &r->doubles[i];
        if (world_now() < d->at_ns)
            continue;
        d->at_ns = MU_FOREVER;
        d->process = new_process(NULL);
        threads_start(d->process, r->coordinator_host, doubles_send, d);
    }
}

static void change(steps_run_state *r)
{
    send_doubles(r);
    for (int i = 0; i < r->n_workers; i++)
        if (world_now() >= r->workers[i].start_ns)
            start_task(&r->workers[i]);
    for (int i = 0; i < STEP_SERVERS; i++)
        if (world_now() >= r->servers[i].start_ns)
            start_task(&r->servers[i]);
    if (r->n_faults > 0 && world_now() >= r->strikes_ns)
        strike(r);
}

static void begin(steps_run_state *r)
{
    plan(r);
    for (int i = 0; i < STEP_SERVERS; i++)
        start_task(&r->servers[i]);
    threads_start(r->coordinator_process, r->coordinator_host, steps_program, NULL);
}

static void stuck(const char *what)
{
    run_fails("%s", what);
    fflush(stdout); // without the last line of seeds.c: a program that hangs does not prove that the checker finds it
    _exit(1);       // its threads wait for ever
}

static void play(steps_run_state *r)
{
    for (int events = 0; !r->over; events++) {
        change(r);
        const int64_t until_ns = MU_MIN(next_change(r), LIMIT_NS + 1);
        if (world_now() > LIMIT_NS)
            stuck("the program has not ended in virtual time");
        if (events > MOST_EVENTS)
            stuck("the tasks are busy without an end");
        threads_step(until_ns);
    }
}

static int threads_left(const steps_run_state *r)
{
    int n = 0;
    for (int i = 0; i < r->n_processes; i++)
        n += threads_count(i);
    return n;
}

static void end(steps_run_state *r)
{
    const int64_t until_ns = world_now() + END_LIMIT_NS;
    for (int i = 0; i < STEP_SERVERS + r->n_workers; i++) {
        steps_task *t = i < STEP_SERVERS ? &r->servers[i] : &r->workers[i - STEP_SERVERS];
        while (t->alive && t->server == NULL && threads_step(until_ns))
            ; // it has just begun
        end_task(t, false);
    }
    while (threads_left(r) > 0 && world_now() < until_ns)
        threads_step(until_ns);
    if (threads_left(r) > 0)
        stuck("a process does not end");
    for (int i = 0; i < r->n_processes; i++)
        if (world_count_open(i) > 0)
            run_fails("process %d left %d descriptors open", i, world_count_open(i));
}

static uint64_t run_seed(uint64_t seed, bool print)
{
    steps_run_state *r = &steps_now;
    *r = (steps_run_state){.seed = seed};
    world_begin(seed, print);
    threads_begin();
    begin(r);
    play(r);
    if (print)
        printf("seed %llu: %d workers, %d steps in %d rounds, %d runs again, %d errors raised, %d steps cancelled, %d "
               "processes, %d requests twice, %lld snapshots (%lld failed), %lld restores, %lld failovers, %d "
               "checkpoints, %d updates lost, %.1f s\n",
               (unsigned long long)seed, r->n_workers, r->n_steps, r->round, r->n_again, r->n_errors, r->n_cancelled,
               r->n_processes, r->n_doubles, (long long)r->recovery.snapshots, (long long)r->recovery.failed_snapshots,
               (long long)r->recovery.restores, (long long)r->recovery.failovers, r->n_saved, r->n_lost,
               (double)world_now() / 1e9 - 1);
    const uint64_t hash = world_hash();
    end(r);
    doubles_end();
    threads_end();
    world_end();
    return hash;
}

static bool plant(const char *name)
{
#ifdef MU_PLANT_DEFECTS
    static const struct {
        const char *name;
        mu_defect defect;
    } defects[] = {{"lost", MU_DEFECT_LOST_STEP},         {"retried", MU_DEFECT_RETRIED_ERROR},
                   {"early", MU_DEFECT_EARLY_ERROR},      {"uncancelled", MU_DEFECT_NOT_CANCELLED},
                   {"again", MU_DEFECT_ERROR_TWICE},      {"values", MU_DEFECT_LOST_VALUES},
                   {"doubled", MU_DEFECT_DOUBLED_RUN},    {"half", MU_DEFECT_HALF_FILE},
                   {"snapshot", MU_DEFECT_LOST_SNAPSHOT}, {"part", MU_DEFECT_PART_OF_SNAPSHOT},
                   {"twice", MU_DEFECT_LOST_TWICE}};
    for (size_t i = 0; name != NULL && i < MU_COUNT(defects); i++)
        if (strcmp(defects[i].name, name) == 0) {
            mu__planted = defects[i].defect;
            return true;
        }
#endif
    return name == NULL;
}

static const char *about(void)
{
    static char text[40];
    snprintf(text, sizeof text, "at %.6f", (double)world_now() / 1e9 - 1);
    return text;
}

int main(int argc, char **argv)
{
    static const simulation steps = {.name = "steps_simulator",
                                     .options = " [--defect lost | retried | early | uncancelled | again | values | "
                                                "doubled | half | snapshot | part | twice]",
                                     .twice_every = TWICE_EVERY,
                                     .play = run_seed,
                                     .about = about};
    setenv("MUSTER_LOG", seeds_option(argc, argv, "--seed") != NULL ? "debug" : "error", 1);
    setenv("MUSTER_HEARTBEAT", "2", 1);
    setenv("MUSTER_TIMEOUT", "300", 1);
    setenv("MUSTER_THREADS", "1", 1);
    setenv("MUSTER_ALLOW_UNAUTHENTICATED", "1", 1);
    unsetenv("MUSTER_CLUSTER_KEY");
    if (!plant(seeds_option(argc, argv, "--defect")) || mu_init(.cpu_devices = 1) != MU_OK ||
        steps_register_op() != MU_OK) {
        fprintf(stderr, "steps_simulator: %s\n", mu_error_message());
        return 2;
    }
    return seeds_play(&steps, argc, argv);
}
