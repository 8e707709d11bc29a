// Gradients of several calls on workers that are applied together: synchronous steps, and steps that count once.
//
// Each attempt at a call has a number of its own. Under such a strategy mu_apply_gradients, while it is
// traced for a worker, leaves the gradients under that number at accumulators beside the variables instead of updating;
// the coordinator, which knows which attempts have ended whole, has the gradients of a set of attempts applied at once
// (coordinator/commit.c). An attempt that broke off has changed no variable.
#ifndef MU_SRC_DISTRIBUTE_AGGREGATION_H
#define MU_SRC_DISTRIBUTE_AGGREGATION_H

#include "distribute/parameter_server.h"

#include <muster/accumulator.h>

// One optimizer's gradients for some variables.
typedef struct mu_gradient_site {
    mu_accumulator *first;   // of its accumulators: a graph that uses it leaves gradients here. Retained
    mu_function *update;     // applies [attempts, next step]; retained
    mu_object *owner;        // of update's argument; retained
} mu_gradient_site;

typedef struct mu_aggregation {
    int n;                   // calls of a step; 1: each call is a step
    bool synchronous;
    pthread_mutex_t lock;    // of the list
    bool has_lock;
    struct { mu_gradient_site *items; size_t n, capacity; } sites;
} mu_aggregation;

mu_aggregation *mu__aggregation_new(int n, bool synchronous);  // owned by the caller
void mu__aggregation_free(mu_aggregation *aggregation);        // NULL is accepted

// mu__aggregated returns a function that gets an attempt's number besides the arguments of `function`, which owns it;
// and mu__aggregated_arguments those arguments, of the pool. `ratio`: all rows of the step to those of the call; 0: it
// has none.
mu_function *mu__aggregated(mu_function *function);
mu_value *mu__aggregated_arguments(mu_value *arguments, int64_t attempt, double ratio);

// While such a function is traced: mu__attempt_number returns that of its attempt, else NULL. mu__over_step returns,
// for a number of this call that grows with its rows, that of all calls of the step.
mu_tensor *mu__attempt_number(void);
mu_tensor *mu__over_step(mu_tensor *number);
// mu__step_shares returns into how many shares a step's loss is divided: the calls of such a step, else the replicas.
int mu__step_shares(void);

// mu__gradient_accumulator makes an accumulator for a variable's gradients where the variable is. Owned by the caller.
mu_accumulator *mu__gradient_accumulator(const mu_variable *variable, const char *what);

// mu__aggregation_add makes a site known, mu__aggregation_forget drops those of an owner, whose updates would keep the
// strategy alive that keeps them. mu__aggregation_leaves returns whether a graph leaves gradients at any site.
mu_status mu__aggregation_add(mu_strategy *strategy, mu_accumulator *first, mu_function *update, void *owner);
void mu__aggregation_forget(mu_strategy *strategy, const void *owner);
bool mu__aggregation_leaves(mu_aggregation *aggregation, const mu_graph *graph);

// mu__aggregation_apply applies what calls have left: graphs[i] with attempts[i]. From then on gradients with a number
// below `step` are dropped. It runs in this process.
mu_status mu__aggregation_apply(mu_strategy *strategy, int n, mu_graph *const *graphs, const int64_t *attempts,
                                int64_t step);

#endif
