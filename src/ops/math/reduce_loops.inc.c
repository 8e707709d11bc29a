// Reductions of one element type; included by reduce.c once per type.
//
// T: the element type; S: the type of sums and products (unsigned for integers, so that they wrap); FN(name); IS_FLOAT;
// LOWEST, HIGHEST: of integers; EXTREMES: the function for minima and maxima of floats. A block is [n rows][width
// columns], reduced over its rows; a plain row has width 1. The order of all additions depends on n and width alone.

// Folds n elements. Floats use four times sixteen running totals per block of 1024; blocks are combined pairwise.
// clang-format would take the operator `combine` for a function.
// clang-format off
#if IS_FLOAT
#define FOLD_ROW(name, start, combine)                                                      \
    MU_PER_ISA_RESULT(S, FN(name), (const T *x, int64_t n), (x, n))                         \
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
// One running total, which the compiler vectorises. The elements are read in order, which suits memory best.
#define FOLD_ROW(name, start, combine)                                                      \
    MU_PER_ISA_RESULT(S, FN(name), (const T *x, int64_t n), (x, n))                         \
    {                                                                                       \
        S total = start;                                                                    \
        for (int64_t i = 0; i < n; i++)                                                     \
            total = total combine (S)x[i];                                                  \
        return total;                                                                       \
    }
#endif
// clang-format on
FOLD_ROW(sum_row, 0, +)
FOLD_ROW(product_row, 1, *)
#undef FOLD_ROW

// Sum of four rows at column j.
#define FOUR(row, j) \
    (((S)(row)[j] + (S)(row)[stride + (j)]) + ((S)(row)[2 * stride + (j)] + (S)(row)[3 * stride + (j)]))

// Sums of up to MOST_BYTES of columns of a block. Floats are summed in blocks of 64 rows, which are added pairwise.
MU_PER_ISA(FN(sum_columns), (const T *x, int64_t n, int64_t stride, int64_t width, S *out), (x, n, stride, width, out))
{
    int64_t i = 0;
#if IS_FLOAT
    if (n > 64) {
        S other[MOST_BYTES / sizeof(S)];
        int64_t half = (n / 2 + 63) / 64 * 64;
        FN(sum_columns)(x, half, stride, width, out);
        FN(sum_columns)(x + half * stride, n - half, stride, width, other);
        for (int64_t j = 0; j < width; j++)
            out[j] += other[j];
        return;
    }
#endif
    for (int64_t j = 0; j < width; j++)
        out[j] = 0;
    for (; i + 4 <= n; i += 4) {
        MU_INDEPENDENT
        for (int64_t j = 0; j < width; j++)
            out[j] += FOUR(x + i * stride, j);
    }
    for (; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            out[j] += (S)x[i * stride + j];
}
#undef FOUR

// Folds a row. Compilers vectorise this for integers. For floats each step depends on the previous one, so the row is
// first folded in many lanes. Columns are folded in parallel.
#if IS_FLOAT
enum { FN(LANES) = 256 / sizeof(T) };
// Folds the upper lanes into lanes [0, half); `half` is a constant so that compilers vectorise.
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
#define FOLD_ROW(start, expression)       \
    do {                                  \
        T total = (T)(start);             \
        for (int64_t i = 0; i < n; i++) { \
            const T a = total, b = x[i];  \
            total = (T)(expression);      \
        }                                 \
        out[0] = total;                   \
    } while (0)
#endif
// Folds four rows at a time. One statement per row, so that compilers vectorise.
#define TAKE(k, expression)        \
    b = x[(i + (k)) * stride + j]; \
    a = (T)(expression);
#define EACH_COLUMN(steps)                \
    for (int64_t j = 0; j < width; j++) { \
        T a = totals[j], b;               \
        steps totals[j] = a;              \
    }
#define FOLD_COLUMNS(start, expression)                                                                  \
    do {                                                                                                 \
        T totals[MOST_BYTES / sizeof(T)];                                                                \
        int64_t i = 0;                                                                                   \
        for (int64_t j = 0; j < width; j++)                                                              \
            totals[j] = (T)(start);                                                                      \
        for (; i + 4 <= n; i += 4)                                                                       \
            EACH_COLUMN(TAKE(0, expression) TAKE(1, expression) TAKE(2, expression) TAKE(3, expression)) \
        for (; i < n; i++)                                                                               \
            EACH_COLUMN(TAKE(0, expression))                                                             \
        memcpy(out, totals, (size_t)width * sizeof *out);                                                \
    } while (0)
#define FOLD(start, expression)              \
    do {                                     \
        if (width == 1 && stride == 1)       \
            FOLD_ROW(start, expression);     \
        else                                 \
            FOLD_COLUMNS(start, expression); \
    } while (0)

MU_PER_ISA(FN(reduce), (int variant, const void *from, int64_t n, int64_t stride, int64_t width, void *to),
           (variant, from, n, stride, width, to))
{
    const T *x = from;
    T *out = to;
    switch (variant) {
    case SUM:
    case MEAN: {
        S sums[MOST_BYTES / sizeof(T)];
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
    case MIN: MINMAX(variant, x, n, stride, width, out); break;
#else
    case MAX: FOLD(LOWEST, a > b ? a : b); break;
    case MIN: FOLD(HIGHEST, a < b ? a : b); break;
#endif
    case ANY: FOLD(0, a > b ? a : b); break;
    case ALL: FOLD(1, a < b ? a : b); break;
    }
}
#undef FOLD
#undef FOLD_COLUMNS
#undef EACH_COLUMN
#undef TAKE
#undef FOLD_ROW
#undef HALVE

// Divides sums by `count`.
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

// Cumulative sums or products over n rows of `width` columns, with rows `step` apart; exclusive: without the own
// element.
MU_PER_ISA(FN(cumulate),
           (int variant, const void *from, int64_t n, int64_t step, int64_t width, bool exclusive, void *to),
           (variant, from, n, step, width, exclusive, to))
{
    const T *x = from;
    T *out = to;
    S total[MOST_BYTES / sizeof(T)], one = variant == CUMPROD;
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

#undef MINMAX
#undef T
#undef S
#undef FN
#undef IS_FLOAT
#undef LOWEST
#undef HIGHEST
