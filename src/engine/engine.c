// The plans of traced functions: compiled once per device and set of input shapes, in a bounded cache.
//
// Replicas look up their plans concurrently; compilation runs outside the lock, on each device's own thread, because
// primitives belong to the thread that creates them. Engines without that need share plans among devices.
#include "engine/engine.h"

#include <pthread.h>

typedef struct cached_plan {
    mu_device *device;
    mu_plan *plan;
    int users; // runs that have it
    mu_spec *inputs;
    int n_inputs;
    uint64_t last_use;
} cached_plan;

typedef struct plan_cache {
    pthread_mutex_t lock, making; // making: held while a plan for several devices is compiled
    uint64_t clock;
    mu_graph *graph; // after the engine's lowering; retained
    struct {
        cached_plan *items;
        size_t n, capacity;
    } plans;
} plan_cache;

static void drop_plan(cached_plan *cached)
{
    cached->device->engine->free(cached->plan);
    mu__free(cached->inputs);
}

static void free_cache(void *object)
{
    plan_cache *cache = object;
    for (size_t i = 0; i < cache->plans.n; i++)
        drop_plan(&cache->plans.items[i]);
    mu__free(cache->plans.items);
    mu_release(cache->graph);
    pthread_mutex_destroy(&cache->lock);
    pthread_mutex_destroy(&cache->making);
    mu__free(cache);
}

static mu_status prepare(mu_concrete *concrete, const mu_engine *engine)
{
    mu_graph *graph = engine->lower ? engine->lower(concrete->graph) : mu_retain(concrete->graph);
    plan_cache *cache = graph ? mu__calloc(1, sizeof *cache) : NULL;
    if (!cache) {
        mu_release(graph);
        return mu_error_code();
    }
    cache->graph = graph;
    pthread_mutex_init(&cache->lock, NULL);
    pthread_mutex_init(&cache->making, NULL);
    concrete->free_plans = free_cache;
    concrete->plans = cache;
    return MU_OK;
}

// Runs on the thread that calls the function, before replicas start; if several threads call it, the first one does
// the work.
mu_status mu__concrete_prepare(mu_concrete *concrete, const mu_engine *engine)
{
    if (concrete->plans)
        return MU_OK;
    pthread_mutex_lock(&concrete->lock);
    const mu_status status = concrete->plans ? MU_OK : prepare(concrete, engine);
    pthread_mutex_unlock(&concrete->lock);
    return status;
}

static bool same_inputs(const cached_plan *cached, const mu_spec *inputs, int n_inputs)
{
    for (int i = 0; i < n_inputs; i++)
        if (!mu__shape_equal(&cached->inputs[i].shape, &inputs[i].shape))
            return false;
    return true;
}

static bool serves(const cached_plan *cached, const mu_device *device)
{
    return device->engine->shares_plans ? cached->device->engine_client == device->engine_client
                                        : cached->device == device;
}

static mu_plan *look_up(plan_cache *cache, const mu_device *device, const mu_spec *inputs, int n_inputs)
{
    for (size_t i = 0; i < cache->plans.n; i++) {
        cached_plan *cached = &cache->plans.items[i];
        if (!serves(cached, device) || !same_inputs(cached, inputs, n_inputs))
            continue;
        cached->last_use = ++cache->clock;
        cached->users++;
        return cached->plan;
    }
    return NULL;
}

// Frees the device's least recently used plan, unless all are in use, if it has the maximum number of plans.
static void make_room(plan_cache *cache, const mu_device *device)
{
    cached_plan *oldest = NULL;
    int64_t count = 0;
    for (size_t i = 0; i < cache->plans.n; i++) {
        cached_plan *cached = &cache->plans.items[i];
        count += serves(cached, device);
        if (serves(cached, device) && cached->users == 0 && (!oldest || cached->last_use < oldest->last_use))
            oldest = cached;
    }
    if (!oldest || count < mu__setting_int(MU_SETTING_PLAN_CACHE))
        return;
    drop_plan(oldest);
    *oldest = cache->plans.items[--cache->plans.n];
}

