// Distinct ids, so that a row is sent, read or updated once, however often it is requested.
#ifndef MU_SRC_OPS_DISTINCT_H
#define MU_SRC_OPS_DISTINCT_H

#include "base/base.h"

// mu__distinct numbers the distinct ids in order of first appearance: distinct[0 … result) are the ids, number[i] is
// that of ids[i]. Both have room for n. Returns -1 and records RESOURCE_EXHAUSTED if memory is short; n is below 2^31.
int64_t mu__distinct(int64_t n, const int64_t *ids, int64_t *distinct, uint32_t *number);

// mu__hash_id spreads an id over 64 bits; a bijection (the finalizer of SplitMix64; Steele et al., 2014).
static inline uint64_t mu__hash_id(uint64_t id)
{
    id = (id ^ id >> 30) * 0xBF58476D1CE4E5B9u;
    id = (id ^ id >> 27) * 0x94D049BB133111EBu;
    return id ^ id >> 31;
}

#endif
