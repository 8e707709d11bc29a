// Batch normalisation in training: batch_norm_training and its gradient as ops.
//
// Normalises each channel (the last axis) by mean and biased variance over the batch. Both are outputs, because the
// moving averages and the gradient need them. The gradient op has a gradient too, composed of ops. float32 has kernels
// (batch_norm_fast.c), other types and empty batches loops that the compiler vectorises.
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

enum { BLOCK = 32 };

typedef struct norm_job {
    int64_t rows, channels;
    double epsilon;
    const void *x, *dy, *gamma, *beta;
    void *y, *mean, *variance, *dgamma, *dbeta;
} norm_job;

#define T        float
#define FN(name) f32_##name
#include "ops/nn/batch_norm_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#include "ops/nn/batch_norm_loops.inc.c"

static const mu_attr_spec epsilon_fields[] = {{"epsilon", MU_ATTR_REAL, offsetof(mu_epsilon_attrs, epsilon)}, {0}};

// ---- Shapes -------------------------------------------------------------------------------------

// Checks that the inputs from `first` on are vectors with one element per channel of input 0.
static mu_status need_channels(const mu_infer *infer, int first, int end)
{
    char x_text[MU_SHAPE_TEXT], own_text[MU_SHAPE_TEXT];
    const mu_shape *x = &infer->in[0].shape;
    const mu_shape wanted = MU_SHAPE(x->rank > 0 ? x->dims[x->rank - 1] : 0);
    for (int i = first; i < end; i++) {
        MU_TRY(mu__need_same_dtype(infer, 0, i));
        if (x->rank < 2 || !mu__shape_compatible(&infer->in[i].shape, &wanted))
            return mu__error(
                MU_INVALID_ARGUMENT, "%s: input %d must have one number for each channel (last axis) of %s, got %s",
                infer->op->name, i, mu__shape_text(x, x_text), mu__shape_text(&infer->in[i].shape, own_text));
    }
    return MU_OK;
}

static mu_status training_infer(mu_infer *infer)
{
    MU_TRY(need_channels(infer, 1, 3));
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->out[2] = infer->in[1];
    return MU_OK;
}

// Inputs (x, gamma, mean, variance, dy).
static mu_status grad_infer(mu_infer *infer)
{
    MU_TRY(need_channels(infer, 1, 4));
    MU_TRY(mu__need_same_dtype(infer, 0, 4));
    if (!mu__shape_compatible(&infer->in[0].shape, &infer->in[4].shape))
        return mu__error(MU_INVALID_ARGUMENT, "%s: dy must have the shape of x", infer->op->name);
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->out[2] = infer->in[1];
    return MU_OK;
}

// ---- Kernels ------------------------------------------------------------------------------------

static norm_job job_of(const mu_kernel *kernel)
{
    const mu_epsilon_attrs *attrs = kernel->attrs;
    const mu_shape *x = &kernel->in[0].shape;
    const int64_t channels = x->dims[x->rank - 1];
    return (norm_job){.channels = channels,
                      .rows = channels ? mu__elements(x) / channels : 0,
                      .epsilon = attrs->epsilon,
                      .x = kernel->in[0].data,
                      .gamma = kernel->in[1].data,
                      .y = kernel->out[0].data};
}

// Mean and variance of a channel, whose elements are `channels` apart.
static void moments_of(const mu_view *x, int64_t rows, int64_t channels, int64_t channel, double *mean,
                       double *variance)
{
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < rows; r++)
        sum += mu__read_real(x, r * channels + channel);
    *mean = sum / (double)rows;
    for (int64_t r = 0; r < rows; r++)
        squares += pow(mu__read_real(x, r * channels + channel) - *mean, 2);
    *variance = squares / (double)rows;
}

static mu_status training_ref(const mu_kernel *kernel)
{
    const mu_view *x = &kernel->in[0], *out = kernel->out;
    const norm_job job = job_of(kernel);
    for (int64_t c = 0; c < job.channels; c++) {
        const double gamma = mu__read_real(&kernel->in[1], c), beta = mu__read_real(&kernel->in[2], c);
        double mean, variance;
        moments_of(x, job.rows, job.channels, c, &mean, &variance);
        mu__write_real(&out[1], c, mean);
        mu__write_real(&out[2], c, variance);
        for (int64_t i = c; i < job.rows * job.channels; i += job.channels)
            mu__write_real(&out[0], i, (mu__read_real(x, i) - mean) / sqrt(variance + job.epsilon) * gamma + beta);
    }
    return MU_OK;
}

