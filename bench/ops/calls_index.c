// Calls of the op benchmark: ops with indices (gather, scatter, segments), sorting (sort, top_k, unique, search),
// random numbers. cases_index.py uses the same names.
#include "calls.h"
#include "ops/core/attrs.h"
#include "ops/core/op.h"

static const mu_gather_attrs along_0 = {0, 0}, along_1 = {1, 0}, in_batches = {1, 1};

#define BINARY(X) X(gather_nd, mu_gather_nd)
#define TERNARY(X)                              \
    X(scatter_update, mu_tensor_scatter_update) \
    X(scatter_add, mu_tensor_scatter_add)       \
    X(scatter_min, mu_tensor_scatter_min)       \
    X(scatter_max, mu_tensor_scatter_max)
#define OTHERS(X)                                                                                  \
    X(gather_0, mu_gather(in[0], in[1], 0, 0))                                                     \
    X(gather_1, mu_gather(in[0], in[1], 1, 0))                                                     \
    X(batch_gather, mu_gather(in[0], in[1], 1, 1))                                                 \
    X(scatter_nd, mu_scatter_nd(in[0], in[1], 2, (const int64_t[]){dim(in[1], 1), dim(in[1], 1)})) \
    X(one_hot, mu_one_hot(in[0], dim(in[0], 0), MU_F32))                                           \
    X(sort, mu_sort(in[0], 1, false))                                                              \
    X(argsort, mu_argsort(in[0], 1, false))                                                        \
    X(searchsorted, mu_searchsorted(in[0], in[1], false))                                          \
    X(segment_sum, mu_unsorted_segment_sum(in[0], in[1], dim(in[0], 0)))                           \
    X(segment_max, mu_unsorted_segment_max(in[0], in[1], dim(in[0], 0)))                           \
    X(segment_elements, mu_unsorted_segment_sum(in[0], in[1], 1000))                               \
    X(segment_sorted, mu_segment_sum(in[0], in[1]))                                                \
    X(gather_grad_0, mu__apply3(&mu_op_gather_grad, &along_0, in[0], in[1], in[2]))                \
    X(gather_grad_1, mu__apply3(&mu_op_gather_grad, &along_1, in[0], in[1], in[2]))                \
    X(batch_gather_grad, mu__apply3(&mu_op_gather_grad, &in_batches, in[0], in[1], in[2]))
#define RANDOM(X)                                                                                                     \
    X(random_uniform, mu_stateless_random_uniform(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)})) \
    X(random_normal, mu_stateless_random_normal(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))   \
    X(truncated_normal,                                                                                               \
      mu_stateless_truncated_normal(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))               \
    X(random_uniform_f64,                                                                                             \
      mu_stateless_random_uniform(in[0], MU_F64, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 1)}))                 \
    X(random_normal_f64,                                                                                              \
      mu_stateless_random_normal(in[0], MU_F64, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 1)}))                  \
    X(random_uniform_bf16,                                                                                            \
      mu_stateless_random_uniform(in[0], MU_BF16, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 1)}))                \
    X(random_normal_bf16,                                                                                             \
      mu_stateless_random_normal(in[0], MU_BF16, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 1)}))                 \
    X(random_int,                                                                                                     \
      mu_stateless_random_uniform_int(in[0], MU_I32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}, 0, 1000))    \
    X(random_int_i64,                                                                                                 \
      mu_stateless_random_uniform_int(in[0], MU_I64, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 1)}, 0, 1000))    \
    X(bernoulli, mu_stateless_random_bernoulli(in[0], 0.3, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))       \
    X(categorical, mu_stateless_random_categorical(in[0], in[1]))                                                     \
    X(gamma, mu_stateless_random_gamma(in[0], in[1], NULL, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 1)}))       \
    X(poisson, mu_stateless_random_poisson(in[0], in[1], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 1)})) \
    X(permutation, mu_stateless_permutation(in[0], dim(in[1], 0)))
BINARY(CALL2)
TERNARY(CALL3)
OTHERS(ONE)
RANDOM(ONE)

static int call_top_k(mu_tensor *const *in, mu_tensor **out)
{
    mu_top_k(in[0], 8, &out[0], &out[1]);
    return 2;
}

static int call_unique(mu_tensor *const *in, mu_tensor **out)
{
    mu_unique(in[0], &out[0], &out[1]);
    return 2;
}

const call_row call_index[] = {
    BINARY(NAMED) TERNARY(NAMED) OTHERS(NAMED) RANDOM(NAMED){"top_k", call_top_k, NULL},
    {"unique", call_unique, NULL},
    {0},
};
