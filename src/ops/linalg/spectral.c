// The largest singular value of matrices, without singular vectors: the square root of the largest eigenvalue of x'x.
//
// Uses x'x or xx', whichever is smaller, in float64. Squaring loses digits of small singular values but not of the
// largest. Householder reflections make the product tridiagonal, each in one pass over the remaining matrix. Then
// bisection tests many shifts at once: the signs of the pivots tell whether a shift is above the largest eigenvalue.
// Matrices are scaled by a power of two and shared by the team; a matrix with NaN or infinity gives NaN.
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/nn/nn.h"

#include <float.h>
#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

// Parallel sums, and shifts tested at once; bisection rounds, enough for the last bit of any interval; rows of the
// product per block.
enum { LANES = 16, ROUNDS = 16, BLOCK = 64 };

// A reflection is skipped if the square of what it would remove is below this; the largest eigenvalue is at least 1/4.
#define NEGLIGIBLE 1e-60

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status spectral_norm_infer(mu_infer *infer)
{
    const mu_shape *in = &infer->in[0].shape;
    char text[MU_SHAPE_TEXT];
    if (in->rank < 2)
        return mu__error(MU_INVALID_ARGUMENT,
                         "spectral_norm: the input has shape %s; give it two axes or more, of which the last two are "
                         "the matrices", mu__shape_text(in, text));
    infer->out[0] = infer->in[0];
    infer->out[0].shape.rank -= 2;
    for (int axis = in->rank - 2; axis < in->rank; axis++)
        infer->out[0].shape.dims[axis] = 0;
    return MU_OK;
}

// ---- A tridiagonal matrix -----------------------------------------------------------------------

// x as float64; x'x or xx' (n by n, both halves); the tridiagonal matrix: its diagonal and the squares of its
// off-diagonal; and for reflections: the vector, the previous vector with its partner, and a product.
typedef struct spectral {
    int64_t n;
    double *x, *square, *diagonal, *beside, *vector, *last, *partner, *product;
} spectral;

