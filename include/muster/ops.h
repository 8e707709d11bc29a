// Mathematical ops on tensors, named as in TensorFlow (those of tf.nn are in muster/nn.h).
//
// All functions work eagerly and in traces, have a gradient where the mathematical function has one, and broadcast as
// NumPy does. Types are never converted implicitly: use mu_cast. Negative axes count from the end. In a trace,
// dimensions may be MU_UNKNOWN.
//
// Errors: INVALID_ARGUMENT for shapes, types or axes that do not match, in a trace as far as they are known there;
// FAILED_PRECONDITION for a symbolic tensor outside of the trace that it belongs to.
#ifndef MUSTER_OPS_H
#define MUSTER_OPS_H

#include <limits.h>
#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// As an axis argument: all axes.
#define MU_ALL_AXES INT_MIN

// ---- Two tensors, element by element ------------------------------------------------------------

MU_API mu_tensor *mu_add(mu_tensor *a, mu_tensor *b);      // a + b
MU_API mu_tensor *mu_subtract(mu_tensor *a, mu_tensor *b); // a - b
MU_API mu_tensor *mu_multiply(mu_tensor *a, mu_tensor *b); // a * b
// mu_divide is true division: 32- and 64-bit integers give float64, smaller ones float32.
MU_API mu_tensor *mu_divide(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_divide_no_nan(mu_tensor *a, mu_tensor *b); // 0 where b is 0
// mu_floor_divide rounds the quotient down; mu_mod returns the remainder. Errors of both: INVALID_ARGUMENT for integer
// division by zero.
MU_API mu_tensor *mu_floor_divide(mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_mod(mu_tensor *a, mu_tensor *b);                // the result has the sign of b
MU_API mu_tensor *mu_pow(mu_tensor *x, mu_tensor *y);                // x to the power of y
MU_API mu_tensor *mu_maximum(mu_tensor *a, mu_tensor *b);            // NaN if a or b is
MU_API mu_tensor *mu_minimum(mu_tensor *a, mu_tensor *b);            // NaN if a or b is
MU_API mu_tensor *mu_squared_difference(mu_tensor *a, mu_tensor *b); // (a - b)²
MU_API mu_tensor *mu_atan2(mu_tensor *y, mu_tensor *x);              // angle of (x, y) in radians, -π to π

// Comparisons return bool.
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

// mu_where selects from a where the condition (bool) is true, else from b; all three broadcast.
MU_API mu_tensor *mu_where(mu_tensor *condition, mu_tensor *a, mu_tensor *b);
MU_API mu_tensor *mu_clip_by_value(mu_tensor *x, mu_tensor *low, mu_tensor *high); // limits x to [low, high]

// ---- One tensor, element by element -------------------------------------------------------------

// mu_cast converts; floats truncate to integers. A tensor that already has the type is returned itself.
MU_API mu_tensor *mu_cast(mu_tensor *x, mu_dtype dtype);
MU_API mu_tensor *mu_abs(mu_tensor *x);        // absolute value
MU_API mu_tensor *mu_neg(mu_tensor *x);        // -x
MU_API mu_tensor *mu_sign(mu_tensor *x);       // -1, 0 or 1
MU_API mu_tensor *mu_square(mu_tensor *x);     // x²
MU_API mu_tensor *mu_floor(mu_tensor *x);      // rounds down
MU_API mu_tensor *mu_ceil(mu_tensor *x);       // rounds up
MU_API mu_tensor *mu_round(mu_tensor *x);      // ties to even
MU_API mu_tensor *mu_exp(mu_tensor *x);        // e to the power of x
MU_API mu_tensor *mu_expm1(mu_tensor *x);      // exp(x) - 1, exact near 0
MU_API mu_tensor *mu_log(mu_tensor *x);        // natural logarithm
MU_API mu_tensor *mu_log1p(mu_tensor *x);      // log(1 + x), exact near 0
MU_API mu_tensor *mu_sqrt(mu_tensor *x);       // square root
MU_API mu_tensor *mu_rsqrt(mu_tensor *x);      // 1 / sqrt(x)
MU_API mu_tensor *mu_reciprocal(mu_tensor *x); // 1 / x
MU_API mu_tensor *mu_erf(mu_tensor *x);        // error function
MU_API mu_tensor *mu_erfc(mu_tensor *x);       // 1 - erf(x)
MU_API mu_tensor *mu_lgamma(mu_tensor *x);     // logarithm of |gamma(x)|
MU_API mu_tensor *mu_digamma(mu_tensor *x);    // derivative of lgamma
// mu_polygamma returns the derivative of digamma of this order, 0 to 100; order 0 is digamma itself. At the poles (0
// and negative integers) it is infinite for odd orders and NaN for even ones.
MU_API mu_tensor *mu_polygamma(int order, mu_tensor *x);
MU_API mu_tensor *mu_sin(mu_tensor *x);           // sine; x in radians
MU_API mu_tensor *mu_cos(mu_tensor *x);           // cosine; x in radians
MU_API mu_tensor *mu_tan(mu_tensor *x);           // tangent; x in radians
MU_API mu_tensor *mu_asin(mu_tensor *x);          // inverse sine, in radians
MU_API mu_tensor *mu_acos(mu_tensor *x);          // inverse cosine, in radians
MU_API mu_tensor *mu_atan(mu_tensor *x);          // inverse tangent, in radians
MU_API mu_tensor *mu_sinh(mu_tensor *x);          // hyperbolic sine
MU_API mu_tensor *mu_cosh(mu_tensor *x);          // hyperbolic cosine
MU_API mu_tensor *mu_tanh(mu_tensor *x);          // hyperbolic tangent
MU_API mu_tensor *mu_asinh(mu_tensor *x);         // inverse hyperbolic sine
MU_API mu_tensor *mu_acosh(mu_tensor *x);         // inverse hyperbolic cosine
MU_API mu_tensor *mu_atanh(mu_tensor *x);         // inverse hyperbolic tangent
MU_API mu_tensor *mu_sigmoid(mu_tensor *x);       // 1 / (1 + exp(-x))
MU_API mu_tensor *mu_is_nan(mu_tensor *x);        // bool
MU_API mu_tensor *mu_is_inf(mu_tensor *x);        // bool
MU_API mu_tensor *mu_is_finite(mu_tensor *x);     // bool
MU_API mu_tensor *mu_identity(mu_tensor *x);      // x itself, as a node of its own in traces
MU_API mu_tensor *mu_stop_gradient(mu_tensor *x); // x, with no gradient
// mu_check_numerics returns x. Errors: INVALID_ARGUMENT with the message if x has a NaN or infinity.
MU_API mu_tensor *mu_check_numerics(mu_tensor *x, const char *message);
// mu_assert fails with INVALID_ARGUMENT and the message unless every element of the condition (bool) is true. mu_print
// writes the label, a space and the tensor to standard error. In a traced function both happen at every run. Messages
// and labels longer than 511 bytes are cut to 508, followed by "...".
MU_API mu_status mu_assert(mu_tensor *condition, const char *message);
MU_API mu_status mu_print(mu_tensor *x, const char *label);

// ---- Reductions ---------------------------------------------------------------------------------

// Reductions over one axis, over several, or over all axes, which is the default: mu_reduce_sum(x, 1),
// mu_reduce_sum(x, .axes = (int[]){0, 2}, .n_axes = 2, .keep_dims = true). Only the shape determines the order of
// summation. Errors: INVALID_ARGUMENT for an axis that x does not have, or that is given twice.
typedef struct mu_reduction_args {
    size_t size;
    const char *given;
    mu_tensor *x;
    int axis; // default MU_ALL_AXES; negative counts from the last
    mu_keyword_only only_;
    const int *axes; // several axes instead; n_axes = 0 reduces nothing
    int n_axes;
    bool keep_dims; // the reduced axes remain, with size 1
} mu_reduction_args;
#define mu_reduce_sum(...)       mu_reduce_sum_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_mean(...)      mu_reduce_mean_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_max(...)       mu_reduce_max_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_min(...)       mu_reduce_min_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_prod(...)      mu_reduce_prod_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_any(...)       mu_reduce_any_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_all(...)       mu_reduce_all_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_logsumexp(...) mu_reduce_logsumexp_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_variance(...)  mu_reduce_variance_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
#define mu_reduce_std(...)       mu_reduce_std_with(MU_ARGS(mu_reduction_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_reduce_sum_with(const mu_reduction_args *args);
MU_API mu_tensor *mu_reduce_mean_with(const mu_reduction_args *args);
MU_API mu_tensor *mu_reduce_max_with(const mu_reduction_args *args);
MU_API mu_tensor *mu_reduce_min_with(const mu_reduction_args *args);
MU_API mu_tensor *mu_reduce_prod_with(const mu_reduction_args *args);
MU_API mu_tensor *mu_reduce_any_with(const mu_reduction_args *args); // bool
MU_API mu_tensor *mu_reduce_all_with(const mu_reduction_args *args); // bool
MU_API mu_tensor *mu_reduce_logsumexp_with(const mu_reduction_args *args);
MU_API mu_tensor *mu_reduce_variance_with(const mu_reduction_args *args);
MU_API mu_tensor *mu_reduce_std_with(const mu_reduction_args *args);

// Index (int64) of the first maximum or minimum along an axis.
MU_API mu_tensor *mu_argmax(mu_tensor *x, int axis);
MU_API mu_tensor *mu_argmin(mu_tensor *x, int axis);
MU_API mu_tensor *mu_cumsum(mu_tensor *x, int axis, bool exclusive, bool reverse);
MU_API mu_tensor *mu_cumprod(mu_tensor *x, int axis, bool exclusive, bool reverse);

// ---- Shapes -------------------------------------------------------------------------------------

// mu_reshape keeps the order of the elements. One dimension may be -1: it is computed from the others.
MU_API mu_tensor *mu_reshape(mu_tensor *x, int rank, const int64_t *dims);
// mu_transpose makes axis axes[i] of x axis i of the result; NULL reverses all axes.
MU_API mu_tensor *mu_transpose(mu_tensor *x, const int *axes);
MU_API mu_tensor *mu_expand_dims(mu_tensor *x, int axis);                // inserts an axis of size 1
MU_API mu_tensor *mu_squeeze(mu_tensor *x, int axis);                    // MU_ALL_AXES: every axis of size 1
MU_API mu_tensor *mu_concat(int n, mu_tensor *const *tensors, int axis); // along an axis that all have
MU_API mu_tensor *mu_stack(int n, mu_tensor *const *tensors, int axis);  // along a new axis
// mu_split divides an axis into n equal parts, mu_split_sizes into parts of the given sizes (one may be -1), and
// mu_unstack into its slices, without that axis. `out` receives n tensors.
MU_API mu_status mu_split(mu_tensor *x, int n, int axis, mu_tensor **out);
MU_API mu_status mu_split_sizes(mu_tensor *x, int n, const int64_t *sizes, int axis, mu_tensor **out);
MU_API mu_status mu_unstack(mu_tensor *x, int n, int axis, mu_tensor **out);
// mu_slice returns size[i] elements from begin[i] on along each axis i; size -1 means the rest. If a slice, or a part
// of a split, is contiguous in x (whole rows of the first axis, for example), it shares x's memory and keeps it alive,
// unless it is small (less than 1 KB and less than 1/64 of x). Otherwise it is a copy.
MU_API mu_tensor *mu_slice(mu_tensor *x, const int64_t *begin, const int64_t *size);
// mu_strided_slice returns x[begin:end:stride] per axis, with Python's rules. Bit i of begin_mask or end_mask leaves
// that bound of axis i open; bit i of shrink_mask takes the single element at begin and removes the axis.
MU_API mu_tensor *mu_strided_slice(mu_tensor *x, const int64_t *begin, const int64_t *end, const int64_t *strides,
                                   unsigned begin_mask, unsigned end_mask, unsigned shrink_mask);

// mu_pad adds before[i] and after[i] elements to axis i; mode: "constant" (of `value`; also NULL), "reflect" or
// "symmetric".
MU_API mu_tensor *mu_pad(mu_tensor *x, const int64_t *before, const int64_t *after, const char *mode, double value);
MU_API mu_tensor *mu_tile(mu_tensor *x, const int64_t *multiples);              // one factor per axis
MU_API mu_tensor *mu_repeat(mu_tensor *x, int64_t times, int axis);             // repeats each element
MU_API mu_tensor *mu_broadcast_to(mu_tensor *x, int rank, const int64_t *dims); // to this shape, as NumPy broadcasts
MU_API mu_tensor *mu_reverse(mu_tensor *x, int axis);                           // reverses the order along an axis
MU_API mu_tensor *mu_roll(mu_tensor *x, int64_t shift, int axis); // element i goes to i + shift, cyclically

// For shapes that are known only at run time: only the shape of the second argument is used.
MU_API mu_tensor *mu_broadcast_like(mu_tensor *x, mu_tensor *like);
MU_API mu_tensor *mu_reshape_like(mu_tensor *x, mu_tensor *like);
MU_API mu_tensor *mu_sum_to_like(mu_tensor *x, mu_tensor *like); // sums over the axes that broadcasting would repeat
MU_API mu_tensor *mu_zeros_like(mu_tensor *x);
MU_API mu_tensor *mu_ones_like(mu_tensor *x);
MU_API mu_tensor *mu_dim_size(mu_tensor *x, int axis); // int64 scalar; MU_ALL_AXES: number of elements

// ---- Indices ------------------------------------------------------------------------------------

// Indices are int32 or int64; gathers and mu_one_hot accept int8 and int16 too. Errors: INVALID_ARGUMENT naming an
// index that is out of range. mu_convert_to_tensor returns the tensor in a value. Indexed slices become dense; rows
// with the same index are added. Errors of the latter: UNIMPLEMENTED for slices that are an argument of a traced
// function.
MU_API mu_tensor *mu_convert_to_tensor(const mu_value *value);
// mu_gather takes slices of x along an axis; the first batch_dims axes of x and indices are common batch axes.
MU_API mu_tensor *mu_gather(mu_tensor *x, mu_tensor *indices, int axis, int batch_dims);
// mu_batch_gather treats all axes of indices but the last as batch axes: x: [batches…, n, …], indices: [batches…, m].
MU_API mu_tensor *mu_batch_gather(mu_tensor *x, mu_tensor *indices);
// The last axis of indices holds positions in the first axes of x. mu_gather_nd returns the slices of x at the indices,
// mu_scatter_nd a tensor of zeros of the shape `dims` to which the updates are added there. The mu_tensor_scatter_
// functions return x with the slices at the indices replaced (update), or combined with the updates (add, min, max).
// indices: [..., k]; updates: [..., remaining axes of x].
MU_API mu_tensor *mu_gather_nd(mu_tensor *x, mu_tensor *indices);
MU_API mu_tensor *mu_scatter_nd(mu_tensor *indices, mu_tensor *updates, int rank, const int64_t *dims);
MU_API mu_tensor *mu_tensor_scatter_update(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
MU_API mu_tensor *mu_tensor_scatter_add(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
MU_API mu_tensor *mu_tensor_scatter_min(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
MU_API mu_tensor *mu_tensor_scatter_max(mu_tensor *x, mu_tensor *indices, mu_tensor *updates);
// mu_one_hot adds a last axis of size depth, 1 at the index and 0 elsewhere; an index outside [0, depth) gives zeros.
MU_API mu_tensor *mu_one_hot(mu_tensor *indices, int64_t depth, mu_dtype dtype);
// mu_top_k returns the k largest elements of the last axis, descending, and their int32 indices; values or indices may
// be NULL.
MU_API mu_status mu_top_k(mu_tensor *x, int64_t k, mu_tensor **values, mu_tensor **indices);
MU_API mu_tensor *mu_sort(mu_tensor *x, int axis, bool descending);    // sorted along an axis
MU_API mu_tensor *mu_argsort(mu_tensor *x, int axis, bool descending); // int32, stable
// mu_unique returns the distinct values of a vector in order of first appearance, and for each element the int32 index
// of its value.
MU_API mu_status mu_unique(mu_tensor *x, mu_tensor **values, mu_tensor **indices);
// mu_searchsorted returns the index (int32) at which each value would be inserted into the last axis of a sorted
// sequence: after equal elements if `right`, else before.
MU_API mu_tensor *mu_searchsorted(mu_tensor *sequence, mu_tensor *values, bool right);

// Segments: rows of x with the same segment number are reduced together. segments: int32 or int64, shaped like the
// first axes of x. The unsorted functions also accept int8 and int16. They return n segments; an empty one is 0 (sum,
// mean), 1 (prod), or the type's lowest (max) or highest (min) number; rows with negative numbers are ignored. The
// unsorted mean of integers is a float, the sorted one an integer.
MU_API mu_tensor *mu_unsorted_segment_sum(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_mean(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_sqrt_n(mu_tensor *x, mu_tensor *segments, int64_t n); // sum / sqrt(count)
MU_API mu_tensor *mu_unsorted_segment_prod(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_max(mu_tensor *x, mu_tensor *segments, int64_t n);
MU_API mu_tensor *mu_unsorted_segment_min(mu_tensor *x, mu_tensor *segments, int64_t n);
// The sorted functions take a vector of ascending segment numbers, and return (last number + 1) segments; an empty
// segment is 0 (prod: 1). The shape of the result depends on the numbers.
MU_API mu_tensor *mu_segment_sum(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_mean(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_prod(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_max(mu_tensor *x, mu_tensor *segments);
MU_API mu_tensor *mu_segment_min(mu_tensor *x, mu_tensor *segments);

// ---- Linear algebra -----------------------------------------------------------------------------

// mu_einsum sums products of n tensors by an equation such as "ij,jk->ik", as tf.einsum does. A letter that occurs
// twice in an operand selects its diagonal; "..." means axes that broadcast. Without "->" the result has the letters
// that occur once, in alphabetical order. Errors: INVALID_ARGUMENT for an invalid equation or for sizes that differ.
MU_API mu_tensor *mu_einsum(const char *equation, int n, mu_tensor *const *tensors);
typedef struct mu_tensordot_args {
    size_t size;
    const char *given;
    mu_tensor *a, *b;
    int n; // the last n axes of a and the first n of b; default 0, or n_axes
    mu_keyword_only only_;
    const int *axes_a, *axes_b; // pairs of axes instead
    int n_axes;
} mu_tensordot_args;
// mu_tensordot sums the products of a and b over pairs of axes of equal size: mu_tensordot(a, b, 2). The result has the
// other axes of a, then those of b.
#define mu_tensordot(...) mu_tensordot_with(MU_ARGS(mu_tensordot_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_tensordot_with(const mu_tensordot_args *args);

#define MU_NORM_EUCLIDEAN 0.0 // square root of the sum of squares; for a matrix, the Frobenius norm
typedef struct mu_norm_args {
    size_t size;
    const char *given;
    mu_tensor *x;
    double order; // default MU_NORM_EUCLIDEAN
    mu_keyword_only only_;
    int axis;        // of vectors; default MU_ALL_AXES: all elements as one vector
    const int *axes; // {axis} of vectors, or {rows, columns} of matrices
    int n_axes;
    bool keep_dims; // the reduced axes remain, with size 1
} mu_norm_args;
// mu_norm returns norms of vectors over one axis (any positive order, including INFINITY) or of matrices over two axes
// (order 1: largest column sum, INFINITY: largest row sum, 2: largest singular value). Errors: FAILED_PRECONDITION for
// order 2 on a machine without LAPACK (Debian: liblapack3).
#define mu_norm(...) mu_norm_with(MU_ARGS(mu_norm_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_norm_with(const mu_norm_args *args);
// mu_cholesky returns the lower triangular L with L Lᵀ = x for positive definite x: [..., n, n]; it reads only the
// lower half of x. Errors: INVALID_ARGUMENT naming a matrix that is not positive definite.
MU_API mu_tensor *mu_cholesky(mu_tensor *x);
// mu_triangular_solve returns x with A x = rhs (Aᵀ x = rhs with adjoint), where A is the lower or upper triangle of
// matrix: [..., n, n]; rhs: [..., n, k]. Leading axes broadcast.
MU_API mu_tensor *mu_triangular_solve(mu_tensor *matrix, mu_tensor *rhs, bool lower, bool adjoint);

// ---- Constants ----------------------------------------------------------------------------------

MU_API mu_tensor *mu_zeros(mu_dtype dtype, int rank, const int64_t *dims);              // all elements 0
MU_API mu_tensor *mu_ones(mu_dtype dtype, int rank, const int64_t *dims);               // all elements 1
MU_API mu_tensor *mu_fill(mu_dtype dtype, int rank, const int64_t *dims, double value); // all elements `value`
MU_API mu_tensor *mu_eye(mu_dtype dtype, int64_t rows, int64_t columns); // 1 where row equals column, else 0
// mu_range returns start, start + delta, … up to but not including limit. Errors: INVALID_ARGUMENT if delta leads away
// from limit. mu_linspace returns n evenly spaced numbers from start to stop, both included.
MU_API mu_tensor *mu_range(mu_dtype dtype, double start, double limit, double delta);
MU_API mu_tensor *mu_linspace(mu_dtype dtype, double start, double stop, int64_t n);

// ---- Random numbers -----------------------------------------------------------------------------

// Stateless: the same seed (int32 or int64, [2]) gives the same numbers on every machine. Uniform floats are in [0, 1);
// normal has mean 0 and standard deviation 1; truncated_normal redraws values beyond 2.
MU_API mu_tensor *mu_stateless_random_uniform(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims);
MU_API mu_tensor *mu_stateless_random_normal(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims);
MU_API mu_tensor *mu_stateless_truncated_normal(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims);
// Integers (int32 or int64) are in [low, high).
MU_API mu_tensor *mu_stateless_random_uniform_int(mu_tensor *seed, mu_dtype dtype, int rank, const int64_t *dims,
                                                  int64_t low, int64_t high);
MU_API mu_tensor *mu_stateless_random_bernoulli(mu_tensor *seed, double p, int rank, const int64_t *dims); // bool
// mu_stateless_random_categorical draws one class (int64) per row of logits [..., classes].
MU_API mu_tensor *mu_stateless_random_categorical(mu_tensor *seed, mu_tensor *logits);
// mu_stateless_random_gamma draws with shape alpha and rate beta (NULL: 1), floats of one type that broadcast to the
// last axes of the result; differentiable with respect to both. mu_stateless_random_poisson draws counts with mean
// `rate` (floats, int32 or int64, whose shape is the last axes of the result), as floats or integers of `dtype`. A
// negative rate gives 0. For a rate of infinity or NaN, floats are that rate and integers 0.
MU_API mu_tensor *mu_stateless_random_gamma(mu_tensor *seed, mu_tensor *alpha, mu_tensor *beta, int rank,
                                            const int64_t *dims);
MU_API mu_tensor *mu_stateless_random_poisson(mu_tensor *seed, mu_tensor *rate, mu_dtype dtype, int rank,
                                              const int64_t *dims);
// mu_stateless_permutation returns 0 … n - 1 (int64) in random order.
MU_API mu_tensor *mu_stateless_permutation(mu_tensor *seed, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
