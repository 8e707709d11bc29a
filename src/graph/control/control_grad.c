// Gradients of branches, loops and calls: again control flow nodes, whose bodies are gradients of the bodies.
//
// The ops of a body are recorded in a tape of their own and differentiated while a new body is traced. Gradient rules
// use values of the old body. Each such value is an input or a kept output of the old node; the new body captures it,
// or takes it row by row from a stack. So only values that a rule uses are kept.
#include "graph/control/control.h"

#include <muster/ops.h>

// The gradients of all inputs of one node, kept from the first request to the last.
typedef struct gradients {
    mu_object object;
    int n;
    mu_tensor **at; // of the pool; NULL: none
} gradients;

static void gradients_destroy(void *object)
{
    gradients *g = object;
    for (int i = 0; i < g->n; i++)
        mu_release(g->at[i]);
    mu__free(g->at);
}

static mu_type gradients_type = {.name = "gradients of bodies", .destroy = gradients_destroy};

static bool is_wanted(const mu_grad *g, int i)
{
    return mu__dtype_is_float(g->x[i]->dtype) && (!g->wanted || g->wanted[i]);
}

// ---- The old body as the new one sees it --------------------------------------------------------

typedef struct old_body {
    const mu_grad *g;
    const mu_graph *graph;
    int which;          // index among the node's bodies
    mu_tensor **inputs; // its inputs as symbolic tensors
    mu_tape *tape;
    // of a loop: stacks that rows are taken from, in the order in which the new body takes them
    struct {
        mu_tensor **items;
        size_t n, capacity;
    } stacks;
    struct {
        mu_node **items;
        size_t n, capacity;
    } rows;
} old_body;

static mu_tensor *symbolic(const mu_graph *graph, mu_edge edge)
{
    if (edge.node->op == &mu_op_constant)
        return ((const mu_constant_attrs *)edge.node->attrs)->tensor;
    return mu__give(
        mu__tensor_symbolic(edge.node, edge.output, &edge.node->out[edge.output], (mu_object *)&graph->object));
}

static mu_status record_node(old_body *old, mu_node *node)
{
    const size_t n = (size_t)(node->n_in + node->n_out) + 1;
    mu_tensor **in = mu__calloc(n, sizeof *in), **out = in ? in + node->n_in : NULL;
    mu_resource **resources = mu__calloc((size_t)node->n_resources + 1, sizeof *resources);
    mu_status status = in && resources ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < node->n_in; i++)
        status = (in[i] = symbolic(old->graph, node->in[i])) ? MU_OK : mu_error_code();
    for (int i = 0; status == MU_OK && i < node->n_out; i++)
        status = (out[i] = symbolic(old->graph, (mu_edge){.node = node, .output = i})) ? MU_OK : mu_error_code();
    for (int i = 0; status == MU_OK && i < node->n_resources; i++)
        resources[i] = old->graph->resources.items[node->resources[i]];
    mu__line_push(mu__context(), mu__node_site(node));
    if (status == MU_OK)
        status = old->tape->record(old->tape, node->op, node->attrs, node->n_in, in, node->n_resources, resources,
                                   node->n_out, out);
    mu__line_pop(mu__context());
    mu__free(in);
    mu__free(resources);
    return status;
}

// Records a body's ops; in the pool of the new body's trace.
static mu_status record_body(old_body *old)
{
    const mu_graph *graph = old->graph;
    old->tape = mu__tape_detached();
    old->inputs = mu__calloc(graph->inputs.n + 1, sizeof *old->inputs);
    if (!old->tape || !old->inputs)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->inputs.n; i++)
        if (!(old->inputs[i] = symbolic(graph, (mu_edge){.node = graph->inputs.items[i]})))
            return mu_error_code();
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.items[i]->op != &mu_op_input && graph->nodes.items[i]->op != &mu_op_constant)
            MU_TRY(record_node(old, graph->nodes.items[i]));
    return MU_OK;
}

static int input_number(const mu_graph *graph, const mu_node *node)
{
    for (size_t i = 0; i < graph->inputs.n; i++)
        if (graph->inputs.items[i] == node)
            return (int)i;
    return -1;
}

