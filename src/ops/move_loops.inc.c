// A copy with strides, for elements of one size; included by view.c once per size. T, FN(name).

// One row.
static void FN(move)(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const T *in = (const T *)k->in[0].data + at[0];
    T *out = (T *)k->out[0].data + out_at;
    int64_t step = walk->strides[0][walk->rank - 1];
    if (step == 1) {
        memcpy(out, in, (size_t)n * sizeof(T));
    } else if (step == 0) {
        const T value = in[0];
        for (int64_t i = 0; i < n; i++)
            out[i] = value;
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = in[i * step];
    }
}

// A matrix whose columns are dense in the input: rows of the output are read in tiles, so that each line of
// the input's memory is used while it is near.
static void FN(turn)(const void *from, int64_t stride, void *to, int64_t rows, int64_t columns)
{
    const T *in = from;
    T *out = to;
    for (int64_t row = 0; row < rows; row += TILE)
        for (int64_t column = 0; column < columns; column += TILE) {
            int64_t last_row = MU_MIN(row + TILE, rows), last_column = MU_MIN(column + TILE, columns);
            for (int64_t i = row; i < last_row; i++)
                for (int64_t j = column; j < last_column; j++)
                    out[i * columns + j] = in[i + j * stride];
        }
}
#undef T
#undef FN
