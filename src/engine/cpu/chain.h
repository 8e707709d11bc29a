// A chain: element-wise ops that are computed together, piece by piece, so that what lies between them never
// leaves the cache. A row of this engine alone: no other part sees it, and it does not travel.
#ifndef MU_SRC_ENGINE_CPU_CHAIN_H
#define MU_SRC_ENGINE_CPU_CHAIN_H

#include "graph/graph.h"

enum {
    MU_CHAIN_MEMBERS = 16,
    MU_CHAIN_OPERANDS = 3,   // of a member
    MU_CHAIN_NODES = MU_CHAIN_MEMBERS * MU_CHAIN_OPERANDS + MU_CHAIN_MEMBERS,  // of a body, inputs included
};

// The body: inputs first, in the order of the node's inputs; its last node is the result.
typedef struct mu_chain_attrs {
    mu_graph *body;
} mu_chain_attrs;

extern const mu_op mu__op_chain;

// mu__chain_fuse puts chains in place of element-wise ops (chain.c).
mu_status mu__chain_fuse(mu_graph *graph);

// mu__chain_specs infers every node of a body from the specs of its inputs; `specs` has one per node.
mu_status mu__chain_specs(const mu_graph *body, const mu_spec *in, mu_spec *specs);

// The kernel (chain_run.c).
mu_status mu__chain_prepare(mu_prepare *prepare);
mu_status mu__chain_run(const mu_kernel *kernel);
void mu__chain_release(void *state);

#endif
