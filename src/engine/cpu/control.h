// What the two ways to run a step with bodies share: with shapes known before (control.c) and while it runs
// (measured.c).
#ifndef MU_SRC_ENGINE_CPU_CONTROL_H
#define MU_SRC_ENGINE_CPU_CONTROL_H

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

void mu__slice_spec(const mu_spec *stack, mu_spec *row);
void mu__body_specs(const struct control *c, int b, const mu_spec *in, mu_spec *out);
mu_status mu__loop_limit(const mu_node *node, int64_t asked, int64_t rows, bool stacks, int64_t *limit);

#endif
