// Reductions of one element type; included by reduce.c once per type.
//
// T: the element; S: the type that sums and products are kept in (unsigned for integers, so that they wrap);
// FN(name); IS_FLOAT, LOWEST, HIGHEST. A block is [n rows][width columns], reduced over its rows; with width
// 1 it is a plain row. The order of all additions follows from n and width alone.

// n elements, in sixteen running sums per piece of 1024, pieces added pairwise.
MU_CLONES
static S FN(sum_row)(const T *x, int64_t n)
{
    if (n > 1024) {
        int64_t half = (n / 2 + 1023) / 1024 * 1024;
        return FN(sum_row)(x, half) + FN(sum_row)(x + half, n - half);
    }
    S lanes[16] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int lane = 0; lane < 16; lane++)
            lanes[lane] += (S)x[i + lane];
    for (; i < n; i++)
        rest += (S)x[i];
    for (int step = 8; step > 0; step /= 2)
        for (int lane = 0; lane < step; lane++)
            lanes[lane] += lanes[lane + step];
    return lanes[0] + rest;
}

// Sums of up to COLUMNS columns of a block: pieces of 64 rows, added pairwise.
MU_CLONES
static void FN(sum_columns)(const T *x, int64_t n, int64_t stride, int64_t width, S *out)
{
    if (n > 64) {
        S other[COLUMNS];
        int64_t half = (n / 2 + 63) / 64 * 64;
        FN(sum_columns)(x, half, stride, width, out);
        FN(sum_columns)(x + half * stride, n - half, stride, width, other);
        for (int64_t j = 0; j < width; j++)
            out[j] += other[j];
        return;
    }
    for (int64_t j = 0; j < width; j++)
        out[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            out[j] += (S)x[i * stride + j];
}

static inline T FN(larger)(T x, T y)
{
#if IS_FLOAT
    return x > y || x != x ? x : y;
#else
    return x > y ? x : y;
#endif
}

static inline T FN(smaller)(T x, T y)
{
#if IS_FLOAT
    return x < y || x != x ? x : y;
#else
    return x < y ? x : y;
#endif
}

// A column-wise fold; rows of width 1 are long dependent chains, so they go in sixteen lanes first.
#define FOLD(start, expression)                                             \
    do {                                                                    \
        for (int64_t j = 0; j < width; j++)                                 \
            out[j] = (T)(start);                                            \
        int64_t i = 0;                                                      \
        if (width == 1 && stride == 1 && n >= 32) {                                        \
            T lanes[16];                                                    \
            for (int lane = 0; lane < 16; lane++)                           \
                lanes[lane] = x[lane];                                      \
            for (i = 16; i + 16 <= n; i += 16)                              \
                for (int lane = 0; lane < 16; lane++) {                     \
                    const T a = lanes[lane], b = x[i + lane];               \
                    lanes[lane] = (T)(expression);                          \
                }                                                           \
            for (int lane = 0; lane < 16; lane++) {                         \
                const T a = out[0], b = lanes[lane];                        \
                out[0] = (T)(expression);                                   \
            }                                                               \
        }                                                                   \
        for (; i < n; i++)                                                  \
            for (int64_t j = 0; j < width; j++) {                           \
                const T a = out[j], b = x[i * stride + j];                  \
                out[j] = (T)(expression);                                   \
            }                                                               \
    } while (0)

MU_CLONES
static void FN(reduce)(int variant, const void *from, int64_t n, int64_t stride, int64_t width, void *to)
{
    const T *x = from;
    T *out = to;
    switch (variant) {
    case SUM:
    case MEAN: {
        S sums[COLUMNS];
        if (width == 1 && stride == 1)
            sums[0] = FN(sum_row)(x, n);
        else
            FN(sum_columns)(x, n, stride, width, sums);
        for (int64_t j = 0; j < width; j++)
#if IS_FLOAT
            out[j] = (T)(variant == MEAN ? sums[j] / (S)n : sums[j]);
#else
            out[j] = (T)(variant == MEAN && n > 0 ? (int64_t)(T)sums[j] / n : (T)sums[j]);
#endif
        break;
    }
    case PROD: FOLD(1, (S)a * (S)b); break;
    case MAX: FOLD(LOWEST, FN(larger)(a, b)); break;
    case MIN: FOLD(HIGHEST, FN(smaller)(a, b)); break;
    case ANY: FOLD(0, a || b); break;
    case ALL: FOLD(1, a && b); break;
    }
}
#undef FOLD

// The first place of the largest (sign 1) or smallest (-1) of n elements; a NaN is beyond both.
static int64_t FN(extreme_place)(int variant, const void *from, int64_t n, int64_t stride)
{
    const T *x = from;
    int64_t place = 0;
    for (int64_t i = 1; i < n; i++) {
        T best = x[place * stride], here = x[i * stride];
#if IS_FLOAT
        if (best != best)
            break;
        if (here != here)
            place = i;
#endif
        if (variant == ARGMAX ? here > best : here < best)
            place = i;
    }
    return place;
}

// Running sums or products along rows of a block, `step` apart, each before or after its own element.
static void FN(cumulate)(int variant, const void *from, int64_t n, int64_t step, bool exclusive, void *to)
{
    const T *x = from;
    T *out = to;
    S total = variant == CUMPROD;
    for (int64_t i = 0; i < n; i++) {
        S next = variant == CUMPROD ? total * (S)x[i * step] : total + (S)x[i * step];
        out[i * step] = (T)(exclusive ? total : next);
        total = next;
    }
}

#undef T
#undef S
#undef FN
#undef IS_FLOAT
#undef LOWEST
#undef HIGHEST
