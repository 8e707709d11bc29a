// Turns local state into inputs and outputs: a graph with effects on variables becomes a pure graph that takes the
// variables' values and returns their final values.
//
// The pass tracks each variable's current value from node to node, in the order of effects. A branch or call takes the
// value as an input, and returns it if it writes; a loop carries it. Effects on no resource (print, assert) stay nodes,
// in order.
#include "graph/control/control.h"
#include "graph/copy.h"
#include "ops/core/attrs.h"

// Variables of a graph, or of a node whose bodies use them.
typedef struct states {
    int n, n_written;
    mu_resource **at;
    bool *written;
} states;

// Positions of states in a graph: written states are among inputs and outputs from here on (-1: not returned), the
// others after all inputs.
typedef struct state_offsets {
    int in, out;
} state_offsets;

typedef struct functionalizing {
    mu_copying copy;
    const states *states;
    mu_edge *now; // each one's current value
} functionalizing;

static void forget_states(states *s)
{
    mu__free(s->at);
    mu__free(s->written);
}

static mu_status need_local(const mu_graph *graph, const mu_resource *resource)
{
    if (strcmp(resource->kind->name, "variable") == 0)
        return MU_OK;
    return mu__error(MU_UNIMPLEMENTED,
                     "'%s' works on %s '%s', which cannot be passed to a device program; run it on a CPU device",
                     graph->name, resource->kind->name, resource->name);
}

// Lists some of a graph's resources.
static mu_status add_states(const mu_graph *graph, int n, const int *resources, const bool *written, states *s)
{
    *s = (states){.at = mu__calloc((size_t)n + 1, sizeof *s->at), .written = mu__calloc((size_t)n + 1, 1)};
    if (!s->at || !s->written)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++) {
        mu_resource *resource = graph->resources.items[resources[i]];
        MU_TRY(need_local(graph, resource));
        s->at[s->n] = resource;
        s->n_written += written[i];
        s->written[s->n++] = written[i];
    }
    return MU_OK;
}

static mu_status states_of_node(const mu_node *node, states *s)
{
    bool *written = mu__calloc((size_t)node->n_resources + 1, sizeof *written);
    if (!written)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_resources; i++)
        written[i] = mu__node_writes(node, i);
    const mu_status status = add_states(node->graph, node->n_resources, node->resources, written, s);
    mu__free(written);
    return status;
}

// All resources that a graph's nodes use; each is returned, written or not.
static mu_status states_of_graph(const mu_graph *graph, states *s)
{
    const size_t n = graph->resources.n;
    bool *used = mu__calloc(2 * n + 1, sizeof *used), *out = used ? used + n : NULL;
    int *list = mu__calloc(n + 1, sizeof *list), found = 0;
    mu_status status = used && list ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_resources; k++)
            used[graph->nodes.items[i]->resources[k]] = true;
    for (size_t i = 0; status == MU_OK && i < n; i++)
        if (used[i]) {
            out[found] = true;
            list[found++] = (int)i;
        }
    if (status == MU_OK)
        status = add_states(graph, found, list, out, s);
    mu__free(used);
    mu__free(list);
    return status;
}

static mu_edge *value_of(const functionalizing *p, const mu_resource *resource)
{
    int i = 0;
    while (i < p->states->n - 1 && p->states->at[i] != resource)
        i++;
    return &p->now[i];
}

// ---- Plain nodes --------------------------------------------------------------------------------

static bool same_spec(const mu_spec *a, const mu_spec *b)
{
    return a->dtype == b->dtype && mu__shape_equal(&a->shape, &b->shape);
}

// Assignments need no op if types and shapes are surely equal; otherwise `out` is not set.
static mu_status short_form(const functionalizing *p, const mu_node *node, const mu_edge *in, mu_edge *out)
{
    const mu_op *op = node->op == &mu_op_assign_add_variable   ? &mu_op_add
                      : node->op == &mu_op_assign_sub_variable ? &mu_op_subtract
                                                               : NULL;
    *out = (mu_edge){0};
    if ((!op && node->op != &mu_op_assign_variable) ||
        !same_spec(&in[0].node->out[in[0].output], &in[1].node->out[in[1].output]))
        return MU_OK;
    *out = in[0];
    if (!op)
        return MU_OK;
    out->node = mu__copy_node(&p->copy, node, op, NULL, 2, (mu_edge[]){in[1], in[0]});
    out->output = 0;
    return out->node ? MU_OK : mu_error_code();
}

static mu_status put_effect(const functionalizing *p, const mu_node *node, mu_edge *in)
{
    mu_resource *const *resources = p->copy.from->resources.items;
    const mu_op *pure = mu__pure_op(node->op);
    mu_edge assigned;
    for (int i = 0; i < node->n_resources; i++)
        in[node->n_in + i] = *value_of(p, resources[node->resources[i]]);
    MU_TRY(short_form(p, node, in, &assigned));
    if (assigned.node) {
        *value_of(p, resources[node->resources[0]]) = assigned;
        return MU_OK;
    }
    if (!pure)
        return mu__error(MU_UNIMPLEMENTED, "op %s has no form without effects; run the function on a CPU device",
                         node->op->name);
    mu_node *made = mu__copy_node(&p->copy, node, pure, node->attrs, node->n_in + node->n_resources, in);
    for (int i = 0; made && i < node->n_out; i++)
        *mu__copied_value(&p->copy, node, i) = (mu_edge){.node = made, .output = i};
    for (int i = 0; made && i < node->n_resources; i++)
        *value_of(p, resources[node->resources[i]]) = (mu_edge){.node = made, .output = node->n_out + i};
    return made ? MU_OK : mu_error_code();
}

