// The variables of a run: they are acquired on the device, and stay there.
//
// A program takes over the memory of the variables that it writes where it can (mu_pjrt_donation); what it leaves for
// the others replaces their buffers after the launch. A run that fails after that loses the old values, so the
// variables that it writes are then in doubt. Where the programs have ended and a check has failed, that leaves out the
// generators: their values are whole, and an extra draw does no harm, as on the native engine.
//
// Replicas may share a variable (central storage). Each takes a copy of its value to its own device and computes the
// new value there, which is the same on all of them, because what they assign has been combined before; the first
// replica puts it into the variable.
#include "engine/pjrt/pjrt_plan.h"

static int n_resources(const mu_pjrt_plan *plan) { return (int)plan->graph->resources.n; }

static mu_resource *resource_at(const mu_pjrt_plan *plan, int i) { return plan->graph->resources.items[i]; }

static mu_edge before(const mu_pjrt_plan *plan, int i)
{
    return (mu_edge){.node = plan->graph->inputs.items[plan->n_inputs + i]};
}

static mu_edge after(const mu_pjrt_plan *plan, int i)
{
    return plan->graph->outputs.items[(int)plan->graph->outputs.n - n_resources(plan) + i];
}

// A lane that follows another one has copies of that one's variables.
static mu_pjrt_memory *memory_of(const mu_pjrt_lane *lane, int i)
{
    return (lane->first ? lane->first : lane)->held[i]->handle;
}

static bool has_annotations(const mu_graph *graph)
{
    bool found = false;
    for (size_t i = 0; !found && i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        found = node->op == &mu_op_split_to_logical_devices;
        for (const mu_attr_spec *attr = node->op->attrs; !found && attr && attr->name; attr++)
            if (attr->kind == MU_ATTR_GRAPH) {
                const mu_graph *body = *(mu_graph *const *)((const char *)node->attrs + attr->offset);
                found = body && has_annotations(body);
            }
    }
    return found;
}

mu_status mu__pjrt_find_accesses(mu_pjrt_plan *plan)
{
    const mu_graph *graph = plan->graph;
    plan->annotated = has_annotations(graph);
    const size_t n = graph->resources.n + 1;
    bool *used = mu__arena_alloc(&plan->memory, graph->nodes.n + 1);
    plan->access = mu__arena_alloc(&plan->memory, sizeof *plan->access * n);
    if (!used || !plan->access)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            used[graph->nodes.items[i]->in[k].node->id] = true;
    for (size_t i = 0; i < graph->outputs.n; i++)
        used[graph->outputs.items[i].node->id] = true;
    for (int i = 0; i < n_resources(plan); i++) {
        const mu_node *old = before(plan, i).node;
        plan->access[i] = after(plan, i).node == old ? MU_ACCESS_READ
                          : used[old->id]            ? MU_ACCESS_READ_WRITE
                                                     : MU_ACCESS_WRITE;
        plan->writes_shared |= resource_at(plan, i)->shared && plan->access[i] != MU_ACCESS_READ;
    }
    return MU_OK;
}

static mu_status acquire_copies(mu_pjrt_lane *lane)
{
    for (int i = 0; i < n_resources(lane->plan); i++) {
        const int slot = mu__pjrt_slot(lane->programs, before(lane->plan, i));
        lane->borrowed[slot] = true;
        if (lane->plan->access[i] == MU_ACCESS_WRITE)
            continue; // the old value is not needed, and may be none
        lane->slots[slot] = mu__pjrt_copy(memory_of(lane, i), lane->device);
        if (!lane->slots[slot])
            return mu_error_code();
    }
    return MU_OK;
}

mu_status mu__pjrt_acquire(mu_pjrt_lane *lane)
{
    const mu_pjrt_plan *plan = lane->plan;
    if (lane->first)
        return acquire_copies(lane);
    for (int i = 0; i < n_resources(plan); i++) {
        mu_resource *resource = resource_at(plan, i);
        const int slot = mu__pjrt_slot(lane->programs, before(plan, i));
        MU_TRY(resource->kind->acquire(resource, lane->args->replica, lane->device->memory_space, plan->access[i],
                                       &lane->held[i]));
        lane->slots[slot] = memory_of(lane, i)->buffer;
        lane->borrowed[slot] = true;
    }
    return MU_OK;
}

