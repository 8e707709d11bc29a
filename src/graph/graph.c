// Builds, prints and frees function graphs.
//
// Nodes are appended in program order, and their op's shape rule checks them at once, so a graph is always valid. All
// memory is in the graph's arena; attributes hold references to tensors and graphs.
#include "graph/graph.h"

static void graph_destroy(void *object)
{
    mu_graph *graph = object;
    for (size_t i = 0; i < graph->nodes.n; i++)
        mu__attrs_release(graph->nodes.items[i]->op, graph->nodes.items[i]->attrs);
    for (size_t i = 0; i < graph->resources.n; i++)
        mu_release(graph->resources.items[i]);
    mu__free(graph->nodes.items);
    mu__free(graph->inputs.items);
    mu__free(graph->outputs.items);
    mu__free(graph->resources.items);
    mu__arena_free(&graph->arena);
}

mu_type mu__graph_type = {.name = "graph", .destroy = graph_destroy};

mu_graph *mu__graph_new(const char *name)
{
    mu_graph *graph = mu__new(&mu__graph_type, sizeof *graph);
    if (!graph)
        return NULL;
    graph->name = mu__arena_strdup(&graph->arena, name);
    if (!graph->name) {
        mu_release(graph);
        return NULL;
    }
    return graph;
}

int mu__graph_resource(mu_graph *graph, mu_resource *resource)
{
    for (size_t i = 0; i < graph->resources.n; i++)
        if (graph->resources.items[i] == resource)
            return (int)i;
    if (MU_PUSH(&graph->resources, resource) != MU_OK)
        return -1;
    mu_retain(resource);
    return (int)graph->resources.n - 1;
}

// Runs the shape rule over the inputs' and resources' specs into node->out.
static mu_status infer_node(mu_node *node, mu_resource *const *resources)
{
    mu_spec *specs = mu__alloc(sizeof *specs * (size_t)(node->n_in + node->n_resources + 1));
    if (!specs)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        specs[i] = node->in[i].node->out[node->in[i].output];
    for (int i = 0; i < node->n_resources; i++)
        specs[node->n_in + i] = resources[i]->spec;
    mu_infer infer = {.op = node->op,
                      .attrs = node->attrs,
                      .n_in = node->n_in,
                      .n_out = node->n_out,
                      .n_resources = node->n_resources,
                      .in = specs,
                      .resources = specs + node->n_in,
                      .out = node->out};
    mu_status status = mu__infer_call(&infer);
    mu__free(specs);
    return status;
}

static mu_status fill_node(mu_node *node, const void *attrs, const mu_edge *in, mu_resource *const *resources)
{
    mu_graph *graph = node->graph;
    mu_arena *arena = &graph->arena;
    node->attrs = attrs ? mu__arena_copy(arena, attrs, node->op->attrs_bytes) : NULL;
    node->in = mu__arena_copy(arena, in, sizeof *in * (size_t)node->n_in);
    node->out = mu__arena_alloc(arena, sizeof *node->out * (size_t)node->n_out);
    node->resources = mu__arena_alloc(arena, sizeof *node->resources * (size_t)node->n_resources);
    if ((attrs && !node->attrs) || !node->in || !node->out || !node->resources)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_resources; i++)
        if ((node->resources[i] = mu__graph_resource(graph, resources[i])) < 0)
            return MU_RESOURCE_EXHAUSTED;
    MU_TRY(mu__check_resources(node->op, node->n_resources, resources));
    MU_TRY(mu__admit_bodies(node, resources));
    return infer_node(node, resources);
}

