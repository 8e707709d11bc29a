// A plan: a graph under known shapes, as the native engine runs it.
// Where the shape of a value depends on elements, a plan is in two: head, the op, and a rest for each shape seen.
//
// Every value is given storage once: an input, a constant, a variable's own memory, a fresh buffer for a
// result, or a place in one arena that the plans of a device share. Steps are kernels over views of that
// storage; binding the views to addresses before each run is a handful of stores.
#ifndef MU_SRC_ENGINE_CPU_PLAN_H
#define MU_SRC_ENGINE_CPU_PLAN_H

#include "engine/engine.h"

#define END_OF_PLAN INT32_MAX

typedef enum storage {
    STORAGE_ARENA,
    STORAGE_INPUT,     // of the run
    STORAGE_CONSTANT,  // captured by the graph
    STORAGE_RESOURCE,  // a variable's memory, read in place
    STORAGE_RESULT,    // a buffer made for each run
} storage;

// What a node's first output has of the first input's memory.
typedef enum sharing { SHARES_NOTHING, SHARES_PART, SHARES_ALL } sharing;

// One output of one node. Values that share memory point to the one that owns it.
typedef struct value {
    mu_spec spec;
    size_t bytes;
    int root;          // index of the owner; its own index if it is one
    size_t shift;      // bytes into the owner's memory
    sharing sharing;
    bool escapes;      // a caller gets it, or a collective works on it
    // of owners:
    storage storage;
    int index;         // of the input, constant node, resource or result
    int first, last;   // steps between which the memory is needed
    int bucket;        // all-reduce whose block it lies in; -1: none
    size_t offset;     // in the arena
} value;

// What an all-reduce works on: its members side by side in one block of memory.
typedef struct bucket {
    int node;
    size_t bytes, offset;
    size_t shared;     // its place in the memory of a collective that has its own
    int first, last;
    int next;              // another bucket that the same step waits for; -1: none
    // during a run
    bool under_way;
    int64_t started;       // what the collective calls it
} bucket;

typedef struct step {
    const mu_node *node;
    mu_kernel kernel;
    mu_kernel_run *run;
    int bucket;             // the block that this step starts to reduce as one; -1: none
    int awaits;             // the first of the blocks that it waits for; -1: none
    bool shared;            // writes what all replicas share
    size_t scratch_bytes, scratch_offset;
    struct control *control;  // of ops with bodies
} step;

// A view of a step and the value behind it.
typedef struct binding {
    mu_view *view;
    int value;
} binding;

typedef struct resource_binding {
    mu_view *view;
    int resource;
} resource_binding;

struct mu_plan {
    mu_graph *graph;        // retained
    mu_device *device;
    mu_arena memory;        // of everything below
    int awaited_last;       // the first of the buckets that nothing uses before the end; -1: none
    int n_values, n_steps, n_buckets, n_bindings, n_resource_bindings, n_results;
    int *first_value;       // of each node
    value *values;
    step *steps;
    bucket *buckets;
    binding *bindings;
    resource_binding *resource_bindings;
    mu_view *resources;     // [graph resources], looked up in each run
    bool *overwritten;      // [graph resources] as a whole, before anything else is done with them
    int *result_roots;      // owners that need a buffer in each run
    int *result_outputs;    // the first output that is each of them
    mu_buffer **results;    // those buffers, during a run; NULL where the caller gave a place
    void **result_data;     // where each lies
    void **input_data;      // [graph inputs] room for a run that comes from outside
    size_t arena_bytes;
    size_t shared_bytes;    // of all buckets
    char *shared;           // memory of the collective that they lie in during a run; NULL: in the arena
    int break_at;           // node behind which the plan continues as `tail`; -1: none
    struct dynamic_plan *dynamic_plan;
};

// What one run of a plan, or of a body in one, is given. Borrowed for the run.
typedef struct cpu_call {
    const mu_run_args *run;           // replica and collective
    void *const *in;                  // [graph inputs] elements
    mu_tensor *const *in_tensors;     // [graph inputs] what they lie in, to give views of; NULL: results are copies
    void *const *places;              // [graph outputs] where each goes; NULL, or an element NULL: into a new tensor
    mu_tensor **out; // [graph outputs] the new tensors, owned references; may be NULL if all have places
    int depth;                        // of bodies around
} cpu_call;

