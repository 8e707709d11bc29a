// Lists for ranks that cannot address each other's data: the data passes through staging buffers in chunks.
//
// For each chunk, the algorithm's list is built on the staging buffers instead of DATA and INPUT, with copies before
// and after it. Chunks alternate between the two halves of a staging buffer, so that a rank copies the next chunk in
// while others still copy the last one out. Independent of the algorithms.
#include "comm/collectives/steps.h"

// How a kind of operation divides the staging buffer: blocks of input, then blocks of output, each with one chunk of
// data.
typedef struct staging {
    const mu_algorithm *algorithm;
    const mu_problem *problem;
    int in, out;          // number of blocks; in place: 1 and 0
    int64_t total, piece; // elements of a whole block, and of its chunk in the staging buffer
    int64_t base;         // first element of the half in use
    int64_t at, n;        // the current chunk: first element and length
    int64_t *counts;      // all-gather: every rank's count in this chunk
    mu_steps list;        // the steps of this chunk
} staging;

static staging staging_of(const mu_algorithm *algorithm, const mu_problem *problem)
{
    const bool many_in = problem->kind == MU_KIND_ALL_TO_ALL || problem->kind == MU_KIND_REDUCE_SCATTER;
    const bool many_out = problem->kind == MU_KIND_ALL_TO_ALL || problem->kind == MU_KIND_ALL_GATHER;
    const bool in_place = problem->kind == MU_KIND_ALL_REDUCE || problem->kind == MU_KIND_BROADCAST;
    const int64_t half = (int64_t)(MU_STAGING_BYTES / 2 / problem->element), line = (int64_t)(64 / problem->element);
    staging s = {.algorithm = algorithm,
                 .problem = problem,
                 .in = many_in ? problem->ranks : 1,
                 .out = in_place   ? 0
                        : many_out ? problem->ranks
                                   : 1,
                 .total = problem->count};
    for (int i = 0; problem->counts != NULL && i < problem->ranks; i++)
        s.total = MU_MAX(s.total, problem->counts[i]);
    s.piece = half / (s.in + s.out) / line * line;
    return s;
}

static int64_t part_left(const staging *s, int64_t total) { return MU_MAX(MU_MIN(total - s->at, s->n), 0); }

// block_part returns how many elements of block `i` this chunk has; block_begin where the block begins in DATA or
// INPUT.
static int64_t block_part(const staging *s, bool input, int i)
{
    if (s->problem->kind == MU_KIND_ALL_GATHER)
        return part_left(s, s->problem->counts[input ? s->problem->rank : i]);
    return s->n;
}

static int64_t block_begin(const staging *s, bool input, int i)
{
    if (s->problem->kind == MU_KIND_ALL_GATHER)
        return input ? 0 : mu__block_at(s->problem, i);
    return i * s->total;
}

static mu_status copy_in(const staging *s, mu_steps *out)
{
    const mu_area from = s->out == 0 ? MU_AREA_DATA : MU_AREA_INPUT;
    const bool silent = s->problem->kind == MU_KIND_BROADCAST && s->problem->rank != s->problem->root;
    for (int i = 0; !silent && i < s->in; i++)
        MU_TRY(mu__add_copy(out, s->problem->rank, from, block_begin(s, true, i) + s->at, MU_AREA_STAGING,
                            s->base + i * s->piece, block_part(s, true, i)));
    return mu__add_plain(out, MU_STEP_BARRIER);
}

// The algorithm has packed the blocks of an all-gather's chunk without gaps.
static mu_status copy_out(const staging *s, mu_steps *out)
{
    int64_t from = s->base + (s->out == 0 ? 0 : s->in * s->piece);
    for (int i = 0; i < MU_MAX(s->out, 1); i++) {
        const int64_t n = block_part(s, false, i);
        MU_TRY(mu__add_copy(out, s->problem->rank, MU_AREA_STAGING, from, MU_AREA_DATA,
                            block_begin(s, false, i) + s->at, n));
        from += n;
    }
    return MU_OK;
}

static void use_staging(const staging *s, mu_area *area, int64_t *at)
{
    const bool input = *area == MU_AREA_INPUT;
    if (*area != MU_AREA_DATA && *area != MU_AREA_INPUT)
        return;
    *at += s->base + (input || s->out == 0 ? 0 : s->in * s->piece);
    *area = MU_AREA_STAGING;
}

// The algorithm's list expects blocks `n` elements apart. copy_in places them `piece` elements apart; add_pieces sets
// `piece` to `n`, so a shorter last chunk is packed too.
static mu_status add_piece(staging *s, mu_steps *out)
{
    mu_problem part = *s->problem;
    part.count = s->problem->kind == MU_KIND_ALL_GATHER ? part_left(s, s->problem->count) : s->n;
    part.counts = s->counts;
    for (int i = 0; s->counts != NULL && i < part.ranks; i++)
        s->counts[i] = part_left(s, s->problem->counts[i]);
    s->list.n = 0;
    s->list.rank = part.rank;
    MU_TRY(s->algorithm->build(&part, &s->list));
    for (size_t i = 0; i < s->list.n; i++) {
        mu_step step = s->list.items[i];
        use_staging(s, &step.from, &step.from_at);
        use_staging(s, &step.to, &step.to_at);
        if (step.kind != MU_STEP_RENDEZVOUS)
            MU_TRY(mu__add_step(out, step));
    }
    out->scratch = MU_MAX(out->scratch, s->list.scratch);
    return MU_OK;
}

static mu_status add_pieces(staging *s, mu_steps *out)
{
    const int64_t half = (int64_t)(MU_STAGING_BYTES / 2 / s->problem->element);
    MU_TRY(mu__add_plain(out, MU_STEP_RENDEZVOUS));
    for (int chunk = 0; s->at < s->total; chunk++) {
        s->base = chunk % 2 * half;
        s->n = MU_MIN(s->piece, s->total - s->at);
        s->piece = s->n;
        MU_TRY(copy_in(s, out));
        MU_TRY(add_piece(s, out));
        MU_TRY(copy_out(s, out));
        s->at += s->n;
    }
    return MU_OK;
}

mu_status mu__build_staged(const mu_algorithm *algorithm, const mu_problem *problem, mu_steps *out)
{
    staging s = staging_of(algorithm, problem);
    mu_status status = MU_RESOURCE_EXHAUSTED;
    if (problem->counts != NULL && (s.counts = mu__calloc((size_t)problem->ranks, sizeof *s.counts)) == NULL)
        goto out;
    MU_GO(add_pieces(&s, out));
out:
    mu__free(s.counts);
    mu__steps_free(&s.list);
    return status;
}
