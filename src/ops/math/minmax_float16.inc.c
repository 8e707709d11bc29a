// Minima and maxima of 16-bit floats as integers; included by reduce.c. A float with its magnitude bits inverted if it
// is negative is an integer with the same order, in which NaNs are beyond the infinities. So the loops find both
// extremes, and these tell whether there was a NaN.

// Converts a float to its integer key, and back.
REDUCE_INLINE int16_t turned_float16(int x)
{
    return (int16_t)(x ^ ((int16_t)x >> 15 & 0x7fff));
}

typedef struct float16_minmax {
    int16_t most, least;
} float16_minmax;

REDUCE_INLINE uint16_t float16_minmax_of(float16_minmax found, bool smallest, uint16_t infinity)
{
    const bool odd = found.most > (int)infinity || found.least < turned_float16(infinity | 0x8000);
    return odd ? 0x7fff : (uint16_t)turned_float16(smallest ? found.least : found.most);
}

// Of a row. For an empty row: the infinity that any element replaces.
MU_CLONES
static uint16_t minmax_of_float16(bool smallest, uint16_t infinity, const uint16_t *x, int64_t n)
{
    int16_t most = turned_float16(infinity | 0x8000), least = (int16_t)infinity;
    for (int64_t i = 0; i < n; i++) {
        const int16_t here = turned_float16(x[i]);
        most = here > most ? here : most;
        least = here < least ? here : least;
    }
    return float16_minmax_of((float16_minmax){most, least}, smallest, infinity);
}

REDUCE_INLINE void meet_float16(int rows, int64_t lanes, const uint16_t *x, int64_t stride, int16_t *most,
                                int16_t *least)
{
    MU_INDEPENDENT
    for (int64_t j = 0; j < lanes; j++) {
        int16_t high = most[j], low = least[j];
        for (int k = 0; k < rows; k++) {
            const int16_t here = turned_float16(x[k * stride + j]);
            high = here > high ? here : high;
            low = here < low ? here : low;
        }
        most[j] = high;
        least[j] = low;
    }
}

// Of up to MOST_BYTES of columns.
MU_CLONES
static void minmaxes_of_float16(bool smallest, uint16_t infinity, const uint16_t *x, int64_t n, int64_t stride,
                                int64_t width, uint16_t *out)
{
    enum { STEP = MU_PREFETCH_STEP / sizeof *x };
    int16_t most[MOST_BYTES / sizeof *x], least[MOST_BYTES / sizeof *x];
    mu_prefetch prefetch = mu__prefetch(n, stride * (int64_t)sizeof *x, width * (int64_t)sizeof *x);
    int64_t i = 0;
    for (int64_t j = 0; j < width; j++) {
        most[j] = turned_float16(infinity | 0x8000);
        least[j] = (int16_t)infinity;
    }
    for (; i + 8 <= n; i += 8) {
        const uint16_t *rows = x + i * stride;
        int64_t j = 0;
        mu__prefetch_from(&prefetch, rows + 8 * stride);
        for (; prefetch.far && j + STEP <= width; j += STEP) {
            mu__prefetch_step(&prefetch);
            meet_float16(8, STEP, rows + j, stride, most + j, least + j);
        }
        meet_float16(8, width - j, rows + j, stride, most + j, least + j);
    }
    for (; i < n; i++)
        meet_float16(1, width, x + i * stride, stride, most, least);
    for (int64_t j = 0; j < width; j++)
        out[j] = float16_minmax_of((float16_minmax){most[j], least[j]}, smallest, infinity);
}
