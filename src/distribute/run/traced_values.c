// What a strategy does with values while a merge_call is traced: collectives on the nodes that symbolic values stand
// for.
//
// A value that is not symbolic is treated as outside of traces. What a trace cannot express is refused.
#include "distribute/reduce/reductions.h"

#include <muster/ops.h>

// Enters the traced replica again, for a collective whose result is one value for all replicas.
static mu_saved_context enter(void)
{
    mu_strategy_replica *replica = mu__traced_replica();
    mu_saved_context before = mu__enter_replica(replica, mu__context()->scope, 0);
    mu__context()->run = 0;
    return before;
}

static mu_value *as_value(mu_tensor *tensor) { return tensor ? mu_of(tensor) : NULL; }

static mu_tensor *own_tensor(const mu_value *value)
{
    if (value->kind == MU_VALUE_VARIABLE)
        return mu__variable_read((mu_variable *)value->leaf);
    mu_value *own = mu__merged_own(value);
    return own ? mu_value_tensor(own) : NULL;
}

// ---- Reduce -------------------------------------------------------------------------------------

static mu_value *reduce_axes(const mu_reducing *r, const mu_value *value)
{
    mu_tensor *own = own_tensor(value), *count = NULL;
    for (int i = 0; i < r->n_axes; i++) {
        const int axis = own ? mu__axis(r->axes[i], own->shape.rank, "mu_reduce") : -1;
        if (axis < 0)
            return NULL;
        count = count ? mu_multiply(count, mu_dim_size(own, axis)) : mu_dim_size(own, axis);
    }
    mu_saved_context before = enter();
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_reduce_sum(own, .axes = r->axes, .n_axes = r->n_axes));
    mu_tensor *counts = r->op == MU_MEAN ? mu_all_reduce(MU_SUM, count) : NULL;
    mu__leave_replica(before);
    return as_value(counts ? mu__mean_over(sum, counts) : sum);
}

static mu_value *reduce_node(const mu_reducing *r, const mu_value *value)
{
    if (r->n_axes)
        return reduce_axes(r, value);
    mu_value *own = value->kind == MU_VALUE_VARIABLE ? (mu_value *)value : mu__merged_own(value);
    if (!own)
        return NULL;
    mu_saved_context before = enter();
    mu_value *reduced = mu_all_reduce_value(r->op, own);
    mu__leave_replica(before);
    return reduced;
}

static mu_value *reduce_each(const mu_reducing *r, const mu_value *value)
{
    return mu__is_symbolic(value) ? reduce_node(r, value) : mu__reduce_each(r, value);
}

static mu_value *reduce_same(const mu_reducing *r, const mu_value *leaf)
{
    if (!r->n_axes)
        return mu__reduce_same(r, leaf);
    const mu_tensor *tensor = mu__leaf_tensor(leaf);
    return !tensor ? NULL : tensor->node ? reduce_axes(r, leaf) : mu__reduce_same(r, leaf);
}

static mu_value *reduce_copies(const mu_reducing *r, const mu_value *leaf)
{
    return r->n_axes ? reduce_same(r, leaf) : mu__reduce_copies(r, leaf);
}

// Each worker's own value counts once, however many replicas it has: its first replica adds the value, the others
// zeros.
static mu_value *reduce_own(const mu_reducing *r, const mu_value *value)
{
    const mu_strategy *strategy = r->strategy;
    if (r->n_axes)
        return reduce_axes(r, value);
    mu_tensor *own = own_tensor(value);
    mu_saved_context before = enter();
    if (own && strategy->n_local > 1) {
        mu_tensor *first = mu_mod(mu_replica_id(), mu_constant(MU_I32, strategy->n_local));
        own = mu_where(mu_equal(first, mu_constant(MU_I32, 0)), own, mu_zeros_like(own));
    }
    mu_tensor *sum = own ? mu_all_reduce(MU_SUM, own) : NULL;
    mu__leave_replica(before);
    return as_value(sum && r->op == MU_MEAN ? mu__mean_of(sum, strategy->n_replicas / strategy->n_local) : sum);
}

static mu_value *reduce_variable(const mu_reducing *r, const mu_value *leaf)
{
    return mu__components_differ(r, leaf) ? reduce_node(r, leaf) : reduce_copies(r, leaf);
}

static mu_value *reduce_mirrored(const mu_reducing *r, const mu_value *value)
{
    const mu_value *one = mu__is_symbolic(value) ? mu__merged_own(value) : value->items[0];
    return !one ? NULL : one->kind == MU_VALUE_VARIABLE ? reduce_variable(r, one) : reduce_copies(r, one);
}

static mu_reduce_part *const reduce_parts[] = {
    [MU_VALUE_TENSOR] = reduce_same,
    [MU_VALUE_VARIABLE] = reduce_variable,
    [MU_VALUE_PER_REPLICA] = reduce_each,
    [MU_VALUE_MIRRORED] = reduce_mirrored,
    [MU_VALUE_SLICES] = mu__reduce_same_slices,
};

