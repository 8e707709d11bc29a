// Replaces loops that contain a collective by copies of their body, one for each iteration, where the number of
// iterations is known once the shapes are: a loop over the rows of a tensor, or to a constant.
//
// An engine that performs collectives between programs needs them outside of bodies. Loops inside of such loops follow
// in further rounds. Loops that are left have a condition, too many iterations, or a number or slices whose size only a
// run knows.
#include "graph/control/control.h"
#include "graph/copy.h"
#include "ops/core/attrs.h"

enum { MOST_ITERATIONS = 256, MOST_NODES = 1 << 16 };

// A loop that is being replaced, and what an iteration takes and gives.
typedef struct unrolling {
    const mu_copying *copy;
    const mu_node *node;
    const mu_loop_attrs *attrs;
    int64_t n;         // iterations
    const mu_edge *in; // of the loop, in the new graph
    mu_edge *given;    // the body's inputs
    mu_edge *made;     // [iterations][outputs of the body]
} unrolling;

// Slices are cut with constant bounds.
static bool has_known_slices(const mu_loop_attrs *attrs, const mu_edge *in)
{
    bool known = true;
    for (int64_t k = 0; k < attrs->n_slices; k++) {
        const mu_edge slices = in[1 + attrs->n_carried + k];
        known &= mu__shape_known(&slices.node->out[slices.output].shape);
    }
    return known;
}

// The number of iterations; -1: the loop stays.
static int64_t iterations(const mu_node *node, const mu_edge *in)
{
    const mu_loop_attrs *attrs = node->attrs;
    if (node->op != &mu_op_while_loop || !(node->flags & MU_OP_COLLECTIVE) || attrs->condition ||
        in[0].node->op != &mu_op_constant)
        return -1;
    const mu_tensor *limit = ((const mu_constant_attrs *)in[0].node->attrs)->tensor;
    const int64_t n = *(const int64_t *)mu__host_read(limit);
    const bool few = n >= 1 && n <= MOST_ITERATIONS && (int64_t)attrs->body->nodes.n * n <= MOST_NODES;
    return few && has_known_slices(attrs, in) && (attrs->rows < 0 || attrs->rows == n) ? n : -1;
}

static mu_status add(const unrolling *u, const mu_op *op, const void *attrs, int n_in, const mu_edge *in, mu_edge *out)
{
    out->node = mu__copy_node(u->copy, u->node, op, attrs, n_in, in);
    out->output = 0;
    return out->node ? MU_OK : mu_error_code();
}

// Row `t` of a tensor, without its first axis.
static mu_status slice_of(const unrolling *u, mu_edge whole, int64_t t, mu_edge *out)
{
    const mu_shape *shape = &whole.node->out[whole.output].shape;
    mu_slice_attrs slice;
    mu_axes_attrs first;
    memset(&slice, 0, sizeof slice);
    memset(&first, 0, sizeof first);
    first.axes.n = 1;
    slice.begin.n = slice.end.n = slice.strides.n = shape->rank;
    for (int k = 0; k < shape->rank; k++) {
        slice.begin.at[k] = k == 0 ? t : 0;
        slice.end.at[k] = k == 0 ? t + 1 : shape->dims[k];
        slice.strides.at[k] = 1;
    }
    MU_TRY(add(u, &mu_op_strided_slice, &slice, 1, &whole, out));
    return add(u, &mu_op_squeeze, &first, 1, out, out);
}

static mu_status copy_body(const unrolling *u, mu_edge *made)
{
    const mu_graph *body = u->attrs->body;
    mu_copying inner;
    mu_status status = mu__copy_begin(&inner, body, u->copy->to);
    for (size_t i = 0; status == MU_OK && i < body->inputs.n; i++)
        *mu__copied_value(&inner, body->inputs.items[i], 0) = u->given[i];
    for (size_t i = 0; status == MU_OK && i < body->nodes.n; i++) {
        const mu_node *node = body->nodes.items[i];
        if (node->op == &mu_op_input)
            continue;
        mu_edge *in = mu__copy_inputs(&inner, node, 0);
        status = in ? mu__copy_plain(&inner, node, in) : MU_RESOURCE_EXHAUSTED;
        mu__free(in);
    }
    for (size_t i = 0; status == MU_OK && i < body->outputs.n; i++)
        made[i] = *mu__copied_value(&inner, body->outputs.items[i].node, body->outputs.items[i].output);
    mu__copy_end(&inner);
    return status;
}

static mu_status copy_bodies(const unrolling *u)
{
    const size_t n_carried = (size_t)u->attrs->n_carried, n_slices = (size_t)u->attrs->n_slices;
    const size_t n_made = u->attrs->body->outputs.n;
    const int n_captured = u->node->n_in - 1 - (int)(n_carried + n_slices);
    const mu_edge *slices = u->in + 1 + n_carried;
    memcpy(u->given, u->in + 1, sizeof *u->in * n_carried);
    memcpy(u->given + n_carried + n_slices, slices + n_slices, sizeof *u->in * (size_t)n_captured);
    for (int64_t i = 0; i < u->n; i++) {
        const int64_t t = u->attrs->reverse ? u->n - 1 - i : i;
        for (size_t k = 0; k < n_slices; k++)
            MU_TRY(slice_of(u, slices[k], t, &u->given[n_carried + k]));
        MU_TRY(copy_body(u, u->made + (size_t)i * n_made));
        memcpy(u->given, u->made + (size_t)i * n_made, sizeof *u->made * n_carried);
    }
    return MU_OK;
}

