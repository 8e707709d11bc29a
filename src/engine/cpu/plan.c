// Compiles a graph for known shapes: assigns memory to each value and a kernel to each node.
//
// Steps in order: shapes; owners of memory (a view shares its input's memory; an op that may works in place; a
// variable that no op overwrites meanwhile is read in place); lifetimes; all-reduce buckets; kernels; offsets.
#include "engine/cpu/fusion.h"
#include "engine/cpu/plan.h"

static bool is_view(const mu_plan *plan, const mu_node *node)
{
    return node->n_out > 0 && plan->values[plan->first_value[node->id]].sharing != SHARES_NOTHING;
}

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status specialise_node(mu_plan *plan, const mu_node *node, mu_spec *scratch)
{
    value *values = plan->values + plan->first_value[node->id];
    mu_spec *out = scratch + node->n_in + node->n_resources;
    for (int i = 0; i < node->n_in; i++)
        scratch[i] = plan->values[mu__value_index(plan, node->in[i])].spec;
    for (int i = 0; i < node->n_resources; i++)
        scratch[node->n_in + i] = plan->graph->resources.items[node->resources[i]]->spec;
    memset(out, 0, sizeof *out * (size_t)node->n_out);
    mu_infer infer = {.op = node->op,
                      .attrs = node->attrs,
                      .n_in = node->n_in,
                      .n_out = node->n_out,
                      .n_resources = node->n_resources,
                      .in = scratch,
                      .resources = scratch + node->n_in,
                      .out = out};
    MU_TRY(mu__infer_call(&infer));
    for (int i = 0; i < node->n_out; i++) {
        if (!mu__shape_known(&out[i].shape)) {
            plan->break_at = node->id;
            return MU_OK;
        }
        values[i].spec = out[i];
        values[i].bytes = mu__spec_bytes(&out[i]);
    }
    // Checked for this plan's shapes: an op that broadcasts or sums to the shape that its input already has is a
    // view, too.
    if (node->n_in > 0 && node->n_out > 0)
        values[0].sharing = mu__op_is_view(node->op, scratch, out)                                  ? SHARES_ALL
                            : mu__op_is_part(node->op, node->attrs, scratch, out, &values[0].shift) ? SHARES_PART
                                                                                                    : SHARES_NOTHING;
    return MU_OK;
}

static mu_status specialise(mu_plan *plan, const mu_spec *inputs)
{
    const mu_graph *graph = plan->graph;
    size_t most = 1;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        most = MU_MAX(most, (size_t)(node->n_in + node->n_out + node->n_resources));
    }
    mu_spec *scratch = mu__arena_alloc(&plan->memory, sizeof *scratch * most);
    if (!scratch)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->inputs.n; i++) {
        value *v = &plan->values[plan->first_value[graph->inputs.items[i]->id]];
        v->spec = inputs[i];
        v->bytes = mu__spec_bytes(&v->spec);
    }
    for (size_t i = 0; i < graph->nodes.n && plan->break_at < 0; i++) {
        if (graph->nodes.items[i]->op == &mu_op_input)
            continue;
        mu_status status = specialise_node(plan, graph->nodes.items[i], scratch);
        if (status != MU_OK) {
            mu__error_add_site(mu__node_site(graph->nodes.items[i]));
            return status;
        }
    }
    return MU_OK;
}

// ---- Owners and lifetimes -----------------------------------------------------------------------

// A value that a caller receives or a collective works on needs memory of its own size, so it cannot be part of a
// larger value.
static void find_escapes(mu_plan *plan)
{
    const mu_graph *graph = plan->graph;
    for (size_t i = 0; i < graph->outputs.n; i++)
        plan->values[mu__value_index(plan, graph->outputs.items[i])].escapes = true;
    for (size_t i = graph->nodes.n; i-- > 0;) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_in && (node->op->flags & MU_OP_COLLECTIVE); k++)
            plan->values[mu__value_index(plan, node->in[k])].escapes = true;
        const value *out = &plan->values[plan->first_value[i]];
        if (is_view(plan, node) && out->sharing == SHARES_ALL && out->escapes)
            plan->values[mu__value_index(plan, node->in[0])].escapes = true;
    }
}

// Sharing a small part of an arena block would keep the whole block alive.
static bool is_worth_sharing(const mu_plan *plan, const value *part, const value *whole)
{
    enum { PARTS = 8 };
    const value *owner = &plan->values[whole->root];
    return !part->escapes && (owner->storage != STORAGE_ARENA || owner->bytes / PARTS <= part->bytes);
}

