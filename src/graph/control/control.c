// The control flow ops cond, while_loop and call: shape rules. Engines run them; gradients are in control_grad.c.
//
// A rule passes the node's input shapes through its bodies, so one graph serves every batch size. A loop value whose
// shape changes between iterations has unknown dimensions outside. These rules check everything that an engine relies
// on, because graphs from other processes pass through them too.
#include "graph/control/control.h"

mu_bodies mu__bodies_of(const mu_op *op, void *attributes)
{
    mu_cond_attrs *cond = attributes;
    mu_loop_attrs *loop = attributes;
    mu_call_attrs *call = attributes;
    if (op == &mu_op_cond)
        return (mu_bodies){.n = 2, .at = {&cond->then, &cond->otherwise}, .first_captured = 1};
    if (op == &mu_op_call)
        return (mu_bodies){.n = 1, .at = {&call->body}};
    int carried = (int)loop->n_carried, own = carried + (int)loop->n_slices;
    return (mu_bodies){.n = loop->condition ? 2 : 1,
                       .at = {&loop->body, &loop->condition},
                       .n_own = {own, carried},
                       .first_captured = 1 + own};
}

// ---- What the rules share -----------------------------------------------------------------------

static mu_status need_inputs(const mu_infer *infer, const mu_graph *body, const char *what, int64_t n)
{
    if ((int64_t)body->inputs.n == n)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the %s takes %zu tensors and would be given %lld", infer->op->name, what,
                     body->inputs.n, (long long)n);
}

// Checks that an input fits the body's.
static mu_status need_spec(const mu_infer *infer, const mu_graph *body, int input, const mu_spec *given)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    const mu_spec *made_for = &body->inputs.items[input]->out[0];
    if (made_for->dtype == given->dtype && mu__shape_compatible(&made_for->shape, &given->shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: input %d of the body '%s' is given %s%s; it takes %s%s", infer->op->name,
                     input, body->name, mu_dtype_name(given->dtype), mu__shape_text(&given->shape, seen),
                     mu_dtype_name(made_for->dtype), mu__shape_text(&made_for->shape, wanted));
}

static mu_status need_scalar(const mu_infer *infer, const mu_spec *spec, mu_dtype dtype, const char *what)
{
    char text[MU_SHAPE_TEXT];
    if (spec->dtype == dtype && spec->shape.rank == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is %s%s; it must be a scalar of type %s", infer->op->name, what,
                     mu_dtype_name(spec->dtype), mu__shape_text(&spec->shape, text), mu_dtype_name(dtype));
}

// The shapes of a body's outputs for these inputs; free with mu__free.
static mu_status body_outputs(const mu_infer *infer, const mu_graph *body, const mu_spec *in, mu_spec **out)
{
    *out = NULL;
    for (size_t i = 0; i < body->inputs.n; i++)
        MU_TRY(need_spec(infer, body, (int)i, &in[i]));
    *out = mu__calloc(body->outputs.n + 1, sizeof **out);
    return *out ? mu__graph_shapes(body, in, *out) : MU_RESOURCE_EXHAUSTED;
}

// Dimensions that differ become unknown. False if type or rank differ.
static bool merge(mu_spec *into, const mu_spec *other)
{
    if (into->dtype != other->dtype || into->shape.rank != other->shape.rank)
        return false;
    for (int k = 0; k < into->shape.rank; k++)
        if (into->shape.dims[k] != other->shape.dims[k])
            into->shape.dims[k] = MU_UNKNOWN;
    return true;
}

static mu_status cannot_run(const mu_kernel *kernel)
{
    return mu__error(MU_INTERNAL, "op %s was run by itself; its bodies are run by an engine", kernel->op->name);
}

// ---- cond ---------------------------------------------------------------------------------------

static const mu_attr_spec cond_attrs[] = {
    {"then", MU_ATTR_GRAPH, offsetof(mu_cond_attrs, then)},
    {"otherwise", MU_ATTR_GRAPH, offsetof(mu_cond_attrs, otherwise)},
    {"n_shared", MU_ATTR_INT, offsetof(mu_cond_attrs, n_shared)},
    {0},
};

