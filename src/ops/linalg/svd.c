// Singular values and vectors, by one-sided Jacobi rotations: x = u diag(s) v' with s descending.
//
// x: [..., m, n] gives s [..., k], u [..., m, k], v [..., n, k] with k = min(m, n). Pairs of columns are rotated until
// all are orthogonal, which computes small values as exactly as large ones. Works in float64; matrices are shared by
// the team; a matrix with NaN or infinity gives NaN. spectral.c is faster for the largest value alone.
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

enum { SWEEPS = 60, LANES = 8 };

// ---- Shapes -------------------------------------------------------------------------------------

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

// ---- One matrix ---------------------------------------------------------------------------------

// The matrix, or its transpose if it is wide, as `count` contiguous columns of `length` numbers, and the product of all
// rotations in the same layout. At the end the columns are left singular vectors times singular values.
typedef struct jacobi {
    int64_t count, length;
    double *columns, *rotations, *values;
} jacobi;

// The sums of a a, b b and a b, each in several lanes.
MU_CLONES
static void dots(const double *restrict a, const double *restrict b, int64_t n, double sums[3])
{
    double aa[LANES] = {0}, bb[LANES] = {0}, ab[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            aa[lane] += a[i + lane] * a[i + lane];
            bb[lane] += b[i + lane] * b[i + lane];
            ab[lane] += a[i + lane] * b[i + lane];
        }
    for (int lane = 0; i < n; i++, lane++) {
        aa[lane] += a[i] * a[i];
        bb[lane] += b[i] * b[i];
        ab[lane] += a[i] * b[i];
    }
    sums[0] = sums[1] = sums[2] = 0;
    for (int lane = 0; lane < LANES; lane++) {
        sums[0] += aa[lane];
        sums[1] += bb[lane];
        sums[2] += ab[lane];
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sums[3];
    dots(a, b, n, sums);
    return sums[2];
}

MU_CLONES
static void rotate(double *restrict a, double *restrict b, int64_t n, double cosine, double sine)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i];
        a[i] = cosine * x - sine * y;
        b[i] = sine * x + cosine * y;
    }
}

// Rotates two columns to be orthogonal; returns false if they already are, within rounding error of the sum.
static bool straighten(const jacobi *j, int64_t p, int64_t q)
{
    double *a = j->columns + p * j->length, *b = j->columns + q * j->length;
    double sums[3];
    dots(a, b, j->length, sums);
    const double aa = sums[0], bb = sums[1], ab = sums[2];
    if (!(fabs(ab) > 1e-16 * sqrt((double)j->length) * sqrt(aa) * sqrt(bb)))
        return false;
    const double zeta = (bb - aa) / (2 * ab), tangent = copysign(1, zeta) / (fabs(zeta) + hypot(1, zeta));
    const double cosine = 1 / sqrt(1 + tangent * tangent), sine = cosine * tangent;
    rotate(a, b, j->length, cosine, sine);
    rotate(j->rotations + p * j->count, j->rotations + q * j->count, j->count, cosine, sine);
    return true;
}

static void swap_columns(const jacobi *j, int64_t p, int64_t q)
{
    const double value = j->values[p];
    j->values[p] = j->values[q];
    j->values[q] = value;
    rotate(j->columns + p * j->length, j->columns + q * j->length, j->length, 0, 1);
    rotate(j->rotations + p * j->count, j->rotations + q * j->count, j->count, 0, 1);
}

// Replaces a zero column by a unit vector orthogonal to the columns before it.
static void complete(const jacobi *j, int64_t p)
{
    double *column = j->columns + p * j->length;
    double length = 0;
    for (int64_t axis = 0; axis < j->length && length < .5; axis++) {
        memset(column, 0, sizeof *column * (size_t)j->length);
        column[axis] = 1;
        for (int64_t turn = 0; turn < 2 * p; turn++) {
            const double *other = j->columns + turn % p * j->length;
            const double part = dot(column, other, j->length);
            for (int64_t i = 0; i < j->length; i++)
                column[i] -= part * other[i];
        }
        length = sqrt(dot(column, column, j->length));
        for (int64_t i = 0; i < j->length && length > 0; i++)
            column[i] /= length;
        length *= sqrt((double)j->length);  // some axis has at least this much left
    }
}

static void decompose(const jacobi *j, int exponent)
{
    bool changed = true;
    for (int sweep = 0; changed && sweep < SWEEPS; sweep++) {
        changed = false;
        for (int64_t p = 0; p < j->count; p++)
            for (int64_t q = p + 1; q < j->count; q++)
                changed |= straighten(j, p, q);
    }
    for (int64_t p = 0; p < j->count; p++)
        j->values[p] = sqrt(dot(j->columns + p * j->length, j->columns + p * j->length, j->length));
    for (int64_t p = 0; p < j->count; p++) {
        int64_t largest = p;
        for (int64_t q = p + 1; q < j->count; q++)
            largest = j->values[q] > j->values[largest] ? q : largest;
        if (largest != p)
            swap_columns(j, p, largest);
        double *column = j->columns + p * j->length;
        for (int64_t i = 0; i < j->length && j->values[p] > 0; i++)
            column[i] /= j->values[p];
        if (j->values[p] == 0)
            complete(j, p);
        j->values[p] = ldexp(j->values[p], exponent);
    }
}

