// Algorithms for ranks on several hosts: shared memory within a host, messages between the first ranks, the leaders.
//
// The steps between leaders come from a flat algorithm for as many ranks as there are hosts, with its peers renumbered.
// Leaders send from and receive into the memory of the ranks on their host. Pure functions, as in algorithms.c.
// Independent of transports.
#include "comm/collectives/steps.h"

enum { CHAIN_SEGMENT_BYTES = 128 * 1024 };

// Position of this rank among the hosts.
typedef struct position {
    int host, hosts;
    int leader, here; // first rank of this host, and number of ranks on it
    bool leads;
} position;

static int leader_of(const mu_problem *problem, int host) { return problem->hosts > 1 ? problem->first[host] : 0; }

static int ranks_of(const mu_problem *problem, int host)
{
    return problem->hosts > 1 ? problem->first[host + 1] - problem->first[host] : problem->ranks;
}

static int host_of(const mu_problem *problem, int rank)
{
    int host = 0;
    while (problem->hosts > 1 && rank >= problem->first[host + 1])
        host++;
    return host;
}

static position position_of(const mu_problem *problem)
{
    const int host = host_of(problem, problem->rank), leader = leader_of(problem, host);
    return (position){.host = host,
                      .hosts = MU_MAX(problem->hosts, 1),
                      .leader = leader,
                      .here = ranks_of(problem, host),
                      .leads = problem->rank == leader};
}

// Appends the leaders' steps: a flat algorithm's list in which rank h is the leader of host h.
static mu_status add_between(const mu_problem *problem, const char *name, mu_steps *out)
{
    const position at = position_of(problem);
    const mu_algorithm *algorithm = mu__algorithm(problem->kind, name);
    mu_problem between = *problem;
    mu_steps list = {.rank = at.host};
    between.rank = at.host;
    between.ranks = at.hosts;
    between.root = host_of(problem, problem->root);
    between.hosts = 1;
    mu_status status = algorithm->build(&between, &list);
    for (size_t i = 0; i < list.n && status == MU_OK; i++) {
        mu_step step = list.items[i];
        step.peer = leader_of(problem, step.peer);
        step.owner = problem->rank;
        if (step.kind != MU_STEP_RENDEZVOUS && step.kind != MU_STEP_ANNOUNCE)
            status = mu__add_step(out, step);
    }
    out->scratch = MU_MAX(out->scratch, list.scratch);
    mu__steps_free(&list);
    return status == MU_OK ? mu__add_plain(out, MU_STEP_FLUSH) : status;
}

// Copies the leader's DATA to all ranks of the host.
static mu_status add_hand_out(const mu_problem *problem, int64_t count, mu_steps *out)
{
    const position at = position_of(problem);
    MU_TRY(mu__add_plain(out, MU_STEP_BARRIER));
    if (!at.leads)
        MU_TRY(mu__add_copy(out, at.leader, MU_AREA_DATA, 0, MU_AREA_DATA, 0, count));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

// ---- All-reduce ---------------------------------------------------------------------------------

// Each rank reduces its slice of the data of all ranks on the host into the leader's memory.
static mu_status add_inside(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    mu_problem inside = *problem;
    inside.ranks = at.here;
    const mu_part own = mu__slice_of(&inside, problem->rank - at.leader);
    if (at.here == 1 && at.hosts > 1)
        return MU_OK;
    return mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE_ALL,
                                       .owner = at.leader,
                                       .from = MU_AREA_DATA,
                                       .to = MU_AREA_DATA,
                                       .from_at = own.at,
                                       .to_at = own.at,
                                       .count = own.count,
                                       .low = at.leader,
                                       .parts = at.here,
                                       .last = at.hosts == 1});
}

static mu_status all_reduce_by(const mu_problem *problem, const char *between, mu_steps *out)
{
    const position at = position_of(problem);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    MU_TRY(add_inside(problem, out));
    MU_TRY(mu__add_plain(out, MU_STEP_BARRIER));
    if (at.leads && at.hosts > 1)
        MU_TRY(add_between(problem, between, out));
    return add_hand_out(problem, problem->count, out);
}

mu_status mu__all_reduce_hierarchical(const mu_problem *problem, mu_steps *out)
{
    return all_reduce_by(problem, "pairwise", out);
}

mu_status mu__all_reduce_hierarchical_ring(const mu_problem *problem, mu_steps *out)
{
    return all_reduce_by(problem, "ring", out);
}

// ---- All-reduce along a chain of hosts ----------------------------------------------------------

// One message more than may be in flight, so that the next can be built; each has its own part of SCRATCH.
enum { CHAIN_SLOTS = MU_SENDS_IN_FLIGHT + 1 };

