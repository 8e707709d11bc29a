// Attribute structs of the mathematical ops. Engine passes and emitters read them.
#ifndef MU_SRC_OPS_ATTRS_H
#define MU_SRC_OPS_ATTRS_H

#include "ops/core/op.h"

#include <muster/ops.h>

typedef struct mu_alpha_attrs { // leaky_relu, elu
    double alpha;
} mu_alpha_attrs;

typedef struct mu_cast_attrs {
    mu_dtype dtype;
} mu_cast_attrs;

typedef struct mu_shape_attrs { // reshape (one dimension may be -1), broadcast_to
    mu_shape shape;
} mu_shape_attrs;

typedef struct mu_axis_attrs { // concat, expand_dims, argmax, …: not negative
    int64_t axis;
} mu_axis_attrs;

typedef struct mu_axes_attrs { // transpose (the permutation), squeeze, reverse, dim_size
    mu_ints axes;
} mu_axes_attrs;

typedef struct mu_reduce_attrs { // axes ascending, not negative
    mu_ints axes;
    bool keep_dims;
} mu_reduce_attrs;

// The arguments of a call of mu_reduce_sum or another reduction, with the axes spelled out. Returns false on error.
typedef struct mu_reduce_call {
    mu_tensor *x;
    int n;
    const int *axes; // [n]
    bool keep_dims;
    mu_axes given;
} mu_reduce_call;
bool mu__reduce_call_take(const mu_reduction_args *given, const char *function, mu_reduce_call *out);
// The axes of a call, or all of x. They are valid as long as `given`.
void mu__axes_or_all(const mu_tensor *x, const mu_axes *given, int *n, const int **axes);

// mu__reduce_over checks and sorts the axes, then applies a reduction op with these attributes.
mu_tensor *mu__reduce_over(const mu_op *op, mu_tensor *x, int n, const int *axes, bool keep_dims);

// mu__reduce_about applies reduce_squares_about or reduce_exp_about to x - center, where center has x's shape with size
// 1 at the reduced axes. Falls back to separate ops where the fused op does not apply.
mu_tensor *mu__reduce_about(const mu_op *op, mu_tensor *x, mu_tensor *center, int n, const int *axes, bool keep_dims);

typedef struct mu_cumulate_attrs {
    int64_t axis;
    bool exclusive, reverse;
} mu_cumulate_attrs;

typedef struct mu_part_attrs { // concat_part: the gradient of one input of concat
    int64_t axis, index;
} mu_part_attrs;

// One entry per axis, as NumPy's a[begin:end:stride]; a set bit in a mask means that the bound is absent. With `exact`
// the bounds are not clipped: a range that leaves the axis is an error.
typedef struct mu_slice_attrs {
    mu_ints begin, end, strides;
    int64_t begin_mask, end_mask;
    bool exact;
} mu_slice_attrs;

typedef enum mu_pad_mode { MU_PAD_WITH_CONSTANT, MU_PAD_REFLECT, MU_PAD_SYMMETRIC } mu_pad_mode;
typedef struct mu_pad_attrs {
    mu_ints before, after; // one entry per axis
    int64_t mode;          // mu_pad_mode
    double value;
} mu_pad_attrs;

typedef struct mu_counts_attrs { // tile, repeat: count per axis; roll: shift per axis
    mu_ints counts;
} mu_counts_attrs;

typedef struct mu_gather_attrs {
    int64_t axis, batch_dims;
} mu_gather_attrs;

typedef struct mu_one_hot_attrs {
    int64_t depth;
    mu_dtype dtype;
} mu_one_hot_attrs;

typedef struct mu_top_k_attrs {
    int64_t k;
} mu_top_k_attrs;

typedef struct mu_sort_attrs { // along the last axis
    bool descending;
} mu_sort_attrs;

typedef struct mu_search_attrs {
    bool right;
} mu_search_attrs;

typedef struct mu_segment_attrs {
    int64_t n;
} mu_segment_attrs;

typedef struct mu_text_attrs { // check_numerics, assert, print
    char text[MU_ATTR_MESSAGE_BYTES];
} mu_text_attrs;

typedef struct mu_random_attrs { // low and high: integers only
    mu_shape shape;
    mu_dtype dtype;
    int64_t low, high;
} mu_random_attrs;

typedef struct mu_solve_attrs { // triangular_solve
    bool lower, adjoint;
} mu_solve_attrs;

#endif
