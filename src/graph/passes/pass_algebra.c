// Algebraic simplification: fewer ops that give the same bits.
//
// All rules are exact for every value, including NaN and -0: x * 1, x / 1, x - 0, x + (-0), double negation, a + (-b),
// a view of a view, a transpose of a transpose, a cast through a type that holds all values, a broadcast that
// arithmetic does itself, a broadcast or sum to the same shape. Rules that are not exact are left out: x + 0 (gives +0
// for -0; used for integers only), x * 0, x / x, and changes to the order of additions.
#include "graph/graph.h"
#include "ops/core/attrs.h"

// The replacement of output 0 of each node, once known.
typedef struct simplifier {
    mu_graph *graph;
    mu_edge *replacement; // [nodes]
} simplifier;

static const mu_spec *spec_of(mu_edge edge) { return &edge.node->out[edge.output]; }

static bool same_edge(mu_edge a, mu_edge b) { return a.node == b.node && a.output == b.output; }

static bool same_spec(const mu_spec *a, const mu_spec *b)
{
    return a->dtype == b->dtype && mu__shape_equal(&a->shape, &b->shape);
}

// ---- Neutral elements ---------------------------------------------------------------------------

static bool minus_zero(double value) { return value == 0 && 1 / value < 0; }

// Whether every element of a small constant equals `wanted`, including the sign of zero.
static bool all_elements(mu_edge edge, double wanted)
{
    enum { MOST = 4096 };
    if (edge.node->op != &mu_op_constant)
        return false;
    const mu_tensor *tensor = ((const mu_constant_attrs *)edge.node->attrs)->tensor;
    const int64_t n = mu__elements(&tensor->shape);
    bool all = n > 0 && n <= MOST;
    for (int64_t i = 0; all && i < n; i++) {
        const double value = mu__read_element(tensor->dtype, mu__host_read(tensor), i);
        all = value == wanted && minus_zero(value) == minus_zero(wanted);
    }
    return all;
}

// Whether the constant leaves the other operand's shape unchanged: it has one element, or the shapes are known.
static bool keeps_shape(const mu_node *node, mu_edge x, mu_edge constant)
{
    const mu_shape *c = &spec_of(constant)->shape;
    const bool one = mu__elements(c) == 1 && c->rank <= spec_of(x)->shape.rank;
    return (one || mu__shape_known(&spec_of(x)->shape)) && same_spec(spec_of(x), &node->out[0]);
}

static bool is_neutral(const mu_node *node, int k, double value)
{
    return all_elements(node->in[k], value) && keeps_shape(node, node->in[1 - k], node->in[k]);
}

// Finds operands that do not change the other: x op c, and c op x if the op commutes.
static bool neutral_operand(const mu_node *node, mu_edge *out)
{
    const mu_op *op = node->op;
    const bool real = node->n_in > 0 && mu__dtype_is_float(spec_of(node->in[0])->dtype);
    double value = 0;
    if (op == &mu_op_multiply || op == &mu_op_divide)
        value = 1;
    else if (op == &mu_op_add)
        value = real ? -0.0 : 0;
    else if (op != &mu_op_subtract)
        return false;
    for (int k = 1; k >= (op->flags & MU_OP_COMMUTES ? 0 : 1); k--)
        if (is_neutral(node, k, value)) {
            *out = node->in[1 - k];
            return true;
        }
    return false;
}

// ---- Signs --------------------------------------------------------------------------------------

static bool double_negation(const mu_node *node, mu_edge *out)
{
    if (node->op != &mu_op_neg || node->in[0].node->op != &mu_op_neg)
        return false;
    *out = node->in[0].node->in[0];
    return true;
}

// Rewrites a + (-b) as a - b, and a - (-b) as a + b.
static mu_status add_negated(mu_node *node)
{
    const bool adds = node->op == &mu_op_add;
    if ((!adds && node->op != &mu_op_subtract))
        return MU_OK;
    for (int k = 1; k >= (adds ? 0 : 1); k--) {
        mu_edge in[] = {node->in[1 - k], node->in[k].node->op == &mu_op_neg ? node->in[k].node->in[0] : (mu_edge){0}};
        if (in[1].node)
            return mu__graph_rewrite(node, adds ? &mu_op_subtract : &mu_op_add, NULL, 2, in);
    }
    return MU_OK;
}

// ---- Shapes -------------------------------------------------------------------------------------

