// Runs a traced function on all replicas at once.
//
// The calling thread traces (once per signature) and selects each replica's arguments. Devices that work by themselves
// it launches, with one program for all of them (launched_run.c), also with those of other workers (joined_run.c). For
// others it posts one job to each device's thread,
// which finds or compiles the plan and runs it. Two runs may be in progress, so that input is prepared while devices
// compute. If a replica fails, the group releases the others.
#include "base/callback.h"
#include "base/system.h"
#include "distribute/core/job.h"
#include "distribute/run/replica_run.h"

// ---- On the replica's thread --------------------------------------------------------------------

static mu_status run_replica(mu_replica_job *j)
{
    mu_replica_run *running = j->running;
    mu_strategy *strategy = running->head.strategy;
    mu_device *device = running->devices[j->replica];
    mu_plan *plan = mu__concrete_plan(running->concrete, device, j->specs, running->n_in);
    if (!plan) {
        mu__strategy_doing(strategy, "compiling", -1);
        plan = mu__concrete_compile(running->concrete, device, j->specs, running->n_in);
        mu__strategy_doing(strategy, "in step", running->number);
    }
    if (!plan)
        return mu_error_code();
    mu_cross_device_collective own;
    mu_collective *collective = strategy->group ? mu__group_member(strategy->group, j->replica) : NULL;
    if (collective && running->common > 0)
        mu__collective_begin(collective, running->common);
    mu_run_args args = {.device = device,
                        .replica = j->replica,
                        .replica_id = strategy->first_replica + j->replica,
                        .run = running->common,
                        .collective = mu__cross_device_collective(&own, collective, strategy->cross_device),
                        .in = j->in,
                        .out = j->out};
    const mu_status status = device->engine->run(plan, &args);
    mu__concrete_unuse(running->concrete, plan);
    return status;
}

// The part of a device's idle time in which its batch was being made counts as waiting for input.
static void note_input_wait(const mu_replica_job *j)
{
    mu_device *device = j->running->devices[j->replica];
    const int64_t begin = MU_MAX(j->running->input_begin_ns, device->idle_since);
    const int64_t end = MU_MIN(j->running->input_end_ns, mu__now_ns());
    if (device->idle_since == 0 || begin >= end)
        return;
    atomic_fetch_add(&device->input_wait_ns, end - begin);
    mu__span("input", "input", j->replica, begin, end);
}

double mu__strategy_input_seconds(mu_strategy *strategy)
{
    int64_t most = 0;
    for (int r = 0; r < strategy->n_local; r++)
        most = MU_MAX(most, (int64_t)atomic_load(&strategy->devices[r]->input_wait_ns));
    return (double)most / 1e9;
}

static void do_job(void *argument)
{
    mu_replica_job *j = argument;
    note_input_wait(j);
    mu_context context = {0};
    j->status = mu__context_enter(&context, mu__context());
    if (j->status != MU_OK) {
        mu__error_move(&j->error);
    } else {
        context.cancellation = j->running->cancellation;
        j->status = run_replica(j);
        mu__context_leave(&context, NULL, &j->error);
    }
    if (j->status != MU_OK && j->running->head.strategy->group)
        mu__group_abort(j->running->head.strategy->group, &j->error);
    mu_device *device = j->running->devices[j->replica];
    device->idle_since = mu__now_ns();
    atomic_fetch_sub(&device->posted, 1);
    mu__latch_arrive(&j->running->done);
}

// ---- Arguments ----------------------------------------------------------------------------------

