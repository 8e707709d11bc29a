// merge_call while a function is traced: its function runs once, on values that represent all replicas.
//
// The graph is one program for every replica, so a replica's own value is a node, and other replicas' values do not
// exist in the trace. A per-replica value in a merge consists of placeholders: tensors that name a node and a replica,
// and that no op accepts. What combines replicas (reduce, gather, local results) becomes a collective on the node; an
// update gets its own replica's part. Any other use fails, and works only eagerly.
#include "distribute/distribute.h"
#include "graph/trace.h"

#include <muster/ops.h>

// ---- Stand-ins ----------------------------------------------------------------------------------

static mu_strategy_replica *merging(void)
{
    const mu_context *context = mu__context();
    if (!context->trace || context->replica || !context->scope)
        return NULL;
    return ((const mu_strategy_scope *)context->scope)->merging;
}

bool mu__merging(void)
{
    return merging() != NULL;
}

bool mu__is_placeholder(const mu_value *value)
{
    if (value->leaf)
        return mu__is(value->leaf, &mu__tensor_type) && ((const mu_tensor *)value->leaf)->replica > 0;
    return value->n > 0 && value->kind != MU_VALUE_LIST && value->kind != MU_VALUE_MAP &&
           mu__is_placeholder(value->items[0]);
}

static bool is_tensor(const mu_value *part)
{
    return part->kind == MU_VALUE_TENSOR;
}

static bool is_symbolic(const mu_value *part)
{
    return is_tensor(part) && ((const mu_tensor *)part->leaf)->node;
}

// A placeholder for the leaf on replica *arg - 1, or on the running replica (0).
static mu_value *placeholder(const mu_value *leaf, const void *arg)
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
        if (!(items[r - 1] = mu__map_parts(part, true, placeholder, &r)))
            return NULL;
    return mu__give(mu__value_container(g->kind, g->strategy->n_local, items, NULL));
}

// A tensor made by the trace becomes a per-replica value; a tensor from outside is the same on all replicas.
mu_value *mu__merged_group(const mu_strategy *strategy, mu_value_kind kind, const mu_value *own)
{
    return mu__map_parts(own, false, group_part, &(grouping){strategy, kind});
}

static mu_value *refuse(const char *what)
{
    mu__error(MU_UNIMPLEMENTED,
              "%s in a merge_call while a function is traced; run the step eagerly with mu_run_callback", what);
    return NULL;
}

static mu_value *own_part(const mu_value *part, const void *arg)
{
    if (part->kind == MU_VALUE_PER_REPLICA && !mu__is_placeholder(part))
        return refuse("a value that was made for each replica cannot be taken apart");
    if (part->kind == MU_VALUE_PER_REPLICA || part->kind == MU_VALUE_MIRRORED)
        return mu__map_parts(part->items[0], true, placeholder, arg);
    return mu__is_placeholder(part) ? refuse("one replica's part of a value cannot be given to the others")
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

// A constant becomes a node, because placeholders name nodes.
static mu_value *as_node(mu_value *part)
{
    mu_edge edge;
    if (!is_tensor(part) || is_symbolic(part))
        return part;
    if (mu__trace_edge((mu_graph_trace *)mu__context()->trace, (mu_tensor *)part->leaf, &edge) != MU_OK)
        return NULL;
    mu_tensor *symbolic = mu__give(mu__tensor_symbolic(edge.node, edge.output, &edge.node->out[edge.output],
                                                       &edge.node->graph->object));
    return symbolic ? mu_of(symbolic) : NULL;
}

// Tensors made by the replica function, constants too, are per-replica; tensors from outside stay one value.
static mu_value *group_argument(const mu_value *part, const void *arg)
{
    const mu_strategy *strategy = arg;
    mu_value *own = (mu_value *)part, *parts[3];
    if (!is_own(part))
        return own;
    for (int i = 0; i < part->n; i++)  // slices: values and indices only; the dense shape is the same on all replicas
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
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_merge_call is called in the body of a loop, a branch or another function of a traced one; call "
                  "it outside of the body");
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

// ---- What puts replicas together ----------------------------------------------------------------

// Enters the traced replica again, for a collective whose result is one value for all replicas.
static mu_saved_context enter(void)
{
    mu_strategy_replica *replica = merging();
    mu_saved_context before = mu__enter_replica(replica, mu__context()->scope, 0);
    mu__context()->run = 0;
    return before;
}

mu_value *mu__merged_reduce(mu_reduce_op op, const mu_value *value)
{
    mu_value *own = value->kind == MU_VALUE_VARIABLE ? (mu_value *)value : mu__merged_own(value);
    if (!own)
        return NULL;
    mu_saved_context before = enter();
    mu_value *reduced = mu_all_reduce_value(op, own);
    mu__leave_replica(before);
    return reduced;
}

static mu_tensor *own_tensor(const mu_value *value)
{
    if (value->kind == MU_VALUE_VARIABLE)
        return mu__variable_read((mu_variable *)value->leaf);
    mu_value *own = mu__merged_own(value);
    return own ? mu_value_tensor(own) : NULL;
}

mu_tensor *mu__merged_reduce_axes(mu_reduce_op op, const mu_value *value, int n_axes, const int *axes)
{
    mu_tensor *own = own_tensor(value), *count = NULL;
    for (int i = 0; i < n_axes; i++) {
        const int axis = own ? mu__axis(axes[i], own->shape.rank, "mu_reduce_axis") : -1;
        if (axis < 0)
            return NULL;
        count = count ? mu_multiply(count, mu_dim_size(own, axis)) : mu_dim_size(own, axis);
    }
    mu_saved_context before = enter();
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_reduce_sum_axes(own, n_axes, axes, false));
    mu_tensor *counts = op == MU_MEAN ? mu_all_reduce(MU_SUM, count) : NULL;
    mu__leave_replica(before);
    return counts ? mu__mean_over(sum, counts) : sum;
}

