// Runs a function whose variables are on parameter servers, on one device.
//
// The graph is cut at its effects (segments.h). The device's thread runs the segments between them as plans of
// its engine, and applies each effect by itself, under the lock of the variable's server; the assignments to all parts
// of a variable on servers at the same time. So two workers that add to one variable at the same time both count, and a
// worker reads what others wrote before its read.
#include "distribute/strategies/parameter_server.h"
#include "graph/passes/segments.h"
#include "rpc/services/service.h"

#include <muster/cancellation.h>

// A cut graph with a place for the plans of each segment. Kept in the place of a graph's plans.
typedef struct served_graph {
    mu_segments *segments;
    mu_concrete *plans; // [n_steps] only graph, lock and plans of each are used
} served_graph;

// ---- Preparing ----------------------------------------------------------------------------------

static void free_served(void *object)
{
    served_graph *served = object;
    for (int s = 0; served->plans && s < served->segments->n_steps; s++) {
        if (served->plans[s].plans)
            served->plans[s].free_plans(served->plans[s].plans);
        pthread_mutex_destroy(&served->plans[s].lock);
    }
    mu__free(served->plans);
    mu__segments_free(served->segments);
    mu__free(served);
}

static served_graph *new_served(mu_concrete *concrete, const mu_engine *engine)
{
    served_graph *served = mu__calloc(1, sizeof *served);
    if (!served)
        return NULL;
    served->segments = mu__segments_cut(concrete->graph);
    const int n = served->segments ? served->segments->n_steps : 0;
    served->plans = served->segments ? mu__calloc((size_t)n + 1, sizeof *served->plans) : NULL;
    mu_status status = served->plans ? MU_OK : mu_error_code();
    for (int s = 0; served->plans && s < n; s++) {
        pthread_mutex_init(&served->plans[s].lock, NULL);
        served->plans[s].graph = served->segments->steps[s].segment;
        if (status == MU_OK && served->plans[s].graph)
            status = mu__concrete_prepare(&served->plans[s], engine);
    }
    if (status == MU_OK)
        return served;
    free_served(served);
    return NULL;
}

// The first thread that comes cuts the graph.
static const served_graph *prepare(mu_concrete *concrete, const mu_device *device)
{
    pthread_mutex_lock(&concrete->lock);
    if (!concrete->plans) {
        served_graph *served = new_served(concrete, device->engine);
        concrete->free_plans = free_served;
        concrete->plans = served;
    }
    const served_graph *served = concrete->plans;
    pthread_mutex_unlock(&concrete->lock);
    return served;
}

// ---- On the device's thread ---------------------------------------------------------------------

typedef struct served_call {
    mu_concrete *concrete;
    const served_graph *served;
    mu_device *device;
    int component;            // of per-worker variables in this process
    pthread_mutex_t *outside; // of mu_servers
    mu_tensor **values;       // [n_values] owned
    struct mu_cancellation *cancellation;
    uint64_t request;
    mu_status status;
    mu_error_value error;
    bool withdrawn; // before the device's thread began it
    mu_latch done;
} served_call;
typedef struct served_run served_run;

// What one step takes and gives; one block for the largest step.
typedef struct step_space {
    mu_tensor **in, **out;
    mu_spec *specs;
    mu_resource **resources;
} step_space;

// Whether an effect is on a variable that no server has: the strategy's lock keeps other workers away meanwhile.
static bool is_outside(const mu_graph *graph, const mu_node *effect)
{
    for (int r = 0; effect && r < effect->n_resources; r++) {
        const mu_resource *resource = graph->resources.items[effect->resources[r]];
        if (!resource->lock && !resource->home && !resource->kind->opaque)
            return true;
    }
    return false;
}

// Which component an effect uses of variables that have several.
static int component_of(const served_call *call, const mu_node *effect)
{
    const mu_graph *graph = call->served->segments->graph;
    for (int r = 0; effect && r < effect->n_resources; r++)
        if (graph->resources.items[effect->resources[r]]->per_worker)
            return call->component;
    return 0;
}