static mu_status take_arguments(mu_replica_job *j, const mu_value *arguments)
{
    mu_value *mine = mu__select(arguments, j->replica);
    if (!mine)
        return mu_error_code();
    int n = mu__value_flatten(mine, NULL, 0), tensors = 0;
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_status status = leaves ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (leaves)
        mu__value_flatten(mine, leaves, n);
    for (int i = 0; status == MU_OK && i < n; i++) {
        mu_tensor *tensor = (mu_tensor *)leaves[i];
        if (!mu__is(tensor, &mu__tensor_type))
            continue;
        if (tensors == j->running->n_in || tensor->node) {
            status = mu__error(MU_INVALID_ARGUMENT, "replica %d's arguments of '%s' %s", j->replica,
                               j->running->concrete->graph->name,
                               tensor->node ? "hold a symbolic tensor of a trace; in a trace call mu_function_call, or "
                                              "run the step eagerly with mu_run_callback"
                                            : "hold more tensors than replica 0's");
            break;
        }
        j->specs[tensors] = mu__spec_of(tensor);
        j->in[tensors++] = mu_retain(tensor);
    }
    if (status == MU_OK && tensors != j->running->n_in)
        status = mu__error(MU_INVALID_ARGUMENT, "replica %d's arguments of '%s' hold %d tensors, replica 0's %d",
                           j->replica, j->running->concrete->graph->name, tensors, j->running->n_in);
    mu__free(leaves);
    mu_release(mine);
    return status;
}

static void free_running(mu_replica_run *running)
{
    for (int i = 0; running->tensors && i < running->n * (running->n_in + running->n_out); i++)
        mu_release(running->tensors[i]);
    mu__latch_free(&running->done);
    mu__free(running->tensors);
    mu__free(running->specs);
    mu__free(running->jobs);
    mu__free(running->args);
    mu_release(running->concrete);
    mu_release(running->head.strategy);
    mu__free(running);
}

static mu_replica_run *new_running(mu_strategy *strategy, mu_device *const *devices, mu_concrete *concrete,
                                   const mu_value *arguments)
{
    mu_replica_run *running = mu__calloc(1, sizeof *running);
    if (!running)
        return NULL;
    running->head.strategy = mu_retain(strategy);
    running->concrete = mu_retain(concrete);
    running->devices = devices;
    running->n = strategy->n_local;
    running->n_in = (int)concrete->graph->inputs.n;
    running->n_out = (int)concrete->graph->outputs.n;
    running->cancellation = mu__context()->cancellation;
    running->input_begin_ns = mu__context()->input_begin_ns;
    running->input_end_ns = mu__context()->input_end_ns;
    size_t n = (size_t)running->n, per_job = (size_t)(running->n_in + running->n_out);
    running->jobs = mu__calloc(n, sizeof *running->jobs);
    running->tensors = mu__calloc(n * per_job + 1, sizeof *running->tensors);
    running->specs = mu__calloc(n * (size_t)running->n_in + 1, sizeof *running->specs);
    mu_status status = mu__latch_init(&running->done, running->n);
    if (!running->jobs || !running->tensors || !running->specs)
        status = MU_RESOURCE_EXHAUSTED;
    for (int r = 0; status == MU_OK && r < running->n; r++) {
        mu_replica_job *j = &running->jobs[r];
        *j = (mu_replica_job){.running = running,
                              .replica = r,
                              .in = running->tensors + (size_t)r * per_job,
                              .specs = running->specs + r * running->n_in};
        j->out = j->in + running->n_in;
        status = take_arguments(j, arguments);
    }
    if (status == MU_OK)
        return running;
    free_running(running);
    return NULL;
}

// ---- Start and wait -----------------------------------------------------------------------------

// Replicas run at the same time, so a variable that they write needs a component for each. One replica must not write
// one of several.
static mu_status check_write(const mu_strategy *strategy, const mu_resource *resource)
{
    const mu_variable *variable = (const mu_variable *)resource;
    if (!mu__is(resource, &mu__variable_type) || resource->shared)
        return MU_OK;
    if (strategy->n_replicas > 1 && !strategy->ops->has_copies(strategy, variable))
        return mu__error(MU_FAILED_PRECONDITION,
                         "variable '%s' is written on the replicas of %s, but was made outside of its scope and has no "
                         "copy for each of them; make it inside MU_SCOPE",
                         resource->name, mu_strategy_name(strategy));
    if (strategy->n_replicas > 1 || !mu__has_other_copies(strategy, variable))
        return MU_OK;
    const mu_strategy *owner = variable->owner;
    return mu__error(MU_FAILED_PRECONDITION,
                     "variable '%s' is written on the replica of %s, which would change the copy of one of the %d "
                     "replicas of %s alone; run the function under the variable's strategy",
                     resource->name, mu_strategy_name(strategy), owner->n_replicas, mu_strategy_name(owner));
}

