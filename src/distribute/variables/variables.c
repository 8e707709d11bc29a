// Distributed variables: the meaning of reads and assignments in each context.
//
// ON_WRITE ("mirrored") keeps all components equal: an assignment on replicas first combines the replicas' values by
// the aggregation. ON_READ lets components differ and combines them when they are read outside of replicas. With
// several workers the initial value is the chief's. The tables follow sections 9.2 and 9.3 of the semantics that
// TensorFlow's tests define.
#include "distribute/distribute.h"

#include <muster/ops.h>

static bool in_replica(void) { return mu__context()->replica != NULL; }

static mu_strategy *owner_of(const mu_variable *variable) { return variable->owner; }

const char *mu__update_function(mu_update kind)
{
    static const char *const functions[] = {"mu_variable_assign", "mu_variable_assign_add", "mu_variable_assign_sub"};
    return functions[kind];
}

bool mu__is_whole_by_default(const mu_variable *variable)
{
    const mu_strategy_replica *replica = mu__replica();
    return replica && replica->strategy == mu_default_strategy() &&
           (owner_of(variable)->n_replicas == 1 || variable->resource.shared);
}

// Replicas of another strategy have no component of this variable, and would write another replica's.
mu_status mu__need_own_replica(const mu_variable *variable)
{
    const mu_strategy_replica *replica = mu__replica();
    if (!replica || replica->strategy == owner_of(variable) || mu__is_whole_by_default(variable))
        return MU_OK;
    return mu__error(
        MU_FAILED_PRECONDITION,
        "variable '%s' of %s is assigned on a replica of %s%s, which has no component of it; strategies may not be "
        "mixed. Assign it outside of the function, or call the function in MU_SCOPE of the variable's strategy",
        variable->resource.name, mu_strategy_name(owner_of(variable)),
        mu__another(owner_of(variable), replica->strategy), mu_strategy_name(replica->strategy));
}

// Likewise, a replica of another strategy would see one component of those that make up the value.
static mu_status need_own_read(const mu_variable *variable, const mu_strategy_replica *replica)
{
    if (!replica || replica->strategy == owner_of(variable) || mu__is_whole_by_default(variable))
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "ON_READ variable '%s' of %s is read on a replica of %s%s, which has no component of it; read it "
                     "outside of the function, or call the function in MU_SCOPE of the variable's strategy",
                     variable->resource.name, mu_strategy_name(owner_of(variable)),
                     mu__another(owner_of(variable), replica->strategy), mu_strategy_name(replica->strategy));
}

// Runs a raw update on every component. A trace runs on every replica, so there it is one update.
static mu_status update_components(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    mu_context *context = mu__context();
    const int before = context->component, n = context->trace ? 1 : variable->n_components;
    mu_status status = MU_OK;
    for (int i = 0; i < n && status == MU_OK; i++) {
        context->component = i;
        status = mu__variable_update(variable, kind, value);
    }
    context->component = before;
    return status;
}

// ---- ON_WRITE -----------------------------------------------------------------------------------

// Outside of replicas: the copy on the device of mu_set_device, if there is one, else the first.
static int copy_in_force(const mu_variable *variable)
{
    const mu_device *device = mu__device_in_force();
    const mu_strategy *owner = owner_of(variable);
    int i = device && variable->n_components == owner->n_local ? owner->n_local - 1 : 0;
    while (i > 0 && owner->devices[i] != device)
        i--;
    return i;
}

// A trace outside of replicas runs on every replica, each with its own copy, and copies may differ.
static mu_tensor *mirrored_read(mu_variable *variable)
{
    if (in_replica() || mu__updating())
        return mu__variable_read(variable);
    if (mu__need_cross_replica(owner_of(variable), "mu_variable_read") != MU_OK)
        return NULL;
    return mu__traced_replica() && variable->n_components > 1
               ? mu__traced_first_copy(variable)
               : mu__variable_component(variable, copy_in_force(variable));
}

