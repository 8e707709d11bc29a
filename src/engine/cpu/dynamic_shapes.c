// Plans with ops whose output shapes depend on elements: such a plan runs up to the op, runs the op to find its
// shapes, and continues with a plan for these shapes.
//
// The graph is cut into the head before the op and the rest after it. The rest is a graph whose inputs are those of
// the whole graph, the values that the head leaves, and the op's outputs. The rest may be cut again. The cut keeps
// the order of effects and the numbers of collectives.
#include "engine/cpu/plan.h"
#include "ops/core/loops.h"

struct dynamic_plan {
    const mu_node *node; // in the whole graph
    mu_plan *head;
    nested *rest;
    struct control *control; // for an op with bodies
    int n_in, n_live;        // inputs of the whole graph; values that the head leaves
    mu_edge *live;
    void **in; // inputs of the rest: graph inputs, live values, the op's outputs
    mu_spec *specs;
    mu_tensor **tensors; // the live values and outputs during a run
    mu_tensor **in_tensors;
};

// ---- Cutting ------------------------------------------------------------------------------------

static bool is_free(const mu_node *node) // its values need not be passed over the cut
{
    return node->op == &mu_op_input || node->op == &mu_op_constant;
}

static int find_live(const struct dynamic_plan *dynamic_plan, mu_edge edge)
{
    for (int i = 0; i < dynamic_plan->n_live; i++)
        if (dynamic_plan->live[i].node == edge.node && dynamic_plan->live[i].output == edge.output)
            return i;
    return -1;
}

static void add_live(struct dynamic_plan *dynamic_plan, mu_edge edge)
{
    if (edge.node->id < dynamic_plan->node->id && !is_free(edge.node) && find_live(dynamic_plan, edge) < 0)
        dynamic_plan->live[dynamic_plan->n_live++] = edge;
}

static mu_status find_all_live(mu_plan *plan, struct dynamic_plan *dynamic_plan)
{
    const mu_graph *graph = plan->graph;
    size_t edges = graph->outputs.n;
    for (size_t i = (size_t)dynamic_plan->node->id; i < graph->nodes.n; i++)
        edges += (size_t)graph->nodes.items[i]->n_in;
    if (!(dynamic_plan->live = mu__arena_alloc(&plan->memory, sizeof *dynamic_plan->live * (edges + 1))))
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = (size_t)dynamic_plan->node->id; i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            add_live(dynamic_plan, graph->nodes.items[i]->in[k]);
    for (size_t i = 0; i < graph->outputs.n; i++)
        add_live(dynamic_plan, graph->outputs.items[i]);
    return MU_OK;
}

// A part of a graph that is being copied; `copies` maps each value of the whole graph to its copy.
typedef struct part {
    const mu_graph *whole;
    mu_graph *graph;
    const int *first;
    mu_edge *copies;
} part;

static mu_edge *copy_of(const part *p, mu_edge edge) { return &p->copies[p->first[edge.node->id] + edge.output]; }

static mu_status add_input(part *p, mu_edge edge)
{
    *copy_of(p, edge) = (mu_edge){.node = mu__graph_input(p->graph, &edge.node->out[edge.output], edge.node->name)};
    return copy_of(p, edge)->node ? MU_OK : mu_error_code();
}

static mu_status copy_node(part *p, mu_node *node)
{
    mu_edge *in = mu__alloc(sizeof *in * (size_t)(node->n_in + 1));
    mu_resource **resources = mu__alloc(sizeof *resources * (size_t)(node->n_resources + 1));
    mu_node *copy = NULL;
    for (int i = 0; in && i < node->n_in; i++)
        in[i] = *copy_of(p, node->in[i]);
    for (int i = 0; resources && i < node->n_resources; i++)
        resources[i] = p->whole->resources.items[node->resources[i]];
    if (in && resources)
        copy = mu__graph_node(p->graph, node->op, node->attrs, node->n_in, in, node->n_resources, resources);
    mu__free(in);
    mu__free(resources);
    if (!copy)
        return mu_error_code();
    copy->name = node->name ? mu__arena_strdup(&p->graph->arena, node->name) : NULL;
    MU_TRY(mu__node_set_site(copy, mu__node_site(node)));
    copy->number = node->number;
    for (int k = 0; k < node->n_out; k++)
        *copy_of(p, (mu_edge){.node = node, .output = k}) = (mu_edge){.node = copy, .output = k};
    return MU_OK;
}

