// Shared by ops that take indices.
#ifndef MU_SRC_OPS_INDEX_H
#define MU_SRC_OPS_INDEX_H

#include "ops/core/loops.h"

int64_t mu__index_at(const mu_view *indices, int64_t i);
// mu__indices_of writes n indices, starting at `first`, as int64. mu__indices_in_place returns a pointer to them if
// they are int64 already; otherwise it converts them into `copied`.
void mu__indices_of(const mu_view *indices, int64_t first, int64_t n, int64_t *values);
const int64_t *mu__indices_in_place(const mu_view *indices, int64_t first, int64_t n, int64_t *copied);
mu_status mu__need_indices(const mu_infer *infer, int i); // error unless input i is int32 or int64
// mu__infer_parts checks the resources of an op on the rows of a variable, or of the parts of one in their order: one
// or more, which agree in type and in the shape of a row (ops/state/gather_variable.c).
mu_status mu__infer_parts(const mu_infer *infer);
// mu__wide_indices casts int8 and int16 to int32, which the ops require; returns anything else (NULL too) unchanged.
mu_tensor *mu__wide_indices(mu_tensor *indices);
// mu__index_error reports that element i of the indices is outside an axis of size n; mu__row_error, for an op on a
// variable of n rows.
mu_status mu__index_error(const mu_kernel *k, int64_t i, int64_t index, int64_t n);
mu_status mu__row_error(const char *op, int64_t i, int64_t index, int64_t n);

// mu__indices_inside returns whether the n indices from `first` on are in [0, limit); mu__check_indices reports the
// first one that is not, and mu__check_each_index does so one by one, for plain loops.
bool mu__indices_inside(const mu_view *indices, int64_t first, int64_t n, int64_t limit);
mu_status mu__check_indices(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit);
mu_status mu__check_each_index(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit);
// mu__gather_rows copies m slices from each of `rows` rows of x, selected by the indices from `first` on, which the
// caller has checked. A row of x has `slices` slices of `bytes` bytes. mu__accumulate_at combines n slices of `inner`
// elements, in order, into the slices of `into` that `positions` selects.
void mu__gather_rows(const mu_view *indices, int64_t first, const void *x, int64_t slices, size_t bytes, void *out,
                     int64_t m, int64_t rows);
void mu__accumulate_at(mu_combine combine, mu_dtype dtype, void *into, const int64_t *positions, const void *from,
                       int64_t inner, int64_t n);

// Positions of single elements in a tensor. Either flat offsets that are checked already, or indices of one or two
// columns with the sizes of their axes; those are checked at the moment of use, which is cheaper than a separate pass.
typedef enum mu_index_kind {
    MU_INDICES_CHECKED,
    MU_INDICES_I64,
    MU_INDICES_I32,
    MU_INDICES_I64_2,
    MU_INDICES_I32_2
} mu_index_kind;
typedef struct mu_scatter_indices {
    mu_index_kind kind;
    const void *indices;
    uint64_t dims[2];
} mu_scatter_indices;

// Computes the i-th position; returns false if it is out of range. Inlined with a constant `kind`, so that each loop is
// specialised.
static inline __attribute__((always_inline)) bool
mu__index_offset(mu_index_kind kind, const mu_scatter_indices *positions, int64_t i, uint64_t *at)
{
    const int64_t *wide = positions->indices;
    const int32_t *narrow = positions->indices;
    const bool two = kind == MU_INDICES_I64_2 || kind == MU_INDICES_I32_2;
    const int64_t j = two ? 2 * i : i;
    const bool is_narrow = kind == MU_INDICES_I32 || kind == MU_INDICES_I32_2;
    // As unsigned, a negative index is large, so one comparison suffices.
    const uint64_t row = (uint64_t)(is_narrow ? narrow[j] : wide[j]);
    const uint64_t column = !two ? 0 : (uint64_t)(is_narrow ? narrow[j + 1] : wide[j + 1]);
    *at = two ? row * positions->dims[1] + column : row;
    return kind == MU_INDICES_CHECKED || (row < positions->dims[0] && (!two || column < positions->dims[1]));
}

// mu__scatter_numbers combines n elements, in order, into the elements of `into` at the given positions (mu_combine;
// MU_SCATTER_PUT overwrites). Returns how many it wrote before the first position out of range; 0 for types without a
// loop.
enum { MU_SCATTER_PUT = -1 };
int64_t mu__scatter_numbers(int combine, mu_dtype dtype, void *into, const mu_scatter_indices *positions,
                            const void *from, int64_t n);

// mu__segment_neutral is the initial value of a segment reduction's result (segment.c).
double mu__segment_neutral(const mu_op *op, mu_dtype dtype);

#endif
