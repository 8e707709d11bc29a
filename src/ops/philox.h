// Philox 4x32-10, the counter-based generator (Salmon et al., SC 2011): random bits as a function of a key
// and a counter, so that any part of a sequence can be made by anyone at any time.
#ifndef MU_SRC_OPS_PHILOX_H
#define MU_SRC_OPS_PHILOX_H

#include <stdint.h>

typedef struct mu_philox {
    uint32_t counter[4], key[2];  // least word first
} mu_philox;

// mu__philox_seeded derives key and counter from two seeds as TensorFlow's stateless random ops do.
mu_philox mu__philox_seeded(uint64_t seed_0, uint64_t seed_1);

// mu__philox_next writes the four words of the current counter and steps to the next; mu__philox_skip goes
// on by so many counters.
void mu__philox_next(mu_philox *generator, uint32_t words[4]);
void mu__philox_skip(mu_philox *generator, uint64_t counters);

// mu__philox_fill writes the words of n counters from the current one on, `step` apart, and leaves the generator there:
// with a step of 1 as n times mu__philox_next, but faster.
void mu__philox_fill(const mu_philox *generator, uint64_t step, int64_t n, uint32_t *words);

#endif
