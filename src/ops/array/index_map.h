// Index maps of ops that move elements axis by axis, for their lowering; and ranges of slices.
#ifndef MU_SRC_OPS_INDEX_MAP_H
#define MU_SRC_OPS_INDEX_MAP_H

#include "ops/core/attrs.h"
#include "ops/core/op.h"

// mu__map_axis writes, for each of n_out output indices of an axis, which of the n input indices it reads; -1: the
// constant.
void mu__map_axis(const mu_op *op, const void *attrs, int axis, int64_t n, int64_t n_out, int64_t *map);
double mu__map_constant(const mu_op *op, const void *attrs);

// A Python range over one axis (slice.c).
typedef struct mu_slice_range {
    int64_t start, count, stride;
} mu_slice_range;
// mu__slice_range resolves the range for an axis of n elements. Errors: an exact range that leaves the axis.
mu_status mu__slice_range(const mu_slice_attrs *attrs, int axis, int64_t n, mu_slice_range *range);
// mu__slice_unknown returns the result's size for an axis whose size is unknown in a trace.
int64_t mu__slice_unknown(const mu_slice_attrs *attrs, int axis);
// mu__slice_view is the op's view_at (see op.h).
bool mu__slice_view(const void *attrs, const mu_spec *in, const mu_spec *out, size_t *offset);

#endif
