// The rule of each op for all rows at once: inputs get one more first axis, and axes in attributes move by one.
//
// A rule may decline a case (an unknown dimension, an unexpected input with rows); then the op runs row by row. Ops
// that work elementwise or on the last axes only need inputs of equal rank.
#include "graph/control/vectorize.h"
#include "ops/core/attrs.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

typedef struct site {
    const mu_node *node;
    const mu_vector_rows *in;
    mu_tensor **out;
    int64_t n_rows; // MU_UNKNOWN if the trace does not know it
} site;

// A rule returns whether it took the case; errors are recorded.
typedef bool rule(const site *s);

static int own_rank(const mu_vector_rows *x) { return x->at->shape.rank - x->rows; }

static bool apply(const site *s, const void *attrs, mu_tensor *const *in)
{
    mu__apply(s->node->op, attrs, s->node->n_in, in, 0, NULL, s->out);
    return true;
}

// The tensor with axes of size 1 after its row axis, so that its own axes are the last of `rank`.
static mu_tensor *aligned(const mu_vector_rows *x, int rank)
{
    mu_tensor *at = x->at;
    for (int i = own_rank(x); x->rows && i < rank && at; i++)
        at = mu_expand_dims(at, 1);
    return at;
}

static bool apply_aligned(const site *s, int rank)
{
    mu_tensor *in[8];
    if (s->node->n_in > (int)MU_COUNT(in))
        return false;
    for (int i = 0; i < s->node->n_in; i++)
        in[i] = aligned(&s->in[i], rank);
    return apply(s, s->node->attrs, in);
}

// Elementwise ops, and products of the last two axes: leading axes broadcast.
static bool broadcasts(const site *s)
{
    int rank = 0;
    for (int i = 0; i < s->node->n_in; i++)
        rank = MU_MAX(rank, own_rank(&s->in[i]));
    return apply_aligned(s, rank);
}

// One input with rows; the op uses the last axes only.
static bool last_axes(const site *s)
{
    mu_tensor *in[8];
    if (s->node->n_in > (int)MU_COUNT(in) || !s->in[0].rows)
        return false;
    for (int i = 0; i < s->node->n_in; i++) {
        if (i > 0 && s->in[i].rows)
            return false;
        in[i] = s->in[i].at;
    }
    return apply(s, s->node->attrs, in);
}

static bool one_axis(const site *s)
{
    mu_cumulate_attrs attrs; // the largest of those that begin with an axis
    memset(&attrs, 0, sizeof attrs);
    memcpy(&attrs, s->node->attrs, s->node->op->attrs_bytes);
    attrs.axis += attrs.axis >= 0; // negative axes do not move
    return apply(s, &attrs, &s->in[0].at);
}

// One of several inputs of equal shape, repeated for all rows if it has none.
static mu_tensor *for_all_rows(const site *s, int i)
{
    int like = 0;
    while (!s->in[like].rows && like < s->node->n_in - 1)
        like++;
    return s->in[i].rows ? s->in[i].at : mu__apply2(&mu_op_broadcast_like, NULL, s->in[i].at, s->in[like].at);
}

static bool alike(const site *s)
{
    mu_tensor *in[3];
    for (int i = 0; i < s->node->n_in; i++)
        in[i] = for_all_rows(s, i);
    return apply(s, s->node->attrs, in);
}

static bool alike_along_axis(const site *s)
{
    const mu_axis_attrs *old = s->node->attrs;
    const mu_axis_attrs attrs = {old->axis + (old->axis >= 0)};
    return apply(s, &attrs, (mu_tensor *[]){for_all_rows(s, 0), for_all_rows(s, 1)});
}

// Inputs of one rank, all with rows.
static bool axes(const site *s)
{
    mu_tensor *in[2];
    mu_reduce_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    memcpy(&attrs, s->node->attrs, s->node->op->attrs_bytes);
    for (int i = 0; i < attrs.axes.n; i++)
        attrs.axes.at[i]++;
    for (int i = 0; i < s->node->n_in; i++) {
        if (!s->in[i].rows)
            return false;
        in[i] = s->in[i].at;
    }
    return apply(s, &attrs, in);
}

static bool permutes(const site *s)
{
    const mu_axes_attrs *old = s->node->attrs;
    mu_axes_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.axes.n = old->axes.n + 1;
    for (int i = 0; i < old->axes.n; i++)
        attrs.axes.at[i + 1] = old->axes.at[i] + 1;
    return apply(s, &attrs, &s->in[0].at);
}

