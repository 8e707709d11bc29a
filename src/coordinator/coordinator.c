// The coordinator as programs see it: makes it, schedules, joins, fetches.
#include "coordinator/coordinator.h"

#include "rpc/server/call_metrics.h"
#include "rpc/rpc.h"

enum { MOST_QUEUED = 262144, PS_FAILURES_IGNORED = 3, WORKERS_PER_TIMEOUT = 10 };

// ---- Calls --------------------------------------------------------------------------------------

static void call_destroy(void *object)
{
    mu_call *call = object;
    mu_release(call->closure.output);
    mu_release(call->function);
    mu_release(call->arguments);
    mu_release(call->drawn);
    mu__free(call->not_drawn);
    mu_release(call->maker);
}

mu_type mu__call_type = {.name = "call of a coordinator", .destroy = call_destroy};

mu_call *mu__maker_call(const mu_per_worker_resource *per_worker, int worker)
{
    mu_call *call = mu__new(&mu__call_type, sizeof *call);
    if (!call)
        return NULL;
    call->closure.tag = worker;
    call->closure.output = mu_retain(per_worker->values[worker]);
    call->maker = mu_retain(per_worker->maker);
    return call;
}

static mu_call *function_call(mu_coordinator *c, mu_function *function, mu_value *arguments, double ratio)
{
    mu_call *call = mu__new(&mu__call_type, sizeof *call);
    if (!call)
        return NULL;
    call->number = c->n_scheduled++;
    call->ratio = ratio;
    call->closure.tag = MU_NO_TAG;
    call->function = mu_retain(function);
    call->arguments = mu_retain(arguments);
    if ((call->closure.output = mu__remote_value_new()))
        return call;
    mu_release(call);
    return NULL;
}

// ---- Making and ending it -----------------------------------------------------------------------

// Threads end with the queue, unless the call that one runs goes on although it is cancelled. Returns whether all have.
static bool all_ended(const mu_coordinator *c)
{
    enum { LOOK_NS = 1000000 };
    const int64_t deadline = mu__deadline_ns(mu__setting_real(MU_SETTING_TIMEOUT));
    for (int i = 0; i < c->n_workers; i++)
        while (c->workers[i].begun && !c->workers[i].ended) {
            if (mu__now_ns() >= deadline)
                return false;
            mu__sleep_ns(LOOK_NS);
        }
    return true;
}

static void free_workers(mu_coordinator *c)
{
    for (int i = 0; c->workers && i < c->n_workers; i++) {
        mu_dispatcher *d = &c->workers[i];
        if (d->thread)
            mu__worker_free(d->thread);
        if (d->task)
            d->task->ops->free(d->task);
    }
}

// What a thread uses that does not end stays for the rest of the process, and so do devices, on which its call runs.
static void leave_behind(mu_coordinator *c)
{
    static _Atomic(mu_coordinator *) left; // so that checkers of leaks find what is in use
    mu__watch_name_left(c);
    mu__closures_leave(c->queue);
    mu__runtime_keep(c->strategy->runtime);
    mu__keep_object(c);
    c->left = atomic_exchange(&left, c);
}

static void coordinator_destroy(void *object)
{
    mu_coordinator *c = object;
    mu__metrics_http_free(c->metrics);
    if (c->registered) {
        mu_servers *servers = c->strategy->servers;
        pthread_mutex_lock(&servers->coordinator_lock);
        if (servers->coordinator == c)
            servers->coordinator = NULL;
        pthread_mutex_unlock(&servers->coordinator_lock);
    }
    if (c->queue)
        mu__closures_stop(c->queue);
    const bool ended = all_ended(c);
    mu__watch_end(c);
    if (!ended) {
        leave_behind(c);
        return;
    }
    free_workers(c);
    mu__commits_free(c);
    mu__draws_free(&c->draws);
    mu__times_free(&c->times);
    mu__closures_free(c->queue);
    mu_release(c->resources);
    mu__free(c->workers);
    mu__free(c->ps_failures);
    mu_release(c->strategy);
}

