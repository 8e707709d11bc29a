// The plans of a nested graph: a small cache by input shapes, which frees the least recently used plan.
//
// Only the device's thread uses it, for one run at a time.
#include "engine/cpu/plan.h"

nested *mu__nested_new(mu_device *device, mu_graph *graph)
{
    nested *n = mu__calloc(1, sizeof *n);
    if (n)
        *n = (nested){.device = device, .graph = mu_retain(graph)};
    return n;
}

static void drop(nested *n, int i)
{
    mu__cpu_free(n->plans[i]);
    mu__free(n->specs[i]);
    n->plans[i] = NULL;
    n->specs[i] = NULL;
}

void mu__nested_free(nested *n)
{
    if (!n)
        return;
    for (int i = 0; i < NESTED_PLANS; i++)
        drop(n, i);
    mu_release(n->graph);
    mu__free(n);
}

static bool same_shapes(const nested *n, int i, const mu_spec *inputs)
{
    for (size_t k = 0; k < n->graph->inputs.n; k++)
        if (!mu__shape_equal(&n->specs[i][k].shape, &inputs[k].shape))
            return false;
    return true;
}

mu_plan *mu__nested_plan(nested *n, const mu_spec *inputs)
{
    int oldest = 0;
    const size_t count = n->graph->inputs.n;
    n->clock++;
    for (int i = 0; i < NESTED_PLANS; i++) {
        if (n->plans[i] && same_shapes(n, i, inputs)) {
            n->last_use[i] = n->clock;
            return n->plans[i];
        }
        if (n->last_use[i] < n->last_use[oldest])
            oldest = i;
    }
    drop(n, oldest);
    mu_plan *plan = mu__cpu_compile(n->device, n->graph, inputs, (int)count);
    mu_spec *specs = plan ? mu__alloc(sizeof *specs * (count + 1)) : NULL;
    if (!specs) {
        mu__cpu_free(plan);
        return NULL;
    }
    memcpy(specs, inputs, sizeof *specs * count);
    n->plans[oldest] = plan;
    n->specs[oldest] = specs;
    n->last_use[oldest] = n->clock;
    return plan;
}

size_t mu__nested_bytes(const nested *n)
{
    size_t most = 0;
    for (int i = 0; i < NESTED_PLANS; i++)
        most = MU_MAX(most, n->plans[i] ? mu__cpu_bytes(n->plans[i]) : 0);
    return most;
}
