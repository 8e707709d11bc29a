// The trace in progress, as the graph layer keeps it behind the small interface that ops see.
#ifndef MU_SRC_GRAPH_TRACE_H
#define MU_SRC_GRAPH_TRACE_H

#include "graph/graph.h"

typedef struct mu_graph_trace {
    struct mu_trace interface;  // first
    mu_graph *graph;
    bool first;                 // the function's first trace, which may make variables
} mu_graph_trace;

// mu__trace_may_make_variables is false in every trace of a function but its first.
bool mu__trace_may_make_variables(void);

#endif
