// The coordinator's parts: the object that programs have, its workers, and what a call is.
#ifndef MU_SRC_COORDINATOR_COORDINATOR_H
#define MU_SRC_COORDINATOR_COORDINATOR_H

#include "coordinator/closure_queue.h"
#include "coordinator/commit.h"
#include "coordinator/draws.h"
#include "coordinator/per_worker.h"
#include "coordinator/task.h"
#include "coordinator/times.h"
#include "coordinator/watch.h"

#include <muster/coordinator.h>

// A call in the queue: of a function, or of a maker of what is per worker.
typedef struct mu_call {
    mu_closure closure;        // first
    mu_function *function;     // retained; NULL: a maker's
    mu_value *arguments;       // retained; NULL: none
    mu_value *drawn;           // the same with the elements that belong to the call (draws.h); retained
    mu_error_value *not_drawn; // why there are none; owned
    mu_maker *maker;           // retained; NULL: a function's
    int64_t number;            // in the order of the schedules
    double ratio;              // all rows of its step to its own (distribute/servers/aggregation.h)
} mu_call;

enum { MU_CALL_NAME = 64 };

// What is known of one worker, and the thread that runs its calls one after the other.
typedef struct mu_dispatcher {
    struct mu_coordinator *coordinator; // borrowed: it outlives the thread
    int worker;
    mu_task *task;
    mu_worker *thread;
    atomic_llong in_flight, done, failed, retried, dropped;
    int64_t attempt;     // number of the one that runs; -1: none. Under the lock of the commits
    mu_concrete *traced; // its graph; borrowed from the call's function
    atomic_bool lost;
    atomic_llong begun_ns;     // when its call began; 0: it runs none
    char called[MU_CALL_NAME]; // what that calls; under the lock of the watch
    bool begun;                // the thread has its job,
    atomic_bool ended;         // and uses nothing of the coordinator any more
    atomic_llong slow_ns;      // when the call began that was last found to be slow (watch.h)
} mu_dispatcher;

struct mu_coordinator {
    mu_object object;
    mu_strategy *strategy; // retained
    bool registered;       // as the strategy's coordinator
    mu_closure_queue *queue;
    mu_resource_list *resources; // retained
    mu_commits commits;          // of steps that happen as a whole
    mu_draws draws;              // of the elements that belong to their calls
    atomic_llong n_scheduled;
    uint64_t first_request; // of the numbers by which timelines know attempts to run calls
    atomic_ullong n_requests;
    mu_times times;
    mu_watch watch;
    struct mu_metrics_http *metrics; // NULL: not served (coordinator_metrics.c)
    int n_workers;
    mu_dispatcher *workers; // [n_workers]
    int ps_failures_ignored, timeouts_ignored;
    double start_delay, start_delay_max; // seconds
    atomic_int *ps_failures;             // [servers] reports so far
    atomic_int timeouts;
    atomic_int n_lost;
    atomic_int n_away;           // those, and the workers that have not started yet
    atomic_llong last_seen_ns;   // when a worker was last reachable
    struct mu_coordinator *left; // the one before that was left behind
};

extern mu_type mu__call_type;

// mu__coordinator_new makes a coordinator whose workers are made by `maker`. The arguments are checked. Owned.
mu_coordinator *mu__coordinator_new(const mu_coordinator_args *args, mu_task_maker *maker, void *arg);

// mu__schedule schedules a call with a share of its step's rows (mu_call.ratio). It belongs to the pool.
mu_value *mu__schedule(mu_coordinator *coordinator, mu_function *function, mu_value *arguments, double ratio);

// mu__coordinator_trace is mu__served_trace, timed if it traces. Borrowed.
mu_concrete *mu__coordinator_trace(mu_coordinator *coordinator, mu_function *function, const mu_value *arguments);

// mu__maker_call makes the call that makes a per-worker value on one worker. Owned.
mu_call *mu__maker_call(const mu_per_worker_resource *per_worker, int worker);

// mu__coordinator_serve_metrics answers GET /metrics on the loopback, if MUSTER_METRICS_PORT is set.
mu_status mu__coordinator_serve_metrics(mu_coordinator *coordinator);
int mu__coordinator_metrics_port(const mu_coordinator *coordinator); // -1: none

// mu__dispatch runs on a worker's thread until the queue is stopped (dispatcher.c).
void mu__dispatch(mu_dispatcher *dispatcher);

#endif
