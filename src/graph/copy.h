// Copies one graph into another, node by node, and maps each old value to its new one.
#ifndef MU_SRC_GRAPH_COPY_H
#define MU_SRC_GRAPH_COPY_H

#include "graph/graph.h"

typedef struct mu_copying {
    const mu_graph *from;
    mu_graph *to;
    int *first;      // of each old node's values
    mu_edge *values; // the new value of each old value
} mu_copying;

// mu__copy_begin prepares a copy. mu__copy_end frees its memory, also if mu__copy_begin failed or was not called.
mu_status mu__copy_begin(mu_copying *c, const mu_graph *from, mu_graph *to);
void mu__copy_end(mu_copying *c);

// mu__copied_value points to the new value of an old one, to read or set.
mu_edge *mu__copied_value(const mu_copying *c, const mu_node *node, int output);

// mu__copy_inputs lists the new values of an old node's inputs, with room for `more` after them; free with mu__free.
mu_edge *mu__copy_inputs(const mu_copying *c, const mu_node *node, int more);

// mu__copy_node adds an op that replaces an old node: it keeps the old name, number and source line.
mu_node *mu__copy_node(const mu_copying *c, const mu_node *node, const mu_op *op, const void *attrs, int n_in,
                       const mu_edge *in);

// mu__copy_plain adds an old node unchanged, with these inputs.
mu_status mu__copy_plain(const mu_copying *c, const mu_node *node, const mu_edge *in);

#endif
