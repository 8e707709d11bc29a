// bias_add and its gradient, the gradient of ReLU, and partial sums by a team.
//
// Channels are the last axis. float32 uses hand-written kernels, float64 and 16-bit floats loops that the compiler
// vectorises.
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn_loops.h"

#include "kernels/kernels.h"

#include <muster/nn.h>

// Channels are the last axis; rows are all other axes merged.
static void rows_of(const mu_shape *shape, int64_t *rows, int64_t *channels)
{
    *channels = shape->dims[shape->rank - 1];
    *rows = 1;
    for (int i = 0; i < shape->rank - 1; i++)
        *rows *= shape->dims[i];
}

void mu__bias_in_place(const mu_view *y, const mu_view *bias, bool relu)
{
    int64_t rows, channels;
    rows_of(&y->shape, &rows, &channels);
    mu__nn_loops(y->dtype)->add_bias(y->data, bias->data, rows, channels, relu);
}

// ---- Sums in parts ------------------------------------------------------------------------------

typedef struct parts_job {
    int64_t n, width;
    float *parts;
    mu_partial_sum *sum;
    void *arg;
} parts_job;

static void sum_part(void *arg, int index, int count)
{
    const parts_job *job = arg;
    int64_t begin, end;
    mu__team_share(job->n, 1, index, count, &begin, &end);
    job->sum(job->arg, job->parts + index * job->width, begin, end);
}

size_t mu__parts_bytes(const mu_team *team, int64_t width) { return sizeof(float) * (size_t)(width * team->n_threads); }

void mu__sum_parts(const mu_team *whole, int64_t work, int64_t n, int64_t width, float *parts, mu_partial_sum *sum,
                   void *arg)
{
    parts_job job = {.n = n, .width = width, .parts = parts, .sum = sum, .arg = arg};
    const mu_team *team = mu__team_for(whole, work);
    mu__team_run(team, sum_part, &job);
    for (int member = 1; member < team->n_threads; member++)
        for (int64_t i = 0; i < width; i++)
            parts[i] += parts[member * width + i];
}

// ---- bias_add -----------------------------------------------------------------------------------

static mu_status bias_add_infer(mu_infer *infer)
{
    char x_text[MU_SHAPE_TEXT], b_text[MU_SHAPE_TEXT];
    const mu_shape *x = &infer->in[0].shape, *b = &infer->in[1].shape;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    const int64_t channels = x->rank > 0 ? x->dims[x->rank - 1] : 0;
    if (x->rank < 1 || b->rank != 1 || (channels != b->dims[0] && channels != MU_UNKNOWN && b->dims[0] != MU_UNKNOWN))
        return mu__error(MU_INVALID_ARGUMENT, "%s: the bias must have as many elements as the last axis of %s, got %s",
                         infer->op->name, mu__shape_text(x, x_text), mu__shape_text(b, b_text));
    return mu__infer_same(infer);
}

static mu_tensor *bias_add_grad_rule(mu_grad *g, int i)
{
    return i == 0 ? g->dy : mu__apply1(&mu_op_bias_add_grad, NULL, g->dy);
}

// The bias broadcasts as in add, so add's plain loops compute it.
static mu_status bias_add_ref(const mu_kernel *kernel)
{
    mu_kernel add = *kernel;
    add.op = &mu_op_add;
    return add.op->ref(&add);
}

MU_PER_ISA(add_to_rows, (const float *x, const float *bias, float *y, int64_t rows, int64_t channels),
           (x, bias, y, rows, channels))
{
    for (int64_t r = 0; r < rows; r++) {
        MU_INDEPENDENT
        for (int64_t c = 0; c < channels; c++)
            y[r * channels + c] = x[r * channels + c] + bias[c];
    }
}

static void bias_add_range(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *kernel = arg;
    const int64_t channels = kernel->in[1].shape.dims[0], at = begin * channels;
    add_to_rows((const float *)kernel->in[0].data + at, kernel->in[1].data, (float *)kernel->out[0].data + at,
                end - begin, channels);
}

static mu_status bias_add_fast(const mu_kernel *kernel)
{
    int64_t rows, channels;
    mu_kernel add = *kernel;
    add.op = &mu_op_add;
    if (kernel->in[0].dtype != MU_F32)
        return mu__run_direct(&add);
    rows_of(&kernel->in[0].shape, &rows, &channels);
    mu__share_range(kernel->team, rows, 64, rows * channels, bias_add_range, (void *)kernel);
    return MU_OK;
}

