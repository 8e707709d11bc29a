// What rows that take indices share.
#ifndef MU_SRC_OPS_INDEX_H
#define MU_SRC_OPS_INDEX_H

#include "ops/op.h"

int64_t mu__index_at(const mu_view *indices, int64_t i);
mu_status mu__need_indices(const mu_infer *infer, int i);  // input i is int32 or int64
// mu__index_error says that element i of the indices is outside an axis of n.
mu_status mu__index_error(const mu_kernel *k, int64_t i, int64_t index, int64_t n);

// mu__segment_neutral is what a segment row's result holds before its first row (segment.c).
double mu__segment_neutral(const mu_op *op, mu_dtype dtype);

#endif
