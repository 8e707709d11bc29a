// Sums and products of rows (minmax.c has the extremes). Four vectors accumulate side by side, so that no addition
// waits for the previous one; long rows are summed in pieces whose results are added pairwise, for accuracy.
#include "kernel_slots.h"
#include "simd.h"

// PIECE: elements summed by running totals, at most CHAIN for each total. The error grows with the longest chain, so
// narrow vectors, which make fewer totals, get shorter pieces.
enum {
    SIDE_BY_SIDE = 4,
    STEP = SIDE_BY_SIDE * MU_LANES,
    CHAIN = 64,
    PIECE = CHAIN * STEP < 2048 ? CHAIN * STEP : 2048
};

// Reduces a vector to one number by halving.
MU_INLINE float v_total(mu_vf v, bool product)
{
#if MU_LANES == 16
    const __m512 x = (__m512)v;
    const __m256 low = _mm512_castps512_ps256(x), high = _mm512_extractf32x8_ps(x, 1);
    __m256 half = product ? _mm256_mul_ps(low, high) : _mm256_add_ps(low, high);
#elif MU_LANES == 8
    __m256 half = (__m256)v;
#endif
#if MU_LANES >= 8
    const __m128 a = _mm256_castps256_ps128(half), b = _mm256_extractf128_ps(half, 1);
    __m128 four = product ? _mm_mul_ps(a, b) : _mm_add_ps(a, b);
    __m128 moved = _mm_movehl_ps(four, four);
    four = product ? _mm_mul_ps(four, moved) : _mm_add_ps(four, moved);
    moved = _mm_shuffle_ps(four, four, 1);
    return _mm_cvtss_f32(product ? _mm_mul_ss(four, moved) : _mm_add_ss(four, moved));
#else
    return product ? v[0] * v[2] * (v[1] * v[3]) : v[0] + v[2] + (v[1] + v[3]);
#endif
}

MU_INLINE mu_vf combined(mu_vf a, mu_vf b, bool product) { return product ? a * b : a + b; }

MU_INLINE float total_of_piece(const float *x, int64_t n, bool product)
{
    const float neutral = product ? 1.0f : 0.0f;
    mu_vf totals[SIDE_BY_SIDE];
    int64_t i = 0;
    MU_UNROLL
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        totals[k] = v_splat(neutral);
    for (; i + STEP <= n; i += STEP) {
        MU_UNROLL
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            totals[k] = combined(totals[k], v_load(x + i + k * MU_LANES), product);
    }
    for (; i < n; i += MU_LANES)
        totals[0] = combined(totals[0], v_load_padded(x + i, least(n - i, MU_LANES), neutral), product);
    return v_total(combined(combined(totals[0], totals[1], product), combined(totals[2], totals[3], product), product),
                   product);
}

static float sum_of_row(const float *x, int64_t n)
{
    const int64_t half = (n / 2 + PIECE - 1) / PIECE * PIECE;
    return n <= PIECE ? total_of_piece(x, n, false) : sum_of_row(x, half) + sum_of_row(x + half, n - half);
}

static float product_of_row(const float *x, int64_t n)
{
    const int64_t half = (n / 2 + PIECE - 1) / PIECE * PIECE;
    return n <= PIECE ? total_of_piece(x, n, true) : product_of_row(x, half) * product_of_row(x + half, n - half);
}

typedef double vector_f64 __attribute__((vector_size(4 * MU_LANES)));
enum { LANES_F64 = MU_LANES / 2, STEP_F64 = 2 * SIDE_BY_SIDE * LANES_F64, PIECE_F64 = PIECE };

MU_INLINE double total_f64(vector_f64 v)
{
#if MU_LANES == 16
    return _mm512_reduce_add_pd((__m512d)v);
#else
    double total = 0;
    for (int lane = 0; lane < LANES_F64; lane++)
        total += v[lane];
    return total;
#endif
}

MU_INLINE double sum_of_piece_f64(const double *x, int64_t n)
{
    vector_f64 totals[2 * SIDE_BY_SIDE] = {{0}};
    double rest = 0;
    int64_t i = 0;
    for (; i + STEP_F64 <= n; i += STEP_F64) {
        MU_UNROLL
        for (int k = 0; k < 2 * SIDE_BY_SIDE; k++) {
            vector_f64 here;
            memcpy(&here, x + i + k * LANES_F64, sizeof here);
            totals[k] += here;
        }
    }
    for (; i < n; i++)
        rest += x[i];
    MU_UNROLL
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        totals[k] += totals[k + SIDE_BY_SIDE];
    return total_f64((totals[0] + totals[1]) + (totals[2] + totals[3])) + rest;
}

double MU_KERNEL(sum_f64)(const double *x, int64_t n)
{
    const int64_t half = (n / 2 + PIECE_F64 - 1) / PIECE_F64 * PIECE_F64;
    if (n > PIECE_F64)
        return MU_KERNEL(sum_f64)(x, half) + MU_KERNEL(sum_f64)(x + half, n - half);
    return sum_of_piece_f64(x, n);
}

void MU_KERNEL(fold_rows)(mu_fold fold, const float *x, float *y, int64_t columns, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *from = x + row * columns;
        switch (fold) {
        case MU_FOLD_SUM: y[row] = sum_of_row(from, columns); break;
        case MU_FOLD_PRODUCT: y[row] = product_of_row(from, columns); break;
        case MU_FOLD_GREATEST: y[row] = MU_KERNEL(minmax_f32)(false, from, columns); break;
        case MU_FOLD_LEAST: y[row] = MU_KERNEL(minmax_f32)(true, from, columns); break;
        }
    }
}
