// The queue of a coordinator: see closure_queue.h.
//
// Two locks, as in TensorFlow: `callers` is held by mu__closures_put and mu__closures_wait for their whole duration, so
// that nothing is scheduled while a join waits; the monitor guards the state.
#include "coordinator/closure_queue.h"

typedef struct closures {
    mu_closure *first, *last;
    int64_t n;
} closures;

struct mu_closure_queue {
    pthread_mutex_t callers;
    bool callers_made;
    mu_monitor monitor;
    int64_t capacity;               // 0: no limit
    closures waiting, tagged;
    int64_t in_flight;
    mu_error_value error;           // the first; code MU_OK: none
    mu_cancellation *cancellation;  // of the calls that run; retained
    bool draining;                  // an error is being raised: nothing is handed out
    bool stopped;
};

// ---- Lists --------------------------------------------------------------------------------------

static void append(closures *list, mu_closure *closure)
{
    closure->next = NULL;
    *(list->last ? &list->last->next : &list->first) = closure;
    list->last = closure;
    list->n++;
}

// Takes the first closure with this tag out of a list; NULL if there is none.
static mu_closure *take(closures *list, int tag)
{
    mu_closure *before = NULL, *at = list->first;
    for (; at && at->tag != tag; at = at->next)
        before = at;
    if (!at)
        return NULL;
    *(before ? &before->next : &list->first) = at->next;
    if (list->last == at)
        list->last = before;
    at->next = NULL;
    list->n--;
    return at;
}

static void cancel(mu_closure *closure)
{
    static const mu_error_value cancelled = {
        .code = MU_CANCELLED, .file = __FILE__, .line = __LINE__,
        .message = "the call was cancelled because another one failed, or because the coordinator ended"};
    if (closure->output)
        mu__remote_value_fail(closure->output, &cancelled);
    mu_release(closure);
}

static void cancel_all(closures *list)
{
    for (mu_closure *closure; (closure = list->first);) {
        list->first = closure->next;
        cancel(closure);
    }
    *list = (closures){0};
}

// ---- Making and freeing -------------------------------------------------------------------------

static mu_cancellation *new_cancellation(void)
{
    mu_pool *pool = mu_pool_open();
    mu_cancellation *cancellation = pool ? mu_retain(mu_cancellation_new()) : NULL;
    mu_pool_close(pool);
    return cancellation;
}

mu_closure_queue *mu__closures_new(int64_t capacity)
{
    mu_closure_queue *queue = mu__calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->capacity = capacity;
    queue->callers_made = pthread_mutex_init(&queue->callers, NULL) == 0;
    if (!queue->callers_made)
        mu__error(MU_RESOURCE_EXHAUSTED, "coordinator: the system has no room for a lock; free memory");
    if (queue->callers_made && mu__monitor_init(&queue->monitor, "coordinator") == MU_OK &&
        (queue->cancellation = new_cancellation()))
        return queue;
    mu__closures_free(queue);
    return NULL;
}

void mu__closures_free(mu_closure_queue *queue)
{
    if (!queue)
        return;
    cancel_all(&queue->waiting);
    cancel_all(&queue->tagged);
    mu_release(queue->cancellation);
    mu__monitor_free(&queue->monitor);
    if (queue->callers_made)
        pthread_mutex_destroy(&queue->callers);
    mu__free(queue);
}

// ---- The error ----------------------------------------------------------------------------------

// Waits for the calls that run; it has no deadline of its own, because theirs end them. Called with the lock held,
// which it gives up for the cancellation: hooks may lock what a call waits for.
static void drain(mu_closure_queue *queue)
{
    mu_cancellation *cancelled = mu_retain(queue->cancellation);
    queue->draining = true;
    pthread_mutex_unlock(&queue->monitor.lock);
    (void)mu_cancellation_cancel(cancelled);
    mu_release(cancelled);
    mu_cancellation *fresh = new_cancellation();
    pthread_mutex_lock(&queue->monitor.lock);
    while (queue->in_flight > 0)
        (void)mu__monitor_wait(&queue->monitor, MU_FOREVER);
    cancel_all(&queue->waiting);
    if (fresh) {
        mu_release(queue->cancellation);
        queue->cancellation = fresh;
    }
    queue->draining = false;
    pthread_cond_broadcast(&queue->monitor.changed);
}