static const mu_sample bias_add_samples[] = {
    {.n_in = 2, .in = {{2, {5, 7}}, {1, {7}}}},
    {.n_in = 2, .in = {{4, {2, 3, 1, 33}}, {1, {33}}}},
    {.n_in = 2, .in = {{1, {4}}, {1, {4}}}},
    {.n_in = 2, .in = {{2, {0, 3}}, {1, {3}}}},
    {0},
};

const mu_op mu_op_bias_add = {
    .name = "bias_add",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_NUMBERS,
    .in_place = 1,
    .infer = bias_add_infer,
    .grad = bias_add_grad_rule,
    .ref = bias_add_ref,
    .samples = bias_add_samples,
    .cpu = {.run = bias_add_fast},
    .lower = mu__lower_bias_add,
};

// ---- bias_add_grad: sums over all axes but the last ---------------------------------------------

static mu_status bias_add_grad_infer(mu_infer *infer)
{
    const mu_shape *dy = &infer->in[0].shape;
    if (dy->rank < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: needs at least one axis, got a scalar", infer->op->name);
    infer->out[0] = (mu_spec){infer->in[0].dtype, MU_SHAPE(dy->dims[dy->rank - 1])};
    return MU_OK;
}

static mu_tensor *bias_add_grad_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_broadcast_like, NULL, g->dy, g->x[0]);
}

static mu_status bias_add_grad_ref(const mu_kernel *kernel)
{
    const mu_view *dy = &kernel->in[0], *sums = &kernel->out[0];
    int64_t rows, channels;
    rows_of(&dy->shape, &rows, &channels);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++)
            sum += mu__read_real(dy, r * channels + c);
        mu__write_real(sums, c, sum);
    }
    return MU_OK;
}

MU_PER_ISA(column_sums_f64, (const double *restrict x, double *restrict sums, int64_t rows, int64_t channels),
           (x, sums, rows, channels))
{
    enum { WIDTH = 32 };
    for (int64_t c = 0; c < channels; c += WIDTH) {
        double sum[WIDTH] = {0};
        const int64_t width = MU_MIN(WIDTH, channels - c);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width; i++)
                sum[i] += x[r * channels + c + i];
        for (int64_t i = 0; i < width; i++)
            sums[c + i] = sum[i];
    }
}

static void bias_part(void *arg, float *part, int64_t begin, int64_t end)
{
    const mu_view *dy = arg;
    mu__kernels()->bias_grad(dy->data, part, dy->shape.dims[dy->shape.rank - 1], begin, end);
}

static mu_status bias_add_grad_prepare(mu_prepare *prepare)
{
    if (prepare->in[0].dtype == MU_F32)
        prepare->scratch_bytes = mu__parts_bytes(prepare->team, prepare->out[0].shape.dims[0]);
    return MU_OK;
}

// Half types are summed as by reduce_sum, which widens a few rows at a time.
static mu_status sum_rows(const mu_kernel *kernel, int64_t rows, int64_t channels)
{
    const mu_reduce_attrs first_axis = {.axes = {.n = 1}};
    mu_view dy = kernel->in[0];
    dy.shape = MU_SHAPE(rows, channels);
    mu_kernel sum = *kernel;
    sum.op = &mu_op_reduce_sum;
    sum.attrs = &first_axis;
    sum.in = &dy;
    return mu__run_direct(&sum);
}

static mu_status bias_add_grad_fast(const mu_kernel *kernel)
{
    int64_t rows, channels;
    mu_view dy = kernel->in[0];
    rows_of(&dy.shape, &rows, &channels);
    if (dy.dtype == MU_F64) {
        column_sums_f64(dy.data, kernel->out[0].data, rows, channels);
        return MU_OK;
    }
    if (dy.dtype != MU_F32)
        return sum_rows(kernel, rows, channels);
    mu__sum_parts(kernel->team, rows * channels, rows, channels, kernel->scratch, bias_part, &dy);
    memcpy(kernel->out[0].data, kernel->scratch, sizeof(float) * (size_t)channels);
    return MU_OK;
}

