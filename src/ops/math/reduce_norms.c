// Reductions for norms: sums of x^2, |x|^3 and |x|, and the largest |x|. Reductions about a center, for variances and
// log-sum-exp: sums of (x - c)^2 and of e^(x - c), where c has x's shape with size 1 at the summed axes.
//
// The terms are computed in blocks that stay in the cache and are folded there by the plain reductions, so the tensor
// is read once and no temporary of its size is written. Reductions over axes that are not adjacent compute the whole
// tensor of terms. 16-bit floats are computed in float32.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/ops.h>

enum { SQUARES, CUBES, SIZES, LARGEST, SQUARES_ABOUT, EXP_ABOUT };
enum { PIECE = 8192, COLUMNS = 1024, ROWS = PIECE / COLUMNS }; // elements per block; its shape for columns
enum { LANES = 64, DIRECT = 64 }; // running sums per row; row length from which sums are computed while reading

// A tensor as [outer, n, inner], reduced along n; a center is [outer, inner].
typedef struct size_job {
    const mu_kernel *kernel;
    const char *center; // or NULL
    int64_t outer, n, inner;
    _Atomic int status;
} size_job;

#define SQUARE(x)  ((x) * (x))
#define SIZE_OF(x) ((x) < 0 ? -(x) : (x) + 0)
#define CUBE(x)    (SQUARE(x) * SIZE_OF(x))

#define MAP(T, name)                                                                 \
    MU_PER_ISA(name, (int variant, const T *x, T *y, int64_t n), (variant, x, y, n)) \
    {                                                                                \
        if (variant == SQUARES)                                                      \
            for (int64_t i = 0; i < n; i++)                                          \
                y[i] = SQUARE(x[i]);                                                 \
        else if (variant == CUBES)                                                   \
            for (int64_t i = 0; i < n; i++)                                          \
                y[i] = CUBE(x[i]);                                                   \
        else                                                                         \
            for (int64_t i = 0; i < n; i++)                                          \
                y[i] = SIZE_OF(x[i]);                                                \
    }
MAP(float, map_f32)
MAP(double, map_f64)

// Writes x - center, or its square. step 0: one number for all; 1: one number per element.
#define DIFFER(T, name)                                                                         \
    MU_PER_ISA(name, (bool square, const T *x, const T *center, int64_t step, T *y, int64_t n), \
               (square, x, center, step, y, n))                                                 \
    {                                                                                           \
        if (step == 0)                                                                          \
            for (int64_t i = 0; i < n; i++)                                                     \
                y[i] = x[i] - center[0];                                                        \
        else                                                                                    \
            for (int64_t i = 0; i < n; i++)                                                     \
                y[i] = x[i] - center[i];                                                        \
        for (int64_t i = 0; square && i < n; i++)                                               \
            y[i] = SQUARE(y[i]);                                                                \
    }
DIFFER(float, differ_f32)
DIFFER(double, differ_f64)

// Sums the terms of n elements in many lanes.
#define SUM(T, name, MADE)                                     \
    MU_PER_ISA(name, (const T *x, T *y, int64_t n), (x, y, n)) \
    {                                                          \
        T lanes[LANES] = {0}, sum = 0;                         \
        int64_t i = 0;                                         \
        for (; i + LANES <= n; i += LANES)                     \
            for (int lane = 0; lane < LANES; lane++)           \
                lanes[lane] += MADE(x[i + lane]);              \
        for (; i < n; i++)                                     \
            sum += MADE(x[i]);                                 \
        for (int half = LANES / 2; half > 0; half /= 2)        \
            for (int lane = 0; lane < half; lane++)            \
                lanes[lane] += lanes[lane + half];             \
        *y = lanes[0] + sum;                                   \
    }
SUM(float, squares_f32, SQUARE)
SUM(double, squares_f64, SQUARE)
SUM(float, cubes_f32, CUBE)
SUM(double, cubes_f64, CUBE)
SUM(float, sizes_f32, SIZE_OF)
SUM(double, sizes_f64, SIZE_OF)

typedef void sum_f32(const float *x, float *y, int64_t n);
typedef void sum_f64(const double *x, double *y, int64_t n);
static sum_f32 *const sums_f32[] = {[SQUARES] = squares_f32, [CUBES] = cubes_f32, [SIZES] = sizes_f32};
static sum_f64 *const sums_f64[] = {[SQUARES] = squares_f64, [CUBES] = cubes_f64, [SIZES] = sizes_f64};