// Raises the stored error, if there is one. Called with the lock held.
static mu_status raise_error(mu_closure_queue *queue)
{
    while (queue->draining)  // another thread raises it
        (void)mu__monitor_wait(&queue->monitor, MU_FOREVER);
    if (queue->error.code == MU_OK)
        return MU_OK;
    drain(queue);
    const mu_error_value error = queue->error;
    queue->error = (mu_error_value){0};
    return mu__error_raise(&error);
}

// ---- The program's side -------------------------------------------------------------------------

static bool full(const mu_closure_queue *queue)
{
    return queue->capacity > 0 && queue->waiting.n >= queue->capacity;
}

static mu_status wait_for_place(mu_closure_queue *queue, int64_t deadline_ns)
{
    mu_status status = MU_OK;
    while (queue->draining)  // what is appended now would be cancelled, and nobody would be told
        (void)mu__monitor_wait(&queue->monitor, MU_FOREVER);
    while (full(queue) && queue->error.code == MU_OK && !queue->stopped && status == MU_OK &&
           mu__monitor_wait(&queue->monitor, deadline_ns))
        status = mu__check_stop();
    if (status != MU_OK)
        return status;
    if (queue->stopped)
        return mu__error(MU_FAILED_PRECONDITION, "the coordinator has ended; nothing can be scheduled any more");
    if (full(queue) && queue->error.code == MU_OK)
        return mu__error(MU_RESOURCE_EXHAUSTED, "the coordinator's queue is full: %lld calls wait; schedule later, or "
                         "make the queue longer", (long long)queue->waiting.n);
    return MU_OK;
}

mu_status mu__closures_put(mu_closure_queue *queue, mu_closure *closure, int64_t deadline_ns)
{
    pthread_mutex_lock(&queue->callers);
    pthread_mutex_lock(&queue->monitor.lock);
    mu_status status = wait_for_place(queue, deadline_ns);
    if (status == MU_OK) {
        append(&queue->waiting, mu_retain(closure));
        pthread_cond_broadcast(&queue->monitor.changed);
        status = raise_error(queue);
    }
    pthread_mutex_unlock(&queue->monitor.lock);
    pthread_mutex_unlock(&queue->callers);
    return status;
}

void mu__closures_put_tagged(mu_closure_queue *queue, mu_closure *closure)
{
    pthread_mutex_lock(&queue->monitor.lock);
    if (queue->stopped)
        cancel(mu_retain(closure));
    else
        append(&queue->tagged, mu_retain(closure));
    pthread_cond_broadcast(&queue->monitor.changed);
    pthread_mutex_unlock(&queue->monitor.lock);
}

mu_status mu__closures_wait_room(mu_closure_queue *queue, int64_t most)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&queue->monitor.lock);
    while (queue->waiting.n >= most && queue->error.code == MU_OK && !queue->stopped && status == MU_OK &&
           mu__monitor_wait(&queue->monitor, MU_FOREVER))
        status = mu__check_stop();
    pthread_mutex_unlock(&queue->monitor.lock);
    return status;
}

static bool busy(const mu_closure_queue *queue)
{
    return queue->in_flight > 0 || queue->waiting.n > 0;
}

mu_status mu__closures_wait(mu_closure_queue *queue, int64_t deadline_ns)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&queue->callers);
    pthread_mutex_lock(&queue->monitor.lock);
    while (busy(queue) && queue->error.code == MU_OK && status == MU_OK &&
           mu__monitor_wait(&queue->monitor, deadline_ns))
        status = mu__check_stop();
    if (status == MU_OK)
        status = raise_error(queue);
    if (status == MU_OK && busy(queue))
        status = mu__error(MU_DEADLINE_EXCEEDED, "the join ended at its time limit: %lld calls run and %lld wait; call "
                           "it again, or see whether the workers still run", (long long)queue->in_flight,
                           (long long)queue->waiting.n);
    pthread_mutex_unlock(&queue->monitor.lock);
    pthread_mutex_unlock(&queue->callers);
    return status;
}

mu_status mu__closures_done(mu_closure_queue *queue, bool *done)
{
    pthread_mutex_lock(&queue->monitor.lock);
    const mu_status status = raise_error(queue);
    *done = !busy(queue);
    pthread_mutex_unlock(&queue->monitor.lock);
    return status;
}

