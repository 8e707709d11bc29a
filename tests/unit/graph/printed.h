// A graph as text, for tests that compare graphs.
#ifndef MU_TESTS_GRAPH_PRINTED_H
#define MU_TESTS_GRAPH_PRINTED_H

#include "graph/graph.h"

// Writes the text to `text` and its size to `bytes`; the caller frees it.
static inline void print_to(const mu_graph *graph, char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);
    assert_non_null(out);
    mu__graph_print(graph, out);
    fclose(out);
}

// The caller frees the text.
static inline char *printed(const mu_graph *graph)
{
    char *text = NULL;
    size_t bytes;
    print_to(graph, &text, &bytes);
    return text;
}

// The text behind its first line, which has the graph's name.
static inline void assert_printed(const mu_graph *graph, const char *wanted)
{
    char *text = NULL;
    size_t bytes;
    print_to(graph, &text, &bytes);
    assert_string_equal(strchr(text, '\n') + 1, wanted);
    free(text);
}

#endif
