// Plans of the PJRT engine: compiles a program's text, transfers tensors and variables, and runs it.
//
// Variables live in the host's memory, as for every engine; a run copies them to the device and back. They are
// written only after every program has succeeded, so a failed run leaves them unchanged. A single replica runs one
// program; each of several replicas runs the parts between collectives, and the host performs the collectives.
#include "engine/pjrt/pjrt.h"
#include "ops/core/loops.h"

// The compiled programs of a graph, whole or split at its collectives.
typedef struct programs {
    bool ready;
    mu_pjrt_parts cut;
    mu_spec *specs;               // [slots]
    pj_loaded **loaded;           // [parts]
    pj_buffer **slots;            // values of one run
    pj_buffer **arguments, **results;  // values of one execution
} programs;

typedef struct pjrt_plan {
    mu_graph *graph;              // retained; pure
    int n_inputs;                 // of the function; the variables of graph->resources follow them
    mu_device *device;
    mu_pjrt_client *client;
    mu_arena memory;
    mu_spec *inputs;
    programs whole, split;        // compiled when a run first needs them
} pjrt_plan;

static int buffer_type(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F32: return PJ_F32;
    case MU_F64: return PJ_F64;
    case MU_F16: return PJ_F16;
    case MU_BF16: return PJ_BF16;
    case MU_I64: return PJ_S64;
    case MU_I32: return PJ_S32;
    case MU_I16: return PJ_S16;
    case MU_I8: return PJ_S8;
    case MU_U8: return PJ_U8;
    case MU_BOOL: return PJ_PRED;
    default: return 0;
    }
}

// ---- Compiling ----------------------------------------------------------------------------------

// CompileOptionsProto for one replica on a device chosen at each run: executable_build_options (3) with
// device_ordinal (1) -1, num_replicas (4) and num_partitions (5) 1; compile_portable_executable (4).
static const char one_replica[] = "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01\x20\x01";

static mu_status check_results(pjrt_plan *plan, pj_loaded *loaded, int wanted)
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

static mu_status load(pjrt_plan *plan, const mu_pjrt_part *part, const mu_pjrt_text *text, pj_loaded **out)
{
    static const char format[] = "mlir";
    pj_program source = PJ_ARGS(pj_program, .code = text->items, .code_bytes = text->n, .format = format,
                                .format_bytes = sizeof format - 1);
    pj_compile_args args = PJ_ARGS(pj_compile_args, .client = plan->client->client, .program = &source,
                                   .options = one_replica, .options_bytes = sizeof one_replica - 1);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_CLIENT_COMPILE, &args, plan->graph->name));
    *out = args.loaded;
    return check_results(plan, *out, part->n_left);
}

static mu_status reserve(pjrt_plan *plan, programs *p, mu_pjrt_text **texts)
{
    const size_t n_slots = (size_t)p->cut.n_values + 1, n_parts = (size_t)p->cut.n_parts;
    p->specs = mu__arena_alloc(&plan->memory, sizeof *p->specs * n_slots);
    p->slots = mu__arena_alloc(&plan->memory, sizeof *p->slots * n_slots);
    p->arguments = mu__arena_alloc(&plan->memory, sizeof *p->arguments * n_slots);
    p->results = mu__arena_alloc(&plan->memory, sizeof *p->results * n_slots);
    p->loaded = mu__arena_alloc(&plan->memory, sizeof *p->loaded * n_parts);
    *texts = mu__arena_alloc(&plan->memory, sizeof **texts * n_parts);
    return p->specs && p->slots && p->arguments && p->results && p->loaded && *texts ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void unload(const pjrt_plan *plan, programs *p)
{
    for (int i = 0; p->loaded && i < p->cut.n_parts; i++) {
        pj_loaded_args args = PJ_ARGS(pj_loaded_args, .loaded = p->loaded[i]);
        if (p->loaded[i])
            mu__pjrt_destroy(plan->client->api, PJ_LOADED_DESTROY, &args);
        p->loaded[i] = NULL;
    }
}

static mu_status make_programs(pjrt_plan *plan, programs *p, bool split, int replica)
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

static void free_plan(mu_plan *handle)
{
    pjrt_plan *plan = (pjrt_plan *)handle;
    if (!plan)
        return;
    unload(plan, &plan->whole);
    unload(plan, &plan->split);
    mu_release(plan->graph);
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
static mu_status list_inputs(pjrt_plan *plan, const mu_spec *inputs)
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

static mu_plan *compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs)
{
    pjrt_plan *plan = mu__calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->device = device;
    plan->client = device->engine_client;
    plan->graph = mu_retain(graph);
    plan->n_inputs = n_inputs;
    if (list_inputs(plan, inputs) == MU_OK &&
        (depends_on_replicas(graph) || make_programs(plan, &plan->whole, false, 0) == MU_OK))
        return (mu_plan *)plan;
    free_plan((mu_plan *)plan);
    return NULL;
}

// ---- Buffers ------------------------------------------------------------------------------------

static void drop(const pjrt_plan *plan, pj_buffer **buffer)
{
    pj_buffer_args args = PJ_ARGS(pj_buffer_args, .buffer = *buffer);
    if (*buffer)
        mu__pjrt_destroy(plan->client->api, PJ_BUFFER_DESTROY, &args);
    *buffer = NULL;
}

static mu_status to_device(const pjrt_plan *plan, const mu_view *from, pj_buffer **out)
{
    pj_from_host_args args =
        PJ_ARGS(pj_from_host_args, .client = plan->client->client, .data = from->data, .type = buffer_type(from->dtype),
                .dims = from->shape.dims, .n_dims = (size_t)from->shape.rank, .semantics = PJ_HOST_DURING_CALL,
                .device = plan->device->engine_device);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, &args, plan->graph->name));
    drop(plan, out);
    *out = args.buffer;
    return mu__pjrt_await(plan->client->api, args.done, plan->graph->name);
}

