// softmax, log_softmax and the cross-entropies of logits: op definitions and public functions.
//
// The cross-entropies have their gradient as a hidden second output, because the forward pass computes all that it
// needs. Second derivatives come from the gradient of that output.
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn_loops.h"

#include "kernels/kernels.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

static const mu_attr_spec axis_fields[] = {{"axis", MU_ATTR_INT, offsetof(mu_axis_attrs, axis)}, {0}};

static mu_tensor *sum_keeping(mu_tensor *x, int axis) { return mu_reduce_sum(x, axis, .keep_dims = true); }

static mu_tensor *multiply(mu_tensor *a, mu_tensor *b) { return mu__apply2(&mu_op_multiply, NULL, a, b); }

static mu_tensor *subtract(mu_tensor *a, mu_tensor *b) { return mu__apply2(&mu_op_subtract, NULL, a, b); }

static mu_tensor *add(mu_tensor *a, mu_tensor *b) { return mu__apply2(&mu_op_add, NULL, a, b); }

// y (dy - sum(y dy)): the gradient of softmax, with y its result.
static mu_tensor *softmax_jacobian(mu_tensor *y, mu_tensor *dy, int axis)
{
    return multiply(y, subtract(dy, sum_keeping(multiply(y, dy), axis)));
}

// ---- softmax and log_softmax --------------------------------------------------------------------

static mu_status softmax_infer(mu_infer *infer)
{
    const mu_axis_attrs *attrs = infer->attrs;
    if (mu__axis((int)attrs->axis, infer->in[0].shape.rank, infer->op->name) < 0)
        return MU_INVALID_ARGUMENT;
    return mu__infer_same(infer);
}

static mu_tensor *softmax_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_softmax_grad, g->attrs, g->dy, g->y[0]);
}

static mu_tensor *log_softmax_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_log_softmax_grad, g->attrs, g->dy, g->y[0]);
}

static mu_status softmax_ref(const mu_kernel *kernel)
{
    const mu_axis_attrs *attrs = kernel->attrs;
    const mu_view *x = &kernel->in[0];
    const mu_nn_loops *loops = mu__nn_loops(x->dtype);
    if (!loops)
        return mu__run_as_f32(kernel, softmax_ref);
    const int axis = mu__axis((int)attrs->axis, x->shape.rank, kernel->op->name);
    const int64_t n = x->shape.dims[axis];
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < x->shape.rank; i++)
        *(i < axis ? &outer : &inner) *= i == axis ? 1 : x->shape.dims[i];
    const size_t element = mu_dtype_bytes(x->dtype);
    for (int64_t o = 0; o < outer && n > 0; o++)
        for (int64_t i = 0; i < inner; i++) {
            const size_t at = element * (size_t)(o * n * inner + i);
            loops->softmax((const char *)x->data + at, (char *)kernel->out[0].data + at, n, inner,
                           kernel->op == &mu_op_log_softmax);
        }
    return MU_OK;
}

// Softmax over `n` rows of `width` columns, rows `step` apart, with vectorised exponentials. Sums are in double, row
// after row. A NaN makes its column's sum NaN, and so the column.
enum { COLUMNS = 128 };

MU_PER_ISA(subtract_from, (const float *x, const float *most, float *y, int64_t width), (x, most, y, width))
{
    for (int64_t j = 0; j < width; j++)
        y[j] = x[j] - most[j];
}

MU_PER_ISA(subtract_both_from, (const float *x, const float *most, const float *offset, float *y, int64_t width),
           (x, most, offset, y, width))
{
    for (int64_t j = 0; j < width; j++)
        y[j] = (x[j] - most[j]) - offset[j];
}

