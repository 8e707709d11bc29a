// softmax and log_softmax of rows of float64. A row is read from memory once, for its maximum; the next row is
// prefetched while the exponentials are computed and summed, and they are scaled while they are still in the cache.
// The order of summation depends on the row's length only.
#include "kernels/math/math_f64x8.h"
#include "kernel_slots.h"

#if MU_HAS_F64X8

static double greatest_of(const double *x, int64_t n)
{
    enum { WIDE = 4 }; // accumulators side by side, so that none waits for the others
    mu_vd best[WIDE];
    int64_t i = 0;
    for (int k = 0; k < WIDE; k++)
        best[k] = d_splat(-INFINITY);
    for (; i + WIDE * F64X8 <= n; i += WIDE * F64X8) {
        MU_UNROLL
        for (int k = 0; k < WIDE; k++)
            best[k] = d_max(d_load(x + i + k * F64X8), best[k]);
    }
    for (; i < n; i += F64X8)
        best[0] = d_max(d_load_padded(x + i, n - i, -INFINITY), best[0]);
    return _mm512_reduce_max_pd((__m512d)d_max(d_max(best[0], best[1]), d_max(best[2], best[3])));
}

// Writes exp(x - most) to e if e is not NULL, and returns the sum.
static double exp_row(const double *x, double most, double *e, int64_t n)
{
    mu_vd sums = {0};
    for (int64_t i = 0; i < n; i += F64X8) {
        const mu_vd shifted = d_load_padded(x + i, n - i, -INFINITY) - most;
        const mu_vd term = exp_f64x8_of(exp_f64x8_below(shifted));
        v_prefetch(x + i, n * (int64_t)sizeof *x);
        sums += term;
        if (e != NULL)
            d_store_n(e + i, term, n - i);
    }
    return _mm512_reduce_add_pd((__m512d)sums);
}

static void subtract_row(const double *x, double most, double offset, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += F64X8)
        d_store_n(y + i, (d_load_padded(x + i, n - i, 0) - most) - offset, n - i);
}

static void scale_row(double *y, double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i += F64X8)
        d_store_n(y + i, d_load_padded(y + i, n - i, 0) * factor, n - i);
}

#else

enum { LANES = 16, PIECE = 256 }; // sums and maxima side by side; exponentials at a time

static double greatest_of(const double *x, int64_t n)
{
    double lanes[LANES], most = x[0];
    int64_t i = 0;
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    for (int lane = 0; lane < LANES; lane++)
        most = lanes[lane] > most ? lanes[lane] : most;
    for (; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static void subtract_row(const double *x, double most, double offset, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - most) - offset;
}

static double sum_of_row(const double *x, int64_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += x[i + lane];
    for (; i < n; i++)
        sum += x[i];
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

static double exp_row(const double *x, double most, double *e, int64_t n)
{
    double piece[PIECE], sum = 0;
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t count = least(n - i, PIECE);
        double *to = e != NULL ? e + i : piece;
        subtract_row(x + i, most, 0, to, count);
        MU_KERNEL(math_f64)(MU_MATH_EXP, 0, to, to, count);
        sum += sum_of_row(to, count);
    }
    return sum;
}

static void scale_row(double *y, double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= factor;
}

#endif

void MU_KERNEL(softmax_f64)(const double *x, double *y, int64_t columns, bool logarithm, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const double *from = x + row * columns;
        double *to = y + row * columns;
        const double most = greatest_of(from, columns), sum = exp_row(from, most, logarithm ? NULL : to, columns);
        if (logarithm)
            subtract_row(from, most, log(sum), to, columns);
        else
            scale_row(to, 1 / sum, columns);
    }
}
