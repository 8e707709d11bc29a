// Loops of the neural network ops by element type: float32 and float64. 16-bit floats are converted to float32.
//
// nn_loops.inc.c holds the bodies. Independent of op definitions.
#ifndef MU_SRC_OPS_NN_LOOPS_H
#define MU_SRC_OPS_NN_LOOPS_H

#include "ops/nn/nn.h"

typedef struct mu_nn_loops {
    void (*add_bias)(void *y, const void *bias, int64_t rows, int64_t channels, bool relu);
    // One softmax over n elements `step` apart.
    void (*softmax)(const void *x, void *y, int64_t n, int64_t step, bool logarithm);
    // One row: loss and gradient dx against the distribution p. If p is NULL, all probability is on `label`.
    void (*cross_entropy)(const void *x, const void *p, int64_t label, void *loss, void *dx, int64_t n);
} mu_nn_loops;

const mu_nn_loops *mu__nn_loops(mu_dtype dtype); // NULL for types without loops of their own

#endif
