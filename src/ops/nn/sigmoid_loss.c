// Element-wise cross-entropy of logits and labels in [0, 1], and its derivative as an op: one pass each.
//
// loss = softplus(x) - x z, dx = dy (sigmoid(x) - z). A block stays in the first-level cache while vectorised
// elementary functions and then one arithmetic loop process it. Second derivatives are composed of ops.
#include "kernels/kernels.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

enum { MOST = 512 }; // elements per block

// ---- Loops --------------------------------------------------------------------------------------

// a: the softplus of x, or dy and the sigmoid of x; z: the labels.
#define LOOPS(prefix, type, math)                                                                            \
    MU_PER_ISA(prefix##_loss_of, (const type *above, const type *x, const type *z, type *out, int64_t n),    \
               (above, x, z, out, n))                                                                        \
    {                                                                                                        \
        MU_INDEPENDENT                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                                      \
            out[i] = above[i] - x[i] * z[i];                                                                 \
    }                                                                                                        \
    MU_PER_ISA(prefix##_derivative_of, (const type *dy, const type *s, const type *z, type *out, int64_t n), \
               (dy, s, z, out, n))                                                                           \
    {                                                                                                        \
        MU_INDEPENDENT                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                                      \
            out[i] = dy[i] * (s[i] - z[i]);                                                                  \
    }                                                                                                        \
    /* dy: NULL for the loss itself. */                                                                      \
    static void prefix##_range(const type *dy, const type *x, const type *z, type *out, int64_t n)           \
    {                                                                                                        \
        type curve[MOST];                                                                                    \
        for (int64_t i = 0; i < n; i += MOST) {                                                              \
            const int64_t count = MU_MIN((int64_t)MOST, n - i);                                              \
            mu__kernels()->math(dy ? MU_MATH_SIGMOID : MU_MATH_SOFTPLUS, 0, x + i, curve, count);            \
            if (dy)                                                                                          \
                prefix##_derivative_of(dy + i, curve, z + i, out + i, count);                                \
            else                                                                                             \
                prefix##_loss_of(curve, x + i, z + i, out + i, count);                                       \
        }                                                                                                    \
    }
LOOPS(f32, float, math_f32)
LOOPS(f64, double, math_f64)

// dy is NULL for the loss.
typedef struct loss_job {
    const mu_kernel *kernel;
    mu_dtype dtype;
    const char *dy, *x, *z;
} loss_job;

static loss_job job_of(const mu_kernel *kernel)
{
    const bool derivative = kernel->n_in == 3;
    return (loss_job){.kernel = kernel,
                      .dtype = kernel->out[0].dtype,
                      .dy = derivative ? kernel->in[0].data : NULL,
                      .x = kernel->in[derivative].data,
                      .z = kernel->in[derivative + 1].data};
}

static double value_at(const loss_job *j, int64_t i)
{
    const double x = mu__read_element(j->dtype, j->x, i), z = mu__read_element(j->dtype, j->z, i);
    const double power = exp(-fabs(x));
    if (j->dy)
        return mu__read_element(j->dtype, j->dy, i) * ((x < 0 ? power : 1) / (1 + power) - z);
    return (x > 0 ? x : x < 0 ? 0 : x) + log1p(power) - x * z;
}

static mu_status loss_ref(const mu_kernel *kernel)
{
    const loss_job job = job_of(kernel);
    const int64_t n = mu__elements(&kernel->out[0].shape);
    if (job.dtype != MU_F32 && job.dtype != MU_F64)
        return mu__run_as_f32(kernel, loss_ref);
    for (int64_t i = 0; i < n; i++)
        if (job.dtype == MU_F64)
            ((double *)kernel->out[0].data)[i] = value_at(&job, i);
        else
            ((float *)kernel->out[0].data)[i] = (float)value_at(&job, i);
    return MU_OK;
}

static void loss_in_f32(void *arg, const mu_f32_run *run)
{
    const loss_job *j = arg;
    f32_range(j->dy ? run->in[2] : NULL, run->in[0], run->in[1], run->out, run->n);
}

static void loss_range(void *arg, int64_t begin, int64_t end)
{
    const loss_job *j = arg;
    const size_t at = (size_t)begin * mu_dtype_bytes(j->dtype);
    const void *dy = j->dy ? j->dy + at : NULL, *x = j->x + at, *z = j->z + at;
    void *to = (char *)j->kernel->out[0].data + at;
    const mu_float16_run run = {.in_dtype = j->dtype,
                                .out_dtype = j->dtype,
                                .n_in = dy ? 3 : 2,
                                .in = {x, z, dy},
                                .step = {1, 1, 1},
                                .out = to,
                                .n = end - begin};
    if (j->dtype == MU_F64)
        f64_range(dy, x, z, to, end - begin);
    else if (j->dtype == MU_F32)
        f32_range(dy, x, z, to, end - begin);
    else
        mu__in_f32(&run, loss_in_f32, arg);
}