static mu_status run_segment(const served_call *call, int s, const step_space *space)
{
    const mu_graph_step *step = &call->served->segments->steps[s];
    mu_concrete *plans = &call->served->plans[s];
    for (int k = 0; k < step->n_in; k++)
        space->specs[k] = mu__spec_of(space->in[k]);
    mu_plan *plan = mu__concrete_plan(plans, call->device, space->specs, step->n_in);
    if (!plan)
        plan = mu__concrete_compile(plans, call->device, space->specs, step->n_in);
    if (!plan)
        return mu_error_code();
    const mu_run_args args = {
        .device = call->device, .replica = component_of(call, step->effect), .in = space->in, .out = space->out};
    const mu_status status = call->device->engine->run(plan, &args);
    mu__concrete_unuse(plans, plan);
    return status;
}

// An op on resources, at once. Its results come from the pool.
static mu_status run_effect(const served_call *call, const mu_node *node, const step_space *space)
{
    const mu_graph *graph = call->served->segments->graph;
    for (int r = 0; r < node->n_resources; r++)
        space->resources[r] = graph->resources.items[node->resources[r]];
    mu__context()->component = component_of(call, node);
    const mu_status status =
        mu__apply(node->op, node->attrs, node->n_in, space->in, node->n_resources, space->resources, space->out);
    for (int k = 0; status == MU_OK && k < node->n_out; k++)
        mu_retain(space->out[k]);
    if (status != MU_OK)
        mu__error_add_site(mu__node_site(node));
    return status;
}

// Whether an effect assigns a value to a part of a variable that a server keeps.
static bool assigns_part(const mu_graph *graph, const mu_node *node)
{
    return node && node->name && node->n_in == 1 && node->n_out == 0 && node->n_resources == 1 &&
           graph->resources.items[node->resources[0]]->kind == &mu__remote_variable_kind;
}

// Whether two such effects are parts of one assignment. Two to the same part keep their order.
static bool go_together(const mu_node *first, const mu_node *other)
{
    return first->op == other->op && !first->op->attrs_bytes && strcmp(first->name, other->name) == 0 &&
           first->resources[0] != other->resources[0];
}

// How many steps from step s on are the parts of one assignment; 1: no others are.
static int parts_from(const mu_segments *segments, int s)
{
    const mu_graph_step *steps = &segments->steps[s];
    int n = 1;
    bool more = assigns_part(segments->graph, steps[0].effect);
    while (more && s + n < segments->n_steps) {
        more = assigns_part(segments->graph, steps[n].effect);
        for (int i = 0; more && i < n; i++)
            more = go_together(steps[i].effect, steps[n].effect);
        n += more;
    }
    return n;
}

// Drops the values that no later step needs.
static void drop_used(const served_call *call, int s)
{
    const mu_segments *segments = call->served->segments;
    const mu_graph_step *step = &segments->steps[s];
    for (int list = 0; list < 2; list++)
        for (int k = 0; k < (list ? step->n_out : step->n_in); k++) {
            const int value = (list ? step->out : step->in)[k];
            if (segments->last_use[value] > s)
                continue;
            mu_release(call->values[value]);
            call->values[value] = NULL;
        }
}

static mu_status run_step(const served_call *call, int s, const step_space *space)
{
    const mu_segments *segments = call->served->segments;
    const mu_graph_step *step = &segments->steps[s];
    mu_pool *pool = mu_pool_open();
    mu_status status = pool ? mu__check_stop() : mu_error_code();
    for (int k = 0; k < step->n_in; k++)
        space->in[k] = call->values[step->in[k]];
    pthread_mutex_t *outside = is_outside(segments->graph, step->effect) ? call->outside : NULL;
    if (outside)
        pthread_mutex_lock(outside);
    if (status == MU_OK)
        status = step->segment ? run_segment(call, s, space) : run_effect(call, step->effect, space);
    if (outside)
        pthread_mutex_unlock(outside);
    for (int k = 0; status == MU_OK && k < step->n_out; k++)
        call->values[step->out[k]] = space->out[k];
    mu_pool_close(pool);
    drop_used(call, s);
    return status;
}

