// TPUStrategy inside the distribute layer: the topology of the running TPU system.
#ifndef MU_SRC_DISTRIBUTE_TPU_H
#define MU_SRC_DISTRIBUTE_TPU_H

#include "distribute/distribute.h"

#include <muster/tpu_strategy.h>

// mu__tpu_core_by_core makes each core of this host a replica, in the order of the cores. Owned by the caller.
mu_tpu_device_assignment *mu__tpu_core_by_core(void);

// mu__tpu_need_local fails with UNIMPLEMENTED if a cluster (NULL: this host) has workers on other hosts.
mu_status mu__tpu_need_local(mu_cluster *cluster, const char *function);

#endif
