// Starting and ending the TPU system of this host, and its topology.
//
// The mesh is what the cores' coordinates say, which TPUs have, counted from this host's first chip. Other devices are
// laid out as TPUs v2 to v4, with two cores on each chip: [n/2, 1, 1, 2]. Which devices the cores are is the engine
// layer's choice (engine/tpu.c).
#include "distribute/strategies/tpu.h"
#include "engine/pjrt/pjrt.h"

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

// ---- Topology -----------------------------------------------------------------------------------

_Static_assert(MU_PJRT_COORDINATES == MU_TPU_RANK, "a core has as many coordinates as the mesh has axes");

// Whether no two cores are at one place.
static bool are_apart(int n, const int *coordinates)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (memcmp(coordinates + i * MU_TPU_RANK, coordinates + k * MU_TPU_RANK, sizeof(int) * MU_TPU_RANK) == 0)
                return false;
    return true;
}

// The coordinates that the devices report, from 0 on, and the mesh that holds them.
static bool reported_places(int n, int *coordinates, int mesh[MU_TPU_RANK])
{
    enum { MOST_PLACES = 1 << 20 };
    int64_t places = 1;
    for (int i = 0; i < n; i++) {
        const mu_device *core = mu__tpu_core(mu__runtime(), i);
        if (!core || !mu__pjrt_coordinates(core, coordinates + i * MU_TPU_RANK))
            return false;
    }
    for (int axis = 0; axis < MU_TPU_RANK; axis++) {
        int first = INT32_MAX, last = 0;
        for (int i = 0; i < n; i++) {
            first = MU_MIN(first, coordinates[i * MU_TPU_RANK + axis]);
            last = MU_MAX(last, coordinates[i * MU_TPU_RANK + axis]);
        }
        for (int i = 0; i < n; i++)
            coordinates[i * MU_TPU_RANK + axis] -= first;
        mesh[axis] = last - first + 1;
        places = MU_MIN(places * mesh[axis], (int64_t)MOST_PLACES + 1);
    }
    return n > 0 && places <= MOST_PLACES && are_apart(n, coordinates);
}

static void usual_places(int n, int *coordinates, int mesh[MU_TPU_RANK])
{
    const int per_chip = n % 2 == 0 ? 2 : 1;
    for (int i = 0; i < n; i++)
        memcpy(coordinates + i * MU_TPU_RANK, (const int[MU_TPU_RANK]){i / per_chip, 0, 0, i % per_chip},
               sizeof *coordinates * MU_TPU_RANK);
    memcpy(mesh, (const int[MU_TPU_RANK]){n / per_chip, 1, 1, per_chip}, sizeof *mesh * MU_TPU_RANK);
}

// The places of all cores, which the caller frees.
static int *places_of_cores(int n, int mesh[MU_TPU_RANK])
{
    int *coordinates = mu__calloc((size_t)n + 1, sizeof *coordinates * MU_TPU_RANK);
    if (coordinates && !reported_places(n, coordinates, mesh))
        usual_places(n, coordinates, mesh);
    return coordinates;
}

static mu_tpu_topology *topology_of(int n, const int *coordinates, const int mesh[MU_TPU_RANK])
{
    return mu_tpu_topology_new(.mesh_shape = {mesh[0], mesh[1], mesh[2], mesh[3]}, .num_tasks = 1,
                               .num_tpu_devices_per_task = n, .device_coordinates = coordinates);
}

static mu_tpu_topology *whole_topology(void)
{
    const int n = mu__tpu_core_count(mu__runtime());
    int mesh[MU_TPU_RANK], *coordinates = places_of_cores(n, mesh);
    mu_tpu_topology *topology = coordinates ? topology_of(n, coordinates, mesh) : NULL;
    mu__free(coordinates);
    return topology;
}

mu_tpu_device_assignment *mu__tpu_core_by_core(void)
{
    const int n = mu__tpu_core_count(mu__runtime());
    int mesh[MU_TPU_RANK], *coordinates = places_of_cores(n, mesh);
    mu_tpu_topology *topology = coordinates ? topology_of(n, coordinates, mesh) : NULL;
    mu_tpu_device_assignment *assignment =
        topology ? mu_retain(mu_tpu_device_assignment_new(topology, n, 1, coordinates)) : NULL;
    mu__free(coordinates);
    return assignment;
}

// ---- Starting and ending ------------------------------------------------------------------------

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
    return whole_topology();
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
