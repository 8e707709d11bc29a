// The loops of minmax.c for one type. T: the element; V, M: a vector of T and a mask of its lanes; FN(name): the name
// of this copy; MINMAX(a, b, least): per lane, b if either is NaN; UNORDERED(a, b): lanes where either is NaN;
// MARK(v, odd): v with NaN in the lanes of odd.

enum { FN(LANES) = 4 * MU_LANES / (int)sizeof(T), FN(SIDES) = 4 };

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

// The extreme of n numbers in a row; a NaN makes the result NaN.
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
            best[k] = MINMAX(here[k], best[k], smallest);
        }
        odd = (M)(odd | UNORDERED(here[0], here[1]) | UNORDERED(here[2], here[3]));
    }
    for (; i + FN(LANES) <= n; i += FN(LANES)) {
        const V here = FN(load)(x + i);
        best[0] = MINMAX(here, best[0], smallest);
        odd = (M)(odd | UNORDERED(here, here));
    }
    best[0] = MINMAX(best[1], best[0], smallest);
    best[2] = MINMAX(best[3], best[2], smallest);
    best[0] = MARK(MINMAX(best[2], best[0], smallest), odd);
    memcpy(lanes, &best[0], sizeof lanes);
    for (int half = FN(LANES) / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] = FN(of_two)(lanes[lane], lanes[lane + half], smallest);
    for (; i < n; i++)
        result = FN(of_two)(x[i], result, smallest);
    return FN(of_two)(result, lanes[0], smallest);
}

// Folds one or four rows of one vector of columns into y.
MU_INLINE void FN(take)(int rows, const T *x, int64_t stride, T *y, bool smallest)
{
    V best = FN(load)(y);
    M odd = {0};
    MU_UNROLL
    for (int k = 0; k < rows; k += 2) {
        const V a = FN(load)(x + k * stride), b = rows > 1 ? FN(load)(x + (k + 1) * stride) : a;
        best = MINMAX(MINMAX(a, b, smallest), best, smallest);
        odd = (M)(odd | UNORDERED(a, b));
    }
    best = MARK(best, odd);
    memcpy(y, &best, sizeof best);
}

// Folds one or four rows of all columns into y.
MU_INLINE void FN(take_rows)(int rows, const T *x, int64_t stride, T *y, int64_t width, bool smallest)
{
    int64_t j = 0;
    for (; j + FN(LANES) <= width; j += FN(LANES))
        FN(take)(rows, x + j, stride, y + j, smallest);
    for (; j < width; j++)
        for (int64_t k = 0; k < rows; k++)
            y[j] = FN(of_two)(x[k * stride + j], y[j], smallest);
}

// y[j]: the extreme of column j of n rows.
MU_INLINE void FN(columns)(const T *x, T *y, int64_t n, int64_t stride, int64_t width, bool smallest)
{
    int64_t i = 0;
    for (int64_t j = 0; j < width; j++)
        y[j] = smallest ? (T)INFINITY : -(T)INFINITY;
    for (; i + 4 <= n; i += 4)
        FN(take_rows)(4, x + i * stride, stride, y, width, smallest);
    for (; i < n; i++)
        FN(take_rows)(1, x + i * stride, stride, y, width, smallest);
}

#undef T
#undef V
#undef M
#undef FN
#undef MINMAX
#undef UNORDERED
#undef MARK
