// A graph as a sequence of steps: effects on resources one by one, and between them segments without effects.
//
// For variables that others change at the same time: each effect is one request to the process that keeps the variable,
// and the nodes between need no variable at all. The order of effects on each resource is the graph's. Segments are as
// large as they can be: a training step reads all its variables, computes, and applies all its updates.
#ifndef MU_SRC_GRAPH_SEGMENTS_H
#define MU_SRC_GRAPH_SEGMENTS_H

#include "graph/graph.h"

// One step. Values between steps have numbers: the graph's inputs come first.
typedef struct mu_graph_step {
    const mu_node *effect; // of the graph that was cut; NULL: a segment
    mu_graph *segment;     // retained; of an effect with bodies (cond, while) a graph with that node alone, of
                           // another effect NULL
    int n_in, n_out;
    int *in, *out; // numbers of values
} mu_graph_step;

typedef struct mu_segments {
    mu_graph *graph; // retained
    mu_graph_step *steps;
    int n_steps, n_values;
    int *outputs;          // [graph outputs] numbers of values
    int *last_use;         // [n_values] last step that needs the value; n_steps: it is an output
    mu_tensor **constants; // [n_values] elements that are known beforehand, borrowed from the graph; else NULL
} mu_segments;

// mu__segments_cut cuts a graph; free with mu__segments_free (NULL is accepted). NULL on error.
mu_segments *mu__segments_cut(mu_graph *graph);
void mu__segments_free(mu_segments *segments);

#endif
