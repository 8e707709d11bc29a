// The trace in progress, as the graph layer sees it; ops see only its small interface.
#ifndef MU_SRC_GRAPH_TRACE_H
#define MU_SRC_GRAPH_TRACE_H

#include "graph/graph.h"

// A captured tensor (retained), and the input of the body that represents it.
typedef struct mu_captured {
    mu_tensor *tensor;
    mu_node *node;
} mu_captured;

typedef struct mu_graph_trace mu_graph_trace;
struct mu_graph_trace {
    struct mu_trace interface; // first
    mu_graph *graph;
    bool first; // the function's first trace, which may make variables
    // Of a body (control.h):
    bool keep;             // a tape is open outside, so values that its gradient may need are kept
    mu_graph_trace *outer; // the enclosing trace, whose tensors it may use; NULL: none
    struct {
        mu_captured *items;
        size_t n, capacity;
    } captured; // captured tensors
    // resolve finds the edge of this graph that represents a tensor of another graph; `edge` is unchanged if there is
    // none.
    mu_status (*resolve)(mu_graph_trace *trace, mu_tensor *tensor, mu_edge *edge);
    void *resolve_arg;
    const mu_graph *resolves; // the graph whose tensors it resolves
};

// mu__trace_add is how a trace adds a node (the interface's add).
mu_status mu__trace_add(struct mu_trace *interface, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                        int n_resources, mu_resource *const *resources, mu_tensor **out);
// mu__trace_made gives nodes the name of the function that made them (the interface's made).
void mu__trace_made(struct mu_trace *interface, const char *function, int n_in, mu_tensor *const *in,
                    mu_tensor *result);

// mu__trace_edge returns the edge of a tensor in a trace's graph: the trace's own, a constant, or a captured input.
mu_status mu__trace_edge(mu_graph_trace *trace, mu_tensor *tensor, mu_edge *edge);

// mu__trace_may_make_variables returns false in every trace of a function but its first.
bool mu__trace_may_make_variables(void);

#endif