MU_PER_ISA(column_maxima, (const float *x, int64_t n, int64_t step, int64_t width, float *most),
           (x, n, step, width, most))
{
    for (int64_t j = 0; j < width; j++)
        most[j] = x[j];
    for (int64_t i = 1; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            most[j] = x[i * step + j] > most[j] ? x[i * step + j] : most[j];
}

MU_PER_ISA(add_to_sums, (const float *e, double *sums, int64_t width), (e, sums, width))
{
    for (int64_t j = 0; j < width; j++)
        sums[j] += (double)e[j];
}

MU_PER_ISA(divide_by, (float *y, const float *sums, int64_t width), (y, sums, width))
{
    for (int64_t j = 0; j < width; j++)
        y[j] /= sums[j];
}

static void softmax_columns(const float *x, float *y, int64_t n, int64_t step, int64_t width, bool logarithm)
{
    const mu_kernels *kernels = mu__kernels();
    float most[COLUMNS], shifted[COLUMNS], totals[COLUMNS];
    double sums[COLUMNS] = {0};
    column_maxima(x, n, step, width, most);
    for (int64_t i = 0; i < n; i++) {
        float *e = logarithm ? shifted : y + i * step;
        subtract_from(x + i * step, most, e, width);
        kernels->math_f32(MU_MATH_EXP, 0, e, e, width);
        add_to_sums(e, sums, width);
    }
    for (int64_t j = 0; j < width; j++)
        totals[j] = (float)(logarithm ? log(sums[j]) : sums[j]);
    for (int64_t i = 0; i < n; i++)
        if (logarithm)
            subtract_both_from(x + i * step, most, totals, y + i * step, width);
        else
            divide_by(y + i * step, totals, width);
}

// ---- Op definitions -----------------------------------------------------------------------------

// Rows of n elements; 16-bit floats go through a row of float32.
static mu_status softmax_rows(const mu_kernel *kernel, int64_t rows, int64_t n, bool logarithm)
{
    const mu_kernels *kernels = mu__kernels();
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype == MU_F64) {
        kernels->softmax_f64(kernel->in[0].data, kernel->out[0].data, n, logarithm, 0, rows);
        return MU_OK;
    }
    if (dtype == MU_F32) {
        kernels->softmax(kernel->in[0].data, kernel->out[0].data, n, logarithm, 0, rows);
        return MU_OK;
    }
    const uint16_t *x = kernel->in[0].data;
    uint16_t *y = kernel->out[0].data;
    float *wide = mu__alloc((size_t)n * sizeof *wide);
    if (!wide)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t row = 0; row < rows; row++, x += n, y += n) {
        mu__convert(MU_F32, wide, dtype, x, n);
        kernels->softmax(wide, wide, n, logarithm, 0, 1);
        mu__convert(dtype, y, MU_F32, wide, n);
    }
    mu__free(wide);
    return MU_OK;
}

static mu_status softmax_prepare(mu_prepare *prepare)
{
    const mu_axis_attrs *attrs = prepare->attrs;
    const mu_shape *shape = &prepare->in[0].shape;
    const int axis = mu__axis((int)attrs->axis, shape->rank, prepare->op->name);
    prepare->declined = prepare->in[0].dtype == MU_F64 && mu__elements_between(shape, axis + 1, shape->rank) != 1;
    return MU_OK;
}

static mu_status softmax_fast(const mu_kernel *kernel)
{
    const mu_axis_attrs *attrs = kernel->attrs;
    const mu_shape *shape = &kernel->in[0].shape;
    const mu_dtype dtype = kernel->in[0].dtype;
    const bool logarithm = kernel->op == &mu_op_log_softmax;
    const int axis = mu__axis((int)attrs->axis, shape->rank, kernel->op->name);
    const int64_t n = shape->dims[axis], outer = mu__elements_between(shape, 0, axis);
    const int64_t inner = mu__elements_between(shape, axis + 1, shape->rank);
    const float *x = kernel->in[0].data;
    float *y = kernel->out[0].data;
    if (n == 0 || outer == 0 || inner == 0)
        return MU_OK;
    if (inner == 1)
        return softmax_rows(kernel, outer, n, logarithm);
    if (dtype != MU_F32)
        return mu__run_as_f32(kernel, softmax_fast);
    for (int64_t o = 0; o < outer; o++, x += n * inner, y += n * inner)
        for (int64_t j = 0; j < inner; j += COLUMNS)
            softmax_columns(x + j, y + j, n, inner, MU_MIN((int64_t)COLUMNS, inner - j), logarithm);
    return MU_OK;
}

static const mu_axis_attrs last_axis = {-1}, first_axis = {0}, middle_axis = {1};

