// merge_call while a function is traced: its function runs once, on values that represent all replicas.
//
// The graph is one program for every replica, so a replica's own value is a node, and other replicas' values do not
// exist in the trace. A per-replica value in a merge consists of symbolic values: tensors that name a node and a
// replica, and that no op accepts. What combines replicas (reduce, gather, local results) becomes a collective on the
// node; an update gets its own replica's part (traced_values.c). Any other use fails, and works only eagerly.
#include "distribute/distribute.h"
#include "graph/trace.h"

#include <muster/ops.h>

// ---- Symbolic values ----------------------------------------------------------------------------

bool mu__is_symbolic(const mu_value *value)
{
    if (value->leaf)
        return mu__is(value->leaf, &mu__tensor_type) && ((const mu_tensor *)value->leaf)->replica > 0;
    return value->n > 0 && value->kind != MU_VALUE_LIST && value->kind != MU_VALUE_MAP &&
           mu__is_symbolic(value->items[0]);
}

static bool is_tensor(const mu_value *part) { return part->kind == MU_VALUE_TENSOR; }

static bool is_symbolic(const mu_value *part) { return is_tensor(part) && ((const mu_tensor *)part->leaf)->node; }

// A symbolic tensor for the leaf on replica *arg - 1, or on the running replica (0).
static mu_value *symbolic_part(const mu_value *leaf, const void *arg)
{
    const int replica = *(const int *)arg;
    if (!is_tensor(leaf) || (replica > 0 && !is_symbolic(leaf)))
        return (mu_value *)leaf;
    mu_tensor *same = mu__give(mu__tensor_again((const mu_tensor *)leaf->leaf, mu__context()->run));
    if (!same)
        return NULL;
    same->replica = replica;
    return mu_of(same);
}

typedef struct grouping {
    const mu_strategy *strategy;
    mu_value_kind kind;
} grouping;

static mu_value *group_part(const mu_value *part, const void *arg)
{
    const grouping *g = arg;
    mu_value *items[MU_MAX_REPLICAS];
    if (part->leaf ? !is_symbolic(part) : part->kind != MU_VALUE_SLICES)
        return (mu_value *)part;
    for (int r = 1; r <= g->strategy->n_local; r++)
        if (!(items[r - 1] = mu__map_parts(part, true, symbolic_part, &r)))
            return NULL;
    return mu__give(mu__value_container(g->kind, g->strategy->n_local, items, NULL));
}

// A tensor made by the trace becomes a per-replica value; a tensor from outside is the same on all replicas.
mu_value *mu__merged_group(const mu_strategy *strategy, mu_value_kind kind, const mu_value *own)
{
    return mu__map_parts(own, false, group_part, &(grouping){strategy, kind});
}

mu_value *mu__refuse_traced(const char *what)
{
    mu__error(MU_UNIMPLEMENTED,
              "%s in a merge_call while a function is traced; run the step eagerly with mu_run_callback", what);
    return NULL;
}

static mu_value *own_part(const mu_value *part, const void *arg)
{
    if (part->kind == MU_VALUE_PER_REPLICA && !mu__is_symbolic(part))
        return mu__refuse_traced("a value that was made for each replica cannot be taken apart");
    if (part->kind == MU_VALUE_PER_REPLICA || part->kind == MU_VALUE_MIRRORED)
        return mu__map_parts(part->items[0], true, symbolic_part, arg);
    return mu__is_symbolic(part) ? mu__refuse_traced("one replica's part of a value cannot be given to the others")
                                 : (mu_value *)part;
}

mu_value *mu__merged_own(const mu_value *value)
{
    static const int own = 0;
    return mu__map_parts(value, false, own_part, &own);
}

// ---- Arguments ----------------------------------------------------------------------------------

static bool is_own(const mu_value *part)
{
    if (part->kind == MU_VALUE_SLICES)
        return is_own(part->items[0]) || is_own(part->items[1]);
    return is_tensor(part) && mu__made_here((const mu_tensor *)part->leaf);
}

// A constant becomes a node, because symbolic values name nodes.
static mu_value *as_node(mu_value *part)
{
    mu_edge edge;
    if (!is_tensor(part) || is_symbolic(part))
        return part;
    if (mu__trace_edge((mu_graph_trace *)mu__context()->trace, (mu_tensor *)part->leaf, &edge) != MU_OK)
        return NULL;
    mu_tensor *symbolic =
        mu__give(mu__tensor_symbolic(edge.node, edge.output, &edge.node->out[edge.output], &edge.node->graph->object));
    return symbolic ? mu_of(symbolic) : NULL;
}

// Tensors made by the replica function, constants too, are per-replica; tensors from outside stay one value.
static mu_value *group_argument(const mu_value *part, const void *arg)
{
    const mu_strategy *strategy = arg;
    mu_value *own = (mu_value *)part, *parts[3];
    if (!is_own(part))
        return own;
    for (int i = 0; i < part->n; i++) // slices: values and indices only; the dense shape is the same on all replicas
        if (!(parts[i] = i < 2 ? as_node(part->items[i]) : part->items[i]))
            return NULL;
    own = part->n ? mu__give(mu__value_container(part->kind, part->n, parts, NULL)) : as_node(own);
    return own ? mu__merged_group(strategy, MU_VALUE_PER_REPLICA, own) : NULL;
}

// ---- The call -----------------------------------------------------------------------------------

mu_value *mu__merge_traced(mu_merge_fn *fn, void *arg, mu_value *arguments)
{
    mu_strategy_replica *replica = mu__replica();
    if (((const mu_graph_trace *)mu__context()->trace)->outer) {
        mu__error(MU_FAILED_PRECONDITION, "mu_merge_call is called in the body of a loop, a branch or another function "
                                          "of a traced one; call it outside of the body");
        return NULL;
    }
    mu_value *grouped = mu__map_parts(arguments, false, group_argument, replica->strategy);
    if (!grouped)
        return NULL;
    mu_strategy_scope scope = {.strategy = replica->strategy, .merging = replica};
    mu_saved_context before = mu__enter_cross_replica(&scope);
    mu_value *result = fn(replica->strategy, grouped, arg);
    mu__leave_replica(before);
    if (mu__pending())
        return NULL;
    return result ? mu__merged_own(result) : mu__give(mu__value_container(MU_VALUE_LIST, 0, NULL, NULL));
}
