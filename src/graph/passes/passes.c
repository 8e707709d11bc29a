// Passes that prune unused nodes and merge common subexpressions, and the order of all passes.
//
// Both keep program order. A read of a variable is pure between two writes, so repeated reads become one; all other
// effects are kept.
#include "graph/graph.h"

static bool keeps_itself(const mu_node *node)
{
    return (node->flags & (MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE)) || node->op == &mu_op_input;
}

mu_status mu__pass_prune(mu_graph *graph)
{
    size_t n = graph->nodes.n, kept = 0;
    bool *live = mu__calloc(n + 1, sizeof *live);
    if (!live)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->outputs.n; i++)
        live[graph->outputs.items[i].node->id] = true;
    for (size_t i = n; i-- > 0;) {
        const mu_node *node = graph->nodes.items[i];
        live[i] |= keeps_itself(node);
        for (int k = 0; live[i] && k < node->n_in; k++)
            live[node->in[k].node->id] = true;
    }
    for (size_t i = 0; i < n; i++) {
        mu_node *node = graph->nodes.items[i];
        if (!live[i]) {
            mu__attrs_release(node->op, node->attrs);
            continue;
        }
        node->id = (int)kept;
        graph->nodes.items[kept++] = node;
    }
    graph->nodes.n = kept;
    mu__free(live);
    return MU_OK;
}

// Small constants are equal by their elements.
static bool same_constant(const mu_node *a, const mu_node *b)
{
    const mu_tensor *x = ((const mu_constant_attrs *)a->attrs)->tensor,
                    *y = ((const mu_constant_attrs *)b->attrs)->tensor;
    mu_spec spec = mu__spec_of(x);
    if (x->dtype != y->dtype || !mu__shape_equal(&x->shape, &y->shape))
        return false;
    return x == y ||
           (mu__spec_bytes(&spec) <= 64 && memcmp(mu__host_read(x), mu__host_read(y), mu__spec_bytes(&spec)) == 0);
}

static bool same_node(const mu_node *a, const mu_node *b)
{
    if (a->op == &mu_op_constant && b->op == &mu_op_constant)
        return same_constant(a, b);
    if (a->op != b->op || a->n_in != b->n_in || a->n_resources != b->n_resources)
        return false;
    if (a->op->attrs_bytes && memcmp(a->attrs, b->attrs, a->op->attrs_bytes) != 0)
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i].node != b->in[i].node || a->in[i].output != b->in[i].output)
            return false;
    for (int i = 0; i < a->n_resources; i++)
        if (a->resources[i] != b->resources[i])
            return false;
    return true;
}

static bool shareable(const mu_node *node)
{
    return !keeps_itself(node) && !(node->flags & (MU_OP_DATA_DEPENDENT | MU_OP_CONTROL));
}

static uint64_t hash_node(const mu_node *node, const int *version)
{
    uint64_t hash = (uintptr_t)node->op;
    for (int i = 0; i < node->n_in; i++)
        hash = (hash ^ (uint64_t)(node->in[i].node->id * 31 + node->in[i].output)) * 0x100000001B3u;
    for (int i = 0; i < node->n_resources; i++)
        hash = (hash ^ (uint64_t)(node->resources[i] * 1009 + version[node->resources[i]])) * 0x100000001B3u;
    return hash ^ hash >> 31;
}

// State of sharing: each node's replacement, and a table of nodes seen.
typedef struct sharing {
    mu_node **replacement;
    mu_node **table;
    size_t mask;
    int *version;      // writes so far, per resource
    int *read_version; // at which a node read its resources: the sum of theirs, which only grow
} sharing;

static void share_node(sharing *s, mu_node *node)
{
    for (int k = 0; k < node->n_in; k++)
        node->in[k].node = s->replacement[node->in[k].node->id];
    s->replacement[node->id] = node;
    for (int k = 0; k < node->n_resources; k++)
        s->read_version[node->id] += s->version[node->resources[k]];
    for (int k = 0; k < node->n_resources && (node->flags & MU_OP_WRITES); k++)
        s->version[node->resources[k]] += mu__node_writes(node, k);
    if (!shareable(node))
        return;
    size_t i = hash_node(node, s->version) & s->mask;
    for (; s->table[i]; i = (i + 1) & s->mask)
        if (same_node(s->table[i], node) && s->read_version[s->table[i]->id] == s->read_version[node->id]) {
            s->replacement[node->id] = s->table[i];
            return;
        }
    s->table[i] = node;
}

mu_status mu__pass_share(mu_graph *graph)
{
    size_t n = graph->nodes.n, slots = 64;
    while (slots < 2 * n)
        slots *= 2;
    sharing s = {.replacement = mu__calloc(n + 1, sizeof *s.replacement),
                 .table = mu__calloc(slots, sizeof *s.table),
                 .mask = slots - 1,
                 .version = mu__calloc(graph->resources.n + 1, sizeof *s.version),
                 .read_version = mu__calloc(n + 1, sizeof *s.read_version)};
    mu_status status = s.replacement && s.table && s.version && s.read_version ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < n; i++)
        share_node(&s, graph->nodes.items[i]);
    for (size_t i = 0; status == MU_OK && i < graph->outputs.n; i++)
        graph->outputs.items[i].node = s.replacement[graph->outputs.items[i].node->id];
    mu__free(s.replacement);
    mu__free(s.table);
    mu__free(s.version);
    mu__free(s.read_version);
    return status;
}

// Reductions come first: the order of what a program traces does not depend on constants, so that all workers agree on
// buckets. Folding and algebra create equal nodes, so sharing runs again after them.
mu_status mu__graph_optimize(mu_graph *graph)
{
    static mu_status (*const passes[])(mu_graph *) = {mu__pass_reductions, mu__pass_share,   mu__pass_bodies,
                                                      mu__pass_fold,       mu__pass_algebra, mu__pass_share,
                                                      mu__pass_prune};
    for (size_t i = 0; i < MU_COUNT(passes); i++) {
        MU_TRY(passes[i](graph));
        MU_TRY(mu__graph_assert(graph));
    }
    return MU_OK;
}
