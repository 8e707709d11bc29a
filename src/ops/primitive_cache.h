// What eager calls keep of the kernels that they prepared.
#ifndef MU_SRC_OPS_PRIMITIVE_CACHE_H
#define MU_SRC_OPS_PRIMITIVE_CACHE_H

#include "ops/op.h"

// mu__prepared_take finds a state for this call (op, attributes, specs), which is the caller's until it is given back;
// false if the call must prepare one. mu__prepared_give keeps the state of a call that is done, or releases it.
bool mu__prepared_take(mu_prepare *prepare);
void mu__prepared_give(const mu_prepare *prepare);

#endif
