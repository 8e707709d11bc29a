// Cholesky factors and triangular systems for one float type T, named by FN; linalg.c includes it once for each.
//
// Both recurse on halves of the matrix down to blocks of BLOCK rows, so that nearly all of the work is products of
// large matrices (SUBTRACT). A block is copied to contiguous memory and processed in vectors of 64 bytes. Arrays are
// row-major; linalg.c's block_memory allocates `memory`.

typedef T FN(vec) __attribute__((vector_size(VECTOR_BYTES)));
enum { FN(LANES) = VECTOR_BYTES / sizeof(T), FN(TILE) = 4 * FN(LANES) };

// Solves op(A) x = b for `wide` adjacent vectors of columns; the factor's rows are `row` elements apart.
static inline __attribute__((always_inline)) void FN(solve_wide)(const T *factor, int64_t row, bool lower, int64_t n,
                                                                 FN(vec) * x, int64_t wide)
{
    for (int64_t step = 0; step < n; step++) {
        const int64_t i = lower ? step : n - 1 - step, from = lower ? 0 : i + 1, to = lower ? i : n;
        const T *own = factor + i * row;
        FN(vec) sums[4];
        for (int64_t w = 0; w < wide; w++)
            sums[w] = x[i * wide + w];
        for (int64_t j = from; j < to; j++)
            for (int64_t w = 0; w < wide; w++)
                sums[w] -= own[j] * x[j * wide + w];
        for (int64_t w = 0; w < wide; w++)
            x[i * wide + w] = sums[w] / own[i];
    }
}

MU_PER_ISA(FN(solve_tile), (const T *factor, int64_t row, bool lower, int64_t n, FN(vec) * x, int64_t wide),
           (factor, row, lower, n, x, wide))
{
    if (wide == 1)
        FN(solve_wide)(factor, row, lower, n, x, 1);
    else if (wide == 2)
        FN(solve_wide)(factor, row, lower, n, x, 2);
    else
        FN(solve_wide)(factor, row, lower, n, x, 4);
}

// Writes the transpose of a block, whose rows are `row` elements apart, contiguously.
static void FN(transpose_block)(const T *a, int64_t row, int64_t n, T *to)
{
    if (n == BLOCK) {
        mu__kernels()->transpose(a, row, to, BLOCK, (int)sizeof(T), 0, BLOCK);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            to[i * BLOCK + j] = a[i + j * row];
}

// Solves for one block of rows of x, a group of columns at a time.
static void FN(solve_block)(const T *a, int64_t row, int64_t col, bool lower, int64_t n, T *x, int64_t columns,
                            int64_t stride, const block_memory *memory)
{
    T *tile = memory->tile;
    if (col != 1) {
        FN(transpose_block)(a, col, n, memory->factor);
        a = memory->factor;
        row = BLOCK;
    }
    for (int64_t c = 0; c < columns; c += FN(TILE)) {
        const int64_t count = MU_MIN((int64_t)FN(TILE), columns - c);
        const int64_t wide = count <= FN(LANES) ? 1 : count <= 2 * FN(LANES) ? 2 : 4, all = wide * FN(LANES);
        for (int64_t i = 0; i < n; i++) {
            memcpy(tile + i * all, x + i * stride + c, (size_t)count * sizeof(T));
            if (count < all)
                memset(tile + i * all + count, 0, (size_t)(all - count) * sizeof(T));
        }
        FN(solve_tile)(a, row, lower, n, (FN(vec) *)(void *)tile, wide);
        for (int64_t i = 0; i < n; i++)
            memcpy(x + i * stride + c, tile + i * all, (size_t)count * sizeof(T));
    }
}

// Where op(A) is split in half: at a multiple of BLOCK.
static int64_t FN(half)(int64_t n) { return (n / 2 + BLOCK - 1) / BLOCK * BLOCK; }

// Solves op(A) x = b in place of b; `lower` says whether op(A) is lower triangular.
static void FN(solve_columns)(const T *a, int64_t row, int64_t col, bool lower, int64_t n, T *x, int64_t columns,
                              const block_memory *memory)
{
    if (n <= BLOCK) {
        FN(solve_block)(a, row, col, lower, n, x, columns, columns, memory);
        return;
    }
    const int64_t half = FN(half)(n), rest = n - half;
    const T *last = a + half * (row + col);
    T *below = x + half * columns;
    if (lower) {
        FN(solve_columns)(a, row, col, lower, half, x, columns, memory);
        SUBTRACT(below, columns, a + half * row, row, col, x, columns, 1, rest, columns, half, memory);
        FN(solve_columns)(last, row, col, lower, rest, below, columns, memory);
    } else {
        FN(solve_columns)(last, row, col, lower, rest, below, columns, memory);
        SUBTRACT(x, columns, a + half * col, row, col, below, columns, 1, half, columns, rest, memory);
        FN(solve_columns)(a, row, col, lower, half, x, columns, memory);
    }
}

// A vector that may be unaligned.
typedef T FN(loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));

