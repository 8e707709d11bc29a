// The pass that turns local state into arguments and results: what a graph's programs take and leave.
//
// In a graph an effect is a node on a resource; a program for a device is a pure function. While it is written,
// each variable is the value that it has at that point, first an argument, and what is last written is a result.
// With several replicas the graph is split at its collectives, which the host does; values that a later part
// needs are results of an earlier one and stay on the device.
#include "engine/pjrt/pjrt.h"

static mu_status need_variable(const mu_graph *graph, const mu_resource *resource)
{
    if (strcmp(resource->kind->name, "variable") == 0)
        return MU_OK;
    return mu__error(MU_UNIMPLEMENTED,
                     "'%s' works on %s '%s', which cannot be passed to a device program; run it on a CPU device",
                     graph->name, resource->kind->name, resource->name);
}

static mu_status find_resources(const mu_graph *graph, mu_pjrt_state *out)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_resources; k++) {
            out->used[node->resources[k]] = true;
            out->written[node->resources[k]] |= mu__node_writes(node, k);
        }
    }
    for (size_t i = 0; i < graph->resources.n; i++)
        if (out->used[i])
            MU_TRY(need_variable(graph, graph->resources.items[i]));
    return MU_OK;
}

static void cut(const mu_graph *graph, bool split, mu_pjrt_state *out)
{
    int begin = 0;
    for (int i = 0; i < (int)graph->nodes.n; i++) {
        if (!split || !(graph->nodes.items[i]->flags & MU_OP_COLLECTIVE))
            continue;
        out->parts[out->n_parts++] = (mu_pjrt_part){.begin = begin, .end = i};
        begin = i + 1;
    }
    out->parts[out->n_parts++] = (mu_pjrt_part){.begin = begin, .end = (int)graph->nodes.n};
}

// What of slots a part touches, as marks.
enum { NEEDED = 1, MADE = 2 };

static void mark_part(const mu_graph *graph, const mu_pjrt_state *state, const mu_pjrt_part *part, const int *last,
                      char *marks)
{
    for (int i = part->begin; i < part->end; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k].node->id < part->begin || node->in[k].node->op == &mu_op_input)
                marks[state->first[node->in[k].node->id] + node->in[k].output] |= NEEDED;
        for (int k = 0; k < node->n_out; k++)
            if (last[state->first[i] + k] >= part->end && node->op != &mu_op_input)
                marks[state->first[i] + k] |= MADE;
        for (int k = 0; k < node->n_resources; k++)
            marks[state->n_values + node->resources[k]] |= mu__node_writes(node, k) ? NEEDED | MADE : NEEDED;
    }
}

static mu_status list_slots(const mu_graph *graph, const mu_pjrt_state *state, mu_pjrt_part *part, const int *last,
                            mu_arena *arena)
{
    char *marks = mu__arena_alloc(arena, (size_t)state->n_slots + 1);
    part->taken = mu__arena_alloc(arena, sizeof(int) * ((size_t)state->n_slots + 1));
    part->left = mu__arena_alloc(arena, sizeof(int) * ((size_t)state->n_slots + 1));
    if (!marks || !part->taken || !part->left)
        return MU_RESOURCE_EXHAUSTED;
    mark_part(graph, state, part, last, marks);
    for (int slot = 0; slot < state->n_slots; slot++) {
        if (marks[slot] & NEEDED)
            part->taken[part->n_taken++] = slot;
        if (marks[slot] & MADE)
            part->left[part->n_left++] = slot;
    }
    return MU_OK;
}

// The node that uses each value last; the caller of the graph comes after all.
static int *last_uses(const mu_graph *graph, const mu_pjrt_state *state, mu_arena *arena)
{
    int *last = mu__arena_alloc(arena, sizeof(int) * ((size_t)state->n_values + 1));
    for (size_t i = 0; last && i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++) {
            const mu_edge edge = graph->nodes.items[i]->in[k];
            last[state->first[edge.node->id] + edge.output] = (int)i;
        }
    for (size_t i = 0; last && i < graph->outputs.n; i++)
        last[state->first[graph->outputs.items[i].node->id] + graph->outputs.items[i].output] = (int)graph->nodes.n;
    return last;
}

mu_status mu__pjrt_state_of(const mu_graph *graph, bool split, mu_arena *arena, mu_pjrt_state *out)
{
    const size_t n_nodes = graph->nodes.n, n_resources = graph->resources.n;
    *out = (mu_pjrt_state){.first = mu__arena_alloc(arena, sizeof(int) * (n_nodes + 1)),
                           .used = mu__arena_alloc(arena, n_resources + 1),
                           .written = mu__arena_alloc(arena, n_resources + 1),
                           .parts = mu__arena_alloc(arena, sizeof(mu_pjrt_part) * (n_nodes + 1))};
    if (!out->first || !out->used || !out->written || !out->parts)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n_nodes; i++) {
        out->first[i] = out->n_values;
        out->n_values += graph->nodes.items[i]->n_out;
    }
    out->n_slots = out->n_values + (int)n_resources;
    MU_TRY(find_resources(graph, out));
    const int *last = last_uses(graph, out, arena);
    if (!last)
        return MU_RESOURCE_EXHAUSTED;
    cut(graph, split, out);
    for (int i = 0; i < out->n_parts; i++)
        MU_TRY(list_slots(graph, out, &out->parts[i], last, arena));
    return MU_OK;
}