static const mu_sample softmax_samples[] = {
    {.n_in = 1, .in = {{2, {5, 7}}}, .attrs = &last_axis},      {.n_in = 1, .in = {{2, {4, 3}}}, .attrs = &first_axis},
    {.n_in = 1, .in = {{3, {2, 5, 3}}}, .attrs = &middle_axis}, {.n_in = 1, .in = {{2, {3, 1}}}, .attrs = &last_axis},
    {.n_in = 1, .in = {{2, {0, 3}}}, .attrs = &last_axis},      {0},
};

const mu_op mu_op_softmax = {
    .name = "softmax",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_axis_attrs),
    .attrs = axis_fields,
    .infer = softmax_infer,
    .grad = softmax_grad,
    .ref = softmax_ref,
    .samples = softmax_samples,
    .cpu = {.prepare = softmax_prepare, .run = softmax_fast},
    .lower = mu__lower_softmax,
};

const mu_op mu_op_log_softmax = {
    .name = "log_softmax",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_axis_attrs),
    .attrs = axis_fields,
    .infer = softmax_infer,
    .grad = log_softmax_grad,
    .ref = softmax_ref,
    .samples = softmax_samples,
    .cpu = {.prepare = softmax_prepare, .run = softmax_fast},
    .lower = mu__lower_softmax,
};

// ---- sparse_softmax_cross_entropy: (logits, labels) -> loss, gradient ---------------------------

static mu_status sparse_infer(mu_infer *infer)
{
    char logits_text[MU_SHAPE_TEXT], labels_text[MU_SHAPE_TEXT];
    const mu_shape *logits = &infer->in[0].shape, *labels = &infer->in[1].shape;
    mu_shape rows = *logits;
    rows.rank = MU_MAX(logits->rank - 1, 0);
    if (!mu__dtype_is_integer(infer->in[1].dtype))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: labels are integers, got %s; for one-hot labels use the categorical cross-entropy, which "
                         "is not sparse",
                         infer->op->name, mu_dtype_name(infer->in[1].dtype));
    if (logits->rank < 1 || !mu__shape_compatible(&rows, labels))
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: labels must have the shape of the logits without their last axis, got labels %s and logits %s",
            infer->op->name, mu__shape_text(labels, labels_text), mu__shape_text(logits, logits_text));
    infer->out[0] = (mu_spec){infer->in[0].dtype, rows};
    infer->out[1] = infer->in[0];
    return MU_OK;
}

// Broadcasts dy, one number per row, over the classes.
static mu_tensor *over_classes(mu_tensor *dy, mu_tensor *by) { return multiply(mu_expand_dims(dy, -1), by); }

static mu_tensor *sparse_grad(mu_grad *g, int i)
{
    if (i == 1)
        return NULL;
    mu_tensor *dx = g->dys[0] ? over_classes(g->dys[0], g->y[1]) : NULL;
    if (!g->dys[1])
        return dx;
    mu_tensor *second = softmax_jacobian(mu_nn_softmax(g->x[0], -1), g->dys[1], -1);
    return dx ? add(dx, second) : second;
}

mu_status mu__label_error(const mu_op *op, int64_t label, int64_t classes, int64_t row)
{
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: label %lld in row %lld is outside the valid range 0 to %lld (the logits have %lld classes). "
                     "Count labels from 0, and give the last layer as many units as there are classes",
                     op->name, (long long)label, (long long)row, (long long)classes - 1, (long long)classes);
}

static mu_status sparse_ref(const mu_kernel *kernel)
{
    const mu_view *logits = &kernel->in[0], *labels = &kernel->in[1];
    const mu_nn_loops *loops = mu__nn_loops(logits->dtype);
    if (!loops)
        return mu__run_as_f32(kernel, sparse_ref);
    const int64_t rows = mu__elements(&labels->shape), classes = logits->shape.dims[logits->shape.rank - 1];
    const size_t element = mu_dtype_bytes(logits->dtype), bytes = element * (size_t)classes;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t label = mu__read_whole(labels, r);
        if (label < 0 || label >= classes)
            return mu__label_error(kernel->op, label, classes, r);
        loops->cross_entropy((const char *)logits->data + bytes * (size_t)r, NULL, label,
                             (char *)kernel->out[0].data + element * (size_t)r,
                             (char *)kernel->out[1].data + bytes * (size_t)r, classes);
    }
    return MU_OK;
}