typedef struct chain {
    position at;
    int segments;
    int64_t count, longest; // elements in total, and of the longest segment
    int width;
} chain;

// Adds this host's ranks to the partial sum from the previous host and passes it to the next; the last host rounds.
static mu_status chain_there(const chain *c, const mu_problem *problem, int index, mu_steps *out)
{
    const mu_part segment = mu__part_of(c->count, 1, index, c->segments);
    const bool first = c->at.host == 0, last = c->at.host == c->at.hosts - 1;
    const int64_t slot_at = index % CHAIN_SLOTS * c->longest * c->width, wide = segment.count * c->width;
    if (!first)
        MU_TRY(mu__add_recv(out, leader_of(problem, c->at.host - 1), MU_AREA_SCRATCH, slot_at, wide));
    out->scratch = MU_MAX(out->scratch, slot_at + wide);
    MU_TRY(mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE_ALL,
                                       .owner = problem->rank,
                                       .from = MU_AREA_DATA,
                                       .to = MU_AREA_DATA,
                                       .from_at = segment.at,
                                       .to_at = segment.at,
                                       .count = segment.count,
                                       .low = c->at.leader,
                                       .parts = c->at.here,
                                       .partial_at = slot_at,
                                       .last = last,
                                       .continues = !first,
                                       .leaves_partial = !last}));
    return last ? MU_OK : mu__add_send(out, leader_of(problem, c->at.host + 1), MU_AREA_SCRATCH, slot_at, wide);
}

static mu_status chain_back(const chain *c, const mu_problem *problem, int index, mu_steps *out)
{
    const mu_part segment = mu__part_of(c->count, 1, index, c->segments);
    const bool first = c->at.host == 0, last = c->at.host == c->at.hosts - 1;
    if (!last)
        MU_TRY(mu__add_recv(out, leader_of(problem, c->at.host + 1), MU_AREA_DATA, segment.at, segment.count));
    if (first)
        return MU_OK;
    return mu__add_send(out, leader_of(problem, c->at.host - 1), MU_AREA_DATA, segment.at, segment.count);
}

// For each host after this one, a finished segment comes back two steps later; meanwhile the next segments are sent.
static mu_status chain_steps(const chain *c, const mu_problem *problem, mu_steps *out)
{
    const int lag = 2 * (c->at.hosts - 1 - c->at.host);
    for (int i = 0; i < c->segments + lag; i++) {
        if (i < c->segments)
            MU_TRY(chain_there(c, problem, i, out));
        if (i >= lag)
            MU_TRY(chain_back(c, problem, i - lag, out));
    }
    return mu__add_plain(out, MU_STEP_FLUSH);
}

mu_status mu__all_reduce_chain(const mu_problem *problem, mu_steps *out)
{
    const int64_t bytes = problem->count * (int64_t)problem->element;
    chain c = {.at = position_of(problem), .count = problem->count, .width = MU_MAX(problem->width, 1)};
    c.segments = (int)MU_MAX((bytes + CHAIN_SEGMENT_BYTES - 1) / CHAIN_SEGMENT_BYTES, 1);
    for (int i = 0; i < c.segments; i++)
        c.longest = MU_MAX(c.longest, mu__part_of(c.count, 1, i, c.segments).count);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (c.at.leads)
        MU_TRY(chain_steps(&c, problem, out));
    return add_hand_out(problem, problem->count, out);
}

// ---- Broadcast, all-gather and exchanges of blocks ----------------------------------------------

mu_status mu__broadcast_hierarchical(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    const bool root_here = host_of(problem, problem->root) == at.host;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (at.leads && root_here && problem->root != problem->rank)
        MU_TRY(mu__add_copy(out, problem->root, MU_AREA_DATA, 0, MU_AREA_DATA, 0, problem->count));
    if (at.leads && at.hosts > 1)
        MU_TRY(add_between(problem, "tree", out));
    return add_hand_out(problem, problem->rank == problem->root ? 0 : problem->count, out);
}

// The messages between two leaders: one for each pair of a rank here and a rank there. Sends and receives alternate.
typedef mu_status pair_message(const mu_problem *problem, int here, int there, bool send, mu_steps *out);

static mu_status add_pair(const mu_problem *problem, int index, int other, bool send, pair_message *message,
                          mu_steps *out)
{
    const position at = position_of(problem);
    const int leader = leader_of(problem, other), there = ranks_of(problem, other);
    // The sender's rank varies slowest, the receiver's fastest.
    const int here = send ? index / there : index % at.here, beyond = send ? index % there : index / at.here;
    return index < at.here * there ? message(problem, at.leader + here, leader + beyond, send, out) : MU_OK;
}

