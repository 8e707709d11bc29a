// Calls in place: a copy of a graph in which the ops of a call's body stand where the call was.
//
// Engines ask for it, so that they see one graph and fuse across what was a call. A body that is to be computed again
// stays one, unless the engine knows no bodies.
#include "graph/control.h"

// A graph while it is copied into another.
typedef struct copying {
    mu_graph *to;
    const mu_graph *from;
    bool all;
    int *first;          // of each node's values
    mu_edge *places;     // what each value is in the copy
} copying;

static mu_status copy_values(copying *c, const mu_edge *in);

static mu_edge place_of(const copying *c, mu_edge edge)
{
    return c->places[c->first[edge.node->id] + edge.output];
}

static mu_status start(copying *c)
{
    size_t n = 0;
    c->first = mu__calloc(c->from->nodes.n + 1, sizeof *c->first);
    for (size_t i = 0; c->first && i < c->from->nodes.n; i++) {
        c->first[i] = (int)n;
        n += (size_t)c->from->nodes.items[i]->n_out;
    }
    c->places = c->first ? mu__calloc(n + 1, sizeof *c->places) : NULL;
    return c->places ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void finish(copying *c)
{
    mu__free(c->first);
    mu__free(c->places);
}

static mu_status copy_call(const copying *c, const mu_node *node, const mu_edge *in)
{
    copying inner = {.to = c->to, .from = ((const mu_call_attrs *)node->attrs)->body, .all = c->all};
    mu_status status = start(&inner);
    if (status == MU_OK)
        status = copy_values(&inner, in);
    for (int k = 0; status == MU_OK && k < node->n_out; k++)
        c->places[c->first[node->id] + k] = place_of(&inner, inner.from->outputs.items[k]);
    finish(&inner);
    return status;
}

static mu_status copy_plain(const copying *c, const mu_node *node, const mu_edge *in)
{
    mu_resource **resources = mu__calloc((size_t)node->n_resources + 1, sizeof *resources);
    mu_node *copy = NULL;
    for (int i = 0; resources && i < node->n_resources; i++)
        resources[i] = c->from->resources.items[node->resources[i]];
    if (resources)
        copy = mu__graph_node(c->to, node->op, node->attrs, node->n_in, in, node->n_resources, resources);
    mu__free(resources);
    if (!copy)
        return mu_error_code();
    copy->name = node->name ? mu__arena_strdup(&c->to->arena, node->name) : NULL;
    copy->number = node->number;
    for (int k = 0; k < node->n_out; k++)
        c->places[c->first[node->id] + k] = (mu_edge){.node = copy, .output = k};
    return mu__node_place(copy, mu__node_site(node));
}

static mu_status copy_one(const copying *c, const mu_node *node)
{
    const bool call = node->op == &mu_op_call && (c->all || !((const mu_call_attrs *)node->attrs)->recompute);
    mu_edge *in = mu__calloc((size_t)node->n_in + 1, sizeof *in);
    if (!in)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        in[i] = place_of(c, node->in[i]);
    const mu_status status = call ? copy_call(c, node, in) : copy_plain(c, node, in);
    mu__free(in);
    return status;
}

static mu_status copy_values(copying *c, const mu_edge *in)
{
    for (size_t i = 0; i < c->from->inputs.n; i++)
        c->places[c->first[c->from->inputs.items[i]->id]] = in[i];
    for (size_t i = 0; i < c->from->nodes.n; i++)
        if (c->from->nodes.items[i]->op != &mu_op_input)
            MU_TRY(copy_one(c, c->from->nodes.items[i]));
    return MU_OK;
}

static mu_status copy_whole(copying *c)
{
    mu_edge *in = mu__calloc(c->from->inputs.n + 1, sizeof *in);
    mu_status status = in ? start(c) : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < c->from->resources.n; i++)
        status = mu__graph_resource(c->to, c->from->resources.items[i]) < 0 ? MU_RESOURCE_EXHAUSTED : MU_OK;
    for (size_t i = 0; status == MU_OK && i < c->from->inputs.n; i++) {
        const mu_node *input = c->from->inputs.items[i];
        in[i].node = mu__graph_input(c->to, &input->out[0], input->name);
        status = in[i].node ? MU_OK : mu_error_code();
    }
    if (status == MU_OK)
        status = copy_values(c, in);
    for (size_t i = 0; status == MU_OK && i < c->from->outputs.n; i++)
        status = MU_PUSH(&c->to->outputs, place_of(c, c->from->outputs.items[i]));
    finish(c);
    mu__free(in);
    return status;
}

mu_graph *mu__graph_inline(const mu_graph *graph, bool all)
{
    copying c = {.to = mu__graph_new(graph->name), .from = graph, .all = all};
    if (c.to && copy_whole(&c) == MU_OK)
        return c.to;
    mu_release(c.to);
    return NULL;
}
