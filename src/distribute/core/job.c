// The job that this process is in. A second strategy on the same cluster uses the first one's connections.
//
// Every worker makes its strategies in the same order, so either all find the job or all join it. Each strategy has its
// own groups; this file does not depend on them.
#include "distribute/core/job.h"

#include <pthread.h>

typedef struct member {
    char *name, *address;
} member;

struct mu_job {
    mu_object object;
    pthread_mutex_t lock; // held while joining and leaving the mesh
    pthread_mutex_t launches;
    int64_t n_launches; // so far, under launches
    int users;
    mu_runtime *runtime;
    mu_mesh *mesh;          // retained; NULL without users
    mu_device_world *world; // retained; of the mesh's processes
    int rank, n;
    member *members; // [n], in the given order
};

static void forget_members(mu_job *job)
{
    for (int i = 0; job->members && i < job->n; i++) {
        mu__free(job->members[i].name);
        mu__free(job->members[i].address);
    }
    mu__free(job->members);
    job->members = NULL;
    job->n = 0;
}

static void job_destroy(void *object)
{
    mu_job *job = object;
    mu__world_end(job->world);
    mu_release(job->world);
    mu_release(job->mesh);
    forget_members(job);
    pthread_mutex_destroy(&job->lock);
    pthread_mutex_destroy(&job->launches);
}

static mu_type job_type = {.name = "job", .destroy = job_destroy};

static void *create_job(mu_runtime *runtime)
{
    mu_job *job = mu__new(&job_type, sizeof *job);
    if (!job)
        return NULL;
    pthread_mutex_init(&job->lock, NULL);
    pthread_mutex_init(&job->launches, NULL);
    job->runtime = runtime;
    return job;
}

mu_job *mu__job_of(mu_runtime *runtime)
{
    return mu_retain(mu__runtime_slot(runtime, MU_SLOT_JOB, create_job, mu_release));
}

pthread_mutex_t *mu__job_launches(mu_job *job) { return &job->launches; }

int64_t mu__job_next_launch(mu_job *job) { return ++job->n_launches; }

static mu_status remember_members(mu_job *job, int rank, int n, const mu_mesh_peer *peers)
{
    job->members = mu__calloc((size_t)n, sizeof *job->members);
    if (!job->members)
        return MU_RESOURCE_EXHAUSTED;
    job->n = n;
    job->rank = rank;
    for (int i = 0; i < n; i++) {
        job->members[i].name = mu__strdup(peers[i].name);
        job->members[i].address = mu__strdup(peers[i].address);
        if (!job->members[i].name || !job->members[i].address)
            return MU_RESOURCE_EXHAUSTED;
    }
    return MU_OK;
}

static mu_status complain(const mu_job *job, const char *function, const char *difference)
{
    return mu__error(MU_FAILED_PRECONDITION,
                     "%s: this process is %s of a cluster that it has joined before, and can be in one cluster at a "
                     "time; the one given now differs: %s. Give the same cluster, or release the strategies of the "
                     "earlier one first (after mu_connect_to_cluster a process stays in it until it ends)",
                     function, job->members[job->rank].name, difference);
}

static mu_status check_same(const mu_job *job, const char *function, int rank, int n, const mu_mesh_peer *peers)
{
    char text[400];
    if (n != job->n) {
        snprintf(text, sizeof text, "it has %d workers, not %d", n, job->n);
        return complain(job, function, text);
    }
    if (rank != job->rank) {
        snprintf(text, sizeof text, "this process is %s in it", peers[rank].name);
        return complain(job, function, text);
    }
    for (int i = 0; i < n; i++) {
        const member *m = &job->members[i];
        if (strcmp(m->name, peers[i].name) == 0 && strcmp(m->address, peers[i].address) == 0)
            continue;
        snprintf(text, sizeof text, "%s is at %.120s in it, %s at %.120s in the other", peers[i].name, peers[i].address,
                 m->name, m->address);
        return complain(job, function, text);
    }
    return MU_OK;
}

static void leave_mesh(mu_job *job)
{
    mu__world_end(job->world);
    mu_release(job->world);
    mu_release(job->mesh);
    job->world = NULL;
    job->mesh = NULL;
}

static mu_mesh *join_mesh(mu_job *job, mu_job_join *join, void *arg)
{
    job->n_launches = 0;
    job->mesh = join(arg);
    job->world = job->mesh ? mu__world_new(job->mesh) : NULL;
    if (!job->world)
        leave_mesh(job);
    else
        mu__device_set_world(job->runtime, job->world);
    return job->mesh;
}

mu_mesh *mu__job_enter(mu_job *job, const char *function, int rank, int n, const mu_mesh_peer *peers, mu_job_join *join,
                       void *arg)
{
    pthread_mutex_lock(&job->lock);
    mu_mesh *mesh = NULL;
    if (job->users > 0)
        mesh = check_same(job, function, rank, n, peers) == MU_OK ? job->mesh : NULL;
    else if (remember_members(job, rank, n, peers) == MU_OK)
        mesh = join_mesh(job, join, arg);
    if (mesh)
        job->users++;
    else if (job->users == 0)
        forget_members(job);
    pthread_mutex_unlock(&job->lock);
    return mesh;
}

void mu__job_leave(mu_job *job)
{
    pthread_mutex_lock(&job->lock);
    if (--job->users == 0) {
        mu__device_set_world(job->runtime, NULL);
        leave_mesh(job);
        forget_members(job);
    }
    pthread_mutex_unlock(&job->lock);
}
