// Calls of the op benchmark: sorts along other axes, top_k, unique of matrices, sorted segments. cases_order.py uses
// the same names.
#include "calls.h"

#define SEGMENTS(X)                                                        \
    X(segment_max, mu_unsorted_segment_max(in[0], in[1], dim(in[0], 0)))   \
    X(segment_min, mu_unsorted_segment_min(in[0], in[1], dim(in[0], 0)))   \
    X(segment_prod, mu_unsorted_segment_prod(in[0], in[1], dim(in[0], 0))) \
    X(segment_mean, mu_unsorted_segment_mean(in[0], in[1], dim(in[0], 0))) \
    X(sorted_segment_sum, mu_segment_sum(in[0], in[1]))                    \
    X(sorted_segment_max, mu_segment_max(in[0], in[1]))                    \
    X(sorted_segment_mean, mu_segment_mean(in[0], in[1]))                  \
    X(sorted_segment_min, mu_segment_min(in[0], in[1]))                    \
    X(sorted_segment_prod, mu_segment_prod(in[0], in[1]))
#define OTHERS(X)                                              \
    X(sort_0, mu_sort(in[0], 0, false))                        \
    X(sort_down, mu_sort(in[0], 1, true))                      \
    X(sort_flat, mu_sort(in[0], 0, false))                     \
    X(one_hot_i64, mu_one_hot(in[0], dim(in[0], 0), MU_I64))   \
    X(one_hot_i32, mu_one_hot(in[0], dim(in[0], 0), MU_I32))   \
    X(one_hot_bool, mu_one_hot(in[0], dim(in[0], 0), MU_BOOL)) \
    X(one_hot_bf16, mu_one_hot(in[0], dim(in[0], 0), MU_BF16))
SEGMENTS(ONE)
OTHERS(ONE)

static int greatest(mu_tensor *x, int64_t k, mu_tensor **out)
{
    mu_top_k(x, k, &out[0], &out[1]);
    return 2;
}

static int call_top_k_half(mu_tensor *const *in, mu_tensor **out) { return greatest(in[0], dim(in[0], 1) / 2, out); }

static int call_top_k_most(mu_tensor *const *in, mu_tensor **out) { return greatest(in[0], dim(in[0], 1) - 1, out); }

static int call_top_k_eighth(mu_tensor *const *in, mu_tensor **out) { return greatest(in[0], dim(in[0], 1) / 8, out); }

static int call_unique_flat(mu_tensor *const *in, mu_tensor **out)
{
    mu_unique(mu_reshape(in[0], 1, (const int64_t[]){mu_tensor_elements(in[0])}), &out[0], &out[1]);
    return 2;
}

const call_row call_order[] = {
    SEGMENTS(NAMED) OTHERS(NAMED){"top_k_half", call_top_k_half, NULL},
    {"top_k_most", call_top_k_most, NULL},
    {"top_k_eighth", call_top_k_eighth, NULL},
    {"unique_flat", call_unique_flat, NULL},
    {0},
};