// Row-major on the host, whatever the device's layout is.
static mu_status to_host(const pjrt_plan *plan, pj_buffer *from, const mu_view *out)
{
    const int rank = out->shape.rank;
    int64_t order[MU_MAX_RANK];
    for (int k = 0; k < rank; k++)
        order[k] = rank - 1 - k;
    pj_layout layout = PJ_ARGS(
        pj_layout, .tiled = PJ_ARGS(pj_tiled_layout, .minor_to_major = order, .n_minor_to_major = (size_t)rank));
    pj_to_host_args args = PJ_ARGS(pj_to_host_args, .source = from, .layout = &layout, .data = out->data,
                                   .bytes = (size_t)mu__elements(&out->shape) * mu_dtype_bytes(out->dtype));
    if (args.bytes == 0)
        return MU_OK;
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_BUFFER_TO_HOST_BUFFER, &args, plan->graph->name));
    return mu__pjrt_await(plan->client->api, args.event, plan->graph->name);
}

// ---- Running ------------------------------------------------------------------------------------

static mu_view view_of(const mu_tensor *tensor)
{
    return (mu_view){.dtype = tensor->dtype, .shape = tensor->shape, .data = mu__host_write(tensor)};
}

static int slot_of(const programs *p, mu_edge edge) { return p->cut.first[edge.node->id] + edge.output; }

static mu_status pass_in(const pjrt_plan *plan, programs *p, const mu_run_args *run)
{
    const mu_graph *graph = plan->graph;
    for (int i = 0; i < (int)graph->inputs.n; i++) {
        mu_resource *resource = i < plan->n_inputs ? NULL : graph->resources.items[i - plan->n_inputs];
        mu_view view;
        if (resource)
            MU_TRY(resource->kind->view(resource, run->replica, &view));
        else
            view = view_of(run->in[i]);
        MU_TRY(to_device(plan, &view, &p->slots[p->cut.first[graph->inputs.items[i]->id]]));
    }
    return MU_OK;
}

static mu_status execute(const pjrt_plan *plan, programs *p, int part_number)
{
    const mu_pjrt_part *part = &p->cut.parts[part_number];
    for (int i = 0; i < part->n_taken; i++)
        p->arguments[i] = p->slots[part->taken[i]];
    pj_buffer *const *const arguments[] = {p->arguments};
    pj_buffer **const results[] = {p->results};
    pj_event *complete = NULL;
    pj_execute_options options = PJ_ARGS(pj_execute_options, .launch_id = 0);
    pj_execute_args args = PJ_ARGS(pj_execute_args, .loaded = p->loaded[part_number], .options = &options,
                                   .arguments = arguments, .n_devices = 1, .n_arguments = (size_t)part->n_taken,
                                   .outputs = results, .complete = &complete, .device = plan->device->engine_device);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_LOADED_EXECUTE, &args, plan->graph->name));
    for (int i = 0; i < part->n_left; i++) {
        drop(plan, &p->slots[part->left[i]]);
        p->slots[part->left[i]] = p->results[i];
    }
    return mu__pjrt_await(plan->client->api, complete, plan->graph->name);
}

