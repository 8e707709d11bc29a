// Loops over two operands of one number type; included by arithmetic.c once per type.
//
// T: the element type; W: the unsigned type in which its integers wrap around (T itself for floats); FN(name): the name
// of this instance; M(name): libm's function for T; MATH2: the kernel table's entry for binary functions of T;
// IS_FLOAT, IS_SIGNED; REAL: a float type precise enough for the quotients of a small integer type, or undefined.

static inline T FN(least)(T x, T y)
{
#if IS_FLOAT
    return ((x < y) | (x != x)) ? x : y; // NaN if either is NaN
#else
    return x < y ? x : y;
#endif
}

static inline T FN(greatest)(T x, T y)
{
#if IS_FLOAT
    return ((x > y) | (x != x)) ? x : y;
#else
    return x > y ? x : y;
#endif
}

static inline T FN(floor_quotient)(T x, T y)
{
#if IS_FLOAT
    return M(floor)(x / y);
#elif defined(REAL)
    // Divides in floats, which vectorise: a quotient that is not whole differs from a whole number by more than REAL's
    // rounding error. For types narrower than int32_t even the minimum divided by -1 fits, so the divisor needs no
    // check.
    const bool negates = sizeof(T) == sizeof(int32_t) && y == (T)-1;
    const REAL quotient = (REAL)x / (REAL)(negates ? 1 : y);
    const int32_t whole = (int32_t)quotient;
    return (T)(negates ? 0 - (W)x : (W)(whole - ((REAL)whole > quotient)));
#elif IS_SIGNED
    if (y == -1)
        return (T)(0 - (W)x); // the minimum's negation does not fit; it wraps
    T quotient = (T)(x / y);
    return (T)(x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient);
#else
    return (T)(x / y);
#endif
}

static inline T FN(floor_remainder)(T x, T y)
{
#if IS_FLOAT
    T rest = M(fmod)(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
#elif defined(REAL)
    return (T)((W)x - (W)FN(floor_quotient)(x, y) * (W)y);
#elif IS_SIGNED
    T rest = y == -1 ? 0 : (T)(x % y);
    return rest != 0 && (rest < 0) != (y < 0) ? (T)(rest + y) : rest;
#else
    return (T)(x % y);
#endif
}

static inline T FN(power)(T x, T y)
{
#if IS_FLOAT
    return M(pow)(x, y);
#else
    W base = (W)x, result = 1;
    for (W exponent = (W)y; exponent > 0; exponent >>= 1) {
        result *= exponent & 1 ? base : 1;
        base *= base;
    }
    return (T)result;
#endif
}

static inline T FN(squared_difference)(T x, T y)
{
    W difference = (W)x - (W)y;
    return (T)(difference * difference);
}

// Each case has one loop per combination of strides, so that a scalar operand stays in a register.
#define LOOP(A, B, expression)                                                            \
    for (int64_t row = 0; row < r->rows; row++, a += r->row_a, b += r->row_b, out += n) { \
        MU_INDEPENDENT                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                 \
            const T x = A, y = B;                                                         \
            out[i] = (expression);                                                        \
        }                                                                                 \
    }
#define EACH(expression)                      \
    if (step_a && step_b) {                   \
        LOOP(a[i], b[i], expression)          \
    } else if (step_a) {                      \
        LOOP(a[i], b[0], expression)          \
    } else {                                  \
        LOOP(a[0], b[i * step_b], expression) \
    }                                         \
    break

MU_PER_ISA(FN(binary), (int variant, const rows2 *r), (variant, r))
{
    const int64_t n = r->n, step_a = r->step_a, step_b = r->step_b;
    const T *a = r->a, *b = r->b;
    T *out = r->out;
    switch (variant) {
    case MU_BINARY_ADD: EACH((T)((W)x + (W)y));
    case MU_BINARY_SUBTRACT: EACH((T)((W)x - (W)y));
    case MU_BINARY_MULTIPLY: EACH((T)((W)x * (W)y));
    case MU_BINARY_DIVIDE: EACH((T)(x / y));
    case MU_BINARY_DIVIDE_NO_NAN: EACH(y == 0 ? 0 : (T)(x / y));
    case MU_BINARY_FLOOR_DIVIDE: EACH(FN(floor_quotient)(x, y));
    case MU_BINARY_MOD: EACH(FN(floor_remainder)(x, y));
    case MU_BINARY_POW: EACH(FN(power)(x, y));
    case MU_BINARY_MAXIMUM: EACH(FN(greatest)(x, y));
    case MU_BINARY_MINIMUM: EACH(FN(least)(x, y));
    case MU_BINARY_SQUARED_DIFFERENCE: EACH(FN(squared_difference)(x, y));
#if IS_FLOAT
    case MU_BINARY_ATAN2: EACH(M(atan2)(x, y));
#endif
    }
}

