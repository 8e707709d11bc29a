// Walking several tensors element by element: broadcasting as strides, and work shared by a team of threads.
//
// A walk describes the output's elements as nested loops. Neighbouring axes are merged wherever all operands allow it,
// so the innermost loop is long and every operand has stride 1 or 0 in it. Independent of what a loop computes.
#ifndef MU_SRC_OPS_LOOPS_H
#define MU_SRC_OPS_LOOPS_H

#include "kernels/copy_fill.h"
#include "kernels/kernels.h"
#include "ops/core/op.h"

// Elements from which a kernel shares its work with the team.
#define MU_PARALLEL_FROM 65536

enum { MU_WALK_OPERANDS = 3 };
typedef struct mu_walk {
    int rank, n; // at least one axis; operands
    int64_t dims[MU_MAX_RANK];
    int64_t strides[MU_WALK_OPERANDS][MU_MAX_RANK]; // in elements; 0 where an operand is broadcast
} mu_walk;

// mu__walk_make describes out's elements read from n operands that broadcast to it.
void mu__walk_make(mu_walk *walk, const mu_shape *out, int n, const mu_view *operands);

// mu__walk_strided is the same for operands with strides of their own (in elements, per axis of out).
void mu__walk_strided(mu_walk *walk, const mu_shape *out, int n, const int64_t (*strides)[MU_MAX_RANK]);

// Computes one row: `count` elements from out_at on. Operand i starts at at[i] with stride walk->strides[i][rank - 1].
typedef void mu_walk_row(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t count);
void mu__walk_run(const mu_walk *walk, const mu_team *team, mu_walk_row *row, void *arg);

// mu__walk_blocks is the same for elements that are blocks of `block` units each.
void mu__walk_blocks(const mu_walk *walk, const mu_team *team, int64_t block, mu_walk_row *row, void *arg);

// mu__team_for returns the team to use for this amount of work: one thread if waking the others takes longer than the
// work.
const mu_team *mu__team_for(const mu_team *team, int64_t work);

// mu__share_range calls fn(arg, begin, end) so that the calls cover [0, n). It uses the team if `work` (total cost, in
// elements) is large, else the calling thread. No part is smaller than `grain` items.
void mu__share_range(const mu_team *team, int64_t n, int64_t grain, int64_t work,
                     void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

// mu__in_f32 computes n elements of 16-bit floats through float32, in chunks that stay in the first-level cache: it
// converts the n_in operands, calls `loop`, and converts the result. step[i]: 1, or 0 for a scalar. Results of type
// bool are not converted.
typedef struct mu_f32_run {
    const float *in[MU_WALK_OPERANDS];
    void *out; // float, or bool
    int64_t n;
} mu_f32_run;
typedef struct mu_float16_run {
    mu_dtype in_dtype, out_dtype;
    int n_in;
    const void *in[MU_WALK_OPERANDS];
    int64_t step[MU_WALK_OPERANDS], n;
    void *out;
} mu_float16_run;
void mu__in_f32(const mu_float16_run *run, void (*loop)(void *arg, const mu_f32_run *run), void *arg);

// mu__bool_reduce_row returns whether any, or all, of n bools are true.
bool mu__bool_reduce_row(bool all, const uint8_t *x, int64_t n);

// mu__accumulate combines n elements of `from` into `into`, in order.
typedef enum mu_combine {
    MU_COMBINE_ADD,
    MU_COMBINE_MIN,
    MU_COMBINE_MAX,
    MU_COMBINE_MULTIPLY,
    MU_COMBINE_SUBTRACT
} mu_combine;
void mu__accumulate(mu_combine combine, mu_dtype dtype, void *into, const void *from, int64_t n);

#endif
