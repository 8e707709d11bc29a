// Plans of the PJRT engine: compiling a program's text, passing tensors and variables in and out, running it.
//
// Variables live in the host's memory, as for every engine; a run copies them to the device and back. They
// are written only after the whole program has succeeded, so a failed run leaves them as they were.
#include "engine/pjrt/pjrt.h"

typedef struct pjrt_plan {
    mu_graph *graph;              // retained
    mu_device *device;
    mu_pjrt_client *client;
    mu_arena memory;
    mu_pjrt_state state;
    int n_arguments, n_results;
    mu_spec *outputs;             // [graph outputs]
    pj_loaded *program;
    pj_buffer **arguments, **results;  // of one run
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

// CompileOptionsProto for one replica on a device that is named at each run: executable_build_options (3) with
// device_ordinal (1) -1, num_replicas (4) and num_partitions (5) 1; compile_portable_executable (4).
static const char one_replica[] = "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01\x20\x01";

static mu_status check_results(pjrt_plan *plan)
{
    const pj_api *api = plan->client->api;
    pj_loaded_executable_args inner = PJ_ARGS(pj_loaded_executable_args, .loaded = plan->program);
    MU_TRY(mu__pjrt_call(api, PJ_LOADED_GET_EXECUTABLE, &inner, plan->graph->name));
    pj_outputs_args outputs = PJ_ARGS(pj_outputs_args, .executable = inner.executable);
    const mu_status status = mu__pjrt_call(api, PJ_EXECUTABLE_NUM_OUTPUTS, &outputs, plan->graph->name);
    pj_executable_args end = PJ_ARGS(pj_executable_args, .executable = inner.executable);
    mu__pjrt_destroy(api, PJ_EXECUTABLE_DESTROY, &end);
    MU_TRY(status);
    if (outputs.n == (size_t)plan->n_results)
        return MU_OK;
    return mu__error(MU_INTERNAL, "the plugin made a program with %zu results of '%s', which has %d", outputs.n, plan->graph->name,
                     plan->n_results);
}

static mu_status compile_text(pjrt_plan *plan, mu_program *program)
{
    static const char format[] = "mlir";
    pj_program source = PJ_ARGS(pj_program, .code = program->text.items, .code_bytes = program->text.n, .format = format,
                                .format_bytes = sizeof format - 1);
    pj_compile_args args = PJ_ARGS(pj_compile_args, .client = plan->client->client, .program = &source, .options = one_replica,
                                   .options_bytes = sizeof one_replica - 1);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_CLIENT_COMPILE, &args, plan->graph->name));
    plan->program = args.loaded;
    return check_results(plan);
}

static mu_status build(pjrt_plan *plan, const mu_spec *inputs)
{
    mu_program program;
    plan->outputs = mu__arena_alloc(&plan->memory, sizeof *plan->outputs * (plan->graph->outputs.n + 1));
    if (!plan->outputs)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(mu__pjrt_state_of(plan->graph, &plan->memory, &plan->state));
    MU_TRY(mu__pjrt_emit(plan->graph, inputs, &plan->state, &program, plan->outputs));
    plan->n_arguments = program.n_arguments;
    plan->n_results = program.n_results;
    plan->arguments = mu__arena_alloc(&plan->memory, sizeof *plan->arguments * (size_t)(plan->n_arguments + 1));
    plan->results = mu__arena_alloc(&plan->memory, sizeof *plan->results * (size_t)(plan->n_results + 1));
    const mu_status status = plan->arguments && plan->results ? compile_text(plan, &program) : MU_RESOURCE_EXHAUSTED;
    mu__log(MU_LOG_DEBUG, "'%s' as StableHLO: %zu bytes, %d arguments, %d results", plan->graph->name, program.text.n,
            plan->n_arguments, plan->n_results);
    mu__free(program.text.items);
    return status;
}

static void free_plan(mu_plan *handle)
{
    pjrt_plan *plan = (pjrt_plan *)handle;
    if (!plan)
        return;
    pj_loaded_args args = PJ_ARGS(pj_loaded_args, .loaded = plan->program);
    if (plan->program)
        mu__pjrt_destroy(plan->client->api, PJ_LOADED_DESTROY, &args);
    mu_release(plan->graph);
    mu__arena_free(&plan->memory);
    mu__free(plan);
}

static mu_plan *compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs)
{
    if (mu__check_inputs(graph, inputs, n_inputs) != MU_OK)
        return NULL;
    pjrt_plan *plan = mu__calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->device = device;
    plan->client = device->engine_client;
    plan->graph = mu_retain(graph);
    if (build(plan, inputs) == MU_OK)
        return (mu_plan *)plan;
    free_plan((mu_plan *)plan);
    return NULL;
}

// ---- Buffers ------------------------------------------------------------------------------------

static mu_status to_device(pjrt_plan *plan, int i, const mu_view *from)
{
    pj_from_host_args args = PJ_ARGS(pj_from_host_args, .client = plan->client->client, .data = from->data,
                                     .type = buffer_type(from->dtype), .dims = from->shape.dims, .n_dims = (size_t)from->shape.rank,
                                     .semantics = PJ_HOST_DURING_CALL, .device = plan->device->engine_device);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, &args, plan->graph->name));
    plan->arguments[i] = args.buffer;
    return mu__pjrt_await(plan->client->api, args.done, plan->graph->name);
}

