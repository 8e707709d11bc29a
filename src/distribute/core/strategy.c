// Strategies and the contexts they open: default, cross-replica (in a scope), replica (inside run).
//
// A thread is in exactly one context: in a replica (of the default strategy if no scope is open), or in the
// cross-replica context of the innermost scope's strategy. Calls in a wrong context fail with FAILED_PRECONDITION.
#include "distribute/servers/aggregation.h"
#include "distribute/distribute.h"
#include "distribute/run/eager_device.h"
#include "distribute/core/job.h"
#include "distribute/strategies/parameter_server.h"

static void strategy_destroy(void *object)
{
    mu_strategy *strategy = object;
    mu_release(strategy->agreements);
    mu_release(strategy->workers);
    mu_release(strategy->group);
    if (strategy->job)
        mu__job_leave(strategy->job);
    mu_release(strategy->job);
    mu_release(strategy->cluster);
    mu_release(strategy->assignment);
    mu__free(strategy->cores);
    mu_release(strategy->cross_device);
    mu__free(strategy->devices);
    mu__free(strategy->compiled_devices);
    mu__free(strategy->world_ids);
    mu__servers_free(strategy->servers);
    pthread_mutex_destroy(&strategy->order);
}

mu_type mu__strategy_type = {.name = "strategy", .destroy = strategy_destroy};

mu_strategy *mu__strategy_new(const mu_strategy_ops *ops, int n_devices, mu_device *const *devices)
{
    mu_strategy *strategy = mu__new(&mu__strategy_type, sizeof *strategy);
    if (!strategy)
        return NULL;
    pthread_mutex_init(&strategy->order, NULL);
    strategy->ops = ops;
    strategy->runtime = mu__runtime();
    strategy->n_replicas = strategy->n_local = n_devices;
    strategy->bytes_per_pack = MU_BUCKET_MOST;
    strategy->progress_agreed = true;
    strategy->n_workers = 1;
    strategy->devices = mu__alloc(sizeof *devices * (size_t)n_devices);
    if (n_devices > 1)
        strategy->group = mu__group_new(n_devices, "replicas");
    if (!strategy->devices || (n_devices > 1 && !strategy->group)) {
        mu_release(strategy);
        return NULL;
    }
    memcpy(strategy->devices, devices, sizeof *devices * (size_t)n_devices);
    return strategy;
}

// ---- Constructors -------------------------------------------------------------------------------

static void *create_default(mu_runtime *runtime)
{
    mu_device *device = mu__device_at(runtime, 0);
    return device ? mu__strategy_new(&mu__default_ops, 1, &device) : NULL;
}

mu_strategy *mu_default_strategy(void)
{
    return mu__runtime_slot(mu__runtime(), MU_SLOT_DISTRIBUTE, create_default, mu_release);
}

mu_strategy *mu__strategy_or_default(mu_strategy *strategy) { return strategy ? strategy : mu_default_strategy(); }

mu_strategy *mu_one_device_strategy(const char *device)
{
    if (mu__pending())
        return NULL;
    mu_device *found = mu__device_by_name(mu__runtime(), device ? device : "CPU:0");
    return found ? mu__give(mu__strategy_announce(mu__strategy_new(&mu__one_device_ops, 1, &found))) : NULL;
}

// Rejects names of other processes' devices for strategies of one process.
static mu_status refuse_remote(const char *const *names, const char *function)
{
    int remote = 0, n = 0;
    for (; !mu__texts_end(names[n]); n++)
        remote += strncmp(names[n], "/job:", 5) == 0 && strncmp(names[n], "/job:localhost/", 15) != 0;
    if (remote == 0)
        return MU_OK;
    return mu__error(remote == n ? MU_FAILED_PRECONDITION : MU_INVALID_ARGUMENT,
                     "%s: %d of the %d devices are of other processes; each process has its own, and "
                     "mu_multi_worker_mirrored_strategy brings them together",
                     function, remote, n);
}

// Replicas share one graph, which each engine lowers in its own way, and a plugin's programs run on its devices alone.
static mu_status check_kind(const char *function, const mu_device *first, const mu_device *device)
{
    if (device->engine == first->engine && device->engine_client == first->engine_client)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: '%s' and '%s' are devices of two kinds, which cannot share a step; name CPU devices alone, "
                     "or devices of one plugin alone",
                     function, first->name, device->name);
}

