// What a run holds on each of its devices: inputs on their way there, values, the results as tensors.
//
// Runs are kept and used again, because a step may take less time than their memory would. Inputs are copied while the
// caller continues; the end of the run waits for that.
#include "engine/pjrt/pjrt_plan.h"
#include "ops/core/attrs.h"

// ---- Runs ---------------------------------------------------------------------------------------

static int most_values(const mu_pjrt_programs *p, bool results)
{
    int most = 0;
    for (int i = 0; i < p->cut.n_parts; i++)
        most = MU_MAX(most, (results ? p->cut.parts[i].n_left : p->cut.parts[i].n_taken) + 1); // the fault, the id
    return most;
}

static mu_status reserve_lane(mu_pjrt_run *run, mu_pjrt_lane *lane)
{
    const mu_pjrt_programs *p = run->programs;
    const size_t n_slots = (size_t)p->cut.n_values + 1, n_resources = run->plan->graph->resources.n + 1;
    lane->plan = run->plan;
    lane->programs = run->programs;
    lane->slots = mu__arena_alloc(&run->memory, sizeof *lane->slots * n_slots);
    lane->borrowed = mu__arena_alloc(&run->memory, sizeof *lane->borrowed * n_slots);
    lane->arguments = mu__arena_alloc(&run->memory, sizeof *lane->arguments * ((size_t)most_values(p, false) + 1));
    lane->results = mu__arena_alloc(&run->memory, sizeof *lane->results * ((size_t)most_values(p, true) + 1));
    lane->held = mu__arena_alloc(&run->memory, sizeof *lane->held * n_resources);
    lane->fresh = mu__arena_alloc(&run->memory, sizeof *lane->fresh * n_resources);
    lane->transfers = mu__arena_alloc(&run->memory, sizeof *lane->transfers * (size_t)(run->plan->n_inputs + 1));
    return lane->slots && lane->borrowed && lane->arguments && lane->results && lane->held && lane->fresh &&
                   lane->transfers
               ? MU_OK
               : MU_RESOURCE_EXHAUSTED;
}

static mu_pjrt_run *new_run(mu_pjrt_plan *plan, mu_pjrt_programs *programs)
{
    const int n = programs->span.n_local, partitions = programs->span.partitions;
    mu_pjrt_run *run = mu__calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->plan = plan;
    run->programs = programs;
    run->n = n;
    run->lanes = mu__arena_alloc(&run->memory, sizeof *run->lanes * (size_t)n);
    run->arguments = mu__arena_alloc(&run->memory, sizeof *run->arguments * (size_t)n);
    run->results = mu__arena_alloc(&run->memory, sizeof *run->results * (size_t)n);
    run->complete = mu__arena_alloc(&run->memory, sizeof *run->complete * (size_t)n);
    run->kept = mu__arena_alloc(&run->memory, sizeof *run->kept * (plan->graph->resources.n + 1));
    mu_status status =
        run->lanes && run->arguments && run->results && run->complete && run->kept ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n; i++) {
        status = reserve_lane(run, &run->lanes[i]);
        run->lanes[i].first = i % partitions > 0 ? &run->lanes[i - i % partitions] : NULL;
    }
    for (int i = 0; status == MU_OK && i < n; i++) {
        const mu_pjrt_lane *lane = &run->lanes[programs->order ? programs->order[i] : i];
        run->arguments[i] = lane->arguments;
        run->results[i] = lane->results;
    }
    if (status == MU_OK)
        return run;
    mu__pjrt_run_free(run);
    return NULL;
}

void mu__pjrt_run_free(mu_pjrt_run *run)
{
    mu__arena_free(&run->memory);
    mu__free(run);
}

mu_pjrt_run *mu__pjrt_run_take(mu_pjrt_plan *plan, mu_pjrt_programs *programs)
{
    pthread_mutex_lock(&plan->lock);
    mu_pjrt_run *run = programs->idle;
    if (run)
        programs->idle = run->next;
    pthread_mutex_unlock(&plan->lock);
    return run ? run : new_run(plan, programs);
}

// The elements that inputs have on the host stay for ever.
static void keep_inputs(const mu_pjrt_run *run)
{
    for (int i = 0; i < run->n; i++)
        for (int k = 0; !run->lanes[i].first && k < run->plan->n_inputs; k++)
            mu_retain(run->lanes[i].args->in[k]);
}

void mu__pjrt_run_give(mu_pjrt_run *run)
{
    if (run->shared)
        atomic_fetch_sub(&run->plan->client->n_shared, 1);
    run->shared = false;
    if (atomic_load(&run->plan->client->lost)) {
        keep_inputs(run);
        return; // its devices may still use the run's memory as well
    }
    pthread_mutex_lock(&run->plan->lock);
    run->next = run->programs->idle;
    run->programs->idle = run;
    pthread_mutex_unlock(&run->plan->lock);
}

// ---- Values -------------------------------------------------------------------------------------

