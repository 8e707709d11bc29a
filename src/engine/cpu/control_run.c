// Runs steps with bodies (branches, loops and calls) as plans inside a plan.
//
// If all shapes are known at compile time, the plans are made with the step and work on the step's own memory: a body
// reads its inputs in place and writes results, including rows of stacks, directly to their destination. Loop
// variables alternate between the step's output and a scratch block, so no iteration copies them.
#include "engine/cpu/plan.h"
#include "engine/cpu/control_run.h"

bool mu__is_control(const mu_op *op) { return (op->flags & MU_OP_CONTROL) != 0; }

struct control *mu__control_new(mu_device *device, const mu_node *node)
{
    struct control *c = mu__calloc(1, sizeof *c);
    if (!c)
        return NULL;
    const size_t n = (size_t)node->n_in + (size_t)node->n_out + 1;
    *c = (struct control){.device = device, .node = node, .bodies = mu__bodies_of(node->op, (void *)node->attrs)};
    size_t results = n;
    for (int b = 0; b < c->bodies.n; b++)
        results = MU_MAX(results, (*c->bodies.at[b])->outputs.n + 1);
    c->in = mu__calloc(n, sizeof *c->in);
    c->specs = mu__calloc(n, sizeof *c->specs);
    c->destinations = mu__calloc(results, sizeof *c->destinations);
    bool whole = c->in && c->specs && c->destinations;
    for (int b = 0; whole && b < c->bodies.n; b++)
        whole = (c->plans[b] = mu__nested_new(device, *c->bodies.at[b])) != NULL;
    if (whole)
        return c;
    mu__control_free(c);
    return NULL;
}

void mu__control_free(struct control *c)
{
    if (!c)
        return;
    mu__nested_free(c->plans[0]);
    mu__nested_free(c->plans[1]);
    mu__free(c->in);
    mu__free(c->specs);
    mu__free(c->destinations);
    mu__free(c);
}

size_t mu__control_bytes(const struct control *c)
{
    const size_t first = mu__nested_bytes(c->plans[0]);
    return c->plans[1] ? MU_MAX(first, mu__nested_bytes(c->plans[1])) : first;
}

// ---- Preparing ----------------------------------------------------------------------------------

void mu__slice_spec(const mu_spec *stack, mu_spec *row)
{
    *row = (mu_spec){.dtype = stack->dtype, .shape = {.rank = stack->shape.rank - 1}};
    memcpy(row->shape.dims, stack->shape.dims + 1, sizeof(int64_t) * (size_t)row->shape.rank);
}

// The inputs that body number b receives in every iteration, from the specs of the node's inputs.
void mu__body_specs(const struct control *c, int b, const mu_spec *in, mu_spec *out)
{
    const mu_loop_attrs *loop = c->node->attrs;
    const int own = c->bodies.n_own[b], around = c->node->n_in - c->bodies.first_captured;
    for (int i = 0; i < own; i++)
        if (i < loop->n_carried)
            out[i] = in[1 + i];
        else
            mu__slice_spec(&in[1 + i], &out[i]);
    for (int i = 0; i < around; i++)
        out[own + i] = in[c->bodies.first_captured + i];
}

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Compiles a plan for each body. A branch with invalid shapes fails only if it is taken (run_cond).
static mu_status plan_bodies(struct control *c, const mu_spec *in)
{
    int refused = 0;
    for (int b = 0; b < c->bodies.n; b++) {
        mu__body_specs(c, b, in, c->specs);
        if ((c->fixed[b] = mu__nested_plan(c->plans[b], c->specs)))
            continue;
        if (c->node->op != &mu_op_cond || mu_error_code() != MU_INVALID_ARGUMENT || refused++ > 0)
            return mu_error_code();
        mu_error_take();
    }
    return MU_OK;
}

