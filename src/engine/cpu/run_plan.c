// Runs a plan: binds the views to addresses, then calls one kernel after the other.
//
// A run allocates only the buffers of its results. If a step fails, the variables that steps up to it write are
// invalidated (poison); a run that fails before its first write leaves every variable unchanged.
#include "engine/cpu/plan.h"
#include "ops/core/loops.h"

// Memory that all plans of a device share, one block for each nesting depth of bodies: at each depth only one plan
// runs at a time, on the device's thread.
typedef struct cpu_arena {
    void *data;
    size_t bytes;
    // Memory of the collective that the device last worked with, for the buckets; NULL: the collective provides none.
    mu_buffer *shared;
    size_t shared_bytes;
    const mu_collective *shared_of;
} cpu_arena;

static char *device_arena(mu_device *device, int depth, size_t bytes)
{
    cpu_arena *arena = device->engine_device;
    if (!arena && !(arena = device->engine_device = mu__calloc(MU_MAX_DEPTH + 1, sizeof *arena)))
        return NULL;
    arena += depth;
    if (arena->bytes < bytes || !arena->data) {
        void *data = mu__alloc_data(bytes);
        if (!data)
            return NULL;
        mu__free_data(arena->data, arena->bytes);
        arena->data = data;
        arena->bytes = bytes;
    }
    return arena->data;
}

// Returns memory for the buckets that other processes on the host can address, if the collective provides it.
static char *shared_memory(const mu_plan *plan, const cpu_call *call)
{
    mu_collective *collective = call->run->collective;
    cpu_arena *arena = (cpu_arena *)plan->device->engine_device + call->depth;
    if (!collective || !collective->memory || plan->shared_bytes == 0)
        return NULL;
    if (arena->shared_of != collective || arena->shared_bytes < plan->shared_bytes) {
        mu_release(arena->shared);
        arena->shared = collective->memory(collective, plan->shared_bytes);
        arena->shared_bytes = plan->shared_bytes;
        arena->shared_of = collective;
    }
    return arena->shared ? arena->shared->data : NULL;
}

void mu__cpu_close_device(mu_device *device)
{
    cpu_arena *arena = device->engine_device;
    for (int depth = 0; arena && depth <= MU_MAX_DEPTH; depth++) {
        if (arena[depth].data)
            mu__free_data(arena[depth].data, arena[depth].bytes);
        mu_release(arena[depth].shared);
    }
    mu__free(arena);
    device->engine_device = NULL;
}

static char *bucket_data(const mu_plan *plan, const bucket *b, char *arena)
{
    return plan->shared ? plan->shared + b->shared : arena + b->offset;
}

static char *owner_address(const mu_plan *plan, const cpu_call *call, char *arena, const value *owner)
{
    switch (owner->storage) {
    case STORAGE_ARENA:
        if (owner->bucket < 0)
            return arena + owner->offset;
        return bucket_data(plan, &plan->buckets[owner->bucket], arena) +
               (owner->offset - plan->buckets[owner->bucket].offset);
    case STORAGE_INPUT: return call->in[owner->index];
    case STORAGE_CONSTANT:
        return (void *)mu__host_read(
            ((const mu_constant_attrs *)plan->graph->nodes.items[owner->index]->attrs)->tensor);
    case STORAGE_RESOURCE: return plan->resources[owner->index].data;
    case STORAGE_RESULT: return plan->result_data[owner->index];
    }
    return NULL;
}

static void *address(const mu_plan *plan, const cpu_call *call, char *arena, int v)
{
    const value *seen = &plan->values[v];
    char *owner = owner_address(plan, call, arena, &plan->values[seen->root]);
    return seen->shift > 0 ? owner + seen->shift : owner;
}

// Binds each result to the caller's memory or to a new buffer.
static mu_status bind_results(mu_plan *plan, const cpu_call *call)
{
    for (int i = 0; i < plan->n_results; i++) {
        void *destination = call->destinations ? call->destinations[plan->result_outputs[i]] : NULL;
        if (!destination && !(plan->results[i] = mu__buffer_new(plan->values[plan->result_roots[i]].bytes)))
            return MU_RESOURCE_EXHAUSTED;
        plan->result_data[i] = destination ? destination : plan->results[i]->data;
    }
    return MU_OK;
}

