// Cholesky factors and triangular systems for one float type T, named by FN; linalg.c includes it once for each.
//
// Both go through blocks of BLOCK columns: inside a block by plain substitution, between blocks by matrix
// products, which is where the time goes. Arrays are row-major; `negated` is scratch of n * BLOCK elements.

// The factor of one diagonal block, in place. False: a pivot is not positive.
static bool FN(factor_block)(T *a, int64_t row, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        T *own = a + j * row, pivot = own[j];
        for (int64_t p = 0; p < j; p++)
            pivot -= own[p] * own[p];
        if (!(pivot > 0))
            return false;
        own[j] = (T)sqrt((double)pivot);
        for (int64_t i = j + 1; i < n; i++) {
            T *below = a + i * row, sum = below[j];
            for (int64_t p = 0; p < j; p++)
                sum -= below[p] * own[p];
            below[j] = sum / own[j];
        }
    }
    return true;
}

// Rows below a factored block: x L' = a for each row.
static void FN(solve_rows)(T *a, int64_t rows, int64_t row, const T *factor, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            T *own = a + i * row, sum = own[j];
            for (int64_t p = 0; p < j; p++)
                sum -= own[p] * factor[j * row + p];
            own[j] = sum / factor[j * row + j];
        }
}

// The lower factor of the n by n matrix `a` into `l`. False: the matrix is not positive definite.
static bool FN(cholesky)(const void *a_data, int64_t n, void *l_data, void *scratch)
{
    const T *a = a_data;
    T *l = l_data, *negated = scratch;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            l[i * n + j] = j <= i ? a[i * n + j] : 0;
    for (int64_t k = 0; k < n; k += BLOCK) {
        const int64_t width = MU_MIN(BLOCK, n - k), rest = n - k - width;
        T *block = l + k * n + k, *below = block + width * n;
        if (!FN(factor_block)(block, n, width))
            return false;
        FN(solve_rows)(below, rest, n, block, width);
        for (int64_t i = 0; i < rest; i++)
            for (int64_t p = 0; p < width; p++)
                negated[i * width + p] = -below[i * n + p];
        for (int64_t j = 0; j < rest; j += BLOCK) {
            const int64_t columns = MU_MIN(BLOCK, rest - j);
            T *to = below + width + j * n + j;
            GEMM(to, n, negated + j * width, width, 1, below + j * n, 1, n, rest - j, columns, width);
            for (int64_t i = 0; i < columns; i++)
                for (int64_t p = i + 1; p < columns; p++)
                    to[i * n + p] = 0;
        }
    }
    return true;
}

// One block of x: op(A) x = b by substitution, where element (i, j) of op(A) is a[i * row + j * col].
static void FN(solve_block)(const T *a, int64_t row, int64_t col, bool lower, int64_t n, T *x, int64_t columns)
{
    for (int64_t step = 0; step < n; step++) {
        const int64_t i = lower ? step : n - 1 - step, from = lower ? 0 : i + 1, to = lower ? i : n;
        T *own = x + i * columns;
        for (int64_t j = from; j < to; j++) {
            const T factor = a[i * row + j * col], *other = x + j * columns;
            for (int64_t c = 0; c < columns; c++)
                own[c] -= factor * other[c];
        }
        const T pivot = a[i * row + i * col];
        for (int64_t c = 0; c < columns; c++)
            own[c] /= pivot;
    }
}

// op(A) x = b in place of b; `lower` says what op(A) is.
static void FN(solve)(const void *a_data, int64_t row, int64_t col, bool lower, int64_t n, void *x_data,
                      int64_t columns, void *scratch)
{
    const T *a = a_data;
    T *x = x_data, *negated = scratch;
    for (int64_t done = 0; done < n; done += BLOCK) {
        const int64_t width = MU_MIN(BLOCK, n - done), rest = n - done - width;
        const int64_t k = lower ? done : rest, first = lower ? done + width : 0;  // rows still to come
        FN(solve_block)(a + k * row + k * col, row, col, lower, width, x + k * columns, columns);
        for (int64_t i = 0; i < rest; i++)
            for (int64_t p = 0; p < width; p++)
                negated[i * width + p] = -a[(first + i) * row + (k + p) * col];
        if (rest > 0)
            GEMM(x + first * columns, columns, negated, width, 1, x + k * columns, columns, 1, rest, columns, width);
    }
}

#undef T
#undef FN
#undef GEMM
