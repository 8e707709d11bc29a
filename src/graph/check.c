// Checks the invariants of graphs that passes and engines rely on; debug builds run it after each pass.
#include "graph/graph.h"

static bool in_place(const mu_graph *graph, const mu_node *node)
{
    return node->id >= 0 && (size_t)node->id < graph->nodes.n && graph->nodes.items[node->id] == node;
}

static mu_status check_edge(const mu_graph *graph, mu_edge edge, int before, const char *what)
{
    if (edge.node && in_place(graph, edge.node) && edge.node->id < before && edge.output >= 0 &&
        edge.output < edge.node->n_out)
        return MU_OK;
    return mu__error(MU_INTERNAL, "'%s': %s %d takes a value that no node before it makes", graph->name, what, before);
}

// A node's specs must match what its op's rule infers from its inputs now; the rule may infer more.
static mu_status check_specs(const mu_graph *graph, const mu_node *node, mu_spec *scratch)
{
    mu_spec *out = scratch + node->n_in + node->n_resources;
    for (int i = 0; i < node->n_in; i++)
        scratch[i] = node->in[i].node->out[node->in[i].output];
    for (int i = 0; i < node->n_resources; i++)
        scratch[node->n_in + i] = graph->resources.items[node->resources[i]]->spec;
    memset(out, 0, sizeof *out * (size_t)node->n_out);
    mu_infer infer = {.op = node->op,
                      .attrs = node->attrs,
                      .n_in = node->n_in,
                      .n_out = node->n_out,
                      .n_resources = node->n_resources,
                      .in = scratch,
                      .resources = scratch + node->n_in,
                      .out = out};
    MU_TRY(mu__infer_call(&infer));
    for (int i = 0; i < node->n_out; i++)
        if (out[i].dtype != node->out[i].dtype || !mu__shape_compatible(&out[i].shape, &node->out[i].shape))
            return mu__error(MU_INTERNAL,
                             "'%s': output %d of node %d (%s) has another type or shape than its inputs give",
                             graph->name, i, node->id, node->op->name);
    return MU_OK;
}

static mu_status check_node(const mu_graph *graph, const mu_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        MU_TRY(check_edge(graph, node->in[i], node->id, "node"));
    for (int i = 0; i < node->n_resources; i++)
        if (node->resources[i] < 0 || (size_t)node->resources[i] >= graph->resources.n)
            return mu__error(MU_INTERNAL, "'%s': node %d uses a resource that is not there", graph->name, node->id);
    mu_spec *scratch = mu__alloc(sizeof *scratch * (size_t)(node->n_in + node->n_resources + node->n_out + 1));
    mu_status status = scratch ? check_specs(graph, node, scratch) : MU_RESOURCE_EXHAUSTED;
    mu__free(scratch);
    return status;
}

mu_status mu__graph_check(const mu_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        if (graph->nodes.items[i]->id != (int)i)
            return mu__error(MU_INTERNAL, "'%s': node %zu is numbered %d", graph->name, i, graph->nodes.items[i]->id);
        MU_TRY(check_node(graph, graph->nodes.items[i]));
    }
    for (size_t i = 0; i < graph->inputs.n; i++)
        if (!in_place(graph, graph->inputs.items[i]))
            return mu__error(MU_INTERNAL, "'%s': input %zu is not a node of it", graph->name, i);
    for (size_t i = 0; i < graph->outputs.n; i++)
        MU_TRY(check_edge(graph, graph->outputs.items[i], (int)graph->nodes.n, "the result: output of"));
    return MU_OK;
}

mu_status mu__graph_assert(const mu_graph *graph)
{
#ifdef NDEBUG
    (void)graph;
    return MU_OK;
#else
    const mu_status status = mu__graph_check(graph);
    assert(status == MU_OK || status == MU_RESOURCE_EXHAUSTED);
    return status;
#endif
}
