// Which values of a pure graph are surely the same on all replicas that run one program together: those that come from
// constants, from what collectives give every replica, and from shapes, through ops that give the same bits for the
// same bits on any device.
//
// Whatever decides whether a collective runs must be such a value, or the replicas must agree on it (mu__hlo_agree).
// Control flow with a collective inside takes the same way everywhere for that reason.
#include "graph/passes/uniform.h"

#include "ops/nn/nn.h"

static bool gives_same_to_all(const mu_op *op)
{
    return op == &mu_op_constant || op == &mu_op_all_reduce || op == &mu_op_all_gather || op == &mu_op_broadcast;
}

// Sums of floats and scattered updates are left out: GPUs may add in another order on each device.
static bool is_exact(const mu_op *op)
{
    static const mu_op *const others[] = {&mu_op_reduce_all, &mu_op_reduce_any, &mu_op_reduce_max,    &mu_op_reduce_min,
                                          &mu_op_reshape,    &mu_op_transpose,  &mu_op_strided_slice, &mu_op_concat};
    bool exact = (op->flags & (MU_OP_ELEMENTWISE | MU_OP_VIEW | MU_OP_VIEW_IF_SAME)) != 0;
    for (size_t i = 0; !exact && i < MU_COUNT(others); i++)
        exact = op == others[i];
    return exact;
}

// An op that uses only the shapes of its inputs passes, too: replicas of one program have the same shapes.
static bool is_plain_uniform(const mu_node *node, const bool *in)
{
    bool uniform = true, reads = false;
    if (gives_same_to_all(node->op))
        return true;
    for (int i = 0; i < node->n_in; i++) {
        const bool shape_only = i < 32 && (node->op->shape_only >> i & 1);
        reads |= !shape_only;
        uniform &= shape_only || in[i];
    }
    return node->n_in > 0 && uniform && (!reads || is_exact(node->op));
}

// ---- Bodies -------------------------------------------------------------------------------------

static mu_status outputs_of(const mu_graph *graph, const bool *in, bool *out)
{
    int *first = mu__graph_slots(graph, NULL);
    bool *values = first ? mu__calloc((size_t)first[graph->nodes.n] + 1, sizeof *values) : NULL;
    mu_status status = values ? mu__uniform_values(graph, first, in, values) : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < graph->outputs.n; i++)
        out[i] = values[first[graph->outputs.items[i].node->id] + graph->outputs.items[i].output];
    mu__free(values);
    mu__free(first);
    return status;
}

static mu_status cond_values(const mu_node *node, const bool *in, bool *out)
{
    const mu_cond_attrs *attrs = node->attrs;
    const int shared = (int)attrs->n_shared, n_then = (int)attrs->then->outputs.n;
    const int n_else = (int)attrs->otherwise->outputs.n;
    const bool decided = in[0] || (node->flags & MU_OP_COLLECTIVE);
    bool *then = mu__calloc((size_t)(n_then + n_else) + 1, sizeof *then), *otherwise = MU_BEHIND(then, n_then);
    mu_status status = MU_RESOURCE_EXHAUSTED;
    if (!then)
        goto out;
    MU_GO(outputs_of(attrs->then, in + 1, then));
    MU_GO(outputs_of(attrs->otherwise, in + 1, otherwise));
    for (int i = 0; i < node->n_out; i++)
        out[i] = decided && (i < shared   ? then[i] && otherwise[i]
                             : i < n_then ? then[i]
                                          : otherwise[i - n_then + shared]);
out:
    mu__free(then);
    return status;
}

// A body's inputs: the carried values, for a body its slices, then the captured tensors.
static void list_inputs(const mu_loop_attrs *attrs, int n_in, const bool *in, bool slices, bool *out)
{
    const int n_carried = (int)attrs->n_carried, n_slices = (int)attrs->n_slices;
    const int skipped = 1 + n_carried + (slices ? 0 : n_slices);
    memcpy(out + n_carried, in + skipped, sizeof *out * (size_t)(n_in - skipped));
}

// Assumes that the carried values stay as uniform as they begin, until one round does not change that.
static mu_status settle(const mu_loop_attrs *attrs, bool *given, bool *made)
{
    for (bool changed = true; changed;) {
        changed = false;
        MU_TRY(outputs_of(attrs->body, given, made));
        for (int i = 0; i < (int)attrs->n_carried; i++) {
            changed |= given[i] && !made[i];
            given[i] &= made[i];
        }
    }
    return MU_OK;
}

mu_status mu__uniform_loop(const mu_loop_attrs *attrs, int n_in, const bool *in, bool *carried, bool *rows,
                           bool *decided)
{
    const size_t n_made = attrs->body->outputs.n, n_carried = (size_t)attrs->n_carried;
    bool *given = mu__calloc((size_t)n_in + n_made + 1, sizeof *given), *made = MU_BEHIND(given, n_in);
    mu_status status = MU_RESOURCE_EXHAUSTED;
    if (!given)
        return status;
    memcpy(given, in + 1, sizeof *given * n_carried);
    list_inputs(attrs, n_in, in, true, given);
    MU_GO(settle(attrs, given, made));
    memcpy(carried, given, sizeof *given * n_carried);
    if (rows)
        memcpy(rows, made + n_carried, sizeof *made * (n_made - n_carried));
    *decided = in[0];
    if (attrs->condition) {
        bool holds = false;
        list_inputs(attrs, n_in, in, false, given);
        MU_GO(outputs_of(attrs->condition, given, &holds));
        *decided &= holds;
    }
out:
    mu__free(given);
    return status;
}

// A loop in which or before which a check has failed ends early (lower_control.c): with a collective inside on all
// replicas, else on those alone where it has failed.
static mu_status loop_values(const mu_node *node, const bool *in, bool *out)
{
    const mu_loop_attrs *attrs = node->attrs;
    MU_TRY(mu__uniform_loop(attrs, node->n_in, in, out + 1, out + 1 + attrs->n_carried, out));
    if (node->flags & MU_OP_COLLECTIVE)
        out[0] = true;
    else if (attrs->condition || (node->flags & MU_OP_MAY_FAIL))
        out[0] = false;
    for (int i = 1; i < node->n_out; i++)
        out[i] &= out[0];
    return MU_OK;
}

static mu_status node_values(const mu_node *node, const bool *in, bool *out)
{
    if (node->op == &mu_op_cond)
        return cond_values(node, in, out);
    if (node->op == &mu_op_while_loop)
        return loop_values(node, in, out);
    if (node->op == &mu_op_call)
        return outputs_of(((const mu_call_attrs *)node->attrs)->body, in, out);
    for (int i = 0; i < node->n_out; i++)
        out[i] = is_plain_uniform(node, in);
    return MU_OK;
}

// ---- Graphs -------------------------------------------------------------------------------------

mu_status mu__uniform_values(const mu_graph *graph, const int *first, const bool *inputs, bool *values)
{
    int most = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        most = MU_MAX(most, graph->nodes.items[i]->n_in);
    bool *in = mu__calloc((size_t)most + 1, sizeof *in);
    mu_status status = in ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < graph->inputs.n; i++)
        values[first[graph->inputs.items[i]->id]] = inputs[i];
    for (size_t i = 0; status == MU_OK && i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_in; k++)
            in[k] = values[first[node->in[k].node->id] + node->in[k].output];
        if (node->op != &mu_op_input)
            status = node_values(node, in, values + first[i]);
    }
    mu__free(in);
    return status;
}
