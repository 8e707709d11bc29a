// Loops over one float operand; included by elementwise.c once per type.
//
// T: the element type; FN(name): the name of this instance; M(name): libm's function for T. `alpha` is the parameter of
// the few functions that have one.

static inline T FN(log_gamma)(T x)
{
    int sign;
    return M2(lgamma, _r)(x, &sign);
}

// The derivative of log gamma: reflection for x < 0.5, recurrence up to at least 15, then the asymptotic series.
static inline T FN(digamma)(T at)
{
    double x = (double)at, result = 0;
    if (x <= 0 && x == floor(x))
        return (T)NAN;
    if (x < 0.5) {
        result = -M_PI / tan(M_PI * x);
        x = 1 - x;
    }
    for (; x < 15; x++)
        result -= 1 / x;
    double f = 1 / (x * x);
    double series = f * (1.0 / 12 - f * (1.0 / 120 - f * (1.0 / 252 - f * (1.0 / 240 - f * (1.0 / 132)))));
    return (T)(result + log(x) - 0.5 / x - series);
}

// The derivative of digamma, in the same three steps.
static inline T FN(trigamma)(T at)
{
    double x = (double)at, result = 0, sign = 1;
    if (x <= 0 && x == floor(x))
        return (T)INFINITY;
    if (x < 0.5) {
        double sine = sin(M_PI * x);
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

static inline T FN(logistic)(T x)
{
    return 1 / (1 + M(exp)(-x));
}

static inline T FN(soft_plus)(T x)
{
    return (x < 0 ? 0 : x) + M(log1p)(M(exp)(-M(fabs)(x)));
}

static inline T FN(gelu_by_tanh)(T x)
{
    const T root = (T)0.79788456080286535588;  // sqrt(2 / pi)
    return (T)0.5 * x * (1 + M(tanh)(root * (x + (T)0.044715 * x * x * x)));
}

#define EACH(expression)                    \
    MU_INDEPENDENT                          \
    for (int64_t i = 0; i < n; i++) {       \
        const T x = in[i];                  \
        out[i] = (expression);              \
    }                                       \
    break

MU_PER_ISA(FN(exponential), (int variant, double alpha, const void *from, void *to, int64_t n),
           (variant, alpha, from, to, n))
{
    const T *in = from;
    T *out = to;
    (void)alpha;
    switch (variant) {
    case FLOOR: EACH(M(floor)(x));
    case CEIL: EACH(M(ceil)(x));
    case ROUND: EACH(M(rint)(x));
    case EXP: EACH(M(exp)(x));
    case EXPM1: EACH(M(expm1)(x));
    case LOG: EACH(M(log)(x));
    case LOG1P: EACH(M(log1p)(x));
    case SQRT: EACH(M(sqrt)(x));
    case RSQRT: EACH(1 / M(sqrt)(x));
    case RECIPROCAL: EACH(1 / x);
    case ERF: EACH(M(erf)(x));
    case ERFC: EACH(M(erfc)(x));
    case LGAMMA: EACH(FN(log_gamma)(x));
    case DIGAMMA: EACH(FN(digamma)(x));
    case TRIGAMMA: EACH(FN(trigamma)(x));
    }
}

MU_PER_ISA(FN(trigonometric), (int variant, double alpha, const void *from, void *to, int64_t n),
           (variant, alpha, from, to, n))
{
    const T *in = from;
    T *out = to;
    (void)alpha;
    switch (variant) {
    case SIN: EACH(M(sin)(x));
    case COS: EACH(M(cos)(x));
    case TAN: EACH(M(tan)(x));
    case ASIN: EACH(M(asin)(x));
    case ACOS: EACH(M(acos)(x));
    case ATAN: EACH(M(atan)(x));
    case SINH: EACH(M(sinh)(x));
    case COSH: EACH(M(cosh)(x));
    case TANH: EACH(M(tanh)(x));
    case ASINH: EACH(M(asinh)(x));
    case ACOSH: EACH(M(acosh)(x));
    case ATANH: EACH(M(atanh)(x));
    }
}

// NaN propagates through all of these.
MU_PER_ISA(FN(activation), (int variant, double alpha, const void *from, void *to, int64_t n),
           (variant, alpha, from, to, n))
{
    const T *in = from, slope = (T)alpha;
    const T selu_scale = (T)1.0507009873554804934, selu_low = (T)1.7580993408473768599;  // scale * alpha
    T *out = to;
    switch (variant) {
    case SIGMOID: EACH(FN(logistic)(x));
    case LOG_SIGMOID: EACH(-FN(soft_plus)(-x));
    case SOFTPLUS: EACH(FN(soft_plus)(x));
    case SOFTSIGN: EACH(x / (1 + M(fabs)(x)));
    case RELU: EACH(x < 0 ? 0 : x);
    case RELU6: EACH(x < 0 ? 0 : x > 6 ? 6 : x);
    case LEAKY_RELU: EACH(x < 0 ? slope * x : x);
    case ELU: EACH(x < 0 ? slope * M(expm1)(x) : x);
    case SELU: EACH(x < 0 ? selu_low * M(expm1)(x) : selu_scale * x);
    case GELU: EACH((T)0.5 * x * M(erfc)(-x * (T)0.70710678118654752440));
    case GELU_TANH: EACH(FN(gelu_by_tanh)(x));
    case SILU: EACH(x * FN(logistic)(x));
    case HARD_SIGMOID: EACH(x < -3 ? 0 : x > 3 ? 1 : x / 6 + (T)0.5);
    case MISH: EACH(x * M(tanh)(FN(soft_plus)(x)));
    }
}

MU_PER_ISA(FN(predicate), (int variant, double alpha, const void *from, void *to, int64_t n),
           (variant, alpha, from, to, n))
{
    const T *in = from;
    bool *out = to;
    (void)alpha;
    switch (variant) {
    case IS_NAN: EACH(x != x);
    case IS_INF: EACH(M(fabs)(x) > MAX);
    case IS_FINITE: EACH(M(fabs)(x) <= MAX);
    }
}

#undef EACH
#undef T
#undef FN
#undef M
#undef M2
#undef MAX
