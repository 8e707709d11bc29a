// The hashes of strings that Keras's layers compute through TensorFlow, bit for bit.
#ifndef MU_SRC_MODEL_FINGERPRINT_H
#define MU_SRC_MODEL_FINGERPRINT_H

#include "tensor/tensor.h"

// mu__fingerprint64 is FarmHash's Fingerprint64 (tf.strings.to_hash_bucket_fast).
uint64_t mu__fingerprint64(const void *bytes, size_t n);
// mu__siphash is SipHash-2-4 (tf.strings.to_hash_bucket_strong): Aumasson and Bernstein, "SipHash: a fast short-input
// PRF", 2012.
uint64_t mu__siphash(const uint64_t key[2], const void *bytes, size_t n);
// mu__salted_hash is mu__siphash with a key of 1 number, which counts twice, or 2; without one (n 0) mu__fingerprint64.
uint64_t mu__salted_hash(int n, const int64_t *salt, mu_string text);
// mu__salt_check checks the number of a salt's numbers. Errors: INVALID_ARGUMENT in the name of `function`.
mu_status mu__salt_check(int n, const char *function);
// mu__fingerprint_join joins two hashes as TensorFlow's feature crosses do.
uint64_t mu__fingerprint_join(uint64_t a, uint64_t b);

#endif
