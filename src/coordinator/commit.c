// Steps that happen as a whole: see commit.h.
#include "coordinator/coordinator.h"

#include <stdlib.h>

mu_status mu__commits_init(mu_coordinator *c)
{
    c->commits.has_lock = mu__lock_init(&c->commits.lock, "mu_coordinator_new");
    if (!c->commits.has_lock)
        return mu_error_code();
    return MU_OK;
}

static void free_ended(mu_ended_call *ended)
{
    mu_release(ended->call);
    mu_release(ended->result);
    mu_release(ended->graph);
}

int64_t mu__commit_attempt(mu_dispatcher *d)
{
    mu_commits *commits = &d->coordinator->commits;
    pthread_mutex_lock(&commits->lock);
    d->attempt = commits->next_attempt++;
    pthread_mutex_unlock(&commits->lock);
    return d->attempt;
}

void mu__commit_abandoned(mu_dispatcher *d)
{
    pthread_mutex_lock(&d->coordinator->commits.lock);
    d->attempt = -1;
    pthread_mutex_unlock(&d->coordinator->commits.lock);
}

// ---- Ending calls -------------------------------------------------------------------------------

// The commit is counted before a thread that waits for the result can query the count.
static void count(mu_dispatcher *d, const mu_call *call, void *result)
{
    const int64_t begin = mu__now_ns();
    d->done++;
    mu__remote_value_set(call->closure.output, result);
    mu__times_add(&d->coordinator->times, MU_TIMED_FETCH, begin);
    d->coordinator->watch.last_done_ns = mu__now_ns();
    mu__closures_finished(d->coordinator->queue, &call->closure);
}

static void fail(mu_dispatcher *d, const mu_call *call, const mu_error_value *error)
{
    mu__remote_value_fail(call->closure.output, error);
    d->failed++;
    mu__closures_failed(d->coordinator->queue, &call->closure, error);
}

static void forget_all(mu_coordinator *c)
{
    for (size_t i = 0; i < c->commits.ended.n; i++)
        free_ended(&c->commits.ended.items[i]);
    c->commits.ended.n = 0;
}

static void drop_all(mu_coordinator *c)
{
    static const mu_error_value cancelled = {
        .code = MU_CANCELLED,
        .file = __FILE__,
        .line = __LINE__,
        .message = "the call was cancelled because another one of its step failed, or because the coordinator ended"};
    for (size_t i = 0; i < c->commits.ended.n; i++) {
        const mu_ended_call *ended = &c->commits.ended.items[i];
        mu__remote_value_fail(ended->call->closure.output, &cancelled);
        mu__closures_finished(c->queue, &ended->call->closure);
    }
    forget_all(c);
}

void mu__commit_drop(mu_coordinator *c)
{
    pthread_mutex_lock(&c->commits.lock);
    drop_all(c);
    pthread_mutex_unlock(&c->commits.lock);
}

// Calls that wait for others of their step end with the coordinator.
void mu__commits_free(mu_coordinator *c)
{
    drop_all(c);
    mu__free(c->commits.ended.items);
    mu__step_plans_free(&c->commits.plans);
    if (c->commits.has_lock)
        pthread_mutex_destroy(&c->commits.lock);
}

// ---- Applying a step ----------------------------------------------------------------------------

// In the order in which the calls were scheduled, so that the sums do not depend on which ended first.
static int in_order(const void *left, const void *right)
{
    const mu_ended_call *a = left, *b = right;
    return (a->call->number > b->call->number) - (a->call->number < b->call->number);
}

// The first attempt that may still count: none that is out now, if the calls make a step together.
static int64_t next_step(const mu_coordinator *c)
{
    int64_t least = c->commits.next_attempt;
    if (c->strategy->servers->aggregation->synchronous)
        return least;
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].attempt >= 0)
            least = MU_MIN(least, c->workers[i].attempt);
    return least;
}

