// A plan: a graph under known shapes, as the native engine runs it.
//
// Every value is given storage once: an input, a constant, a variable's own memory, a fresh buffer for a
// result, or a place in one arena that the plans of a device share. Steps are kernels over views of that
// storage; binding the views to addresses before each run is a handful of stores.
#ifndef MU_SRC_ENGINE_CPU_PLAN_H
#define MU_SRC_ENGINE_CPU_PLAN_H

#include "engine/engine.h"

typedef enum storage {
    STORAGE_ARENA,
    STORAGE_INPUT,     // of the run
    STORAGE_CONSTANT,  // captured by the graph
    STORAGE_RESOURCE,  // a variable's memory, read in place
    STORAGE_RESULT,    // a buffer made for each run
} storage;

// One output of one node. Values that share memory point to the one that owns it.
typedef struct value {
    mu_spec spec;
    size_t bytes;
    int root;          // index of the owner; its own index if it is one
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
    int first, last;
} bucket;

typedef struct step {
    const mu_node *node;
    mu_kernel kernel;
    mu_kernel_run *run;
    int bucket;             // the block that this step reduces as one; -1: none
    size_t scratch_bytes, scratch_offset;
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
    int n_values, n_steps, n_buckets, n_bindings, n_resource_bindings, n_results;
    int *first_value;       // of each node
    value *values;
    step *steps;
    bucket *buckets;
    binding *bindings;
    resource_binding *resource_bindings;
    mu_view *resources;     // [graph resources], looked up in each run
    int *result_roots;      // owners that need a buffer in each run
    mu_buffer **results;    // those buffers, during a run
    size_t arena_bytes;
};

// A block of memory needed from step `first` to step `last`; layout.c finds its place.
typedef struct block {
    size_t bytes;
    int first, last;
    size_t *offset;         // where to write it
} block;

// mu__layout places blocks so that those alive together do not overlap, the largest first (greedy by size:
// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020); `total` gets the
// bytes needed.
mu_status mu__layout(block *blocks, int n, size_t *total);

static inline int mu__value_index(const mu_plan *plan, mu_edge edge)
{
    return plan->first_value[edge.node->id] + edge.output;
}

// mu__cpu_lower returns a copy of the graph with fused rows in place of what is bound by memory (fuse.c).
mu_graph *mu__cpu_lower(const mu_graph *graph);
mu_plan *mu__cpu_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs);
mu_status mu__cpu_run(mu_plan *plan, const mu_run_args *args);
void mu__cpu_free(mu_plan *plan);
void mu__cpu_close_device(mu_device *device);

#endif
