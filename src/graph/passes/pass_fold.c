// Constant folding: computes values that depend only on constants once, when the graph is made.
//
// An op is folded if it is pure and its result is small: a broadcast constant must not be stored in full. Inputs of
// which only the shape is used need a known shape only. The eager kernel computes the value, so the bits equal those of
// an eager call. An op that fails (an integer divided by zero) is kept, and fails when the function runs.
#include "graph/graph.h"

enum {
    FOLD_ANYWAY = 1024,     // results of at most this many bytes are always folded
    FOLD_SMALLER = 1 << 16, // results up to this size are folded if not larger than their inputs
};

static bool is_pure(const mu_op *op)
{
    return !(op->flags & ~(unsigned)(MU_OP_ELEMENTWISE | MU_OP_COMMUTES | MU_OP_VIEW | MU_OP_VIEW_IF_SAME));
}

// Whether the result is worth keeping, and each input either known or one of which only a known shape is used.
static bool foldable(const mu_op *op, int n_in, const mu_spec *in, mu_tensor *const *known, const mu_spec *out)
{
    size_t taken = 0;
    for (int k = 0; k < n_in; k++) {
        if (!known[k] && !(k < 32 && op->shape_only >> k & 1 && mu__shape_known(&in[k].shape)))
            return false;
        taken += known[k] ? mu__spec_bytes(&in[k]) : 0;
    }
    if (n_in == 0 || !mu__shape_known(&out->shape))
        return false;
    const size_t made = mu__spec_bytes(out);
    return made <= FOLD_ANYWAY || (made <= FOLD_SMALLER && made <= taken);
}

// A tensor of this shape without elements, for inputs of which only the shape is used.
static mu_tensor *shape_of(const mu_spec *spec)
{
    mu_buffer *buffer = mu__buffer_new(1);
    mu_tensor *tensor = buffer ? mu__tensor_view(buffer, 0, spec->dtype, &spec->shape) : NULL;
    mu_release(buffer);
    return mu__give(tensor);
}

static mu_tensor *compute(const mu_op *op, const void *attrs, int n_in, const mu_spec *in, mu_tensor *const *known)
{
    mu_tensor **given = mu__alloc(sizeof *given * (size_t)(n_in + 1)), *out = NULL;
    mu_suspended outside = mu__trace_suspend();
    for (int k = 0; given && k < n_in; k++)
        given[k] = known[k] ? known[k] : shape_of(&in[k]);
    if (given)
        mu__apply(op, attrs, n_in, given, 0, NULL, &out);
    mu__trace_resume(outside);
    mu__free(given);
    return mu_retain(out);
}

mu_tensor *mu__fold_op(const mu_op *op, const void *attrs, int n_in, const mu_spec *in, mu_tensor *const *known,
                       const mu_spec *out)
{
    mu_error_value refused;
    if (!is_pure(op) || !foldable(op, n_in, in, known, out))
        return NULL;
    mu_pool *pool = mu_pool_open();
    mu_tensor *value = pool ? compute(op, attrs, n_in, in, known) : NULL;
    if (!value)
        mu__error_move(&refused);
    if (pool)
        mu_pool_close(pool);
    return value;
}

// ---- Nodes of a graph ---------------------------------------------------------------------------

static mu_status fold_node(mu_node *node)
{
    mu_constant_attrs attrs;
    mu_status status = MU_OK;
    memset(&attrs, 0, sizeof attrs);
    mu_spec *in = mu__calloc((size_t)node->n_in, sizeof *in);
    mu_tensor **known = mu__calloc((size_t)node->n_in, sizeof *known);
    for (int k = 0; in && known && k < node->n_in; k++) {
        const mu_node *from = node->in[k].node;
        in[k] = from->out[node->in[k].output];
        known[k] = from->op == &mu_op_constant ? ((const mu_constant_attrs *)from->attrs)->tensor : NULL;
    }
    if (in && known)
        attrs.tensor = mu__fold_op(node->op, node->attrs, node->n_in, in, known, &node->out[0]);
    else
        status = MU_RESOURCE_EXHAUSTED;
    if (attrs.tensor)
        status = mu__graph_rewrite(node, &mu_op_constant, &attrs, 0, NULL);
    mu_release(attrs.tensor);
    mu__free(in);
    mu__free(known);
    return status;
}

mu_status mu__pass_fold(mu_graph *graph)
{
    mu_status status = MU_OK;
    for (size_t i = 0; i < graph->nodes.n && status == MU_OK; i++) {
        mu_node *node = graph->nodes.items[i];
        if (node->n_in > 0 && node->n_out == 1 && node->n_resources == 0 && is_pure(node->op))
            status = fold_node(node);
    }
    return status;
}
