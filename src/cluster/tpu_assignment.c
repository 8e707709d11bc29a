// TPU device assignments: logical cores of replicas to positions of the mesh, in TensorFlow's order.
#include "cluster/tpu_topology.h"

#include <math.h>

struct mu_tpu_device_assignment {
    mu_object object;
    mu_tpu_topology *topology; // retained
    int n_replicas, n_cores;
    int *cores; // [n_replicas, n_cores, 4]
};

static void assignment_destroy(void *object)
{
    mu_tpu_device_assignment *assignment = object;
    mu_release(assignment->topology);
    mu__free(assignment->cores);
}

static mu_type assignment_type = {.name = "TPU device assignment", .destroy = assignment_destroy};

static mu_tpu_device_assignment *new_assignment(mu_tpu_topology *topology, int n_replicas, int n_cores)
{
    mu_tpu_device_assignment *a = mu__new(&assignment_type, sizeof *a);
    if (!a)
        return NULL;
    a->topology = mu_retain(topology);
    a->n_replicas = n_replicas;
    a->n_cores = n_cores;
    a->cores = mu__calloc((size_t)n_replicas * (size_t)n_cores, MU_TPU_RANK * sizeof *a->cores);
    if (a->cores)
        return a;
    mu_release(a);
    return NULL;
}

static int *core_of(const mu_tpu_device_assignment *a, int replica, int core)
{
    return a->cores + ((size_t)replica * (size_t)a->n_cores + (size_t)core) * MU_TPU_RANK;
}

// ---- Checks -------------------------------------------------------------------------------------

typedef struct plan {
    const mu_tpu_topology *topology;
    int shape[MU_TPU_RANK], stride[MU_TPU_RANK], footprint[MU_TPU_RANK];
    int capacity[MU_TPU_RANK]; // replicas that fit along an axis
    int grid[MU_TPU_RANK];     // replicas along an axis
    int n_replicas, n_cores, most;
    mu_tpu_device_order order;
} plan;

static mu_status take_axes(const int *given, const char *field, int *out)
{
    const bool absent = !given[0] && !given[1] && !given[2] && !given[3];
    for (int a = 0; a < MU_TPU_RANK; a++) {
        out[a] = absent ? 1 : given[a];
        if (out[a] < 1)
            return mu__error(MU_INVALID_ARGUMENT, "mu_tpu_device_assignment_build: .%s[%d] is %d; it must be 1 or more",
                             field, a, out[a]);
    }
    return MU_OK;
}

static mu_status check_fit(plan *p)
{
    p->most = p->n_cores = 1;
    for (int a = 0; a < MU_TPU_RANK; a++) {
        const int mesh = p->topology->mesh[a];
        if ((int64_t)p->shape[a] * p->stride[a] > mesh)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_tpu_device_assignment_build: a computation of %d cores with stride %d along axis %d "
                             "does not fit a mesh of %d",
                             p->shape[a], p->stride[a], a, mesh);
        p->footprint[a] = p->shape[a] * p->stride[a];
        p->capacity[a] = mesh / p->footprint[a] * p->stride[a];
        p->most *= p->capacity[a];
        p->n_cores *= p->shape[a];
    }
    if (p->n_replicas < 0 || p->n_replicas > p->most)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tpu_device_assignment_build: %d replicas; the mesh has room for 0 to %d", p->n_replicas,
                         p->most);
    return MU_OK;
}

static mu_status read_plan(const mu_tpu_device_assignment_args *args, plan *p)
{
    *p = (plan){.topology = args->topology,
                .n_replicas = args->num_replicas == 0 ? 1 : args->num_replicas,
                .order = args->device_order_mode};
    MU_TRY(mu__need(args->topology, "mu_tpu_device_assignment_build: the topology"));
    MU_TRY(take_axes(args->computation_shape, "computation_shape", p->shape));
    MU_TRY(take_axes(args->computation_stride, "computation_stride", p->stride));
    if ((unsigned)p->order > MU_TPU_DEVICE_ORDER_MESH)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tpu_device_assignment_build: .device_order_mode %d is none of AUTO 0, RING 1, MESH 2",
                         (int)p->order);
    return check_fit(p);
}

static bool has_strides(const plan *p) { return p->stride[0] * p->stride[1] * p->stride[2] * p->stride[3] != 1; }

