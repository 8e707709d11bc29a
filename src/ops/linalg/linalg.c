// Linear algebra beyond products: Cholesky factorisation, triangular systems, norms.
//
// The last two axes are matrices; the axes before are batch axes, shared by the team. float16 and bfloat16 are computed
// in float32. The gradient of a factorisation uses triangular solves, and the gradient of a solve uses another solve
// and a product, so both have gradients of any order.
#include "ops/core/attrs.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include "kernels/kernels.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <oneapi/dnnl/dnnl.h>

// Rows per block; bytes per vector; elements negated at a time; rows processed together for a single column.
enum { BLOCK = 64, VECTOR_BYTES = 64, NEGATED = 64 * 256, FEW = 8 };

// A thread's working memory: a block of the matrix, a tile of columns, and a negated part of a factor.
typedef struct block_memory {
    void *factor, *tile;
    double *negated; // for products of float64 only
    size_t bytes;
    _Atomic bool *exhausted; // set when oneDNN ran out of memory
} block_memory;

// c [m, n] -= a b. Rows of c are contiguous; a and b each have one stride of 1.
static void subtract_f32(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_col, const float *b,
                         int64_t b_row, int64_t b_col, int64_t m, int64_t n, int64_t k, const block_memory *memory)
{
    const bool transpose_a = a_col != 1, transpose_b = b_col != 1;
    if (dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, -1, a, transpose_a ? a_col : a_row, b,
                   transpose_b ? b_col : b_row, 1, c, c_row) != dnnl_success)
        *memory->exhausted = true;
}

// The plain product adds, so a is negated first, as much at a time as fits the memory.
static void subtract_f64(double *c, int64_t c_row, const double *a, int64_t a_row, int64_t a_col, const double *b,
                         int64_t b_row, int64_t b_col, int64_t m, int64_t n, int64_t k, const block_memory *memory)
{
    enum { DEPTH = 256, ROWS = NEGATED / DEPTH };
    double *negated = memory->negated;
    for (int64_t p = 0; p < k; p += DEPTH)
        for (int64_t i = 0; i < m; i += ROWS) {
            const int64_t depth = MU_MIN(DEPTH, k - p), rows = MU_MIN(ROWS, m - i);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t q = 0; q < depth; q++)
                    negated[r * depth + q] = -a[(i + r) * a_row + (p + q) * a_col];
            mu__gemm_for(MU_F64)(c + i * c_row, c_row, negated, depth, 1, b + p * b_row, b_row, b_col, rows, n, depth);
        }
}

#define T        float
#define FN(name) f32_##name
#define SUBTRACT subtract_f32
#include "ops/linalg/linalg_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#define SUBTRACT subtract_f64
#include "ops/linalg/linalg_loops.inc.c"

static mu_status need_square(const mu_infer *infer, int i)
{
    const mu_shape *shape = &infer->in[i].shape;
    const int64_t rows = shape->rank < 2 ? 0 : shape->dims[shape->rank - 2];
    const int64_t columns = shape->rank < 2 ? 1 : shape->dims[shape->rank - 1];
    char text[MU_SHAPE_TEXT];
    if (rows == columns || rows == MU_UNKNOWN || (columns == MU_UNKNOWN && shape->rank >= 2))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: input %d has shape %s; it must be square matrices, [..., n, n]",
                     infer->op->name, i, mu__shape_text(shape, text));
}

static int64_t matrices_in(const mu_shape *shape) { return mu__elements_between(shape, 0, shape->rank - 2); }

// Shared by the calls for parts of a batch; records the first failure.
typedef struct batch_call {
    const mu_kernel *kernel;
    int64_t n, columns;
    _Atomic int64_t failed; // matrix number; -1: none
    _Atomic bool exhausted;
} batch_call;

static mu_status run_batch(batch_call *call, int64_t batches, int64_t work,
                           void (*run)(void *call, int64_t begin, int64_t end))
{
    call->failed = -1;
    mu__share_range(call->kernel->team, batches, 1, work, run, call);
    return call->exhausted
               ? mu__error(MU_RESOURCE_EXHAUSTED, "%s: no memory for blocks of %d rows", call->kernel->op->name, BLOCK)
               : MU_OK;
}

