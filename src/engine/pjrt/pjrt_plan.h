// A plan of the PJRT engine: a graph as compiled programs, and what one run of them holds.
//
// A plan is for all devices of a client. Replicas run one program together, launched in one call for all of their
// devices in this process (launch.c); where the devices of several processes form one world, for those of all. Where
// that cannot be, because shapes differ or the processes share no world, each replica runs the parts of the graph
// between its collectives, which the host performs (run_parts.c). All are compiled when a run first needs them.
#ifndef MU_SRC_ENGINE_PJRT_PLAN_H
#define MU_SRC_ENGINE_PJRT_PLAN_H

#include "engine/pjrt/pjrt.h"

typedef struct mu_pjrt_run mu_pjrt_run;

// Where a program runs.
typedef struct mu_pjrt_span {
    int replicas;              // of all processes; MU_PJRT_ONE_BY_ONE: each runs the parts for itself
    int partitions;            // logical devices of each replica
    int n_local;               // devices of this process
    mu_device *const *devices; // [n_local]
    const int64_t *ids;        // [replicas * partitions] of the devices of all processes; NULL: of this one alone
} mu_pjrt_span;

// The compiled programs of a graph: one for a number of replicas, or the parts that each replica runs for itself. Where
// the host gathers parts of other sizes, they end there, and others follow for each size of the whole (gathered.c).
typedef struct mu_pjrt_programs mu_pjrt_programs;
struct mu_pjrt_programs {
    mu_arena memory;
    mu_pjrt_span span; // with copies of devices and ids; no devices: chosen at each run
    int64_t *ids;      // [replicas * partitions] of the plugin, if devices are given
    int *order;        // [span.n_local] whose lists of arguments and results the plugin takes, in its order:
                       // indices into span.devices; NULL: for one device
    int64_t hash;      // of the text, without comments
    mu_pjrt_parts cut;
    mu_spec *specs; // [slots]
    mu_pjrt_faults faults;
    pj_loaded **loaded; // [parts] NULL: these programs do not have the part
    mu_pjrt_run *idle;  // runs that can be used again; under the plan's lock
    // Of programs that follow others, under the plan's lock:
    mu_pjrt_programs *next;
    int users;        // runs that have them
    int64_t last_use; // of all uses of the plan's programs
};

typedef struct mu_pjrt_plan mu_pjrt_plan;
struct mu_pjrt_plan {
    mu_graph *graph;        // retained; pure
    int n_inputs;           // of the function; the variables of graph->resources follow them
    mu_pjrt_client *client; // retained
    mu_device *device;      // for runs that name none
    mu_arena memory;
    mu_spec *inputs;
    mu_access *access;    // [resources] how the graph uses each
    bool writes_shared;   // variables that the replicas share
    bool annotated;       // the graph says how work is divided among the logical devices of a replica
    pthread_mutex_t lock; // held while programs are compiled
    // NULL: no run has needed them; `shared` is that of several processes
    mu_pjrt_programs *_Atomic alone, *_Atomic together, *_Atomic parts, *_Atomic shared;
    mu_pjrt_programs *behind; // programs that follow those of `parts`, or one another; under the lock
    int64_t n_uses;           // of those; under the lock
    mu_pjrt_plan *unrolled;   // for parts, without loops around collectives; NULL: no run has needed it
};

// What a run holds on one device. The lanes of a replica's further logical devices follow the first one, which has its
// variables and results: they have copies of the variables (mu_pjrt_memory), and results only for these copies.
typedef struct mu_pjrt_lane {
    struct mu_pjrt_lane *first; // the lane that this one follows; NULL: none
    mu_pjrt_plan *plan;
    mu_pjrt_programs *programs;
    mu_device *device;
    const mu_run_args *args;
    pj_buffer **slots;                // values
    bool *borrowed;                   // [slots] the value belongs to a variable or a tensor
    pj_buffer **arguments, **results; // values of one execution
    mu_buffer **held;                 // [resources] acquired
    pj_buffer **fresh;                // [resources] new values that are still to be put into the acquired buffers
    pj_event **transfers;             // [inputs] of copies from the host; NULL: none
    pj_buffer *fault;                 // which op has failed (mu_emitter.fault); NULL: none can
    bool changed;                     // a program has taken over memory of variables, or new values were put in
    bool ended;                       // the programs launched so far have ended without an error of the plugin
} mu_pjrt_lane;

// One run, with all memory that it needs; runs are used again.
struct mu_pjrt_run {
    mu_pjrt_run *next;
    mu_arena memory;
    mu_pjrt_plan *plan;
    mu_pjrt_programs *programs;
    int n;                        // devices of this process
    bool shared;                  // launched with other processes
    mu_pjrt_lane *lanes;          // [n]
    pj_buffer *const **arguments; // [n] of each lane, in the plugin's order of devices
    pj_buffer ***results;         // [n] likewise
    pj_event **complete;          // [n] likewise
    int64_t *kept;                // arguments whose memory the program must not take over: tensors share it
};