static mu_type coordinator_type = {.name = "coordinator", .destroy = coordinator_destroy};

static void dispatch(void *arg)
{
    mu_dispatcher *d = arg;
    mu__dispatch(d);
    d->ended = true;
}

static mu_status start_worker(mu_coordinator *c, int i, mu_task_maker *maker, void *arg)
{
    char name[32];
    mu_dispatcher *d = &c->workers[i];
    d->coordinator = c;
    d->worker = i;
    d->attempt = -1;
    snprintf(name, sizeof name, "worker %d", i);
    if ((d->task = maker(c->strategy, i, arg)))
        d->task->ending = mu__closures_ending(c->queue);
    if (!d->task || !(d->thread = mu__worker_new(name, NULL, 0, c->strategy->runtime)))
        return mu_error_code();
    d->begun = mu__worker_post(d->thread, dispatch, d) == MU_OK;
    return mu_error_code();
}

static mu_status fill(mu_coordinator *c, const mu_coordinator_args *args, mu_task_maker *maker, void *arg)
{
    mu_strategy *strategy = args->strategy;
    c->strategy = mu_retain(strategy);
    const bool unbounded = args->max_queued < 0 || (args->max_queued == 0 && MU_GIVEN(args, max_queued));
    c->queue = mu__closures_new(unbounded ? 0 : args->max_queued > 0 ? args->max_queued : MOST_QUEUED);
    if (unbounded)
        mu__log(
            MU_LOG_WARNING,
            "mu_coordinator_new: max_queued is %lld: any number of calls can wait, and keep their arguments in memory",
            (long long)args->max_queued);
    c->start_delay = args->schedule_start_delay;
    c->start_delay_max = args->schedule_start_delay_max;
    c->resources = mu__resource_list_new();
    c->workers = mu__calloc((size_t)strategy->servers->n_workers, sizeof *c->workers);
    c->ps_failures = mu__calloc((size_t)strategy->servers->n, sizeof *c->ps_failures);
    if (!c->queue || !c->resources || !c->workers || !c->ps_failures)
        return mu_error_code();
    c->n_workers = strategy->servers->n_workers;
    MU_TRY(mu__random(&c->first_request, sizeof c->first_request));
    c->last_seen_ns = mu__now_ns();
    c->ps_failures_ignored =
        MU_GIVEN(args, ignore_transient_ps_failures) ? args->ignore_transient_ps_failures : PS_FAILURES_IGNORED;
    c->timeouts_ignored = MU_GIVEN(args, ignore_transient_timeouts) ? args->ignore_transient_timeouts
                                                                    : c->n_workers / WORKERS_PER_TIMEOUT;
    const mu_aggregation *aggregation = strategy->servers->aggregation;
    if (aggregation && aggregation->synchronous)
        mu__closures_in_steps(c->queue, aggregation->n, MU_MAX(c->n_workers - aggregation->n, 0));
    MU_TRY(mu__draws_init(&c->draws));
    mu_status status = mu__commits_init(c) == MU_OK ? mu__times_init(&c->times) : mu_error_code();
    if (status == MU_OK)
        status = mu__watch_begin(c);
    for (int i = 0; i < c->n_workers && status == MU_OK; i++)
        status = start_worker(c, i, maker, arg);
    return status == MU_OK ? mu__coordinator_serve_metrics(c) : status;
}

mu_coordinator *mu__coordinator_new(const mu_coordinator_args *args, mu_task_maker *maker, void *arg)
{
    mu_coordinator *c = mu__new(&coordinator_type, sizeof *c);
    if (c && fill(c, args, maker, arg) == MU_OK)
        return c;
    mu_release(c);
    return NULL;
}

