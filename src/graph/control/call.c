// Calls: functions with a custom gradient, and functions that are recomputed for their gradient.
//
// In a trace both are `call` nodes, which tapes ask for gradients. Engines inline the body of a call, except with
// recompute: its intermediate values must not be kept, so it stays a body. Outside of traces, a custom gradient is only
// an entry of the tapes.
#include "base/callback.h"
#include "graph/control/control.h"

#include <muster/ops.h>

// ---- Replaying ----------------------------------------------------------------------------------

typedef struct replay {
    const mu_graph *graph;
    int *first; // index of each node's first value
    mu_tensor **values;
} replay;

static mu_tensor **value_of(const replay *r, mu_edge edge) { return &r->values[r->first[edge.node->id] + edge.output]; }

static bool is_effect(const mu_node *node)
{
    return (node->flags & (MU_OP_READS | MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE)) != 0;
}

// Effects that have happened are not repeated, but tapes record them.
static mu_status record_known(const mu_node *node, mu_tensor *const *in, mu_resource *const *resources,
                              mu_tensor *const *out)
{
    for (struct mu_tape *tape = mu__context()->tape; tape && node->n_out > 0; tape = tape->outer)
        if (!tape->paused)
            MU_TRY(tape->record(tape, node->op, node->attrs, node->n_in, in, node->n_resources, resources, node->n_out,
                                out));
    return MU_OK;
}

static mu_status replay_node(const replay *r, mu_node *node, bool known)
{
    mu_tensor **in = mu__calloc((size_t)node->n_in + 1, sizeof *in), **out = value_of(r, (mu_edge){.node = node});
    mu_resource **resources = mu__calloc((size_t)node->n_resources + 1, sizeof *resources);
    mu_status status = in && resources ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < node->n_in; i++)
        in[i] = *value_of(r, node->in[i]);
    for (int i = 0; status == MU_OK && i < node->n_resources; i++)
        resources[i] = r->graph->resources.items[node->resources[i]];
    mu__line_push(mu__context(), mu__node_site(node));
    if (status == MU_OK)
        status = known ? record_known(node, in, resources, out)
                       : mu__apply(node->op, node->attrs, node->n_in, in, node->n_resources, resources, out);
    mu__line_pop(mu__context());
    mu__free(in);
    mu__free(resources);
    return status;
}

static mu_status replay_all(const replay *r, mu_known_value *known, void *arg)
{
    for (size_t i = 0; i < r->graph->nodes.n; i++) {
        mu_node *node = r->graph->nodes.items[i];
        const bool has_happened = known && is_effect(node);
        if (node->op == &mu_op_constant)
            *value_of(r, (mu_edge){.node = node}) = ((const mu_constant_attrs *)node->attrs)->tensor;
        for (int k = 0; has_happened && k < node->n_out; k++)
            if (!(*value_of(r, (mu_edge){.node = node, .output = k}) = known(arg, node, k)))
                return mu__error(MU_INTERNAL, "what op %s gave is not kept", node->op->name);
        if (node->op != &mu_op_input && node->op != &mu_op_constant)
            MU_TRY(replay_node(r, node, has_happened));
    }
    return MU_OK;
}

mu_status mu__graph_replay(const mu_graph *graph, mu_tensor *const *in, mu_known_value *known, void *arg,
                           mu_tensor **out)
{
    replay r = {.graph = graph, .first = mu__calloc(graph->nodes.n + 1, sizeof *r.first)};
    size_t values = 0;
    for (size_t i = 0; r.first && i < graph->nodes.n; i++) {
        r.first[i] = (int)values;
        values += (size_t)graph->nodes.items[i]->n_out;
    }
    r.values = r.first ? mu__calloc(values + 1, sizeof *r.values) : NULL;
    mu_status status = r.values ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < graph->inputs.n; i++)
        *value_of(&r, (mu_edge){.node = graph->inputs.items[i]}) = in[i];
    if (status == MU_OK)
        status = replay_all(&r, known, arg);
    for (size_t i = 0; status == MU_OK && i < graph->outputs.n; i++)
        out[i] = *value_of(&r, graph->outputs.items[i]);
    mu__free(r.values);
    mu__free(r.first);
    return status;
}

