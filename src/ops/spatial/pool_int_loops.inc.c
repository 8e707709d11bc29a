// Max pools of one integer type T with minimum LEAST, named by FN; pool_int.c includes it once per type.
//
// An output pixel starts as its window's first tap and is compared with the other taps one by one, all channels
// together.

// Writes positions to `narrow` or `wide`, whichever is not NULL.
static inline __attribute__((always_inline)) void FN(compare)(const T *x, T *best, uint8_t *narrow, int32_t *wide,
                                                              int64_t tap, int64_t channels)
{
    const int64_t as_narrow = narrow ? channels : 0, as_wide = wide ? channels : 0;
    MU_INDEPENDENT
    for (int64_t c = 0; c < as_narrow; c++) {
        const bool more = x[c] > best[c];
        best[c] = more ? x[c] : best[c];
        narrow[c] = more ? (uint8_t)tap : narrow[c];
    }
    MU_INDEPENDENT
    for (int64_t c = 0; c < as_wide; c++) {
        const bool more = x[c] > best[c];
        best[c] = more ? x[c] : best[c];
        wide[c] = more ? (int32_t)tap : wide[c];
    }
}

static inline __attribute__((always_inline)) void FN(start)(const T *x, T *best, uint8_t *narrow, int32_t *wide,
                                                            int64_t tap, int64_t channels)
{
    for (int64_t c = 0; c < channels; c++)
        best[c] = x ? x[c] : (T)LEAST;
    for (int64_t c = 0; narrow && c < channels; c++)
        narrow[c] = (uint8_t)tap;
    for (int64_t c = 0; wide && c < channels; c++)
        wide[c] = (int32_t)tap;
}

static inline __attribute__((always_inline)) void FN(pixel)(const mu_pool_call *p, int64_t n, int64_t oy, int64_t ox)
{
    const mu_window_axis *y = &p->window.y, *x = &p->window.x;
    const int64_t channels = p->window.channels, at = ((n * y->out + oy) * x->out + ox) * channels;
    const int64_t top = oy * y->stride - y->before, left = ox * x->stride - x->before;
    T *best = (T *)p->result + at;
    uint8_t *narrow = p->wide_positions ? NULL : (uint8_t *)p->positions + at;
    int32_t *wide = p->wide_positions ? (int32_t *)p->positions + at : NULL;
    bool started = false;
    for (int64_t ky = MU_MAX(0, -top); ky < y->size && top + ky < y->in; ky++)
        for (int64_t kx = MU_MAX(0, -left); kx < x->size && left + kx < x->in; kx++) {
            const T *from = (const T *)p->image + ((n * y->in + top + ky) * x->in + left + kx) * channels;
            if (started)
                FN(compare)(from, best, narrow, wide, ky * x->size + kx, channels);
            else
                FN(start)(from, best, narrow, wide, ky * x->size + kx, channels);
            started = true;
        }
    if (!started)
        FN(start)(NULL, best, narrow, wide, 0, channels);
}

MU_PER_ISA(FN(max_pool), (const mu_pool_call *p, int64_t begin, int64_t end), (p, begin, end))
{
    for (int64_t n = begin; n < end; n++)
        for (int64_t oy = 0; oy < p->window.y.out; oy++)
            for (int64_t ox = 0; ox < p->window.x.out; ox++)
                FN(pixel)(p, n, oy, ox);
}

#undef T
#undef FN
#undef LEAST
