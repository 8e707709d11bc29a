// Shared by the builders of step lists: appending steps, dividing data, and building blocks (steps.c, hosts.c).
//
// Unless an owner is given, it is the rank that runs the list. Independent of transports.
#ifndef MU_SRC_COMM_STEPS_H
#define MU_SRC_COMM_STEPS_H

#include "comm/comm.h"

mu_status mu__add_step(mu_steps *out, mu_step step);
mu_status mu__add_plain(mu_steps *out, mu_step_kind kind);
mu_status mu__add_send(mu_steps *out, int peer, mu_area from, int64_t at, int64_t count);
mu_status mu__add_recv(mu_steps *out, int peer, mu_area to, int64_t at, int64_t count);
mu_status mu__add_copy(mu_steps *out, int peer, mu_area from, int64_t from_at, mu_area to, int64_t to_at,
                       int64_t count);
// Reduces into DATA; the received parts are consecutive at the start of SCRATCH.
mu_status mu__add_reduce(mu_steps *out, int64_t at, int64_t count, int parts, int own_operand, bool last);

// A part of [0, n): first element and length.
typedef struct mu_part {
    int64_t at, count;
} mu_part;
mu_part mu__part_of(int64_t n, int64_t grain, int index, int count);

// The slice of DATA that a rank reduces; slices begin on different cache lines.
mu_part mu__slice_of(const mu_problem *problem, int rank);

// The first element of a rank's block in the result of an all-gather.
int64_t mu__block_at(const mu_problem *problem, int rank);

mu_status mu__all_reduce_hierarchical(const mu_problem *problem, mu_steps *out);
mu_status mu__all_reduce_hierarchical_ring(const mu_problem *problem, mu_steps *out);
mu_status mu__all_reduce_chain(const mu_problem *problem, mu_steps *out);
mu_status mu__all_gather_hierarchical(const mu_problem *problem, mu_steps *out);
mu_status mu__broadcast_hierarchical(const mu_problem *problem, mu_steps *out);
mu_status mu__all_to_all_hierarchical(const mu_problem *problem, mu_steps *out);
mu_status mu__reduce_scatter_hierarchical(const mu_problem *problem, mu_steps *out);
mu_status mu__reduce_scatter_chain(const mu_problem *problem, mu_steps *out);
mu_status mu__permute_hierarchical(const mu_problem *problem, mu_steps *out);

#endif