static bool open_memory(batch_call *call, block_memory *memory)
{
    const size_t element = mu_dtype_bytes(call->kernel->in[0].dtype), rows = (size_t)MU_MIN(call->n, BLOCK);
    const size_t factor = rows * BLOCK * element, tile = rows * 4 * VECTOR_BYTES;
    const size_t bytes = factor + tile + (element == 8 && call->n > BLOCK ? NEGATED * element : 0);
    char *block = mu__alloc_data(bytes);
    if (!block)
        call->exhausted = true;
    else
        *memory =
            (block_memory){block, block + factor, (double *)(void *)(block + factor + tile), bytes, &call->exhausted};
    return block != NULL;
}

static void close_memory(const block_memory *memory) { mu__free_data(memory->factor, memory->bytes); }

// ---- cholesky -----------------------------------------------------------------------------------

static mu_status cholesky_infer(mu_infer *infer)
{
    MU_TRY(need_square(infer, 0));
    return mu__infer_same(infer);
}

static void factor_matrices(void *arg, int64_t begin, int64_t end)
{
    batch_call *call = arg;
    const mu_kernel *k = call->kernel;
    block_memory memory;
    if (!open_memory(call, &memory))
        return;
    for (int64_t i = begin; i < end; i++) {
        const size_t at = (size_t)(i * call->n * call->n) * mu_dtype_bytes(k->in[0].dtype);
        const char *a = (const char *)k->in[0].data + at;
        char *l = (char *)k->out[0].data + at;
        const bool done =
            k->in[0].dtype == MU_F32 ? f32_cholesky(a, call->n, l, &memory) : f64_cholesky(a, call->n, l, &memory);
        if (!done)
            call->failed = i;
    }
    close_memory(&memory);
}

mu_status mu__not_definite(int64_t matrix, int64_t matrices)
{
    return mu__error(MU_INVALID_ARGUMENT, "cholesky: matrix %lld of %lld is not positive definite", (long long)matrix,
                     (long long)matrices);
}

// One matrix, row by row: l[i][j] = (a[i][j] - the product of the rows so far) / l[j][j].
static bool factor_plainly(const mu_view *a, int64_t first, int64_t n, double *l)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double rest = mu__read_real(a, first + i * n + j);
            for (int64_t p = 0; p < j; p++)
                rest -= l[i * n + p] * l[j * n + p];
            if (i == j && !(rest > 0))
                return false;
            l[i * n + j] = i == j ? sqrt(rest) : rest / l[j * n + j];
        }
    return true;
}

static mu_status cholesky_ref(const mu_kernel *kernel)
{
    const mu_shape *shape = &kernel->in[0].shape;
    const int64_t n = shape->dims[shape->rank - 1], batches = matrices_in(shape);
    double *l = mu__calloc((size_t)(n * n), sizeof *l);
    mu_status status = l ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int64_t matrix = 0; status == MU_OK && matrix < batches; matrix++) {
        const int64_t first = matrix * n * n;
        if (!factor_plainly(&kernel->in[0], first, n, l))
            status = mu__not_definite(matrix, batches);
        for (int64_t i = 0; status == MU_OK && i < n * n; i++)
            mu__write_real(&kernel->out[0], first + i, l[i]);
    }
    mu__free(l);
    return status;
}

static mu_status cholesky_fast(const mu_kernel *kernel)
{
    if (kernel->in[0].dtype != MU_F32 && kernel->in[0].dtype != MU_F64)
        return mu__run_as_f32(kernel, cholesky_fast);
    const mu_shape *shape = &kernel->in[0].shape;
    batch_call call = {.kernel = kernel, .n = shape->dims[shape->rank - 1]};
    const int64_t batches = matrices_in(shape);
    MU_TRY(run_batch(&call, call.n ? batches : 0, batches * call.n * call.n * call.n, factor_matrices));
    return call.failed < 0 ? MU_OK : mu__not_definite(call.failed, batches);
}