// The memory of a tensor that is on the replica's first device already, and not a part of another; NULL: it has to be
// copied from the host.
static mu_pjrt_memory *on_device(const mu_pjrt_lane *lane, const mu_tensor *tensor)
{
    const mu_device *device = (lane->first ? lane->first : lane)->device;
    if (tensor->buffer->memory_space != device->memory_space)
        return NULL;
    mu_pjrt_memory *memory = tensor->buffer->handle;
    const bool whole = memory->spec.dtype == tensor->dtype && mu__shape_equal(&memory->spec.shape, &tensor->shape);
    return whole && memory->buffer ? memory : NULL;
}

static mu_status pass_in(mu_pjrt_lane *lane, int i)
{
    const mu_tensor *in = lane->args->in[i];
    const int slot = lane->programs->cut.first[lane->plan->graph->inputs.items[i]->id];
    mu_pjrt_memory *memory = on_device(lane, in);
    if (memory) {
        lane->slots[slot] = lane->first ? mu__pjrt_copy(memory, lane->device) : memory->buffer;
        lane->borrowed[slot] = true;
        return lane->slots[slot] ? MU_OK : mu_error_code();
    }
    const mu_view view = {.dtype = in->dtype, .shape = in->shape, .data = (void *)mu__host_read(in)};
    if (!view.data)
        return mu_error_code();
    return mu__pjrt_send((const mu_pjrt_memory_space *)lane->device->memory_space, &view, lane->plan->graph->name,
                         &lane->slots[slot], &lane->transfers[i]);
}

mu_status mu__pjrt_lane_begin(mu_pjrt_lane *lane, mu_device *device, const mu_run_args *args)
{
    lane->device = device;
    lane->args = args;
    lane->changed = lane->ended = false;
    for (size_t i = 0; !lane->first && i < mu__pjrt_n_results(lane->plan); i++)
        args->out[i] = NULL;
    for (int i = 0; i < lane->plan->n_inputs; i++)
        MU_TRY(pass_in(lane, i));
    return mu__pjrt_acquire(lane);
}

static mu_status copy_to_host(mu_pjrt_lane *lane, int slot, mu_tensor **out)
{
    const mu_spec *spec = &lane->programs->specs[slot];
    *out = mu__tensor_alloc(spec->dtype, &spec->shape);
    if (!*out)
        return MU_RESOURCE_EXHAUSTED;
    const mu_view view = {.dtype = spec->dtype, .shape = spec->shape, .data = mu__host_write(*out)};
    return mu__pjrt_download(lane->plan->client, lane->slots[slot], &view, lane->plan->graph->name);
}