// With n = (x - mean) / deviation: dx = gamma / deviation (dy - the mean of dy - n times the mean of dy n).
static mu_status grad_ref(const mu_kernel *kernel)
{
    const mu_view *x = &kernel->in[0], *dy = &kernel->in[4], *out = kernel->out;
    const norm_job job = job_of(kernel);
    const int64_t n = job.rows * job.channels;
    for (int64_t c = 0; c < job.channels; c++) {
        const double gamma = mu__read_real(&kernel->in[1], c), mean = mu__read_real(&kernel->in[2], c);
        const double deviation = sqrt(mu__read_real(&kernel->in[3], c) + job.epsilon);
        double sum = 0, along = 0;
        for (int64_t i = c; i < n; i += job.channels) {
            sum += mu__read_real(dy, i);
            along += mu__read_real(dy, i) * (mu__read_real(x, i) - mean) / deviation;
        }
        mu__write_real(&out[1], c, along);
        mu__write_real(&out[2], c, sum);
        for (int64_t i = c; i < n; i += job.channels) {
            const double normal = (mu__read_real(x, i) - mean) / deviation;
            const double rest = mu__read_real(dy, i) - (sum + normal * along) / (double)job.rows;
            mu__write_real(&out[0], i, gamma / deviation * rest);
        }
    }
    return MU_OK;
}

static mu_status training_loops(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, training_loops);
    norm_job job = job_of(kernel);
    job.beta = kernel->in[2].data;
    job.mean = kernel->out[1].data;
    job.variance = kernel->out[2].data;
    (dtype == MU_F32 ? f32_moments : f64_moments)(&job);
    (dtype == MU_F32 ? f32_normalize : f64_normalize)(&job);
    return MU_OK;
}

static mu_status grad_loops(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, grad_loops);
    norm_job job = job_of(kernel);
    job.mean = kernel->in[2].data;
    job.variance = kernel->in[3].data;
    job.dy = kernel->in[4].data;
    job.dgamma = kernel->out[1].data;
    job.dbeta = kernel->out[2].data;
    (dtype == MU_F32 ? f32_backward : f64_backward)(&job);
    return MU_OK;
}

static mu_status training_run(const mu_kernel *kernel)
{
    const mu_view *x = &kernel->in[0];
    return mu__batch_norm_takes(x->dtype, &x->shape) ? mu__batch_norm_run(kernel) : training_loops(kernel);
}

static mu_status grad_run(const mu_kernel *kernel)
{
    const mu_view *x = &kernel->in[0];
    return mu__batch_norm_takes(x->dtype, &x->shape) ? mu__batch_norm_grad_run(kernel) : grad_loops(kernel);
}

// ---- Gradients ----------------------------------------------------------------------------------

// Sums per channel.
static mu_tensor *sums(mu_tensor *x) { return mu__apply1(&mu_op_bias_add_grad, NULL, x); }

// x divided by the number of rows of `like`; 0 if there are no rows.
static mu_tensor *over_rows(mu_tensor *x, mu_tensor *like)
{
    mu_tensor *channels = mu_cast(mu_dim_size(like, -1), like->dtype);
    return mu_divide_no_nan(mu_multiply(x, channels), mu_cast(mu_dim_size(like, MU_ALL_AXES), like->dtype));
}

static mu_tensor *inverse_deviation(mu_tensor *variance, double epsilon)
{
    return mu_rsqrt(mu_add(variance, mu__scalar_like(variance, epsilon)));
}

static mu_tensor *training_grad(mu_grad *g, int i)
{
    mu_tensor *x = g->x[0];
    if (!g->memo[0]) {
        mu_tensor *in[] = {x, g->x[1], g->y[1], g->y[2], mu__grad_of(g, 0)};
        if (mu__apply(&mu_op_batch_norm_grad, g->attrs, 5, in, 0, NULL, g->memo) != MU_OK)
            return NULL;
    }
    mu_tensor *dx = g->memo[i];
    if (i == 0 && g->dys[1])
        dx = mu_add(dx, over_rows(g->dys[1], x));
    if (i == 0 && g->dys[2])
        dx = mu_add(dx, over_rows(mu_multiply(mu_subtract(x, g->y[1]), mu__scale(g->dys[2], 2)), x));
    return dx;
}

// Terms of the second derivative. With r = 1 / sqrt(variance + epsilon) and h = (x - mean) r, the gradient op computes
//   dbeta = sum(dy), dgamma = sum(dy h), dx = gamma r (dy - dbeta / n - h dgamma / n).
typedef struct second {
    mu_tensor *x, *gamma, *dy, *u, *p, *q; // u, p, q: gradients of dx, dgamma, dbeta
    mu_tensor *r, *h, *factor;             // factor: gamma r
    mu_tensor *sum_u, *sum_uh;
    mu_tensor *inner; // sum(u dx) / factor
    mu_tensor *dh;    // gradient of h
} second;

