// What the rows that move elements axis by axis tell their lowering.
#ifndef MU_SRC_OPS_MAP_H
#define MU_SRC_OPS_MAP_H

#include "ops/op.h"

// mu__map_axis writes which of n input indices of an axis each of n_out output indices reads; -1: the constant.
void mu__map_axis(const mu_op *op, const void *attrs, int axis, int64_t n, int64_t n_out, int64_t *map);
double mu__map_constant(const mu_op *op, const void *attrs);

#endif
