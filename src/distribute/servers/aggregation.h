// What several calls on workers leave, and what is applied together: synchronous steps, and steps that count once.
//
// Each attempt at a call has a number of its own. Under such a strategy a function for workers changes no variable:
// while it is traced, mu_apply_gradients leaves the gradients under that number at accumulators beside the variables,
// and so do assignments with their values (deferred_updates.c). The coordinator, which knows which attempts have ended
// whole, has what a set of attempts has left applied at once (coordinator/commit.c). An attempt that broke off has
// changed nothing.
#ifndef MU_SRC_DISTRIBUTE_AGGREGATION_H
#define MU_SRC_DISTRIBUTE_AGGREGATION_H

#include "distribute/strategies/parameter_server.h"

#include <muster/accumulator.h>

// A kind of update for which calls leave values: an optimizer's gradients, or the values of one assignment.
typedef struct mu_deferred_site {
    mu_accumulator *first; // of its accumulators: a graph that uses it leaves values here. Retained
    int n;
    mu_accumulator *const *sums; // [n] the owner's; NULL: there is none at this index
    bool only_first;             // the value of the first call counts, instead of the sum
    // update applies the sums, in the order of `sums`, of so many calls.
    mu_status (*update)(void *owner, mu_tensor *const *sums, mu_tensor *calls);
    mu_object *owner; // retained
} mu_deferred_site;

typedef struct mu_aggregation {
    int n; // calls of a step; 1: each call is a step
    bool synchronous;
    pthread_mutex_t lock, updates_lock; // of the list; of the variables' assignments (deferred_updates.c), taken first
    int n_locks;
    atomic_int in_doubt; // a step failed while it was applied, and some of its variables have no value since
    struct {
        mu_deferred_site *items;
        size_t n, capacity;
    } sites; // in the order of their updates
} mu_aggregation;

mu_aggregation *mu__aggregation_new(int n, bool synchronous); // owned by the caller
void mu__aggregation_free(mu_aggregation *aggregation);       // NULL is accepted

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

// mu__deferred_accumulator makes an accumulator for such values where a variable is. Owned by the caller.
mu_accumulator *mu__deferred_accumulator(const mu_variable *variable, const char *what, const mu_spec *values);

// mu__aggregation_add makes a site known, mu__aggregation_forget drops those of an owner. mu__aggregation_leaves
// returns whether a graph leaves values at any site, mu__graph_leaves whether at this one.
mu_status mu__aggregation_add(mu_strategy *strategy, const mu_deferred_site *site);
void mu__aggregation_forget(mu_strategy *strategy, const void *owner);
bool mu__aggregation_leaves(mu_aggregation *aggregation, const mu_graph *graph);
bool mu__graph_leaves(const mu_graph *graph, const mu_accumulator *first);
// mu__aggregation_sites copies the list, which other threads may change meanwhile; mu__deferred_sites_free releases the
// copy.
typedef struct mu_deferred_sites {
    mu_deferred_site *items;
    size_t n;
} mu_deferred_sites;
mu_status mu__aggregation_sites(mu_aggregation *aggregation, mu_deferred_sites *out);
void mu__deferred_sites_free(mu_deferred_sites *sites);
void mu__deferred_site_release(const mu_deferred_site *site);

// ---- Applying steps (applied_step.c) ------------------------------------------------------------

// How steps are applied: functions that were traced for sets of sites. A zeroed one is empty. It keeps variables, and
// so the strategy, alive.
typedef struct mu_step_plan mu_step_plan;
typedef struct mu_step_plans {
    mu_step_plan **items;
    size_t n, capacity;
} mu_step_plans;
void mu__step_plans_free(mu_step_plans *plans);

// mu__aggregation_apply applies what calls have left: graphs[i] with attempts[i]. From then on values with a number
// below `step` are dropped. It runs in this process. After an error nothing was applied; or, if it came when the first
// update had begun, the variables of the step are in doubt.
mu_status mu__aggregation_apply(mu_strategy *strategy, mu_step_plans *plans, int n, mu_graph *const *graphs,
                                const int64_t *attempts, int64_t step);

// mu__aggregation_check fails with FAILED_PRECONDITION if a graph uses a variable in doubt.
mu_status mu__aggregation_check(const mu_strategy *strategy, const mu_graph *graph);

// ---- Assignments in such functions (deferred_updates.c) -----------------------------------------

// Rules of the variables of a strategy with an aggregation. In a call an assignment leaves its value, and what reads
// another value than a replica of MirroredStrategy would is refused.
extern const mu_variable_rules mu__deferred_rules;

// What a function has done so far, while it is traced for an attempt.
typedef struct mu_deferred_trace {
    struct {
        const mu_variable **items;
        size_t n, capacity;
    } assigned, applied;
    const mu_variable *read_late; // an applied one that was read afterwards; NULL: none
} mu_deferred_trace;

// Values that a call adds to accumulators for a deferred update of a variable.
typedef struct mu_deferred_change {
    const char *what;         // names the accumulators
    int n;                    // at most MU_MOST_DEFERRED
    mu_tensor *const *values; // [n] of floating-point types
    bool only_first;
    // update changes the variable by the sums of so many calls.
    mu_status (*update)(mu_variable *variable, mu_tensor *const *sums, mu_tensor *calls, double number);
    double number; // given to update
} mu_deferred_change;
enum { MU_MOST_DEFERRED = 2 };
mu_status mu__defer_change(mu_variable *variable, const mu_deferred_change *change);

// mu__deferred_applied is called with the variables whose gradients a call has left.
mu_status mu__deferred_applied(int n, mu_variable *const *variables);

// mu__refuse_in_calls fails with FAILED_PRECONDITION while a function is traced whose calls make steps together with
// others (`always`: also those that are a step each): `what` cannot be done there, for this reason.
mu_status mu__refuse_in_calls(bool always, const char *what, const char *reason);

#endif