// ---- Memory that a program takes over -----------------------------------------------------------

bool mu__pjrt_is_shared(const mu_pjrt_lane *lane, int resource) { return memory_of(lane, resource)->owner != NULL; }

void mu__pjrt_lend(mu_pjrt_lane *lane, const mu_pjrt_part *part)
{
    lane->changed |= part->n_donated > 0;
    if (lane->first)
        return;
    for (int d = 0; d < part->n_donated; d++)
        pthread_mutex_lock(&memory_of(lane, part->donated[d].resource)->lock);
}

// After the first lane, whose new value has dropped the copies of the old one.
static void take_back_copies(mu_pjrt_lane *lane, const mu_pjrt_part *part, bool launched)
{
    for (int d = 0; d < part->n_donated; d++) {
        const mu_pjrt_donation *donation = &part->donated[d];
        const int made = part->left[donation->result];
        lane->slots[part->taken[donation->argument]] = NULL;
        if (!launched)
            continue;
        mu__pjrt_keep_copy(memory_of(lane, donation->resource), lane->device, lane->slots[made]);
        lane->borrowed[made] = true;
    }
}

void mu__pjrt_take_back(mu_pjrt_lane *lane, const mu_pjrt_part *part, bool launched)
{
    if (lane->first) {
        take_back_copies(lane, part, launched);
        return;
    }
    for (int d = 0; d < part->n_donated; d++) {
        const mu_pjrt_donation *donation = &part->donated[d];
        const int made = part->left[donation->result];
        mu_pjrt_memory *memory = memory_of(lane, donation->resource);
        mu__pjrt_put(memory, launched ? lane->slots[made] : NULL);
        lane->slots[part->taken[donation->argument]] = NULL;
        if (launched)
            lane->borrowed[made] = true;
        pthread_mutex_unlock(&memory->lock);
    }
}

// ---- The end of a run ---------------------------------------------------------------------------

static mu_status copy_argument(const mu_pjrt_lane *lane, int argument, pj_buffer **out)
{
    const mu_tensor *in = lane->args->in[argument];
    const mu_view view = {.dtype = in->dtype, .shape = in->shape, .data = (void *)mu__host_read(in)};
    return view.data ? mu__pjrt_upload((const mu_pjrt_memory_space *)lane->device->memory_space, &view,
                                       lane->plan->graph->name, out)
                     : mu_error_code();
}

// A value that belongs to another variable, or is the old value of one, is copied by way of the host.
static mu_status copy_value(const mu_pjrt_lane *lane, int slot, pj_buffer **out)
{
    const mu_spec *spec = &lane->programs->specs[slot];
    const size_t bytes = MU_MAX(mu__spec_bytes(spec), (size_t)1);
    const char *what = lane->plan->graph->name;
    void *data = mu__alloc_data(bytes);
    if (!data)
        return MU_RESOURCE_EXHAUSTED;
    const mu_view view = {.dtype = spec->dtype, .shape = spec->shape, .data = data};
    mu_status status = mu__pjrt_download(lane->plan->client, lane->slots[slot], &view, what);
    if (status == MU_OK)
        status = mu__pjrt_upload((const mu_pjrt_memory_space *)lane->device->memory_space, &view, what, out);
    mu__free_data(data, bytes);
    return status;
}

mu_status mu__pjrt_find_fresh(mu_pjrt_lane *lane)
{
    const mu_pjrt_plan *plan = lane->plan;
    if (lane->first)
        return MU_OK;
    for (int i = 0; i < n_resources(plan); i++) {
        const mu_edge new = after(plan, i);
        const int slot = mu__pjrt_slot(lane->programs, new), argument = mu__pjrt_argument(plan, new);
        if (plan->access[i] == MU_ACCESS_READ || lane->slots[slot] == memory_of(lane, i)->buffer)
            continue;
        if (argument >= 0) {
            MU_TRY(copy_argument(lane, argument, &lane->fresh[i]));
        } else if (lane->borrowed[slot]) {
            MU_TRY(copy_value(lane, slot, &lane->fresh[i]));
        } else {
            lane->fresh[i] = lane->slots[slot];
            lane->borrowed[slot] = true;
        }
    }
    return MU_OK;
}

