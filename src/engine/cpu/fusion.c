// Fuses element-wise ops into one loop: decides which ops to group, and builds the fused op.
//
// Works on the graph after the engine's other rewrites. A value that only element-wise ops of the same shape use is
// computed where it is used: the ops that lead to one result become one node, whose body is a small graph of its own.
// fusion_run.c computes it. A group never crosses a result of the graph or an effect, and its members move only to
// the place of the last member.
#include "engine/cpu/fusion.h"

static mu_status infer_fusion(mu_infer *infer)
{
    mu_spec specs[MU_FUSION_NODES];
    const mu_graph *body = ((const mu_fusion_attrs *)infer->attrs)->body;
    MU_TRY(mu__fusion_specs(body, infer->in, specs));
    infer->out[0] = specs[body->nodes.n - 1];
    return MU_OK;
}

mu_status mu__fusion_specs(const mu_graph *body, const mu_spec *in, mu_spec *specs)
{
    for (size_t i = 0, input = 0; i < body->nodes.n; i++) {
        const mu_node *node = body->nodes.items[i];
        mu_spec operands[MU_FUSION_OPERANDS];
        if (node->op == &mu_op_input) {
            specs[i] = in[input++];
            continue;
        }
        for (int k = 0; k < node->n_in; k++)
            operands[k] = specs[node->in[k].node->id];
        specs[i] = (mu_spec){0};
        mu_infer infer = {.op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = 1, .in = operands,
                          .out = &specs[i]};
        if (mu__infer_call(&infer) != MU_OK) {
            mu__error_place(mu__node_site(node));
            return mu_error_code();
        }
    }
    return MU_OK;
}

static const mu_attr_spec fusion_attrs[] = {{"body", MU_ATTR_GRAPH, offsetof(mu_fusion_attrs, body)}, {0}};

// Only the last op of the body writes the output, after all other ops have read their inputs of the same elements.
const mu_op mu__op_fusion = {
    .name = "chain", .n_in = 0, .max_in = MU_VARIADIC, .n_out = 1, .in_place = ~0u, .flags = MU_OP_ELEMENTWISE,
    .attrs_bytes = sizeof(mu_fusion_attrs), .attrs = fusion_attrs, .infer = infer_fusion,
    .cpu = {mu__fusion_prepare, mu__fusion_run, mu__fusion_release},
};

// ---- Which ops go together ----------------------------------------------------------------------

typedef struct grouping {
    mu_graph *graph;
    int *n_users;     // [nodes] number of uses of each node's values, graph outputs included
    int *n_inside;    // [nodes] number of users inside the current group
    bool *taken;      // [nodes] member of a group
    mu_node *members[MU_FUSION_MEMBERS]; // of the current group, last first
    int n;
} grouping;

static bool joins_fusions(const mu_node *node)
{
    return (node->op->flags & MU_OP_ELEMENTWISE) && node->op != &mu__op_fusion && node->n_out == 1 &&
           node->n_in <= MU_FUSION_OPERANDS && node->n_resources == 0 && !(node->op->flags & MU_OP_EFFECT);
}

static void add_member(grouping *g, mu_node *node, int *lowest)
{
    g->members[g->n++] = node;
    g->taken[node->id] = true;
    for (int k = 0; k < node->n_in; k++) {
        g->n_inside[node->in[k].node->id]++;
        *lowest = MU_MIN(*lowest, node->in[k].node->id);
    }
}

// Goes from the last node to the first, so that all users of a node are visited before it.
static void grow(grouping *g, mu_node *last)
{
    int lowest = last->id;
    g->n = 0;
    add_member(g, last, &lowest);
    for (int i = last->id - 1; i >= lowest && g->n < MU_FUSION_MEMBERS; i--) {
        mu_node *node = g->graph->nodes.items[i];
        if (g->n_inside[i] > 0 && g->n_inside[i] == g->n_users[i] && !g->taken[i] && joins_fusions(node) &&
            mu__shape_equal(&node->out[0].shape, &last->out[0].shape))
            add_member(g, node, &lowest);
    }
    for (int m = 0; m < g->n; m++)
        for (int k = 0; k < g->members[m]->n_in; k++)
            g->n_inside[g->members[m]->in[k].node->id] = 0;
}

