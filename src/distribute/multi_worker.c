// MultiWorkerMirroredStrategy: the same variables and steps on the replicas of several processes.
//
// Making it joins the job: a roll call of all workers of the cluster, then two groups, one of all replicas for the
// collectives of steps, one of all workers for what is put together outside of them. From there on it is a
// MirroredStrategy whose local replicas are some of more. A cluster of one worker, or none, needs no network.
#include "cluster/cluster.h"
#include "distribute/distribute.h"
#include "kernels/kernels.h"
#include "ops/onednn.h"

static const mu_strategy_ops multi_worker_ops = {.name = "MultiWorkerMirroredStrategy"};

// ---- Who takes part -----------------------------------------------------------------------------

typedef struct roll {
    int n;
    mu_mesh_peer *peers;   // in order of their worker index
    char **names;
} roll;

static void roll_free(roll *r)
{
    for (int i = 0; r->names && i < r->n; i++)
        mu__free(r->names[i]);
    mu__free(r->names);
    mu__free(r->peers);
}

static mu_status call_job(const mu_cluster_spec *spec, const char *job, roll *r)
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

// The chief is worker 0; evaluators are a cluster by themselves.
static mu_status call_roll(const mu_cluster_spec *spec, const char *task_type, int workers, roll *r)
{
    r->names = mu__calloc((size_t)workers, sizeof *r->names);
    r->peers = mu__calloc((size_t)workers, sizeof *r->peers);
    if (!r->names || !r->peers)
        return MU_RESOURCE_EXHAUSTED;
    if (strcmp(task_type, "evaluator") == 0)
        return call_job(spec, "evaluator", r);
    MU_TRY(call_job(spec, "chief", r));
    return call_job(spec, "worker", r);
}

// ---- Joining ------------------------------------------------------------------------------------