static mu_status not_kept(const old_body *old, const mu_node *node)
{
    return mu__error(
        MU_FAILED_PRECONDITION,
        "the gradient of a %s needs a value of op %s that it has not kept; open the tape before the %s is called",
        old->g->op->name, node->op->name, old->g->op->name);
}

// Output number i of a branch, as an output of the node.
static int cond_output(const mu_cond_attrs *attrs, int which, int i)
{
    return which == 0 || i < attrs->n_shared ? i : (int)attrs->then->outputs.n + i - (int)attrs->n_shared;
}

static mu_status resolve_in_cond(mu_graph_trace *trace, mu_tensor *tensor, mu_edge *edge)
{
    const old_body *old = trace->resolve_arg;
    if (tensor->node->graph != old->graph)
        return MU_OK;
    int i = input_number(old->graph, tensor->node);
    if (i >= 0)
        return mu__trace_edge(trace, old->g->x[1 + i], edge);
    i = mu__find_output(old->graph, 0, tensor->node, tensor->output);
    return i < 0 ? not_kept(old, tensor->node)
                 : mu__trace_edge(trace, old->g->y[cond_output(old->g->attrs, old->which, i)], edge);
}

// The row of a stack for this iteration; one input per stack.
static mu_status row_of(mu_graph_trace *trace, mu_tensor *stack, mu_edge *edge)
{
    old_body *old = trace->resolve_arg;
    for (size_t i = 0; i < old->stacks.n; i++)
        if (old->stacks.items[i] == stack) {
            *edge = (mu_edge){.node = old->rows.items[i]};
            return MU_OK;
        }
    mu_spec spec = mu__spec_of(stack);
    spec.shape.rank--;
    memmove(spec.shape.dims, spec.shape.dims + 1, sizeof(int64_t) * (size_t)spec.shape.rank);
    mu_node *node = mu__graph_input(trace->graph, &spec, NULL);
    *edge = (mu_edge){.node = node};
    if (!node || MU_PUSH(&old->stacks, stack) != MU_OK || MU_PUSH(&old->rows, node) != MU_OK)
        return mu_error_code();
    return MU_OK;
}

static mu_status resolve_in_loop(mu_graph_trace *trace, mu_tensor *tensor, mu_edge *edge)
{
    const old_body *old = trace->resolve_arg;
    const mu_loop_attrs *attrs = old->g->attrs;
    if (tensor->node->graph != old->graph)
        return MU_OK;
    int i = input_number(old->graph, tensor->node);
    if (i >= attrs->n_carried + attrs->n_slices)
        return mu__trace_edge(trace, old->g->x[1 + i], edge);
    if (i >= attrs->n_carried)
        return row_of(trace, old->g->x[1 + i], edge);
    i = mu__find_output(old->graph, (size_t)attrs->n_carried, tensor->node, tensor->output);
    return i < 0 ? not_kept(old, tensor->node) : row_of(trace, old->g->y[1 + i], edge);
}

// ---- cond ---------------------------------------------------------------------------------------

static mu_status pull_branch(old_body *old, mu_body_trace *body)
{
    const mu_graph *graph = old->graph;
    const mu_grad *g = old->g;
    size_t n_out = graph->outputs.n, n_in = graph->inputs.n;
    mu_tensor **ys = mu__calloc(2 * n_out + 2 * n_in + 1, sizeof *ys), **dys = MU_BEHIND(ys, n_out);
    mu_tensor **xs = MU_BEHIND(dys, n_out), **dxs = MU_BEHIND(xs, n_in);
    int n_y = 0, n_x = 0;
    mu_status status = ys ? record_body(old) : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < n_out; i++) {
        mu_tensor *dy = g->dys[cond_output(g->attrs, old->which, (int)i)];
        if (!dy)
            continue;
        dys[n_y] = dy;
        status = (ys[n_y++] = symbolic(graph, graph->outputs.items[i])) ? MU_OK : mu_error_code();
    }
    for (size_t i = 0; status == MU_OK && i < n_in; i++)
        if (is_wanted(g, 1 + (int)i))
            xs[n_x++] = old->inputs[i];
    if (status == MU_OK && n_y > 0)
        status = mu__pullback(old->tape, n_y, ys, dys, n_x, (void *const *)xs, dxs);
    for (int i = 0; status == MU_OK && i < n_x; i++) {
        mu_tensor *dx = dxs[i] ? dxs[i] : mu__zeros_like(xs[i]);
        status = dx ? mu__body_output(body, dx) : mu_error_code();
    }
    mu__free(ys);
    mu__free(old->inputs);
    return status;
}

