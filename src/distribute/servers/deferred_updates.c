// Assignments in calls that are applied together: each call adds its values to accumulators, and the step assigns once.
//
// A step of several calls has the weights that MirroredStrategy has with as many replicas. There an assignment on
// replicas first combines the replicas' values by the variable's aggregation; here the values travel under the number
// of the attempt, as gradients do, and are combined when the step is applied. Until then no call sees them: a function
// that reads a variable after it has assigned it cannot have the value that a replica would have, and is refused by
// name, when it is traced.
#include "distribute/servers/aggregation.h"

#include "graph/trace.h"
#include "ops/state/accumulator.h"

#include <muster/ops.h>

// ---- Where a function is traced -----------------------------------------------------------------

static bool several_calls(const mu_strategy_replica *replica) { return replica->strategy->servers->aggregation->n > 1; }

mu_status mu__refuse_in_calls(bool always, const char *what, const char *reason)
{
    const mu_strategy_replica *replica = mu__replica();
    if (!replica || !replica->attempt || !(always || several_calls(replica)))
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION, "%s in a function whose calls are applied together: %s", what, reason);
}

// A branch may not run, and a loop may run it often, but a call leaves each value once.
static mu_status refuse_in_body(const mu_variable *variable)
{
    const mu_graph_trace *trace = (const mu_graph_trace *)mu__context()->trace;
    if (!trace || !trace->outer)
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "variable '%s' is assigned inside a body (mu_cond, mu_while_loop) of a function whose calls are "
                     "applied together; compute the value there, and assign it outside",
                     variable->resource.name);
}

#define IS_AMONG(list, variable) is_among((list).n, (list).items, variable)
static bool is_among(size_t n, const mu_variable *const *items, const mu_variable *variable)
{
    for (size_t i = 0; i < n; i++)
        if (items[i] == variable)
            return true;
    return false;
}

mu_status mu__deferred_applied(int n, mu_variable *const *variables)
{
    mu_deferred_trace *deferred = mu__replica()->deferred;
    for (int i = 0; i < n; i++) {
        MU_TRY(refuse_in_body(variables[i]));
        MU_TRY(MU_PUSH(&deferred->applied, variables[i]));
    }
    return MU_OK;
}

// ---- Sites of a variable ------------------------------------------------------------------------

// The values that calls leave for one assignment of a variable, which may have several in a function.
typedef struct deferred_update {
    mu_object object;
    mu_aggregation *aggregation; // whose lock guards `variable`; not retained
    mu_variable *variable;       // not retained: it has this; NULL: it was released
    int index;                   // among the variable's updates in a function
    mu_deferred_change change;   // without values
    mu_accumulator *sums[MU_MOST_DEFERRED];
} deferred_update;

typedef struct deferred_updates {
    mu_object object;
    mu_strategy *strategy; // not retained: the variable's owner
    struct {
        deferred_update **items;
        size_t n, capacity;
    } list; // retained
} deferred_updates;

static void update_destroy(void *object)
{
    deferred_update *update = object;
    for (int i = 0; i < MU_MOST_DEFERRED; i++)
        mu_release(update->sums[i]);
}

static void updates_destroy(void *object)
{
    deferred_updates *updates = object;
    for (size_t i = 0; i < updates->list.n; i++) {
        deferred_update *update = updates->list.items[i];
        pthread_mutex_lock(&update->aggregation->lock);
        update->variable = NULL;
        pthread_mutex_unlock(&update->aggregation->lock);
        mu__aggregation_forget(updates->strategy, updates->list.items[i]);
        mu_release(updates->list.items[i]);
    }
    mu__free(updates->list.items);
}

static mu_type update_type = {.name = "assignment of calls", .destroy = update_destroy};
static mu_type updates_type = {.name = "assignments of calls", .destroy = updates_destroy};

static mu_status apply(void *owner, mu_tensor *const *sums, mu_tensor *calls)
{
    const deferred_update *update = owner;
    pthread_mutex_lock(&update->aggregation->lock);
    mu_variable *variable = mu__retain_living(update->variable); // another thread may be releasing it
    pthread_mutex_unlock(&update->aggregation->lock);
    if (!variable)
        return mu__error(
            MU_FAILED_PRECONDITION,
            "a variable that calls have assigned was released before their step was applied; release it after mu_join");
    const mu_status status = update->change.update(variable, sums, calls, update->change.number);
    mu_release(variable);
    return status;
}

