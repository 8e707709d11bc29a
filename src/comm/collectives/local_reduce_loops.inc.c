// The loops of local_reduce.c for one element type; included once per type, so that a debugger can step through them.
//
// The includer defines T (an element in memory), A (the type in which it is added), NAME(word), LOAD(x) and STORE(a) to
// convert between the two, ADD(a, b) and IS_NAN(a). A block at a time is reduced in a buffer of A and then written to
// every destination, so destinations may be sources. In a chain of ranks the loop starts from an unrounded sum, or
// leaves one.

static void NAME(combine)(A *restrict sum, const T *restrict from, mu_reduction reduction, int64_t n)
{
    if (reduction == MU_REDUCTION_MIN)
        for (int64_t i = 0; i < n; i++) {
            const A x = LOAD(from[i]);
            sum[i] = sum[i] < x || IS_NAN(sum[i]) ? sum[i] : x;
        }
    else if (reduction == MU_REDUCTION_MAX)
        for (int64_t i = 0; i < n; i++) {
            const A x = LOAD(from[i]);
            sum[i] = sum[i] > x || IS_NAN(sum[i]) ? sum[i] : x;
        }
    else
        for (int64_t i = 0; i < n; i++)
            sum[i] = ADD(sum[i], LOAD(from[i]));
}

static void NAME(reduce)(const mu_local_reduce_args *args)
{
    A sum[BLOCK];
    T out[BLOCK];
    for (int64_t at = 0; at < args->count; at += BLOCK) {
        const int64_t n = MU_MIN(args->count - at, BLOCK);
        const T *first = (const T *)args->src[0] + at;
        if (args->prefix != NULL)
            memcpy(sum, (const A *)args->prefix + at, (size_t)n * sizeof(A));
        else
            for (int64_t i = 0; i < n; i++)
                sum[i] = LOAD(first[i]);
        for (int k = args->prefix != NULL ? 0 : 1; k < args->n_src; k++)
            NAME(combine)(sum, (const T *)args->src[k] + at, args->reduction, n);
        if (args->partial != NULL) {
            memcpy((A *)args->partial + at, sum, (size_t)n * sizeof(A));
            continue;
        }
        if (args->divide != 1)
            for (int64_t i = 0; i < n; i++)
                sum[i] = (A)(sum[i] / args->divide);
        for (int64_t i = 0; i < n; i++)
            out[i] = STORE(sum[i]);
        for (int k = 0; k < args->n_dst; k++)
            memcpy((T *)args->dst[k] + at, out, (size_t)n * sizeof(T));
    }
}

#undef T
#undef A
#undef NAME
