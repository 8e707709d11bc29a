// Elements of per-worker datasets that belong to calls, where no lost and no slow worker may change the weights
// (synchronous steps, a visitation guarantee).
//
// There a call keeps the elements that were drawn for it, so each attempt at it, a retry or a backup, gets the same.
// The coordinator draws them, in the order in which calls were first handed out, from the datasets of worker 0, 1, …
// in rotation: which data a step has depends on the schedule alone, and not on who runs what.
#ifndef MU_SRC_COORDINATOR_DRAWS_H
#define MU_SRC_COORDINATOR_DRAWS_H

#include "coordinator/per_worker.h"

struct mu_call;
struct mu_coordinator;

typedef struct mu_draws {
    mu_monitor monitor; // guards the fields below
    int64_t n_ended;    // calls up to this one (mu_closure.order) have their elements
    bool drawing;       // elements of the next are being drawn
} mu_draws;

mu_status mu__draws_init(mu_draws *draws);
void mu__draws_free(mu_draws *draws);

// mu__draws_arguments returns a call's arguments with its elements in the place of per-worker datasets, borrowed from
// the call (NULL without an error: it has none). It waits until the calls before have theirs. Errors: of the datasets;
// every attempt gets the same.
mu_value *mu__draws_arguments(struct mu_coordinator *coordinator, struct mu_call *call);

// mu__draws_pass lets the calls after this one draw if this one ended before it drew; otherwise it does nothing.
void mu__draws_pass(struct mu_coordinator *coordinator, const struct mu_call *call);

#endif
