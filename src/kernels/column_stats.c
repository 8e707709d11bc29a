// Kernels for normalisation: statistics of rows and columns, and their application. Sums are kept in registers or a
// short buffer, in float32 for a few thousand elements at most and then in float64, so that long sums stay accurate.
// The mean is subtracted before squares are summed. Callers decide what a row is.
#include "kernel_slots.h"
#include "simd.h"

enum {
    WIDE = 4,       // vectors summed side by side
    RUN = 4096,     // elements of a row summed in float32
    FLUSH = 64,     // rows summed in float32
    FETCHED = 4096, // prefetch distance in bytes
    SHORT = 16384,  // longest row that stays in the cache until its next use
};

// Half a vector of floats, and as many doubles.
typedef float half_vf __attribute__((vector_size(2 * MU_LANES)));
typedef double half_vd __attribute__((vector_size(4 * MU_LANES)));

// Adds in pairs, because a sequential sum would wait for each addition.
MU_INLINE double sum_of_lanes(const mu_vf *sums, int n)
{
    half_vf halves[2];
    double parts[MU_LANES / 2];
    mu_vf all = sums[0];
    for (int i = 1; i < n; i++)
        all += sums[i];
    memcpy(halves, &all, sizeof halves);
    const half_vd both = __builtin_convertvector(halves[0], half_vd) + __builtin_convertvector(halves[1], half_vd);
    memcpy(parts, &both, sizeof parts);
    MU_UNROLL
    for (int step = 1; step < MU_LANES / 2; step *= 2) {
        MU_UNROLL
        for (int lane = 0; lane + step < MU_LANES / 2; lane += 2 * step)
            parts[lane] += parts[lane + step];
    }
    return parts[0];
}

// ---- Rows ---------------------------------------------------------------------------------------

MU_INLINE mu_vf row_term(mu_vf x, mu_vf center, bool squared)
{
    const mu_vf from = x - center;
    return squared ? from * from : from;
}

MU_INLINE double row_sum(const float *x, float center, bool squared, int64_t n)
{
    double total = 0;
    const mu_vf middle = v_splat(center);
    for (int64_t at = 0; at < n; at += RUN) {
        const int64_t end = least(at + RUN, n);
        mu_vf sums[WIDE] = {{0}};
        int64_t i = at;
        for (; i + WIDE * MU_LANES <= end; i += WIDE * MU_LANES) {
            MU_UNROLL
            for (int k = 0; k < WIDE; k++)
                sums[k] += row_term(v_load(x + i + k * MU_LANES), middle, squared);
        }
        for (; i < end; i += MU_LANES)
            sums[0] += row_term(v_load_padded(x + i, least(end - i, MU_LANES), center), middle, squared);
        total += sum_of_lanes(sums, WIDE);
    }
    return total;
}

// A row is normalised as (x - mean) * inverse.
typedef struct moments {
    float mean, inverse;
} moments;

static moments row_moments(const float *x, int64_t n, bool centered, double epsilon)
{
    const float mean = centered ? (float)(row_sum(x, 0, false, n) / (double)n) : 0;
    return (moments){mean, (float)(1 / sqrt(row_sum(x, mean, true, n) / (double)n + epsilon))};
}

void MU_KERNEL(normalize_row)(const float *x, const float *gamma, const float *beta, float *y, int64_t columns,
                              bool centered, double epsilon)
{
    const moments m = row_moments(x, columns, centered, epsilon);
    for (int64_t i = 0; i < columns; i += MU_LANES) {
        const int64_t left = least(columns - i, MU_LANES);
        mu_vf h = (v_load_n(x + i, left) - m.mean) * m.inverse;
        if (gamma != NULL)
            h *= v_load_n(gamma + i, left);
        if (beta != NULL)
            h += v_load_n(beta + i, left);
        v_store_n(y + i, h, left);
    }
}

// Prefetch distance in bytes: the next row, if it fits in the cache; it loads while this row is read from the cache.
static int64_t next_row(int64_t columns) { return columns <= SHORT ? columns * (int64_t)sizeof(float) : FETCHED; }

// Adds the row's dy and dy h to dbeta and dgamma, with h = (x - mean) * inverse. sum and product receive the sums of
// a = dy gamma and of a h.
static void row_grad_sums(const float *x, const float *gamma, const float *dy, float *dgamma, float *dbeta,
                          int64_t columns, moments m, double *sum, double *product)
{
    const int64_t prefetch = next_row(columns);
    *sum = *product = 0;
    for (int64_t at = 0; at < columns; at += RUN) {
        const int64_t end = least(at + RUN, columns);
        mu_vf sums = {0}, products = {0};
        for (int64_t i = at; i < end; i += MU_LANES) {
            const int64_t left = least(end - i, MU_LANES);
            const mu_vf h = (v_load_n(x + i, left) - m.mean) * m.inverse, by = v_load_n(dy + i, left), byh = by * h;
            const mu_vf g = gamma != NULL ? v_load_n(gamma + i, left) : v_splat(1);
            v_store_n(dgamma + i, v_load_n(dgamma + i, left) + byh, left);
            v_store_n(dbeta + i, v_load_n(dbeta + i, left) + by, left);
            v_prefetch(x + i, prefetch);
            sums += by * g;
            products += byh * g;
        }
        *sum += sum_of_lanes(&sums, 1);
        *product += sum_of_lanes(&products, 1);
    }
}

