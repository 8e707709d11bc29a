// What rows that take indices share.
#ifndef MU_SRC_OPS_INDEX_H
#define MU_SRC_OPS_INDEX_H

#include "ops/op.h"

int64_t mu__index_at(const mu_view *indices, int64_t i);
mu_status mu__need_indices(const mu_infer *infer, int i);  // input i is int32 or int64
// mu__index_error says that element i of the indices is outside an axis of n.
mu_status mu__index_error(const mu_kernel *k, int64_t i, int64_t index, int64_t n);

// mu__check_indices makes that error of the first of the n indices from `first` on that is not in [0, limit).
mu_status mu__check_indices(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit);
// mu__pick copies the n slices of x, of so many bytes each, that indices from `first` on name, which are checked
// already. stream: as in mu__copy_blocks.
void mu__pick(const mu_view *indices, int64_t first, const void *x, size_t bytes, void *out, int64_t n, bool stream);

// mu__segment_neutral is what a segment row's result holds before its first row (segment.c).
double mu__segment_neutral(const mu_op *op, mu_dtype dtype);

#endif
