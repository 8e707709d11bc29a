// Philox 4x32-10, one counter at a time; `kernels` computes many at once.
//
// Does not deal with distributions.
#include "ops/random/philox.h"

#include "kernels/kernels.h"

enum { ROUNDS = 10 };

static inline void mix(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d, uint32_t key_0, uint32_t key_1)
{
    const uint64_t first = (uint64_t)0xD2511F53u * *a, second = (uint64_t)0xCD9E8D57u * *c;
    *a = (uint32_t)(second >> 32) ^ *b ^ key_0;
    *b = (uint32_t)second;
    *c = (uint32_t)(first >> 32) ^ *d ^ key_1;
    *d = (uint32_t)first;
}

static inline void next_key(uint32_t key[2])
{
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
}

void mu__philox_skip(mu_philox *generator, uint64_t counters)
{
    uint32_t *counter = generator->counter;
    const uint64_t low = ((uint64_t)counter[1] << 32 | counter[0]) + counters;
    const uint64_t high = ((uint64_t)counter[3] << 32 | counter[2]) + (low < counters);
    for (int i = 0; i < 2; i++) {
        counter[i] = (uint32_t)(low >> 32 * i);
        counter[2 + i] = (uint32_t)(high >> 32 * i);
    }
}

void mu__philox_next(mu_philox *generator, uint32_t words[4])
{
    uint32_t key[2] = {generator->key[0], generator->key[1]};
    for (int i = 0; i < 4; i++)
        words[i] = generator->counter[i];
    for (int round = 0; round < ROUNDS; round++, next_key(key))
        mix(&words[0], &words[1], &words[2], &words[3], key[0], key[1]);
    mu__philox_skip(generator, 1);
}

mu_philox mu__philox_seeded(uint64_t seed_0, uint64_t seed_1)
{
    mu_philox mixer = {
        .counter = {(uint32_t)seed_0, (uint32_t)(seed_0 >> 32), (uint32_t)seed_1, (uint32_t)(seed_1 >> 32)},
        .key = {0x3EC8F720u, 0x02461E29u},
    };
    uint32_t mixed[4];
    mu__philox_next(&mixer, mixed);
    return (mu_philox){.counter = {0, 0, mixed[2], mixed[3]}, .key = {mixed[0], mixed[1]}};
}

void mu__philox_fill(const mu_philox *generator, uint64_t step, int64_t n, uint32_t *words)
{
    mu__kernels()->philox(generator->counter, generator->key, step, n, words);
}