// ---- Layouts ------------------------------------------------------------------------------------

// Chooses the grid of replicas: as near a cube as the axes allow, beginning with the axis that holds the fewest. Of
// equal axes the cores come first, then x, y and z.
static void choose_grid(plan *p)
{
    static const int preferred[MU_TPU_RANK] = {3, 0, 1, 2};
    bool done[MU_TPU_RANK] = {false};
    int remaining = p->n_replicas;
    for (int left = MU_TPU_RANK; left > 0; left--) {
        int axis = -1;
        for (int i = 0; i < MU_TPU_RANK; i++)
            if (!done[preferred[i]] && (axis < 0 || p->capacity[preferred[i]] < p->capacity[axis]))
                axis = preferred[i];
        const int target = (int)ceil(pow(remaining, 1.0 / left));
        done[axis] = true;
        p->grid[axis] = MU_MIN(target, p->capacity[axis]);
        remaining = (remaining + p->grid[axis] - 1) / p->grid[axis];
    }
}

static mu_status ring_layout(const plan *p, mu_tpu_device_assignment *a)
{
    const int per_chip = p->topology->mesh[3];
    int *inner = mu__calloc((size_t)p->n_cores, 3 * sizeof *inner),
        *outer = mu__calloc((size_t)p->n_replicas, 3 * sizeof *outer);
    if (inner && outer) {
        mu__tpu_ring(p->shape[0], p->shape[1], p->shape[2], inner);
        mu__tpu_ring(p->grid[0], p->grid[1], p->grid[2], outer);
    }
    for (int r = 0; inner && outer && r < p->n_replicas; r++)
        for (int c = 0; c < p->n_cores; c++) {
            int *core = core_of(a, r, c);
            for (int axis = 0; axis < 3; axis++)
                core[axis] = outer[3 * r + axis] * p->shape[axis] + inner[3 * (c / per_chip) + axis];
            core[3] = c % per_chip;
        }
    const mu_status status = inner && outer ? MU_OK : MU_RESOURCE_EXHAUSTED;
    mu__free(inner);
    mu__free(outer);
    return status;
}

// Where a replica begins: its number is decomposed along the grid, cores first.
static void begin_of(const plan *p, int replica, int *begin)
{
    static const int order[MU_TPU_RANK] = {3, 0, 1, 2};
    for (int i = 0; i < MU_TPU_RANK; i++) {
        const int axis = order[i], position = replica % p->grid[axis];
        replica /= p->grid[axis];
        begin[axis] = position / p->stride[axis] * p->footprint[axis] + position % p->stride[axis];
    }
}

static void mesh_layout(const plan *p, mu_tpu_device_assignment *a)
{
    int begin[MU_TPU_RANK];
    for (int r = 0; r < p->n_replicas; r++) {
        begin_of(p, r, begin);
        for (int c = 0; c < p->n_cores; c++) {
            int *core = core_of(a, r, c), rest = c;
            for (int axis = MU_TPU_RANK - 1; axis >= 0; axis--) {
                core[axis] = begin[axis] + rest % p->shape[axis] * p->stride[axis];
                rest /= p->shape[axis];
            }
        }
    }
}

static mu_status task_layout(const plan *p, mu_tpu_device_assignment *a)
{
    const int n = p->n_replicas * p->n_cores, have = p->topology->n_tasks * p->topology->per_task;
    if (has_strides(p))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tpu_device_assignment_build: %d devices of the mesh are missing; then every "
                         ".computation_stride must be 1",
                         p->topology->n_missing);
    if (n > have)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tpu_device_assignment_build: %d replicas of %d cores need %d devices; there are %d",
                         p->n_replicas, p->n_cores, n, have);
    memcpy(a->cores, p->topology->coordinates, (size_t)n * MU_TPU_RANK * sizeof *a->cores);
    return MU_OK;
}

