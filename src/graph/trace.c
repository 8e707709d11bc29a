// Tracing: runs a C callback once with symbolic tensors, and records its ops in a graph.
//
// During a trace every op of the thread becomes a node. Eager tensors that the callback uses are captured as constants,
// variables by name. A symbolic tensor of another trace is an error.
#include "graph/trace.h"

static bool around(const mu_graph_trace *trace, const mu_graph *graph)
{
    while (trace && trace->graph != graph && trace->resolves != graph)
        trace = trace->outer;
    return trace != NULL;
}

// A tensor from outside a body becomes one of its inputs, once.
static mu_status capture(mu_graph_trace *trace, mu_tensor *tensor, mu_edge *edge)
{
    for (size_t i = 0; i < trace->captured.n; i++) {
        const mu_captured *seen = &trace->captured.items[i];
        if (seen->tensor->node == tensor->node && seen->tensor->output == tensor->output) {
            *edge = (mu_edge){.node = seen->node};
            return MU_OK;
        }
    }
    mu_spec spec = mu__spec_of(tensor);
    mu_captured made = {.tensor = tensor, .node = mu__graph_input(trace->graph, &spec, NULL)};
    if (!made.node || MU_PUSH(&trace->captured, made) != MU_OK)
        return mu_error_code();
    mu_retain(tensor);
    *edge = (mu_edge){.node = made.node};
    return MU_OK;
}

mu_status mu__trace_edge(mu_graph_trace *trace, mu_tensor *tensor, mu_edge *edge)
{
    mu_graph *graph = trace->graph;
    *edge = (mu_edge){0};
    if (!tensor->node) {
        mu_node *constant = mu__graph_constant(graph, tensor);
        *edge = (mu_edge){.node = constant};
        return constant ? MU_OK : mu_error_code();
    }
    if (tensor->replica > 0)
        return mu__error(MU_UNIMPLEMENTED,
                         "replica %d's part of a per-replica value is used in a merge_call while '%s' is traced, where "
                         "only reductions, gather, local results, broadcasts and updates can take it; run the step "
                         "eagerly with mu_run_callback",
                         tensor->replica - 1, graph->name);
    if (tensor->node->graph == graph) {
        *edge = (mu_edge){.node = tensor->node, .output = tensor->output};
        return MU_OK;
    }
    if (trace->resolve)
        MU_TRY(trace->resolve(trace, tensor, edge));
    if (edge->node)
        return MU_OK;
    if (around(trace->outer, tensor->node->graph))
        return capture(trace, tensor, edge);
    return mu__error(MU_FAILED_PRECONDITION,
                     "a tensor made while tracing '%s' (op %s) is used in the trace of '%s'; pass it as an argument or "
                     "return it from the function that made it",
                     tensor->node->graph->name, tensor->node->op->name, graph->name);
}

mu_status mu__trace_add(struct mu_trace *interface, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                        int n_resources, mu_resource *const *resources, mu_tensor **out)
{
    mu_graph_trace *trace = (mu_graph_trace *)interface;
    mu_graph *graph = trace->graph;
    mu_status status = MU_OK;
    mu_edge *edges = mu__alloc(sizeof *edges * (size_t)(n_in + 1));
    if (!edges)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n_in; i++)
        MU_GO(mu__trace_edge(trace, in[i], &edges[i]));
    mu_node *node = mu__graph_node(graph, op, attrs, n_in, edges, n_resources, resources);
    if (!node) {
        status = mu_error_code();
        goto out;
    }
    MU_GO(mu__node_set_site(node, mu__line()));
    for (int i = 0; i < node->n_out; i++) {
        out[i] = mu__give(mu__tensor_symbolic(node, i, &node->out[i], &graph->object));
        if (!out[i])
            MU_GO(mu_error_code());
    }
out:
    mu__free(edges);
    return status;
}

// Nodes made after all inputs that lead to the result get the function's name, even if an inner function set its own.
static void give_name(mu_node *node, const char *function, int after)
{
    if (node->id <= after || node->function == function)
        return;
    node->function = function;
    for (int i = 0; i < node->n_in; i++)
        give_name(node->in[i].node, function, after);
}

void mu__trace_made(struct mu_trace *interface, const char *function, int n_in, mu_tensor *const *in, mu_tensor *result)
{
    const mu_graph *graph = ((mu_graph_trace *)interface)->graph;
    int after = -1;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->node && in[i]->node->graph == graph)
            after = MU_MAX(after, in[i]->node->id);
    if (result->node && result->node->graph == graph)
        give_name(result->node, function, after);
}

