// Starting and ending the TPU system, and its topology.
//
// The mesh is what the cores' coordinates say, which TPUs have, counted from the first chip of all hosts. Other devices
// are laid out as TPUs v2 to v4, with two cores on each chip: [n/2, 1, 1, 2]. Which devices the cores are is the engine
// layer's choice (engine/tpu.c). Several hosts exchange the coordinates of their cores; each host is a task.
#include "cluster/tpu_topology.h"
#include "distribute/strategies/tpu.h"
#include "engine/pjrt/pjrt.h"

// ---- Topology -----------------------------------------------------------------------------------

_Static_assert(MU_PJRT_COORDINATES == MU_TPU_RANK, "a core has as many coordinates as the mesh has axes");

// Whether all cores have different coordinates.
static bool are_apart(int n, const int *coordinates)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (memcmp(coordinates + i * MU_TPU_RANK, coordinates + k * MU_TPU_RANK, sizeof(int) * MU_TPU_RANK) == 0)
                return false;
    return true;
}

// The cores of one or all hosts.
typedef struct core_table {
    int tasks, each;  // hosts, and cores of each
    bool reported;    // the plugin says where each of them is
    int *coordinates; // [tasks * each, MU_TPU_RANK]; owned
} core_table;

static mu_status read_own(core_table *p)
{
    p->tasks = 1;
    p->each = mu__tpu_core_count(mu__runtime());
    p->coordinates = mu__calloc((size_t)p->each + 1, sizeof *p->coordinates * MU_TPU_RANK);
    p->reported = p->each > 0;
    for (int i = 0; p->coordinates && i < p->each; i++) {
        const mu_device *core = mu__tpu_core(mu__runtime(), i);
        p->reported = p->reported && core && mu__pjrt_coordinates(core, p->coordinates + i * MU_TPU_RANK);
    }
    return p->coordinates ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Counts reported coordinates from 0 on, and finds the mesh that holds them. False: they cannot be those of cores.
static bool span(const core_table *p, int mesh[MU_TPU_RANK])
{
    enum { MOST_POSITIONS = 1 << 20 };
    const int n = p->tasks * p->each;
    int64_t size = 1;
    for (int axis = 0; axis < MU_TPU_RANK; axis++) {
        int64_t first = INT32_MAX, last = INT32_MIN;
        for (int i = 0; i < n; i++) {
            first = MU_MIN(first, p->coordinates[i * MU_TPU_RANK + axis]);
            last = MU_MAX(last, p->coordinates[i * MU_TPU_RANK + axis]);
        }
        if ((size *= last - first + 1) > MOST_POSITIONS)
            return false;
        for (int i = 0; i < n; i++)
            p->coordinates[i * MU_TPU_RANK + axis] -= (int)first;
        mesh[axis] = (int)(last - first + 1);
    }
    return are_apart(n, p->coordinates);
}

static void default_mesh(const core_table *p, int mesh[MU_TPU_RANK])
{
    const int n = p->tasks * p->each, per_chip = p->each % 2 == 0 ? 2 : 1;
    for (int i = 0; i < n; i++)
        memcpy(p->coordinates + i * MU_TPU_RANK, (const int[MU_TPU_RANK]){i / per_chip, 0, 0, i % per_chip},
               sizeof *p->coordinates * MU_TPU_RANK);
    memcpy(mesh, (const int[MU_TPU_RANK]){n / per_chip, 1, 1, per_chip}, sizeof *p->coordinates * MU_TPU_RANK);
}

// In the pool; frees the coordinates.
static mu_tpu_topology *topology_of(core_table *p)
{
    int mesh[MU_TPU_RANK];
    if (!p->reported || !span(p, mesh))
        default_mesh(p, mesh);
    mu_tpu_topology *topology =
        mu_tpu_topology_new(.mesh_shape = {mesh[0], mesh[1], mesh[2], mesh[3]}, .num_tasks = p->tasks,
                            .num_tpu_devices_per_task = p->each, .device_coordinates = p->coordinates,
                            .n_device_coordinates = p->tasks * p->each * MU_TPU_RANK);
    mu__free(p->coordinates);
    return topology;
}

static mu_tpu_topology *own_topology(void)
{
    core_table p = {0};
    return read_own(&p) == MU_OK ? topology_of(&p) : NULL;
}

mu_tpu_device_assignment *mu__tpu_core_by_core(mu_tpu_topology *topology)
{
    topology = topology ? topology : own_topology();
    return topology ? mu_retain(mu_tpu_device_assignment_new(topology, topology->n_tasks * topology->per_task, 1,
                                                             topology->coordinates))
                    : NULL;
}

// ---- The cores of all hosts ---------------------------------------------------------------------

// What a host sends the others; the coordinates follow.
typedef struct host_cores {
    int32_t cores, reported;
    char kind[MU_PJRT_KIND]; // of the devices' names
} host_cores;

static host_cores *describe_own(const core_table *p, size_t *bytes)
{
    const size_t coordinates = (size_t)p->each * MU_TPU_RANK * sizeof *p->coordinates;
    const mu_device *core = mu__tpu_core(mu__runtime(), 0);
    host_cores *own = mu__calloc(1, sizeof *own + coordinates);
    if (!own || !core)
        return own;
    own->cores = p->each;
    own->reported = p->reported;
    snprintf(own->kind, sizeof own->kind, "%.*s", (int)strcspn(core->name, ":"), core->name);
    memcpy(own + 1, p->coordinates, coordinates);
    *bytes = sizeof *own + coordinates;
    return own;
}

// Every host compares the same blocks, so that all fail or none.
static mu_status check_hosts(const mu_mesh *mesh, const mu_blocks *blocks)
{
    const host_cores *first = blocks->data[0];
    for (int rank = 0; rank < blocks->n; rank++) {
        const host_cores *theirs = blocks->data[rank];
        const size_t each = MU_TPU_RANK * sizeof(int);
        if (blocks->bytes[rank] < sizeof *theirs || theirs->cores < 1 ||
            (blocks->bytes[rank] - sizeof *theirs) / each != (size_t)theirs->cores)
            return mu__error(MU_DATA_LOSS, "%s does not describe its TPU cores; install the same version everywhere",
                             mu__mesh_name(mesh, rank));
        if (theirs->cores != first->cores || strncmp(theirs->kind, first->kind, sizeof first->kind) != 0)
            return mu__error(MU_FAILED_PRECONDITION,
                             "mu_tpu_initialize: %s has %d cores (%.19s devices), %s has %d (%.19s devices); all hosts "
                             "must have the same kind and number",
                             mu__mesh_name(mesh, 0), first->cores, first->kind, mu__mesh_name(mesh, rank),
                             theirs->cores, theirs->kind);
    }
    return MU_OK;
}

static mu_status join_cores(const mu_blocks *blocks, core_table *out)
{
    const size_t each = (size_t)out->each * MU_TPU_RANK;
    out->tasks = blocks->n;
    out->coordinates = mu__calloc(each * (size_t)blocks->n + 1, sizeof *out->coordinates);
    out->reported = true;
    for (int rank = 0; out->coordinates && rank < blocks->n; rank++) {
        const host_cores *theirs = blocks->data[rank];
        memcpy(out->coordinates + (size_t)rank * each, theirs + 1, each * sizeof *out->coordinates);
        out->reported = out->reported && theirs->reported;
    }
    return out->coordinates ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// A collective of the hosts.
static mu_tpu_topology *topology_of_all(mu_mesh *mesh)
{
    core_table own = {0}, all = {0};
    mu_blocks blocks = {0};
    size_t bytes = 0;
    host_cores *mine = read_own(&own) == MU_OK ? describe_own(&own, &bytes) : NULL;
    mu_status status =
        mine ? mu__mesh_exchange(mesh, "the cores of the TPU", mine, bytes, &blocks) : MU_RESOURCE_EXHAUSTED;
    if (!mine)
        mu__membership_tell(mesh);
    all.each = own.each;
    if (status == MU_OK && (status = check_hosts(mesh, &blocks)) == MU_OK)
        status = join_cores(&blocks, &all);
    mu__blocks_free(&blocks);
    mu__free(own.coordinates);
    mu__free(mine);
    return status == MU_OK ? topology_of(&all) : NULL;
}

// ---- Starting and ending ------------------------------------------------------------------------

static mu_status need_outside(const char *function)
{
    if (!mu__current_strategy())
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION, "%s is called inside a scope or a replica of %s; call it before", function,
                     mu_strategy_name(mu__current_strategy()));
}

// The other hosts wait for this one's cores.
static mu_tpu_topology *start_all(mu_mesh *mesh)
{
    mu__mesh_doing(mesh, "starting its TPU cores", -1, NULL);
    if (mu__tpu_initialize(mu__runtime()) != MU_OK) {
        mu__membership_tell(mesh);
        return NULL;
    }
    mu_tpu_topology *topology = topology_of_all(mesh);
    mu__tpu_keep_topology(topology);
    mu__mesh_doing(mesh, "running the program", -1, NULL);
    return topology;
}

mu_tpu_topology *mu_tpu_initialize(mu_cluster *cluster)
{
    static const char name[] = "mu_tpu_initialize";
    mu_membership j;
    mu_tpu_topology *topology = NULL;
    if (mu__pending() || need_outside(name) != MU_OK)
        return NULL;
    const mu_status status = mu__tpu_enter(cluster, name, &j);
    if (status == MU_OK && j.mesh) {
        topology = start_all(j.mesh);
    } else if (status == MU_OK && mu__tpu_initialize(mu__runtime()) == MU_OK) {
        mu__tpu_keep_topology(NULL);
        topology = own_topology();
    }
    mu__tpu_left(&j);
    return topology;
}

mu_status mu_tpu_shutdown(mu_cluster *cluster)
{
    static const char name[] = "mu_tpu_shutdown";
    mu_membership j;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(need_outside(name));
    const mu_status status = mu__tpu_enter(cluster, name, &j);
    mu__tpu_left(&j);
    MU_TRY(status);
    mu__tpu_keep_topology(NULL);
    return mu__tpu_shutdown(mu__runtime())
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION, "%s: the TPU system is not running; mu_tpu_initialize starts it",
                           name);
}