// Retains the strategy's coordinator, unless it is ending. Called with the lock held.
static mu_coordinator *existing(const mu_servers *servers)
{
    mu_coordinator *c = servers->coordinator;
    int references = c ? atomic_load(&c->object.references) : 0;
    while (references > 0 && !atomic_compare_exchange_weak(&c->object.references, &references, references + 1))
        ;
    return references > 0 ? c : NULL;
}

static mu_status check_args(const mu_coordinator_args *args)
{
    if (!args->strategy || !args->strategy->servers)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_coordinator_new: the strategy is %s; give one of mu_parameter_server_strategy",
                         args->strategy ? mu_strategy_name(args->strategy) : "NULL");
    if (!(args->schedule_start_delay >= 0 && args->schedule_start_delay_max >= 0))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_coordinator_new: schedule_start_delay is %g and its maximum %g; give 0 or more seconds",
                         args->schedule_start_delay, args->schedule_start_delay_max);
    if (args->ignore_transient_ps_failures < 0 || args->ignore_transient_timeouts < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_coordinator_new: %d failures and %d timeouts are to be ignored; give 0 or more",
                         args->ignore_transient_ps_failures, args->ignore_transient_timeouts);
    return MU_OK;
}

mu_coordinator *mu_coordinator_new_with(const mu_coordinator_args *given)
{
    mu_coordinator_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_coordinator_new") != MU_OK ||
        check_args(&args) != MU_OK)
        return NULL;
    mu_servers *servers = args.strategy->servers;
    pthread_mutex_lock(&servers->coordinator_lock);
    mu_coordinator *c = existing(servers);
    if (!c)
        c = mu__coordinator_new(&args, servers->remote ? mu__remote_task : mu__local_task, NULL);
    servers->coordinator = c;
    if (c)
        c->registered = true;
    pthread_mutex_unlock(&servers->coordinator_lock);
    return mu__give(c);
}

// ---- Scheduling ---------------------------------------------------------------------------------

// Looks through the arguments of a call; sets *per_worker if a part is.
static mu_status check_arguments(const mu_coordinator *c, const mu_value *value, bool *per_worker)
{
    if (value->kind == MU_VALUE_REMOTE)
        return mu__error(MU_INVALID_ARGUMENT, "mu_schedule: the result of another call is among the arguments; fetch "
                                              "it first, or do both in one function");
    if (value->kind == MU_VALUE_PER_WORKER) {
        *per_worker = true;
        if (((const mu_per_worker_resource *)value->leaf)->list != c->resources)
            return mu__error(MU_INVALID_ARGUMENT, "mu_schedule: a per-worker value of another coordinator is among the "
                                                  "arguments; make one with this coordinator");
    }
    for (int i = 0; i < value->n; i++)
        MU_TRY(check_arguments(c, value->items[i], per_worker));
    return MU_OK;
}

mu_concrete *mu__coordinator_trace(mu_coordinator *c, mu_function *function, const mu_value *arguments)
{
    const int before = mu_function_trace_count(function);
    const int64_t begin = mu__now_ns();
    mu_concrete *concrete = mu__served_trace(c->strategy, function, arguments);
    if (mu_function_trace_count(function) > before)
        mu__times_add(&c->times, MU_TIMED_TRACING, begin);
    return concrete;
}

static mu_status check_call(const mu_schedule_args *args)
{
    bool per_worker = false;
    MU_TRY(mu__need(args->coordinator, "mu_schedule: the coordinator"));
    MU_TRY(mu__need(args->function, "mu_schedule: the function"));
    MU_TRY(mu__need_value(args->arguments, "mu_schedule"));
    if (args->arguments)
        MU_TRY(check_arguments(args->coordinator, args->arguments, &per_worker));
    if (per_worker)
        return MU_OK;
    mu_strategy *strategy = args->coordinator->strategy;
    const bool aggregates = strategy->servers->aggregation != NULL;
    mu_function *function = aggregates ? mu__aggregated(args->function) : args->function;
    mu_value *own = aggregates ? mu__aggregated_arguments(args->arguments, 0, 1) : args->arguments;
    const mu_concrete *concrete = function ? mu__coordinator_trace(args->coordinator, function, own) : NULL;
    if (!concrete)
        return mu_error_code();
    return aggregates ? mu__aggregation_check(strategy, concrete->graph) : MU_OK;
}

