// Gradients of several calls that are applied together: see aggregation.h.
#include "distribute/aggregation.h"

#include "ops/state/accumulator.h"
#include "rpc/service.h"

#include <muster/ops.h>

static void release_site(const mu_gradient_site *site)
{
    mu_release(site->update);
    mu_release(site->owner);
    mu_release(site->first);
}

mu_aggregation *mu__aggregation_new(int n, bool synchronous)
{
    mu_aggregation *made = mu__calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->n = n;
    made->synchronous = synchronous;
    made->has_lock = pthread_mutex_init(&made->lock, NULL) == 0;
    if (made->has_lock)
        return made;
    mu__error(MU_RESOURCE_EXHAUSTED, "mu_parameter_server_strategy: the system has no room for a lock; free memory");
    mu__aggregation_free(made);
    return NULL;
}

void mu__aggregation_free(mu_aggregation *aggregation)
{
    if (!aggregation)
        return;
    for (size_t i = 0; i < aggregation->sites.n; i++)
        release_site(&aggregation->sites.items[i]);
    mu__free(aggregation->sites.items);
    if (aggregation->has_lock)
        pthread_mutex_destroy(&aggregation->lock);
    mu__free(aggregation);
}

// ---- Numbers of attempts ------------------------------------------------------------------------

static mu_value *with_attempt(mu_value *arguments, void *arg)
{
    mu_strategy_replica *replica = mu__replica();
    mu_value *own = mu_value_at(arguments, 0);
    if (!own || !replica)
        return NULL;
    replica->attempt = mu_at(arguments, 1);
    replica->ratio = mu_at(arguments, 2);
    mu_value *result = mu__function_inline(arg, own);
    replica->attempt = replica->ratio = NULL;
    return result;
}

mu_function *mu__aggregated(mu_function *function)
{
    return mu__function_around(function, with_attempt);
}

mu_value *mu__aggregated_arguments(mu_value *arguments, int64_t attempt, double ratio)
{
    return mu_list(arguments ? arguments : mu_list(MU_END), mu_tensor_new(MU_I64, 0, NULL, &attempt),
                   mu_tensor_new(MU_F64, 0, NULL, &ratio), MU_END);
}

mu_tensor *mu__attempt_number(void)
{
    const mu_strategy_replica *replica = mu__replica();
    return replica ? replica->attempt : NULL;
}

// A call without rows has no share of anything: 1 keeps what is divided by the number finite.
mu_tensor *mu__over_step(mu_tensor *number)
{
    const mu_strategy_replica *replica = mu__replica();
    if (!number || !replica || !replica->ratio)
        return number;
    mu_tensor *ratio = mu_cast(replica->ratio, mu_tensor_dtype(number));
    mu_tensor *zero = mu_constant(mu_tensor_dtype(number), 0), *one = mu_constant(mu_tensor_dtype(number), 1);
    return mu_where(mu_greater(ratio, zero), mu_multiply(number, ratio), one);
}

int mu__step_shares(void)
{
    const mu_strategy_replica *replica = mu__replica();
    return replica && replica->attempt ? replica->strategy->servers->aggregation->n : mu_replica_count();
}

// ---- Sites --------------------------------------------------------------------------------------

mu_accumulator *mu__gradient_accumulator(const mu_variable *variable, const char *what)
{
    char *name = mu__sprintf("%s/%s", variable->resource.name, what);
    const mu_conditional_accumulator_args args = {.size = sizeof args, .dtype = variable->resource.spec.dtype,
                                                  .shape = &variable->resource.spec.shape, .name = name,
                                                  .reduction_type = "SUM"};
    mu_servers *servers = variable->owner ? ((mu_strategy *)variable->owner)->servers : NULL;
    mu_suspended suspended = mu__trace_suspend();
    mu_accumulator *made = !name                             ? NULL
                           : servers && variable->resource.home
                               ? mu__remote_accumulator_new(variable->resource.home, mu__new_name(servers, name), &args,
                                                            false)
                               : mu__accumulator_new(&args, false);
    mu__trace_resume(suspended);
    mu__free(name);
    return made;
}

mu_status mu__aggregation_add(mu_strategy *strategy, mu_accumulator *first, mu_function *update, void *owner)
{
    mu_aggregation *aggregation = strategy->servers->aggregation;
    const mu_gradient_site site = {.first = first, .update = update, .owner = owner};
    pthread_mutex_lock(&aggregation->lock);
    const mu_status status = MU_PUSH(&aggregation->sites, site);
    if (status == MU_OK) {
        mu_retain(first);
        mu_retain(update);
        mu_retain(owner);
    }
    pthread_mutex_unlock(&aggregation->lock);
    return status;
}

void mu__aggregation_forget(mu_strategy *strategy, const void *owner)
{
    mu_aggregation *aggregation = strategy && strategy->servers ? strategy->servers->aggregation : NULL;
    for (size_t i = 0; aggregation && i < aggregation->sites.n;) {
        const mu_gradient_site site = aggregation->sites.items[i];
        if ((const void *)site.owner != owner) {
            i++;
            continue;
        }
        pthread_mutex_lock(&aggregation->lock);
        aggregation->sites.items[i] = aggregation->sites.items[--aggregation->sites.n];
        pthread_mutex_unlock(&aggregation->lock);
        release_site(&site);
    }
}

static bool uses(const mu_graph *graph, const mu_accumulator *accumulator)
{
    for (size_t i = 0; i < graph->resources.n; i++)
        if (graph->resources.items[i] == &accumulator->resource)
            return true;
    return false;
}

// The i-th site, by value: the list may grow meanwhile. False: there are fewer.
static bool site_at(mu_aggregation *aggregation, size_t i, mu_gradient_site *out)
{
    pthread_mutex_lock(&aggregation->lock);
    const bool found = i < aggregation->sites.n;
    if (found)
        *out = aggregation->sites.items[i];
    pthread_mutex_unlock(&aggregation->lock);
    return found;
}

bool mu__aggregation_leaves(mu_aggregation *aggregation, const mu_graph *graph)
{
    mu_gradient_site site;
    for (size_t i = 0; site_at(aggregation, i, &site); i++)
        if (uses(graph, site.first))
            return true;
    return false;
}

static mu_status apply_site(mu_strategy *strategy, const mu_gradient_site *site, int n, mu_graph *const *graphs,
                            const int64_t *attempts, int64_t step)
{
    int64_t *own = mu__calloc((size_t)n + 1, sizeof *own), n_own = 0;
    if (!own)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++)
        if (uses(graphs[i], site->first))
            own[n_own++] = attempts[i];
    mu_value *result = NULL;
    if (n_own > 0) {
        mu_value *arguments = mu_list(mu_tensor_new(MU_I64, 1, &n_own, own), mu_tensor_new(MU_I64, 0, NULL, &step),
                                      MU_END);
        result = mu__served_call(strategy, 0, site->update, arguments);
    }
    mu_release(result);
    mu__free(own);
    return mu_error_code();
}

mu_status mu__aggregation_apply(mu_strategy *strategy, int n, mu_graph *const *graphs, const int64_t *attempts,
                                int64_t step)
{
    mu_aggregation *aggregation = strategy->servers->aggregation;
    mu_gradient_site site;
    mu_pool *pool = mu_pool_open();
    for (size_t i = 0; !mu__pending() && site_at(aggregation, i, &site); i++)
        apply_site(strategy, &site, n, graphs, attempts, step);
    mu_pool_close(pool);
    return mu_error_code();
}
