// What the random rows share: the generator that a seed gives, and doubles made of its words.
#ifndef MU_SRC_OPS_RANDOM_H
#define MU_SRC_OPS_RANDOM_H

#include "ops/op.h"
#include "ops/philox.h"

mu_status mu__need_seed(const mu_infer *infer);           // input 0 is two integers
mu_status mu__need_known_shape(const mu_shape *shape, const char *what);  // as a shape to draw
mu_philox mu__random_generator(const mu_view *seed);

double mu__random_double(uint32_t low, uint32_t high);    // [0, 1)
void mu__random_normals(const uint32_t words[4], double out[2]);  // Box and Muller

double mu__digamma(double x);                              // elementwise.c

#endif
