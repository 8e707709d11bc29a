// reduce_scatter: the replicas' tensors are reduced, and each replica gets its part of the result along an axis.
//
// Parts are equal, in replica order, so their size follows from the shape. A communicator's blocks are contiguous: a
// part of another axis than the first is put together in scratch. Independent of transports.
#include "ops/core/grads.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

static mu_status check_attrs(const mu_infer *infer)
{
    const mu_reduce_scatter_attrs *attrs = infer->attrs;
    const int rank = infer->in[0].shape.rank;
    if (attrs->axis < 0 || attrs->axis >= rank)
        return mu__error(MU_INVALID_ARGUMENT,
                         "reduce_scatter: axis %lld of a tensor of rank %d; the axis must be one of its own",
                         (long long)attrs->axis, rank);
    if (attrs->reduction != MU_REDUCTION_SUM && attrs->reduction != MU_REDUCTION_MEAN)
        return mu__error(MU_INVALID_ARGUMENT, "reduce_scatter: reduction number %lld is neither a sum nor a mean",
                         (long long)attrs->reduction);
    return attrs->ranks >= 1 ? MU_OK
                             : mu__error(MU_INVALID_ARGUMENT, "reduce_scatter: %lld replicas; there is at least one",
                                         (long long)attrs->ranks);
}

static mu_status reduce_scatter_infer(mu_infer *infer)
{
    const mu_reduce_scatter_attrs *attrs = infer->attrs;
    MU_TRY(check_attrs(infer));
    infer->out[0] = infer->in[0];
    int64_t *size = &infer->out[0].shape.dims[attrs->axis];
    if (*size == MU_UNKNOWN)
        return MU_OK;
    if (*size % attrs->ranks != 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "reduce_scatter: axis %lld has the size %lld, of which %lld replicas cannot have equal parts; "
                         "pad the axis to a multiple of %lld (mu_pad)",
                         (long long)attrs->axis, (long long)*size, (long long)attrs->ranks, (long long)attrs->ranks);
    *size /= attrs->ranks;
    return MU_OK;
}

// ---- Kernel -------------------------------------------------------------------------------------

typedef struct layout {
    int64_t outer; // parts of a block that are not contiguous in the input
    size_t bytes;  // of the part of a block that is contiguous
} layout;

static layout layout_of(const mu_shape *out, mu_dtype dtype, int64_t axis)
{
    layout l = {.outer = 1, .bytes = mu_dtype_bytes(dtype)};
    for (int a = 0; a < out->rank; a++)
        if (a < axis)
            l.outer *= out->dims[a];
        else
            l.bytes *= (size_t)out->dims[a];
    return l;
}

static void pack_blocks(const layout *l, int ranks, const char *in, char *block)
{
    for (int r = 0; r < ranks; r++)
        for (int64_t o = 0; o < l->outer; o++, block += l->bytes)
            memcpy(block, in + ((size_t)o * (size_t)ranks + (size_t)r) * l->bytes, l->bytes);
}

static mu_status scatter_blocks(const mu_kernel *kernel, const void *blocks)
{
    const mu_reduce_scatter_attrs *attrs = kernel->attrs;
    mu__form_said(kernel->collective, 1, kernel->in, (int)attrs->axis);
    return kernel->collective->reduce_scatter(kernel->collective, kernel->number, attrs->name,
                                              (mu_reduction)attrs->reduction, kernel->in[0].dtype, blocks,
                                              kernel->out[0].data, mu__elements(&kernel->out[0].shape));
}