static inline int mu__pjrt_slot(const mu_pjrt_programs *p, mu_edge edge)
{
    return p->cut.first[edge.node->id] + edge.output;
}

// Which of the function's arguments a value is; -1: none. The program neither takes such a value over nor makes it, and
// its buffer may be the argument's own memory on the host.
static inline int mu__pjrt_argument(const mu_pjrt_plan *plan, mu_edge edge)
{
    int i = edge.node->op == &mu_op_input ? plan->n_inputs - 1 : -1;
    while (i >= 0 && plan->graph->inputs.items[i] != edge.node)
        i--;
    return i;
}

// The number of outputs of the function itself; the variables follow them.
static inline size_t mu__pjrt_n_results(const mu_pjrt_plan *plan)
{
    return plan->graph->outputs.n - plan->graph->resources.n;
}

// ---- compile_options.c --------------------------------------------------------------------------

// mu__pjrt_compile_options writes the options, a CompileOptionsProto, of a program that n replicas run together on the
// devices with these ids of the plugin, ids[replica * partitions + partition]; one device without ids: a program for
// whichever device is named at each run. With several partitions XLA divides the program as it is annotated. At most
// MU_PJRT_MOST_REPLICAS devices. Returns their length.
enum { MU_PJRT_MOST_REPLICAS = 1024, MU_PJRT_OPTIONS_BYTES = 192 + 20 * MU_PJRT_MOST_REPLICAS };
size_t mu__pjrt_compile_options(int n, int partitions, const int64_t *ids, unsigned off,
                                char out[MU_PJRT_OPTIONS_BYTES]);

// ---- compile_call.c, error_origin.c, memory_need.c ----------------------------------------------

// mu__pjrt_compile_text compiles a program's text and waits for that, at most MUSTER_COMPILE_TIMEOUT. The caller owns
// *out. Errors: DEADLINE_EXCEEDED; the plugin's.
mu_status mu__pjrt_compile_text(mu_pjrt_client *client, const char *what, const mu_pjrt_text *text, const char *options,
                                size_t options_bytes, pj_loaded **out);
// mu__pjrt_add_error_origin puts the op, layer and line that the pending error of a compilation is about in front of
// it.
void mu__pjrt_add_error_origin(const mu_pjrt_text *text);
// mu__pjrt_check_memory fails with RESOURCE_EXHAUSTED if a compiled program needs more memory than its device has, as
// far as the plugin tells. mu__pjrt_name_largest adds the largest values to such an error.
mu_status mu__pjrt_check_memory(const mu_pjrt_plan *plan, const mu_pjrt_programs *p, pj_loaded *loaded);
void mu__pjrt_name_largest(const mu_pjrt_plan *plan, const mu_pjrt_programs *p);

// ---- compile_program.c --------------------------------------------------------------------------

// mu__pjrt_plan_for_parts returns the plan for runs in parts: the plan itself, or that of its unrolled graph, which
// belongs to it; NULL on error.
mu_pjrt_plan *mu__pjrt_plan_for_parts(mu_pjrt_plan *plan);
mu_plan *mu__pjrt_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs);
void mu__pjrt_free(mu_plan *plan);
// mu__pjrt_programs returns the programs for these devices and compiles them if no run has; NULL on error.
// mu__pjrt_known_programs returns NULL without an error if no run has.
mu_pjrt_programs *mu__pjrt_programs(mu_pjrt_plan *plan, const mu_pjrt_span *span);
// mu__pjrt_programs_new compiles programs, with `before` those that follow if the whole has this size; NULL on error.
mu_pjrt_programs *mu__pjrt_programs_new(const mu_pjrt_plan *plan, const mu_pjrt_span *span,
                                        const mu_pjrt_programs *before, int64_t whole);
void mu__pjrt_programs_free(const mu_pjrt_plan *plan, mu_pjrt_programs *p); // NULL accepted
mu_pjrt_programs *mu__pjrt_known_programs(mu_pjrt_plan *plan, const mu_pjrt_span *span);

// ---- gathered.c: programs behind gathers whose parts have other sizes ---------------------------

// mu__pjrt_programs_behind returns the programs that follow `before` where the whole of what the host gathers then has
// this size, and compiles them if there are none (MUSTER_PLAN_CACHE are kept for each gather); NULL on error. The
// caller gives them back with mu__pjrt_leave_behind, which does nothing for programs that follow no others.
mu_pjrt_programs *mu__pjrt_programs_behind(mu_pjrt_plan *plan, const mu_pjrt_programs *before, int64_t whole);
void mu__pjrt_leave_behind(mu_pjrt_plan *plan, mu_pjrt_programs *p);
void mu__pjrt_free_behind(mu_pjrt_plan *plan);