MU_CLONES
static double dot(const double *restrict a, const double *restrict b, int64_t n)
{
    double sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += a[i + lane] * b[i + lane];
    for (int lane = 0; i < n; i++, lane++)
        sums[lane] += a[i] * b[i];
    for (int lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

// Applies the last reflection to the rows and columns from `first` on, and multiplies the result by the vector.
MU_CLONES
static void reflect_and_multiply(double *restrict square, int64_t n, int64_t first, const double *restrict last,
                                 const double *restrict partner, const double *restrict vector,
                                 double *restrict product)
{
    int64_t row = first;
    for (; row + 4 <= n; row += 4) {
        double *a = square + row * n, *b = a + n, *c = b + n, *d = c + n;
        const double *l = last + row, *p = partner + row, *v = vector + row;
        const double l0 = l[0], l1 = l[1], l2 = l[2], l3 = l[3], p0 = p[0], p1 = p[1], p2 = p[2], p3 = p[3];
        const double v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
        MU_INDEPENDENT
        for (int64_t i = first; i < n; i++) {
            const double x = last[i], y = partner[i];
            const double ai = a[i] - l0 * y - p0 * x, bi = b[i] - l1 * y - p1 * x;
            const double ci = c[i] - l2 * y - p2 * x, di = d[i] - l3 * y - p3 * x;
            a[i] = ai;
            b[i] = bi;
            c[i] = ci;
            d[i] = di;
            product[i] += (ai * v0 + bi * v1) + (ci * v2 + di * v3);
        }
    }
    for (; row < n; row++) {
        double *a = square + row * n;
        MU_INDEPENDENT
        for (int64_t i = first; i < n; i++) {
            const double ai = a[i] - last[row] * partner[i] - partner[row] * last[i];
            a[i] = ai;
            product[i] += ai * vector[row];
        }
    }
}

// Computes the vector that reflects x onto its first axis, the square of the resulting element, and returns 2 /
// |vector|^2. If x is on that axis already, the vector is zero and 0 is returned.
static double reflection(const double *x, double *vector, int64_t n, double *square)
{
    const double rest = dot(x + 1, x + 1, n - 1), all = rest + x[0] * x[0], length = sqrt(all);
    *square = all;
    if (rest < NEGLIGIBLE) {
        memset(vector, 0, sizeof *vector * (size_t)n);
        return 0;
    }
    memcpy(vector, x, sizeof *vector * (size_t)n);
    vector[0] += copysign(length, x[0]);
    return 1 / (all + length * fabs(x[0]));
}

static void make_tridiagonal(spectral *s)
{
    const int64_t n = s->n;
    memset(s->last, 0, sizeof(double) * (size_t)n);
    memset(s->partner, 0, sizeof(double) * (size_t)n);
    for (int64_t j = 0; j < n; j++) {
        double *row = s->square + j * n;
        for (int64_t i = j; i < n; i++)
            row[i] -= s->last[j] * s->partner[i] + s->partner[j] * s->last[i];
        s->diagonal[j] = row[j];
        if (j + 1 == n)
            break;
        const int64_t first = j + 1, left = n - first;
        const double factor = reflection(row + first, s->vector + first, left, &s->beside[j]);
        memset(s->product + first, 0, sizeof(double) * (size_t)left);
        reflect_and_multiply(s->square, n, first, s->last, s->partner, s->vector, s->product);
        const double along = factor * factor / 2 * dot(s->product + first, s->vector + first, left);
        for (int64_t i = first; i < n; i++)
            s->partner[i] = factor * s->product[i] - along * s->vector[i];
        double *used = s->last;
        s->last = s->vector;
        s->vector = used;
    }
}

// The largest pivot of the tridiagonal matrix minus each shift; negative if all eigenvalues are below the shift. After
// a zero pivot NaN may follow, which compares as not larger.
MU_CLONES
static void largest_pivots(const spectral *s, const double shifts[LANES], double largest[LANES])
{
    double pivots[LANES];
    for (int lane = 0; lane < LANES; lane++)
        largest[lane] = pivots[lane] = s->diagonal[0] - shifts[lane];
    for (int64_t i = 1; i < s->n; i++) {
        const double at = s->diagonal[i], beside = s->beside[i - 1];
        for (int lane = 0; lane < LANES; lane++) {
            pivots[lane] = at - shifts[lane] - beside / pivots[lane];
            largest[lane] = pivots[lane] > largest[lane] ? pivots[lane] : largest[lane];
        }
    }
}

// Bisects between the largest diagonal element and the largest row sum (Gershgorin).
static double largest_eigenvalue(const spectral *s)
{
    double low = 0, high = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const double before = i > 0 ? sqrt(s->beside[i - 1]) : 0, after = i + 1 < s->n ? sqrt(s->beside[i]) : 0;
        low = fmax(low, s->diagonal[i]);
        high = fmax(high, s->diagonal[i] + before + after);
    }
    for (int round = 0; round < ROUNDS && high - low > DBL_EPSILON / 2 * high; round++) {
        double shifts[LANES], largest[LANES];
        const double step = (high - low) / (LANES + 1);
        int below = 0;
        for (int lane = 0; lane < LANES; lane++)
            shifts[lane] = low + step * (lane + 1);
        largest_pivots(s, shifts, largest);
        while (below < LANES && largest[below] >= 0)
            below++;
        low = below > 0 ? shifts[below - 1] : low;
        high = below < LANES ? shifts[below] : high;
    }
    return low + (high - low) / 2;
}

// ---- One matrix ---------------------------------------------------------------------------------

// The largest absolute value; NaN if there is a NaN or an infinity. Compares the bits as integers, which have the same
// order.
MU_CLONES
static double largest_size(const double *x, int64_t n)
{
    uint64_t most = 0;
    double size;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= INT64_MAX;
        most = bits > most ? bits : most;
    }
    memcpy(&size, &most, sizeof size);
    return isfinite(size) ? size : NAN;
}

// x times its transpose, both halves. The part above the diagonal is copied, except for the blocks on the diagonal.
static void multiply_by_itself(const spectral *s, int64_t rows, int64_t columns)
{
    const bool tall = rows >= columns;
    const int64_t n = s->n, step = tall ? 1 : columns, along = tall ? columns : 1, length = MU_MAX(rows, columns);
    memset(s->square, 0, sizeof(double) * (size_t)(n * n));
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t height = MU_MIN(BLOCK, n - i);
        mu__gemm_for(MU_F64)(s->square + i * n, n, s->x + i * step, step, along, s->x, along, step, height, i + height,
                             length);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i / BLOCK * BLOCK + BLOCK; j < n; j++)
            s->square[i * n + j] = s->square[j * n + i];
}

static double largest_value(spectral *s, int64_t rows, int64_t columns)
{
    const int64_t elements = rows * columns;
    const double most = largest_size(s->x, elements);
    int exponent = 0;
    if (isnan(most) || most == 0)
        return most;
    frexp(most, &exponent);
    // Two factors, because the power of two itself may be too large for a float64.
    const double once = ldexp(1, -(exponent / 2)), again = ldexp(1, exponent / 2 - exponent);
    for (int64_t i = 0; i < elements; i++)
        s->x[i] = s->x[i] * once * again;
    multiply_by_itself(s, rows, columns);
    make_tridiagonal(s);
    return ldexp(sqrt(largest_eigenvalue(s)), exponent);
}