// ---- Recomputing --------------------------------------------------------------------------------

// Keeps the results of effects, because effects must not happen again.
static mu_status keep_effects(mu_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (int k = 0; is_effect(graph->nodes.items[i]) && k < graph->nodes.items[i]->n_out; k++)
            MU_TRY(MU_PUSH(&graph->outputs, ((mu_edge){.node = graph->nodes.items[i], .output = k})));
    return MU_OK;
}

mu_value *mu_recompute_grad(mu_body *fn, mu_value *arguments, void *arg)
{
    if (mu__pending())
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_recompute_grad: the callback is NULL");
        return NULL;
    }
    if (!mu__context()->trace) {
        mu_value *now;
        MU_CALLBACK("a function of mu_recompute_grad", now = fn(arguments, arg));
        return now;
    }
    mu_body_trace body, *bodies[] = {&body};
    mu_tensors leaves = {0};
    mu_tensor **out = NULL;
    mu_value *result = NULL;
    mu_call_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    mu_status status = mu__body_begin(&body, "recomputed");
    mu_value *inner = status == MU_OK ? fn(arguments, arg) : NULL;
    MU_GO(mu__body_finish(&body, inner, "mu_recompute_grad", &leaves));
    MU_GO(mu__body_hoist_reads(1, bodies));
    MU_GO(keep_effects(body.trace.graph));
    attrs.body = body.trace.graph;
    attrs.recompute = true;
    MU_GO(mu__control_apply(&mu_op_call, &attrs, 1, bodies, 0, NULL, &out));
    result = mu__value_around(inner, out);
    if (result)
        result = mu__pool_return(body.pool, result);
out:
    mu__free(leaves.at);
    mu__free(out);
    mu__body_free(&body);
    return result;
}

// ---- Gradients of calls -------------------------------------------------------------------------

// Returns the kept result of an effect that happened in the call.
static mu_tensor *kept_effect(void *arg, const mu_node *node, int output)
{
    const mu_grad *g = arg;
    const mu_graph *body = ((const mu_call_attrs *)g->attrs)->body;
    const int i = mu__find_output(body, 0, node, output);
    return i < 0 ? NULL : g->y[i];
}

// Computes the body again, then its gradient; both are inside the new body, so no intermediate value outlives it.
static mu_status recompute(mu_grad *g, mu_body_trace *body)
{
    const mu_graph *old = ((const mu_call_attrs *)g->attrs)->body;
    const size_t n_out = old->outputs.n, n_in = (size_t)g->n_in;
    mu_tensor **in = mu__calloc(3 * n_in + 2 * n_out + 1, sizeof *in);
    mu_tensor **xs = MU_BEHIND(in, n_in), **dxs = MU_BEHIND(xs, n_in);
    mu_tensor **ys = MU_BEHIND(dxs, n_in), **dys = MU_BEHIND(ys, n_out);
    mu_tape *tape = mu_tape_open();
    mu_status status = in && tape ? MU_OK : MU_RESOURCE_EXHAUSTED;
    int n_y = 0, n_x = 0;
    for (size_t i = 0; status == MU_OK && i < n_in; i++) // a new tensor each, so that their gradients are distinct
        status = (in[i] = mu_identity(g->x[i])) ? MU_OK : mu_error_code();
    if (status == MU_OK)
        status = mu__graph_replay(old, in, kept_effect, g, ys);
    mu_tape_close(tape);
    for (size_t i = 0; i < n_out && status == MU_OK; i++)
        if (g->dys[i]) {
            ys[n_y] = ys[i];
            dys[n_y++] = g->dys[i];
        }
    for (size_t i = 0; i < n_in && status == MU_OK; i++)
        if (mu__dtype_is_float(g->x[i]->dtype) && (!g->wanted || g->wanted[i]))
            xs[n_x++] = in[i];
    if (status == MU_OK && n_y > 0)
        status = mu__pullback(tape, n_y, ys, dys, n_x, (void *const *)xs, dxs);
    for (int i = 0; status == MU_OK && i < n_x; i++) {
        mu_tensor *dx = dxs[i] ? dxs[i] : mu__zeros_like(xs[i]);
        status = dx ? mu__body_output(body, dx) : mu_error_code();
    }
    mu__free(in);
    return status;
}