// For FEW rows of op(A), of which `count` exist: the sums of their products with the known elements [from, to) of x.
static inline __attribute__((always_inline)) void FN(take_off)(const T *a, int64_t row, int64_t count, int64_t from,
                                                               int64_t to, const T *x, T sums[FEW])
{
    FN(vec) wide[FEW] = {{0}};
    const T *own[FEW];
    int64_t j = from;
    for (int64_t r = 0; r < FEW; r++) {
        own[r] = a + MU_MIN(r, count - 1) * row;
        sums[r] = 0;
    }
    for (; j + FN(LANES) <= to; j += FN(LANES))
        for (int64_t r = 0; r < FEW; r++)
            wide[r] += *(const FN(loose) *)(own[r] + j) * *(const FN(loose) *)(x + j);
    for (; j < to; j++)
        for (int64_t r = 0; r < FEW; r++)
            sums[r] += own[r][j] * x[j];
    for (int64_t r = 0; r < FEW; r++) {
        T parts[FN(LANES)];
        memcpy(parts, &wide[r], sizeof parts);
        for (int64_t half = FN(LANES) / 2; half > 0; half /= 2)
            for (int64_t lane = 0; lane < half; lane++)
                parts[lane] += parts[lane + half];
        sums[r] += parts[0];
    }
}

// One column, rows of op(A) contiguous. For each group of rows, subtracts the known part, then solves within the group.
MU_PER_ISA(FN(solve_by_rows), (const T *a, int64_t row, bool lower, int64_t n, T *x), (a, row, lower, n, x))
{
    for (int64_t done = 0; done < n; done += FEW) {
        const int64_t count = MU_MIN((int64_t)FEW, n - done), first = lower ? done : n - done - count;
        const T *block = a + first * row;
        T sums[FEW];
        FN(take_off)(block, row, count, lower ? 0 : first + count, lower ? first : n, x, sums);
        for (int64_t step = 0; step < count; step++) {
            const int64_t i = lower ? step : count - 1 - step, from = lower ? 0 : i + 1, to = lower ? i : count;
            const T *own = block + i * row + first;
            T rest = x[first + i] - sums[i];
            for (int64_t j = from; j < to; j++)
                rest -= own[j] * x[first + j];
            x[first + i] = rest / own[i];
        }
    }
}

// One column, columns of op(A) contiguous: each element found is eliminated from all that follow.
MU_PER_ISA(FN(solve_by_columns), (const T *a, int64_t col, bool lower, int64_t n, T *x), (a, col, lower, n, x))
{
    for (int64_t step = 0; step < n; step++) {
        const int64_t j = lower ? step : n - 1 - step, from = lower ? j + 1 : 0, to = lower ? n : j;
        const T *own = a + j * col;
        const T value = x[j] / own[j];
        x[j] = value;
        for (int64_t i = from; i < to; i++)
            x[i] -= own[i] * value;
    }
}

static void FN(solve)(const void *a, int64_t row, int64_t col, bool lower, int64_t n, void *x, int64_t columns,
                      const block_memory *memory)
{
    if (columns > 1)
        FN(solve_columns)(a, row, col, lower, n, x, columns, memory);
    else if (col == 1)
        FN(solve_by_rows)(a, row, lower, n, x);
    else
        FN(solve_by_columns)(a, col, lower, n, x);
}

// Upper factor of a symmetric block, in place, in rows of `wide` vectors. Elements below the diagonal and columns from
// n on are computed too but never used. Returns false if a pivot is not positive.
static inline __attribute__((always_inline)) bool FN(factor_wide)(FN(vec) * a, int64_t n, int64_t wide)
{
    T *elements = (T *)a;
    const int64_t row = wide * FN(LANES);
    for (int64_t j = 0; j < n; j++) {
        const T pivot = elements[j * row + j];
        if (!(pivot > 0))
            return false;
        const T inverse = 1 / (T)sqrt((double)pivot);
        FN(vec) *own = a + j * wide;
        for (int64_t w = j / FN(LANES); w < wide; w++)
            own[w] *= inverse;
        for (int64_t i = j + 1; i < n; i++) {
            const T factor = elements[j * row + i];
            FN(vec) *other = a + i * wide;
            for (int64_t w = i / FN(LANES); w < wide; w++)
                other[w] -= factor * own[w];
        }
    }
    return true;
}

