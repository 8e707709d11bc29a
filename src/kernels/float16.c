// Conversions between 16-bit floats and float32, and binary ops on 16-bit floats. bfloat16 is the upper half of a
// float32, which plain loops convert; IEEE half uses the processor's instructions or, without them, integer
// arithmetic. With wide vectors, binary ops need no float32 copy in memory.
#include "float16.h"
#include "kernel_slots.h"

MU_INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

MU_INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void MU_KERNEL(widen_bf16)(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = float_of((uint32_t)x[i] << 16);
}

#if MU_LANES == 16
// Returns x as bfloat16 in the upper halves.
MU_INLINE __m512i narrowed_above(const float *x)
{
    const mu_vf value = v_load(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32((__m512i)value, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32((__m512i)value, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_mask_or_epi32(rounded, v_unordered(value, value), (__m512i)value, _mm512_set1_epi32(0x400000));
}
#endif

MU_INLINE uint16_t narrowed_bf16(float x)
{
    const uint32_t bits = bits_of(x), rounded = bits + 0x7fff + (bits >> 16 & 1);
    // Keeps a NaN whose only set fraction bits are in the low half.
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded >> 16);
}

void MU_KERNEL(narrow_bf16)(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    int64_t i = 0;
#if MU_LANES == 16
    // One instruction combines the upper halves of two vectors; compilers need five.
    static const uint16_t uppers[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i chosen = _mm512_loadu_si512(uppers);
    for (; i + 2 * MU_LANES <= n; i += 2 * MU_LANES)
        _mm512_storeu_si512(y + i, _mm512_permutex2var_epi16(narrowed_above(x + i), chosen,
                                                             narrowed_above(x + i + MU_LANES)));
#endif
    for (; i < n; i++)
        y[i] = narrowed_bf16(x[i]);
}

// A denormal's fraction counts units of 2^-24, which float32 represents exactly.
MU_INLINE float widened(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    const uint32_t normal = (magnitude << 13) + ((magnitude >= 0x7c00 ? 224u : 112u) << 23);
    const uint32_t small = bits_of((float)magnitude * 0x1p-24f);
    return float_of(sign | (magnitude < 0x400 ? small : normal));
}

MU_INLINE uint16_t narrowed(float x)
{
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
    const uint32_t small = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;  // below 2^-14 the sum rounds
    uint32_t result = magnitude < 0x38800000 ? small : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result;  // rounds to 2^16 or beyond
    result = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : result;
    return (uint16_t)(sign | result);
}

void MU_KERNEL(widen_f16)(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    int64_t i = 0;
#if MU_LANES == 16
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(x + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
#endif
    for (; i < n; i++)
        y[i] = widened(x[i]);
}

void MU_KERNEL(narrow_f16)(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    int64_t i = 0;
#if MU_LANES == 16
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(y + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        y[i] = narrowed(x[i]);
}

// Converts without a float32 copy in memory, which would double the time.
void MU_KERNEL(f16_from_u8)(const uint8_t *restrict x, uint16_t *restrict y, int64_t n)
{
    int64_t i = 0;
#if MU_LANES == 16
    for (; i + 16 <= n; i += 16) {
        const __m512i whole = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(x + i)));
        _mm256_storeu_si256((__m256i *)(void *)(y + i),
                            _mm512_cvtps_ph(_mm512_cvtepi32_ps(whole), _MM_FROUND_TO_NEAREST_INT));
    }
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        const __m256i whole = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(x + i)));
        _mm_storeu_si128((__m128i *)(void *)(y + i),
                         _mm256_cvtps_ph(_mm256_cvtepi32_ps(whole), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; i++)
        y[i] = narrowed((float)x[i]);
}

MU_INLINE void narrow_whole(const int32_t *restrict x, uint16_t *restrict y, int64_t n, bool bfloat)
{
    int64_t i = 0;
#if MU_WIDE_FLOAT16
    for (; i + MU_LANES <= n; i += MU_LANES) {
        mu_vi whole;
        memcpy(&whole, x + i, sizeof whole);
        store_float16(y + i, __builtin_convertvector(whole, mu_vf), bfloat);
    }
#endif
    for (; i < n; i++)
        y[i] = bfloat ? narrowed_bf16((float)x[i]) : narrowed((float)x[i]);
}

void MU_KERNEL(float16_from_i32)(bool bfloat, const int32_t *x, uint16_t *y, int64_t n)
{
    if (bfloat)
        narrow_whole(x, y, n, true);
    else
        narrow_whole(x, y, n, false);
}

// The processor's conversion gives INT32_MIN for infinities and NaN.
void MU_KERNEL(i32_from_f16)(const uint16_t *restrict x, int32_t *restrict y, int64_t n)
{
    int64_t i = 0;
#if MU_LANES == 16
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_si512(y + i, _mm512_cvttps_epi32(_mm512_cvtph_ps(
                                       _mm256_loadu_si256((const __m256i *)(const void *)(x + i)))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_si256((__m256i *)(void *)(y + i), _mm256_cvttps_epi32(_mm256_cvtph_ps(
                                                            _mm_loadu_si128((const __m128i *)(const void *)(x + i)))));
#endif
    for (; i < n; i++)
        y[i] = (x[i] & 0x7c00) == 0x7c00 ? INT32_MIN : (int32_t)widened(x[i]);
}

// ---- Binary ops -------------------------------------------------------------------------------------

// A NaN in either operand propagates.
MU_INLINE float of_two(mu_float16_binary op, float a, float b)
{
    switch (op) {
    case MU_FLOAT16_ADD: return a + b;
    case MU_FLOAT16_SUBTRACT: return a - b;
    case MU_FLOAT16_MULTIPLY: return a * b;
    case MU_FLOAT16_DIVIDE: return a / b;
    case MU_FLOAT16_GREATER: return ((a > b) | (a != a)) ? a : b;
    default: return ((a < b) | (a != a)) ? a : b;
    }
}

#if MU_LANES == 16

MU_INLINE mu_vf of_two_vectors(mu_float16_binary op, mu_vf a, mu_vf b)
{
    switch (op) {
    case MU_FLOAT16_ADD: return a + b;
    case MU_FLOAT16_SUBTRACT: return a - b;
    case MU_FLOAT16_MULTIPLY: return a * b;
    case MU_FLOAT16_DIVIDE: return a / b;
    case MU_FLOAT16_GREATER: return v_select(v_greater(a, b) | v_unordered(a, a), a, b);
    default: return v_select(v_greater(b, a) | v_unordered(a, a), a, b);
    }
}

// IEEE half.
MU_INLINE int64_t wide_loop(mu_float16_binary op, const uint16_t *a, int64_t step_a, const uint16_t *b, int64_t step_b,
                            uint16_t *y, int64_t n)
{
    const mu_vf same_a = v_splat(widened(a[0])), same_b = v_splat(widened(b[0]));
    int64_t i = 0;
    for (; i + MU_LANES <= n; i += MU_LANES)
        store_float16(y + i, of_two_vectors(op, step_a ? load_float16(a + i, false) : same_a,
                                            step_b ? load_float16(b + i, false) : same_b), false);
    return i;
}

// bfloat16: processes the even and the odd elements separately, which needs fewer instructions than widening them in
// order.
MU_INLINE int64_t pair_loop(mu_float16_binary op, const uint16_t *a, int64_t step_a, const uint16_t *b, int64_t step_b,
                            uint16_t *y, int64_t n)
{
    const mu_vf one_a = v_splat(float_of((uint32_t)a[0] << 16)), one_b = v_splat(float_of((uint32_t)b[0] << 16));
    const float16_pair same_a = {one_a, one_a}, same_b = {one_b, one_b};
    int64_t i = 0;
    for (; i + 2 * MU_LANES <= n; i += 2 * MU_LANES) {
        const float16_pair from_a = step_a ? load_pair(a + i) : same_a, from_b = step_b ? load_pair(b + i) : same_b;
        store_pair(y + i, (float16_pair){of_two_vectors(op, from_a.even, from_b.even),
                                        of_two_vectors(op, from_a.odd, from_b.odd)});
    }
    return i;
}

#endif

// The loops for a constant op and type: with vectors first, then the remainder through float32 in short pieces.
MU_INLINE void loop_of_two(mu_float16_binary op, bool bfloat, const uint16_t *a, int64_t step_a, const uint16_t *b,
                           int64_t step_b, uint16_t *y, int64_t n)
{
    enum { PIECE = 256 };
    float wide_a[PIECE], wide_b[PIECE], result[PIECE];
    int64_t i = 0;
#if MU_LANES == 16
    i = (bfloat ? pair_loop : wide_loop)(op, a, step_a, b, step_b, y, n);
#endif
    for (; i < n; i += PIECE) {
        const int64_t count = least(PIECE, n - i);
        (bfloat ? MU_KERNEL(widen_bf16) : MU_KERNEL(widen_f16))(a + i * step_a, wide_a, step_a ? count : 1);
        (bfloat ? MU_KERNEL(widen_bf16) : MU_KERNEL(widen_f16))(b + i * step_b, wide_b, step_b ? count : 1);
        for (int64_t j = 0; j < count; j++)
            result[j] = of_two(op, wide_a[j * step_a], wide_b[j * step_b]);
        (bfloat ? MU_KERNEL(narrow_bf16) : MU_KERNEL(narrow_f16))(result, y + i, count);
    }
}

MU_INLINE void any_of_two(mu_float16_binary op, bool bfloat, const uint16_t *a, int64_t step_a, const uint16_t *b,
                          int64_t step_b, uint16_t *y, int64_t n)
{
    if (bfloat)
        loop_of_two(op, true, a, step_a, b, step_b, y, n);
    else
        loop_of_two(op, false, a, step_a, b, step_b, y, n);
}

void MU_KERNEL(float16_binary)(mu_float16_binary op, bool bfloat, const uint16_t *a, int64_t step_a, const uint16_t *b,
                               int64_t step_b, uint16_t *y, int64_t n)
{
    if (n <= 0)
        return;
    switch (op) {
    case MU_FLOAT16_ADD: any_of_two(MU_FLOAT16_ADD, bfloat, a, step_a, b, step_b, y, n); break;
    case MU_FLOAT16_SUBTRACT: any_of_two(MU_FLOAT16_SUBTRACT, bfloat, a, step_a, b, step_b, y, n); break;
    case MU_FLOAT16_MULTIPLY: any_of_two(MU_FLOAT16_MULTIPLY, bfloat, a, step_a, b, step_b, y, n); break;
    case MU_FLOAT16_DIVIDE: any_of_two(MU_FLOAT16_DIVIDE, bfloat, a, step_a, b, step_b, y, n); break;
    case MU_FLOAT16_GREATER: any_of_two(MU_FLOAT16_GREATER, bfloat, a, step_a, b, step_b, y, n); break;
    case MU_FLOAT16_LESS: any_of_two(MU_FLOAT16_LESS, bfloat, a, step_a, b, step_b, y, n); break;
    }
}