static mu_status acquire_resources(mu_plan *plan, int replica)
{
    const mu_graph *graph = plan->graph;
    for (size_t i = 0; i < graph->resources.n; i++) {
        mu_resource *resource = graph->resources.items[i];
        if (resource->kind->apply)
            continue; // another process keeps it
        MU_TRY(resource->kind->acquire(resource, replica, &mu__host_memory, plan->access[i], &plan->held[i]));
        plan->resources[i] =
            (mu_view){.dtype = resource->spec.dtype, .shape = resource->spec.shape, .data = plan->held[i]->data};
    }
    return MU_OK;
}

static mu_status commit_resources(mu_plan *plan, int replica)
{
    const mu_graph *graph = plan->graph;
    for (size_t i = 0; i < graph->resources.n; i++) {
        mu_resource *resource = graph->resources.items[i];
        if (plan->access[i] != MU_ACCESS_READ && !resource->kind->apply)
            MU_TRY(resource->kind->commit(resource, replica, plan->access[i], plan->held[i]));
    }
    return MU_OK;
}

static void release_resources(mu_plan *plan)
{
    for (size_t i = 0; i < plan->graph->resources.n; i++) {
        mu_release(plan->held[i]);
        plan->held[i] = NULL;
    }
}

static mu_status bind(mu_plan *plan, const cpu_call *call, char *arena)
{
    const mu_run_args *args = call->run;
    MU_TRY(acquire_resources(plan, args->replica));
    MU_TRY(bind_results(plan, call));
    for (int i = 0; i < plan->n_bindings; i++)
        plan->bindings[i].view->data = address(plan, call, arena, plan->bindings[i].value);
    for (int i = 0; i < plan->n_resource_bindings; i++)
        *plan->resource_bindings[i].view = plan->resources[plan->resource_bindings[i].resource];
    for (int i = 0; i < plan->n_steps; i++) {
        mu_kernel *kernel = &plan->steps[i].kernel;
        kernel->scratch = arena + plan->steps[i].scratch_offset;
        kernel->collective = args->collective;
        kernel->replica = args->replica_id;
    }
    return MU_OK;
}

static mu_status run_shared(step *s)
{
    mu_shared_update update;
    mu_status status = mu__shared_begin(&s->kernel, &update);
    if (status == MU_OK && update.runs)
        status = s->run(&s->kernel);
    return mu__shared_end(&s->kernel, &update, status);
}

static mu_status run_step(const mu_plan *plan, step *s, const cpu_call *call, char *arena)
{
    if (s->control)
        return mu__control_run(s->control, &s->kernel, call);
    if (s->is_remote)
        return mu__remote_effect_run(plan->graph, s->node, &s->kernel);
    if (s->shared)
        return run_shared(s);
    if (s->bucket >= 0)
        return mu__overlap_start(plan, s, bucket_data(plan, &plan->buckets[s->bucket], arena));
    const mu_status status = s->run(&s->kernel);
    return status;
}

static mu_status run_steps(const mu_plan *plan, const cpu_call *call, char *arena, int *done)
{
    bool timed = mu__trace_on();
    for (*done = 0; *done < plan->n_steps; ++*done) {
        step *s = &plan->steps[*done];
        MU_TRY(mu__overlap_wait(plan, s->awaits, call));
        int64_t begin = timed ? mu__now_ns() : 0;
        mu_status status = run_step(plan, s, call, arena);
        if (timed)
            mu__span(s->node->op->flags & MU_OP_COLLECTIVE ? "collective" : "op", s->node->op->name, call->run->replica,
                     begin, mu__now_ns());
        if (status != MU_OK) {
            mu__error_add_site(mu__node_site(s->node));
            return status;
        }
    }
    return mu__overlap_wait(plan, plan->awaited_last, call);
}

