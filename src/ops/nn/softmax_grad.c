// Gradients of softmax and log_softmax as ops: from dy and the forward result, row by row, in one pass over memory.
//
// Along the last axis, a row is summed and used while it is in the cache. Along another axis, as many columns are
// processed together as their sums fit a small part of the cache. Second derivatives are composed of ops.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/ops.h>

enum { COLUMNS = 128, LANES = 32 };

#define T            float
#define FN(name)     f32_##name
#define EXP(x, y, n) mu__kernels()->math_f32(MU_MATH_EXP, 0, x, y, n)
#include "ops/nn/softmax_grad_loops.inc.c"

#define T            double
#define FN(name)     f64_##name
#define EXP(x, y, n) mu__kernels()->math_f64(MU_MATH_EXP, 0, x, y, n)
#include "ops/nn/softmax_grad_loops.inc.c"

static const mu_attr_spec axis_fields[] = {{"axis", MU_ATTR_INT, offsetof(mu_axis_attrs, axis)}, {0}};

// ---- Loops --------------------------------------------------------------------------------------

// The axis is in the middle: outer blocks of n rows of inner columns.
typedef struct grad_job {
    const mu_kernel *kernel;
    int64_t outer, n, inner;
    bool logarithm;
} grad_job;

static grad_job job_of(const mu_kernel *kernel)
{
    const mu_shape *shape = &kernel->in[0].shape;
    const int axis = mu__axis((int)((const mu_axis_attrs *)kernel->attrs)->axis, shape->rank, kernel->op->name);
    grad_job job = {kernel, 1, shape->dims[axis], 1, kernel->op == &mu_op_log_softmax_grad};
    for (int i = 0; i < shape->rank; i++)
        *(i < axis ? &job.outer : &job.inner) *= i == axis ? 1 : shape->dims[i];
    return job;
}

static mu_status grad_ref(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->out[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, grad_ref);
    const grad_job job = job_of(kernel);
    const void *dy = kernel->in[0].data, *y = kernel->in[1].data;
    for (int64_t column = 0; column < job.outer * job.inner && job.n > 0; column++) {
        const int64_t at = column / job.inner * job.n * job.inner + column % job.inner;
        double sum = 0;
        for (int64_t i = at; i < at + job.n * job.inner; i += job.inner)
            sum += mu__read_element(dtype, dy, i) * (job.logarithm ? 1 : mu__read_element(dtype, y, i));
        for (int64_t i = at; i < at + job.n * job.inner; i += job.inner) {
            const double d = mu__read_element(dtype, dy, i), v = mu__read_element(dtype, y, i);
            const double dx = job.logarithm ? d - exp(v) * sum : v * (d - sum);
            if (dtype == MU_F64)
                ((double *)kernel->out[0].data)[i] = dx;
            else
                ((float *)kernel->out[0].data)[i] = (float)dx;
        }
    }
    return MU_OK;
}

static void grad_blocks(void *arg, int64_t begin, int64_t end)
{
    const grad_job *job = arg;
    const mu_kernel *k = job->kernel;
    (k->out[0].dtype == MU_F64 ? f64_blocks : f32_blocks)(k->in[0].data, k->in[1].data, k->out[0].data, job->n,
                                                          job->inner, job->logarithm, begin, end);
}

static mu_status grad_run(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->out[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, grad_run);
    grad_job job = job_of(kernel);
    mu__share_range(kernel->team, job.outer, 1, job.outer * job.n * job.inner, grad_blocks, &job);
    return MU_OK;
}

// ---- Rules --------------------------------------------------------------------------------------

static mu_status grad_infer(mu_infer *infer)
{
    char dy[MU_SHAPE_TEXT], y[MU_SHAPE_TEXT];
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    if (!mu__shape_compatible(&infer->in[0].shape, &infer->in[1].shape))
        return mu__error(MU_INVALID_ARGUMENT, "%s: dy %s and y %s must have the same shape", infer->op->name,
                         mu__shape_text(&infer->in[0].shape, dy), mu__shape_text(&infer->in[1].shape, y));
    if (mu__axis((int)((const mu_axis_attrs *)infer->attrs)->axis, infer->in[0].shape.rank, infer->op->name) < 0)
        return MU_INVALID_ARGUMENT;
    return mu__infer_same(infer);
}

static mu_tensor *sum_keeping(const mu_grad *g, mu_tensor *x)
{
    const int axis = (int)((const mu_axis_attrs *)g->attrs)->axis;
    return mu_reduce_sum(x, axis, .keep_dims = true);
}

// dx = y (dy - sum(y dy)), so with g the gradient of dx, y's gradient is g (dy - sum(y dy)) - dy sum(y g).
static mu_tensor *softmax_grad_grad(mu_grad *g, int i)
{
    mu_tensor *dy = g->x[0], *y = g->x[1];
    if (i == 0)
        return mu__apply2(&mu_op_softmax_grad, g->attrs, g->dy, y);
    mu_tensor *straight = mu_multiply(g->dy, mu_subtract(dy, sum_keeping(g, mu_multiply(y, dy))));
    return mu_subtract(straight, mu_multiply(dy, sum_keeping(g, mu_multiply(y, g->dy))));
}

// dx = dy - exp(y) sum(dy).
static mu_tensor *log_softmax_grad_grad(mu_grad *g, int i)
{
    mu_tensor *part = mu_multiply(g->dy, mu_exp(g->x[1]));
    return i == 0 ? mu_subtract(g->dy, sum_keeping(g, part)) : mu_neg(mu_multiply(part, sum_keeping(g, g->x[0])));
}

static const mu_axis_attrs last = {-1}, first = {0}, middle = {1};
static const mu_sample samples[] = {
    {.n_in = 2, .in = {MU_DIMS(5, 67), MU_DIMS(5, 67)}, .attrs = &last},
    {.n_in = 2, .in = {MU_DIMS(7, 5), MU_DIMS(7, 5)}, .attrs = &first},
    {.n_in = 2, .in = {MU_DIMS(2, 9, 3), MU_DIMS(2, 9, 3)}, .attrs = &middle},
    {.n_in = 2, .in = {MU_DIMS(3, 1), MU_DIMS(3, 1)}, .attrs = &last},
    {.n_in = 2, .in = {MU_DIMS(0, 3), MU_DIMS(0, 3)}, .attrs = &last},
    {0},
};

#define GRADIENT(text, rule)                                                                                           \
    {                                                                                                                  \
        .name = text, .n_in = 2, .n_out = 1, .dtypes = MU_FLOATS, .in_place = 3, .attrs_bytes = sizeof(mu_axis_attrs), \
        .attrs = axis_fields, .infer = grad_infer, .grad = rule, .ref = grad_ref, .cpu = {.run = grad_run},            \
        .samples = samples, .lower = mu__lower_softmax_grad,                                                           \
    }
const mu_op mu_op_softmax_grad = GRADIENT("softmax_grad", softmax_grad_grad);
const mu_op mu_op_log_softmax_grad = GRADIENT("log_softmax_grad", log_softmax_grad_grad);