// A tensor or slices that are not distributed are this worker's own.
static mu_reduce_part *const reduce_worker_parts[] = {
    [MU_VALUE_TENSOR] = reduce_own,
    [MU_VALUE_VARIABLE] = reduce_variable,
    [MU_VALUE_PER_REPLICA] = reduce_each,
    [MU_VALUE_MIRRORED] = reduce_mirrored,
    [MU_VALUE_SLICES] = mu__reduce_own_slices,
};

mu_value *mu__traced_reduce(const mu_reducing *r, mu_value *value)
{
    return mu__reduce_by_kind(r, value, reduce_parts);
}

mu_value *mu__traced_reduce_workers(const mu_reducing *r, mu_value *value)
{
    return mu__reduce_by_kind(r, value, reduce_worker_parts);
}

// ---- Several values at once ---------------------------------------------------------------------

static mu_status reduce_nodes(mu_reduce_op op, int n, mu_value *const *values, mu_tensor **out)
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

static bool goes_together(mu_reduce_op op, const mu_value *value)
{
    return mu__is_symbolic(value) && value->items[0]->leaf &&
           (op == MU_SUM || mu__dtype_is_float(mu_value_tensor(value->items[0])->dtype));
}

// Symbolic values are reduced together, as one collective per type, the other values one at a time.
mu_status mu__traced_batch_reduce(mu_strategy *strategy, mu_reduce_op op, const mu_value *values, mu_value **out)
{
    mu_value **given = mu__calloc((size_t)values->n + 1, sizeof *given);
    mu_tensor **reduced = mu__calloc((size_t)values->n + 1, sizeof *reduced);
    int n = 0, k = 0;
    for (int i = 0; given && i < values->n; i++)
        if (goes_together(op, values->items[i]))
            given[n++] = values->items[i];
    mu_status status = given && reduced ? reduce_nodes(op, n, given, reduced) : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < values->n && status == MU_OK; i++)
        if (k < n && given[k] == values->items[i])
            status = (out[i] = mu_of(reduced[k++])) ? MU_OK : mu_error_code();
    mu__free(given);
    mu__free(reduced);
    return status == MU_OK ? mu__batch_reduce_each(strategy, op, values, out) : status;
}

// ---- Gather and local results -------------------------------------------------------------------

static mu_value *gather_node(mu_strategy *strategy, const mu_value *value, int axis)
{
    (void)strategy;
    mu_tensor *own = own_tensor(value);
    mu_saved_context before = enter();
    mu_tensor *whole = own ? mu_all_gather(own, axis) : NULL;
    mu__leave_replica(before);
    return as_value(whole);
}

static mu_value *gather_each(mu_strategy *strategy, const mu_value *value, int axis)
{
    if (value->items[0]->kind == MU_VALUE_SLICES)
        return mu__refuse_slices(strategy, value, axis);
    return mu__is_symbolic(value) ? gather_node(strategy, value, axis) : mu__gather_each(strategy, value, axis);
}

static mu_value *gather_variable(mu_strategy *strategy, const mu_value *value, int axis)
{
    return mu__has_components(value) ? gather_node(strategy, value, axis) : (mu_value *)value;
}

static mu_value *gather_same(mu_strategy *strategy, const mu_value *value, int axis)
{
    return mu__is_symbolic(value) ? gather_node(strategy, value, axis) : (mu_value *)value;
}

// Gathers a tensor of which each worker has its own.
static mu_value *gather_own(mu_strategy *strategy, const mu_value *value, int axis)
{
    return strategy->n_local == 1 || mu__is_symbolic(value)
               ? gather_node(strategy, value, axis)
               : mu__refuse_traced("a value from outside of the replica function cannot be gathered from workers with "
                                   "several replicas");
}

static mu_gather_part *const gather_parts[] = {
    [MU_VALUE_TENSOR] = gather_same,   [MU_VALUE_VARIABLE] = gather_variable, [MU_VALUE_PER_REPLICA] = gather_each,
    [MU_VALUE_MIRRORED] = gather_each, [MU_VALUE_SLICES] = mu__refuse_slices,
};

static mu_gather_part *const gather_worker_parts[] = {
    [MU_VALUE_TENSOR] = gather_own,    [MU_VALUE_VARIABLE] = gather_variable, [MU_VALUE_PER_REPLICA] = gather_each,
    [MU_VALUE_MIRRORED] = gather_each, [MU_VALUE_SLICES] = mu__refuse_slices,
};

mu_value *mu__traced_gather(mu_strategy *strategy, mu_value *value, int axis)
{
    return mu__gather_by_kind(strategy, value, axis, gather_parts);
}

mu_value *mu__traced_gather_workers(mu_strategy *strategy, mu_value *value, int axis)
{
    return mu__gather_by_kind(strategy, value, axis, gather_worker_parts);
}