static bool changes_nothing(const mu_node *node, mu_edge *out)
{
    if (node->n_in == 0 || node->n_out != 1)
        return false;
    const mu_spec *in = spec_of(node->in[0]);
    if (node->op == &mu_op_split_to_logical_devices)
        return false; // an annotation for XLA's partitioner
    const bool whole = node->op == &mu_op_identity || node->op == &mu_op_stop_gradient || node->op == &mu_op_inner_read;
    *out = node->in[0];
    return whole ||
           (mu__shape_known(&in->shape) && same_spec(in, &node->out[0]) && mu__op_is_view(node->op, in, &node->out[0]));
}

// Whether an op infers this spec for other inputs.
static bool infers(const mu_node *node, const mu_edge *in, const mu_spec *wanted)
{
    mu_spec specs[4], out = {0};
    mu_error_value refused;
    for (int k = 0; k < node->n_in && k < 4; k++)
        specs[k] = *spec_of(in[k]);
    mu_infer infer = {.op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = 1, .in = specs, .out = &out};
    if (node->n_in > 4)
        return false;
    if (mu__infer_call(&infer) == MU_OK)
        return same_spec(&out, wanted);
    mu__error_move(&refused);
    return false;
}

static int64_t known_product(const mu_shape *shape)
{
    int64_t product = 1;
    for (int i = 0; i < shape->rank; i++)
        product *= shape->dims[i] == MU_UNKNOWN ? 1 : shape->dims[i];
    return product;
}

// A view that may fail at run time must be kept, so that it does.
static bool never_refuses(const mu_node *view)
{
    const mu_shape *in = &spec_of(view->in[0])->shape;
    if (mu__shape_known(in) || view->op == &mu_op_expand_dims)
        return true;
    if (view->op != &mu_op_reshape)
        return false;
    const mu_shape *wanted = &((const mu_shape_attrs *)view->attrs)->shape;
    const int64_t product = known_product(wanted);
    return !mu__shape_known(wanted) && product > 0 && known_product(in) % product == 0;
}

// A view of a view reads the first view's input.
static mu_status view_of_view(mu_node *node)
{
    const bool takes_any = node->op == &mu_op_reshape || node->op == &mu_op_reshape_like;
    const mu_node *before = takes_any ? node->in[0].node : NULL;
    if (!before || !(before->op->flags & MU_OP_VIEW) || !never_refuses(before))
        return MU_OK;
    mu_edge in[2] = {before->in[0], node->n_in > 1 ? node->in[1] : (mu_edge){0}};
    return infers(node, in, &node->out[0]) ? mu__graph_rewrite(node, node->op, node->attrs, node->n_in, in) : MU_OK;
}

// Whether a tensor broadcasts to a shape whatever the unknown dimensions are.
static bool surely_broadcasts(const mu_shape *from, const mu_shape *to)
{
    bool sure = from->rank <= to->rank;
    for (int i = 0; sure && i < from->rank; i++) {
        const int64_t dim = from->dims[i], wanted = to->dims[i + to->rank - from->rank];
        sure = dim == 1 || (dim != MU_UNKNOWN && dim == wanted);
    }
    return sure;
}

// Removes an explicit broadcast of an operand, because arithmetic broadcasts itself.
static mu_status broadcast_operand(mu_node *node)
{
    for (int k = 0; node->op->infer == mu__infer_broadcast && node->n_in == 2 && k < 2; k++) {
        const mu_node *from = node->in[k].node;
        const bool like = from->op == &mu_op_broadcast_like && same_edge(from->in[1], node->in[1 - k]);
        const bool known = (from->op == &mu_op_broadcast_like || from->op == &mu_op_broadcast_to) &&
                           mu__shape_known(&spec_of(node->in[1 - k])->shape);
        if ((!like && !known) || !surely_broadcasts(&spec_of(from->in[0])->shape, &spec_of(node->in[1 - k])->shape))
            continue;
        mu_edge in[2] = {node->in[0], node->in[1]};
        in[k] = from->in[0];
        if (infers(node, in, &node->out[0]))
            MU_TRY(mu__graph_rewrite(node, node->op, node->attrs, 2, in));
    }
    return MU_OK;
}

static bool is_identity(const mu_ints *axes)
{
    for (int64_t i = 0; i < axes->n; i++)
        if (axes->at[i] != i)
            return false;
    return true;
}

