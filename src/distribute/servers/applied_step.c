// Applies what the calls of a step have left, all or nothing: see aggregation.h.
//
// First everything is taken, by one function, then it is applied by another, which was traced before. What is missing
// is noticed while no variable has changed. When an update fails after that, because its server is away, the step is
// half applied: no value of its variables can be used then, until the program assigns or restores it.
#include "distribute/servers/aggregation.h"

#include "ops/state/accumulator.h"

#include <muster/ops.h>

// ---- The functions of a set of sites ------------------------------------------------------------

// Two functions for one set of sites: one takes everything that the calls have left, the other applies it. So what is
// not there, and an update that cannot be traced, is seen before anything changes.
struct mu_step_plan {
    mu_object object;
    int n;
    mu_deferred_site *sites; // [n] their owners are retained
    mu_function *take, *update;
    mu_concrete *traced; // of `update`, which has it; NULL: not traced so far
};

static void plan_destroy(void *object)
{
    mu_step_plan *plan = object;
    mu_release(plan->take);
    mu_release(plan->update);
    for (int i = 0; plan->sites && i < plan->n; i++)
        mu__deferred_site_release(&plan->sites[i]);
    mu__free(plan->sites);
}

static mu_type plan_type = {.name = "how a step is applied", .destroy = plan_destroy};

void mu__step_plans_free(mu_step_plans *plans)
{
    for (size_t i = 0; i < plans->n; i++)
        mu_release(plans->items[i]);
    mu__free(plans->items);
    *plans = (mu_step_plans){0};
}

static int n_sums(const mu_step_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n; i++)
        for (int k = 0; k < plan->sites[i].n; k++)
            n += plan->sites[i].sums[k] != NULL;
    return n;
}

// Arguments: the step, and for each site the attempts that left something there. Result: all sums.
static mu_value *take_sums(mu_value *arguments, void *arg)
{
    const mu_step_plan *plan = arg;
    mu_tensor *step = mu_at(arguments, 0);
    mu_value **sums = mu__calloc((size_t)n_sums(plan) + 1, sizeof *sums);
    int n = 0;
    for (int i = 0; sums && i < plan->n; i++) {
        const mu_deferred_site *site = &plan->sites[i];
        mu_tensor *attempts = mu_at(arguments, i + 1);
        if (site->only_first)
            attempts = mu_slice(attempts, (int64_t[]){0}, (int64_t[]){1});
        for (int k = 0; k < site->n && !mu__pending(); k++)
            if (site->sums[k])
                sums[n++] = mu_of(mu__accumulator_take_kept(site->sums[k], attempts, step));
    }
    mu_value *result = sums && !mu__pending() ? mu_list_of(n, sums) : NULL;
    mu__free(sums);
    return result;
}

static mu_status update_site(const mu_deferred_site *site, mu_value *sums, int *next, mu_tensor *calls)
{
    mu_tensor **own = mu__calloc((size_t)site->n + 1, sizeof *own);
    for (int k = 0; own && k < site->n; k++)
        if (site->sums[k])
            own[k] = mu_at(sums, (*next)++);
    const mu_status status = !own            ? MU_RESOURCE_EXHAUSTED
                             : mu__pending() ? mu_error_code()
                                             : site->update(site->owner, own, calls);
    mu__free(own);
    return status;
}

// Arguments: all sums, and for each site the number of calls.
static mu_value *update_all(mu_value *arguments, void *arg)
{
    const mu_step_plan *plan = arg;
    mu_value *sums = mu_value_at(arguments, 0), *calls = mu_value_at(arguments, 1);
    int next = 0;
    mu_status status = sums && calls ? MU_OK : mu_error_code();
    for (int i = 0; i < plan->n && status == MU_OK; i++)
        status = update_site(&plan->sites[i], sums, &next, mu_at(calls, i));
    mu_tensor *zero = status == MU_OK ? mu_constant(MU_I32, 0) : NULL;
    return zero ? mu_of(zero) : NULL;
}

