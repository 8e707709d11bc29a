// The queue of a coordinator: see closure_queue.h.
//
// One thread at a time is in mu__closures_put or mu__closures_wait, so that nothing is scheduled while a join waits.
// TensorFlow has a lock for that; here a thread that waits for another one still has a deadline, and notices a signal.
#include "coordinator/closure_queue.h"

#include "base/planted.h"

typedef struct closures {
    mu_closure *first, *last;
    int64_t n;
} closures;

struct mu_closure_queue {
    mu_monitor monitor;
    bool called;      // a thread is in mu__closures_put or mu__closures_wait
    int64_t capacity; // 0: no limit
    int64_t wakes_at; // threads that wait for space are woken when as few calls wait; -1: none waits
    closures waiting, tagged;
    int64_t in_flight;
    int64_t n_begun;        // different calls without a tag that workers have taken
    int64_t most_in_flight; // calls without a tag that may run at the same time; 0: any number
    mu_closure *running;    // calls without a tag that run, the first to begin first
    int most_copies, n_copies;
    int64_t usual_ns;              // mean time of calls, of which later ones count more; 0: not known
    mu_error_value error;          // the first; code MU_OK: none
    mu_cancellation *cancellation; // of the calls that run; retained
    int64_t cancelled_ns;          // since when calls that run are cancelled, and none is handed out; 0: they are not
    bool raising;                  // a thread waits for the calls that are cancelled
    mu_cancellation *ending;       // cancelled by mu__closures_stop; retained
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

static void prepend(closures *list, mu_closure *closure)
{
    closure->next = list->first;
    list->first = closure;
    list->last = list->last ? list->last : closure;
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

static const mu_error_value was_cancelled = {
    .code = MU_CANCELLED,
    .file = __FILE__,
    .line = __LINE__,
    .message = "the call was cancelled because another one failed, or because the coordinator ended"};

static void end(mu_closure *closure, const mu_error_value *error)
{
    if (closure->output)
        mu__remote_value_fail(closure->output, error);
    mu_release(closure);
}

static void end_all(closures *list, const mu_error_value *error)
{
    for (mu_closure *closure; (closure = list->first);) {
        list->first = closure->next;
        end(closure, error);
    }
    *list = (closures){0};
}

static void cancel_all(closures *list) { end_all(list, &was_cancelled); }

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
    queue->wakes_at = -1;
    if (mu__monitor_init(&queue->monitor, "coordinator") == MU_OK && (queue->cancellation = new_cancellation()) &&
        (queue->ending = new_cancellation()))
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
    mu_release(queue->ending);
    mu__monitor_free(&queue->monitor);
    mu__free(queue);
}

// ---- The error ----------------------------------------------------------------------------------

// Called with the lock held, which it releases during the cancellation: hooks may lock what a call waits for.
static void cancel_running(mu_closure_queue *queue)
{
    mu_cancellation *cancelled = mu_retain(queue->cancellation);
    queue->cancelled_ns = mu__now_ns();
    pthread_mutex_unlock(&queue->monitor.lock);
    (void)mu_cancellation_cancel(cancelled);
    mu_release(cancelled);
    pthread_mutex_lock(&queue->monitor.lock);
}

static mu_status still_running(const mu_closure_queue *queue)
{
    const double seconds = queue->cancelled_ns > 0 ? (double)(mu__now_ns() - queue->cancelled_ns) / 1e9 : 0;
    return mu__error(MU_DEADLINE_EXCEEDED,
                     "a call failed, and of the others, which were cancelled %.1f s ago, %lld still run, the first of "
                     "them on worker %d; the error is kept: join again when they have ended, or see why they do not "
                     "end. The call failed with: %.400s",
                     seconds, (long long)queue->in_flight, queue->running ? queue->running->worker : -1,
                     queue->error.message);
}

// Cancels the calls that wait, and waits for those that run and were cancelled. If these do not end, a fetch of one of
// the others still returns the error. Called with the lock held.
static mu_status drain(mu_closure_queue *queue, int64_t deadline_ns)
{
    mu_status status = MU_OK;
    if (!MU_PLANTED(MU_DEFECT_NOT_CANCELLED))
        cancel_all(&queue->waiting);
    const bool early = MU_PLANTED(MU_DEFECT_EARLY_ERROR);
    while (queue->in_flight > 0 && !early && status == MU_OK && mu__monitor_wait(&queue->monitor, deadline_ns))
        status = mu__check_stop();
    if (status == MU_OK && queue->in_flight > 0 && !early)
        status = still_running(queue);
    mu_cancellation *fresh = status == MU_OK ? new_cancellation() : NULL;
    if (!fresh)
        return mu_error_code();
    mu_release(queue->cancellation);
    queue->cancellation = fresh;
    queue->cancelled_ns = 0;
    return MU_OK;
}

// Raises the stored error, if there is one, when no call runs any more. If they do not end by the deadline, or within
// MUSTER_TIMEOUT, or a signal asks to stop, it stays for the next who asks, and nothing is handed out meanwhile. Called
// with the lock held.
static mu_status raise_error(mu_closure_queue *queue, int64_t deadline_ns)
{
    mu_status status = MU_OK;
    const int64_t until = MU_MIN(deadline_ns, mu__deadline_ns(mu__setting_real(MU_SETTING_TIMEOUT)));
    while (queue->raising && status == MU_OK && mu__monitor_wait(&queue->monitor, until)) // another thread raises it
        status = mu__check_stop();
    if (status != MU_OK || queue->error.code == MU_OK)
        return status;
    if (queue->raising)
        return still_running(queue);
    queue->raising = true;
    if (queue->cancelled_ns == 0)
        cancel_running(queue);
    status = drain(queue, until);
    const mu_error_value error = queue->error;
    if (status == MU_OK && !MU_PLANTED(MU_DEFECT_ERROR_TWICE))
        queue->error = (mu_error_value){0};
    queue->raising = false;
    pthread_cond_broadcast(&queue->monitor.changed);
    return status == MU_OK ? mu__error_raise(&error) : status;
}

// ---- The program's side -------------------------------------------------------------------------

// Waits until no other thread schedules or joins. Called with the lock held; `leave` must follow if it succeeds.
static mu_status enter(mu_closure_queue *queue, int64_t deadline_ns, mu_status late)
{
    mu_status status = MU_OK;
    while (queue->called && status == MU_OK && mu__monitor_wait(&queue->monitor, deadline_ns))
        status = mu__check_stop();
    if (status == MU_OK && queue->called)
        return mu__error(late,
                         "another thread joins the coordinator, or waits to schedule a call: %lld calls run and %lld "
                         "wait; try again later",
                         (long long)queue->in_flight, (long long)queue->waiting.n);
    if (status == MU_OK)
        queue->called = true;
    return status;
}

static void leave(mu_closure_queue *queue)
{
    queue->called = false;
    pthread_cond_broadcast(&queue->monitor.changed);
}

static bool full(const mu_closure_queue *queue)
{
    return queue->capacity > 0 && queue->waiting.n >= queue->capacity && queue->error.code == MU_OK;
}

// Sleeps until calls have been taken, and `enough` or fewer wait: a thread that was woken for each call would cost as
// much as a short call does. Called with the lock held; also returns now and then, as mu__monitor_wait does.
static bool sleep_for_space(mu_closure_queue *queue, int64_t enough, int64_t deadline_ns)
{
    queue->wakes_at = MU_MAX(queue->wakes_at, enough);
    return mu__monitor_wait(&queue->monitor, deadline_ns);
}

// While another thread raises an error, a call that is appended would be cancelled without a report.
static mu_status wait_for_space(mu_closure_queue *queue, int64_t deadline_ns)
{
    mu_status status = MU_OK;
    while ((queue->raising || full(queue)) && !queue->stopped && status == MU_OK &&
           sleep_for_space(queue, queue->capacity / 2, deadline_ns))
        status = mu__check_stop();
    if (status != MU_OK)
        return status;
    if (queue->stopped)
        return mu__error(MU_FAILED_PRECONDITION, "the coordinator has ended; nothing can be scheduled any more");
    if (queue->raising)
        return mu__error(
            MU_RESOURCE_EXHAUSTED,
            "a call failed, and another thread waits for those that are cancelled for it: %lld run; schedule later",
            (long long)queue->in_flight);
    if (full(queue))
        return mu__error(MU_RESOURCE_EXHAUSTED,
                         "the coordinator's queue is full: %lld calls wait; schedule later, or make the queue longer",
                         (long long)queue->waiting.n);
    return MU_OK;
}

// Called with the lock held, by the one thread that has entered.
static mu_status put(mu_closure_queue *queue, mu_closure *closure, int64_t deadline_ns)
{
    MU_TRY(wait_for_space(queue, deadline_ns));
    append(&queue->waiting, mu_retain(closure));
    pthread_cond_broadcast(&queue->monitor.changed);
    return raise_error(queue, MU_FOREVER);
}

mu_status mu__closures_put(mu_closure_queue *queue, mu_closure *closure, int64_t deadline_ns)
{
    pthread_mutex_lock(&queue->monitor.lock);
    mu_status status = enter(queue, deadline_ns, MU_RESOURCE_EXHAUSTED);
    if (status == MU_OK) {
        status = put(queue, closure, deadline_ns);
        leave(queue);
    }
    pthread_mutex_unlock(&queue->monitor.lock);
    return status;
}

void mu__closures_put_tagged(mu_closure_queue *queue, mu_closure *closure)
{
    pthread_mutex_lock(&queue->monitor.lock);
    if (queue->stopped)
        end(mu_retain(closure), &was_cancelled);
    else
        append(&queue->tagged, mu_retain(closure));
    pthread_cond_broadcast(&queue->monitor.changed);
    pthread_mutex_unlock(&queue->monitor.lock);
}

mu_status mu__closures_wait_space(mu_closure_queue *queue, int64_t most)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&queue->monitor.lock);
    while (queue->waiting.n >= most && queue->error.code == MU_OK && !queue->stopped && status == MU_OK &&
           sleep_for_space(queue, most / 2, MU_FOREVER))
        status = mu__check_stop();
    pthread_mutex_unlock(&queue->monitor.lock);
    return status;
}

