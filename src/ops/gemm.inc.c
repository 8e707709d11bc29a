// Body of the plain matrix product for one element type T, named by FN; gemm.c includes it once for each.
//
// Panels of b are made contiguous and stay in the first-level cache; four rows of c share each load of b.

static inline void FN(rows)(T *restrict c0, T *restrict c1, T *restrict c2, T *restrict c3, const T *a, int64_t a_row,
                         int64_t a_col, const T *restrict b, int64_t n, int64_t k)
{
    for (int64_t p = 0; p < k; p++) {
        const T a0 = a[p * a_col], a1 = a[a_row + p * a_col];
        const T a2 = a[2 * a_row + p * a_col], a3 = a[3 * a_row + p * a_col];
        const T *restrict from = b + p * PANEL;
        for (int64_t j = 0; j < n; j++) {
            c0[j] += a0 * from[j];
            c1[j] += a1 * from[j];
            c2[j] += a2 * from[j];
            c3[j] += a3 * from[j];
        }
    }
}

static inline void FN(row)(T *restrict c, const T *a, int64_t a_col, const T *restrict b, int64_t n, int64_t k)
{
    for (int64_t p = 0; p < k; p++) {
        const T factor = a[p * a_col];
        for (int64_t j = 0; j < n; j++)
            c[j] += factor * b[p * PANEL + j];
    }
}

// The sum of products of two rows, in many running sums that are added in a fixed order.
MU_CLONES static T FN(dot)(const T *a, const T *b, int64_t k)
{
    T lanes[PANEL] = {0}, sum = 0;
    int64_t p = 0;
    for (; p + PANEL <= k; p += PANEL)
        for (int lane = 0; lane < PANEL; lane++)
            lanes[lane] += a[p + lane] * b[p + lane];
    for (int step = PANEL / 2; step > 0; step /= 2)
        for (int lane = 0; lane < step; lane++)
            lanes[lane] += lanes[lane + step];
    for (; p < k; p++)
        sum += a[p] * b[p];
    return lanes[0] + sum;
}

MU_CLONES static void FN(gemm)(void *c_data, int64_t c_row, const void *a_data, int64_t a_row, int64_t a_col,
                               const void *b_data, int64_t b_row, int64_t b_col, int64_t m, int64_t n, int64_t k)
{
    T *c = c_data;
    const T *a = a_data, *b = b_data;
    T panel[PANEL * PANEL];
    if (n == 1 && a_col == 1 && b_row == 1) {
        for (int64_t i = 0; i < m; i++)
            c[i * c_row] += FN(dot)(a + i * a_row, b, k);
        return;
    }
    for (int64_t p = 0; p < k; p += PANEL) {
        const int64_t depth = MU_MIN(PANEL, k - p);
        for (int64_t j = 0; j < n; j += PANEL) {
            const int64_t width = MU_MIN(PANEL, n - j);
            for (int64_t q = 0; q < depth; q++)
                for (int64_t l = 0; l < width; l++)
                    panel[q * PANEL + l] = b[(p + q) * b_row + (j + l) * b_col];
            int64_t i = 0;
            for (; i + 4 <= m; i += 4) {
                T *to = c + i * c_row + j;
                FN(rows)(to, to + c_row, to + 2 * c_row, to + 3 * c_row, a + i * a_row + p * a_col, a_row, a_col,
                             panel, width, depth);
            }
            for (; i < m; i++)
                FN(row)(c + i * c_row + j, a + i * a_row + p * a_col, a_col, panel, width, depth);
        }
    }
}

#undef T
#undef FN
