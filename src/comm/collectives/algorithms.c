// The collective algorithms: pure functions from a problem to the steps of one rank.
//
// The order in which elements are added depends only on the problem, never on timing, so every rank gets the same bits
// on every run. These functions send nothing: schedule.c runs a list, or simulates all lists. hosts.c has the
// algorithms for ranks on several hosts; the table of all algorithms is here.
#include "comm/collectives/steps.h"

enum { SEGMENT_BYTES = 128 * 1024 };

// ---- Through shared memory ----------------------------------------------------------------------

static mu_status all_reduce_slots(const mu_problem *problem, mu_steps *out)
{
    MU_TRY(mu__add_copy(out, problem->rank, MU_AREA_DATA, 0, MU_AREA_WINDOW, 0, problem->count));
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    return mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE_ALL,
                                       .owner = problem->rank,
                                       .from = MU_AREA_WINDOW,
                                       .to = MU_AREA_DATA,
                                       .count = problem->count,
                                       .parts = problem->ranks,
                                       .last = true});
}

static mu_status all_reduce_direct(const mu_problem *problem, mu_steps *out)
{
    const mu_part own = mu__slice_of(problem, problem->rank);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    MU_TRY(mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE_ALL,
                                       .from = MU_AREA_DATA,
                                       .to = MU_AREA_DATA,
                                       .from_at = own.at,
                                       .to_at = own.at,
                                       .count = own.count,
                                       .owner = problem->rank,
                                       .parts = problem->ranks,
                                       .push = true,
                                       .last = true}));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

static mu_status broadcast_slots(const mu_problem *problem, mu_steps *out)
{
    const bool root = problem->rank == problem->root;
    if (root)
        MU_TRY(mu__add_copy(out, problem->rank, MU_AREA_DATA, 0, MU_AREA_WINDOW, 0, problem->count));
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (!root)
        MU_TRY(mu__add_copy(out, problem->root, MU_AREA_WINDOW, 0, MU_AREA_DATA, 0, problem->count));
    return MU_OK;
}

