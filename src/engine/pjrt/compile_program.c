// Compiles programs for a client's devices, and makes and frees plans.
#include "engine/pjrt/pjrt_plan.h"
#include "graph/control/control.h"

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

static int number_of(const mu_pjrt_span *span, const pj_device *device)
{
    int i = span->n_local - 1;
    while (i >= 0 && span->devices[i]->engine_device != device)
        i--;
    return i;
}

// The plugin takes arguments and gives results in its order of the devices, which need not be that of the replicas.
static mu_status find_order(const mu_pjrt_plan *plan, mu_pjrt_programs *p, pj_loaded *loaded)
{
    const int n = p->span.n_local;
    pj_loaded_devices_args own = PJ_ARGS(pj_loaded_devices_args, .loaded = loaded);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_LOADED_ADDRESSABLE_DEVICES, &own, plan->graph->name));
    p->order = mu__arena_alloc(&p->memory, sizeof *p->order * (size_t)n);
    if (!p->order)
        return MU_RESOURCE_EXHAUSTED;
    bool own_ones = own.n == (size_t)n;
    for (int i = 0; own_ones && i < n; i++)
        own_ones = (p->order[i] = number_of(&p->span, own.devices[i])) >= 0;
    if (own_ones)
        return MU_OK;
    return mu__error(
        MU_INTERNAL,
        "the plugin runs '%s' on %zu devices of this process, or on other ones than the %d that were chosen here",
        plan->graph->name, own.n, n);
}

static mu_status load(const mu_pjrt_plan *plan, mu_pjrt_programs *p, int part, const mu_pjrt_text *text)
{
    char options[MU_PJRT_OPTIONS_BYTES];
    mu__pjrt_dump(plan->graph->name, text);
    const size_t bytes =
        mu__pjrt_compile_options(p->ids ? p->span.replicas : 1, p->span.partitions, p->ids, plan->client->off, options);
    if (mu__pjrt_compile_text(plan->client, plan->graph->name, text, options, bytes, &p->loaded[part]) != MU_OK) {
        mu__pjrt_add_error_origin(text);
        if (p->span.partitions > 1 && mu_error_code() == MU_INTERNAL)
            mu__error_context("in '%s', which is divided among %d logical devices; if XLA cannot divide it so, split "
                              "another axis or tensor",
                              plan->graph->name, p->span.partitions);
        if (mu_error_code() == MU_RESOURCE_EXHAUSTED)
            mu__pjrt_name_largest(plan, p);
        return mu_error_code();
    }
    MU_TRY(check_results(plan, p->loaded[part], p->cut.parts[part].n_left + p->cut.parts[part].may_fail));
    if (p->span.devices)
        MU_TRY(find_order(plan, p, p->loaded[part]));
    return mu__pjrt_check_memory(plan, p, p->loaded[part]);
}

// ---- The programs of a graph --------------------------------------------------------------------

static int n_devices(const mu_pjrt_span *span) { return span->replicas * span->partitions; }

// A program for one device is for whichever is named at each run.
static bool is_placed(const mu_pjrt_span *span) { return span->ids || n_devices(span) > 1; }

static mu_status find_ids(const mu_pjrt_programs *p)
{
    for (int i = 0; i < n_devices(&p->span); i++) {
        if (p->span.ids)
            p->ids[i] = p->span.ids[i];
        else
            MU_TRY(mu__pjrt_device_id(p->span.devices[i], &p->ids[i]));
    }
    return MU_OK;
}

static mu_status copy_span(mu_pjrt_programs *p)
{
    mu_pjrt_span *span = &p->span;
    span->devices = mu__arena_copy(&p->memory, span->devices, sizeof(mu_device *) * (size_t)span->n_local);
    p->ids = mu__arena_alloc(&p->memory, sizeof *p->ids * (size_t)n_devices(span));
    if (!span->devices || !p->ids)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(find_ids(p));
    span->ids = span->ids ? p->ids : NULL;
    return MU_OK;
}

static mu_status reserve(const mu_pjrt_plan *plan, const mu_pjrt_span *span, mu_pjrt_programs *p)
{
    if (n_devices(span) > MU_PJRT_MOST_REPLICAS)
        return mu__error(MU_RESOURCE_EXHAUSTED, "'%s' is to run on %d devices; a program runs on at most %d",
                         plan->graph->name, n_devices(span), (int)MU_PJRT_MOST_REPLICAS);
    MU_TRY(mu__pjrt_parts_of(plan->graph, span->replicas == MU_PJRT_ONE_BY_ONE, &p->memory, &p->cut));
    p->span = *span;
    p->cut.joined = span->ids != NULL;
    p->specs = mu__arena_alloc(&p->memory, sizeof *p->specs * ((size_t)p->cut.n_values + 1));
    p->loaded = mu__arena_alloc(&p->memory, sizeof *p->loaded * (size_t)p->cut.n_parts);
    if (!p->specs || !p->loaded)
        return MU_RESOURCE_EXHAUSTED;
    if (is_placed(span))
        return copy_span(p);
    p->span.devices = NULL;
    return MU_OK;
}

void mu__pjrt_programs_free(const mu_pjrt_plan *plan, mu_pjrt_programs *p)
{
    if (!p)
        return;
    for (int i = 0; p->loaded && i < p->cut.n_parts; i++) {
        pj_loaded_args args = PJ_ARGS(pj_loaded_args, .loaded = p->loaded[i]);
        if (p->loaded[i] && !atomic_load(&plan->client->lost))
            mu__pjrt_destroy(plan->client->api, PJ_LOADED_DESTROY, &args);
    }
    for (mu_pjrt_run *run = p->idle; run;) {
        mu_pjrt_run *next = run->next;
        mu__pjrt_run_free(run);
        run = next;
    }
    mu__free(p->faults.items);
    mu__arena_free(&p->memory);
    mu__free(p);
}

