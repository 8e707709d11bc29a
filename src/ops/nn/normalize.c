// Normalisation along the last axis or over groups of channels, and channel_affine.
//
// The gradient of normalize recomputes mean and deviation from values that are in the cache anyway, so nothing is saved
// between the two. The gradient of the gradient op is composed of ops, one of which is the gradient op itself. float32
// runs on `kernels`; everything else on plain loops.
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include "kernels/kernels.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

typedef struct normalize_job {
    const mu_kernel *kernel;
    int64_t samples, positions, groups, width;
    double epsilon;
    bool centered;
    const void *x, *dy, *gamma, *beta;
    void *y, *dgamma, *dbeta;
} normalize_job;

#define T        float
#define FN(name) f32_##name
#include "ops/nn/normalize_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#include "ops/nn/normalize_loops.inc.c"

static const mu_attr_spec normalize_fields[] = {{"groups", MU_ATTR_INT, offsetof(mu_normalize_attrs, groups)},
                                                {"epsilon", MU_ATTR_REAL, offsetof(mu_normalize_attrs, epsilon)},
                                                {"centered", MU_ATTR_BOOL, offsetof(mu_normalize_attrs, centered)},
                                                {0}};

// ---- Shapes -------------------------------------------------------------------------------------

// Checks that the inputs from `first` on are vectors with one element per channel (last axis) of input 0.
static mu_status need_vectors(const mu_infer *infer, int first)
{
    char x_text[MU_SHAPE_TEXT], own_text[MU_SHAPE_TEXT];
    const mu_shape *x = &infer->in[0].shape, wanted = MU_SHAPE(x->dims[x->rank - 1]);
    for (int i = first; i < infer->n_in; i++) {
        const mu_shape *own = &infer->in[i].shape;
        MU_TRY(mu__need_same_dtype(infer, 0, i));
        if (own->rank != 1 || !mu__shape_compatible(own, &wanted))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: input %d must have one number for each channel (last axis) of %s, got %s",
                             infer->op->name, i, mu__shape_text(x, x_text), mu__shape_text(own, own_text));
    }
    return MU_OK;
}

static mu_status need_groups(const mu_infer *infer)
{
    const mu_normalize_attrs *attrs = infer->attrs;
    const mu_shape *x = &infer->in[0].shape;
    char text[MU_SHAPE_TEXT];
    const int64_t channels = x->rank > 0 ? x->dims[x->rank - 1] : 0;
    if (x->rank < (attrs->groups > 0 ? 2 : 1))
        return mu__error(MU_INVALID_ARGUMENT, "%s: x of shape %s has too few axes; it takes %s", infer->op->name,
                         mu__shape_text(x, text), attrs->groups > 0 ? "samples and channels" : "one at least");
    if (attrs->groups < 0 || (attrs->groups > 0 && channels != MU_UNKNOWN && channels % attrs->groups != 0))
        return mu__error(MU_INVALID_ARGUMENT, "%s: %lld channels cannot be divided into %lld groups", infer->op->name,
                         (long long)channels, (long long)attrs->groups);
    return MU_OK;
}

static mu_status normalize_infer(mu_infer *infer)
{
    MU_TRY(need_groups(infer));
    MU_TRY(need_vectors(infer, 1));
    infer->out[0] = infer->in[0];
    return MU_OK;
}

// Inputs (x, dy[, gamma]), outputs (dx, dgamma, dbeta).
static mu_status grad_infer(mu_infer *infer)
{
    const mu_shape *x = &infer->in[0].shape;
    MU_TRY(need_groups(infer));
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    if (!mu__shape_compatible(x, &infer->in[1].shape))
        return mu__error(MU_INVALID_ARGUMENT, "%s: dy must have the shape of x", infer->op->name);
    MU_TRY(need_vectors(infer, 2));
    infer->out[0] = infer->in[0];
    infer->out[1] = infer->out[2] = (mu_spec){infer->in[0].dtype, MU_SHAPE(x->dims[x->rank - 1])};
    return MU_OK;
}

// ---- Kernels ------------------------------------------------------------------------------------