static mu_status broadcast_direct(const mu_problem *problem, mu_steps *out)
{
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (problem->rank != problem->root)
        MU_TRY(mu__add_copy(out, problem->root, MU_AREA_DATA, 0, MU_AREA_DATA, 0, problem->count));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

static mu_status gather_blocks(const mu_problem *problem, mu_area from, mu_steps *out)
{
    int64_t at = 0;
    for (int rank = 0; rank < problem->ranks; at += problem->counts[rank++])
        MU_TRY(mu__add_copy(out, rank, from, 0, MU_AREA_DATA, at, problem->counts[rank]));
    return MU_OK;
}

static mu_status all_gather_slots(const mu_problem *problem, mu_steps *out)
{
    MU_TRY(mu__add_copy(out, problem->rank, MU_AREA_INPUT, 0, MU_AREA_WINDOW, 0, problem->count));
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    return gather_blocks(problem, MU_AREA_WINDOW, out);
}

static mu_status all_gather_direct(const mu_problem *problem, mu_steps *out)
{
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    MU_TRY(gather_blocks(problem, MU_AREA_INPUT, out));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

static mu_status all_to_all_direct(const mu_problem *problem, mu_steps *out)
{
    const int64_t n = problem->count;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int rank = 0; rank < problem->ranks; rank++)
        MU_TRY(mu__add_copy(out, rank, MU_AREA_INPUT, problem->rank * n, MU_AREA_DATA, rank * n, n));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

static mu_status reduce_scatter_direct(const mu_problem *problem, mu_steps *out)
{
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    MU_TRY(mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE_ALL,
                                       .owner = problem->rank,
                                       .from = MU_AREA_INPUT,
                                       .to = MU_AREA_DATA,
                                       .from_at = problem->rank * problem->count,
                                       .count = problem->count,
                                       .parts = problem->ranks,
                                       .last = true}));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

static mu_status permute_slots(const mu_problem *problem, mu_steps *out)
{
    const int source = (int)problem->sources[problem->rank];
    MU_TRY(mu__add_copy(out, problem->rank, MU_AREA_INPUT, 0, MU_AREA_WINDOW, 0, problem->count));
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    return source < 0 ? MU_OK : mu__add_copy(out, source, MU_AREA_WINDOW, 0, MU_AREA_DATA, 0, problem->count);
}

static mu_status permute_direct(const mu_problem *problem, mu_steps *out)
{
    const int source = (int)problem->sources[problem->rank];
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (source >= 0)
        MU_TRY(mu__add_copy(out, source, MU_AREA_INPUT, 0, MU_AREA_DATA, 0, problem->count));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

static mu_status barrier_rendezvous(const mu_problem *problem, mu_steps *out)
{
    (void)problem;
    return mu__add_plain(out, MU_STEP_RENDEZVOUS);
}

// ---- Ring ---------------------------------------------------------------------------------------

// A chunk is sent in segments, so that one is added while the next is in flight; there are at most as many as may be in
// flight.
typedef struct ring {
    int me, n;
    int64_t count;
    size_t element;
} ring;

static int ring_segments(const ring *r, int64_t chunk)
{
    const int64_t segments = (chunk * (int64_t)r->element + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
    return (int)MU_MAX(MU_MIN(segments, (int64_t)MU_SENDS_IN_FLIGHT), 1);
}

// The chunk that belongs to the member `hops` steps to the left of `me`.
static mu_part ring_chunk(const ring *r, int hops)
{
    return mu__part_of(r->count, 1, ((r->me - hops) % r->n + r->n) % r->n, r->n);
}

static mu_status ring_pass(const ring *r, mu_part chunk, bool reduce, bool last, bool forward, mu_steps *out)
{
    const int left = (r->me + r->n - 1) % r->n, right = (r->me + 1) % r->n;
    const int segments = ring_segments(r, chunk.count);
    for (int i = 0; i < segments; i++) {
        const mu_part segment = mu__part_of(chunk.count, 1, i, segments);
        const int64_t at = chunk.at + segment.at;
        MU_TRY(reduce ? mu__add_recv(out, left, MU_AREA_SCRATCH, 0, segment.count)
                      : mu__add_recv(out, left, MU_AREA_DATA, at, segment.count));
        if (reduce)
            MU_TRY(mu__add_reduce(out, at, segment.count, 2, 1, last));
        if (forward)
            MU_TRY(mu__add_send(out, right, MU_AREA_DATA, at, segment.count));
    }
    return MU_OK;
}

// Each chunk travels round the ring twice: first each member adds its part, then the result is distributed.
static mu_status ring_steps(const ring *r, mu_steps *out)
{
    const mu_part own = ring_chunk(r, 0);
    const int segments = ring_segments(r, own.count);
    for (int i = 0; i < segments; i++) {
        const mu_part segment = mu__part_of(own.count, 1, i, segments);
        MU_TRY(mu__add_send(out, (r->me + 1) % r->n, MU_AREA_DATA, own.at + segment.at, segment.count));
    }
    for (int hop = 1; hop < r->n; hop++)
        MU_TRY(ring_pass(r, ring_chunk(r, hop), true, hop == r->n - 1, true, out));
    for (int hop = 0; hop < r->n - 1; hop++)
        MU_TRY(ring_pass(r, ring_chunk(r, hop), false, false, hop < r->n - 2, out));
    return MU_OK;
}

static mu_status all_reduce_ring(const mu_problem *problem, mu_steps *out)
{
    const ring r = {.me = problem->rank, .n = problem->ranks, .count = problem->count, .element = problem->element};
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    return r.n == 1 ? MU_OK : ring_steps(&r, out);
}

static mu_status all_gather_ring(const mu_problem *problem, mu_steps *out)
{
    const int me = problem->rank, n = problem->ranks;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    MU_TRY(mu__add_copy(out, me, MU_AREA_INPUT, 0, MU_AREA_DATA, mu__block_at(problem, me), problem->count));
    for (int hop = 0; hop < n - 1; hop++) {
        const int mine = (me - hop + n) % n, theirs = (me - hop - 1 + n) % n;
        MU_TRY(mu__add_send(out, (me + 1) % n, MU_AREA_DATA, mu__block_at(problem, mine), problem->counts[mine]));
        MU_TRY(
            mu__add_recv(out, (me + n - 1) % n, MU_AREA_DATA, mu__block_at(problem, theirs), problem->counts[theirs]));
    }
    return MU_OK;
}

// What the left neighbour has added up of block `index` so far comes, gets this rank's part added, and is sent on; the
// last block to come is this rank's own. Each block has its own part of SCRATCH, so no send is waited for.
static mu_status ring_block(const ring *r, int index, int hop, mu_steps *out)
{
    const int left = (r->me + r->n - 1) % r->n, right = (r->me + 1) % r->n, segments = ring_segments(r, r->count);
    const bool last = hop == r->n - 1;
    const mu_area area = last ? MU_AREA_DATA : MU_AREA_SCRATCH;
    for (int i = 0; i < segments; i++) {
        const mu_part segment = mu__part_of(r->count, 1, i, segments);
        const int64_t at = (last ? 0 : (hop - 1) * r->count) + segment.at;
        MU_TRY(mu__add_recv(out, left, area, at, segment.count));
        MU_TRY(mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE,
                                           .owner = r->me,
                                           .from = MU_AREA_INPUT,
                                           .from_at = index * r->count + segment.at,
                                           .to = area,
                                           .to_at = at,
                                           .count = segment.count,
                                           .parts = 2,
                                           .last = last}));
        if (!last)
            MU_TRY(mu__add_send(out, right, area, at, segment.count));
    }
    return MU_OK;
}

// The first half of the ring's all-reduce: the block of a rank begins at its right neighbour, and each rank on the way
// adds its part.
static mu_status reduce_scatter_ring(const mu_problem *problem, mu_steps *out)
{
    const ring r = {.me = problem->rank, .n = problem->ranks, .count = problem->count, .element = problem->element};
    const int first = (r.me + r.n - 1) % r.n, segments = ring_segments(&r, r.count);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (r.n == 1)
        return mu__add_copy(out, 0, MU_AREA_INPUT, 0, MU_AREA_DATA, 0, r.count);
    for (int i = 0; i < segments; i++) {
        const mu_part segment = mu__part_of(r.count, 1, i, segments);
        MU_TRY(mu__add_send(out, (r.me + 1) % r.n, MU_AREA_INPUT, first * r.count + segment.at, segment.count));
    }
    for (int hop = 1; hop < r.n; hop++)
        MU_TRY(ring_block(&r, (first - hop + r.n) % r.n, hop, out));
    return MU_OK;
}

// ---- Recursive doubling -------------------------------------------------------------------------

// Adds the peer's DATA to this rank's; the lower rank's data comes first on both sides, so both get the same bits.
static mu_status exchange(const mu_problem *problem, int peer, bool last, mu_steps *out)
{
    MU_TRY(mu__add_send(out, peer, MU_AREA_DATA, 0, problem->count));
    MU_TRY(mu__add_recv(out, peer, MU_AREA_SCRATCH, 0, problem->count));
    MU_TRY(mu__add_plain(out, MU_STEP_FLUSH));
    return mu__add_reduce(out, 0, problem->count, 2, problem->rank < peer ? 0 : 1, last);
}

// Ranks beyond the greatest power of two first send their data to a partner and receive the result from it.
static mu_status all_reduce_doubling(const mu_problem *problem, mu_steps *out)
{
    const int me = problem->rank;
    int core = 1;
    while (core * 2 <= problem->ranks)
        core *= 2;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (me >= core) {
        MU_TRY(mu__add_send(out, me - core, MU_AREA_DATA, 0, problem->count));
        return mu__add_recv(out, me - core, MU_AREA_DATA, 0, problem->count);
    }
    const bool partner = me + core < problem->ranks;
    if (partner) {
        MU_TRY(mu__add_recv(out, me + core, MU_AREA_SCRATCH, 0, problem->count));
        MU_TRY(mu__add_reduce(out, 0, problem->count, 2, 0, false));
    }
    for (int mask = 1; mask < core; mask *= 2)
        MU_TRY(exchange(problem, me ^ mask, mask * 2 == core, out));
    return partner ? mu__add_send(out, me + core, MU_AREA_DATA, 0, problem->count) : MU_OK;
}

// ---- Pairwise: reduce-scatter, then all-gather --------------------------------------------------

// Each rank reduces its slice of all ranks' data in rank order, with messages: same bits as the direct algorithm. Large
// data is sent in pieces, so that one is added while the next arrives and the previous result returns.
typedef struct pieces {
    const mu_problem *problem;
    int n;
} pieces;

// Measured on the loopback: two ranks gain from longer slices; more ranks gain only while their pieces fit into the
// caches.
enum { PAIR_SLICE_BYTES = 256 * 1024, SLICE_BYTES = 96 * 1024, WHOLE_BYTES = 1024 * 1024 };

static int number_of_pieces(const mu_problem *problem)
{
    const int64_t bytes = problem->count * (int64_t)problem->element;
    const int64_t most = problem->ranks == 2    ? 2 * PAIR_SLICE_BYTES
                         : bytes <= WHOLE_BYTES ? WHOLE_BYTES
                                                : (int64_t)SLICE_BYTES * problem->ranks;
    return (int)MU_MAX((bytes + most - 1) / most, 1);
}

static mu_part slice_of_piece(const pieces *p, int piece, int rank)
{
    const mu_part whole = mu__part_of(p->problem->count, 1, piece, p->n);
    mu_problem part = *p->problem;
    part.count = whole.count;
    mu_part slice = mu__slice_of(&part, rank);
    slice.at += whole.at;
    return slice;
}

static mu_status send_parts(const pieces *p, int piece, mu_steps *out)
{
    const int me = p->problem->rank, n = p->problem->ranks;
    for (int hop = 1; hop < n; hop++) {
        const mu_part theirs = slice_of_piece(p, piece, (me + hop) % n);
        MU_TRY(mu__add_send(out, (me + hop) % n, MU_AREA_DATA, theirs.at, theirs.count));
    }
    return MU_OK;
}

static mu_status add_parts(const pieces *p, int piece, mu_steps *out)
{
    const int me = p->problem->rank, n = p->problem->ranks;
    const mu_part own = slice_of_piece(p, piece, me);
    for (int hop = 1; hop < n; hop++) {
        const int from = (me + n - hop) % n, slot = from < me ? from : from - 1;
        MU_TRY(mu__add_recv(out, from, MU_AREA_SCRATCH, slot * own.count, own.count));
    }
    MU_TRY(mu__add_reduce(out, own.at, own.count, n, me, true));
    for (int hop = 1; hop < n; hop++)
        MU_TRY(mu__add_send(out, (me + hop) % n, MU_AREA_DATA, own.at, own.count));
    return MU_OK;
}

static mu_status take_results(const pieces *p, int piece, mu_steps *out)
{
    const int me = p->problem->rank, n = p->problem->ranks;
    for (int hop = 1; hop < n; hop++) {
        const int from = (me + n - hop) % n;
        const mu_part theirs = slice_of_piece(p, piece, from);
        MU_TRY(mu__add_recv(out, from, MU_AREA_DATA, theirs.at, theirs.count));
    }
    return MU_OK;
}

static mu_status all_reduce_pairwise(const mu_problem *problem, mu_steps *out)
{
    const pieces p = {.problem = problem, .n = number_of_pieces(problem)};
    MU_TRY(mu__add_plain(out, MU_STEP_ANNOUNCE));
    if (problem->ranks > 1)
        MU_TRY(send_parts(&p, 0, out));
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int i = 1; problem->ranks > 1 && i < p.n + 2; i++) {
        if (i < p.n)
            MU_TRY(send_parts(&p, i, out));
        if (i <= p.n)
            MU_TRY(add_parts(&p, i - 1, out));
        if (i >= 2)
            MU_TRY(take_results(&p, i - 2, out));
    }
    return MU_OK;
}

