// The loops of blocked_gemm.c for one element type T; FN(name).

typedef T FN(vector) __attribute__((vector_size(4 * MU_LANES)));
enum {
    FN(LANES) = 4 * MU_LANES / (int)sizeof(T),
    FN(WIDTH) = SIDES * FN(LANES), // columns of a panel of a block of b
    FN(COLUMNS) = MU_PRODUCT_BLOCK / (DEPTH * (int)sizeof(T)) / FN(WIDTH) * FN(WIDTH) // columns of a block of b
};

// A part of c and the matching starts in a and b.
typedef struct FN(part) {
    const mu_product_shape *shape;
    const T *a, *b;
    T *c;
    int64_t rows, columns, depth;
    bool adds; // adds to c instead of overwriting it
} FN(part);

MU_INLINE FN(vector) FN(load)(const T *p)
{
    FN(vector) v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Writes the part of a tile that is inside c: `columns` by `rows`.
MU_INLINE void FN(put)(int sides, FN(vector) sums[HIGH][SIDES], const FN(part) * to, T *c, int64_t rows,
                       int64_t columns)
{
    const int64_t step = to->shape->columns;
    T tile[HIGH * FN(WIDTH)];
    const bool whole = rows == HIGH && columns == sides * FN(LANES);
    MU_UNROLL
    for (int r = 0; r < HIGH; r++) {
        MU_UNROLL
        for (int s = 0; s < sides; s++) {
            T *at = whole ? c + r * step + s * FN(LANES) : tile + r * FN(WIDTH) + s * FN(LANES);
            const FN(vector) sum = whole && to->adds ? FN(load)(at) + sums[r][s] : sums[r][s];
            memcpy(at, &sum, sizeof sum);
        }
    }
    for (int64_t r = 0; !whole && r < rows; r++)
        for (int64_t j = 0; j < columns; j++)
            c[r * step + j] = tile[r * FN(WIDTH) + j] + (to->adds ? c[r * step + j] : 0);
}

// Computes one tile: HIGH rows of a by a panel of b, which is `sides` vectors wide.
MU_INLINE void FN(tile)(int sides, const T *a, const T *b, const FN(part) * to, T *c, int64_t rows, int64_t columns)
{
    FN(vector) sums[HIGH][SIDES], right[SIDES];
    MU_UNROLL
    for (int r = 0; r < HIGH; r++) {
        MU_UNROLL
        for (int s = 0; s < sides; s++) {
            __builtin_prefetch(c + r * to->shape->columns + s * FN(LANES), 1, 2);
            sums[r][s] = (FN(vector)){0};
        }
    }
    for (int64_t p = 0; p < to->depth; p++, a += HIGH, b += sides * FN(LANES)) {
        MU_UNROLL
        for (int s = 0; s < sides; s++) {
            right[s] = FN(load)(b + s * FN(LANES));
            v_prefetch(b + s * FN(LANES), PREFETCH * sides * 4 * MU_LANES);
        }
        MU_UNROLL
        for (int r = 0; r < HIGH; r++) {
            MU_UNROLL
            for (int s = 0; s < sides; s++)
                sums[r][s] += a[r] * right[s];
        }
    }
    FN(put)(sides, sums, to, c, rows, columns);
}

static void FN(sweep)(const FN(part) * to, const T *a, const T *block, T *c, int64_t rows)
{
    for (int64_t j = 0; j < to->columns; j += FN(WIDTH)) {
        const int64_t columns = least(FN(WIDTH), to->columns - j);
        const T *b = block + j * to->depth;
        if (columns > 2 * FN(LANES))
            FN(tile)(SIDES, a, b, to, c + j, rows, columns);
        else if (columns > FN(LANES))
            FN(tile)(2, a, b, to, c + j, rows, columns);
        else
            FN(tile)(1, a, b, to, c + j, rows, columns);
    }
}

// Packs a panel of which `columns` columns are in b.
MU_INLINE int64_t FN(padded)(int64_t columns)
{
    return columns >= FN(WIDTH) ? FN(WIDTH) : (columns + FN(LANES) - 1) / FN(LANES) * FN(LANES);
}

// Packs a block of b panel by panel; the last panel has only as many vectors as it needs, padded with zeros. Both
// ways read b in the order of memory.
MU_INLINE void FN(pack_block)(T *block, const FN(part) * from, int64_t b_row, int64_t b_column)
{
    const int64_t n = from->columns, depth = from->depth, whole = n / FN(WIDTH) * FN(WIDTH);
    const int64_t rest = FN(padded)(n - whole);
    T *last = block + whole * depth;
    memset(last, 0, (size_t)(depth * rest) * sizeof(T));
    for (int64_t p = 0; p < depth && b_column == 1; p++) {
        for (int64_t j = 0; j < whole; j += FN(WIDTH))
            memcpy(block + j * depth + p * FN(WIDTH), from->b + p * b_row + j, FN(WIDTH) * sizeof(T));
        memcpy(last + p * rest, from->b + p * b_row + whole, (size_t)(n - whole) * sizeof(T));
    }
    for (int64_t j = 0; j < n && b_column != 1; j++) {
        const int64_t panel = j / FN(WIDTH) * FN(WIDTH), step = FN(padded)(n - panel);
        for (int64_t p = 0; p < depth; p++)
            block[panel * depth + p * step + j - panel] = from->b[p * b_row + j * b_column];
    }
}

// Packs rows of a from `row` on, interleaved; missing rows are zeros.
MU_INLINE void FN(pack_rows)(T *few, const FN(part) * from, int64_t row, int64_t rows, int64_t a_row, int64_t a_column)
{
    const T *a = from->a + row * a_row;
    if (rows < HIGH)
        memset(few, 0, (size_t)(from->depth * HIGH) * sizeof(T));
    for (int64_t p = 0; p < from->depth && rows == HIGH; p++)
        for (int64_t r = 0; r < HIGH; r++)
            few[p * HIGH + r] = a[r * a_row + p * a_column];
    for (int64_t p = 0; p < from->depth && rows < HIGH; p++)
        for (int64_t r = 0; r < rows; r++)
            few[p * HIGH + r] = a[r * a_row + p * a_column];
}

static void FN(block)(const FN(part) * part, T *scratch)
{
    const mu_product_shape *shape = part->shape;
    T *block = scratch, *few = scratch + DEPTH * FN(COLUMNS);
    FN(pack_block)(block, part, shape->b_row, shape->b_column);
    for (int64_t i = 0; i < part->rows; i += HIGH) {
        const int64_t rows = least(HIGH, part->rows - i);
        if (shape->a_row == 1) // a constant stride makes both branches fast
            FN(pack_rows)(few, part, i, rows, 1, shape->a_column);
        else if (shape->a_column == 1)
            FN(pack_rows)(few, part, i, rows, shape->a_row, 1);
        else
            FN(pack_rows)(few, part, i, rows, shape->a_row, shape->a_column);
        FN(sweep)(part, few, block, part->c + i * shape->columns, rows);
    }
}

static void FN(multiply)(const mu_product_shape *shape, const T *a, const T *b, T *c, T *scratch, int64_t begin,
                         int64_t end)
{
    for (int64_t i = begin; i < end; i += BLOCK_ROWS)
        for (int64_t j = 0; j < shape->columns; j += FN(COLUMNS))
            for (int64_t p = 0; p < shape->depth; p += DEPTH) {
                const FN(part) part = {
                    .shape = shape,
                    .a = a + i * shape->a_row + p * shape->a_column,
                    .b = b + p * shape->b_row + j * shape->b_column,
                    .c = c + i * shape->columns + j,
                    .rows = least(BLOCK_ROWS, end - i),
                    .columns = least(FN(COLUMNS), shape->columns - j),
                    .depth = least(DEPTH, shape->depth - p),
                    .adds = p > 0,
                };
                FN(block)(&part, scratch);
            }
}

#undef T
#undef FN
