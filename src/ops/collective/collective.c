// Collectives as ops: all_reduce over any number of tensors, broadcast.
//
// The kernel passes arrays to the replica's communicator; without one the group has one member and values pass through.
// Tensors of one all_reduce that are adjacent in memory are sent in place; others are packed into scratch. Independent
// of transports.
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

// ---- all_reduce ---------------------------------------------------------------------------------

static mu_status all_reduce_infer(mu_infer *infer)
{
    const mu_all_reduce_attrs *attrs = infer->attrs;
    if (attrs->reduction < MU_REDUCTION_SUM || attrs->reduction > MU_REDUCTION_MAX)
        return mu__error(MU_INVALID_ARGUMENT, "%s %s: reduction number %lld is unknown", infer->op->name, attrs->name,
                         (long long)attrs->reduction);
    for (int i = 0; i < infer->n_in; i++) {
        MU_TRY(mu__need_same_dtype(infer, 0, i));
        infer->out[i] = infer->in[i];
    }
    return MU_OK;
}

// As in TensorFlow, the gradient is the same reduction of the gradients; one all_reduce for all inputs if there are
// few.
static mu_tensor *all_reduce_grad(mu_grad *g, int i)
{
    if (g->n_in > MU_GRAD_MEMO)
        return mu__apply1(&mu_op_all_reduce, g->attrs, mu__grad_of(g, i));
    mu_tensor *dys[MU_GRAD_MEMO];
    if (g->memo[i])
        return g->memo[i];
    for (int k = 0; k < g->n_in; k++)
        dys[k] = mu__grad_of(g, k);
    return mu__apply(&mu_op_all_reduce, g->attrs, g->n_in, dys, 0, NULL, g->memo) == MU_OK ? g->memo[i] : NULL;
}

static size_t view_bytes(const mu_view *view)
{
    return (size_t)mu__elements(&view->shape) * mu_dtype_bytes(view->dtype);
}

static void copy_through(const mu_kernel *kernel)
{
    for (int i = 0; i < kernel->n_out; i++)
        if (kernel->out[i].data != kernel->in[i].data)
            memmove(kernel->out[i].data, kernel->in[i].data, view_bytes(&kernel->in[i]));
}

static bool side_by_side(const mu_view *views, int n)
{
    const char *end = views[0].data;
    for (int i = 0; i < n; i++) {
        if ((const char *)views[i].data != end)
            return false;
        end += view_bytes(&views[i]);
    }
    return true;
}

static mu_status reduce_block(const mu_kernel *kernel, void *block, size_t bytes)
{
    const mu_all_reduce_attrs *attrs = kernel->attrs;
    const mu_dtype dtype = kernel->in[0].dtype;
    mu__form_said(kernel->collective, kernel->n_in, kernel->in, MU_NO_AXIS);
    return kernel->collective->all_reduce(kernel->collective, kernel->number, attrs->name,
                                          (mu_reduction)attrs->reduction, dtype, block,
                                          (int64_t)(bytes / mu_dtype_bytes(dtype)));
}

static mu_status reduce_packed(const mu_kernel *kernel, char *block, size_t bytes)
{
    char *to = block;
    for (int i = 0; i < kernel->n_in; to += view_bytes(&kernel->in[i++]))
        memcpy(to, kernel->in[i].data, view_bytes(&kernel->in[i]));
    MU_TRY(reduce_block(kernel, block, bytes));
    const char *from = block;
    for (int i = 0; i < kernel->n_out; from += view_bytes(&kernel->out[i++]))
        memcpy(kernel->out[i].data, from, view_bytes(&kernel->out[i]));
    return MU_OK;
}