static mu_status check_writes(const mu_strategy *strategy, const mu_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int r = 0; (node->flags & MU_OP_WRITES) && r < node->n_resources; r++)
            if (mu__node_writes(node, r))
                MU_TRY(check_write(strategy, graph->resources.items[node->resources[r]]));
    }
    return MU_OK;
}

static mu_concrete *trace_like(mu_strategy *strategy, mu_function *function, const mu_value *arguments, bool agree)
{
    const int64_t run = mu__new_run(strategy);
    mu_value *like = mu__like_all(strategy, arguments, run, agree);
    if (!like)
        return NULL;
    mu_strategy_replica replica = {.replica = {.id = -1, .run = run}, .strategy = strategy};
    mu_strategy_scope scope = {
        .scope = {.make_variable = mu__make_distributed_variable, .make_accumulator = mu__make_distributed_accumulator},
        .strategy = strategy};
    mu_saved_context before = mu__enter_replica(&replica, &scope.scope, 0);
    // Several replicas share one graph but have parts of different sizes.
    const mu_batch batch = strategy->n_replicas == 1 ? MU_BATCH_PREFERRED : MU_BATCH_ALWAYS;
    mu_concrete *concrete = mu__function_concrete(function, like, batch, strategy);
    mu__leave_replica(before);
    mu_release(like);
    return concrete;
}

mu_concrete *mu__trace_for_replicas(mu_strategy *strategy, mu_function *function, const mu_value *arguments)
{
    return trace_like(strategy, function, arguments, false);
}

// Before workers exchange sizes: this one's arguments fit each other, and no worker is unable to run the function.
// *announced: the others know that this one is.
static mu_status agree_to_gather(mu_strategy *strategy, mu_function *function, const mu_value *arguments,
                                 bool *announced)
{
    if (!strategy->world_ids)
        return MU_OK;
    mu_value *like = mu__like_all(strategy, arguments, mu__new_run(strategy), false);
    if (!like)
        return mu_error_code();
    mu_release(like);
    const mu_status status = mu__agree_on_trace(strategy, mu_function_name(function));
    *announced = status != MU_OK;
    return status;
}

// Only the first trace shows whether the function gathers; then it is looked up again with the sizes of all workers.
// *out: the graph, also if it cannot run.
static mu_status trace_for(mu_strategy *strategy, mu_function *function, const mu_engine *engine,
                           const mu_value *arguments, bool *announced, mu_concrete **out)
{
    const bool gathers = mu__function_gathers(function, strategy);
    if (gathers)
        MU_TRY(agree_to_gather(strategy, function, arguments, announced));
    *out = trace_like(strategy, function, arguments, gathers);
    if (*out && (*out)->gathers && !gathers) {
        MU_TRY(agree_to_gather(strategy, function, arguments, announced));
        *out = trace_like(strategy, function, arguments, true);
    }
    if (!*out)
        return mu_error_code();
    if (!(*out)->plans)
        MU_TRY(check_writes(strategy, (*out)->graph));
    mu__reductions_announce(strategy, *out);
    return mu__concrete_prepare(*out, engine);
}

// One worker may run functions without collectives alone, so these do not change the number that workers compare. An
// agreement (joined_run.c) has given it already.
void mu__begin_run(mu_replica_run *running)
{
    mu_strategy *strategy = running->head.strategy;
    running->number = ++strategy->runs;
    strategy->under_way++;
    if (running->concrete->graph->collective && running->common == 0)
        running->common = ++strategy->common_runs;
}

