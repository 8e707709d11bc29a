// Appending steps to a list, and dividing data into parts: shared by all builders.
//
// Steps that move no data are omitted, on both sides alike. Independent of algorithms.
#include "comm/collectives/steps.h"

enum { LINE_BYTES = 64 };

mu_status mu__add_step(mu_steps *out, mu_step step)
{
    const bool moves = step.kind != MU_STEP_RENDEZVOUS && step.kind != MU_STEP_ANNOUNCE &&
                       step.kind != MU_STEP_BARRIER && step.kind != MU_STEP_FLUSH;
    return moves && step.count == 0 ? MU_OK : MU_PUSH(out, step);
}

mu_status mu__add_plain(mu_steps *out, mu_step_kind kind) { return mu__add_step(out, (mu_step){.kind = kind}); }

mu_status mu__add_send(mu_steps *out, int peer, mu_area from, int64_t at, int64_t count)
{
    return mu__add_step(
        out,
        (mu_step){.kind = MU_STEP_SEND, .peer = peer, .owner = out->rank, .from = from, .from_at = at, .count = count});
}

mu_status mu__add_recv(mu_steps *out, int peer, mu_area to, int64_t at, int64_t count)
{
    if (to == MU_AREA_SCRATCH)
        out->scratch = MU_MAX(out->scratch, at + count);
    return mu__add_step(
        out, (mu_step){.kind = MU_STEP_RECV, .peer = peer, .owner = out->rank, .to = to, .to_at = at, .count = count});
}

mu_status mu__add_copy(mu_steps *out, int peer, mu_area from, int64_t from_at, mu_area to, int64_t to_at, int64_t count)
{
    if (to == MU_AREA_SCRATCH)
        out->scratch = MU_MAX(out->scratch, to_at + count);
    if (to == MU_AREA_WINDOW)
        out->window = MU_MAX(out->window, to_at + count);
    return mu__add_step(out, (mu_step){.kind = MU_STEP_COPY,
                                       .peer = peer,
                                       .owner = out->rank,
                                       .from = from,
                                       .from_at = from_at,
                                       .to = to,
                                       .to_at = to_at,
                                       .count = count});
}

mu_status mu__add_reduce(mu_steps *out, int64_t at, int64_t count, int parts, int own_operand, bool last)
{
    return mu__add_step(out, (mu_step){.kind = MU_STEP_REDUCE,
                                       .owner = out->rank,
                                       .from = MU_AREA_SCRATCH,
                                       .to = MU_AREA_DATA,
                                       .to_at = at,
                                       .count = count,
                                       .parts = parts,
                                       .own_operand = own_operand,
                                       .last = last});
}

mu_part mu__part_of(int64_t n, int64_t grain, int index, int count)
{
    int64_t begin, end;
    mu__team_share(n, grain, index, count, &begin, &end);
    return (mu_part){.at = begin, .count = end - begin};
}

mu_part mu__slice_of(const mu_problem *problem, int rank)
{
    const int64_t grain = MU_MAX((int64_t)(LINE_BYTES / problem->element), 1);
    return mu__part_of(problem->count, grain, rank, problem->ranks);
}

int64_t mu__block_at(const mu_problem *problem, int rank)
{
    int64_t at = 0;
    for (int i = 0; i < rank; i++)
        at += problem->counts[i];
    return at;
}