static mu_status lay_out(plan *p, mu_tpu_device_assignment *a)
{
    if (p->topology->n_missing > 0)
        return task_layout(p, a);
    const bool can_ring = p->shape[3] == p->topology->mesh[3] && !has_strides(p) && p->n_replicas == p->most;
    if (p->order == MU_TPU_DEVICE_ORDER_RING && !can_ring)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tpu_device_assignment_build: the order RING needs a computation of all cores of its "
                         "chips, without strides, and replicas that fill the mesh (%d)",
                         p->most);
    choose_grid(p);
    if (can_ring && p->order != MU_TPU_DEVICE_ORDER_MESH)
        return ring_layout(p, a);
    mesh_layout(p, a);
    return MU_OK;
}

mu_tpu_device_assignment *mu_tpu_device_assignment_build_with(const mu_tpu_device_assignment_args *given)
{
    mu_tpu_device_assignment_args args;
    plan p;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_tpu_device_assignment_build") != MU_OK ||
        read_plan(&args, &p) != MU_OK)
        return NULL;
    mu_tpu_device_assignment *a = new_assignment(args.topology, p.n_replicas, p.n_cores);
    if (a && lay_out(&p, a) == MU_OK)
        return mu__give(a);
    mu_release(a);
    return NULL;
}

// ---- As listed ----------------------------------------------------------------------------------

static mu_status check_core(const mu_tpu_device_assignment *a, int i)
{
    const int *at = a->cores + (size_t)i * MU_TPU_RANK;
    if (!mu__tpu_inside(a->topology, at) || a->topology->device[mu__tpu_position(a->topology, at)] < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tpu_device_assignment_new: core %d of replica %d is at [%d, %d, %d, %d], where the "
                         "topology has no device",
                         i % a->n_cores, i / a->n_cores, at[0], at[1], at[2], at[3]);
    for (int k = 0; k < i; k++)
        if (memcmp(a->cores + (size_t)k * MU_TPU_RANK, at, MU_TPU_RANK * sizeof *at) == 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_tpu_device_assignment_new: the device at [%d, %d, %d, %d] is assigned twice", at[0],
                             at[1], at[2], at[3]);
    return MU_OK;
}

mu_tpu_device_assignment *mu_tpu_device_assignment_new(mu_tpu_topology *topology, int replicas, int cores_per_replica,
                                                       const int *core_assignment)
{
    if (mu__pending() || mu__need(topology, "mu_tpu_device_assignment_new: the topology") != MU_OK ||
        mu__need(core_assignment, "mu_tpu_device_assignment_new: the list of cores") != MU_OK)
        return NULL;
    if (replicas < 1 || cores_per_replica < 1 || replicas > topology->n_positions / cores_per_replica) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tpu_device_assignment_new: %d replicas of %d cores; both must be 1 or more, and the mesh has %d "
                  "positions",
                  replicas, cores_per_replica, topology->n_positions);
        return NULL;
    }
    mu_tpu_device_assignment *a = new_assignment(topology, replicas, cores_per_replica);
    const int n = replicas * cores_per_replica;
    if (!a)
        return NULL;
    memcpy(a->cores, core_assignment, (size_t)n * MU_TPU_RANK * sizeof *a->cores);
    for (int i = 0; i < n; i++)
        if (check_core(a, i) != MU_OK) {
            mu_release(a);
            return NULL;
        }
    return mu__give(a);
}

// ---- By tasks -----------------------------------------------------------------------------------

// The task of a replica; -1 with an error if its cores are on several.
static int task_of(const mu_tpu_device_assignment *a, int replica)
{
    const int task = mu_tpu_topology_task(a->topology, core_of(a, replica, 0));
    for (int c = 1; c < a->n_cores; c++) {
        const int other = mu_tpu_topology_task(a->topology, core_of(a, replica, c));
        if (other == task)
            continue;
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tpu_strategy: replica %d has its logical core 0 on task %d and core %d on task %d; all cores of "
                  "a replica must be on one host",
                  replica, task, c, other);
        return -1;
    }
    return task;
}

static mu_status sort_by_task(const mu_tpu_device_assignment *a, int tasks, mu_tpu_device_assignment *out)
{
    const int each = a->n_replicas / tasks;
    int n = 0;
    for (int task = 0; task < tasks; task++) {
        const int begin = n;
        for (int r = 0; r < a->n_replicas; r++) {
            const int own = task_of(a, r);
            if (own < 0)
                return mu_error_code();
            if (own == task)
                memcpy(core_of(out, n++, 0), core_of(a, r, 0), (size_t)a->n_cores * MU_TPU_RANK * sizeof *a->cores);
        }
        if (n - begin != each)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_tpu_strategy: %d of the assignment's %d replicas are on task %d; each of the %d hosts "
                             "must have as many",
                             n - begin, a->n_replicas, task, tasks);
    }
    return MU_OK;
}