// ---- All matrices -------------------------------------------------------------------------------

typedef struct spectral_call {
    const mu_kernel *kernel;
    int64_t m, n, k;
    _Atomic bool exhausted;
} spectral_call;

static void run_matrices(void *arg, int64_t begin, int64_t end)
{
    spectral_call *call = arg;
    const mu_view *in = &call->kernel->in[0], *out = &call->kernel->out[0];
    const int64_t elements = call->m * call->n, k = call->k;
    const size_t bytes = sizeof(double) * (size_t)(elements + k * k + 6 * k);
    double *memory = mu__alloc_data(bytes);
    if (!memory) {
        call->exhausted = true;
        return;
    }
    double *rest = memory + elements + k * k;
    spectral s = {.n = k, .x = memory, .square = memory + elements, .diagonal = rest, .beside = rest + k,
                  .vector = rest + 2 * k, .last = rest + 3 * k, .partner = rest + 4 * k, .product = rest + 5 * k};
    for (int64_t i = begin; i < end; i++) {
        const char *matrix = (const char *)in->data + (size_t)(i * elements) * mu_dtype_bytes(in->dtype);
        mu__convert(MU_F64, s.x, in->dtype, matrix, elements);
        mu__write_element(out->dtype, out->data, i, largest_value(&s, call->m, call->n));
    }
    mu__free_data(memory, bytes);
}

static mu_status spectral_norm_ref(const mu_kernel *kernel)
{
    const mu_shape *in = &kernel->in[0].shape;
    spectral_call call = {.kernel = kernel, .m = in->dims[in->rank - 2], .n = in->dims[in->rank - 1]};
    const int64_t batches = mu__elements_between(in, 0, in->rank - 2);
    call.k = MU_MIN(call.m, call.n);
    for (int64_t i = 0; call.k == 0 && i < batches; i++)  // an empty matrix: the maximum of no values
        mu__write_element(kernel->out[0].dtype, kernel->out[0].data, i, -INFINITY);
    mu__share_range(kernel->team, call.k ? batches : 0, 1, batches * call.m * call.n * call.k, run_matrices, &call);
    return call.exhausted ? mu__error(MU_RESOURCE_EXHAUSTED,
                                      "spectral_norm: no memory to work on a matrix of %lld by %lld; give smaller ones",
                                      (long long)call.m, (long long)call.n)
                          : MU_OK;
}

// ---- Gradient -----------------------------------------------------------------------------------

// dy u v' for the largest singular value; equal values share the gradient, as in any maximum.
static mu_tensor *spectral_norm_grad(mu_grad *g, int i)
{
    mu_tensor *parts[3];
    (void)i;
    if (mu__apply(&mu_op_svd, NULL, 1, &g->x[0], 0, NULL, parts) != MU_OK)
        return NULL;
    mu_tensor *most = mu_reduce_max_axes(parts[0], 1, (int[]){-1}, true);
    mu_tensor *taken = mu_cast(mu_equal(parts[0], most), parts[0]->dtype);
    mu_tensor *shares = mu_divide(taken, mu_reduce_sum_axes(taken, 1, (int[]){-1}, true));
    mu_tensor *ds = mu_multiply(shares, mu_expand_dims(g->dys[0], -1));
    return mu_matmul_transposed(mu_multiply(parts[1], mu_expand_dims(ds, -2)), parts[2], false, true);
}

static const mu_sample samples_spectral_norm[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 3)}},    {.n_in = 1, .in = {MU_DIMS(4, 2)}}, {.n_in = 1, .in = {MU_DIMS(2, 2, 3)}},
    {.n_in = 1, .in = {MU_DIMS(2, 1, 1)}}, {.n_in = 1, .in = {MU_DIMS(0, 3)}}, {.n_in = 1, .in = {MU_DIMS(0, 2, 2)}},
    {.n_in = 1, .in = {MU_DIMS(7, 5)}},    {0},
};
// No lowering, as for svd: StableHLO has no operation for singular values.
const mu_op mu_op_spectral_norm = {
    .name = "spectral_norm", .n_in = 1, .n_out = 1, .dtypes = MU_FLOATS, .infer = spectral_norm_infer,
    .grad = spectral_norm_grad, .ref = spectral_norm_ref, .samples = samples_spectral_norm,
};
