// Conversions between 16-bit floats and float32. bfloat16 is the upper half of a float32, which plain loops convert;
// IEEE half uses the processor's instructions or, without them, integer arithmetic.
#include "kernel_slots.h"
#include "simd.h"

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
        _mm512_storeu_si512(y + i,
                            _mm512_permutex2var_epi16(narrowed_above(x + i), chosen, narrowed_above(x + i + MU_LANES)));
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
    const uint32_t small = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000; // below 2^-14 the sum rounds
    uint32_t result = magnitude < 0x38800000 ? small : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result; // rounds to 2^16 or beyond
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
