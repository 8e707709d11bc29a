// Fuses element-wise ops into one loop: decides which ops to group, and builds the fused op.
//
// Works on the graph after the engine's other rewrites. Ops of one shape that lead to one another become one node,
// whose body is a small graph of its own; fusion_run.c computes it. A value that ops after the group also need is a
// further output of the node. An update of a variable joins like an op: the node writes the new value to the variable's
// memory, so the formula of an optimizer is one pass over a variable and its slots. The members of a group move to the
// place of the last one: a group leaves out what another op needs before that place, and updates of a variable that
// another op uses on the way.
#include "engine/cpu/fusion.h"

static int results_of(const void *attrs)
{
    const mu_fusion_attrs *fusion = attrs;
    return (int)fusion->body->outputs.n - (int)fusion->n_variables;
}

static mu_status infer_fusion(mu_infer *infer)
{
    mu_spec specs[MU_FUSION_NODES];
    const mu_fusion_attrs *attrs = infer->attrs;
    MU_TRY(mu__fusion_specs(attrs, infer->in, specs));
    for (int i = 0; i < infer->n_out; i++)
        infer->out[i] = specs[attrs->body->outputs.items[i].node->id];
    return MU_OK;
}

mu_status mu__fusion_specs(const mu_fusion_attrs *attrs, const mu_spec *in, mu_spec *specs)
{
    const mu_graph *body = attrs->body;
    const size_t n_in = body->inputs.n - (size_t)attrs->n_variables;
    for (size_t i = 0; i < body->nodes.n; i++) {
        const mu_node *node = body->nodes.items[i];
        mu_spec operands[MU_FUSION_OPERANDS];
        if (node->op == &mu_op_input) {
            specs[i] = i < n_in ? in[i] : node->out[0];
            continue;
        }
        for (int k = 0; k < node->n_in; k++)
            operands[k] = specs[node->in[k].node->id];
        specs[i] = (mu_spec){0};
        mu_infer infer = {
            .op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = 1, .in = operands, .out = &specs[i]};
        if (mu__infer_call(&infer) != MU_OK) {
            mu__error_add_site(mu__node_site(node));
            return mu_error_code();
        }
    }
    return MU_OK;
}

bool mu__fusion_overwrites(const mu_node *node, int k)
{
    if (node->op != &mu__op_fused_update)
        return false;
    const mu_fusion_attrs *attrs = node->attrs;
    const mu_node *old = attrs->body->inputs.items[attrs->body->inputs.n - (size_t)attrs->n_variables + (size_t)k];
    for (size_t i = 0; i < attrs->body->nodes.n; i++)
        for (int e = 0; e < attrs->body->nodes.items[i]->n_in; e++)
            if (attrs->body->nodes.items[i]->in[e].node == old)
                return false;
    return true;
}

static const mu_attr_spec fusion_attrs[] = {{"body", MU_ATTR_GRAPH, offsetof(mu_fusion_attrs, body)},
                                            {"n_variables", MU_ATTR_INT, offsetof(mu_fusion_attrs, n_variables)},
                                            {0}};

// An output may share an input's memory: it is written directly only after the last op that reads the input's elements.
const mu_op mu__op_fusion = {
    .name = "chain",
    .n_in = 0,
    .max_in = MU_VARIADIC,
    .attr_outputs = results_of,
    .in_place = ~0u,
    .flags = MU_OP_ELEMENTWISE,
    .attrs_bytes = sizeof(mu_fusion_attrs),
    .attrs = fusion_attrs,
    .infer = infer_fusion,
    .cpu = {mu__fusion_prepare, mu__fusion_run, mu__fusion_release},
};

const mu_op mu__op_fused_update = {
    .name = "chain_update",
    .n_in = 0,
    .max_in = MU_VARIADIC,
    .attr_outputs = results_of,
    .in_place = ~0u,
    .n_resources = MU_VARIADIC,
    .flags = MU_OP_READS | MU_OP_WRITES,
    .attrs_bytes = sizeof(mu_fusion_attrs),
    .attrs = fusion_attrs,
    .infer = infer_fusion,
    .cpu = {mu__fusion_prepare, mu__fusion_run, mu__fusion_release},
};

// ---- Which ops go together ----------------------------------------------------------------------

