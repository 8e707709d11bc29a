// Loops of the pools for one float type T, named by FN; pool_ref.c includes it once per type.
//
// One result element at a time: the oracle, and the fallback for cases that the kernels do not accept.

static void FN(max_pool)(const pool_job *j)
{
    const T *x = j->image;
    T *y = j->result;
    for (int64_t at = 0; at < j->results; at++) {
        T best = -(T)INFINITY;
        int64_t position = 0;
        bool any = false;
        for (int64_t tap = next_inside(j, at, 0); tap < j->taps; tap = next_inside(j, at, tap + 1)) {
            const T value = x[image_index(j, at, tap)];
            if (!any || value > best || (value != value && best == best)) {
                best = value;
                position = tap;
            }
            any = true;
        }
        y[at] = best;
        put_position(j, at, position);
    }
}

static void FN(max_pool_grad)(const pool_job *j)
{
    const T *dy = j->result;
    T *dx = j->image;
    memset(dx, 0, (size_t)j->pixels * sizeof *dx);
    for (int64_t at = 0; at < j->results; at++) {
        const int64_t to = image_index(j, at, get_position(j, at));
        if (to >= 0)
            dx[to] += dy[at];
    }
}

static void FN(max_pool_pick)(const pool_job *j)
{
    const T *x = j->image;
    T *y = j->result;
    for (int64_t at = 0; at < j->results; at++) {
        const int64_t from = image_index(j, at, get_position(j, at));
        y[at] = from >= 0 ? x[from] : 0;
    }
}

static void FN(average_pool)(const pool_job *j)
{
    const T *x = j->image;
    T *y = j->result;
    for (int64_t at = 0; at < j->results; at++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t tap = next_inside(j, at, 0); tap < j->taps; tap = next_inside(j, at, tap + 1)) {
            sum += (double)x[image_index(j, at, tap)];
            n++;
        }
        y[at] = n > 0 ? (T)(sum / (double)n) : 0;
    }
}

static void FN(average_pool_grad)(const pool_job *j)
{
    const T *dy = j->result;
    T *dx = j->image;
    memset(dx, 0, (size_t)j->pixels * sizeof *dx);
    for (int64_t at = 0; at < j->results; at++) {
        int64_t n = 0;
        for (int64_t tap = next_inside(j, at, 0); tap < j->taps; tap = next_inside(j, at, tap + 1))
            n++;
        for (int64_t tap = next_inside(j, at, 0); tap < j->taps; tap = next_inside(j, at, tap + 1))
            dx[image_index(j, at, tap)] += dy[at] / (T)n;
    }
}

static void (*const FN(loops)[])(const pool_job *) = {
    [MU_POOL_MAX] = FN(max_pool),
    [MU_POOL_MAX_GRAD] = FN(max_pool_grad),
    [MU_POOL_MAX_PICK] = FN(max_pool_pick),
    [MU_POOL_AVERAGE] = FN(average_pool),
    [MU_POOL_AVERAGE_GRAD] = FN(average_pool_grad),
};

#undef T
#undef FN
