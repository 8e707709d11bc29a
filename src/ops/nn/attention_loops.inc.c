// Plain loops of attention for one float type T, named by FN: query by query, with scores in `scores`.

// Computes the query's scaled scores, -infinity where hidden. Returns the logarithm of the sum of their exponentials.
static double FN(scores_of)(const attention_job *j, int64_t batch, int64_t query, double *scores)
{
    const T *q = (const T *)j->q + (batch * j->queries + query) * j->width;
    const T *k = (const T *)j->k + batch * j->keys * j->width;
    double most = -INFINITY;
    for (int64_t key = 0; key < j->keys; key++) {
        scores[key] = 0;
        for (int64_t i = 0; i < j->width; i++)
            scores[key] += (double)q[i] * (double)k[key * j->width + i];
        scores[key] = sees(j, batch, query, key) ? scores[key] * j->scale : -INFINITY;
        most = scores[key] > most || scores[key] != scores[key] ? scores[key] : most;
    }
    double sum = 0;
    for (int64_t key = 0; key < j->keys; key++)
        sum += scores[key] == -INFINITY ? 0 : exp(scores[key] - most);
    return most + log(sum);
}

static void FN(attend)(const attention_job *j, int64_t batch, int64_t query, double *scores)
{
    const T *v = (const T *)j->v + batch * j->keys * j->depth;
    T *y = (T *)j->y + (batch * j->queries + query) * j->depth;
    const double log_sum = FN(scores_of)(j, batch, query, scores);
    ((T *)j->log_sum)[batch * j->queries + query] = (T)log_sum;
    for (int64_t i = 0; i < j->depth; i++) {
        double sum = 0;
        for (int64_t key = 0; key < j->keys; key++)
            sum += (log_sum == -INFINITY ? 1.0 / (double)j->keys : exp(scores[key] - log_sum)) *
                   (double)v[key * j->depth + i];
        y[i] = (T)sum;
    }
}

// Adds the query's contributions to dk and dv, and writes its dq.
static void FN(attend_grad)(const attention_job *j, int64_t batch, int64_t query)
{
    const int64_t row = batch * j->queries + query, first = batch * j->keys;
    const T *q = (const T *)j->q + row * j->width, *k = (const T *)j->k + first * j->width;
    const T *v = (const T *)j->v + first * j->depth, *y = (const T *)j->seen_y + row * j->depth;
    const T *dy = (const T *)j->dy + row * j->depth;
    T *dq = (T *)j->dq + row * j->width, *dk = (T *)j->dk + first * j->width, *dv = (T *)j->dv + first * j->depth;
    const double log_sum = (double)((const T *)j->seen_log_sum)[row];
    double along = 0;
    for (int64_t i = 0; i < j->depth; i++)
        along += (double)dy[i] * (double)y[i];
    for (int64_t i = 0; i < j->width; i++)
        dq[i] = 0;
    for (int64_t key = 0; key < j->keys; key++) {
        const bool seen = sees(j, batch, query, key);
        double score = 0, through = 0;
        for (int64_t i = 0; i < j->width; i++)
            score += (double)q[i] * (double)k[key * j->width + i];
        const double p = log_sum == -INFINITY ? 1.0 / (double)j->keys : seen ? exp(score * j->scale - log_sum) : 0;
        for (int64_t i = 0; i < j->depth; i++) {
            dv[key * j->depth + i] += (T)(p * (double)dy[i]);
            through += (double)dy[i] * (double)v[key * j->depth + i];
        }
        const double ds = seen ? p * (through - along) * j->scale : 0;
        for (int64_t i = 0; i < j->width; i++) {
            dq[i] += (T)(ds * (double)k[key * j->width + i]);
            dk[key * j->width + i] += (T)(ds * (double)q[i]);
        }
    }
}

#undef T
#undef FN