// Comments name lines of the user's program, which other processes may have in another folder. (FNV-1a; Fowler, Noll,
// Vo.)
static int64_t hash_text(const mu_pjrt_text *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = text->items; *at;) {
        const char *end = strchr(at, '\n');
        const size_t n = end ? (size_t)(end - at) + 1 : strlen(at);
        const bool comment = strncmp(at + strspn(at, " "), "// ", 3) == 0;
        for (size_t i = 0; !comment && i < n; i++)
            hash = (hash ^ (unsigned char)at[i]) * UINT64_C(0x100000001b3);
        at += n;
    }
    return (int64_t)(hash | 1);
}

// Compiles the parts from `first` on, as far as their shapes are known.
static mu_status make(const mu_pjrt_plan *plan, mu_pjrt_programs *p, int first)
{
    mu_pjrt_text *texts = mu__calloc((size_t)p->cut.n_parts, sizeof *texts);
    mu_status status = texts ? mu__pjrt_emit(plan->graph, plan->inputs, &p->cut, p->span.replicas, p->span.partitions,
                                             texts, p->specs, &p->faults)
                             : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && p->span.ids)
        p->hash = hash_text(&texts[0]);
    for (int i = 0; texts && i < p->cut.n_parts; i++) {
        if (status == MU_OK && i >= first && i < p->cut.n_written)
            status = load(plan, p, i, &texts[i]);
        mu__free(texts[i].items);
    }
    mu__free(texts);
    return status;
}

static mu_status set_wholes(mu_pjrt_programs *p, const mu_pjrt_programs *before, int64_t whole)
{
    const int n = before->cut.n_wholes;
    int64_t *wholes = mu__arena_alloc(&p->memory, sizeof *wholes * ((size_t)n + 1));
    if (!wholes)
        return MU_RESOURCE_EXHAUSTED;
    if (n > 0)
        memcpy(wholes, before->cut.wholes, sizeof *wholes * (size_t)n);
    wholes[n] = whole;
    p->cut.wholes = wholes;
    p->cut.n_wholes = n + 1;
    return MU_OK;
}

mu_pjrt_programs *mu__pjrt_programs_new(const mu_pjrt_plan *plan, const mu_pjrt_span *span,
                                        const mu_pjrt_programs *before, int64_t whole)
{
    const int64_t begin = mu__now_ns();
    const int first = before ? before->cut.n_written : 0;
    mu_pjrt_programs *p = mu__calloc(1, sizeof *p);
    mu_status status = p ? reserve(plan, span, p) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && before)
        status = set_wholes(p, before, whole);
    if (status == MU_OK)
        status = make(plan, p, first);
    if (status != MU_OK) {
        mu__pjrt_programs_free(plan, p);
        return NULL;
    }
    const int n = p->cut.n_written - first;
    mu__log(MU_LOG_DEBUG, "'%s' as StableHLO for %s: %d program%s for %d replica%s of %d device%s%s in %.1f ms",
            plan->graph->name, plan->client->kind, n, n == 1 ? "" : "s", MU_MAX(span->replicas, 1),
            span->replicas > 1 ? "s" : "", span->partitions, span->partitions > 1 ? "s" : "",
            span->ids ? " of several processes" : "", (double)(mu__now_ns() - begin) / 1e6);
    return p;
}

static mu_pjrt_programs *_Atomic *slot_of(mu_pjrt_plan *plan, const mu_pjrt_span *span)
{
    return span->replicas == MU_PJRT_ONE_BY_ONE ? &plan->parts
           : span->ids                          ? &plan->shared
           : n_devices(span) == 1               ? &plan->alone
                                                : &plan->together;
}

static bool same_span(const mu_pjrt_programs *p, const mu_pjrt_span *span)
{
    const mu_pjrt_span *own = &p->span;
    if (own->replicas != span->replicas || own->partitions != span->partitions)
        return false;
    if (span->ids && memcmp(own->ids, span->ids, sizeof *span->ids * (size_t)n_devices(span)) != 0)
        return false;
    return !is_placed(span) || (own->n_local == span->n_local &&
                                memcmp(own->devices, span->devices, sizeof(mu_device *) * (size_t)own->n_local) == 0);
}

mu_pjrt_programs *mu__pjrt_known_programs(mu_pjrt_plan *plan, const mu_pjrt_span *span)
{
    mu_pjrt_programs *p = atomic_load_explicit(slot_of(plan, span), memory_order_acquire);
    return p && same_span(p, span) ? p : NULL;
}

mu_pjrt_programs *mu__pjrt_programs(mu_pjrt_plan *plan, const mu_pjrt_span *span)
{
    mu_pjrt_programs *_Atomic *slot = slot_of(plan, span);
    mu_pjrt_programs *p = atomic_load_explicit(slot, memory_order_acquire);
    if (!p) {
        pthread_mutex_lock(&plan->lock);
        p = atomic_load_explicit(slot, memory_order_acquire);
        if (!p && (p = mu__pjrt_programs_new(plan, span, NULL, 0)) != NULL)
            atomic_store_explicit(slot, p, memory_order_release);
        pthread_mutex_unlock(&plan->lock);
    }
    if (!p || same_span(p, span))
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
    mu__pjrt_programs_free(plan, plan->alone);
    mu__pjrt_programs_free(plan, plan->together);
    mu__pjrt_programs_free(plan, plan->parts);
    mu__pjrt_programs_free(plan, plan->shared);
    mu__pjrt_free_behind(plan);
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