static int cond_outputs(const void *attributes)
{
    const mu_cond_attrs *attrs = attributes;
    if (!attrs->then || !attrs->otherwise || attrs->n_shared < 0 || attrs->n_shared > (int64_t)attrs->then->outputs.n ||
        attrs->n_shared > (int64_t)attrs->otherwise->outputs.n)
        return -1;
    return (int)(attrs->then->outputs.n + attrs->otherwise->outputs.n) - (int)attrs->n_shared;
}

static mu_status merge_branches(const mu_infer *infer, const mu_spec *then, const mu_spec *otherwise)
{
    const mu_cond_attrs *attrs = infer->attrs;
    int shared = (int)attrs->n_shared, kept = (int)attrs->then->outputs.n - shared;
    char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
    for (int i = 0; i < shared; i++) {
        infer->out[i] = then[i];
        if (!merge(&infer->out[i], &otherwise[i]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: result %d is %s%s in one branch and %s%s in the other; types and ranks must be equal",
                             infer->op->name, i, mu_dtype_name(then[i].dtype), mu__shape_text(&then[i].shape, a),
                             mu_dtype_name(otherwise[i].dtype), mu__shape_text(&otherwise[i].shape, b));
    }
    for (int i = shared; i < infer->n_out; i++)
        infer->out[i] = i < shared + kept ? then[i] : otherwise[i - kept];
    return MU_OK;
}

// The shapes of a branch's outputs. A branch that cannot take shapes known only at run time is not an error if the
// other branch is taken: its outputs then have the shapes of its trace, and *refused is set.
static mu_status branch_outputs(const mu_infer *infer, const mu_graph *body, mu_spec **out, bool *refused)
{
    const mu_status status = body_outputs(infer, body, infer->in + 1, out);
    if (status != MU_INVALID_ARGUMENT || !*out || *refused)
        return status;
    mu_error_take();
    *refused = true;
    for (size_t i = 0; i < body->outputs.n; i++)
        (*out)[i] = body->outputs.items[i].node->out[body->outputs.items[i].output];
    return MU_OK;
}

static mu_status cond_infer(mu_infer *infer)
{
    const mu_cond_attrs *attrs = infer->attrs;
    mu_spec *then = NULL, *otherwise = NULL;
    bool refused = false;
    MU_TRY(need_scalar(infer, &infer->in[0], MU_BOOL, "predicate"));
    MU_TRY(need_inputs(infer, attrs->then, "branch for true", infer->n_in - 1));
    MU_TRY(need_inputs(infer, attrs->otherwise, "branch for false", infer->n_in - 1));
    mu_status status = branch_outputs(infer, attrs->then, &then, &refused);
    if (status == MU_OK)
        status = branch_outputs(infer, attrs->otherwise, &otherwise, &refused);
    if (status == MU_OK)
        status = merge_branches(infer, then, otherwise);
    mu__free(then);
    mu__free(otherwise);
    return status;
}

const mu_op mu_op_cond = {
    .name = "cond",
    .n_in = 1,
    .max_in = MU_VARIADIC,
    .n_resources = MU_VARIADIC,
    .flags = MU_OP_CONTROL,
    .attrs_bytes = sizeof(mu_cond_attrs),
    .attrs = cond_attrs,
    .attr_outputs = cond_outputs,
    .infer = cond_infer,
    .grad = mu__cond_grad,
    .ref = cannot_run,
    .lower = mu__lower_cond,
};

// ---- while_loop ---------------------------------------------------------------------------------

static const mu_attr_spec loop_attrs[] = {
    {"condition", MU_ATTR_GRAPH, offsetof(mu_loop_attrs, condition)},
    {"body", MU_ATTR_GRAPH, offsetof(mu_loop_attrs, body)},
    {"n_carried", MU_ATTR_INT, offsetof(mu_loop_attrs, n_carried)},
    {"n_slices", MU_ATTR_INT, offsetof(mu_loop_attrs, n_slices)},
    {"rows", MU_ATTR_INT, offsetof(mu_loop_attrs, rows)},
    {"reverse", MU_ATTR_BOOL, offsetof(mu_loop_attrs, reverse)},
    {0},
};

static int loop_outputs(const void *attributes)
{
    const mu_loop_attrs *attrs = attributes;
    if (!attrs->body || attrs->n_carried < 0 || attrs->n_slices < 0 ||
        attrs->n_carried > (int64_t)attrs->body->outputs.n)
        return -1;
    return 1 + (int)attrs->body->outputs.n;
}

// The body's inputs in an iteration, by kind; first the slices and captured tensors, which never change.
static mu_status loop_inputs(const mu_infer *infer, mu_spec *in, int64_t *rows)
{
    const mu_loop_attrs *attrs = infer->attrs;
    int n = infer->n_in - 1, carried = (int)attrs->n_carried;
    *rows = attrs->rows >= 0 ? attrs->rows : MU_UNKNOWN;
    memcpy(in, infer->in + 1, sizeof *in * (size_t)n);
    for (int i = carried; i < carried + (int)attrs->n_slices; i++) {
        mu_shape *shape = &in[i].shape;
        if (shape->rank == 0)
            return mu__error(MU_INVALID_ARGUMENT, "%s: input %d has no axis to take slices along", infer->op->name,
                             i + 1);
        if (*rows == MU_UNKNOWN)
            *rows = shape->dims[0];
        shape->rank--;
        memmove(shape->dims, shape->dims + 1, sizeof *shape->dims * (size_t)shape->rank);
        shape->dims[shape->rank] = 0;
    }
    return MU_OK;
}

// Widens the shapes of the body's inputs by its outputs; `changed`: any input changed.
static mu_status widen(const mu_infer *infer, mu_spec *in, const mu_spec *out, bool *changed)
{
    const mu_loop_attrs *attrs = infer->attrs;
    char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
    *changed = false;
    for (int i = 0; i < attrs->n_carried; i++) {
        mu_spec before = in[i];
        if (!merge(&in[i], &out[i]))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s: value %d of the loop is %s%s before an iteration and %s%s after it; type and rank must not change",
                infer->op->name, i, mu_dtype_name(in[i].dtype), mu__shape_text(&in[i].shape, a),
                mu_dtype_name(out[i].dtype), mu__shape_text(&out[i].shape, b));
        *changed |= !mu__shape_equal(&before.shape, &in[i].shape);
    }
    return MU_OK;
}