// Under mpirun nobody has an address. The first process makes one up, and a key, and MPI tells the others; the steps'
// collectives then go through MPI too, unless something else is asked for.
static mu_status meet_through_mpi(const mu_strategy *strategy, roll *r, mu_communication_options *options,
                                  mu_rendezvous *meeting, mu_kept_port *kept, char **key)
{
    const bool no_address = r->peers[0].address[0] == '\0';
    if (options->implementation == MU_COMM_AUTO && (no_address || options->mpi_communicator))
        options->implementation = MU_COMM_MPI;
    if (!no_address)
        return MU_OK;
    MU_TRY(mu__network_rendezvous(options->mpi_communicator, strategy->worker == 0, meeting, kept));
    r->peers[0].address = meeting->address;
    if (*key)
        return MU_OK;
    *key = mu__strdup(meeting->key);
    return *key ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void give_back(mu_kept_port *kept)
{
    if (kept->fd >= 0)
        mu__ports_give_back(kept, 1);
}

static mu_status join_mesh(mu_strategy *strategy, roll *r, const mu_communication_options *given)
{
    mu_communication_options chosen = *given, *const options = &chosen;
    mu_rendezvous meeting;
    mu_kept_port kept = {.fd = -1};
    char greeting[240];
    char *key;
    MU_TRY(mu__mesh_key(&key));
    if (meet_through_mpi(strategy, r, options, &meeting, &kept, &key) != MU_OK) {
        give_back(&kept);
        mu__free(key);
        return mu_error_code();
    }
    int n = snprintf(greeting, sizeof greeting, "muster %s, %s, %d replicas per worker, %s, MUSTER_TF_COMPAT=%d",
                     mu_version(), strategy->ops->name, strategy->n_local,
                     mu_communication_name(options->implementation), mu__setting_bool(MU_SETTING_TF_COMPAT));
    // A kernel's sums may follow the threads and the instructions that it has.
    if (options->deterministic)
        snprintf(greeting + n, sizeof greeting - (size_t)n,
                 ", deterministic with %d threads per replica and the instructions %s/%#x",
                 strategy->devices[0]->team.n_threads, mu__kernels()->isa, (unsigned)mu__dnnl_isa());
    const mu_mesh_options mesh = {.rank = strategy->worker,
                                  .ranks = r->n,
                                  .peers = r->peers,
                                  .greeting = greeting,
                                  .key = key,
                                  .plain = !mu__setting_bool(MU_SETTING_ENCRYPT)};
    strategy->mesh = mu__mesh_join(&mesh);
    give_back(&kept);
    mu__free(key);
    if (!strategy->mesh)
        return mu_error_code();
    mu_release(strategy->group);  // of the local replicas alone
    strategy->group = mu__group_join(strategy->mesh, strategy->n_local, "replicas", options);
    strategy->workers = strategy->group ? mu__group_join(strategy->mesh, 1, "workers", options) : NULL;
    mu__strategy_doing(strategy, "running the program", -1);
    if (!strategy->workers)
        mu__strategy_failed(strategy);  // the others wait for what this one cannot make
    return strategy->workers ? MU_OK : mu_error_code();
}

static mu_status join_cluster(mu_strategy *strategy, mu_cluster *cluster, const mu_communication_options *options)
{
    roll r = {0};
    MU_TRY(mu_cluster_check(cluster));
    mu_cluster_spec *spec = mu_cluster_get_spec(cluster);
    if (!spec || mu__spec_check_indices(spec) != MU_OK)
        return mu_error_code();
    if (mu_cluster_spec_job_count(spec) == 0)
        return MU_OK;
    const char *task_type = mu_cluster_task_type(cluster);
    const int task_id = mu_cluster_task_id(cluster);
    MU_TRY(mu_error_code());
    if (!task_type || task_id < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_multi_worker_mirrored_strategy: the cluster (from %s) does not say which of its tasks "
                         "this process is; give the type and the index of the task",
                         mu_cluster_source(cluster));
    strategy->n_workers = mu_cluster_worker_count(cluster);
    strategy->worker = mu_cluster_worker_index(cluster);
    if (strategy->n_workers < 1 || strategy->worker < 0)
        return mu_error_code();
    strategy->n_replicas = strategy->n_workers * strategy->n_local;
    strategy->first_replica = strategy->worker * strategy->n_local;
    mu_status status = call_roll(spec, task_type, strategy->n_workers, &r);
    if (status == MU_OK && strategy->n_workers > 1)
        status = join_mesh(strategy, &r, options);
    roll_free(&r);
    return status;
}

// ---- Making it ----------------------------------------------------------------------------------

static mu_strategy *on_all_devices(void)
{
    mu_device *devices[MU_MAX_REPLICAS];
    const int n = MU_MIN(mu__device_count(mu__runtime()), MU_MAX_REPLICAS);
    for (int i = 0; i < n; i++)
        if (!(devices[i] = mu__device_at(mu__runtime(), i)))
            return NULL;
    return n > 0 ? mu__strategy_new(&multi_worker_ops, n, devices) : NULL;
}

mu_strategy *mu_multi_worker_mirrored_strategy_with(const mu_multi_worker_mirrored_strategy_args *given)
{
    mu_multi_worker_mirrored_strategy_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_multi_worker_mirrored_strategy") != MU_OK)
        return NULL;
    mu_communication_options options =
        args.communication_options ? *args.communication_options : (mu_communication_options){0};
    if (args.communication != MU_COMM_AUTO)
        options.implementation = args.communication;
    if (mu_communication_options_check(&options) != MU_OK)
        return NULL;
    mu_cluster *cluster = args.cluster_resolver ? args.cluster_resolver : mu_cluster_from_environment();
    mu_strategy *strategy = cluster ? on_all_devices() : NULL;
    if (!strategy)
        return NULL;
    strategy->cluster = mu_retain(cluster);
    if (options.bytes_per_pack > 0)
        strategy->bytes_per_pack = (size_t)options.bytes_per_pack;
    strategy->sealed = !args.cluster_resolver;
    if ((strategy->sealed && mu__cluster_seal() != MU_OK) || join_cluster(strategy, cluster, &options) != MU_OK) {
        mu_release(strategy);
        return NULL;
    }
    char price[MU_PRICE_BYTES];
    if (options.deterministic && strategy->group && strategy->worker == 0)
        mu__notice("deterministic: %s", mu__group_price(strategy->group, price));
    return mu__give(strategy);
}

// ---- Asking it ----------------------------------------------------------------------------------

mu_cluster *mu_strategy_cluster_resolver(const mu_strategy *strategy)
{
    return strategy ? strategy->cluster : NULL;
}

int mu_strategy_worker_count(const mu_strategy *strategy)
{
    return strategy ? strategy->n_workers : 1;
}

int mu_strategy_worker_index(const mu_strategy *strategy)
{
    return strategy ? strategy->worker : 0;
}

bool mu_strategy_should_checkpoint(const mu_strategy *strategy)
{
    return !strategy || strategy->worker == 0;
}