static mu_status post(mu_replica_run *running)
{
    mu_strategy *strategy = running->head.strategy;
    mu_status status = MU_OK;
    pthread_mutex_t *devices = mu__device_order(strategy->runtime);
    pthread_mutex_lock(devices);
    pthread_mutex_lock(&strategy->order);
    mu__begin_run(running);
    mu__strategy_doing(strategy, "in step", running->number);
    for (int r = 0; r < running->n && status == MU_OK; r++) {
        mu_worker *worker = mu__device_worker(running->devices[r]);
        status = worker ? mu__worker_post(worker, do_job, &running->jobs[r]) : mu_error_code();
        atomic_fetch_add(&running->devices[r]->posted, status == MU_OK);
        for (int left = r; status != MU_OK && left < running->n; left++)
            mu__latch_arrive(&running->done); // posted jobs still use the run
    }
    if (status != MU_OK && strategy->group) { // posted replicas would wait for the rest
        mu_error_value cause;
        mu__error_move(&cause);
        mu__group_abort(strategy->group, &cause);
        mu__error_raise(&cause);
    }
    pthread_mutex_unlock(&strategy->order);
    pthread_mutex_unlock(devices);
    return status;
}

static void end_run(mu_strategy *strategy)
{
    pthread_mutex_lock(&strategy->order);
    strategy->under_way--;
    if (strategy->under_way == 0)
        strategy->ops->cross_worker->recover(strategy);
    pthread_mutex_unlock(&strategy->order);
    mu__strategy_done(strategy);
}

// With the lock of launches, workers have one order of agreements and launches.
static mu_status start_joined(mu_replica_run *running)
{
    pthread_mutex_t *launches = mu__job_launches(running->head.strategy->job);
    pthread_mutex_lock(launches);
    mu_status status = mu__agree_to_run(running);
    if (status == MU_OK)
        status = running->joined ? mu__launch_run(running) : post(running);
    pthread_mutex_unlock(launches);
    return status;
}

static mu_status start(mu_replica_run *running)
{
    return mu__joins(running) ? start_joined(running) : mu__launches(running) ? mu__launch_run(running) : post(running);
}

const char mu__equal_option[] = "mu_run_with_options(.enable_dynamic_batch_size = false)";

