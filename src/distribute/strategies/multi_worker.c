// MultiWorkerMirroredStrategy: the same variables and steps on the replicas of several processes.
//
// Making it joins the job: all workers of the cluster connect (a second strategy reuses the connections), and workers
// on one host divide its cores. Then it makes two groups: one of all replicas for collectives in steps, one of all
// workers for everything outside of steps. After that it is a MirroredStrategy that has only some of the replicas. A
// cluster of one worker, or none, needs no network.
#include "distribute/strategies/membership.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "ops/onednn/onednn.h"

// ---- Who takes part -----------------------------------------------------------------------------

void mu__bootstrap_free(mu_bootstrap *r)
{
    for (int i = 0; r->names && i < r->n; i++)
        mu__free(r->names[i]);
    mu__free(r->names);
    mu__free(r->peers);
}

mu_status mu__bootstrap_job(const mu_cluster_spec *spec, const char *job, mu_bootstrap *r)
{
    const int n = mu__spec_find(spec, job) ? mu_cluster_spec_num_tasks(spec, job) : 0;
    for (int i = 0; i < n; i++, r->n++) {
        const int index = mu_cluster_spec_task_index(spec, job, i);
        r->names[r->n] = mu__sprintf("/job:%s/task:%d", job, index);
        if (!r->names[r->n])
            return MU_RESOURCE_EXHAUSTED;
        const char *address = mu_cluster_spec_task_address(spec, job, index);
        r->peers[r->n] = (mu_mesh_peer){.name = r->names[r->n], .address = address ? address : ""};
    }
    return mu_error_code();
}

