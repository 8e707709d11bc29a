// Runs one program for all replicas: launched in one call for all of their devices in this process, of which a replica
// may have several, its logical devices.
//
// The caller has compared the replicas' shapes, and none of them can be missing: inside of XLA a collective with a
// participant missing would end the process, or never end. One thread starts all replicas of a process, and several
// processes have agreed before each launch that all of them launch; a process that fails after that tells the others,
// which then wait no longer (pending.c). A launch returns when the work is queued; the next one may follow before this
// one has ended. Errors show at the end, and then the variables that it writes are in doubt.
#include "engine/pjrt/pjrt_plan.h"

static mu_status begin(mu_pjrt_run *run, mu_device *const *devices, const mu_run_args *args)
{
    const int partitions = run->programs->span.partitions;
    for (int i = 0; i < run->n; i++)
        MU_TRY(mu__pjrt_lane_begin(&run->lanes[i], devices[i], &args[i / partitions]));
    MU_TRY(mu__pjrt_execute(run, 0, run->shared ? args[0].run : 0));
    for (int i = 0; i < run->n; i++)
        MU_TRY(mu__pjrt_lane_results(&run->lanes[i]));
    for (int i = 0; i < run->n; i++)
        MU_TRY(mu__pjrt_commit(&run->lanes[i]));
    return MU_OK;
}

// Waits for every device, and returns the first error.
static mu_status await(mu_pjrt_run *run)
{
    mu_status status = MU_OK;
    mu_error_value first, further;
    for (int i = 0; i < run->n; i++) {
        const mu_status own = mu__pjrt_await(run->plan->client, run->complete[i], run->plan->graph->name);
        run->complete[i] = NULL;
        if (own != MU_OK)
            mu__error_move(status == MU_OK ? &first : &further);
        if (status == MU_OK)
            status = own;
    }
    if (status != MU_OK)
        mu__error_raise(&first);
    if (status == MU_RESOURCE_EXHAUSTED)
        mu__pjrt_name_largest(run->plan, run->programs);
    return status;
}

static mu_status end(mu_pjrt_run *run, mu_status status)
{
    for (int i = 0; i < run->n; i++)
        mu__pjrt_lane_end(&run->lanes[i], status);
    mu__pjrt_run_give(run);
    return status;
}

// Where a plan runs. A graph without annotations runs on the first logical device of each replica.
typedef struct chosen_devices {
    mu_pjrt_span span;
    mu_device **devices, *few_devices[64]; // [span.n_local]; `few` are memory for most launches
    int64_t *ids, few_ids[64];             // [span.replicas * span.partitions]; NULL: of this process alone
} chosen_devices;