static mu_status recomputed_gradients(mu_grad *g, mu_tensor **at)
{
    mu_body_trace body, *bodies[] = {&body};
    mu_tensor **out = NULL;
    mu_call_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    mu_status status = mu__body_begin(&body, "gradient of call");
    if (status == MU_OK)
        status = recompute(g, &body);
    mu__body_end(&body);
    attrs.body = body.trace.graph;
    attrs.recompute = true;
    if (status == MU_OK)
        status = mu__control_apply(&mu_op_call, &attrs, 1, bodies, 0, NULL, &out);
    for (int i = 0, n = 0; status == MU_OK && i < g->n_in; i++)
        if (mu__dtype_is_float(g->x[i]->dtype) && (!g->wanted || g->wanted[i]))
            at[i] = mu_retain(out[n++]);
    mu__free(out);
    mu__body_free(&body);
    return status;
}

// The gradient graph takes arguments, results, gradients of the results, and captured tensors (see mu_call_attrs).
static mu_status given_gradients(mu_grad *g, mu_tensor **at)
{
    const mu_call_attrs *old = g->attrs;
    const int n_x = (int)old->gradient->outputs.n, n_y = g->n_out;
    mu_tensor **in = mu__calloc((size_t)(g->n_in + n_y + n_x) + 1, sizeof *in);
    mu_tensor **out = MU_BEHIND(in, g->n_in + n_y);
    mu_resource **resources = NULL;
    mu_call_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.body = old->gradient;
    int n = 0, n_resources = 0;
    mu_status status = in ? mu__bodies_resources(1, &attrs.body, &resources, &n_resources) : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n_x + n_y; i++)
        in[n++] = i < n_x ? g->x[i] : g->y[i - n_x];
    for (int i = 0; status == MU_OK && i < n_y; i++)
        status = (in[n++] = mu__grad_of(g, i)) ? MU_OK : mu_error_code();
    for (int i = n_x + n_y; status == MU_OK && i < g->n_in; i++)
        in[n++] = g->x[i];
    if (status == MU_OK)
        status = mu__apply(&mu_op_call, &attrs, n, in, n_resources, resources, out);
    for (int i = 0; status == MU_OK && i < n_x; i++)
        at[i] = mu_retain(out[i]);
    mu__free(in);
    mu__free(resources);
    return status;
}

mu_status mu__call_gradients(mu_grad *g, mu_tensor **at)
{
    return ((const mu_call_attrs *)g->attrs)->gradient ? given_gradients(g, at) : recomputed_gradients(g, at);
}

// ---- Custom gradients ---------------------------------------------------------------------------

static mu_value *forward_alone(mu_body *forward, mu_value *arguments, void *arg, mu_tensors *results)
{
    mu_context *context = mu__context();
    struct mu_tape *tape = context->tape;
    context->tape = NULL;
    mu_value *result;
    MU_CALLBACK("a function of mu_custom_gradient", result = forward(arguments, arg));
    mu_status status = mu__pending() ? mu_error_code() : mu__tensors_of(result, "mu_custom_gradient", results);
    // A result may be an argument; tapes identify tensors by address, so each needs its own.
    for (int i = 0; status == MU_OK && i < results->n; i++)
        status = (results->at[i] = mu_identity(results->at[i])) ? MU_OK : mu_error_code();
    context->tape = tape;
    return status == MU_OK ? mu__value_around(result, results->at) : NULL;
}

