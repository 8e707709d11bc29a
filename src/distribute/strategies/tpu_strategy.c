// TPUStrategy: mirrored replicas on the cores of the TPU system, which run compiled functions only.
//
// Its slots are those of mirrored replicas (strategy_kinds.c) except for callbacks. A strategy belongs to the life of
// the TPU system in which it was made; after another initialisation it refuses every use. References: TensorFlow's
// tpu_strategy.py and device_assignment.py.
#include "cluster/tpu_topology.h"
#include "distribute/run/replica_run.h"
#include "distribute/strategies/tpu.h"
#include "ops/array/sharding.h"

// ---- Making it ----------------------------------------------------------------------------------

static mu_device *assigned_device(const mu_tpu_device_assignment *assignment, int replica, int logical)
{
    mu_runtime *runtime = mu__runtime();
    const int core = mu_tpu_device_assignment_tpu_ordinal(assignment, replica, logical);
    mu_device *device = mu__tpu_core(runtime, core);
    if (!device && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tpu_strategy: the assignment puts replica %d on core %d, but the TPU has %d cores; make the "
                  "assignment from the topology that mu_tpu_initialize returned",
                  replica, core, mu__tpu_core_count(runtime));
    return device;
}

// The device of each replica of this host, which has its variables: the first of its logical cores.
static int assigned_devices(const mu_tpu_device_assignment *assignment, const mu_membership *j, mu_device **devices)
{
    const int n = mu_tpu_device_assignment_num_replicas(assignment) / j->n_workers;
    if (n > MU_MAX_REPLICAS) {
        mu__error(MU_INVALID_ARGUMENT, "mu_tpu_strategy: %d replicas on one host; at most %d", n, MU_MAX_REPLICAS);
        return -1;
    }
    for (int i = 0; i < n; i++)
        if (!(devices[i] = assigned_device(assignment, j->worker * n + i, 0)))
            return -1;
    return n;
}

// All logical cores of this host's replicas, for programs that are divided among them.
static mu_status assign_cores(mu_strategy *strategy, const mu_membership *j)
{
    const int n = mu_tpu_device_assignment_num_cores_per_replica(strategy->assignment);
    const int first = j->worker * strategy->n_local;
    if (n < 2)
        return MU_OK;
    strategy->cores = mu__calloc((size_t)n * (size_t)strategy->n_local, sizeof(mu_device *));
    if (!strategy->cores)
        return MU_RESOURCE_EXHAUSTED;
    strategy->n_cores = n;
    for (int i = 0; i < n * strategy->n_local; i++)
        if (!(strategy->cores[i] = assigned_device(strategy->assignment, first + i / n, i % n)))
            return mu_error_code();
    return MU_OK;
}

// This host's replicas of the assignment.
static mu_strategy *on_own_cores(const mu_tpu_strategy_args *args, mu_tpu_device_assignment *assignment,
                                 const mu_membership *j)
{
    mu_device *devices[MU_MAX_REPLICAS];
    const int n = assigned_devices(assignment, j, devices);
    mu_strategy *strategy = n > 0 ? mu__strategy_new(j->mesh ? &mu__tpu_workers_ops : &mu__tpu_ops, n, devices) : NULL;
    if (!strategy)
        return NULL;
    strategy->assignment = mu_retain(assignment);
    strategy->spmd = args->use_spmd_for_xla_partitioning;
    strategy->tpu_life = mu__tpu_life(strategy->runtime);
    if (assign_cores(strategy, j) == MU_OK)
        return strategy;
    mu_release(strategy);
    return NULL;
}

// Replicas are numbered by the hosts that they are on, in the assignment's order on each. Owned.
static mu_tpu_device_assignment *assignment_for(const mu_tpu_strategy_args *args, const mu_membership *j)
{
    mu_tpu_topology *topology = j->mesh ? mu__tpu_topology() : NULL;
    mu_tpu_device_assignment *given = args->device_assignment, *assignment = NULL;
    if (j->mesh && !topology)
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_tpu_strategy: the TPU system is not that of the %d hosts; call mu_tpu_initialize(resolver) on "
                  "each of them first",
                  j->n_workers);
    else if (!given)
        assignment = mu__tpu_core_by_core(topology);
    else
        assignment = j->mesh ? mu__tpu_by_task(given, j->n_workers) : mu_retain(given);
    mu_release(topology);
    return assignment;
}