// Assigns the parts of a variable, in n steps: all servers are asked, then all answers are waited for.
static mu_status run_parts(const served_call *call, int s, int n)
{
    const mu_segments *segments = call->served->segments;
    const mu_node *first = segments->steps[s].effect;
    mu_pool *pool = mu_pool_open();
    mu_resource **parts = mu__calloc((size_t)n, sizeof(mu_resource *));
    mu_tensor **values = mu__calloc((size_t)n, sizeof *values);
    mu_status status = parts && values ? mu__check_stop() : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n; i++) {
        parts[i] = segments->graph->resources.items[segments->steps[s + i].effect->resources[0]];
        values[i] = call->values[segments->steps[s + i].in[0]];
    }
    if (status == MU_OK && (status = mu__remote_update_each(first->op, n, parts, values)) != MU_OK)
        mu__error_add_site(mu__node_site(first));
    mu__free(parts);
    mu__free(values);
    mu_pool_close(pool);
    for (int i = 0; i < n; i++)
        drop_used(call, s + i);
    return status;
}

static mu_status run_steps(const served_call *call)
{
    const mu_segments *segments = call->served->segments;
    size_t most_in = 0, most_out = 0;
    for (int s = 0; s < segments->n_steps; s++) {
        most_in = MU_MAX(most_in, (size_t)segments->steps[s].n_in);
        most_out = MU_MAX(most_out, (size_t)segments->steps[s].n_out);
    }
    step_space space = {.in = mu__calloc(most_in + 1, sizeof *space.in),
                        .out = mu__calloc(most_out + 1, sizeof *space.out),
                        .specs = mu__calloc(most_in + 1, sizeof *space.specs),
                        .resources = mu__calloc(segments->graph->resources.n + 1, sizeof *space.resources)};
    mu_status status = space.in && space.out && space.specs && space.resources ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int s = 0, n; s < segments->n_steps && status == MU_OK; s += n) {
        n = parts_from(segments, s);
        status = mu_cancellation_is_cancelled(call->cancellation)
                     ? mu__error(MU_CANCELLED, "'%s' was cancelled between two of its steps", segments->graph->name)
                 : n > 1 ? run_parts(call, s, n)
                         : run_step(call, s, &space);
    }
    mu__free(space.in);
    mu__free(space.out);
    mu__free(space.specs);
    mu__free(space.resources);
    return status;
}

static void do_call(served_call *call)
{
    mu_context context = {0};
    call->status = mu__context_enter(&context, mu__context());
    if (call->status != MU_OK) {
        mu__error_move(&call->error);
    } else {
        context.cancellation = call->cancellation;
        context.request = call->request;
        call->status = run_steps(call);
        mu__context_leave(&context, NULL, &call->error);
    }
}

static void do_posted_call(void *argument)
{
    served_call *call = argument;
    do_call(call);
    mu__latch_arrive(&call->done);
}

// ---- On the caller's thread ---------------------------------------------------------------------

mu_concrete *mu__served_trace(mu_strategy *strategy, mu_function *function, const mu_value *arguments)
{
    mu_value *none = arguments ? NULL : mu__value_container(MU_VALUE_LIST, 0, NULL, NULL);
    mu_concrete *concrete =
        arguments || none ? mu__trace_for_replicas(strategy, function, arguments ? arguments : none) : NULL;
    mu_release(none);
    return concrete;
}

static void take_constants(const served_call *call)
{
    const mu_segments *segments = call->served->segments;
    for (int i = 0; i < segments->n_values; i++)
        if (segments->constants[i])
            call->values[i] = mu_retain(segments->constants[i]);
}

static void free_values(served_call *call)
{
    for (int i = 0; call->values && i < call->served->segments->n_values; i++)
        mu_release(call->values[i]);
    mu__free(call->values);
}

