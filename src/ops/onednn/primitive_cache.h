// Cache of prepared kernels for eager calls.
#ifndef MU_SRC_OPS_PRIMITIVE_CACHE_H
#define MU_SRC_OPS_PRIMITIVE_CACHE_H

#include "ops/core/op.h"

// mu__prepared_take finds a cached state for this call (op, attributes, specs) and lends it to the caller until
// mu__prepared_give; returns false if the call must prepare one. mu__prepared_give caches the state of a finished call,
// or releases it.
bool mu__prepared_take(mu_prepare *prepare);
void mu__prepared_give(const mu_prepare *prepare);

#endif
