// Traces a body: a graph that may use tensors from outside (capture).
//
// Between begin and end, the thread's ops go into the body's graph. Outer tapes do not record these ops, but the node
// that contains the body. The bodies of one node are joined, so that they take the same inputs.
#include "graph/control/control.h"

mu_status mu__body_begin(mu_body_trace *body, const char *name)
{
    mu_context *context = mu__context();
    mu_graph_trace *outer = (mu_graph_trace *)context->trace;
    *body = (mu_body_trace){.trace = {.interface = {.add = mu__trace_add, .made = mu__trace_made},
                                      .first = !outer || outer->first,
                                      .keep = mu__tape_listens(),
                                      .outer = outer}};
    body->trace.graph = mu__graph_new(name);
    body->pool = body->trace.graph ? mu_pool_open() : NULL;
    if (!body->pool)
        return mu_error_code();
    body->outside = mu__trace_suspend();
    context->trace = &body->trace.interface;
    return MU_OK;
}

void mu__body_end(mu_body_trace *body)
{
    if (mu__context()->trace == &body->trace.interface)
        mu__trace_resume(body->outside);
}

// A body that fails before its node is made leaves word of its collectives: other workers wait in them.
static void tell_of_collectives(const mu_body_trace *body)
{
    mu_graph_trace *outer = body->trace.outer;
    if (outer && body->trace.graph && body->trace.graph->collective && mu__pending())
        outer->graph->collective = true;
}

void mu__body_free(mu_body_trace *body)
{
    mu__body_end(body);
    tell_of_collectives(body);
    for (size_t i = 0; i < body->trace.captured.n; i++)
        mu_release(body->trace.captured.items[i].tensor);
    mu__free(body->trace.captured.items);
    if (body->pool)
        mu_pool_close(body->pool);
    mu_release(body->trace.graph);
    *body = (mu_body_trace){0};
}

mu_tensor *mu__body_input(mu_body_trace *body, const mu_spec *spec)
{
    mu_graph *graph = body->trace.graph;
    mu_node *node = mu__graph_input(graph, spec, NULL);
    return node ? mu__give(mu__tensor_symbolic(node, 0, &node->out[0], &graph->object)) : NULL;
}

mu_status mu__body_output(mu_body_trace *body, mu_tensor *tensor)
{
    mu_edge edge;
    MU_TRY(mu__trace_edge(&body->trace, tensor, &edge));
    return MU_PUSH(&body->trace.graph->outputs, edge);
}

// ---- Joining ------------------------------------------------------------------------------------

typedef struct tensors {
    mu_tensor **items;
    size_t n, capacity;
} tensors;

static bool same_tensor(const mu_tensor *a, const mu_tensor *b) { return a->node == b->node && a->output == b->output; }

static mu_status add_once(tensors *list, mu_tensor *tensor)
{
    for (size_t i = 0; i < list->n; i++)
        if (same_tensor(list->items[i], tensor))
            return MU_OK;
    return MU_PUSH(list, tensor);
}

static bool is_captured(const mu_body_trace *body, const mu_node *node)
{
    for (size_t i = 0; i < body->trace.captured.n; i++)
        if (body->trace.captured.items[i].node == node)
            return true;
    return false;
}

// Puts a body's captured inputs after its own, in the common order, and adds those that it does not use.
static mu_status reorder(mu_body_trace *body, const tensors *all)
{
    mu_graph *graph = body->trace.graph;
    size_t n = 0;
    for (size_t i = 0; i < graph->inputs.n; i++)
        if (!is_captured(body, graph->inputs.items[i]))
            graph->inputs.items[n++] = graph->inputs.items[i];
    graph->inputs.n = n;
    mu_status status = MU_OK;
    for (size_t i = 0; status == MU_OK && i < all->n; i++) {
        size_t k = 0;
        while (k < body->trace.captured.n && !same_tensor(body->trace.captured.items[k].tensor, all->items[i]))
            k++;
        mu_spec spec = mu__spec_of(all->items[i]);
        if (k < body->trace.captured.n)
            status = MU_PUSH(&graph->inputs, body->trace.captured.items[k].node);
        else
            status = mu__graph_input(graph, &spec, NULL) ? MU_OK : mu_error_code();
    }
    return status;
}