// The same weights if a trace does not know n: compares row and column numbers in float32, which is exact up to 2^24.
static mu_tensor *counted_triangle(mu_tensor *x, bool lower, double on_diagonal)
{
    mu_tensor *ones = mu_ones_like(mu_cast(x, MU_F32));
    mu_tensor *rows = mu_cumsum(ones, -2, false, false), *columns = mu_cumsum(ones, -1, false, false);
    mu_tensor *beside = lower ? mu_greater(rows, columns) : mu_less(rows, columns);
    return mu_where(mu_equal(rows, columns), mu__scalar_like(x, on_diagonal), mu_cast(beside, x->dtype));
}

// Weights of an n by n matrix: one below (or above) the diagonal, `on_diagonal` on it, zero elsewhere.
static mu_tensor *triangle_like(mu_tensor *x, bool lower, double on_diagonal)
{
    const int64_t n = x->shape.dims[x->shape.rank - 1], dims[] = {n, n};
    if (n == MU_UNKNOWN)
        return counted_triangle(x, lower, on_diagonal);
    mu_tensor *weights = mu_tensor_new(x->dtype, 2, dims, NULL);
    for (int64_t i = 0; weights && i < n; i++)
        for (int64_t j = lower ? 0 : i; j < (lower ? i + 1 : n); j++)
            mu__write_element(x->dtype, mu__host_write(weights), i * n + j, i == j ? on_diagonal : 1);
    return weights;
}

static mu_tensor *exchanged(mu_tensor *x)
{
    int axes[MU_MAX_RANK];
    if (!x)
        return NULL;
    for (int i = 0; i < x->shape.rank; i++)
        axes[i] = i;
    axes[x->shape.rank - 2] = x->shape.rank - 1;
    axes[x->shape.rank - 1] = x->shape.rank - 2;
    return mu_transpose(x, axes);
}

// The gradient is (S + S') / 2 with S = L'^-1 F L^-1 and F the lower half of L' dL: a symmetric matrix shares its
// gradient between both halves.
static mu_tensor *cholesky_grad(mu_grad *g, int i)
{
    mu_tensor *l = g->y[0], *weights = triangle_like(l, true, 0.5);
    (void)i;
    if (!weights)
        return NULL;
    mu_tensor *lower_half = mu_multiply(mu_matmul_transposed(l, g->dy, true, false), weights);
    mu_tensor *left = mu_triangular_solve(l, lower_half, true, true);
    mu_tensor *s = mu_triangular_solve(l, exchanged(left), true, true);
    return mu__scale(mu_add(s, exchanged(s)), 0.5);
}

static const mu_sample samples_cholesky[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 1, 1)}, .low = {0.5}, .high = {2}},
    {.n_in = 1, .in = {MU_DIMS(0, 2, 2)}},
    {.n_in = 1, .in = {MU_DIMS(2, 0, 0)}},
    {0},
};
const mu_op mu_op_cholesky = {
    .name = "cholesky",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .fails_for = MU_FLOATS,
    .infer = cholesky_infer,
    .grad = cholesky_grad,
    .ref = cholesky_ref,
    .cpu = {.run = cholesky_fast},
    .samples = samples_cholesky,
    .lower = mu__lower_cholesky,
};

// ---- triangular_solve ---------------------------------------------------------------------------

static mu_status solve_infer(mu_infer *infer)
{
    const mu_shape *a = &infer->in[0].shape, *b = &infer->in[1].shape;
    char a_text[MU_SHAPE_TEXT], b_text[MU_SHAPE_TEXT];
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(need_square(infer, 0));
    const int64_t n = a->dims[a->rank - 1], rows = b->rank < 2 ? 0 : b->dims[b->rank - 2];
    if (b->rank < 2 || (n != rows && n != MU_UNKNOWN && rows != MU_UNKNOWN))
        return mu__error(MU_INVALID_ARGUMENT,
                         "triangular_solve: matrices %s and right-hand sides %s do not fit; those are [..., n, k]",
                         mu__shape_text(a, a_text), mu__shape_text(b, b_text));
    const mu_shape batch_a = mu__batch_axes(a), batch_b = mu__batch_axes(b);
    mu_shape out;
    MU_TRY(mu__broadcast(&batch_a, &batch_b, &out, infer->op->name));
    out.dims[out.rank++] = rows == MU_UNKNOWN ? n : rows;
    out.dims[out.rank++] = b->dims[b->rank - 1];
    infer->out[0] = (mu_spec){infer->in[0].dtype, out};
    return MU_OK;
}

