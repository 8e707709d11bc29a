// Draws a run from its seed, and lets its fault happen.
#include "run.h"

#define FIRST_PORT  5000
#define CLUSTER_KEY "7c1b0e5fa29d4368b1e07f4c5d82a6930f6e1d2c3b4a59687786958a4b3c2d1e"

const char *fault_name(fault what)
{
    static const char *names[N_FAULTS] = {"none", "absent", "kill",      "dark", "restart",
                                          "cut",  "slow",   "strangers", "twin"};
    return names[what];
}

static int64_t at_s(double seconds) { return (int64_t)((seconds + 1) * 1e9); } // the clock begins at one second

static void plan_network(run *r)
{
    static const double most_s[] = {0.001, 0.02, 0.2};
    r->most_delay_s = most_s[world_draw(MU_COUNT(most_s))];
    world_delays(0.0001, r->most_delay_s);
    // Names that are slow, or not known for the first seconds.
    world_names(world_chance(0.2) ? 2 : 0.05, world_chance(0.2) ? at_s(3) : 0);
}

static void plan_tasks(run *r)
{
    const int per_host = 1 + (int)world_draw(3);
    const bool learned = world_chance(0.2);
    const double spread_s = world_chance(0.5) ? 0.1 : 5;
    for (int rank = 0; rank < r->n_tasks; rank++) {
        const int host = rank / per_host;
        snprintf(r->addresses[rank], sizeof r->addresses[rank], "host%d:%d", host, FIRST_PORT + rank);
        r->peers[rank] =
            (mu_mesh_peer){.name = task_name(rank), .address = learned && rank > 0 ? "" : r->addresses[rank]};
        r->tasks[rank] = (task){.process = rank,
                                .host = host,
                                .rank = rank,
                                .n_exchanges = 2 + (int)world_draw(4),
                                .start_ns = world_now() + world_draw_ns(0, spread_s),
                                .linger_ns = world_draw_ns(0, 3)};
        r->tasks[rank].options = (mu_mesh_options){.rank = rank,
                                                   .ranks = r->n_tasks,
                                                   .peers = r->peers,
                                                   .key = CLUSTER_KEY,
                                                   .plain = true,
                                                   .join_seconds = r->join_s,
                                                   .heartbeat_seconds = r->heartbeat_s,
                                                   .greeting = "the same"};
    }
    // All run the same program.
    for (int rank = 1; rank < r->n_tasks; rank++)
        r->tasks[rank].n_exchanges = r->tasks[0].n_exchanges;
}

// After one task has started alone, the others wait for it: the job cannot begin before.
static void delay_one_start(run *r, double seconds)
{
    const int late = (r->victim + 1) % r->n_tasks;
    r->tasks[late].start_ns = at_s(seconds);
}

static void plan_twin(run *r)
{
    task *twin = &r->tasks[r->n_processes];
    *twin = r->tasks[r->victim];
    twin->process = r->n_processes++;
    twin->host = MOST_HOSTS - 1;
    twin->start_ns = at_s(world_chance(0.5) ? 0.5 : 8);
    r->strikes_ns = MU_FOREVER;
}

static void plan_fault(run *r)
{
    r->victim = (int)world_draw((uint64_t)r->n_tasks);
    r->other = world_chance(0.5) ? -1 : (r->victim + 1 + (int)world_draw((uint64_t)r->n_tasks - 1)) % r->n_tasks;
    r->one_way = world_chance(0.5);
    r->strikes_ns = at_s(0) + world_draw_ns(0, 12);
    r->until_ns = r->strikes_ns + world_draw_ns(0.1, world_chance(0.5) ? 1 : 3 * r->heartbeat_s);
    switch (r->fault) {
    case FAULT_ABSENT:
        r->tasks[r->victim].start_ns = MU_FOREVER;
        if (r->other >= 0)
            r->tasks[r->other].start_ns = MU_FOREVER;
        break;
    case FAULT_RESTART:
        delay_one_start(r, 8);
        r->strikes_ns = at_s(0) + world_draw_ns(0, 4);
        break;
    case FAULT_TWIN: plan_twin(r); break;
    default: break;
    }
}

// All run the same program, the twin and the restarted one too.
static void plan_streams(run *r)
{
    const int n_streams = (int)world_draw(3);
    for (int i = 0; i < r->n_processes; i++)
        r->tasks[i].n_streams = MU_MIN(n_streams, r->n_tasks - 1);
}

void plan_run(run *r)
{
    static const double heartbeats_s[] = {2, 5, 10};
    r->fault = (fault)(r->seed % N_FAULTS);
    r->n_tasks = r->n_processes = world_chance(0.7) ? MOST_TASKS : 2 + (int)world_draw(MOST_TASKS - 2);
    r->heartbeat_s = heartbeats_s[world_draw(MU_COUNT(heartbeats_s))];
    r->join_s = 40;
    plan_network(r);
    plan_tasks(r);
    plan_fault(r);
    plan_streams(r);
    world_note("%d tasks, heartbeat %g s, delays to %g s, fault %s of task %d, %s", r->n_tasks, r->heartbeat_s,
               r->most_delay_s, fault_name(r->fault), r->victim, r->other < 0 ? "all" : task_name(r->other));
}

static bool all_have_joined(const run *r)
{
    for (int i = 0; i < r->n_tasks; i++)
        if (!r->tasks[i].joined)
            return false;
    return true;
}

static void cut(const run *r, int a, int b)
{
    if (a == b)
        return;
    world_cut(a, b, r->until_ns);
    if (!r->one_way)
        world_cut(b, a, r->until_ns);
}

static void cut_off(const run *r)
{
    const int from = r->tasks[r->victim].host;
    for (int i = 0; i < r->n_tasks; i++)
        if (r->other < 0 || r->other == i)
            cut(r, from, r->tasks[i].host);
}

// A dark host stops all its processes at once.
static void go_dark(run *r)
{
    const int host = r->tasks[r->victim].host;
    world_darken(host);
    for (int i = 0; i < r->n_tasks; i++)
        if (r->tasks[i].host == host)
            r->tasks[i].paused_ns = MU_FOREVER;
}

static void kill_and_restart(run *r)
{
    task *t = &r->tasks[r->victim];
    const task fresh = {.process = r->n_processes++,
                        .host = t->host,
                        .rank = t->rank,
                        .options = t->options,
                        .n_exchanges = t->n_exchanges,
                        .n_streams = t->n_streams,
                        .linger_ns = t->linger_ns,
                        .start_ns = world_now() + world_draw_ns(0.001, 3)};
    task_kill(t);
    // The dead process takes the last place, so that a task's place stays its rank.
    r->tasks[fresh.process] = *t;
    *t = fresh;
}

int64_t strike_due(const run *r)
{
    const bool strikes = r->fault >= FAULT_KILL && r->fault <= FAULT_SLOW;
    return strikes && !r->struck ? r->strikes_ns : MU_FOREVER;
}

void strike(run *r)
{
    task *victim = &r->tasks[r->victim];
    r->struck = true;
    r->stage_struck = victim->stage;
    r->all_joined_struck = all_have_joined(r);
    world_enter(victim->process, victim->host);
    switch (r->fault) {
    case FAULT_KILL: task_kill(victim); break;
    case FAULT_DARK: go_dark(r); break;
    case FAULT_RESTART: kill_and_restart(r); break;
    case FAULT_CUT: cut_off(r); break;
    case FAULT_SLOW: victim->paused_ns = r->until_ns; break;
    default: break;
    }
}
