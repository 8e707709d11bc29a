// TPU topologies and device assignments: which physical cores the replicas of a computation run on.
//
// TensorFlow's tf.tpu.experimental.Topology and DeviceAssignment: pure arithmetic, which needs no TPU. A mesh has four
// axes: x, y and z of the chip, and the core on the chip.
//
// Errors: INVALID_ARGUMENT for NULL; else as the comments say, what counts does not fail.
#ifndef MUSTER_TPU_H
#define MUSTER_TPU_H

#include <muster/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MU_TPU_RANK 4

// ---- Topology -----------------------------------------------------------------------------------

typedef struct mu_tpu_topology mu_tpu_topology;

typedef struct mu_tpu_topology_args {
    size_t size;
    const char *given;
    int mesh_shape[MU_TPU_RANK]; // x, y, z, core; each 1 or more
    int num_tasks;
    int num_tpu_devices_per_task;
    const int *device_coordinates; // [num_tasks, num_tpu_devices_per_task, 4], copied
    int n_device_coordinates;      // the product of these three numbers
    mu_keyword_only only_;
} mu_tpu_topology_args;

// mu_tpu_topology_new says where in the mesh each device of each task is. Places without a device are missing. Errors:
// INVALID_ARGUMENT for sizes below 1, another number of coordinates, and coordinates outside of the mesh.
#define mu_tpu_topology_new(...) mu_tpu_topology_new_with(MU_ARGS(mu_tpu_topology_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tpu_topology *mu_tpu_topology_new_with(const mu_tpu_topology_args *args);

// Task, and device of that task, at a position of the mesh; -1, without an error, if the device is missing. Errors
// (-1): OUT_OF_RANGE for coordinates outside of the mesh.
MU_API int mu_tpu_topology_task(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK]);
MU_API int mu_tpu_topology_device(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK]);
MU_API int mu_tpu_topology_missing(const mu_tpu_topology *topology); // number of positions without a device

// The names "/job:JOB/task:T/device:TPU:D" and "/job:JOB/task:T/device:CPU:0" of the device at a position and of its
// host; without the first part if job is NULL. They belong to the pool. Errors (NULL): NOT_FOUND for a missing device,
// OUT_OF_RANGE outside of the mesh.
MU_API const char *mu_tpu_topology_tpu_name(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK],
                                            const char *job);
MU_API const char *mu_tpu_topology_cpu_name(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK],
                                            const char *job);

// ---- Device assignment --------------------------------------------------------------------------

typedef struct mu_tpu_device_assignment mu_tpu_device_assignment;

// How logical cores are ordered: RING along rings of neighbours, MESH along the axes. AUTO uses rings if the
// computation fills the whole mesh, in full chips and without strides.
typedef enum mu_tpu_device_order {
    MU_TPU_DEVICE_ORDER_AUTO = 0,
    MU_TPU_DEVICE_ORDER_RING = 1,
    MU_TPU_DEVICE_ORDER_MESH = 2
} mu_tpu_device_order;

typedef struct mu_tpu_device_assignment_args {
    size_t size;
    const char *given;
    mu_tpu_topology *topology; // retained
    mu_keyword_only only_;
    int computation_shape[MU_TPU_RANK];  // cores of one replica along each axis; default: 1 each
    int computation_stride[MU_TPU_RANK]; // distance between them; default: 1 each
    int num_replicas;                    // default 1
    mu_tpu_device_order device_order_mode;
} mu_tpu_device_assignment_args;

// mu_tpu_device_assignment_build places replicas on the mesh, cores of one chip first, then along x, y and z. If
// devices are missing, replicas take the devices in task order. Errors: INVALID_ARGUMENT for a shape or stride below
// 1, a computation that exceeds the mesh, more replicas than fit, RING where AUTO would not use it, and strides if
// devices are missing.
#define mu_tpu_device_assignment_build(...) \
    mu_tpu_device_assignment_build_with(MU_ARGS(mu_tpu_device_assignment_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tpu_device_assignment *mu_tpu_device_assignment_build_with(const mu_tpu_device_assignment_args *args);

// mu_tpu_device_assignment_new assigns cores as listed: core_assignment: [replicas, cores_per_replica, 4]. Retains:
// topology. Errors: INVALID_ARGUMENT for coordinates outside of the mesh, a missing device, or one that is used twice.
MU_API mu_tpu_device_assignment *mu_tpu_device_assignment_new(mu_tpu_topology *topology, int replicas,
                                                              int cores_per_replica, const int *core_assignment);

// mu_tpu_device_assignment_num_replicas and _num_cores_per_replica return the number of replicas of an assignment, and
// of logical cores of each replica; 0 for NULL.
MU_API int mu_tpu_device_assignment_num_replicas(const mu_tpu_device_assignment *assignment);
MU_API int mu_tpu_device_assignment_num_cores_per_replica(const mu_tpu_device_assignment *assignment);

// For one logical core of one replica: its position, its device's number in its task, and the names of the device and
// of its host, which belong to the pool. Errors (-1, NULL): OUT_OF_RANGE for a replica or core that is none.
MU_API mu_status mu_tpu_device_assignment_coordinates(const mu_tpu_device_assignment *assignment, int replica, int core,
                                                      int coordinates[MU_TPU_RANK]);
MU_API int mu_tpu_device_assignment_tpu_ordinal(const mu_tpu_device_assignment *assignment, int replica, int core);
MU_API const char *mu_tpu_device_assignment_tpu_device(const mu_tpu_device_assignment *assignment, int replica,
                                                       int core, const char *job);
MU_API const char *mu_tpu_device_assignment_host_device(const mu_tpu_device_assignment *assignment, int replica,
                                                        int core, const char *job);

// mu_tpu_device_assignment_lookup_replicas writes the replicas, ascending, whose logical core `core` is on a task; at
// most `capacity`. Returns how many there are. Errors (-1): NOT_FOUND if there are none.
MU_API int mu_tpu_device_assignment_lookup_replicas(const mu_tpu_device_assignment *assignment, int task, int core,
                                                    int *replicas, int capacity);

#ifdef __cplusplus
}
#endif
#endif
