// Which values of a graph are the same on all replicas (uniform.c), for lowerings of control flow with collectives.
#ifndef MU_SRC_GRAPH_UNIFORM_H
#define MU_SRC_GRAPH_UNIFORM_H

#include "graph/control/control.h"

// mu__uniform_values sets, for each slot of a pure graph, whether the value is surely the same on all replicas that run
// the graph in one program, given that of the graph's inputs.
mu_status mu__uniform_values(const mu_graph *graph, const int *first, const bool *inputs, bool *values);

// mu__uniform_loop does so for the values that a loop carries [n_carried] and its rows (NULL: not computed), and for
// the number of its iterations. `in` has the node's n_in inputs.
mu_status mu__uniform_loop(const mu_loop_attrs *attrs, int n_in, const bool *in, bool *carried, bool *rows,
                           bool *decided);

#endif