mu_suspended mu__trace_suspend(void)
{
    mu_context *context = mu__context();
    mu_suspended suspended = {.trace = context->trace, .tape = context->tape};
    context->trace = NULL;
    context->tape = NULL;
    context->on_host++; // initial values: compiling a program for each of their ops would take longer
    return suspended;
}

void mu__trace_resume(mu_suspended suspended)
{
    mu_context *context = mu__context();
    context->trace = suspended.trace;
    context->tape = suspended.tape;
    context->on_host--;
}

bool mu__trace_may_make_variables(void)
{
    const mu_graph_trace *trace = (const mu_graph_trace *)mu__context()->trace;
    return !trace || trace->first;
}

// A new symbolic tensor belongs to the same run as the one that it replaces.
static mu_tensor *symbolic_like(const mu_tensor *like, mu_node *node, int output)
{
    mu_tensor *tensor = mu__give(mu__tensor_symbolic(node, output, &node->out[output], &node->graph->object));
    if (tensor)
        tensor->run = mu__made_here(like) ? like->run : 0;
    return tensor;
}

// Puts a symbolic input in place of every tensor leaf.
static mu_value *symbolic_arguments(mu_graph *graph, const mu_value *like, const mu_spec *specs)
{
    int n = mu__value_flatten(like, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_value *arguments = NULL;
    if (!leaves)
        return NULL;
    mu__value_flatten(like, leaves, n);
    for (int i = 0, tensor = 0; i < n; i++) {
        if (!mu__is(leaves[i], &mu__tensor_type))
            continue;
        mu_node *node = mu__graph_input(graph, &specs[tensor++], NULL);
        leaves[i] = node ? (mu_object *)symbolic_like((mu_tensor *)leaves[i], node, 0) : NULL;
        if (!leaves[i])
            goto out;
    }
    arguments = mu__give(mu__value_pack(like, leaves, n));
out:
    mu__free(leaves);
    return arguments;
}

// Records the tensor leaves of the result as outputs. Eager ones become constants.
static mu_value *collect_outputs(mu_graph_trace *trace, const mu_value *result)
{
    mu_graph *graph = trace->graph;
    int n = mu__value_flatten(result, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_value *outputs = NULL;
    if (!leaves)
        return NULL;
    mu__value_flatten(result, leaves, n);
    for (int i = 0; i < n; i++) {
        if (!mu__is(leaves[i], &mu__tensor_type))
            continue;
        mu_edge edge;
        if (mu__trace_edge(trace, (mu_tensor *)leaves[i], &edge) != MU_OK || MU_PUSH(&graph->outputs, edge) != MU_OK)
            goto out;
        leaves[i] = (mu_object *)symbolic_like((mu_tensor *)leaves[i], edge.node, edge.output);
        if (!leaves[i])
            goto out;
    }
    outputs = mu__give(mu__value_pack(result, leaves, n));
out:
    mu__free(leaves);
    return outputs;
}

mu_status mu__trace_run(const char *name, mu_traceable *fn, void *arg, const mu_value *like, const mu_spec *specs,
                        bool first, mu_traced *out)
{
    *out = (mu_traced){0};
    mu_graph *graph = mu__graph_new(name);
    mu_pool *pool = graph ? mu_pool_open() : NULL;
    if (!pool) {
        mu_release(graph);
        return mu_error_code();
    }
    mu_context *context = mu__context();
    mu_suspended outside = mu__trace_suspend();
    mu_graph_trace trace = {
        .interface = {.add = mu__trace_add, .made = mu__trace_made}, .graph = graph, .first = first};
    context->trace = &trace.interface;
    mu_value *arguments = symbolic_arguments(graph, like, specs);
    mu_value *result = arguments ? fn(arguments, arg) : NULL;
    mu_value *outputs = result && !mu__pending() ? collect_outputs(&trace, result) : NULL;
    mu__trace_resume(outside);
    if (!mu__pending())
        mu__graph_optimize(graph);
    if (mu__pending()) {
        mu__error_context("while tracing '%s'", name);
        mu_pool_close(pool);
        out->collective = graph->collective;
        mu_release(graph);
        return mu_error_code();
    }
    *out = (mu_traced){
        .graph = graph, .inputs = mu_retain(arguments), .outputs = mu_retain(outputs), .collective = graph->collective};
    mu_pool_close(pool);
    return MU_OK;
}
