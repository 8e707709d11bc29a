// Scatter updates of distributed variables: the replicas' slices are combined, then applied to rows.
//
// The rules for whose slices count are those of assignments; one op does the arithmetic (ops/state/scatter_variable.c).
#include "distribute/servers/aggregation.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

static const char *const names[] = {"scatter_add", "scatter_sub", "scatter_mul",   "scatter_div",
                                    "scatter_min", "scatter_max", "scatter_update"};

// One op on the variable, or on all parts of one.
static mu_status raw_scatter(mu_variable *variable, mu_scatter kind, mu_tensor *indices, mu_tensor *values)
{
    mu_scatter_attrs attrs = {.kind = kind};
    mu_tensor *in[] = {indices, values};
    mu_resource *own = &variable->resource, **parts = &own;
    const int n = MU_MAX(variable->n_shards, 1);
    if (variable->n_shards > 0 && !(parts = mu__calloc((size_t)n, sizeof *parts)))
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < variable->n_shards; i++)
        parts[i] = &variable->shards[i]->resource;
    const mu_status status = mu__apply(&mu_op_scatter_variable, &attrs, 2, in, n, parts, NULL);
    if (parts != &own)
        mu__free(parts);
    return status;
}

// Aggregations that add the replicas' slices have no meaning for minima, maxima and assignments.
static mu_status check_kind(const mu_variable *variable, mu_scatter kind)
{
    const bool adds = variable->aggregation == MU_AGGREGATION_SUM || variable->aggregation == MU_AGGREGATION_MEAN;
    if (!adds || kind < MU_SCATTER_MIN)
        return MU_OK;
    return mu__error(
        MU_UNIMPLEMENTED,
        "%s: variable '%s' has aggregation %s, which this operation has no meaning for; use NONE or ONLY_FIRST_REPLICA",
        names[kind], variable->resource.name, variable->aggregation == MU_AGGREGATION_SUM ? "SUM" : "MEAN");
}

// Checks slices before they are concatenated with those of other replicas: after that, too many values on one replica
// could match too many indices on another.
static mu_status check_slices(const mu_variable *variable, mu_scatter kind, const mu_tensor *indices,
                              const mu_tensor *values)
{
    const mu_scatter_attrs attrs = {.kind = kind};
    const mu_spec own[] = {mu__spec_of(indices), mu__spec_of(values)};
    mu_infer infer = {.op = &mu_op_scatter_variable,
                      .attrs = &attrs,
                      .n_in = 2,
                      .n_resources = 1,
                      .in = own,
                      .resources = &variable->resource.spec};
    return mu_op_scatter_variable.infer(&infer);
}

// Integers are refused for MEAN, as in assignments.
static mu_status check_mean(const mu_variable *variable, mu_scatter kind, const mu_tensor *values)
{
    if (variable->aggregation != MU_AGGREGATION_MEAN || mu_replica_count() == 1 || mu__dtype_is_float(values->dtype))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: variable '%s' has aggregation MEAN and type %s, and the slices on its %d replicas are "
                     "per-replica; their mean may be a fraction. Scatter outside of the function, or use aggregation "
                     "SUM or ONLY_FIRST_REPLICA, or a floating-point type",
                     names[kind], variable->resource.name, mu_dtype_name(values->dtype), mu_replica_count());
}

// Updates all components; the caller is in cross-replica context.
static mu_status scatter_all(mu_variable *variable, mu_scatter kind, mu_tensor *indices, mu_tensor *values)
{
    mu_context *context = mu__context();
    const mu_variable *made = variable->n_shards > 0 ? variable->shards[0] : variable;
    const int before = context->component, n = context->trace ? 1 : made->n_components;
    mu_status status = MU_OK;
    for (int i = 0; i < n && status == MU_OK; i++) {
        context->component = i;
        status = raw_scatter(variable, kind, indices, values);
    }
    context->component = before;
    return status;
}

// Text that replicas and workers compare: "scatter_add to 'table'".
static const char *text_of(const mu_variable *variable, mu_scatter kind, char text[MU_ATTR_TEXT_BYTES])
{
    char access[MU_ATTR_TEXT_BYTES];
    snprintf(access, sizeof access, "%s to", names[kind]);
    return mu__access_text(access, variable, text);
}

static mu_status gather_slices(const mu_variable *variable, mu_scatter kind, mu_tensor **indices, mu_tensor **values)
{
    char what[MU_ATTR_TEXT_BYTES];
    text_of(variable, kind, what);
    *indices = mu__all_gather_named(*indices, 0, what);
    *values = *indices ? mu__all_gather_named(*values, 0, what) : NULL;
    return mu_error_code();
}

// Slices made outside of the replica function are one value, as in an assignment.
static mu_status plain_slices(const mu_variable *variable, mu_scatter kind, mu_tensor **indices, mu_tensor **values)
{
    mu_strategy *strategy = variable->owner;
    const mu_cross_worker_ops *workers = strategy->ops->cross_worker;
    char what[MU_ATTR_TEXT_BYTES];
    if (variable->aggregation == MU_AGGREGATION_SUM)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: variable '%s' has aggregation SUM, and the slices on its %d replicas are one value from "
                         "outside of their function; the slices to add up must be per-replica. Make them inside of the "
                         "function, pass per-replica arguments, or scatter outside of the function",
                         names[kind], variable->resource.name, strategy->n_replicas);
    text_of(variable, kind, what);
    *indices = workers->common_value(strategy, what, false, *indices);
    *values = *indices ? workers->common_value(strategy, what, false, *values) : NULL;
    return mu_error_code();
}