// Every replica's part; gathers all of them.
static mu_value *part_results(const mu_value *part, const void *arg)
{
    const mu_strategy *strategy = arg;
    if (part->leaf || part->kind == MU_VALUE_SLICES || !mu__is_symbolic(part))
        return (mu_value *)part;
    if (part->items[0]->kind == MU_VALUE_SLICES)
        return mu__refuse_traced("indexed slices have no local results");
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

mu_value *mu__traced_results(const mu_strategy *strategy, mu_value *value)
{
    mu_value *results = mu__map_parts(value, false, part_results, strategy);
    return results ? mu__results_local(strategy, results) : NULL;
}

// ---- Variables ----------------------------------------------------------------------------------

mu_value *mu__traced_components(mu_variable *variable)
{
    const mu_strategy *owner = variable->owner;
    if (variable->n_components == 1)
        return mu__components_local(variable);
    mu_tensor *own = mu__variable_read(variable);
    mu_value *each = own ? mu__merged_group(owner, MU_VALUE_PER_REPLICA, mu_of(own)) : NULL;
    mu_value *all = each ? mu__map_parts(each, false, part_results, owner) : NULL;
    return all ? mu__give(mu__value_container(MU_VALUE_LIST, all->n, all->items, NULL)) : NULL;
}

mu_tensor *mu__traced_first_copy(mu_variable *variable)
{
    mu_saved_context before = enter();
    mu_tensor *own = mu__variable_read(variable);
    mu_tensor *first = own ? mu__first_copy(variable, own) : NULL;
    mu__leave_replica(before);
    return first;
}

mu_tensor *mu__traced_read(mu_variable *variable)
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

// Sizes that the trace does not know may differ between replicas, which a broadcast refuses: such a part stays each
// replica's own. What is assigned is the first one's in any case.
static mu_value *first_leaf(const mu_value *leaf, const void *arg)
{
    mu_tensor *own = (mu_tensor *)leaf->leaf;
    const bool alike = leaf->kind == MU_VALUE_TENSOR && own->node && mu__shape_known(&own->shape);
    return alike ? as_value(mu__broadcast_from_first(own, arg)) : (mu_value *)leaf;
}

static mu_value *first_part(const mu_value *part, const void *arg)
{
    mu_value *own = mu__merged_own(part);
    return own && part->kind == MU_VALUE_PER_REPLICA ? mu__map_parts(own, true, first_leaf, arg) : own;
}

// All replicas share one copy, and it is updated with the first replica's arguments.
static mu_value *update_shared(const mu_updating *u)
{
    mu_saved_context before = enter();
    mu_value *arguments = mu__map_parts(u->arguments, false, first_part, u->function);
    mu__leave_replica(before);
    mu_value *result = arguments ? mu__update_copy(u, 0, arguments) : NULL;
    return result && u->local_results ? mu__give(mu__value_container(MU_VALUE_LIST, 1, &result, NULL)) : result;
}

// The traced update represents those of all replicas.
mu_value *mu__traced_update(const mu_updating *u)
{
    if (u->variable && u->variable->resource.shared && u->strategy->n_local > 1)
        return update_shared(u);
    mu_value *arguments = mu__merged_own(u->arguments), *own = arguments ? mu__update_copy(u, 0, arguments) : NULL;
    mu_value *grouped = own ? mu__merged_group(u->strategy, MU_VALUE_MIRRORED, own) : NULL;
    return grouped && u->local_results ? mu_local_results(u->strategy, grouped) : grouped;
}

// ---- Copies -------------------------------------------------------------------------------------

// Each user of a symbolic value finds its own part.
mu_value *mu__traced_broadcast(mu_value *value, int copies)
{
    return mu__give(mu__select_mirrored(value, 0)) ? mu__mirror(value, copies) : NULL;
}

mu_value *mu__traced_copy(mu_value *value) { return value; }

// ---- Refused ------------------------------------------------------------------------------------

mu_value *mu__traced_distribute_values(mu_strategy *strategy, mu_value_fn *fn, void *arg)
{
    (void)strategy, (void)fn, (void)arg;
    mu__error(MU_UNIMPLEMENTED, "mu_distribute_values is called in a merge_call while a function is traced; run the "
                                "step eagerly with mu_run_callback");
    return NULL;
}

mu_running *mu__traced_run(mu_strategy *strategy, mu_function *function, mu_value *arguments)
{
    (void)strategy, (void)function, (void)arguments;
    mu__error(MU_UNIMPLEMENTED,
              "mu_run is called in a merge_call while a function is traced; run the step eagerly with mu_run_callback");
    return NULL;
}

mu_value *mu__traced_run_callback(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments)
{
    (void)strategy, (void)fn, (void)arg, (void)arguments;
    mu__error(MU_UNIMPLEMENTED, "mu_run_callback is called while a function is traced; call it outside of traced "
                                "functions, or run the step eagerly");
    return NULL;
}
