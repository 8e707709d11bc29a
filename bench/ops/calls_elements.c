// Calls of the op benchmark: element-wise ops, casts, and reductions along axes. cases_elements.py uses the same
// names.
#include "calls.h"

#define UNARY(X)                        \
    X(abs, mu_abs)                      \
    X(neg, mu_neg)                      \
    X(sign, mu_sign)                    \
    X(square, mu_square)                \
    X(floor, mu_floor)                  \
    X(ceil, mu_ceil)                    \
    X(round, mu_round)                  \
    X(exp, mu_exp)                      \
    X(expm1, mu_expm1)                  \
    X(log, mu_log)                      \
    X(log1p, mu_log1p)                  \
    X(sqrt, mu_sqrt)                    \
    X(rsqrt, mu_rsqrt)                  \
    X(reciprocal, mu_reciprocal)        \
    X(erf, mu_erf)                      \
    X(erfc, mu_erfc)                    \
    X(lgamma, mu_lgamma)                \
    X(digamma, mu_digamma)              \
    X(sin, mu_sin)                      \
    X(cos, mu_cos)                      \
    X(tan, mu_tan)                      \
    X(asin, mu_asin)                    \
    X(acos, mu_acos)                    \
    X(atan, mu_atan)                    \
    X(sinh, mu_sinh)                    \
    X(cosh, mu_cosh)                    \
    X(tanh, mu_tanh)                    \
    X(asinh, mu_asinh)                  \
    X(acosh, mu_acosh)                  \
    X(atanh, mu_atanh)                  \
    X(sigmoid, mu_sigmoid)              \
    X(is_nan, mu_is_nan)                \
    X(is_inf, mu_is_inf)                \
    X(is_finite, mu_is_finite)          \
    X(relu, mu_nn_relu)                 \
    X(relu6, mu_nn_relu6)               \
    X(selu, mu_nn_selu)                 \
    X(elu, mu_nn_elu)                   \
    X(silu, mu_nn_silu)                 \
    X(mish, mu_nn_mish)                 \
    X(softplus, mu_nn_softplus)         \
    X(softsign, mu_nn_softsign)         \
    X(log_sigmoid, mu_nn_log_sigmoid)   \
    X(hard_sigmoid, mu_nn_hard_sigmoid) \
    X(logical_not, mu_logical_not)      \
    X(zeros_like, mu_zeros_like)        \
    X(ones_like, mu_ones_like)
#define BINARY(X)                                \
    X(add, mu_add)                               \
    X(subtract, mu_subtract)                     \
    X(multiply, mu_multiply)                     \
    X(divide, mu_divide)                         \
    X(divide_no_nan, mu_divide_no_nan)           \
    X(floor_divide, mu_floor_divide)             \
    X(mod, mu_mod)                               \
    X(pow, mu_pow)                               \
    X(maximum, mu_maximum)                       \
    X(minimum, mu_minimum)                       \
    X(squared_difference, mu_squared_difference) \
    X(atan2, mu_atan2)                           \
    X(equal, mu_equal)                           \
    X(not_equal, mu_not_equal)                   \
    X(less, mu_less)                             \
    X(less_equal, mu_less_equal)                 \
    X(greater, mu_greater)                       \
    X(greater_equal, mu_greater_equal)           \
    X(logical_and, mu_logical_and)               \
    X(logical_or, mu_logical_or)                 \
    X(logical_xor, mu_logical_xor)
#define TERNARY(X)     \
    X(where, mu_where) \
    X(clip_by_value, mu_clip_by_value)
UNARY(CALL1)
BINARY(CALL2)
TERNARY(CALL3)

