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

enum { MOST = 512 };  // elements per block

// ---- Loops --------------------------------------------------------------------------------------

// a: the softplus of x, or dy and the sigmoid of x; z: the labels.
#define LOOPS(prefix, type, math)                                                                                     \
    MU_CLONES static void prefix##_loss_of(const type *above, const type *x, const type *z, type *out, int64_t n)     \
    {                                                                                                                 \
        MU_INDEPENDENT                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                               \
            out[i] = above[i] - x[i] * z[i];                                                                          \
    }                                                                                                                 \
    MU_CLONES static void prefix##_derivative_of(const type *dy, const type *s, const type *z, type *out, int64_t n)  \
    {                                                                                                                 \
        MU_INDEPENDENT                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                               \
            out[i] = dy[i] * (s[i] - z[i]);                                                                           \
    }                                                                                                                 \
    /* dy: NULL for the loss itself. */                                                                               \
    static void prefix##_piece(const type *dy, const type *x, const type *z, type *out, int64_t n)                    \
    {                                                                                                                 \
        type curve[MOST];                                                                                             \
        mu__kernels()->math(dy ? MU_MATH_SIGMOID : MU_MATH_SOFTPLUS, 0, x, curve, n);                                 \
        if (dy)                                                                                                       \
            prefix##_derivative_of(dy, curve, z, out, n);                                                             \
        else                                                                                                          \
            prefix##_loss_of(curve, x, z, out, n);                                                                    \
    }
LOOPS(f32, float, math_f32)
LOOPS(f64, double, math_f64)

// dy is NULL for the loss.
typedef struct loss_job {
    const mu_kernel *kernel;
    mu_dtype dtype;
    const char *dy, *x, *z;
    int64_t from;  // the first element
} loss_job;

static loss_job job_of(const mu_kernel *kernel)
{
    const bool derivative = kernel->n_in == 3;
    return (loss_job){.kernel = kernel, .dtype = kernel->out[0].dtype, .dy = derivative ? kernel->in[0].data : NULL,
                      .x = kernel->in[derivative].data, .z = kernel->in[derivative + 1].data};
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

static void make_float16(const loss_job *j, size_t at, int64_t n, void *to)
{
    float dy[MOST], x[MOST], z[MOST], out[MOST];
    if (j->dy)
        mu__convert(MU_F32, dy, j->dtype, j->dy + at, n);
    mu__convert(MU_F32, x, j->dtype, j->x + at, n);
    mu__convert(MU_F32, z, j->dtype, j->z + at, n);
    f32_piece(j->dy ? dy : NULL, x, z, out, n);
    mu__convert(j->dtype, to, MU_F32, out, n);
}

static void make_piece(void *arg, int64_t from, int64_t n, void *to)
{
    const loss_job *j = arg;
    const size_t at = (size_t)(j->from + from) * mu_dtype_bytes(j->dtype);
    const void *dy = j->dy ? j->dy + at : NULL, *x = j->x + at, *z = j->z + at;
    if (j->dtype == MU_F64)
        f64_piece(dy, x, z, to, n);
    else if (j->dtype == MU_F32)
        f32_piece(dy, x, z, to, n);
    else
        make_float16(j, at, n, to);
}

static void loss_range(void *arg, int64_t begin, int64_t end)
{
    loss_job job = *(const loss_job *)arg;
    const size_t bytes = mu_dtype_bytes(job.dtype), at = (size_t)begin * bytes;
    job.from = begin;
    const mu_tiles pieces = {
        .make = make_piece, .arg = &job, .out = (char *)job.kernel->out[0].data + at, .out_bytes = bytes,
        .n_in = job.dy ? 3 : 2, .in = {job.x + at, job.z + at, job.dy ? job.dy + at : NULL},
        .in_bytes = {bytes, bytes, bytes}, .most = MOST,
    };
    mu__run_tiles(&pieces, mu__streams((end - begin) * (int64_t)bytes), end - begin);
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
    .name = "sigmoid_cross_entropy", .n_in = 2, .n_out = 1, .dtypes = MU_FLOATS, .in_place = 3,
    .flags = MU_OP_ELEMENTWISE, .infer = loss_infer, .grad = loss_grad, .ref = loss_ref,
    .cpu = {.run = loss_run}, .samples = loss_samples, .lower = mu__lower_sigmoid_loss,
};

const mu_op mu_op_sigmoid_cross_entropy_grad = {
    .name = "sigmoid_cross_entropy_grad", .n_in = 3, .n_out = 1, .dtypes = MU_FLOATS, .in_place = 7,
    .flags = MU_OP_ELEMENTWISE, .infer = loss_infer, .grad = derivative_grad, .ref = loss_ref,
    .cpu = {.run = loss_run}, .samples = derivative_samples, .lower = mu__lower_sigmoid_loss,
};

mu_tensor *mu_nn_sigmoid_cross_entropy(mu_tensor *labels, mu_tensor *logits)
{
    return mu__apply2(&mu_op_sigmoid_cross_entropy, NULL, logits, labels);
}
