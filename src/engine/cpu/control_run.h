// What the two ways to run a step with bodies share: with shapes known before (control_run.c) and while it runs
// (dynamic_control.c).
#ifndef MU_SRC_ENGINE_CPU_CONTROL_RUN_H
#define MU_SRC_ENGINE_CPU_CONTROL_RUN_H

#include "engine/cpu/plan.h"
#include "graph/control.h"

// The bodies of one node.
struct control {
    mu_device *device;
    const mu_node *node;
    mu_bodies bodies;
    nested *plans[2];
    mu_plan *fixed[2];   // where all shapes are known before
    void **in;           // room for what a body is given, and where it puts what it gives
    void **places;
    mu_spec *specs;
};

// Rows of all iterations of one result, side by side (tensor_array.c); zero, but for `loose`, to begin with. For
// mu__free: data.
typedef struct tensor_array {
    mu_spec row;
    size_t row_bytes;
    int loose;               // so many first axes may differ from row to row
    int64_t rows, room;
    int64_t filled_from;     // rows [filled_from, rows) are there
    char *data;
} tensor_array;

// mu__tensor_array_axes is the number of first axes of a value that count iterations of loops.
int mu__tensor_array_axes(mu_edge edge);
// mu__tensor_array_write makes a copy of a row; `rows` says how many there will be at most, -1: unknown.
mu_status mu__tensor_array_write(tensor_array *s, int64_t index, mu_tensor *row, int64_t rows, const mu_graph *graph);

void mu__slice_spec(const mu_spec *stack, mu_spec *row);
void mu__body_specs(const struct control *c, int b, const mu_spec *in, mu_spec *out);
mu_status mu__loop_limit(const mu_node *node, int64_t asked, int64_t rows, bool stacks, int64_t *limit);

#endif
