// Prunes inside bodies: removes unused computations, inputs and outputs.
//
// Nodes are visited from last to first, so that all users of a node's outputs are known. Bodies are copied before they
// are changed, because tapes and other graphs may hold the same ones.
#include "graph/control/control.h"

// A node's new form while it is worked out.
typedef struct draft {
    mu_node *node;
    void *attrs; // with copies of the bodies, referenced
    mu_bodies bodies;
    bool *keep; // [n_out] outputs that something uses
    mu_edge *in;
    int n_in;
} draft;

static mu_status copy_bodies(draft *d)
{
    mu_node *node = d->node;
    if (!(d->attrs = mu__arena_copy(&node->graph->arena, node->attrs, node->op->attrs_bytes)))
        return MU_RESOURCE_EXHAUSTED;
    mu__attrs_retain(node->op, d->attrs);
    d->bodies = mu__bodies_of(node->op, d->attrs);
    for (int b = 0; b < d->bodies.n; b++) {
        mu_graph *copy = mu__graph_clone(*d->bodies.at[b]);
        if (!copy)
            return mu_error_code();
        mu_release(*d->bodies.at[b]);
        *d->bodies.at[b] = copy;
    }
    return MU_OK;
}

// ---- Outputs ------------------------------------------------------------------------------------

// The node's output for output i of body b.
static size_t output_of_node(const draft *d, int b, size_t i)
{
    const mu_cond_attrs *attrs = d->node->attrs;
    if (d->node->op == &mu_op_while_loop)
        return 1 + i;
    if (d->node->op == &mu_op_cond && b == 1 && (int64_t)i >= attrs->n_shared)
        return attrs->then->outputs.n + i - (size_t)attrs->n_shared;
    return i;
}

// Keeps a loop's count and carried values, and all outputs of a call whose gradient relies on them.
static bool stays(const draft *d, int i)
{
    const mu_loop_attrs *loop = d->node->attrs;
    const mu_call_attrs *call = d->node->attrs;
    if (d->node->op == &mu_op_while_loop)
        return d->keep[i] || i <= loop->n_carried;
    return d->keep[i] || (d->node->op == &mu_op_call && call->gradient);
}

static void narrow_outputs(draft *d)
{
    mu_cond_attrs *cond = d->attrs;
    int64_t shared = 0;
    for (int i = 0; i < d->node->n_out; i++)
        d->keep[i] = stays(d, i);
    for (int b = 0; b < d->bodies.n; b++) {
        mu_graph *body = *d->bodies.at[b];
        size_t n = 0;
        for (size_t i = 0; i < body->outputs.n && !(b == 1 && d->node->op == &mu_op_while_loop); i++)
            if (d->keep[output_of_node(d, b, i)])
                body->outputs.items[n++] = body->outputs.items[i];
        if (b == 0 || d->node->op == &mu_op_cond)
            body->outputs.n = n;
    }
    for (int i = 0; d->node->op == &mu_op_cond && i < cond->n_shared; i++)
        shared += d->keep[i];
    if (d->node->op == &mu_op_cond)
        cond->n_shared = shared;
}

// ---- Inputs -------------------------------------------------------------------------------------

static bool uses(const mu_graph *body, const mu_node *input)
{
    for (size_t i = 0; i < body->outputs.n; i++)
        if (body->outputs.items[i].node == input)
            return true;
    for (size_t i = 0; i < body->nodes.n; i++)
        for (int k = 0; k < body->nodes.items[i]->n_in; k++)
            if (body->nodes.items[i]->in[k].node == input)
                return true;
    return false;
}

static void drop_input(mu_graph *body, size_t i)
{
    mu_node *node = body->inputs.items[i];
    memmove(body->inputs.items + i, body->inputs.items + i + 1, sizeof(mu_node *) * (body->inputs.n - i - 1));
    body->inputs.n--;
    mu__attrs_release(node->op, node->attrs);
    memmove(body->nodes.items + node->id, body->nodes.items + node->id + 1,
            sizeof(mu_node *) * (body->nodes.n - (size_t)node->id - 1));
    body->nodes.n--;
    for (size_t k = (size_t)node->id; k < body->nodes.n; k++)
        body->nodes.items[k]->id = (int)k;
}