static void own(mu_plan *plan, const mu_node *node)
{
    value *values = &plan->values[plan->first_value[node->id]];
    for (int i = 0; i < node->n_out; i++) {
        value *v = &values[i];
        v->root = plan->first_value[node->id] + i;
        v->storage = node->op == &mu_op_input ? STORAGE_INPUT : STORAGE_ARENA;
        v->first = v->last = node->id;
        v->bucket = -1;
    }
    if (node->op == &mu_op_constant) {
        values->storage = STORAGE_CONSTANT;
        values->index = node->id;
    }
    if (!is_view(plan, node))
        return;
    const value *in = &plan->values[mu__value_index(plan, node->in[0])];
    if (values->sharing == SHARES_PART && !is_worth_sharing(plan, values, in)) {
        values->sharing = SHARES_NOTHING;
        values->shift = 0;
        return;
    }
    values->root = in->root;
    values->shift += in->shift;
}

// A read needs no copy if nothing writes the variable up to its last use.
static void alias_read(mu_plan *plan, const mu_node *node)
{
    value *v = &plan->values[plan->first_value[node->id]];
    const mu_graph *graph = plan->graph;
    for (size_t k = (size_t)node->id + 1; k < graph->nodes.n && (int)k <= v->last; k++) {
        const mu_node *later = graph->nodes.items[k];
        for (int r = 0; (later->flags & MU_OP_WRITES) && r < later->n_resources; r++)
            if (later->resources[r] == node->resources[0] && mu__node_writes(later, r))
                return;
    }
    v->storage = STORAGE_RESOURCE;
    v->index = node->resources[0];
}

static void find_lifetimes(mu_plan *plan)
{
    const mu_graph *graph = plan->graph;
    find_escapes(plan);
    for (size_t i = 0; i < graph->nodes.n; i++)
        own(plan, graph->nodes.items[i]);
    for (size_t i = 0; i < graph->inputs.n; i++)
        plan->values[plan->first_value[graph->inputs.items[i]->id]].index = (int)i;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_in; k++)
            if (!is_view(plan, node) && !(k < 32 && node->op->shape_only >> k & 1))
                plan->values[plan->values[mu__value_index(plan, node->in[k])].root].last = (int)i;
    }
    for (size_t i = 0; i < graph->outputs.n; i++)
        plan->values[plan->values[mu__value_index(plan, graph->outputs.items[i])].root].last = END_OF_PLAN;
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.items[i]->op == &mu_op_read_variable && !mu__is_remote_effect(graph, graph->nodes.items[i]))
            alias_read(plan, graph->nodes.items[i]);
}

static int uses_in_node(const mu_plan *plan, const mu_node *node, int root)
{
    int n = 0;
    for (int k = 0; k < node->n_in; k++)
        n += plan->values[mu__value_index(plan, node->in[k])].root == root;
    return n;
}

// Whether an op may overwrite the memory of one of its inputs.
static bool may_overwrite(const mu_plan *plan, const mu_node *node, int input)
{
    int v = mu__value_index(plan, node->in[input]);
    const value *root = &plan->values[plan->values[v].root];
    return root->storage == STORAGE_ARENA && root->last == node->id && root->bytes == plan->values[v].bytes &&
           uses_in_node(plan, node, plan->values[v].root) == 1;
}

static void take_over(mu_plan *plan, int out, int in)
{
    int root = plan->values[in].root;
    plan->values[root].last = plan->values[out].last;
    for (int v = 0; v < plan->n_values; v++) // the output's views follow
        if (plan->values[v].root == out)
            plan->values[v].root = root;
}

static void work_in_place(mu_plan *plan, const mu_node *node)
{
    int out = plan->first_value[node->id];
    for (int k = 0; node->op->in_place && node->n_out > 0 && k < node->n_in && k < 32; k++) {
        int in = mu__value_index(plan, node->in[k]);
        if (!(node->op->in_place >> k & 1) || plan->values[in].bytes != plan->values[out].bytes ||
            !may_overwrite(plan, node, k))
            continue;
        take_over(plan, out, in);
        return;
    }
}

// An all-reduce works in place on one bucket if all its inputs are in the arena and have no later use.
static mu_status make_bucket(mu_plan *plan, const mu_node *node)
{
    int base = plan->first_value[node->id];
    for (int k = 0; k < node->n_in; k++) {
        const value *root = &plan->values[plan->values[mu__value_index(plan, node->in[k])].root];
        if (!may_overwrite(plan, node, k) || root->bucket >= 0)
            return MU_OK;
    }
    bucket *b = &plan->buckets[plan->n_buckets];
    *b = (bucket){.node = node->id, .first = node->id, .last = node->id};
    for (int k = 0; k < node->n_in; k++) {
        int in = mu__value_index(plan, node->in[k]);
        value *root = &plan->values[plan->values[in].root];
        take_over(plan, base + k, in);
        root->bucket = plan->n_buckets;
    }
    plan->n_buckets++;
    return MU_OK;
}