// Index of the operand's matrix that broadcasts to matrix `index` of `out`.
static int64_t matrix_under(const mu_shape *out, const mu_shape *own, int64_t index)
{
    int64_t at = 0, stride = 1;
    for (int axis = out->rank - 3, i = own->rank - 3; i >= 0; axis--, i--) {
        at += own->dims[i] == 1 ? 0 : index % out->dims[axis] * stride;
        index /= out->dims[axis];
        stride *= own->dims[i];
    }
    return at;
}

static void solve_matrices(void *arg, int64_t begin, int64_t end)
{
    batch_call *call = arg;
    const mu_kernel *k = call->kernel;
    const mu_solve_attrs *attrs = k->attrs;
    const mu_view *a = &k->in[0], *b = &k->in[1], *x = &k->out[0];
    const size_t element = mu_dtype_bytes(a->dtype), own = (size_t)(call->n * call->columns) * element;
    const int64_t row = attrs->adjoint ? 1 : call->n, col = attrs->adjoint ? call->n : 1;
    block_memory memory;
    if (!open_memory(call, &memory))
        return;
    for (int64_t i = begin; i < end; i++) {
        const char *matrix =
            (const char *)a->data + (size_t)(matrix_under(&x->shape, &a->shape, i) * call->n * call->n) * element;
        char *to = (char *)x->data + (size_t)i * own;
        memcpy(to, (const char *)b->data + (size_t)matrix_under(&x->shape, &b->shape, i) * own, own);
        (a->dtype == MU_F32 ? f32_solve : f64_solve)(matrix, row, col, attrs->lower != attrs->adjoint, call->n, to,
                                                     call->columns, &memory);
    }
    close_memory(&memory);
}

// Element by element in the order of substitution: x[i] = (b[i] - a[i][j] x[j] of all known j) / a[i][i].
static mu_status solve_ref(const mu_kernel *kernel)
{
    const mu_solve_attrs *attrs = kernel->attrs;
    const mu_view *a = &kernel->in[0], *b = &kernel->in[1], *x = &kernel->out[0];
    const int64_t n = x->shape.dims[x->shape.rank - 2], columns = x->shape.dims[x->shape.rank - 1];
    const int64_t row = attrs->adjoint ? 1 : n, col = attrs->adjoint ? n : 1;
    const bool lower = attrs->lower != attrs->adjoint;
    double *known = mu__alloc((size_t)n * sizeof *known);
    if (!known)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t system = 0; n > 0 && system < mu__elements(&x->shape) / n; system++) {
        const int64_t matrix = system / columns, column = system % columns;
        const int64_t own = matrix_under(&x->shape, &a->shape, matrix) * n * n;
        const int64_t right = matrix_under(&x->shape, &b->shape, matrix) * n * columns + column;
        for (int64_t step = 0; step < n; step++) {
            const int64_t i = lower ? step : n - 1 - step;
            double rest = mu__read_real(b, right + i * columns);
            for (int64_t j = lower ? 0 : i + 1; j < (lower ? i : n); j++)
                rest -= mu__read_real(a, own + i * row + j * col) * known[j];
            known[i] = rest / mu__read_real(a, own + i * (row + col));
        }
        for (int64_t i = 0; i < n; i++)
            mu__write_real(x, (matrix * n + i) * columns + column, known[i]);
    }
    mu__free(known);
    return MU_OK;
}

static mu_status solve_fast(const mu_kernel *kernel)
{
    if (kernel->in[0].dtype != MU_F32 && kernel->in[0].dtype != MU_F64)
        return mu__run_as_f32(kernel, solve_fast);
    const mu_shape *out = &kernel->out[0].shape;
    batch_call call = {.kernel = kernel, .n = out->dims[out->rank - 2], .columns = out->dims[out->rank - 1]};
    const int64_t batches = matrices_in(out), work = batches * call.n * call.n * call.columns;
    return run_batch(&call, mu__elements(out) ? batches : 0, work, solve_matrices);
}