static mu_status add_pairs(const mu_problem *problem, pair_message *message, mu_steps *out)
{
    const position at = position_of(problem);
    for (int hop = 1; at.leads && hop < at.hosts; hop++) {
        const int to = (at.host + hop) % at.hosts, from = (at.host + at.hosts - hop) % at.hosts;
        const int most = at.here * MU_MAX(ranks_of(problem, to), ranks_of(problem, from));
        for (int i = 0; i < most; i++) {
            MU_TRY(add_pair(problem, i, to, true, message, out));
            MU_TRY(add_pair(problem, i, from, false, message, out));
        }
    }
    return at.leads ? mu__add_plain(out, MU_STEP_FLUSH) : MU_OK;
}

// Each block is sent to the leader of each host once, as the message for its first rank.
static mu_status gather_message(const mu_problem *problem, int here, int there, bool send, mu_steps *out)
{
    const int peer = leader_of(problem, host_of(problem, there)), from = send ? here : there;
    const bool once = send ? there == peer : here == problem->rank;
    const int64_t at = mu__block_at(problem, from), count = once ? problem->counts[from] : 0;
    return send ? mu__add_send(out, peer, MU_AREA_DATA, at, count) : mu__add_recv(out, peer, MU_AREA_DATA, at, count);
}

mu_status mu__all_gather_hierarchical(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int rank = at.leader; at.leads && rank < at.leader + at.here; rank++)
        MU_TRY(mu__add_copy(out, rank, MU_AREA_INPUT, 0, MU_AREA_DATA, mu__block_at(problem, rank),
                            problem->counts[rank]));
    MU_TRY(add_pairs(problem, gather_message, out));
    return add_hand_out(problem, mu__block_at(problem, problem->ranks), out);
}

static mu_status all_to_all_message(const mu_problem *problem, int here, int there, bool send, mu_steps *out)
{
    return mu__add_step(out, (mu_step){.kind = send ? MU_STEP_SEND : MU_STEP_RECV,
                                       .peer = leader_of(problem, host_of(problem, there)),
                                       .owner = here,
                                       .from = MU_AREA_INPUT,
                                       .to = MU_AREA_DATA,
                                       .from_at = there * problem->count,
                                       .to_at = there * problem->count,
                                       .count = problem->count});
}

mu_status mu__all_to_all_hierarchical(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    const int64_t n = problem->count;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int rank = at.leader; rank < at.leader + at.here; rank++)
        MU_TRY(mu__add_copy(out, rank, MU_AREA_INPUT, problem->rank * n, MU_AREA_DATA, rank * n, n));
    MU_TRY(add_pairs(problem, all_to_all_message, out));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

static mu_status permute_message(const mu_problem *problem, int here, int there, bool send, mu_steps *out)
{
    const bool paired = send ? problem->sources[there] == here : problem->sources[here] == there;
    return mu__add_step(out, (mu_step){.kind = send ? MU_STEP_SEND : MU_STEP_RECV,
                                       .peer = leader_of(problem, host_of(problem, there)),
                                       .owner = here,
                                       .from = MU_AREA_INPUT,
                                       .to = MU_AREA_DATA,
                                       .count = paired ? problem->count : 0});
}

mu_status mu__permute_hierarchical(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    const int source = (int)problem->sources[problem->rank];
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (source >= at.leader && source < at.leader + at.here)
        MU_TRY(mu__add_copy(out, source, MU_AREA_INPUT, 0, MU_AREA_DATA, 0, problem->count));
    MU_TRY(add_pairs(problem, permute_message, out));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

// ---- Reduce-scatter -----------------------------------------------------------------------------

// SCRATCH of a leader: for each rank of its host the sums of all hosts, then the sums of its host for the other ranks.
static int64_t sum_at(const mu_problem *problem, int host, int to)
{
    const position at = position_of(problem);
    const int beyond = to < at.leader ? to : to - at.here;
    return host_of(problem, to) == at.host ? ((int64_t)(to - at.leader) * at.hosts + host) * problem->count
                                           : ((int64_t)at.here * at.hosts + beyond) * problem->count;
}

static mu_status add_host_sum(const mu_problem *problem, int to, mu_steps *out)
{
    const position at = position_of(problem);
    const int64_t sum = sum_at(problem, at.host, to);
    out->scratch = MU_MAX(out->scratch, sum + problem->count);
    return mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE_ALL,
                                       .owner = problem->rank,
                                       .from = MU_AREA_INPUT,
                                       .from_at = to * problem->count,
                                       .to = MU_AREA_SCRATCH,
                                       .to_at = sum,
                                       .count = problem->count,
                                       .low = at.leader,
                                       .parts = at.here});
}

