// Max and average pooling of images, and their gradients: op definitions and public functions.
//
// max_pool2d has a hidden second output, the position of each maximum within its window. Its gradient and second
// derivative (a gather at these positions) use it. float32 uses hand-written kernels and shares images among the team;
// max pooling supports integers too.
#include "ops/spatial/pool.h"

#include "kernels/kernels.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"

#include <muster/nn.h>

enum { NARROW_WINDOW = 256 }; // larger windows need more than a byte for a position

static const mu_attr_spec pool_fields[] = {
    {"window", MU_ATTR_INTS, offsetof(mu_pool_attrs, window)},
    {"strides", MU_ATTR_INTS, offsetof(mu_pool_attrs, strides)},
    {"pads", MU_ATTR_INTS, offsetof(mu_pool_attrs, pads)},
    {"padding", MU_ATTR_TEXT, offsetof(mu_pool_attrs, padding)},
    {0},
};

// ---- Shapes -------------------------------------------------------------------------------------

static mu_shape result_shape(const mu_window *w) { return MU_SHAPE(w->n, w->y.out, w->x.out, w->channels); }

static mu_dtype position_dtype(const mu_window *w) { return w->y.size * w->x.size > NARROW_WINDOW ? MU_I32 : MU_U8; }

static mu_status pool_infer(mu_infer *infer)
{
    mu_window w;
    MU_TRY(mu__pool_window(infer->attrs, &infer->in[0].shape, infer->op->name, &w));
    infer->out[0] = (mu_spec){infer->in[0].dtype, result_shape(&w)};
    if (infer->n_out == 2)
        infer->out[1] = (mu_spec){position_dtype(&w), result_shape(&w)};
    return MU_OK;
}

static mu_status need_shape(const mu_infer *infer, int i, const mu_shape *wanted)
{
    char own[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    if (mu__shape_compatible(&infer->in[i].shape, wanted))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: input %d has shape %s, the pool's result has %s", infer->op->name, i,
                     mu__shape_text(&infer->in[i].shape, own), mu__shape_text(wanted, other));
}

static mu_status need_positions(const mu_infer *infer, int i, const mu_window *w)
{
    if (infer->in[i].dtype == position_dtype(w))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the positions have type %s for this window, got %s", infer->op->name,
                     mu_dtype_name(position_dtype(w)), mu_dtype_name(infer->in[i].dtype));
}

// Inputs (dy[, positions], x); only the shape of x is used.
static mu_status pool_grad_infer(mu_infer *infer)
{
    mu_window w;
    const mu_spec *x = &infer->in[infer->n_in - 1];
    MU_TRY(mu__pool_window(infer->attrs, &x->shape, infer->op->name, &w));
    const mu_shape result = result_shape(&w);
    for (int i = 0; i < infer->n_in - 1; i++)
        MU_TRY(need_shape(infer, i, &result));
    if (infer->n_in == 3)
        MU_TRY(need_positions(infer, 1, &w));
    infer->out[0] = (mu_spec){infer->in[0].dtype, x->shape};
    return MU_OK;
}

static mu_status pool_pick_infer(mu_infer *infer)
{
    mu_window w;
    MU_TRY(mu__pool_window(infer->attrs, &infer->in[0].shape, infer->op->name, &w));
    const mu_shape result = result_shape(&w);
    MU_TRY(need_shape(infer, 1, &result));
    MU_TRY(need_positions(infer, 1, &w));
    infer->out[0] = (mu_spec){infer->in[0].dtype, result};
    return MU_OK;
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_tensor *max_pool_grad(mu_grad *g, int i)
{
    (void)i;
    return g->dys[0] ? mu__apply3(&mu_op_max_pool2d_grad, g->attrs, g->dys[0], g->y[1], g->x[0]) : NULL;
}

static mu_tensor *max_pool_grad_grad(mu_grad *g, int i)
{
    return i == 0 ? mu__apply2(&mu_op_max_pool2d_pick, g->attrs, g->dy, g->x[1]) : NULL;
}

static mu_tensor *max_pool_pick_grad(mu_grad *g, int i)
{
    return i == 0 ? mu__apply3(&mu_op_max_pool2d_grad, g->attrs, g->dy, g->x[1], g->x[0]) : NULL;
}

static mu_tensor *average_pool_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_avg_pool2d_grad, g->attrs, g->dy, g->x[0]);
}

