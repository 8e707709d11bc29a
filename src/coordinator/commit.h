// Steps of several calls that happen as a whole: a call that has ended is counted when its step's gradients are
// applied.
//
// Of a strategy with an aggregation (distribute/servers/aggregation.h). The queue hands out the calls of one step only;
// a call whose worker is lost comes first again, so the same calls make the step whatever happens. With more workers
// than calls the rest run copies of calls that take long, and what ends first counts.
#ifndef MU_SRC_COORDINATOR_COMMIT_H
#define MU_SRC_COORDINATOR_COMMIT_H

#include "coordinator/closure_queue.h"
#include "distribute/servers/aggregation.h"

struct mu_coordinator;
struct mu_dispatcher;
struct mu_call;

// A call that has ended, and waits for its step.
typedef struct mu_ended_call {
    struct mu_call *call;         // retained
    struct mu_dispatcher *worker; // borrowed
    void *result;                 // retained
    mu_graph *graph;              // retained
    int64_t attempt;
} mu_ended_call;

typedef struct mu_commits {
    pthread_mutex_t lock; // held while a step is applied
    bool has_lock;
    int64_t next_attempt;
    int joining; // threads that wait for the end of all calls
    struct {
        mu_ended_call *items;
        size_t n, capacity;
    } ended;
    mu_step_plans plans;
} mu_commits;

mu_status mu__commits_init(struct mu_coordinator *coordinator);
void mu__commits_free(struct mu_coordinator *coordinator);

// mu__commit_attempt returns the number of an attempt that begins on a worker's thread; it waits while a step is
// applied.
int64_t mu__commit_attempt(struct mu_dispatcher *worker);

// mu__commit_ended takes a call that has succeeded. It counts when its step is applied; one that leaves no gradients
// counts at once.
void mu__commit_ended(struct mu_dispatcher *worker, struct mu_call *call, void *result);
// mu__commit_abandoned ends an attempt that does not count.
void mu__commit_abandoned(struct mu_dispatcher *worker);

// mu__commit_joining is called with 1 before the wait for all calls, and with -1 after it: the last step may have fewer
// calls than the others.
void mu__commit_joining(struct mu_coordinator *coordinator, int change);

// mu__commit_drop forgets the calls that wait for their step, because another call failed.
void mu__commit_drop(struct mu_coordinator *coordinator);

#endif