static mu_strategy *make_own(const mu_tpu_strategy_args *args, const mu_membership *j)
{
    if (mu__tpu_life(mu__runtime()) == 0) {
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_tpu_strategy: the TPU system is not initialised; call mu_tpu_initialize(resolver) first, once "
                  "and before anything is made on the TPU");
        return NULL;
    }
    mu_tpu_device_assignment *assignment = assignment_for(args, j);
    mu_strategy *strategy = assignment ? on_own_cores(args, assignment, j) : NULL;
    mu_release(assignment);
    return strategy;
}

// What a host sends the others about its part of the strategy; if it has none, its error's message follows.
typedef struct part_status {
    int32_t code; // MU_OK: it has made its part
    char message[700];
} part_status;

static mu_status check_parts(const mu_mesh *mesh, const mu_blocks *blocks)
{
    for (int rank = 0; rank < blocks->n; rank++) {
        part_status theirs;
        if (blocks->bytes[rank] != sizeof theirs)
            return mu__error(MU_DATA_LOSS,
                             "%s does not describe its part of the TPUStrategy; install the same version everywhere",
                             mu__mesh_name(mesh, rank));
        memcpy(&theirs, blocks->data[rank], sizeof theirs);
        const bool known = theirs.code > MU_OK && theirs.code <= MU_UNAUTHENTICATED;
        if (theirs.code != MU_OK)
            return mu__error(known ? (mu_status)theirs.code : MU_UNKNOWN_ERROR,
                             "mu_tpu_strategy: %s cannot make its part: %.*s", mu__mesh_name(mesh, rank),
                             (int)sizeof theirs.message, theirs.message);
    }
    return MU_OK;
}

// All hosts fail or none: the others would wait for one that had left without a word. The job stays.
static mu_status agree_on_parts(mu_mesh *mesh, bool made)
{
    mu_error_value own, others;
    mu_blocks blocks = {0};
    mu__error_move(&own);
    part_status mine = {.code = made ? MU_OK : own.code != MU_OK ? (int32_t)own.code : MU_RESOURCE_EXHAUSTED};
    snprintf(mine.message, sizeof mine.message, "%.*s", (int)sizeof mine.message - 1, made ? "" : own.message);
    mu_status status = mu__mesh_exchange(mesh, "the parts of a TPUStrategy", &mine, sizeof mine, &blocks);
    if (status == MU_OK && made)
        status = check_parts(mesh, &blocks);
    mu__blocks_free(&blocks);
    if (made)
        return status;
    mu__error_move(&others); // this host's own error says more
    mu__error_raise(&own);
    return (mu_status)mine.code;
}

static mu_strategy *make(const mu_tpu_strategy_args *args, mu_cluster *cluster, mu_membership *j)
{
    mu_strategy *strategy = make_own(args, j);
    if (j->mesh && agree_on_parts(j->mesh, strategy != NULL) == MU_OK)
        return mu__membership_take_part(j, strategy);
    if (strategy && !j->mesh) {
        strategy->cluster = mu_retain(cluster);
        return strategy;
    }
    mu_release(strategy);
    mu__membership_leave(j);
    return NULL;
}

mu_strategy *mu_tpu_strategy_with(const mu_tpu_strategy_args *given)
{
    static const char name[] = "mu_tpu_strategy";
    mu_tpu_strategy_args args;
    mu_membership j;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK)
        return NULL;
    mu_cluster *connected = args.cluster_resolver ? NULL : mu__tpu_connected();
    mu_cluster *cluster = args.cluster_resolver ? args.cluster_resolver
                          : connected           ? connected
                                                : mu_tpu_cluster_resolver(.tpu = "");
    if (!cluster)
        return NULL;
    mu_strategy *strategy = NULL;
    if (mu__tpu_enter(cluster, name, &j) == MU_OK)
        strategy = make(&args, cluster, &j);
    else
        mu__membership_leave(&j);
    mu__bootstrap_free(&j.bootstrap);
    return mu__give(mu__strategy_announce(strategy));
}

// ---- Slots --------------------------------------------------------------------------------------

mu_status mu__tpu_usable(const mu_strategy *strategy)
{
    if (mu__tpu_life(strategy->runtime) == strategy->tpu_life)
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "this TPUStrategy and its variables were lost when the TPU system was %s; make the strategy and "
                     "the variables again, and restore a checkpoint",
                     mu__tpu_life(strategy->runtime) == 0 ? "shut down" : "initialised again");
}

const char *mu__tpu_device_name(const mu_strategy *strategy, int i)
{
    const mu_tpu_device_assignment *assignment = strategy->assignment;
    if (!strategy->mesh)
        return mu_tpu_device_assignment_tpu_device(assignment, i, 0, "localhost");
    char *name = mu__sprintf("%s/device:TPU:%d", mu__mesh_name(strategy->mesh, strategy->worker),
                             mu_tpu_device_assignment_tpu_ordinal(assignment, strategy->first_replica + i, 0));
    const char *given = mu__text_give(name);
    mu__free(name);
    return given;
}