// Functions with numeric parameters.
#define OTHERS(X)                                                             \
    X(leaky_relu, mu_nn_leaky_relu(in[0], 0.2))                               \
    X(gelu, mu_nn_gelu(in[0], false))                                         \
    X(gelu_tanh, mu_nn_gelu(in[0], true))                                     \
    X(cast_f64, mu_cast(in[0], MU_F64))                                       \
    X(cast_i32, mu_cast(in[0], MU_I32))                                       \
    X(cast_f32, mu_cast(in[0], MU_F32))                                       \
    X(cast_f16, mu_cast(in[0], MU_F16))                                       \
    X(cast_bf16, mu_cast(in[0], MU_BF16))                                     \
    X(cast_i64, mu_cast(in[0], MU_I64))                                       \
    X(cast_u8, mu_cast(in[0], MU_U8))                                         \
    X(cast_bool, mu_cast(in[0], MU_BOOL))                                     \
    X(cast_i8, mu_cast(in[0], MU_I8))                                         \
    X(cast_i16, mu_cast(in[0], MU_I16))                                       \
    X(logsumexp_all, mu_reduce_logsumexp(in[0], MU_ALL_AXES))                 \
    X(argmin_0, mu_argmin(in[0], 0))                                          \
    X(any_0, mu_reduce_any(in[0], 0))                                         \
    X(all_0, mu_reduce_all(in[0], 0))                                         \
    X(cumprod_0, mu_cumprod(in[0], 0, false, false))                          \
    X(cumsum_back_0, mu_cumsum(in[0], 0, true, true))                         \
    X(sum_all, mu_reduce_sum(in[0], MU_ALL_AXES))                             \
    X(sum_0, mu_reduce_sum(in[0], 0))                                         \
    X(sum_1, mu_reduce_sum(in[0], 1))                                         \
    X(sum_02, mu_reduce_sum(in[0], .axes = (const int[]){0, 2}, .n_axes = 2)) \
    X(mean_all, mu_reduce_mean(in[0], MU_ALL_AXES))                           \
    X(mean_0, mu_reduce_mean(in[0], 0))                                       \
    X(mean_1, mu_reduce_mean(in[0], 1))                                       \
    X(max_all, mu_reduce_max(in[0], MU_ALL_AXES))                             \
    X(max_0, mu_reduce_max(in[0], 0))                                         \
    X(max_1, mu_reduce_max(in[0], 1))                                         \
    X(min_all, mu_reduce_min(in[0], MU_ALL_AXES))                             \
    X(min_0, mu_reduce_min(in[0], 0))                                         \
    X(min_1, mu_reduce_min(in[0], 1))                                         \
    X(prod_0, mu_reduce_prod(in[0], 0))                                       \
    X(prod_1, mu_reduce_prod(in[0], 1))                                       \
    X(any_all, mu_reduce_any(in[0], MU_ALL_AXES))                             \
    X(any_1, mu_reduce_any(in[0], 1))                                         \
    X(all_all, mu_reduce_all(in[0], MU_ALL_AXES))                             \
    X(all_1, mu_reduce_all(in[0], 1))                                         \
    X(logsumexp_0, mu_reduce_logsumexp(in[0], 0))                             \
    X(logsumexp_1, mu_reduce_logsumexp(in[0], 1))                             \
    X(variance_0, mu_reduce_variance(in[0], 0))                               \
    X(variance_1, mu_reduce_variance(in[0], 1))                               \
    X(std_1, mu_reduce_std(in[0], 1))                                         \
    X(argmax_0, mu_argmax(in[0], 0))                                          \
    X(argmax_1, mu_argmax(in[0], 1))                                          \
    X(argmin_1, mu_argmin(in[0], 1))                                          \
    X(cumsum_0, mu_cumsum(in[0], 0, false, false))                            \
    X(cumsum_1, mu_cumsum(in[0], 1, false, false))                            \
    X(cumsum_back, mu_cumsum(in[0], 1, true, true))                           \
    X(cumprod_1, mu_cumprod(in[0], 1, false, false))
OTHERS(ONE)

const call_row call_elements[] = {UNARY(NAMED) BINARY(NAMED) TERNARY(NAMED) OTHERS(NAMED){0}};
