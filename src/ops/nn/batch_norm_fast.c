// batch_norm_training of float32 and its gradient, processed in blocks of rows that fit the cache.
//
// For each block of rows, computes the sums and then the squared deviations from the block's mean while it is cached.
// Blocks are merged in order, in double, with a correction for their different means. So memory is read once for the
// statistics and once for the result, which is stored past the caches if it is large.
#include "kernels/kernels.h"
#include "ops/core/loops.h"
#include "ops/nn/nn.h"

#include <math.h>

enum { BLOCK_BYTES = 128 << 10, DOUBLES = 4, FLOATS = 3 }; // bytes per block; numbers per channel

typedef struct moments_job {
    int64_t rows, channels;
    const float *x;
    double *sums, *squares, *mean, *total; // sums, squares: of one block; mean, total: of all blocks so far
    float *center, *factor, *shift;
} moments_job;

static moments_job job_of(const mu_kernel *kernel)
{
    const mu_shape *x = &kernel->in[0].shape;
    const int64_t channels = x->dims[x->rank - 1];
    double *doubles = kernel->scratch;
    float *floats = (float *)(void *)(doubles + DOUBLES * channels);
    return (moments_job){.rows = channels ? mu__elements(x) / channels : 0,
                         .channels = channels,
                         .x = kernel->in[0].data,
                         .sums = doubles,
                         .squares = doubles + channels,
                         .mean = doubles + 2 * channels,
                         .total = doubles + 3 * channels,
                         .center = floats,
                         .factor = floats + channels,
                         .shift = floats + 2 * channels};
}

// Merges a block of `rows` rows into the moments of the `before` rows before it.
static void add_block(const moments_job *job, const float *x, int64_t before, int64_t rows)
{
    const double count = (double)rows, share = count / (double)(before + rows);
    mu__kernels()->column_sums(x, NULL, NULL, job->sums, rows, job->channels);
    for (int64_t c = 0; c < job->channels; c++)
        job->center[c] = (float)(job->sums[c] / count);
    mu__kernels()->column_sums(x, NULL, job->center, job->squares, rows, job->channels);
    for (int64_t c = 0; c < job->channels; c++) {
        // center is the mean rounded to float; `off` removes the error that rounding adds to the squares
        const double mean = job->sums[c] / count, off = mean - (double)job->center[c], shift = mean - job->mean[c];
        job->total[c] += job->squares[c] - count * off * off + shift * shift * (double)before * share;
        job->mean[c] += shift * share;
    }
}

static void find_moments(const moments_job *job)
{
    const int64_t row_bytes = job->channels * (int64_t)sizeof(float), step = MU_MAX(BLOCK_BYTES / row_bytes, 1);
    memset(job->mean, 0, 2 * (size_t)job->channels * sizeof *job->mean);
    for (int64_t row = 0; row < job->rows; row += step)
        add_block(job, job->x + row * job->channels, row, MU_MIN(step, job->rows - row));
}

// Computes rows [row, row + n) of the result.
typedef void make_rows(const mu_kernel *kernel, const moments_job *job, int64_t row, int64_t n, float *to);
typedef struct result_job {
    const mu_kernel *kernel;
    const moments_job *moments;
    make_rows *make;
} result_job;

static void write_rows(void *arg, int64_t begin, int64_t end)
{
    const result_job *job = arg;
    job->make(job->kernel, job->moments, begin, end - begin,
              (float *)job->kernel->out[0].data + begin * job->moments->channels);
}

static void write_result(const mu_kernel *kernel, const moments_job *job, make_rows *make)
{
    result_job result = {.kernel = kernel, .moments = job, .make = make};
    mu__share_range(kernel->team, job->rows, 1, job->rows * job->channels, write_rows, &result);
}

bool mu__batch_norm_takes(mu_dtype dtype, const mu_shape *x) { return dtype == MU_F32 && mu__elements(x) > 0; }

