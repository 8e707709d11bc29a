// Vectors of float32 that are loaded from 16-bit floats and stored to them. bfloat16 is the upper half of a float32,
// so widening is a shift. IEEE half, and all stores, need wide vectors and the processor's conversion instructions.
#ifndef MU_SRC_KERNELS_FLOAT16_H
#define MU_SRC_KERNELS_FLOAT16_H

#include "simd.h"

// Two vectors of bfloat16 numbers: those at even and those at odd positions.
typedef struct float16_pair {
    mu_vf even, odd;
} float16_pair;

MU_INLINE float16_pair load_pair(const uint16_t *x)
{
    mu_vi both;
    memcpy(&both, x, sizeof both);
    return (float16_pair){(mu_vf)(both << 16), (mu_vf)(both & (int32_t)0xffff0000)};
}

#if MU_LANES == 16
#define MU_WIDE_FLOAT16 1

MU_INLINE mu_vf load_float16(const uint16_t *x, bool bfloat)
{
    const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return bfloat ? (mu_vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16) : (mu_vf)_mm512_cvtph_ps(halves);
}

// Rounds as narrow_bf16 and narrow_f16 do. A NaN computed from bfloat16 numbers has one of their payloads or the
// processor's default, so rounding keeps it NaN.
MU_INLINE void store_float16(uint16_t *y, mu_vf value, bool bfloat)
{
    const __m512i bits = (__m512i)value;
    __m256i halves;
    if (bfloat) {
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    } else {
        halves = _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
    }
    _mm256_storeu_si256((__m256i *)(void *)y, halves);
}

#elif MU_LANES == 8 && defined(__F16C__)
#define MU_WIDE_FLOAT16 1

MU_INLINE mu_vf load_float16(const uint16_t *x, bool bfloat)
{
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)x);
    return bfloat ? (mu_vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16) : (mu_vf)_mm256_cvtph_ps(halves);
}

MU_INLINE void store_float16(uint16_t *y, mu_vf value, bool bfloat)
{
    const __m256i bits = (__m256i)value;
    __m128i halves;
    if (bfloat) {
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        const __m256i upper = _mm256_srli_epi32(rounded, 16);
        halves = _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
    } else {
        halves = _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
    }
    _mm_storeu_si128((__m128i *)(void *)y, halves);
}

#else
#define MU_WIDE_FLOAT16 0
#endif

#if MU_WIDE_FLOAT16

// The upper half of the result is the number rounded to bfloat16.
MU_INLINE mu_vi rounded_to_upper(mu_vf value)
{
    const mu_vi bits = (mu_vi)value;
    return bits + 0x7fff + (bits >> 16 & 1);
}

MU_INLINE void store_pair(uint16_t *y, float16_pair pair)
{
    const mu_vi even = rounded_to_upper(pair.even) >> 16 & 0xffff, odd = rounded_to_upper(pair.odd);
    const mu_vi both = even | (odd & (int32_t)0xffff0000);
    memcpy(y, &both, sizeof both);
}

#endif

#endif
