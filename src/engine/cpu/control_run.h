// Shared by the two ways to run a step with bodies: with shapes known at compile time (control_run.c), and with
// shapes found at run time (dynamic_control.c).
#ifndef MU_SRC_ENGINE_CPU_CONTROL_RUN_H
#define MU_SRC_ENGINE_CPU_CONTROL_RUN_H

#include "engine/cpu/plan.h"
#include "graph/control/control.h"

// The bodies of one node.
struct control {
    mu_device *device;
    const mu_node *node;
    mu_bodies bodies;
    nested *plans[2];
    mu_plan *fixed[2]; // if all shapes are known at compile time
    void **in;         // addresses of a body's inputs; `destinations` has those of its results
    void **destinations;
    mu_spec *specs;
};

// The rows that all iterations yield for one result, contiguous (tensor_array.c). Initialise with zeros, except
// `loose`. The owner frees `data` with mu__free.
typedef struct tensor_array {
    mu_spec row;
    size_t row_bytes;
    int loose; // number of first axes that may differ between rows
    int64_t rows, capacity;
    int64_t filled_from; // rows [filled_from, rows) are written
    char *data;
} tensor_array;

// mu__tensor_array_axes returns the number of leading axes of a value that count iterations of loops.
int mu__tensor_array_axes(mu_edge edge);
// mu__tensor_array_write copies a row into the stack; `rows` is the maximum number of rows, or -1 if unknown.
mu_status mu__tensor_array_write(tensor_array *s, int64_t index, mu_tensor *row, int64_t rows, const mu_graph *graph);

void mu__slice_spec(const mu_spec *stack, mu_spec *row);
void mu__body_specs(const struct control *c, int b, const mu_spec *in, mu_spec *out);
mu_status mu__loop_limit(const mu_node *node, int64_t asked, int64_t rows, bool stacks, int64_t *limit);

#endif
