// One row of `where` for elements of one size; included by select.c once per size. T: the element, FN(name).
static void FN(select)(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const uint8_t *condition = (const uint8_t *)k->in[0].data + at[0];
    const T *a = (const T *)k->in[1].data + at[1], *b = (const T *)k->in[2].data + at[2];
    T *out = (T *)k->out[0].data + out_at;
    const int64_t *steps[] = {walk->strides[0], walk->strides[1], walk->strides[2]};
    int last = walk->rank - 1;
    int64_t step_c = steps[0][last], step_a = steps[1][last], step_b = steps[2][last];
    if (step_c && step_a && step_b) {
        for (int64_t i = 0; i < n; i++)
            out[i] = condition[i] ? a[i] : b[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = condition[i * step_c] ? a[i * step_a] : b[i * step_b];
    }
}
#undef T
#undef FN