static void put_fresh(mu_pjrt_lane *lane, int i)
{
    mu_pjrt_memory *memory = memory_of(lane, i);
    if (!lane->fresh[i])
        return;
    pthread_mutex_lock(&memory->lock);
    mu__pjrt_put(memory, lane->fresh[i]);
    lane->fresh[i] = NULL;
    pthread_mutex_unlock(&memory->lock);
}

// New values that a program made outside of the old ones' memory; another one is copied when a run needs it.
static void keep_copies(mu_pjrt_lane *lane)
{
    for (int i = 0; i < n_resources(lane->plan); i++) {
        const int slot = mu__pjrt_slot(lane->programs, after(lane->plan, i));
        if (lane->plan->access[i] == MU_ACCESS_READ || lane->borrowed[slot] ||
            mu__pjrt_argument(lane->plan, after(lane->plan, i)) >= 0)
            continue;
        mu__pjrt_keep_copy(memory_of(lane, i), lane->device, lane->slots[slot]);
        lane->borrowed[slot] = true;
    }
}

static bool commits(const mu_pjrt_lane *lane, int i)
{
    return lane->plan->access[i] != MU_ACCESS_READ && !(resource_at(lane->plan, i)->shared && lane->args->replica > 0);
}

mu_status mu__pjrt_commit(mu_pjrt_lane *lane)
{
    const mu_pjrt_plan *plan = lane->plan;
    lane->changed = true;
    if (lane->first) {
        keep_copies(lane);
        return MU_OK;
    }
    for (int i = 0; i < n_resources(plan); i++)
        put_fresh(lane, i);
    for (int i = 0; i < n_resources(plan); i++)
        if (commits(lane, i))
            MU_TRY(resource_at(plan, i)->kind->commit(resource_at(plan, i), lane->args->replica, plan->access[i],
                                                      lane->held[i]));
    return MU_OK;
}

static bool only_draws(const mu_pjrt_plan *plan, int i)
{
    return plan->access[i] != MU_ACCESS_READ && mu__pjrt_before_draws(after(plan, i)).node == before(plan, i).node;
}

// A part may have taken over the memory of a generator and left the new value there, which other copies do not have.
mu_status mu__pjrt_commit_draws(mu_pjrt_lane *lane)
{
    const mu_pjrt_plan *plan = lane->plan;
    for (int i = 0; lane->changed && i < n_resources(plan); i++)
        if (only_draws(plan, i) && commits(lane, i))
            MU_TRY(resource_at(plan, i)->kind->commit(resource_at(plan, i), lane->args->replica, plan->access[i],
                                                      lane->held[i]));
    return MU_OK;
}

void mu__pjrt_let_go(mu_pjrt_lane *lane)
{
    for (int i = 0; i < n_resources(lane->plan); i++) {
        mu__pjrt_drop(lane->plan->client, &lane->fresh[i]);
        mu_release(lane->held[i]);
        lane->held[i] = NULL;
    }
}

void mu__pjrt_doubt(mu_pjrt_lane *lane)
{
    const mu_pjrt_plan *plan = lane->plan;
    for (int i = 0; lane->changed && !lane->first && i < n_resources(plan); i++)
        if (plan->access[i] != MU_ACCESS_READ && !(lane->ended && only_draws(plan, i)))
            resource_at(plan, i)->kind->poison(resource_at(plan, i), lane->args->replica);
}

// ---- Values that variables share with results ---------------------------------------------------

mu_buffer *mu__pjrt_buffer_with(const mu_pjrt_lane *lane, int slot)
{
    const mu_pjrt_plan *plan = lane->plan;
    for (int i = 0; i < n_resources(plan); i++)
        if (mu__pjrt_slot(lane->programs, after(plan, i)) == slot)
            return lane->held[i];
    return NULL;
}