mu_status mu__control_prepare(mu_plan *plan, step *s)
{
    const mu_node *node = s->node;
    struct control *c = s->control = mu__control_new(plan->device, node);
    mu_spec *in = c ? mu__arena_alloc(&plan->memory, sizeof *in * (size_t)node->n_in) : NULL;
    if (!in)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        in[i] = plan->values[mu__value_index(plan, node->in[i])].spec;
    MU_TRY(plan_bodies(c, in));
    const mu_loop_attrs *loop = node->attrs;
    for (int i = 0; node->op == &mu_op_while_loop && i < loop->n_carried; i++)
        s->scratch_bytes += aligned(mu__spec_bytes(&in[1 + i]));
    return MU_OK;
}

// ---- Running ------------------------------------------------------------------------------------

static cpu_call inner_call(const struct control *c, const cpu_call *call)
{
    return (cpu_call){.run = call->run, .in = c->in, .destinations = c->destinations, .depth = call->depth + 1};
}

// Reports the invalid shapes of a branch that was taken.
static mu_status refuse_branch(const struct control *c, int b, const mu_kernel *k)
{
    for (int i = 1; i < k->n_in; i++)
        c->specs[i - 1] = (mu_spec){.dtype = k->in[i].dtype, .shape = k->in[i].shape};
    if (mu__nested_plan(c->plans[b], c->specs))
        return mu__error(MU_INTERNAL, "a branch of '%s' could not be planned before", c->node->graph->name);
    return mu_error_code();
}

static mu_status run_cond(const struct control *c, const mu_kernel *k, const cpu_call *call)
{
    const mu_cond_attrs *attrs = k->attrs;
    const int b = *(const bool *)k->in[0].data ? 0 : 1;
    const size_t n = (*c->bodies.at[b])->outputs.n, shared = (size_t)attrs->n_shared;
    if (!c->fixed[b])
        return refuse_branch(c, b, k);
    for (int i = 1; i < k->n_in; i++)
        c->in[i - 1] = k->in[i].data;
    for (size_t i = 0; i < n; i++)
        c->destinations[i] = k->out[b == 0 || i < shared ? i : attrs->then->outputs.n + i - shared].data;
    const cpu_call inner = inner_call(c, call);
    return mu__cpu_call(c->fixed[b], &inner);
}

static mu_status run_call(const struct control *c, const mu_kernel *k, const cpu_call *call)
{
    for (int i = 0; i < k->n_in; i++)
        c->in[i] = k->in[i].data;
    for (int i = 0; i < k->n_out; i++)
        c->destinations[i] = k->out[i].data;
    const cpu_call inner = inner_call(c, call);
    return mu__cpu_call(c->fixed[0], &inner);
}

// Checks a loop's limit on iterations: slices and stacks must have at least as many rows.
mu_status mu__loop_limit(const mu_node *node, int64_t asked, int64_t rows, bool stacks, int64_t *limit)
{
    const mu_loop_attrs *loop = node->attrs;
    *limit = asked;
    if (asked < 0)
        return mu__error(MU_INVALID_ARGUMENT, "a loop of '%s' has the limit %lld; it must be at least 0",
                         node->graph->name, (long long)asked);
    if ((loop->n_slices > 0 || (stacks && rows >= 0)) && asked > rows)
        return mu__error(MU_INVALID_ARGUMENT, "a loop of '%s' may make %lld iterations, but there are %lld rows",
                         node->graph->name, (long long)asked, (long long)rows);
    return MU_OK;
}

static int64_t rows_of(const mu_kernel *k)
{
    const mu_loop_attrs *loop = k->attrs;
    const int first_stack = 1 + (int)loop->n_carried;
    if (loop->n_slices > 0) {
        int64_t rows = k->in[first_stack].shape.dims[0];
        for (int i = 1; i < loop->n_slices; i++)
            rows = MU_MIN(rows, k->in[first_stack + i].shape.dims[0]);
        return rows;
    }
    return k->n_out > first_stack ? k->out[first_stack].shape.dims[0] : -1;
}

static void *row(const mu_view *stack, int64_t i)
{
    const size_t bytes =
        (size_t)mu__elements_between(&stack->shape, 1, stack->shape.rank) * mu_dtype_bytes(stack->dtype);
    return (char *)stack->data + (size_t)i * bytes;
}