int mu__named_devices(const char *function, const char *const *names, mu_device *devices[MU_MAX_REPLICAS])
{
    int n = 0;
    if (refuse_remote(names, function) != MU_OK)
        return -1;
    for (; !mu__texts_end(names[n]); n++) {
        if (n == MU_MAX_REPLICAS) {
            mu__error(MU_INVALID_ARGUMENT, "%s: more than %d devices are named, which is the limit of a process",
                      function, MU_MAX_REPLICAS);
            return -1;
        }
        if (!(devices[n] = mu__device_by_name(mu__runtime(), names[n])) ||
            check_kind(function, devices[0], devices[n]) != MU_OK)
            return -1;
        for (int i = 0; i < n; i++)
            if (devices[i] == devices[n]) {
                mu__error(MU_INVALID_ARGUMENT, "%s: device '%s' is named twice", function, names[n]);
                return -1;
            }
    }
    if (n == 0)
        mu__error(MU_INVALID_ARGUMENT, "%s: the list of devices is empty; leave it out for the default", function);
    return n > 0 ? n : -1;
}

int mu__first_devices(const char *function, int replicas, mu_device *first, int available,
                      mu_device *devices[MU_MAX_REPLICAS])
{
    const int most = MU_MIN(available, MU_MAX_REPLICAS), n = replicas == 0 ? most : replicas;
    if (n < 1 || n > most) {
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: %d replicas are requested, but there are %d devices (%s and on); choose 1 to %d, name devices, "
                  "or make more CPU devices with mu_init(.cpu_devices = n) or MUSTER_CPU_DEVICES=n",
                  function, replicas, available, first->name, most);
        return -1;
    }
    for (int i = 0; i < n; i++)
        devices[i] = &first[i];
    return n;
}

mu_strategy *mu_mirrored_strategy_with(const mu_mirrored_strategy_args *given)
{
    static const char name[] = "mu_mirrored_strategy";
    mu_mirrored_strategy_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK ||
        mu__args_positive(&args, "replicas", args.replicas, name) != MU_OK)
        return NULL;
    mu_device *devices[MU_MAX_REPLICAS], *first = NULL;
    const int available = args.devices ? 0 : mu__device_defaults(mu__runtime(), &first);
    const int n = args.devices    ? mu__named_devices(name, args.devices, devices)
                  : available > 0 ? mu__first_devices(name, args.replicas, first, available, devices)
                                  : -1;
    mu_strategy *strategy = n > 0 ? mu__strategy_new(&mu__mirrored_ops, n, devices) : NULL;
    if (strategy)
        strategy->cross_device = mu_retain(args.cross_device_ops);
    return mu__give(mu__strategy_announce(strategy));
}

int mu_num_replicas_in_sync(const mu_strategy *strategy)
{
    const mu_aggregation *aggregation = strategy && strategy->servers ? strategy->servers->aggregation : NULL;
    return aggregation ? aggregation->n : strategy ? strategy->n_replicas : 1;
}

const char *mu_strategy_name(const mu_strategy *strategy)
{
    return strategy ? strategy->ops->name : mu__default_ops.name;
}

// ---- Scopes -------------------------------------------------------------------------------------

typedef struct scope_object {
    mu_object object;
    mu_strategy_scope head;
    bool open;
    bool counted; // in the context's default_scopes
} scope_object;

static void unlink_scope(scope_object *scope)
{
    for (struct mu_scope **at = &mu__context()->scope; *at; at = &(*at)->outer)
        if (*at == &scope->head.scope) {
            *at = scope->head.scope.outer;
            break;
        }
    scope->open = false;
}

static void forget_default(scope_object *scope)
{
    if (scope->counted)
        mu__context()->default_scopes--;
    scope->counted = false;
}