static mu_status all_reduce_run(const mu_kernel *kernel)
{
    size_t bytes = 0;
    for (int i = 0; i < kernel->n_in; i++)
        bytes += view_bytes(&kernel->in[i]);
    if (!kernel->collective || side_by_side(kernel->out, kernel->n_out)) {
        copy_through(kernel);
        return kernel->collective ? reduce_block(kernel, kernel->out[0].data, bytes) : MU_OK;
    }
    if (kernel->scratch)
        return reduce_packed(kernel, kernel->scratch, bytes);
    void *block = mu__alloc_data(bytes);
    if (!block)
        return MU_RESOURCE_EXHAUSTED;
    const mu_status status = reduce_packed(kernel, block, bytes);
    mu__free_data(block, bytes);
    return status;
}

static mu_status all_reduce_prepare(mu_prepare *prepare)
{
    for (int i = 0; i < prepare->n_in && prepare->n_in > 1; i++)
        prepare->scratch_bytes += mu__spec_bytes(&prepare->in[i]);
    return MU_OK;
}

static const mu_attr_spec all_reduce_fields[] = {
    {"reduction", MU_ATTR_INT, offsetof(mu_all_reduce_attrs, reduction)},
    {"name", MU_ATTR_TEXT, offsetof(mu_all_reduce_attrs, name)},
    {0},
};

static const mu_all_reduce_attrs sum = {MU_REDUCTION_SUM, "sum"}, mean = {MU_REDUCTION_MEAN, "mean"};

static const mu_sample all_reduce_samples[] = {
    {.n_in = 1, .in = {{2, {3, 5}}}, .attrs = &sum},
    {.n_in = 3, .in = {{2, {3, 5}}, {0}, {1, {0}}}, .attrs = &mean},
    {0},
};

const mu_op mu_op_all_reduce = {
    .name = "all_reduce",
    .n_in = 1,
    .max_in = MU_VARIADIC,
    .n_out = MU_OUT_AS_IN,
    .flags = MU_OP_COLLECTIVE,
    .dtypes = MU_NUMBERS,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_all_reduce_attrs),
    .attrs = all_reduce_fields,
    .infer = all_reduce_infer,
    .grad = all_reduce_grad,
    .ref = all_reduce_run,
    .cpu = {all_reduce_prepare, all_reduce_run, NULL},
    .samples = all_reduce_samples,
    .lower = mu__lower_all_reduce,
};

// ---- broadcast ----------------------------------------------------------------------------------

static mu_status broadcast_infer(mu_infer *infer)
{
    const mu_broadcast_attrs *attrs = infer->attrs;
    if (attrs->root < 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s %s: root %lld is not a rank", infer->op->name, attrs->name,
                         (long long)attrs->root);
    return mu__infer_same(infer);
}

static mu_status broadcast_run(const mu_kernel *kernel)
{
    const mu_broadcast_attrs *attrs = kernel->attrs;
    copy_through(kernel);
    if (!kernel->collective)
        return MU_OK;
    mu__form_said(kernel->collective, 1, kernel->in, MU_NO_AXIS);
    return kernel->collective->broadcast(kernel->collective, kernel->number, attrs->name, kernel->in[0].dtype,
                                         kernel->out[0].data, mu__elements(&kernel->out[0].shape), (int)attrs->root);
}

static const mu_attr_spec broadcast_fields[] = {
    {"root", MU_ATTR_INT, offsetof(mu_broadcast_attrs, root)},
    {"name", MU_ATTR_TEXT, offsetof(mu_broadcast_attrs, name)},
    {0},
};

static const mu_broadcast_attrs from_first = {0, "first"};

static const mu_sample broadcast_samples[] = {
    {.n_in = 1, .in = {{2, {3, 5}}}, .attrs = &from_first},
    {0},
};

const mu_op mu_op_broadcast = {
    .name = "broadcast",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_COLLECTIVE,
    .dtypes = MU_ALL_DTYPES,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_broadcast_attrs),
    .attrs = broadcast_fields,
    .infer = broadcast_infer,
    .ref = broadcast_run,
    .samples = broadcast_samples,
    .lower = mu__lower_broadcast_from,
};
