// TPU topologies: where in the mesh each device of each task is, and how devices are called.
#include "cluster/tpu_topology.h"

static void topology_destroy(void *object)
{
    mu_tpu_topology *topology = object;
    mu__free(topology->coordinates);
    mu__free(topology->device);
}

static mu_type topology_type = {.name = "TPU topology", .destroy = topology_destroy};

bool mu__tpu_inside(const mu_tpu_topology *topology, const int *coordinates)
{
    for (int a = 0; a < MU_TPU_RANK; a++)
        if (coordinates[a] < 0 || coordinates[a] >= topology->mesh[a])
            return false;
    return true;
}

int mu__tpu_position(const mu_tpu_topology *topology, const int *coordinates)
{
    int position = 0;
    for (int a = 0; a < MU_TPU_RANK; a++)
        position = position * topology->mesh[a] + coordinates[a];
    return position;
}

// ---- Making one ---------------------------------------------------------------------------------

static mu_status check_sizes(const mu_tpu_topology_args *args, int64_t *positions)
{
    *positions = 1;
    for (int a = 0; a < MU_TPU_RANK; a++) {
        if (args->mesh_shape[a] < 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_tpu_topology_new: .mesh_shape[%d] is %d; each axis has 1 or more positions", a,
                             args->mesh_shape[a]);
        *positions = args->mesh_shape[a] <= MU_MAX_TASKS ? *positions * args->mesh_shape[a] : INT64_MAX;
        if (*positions > MU_MAX_TASKS)
            return mu__error(MU_INVALID_ARGUMENT, "mu_tpu_topology_new: the mesh has more than %d positions",
                             MU_MAX_TASKS);
    }
    if (args->num_tasks < 1 || args->num_tpu_devices_per_task < 1 || args->num_tasks > MU_MAX_TASKS ||
        args->num_tpu_devices_per_task > MU_MAX_TASKS / args->num_tasks)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_tpu_topology_new: %d tasks with %d devices each; both must be 1 or more, and %d devices at most",
            args->num_tasks, args->num_tpu_devices_per_task, MU_MAX_TASKS);
    MU_TRY(mu__need(args->device_coordinates, "mu_tpu_topology_new: .device_coordinates"));
    return mu__args_length("mu_tpu_topology_new", "device_coordinates", args->device_coordinates,
                           args->n_device_coordinates, args->num_tasks * args->num_tpu_devices_per_task * MU_TPU_RANK,
                           "device's x, y, z and core");
}

static mu_status place_devices(mu_tpu_topology *t)
{
    for (int i = 0; i < t->n_positions; i++)
        t->device[i] = -1;
    for (int d = 0; d < t->n_tasks * t->per_task; d++) {
        const int *at = t->coordinates + (size_t)d * MU_TPU_RANK;
        if (!mu__tpu_inside(t, at))
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_tpu_topology_new: device %d of task %d is at [%d, %d, %d, %d], outside of the mesh "
                             "[%d, %d, %d, %d]",
                             d % t->per_task, d / t->per_task, at[0], at[1], at[2], at[3], t->mesh[0], t->mesh[1],
                             t->mesh[2], t->mesh[3]);
        t->device[mu__tpu_position(t, at)] = d;
    }
    for (int i = 0; i < t->n_positions; i++)
        t->n_missing += t->device[i] < 0;
    return MU_OK;
}

mu_tpu_topology *mu_tpu_topology_new_with(const mu_tpu_topology_args *given)
{
    mu_tpu_topology_args args;
    int64_t positions = 0;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_tpu_topology_new") != MU_OK ||
        check_sizes(&args, &positions) != MU_OK)
        return NULL;
    mu_tpu_topology *t = mu__new(&topology_type, sizeof *t);
    if (!t)
        return NULL;
    const size_t numbers = (size_t)args.num_tasks * (size_t)args.num_tpu_devices_per_task * MU_TPU_RANK;
    memcpy(t->mesh, args.mesh_shape, sizeof t->mesh);
    t->n_tasks = args.num_tasks;
    t->per_task = args.num_tpu_devices_per_task;
    t->n_positions = (int)positions;
    t->coordinates = mu__calloc(numbers, sizeof *t->coordinates);
    t->device = mu__calloc((size_t)positions, sizeof *t->device);
    if (t->coordinates)
        memcpy(t->coordinates, args.device_coordinates, numbers * sizeof *t->coordinates);
    if (t->coordinates && t->device && place_devices(t) == MU_OK)
        return mu__give(t);
    mu_release(t);
    return NULL;
}

// ---- Queries ------------------------------------------------------------------------------------