static mu_status reduce_scatter_run(const mu_kernel *kernel)
{
    const mu_reduce_scatter_attrs *attrs = kernel->attrs;
    const mu_view *in = &kernel->in[0];
    const int ranks = kernel->collective ? kernel->collective->size : 1;
    const layout l = layout_of(&kernel->out[0].shape, in->dtype, attrs->axis);
    const size_t bytes = (size_t)mu__elements(&in->shape) * mu_dtype_bytes(in->dtype);
    if (attrs->ranks != ranks)
        return mu__error(MU_INVALID_ARGUMENT,
                         "reduce_scatter: the function was traced for %lld replicas and is run by %d; trace it under "
                         "the strategy that runs it",
                         (long long)attrs->ranks, ranks);
    if (!kernel->collective) {
        memcpy(kernel->out[0].data, in->data, bytes);
        return MU_OK;
    }
    if (l.outer == 1)
        return scatter_blocks(kernel, in->data);
    char *blocks = kernel->scratch ? kernel->scratch : mu__alloc_data(bytes);
    if (!blocks)
        return MU_RESOURCE_EXHAUSTED;
    pack_blocks(&l, ranks, in->data, blocks);
    const mu_status status = scatter_blocks(kernel, blocks);
    if (blocks != kernel->scratch)
        mu__free_data(blocks, bytes);
    return status;
}

static mu_status reduce_scatter_prepare(mu_prepare *prepare)
{
    const mu_reduce_scatter_attrs *attrs = prepare->attrs;
    if (attrs->ranks > 1 && layout_of(&prepare->out[0].shape, prepare->in[0].dtype, attrs->axis).outer != 1)
        prepare->scratch_bytes = mu__spec_bytes(&prepare->in[0]);
    return MU_OK;
}

// ---- Gradient -----------------------------------------------------------------------------------

// Each replica's part came from every replica's tensor, so all gather the gradients of the parts.
static mu_tensor *reduce_scatter_grad(mu_grad *g, int i)
{
    const mu_reduce_scatter_attrs *attrs = g->attrs;
    mu_tensor *dy = g->dy, *out[2];
    (void)i;
    if (attrs->reduction == MU_REDUCTION_MEAN && attrs->ranks > 1)
        dy = mu__apply2(&mu_op_divide, NULL, dy, mu__scalar_like(dy, (double)attrs->ranks));
    if (attrs->ranks == 1 || !dy)
        return dy;
    mu_all_gather_attrs gather;
    memset(&gather, 0, sizeof gather);
    gather.axis = attrs->axis;
    gather.ranks = attrs->ranks;
    snprintf(gather.name, sizeof gather.name, "reduce_scatter_grad");
    return mu__apply(&mu_op_all_gather, &gather, 1, &dy, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

static const mu_attr_spec reduce_scatter_fields[] = {
    {"reduction", MU_ATTR_INT, offsetof(mu_reduce_scatter_attrs, reduction)},
    {"axis", MU_ATTR_INT, offsetof(mu_reduce_scatter_attrs, axis)},
    {"ranks", MU_ATTR_INT, offsetof(mu_reduce_scatter_attrs, ranks)},
    {"name", MU_ATTR_TEXT, offsetof(mu_reduce_scatter_attrs, name)},
    {0},
};

static const mu_reduce_scatter_attrs rows = {MU_REDUCTION_SUM, 0, 1, "sum"},
                                     columns = {MU_REDUCTION_MEAN, 1, 1, "mean"};

static const mu_sample reduce_scatter_samples[] = {
    {.n_in = 1, .in = {{2, {3, 5}}}, .attrs = &rows},
    {.n_in = 1, .in = {{3, {2, 1, 7}}}, .attrs = &columns},
    {.n_in = 1, .in = {{2, {0, 3}}}, .attrs = &columns},
    {0},
};

const mu_op mu_op_reduce_scatter = {
    .name = "reduce_scatter",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_COLLECTIVE,
    .dtypes = MU_NUMBERS,
    .attrs_bytes = sizeof(mu_reduce_scatter_attrs),
    .attrs = reduce_scatter_fields,
    .infer = reduce_scatter_infer,
    .grad = reduce_scatter_grad,
    .ref = reduce_scatter_run,
    .cpu = {reduce_scatter_prepare, reduce_scatter_run, NULL},
    .samples = reduce_scatter_samples,
    .lower = mu__lower_reduce_scatter,
};
