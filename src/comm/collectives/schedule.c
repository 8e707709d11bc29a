// Runs lists of steps: one rank's list on a transport, or all ranks' lists in one thread.
//
// Both share the steps that only access memory. The simulation delivers a message only when its receiver reads it, so a
// list that overwrites memory while it is being sent gives wrong sums there; it also finds and names ranks that wait
// for each other. Independent of algorithms and groups.
#include "comm/comm.h"

const char *mu__step_name(mu_step_kind kind)
{
    static const char *const names[] = {"rendezvous", "announce", "barrier", "send",      "recv",
                                        "flush",      "copy",     "reduce",  "reduce_all"};
    return (unsigned)kind < MU_COUNT(names) ? names[kind] : "unknown";
}

void mu__steps_free(mu_steps *steps)
{
    mu__free(steps->items);
    *steps = (mu_steps){0};
}

// ---- Steps that only access memory --------------------------------------------------------------

// The memory of all ranks as the steps of one rank see it.
typedef struct memory {
    const mu_schedule *schedule;
    size_t element;
    int rank, ranks;
    void *(*area)(const void *arg, int rank, mu_area area);
    const void *arg;
} memory;

static void *address_of(const memory *m, int rank, mu_area area, int64_t at)
{
    const bool own = rank == m->rank && area != MU_AREA_WINDOW && area != MU_AREA_STAGING;
    char *base = own || area == MU_AREA_SCRATCH ? m->schedule->areas[area] : m->area(m->arg, rank, area);
    return base + at * (int64_t)m->element;
}

static void copy_step(const memory *m, const mu_step *step)
{
    void *to = address_of(m, step->owner, step->to, step->to_at);
    const void *from = address_of(m, step->peer, step->from, step->from_at);
    if (to != from)
        memcpy(to, from, (size_t)step->count * m->element);
}

static void reduce_into(const memory *m, const mu_step *step, int n_dst, int n_src)
{
    const bool mean = step->last && m->schedule->reduction == MU_REDUCTION_MEAN;
    void **pointers = m->schedule->pointers;
    void *open =
        step->continues || step->leaves_partial ? address_of(m, m->rank, MU_AREA_SCRATCH, step->partial_at) : NULL;
    mu__reduce(&(mu_local_reduce_args){
        .dtype = m->schedule->dtype,
        .reduction = m->schedule->reduction,
        .divide = mean ? m->ranks : 1,
        .stream = m->schedule->stream,
        .n_dst = n_dst,
        .n_src = n_src,
        .dst = pointers,
        .src = (const void *const *)pointers + m->ranks,
        .count = step->count,
        .prefix = step->continues ? open : NULL,
        .partial = step->leaves_partial ? open : NULL,
    });
}

// The pointers to sources follow those to destinations, of which there is at most one per rank.
static void reduce_step(const memory *m, const mu_step *step)
{
    void **src = m->schedule->pointers + m->ranks;
    int64_t received = 0;
    m->schedule->pointers[0] = address_of(m, step->owner, step->to, step->to_at);
    for (int i = 0; i < step->parts; i++)
        src[i] = i == step->own_operand ? m->schedule->pointers[0]
                                        : address_of(m, m->rank, step->from, step->from_at + received++ * step->count);
    reduce_into(m, step, 1, step->parts);
}

static void reduce_all_step(const memory *m, const mu_step *step)
{
    void **dst = m->schedule->pointers, **src = dst + m->ranks;
    for (int i = 0; i < step->parts; i++)
        src[i] = address_of(m, step->low + i, step->from, step->from_at);
    dst[0] = address_of(m, step->owner, step->to, step->to_at);
    for (int i = 0; step->push && i < step->parts; i++)
        dst[i] = address_of(m, step->low + i, step->to, step->to_at);
    reduce_into(m, step, step->push ? step->parts : 1, step->parts);
}

static void memory_step(const memory *m, const mu_step *step)
{
    if (step->kind == MU_STEP_COPY)
        copy_step(m, step);
    else if (step->kind == MU_STEP_REDUCE)
        reduce_step(m, step);
    else
        reduce_all_step(m, step);
}

// ---- On a transport -----------------------------------------------------------------------------

static void *channel_area(const void *arg, int rank, mu_area area)
{
    const mu_channel *channel = arg;
    return channel->transport->area(channel, rank, area);
}

static mu_status rendezvous_step(mu_channel *channel, const mu_schedule *schedule)
{
    MU_TRY(channel->transport->rendezvous(channel));
    return schedule->rendezvous == NULL ? MU_OK : schedule->rendezvous(schedule->arg);
}

