// Compiles a program's text for a device, and makes and frees plans.
#include "engine/pjrt/plan.h"

// CompileOptionsProto for one replica on a device chosen at each run: executable_build_options (3) with
// device_ordinal (1) -1, num_replicas (4) and num_partitions (5) 1; compile_portable_executable (4).
static const char one_replica[] = "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01\x20\x01";

static mu_status check_results(mu_pjrt_plan *plan, pj_loaded *loaded, int wanted)
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

static mu_status load(mu_pjrt_plan *plan, const mu_pjrt_part *part, const mu_pjrt_text *text, pj_loaded **out)
{
    static const char format[] = "mlir";
    mu__pjrt_dump(plan->graph->name, text);
    pj_program source = PJ_ARGS(pj_program, .code = text->items, .code_bytes = text->n, .format = format,
                                .format_bytes = sizeof format - 1);
    pj_compile_args args = PJ_ARGS(pj_compile_args, .client = plan->client->client, .program = &source,
                                   .options = one_replica, .options_bytes = sizeof one_replica - 1);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_CLIENT_COMPILE, &args, plan->graph->name));
    *out = args.loaded;
    return check_results(plan, *out, part->n_left);
}

static mu_status reserve(mu_pjrt_plan *plan, mu_pjrt_programs *p, mu_pjrt_text **texts)
{
    const size_t n_slots = (size_t)p->cut.n_values + 1, n_parts = (size_t)p->cut.n_parts;
    p->borrowed = mu__arena_alloc(&plan->memory, sizeof *p->borrowed * n_slots);
    p->specs = mu__arena_alloc(&plan->memory, sizeof *p->specs * n_slots);
    p->slots = mu__arena_alloc(&plan->memory, sizeof *p->slots * n_slots);
    p->arguments = mu__arena_alloc(&plan->memory, sizeof *p->arguments * n_slots);
    p->results = mu__arena_alloc(&plan->memory, sizeof *p->results * n_slots);
    p->loaded = mu__arena_alloc(&plan->memory, sizeof *p->loaded * n_parts);
    *texts = mu__arena_alloc(&plan->memory, sizeof **texts * n_parts);
    return p->specs && p->slots && p->borrowed && p->arguments && p->results && p->loaded && *texts
               ? MU_OK
               : MU_RESOURCE_EXHAUSTED;
}

static void unload(const mu_pjrt_plan *plan, mu_pjrt_programs *p)
{
    for (int i = 0; p->loaded && i < p->cut.n_parts; i++) {
        pj_loaded_args args = PJ_ARGS(pj_loaded_args, .loaded = p->loaded[i]);
        if (p->loaded[i])
            mu__pjrt_destroy(plan->client->api, PJ_LOADED_DESTROY, &args);
        p->loaded[i] = NULL;
    }
}

mu_status mu__pjrt_programs(mu_pjrt_plan *plan, mu_pjrt_programs *p, bool split, int replica)
{
    mu_pjrt_text *texts = NULL;
    const int64_t begin = mu__now_ns();
    if (p->ready)
        return MU_OK;
    MU_TRY(mu__pjrt_parts_of(plan->graph, split, &plan->memory, &p->cut));
    MU_TRY(reserve(plan, p, &texts));
    mu_status status = mu__pjrt_emit(plan->graph, plan->inputs, &p->cut, replica, texts, p->specs);
    for (int i = 0; i < p->cut.n_parts; i++) {
        if (status == MU_OK)
            status = load(plan, &p->cut.parts[i], &texts[i], &p->loaded[i]);
        mu__free(texts[i].items);
    }
    p->ready = status == MU_OK;
    if (!p->ready)
        unload(plan, p);
    mu__log(MU_LOG_DEBUG, "'%s' as StableHLO for %s: %d programs in %.1f ms", plan->graph->name, plan->device->name,
            p->cut.n_parts, (double)(mu__now_ns() - begin) / 1e6);
    return status;
}

void mu__pjrt_free(mu_plan *handle)
{
    mu_pjrt_plan *plan = (mu_pjrt_plan *)handle;
    if (!plan)
        return;
    unload(plan, &plan->whole);
    unload(plan, &plan->split);
    mu_release(plan->graph);
    mu_release(plan->client);
    mu__arena_free(&plan->memory);
    mu__free(plan);
}

// A graph that depends on the replicas is compiled at its first run, when their number and the replica's id are
// known.
static bool depends_on_replicas(const mu_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++)
        if ((graph->nodes.items[i]->flags & MU_OP_COLLECTIVE) || graph->nodes.items[i]->op == &mu_op_replica_id)
            return true;
    return false;
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
    plan->device = device;
    plan->client = mu_retain(device->engine_client);
    plan->graph = mu_retain(graph);
    plan->n_inputs = n_inputs;
    if (list_inputs(plan, inputs) == MU_OK && mu__pjrt_find_accesses(plan) == MU_OK &&
        (depends_on_replicas(graph) || mu__pjrt_programs(plan, &plan->whole, false, 0) == MU_OK))
        return (mu_plan *)plan;
    mu__pjrt_free((mu_plan *)plan);
    return NULL;
}
