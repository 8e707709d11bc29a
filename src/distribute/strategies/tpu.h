// TPUStrategy inside the distribute layer: the hosts and the topology of the running TPU system.
#ifndef MU_SRC_DISTRIBUTE_TPU_H
#define MU_SRC_DISTRIBUTE_TPU_H

#include "distribute/distribute.h"
#include "distribute/strategies/membership.h"

#include <muster/tpu_strategy.h>

// ---- The hosts (tpu_job.c) ----------------------------------------------------------------------

// mu__tpu_enter joins the job of a cluster's workers (NULL: those that this process has connected to, else only this
// host), once more than mu_connect_to_cluster has. For one worker there is no job, and membership->mesh is NULL.
// mu__tpu_left undoes it, on failure too. Errors: FAILED_PRECONDITION if mu_connect_to_cluster has not been called with
// this cluster.
mu_status mu__tpu_enter(mu_cluster *cluster, const char *function, mu_membership *membership);
void mu__tpu_left(mu_membership *membership);

// mu__tpu_connected returns the cluster that this process has connected to; borrowed, NULL if there is none.
mu_cluster *mu__tpu_connected(void);

// mu__tpu_keep_topology keeps the topology (retained) of the cores of several hosts; NULL: there is none.
// mu__tpu_topology returns it; owned by the caller, as another thread may start or end the cores meanwhile.
void mu__tpu_keep_topology(mu_tpu_topology *topology);
mu_tpu_topology *mu__tpu_topology(void);

// ---- The cores (tpu_system.c) -------------------------------------------------------------------

// mu__tpu_core_by_core makes each core of a topology (NULL: that of this host's cores) a replica, in the order of the
// hosts and of their cores. Owned by the caller.
mu_tpu_device_assignment *mu__tpu_core_by_core(mu_tpu_topology *topology);

#endif