// ---- Nodes with bodies --------------------------------------------------------------------------

static mu_graph *pure_graph(const mu_graph *graph, const states *s, state_offsets at);

typedef union body_attrs {
    mu_cond_attrs cond;
    mu_loop_attrs loop;
    mu_call_attrs call;
} body_attrs;

// The states' positions in body b; a branch's kept values and a loop's rows stay after them.
static state_offsets offsets_in(const mu_node *node, const mu_bodies *bodies, int b)
{
    const mu_graph *body = *bodies->at[b];
    if (node->op == &mu_op_cond)
        return (state_offsets){.in = (int)body->inputs.n, .out = (int)((const mu_cond_attrs *)node->attrs)->n_shared};
    if (node->op == &mu_op_call)
        return (state_offsets){.in = (int)body->inputs.n, .out = (int)body->outputs.n};
    const int carried = (int)((const mu_loop_attrs *)node->attrs)->n_carried;
    return (state_offsets){.in = carried, .out = b == 0 ? carried : -1};
}

static mu_status need_reads_only(const mu_node *node, const mu_graph *condition)
{
    for (size_t i = 0; i < condition->nodes.n; i++) {
        const mu_node *inner = condition->nodes.items[i];
        for (int k = 0; k < inner->n_resources; k++)
            if (mu__node_writes(inner, k))
                return mu__error(MU_UNIMPLEMENTED,
                                 "the condition of %s writes '%s', which cannot be passed out of it; write it in the "
                                 "body, or run the function on a CPU device",
                                 node->op->name, condition->resources.items[inner->resources[k]]->name);
    }
    return MU_OK;
}

// Puts pure bodies into copied attributes, which then own them.
static mu_status pure_bodies(const mu_node *node, const states *s, body_attrs *attrs, int *made, state_offsets *first)
{
    mu_bodies old = mu__bodies_of(node->op, (void *)node->attrs), bodies = mu__bodies_of(node->op, attrs);
    for (int b = 0; b < old.n; b++) {
        const state_offsets at = offsets_in(node, &old, b);
        if (at.out < 0)
            MU_TRY(need_reads_only(node, *old.at[b]));
        if (b == 0)
            *first = at;
        if (!(*bodies.at[b] = pure_graph(*old.at[b], s, at)))
            return mu_error_code();
        *made = b + 1;
    }
    if (node->op == &mu_op_cond)
        attrs->cond.n_shared += s->n_written;
    if (node->op == &mu_op_while_loop)
        attrs->loop.n_carried += s->n_written;
    if (node->op == &mu_op_call)
        attrs->call.gradient = NULL; // pure graphs are not differentiated
    return MU_OK;
}

// Inserts the states among the old inputs.
static void put_states(const functionalizing *p, const states *s, int n_in, int at, mu_edge *in)
{
    int behind = n_in + s->n_written;
    memmove(in + at + s->n_written, in + at, sizeof *in * (size_t)(n_in - at));
    for (int i = 0; i < s->n; i++)
        in[s->written[i] ? at++ : behind++] = *value_of(p, s->at[i]);
}

static mu_status put_bodies(const functionalizing *p, const mu_node *node, const states *s, mu_edge *in)
{
    body_attrs attrs;
    state_offsets at = {0};
    int made = 0;
    const int own_in = node->op == &mu_op_call ? 0 : 1, own_out = node->op == &mu_op_while_loop ? 1 : 0;
    memset(&attrs, 0, sizeof attrs);
    memcpy(&attrs, node->attrs, node->op->attrs_bytes);
    mu_status status = pure_bodies(node, s, &attrs, &made, &at);
    mu_node *copy = NULL;
    if (status == MU_OK) {
        put_states(p, s, node->n_in, own_in + at.in, in);
        copy = mu__copy_node(&p->copy, node, node->op, &attrs, node->n_in + s->n, in);
        status = copy ? MU_OK : mu_error_code();
    }
    const int out = own_out + at.out;
    for (int i = 0; status == MU_OK && i < node->n_out; i++)
        *mu__copied_value(&p->copy, node, i) = (mu_edge){.node = copy, .output = i < out ? i : i + s->n_written};
    for (int i = 0, k = 0; status == MU_OK && i < s->n; i++)
        if (s->written[i])
            *value_of(p, s->at[i]) = (mu_edge){.node = copy, .output = out + k++};
    mu_bodies bodies = mu__bodies_of(node->op, &attrs);
    for (int b = 0; b < made; b++)
        mu_release(*bodies.at[b]);
    return status;
}

