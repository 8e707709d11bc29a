// Calls of the bench of ops: what follows indices (gather, scatter, segments), what orders (sort, top_k, unique,
// search), random numbers. A row's name is the one that cases_index.py uses. It must not know how anything is timed,
// nor what the rivals do.
#include "calls.h"

#define BINARY(X)              \
    X(gather_nd, mu_gather_nd)
#define TERNARY(X)                                                                    \
    X(scatter_update, mu_tensor_scatter_update) X(scatter_add, mu_tensor_scatter_add) \
    X(scatter_min, mu_tensor_scatter_min) X(scatter_max, mu_tensor_scatter_max)
#define OTHERS(X)                                                                                  \
    X(gather_0, mu_gather(in[0], in[1], 0, 0)) X(gather_1, mu_gather(in[0], in[1], 1, 0))          \
    X(batch_gather, mu_gather(in[0], in[1], 1, 1))                                                 \
    X(scatter_nd, mu_scatter_nd(in[0], in[1], 2, (const int64_t[]){dim(in[1], 1), dim(in[1], 1)})) \
    X(one_hot, mu_one_hot(in[0], dim(in[0], 0), MU_F32))                                           \
    X(sort, mu_sort(in[0], 1, false)) X(argsort, mu_argsort(in[0], 1, false))                      \
    X(searchsorted, mu_searchsorted(in[0], in[1], false))                                          \
    X(segment_sum, mu_unsorted_segment_sum(in[0], in[1], dim(in[0], 0)))
#define RANDOM(X)                                                                                                     \
    X(random_uniform, mu_stateless_random_uniform(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)})) \
    X(random_normal, mu_stateless_random_normal(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))   \
    X(truncated_normal,                                                                                               \
      mu_stateless_truncated_normal(in[0], MU_F32, 2, (const int64_t[]){dim(in[1], 0), dim(in[1], 0)}))
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
    BINARY(NAMED) TERNARY(NAMED) OTHERS(NAMED) RANDOM(NAMED)
    {"top_k", call_top_k, NULL}, {"unique", call_unique, NULL}, {0},
};