mu_status mu__bodies_join(int n, mu_body_trace *const *bodies, mu_tensor ***captured, int *n_captured)
{
    tensors all = {0};
    mu_status status = MU_OK;
    for (int b = 0; b < n; b++)
        for (size_t i = 0; i < bodies[b]->trace.captured.n; i++)
            MU_GO(add_once(&all, bodies[b]->trace.captured.items[i].tensor));
    for (int b = 0; b < n; b++)
        MU_GO(reorder(bodies[b], &all));
out:
    if (status != MU_OK)
        mu__free(all.items);
    *captured = status == MU_OK ? all.items : NULL;
    *n_captured = (int)all.n;
    return status;
}

mu_status mu__bodies_resources(int n, mu_graph *const *graphs, mu_resource ***resources, int *n_resources)
{
    struct {
        mu_resource **items;
        size_t n, capacity;
    } all = {0};
    for (int g = 0; g < n; g++)
        for (size_t i = 0; graphs[g] && i < graphs[g]->resources.n; i++) {
            size_t k = 0;
            while (k < all.n && all.items[k] != graphs[g]->resources.items[i])
                k++;
            if (k == all.n && MU_PUSH(&all, graphs[g]->resources.items[i]) != MU_OK) {
                mu__free(all.items);
                return MU_RESOURCE_EXHAUSTED;
            }
        }
    *resources = all.items;
    *n_resources = (int)all.n;
    return MU_OK;
}

// ---- Reads --------------------------------------------------------------------------------------

static bool written_in(int n, mu_body_trace *const *bodies, const mu_resource *resource)
{
    for (int b = 0; b < n; b++) {
        const mu_graph *graph = bodies[b]->trace.graph;
        for (size_t i = 0; i < graph->nodes.n; i++) {
            const mu_node *node = graph->nodes.items[i];
            for (int k = 0; k < node->n_resources; k++)
                if (graph->resources.items[node->resources[k]] == resource && mu__node_writes(node, k))
                    return true;
        }
    }
    return false;
}

// Moves the read outside, where tapes record it; in the body an input replaces it.
static mu_status hoist(mu_body_trace *body, mu_node *node)
{
    mu_graph *graph = body->trace.graph;
    mu_resource *resource = graph->resources.items[node->resources[0]];
    mu_tensor *value = NULL;
    mu_input_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.dtype = node->out[0].dtype;
    attrs.shape = node->out[0].shape;
    MU_TRY(mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &resource, &value));
    MU_TRY(mu__graph_rewrite(node, &mu_op_input, &attrs, 0, NULL));
    MU_TRY(MU_PUSH(&graph->inputs, node));
    MU_TRY(MU_PUSH(&body->trace.captured, ((mu_captured){.tensor = value, .node = node})));
    mu_retain(value);
    return MU_OK;
}

// Moves the last node to an earlier position.
static void move_last(mu_graph *graph, int to)
{
    mu_node *last = graph->nodes.items[graph->nodes.n - 1];
    memmove(graph->nodes.items + to + 1, graph->nodes.items + to, sizeof last * (size_t)(last->id - to));
    graph->nodes.items[to] = last;
    for (size_t i = (size_t)to; i < graph->nodes.n; i++)
        graph->nodes.items[i]->id = (int)i;
}

// Replaces a read by one whose gradient goes to `outside`.
static mu_status tie_read(mu_body_trace *body, mu_node *read, mu_tensor *outside)
{
    mu_graph *graph = body->trace.graph;
    const size_t n = graph->nodes.n;
    mu_edge in[] = {{.node = read}, {.node = NULL}};
    MU_TRY(mu__trace_edge(&body->trace, outside, &in[1]));
    if (graph->nodes.n > n)
        move_last(graph, read->id + 1);
    mu_node *tied = mu__graph_node(graph, &mu_op_inner_read, NULL, 2, in, 0, NULL);
    if (!tied)
        return mu_error_code();
    move_last(graph, MU_MAX(read->id, in[1].node->id) + 1);
    for (size_t i = (size_t)tied->id + 1; i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_in; k++)
            if (graph->nodes.items[i]->in[k].node == read)
                graph->nodes.items[i]->in[k].node = tied;
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.items[i].node == read)
            graph->outputs.items[i].node = tied;
    return mu__node_set_site(tied, mu__node_site(read));
}