// Performs a collective on the host: runs the op's own kernel on copies of the values.
static mu_status reduce_on_host(const pjrt_plan *plan, programs *p, const mu_node *node, const mu_run_args *run)
{
    static const mu_team alone = {.n_threads = 1};
    const int n = node->n_in + node->n_out;
    mu_status status = MU_RESOURCE_EXHAUSTED;
    mu_tensor **tensors = mu__calloc((size_t)n + 1, sizeof *tensors);
    mu_view *views = mu__calloc((size_t)n + 1, sizeof *views);
    for (int i = 0; tensors && views && i < n; i++) {
        const int slot = i < node->n_in ? slot_of(p, node->in[i]) : p->cut.first[node->id] + i - node->n_in;
        if (!(tensors[i] = mu__tensor_alloc(p->specs[slot].dtype, &p->specs[slot].shape)))
            goto out;
        views[i] = view_of(tensors[i]);
        if (i < node->n_in)
            MU_GO(to_host(plan, p->slots[slot], &views[i]));
    }
    if (!tensors || !views)
        goto out;
    const mu_kernel kernel = {.op = node->op,
                              .attrs = node->attrs,
                              .n_in = node->n_in,
                              .n_out = node->n_out,
                              .in = views,
                              .out = views + node->n_in,
                              .team = &alone,
                              .collective = run->collective,
                              .number = node->number,
                              .replica = run->replica_id};
    MU_GO(node->op->ref(&kernel));
    mu__put_end();
    for (int i = 0; i < node->n_out; i++)
        MU_GO(to_device(plan, &views[node->n_in + i], &p->slots[p->cut.first[node->id] + i]));
out:
    for (int i = 0; tensors && i < n; i++)
        mu_release(tensors[i]);
    mu__free(tensors);
    mu__free(views);
    return status;
}

static mu_status run_parts(const pjrt_plan *plan, programs *p, const mu_run_args *run)
{
    const mu_graph *graph = plan->graph;
    for (int i = 0; i < p->cut.n_parts; i++) {
        const int end = p->cut.parts[i].end;
        MU_TRY(execute(plan, p, i));
        if (end < (int)graph->nodes.n)
            MU_TRY(reduce_on_host(plan, p, graph->nodes.items[end], run));
    }
    return MU_OK;
}

// The number of outputs of the function itself; the variables follow them.
static size_t n_results(const pjrt_plan *plan)
{
    return plan->graph->outputs.n - plan->graph->resources.n;
}

static mu_status pass_outputs(const pjrt_plan *plan, programs *p, const mu_run_args *run)
{
    const mu_graph *graph = plan->graph;
    for (size_t i = 0; i < n_results(plan); i++) {
        const int slot = slot_of(p, graph->outputs.items[i]);
        run->out[i] = mu__tensor_alloc(p->specs[slot].dtype, &p->specs[slot].shape);
        if (!run->out[i])
            return MU_RESOURCE_EXHAUSTED;
        const mu_view view = view_of(run->out[i]);
        MU_TRY(to_host(plan, p->slots[slot], &view));
    }
    return MU_OK;
}

// Skips variables whose output is their own input: the function did not write them.
static mu_status pass_state(const pjrt_plan *plan, programs *p, const mu_run_args *run)
{
    const mu_graph *graph = plan->graph;
    mu_status status = MU_OK;
    for (size_t i = 0; i < graph->resources.n; i++) {
        mu_resource *resource = graph->resources.items[i];
        const mu_edge left = graph->outputs.items[n_results(plan) + i];
        mu_view view = {0};
        if (left.node == graph->inputs.items[(size_t)plan->n_inputs + i])
            continue;
        if (status == MU_OK)
            status = resource->kind->view(resource, run->replica, &view);
        if (status == MU_OK)
            status = to_host(plan, p->slots[slot_of(p, left)], &view);
        if (status != MU_OK && resource->kind->poison)
            resource->kind->poison(resource, run->replica);
    }
    return status;
}

static mu_status run_plan(mu_plan *handle, const mu_run_args *run)
{
    pjrt_plan *plan = (pjrt_plan *)handle;
    const bool split = run->collective && run->collective->size > 1;
    programs *p = split ? &plan->split : &plan->whole;
    const int64_t begin = mu__trace_on() ? mu__now_ns() : 0;
    mu_status status = MU_OK;
    for (size_t i = 0; i < n_results(plan); i++)
        run->out[i] = NULL;
    MU_TRY(make_programs(plan, p, split, run->replica_id));
    MU_GO(pass_in(plan, p, run));
    MU_GO(run_parts(plan, p, run));
    MU_GO(pass_outputs(plan, p, run));
    MU_GO(pass_state(plan, p, run));
out:
    for (int i = 0; i < p->cut.n_values; i++)
        drop(plan, &p->slots[i]);
    for (size_t i = 0; status != MU_OK && i < n_results(plan); i++) {
        mu_release(run->out[i]);
        run->out[i] = NULL;
    }
    if (mu__trace_on())
        mu__span("op", "device program", run->replica, begin, mu__now_ns());
    return status;
}

static void close_device(mu_device *device)
{
    (void)device;  // the device's state belongs to the client
}

static mu_graph *lower(const mu_graph *graph)
{
    mu_graph *whole = mu__graph_inline(graph, true), *pure = whole ? mu__pass_state(whole) : NULL;
    mu_release(whole);
    return pure;
}

const mu_engine mu__engine_pjrt = {
    .name = "pjrt",
    .lower = lower,
    .compile = compile,
    .run = run_plan,
    .free = free_plan,
    .close_device = close_device,
};