// All parts are collected in SCRATCH in rank order.
static mu_status reduce_scatter_pairwise(const mu_problem *problem, mu_steps *out)
{
    const int me = problem->rank, n = problem->ranks;
    const int64_t count = problem->count;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    MU_TRY(mu__add_copy(out, me, MU_AREA_INPUT, me * count, MU_AREA_SCRATCH, me * count, count));
    for (int hop = 1; hop < n; hop++) {
        const int to = (me + hop) % n, from = (me + n - hop) % n;
        MU_TRY(mu__add_send(out, to, MU_AREA_INPUT, to * count, count));
        MU_TRY(mu__add_recv(out, from, MU_AREA_SCRATCH, from * count, count));
    }
    return mu__add_reduce(out, 0, count, n, -1, true);
}

static mu_status all_to_all_pairwise(const mu_problem *problem, mu_steps *out)
{
    const int me = problem->rank, n = problem->ranks;
    const int64_t count = problem->count;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    MU_TRY(mu__add_copy(out, me, MU_AREA_INPUT, me * count, MU_AREA_DATA, me * count, count));
    for (int hop = 1; hop < n; hop++) {
        const int to = (me + hop) % n, from = (me + n - hop) % n;
        MU_TRY(mu__add_send(out, to, MU_AREA_INPUT, to * count, count));
        MU_TRY(mu__add_recv(out, from, MU_AREA_DATA, from * count, count));
    }
    return MU_OK;
}

