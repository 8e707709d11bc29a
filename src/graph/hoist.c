// Moves all-reduces to where their inputs are ready, so that the last layers' gradients are reduced while the backward
// pass continues.
//
// Traces add them where the program calls them, at the end. They have no effects on resources, so they may be moved;
// their order depends on the graph only, so it is the same on every replica.
#include "graph/graph.h"

typedef struct hoisting {
    mu_node **order;    // the new order
    size_t n;
    int *next, *first;  // lists of the all-reduces to put after each node; -1: none
} hoisting;

static bool moves(const mu_node *node)
{
    return node->op == &mu_op_all_reduce && node->n_in > 0;
}

static int ready_after(const mu_node *node)
{
    int latest = 0;
    for (int i = 0; i < node->n_in; i++)
        latest = MU_MAX(latest, node->in[i].node->id);
    return latest;
}

static void emit(hoisting *h, const mu_graph *graph, int id)
{
    h->order[h->n++] = graph->nodes.items[id];
    for (int i = h->first[id]; i >= 0; i = h->next[i])
        emit(h, graph, i);
}

mu_status mu__pass_hoist(mu_graph *graph)
{
    const size_t n = graph->nodes.n;
    hoisting h = {.order = mu__calloc(n + 1, sizeof *h.order), .next = mu__calloc(n + 1, 2 * sizeof *h.next)};
    if (!h.order || !h.next) {
        mu__free(h.order);
        mu__free(h.next);
        return MU_RESOURCE_EXHAUSTED;
    }
    h.first = h.next + n;
    for (size_t i = 0; i < n; i++)
        h.first[i] = h.next[i] = -1;
    for (size_t i = n; i-- > 0;)  // last first, so that the lists are in order
        if (moves(graph->nodes.items[i])) {
            const int after = ready_after(graph->nodes.items[i]);
            h.next[i] = h.first[after];
            h.first[after] = (int)i;
        }
    for (size_t i = 0; i < n; i++)
        if (!moves(graph->nodes.items[i]))
            emit(&h, graph, (int)i);
    for (size_t i = 0; i < n; i++) {
        graph->nodes.items[i] = h.order[i];
        graph->nodes.items[i]->id = (int)i;
    }
    mu__free(h.order);
    mu__free(h.next);
    return MU_OK;
}