static mu_tensor *average_pool_grad_grad(mu_grad *g, int i)
{
    return i == 0 ? mu__apply1(&mu_op_avg_pool2d, g->attrs, g->dy) : NULL;
}

// ---- Kernels ------------------------------------------------------------------------------------

static mu_pool_kind kind_of(const mu_op *op)
{
    return op == &mu_op_max_pool2d        ? MU_POOL_MAX
           : op == &mu_op_max_pool2d_grad ? MU_POOL_MAX_GRAD
           : op == &mu_op_max_pool2d_pick ? MU_POOL_MAX_PICK
           : op == &mu_op_avg_pool2d      ? MU_POOL_AVERAGE
                                          : MU_POOL_AVERAGE_GRAD;
}

mu_status mu__pool_call(const mu_kernel *kernel, mu_pool_call *out)
{
    const mu_pool_kind kind = kind_of(kernel->op);
    const bool backward = kind == MU_POOL_MAX_GRAD || kind == MU_POOL_AVERAGE_GRAD;
    const mu_view *image = backward ? &kernel->out[0] : &kernel->in[0];
    const mu_view *result = backward ? &kernel->in[0] : &kernel->out[0];
    const mu_view *positions = kind == MU_POOL_MAX                                    ? &kernel->out[1]
                               : kind == MU_POOL_MAX_GRAD || kind == MU_POOL_MAX_PICK ? &kernel->in[1]
                                                                                      : NULL;
    *out = (mu_pool_call){
        .kind = kind,
        .dtype = image->dtype,
        .image = image->data,
        .result = result->data,
        .positions = positions ? positions->data : NULL,
        .wide_positions = positions && positions->dtype == MU_I32,
    };
    return mu__pool_window(kernel->attrs, &image->shape, kernel->op->name, &out->window);
}

static mu_status pool_prepare(mu_prepare *prepare)
{
    mu_window w;
    const bool backward = kind_of(prepare->op) == MU_POOL_MAX_GRAD || kind_of(prepare->op) == MU_POOL_AVERAGE_GRAD;
    const mu_shape *image = backward ? &prepare->out[0].shape : &prepare->in[0].shape;
    MU_TRY(mu__pool_window(prepare->attrs, image, prepare->op->name, &w));
    if (mu__dtype_is_integer(prepare->in[0].dtype))
        return MU_OK;
    MU_TRY(mu__prepare_f32(prepare));
    if (w.y.size * w.x.size > NARROW_WINDOW)
        prepare->declined = true;
    return MU_OK;
}

static void pool_images(void *arg, int64_t begin, int64_t end)
{
    const mu_pool_call *call = arg;
    const mu_kernels *kernels = mu__kernels();
    const mu_window *w = &call->window;
    const mu_pool_shape shape = {
        .height = w->y.in,
        .width = w->x.in,
        .channels = w->channels,
        .out_height = w->y.out,
        .out_width = w->x.out,
        .window_height = w->y.size,
        .window_width = w->x.size,
        .stride_height = w->y.stride,
        .stride_width = w->x.stride,
        .pad_top = w->y.before,
        .pad_left = w->x.before,
    };
    switch (call->kind) {
    case MU_POOL_MAX: kernels->max_pool(&shape, call->image, call->result, call->positions, begin, end); break;
    case MU_POOL_MAX_GRAD:
        kernels->max_pool_grad(&shape, call->result, call->positions, call->image, begin, end);
        break;
    case MU_POOL_AVERAGE: kernels->average_pool(&shape, call->image, call->result, begin, end); break;
    case MU_POOL_AVERAGE_GRAD: kernels->average_pool_grad(&shape, call->result, call->image, begin, end); break;
    case MU_POOL_MAX_PICK: break; // has no kernel
    }
}