static mu_status run_step(const memory *m, mu_channel *channel, const mu_step *step)
{
    const mu_transport *transport = channel->transport;
    const size_t bytes = (size_t)step->count * m->element;
    switch (step->kind) {
    case MU_STEP_RENDEZVOUS: return rendezvous_step(channel, m->schedule);
    case MU_STEP_ANNOUNCE: return transport->announce != NULL ? transport->announce(channel) : MU_OK;
    case MU_STEP_BARRIER: return transport->barrier(channel);
    case MU_STEP_FLUSH: return transport->flush(channel);
    case MU_STEP_SEND:
        return transport->send(channel, step->peer, address_of(m, step->owner, step->from, step->from_at), bytes);
    case MU_STEP_RECV:
        return transport->recv(channel, step->peer, address_of(m, step->owner, step->to, step->to_at), bytes);
    case MU_STEP_COPY:
    case MU_STEP_REDUCE:
    case MU_STEP_REDUCE_ALL: memory_step(m, step); break;
    }
    return MU_OK;
}

mu_status mu__schedule_run(const mu_steps *steps, mu_channel *channel, const mu_schedule *schedule, size_t *at)
{
    const memory m = {.schedule = schedule,
                      .element = mu_dtype_bytes(schedule->dtype),
                      .rank = channel->rank,
                      .ranks = channel->ranks,
                      .area = channel_area,
                      .arg = channel};
    bool sent = false;
    for (size_t i = at != NULL ? *at : 0; i < steps->n; i++) {
        if (at != NULL)
            *at = i;
        sent = sent || steps->items[i].kind == MU_STEP_SEND;
        MU_TRY(run_step(&m, channel, &steps->items[i]));
    }
    if (at != NULL)
        *at = steps->n;
    return sent ? channel->transport->flush(channel) : MU_OK;
}

// ---- Simulation of all ranks in one thread ------------------------------------------------------

typedef struct sim_message {
    const void *data;
    int64_t count, round;
} sim_message;

// Messages of one ordered pair, oldest first.
typedef struct sim_pair {
    int n;
    sim_message waiting[MU_SENDS_IN_FLIGHT];
} sim_pair;

typedef struct sim_rank {
    const mu_steps *list;
    size_t at;
    int64_t round, bytes;
    int at_barrier; // MU_STEP_RENDEZVOUS or MU_STEP_BARRIER, or SIM_NOWHERE
} sim_rank;
enum { SIM_NOWHERE = -1 };

typedef struct simulation {
    int ranks;
    const mu_problem *problem;
    size_t element;
    const mu_schedule *schedules;
    sim_rank *rank;
    sim_pair *pairs; // [sender * ranks + receiver]
    int64_t messages;
    uint64_t random;
} simulation;

static void *sim_area(const void *arg, int rank, mu_area area)
{
    const simulation *sim = arg;
    return sim->schedules[rank].areas[area];
}

static uint64_t sim_random(simulation *sim)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return sim->random;
}

static sim_pair *pair_of(simulation *sim, int sender, int receiver)
{
    return &sim->pairs[sender * sim->ranks + receiver];
}

static memory sim_memory(simulation *sim, int rank)
{
    return (memory){.schedule = &sim->schedules[rank],
                    .element = sim->element,
                    .rank = rank,
                    .ranks = sim->ranks,
                    .area = sim_area,
                    .arg = sim};
}

static bool sim_send(simulation *sim, int rank, const mu_step *step)
{
    sim_pair *pair = pair_of(sim, rank, step->peer);
    const memory m = sim_memory(sim, rank);
    if (pair->n == MU_SENDS_IN_FLIGHT)
        return false;
    pair->waiting[pair->n++] = (sim_message){.data = address_of(&m, step->owner, step->from, step->from_at),
                                             .count = step->count,
                                             .round = sim->rank[rank].round + 1};
    sim->rank[rank].bytes += step->count * (int64_t)sim->element;
    sim->messages++;
    return true;
}

static mu_status sim_recv(simulation *sim, int rank, const mu_step *step, bool *done)
{
    sim_pair *pair = pair_of(sim, step->peer, rank);
    const memory m = sim_memory(sim, rank);
    *done = pair->n > 0;
    if (!*done)
        return MU_OK;
    const sim_message message = pair->waiting[0];
    if (message.count != step->count)
        return mu__error(MU_INTERNAL,
                         "In the simulation rank %d's step %zu expects %lld elements of rank %d, whose message has "
                         "%lld; both lists must agree.",
                         rank, sim->rank[rank].at, (long long)step->count, step->peer, (long long)message.count);
    memcpy(address_of(&m, step->owner, step->to, step->to_at), message.data, (size_t)message.count * sim->element);
    sim->rank[rank].round = MU_MAX(sim->rank[rank].round, message.round);
    memmove(&pair->waiting[0], &pair->waiting[1], (size_t)--pair->n * sizeof pair->waiting[0]);
    return MU_OK;
}

static bool sim_flushed(simulation *sim, int rank)
{
    for (int peer = 0; peer < sim->ranks; peer++)
        if (pair_of(sim, rank, peer)->n > 0)
            return false;
    return true;
}

// The ranks [*low, *high) that take part: all for a rendezvous, those of one host for a barrier.
static void sim_company(const simulation *sim, int rank, mu_step_kind kind, int *low, int *high)
{
    const mu_problem *problem = sim->problem;
    *low = 0;
    *high = sim->ranks;
    for (int host = 0; kind == MU_STEP_BARRIER && problem->hosts > 1 && host < problem->hosts; host++)
        if (rank >= problem->first[host] && rank < problem->first[host + 1]) {
            *low = problem->first[host];
            *high = problem->first[host + 1];
        }
}

