// Cases QUEUE of the parameter-server list: the queue of a coordinator.
#include "cases.h"
#include "coordinator/closure_queue.h"

#include <pthread.h>

// ---- The queue ----------------------------------------------------------------------------------

typedef struct call {
    mu_closure closure;
    int runs;
} call;

static void call_destroy(void *object) { mu_release(((call *)object)->closure.output); }

static mu_type call_type = {.name = "test call", .destroy = call_destroy};

static call *new_call(int tag)
{
    call *made = mu__give(mu__new(&call_type, sizeof *made));
    made->closure.tag = tag;
    made->closure.output = mu__remote_value_new();
    return made;
}

static int64_t in_a_minute(void) { return mu__deadline_ns(60); }

static mu_status put(mu_closure_queue *queue, call *c) { return mu__closures_put(queue, &c->closure, in_a_minute()); }

// Takes a call, and returns what cancels it with a reference in *cancellation (may be NULL).
static call *get(mu_closure_queue *queue, int tag, mu_cancellation **cancellation)
{
    mu_cancellation *own = NULL;
    mu_closure *taken = mu__closures_get(queue, tag, in_a_minute(), &own);
    if (cancellation)
        *cancellation = own;
    else
        mu_release(own);
    return mu__give(taken);
}

static void fail_with(mu_closure_queue *queue, call *c, mu_status code)
{
    const mu_error_value error = {.code = code, .message = "failed"};
    mu__remote_value_fail(c->closure.output, &error);
    mu__closures_failed(queue, &c->closure, &error);
}

static mu_status outcome_of(call *c)
{
    mu_release(mu__remote_value_take(c->closure.output, in_a_minute()));
    return mu_error_take().code;
}

// Puts its first call back, and ends all others.
static void *consume(void *arg)
{
    mu_closure_queue *queue = arg;
    for (int n = 0;; n++) {
        mu_cancellation *cancellation = NULL;
        mu_closure *taken = mu__closures_get(queue, MU_NO_TAG, MU_FOREVER, &cancellation);
        mu_release(cancellation);
        if (!taken)
            return NULL;
        if (n == 0) {
            mu__closures_put_back(queue, taken);
        } else {
            ((call *)taken)->runs++;
            mu__closures_finished(queue, taken);
        }
        mu_release(taken);
    }
}

static void with_limit_043(int64_t capacity)
{
    mu_closure_queue *queue = mu__closures_new(capacity);
    call *calls[5];
    pthread_t consumers[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&consumers[i], NULL, consume, queue) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(put(queue, calls[i] = new_call(MU_NO_TAG)) == MU_OK);
    for (int i = 0; i < 4; i++)
        CHECK(mu__closures_wait(queue, in_a_minute()) == MU_OK);
    mu__closures_stop(queue);
    for (int i = 0; i < 2; i++)
        pthread_join(consumers[i], NULL);
    for (int i = 0; i < 5; i++)
        CHECK(calls[i]->runs == 1);
    mu__closures_free(queue);
}

static void ps_043(void) { with_limit_043(0); }

static void ps_050(void) { with_limit_043(2); }

static void ps_044(void)
{
    mu_closure_queue *queue = mu__closures_new(0);
    call *c1 = new_call(MU_NO_TAG), *c2 = new_call(MU_NO_TAG), *c3 = new_call(MU_NO_TAG);
    bool done = false;
    put(queue, c1);
    put(queue, c2);
    fail_with(queue, get(queue, MU_NO_TAG, NULL), MU_OUT_OF_RANGE);
    CHECK(put(queue, c3) == MU_OUT_OF_RANGE);
    EXPECT_ERROR(MU_OUT_OF_RANGE);
    CHECK(mu__closures_done(queue, &done) == MU_OK && done);
    CHECK(outcome_of(c2) == MU_CANCELLED && outcome_of(c3) == MU_CANCELLED && outcome_of(c1) == MU_OUT_OF_RANGE);
    CHECK(put(queue, new_call(MU_NO_TAG)) == MU_OK);
    mu__closures_free(queue);
}

