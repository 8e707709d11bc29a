// What rows that take indices share.
#ifndef MU_SRC_OPS_INDEX_H
#define MU_SRC_OPS_INDEX_H

#include "ops/loops.h"

int64_t mu__index_at(const mu_view *indices, int64_t i);
// mu__indices_of writes n of them from `first` on; mu__indices_in_place returns them where they are if they are int64,
// else copied.
void mu__indices_of(const mu_view *indices, int64_t first, int64_t n, int64_t *values);
const int64_t *mu__indices_in_place(const mu_view *indices, int64_t first, int64_t n, int64_t *copied);
mu_status mu__need_indices(const mu_infer *infer, int i);  // input i is int32 or int64
// mu__wide_indices casts int8 and int16 to the int32 that rows take; everything else (NULL too) stays.
mu_tensor *mu__wide_indices(mu_tensor *indices);
// mu__index_error says that element i of the indices is outside an axis of n.
mu_status mu__index_error(const mu_kernel *k, int64_t i, int64_t index, int64_t n);

// mu__indices_inside tells whether the n indices from `first` on are in [0, limit); mu__check_indices makes the error
// of the first one that is not.
bool mu__indices_inside(const mu_view *indices, int64_t first, int64_t n, int64_t limit);
mu_status mu__check_indices(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit);
// mu__gather_rows copies from each of `rows` rows of x, of so many slices of so many bytes, the m slices that indices
// from `first` on name, which are checked already. left: rows of x that are there, from the first one on; stream: as in
// mu__copy_blocks. mu__accumulate_at combines n slices of `inner` elements into those of `into` that places number, in
// order.
void mu__gather_rows(const mu_view *indices, int64_t first, const void *x, int64_t slices, size_t bytes, void *out,
                     int64_t m, int64_t rows, int64_t left, bool stream);
void mu__accumulate_at(mu_combine combine, mu_dtype dtype, void *into, const int64_t *places, const void *from,
                       int64_t inner, int64_t n);

// Places of single numbers in a tensor: checked already, or given by indices of one or two columns for axes of these
// dims, whose test costs less where the place is used than in a pass of its own.
typedef enum mu_index_kind {
    MU_INDICES_CHECKED, MU_INDICES_I64, MU_INDICES_I32, MU_INDICES_I64_2, MU_INDICES_I32_2
} mu_index_kind;
typedef struct mu_scatter_indices {
    mu_index_kind kind;
    const void *indices;
    uint64_t dims[2];
} mu_scatter_indices;

// The i-th place; false if it is outside. Inline, with a constant for the kind, so that loops hold one case each.
static inline __attribute__((always_inline)) bool mu__index_offset(mu_index_kind kind, const mu_scatter_indices *places,
                                                                   int64_t i,
                                                                   uint64_t *at)
{
    const int64_t *wide = places->indices;
    const int32_t *narrow = places->indices;
    const bool two = kind == MU_INDICES_I64_2 || kind == MU_INDICES_I32_2;
    const int64_t j = two ? 2 * i : i;
    const bool is_narrow = kind == MU_INDICES_I32 || kind == MU_INDICES_I32_2;
    // Seen as unsigned, what is negative is large.
    const uint64_t row = (uint64_t)(is_narrow ? narrow[j] : wide[j]);
    const uint64_t column = !two ? 0 : (uint64_t)(is_narrow ? narrow[j + 1] : wide[j + 1]);
    *at = two ? row * places->dims[1] + column : row;
    return kind == MU_INDICES_CHECKED || (row < places->dims[0] && (!two || column < places->dims[1]));
}

// mu__scatter_numbers combines (a mu_combine, or MU_SCATTER_PUT: puts) n numbers in order into those of `into` that
// places name, and returns how many it did before the first place that is outside; 0 for types it has no loop for.
enum { MU_SCATTER_PUT = -1 };
int64_t mu__scatter_numbers(int combine, mu_dtype dtype, void *into, const mu_scatter_indices *places, const void *from,
                            int64_t n);

// mu__segment_neutral is what a segment row's result holds before its first row (segment.c).
double mu__segment_neutral(const mu_op *op, mu_dtype dtype);

#endif
