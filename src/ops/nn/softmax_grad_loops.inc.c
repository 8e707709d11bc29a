// Gradients of softmax for one element type T, named by FN; softmax_grad.c includes it once per type. EXP is the
// vectorised exponential. dx may alias dy or y.

// The sum of a[i] b[i], or of a[i] where b is NULL, in many running sums that are added in a fixed order.
static inline __attribute__((always_inline)) T FN(sum)(const T *a, const T *b, int64_t n)
{
    T lanes[LANES] = {0}, rest = 0;
    const int64_t whole = n / LANES * LANES;
    if (b) {
        for (int64_t i = 0; i < whole; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] += a[i + lane] * b[i + lane];
    } else {
        for (int64_t i = 0; i < whole; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] += a[i + lane];
    }
    for (int lane = 0; lane < 16; lane++)
        lanes[lane] += lanes[lane + 16];
    for (int lane = 0; lane < 8; lane++)
        lanes[lane] += lanes[lane + 8];
    for (int lane = 0; lane < 4; lane++)
        lanes[lane] += lanes[lane + 4];
    lanes[0] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    for (int64_t i = whole; i < n; i++)
        rest += b ? a[i] * b[i] : a[i];
    return lanes[0] + rest;
}

MU_PER_ISA_RESULT(T, FN(sum_of_row), (const T *a, int64_t n), (a, n)) { return FN(sum)(a, NULL, n); }

// One row of softmax's gradient.
MU_PER_ISA(FN(row), (const T *dy, const T *y, T *dx, int64_t n), (dy, y, dx, n))
{
    const T sum = FN(sum)(dy, y, n);
    MU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - sum);
}

// y: softmax's result, or the exponential of log_softmax's.
MU_PER_ISA(FN(finish), (const T *dy, const T *y, T *dx, const T *restrict sums, int64_t n, bool logarithm),
           (dy, y, dx, sums, n, logarithm))
{
    if (logarithm) {
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            dx[i] = dy[i] - y[i] * sums[i];
        return;
    }
    MU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - sums[i]);
}

MU_PER_ISA(FN(add_up), (const T *dy, const T *y, T *sums, int64_t n), (dy, y, sums, n))
{
    for (int64_t i = 0; i < n; i++)
        sums[i] += y ? dy[i] * y[i] : dy[i];
}

// n elements of a row; `sums` has COLUMNS sums, which repeat for every COLUMNS elements.
static void FN(finish_row)(const T *dy, const T *y, T *dx, const T *sums, int64_t n, bool logarithm)
{
    T power[COLUMNS];
    for (int64_t i = 0; i < n; i += COLUMNS) {
        const int64_t count = MU_MIN(n - i, (int64_t)COLUMNS);
        if (logarithm)
            EXP(y + i, power, count);
        FN(finish)(dy + i, logarithm ? power : y + i, dx + i, sums, count, logarithm);
    }
}

static void FN(blocks)(const void *dy_data, const void *y_data, void *dx_data, int64_t n, int64_t inner, bool logarithm,
                       int64_t begin, int64_t end)
{
    for (int64_t block = begin; block < end; block++) {
        const int64_t at = block * n * inner;
        const T *dy = (const T *)dy_data + at, *y = (const T *)y_data + at;
        T *dx = (T *)dx_data + at;
        if (inner == 1 && !logarithm) {
            FN(row)(dy, y, dx, n);
            continue;
        }
        if (inner == 1) {
            T sums[COLUMNS];
            const T sum = FN(sum_of_row)(dy, n);
            for (int64_t j = 0; j < MU_MIN(n, (int64_t)COLUMNS); j++)
                sums[j] = sum;
            FN(finish_row)(dy, y, dx, sums, n, true);
            continue;
        }
        for (int64_t j = 0; j < inner; j += COLUMNS) {
            const int64_t width = MU_MIN(inner - j, (int64_t)COLUMNS);
            T sums[COLUMNS] = {0};
            for (int64_t i = j; i < n * inner; i += inner)
                FN(add_up)(dy + i, logarithm ? NULL : y + i, sums, width);
            for (int64_t i = j; i < n * inner; i += inner)
                FN(finish_row)(dy + i, y + i, dx + i, sums, width, logarithm);
        }
    }
}

#undef T
#undef FN
#undef EXP
