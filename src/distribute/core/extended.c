// A strategy's other operations outside of replicas: values made for each replica, reductions to chosen devices,
// broadcasts, updates of each copy of a variable.
//
// All local devices share one memory, so a destination only determines the number of copies.
#include "base/callback.h"
#include "distribute/distribute.h"

#include <stdarg.h>

static const mu_enum_name reduce_ops[] = {{MU_SUM, "SUM"}, {MU_MEAN, "MEAN"}, {0, NULL}};

const char *mu_reduce_op_name(mu_reduce_op op) { return mu__enum_name(reduce_ops, (int)op, "UNRECOGNIZED"); }

int mu_reduce_op_from_name(const char *name) { return mu__enum_number(reduce_ops, name, -1, "mu_reduce_op_from_name"); }

// ---- What a strategy and its variables are ------------------------------------------------------

static mu_status need_devices(const mu_strategy *strategy)
{
    if (!strategy || strategy == mu_default_strategy())
        return mu__error(MU_FAILED_PRECONDITION, "the default strategy has no devices of its own; make a strategy");
    return MU_OK;
}

int mu_strategy_device_count(const mu_strategy *strategy)
{
    return need_devices(strategy) == MU_OK ? strategy->n_local : -1;
}

const char *mu_strategy_device(const mu_strategy *strategy, int i)
{
    if (need_devices(strategy) != MU_OK)
        return NULL;
    if (i >= 0 && i < strategy->n_local)
        return strategy->ops->device_name ? strategy->ops->device_name(strategy, i) : strategy->devices[i]->name;
    mu__error(MU_OUT_OF_RANGE, "mu_strategy_device: device %d of %d", i, strategy->n_local);
    return NULL;
}

int mu_strategy_parameter_device_count(const mu_strategy *strategy)
{
    return strategy && strategy->parameter_device ? 1 : mu_strategy_device_count(strategy);
}

const char *mu_strategy_parameter_device(const mu_strategy *strategy, int i)
{
    if (!strategy || !strategy->parameter_device)
        return mu_strategy_device(strategy, i);
    if (i == 0)
        return strategy->parameter_device->name;
    mu__error(MU_OUT_OF_RANGE, "mu_strategy_parameter_device: device %d; the strategy has one, number 0", i);
    return NULL;
}

bool mu_strategy_between_graph(const mu_strategy *strategy) { return strategy && strategy->ops->between_graph; }

bool mu_strategy_should_init(const mu_strategy *strategy)
{
    (void)strategy;
    return true;
}

bool mu_strategy_require_static_shapes(const mu_strategy *strategy) { return strategy && strategy->ops->static_shapes; }

bool mu_strategy_should_save_summary(const mu_strategy *strategy) { return mu_strategy_should_checkpoint(strategy); }

bool mu_variable_created_in_scope(const mu_strategy *strategy, const mu_variable *variable)
{
    const bool real = strategy && strategy != mu_default_strategy();
    return variable && mu_variable_strategy(variable) == (real ? strategy : NULL);
}

mu_strategy *mu_variable_strategy(const mu_variable *variable) { return variable ? variable->owner : NULL; }

int mu_variable_component_count(const mu_variable *variable) { return variable ? variable->n_components : -1; }

int mu_variable_component_name(const mu_variable *variable, int component, char *name, size_t bytes)
{
    if (!variable || component < 0 || component >= variable->n_components)
        return -1;
    bytes = name ? bytes : 0;
    if (component == 0)
        return snprintf(name, bytes, "%s", variable->resource.name);
    return snprintf(name, bytes, "%s/replica_%d", variable->resource.name, component);
}

static mu_status need_component(const char *function, const mu_value *value, int r)
{
    if (!mu__is_distributed(value))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: the component of replica %d is itself per replica or mirrored; give one of its components "
                     "(mu_local_results)",
                     function, r);
}

// Calls fn for each local replica.
static mu_status make_values(mu_strategy *strategy, mu_value_fn *fn, void *arg, mu_value **values)
{
    for (int r = 0; r < strategy->n_local; r++) {
        const mu_value_context context = {.replica_id = strategy->first_replica + r,
                                          .num_replicas = strategy->n_replicas};
        MU_CALLBACK("a function of mu_distribute_values", values[r] = fn(&context, arg));
        if (!values[r] && !mu__pending())
            mu__error(MU_INVALID_ARGUMENT, "mu_distribute_values: the function returned NULL for replica %d", r);
        if (mu__pending() || need_component("mu_distribute_values", values[r], r) != MU_OK)
            return mu_error_code();
    }
    return MU_OK;
}

mu_value *mu__distribute_plain(mu_strategy *strategy, mu_value_fn *fn, void *arg)
{
    mu_value *value;
    return make_values(strategy, fn, arg, &value) == MU_OK ? value : NULL;
}

