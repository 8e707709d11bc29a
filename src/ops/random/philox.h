// Philox 4x32-10, the counter-based generator (Salmon et al., SC 2011). Random bits are a function of a key and a
// counter, so any part of a sequence can be computed independently.
#ifndef MU_SRC_OPS_PHILOX_H
#define MU_SRC_OPS_PHILOX_H

#include <stdint.h>

typedef struct mu_philox {
    uint32_t counter[4], key[2]; // least significant word first
} mu_philox;

// mu__philox_seeded derives key and counter from two seeds as TensorFlow's stateless random ops do.
mu_philox mu__philox_seeded(uint64_t seed_0, uint64_t seed_1);

// mu__philox_next writes the four words of the current counter and advances by one; mu__philox_skip advances by n
// counters.
void mu__philox_next(mu_philox *generator, uint32_t words[4]);
void mu__philox_skip(mu_philox *generator, uint64_t counters);

// mu__philox_fill writes the words of n counters, starting at the current one and `step` apart. It does not advance the
// generator. With a step of 1 it gives what n calls of mu__philox_next give, but faster.
void mu__philox_fill(const mu_philox *generator, uint64_t step, int64_t n, uint32_t *words);

#endif