// The shapes in every iteration: as given if they do not change; else changing ones unknown; else as the body was
// traced.
static mu_status settle(const mu_infer *infer, mu_spec *in, mu_spec **out)
{
    const mu_loop_attrs *attrs = infer->attrs;
    bool changed = true;
    for (int round = 0; changed && round < 3; round++) {
        for (int i = 0; round == 2 && i < attrs->n_carried; i++)
            in[i] = attrs->body->inputs.items[i]->out[0];
        mu__free(*out);
        MU_TRY(body_outputs(infer, attrs->body, in, out));
        MU_TRY(widen(infer, in, *out, &changed));
    }
    return changed
               ? mu__error(MU_INVALID_ARGUMENT, "%s: the shapes of the loop's values do not settle", infer->op->name)
               : MU_OK;
}

static mu_status check_condition(const mu_infer *infer, const mu_spec *in)
{
    const mu_loop_attrs *attrs = infer->attrs;
    const mu_graph *condition = attrs->condition;
    int carried = (int)attrs->n_carried, around = infer->n_in - 1 - carried - (int)attrs->n_slices;
    mu_status status = MU_OK;
    mu_spec *out = NULL, *given = mu__calloc((size_t)(carried + around) + 1, sizeof *given);
    if (!given)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(given, in, sizeof *in * (size_t)carried);
    memcpy(given + carried, in + carried + attrs->n_slices, sizeof *in * (size_t)around);
    MU_GO(need_inputs(infer, condition, "condition", carried + around));
    MU_GO(body_outputs(infer, condition, given, &out));
    if (condition->outputs.n != 1)
        MU_GO(mu__error(MU_INVALID_ARGUMENT, "%s: the condition gives %zu results; it must give one", infer->op->name,
                        condition->outputs.n));
    status = need_scalar(infer, &out[0], MU_BOOL, "condition's result");
out:
    mu__free(out);
    mu__free(given);
    return status;
}

