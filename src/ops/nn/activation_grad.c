// Gradients of activations whose derivative takes more than one op: dx = dy f'(…) in one pass. Those of tanh and
// sigmoid read the activation's result, the others its input.
//
// Each block stays in the first-level cache while vectorised elementary functions and then one arithmetic loop process
// it. Second derivatives are composed of ops.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

enum { TANH, SIGMOID, SOFTPLUS, SILU, GELU, GELU_TANH };
enum { PIECE = 1024 };
#define ROOT_HALF    0.70710678118654752440 // sqrt(1 / 2)
#define DENSITY_AT_0 0.39894228040143267794 // 1 / sqrt(2 pi)
#define ROOT         0.79788456080286535588 // sqrt(2 / pi), of gelu by tanh
#define CUBIC        0.044715

// ---- Loops --------------------------------------------------------------------------------------

#define T                       float
#define FN(name)                f32_##name
#define MATH(function, x, y, n) mu__kernels()->math_f32(MU_MATH_##function, 0, x, y, n)
#include "ops/nn/activation_grad_loops.inc.c"

#define T                       double
#define FN(name)                f64_##name
#define MATH(function, x, y, n) mu__kernels()->math_f64(MU_MATH_##function, 0, x, y, n)
#include "ops/nn/activation_grad_loops.inc.c"

static double derivative_at(int variant, double x)
{
    const double s = 1 / (1 + exp(-x)), t = tanh(ROOT * (x + CUBIC * x * x * x));
    switch (variant) {
    case TANH: return 1 - x * x;
    case SIGMOID: return x * (1 - x);
    case SOFTPLUS: return s;
    case SILU: return s * (1 + x * (1 - s));
    case GELU: return 0.5 * erfc(-x * ROOT_HALF) + x * exp(-0.5 * x * x) * DENSITY_AT_0;
    default: return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * CUBIC * x * x);
    }
}

static mu_status derivative_ref(const mu_kernel *kernel)
{
    const mu_view *dy = &kernel->in[0], *x = &kernel->in[1], *dx = &kernel->out[0];
    const int64_t n = mu__elements(&dx->shape);
    if (dx->dtype != MU_F32 && dx->dtype != MU_F64)
        return mu__run_as_f32(kernel, derivative_ref);
    for (int64_t i = 0; i < n; i++) {
        if (dx->dtype == MU_F64)
            ((double *)dx->data)[i] =
                ((double *)dy->data)[i] * derivative_at(kernel->op->variant, ((double *)x->data)[i]);
        else
            ((float *)dx->data)[i] =
                (float)(((float *)dy->data)[i] * derivative_at(kernel->op->variant, ((float *)x->data)[i]));
    }
    return MU_OK;
}

static void derivative_in_f32(void *arg, const mu_f32_run *run)
{
    const mu_kernel *k = arg;
    f32_derivative(k->op->variant, run->in[0], run->in[1], run->out, run->n);
}

// Elements [begin, end), block by block.
static void derivative_range(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const mu_dtype dtype = k->out[0].dtype;
    const size_t bytes = mu_dtype_bytes(dtype);
    for (int64_t i = begin; i < end; i += PIECE) {
        const int64_t n = MU_MIN(end - i, (int64_t)PIECE);
        const char *dy = (const char *)k->in[0].data + (size_t)i * bytes,
                   *x = (const char *)k->in[1].data + (size_t)i * bytes;
        void *to = (char *)k->out[0].data + (size_t)i * bytes;
        const mu_float16_run run = {
            .in_dtype = dtype, .out_dtype = dtype, .n_in = 2, .in = {dy, x}, .step = {1, 1}, .out = to, .n = n};
        if (dtype == MU_F64)
            f64_derivative(k->op->variant, (const void *)dy, (const void *)x, to, n);
        else if (dtype == MU_F32)
            f32_derivative(k->op->variant, (const void *)dy, (const void *)x, to, n);
        else
            mu__in_f32(&run, derivative_in_f32, arg);
    }
}

static mu_status derivative_run(const mu_kernel *kernel)
{
    const int64_t n = mu__elements(&kernel->out[0].shape);
    mu__share_range(kernel->team, n, 1024, n, derivative_range, (void *)(uintptr_t)kernel);
    return MU_OK;
}

// ---- Rules --------------------------------------------------------------------------------------

