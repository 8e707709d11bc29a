// Eager ops on an XLA device.
#ifndef MU_SRC_DISTRIBUTE_EAGER_DEVICE_H
#define MU_SRC_DISTRIBUTE_EAGER_DEVICE_H

#include "distribute/distribute.h"

// mu__eager_apply_of returns how scopes of this strategy apply eager ops; NULL: on the host. With `at_one`, what runs
// in the scope belongs to one of the strategy's devices, that of the thread's component: a replica, or an update of a
// copy.
mu_eager_apply *mu__eager_apply_of(const mu_strategy *strategy, bool at_one);

#endif
