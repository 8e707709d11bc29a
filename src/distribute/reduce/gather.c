// Gather and local results: what all replicas have, joined or as a list.
#include "distribute/reduce/reductions.h"

#include <muster/ops.h>

// ---- Gather -------------------------------------------------------------------------------------

// Checks that parts differ only in size along the axis; mu_concat would name its own inputs. An only part is returned
// as it is, as in TensorFlow, whatever the axis.
static mu_status fit_together(const char *whose, int n, mu_tensor *const *parts, int axis)
{
    char first[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    if (n == 1)
        return MU_OK;
    const int at = mu__axis(axis, parts[0]->shape.rank, "mu_strategy_gather");
    if (parts[0]->dtype == MU_STRING)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_strategy_gather: %s 0 has strings, which stay on their replica; take each replica's "
                         "(mu_local_results), or turn them into numbers first (mu_string_lookup, mu_hashing)",
                         whose);
    for (int i = 1; i < n && at >= 0; i++) {
        mu_shape alike = parts[i]->shape;
        if (at < alike.rank)
            alike.dims[at] = parts[0]->shape.dims[at];
        if (parts[i]->dtype == parts[0]->dtype && mu__shape_compatible(&alike, &parts[0]->shape))
            continue;
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_strategy_gather along axis %d: %s 0 has %s%s, but %s %d has %s%s; they may differ in size "
                         "along that axis, and must agree in all else. %s",
                         axis, whose, mu_dtype_name(parts[0]->dtype), mu__shape_text(&parts[0]->shape, first), whose, i,
                         mu_dtype_name(parts[i]->dtype), mu__shape_text(&parts[i]->shape, other),
                         mu__parts_advice(parts[0]->dtype, parts[i]->dtype, "Pad the smaller parts"));
    }
    return at < 0 ? MU_INVALID_ARGUMENT : MU_OK;
}

// Concatenates components, on several workers those of all. `of` (" of 'state'") is for the workers to compare.
static mu_value *gather_parts(mu_strategy *strategy, const char *of, int n, mu_tensor *const *parts, int axis)
{
    for (int i = 0; i < n; i++)
        if (!parts[i])
            return NULL;
    char what[MU_WHAT_BYTES];
    int n_all;
    snprintf(what, sizeof what, "gather along axis %d%s", axis, of);
    mu_tensor **all = strategy->ops->cross_worker->gather(strategy, what, n, parts, &n_all);
    const bool fit = all && fit_together(n < strategy->n_local ? "worker" : "replica", n_all, all, axis) == MU_OK;
    mu_tensor *whole = !fit ? NULL : n_all == 1 ? all[0] : mu_concat(n_all, all, axis);
    mu__free(all);
    return whole ? mu_of(whole) : NULL;
}

bool mu__has_components(const mu_value *leaf)
{
    const mu_variable *variable = (const mu_variable *)leaf->leaf;
    return variable->rules && !variable->rules->one_copy && !variable->resource.shared;
}

static mu_value *gather_same(mu_strategy *strategy, const mu_value *value, int axis)
{
    (void)strategy, (void)axis;
    return (mu_value *)value;
}

static mu_value *gather_own(mu_strategy *strategy, const mu_value *value, int axis)
{
    return gather_parts(strategy, "", 1, (mu_tensor *[]){mu_value_tensor(value)}, axis);
}

static mu_value *gather_variable(mu_strategy *strategy, const mu_value *value, int axis)
{
    mu_variable *variable = (mu_variable *)value->leaf;
    mu_tensor *parts[MU_MAX_REPLICAS];
    char whose[MU_ATTR_TEXT_BYTES];
    if (!mu__has_components(value))
        return (mu_value *)value;
    for (int i = 0; i < variable->n_components; i++)
        parts[i] = mu__variable_component(variable, i);
    return gather_parts(strategy, mu__access_text(" of", variable, whose), variable->n_components, parts, axis);
}

mu_value *mu__refuse_slices(mu_strategy *strategy, const mu_value *value, int axis)
{
    (void)strategy, (void)value, (void)axis;
    mu__error(MU_UNIMPLEMENTED, "mu_strategy_gather: indexed slices cannot be gathered; gather a dense tensor");
    return NULL;
}

mu_value *mu__gather_each(mu_strategy *strategy, const mu_value *value, int axis)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    if (value->items[0]->kind == MU_VALUE_SLICES)
        return mu__refuse_slices(strategy, value, axis);
    for (int i = 0; i < value->n; i++)
        parts[i] = mu_value_tensor(value->items[i]);
    return gather_parts(strategy, "", value->n, parts, axis);
}

static mu_gather_part *const local_parts[] = {
    [MU_VALUE_TENSOR] = gather_same,          [MU_VALUE_VARIABLE] = gather_variable,
    [MU_VALUE_PER_REPLICA] = mu__gather_each, [MU_VALUE_MIRRORED] = mu__gather_each,
    [MU_VALUE_SLICES] = mu__refuse_slices,
};