static mu_status share_memory(mu_plan *plan)
{
    const mu_graph *graph = plan->graph;
    size_t n_reductions = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        n_reductions += graph->nodes.items[i]->op == &mu_op_all_reduce;
    plan->buckets = mu__arena_alloc(&plan->memory, sizeof *plan->buckets * n_reductions);
    if (!plan->buckets)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        if (node->op == &mu_op_all_reduce)
            MU_TRY(make_bucket(plan, node));
        else
            work_in_place(plan, node);
    }
    return MU_OK;
}

// Moves owners that a caller receives out of the arena.
static mu_status find_results(mu_plan *plan)
{
    const mu_graph *graph = plan->graph;
    plan->result_roots = mu__arena_alloc(&plan->memory, sizeof(int) * graph->outputs.n);
    plan->result_outputs = mu__arena_alloc(&plan->memory, sizeof(int) * graph->outputs.n);
    plan->results = mu__arena_alloc(&plan->memory, sizeof(mu_buffer *) * graph->outputs.n);
    plan->result_data = mu__arena_alloc(&plan->memory, sizeof(void *) * graph->outputs.n);
    if (!plan->result_roots || !plan->result_outputs || !plan->results || !plan->result_data)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->outputs.n; i++) {
        int root = plan->values[mu__value_index(plan, graph->outputs.items[i])].root;
        value *v = &plan->values[root];
        if (v->storage != STORAGE_ARENA || v->bucket >= 0)
            continue;
        v->storage = STORAGE_RESULT;
        v->index = plan->n_results;
        plan->result_outputs[plan->n_results] = (int)i;
        plan->result_roots[plan->n_results++] = root;
    }
    return MU_OK;
}

// ---- Kernels ------------------------------------------------------------------------------------

static bool needs_step(const mu_plan *plan, const mu_node *node)
{
    if (node->op == &mu_op_input || node->op == &mu_op_constant || is_view(plan, node))
        return false;
    return node->op != &mu_op_read_variable || plan->values[plan->first_value[node->id]].storage != STORAGE_RESOURCE;
}

static mu_status prepare_kernel(mu_plan *plan, step *s)
{
    const mu_node *node = s->node;
    mu_spec *specs = mu__arena_alloc(&plan->memory, sizeof *specs * (size_t)(node->n_in + node->n_out));
    if (!specs)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        specs[i] = plan->values[mu__value_index(plan, node->in[i])].spec;
    for (int i = 0; i < node->n_out; i++)
        specs[node->n_in + i] = plan->values[plan->first_value[node->id] + i].spec;
    mu_prepare prepare = {.op = node->op,
                          .attrs = node->attrs,
                          .n_in = node->n_in,
                          .n_out = node->n_out,
                          .in = specs,
                          .out = specs + node->n_in,
                          .team = &plan->device->team};
    s->run = node->op->ref;
    if (mu__is_control(node->op))
        return mu__control_prepare(plan, s);
    if (!node->op->cpu.run)
        return MU_OK;
    if (node->op->cpu.prepare)
        MU_TRY(node->op->cpu.prepare(&prepare));
    if (prepare.declined)
        return MU_OK;
    s->run = node->op->cpu.run;
    s->kernel.state = prepare.state;
    s->scratch_bytes = prepare.scratch_bytes;
    return MU_OK;
}

static mu_view *add_views(mu_plan *plan, int n) { return mu__arena_alloc(&plan->memory, sizeof(mu_view) * (size_t)n); }

static void bind_value(mu_plan *plan, mu_view *view, int v)
{
    *view = (mu_view){.dtype = plan->values[v].spec.dtype, .shape = plan->values[v].spec.shape};
    plan->bindings[plan->n_bindings++] = (binding){.view = view, .value = v};
}

static bool writes_shared(const mu_graph *graph, const mu_node *node)
{
    for (int i = 0; i < node->n_resources; i++)
        if (mu__shared(node->op, 1, &graph->resources.items[node->resources[i]]))
            return true;
    return false;
}

