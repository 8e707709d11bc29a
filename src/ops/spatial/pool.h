// Common view of the five pools: each connects an image, a smaller result and, for max pools, the maxima's positions.
//
// pool.c has the op definitions, pool_ref.c the plain loops, pool_int.c the fast ones for integers.
#ifndef MU_SRC_OPS_POOL_H
#define MU_SRC_OPS_POOL_H

#include "ops/nn/nn.h"

typedef enum mu_pool_kind {
    MU_POOL_MAX,
    MU_POOL_MAX_GRAD,
    MU_POOL_MAX_PICK,
    MU_POOL_AVERAGE,
    MU_POOL_AVERAGE_GRAD
} mu_pool_kind;

// One call: the arrays of a pool, inputs or outputs.
typedef struct mu_pool_call {
    mu_pool_kind kind;
    mu_window window;
    mu_dtype dtype;
    void *image, *result;
    void *positions;     // index of each maximum within its window, in row-major order; NULL for average pools
    bool wide_positions; // int32 instead of uint8, for windows over 256 elements
} mu_pool_call;

mu_status mu__pool_call(const mu_kernel *kernel, mu_pool_call *out);
mu_status mu__pool_ref(const mu_kernel *kernel);
void mu__max_pool_whole(const mu_pool_call *call, int64_t begin, int64_t end); // images of integers

#endif