MU_PER_ISA(FN(compare), (int variant, const rows2 *r), (variant, r))
{
    const int64_t n = r->n, step_a = r->step_a, step_b = r->step_b;
    const T *a = r->a, *b = r->b;
    bool *out = r->out;
    switch (variant) {
    case MU_BINARY_EQUAL: EACH(x == y);
    case MU_BINARY_NOT_EQUAL: EACH(x != y);
    case MU_BINARY_LESS: EACH(x < y);
    case MU_BINARY_LESS_EQUAL: EACH(x <= y);
    case MU_BINARY_GREATER: EACH(x > y);
    case MU_BINARY_GREATER_EQUAL: EACH(x >= y);
    }
}

#if IS_FLOAT
static void FN(math)(int variant, const rows2 *r)
{
    const T *a = r->a, *b = r->b;
    T *out = r->out;
    if (!is_dense(r)) {
        FN(binary)(variant, r);
        return;
    }
    for (int64_t row = 0; row < r->rows; row++, a += r->row_a, b += r->row_b, out += r->n)
        mu__kernels()->MATH2(function_of(variant), a, r->step_a, b, r->step_b, out, r->n);
}
#endif

static inline bool FN(is_number)(T x)
{
#if IS_FLOAT
    return x == x;
#else
    (void)x;
    return true;
#endif
}

// If the bounds cross, the larger one wins, as in TensorFlow.
MU_PER_ISA(FN(clip),
           (const void *in, int64_t step, const void *low, int64_t step_low, const void *high, int64_t step_high,
            void *to, int64_t n),
           (in, step, low, step_low, high, step_high, to, n))
{
    const T *x = in, *l = low, *h = high;
    T *out = to;
    if (step == 1 && step_low == 0 && step_high == 0 && FN(is_number)(l[0]) && FN(is_number)(h[0])) {
        const T least = l[0], most = h[0];
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            const T below = x[i] > most ? most : x[i]; // NaN is kept
            out[i] = below < least ? least : below;
        }
        return;
    }
    FN(binary)(MU_BINARY_MINIMUM, &ONE_ROW(in, step, high, step_high, to, n)); // a single loop would not vectorise
    FN(binary)(MU_BINARY_MAXIMUM, &ONE_ROW(to, 1, low, step_low, to, n));
}

// Combines numbers into the elements at the given positions, in order, up to the first position out of range; returns
// how many were combined.
#define AT(expression)                                                 \
    for (; i < n && mu__index_offset(kind, &positions, i, &at); i++) { \
        const T x = out[at], y = b[i];                                 \
        (void)x;                                                       \
        out[at] = (T)(expression);                                     \
    }                                                                  \
    break

static inline __attribute__((always_inline)) int64_t FN(combine_as)(mu_index_kind kind, int variant, T *out,
                                                                    mu_scatter_indices positions, const T *b, int64_t n)
{
    int64_t i = 0;
    uint64_t at = 0;
    switch (variant) {
    case MU_BINARY_ADD: AT((W)x + (W)y);
    case MU_BINARY_SUBTRACT: AT((W)x - (W)y);
    case MU_BINARY_MULTIPLY: AT((W)x * (W)y);
    case MU_BINARY_MAXIMUM: AT(FN(greatest)(x, y));
    case MU_BINARY_MINIMUM: AT(FN(least)(x, y));
    case MU_BINARY_PUT: AT(y);
    }
    return i;
}

static int64_t FN(combine_at)(int variant, void *into, const mu_scatter_indices *positions, const void *from, int64_t n)
{
    switch (positions->kind) {
    case MU_INDICES_I64: return FN(combine_as)(MU_INDICES_I64, variant, into, *positions, from, n);
    case MU_INDICES_I32: return FN(combine_as)(MU_INDICES_I32, variant, into, *positions, from, n);
    case MU_INDICES_I64_2: return FN(combine_as)(MU_INDICES_I64_2, variant, into, *positions, from, n);
    case MU_INDICES_I32_2: return FN(combine_as)(MU_INDICES_I32_2, variant, into, *positions, from, n);
    default: return FN(combine_as)(MU_INDICES_CHECKED, variant, into, *positions, from, n);
    }
}
#undef AT

#if !IS_FLOAT
// Whether any of n elements is an invalid divisor (0) or, for powers, an invalid exponent (negative).
MU_PER_ISA_RESULT(bool, FN(has_bad), (bool power, const void *in, int64_t n), (power, in, n))
{
    const T *x = in;
    T bad = 0;
    for (int64_t i = 0; i < n; i++)
        bad |= (T)(power ? (x[i] < 1) & (x[i] != 0) : x[i] == 0);
    return bad != 0;
}
#endif

#undef EACH
#undef LOOP
#undef REAL
#undef T
#undef W
#undef FN
#undef M
#undef MATH2
#undef IS_FLOAT
#undef IS_SIGNED
