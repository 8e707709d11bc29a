// Fused ops: ReLU with a 2x2 max pool, and a convolution before them.
//
// The separate ops are bound by memory bandwidth. Each forward op also returns a mask: for every element of the result,
// the tap of its window that passes the gradient, or MU_MARK_DEAD if none does. The backward ops need nothing else from
// the forward pass. The reference kernels call those of the plain ops.
#include "engine/cpu/fused_ops.h"
#include "ops/core/loops.h"
#include "ops/spatial/conv.h"
#include "ops/nn/nn_loops.h"

#include "kernels/kernels.h"

static const mu_pool_attrs two = {.window = {2, {2, 2}}, .strides = {2, {2, 2}}, .padding = "valid"};

static size_t bytes_of(const mu_view *view) { return (size_t)mu__elements(&view->shape) * mu_dtype_bytes(view->dtype); }

// A view with this shape in newly allocated memory; data is NULL after an error.
static mu_view temporary(mu_dtype dtype, const mu_shape *shape)
{
    mu_view view = {.dtype = dtype, .shape = *shape};
    view.data = mu__alloc(bytes_of(&view));
    return view;
}

// Runs the plain loops of another op.
mu_status mu__run_plain(const mu_op *op, const void *attrs, const mu_kernel *kernel, int n_in, const mu_view *in,
                        int n_out, const mu_view *out)
{
    const mu_kernel inner = {
        .op = op, .attrs = attrs, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .team = kernel->team};
    return op->ref(&inner);
}

// ---- Shapes -------------------------------------------------------------------------------------

// Their errors name the ops that the program has called, which it knows.
static mu_status pooled_shape(const mu_shape *x, mu_shape *out)
{
    mu_window w;
    MU_TRY(mu__pool_window(&two, x, mu_op_max_pool2d.name, &w));
    *out = MU_SHAPE(w.n, w.y.out, w.x.out, w.channels);
    return MU_OK;
}

static mu_status convolved_shape(const mu_conv_attrs *attrs, const mu_shape *x, const mu_shape *w, mu_shape *out)
{
    mu_window window;
    MU_TRY(mu__conv_window(attrs, x, w, mu_op_conv2d.name, &window));
    *out = MU_SHAPE(window.n, window.y.out, window.x.out, w->dims[3]);
    return MU_OK;
}

mu_status mu__pooled_convolution(const mu_infer *infer, const mu_shape *x, const mu_shape *w, mu_shape *out)
{
    mu_shape convolved;
    MU_TRY(convolved_shape(infer->attrs, x, w, &convolved));
    return pooled_shape(&convolved, out);
}

// Checks that dy and its mask have the shape of the forward op's result.
mu_status mu__need_marked(const mu_infer *infer, int dy, int mark, const mu_shape *wanted)
{
    char dy_text[MU_SHAPE_TEXT], wanted_text[MU_SHAPE_TEXT];
    if (infer->in[mark].dtype == MU_U8 && mu__shape_compatible(&infer->in[dy].shape, wanted) &&
        mu__shape_compatible(&infer->in[mark].shape, wanted))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: dy %s and its uint8 marks must have the shape of the result, %s",
                     infer->op->name, mu__shape_text(&infer->in[dy].shape, dy_text),
                     mu__shape_text(wanted, wanted_text));
}

static mu_status forward_outputs(mu_infer *infer, const mu_shape *shape)
{
    infer->out[0] = (mu_spec){infer->in[0].dtype, *shape};
    infer->out[1] = (mu_spec){MU_U8, *shape};
    return MU_OK;
}

// ---- Shared by the reference kernels ------------------------------------------------------------

// Result and mask of ReLU and max pool of x. x may be before or after ReLU, because ReLU commutes with max.
static mu_status pool_and_mark(const mu_kernel *kernel, const mu_view *x)
{
    const mu_view *y = &kernel->out[0];
    uint8_t *mark = kernel->out[1].data;
    MU_TRY(mu__run_plain(&mu_op_max_pool2d, &two, kernel, 1, x, 2, kernel->out));
    for (int64_t i = 0; i < mu__elements(&y->shape); i++) {
        const double value = mu__read_element(y->dtype, y->data, i);
        if (!(value > 0))
            mark[i] = MU_MARK_DEAD;
        if (value < 0)
            mu__write_element(y->dtype, y->data, i, 0);
    }
    return MU_OK;
}