// The number of the device at a position, -1 if it is missing or an error is recorded.
static int device_at(const mu_tpu_topology *topology, const int *coordinates)
{
    if (mu__need(topology, "TPU topology: the topology") != MU_OK ||
        mu__need(coordinates, "TPU topology: the coordinates") != MU_OK)
        return -1;
    if (mu__tpu_inside(topology, coordinates))
        return topology->device[mu__tpu_position(topology, coordinates)];
    mu__error(MU_OUT_OF_RANGE, "TPU topology: [%d, %d, %d, %d] is outside of the mesh [%d, %d, %d, %d]", coordinates[0],
              coordinates[1], coordinates[2], coordinates[3], topology->mesh[0], topology->mesh[1], topology->mesh[2],
              topology->mesh[3]);
    return -1;
}

int mu_tpu_topology_task(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK])
{
    const int device = device_at(topology, coordinates);
    return device < 0 ? -1 : device / topology->per_task;
}

int mu_tpu_topology_device(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK])
{
    const int device = device_at(topology, coordinates);
    return device < 0 ? -1 : device % topology->per_task;
}

int mu_tpu_topology_missing(const mu_tpu_topology *topology) { return topology ? topology->n_missing : 0; }

static const char *name_at(const mu_tpu_topology *topology, const int *coordinates, const char *job, bool host)
{
    const int device = device_at(topology, coordinates);
    if (device < 0 && !mu__pending())
        mu__error(MU_NOT_FOUND, "TPU topology: the device at [%d, %d, %d, %d] is missing", coordinates[0],
                  coordinates[1], coordinates[2], coordinates[3]);
    if (device < 0)
        return NULL;
    char *name = mu__sprintf("%s%s/task:%d/device:%s:%d", job ? "/job:" : "", job ? job : "",
                             device / topology->per_task, host ? "CPU" : "TPU", host ? 0 : device % topology->per_task);
    const char *given = mu__text_give(name);
    mu__free(name);
    return given;
}

const char *mu_tpu_topology_tpu_name(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK],
                                     const char *job)
{
    return name_at(topology, coordinates, job, false);
}

const char *mu_tpu_topology_cpu_name(const mu_tpu_topology *topology, const int coordinates[MU_TPU_RANK],
                                     const char *job)
{
    return name_at(topology, coordinates, job, true);
}

// ---- Rings --------------------------------------------------------------------------------------

// A box of positions: the order of its axes (fast, then slow) is chosen by the caller.
typedef struct ring {
    int *out;
    int n;
} ring;

static void visit(ring *r, int x, int y, int z)
{
    int *at = r->out + (size_t)3 * (size_t)r->n++;
    at[0] = x;
    at[1] = y;
    at[2] = z;
}

// Place i of a flat ring over columns × rows, rows even: from the corner in pairs of rows, out and back, and home along
// column 0.
static void flat_position(int columns, int rows, int i, int *column, int *row)
{
    const int span = columns - 1, snake = span * rows;
    *column = *row = 0;
    if (i > snake) {
        *row = rows - (i - snake);
    } else if (i > 0) {
        *row = (i - 1) / span;
        *column = *row % 2 == 0 ? 1 + (i - 1) % span : span - (i - 1) % span;
    }
}

static void flat_ring(ring *r, int x, int y, int z)
{
    const int n = x * y * z;
    for (int i = 0; i < n; i++) {
        int column, row;
        flat_position(x > 1 ? x : y, z > 1 ? z : y, i, &column, &row);
        visit(r, x > 1 ? column : 0, x == 1 ? column : z == 1 ? row : 0, z > 1 ? row : 0);
    }
}

// Layers of flat rings, without their corners, each the other way round than the one below; home along the corners.
static void stacked_rings(ring *r, int x, int y, int z)
{
    const int n = x * y;
    visit(r, 0, 0, 0);
    for (int layer = 0; layer < z; layer++)
        for (int i = 1; i < n; i++) {
            int column, row;
            flat_position(x, y, layer % 2 == 0 ? i : n - i, &column, &row);
            visit(r, column, row, layer);
        }
    for (int layer = z - 1; layer > 0; layer--)
        visit(r, 0, 0, layer);
}

static bool is_odd(int size) { return size > 1 && size % 2 != 0; }

void mu__tpu_ring(int x, int y, int z, int *out)
{
    ring r = {.out = out};
    const int ones = (x == 1) + (y == 1) + (z == 1);
    if (ones < 2 && !is_odd(x) && !is_odd(y) && !is_odd(z)) {
        ones == 1 ? flat_ring(&r, x, y, z) : stacked_rings(&r, x, y, z);
        return;
    }
    for (int i = 0; i < x * y * z; i++)
        visit(&r, i % x, i / x % y, i / x / y);
}