static mu_status put_control(const functionalizing *p, const mu_node *node, mu_edge *in)
{
    states s = {0};
    mu_status status = states_of_node(node, &s);
    if (status == MU_OK)
        status = put_bodies(p, node, &s, in);
    forget_states(&s);
    return status;
}

// ---- Graphs -------------------------------------------------------------------------------------

static mu_status put_gather(const functionalizing *p, const mu_node *node, mu_edge *in)
{
    const mu_gather_attrs first_axis = {0};
    if (node->n_resources != 1)
        return mu__error(MU_UNIMPLEMENTED,
                         "gather_variable: the rows of '%s' and other parts are read at once only from servers; run "
                         "the function on a CPU device",
                         p->copy.from->resources.items[node->resources[0]]->name);
    in[1] = in[0];
    in[0] = *value_of(p, p->copy.from->resources.items[node->resources[0]]);
    mu_node *made = mu__copy_node(&p->copy, node, &mu_op_gather, &first_axis, 2, in);
    if (made)
        *mu__copied_value(&p->copy, node, 0) = (mu_edge){.node = made};
    return made ? MU_OK : mu_error_code();
}

static mu_status put_node(const functionalizing *p, const mu_node *node)
{
    if (node->op == &mu_op_read_variable) {
        *mu__copied_value(&p->copy, node, 0) = *value_of(p, p->copy.from->resources.items[node->resources[0]]);
        return MU_OK;
    }
    mu_edge *in = mu__copy_inputs(&p->copy, node, node->n_resources);
    if (!in)
        return MU_RESOURCE_EXHAUSTED;
    const mu_status status = node->n_resources == 0               ? mu__copy_plain(&p->copy, node, in)
                             : node->op == &mu_op_gather_variable ? put_gather(p, node, in)
                             : node->op->flags & MU_OP_CONTROL    ? put_control(p, node, in)
                                                                  : put_effect(p, node, in);
    mu__free(in);
    return status;
}

static mu_status take_states(const functionalizing *p, bool written)
{
    for (int i = 0; i < p->states->n; i++) {
        const mu_resource *resource = p->states->at[i];
        if (p->states->written[i] != written)
            continue;
        p->now[i] = (mu_edge){.node = mu__graph_input(p->copy.to, &resource->spec, resource->name)};
        if (!p->now[i].node)
            return mu_error_code();
    }
    return MU_OK;
}

static mu_status take_inputs(const functionalizing *p, int at)
{
    const mu_graph *from = p->copy.from;
    for (int i = 0; i <= (int)from->inputs.n; i++) {
        if (i == at)
            MU_TRY(take_states(p, true));
        if (i == (int)from->inputs.n)
            break;
        const mu_node *input = from->inputs.items[i];
        mu_node *made = mu__graph_input(p->copy.to, &input->out[0], input->name);
        if (!made)
            return mu_error_code();
        *mu__copied_value(&p->copy, input, 0) = (mu_edge){.node = made};
    }
    return take_states(p, false);
}

static mu_status give_outputs(const functionalizing *p, int at)
{
    const mu_graph *from = p->copy.from;
    mu_graph *to = p->copy.to;
    for (int i = 0; i <= (int)from->outputs.n; i++) {
        for (int k = 0; i == at && k < p->states->n; k++)
            if (p->states->written[k])
                MU_TRY(MU_PUSH(&to->outputs, p->now[k]));
        if (i < (int)from->outputs.n)
            MU_TRY(MU_PUSH(&to->outputs,
                           *mu__copied_value(&p->copy, from->outputs.items[i].node, from->outputs.items[i].output)));
    }
    return MU_OK;
}

static mu_status functionalize(const functionalizing *p, state_offsets at)
{
    const mu_graph *from = p->copy.from;
    MU_TRY(take_inputs(p, at.in));
    for (size_t i = 0; i < from->nodes.n; i++)
        if (from->nodes.items[i]->op != &mu_op_input)
            MU_TRY(put_node(p, from->nodes.items[i]));
    return give_outputs(p, at.out);
}

static mu_graph *pure_graph(const mu_graph *graph, const states *s, state_offsets at)
{
    functionalizing p = {.states = s, .now = mu__calloc((size_t)s->n + 1, sizeof *p.now)};
    mu_graph *pure = p.now ? mu__graph_new(graph->name) : NULL;
    const bool whole = pure && mu__copy_begin(&p.copy, graph, pure) == MU_OK && functionalize(&p, at) == MU_OK;
    mu__copy_end(&p.copy);
    mu__free(p.now);
    if (whole)
        return pure;
    mu_release(pure);
    return NULL;
}

mu_graph *mu__pass_state(const mu_graph *graph)
{
    states s = {0};
    mu_graph *pure = NULL;
    if (states_of_graph(graph, &s) == MU_OK)
        pure = pure_graph(graph, &s, (state_offsets){.in = (int)graph->inputs.n, .out = (int)graph->outputs.n});
    bool whole = pure != NULL;
    for (int i = 0; whole && i < s.n; i++)
        whole = mu__graph_resource(pure, s.at[i]) >= 0;
    forget_states(&s);
    if (whole)
        return pure;
    mu_release(pure);
    return NULL;
}