static normalize_job job_of(const mu_kernel *kernel)
{
    const mu_normalize_attrs *attrs = kernel->attrs;
    const mu_shape *x = &kernel->in[0].shape;
    const int64_t channels = x->dims[x->rank - 1], groups = MU_MAX(attrs->groups, (int64_t)1);
    const int first = attrs->groups > 0 ? 1 : x->rank - 1; // the axes before it count samples
    return (normalize_job){.kernel = kernel,
                           .samples = mu__elements_between(x, 0, first),
                           .positions = mu__elements_between(x, first, x->rank - 1),
                           .groups = groups,
                           .width = channels / groups,
                           .epsilon = attrs->epsilon,
                           .centered = attrs->centered,
                           .x = kernel->in[0].data,
                           .y = kernel->out[0].data};
}

static normalize_job forward_job(const mu_kernel *kernel)
{
    normalize_job job = job_of(kernel);
    job.gamma = kernel->n_in > 1 ? kernel->in[1].data : NULL;
    job.beta = kernel->n_in > 2 ? kernel->in[2].data : NULL;
    return job;
}

static normalize_job backward_job(const mu_kernel *kernel)
{
    normalize_job job = job_of(kernel);
    job.dy = kernel->in[1].data;
    job.gamma = kernel->n_in > 2 ? kernel->in[2].data : NULL;
    job.dgamma = kernel->out[1].data;
    job.dbeta = kernel->out[2].data;
    return job;
}

static bool empty(const normalize_job *job) { return job->positions == 0 || job->width == 0; }

static mu_status normalize_ref(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, normalize_ref);
    const normalize_job job = forward_job(kernel);
    for (int64_t sample = 0; sample < job.samples && !empty(&job); sample++)
        for (int64_t group = 0; group < job.groups; group++)
            (dtype == MU_F32 ? f32_normalize_group : f64_normalize_group)(&job, sample, group);
    return MU_OK;
}

static mu_status grad_ref(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, grad_ref);
    const normalize_job job = backward_job(kernel);
    memset(job.dgamma, 0, (size_t)(job.groups * job.width) * mu_dtype_bytes(dtype));
    memset(job.dbeta, 0, (size_t)(job.groups * job.width) * mu_dtype_bytes(dtype));
    for (int64_t sample = 0; sample < job.samples && !empty(&job); sample++)
        for (int64_t group = 0; group < job.groups; group++)
            (dtype == MU_F32 ? f32_normalize_group_grad : f64_normalize_group_grad)(&job, sample, group);
    return MU_OK;
}

static void normalize_rows(const normalize_job *job, int64_t begin, int64_t end, float *to)
{
    const mu_kernels *kernels = mu__kernels();
    const float *x = (const float *)job->x + begin * job->width;
    for (int64_t row = begin; row < end; row++, x += job->width, to += job->width)
        kernels->normalize_row(x, job->gamma, job->beta, to, job->width, job->centered, job->epsilon);
}

static void share_rows(void *arg, int64_t begin, int64_t end)
{
    const normalize_job *job = arg;
    normalize_rows(job, begin, end, (float *)job->y + begin * job->width);
}

// A member's memory for per-channel numbers.
typedef struct channel_numbers {
    double *first, *second;
    float *center, *factor, *shift, *along, *dgamma, *dbeta;
} channel_numbers;

enum { NUMBERS = 2 * 2 + 6 }; // floats per channel

static channel_numbers numbers_of(const normalize_job *job, int member)
{
    const int64_t channels = job->groups * job->width;
    double *doubles = (double *)job->kernel->scratch + (NUMBERS + 1) / 2 * channels * member;
    float *floats = (float *)(doubles + 2 * channels);
    return (channel_numbers){.first = doubles,
                             .second = doubles + channels,
                             .center = floats,
                             .factor = floats + channels,
                             .shift = floats + 2 * channels,
                             .along = floats + 3 * channels,
                             .dgamma = floats + 4 * channels,
                             .dbeta = floats + 5 * channels};
}

static double group_mean(const normalize_job *job, const double *sums, int64_t group)
{
    double total = 0;
    for (int64_t i = 0; i < job->width; i++)
        total += sums[group * job->width + i];
    return total / (double)(job->positions * job->width);
}

