// Loops over one float operand that the compiler vectorises; included by elementwise.c once per type.
//
// T: the element type; FN(name): the name of this instance; M(name): libm's function for T. `alpha` is the parameter of
// leaky_relu.

// The derivative of digamma: reflection for x < 0.5, recurrence up to at least 16, then the asymptotic series.
static inline T FN(trigamma)(T at)
{
    double x = (double)at, result = 0, sign = 1;
    if (x <= 0 && x == floor(x))
        return (T)INFINITY;
    if (x < 0.5) {
        double sine = sin(M_PI * (x - rint(x))); // of an angle without a rounding error
        result = M_PI * M_PI / (sine * sine);
        sign = -1;
        x = 1 - x;
    }
    for (; x < 16; x++)
        result += sign / (x * x);
    double f = 1 / (x * x);
    double series = f * (1.0 / 6 - f * (1.0 / 30 - f * (1.0 / 42 - f * (1.0 / 30 - f * (5.0 / 66)))));
    return (T)(result + sign * ((1 + series) / x + 0.5 * f));
}

#define EACH(expression)              \
    MU_INDEPENDENT                    \
    for (int64_t i = 0; i < n; i++) { \
        const T x = in[i];            \
        out[i] = (expression);        \
    }                                 \
    break

// NaN propagates through all of these.
MU_PER_ISA(FN(real), (int variant, double alpha, const void *from, void *to, int64_t n), (variant, alpha, from, to, n))
{
    const T *in = from, slope = (T)alpha;
    T *out = to;
    switch (variant) {
    case MU_UNARY_FLOOR: EACH(M(floor)(x));
    case MU_UNARY_CEIL: EACH(M(ceil)(x));
    case MU_UNARY_ROUND: EACH(M(rint)(x));
    case MU_UNARY_RECIPROCAL: EACH(1 / x);
    case MU_UNARY_TRIGAMMA: EACH(FN(trigamma)(x));
    case MU_UNARY_SOFTSIGN: EACH(x / (1 + M(fabs)(x)));
    case MU_UNARY_RELU: EACH(x < 0 ? 0 : x);
    case MU_UNARY_RELU6: EACH(x < 0 ? 0 : x > 6 ? 6 : x);
    case MU_UNARY_LEAKY_RELU: EACH(x < 0 ? slope * x : x);
    case MU_UNARY_HARD_SIGMOID: EACH(x < -3 ? 0 : x > 3 ? 1 : x / 6 + (T)0.5);
    }
}

MU_PER_ISA(FN(predicate), (int variant, double alpha, const void *from, void *to, int64_t n),
           (variant, alpha, from, to, n))
{
    const T *in = from;
    bool *out = to;
    (void)alpha;
    switch (variant) {
    case MU_UNARY_IS_NAN: EACH(x != x);
    case MU_UNARY_IS_INF: EACH(M(fabs)(x) > MAX);
    case MU_UNARY_IS_FINITE: EACH(M(fabs)(x) <= MAX);
    }
}

#undef EACH
#undef T
#undef FN
#undef M
#undef MAX