// Binds the loop variables of an iteration: it reads from one of output and scratch block, and writes to the other.
static void bind_iteration(const struct control *c, const mu_kernel *k, int64_t iteration, int64_t index)
{
    const mu_loop_attrs *loop = k->attrs;
    const int carried = (int)loop->n_carried, own = c->bodies.n_own[0];
    char *other = k->scratch;
    for (int i = 0; i < carried; i++) {
        const mu_view *out = &k->out[1 + i];
        void *destinations[] = {out->data, other};
        c->in[i] = iteration == 0 ? k->in[1 + i].data : destinations[(iteration - 1) & 1];
        c->destinations[i] = destinations[iteration & 1];
        other += aligned((size_t)mu__elements(&out->shape) * mu_dtype_bytes(out->dtype));
    }
    for (int i = carried; i < own; i++)
        c->in[i] = row(&k->in[1 + i], index);
    for (int i = carried; i < k->n_out - 1; i++)
        c->destinations[i] = row(&k->out[1 + i], index);
    for (int i = 1 + own; i < k->n_in; i++)
        c->in[i - 1] = k->in[i].data;
}

// Evaluates the condition on the loop variables of the next iteration and the captured values.
static mu_status continues(const struct control *c, const mu_kernel *k, const cpu_call *call, bool *out)
{
    const mu_loop_attrs *loop = k->attrs;
    void *in[64], **given = in, *destination[] = {out};
    const int carried = (int)loop->n_carried, n = c->bodies.n_own[1] + k->n_in - c->bodies.first_captured;
    if (n > (int)MU_COUNT(in) && !(given = mu__alloc(sizeof *given * (size_t)n)))
        return MU_RESOURCE_EXHAUSTED;
    memcpy(given, c->in, sizeof *given * (size_t)carried);
    memcpy(given + carried, c->in + c->bodies.n_own[0], sizeof *given * (size_t)(n - carried));
    const cpu_call inner = {.run = call->run, .in = given, .destinations = destination, .depth = call->depth + 1};
    const mu_status status = mu__cpu_call(c->fixed[1], &inner);
    if (given != in)
        mu__free(given);
    return status;
}

// The last iteration left the loop variables in the output or in the scratch block; without an iteration, they are
// the node's inputs.
static void finish_loop(const struct control *c, const mu_kernel *k, int64_t iterations)
{
    const mu_loop_attrs *loop = k->attrs;
    bind_iteration(c, k, iterations, 0);
    for (int i = 0; i < loop->n_carried; i++) {
        const mu_view *out = &k->out[1 + i];
        if (c->in[i] != out->data)
            memcpy(out->data, c->in[i], (size_t)mu__elements(&out->shape) * mu_dtype_bytes(out->dtype));
    }
    *(int64_t *)k->out[0].data = iterations;
}

static mu_status run_loop(const struct control *c, const mu_kernel *k, const cpu_call *call)
{
    const mu_loop_attrs *loop = k->attrs;
    const cpu_call inner = inner_call(c, call);
    int64_t limit, iteration = 0;
    MU_TRY(
        mu__loop_limit(c->node, *(const int64_t *)k->in[0].data, rows_of(k), k->n_out > 1 + loop->n_carried, &limit));
    for (; iteration < limit; iteration++) {
        bool more = true;
        bind_iteration(c, k, iteration, loop->reverse ? limit - 1 - iteration : iteration);
        if (loop->condition)
            MU_TRY(continues(c, k, call, &more));
        if (!more)
            break;
        MU_TRY(mu__cpu_call(c->fixed[0], &inner));
        if ((iteration & 255) == 255)
            MU_TRY(mu__check_stop());
    }
    finish_loop(c, k, iteration);
    return MU_OK;
}

mu_status mu__control_run(const struct control *c, const mu_kernel *kernel, const cpu_call *call)
{
    if (call->depth >= MU_MAX_DEPTH)
        return mu__error(MU_INVALID_ARGUMENT, "bodies of '%s' are nested more than %d deep", c->node->graph->name,
                         MU_MAX_DEPTH);
    if (kernel->op == &mu_op_cond)
        return run_cond(c, kernel, call);
    return kernel->op == &mu_op_call ? run_call(c, kernel, call) : run_loop(c, kernel, call);
}