static mu_status sparse_prepare(mu_prepare *prepare)
{
    const mu_dtype labels = prepare->in[1].dtype;
    const mu_shape *logits = &prepare->in[0].shape;
    MU_TRY(mu__prepare_f32(prepare));
    if (logits->dims[logits->rank - 1] < 1 || (labels != MU_U8 && labels != MU_I32 && labels != MU_I64))
        prepare->declined = true;
    return MU_OK;
}

static mu_status sparse_fast(const mu_kernel *kernel)
{
    const mu_view *logits = &kernel->in[0], *labels = &kernel->in[1];
    const int64_t rows = mu__elements(&labels->shape), classes = logits->shape.dims[logits->shape.rank - 1];
    const int64_t bad = mu__kernels()->softmax_xent(logits->data, labels->data, (int)mu_dtype_bytes(labels->dtype),
                                                    kernel->out[0].data, kernel->out[1].data, classes, 0, rows);
    if (bad < 0)
        return MU_OK;
    return mu__label_error(kernel->op, mu__read_whole(labels, bad), classes, bad);
}

static const mu_sample sparse_samples[] = {
    {.n_in = 2, .in = {{2, {5, 7}}, {1, {5}}}, .low = {-2, 0}, .high = {2, 7}, .dtypes = {0, MU_I64}, .no_grad = 2},
    {.n_in = 2,
     .in = {{3, {2, 3, 4}}, {2, {2, 3}}},
     .low = {-9, 0},
     .high = {9, 4},
     .dtypes = {0, MU_I32},
     .no_grad = 2},
    {.n_in = 2, .in = {{2, {6, 1}}, {1, {6}}}, .low = {-2, 0}, .high = {2, 1}, .dtypes = {0, MU_U8}, .no_grad = 2},
    {.n_in = 2, .in = {{2, {0, 4}}, {1, {0}}}, .low = {-2, 0}, .high = {2, 4}, .dtypes = {0, MU_I64}, .no_grad = 2},
    {0},
};

const mu_op mu_op_sparse_softmax_cross_entropy = {
    .name = "sparse_softmax_cross_entropy",
    .n_in = 2,
    .n_out = 2,
    .dtypes = MU_FLOATS,
    .fails_for = MU_FLOATS,
    .infer = sparse_infer,
    .grad = sparse_grad,
    .ref = sparse_ref,
    .cpu = {sparse_prepare, sparse_fast, NULL},
    .samples = sparse_samples,
    .lower = mu__lower_cross_entropy,
};

// ---- softmax_cross_entropy: (logits, labels) -> loss, gradient ----------------------------------

static mu_status dense_infer(mu_infer *infer)
{
    char logits_text[MU_SHAPE_TEXT], labels_text[MU_SHAPE_TEXT];
    const mu_shape *logits = &infer->in[0].shape, *labels = &infer->in[1].shape;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    if (logits->rank < 1 || !mu__shape_compatible(logits, labels))
        return mu__error(MU_INVALID_ARGUMENT, "%s: logits %s and labels %s must have the same shape", infer->op->name,
                         mu__shape_text(logits, logits_text), mu__shape_text(labels, labels_text));
    infer->out[0] = infer->in[0];
    infer->out[0].shape.rank--;
    infer->out[1] = infer->in[0];
    return MU_OK;
}

static mu_tensor *dense_grad(mu_grad *g, int i)
{
    mu_tensor *first = NULL, *second = NULL;
    if (g->dys[0])
        first = over_classes(g->dys[0], i == 0 ? g->y[1] : mu__scale(mu_nn_log_softmax(g->x[0], -1), -1));
    if (g->dys[1])
        second = i == 0 ? softmax_jacobian(mu_nn_softmax(g->x[0], -1), g->dys[1], -1) : mu__scale(g->dys[1], -1);
    return first && second ? add(first, second) : first ? first : second;
}

