// Overlaps the all-reduces of buckets with computation: starts one when its bucket is ready, and waits for it before
// its first use.
//
// In between, the bucket's memory belongs to the collective, so no other value may use it. A collective that cannot
// run asynchronously reduces at once.
#include "engine/cpu/plan.h"
#include "ops/nn/nn.h"

// ---- Compiling ----------------------------------------------------------------------------------

static bool uses(const mu_plan *plan, const binding *bindings, int n, int b)
{
    for (int i = 0; i < n; i++)
        if (plan->values[plan->values[bindings[i].value].root].bucket == b)
            return true;
    return false;
}

// First step that uses the all-reduce's result; n_steps if none does. The bindings of a step are contiguous, in the
// order of the steps.
static int first_use(const mu_plan *plan, int b)
{
    const binding *at = plan->bindings;
    for (int i = 0; i < plan->n_steps; i++) {
        const int n = plan->steps[i].kernel.n_in + plan->steps[i].kernel.n_out;
        if (plan->steps[i].node->id > plan->buckets[b].node && uses(plan, at, n, b))
            return i;
        at += n;
    }
    return plan->n_steps;
}

void mu__overlap_plan(mu_plan *plan)
{
    for (int b = plan->n_buckets - 1; b >= 0; b--) { // from the last to the first, so that lists are in order
        bucket *k = &plan->buckets[b];
        const int use = first_use(plan, b);
        int *list = use < plan->n_steps ? &plan->steps[use].awaits : &plan->awaited_last;
        k->last = MU_MAX(k->last, use < plan->n_steps ? plan->steps[use].node->id : END_OF_PLAN);
        k->next = *list;
        *list = b;
    }
}

// ---- Running ------------------------------------------------------------------------------------

// Whether the step after the all-reduce waits for it: then there is no computation to overlap.
static bool comes_next(const mu_plan *plan, const step *s)
{
    const int next = (int)(s - plan->steps) + 1;
    int b = next < plan->n_steps ? plan->steps[next].awaits : plan->awaited_last;
    while (b >= 0 && b != s->bucket)
        b = plan->buckets[b].next;
    return b >= 0;
}

// A bucket is reduced as one array, including the padding after its members. Clears the padding: other processes
// would receive old data, and denormal numbers are slow to add.
static void clear_padding(const mu_plan *plan, const bucket *k, char *data)
{
    const mu_node *node = plan->graph->nodes.items[k->node];
    for (int i = 0; i < node->n_in; i++) {
        const value *owner = &plan->values[plan->values[mu__value_index(plan, node->in[i])].root];
        memset(data + (owner->offset - k->offset) + owner->bytes, 0, -owner->bytes & 63);
    }
}

mu_status mu__overlap_start(const mu_plan *plan, const step *s, void *data)
{
    bucket *k = &plan->buckets[s->bucket];
    const mu_all_reduce_attrs *attrs = s->kernel.attrs;
    const mu_dtype dtype = s->kernel.in[0].dtype;
    const int64_t count = (int64_t)(k->bytes / mu_dtype_bytes(dtype));
    mu_collective *c = s->kernel.collective;
    if (!c)
        return MU_OK;
    clear_padding(plan, k, data);
    mu__form_said(c, s->kernel.n_in, s->kernel.in, MU_NO_AXIS);
    if (!c->start)
        return c->all_reduce(c, s->kernel.number, attrs->name, (mu_reduction)attrs->reduction, dtype, data, count);
    MU_TRY(c->start(c, s->kernel.number, attrs->name, (mu_reduction)attrs->reduction, dtype, data, count,
                    comes_next(plan, s), &k->started));
    k->under_way = true;
    return MU_OK;
}

static mu_status wait_for(const mu_plan *plan, bucket *k, const cpu_call *call)
{
    mu_collective *c = call->run->collective;
    const int64_t begin = mu__trace_on() ? mu__now_ns() : 0;
    const mu_status status = c->wait(c, k->started);
    if (begin)
        mu__span("collective", "all_reduce", call->run->replica, begin, mu__now_ns());
    if (status != MU_OK)
        mu__error_add_site(mu__node_site(plan->graph->nodes.items[k->node]));
    else
        k->under_way = false;
    return status;
}

mu_status mu__overlap_wait(const mu_plan *plan, int first, const cpu_call *call)
{
    for (int b = first; b >= 0; b = plan->buckets[b].next)
        if (plan->buckets[b].under_way)
            MU_TRY(wait_for(plan, &plan->buckets[b], call));
    return MU_OK;
}

void mu__overlap_abandon(const mu_plan *plan, const cpu_call *call)
{
    mu_collective *c = call->run->collective;
    if (c && c->abandon)
        c->abandon(c);
    for (int b = 0; b < plan->n_buckets; b++)
        plan->buckets[b].under_way = false;
}
