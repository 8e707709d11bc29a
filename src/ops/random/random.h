// Shared by the random ops: the generator of a seed, and conversion of random words to numbers.
#ifndef MU_SRC_OPS_RANDOM_H
#define MU_SRC_OPS_RANDOM_H

#include "ops/core/op.h"
#include "ops/random/philox.h"

// mu__hlo_words writes the first n words ([n], MU_HLO_U32) of the generator of a seed, as mu__philox_next would give
// them one after the other (lower_random.c).
mu_hlo mu__hlo_words(mu_emitter *e, mu_hlo seed, int64_t n);

// mu__hlo_seeded writes key and 128-bit counter of a seed, [3], as mu__philox_seeded derives them; mu__hlo_words_at the
// words, [n, 4], of the counters {low, high}, [n] each, under a key. mu__hlo_uniform makes numbers in [0, 1) of words,
// [n]: one of each, or of two for float64. mu__hlo_normal makes pairs of normal numbers (Box-Muller), in float32 or
// float64, of as many words.
mu_hlo mu__hlo_seeded(mu_emitter *e, mu_hlo seed);
mu_hlo mu__hlo_words_at(mu_emitter *e, mu_hlo low, mu_hlo high, mu_hlo key);
mu_hlo mu__hlo_uniform(mu_emitter *e, mu_hlo words, mu_dtype dtype);
mu_hlo mu__hlo_normal(mu_emitter *e, mu_hlo words, mu_dtype dtype);

// Counters of each element that is drawn by rejection, and the mean from which Poisson numbers are drawn by PTRS.
enum { MU_RANDOM_STRETCH = 256, MU_RANDOM_KNUTH_BELOW = 10, MU_RANDOM_MOST_TERMS = 1000000 };
mu_status mu__lower_gamma(mu_lowering *l);
mu_status mu__lower_poisson(mu_lowering *l);
mu_status mu__lower_gamma_grad(mu_lowering *l);

// Numbers as of mu_stateless_random_uniform and _normal, in the type and the shape of `like`, which a trace may not
// know.
mu_tensor *mu__random_uniform_like(mu_tensor *seed, mu_tensor *like);
mu_tensor *mu__random_normal_like(mu_tensor *seed, mu_tensor *like);

mu_status mu__need_seed(const mu_infer *infer);                          // error unless input 0 is two integers
mu_status mu__need_known_shape(const mu_shape *shape, const char *what); // for a shape to draw
mu_philox mu__random_generator(const mu_view *seed);

// Distributions. Elements are drawn in groups; each group uses a fixed number of counters.
enum {
    MU_RANDOM_UNIFORM,
    MU_RANDOM_NORMAL,
    MU_RANDOM_TRUNCATED,
    MU_RANDOM_INTEGERS,
    MU_RANDOM_PERMUTATION,
};
enum { MU_RANDOM_GROUP = 4 }; // most elements in a group
int mu__random_group_size(int variant, mu_dtype dtype);
uint64_t mu__random_counters(int variant, int64_t size);
void mu__truncated_group(mu_philox generator, mu_dtype dtype, double out[MU_RANDOM_GROUP]);

// The fast kernels of these ops (random_vector.c). mu__random_normals_of makes pairs of normal numbers from four words
// each, at most MU_RANDOM_PAIRS at once. mu__random_doubles makes n uniform numbers from two words each.
enum { MU_RANDOM_PAIRS = 64 };
void mu__random_normals_of(const uint32_t *words, double *out, int64_t pairs);
void mu__random_doubles(const uint32_t *words, double *out, int64_t n);
mu_status mu__random_many(const mu_kernel *k);
mu_status mu__permutation_many(const mu_kernel *k);

static inline float mu__random_float(uint32_t word) // [0, 1)
{
    const uint32_t bits = 0x3f800000u | (word & 0x7fffffu);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value - 1;
}

static inline double mu__random_double(uint32_t low, uint32_t high) // [0, 1)
{
    const uint64_t bits = (uint64_t)0x3ff << 52 | (uint64_t)(low & 0xfffffu) << 32 | high;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value - 1;
}

void mu__random_normals(const uint32_t words[4], double out[2]); // Box-Muller

double mu__digamma(double x); // elementwise_plain.c

#endif