static mu_status reserve(chosen_devices *chosen, int n_local, int n_ids)
{
    chosen->devices = n_local > (int)MU_COUNT(chosen->few_devices) ? mu__calloc((size_t)n_local, sizeof(mu_device *))
                                                                   : chosen->few_devices;
    chosen->ids = n_ids == 0                               ? NULL
                  : n_ids > (int)MU_COUNT(chosen->few_ids) ? mu__calloc((size_t)n_ids, sizeof(int64_t))
                                                           : chosen->few_ids;
    return chosen->devices && (n_ids == 0 || chosen->ids) ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status choose(const mu_pjrt_plan *plan, int n, int partitions, mu_device *const *given,
                        const mu_launch_world *world, chosen_devices *out)
{
    const int each = plan->annotated ? partitions : 1, replicas = world ? world->n_replicas : n;
    MU_TRY(reserve(out, n * each, world ? replicas * each : 0));
    for (int i = 0; i < n * each; i++)
        out->devices[i] = given[i / each * partitions + i % each];
    for (int i = 0; world && i < replicas * each; i++)
        out->ids[i] = world->ids[i / each * partitions + i % each];
    out->span = (mu_pjrt_span){
        .replicas = replicas, .partitions = each, .n_local = n * each, .devices = out->devices, .ids = out->ids};
    return MU_OK;
}

static void forget(chosen_devices *chosen)
{
    if (chosen->devices != chosen->few_devices)
        mu__free(chosen->devices);
    if (chosen->ids != chosen->few_ids)
        mu__free(chosen->ids);
}

static mu_status launch_on(mu_pjrt_plan *plan, const chosen_devices *chosen, const mu_run_args *args, mu_launch **out)
{
    mu_pjrt_programs *programs = mu__pjrt_programs(plan, &chosen->span);
    mu_pjrt_run *run = programs ? mu__pjrt_run_take(plan, programs) : NULL;
    if (!run)
        return mu_error_code();
    run->shared = chosen->span.ids != NULL;
    if (run->shared)
        atomic_fetch_add(&plan->client->n_shared, 1);
    for (int i = 0; i < run->n; i++)
        run->lanes[i].args = &args[i / chosen->span.partitions];
    const mu_status status = begin(run, chosen->devices, args);
    for (int i = 0; i < run->n; i++)
        mu__pjrt_lane_empty(&run->lanes[i]);
    if (status == MU_OK) {
        *out = (mu_launch *)run;
        return MU_OK;
    }
    mu_error_value cause;
    mu__error_move(&cause);
    if (await(run) != MU_OK) { // what was queued may still use the inputs
        mu_error_value ignored;
        mu__error_move(&ignored);
    }
    mu__error_raise(&cause);
    return end(run, status);
}

mu_status mu__pjrt_launch(mu_plan *handle, int n, int partitions, mu_device *const *devices, const mu_run_args *args,
                          const mu_launch_world *world, mu_launch **out)
{
    chosen_devices chosen;
    mu_pjrt_plan *plan = (mu_pjrt_plan *)handle;
    mu_status status = choose(plan, n, partitions, devices, world, &chosen);
    if (status == MU_OK)
        status = launch_on(plan, &chosen, args, out);
    forget(&chosen);
    return status;
}

mu_status mu__pjrt_join(mu_plan *handle, const mu_launch_world *world, int n, int partitions, mu_device *const *devices,
                        bool compile, int64_t *hash)
{
    chosen_devices chosen;
    mu_pjrt_plan *plan = (mu_pjrt_plan *)handle;
    mu_status status = choose(plan, n, partitions, devices, world, &chosen);
    mu_pjrt_programs *programs = status != MU_OK ? NULL
                                 : compile       ? mu__pjrt_programs(plan, &chosen.span)
                                                 : mu__pjrt_known_programs(plan, &chosen.span);
    if (status == MU_OK && !programs && compile)
        status = mu_error_code();
    *hash = programs ? programs->hash : 0;
    forget(&chosen);
    return status;
}

mu_status mu__pjrt_finish(mu_launch *launch)
{
    mu_pjrt_run *run = (mu_pjrt_run *)launch;
    const mu_status status = await(run);
    for (int i = 0; i < run->n; i++)
        run->lanes[i].ended = status == MU_OK;
    if (status != MU_OK && run->shared)
        run->plan->client->world->fail(run->plan->client->world); // the others wait for what failed here
    return end(run, status == MU_OK ? mu__pjrt_check_fault(run) : status);
}

// ---- The engine ---------------------------------------------------------------------------------

static mu_status run_alone(mu_plan *plan, const mu_run_args *args)
{
    mu_launch *launch = NULL;
    MU_TRY(mu__pjrt_launch(plan, 1, 1, (mu_device *const[]){args->device}, args, NULL, &launch));
    return mu__pjrt_finish(launch);
}

static mu_status run_plan(mu_plan *plan, const mu_run_args *args)
{
    const int64_t begin_ns = mu__trace_on() ? mu__now_ns() : 0;
    const bool parts = args->collective && args->collective->size > 1;
    mu_run_args here = *args;
    if (!here.device)
        here.device = ((mu_pjrt_plan *)plan)->device;
    const mu_status status = parts ? mu__pjrt_run_parts((mu_pjrt_plan *)plan, &here) : run_alone(plan, &here);
    if (mu__trace_on())
        mu__span("op", "device program", args->replica, begin_ns, mu__now_ns());
    return status;
}

static void close_device(mu_device *device)
{
    (void)device; // the device's state belongs to the client
}

static mu_graph *lower(const mu_graph *graph)
{
    mu_graph *whole = mu__graph_inline(graph, true), *pure = whole ? mu__pass_state(whole) : NULL;
    mu_release(whole);
    return pure;
}

const mu_engine mu__engine_pjrt = {
    .name = "pjrt",
    .lower = lower,
    .compile = mu__pjrt_compile,
    .run = run_plan,
    .free = mu__pjrt_free,
    .close_device = close_device,
    .shares_plans = true,
    .launch = mu__pjrt_launch,
    .finish = mu__pjrt_finish,
    .identify = mu__pjrt_identify,
    .most_joined = MU_PJRT_MOST_REPLICAS,
    .join = mu__pjrt_join,
};