// Checks that backward returned one gradient for each tensor of the arguments.
static mu_status check_gradients(const mu_tensors *x, const mu_value *gradients, mu_tensors *out)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__tensors_of(gradients, "mu_custom_gradient: the result of backward", out));
    if (out->n != x->n)
        return mu__error(MU_INVALID_ARGUMENT, "mu_custom_gradient: backward gave %d gradients for %d arguments", out->n,
                         x->n);
    for (int i = 0; i < x->n; i++)
        if (out->at[i]->dtype != x->at[i]->dtype || !mu__shape_compatible(&out->at[i]->shape, &x->at[i]->shape))
            return mu__error(MU_INVALID_ARGUMENT, "mu_custom_gradient: gradient %d is %s%s; the argument is %s%s", i,
                             mu_dtype_name(out->at[i]->dtype), mu__shape_text(&out->at[i]->shape, seen),
                             mu_dtype_name(x->at[i]->dtype), mu__shape_text(&x->at[i]->shape, wanted));
    return MU_OK;
}

static mu_value *inputs_of(mu_body_trace *body, const mu_value *like, const mu_tensors *leaves)
{
    return mu__body_inputs(body, like, leaves, mu__spec_of);
}

typedef struct custom {
    mu_backward *backward;
    void *arg;
    mu_value *arguments, *results;
    mu_tensors x, y;
} custom;

static mu_status trace_backward(const custom *c, mu_body_trace *body)
{
    mu_tensors gradients = {0};
    MU_TRY(mu__body_begin(body, "custom gradient"));
    mu_value *x = inputs_of(body, c->arguments, &c->x), *y = inputs_of(body, c->results, &c->y);
    mu_value *dy = inputs_of(body, c->results, &c->y);
    mu_status status =
        x && y && dy ? check_gradients(&c->x, c->backward(x, y, dy, c->arg), &gradients) : mu_error_code();
    for (int i = 0; status == MU_OK && i < gradients.n; i++)
        status = mu__body_output(body, gradients.at[i]);
    mu__body_end(body);
    mu__free(gradients.at);
    return status;
}

// The body of the call returns its results unchanged; its inputs are arguments, results and the tensors that the
// gradient captured.
static mu_status trace_identity(const custom *c, mu_body_trace *body, const mu_body_trace *gradient)
{
    MU_TRY(mu__body_begin(body, "results"));
    mu_status status =
        inputs_of(body, c->arguments, &c->x) && inputs_of(body, c->results, &c->y) ? MU_OK : mu_error_code();
    for (int i = 0; status == MU_OK && i < c->y.n; i++)
        status = MU_PUSH(&body->trace.graph->outputs, ((mu_edge){.node = body->trace.graph->inputs.items[c->x.n + i]}));
    for (size_t i = 0; status == MU_OK && i < gradient->trace.captured.n; i++) {
        mu_edge unused;
        status = mu__trace_edge(&body->trace, gradient->trace.captured.items[i].tensor, &unused);
    }
    mu__body_end(body);
    return status;
}

static mu_value *trace_custom(const custom *c)
{
    mu_body_trace gradient = {.pool = NULL}, body = {.pool = NULL}, *both[] = {&gradient, &body};
    mu_tensor **own = mu__calloc((size_t)(c->x.n + c->y.n) + 1, sizeof *own), **out = NULL, **captured = NULL;
    mu_value *result = NULL;
    mu_call_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    int n = 0;
    mu_status status = own ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; own && i < c->x.n + c->y.n; i++)
        own[i] = i < c->x.n ? c->x.at[i] : c->y.at[i - c->x.n];
    MU_GO(status);
    MU_GO(trace_backward(c, &gradient));
    MU_GO(mu__body_hoist_reads(1, both));
    MU_GO(trace_identity(c, &body, &gradient));
    MU_GO(mu__bodies_join(2, both, &captured, &n));
    attrs.body = body.trace.graph;
    attrs.gradient = gradient.trace.graph;
    MU_GO(mu__control_apply(&mu_op_call, &attrs, 1, &both[1], c->x.n + c->y.n, own, &out));
    result = mu__value_around(c->results, out);
    if (result)
        result = mu__pool_return(body.pool, result);
    if (result)
        result = mu__pool_return(gradient.pool, result);