mu_status mu__served_arguments(const mu_graph *graph, const mu_value *arguments, mu_tensor **out)
{
    mu_value *mine = arguments ? mu__select(arguments, 0) : NULL;
    const int n = mu__value_flatten(mine, NULL, 0), n_inputs = (int)graph->inputs.n;
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    int tensors = 0;
    if (leaves)
        mu__value_flatten(mine, leaves, n);
    for (int i = 0; leaves && i < n; i++)
        if (mu__is(leaves[i], &mu__tensor_type) && tensors < n_inputs)
            out[tensors++] = mu_retain(leaves[i]);
    mu__free(leaves);
    mu_release(mine);
    return leaves ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// A call that a device runs, or has run.
struct served_run {
    mu_running head; // first
    served_call call;
    bool posted;
};

static void free_run(served_run *run)
{
    served_call *call = &run->call;
    free_values(call);
    if (run->posted)
        mu__latch_free(&call->done);
    mu_release(call->concrete);
    mu_release(run->head.strategy);
    mu__free(run);
}

mu_worker *mu__served_thread(mu_device *device)
{
    pthread_mutex_t *order = mu__device_order(mu__runtime());
    pthread_mutex_lock(order);
    mu_worker *worker = mu__device_worker(device);
    pthread_mutex_unlock(order);
    return worker;
}

static mu_status fill_run(served_run *run, mu_device *device, int component, mu_concrete *concrete,
                          const mu_value *arguments)
{
    run->call = (served_call){.concrete = mu_retain(concrete),
                              .device = device,
                              .component = component,
                              .outside = &run->head.strategy->servers->outside,
                              .cancellation = mu__context()->cancellation,
                              .request = mu__context()->request};
    served_call *call = &run->call;
    if (!(call->served = prepare(concrete, device)))
        return mu_error_code();
    call->values = mu__calloc((size_t)call->served->segments->n_values + 1, sizeof *call->values);
    MU_TRY(call->values ? mu__served_arguments(concrete->graph, arguments, call->values) : MU_RESOURCE_EXHAUSTED);
    take_constants(call);
    MU_TRY(mu__latch_init(&call->done, 1));
    run->posted = true;
    mu_worker *worker = mu__served_thread(device);
    return worker ? mu__worker_post(worker, do_posted_call, call) : mu_error_code();
}

// Posts a call to a device's thread; NULL on error.
static served_run *start(mu_strategy *strategy, int worker, int component, mu_function *function, mu_value *arguments)
{
    mu_concrete *concrete = mu__served_trace(strategy, function, arguments);
    served_run *run = concrete ? mu__calloc(1, sizeof *run) : NULL;
    if (!run)
        return NULL;
    run->head.strategy = mu_retain(strategy);
    if (fill_run(run, strategy->servers->worker_devices[worker], component, concrete, arguments) == MU_OK)
        return run;
    free_run(run);
    return NULL;
}

static mu_value *result_of(const served_call *call)
{
    const mu_segments *segments = call->served->segments;
    const int n = (int)segments->graph->outputs.n;
    mu_tensor **out = mu__calloc((size_t)n + 1, sizeof *out);
    for (int i = 0; out && i < n; i++)
        out[i] = call->values[segments->outputs[i]];
    mu_value *result = out ? mu__concrete_result(call->concrete, out, out) : NULL;
    mu__free(out);
    return result;
}

// Waits, frees the run and returns the result, owned.
static mu_value *finish(served_run *run)
{
    served_call *call = &run->call;
    (void)mu__latch_wait(&call->done, MU_FOREVER, "a function on a device");
    mu__error_raise(&call->error);
    mu_value *result = call->status == MU_OK ? result_of(call) : NULL;
    free_run(run);
    return result;
}

mu_value *mu__served_call(mu_strategy *strategy, int worker, mu_function *function, mu_value *arguments)
{
    served_run *run = start(strategy, worker, worker + 1, function, arguments);
    return run ? finish(run) : NULL;
}

// A call on its way to a device's thread. Its caller may be cancelled while the thread is busy with another call; the
// order is then withdrawn, and the thread frees it when it gets there. Otherwise the caller frees it.
typedef struct order {
    served_call *call;
    atomic_int state;
} order;
enum { ORDER_WAITS, ORDER_TAKEN, ORDER_WITHDRAWN };

static bool order_becomes(order *o, int state)
{
    int waits = ORDER_WAITS;
    return atomic_compare_exchange_strong(&o->state, &waits, state);
}

static void withdraw(void *arg)
{
    order *o = arg;
    served_call *call = o->call; // read before the order is the thread's
    if (!order_becomes(o, ORDER_WITHDRAWN))
        return;
    call->withdrawn = true;
    mu__latch_arrive(&call->done);
}

static void take_order(void *arg)
{
    order *o = arg;
    if (order_becomes(o, ORDER_TAKEN))
        do_posted_call(o->call);
    else
        mu__free(o);
}

static mu_status wait_for_order(order *o)
{
    served_call *call = o->call;
    mu_cancel_hook hook = {.wake = withdraw, .arg = o};
    mu__cancel_hook_add(call->cancellation, &hook);
    (void)mu__latch_wait(&call->done, MU_FOREVER, "a function on a device");
    mu__cancel_hook_remove(call->cancellation, &hook);
    if (call->withdrawn)
        return mu__error(MU_CANCELLED, "'%s' was cancelled before it began", call->concrete->graph->name);
    mu__free(o);
    mu__error_raise(&call->error);
    return call->status;
}

// Gives a call to its device's thread and waits for the end.
static mu_status post_and_wait(mu_worker *worker, served_call *call)
{
    order *o = mu__calloc(1, sizeof *o);
    if (!o)
        return mu_error_code();
    o->call = call;
    mu_status status = mu__latch_init(&call->done, 1);
    status = status == MU_OK ? mu__worker_post(worker, take_order, o) : status;
    if (status == MU_OK)
        status = wait_for_order(o);
    else
        mu__free(o);
    mu__latch_free(&call->done);
    return status;
}

static mu_status run_on_device(served_call *call)
{
    mu_worker *worker = mu__served_thread(call->device);
    if (!worker)
        return mu_error_code();
    if (!mu__worker_is_here(worker))
        return post_and_wait(worker, call);
    do_call(call);
    mu__error_raise(&call->error);
    return call->status;
}

mu_status mu__served_run(mu_device *device, mu_concrete *concrete, mu_tensor *const *in, mu_tensor **out)
{
    served_call call = {.concrete = concrete,
                        .device = device,
                        .cancellation = mu__context()->cancellation,
                        .request = mu__context()->request};
    if (!(call.served = prepare(concrete, device)))
        return mu_error_code();
    const mu_segments *segments = call.served->segments;
    if (!(call.values = mu__calloc((size_t)segments->n_values + 1, sizeof *call.values)))
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < concrete->graph->inputs.n; i++)
        call.values[i] = mu_retain(in[i]);
    take_constants(&call);
    const mu_status status = run_on_device(&call);
    for (size_t i = 0; i < concrete->graph->outputs.n && status == MU_OK; i++)
        out[i] = mu_retain(call.values[segments->outputs[i]]);
    free_values(&call);
    return status;
}

// ---- As slots of a strategy ---------------------------------------------------------------------

void mu__warn_unscheduled(mu_strategy *strategy, const char *function)
{
    const mu_context *context = mu__context();
    if (strategy->servers && context->request == 0 && !context->trace &&
        !atomic_exchange(&strategy->servers->warned, true))
        mu__log(
            MU_LOG_WARNING,
            "%s under %s works in this process, not on the workers; for those, schedule a function with mu_schedule",
            function, mu_strategy_name(strategy));
}

// Runs that are started one after the other go to the workers' devices in turn, but use this process's values of
// per-worker variables.
mu_running *mu__run_served(mu_strategy *strategy, mu_function *function, mu_value *arguments)
{
    mu_servers *servers = strategy->servers;
    mu__warn_unscheduled(strategy, "mu_run");
    const int worker = (int)(atomic_fetch_add(&servers->n_runs, 1) % servers->n_workers);
    served_run *run = start(strategy, worker, 0, function, arguments);
    return run ? &run->head : NULL;
}

mu_value *mu__wait_served(mu_running *running) { return mu__give(finish((served_run *)running)); }
