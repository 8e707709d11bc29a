// Rules that apply an op to all rows at once (vectorize_rules.c), for mu_vectorized_map (vectorize.c).
#ifndef MU_SRC_GRAPH_VECTORIZE_H
#define MU_SRC_GRAPH_VECTORIZE_H

#include "graph/control/map_fn.h"

// A value while a function of one row is vectorized: with `rows` it has one more first axis than the function saw.
typedef struct mu_vector_rows {
    mu_tensor *at;
    bool rows;
} mu_vector_rows;

// mu__vectorize_node applies `node` to all rows at once; at least one input has rows. `done`: there is a rule for it,
// and every output has rows. The outputs belong to the pool.
mu_status mu__vectorize_node(const mu_node *node, const mu_vector_rows *in, mu_tensor **out, bool *done);

#endif
