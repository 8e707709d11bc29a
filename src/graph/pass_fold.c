// Constant folding: computes values that depend only on constants once, when the graph is made.
//
// An op is folded if it is pure and its result is small: a broadcast constant must not be stored in full. Inputs of
// which only the shape is used need a known shape only. The eager kernel computes the value, so the bits equal those of
// an eager call. An op that fails (an integer divided by zero) is kept, and fails when the function runs.
#include "graph/graph.h"

enum {
    FOLD_ANYWAY = 1024,      // results of at most this many bytes are always folded
    FOLD_SMALLER = 1 << 16,  // results up to this size are folded if not larger than their inputs
};

static bool is_pure(const mu_op *op)
{
    return !(op->flags & ~(unsigned)(MU_OP_ELEMENTWISE | MU_OP_COMMUTES | MU_OP_VIEW | MU_OP_VIEW_IF_SAME));
}

static bool shape_alone(const mu_node *node, int input)
{
    return input < 32 && node->op->shape_only >> input & 1;
}

static bool foldable(const mu_node *node)
{
    size_t in = 0, out = 0;
    if (node->n_in == 0 || node->n_out != 1 || node->n_resources > 0 || !is_pure(node->op))
        return false;
    for (int k = 0; k < node->n_in; k++) {
        const mu_node *from = node->in[k].node;
        const mu_spec *spec = &from->out[node->in[k].output];
        if (from->op != &mu_op_constant && !(shape_alone(node, k) && mu__shape_known(&spec->shape)))
            return false;
        in += from->op == &mu_op_constant ? mu__spec_bytes(spec) : 0;
    }
    if (!mu__shape_known(&node->out[0].shape))
        return false;
    out = mu__spec_bytes(&node->out[0]);
    return out <= FOLD_ANYWAY || (out <= FOLD_SMALLER && out <= in);
}

// A tensor of this shape without elements, for inputs of which only the shape is used.
static mu_tensor *shape_of(const mu_spec *spec)
{
    mu_buffer *buffer = mu__buffer_new(1);
    mu_tensor *tensor = buffer ? mu__tensor_view(buffer, 0, spec->dtype, &spec->shape) : NULL;
    mu_release(buffer);
    return mu__give(tensor);
}

static mu_tensor *compute(const mu_node *node)
{
    mu_tensor **in = mu__alloc(sizeof *in * (size_t)(node->n_in + 1)), *out = NULL;
    for (int k = 0; in && k < node->n_in; k++) {
        const mu_node *from = node->in[k].node;
        in[k] = from->op == &mu_op_constant ? ((const mu_constant_attrs *)from->attrs)->tensor
                                            : shape_of(&from->out[node->in[k].output]);
    }
    if (in)
        mu__apply(node->op, node->attrs, node->n_in, in, 0, NULL, &out);
    mu__free(in);
    return out;
}

static mu_status fold_node(mu_node *node)
{
    mu_constant_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    mu_pool *pool = mu_pool_open();
    if (!pool)
        return MU_RESOURCE_EXHAUSTED;
    attrs.tensor = compute(node);
    mu_status status = MU_OK;
    if (attrs.tensor) {
        status = mu__graph_rewrite(node, &mu_op_constant, &attrs, 0, NULL);
    } else {
        mu_error_value refused;
        mu__error_move(&refused);
    }
    mu_pool_close(pool);
    return status;
}

mu_status mu__pass_fold(mu_graph *graph)
{
    mu_status status = MU_OK;
    mu_suspended outside = mu__trace_suspend();
    for (size_t i = 0; i < graph->nodes.n && status == MU_OK; i++)
        if (foldable(graph->nodes.items[i]))
            status = fold_node(graph->nodes.items[i]);
    mu__trace_resume(outside);
    return status;
}
