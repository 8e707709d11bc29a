// Lists for ranks that cannot address each other's data: piece by piece it passes through their staging buffers.
//
// An algorithm's own list is built for a piece and made to work on the stages in place of DATA and INPUT; copies
// in and out go around it. Two halves of the stage take turns, so a rank copies the next piece in while others
// still copy the last one out. Knows nothing of what the algorithms do.
#include "comm/steps.h"

// How a kind of operation uses the stage: blocks of input, then blocks of output, each of one piece.
typedef struct staging {
    const mu_algorithm *algorithm;
    const mu_problem *problem;
    int in, out;          // blocks; in place: one, and none
    int64_t total, piece; // elements of a block, and of its part in the stage
    int64_t base;         // where the half in turn begins
    int64_t at, n;        // the piece in turn
    int64_t *counts;      // all-gather: of every rank in the piece
    mu_steps list;        // of the piece
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

// How much of block `i` is in this piece, and where the block begins in DATA or INPUT.
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

// The pieces of an all-gather's blocks stand close together in the stage, as the algorithm has put them.
static mu_status copy_out(const staging *s, mu_steps *out)
{
    int64_t from = s->base + (s->out == 0 ? 0 : s->in * s->piece);
    for (int i = 0; i < MU_MAX(s->out, 1); i++) {
        const int64_t n = block_part(s, false, i);
        MU_TRY(mu__add_copy(out, s->problem->rank, MU_AREA_STAGING, from, MU_AREA_DATA,
                            block_begin(s, false, i) + s->at,
                            n));
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

// The list of a piece has its blocks `n` apart, and so has the stage: the copies in follow each other at `piece`
// only where n is that; a last, shorter piece is packed.
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
    for (int turn = 0; s->at < s->total; turn++) {
        s->base = turn % 2 * half;
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
