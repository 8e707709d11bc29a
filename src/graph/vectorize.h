// Rules for doing an op for all rows at once (vectorize_rules.c), for mu_vectorized_map (vectorize.c).
#ifndef MU_SRC_GRAPH_VECTORIZE_H
#define MU_SRC_GRAPH_VECTORIZE_H

#include "graph/map_fn.h"

// A value while a function of one row is done for all: with `rows` it has a first axis more than the function saw.
typedef struct mu_vector_rows {
    mu_tensor *at;
    bool rows;
} mu_vector_rows;

// mu__vectorize_node does what `node` does to one row for all of them; at least one input has rows. `done` says whether
// there is a rule for it: then every output has rows. Outputs belong to the pool.
mu_status mu__vectorize_node(const mu_node *node, const mu_vector_rows *in, mu_tensor **out, bool *done);

#endif
