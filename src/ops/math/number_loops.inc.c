// Loops over one operand of any number type; included by elementwise.c once per type.
//
// T: the element type; W: the unsigned type in which its integers wrap around (T itself for floats); FN(name): the name
// of this instance; MAGNITUDE(x), SIGN(x).

#define EACH(expression)              \
    MU_INDEPENDENT                    \
    for (int64_t i = 0; i < n; i++) { \
        const T x = in[i];            \
        out[i] = (expression);        \
    }                                 \
    break

MU_PER_ISA(FN(number), (int variant, double alpha, const void *from, void *to, int64_t n),
           (variant, alpha, from, to, n))
{
    const T *in = from;
    T *out = to;
    (void)alpha;
    switch (variant) {
    case MU_UNARY_NEG: EACH((T)(-(W)x));
    case MU_UNARY_ABS: EACH((T)MAGNITUDE(x));
    case MU_UNARY_SIGN: EACH((T)SIGN_OF(x));
    case MU_UNARY_SQUARE: EACH((T)((W)x * (W)x));
    }
}

#undef EACH
#undef T
#undef W
#undef FN
#undef MAGNITUDE
#undef SIGN_OF
