// Decides when reductions start and what waits for them, so that gradients are reduced while the backward pass
// continues.
//
// Traces add reductions where the program calls them, at the end, and one for each gradient (pack_bytes in their
// attributes). This pass
// - packs them into buckets, in the order in which the gradients become ready: from the last layer to the first;
// - moves every all-reduce to where its inputs are ready;
// - moves what waits for buckets after everything else, in the order of the buckets, so that the first gradients are
//   applied while others are being reduced.
// Engines follow the order of the graph. It depends on the trace only, so it is the same on every replica.
#include "graph/graph.h"
#include "ops/nn/nn.h"

#include <stdlib.h>

typedef struct reductions {
    mu_graph *graph;
    size_t n;             // nodes
    mu_edge *replacement; // [n]: where a packed reduction's result is now; node NULL: unchanged
    bool *deferred;       // [n]: results of this all-reduce are used as late as possible
    mu_node **order;      // [n]: the new order
    size_t n_order;
    int *stage; // [n]: number of the last bucket that a node's results wait for; 0: none
} reductions;

static bool is_reduction(const mu_node *node) { return node->op == &mu_op_all_reduce && node->n_in > 0; }

static bool packs(const mu_node *node)
{
    return is_reduction(node) && node->n_in == 1 && ((const mu_all_reduce_attrs *)node->attrs)->pack_bytes > 0;
}

// ---- Buckets ------------------------------------------------------------------------------------

// Whether two reductions may be one.
static bool same_kind(const mu_node *a, const mu_node *b)
{
    const mu_all_reduce_attrs *x = a->attrs, *y = b->attrs;
    return a->out[0].dtype == b->out[0].dtype && x->reduction == y->reduction && x->pack_bytes == y->pack_bytes;
}

static int64_t known_bytes(const mu_node *node)
{
    return mu__shape_known(&node->out[0].shape) ? (int64_t)mu__spec_bytes(&node->out[0]) : 0;
}

// Makes one all-reduce of `count` reductions; the first one's node becomes it.
static mu_status pack(reductions *r, int count, mu_node *const *members, mu_edge *in)
{
    mu_node *first = members[0];
    mu_all_reduce_attrs attrs = *(const mu_all_reduce_attrs *)first->attrs;
    attrs.pack_bytes = -1;
    if (count > 1) // the name that is shown to peers that wait
        snprintf(attrs.name + MU_MIN(strlen(attrs.name), MU_ATTR_TEXT_BYTES - 24), 24, " and %d more", count - 1);
    for (int i = 0; i < count; i++)
        in[i] = members[i]->in[0];
    MU_TRY(mu__graph_rewrite(first, &mu_op_all_reduce, &attrs, count, in));
    r->deferred[first->id] = true;
    for (int i = 0; i < count; i++)
        r->replacement[members[i]->id] = (mu_edge){.node = first, .output = i};
    return MU_OK;
}

// Moves to the front the reductions that go into the first one's bucket; returns their number.
static int fill_bucket(mu_node **members, int n)
{
    int64_t bytes = 0;
    int count = 0;
    for (int k = 0; k < n; k++) {
        mu_node *member = members[k];
        if (!same_kind(members[0], member))
            continue;
        bytes += known_bytes(member);
        if (count && bytes > ((const mu_all_reduce_attrs *)member->attrs)->pack_bytes)
            break;
        memmove(members + count + 1, members + count, sizeof *members * (size_t)(k - count));
        members[count++] = member;
    }
    return count;
}

static int by_readiness(const void *a, const void *b)
{
    const mu_node *x = *(mu_node *const *)a, *y = *(mu_node *const *)b;
    const int ready = x->in[0].node->id - y->in[0].node->id;
    return ready ? ready : x->id - y->id;
}