typedef struct grouping {
    mu_graph *graph;
    int *n_users;  // [nodes] number of uses of each node's values, graph outputs included
    int *n_inside; // [nodes] number of uses by the current group
    int *needed;   // [nodes] the last group that leaves out an op before its last member that uses the node
    int *touched;  // [resources] the same for resources
    int effects;   // the last group that leaves out another effect, such as a print, before its last member
    bool *taken;   // [nodes] member of a group
    int number;    // of the current group, from 1
    mu_node *members[MU_FUSION_MEMBERS]; // of the current group, last first
    int n;
    int variables[MU_FUSION_RESULTS]; // resources that it updates
    int n_variables, n_results;       // results: outputs and variables
    int lowest;                       // the first node that a member uses
} grouping;

static bool joins_fusions(const mu_node *node)
{
    return (node->op->flags & MU_OP_ELEMENTWISE) && node->op != &mu__op_fusion && node->n_out == 1 &&
           node->n_in <= MU_FUSION_OPERANDS && node->n_resources == 0 && !(node->op->flags & MU_OP_EFFECT);
}

// Whether a node replaces a variable's value, in memory of this process, by one of the same shape. An assignment of
// what no member can compute gains nothing, and two such that swap variables would overwrite what the other copies.
static bool is_update(const mu_node *node)
{
    if (node->op != &mu_op_assign_variable && node->op != &mu_op_assign_add_variable &&
        node->op != &mu_op_assign_sub_variable)
        return false;
    if (node->op == &mu_op_assign_variable && !joins_fusions(node->in[0].node))
        return false;
    mu_resource *variable = node->graph->resources.items[node->resources[0]];
    return !variable->kind->apply && !mu__shared(node->op, 1, &variable) && mu__shape_known(&variable->spec.shape) &&
           mu__shape_equal(&variable->spec.shape, &node->in[0].node->out[node->in[0].output].shape);
}

static const mu_shape *shape_of(const mu_node *member)
{
    return is_update(member) ? &member->in[0].node->out[member->in[0].output].shape : &member->out[0].shape;
}

static bool updates(const grouping *g, int resource)
{
    for (int i = 0; i < g->n_variables; i++)
        if (g->variables[i] == resource)
            return true;
    return false;
}

static bool used_outside(const grouping *g, const mu_node *node)
{
    return g->n_users[node->id] > g->n_inside[node->id];
}

static void add_member(grouping *g, mu_node *node)
{
    g->n_results += is_update(node) || used_outside(g, node);
    g->members[g->n++] = node;
    g->taken[node->id] = true;
    if (is_update(node))
        g->variables[g->n_variables++] = node->resources[0];
    for (int k = 0; k < node->n_in; k++) {
        g->n_inside[node->in[k].node->id]++;
        g->lowest = MU_MIN(g->lowest, node->in[k].node->id);
    }
}

// Whether a node before all members belongs to the group too.
static bool belongs(const grouping *g, const mu_node *node)
{
    if (!(is_update(node) || joins_fusions(node)) || !mu__shape_equal(shape_of(node), shape_of(g->members[0])))
        return false;
    if (is_update(node))
        return g->n_inside[node->in[0].node->id] > 0 && g->touched[node->resources[0]] != g->number &&
               g->effects != g->number && !updates(g, node->resources[0]) && g->n_results < MU_FUSION_RESULTS;
    return g->n_inside[node->id] > 0 && g->needed[node->id] != g->number &&
           (!used_outside(g, node) || g->n_results < MU_FUSION_RESULTS);
}

static void leave_out(grouping *g, const mu_node *node)
{
    for (int k = 0; k < node->n_in; k++)
        g->needed[node->in[k].node->id] = g->number;
    for (int k = 0; k < node->n_resources; k++)
        g->touched[node->resources[k]] = g->number;
    if (node->flags & (MU_OP_EFFECT | MU_OP_COLLECTIVE))
        g->effects = g->number;
}

// Goes from the last node to the first, so that all users of a node are visited before it.
static void grow(grouping *g, mu_node *last)
{
    g->n = g->n_variables = g->n_results = 0;
    g->lowest = last->id;
    g->number++;
    add_member(g, last);
    for (int i = last->id - 1; i >= g->lowest && g->n < MU_FUSION_MEMBERS; i--) {
        mu_node *node = g->graph->nodes.items[i];
        if (g->taken[i]) // moved after the last member
            continue;
        if (belongs(g, node))
            add_member(g, node);
        else
            leave_out(g, node);
    }
}

// A group of one op, or of assignments alone, gains nothing.
static bool is_worthwhile(const grouping *g)
{
    int n_assignments = 0;
    for (int m = 0; m < g->n; m++)
        n_assignments += g->members[m]->op == &mu_op_assign_variable;
    return g->n > 1 && g->n > n_assignments;
}

static void give_back(grouping *g)
{
    for (int m = 1; m < g->n; m++)
        g->taken[g->members[m]->id] = false;
}