static void spread(const normalize_job *job, float *numbers, int64_t group, float value)
{
    for (int64_t i = 0; i < job->width; i++)
        numbers[group * job->width + i] = value;
}

// Writes each group's mean to `center` and 1 / deviation to `factor`.
static void sample_moments(const normalize_job *job, const float *x, const channel_numbers *to)
{
    const mu_kernels *kernels = mu__kernels();
    const int64_t channels = job->groups * job->width;
    kernels->column_sums(x, NULL, NULL, to->first, job->positions, channels);
    for (int64_t g = 0; g < job->groups; g++)
        spread(job, to->center, g, job->centered ? (float)group_mean(job, to->first, g) : 0);
    kernels->column_sums(x, NULL, to->center, to->first, job->positions, channels);
    for (int64_t g = 0; g < job->groups; g++)
        spread(job, to->factor, g, (float)(1 / sqrt(group_mean(job, to->first, g) + job->epsilon)));
}

static void normalize_sample(const normalize_job *job, int64_t sample, const channel_numbers *to)
{
    const int64_t channels = job->groups * job->width, at = sample * job->positions * channels;
    const float *x = (const float *)job->x + at, *gamma = job->gamma, *beta = job->beta;
    sample_moments(job, x, to);
    for (int64_t c = 0; c < channels; c++) {
        to->factor[c] *= gamma ? gamma[c] : 1;
        to->shift[c] = beta ? beta[c] : 0;
    }
    mu__kernels()->affine_columns(x, to->center, to->factor, to->shift, (float *)job->y + at, channels, 0,
                                  job->positions);
}

static void normalize_samples(void *arg, int index, int count)
{
    const normalize_job *job = arg;
    const channel_numbers to = numbers_of(job, index);
    int64_t begin, end;
    mu__team_share(job->samples, 1, index, count, &begin, &end);
    for (int64_t sample = begin; sample < end; sample++)
        normalize_sample(job, sample, &to);
}

static mu_status normalize_prepare(mu_prepare *prepare)
{
    const mu_shape *x = &prepare->in[0].shape;
    const size_t channels = (size_t)x->dims[x->rank - 1];
    prepare->scratch_bytes = (NUMBERS + 1) / 2 * channels * sizeof(double) * (size_t)prepare->team->n_threads;
    return mu__prepare_f32(prepare);
}

static mu_status normalize_fast(const mu_kernel *kernel)
{
    normalize_job job = forward_job(kernel);
    const bool groups = ((const mu_normalize_attrs *)kernel->attrs)->groups > 0;
    if (empty(&job))
        return MU_OK;
    if (groups)
        mu__team_run(mu__team_for(kernel->team, mu__elements(&kernel->in[0].shape)), normalize_samples, &job);
    else
        mu__share_range(kernel->team, job.samples, 1, job.samples * job.width, share_rows, &job);
    return MU_OK;
}

// dx of one sample is a linear combination of dy, x and a constant, with coefficients per channel.
static void backward_sample(const normalize_job *job, int64_t sample, const channel_numbers *to)
{
    const mu_kernels *kernels = mu__kernels();
    const int64_t channels = job->groups * job->width, at = sample * job->positions * channels;
    const float *x = (const float *)job->x + at, *dy = (const float *)job->dy + at, *gamma = job->gamma;
    sample_moments(job, x, to);
    kernels->column_sums(dy, NULL, NULL, to->first, job->positions, channels);
    kernels->column_sums(x, dy, to->center, to->second, job->positions, channels);
    for (int64_t c = 0; c < channels; c++) {
        to->dbeta[c] += (float)to->first[c];
        to->dgamma[c] += (float)(to->second[c] * (double)to->factor[c]);
        to->first[c] *= gamma ? (double)gamma[c] : 1;
        to->second[c] *= gamma ? (double)gamma[c] : 1;
    }
    for (int64_t g = 0; g < job->groups; g++) {
        const double inverse = (double)to->factor[g * job->width], product = group_mean(job, to->second, g);
        spread(job, to->along, g, (float)(-inverse * inverse * inverse * product));
        spread(job, to->shift, g, job->centered ? (float)(-inverse * group_mean(job, to->first, g)) : 0);
    }
    for (int64_t c = 0; c < channels && gamma; c++)
        to->factor[c] *= gamma[c];
    kernels->mixed_columns(x, dy, to->center, to->along, to->factor, to->shift, (float *)job->y + at, channels, 0,
                           job->positions);
}

