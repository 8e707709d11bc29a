// The queue of a coordinator: calls that wait for a worker, calls that a worker runs, and the first error.
//
// The order of events is TensorFlow's. One error is kept, the first. The next mu__closures_put, _wait or _done raises
// it: all calls are cancelled, running calls are awaited, and the queue is as new. So after an error was raised nothing
// runs, and no error is raised twice. If calls do not end although they are cancelled, the raise fails with
// DEADLINE_EXCEEDED at its deadline, MUSTER_TIMEOUT at the latest, and the error stays for the next; what waited is
// cancelled at once all the same, and so is the call that was to be put.
//
// A call with a tag is for one worker only; it is taken before all others, joins do not wait for it, and no error of
// another call cancels it.
#ifndef MU_SRC_COORDINATOR_CLOSURE_QUEUE_H
#define MU_SRC_COORDINATOR_CLOSURE_QUEUE_H

#include "coordinator/remote_value.h"

#include <muster/cancellation.h>

enum { MU_NO_TAG = -1 };

// One call. The struct that embeds it says what is called.
typedef struct mu_closure {
    mu_object object;
    struct mu_closure *next; // in the queue
    int tag;                 // number of the worker that must run it; MU_NO_TAG: any
    mu_remote_value *output; // retained; NULL: the result is not needed
    int64_t order;           // among calls without a tag, as workers first took them, from 1; 0: none has
    // Of the queue, while a worker runs it:
    struct mu_closure *next_running;
    int attempts; // workers that run it: 2 with a copy
    int worker;   // that took it first; MU_NO_TAG: not said
    bool settled; // an attempt has succeeded
    int64_t begun_ns;
} mu_closure;

typedef struct mu_closure_queue mu_closure_queue;

// mu__closures_new makes a queue of at most `capacity` calls without a tag (0: no limit). Free it after all threads
// that use it have ended.
mu_closure_queue *mu__closures_new(int64_t capacity);
void mu__closures_free(mu_closure_queue *queue);

// mu__closures_put appends a call and retains it. It waits, until the deadline, for another thread that is in
// mu__closures_put or mu__closures_wait, and for a free place. Errors: a raised one, for which it waits beyond the
// deadline (the call is then cancelled too); RESOURCE_EXHAUSTED at the deadline; CANCELLED if a signal asks to stop;
// FAILED_PRECONDITION after mu__closures_stop.
mu_status mu__closures_put(mu_closure_queue *queue, mu_closure *closure, int64_t deadline_ns);
// mu__closures_put_tagged appends a call with a tag; it neither waits nor raises.
void mu__closures_put_tagged(mu_closure_queue *queue, mu_closure *closure);

// mu__closures_in_steps lets at most `calls` calls without a tag run at the same time. One that is put back comes first
// again. Workers beyond that get copies, at most `copies` at the same time, of calls that run for more than twice the
// usual time.
void mu__closures_in_steps(mu_closure_queue *queue, int calls, int copies);

// mu__closures_get takes the next call for a worker, and what cancels it (retained, as the call); NULL when the
// deadline has passed, or after mu__closures_stop. One of the three functions below must follow for each call.
mu_closure *mu__closures_get(mu_closure_queue *queue, int tag, int64_t deadline_ns, mu_cancellation **cancellation);
// Before, mu__closures_attempt_ended returns whether that decides: false for a copy of a call that has succeeded, or
// that another worker still runs; then none of the three may follow.
bool mu__closures_attempt_ended(mu_closure_queue *queue, mu_closure *closure, bool succeeded);
void mu__closures_finished(mu_closure_queue *queue, const mu_closure *closure);
void mu__closures_failed(mu_closure_queue *queue, const mu_closure *closure, const mu_error_value *error);
// mu__closures_put_back is for a call whose worker was lost: it goes to the end of the queue, or is cancelled if there
// is an error.
void mu__closures_put_back(mu_closure_queue *queue, mu_closure *closure);
// mu__closures_raise makes an error the queue's, unless it has one.
void mu__closures_raise(mu_closure_queue *queue, const mu_error_value *error);
// mu__closures_give_up does so when no worker is left that could run a call, and ends the waiting calls with the error,
// which fetching their results returns.
void mu__closures_give_up(mu_closure_queue *queue, const mu_error_value *error);
// mu__closures_clear_tag drops the calls for one worker that wait.
void mu__closures_clear_tag(mu_closure_queue *queue, int tag);

// mu__closures_wait_space waits until fewer than `most` calls without a tag wait for a worker, or an error is there to
// be raised. Errors: CANCELLED if a signal asks to stop.
mu_status mu__closures_wait_space(mu_closure_queue *queue, int64_t most);

// mu__closures_wait waits until no call without a tag waits or runs, and first for another thread as mu__closures_put
// does. Errors: a raised one; DEADLINE_EXCEEDED; CANCELLED if a signal asks to stop.
mu_status mu__closures_wait(mu_closure_queue *queue, int64_t deadline_ns);
// mu__closures_done sets whether that is so now. Errors: a raised one; DEADLINE_EXCEEDED.
mu_status mu__closures_done(mu_closure_queue *queue, bool *done);

// Calls without a tag that wait, and that run.
void mu__closures_count(mu_closure_queue *queue, int64_t *waiting, int64_t *in_flight);
// mu__closures_usual_ns returns the mean time of calls, of which later ones count more; 0: none has ended so far.
int64_t mu__closures_usual_ns(mu_closure_queue *queue);
// mu__closures_failing returns whether an error is there that was not raised yet.
bool mu__closures_failing(mu_closure_queue *queue);
// mu__closures_cancelling returns whether the calls that run are being cancelled.
bool mu__closures_cancelling(mu_closure_queue *queue);
bool mu__closures_stopped(mu_closure_queue *queue);
// mu__closures_ending returns what mu__closures_stop cancels; it belongs to the queue.
mu_cancellation *mu__closures_ending(const mu_closure_queue *queue);

// mu__closures_stop cancels everything; from then on mu__closures_get returns NULL at once.
void mu__closures_stop(mu_closure_queue *queue);
// mu__closures_leave, after that, tells whoever fetches the results of calls that run that they were cancelled.
void mu__closures_leave(mu_closure_queue *queue);

#endif