static mu_status dense_ref(const mu_kernel *kernel)
{
    const mu_view *logits = &kernel->in[0];
    const mu_nn_loops *loops = mu__nn_loops(logits->dtype);
    if (!loops)
        return mu__run_as_f32(kernel, dense_ref);
    const int64_t rows = mu__elements(&kernel->out[0].shape), classes = logits->shape.dims[logits->shape.rank - 1];
    const size_t element = mu_dtype_bytes(logits->dtype), bytes = element * (size_t)classes;
    for (int64_t r = 0; r < rows; r++)
        loops->cross_entropy((const char *)logits->data + bytes * (size_t)r,
                             (const char *)kernel->in[1].data + bytes * (size_t)r, -1,
                             (char *)kernel->out[0].data + element * (size_t)r,
                             (char *)kernel->out[1].data + bytes * (size_t)r, classes);
    return MU_OK;
}

// No gradient samples for arbitrary labels: as in TensorFlow, the hidden output is the derivative only if each row of
// labels sums to 1. With a single class all rows are ones.
static const mu_sample dense_samples[] = {
    {.n_in = 2, .in = {{2, {5, 7}}, {2, {5, 7}}}, .low = {-2, 0}, .high = {2, 1}, .no_grad = 3},
    {.n_in = 2, .in = {{2, {5, 1}}, {2, {5, 1}}}, .low = {-2, 1}, .high = {2, 1}},
    {.n_in = 2, .in = {{2, {0, 3}}, {2, {0, 3}}}, .no_grad = 3},
    {0},
};

// One row: dx = softmax(x) - p, from exponentials in dx and their sum; returns the loss against p.
MU_PER_ISA_RESULT(double, finish_row, (const float *x, const float *p, float max, float sum, float *dx, int64_t n),
                  (x, p, max, sum, dx, n))
{
    const double offset = log((double)sum) + (double)max;
    double lanes[8] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++)
            lanes[lane] += (double)p[i + lane] * (offset - (double)x[i + lane]);
    for (; i < n; i++)
        rest += (double)p[i] * (offset - (double)x[i]);
    MU_INDEPENDENT
    for (int64_t j = 0; j < n; j++)
        dx[j] = dx[j] / sum - p[j];
    for (int lane = 0; lane < 8; lane++)
        rest += lanes[lane];
    return rest;
}

static mu_status dense_fast(const mu_kernel *kernel)
{
    const mu_shape *shape = &kernel->in[0].shape;
    const int64_t rows = mu__elements(&kernel->out[0].shape), classes = shape->dims[shape->rank - 1];
    const float *x = kernel->in[0].data, *p = kernel->in[1].data;
    float *loss = kernel->out[0].data, *dx = kernel->out[1].data;
    for (int64_t r = 0; r < rows; r++, x += classes, p += classes, dx += classes) {
        float max = 0;
        const float sum = classes > 0 ? mu__kernels()->softmax_row(x, dx, classes, &max) : 1;
        loss[r] = (float)finish_row(x, p, max, sum, dx, classes);
    }
    return MU_OK;
}

const mu_op mu_op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .n_in = 2,
    .n_out = 2,
    .dtypes = MU_FLOATS,
    .infer = dense_infer,
    .grad = dense_grad,
    .ref = dense_ref,
    .samples = dense_samples,
    .cpu = {.prepare = mu__prepare_f32, .run = dense_fast},
    .lower = mu__lower_cross_entropy,
};

// ---- Public functions ---------------------------------------------------------------------------

mu_tensor *mu_nn_softmax(mu_tensor *x, int axis) { return mu__apply1(&mu_op_softmax, &(mu_axis_attrs){axis}, x); }

mu_tensor *mu_nn_log_softmax(mu_tensor *x, int axis)
{
    return mu__apply1(&mu_op_log_softmax, &(mu_axis_attrs){axis}, x);
}

mu_tensor *mu_nn_sparse_softmax_cross_entropy(mu_tensor *labels, mu_tensor *logits)
{
    mu_tensor *in[] = {logits, labels}, *out[2];
    return mu__apply(&mu_op_sparse_softmax_cross_entropy, NULL, 2, in, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

mu_tensor *mu_nn_softmax_cross_entropy(mu_tensor *labels, mu_tensor *logits)
{
    mu_tensor *in[] = {logits, labels}, *out[2];
    return mu__apply(&mu_op_softmax_cross_entropy, NULL, 2, in, 0, NULL, out) == MU_OK ? out[0] : NULL;
}