static void ps_046(void)
{
    mu_closure_queue *queue = mu__closures_new(0);
    bool done = true;
    put(queue, new_call(MU_NO_TAG));
    put(queue, new_call(MU_NO_TAG));
    call *taken = get(queue, MU_NO_TAG, NULL);
    CHECK(mu__closures_done(queue, &done) == MU_OK && !done);
    fail_with(queue, taken, MU_ABORTED);
    CHECK(mu__closures_done(queue, &done) == MU_ABORTED);
    EXPECT_ERROR(MU_ABORTED);
    mu__closures_free(queue);
}

typedef struct waiter {
    mu_closure_queue *queue;
    call *putting; // NULL: waits
    mu_status status;
    atomic_bool returned;
} waiter;

static void *wait_or_put(void *arg)
{
    waiter *w = arg;
    w->status = w->putting ? put(w->queue, w->putting) : mu__closures_wait(w->queue, in_a_minute());
    mu_error_take();
    w->returned = true;
    return NULL;
}

static void raise_while_one_runs(bool with_put)
{
    mu_closure_queue *queue = mu__closures_new(0);
    call *calls[3], *second;
    mu_cancellation *cancellation = NULL, *fresh = NULL;
    int64_t waiting = -1, in_flight = -1;
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        put(queue, calls[i] = new_call(MU_NO_TAG));
    call *first = get(queue, MU_NO_TAG, NULL);
    second = get(queue, MU_NO_TAG, &cancellation);
    fail_with(queue, first, MU_INVALID_ARGUMENT);
    waiter w = {.queue = queue, .putting = with_put ? new_call(MU_NO_TAG) : NULL};
    CHECK(pthread_create(&thread, NULL, wait_or_put, &w) == 0);
    while (!mu_cancellation_is_cancelled(cancellation))
        ;
    CHECK(!w.returned);
    fail_with(queue, second, MU_UNAVAILABLE);
    pthread_join(thread, NULL);
    CHECK(w.status == MU_INVALID_ARGUMENT && outcome_of(calls[0]) == MU_INVALID_ARGUMENT);
    CHECK(outcome_of(calls[1]) == MU_UNAVAILABLE && outcome_of(calls[2]) == MU_CANCELLED);
    mu__closures_count(queue, &waiting, &in_flight);
    CHECK(waiting == 0 && in_flight == 0);
    put(queue, new_call(MU_NO_TAG));
    mu__closures_finished(queue, &get(queue, MU_NO_TAG, &fresh)->closure);
    CHECK(fresh != cancellation && !mu_cancellation_is_cancelled(fresh));
    mu_release(cancellation);
    mu_release(fresh);
    mu__closures_free(queue);
}

static void ps_047(void)
{
    raise_while_one_runs(false);
    raise_while_one_runs(true);
}

static void ps_049(void)
{
    mu_closure_queue *queue = mu__closures_new(0);
    call *one = new_call(1), *two = new_call(2), *untagged = new_call(MU_NO_TAG);
    bool done = false;
    mu__closures_put_tagged(queue, &one->closure);
    mu__closures_put_tagged(queue, &two->closure);
    put(queue, untagged);
    CHECK(get(queue, 2, NULL) == two);
    CHECK(get(queue, 2, NULL) == untagged);
    mu__closures_finished(queue, &untagged->closure);
    CHECK(mu__closures_done(queue, &done) == MU_OK && done);
    CHECK(mu__closures_wait(queue, in_a_minute()) == MU_OK);
    mu__closures_free(queue);
}

const one_case coordinator_cases[] = {
    {"ps-043", ps_043, NULL}, {"ps-044", ps_044, NULL}, {"ps-046", ps_046, NULL}, {"ps-047", ps_047, NULL},
    {"ps-049", ps_049, NULL}, {"ps-050", ps_050, NULL}, {NULL, NULL, NULL},
};
