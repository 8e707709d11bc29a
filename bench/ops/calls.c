// The table of calls of the bench of ops: each op of Muster as cases.py names it, with the numbers of its case. Knows
// neither how long anything takes nor what the rivals do; both sides of a case are kept alike by comparing results.
#include "calls.h"

#define ARGS mu_tensor *const *in, mu_tensor **out
#define ONE(name, expression)                \
    static int call_##name(ARGS)             \
    {                                        \
        out[0] = (expression);               \
        return 1;                            \
    }

// Plain functions of one, two and three tensors.
#define UNARY(X)                                                                                                      \
    X(abs, mu_abs) X(neg, mu_neg) X(sign, mu_sign) X(square, mu_square) X(floor, mu_floor) X(ceil, mu_ceil)           \
    X(round, mu_round) X(exp, mu_exp) X(expm1, mu_expm1) X(log, mu_log) X(log1p, mu_log1p) X(sqrt, mu_sqrt)           \
    X(rsqrt, mu_rsqrt) X(reciprocal, mu_reciprocal) X(erf, mu_erf) X(erfc, mu_erfc) X(lgamma, mu_lgamma)              \
    X(digamma, mu_digamma) X(sin, mu_sin) X(cos, mu_cos) X(tan, mu_tan) X(asin, mu_asin) X(acos, mu_acos)             \
    X(atan, mu_atan) X(sinh, mu_sinh) X(cosh, mu_cosh) X(tanh, mu_tanh) X(asinh, mu_asinh) X(acosh, mu_acosh)         \
    X(atanh, mu_atanh) X(sigmoid, mu_sigmoid) X(is_nan, mu_is_nan) X(is_inf, mu_is_inf) X(is_finite, mu_is_finite)    \
    X(relu, mu_nn_relu) X(relu6, mu_nn_relu6) X(selu, mu_nn_selu) X(elu, mu_nn_elu) X(silu, mu_nn_silu)               \
    X(mish, mu_nn_mish) X(softplus, mu_nn_softplus) X(softsign, mu_nn_softsign) X(log_sigmoid, mu_nn_log_sigmoid)     \
    X(hard_sigmoid, mu_nn_hard_sigmoid) X(logical_not, mu_logical_not) X(zeros_like, mu_zeros_like)                   \
    X(ones_like, mu_ones_like)
#define BINARY(X)                                                                                                     \
    X(add, mu_add) X(subtract, mu_subtract) X(multiply, mu_multiply) X(divide, mu_divide)                             \
    X(divide_no_nan, mu_divide_no_nan) X(floor_divide, mu_floor_divide) X(mod, mu_mod) X(pow, mu_pow)                 \
    X(maximum, mu_maximum) X(minimum, mu_minimum) X(squared_difference, mu_squared_difference) X(atan2, mu_atan2)     \
    X(equal, mu_equal) X(not_equal, mu_not_equal) X(less, mu_less) X(less_equal, mu_less_equal)                       \
    X(greater, mu_greater) X(greater_equal, mu_greater_equal) X(logical_and, mu_logical_and)                          \
    X(logical_or, mu_logical_or) X(logical_xor, mu_logical_xor) X(matmul, mu_matmul) X(bias_add, mu_nn_bias_add)      \
    X(gather_nd, mu_gather_nd) X(sparse_xent, mu_nn_sparse_softmax_cross_entropy)                                     \
    X(softmax_xent, mu_nn_softmax_cross_entropy) X(sigmoid_xent, mu_nn_sigmoid_cross_entropy)
#define TERNARY(X)                                                                                                    \
    X(where, mu_where) X(clip_by_value, mu_clip_by_value) X(scatter_update, mu_tensor_scatter_update)                 \
    X(scatter_add, mu_tensor_scatter_add) X(scatter_min, mu_tensor_scatter_min)                                       \
    X(scatter_max, mu_tensor_scatter_max)
#define CALL1(name, function) ONE(name, function(in[0]))
#define CALL2(name, function) ONE(name, function(in[0], in[1]))
#define CALL3(name, function) ONE(name, function(in[0], in[1], in[2]))
UNARY(CALL1)
BINARY(CALL2)
TERNARY(CALL3)

// Functions with numbers of their own.
static int64_t dim(mu_tensor *x, int axis)
{
    return mu_tensor_dim(x, axis);
}