static mu_status permute_pairwise(const mu_problem *problem, mu_steps *out)
{
    const int me = problem->rank, source = (int)problem->sources[me];
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int to = 0; to < problem->ranks; to++)
        if (to != me && problem->sources[to] == me)
            MU_TRY(mu__add_send(out, to, MU_AREA_INPUT, 0, problem->count));
    if (source == me)
        return mu__add_copy(out, me, MU_AREA_INPUT, 0, MU_AREA_DATA, 0, problem->count);
    return source < 0 ? MU_OK : mu__add_recv(out, source, MU_AREA_DATA, 0, problem->count);
}

// ---- Tree ---------------------------------------------------------------------------------------

// A binomial tree, numbered from the root: a rank receives from the rank without its lowest set bit, and sends to the
// ranks with one additional lower bit.
static mu_status broadcast_tree(const mu_problem *problem, mu_steps *out)
{
    const int n = problem->ranks, me = (problem->rank - problem->root + n) % n;
    int bit = 1;
    while (bit < n && (me & bit) == 0)
        bit *= 2;
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    if (me != 0)
        MU_TRY(mu__add_recv(out, (me - bit + problem->root) % n, MU_AREA_DATA, 0, problem->count));
    for (bit /= 2; bit > 0; bit /= 2)
        if (me + bit < n)
            MU_TRY(mu__add_send(out, (me + bit + problem->root) % n, MU_AREA_DATA, 0, problem->count));
    return MU_OK;
}