static void map_elements(const mu_kernel *k, const char *x, char *y, int64_t n)
{
    const int variant = k->op->variant;
    if (k->in[0].dtype == MU_F32)
        map_f32(variant, (const float *)(const void *)x, (float *)(void *)y, n);
    else
        map_f64(variant, (const double *)(const void *)x, (double *)(void *)y, n);
}

// Computes the terms of n consecutive elements, before finish_elements; the center advances by `step` (0 or 1).
static void make_elements(const size_job *j, const char *x, const char *center, int64_t step, char *y, int64_t n)
{
    const bool square = j->kernel->op->variant == SQUARES_ABOUT;
    if (!j->center)
        map_elements(j->kernel, x, y, n);
    else if (j->kernel->in[0].dtype == MU_F32)
        differ_f32(square, (const float *)(const void *)x, (const float *)(const void *)center, step,
                   (float *)(void *)y, n);
    else
        differ_f64(square, (const double *)(const void *)x, (const double *)(const void *)center, step,
                   (double *)(void *)y, n);
}

// Applies the exponential to n elements in one call, because a call costs as much as several elements.
static void finish_elements(const size_job *j, char *y, int64_t n)
{
    if (j->kernel->op->variant != EXP_ABOUT)
        return;
    if (j->kernel->in[0].dtype == MU_F32)
        mu__kernels()->math_f32(MU_MATH_EXP, 0, (float *)(void *)y, (float *)(void *)y, n);
    else
        mu__kernels()->math_f64(MU_MATH_EXP, 0, (double *)(void *)y, (double *)(void *)y, n);
}

// Computes whole rows; each has one center.
static void make_rows(const size_job *j, int64_t row, int64_t rows, char *y)
{
    const mu_kernel *k = j->kernel;
    const int64_t element = (int64_t)mu_dtype_bytes(k->in[0].dtype);
    const char *x = (const char *)k->in[0].data + row * j->n * element;
    if (!j->center)
        map_elements(k, x, y, rows * j->n);
    for (int64_t i = 0; j->center && i < rows; i++)
        make_elements(j, x + i * j->n * element, j->center + (row + i) * element, 0, y + i * j->n * element, j->n);
    finish_elements(j, y, rows * j->n);
}

// Folds [rows, columns] of computed terms along one axis.
static mu_status fold(const mu_kernel *k, void *from, int64_t rows, int64_t columns, int axis, void *to)
{
    static const mu_team alone = {.n_threads = 1};
    const mu_op *op = k->op->variant == LARGEST ? &mu_op_reduce_max : &mu_op_reduce_sum;
    const mu_reduce_attrs attrs = {.axes = {1, {axis}}};
    mu_view in = {.dtype = k->in[0].dtype, .shape = MU_SHAPE(rows, columns), .data = from};
    mu_view out = {.dtype = in.dtype, .shape = MU_SHAPE(axis == 0 ? columns : rows), .data = to};
    mu_kernel copy = *k;
    copy.op = op;
    copy.attrs = &attrs;
    copy.in = &in;
    copy.out = &out;
    copy.team = &alone;
    return mu__run_direct(&copy);
}

// Whether the sum can be computed while the row is read.
static bool is_direct(const mu_kernel *k) { return k->op->variant < LARGEST; }

// Computes and folds one block of a row.
static mu_status fold_piece(const size_job *j, const char *x, const char *center, int64_t n, char *piece, char *y)
{
    const mu_kernel *k = j->kernel;
    const int variant = k->op->variant;
    if (!is_direct(k)) {
        make_elements(j, x, center, 0, piece, n);
        finish_elements(j, piece, n);
        return fold(k, piece, 1, n, 1, y);
    }
    if (k->in[0].dtype == MU_F32)
        sums_f32[variant]((const float *)(const void *)x, (float *)(void *)y, n);
    else
        sums_f64[variant]((const double *)(const void *)x, (double *)(void *)y, n);
    return MU_OK;
}

