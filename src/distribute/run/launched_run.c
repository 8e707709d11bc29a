// Launches a run on devices that work by themselves: one call for all replicas, on the calling thread.
//
// One thread starts every replica's work and has compared their shapes first, or has agreed with the other workers
// (joined_run.c), and inside of the program replicas agree on the way that they take through control flow
// (decision 89), so no participant of a collective can be missing. Runs that threads of the devices have not ended
// (strategy_run.c) come first.
#include "distribute/run/replica_run.h"

// Whether this program may reduce: where the user named another way, the host does.
static bool reduces_inside(const mu_strategy *strategy)
{
    return strategy->n_local == 1 || mu__cross_device_default(strategy->cross_device);
}

static bool launches_on(const mu_strategy *strategy, mu_device *const *devices)
{
    const mu_device *first = strategy->n_local > 0 ? devices[0] : NULL;
    bool launches =
        first && first->engine->launch && strategy->n_local == strategy->n_replicas && reduces_inside(strategy);
    for (int r = 1; launches && r < strategy->n_local; r++)
        launches = devices[r]->engine_client == first->engine_client;
    return launches;
}

bool mu__strategy_launches(const mu_strategy *strategy)
{
    return strategy->world_ids || launches_on(strategy, strategy->devices);
}

bool mu__launches(const mu_replica_run *running)
{
    if (!launches_on(running->head.strategy, running->devices))
        return false;
    for (int r = 1; r < running->n; r++)
        for (int i = 0; i < running->n_in; i++)
            if (!mu__shape_equal(&running->jobs[r].specs[i].shape, &running->jobs[0].specs[i].shape))
                return false;
    return true;
}

// Waits for what was posted to the device's thread.
static void arrive(void *latch) { mu__latch_arrive(latch); }

static mu_status wait_for_thread(mu_device *device)
{
    mu_latch latch;
    if (atomic_load(&device->posted) == 0)
        return MU_OK;
    MU_TRY(mu__latch_init(&latch, 1));
    MU_TRY(mu__worker_post(device->worker, arrive, &latch));
    const mu_status status = mu__latch_wait(&latch, MU_FOREVER, "the device's thread");
    mu__latch_free(&latch);
    return status;
}

mu_status mu__find_plan(mu_replica_run *running)
{
    mu_device *first = running->devices[0];
    const mu_replica_job *j = &running->jobs[0];
    if (!running->plan)
        running->plan = mu__concrete_plan(running->concrete, first, j->specs, running->n_in);
    if (!running->plan)
        running->plan = mu__concrete_compile(running->concrete, first, j->specs, running->n_in);
    return running->plan ? MU_OK : mu_error_code();
}

static mu_status launch(mu_replica_run *running)
{
    const mu_strategy *strategy = running->head.strategy;
    MU_TRY(mu__find_plan(running));
    if (!(running->args = mu__calloc((size_t)running->n, sizeof *running->args)))
        return MU_RESOURCE_EXHAUSTED;
    const int partitions = mu__run_partitions(strategy);
    mu_device *const *devices = mu__run_devices(running);
    for (int i = 0; i < running->n * partitions; i++)
        MU_TRY(wait_for_thread(devices[i]));
    for (int r = 0; r < running->n; r++)
        running->args[r] = (mu_run_args){.device = running->devices[r],
                                         .replica = r,
                                         .replica_id = strategy->first_replica + r,
                                         .run = running->joined ? running->launch_id : running->common,
                                         .in = running->jobs[r].in,
                                         .out = running->jobs[r].out};
    return devices[0]->engine->launch(running->plan, running->n, partitions, devices, running->args,
                                      running->joined ? &running->world : NULL, &running->launch);
}

// The program failed as a whole, so every replica has its error.
static void take_error(mu_replica_run *running)
{
    mu__error_move(&running->jobs[0].error);
    for (int r = 0; r < running->n; r++) {
        running->jobs[r].status = running->jobs[0].error.code;
        running->jobs[r].error = running->jobs[0].error;
    }
}

mu_status mu__launch_run(mu_replica_run *running)
{
    mu_strategy *strategy = running->head.strategy;
    pthread_mutex_t *devices = mu__device_order(strategy->runtime);
    running->launched = true;
    pthread_mutex_lock(devices);
    pthread_mutex_lock(&strategy->order);
    mu__begin_run(running);
    pthread_mutex_unlock(&strategy->order);
    if (launch(running) != MU_OK) {
        if (running->joined)
            mu__strategy_failed(strategy); // the other workers have launched
        take_error(running);
    }
    pthread_mutex_unlock(devices);
    return MU_OK;
}

void mu__finish_run(mu_replica_run *running)
{
    const int64_t begin = mu__trace_on() ? mu__now_ns() : 0;
    if (running->launch && running->devices[0]->engine->finish(running->launch) != MU_OK)
        take_error(running);
    running->launch = NULL;
    mu__concrete_unuse(running->concrete, running->plan);
    running->plan = NULL;
    if (mu__trace_on())
        mu__span("op", "device program", 0, begin, mu__now_ns());
}
