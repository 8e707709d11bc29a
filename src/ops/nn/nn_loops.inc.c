// Loops of bias and softmax for one float type T, named by FN; math functions by M.
//
// Sums are in double, so that float32 results do not lose accuracy with length.

MU_PER_ISA(FN(add_bias), (void *to, const void *from, int64_t rows, int64_t channels, bool relu),
           (to, from, rows, channels, relu))
{
    T *restrict y = to;
    const T *restrict bias = from;
    for (int64_t r = 0; r < rows; r++) {
        T *restrict row = y + r * channels;
        for (int64_t c = 0; c < channels; c++)
            row[c] += bias[c];
        if (relu)
            for (int64_t c = 0; c < channels; c++)
                row[c] = row[c] < 0 ? 0 : row[c];
    }
}

// The maximum of n elements `step` apart, and the sum of exp(x - maximum). A NaN makes the sum NaN.
static double FN(exp_sum)(const T *x, int64_t n, int64_t step, T *greatest)
{
    T most = n > 0 ? x[0] : 0;
    for (int64_t i = 1; i < n; i++)
        most = x[i * step] > most ? x[i * step] : most;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)M(exp)(x[i * step] - most);
    *greatest = most;
    return sum;
}

static void FN(softmax)(const void *from, void *to, int64_t n, int64_t step, bool logarithm)
{
    const T *x = from;
    T *y = to;
    T most;
    const double sum = FN(exp_sum)(x, n, step, &most);
    const T offset = (T)log(sum);
    for (int64_t i = 0; i < n; i++) {
        const T shifted = x[i * step] - most;
        y[i * step] = logarithm ? shifted - offset : (T)((double)M(exp)(shifted) / sum);
    }
}

// One row of cross-entropy against the distribution `p`. If p is NULL, all probability is on `label`.
static void FN(cross_entropy)(const void *from, const void *wanted_data, int64_t label, void *loss_to, void *to,
                              int64_t n)
{
    const T *x = from, *p = wanted_data;
    T *dx = to;
    T most;
    const double sum = FN(exp_sum)(x, n, 1, &most), offset = log(sum);
    double loss = 0;
    for (int64_t i = 0; i < n; i++) {
        const double shifted = (double)(x[i] - most);
        const double wanted = p ? (double)p[i] : i == label;
        if (p || i == label)
            loss += wanted * (offset - shifted);
        dx[i] = (T)((double)M(exp)(x[i] - most) / sum - wanted);
    }
    *(T *)loss_to = (T)loss;
}

static const mu_nn_loops FN(loops) = {
    .add_bias = FN(add_bias),
    .softmax = FN(softmax),
    .cross_entropy = FN(cross_entropy),
};

#undef T
#undef FN
#undef M
