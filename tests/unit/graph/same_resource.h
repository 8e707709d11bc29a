// For readers of graphs in tests: a resource is found by its name in the graph that was written.
#ifndef MU_TESTS_GRAPH_SAME_RESOURCE_H
#define MU_TESTS_GRAPH_SAME_RESOURCE_H

#include "graph/graph.h"

#include <string.h>

// `arg`: the graph.
static inline mu_resource *same_resource(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    const mu_graph *graph = arg;
    (void)kind;
    (void)spec;
    for (size_t i = 0; i < graph->resources.n; i++)
        if (strcmp(graph->resources.items[i]->name, name) == 0)
            return graph->resources.items[i];
    return NULL;
}

#endif
