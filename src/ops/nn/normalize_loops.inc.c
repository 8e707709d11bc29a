// Plain loops of normalisation for one float type T, named by FN. A sample has positions with `groups` times `width`
// channels; a group's mean and variance are over a sample's positions. Sums are in double.

typedef struct FN(statistics) {
    double mean, inverse;
} FN(statistics);

static FN(statistics) FN(statistics_of)(const normalize_job *j, const T *x)
{
    const int64_t channels = j->groups * j->width;
    const double n = (double)(j->positions * j->width);
    double sum = 0, squares = 0;
    for (int64_t p = 0; p < j->positions && j->centered; p++)
        for (int64_t i = 0; i < j->width; i++)
            sum += (double)x[p * channels + i];
    const double mean = sum / n;
    for (int64_t p = 0; p < j->positions; p++)
        for (int64_t i = 0; i < j->width; i++)
            squares += ((double)x[p * channels + i] - mean) * ((double)x[p * channels + i] - mean);
    return (FN(statistics)){mean, 1 / sqrt(squares / n + j->epsilon)};
}

static void FN(normalize_group)(const normalize_job *j, int64_t sample, int64_t group)
{
    const int64_t channels = j->groups * j->width, first = group * j->width;
    const int64_t at = sample * j->positions * channels + first;
    const T *x = (const T *)j->x + at, *gamma = j->gamma, *beta = j->beta;
    T *y = (T *)j->y + at;
    const FN(statistics) s = FN(statistics_of)(j, x);
    for (int64_t p = 0; p < j->positions; p++)
        for (int64_t i = 0; i < j->width; i++) {
            const double h = ((double)x[p * channels + i] - s.mean) * s.inverse;
            const double scaled = gamma ? h * (double)gamma[first + i] : h;
            y[p * channels + i] = (T)(beta ? scaled + (double)beta[first + i] : scaled);
        }
}

static void FN(normalize_group_grad)(const normalize_job *j, int64_t sample, int64_t group)
{
    const int64_t channels = j->groups * j->width, first = group * j->width;
    const int64_t at = sample * j->positions * channels + first;
    const T *x = (const T *)j->x + at, *dy = (const T *)j->dy + at, *gamma = j->gamma;
    T *dx = (T *)j->y + at, *dgamma = (T *)j->dgamma + first, *dbeta = (T *)j->dbeta + first;
    const FN(statistics) s = FN(statistics_of)(j, x);
    const double n = (double)(j->positions * j->width);
    double sum = 0, product = 0;
    for (int64_t p = 0; p < j->positions; p++)
        for (int64_t i = 0; i < j->width; i++) {
            const double h = ((double)x[p * channels + i] - s.mean) * s.inverse, by = (double)dy[p * channels + i];
            const double a = gamma ? by * (double)gamma[first + i] : by;
            sum += a;
            product += a * h;
            dgamma[i] += (T)(by * h);
            dbeta[i] += (T)by;
        }
    for (int64_t p = 0; p < j->positions; p++)
        for (int64_t i = 0; i < j->width; i++) {
            const double h = ((double)x[p * channels + i] - s.mean) * s.inverse, by = (double)dy[p * channels + i];
            const double a = gamma ? by * (double)gamma[first + i] : by;
            dx[p * channels + i] = (T)(s.inverse * (a - (j->centered ? sum / n : 0) - h * product / n));
        }
}

static void FN(affine)(const T *x, const T *center, const T *factor, const T *shift, T *y, int64_t rows,
                       int64_t channels)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < channels; i++)
            y[r * channels + i] = (x[r * channels + i] - center[i]) * factor[i] + shift[i];
}

#undef T
#undef FN