// A tensor made outside of the replica function is one value, which has no sum over replicas, unless it is zero.
static mu_tensor *sum_of_plain(const mu_variable *variable, mu_tensor *value)
{
    char text[MU_SHAPE_TEXT];
    const bool scalar = !value->node && mu__elements(&value->shape) == 1;
    const void *element = scalar ? mu__host_read(value) : NULL;
    if (scalar && !element)
        return NULL;
    if (scalar && mu__read_element(value->dtype, element, 0) == 0)
        return value;
    mu__error(MU_INVALID_ARGUMENT,
              "variable '%s' has aggregation SUM, and its %d replicas assign one %s%s from outside of their function; "
              "the values to add up must be per-replica. Make the tensor inside of the function, pass a per-replica "
              "argument, or assign outside of the function",
              variable->resource.name, owner_of(variable)->n_replicas, mu_dtype_name(value->dtype),
              mu__shape_text(&value->shape, text));
    return NULL;
}

static void refuse_integer_mean(const mu_variable *variable, const mu_tensor *value)
{
    mu__error(MU_INVALID_ARGUMENT,
              "variable '%s' has aggregation MEAN and type %s, and the values assigned on its %d replicas are "
              "per-replica; their mean may be a fraction. Assign one value from outside of the function, or use "
              "aggregation SUM or ONLY_FIRST_REPLICA, or a floating-point type",
              variable->resource.name, mu_dtype_name(value->dtype), owner_of(variable)->n_replicas);
}

// What replicas and workers compare when they assign. A variable has one name on all of them, and an assignment may be
// one of three.
static const char *const accesses[] = {"assign to", "assign_add to", "assign_sub to"};

static mu_tensor *all_reduce_named(const char *name, mu_reduction reduction, mu_tensor *value)
{
    mu_tensor *reduced = NULL;
    return mu__all_reduce_list(reduction, 1, &value, &reduced, &name, 0) == MU_OK ? reduced : NULL;
}

// A value from outside of the replica function: the mean of integers is the first one, which keeps their type. Workers
// exchange a zero for SUM too, so that they compare the variables.
static mu_tensor *aggregate_plain(const mu_variable *variable, mu_update kind, mu_tensor *value)
{
    char what[MU_ATTR_TEXT_BYTES];
    mu_strategy *strategy = owner_of(variable);
    const bool mean = variable->aggregation == MU_AGGREGATION_MEAN && mu__dtype_is_float(value->dtype);
    if (variable->aggregation == MU_AGGREGATION_SUM && !(value = sum_of_plain(variable, value)))
        return NULL;
    mu__access_text(accesses[kind], variable, what);
    return strategy->ops->cross_worker->common_value(strategy, what, mean, value);
}

// In a trace: combines the values that the replicas assign.
static mu_tensor *aggregate(const mu_variable *variable, mu_update kind, mu_tensor *value)
{
    char what[MU_ATTR_TEXT_BYTES];
    if (variable->aggregation == MU_AGGREGATION_NONE)
        return value;
    if (!mu__made_here(value))
        return aggregate_plain(variable, kind, value);
    mu__access_text(accesses[kind], variable, what);
    if (variable->aggregation == MU_AGGREGATION_ONLY_FIRST_REPLICA)
        return mu__broadcast_from_first(value, what);
    if (variable->aggregation == MU_AGGREGATION_SUM)
        return all_reduce_named(what, MU_REDUCTION_SUM, value);
    if (mu__dtype_is_float(value->dtype))
        return all_reduce_named(what, MU_REDUCTION_MEAN, value);
    refuse_integer_mean(variable, value);
    return NULL;
}

// The assignment of eager replicas, combined when all have reached it.
typedef struct assignment {
    mu_variable *variable;
    mu_update kind;
    bool plain; // a replica's value was made outside of its function
} assignment;

// `access` describes the access in errors, and to other workers.
static mu_tensor *reduce_replicas(const mu_variable *variable, const char *access, int n, mu_tensor *const *parts)
{
    char what[MU_ATTR_TEXT_BYTES];
    return mu__reduce_replicas(owner_of(variable), mu__access_text(access, variable, what),
                               variable->aggregation == MU_AGGREGATION_SUM ? MU_SUM : MU_MEAN, n, parts);
}