static bool busy(const mu_closure_queue *queue) { return queue->in_flight > 0 || queue->waiting.n > 0; }

// Called with the lock held, by the one thread that has entered.
static mu_status wait_until_idle(mu_closure_queue *queue, int64_t deadline_ns)
{
    mu_status status = MU_OK;
    while (busy(queue) && queue->error.code == MU_OK && status == MU_OK &&
           mu__monitor_wait(&queue->monitor, deadline_ns))
        status = mu__check_stop();
    if (status == MU_OK)
        status = raise_error(queue, deadline_ns);
    if (status == MU_OK && busy(queue))
        status = mu__error(MU_DEADLINE_EXCEEDED,
                           "the join ended at its time limit: %lld calls run and %lld wait; call it again, or see "
                           "whether the workers still run",
                           (long long)queue->in_flight, (long long)queue->waiting.n);
    return status;
}

mu_status mu__closures_wait(mu_closure_queue *queue, int64_t deadline_ns)
{
    pthread_mutex_lock(&queue->monitor.lock);
    mu_status status = enter(queue, deadline_ns, MU_DEADLINE_EXCEEDED);
    if (status == MU_OK) {
        status = wait_until_idle(queue, deadline_ns);
        leave(queue);
    }
    pthread_mutex_unlock(&queue->monitor.lock);
    return status;
}