static void forget_uses(grouping *g)
{
    for (int m = 0; m < g->n; m++)
        for (int k = 0; k < g->members[m]->n_in; k++)
            g->n_inside[g->members[m]->in[k].node->id] = 0;
}

// ---- Making the node ----------------------------------------------------------------------------

typedef struct body_maker {
    mu_graph *body;
    const grouping *group;
    mu_edge outside[MU_FUSION_NODES];    // inputs of the fused op in the graph
    mu_node *inputs[MU_FUSION_NODES];    // the same in the body
    mu_node *old[MU_FUSION_RESULTS];     // the inputs of the body that represent variables
    mu_edge made[MU_FUSION_MEMBERS];     // the value that each member computes; of an update, the variable's new value
    mu_node *outputs[MU_FUSION_RESULTS]; // members whose values are the fused op's outputs
    int n_inputs, n_outputs;
} body_maker;

// Whether a node reads a variable that the group updates, before any other update: the value is then the old one.
static bool reads_old(const grouping *g, const mu_node *read)
{
    if (read->op != &mu_op_read_variable || !updates(g, read->resources[0]))
        return false;
    for (int i = read->id + 1; i < g->members[0]->id; i++) {
        const mu_node *node = g->graph->nodes.items[i];
        for (int k = 0; !g->taken[i] && k < node->n_resources; k++)
            if (node->resources[k] == read->resources[0] && mu__node_writes(node, k))
                return false;
    }
    return true;
}

// The value of an edge in the body; no node if it has none yet.
static mu_edge inside(const body_maker *b, mu_edge edge)
{
    const grouping *g = b->group;
    for (int m = 0; m < g->n; m++)
        if (g->members[m] == edge.node)
            return b->made[m];
    for (int i = 0; reads_old(g, edge.node) && i < g->n_variables; i++)
        if (g->variables[i] == edge.node->resources[0])
            return (mu_edge){.node = b->old[i]};
    for (int i = 0; i < b->n_inputs; i++)
        if (b->outside[i].node == edge.node && b->outside[i].output == edge.output)
            return (mu_edge){.node = b->inputs[i]};
    return (mu_edge){0};
}

static bool is_member(const grouping *g, const mu_node *node)
{
    for (int m = 0; m < g->n; m++)
        if (g->members[m] == node)
            return true;
    return false;
}

static mu_status make_inputs(body_maker *b)
{
    const grouping *g = b->group;
    for (int m = g->n - 1; m >= 0; m--)
        for (int k = 0; k < g->members[m]->n_in; k++) {
            const mu_edge edge = g->members[m]->in[k];
            if (is_member(g, edge.node) || reads_old(g, edge.node) || inside(b, edge).node)
                continue;
            mu_node *input = mu__graph_input(b->body, &edge.node->out[edge.output], NULL);
            if (!input)
                return mu_error_code();
            b->outside[b->n_inputs] = edge;
            b->inputs[b->n_inputs++] = input;
        }
    for (int i = 0; i < g->n_variables; i++)
        if (!(b->old[i] = mu__graph_input(b->body, &g->graph->resources.items[g->variables[i]]->spec, NULL)))
            return mu_error_code();
    return MU_OK;
}

static mu_status copy_member(body_maker *b, int m)
{
    const mu_node *node = b->group->members[m];
    const mu_op *op = node->op;
    mu_edge in[MU_FUSION_OPERANDS];
    int n = 0;
    if (is_update(node)) {
        op = node->op == &mu_op_assign_add_variable ? &mu_op_add : &mu_op_subtract;
        for (int i = 0; i < b->group->n_variables; i++)
            if (b->group->variables[i] == node->resources[0])
                in[n++] = (mu_edge){.node = b->old[i]};
    }
    for (int k = 0; k < node->n_in; k++)
        in[n++] = inside(b, node->in[k]);
    if (node->op == &mu_op_assign_variable) {
        b->made[m] = in[1];
        return MU_OK;
    }
    mu_node *copy = mu__graph_node(b->body, op, node->attrs, n, in, 0, NULL);
    if (!copy)
        return mu_error_code();
    b->made[m] = (mu_edge){.node = copy};
    return mu__node_set_site(copy, mu__node_site(node));
}

// The outputs of the body: members that are used outside, the last one first, then the variables' new values.
static mu_status choose_outputs(body_maker *b)
{
    const grouping *g = b->group;
    for (int m = 0; m < g->n; m++)
        if (!is_update(g->members[m]) && used_outside(g, g->members[m])) {
            b->outputs[b->n_outputs++] = g->members[m];
            MU_TRY(MU_PUSH(&b->body->outputs, b->made[m]));
        }
    for (int i = 0; i < g->n_variables; i++)
        for (int m = 0; m < g->n; m++)
            if (is_update(g->members[m]) && g->members[m]->resources[0] == g->variables[i])
                MU_TRY(MU_PUSH(&b->body->outputs, b->made[m]));
    return MU_OK;
}

