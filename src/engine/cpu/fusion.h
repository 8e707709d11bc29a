// A fused op: element-wise ops that are computed together tile by tile, so that intermediate values never leave the
// cache. Only this engine creates such ops; they are never serialised or shared with other processes.
#ifndef MU_SRC_ENGINE_CPU_FUSION_H
#define MU_SRC_ENGINE_CPU_FUSION_H

#include "graph/graph.h"

enum {
    MU_FUSION_MEMBERS = 16,
    MU_FUSION_OPERANDS = 3,  // of a member
    MU_FUSION_NODES = MU_FUSION_MEMBERS * MU_FUSION_OPERANDS + MU_FUSION_MEMBERS, // of a body, inputs included
};

// The body: inputs first, in the order of the node's inputs; its last node is the result.
typedef struct mu_fusion_attrs {
    mu_graph *body;
} mu_fusion_attrs;

extern const mu_op mu__op_fusion;

// mu__fusion_fuse replaces groups of element-wise ops by fused ops (fusion.c).
mu_status mu__fusion_fuse(mu_graph *graph);

// mu__fusion_specs infers every node of a body from the specs of its inputs; `specs` has one entry per node.
mu_status mu__fusion_specs(const mu_graph *body, const mu_spec *in, mu_spec *specs);

// The fused op's kernel (fusion_run.c).
mu_status mu__fusion_prepare(mu_prepare *prepare);
mu_status mu__fusion_run(const mu_kernel *kernel);
void mu__fusion_release(void *state);

#endif