// A tensor that is not distributed is this worker's own.
static mu_gather_part *const worker_parts[] = {
    [MU_VALUE_TENSOR] = gather_own,           [MU_VALUE_VARIABLE] = gather_variable,
    [MU_VALUE_PER_REPLICA] = mu__gather_each, [MU_VALUE_MIRRORED] = mu__gather_each,
    [MU_VALUE_SLICES] = mu__refuse_slices,
};

typedef struct walk {
    mu_strategy *strategy;
    int axis;
    mu_gather_part *const *by_kind;
} walk;

static mu_value *gather_part(const mu_value *part, const void *arg)
{
    const walk *w = arg;
    return w->by_kind[part->kind](w->strategy, part, w->axis);
}

mu_value *mu__gather_by_kind(mu_strategy *strategy, mu_value *value, int axis, mu_gather_part *const *by_kind)
{
    return mu__map_parts(value, false, gather_part, &(walk){strategy, axis, by_kind});
}

mu_value *mu__gather_local(mu_strategy *strategy, mu_value *value, int axis)
{
    return mu__gather_by_kind(strategy, value, axis, local_parts);
}

mu_value *mu__gather_workers(mu_strategy *strategy, mu_value *value, int axis)
{
    return mu__gather_by_kind(strategy, value, axis, worker_parts);
}

mu_value *mu_strategy_gather(mu_strategy *given, mu_value *value, int axis)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || mu__need_cross_replica(strategy, "mu_strategy_gather") != MU_OK ||
        mu__need_value(value, "mu_strategy_gather") != MU_OK)
        return NULL;
    if (!value) {
        mu__error(MU_INVALID_ARGUMENT, "mu_strategy_gather: the value is NULL");
        return NULL;
    }
    return mu__need_components(strategy, value, "mu_strategy_gather") == MU_OK
               ? mu__cross_replica(strategy)->gather_to(strategy, value, axis)
               : NULL;
}

// ---- Local results ------------------------------------------------------------------------------

mu_value *mu__components_local(mu_variable *variable)
{
    mu_value *items[MU_MAX_REPLICAS];
    for (int i = 0; i < variable->n_components; i++) {
        mu_tensor *copy = mu__variable_component(variable, i);
        if (!copy || !(items[i] = mu_of(copy)))
            return NULL;
    }
    return mu__give(mu__value_container(MU_VALUE_LIST, variable->n_components, items, NULL));
}

static mu_value *components_of(mu_variable *variable)
{
    return mu__cross_replica(mu__strategy_or_default(variable->owner))->variable_components(variable);
}

// Local replica *arg's part of a value; for a variable with copies its copy. Belongs to the pool.
static mu_value *local_part(const mu_value *value, const void *arg)
{
    const int i = *(const int *)arg;
    if (value->kind == MU_VALUE_VARIABLE && mu__has_components(value)) {
        mu_value *copies = components_of((mu_variable *)value->leaf);
        return copies && i < copies->n ? copies->items[i] : NULL;
    }
    return mu__give(mu__select(value, i));
}

mu_value *mu__results_local(const mu_strategy *strategy, mu_value *value)
{
    const bool nest = value->kind == MU_VALUE_LIST || value->kind == MU_VALUE_MAP;
    const bool copies = value->kind == MU_VALUE_MIRRORED; // one per named device
    const int n = copies ? value->n : nest || mu__is_distributed(value) ? strategy->n_local : 1;
    if (!copies && mu__need_components(strategy, value, "mu_local_results") != MU_OK)
        return NULL;
    mu_value **items = mu__calloc((size_t)n, sizeof *items), *list = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = (items[i] = mu__map_parts(value, false, local_part, &i)) != NULL;
    if (whole)
        list = mu__give(mu__value_container(MU_VALUE_LIST, n, items, NULL));
    mu__free(items);
    return list;
}

mu_value *mu__results_plain(const mu_strategy *strategy, mu_value *value)
{
    return mu__is_distributed(value) ? mu__results_local(strategy, value)
                                     : mu__give(mu__value_container(MU_VALUE_LIST, 1, &value, NULL));
}

mu_value *mu_local_results(mu_strategy *given, mu_value *value)
{
    const mu_strategy *strategy = mu__pending() ? NULL : mu__strategy_or_default(given);
    if (!strategy || mu__need_value(value, "mu_local_results") != MU_OK)
        return NULL;
    if (!value) {
        mu__error(MU_INVALID_ARGUMENT, "mu_local_results: the value is NULL");
        return NULL;
    }
    return value->kind == MU_VALUE_VARIABLE ? components_of((mu_variable *)value->leaf)
                                            : mu__cross_replica(strategy)->local_results(strategy, value);
}