static mu_tensor *aggregate_parts(const assignment *a, const mu_value *parts)
{
    mu_variable *variable = a->variable;
    mu_strategy *strategy = owner_of(variable);
    const bool several = parts->kind == MU_VALUE_PER_REPLICA;
    mu_tensor *first = mu_value_tensor(several ? parts->items[0] : parts), *tensors[MU_MAX_REPLICAS];
    char what[MU_ATTR_TEXT_BYTES];
    if (!first || (!several && a->plain))
        return first ? aggregate_plain(variable, a->kind, first) : NULL;
    mu__access_text(accesses[a->kind], variable, what);
    if (variable->aggregation == MU_AGGREGATION_ONLY_FIRST_REPLICA)
        return strategy->ops->cross_worker->broadcast_tensor(strategy, what, first);
    if (variable->aggregation == MU_AGGREGATION_MEAN && !mu__dtype_is_float(first->dtype)) {
        refuse_integer_mean(variable, first);
        return NULL;
    }
    for (int i = 0; i < strategy->n_local; i++)
        tensors[i] = several ? mu_value_tensor(parts->items[i]) : first;
    return reduce_replicas(variable, accesses[a->kind], strategy->n_local, tensors);
}

static mu_value *assign_together(mu_strategy *strategy, mu_value *parts, void *arg)
{
    (void)strategy;
    const assignment *a = arg;
    mu_tensor *agreed = aggregate_parts(a, parts);
    return agreed && update_components(a->variable, a->kind, agreed) == MU_OK ? parts : NULL;
}

static mu_status eager_update(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    assignment a = {.variable = variable, .kind = kind, .plain = !mu__made_here(value)};
    mu_value *part = mu_of(value);
    return part && mu__eager_assign(variable, kind, assign_together, &a, part) ? MU_OK : mu_error_code();
}

static mu_status mirrored_update(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    MU_TRY(mu__need_own_replica(variable));
    if (mu__updating() || (in_replica() && owner_of(variable)->n_replicas == 1) || mu__is_whole_by_default(variable))
        return mu__variable_update(variable, kind, value);
    const mu_strategy_replica *replica = mu__replica();
    if (replica && replica->eager && variable->aggregation != MU_AGGREGATION_NONE)
        return eager_update(variable, kind, value);
    if (!in_replica()) {
        MU_TRY(mu__need_cross_replica(owner_of(variable), mu__update_function(kind)));
        return update_components(variable, kind, value);
    }
    mu_tensor *agreed = aggregate(variable, kind, value);
    return agreed ? mu__variable_update(variable, kind, agreed) : mu_error_code();
}

// ---- One copy for all replicas ------------------------------------------------------------------

static mu_status central_update(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    MU_TRY(mu__need_own_replica(variable));
    if (in_replica() && variable->aggregation == MU_AGGREGATION_NONE && !mu__is_whole_by_default(variable))
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s' of %s has aggregation NONE and is assigned on its %d replicas, which share it; "
                         "choose SUM, MEAN or ONLY_FIRST_REPLICA, or assign outside of the function",
                         variable->resource.name, mu_strategy_name(owner_of(variable)), owner_of(variable)->n_replicas);
    return mirrored_update(variable, kind, value);
}

const mu_variable_rules mu__mirrored_rules = {
    .read = mirrored_read, .update = mirrored_update, .scatter = mu__mirrored_scatter};
const mu_variable_rules mu__central_rules = {
    .read = mirrored_read, .update = central_update, .scatter = mu__central_scatter};

// ---- ON_READ ------------------------------------------------------------------------------------

mu_tensor *mu__variable_component(mu_variable *variable, int i)
{
    mu_context *context = mu__context();
    int before = context->component;
    context->component = i;
    mu_tensor *value = mu__variable_read(variable);
    context->component = before;
    return value;
}

static void refuse_read(const mu_variable *variable)
{
    mu__error(MU_INVALID_ARGUMENT,
              "variable '%s' is ON_READ with aggregation NONE, so replicas have no value in common; choose SUM, MEAN "
              "or ONLY_FIRST_REPLICA",
              variable->resource.name);
}

mu_tensor *mu__read_components(mu_variable *variable)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    if (variable->aggregation == MU_AGGREGATION_ONLY_FIRST_REPLICA)
        return mu__variable_component(variable, 0); // this worker's first one, without communication
    if (variable->aggregation == MU_AGGREGATION_NONE) {
        refuse_read(variable);
        return NULL;
    }
    for (int i = 0; i < variable->n_components; i++)
        if (!(parts[i] = mu__variable_component(variable, i)))
            return NULL;
    return reduce_replicas(variable, "read of", variable->n_components, parts);
}

