// Singular values and vectors of matrices, x = u diag(s) v' with s descending, and the largest singular value alone.
//
// x: [..., m, n] gives s [..., k], u [..., m, k], v [..., n, k] with k = min(m, n). LAPACK computes them in float64;
// matrices are scaled by a power of two and shared by the team; a matrix with NaN or infinity gives NaN.
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/linalg/lapack.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

// ---- All matrices -------------------------------------------------------------------------------

enum { NONE, EXHAUSTED, DIVERGED };

// Shared by the calls for parts of a batch. Outputs 1 and 2 of the kernel, the vectors, may be absent.
typedef struct svd_call {
    const mu_kernel *kernel;
    int64_t m, n, k;
    _Atomic int failed; // NONE, …
} svd_call;

// Converts a matrix to float64 and divides it by the smallest power of two above its largest element. Returns false if
// an element is not finite.
static bool load(const svd_call *call, int64_t matrix, double *x, int *exponent)
{
    const mu_view *in = &call->kernel->in[0];
    const int64_t elements = call->m * call->n;
    double most = 0;
    bool finite = true;
    for (int64_t i = 0; i < elements; i++) {
        x[i] = mu__read_element(in->dtype, in->data, matrix * elements + i);
        finite &= isfinite(x[i]) != 0;
        most = fmax(most, fabs(x[i]));
    }
    frexp(most, exponent);
    for (int64_t i = 0; i < elements; i++)
        x[i] = ldexp(x[i], -*exponent);
    return finite;
}

// Writes `rows` rows of k numbers, NaN if `from` is NULL. The steps are the distances between rows and within a row.
static void store(const mu_view *out, int64_t first, int64_t rows, int64_t k, const double *from, int64_t row_step,
                  int64_t step)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t p = 0; p < k; p++)
            mu__write_element(out->dtype, out->data, first + row * k + p, from ? from[row * row_step + p * step] : NAN);
}

// Returns false if the decomposition did not converge.
static bool run_matrix(const svd_call *call, const mu_svd_memory *memory, int64_t matrix)
{
    const mu_view *out = call->kernel->out;
    const int64_t m = call->m, n = call->n, k = call->k;
    int exponent = 0;
    const bool finite = load(call, matrix, memory->x, &exponent);
    if (finite && !mu__lapack_svd(memory))
        return false;
    for (int64_t p = 0; p < k && finite; p++)
        memory->values[p] = ldexp(memory->values[p], exponent);
    const double *values = finite ? memory->values : NULL;
    if (call->kernel->n_out == 1) {
        store(&out[0], matrix, 1, 1, values, 0, 1);
        return true;
    }
    store(&out[0], matrix * k, 1, k, values, 0, 1);
    store(&out[1], matrix * m * k, m, k, finite ? memory->left : NULL, k, 1);
    store(&out[2], matrix * n * k, n, k, finite ? memory->right : NULL, 1, n);
    return true;
}

static void run_matrices(void *arg, int64_t begin, int64_t end)
{
    svd_call *call = arg;
    mu_svd_memory memory = {.m = call->m, .n = call->n};
    if (!mu__lapack_memory(&memory, call->kernel->n_out > 1)) {
        call->failed = EXHAUSTED;
        return;
    }
    for (int64_t i = begin; i < end; i++)
        if (!run_matrix(call, &memory, i))
            call->failed = DIVERGED;
    mu__free(memory.block);
}

