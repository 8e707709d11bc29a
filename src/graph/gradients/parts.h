// Gradients of slices of one tensor: collected, then joined in one step.
#ifndef MU_SRC_GRAPH_PARTS_H
#define MU_SRC_GRAPH_PARTS_H

#include "graph/graph.h"

// The gradient of one slice, and its position in the tensor.
typedef struct mu_part {
    mu_tensor *dy;
    const mu_op *op;
    const void *attrs; // the slice's attributes; they live as long as the tape
    int64_t begin[MU_MAX_RANK];
    int64_t size[MU_MAX_RANK]; // MU_UNKNOWN: all of an axis whose size the trace does not know
} mu_part;

typedef struct mu_parts {
    mu_part *items;
    size_t n, capacity;
} mu_parts;

// mu__slice_part fills `out` if the op takes a block of x (a slice with step 1 at a known position).
bool mu__slice_part(const mu_op *op, const void *attrs, const mu_tensor *x, mu_tensor *dy, mu_part *out);

// mu__join_parts returns the gradient of x; NULL on error. Blocks that do not overlap are concatenated, which takes
// work and memory of x's size for any number of blocks.
mu_tensor *mu__join_parts(const mu_parts *parts, mu_tensor *x);

#endif