static mu_status loss_run(const mu_kernel *kernel)
{
    loss_job job = job_of(kernel);
    const int64_t n = mu__elements(&kernel->out[0].shape);
    mu__share_range(kernel->team, n, 1024, n, loss_range, &job);
    return MU_OK;
}

// ---- Rules --------------------------------------------------------------------------------------

static mu_status loss_infer(mu_infer *infer)
{
    char logits[MU_SHAPE_TEXT], labels[MU_SHAPE_TEXT];
    const int x = infer->n_in - 2;
    for (int i = 0; i < infer->n_in; i++) {
        MU_TRY(mu__need_same_dtype(infer, 0, i));
        if (!mu__shape_compatible(&infer->in[i].shape, &infer->in[x].shape))
            return mu__error(MU_INVALID_ARGUMENT, "%s: %s %s and logits %s must have the same shape", infer->op->name,
                             i < x ? "dy" : "labels", mu__shape_text(&infer->in[i].shape, labels),
                             mu__shape_text(&infer->in[x].shape, logits));
    }
    return mu__infer_same(infer);
}

static mu_tensor *derivative_by(mu_tensor *dy, mu_tensor *logits, mu_tensor *labels)
{
    return mu__apply3(&mu_op_sigmoid_cross_entropy_grad, NULL, dy, logits, labels);
}

static mu_tensor *loss_grad(mu_grad *g, int i)
{
    return i == 0 ? derivative_by(g->dy, g->x[0], g->x[1]) : mu_neg(mu_multiply(g->dy, g->x[0]));
}

static mu_tensor *derivative_grad(mu_grad *g, int i)
{
    if (i == 0)
        return derivative_by(g->dy, g->x[1], g->x[2]);
    mu_tensor *both = mu_multiply(g->dy, g->x[0]);
    return i == 1 ? mu__apply2(&mu_op_sigmoid_grad, NULL, both, mu_sigmoid(g->x[1])) : mu_neg(both);
}

static const mu_sample loss_samples[] = {
    {.n_in = 2, .in = {MU_DIMS(5, 7), MU_DIMS(5, 7)}, .low = {-2, 0}, .high = {2, 1}},
    {.n_in = 2, .in = {MU_DIMS(1067), MU_DIMS(1067)}, .low = {-30, 0}, .high = {30, 1}},
    {.n_in = 2, .in = {MU_NO_DIMS, MU_NO_DIMS}},
    {.n_in = 2, .in = {MU_DIMS(2, 0, 3), MU_DIMS(2, 0, 3)}},
    {0},
};

static const mu_sample derivative_samples[] = {
    {.n_in = 3, .in = {MU_DIMS(5, 7), MU_DIMS(5, 7), MU_DIMS(5, 7)}, .low = {-2, -2, 0}, .high = {2, 2, 1}},
    {.n_in = 3, .in = {MU_DIMS(1067), MU_DIMS(1067), MU_DIMS(1067)}, .low = {-2, -9, 0}, .high = {2, 9, 1}},
    {.n_in = 3, .in = {MU_NO_DIMS, MU_NO_DIMS, MU_NO_DIMS}},
    {.n_in = 3, .in = {MU_DIMS(2, 0, 3), MU_DIMS(2, 0, 3), MU_DIMS(2, 0, 3)}},
    {0},
};

const mu_op mu_op_sigmoid_cross_entropy = {
    .name = "sigmoid_cross_entropy",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .in_place = 3,
    .flags = MU_OP_ELEMENTWISE,
    .infer = loss_infer,
    .grad = loss_grad,
    .ref = loss_ref,
    .cpu = {.run = loss_run},
    .samples = loss_samples,
    .lower = mu__lower_sigmoid_loss,
};

const mu_op mu_op_sigmoid_cross_entropy_grad = {
    .name = "sigmoid_cross_entropy_grad",
    .n_in = 3,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .in_place = 7,
    .flags = MU_OP_ELEMENTWISE,
    .infer = loss_infer,
    .grad = derivative_grad,
    .ref = loss_ref,
    .cpu = {.run = loss_run},
    .samples = derivative_samples,
    .lower = mu__lower_sigmoid_loss,
};

mu_tensor *mu_nn_sigmoid_cross_entropy(mu_tensor *labels, mu_tensor *logits)
{
    return mu__apply2(&mu_op_sigmoid_cross_entropy, NULL, logits, labels);
}
