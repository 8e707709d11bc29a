// Reductions of one element type; included by reduce.c once per type.
//
// T: the element; S: the type that sums and products are kept in (unsigned for integers, so that they wrap);
// FN(name); P: an integer of T's size; IS_FLOAT; LOWEST, HIGHEST: of integers; EXTREMES: what finds extremes of floats.
// A block is [n rows][width columns], reduced over its rows; with width 1 it is a plain row. The order of
// all additions follows from n and width alone.

// n elements. Floats are folded in four times sixteen running totals per piece of 1024, and pieces combined pairwise.
#if IS_FLOAT
#define FOLD_ROW(name, start, combine)                                                      \
    MU_CLONES                                                                               \
    static S FN(name)(const T *x, int64_t n)                                                \
    {                                                                                       \
        if (n > 1024) {                                                                     \
            const int64_t half = (n / 2 + 1023) / 1024 * 1024;                              \
            const S first = FN(name)(x, half), second = FN(name)(x + half, n - half);       \
            return first combine second;                                                    \
        }                                                                                   \
        S a[16], b[16], c[16], d[16], rest = start;                                         \
        int64_t i = 0;                                                                      \
        for (int lane = 0; lane < 16; lane++)                                               \
            a[lane] = b[lane] = c[lane] = d[lane] = start;                                  \
        for (; i + 64 <= n; i += 64)                                                        \
            for (int lane = 0; lane < 16; lane++) {                                         \
                a[lane] = a[lane] combine (S)x[i + lane];                                   \
                b[lane] = b[lane] combine (S)x[i + 16 + lane];                              \
                c[lane] = c[lane] combine (S)x[i + 32 + lane];                              \
                d[lane] = d[lane] combine (S)x[i + 48 + lane];                              \
            }                                                                               \
        for (int lane = 0; lane < 16; lane++)                                               \
            a[lane] = (a[lane] combine b[lane]) combine (c[lane] combine d[lane]);          \
        for (; i + 16 <= n; i += 16)                                                        \
            for (int lane = 0; lane < 16; lane++)                                           \
                a[lane] = a[lane] combine (S)x[i + lane];                                   \
        for (; i < n; i++)                                                                  \
            rest = rest combine (S)x[i];                                                    \
        for (int step = 8; step > 0; step /= 2)                                             \
            for (int lane = 0; lane < step; lane++)                                         \
                a[lane] = a[lane] combine a[lane + step];                                   \
        return a[0] combine rest;                                                           \
    }
#else
// One running total, which a compiler makes several of: so they are read in order, which memory likes best.
#define FOLD_ROW(name, start, combine)                                                      \
    MU_CLONES                                                                               \
    static S FN(name)(const T *x, int64_t n)                                                \
    {                                                                                       \
        S total = start;                                                                    \
        for (int64_t i = 0; i < n; i++)                                                     \
            total = total combine (S)x[i];                                                  \
        return total;                                                                       \
    }
#endif
FOLD_ROW(sum_row, 0, +)
FOLD_ROW(product_row, 1, *)
#undef FOLD_ROW

// Sums of up to MOST_COLUMNS columns of a block: pieces of 64 rows, added pairwise.
MU_CLONES
static void FN(sum_columns)(const T *x, int64_t n, int64_t stride, int64_t width, S *out)
{
    if (n > 64) {
        S other[MOST_COLUMNS];
        int64_t half = (n / 2 + 63) / 64 * 64;
        FN(sum_columns)(x, half, stride, width, out);
        FN(sum_columns)(x + half * stride, n - half, stride, width, other);
        for (int64_t j = 0; j < width; j++)
            out[j] += other[j];
        return;
    }
    for (int64_t j = 0; j < width; j++)
        out[j] = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const T *row = x + i * stride;
        MU_INDEPENDENT
        for (int64_t j = 0; j < width; j++)
            out[j] += ((S)row[j] + (S)row[stride + j]) + ((S)row[2 * stride + j] + (S)row[3 * stride + j]);
    }
    for (; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            out[j] += (S)x[i * stride + j];
}