static void pool_whole_images(void *arg, int64_t begin, int64_t end) { mu__max_pool_whole(arg, begin, end); }

static mu_status pool_fast(const mu_kernel *kernel)
{
    mu_pool_call call;
    MU_TRY(mu__pool_call(kernel, &call));
    const mu_window *w = &call.window;
    mu__share_range(kernel->team, w->n, 1, w->n * w->y.in * w->x.in * w->channels,
                    mu__dtype_is_integer(call.dtype) ? pool_whole_images : pool_images, &call);
    return MU_OK;
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_pool_attrs two = {.window = {2, {2, 2}}, .strides = {2, {2, 2}}, .padding = "valid"};
static const mu_pool_attrs apart = {.window = {2, {2, 2}}, .strides = {2, {3, 2}}, .padding = "valid"};
static const mu_pool_attrs overlapping = {.window = {2, {3, 2}}, .strides = {2, {2, 1}}, .padding = "same"};
static const mu_pool_attrs padded = {
    .window = {2, {3, 3}}, .strides = {2, {2, 3}}, .pads = {4, {1, 0, 2, 1}}, .padding = "explicit"};

static const mu_sample pool_samples[] = {
    {.n_in = 1, .in = {{4, {2, 6, 4, 3}}}, .attrs = &two},
    {.n_in = 1, .in = {{4, {1, 7, 5, 17}}}, .attrs = &two},
    {.n_in = 1, .in = {{4, {2, 8, 5, 18}}}, .attrs = &apart},
    {.n_in = 1, .in = {{4, {2, 5, 7, 2}}}, .attrs = &overlapping},
    {.n_in = 1, .in = {{4, {1, 6, 7, 2}}}, .attrs = &padded},
    {.n_in = 1, .in = {{4, {0, 4, 4, 2}}}, .attrs = &two},
    {0},
};

static const mu_sample max_grad_samples[] = {
    {.n_in = 3,
     .in = {{4, {2, 3, 2, 3}}, {4, {2, 3, 2, 3}}, {4, {2, 6, 4, 3}}},
     .low = {-2, 0},
     .high = {2, 4},
     .dtypes = {0, MU_U8},
     .attrs = &two,
     .no_grad = 6},
    {.n_in = 3,
     .in = {{4, {1, 1, 1, 3}}, {4, {1, 1, 1, 3}}, {4, {1, 2, 2, 3}}},
     .low = {-2, 0},
     .high = {2, 4},
     .dtypes = {0, MU_U8},
     .attrs = &two,
     .no_grad = 6},
    {.n_in = 3,
     .in = {{4, {0, 1, 1, 3}}, {4, {0, 1, 1, 3}}, {4, {0, 2, 2, 3}}},
     .dtypes = {0, MU_U8},
     .attrs = &two,
     .no_grad = 6},
    {0},
};

static const mu_sample max_pick_samples[] = {
    {.n_in = 2,
     .in = {{4, {2, 6, 4, 3}}, {4, {2, 3, 2, 3}}},
     .low = {-2, 0},
     .high = {2, 4},
     .dtypes = {0, MU_U8},
     .attrs = &two,
     .no_grad = 2},
    {.n_in = 2,
     .in = {{4, {1, 2, 2, 3}}, {4, {1, 1, 1, 3}}},
     .low = {-2, 0},
     .high = {2, 4},
     .dtypes = {0, MU_U8},
     .attrs = &two,
     .no_grad = 2},
    {.n_in = 2, .in = {{4, {0, 2, 2, 3}}, {4, {0, 1, 1, 3}}}, .dtypes = {0, MU_U8}, .attrs = &two, .no_grad = 2},
    {0},
};

static const mu_sample average_grad_samples[] = {
    {.n_in = 2, .in = {{4, {2, 3, 2, 3}}, {4, {2, 6, 4, 3}}}, .attrs = &two, .no_grad = 2},
    {.n_in = 2, .in = {{4, {2, 3, 7, 2}}, {4, {2, 5, 7, 2}}}, .attrs = &overlapping, .no_grad = 2},
    {0},
};

const mu_op mu_op_max_pool2d = {
    .name = "max_pool2d",
    .n_in = 1,
    .n_out = 2,
    .dtypes = MU_NUMBERS,
    .attrs_bytes = sizeof(mu_pool_attrs),
    .attrs = pool_fields,
    .infer = pool_infer,
    .grad = max_pool_grad,
    .ref = mu__pool_ref,
    .cpu = {pool_prepare, pool_fast, NULL},
    .samples = pool_samples,
    .lower = mu__lower_pool,
};

const mu_op mu_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .n_in = 3,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .shape_only = 1u << 2,
    .attrs_bytes = sizeof(mu_pool_attrs),
    .attrs = pool_fields,
    .infer = pool_grad_infer,
    .grad = max_pool_grad_grad,
    .ref = mu__pool_ref,
    .cpu = {pool_prepare, pool_fast, NULL},
    .samples = max_grad_samples,
    .lower = mu__lower_pool,
};

