// Watches the calls that run: a worker that is alive but does not get on with its call is named, and so is a
// coordinator of which no call ends, and a call that does not let the coordinator end.
//
// A heartbeat shows that a worker is reachable, not that its call ends. A call that takes many times the usual time
// makes its worker slow: it is logged once, and counted until the call ends. Nothing is done about it: with backup
// workers the queue hands out a copy long before (closure_queue.h).
#ifndef MU_SRC_COORDINATOR_WATCH_H
#define MU_SRC_COORDINATOR_WATCH_H

#include "base/base.h"

struct mu_coordinator;
struct mu_dispatcher;

typedef struct mu_watch {
    mu_monitor monitor;
    bool ending;
    mu_worker *thread;
    int64_t stopped_ns;        // when the coordinator began to end, or calls that hold that up were last named
    atomic_llong last_done_ns; // when a call last ended well
} mu_watch;

mu_status mu__watch_begin(struct mu_coordinator *coordinator);
void mu__watch_end(struct mu_coordinator *coordinator);

// mu__watch_name_left names the calls that have not let the coordinator end within its limit, after mu__watch_end.
void mu__watch_name_left(struct mu_coordinator *coordinator);

// A worker begins a call of a function with this name, and ends it.
void mu__watch_call_begun(struct mu_dispatcher *worker, const char *name);
void mu__watch_call_ended(struct mu_dispatcher *worker);
// mu__watch_found_slow notes that a call which began then takes long; false: that was noted before, or it has ended.
// The mark belongs to one call; the next call starts unmarked.
bool mu__watch_found_slow(struct mu_dispatcher *worker, int64_t begun_ns);
bool mu__watch_is_slow(const struct mu_dispatcher *worker);
double mu__watch_call_age(const struct mu_dispatcher *worker); // in seconds; 0: it runs no call

#endif
