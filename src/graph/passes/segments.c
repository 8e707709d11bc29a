// Cuts a graph into effects and segments without effects: see segments.h.
//
// Every node gets a stage. A segment of stage s runs before the effects of stage s: a node without effect that needs
// the result of an effect belongs to the next stage, and an effect never runs before an earlier effect on the same
// resource. Constants are copied into each segment that needs them.
#include "graph/passes/segments.h"
#include "graph/copy.h"

typedef struct cutting {
    mu_segments *out;
    mu_graph *graph;
    int n_stages;
    int *stage;  // [nodes]
    int *first;  // [nodes] of each node's values in `number`
    int *number; // [values of all nodes] number between steps; -1: not needed elsewhere
    struct {
        mu_graph_step *items;
        size_t n, capacity;
    } steps;
} cutting;

static bool is_effect(const mu_node *node) { return node->n_resources > 0; }

static bool is_source(const mu_node *node) { return node->op == &mu_op_input || node->op == &mu_op_constant; }

static int *number_of(const cutting *c, mu_edge edge) { return &c->number[c->first[edge.node->id] + edge.output]; }

// ---- Stages -------------------------------------------------------------------------------------

static mu_status find_stages(cutting *c)
{
    int *latest = mu__calloc(c->graph->resources.n + 1, sizeof *latest);
    for (size_t i = 0; latest && i < c->graph->nodes.n; i++) {
        const mu_node *node = c->graph->nodes.items[i];
        int stage = 0;
        for (int k = 0; k < node->n_in; k++) {
            const mu_node *from = node->in[k].node;
            stage = MU_MAX(stage, c->stage[from->id] + (is_effect(from) && !is_effect(node)));
        }
        for (int r = 0; r < node->n_resources; r++)
            stage = MU_MAX(stage, latest[node->resources[r]]);
        for (int r = 0; r < node->n_resources; r++)
            latest[node->resources[r]] = stage;
        c->stage[i] = stage;
        c->n_stages = MU_MAX(c->n_stages, stage + 1);
    }
    mu__free(latest);
    return latest ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Gives a value a number, unless it has one.
static void keep(cutting *c, mu_edge edge)
{
    int *number = number_of(c, edge);
    if (*number < 0)
        *number = c->out->n_values++;
}

// Numbers the values that pass from step to step. Without effect, in one stage: they stay within a segment.
static void find_values(cutting *c)
{
    for (size_t i = 0; i < c->graph->inputs.n; i++)
        keep(c, (mu_edge){.node = c->graph->inputs.items[i]});
    for (size_t i = 0; i < c->graph->nodes.n; i++) {
        const mu_node *node = c->graph->nodes.items[i];
        for (int k = 0; k < node->n_in; k++) {
            const mu_node *from = node->in[k].node;
            const bool inside = !is_effect(node) && !is_effect(from) && c->stage[from->id] == c->stage[i];
            if (is_effect(node) || (!inside && from->op != &mu_op_constant))
                keep(c, node->in[k]);
        }
        for (int k = 0; is_effect(node) && k < node->n_out; k++)
            keep(c, (mu_edge){.node = (mu_node *)node, .output = k});
    }
    for (size_t i = 0; i < c->graph->outputs.n; i++)
        keep(c, c->graph->outputs.items[i]);
}

// ---- Segments -----------------------------------------------------------------------------------

static mu_status add_number(int **list, int *n, int number)
{
    int *longer = mu__realloc(*list, sizeof **list * (size_t)(*n + 1));
    if (!longer)
        return MU_RESOURCE_EXHAUSTED;
    *list = longer;
    longer[(*n)++] = number;
    return MU_OK;
}

// The value in the segment of a value of the graph: copied, or from now on an input.
static mu_status bring(const mu_copying *copying, cutting *c, mu_graph_step *step, mu_edge edge)
{
    mu_edge *value = mu__copied_value(copying, edge.node, edge.output);
    if (value->node)
        return MU_OK;
    if (edge.node->op == &mu_op_constant)
        return mu__copy_plain(copying, edge.node, NULL);
    value->node = mu__graph_input(step->segment, &edge.node->out[edge.output], edge.node->name);
    return value->node ? add_number(&step->in, &step->n_in, *number_of(c, edge)) : mu_error_code();
}

static mu_status copy_node(const mu_copying *copying, cutting *c, mu_graph_step *step, const mu_node *node)
{
    for (int k = 0; k < node->n_in; k++)
        MU_TRY(bring(copying, c, step, node->in[k]));
    mu_edge *in = mu__copy_inputs(copying, node, 0);
    const mu_status status = in ? mu__copy_plain(copying, node, in) : MU_RESOURCE_EXHAUSTED;
    mu__free(in);
    for (int k = 0; status == MU_OK && k < node->n_out; k++) {
        const int number = *number_of(c, (mu_edge){.node = (mu_node *)node, .output = k});
        if (number < 0)
            continue;
        MU_TRY(MU_PUSH(&step->segment->outputs, *mu__copied_value(copying, node, k)));
        MU_TRY(add_number(&step->out, &step->n_out, number));
    }
    return status;
}

static bool in_segment(const cutting *c, const mu_node *node, int stage)
{
    return c->stage[node->id] == stage && !is_effect(node) && !is_source(node);
}

// Makes a graph of one effect, or of all nodes of a stage that have none (`effect` NULL).
static mu_status make_segment(cutting *c, mu_graph_step *step, int stage, const mu_node *effect)
{
    mu_copying copying = {0};
    step->segment = mu__graph_new(c->graph->name);
    mu_status status = step->segment ? mu__copy_begin(&copying, c->graph, step->segment) : mu_error_code();
    for (size_t i = 0; status == MU_OK && i < c->graph->nodes.n; i++)
        if (effect ? c->graph->nodes.items[i] == effect : in_segment(c, c->graph->nodes.items[i], stage))
            status = copy_node(&copying, c, step, c->graph->nodes.items[i]);
    mu__copy_end(&copying);
    return status;
}

static mu_status list_effect(cutting *c, mu_graph_step *step)
{
    const mu_node *node = step->effect;
    if (node->op->flags & MU_OP_CONTROL)
        return make_segment(c, step, 0, node);
    for (int k = 0; k < node->n_in; k++)
        MU_TRY(add_number(&step->in, &step->n_in, *number_of(c, node->in[k])));
    for (int k = 0; k < node->n_out; k++)
        MU_TRY(add_number(&step->out, &step->n_out, *number_of(c, (mu_edge){.node = (mu_node *)node, .output = k})));
    return MU_OK;
}

static mu_graph_step *new_step(cutting *c)
{
    return MU_PUSH(&c->steps, (mu_graph_step){0}) == MU_OK ? &c->steps.items[c->steps.n - 1] : NULL;
}

static mu_status make_stage(cutting *c, int stage)
{
    bool computes = false;
    for (size_t i = 0; i < c->graph->nodes.n && !computes; i++)
        computes = in_segment(c, c->graph->nodes.items[i], stage);
    mu_graph_step *step = computes ? new_step(c) : NULL;
    if (computes)
        MU_TRY(step ? make_segment(c, step, stage, NULL) : MU_RESOURCE_EXHAUSTED);
    for (size_t i = 0; i < c->graph->nodes.n; i++) {
        const mu_node *node = c->graph->nodes.items[i];
        if (!is_effect(node) || c->stage[i] != stage)
            continue;
        if (!(step = new_step(c)))
            return MU_RESOURCE_EXHAUSTED;
        step->effect = node;
        MU_TRY(list_effect(c, step));
    }
    return MU_OK;
}

// ---- The whole ----------------------------------------------------------------------------------

static mu_status find_uses(cutting *c)
{
    mu_segments *out = c->out;
    const size_t n = (size_t)out->n_values + 1;
    out->last_use = mu__calloc(n, sizeof *out->last_use);
    out->constants = mu__calloc(n, sizeof(mu_tensor *));
    out->outputs = mu__calloc(c->graph->outputs.n + 1, sizeof *out->outputs);
    if (!out->last_use || !out->constants || !out->outputs)
        return MU_RESOURCE_EXHAUSTED;
    for (int s = 0; s < out->n_steps; s++) {
        const mu_graph_step *step = &out->steps[s];
        for (int k = 0; k < step->n_in; k++)
            out->last_use[step->in[k]] = s;
        for (int k = 0; k < step->n_out; k++)
            out->last_use[step->out[k]] = MU_MAX(s, out->last_use[step->out[k]]);
    }
    for (size_t i = 0; i < c->graph->outputs.n; i++) {
        out->outputs[i] = *number_of(c, c->graph->outputs.items[i]);
        out->last_use[out->outputs[i]] = out->n_steps;
    }
    for (size_t i = 0; i < c->graph->nodes.n; i++) {
        mu_node *node = c->graph->nodes.items[i];
        const int number = node->op == &mu_op_constant ? *number_of(c, (mu_edge){.node = node}) : -1;
        if (number >= 0)
            out->constants[number] = ((const mu_constant_attrs *)node->attrs)->tensor;
    }
    return MU_OK;
}

static mu_status cut(cutting *c)
{
    size_t n_values = 0;
    const size_t n = c->graph->nodes.n;
    c->stage = mu__calloc(n + 1, sizeof *c->stage);
    c->first = mu__calloc(n + 1, sizeof *c->first);
    for (size_t i = 0; c->first && i < n; i++) {
        c->first[i] = (int)n_values;
        n_values += (size_t)c->graph->nodes.items[i]->n_out;
    }
    c->number = mu__alloc(sizeof *c->number * (n_values + 1));
    if (!c->stage || !c->first || !c->number)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n_values; i++)
        c->number[i] = -1;
    MU_TRY(find_stages(c));
    find_values(c);
    mu_status status = MU_OK;
    for (int stage = 0; stage < c->n_stages && status == MU_OK; stage++)
        status = make_stage(c, stage);
    c->out->steps = c->steps.items;
    c->out->n_steps = (int)c->steps.n;
    return status == MU_OK ? find_uses(c) : status;
}

mu_segments *mu__segments_cut(mu_graph *graph)
{
    mu_segments *out = mu__calloc(1, sizeof *out);
    if (!out)
        return NULL;
    out->graph = mu_retain(graph);
    cutting c = {.out = out, .graph = graph};
    const mu_status status = cut(&c);
    mu__free(c.stage);
    mu__free(c.first);
    mu__free(c.number);
    if (status == MU_OK)
        return out;
    mu__segments_free(out);
    return NULL;
}

void mu__segments_free(mu_segments *segments)
{
    if (!segments)
        return;
    for (int s = 0; s < segments->n_steps; s++) {
        mu_release(segments->steps[s].segment);
        mu__free(segments->steps[s].in);
        mu__free(segments->steps[s].out);
    }
    mu__free(segments->steps);
    mu__free(segments->outputs);
    mu__free(segments->last_use);
    mu__free(segments->constants);
    mu_release(segments->graph);
    mu__free(segments);
}