mu_value *mu__distribute_each(mu_strategy *strategy, mu_value_fn *fn, void *arg)
{
    mu_value *values[MU_MAX_REPLICAS];
    if (make_values(strategy, fn, arg, values) != MU_OK)
        return NULL;
    return mu__give(mu__regroup_as(MU_VALUE_PER_REPLICA, true, strategy->n_local, values));
}

mu_value *mu_distribute_values(mu_strategy *given, mu_value *(*fn)(const mu_value_context *context, void *arg),
                               void *arg)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || mu__need_cross_replica(strategy, "mu_distribute_values") != MU_OK)
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_distribute_values: the function is NULL");
        return NULL;
    }
    return mu__cross_replica(strategy)->distribute_values(strategy, fn, arg);
}

typedef struct components {
    int first_replica;
    mu_value **items;
} components;

static mu_value *component_of(const mu_value_context *context, void *arg)
{
    const components *all = arg;
    return all->items[context->replica_id - all->first_replica];
}

mu_value *mu_per_replica_of(mu_strategy *given, int n, mu_value *const *items)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || !strategy)
        return NULL;
    if (mu__need_cross_replica(strategy, "mu_per_replica") != MU_OK)
        return NULL;
    if (n != strategy->n_local) {
        mu__error(MU_INVALID_ARGUMENT, "mu_per_replica: %d components for %d local replicas of %s; give one for each",
                  n, strategy->n_local, mu_strategy_name(strategy));
        return NULL;
    }
    const mu_value *values = mu_list_of(n, items);
    for (int r = 0; r < n; r++)
        if (!values || need_component("mu_per_replica", values->items[r], r) != MU_OK)
            return NULL;
    components all = {.first_replica = strategy->first_replica, .items = values->items};
    return mu_distribute_values(strategy, component_of, &all);
}

mu_value *mu_per_replica(mu_strategy *strategy, ...)
{
    mu_value *items[MU_MAX_REPLICAS];
    int n = 0;
    va_list rest;
    va_start(rest, strategy);
    for (void *item = va_arg(rest, void *); item != MU_END && n < MU_MAX_REPLICAS; item = va_arg(rest, void *))
        items[n++] = item;
    va_end(rest);
    return mu_per_replica_of(strategy, n, items);
}

// ---- Destinations -------------------------------------------------------------------------------

static int copies_like(const mu_value *like)
{
    if (like->kind == MU_VALUE_VARIABLE)
        return ((const mu_variable *)like->leaf)->n_components;
    return like->kind == MU_VALUE_PER_REPLICA || like->kind == MU_VALUE_MIRRORED ? like->n : 1;
}

// The number of copies that a destination means; -1 on error.
static int copies_wanted(const mu_value *like, const char *const *devices, const char *function)
{
    int n = 0;
    if (mu__need_value(like, function) != MU_OK)
        return -1;
    if (like && (like->kind == MU_VALUE_LIST || like->kind == MU_VALUE_MAP)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the destination is a container; give one variable or value", function);
        return -1;
    }
    if (!devices)
        return like ? copies_like(like) : 1;
    for (; !mu__texts_end(devices[n]); n++)
        if (!mu__device_by_name(mu__runtime(), devices[n]))
            return -1;
    if (n == 0 || n > MU_MAX_REPLICAS)
        mu__error(MU_INVALID_ARGUMENT, "%s: %d devices are named; expected 1 to %d", function, n, MU_MAX_REPLICAS);
    return n > 0 && n <= MU_MAX_REPLICAS ? n : -1;
}

mu_value *mu_reduce_to_with(const mu_reduce_to_args *given)
{
    mu_reduce_to_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_reduce_to") != MU_OK)
        return NULL;
    const int copies = copies_wanted(args.like, args.devices, "mu_reduce_to");
    return copies < 0 ? NULL : mu__mirror(mu__reduce_value(args.strategy, "mu_reduce_to", args.op, args.value), copies);
}

static const char batch_name[] = "mu_batch_reduce_to";

// Reduces one at a time the values that have no result yet.
mu_status mu__batch_reduce_each(mu_strategy *strategy, mu_reduce_op op, const mu_value *values, mu_value **out)
{
    for (int i = 0; i < values->n; i++)
        if (!out[i] && !(out[i] = mu__reduce_value(strategy, batch_name, op, values->items[i])))
            return mu_error_code();
    return MU_OK;
}

static bool packable(const mu_strategy *strategy, const mu_value *value)
{
    return strategy->n_replicas > 1 && value->kind == MU_VALUE_PER_REPLICA && value->n == strategy->n_local &&
           value->items[0]->kind == MU_VALUE_TENSOR;
}