static mu_status need_equal_parts(const mu_replica_run *running)
{
    char first[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    for (int r = 1; r < running->n; r++)
        for (int i = 0; i < running->n_in; i++) {
            const mu_shape *a = &running->jobs[0].specs[i].shape, *b = &running->jobs[r].specs[i].shape;
            if (!mu__shape_equal(a, b))
                return mu__error(
                    MU_INVALID_ARGUMENT,
                    "%s: tensor %d of the arguments of '%s' has shape %s on replica 0 and %s on replica %d; give all "
                    "replicas as many rows (mu_dataset_batch(.drop_remainder = true)), or leave the option out",
                    mu__equal_option, i, running->concrete->graph->name, mu__shape_text(a, first),
                    mu__shape_text(b, other), r);
        }
    return MU_OK;
}

static mu_replica_run *open_running(mu_strategy *strategy, mu_device *const *devices, mu_concrete *concrete,
                                    const mu_value *arguments, bool equal)
{
    mu_replica_run *running = new_running(strategy, devices, concrete, arguments);
    if (!running)
        return NULL;
    running->equal = equal;
    if (!equal || need_equal_parts(running) == MU_OK)
        return running;
    free_running(running);
    return NULL;
}

static mu_running *run_replicas(mu_strategy *strategy, mu_function *function, mu_value *arguments, bool equal)
{
    mu_value *none = arguments ? NULL : mu__value_container(MU_VALUE_LIST, 0, NULL, NULL);
    mu_value *given = arguments ? arguments : none;
    mu__strategy_doing(strategy, "compiling", -1);
    mu_device *const *devices = given ? mu__devices_for(strategy, function) : NULL;
    bool announced = false;
    mu_concrete *concrete = NULL;
    mu_replica_run *running = NULL;
    if (devices && trace_for(strategy, function, devices[0]->engine, given, &announced, &concrete) == MU_OK)
        running = open_running(strategy, devices, concrete, given, equal);
    mu_release(none);
    if (!running && !announced)
        mu__refuse_run(strategy, function, concrete);
    if (running && start(running) == MU_OK)
        return &running->head;
    if (running && running->number > 0) {
        mu__latch_wait(&running->done, MU_FOREVER, "replicas");
        end_run(strategy);
    } else {
        mu__strategy_done(strategy);
    }
    if (running)
        free_running(running);
    return NULL;
}

mu_running *mu__run_replicas(mu_strategy *strategy, mu_function *function, mu_value *arguments)
{
    return run_replicas(strategy, function, arguments, false);
}

// Other kinds of runs have one replica.
static mu_running *start_run(mu_strategy *strategy, mu_function *function, mu_value *arguments, bool equal)
{
    if (mu__pending() || mu__need_cross_replica(strategy, "mu_run") != MU_OK)
        return NULL;
    const bool on_replicas = mu__cross_replica(strategy)->run == mu__run_replicas;
    if (mu__need_components(strategy, arguments, "mu_run") != MU_OK) {
        if (on_replicas)
            mu__refuse_run(strategy, function, NULL);
        return NULL;
    }
    return on_replicas ? run_replicas(strategy, function, arguments, equal)
                       : mu__cross_replica(strategy)->run(strategy, function, arguments);
}

mu_running *mu__run_start(mu_strategy *strategy, mu_function *function, mu_value *arguments)
{
    return start_run(strategy, function, arguments, false);
}

static mu_value *results(const mu_replica_run *running)
{
    mu_value **values = mu__calloc((size_t)running->n, sizeof *values), *grouped = NULL;
    bool whole = values != NULL;
    for (int r = 0; whole && r < running->n; r++) {
        values[r] = mu__concrete_result(running->concrete, running->jobs[r].out, running->jobs[0].out);
        whole = values[r] != NULL;
    }
    if (whole)
        grouped = mu__regroup(running->n, values);
    for (int r = 0; values && r < running->n; r++)
        mu_release(values[r]);
    mu__free(values);
    return grouped;
}

// The first error that was not caused by another replica's.
static const mu_replica_job *first_failure(const mu_replica_run *running, const mu_error_value *cause)
{
    const mu_replica_job *failed = NULL;
    for (int r = 0; r < running->n; r++) {
        const mu_replica_job *j = &running->jobs[r];
        if (j->status == MU_OK)
            continue;
        if (!failed || (cause && j->error.code == cause->code && strcmp(j->error.message, cause->message) == 0))
            failed = j;
    }
    return failed;
}

// Poisons a variable on all replicas if any replica wrote it: the failed one (the engine poisoned what it may have
// written) or one that finished.
static void poison_everywhere(const mu_replica_run *running, mu_resource *resource)
{
    bool written = false;
    for (int r = 0; r < running->n; r++)
        written |= running->jobs[r].status == MU_OK || ((const mu_variable *)resource)->poisoned[r];
    for (int r = 0; written && r < running->n; r++)
        resource->kind->poison(resource, r);
}

// The step failed as a whole, so a variable that one replica wrote is invalid on all of them.
static void poison_failed(const mu_replica_run *running)
{
    const mu_graph *graph = running->concrete->graph;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; (node->flags & MU_OP_WRITES) && k < node->n_resources; k++) {
            mu_resource *resource = graph->resources.items[node->resources[k]];
            if (mu__node_endangers(node, k) && mu__is(resource, &mu__variable_type) &&
                ((mu_variable *)resource)->n_components == running->n)
                poison_everywhere(running, resource);
        }
    }
}