out:
    mu__free(captured);
    mu__free(own);
    mu__free(out);
    mu__body_free(&body);
    mu__body_free(&gradient);
    return result;
}

// ---- Custom gradients outside of traces ---------------------------------------------------------

typedef struct eager_attrs {
    mu_value *arguments, *results;
    mu_backward *backward;
    void *arg;
} eager_attrs;

static const mu_attr_spec eager_specs[] = {
    {"arguments", MU_ATTR_TENSOR, offsetof(eager_attrs, arguments)},
    {"results", MU_ATTR_TENSOR, offsetof(eager_attrs, results)},
    {0},
};

mu_status mu__eager_custom_gradients(mu_grad *g, mu_tensor **at)
{
    const eager_attrs *attrs = g->attrs;
    mu_tensor **dys = mu__calloc((size_t)g->n_out + 1, sizeof *dys);
    const mu_tensors x = {.n = g->n_in, .at = (mu_tensor **)g->x};
    mu_tensors found = {0};
    mu_status status = dys ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < g->n_out; i++)
        status = (dys[i] = mu__grad_of(g, i)) ? MU_OK : mu_error_code();
    mu_value *gradients = status == MU_OK ? mu__value_around(attrs->results, dys) : NULL;
    if (gradients)
        MU_CALLBACK("a function of mu_custom_gradient",
                    status = check_gradients(
                        &x, attrs->backward(attrs->arguments, attrs->results, gradients, attrs->arg), &found));
    for (int i = 0; status == MU_OK && gradients && i < g->n_in; i++)
        at[i] = mu_retain(found.at[i]);
    mu__free(found.at);
    mu__free(dys);
    return gradients ? status : mu_error_code();
}

static const mu_op eager_row = {
    .name = "custom_gradient",
    .max_in = MU_VARIADIC,
    .attrs_bytes = sizeof(eager_attrs),
    .attrs = eager_specs,
    .grad = mu__eager_custom_grad,
};

static mu_value *record_custom(const custom *c)
{
    eager_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.arguments = c->arguments;
    attrs.results = c->results;
    attrs.backward = c->backward;
    attrs.arg = c->arg;
    for (struct mu_tape *tape = mu__context()->tape; tape; tape = tape->outer)
        if (!tape->paused && tape->record(tape, &eager_row, &attrs, c->x.n, c->x.at, 0, NULL, c->y.n, c->y.at) != MU_OK)
            return NULL;
    return c->results;
}

mu_value *mu_custom_gradient(mu_body *forward, mu_backward *backward, mu_value *arguments, void *arg)
{
    if (mu__pending())
        return NULL;
    if (!forward || !backward || !arguments) {
        mu__error(MU_INVALID_ARGUMENT, "mu_custom_gradient: forward, backward and arguments must be given");
        return NULL;
    }
    custom c = {.backward = backward, .arg = arg, .arguments = arguments};
    mu_value *result = NULL;
    if (mu__tensors_of(arguments, "mu_custom_gradient", &c.x) == MU_OK)
        c.results = forward_alone(forward, arguments, arg, &c.y);
    if (c.results)
        result = mu__context()->trace ? trace_custom(&c) : record_custom(&c);
    mu__free(c.x.at);
    mu__free(c.y.at);
    return result;
}
