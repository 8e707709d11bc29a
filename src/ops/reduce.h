// What reductions share: reduce.c gives it to argmax.c.
#ifndef MU_SRC_OPS_REDUCE_H
#define MU_SRC_OPS_REDUCE_H

#include "ops/op.h"

#define REDUCE_INLINE static inline __attribute__((always_inline))

// At most so many bytes of columns are reduced side by side.
enum { MU_FOLD_BYTES = 8192 };

// mu__columns_at_once gives how many of `inner` columns are one block: as many as may be while there are two blocks for
// each member of the team.
int64_t mu__columns_at_once(int64_t outer, int64_t inner, int64_t most, const mu_team *team);

// mu__minmax_of_float16 gives the greatest, or least, of n 16-bit floats; a NaN makes it one.
uint16_t mu__minmax_of_float16(mu_dtype dtype, bool least, const uint16_t *x, int64_t n);

// mu__check_axis: whether the first input has the axis. mu__axis_of gives the axis as a row wants it, or -1 with an
// error on record.
mu_status mu__check_axis(const mu_infer *infer, int64_t axis);
int mu__axis_of(const mu_tensor *x, int axis, const char *name);

#endif
