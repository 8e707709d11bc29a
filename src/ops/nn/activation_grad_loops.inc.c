// Derivatives of activations for one element type T, named by FN; activation_grad.c includes it once per type. MATH
// calls the vectorised elementary functions. n is at most PIECE; out may alias dy or x.

MU_PER_ISA(FN(derivative), (int variant, const T *dy, const T *x, T *out, int64_t n), (variant, dy, x, out, n))
{
    T a[PIECE], b[PIECE];
    switch (variant) {
    case TANH:
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            out[i] = dy[i] * (1 - x[i] * x[i]);
        break;
    case SIGMOID:
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            out[i] = dy[i] * (x[i] * (1 - x[i]));
        break;
    case SOFTPLUS:
        MATH(SIGMOID, x, a, n);
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            out[i] = dy[i] * a[i];
        break;
    case SILU:
        MATH(SIGMOID, x, a, n);
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            out[i] = dy[i] * (a[i] * (1 + x[i] * (1 - a[i])));
        break;
    case GELU:
        for (int64_t i = 0; i < n; i++)
            a[i] = x[i] * (T)ROOT_HALF;
        MATH(ERF, a, b, n);
        for (int64_t i = 0; i < n; i++)
            a[i] = x[i] * x[i] * (T)-0.5;
        MATH(EXP, a, a, n);
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            out[i] = dy[i] * ((T)0.5 + (T)0.5 * b[i] + x[i] * a[i] * (T)DENSITY_AT_0);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            a[i] = x[i] * (T)ROOT * (1 + (T)CUBIC * x[i] * x[i]);
        MATH(TANH, a, b, n);
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            const T inner = (T)ROOT * (1 + (T)(3 * CUBIC) * x[i] * x[i]);
            out[i] = dy[i] * (T)0.5 * (1 + b[i] + x[i] * (1 - b[i] * b[i]) * inner);
        }
    }
}

#undef T
#undef FN
#undef MATH
