// Starting and ending the TPU system of this host, and its topology.
//
// The mesh has two cores per chip, as TPU v2 to v4 have: [n/2, 1, 1, 2]. Which devices the cores are is the engine
// layer's choice (engine/tpu.c).
#include "distribute/tpu.h"

mu_status mu__tpu_need_local(mu_cluster *cluster, const char *function)
{
    mu_cluster_spec *spec = cluster ? mu_cluster_get_spec(cluster) : NULL;
    if (!spec)
        return cluster ? mu_error_code() : MU_OK;
    if (mu_cluster_spec_job_count(spec) == 0)
        return MU_OK;
    return mu__error(MU_UNIMPLEMENTED,
                     "%s: the TPU's workers are on other hosts (%s); a process uses the TPU of its own host. Run the "
                     "program on each worker, with mu_tpu_cluster_resolver(.tpu = \"local\")",
                     function, mu_cluster_spec_json(spec));
}

mu_status mu_connect_to_cluster(mu_cluster *cluster)
{
    if (mu__pending())
        return mu_error_code();
    if (!cluster)
        return mu__error(MU_INVALID_ARGUMENT, "mu_connect_to_cluster: the cluster is NULL");
    return mu__tpu_need_local(cluster, "mu_connect_to_cluster");
}

mu_tpu_topology *mu__tpu_topology(int n_cores)
{
    const int per_chip = n_cores % 2 == 0 ? 2 : 1;
    int *coordinates = mu__calloc((size_t)n_cores + 1, sizeof *coordinates * MU_TPU_RANK);
    for (int i = 0; coordinates && i < n_cores; i++) {
        coordinates[i * MU_TPU_RANK] = i / per_chip;
        coordinates[i * MU_TPU_RANK + MU_TPU_RANK - 1] = i % per_chip;
    }
    mu_tpu_topology *topology =
        coordinates ? mu_retain(mu_tpu_topology_new(.mesh_shape = {n_cores / per_chip, 1, 1, per_chip}, .num_tasks = 1,
                                                    .num_tpu_devices_per_task = n_cores,
                                                    .device_coordinates = coordinates))
                    : NULL;
    mu__free(coordinates);
    return topology;
}

static mu_status need_outside(const char *function)
{
    if (!mu__current_strategy())
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION, "%s is called inside a scope or a replica of %s; call it before", function,
                     mu_strategy_name(mu__current_strategy()));
}

mu_tpu_topology *mu_tpu_initialize(mu_cluster *cluster)
{
    static const char name[] = "mu_tpu_initialize";
    mu_runtime *runtime = mu__runtime();
    if (mu__pending() || need_outside(name) != MU_OK || mu__tpu_need_local(cluster, name) != MU_OK ||
        mu__tpu_initialize(runtime) != MU_OK)
        return NULL;
    return mu__give(mu__tpu_topology(mu__tpu_core_count(runtime)));
}

mu_status mu_tpu_shutdown(mu_cluster *cluster)
{
    static const char name[] = "mu_tpu_shutdown";
    if (mu__pending())
        return mu_error_code();
    MU_TRY(need_outside(name));
    MU_TRY(mu__tpu_need_local(cluster, name));
    return mu__tpu_shutdown(mu__runtime())
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION, "%s: the TPU system is not running; mu_tpu_initialize starts it",
                   name);
}