// Each worker's own value counts once, however many replicas it has: its first replica adds the value, the others
// zeros.
mu_tensor *mu__merged_reduce_own(mu_reduce_op op, const mu_value *value)
{
    const mu_strategy *strategy = merging()->strategy;
    mu_tensor *own = own_tensor(value);
    mu_saved_context before = enter();
    if (own && strategy->n_local > 1) {
        mu_tensor *first = mu_mod(mu_replica_id(), mu_constant(MU_I32, strategy->n_local));
        own = mu_where(mu_equal(first, mu_constant(MU_I32, 0)), own, mu_zeros_like(own));
    }
    mu_tensor *sum = own ? mu_all_reduce(MU_SUM, own) : NULL;
    mu__leave_replica(before);
    return sum && op == MU_MEAN ? mu__mean_of(sum, strategy->n_workers) : sum;
}

mu_tensor *mu__merged_gather(const mu_value *value, int axis)
{
    mu_tensor *own = own_tensor(value);
    mu_saved_context before = enter();
    mu_tensor *whole = own ? mu_all_gather(own, axis) : NULL;
    mu__leave_replica(before);
    return whole;
}

// Gathers a value of which each worker has its own.
mu_value *mu__merged_gather_own(const mu_value *value, int axis)
{
    if (merging()->strategy->n_local > 1)
        return refuse("a value from outside of the replica function cannot be gathered from workers with several "
                      "replicas");
    mu_tensor *gathered = mu__merged_gather(value, axis);
    return gathered ? mu_of(gathered) : NULL;
}

// Every replica's part; gathers all of them.
static mu_value *part_results(const mu_value *part, const void *arg)
{
    const mu_strategy *strategy = arg;
    if (part->leaf || part->kind == MU_VALUE_SLICES || !mu__is_placeholder(part))
        return (mu_value *)part;
    if (part->items[0]->kind == MU_VALUE_SLICES)
        return refuse("indexed slices have no local results");
    mu_tensor *own = own_tensor(part), *row = own ? mu_expand_dims(own, 0) : NULL, *parts[MU_MAX_REPLICAS];
    mu_saved_context before = enter();
    mu_tensor *all = row ? mu_all_gather(row, 0) : NULL;
    mu__leave_replica(before);
    if (!all || mu_unstack(all, strategy->n_replicas, 0, parts) != MU_OK)
        return NULL;
    mu_value *items[MU_MAX_REPLICAS];
    for (int r = 0; r < strategy->n_local; r++)
        if (!(items[r] = mu_of(parts[strategy->first_replica + r])))
            return NULL;
    return mu__give(mu__value_container(MU_VALUE_PER_REPLICA, strategy->n_local, items, NULL));
}

mu_value *mu__merged_results(const mu_strategy *strategy, const mu_value *value)
{
    return mu__map_parts(value, false, part_results, strategy);
}

mu_tensor *mu__merged_read(mu_variable *variable)
{
    mu_saved_context before = enter();
    mu_strategy_replica *replica = mu__replica();
    const bool in_sync = replica->sync_on_read;
    replica->sync_on_read = true;
    mu_tensor *value = mu_variable_read(variable);
    replica->sync_on_read = in_sync;
    mu__leave_replica(before);
    return value;
}

// ---- Several values at once ---------------------------------------------------------------------

mu_status mu__merged_batch(mu_reduce_op op, int n, mu_value *const *values, mu_tensor **out)
{
    mu_tensor **own = mu__calloc((size_t)n + 1, sizeof *own);
    mu_status status = own ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n && status == MU_OK; i++)
        status = (own[i] = own_tensor(values[i])) ? MU_OK : mu_error_code();
    if (status == MU_OK) {
        mu_saved_context before = enter();
        status = mu__all_reduce_list(op == MU_SUM ? MU_REDUCTION_SUM : MU_REDUCTION_MEAN, n, own, out, NULL, 0);
        mu__leave_replica(before);
    }
    mu__free(own);
    return status;
}