static mu_status pack_run(reductions *r, mu_node **members, int n, mu_edge *in)
{
    qsort(members, (size_t)n, sizeof *members, by_readiness);
    for (int first = 0; first < n;) {
        const int count = fill_bucket(members + first, n - first);
        MU_TRY(pack(r, count, members + first, in));
        first += count;
    }
    return MU_OK;
}

// A run of reductions that do not depend on each other: all inputs come before the first of them.
static mu_status pack_all(reductions *r)
{
    mu_node **members = mu__calloc(r->n + 1, sizeof *members);
    mu_edge *in = mu__calloc(r->n + 1, sizeof *in);
    mu_status status = members && in ? MU_OK : MU_RESOURCE_EXHAUSTED;
    int n = 0;
    for (size_t i = 0; i < r->n && status == MU_OK; i++) {
        mu_node *node = r->graph->nodes.items[i];
        if (!packs(node))
            continue;
        if (n > 0 && node->in[0].node->id > members[0]->id) {
            status = pack_run(r, members, n, in);
            n = 0;
        }
        members[n++] = node;
    }
    if (status == MU_OK && n > 0)
        status = pack_run(r, members, n, in);
    mu__free(members);
    mu__free(in);
    return status;
}

static void use_buckets(reductions *r)
{
    mu_graph *graph = r->graph;
    for (size_t i = 0; i < r->n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++) {
            mu_edge *edge = &graph->nodes.items[i]->in[k];
            if (r->replacement[edge->node->id].node)
                *edge = r->replacement[edge->node->id];
        }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        mu_edge *edge = &graph->outputs.items[i];
        if (r->replacement[edge->node->id].node)
            *edge = r->replacement[edge->node->id];
    }
}

// ---- Order --------------------------------------------------------------------------------------

static bool is_packed_away(const reductions *r, const mu_node *node)
{
    const mu_node *bucket = r->replacement[node->id].node;
    return bucket && bucket != node;
}

static int ready_after(const mu_node *node)
{
    int latest = 0;
    for (int i = 0; i < node->n_in; i++)
        latest = MU_MAX(latest, node->in[i].node->id);
    return latest;
}

static void emit(reductions *r, const int *first, const int *next, int id)
{
    r->order[r->n_order++] = r->graph->nodes.items[id];
    for (int i = first[id]; i >= 0; i = next[i])
        emit(r, first, next, i);
}

// Puts every all-reduce after the last of its inputs, and leaves out those that were packed.
static mu_status order_by_readiness(reductions *r)
{
    int *next = mu__calloc(r->n + 1, 2 * sizeof *next), *first = MU_BEHIND(next, r->n);
    if (!next)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < r->n; i++)
        first[i] = next[i] = -1;
    for (size_t i = r->n; i-- > 0;) { // last first, so that the lists are in order
        const mu_node *node = r->graph->nodes.items[i];
        if (!is_reduction(node) || is_packed_away(r, node))
            continue;
        const int after = ready_after(node);
        next[i] = first[after];
        first[after] = (int)i;
    }
    for (size_t i = 0; i < r->n; i++)
        if (!is_reduction(r->graph->nodes.items[i]))
            emit(r, first, next, (int)i);
    mu__free(next);
    return MU_OK;
}

// ---- Stages -------------------------------------------------------------------------------------

// Stages of the last accesses, by resource, and of the last node with another effect.
typedef struct accesses {
    int *any, *write;
    int effect;
} accesses;

// A node stays after its inputs, after accesses of its resources that it conflicts with, and after earlier effects.
// Updates that exchange slices with other replicas come last: they would delay reductions in progress.
static int stage_of(const reductions *r, const accesses *a, const mu_node *node, int buckets)
{
    int stage = 0;
    for (int i = 0; i < node->n_in; i++)
        stage = MU_MAX(stage, r->stage[node->in[i].node->id]);
    for (int k = 0; k < node->n_resources; k++)
        stage = MU_MAX(stage, (mu__node_writes(node, k) ? a->any : a->write)[node->resources[k]]);
    if (node->flags & MU_OP_EFFECT)
        stage = MU_MAX(stage, a->effect);
    return (node->flags & MU_OP_WRITES) && (node->flags & MU_OP_COLLECTIVE) ? MU_MAX(stage, buckets) : stage;
}