static bool concatenates(const site *s)
{
    mu_axis_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.axis = ((const mu_axis_attrs *)s->node->attrs)->axis + 1;
    mu_tensor **in = mu__calloc((size_t)s->node->n_in, sizeof *in);
    bool known = in != NULL;
    for (int i = 0; known && i < s->node->n_in; i++) {
        mu_shape shape = s->in[i].at->shape;
        in[i] = s->in[i].at;
        if (s->in[i].rows)
            continue;
        known = mu__shape_known(&shape) && s->n_rows != MU_UNKNOWN && shape.rank < MU_MAX_RANK;
        memmove(shape.dims + 1, shape.dims, sizeof(int64_t) * (size_t)(known ? shape.rank : 0));
        shape.dims[0] = s->n_rows;
        if (known)
            in[i] = mu_broadcast_to(in[i], shape.rank + 1, shape.dims);
    }
    if (known)
        apply(s, &attrs, in);
    mu__free(in);
    return known;
}

// The row axis is added to a shape attribute.
static bool takes_shape(const site *s)
{
    const mu_shape *old = &((const mu_shape_attrs *)s->node->attrs)->shape;
    mu_shape_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (old->rank == MU_MAX_RANK || (s->n_rows == MU_UNKNOWN && !mu__shape_known(old)) ||
        (s->n_rows == MU_UNKNOWN && s->node->op == &mu_op_broadcast_to))
        return false;
    if (s->n_rows == MU_UNKNOWN && mu__elements(old) == 0)
        return false;
    attrs.shape.rank = old->rank + 1;
    attrs.shape.dims[0] = s->n_rows; // unknown is -1: it follows from the rest, unless there are no elements
    memcpy(attrs.shape.dims + 1, old->dims, sizeof *old->dims * (size_t)old->rank);
    mu_tensor *in = s->node->op == &mu_op_broadcast_to ? aligned(&s->in[0], old->rank) : s->in[0].at;
    return apply(s, &attrs, &in);
}

static bool like_another(const site *s)
{
    const mu_op *op = s->node->op;
    mu_tensor *like = s->in[1].at;
    if (!s->in[1].rows || (op != &mu_op_broadcast_like && !s->in[0].rows))
        return false;
    if (op != &mu_op_sum_to_like) {
        mu_tensor *in[] = {op == &mu_op_broadcast_like ? aligned(&s->in[0], own_rank(&s->in[1])) : s->in[0].at, like};
        return apply(s, s->node->attrs, in);
    }
    s->out[0] = mu_sum_to_like(s->in[0].at, aligned(&s->in[1], own_rank(&s->in[0])));
    if (s->out[0] && s->out[0]->shape.rank != like->shape.rank)
        s->out[0] = mu_reshape_like(s->out[0], like);
    return true;
}

static bool adds_bias(const site *s)
{
    if (!s->in[1].rows)
        return last_axes(s);
    const mu_vector_rows x = s->in[0];
    s->out[0] = mu_add(x.rows ? x.at : mu_expand_dims(x.at, 0), aligned(&s->in[1], own_rank(&x)));
    return true;
}

// The op has a batch axis: rows and batch are merged into one axis.
static bool has_batch(const site *s)
{
    mu_tensor *in[8];
    mu_shape shape = s->in[0].at->shape, out = s->node->out[0].shape;
    if (s->node->n_in > (int)MU_COUNT(in) || !s->in[0].rows || s->node->n_out != 1 || !mu__shape_known(&out) ||
        (s->n_rows == MU_UNKNOWN && mu__elements(&out) == 0))
        return false;
    for (int i = 1; i < s->node->n_in; i++) {
        if (s->in[i].rows)
            return false;
        in[i] = s->in[i].at;
    }
    shape.rank--;
    memmove(shape.dims, shape.dims + 1, sizeof(int64_t) * (size_t)shape.rank);
    shape.dims[0] = -1;
    memmove(out.dims + 1, out.dims, sizeof(int64_t) * (size_t)out.rank++);
    out.dims[0] = s->n_rows;
    for (int axis = 1; axis < shape.rank; axis++)
        if (shape.dims[axis] == MU_UNKNOWN)
            return false;
    in[0] = mu_reshape(s->in[0].at, shape.rank, shape.dims);
    apply(s, s->node->attrs, in);
    s->out[0] = mu_reshape(s->out[0], out.rank, out.dims);
    return true;
}

static bool normalizes(const site *s)
{
    return ((const mu_normalize_attrs *)s->node->attrs)->groups > 0 ? has_batch(s) : last_axes(s);
}

// Everything but the mask has the same leading axes.
static bool attends(const site *s)
{
    mu_tensor *in[7];
    const int mask = s->node->op == &mu_op_attention ? 3 : 6;
    for (int i = 0; i < s->node->n_in; i++) {
        if (i < mask && !s->in[i].rows)
            return false;
        in[i] = i < mask ? s->in[i].at : aligned(&s->in[i], own_rank(&s->in[0]));
    }
    return apply(s, s->node->attrs, in);
}

