// Shared by reductions: defined in reduce.c, used by argmax.c too.
#ifndef MU_SRC_OPS_REDUCE_H
#define MU_SRC_OPS_REDUCE_H

#include "ops/core/op.h"

#define REDUCE_INLINE static inline __attribute__((always_inline))

// Most bytes of adjacent columns that are reduced together.
enum { MU_FOLD_BYTES = 8192 };

// mu__columns_at_once returns how many of `inner` columns make one block: as many as possible while each member of the
// team still gets two blocks.
int64_t mu__columns_at_once(int64_t outer, int64_t inner, int64_t most, const mu_team *team);

// mu__check_axis checks that the first input has the axis. mu__axis_of normalises an axis to be non-negative; returns
// -1 with an error on record if it is out of range.
mu_status mu__check_axis(const mu_infer *infer, int64_t axis);
int mu__axis_of(const mu_tensor *x, int axis, const char *name);

// mu__check_extremes fails if the axis along which extremes are looked for is empty, but rows of it are there.
mu_status mu__check_extremes(const mu_op *op, const mu_shape *shape, int axis);

#endif