// Rows [begin, end): several short rows per block; a long row in several blocks, whose results are folded again.
static mu_status fold_rows(const size_job *j, int64_t begin, int64_t end, char *piece)
{
    const mu_kernel *k = j->kernel;
    const int64_t element = (int64_t)mu_dtype_bytes(k->in[0].dtype), n = j->n, pieces = (n + PIECE - 1) / PIECE;
    const char *x = k->in[0].data;
    char *y = k->out[0].data, *parts = mu__alloc((size_t)(pieces * element));
    mu_status status = parts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    const bool direct = pieces == 1 && n >= DIRECT && is_direct(k);
    for (int64_t row = begin; status == MU_OK && direct && row < end; row++)
        status = fold_piece(j, x + row * n * element, NULL, n, piece, y + row * element);
    for (int64_t row = begin, rows; status == MU_OK && !direct && row < end && pieces <= 1; row += rows) {
        rows = MU_MIN(PIECE / MU_MAX(n, 1), end - row);
        make_rows(j, row, rows, piece);
        status = fold(k, piece, rows, n, 1, y + row * element);
    }
    for (int64_t row = begin; status == MU_OK && row < end && pieces > 1; row++) {
        const char *center = j->center ? j->center + row * element : NULL;
        for (int64_t i = 0; status == MU_OK && i < pieces; i++) {
            const int64_t count = MU_MIN((int64_t)PIECE, n - i * PIECE);
            status = fold_piece(j, x + (row * n + i * PIECE) * element, center, count, piece, parts + i * element);
        }
        if (status == MU_OK)
            status = fold(k, parts, 1, pieces, 1, y + row * element);
    }
    mu__free(parts);
    return status;
}

// Some columns of one [n, inner], a few rows at a time; the result of the previous rows is the first row of the next
// fold.
static mu_status fold_columns(const size_job *j, int64_t o, int64_t column, int64_t width, char *piece)
{
    const mu_kernel *k = j->kernel;
    const int64_t element = (int64_t)mu_dtype_bytes(k->in[0].dtype), wide = width * element;
    const char *x = (const char *)k->in[0].data + (o * j->n * j->inner + column) * element;
    const char *center = j->center ? j->center + (o * j->inner + column) * element : NULL;
    char *y = (char *)k->out[0].data + (o * j->inner + column) * element;
    mu_status status = MU_OK;
    for (int64_t row = 0, rows = 0; status == MU_OK && (row < j->n || row == 0); row += rows) {
        const int64_t held = row > 0;
        rows = MU_MAX(MU_MIN(ROWS - held, j->n - row), 1);
        if (held)
            memcpy(piece, y, (size_t)wide);
        for (int64_t i = 0; i < rows && j->n > 0; i++)
            make_elements(j, x + (row + i) * j->inner * element, center, 1, piece + (held + i) * wide, width);
        finish_elements(j, piece + held * wide, j->n > 0 ? rows * width : 0);
        status = fold(k, piece, j->n > 0 ? held + rows : 0, width, 0, y);
    }
    return status;
}

static void fold_part(void *arg, int64_t begin, int64_t end)
{
    size_job *j = arg;
    char *piece = mu__alloc(PIECE * mu_dtype_bytes(j->kernel->in[0].dtype));
    mu_status status = piece ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && j->inner == 1)
        status = fold_rows(j, begin, end, piece);
    for (int64_t o = begin; j->inner > 1 && o < end; o++)
        for (int64_t column = 0; status == MU_OK && column < j->inner; column += COLUMNS)
            status = fold_columns(j, o, column, MU_MIN((int64_t)COLUMNS, j->inner - column), piece);
    if (status != MU_OK)
        j->status = (int)status;
    mu__free(piece);
}

// Axes that are not adjacent: computes all terms, then reduces that tensor.
static mu_status reduce_whole(const mu_kernel *k)
{
    const int64_t n = mu__elements(&k->in[0].shape);
    const size_t bytes = MU_MAX((size_t)n, 1) * mu_dtype_bytes(k->in[0].dtype);
    const mu_op *op = k->op->variant == LARGEST ? &mu_op_reduce_max : &mu_op_reduce_sum;
    mu_view made = k->in[0];
    mu_kernel copy = *k;
    made.data = mu__alloc_data(bytes);
    if (!made.data)
        return MU_RESOURCE_EXHAUSTED;
    map_elements(k, k->in[0].data, made.data, n);
    copy.op = op;
    copy.in = &made;
    const mu_status status = mu__run_direct(&copy);
    mu__free_data(made.data, bytes);
    return status;
}

static mu_status size_fast(const mu_kernel *k)
{
    const mu_ints *axes = &((const mu_reduce_attrs *)k->attrs)->axes;
    const mu_shape *shape = &k->in[0].shape;
    const int first = axes->n > 0 ? (int)axes->at[0] : shape->rank, behind = first + (int)axes->n;
    if (k->in[0].dtype != MU_F32 && k->in[0].dtype != MU_F64)
        return mu__run_as_f32(k, size_fast);
    if (axes->n > 0 && axes->at[axes->n - 1] != behind - 1)
        return reduce_whole(k);
    size_job job = {.kernel = k,
                    .center = k->n_in > 1 ? k->in[1].data : NULL,
                    .outer = mu__elements_between(shape, 0, first),
                    .n = mu__elements_between(shape, first, behind),
                    .inner = mu__elements_between(shape, behind, shape->rank)};
    if (job.inner > 0)
        mu__share_range(k->team, job.outer, 1, mu__elements(shape), fold_part, &job);
    return job.status == MU_OK ? MU_OK : mu__error((mu_status)job.status, "%s: no memory for a piece", k->op->name);
}