MU_PER_ISA_RESULT(bool, FN(factor_upper), (FN(vec) * a, int64_t n, int64_t wide), (a, n, wide))
{
    return wide == 1 ? FN(factor_wide)(a, n, 1) : FN(factor_wide)(a, n, wide);
}

// Lower factor of a block with rows `row` elements apart, in place. Elements above the diagonal are neither read nor
// changed.
static bool FN(factor_block)(T *a, int64_t row, int64_t n, const block_memory *memory)
{
    T *upper = memory->factor;
    const int64_t wide = (n + FN(LANES) - 1) / FN(LANES), all = wide * FN(LANES);
    if (n == all)
        mu__kernels()->transpose(a, row, upper, all, (int)sizeof(T), 0, n);
    else
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < all; j++)
                upper[i * all + j] = j < n ? a[j * row + i] : 0;
    if (!FN(factor_upper)((FN(vec) *)(void *)upper, n, wide))
        return false;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            a[i * row + j] = upper[j * all + i];
    return true;
}

// Solves x L' = p in place of p; L is n by n. Each row of p is one system; they are processed in groups that fit a
// tile.
static void FN(solve_rows)(T *p, int64_t rows, int64_t row, const T *l, int64_t n, const block_memory *memory)
{
    if (n > BLOCK) {
        const int64_t half = FN(half)(n), rest = n - half;
        FN(solve_rows)(p, rows, row, l, half, memory);
        SUBTRACT(p + half, row, p, row, 1, l + half * row, 1, row, rows, rest, half, memory);
        FN(solve_rows)(p + half, rows, row, l + half * (row + 1), rest, memory);
        return;
    }
    T *tile = memory->tile;
    for (int64_t r = 0; r < rows; r += FN(TILE)) {
        const int64_t count = MU_MIN((int64_t)FN(TILE), rows - r);
        T *own = p + r * row;
        if (count < FN(TILE))
            memset(tile, 0, (size_t)(n * FN(TILE)) * sizeof(T));
        if (count < FN(TILE))
            for (int64_t i = 0; i < n; i++)
                for (int64_t c = 0; c < count; c++)
                    tile[i * FN(TILE) + c] = own[c * row + i];
        else
            mu__kernels()->transpose(own, row, tile, FN(TILE), (int)sizeof(T), 0, n);
        FN(solve_tile)(l, row, true, n, (FN(vec) *)(void *)tile, 4);
        for (int64_t c = 0; c < count; c++)
            for (int64_t i = 0; i < n; i++)
                own[c * row + i] = tile[i * FN(TILE) + c];
    }
}

// Lower half of c - p p'. Elements above the diagonal are left undefined.
static void FN(subtract_square)(T *c, int64_t row, int64_t n, const T *p, int64_t k, const block_memory *memory)
{
    if (n <= 2 * BLOCK) {
        SUBTRACT(c, row, p, row, 1, p, 1, row, n, n, k, memory);
        return;
    }
    const int64_t half = FN(half)(n), rest = n - half;
    FN(subtract_square)(c, row, half, p, k, memory);
    SUBTRACT(c + half * row, row, p + half * row, row, 1, p, 1, row, rest, half, k, memory);
    FN(subtract_square)(c + half * (row + 1), row, rest, p + half * row, k, memory);
}

static bool FN(factor)(T *a, int64_t row, int64_t n, const block_memory *memory)
{
    if (n <= BLOCK)
        return FN(factor_block)(a, row, n, memory);
    const int64_t half = FN(half)(n), rest = n - half;
    T *below = a + half * row;
    if (!FN(factor)(a, row, half, memory))
        return false;
    FN(solve_rows)(below, rest, row, a, half, memory);
    FN(subtract_square)(below + half, row, rest, below, half, memory);
    return FN(factor)(below + half, row, rest, memory);
}

// Writes the lower factor of the n by n matrix `a` to `l`. Returns false if the matrix is not positive definite.
static bool FN(cholesky)(const void *a, int64_t n, void *l_data, const block_memory *memory)
{
    T *l = l_data;
    if (l_data != a)
        memcpy(l, a, (size_t)(n * n) * sizeof(T));
    const bool done = FN(factor)(l, n, n, memory);
    for (int64_t i = 0; i < n; i++)
        memset(l + i * n + i + 1, 0, (size_t)(n - 1 - i) * sizeof(T));
    return done;
}

#undef T
#undef FN
#undef SUBTRACT