// Gradient of ReLU and max pool with respect to their input.
mu_status mu__unpool_marked(const mu_kernel *kernel, const mu_view *dy, const mu_view *mark, mu_view *dx)
{
    mu_status status = MU_RESOURCE_EXHAUSTED;
    const mu_view alive = temporary(dy->dtype, &dy->shape), winner = temporary(MU_U8, &mark->shape);
    if (!alive.data || !winner.data)
        goto out;
    for (int64_t i = 0; i < mu__elements(&dy->shape); i++) {
        const uint8_t at = ((const uint8_t *)mark->data)[i];
        const double value = at == MU_MARK_DEAD ? 0 : mu__read_element(dy->dtype, dy->data, i);
        mu__write_element(alive.dtype, alive.data, i, value);
        ((uint8_t *)winner.data)[i] = at == MU_MARK_DEAD ? 0 : at;
    }
    const mu_view in[] = {alive, winner, *dx};
    status = mu__run_plain(&mu_op_max_pool2d_grad, &two, kernel, 3, in, 1, dx);
out:
    mu__free(alive.data);
    mu__free(winner.data);
    return status;
}

// ---- relu_max_pool2d: x -> y, mark --------------------------------------------------------------

static mu_status relu_pool_infer(mu_infer *infer)
{
    mu_shape shape;
    MU_TRY(pooled_shape(&infer->in[0].shape, &shape));
    return forward_outputs(infer, &shape);
}

static mu_status relu_pool_ref(const mu_kernel *kernel) { return pool_and_mark(kernel, &kernel->in[0]); }

static void relu_pool_images(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const int64_t *dims = k->in[0].shape.dims;
    mu__kernels()->relu_pool(k->in[0].data, NULL, k->out[0].data, k->out[1].data, dims[1], dims[2], dims[3], begin,
                             end);
}

static mu_status relu_pool_fast(const mu_kernel *kernel)
{
    mu_kernel copy = *kernel;
    mu__share_range(kernel->team, kernel->in[0].shape.dims[0], 1, mu__elements(&kernel->in[0].shape), relu_pool_images,
                    &copy);
    return MU_OK;
}

// ---- relu_max_pool2d_grad: dy, mark, x (shape alone) -> dx, sums of dx for each channel ---------

static mu_status relu_pool_grad_infer(mu_infer *infer)
{
    mu_shape shape;
    const mu_shape *x = &infer->in[2].shape;
    MU_TRY(pooled_shape(x, &shape));
    infer->out[0] = (mu_spec){infer->in[0].dtype, *x};
    infer->out[1] = (mu_spec){infer->in[0].dtype, MU_SHAPE(x->dims[3])};
    return mu__need_marked(infer, 0, 1, &shape);
}

static mu_status relu_pool_grad_ref(const mu_kernel *kernel)
{
    mu_view dx = kernel->out[0];
    MU_TRY(mu__unpool_marked(kernel, &kernel->in[0], &kernel->in[1], &dx));
    return mu__run_plain(&mu_op_bias_add_grad, NULL, kernel, 1, &dx, 1, &kernel->out[1]);
}

static void relu_pool_grad_part(void *arg, float *part, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const int64_t *dims = k->out[0].shape.dims;
    mu__kernels()->relu_pool_grad(k->in[0].data, k->in[1].data, k->out[0].data, part, dims[1], dims[2], dims[3], begin,
                                  end);
}

static mu_status relu_pool_grad_prepare(mu_prepare *prepare)
{
    prepare->scratch_bytes = mu__parts_bytes(prepare->team, prepare->out[1].shape.dims[0]);
    return mu__prepare_f32(prepare);
}

static mu_status relu_pool_grad_fast(const mu_kernel *kernel)
{
    const mu_shape *dx = &kernel->out[0].shape;
    mu_kernel copy = *kernel;
    mu__sum_parts(kernel->team, mu__elements(dx), dx->dims[0], dx->dims[3], kernel->scratch, relu_pool_grad_part,
                  &copy);
    memcpy(kernel->out[1].data, kernel->scratch, bytes_of(&kernel->out[1]));
    return MU_OK;
}

// ---- conv2d_relu_pool: x, w, b -> y, mark -------------------------------------------------------

static mu_status conv_pool_infer(mu_infer *infer)
{
    mu_shape shape;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(convolved_shape(infer->attrs, &infer->in[0].shape, &infer->in[1].shape, &shape));
    MU_TRY(mu__need_bias(infer, &(mu_spec){infer->in[0].dtype, shape}));
    MU_TRY(pooled_shape(&shape, &shape));
    return forward_outputs(infer, &shape);
}

mu_shape mu__convolution_shape(const mu_kernel *kernel, const mu_shape *x, const mu_shape *w)
{
    mu_shape shape = {0};
    const mu_status status = convolved_shape(kernel->attrs, x, w, &shape);
    assert(status == MU_OK); // the shape rule checked the same window
    (void)status;
    return shape;
}

