// Philox 4x32-10 on one counter per vector lane. Even and odd lanes go through the rounds separately, as 64-bit lanes
// that hold both halves of the products.
#include "kernel_slots.h"
#include "simd.h"

typedef uint32_t mu_vu __attribute__((vector_size(4 * MU_LANES)));
typedef uint64_t mu_vw __attribute__((vector_size(4 * MU_LANES)));

enum { ROUNDS = 10 };

// Multiplies the low halves of 64-bit lanes.
MU_INLINE mu_vw multiply_low(mu_vw a, uint32_t by)
{
#if MU_LANES == 16
    return (mu_vw)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(by));
#elif MU_LANES == 8
    return (mu_vw)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(by));
#elif defined(__SSE2__)
    return (mu_vw)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(by));
#else
    return (a & 0xffffffffu) * by;
#endif
}

// Keeps even and odd lanes separate, each in the low half of 64 bits: products ignore the upper half, so it need not
// be cleared.
MU_INLINE void mix(mu_vu word[4], const uint32_t first_key[2])
{
    mu_vw half[2][4];
    uint32_t key_0 = first_key[0], key_1 = first_key[1];
    for (int k = 0; k < 4; k++) {
        half[0][k] = (mu_vw)word[k];
        half[1][k] = (mu_vw)word[k] >> 32;
    }
    for (int round = 0; round < ROUNDS; round++) {
        MU_UNROLL
        for (int i = 0; i < 2; i++) {
            mu_vw *w = half[i];
            const mu_vw first = multiply_low(w[0], 0xD2511F53u), second = multiply_low(w[2], 0xCD9E8D57u);
            w[0] = (second >> 32) ^ w[1] ^ key_0;
            w[1] = second;
            w[2] = (first >> 32) ^ w[3] ^ key_1;
            w[3] = first;
        }
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
    for (int k = 0; k < 4; k++)
        word[k] = (mu_vu)((half[0][k] & UINT64_C(0xffffffff)) | (half[1][k] << 32));
}

// Counters from (low, high) on, `step` apart, as 32-bit words.
MU_OUTLINE static void count_with_carry(uint64_t low, uint64_t high, uint64_t step, mu_vu word[4])
{
    for (int lane = 0; lane < MU_LANES; lane++) {
        const uint64_t count = low + (uint64_t)lane * step, above = high + (count < low);
        word[0][lane] = (uint32_t)count;
        word[1][lane] = (uint32_t)(count >> 32);
        word[2][lane] = (uint32_t)above;
        word[3][lane] = (uint32_t)(above >> 32);
    }
}

// The same, faster in the usual case: only the lowest word differs between lanes.
MU_INLINE void count_lanes(uint64_t low, uint64_t high, uint64_t step, mu_vu word[4])
{
    static const uint32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    mu_vu lane;
    if (step > UINT32_MAX / MU_LANES || (low & UINT32_MAX) + step * (MU_LANES - 1) > UINT32_MAX) {
        count_with_carry(low, high, step, word);
        return;
    }
    memcpy(&lane, numbers, sizeof lane);
    word[0] = lane * (uint32_t)step + (uint32_t)low;
    word[1] = (mu_vu){0} + (uint32_t)(low >> 32);
    word[2] = (mu_vu){0} + (uint32_t)high;
    word[3] = (mu_vu){0} + (uint32_t)(high >> 32);
}

// Stores the four words of each lane, lane by lane.
MU_INLINE void put_words(const mu_vu word[4], uint32_t *words)
{
#if MU_LANES == 16
    const __m512i a = _mm512_unpacklo_epi32((__m512i)word[0], (__m512i)word[1]);
    const __m512i b = _mm512_unpackhi_epi32((__m512i)word[0], (__m512i)word[1]);
    const __m512i c = _mm512_unpacklo_epi32((__m512i)word[2], (__m512i)word[3]);
    const __m512i d = _mm512_unpackhi_epi32((__m512i)word[2], (__m512i)word[3]);
    // Lane 4 q + k lies in quarter q of all_k.
    const __m512i all_0 = _mm512_unpacklo_epi64(a, c), all_1 = _mm512_unpackhi_epi64(a, c);
    const __m512i all_2 = _mm512_unpacklo_epi64(b, d), all_3 = _mm512_unpackhi_epi64(b, d);
    const __m512i left_0 = _mm512_shuffle_i32x4(all_0, all_1, 0x44), right_0 = _mm512_shuffle_i32x4(all_2, all_3, 0x44);
    const __m512i left_1 = _mm512_shuffle_i32x4(all_0, all_1, 0xee), right_1 = _mm512_shuffle_i32x4(all_2, all_3, 0xee);
    _mm512_storeu_si512(words, _mm512_shuffle_i32x4(left_0, right_0, 0x88));
    _mm512_storeu_si512(words + 16, _mm512_shuffle_i32x4(left_0, right_0, 0xdd));
    _mm512_storeu_si512(words + 32, _mm512_shuffle_i32x4(left_1, right_1, 0x88));
    _mm512_storeu_si512(words + 48, _mm512_shuffle_i32x4(left_1, right_1, 0xdd));
#else
    for (int lane = 0; lane < MU_LANES; lane++)
        for (int k = 0; k < 4; k++)
            words[4 * lane + k] = word[k][lane];
#endif
}

void MU_KERNEL(philox)(const uint32_t counter[4], const uint32_t key[2], uint64_t step, int64_t n, uint32_t *words)
{
    uint64_t low = (uint64_t)counter[1] << 32 | counter[0], high = (uint64_t)counter[3] << 32 | counter[2];
    for (int64_t block = 0; block < n; block += MU_LANES) {
        uint32_t few[4 * MU_LANES];
        mu_vu word[4];
        count_lanes(low, high, step, word);
        low += MU_LANES * step;
        high += low < MU_LANES * step;
        mix(word, key);
        if (n - block >= MU_LANES) {
            put_words(word, words + 4 * block);
            continue;
        }
        put_words(word, few);
        memcpy(words + 4 * block, few, (size_t)(4 * (n - block)) * sizeof *few);
    }
}
