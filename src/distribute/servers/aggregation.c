// What several calls leave, and what is applied together: see aggregation.h.
#include "distribute/servers/aggregation.h"

#include "ops/state/accumulator.h"
#include "rpc/services/service.h"

#include <muster/ops.h>

void mu__deferred_site_release(const mu_deferred_site *site)
{
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
    made->n_locks += pthread_mutex_init(&made->lock, NULL) == 0;
    made->n_locks += made->n_locks == 1 && pthread_mutex_init(&made->updates_lock, NULL) == 0;
    if (made->n_locks == 2)
        return made;
    mu__error(MU_RESOURCE_EXHAUSTED, "mu_parameter_server_strategy: the system cannot make a lock; free memory");
    mu__aggregation_free(made);
    return NULL;
}

void mu__aggregation_free(mu_aggregation *aggregation)
{
    if (!aggregation)
        return;
    for (size_t i = 0; i < aggregation->sites.n; i++)
        mu__deferred_site_release(&aggregation->sites.items[i]);
    mu__free(aggregation->sites.items);
    if (aggregation->n_locks > 0)
        pthread_mutex_destroy(&aggregation->lock);
    if (aggregation->n_locks > 1)
        pthread_mutex_destroy(&aggregation->updates_lock);
    mu__free(aggregation);
}

// ---- Numbers of attempts ------------------------------------------------------------------------

static mu_value *with_attempt(mu_value *arguments, void *arg)
{
    mu_strategy_replica *replica = mu__replica();
    mu_deferred_trace deferred = {0};
    mu_value *own = mu_value_at(arguments, 0);
    if (!own || !replica)
        return NULL;
    replica->attempt = mu_at(arguments, 1);
    replica->ratio = mu_at(arguments, 2);
    replica->deferred = &deferred;
    mu_value *result = mu__function_inline(arg, own);
    replica->attempt = replica->ratio = NULL;
    replica->deferred = NULL;
    mu__free(deferred.assigned.items);
    mu__free(deferred.applied.items);
    return result;
}

mu_function *mu__aggregated(mu_function *function) { return mu__function_around(function, with_attempt); }

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

mu_accumulator *mu__deferred_accumulator(const mu_variable *variable, const char *what, const mu_spec *values)
{
    char *name = mu__sprintf("%s/%s", variable->resource.name, what);
    const mu_conditional_accumulator_args args = {
        .size = sizeof args, .dtype = values->dtype, .shape = &values->shape, .name = name, .reduction_type = "SUM"};
    mu_servers *servers = variable->owner ? ((mu_strategy *)variable->owner)->servers : NULL;
    void *home = variable->n_shards > 0 ? variable->shards[0]->resource.home : variable->resource.home;
    mu_suspended suspended = mu__trace_suspend();
    mu_accumulator *made = !name ? NULL
                           : servers && home
                               ? mu__remote_accumulator_new(home, mu__new_name(servers, name), &args, false)
                               : mu__accumulator_new(&args, false);
    mu__trace_resume(suspended);
    mu__free(name);
    return made;
}

mu_status mu__aggregation_add(mu_strategy *strategy, const mu_deferred_site *site)
{
    mu_aggregation *aggregation = strategy->servers->aggregation;
    pthread_mutex_lock(&aggregation->lock);
    const mu_status status = MU_PUSH(&aggregation->sites, *site);
    if (status == MU_OK) {
        mu_retain(site->first);
        mu_retain(site->owner);
    }
    pthread_mutex_unlock(&aggregation->lock);
    return status;
}

// Takes the first site of an owner out of the list; false: there is none. The others keep their order, which is that of
// their updates.
static bool take_site(mu_aggregation *aggregation, const void *owner, mu_deferred_site *out)
{
    size_t i = 0;
    pthread_mutex_lock(&aggregation->lock);
    mu_deferred_site *items = aggregation->sites.items;
    while (i < aggregation->sites.n && (const void *)items[i].owner != owner)
        i++;
    const bool found = i < aggregation->sites.n;
    if (found) {
        *out = items[i];
        memmove(items + i, items + i + 1, (--aggregation->sites.n - i) * sizeof *items);
    }
    pthread_mutex_unlock(&aggregation->lock);
    return found;
}

void mu__aggregation_forget(mu_strategy *strategy, const void *owner)
{
    mu_aggregation *aggregation = strategy && strategy->servers ? strategy->servers->aggregation : NULL;
    mu_deferred_site site;
    while (aggregation && take_site(aggregation, owner, &site))
        mu__deferred_site_release(&site);
}

bool mu__graph_leaves(const mu_graph *graph, const mu_accumulator *accumulator)
{
    for (size_t i = 0; i < graph->resources.n; i++)
        if (graph->resources.items[i] == &accumulator->resource)
            return true;
    return false;
}

mu_status mu__aggregation_sites(mu_aggregation *aggregation, mu_deferred_sites *out)
{
    *out = (mu_deferred_sites){0};
    pthread_mutex_lock(&aggregation->lock);
    const size_t n = aggregation->sites.n;
    out->items = mu__calloc(n + 1, sizeof *out->items);
    for (; out->items && out->n < n; out->n++) {
        out->items[out->n] = aggregation->sites.items[out->n];
        mu_retain(out->items[out->n].first);
        mu_retain(out->items[out->n].owner);
    }
    pthread_mutex_unlock(&aggregation->lock);
    return out->items ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

void mu__deferred_sites_free(mu_deferred_sites *sites)
{
    for (size_t i = 0; i < sites->n; i++)
        mu__deferred_site_release(&sites->items[i]);
    mu__free(sites->items);
}

bool mu__aggregation_leaves(mu_aggregation *aggregation, const mu_graph *graph)
{
    bool leaves = false;
    pthread_mutex_lock(&aggregation->lock);
    for (size_t i = 0; !leaves && i < aggregation->sites.n; i++)
        leaves = mu__graph_leaves(graph, aggregation->sites.items[i].first);
    pthread_mutex_unlock(&aggregation->lock);
    return leaves;
}