const mu_op mu_op_max_pool2d_pick = {
    .name = "max_pool2d_pick",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_pool_attrs),
    .attrs = pool_fields,
    .infer = pool_pick_infer,
    .grad = max_pool_pick_grad,
    .ref = mu__pool_ref,
    .samples = max_pick_samples,
    .lower = mu__lower_pool,
};

const mu_op mu_op_avg_pool2d = {
    .name = "avg_pool2d",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_pool_attrs),
    .attrs = pool_fields,
    .infer = pool_infer,
    .grad = average_pool_grad,
    .ref = mu__pool_ref,
    .cpu = {pool_prepare, pool_fast, NULL},
    .samples = pool_samples,
    .lower = mu__lower_pool,
};

const mu_op mu_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .shape_only = 1u << 1,
    .attrs_bytes = sizeof(mu_pool_attrs),
    .attrs = pool_fields,
    .infer = pool_grad_infer,
    .grad = average_pool_grad_grad,
    .ref = mu__pool_ref,
    .cpu = {pool_prepare, pool_fast, NULL},
    .samples = average_grad_samples,
    .lower = mu__lower_pool,
};

// ---- Public functions ---------------------------------------------------------------------------

static mu_tensor *apply_pool(const mu_op *op, const mu_nn_pool2d_args *args, const char *function)
{
    mu_nn_pool2d_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK)
        return NULL;
    mu_pool_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (a.window[0] < 1) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the window is %lld; give its height and width, e.g. {2, 2}", op->name,
                  (long long)a.window[0]);
        return NULL;
    }
    if (mu__window_options(&attrs.window, 2, a.window, "window", op->name) != MU_OK)
        return NULL;
    const bool strided = a.strides[0] != 0;
    if (mu__window_options(&attrs.strides, 2, strided ? a.strides : attrs.window.at, "strides", op->name) != MU_OK ||
        mu__padding_options(attrs.padding, &attrs.pads, a.padding, 2, a.pads, op->name) != MU_OK)
        return NULL;
    mu_tensor *out[2] = {NULL, NULL};
    return mu__apply(op, &attrs, 1, &a.x, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

mu_tensor *mu_nn_max_pool2d_with(const mu_nn_pool2d_args *args)
{
    return apply_pool(&mu_op_max_pool2d, args, "mu_nn_max_pool2d");
}

mu_tensor *mu_nn_avg_pool2d_with(const mu_nn_pool2d_args *args)
{
    return apply_pool(&mu_op_avg_pool2d, args, "mu_nn_avg_pool2d");
}