mu_status mu__closures_done(mu_closure_queue *queue, bool *done)
{
    pthread_mutex_lock(&queue->monitor.lock);
    const mu_status status = raise_error(queue, MU_FOREVER);
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

int64_t mu__closures_usual_ns(mu_closure_queue *queue)
{
    pthread_mutex_lock(&queue->monitor.lock);
    const int64_t usual = queue->usual_ns;
    pthread_mutex_unlock(&queue->monitor.lock);
    return usual;
}

bool mu__closures_failing(mu_closure_queue *queue)
{
    pthread_mutex_lock(&queue->monitor.lock);
    const bool failing = queue->error.code != MU_OK;
    pthread_mutex_unlock(&queue->monitor.lock);
    return failing;
}

bool mu__closures_cancelling(mu_closure_queue *queue)
{
    pthread_mutex_lock(&queue->monitor.lock);
    const bool cancelling = queue->cancelled_ns > 0 || queue->stopped;
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

mu_cancellation *mu__closures_ending(const mu_closure_queue *queue) { return queue->ending; }

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
    (void)mu_cancellation_cancel(queue->ending);
    mu_release(cancelled);
}

void mu__closures_leave(mu_closure_queue *queue)
{
    pthread_mutex_lock(&queue->monitor.lock);
    for (mu_closure *at = queue->running; at; at = at->next_running)
        if (at->output)
            mu__remote_value_fail(at->output, &was_cancelled);
    pthread_mutex_unlock(&queue->monitor.lock);
}

// ---- The workers' side --------------------------------------------------------------------------

void mu__closures_in_steps(mu_closure_queue *queue, int calls, int copies)
{
    pthread_mutex_lock(&queue->monitor.lock);
    queue->most_in_flight = calls;
    queue->most_copies = copies;
    pthread_mutex_unlock(&queue->monitor.lock);
}

static void begin(mu_closure_queue *queue, mu_closure *closure, int worker)
{
    mu_closure **last = &queue->running;
    while (*last)
        last = &(*last)->next_running;
    *last = closure;
    closure->next_running = NULL;
    closure->attempts = 1;
    closure->settled = false;
    closure->worker = worker;
    closure->begun_ns = mu__now_ns();
    if (closure->order == 0)
        closure->order = ++queue->n_begun;
    queue->in_flight++;
}

static void stop_running(mu_closure_queue *queue, const mu_closure *closure)
{
    for (mu_closure **at = &queue->running; *at; at = &(*at)->next_running)
        if (*at == closure) {
            *at = closure->next_running;
            break;
        }
}

// A call that takes long, for a worker that would else be idle; NULL: there is none.
static mu_closure *copy_of_late(mu_closure_queue *queue)
{
    const int64_t now = mu__now_ns();
    if (queue->n_copies >= queue->most_copies || queue->usual_ns == 0 || queue->error.code != MU_OK)
        return NULL;
    for (mu_closure *at = queue->running; at; at = at->next_running)
        if (at->attempts == 1 && !at->settled && now - at->begun_ns > 2 * queue->usual_ns) {
            at->attempts++;
            queue->n_copies++;
            return mu_retain(at);
        }
    return NULL;
}

static mu_closure *next_for(mu_closure_queue *queue, int tag)
{
    mu_closure *closure = tag == MU_NO_TAG ? NULL : take(&queue->tagged, tag);
    if (closure || queue->cancelled_ns > 0)
        return closure;
    const bool may_start = queue->most_in_flight == 0 || queue->in_flight < queue->most_in_flight;
    if (may_start && (closure = take(&queue->waiting, MU_NO_TAG)))
        begin(queue, closure, tag);
    return closure ? closure : copy_of_late(queue);
}

// Copies begin when time has passed, which signals no condition variable.
static int64_t look_again_ns(const mu_closure_queue *queue, int64_t deadline_ns)
{
    enum { LOOK_NS = 20000000 };
    return queue->most_copies > 0 ? MU_MIN(deadline_ns, mu__now_ns() + LOOK_NS) : deadline_ns;
}

mu_closure *mu__closures_get(mu_closure_queue *queue, int tag, int64_t deadline_ns, mu_cancellation **cancellation)
{
    mu_closure *closure = NULL;
    pthread_mutex_lock(&queue->monitor.lock);
    while (!queue->stopped && !(closure = next_for(queue, tag)) &&
           (mu__monitor_wait(&queue->monitor, look_again_ns(queue, deadline_ns)) || mu__now_ns() < deadline_ns))
        ;
    *cancellation = closure ? mu_retain(closure->tag == MU_NO_TAG ? queue->cancellation : queue->ending) : NULL;
    if (queue->waiting.n <= queue->wakes_at) {
        queue->wakes_at = -1;
        pthread_cond_broadcast(&queue->monitor.changed);
    }
    pthread_mutex_unlock(&queue->monitor.lock);
    return closure;
}

bool mu__closures_attempt_ended(mu_closure_queue *queue, mu_closure *closure, bool succeeded)
{
    enum { WEIGHT = 8 };
    if (closure->tag != MU_NO_TAG)
        return true;
    pthread_mutex_lock(&queue->monitor.lock);
    const bool decides = !closure->settled && (succeeded || closure->attempts == 1);
    queue->n_copies -= closure->attempts > 1;
    closure->attempts--;
    closure->settled |= succeeded;
    if (succeeded && decides) {
        const int64_t took = mu__now_ns() - closure->begun_ns;
        queue->usual_ns = queue->usual_ns == 0 ? MU_MAX(took, 1) : queue->usual_ns + (took - queue->usual_ns) / WEIGHT;
    }
    pthread_mutex_unlock(&queue->monitor.lock);
    return decides;
}

// A call without a tag no longer runs. Called with the lock held.
static void end_one(mu_closure_queue *queue, const mu_closure *closure)
{
    if (closure->tag != MU_NO_TAG)
        return;
    assert(queue->in_flight > 0);
    queue->in_flight--;
    stop_running(queue, closure);
    // Threads wait for the last call, for the end of those that are cancelled, or for a place among those that run.
    if (!busy(queue) || queue->error.code != MU_OK || queue->most_in_flight > 0)
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
        end(mu_retain(closure), &was_cancelled);
    else if (queue->most_in_flight > 0)
        prepend(&queue->waiting, mu_retain(closure));
    else if (!MU_PLANTED(MU_DEFECT_LOST_STEP))
        append(&queue->waiting, mu_retain(closure));
    end_one(queue, closure);
    pthread_cond_broadcast(&queue->monitor.changed);
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

void mu__closures_give_up(mu_closure_queue *queue, const mu_error_value *error)
{
    pthread_mutex_lock(&queue->monitor.lock);
    if (queue->error.code == MU_OK)
        queue->error = *error;
    end_all(&queue->waiting, error);
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
