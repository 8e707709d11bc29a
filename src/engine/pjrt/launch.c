// Runs one program for all replicas of this process: launched in one call for all of their devices, of which a replica
// may have several, its logical devices.
//
// The caller has compared the replicas' shapes, and none of them can be missing, because one thread starts all: inside
// of XLA a collective with a participant missing would end the process. A launch returns when the work is queued; the
// next one may follow before this one has ended. Errors show at the end, and then the variables that it writes are in
// doubt.
#include "engine/pjrt/pjrt_plan.h"

static mu_status begin(mu_pjrt_run *run, mu_device *const *devices, const mu_run_args *args)
{
    const int partitions = run->programs->partitions;
    for (int i = 0; i < run->n; i++)
        MU_TRY(mu__pjrt_lane_begin(&run->lanes[i], devices[i], &args[i / partitions]));
    MU_TRY(mu__pjrt_execute(run, 0));
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
    for (int i = 0; i < run->n; i++) {
        mu_error_value ignored;
        const mu_status own = mu__pjrt_await(run->plan->client->api, run->complete[i], run->plan->graph->name);
        run->complete[i] = NULL;
        if (status == MU_OK)
            status = own;
        else if (own != MU_OK)
            mu__error_move(&ignored);
    }
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

// A graph without annotations runs on the first logical device of each replica.
static mu_pjrt_run *take_run(mu_pjrt_plan *plan, int n, int partitions, mu_device *const *devices,
                             mu_device **used)
{
    const int each = plan->annotated ? partitions : 1;
    for (int i = 0; i < n * each; i++)
        used[i] = devices[i / each * partitions + i % each];
    mu_pjrt_programs *programs = mu__pjrt_programs(plan, n, each, used);
    return programs ? mu__pjrt_run_take(plan, programs, n * each) : NULL;
}

static mu_status launch_on(mu_pjrt_plan *plan, int n, int partitions, mu_device *const *given, mu_device **devices,
                           const mu_run_args *args, mu_launch **out)
{
    mu_pjrt_run *run = take_run(plan, n, partitions, given, devices);
    if (!run)
        return mu_error_code();
    for (int i = 0; i < run->n; i++)
        run->lanes[i].args = &args[i / run->programs->partitions];
    const mu_status status = begin(run, devices, args);
    for (int i = 0; i < run->n; i++)
        mu__pjrt_lane_empty(&run->lanes[i]);
    if (status == MU_OK) {
        *out = (mu_launch *)run;
        return MU_OK;
    }
    mu_error_value cause;
    mu__error_move(&cause);
    if (await(run) != MU_OK) {  // what was queued may still use the inputs
        mu_error_value ignored;
        mu__error_move(&ignored);
    }
    mu__error_raise(&cause);
    return end(run, status);
}

mu_status mu__pjrt_launch(mu_plan *handle, int n, int partitions, mu_device *const *devices, const mu_run_args *args,
                          mu_launch **out)
{
    mu_device *few[64], **used = n * partitions <= (int)MU_COUNT(few) ? few : NULL;
    if (!used && !(used = mu__calloc((size_t)n * (size_t)partitions, sizeof(mu_device *))))
        return MU_RESOURCE_EXHAUSTED;
    const mu_status status = launch_on((mu_pjrt_plan *)handle, n, partitions, devices, used, args, out);
    if (used != few)
        mu__free(used);
    return status;
}

mu_status mu__pjrt_finish(mu_launch *launch)
{
    mu_pjrt_run *run = (mu_pjrt_run *)launch;
    const mu_status status = await(run);
    return end(run, status == MU_OK ? mu__pjrt_check_dispute(run) : status);
}

// ---- The engine ---------------------------------------------------------------------------------

static mu_status run_alone(mu_plan *plan, const mu_run_args *args)
{
    mu_launch *launch = NULL;
    MU_TRY(mu__pjrt_launch(plan, 1, 1, (mu_device *const[]){args->device}, args, &launch));
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
    (void)device;  // the device's state belongs to the client
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
};