static const mu_sample bias_add_grad_samples[] = {
    {.n_in = 1, .in = {{2, {5, 7}}}},
    {.n_in = 1, .in = {{4, {2, 3, 1, 33}}}},
    {.n_in = 1, .in = {{1, {4}}}},
    {.n_in = 1, .in = {{2, {0, 3}}}},
    {0},
};

const mu_op mu_op_bias_add_grad = {
    .name = "bias_add_grad",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .infer = bias_add_grad_infer,
    .grad = bias_add_grad_grad,
    .ref = bias_add_grad_ref,
    .cpu = {bias_add_grad_prepare, bias_add_grad_fast, NULL},
    .samples = bias_add_grad_samples,
    .lower = mu__lower_bias_add_grad,
};

// ---- relu_grad: dy where ReLU's result (or input) is positive -----------------------------------

static mu_status relu_grad_infer(mu_infer *infer)
{
    char dy[MU_SHAPE_TEXT], y[MU_SHAPE_TEXT];
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    if (!mu__shape_compatible(&infer->in[0].shape, &infer->in[1].shape))
        return mu__error(MU_INVALID_ARGUMENT, "%s: dy %s and y %s must have the same shape", infer->op->name,
                         mu__shape_text(&infer->in[0].shape, dy), mu__shape_text(&infer->in[1].shape, y));
    return mu__infer_same(infer);
}

static mu_tensor *relu_grad_grad(mu_grad *g, int i)
{
    return i == 0 ? mu__apply2(&mu_op_relu_grad, NULL, g->dy, g->x[1]) : NULL;
}

static mu_status relu_grad_ref(const mu_kernel *kernel)
{
    const mu_view *dy = &kernel->in[0], *y = &kernel->in[1];
    for (int64_t i = 0; i < mu__elements(&dy->shape); i++)
        mu__write_real(&kernel->out[0], i, mu__read_real(y, i) > 0 ? mu__read_real(dy, i) : 0);
    return MU_OK;
}

MU_PER_ISA(relu_grad_f64, (const double *y, const double *dy, double *dx, int64_t n), (y, dy, dx, n))
{
    MU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

// Half types need no conversion: the numbers above 0 are the bits from 1 to infinity's.
MU_PER_ISA(relu_grad_float16, (const uint16_t *y, const uint16_t *dy, uint16_t *dx, uint16_t infinity, int64_t n),
           (y, dy, dx, infinity, n))
{
    MU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = (uint16_t)(y[i] - 1) < infinity ? dy[i] : 0;
}

static void relu_grad_range(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *kernel = arg;
    const void *y = kernel->in[1].data, *dy = kernel->in[0].data;
    void *dx = kernel->out[0].data;
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype == MU_F32)
        mu__kernels()->relu_grad(y, dy, dx, begin, end);
    else if (dtype == MU_F64)
        relu_grad_f64((const double *)y + begin, (const double *)dy + begin, (double *)dx + begin, end - begin);
    else
        relu_grad_float16((const uint16_t *)y + begin, (const uint16_t *)dy + begin, (uint16_t *)dx + begin,
                          dtype == MU_F16 ? 0x7c00 : 0x7f80, end - begin);
}

static mu_status relu_grad_fast(const mu_kernel *kernel)
{
    const int64_t n = mu__elements(&kernel->in[0].shape);
    mu__share_range(kernel->team, n, 1024, n, relu_grad_range, (void *)(uintptr_t)kernel);
    return MU_OK;
}

// The second input avoids 0, where the derivative jumps.
static const mu_sample relu_grad_samples[] = {
    {.n_in = 2, .in = {{2, {5, 7}}, {2, {5, 7}}}, .no_grad = 2},
    {.n_in = 2, .in = {{1, {0}}, {1, {0}}}, .no_grad = 2},
    {.n_in = 2, .in = {{0}, {0}}, .no_grad = 2},
    {0},
};

const mu_op mu_op_relu_grad = {
    .name = "relu_grad",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .flags = MU_OP_ELEMENTWISE,
    .in_place = 3,
    .infer = relu_grad_infer,
    .grad = relu_grad_grad,
    .ref = relu_grad_ref,
    .cpu = {.run = relu_grad_fast},
    .samples = relu_grad_samples,
    .lower = mu__lower_relu_grad,
};

// ---- Public function ----------------------------------------------------------------------------

mu_tensor *mu_nn_bias_add(mu_tensor *x, mu_tensor *bias) { return mu__apply2(&mu_op_bias_add, NULL, x, bias); }
