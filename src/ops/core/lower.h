// Helpers for lowerings to StableHLO: common operations as functions on values.
//
// Each helper adds text through the emitter and returns the value that the text defines. After a failure they do
// nothing, so a lowering is written as one expression and checked once, by mu__lowered. Independent of graphs and of
// the compiler that reads the text.
#ifndef MU_SRC_OPS_LOWER_H
#define MU_SRC_OPS_LOWER_H

#include "ops/core/op.h"

#define MU_HLO_TEXT 1024 // bytes available for the attributes of one operation

// mu__lowered sets output i and returns the emitter's status.
mu_status mu__lowered(mu_lowering *l, int i, mu_hlo value);

// Unsigned types, which only programs have: random words and keys. They work with the functions below except for
// constants; mu__hlo_bits makes them from signed integers.
#define MU_HLO_U32 ((mu_dtype)100)
#define MU_HLO_U64 ((mu_dtype)101)
const char *mu__hlo_type(mu_dtype dtype); // StableHLO's name of an element type, of these too

// ---- Constants ----------------------------------------------------------------------------------

mu_hlo mu__hlo_data(mu_emitter *e, const mu_spec *spec, const void *data); // dense elements
mu_hlo mu__hlo_number(mu_emitter *e, mu_dtype dtype, double value);        // a scalar
mu_hlo mu__hlo_fill(mu_emitter *e, mu_dtype dtype, const mu_shape *shape, double value);
mu_hlo mu__hlo_minmax(mu_emitter *e, mu_dtype dtype, bool highest);                  // a scalar: infinite for floats
mu_hlo mu__hlo_iota(mu_emitter *e, mu_dtype dtype, const mu_shape *shape, int axis); // the index along an axis

// ---- Element by element; operands have one shape ------------------------------------------------

mu_hlo mu__hlo_unary(mu_emitter *e, const char *op, mu_hlo a);
mu_hlo mu__hlo_binary(mu_emitter *e, const char *op, mu_hlo a, mu_hlo b);
mu_hlo mu__hlo_compare(mu_emitter *e, const char *direction, mu_hlo a, mu_hlo b); // "EQ", "LT", …
mu_hlo mu__hlo_select(mu_emitter *e, mu_hlo which, mu_hlo yes, mu_hlo no);
mu_hlo mu__hlo_convert(mu_emitter *e, mu_hlo a, mu_dtype dtype);
// mu__hlo_wide converts float16 and bfloat16 to float32, because sums in 16 bits are too inexact.
mu_hlo mu__hlo_wide(mu_emitter *e, mu_hlo a);
// mu__hlo_bits reinterprets bits. A type of twice the width takes pairs along the last axis, the low half first, and
// drops that axis.
mu_hlo mu__hlo_bits(mu_emitter *e, mu_hlo a, mu_dtype dtype);

// ---- Shapes -------------------------------------------------------------------------------------

mu_hlo mu__hlo_reshape(mu_emitter *e, mu_hlo a, const mu_shape *shape);
mu_hlo mu__hlo_transpose(mu_emitter *e, mu_hlo a, const mu_ints *permutation);
// mu__hlo_broadcast maps axis i of `a` to axis axes[i] of the result.
mu_hlo mu__hlo_broadcast(mu_emitter *e, mu_hlo a, const mu_shape *shape, const mu_ints *axes);
mu_hlo mu__hlo_broadcast_to(mu_emitter *e, mu_hlo a, const mu_shape *shape); // NumPy's rules
// mu__hlo_pad adds `low` and `high` elements at the ends of each axis (negative: removes them) and `inner` elements
// between neighbours.
mu_hlo mu__hlo_pad(mu_emitter *e, mu_hlo a, mu_hlo with, const mu_ints *low, const mu_ints *high, const mu_ints *inner);
mu_hlo mu__hlo_slice(mu_emitter *e, mu_hlo a, const mu_ints *begin, const mu_ints *end, const mu_ints *strides);
mu_hlo mu__hlo_slice_axis(mu_emitter *e, mu_hlo a, int axis, int64_t begin, int64_t end, int64_t stride);
mu_hlo mu__hlo_concat(mu_emitter *e, int n, const mu_hlo *parts, int axis);
mu_hlo mu__hlo_reverse(mu_emitter *e, mu_hlo a, int axis);
// mu__hlo_part is the slice of this size from index `at` (an integer scalar) on along an axis; mu__hlo_put_part puts
// such a slice in. A slice that would reach beyond the axis is moved inside.
mu_hlo mu__hlo_part(mu_emitter *e, mu_hlo a, int axis, mu_hlo at, int64_t size);
mu_hlo mu__hlo_put_part(mu_emitter *e, mu_hlo a, int axis, mu_hlo at, mu_hlo part);