mu_node *mu__graph_node(mu_graph *graph, const mu_op *op, const void *attrs, int n_in, const mu_edge *in,
                        int n_resources, mu_resource *const *resources)
{
    mu_node *node = mu__arena_alloc(&graph->arena, sizeof *node);
    if (!node)
        return NULL;
    *node = (mu_node){.op = op,
                      .graph = graph,
                      .id = (int)graph->nodes.n,
                      .number = (int64_t)graph->nodes.n,
                      .n_in = n_in,
                      .n_out = mu__op_outputs(op, attrs, n_in),
                      .n_resources = n_resources};
    if (fill_node(node, attrs, in, resources) != MU_OK || MU_PUSH(&graph->nodes, node) != MU_OK)
        return NULL;
    mu__attrs_retain(op, node->attrs);
    graph->effects |= node->flags & (MU_OP_READS | MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE | MU_OP_MAY_FAIL);
    graph->collective |= (node->flags & MU_OP_COLLECTIVE) != 0;
    if (node->flags & MU_OP_COLLECTIVE)
        node->number = graph->n_collectives++;
    return node;
}

int *mu__graph_slots(const mu_graph *graph, mu_arena *arena)
{
    const size_t n = graph->nodes.n;
    int *first = arena ? mu__arena_alloc(arena, sizeof *first * (n + 1)) : mu__calloc(n + 1, sizeof *first);
    for (size_t i = 0; first && i < n; i++)
        first[i + 1] = first[i] + graph->nodes.items[i]->n_out;
    return first;
}

// A copy of a name, shared with the previous node if that has the same. NULL for NULL and "".
static mu_status keep_name(mu_node *node, const char *name, const char *before, const char **out)
{
    if (!name || !*name)
        return MU_OK;
    *out = before && strcmp(before, name) == 0 ? before : mu__arena_strdup(&node->graph->arena, name);
    return *out ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

mu_status mu__node_set_site(mu_node *node, mu_site site)
{
    const mu_node *before = node->id > 0 ? node->graph->nodes.items[node->id - 1] : NULL;
    node->line = site.line;
    node->function = site.function;
    MU_TRY(keep_name(node, site.file, before ? before->file : NULL, &node->file));
    return keep_name(node, site.layer, before ? before->layer : NULL, &node->layer);
}

mu_node *mu__graph_input(mu_graph *graph, const mu_spec *spec, const char *name)
{
    mu_input_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.dtype = spec->dtype;
    attrs.shape = spec->shape;
    mu_node *node = mu__graph_node(graph, &mu_op_input, &attrs, 0, NULL, 0, NULL);
    if (!node || MU_PUSH(&graph->inputs, node) != MU_OK)
        return NULL;
    node->name = name ? mu__arena_strdup(&graph->arena, name) : NULL;
    return node;
}

mu_node *mu__graph_constant(mu_graph *graph, mu_tensor *tensor)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        mu_node *node = graph->nodes.items[i];
        if (node->op == &mu_op_constant && ((const mu_constant_attrs *)node->attrs)->tensor == tensor)
            return node;
    }
    mu_constant_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.tensor = tensor;
    if (!mu__host_read(tensor))
        return NULL;
    return mu__graph_node(graph, &mu_op_constant, &attrs, 0, NULL, 0, NULL);
}

mu_status mu__graph_rewrite_effect(mu_node *node, const mu_op *op, const void *attrs, int n_in, const mu_edge *in,
                                   int n_resources, mu_resource *const *resources)
{
    mu_node changed = *node;
    changed.op = op;
    changed.n_in = n_in;
    changed.n_out = mu__op_outputs(op, attrs, n_in);
    changed.n_resources = n_resources;
    MU_TRY(fill_node(&changed, attrs, in, resources));
    mu__attrs_retain(op, changed.attrs);
    mu__attrs_release(node->op, node->attrs);
    *node = changed;
    return MU_OK;
}

mu_status mu__graph_rewrite(mu_node *node, const mu_op *op, const void *attrs, int n_in, const mu_edge *in)
{
    return mu__graph_rewrite_effect(node, op, attrs, n_in, in, 0, NULL);
}