static mu_step_plan *new_plan(int n, const mu_deferred_site *sites)
{
    mu_step_plan *plan = mu__new(&plan_type, sizeof *plan);
    if (!plan || !(plan->sites = mu__calloc((size_t)n + 1, sizeof *plan->sites))) {
        mu_release(plan);
        return NULL;
    }
    for (; plan->n < n; plan->n++) {
        plan->sites[plan->n] = sites[plan->n];
        mu_retain(sites[plan->n].owner);
        mu_retain(sites[plan->n].first);
    }
    plan->take = mu_retain(mu_function_new(take_sums, plan, .name = "take_step"));
    plan->update = mu_retain(mu_function_new(update_all, plan, .name = "apply_step"));
    if (plan->take && plan->update)
        return plan;
    mu_release(plan);
    return NULL;
}

static bool is_known(const mu_deferred_sites *all, const mu_deferred_site *wanted)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].first == wanted->first)
            return true;
    return false;
}

// Those with a site that was forgotten are never used again.
static void drop_old(const mu_deferred_sites *all, mu_step_plans *plans)
{
    for (size_t i = 0; i < plans->n;) {
        mu_step_plan *plan = plans->items[i];
        bool known = true;
        for (int k = 0; k < plan->n && known; k++)
            known = is_known(all, &plan->sites[k]);
        if (known) {
            i++;
            continue;
        }
        plans->items[i] = plans->items[--plans->n];
        mu_release(plan);
    }
}

// Borrowed; NULL on error.
static mu_step_plan *plan_for(const mu_deferred_sites *all, mu_step_plans *plans, int n, const mu_deferred_site *sites)
{
    for (size_t i = 0; i < plans->n; i++) {
        const mu_step_plan *plan = plans->items[i];
        bool same = plan->n == n;
        for (int k = 0; k < n && same; k++)
            same = plan->sites[k].first == sites[k].first;
        if (same)
            return plans->items[i];
    }
    drop_old(all, plans);
    mu_step_plan *plan = new_plan(n, sites);
    if (plan && MU_PUSH(plans, plan) == MU_OK)
        return plan;
    mu_release(plan);
    return NULL;
}

// ---- Variables in doubt -------------------------------------------------------------------------

static void put_one_in_doubt(mu_aggregation *aggregation, mu_resource *resource)
{
    mu_variable *variable = mu__is(&resource->object, &mu__variable_type) ? (mu_variable *)resource : NULL;
    if (variable && variable->rules == &mu__deferred_rules && !atomic_exchange(&variable->in_doubt, true))
        aggregation->in_doubt++;
}

static void put_in_doubt(mu_aggregation *aggregation, const mu_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int r = 0; r < node->n_resources; r++)
            if (mu__node_writes(node, r))
                put_one_in_doubt(aggregation, graph->resources.items[node->resources[r]]);
    }
}

mu_status mu__aggregation_check(const mu_strategy *strategy, const mu_graph *graph)
{
    if (strategy->servers->aggregation->in_doubt == 0)
        return MU_OK;
    for (size_t i = 0; i < graph->resources.n; i++) {
        const mu_object *resource = (const mu_object *)graph->resources.items[i];
        if (mu__is(resource, &mu__variable_type) && ((const mu_variable *)resource)->in_doubt)
            return mu__error(MU_FAILED_PRECONDITION,
                             "variable '%s' is in doubt: a step failed while it was applied; assign the variables of "
                             "the step, or restore a checkpoint",
                             ((const mu_variable *)resource)->resource.name);
    }
    return MU_OK;
}

// ---- The step -----------------------------------------------------------------------------------

// What is applied: of all sites those where something was left, the attempts of each, and how many they are.
typedef struct step_parts {
    mu_deferred_sites all;
    int n;
    mu_deferred_site *sites;
    mu_value **attempts, **calls; // [n]
} step_parts;

static mu_status add_part(step_parts *parts, const mu_deferred_site *site, int64_t n, const int64_t *attempts)
{
    mu_tensor *own = mu_tensor_new(MU_I64, 1, &n, attempts), *calls = mu_constant(MU_I64, (double)n);
    if (!own || !calls)
        return mu_error_code();
    parts->sites[parts->n] = *site;
    parts->attempts[parts->n] = mu_of(own);
    parts->calls[parts->n++] = mu_of(calls);
    return mu_error_code();
}

