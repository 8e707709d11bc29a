// Loops of batch normalisation over rows of channels, for one float type T, named by FN.
//
// Processes BLOCK channels at a time, with sums in double; within a block each row is contiguous.

MU_PER_ISA(FN(moments), (const norm_job *j), (j))
{
    const T *x = j->x;
    T *mean = j->mean, *variance = j->variance;
    for (int64_t c = 0; c < j->channels; c += BLOCK) {
        const int64_t width = MU_MIN(BLOCK, j->channels - c);
        double sum[BLOCK] = {0}, square[BLOCK] = {0}, center[BLOCK];
        for (int64_t r = 0; r < j->rows; r++)
            for (int64_t i = 0; i < width; i++)
                sum[i] += (double)x[r * j->channels + c + i];
        for (int64_t i = 0; i < width; i++)
            center[i] = sum[i] / (double)j->rows;
        for (int64_t r = 0; r < j->rows; r++)
            for (int64_t i = 0; i < width; i++) {
                const double from = (double)x[r * j->channels + c + i] - center[i];
                square[i] += from * from;
            }
        for (int64_t i = 0; i < width; i++) {
            mean[c + i] = (T)center[i];
            variance[c + i] = (T)(square[i] / (double)j->rows);
        }
    }
}

MU_PER_ISA(FN(normalize), (const norm_job *j), (j))
{
    const T *x = j->x, *gamma = j->gamma, *beta = j->beta, *mean = j->mean, *variance = j->variance;
    T *restrict y = j->y;
    for (int64_t c = 0; c < j->channels; c += BLOCK) {
        const int64_t width = MU_MIN(BLOCK, j->channels - c);
        T factor[BLOCK], center[BLOCK], shift[BLOCK];
        for (int64_t i = 0; i < width; i++) {
            factor[i] = (T)((double)gamma[c + i] / sqrt((double)variance[c + i] + j->epsilon));
            center[i] = mean[c + i];
            shift[i] = beta[c + i];
        }
        for (int64_t r = 0; r < j->rows; r++)
            for (int64_t i = 0; i < width; i++) {
                const int64_t at = r * j->channels + c + i;
                y[at] = (x[at] - center[i]) * factor[i] + shift[i];
            }
    }
}

// dx, dgamma and dbeta from dy, with the mean and variance of x.
MU_PER_ISA(FN(backward), (const norm_job *j), (j))
{
    const T *x = j->x, *dy = j->dy, *gamma = j->gamma, *mean = j->mean, *variance = j->variance;
    T *restrict dx = j->y, *dgamma = j->dgamma, *dbeta = j->dbeta;
    for (int64_t c = 0; c < j->channels; c += BLOCK) {
        const int64_t width = MU_MIN(BLOCK, j->channels - c);
        double sum[BLOCK] = {0}, product[BLOCK] = {0};
        T center[BLOCK], scale[BLOCK], factor[BLOCK], plain[BLOCK], along[BLOCK];
        for (int64_t i = 0; i < width; i++) {
            center[i] = mean[c + i];
            scale[i] = (T)(1 / sqrt((double)variance[c + i] + j->epsilon));
            factor[i] = gamma[c + i] * scale[i];
        }
        for (int64_t r = 0; r < j->rows; r++)
            for (int64_t i = 0; i < width; i++) {
                const int64_t at = r * j->channels + c + i;
                sum[i] += (double)dy[at];
                product[i] += (double)dy[at] * (double)((x[at] - center[i]) * scale[i]);
            }
        for (int64_t i = 0; i < width; i++) {
            dbeta[c + i] = (T)sum[i];
            dgamma[c + i] = (T)product[i];
            plain[i] = (T)(sum[i] / (double)j->rows);
            along[i] = (T)(product[i] / (double)j->rows) * scale[i];
        }
        for (int64_t r = 0; r < j->rows; r++)
            for (int64_t i = 0; i < width; i++) {
                const int64_t at = r * j->channels + c + i;
                dx[at] = factor[i] * (dy[at] - plain[i] - (x[at] - center[i]) * along[i]);
            }
    }
}

#undef T
#undef FN
