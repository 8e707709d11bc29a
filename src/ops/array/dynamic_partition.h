// Dividing rows among parts by numbers that are known only at run time.
#ifndef MU_SRC_OPS_DYNAMIC_PARTITION_H
#define MU_SRC_OPS_DYNAMIC_PARTITION_H

#include "ops/core/op.h"

// mu__dynamic_partition divides the rows of x: [n, …] among `parts` tensors, as tf.dynamic_partition does: row i goes
// to out[numbers[i]], in order. numbers: int32 [n]. The outputs belong to the pool.
mu_status mu__dynamic_partition(mu_tensor *x, mu_tensor *numbers, int64_t parts, mu_tensor **out);

// mu__positions returns 0, 1, … n - 1 (int64) for a vector of n elements; works in traces, where n may be unknown.
mu_tensor *mu__positions(mu_tensor *vector);

// mu__inverse_permutation returns q with q[p[i]] = i, for a permutation p (int64 [n]).
mu_tensor *mu__inverse_permutation(mu_tensor *permutation);

#endif