static mu_tensor *solve_with(const mu_solve_attrs *attrs, bool adjoint, mu_tensor *a, mu_tensor *b)
{
    mu_solve_attrs own;
    memset(&own, 0, sizeof own);
    own.lower = attrs->lower;
    own.adjoint = adjoint;
    return mu__apply2(&mu_op_triangular_solve, &own, a, b);
}

// dB = op(A)'^-1 dX; dA is the triangle of -dB X' (with adjoint: of -X dB').
static mu_tensor *solve_grad(mu_grad *g, int i)
{
    const mu_solve_attrs *attrs = g->attrs;
    if (!g->memo[0])
        g->memo[0] = solve_with(attrs, !attrs->adjoint, g->x[0], g->dy);
    mu_tensor *db = g->memo[0], *x = g->y[0];
    if (i == 1)
        return db ? mu__unbroadcast(g, db, 1) : NULL;
    mu_tensor *weights = triangle_like(g->x[0], attrs->lower, 1);
    mu_tensor *product =
        attrs->adjoint ? mu_matmul_transposed(x, db, false, true) : mu_matmul_transposed(db, x, false, true);
    mu_tensor *none = mu__scalar_like(product, 0); // zero even if the product is infinite outside the triangle
    mu_tensor *da = weights ? mu_neg(mu_where(mu_greater(weights, none), product, none)) : NULL;
    return mu__unbroadcast(g, da, 0);
}

static const mu_attr_spec solve_fields[] = {
    {"lower", MU_ATTR_BOOL, offsetof(mu_solve_attrs, lower)},
    {"adjoint", MU_ATTR_BOOL, offsetof(mu_solve_attrs, adjoint)},
    {0},
};
static const mu_solve_attrs lower_plain = {.lower = true}, lower_adjoint = {.lower = true, .adjoint = true},
                            upper_plain = {.lower = false}, upper_adjoint = {.adjoint = true};
static const mu_sample samples_solve[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 3), MU_DIMS(3, 4)}, .low = {1, -2}, .high = {2, 2}, .attrs = &lower_plain},
    {.n_in = 2, .in = {MU_DIMS(2, 3, 3), MU_DIMS(2, 3, 2)}, .low = {1, -2}, .high = {2, 2}, .attrs = &lower_adjoint},
    {.n_in = 2, .in = {MU_DIMS(1, 2, 2), MU_DIMS(3, 2, 1)}, .low = {1, -2}, .high = {2, 2}, .attrs = &upper_plain},
    {.n_in = 2, .in = {MU_DIMS(2, 1, 2, 2), MU_DIMS(3, 2, 1)}, .low = {1, -2}, .high = {2, 2}, .attrs = &upper_adjoint},
    {.n_in = 2, .in = {MU_DIMS(2, 2), MU_DIMS(2, 0)}, .low = {1, -2}, .high = {2, 2}, .attrs = &lower_plain},
    {.n_in = 2, .in = {MU_DIMS(4, 1, 1), MU_DIMS(4, 1, 3)}, .low = {1, -2}, .high = {2, 2}, .attrs = &lower_plain},
    {0},
};
const mu_op mu_op_triangular_solve = {
    .name = "triangular_solve",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_solve_attrs),
    .attrs = solve_fields,
    .infer = solve_infer,
    .grad = solve_grad,
    .ref = solve_ref,
    .cpu = {.run = solve_fast},
    .samples = samples_solve,
    .lower = mu__lower_triangular_solve,
};

mu_tensor *mu_triangular_solve(mu_tensor *matrix, mu_tensor *rhs, bool lower, bool adjoint)
{
    return solve_with(&(mu_solve_attrs){.lower = lower}, adjoint, matrix, rhs);
}

// ---- norm ---------------------------------------------------------------------------------------