// A resource whose first effect is an assignment is overwritten: its previous value does not matter.
static void find_accesses(mu_plan *plan)
{
    const mu_graph *graph = plan->graph;
    for (size_t i = graph->nodes.n; i-- > 0;) {
        const mu_node *node = graph->nodes.items[i];
        for (int r = 0; r < node->n_resources; r++) {
            mu_access *access = &plan->access[node->resources[r]];
            *access = node->op == &mu_op_assign_variable || mu__fusion_overwrites(node, r) ? MU_ACCESS_WRITE
                      : mu__node_writes(node, r) || *access != MU_ACCESS_READ              ? MU_ACCESS_READ_WRITE
                                                                                           : MU_ACCESS_READ;
        }
    }
}

static mu_status make_step(mu_plan *plan, const mu_node *node)
{
    step *s = &plan->steps[plan->n_steps++];
    mu_view *in = add_views(plan, node->n_in), *out = add_views(plan, node->n_out);
    mu_view *resources = add_views(plan, node->n_resources);
    if (!in || !out || !resources)
        return MU_RESOURCE_EXHAUSTED;
    *s = (step){.node = node,
                .bucket = -1,
                .awaits = -1,
                .shared = writes_shared(plan->graph, node),
                .is_remote = mu__is_remote_effect(plan->graph, node)};
    for (int i = 0; i < node->n_in; i++)
        bind_value(plan, &in[i], mu__value_index(plan, node->in[i]));
    for (int i = 0; i < node->n_out; i++)
        bind_value(plan, &out[i], plan->first_value[node->id] + i);
    for (int i = 0; i < node->n_resources; i++)
        plan->resource_bindings[plan->n_resource_bindings++] =
            (resource_binding){.view = &resources[i], .resource = node->resources[i]};
    for (int b = 0; b < plan->n_buckets; b++)
        if (plan->buckets[b].node == node->id)
            s->bucket = b;
    s->kernel = (mu_kernel){.op = node->op,
                            .attrs = node->attrs,
                            .n_in = node->n_in,
                            .n_out = node->n_out,
                            .n_resources = node->n_resources,
                            .in = in,
                            .out = out,
                            .resources = resources,
                            .team = &plan->device->team,
                            .number = node->number};
    return prepare_kernel(plan, s);
}

static mu_status make_steps(mu_plan *plan)
{
    const mu_graph *graph = plan->graph;
    size_t n_views = 0, n_resources = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        n_views += (size_t)(graph->nodes.items[i]->n_in + graph->nodes.items[i]->n_out);
        n_resources += (size_t)graph->nodes.items[i]->n_resources;
    }
    plan->steps = mu__arena_alloc(&plan->memory, sizeof *plan->steps * graph->nodes.n);
    plan->bindings = mu__arena_alloc(&plan->memory, sizeof *plan->bindings * n_views);
    plan->resource_bindings = mu__arena_alloc(&plan->memory, sizeof *plan->resource_bindings * n_resources);
    plan->resources = mu__arena_alloc(&plan->memory, sizeof *plan->resources * graph->resources.n);
    plan->access = mu__arena_alloc(&plan->memory, sizeof *plan->access * graph->resources.n);
    plan->held = mu__arena_alloc(&plan->memory, sizeof *plan->held * graph->resources.n);
    if (!plan->steps || !plan->bindings || !plan->resource_bindings || !plan->resources || !plan->access || !plan->held)
        return MU_RESOURCE_EXHAUSTED;
    find_accesses(plan);
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (needs_step(plan, graph->nodes.items[i]) && make_step(plan, graph->nodes.items[i]) != MU_OK) {
            mu__error_add_site(mu__node_site(graph->nodes.items[i]));
            return mu_error_code();
        }
    return MU_OK;
}

// ---- Offsets ------------------------------------------------------------------------------------

static int collect_blocks(mu_plan *plan, block *blocks)
{
    int n = 0;
    for (int v = 0; v < plan->n_values; v++) {
        value *owner = &plan->values[v];
        if (owner->root == v && owner->storage == STORAGE_ARENA && owner->bucket < 0)
            blocks[n++] =
                (block){.bytes = owner->bytes, .first = owner->first, .last = owner->last, .offset = &owner->offset};
    }
    for (int b = 0; b < plan->n_buckets; b++) {
        bucket *k = &plan->buckets[b];
        blocks[n++] = (block){.bytes = k->bytes, .first = k->first, .last = k->last, .offset = &k->offset};
    }
    for (int i = 0; i < plan->n_steps; i++) {
        step *s = &plan->steps[i];
        if (s->scratch_bytes)
            blocks[n++] = (block){
                .bytes = s->scratch_bytes, .first = s->node->id, .last = s->node->id, .offset = &s->scratch_offset};
    }
    return n;
}