void mu__closures_count(mu_closure_queue *queue, int64_t *waiting, int64_t *in_flight)
{
    pthread_mutex_lock(&queue->monitor.lock);
    *waiting = queue->waiting.n;
    *in_flight = queue->in_flight;
    pthread_mutex_unlock(&queue->monitor.lock);
}

bool mu__closures_cancelling(mu_closure_queue *queue)
{
    pthread_mutex_lock(&queue->monitor.lock);
    const bool cancelling = queue->draining || queue->stopped;
    pthread_mutex_unlock(&queue->monitor.lock);
    return cancelling;
}

bool mu__closures_stopped(mu_closure_queue *queue)
{
    pthread_mutex_lock(&queue->monitor.lock);
    const bool stopped = queue->stopped;
    pthread_mutex_unlock(&queue->monitor.lock);
    return stopped;
}

void mu__closures_stop(mu_closure_queue *queue)
{
    pthread_mutex_lock(&queue->monitor.lock);
    queue->stopped = true;
    cancel_all(&queue->waiting);
    cancel_all(&queue->tagged);
    mu_cancellation *cancelled = mu_retain(queue->cancellation);
    pthread_cond_broadcast(&queue->monitor.changed);
    pthread_mutex_unlock(&queue->monitor.lock);
    (void)mu_cancellation_cancel(cancelled);
    mu_release(cancelled);
}

// ---- The workers' side --------------------------------------------------------------------------

static mu_closure *next_for(mu_closure_queue *queue, int tag)
{
    mu_closure *closure = tag == MU_NO_TAG ? NULL : take(&queue->tagged, tag);
    if (closure || queue->draining)
        return closure;
    if ((closure = take(&queue->waiting, MU_NO_TAG)))
        queue->in_flight++;
    return closure;
}

mu_closure *mu__closures_get(mu_closure_queue *queue, int tag, int64_t deadline_ns, mu_cancellation **cancellation)
{
    mu_closure *closure = NULL;
    pthread_mutex_lock(&queue->monitor.lock);
    while (!queue->stopped && !(closure = next_for(queue, tag)) && mu__monitor_wait(&queue->monitor, deadline_ns))
        ;
    *cancellation = closure ? mu_retain(queue->cancellation) : NULL;
    pthread_cond_broadcast(&queue->monitor.changed);  // there is a free place
    pthread_mutex_unlock(&queue->monitor.lock);
    return closure;
}

// A call without a tag no longer runs. Called with the lock held.
static void end_one(mu_closure_queue *queue, const mu_closure *closure)
{
    if (closure->tag != MU_NO_TAG)
        return;
    assert(queue->in_flight > 0);
    queue->in_flight--;
    pthread_cond_broadcast(&queue->monitor.changed);
}

void mu__closures_finished(mu_closure_queue *queue, const mu_closure *closure)
{
    pthread_mutex_lock(&queue->monitor.lock);
    end_one(queue, closure);
    pthread_mutex_unlock(&queue->monitor.lock);
}

void mu__closures_failed(mu_closure_queue *queue, const mu_closure *closure, const mu_error_value *error)
{
    pthread_mutex_lock(&queue->monitor.lock);
    if (queue->error.code == MU_OK && closure->tag == MU_NO_TAG)
        queue->error = *error;
    end_one(queue, closure);
    pthread_mutex_unlock(&queue->monitor.lock);
}

void mu__closures_put_back(mu_closure_queue *queue, mu_closure *closure)
{
    assert(closure->tag == MU_NO_TAG);
    pthread_mutex_lock(&queue->monitor.lock);
    if (queue->error.code != MU_OK || queue->stopped)
        cancel(mu_retain(closure));
    else
        append(&queue->waiting, mu_retain(closure));
    end_one(queue, closure);
    pthread_mutex_unlock(&queue->monitor.lock);
}

void mu__closures_raise(mu_closure_queue *queue, const mu_error_value *error)
{
    pthread_mutex_lock(&queue->monitor.lock);
    if (queue->error.code == MU_OK)
        queue->error = *error;
    pthread_cond_broadcast(&queue->monitor.changed);
    pthread_mutex_unlock(&queue->monitor.lock);
}

void mu__closures_clear_tag(mu_closure_queue *queue, int tag)
{
    pthread_mutex_lock(&queue->monitor.lock);
    for (mu_closure *closure; (closure = take(&queue->tagged, tag));)
        mu_release(closure);
    pthread_mutex_unlock(&queue->monitor.lock);
}
