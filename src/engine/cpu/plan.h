// A plan: a graph compiled by the native CPU engine for known input shapes.
// If a value's shape depends on elements, the plan is split at that op: a head, the op, and a plan of the rest for each
// shape seen.
//
// Every value gets its storage once: an input, a constant, a variable's own memory, a fresh buffer for a result, or a
// place in one arena that the plans of a device share. Steps are kernels over views of that storage; each run only
// stores the addresses into the views.
#ifndef MU_SRC_ENGINE_CPU_PLAN_H
#define MU_SRC_ENGINE_CPU_PLAN_H

#include "engine/engine.h"

#define END_OF_PLAN INT32_MAX

typedef enum storage {
    STORAGE_ARENA,
    STORAGE_INPUT,    // an input of the run
    STORAGE_CONSTANT, // captured by the graph
    STORAGE_RESOURCE, // a variable's memory, read in place
    STORAGE_RESULT,   // a buffer made for each run
} storage;

// How much of the first input's memory a node's first output shares.
typedef enum sharing { SHARES_NOTHING, SHARES_PART, SHARES_ALL } sharing;

// One output of one node. Values that share memory point to the one that owns it.
typedef struct value {
    mu_spec spec;
    size_t bytes;
    int root;     // index of the owner; its own index if it is one
    size_t shift; // bytes into the owner's memory
    sharing sharing;
    bool escapes; // a caller receives it, or a collective works on it
    // for owners only:
    storage storage;
    int index;       // of the input, constant node, resource or result
    int first, last; // steps between which the memory is needed
    int bucket;      // bucket of the all-reduce that contains it; -1: none
    size_t offset;   // in the arena
} value;

// The operand of an all-reduce: its members are contiguous in one block of memory.
typedef struct bucket {
    int node;
    size_t bytes, offset;
    size_t shared; // offset in the collective's memory, if it has its own
    int first, last;
    int next; // next bucket that the same step waits for; -1: none
    // during a run
    bool under_way;
    int64_t started; // the collective's identifier of this all-reduce
} bucket;

typedef struct step {
    const mu_node *node;
    mu_kernel kernel;
    mu_kernel_run *run;
    int bucket;     // the bucket whose all-reduce this step starts; -1: none
    int awaits;     // the first bucket that this step waits for; -1: none
    bool shared;    // writes memory that all replicas share
    bool is_remote; // is sent to the process that keeps its resources
    size_t scratch_bytes, scratch_offset;
    struct control *control; // for ops with bodies
} step;

// A view of a step and the value that it shows.
typedef struct binding {
    mu_view *view;
    int value;
} binding;

typedef struct resource_binding {
    mu_view *view;
    int resource;
} resource_binding;

struct mu_plan {
    mu_graph *graph; // retained
    mu_device *device;
    mu_arena memory;  // owns everything below
    int awaited_last; // the first bucket that no step uses before the end; -1: none
    int n_values, n_steps, n_buckets, n_bindings, n_resource_bindings, n_results;
    int *first_value; // index of each node's first output
    value *values;
    step *steps;
    bucket *buckets;
    binding *bindings;
    resource_binding *resource_bindings;
    mu_view *resources;  // [graph resources], looked up in each run
    mu_access *access;   // [graph resources] how the plan uses each
    mu_buffer **held;    // [graph resources] acquired during a run
    int *result_roots;   // owners that need a fresh buffer in each run
    int *result_outputs; // the first output that shows each of them
    mu_buffer **results; // those buffers, during a run; NULL where the caller gave memory
    void **result_data;  // the address of each
    void **input_data;   // [graph inputs] the addresses that mu__cpu_run passes on
    size_t arena_bytes;
    size_t shared_bytes; // of all buckets
    char *shared;        // the collective's memory for the buckets during a run; NULL: they are in the arena
    int break_at;        // node after which the plan continues in a second plan; -1: none
    struct dynamic_plan *dynamic_plan;
};

// Arguments of one run of a plan, or of a body inside it. Borrowed for the run.
typedef struct cpu_call {
    const mu_run_args *run;       // replica and collective
    void *const *in;              // [graph inputs] addresses of the elements
    mu_tensor *const *in_tensors; // [graph inputs] the tensors, for results that are views; NULL: results are copies
    void *const *destinations;    // [graph outputs] of each; NULL (or a NULL element): a new tensor
    mu_tensor **out;              // [graph outputs] new tensors, owned references; may be NULL if all have one
    int depth;                    // nesting depth of bodies
} cpu_call;

// A block of memory needed from step `first` to step `last`; memory_plan.c assigns its offset.
typedef struct block {
    size_t bytes;
    int first, last;
    size_t *offset; // receives the result
} block;