static mu_status conv_pool_ref(const mu_kernel *kernel)
{
    const mu_shape shape = mu__convolution_shape(kernel, &kernel->in[0].shape, &kernel->in[1].shape);
    const mu_view z = temporary(kernel->in[0].dtype, &shape);
    if (!z.data)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = mu__run_plain(&mu__op_conv2d_bias, kernel->attrs, kernel, 3, kernel->in, 1, &z);
    if (status == MU_OK)
        status = pool_and_mark(kernel, &z);
    mu__free(z.data);
    return status;
}

bool mu__plain_convolution(const mu_conv_attrs *attrs)
{
    return strcmp(attrs->padding, "valid") == 0 && attrs->groups == 1 && attrs->strides.at[0] == 1 &&
           attrs->strides.at[1] == 1 && attrs->dilations.at[0] == 1 && attrs->dilations.at[1] == 1;
}

// The hand-written kernels serve first layers: few channels, small square kernels, stride 1, no padding.
static mu_status conv_pool_prepare(mu_prepare *prepare)
{
    const mu_conv_attrs *attrs = prepare->attrs;
    const mu_shape *w = &prepare->in[prepare->n_in == 4 ? 3 : 1].shape;
    MU_TRY(mu__prepare_f32(prepare));
    if (!mu__plain_convolution(attrs) || w->dims[0] != w->dims[1] || w->dims[0] > 7 || w->dims[2] < 1 || w->dims[2] > 4)
        prepare->declined = true;
    if (prepare->n_in == 4)
        prepare->scratch_bytes = mu__parts_bytes(prepare->team, mu__elements(w) + w->dims[3]);
    return MU_OK;
}

static mu_conv_pool_shape conv_pool_shape(const mu_shape *x, const mu_shape *w)
{
    return (mu_conv_pool_shape){.height = x->dims[1],
                                .width = x->dims[2],
                                .in_channels = x->dims[3],
                                .out_channels = w->dims[3],
                                .kernel = w->dims[0]};
}

static void conv_pool_images(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const mu_conv_pool_shape shape = conv_pool_shape(&k->in[0].shape, &k->in[1].shape);
    mu__kernels()->conv_relu_pool(&shape, k->in[0].data, k->in[1].data, k->in[2].data, k->out[0].data, k->out[1].data,
                                  begin, end);
}

static mu_status conv_pool_fast(const mu_kernel *kernel)
{
    mu_kernel copy = *kernel;
    mu__share_range(kernel->team, kernel->in[0].shape.dims[0], 1, INT64_MAX, conv_pool_images, &copy);
    return MU_OK;
}

// ---- conv2d_relu_pool_grad: x, mark, dy, w (shape alone) -> dw, db ------------------------------

static mu_status conv_pool_grad_infer(mu_infer *infer)
{
    mu_shape shape;
    const mu_shape *w = &infer->in[3].shape;
    MU_TRY(mu__need_same_dtype(infer, 0, 2));
    MU_TRY(mu__pooled_convolution(infer, &infer->in[0].shape, w, &shape));
    infer->out[0] = (mu_spec){infer->in[0].dtype, *w};
    infer->out[1] = (mu_spec){infer->in[0].dtype, MU_SHAPE(w->dims[3])};
    return mu__need_marked(infer, 2, 1, &shape);
}

static mu_status conv_pool_grad_ref(const mu_kernel *kernel)
{
    const mu_shape shape = mu__convolution_shape(kernel, &kernel->in[0].shape, &kernel->in[3].shape);
    mu_view dz = temporary(kernel->in[0].dtype, &shape);
    if (!dz.data)
        return MU_RESOURCE_EXHAUSTED;
    const mu_view in[] = {kernel->in[0], dz, kernel->in[3]};
    mu_status status = MU_OK;
    MU_GO(mu__unpool_marked(kernel, &kernel->in[2], &kernel->in[1], &dz));
    MU_GO(mu__run_plain(&mu_op_conv2d_filter_grad, kernel->attrs, kernel, 3, in, 1, &kernel->out[0]));
    MU_GO(mu__run_plain(&mu_op_bias_add_grad, NULL, kernel, 1, &dz, 1, &kernel->out[1]));
out:
    mu__free(dz.data);
    return status;
}

static void conv_pool_grad_part(void *arg, float *part, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const mu_shape *w = &k->in[3].shape;
    const mu_conv_pool_shape shape = conv_pool_shape(&k->in[0].shape, w);
    mu__kernels()->conv_relu_pool_grad(&shape, k->in[0].data, k->in[2].data, k->in[1].data, part,
                                       part + mu__elements(w), begin, end);
}

