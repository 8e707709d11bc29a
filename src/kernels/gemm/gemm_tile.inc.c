// The part of the plain matrix product that depends on the size of the vectors, VECTOR bytes: panels of b two vectors
// wide, and four rows of c at a time. gemm.inc.c includes it once for each size; TILE names the functions.

typedef T TILE(vector_of) __attribute__((vector_size(VECTOR)));
enum { TILE(WIDTH) = 2 * VECTOR / sizeof(T) }; // columns per panel

// Computes `height` rows of c for n columns of a panel, which can be read in full. The two vectors of sums per row stay
// in registers.
static inline __attribute__((always_inline)) void TILE(rows)(int height, T *c, int64_t c_row, const T *a, int64_t a_row,
                                                             int64_t a_col, const T *b, int64_t b_row, int64_t n,
                                                             int64_t k)
{
    enum { LANES = VECTOR / sizeof(T), WIDTH = 2 * LANES };
    TILE(vector_of) sums[4][2], left, right;
    for (int r = 0; r < height; r++)
        sums[r][0] = sums[r][1] = (TILE(vector_of)){0};
    for (int64_t p = 0; p < k; p++) {
        memcpy(&left, b + p * b_row, sizeof left);
        memcpy(&right, b + p * b_row + LANES, sizeof right);
        for (int r = 0; r < height; r++) {
            sums[r][0] += a[r * a_row + p * a_col] * left;
            sums[r][1] += a[r * a_row + p * a_col] * right;
        }
    }
    for (int r = 0; r < height && n == WIDTH; r++) {
        T *row = c + r * c_row;
        memcpy(&left, row, sizeof left);
        memcpy(&right, row + LANES, sizeof right);
        left += sums[r][0];
        right += sums[r][1];
        memcpy(row, &left, sizeof left);
        memcpy(row + LANES, &right, sizeof right);
    }
    for (int r = 0; r < height && n < WIDTH; r++) {
        T row[WIDTH];
        memcpy(row, sums[r], sizeof row);
        for (int64_t l = 0; l < n; l++)
            c[r * c_row + l] += row[l];
    }
}

// Copies a panel of b, at least one row and one column, and fills the missing columns with zeros.
static inline __attribute__((always_inline)) void TILE(pack)(T *panel, const T *b, int64_t b_row, int64_t b_col,
                                                             int64_t depth, int64_t width)
{
    enum { WIDTH = TILE(WIDTH) };
    if (width < WIDTH)
        memset(panel, 0, (size_t)(depth * WIDTH) * sizeof(T));
    if (b_col == 1)
        for (int64_t q = 0; q < depth; q++)
            memcpy(panel + q * WIDTH, b + q * b_row, (size_t)width * sizeof(T));
    else
        for (int64_t l = 0; l < width; l++)
            for (int64_t q = 0; q < depth; q++)
                panel[q * WIDTH + l] = b[q * b_row + l * b_col];
}

static inline __attribute__((always_inline)) void TILE(block)(T *c, int64_t c_row, const T *a, int64_t a_row,
                                                              int64_t a_col, const T *b, int64_t b_row, int64_t m,
                                                              int64_t n, int64_t k)
{
    int64_t i = 0;
    for (; i + 4 <= m; i += 4)
        TILE(rows)(4, c + i * c_row, c_row, a + i * a_row, a_row, a_col, b, b_row, n, k);
    for (; i + 2 <= m; i += 2)
        TILE(rows)(2, c + i * c_row, c_row, a + i * a_row, a_row, a_col, b, b_row, n, k);
    if (i < m)
        TILE(rows)(1, c + i * c_row, c_row, a + i * a_row, a_row, a_col, b, b_row, n, k);
}

static inline __attribute__((always_inline)) void TILE(product)(T *c, int64_t c_row, const T *a, int64_t a_row,
                                                                int64_t a_col, const T *b, int64_t b_row, int64_t b_col,
                                                                int64_t m, int64_t n, int64_t k)
{
    enum { WIDTH = TILE(WIDTH) };
    _Alignas(VECTOR) T panel[DEPTH * WIDTH];
    for (int64_t p = 0; p < k; p += DEPTH)
        for (int64_t i = 0; i < m; i += ROWS)
            for (int64_t j = 0; j < n; j += WIDTH) {
                const int64_t depth = least(DEPTH, k - p), width = least(WIDTH, n - j);
                const T *from = b + p * b_row + j * b_col;
                const bool ready = width == WIDTH && b_col == 1 && b_row <= NEAR * WIDTH;
                if (!ready)
                    TILE(pack)(panel, from, b_row, b_col, depth, width);
                TILE(block)
                (c + i * c_row + j, c_row, a + i * a_row + p * a_col, a_row, a_col, ready ? from : panel,
                 ready ? b_row : WIDTH, least(ROWS, m - i), width, depth);
            }
}

#undef VECTOR
#undef TILE
