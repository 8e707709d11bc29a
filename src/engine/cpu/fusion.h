// A fused op: element-wise ops that are computed together tile by tile, so that intermediate values never leave the
// cache. Only this engine creates such ops; they are never serialised or shared with other processes.
#ifndef MU_SRC_ENGINE_CPU_FUSION_H
#define MU_SRC_ENGINE_CPU_FUSION_H

#include "graph/graph.h"

enum {
    MU_FUSION_MEMBERS = 32,
    MU_FUSION_OPERANDS = 3, // of a member
    MU_FUSION_RESULTS = 8,  // outputs and written variables
    // of a body, inputs included
    MU_FUSION_NODES = MU_FUSION_MEMBERS * MU_FUSION_OPERANDS + MU_FUSION_MEMBERS + MU_FUSION_RESULTS,
};

// The body: first its inputs, which are the node's inputs and then the old value of each of its variables. Its outputs
// are the node's outputs and then the new value of each variable.
typedef struct mu_fusion_attrs {
    mu_graph *body;
    int64_t n_variables;
} mu_fusion_attrs;

extern const mu_op mu__op_fusion;       // writes no variable
extern const mu_op mu__op_fused_update; // overwrites its variables

// mu__fusion_fuse replaces groups of element-wise ops by fused ops (fusion.c).
mu_status mu__fusion_fuse(mu_graph *graph);

// mu__fusion_specs infers every node of a body from the specs of the node's inputs; variables have the specs of the
// body's inputs. `specs` has one entry per node.
mu_status mu__fusion_specs(const mu_fusion_attrs *attrs, const mu_spec *in, mu_spec *specs);

// mu__fusion_overwrites returns whether a node is a fused update that writes its k-th variable without reading it.
bool mu__fusion_overwrites(const mu_node *node, int k);

// The fused op's kernel (fusion_run.c).
mu_status mu__fusion_prepare(mu_prepare *prepare);
mu_status mu__fusion_run(const mu_kernel *kernel);
void mu__fusion_release(void *state);

#endif