// Reads of a variable that a body writes stay in order among the writes. For an open tape, one read outside represents
// them all.
static mu_status tie_reads(mu_body_trace *body, mu_resource *resource)
{
    mu_graph *graph = body->trace.graph;
    mu_tensor *outside = NULL;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        mu_node *node = graph->nodes.items[i];
        if (node->op != &mu_op_read_variable || graph->resources.items[node->resources[0]] != resource)
            continue;
        if (!outside)
            MU_TRY(mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &resource, &outside));
        MU_TRY(tie_read(body, node, outside));
    }
    return MU_OK;
}

// Removes resources that no node uses, and renumbers the rest.
static mu_status drop_unused_resources(mu_graph *graph)
{
    size_t n = graph->resources.n, kept = 0;
    int *new_index = mu__calloc(n + 1, sizeof *new_index);
    if (!new_index)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_resources; k++)
            new_index[graph->nodes.items[i]->resources[k]] = 1;
    for (size_t i = 0; i < n; i++) {
        if (!new_index[i]) {
            mu_release(graph->resources.items[i]);
            continue;
        }
        new_index[i] = (int)kept;
        graph->resources.items[kept++] = graph->resources.items[i];
    }
    graph->resources.n = kept;
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (int k = 0; k < graph->nodes.items[i]->n_resources; k++)
            graph->nodes.items[i]->resources[k] = new_index[graph->nodes.items[i]->resources[k]];
    mu__free(new_index);
    return MU_OK;
}

mu_status mu__body_hoist_reads(int n, mu_body_trace *const *bodies)
{
    for (int b = 0; b < n; b++)
        MU_TRY(mu__pass_share(bodies[b]->trace.graph));
    for (int b = 0; b < n; b++) {
        mu_graph *graph = bodies[b]->trace.graph;
        for (size_t i = 0; i < graph->nodes.n; i++) {
            mu_node *node = graph->nodes.items[i];
            const mu_resource *resource = node->n_resources > 0 ? graph->resources.items[node->resources[0]] : NULL;
            if (node->op == &mu_op_read_variable && !written_in(n, bodies, resource) &&
                !(bodies[b]->reads_again && resource->home))
                MU_TRY(hoist(bodies[b], node));
        }
        for (size_t i = 0; mu__tape_listens() && i < graph->resources.n; i++)
            if (mu__dtype_is_float(graph->resources.items[i]->spec.dtype) &&
                written_in(n, bodies, graph->resources.items[i]))
                MU_TRY(tie_reads(bodies[b], graph->resources.items[i]));
        MU_TRY(drop_unused_resources(graph));
    }
    return MU_OK;
}

// ---- What gradients need ------------------------------------------------------------------------

bool mu__tape_listens(void)
{
    const mu_context *context = mu__context();
    for (const struct mu_tape *tape = context->tape; tape; tape = tape->outer)
        if (!tape->paused)
            return true;
    return context->trace && ((const mu_graph_trace *)context->trace)->keep;
}

int mu__find_output(const mu_graph *graph, size_t from, const mu_node *node, int output)
{
    for (size_t i = from; i < graph->outputs.n; i++)
        if (graph->outputs.items[i].node == node && graph->outputs.items[i].output == output)
            return (int)i;
    return -1;
}

static mu_status keep_output(mu_graph *graph, size_t from, mu_node *node, int output)
{
    if (mu__find_output(graph, from, node, output) >= 0)
        return MU_OK;
    return MU_PUSH(&graph->outputs, ((mu_edge){.node = node, .output = output}));
}

mu_status mu__body_keep(mu_graph *graph, int n_carried)
{
    size_t from = (size_t)n_carried;
    for (int i = 0; i < n_carried; i++)
        MU_TRY(keep_output(graph, from, graph->inputs.items[i], 0));
    for (size_t i = 0, n = graph->nodes.n; i < n; i++) {
        mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_out && node->op != &mu_op_constant && node->op != &mu_op_input; k++)
            MU_TRY(keep_output(graph, from, node, k));
    }
    return MU_OK;
}