// Along the last axis; the gradients of gamma and beta are summed per row.
static bool normalizes_back(const site *s)
{
    mu_tensor *in[3], *out[3];
    int axes[MU_MAX_RANK], n = 0;
    if (((const mu_normalize_attrs *)s->node->attrs)->groups > 0 || !s->in[0].rows || !s->in[1].rows)
        return false;
    for (int i = 0; i < s->node->n_in; i++)
        in[i] = s->in[i].at;
    if ((s->node->n_in > 2 && s->in[2].rows) ||
        mu__apply(s->node->op, s->node->attrs, s->node->n_in, in, 0, NULL, out) != MU_OK)
        return false;
    for (int axis = 1; axis < in[1]->shape.rank - 1; axis++)
        axes[n++] = axis;
    mu_tensor *product = mu_multiply(in[1], mu__apply1(&mu_op_normalize, s->node->attrs, in[0]));
    s->out[0] = out[0];
    s->out[1] = n > 0 ? mu_reduce_sum(product, .axes = axes, .n_axes = n) : product;
    s->out[2] = n > 0 ? mu_reduce_sum(in[1], .axes = axes, .n_axes = n) : in[1];
    return true;
}

static const struct {
    const mu_op *op;
    rule *rule;
} rules[] = {
    {&mu_op_matmul, broadcasts},
    {&mu_op_identity, last_axes},
    {&mu_op_stop_gradient, last_axes},
    {&mu_op_cholesky, last_axes},
    {&mu_op_svd, last_axes},
    {&mu_op_spectral_norm, last_axes},
    {&mu_op_check_numerics, last_axes},
    {&mu_op_assert, last_axes},
    {&mu_op_one_hot, last_axes},
    {&mu_op_sort, last_axes},
    {&mu_op_top_k, last_axes},
    {&mu_op_relu_grad, alike},
    {&mu_op_tanh_grad, alike},
    {&mu_op_sigmoid_grad, alike},
    {&mu_op_softplus_grad, alike},
    {&mu_op_silu_grad, alike},
    {&mu_op_gelu_grad, alike},
    {&mu_op_gelu_tanh_grad, alike},
    {&mu_op_sigmoid_cross_entropy, alike},
    {&mu_op_sigmoid_cross_entropy_grad, alike},
    {&mu_op_expand_dims, one_axis},
    {&mu_op_softmax, one_axis},
    {&mu_op_log_softmax, one_axis},
    {&mu_op_softmax_grad, alike_along_axis},
    {&mu_op_log_softmax_grad, alike_along_axis},
    {&mu_op_normalize, normalizes},
    {&mu_op_normalize_grad, normalizes_back},
    {&mu_op_channel_affine, last_axes},
    {&mu_op_attention, attends},
    {&mu_op_attention_grad, attends},
    {&mu_op_argmax, one_axis},
    {&mu_op_argmin, one_axis},
    {&mu_op_cumsum, one_axis},
    {&mu_op_cumprod, one_axis},
    {&mu_op_reduce_sum, axes},
    {&mu_op_reduce_squares, axes},
    {&mu_op_reduce_cubes, axes},
    {&mu_op_reduce_squares_about, axes},
    {&mu_op_reduce_exp_about, axes},
    {&mu_op_reduce_sizes, axes},
    {&mu_op_reduce_largest, axes},
    {&mu_op_reduce_mean, axes},
    {&mu_op_reduce_max, axes},
    {&mu_op_reduce_min, axes},
    {&mu_op_reduce_prod, axes},
    {&mu_op_reduce_any, axes},
    {&mu_op_reduce_all, axes},
    {&mu_op_squeeze, axes},
    {&mu_op_transpose, permutes},
    {&mu_op_concat, concatenates},
    {&mu_op_reshape, takes_shape},
    {&mu_op_broadcast_to, takes_shape},
    {&mu_op_broadcast_like, like_another},
    {&mu_op_reshape_like, like_another},
    {&mu_op_sum_to_like, like_another},
    {&mu_op_bias_add, adds_bias},
    {&mu_op_conv2d, has_batch},
    {&mu_op_max_pool2d, has_batch},
    {&mu_op_avg_pool2d, has_batch},
};

static rule *rule_of(const mu_op *op)
{
    for (size_t i = 0; i < MU_COUNT(rules); i++)
        if (rules[i].op == op)
            return rules[i].rule;
    return op->flags & MU_OP_ELEMENTWISE ? broadcasts : NULL;
}

mu_status mu__vectorize_node(const mu_node *node, const mu_vector_rows *in, mu_tensor **out, bool *done)
{
    rule *found = rule_of(node->op);
    site s = {.node = node, .in = in, .out = out, .n_rows = MU_UNKNOWN};
    for (int i = 0; i < node->n_in; i++)
        if (in[i].rows && in[i].at->shape.dims[0] != MU_UNKNOWN)
            s.n_rows = in[i].at->shape.dims[0];
    *done = found && found(&s);
    return mu__pending() ? mu_error_code() : MU_OK;
}
