// Vectorised division of int64; included by arithmetic.c.
//
// Processors have vector division for doubles but not for integers. For numbers below 2^51, a quotient that is not
// whole differs from a whole number by more than a double's rounding error, so the result is exact. Blocks with larger
// numbers use plain division.

MU_PER_ISA_RESULT(bool, all_small, (const int64_t *x, int64_t n), (x, n))
{
    uint64_t high = 0;
    for (int64_t i = 0; i < n; i++)
        high |= ((uint64_t)x[i] + (UINT64_C(1) << 51)) >> 52;
    return high == 0;
}

// Adding this to a number below 2^51 leaves the number in the low bits.
#define WHOLE 0x1.8p52

static inline double small_to_double(int64_t x)
{
    const double whole = WHOLE;
    uint64_t bits;
    double sum;
    memcpy(&bits, &whole, sizeof bits);
    bits += (uint64_t)x;
    memcpy(&sum, &bits, sizeof sum);
    return sum - WHOLE;
}

static inline int64_t small_to_int(double x)
{
    const double whole = WHOLE, sum = x + WHOLE;
    int64_t bits, none;
    memcpy(&bits, &sum, sizeof bits);
    memcpy(&none, &whole, sizeof none);
    return bits - none;
}

MU_PER_ISA(divide_small, (bool rest, const int64_t *a, int64_t step_a, const int64_t *b, int64_t step_b, int64_t *out,
           int64_t n),
           (rest, a, step_a, b, step_b, out, n))
{
    if (step_a == 1 && step_b == 1) {
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            const double x = small_to_double(a[i]), y = small_to_double(b[i]), quotient = floor(x / y);
            out[i] = small_to_int(rest ? x - quotient * y : quotient);
        }
    } else {
        MU_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            const double x = small_to_double(a[i * step_a]), y = small_to_double(b[i * step_b]);
            const double quotient = floor(x / y);
            out[i] = small_to_int(rest ? x - quotient * y : quotient);
        }
    }
}

static void divide_row(int variant, const int64_t *a, int64_t step_a, const int64_t *b, int64_t step_b, int64_t *out,
                       int64_t n)
{
    enum { PIECE = 512 };
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = MU_MIN(n - at, PIECE), *from_a = a + at * step_a, *from_b = b + at * step_b;
        const int64_t last = count - 1;
        if (all_small(from_a, last * step_a + 1) && all_small(from_b, last * step_b + 1))
            divide_small(variant == MOD, from_a, step_a, from_b, step_b, out + at, count);
        else
            i64_binary(variant, &ONE_ROW(from_a, step_a, from_b, step_b, out + at, count));
    }
}

static void i64_arithmetic(int variant, const rows2 *r)
{
    const int64_t *a = r->a, *b = r->b;
    int64_t *out = r->out;
    if (variant != FLOOR_DIVIDE && variant != MOD) {
        i64_binary(variant, r);
        return;
    }
    for (int64_t row = 0; row < r->rows; row++)
        divide_row(variant, a + row * r->row_a, r->step_a, b + row * r->row_b, r->step_b, out + row * r->n, r->n);
}