void MU_KERNEL(normalize_row_grad)(const float *x, const float *gamma, const float *dy, float *dx, float *dgamma,
                                   float *dbeta, int64_t columns, bool centered, double epsilon)
{
    const moments m = row_moments(x, columns, centered, epsilon);
    double sum, product;
    row_grad_sums(x, gamma, dy, dgamma, dbeta, columns, m, &sum, &product);
    const int64_t prefetch = next_row(columns);
    const float plain = centered ? (float)(sum / (double)columns) : 0, along = (float)(product / (double)columns);
    for (int64_t i = 0; i < columns; i += MU_LANES) {
        const int64_t left = least(columns - i, MU_LANES);
        const mu_vf h = (v_load_n(x + i, left) - m.mean) * m.inverse;
        mu_vf a = v_load_n(dy + i, left);
        if (gamma != NULL)
            a *= v_load_n(gamma + i, left);
        v_prefetch(dy + i, prefetch);
        v_store_n(dx + i, (a - plain - h * along) * m.inverse, left);
    }
}

// ---- Columns ------------------------------------------------------------------------------------

// One row's term of one vector of columns, of which n are valid.
MU_INLINE mu_vf column_term(const float *x, const float *dy, mu_vf center, bool centered, int64_t n)
{
    const mu_vf value = v_load_n(x, n);
    v_prefetch_l2(x, FETCHED);
    if (!centered)
        return value;
    const mu_vf from = value - center;
    return from * (dy != NULL ? v_load_n(dy, n) : from);
}

// Sums `width` vectors of columns; the last vector has `last` columns.
MU_INLINE void column_block(const float *x, const float *dy, const float *center, double *sums, int64_t rows,
                            int64_t columns, int width, int64_t last)
{
    mu_vf middle[WIDE];
    for (int k = 0; k < width; k++)
        middle[k] = center != NULL ? v_load_n(center + k * MU_LANES, k < width - 1 ? MU_LANES : last) : (mu_vf){0};
    for (int64_t row = 0; row < rows; row += FLUSH) {
        const int64_t end = least(row + FLUSH, rows);
        mu_vf total[WIDE] = {{0}};
        for (int64_t r = row; r < end; r++) {
            const float *from = x + r * columns, *by = dy != NULL ? dy + r * columns : NULL;
            MU_UNROLL
            for (int k = 0; k < width; k++)
                total[k] += column_term(from + k * MU_LANES, by != NULL ? by + k * MU_LANES : NULL, middle[k],
                                        center != NULL, k < width - 1 ? MU_LANES : last);
        }
        for (int k = 0; k < width; k++) {
            float lanes[MU_LANES];
            v_store(lanes, total[k]);
            for (int64_t lane = 0; lane < (k < width - 1 ? MU_LANES : last); lane++)
                sums[k * MU_LANES + lane] += (double)lanes[lane];
        }
    }
}

void MU_KERNEL(column_sums)(const float *x, const float *dy, const float *center, double *sums, int64_t rows,
                            int64_t columns)
{
    int64_t c = 0;
    for (int64_t i = 0; i < columns; i++)
        sums[i] = 0;
    for (; c + WIDE * MU_LANES <= columns; c += WIDE * MU_LANES)
        column_block(x + c, dy != NULL ? dy + c : NULL, center != NULL ? center + c : NULL, sums + c, rows, columns,
                     WIDE, MU_LANES);
    for (; c < columns; c += MU_LANES)
        column_block(x + c, dy != NULL ? dy + c : NULL, center != NULL ? center + c : NULL, sums + c, rows, columns, 1,
                     least(columns - c, MU_LANES));
}

void MU_KERNEL(affine_columns)(const float *x, const float *center, const float *factor, const float *shift, float *y,
                               int64_t columns, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *from = x + row * columns;
        float *to = y + row * columns;
        for (int64_t i = 0; i < columns; i += MU_LANES) {
            const int64_t left = least(columns - i, MU_LANES);
            const mu_vf moved = v_load_n(from + i, left) - v_load_n(center + i, left);
            v_store_n(to + i, moved * v_load_n(factor + i, left) + v_load_n(shift + i, left), left);
        }
    }
}

void MU_KERNEL(mixed_columns)(const float *x, const float *dy, const float *center, const float *along,
                              const float *factor, const float *shift, float *dx, int64_t columns, int64_t begin,
                              int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *from = x + row * columns, *by = dy + row * columns;
        float *to = dx + row * columns;
        for (int64_t i = 0; i < columns; i += MU_LANES) {
            const int64_t left = least(columns - i, MU_LANES);
            const mu_vf moved = v_load_n(from + i, left) - v_load_n(center + i, left);
            const mu_vf straight = v_load_n(by + i, left) * v_load_n(factor + i, left);
            v_prefetch_l2(from + i, FETCHED);
            v_prefetch_l2(by + i, FETCHED);
            v_store_n(to + i, straight + moved * v_load_n(along + i, left) + v_load_n(shift + i, left), left);
        }
    }
}
