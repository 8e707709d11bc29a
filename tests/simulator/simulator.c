// Runs many tasks of the shipped code in one thread, in a virtual world whose faults are drawn from a seed.
// seeds.h says how it is called.
#include "run.h"
#include "seeds.h"

#include <stdlib.h>

enum { MOST_ROUNDS = 20000, BLOCK_HASHES = 64, TWICE_EVERY = 20 };
#define LIMIT_NS 200000000000

static run now_playing;
static uint64_t block_hashes[BLOCK_HASHES];

void check_blocks(int exchange, const mu_blocks *blocks)
{
    uint64_t hash = 1;
    for (int i = 0; i < blocks->n; i++) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "%d of rank %d,", exchange, i);
        if (blocks->bytes[i] < strlen(wanted) || memcmp(blocks->data[i], wanted, strlen(wanted)) != 0)
            run_fails("the block of %s in exchange %d is not its own", task_name(i), exchange);
        for (size_t k = 0; k < blocks->bytes[i]; k++)
            hash = (hash ^ ((const uint8_t *)blocks->data[i])[k]) * UINT64_C(0x100000001b3);
    }
    if (block_hashes[exchange] != 0 && block_hashes[exchange] != hash)
        run_fails("two tasks got different blocks in exchange %d", exchange);
    block_hashes[exchange] = hash;
}

// No stage lasts longer than its deadline, apart from the time for which the process was stopped.
static void check_deadline(const task *t)
{
    const double limit_s = t->stage == STAGE_JOINING                                     ? t->options.join_seconds + 3
                           : t->stage == STAGE_EXCHANGING || t->stage == STAGE_STREAMING ? TIMEOUT_S + 1
                           : t->stage == STAGE_LEAVING ? t->options.heartbeat_seconds + 0.5
                                                       : 0;
    const int64_t since_ns = MU_MAX(t->since_ns, t->paused_ns);
    if (limit_s > 0 && world_now() - since_ns > (int64_t)(limit_s * 1e9))
        run_fails("%s has been in stage %d for %.3f s", task_name(t->rank), t->stage,
                  (double)(world_now() - since_ns) / 1e9);
}

static bool is_awake(const task *t, const bool *ready)
{
    const bool started = t->stage != STAGE_ABSENT || world_now() >= t->start_ns;
    return !task_is_over(t) && started && world_now() >= t->paused_ns &&
           (task_due(t) <= world_now() || ready[t->process]);
}

// Runs every task that has something to do, in an order of chance. False: nobody had.
static bool play_round(run *r)
{
    bool ready[MOST_PROCESSES], any = false;
    int order[MOST_PROCESSES];
    world_ready(ready, MOST_PROCESSES);
    for (int i = 0; i < r->n_processes; i++) {
        const int other = (int)world_draw((uint64_t)i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (int i = 0; i < r->n_processes; i++) {
        task *t = &r->tasks[order[i]];
        if (!is_awake(t, ready))
            continue;
        task_run(t);
        check_deadline(t);
        any = true;
    }
    return any;
}

static int64_t sooner(int64_t a, int64_t b) { return MU_MIN(a, b); }

static int64_t next_event(const run *r)
{
    int64_t next = sooner(sooner(world_next(), strike_due(r)), strangers_due());
    for (int i = 0; i < r->n_processes; i++)
        next = sooner(next, task_due(&r->tasks[i]));
    return next;
}

static bool all_over(const run *r)
{
    for (int i = 0; i < r->n_processes; i++)
        if (!task_is_over(&r->tasks[i]) && r->tasks[i].paused_ns != MU_FOREVER)
            return false;
    return true;
}

static void play(run *r)
{
    int rounds = 0;
    while (!all_over(r) && !run_failed()) {
        const bool struck = strike_due(r) <= world_now();
        if (struck)
            strike(r);
        if (strangers_due() <= world_now())
            strangers_run();
        if (play_round(r) || struck) {
            if (++rounds > MOST_ROUNDS)
                run_fails("the tasks are busy without an end");
            continue;
        }
        const int64_t next = next_event(r);
        if (next > LIMIT_NS)
            run_fails("nothing happens any more");
        else
            world_advance(next);
        rounds = 0;
    }
}

static void end(run *r)
{
    strangers_end();
    for (int i = 0; i < r->n_processes; i++) {
        task_free(&r->tasks[i]);
        if (world_count_open(r->tasks[i].process) > 0)
            run_fails("process %d left %d descriptors open", r->tasks[i].process,
                      world_count_open(r->tasks[i].process));
    }
}

static uint64_t run_seed(uint64_t seed, bool print)
{
    run *r = &now_playing;
    *r = (run){.seed = seed};
    memset(block_hashes, 0, sizeof block_hashes);
    world_begin(seed, print);
    plan_run(r);
    strangers_begin(r);
    play(r);
    if (!run_failed())
        check_run(r);
    end(r);
    const uint64_t hash = world_hash();
    world_end();
    return hash;
}

// ---- The program --------------------------------------------------------------------------------

static const char *about(void)
{
    static char text[60];
    snprintf(text, sizeof text, "fault %s", fault_name(now_playing.fault));
    return text;
}

int main(int argc, char **argv)
{
    static const simulation mesh = {
        .name = "simulator", .options = "", .twice_every = TWICE_EVERY, .play = run_seed, .about = about};
    char timeout[16];
    snprintf(timeout, sizeof timeout, "%d", TIMEOUT_S);
    setenv("MUSTER_LOG", seeds_option(argc, argv, "--seed") != NULL ? "debug" : "error", 1);
    setenv("MUSTER_TIMEOUT", timeout, 1);
    return mu_init() == MU_OK ? seeds_play(&mesh, argc, argv) : 2;
}