static mu_node *copy_node(mu_graph *clone, const mu_graph *graph, const mu_node *node)
{
    mu_edge *in = mu__alloc(sizeof *in * (size_t)(node->n_in + 1));
    mu_resource **resources = mu__alloc(sizeof *resources * (size_t)(node->n_resources + 1));
    mu_node *copy = NULL;
    if (in && resources) {
        for (int i = 0; i < node->n_in; i++)
            in[i] = (mu_edge){.node = clone->nodes.items[node->in[i].node->id], .output = node->in[i].output};
        for (int i = 0; i < node->n_resources; i++)
            resources[i] = graph->resources.items[node->resources[i]];
        copy = mu__graph_node(clone, node->op, node->attrs, node->n_in, in, node->n_resources, resources);
    }
    if (copy) {
        copy->name = node->name ? mu__arena_strdup(&clone->arena, node->name) : NULL;
        copy->number = node->number;
        if (mu__node_set_site(copy, mu__node_site(node)) != MU_OK)
            copy = NULL;
    }
    mu__free(in);
    mu__free(resources);
    return copy;
}

mu_graph *mu__graph_clone(const mu_graph *graph)
{
    mu_graph *clone = mu__graph_new(graph->name);
    bool whole = clone != NULL;
    for (size_t i = 0; whole && i < graph->resources.n; i++)
        whole = mu__graph_resource(clone, graph->resources.items[i]) >= 0;
    for (size_t i = 0; whole && i < graph->nodes.n; i++)
        whole = copy_node(clone, graph, graph->nodes.items[i]) != NULL;
    for (size_t i = 0; whole && i < graph->inputs.n; i++)
        whole = MU_PUSH(&clone->inputs, clone->nodes.items[graph->inputs.items[i]->id]) == MU_OK;
    for (size_t i = 0; whole && i < graph->outputs.n; i++) {
        mu_edge edge = {.node = clone->nodes.items[graph->outputs.items[i].node->id],
                        .output = graph->outputs.items[i].output};
        whole = MU_PUSH(&clone->outputs, edge) == MU_OK;
    }
    if (whole)
        return clone;
    mu_release(clone);
    return NULL;
}

static void print_graph(const mu_graph *graph, int indent, FILE *out);

static void print_node(const mu_graph *graph, const mu_node *node, int indent, FILE *out)
{
    char text[MU_SHAPE_TEXT], attrs[MU_ATTRS_TEXT], name[MU_PRINTABLE_BYTES];
    mu_graph *body;
    fprintf(out, "%*s%%%d = %s(", indent, "", node->id, node->op->name);
    for (int k = 0; k < node->n_in; k++) {
        fprintf(out, "%s%%%d", k ? ", " : "", node->in[k].node->id);
        if (node->in[k].node->n_out > 1)
            fprintf(out, ".%d", node->in[k].output);
    }
    for (int k = 0; k < node->n_resources; k++)
        fprintf(out, "%s@%s", k || node->n_in ? ", " : "",
                mu__printable_copy(graph->resources.items[node->resources[k]]->name, name));
    mu__attrs_text(node->op, node->attrs, " ", attrs);
    fprintf(out, ")%s", attrs);
    for (int k = 0; k < node->n_out; k++)
        fprintf(out, "%s %s%s", k ? "," : " :", mu_dtype_name(node->out[k].dtype),
                mu__shape_text(&node->out[k].shape, text));
    fprintf(out, "%s%s\n", node->name ? "  # " : "", node->name ? mu__printable_copy(node->name, name) : "");
    for (int i = 0; (body = mu__node_body(node, i)); i++)
        print_graph(body, indent + 4, out);
}

static void print_graph(const mu_graph *graph, int indent, FILE *out)
{
    char name[MU_PRINTABLE_BYTES];
    fprintf(out, "%*sgraph %s: %zu nodes, %zu resources\n", indent, "", mu__printable_copy(graph->name, name),
            graph->nodes.n, graph->resources.n);
    for (size_t i = 0; i < graph->nodes.n; i++)
        print_node(graph, graph->nodes.items[i], indent + 2, out);
    fprintf(out, "%*sreturn", indent + 2, "");
    for (size_t i = 0; i < graph->outputs.n; i++)
        fprintf(out, " %%%d.%d", graph->outputs.items[i].node->id, graph->outputs.items[i].output);
    fprintf(out, "\n");
}

void mu__graph_print(const mu_graph *graph, FILE *out) { print_graph(graph, 0, out); }
