// Runs plans of the PJRT engine: passes inputs to the device, launches programs, fetches outputs.
//
// Variables stay on the device between runs (state.c), and so do results until somebody reads them. A single replica
// runs one program; each of several replicas runs the parts between collectives, and the host performs the collectives.
#include "engine/pjrt/plan.h"
#include "ops/core/loops.h"

// The value of a tensor that is on the device already, and not a part of another; NULL: it has to be copied there.
static pj_buffer *on_device(const mu_pjrt_plan *plan, const mu_tensor *tensor)
{
    if (tensor->buffer->place != plan->device->place)
        return NULL;
    const mu_pjrt_memory *memory = tensor->buffer->handle;
    const bool whole = memory->spec.dtype == tensor->dtype && mu__shape_equal(&memory->spec.shape, &tensor->shape);
    return whole ? memory->buffer : NULL;
}

static mu_status pass_in(const mu_pjrt_plan *plan, mu_pjrt_programs *p, const mu_run_args *run)
{
    for (int i = 0; i < plan->n_inputs; i++) {
        const mu_tensor *in = run->in[i];
        const int slot = p->cut.first[plan->graph->inputs.items[i]->id];
        p->slots[slot] = on_device(plan, in);
        p->borrowed[slot] = p->slots[slot] != NULL;
        if (p->borrowed[slot])
            continue;
        const mu_view view = {.dtype = in->dtype, .shape = in->shape, .data = (void *)mu__host_read(in)};
        if (!view.data)
            return mu_error_code();
        MU_TRY(mu__pjrt_upload((const mu_pjrt_place *)plan->device->place, &view, plan->graph->name, &p->slots[slot]));
    }
    return MU_OK;
}

static mu_status execute(mu_pjrt_plan *plan, mu_pjrt_programs *p, int part_number)
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
    mu__pjrt_lend(plan, part);
    const mu_status status = mu__pjrt_call(plan->client->api, PJ_LOADED_EXECUTE, &args, plan->graph->name);
    for (int i = 0; status == MU_OK && i < part->n_left; i++)
        p->slots[part->left[i]] = p->results[i];
    mu__pjrt_take_back(plan, p, part, status == MU_OK);
    return status == MU_OK ? mu__pjrt_await(plan->client->api, complete, plan->graph->name) : status;
}

static mu_view host_view(const mu_tensor *tensor)
{
    return (mu_view){.dtype = tensor->dtype, .shape = tensor->shape, .data = mu__host_write(tensor)};
}

// Performs a collective on the host: runs the op's own kernel on copies of the values.
static mu_status reduce_on_host(const mu_pjrt_plan *plan, mu_pjrt_programs *p, const mu_node *node,
                                const mu_run_args *run)
{
    static const mu_team alone = {.n_threads = 1};
    const int n = node->n_in + node->n_out;
    const char *what = plan->graph->name;
    mu_status status = MU_RESOURCE_EXHAUSTED;
    mu_tensor **tensors = mu__calloc((size_t)n + 1, sizeof *tensors);
    mu_view *views = mu__calloc((size_t)n + 1, sizeof *views);
    for (int i = 0; tensors && views && i < n; i++) {
        const int slot = i < node->n_in ? mu__pjrt_slot(p, node->in[i]) : p->cut.first[node->id] + i - node->n_in;
        if (!(tensors[i] = mu__tensor_alloc(p->specs[slot].dtype, &p->specs[slot].shape)))
            goto out;
        views[i] = host_view(tensors[i]);
        if (i < node->n_in)
            MU_GO(mu__pjrt_download(plan->client, p->slots[slot], &views[i], what));
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
    MU_GO(mu__run_direct(&kernel));
    for (int i = 0; i < node->n_out; i++)
        MU_GO(mu__pjrt_upload((const mu_pjrt_place *)plan->device->place, &views[node->n_in + i], what,
                              &p->slots[p->cut.first[node->id] + i]));
out:
    for (int i = 0; tensors && i < n; i++)
        mu_release(tensors[i]);
    mu__free(tensors);
    mu__free(views);
    return status;
}

static mu_status run_parts(mu_pjrt_plan *plan, mu_pjrt_programs *p, const mu_run_args *run)
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
static size_t n_results(const mu_pjrt_plan *plan)
{
    return plan->graph->outputs.n - plan->graph->resources.n;
}

static mu_status copy_to_host(const mu_pjrt_plan *plan, mu_pjrt_programs *p, int slot, mu_tensor **out)
{
    *out = mu__tensor_alloc(p->specs[slot].dtype, &p->specs[slot].shape);
    if (!*out)
        return MU_RESOURCE_EXHAUSTED;
    const mu_view view = host_view(*out);
    return mu__pjrt_download(plan->client, p->slots[slot], &view, plan->graph->name);
}

static mu_status leave_on_device(const mu_pjrt_plan *plan, mu_pjrt_programs *p, int slot, mu_tensor **out)
{
    mu_buffer *buffer = mu__buffer_at(plan->device->place, &p->specs[slot]);
    if (!buffer)
        return mu_error_code();
    mu_pjrt_memory *memory = buffer->handle;
    memory->buffer = p->slots[slot];
    p->borrowed[slot] = true;
    *out = mu__tensor_view(buffer, 0, p->specs[slot].dtype, &p->specs[slot].shape);
    mu_release(buffer);
    return *out ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// A value that somebody else has too is copied to the host.
static mu_status pass_outputs(const mu_pjrt_plan *plan, mu_pjrt_programs *p, const mu_run_args *run)
{
    for (size_t i = 0; i < n_results(plan); i++) {
        const int slot = mu__pjrt_slot(p, plan->graph->outputs.items[i]);
        MU_TRY((p->borrowed[slot] ? copy_to_host : leave_on_device)(plan, p, slot, &run->out[i]));
    }
    return MU_OK;
}

static void empty_slots(const mu_pjrt_plan *plan, mu_pjrt_programs *p)
{
    for (int i = 0; i < p->cut.n_values; i++) {
        if (!p->borrowed[i])
            mu__pjrt_drop(plan->client, &p->slots[i]);
        p->slots[i] = NULL;
        p->borrowed[i] = false;
    }
}

static mu_status run_plan(mu_plan *handle, const mu_run_args *run)
{
    mu_pjrt_plan *plan = (mu_pjrt_plan *)handle;
    const bool split = run->collective && run->collective->size > 1;
    mu_pjrt_programs *p = split ? &plan->split : &plan->whole;
    const int64_t begin = mu__trace_on() ? mu__now_ns() : 0;
    mu_status status = MU_OK;
    for (size_t i = 0; i < n_results(plan); i++)
        run->out[i] = NULL;
    MU_TRY(mu__pjrt_programs(plan, p, split, run->replica_id));
    MU_GO(pass_in(plan, p, run));
    MU_GO(mu__pjrt_acquire(plan, p, run->replica));
    MU_GO(run_parts(plan, p, run));
    MU_GO(mu__pjrt_find_fresh(plan, p));
    MU_GO(pass_outputs(plan, p, run));
    MU_GO(mu__pjrt_commit(plan, run->replica));
out:
    empty_slots(plan, p);
    mu__pjrt_release(plan, run->replica, status);
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
    .compile = mu__pjrt_compile,
    .run = run_plan,
    .free = mu__pjrt_free,
    .close_device = close_device,
};