static void backward_rows(const normalize_job *job, int64_t begin, int64_t end, const channel_numbers *to)
{
    const int64_t width = job->width;
    for (int64_t at = begin * width; at < end * width; at += width)
        mu__kernels()->normalize_row_grad((const float *)job->x + at, job->gamma, (const float *)job->dy + at,
                                          (float *)job->y + at, to->dgamma, to->dbeta, width, job->centered,
                                          job->epsilon);
}

static void backward_members(void *arg, int index, int count)
{
    const normalize_job *job = arg;
    const bool groups = ((const mu_normalize_attrs *)job->kernel->attrs)->groups > 0;
    const channel_numbers to = numbers_of(job, index);
    int64_t begin, end;
    mu__team_share(job->samples, 1, index, count, &begin, &end);
    memset(to.dgamma, 0, sizeof(float) * (size_t)(job->groups * job->width));
    memset(to.dbeta, 0, sizeof(float) * (size_t)(job->groups * job->width));
    if (!groups && !empty(job))
        backward_rows(job, begin, end, &to);
    for (int64_t sample = begin; sample < end && !empty(job) && groups; sample++)
        backward_sample(job, sample, &to);
}

static mu_status grad_fast(const mu_kernel *kernel)
{
    normalize_job job = backward_job(kernel);
    const int64_t channels = job.groups * job.width;
    float *dgamma = job.dgamma, *dbeta = job.dbeta;
    if (channels == 0)
        return MU_OK;
    const mu_team *team = mu__team_for(kernel->team, mu__elements(&kernel->in[0].shape));
    mu__team_run(team, backward_members, &job);
    for (int64_t c = 0; c < channels; c++) {
        dgamma[c] = dbeta[c] = 0;
        for (int member = 0; member < team->n_threads; member++) {
            const channel_numbers part = numbers_of(&job, member);
            dgamma[c] += part.dgamma[c];
            dbeta[c] += part.dbeta[c];
        }
    }
    return MU_OK;
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_tensor *normalize_grad(mu_grad *g, int i)
{
    mu_tensor *in[] = {g->x[0], g->dy, g->n_in > 1 ? g->x[1] : NULL};
    if (!g->memo[0] && mu__apply(&mu_op_normalize_grad, g->attrs, g->n_in > 1 ? 3 : 2, in, 0, NULL, g->memo) != MU_OK)
        return NULL;
    return g->memo[i];
}

// The tensor with its channels split into groups.
static mu_tensor *grouped(const mu_grad *g, mu_tensor *t)
{
    const mu_normalize_attrs *attrs = g->attrs;
    const mu_shape *x = &g->x[0]->shape;
    if (attrs->groups == 0)
        return t;
    const int64_t parted[] = {-1, mu__elements_between(x, 1, x->rank - 1), attrs->groups,
                              x->dims[x->rank - 1] / attrs->groups};
    return mu_reshape(t, 4, parted);
}

// Each group's mean, ready to broadcast.
static mu_tensor *mean_of(const mu_grad *g, mu_tensor *t)
{
    const bool groups = ((const mu_normalize_attrs *)g->attrs)->groups > 0;
    const int over_groups[] = {1, 3}, last[] = {-1};
    return mu_reduce_mean(grouped(g, t), .axes = groups ? over_groups : last, .n_axes = groups ? 2 : 1,
                          .keep_dims = true);
}

static mu_tensor *times_mean(const mu_grad *g, mu_tensor *t, mu_tensor *mean)
{
    const bool groups = ((const mu_normalize_attrs *)g->attrs)->groups > 0;
    mu_tensor *product = mu_multiply(grouped(g, t), mean);
    return groups ? mu_reshape_like(product, g->x[0]) : product;
}

// The linear map from dy to dx: r (t - mean(t) - h mean(t h)), applied to t.
static mu_tensor *projected(const mu_grad *g, mu_tensor *t)
{
    mu_tensor *in[] = {g->x[0], t}, *out[3];
    return mu__apply(&mu_op_normalize_grad, g->attrs, 2, in, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

// With u, p and q the gradients of dx, dgamma and dbeta, a = dy gamma, h = (x - mean) r, and P the map above, the
// gradients are
//   of dy:    gamma P(u) + p h + q
//   of gamma: sum(dy P(u))
//   of x:     P(p dy - r (u mean(a h) + a mean(u h))) - r h mean(u dx)
static mu_tensor *grad_grad(mu_grad *g, int i)
{
    const mu_normalize_attrs *attrs = g->attrs;
    mu_tensor *x = g->x[0], *dy = g->x[1], *gamma = g->n_in > 2 ? g->x[2] : NULL;
    mu_tensor *u = mu__grad_of(g, 0), *p = mu__grad_of(g, 1), *q = mu__grad_of(g, 2);
    if (i == 2)
        return mu__apply1(&mu_op_bias_add_grad, NULL, mu_multiply(dy, projected(g, u)));
    mu_tensor *h = mu__apply1(&mu_op_normalize, attrs, x);
    if (i == 1) {
        mu_tensor *through = projected(g, u);
        return mu_add(gamma ? mu_multiply(through, gamma) : through, mu_add(mu_multiply(p, h), q));
    }
    mu_tensor *a = gamma ? mu_multiply(dy, gamma) : dy, *from = grouped(g, x);
    from = attrs->centered ? mu_subtract(from, mean_of(g, x)) : from;
    const bool groups = attrs->groups > 0;
    mu_tensor *variance = mean_of(g, mu_square(groups ? mu_reshape_like(from, x) : from));
    mu_tensor *r = mu_rsqrt(mu_add(variance, mu__scalar_like(variance, attrs->epsilon)));
    mu_tensor *along_u = times_mean(g, u, mu_multiply(r, mean_of(g, mu_multiply(a, h))));
    mu_tensor *along_a = times_mean(g, a, mu_multiply(r, mean_of(g, mu_multiply(u, h))));
    mu_tensor *dh = mu_subtract(mu_multiply(p, dy), mu_add(along_u, along_a));
    mu_tensor *scale = times_mean(g, h, mu_multiply(r, mean_of(g, mu_multiply(u, g->y[0]))));
    return mu_subtract(projected(g, dh), scale);
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_normalize_attrs layer = {0, 1e-3, true}, root_mean_square = {0, 1e-3, false},
                                three_groups = {3, 1e-3, true};

static const mu_sample normalize_samples_list[] = {
    {.n_in = 3, .in = {{3, {3, 2, 7}}, {1, {7}}, {1, {7}}}, .attrs = &layer},
    {.n_in = 2, .in = {{2, {3, 70}}, {1, {70}}}, .attrs = &root_mean_square},
    {.n_in = 1, .in = {{1, {9}}}, .attrs = &layer},
    {.n_in = 3, .in = {{4, {2, 3, 2, 6}}, {1, {6}}, {1, {6}}}, .attrs = &three_groups},
    {.n_in = 2, .in = {{3, {2, 70, 39}}, {1, {39}}}, .attrs = &three_groups},
    {.n_in = 1, .in = {{2, {0, 3}}}, .attrs = &layer},
    {.n_in = 1, .in = {{3, {2, 0, 3}}}, .attrs = &three_groups},
    {0},
};

static const mu_sample grad_samples[] = {
    {.n_in = 3, .in = {{3, {3, 2, 7}}, {3, {3, 2, 7}}, {1, {7}}}, .attrs = &layer},
    {.n_in = 3, .in = {{2, {3, 37}}, {2, {3, 37}}, {1, {37}}}, .attrs = &root_mean_square},
    {.n_in = 2, .in = {{4, {2, 3, 2, 6}}, {4, {2, 3, 2, 6}}}, .attrs = &three_groups},
    {.n_in = 3, .in = {{3, {2, 70, 39}}, {3, {2, 70, 39}}, {1, {39}}}, .attrs = &three_groups, .no_grad = 7},
    {.n_in = 2, .in = {{2, {0, 3}}, {2, {0, 3}}}, .attrs = &layer},
    {0},
};

const mu_op mu_op_normalize = {
    .name = "normalize",
    .n_in = 1,
    .max_in = 3,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_normalize_attrs),
    .attrs = normalize_fields,
    .infer = normalize_infer,
    .grad = normalize_grad,
    .ref = normalize_ref,
    .samples = normalize_samples_list,
    .cpu = {.prepare = normalize_prepare, .run = normalize_fast},
    .lower = mu__lower_normalize,
};

const mu_op mu_op_normalize_grad = {
    .name = "normalize_grad",
    .n_in = 2,
    .max_in = 3,
    .n_out = 3,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_normalize_attrs),
    .attrs = normalize_fields,
    .infer = grad_infer,
    .grad = grad_grad,
    .ref = grad_ref,
    .samples = grad_samples,
    .cpu = {.prepare = normalize_prepare, .run = grad_fast},
    .lower = mu__lower_normalize_grad,
};

// ---- channel_affine: (x - center) factor + shift, with one number of each per channel ------------

static mu_status affine_infer(mu_infer *infer)
{
    MU_TRY(mu__infer_same(infer));
    if (infer->in[0].shape.rank < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: x is a scalar; its last axis must be the channels", infer->op->name);
    return need_vectors(infer, 1);
}

static mu_status affine_ref(const mu_kernel *kernel)
{
    const mu_view *in = kernel->in;
    const mu_shape *x = &in[0].shape;
    const int64_t channels = x->dims[x->rank - 1], rows = mu__elements_between(x, 0, x->rank - 1);
    if (in[0].dtype == MU_F32)
        f32_affine(in[0].data, in[1].data, in[2].data, in[3].data, kernel->out[0].data, rows, channels);
    else if (in[0].dtype == MU_F64)
        f64_affine(in[0].data, in[1].data, in[2].data, in[3].data, kernel->out[0].data, rows, channels);
    else
        return mu__run_as_f32(kernel, affine_ref);
    return MU_OK;
}

static void affine_rows(const normalize_job *job, int64_t begin, int64_t end, float *to)
{
    const mu_view *in = job->kernel->in;
    mu__kernels()->affine_columns((const float *)job->x + begin * job->width, in[1].data, in[2].data, in[3].data, to,
                                  job->width, 0, end - begin);
}

static void share_affine(void *arg, int64_t begin, int64_t end)
{
    const normalize_job *job = arg;
    affine_rows(job, begin, end, (float *)job->y + begin * job->width);
}

static mu_status affine_fast(const mu_kernel *kernel)
{
    const mu_shape *x = &kernel->in[0].shape;
    const int64_t channels = x->dims[x->rank - 1], rows = mu__elements_between(x, 0, x->rank - 1);
    normalize_job job = {.kernel = kernel, .width = channels, .x = kernel->in[0].data, .y = kernel->out[0].data};
    if (channels > 0)
        mu__share_range(kernel->team, rows, 64, rows * channels, share_affine, &job);
    return MU_OK;
}

static mu_tensor *affine_grad(mu_grad *g, int i)
{
    if (i == 0)
        return mu_multiply(g->dy, g->x[2]);
    if (i == 2)
        return mu__apply1(&mu_op_bias_add_grad, NULL, mu_multiply(g->dy, mu_subtract(g->x[0], g->x[1])));
    mu_tensor *sum = mu__apply1(&mu_op_bias_add_grad, NULL, g->dy);
    return i == 3 ? sum : mu_neg(mu_multiply(sum, g->x[2]));
}

static const mu_sample affine_samples[] = {
    {.n_in = 4, .in = {{3, {3, 2, 7}}, {1, {7}}, {1, {7}}, {1, {7}}}},
    {.n_in = 4, .in = {{2, {2, 33}}, {1, {33}}, {1, {33}}, {1, {33}}}},
    {.n_in = 4, .in = {{2, {0, 3}}, {1, {3}}, {1, {3}}, {1, {3}}}},
    {0},
};

const mu_op mu_op_channel_affine = {
    .name = "channel_affine",
    .n_in = 4,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .in_place = 1,
    .infer = affine_infer,
    .grad = affine_grad,
    .ref = affine_ref,
    .samples = affine_samples,
    .cpu = {.prepare = mu__prepare_f32, .run = affine_fast},
    .lower = mu__lower_channel_affine,
};

// ---- Public functions ---------------------------------------------------------------------------

static mu_tensor *normalized(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta, int64_t groups, double epsilon,
                             bool centered)
{
    mu_normalize_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.groups = groups;
    attrs.epsilon = epsilon;
    attrs.centered = centered;
    mu_tensor *in[] = {x, gamma, beta};
    mu_tensor *y = mu__apply_n(&mu_op_normalize, &attrs, !gamma ? 1 : beta ? 3 : 2, in);
    return beta && !gamma ? mu_add(y, beta) : y;
}

mu_tensor *mu_nn_layer_normalization(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta, double epsilon)
{
    mu_tensor *in[] = {x, gamma, beta};
    return mu__pending() ? NULL
                         : mu__composed("layer_normalization", 3, in, normalized(x, gamma, beta, 0, epsilon, true));
}

mu_tensor *mu_nn_rms_normalization(mu_tensor *x, mu_tensor *gamma, double epsilon)
{
    return mu__pending() ? NULL
                         : mu__composed2("rms_normalization", x, gamma, normalized(x, gamma, NULL, 0, epsilon, false));
}

mu_tensor *mu_nn_group_normalization(mu_tensor *x, int64_t groups, mu_tensor *gamma, mu_tensor *beta, double epsilon)
{
    if (mu__pending())
        return NULL;
    const mu_shape *shape = x ? &x->shape : NULL;
    const int64_t channels = shape && shape->rank >= 2 ? shape->dims[shape->rank - 1] : 0;
    bool known = true;
    for (int i = 1; shape && i < shape->rank - 1; i++)
        known = known && shape->dims[i] != MU_UNKNOWN;
    if (groups < 1 || channels < 1 || channels % groups != 0 || !known) {
        mu__error(MU_INVALID_ARGUMENT,
                  "group_normalization: %lld channels cannot be divided into %lld groups; x needs a batch axis, known "
                  "extents and a number of channels that the groups divide",
                  (long long)channels, (long long)groups);
        return NULL;
    }
    mu_tensor *in[] = {x, gamma, beta};
    return mu__composed("group_normalization", 3, in, normalized(x, gamma, beta, groups, epsilon, true));
}

// Whether the tensor has one element per channel of x, as far as the shapes are known.
static bool of_channels(const mu_tensor *t, const mu_tensor *x)
{
    const int64_t channels = x && x->shape.rank > 0 ? x->shape.dims[x->shape.rank - 1] : MU_UNKNOWN;
    return !t || (t->shape.rank == 1 && channels != MU_UNKNOWN && t->shape.dims[0] == channels);
}

mu_tensor *mu_nn_batch_normalization(mu_tensor *x, mu_tensor *mean, mu_tensor *variance, mu_tensor *offset,
                                     mu_tensor *scale, double epsilon)
{
    if (mu__pending())
        return NULL;
    mu_tensor *given[] = {x, mean, variance, offset, scale};
    const bool channels =
        of_channels(mean, x) && of_channels(variance, x) && of_channels(offset, x) && of_channels(scale, x);
    mu_tensor *factor = mu_rsqrt(mu_add(variance, mu__scalar_like(variance, epsilon)));
    if (scale)
        factor = mu_multiply(factor, scale);
    if (channels) {
        mu_tensor *in[] = {x, mean, factor, offset ? offset : mu__zeros_like(factor)};
        return mu__composed("batch_normalization", 5, given, mu__apply_n(&mu_op_channel_affine, NULL, 4, in));
    }
    mu_tensor *shift = mu_multiply(mean, factor);
    mu_tensor *moved = offset ? mu_subtract(offset, shift) : mu__scale(shift, -1);
    return mu__composed("batch_normalization", 5, given, mu_add(mu_multiply(x, factor), moved));
}