// ---- Plain loops --------------------------------------------------------------------------------

static double term_of(int variant, double x, double center)
{
    switch (variant) {
    case SQUARES: return x * x;
    case CUBES: return x * x * fabs(x);
    case SQUARES_ABOUT: return (x - center) * (x - center);
    case EXP_ABOUT: return exp(x - center);
    default: return fabs(x);
    }
}

static mu_status size_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0];
    const int variant = k->op->variant;
    mu_view totals = k->out[0], center = k->n_in > 1 ? k->in[1] : k->out[0];
    mu_totals sums;
    totals.shape = x->shape; // with size 1 at the reduced axes
    for (int64_t i = 0; i < ((const mu_reduce_attrs *)k->attrs)->axes.n; i++)
        totals.shape.dims[((const mu_reduce_attrs *)k->attrs)->axes.at[i]] = 1;
    center.shape = totals.shape;
    for (int64_t i = 0; i < mu__elements(&totals.shape); i++)
        mu__write_real(&totals, i, variant == LARGEST ? -INFINITY : 0);
    MU_TRY(mu__totals_open(&sums, &totals));
    for (int64_t i = 0; i < mu__elements(&x->shape); i++) {
        const int64_t at = mu__broadcast_at(&x->shape, &totals.shape, i);
        double term = term_of(variant, mu__read_real(x, i), k->n_in > 1 ? mu__read_real(&center, at) : 0);
        const mu_view one = {.dtype = MU_F64, .data = &term};
        mu__totals_combine(&sums, variant == LARGEST ? MU_COMBINE_MAX : MU_COMBINE_ADD, at, &one, 0);
    }
    mu__totals_close(&sums);
    return MU_OK;
}

static mu_status size_infer(mu_infer *infer) { return mu_op_reduce_sum.infer(infer); }

