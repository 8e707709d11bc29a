// Philox 4x32-10 on as many counters side by side as a vector has lanes. Main idea: both halves of the products come
// from multiplying the even and the odd lanes to 64 bits each. Knows nothing of seeds and distributions.
#include "parts.h"
#include "simd.h"

typedef uint32_t mu_vu __attribute__((vector_size(4 * MU_LANES)));
typedef uint64_t mu_vw __attribute__((vector_size(4 * MU_LANES)));

enum { ROUNDS = 10 };

// The low halves of 64-bit lanes, multiplied.
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

MU_INLINE void multiply_wide(mu_vu a, uint32_t by, mu_vu *high, mu_vu *low)
{
    const mu_vw even = multiply_low((mu_vw)a, by), odd = multiply_low((mu_vw)a >> 32, by);
    *high = (mu_vu)((even >> 32) | (odd & UINT64_C(0xffffffff00000000)));
    *low = (mu_vu)((even & UINT64_C(0xffffffff)) | (odd << 32));
}

MU_INLINE void mix(mu_vu word[4], const uint32_t first_key[2])
{
    uint32_t key_0 = first_key[0], key_1 = first_key[1];
    for (int round = 0; round < ROUNDS; round++) {
        mu_vu high_0, low_0, high_1, low_1;
        multiply_wide(word[0], 0xD2511F53u, &high_0, &low_0);
        multiply_wide(word[2], 0xCD9E8D57u, &high_1, &low_1);
        word[0] = high_1 ^ word[1] ^ key_0;
        word[1] = low_1;
        word[2] = high_0 ^ word[3] ^ key_1;
        word[3] = low_0;
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
}

void MU_KERNEL(philox)(const uint32_t counter[4], const uint32_t key[2], uint64_t step, int64_t n, uint32_t *words)
{
    uint64_t low = (uint64_t)counter[1] << 32 | counter[0], high = (uint64_t)counter[3] << 32 | counter[2];
    for (int64_t block = 0; block < n; block += MU_LANES) {
        const int64_t count = least(n - block, MU_LANES);
        uint32_t lanes[4][MU_LANES];
        mu_vu word[4];
        for (int lane = 0; lane < MU_LANES; lane++) {
            lanes[0][lane] = (uint32_t)low;
            lanes[1][lane] = (uint32_t)(low >> 32);
            lanes[2][lane] = (uint32_t)high;
            lanes[3][lane] = (uint32_t)(high >> 32);
            low += step;
            high += low < step;
        }
        memcpy(word, lanes, sizeof word);
        mix(word, key);
        memcpy(lanes, word, sizeof word);
        for (int64_t lane = 0; lane < count; lane++)
            for (int k = 0; k < 4; k++)
                words[4 * (block + lane) + k] = lanes[k][lane];
    }
}