// Copies nodes [begin, end); the part's inputs are those of the whole graph, followed by `extra`.
static mu_status copy_part(part *p, int begin, int end, int n_extra, const mu_edge *extra, const mu_node *made)
{
    const mu_graph *whole = p->whole;
    for (size_t i = 0; i < whole->inputs.n; i++)
        MU_TRY(add_input(p, (mu_edge){.node = whole->inputs.items[i]}));
    for (int i = 0; i < n_extra; i++)
        MU_TRY(add_input(p, extra[i]));
    for (int k = 0; made && k < made->n_out; k++)
        MU_TRY(add_input(p, (mu_edge){.node = (mu_node *)made, .output = k}));
    for (int i = 0; i < end; i++) {
        mu_node *node = whole->nodes.items[i];
        if (node->op != &mu_op_input && (i >= begin || node->op == &mu_op_constant))
            MU_TRY(copy_node(p, node));
    }
    return MU_OK;
}

static mu_graph *make_part(const mu_plan *plan, bool behind, const struct dynamic_plan *dynamic_plan)
{
    const mu_graph *whole = plan->graph;
    part p = {.whole = whole,
              .first = plan->first_value,
              .graph = mu__graph_new(whole->name),
              .copies = mu__calloc((size_t)plan->n_values + 1, sizeof *p.copies)};
    mu_status status = p.graph && p.copies ? MU_OK : MU_RESOURCE_EXHAUSTED;
    const int cut = dynamic_plan->node->id;
    if (status == MU_OK)
        status = behind ? copy_part(&p, cut + 1, (int)whole->nodes.n, dynamic_plan->n_live, dynamic_plan->live,
                                    dynamic_plan->node)
                        : copy_part(&p, 0, cut, 0, NULL, NULL);
    const mu_edge *outputs = behind ? whole->outputs.items : dynamic_plan->live;
    const size_t n = behind ? whole->outputs.n : (size_t)dynamic_plan->n_live;
    for (size_t i = 0; i < n && status == MU_OK; i++)
        status = MU_PUSH(&p.graph->outputs, *copy_of(&p, outputs[i]));
    if (status == MU_OK)
        status = mu__pass_prune(p.graph);
    mu__free(p.copies);
    if (status == MU_OK)
        return p.graph;
    mu_release(p.graph);
    return NULL;
}

mu_status mu__dynamic_new(mu_plan *plan, const mu_spec *inputs)
{
    const mu_node *node = plan->graph->nodes.items[plan->break_at];
    struct dynamic_plan *dynamic_plan = plan->dynamic_plan = mu__arena_alloc(&plan->memory, sizeof *dynamic_plan);
    if (!dynamic_plan)
        return MU_RESOURCE_EXHAUSTED;
    *dynamic_plan = (struct dynamic_plan){.node = node, .n_in = (int)plan->graph->inputs.n};
    if (!node->op->measure && !mu__is_control(node->op)) {
        mu__error(
            MU_UNIMPLEMENTED,
            "op %s in '%s' leaves the shape of an output unknown for known inputs, and cannot say it before it runs",
            node->op->name, plan->graph->name);
        mu__error_add_site(mu__node_site(node));
        return mu_error_code();
    }
    MU_TRY(find_all_live(plan, dynamic_plan));
    const size_t n = (size_t)(dynamic_plan->n_in + dynamic_plan->n_live + node->n_out) + 1;
    dynamic_plan->in = mu__arena_alloc(&plan->memory, sizeof *dynamic_plan->in * n);
    dynamic_plan->specs = mu__arena_alloc(&plan->memory, sizeof *dynamic_plan->specs * n);
    dynamic_plan->tensors = mu__arena_alloc(&plan->memory, sizeof *dynamic_plan->tensors * n);
    dynamic_plan->in_tensors = mu__arena_alloc(&plan->memory, sizeof *dynamic_plan->in_tensors * n);
    if (!dynamic_plan->in || !dynamic_plan->specs || !dynamic_plan->tensors || !dynamic_plan->in_tensors)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(dynamic_plan->specs, inputs, sizeof *inputs * (size_t)dynamic_plan->n_in);
    mu_graph *before = make_part(plan, false, dynamic_plan),
             *behind = before ? make_part(plan, true, dynamic_plan) : NULL;
    if (before)
        dynamic_plan->head = mu__cpu_compile(plan->device, before, inputs, dynamic_plan->n_in);
    if (behind)
        dynamic_plan->rest = mu__nested_new(plan->device, behind);
    mu_release(before);
    mu_release(behind);
    if (dynamic_plan->rest && mu__is_control(node->op))
        dynamic_plan->control = mu__control_new(plan->device, node);
    return dynamic_plan->head && dynamic_plan->rest && (dynamic_plan->control || !mu__is_control(node->op))
               ? MU_OK
               : mu_error_code();
}

void mu__dynamic_free(struct dynamic_plan *dynamic_plan)
{
    if (!dynamic_plan)
        return;
    mu__cpu_free(dynamic_plan->head);
    mu__nested_free(dynamic_plan->rest);
    mu__control_free(dynamic_plan->control);
}