#define OTHERS(X)                                                                                     \
    X(leaky_relu, mu_nn_leaky_relu(in[0], 0.2))                                                       \
    X(gelu, mu_nn_gelu(in[0], false))                                                                 \
    X(gelu_tanh, mu_nn_gelu(in[0], true))                                                             \
    X(cast_f64, mu_cast(in[0], MU_F64)) X(cast_i32, mu_cast(in[0], MU_I32))                           \
    X(cast_f32, mu_cast(in[0], MU_F32)) X(cast_f16, mu_cast(in[0], MU_F16))                           \
    X(cast_bf16, mu_cast(in[0], MU_BF16)) X(cast_i64, mu_cast(in[0], MU_I64))                         \
    X(cast_u8, mu_cast(in[0], MU_U8)) X(cast_bool, mu_cast(in[0], MU_BOOL))                           \
    X(sum_all, mu_reduce_sum(in[0], MU_ALL_AXES))                                                     \
    X(sum_0, mu_reduce_sum(in[0], 0)) X(sum_1, mu_reduce_sum(in[0], 1))                               \
    X(sum_02, mu_reduce_sum_axes(in[0], 2, (const int[]){0, 2}, false))                               \
    X(mean_all, mu_reduce_mean(in[0], MU_ALL_AXES))                                                   \
    X(mean_0, mu_reduce_mean(in[0], 0)) X(mean_1, mu_reduce_mean(in[0], 1))                           \
    X(max_all, mu_reduce_max(in[0], MU_ALL_AXES))                                                     \
    X(max_0, mu_reduce_max(in[0], 0)) X(max_1, mu_reduce_max(in[0], 1))                               \
    X(min_all, mu_reduce_min(in[0], MU_ALL_AXES))                                                     \
    X(min_0, mu_reduce_min(in[0], 0)) X(min_1, mu_reduce_min(in[0], 1))                               \
    X(prod_0, mu_reduce_prod(in[0], 0)) X(prod_1, mu_reduce_prod(in[0], 1))                           \
    X(any_all, mu_reduce_any(in[0], MU_ALL_AXES)) X(any_1, mu_reduce_any(in[0], 1))                   \
    X(all_all, mu_reduce_all(in[0], MU_ALL_AXES)) X(all_1, mu_reduce_all(in[0], 1))                   \
    X(logsumexp_0, mu_reduce_logsumexp(in[0], 0)) X(logsumexp_1, mu_reduce_logsumexp(in[0], 1))       \
    X(variance_0, mu_reduce_variance(in[0], 0)) X(variance_1, mu_reduce_variance(in[0], 1))           \
    X(std_1, mu_reduce_std(in[0], 1))                                                                 \
    X(argmax_0, mu_argmax(in[0], 0)) X(argmax_1, mu_argmax(in[0], 1)) X(argmin_1, mu_argmin(in[0], 1)) \
    X(cumsum_0, mu_cumsum(in[0], 0, false, false)) X(cumsum_1, mu_cumsum(in[0], 1, false, false))     \
    X(cumsum_back, mu_cumsum(in[0], 1, true, true)) X(cumprod_1, mu_cumprod(in[0], 1, false, false))  \
    X(transpose, mu_transpose(in[0], NULL))                                                           \
    X(transpose_nchw, mu_transpose(in[0], (const int[]){0, 3, 1, 2}))                                 \
    X(transpose_heads, mu_transpose(in[0], (const int[]){0, 2, 1, 3}))                                \
    X(reshape, mu_reshape(in[0], 1, (const int64_t[]){mu_tensor_elements(in[0])}))                    \
    X(expand_dims, mu_expand_dims(in[0], 1)) X(squeeze, mu_squeeze(in[0], 1))                         \
    X(concat_0, mu_concat(2, in, 0)) X(concat_1, mu_concat(2, in, 1))                                 \
    X(stack_0, mu_stack(2, in, 0)) X(stack_1, mu_stack(2, in, 1)) X(stack_2, mu_stack(2, in, 2))      \
    X(slice, mu_slice(in[0], (const int64_t[]){1, 1}, (const int64_t[]){dim(in[0], 0) - 2, dim(in[0], 1) - 2})) \
    X(strided_slice, mu_strided_slice(in[0], (const int64_t[]){0, 0}, (const int64_t[]){0, 0},        \
                                      (const int64_t[]){1, 2}, 3, 3, 0))                               \
    X(slice_back, mu_strided_slice(in[0], (const int64_t[]){0, 0}, (const int64_t[]){0, 0},           \
                                   (const int64_t[]){1, -1}, 3, 3, 0))                                 \
    X(pad, mu_pad(in[0], (const int64_t[]){1, 2}, (const int64_t[]){1, 2}, "constant", 0))            \
    X(pad_reflect, mu_pad(in[0], (const int64_t[]){1, 2}, (const int64_t[]){1, 2}, "reflect", 0))     \
    X(pad_symmetric, mu_pad(in[0], (const int64_t[]){1, 2}, (const int64_t[]){1, 2}, "symmetric", 0)) \
    X(tile, mu_tile(in[0], (const int64_t[]){2, 2}))                                                  \
    X(repeat_0, mu_repeat(in[0], 2, 0)) X(repeat_1, mu_repeat(in[0], 2, 1))                           \
    X(broadcast_row, mu_broadcast_to(in[0], 2, (const int64_t[]){dim(in[0], -1), dim(in[0], -1)}))    \
    X(broadcast_column, mu_broadcast_to(in[0], 2, (const int64_t[]){dim(in[0], 0), dim(in[0], 0)}))   \
    X(reverse_0, mu_reverse(in[0], 0)) X(reverse_1, mu_reverse(in[0], 1))                             \
    X(roll_0, mu_roll(in[0], 3, 0)) X(roll_1, mu_roll(in[0], 3, 1))                                   \
    X(gather_0, mu_gather(in[0], in[1], 0, 0)) X(gather_1, mu_gather(in[0], in[1], 1, 0))             \
    X(batch_gather, mu_gather(in[0], in[1], 1, 1))                                                    \
    X(scatter_nd, mu_scatter_nd(in[0], in[1], 2, (const int64_t[]){dim(in[1], 1), dim(in[1], 1)}))    \
    X(one_hot, mu_one_hot(in[0], dim(in[0], 0), MU_F32))                                              \
    X(sort, mu_sort(in[0], 1, false)) X(argsort, mu_argsort(in[0], 1, false))                         \
    X(searchsorted, mu_searchsorted(in[0], in[1], false))                                             \
    X(segment_sum, mu_unsorted_segment_sum(in[0], in[1], dim(in[0], 0)))                              \
    X(zeros, mu_zeros(MU_F32, 2, (const int64_t[]){dim(in[0], 0), dim(in[0], 0)}))                    \
    X(fill, mu_fill(MU_F32, 2, (const int64_t[]){dim(in[0], 0), dim(in[0], 0)}, 1.5))                 \
    X(eye, mu_eye(MU_F32, dim(in[0], 0), dim(in[0], 0)))                                              \
    X(range, mu_range(MU_F32, 0, (double)(dim(in[0], 0) * dim(in[0], 0)), 1))                         \
    X(linspace, mu_linspace(MU_F32, 0, 1, dim(in[0], 0) * dim(in[0], 0)))                             \
    X(random_uniform, mu_stateless_random_uniform(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))\
    X(random_normal, mu_stateless_random_normal(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))\
    X(truncated_normal,                                                                               \
      mu_stateless_truncated_normal(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))\
    X(matmul_ta, mu_matmul_transposed(in[0], in[1], true, false))                                     \
    X(matmul_tb, mu_matmul_transposed(in[0], in[1], false, true))                                     \
    X(conv2d, mu_nn_conv2d(in[0], in[1], .padding = "same"))                                          \
    X(conv2d_1x1, mu_nn_conv2d(in[0], in[1]))                                                         \
    X(conv2d_stride, mu_nn_conv2d(in[0], in[1], .strides = {2, 2}))                                   \
    X(conv2d_groups, mu_nn_conv2d(in[0], in[1], .padding = "same", .groups = 4))                      \
    X(conv2d_dilated, mu_nn_conv2d(in[0], in[1], .dilations = {2, 2}))                                \
    X(depthwise, mu_nn_depthwise_conv2d(in[0], in[1], .padding = "same"))                             \
    X(conv1d, mu_nn_conv1d(in[0], in[1], .padding = "same"))                                          \
    X(max_pool, mu_nn_max_pool2d(in[0], {2, 2}))                                                      \
    X(max_pool_3x3, mu_nn_max_pool2d(in[0], {3, 3}, .strides = {2, 2}))                               \
    X(avg_pool, mu_nn_avg_pool2d(in[0], {2, 2}))                                                      \
    X(softmax, mu_nn_softmax(in[0], -1)) X(softmax_0, mu_nn_softmax(in[0], 0))                        \
    X(log_softmax, mu_nn_log_softmax(in[0], -1))                                                      \
    X(batch_norm, mu_nn_batch_normalization(in[0], in[1], in[2], in[3], in[4], 1e-3))                 \
    X(layer_norm, mu_nn_layer_normalization(in[0], in[1], in[2], 1e-5))                               \
    X(rms_norm, mu_nn_rms_normalization(in[0], in[1], 1e-5))                                          \
    X(group_norm, mu_nn_group_normalization(in[0], 4, in[1], in[2], 1e-5))                            \
    X(dropout, mu_nn_stateless_dropout(in[0], 0.25, in[1]))                                           \
    X(attention, mu_nn_attention(in[0], in[1], in[2]))                                                \
    X(attention_causal, mu_nn_attention(in[0], in[1], in[2], .causal = true))
OTHERS(ONE)

// Functions with several results.
static int call_split(ARGS)
{
    mu_split(in[0], 4, 1, out);
    return 4;
}

static int call_split_0(ARGS)
{
    mu_split(in[0], 4, 0, out);
    return 4;
}

static int call_unstack(ARGS)
{
    mu_unstack(in[0], 4, 0, out);
    return 4;
}

static int call_top_k(ARGS)
{
    mu_top_k(in[0], 8, &out[0], &out[1]);
    return 2;
}

static int call_unique(ARGS)
{
    mu_unique(in[0], &out[0], &out[1]);
    return 2;
}

static int call_batch_norm_training(ARGS)
{
    mu_nn_batch_norm_training(in[0], in[1], in[2], 1e-3, &out[0], &out[1], &out[2]);
    return 1;
}

#define NAMED(name, what) {#name, call_##name},
const call_row call_rows[] = {
    UNARY(NAMED) BINARY(NAMED) TERNARY(NAMED) OTHERS(NAMED)
    {"split", call_split}, {"split_0", call_split_0}, {"unstack", call_unstack}, {"top_k", call_top_k},
    {"unique", call_unique}, {"batch_norm_training", call_batch_norm_training}, {0},
};