// Dense per-replica tensors are reduced together, so that they can be packed; other values one at a time.
mu_status mu__batch_reduce_local(mu_strategy *strategy, mu_reduce_op op, const mu_value *values, mu_value **out)
{
    const int n = strategy->n_local;
    int count = 0;
    mu_tensor **parts = mu__calloc((size_t)values->n * (size_t)(n + 1) + 1, sizeof *parts),
              **reduced = parts + values->n * n;
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = MU_OK;
    for (int i = 0; i < values->n && status == MU_OK; i++) {
        if (!packable(strategy, values->items[i]))
            continue;
        for (int r = 0; r < n && status == MU_OK; r++)
            if (!(parts[count + r] = mu_value_tensor(values->items[i]->items[r])))
                status = mu_error_code();
        if (status == MU_OK)
            status = mu__same_parts(&(mu_parts_name){batch_name, "replica", i + 1}, n, parts + count);
        count += n;
    }
    if (status == MU_OK)
        status = mu__cross_device_batch(strategy->cross_device, op, count / n, n, parts, reduced);
    for (int i = 0, k = 0; i < values->n && status == MU_OK; i++)
        if (packable(strategy, values->items[i]))
            status = (out[i] = mu_of(reduced[k++])) ? MU_OK : mu_error_code();
    mu__free(parts);
    return status == MU_OK ? mu__batch_reduce_each(strategy, op, values, out) : status;
}

// Checks a list of values and, unless NULL, of as many destinations; without those the values name them.
static mu_status need_lists(const mu_value *values, const mu_value *likes)
{
    if (!values || values->kind != MU_VALUE_LIST)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the values are %s; give a list (mu_list), also of one", batch_name,
                         values ? "no list" : "NULL");
    if (likes && (likes->kind != MU_VALUE_LIST || likes->n != values->n))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: %d destinations for %d values; give a list of as many destinations, or NULL for the "
                         "values' own devices",
                         batch_name, likes->kind == MU_VALUE_LIST ? likes->n : 1, values->n);
    for (int i = 0; i < values->n; i++) {
        const mu_value_kind kind = values->items[i]->kind;
        if (!likes && (kind == MU_VALUE_LIST || kind == MU_VALUE_MAP))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: value %d is a list or map, which has no devices of its own; give a list of "
                             "destinations, or its elements as values of their own",
                             batch_name, i);
        if (likes && copies_wanted(likes->items[i], NULL, batch_name) < 0)
            return mu_error_code();
    }
    return MU_OK;
}

mu_value *mu_batch_reduce_to(mu_strategy *given, mu_reduce_op op, mu_value *values, mu_value *likes)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || mu__need_cross_replica(strategy, batch_name) != MU_OK ||
        mu__need_value(values, batch_name) != MU_OK || mu__need_value(likes, batch_name) != MU_OK ||
        mu__need_reduce_op(op, batch_name) != MU_OK)
        return NULL;
    if (need_lists(values, likes) != MU_OK)
        return NULL;
    const mu_value *to = likes ? likes : values;
    mu_value **items = mu__calloc((size_t)values->n + 1, sizeof *items), *list = NULL;
    bool whole = items && mu__cross_replica(strategy)->batch_reduce_to(strategy, op, values, items) == MU_OK;
    for (int i = 0; whole && i < values->n; i++)
        whole = (items[i] = mu__mirror(items[i], copies_like(to->items[i]))) != NULL;
    if (whole)
        list = mu__give(mu__value_container(MU_VALUE_LIST, values->n, items, NULL));
    mu__free(items);
    return list;
}

mu_value *mu__broadcast_plain(mu_value *value, int copies)
{
    (void)copies;
    return mu__give(mu__select_mirrored(value, 0));
}

mu_value *mu__broadcast_copies(mu_value *value, int copies)
{
    return mu__mirror(mu__give(mu__select_mirrored(value, 0)), copies);
}

// What is copied of a part: of a variable the value that it has now.
static mu_value *broadcast_part(const mu_value *part, const void *arg)
{
    const mu_value *one = part->kind == MU_VALUE_MIRRORED ? part->items[0] : part;
    if (part->kind == MU_VALUE_PER_REPLICA)
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: the value is per replica, with %d components that may differ, and one is to be on all devices; "
                  "reduce it first (mu_reduce), or give one of its components (mu_local_results)",
                  (const char *)arg, part->n);
    if (one->kind != MU_VALUE_VARIABLE)
        return mu__pending() ? NULL : (mu_value *)part;
    mu_tensor *now = mu_variable_read((mu_variable *)one->leaf);
    return now ? mu_of(now) : NULL;
}