size_t mu__dynamic_bytes(const struct dynamic_plan *dynamic_plan)
{
    const size_t head =
        mu__cpu_bytes(dynamic_plan->head) + (dynamic_plan->control ? mu__control_bytes(dynamic_plan->control) : 0);
    return MU_MAX(head, mu__nested_bytes(dynamic_plan->rest));
}

// ---- Running ------------------------------------------------------------------------------------

// The address of an input of the op: a graph input, a constant, or a value that the head left.
static void find_input(const mu_plan *plan, mu_edge edge, void **data, mu_spec *spec)
{
    const struct dynamic_plan *dynamic_plan = plan->dynamic_plan;
    int i = 0;
    if (edge.node->op == &mu_op_constant) {
        const mu_tensor *tensor = ((const mu_constant_attrs *)edge.node->attrs)->tensor;
        *data = (void *)mu__host_read(tensor);
        *spec = mu__spec_of(tensor);
        return;
    }
    if (edge.node->op == &mu_op_input)
        while (plan->graph->inputs.items[i] != edge.node)
            i++;
    else
        i = dynamic_plan->n_in + find_live(dynamic_plan, edge);
    *data = dynamic_plan->in[i];
    *spec = dynamic_plan->specs[i];
}

static mu_status run_measured(const mu_plan *plan, mu_kernel *kernel, mu_view *views, const mu_spec *in, mu_spec *out,
                              mu_tensor **results)
{
    const mu_node *node = plan->dynamic_plan->node;
    mu_infer infer = {.op = node->op,
                      .attrs = node->attrs,
                      .n_in = node->n_in,
                      .n_out = node->n_out,
                      .n_resources = node->n_resources,
                      .in = in,
                      .resources = out + node->n_out,
                      .out = out};
    for (int r = 0; r < node->n_resources; r++)
        out[node->n_out + r] = plan->graph->resources.items[node->resources[r]]->spec;
    MU_TRY(mu__infer_call(&infer));
    MU_TRY(node->op->measure(kernel, out));
    for (int i = 0; i < node->n_out; i++) {
        if (!mu__shape_known(&out[i].shape))
            return mu__error(MU_INTERNAL, "op %s has measured no shape for output %d", node->op->name, i);
        if (!(results[i] = mu__tensor_alloc(out[i].dtype, &out[i].shape)))
            return MU_RESOURCE_EXHAUSTED;
        views[i] = (mu_view){.dtype = out[i].dtype, .shape = out[i].shape, .data = mu__host_write(results[i])};
    }
    kernel->out = views;
    return mu__run_direct(kernel);
}

static mu_status run_and_free(const mu_plan *plan, mu_kernel *kernel, mu_view *views, const mu_spec *in, mu_spec *out,
                              mu_tensor **results)
{
    mu_measured measured = {0};
    kernel->measured = &measured;
    const mu_status status = run_measured(plan, kernel, views, in, out, results);
    if (measured.block)
        mu__free_data(measured.block, measured.bytes);
    return status;
}

// Acquires the op's resources: `held`, zeroed, keeps the buffers until leave_resources.
static mu_status hold_resources(const mu_plan *plan, int replica, mu_buffer **held, mu_view *views)
{
    const mu_node *node = plan->dynamic_plan->node;
    for (int r = 0; r < node->n_resources; r++) {
        mu_resource *resource = plan->graph->resources.items[node->resources[r]];
        MU_TRY(resource->kind->acquire(resource, replica, &mu__host_memory, mu__access_of(node->flags), &held[r]));
        views[r] = (mu_view){.dtype = resource->spec.dtype, .shape = resource->spec.shape, .data = held[r]->data};
    }
    return MU_OK;
}

// Commits what a successful op wrote, and releases the buffers. Returns the first failure.
static mu_status leave_resources(const mu_plan *plan, int replica, mu_buffer **held, mu_status status)
{
    const mu_node *node = plan->dynamic_plan->node;
    const mu_access access = mu__access_of(node->flags);
    for (int r = 0; r < node->n_resources; r++) {
        mu_resource *resource = plan->graph->resources.items[node->resources[r]];
        if (status == MU_OK && access != MU_ACCESS_READ)
            status = resource->kind->commit(resource, replica, access, held[r]);
        mu_release(held[r]);
    }
    return status;
}