static mu_status make_body(body_maker *b)
{
    MU_TRY(make_inputs(b));
    for (int m = b->group->n - 1; m >= 0; m--) // in execution order
        MU_TRY(copy_member(b, m));
    return choose_outputs(b);
}

// "multiply add tanh", for dumps and messages.
static const char *name_of(const grouping *g)
{
    char text[400];
    size_t at = 0;
    text[0] = 0;
    for (int m = g->n - 1; m >= 0 && at < sizeof text; m--)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? " " : "", g->members[m]->op->name);
    return mu__arena_strdup(&g->graph->arena, text);
}

// Users of a member's value take it from the fused node, and updates that it does are no longer effects of their own.
static void redirect(const body_maker *b, mu_node *fused)
{
    const grouping *g = b->group;
    for (int k = 0; k < b->n_outputs; k++) {
        if (b->outputs[k] == fused)
            continue;
        for (size_t i = (size_t)fused->id + 1; i < g->graph->nodes.n; i++)
            for (int e = 0; e < g->graph->nodes.items[i]->n_in; e++)
                if (g->graph->nodes.items[i]->in[e].node == b->outputs[k])
                    g->graph->nodes.items[i]->in[e] = (mu_edge){.node = fused, .output = k};
        for (size_t i = 0; i < g->graph->outputs.n; i++)
            if (g->graph->outputs.items[i].node == b->outputs[k])
                g->graph->outputs.items[i] = (mu_edge){.node = fused, .output = k};
    }
    for (int m = 1; m < g->n; m++)
        if (is_update(g->members[m]))
            g->members[m]->flags = 0;
}

static mu_status make_fusion(const grouping *g)
{
    body_maker b = {.body = mu__graph_new("chain"), .group = g};
    mu_resource *variables[MU_FUSION_RESULTS];
    mu_fusion_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.body = b.body;
    attrs.n_variables = g->n_variables;
    mu_node *last = g->members[0];
    const char *name = name_of(g);
    mu_status status = b.body && name ? make_body(&b) : mu_error_code();
    for (int i = 0; i < g->n_variables; i++)
        variables[i] = g->graph->resources.items[g->variables[i]];
    if (status == MU_OK)
        status = mu__graph_rewrite_effect(last, g->n_variables > 0 ? &mu__op_fused_update : &mu__op_fusion, &attrs,
                                          b.n_inputs, b.outside, g->n_variables, variables);
    if (status == MU_OK) {
        last->name = name;
        redirect(&b, last);
    }
    mu_release(b.body);
    return status;
}

static mu_status count_users(const mu_graph *graph, grouping *g)
{
    const size_t n = graph->nodes.n;
    g->n_users = mu__calloc(n + 1, sizeof *g->n_users);
    g->n_inside = mu__calloc(n + 1, sizeof *g->n_inside);
    g->needed = mu__calloc(n + 1, sizeof *g->needed);
    g->touched = mu__calloc(graph->resources.n + 1, sizeof *g->touched);
    g->taken = mu__calloc(n + 1, sizeof *g->taken);
    if (!g->n_users || !g->n_inside || !g->needed || !g->touched || !g->taken)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            g->n_users[graph->nodes.items[i]->in[k].node->id]++;
    for (size_t i = 0; i < graph->outputs.n; i++)
        g->n_users[graph->outputs.items[i].node->id]++;
    return MU_OK;
}

mu_status mu__fusion_fuse(mu_graph *graph)
{
    grouping g = {.graph = graph};
    mu_status status = mu__pass_prune(graph); // so the last member of a group is always a result of it
    if (status == MU_OK)
        status = count_users(graph, &g);
    for (size_t i = graph->nodes.n; i-- > 0 && status == MU_OK;) {
        mu_node *last = graph->nodes.items[i];
        if (g.taken[i] || !(joins_fusions(last) || is_update(last)))
            continue;
        grow(&g, last);
        if (is_worthwhile(&g))
            status = make_fusion(&g);
        else
            give_back(&g);
        forget_uses(&g);
    }
    mu__free(g.n_users);
    mu__free(g.n_inside);
    mu__free(g.needed);
    mu__free(g.touched);
    mu__free(g.taken);
    return status == MU_OK ? mu__pass_prune(graph) : status;
}