static mu_status narrow_inputs(draft *d)
{
    const mu_node *node = d->node;
    const mu_call_attrs *call = node->attrs;
    if (!(d->in = mu__arena_copy(&node->graph->arena, node->in, sizeof *d->in * (size_t)node->n_in)))
        return MU_RESOURCE_EXHAUSTED;
    d->n_in = node->n_in;
    if (node->op == &mu_op_call && call->gradient)
        return MU_OK;
    for (int i = d->bodies.first_captured; i < d->n_in;) {
        bool used = false;
        const size_t at = (size_t)(i - d->bodies.first_captured);
        for (int b = 0; b < d->bodies.n && !used; b++)
            used = uses(*d->bodies.at[b], (*d->bodies.at[b])->inputs.items[(size_t)d->bodies.n_own[b] + at]);
        if (used) {
            i++;
            continue;
        }
        for (int b = 0; b < d->bodies.n; b++)
            drop_input(*d->bodies.at[b], (size_t)d->bodies.n_own[b] + at);
        memmove(d->in + i, d->in + i + 1, sizeof *d->in * (size_t)(d->n_in - i - 1));
        d->n_in--;
    }
    return MU_OK;
}

// ---- The graph ----------------------------------------------------------------------------------

// Renumbers the outputs in the node's users.
static mu_status renumber(mu_graph *graph, const mu_node *node, const bool *keep)
{
    int *new_index = mu__alloc(sizeof *new_index * (size_t)(node->n_out + 1)), n = 0;
    if (!new_index)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_out; i++)
        new_index[i] = keep[i] ? n++ : -1;
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.items[i].node == node)
            graph->outputs.items[i].output = new_index[graph->outputs.items[i].output];
    for (size_t i = (size_t)node->id + 1; i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            if (graph->nodes.items[i]->in[k].node == node) // of a dead node: any index will do
                graph->nodes.items[i]->in[k].output = MU_MAX(new_index[graph->nodes.items[i]->in[k].output], 0);
    mu__free(new_index);
    return MU_OK;
}

static mu_status commit(draft *d)
{
    mu_node *node = d->node;
    int n = 0;
    MU_TRY(renumber(node->graph, node, d->keep));
    for (int i = 0; i < node->n_out; i++)
        if (d->keep[i])
            node->out[n++] = node->out[i];
    mu__attrs_release(node->op, node->attrs);
    node->attrs = d->attrs;
    node->n_out = n;
    node->in = d->in;
    node->n_in = d->n_in;
    return MU_OK;
}

static mu_status narrow(mu_node *node, bool *keep)
{
    draft d = {.node = node, .keep = keep};
    mu_status status = copy_bodies(&d);
    if (status == MU_OK)
        narrow_outputs(&d);
    for (int b = 0; status == MU_OK && b < d.bodies.n; b++)
        status = mu__graph_optimize(*d.bodies.at[b]);
    if (status == MU_OK)
        status = narrow_inputs(&d);
    if (status == MU_OK)
        status = commit(&d);
    if (status != MU_OK && d.attrs)
        mu__attrs_release(node->op, d.attrs);
    return status;
}

static bool needed(const mu_node *node, const bool *used, size_t n_out)
{
    bool live = node->flags & (MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE);
    for (size_t i = 0; i < n_out && !live; i++)
        live = used[i];
    return live;
}

mu_status mu__pass_bodies(mu_graph *graph)
{
    size_t n = graph->nodes.n, values = 0;
    size_t *first = mu__alloc(sizeof *first * (n + 1));
    for (size_t i = 0; first && i < n; i++) {
        first[i] = values;
        values += (size_t)graph->nodes.items[i]->n_out;
    }
    bool *used = first ? mu__calloc(values + 1, sizeof *used) : NULL;
    mu_status status = used ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < graph->outputs.n; i++)
        used[first[graph->outputs.items[i].node->id] + (size_t)graph->outputs.items[i].output] = true;
    for (size_t i = n; status == MU_OK && i-- > 0;) {
        mu_node *node = graph->nodes.items[i];
        if (!needed(node, used + first[i], (size_t)node->n_out))
            continue;
        if (node->op->flags & MU_OP_CONTROL)
            status = narrow(node, used + first[i]);
        for (int k = 0; k < node->n_in; k++)
            used[first[node->in[k].node->id] + (size_t)node->in[k].output] = true;
    }
    mu__free(used);
    mu__free(first);
    return status == MU_OK ? mu__pass_prune(graph) : status; // dead nodes may refer to removed outputs
}
