// A plan of the PJRT engine: a graph as compiled programs, and what one run of them holds.
#ifndef MU_SRC_ENGINE_PJRT_PLAN_H
#define MU_SRC_ENGINE_PJRT_PLAN_H

#include "engine/pjrt/pjrt.h"

// The compiled programs of a graph, whole or split at its collectives.
typedef struct mu_pjrt_programs {
    bool ready;
    mu_pjrt_parts cut;
    mu_spec *specs;               // [slots]
    pj_loaded **loaded;           // [parts]
    pj_buffer **slots;            // values of one run
    bool *borrowed;               // [slots] the value belongs to a variable or a tensor
    pj_buffer **arguments, **results;  // values of one execution
} mu_pjrt_programs;

typedef struct mu_pjrt_plan {
    mu_graph *graph;              // retained; pure
    int n_inputs;                 // of the function; the variables of graph->resources follow them
    mu_device *device;
    mu_pjrt_client *client;       // retained
    mu_arena memory;
    mu_spec *inputs;
    mu_pjrt_programs whole, split;  // compiled when a run first needs them
    mu_access *access;            // [resources] how the graph uses each
    // of one run:
    mu_buffer **held;             // [resources] acquired
    pj_buffer **fresh;            // [resources] new values that are still to be put into the acquired buffers
    bool consumed;                // a program has taken over memory of variables
} mu_pjrt_plan;

static inline int mu__pjrt_slot(const mu_pjrt_programs *p, mu_edge edge)
{
    return p->cut.first[edge.node->id] + edge.output;
}

// ---- compile.c ----------------------------------------------------------------------------------

mu_plan *mu__pjrt_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs);
void mu__pjrt_free(mu_plan *plan);
// mu__pjrt_programs compiles the programs unless they are ready.
mu_status mu__pjrt_programs(mu_pjrt_plan *plan, mu_pjrt_programs *p, bool split, int replica);

// ---- state.c: the variables of a run ------------------------------------------------------------

mu_status mu__pjrt_find_accesses(mu_pjrt_plan *plan);
// mu__pjrt_acquire puts the variables' values into their slots.
mu_status mu__pjrt_acquire(mu_pjrt_plan *plan, mu_pjrt_programs *p, int replica);
// mu__pjrt_lend locks the buffers that a program takes over. mu__pjrt_take_back unlocks them after the launch, with the
// program's results in them if it succeeded, else without a value.
void mu__pjrt_lend(mu_pjrt_plan *plan, const mu_pjrt_part *part);
void mu__pjrt_take_back(mu_pjrt_plan *plan, mu_pjrt_programs *p, const mu_pjrt_part *part, bool launched);
// mu__pjrt_find_fresh finds the new values, before any variable changes, and mu__pjrt_commit puts them in and commits
// them. mu__pjrt_release ends the run's hold on the variables; if the run failed after a program took over memory, what
// it writes is in doubt.
mu_status mu__pjrt_find_fresh(mu_pjrt_plan *plan, mu_pjrt_programs *p);
mu_status mu__pjrt_commit(mu_pjrt_plan *plan, int replica);
void mu__pjrt_release(mu_pjrt_plan *plan, int replica, mu_status status);

#endif
