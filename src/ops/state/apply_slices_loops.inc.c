// Loops of optimizer updates from slices for one float type T, named by FN; M names its functions of math.h.

// Adds this replica's slices, and their squares, to dense sums.
static void FN(sum)(const slices_job *j, void *sums, void *squares)
{
    const T *from = j->rows.values;
    for (int64_t i = 0; i < j->rows.n; i++, from += j->inner) {
        T *sum = (T *)sums + index_at(&j->rows.indices, i) * j->inner;
        T *square = squares ? (T *)squares + index_at(&j->rows.indices, i) * j->inner : NULL;
        for (int64_t k = 0; k < j->inner; k++)
            sum[k] += from[k];
        for (int64_t k = 0; square && k < j->inner; k++)
            square[k] += from[k] * from[k];
    }
}

// to[row] += factor * slice (or its square) for rows [begin, end).
static void FN(scatter)(const slices_job *j, int64_t begin, int64_t end, T *to, T factor, bool squared)
{
    const T *from = j->rows.values;
    for (int64_t i = 0; i < j->rows.n; i++, from += j->inner) {
        const int64_t row = index_at(&j->rows.indices, i);
        if (row < begin || row >= end)
            continue;
        T *at = to + row * j->inner;
        for (int64_t k = 0; k < j->inner; k++)
            at[k] += factor * (squared ? from[k] * from[k] : from[k]);
    }
}

// The same, from slices or from dense sums.
static void FN(add)(const slices_job *j, int64_t begin, int64_t end, T *to, T factor, bool squared)
{
    const T *sums = j->sums[squared];
    for (int64_t i = begin * j->inner; sums && i < end * j->inner; i++)
        to[i] += factor * sums[i];
    if (!sums)
        FN(scatter)(j, begin, end, to, factor, squared);
}

static void FN(decay)(T *moment, T factor, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        moment[i] *= factor;
}

static void FN(descend_slices)(const slices_job *j, int64_t begin, int64_t end)
{
    T *variable = j->variable, *velocity = j->slots[0];
    const T rate = (T)j->rate, momentum = (T)j->momentum;
    const int64_t first = begin * j->inner, last = end * j->inner;
    if (velocity) {
        FN(decay)(velocity, momentum, first, last);
        FN(add)(j, begin, end, velocity, -rate, false);
        for (int64_t i = first; i < last; i++)
            variable[i] += j->nesterov ? momentum * velocity[i] : velocity[i];
    }
    if (!velocity || j->nesterov)
        FN(add)(j, begin, end, variable, -rate, false);
}

static void FN(adam_slices)(const slices_job *j, int64_t begin, int64_t end)
{
    T *variable = j->variable, *m = j->slots[0], *v = j->slots[1];
    const T alpha = (T)j->rate, epsilon = (T)j->epsilon;
    const T new_m = (T)(1 - j->beta_1), new_v = (T)(1 - j->beta_2);
    const int64_t first = begin * j->inner, last = end * j->inner;
    FN(decay)(m, 1 - new_m, first, last);
    FN(decay)(v, 1 - new_v, first, last);
    FN(add)(j, begin, end, m, new_m, false);
    FN(add)(j, begin, end, v, new_v, true);
    for (int64_t i = first; i < last; i++)
        variable[i] -= m[i] * alpha / (M(sqrt)(v[i]) + epsilon);
}

// The sums of squares first: every slice of a row is divided by the same root.
static void FN(adagrad_slices)(const slices_job *j, int64_t begin, int64_t end)
{
    T *variable = j->variable, *squares = j->slots[0];
    const T *sums = j->sums[0], *from = j->rows.values;
    const T rate = (T)j->rate, epsilon = (T)j->epsilon;
    FN(add)(j, begin, end, squares, 1, true);
    for (int64_t i = begin * j->inner; sums && i < end * j->inner; i++)
        if (sums[i] != 0)
            variable[i] -= rate * sums[i] / M(sqrt)(squares[i] + epsilon);
    for (int64_t i = 0; i < j->rows.n; i++, from += j->inner) {
        const int64_t row = index_at(&j->rows.indices, i);
        T *at = variable + row * j->inner;
        const T *below = squares + row * j->inner;
        for (int64_t k = 0; row >= begin && row < end && k < j->inner; k++)
            at[k] -= rate * from[k] / M(sqrt)(below[k] + epsilon);
    }
}

// McMahan et al., "Ad Click Prediction" (2013), as in Keras: from dense sums, so rows without slices are computed too.
static void FN(ftrl_slices)(const slices_job *j, int64_t begin, int64_t end)
{
    T *variable = j->variable, *squares = j->slots[0], *linear = j->slots[1];
    const T *sums = j->sums[0], *more = j->sums[1];
    const T rate = (T)j->rate, power = (T)-j->power, l1 = (T)j->l1, l2 = (T)j->l2, shrinkage = (T)(2 * j->shrinkage);
    for (int64_t i = begin * j->inner; i < end * j->inner; i++) {
        const T before = M(pow)(squares[i], power), gradient = sums[i] + shrinkage * variable[i];
        squares[i] += more[i];
        const T root = M(pow)(squares[i], power);
        linear[i] += gradient - (root - before) / rate * variable[i];
        const T clipped = linear[i] < -l1 ? -l1 : linear[i] > l1 ? l1 : linear[i];
        variable[i] = (clipped - linear[i]) / (root / rate + 2 * l2);
    }
}

static void FN(update)(const slices_job *j, int64_t begin, int64_t end)
{
    static void (*const rules[])(const slices_job *, int64_t, int64_t) = {[DESCENT] = FN(descend_slices),
                                                                          [ADAM] = FN(adam_slices),
                                                                          [ADAGRAD] = FN(adagrad_slices),
                                                                          [FTRL] = FN(ftrl_slices)};
    rules[j->rule](j, begin, end);
}

#undef T
#undef FN
#undef M