// Combines the slices of all replicas.
static mu_status join_replicas(const mu_variable *variable, mu_scatter kind, mu_tensor **indices, mu_tensor **values)
{
    char what[MU_ATTR_TEXT_BYTES];
    if (!mu__made_here(*indices) && !mu__made_here(*values))
        return plain_slices(variable, kind, indices, values);
    if (variable->aggregation == MU_AGGREGATION_ONLY_FIRST_REPLICA) {
        text_of(variable, kind, what);
        *indices = mu__broadcast_from_first(*indices, what);
        *values = *indices ? mu__broadcast_from_first(*values, what) : NULL;
        return mu_error_code();
    }
    MU_TRY(check_slices(variable, kind, *indices, *values));
    MU_TRY(check_mean(variable, kind, *values));
    MU_TRY(gather_slices(variable, kind, indices, values));
    if (variable->aggregation == MU_AGGREGATION_MEAN)
        *values = mu__divide_by_count(*values, mu_replica_count());
    return mu_error_code();
}

// ---- Slots --------------------------------------------------------------------------------------

mu_status mu__mirrored_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values)
{
    const mu_strategy *strategy = variable->owner;
    const bool each = variable->aggregation == MU_AGGREGATION_NONE || strategy->n_replicas == 1;
    MU_TRY(check_kind(variable, kind));
    MU_TRY(mu__need_own_replica(variable));
    if (mu__updating() || (mu__replica() && each))
        return raw_scatter(variable, kind, indices, values);
    if (!mu__replica()) {
        MU_TRY(mu__need_cross_replica(strategy, names[kind]));
        return scatter_all(variable, kind, indices, values);
    }
    MU_TRY(join_replicas(variable, kind, &indices, &values));
    return raw_scatter(variable, kind, indices, values);
}

// One plain variable: all updates are allowed, and all replicas' slices count.
mu_status mu__central_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values)
{
    MU_TRY(mu__need_own_replica(variable));
    if (mu__updating() || mu__is_whole_by_default(variable))
        return raw_scatter(variable, kind, indices, values);
    if (!mu__replica()) {
        MU_TRY(mu__need_cross_replica(variable->owner, names[kind]));
        return scatter_all(variable, kind, indices, values);
    }
    MU_TRY(check_slices(variable, kind, indices, values));
    MU_TRY(gather_slices(variable, kind, &indices, &values));
    return raw_scatter(variable, kind, indices, values);
}

mu_status mu__parts_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values)
{
    const mu_variable_rules *rules = variable->shards[0]->rules;
    return rules ? rules->scatter(variable, kind, indices, values) : raw_scatter(variable, kind, indices, values);
}

mu_status mu__on_read_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values)
{
    (void)indices, (void)values;
    return mu__error(MU_UNIMPLEMENTED, "%s: variable '%s' is ON_READ, which cannot be scattered into; make it ON_WRITE",
                     names[kind], variable->resource.name);
}

// Of variables whose updates calls leave (aggregation.h).
mu_status mu__deferred_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values)
{
    char what[160];
    snprintf(what, sizeof what, "%s: variable '%s' is scattered into", names[kind], variable->resource.name);
    MU_TRY(mu__refuse_in_calls(
        true, what,
        "each attempt at a call would do so again; assign a dense tensor, or give slices to mu_apply_gradients"));
    return raw_scatter(variable, kind, indices, values);
}

// ---- Public functions ---------------------------------------------------------------------------

static mu_status scatter(mu_variable *variable, mu_scatter kind, mu_tensor *indices, mu_tensor *values)
{
    if (mu__pending())
        return mu_error_code();
    if (!variable || !indices || !values)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", names[kind],
                         !variable  ? "variable"
                         : !indices ? "tensor of indices"
                                    : "tensor of values");
    return variable->rules ? variable->rules->scatter(variable, kind, indices, values)
                           : raw_scatter(variable, kind, indices, values);
}

mu_status mu_variable_scatter_add(mu_variable *variable, mu_tensor *indices, mu_tensor *values)
{
    return scatter(variable, MU_SCATTER_ADD, indices, values);
}

mu_status mu_variable_scatter_sub(mu_variable *variable, mu_tensor *indices, mu_tensor *values)
{
    return scatter(variable, MU_SCATTER_SUB, indices, values);
}

mu_status mu_variable_scatter_mul(mu_variable *variable, mu_tensor *indices, mu_tensor *values)
{
    return scatter(variable, MU_SCATTER_MUL, indices, values);
}

mu_status mu_variable_scatter_div(mu_variable *variable, mu_tensor *indices, mu_tensor *values)
{
    return scatter(variable, MU_SCATTER_DIV, indices, values);
}

mu_status mu_variable_scatter_min(mu_variable *variable, mu_tensor *indices, mu_tensor *values)
{
    return scatter(variable, MU_SCATTER_MIN, indices, values);
}

mu_status mu_variable_scatter_max(mu_variable *variable, mu_tensor *indices, mu_tensor *values)
{
    return scatter(variable, MU_SCATTER_MAX, indices, values);
}

mu_status mu_variable_scatter_update(mu_variable *variable, mu_tensor *indices, mu_tensor *values)
{
    return scatter(variable, MU_SCATTER_UPDATE, indices, values);
}