static mu_status trace_branch_gradient(old_body *old, mu_body_trace *body, const char *name)
{
    MU_TRY(mu__body_begin(body, name));
    body->trace.resolve = resolve_in_cond;
    body->trace.resolve_arg = old;
    body->trace.resolves = old->graph;
    mu_status status = pull_branch(old, body);
    mu__body_end(body);
    return status;
}

static mu_status cond_gradients(mu_grad *g, mu_tensor ***out)
{
    const mu_cond_attrs *old_attrs = g->attrs;
    old_body olds[] = {{.g = g, .graph = old_attrs->then}, {.g = g, .graph = old_attrs->otherwise, .which = 1}};
    mu_body_trace bodies[2] = {{.pool = NULL}, {.pool = NULL}};
    mu_body_trace *both[] = {&bodies[0], &bodies[1]};
    mu_cond_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    mu_status status = trace_branch_gradient(&olds[0], &bodies[0], "gradient of then");
    if (status == MU_OK)
        status = trace_branch_gradient(&olds[1], &bodies[1], "gradient of otherwise");
    if (status == MU_OK) {
        attrs.then = bodies[0].trace.graph;
        attrs.otherwise = bodies[1].trace.graph;
        attrs.n_shared = (int64_t)attrs.then->outputs.n;
    }
    for (int b = 0; b < 2 && status == MU_OK && mu__tape_listens(); b++)
        status = mu__body_keep(bodies[b].trace.graph, 0);
    if (status == MU_OK)
        status = mu__control_apply(&mu_op_cond, &attrs, 2, both, 1, g->x, out);
    for (int i = 0, n = 0; status == MU_OK && i < g->n_in; i++)
        if (is_wanted(g, i))
            mu_retain((*out)[n++]);
    mu__body_free(&bodies[1]);
    mu__body_free(&bodies[0]);
    return status;
}

// ---- while_loop ---------------------------------------------------------------------------------

// A loop's gradient being made. Its carried values are the gradients of the old floating-point carried values, then
// sums for captured tensors; its rows are the gradients of the old slices.
typedef struct new_loop {
    mu_grad *g;
    const mu_loop_attrs *old_attrs;
    old_body old;
    mu_body_trace body;
    int n_carried;
    int *carried_of; // the old input (of the body) that each carried value belongs to
    mu_tensor **start, **inputs;
} new_loop;

// Selects which inputs of the old body have carried gradients, and their initial values.
static mu_status choose_carried(new_loop *l)
{
    const mu_grad *g = l->g;
    const int carried = (int)l->old_attrs->n_carried, own = carried + (int)l->old_attrs->n_slices;
    for (int i = 0; i < g->n_in - 1; i++) {
        if (i < carried ? !mu__dtype_is_float(g->x[1 + i]->dtype) : i < own || !is_wanted(g, 1 + i))
            continue;
        mu_tensor *dy = i < carried ? g->dys[1 + i] : NULL;
        if (!dy && !(dy = mu__zeros_like(i < carried ? g->y[1 + i] : g->x[1 + i])))
            return mu_error_code();
        l->carried_of[l->n_carried] = i;
        l->start[l->n_carried++] = dy;
    }
    return MU_OK;
}