static mu_status run_node(const mu_plan *plan, const cpu_call *call, mu_tensor **results)
{
    const struct dynamic_plan *dynamic_plan = plan->dynamic_plan;
    const mu_node *node = dynamic_plan->node;
    const size_t n = (size_t)(node->n_in + node->n_out + node->n_resources) + 1;
    void **data = mu__calloc(n, sizeof *data);
    mu_spec *specs = mu__calloc(n, sizeof *specs);
    mu_view *views = mu__calloc(n, sizeof *views);
    mu_status status = data && specs && views ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < node->n_in; i++) {
        find_input(plan, node->in[i], &data[i], &specs[i]);
        views[i] = (mu_view){.dtype = specs[i].dtype, .shape = specs[i].shape, .data = data[i]};
    }
    mu_view *resources = views ? views + node->n_in + node->n_out : NULL;
    const bool is_remote = mu__is_remote_effect(plan->graph, node);
    const bool holds = status == MU_OK && !dynamic_plan->control && !is_remote && node->n_resources > 0;
    if (holds)
        status = hold_resources(plan, call->run->replica, (mu_buffer **)(data + node->n_in), resources);
    mu_kernel kernel = {.op = node->op,
                        .attrs = node->attrs,
                        .n_in = node->n_in,
                        .n_out = node->n_out,
                        .in = views,
                        .n_resources = node->n_resources,
                        .resources = resources,
                        .team = &plan->device->team,
                        .collective = call->run->collective,
                        .number = node->number,
                        .replica = call->run->replica_id};
    if (status == MU_OK)
        status = dynamic_plan->control ? mu__control_dynamic(dynamic_plan->control, call, data, specs, results)
                 : is_remote           ? mu__remote_effect_apply(plan->graph, node, &kernel, results)
                             : run_and_free(plan, &kernel, views + node->n_in, specs, specs + node->n_in, results);
    if (holds)
        status = leave_resources(plan, call->run->replica, (mu_buffer **)(data + node->n_in), status);
    mu__free(data);
    mu__free(specs);
    mu__free(views);
    return status;
}

static void add_values(struct dynamic_plan *dynamic_plan, int from, int n)
{
    for (int i = from; i < from + n; i++) {
        dynamic_plan->in[i] = (void *)mu__host_read(dynamic_plan->tensors[i]);
        dynamic_plan->specs[i] = mu__spec_of(dynamic_plan->tensors[i]);
        dynamic_plan->in_tensors[i] = dynamic_plan->tensors[i];
    }
}

static void mark_node(const mu_plan *plan, const mu_node *node, int replica)
{
    for (int r = 0; r < node->n_resources; r++) {
        mu_resource *resource = plan->graph->resources.items[node->resources[r]];
        if (resource->kind->poison && mu__node_endangers(node, r))
            resource->kind->poison(resource, replica);
    }
}

static mu_status run_parts(mu_plan *plan, const cpu_call *call, bool *begun)
{
    struct dynamic_plan *dynamic_plan = plan->dynamic_plan;
    const cpu_call head = {
        .run = call->run, .in = call->in, .out = dynamic_plan->tensors + dynamic_plan->n_in, .depth = call->depth};
    const int behind = dynamic_plan->n_in + dynamic_plan->n_live;
    memcpy(dynamic_plan->in, call->in, sizeof *dynamic_plan->in * (size_t)dynamic_plan->n_in);
    MU_TRY(mu__cpu_call(dynamic_plan->head, &head));
    add_values(dynamic_plan, dynamic_plan->n_in, dynamic_plan->n_live);
    *begun = true;
    MU_TRY(run_node(plan, call, dynamic_plan->tensors + behind));
    add_values(dynamic_plan, behind, dynamic_plan->node->n_out);
    mu_plan *rest = mu__nested_plan(dynamic_plan->rest, dynamic_plan->specs);
    if (!rest)
        return mu_error_code();
    cpu_call last = *call;
    last.in = dynamic_plan->in;
    last.in_tensors = call->in_tensors ? dynamic_plan->in_tensors : NULL;
    if (call->in_tensors)
        memcpy(dynamic_plan->in_tensors, call->in_tensors, sizeof *call->in_tensors * (size_t)dynamic_plan->n_in);
    return mu__cpu_call(rest, &last);
}

// If the op or the rest fails, the variables that the head wrote are invalid.
mu_status mu__dynamic_call(mu_plan *plan, const cpu_call *call)
{
    struct dynamic_plan *dynamic_plan = plan->dynamic_plan;
    const int n = dynamic_plan->n_in + dynamic_plan->n_live + dynamic_plan->node->n_out;
    bool begun = false;
    memset(dynamic_plan->tensors, 0, sizeof *dynamic_plan->tensors * (size_t)n);
    const mu_status status = run_parts(plan, call, &begun);
    for (int i = dynamic_plan->n_in; i < n; i++)
        mu_release(dynamic_plan->tensors[i]);
    if (status != MU_OK && begun) {
        for (int i = 0; i < plan->break_at; i++)
            mark_node(plan, plan->graph->nodes.items[i], call->run->replica);
        mark_node(plan, dynamic_plan->node, call->run->replica);
    }
    return status;
}