// Merges two transposes into one, or none.
static mu_status transpose_of_transpose(mu_node *node, mu_edge *out)
{
    *out = (mu_edge){0};
    if (node->op != &mu_op_transpose)
        return MU_OK;
    mu_axes_attrs attrs;
    memcpy(&attrs, node->attrs, sizeof attrs);
    mu_edge in = node->in[0];
    if (in.node->op == &mu_op_transpose) {
        const mu_ints *inner = &((const mu_axes_attrs *)in.node->attrs)->axes;
        for (int64_t i = 0; i < attrs.axes.n; i++)
            attrs.axes.at[i] = inner->at[attrs.axes.at[i]];
        in = in.node->in[0];
    }
    if (is_identity(&attrs.axes))
        *out = in;
    else if (!same_edge(in, node->in[0]))
        return mu__graph_rewrite(node, &mu_op_transpose, &attrs, 1, &in);
    return MU_OK;
}

// ---- Types --------------------------------------------------------------------------------------

// Whether type `to` can hold every value of `from`.
static bool holds(mu_dtype to, mu_dtype from)
{
    static const struct {
        mu_dtype from;
        unsigned to;
    } wider[] = {
        {MU_BOOL, MU_NUMBERS},
        {MU_I8, MU_DTYPE_BIT(MU_I16) | MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64) | MU_FLOATS},
        {MU_U8, MU_DTYPE_BIT(MU_I16) | MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64) | MU_FLOATS},
        {MU_I16, MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64) | MU_DTYPE_BIT(MU_F32) | MU_DTYPE_BIT(MU_F64)},
        {MU_I32, MU_DTYPE_BIT(MU_I64) | MU_DTYPE_BIT(MU_F64)},
        {MU_F16, MU_DTYPE_BIT(MU_F32) | MU_DTYPE_BIT(MU_F64)},
        {MU_BF16, MU_DTYPE_BIT(MU_F32) | MU_DTYPE_BIT(MU_F64)},
        {MU_F32, MU_DTYPE_BIT(MU_F64)},
    };
    for (size_t i = 0; i < MU_COUNT(wider); i++)
        if (wider[i].from == from)
            return wider[i].to >> to & 1;
    return false;
}

// A cast to a wider type and back is removed; a cast on to a third type becomes one cast, for integers and between
// floats. (A float beyond an integer's range converts differently from different types.)
static mu_status cast_of_cast(mu_node *node, mu_edge *out)
{
    *out = (mu_edge){0};
    if (node->op != &mu_op_cast || node->in[0].node->op != &mu_op_cast)
        return MU_OK;
    mu_edge in = node->in[0].node->in[0];
    const mu_dtype first = spec_of(in)->dtype, between = spec_of(node->in[0])->dtype, last = node->out[0].dtype;
    if (!holds(between, first))
        return MU_OK;
    if (first == last)
        *out = in;
    else if (!mu__dtype_is_float(first) || mu__dtype_is_float(last))
        return mu__graph_rewrite(node, &mu_op_cast, node->attrs, 1, &in);
    return MU_OK;
}

// ---- All of them --------------------------------------------------------------------------------

static mu_status simplify(simplifier *s, mu_node *node)
{
    mu_edge *out = &s->replacement[node->id], found;
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k].output == 0)
            node->in[k] = s->replacement[node->in[k].node->id];
    *out = (mu_edge){.node = node};
    MU_TRY(add_negated(node));
    MU_TRY(view_of_view(node));
    MU_TRY(broadcast_operand(node));
    if (neutral_operand(node, &found) || double_negation(node, &found) || changes_nothing(node, &found)) {
        *out = found;
        return MU_OK;
    }
    MU_TRY(transpose_of_transpose(node, &found));
    if (!found.node)
        MU_TRY(cast_of_cast(node, &found));
    if (found.node)
        *out = found;
    return MU_OK;
}

mu_status mu__pass_algebra(mu_graph *graph)
{
    simplifier s = {.graph = graph, .replacement = mu__alloc(sizeof *s.replacement * (graph->nodes.n + 1))};
    mu_status status = s.replacement ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < graph->nodes.n; i++)
        status = simplify(&s, graph->nodes.items[i]);
    for (size_t i = 0; status == MU_OK && i < graph->outputs.n; i++)
        if (graph->outputs.items[i].output == 0)
            graph->outputs.items[i] = s.replacement[graph->outputs.items[i].node->id];
    mu__free(s.replacement);
    return status;
}
