// What a coordinator's thread does for one worker: takes calls, runs them, and decides what a failure means.
//
// The order of the questions is TensorFlow's: did a server fail, and for how many times is that ignored; did time run
// out, likewise; is the worker lost, unless everything is being cancelled anyway; else the error is the call's.
#include "coordinator/coordinator.h"

#include "base/planted.h"
#include "base/system.h"
#include "rpc/rpc.h"

// ---- Running one call ---------------------------------------------------------------------------

static mu_value *own_argument(const mu_value *leaf, const void *arg)
{
    const mu_dispatcher *d = arg;
    return leaf->kind == MU_VALUE_PER_WORKER
               ? mu__per_worker_argument((const mu_per_worker_resource *)leaf->leaf, d->worker)
               : (mu_value *)leaf;
}

// Runs a function on the worker, which is traced for what the worker has.
static void *run_traced(mu_dispatcher *d, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    const mu_task_ops *ops = d->task->ops;
    mu_value *specs = ops->specs ? ops->specs(d->task, arguments, failure) : arguments;
    d->traced = mu__pending() ? NULL : mu__coordinator_trace(d->coordinator, function, specs);
    return d->traced ? ops->call(d->task, function, arguments, failure) : NULL;
}

// An attempt leaves its gradients under its number.
static void *run_attempt(mu_dispatcher *d, const mu_call *call, mu_value *arguments, mu_task_failure *failure)
{
    mu_function *function = mu__aggregated(call->function);
    mu_value *own = mu__aggregated_arguments(arguments, mu__commit_attempt(d), call->ratio);
    return function && own ? run_traced(d, function, own, failure) : NULL;
}

// Makes the worker's per-worker values: on the worker if their function can be sent, else in this process.
static void *make(mu_dispatcher *d, mu_maker *maker, mu_task_failure *failure)
{
    const mu_coordinator *c = d->coordinator;
    const mu_task_ops *ops = d->task->ops;
    void *made = mu__per_worker_make(c->strategy, c->resources, maker, d->worker);
    if (!made || !ops->keep)
        return mu__per_worker_here(made);
    void *kept = ops->keep(d->task, made, failure);
    if (kept || mu_error_code() != MU_UNIMPLEMENTED) {
        mu_release(made);
        return kept;
    }
    mu_error_value why;
    mu__error_move(&why);
    if (!atomic_exchange(&maker->logged, true))
        mu__log(MU_LOG_INFO, "values and datasets of each worker stay in the coordinator and are sent with calls: %s",
                why.message);
    return mu__per_worker_here(made);
}

// Returns the result, owned, or NULL.
static void *run(mu_dispatcher *d, mu_call *call, mu_task_failure *failure)
{
    mu_coordinator *c = d->coordinator;
    const bool aggregates = c->strategy->servers->aggregation != NULL;
    if (call->maker)
        return make(d, call->maker, failure);
    mu_value *arguments = aggregates ? mu__draws_arguments(c, call) : call->arguments;
    if (arguments && !mu__pending())
        arguments = mu__map_parts(arguments, true, own_argument, d);
    if (mu__pending())
        return NULL;
    return aggregates ? run_attempt(d, call, arguments, failure) : run_traced(d, call->function, arguments, failure);
}

typedef struct outcome {
    void *result; // owned; NULL: failed
    mu_error_value error;
    mu_task_failure failure;
} outcome;

static const char *call_name(const mu_call *call)
{
    return call->maker ? "per worker" : mu_function_name(call->function);
}

static uint64_t next_request(mu_coordinator *c)
{
    const uint64_t number = (c->first_request + atomic_fetch_add(&c->n_requests, 1)) & MU_REQUEST_MASK;
    return number != 0 ? number : 1;
}

static outcome run_in_context(mu_dispatcher *d, mu_call *call, mu_cancellation *cancellation)
{
    outcome o = {0};
    mu_context context = {0};
    if (mu__context_enter(&context, mu__context()) != MU_OK) {
        mu__error_move(&o.error);
        return o;
    }
    context.cancellation = cancellation;
    context.request = next_request(d->coordinator);
    const int64_t begin = mu__now_ns();
    o.result = run(d, call, &o.failure);
    mu__span_request("schedule", call_name(call), context.request, begin, mu__now_ns());
    if (o.result && !call->maker)
        mu__times_add(&d->coordinator->times, MU_TIMED_EXECUTION, begin);
    mu__context_leave(&context, NULL, &o.error);
    return o;
}

// ---- What a failure means -----------------------------------------------------------------------

// Whether a report of trouble that may pass is ignored; with TensorFlow's rule, the report that reaches the limit is
// not.
static bool ignored(atomic_int *reports, int limit) { return atomic_fetch_add(reports, 1) + 1 < limit; }

typedef enum verdict { VERDICT_ERROR, VERDICT_AGAIN, VERDICT_LOST } verdict;