static void scope_destroy(void *object)
{
    scope_object *scope = object;
    const bool left = scope->open && !scope->head.set;
    forget_default(scope);
    if (scope->open)
        unlink_scope(scope);
    if (left) {
        mu__error(MU_FAILED_PRECONDITION,
                  "a scope of %s was left open (by return, goto or break?); MU_SCOPE's body must run to its end",
                  mu_strategy_name(scope->head.strategy));
    }
    mu_release(scope->head.strategy);
}

static mu_type scope_type = {.name = "scope", .destroy = scope_destroy};

mu_strategy *mu__current_strategy(void)
{
    const mu_context *context = mu__context();
    if (context->replica)
        return ((mu_strategy_replica *)context->replica)->strategy;
    return context->scope ? ((mu_strategy_scope *)context->scope)->strategy : NULL;
}

const mu_device *mu__device_in_force(void)
{
    const mu_context *context = mu__context();
    const mu_strategy_scope *scope = context->replica ? NULL : (const mu_strategy_scope *)context->scope;
    return scope && scope->device ? scope->strategy->devices[0] : NULL;
}

mu_status mu__strategy_usable(const mu_strategy *strategy)
{
    return strategy && strategy->ops->usable ? strategy->ops->usable(strategy) : MU_OK;
}

static mu_status may_enter(const mu_strategy *strategy)
{
    const mu_strategy *current = mu__current_strategy();
    MU_TRY(mu__strategy_usable(strategy));
    if (mu__context()->replica)
        return mu__error(
            MU_FAILED_PRECONDITION,
            "a scope of %s is opened inside a function that runs on replicas; open it outside, or in a merge_call",
            mu_strategy_name(strategy));
    if (current && current != strategy && !mu__device_in_force())
        return mu__error(MU_FAILED_PRECONDITION,
                         "a scope of %s is opened inside a scope of %s%s; strategies may not be mixed",
                         mu_strategy_name(strategy), mu__another(strategy, current), mu_strategy_name(current));
    return MU_OK;
}

// An update of a copy belongs to the copy's device; that of the only copy of central storage, to no replica's.
static mu_eager_apply *apply_in(const mu_strategy_scope *scope)
{
    return mu__eager_apply_of(scope->strategy, scope->updating && !scope->strategy->parameter_device);
}

mu_scope_guard mu_scope_open(mu_strategy *strategy)
{
    mu_scope_guard guard = {.once = true};
    if (mu__pending())
        return guard;
    if (!strategy) {
        mu__error(MU_INVALID_ARGUMENT, "MU_SCOPE: the strategy is NULL");
        return guard;
    }
    if (may_enter(strategy) != MU_OK)
        return guard;
    scope_object *scope = mu__new(&scope_type, sizeof *scope);
    if (!scope)
        return guard;
    mu_context *context = mu__context();
    scope->head.strategy = mu_retain(strategy);
    scope->head.scope = (struct mu_scope){.outer = context->scope,
                                          .make_variable = mu__make_distributed_variable,
                                          .make_accumulator = mu__make_distributed_accumulator};
    scope->head.updating = mu__updating();
    scope->head.scope.apply = apply_in(&scope->head);
    scope->head.merging = mu__traced_replica();
    scope->head.mixed = context->default_scopes > 0;
    if (!mu__give(scope))
        return guard;
    scope->open = strategy != mu_default_strategy();
    scope->counted = !scope->open;
    if (scope->open) // the default strategy's scope changes no context
        context->scope = &scope->head.scope;
    else
        context->default_scopes++;
    guard.scope = scope;
    return guard;
}

mu_scope_guard mu__scope_open_apart(mu_scope_change *change, mu_strategy *strategy)
{
    mu_context *context = mu__context();
    const mu_strategy *current = mu__current_strategy();
    change->before = context->scope;
    if (!context->replica && current && current != strategy)
        context->scope = NULL;
    return mu_scope_open(strategy);
}

void mu__scope_close_apart(const mu_scope_change *change, mu_scope_guard *scope)
{
    mu_scope_close(scope);
    mu__scope_restore(change);
}

// ---- How a scope makes variables ----------------------------------------------------------------

static bool copy_scope(mu_scope_change *change)
{
    mu_context *context = mu__context();
    change->before = context->scope;
    if (!context->scope)
        return false;
    change->scope = *(mu_strategy_scope *)context->scope;
    change->scope.set = false;
    change->scope.scope.outer = context->scope;
    context->scope = &change->scope.scope;
    return true;
}