static void note_accesses(accesses *a, const mu_node *node, int stage)
{
    for (int k = 0; k < node->n_resources; k++) {
        const int resource = node->resources[k];
        a->any[resource] = MU_MAX(a->any[resource], stage);
        if (mu__node_writes(node, k))
            a->write[resource] = MU_MAX(a->write[resource], stage);
    }
    if (node->flags & MU_OP_EFFECT)
        a->effect = stage;
}

// Sorts by stage; nodes of one stage keep their order. Buckets start in the stage of their inputs.
static void sort_by_stage(reductions *r, const int *starts, int buckets, mu_node **sorted)
{
    size_t n = 0;
    for (int stage = 0; stage <= buckets; stage++)
        for (size_t i = 0; i < r->n_order; i++)
            if (starts[r->order[i]->id] == stage)
                sorted[n++] = r->order[i];
    memcpy(r->order, sorted, sizeof *sorted * n);
}

static mu_status order_by_stage(reductions *r)
{
    const size_t n_resources = r->graph->resources.n;
    int *starts = mu__calloc(r->n + 1, sizeof *starts);
    accesses a = {.any = mu__calloc(n_resources + 1, sizeof *a.any),
                  .write = mu__calloc(n_resources + 1, sizeof *a.write)};
    mu_node **sorted = mu__calloc(r->n + 1, sizeof *sorted);
    mu_status status = starts && a.any && a.write && sorted ? MU_OK : MU_RESOURCE_EXHAUSTED;
    int buckets = 0, number = 0;
    for (size_t i = 0; i < r->n; i++)
        buckets += r->deferred[i];
    for (size_t i = 0; i < r->n_order && status == MU_OK; i++) {
        const mu_node *node = r->order[i];
        const int stage = starts[node->id] = stage_of(r, &a, node, buckets);
        number += r->deferred[node->id];
        r->stage[node->id] = r->deferred[node->id] ? MU_MAX(stage, number) : stage;
        note_accesses(&a, node, stage);
    }
    if (status == MU_OK && buckets > 0)
        sort_by_stage(r, starts, buckets, sorted);
    mu__free(sorted);
    mu__free(a.write);
    mu__free(a.any);
    mu__free(starts);
    return status;
}

// ---- The pass -----------------------------------------------------------------------------------

static void number_nodes(reductions *r)
{
    mu_graph *graph = r->graph;
    for (size_t i = 0; i < r->n; i++)
        if (is_packed_away(r, graph->nodes.items[i]))
            mu__attrs_release(graph->nodes.items[i]->op, graph->nodes.items[i]->attrs);
    for (size_t i = 0; i < r->n_order; i++) {
        graph->nodes.items[i] = r->order[i];
        graph->nodes.items[i]->id = (int)i;
    }
    graph->nodes.n = r->n_order;
}

mu_status mu__pass_reductions(mu_graph *graph)
{
    const size_t n = graph->nodes.n;
    reductions r = {.graph = graph,
                    .n = n,
                    .replacement = mu__calloc(n + 1, sizeof *r.replacement),
                    .deferred = mu__calloc(n + 1, sizeof *r.deferred),
                    .order = mu__calloc(n + 1, sizeof *r.order),
                    .stage = mu__calloc(n + 1, sizeof *r.stage)};
    mu_status status = r.replacement && r.deferred && r.order && r.stage ? pack_all(&r) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK) {
        use_buckets(&r);
        status = order_by_readiness(&r);
    }
    if (status == MU_OK)
        status = order_by_stage(&r);
    if (status == MU_OK)
        number_nodes(&r);
    mu__free(r.stage);
    mu__free(r.order);
    mu__free(r.deferred);
    mu__free(r.replacement);
    return status;
}
