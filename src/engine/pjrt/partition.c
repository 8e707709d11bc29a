// Divides a pure graph into the programs that a device runs: one program, or those between its collectives.
//
// With several replicas the host performs the collectives; a value that a later part needs is a result of an earlier
// part and stays on the device. Variables are inputs and outputs here, whose memory a program may take over.
#include "engine/pjrt/pjrt.h"

static void cut(const mu_graph *graph, bool split, mu_pjrt_parts *out)
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

// How a part uses a slot: it needs the value, makes it for a later use, or makes it in the memory of a variable.
enum { NEEDED = 1, MADE = 2, DONATED = 4 };

static void mark_part(const mu_graph *graph, const mu_pjrt_parts *parts, const mu_pjrt_part *part, const int *last,
                      char *marks)
{
    for (int i = part->begin; i < part->end; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k].node->id < part->begin || node->in[k].node->op == &mu_op_input)
                marks[parts->first[node->in[k].node->id] + node->in[k].output] |= NEEDED;
        for (int k = 0; k < node->n_out; k++)
            if (last[parts->first[i] + k] >= part->end && node->op != &mu_op_input)
                marks[parts->first[i] + k] |= MADE;
    }
}

static int find(int n, const int *slots, int slot)
{
    int i = 0;
    while (i < n && slots[i] != slot)
        i++;
    return i < n ? i : -1;
}

// A part takes over the memory of a variable if it is the last one that needs the old value and makes the new one.
static void list_donations(const mu_graph *graph, const mu_pjrt_parts *parts, mu_pjrt_part *part, const int *last,
                           char *marks)
{
    const size_t n = graph->resources.n, n_inputs = graph->inputs.n - n, n_results = graph->outputs.n - n;
    for (size_t r = 0; r < n; r++) {
        const mu_node *before = graph->inputs.items[n_inputs + r];
        const mu_edge after = graph->outputs.items[n_results + r];
        const mu_spec *old = &before->out[0], *new = &after.node->out[after.output];
        const int slot = parts->first[before->id], made = parts->first[after.node->id] + after.output;
        const mu_pjrt_donation d = {.resource = (int)r,
                                    .argument = find(part->n_taken, part->taken, slot),
                                    .result = find(part->n_left, part->left, made)};
        if (d.argument < 0 || d.result < 0 || last[slot] >= part->end || (marks[made] & DONATED) ||
            old->dtype != new->dtype || !mu__shape_known(&new->shape) || !mu__shape_equal(&old->shape, &new->shape))
            continue;
        marks[made] |= DONATED;
        part->donated[part->n_donated++] = d;
    }
}

static mu_status list_slots(const mu_graph *graph, const mu_pjrt_parts *parts, mu_pjrt_part *part, const int *last,
                            mu_arena *arena)
{
    char *marks = mu__arena_alloc(arena, (size_t)parts->n_values + 1);
    part->taken = mu__arena_alloc(arena, sizeof(int) * ((size_t)parts->n_values + 1));
    part->left = mu__arena_alloc(arena, sizeof(int) * ((size_t)parts->n_values + 1));
    part->donated = mu__arena_alloc(arena, sizeof *part->donated * (graph->resources.n + 1));
    if (!marks || !part->taken || !part->left || !part->donated)
        return MU_RESOURCE_EXHAUSTED;
    mark_part(graph, parts, part, last, marks);
    for (int slot = 0; slot < parts->n_values; slot++) {
        if (marks[slot] & NEEDED)
            part->taken[part->n_taken++] = slot;
        if (marks[slot] & MADE)
            part->left[part->n_left++] = slot;
    }
    list_donations(graph, parts, part, last, marks);
    return MU_OK;
}

// The last node that uses each value; the graph's caller counts as the last user of all.
static int *last_uses(const mu_graph *graph, const mu_pjrt_parts *parts, mu_arena *arena)
{
    int *last = mu__arena_alloc(arena, sizeof(int) * ((size_t)parts->n_values + 1));
    for (size_t i = 0; last && i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++) {
            const mu_edge edge = graph->nodes.items[i]->in[k];
            last[parts->first[edge.node->id] + edge.output] = (int)i;
        }
    for (size_t i = 0; last && i < graph->outputs.n; i++)
        last[parts->first[graph->outputs.items[i].node->id] + graph->outputs.items[i].output] = (int)graph->nodes.n;
    return last;
}

mu_status mu__pjrt_parts_of(const mu_graph *graph, bool split, mu_arena *arena, mu_pjrt_parts *out)
{
    const size_t n_nodes = graph->nodes.n;
    *out = (mu_pjrt_parts){.first = mu__graph_slots(graph, arena),
                           .parts = mu__arena_alloc(arena, sizeof(mu_pjrt_part) * (n_nodes + 1))};
    if (!out->first || !out->parts)
        return MU_RESOURCE_EXHAUSTED;
    out->n_values = out->first[n_nodes];
    const int *last = last_uses(graph, out, arena);
    if (!last)
        return MU_RESOURCE_EXHAUSTED;
    cut(graph, split, out);
    for (int i = 0; i < out->n_parts; i++)
        MU_TRY(list_slots(graph, out, &out->parts[i], last, arena));
    return MU_OK;
}