// The largest singular value; moves the matrix axes to the end.
static mu_tensor *spectral_norm(mu_tensor *x, const int *axes)
{
    const int rank = x->shape.rank, row = mu__axis(axes[0], rank, "norm"), col = mu__axis(axes[1], rank, "norm");
    int order[MU_MAX_RANK], back[MU_MAX_RANK], n = 0;
    if (row < 0 || col < 0)
        return NULL;
    if (row == col) {
        mu__error(MU_INVALID_ARGUMENT, "norm: axis %d is given twice; a matrix has two axes", row);
        return NULL;
    }
    for (int i = 0; i < rank; i++)
        if (i != row && i != col)
            order[n++] = i;
    order[n++] = row;
    order[n] = col;
    for (int i = 0; i < rank; i++)
        back[order[i]] = i;
    mu_tensor *norm = mu__apply1(&mu_op_spectral_norm, NULL, mu_transpose(x, order));
    return mu_transpose(mu_expand_dims(mu_expand_dims(norm, -1), -1), back);
}

static mu_tensor *sum_of_sizes(mu_tensor *x, int n, const int *axes)
{
    return mu__dtype_is_float(x->dtype) ? mu__reduce_over(&mu_op_reduce_sizes, x, n, axes, true)
                                        : mu_reduce_sum(mu_abs(x), .axes = axes, .n_axes = n, .keep_dims = true);
}

static mu_tensor *matrix_norm(mu_tensor *x, double order, const int *axes)
{
    if (order == 2)
        return spectral_norm(x, axes);
    // Sums of columns or of rows. Keeps the axes, so that the axis numbers stay valid.
    const bool columns = order == 1;
    mu_tensor *sums = sum_of_sizes(x, 1, &axes[columns ? 0 : 1]);
    return mu_reduce_max(sums, axes[columns ? 1 : 0], .keep_dims = true);
}

static mu_tensor *vector_norm(mu_tensor *x, double order, int n, const int *axes)
{
    const bool real = mu__dtype_is_float(x->dtype);
    if (order == MU_NORM_EUCLIDEAN || order == 2)
        return mu_sqrt(real ? mu__reduce_over(&mu_op_reduce_squares, x, n, axes, true)
                            : mu_reduce_sum(mu_square(x), .axes = axes, .n_axes = n, .keep_dims = true));
    if (order == 1)
        return sum_of_sizes(x, n, axes);
    if (isinf(order))
        return real ? mu__reduce_over(&mu_op_reduce_largest, x, n, axes, true)
                    : mu_reduce_max(mu_abs(x), .axes = axes, .n_axes = n, .keep_dims = true);
    mu_tensor *sum;
    if (order == 3 && real)
        sum = mu__reduce_over(&mu_op_reduce_cubes, x, n, axes, true);
    else
        sum = mu_reduce_sum(mu_pow(mu_abs(x), mu__scalar_like(x, order)), .axes = axes, .n_axes = n, .keep_dims = true);
    return mu_pow(sum, mu__scalar_like(x, 1 / order));
}

mu_tensor *mu_norm_with(const mu_norm_args *given)
{
    mu_norm_args args;
    mu_axes named;
    int n;
    const int *axes;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_norm") != MU_OK ||
        MU_AXES_TAKE(&args, -1, &named, "mu_norm") != MU_OK)
        return NULL;
    mu__axes_or_all(args.x, &named, &n, &axes);
    const double order = args.order;
    const bool some = named.named && axes == named.at, matrices = some && n == 2 && order != MU_NORM_EUCLIDEAN;
    if (!args.x || !(order >= 0) || (some && (!axes || (n != 1 && n != 2))) ||
        (matrices && order != 1 && order != 2 && !isinf(order))) {
        mu__error(MU_INVALID_ARGUMENT,
                  "norm: order %g over %d axes; vectors (one axis, or all elements) take any positive order, matrices "
                  "(two axes) 1, 2, INFINITY and MU_NORM_EUCLIDEAN",
                  order, n);
        return NULL;
    }
    mu_tensor *norm = matrices ? matrix_norm(args.x, order, axes) : vector_norm(args.x, order, n, axes);
    if (args.keep_dims || !norm)
        return mu__composed1("norm", args.x, norm);
    return mu_reduce_sum(norm, .axes = axes, .n_axes = n);
}
