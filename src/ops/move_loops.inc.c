// One row of a copy with a stride, for elements of one size; included by view.c once per size. T, FN(name).
static void FN(move)(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const T *in = (const T *)k->in[0].data + at[0];
    T *out = (T *)k->out[0].data + out_at;
    int64_t step = walk->strides[0][walk->rank - 1];
    if (step == 1) {
        memcpy(out, in, (size_t)n * sizeof(T));
    } else if (step == 0) {
        const T value = in[0];
        for (int64_t i = 0; i < n; i++)
            out[i] = value;
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = in[i * step];
    }
}
#undef T
#undef FN
