// Random number generators: objects whose state is a variable.
#ifndef MUSTER_RANDOM_H
#define MUSTER_RANDOM_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

// A generator is a variable of three int64: a 128-bit counter in two halves, and a key, as in TensorFlow's Philox
// generators. So checkpoints save it, it belongs to the scope that it is made in, and traced functions can update it.

// mu_generator_new makes a generator whose key is the seed; seed 0 takes the next seed of the program (mu_set_seed).
// `name` may be NULL. Errors: as mu_variable_new.
MU_API mu_variable *mu_generator_new(uint64_t seed, const char *name);

// mu_generator_next returns a seed for the stateless functions (int64 [2]) and advances the generator. Every call,
// every run of a traced function and every replica gets a different seed. Errors: INVALID_ARGUMENT for a variable that
// is not a generator.
MU_API mu_tensor *mu_generator_next(mu_variable *generator);

#ifdef __cplusplus
}
#endif
#endif