// Row-major on this side, whatever the device's layout is.
static mu_status to_host(pjrt_plan *plan, int i, const mu_spec *spec, void *data)
{
    const int rank = spec->shape.rank;
    int64_t order[MU_MAX_RANK];
    for (int k = 0; k < rank; k++)
        order[k] = rank - 1 - k;
    pj_layout layout = PJ_ARGS(pj_layout, .tiled = PJ_ARGS(pj_tiled_layout, .minor_to_major = order, .n_minor_to_major = (size_t)rank));
    pj_to_host_args args = PJ_ARGS(pj_to_host_args, .source = plan->results[i], .layout = &layout, .data = data,
                                   .bytes = mu__spec_bytes(spec));
    if (args.bytes == 0)
        return MU_OK;
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_BUFFER_TO_HOST_BUFFER, &args, plan->graph->name));
    return mu__pjrt_await(plan->client->api, args.event, plan->graph->name);
}

static void drop_buffers(pjrt_plan *plan, pj_buffer **buffers, int n)
{
    for (int i = 0; i < n; i++) {
        pj_buffer_args args = PJ_ARGS(pj_buffer_args, .buffer = buffers[i]);
        if (buffers[i])
            mu__pjrt_destroy(plan->client->api, PJ_BUFFER_DESTROY, &args);
        buffers[i] = NULL;
    }
}

// ---- Running ------------------------------------------------------------------------------------

static mu_status pass_in(pjrt_plan *plan, const mu_run_args *run)
{
    const mu_graph *graph = plan->graph;
    int at = 0;
    for (size_t i = 0; i < graph->inputs.n; i++) {
        const mu_view view = {.dtype = run->in[i]->dtype, .shape = run->in[i]->shape, .data = mu__data(run->in[i])};
        MU_TRY(to_device(plan, at++, &view));
    }
    for (int i = 0; i < plan->state.n_taken; i++) {
        mu_resource *resource = graph->resources.items[plan->state.taken[i]];
        mu_view view;
        MU_TRY(resource->kind->view(resource, run->replica, &view));
        MU_TRY(to_device(plan, at++, &view));
    }
    return MU_OK;
}

static mu_status execute(pjrt_plan *plan)
{
    pj_buffer *const *const arguments[] = {plan->arguments};
    pj_buffer **const results[] = {plan->results};
    pj_event *complete = NULL;
    pj_execute_options options = PJ_ARGS(pj_execute_options, .launch_id = 0);
    pj_execute_args args = PJ_ARGS(pj_execute_args, .loaded = plan->program, .options = &options, .arguments = arguments,
                                   .n_devices = 1, .n_arguments = (size_t)plan->n_arguments, .outputs = results,
                                   .complete = &complete, .device = plan->device->engine_device);
    MU_TRY(mu__pjrt_call(plan->client->api, PJ_LOADED_EXECUTE, &args, plan->graph->name));
    return mu__pjrt_await(plan->client->api, complete, plan->graph->name);
}

static mu_status pass_outputs(pjrt_plan *plan, const mu_run_args *run)
{
    const size_t n = plan->graph->outputs.n;
    mu_status status = MU_OK;
    for (size_t i = 0; i < n; i++)
        run->out[i] = NULL;
    for (size_t i = 0; i < n && status == MU_OK; i++) {
        run->out[i] = mu__tensor_alloc(plan->outputs[i].dtype, &plan->outputs[i].shape);
        status = run->out[i] ? to_host(plan, (int)i, &plan->outputs[i], mu__data(run->out[i])) : MU_RESOURCE_EXHAUSTED;
    }
    for (size_t i = 0; i < n && status != MU_OK; i++) {
        mu_release(run->out[i]);
        run->out[i] = NULL;
    }
    return status;
}

static mu_status pass_state(pjrt_plan *plan, const mu_run_args *run)
{
    const mu_graph *graph = plan->graph;
    mu_status status = MU_OK;
    for (int i = 0; i < plan->state.n_left; i++) {
        mu_resource *resource = graph->resources.items[plan->state.left[i]];
        mu_view view = {0};
        if (status == MU_OK)
            status = resource->kind->view(resource, run->replica, &view);
        const mu_spec spec = {.dtype = view.dtype, .shape = view.shape};
        if (status == MU_OK)
            status = to_host(plan, (int)graph->outputs.n + i, &spec, view.data);
        if (status != MU_OK && resource->kind->mark)
            resource->kind->mark(resource, run->replica);
    }
    return status;
}

static mu_status run_plan(mu_plan *handle, const mu_run_args *run)
{
    pjrt_plan *plan = (pjrt_plan *)handle;
    const int64_t begin = mu__trace_on() ? mu__now_ns() : 0;
    mu_status status = MU_OK;
    if (run->collective && run->collective->size > 1)
        return mu__error(MU_UNIMPLEMENTED, "'%s' runs on %d replicas, but %s runs one; use mu_one_device_strategy(\"%s\")",
                         plan->graph->name, run->collective->size, plan->device->name, plan->device->name);
    MU_GO(pass_in(plan, run));
    MU_GO(execute(plan));
    MU_GO(pass_outputs(plan, run));
    MU_GO(pass_state(plan, run));
out:
    drop_buffers(plan, plan->arguments, plan->n_arguments);
    drop_buffers(plan, plan->results, plan->n_results);
    if (mu__trace_on())
        mu__span("op", "device program", run->replica, begin, mu__now_ns());
    return status;
}

static void close_device(mu_device *device)
{
    (void)device;  // what is the client's goes with it
}

const mu_engine mu__engine_pjrt = {
    .name = "pjrt",
    .compile = compile,
    .run = run_plan,
    .free = free_plan,
    .close_device = close_device,
};
