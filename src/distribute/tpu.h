// TPUStrategy inside the distribute layer: the topology of the running TPU system.
#ifndef MU_SRC_DISTRIBUTE_TPU_H
#define MU_SRC_DISTRIBUTE_TPU_H

#include "distribute/distribute.h"

#include <muster/tpu_strategy.h>

// mu__tpu_topology makes the topology of n cores of this host; the caller owns it.
mu_tpu_topology *mu__tpu_topology(int n_cores);

// mu__tpu_need_local fails with UNIMPLEMENTED if a cluster (NULL: this host) has workers on other hosts.
mu_status mu__tpu_need_local(mu_cluster *cluster, const char *function);

#endif