static mu_status leave_on_device(mu_pjrt_lane *lane, int slot, mu_tensor **out)
{
    const mu_spec *spec = &lane->programs->specs[slot];
    mu_buffer *buffer = mu__buffer_at(lane->device->memory_space, spec);
    if (!buffer)
        return mu_error_code();
    ((mu_pjrt_memory *)buffer->handle)->buffer = lane->slots[slot];
    lane->borrowed[slot] = true;
    *out = mu__tensor_view(buffer, 0, spec->dtype, &spec->shape);
    mu_release(buffer);
    return *out ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// A variable's new value, which the result shares: the next write of the variable goes elsewhere.
static mu_status share(mu_pjrt_lane *lane, int slot, mu_tensor **out)
{
    const mu_spec *spec = &lane->programs->specs[slot];
    *out = mu__tensor_view(mu__pjrt_buffer_with(lane, slot), 0, spec->dtype, &spec->shape);
    return *out ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// An argument is its own result, as a tensor of its own: replicas that were given one tensor have a result each.
// Another value that is also held elsewhere, such as a variable's old value, is copied to the host.
static mu_status take_result(mu_pjrt_lane *lane, mu_edge edge, mu_tensor **out)
{
    const int slot = mu__pjrt_slot(lane->programs, edge), argument = mu__pjrt_argument(lane->plan, edge);
    if (argument >= 0) {
        const mu_tensor *in = lane->args->in[argument];
        *out = mu__tensor_view(in->buffer, in->offset, in->dtype, &in->shape);
        return *out ? MU_OK : MU_RESOURCE_EXHAUSTED;
    }
    if (!lane->borrowed[slot])
        return leave_on_device(lane, slot, out);
    return mu__pjrt_buffer_with(lane, slot) ? share(lane, slot, out) : copy_to_host(lane, slot, out);
}

mu_status mu__pjrt_lane_results(mu_pjrt_lane *lane)
{
    MU_TRY(mu__pjrt_find_fresh(lane));
    for (size_t i = 0; !lane->first && i < mu__pjrt_n_results(lane->plan); i++)
        MU_TRY(take_result(lane, lane->plan->graph->outputs.items[i], &lane->args->out[i]));
    return MU_OK;
}

void mu__pjrt_lane_empty(mu_pjrt_lane *lane)
{
    for (int i = 0; i < lane->programs->cut.n_values; i++) {
        if (!lane->borrowed[i])
            mu__pjrt_drop(lane->plan->client, &lane->slots[i]);
        lane->slots[i] = NULL;
        lane->borrowed[i] = false;
    }
    mu__pjrt_let_go(lane);
}

// The transfers' own errors are those of the programs that use them.
static void end_transfers(mu_pjrt_lane *lane)
{
    const mu_pjrt_plan *plan = lane->plan;
    for (int i = 0; i < plan->n_inputs; i++) {
        mu_error_value ignored;
        if (lane->transfers[i] && mu__pjrt_await(plan->client, lane->transfers[i], plan->graph->name) != MU_OK)
            mu__error_move(&ignored);
        lane->transfers[i] = NULL;
    }
}

void mu__pjrt_lane_end(mu_pjrt_lane *lane, mu_status status)
{
    mu_error_value cause;
    if (status != MU_OK)
        mu__error_move(&cause);
    end_transfers(lane);
    mu__pjrt_drop(lane->plan->client, &lane->fault);
    if (status != MU_OK)
        mu__error_raise(&cause);
    if (status != MU_OK)
        mu__pjrt_doubt(lane);
    lane->changed = false;
    for (size_t i = 0; !lane->first && status != MU_OK && i < mu__pjrt_n_results(lane->plan); i++) {
        mu_release(lane->args->out[i]);
        lane->args->out[i] = NULL;
    }
}

// ---- Executing ----------------------------------------------------------------------------------

static void take_results(mu_pjrt_lane *lane, const mu_pjrt_part *part)
{
    for (int i = 0; i < part->n_left; i++)
        lane->slots[part->left[i]] = lane->results[i];
    mu__pjrt_drop(lane->plan->client, &lane->fault); // an earlier part's
    if (part->may_fail)
        lane->fault = lane->results[part->n_left];
}

// Lists the arguments that would be taken over, but for tensors that share their memory; returns their number.
static size_t keep_shared(mu_pjrt_run *run, const mu_pjrt_part *part)
{
    size_t n = 0;
    for (int k = 0; k < part->n_donated; k++) {
        bool shared = false;
        for (int d = 0; d < run->n; d++)
            shared |= mu__pjrt_is_shared(&run->lanes[d], part->donated[k].resource);
        if (shared)
            run->kept[n++] = part->donated[k].argument;
    }
    return n;
}

mu_status mu__pjrt_execute(mu_pjrt_run *run, int number, int64_t launch)
{
    const mu_pjrt_programs *p = run->programs;
    const mu_pjrt_part *part = &p->cut.parts[number];
    for (int d = 0; d < run->n; d++)
        for (int i = 0; i < part->n_taken; i++)
            run->lanes[d].arguments[i] = run->lanes[d].slots[part->taken[i]];
    pj_execute_options options = PJ_ARGS(pj_execute_options, .launch_id = (int)(launch & INT32_MAX),
                                         .not_donated = run->kept, .n_not_donated = keep_shared(run, part));
    pj_execute_args args = PJ_ARGS(pj_execute_args, .loaded = p->loaded[number], .options = &options,
                                   .arguments = run->arguments, .n_devices = (size_t)run->n,
                                   .n_arguments = (size_t)part->n_taken + (p->span.replicas == MU_PJRT_ONE_BY_ONE),
                                   .outputs = run->results, .complete = run->complete,
                                   .device = p->span.devices ? NULL : run->lanes[0].device->engine_device);
    for (int d = 0; d < run->n; d++)
        mu__pjrt_lend(&run->lanes[d], part);
    const mu_status status = mu__pjrt_call_execute(run->plan->client, &args, run->plan->graph->name);
    if (status == MU_RESOURCE_EXHAUSTED)
        mu__pjrt_name_largest(run->plan, p);
    for (int d = 0; d < run->n; d++) {
        if (status == MU_OK)
            take_results(&run->lanes[d], part);
        else
            run->complete[d] = NULL;
        mu__pjrt_take_back(&run->lanes[d], part, status == MU_OK);
    }
    return status;
}

// The first failure on the devices of this process; 0: none. Of several the lowest number counts: what fails on other
// replicas further down is often only a consequence.
static mu_status first_fault(const mu_pjrt_run *run, int64_t *out)
{
    *out = 0;
    for (int d = 0; d < run->n; d++) {
        int64_t fault = 0;
        if (run->lanes[d].fault)
            MU_TRY(mu__pjrt_read_number(run->plan->client, run->lanes[d].fault, run->plan->graph->name, &fault));
        if (fault != 0 && (*out == 0 || fault < *out))
            *out = fault;
    }
    return MU_OK;
}

mu_status mu__pjrt_check_fault(const mu_pjrt_run *run)
{
    const mu_pjrt_programs *p = run->programs;
    int64_t fault = 0;
    MU_TRY(first_fault(run, &fault));
    const int64_t number = fault >> MU_HLO_FAULT_BITS, what = fault - (number << MU_HLO_FAULT_BITS);
    if (number < 1 || (size_t)number > p->faults.n)
        return MU_OK;
    const mu_pjrt_fault *failed = &p->faults.items[number - 1];
    mu__fault_raise(&failed->fault, what);
    mu__error_add_site(mu__node_site(failed->node));
    mu__error_context("in '%s'", run->plan->graph->name);
    return mu_error_code();
}
