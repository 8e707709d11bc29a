// Compiles programs for a client's devices, and makes and frees plans.
#include "engine/pjrt/pjrt_plan.h"
#include "graph/control.h"

// ---- One program --------------------------------------------------------------------------------

static mu_status check_results(const mu_pjrt_plan *plan, pj_loaded *loaded, int wanted)
{
    const pj_api *api = plan->client->api;
    pj_loaded_executable_args inner = PJ_ARGS(pj_loaded_executable_args, .loaded = loaded);
    MU_TRY(mu__pjrt_call(api, PJ_LOADED_GET_EXECUTABLE, &inner, plan->graph->name));
    pj_outputs_args outputs = PJ_ARGS(pj_outputs_args, .executable = inner.executable);
    const mu_status status = mu__pjrt_call(api, PJ_EXECUTABLE_NUM_OUTPUTS, &outputs, plan->graph->name);
    pj_executable_args end = PJ_ARGS(pj_executable_args, .executable = inner.executable);
    mu__pjrt_destroy(api, PJ_EXECUTABLE_DESTROY, &end);
    MU_TRY(status);
    if (outputs.n == (size_t)wanted)
        return MU_OK;
    return mu__error(MU_INTERNAL, "the plugin made a program with %zu results of '%s', which has %d", outputs.n,
                     plan->graph->name, wanted);
}

static mu_status device_ids(const mu_pjrt_programs *p, int64_t *ids)
{
    for (int i = 0; i < p->replicas * p->partitions; i++) {
        const mu_device *device = p->devices[i];
        const pj_api *api = ((const mu_pjrt_client *)device->engine_client)->api;
        pj_device_description_args of = PJ_ARGS(pj_device_description_args, .device = device->engine_device);
        MU_TRY(mu__pjrt_call(api, PJ_DEVICE_GET_DESCRIPTION, &of, device->name));
        pj_description_id_args id = PJ_ARGS(pj_description_id_args, .description = of.description);
        MU_TRY(mu__pjrt_call(api, PJ_DEVICE_DESCRIPTION_ID, &id, device->name));
        ids[i] = id.id;
    }
    return MU_OK;
}

static mu_status load(const mu_pjrt_plan *plan, const mu_pjrt_programs *p, int part, const mu_pjrt_text *text)
{
    char options[MU_PJRT_OPTIONS_BYTES];
    int64_t ids[MU_PJRT_MOST_REPLICAS];
    const int n = p->devices ? p->replicas : 1;
    if (p->devices)
        MU_TRY(device_ids(p, ids));
    mu__pjrt_dump(plan->graph->name, text);
    const size_t bytes = mu__pjrt_compile_options(n, p->partitions, p->devices ? ids : NULL, options);
    if (mu__pjrt_compile_text(plan->client, plan->graph->name, text, options, bytes, &p->loaded[part]) != MU_OK) {
        mu__pjrt_blame(text);
        if (mu_error_code() == MU_RESOURCE_EXHAUSTED)
            mu__pjrt_name_largest(plan, p);
        return mu_error_code();
    }
    MU_TRY(check_results(plan, p->loaded[part], p->cut.parts[part].n_left + (p->disputes.n > 0)));
    return mu__pjrt_check_memory(plan, p, p->loaded[part]);
}

// ---- The programs of a graph --------------------------------------------------------------------

static mu_pjrt_programs *reserve(mu_pjrt_plan *plan, int n, int partitions, mu_device *const *devices)
{
    const int all = n * partitions;
    if (all > MU_PJRT_MOST_REPLICAS) {
        mu__error(MU_RESOURCE_EXHAUSTED, "'%s' is to run on %d devices; a program runs on at most %d",
                  plan->graph->name, all, (int)MU_PJRT_MOST_REPLICAS);
        return NULL;
    }
    mu_pjrt_programs *p = mu__arena_alloc(&plan->memory, sizeof *p);
    if (!p || mu__pjrt_parts_of(plan->graph, n == MU_PJRT_ONE_BY_ONE, &plan->memory, &p->cut) != MU_OK)
        return NULL;
    p->replicas = n;
    p->partitions = partitions;
    p->specs = mu__arena_alloc(&plan->memory, sizeof *p->specs * ((size_t)p->cut.n_values + 1));
    p->loaded = mu__arena_alloc(&plan->memory, sizeof *p->loaded * (size_t)p->cut.n_parts);
    if (all > 1)
        p->devices = mu__arena_copy(&plan->memory, devices, sizeof(mu_device *) * (size_t)all);
    return p->specs && p->loaded && (all <= 1 || p->devices) ? p : NULL;
}

static void unload(const mu_pjrt_plan *plan, mu_pjrt_programs *p)
{
    for (int i = 0; p && i < p->cut.n_parts; i++) {
        pj_loaded_args args = PJ_ARGS(pj_loaded_args, .loaded = p->loaded[i]);
        if (p->loaded[i])
            mu__pjrt_destroy(plan->client->api, PJ_LOADED_DESTROY, &args);
        p->loaded[i] = NULL;
    }
    if (p)
        mu__free(p->disputes.items);
    for (mu_pjrt_run *run = p ? p->idle : NULL; run;) {
        mu_pjrt_run *next = run->next;
        mu__pjrt_run_free(run);
        run = next;
    }
}