mu_tensor *mu__first_copy(const mu_variable *variable, mu_tensor *own)
{
    char what[MU_ATTR_TEXT_BYTES];
    const mu_strategy *owner = owner_of(variable);
    mu_tensor *copies[MU_MAX_REPLICAS];
    mu__access_text("read of", variable, what);
    if (owner->n_local == owner->n_replicas)
        return mu__broadcast_from_first(own, what);
    mu_tensor *row = mu_expand_dims(own, 0), *all = row ? mu__all_gather_named(row, 0, what) : NULL;
    return all && mu_unstack(all, owner->n_replicas, 0, copies) == MU_OK ? copies[owner->first_replica] : NULL;
}

// In a sync-on-read context, replicas read the value that is seen outside of them.
static mu_tensor *read_in_sync(mu_variable *variable)
{
    char what[MU_ATTR_TEXT_BYTES];
    mu_tensor *own = mu__variable_read(variable);
    if (!own)
        return NULL;
    mu__access_text("read of", variable, what);
    switch (variable->aggregation) {
    case MU_AGGREGATION_SUM: return all_reduce_named(what, MU_REDUCTION_SUM, own);
    case MU_AGGREGATION_MEAN: return all_reduce_named(what, MU_REDUCTION_MEAN, own);
    case MU_AGGREGATION_ONLY_FIRST_REPLICA: return mu__first_copy(variable, own);
    case MU_AGGREGATION_NONE: break;
    }
    refuse_read(variable);
    return NULL;
}

static mu_tensor *on_read_read(mu_variable *variable)
{
    const mu_strategy_replica *replica = mu__replica();
    if (need_own_read(variable, replica) != MU_OK)
        return NULL;
    if (replica && replica->sync_on_read)
        return read_in_sync(variable);
    if (replica || mu__updating())
        return mu__variable_read(variable);
    if (mu__need_cross_replica(owner_of(variable), "mu_variable_read") != MU_OK)
        return NULL;
    return mu__cross_replica(owner_of(variable))->read_variable(variable);
}

static mu_status on_read_update(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    MU_TRY(mu__need_own_replica(variable));
    if (in_replica() || mu__updating())
        return mu__variable_update(variable, kind, value);
    MU_TRY(mu__need_cross_replica(owner_of(variable), mu__update_function(kind)));
    if (variable->aggregation != MU_AGGREGATION_SUM)
        return update_components(variable, kind, value);
    if (kind != MU_UPDATE_ASSIGN)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s' is ON_READ with aggregation SUM: outside of replicas it can be assigned, but "
                         "not added to; add inside the function",
                         variable->resource.name);
    mu_tensor *share = mu__divide_by_count(value, owner_of(variable)->n_replicas);
    return share ? update_components(variable, kind, share) : mu_error_code();
}

// Not allowed, as in TensorFlow: components would be integers, but their mean a fraction.
static mu_status refuse_integer_mean_on_read(const mu_variable_args *args)
{
    const mu_dtype dtype = args->initial_value->dtype;
    if (args->synchronization != MU_SYNCHRONIZATION_ON_READ || args->aggregation != MU_AGGREGATION_MEAN ||
        mu__dtype_is_float(dtype))
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT,
        "variable '%s' is ON_READ with aggregation MEAN and type %s, but the mean of what its replicas hold may be a "
        "fraction, which that type cannot hold; make it a float, or choose SUM or ONLY_FIRST_REPLICA",
        args->name ? args->name : "Variable", mu_dtype_name(dtype));
}

const mu_variable_rules mu__on_read_rules = {
    .read = on_read_read, .update = on_read_update, .scatter = mu__on_read_scatter};

// ---- Making them --------------------------------------------------------------------------------

// Replicas run at the same time, so a variable that they write needs a component for each.
bool mu__has_local_copies(const mu_strategy *strategy, const mu_variable *variable)
{
    return variable->n_components == strategy->n_local;
}

bool mu__has_other_copies(const mu_strategy *strategy, const mu_variable *variable)
{
    const mu_strategy *owner = variable->owner;
    return owner && owner != strategy && owner->n_replicas > 1 && variable->rules && !variable->resource.shared &&
           (variable->rules == owner->ops->on_write || variable->rules == owner->ops->on_read);
}