static mu_status give_outputs(new_loop *l, int n_x, mu_tensor *const *dxs)
{
    const int carried = (int)l->old_attrs->n_carried;
    for (int i = 0; i < n_x; i++) {
        mu_tensor *dx = dxs[i];
        if (i < l->n_carried && l->carried_of[i] >= carried)
            dx = dx ? mu_add(l->inputs[i], dx) : l->inputs[i];
        else if (!dx)
            dx = mu__zeros_like(i < l->n_carried ? l->inputs[i] : l->old.inputs[l->carried_of[i]]);
        if (!dx)
            return mu_error_code();
        MU_TRY(mu__body_output(&l->body, dx));
    }
    return MU_OK;
}

// The old body's outputs and their known gradients, in the new body.
static mu_status seeds(new_loop *l, mu_tensor **ys, mu_tensor **dys, int *n)
{
    const mu_graph *graph = l->old.graph;
    const int carried = (int)l->old_attrs->n_carried;
    for (int i = 0; i < l->n_carried && l->carried_of[i] < carried; i++) {
        dys[*n] = l->inputs[i];
        if (!(ys[(*n)++] = symbolic(graph, graph->outputs.items[l->carried_of[i]])))
            return mu_error_code();
    }
    for (int i = carried; i < (int)graph->outputs.n; i++) {
        mu_edge edge;
        if (!l->g->dys[1 + i])
            continue;
        MU_TRY(row_of(&l->body.trace, l->g->dys[1 + i], &edge));
        dys[*n] = symbolic(l->body.trace.graph, edge);
        ys[*n] = symbolic(graph, graph->outputs.items[i]);
        if (!ys[*n] || !dys[(*n)++])
            return mu_error_code();
    }
    return MU_OK;
}

static mu_status pull_iteration(new_loop *l)
{
    const mu_loop_attrs *attrs = l->old_attrs;
    const size_t n_out = l->old.graph->outputs.n, n_in = l->old.graph->inputs.n;
    mu_tensor **ys = mu__calloc(2 * n_out + 2 * n_in + 1, sizeof *ys), **dys = MU_BEHIND(ys, n_out);
    mu_tensor **xs = MU_BEHIND(dys, n_out), **dxs = MU_BEHIND(xs, n_in);
    mu_status status = MU_OK;
    int n_y = 0, n_x = 0;
    if (!ys)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < l->n_carried; i++) {
        mu_spec spec = mu__spec_of(l->start[i]);
        // The shape may change between iterations: the old body shows which dimensions are fixed.
        if (l->carried_of[i] < attrs->n_carried)
            spec.shape = l->old.graph->inputs.items[l->carried_of[i]]->out[0].shape;
        if (!(l->inputs[i] = mu__body_input(&l->body, &spec)))
            MU_GO(mu_error_code());
    }
    MU_GO(record_body(&l->old));
    MU_GO(seeds(l, ys, dys, &n_y));
    for (; n_x < l->n_carried; n_x++)
        xs[n_x] = l->old.inputs[l->carried_of[n_x]];
    for (int i = (int)attrs->n_carried; i < attrs->n_carried + attrs->n_slices; i++)
        if (is_wanted(l->g, 1 + i)) {
            mu_edge row; // the new loop has as many iterations as there are of these
            MU_GO(row_of(&l->body.trace, l->g->x[1 + i], &row));
            l->carried_of[n_x] = i;
            xs[n_x++] = l->old.inputs[i];
        }
    if (n_y > 0)
        MU_GO(mu__pullback(l->old.tape, n_y, ys, dys, n_x, (void *const *)xs, dxs));
    status = give_outputs(l, n_x, dxs);
out:
    mu__free(ys);
    return status;
}

static mu_status apply_new_loop(new_loop *l, mu_tensor ***out)
{
    const int n_slices = (int)l->old.stacks.n;
    mu_body_trace *bodies[] = {&l->body};
    mu_loop_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.body = l->body.trace.graph;
    attrs.n_carried = l->n_carried;
    attrs.n_slices = n_slices;
    attrs.rows = -1;
    attrs.reverse = !l->old_attrs->reverse;
    if (mu__tape_listens())
        MU_TRY(mu__body_keep(attrs.body, l->n_carried));
    mu_tensor **own = mu__calloc((size_t)(1 + l->n_carried + n_slices), sizeof *own);
    if (!own)
        return MU_RESOURCE_EXHAUSTED;
    own[0] = l->g->y[0]; // as many iterations as were made
    for (int i = 0; i < l->n_carried; i++)
        own[1 + i] = l->start[i];
    for (int i = 0; i < n_slices; i++)
        own[1 + l->n_carried + i] = l->old.stacks.items[i];
    mu_status status = mu__control_apply(&mu_op_while_loop, &attrs, 1, bodies, 1 + l->n_carried + n_slices, own, out);
    mu__free(own);
    return status;
}