// ---- lane.c -------------------------------------------------------------------------------------

// mu__pjrt_run_take returns a run of the programs with empty lanes; NULL on error. mu__pjrt_run_give takes it back: its
// lanes are empty.
mu_pjrt_run *mu__pjrt_run_take(mu_pjrt_plan *plan, mu_pjrt_programs *programs);
void mu__pjrt_run_give(mu_pjrt_run *run);
void mu__pjrt_run_free(mu_pjrt_run *run);
// mu__pjrt_lane_begin brings inputs and variables to the device of a lane; `args` must live until the lane's end.
// mu__pjrt_lane_results makes tensors of the outputs, and finds the variables' new values (mu__pjrt_commit puts them
// in). mu__pjrt_lane_empty drops the values, and lets go of the variables: the next launch may take them.
// mu__pjrt_lane_end waits for copies from the host; after a failure, what the run has changed is in doubt.
mu_status mu__pjrt_lane_begin(mu_pjrt_lane *lane, mu_device *device, const mu_run_args *args);
mu_status mu__pjrt_lane_results(mu_pjrt_lane *lane);
void mu__pjrt_lane_empty(mu_pjrt_lane *lane);
void mu__pjrt_lane_end(mu_pjrt_lane *lane, mu_status status);

// mu__pjrt_execute launches part `number` of a run's programs on all of its lanes, whose values become its results;
// run->complete has the events of the end. `launch` is the number of a launch with other processes.
mu_status mu__pjrt_execute(mu_pjrt_run *run, int number, int64_t launch);

// mu__pjrt_check_fault fails with the error of the op, if one has failed in a program of the run that has ended.
mu_status mu__pjrt_check_fault(const mu_pjrt_run *run);

// ---- launch.c, run_parts.c ----------------------------------------------------------------------

mu_status mu__pjrt_launch(mu_plan *plan, int n, int partitions, mu_device *const *devices, const mu_run_args *args,
                          const mu_launch_world *world, mu_launch **out);
mu_status mu__pjrt_finish(mu_launch *launch);
mu_status mu__pjrt_join(mu_plan *plan, const mu_launch_world *world, int n, int partitions, mu_device *const *devices,
                        bool compile, int64_t *hash);
mu_status mu__pjrt_run_parts(mu_pjrt_plan *plan, const mu_run_args *args);

// ---- drawn_state.c ------------------------------------------------------------------------------

// mu__pjrt_before_draws returns the value that a generator had before draws alone, if any, made this one of it.
mu_edge mu__pjrt_before_draws(mu_edge edge);

// ---- state.c: the variables of a run ------------------------------------------------------------

// mu__pjrt_find_accesses finds how the graph uses each variable, and whether it has annotations.
mu_status mu__pjrt_find_accesses(mu_pjrt_plan *plan);
// mu__pjrt_acquire puts the variables' values into their slots.
mu_status mu__pjrt_acquire(mu_pjrt_lane *lane);
// mu__pjrt_is_shared returns whether tensors share the memory that a variable's value is in. mu__pjrt_lend locks the
// buffers that a program takes over. mu__pjrt_take_back unlocks them after the launch, with the program's results in
// them if it succeeded, else without a value.
bool mu__pjrt_is_shared(const mu_pjrt_lane *lane, int resource);
void mu__pjrt_lend(mu_pjrt_lane *lane, const mu_pjrt_part *part);
void mu__pjrt_take_back(mu_pjrt_lane *lane, const mu_pjrt_part *part, bool launched);
// mu__pjrt_find_fresh finds the new values, before any variable changes, and mu__pjrt_commit puts them in and commits
// them. mu__pjrt_commit_draws does it for the generators of a run that has failed behind programs that ended.
// mu__pjrt_let_go ends the hold on the variables; mu__pjrt_doubt poisons those that the run has changed.
mu_status mu__pjrt_find_fresh(mu_pjrt_lane *lane);
mu_status mu__pjrt_commit(mu_pjrt_lane *lane);
mu_status mu__pjrt_commit_draws(mu_pjrt_lane *lane);
void mu__pjrt_let_go(mu_pjrt_lane *lane);
void mu__pjrt_doubt(mu_pjrt_lane *lane);
// mu__pjrt_buffer_with returns the acquired buffer of a variable whose value after the run is in this slot; NULL: none.
mu_buffer *mu__pjrt_buffer_with(const mu_pjrt_lane *lane, int slot);

#endif