mu_value *mu_broadcast_to_devices_with(const mu_broadcast_to_devices_args *given)
{
    static const char name[] = "mu_broadcast_to_devices";
    mu_broadcast_to_devices_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK)
        return NULL;
    mu_strategy *strategy = mu__strategy_or_default(args.strategy);
    if (mu__need_cross_replica(strategy, name) != MU_OK || mu__need_value(args.value, name) != MU_OK)
        return NULL;
    if (!args.value || (!args.like && !args.devices)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", name, args.value ? "destination" : "value");
        return NULL;
    }
    if (strategy == mu_default_strategy()) {
        mu__error(MU_UNIMPLEMENTED, "%s: the default strategy has no devices to copy to", name);
        return NULL;
    }
    const int copies = copies_wanted(args.like, args.devices, name);
    mu_value *value = copies > 0 ? mu__map_parts(args.value, false, broadcast_part, name) : NULL;
    return value ? mu__cross_replica(strategy)->broadcast_to(value, copies) : NULL;
}

// ---- Updates ------------------------------------------------------------------------------------

mu_value *mu__update_copy(const mu_updating *u, int i, mu_value *arguments)
{
    mu_strategy_scope scope = {.strategy = u->strategy, .updating = true, .merging = mu__traced_replica()};
    if (!arguments)
        return NULL;
    mu_saved_context before = mu__enter_cross_replica(&scope);
    mu__context()->component = i;
    mu_value *result;
    MU_CALLBACK("an update function", result = u->variable ? u->with_variable(u->variable, arguments, u->arg)
                                                           : u->without(arguments, u->arg));
    mu__leave_replica(before);
    if (mu__pending())
        return NULL;
    return result ? result : mu__give(mu__value_container(MU_VALUE_LIST, 0, NULL, NULL));
}

static mu_value *group_results(const mu_updating *u, int n, mu_value *const *results)
{
    if (u->local_results)
        return mu__give(mu__value_container(MU_VALUE_LIST, n, results, NULL));
    return n == 1 ? results[0] : mu__give(mu__regroup_as(MU_VALUE_MIRRORED, false, n, results));
}

// Calls the function on each copy, with the replica's own arguments.
mu_value *mu__update_copies(const mu_updating *u)
{
    const int n = u->variable ? u->variable->n_components : u->strategy->n_local;
    mu_value *results[MU_MAX_REPLICAS];
    if (mu__need_components(u->strategy, u->arguments, u->function) != MU_OK)
        return NULL;
    for (int i = 0; i < n; i++)
        if (!(results[i] = mu__update_copy(u, i, mu__give(mu__select(u->arguments, i)))))
            return NULL;
    return group_results(u, n, results);
}

// There is one copy, which gets the arguments as they are.
mu_value *mu__update_plain(const mu_updating *u)
{
    mu_value *result = mu__update_copy(u, 0, u->arguments);
    return result ? group_results(u, 1, &result) : NULL;
}

mu_value *mu__update_central(const mu_updating *u) { return u->variable ? mu__update_copies(u) : mu__update_plain(u); }

static mu_value *update_merged(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy;
    mu_updating here = *(const mu_updating *)arg;
    here.arguments = arguments;
    return mu__cross_replica(here.strategy)->update_variable(&here);
}

static mu_value *update(mu_updating *u)
{
    if (mu__need_value(u->arguments, u->function) != MU_OK)
        return NULL;
    if (!u->arguments && !(u->arguments = mu__give(mu__value_container(MU_VALUE_LIST, 0, NULL, NULL))))
        return NULL;
    const mu_strategy_replica *replica = mu__replica();
    if (replica && replica->strategy == u->strategy && u->variable)
        return mu_merge_call(update_merged, u, u->arguments);
    if (mu__need_cross_replica(u->strategy, u->function) != MU_OK)
        return NULL;
    return mu__cross_replica(u->strategy)->update_variable(u);
}

mu_value *mu_update_variable_with(const mu_update_variable_args *given)
{
    mu_update_variable_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_update_variable") != MU_OK)
        return NULL;
    if (!args.variable || !args.fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_update_variable: the %s is NULL", args.fn ? "variable" : "function");
        return NULL;
    }
    mu_strategy *strategy = mu__strategy_or_default(args.strategy);
    if (args.variable->owner != strategy && !(strategy == mu_default_strategy() && !args.variable->owner)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_update_variable: variable '%s' was not made under this %s",
                  args.variable->resource.name, mu_strategy_name(strategy));
        return NULL;
    }
    mu_updating u = {.strategy = strategy,
                     .function = "mu_update_variable",
                     .variable = args.variable,
                     .with_variable = args.fn,
                     .arg = args.arg,
                     .arguments = args.arguments,
                     .local_results = args.local_results};
    return update(&u);
}

mu_value *mu_update_non_slot(mu_strategy *strategy, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                             mu_value *arguments)
{
    if (mu__pending())
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_update_non_slot: the function is NULL");
        return NULL;
    }
    mu_updating u = {.strategy = mu__strategy_or_default(strategy),
                     .function = "mu_update_non_slot",
                     .without = fn,
                     .arg = arg,
                     .arguments = arguments};
    return update(&u);
}
