// One row of `where` for elements of one size; included by select.c once per size. T: the element, FN(name).

// Both are read before one is chosen, which lets the loops become vectors; a scalar operand stays in a register.
#define CHOOSE(A, B)                                    \
    do {                                                \
        MU_INDEPENDENT                                  \
        for (int64_t i = 0; i < n; i++) {               \
            const T yes = A, no = B;                    \
            out[i] = condition[i] ? yes : no;           \
        }                                               \
    } while (0)

MU_CLONES
static void FN(choose)(const uint8_t *condition, const T *a, int64_t step_a, const T *b, int64_t step_b, T *out,
                       int64_t n)
{
    const T first_a = a[0], first_b = b[0];
    if (step_a == 1 && step_b == 1)
        CHOOSE(a[i], b[i]);
    else if (step_a == 1 && step_b == 0)
        CHOOSE(a[i], first_b);
    else if (step_a == 0 && step_b == 1)
        CHOOSE(first_a, b[i]);
    else
        CHOOSE(a[i * step_a], b[i * step_b]);
}
#undef CHOOSE

static void FN(select)(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const uint8_t *condition = (const uint8_t *)k->in[0].data + at[0];
    const T *a = (const T *)k->in[1].data + at[1], *b = (const T *)k->in[2].data + at[2];
    T *out = (T *)k->out[0].data + out_at;
    int last = walk->rank - 1;
    int64_t step_c = walk->strides[0][last], step_a = walk->strides[1][last], step_b = walk->strides[2][last];
    if (step_c == 1) {
        FN(choose)(condition, a, step_a, b, step_b, out, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = condition[i * step_c] ? a[i * step_a] : b[i * step_b];
}
#undef T
#undef FN
