// The loops of extremes.c for one type. T: the element; V, M: a vector of them and a mask of its lanes; FN(name);
// EXTREME(a, b, least): of each lane, b where either is NaN; UNORDERED(a, b): where either is NaN; MARK(v, odd): NaN
// where it is.

enum { FN(LANES) = 4 * MU_LANES / (int)sizeof(T), FN(SIDES) = 4, FN(AHEAD) = 2048, FN(NEAR) = 1024 };

MU_INLINE V FN(load)(const T *p)
{
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}

MU_INLINE T FN(of_two)(T a, T b, bool smallest)
{
    const bool wins = smallest ? a < b : a > b;
    return wins || a != a ? a : b;
}

// The extreme of n numbers in a row; a NaN makes it one.
MU_INLINE T FN(row)(const T *x, int64_t n, bool smallest)
{
    const T none = smallest ? (T)INFINITY : -(T)INFINITY;
    const V start = none - (V){0};
    V best[FN(SIDES)] = {start, start, start, start};
    M odd = {0};
    T lanes[FN(LANES)], result = none;
    int64_t i = 0;
    for (; i + FN(SIDES) * FN(LANES) <= n; i += FN(SIDES) * FN(LANES)) {
        V here[FN(SIDES)];
        MU_UNROLL
        for (int k = 0; k < FN(SIDES); k++) {
            here[k] = FN(load)(x + i + k * FN(LANES));
            v_fetch_far(x + i + k * FN(LANES), FN(AHEAD));
            best[k] = EXTREME(here[k], best[k], smallest);
        }
        odd = (M)(odd | UNORDERED(here[0], here[1]) | UNORDERED(here[2], here[3]));
    }
    for (; i + FN(LANES) <= n; i += FN(LANES)) {
        const V here = FN(load)(x + i);
        best[0] = EXTREME(here, best[0], smallest);
        odd = (M)(odd | UNORDERED(here, here));
    }
    best[0] = EXTREME(best[1], best[0], smallest);
    best[2] = EXTREME(best[3], best[2], smallest);
    best[0] = MARK(EXTREME(best[2], best[0], smallest), odd);
    memcpy(lanes, &best[0], sizeof lanes);
    for (int half = FN(LANES) / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] = FN(of_two)(lanes[lane], lanes[lane + half], smallest);
    for (; i < n; i++)
        result = FN(of_two)(x[i], result, smallest);
    return FN(of_two)(result, lanes[0], smallest);
}

// Takes four rows of a vector of columns into what is there.
MU_INLINE void FN(take_four)(const T *x, int64_t stride, T *y, bool smallest)
{
    const V a = FN(load)(x), b = FN(load)(x + stride), c = FN(load)(x + 2 * stride), d = FN(load)(x + 3 * stride);
    const V first = EXTREME(a, b, smallest), second = EXTREME(c, d, smallest);
    const V best = EXTREME(EXTREME(first, second, smallest), FN(load)(y), smallest);
    const V marked = MARK(best, (M)(UNORDERED(a, b) | UNORDERED(c, d)));
    memcpy(y, &marked, sizeof marked);
}

MU_INLINE void FN(take_one)(const T *x, T *y, bool smallest)
{
    const V here = FN(load)(x), best = EXTREME(here, FN(load)(y), smallest);
    const V marked = MARK(best, UNORDERED(here, here));
    memcpy(y, &marked, sizeof marked);
}

// y[j]: the extreme of column j of n rows.
MU_INLINE void FN(columns)(const T *x, T *y, int64_t n, int64_t stride, int64_t width, bool smallest)
{
    const int64_t whole = width / FN(LANES) * FN(LANES);
    int64_t i = 0;
    for (int64_t j = 0; j < width; j++)
        y[j] = smallest ? (T)INFINITY : -(T)INFINITY;
    for (; i + 4 <= n; i += 4) {
        const T *row = x + i * stride;
        for (int64_t j = 0; j < whole; j += FN(LANES)) {
            for (int64_t k = 0; k < 4; k++)
                v_fetch_far(row + k * stride + j, FN(NEAR));
            FN(take_four)(row + j, stride, y + j, smallest);
        }
        for (int64_t j = whole; j < width; j++)
            for (int64_t k = 0; k < 4; k++)
                y[j] = FN(of_two)(row[k * stride + j], y[j], smallest);
    }
    for (; i < n; i++) {
        for (int64_t j = 0; j < whole; j += FN(LANES))
            FN(take_one)(x + i * stride + j, y + j, smallest);
        for (int64_t j = whole; j < width; j++)
            y[j] = FN(of_two)(x[i * stride + j], y[j], smallest);
    }
}

#undef T
#undef V
#undef M
#undef FN
#undef EXTREME
#undef UNORDERED
#undef MARK
