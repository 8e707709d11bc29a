// Extremes of 16-bit floats as whole numbers; included by reduce.c. Main idea: with its size turned round where it is
// negative a float is a whole number of the same order, in which NaNs lie beyond the infinities; so both extremes are
// found, and they tell whether a NaN was there. Knows no axes.

// Turns a float into its whole number, and back.
REDUCE_INLINE int16_t turned_half(int x)
{
    return (int16_t)(x ^ ((int16_t)x >> 15 & 0x7fff));
}

typedef struct half_extremes {
    int16_t most, least;
} half_extremes;

REDUCE_INLINE uint16_t half_extreme_of(half_extremes found, bool smallest, uint16_t infinity)
{
    const bool odd = found.most > (int)infinity || found.least < turned_half(infinity | 0x8000);
    return odd ? 0x7fff : (uint16_t)turned_half(smallest ? found.least : found.most);
}

// Of a row; of none the infinity that is beaten by all.
MU_CLONES
static uint16_t extreme_of_halves(bool smallest, uint16_t infinity, const uint16_t *x, int64_t n)
{
    int16_t most = turned_half(infinity | 0x8000), least = (int16_t)infinity;
    for (int64_t i = 0; i < n; i++) {
        const int16_t here = turned_half(x[i]);
        most = here > most ? here : most;
        least = here < least ? here : least;
    }
    return half_extreme_of((half_extremes){most, least}, smallest, infinity);
}

REDUCE_INLINE void meet_halves(int rows, int64_t lanes, const uint16_t *x, int64_t stride, int16_t *most,
                               int16_t *least)
{
    MU_INDEPENDENT
    for (int64_t j = 0; j < lanes; j++) {
        int16_t high = most[j], low = least[j];
        for (int k = 0; k < rows; k++) {
            const int16_t here = turned_half(x[k * stride + j]);
            high = here > high ? here : high;
            low = here < low ? here : low;
        }
        most[j] = high;
        least[j] = low;
    }
}

// Of up to MOST_BYTES of columns.
MU_CLONES
static void extremes_of_halves(bool smallest, uint16_t infinity, const uint16_t *x, int64_t n, int64_t stride,
                               int64_t width, uint16_t *out)
{
    enum { STEP = MU_AHEAD_STEP / sizeof *x };
    int16_t most[MOST_BYTES / sizeof *x], least[MOST_BYTES / sizeof *x];
    mu_ahead ahead = mu__ahead(n, stride * (int64_t)sizeof *x, width * (int64_t)sizeof *x);
    int64_t i = 0;
    for (int64_t j = 0; j < width; j++) {
        most[j] = turned_half(infinity | 0x8000);
        least[j] = (int16_t)infinity;
    }
    for (; i + 8 <= n; i += 8) {
        const uint16_t *rows = x + i * stride;
        int64_t j = 0;
        mu__ahead_from(&ahead, rows + 8 * stride);
        for (; ahead.far && j + STEP <= width; j += STEP) {
            mu__ahead_step(&ahead);
            meet_halves(8, STEP, rows + j, stride, most + j, least + j);
        }
        meet_halves(8, width - j, rows + j, stride, most + j, least + j);
    }
    for (; i < n; i++)
        meet_halves(1, width, x + i * stride, stride, most, least);
    for (int64_t j = 0; j < width; j++)
        out[j] = half_extreme_of((half_extremes){most[j], least[j]}, smallest, infinity);
}
