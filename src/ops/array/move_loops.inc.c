// Strided copies of elements of one size; included by view.c once per size. T: the element type, FN(name).

MU_PER_ISA(FN(take_strided), (const T *in, int64_t step, T *restrict out, int64_t n), (in, step, out, n))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = in[i * step];
}

MU_PER_ISA(FN(splat), (T value, T *out, int64_t n), (value, out, n))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = value;
}

// Copies one row of a walk.
static void FN(move)(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const T *in = (const T *)k->in[0].data + at[0];
    T *out = (T *)k->out[0].data + out_at;
    const int64_t step = walk->strides[0][walk->rank - 1];
    if (step == 1)
        mu__copy_blocks(out, 0, in, 0, (size_t)n * sizeof(T), 1);
    else if (step == 0)
        FN(splat)(*in, out, n);
    else
        FN(take_strided)(in, step, out, n);
}
#undef T
#undef FN