mu_status mu__need_own_copies(const mu_variable *variable, const char *function)
{
    const mu_strategy *here = mu__replica() ? mu__replica()->strategy : NULL;
    if (!mu__has_other_copies(here, variable) || mu__updating() || mu__traced_replica() ||
        (here && here->n_replicas > 1 && here->ops->has_copies(here, variable)))
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "%s updates variable '%s' outside of the %d replicas of %s, which would change the copy of one "
                     "alone; call it in a function that mu_run runs under this strategy",
                     function, variable->resource.name, owner_of(variable)->n_replicas,
                     mu_strategy_name(owner_of(variable)));
}

// Another strategy's copies are not kept equal between workers.
bool mu__has_own_copies(const mu_strategy *strategy, const mu_variable *variable)
{
    return mu__has_local_copies(strategy, variable) && variable->owner == strategy;
}

mu_variable *mu__make_plain_variable(mu_strategy *strategy, const mu_variable_args *args)
{
    mu_variable *plain = mu__variable_make(args, args->initial_value, 1);
    if (plain)
        plain->owner = mu_retain(strategy);
    return plain;
}

mu_variable *mu__make_central_variable(mu_strategy *strategy, const mu_variable_args *args)
{
    mu_variable *central = mu__make_plain_variable(strategy, args);
    if (central && strategy->n_replicas > 1) {
        central->rules = strategy->ops->on_write;
        central->resource.shared = true;
    }
    return central;
}

mu_variable *mu__make_mirrored_variable(mu_strategy *strategy, const mu_variable_args *given)
{
    mu_variable_args args = *given;
    const char *name = args.name ? args.name : "Variable";
    if (args.synchronization == MU_SYNCHRONIZATION_NONE) {
        mu__error(MU_INVALID_ARGUMENT,
                  "variable '%s': %s has no variables with synchronization NONE; use AUTO, ON_WRITE or ON_READ", name,
                  mu_strategy_name(strategy));
        return NULL;
    }
    if (refuse_integer_mean_on_read(&args) != MU_OK)
        return NULL;
    if (args.synchronization == MU_SYNCHRONIZATION_AUTO)
        args.synchronization = MU_SYNCHRONIZATION_ON_WRITE;
    args.initial_value = strategy->ops->cross_worker->broadcast_tensor(strategy, name, args.initial_value);
    mu_variable *variable = mu__pending() ? NULL : mu__variable_make(&args, args.initial_value, strategy->n_local);
    if (!variable)
        return NULL;
    variable->owner = mu_retain(strategy);
    variable->rules =
        args.synchronization == MU_SYNCHRONIZATION_ON_READ ? strategy->ops->on_read : strategy->ops->on_write;
    return variable;
}

static mu_variable *make_variable(const mu_strategy_scope *scope, const mu_variable_args *args)
{
    if (args->per_worker_variable)
        return mu__make_per_worker_variable(scope->strategy, args);
    if (!scope->mixed)
        return scope->strategy->ops->make_variable(scope->strategy, args);
    mu__error(MU_FAILED_PRECONDITION,
              "variable '%s' is made in a scope of %s that was opened inside one of the default strategy; strategies "
              "may not be mixed",
              args->name ? args->name : "Variable", mu_strategy_name(scope->strategy));
    return NULL;
}

mu_accumulator *mu__make_distributed_accumulator(struct mu_scope *head, const mu_conditional_accumulator_args *args,
                                                 bool sparse)
{
    mu_strategy *strategy = ((const mu_strategy_scope *)head)->strategy;
    return strategy->ops->make_accumulator ? strategy->ops->make_accumulator(strategy, args, sparse) : NULL;
}

// On eager replicas, the first replica makes the variable and the others get the same one.
mu_variable *mu__make_distributed_variable(struct mu_scope *head, const mu_variable_args *args)
{
    const mu_strategy_scope *scope = (const mu_strategy_scope *)head;
    const mu_strategy_replica *replica = mu__replica();
    if (!replica || !replica->eager)
        return make_variable(scope, args);
    if (replica->local > 0)
        return mu__eager_variable(args->name ? args->name : "Variable");
    mu_variable *variable = make_variable(scope, args);
    if (!variable || mu__eager_made(variable) == MU_OK)
        return variable;
    mu_release(variable);
    return NULL;
}
