// Inlining: copies a graph with the ops of a call's body in place of the call.
//
// Engines use it to see one graph and fuse across calls. A body that is recomputed for its gradient stays a body,
// unless the engine does not support bodies.
#include "graph/control/control.h"
#include "graph/copy.h"

static mu_status copy_values(const mu_copying *c, bool all, const mu_edge *in);

static mu_status copy_call(const mu_copying *c, bool all, const mu_node *node, const mu_edge *in)
{
    mu_copying inner;
    const mu_graph *body = ((const mu_call_attrs *)node->attrs)->body;
    mu_status status = mu__copy_begin(&inner, body, c->to);
    if (status == MU_OK)
        status = copy_values(&inner, all, in);
    for (int k = 0; status == MU_OK && k < node->n_out; k++)
        *mu__copied_value(c, node, k) =
            *mu__copied_value(&inner, body->outputs.items[k].node, body->outputs.items[k].output);
    mu__copy_end(&inner);
    return status;
}

static mu_status copy_one(const mu_copying *c, bool all, const mu_node *node)
{
    const bool call = node->op == &mu_op_call && (all || !((const mu_call_attrs *)node->attrs)->recompute);
    mu_edge *in = mu__copy_inputs(c, node, 0);
    if (!in)
        return MU_RESOURCE_EXHAUSTED;
    const mu_status status = call ? copy_call(c, all, node, in) : mu__copy_plain(c, node, in);
    mu__free(in);
    return status;
}

static mu_status copy_values(const mu_copying *c, bool all, const mu_edge *in)
{
    for (size_t i = 0; i < c->from->inputs.n; i++)
        *mu__copied_value(c, c->from->inputs.items[i], 0) = in[i];
    for (size_t i = 0; i < c->from->nodes.n; i++)
        if (c->from->nodes.items[i]->op != &mu_op_input)
            MU_TRY(copy_one(c, all, c->from->nodes.items[i]));
    return MU_OK;
}

static mu_status copy_whole(const mu_copying *c, bool all)
{
    const mu_graph *from = c->from;
    mu_edge *in = mu__calloc(from->inputs.n + 1, sizeof *in);
    mu_status status = in ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < from->resources.n; i++)
        status = mu__graph_resource(c->to, from->resources.items[i]) < 0 ? MU_RESOURCE_EXHAUSTED : MU_OK;
    for (size_t i = 0; status == MU_OK && i < from->inputs.n; i++) {
        const mu_node *input = from->inputs.items[i];
        in[i].node = mu__graph_input(c->to, &input->out[0], input->name);
        status = in[i].node ? MU_OK : mu_error_code();
    }
    if (status == MU_OK)
        status = copy_values(c, all, in);
    for (size_t i = 0; status == MU_OK && i < from->outputs.n; i++)
        status =
            MU_PUSH(&c->to->outputs, *mu__copied_value(c, from->outputs.items[i].node, from->outputs.items[i].output));
    mu__free(in);
    return status;
}

mu_graph *mu__graph_inline(const mu_graph *graph, bool all)
{
    mu_copying c = {.first = NULL};
    mu_graph *copy = mu__graph_new(graph->name);
    bool whole = copy && mu__copy_begin(&c, graph, copy) == MU_OK && copy_whole(&c, all) == MU_OK;
    mu__copy_end(&c);
    if (whole)
        return copy;
    mu_release(copy);
    return NULL;
}
