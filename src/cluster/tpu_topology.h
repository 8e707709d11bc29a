// TPU topologies inside the cluster layer: the mesh, and who is where.
#ifndef MU_SRC_CLUSTER_TPU_TOPOLOGY_H
#define MU_SRC_CLUSTER_TPU_TOPOLOGY_H

#include "cluster/cluster.h"

#include <muster/tpu.h>

struct mu_tpu_topology {
    mu_object object;
    int mesh[MU_TPU_RANK];
    int n_tasks, per_task;
    int *coordinates; // [n_tasks, per_task, 4]
    int *device;      // [mesh] number of the device, task * per_task + index; -1: missing
    int n_positions, n_missing;
};

// mu__tpu_inside returns whether coordinates are in the mesh; mu__tpu_position their position in `device`.
bool mu__tpu_inside(const mu_tpu_topology *topology, const int *coordinates);
int mu__tpu_position(const mu_tpu_topology *topology, const int *coordinates);

// mu__tpu_by_task returns the replicas of an assignment in the order of the tasks that they are on, those of one task
// in the assignment's order; owned by the caller. Errors: INVALID_ARGUMENT unless the topology has `tasks` tasks with
// as many replicas on each, and each replica has its cores on one task.
mu_tpu_device_assignment *mu__tpu_by_task(const mu_tpu_device_assignment *assignment, int tasks);

// mu__tpu_ring writes the x * y * z positions of a box in the order of a ring that visits neighbours one after the
// other where the sizes allow it: out: [x * y * z, 3].
void mu__tpu_ring(int x, int y, int z, int *out);

#endif