mu_tpu_device_assignment *mu__tpu_by_task(const mu_tpu_device_assignment *a, int tasks)
{
    if (a->topology->n_tasks != tasks) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tpu_strategy: the assignment is of a topology of %d tasks, and the TPU has %d hosts; make it "
                  "from the topology that mu_tpu_initialize returned",
                  a->topology->n_tasks, tasks);
        return NULL;
    }
    mu_tpu_device_assignment *sorted = new_assignment(a->topology, a->n_replicas, a->n_cores);
    if (sorted && a->n_replicas % tasks != 0)
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tpu_strategy: the assignment has %d replicas for %d hosts; each must have as many", a->n_replicas,
                  tasks);
    if (sorted && !mu__pending() && sort_by_task(a, tasks, sorted) == MU_OK)
        return sorted;
    mu_release(sorted);
    return NULL;
}

// ---- Queries ------------------------------------------------------------------------------------

int mu_tpu_device_assignment_num_replicas(const mu_tpu_device_assignment *assignment)
{
    return assignment ? assignment->n_replicas : 0;
}

int mu_tpu_device_assignment_num_cores_per_replica(const mu_tpu_device_assignment *assignment)
{
    return assignment ? assignment->n_cores : 0;
}

static const int *find_core(const mu_tpu_device_assignment *a, int replica, int core)
{
    if (mu__need(a, "TPU device assignment: the assignment") != MU_OK)
        return NULL;
    if (replica >= 0 && replica < a->n_replicas && core >= 0 && core < a->n_cores)
        return core_of(a, replica, core);
    mu__error(MU_OUT_OF_RANGE, "TPU device assignment: core %d of replica %d; there are %d replicas of %d cores", core,
              replica, a->n_replicas, a->n_cores);
    return NULL;
}

mu_status mu_tpu_device_assignment_coordinates(const mu_tpu_device_assignment *assignment, int replica, int core,
                                               int coordinates[MU_TPU_RANK])
{
    const int *at = find_core(assignment, replica, core);
    MU_TRY(mu__need(coordinates, "mu_tpu_device_assignment_coordinates: the array of coordinates"));
    if (!at)
        return mu_error_code();
    memcpy(coordinates, at, MU_TPU_RANK * sizeof *coordinates);
    return MU_OK;
}

int mu_tpu_device_assignment_tpu_ordinal(const mu_tpu_device_assignment *assignment, int replica, int core)
{
    const int *at = find_core(assignment, replica, core);
    return at ? mu_tpu_topology_device(assignment->topology, at) : -1;
}

const char *mu_tpu_device_assignment_tpu_device(const mu_tpu_device_assignment *assignment, int replica, int core,
                                                const char *job)
{
    const int *at = find_core(assignment, replica, core);
    return at ? mu_tpu_topology_tpu_name(assignment->topology, at, job) : NULL;
}

const char *mu_tpu_device_assignment_host_device(const mu_tpu_device_assignment *assignment, int replica, int core,
                                                 const char *job)
{
    const int *at = find_core(assignment, replica, core);
    return at ? mu_tpu_topology_cpu_name(assignment->topology, at, job) : NULL;
}

int mu_tpu_device_assignment_lookup_replicas(const mu_tpu_device_assignment *assignment, int task, int core,
                                             int *replicas, int capacity)
{
    int n = 0;
    if (mu__need(assignment, "mu_tpu_device_assignment_lookup_replicas: the assignment") != MU_OK)
        return -1;
    for (int r = 0; core >= 0 && core < assignment->n_cores && r < assignment->n_replicas; r++) {
        if (mu_tpu_topology_task(assignment->topology, core_of(assignment, r, core)) != task)
            continue;
        if (n < capacity && replicas)
            replicas[n] = r;
        n++;
    }
    if (n > 0)
        return n;
    mu__error(MU_NOT_FOUND, "mu_tpu_device_assignment_lookup_replicas: no replica has its logical core %d on task %d",
              core, task);
    return -1;
}