static mu_status make(mu_pjrt_plan *plan, mu_pjrt_programs *p)
{
    mu_pjrt_text *texts = mu__calloc((size_t)p->cut.n_parts, sizeof *texts);
    mu_status status = texts ? mu__pjrt_emit(plan->graph, plan->inputs, &p->cut, p->replicas, p->partitions, texts,
                                             p->specs, &p->disputes)
                             : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; texts && i < p->cut.n_parts; i++) {
        if (status == MU_OK)
            status = load(plan, p, i, &texts[i]);
        mu__free(texts[i].items);
    }
    mu__free(texts);
    if (status != MU_OK)
        unload(plan, p);
    return status;
}

static mu_pjrt_programs *make_programs(mu_pjrt_plan *plan, int n, int partitions, mu_device *const *devices)
{
    const int64_t begin = mu__now_ns();
    mu_pjrt_programs *p = reserve(plan, n, partitions, devices);
    if (!p || make(plan, p) != MU_OK)
        return NULL;
    mu__log(MU_LOG_DEBUG, "'%s' as StableHLO for %s: %d program%s for %d replica%s of %d device%s in %.1f ms",
            plan->graph->name, plan->client->kind, p->cut.n_parts, p->cut.n_parts == 1 ? "" : "s", MU_MAX(n, 1),
            n > 1 ? "s" : "", partitions, partitions > 1 ? "s" : "", (double)(mu__now_ns() - begin) / 1e6);
    return p;
}

mu_pjrt_programs *mu__pjrt_programs(mu_pjrt_plan *plan, int n, int partitions, mu_device *const *devices)
{
    const int all = n * partitions;
    mu_pjrt_programs *_Atomic *place = all == 1                 ? &plan->alone
                                       : n == MU_PJRT_ONE_BY_ONE ? &plan->parts
                                                                 : &plan->together;
    mu_pjrt_programs *p = atomic_load_explicit(place, memory_order_acquire);
    if (!p) {
        pthread_mutex_lock(&plan->lock);
        p = atomic_load_explicit(place, memory_order_acquire);
        if (!p && (p = make_programs(plan, n, partitions, devices)) != NULL)
            atomic_store_explicit(place, p, memory_order_release);
        pthread_mutex_unlock(&plan->lock);
    }
    if (!p || (p->replicas == n && p->partitions == partitions &&
               (all <= 1 || memcmp(p->devices, devices, sizeof(mu_device *) * (size_t)all) == 0)))
        return p;
    mu__error(MU_INTERNAL, "the program of '%s' is for other devices", plan->graph->name);
    return NULL;
}

// ---- Plans --------------------------------------------------------------------------------------

void mu__pjrt_free(mu_plan *handle)
{
    mu_pjrt_plan *plan = (mu_pjrt_plan *)handle;
    if (!plan)
        return;
    unload(plan, plan->alone);
    unload(plan, plan->together);
    unload(plan, plan->parts);
    mu__pjrt_free((mu_plan *)plan->unrolled);
    mu_release(plan->graph);
    mu_release(plan->client);
    mu__arena_free(&plan->memory);
    pthread_mutex_destroy(&plan->lock);
    mu__free(plan);
}

// The function's inputs, followed by its variables.
static mu_status list_inputs(mu_pjrt_plan *plan, const mu_spec *inputs)
{
    const mu_graph *graph = plan->graph;
    const int n = plan->n_inputs + (int)graph->resources.n;
    plan->inputs = mu__arena_alloc(&plan->memory, sizeof *inputs * (size_t)(n + 1));
    if (!plan->inputs)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++)
        plan->inputs[i] = i < plan->n_inputs ? inputs[i] : graph->resources.items[i - plan->n_inputs]->spec;
    return mu__check_inputs(graph, plan->inputs, n);
}

mu_plan *mu__pjrt_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs)
{
    mu_pjrt_plan *plan = mu__calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    pthread_mutex_init(&plan->lock, NULL);
    plan->client = mu_retain(device->engine_client);
    plan->device = device;
    plan->graph = mu_retain(graph);
    plan->n_inputs = n_inputs;
    if (list_inputs(plan, inputs) == MU_OK && mu__pjrt_find_accesses(plan) == MU_OK)
        return (mu_plan *)plan;
    mu__pjrt_free((mu_plan *)plan);
    return NULL;
}

static mu_pjrt_plan *unroll(const mu_pjrt_plan *plan)
{
    mu_graph *graph = mu__graph_unroll(plan->graph, plan->inputs);
    mu_plan *made = graph ? mu__pjrt_compile(plan->device, graph, plan->inputs, plan->n_inputs) : NULL;
    mu_release(graph);
    return (mu_pjrt_plan *)made;
}

mu_pjrt_plan *mu__pjrt_plan_for_parts(mu_pjrt_plan *plan)
{
    bool loops = false;
    for (size_t i = 0; !loops && i < plan->graph->nodes.n; i++) {
        const mu_node *node = plan->graph->nodes.items[i];
        loops = node->op == &mu_op_while_loop && (node->flags & MU_OP_COLLECTIVE);
    }
    if (!loops)
        return plan;
    pthread_mutex_lock(&plan->lock);
    if (!plan->unrolled)
        plan->unrolled = unroll(plan);
    mu_pjrt_plan *unrolled = plan->unrolled;
    pthread_mutex_unlock(&plan->lock);
    return unrolled;
}
