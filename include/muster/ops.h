// Mathematics on tensors, under TensorFlow's names (those of tf.nn are in muster/nn.h).
//
// Every function works eagerly and while a function is traced, has a gradient where mathematics has one, and
// broadcasts as NumPy does. Types are never converted silently: mu_cast does it. Negative axes count from the
// end. A trace may know some dimensions only as MU_UNKNOWN.
#ifndef MUSTER_OPS_H
#define MUSTER_OPS_H

#include <limits.h>
#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// Stands for every axis where a function takes one.
#define MU_ALL_AXES INT_MIN

// ---- Two tensors, element by element ------------------------------------------------------------

MU_API mu_tensor *mu_add(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_subtract(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_multiply(mu_tensor *a, mu_tensor *b);
// mu_divide is true division: integers of 32 and 64 bits give float64, smaller ones float32.
MU_API mu_tensor *mu_divide(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_divide_no_nan(mu_tensor *a, mu_tensor *b);  // 0 where b is 0
// Errors (both): INVALID_ARGUMENT for an integer divided by zero.
MU_API mu_tensor *mu_floor_divide(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_mod(mu_tensor *a, mu_tensor *b);            // sign of b
MU_API mu_tensor *mu_pow(mu_tensor *x, mu_tensor *y);
MU_API mu_tensor *mu_maximum(mu_tensor *a, mu_tensor *b);        // a NaN on either side passes
MU_API mu_tensor *mu_minimum(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_squared_difference(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_atan2(mu_tensor *y, mu_tensor *x);

// Comparisons give bool.
MU_API mu_tensor *mu_equal(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_not_equal(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_less(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_less_equal(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_greater(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_greater_equal(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_logical_and(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_logical_or(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_logical_xor(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_logical_not(mu_tensor *x);

// mu_where picks from a where the condition (bool) holds, else from b; all three broadcast.
MU_API mu_tensor *mu_where(mu_tensor *condition, mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_clip_by_value(mu_tensor *x, mu_tensor *low, mu_tensor *high);

// ---- One tensor, element by element -------------------------------------------------------------

// mu_cast converts; floats truncate to integers. A tensor of that type already is returned itself.
MU_API mu_tensor *mu_cast(mu_tensor *x, mu_dtype dtype);
MU_API mu_tensor *mu_abs(mu_tensor *x);
MU_API mu_tensor *mu_neg(mu_tensor *x);
MU_API mu_tensor *mu_sign(mu_tensor *x);
MU_API mu_tensor *mu_square(mu_tensor *x);
MU_API mu_tensor *mu_floor(mu_tensor *x);
MU_API mu_tensor *mu_ceil(mu_tensor *x);
MU_API mu_tensor *mu_round(mu_tensor *x);  // halves to even
MU_API mu_tensor *mu_exp(mu_tensor *x);
MU_API mu_tensor *mu_expm1(mu_tensor *x);
MU_API mu_tensor *mu_log(mu_tensor *x);
MU_API mu_tensor *mu_log1p(mu_tensor *x);
MU_API mu_tensor *mu_sqrt(mu_tensor *x);
MU_API mu_tensor *mu_rsqrt(mu_tensor *x);
MU_API mu_tensor *mu_reciprocal(mu_tensor *x);
MU_API mu_tensor *mu_erf(mu_tensor *x);
MU_API mu_tensor *mu_erfc(mu_tensor *x);
MU_API mu_tensor *mu_lgamma(mu_tensor *x);
MU_API mu_tensor *mu_digamma(mu_tensor *x);
// The derivative of digamma of so high an order, 0 to 100: 0 is digamma itself. Whole numbers up to 0 are poles:
// infinite for odd orders, NaN for even ones.
MU_API mu_tensor *mu_polygamma(int order, mu_tensor *x);
MU_API mu_tensor *mu_sin(mu_tensor *x);
MU_API mu_tensor *mu_cos(mu_tensor *x);
MU_API mu_tensor *mu_tan(mu_tensor *x);
MU_API mu_tensor *mu_asin(mu_tensor *x);
MU_API mu_tensor *mu_acos(mu_tensor *x);
MU_API mu_tensor *mu_atan(mu_tensor *x);
MU_API mu_tensor *mu_sinh(mu_tensor *x);
MU_API mu_tensor *mu_cosh(mu_tensor *x);
MU_API mu_tensor *mu_tanh(mu_tensor *x);
MU_API mu_tensor *mu_asinh(mu_tensor *x);
MU_API mu_tensor *mu_acosh(mu_tensor *x);
MU_API mu_tensor *mu_atanh(mu_tensor *x);
MU_API mu_tensor *mu_sigmoid(mu_tensor *x);
MU_API mu_tensor *mu_is_nan(mu_tensor *x);
MU_API mu_tensor *mu_is_inf(mu_tensor *x);
MU_API mu_tensor *mu_is_finite(mu_tensor *x);
MU_API mu_tensor *mu_identity(mu_tensor *x);
MU_API mu_tensor *mu_stop_gradient(mu_tensor *x);
// mu_check_numerics returns x, or fails with INVALID_ARGUMENT and the message if it has a NaN or infinity.
MU_API mu_tensor *mu_check_numerics(mu_tensor *x, const char *message);
// mu_assert fails with INVALID_ARGUMENT and the message unless every element of the condition (bool) holds;
// mu_print writes label, a space and tensor to standard error. In a function both happen each time it runs. Of a
// message or label longer than 511 bytes the first 508 are kept, and "..." follows.
MU_API mu_status mu_assert(mu_tensor *condition, const char *message);
MU_API mu_status mu_print(mu_tensor *x, const char *label);

// ---- Reductions ---------------------------------------------------------------------------------

// Over one axis, which goes away, or MU_ALL_AXES. The order of summation is fixed by the shape alone.
MU_API mu_tensor *mu_reduce_sum(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_mean(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_max(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_min(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_prod(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_any(mu_tensor *x, int axis);   // bool
MU_API mu_tensor *mu_reduce_all(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_logsumexp(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_variance(mu_tensor *x, int axis);
MU_API mu_tensor *mu_reduce_std(mu_tensor *x, int axis);

// Over several axes (n 0: none, nothing is reduced); with keep_dims they stay with size 1.
MU_API mu_tensor *mu_reduce_sum_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_mean_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_max_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_min_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_prod_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_any_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_all_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_logsumexp_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_variance_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);
MU_API mu_tensor *mu_reduce_std_axes(mu_tensor *x, int n, const int *axes, bool keep_dims);

// Index of the first extreme along an axis, int64.
MU_API mu_tensor *mu_argmax(mu_tensor *x, int axis);
MU_API mu_tensor *mu_argmin(mu_tensor *x, int axis);
MU_API mu_tensor *mu_cumsum(mu_tensor *x, int axis, bool exclusive, bool reverse);
MU_API mu_tensor *mu_cumprod(mu_tensor *x, int axis, bool exclusive, bool reverse);

// ---- Shapes -------------------------------------------------------------------------------------

// mu_reshape keeps the elements' order; one dimension may be -1 and follows from the rest.
MU_API mu_tensor *mu_reshape(mu_tensor *x, int rank, const int64_t *dims);
// mu_transpose puts axis axes[i] of x at place i; NULL reverses all.
MU_API mu_tensor *mu_transpose(mu_tensor *x, const int *axes);
MU_API mu_tensor *mu_expand_dims(mu_tensor *x, int axis);
MU_API mu_tensor *mu_squeeze(mu_tensor *x, int axis);       // MU_ALL_AXES: every axis of size 1
MU_API mu_tensor *mu_concat(int n, mu_tensor *const *tensors, int axis);
MU_API mu_tensor *mu_stack(int n, mu_tensor *const *tensors, int axis);
// mu_split cuts an axis into n equal parts, mu_split_sizes into parts of given sizes (one may be -1);
// mu_unstack into its slices, without that axis. out gets n tensors.
MU_API mu_status mu_split(mu_tensor *x, int n, int axis, mu_tensor **out);
MU_API mu_status mu_split_sizes(mu_tensor *x, int n, const int64_t *sizes, int axis, mu_tensor **out);
MU_API mu_status mu_unstack(mu_tensor *x, int n, int axis, mu_tensor **out);
// mu_slice takes size[i] elements from begin[i] on, per axis; a size of -1 takes the rest. Where a slice, or a part
// of a split, lies in x in one piece (whole rows of the first axis, say) it shares x's memory and keeps that alive,
// unless it is small (less than 1 KB and than 1/64 of x): then, as elsewhere, it is a copy.
MU_API mu_tensor *mu_slice(mu_tensor *x, const int64_t *begin, const int64_t *size);
// mu_strided_slice is x[begin:end:stride] per axis with Python's rules; a set bit of a mask leaves that
// bound open, one of shrink_mask takes the single element at begin and drops the axis.
MU_API mu_tensor *mu_strided_slice(mu_tensor *x, const int64_t *begin, const int64_t *end, const int64_t *strides,
                                   unsigned begin_mask, unsigned end_mask, unsigned shrink_mask);

// mode: "constant" (with value), "reflect" or "symmetric"; NULL is "constant".
MU_API mu_tensor *mu_pad(mu_tensor *x, const int64_t *before, const int64_t *after, const char *mode, double value);
MU_API mu_tensor *mu_tile(mu_tensor *x, const int64_t *multiples);                 // one per axis
MU_API mu_tensor *mu_repeat(mu_tensor *x, int64_t times, int axis);                // each element, in place
MU_API mu_tensor *mu_broadcast_to(mu_tensor *x, int rank, const int64_t *dims);
MU_API mu_tensor *mu_reverse(mu_tensor *x, int axis);
MU_API mu_tensor *mu_roll(mu_tensor *x, int64_t shift, int axis);

// Shapes that are known only when the function runs: the second argument is used for its shape alone.
MU_API mu_tensor *mu_broadcast_like(mu_tensor *x, mu_tensor *like);
MU_API mu_tensor *mu_reshape_like(mu_tensor *x, mu_tensor *like);
MU_API mu_tensor *mu_sum_to_like(mu_tensor *x, mu_tensor *like);  // sums the axes that broadcasting would repeat
MU_API mu_tensor *mu_zeros_like(mu_tensor *x);
MU_API mu_tensor *mu_ones_like(mu_tensor *x);
MU_API mu_tensor *mu_dim_size(mu_tensor *x, int axis);            // int64 scalar; MU_ALL_AXES: number of elements

// ---- Indices ------------------------------------------------------------------------------------

// Indices are int32 or int64; gathers and mu_one_hot take int8 and int16 too. Errors: INVALID_ARGUMENT for one outside
// its axis, naming it.
// mu_convert_to_tensor returns the tensor in a value; indexed slices become dense, rows named twice are added up.
MU_API mu_tensor *mu_convert_to_tensor(const mu_value *value);
// mu_gather takes slices of x along an axis; the first batch_dims axes of both go together.
MU_API mu_tensor *mu_gather(mu_tensor *x, mu_tensor *indices, int axis, int batch_dims);
// mu_batch_gather: all axes of indices but the last are batches: x: [batches…, n, …], indices: [batches…, m].
MU_API mu_tensor *mu_batch_gather(mu_tensor *x, mu_tensor *indices);
MU_API mu_tensor *mu_gather_nd(mu_tensor *x, mu_tensor *indices);
MU_API mu_tensor *mu_scatter_nd(mu_tensor *indices, mu_tensor *updates, int rank, const int64_t *dims);
MU_API mu_tensor *mu_tensor_scatter_update(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
MU_API mu_tensor *mu_tensor_scatter_add(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
MU_API mu_tensor *mu_tensor_scatter_min(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
MU_API mu_tensor *mu_tensor_scatter_max(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
// mu_one_hot: an index outside [0, depth) gives a row of zeros.
MU_API mu_tensor *mu_one_hot(mu_tensor *indices, int64_t depth, mu_dtype dtype);
// mu_top_k: the k largest of the last axis, descending, and their int32 indices (either may be NULL).
MU_API mu_status mu_top_k(mu_tensor *x, int64_t k, mu_tensor **values, mu_tensor **indices);
MU_API mu_tensor *mu_sort(mu_tensor *x, int axis, bool descending);
MU_API mu_tensor *mu_argsort(mu_tensor *x, int axis, bool descending);             // int32, stable
// mu_unique: the values of a vector in order of first appearance, and each element's int32 place among them.
MU_API mu_status mu_unique(mu_tensor *x, mu_tensor **values, mu_tensor **places);
// mu_searchsorted: where each value would go into the last axis of a sorted sequence (int32); before or after equals.
MU_API mu_tensor *mu_searchsorted(mu_tensor *sequence, mu_tensor *values, bool right);

// Segments: rows of x with one number are reduced together. segments: the first axes of x, int32 or int64. The unsorted
// ones take int8 and int16 too and have n results, where an empty segment is 0 (sum, mean), 1 (prod) or the type's
// lowest or highest number, and
// rows with negative numbers are left out. Unsorted means of integers are floats, sorted ones integers.
MU_API mu_tensor *mu_unsorted_segment_sum(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_mean(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_sqrt_n(mu_tensor *x, mu_tensor *segments, int64_t n);  // sum over root of count
MU_API mu_tensor *mu_unsorted_segment_prod(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_max(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_min(mu_tensor *x, mu_tensor *segments, int64_t n);
// The sorted ones take a vector of ascending numbers from 0 on and have one result more than the last of them; an empty
// segment is 0 (prod: 1). Their shape depends on the numbers.
MU_API mu_tensor *mu_segment_sum(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_mean(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_prod(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_max(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_min(mu_tensor *x, mu_tensor *segments);

// ---- Linear algebra -----------------------------------------------------------------------------

// mu_einsum sums products of n tensors as the equation says, as tf.einsum: "ij,jk->ik". A letter that comes twice in
// an operand takes its diagonal; "..." stands for axes that broadcast. Without "->" the result has the letters that
// come once, in alphabetical order. Errors: INVALID_ARGUMENT for what cannot be read, and for sizes that differ.
MU_API mu_tensor *mu_einsum(const char *equation, int n, mu_tensor *const *tensors);
// mu_tensordot sums over the last n axes of a and the first n of b; mu_tensordot_axes over pairs of axes. The others
// follow each other, first a's.
MU_API mu_tensor *mu_tensordot(mu_tensor *a, mu_tensor *b, int n);
MU_API mu_tensor *mu_tensordot_axes(mu_tensor *a, mu_tensor *b, int n, const int *axes_a, const int *axes_b);
// mu_norm over one axis (vectors: any positive order, INFINITY included), over two (matrices: 1 the largest sum of a
// column, INFINITY of a row, 2 the largest singular value), or over all elements as one vector (axes NULL).
#define MU_NORM_EUCLIDEAN 0.0  // the root of the sum of squares; of a matrix Frobenius's
MU_API mu_tensor *mu_norm(mu_tensor *x, double order, int n, const int *axes, bool keep_dims);
// mu_cholesky: the lower triangular L with L L' = x, for positive definite x: [..., n, n], of which the lower half is
// read. Errors: INVALID_ARGUMENT naming a matrix that is not positive definite.
MU_API mu_tensor *mu_cholesky(mu_tensor *x);
// mu_triangular_solve: x with A x = rhs (A' x = rhs with adjoint), where A is the lower or upper triangle of
// matrix: [..., n, n]; rhs: [..., n, k]. Leading axes broadcast.
MU_API mu_tensor *mu_triangular_solve(mu_tensor *matrix, mu_tensor *rhs, bool lower, bool adjoint);

// ---- Constants ----------------------------------------------------------------------------------

MU_API mu_tensor *mu_zeros(mu_dtype dtype, int rank, const int64_t *dims);
MU_API mu_tensor *mu_ones(mu_dtype dtype, int rank, const int64_t *dims);
MU_API mu_tensor *mu_fill(mu_dtype dtype, int rank, const int64_t *dims, double value);
MU_API mu_tensor *mu_eye(mu_dtype dtype, int64_t rows, int64_t columns);
// mu_range: from start on in steps of delta, without limit. Errors: INVALID_ARGUMENT for steps away from the limit.
// mu_linspace: n numbers at equal distances, with start and stop.
MU_API mu_tensor *mu_range(mu_dtype dtype, double start, double limit, double delta);
MU_API mu_tensor *mu_linspace(mu_dtype dtype, double start, double stop, int64_t n);

// ---- Random numbers -----------------------------------------------------------------------------

// Stateless: the same seed (two integers, int32 or int64, shape [2]) gives the same numbers on every machine.
// Uniform floats lie in [0, 1); normal has mean 0 and deviation 1; truncated_normal redraws beyond 2.
MU_API mu_tensor *mu_stateless_random_uniform(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims);
MU_API mu_tensor *mu_stateless_random_normal(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims);
MU_API mu_tensor *mu_stateless_truncated_normal(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims);
// Integers (int32 or int64) lie in [low, high).
MU_API mu_tensor *mu_stateless_random_uniform_int(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims,
                                                  int64_t low, int64_t high);
MU_API mu_tensor *mu_stateless_random_bernoulli(mu_tensor *seed, double p, int rank, const int64_t *dims);  // bool
// mu_stateless_random_categorical draws one class per row of logits [..., classes]; int64.
MU_API mu_tensor *mu_stateless_random_categorical(mu_tensor *seed, mu_tensor *logits);
// mu_stateless_random_gamma draws with shape alpha and rate beta (NULL: 1), floats of one type that broadcast to the
// last axes of the result; differentiable in both. mu_stateless_random_poisson draws counts of mean `rate` (floats,
// int32 or int64, its shape the last axes of the result), as floats or integers of `dtype`. A rate that is negative
// gives 0; infinity and NaN give themselves as floats, 0 as integers.
MU_API mu_tensor *mu_stateless_random_gamma(mu_tensor *seed, mu_tensor *alpha, mu_tensor *beta, int rank,
                                            const int64_t *dims);
MU_API mu_tensor *mu_stateless_random_poisson(mu_tensor *seed, mu_tensor *rate, mu_dtype dtype, int rank,
                                              const int64_t *dims);
// mu_stateless_permutation: 0 … n - 1 (int64) in random order.
MU_API mu_tensor *mu_stateless_permutation(mu_tensor *seed, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