// Meanwhile this thread runs what only it may run for the replicas (an MPI that allows no other threads).
static void wait_for_replicas(mu_replica_run *running)
{
    mu_group *group = running->head.strategy->group;
    if (running->launched) {
        mu__finish_run(running);
        return;
    }
    while (group && mu__group_needs_service(group) && !mu__latch_done(&running->done)) {
        mu__group_serve(group);
        mu__sleep_ns(20000);
    }
    mu__latch_wait(&running->done, MU_FOREVER, "replicas");
}

mu_value *mu__wait_replicas(mu_running *head)
{
    mu_replica_run *running = (mu_replica_run *)head;
    wait_for_replicas(running);
    mu_error_value cause;
    bool aborted = running->head.strategy->group && mu__group_failed(running->head.strategy->group, &cause);
    const mu_replica_job *failed = first_failure(running, aborted ? &cause : NULL);
    mu_value *value = NULL;
    if (failed) {
        poison_failed(running);
        mu__error_raise(&failed->error);
    } else {
        value = results(running);
    }
    end_run(running->head.strategy);
    free_running(running);
    return mu__give(value);
}

mu_value *mu__run_wait(mu_running *running) { return running->strategy->ops->values->wait(running); }

static mu_value *call_eagerly(mu_value *arguments, void *function) { return mu__function_inline(function, arguments); }

// A tape records ops, not compiled functions: with a tape open, a function on one replica is called eagerly.
static bool needs_calling(const mu_strategy *strategy)
{
    const mu_context *context = mu__context();
    return strategy && strategy->n_replicas == 1 && context->tape && !context->trace;
}

// A function as ordinary code, where this thread is.
static mu_value *call_in_place(const mu_function *function, mu_value *arguments)
{
    mu_value *given = arguments ? arguments : mu_list(MU_END);
    mu_value *result = NULL;
    if (given)
        MU_CALLBACK("a function that mu_run or mu_function_call runs", result = mu__function_inline(function, given));
    return result || mu__pending() ? result : mu_list(MU_END);
}

static mu_value *run(mu_strategy *given, mu_function *function, mu_value *arguments, bool equal)
{
    if (mu__pending())
        return NULL;
    if (!function || mu__need_value(arguments, "mu_run") != MU_OK) {
        mu__error(MU_INVALID_ARGUMENT, "mu_run: the function is NULL");
        return NULL;
    }
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__in_call(strategy))
        return mu__need_components(strategy, arguments, "mu_run") == MU_OK ? call_in_place(function, arguments) : NULL;
    if (needs_calling(strategy))
        return mu_run_callback(strategy, call_eagerly, function, arguments);
    mu_running *running = start_run(strategy, function, arguments, equal);
    return running ? mu__run_wait(running) : NULL;
}

mu_value *mu_run(mu_strategy *strategy, mu_function *function, mu_value *arguments)
{
    return run(strategy, function, arguments, false);
}

mu_value *mu__run_equal(mu_strategy *strategy, mu_function *function, mu_value *arguments)
{
    return run(strategy, function, arguments, true);
}

// The strategy on whose replica a called function runs here; NULL: outside of replicas of a strategy it is ordinary
// code, which may do what is done outside of replicas.
static mu_strategy *runs_calls(void)
{
    const mu_strategy_scope *scope = (const mu_strategy_scope *)mu__context()->scope;
    if (!mu_has_strategy())
        return mu_default_strategy();
    return scope->device ? scope->strategy : NULL;
}

// In a trace or an eager replica the function becomes part of what runs there.
mu_value *mu_function_call(mu_function *function, mu_value *arguments)
{
    const mu_context *context = mu__context();
    if (mu__pending())
        return NULL;
    if (!function) {
        mu__error(MU_INVALID_ARGUMENT, "mu_function_call: the function is NULL");
        return NULL;
    }
    if (context->trace || context->replica)
        return mu__function_inline(function, arguments);
    mu_strategy *strategy = runs_calls();
    if (strategy)
        return mu_run(strategy, function, arguments);
    return mu__need_value(arguments, "mu_function_call") == MU_OK ? call_in_place(function, arguments) : NULL;
}
