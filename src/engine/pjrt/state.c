// The pass that turns local state into arguments and results: which variables a graph takes and leaves.
//
// In a graph an effect is a node on a resource; a program for a device is a pure function. While it is written,
// each variable is the value that it has at that point, first an argument, and what is last written is a result.
#include "engine/pjrt/pjrt.h"

static mu_status need_variable(const mu_graph *graph, const mu_resource *resource)
{
    if (strcmp(resource->kind->name, "variable") == 0)
        return MU_OK;
    return mu__error(MU_UNIMPLEMENTED, "'%s' works on %s '%s', which cannot be passed to a device program; run it on a CPU device",
                     graph->name, resource->kind->name, resource->name);
}

mu_status mu__pjrt_state_of(const mu_graph *graph, mu_arena *arena, mu_pjrt_state *out)
{
    const size_t n = graph->resources.n;
    *out = (mu_pjrt_state){.taken = mu__arena_alloc(arena, sizeof(int) * (n + 1)), .left = mu__arena_alloc(arena, sizeof(int) * (n + 1))};
    bool *used = mu__arena_alloc(arena, n + 1), *written = mu__arena_alloc(arena, n + 1);
    if (!out->taken || !out->left || !used || !written)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_resources; k++) {
            used[node->resources[k]] = true;
            written[node->resources[k]] |= (node->op->flags & MU_OP_WRITES) != 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (!used[i])
            continue;
        MU_TRY(need_variable(graph, graph->resources.items[i]));
        out->taken[out->n_taken++] = (int)i;
        if (written[i])
            out->left[out->n_left++] = (int)i;
    }
    return MU_OK;
}