mu_value *mu__tpu_run_callback(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments)
{
    (void)strategy, (void)fn, (void)arg, (void)arguments;
    mu__error(MU_UNIMPLEMENTED, "mu_run_callback: TPUStrategy runs compiled functions only; make one of the callback "
                                "with mu_function_new, and give it to mu_run");
    return NULL;
}

// ---- Options of a run ---------------------------------------------------------------------------

mu_value *mu_run_with_options(mu_strategy *strategy, mu_function *function, mu_value *arguments,
                              const mu_run_options *given)
{
    static const char name[] = "mu_run_with_options";
    mu_run_options options = {0};
    if (mu__pending() || (given && mu__args_copy(&options, sizeof options, given, name) != MU_OK) ||
        mu__need_value(arguments, name) != MU_OK)
        return NULL;
    const bool equal = given && MU_GIVEN(&options, enable_dynamic_batch_size) && !options.enable_dynamic_batch_size;
    return equal ? mu__run_equal(strategy, function, arguments) : mu_run(strategy, function, arguments);
}

// ---- Logical devices ----------------------------------------------------------------------------

// The number of logical cores of each replica; 0 with an error for another kind of strategy.
static int cores_of(mu_strategy *strategy, mu_tensor *tensor, const char *function)
{
    if (mu__pending())
        return 0;
    if (strategy && strategy->assignment && tensor)
        return mu_tpu_device_assignment_num_cores_per_replica(strategy->assignment);
    if (strategy && strategy->assignment)
        mu__error(MU_INVALID_ARGUMENT, "%s: the tensor is NULL", function);
    else
        mu__error(MU_INVALID_ARGUMENT, "%s: %s has no logical devices; mu_tpu_strategy has", function,
                  mu_strategy_name(strategy));
    return 0;
}

static mu_tensor *annotate(const char *name, mu_tensor *tensor, const mu_sharding_attrs *sharding)
{
    if (mu__sharding_check(name, &tensor->shape, sharding) != MU_OK)
        return NULL;
    return mu__sharding_annotate(sharding, tensor);
}

mu_tensor *mu_assign_to_logical_device(mu_strategy *strategy, mu_tensor *tensor, int logical_device_id)
{
    static const char name[] = "mu_assign_to_logical_device";
    const int cores = cores_of(strategy, tensor, name);
    if (cores == 0)
        return NULL;
    if (strategy->spmd) {
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: with use_spmd_for_xla_partitioning every core runs the same program; use "
                  "mu_split_to_logical_devices or mu_replicate_to_logical_devices",
                  name);
        return NULL;
    }
    if (logical_device_id < 0) {
        mu__error(MU_INVALID_ARGUMENT, "%s: logical device %d; the replicas have devices 0 to %d", name,
                  logical_device_id, cores - 1);
        return NULL;
    }
    return annotate(name, tensor, &(mu_sharding_attrs){.device = logical_device_id, .devices = cores});
}

mu_tensor *mu_split_to_logical_devices(mu_strategy *strategy, mu_tensor *tensor, int n, const int *parts)
{
    static const char name[] = "mu_split_to_logical_devices";
    const int cores = cores_of(strategy, tensor, name);
    if (cores == 0)
        return NULL;
    if (n != tensor->shape.rank || (n > 0 && !parts)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: %d numbers of pieces for a tensor of rank %d; give one for each axis", name,
                  parts ? n : 0, tensor->shape.rank);
        return NULL;
    }
    mu_sharding_attrs sharding = {.pieces = {.n = n}, .device = MU_NO_DEVICE, .devices = cores};
    for (int i = 0; i < n; i++)
        sharding.pieces.at[i] = parts[i];
    if (n == 0 && cores > 1) {
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: 1 pieces in all, for %d logical devices of each replica; a scalar can only be replicated "
                  "(mu_replicate_to_logical_devices)",
                  name, cores);
        return NULL;
    }
    return annotate(name, tensor, &sharding);
}

mu_tensor *mu_replicate_to_logical_devices(mu_strategy *strategy, mu_tensor *tensor)
{
    static const char name[] = "mu_replicate_to_logical_devices";
    const int cores = cores_of(strategy, tensor, name);
    return cores > 0 ? annotate(name, tensor, &(mu_sharding_attrs){.device = MU_NO_DEVICE, .devices = cores}) : NULL;
}