// mu__memory_plan places blocks so that blocks alive at the same time do not overlap, the largest first (greedy by
// size: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020). `total` receives the
// bytes needed.
mu_status mu__memory_plan(block *blocks, int n, size_t *total);

static inline int mu__value_index(const mu_plan *plan, mu_edge edge)
{
    return plan->first_value[edge.node->id] + edge.output;
}

// mu__cpu_lower returns a copy of the graph in which fused ops replace memory-bound chains (fuse_patterns.c).
mu_graph *mu__cpu_lower(const mu_graph *graph);
mu_plan *mu__cpu_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs);
mu_status mu__cpu_run(mu_plan *plan, const mu_run_args *args);
mu_status mu__cpu_call(mu_plan *plan, const cpu_call *call);
void mu__cpu_free(mu_plan *plan);
// After a failure, mu__cpu_poison invalidates the variables that a plan's steps up to number `last` write.
void mu__cpu_poison(const mu_plan *plan, int replica, int last);
// mu__cpu_bytes returns the arena size of a plan, including its largest nested plans.
size_t mu__cpu_bytes(const mu_plan *plan);
void mu__cpu_close_device(mu_device *device);

// ---- Overlapped all-reduces (overlap.c) ---------------------------------------------------------

// mu__overlap_plan finds the step before which each bucket's all-reduce must be complete, and keeps the bucket's
// memory until then.
void mu__overlap_plan(mu_plan *plan);
// mu__overlap_start starts the all-reduce of a step's bucket at `data`. mu__overlap_wait waits for a list of buckets.
// mu__overlap_abandon cleans up after a run that failed.
mu_status mu__overlap_start(const mu_plan *plan, const step *s, void *data);
mu_status mu__overlap_wait(const mu_plan *plan, int first, const cpu_call *call);
void mu__overlap_abandon(const mu_plan *plan, const cpu_call *call);

// ---- Nested plans (plan_cache.c, control_run.c, dynamic_shapes.c) -------------------------------

// A graph with its plans for the shapes seen so far; when full, the least recently used plan is freed.
enum { NESTED_PLANS = 16 };
typedef struct nested {
    mu_device *device;
    mu_graph *graph; // retained
    mu_plan *plans[NESTED_PLANS];
    mu_spec *specs[NESTED_PLANS];
    uint64_t last_use[NESTED_PLANS], clock;
} nested;

nested *mu__nested_new(mu_device *device, mu_graph *graph);
void mu__nested_free(nested *n);
mu_plan *mu__nested_plan(nested *n, const mu_spec *inputs); // NULL on error
size_t mu__nested_bytes(const nested *n);

// mu__control_prepare compiles the bodies of a step whose shapes are all known; mu__control_run runs the step.
mu_status mu__control_prepare(mu_plan *plan, step *s);
mu_status mu__control_run(const struct control *control, const mu_kernel *kernel, const cpu_call *call);
void mu__control_free(struct control *control);
size_t mu__control_bytes(const struct control *control);
bool mu__is_control(const mu_op *op);

// mu__control_new keeps a node's bodies for runs whose shapes are unknown at compile time. mu__control_dynamic does
// such a run: `in` holds the node's inputs with their specs, `out` receives owned tensors.
struct control *mu__control_new(mu_device *device, const mu_node *node);
mu_status mu__control_dynamic(struct control *control, const cpu_call *call, void *const *in, const mu_spec *specs,
                              mu_tensor **out);

// mu__dynamic_new splits a plan after plan->break_at; mu__dynamic_call runs the head, the op and the rest.
mu_status mu__dynamic_new(mu_plan *plan, const mu_spec *inputs);
mu_status mu__dynamic_call(mu_plan *plan, const cpu_call *call);
void mu__dynamic_free(struct dynamic_plan *dynamic_plan);
size_t mu__dynamic_bytes(const struct dynamic_plan *dynamic_plan);

// ---- Resources in other processes (remote_effects.c) --------------------------------------------

// mu__is_remote_effect returns whether an effect is on resources that another process keeps. A plan does not acquire
// those.
bool mu__is_remote_effect(const mu_graph *graph, const mu_node *node);
// mu__remote_effect_apply sends an effect there with the kernel's inputs; out [n_out] gets owned references.
// mu__remote_effect_run copies the results to the kernel's outputs.
mu_status mu__remote_effect_apply(const mu_graph *graph, const mu_node *node, const mu_kernel *kernel, mu_tensor **out);
mu_status mu__remote_effect_run(const mu_graph *graph, const mu_node *node, const mu_kernel *kernel);

#endif
