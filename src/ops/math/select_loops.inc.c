// Part of a row of `where` for elements of one size; included by select.c once per size. T: the element type, FN(name).

// Reads both before choosing, so that the loops vectorise; a scalar operand stays in a register.
#define CHOOSE(A, B)                          \
    do {                                      \
        MU_INDEPENDENT                        \
        for (int64_t i = 0; i < n; i++) {     \
            const T yes = A, no = B;          \
            out[i] = condition[i] ? yes : no; \
        }                                     \
    } while (0)

MU_PER_ISA(FN(choose),
           (const uint8_t *condition, const T *a, int64_t step_a, const T *b, int64_t step_b, T *out, int64_t n),
           (condition, a, step_a, b, step_b, out, n))
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

static void FN(make)(const select_part *part, int64_t n, void *to)
{
    const int64_t step_c = part->step[0], step_a = part->step[1], step_b = part->step[2];
    const uint8_t *condition = part->in[0];
    const T *a = part->in[1], *b = part->in[2];
    T *out = to;
    if (step_c == 1) {
        FN(choose)(condition, a, step_a, b, step_b, out, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = condition[i * step_c] ? a[i * step_a] : b[i * step_b];
}
#undef T
#undef FN
