// What rows that take indices share.
#ifndef MU_SRC_OPS_INDEX_H
#define MU_SRC_OPS_INDEX_H

#include "ops/loops.h"

int64_t mu__index_at(const mu_view *indices, int64_t i);
// mu__indices_of writes n of them from `first` on.
void mu__indices_of(const mu_view *indices, int64_t first, int64_t n, int64_t *values);
mu_status mu__need_indices(const mu_infer *infer, int i);  // input i is int32 or int64
// mu__index_error says that element i of the indices is outside an axis of n.
mu_status mu__index_error(const mu_kernel *k, int64_t i, int64_t index, int64_t n);

// mu__indices_inside tells whether the n indices from `first` on are in [0, limit); mu__check_indices makes the error
// of the first one that is not.
bool mu__indices_inside(const mu_view *indices, int64_t first, int64_t n, int64_t limit);
mu_status mu__check_indices(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit);
// mu__pick_rows copies from each of `rows` rows of x, of so many slices of so many bytes, the m slices that indices
// from `first` on name, which are checked already. left: rows of x that are there, from the first one on; stream: as in
// mu__copy_blocks. mu__accumulate_at combines n slices of `inner` elements into those of `into` that places number, in
// order.
void mu__pick_rows(const mu_view *indices, int64_t first, const void *x, int64_t slices, size_t bytes, void *out,
                   int64_t m, int64_t rows, int64_t left, bool stream);
void mu__accumulate_at(mu_combine combine, mu_dtype dtype, void *into, const int64_t *places, const void *from,
                       int64_t inner, int64_t n);

// mu__segment_neutral is what a segment row's result holds before its first row (segment.c).
double mu__segment_neutral(const mu_op *op, mu_dtype dtype);

#endif
