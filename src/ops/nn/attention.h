// Shared by the attention files: the shapes of one call, and which keys a query may attend to.
#ifndef MU_SRC_OPS_ATTENTION_H
#define MU_SRC_OPS_ATTENTION_H

#include "ops/nn/nn.h"

typedef struct attention_job {
    const mu_kernel *kernel;
    int64_t batches, queries, keys, width, depth; // width: of queries and keys; depth: of values
    double scale;
    bool causal;
    const mu_view *mask; // NULL: no mask
    mu_shape scores;     // the shape that the mask broadcasts to
    const void *q, *k, *v, *dy, *seen_y, *seen_log_sum;
    void *y, *log_sum, *dq, *dk, *dv;
    int64_t first; // the batch at which all of these but the sums begin
} attention_job;

// mu__attention_job and _grad_job read a kernel's operands.
attention_job mu__attention_job(const mu_kernel *kernel);
attention_job mu__attention_grad_job(const mu_kernel *kernel);

// Returns the mask element for the first query and key of a batch, and the mask's strides per query and per key.
const uint8_t *mu__attention_mask(const attention_job *job, int64_t batch, int64_t *per_query, int64_t *per_key);

// Number of keys that a query may attend to, given its position (all keys unless causal).
static inline int64_t mu__attention_reach(const attention_job *job, int64_t query)
{
    const int64_t reach = query + 1 + job->keys - job->queries;
    return !job->causal ? job->keys : reach < 0 ? 0 : reach;
}

// The fast kernels, for float32 (attention_fast.c).
mu_status mu__attention_prepare(mu_prepare *prepare);
mu_status mu__attention_fast(const mu_kernel *kernel);
mu_status mu__attention_grad_fast(const mu_kernel *kernel);

#endif