// The rows of all iterations, in their order, or the last iteration's first.
static mu_status stack_rows(const unrolling *u, size_t row, mu_edge *out)
{
    const mu_axis_attrs first = {.axis = 0};
    const size_t n_made = u->attrs->body->outputs.n;
    mu_edge *parts = mu__calloc((size_t)u->n, sizeof *parts);
    mu_status status = parts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; status == MU_OK && i < u->n; i++)
        status = add(u, &mu_op_expand_dims, &first, 1, &u->made[(size_t)i * n_made + row],
                     &parts[u->attrs->reverse ? u->n - 1 - i : i]);
    if (status == MU_OK)
        status = add(u, &mu_op_concat, &first, (int)u->n, parts, out);
    mu__free(parts);
    return status;
}

static mu_status give_results(const unrolling *u)
{
    const size_t n_carried = (size_t)u->attrs->n_carried;
    *mu__copied_value(u->copy, u->node, 0) = u->in[0];
    for (size_t i = 0; i < n_carried; i++)
        *mu__copied_value(u->copy, u->node, 1 + (int)i) = u->given[i];
    for (int i = 1 + (int)n_carried; i < u->node->n_out; i++)
        MU_TRY(stack_rows(u, (size_t)i - 1, mu__copied_value(u->copy, u->node, i)));
    return MU_OK;
}

static mu_status unroll(const mu_copying *copy, const mu_node *node, int64_t n, const mu_edge *in)
{
    unrolling u = {.copy = copy, .node = node, .attrs = node->attrs, .n = n, .in = in};
    u.given = mu__calloc((size_t)node->n_in, sizeof *u.given);
    u.made = mu__calloc((size_t)n * (u.attrs->body->outputs.n + 1), sizeof *u.made);
    mu_status status = u.given && u.made ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = copy_bodies(&u);
    if (status == MU_OK)
        status = give_results(&u);
    mu__free(u.given);
    mu__free(u.made);
    return status;
}

// ---- The graph ----------------------------------------------------------------------------------

static mu_status copy_inputs_and_resources(const mu_copying *c, const mu_spec *inputs)
{
    const mu_graph *from = c->from;
    for (size_t i = 0; i < from->resources.n; i++)
        if (mu__graph_resource(c->to, from->resources.items[i]) < 0)
            return mu_error_code();
    for (size_t i = 0; i < from->inputs.n; i++) {
        const mu_node *input = from->inputs.items[i];
        mu_node *copy = mu__graph_input(c->to, &inputs[i], input->name);
        if (!copy)
            return mu_error_code();
        *mu__copied_value(c, input, 0) = (mu_edge){.node = copy};
    }
    return MU_OK;
}

static mu_status copy_nodes(const mu_copying *c, bool *changed)
{
    const mu_graph *from = c->from;
    for (size_t i = 0; i < from->nodes.n; i++) {
        const mu_node *node = from->nodes.items[i];
        if (node->op == &mu_op_input)
            continue;
        mu_edge *in = mu__copy_inputs(c, node, 0);
        if (!in)
            return MU_RESOURCE_EXHAUSTED;
        const int64_t n = iterations(node, in);
        const mu_status status = n > 0 ? unroll(c, node, n, in) : mu__copy_plain(c, node, in);
        *changed |= n > 0;
        mu__free(in);
        MU_TRY(status);
    }
    for (size_t i = 0; i < from->outputs.n; i++)
        MU_TRY(
            MU_PUSH(&c->to->outputs, *mu__copied_value(c, from->outputs.items[i].node, from->outputs.items[i].output)));
    return MU_OK;
}

// Copies the graph for known shapes, without the loops whose number of iterations is a constant in it.
static mu_graph *one_round(const mu_graph *from, const mu_spec *inputs, bool *changed)
{
    mu_copying c = {.first = NULL};
    mu_graph *to = mu__graph_new(from->name);
    const bool whole = to && mu__copy_begin(&c, from, to) == MU_OK && copy_inputs_and_resources(&c, inputs) == MU_OK &&
                       copy_nodes(&c, changed) == MU_OK;
    mu__copy_end(&c);
    if (whole && mu__pass_fold(to) == MU_OK) // sizes become constants
        return to;
    mu_release(to);
    return NULL;
}

mu_graph *mu__graph_unroll(const mu_graph *graph, const mu_spec *inputs)
{
    bool changed = false;
    mu_graph *now = one_round(graph, inputs, &changed);
    for (changed = true; now && changed;) {
        changed = false;
        mu_graph *next = one_round(now, inputs, &changed);
        mu_release(now);
        now = next;
    }
    return now;
}
