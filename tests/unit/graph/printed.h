// A graph as text, for tests that compare graphs.
#ifndef MU_TESTS_GRAPH_PRINTED_H
#define MU_TESTS_GRAPH_PRINTED_H

#include "graph/graph.h"

// The caller frees the text.
static inline char *printed(const mu_graph *graph)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    mu__graph_print(graph, out);
    fclose(out);
    return text;
}

#endif
