// conv2d_relu_pool_grads: all gradients of a convolution with bias, ReLU and 2x2 max pool.
//
// An engine pass makes this op if the convolution's input needs a gradient too. The fast kernel visits only the
// elements that passed a gradient on, which are few; the plain one unpools and calls the plain ops.
#include "engine/cpu/fused_ops.h"
#include "ops/spatial/conv.h"
#include "ops/nn/nn_loops.h"

#include "kernels/kernels.h"

// Inputs x, w, mark, dy; outputs dw, db, dx.
enum { X, W, MARK, DY };
enum { DW, DB, DX };

static mu_status grads_infer(mu_infer *infer)
{
    mu_shape shape;
    const mu_spec *x = &infer->in[X], *w = &infer->in[W];
    MU_TRY(mu__need_same_dtype(infer, X, W));
    MU_TRY(mu__need_same_dtype(infer, X, DY));
    MU_TRY(mu__pooled_convolution(infer, &x->shape, &w->shape, &shape));
    infer->out[DW] = *w;
    infer->out[DB] = (mu_spec){w->dtype, MU_SHAPE(w->shape.dims[3])};
    infer->out[DX] = *x;
    return mu__need_marked(infer, DY, MARK, &shape);
}

static mu_status grads_ref(const mu_kernel *kernel)
{
    const mu_view *x = &kernel->in[X], *w = &kernel->in[W];
    mu_shape shape = mu__convolution_shape(kernel, &x->shape, &w->shape);
    mu_view dz = {.dtype = x->dtype, .shape = shape};
    dz.data = mu__alloc((size_t)mu__elements(&shape) * mu_dtype_bytes(dz.dtype));
    if (!dz.data)
        return MU_RESOURCE_EXHAUSTED;
    const mu_view filter_in[] = {*x, dz, *w}, input_in[] = {dz, *w, *x};
    mu_status status = MU_OK;
    MU_GO(mu__unpool_marked(kernel, &kernel->in[DY], &kernel->in[MARK], &dz));
    MU_GO(mu__run_plain(&mu_op_conv2d_filter_grad, kernel->attrs, kernel, 3, filter_in, 1, &kernel->out[DW]));
    MU_GO(mu__run_plain(&mu_op_bias_add_grad, NULL, kernel, 1, &dz, 1, &kernel->out[DB]));
    MU_GO(mu__run_plain(&mu_op_conv2d_input_grad, kernel->attrs, kernel, 3, input_in, 1, &kernel->out[DX]));
out:
    mu__free(dz.data);
    return status;
}

// ---- Fast ---------------------------------------------------------------------------------------

static mu_conv_pool_shape shape_of(const mu_shape *x, const mu_shape *w)
{
    return (mu_conv_pool_shape){.height = x->dims[1],
                                .width = x->dims[2],
                                .in_channels = x->dims[3],
                                .out_channels = w->dims[3],
                                .kernel = w->dims[0]};
}

// Bytes of a member's private memory: its sums, then the kernel's scratch.
static size_t member_bytes(const mu_shape *x, const mu_shape *w)
{
    const mu_conv_pool_shape shape = shape_of(x, w);
    const size_t sums = (size_t)(mu__elements(w) + w->dims[3]) * sizeof(float);
    return ((sums + 63) / 64 * 64) + (mu__deep_scratch_bytes(&shape) + 63) / 64 * 64;
}

static mu_status grads_prepare(mu_prepare *prepare)
{
    const mu_conv_attrs *attrs = prepare->attrs;
    const mu_shape *x = &prepare->in[X].shape, *w = &prepare->in[W].shape;
    MU_TRY(mu__prepare_f32(prepare));
    if (!mu__plain_convolution(attrs) || w->dims[0] != w->dims[1] || w->dims[2] % 16 != 0)
        prepare->declined = true;
    prepare->scratch_bytes = member_bytes(x, w) * (size_t)prepare->team->n_threads;
    return MU_OK;
}

static float *member_sums(const mu_kernel *k, int index)
{
    return (float *)(void *)((char *)k->scratch + member_bytes(&k->in[X].shape, &k->in[W].shape) * (size_t)index);
}

static void grads_member(void *arg, int index, int count)
{
    const mu_kernel *k = arg;
    const mu_shape *w = &k->in[W].shape;
    const mu_conv_pool_shape shape = shape_of(&k->in[X].shape, w);
    float *dw = member_sums(k, index), *db = dw + mu__elements(w);
    const size_t sums = ((size_t)(mu__elements(w) + w->dims[3]) * sizeof(float) + 63) / 64 * 64;
    int64_t begin, end;
    mu__team_share(k->in[X].shape.dims[0], 1, index, count, &begin, &end);
    mu__kernels()->conv_relu_pool_grads(&shape, k->in[X].data, k->in[W].data, k->in[DY].data, k->in[MARK].data, dw, db,
                                        k->out[DX].data, (char *)dw + sums, begin, end);
}

static mu_status grads_fast(const mu_kernel *kernel)
{
    mu_kernel copy = *kernel;
    const int64_t weights = mu__elements(&kernel->in[W].shape), filters = kernel->in[W].shape.dims[3];
    mu__team_run(kernel->team, grads_member, &copy);
    float *sums = member_sums(kernel, 0);
    for (int member = 1; member < kernel->team->n_threads; member++)
        for (int64_t i = 0; i < weights + filters; i++)
            sums[i] += member_sums(kernel, member)[i];
    memcpy(kernel->out[DW].data, sums, (size_t)weights * sizeof *sums);
    memcpy(kernel->out[DB].data, sums + weights, (size_t)filters * sizeof *sums);
    return MU_OK;
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_conv_attrs valid = {.strides = {2, {1, 1}}, .dilations = {2, {1, 1}}, .padding = "valid", .groups = 1};

static const mu_sample grads_samples[] = {
    {.n_in = 4,
     .in = {{4, {2, 8, 9, 16}}, {4, {3, 3, 16, 5}}, {4, {2, 3, 3, 5}}, {4, {2, 3, 3, 5}}},
     .low = {-2, -2, 0, -2},
     .high = {2, 2, 5, 2},
     .dtypes = {0, 0, MU_U8},
     .attrs = &valid,
     .no_grad = 15},
    {.n_in = 4,
     .in = {{4, {4, 13, 13, 32}}, {4, {3, 3, 32, 17}}, {4, {4, 5, 5, 17}}, {4, {4, 5, 5, 17}}},
     .low = {-2, -2, 0, -2},
     .high = {2, 2, 5, 2},
     .dtypes = {0, 0, MU_U8},
     .attrs = &valid,
     .no_grad = 15},
    {0},
};

const mu_op mu__op_conv2d_relu_pool_grads = {
    .name = "conv2d_relu_pool_grads",
    .n_in = 4,
    .n_out = 3,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_conv_attrs),
    .attrs = mu__conv_fields,
    .infer = grads_infer,
    .ref = grads_ref,
    .cpu = {grads_prepare, grads_fast, NULL},
    .samples = grads_samples,
};
