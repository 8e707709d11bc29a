// Calls C callbacks on replicas eagerly: run_callback and merge_call.
//
// Several replicas run one at a time (eager_replicas.c). With one replica, its function and its merge functions are
// simply called on the calling thread.
#include "base/callback.h"
#include "distribute/servers/aggregation.h"
#include "distribute/distribute.h"
#include "distribute/run/eager_device.h"

static mu_value *nothing(void) { return mu__give(mu__value_container(MU_VALUE_LIST, 0, NULL, NULL)); }

// Calls the function where this thread is, which is where the default strategy's replica is.
static mu_value *run_here(mu_replica_fn *fn, void *arg, mu_value *arguments)
{
    mu_context *context = mu__context();
    const mu_tape *outer = context->tape;
    mu_value *mine = mu__give(mu__select(arguments, 0));
    mu_value *result = NULL;
    if (mine)
        MU_CALLBACK("the function of mu_run_callback", result = fn(mine, arg));
    while (context->tape && context->tape != outer) // close tapes that fn opened
        mu_tape_close(context->tape);
    return result;
}

// A merge function of the default strategy is in cross-replica state; the replica that it runs is not.
static mu_value *run_default(mu_replica_fn *fn, void *arg, mu_value *arguments)
{
    mu_context *context = mu__context();
    struct mu_scope *merging = mu__current_strategy() == mu_default_strategy() ? context->scope : NULL;
    if (merging)
        context->scope = NULL;
    mu_value *result = run_here(fn, arg, arguments);
    if (merging)
        context->scope = merging;
    return result;
}

static mu_value *run_alone(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments)
{
    mu_strategy_replica replica = {.replica = {.id = strategy->first_replica}, .strategy = strategy};
    mu_strategy_scope scope = {
        .scope = {.make_variable = mu__make_distributed_variable, .apply = mu__eager_apply_of(strategy, true)},
        .strategy = strategy};
    mu_saved_context before = mu__enter_replica(&replica, &scope.scope, 0);
    mu_value *result = run_here(fn, arg, arguments);
    mu__leave_replica(before);
    return result;
}

mu_value *mu__run_callback_replicas(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments)
{
    if (mu__context()->trace) {
        mu__error(MU_FAILED_PRECONDITION, "mu_run_callback is called while a function is traced; call it outside of "
                                          "traced functions, or run the step eagerly");
        return NULL;
    }
    if (mu__need_components(strategy, arguments, "mu_run_callback") != MU_OK ||
        (!arguments && !(arguments = nothing())))
        return NULL;
    mu_value *result = strategy == mu_default_strategy() ? run_default(fn, arg, arguments)
                       : strategy->n_replicas == 1       ? run_alone(strategy, fn, arg, arguments)
                                                         : mu__give(mu__eager_run(strategy, fn, arg, arguments));
    if (mu__pending())
        return NULL;
    return result ? result : nothing();
}

mu_value *mu_run_callback(mu_strategy *given, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                          mu_value *arguments)
{
    mu_strategy *strategy = mu__strategy_or_default(given);
    if (mu__pending() || mu__need_cross_replica(strategy, "mu_run_callback") != MU_OK)
        return NULL;
    if (!fn || mu__need_value(arguments, "mu_run_callback") != MU_OK) {
        mu__error(MU_INVALID_ARGUMENT, "mu_run_callback: the function is NULL");
        return NULL;
    }
    return mu__cross_replica(strategy)->run_callback(strategy, fn, arg, arguments);
}

// ---- merge_call ---------------------------------------------------------------------------------

static mu_value *merge_alone(mu_strategy *strategy, mu_merge_fn *fn, void *arg, mu_value *arguments)
{
    mu_strategy_scope scope = {.strategy = strategy};
    mu_saved_context before = mu__enter_cross_replica(&scope);
    mu_value *result;
    MU_CALLBACK("a function of mu_merge_call", result = fn(strategy, arguments, arg));
    mu__leave_replica(before);
    if (mu__pending())
        return NULL;
    return result ? result : nothing();
}

mu_value *mu_merge_call(mu_value *(*fn)(mu_strategy *strategy, mu_value *arguments, void *arg), void *arg,
                        mu_value *arguments)
{
    if (mu__pending())
        return NULL;
    const mu_strategy_replica *replica = mu__replica();
    if (!fn || mu__need_value(arguments, "mu_merge_call") != MU_OK) {
        mu__error(MU_INVALID_ARGUMENT, "mu_merge_call: the function is NULL");
        return NULL;
    }
    if (!replica && mu__current_strategy()) {
        mu__error(MU_FAILED_PRECONDITION, "mu_merge_call is for functions that run on replicas; this is the "
                                          "cross-replica state already, so call the function directly");
        return NULL;
    }
    if ((!arguments && !(arguments = nothing())) ||
        mu__refuse_in_calls(false, "mu_merge_call",
                            "the replicas that it would merge are calls, which cannot wait for each other; assign in "
                            "the function, or use MirroredStrategy") != MU_OK)
        return NULL;
    if (!replica || replica->strategy->n_replicas == 1)
        return merge_alone(replica ? replica->strategy : mu_default_strategy(), fn, arg, arguments);
    return mu__context()->trace ? mu__merge_traced(fn, arg, arguments) : mu__eager_merge(fn, arg, arguments);
}