static void put_beside(mu_strategy_scope *scope, const mu_variable *variable)
{
    scope->colocated = true;
    scope->server = mu__variable_server(variable);
}

void mu__scope_for_parts(mu_scope_change *change)
{
    if (copy_scope(change))
        change->scope.part = true;
}

void mu__scope_beside(mu_scope_change *change, const mu_variable *variable)
{
    if (copy_scope(change))
        put_beside(&change->scope, variable);
}

void mu__scope_restore(const mu_scope_change *change) { mu__context()->scope = change->before; }

mu_scope_guard mu_colocate_open(mu_strategy *strategy, mu_variable *variable)
{
    const mu_scope_guard none = {.once = true};
    if (mu__pending())
        return none;
    // Its scope opens nothing, and its variables are where others are.
    if (strategy == mu_default_strategy() && !mu__current_strategy() && variable && !variable->owner)
        return none;
    const bool on_replica = mu__replica() && strategy; // its variables go on the strategy's devices, as this one did
    if (mu__current_strategy() != strategy || (on_replica && strategy->servers)) {
        mu__error(MU_FAILED_PRECONDITION, "mu_colocate_open: a scope of this %s must be open",
                  mu_strategy_name(strategy));
        return none;
    }
    if (variable && variable->owner == strategy) {
        if (on_replica)
            return none;
        const mu_scope_guard guard = mu_scope_open(strategy);
        if (guard.scope)
            put_beside(&((scope_object *)guard.scope)->head, variable);
        return guard;
    }
    mu__error(MU_INVALID_ARGUMENT,
              "mu_colocate_open: variable '%s' was not made under this %s; others have no devices in common with it",
              variable ? variable->resource.name : "NULL", mu_strategy_name(strategy));
    return none;
}

mu_status mu_set_strategy(mu_strategy *strategy)
{
    return mu__pending() ? mu_error_code() : mu__set_strategy(strategy, "mu_set_strategy");
}

mu_status mu__set_strategy(mu_strategy *strategy, const char *function)
{
    mu_context *context = mu__context();
    mu_strategy_scope *current = (mu_strategy_scope *)context->scope;
    if (context->replica || (current && !current->set))
        return mu__error(MU_FAILED_PRECONDITION,
                         "%s is called inside a scope or a replica of %s; it replaces the strategy where none is open",
                         function, mu_strategy_name(mu__current_strategy()));
    if (current)
        unlink_scope((scope_object *)((char *)current - offsetof(scope_object, head)));
    if (!strategy || strategy == mu_default_strategy())
        return MU_OK;
    mu_scope_guard guard = mu_scope_open(strategy);
    if (guard.scope)
        ((scope_object *)guard.scope)->head.set = true;
    return mu_error_code();
}

void mu_scope_close(mu_scope_guard *guard)
{
    if (!guard)
        return;
    scope_object *scope = guard->scope;
    if (scope)
        forget_default(scope);
    if (scope && scope->open)
        unlink_scope(scope);
    guard->once = false;
}

// ---- Where a thread is --------------------------------------------------------------------------

mu_strategy *mu_get_strategy(void)
{
    mu_strategy *current = mu__current_strategy();
    return current ? current : mu_default_strategy();
}

bool mu_has_strategy(void)
{
    const mu_strategy *current = mu__current_strategy();
    return current && current->ops != &mu__default_ops;
}

bool mu_in_cross_replica_context(void)
{
    const mu_context *context = mu__context();
    return context->scope && !context->replica;
}

const char *mu__another(const mu_strategy *strategy, const mu_strategy *other)
{
    return strcmp(mu_strategy_name(strategy), mu_strategy_name(other)) == 0 ? "another " : "";
}

// What a replica calls instead of a function for all of them.
static const char *call_on_replicas(const char *function)
{
    static const char *const pairs[][2] = {{"mu_reduce", "mu_all_reduce"},
                                           {"mu_reduce_to", "mu_all_reduce"},
                                           {"mu_batch_reduce_to", "mu_all_reduce_value"},
                                           {"mu_strategy_gather", "mu_all_gather"}};
    for (size_t i = 0; i < MU_COUNT(pairs); i++)
        if (strcmp(function, pairs[i][0]) == 0)
            return pairs[i][1];
    return NULL;
}