// The fold of a row, which compilers turn into vectors where it is one of whole numbers; that of floats is a long chain
// of dependent steps, so it goes in many lanes first. Columns go side by side.
#if IS_FLOAT
enum { FN(LANES) = 256 / sizeof(T) };
// Lanes [0, half) take the others in; numbers that are known here let compilers make vectors.
#define HALVE(half, expression)                                            \
    for (int lane = 0; 2 * (half) <= FN(LANES) && lane < (half); lane++) { \
        const T a = lanes[lane], b = lanes[lane + (half)];                 \
        lanes[lane] = (T)(expression);                                     \
    }
#define FOLD_ROW(start, expression)                                 \
    do {                                                            \
        T total = (T)(start);                                       \
        int64_t i = 0;                                              \
        if (n >= FN(LANES)) {                                       \
            T lanes[FN(LANES)];                                     \
            memcpy(lanes, x, FN(LANES) * sizeof(T));                \
            for (i = FN(LANES); i + FN(LANES) <= n; i += FN(LANES)) \
                for (int lane = 0; lane < FN(LANES); lane++) {      \
                    const T a = lanes[lane], b = x[i + lane];       \
                    lanes[lane] = (T)(expression);                  \
                }                                                   \
            HALVE(128, expression)                                  \
            HALVE(64, expression)                                   \
            HALVE(32, expression)                                   \
            HALVE(16, expression)                                   \
            HALVE(8, expression)                                    \
            HALVE(4, expression)                                    \
            HALVE(2, expression)                                    \
            HALVE(1, expression)                                    \
            total = lanes[0];                                       \
        }                                                           \
        for (; i < n; i++) {                                        \
            const T a = total, b = x[i];                            \
            total = (T)(expression);                                \
        }                                                           \
        out[0] = total;                                             \
    } while (0)
#else
#define FOLD_ROW(start, expression)               \
    do {                                          \
        T total = (T)(start);                     \
        for (int64_t i = 0; i < n; i++) {         \
            const T a = total, b = x[i];          \
            total = (T)(expression);              \
        }                                         \
        out[0] = total;                           \
    } while (0)
#endif
// Four rows at a time, which memory gives sooner than one after the other; a step for each, which compilers can turn
// into vectors.
#define FOLD_COLUMNS(start, expression)                                                            \
    do {                                                                                           \
        T totals[MOST_COLUMNS];                                                                    \
        int64_t i = 0;                                                                             \
        for (int64_t j = 0; j < width; j++)                                                        \
            totals[j] = (T)(start);                                                                \
        for (; i + 4 <= n; i += 4)                                                                 \
            for (int64_t j = 0; j < width; j++) {                                                  \
                const T *at = x + i * stride + j;                                                  \
                const T rows[4] = {at[0], at[stride], at[2 * stride], at[3 * stride]};             \
                T a = totals[j], b = rows[0];                                                      \
                a = (T)(expression);                                                               \
                b = rows[1];                                                                       \
                a = (T)(expression);                                                               \
                b = rows[2];                                                                       \
                a = (T)(expression);                                                               \
                b = rows[3];                                                                       \
                totals[j] = (T)(expression);                                                       \
            }                                                                                      \
        for (; i < n; i++)                                                                         \
            for (int64_t j = 0; j < width; j++) {                                                  \
                const T a = totals[j], b = x[i * stride + j];                                      \
                totals[j] = (T)(expression);                                                       \
            }                                                                                      \
        memcpy(out, totals, (size_t)width * sizeof *out);                                          \
    } while (0)
#define FOLD(start, expression)              \
    do {                                     \
        if (width == 1 && stride == 1)       \
            FOLD_ROW(start, expression);     \
        else                                 \
            FOLD_COLUMNS(start, expression); \
    } while (0)