static mu_status run_all(const mu_kernel *kernel)
{
    const mu_shape *in = &kernel->in[0].shape;
    svd_call call = {.kernel = kernel, .m = in->dims[in->rank - 2], .n = in->dims[in->rank - 1]};
    const int64_t batches = mu__elements_between(in, 0, in->rank - 2);
    call.k = MU_MIN(call.m, call.n);
    if (call.k == 0 || batches == 0)
        return MU_OK;
    MU_TRY(mu__lapack_open(kernel->op->name));
    mu__share_range(kernel->team, batches, 1, batches * call.m * call.n * call.k * 8, run_matrices, &call);
    if (call.failed == EXHAUSTED)
        return mu__error(MU_RESOURCE_EXHAUSTED, "%s: no memory to work on a matrix of %lld by %lld; give smaller ones",
                         kernel->op->name, (long long)call.m, (long long)call.n);
    if (call.failed == DIVERGED)
        return mu__error(MU_INTERNAL, "%s: LAPACK's iteration did not converge for a matrix of %lld by %lld; scale it",
                         kernel->op->name, (long long)call.m, (long long)call.n);
    return MU_OK;
}

// ---- svd ----------------------------------------------------------------------------------------

static mu_status svd_infer(mu_infer *infer)
{
    const mu_shape *in = &infer->in[0].shape;
    char text[MU_SHAPE_TEXT];
    if (in->rank < 2)
        return mu__error(MU_INVALID_ARGUMENT, "svd: the input has shape %s; it must be matrices, [..., m, n]",
                         mu__shape_text(in, text));
    const int64_t m = in->dims[in->rank - 2], n = in->dims[in->rank - 1];
    const int64_t k = m == MU_UNKNOWN || n == MU_UNKNOWN ? MU_UNKNOWN : MU_MIN(m, n);
    for (int i = 0; i < 3; i++)
        infer->out[i] = infer->in[0];
    infer->out[0].shape.rank--;
    infer->out[0].shape.dims[in->rank - 2] = k;
    infer->out[0].shape.dims[in->rank - 1] = 0;
    infer->out[1].shape.dims[in->rank - 1] = k;
    infer->out[2].shape.dims[in->rank - 2] = n;
    infer->out[2].shape.dims[in->rank - 1] = k;
    return MU_OK;
}

static mu_tensor *rows_of(mu_tensor *s) { return mu_expand_dims(s, -2); }
static mu_tensor *columns_of(mu_tensor *s) { return mu_expand_dims(s, -1); }

// The rotation of the vectors: f o (u' du - (u' du)'), with f[i, j] = 1 / (s[j]^2 - s[i]^2).
static mu_tensor *turning(mu_tensor *s, mu_tensor *u, mu_tensor *du)
{
    mu_tensor *squares = mu_square(s), *apart = mu_subtract(rows_of(squares), columns_of(squares));
    mu_tensor *product = mu_matmul_transposed(u, du, true, false), *back = mu_matmul_transposed(du, u, true, false);
    return mu_divide_no_nan(mu_subtract(product, back), apart);
}

// The part of the vectors' change that is orthogonal to their span, divided by the singular values.
static mu_tensor *leaving(mu_tensor *s, mu_tensor *u, mu_tensor *du)
{
    mu_tensor *inside = mu_matmul(u, mu_matmul_transposed(u, du, true, false));
    return mu_divide_no_nan(mu_subtract(du, inside), rows_of(s));
}

static mu_tensor *sum_of(mu_tensor *a, mu_tensor *b) { return a && b ? mu_add(a, b) : a ? a : b; }

// J. Townsend, "Differentiating the Singular Value Decomposition", 2016.
static mu_tensor *svd_grad(mu_grad *g, int i)
{
    mu_tensor *s = g->y[0], *u = g->y[1], *v = g->y[2], *ds = g->dys[0], *du = g->dys[1], *dv = g->dys[2];
    mu_tensor *dx = NULL;
    (void)i;
    if (ds)
        dx = mu_matmul_transposed(mu_multiply(u, rows_of(ds)), v, false, true);
    if (du) {
        mu_tensor *inner = mu_multiply(turning(s, u, du), rows_of(s));
        dx = sum_of(dx, mu_matmul_transposed(mu_add(mu_matmul(u, inner), leaving(s, u, du)), v, false, true));
    }
    if (dv) {
        mu_tensor *inner = mu_multiply(columns_of(s), turning(s, v, dv));
        mu_tensor *turned = mu_matmul_transposed(mu_matmul(u, inner), v, false, true);
        dx = sum_of(dx, mu_add(turned, mu_matmul_transposed(u, leaving(s, v, dv), false, true)));
    }
    return dx;
}