static mu_status trace_new_loop(new_loop *l, mu_tensor ***out)
{
    MU_TRY(choose_carried(l));
    MU_TRY(mu__body_begin(&l->body, "gradient of while_loop"));
    l->body.trace.resolve = resolve_in_loop;
    l->body.trace.resolve_arg = &l->old;
    l->body.trace.resolves = l->old.graph;
    mu_status status = pull_iteration(l);
    mu__body_end(&l->body);
    return status == MU_OK ? apply_new_loop(l, out) : status;
}

// Assigns the new loop's outputs to the old node's inputs. The limit, and inputs that need no gradient, have none.
static void sort_gradients(const new_loop *l, mu_tensor *const *out, mu_tensor **at)
{
    int rows = l->n_carried;
    for (int i = 0; i < l->n_carried; i++)
        at[1 + l->carried_of[i]] = mu_retain(out[1 + i]);
    for (int i = (int)l->old_attrs->n_carried; i < l->old_attrs->n_carried + l->old_attrs->n_slices; i++)
        if (is_wanted(l->g, 1 + i))
            at[1 + i] = mu_retain(out[1 + rows++]);
}

static mu_status loop_gradients(mu_grad *g, mu_tensor **at)
{
    const mu_loop_attrs *attrs = g->attrs;
    new_loop l = {.g = g, .old_attrs = attrs, .old = {.g = g, .graph = attrs->body}};
    mu_tensor **out = NULL;
    const size_t n = (size_t)g->n_in + 1;
    l.carried_of = mu__calloc(n, sizeof *l.carried_of);
    l.start = mu__calloc(n, sizeof *l.start);
    l.inputs = mu__calloc(n, sizeof *l.inputs);
    mu_status status = l.carried_of && l.start && l.inputs ? trace_new_loop(&l, &out) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        sort_gradients(&l, out, at);
    mu__body_free(&l.body);
    mu__free(out);
    mu__free(l.old.inputs);
    mu__free(l.old.stacks.items);
    mu__free(l.old.rows.items);
    mu__free(l.carried_of);
    mu__free(l.start);
    mu__free(l.inputs);
    return status;
}

// ---- The rules ----------------------------------------------------------------------------------

static mu_status branch_gradients(mu_grad *g, mu_tensor **at)
{
    mu_tensor **out = NULL;
    mu_status status = cond_gradients(g, &out);
    for (int i = 0, n = 0; status == MU_OK && i < g->n_in; i++)
        if (is_wanted(g, i))
            at[i] = out[n++];
    mu__free(out);
    return status;
}

// Makes all gradients when the first is requested.
static mu_tensor *gradient_of(mu_grad *g, int i, mu_status (*make)(mu_grad *g, mu_tensor **at))
{
    gradients *all = g->kept;
    if (!all) {
        all = g->kept = mu__give(mu__new(&gradients_type, sizeof *all));
        if (!all || !(all->at = mu__calloc((size_t)g->n_in + 1, sizeof *all->at)))
            return NULL;
        all->n = g->n_in;
        if (make(g, all->at) != MU_OK)
            return NULL;
    }
    return all->at[i];
}

mu_tensor *mu__cond_grad(mu_grad *g, int i) { return gradient_of(g, i, branch_gradients); }

mu_tensor *mu__loop_grad(mu_grad *g, int i) { return gradient_of(g, i, loop_gradients); }

mu_tensor *mu__call_grad(mu_grad *g, int i) { return gradient_of(g, i, mu__call_gradients); }

mu_tensor *mu__eager_custom_grad(mu_grad *g, int i) { return gradient_of(g, i, mu__eager_custom_gradients); }