void mu__cpu_poison(const mu_plan *plan, int replica, int last)
{
    for (int i = 0; i <= last && i < plan->n_steps; i++) {
        const mu_node *node = plan->steps[i].node;
        for (int r = 0; (node->flags & MU_OP_WRITES) && r < node->n_resources; r++) {
            mu_resource *resource = plan->graph->resources.items[node->resources[r]];
            if (resource->kind->poison && mu__node_endangers(node, r))
                resource->kind->poison(resource, replica);
        }
    }
}

static mu_tensor *result(const mu_plan *plan, const cpu_call *call, char *arena, int v)
{
    const value *seen = &plan->values[v], *owner = &plan->values[seen->root];
    if (owner->storage == STORAGE_RESULT && plan->results[owner->index])
        return mu__tensor_view(plan->results[owner->index], 0, seen->spec.dtype, &seen->spec.shape);
    if (owner->storage == STORAGE_INPUT && call->in_tensors) {
        const mu_tensor *in = call->in_tensors[owner->index];
        return mu__tensor_view(in->buffer, in->offset, seen->spec.dtype, &seen->spec.shape);
    }
    mu_tensor *copy = mu__tensor_alloc(seen->spec.dtype, &seen->spec.shape);
    if (copy)
        memcpy(mu__host_write(copy), address(plan, call, arena, v), seen->bytes);
    return copy;
}

static mu_status collect_one(const mu_plan *plan, const cpu_call *call, char *arena, size_t i)
{
    int v = mu__value_index(plan, plan->graph->outputs.items[i]);
    if (call->destinations && call->destinations[i]) {
        const void *data = address(plan, call, arena, v);
        if (data != call->destinations[i])
            memcpy(call->destinations[i], data, plan->values[v].bytes);
        return MU_OK;
    }
    call->out[i] = result(plan, call, arena, v);
    return call->out[i] ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status collect(const mu_plan *plan, const cpu_call *call, char *arena)
{
    const size_t n = plan->graph->outputs.n;
    for (size_t i = 0; call->out && i < n; i++)
        call->out[i] = NULL;
    mu_status status = MU_OK;
    for (size_t i = 0; i < n && status == MU_OK; i++)
        status = collect_one(plan, call, arena, i);
    for (size_t i = 0; call->out && i < n && status != MU_OK; i++) {
        mu_release(call->out[i]);
        call->out[i] = NULL;
    }
    return status;
}

mu_status mu__cpu_call(mu_plan *plan, const cpu_call *call)
{
    if (plan->dynamic_plan)
        return mu__dynamic_call(plan, call);
    mu_status status = MU_RESOURCE_EXHAUSTED;
    char *arena = device_arena(plan->device, call->depth, plan->arena_bytes);
    int done = -1;
    if (!arena)
        return status;
    plan->shared = shared_memory(plan, call);
    MU_GO(bind(plan, call, arena));
    MU_GO(run_steps(plan, call, arena, &done));
    MU_GO(commit_resources(plan, call->run->replica));
    MU_GO(collect(plan, call, arena));
out:
    if (status != MU_OK)
        mu__overlap_abandon(plan, call);
    for (int i = 0; i < plan->n_results; i++) {
        mu_release(plan->results[i]);
        plan->results[i] = NULL;
    }
    if (status != MU_OK && done >= 0)
        mu__cpu_poison(plan, call->run->replica, done);
    release_resources(plan);
    return status;
}

mu_status mu__cpu_run(mu_plan *plan, const mu_run_args *args)
{
    for (size_t i = 0; i < plan->graph->inputs.n; i++)
        if (!(plan->input_data[i] = (void *)mu__host_read(args->in[i])))
            return mu_error_code();
    mu_resource *const *resources = plan->graph->resources.items;
    const int n = (int)plan->graph->resources.n;
    mu__resources_lock(n, resources);
    const mu_status status =
        mu__cpu_call(plan, &(cpu_call){.run = args, .in = plan->input_data, .in_tensors = args->in, .out = args->out});
    mu__resources_unlock(n, resources);
    return status;
}