// The sum for one rank of each of two other hosts leaves and comes.
static mu_status exchange_sums(const mu_problem *problem, int hop, int index, mu_steps *out)
{
    const position at = position_of(problem);
    const int next = (at.host + hop) % at.hosts, previous = (at.host + at.hosts - hop) % at.hosts;
    const int to = leader_of(problem, next) + index, own = at.leader + index;
    if (index < ranks_of(problem, next)) {
        MU_TRY(add_host_sum(problem, to, out));
        MU_TRY(
            mu__add_send(out, leader_of(problem, next), MU_AREA_SCRATCH, sum_at(problem, at.host, to), problem->count));
    }
    return index >= at.here ? MU_OK
                            : mu__add_recv(out, leader_of(problem, previous), MU_AREA_SCRATCH,
                                           sum_at(problem, previous, own), problem->count);
}

static mu_status add_sums_of_hosts(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    for (int to = at.leader; to < at.leader + at.here; to++) {
        MU_TRY(add_host_sum(problem, to, out));
        MU_TRY(mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE,
                                           .owner = to,
                                           .from = MU_AREA_SCRATCH,
                                           .to = MU_AREA_DATA,
                                           .from_at = sum_at(problem, 0, to),
                                           .count = problem->count,
                                           .parts = at.hosts,
                                           .own_operand = -1,
                                           .last = true}));
    }
    return MU_OK;
}

// A block crosses to another host once, as the sum of this host's ranks: (n - ranks here) blocks leave each host.
mu_status mu__reduce_scatter_hierarchical(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int hop = 1; at.leads && hop < at.hosts; hop++) {
        const int next = (at.host + hop) % at.hosts;
        for (int i = 0; i < MU_MAX(ranks_of(problem, next), at.here); i++)
            MU_TRY(exchange_sums(problem, hop, i, out));
    }
    if (at.leads) {
        MU_TRY(add_sums_of_hosts(problem, out));
        MU_TRY(mu__add_plain(out, MU_STEP_FLUSH));
    }
    return mu__add_plain(out, MU_STEP_BARRIER);
}

// One block's way along the chain of hosts. The last host's sum is the result: it is written to the rank here, or waits
// behind the slots of the chain until the leader of another host has it.
static mu_status add_block_there(const mu_problem *problem, int to, mu_steps *out)
{
    const position at = position_of(problem);
    const bool last = at.host == at.hosts - 1, leaves = last && host_of(problem, to) != at.host;
    const int64_t wide = problem->count * MU_MAX(problem->width, 1), slot_at = to % CHAIN_SLOTS * wide;
    const int64_t result = leaves ? CHAIN_SLOTS * wide + to * problem->count : 0;
    if (at.host > 0)
        MU_TRY(mu__add_recv(out, leader_of(problem, at.host - 1), MU_AREA_SCRATCH, slot_at, wide));
    out->scratch = MU_MAX(out->scratch, MU_MAX(slot_at + wide, result + problem->count));
    MU_TRY(mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE_ALL,
                                       .owner = last && !leaves ? to : problem->rank,
                                       .from = MU_AREA_INPUT,
                                       .from_at = to * problem->count,
                                       .to = leaves ? MU_AREA_SCRATCH : MU_AREA_DATA,
                                       .to_at = result,
                                       .count = problem->count,
                                       .low = at.leader,
                                       .parts = at.here,
                                       .partial_at = slot_at,
                                       .last = last,
                                       .continues = at.host > 0,
                                       .leaves_partial = !last}));
    if (!last)
        return mu__add_send(out, leader_of(problem, at.host + 1), MU_AREA_SCRATCH, slot_at, wide);
    return leaves ? mu__add_send(out, leader_of(problem, host_of(problem, to)), MU_AREA_SCRATCH, result, problem->count)
                  : MU_OK;
}

// A block of this host's comes back some steps later, as in the chain of an all-reduce.
static mu_status add_block_back(const mu_problem *problem, int to, mu_steps *out)
{
    const position at = position_of(problem);
    if (at.host == at.hosts - 1 || host_of(problem, to) != at.host)
        return MU_OK;
    return mu__add_step(out, (mu_step){.kind = MU_STEP_RECV,
                                       .peer = leader_of(problem, at.hosts - 1),
                                       .owner = to,
                                       .to = MU_AREA_DATA,
                                       .count = problem->count});
}

mu_status mu__reduce_scatter_chain(const mu_problem *problem, mu_steps *out)
{
    const position at = position_of(problem);
    const int lag = 2 * (at.hosts - 1 - at.host);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int i = 0; at.leads && i < problem->ranks + lag; i++) {
        if (i < problem->ranks)
            MU_TRY(add_block_there(problem, i, out));
        if (i >= lag)
            MU_TRY(add_block_back(problem, i - lag, out));
    }
    if (at.leads)
        MU_TRY(mu__add_plain(out, MU_STEP_FLUSH));
    return mu__add_plain(out, MU_STEP_BARRIER);
}