static verdict judge(mu_dispatcher *d, const outcome *o)
{
    mu_coordinator *c = d->coordinator;
    if (o->failure.blame == MU_BLAME_SERVER)
        return ignored(&c->ps_failures[o->failure.server], c->ps_failures_ignored) ? VERDICT_AGAIN : VERDICT_ERROR;
    if (o->error.code == MU_DEADLINE_EXCEEDED)
        return ignored(&c->timeouts, c->timeouts_ignored) ? VERDICT_AGAIN : VERDICT_ERROR;
    if (o->error.code == MU_FAILED_PRECONDITION && MU_PLANTED(MU_DEFECT_RETRIED_ERROR))
        return VERDICT_AGAIN;
    return o->failure.blame == MU_BLAME_WORKER && !mu__closures_cancelling(c->queue) ? VERDICT_LOST : VERDICT_ERROR;
}

// ---- A worker that is not there -----------------------------------------------------------------

// If no worker has been reachable for long, joins and fetches fail instead of waiting for ever. As long as there is no
// call, no thread waits for a worker.
static void look_for_any(mu_coordinator *c, const mu_error_value *why)
{
    const double limit = mu__setting_real(MU_SETTING_TIMEOUT);
    int64_t waiting, in_flight;
    mu__closures_count(c->queue, &waiting, &in_flight);
    if (waiting + in_flight == 0)
        c->last_seen_ns = mu__now_ns();
    if (c->n_away < c->n_workers || (double)(mu__now_ns() - c->last_seen_ns) / 1e9 < limit)
        return;
    mu_error_value error = {.code = MU_UNAVAILABLE, .file = __FILE__, .line = __LINE__};
    snprintf(error.message, sizeof error.message,
             "none of the %d workers has been reachable for %g s (MUSTER_TIMEOUT); start them again. The last attempt: "
             "%.400s",
             c->n_workers, limit, why->message);
    mu__closures_give_up(c->queue, &error);
    mu__commit_drop(c);
    c->last_seen_ns = mu__now_ns();
}

// Sleeps until then, or until the coordinator ends.
static void sleep_until(const mu_coordinator *c, int64_t until)
{
    while (mu__now_ns() < until && !mu__closures_stopped(c->queue))
        mu__sleep_ns(MU_MIN(until - mu__now_ns(), (int64_t)10000000));
}

// The end of the coordinator ends the attempt too: a host that does not answer would hold it up.
static bool try_to_reach(mu_dispatcher *d, mu_status (*reach)(mu_task *task), mu_error_value *why)
{
    mu_context context = {0};
    if (mu__context_enter(&context, mu__context()) == MU_OK) {
        context.cancellation = mu__closures_ending(d->coordinator->queue);
        (void)reach(d->task);
        mu__context_leave(&context, NULL, why);
    } else {
        mu__error_move(why);
    }
    return why->code == MU_OK;
}

// A worker that has not started yet is not lost, unless it takes longer than a heartbeat to appear.
static void look_for_start(mu_dispatcher *d, int64_t begun_ns, const mu_error_value *why)
{
    const double seconds = (double)(mu__now_ns() - begun_ns) / 1e9;
    if (d->lost || seconds < mu__setting_real(MU_SETTING_HEARTBEAT))
        return;
    mu__log(MU_LOG_WARNING,
            "worker %d has not been reachable since the start, for %.0f s; the others go on without it. Start it "
            "(muster serve), or see whether its address is right. The last attempt: %s",
            d->worker, seconds, why->message);
    d->lost = true;
    d->coordinator->n_lost++;
}

// Tries until the worker is there, each time a little later, up to a second. Returns false when the coordinator ends.
static bool wait_for_worker(mu_dispatcher *d, mu_status (*reach)(mu_task *task))
{
    mu_coordinator *c = d->coordinator;
    const int64_t begun = mu__now_ns();
    mu_error_value why = {.code = MU_OK};
    bool there = false;
    c->n_away++;
    for (int64_t pause = 1000000; !mu__closures_stopped(c->queue); pause = MU_MIN(pause * 13 / 10 + 1, 1000000000)) {
        if ((there = reach && try_to_reach(d, reach, &why)))
            break;
        look_for_start(d, begun, &why);
        look_for_any(c, &why);
        sleep_until(c, mu__now_ns() + pause);
    }
    c->n_away--;
    c->last_seen_ns = mu__now_ns();
    return there;
}

static void no_longer_lost(mu_dispatcher *d)
{
    if (atomic_exchange(&d->lost, false))
        d->coordinator->n_lost--;
}

// The worker may start after the coordinator. Until it is there it takes no calls, so none is lost with it.
static void wait_for_start(mu_dispatcher *d)
{
    if (!d->task->ops->reach || !wait_for_worker(d, d->task->ops->reach))
        return;
    if (d->lost)
        mu__log(MU_LOG_WARNING, "worker %d has started", d->worker);
    no_longer_lost(d);
}

