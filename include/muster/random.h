// Generators of random numbers that keep their place: objects whose state is a variable.
#ifndef MUSTER_RANDOM_H
#define MUSTER_RANDOM_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

// A generator is a variable of three int64: a counter in two halves and a key, as TensorFlow's Philox generators keep
// them. So it is saved in checkpoints, belongs to the scope that it is made in, and is a function's state.

// mu_generator_new makes one; its key is the seed, or with 0 the next seed of the program (mu_set_seed). `name` may be
// NULL. Belongs to the innermost pool.
MU_API mu_variable *mu_generator_new(uint64_t seed, const char *name);

// mu_generator_next gives a seed for the stateless functions (int64 [2]) and moves the generator on: every call gives
// another, each time that a function runs, and each replica gets its own. Errors: INVALID_ARGUMENT for a variable that
// is not a generator.
MU_API mu_tensor *mu_generator_next(mu_variable *generator);

#ifdef __cplusplus
}
#endif
#endif