// ---- The table ----------------------------------------------------------------------------------

#define WINDOW   MU_NEEDS_WINDOW
#define MESSAGES MU_NEEDS_MESSAGES
#define TOGETHER (MU_NEEDS_PEERS | MU_NEEDS_ONE_HOST)
#define PEERS    MU_NEEDS_PEERS

static const mu_algorithm algorithms[] = {
    // In order of preference within a kind: if a policy's algorithm does not fit, the first that fits is used.
    {MU_KIND_ALL_REDUCE, "direct", TOGETHER, true, all_reduce_direct,
     "each rank adds its slice of every rank's memory in rank order and writes it to all"},
    {MU_KIND_ALL_REDUCE, "slots", WINDOW, true, all_reduce_slots,
     "each rank writes its data to its window and adds up all windows; one barrier, small messages"},
    {MU_KIND_ALL_REDUCE, "ring", MESSAGES, false, all_reduce_ring,
     "chunks travel round the ring once to be summed, and once more as the result"},
    {MU_KIND_ALL_REDUCE, "doubling", MESSAGES, false, all_reduce_doubling,
     "pairs at distance 1, 2, 4, … exchange everything"},
    {MU_KIND_ALL_REDUCE, "pairwise", MESSAGES, true, all_reduce_pairwise,
     "slices go to their rank, which adds them in rank order, and come back to all"},
    {MU_KIND_ALL_REDUCE, "hierarchical", PEERS, false, mu__all_reduce_hierarchical,
     "inside each host first, slices between the first ranks of the hosts, back inside"},
    {MU_KIND_ALL_REDUCE, "hierarchical_ring", PEERS, false, mu__all_reduce_hierarchical_ring,
     "inside each host first, a ring of the first ranks of the hosts, back inside"},
    {MU_KIND_ALL_REDUCE, "chain", PEERS, true, mu__all_reduce_chain,
     "an unrounded sum goes from host to host in rank order, the result goes back"},
    {MU_KIND_ALL_GATHER, "direct", TOGETHER, true, all_gather_direct, "each rank copies every rank's input"},
    {MU_KIND_ALL_GATHER, "slots", WINDOW, true, all_gather_slots, "through the windows; one barrier, small messages"},
    {MU_KIND_ALL_GATHER, "ring", MESSAGES, true, all_gather_ring, "blocks go round once"},
    {MU_KIND_ALL_GATHER, "hierarchical", PEERS, true, mu__all_gather_hierarchical,
     "the first rank of each host exchanges its host's blocks with the others"},
    {MU_KIND_BROADCAST, "direct", TOGETHER, true, broadcast_direct, "each rank copies the root's memory"},
    {MU_KIND_BROADCAST, "slots", WINDOW, true, broadcast_slots,
     "through the root's window; one barrier, small messages"},
    {MU_KIND_BROADCAST, "tree", MESSAGES, true, broadcast_tree, "a binomial tree from the root"},
    {MU_KIND_BROADCAST, "hierarchical", PEERS, true, mu__broadcast_hierarchical,
     "a tree between the first ranks of the hosts, then inside each"},
    {MU_KIND_ALL_TO_ALL, "direct", TOGETHER, true, all_to_all_direct,
     "each rank copies its block of every rank's input"},
    {MU_KIND_ALL_TO_ALL, "pairwise", MESSAGES, true, all_to_all_pairwise, "each rank sends every other rank its block"},
    {MU_KIND_ALL_TO_ALL, "hierarchical", PEERS, true, mu__all_to_all_hierarchical,
     "the first rank of each host sends and receives for all ranks there"},
    {MU_KIND_REDUCE_SCATTER, "direct", TOGETHER, true, reduce_scatter_direct,
     "each rank adds its block of every rank's input in rank order"},
    {MU_KIND_REDUCE_SCATTER, "pairwise", MESSAGES, true, reduce_scatter_pairwise,
     "each rank sends every other rank its block, and adds what comes in rank order"},
    {MU_KIND_REDUCE_SCATTER, "ring", MESSAGES, false, reduce_scatter_ring,
     "blocks travel round the ring once to be summed"},
    {MU_KIND_REDUCE_SCATTER, "chain", PEERS, true, mu__reduce_scatter_chain,
     "unrounded sums go from host to host in rank order, each result from the last one to its rank"},
    {MU_KIND_REDUCE_SCATTER, "hierarchical", PEERS, false, mu__reduce_scatter_hierarchical,
     "the first rank of each host adds up its ranks, and sends the sums to the first ranks of the others"},
    {MU_KIND_PERMUTE, "direct", TOGETHER, true, permute_direct, "each rank copies the input of its source"},
    {MU_KIND_PERMUTE, "slots", WINDOW, true, permute_slots,
     "through the window of the source; one barrier, small messages"},
    {MU_KIND_PERMUTE, "pairwise", MESSAGES, true, permute_pairwise, "each rank sends its input to its target"},
    {MU_KIND_PERMUTE, "hierarchical", PEERS, true, mu__permute_hierarchical,
     "inside each host by memory; the first rank of each host sends and receives what leaves it and comes"},
    {MU_KIND_BARRIER, "meet", 0, true, barrier_rendezvous, "nothing but the rendezvous"},
};