static mu_status apply(mu_coordinator *c)
{
    const int n = (int)c->commits.ended.n;
    mu_ended_call *ended = c->commits.ended.items;
    mu_graph **graphs = mu__calloc((size_t)n + 1, sizeof(mu_graph *));
    int64_t *attempts = mu__calloc((size_t)n + 1, sizeof *attempts);
    qsort(ended, (size_t)n, sizeof *ended, in_order);
    for (int i = 0; i < n && graphs && attempts; i++) {
        graphs[i] = ended[i].graph;
        attempts[i] = ended[i].attempt;
    }
    const mu_status status =
        graphs && attempts ? mu__aggregation_apply(c->strategy, &c->commits.plans, n, graphs, attempts, next_step(c))
                           : MU_RESOURCE_EXHAUSTED;
    mu__free(graphs);
    mu__free(attempts);
    return status;
}

// The end of the coordinator ends it too: a server that does not answer would hold that up.
static void apply_in_context(mu_coordinator *c, mu_error_value *error)
{
    mu_context context = {0};
    if (mu__context_enter(&context, mu__context()) != MU_OK) {
        mu__error_move(error);
        return;
    }
    if (context.cancellation == NULL)
        context.cancellation = mu__closures_ending(c->queue);
    apply(c);
    mu__context_leave(&context, NULL, error);
}

// With the lock held.
static void commit(mu_coordinator *c)
{
    mu_error_value error = {.code = MU_OK};
    if (c->commits.ended.n == 0)
        return;
    apply_in_context(c, &error);
    for (size_t i = 0; i < c->commits.ended.n; i++) {
        const mu_ended_call *ended = &c->commits.ended.items[i];
        if (error.code == MU_OK)
            count(ended->worker, ended->call, ended->result);
        else
            fail(ended->worker, ended->call, &error);
    }
    forget_all(c);
}

// Applies a step with fewer calls, if no other call can join it. With the lock held.
static void commit_rest(mu_coordinator *c)
{
    int64_t waiting, in_flight;
    mu__closures_count(c->queue, &waiting, &in_flight);
    if (c->commits.joining > 0 && waiting == 0 && in_flight == (int64_t)c->commits.ended.n)
        commit(c);
}

void mu__commit_joining(mu_coordinator *c, int change)
{
    pthread_mutex_lock(&c->commits.lock);
    c->commits.joining += change;
    if (change > 0)
        commit_rest(c);
    pthread_mutex_unlock(&c->commits.lock);
}

// The graph of an attempt whose gradients wait at the servers; NULL: it leaves none.
static mu_graph *graph_of(const mu_dispatcher *d)
{
    const mu_strategy *strategy = d->coordinator->strategy;
    const mu_concrete *concrete = d->traced;
    return concrete && mu__aggregation_leaves(strategy->servers->aggregation, concrete->graph) ? concrete->graph : NULL;
}

void mu__commit_ended(mu_dispatcher *d, mu_call *call, void *result)
{
    mu_coordinator *c = d->coordinator;
    pthread_mutex_lock(&c->commits.lock);
    mu_graph *graph = graph_of(d);
    const mu_ended_call ended = {.call = call, .worker = d, .result = result, .graph = graph, .attempt = d->attempt};
    mu_error_value error = {.code = MU_OK};
    if (mu__closures_failing(c->queue) || (graph && MU_PUSH(&c->commits.ended, ended) != MU_OK)) {
        mu__error_move(&error);
        if (error.code == MU_OK)
            error = (mu_error_value){.code = MU_CANCELLED, .message = "another call of the step failed"};
        fail(d, call, &error);
    } else if (!graph) {
        count(d, call, result);
    } else {
        mu_retain(call);
        mu_retain(result);
        mu_retain(graph);
    }
    d->attempt = -1;
    if ((int)c->commits.ended.n >= c->strategy->servers->aggregation->n)
        commit(c);
    else
        commit_rest(c);
    pthread_mutex_unlock(&c->commits.lock);
}