mu_status mu__batch_norm_prepare(mu_prepare *prepare)
{
    const mu_spec *x = &prepare->in[0];
    const int64_t channels = x->shape.dims[x->shape.rank - 1];
    if (mu__batch_norm_takes(x->dtype, &x->shape))
        prepare->scratch_bytes = (size_t)channels * (DOUBLES * sizeof(double) + FLOATS * sizeof(float));
    return MU_OK;
}

static void make_normal(const mu_kernel *kernel, const moments_job *job, int64_t row, int64_t n, float *to)
{
    mu__kernels()->affine_columns(job->x + row * job->channels, kernel->out[1].data, job->factor, kernel->in[2].data,
                                  to, job->channels, 0, n);
}

mu_status mu__batch_norm_run(const mu_kernel *kernel)
{
    const double epsilon = ((const mu_epsilon_attrs *)kernel->attrs)->epsilon;
    const moments_job job = job_of(kernel);
    const float *gamma = kernel->in[1].data;
    float *mean = kernel->out[1].data, *variance = kernel->out[2].data;
    find_moments(&job);
    for (int64_t c = 0; c < job.channels; c++) {
        mean[c] = (float)job.mean[c];
        variance[c] = (float)(job.total[c] / (double)job.rows);
        job.factor[c] = (float)((double)gamma[c] / sqrt((double)variance[c] + epsilon));
    }
    write_result(kernel, &job, make_normal);
    return MU_OK;
}

// ---- Gradient: (x, gamma, mean, variance, dy) -> dx, dgamma, dbeta ------------------------------

// Computes the sums of dy (in `mean`) and of (x - mean) dy (in `total`).
static void find_sums(const mu_kernel *kernel, const moments_job *job)
{
    const mu_kernels *kernels = mu__kernels();
    const int64_t channels = job->channels, row_bytes = channels * 2 * (int64_t)sizeof(float);
    const int64_t step = MU_MAX(BLOCK_BYTES / row_bytes, 1);
    const float *dy = kernel->in[4].data;
    memset(job->mean, 0, 2 * (size_t)channels * sizeof *job->mean);
    for (int64_t row = 0; row < job->rows; row += step) {
        const int64_t n = MU_MIN(step, job->rows - row), at = row * channels;
        kernels->column_sums(dy + at, NULL, NULL, job->sums, n, channels);
        kernels->column_sums(job->x + at, dy + at, kernel->in[2].data, job->squares, n, channels);
        for (int64_t c = 0; c < channels; c++) {
            job->mean[c] += job->sums[c];
            job->total[c] += job->squares[c];
        }
    }
}

static void make_derivative(const mu_kernel *kernel, const moments_job *job, int64_t row, int64_t n, float *to)
{
    const int64_t at = row * job->channels;
    mu__kernels()->mixed_columns(job->x + at, (const float *)kernel->in[4].data + at, kernel->in[2].data, job->center,
                                 job->factor, job->shift, to, job->channels, 0, n);
}

mu_status mu__batch_norm_grad_run(const mu_kernel *kernel)
{
    const double epsilon = ((const mu_epsilon_attrs *)kernel->attrs)->epsilon;
    const moments_job job = job_of(kernel);
    const float *gamma = kernel->in[1].data, *variance = kernel->in[3].data;
    float *dgamma = kernel->out[1].data, *dbeta = kernel->out[2].data, *along = job.center;
    find_sums(kernel, &job);
    for (int64_t c = 0; c < job.channels; c++) {
        const double inverse = 1 / sqrt((double)variance[c] + epsilon), factor = (double)gamma[c] * inverse;
        dbeta[c] = (float)job.mean[c];
        dgamma[c] = (float)(job.total[c] * inverse);
        job.factor[c] = (float)factor;
        job.shift[c] = (float)(-factor * job.mean[c] / (double)job.rows);
        along[c] = (float)(-factor * inverse * inverse * job.total[c] / (double)job.rows);
    }
    write_result(kernel, &job, make_derivative);
    return MU_OK;
}