static bool is_for(const deferred_update *update, int index, const mu_deferred_change *change)
{
    bool same = update->index == index && update->change.update == change->update &&
                update->change.number == change->number && update->change.only_first == change->only_first &&
                update->change.n == change->n;
    for (int i = 0; same && i < change->n; i++)
        same = update->sums[i]->resource.spec.dtype == change->values[i]->dtype;
    return same;
}

// The accumulators' names are those of the variable; a value without a known shape has the variable's.
static mu_status fill_update(deferred_update *update, mu_variable *variable, int index,
                             const mu_deferred_change *change)
{
    update->aggregation = ((mu_strategy *)variable->owner)->servers->aggregation;
    update->variable = variable;
    update->index = index;
    update->change = *change;
    update->change.values = NULL;
    for (int i = 0; i < change->n; i++) {
        mu_spec spec = {.dtype = change->values[i]->dtype, .shape = change->values[i]->shape};
        if (!mu__shape_known(&spec.shape))
            spec.shape = variable->resource.spec.shape;
        if (!(update->sums[i] = mu__deferred_accumulator(variable, change->what, &spec)))
            return mu_error_code();
    }
    return MU_OK;
}

// Owned by `updates`; NULL on error.
static deferred_update *new_update(deferred_updates *updates, mu_variable *variable, int index,
                                   const mu_deferred_change *change)
{
    deferred_update *update = mu__new(&update_type, sizeof *update);
    if (!update || fill_update(update, variable, index, change) != MU_OK || MU_PUSH(&updates->list, update) != MU_OK) {
        mu_release(update);
        return NULL;
    }
    const mu_deferred_site site = {.first = update->sums[0],
                                   .n = change->n,
                                   .sums = update->sums,
                                   .only_first = change->only_first,
                                   .update = apply,
                                   .owner = &update->object};
    if (mu__aggregation_add(updates->strategy, &site) == MU_OK)
        return update;
    mu_release(updates->list.items[--updates->list.n]); // the next trace must not find it: no step would apply it
    return NULL;
}

static deferred_updates *updates_of(mu_variable *variable)
{
    deferred_updates *updates = (deferred_updates *)variable->deferred;
    if (updates || !(updates = mu__new(&updates_type, sizeof *updates)))
        return updates;
    updates->strategy = variable->owner;
    variable->deferred = &updates->object;
    return updates;
}

// That of an earlier trace, or a new one.
static deferred_update *update_for(mu_variable *variable, int index, const mu_deferred_change *change)
{
    deferred_updates *updates = updates_of(variable);
    for (size_t i = 0; updates && i < updates->list.n; i++)
        if (is_for(updates->list.items[i], index, change))
            return updates->list.items[i];
    return updates ? new_update(updates, variable, index, change) : NULL;
}

// ---- Leaving values -----------------------------------------------------------------------------

static mu_status check_context(const mu_variable *variable, const mu_deferred_trace *deferred)
{
    MU_TRY(refuse_in_body(variable));
    if (!IS_AMONG(deferred->applied, variable) && !deferred->read_late)
        return MU_OK;
    const bool late = deferred->read_late != NULL;
    return mu__error(MU_FAILED_PRECONDITION,
                     "variable '%s' is assigned after mu_apply_gradients, and '%s' was %s: calls of this function are "
                     "applied together, when all have ended, so that value is the one from before the update; assign "
                     "first, or outside of the function",
                     variable->resource.name, late ? deferred->read_late->resource.name : variable->resource.name,
                     late ? "read in between" : "updated there");
}

mu_status mu__defer_change(mu_variable *variable, const mu_deferred_change *change)
{
    const mu_strategy_replica *replica = mu__replica();
    mu_deferred_trace *deferred = replica->deferred;
    MU_TRY(check_context(variable, deferred));
    int index = 0;
    for (size_t i = 0; i < deferred->assigned.n; i++)
        index += deferred->assigned.items[i] == variable;
    mu_aggregation *aggregation = replica->strategy->servers->aggregation;
    pthread_mutex_lock(&aggregation->updates_lock);
    const deferred_update *update = update_for(variable, index, change);
    pthread_mutex_unlock(&aggregation->updates_lock);
    for (int i = 0; update && i < change->n; i++)
        MU_TRY(mu__accumulator_keep(update->sums[i], replica->attempt, change->values[i]));
    return update ? MU_PUSH(&deferred->assigned, variable) : mu_error_code();
}

// ---- Assignments --------------------------------------------------------------------------------

static mu_status change(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    value = mu_cast(value, variable->resource.spec.dtype);
    return value ? mu__variable_update(variable, kind, value) : mu_error_code();
}