static mu_status derivative_infer(mu_infer *infer)
{
    char dy[MU_SHAPE_TEXT], x[MU_SHAPE_TEXT];
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    if (!mu__shape_compatible(&infer->in[0].shape, &infer->in[1].shape))
        return mu__error(MU_INVALID_ARGUMENT, "%s: dy %s and the activation's %s must have the same shape",
                         infer->op->name, mu__shape_text(&infer->in[0].shape, dy),
                         mu__shape_text(&infer->in[1].shape, x));
    return mu__infer_same(infer);
}

static mu_tensor *plus(mu_tensor *x, double value) { return mu_add(x, mu__scalar_like(x, value)); }

// 1 - x.
static mu_tensor *rest(mu_tensor *x) { return plus(mu_neg(x), 1); }

// (1 - t^2) (u' + x (u'' / 2 - t u'^2)) with t = tanh u.
static mu_tensor *gelu_tanh_bend(mu_tensor *x)
{
    mu_tensor *squared = mu_square(x);
    mu_tensor *t = mu_tanh(mu_multiply(mu__scale(x, ROOT), plus(mu__scale(squared, CUBIC), 1)));
    mu_tensor *first = mu__scale(plus(mu__scale(squared, 3 * CUBIC), 1), ROOT);
    mu_tensor *inner = mu_subtract(mu__scale(x, 3 * ROOT * CUBIC), mu_multiply(t, mu_square(first)));
    return mu_multiply(rest(mu_square(t)), mu_add(first, mu_multiply(x, inner)));
}

// The second derivative of the activation.
static mu_tensor *bend(int variant, mu_tensor *x)
{
    mu_tensor *s;
    switch (variant) {
    case TANH: return mu__scale(x, -2);
    case SIGMOID: return plus(mu__scale(x, -2), 1);
    case SOFTPLUS: s = mu_sigmoid(x); return mu_multiply(s, rest(s));
    case SILU:
        s = mu_sigmoid(x);
        return mu_multiply(mu_multiply(s, rest(s)), plus(mu_multiply(x, plus(mu__scale(s, -2), 1)), 2));
    case GELU:
        s = mu__scale(mu_exp(mu__scale(mu_square(x), -0.5)), DENSITY_AT_0);
        return mu_multiply(s, plus(mu_neg(mu_square(x)), 2));
    default: return gelu_tanh_bend(x);
    }
}

static mu_tensor *derivative_grad(mu_grad *g, int i)
{
    return i == 0 ? mu__apply2(g->op, NULL, g->dy, g->x[1])
                  : mu_multiply(mu_multiply(g->dy, g->x[0]), bend(g->op->variant, g->x[1]));
}

static const mu_sample samples[] = {
    {.n_in = 2, .in = {MU_DIMS(5, 7), MU_DIMS(5, 7)}, .low = {-2, -0.9}, .high = {2, 0.9}},
    {.n_in = 2, .in = {MU_DIMS(67), MU_DIMS(67)}, .low = {-2, -4}, .high = {2, 4}},
    {.n_in = 2, .in = {MU_NO_DIMS, MU_NO_DIMS}},
    {.n_in = 2, .in = {MU_DIMS(2, 0, 3), MU_DIMS(2, 0, 3)}},
    {0},
};

#define DERIVATIVE(text, which)                                                                                \
    {                                                                                                          \
        .name = text, .variant = which, .n_in = 2, .n_out = 1, .dtypes = MU_FLOATS, .in_place = 3,             \
        .flags = MU_OP_ELEMENTWISE, .infer = derivative_infer, .grad = derivative_grad, .ref = derivative_ref, \
        .cpu = {.run = derivative_run}, .samples = samples, .lower = mu__lower_derivative,                     \
    }
const mu_op mu_op_tanh_grad = DERIVATIVE("tanh_grad", TANH);
const mu_op mu_op_sigmoid_grad = DERIVATIVE("sigmoid_grad", SIGMOID);
const mu_op mu_op_softplus_grad = DERIVATIVE("softplus_grad", SOFTPLUS);
const mu_op mu_op_silu_grad = DERIVATIVE("silu_grad", SILU);
const mu_op mu_op_gelu_grad = DERIVATIVE("gelu_grad", GELU);
const mu_op mu_op_gelu_tanh_grad = DERIVATIVE("gelu_tanh_grad", GELU_TANH);