// ---- Slices by index (lower_index.c) ------------------------------------------------------------

// mu__hlo_take takes the slices `index` ([m]) of a along an axis. mu__hlo_combine combines slices along the first axis
// with those of `a` at the positions `index`, in any order; operation NULL: replaces them. An index outside the axis is
// clamped by the first and ignored by the second, so an op whose indices may be outside checks them.
mu_hlo mu__hlo_take(mu_emitter *e, mu_hlo a, int axis, mu_hlo index);
mu_hlo mu__hlo_combine(mu_emitter *e, const char *operation, mu_hlo a, mu_hlo index, mu_hlo slices);

// mu__hlo_reduce reduces the axes with "stablehlo.add", "stablehlo.maximum", …; `start` is the initial scalar.
mu_hlo mu__hlo_reduce(mu_emitter *e, const char *op, mu_hlo a, mu_hlo start, const mu_ints *axes);

// mu__hlo_with_batches broadcasts the axes of an operand in front of its matrices to those of `result`.
mu_hlo mu__hlo_with_batches(mu_emitter *e, mu_hlo a, const mu_shape *result);
// mu__hlo_product multiplies batches of matrices with equal leading axes; either may be transposed.
mu_hlo mu__hlo_product(mu_emitter *e, mu_hlo a, mu_hlo b, bool transpose_a, bool transpose_b);

// mu__hlo_replica is the id of the replica that runs the program, a scalar. mu__hlo_gather_replicas concatenates the
// tensors of all replicas that run it along an axis, in the order of their ids; of one replica, it is the tensor.
mu_hlo mu__hlo_replica(mu_emitter *e, mu_dtype dtype);
mu_hlo mu__hlo_gather_replicas(mu_emitter *e, mu_hlo a, int axis);

// mu__hlo_precision writes the attribute of products and convolutions that MUSTER_XLA_PRECISION asks for, and logs once
// which one that is.
const char *mu__hlo_precision(void);

// mu__hlo_list writes "array<i64: 1, 2>".
const char *mu__hlo_list(const mu_ints *list, char text[MU_HLO_TEXT / 4]);

// ---- Failures (lower_fault.c) -------------------------------------------------------------------

// mu__hlo_fail makes `fault` that of the program where `fails` (i1, a scalar or [positions]) is true somewhere, unless
// the program has one: at the first such position, with the value there (integers, a scalar or [positions]; id -1: none
// matters). mu__hlo_faultless returns whether the program has none. mu__hlo_share_fault makes that of one replica that
// of all.
void mu__hlo_fail(mu_emitter *e, const mu_fault *fault, mu_hlo fails, mu_hlo values);
mu_hlo mu__hlo_faultless(mu_emitter *e);
void mu__hlo_share_fault(mu_emitter *e);

// mu__hlo_check lets the program fail where an element of the op's input `i`, integers, is wrong. `limits`, for the
// first two checks: the element at position p has to be below limits.dims[p % limits.rank]. An input that is
// known is checked at once: the emitter gets the error, unless it writes a region, which may not run.
typedef enum mu_check { MU_CHECK_INDEX, MU_CHECK_BELOW, MU_CHECK_NOT_ZERO, MU_CHECK_NOT_NEGATIVE } mu_check;
void mu__hlo_check(mu_lowering *l, int i, mu_check check, const mu_shape *limits, mu_fault_raise *raise);

// mu__hlo_agree returns whether a predicate, an i1 scalar, is true on all replicas. Where it is true on some only, the
// program fails.
mu_hlo mu__hlo_agree(mu_lowering *l, mu_hlo predicate);

// ---- Lowerings that ops share -------------------------------------------------------------------