// Everything that the worker had is made again, before its next call.
static void make_again(mu_dispatcher *d)
{
    mu_coordinator *c = d->coordinator;
    pthread_mutex_lock(&c->resources->monitor.lock);
    mu__closures_clear_tag(c->queue, d->worker);
    for (mu_per_worker_resource *at = c->resources->first; at; at = at->next) {
        mu_call *call = at->drawn_here ? NULL : mu__maker_call(at, d->worker);
        if (call)
            mu__closures_put_tagged(c->queue, &call->closure);
        mu_release(call);
    }
    pthread_mutex_unlock(&c->resources->monitor.lock);
    mu_error_value lost;
    mu__error_move(&lost); // without memory for a call, its value stays aborted and says so
}

static void recover(mu_dispatcher *d, const mu_error_value *error)
{
    mu_coordinator *c = d->coordinator;
    mu__log(MU_LOG_WARNING, "worker %d is lost, its call goes to another worker: %s", d->worker, error->message);
    d->lost = true;
    c->n_lost++;
    mu__per_worker_abort(c->resources, d->worker, error);
    if (!wait_for_worker(d, d->task->ops->recover))
        return;
    if (!MU_PLANTED(MU_DEFECT_LOST_VALUES))
        make_again(d);
    mu__log(MU_LOG_WARNING, "worker %d is back", d->worker);
    no_longer_lost(d);
}

// ---- The thread ---------------------------------------------------------------------------------

static void succeeded(mu_dispatcher *d, mu_call *call, void *result)
{
    mu_closure_queue *queue = d->coordinator->queue;
    d->coordinator->last_seen_ns = mu__now_ns();
    d->in_flight -= !call->maker;
    if (!mu__closures_attempt_ended(queue, &call->closure, true)) {
        d->dropped++;
        mu__commit_abandoned(d);
    } else if (!call->maker && d->coordinator->strategy->servers->aggregation) {
        mu__commit_ended(d, call, result);
    } else {
        const int64_t begin = mu__now_ns();
        d->done += !call->maker;
        mu__remote_value_set(call->closure.output, result);
        if (!call->maker)
            mu__times_add(&d->coordinator->times, MU_TIMED_FETCH, begin);
        d->coordinator->watch.last_done_ns = mu__now_ns();
        mu__closures_finished(queue, &call->closure);
    }
}

static void failed(mu_dispatcher *d, mu_call *call, const outcome *o)
{
    mu_closure_queue *queue = d->coordinator->queue;
    // What is made for a lost worker is made again with all the rest when it is back, also while calls are cancelled.
    const verdict v = !call->maker ? judge(d, o) : o->failure.blame == MU_BLAME_WORKER ? VERDICT_LOST : VERDICT_ERROR;
    d->in_flight -= !call->maker;
    mu__commit_abandoned(d);
    const bool decides = mu__closures_attempt_ended(queue, &call->closure, false);
    if (v == VERDICT_ERROR && decides) {
        // Set before the result has the error, so that a thread that fetches the result and then schedules gets the
        // error at once.
        if (!call->maker)
            mu__closures_raise(queue, &o->error);
        mu__remote_value_fail(call->closure.output, &o->error);
        d->failed += !call->maker;
        mu__closures_failed(queue, &call->closure, &o->error);
        if (!call->maker)
            mu__commit_drop(d->coordinator);
    }
    if (v == VERDICT_ERROR)
        return;
    d->retried += !call->maker;
    if (decides && !call->maker)
        mu__closures_put_back(queue, &call->closure);
    if (v == VERDICT_LOST)
        recover(d, &o->error);
}

// Workers that begin one after the other do not all ask the servers for everything at once.
static void start_later(const mu_dispatcher *d)
{
    const mu_coordinator *c = d->coordinator;
    const double wanted = c->start_delay * d->worker;
    sleep_until(c, mu__deadline_ns(c->start_delay_max > 0 ? MU_MIN(wanted, c->start_delay_max) : wanted));
}

void mu__dispatch(mu_dispatcher *d)
{
    mu_cancellation *cancellation = NULL;
    if (d->coordinator->start_delay > 0)
        start_later(d);
    wait_for_start(d);
    for (mu_closure *next; (next = mu__closures_get(d->coordinator->queue, d->worker, MU_FOREVER, &cancellation));) {
        mu_call *call = (mu_call *)next;
        d->in_flight += !call->maker;
        mu__watch_call_begun(d, call_name(call));
        outcome o = run_in_context(d, call, cancellation);
        mu__watch_call_ended(d);
        if (!call->maker && d->coordinator->strategy->servers->aggregation)
            mu__draws_pass(d->coordinator, call);
        if (o.error.code == MU_OK)
            succeeded(d, call, o.result);
        else
            failed(d, call, &o);
        mu_release(o.result);
        mu_release(call);
        mu_release(cancellation);
    }
}