// `number` says what kind of update it is, and whether the mean is meant.
enum { MEAN = 8 };
static mu_status update_with_sum(mu_variable *variable, mu_tensor *const *sums, mu_tensor *calls, double number)
{
    const int form = (int)number;
    mu_tensor *sum = sums[0];
    if (form >= MEAN)
        sum = mu_divide(sum, mu_cast(calls, mu_tensor_dtype(sum)));
    return change(variable, (mu_update)(form % MEAN), sum);
}

static mu_status check_aggregation(const mu_variable *variable)
{
    const mu_dtype dtype = variable->resource.spec.dtype;
    if (variable->aggregation == MU_AGGREGATION_NONE)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s' has aggregation NONE and is assigned in calls of which several make a step and "
                         "share it; choose SUM, MEAN or ONLY_FIRST_REPLICA, or assign outside of the function",
                         variable->resource.name);
    if (variable->aggregation == MU_AGGREGATION_MEAN && !mu__dtype_is_float(dtype))
        return mu__error(
            MU_INVALID_ARGUMENT,
            "variable '%s' has aggregation MEAN and type %s, and the values assigned in the calls of a step may have a "
            "fraction as their mean; use aggregation SUM or ONLY_FIRST_REPLICA, or a floating-point type",
            variable->resource.name, mu_dtype_name(dtype));
    return MU_OK;
}

// Sums of whole numbers are exact up to 2^53 in the type of their accumulators.
static mu_tensor *as_number(const mu_variable *variable, mu_tensor *value)
{
    const mu_dtype dtype = variable->resource.spec.dtype;
    if (mu__dtype_is_float(dtype))
        return value;
    if (dtype != MU_BOOL && mu_dtype_bytes(dtype) > 0)
        return mu_cast(value, MU_F64);
    mu__error(MU_UNIMPLEMENTED,
              "variable '%s' of type %s is assigned in a function whose calls are applied together; only numbers can "
              "be; assign it outside of the function",
              variable->resource.name, mu_dtype_name(dtype));
    return NULL;
}

static mu_status leave_value(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    const bool several = several_calls(mu__replica());
    if (several)
        MU_TRY(check_aggregation(variable));
    mu_tensor *number = as_number(variable, value);
    const mu_deferred_change change = {
        .what = "assigned",
        .n = 1,
        .values = &number,
        .update = update_with_sum,
        .only_first = several && variable->aggregation == MU_AGGREGATION_ONLY_FIRST_REPLICA,
        .number = kind + (several && variable->aggregation == MU_AGGREGATION_MEAN ? MEAN : 0)};
    return number ? mu__defer_change(variable, &change) : mu_error_code();
}

// ---- The rules ----------------------------------------------------------------------------------

static mu_tensor *read(mu_variable *variable)
{
    const mu_strategy_replica *replica = mu__replica();
    if (!replica || !replica->attempt) {
        if (!variable->in_doubt)
            return mu__variable_read(variable);
        mu__error(MU_FAILED_PRECONDITION,
                  "variable '%s' is in doubt: a step failed while it was applied; assign the variables of the step, or "
                  "restore a checkpoint",
                  variable->resource.name);
        return NULL;
    }
    if (IS_AMONG(replica->deferred->assigned, variable)) {
        mu__error(MU_FAILED_PRECONDITION,
                  "variable '%s' is read after it was assigned in a function whose calls are applied together: its new "
                  "value exists when all have ended; use the assigned tensor, or read it in the next step",
                  variable->resource.name);
        return NULL;
    }
    if (variable->synchronization == MU_SYNCHRONIZATION_ON_READ && several_calls(replica)) {
        mu__error(MU_FAILED_PRECONDITION,
                  "variable '%s' is ON_READ and is read in a call, but several calls make a step: a replica would read "
                  "a value of its own, which a call does not have; read it outside of the function",
                  variable->resource.name);
        return NULL;
    }
    if (IS_AMONG(replica->deferred->applied, variable))
        replica->deferred->read_late = variable;
    return mu__variable_read(variable);
}

static mu_status assign(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    const mu_strategy_replica *replica = mu__replica();
    if (replica && replica->attempt)
        return leave_value(variable, kind, value);
    MU_TRY(mu__variable_update(variable, kind, value));
    if (kind == MU_UPDATE_ASSIGN && !mu__context()->trace && atomic_exchange(&variable->in_doubt, false))
        ((mu_strategy *)variable->owner)->servers->aggregation->in_doubt--;
    return MU_OK;
}

const mu_variable_rules mu__deferred_rules = {
    .read = read, .update = assign, .scatter = mu__deferred_scatter, .one_copy = true};
