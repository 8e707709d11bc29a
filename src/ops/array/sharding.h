// Where the elements of a tensor are computed, among the logical devices of a replica.
#ifndef MU_SRC_OPS_ARRAY_SHARDING_H
#define MU_SRC_OPS_ARRAY_SHARDING_H

#include "ops/core/op.h"

enum { MU_MOST_LOGICAL_DEVICES = 1024, MU_NO_DEVICE = -1 };

// With `pieces`, one number for each axis, the tensor is divided, in row-major order of the devices. Without, it is on
// one device, or with MU_NO_DEVICE as a copy on every one.
typedef struct mu_sharding_attrs {
    mu_ints pieces;
    int64_t device;
    int64_t devices; // of each replica
} mu_sharding_attrs;

// mu__sharding_check fails with INVALID_ARGUMENT, naming `name` and the axis, if a tensor of this shape cannot be
// placed so; sizes that are not known yet pass.
mu_status mu__sharding_check(const char *name, const mu_shape *shape, const mu_sharding_attrs *sharding);

// mu__sharding_annotate annotates a tensor in a trace; outside of traces it returns the tensor.
mu_tensor *mu__sharding_annotate(const mu_sharding_attrs *sharding, mu_tensor *tensor);

#endif