// ---- All matrices -------------------------------------------------------------------------------

typedef struct svd_call {
    const mu_kernel *kernel;
    int64_t m, n, k;
    _Atomic bool exhausted;
} svd_call;

// Loads a matrix into the columns, divided by the smallest power of two above its largest element; *exponent receives
// the exponent. Returns false if an element is not finite.
static bool load(const svd_call *call, int64_t matrix, const jacobi *j, int *exponent)
{
    const mu_view *x = &call->kernel->in[0];
    const int64_t first = matrix * call->m * call->n;
    double most = 0;
    bool finite = true;
    for (int64_t i = 0; i < call->m * call->n; i++) {
        const double element = mu__read_element(x->dtype, x->data, first + i);
        finite &= isfinite(element) != 0;
        most = fmax(most, fabs(element));
    }
    frexp(most, exponent);
    for (int64_t row = 0; row < call->m; row++)
        for (int64_t col = 0; col < call->n; col++) {
            const double element = mu__read_element(x->dtype, x->data, first + row * call->n + col);
            j->columns[call->m >= call->n ? col * j->length + row : row * j->length + col] = ldexp(element, -*exponent);
        }
    memset(j->rotations, 0, sizeof(double) * (size_t)(call->k * call->k));
    for (int64_t p = 0; p < call->k; p++)
        j->rotations[p * call->k + p] = 1;
    return finite;
}

static void store(const mu_view *out, int64_t first, int64_t rows, int64_t k, const double *columns)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t p = 0; p < k; p++)
            mu__write_element(out->dtype, out->data, first + row * k + p, columns ? columns[p * rows + row] : NAN);
}

static void run_matrices(void *arg, int64_t begin, int64_t end)
{
    svd_call *call = arg;
    const mu_view *out = call->kernel->out;
    const int64_t m = call->m, n = call->n, k = call->k, length = MU_MAX(m, n);
    double *memory = mu__alloc(sizeof *memory * (size_t)(k * length + k * k + k));
    if (!memory) {
        call->exhausted = true;
        return;
    }
    const jacobi j = {.count = k, .length = length, .columns = memory, .rotations = memory + k * length,
                      .values = memory + k * length + k * k};
    const double *left = m >= n ? j.columns : j.rotations, *right = m >= n ? j.rotations : j.columns;
    for (int64_t i = begin; i < end; i++) {
        int exponent = 0;
        const bool finite = load(call, i, &j, &exponent);
        if (finite)
            decompose(&j, exponent);
        store(&out[0], i * k, 1, k, finite ? j.values : NULL);
        store(&out[1], i * m * k, m, k, finite ? left : NULL);
        store(&out[2], i * n * k, n, k, finite ? right : NULL);
    }
    mu__free(memory);
}

static mu_status svd_ref(const mu_kernel *kernel)
{
    const mu_shape *in = &kernel->in[0].shape;
    svd_call call = {.kernel = kernel, .m = in->dims[in->rank - 2], .n = in->dims[in->rank - 1]};
    const int64_t batches = mu__elements_between(in, 0, in->rank - 2);
    call.k = MU_MIN(call.m, call.n);
    mu__share_range(kernel->team, call.k ? batches : 0, 1, batches * call.m * call.n * call.k * 8, run_matrices, &call);
    return call.exhausted ? mu__error(MU_RESOURCE_EXHAUSTED, "svd: no memory to work on a matrix of %lld by %lld",
                                      (long long)call.m, (long long)call.n)
                          : MU_OK;
}

// ---- Gradient -----------------------------------------------------------------------------------

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

static mu_tensor *sum_of(mu_tensor *a, mu_tensor *b)
{
    return a && b ? mu_add(a, b) : a ? a : b;
}

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

static const mu_sample samples_svd[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 3)}},    {.n_in = 1, .in = {MU_DIMS(4, 2)}}, {.n_in = 1, .in = {MU_DIMS(2, 2, 3)}},
    {.n_in = 1, .in = {MU_DIMS(2, 1, 1)}}, {.n_in = 1, .in = {MU_DIMS(0, 3)}}, {.n_in = 1, .in = {MU_DIMS(0, 2, 2)}},
    {0},
};
const mu_op mu_op_svd = {
    .name = "svd", .n_in = 1, .n_out = 3, .dtypes = MU_FLOATS, .infer = svd_infer, .grad = svd_grad, .ref = svd_ref,
    .samples = samples_svd,
};