#define NO_LOWERING                                                                                              \
    "StableHLO has no operation for singular values; call it outside of the function, or run the function on a " \
    "CPU device"

static const mu_sample samples_svd[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 3)}},
    {.n_in = 1, .in = {MU_DIMS(4, 2)}},
    {.n_in = 1, .in = {MU_DIMS(2, 2, 3)}},
    {.n_in = 1, .in = {MU_DIMS(2, 1, 1)}},
    {.n_in = 1, .in = {MU_DIMS(0, 3)}},
    {.n_in = 1, .in = {MU_DIMS(0, 2, 2)}},
    {0},
};
const mu_op mu_op_svd = {
    .name = "svd",
    .n_in = 1,
    .n_out = 3,
    .dtypes = MU_FLOATS,
    .infer = svd_infer,
    .grad = svd_grad,
    .ref = run_all,
    .samples = samples_svd,
    .no_lowering = NO_LOWERING,
};

// ---- spectral_norm ------------------------------------------------------------------------------

static mu_status spectral_norm_infer(mu_infer *infer)
{
    const mu_shape *in = &infer->in[0].shape;
    char text[MU_SHAPE_TEXT];
    if (in->rank < 2)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "spectral_norm: the input has shape %s; give it two axes or more, of which the last two are the matrices",
            mu__shape_text(in, text));
    infer->out[0] = infer->in[0];
    infer->out[0].shape.rank -= 2;
    for (int axis = in->rank - 2; axis < in->rank; axis++)
        infer->out[0].shape.dims[axis] = 0;
    return MU_OK;
}

static mu_status spectral_norm_ref(const mu_kernel *kernel)
{
    const mu_shape *in = &kernel->in[0].shape;
    if (in->dims[in->rank - 2] == 0 || in->dims[in->rank - 1] == 0) // an empty matrix: the maximum of no values
        for (int64_t i = 0; i < mu__elements(&kernel->out[0].shape); i++)
            mu__write_element(kernel->out[0].dtype, kernel->out[0].data, i, -INFINITY);
    return run_all(kernel);
}

// dy u v' for the largest singular value; equal values share the gradient, as in any maximum.
static mu_tensor *spectral_norm_grad(mu_grad *g, int i)
{
    mu_tensor *parts[3];
    (void)i;
    if (mu__apply(&mu_op_svd, NULL, 1, &g->x[0], 0, NULL, parts) != MU_OK)
        return NULL;
    mu_tensor *most = mu_reduce_max(parts[0], -1, .keep_dims = true);
    mu_tensor *taken = mu_cast(mu_equal(parts[0], most), parts[0]->dtype);
    mu_tensor *shares = mu_divide(taken, mu_reduce_sum(taken, -1, .keep_dims = true));
    mu_tensor *ds = mu_multiply(shares, mu_expand_dims(g->dys[0], -1));
    return mu_matmul_transposed(mu_multiply(parts[1], mu_expand_dims(ds, -2)), parts[2], false, true);
}

static const mu_sample samples_spectral_norm[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 3)}},    {.n_in = 1, .in = {MU_DIMS(4, 2)}},
    {.n_in = 1, .in = {MU_DIMS(2, 2, 3)}}, {.n_in = 1, .in = {MU_DIMS(2, 1, 1)}},
    {.n_in = 1, .in = {MU_DIMS(0, 3)}},    {.n_in = 1, .in = {MU_DIMS(0, 2, 2)}},
    {.n_in = 1, .in = {MU_DIMS(7, 5)}},    {0},
};
const mu_op mu_op_spectral_norm = {
    .name = "spectral_norm",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .infer = spectral_norm_infer,
    .grad = spectral_norm_grad,
    .ref = spectral_norm_ref,
    .samples = samples_spectral_norm,
    .no_lowering = NO_LOWERING,
};