static mu_value *schedule(const mu_schedule_args *args, double ratio)
{
    if (check_call(args) != MU_OK)
        return NULL;
    mu_call *call = function_call(args->coordinator, args->function, args->arguments, ratio);
    mu_value *result = call ? mu__give(mu__value_leaf(MU_VALUE_REMOTE, call->closure.output)) : NULL;
    if (result && mu__closures_put(args->coordinator->queue, &call->closure, args->no_wait ? 0 : MU_FOREVER) != MU_OK)
        result = NULL;
    mu_release(call);
    return result;
}

mu_value *mu__schedule(mu_coordinator *coordinator, mu_function *function, mu_value *arguments, double ratio)
{
    return schedule(&(mu_schedule_args){.coordinator = coordinator, .function = function, .arguments = arguments},
                    ratio);
}

mu_value *mu_schedule_with(const mu_schedule_args *given)
{
    mu_schedule_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_schedule") != MU_OK)
        return NULL;
    const mu_aggregation *aggregation = args.coordinator ? args.coordinator->strategy->servers->aggregation : NULL;
    return schedule(&args, aggregation ? aggregation->n : 1);
}

mu_status mu_join_with(const mu_join_args *given)
{
    mu_join_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_join") != MU_OK)
        return mu_error_code();
    MU_TRY(mu__need(args.coordinator, "mu_join: the coordinator"));
    if (MU_GIVEN(&args, timeout_seconds) && !(args.timeout_seconds >= 0))
        return mu__error(MU_INVALID_ARGUMENT, "mu_join: timeout_seconds is %g; give 0 or more", args.timeout_seconds);
    const int64_t deadline = MU_GIVEN(&args, timeout_seconds) ? mu__deadline_ns(args.timeout_seconds) : MU_FOREVER;
    mu__commit_joining(args.coordinator, 1);
    const mu_status status = mu__closures_wait(args.coordinator->queue, deadline);
    mu__commit_joining(args.coordinator, -1);
    return status;
}

mu_status mu_done(mu_coordinator *coordinator, bool *done)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(coordinator, "mu_done: the coordinator"));
    MU_TRY(mu__need(done, "mu_done: the result"));
    return mu__closures_done(coordinator->queue, done);
}

// ---- Fetching -----------------------------------------------------------------------------------

static mu_value *fetch_leaf(const mu_value *leaf, const void *arg)
{
    (void)arg;
    if (leaf->kind == MU_VALUE_REMOTE)
        return mu__give(mu__remote_value_take((mu_remote_value *)leaf->leaf, MU_FOREVER));
    if (leaf->kind != MU_VALUE_PER_WORKER)
        return (mu_value *)leaf;
    mu__error(MU_INVALID_ARGUMENT,
              "mu_fetch: a per-worker value is different on each worker; schedule a function that returns it");
    return NULL;
}

mu_value *mu_fetch(mu_value *value)
{
    if (mu__pending() || mu__need(value, "mu_fetch: the value") != MU_OK || mu__need_value(value, "mu_fetch") != MU_OK)
        return NULL;
    return mu__map_parts(value, true, fetch_leaf, NULL);
}

// ---- Per worker ---------------------------------------------------------------------------------

static mu_value *create(mu_coordinator *c, const mu_maker *maker)
{
    const bool drawn_here = mu__makes_dataset(maker) && c->strategy->servers->aggregation;
    mu_per_worker_resource *made = mu__per_worker_new(c->resources, c->n_workers, maker, drawn_here);
    mu_value *value = made ? mu__give(mu__value_leaf(MU_VALUE_PER_WORKER, made)) : NULL;
    for (int i = 0; value && !drawn_here && i < c->n_workers; i++) {
        mu_call *call = mu__maker_call(made, i);
        if (call)
            mu__closures_put_tagged(c->queue, &call->closure);
        else
            value = NULL;
        mu_release(call);
    }
    mu_release(made);
    return value;
}

