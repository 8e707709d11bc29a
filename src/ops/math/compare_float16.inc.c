// Comparisons of 16-bit floats (IEEE half and bfloat16) as integers, which avoids the memory traffic of widening to
// float32. Included by arithmetic.c, whose enumeration of comparisons it uses.

// Integer key with the order of the floats; both zeros have key 0.
static inline int16_t rank_of_float16(uint16_t x)
{
    const int sign = (int16_t)x >> 15;  // all ones if negative, else 0
    return (int16_t)(((x & 0x7fff) ^ sign) - sign);
}

// Bit patterns beyond infinity are NaN; comparisons with NaN are false.
static inline bool are_numbers(uint16_t x, uint16_t y, uint16_t infinity)
{
    const uint16_t size_x = x & 0x7fff, size_y = y & 0x7fff;
    return (size_x > size_y ? size_x : size_y) <= infinity;
}

#define EACH_FLOAT16(A, B, expression)                                       \
    do {                                                                     \
        MU_INDEPENDENT                                                       \
        for (int64_t i = 0; i < n; i++) {                                    \
            const bool numbers = are_numbers(A, B, infinity);                \
            const int16_t x = rank_of_float16(A), y = rank_of_float16(B);    \
            out[i] = expression;                                             \
        }                                                                    \
    } while (0);                                                             \
    break

MU_CLONES
static void compare_float16(int variant, uint16_t infinity, const uint16_t *a, const uint16_t *b, bool *out, int64_t n)
{
    switch (variant) {
    case EQUAL: EACH_FLOAT16(a[i], b[i], numbers & (x == y));
    case NOT_EQUAL: EACH_FLOAT16(a[i], b[i], !numbers | (x != y));
    case LESS: EACH_FLOAT16(a[i], b[i], numbers & (x < y));
    case LESS_EQUAL: EACH_FLOAT16(a[i], b[i], numbers & (x <= y));
    }
}

// Compares with one scalar y.
MU_CLONES
static void compare_float16_1(int variant, uint16_t infinity, const uint16_t *a, uint16_t b, bool *out, int64_t n)
{
    switch (variant) {
    case EQUAL: EACH_FLOAT16(a[i], b, numbers & (x == y));
    case NOT_EQUAL: EACH_FLOAT16(a[i], b, !numbers | (x != y));
    case LESS: EACH_FLOAT16(a[i], b, numbers & (x < y));
    case LESS_EQUAL: EACH_FLOAT16(a[i], b, numbers & (x <= y));
    case GREATER: EACH_FLOAT16(a[i], b, numbers & (x > y));
    case GREATER_EQUAL: EACH_FLOAT16(a[i], b, numbers & (x >= y));
    }
}
#undef EACH_FLOAT16

// The comparison of (b, a) that equals this comparison of (a, b).
static int turned(int variant)
{
    static const int others[] = {[EQUAL] = EQUAL, [NOT_EQUAL] = NOT_EQUAL, [LESS] = GREATER,
                                 [LESS_EQUAL] = GREATER_EQUAL, [GREATER] = LESS, [GREATER_EQUAL] = LESS_EQUAL};
    return others[variant];
}

// Operands have stride 0 or 1.
static void compare_float16_any(int variant, bool bfloat, const uint16_t *a, int64_t step_a, const uint16_t *b,
                                int64_t step_b, bool *out, int64_t n)
{
    const uint16_t infinity = bfloat ? 0x7f80 : 0x7c00;
    if (step_b == 0)
        compare_float16_1(variant, infinity, a, *b, out, step_a ? n : 1);
    else if (step_a == 0)
        compare_float16_1(turned(variant), infinity, b, *a, out, n);
    else if (variant == GREATER || variant == GREATER_EQUAL)
        compare_float16(turned(variant), infinity, b, a, out, n);
    else
        compare_float16(variant, infinity, a, b, out, n);
}