bool mu__in_call(const mu_strategy *strategy)
{
    const mu_strategy_replica *replica = mu__replica();
    return replica && replica->strategy == strategy && strategy->ops->scheduled && mu__context()->trace;
}

// What else can be done where functions of one replica are traced, and need several.
static mu_status refuse_under_default(const mu_strategy *strategy, const char *function)
{
    return mu__error(MU_FAILED_PRECONDITION,
                     "%s of %s is called in a function that the default strategy traces, where it has no replicas; "
                     "call the function in MU_SCOPE of the strategy, or call its C function itself",
                     function, mu_strategy_name(strategy));
}

mu_status mu__need_no_other(const mu_strategy *strategy, const char *function)
{
    const mu_strategy *current = mu__current_strategy();
    if (!current || current == strategy || mu__device_in_force())
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION, "%s of %s is called under %s%s; strategies may not be mixed", function,
                     mu_strategy_name(strategy), mu__another(strategy, current), mu_strategy_name(current));
}

mu_status mu__need_cross_replica(const mu_strategy *strategy, const char *function)
{
    const mu_strategy *current = mu__current_strategy();
    MU_TRY(mu__strategy_usable(strategy));
    if (current == mu_default_strategy() && current != strategy && mu__context()->trace)
        return refuse_under_default(strategy, function);
    MU_TRY(mu__need_no_other(strategy, function));
    if (!mu__context()->replica)
        return MU_OK;
    if (mu__in_call(strategy))
        return mu__refuse_in_calls(false, function,
                                   "the replicas that it would combine are calls, which do not see each other's "
                                   "values; return the value, and combine what mu_fetch gives");
    const char *instead = call_on_replicas(function);
    return mu__error(MU_FAILED_PRECONDITION,
                     "%s is called inside a function that runs on replicas; call %s%sit outside, or in a merge_call",
                     function, instead ? instead : "", instead ? " instead, or call " : "");
}

mu_saved_context mu__enter_replica(mu_strategy_replica *replica, struct mu_scope *scope, int component)
{
    mu_context *context = mu__context();
    mu_saved_context before = {.scope = context->scope,
                               .replica = context->replica,
                               .run = context->run,
                               .component = context->component,
                               .n_components = context->n_components};
    context->scope = scope;
    context->replica = &replica->replica;
    context->run = replica->replica.run;
    context->component = component;
    context->n_components = replica->strategy->n_local;
    return before;
}

mu_saved_context mu__enter_cross_replica(mu_strategy_scope *scope)
{
    mu_context *context = mu__context();
    mu_saved_context before = {.scope = context->scope,
                               .replica = context->replica,
                               .run = context->run,
                               .component = context->component,
                               .n_components = context->n_components};
    scope->scope.outer = NULL;
    scope->scope.make_variable = mu__make_distributed_variable;
    scope->scope.make_accumulator = mu__make_distributed_accumulator;
    scope->scope.apply = apply_in(scope);
    context->scope = &scope->scope;
    context->replica = NULL;
    context->run = 0;
    return before;
}

bool mu__updating(void)
{
    const mu_context *context = mu__context();
    return !context->replica && context->scope && ((const mu_strategy_scope *)context->scope)->updating;
}

mu_strategy_replica *mu__replica(void) { return (mu_strategy_replica *)mu__context()->replica; }

mu_strategy_replica *mu__traced_replica(void)
{
    const mu_context *context = mu__context();
    if (!context->trace || context->replica || !context->scope)
        return NULL;
    return ((const mu_strategy_scope *)context->scope)->merging;
}

const mu_cross_replica_ops *mu__cross_replica(const mu_strategy *strategy)
{
    return mu__traced_replica() ? strategy->ops->traced : strategy->ops->values;
}

void mu__leave_replica(mu_saved_context before)
{
    mu_context *context = mu__context();
    context->scope = before.scope;
    context->replica = before.replica;
    context->run = before.run;
    context->component = before.component;
    context->n_components = before.n_components;
}