const mu_algorithm *mu__algorithm_at(int i) { return i >= 0 && i < (int)MU_COUNT(algorithms) ? &algorithms[i] : NULL; }

const mu_algorithm *mu__algorithm(mu_collective_kind kind, const char *name)
{
    for (size_t i = 0; i < MU_COUNT(algorithms); i++)
        if (algorithms[i].kind == kind && strcmp(algorithms[i].name, name) == 0)
            return &algorithms[i];
    return NULL;
}

bool mu__algorithm_fits(const mu_algorithm *algorithm, const mu_problem *problem, unsigned means)
{
    int64_t largest = problem->count;
    for (int i = 0; problem->counts != NULL && i < problem->ranks; i++)
        largest = MU_MAX(largest, problem->counts[i]);
    if ((algorithm->needs & MU_NEEDS_ONE_HOST) && problem->hosts > 1)
        return false;
    if ((algorithm->needs & MU_NEEDS_WINDOW) && largest > (int64_t)(MU_WINDOW_BYTES / problem->element))
        return false;
    return (algorithm->needs & ~means & (MU_NEEDS_WINDOW | MU_NEEDS_PEERS | MU_NEEDS_MESSAGES)) == 0;
}

mu_status mu__algorithm_build(const mu_algorithm *algorithm, const mu_problem *problem, bool staged, mu_steps *out)
{
    out->rank = problem->rank;
    if (staged && (algorithm->needs & MU_NEEDS_PEERS))
        return mu__build_staged(algorithm, problem, out);
    return algorithm->build(problem, out);
}