// A block of memory needed from step `first` to step `last`; memory_plan.c finds its place.
typedef struct block {
    size_t bytes;
    int first, last;
    size_t *offset;         // where to write it
} block;

// mu__memory_plan places blocks so that those alive together do not overlap, the largest first (greedy by size:
// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020); `total` gets the
// bytes needed.
mu_status mu__memory_plan(block *blocks, int n, size_t *total);

static inline int mu__value_index(const mu_plan *plan, mu_edge edge)
{
    return plan->first_value[edge.node->id] + edge.output;
}

// mu__cpu_lower returns a copy of the graph with fused rows in place of what is bound by memory (fuse_patterns.c).
mu_graph *mu__cpu_lower(const mu_graph *graph);
mu_plan *mu__cpu_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs);
mu_status mu__cpu_run(mu_plan *plan, const mu_run_args *args);
mu_status mu__cpu_call(mu_plan *plan, const cpu_call *call);
void mu__cpu_free(mu_plan *plan);
// mu__cpu_poison poisons what the steps of a plan up to number `last` write, after a failure.
void mu__cpu_poison(const mu_plan *plan, int replica, int last);
// mu__cpu_bytes is the arena that a plan needs together with the deepest of the plans in it.
size_t mu__cpu_bytes(const mu_plan *plan);
void mu__cpu_close_device(mu_device *device);

// ---- Reductions that run meanwhile (overlap.c) ------------------------------------------------

// mu__overlap_plan finds the step before which each bucket's reduction must have come to its end, and keeps the
// bucket's memory until then.
void mu__overlap_plan(mu_plan *plan);
// mu__overlap_start starts the reduction of a step's bucket, which lies at `data`; mu__overlap_wait waits for a list of
// them; mu__overlap_abandon is for a run that has failed.
mu_status mu__overlap_start(const mu_plan *plan, const step *s, void *data);
mu_status mu__overlap_wait(const mu_plan *plan, int first, const cpu_call *call);
void mu__overlap_abandon(const mu_plan *plan, const cpu_call *call);

// ---- Plans in plans (plan_cache.c, control_run.c, dynamic_shapes.c) -----------------------------

// A graph with its plans for the shapes that were seen; the least recently used goes.
enum { NESTED_PLANS = 16 };
typedef struct nested {
    mu_device *device;
    mu_graph *graph;        // retained
    mu_plan *plans[NESTED_PLANS];
    mu_spec *specs[NESTED_PLANS];
    uint64_t last_use[NESTED_PLANS], clock;
} nested;

nested *mu__nested_new(mu_device *device, mu_graph *graph);
void mu__nested_free(nested *n);
mu_plan *mu__nested_plan(nested *n, const mu_spec *inputs);  // NULL on error
size_t mu__nested_bytes(const nested *n);

// mu__control_prepare makes plans for the bodies of a step whose shapes are all known; mu__control_run runs it.
mu_status mu__control_prepare(mu_plan *plan, step *s);
mu_status mu__control_run(const struct control *control, const mu_kernel *kernel, const cpu_call *call);
void mu__control_free(struct control *control);
size_t mu__control_bytes(const struct control *control);
bool mu__is_control(const mu_op *op);

// mu__control_new keeps a node's bodies for runs with shapes that are not known before; mu__control_dynamic is such a
// run: `in` are the node's inputs with their specs, `out` gets owned tensors.
struct control *mu__control_new(mu_device *device, const mu_node *node);
mu_status mu__control_dynamic(struct control *control, const cpu_call *call, void *const *in, const mu_spec *specs,
                              mu_tensor **out);

// mu__dynamic_new cuts a plan behind plan->break_at; mu__dynamic_call runs both parts and the op between.
mu_status mu__dynamic_new(mu_plan *plan, const mu_spec *inputs);
mu_status mu__dynamic_call(mu_plan *plan, const cpu_call *call);
void mu__dynamic_free(struct dynamic_plan *dynamic_plan);
size_t mu__dynamic_bytes(const struct dynamic_plan *dynamic_plan);

#endif