mu_status mu__lower_elementwise(mu_lowering *l); // of ops with an `hlo` name; broadcasts the operands first
mu_status mu__lower_reshape(mu_lowering *l);     // output 0 has input 0's elements in another shape
mu_status mu__lower_cast(mu_lowering *l);
mu_status mu__lower_compare(mu_lowering *l);
mu_status mu__lower_reduce(mu_lowering *l);
mu_status mu__lower_reduce_about(mu_lowering *l);
mu_status mu__lower_arg(mu_lowering *l);
mu_status mu__lower_sum_to_like(mu_lowering *l);
mu_status mu__lower_transpose(mu_lowering *l);
mu_status mu__lower_broadcast(mu_lowering *l);
mu_status mu__lower_dim_size(mu_lowering *l);
mu_status mu__lower_constant(mu_lowering *l);
mu_status mu__lower_replica_id(mu_lowering *l);
mu_status mu__lower_square(mu_lowering *l);
mu_status mu__lower_sizes(mu_lowering *l); // abs, sign
mu_status mu__lower_activation(mu_lowering *l);
mu_status mu__lower_predicate(mu_lowering *l);
mu_status mu__lower_clip(mu_lowering *l);
mu_status mu__lower_squared_difference(mu_lowering *l);
mu_status mu__lower_divide_no_nan(mu_lowering *l);
mu_status mu__lower_concat(mu_lowering *l);
mu_status mu__lower_concat_part(mu_lowering *l);
mu_status mu__lower_one_hot(mu_lowering *l);
mu_status mu__lower_formula(mu_lowering *l);
mu_status mu__lower_polygamma(mu_lowering *l);
mu_status mu__lower_whole_division(mu_lowering *l);
mu_status mu__lower_pow(mu_lowering *l);
mu_status mu__lower_map(mu_lowering *l);
mu_status mu__lower_copies(mu_lowering *l);
mu_status mu__lower_cumulate(mu_lowering *l);
mu_status mu__lower_gather(mu_lowering *l);
mu_status mu__lower_gather_grad(mu_lowering *l);
mu_status mu__lower_gather_nd(mu_lowering *l);
mu_status mu__lower_scatter(mu_lowering *l);
mu_status mu__lower_segment(mu_lowering *l);
mu_status mu__lower_cholesky(mu_lowering *l);
mu_status mu__lower_triangular_solve(mu_lowering *l);
mu_status mu__lower_read(mu_lowering *l);
mu_status mu__lower_assign(mu_lowering *l);
mu_status mu__lower_all_reduce(mu_lowering *l);
mu_status mu__lower_broadcast_from(mu_lowering *l);
mu_status mu__lower_matmul(mu_lowering *l);
mu_status mu__lower_bias_add(mu_lowering *l);
mu_status mu__lower_bias_add_grad(mu_lowering *l);
mu_status mu__lower_relu(mu_lowering *l);
mu_status mu__lower_relu_grad(mu_lowering *l);
mu_status mu__lower_derivative(mu_lowering *l);
mu_status mu__lower_softmax_grad(mu_lowering *l);
mu_status mu__lower_sigmoid_loss(mu_lowering *l);
mu_status mu__lower_conv(mu_lowering *l);
mu_status mu__lower_batch_norm(mu_lowering *l);
mu_status mu__lower_batch_norm_grad(mu_lowering *l);
mu_status mu__lower_normalize(mu_lowering *l);
mu_status mu__lower_normalize_grad(mu_lowering *l);
mu_status mu__lower_channel_affine(mu_lowering *l);
mu_status mu__lower_attention(mu_lowering *l);
mu_status mu__lower_attention_grad(mu_lowering *l);
mu_status mu__lower_pool(mu_lowering *l);
mu_status mu__lower_softmax(mu_lowering *l);
mu_status mu__lower_cross_entropy(mu_lowering *l);
mu_status mu__lower_descent(mu_lowering *l);
mu_status mu__lower_adam(mu_lowering *l);
mu_status mu__lower_descent_slices(mu_lowering *l);
mu_status mu__lower_adam_slices(mu_lowering *l);
mu_status mu__lower_adagrad_slices(mu_lowering *l);
mu_status mu__lower_gather_variable(mu_lowering *l);
mu_status mu__lower_scatter_variable(mu_lowering *l);
mu_status mu__lower_generator(mu_lowering *l);
mu_status mu__lower_dropout(mu_lowering *l);
mu_status mu__lower_random(mu_lowering *l);
mu_status mu__lower_permutation(mu_lowering *l);
mu_status mu__lower_sort(mu_lowering *l);
mu_status mu__lower_search(mu_lowering *l);
mu_status mu__lower_all_gather(mu_lowering *l);
mu_status mu__lower_all_gather_part(mu_lowering *l);
mu_status mu__lower_reduce_scatter(mu_lowering *l);
mu_status mu__lower_permute(mu_lowering *l);

#endif
