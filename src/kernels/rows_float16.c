// softmax and log_softmax of rows of 16-bit floats. A result of 11 bits needs an exponential of only a few more, so a
// row is processed without converting it to float32 first; only its exponentials are stored as floats. Processors
// with narrow vectors convert the row and use the float32 kernel. The order of summation depends on the row's length
// only.
#include "float16_power.h"
#include "kernel_slots.h"

#if MU_WIDE_FLOAT16

enum { STEP = 2 * MU_LANES };

// Loads the two vectors of a step, in the element order of step_store; pads with -infinity after the row's end.
MU_INLINE float16_pair step_load(const uint16_t *x, int64_t left, bool bfloat)
{
    uint16_t rest[STEP];
    if (left < STEP) {
        for (int i = 0; i < STEP; i++)
            rest[i] = bfloat ? 0xff80 : 0xfc00;
        memcpy(rest, x, (size_t)left * sizeof *x);
        x = rest;
    }
    return bfloat ? load_pair(x) : (float16_pair){load_float16(x, false), load_float16(x + MU_LANES, false)};
}

MU_INLINE void step_store(uint16_t *y, float16_pair pair, int64_t left, bool bfloat)
{
    uint16_t rest[STEP], *to = left < STEP ? rest : y;
    if (bfloat) {
        store_pair(to, pair);
    } else {
        store_float16(to, pair.even, false);
        store_float16(to + MU_LANES, pair.odd, false);
    }
    if (left < STEP)
        memcpy(y, rest, (size_t)left * sizeof *y);
}

MU_INLINE float greatest_of(const uint16_t *x, int64_t n, bool bfloat)
{
    mu_vf even = v_splat(-INFINITY), odd = even;
    for (int64_t i = 0; i < n; i += STEP) {
        const float16_pair pair = step_load(x + i, n - i, bfloat);
        even = v_max(pair.even, even);
        odd = v_max(pair.odd, odd);
    }
    return v_most_of_lanes(v_max(even, odd));
}

MU_INLINE mu_vf exp_float16(mu_vf x, bool bfloat)
{
    return power_of_two_float16(x * 1.44269504f, bfloat);
}

// Writes exp(x - most) to e, the two vectors of a step one after the other, and returns the sum.
MU_INLINE float exp_row(const uint16_t *x, float most, float *e, int64_t n, bool bfloat)
{
    mu_vf even_sums = {0}, odd_sums = {0};
    for (int64_t i = 0; i < n; i += STEP) {
        const float16_pair pair = step_load(x + i, n - i, bfloat);
        const mu_vf even = exp_float16(pair.even - most, bfloat), odd = exp_float16(pair.odd - most, bfloat);
        v_prefetch(x + i, n * (int64_t)sizeof *x);     // the next row
        even_sums += even;
        odd_sums += odd;
        v_store(e + i, even);
        v_store(e + i + MU_LANES, odd);
    }
    return v_sum_of_lanes(even_sums + odd_sums);
}

MU_INLINE void scale_row(const float *e, float factor, uint16_t *y, int64_t n, bool bfloat)
{
    for (int64_t i = 0; i < n; i += STEP) {
        const float16_pair pair = {v_load(e + i) * factor, v_load(e + i + MU_LANES) * factor};
        step_store(y + i, pair, n - i, bfloat);
    }
}

MU_INLINE void subtract_row(const uint16_t *x, float most, float offset, uint16_t *y, int64_t n, bool bfloat)
{
    for (int64_t i = 0; i < n; i += STEP) {
        const float16_pair pair = step_load(x + i, n - i, bfloat);
        step_store(y + i, (float16_pair){(pair.even - most) - offset, (pair.odd - most) - offset}, n - i, bfloat);
    }
}

MU_INLINE void softmax_row_of(const uint16_t *x, uint16_t *y, float *wide, int64_t n, bool bfloat, bool logarithm)
{
    const float most = greatest_of(x, n, bfloat), sum = exp_row(x, most, wide, n, bfloat);
    if (logarithm)
        subtract_row(x, most, logf(sum), y, n, bfloat);
    else
        scale_row(wide, 1 / sum, y, n, bfloat);
}

static void softmax_row_float16(const uint16_t *x, uint16_t *y, float *wide, int64_t n, bool bfloat, bool logarithm)
{
    if (bfloat)
        softmax_row_of(x, y, wide, n, true, logarithm);
    else
        softmax_row_of(x, y, wide, n, false, logarithm);
}

#else

static void softmax_row_float16(const uint16_t *x, uint16_t *y, float *wide, int64_t n, bool bfloat, bool logarithm)
{
    (bfloat ? MU_KERNEL(widen_bf16) : MU_KERNEL(widen_f16))(x, wide, n);
    MU_KERNEL(softmax)(wide, wide, n, logarithm, 0, 1);
    (bfloat ? MU_KERNEL(narrow_bf16) : MU_KERNEL(narrow_f16))(wide, y, n);
}

#endif

void MU_KERNEL(softmax_float16)(const uint16_t *x, uint16_t *y, float *wide, int64_t columns, bool bfloat,
                                bool logarithm, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        softmax_row_float16(x + row * columns, y + row * columns, wide, columns, bfloat, logarithm);
}