static mu_status check_dataset(const mu_create_per_worker_dataset_args *args)
{
    static const char function[] = "mu_create_per_worker_dataset";
    const void *dataset = args->dataset;
    if (!args->coordinator)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the coordinator is NULL", function);
    if (!args->fn == !dataset)
        return mu__error(MU_INVALID_ARGUMENT,
                         dataset ? "%s: a function and .dataset are both given; give one"
                                 : "%s: the function is NULL; give one, or .dataset",
                         function);
    return !dataset || mu__is(dataset, &mu__dataset_type) || mu__is(dataset, &mu__distributed_type)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: .dataset is neither a dataset nor a distributed dataset",
                           function);
}

// A dataset that the program gives. Of a distributed one the calls of a synchronous step get a part of each batch.
static mu_maker maker_of(const mu_strategy *strategy, const mu_create_per_worker_dataset_args *args)
{
    const mu_aggregation *aggregation = strategy->servers->aggregation;
    void *given = (void *)(uintptr_t)(const void *)args->dataset;
    mu_maker maker = {.dataset = args->fn, .arg = args->arg, .made = given};
    bool batches = false;
    if (!given || mu__is(given, &mu__dataset_type))
        return maker;
    maker.made = mu__distributed_source(given, strategy, &batches);
    maker.shared = true;
    if (maker.made && batches && aggregation && aggregation->n > 1)
        maker.made = mu__dataset_split(maker.made, aggregation->n);
    return maker;
}

mu_value *mu_create_per_worker_dataset_with(const mu_create_per_worker_dataset_args *given)
{
    mu_create_per_worker_dataset_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_create_per_worker_dataset") != MU_OK ||
        check_dataset(&args) != MU_OK)
        return NULL;
    const mu_maker maker = maker_of(args.coordinator->strategy, &args);
    return mu__makes_dataset(&maker) ? create(args.coordinator, &maker) : NULL;
}

mu_value *mu_create_per_worker_values(mu_coordinator *coordinator, mu_value *(*fn)(void *arg), void *arg)
{
    if (mu__pending())
        return NULL;
    if (!coordinator || !fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_create_per_worker_values: the %s is NULL",
                  coordinator ? "function" : "coordinator");
        return NULL;
    }
    return create(coordinator, &(mu_maker){.value = fn, .arg = arg});
}

// ---- Numbers ------------------------------------------------------------------------------------

mu_status mu_coordinator_worker_calls(mu_coordinator *coordinator, int worker, mu_worker_calls *out)
{
    MU_TRY(mu__need(coordinator, "mu_coordinator_worker_calls: the coordinator"));
    MU_TRY(mu__need(out, "mu_coordinator_worker_calls: the result"));
    if (worker < 0 || worker >= coordinator->n_workers)
        return mu__error(MU_OUT_OF_RANGE, "mu_coordinator_worker_calls: worker %d of %d", worker,
                         coordinator->n_workers);
    const mu_dispatcher *d = &coordinator->workers[worker];
    *out = (mu_worker_calls){.in_flight = d->in_flight,
                             .done = d->done,
                             .failed = d->failed,
                             .retried = d->retried,
                             .dropped = d->dropped,
                             .lost = d->lost,
                             .slow = mu__watch_is_slow(d),
                             .call_seconds = mu__watch_call_age(d)};
    return MU_OK;
}

int64_t mu_coordinator_queued(mu_coordinator *coordinator)
{
    int64_t waiting = -1, in_flight;
    if (coordinator)
        mu__closures_count(coordinator->queue, &waiting, &in_flight);
    return waiting;
}
