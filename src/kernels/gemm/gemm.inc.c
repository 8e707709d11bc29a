// Body of the plain matrix product for one element type T, named by FN; gemm.c includes it once for each.
//
// Panels of b, two vectors wide, are copied to contiguous memory and stay in the first-level cache, while the rows of a
// stay in the second-level cache; four rows of c share each load of b. A vector-matrix product is one pass over the
// matrix: dot products along its rows, or a sum of its rows, eight at a time.

#define VECTOR     64
#define TILE(name) FN(name##_64)
#include "gemm_tile.inc.c"
#define VECTOR     32
#define TILE(name) FN(name##_32)
#include "gemm_tile.inc.c"
#define VECTOR     16
#define TILE(name) FN(name##_16)
#include "gemm_tile.inc.c"

// Adds the second n of 2n numbers to the first n.
static inline __attribute__((always_inline)) void FN(halve)(T *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += x[i + n];
}

// Dot product of two rows, in many running sums that are added in a fixed order. Each halving is a separate call with a
// constant size, so that compilers keep the sums in registers.
MU_PER_ISA_RESULT(T, FN(dot), (const T *a, const T *b, int64_t k), (a, b, k))
{
    T lanes[SUMS] = {0}, sum = 0;
    int64_t p = 0;
    for (; p + SUMS <= k; p += SUMS)
        for (int lane = 0; lane < SUMS; lane++)
            lanes[lane] += a[p + lane] * b[p + lane];
    FN(halve)(lanes, SUMS / 2);
    FN(halve)(lanes, SUMS / 4);
    FN(halve)(lanes, SUMS / 8);
    FN(halve)(lanes, SUMS / 16);
    FN(halve)(lanes, SUMS / 32);
    FN(halve)(lanes, SUMS / 64);
    for (; p < k; p++)
        sum += a[p] * b[p];
    return lanes[0] + sum;
}

// y[j] += the sum of f[p * step] rows[p * row + j] over p, for j in [0, n).
MU_PER_ISA(FN(combine),
           (T *restrict y, const T *restrict f, int64_t step, const T *restrict rows, int64_t row, int64_t n,
            int64_t k),
           (y, f, step, rows, row, n, k))
{
    int64_t p = 0;
    for (; p + 8 <= k; p += 8) {
        const T *restrict r = rows + p * row;
        const T f0 = f[p * step], f1 = f[(p + 1) * step], f2 = f[(p + 2) * step], f3 = f[(p + 3) * step];
        const T f4 = f[(p + 4) * step], f5 = f[(p + 5) * step], f6 = f[(p + 6) * step], f7 = f[(p + 7) * step];
        for (int64_t j = 0; j < n; j++)
            y[j] += f0 * r[j] + f1 * r[row + j] + f2 * r[2 * row + j] + f3 * r[3 * row + j] + f4 * r[4 * row + j] +
                    f5 * r[5 * row + j] + f6 * r[6 * row + j] + f7 * r[7 * row + j];
    }
    for (; p < k; p++)
        for (int64_t j = 0; j < n; j++)
            y[j] += f[p * step] * rows[p * row + j];
}

// y[i * y_step] += the dot product of v and row i of a matrix. The matrix is read in memory order, by rows or by
// columns.
static void FN(vector)(T *y, int64_t y_step, const T *v, int64_t v_step, const T *a, int64_t row, int64_t col,
                       int64_t n, int64_t k)
{
    enum { COLUMNS = 4096 }; // as many sums as fit the first-level cache
    if (col == 1 && v_step == 1) {
        for (int64_t i = 0; i < n; i++)
            y[i * y_step] += FN(dot)(a + i * row, v, k);
        return;
    }
    for (int64_t j = 0; j < n; j += COLUMNS)
        FN(combine)(y + j, v, v_step, a + j, col, least(COLUMNS, n - j), k);
}

// Handles vector-matrix products. Returns false for other products, and for matrices that are not contiguous in either
// order.
static bool FN(is_vector)(T *c, int64_t c_row, const T *a, int64_t a_row, int64_t a_col, const T *b, int64_t b_row,
                          int64_t b_col, int64_t m, int64_t n, int64_t k)
{
    if (n == 1 && ((a_col == 1 && b_row == 1) || (a_row == 1 && c_row == 1)))
        FN(vector)(c, c_row, b, b_row, a, a_row, a_col, m, k);
    else if (m == 1 && ((b_row == 1 && a_col == 1) || b_col == 1))
        FN(vector)(c, 1, a, a_col, b, b_col, b_row, n, k);
    else
        return false;
    return true;
}

MU_PER_ISA_VECTORS(FN(gemm),
                   (void *c_data, int64_t c_row, const void *a_data, int64_t a_row, int64_t a_col, const void *b_data,
                    int64_t b_row, int64_t b_col, int64_t m, int64_t n, int64_t k),
                   (c_data, c_row, a_data, a_row, a_col, b_data, b_row, b_col, m, n, k))
{
    if (FN(is_vector)(c_data, c_row, a_data, a_row, a_col, b_data, b_row, b_col, m, n, k))
        return;
    if (vector_bytes == 64)
        FN(product_64)(c_data, c_row, a_data, a_row, a_col, b_data, b_row, b_col, m, n, k);
    else if (vector_bytes == 32)
        FN(product_32)(c_data, c_row, a_data, a_row, a_col, b_data, b_row, b_col, m, n, k);
    else
        FN(product_16)(c_data, c_row, a_data, a_row, a_col, b_data, b_row, b_col, m, n, k);
}

// c[i][j] = a[i] b[j], n columns, for rows [begin, end).
MU_PER_ISA(FN(outer), (void *c_data, const void *a_data, const void *b_data, int64_t n, int64_t begin, int64_t end),
           (c_data, a_data, b_data, n, begin, end))
{
    const T *a = a_data, *restrict b = b_data;
    for (int64_t i = begin; i < end; i++) {
        T *restrict c = (T *)c_data + i * n;
        const T factor = a[i];
        for (int64_t j = 0; j < n; j++)
            c[j] = factor * b[j];
    }
}

#undef T
#undef FN
