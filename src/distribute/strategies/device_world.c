// The world of plugins whose devices are in several processes: the key-value store of the job's mesh.
//
// A client of a plugin may live longer than the job, so it holds this object, which forgets the mesh at the job's end.
#include "comm/mesh/key_value.h"
#include "distribute/core/job.h"

#include <pthread.h>

typedef struct job_world {
    mu_device_world base; // first
    pthread_mutex_t lock;
    mu_mesh *mesh; // retained; NULL: the job has ended
} job_world;

// The caller releases the result; NULL after the job's end.
static mu_mesh *living_mesh(mu_device_world *base)
{
    job_world *world = (job_world *)base;
    pthread_mutex_lock(&world->lock);
    mu_mesh *mesh = mu_retain(world->mesh);
    pthread_mutex_unlock(&world->lock);
    return mesh;
}

// The same; NULL on error.
static mu_mesh *mesh_of(mu_device_world *base)
{
    mu_mesh *mesh = living_mesh(base);
    if (!mesh)
        mu__error(MU_FAILED_PRECONDITION,
                  "the job in which these devices were made has ended; keep its strategy as long as they are used");
    return mesh;
}

static mu_status put(mu_device_world *world, const void *key, size_t key_bytes, const void *value, size_t bytes)
{
    mu_mesh *mesh = mesh_of(world);
    const mu_status status = mesh ? mu__key_value_put(mesh, key, key_bytes, value, bytes) : MU_FAILED_PRECONDITION;
    mu_release(mesh);
    return status;
}

static mu_status get(mu_device_world *world, const void *key, size_t key_bytes, double seconds, void **value,
                     size_t *bytes)
{
    mu_mesh *mesh = mesh_of(world);
    const mu_status status =
        mesh ? mu__key_value_get(mesh, key, key_bytes, seconds, value, bytes) : MU_FAILED_PRECONDITION;
    mu_release(mesh);
    return status;
}

static bool lasts(mu_device_world *base)
{
    mu_mesh *mesh = living_mesh(base);
    mu_release(mesh);
    return mesh != NULL;
}

// After the job's end nothing is known of the others.
static mu_status check(mu_device_world *base)
{
    mu_mesh *mesh = living_mesh(base);
    const mu_status status = mesh ? mu__mesh_check(mesh, -1) : MU_OK;
    mu_release(mesh);
    return status;
}

static void fail(mu_device_world *base)
{
    mu_error_value cause, ignored;
    mu__error_move(&cause);
    mu_mesh *mesh = mesh_of(base);
    if (mesh)
        mu__mesh_fail(mesh, &cause);
    else
        mu__error_move(&ignored);
    mu_release(mesh);
    mu__error_raise(&cause);
}

static void destroy(void *object)
{
    job_world *world = object;
    mu_release(world->mesh);
    pthread_mutex_destroy(&world->lock);
}

static mu_type world_type = {.name = "world of devices", .destroy = destroy};

mu_device_world *mu__world_new(mu_mesh *mesh)
{
    job_world *world = mu__new(&world_type, sizeof *world);
    if (!world)
        return NULL;
    pthread_mutex_init(&world->lock, NULL);
    world->mesh = mu_retain(mesh);
    world->base.process = mu__mesh_rank(mesh);
    world->base.n_processes = mu__mesh_ranks(mesh);
    world->base.put = put;
    world->base.get = get;
    world->base.lasts = lasts;
    world->base.check = check;
    world->base.fail = fail;
    return &world->base;
}

void mu__world_end(mu_device_world *base)
{
    job_world *world = (job_world *)base;
    if (!world)
        return;
    pthread_mutex_lock(&world->lock);
    mu_mesh *mesh = world->mesh;
    world->mesh = NULL;
    pthread_mutex_unlock(&world->lock);
    mu_release(mesh);
}