MU_CLONES
static void FN(reduce)(int variant, const void *from, int64_t n, int64_t stride, int64_t width, void *to)
{
    const T *x = from;
    T *out = to;
    switch (variant) {
    case SUM:
    case MEAN: {
        S sums[MOST_COLUMNS];
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
    case PROD:
        if (width == 1 && stride == 1)
            out[0] = (T)FN(product_row)(x, n);
        else
            FOLD(1, (S)a * (S)b);
        break;
#if IS_FLOAT
    case MAX:
    case MIN: EXTREMES(variant, x, n, stride, width, out); break;
#else
    case MAX: FOLD(LOWEST, a > b ? a : b); break;
    case MIN: FOLD(HIGHEST, a < b ? a : b); break;
#endif
    case ANY: FOLD(0, (a != 0) | (b != 0)); break;
    case ALL: FOLD(1, (a != 0) & (b != 0)); break;
    }
}
#undef FOLD
#undef FOLD_COLUMNS
#undef FOLD_ROW
#undef HALVE

#if IS_FLOAT
#define ODD(x) ((x) != (x))
#else
#define ODD(x) 0
#endif

#ifndef EXTREMES
#define EXTREMES FN(reduce)
#endif

// The first place of the largest or smallest of n elements in a row; a NaN is beyond both.
MU_CLONES
static int64_t FN(extreme_place)(int variant, const void *from, int64_t n)
{
    const T *x = from;
    T best;
    EXTREMES(variant == ARGMAX ? MAX : MIN, x, n, 1, 1, &best);
    for (int64_t at = 0; at < n; at += 64) {  // whether it is among these, then where
        const int64_t end = MU_MIN(n, at + 64);
        P found = 0;
        for (int64_t i = at; i < end; i++)
            found |= ((x[i] == best) | ODD(x[i])) ? (P)-1 : 0;
        for (int64_t i = at; found && i < end; i++)
            if (ODD(best) ? ODD(x[i]) : x[i] == best)
                return i;
    }
    return 0;
}

// The same for `width` columns at once, of rows `stride` apart; numbers of rows in runs that 32 bits can count.
MU_CLONES
static void FN(extreme_places)(int variant, const void *from, int64_t n, int64_t stride, int64_t width, int64_t *places)
{
    enum { RUN = 1 << 30 };
    const T *x = from;
    T best[MOST_COLUMNS];
    int32_t place[MOST_COLUMNS];
    for (int64_t j = 0; j < width; j++) {
        best[j] = x[j];
        places[j] = 0;
    }
    for (int64_t start = 0; start < n; start += RUN) {
        const int32_t rows = (int32_t)MU_MIN(n - start, (int64_t)RUN);
        const T *run = x + start * stride;
        for (int64_t j = 0; j < width; j++)
            place[j] = -1;
        for (int32_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < width; j++) {
                const T old = best[j], here = run[i * stride + j];
                const bool beyond = variant == ARGMAX ? here > old : here < old;
                const bool wins = (beyond | ODD(here)) & !ODD(old);
                best[j] = wins ? here : old;
                place[j] = wins ? i : place[j];
            }
        for (int64_t j = 0; j < width; j++)
            places[j] = place[j] >= 0 ? start + place[j] : places[j];
    }
}

// Sums become means of `count`.
static void FN(divide)(void *sums, int64_t n, int64_t count)
{
    T *x = sums;
    for (int64_t i = 0; i < n; i++)
#if IS_FLOAT
        x[i] = x[i] / (T)count;
#else
        x[i] = (T)(count > 0 ? (int64_t)x[i] / count : x[i]);
#endif
}

// Running sums or products over n rows of `width` columns, rows `step` apart, each before or after its own element.
MU_CLONES
static void FN(cumulate)(int variant, const void *from, int64_t n, int64_t step, int64_t width, bool exclusive,
                         void *to)
{
    const T *x = from;
    T *out = to;
    S total[MOST_COLUMNS], one = variant == CUMPROD;
    if (width == 1) {
        for (int64_t i = 0; i < n; i++, x += step, out += step) {
            const S next = variant == CUMPROD ? one * (S)*x : one + (S)*x;
            *out = (T)(exclusive ? one : next);
            one = next;
        }
        return;
    }
    for (int64_t j = 0; j < width; j++)
        total[j] = one;
    for (int64_t i = 0; i < n; i++, x += step, out += step) {
        MU_INDEPENDENT
        for (int64_t j = 0; j < width; j++) {
            const S next = variant == CUMPROD ? total[j] * (S)x[j] : total[j] + (S)x[j];
            out[j] = (T)(exclusive ? total[j] : next);
            total[j] = next;
        }
    }
}

#undef ODD
#undef EXTREMES
#undef T
#undef S
#undef P
#undef FN
#undef IS_FLOAT
#undef LOWEST
#undef HIGHEST