static void describe_second(second *s, mu_grad *g)
{
    const mu_epsilon_attrs *attrs = g->attrs;
    mu_tensor *a = g->y[2], *b = g->y[1];
    *s = (second){.x = g->x[0],
                  .gamma = g->x[1],
                  .dy = g->x[4],
                  .u = mu__grad_of(g, 0),
                  .p = mu__grad_of(g, 1),
                  .q = mu__grad_of(g, 2)};
    s->r = inverse_deviation(g->x[3], attrs->epsilon);
    s->h = mu_multiply(mu_subtract(s->x, g->x[2]), s->r);
    s->factor = mu_multiply(s->gamma, s->r);
    s->sum_u = sums(s->u);
    s->sum_uh = sums(mu_multiply(s->u, s->h));
    mu_tensor *parts = mu_add(mu_multiply(a, s->sum_u), mu_multiply(b, s->sum_uh));
    s->inner = mu_subtract(sums(mu_multiply(s->u, s->dy)), over_rows(parts, s->x));
    mu_tensor *mixed = over_rows(mu_add(mu_multiply(s->dy, s->sum_uh), mu_multiply(s->u, b)), s->x);
    s->dh = mu_subtract(mu_multiply(s->p, s->dy), mu_multiply(s->factor, mixed));
}

static mu_tensor *grad_grad(mu_grad *g, int i)
{
    second s;
    describe_second(&s, g);
    switch (i) {
    case 0: return mu_multiply(s.dh, s.r);
    case 1: { // multiplies by r before summing: without rows r is NaN, but the sum is 0
        mu_tensor *rest = over_rows(mu_add(g->y[2], mu_multiply(s.h, g->y[1])), s.x);
        return sums(mu_multiply(s.u, mu_multiply(s.r, mu_subtract(s.dy, rest))));
    }
    case 2: return mu__scale(mu_multiply(s.r, sums(s.dh)), -1);
    case 3: {
        mu_tensor *dr = mu_add(mu_multiply(s.gamma, s.inner), sums(mu_multiply(s.dh, mu_subtract(s.x, g->x[2]))));
        return mu__scale(mu_multiply(dr, mu_multiply(s.r, mu_square(s.r))), -0.5);
    }
    default: {
        mu_tensor *centered = over_rows(mu_add(s.sum_u, mu_multiply(s.h, s.sum_uh)), s.x);
        mu_tensor *through = mu_multiply(s.factor, mu_subtract(s.u, centered));
        return mu_add(through, mu_add(mu_multiply(s.h, s.p), s.q));
    }
    }
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_epsilon_attrs thousandth = {1e-3};

static const mu_sample training_samples[] = {
    {.n_in = 3, .in = {{4, {3, 2, 3, 5}}, {1, {5}}, {1, {5}}}, .attrs = &thousandth},
    {.n_in = 3, .in = {{2, {7, 33}}, {1, {33}}, {1, {33}}}, .attrs = &thousandth},
    {0},
};

static const mu_sample grad_samples[] = {
    {.n_in = 5,
     .in = {{3, {4, 2, 3}}, {1, {3}}, {1, {3}}, {1, {3}}, {3, {4, 2, 3}}},
     .low = {-2, -2, -2, 0.5, -2},
     .high = {2, 2, 2, 2, 2},
     .attrs = &thousandth},
    {.n_in = 5,
     .in = {{2, {7, 33}}, {1, {33}}, {1, {33}}, {1, {33}}, {2, {7, 33}}},
     .low = {-2, -2, -2, 0.5, -2},
     .high = {2, 2, 2, 2, 2},
     .attrs = &thousandth},
    {0},
};

const mu_op mu_op_batch_norm_training = {
    .name = "batch_norm_training",
    .n_in = 3,
    .n_out = 3,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_epsilon_attrs),
    .attrs = epsilon_fields,
    .infer = training_infer,
    .grad = training_grad,
    .ref = training_ref,
    .samples = training_samples,
    .cpu = {.prepare = mu__batch_norm_prepare, .run = training_run},
    .lower = mu__lower_batch_norm,
};

const mu_op mu_op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .n_in = 5,
    .n_out = 3,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_epsilon_attrs),
    .attrs = epsilon_fields,
    .infer = grad_infer,
    .grad = grad_grad,
    .ref = grad_ref,
    .samples = grad_samples,
    .cpu = {.prepare = mu__batch_norm_prepare, .run = grad_run},
    .lower = mu__lower_batch_norm_grad,
};

// ---- Public functions ---------------------------------------------------------------------------

mu_status mu_nn_batch_norm_training(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta, double epsilon, mu_tensor **y,
                                    mu_tensor **mean, mu_tensor **variance)
{
    mu_tensor *in[] = {x, gamma, beta}, *out[3];
    MU_TRY(mu__need(y, "mu_nn_batch_norm_training: y"));
    MU_TRY(mu__need(mean, "mu_nn_batch_norm_training: mean"));
    MU_TRY(mu__need(variance, "mu_nn_batch_norm_training: variance"));
    const mu_status status = mu__apply(&mu_op_batch_norm_training, &(mu_epsilon_attrs){epsilon}, 3, in, 0, NULL, out);
    *y = out[0];
    *mean = out[1];
    *variance = out[2];
    return status;
}
