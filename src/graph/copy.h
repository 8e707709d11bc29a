// Copying one graph into another, node by node: what each value of the old one is in the new one.
#ifndef MU_SRC_GRAPH_COPY_H
#define MU_SRC_GRAPH_COPY_H

#include "graph/graph.h"

typedef struct mu_copying {
    const mu_graph *from;
    mu_graph *to;
    int *first;          // of each old node's values
    mu_edge *places;     // what each old value is in the new graph
} mu_copying;

// mu__copy_begin readies a copy; mu__copy_end frees what it needed, also of one that has not begun.
mu_status mu__copy_begin(mu_copying *c, const mu_graph *from, mu_graph *to);
void mu__copy_end(mu_copying *c);

// mu__copy_place is what stands for an old value: to read, or to set.
mu_edge *mu__copy_place(const mu_copying *c, const mu_node *node, int output);

// mu__copy_inputs lists what stands for the inputs of an old node, with room for `more` behind them; for mu__free.
mu_edge *mu__copy_inputs(const mu_copying *c, const mu_node *node, int more);

// mu__copy_node adds an op that takes the place of an old node: its name, number and source line are the old one's.
mu_node *mu__copy_node(const mu_copying *c, const mu_node *node, const mu_op *op, const void *attrs, int n_in,
                       const mu_edge *in);

// mu__copy_plain adds an old node as it is, on these inputs.
mu_status mu__copy_plain(const mu_copying *c, const mu_node *node, const mu_edge *in);

#endif