// The members of a bucket are contiguous, each aligned. The bucket lives as long as any member: ops that work in place
// on a reduced value may have extended its life.
static void fill_buckets(mu_plan *plan, bool assign_offsets)
{
    for (int b = 0; b < plan->n_buckets; b++) {
        const mu_node *node = plan->graph->nodes.items[plan->buckets[b].node];
        size_t at = 0;
        for (int k = 0; k < node->n_in; k++) {
            value *owner = &plan->values[plan->values[mu__value_index(plan, node->in[k])].root];
            plan->buckets[b].first = MU_MIN(plan->buckets[b].first, owner->first);
            plan->buckets[b].last = MU_MAX(plan->buckets[b].last, owner->last);
            if (assign_offsets)
                owner->offset = plan->buckets[b].offset + at;
            at += (owner->bytes + 63) / 64 * 64;
        }
        plan->buckets[b].bytes = at;
    }
}

// Each bucket also has an offset in the memory of collectives that provide their own.
static mu_status place_shared(mu_plan *plan, block *blocks)
{
    for (int b = 0; b < plan->n_buckets; b++) {
        bucket *k = &plan->buckets[b];
        blocks[b] = (block){.bytes = k->bytes, .first = k->first, .last = k->last, .offset = &k->shared};
    }
    return mu__memory_plan(blocks, plan->n_buckets, &plan->shared_bytes);
}

static mu_status assign_storage(mu_plan *plan)
{
    size_t most = (size_t)(plan->n_values + plan->n_buckets + plan->n_steps);
    block *blocks = mu__arena_alloc(&plan->memory, sizeof *blocks * most);
    if (!blocks)
        return MU_RESOURCE_EXHAUSTED;
    fill_buckets(plan, false);
    int n = collect_blocks(plan, blocks);
    MU_TRY(mu__memory_plan(blocks, n, &plan->arena_bytes));
    fill_buckets(plan, true);
    return place_shared(plan, blocks);
}

// ---- Compile and free ---------------------------------------------------------------------------

static mu_status number_values(mu_plan *plan)
{
    const mu_graph *graph = plan->graph;
    plan->first_value = mu__arena_alloc(&plan->memory, sizeof(int) * graph->nodes.n);
    if (!plan->first_value)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        plan->first_value[i] = plan->n_values;
        plan->n_values += graph->nodes.items[i]->n_out;
    }
    plan->values = mu__arena_alloc(&plan->memory, sizeof *plan->values * (size_t)plan->n_values);
    return plan->values ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status build(mu_plan *plan, const mu_spec *inputs)
{
    MU_TRY(number_values(plan));
    MU_TRY(specialise(plan, inputs));
    if (plan->break_at >= 0)
        return mu__dynamic_new(plan, inputs);
    find_lifetimes(plan);
    MU_TRY(share_memory(plan));
    MU_TRY(find_results(plan));
    MU_TRY(make_steps(plan));
    mu__overlap_plan(plan);
    return assign_storage(plan);
}

mu_plan *mu__cpu_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs)
{
    if (mu__check_inputs(graph, inputs, n_inputs) != MU_OK)
        return NULL;
    mu_plan *plan = mu__calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->device = device;
    plan->graph = mu_retain(graph);
    plan->break_at = plan->awaited_last = -1;
    plan->input_data = mu__arena_alloc(&plan->memory, sizeof(void *) * (size_t)n_inputs);
    if (plan->input_data && build(plan, inputs) == MU_OK)
        return plan;
    mu__cpu_free(plan);
    return NULL;
}

void mu__cpu_free(mu_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < plan->n_steps; i++) {
        const step *s = &plan->steps[i];
        if (s->kernel.state && s->node->op->cpu.release)
            s->node->op->cpu.release(s->kernel.state);
        mu__control_free(s->control);
    }
    mu__dynamic_free(plan->dynamic_plan);
    mu_release(plan->graph);
    mu__arena_free(&plan->memory);
    mu__free(plan);
}

size_t mu__cpu_bytes(const mu_plan *plan)
{
    size_t inside = 0;
    if (plan->dynamic_plan)
        return mu__dynamic_bytes(plan->dynamic_plan);
    for (int i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].control)
            inside = MU_MAX(inside, mu__control_bytes(plan->steps[i].control));
    return plan->arena_bytes + inside;
}

const mu_engine mu__engine_cpu = {
    .name = "cpu",
    .lower = mu__cpu_lower,
    .compile = mu__cpu_compile,
    .run = mu__cpu_run,
    .free = mu__cpu_free,
    .close_device = mu__cpu_close_device,
};
