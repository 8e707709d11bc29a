// The hashes of strings that Keras's layers compute through TensorFlow, bit for bit.
#ifndef MU_SRC_MODEL_FINGERPRINT_H
#define MU_SRC_MODEL_FINGERPRINT_H

#include "base/base.h"

// mu__fingerprint64 is FarmHash's Fingerprint64 (tf.strings.to_hash_bucket_fast).
uint64_t mu__fingerprint64(const void *bytes, size_t n);
// mu__siphash is SipHash-2-4 (tf.strings.to_hash_bucket_strong): Aumasson and Bernstein, "SipHash: a fast short-input
// PRF", 2012.
uint64_t mu__siphash(const uint64_t key[2], const void *bytes, size_t n);
// mu__fingerprint_join joins two hashes as TensorFlow's feature crosses do.
uint64_t mu__fingerprint_join(uint64_t a, uint64_t b);

#endif