static mu_status collect(int n, mu_graph *const *graphs, const int64_t *attempts, step_parts *parts)
{
    int64_t *own = mu__calloc((size_t)n + 1, sizeof *own);
    mu_status status = own ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < parts->all.n; i++) {
        const mu_deferred_site *site = &parts->all.items[i];
        int n_own = 0;
        for (int k = 0; k < n; k++)
            if (mu__graph_leaves(graphs[k], site->first))
                own[n_own++] = attempts[k];
        if (n_own > 0)
            status = add_part(parts, site, n_own, own);
    }
    mu__free(own);
    return status;
}

// The update is traced before anything is taken or changed. Its arguments have the same shapes in every step.
static mu_concrete *trace_update(mu_strategy *strategy, mu_step_plan *plan, mu_value *calls)
{
    if (plan->traced)
        return plan->traced;
    mu_value **zeros = mu__calloc((size_t)n_sums(plan) + 1, sizeof *zeros);
    int n = 0;
    for (int i = 0; zeros && i < plan->n; i++)
        for (int k = 0; k < plan->sites[i].n; k++) {
            const mu_accumulator *sum = plan->sites[i].sums[k];
            if (sum)
                zeros[n++] = mu_of(mu_zeros(sum->resource.spec.dtype, sum->declared.rank, sum->declared.dims));
        }
    mu_value *arguments = zeros && !mu__pending() ? mu_list(mu_list_of(n, zeros), calls, MU_END) : NULL;
    mu__free(zeros);
    plan->traced = arguments ? mu__served_trace(strategy, plan->update, arguments) : NULL;
    return plan->traced;
}

static mu_status apply_parts(mu_strategy *strategy, mu_step_plans *plans, const step_parts *parts, int64_t step)
{
    mu_step_plan *plan = plan_for(&parts->all, plans, parts->n, parts->sites);
    mu_value **taking = mu__calloc((size_t)parts->n + 1, sizeof *taking);
    mu_value *calls = mu_list_of(parts->n, parts->calls), *sums = NULL, *done = NULL;
    const mu_concrete *update = plan && taking && calls ? trace_update(strategy, plan, calls) : NULL;
    if (update && mu__aggregation_check(strategy, update->graph) == MU_OK) {
        taking[0] = mu_of(mu_tensor_new(MU_I64, 0, NULL, &step));
        memcpy(taking + 1, parts->attempts, (size_t)parts->n * sizeof *taking);
        sums = mu__served_call(strategy, 0, plan->take, mu_list_of(parts->n + 1, taking));
    }
    if (sums) {
        done = mu__served_call(strategy, 0, plan->update, mu_list(sums, calls, MU_END));
        if (!done) {
            put_in_doubt(strategy->servers->aggregation, update->graph);
            mu__error_context("while the updates of a step were applied: its variables are in doubt until they are "
                              "assigned or restored");
        }
    }
    mu_release(sums);
    mu_release(done);
    mu__free(taking);
    return mu_error_code();
}

mu_status mu__aggregation_apply(mu_strategy *strategy, mu_step_plans *plans, int n, mu_graph *const *graphs,
                                const int64_t *attempts, int64_t step)
{
    step_parts parts = {.n = 0};
    MU_TRY(mu__aggregation_sites(strategy->servers->aggregation, &parts.all));
    const size_t most = parts.all.n + 1;
    parts.sites = mu__calloc(most, sizeof *parts.sites);
    parts.attempts = mu__calloc(2 * most, sizeof *parts.attempts);
    parts.calls = parts.attempts ? parts.attempts + most : NULL;
    mu_pool *pool = mu_pool_open();
    if (pool && parts.sites && parts.attempts && collect(n, graphs, attempts, &parts) == MU_OK && parts.n > 0)
        apply_parts(strategy, plans, &parts, step);
    mu_pool_close(pool);
    mu__free(parts.sites);
    mu__free(parts.attempts);
    mu__deferred_sites_free(&parts.all);
    return mu_error_code();
}