mu_status mu__bootstrap_reserve(mu_bootstrap *r, int workers)
{
    r->names = mu__calloc((size_t)workers, sizeof *r->names);
    r->peers = mu__calloc((size_t)workers, sizeof *r->peers);
    return r->names && r->peers ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// The chief is worker 0; evaluators form a separate cluster.
static mu_status bootstrap_workers(const mu_cluster_spec *spec, const char *task_type, int workers, mu_bootstrap *r)
{
    MU_TRY(mu__bootstrap_reserve(r, workers));
    if (strcmp(task_type, "evaluator") == 0)
        return mu__bootstrap_job(spec, "evaluator", r);
    MU_TRY(mu__bootstrap_job(spec, "chief", r));
    return mu__bootstrap_job(spec, "worker", r);
}

// ---- Joining ------------------------------------------------------------------------------------

// Under mpirun no process knows an address. The first process chooses one and a key, and broadcasts them through MPI.
// The steps' collectives use MPI too, unless the options name another implementation.
static void choose_mpi(mu_membership *j)
{
    const bool no_address = j->bootstrap.peers[0].address[0] == '\0';
    if (j->options.implementation == MU_COMM_AUTO && (no_address || j->options.mpi_communicator))
        j->options.implementation = MU_COMM_MPI;
}

static mu_status bootstrap_through_mpi(const mu_membership *j, mu_mesh_peer *first, mu_mpi_bootstrap *found,
                                       mu_kept_port *kept, char **key)
{
    if (first->address[0] != '\0')
        return MU_OK;
    MU_TRY(mu__network_bootstrap(j->options.mpi_communicator, j->worker == 0, found, kept));
    first->address = found->address;
    if (*key)
        return MU_OK;
    *key = mu__strdup(found->key);
    return *key ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

void mu__arithmetic_text(char text[MU_ARITHMETIC_TEXT])
{
    dnnl_data_type_t type;
    const bool bf16 = mu__dnnl_type(MU_BF16, &type) && type == dnnl_bf16;
#if !MU_PER_ISA_X86
    static const char loops[] = "plain loops";
#elif defined(__clang__)
    static const char loops[] = "loops for this set by clang";
#else
    static const char loops[] = "loops for this set by gcc";
#endif
    snprintf(text, MU_ARITHMETIC_TEXT, "the instructions %s/%#x, products of bfloat16 in %s, %s", mu__kernels()->isa,
             (unsigned)mu__dnnl_isa(), bf16 ? "bfloat16" : "float32", loops);
}

static void write_greeting(const mu_membership *j, char *text, size_t bytes)
{
    char arithmetic[MU_ARITHMETIC_TEXT];
    const int n = snprintf(text, bytes, "muster %s, %s, %s, MUSTER_TF_COMPAT=%d", mu_version(), j->kind,
                           mu_communication_name(j->options.implementation), mu__setting_bool(MU_SETTING_TF_COMPAT));
    if (!j->options.deterministic)
        return;
    mu__arithmetic_text(arithmetic);
    snprintf(text + n, bytes - (size_t)n, ", deterministic with %s", arithmetic);
}

static mu_mesh *call_all(const mu_membership *j, const mu_mesh_peer *peers, const char *key)
{
    char greeting[400];
    write_greeting(j, greeting, sizeof greeting);
    return mu__mesh_join(&(mu_mesh_options){.rank = j->worker,
                                            .ranks = j->n_workers,
                                            .peers = peers,
                                            .greeting = greeting,
                                            .key = key,
                                            .plain = !mu__setting_bool(MU_SETTING_ENCRYPT)});
}

// Processes that may use the same cores divide them in the order of their ranks. A process whose cores differ from its
// neighbours' (muster launch, srun and mpirun pin processes) already has its share.
static mu_status divide_cores(mu_mesh *mesh)
{
    cpu_set_t own;
    mu_blocks blocks;
    int index = 0, count = 0;
    mu__device_cores(mu__runtime(), &own);
    MU_TRY(mu__mesh_exchange(mesh, "cores", &own, sizeof own, &blocks));
    for (int rank = 0; rank < blocks.n; rank++)
        if (mu__mesh_same_host(mesh, rank) && blocks.bytes[rank] == sizeof own &&
            memcmp(blocks.data[rank], &own, sizeof own) == 0) {
            index += rank < mu__mesh_rank(mesh);
            count++;
        }
    mu__blocks_free(&blocks);
    mu__device_share(mu__runtime(), index, count);
    return MU_OK;
}

static mu_mesh *join_job(void *arg)
{
    const mu_membership *j = arg;
    mu_mpi_bootstrap found;
    mu_kept_port kept = {.fd = -1};
    mu_mesh *mesh = NULL;
    char *key = NULL;
    mu_mesh_peer *peers = mu__calloc((size_t)j->n_workers, sizeof *peers);
    if (!peers || mu__mesh_key(&key) != MU_OK)
        goto out;
    memcpy(peers, j->bootstrap.peers, (size_t)j->n_workers * sizeof *peers);
    if (bootstrap_through_mpi(j, &peers[0], &found, &kept, &key) == MU_OK)
        mesh = call_all(j, peers, key);
    if (mesh && divide_cores(mesh) != MU_OK) {
        mu_release(mesh);
        mesh = NULL;
    }
out:
    if (kept.fd >= 0)
        mu__ports_give_back(&kept, 1);
    mu__free(key);
    mu__free(peers);
    return mesh;
}

// Values that all workers must have in common or agree on.
typedef struct tally {
    int32_t replicas, threads, all_threads;
} tally;

// `settings` names what decides how many replicas a worker has.
static mu_status check_tally(const mu_mesh *mesh, const mu_blocks *blocks, const char *settings, tally *least)
{
    for (int rank = 0; rank < blocks->n; rank++) {
        tally theirs;
        if (blocks->bytes[rank] != sizeof theirs)
            return mu__error(
                MU_DATA_LOSS,
                "%s sends %zu bytes about its replicas; %zu are expected: install the same version everywhere",
                mu__mesh_name(mesh, rank), blocks->bytes[rank], sizeof theirs);
        memcpy(&theirs, blocks->data[rank], sizeof theirs);
        if (rank == 0)
            *least = theirs;
        if (theirs.replicas != least->replicas)
            return mu__error(MU_FAILED_PRECONDITION,
                             "the processes do not fit together: %s has %d replicas per worker, %s has %d replicas per "
                             "worker; give all the same %s",
                             mu__mesh_name(mesh, 0), least->replicas, mu__mesh_name(mesh, rank), theirs.replicas,
                             settings);
        least->threads = MU_MIN(least->threads, theirs.threads);
        least->all_threads = MU_MIN(least->all_threads, theirs.all_threads);
    }
    return MU_OK;
}

// Sums in kernels may depend on the number of threads. If results must not, all replicas use the smallest number.
static mu_status agree_on_replicas(const mu_strategy *strategy, bool deterministic)
{
    mu_runtime *runtime = strategy->runtime;
    const tally own = {.replicas = strategy->n_local,
                       .threads = mu__device_least(runtime),
                       .all_threads = mu__runtime_threads(runtime)};
    tally least = own;
    mu_blocks blocks;
    MU_TRY(mu__mesh_exchange(strategy->mesh, "replicas", &own, sizeof own, &blocks));
    const char *settings = strategy->assignment ? ".device_assignment" : "MUSTER_CPU_DEVICES";
    const mu_status status = check_tally(strategy->mesh, &blocks, settings, &least);
    mu__blocks_free(&blocks);
    if (status == MU_OK && deterministic) {
        mu__device_limit(runtime, MU_MAX(least.threads, 1));
        mu__runtime_limit(runtime, MU_MAX(least.all_threads, 1));
    }
    return status;
}

// Whether XLA may reduce between the workers, inside of one program: if the user chose another implementation or a
// fixed order of sums, the host reduces.
static bool may_share_program(const mu_strategy *strategy, const mu_communication_options *options)
{
    const mu_communication how = options->implementation;
    return (how == MU_COMM_AUTO || how == MU_COMM_NCCL) && !options->deterministic &&
           mu__cross_device_default(strategy->cross_device);
}

// The hint NCCL is for what the devices do; the host has its own choice.
static mu_communication_options for_the_host(const mu_strategy *strategy, const mu_communication_options *options)
{
    mu_communication_options host = *options;
    if (strategy->world_ids && host.implementation == MU_COMM_NCCL)
        host.implementation = MU_COMM_AUTO;
    return host;
}

static mu_status join_groups(mu_strategy *strategy, const mu_communication_options *options)
{
    MU_TRY(mu__strategy_find_world(strategy, may_share_program(strategy, options)));
    const mu_communication_options host = for_the_host(strategy, options);
    mu_release(strategy->group); // the group of the local replicas only
    strategy->group = mu__group_join(strategy->mesh, strategy->n_local, "replicas", &host);
    strategy->workers = strategy->group ? mu__group_join(strategy->mesh, 1, "workers", &host) : NULL;
    if (strategy->workers && strategy->world_ids)
        strategy->agreements = mu__group_join(strategy->mesh, 1, "agreements", &host);
    return strategy->workers && (strategy->agreements || !strategy->world_ids) ? MU_OK : mu_error_code();
}

static mu_status make_groups(mu_strategy *strategy, const mu_communication_options *options)
{
    MU_TRY(agree_on_replicas(strategy, options->deterministic));
    const mu_status status = join_groups(strategy, options);
    mu__strategy_doing(strategy, "running the program", -1);
    if (status != MU_OK)
        mu__strategy_failed(strategy); // the others wait for something that this worker cannot make
    return status;
}

static mu_status read_cluster(mu_membership *j)
{
    MU_TRY(mu_cluster_check(j->cluster));
    mu_cluster_spec *spec = mu_cluster_get_spec(j->cluster);
    if (!spec || mu__spec_check_indices(spec) != MU_OK)
        return mu_error_code();
    j->n_workers = 1;
    if (mu_cluster_spec_job_count(spec) == 0)
        return MU_OK;
    const char *task_type = mu_cluster_task_type(j->cluster);
    const int task_id = mu_cluster_task_id(j->cluster);
    MU_TRY(mu_error_code());
    if (!task_type || task_id < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_multi_worker_mirrored_strategy: the cluster (from %s) does not say which of its tasks "
                         "this process is; give the type and the index of the task",
                         mu_cluster_source(j->cluster));
    j->n_workers = mu_cluster_worker_count(j->cluster);
    j->worker = mu_cluster_worker_index(j->cluster);
    if (j->n_workers < 1 || j->worker < 0)
        return mu_error_code();
    return bootstrap_workers(spec, task_type, j->n_workers, &j->bootstrap);
}

// Devices of a plugin that are part of a world of several processes are made after joining; before, the plugin is only
// opened. A GPU plugin is started for a moment: whether it works must be known before the others wait for its devices.
static mu_status check_devices(mu_membership *j)
{
    if (j->n_workers > 1 && mu__device_preferred())
        return mu__device_plugin_opens(mu__runtime(), mu__device_preferred());
    j->gpus = j->n_workers > 1 && mu__device_gpus_start(mu__runtime());
    return mu__device_count(mu__runtime()) < 1 ? mu_error_code() : MU_OK;
}

mu_status mu__membership_enter(mu_membership *j)
{
    if (j->n_workers < 2)
        return MU_OK;
    choose_mpi(j);
    j->job = mu__job_of(mu__runtime());
    j->mesh =
        j->job ? mu__job_enter(j->job, j->function, j->worker, j->n_workers, j->bootstrap.peers, join_job, j) : NULL;
    return j->mesh ? MU_OK : mu_error_code();
}

void mu__membership_leave(mu_membership *j)
{
    if (j->mesh)
        mu__job_leave(j->job);
    mu_release(j->job);
    j->job = NULL;
    j->mesh = NULL;
}

// Checks this process's own settings before it connects to the others.
static mu_status enter_job(mu_membership *j)
{
    MU_TRY(read_cluster(j));
    MU_TRY(check_devices(j));
    return mu__membership_enter(j);
}

// ---- Making it ----------------------------------------------------------------------------------

// All workers compute on GPUs, or none: a reduction is of devices of one kind.
static mu_status agree_on_gpus(mu_membership *j)
{
    const uint8_t own = j->gpus;
    mu_blocks blocks;
    int n = 0, without = -1;
    MU_TRY(mu__mesh_exchange(j->mesh, "whether there are GPUs", &own, sizeof own, &blocks));
    for (int rank = 0; rank < blocks.n; rank++) {
        const bool has = blocks.bytes[rank] == sizeof own && *(const uint8_t *)blocks.data[rank] == 1;
        n += has;
        without = has ? without : rank;
    }
    mu__blocks_free(&blocks);
    j->gpus = n == j->n_workers;
    if (n > 0 && !j->gpus && j->worker == 0)
        mu__log(MU_LOG_WARNING, "%d of %d workers have GPUs that Muster can use, but %s has none: all use their CPUs",
                n, j->n_workers, mu__mesh_name(j->mesh, without));
    return MU_OK;
}

// This worker's devices, and their number; 0 after an error.
static int own_devices(const mu_membership *j, mu_device **first)
{
    if (j->mesh && !j->gpus && !mu__device_preferred()) {
        *first = mu__device_at(mu__runtime(), 0);
        return *first ? mu__device_count(mu__runtime()) : 0;
    }
    const int n = mu__device_defaults(mu__runtime(), first);
    if (n < 1 || !j->mesh || !j->gpus || strncmp((*first)->name, "GPU:", 4) == 0)
        return n;
    (void)mu__device_by_name(mu__runtime(), "GPU:0"); // says why there is none in the world of all workers
    return 0;
}

static mu_strategy *on_all_devices(const mu_strategy_ops *ops, const mu_membership *j)
{
    mu_device *devices[MU_MAX_REPLICAS], *first = NULL;
    const int n = MU_MIN(own_devices(j, &first), MU_MAX_REPLICAS);
    for (int i = 0; i < n; i++)
        devices[i] = &first[i];
    return n > 0 ? mu__strategy_new(ops, n, devices) : NULL;
}

void mu__membership_tell(mu_mesh *mesh)
{
    mu_error_value cause;
    mu__error_move(&cause);
    mu__mesh_fail(mesh, &cause);
    mu__error_raise(&cause);
}

mu_strategy *mu__membership_take_part(mu_membership *j, mu_strategy *strategy)
{
    if (!strategy) {
        if (j->mesh && mu__pending())
            mu__membership_tell(j->mesh);
        mu__membership_leave(j);
        return NULL;
    }
    strategy->job = j->job;
    strategy->mesh = j->mesh;
    strategy->cluster = mu_retain(j->cluster);
    strategy->progress_agreed = !j->mesh;
    if (j->mesh)
        strategy->bytes_per_pack = MU_BUCKETS_CHOSEN;
    if (j->options.bytes_per_pack > 0)
        strategy->bytes_per_pack = (size_t)j->options.bytes_per_pack;
    strategy->n_workers = j->n_workers;
    strategy->worker = j->worker;
    strategy->n_replicas = j->n_workers * strategy->n_local;
    strategy->first_replica = j->worker * strategy->n_local;
    if (!j->mesh || make_groups(strategy, &j->options) == MU_OK)
        return strategy;
    mu_release(strategy);
    return NULL;
}

// Takes ownership of the job, on failure too.
static mu_strategy *make_strategy(mu_membership *j)
{
    if (j->mesh)
        mu__mesh_doing(j->mesh, "starting its devices", -1, NULL);
    mu_strategy *strategy = NULL;
    if (!j->mesh || agree_on_gpus(j) == MU_OK)
        strategy = on_all_devices(j->mesh ? &mu__multi_worker_ops : &mu__single_worker_ops, j);
    return mu__membership_take_part(j, strategy);
}

static mu_strategy *join_cluster(mu_membership *j)
{
    mu_strategy *strategy = NULL;
    if (enter_job(j) == MU_OK)
        strategy = make_strategy(j);
    else
        mu__membership_leave(j);
    mu__bootstrap_free(&j->bootstrap);
    return strategy;
}

mu_strategy *mu_multi_worker_mirrored_strategy_with(const mu_multi_worker_mirrored_strategy_args *given)
{
    static const char name[] = "mu_multi_worker_mirrored_strategy";
    mu_multi_worker_mirrored_strategy_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK)
        return NULL;
    mu_membership j = {.function = name,
                       .kind = mu__multi_worker_ops.name,
                       .cluster = args.cluster_resolver ? args.cluster_resolver : mu_cluster_from_environment()};
    if (!j.cluster || mu__communication_options_copy(&j.options, args.communication_options) != MU_OK)
        return NULL;
    if (args.communication != MU_COMM_AUTO)
        j.options.implementation = args.communication;
    if (mu_communication_options_check(&j.options) != MU_OK)
        return NULL;
    const bool sealed = !args.cluster_resolver;
    mu_strategy *strategy = !sealed || mu__cluster_seal() == MU_OK ? join_cluster(&j) : NULL;
    if (!strategy)
        return NULL;
    strategy->sealed = sealed;
    char price[MU_PRICE_BYTES];
    if (j.options.deterministic && strategy->group && strategy->worker == 0)
        mu__notice("deterministic: %s", mu__group_price(strategy->group, price));
    return mu__give(mu__strategy_announce(strategy));
}

// ---- Asking it ----------------------------------------------------------------------------------

mu_cluster *mu_strategy_cluster_resolver(const mu_strategy *strategy) { return strategy ? strategy->cluster : NULL; }

int mu_strategy_worker_count(const mu_strategy *strategy) { return strategy ? strategy->n_workers : 1; }

int mu_strategy_worker_index(const mu_strategy *strategy) { return strategy ? strategy->worker : 0; }

bool mu_strategy_should_checkpoint(const mu_strategy *strategy) { return !strategy || strategy->worker == 0; }