// ---- Making the node ----------------------------------------------------------------------------

typedef struct body_maker {
    mu_graph *body;
    const grouping *group;
    mu_edge outside[MU_FUSION_NODES];  // inputs of the fused op in the graph
    mu_node *inputs[MU_FUSION_NODES];  // the same in the body
    mu_node *made[MU_FUSION_MEMBERS];  // the copy of each member
    int n_inputs;
} body_maker;

static mu_node *inside(body_maker *b, mu_edge edge)
{
    for (int m = 0; m < b->group->n; m++)
        if (b->group->members[m] == edge.node)
            return b->made[m];
    for (int i = 0; i < b->n_inputs; i++)
        if (b->outside[i].node == edge.node && b->outside[i].output == edge.output)
            return b->inputs[i];
    mu_node *input = mu__graph_input(b->body, &edge.node->out[edge.output], NULL);
    b->outside[b->n_inputs] = edge;
    b->inputs[b->n_inputs++] = input;
    return input;
}

static mu_status make_body(body_maker *b)
{
    for (int m = b->group->n - 1; m >= 0; m--)  // in execution order, inputs first
        for (int k = 0; k < b->group->members[m]->n_in; k++) {
            bool member = false;
            for (int other = 0; other < b->group->n; other++)
                member |= b->group->members[other] == b->group->members[m]->in[k].node;
            if (!member && !inside(b, b->group->members[m]->in[k]))
                return mu_error_code();
        }
    for (int m = b->group->n - 1; m >= 0; m--) {
        const mu_node *node = b->group->members[m];
        mu_edge in[MU_FUSION_OPERANDS];
        for (int k = 0; k < node->n_in; k++)
            in[k] = (mu_edge){.node = inside(b, node->in[k])};
        b->made[m] = mu__graph_node(b->body, node->op, node->attrs, node->n_in, in, 0, NULL);
        if (!b->made[m])
            return mu_error_code();
        MU_TRY(mu__node_place(b->made[m], mu__node_site(node)));
    }
    return MU_OK;
}

// "multiply add tanh", for dumps and messages.
static const char *name_of(const grouping *g)
{
    char text[200];
    size_t at = 0;
    text[0] = 0;
    for (int m = g->n - 1; m >= 0 && at < sizeof text; m--)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? " " : "", g->members[m]->op->name);
    return mu__arena_strdup(&g->graph->arena, text);
}

static mu_status make_fusion(const grouping *g)
{
    body_maker b = {.body = mu__graph_new("chain"), .group = g};
    mu_fusion_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.body = b.body;
    mu_node *last = g->members[0];
    const char *name = name_of(g);
    mu_status status = b.body && name ? make_body(&b) : mu_error_code();
    if (status == MU_OK)
        status = mu__graph_rewrite(last, &mu__op_fusion, &attrs, b.n_inputs, b.outside);
    if (status == MU_OK)
        last->name = name;
    mu_release(b.body);
    return status;
}

static mu_status count_users(const mu_graph *graph, grouping *g)
{
    const size_t n = graph->nodes.n;
    g->n_users = mu__calloc(n + 1, sizeof *g->n_users);
    g->n_inside = mu__calloc(n + 1, sizeof *g->n_inside);
    g->taken = mu__calloc(n + 1, sizeof *g->taken);
    if (!g->n_users || !g->n_inside || !g->taken)
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
    mu_status status = count_users(graph, &g);
    for (size_t i = graph->nodes.n; i-- > 0 && status == MU_OK;) {
        mu_node *last = graph->nodes.items[i];
        if (g.taken[i] || !joins_fusions(last))
            continue;
        grow(&g, last);
        if (g.n > 1)
            status = make_fusion(&g);
    }
    mu__free(g.n_users);
    mu__free(g.n_inside);
    mu__free(g.taken);
    return status == MU_OK ? mu__pass_prune(graph) : status;
}