// Inputs (x, center). The axes must be adjacent, because they are walked as one.
static mu_status about_infer(mu_infer *infer)
{
    const mu_ints *axes = &((const mu_reduce_attrs *)infer->attrs)->axes;
    mu_shape wanted = infer->in[0].shape;
    char own[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    MU_TRY(size_infer(infer));
    for (int64_t i = 0; i < axes->n; i++) {
        wanted.dims[axes->at[i]] = 1;
        if (i > 0 && axes->at[i] != axes->at[i - 1] + 1)
            return mu__error(MU_INVALID_ARGUMENT, "%s: axes %lld and %lld are not adjacent; reduce them one by one",
                             infer->op->name, (long long)axes->at[i - 1], (long long)axes->at[i]);
    }
    if (mu__shape_compatible(&infer->in[1].shape, &wanted))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the center has shape %s, x with ones for its axes has %s",
                     infer->op->name, mu__shape_text(&infer->in[1].shape, own), mu__shape_text(&wanted, other));
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_tensor *with_axes_back(const mu_grad *g, mu_tensor *y)
{
    const mu_reduce_attrs *attrs = g->attrs;
    for (int64_t i = 0; y && i < attrs->axes.n && !attrs->keep_dims; i++)
        y = mu_expand_dims(y, (int)attrs->axes.at[i]);
    return y;
}

static mu_tensor *size_grad(mu_grad *g, int i)
{
    const mu_reduce_attrs *attrs = g->attrs;
    mu_tensor *dy = with_axes_back(g, g->dy), *x = g->x[0];
    int axes[MU_MAX_RANK];
    (void)i;
    if (g->op->variant == SQUARES)
        return mu_multiply(mu__scale(x, 2), dy);
    if (g->op->variant == CUBES)
        return mu_multiply(mu__scale(mu_multiply(x, mu_abs(x)), 3), dy);
    if (g->op->variant == SIZES)
        return mu_multiply(mu_sign(x), dy);
    for (int64_t a = 0; a < attrs->axes.n; a++)
        axes[a] = (int)attrs->axes.at[a];
    mu_tensor *is_largest = mu_cast(mu_equal(mu_abs(x), with_axes_back(g, g->y[0])), dy->dtype); // ties share it
    mu_tensor *count = mu_reduce_sum(is_largest, .axes = axes, .n_axes = (int)attrs->axes.n, .keep_dims = true);
    return mu_multiply(mu_multiply(mu_sign(x), is_largest), mu_divide(dy, count));
}

static mu_tensor *about_grad(mu_grad *g, int i)
{
    const mu_reduce_attrs *attrs = g->attrs;
    const bool squares = g->op->variant == SQUARES_ABOUT;
    mu_tensor *dy = with_axes_back(g, g->dy), *from = mu_subtract(g->x[0], g->x[1]);
    int axes[MU_MAX_RANK];
    if (i == 0)
        return mu_multiply(squares ? mu__scale(from, 2) : mu_exp(from), dy);
    if (!squares)
        return mu_neg(mu_multiply(with_axes_back(g, g->y[0]), dy));
    for (int64_t a = 0; a < attrs->axes.n; a++)
        axes[a] = (int)attrs->axes.at[a];
    mu_tensor *sum = mu_reduce_sum(from, .axes = axes, .n_axes = (int)attrs->axes.n, .keep_dims = true);
    return mu_multiply(mu__scale(sum, -2), dy);
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attr_spec size_fields[] = {
    {"axes", MU_ATTR_INTS, offsetof(mu_reduce_attrs, axes)},
    {"keep_dims", MU_ATTR_BOOL, offsetof(mu_reduce_attrs, keep_dims)},
    {0},
};
static const mu_reduce_attrs over_none = {{0, {0}}, false}, over_0 = {{1, {0}}, false}, over_1 = {{1, {1}}, true},
                             over_02 = {{2, {0, 2}}, false}, over_01 = {{2, {0, 1}}, false};
static const mu_sample samples_size[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &over_0},    {.n_in = 1, .in = {MU_DIMS(37, 3)}, .attrs = &over_0},
    {.n_in = 1, .in = {MU_DIMS(3, 37)}, .attrs = &over_1},   {.n_in = 1, .in = {MU_DIMS(3, 5, 2)}, .attrs = &over_02},
    {.n_in = 1, .in = {MU_DIMS(3, 7)}, .attrs = &over_01},   {.n_in = 1, .in = {MU_DIMS(3, 0)}, .attrs = &over_0},
    {.n_in = 1, .in = {MU_DIMS(2, 3)}, .attrs = &over_none}, {0},
};

#define SIZE(text, which)                                                                                 \
    .name = text, .variant = which, .n_in = 1, .n_out = 1, .dtypes = MU_FLOATS,                           \
    .attrs_bytes = sizeof(mu_reduce_attrs), .attrs = size_fields, .infer = size_infer, .grad = size_grad, \
    .ref = size_ref, .cpu = {.run = size_fast}, .samples = samples_size, .lower = mu__lower_reduce

const mu_op mu_op_reduce_squares = {SIZE("reduce_squares", SQUARES)};
const mu_op mu_op_reduce_cubes = {SIZE("reduce_cubes", CUBES)};
const mu_op mu_op_reduce_sizes = {SIZE("reduce_sizes", SIZES)};
const mu_op mu_op_reduce_largest = {SIZE("reduce_largest", LARGEST)};

static const mu_sample samples_about[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(1, 5)}, .attrs = &over_0},
    {.n_in = 2, .in = {MU_DIMS(37, 3), MU_DIMS(1, 3)}, .attrs = &over_0},
    {.n_in = 2, .in = {MU_DIMS(3, 37), MU_DIMS(3, 1)}, .attrs = &over_1},
    {.n_in = 2, .in = {MU_DIMS(3, 7), MU_DIMS(1, 1)}, .attrs = &over_01},
    {.n_in = 2, .in = {MU_DIMS(3, 0), MU_DIMS(1, 0)}, .attrs = &over_0},
    {.n_in = 2, .in = {MU_DIMS(2, 3), MU_DIMS(2, 3)}, .attrs = &over_none},
    {0},
};

#define ABOUT(text, which)                                                                                        \
    .name = text, .variant = which, .n_in = 2, .n_out = 1, .dtypes = MU_DTYPE_BIT(MU_F32) | MU_DTYPE_BIT(MU_F64), \
    .attrs_bytes = sizeof(mu_reduce_attrs), .attrs = size_fields, .infer = about_infer, .grad = about_grad,       \
    .ref = size_ref, .cpu = {.run = size_fast}, .samples = samples_about, .lower = mu__lower_reduce_about

const mu_op mu_op_reduce_squares_about = {ABOUT("reduce_squares_about", SQUARES_ABOUT)};
const mu_op mu_op_reduce_exp_about = {ABOUT("reduce_exp_about", EXP_ABOUT)};