static mu_status keep(plan_cache *cache, mu_device *device, const mu_spec *inputs, int n_inputs, mu_plan *plan)
{
    cached_plan cached = {.device = device,
                          .plan = plan,
                          .users = 1,
                          .n_inputs = n_inputs,
                          .inputs = mu__alloc(sizeof *inputs * (size_t)(n_inputs + 1)),
                          .last_use = ++cache->clock};
    if (!cached.inputs)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(cached.inputs, inputs, sizeof *inputs * (size_t)n_inputs);
    make_room(cache, device);
    mu_status status = MU_PUSH(&cache->plans, cached);
    if (status != MU_OK)
        mu__free(cached.inputs);
    return status;
}

mu_status mu__check_inputs(const mu_graph *graph, const mu_spec *inputs, int n_inputs)
{
    char seen[MU_SHAPE_TEXT], text[MU_SHAPE_TEXT];
    if ((size_t)n_inputs != graph->inputs.n)
        return mu__error(MU_INVALID_ARGUMENT, "'%s' takes %zu tensors, %d were given", graph->name, graph->inputs.n,
                         n_inputs);
    for (int i = 0; i < n_inputs; i++) {
        const mu_spec *wanted = &graph->inputs.items[i]->out[0], *given = &inputs[i];
        if (given->dtype != wanted->dtype || !mu__shape_known(&given->shape) ||
            !mu__shape_compatible(&given->shape, &wanted->shape))
            return mu__error(MU_INVALID_ARGUMENT, "input %d of '%s' is %s%s; expected %s%s", i, graph->name,
                             mu_dtype_name(given->dtype), mu__shape_text(&given->shape, seen),
                             mu_dtype_name(wanted->dtype), mu__shape_text(&wanted->shape, text));
    }
    return MU_OK;
}

mu_plan *mu__concrete_plan(mu_concrete *concrete, mu_device *device, const mu_spec *inputs, int n_inputs)
{
    plan_cache *cache = concrete->plans;
    pthread_mutex_lock(&cache->lock);
    mu_plan *plan = look_up(cache, device, inputs, n_inputs);
    pthread_mutex_unlock(&cache->lock);
    return plan;
}

static mu_plan *compile(const mu_concrete *concrete, mu_device *device, const mu_spec *inputs, int n_inputs)
{
    plan_cache *cache = concrete->plans;
    int64_t begin = mu__now_ns();
    mu_plan *plan = device->engine->compile(device, cache->graph, inputs, n_inputs);
    if (!plan) {
        mu__error_context("while compiling '%s' for %s", concrete->graph->name, device->name);
        return NULL;
    }
    mu__log(MU_LOG_DEBUG, "compiled %s for %s in %.2f ms", concrete->graph->name, device->name,
            (double)(mu__now_ns() - begin) / 1e6);
    pthread_mutex_lock(&cache->lock);
    mu_status status = keep(cache, device, inputs, n_inputs, plan);
    pthread_mutex_unlock(&cache->lock);
    if (status != MU_OK) {
        device->engine->free(plan);
        return NULL;
    }
    return plan;
}

mu_plan *mu__concrete_compile(mu_concrete *concrete, mu_device *device, const mu_spec *inputs, int n_inputs)
{
    plan_cache *cache = concrete->plans;
    if (!device->engine->shares_plans)
        return compile(concrete, device, inputs, n_inputs);
    pthread_mutex_lock(&cache->making);
    mu_plan *plan = mu__concrete_plan(concrete, device, inputs, n_inputs); // another replica's thread was first
    if (!plan)
        plan = compile(concrete, device, inputs, n_inputs);
    pthread_mutex_unlock(&cache->making);
    return plan;
}

void mu__concrete_unuse(mu_concrete *concrete, mu_plan *plan)
{
    plan_cache *cache = concrete->plans;
    if (!plan)
        return;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < cache->plans.n; i++)
        cache->plans.items[i].users -= cache->plans.items[i].plan == plan;
    pthread_mutex_unlock(&cache->lock);
}