// The last rank to arrive releases the others, which then find their step done. Ranks at different barriers keep
// waiting.
static bool sim_barrier(simulation *sim, int rank, mu_step_kind kind)
{
    int64_t round = 0;
    int low, high;
    sim_company(sim, rank, kind, &low, &high);
    sim->rank[rank].at_barrier = (int)kind;
    for (int i = low; i < high; i++) {
        if (sim->rank[i].at_barrier != (int)kind)
            return false;
        round = MU_MAX(round, sim->rank[i].round + 1);
    }
    for (int i = low; i < high; i++) {
        sim->rank[i].at_barrier = SIM_NOWHERE;
        sim->rank[i].round = round;
        sim->rank[i].at += i != rank;
    }
    return true;
}

static mu_status sim_step(simulation *sim, int rank, bool *done)
{
    const mu_step *step = &sim->rank[rank].list->items[sim->rank[rank].at];
    const memory m = sim_memory(sim, rank);
    *done = true;
    switch (step->kind) {
    case MU_STEP_RENDEZVOUS:
    case MU_STEP_BARRIER: *done = sim_barrier(sim, rank, step->kind); break;
    case MU_STEP_ANNOUNCE: break;
    case MU_STEP_FLUSH: *done = sim_flushed(sim, rank); break;
    case MU_STEP_SEND: *done = sim_send(sim, rank, step); break;
    case MU_STEP_RECV: return sim_recv(sim, rank, step, done);
    case MU_STEP_COPY:
    case MU_STEP_REDUCE:
    case MU_STEP_REDUCE_ALL: memory_step(&m, step); break;
    }
    return MU_OK;
}

// Runs a few steps of one rank; `moved` says whether any was completed.
static mu_status sim_advance(simulation *sim, int rank, bool *moved)
{
    sim_rank *r = &sim->rank[rank];
    for (uint64_t left = 1 + sim_random(sim) % 5; left > 0 && r->at < r->list->n; left--) {
        bool done;
        MU_TRY(sim_step(sim, rank, &done));
        if (!done)
            break;
        r->at++;
        *moved = true;
    }
    return MU_OK;
}

static mu_status sim_stuck(const simulation *sim)
{
    for (int i = 0; i < sim->ranks; i++) {
        const sim_rank *r = &sim->rank[i];
        if (r->at < r->list->n) {
            const mu_step *step = &r->list->items[r->at];
            return mu__error(MU_INTERNAL,
                             "In the simulation no rank can continue: rank %d waits in step %zu, %s with rank %d.", i,
                             r->at, mu__step_name(step->kind), step->peer);
        }
    }
    return MU_OK;
}

static mu_status sim_run(simulation *sim)
{
    for (bool moved = true; moved;) {
        moved = false;
        const int first = (int)(sim_random(sim) % (uint64_t)sim->ranks);
        for (int i = 0; i < sim->ranks; i++)
            MU_TRY(sim_advance(sim, (first + i) % sim->ranks, &moved));
    }
    MU_TRY(sim_stuck(sim));
    for (int i = 0; i < sim->ranks * sim->ranks; i++)
        if (sim->pairs[i].n > 0)
            return mu__error(MU_INTERNAL, "In the simulation nobody receives a message of rank %d for rank %d.",
                             i / sim->ranks, i % sim->ranks);
    return MU_OK;
}

static void sim_cost(const simulation *sim, mu_cost *cost)
{
    *cost = (mu_cost){.messages = sim->messages};
    for (int i = 0; i < sim->ranks; i++) {
        cost->steps = MU_MAX(cost->steps, (int64_t)sim->rank[i].list->n);
        cost->max_bytes = MU_MAX(cost->max_bytes, sim->rank[i].bytes);
        cost->rounds = MU_MAX(cost->rounds, sim->rank[i].round);
    }
}

mu_status mu__schedule_simulate(const mu_steps *lists, const mu_problem *problem, const mu_schedule *schedules,
                                uint64_t seed, mu_cost *cost)
{
    const size_t ranks = (size_t)problem->ranks;
    simulation sim = {.ranks = problem->ranks,
                      .problem = problem,
                      .element = problem->element,
                      .schedules = schedules,
                      .random = seed * 2 + 1};
    mu_status status = MU_RESOURCE_EXHAUSTED;
    sim.rank = mu__calloc(ranks, sizeof *sim.rank);
    sim.pairs = mu__calloc(ranks * ranks, sizeof *sim.pairs);
    if (sim.rank == NULL || sim.pairs == NULL)
        goto out;
    for (size_t i = 0; i < ranks; i++)
        sim.rank[i] = (sim_rank){.list = &lists[i], .at_barrier = SIM_NOWHERE};
    MU_GO(sim_run(&sim));
    if (cost != NULL)
        sim_cost(&sim, cost);
out:
    mu__free(sim.rank);
    mu__free(sim.pairs);
    return status;
}