static mu_status loop_results(const mu_infer *infer, mu_spec *in, mu_spec **out)
{
    const mu_loop_attrs *attrs = infer->attrs;
    int64_t rows;
    int carried = (int)attrs->n_carried;
    MU_TRY(loop_inputs(infer, in, &rows));
    MU_TRY(settle(infer, in, out));
    if (attrs->condition)
        MU_TRY(check_condition(infer, in));
    infer->out[0] = (mu_spec){.dtype = MU_I64};
    memcpy(infer->out + 1, in, sizeof *in * (size_t)carried);
    for (int i = carried; i < (int)attrs->body->outputs.n; i++) {
        mu_spec *stack = &infer->out[1 + i];
        *stack = (*out)[i];
        if (stack->shape.rank == MU_MAX_RANK)
            return mu__error(MU_INVALID_ARGUMENT, "%s: row %d has rank %d already and cannot be stacked",
                             infer->op->name, i, MU_MAX_RANK);
        memmove(stack->shape.dims + 1, stack->shape.dims, sizeof(int64_t) * (size_t)stack->shape.rank++);
        stack->shape.dims[0] = rows;
    }
    return MU_OK;
}

static mu_status loop_infer(mu_infer *infer)
{
    const mu_loop_attrs *attrs = infer->attrs;
    MU_TRY(need_scalar(infer, &infer->in[0], MU_I64, "limit"));
    MU_TRY(need_inputs(infer, attrs->body, "body", infer->n_in - 1));
    if (attrs->n_carried > infer->n_in - 1 || attrs->n_slices > infer->n_in - 1 - attrs->n_carried)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %lld carried values and %lld to slice, but %d inputs",
                         infer->op->name, (long long)attrs->n_carried, (long long)attrs->n_slices, infer->n_in - 1);
    mu_spec *out = NULL, *in = mu__calloc((size_t)infer->n_in, sizeof *in);
    mu_status status = in ? loop_results(infer, in, &out) : MU_RESOURCE_EXHAUSTED;
    mu__free(out);
    mu__free(in);
    return status;
}

const mu_op mu_op_while_loop = {
    .name = "while_loop",
    .n_in = 1,
    .max_in = MU_VARIADIC,
    .n_resources = MU_VARIADIC,
    .flags = MU_OP_CONTROL,
    .attrs_bytes = sizeof(mu_loop_attrs),
    .attrs = loop_attrs,
    .attr_outputs = loop_outputs,
    .infer = loop_infer,
    .grad = mu__loop_grad,
    .ref = cannot_run,
    .lower = mu__lower_loop,
};

// ---- call ---------------------------------------------------------------------------------------

static const mu_attr_spec call_attrs[] = {
    {"body", MU_ATTR_GRAPH, offsetof(mu_call_attrs, body)},
    {"gradient", MU_ATTR_GRAPH, offsetof(mu_call_attrs, gradient)},
    {"recompute", MU_ATTR_BOOL, offsetof(mu_call_attrs, recompute)},
    {0},
};

static int call_outputs(const void *attributes)
{
    const mu_call_attrs *attrs = attributes;
    return attrs->body ? (int)attrs->body->outputs.n : -1;
}

static mu_status call_infer(mu_infer *infer)
{
    const mu_call_attrs *attrs = infer->attrs;
    mu_spec *out = NULL;
    MU_TRY(need_inputs(infer, attrs->body, "body", infer->n_in));
    if (attrs->gradient)
        MU_TRY(need_inputs(infer, attrs->gradient, "gradient", infer->n_in + infer->n_out));
    if (attrs->gradient && (int)attrs->gradient->outputs.n + infer->n_out > infer->n_in)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %zu gradients of %d inputs, %d of which are results",
                         infer->op->name, attrs->gradient->outputs.n, infer->n_in, infer->n_out);
    mu_status status = body_outputs(infer, attrs->body, infer->in, &out);
    if (status == MU_OK)
        memcpy(infer->out, out, sizeof *out * (size_t)infer->n_out);
    mu__free(out);
    return status;
}

const mu_op mu_op_call = {
    .name = "call",
    .n_in = 0,
    .max_in = MU_VARIADIC,
    .n_resources = MU_VARIADIC,
    .flags = MU_OP_CONTROL,
    .attrs_bytes = sizeof(mu_call_attrs),
    .attrs = call_attrs,
    .attr_outputs = call_outputs,
    .infer = call_infer,
    .grad = mu__call_grad,
    .ref = cannot_run,
    .lower = mu__lower_call,
};