static mu_status conv_pool_grad_fast(const mu_kernel *kernel)
{
    const float *sums = kernel->scratch;
    const int64_t weights = mu__elements(&kernel->out[0].shape), filters = kernel->out[1].shape.dims[0];
    mu_kernel copy = *kernel;
    const int64_t work = mu__elements(&kernel->in[0].shape) * weights;
    mu__sum_parts(kernel->team, work, kernel->in[0].shape.dims[0], weights + filters, kernel->scratch,
                  conv_pool_grad_part, &copy);
    memcpy(kernel->out[0].data, sums, bytes_of(&kernel->out[0]));
    memcpy(kernel->out[1].data, sums + weights, bytes_of(&kernel->out[1]));
    return MU_OK;
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_conv_attrs valid = {.strides = {2, {1, 1}}, .dilations = {2, {1, 1}}, .padding = "valid", .groups = 1};

static const mu_sample relu_pool_samples[] = {
    {.n_in = 1, .in = {{4, {2, 6, 4, 3}}}, .no_grad = 1},
    {.n_in = 1, .in = {{4, {1, 7, 5, 17}}}, .no_grad = 1},
    {0},
};

static const mu_sample relu_pool_grad_samples[] = {
    {.n_in = 3,
     .in = {{4, {2, 3, 2, 3}}, {4, {2, 3, 2, 3}}, {4, {2, 6, 4, 3}}},
     .low = {-2, 0},
     .high = {2, 5},
     .dtypes = {0, MU_U8},
     .no_grad = 7},
    {0},
};

static const mu_sample conv_pool_samples[] = {
    {.n_in = 3, .in = {{4, {2, 8, 9, 1}}, {4, {3, 3, 1, 16}}, {1, {16}}}, .attrs = &valid, .no_grad = 7},
    {0},
};

static const mu_sample conv_pool_grad_samples[] = {
    {.n_in = 4,
     .in = {{4, {2, 8, 9, 1}}, {4, {2, 3, 3, 16}}, {4, {2, 3, 3, 16}}, {4, {3, 3, 1, 16}}},
     .low = {-2, 0, -2, -2},
     .high = {2, 5, 2, 2},
     .dtypes = {0, MU_U8},
     .attrs = &valid,
     .no_grad = 15},
    {0},
};

const mu_op mu__op_relu_max_pool2d = {
    .name = "relu_max_pool2d",
    .n_in = 1,
    .n_out = 2,
    .dtypes = MU_FLOATS,
    .infer = relu_pool_infer,
    .ref = relu_pool_ref,
    .cpu = {mu__prepare_f32, relu_pool_fast, NULL},
    .samples = relu_pool_samples,
};

const mu_op mu__op_relu_max_pool2d_grad = {
    .name = "relu_max_pool2d_grad",
    .n_in = 3,
    .n_out = 2,
    .dtypes = MU_FLOATS,
    .shape_only = 1u << 2,
    .infer = relu_pool_grad_infer,
    .ref = relu_pool_grad_ref,
    .cpu = {relu_pool_grad_prepare, relu_pool_grad_fast, NULL},
    .samples = relu_pool_grad_samples,
};

const mu_op mu__op_conv2d_relu_pool = {
    .name = "conv2d_relu_pool",
    .n_in = 3,
    .n_out = 2,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_conv_attrs),
    .attrs = mu__conv_fields,
    .infer = conv_pool_infer,
    .ref = conv_pool_ref,
    .cpu = {conv_pool_prepare, conv_pool_fast, NULL},
    .samples = conv_pool_samples,
};

const mu_op mu__op_conv2d_relu_pool_grad = {
    .name = "conv2d_relu_pool_grad",
    .n_in = 4,
    .n_out = 2,
    .dtypes = MU_FLOATS,
    .shape_only = 1u << 3,
    .attrs_bytes = sizeof(mu_conv_attrs),
    .attrs = mu__conv_fields,
    .infer = conv_pool_grad_infer,
    .ref = conv_pool_grad_ref,
    .cpu = {conv_pool_prepare, conv_pool_grad_fast, NULL},
    .samples = conv_pool_grad_samples,
};

const mu_op *mu__fused_op_at(int i)
{
    static const mu_op *const all[] = {
        &mu__op_matmul_bias,
        &mu__op_conv2d_bias,
        &mu__op_relu_max_pool2d,
        &mu__op_relu_max_pool2d_grad,
        &mu__op_conv2d_relu_pool,
        &mu__op_conv2d_relu_pool_grad,
        &mu__op_conv2d_relu_pool_grads,
    };
    return i >= 0 && i < (int)MU_COUNT(all) ? all[i] : NULL;
}
