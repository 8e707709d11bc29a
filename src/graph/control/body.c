// Graphs in attributes: finds, replaces and checks the bodies of a node.
//
// A body is an ordinary graph; its effects on resources count as effects of the node. No op is named here: an op's
// definition says which attributes are graphs.
#include "graph/graph.h"

mu_graph *mu__node_body(const mu_node *node, int i)
{
    for (const mu_attr_spec *spec = node->attrs ? node->op->attrs : NULL; spec && spec->name; spec++) {
        mu_graph *body = NULL;
        if (spec->kind != MU_ATTR_GRAPH)
            continue;
        memcpy(&body, (const char *)node->attrs + spec->offset, sizeof body);
        if (body && i-- == 0)
            return body;
    }
    return NULL;
}

static bool node_writes(const mu_node *node, int k, bool by_draws);

static bool graph_writes(const mu_graph *graph, const mu_resource *resource, bool by_draws)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; (node->flags & MU_OP_WRITES) && k < node->n_resources; k++)
            if (graph->resources.items[node->resources[k]] == resource && node_writes(node, k, by_draws))
                return true;
    }
    return false;
}

// Whether the node writes its k-th resource; without `by_draws`, otherwise than by draws.
static bool node_writes(const mu_node *node, int k, bool by_draws)
{
    if (!(node->flags & MU_OP_WRITES) || !(node->op->flags & MU_OP_CONTROL))
        return (node->flags & MU_OP_WRITES) && (by_draws || !(node->op->flags & MU_OP_DRAWS));
    const mu_resource *resource = node->graph->resources.items[node->resources[k]];
    mu_graph *body;
    for (int i = 0; (body = mu__node_body(node, i)); i++)
        if (graph_writes(body, resource, by_draws))
            return true;
    return false;
}

bool mu__node_writes(const mu_node *node, int k) { return node_writes(node, k, true); }

bool mu__node_endangers(const mu_node *node, int k) { return node_writes(node, k, false); }

static mu_status need_resources(const mu_node *node, const mu_graph *body, mu_resource *const *resources)
{
    for (size_t i = 0; i < body->resources.n; i++) {
        int k = 0;
        while (k < node->n_resources && resources[k] != body->resources.items[i])
            k++;
        if (k == node->n_resources)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: the body '%s' uses '%s', which is not among the %d resources of the node",
                             node->op->name, body->name, body->resources.items[i]->name, node->n_resources);
    }
    return MU_OK;
}

mu_status mu__admit_bodies(mu_node *node, mu_resource *const *resources)
{
    mu_graph *body;
    node->flags = node->op->flags;
    if (node->n_in > 0 && node->op->fails_for & MU_DTYPE_BIT(node->in[0].node->out[node->in[0].output].dtype))
        node->flags |= MU_OP_MAY_FAIL;
    for (int i = 0; (body = mu__node_body(node, i)); i++) {
        if (body->depth + 1 >= MU_MAX_DEPTH)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: the body '%s' has %d levels of graphs; with this one there may be %d in all",
                             node->op->name, body->name, body->depth + 1, MU_MAX_DEPTH);
        MU_TRY(need_resources(node, body, resources));
        node->flags |= body->effects;
        node->graph->depth = MU_MAX(node->graph->depth, body->depth + 1);
    }
    return MU_OK;
}

mu_status mu__replace_bodies(mu_node *node, mu_graph *(*change)(const mu_graph *body))
{
    if (!mu__node_body(node, 0))
        return MU_OK;
    char *attrs = mu__arena_copy(&node->graph->arena, node->attrs, node->op->attrs_bytes);
    if (!attrs)
        return MU_RESOURCE_EXHAUSTED;
    mu__attrs_retain(node->op, attrs);
    mu_status status = MU_OK;
    for (const mu_attr_spec *spec = node->op->attrs; spec->name && status == MU_OK; spec++) {
        mu_graph *body = NULL, *changed;
        if (spec->kind == MU_ATTR_GRAPH)
            memcpy(&body, attrs + spec->offset, sizeof body);
        if (!body)
            continue;
        if (!(changed = change(body))) {
            status = mu_error_code();
            break;
        }
        memcpy(attrs + spec->offset, &changed, sizeof changed);
        mu_release(body);
    }
    mu__attrs_release(node->op, status == MU_OK ? node->attrs : attrs);
    if (status == MU_OK)
        node->attrs = attrs;
    return status;
}

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status node_shapes(const mu_node *node, const int *first, mu_spec *all)
{
    mu_spec *specs = mu__calloc((size_t)(node->n_in + node->n_resources) + 1, sizeof *specs);
    if (!specs)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        specs[i] = all[first[node->in[i].node->id] + node->in[i].output];
    for (int i = 0; i < node->n_resources; i++)
        specs[node->n_in + i] = node->graph->resources.items[node->resources[i]]->spec;
    mu_infer infer = {.op = node->op,
                      .attrs = node->attrs,
                      .n_in = node->n_in,
                      .n_out = node->n_out,
                      .n_resources = node->n_resources,
                      .in = specs,
                      .resources = specs + node->n_in,
                      .out = all + first[node->id]};
    mu_status status = mu__infer_call(&infer);
    mu__free(specs);
    return status;
}

mu_status mu__graph_shapes(const mu_graph *graph, const mu_spec *in, mu_spec *out)
{
    size_t n = graph->nodes.n, values = 0;
    int *first = mu__alloc(sizeof *first * (n + 1));
    for (size_t i = 0; first && i < n; i++) {
        first[i] = (int)values;
        values += (size_t)graph->nodes.items[i]->n_out;
    }
    mu_spec *all = first ? mu__calloc(values + 1, sizeof *all) : NULL;
    mu_status status = all ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < graph->inputs.n; i++)
        all[first[graph->inputs.items[i]->id]] = in[i];
    for (size_t i = 0; status == MU_OK && i < n; i++)
        if (graph->nodes.items[i]->op != &mu_op_input)
            status = node_shapes(graph->nodes.items[i], first, all);
    for (size_t i = 0; status == MU_OK && i < graph->outputs.n; i++)
        out[i] = all[first[graph->outputs.items[i].node->id] + graph->outputs.items[i].output];
    mu__free(all);
    mu__free(first);
    return status;
}
