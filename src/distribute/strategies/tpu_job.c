// The job of a TPU with several hosts. Each host runs the program, and connects to the others before it starts its
// cores, so that the plugin makes one world of the cores of all (device_world.c).
//
// The connection lasts until the program ends. Strategies enter the same job once more, as all strategies of several
// workers do.
#include "cluster/tpu_topology.h"
#include "distribute/strategies/tpu.h"

typedef struct tpu_job {
    pthread_mutex_t lock;
    mu_cluster *cluster;       // retained; NULL: not connected
    struct mu_job *job;        // retained and entered
    mu_tpu_topology *topology; // retained; NULL: not initialised
} tpu_job;

static void *create(mu_runtime *runtime)
{
    (void)runtime;
    tpu_job *own = mu__calloc(1, sizeof *own);
    if (own)
        pthread_mutex_init(&own->lock, NULL);
    return own;
}

static void destroy(void *slot)
{
    tpu_job *own = slot;
    if (own->job)
        mu__job_leave(own->job);
    mu_release(own->job);
    mu_release(own->cluster);
    mu_release(own->topology);
    pthread_mutex_destroy(&own->lock);
    mu__free(own);
}

// Leaving the job needs the devices, so they are made first and freed last.
static tpu_job *tpu_job_of(void)
{
    cpu_set_t ignored;
    mu__device_cores(mu__runtime(), &ignored);
    return mu__runtime_slot(mu__runtime(), MU_SLOT_TPU_JOB, create, destroy);
}

mu_cluster *mu__tpu_connected(void)
{
    tpu_job *own = tpu_job_of();
    if (!own)
        return NULL;
    pthread_mutex_lock(&own->lock);
    mu_cluster *cluster = own->cluster;
    pthread_mutex_unlock(&own->lock);
    return cluster;
}

void mu__tpu_keep_topology(mu_tpu_topology *topology)
{
    tpu_job *own = tpu_job_of();
    if (!own)
        return;
    pthread_mutex_lock(&own->lock);
    mu_tpu_topology *before = own->topology;
    own->topology = mu_retain(topology);
    pthread_mutex_unlock(&own->lock);
    mu_release(before);
}

mu_tpu_topology *mu__tpu_topology(void)
{
    tpu_job *own = tpu_job_of();
    if (!own)
        return NULL;
    pthread_mutex_lock(&own->lock);
    mu_tpu_topology *topology = mu_retain(own->topology);
    pthread_mutex_unlock(&own->lock);
    return topology;
}

// ---- The workers of a cluster -------------------------------------------------------------------

// This process's position among the workers.
static mu_status find_self(mu_cluster *cluster, const mu_cluster_spec *spec, const char *function, const char *job,
                           mu_membership *j)
{
    int task = -1;
    char own[MU_MAX_NAME + 30];
    MU_TRY(mu__cluster_own_task(cluster, spec, job, &task));
    snprintf(own, sizeof own, "/job:%s/task:%d", job, task);
    j->worker = -1;
    for (int i = 0; i < j->n_workers; i++)
        if (strcmp(j->bootstrap.names[i], own) == 0)
            j->worker = i;
    if (j->worker >= 0)
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "%s: cannot determine which of the TPU's %d workers this process is (%s); each of them runs the "
                     "program. Set TPU_WORKER_ID there to its number, 0 to %d, or use the TPU of this host alone, with "
                     "mu_tpu_cluster_resolver(.tpu = \"local\")",
                     function, j->n_workers, mu_cluster_spec_json(spec), j->n_workers - 1);
}

// A chief is one of the workers, as in every cluster; a coordinator is not.
static mu_status read_workers(mu_cluster *cluster, const char *function, mu_membership *j)
{
    mu_cluster_spec *spec = mu_cluster_get_spec(cluster);
    j->cluster = cluster;
    j->function = function;
    j->kind = mu__tpu_ops.name;
    j->n_workers = 1;
    MU_TRY(mu__communication_options_copy(&j->options, NULL));
    if (!spec)
        return mu_error_code();
    if (mu_cluster_spec_job_count(spec) == 0)
        return MU_OK;
    const char *given = mu_cluster_task_type(cluster), *job = given ? given : "worker";
    MU_TRY(mu_error_code());
    const bool usual = strcmp(job, "chief") == 0 || strcmp(job, "worker") == 0;
    MU_TRY(mu__bootstrap_reserve(&j->bootstrap, mu__spec_count(spec, job) + mu__spec_count(spec, "chief") +
                                                    mu__spec_count(spec, "worker")));
    if (usual)
        MU_TRY(mu__bootstrap_job(spec, "chief", &j->bootstrap));
    MU_TRY(mu__bootstrap_job(spec, usual ? "worker" : job, &j->bootstrap));
    j->n_workers = j->bootstrap.n;
    return find_self(cluster, spec, function, job, j);
}

mu_status mu__tpu_enter(mu_cluster *given, const char *function, mu_membership *j)
{
    mu_cluster *connected = mu__tpu_connected(), *cluster = given ? given : connected;
    *j = (mu_membership){.n_workers = 1};
    if (!cluster)
        return mu_error_code();
    MU_TRY(read_workers(cluster, function, j));
    if (j->n_workers > 1 && !connected)
        return mu__error(MU_FAILED_PRECONDITION,
                         "%s: this process is not connected to the TPU's %d workers; call "
                         "mu_connect_to_cluster(resolver) first, on each of them",
                         function, j->n_workers);
    return mu__membership_enter(j);
}

void mu__tpu_left(mu_membership *j)
{
    mu__membership_leave(j);
    mu__bootstrap_free(&j->bootstrap);
}

// Takes the job over, unless it is connected already.
static mu_status join(tpu_job *own, mu_cluster *cluster, mu_membership *j)
{
    pthread_mutex_lock(&own->lock);
    const mu_status status = mu__membership_enter(j);
    if (status == MU_OK && j->mesh && !own->job) {
        own->job = j->job;
        own->cluster = mu_retain(cluster);
        j->job = NULL;
        j->mesh = NULL;
    }
    pthread_mutex_unlock(&own->lock);
    return status;
}

mu_status mu_connect_to_cluster(mu_cluster *cluster)
{
    static const char name[] = "mu_connect_to_cluster";
    mu_membership j = {.n_workers = 1};
    if (mu__pending())
        return mu_error_code();
    if (!cluster)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the cluster is NULL", name);
    tpu_job *own = tpu_job_of();
    mu_status status = own ? read_workers(cluster, name, &j) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = join(own, cluster, &j);
    mu__tpu_left(&j);
    return status;
}
