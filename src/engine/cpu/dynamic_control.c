// Runs steps with bodies whose shapes are known only at run time: every iteration uses the plan for its shapes, and
// stacks grow.
//
// Each result is a tensor of its own. Plans come from the bodies' caches, so a loop whose shapes recur compiles
// nothing again.
#include "engine/cpu/control_run.h"

// Infers the output shapes from the actual input shapes, which may be known more precisely than in the graph. Free the
// result with mu__free.
static mu_spec *inferred(const struct control *c, const mu_spec *specs)
{
    const mu_node *node = c->node;
    mu_spec *out = mu__calloc((size_t)(node->n_out + node->n_resources) + 1, sizeof *out);
    if (!out)
        return NULL;
    for (int i = 0; i < node->n_resources; i++)
        out[node->n_out + i] = node->graph->resources.items[node->resources[i]]->spec;
    mu_infer infer = {.op = node->op,
                      .attrs = node->attrs,
                      .n_in = node->n_in,
                      .n_out = node->n_out,
                      .n_resources = node->n_resources,
                      .in = specs,
                      .resources = out + node->n_out,
                      .out = out};
    if (mu__infer_call(&infer) == MU_OK)
        return out;
    mu__free(out);
    return NULL;
}

// An output that neither an iteration nor the taken branch has filled, all zeros; dimensions that are still unknown
// are 0.
static mu_tensor *nothing_like(const mu_spec *spec)
{
    mu_shape shape = spec->shape;
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = MU_MAX(shape.dims[i], 0);
    mu_tensor *tensor = mu__tensor_alloc(spec->dtype, &shape);
    mu_spec known = {.dtype = spec->dtype, .shape = shape};
    if (tensor)
        memset(mu__host_write(tensor), 0, mu__spec_bytes(&known));
    return tensor;
}

static mu_status run_body(struct control *c, int b, const cpu_call *call, void *const *in, const mu_spec *specs,
                          void *const *destinations, mu_tensor **out)
{
    mu_plan *plan = mu__nested_plan(c->plans[b], specs);
    const cpu_call inner = {
        .run = call->run, .in = in, .destinations = destinations, .out = out, .depth = call->depth + 1};
    if (call->depth >= MU_MAX_DEPTH)
        return mu__error(MU_INVALID_ARGUMENT, "bodies of '%s' are nested more than %d deep", c->node->graph->name,
                         MU_MAX_DEPTH);
    return plan ? mu__cpu_call(plan, &inner) : mu_error_code();
}

static mu_status dynamic_cond(struct control *c, const cpu_call *call, void *const *in, const mu_spec *specs,
                              mu_tensor **out)
{
    const mu_cond_attrs *attrs = c->node->attrs;
    const int b = *(const bool *)in[0] ? 0 : 1;
    const size_t n = (*c->bodies.at[b])->outputs.n, shared = (size_t)attrs->n_shared, then = attrs->then->outputs.n;
    mu_tensor **results = mu__calloc(n + 1, sizeof *results);
    mu_status status = results ? run_body(c, b, call, in + 1, specs + 1, NULL, results) : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < n; i++)
        out[b == 0 || i < shared ? i : then + i - shared] = results[i];
    mu__free(results);
    mu_spec *known = status == MU_OK ? inferred(c, specs) : NULL;
    if (status == MU_OK && !known)
        status = mu_error_code();
    for (int i = 0; status == MU_OK && i < c->node->n_out; i++)
        if (!out[i] && !(out[i] = nothing_like(&known[i])))
            status = MU_RESOURCE_EXHAUSTED;
    mu__free(known);
    return status;
}

// ---- Loops --------------------------------------------------------------------------------------

typedef struct iterations {
    struct control *c;
    const cpu_call *call;
    const mu_loop_attrs *loop;
    int carried, n_stacks;
    int64_t rows;    // of stacks, if known; otherwise -1
    void *const *in; // the node's inputs
    const mu_spec *specs;
    mu_tensor **values;  // current loop variables; NULL: still the node's inputs
    mu_tensor **results; // of one iteration
    tensor_array *stacks;
} iterations;

// Binds a body's inputs before an iteration: loop variables, slices number `index` (body 0 only), captured values.
static void bind_measured(const iterations *t, int b, int64_t index)
{
    struct control *c = t->c;
    int n = 0;
    for (int i = 0; i < t->carried; i++, n++) {
        c->in[n] = t->values[i] ? (void *)mu__host_read(t->values[i]) : t->in[1 + i];
        c->specs[n] = t->values[i] ? mu__spec_of(t->values[i]) : t->specs[1 + i];
    }
    for (int i = t->carried; b == 0 && i < c->bodies.n_own[0]; i++, n++) {
        mu__slice_spec(&t->specs[1 + i], &c->specs[n]);
        c->in[n] = (char *)t->in[1 + i] + (size_t)index * mu__spec_bytes(&c->specs[n]);
    }
    for (int i = c->bodies.first_captured; i < c->node->n_in; i++, n++) {
        c->in[n] = t->in[i];
        c->specs[n] = t->specs[i];
    }
}

static mu_status ask_condition(iterations *t, bool *more)
{
    void *destination[] = {more};
    bind_measured(t, 1, 0);
    return run_body(t->c, 1, t->call, t->c->in, t->c->specs, destination, NULL);
}

static mu_status make_iteration(iterations *t, int64_t index)
{
    bind_measured(t, 0, index);
    MU_TRY(run_body(t->c, 0, t->call, t->c->in, t->c->specs, NULL, t->results));
    mu_status status = MU_OK;
    for (int i = 0; i < t->carried; i++) {
        mu_release(t->values[i]);
        t->values[i] = t->results[i];
    }
    for (int k = 0; k < t->n_stacks; k++) {
        if (status == MU_OK)
            status =
                mu__tensor_array_write(&t->stacks[k], index, t->results[t->carried + k], t->rows, t->c->node->graph);
        mu_release(t->results[t->carried + k]);
    }
    return status;
}

static mu_status run_iterations(iterations *t, int64_t limit, int64_t *made)
{
    bool more = true;
    for (*made = 0; *made < limit; ++*made) {
        if (t->loop->condition)
            MU_TRY(ask_condition(t, &more));
        if (!more)
            break;
        MU_TRY(make_iteration(t, t->loop->reverse ? limit - 1 - *made : *made));
        if ((*made & 255) == 255)
            MU_TRY(mu__check_stop());
    }
    return MU_OK;
}

static mu_tensor *stacked(const iterations *t, int k, const mu_spec *known)
{
    const tensor_array *s = &t->stacks[k];
    mu_spec spec = {.dtype = t->c->node->out[1 + t->carried + k].dtype, .shape = {.rank = s->row.shape.rank + 1}};
    if (!s->data) {
        spec = known[1 + t->carried + k];
        spec.shape.dims[0] = MU_MAX(t->rows, 0);
        return nothing_like(&spec);
    }
    spec.shape.dims[0] = t->rows >= 0 ? t->rows : s->rows;
    memcpy(spec.shape.dims + 1, s->row.shape.dims, sizeof(int64_t) * (size_t)s->row.shape.rank);
    mu_tensor *tensor = mu__tensor_alloc(spec.dtype, &spec.shape);
    if (tensor && s->row_bytes)
        memcpy(mu__host_write(tensor), s->data, (size_t)spec.shape.dims[0] * s->row_bytes);
    return tensor;
}

static mu_tensor *copy_of(const void *data, const mu_spec *spec)
{
    mu_tensor *tensor = mu__tensor_alloc(spec->dtype, &spec->shape);
    if (tensor && mu__spec_bytes(spec))
        memcpy(mu__host_write(tensor), data, mu__spec_bytes(spec));
    return tensor;
}

static mu_status give_results(iterations *t, int64_t made, mu_tensor **out)
{
    const mu_spec count = {.dtype = MU_I64};
    out[0] = copy_of(&made, &count);
    mu_spec *known = made == 0 && t->n_stacks > 0 ? inferred(t->c, t->specs) : NULL;
    bool whole = out[0] != NULL && (known || made > 0 || t->n_stacks == 0);
    for (int i = 0; whole && i < t->carried; i++) {
        out[1 + i] = t->values[i] ? mu_retain(t->values[i]) : copy_of(t->in[1 + i], &t->specs[1 + i]);
        whole = out[1 + i] != NULL;
    }
    for (int k = 0; whole && k < t->n_stacks; k++)
        whole = (out[1 + t->carried + k] = stacked(t, k, known)) != NULL;
    mu__free(known);
    return whole ? MU_OK : mu_error_code();
}

static int64_t known_rows(const iterations *t)
{
    int64_t rows = t->loop->rows;
    for (int i = t->carried; i < t->carried + t->loop->n_slices; i++)
        rows = i == t->carried ? t->specs[1 + i].shape.dims[0] : MU_MIN(rows, t->specs[1 + i].shape.dims[0]);
    return rows;
}

static mu_status dynamic_loop(struct control *c, const cpu_call *call, void *const *in, const mu_spec *specs,
                              mu_tensor **out)
{
    const mu_loop_attrs *loop = c->node->attrs;
    iterations t = {.c = c,
                    .call = call,
                    .loop = loop,
                    .carried = (int)loop->n_carried,
                    .in = in,
                    .specs = specs,
                    .n_stacks = c->node->n_out - 1 - (int)loop->n_carried};
    const size_t n = (size_t)c->node->n_out + 1;
    mu_status status = MU_RESOURCE_EXHAUSTED;
    int64_t limit, made = 0;
    t.rows = known_rows(&t);
    t.values = mu__calloc(n, sizeof *t.values);
    t.results = mu__calloc(n, sizeof *t.results);
    t.stacks = mu__calloc(n, sizeof *t.stacks);
    if (!t.values || !t.results || !t.stacks)
        goto out;
    for (int k = 0; k < t.n_stacks; k++)
        t.stacks[k].loose = mu__tensor_array_axes(loop->body->outputs.items[t.carried + k]);
    MU_GO(mu__loop_limit(c->node, *(const int64_t *)in[0], t.rows, t.n_stacks > 0, &limit));
    if (loop->reverse && t.rows < 0 && t.n_stacks > 0)
        MU_GO(mu__error(MU_INVALID_ARGUMENT, "a loop of '%s' runs in reverse without knowing how many rows there are",
                        c->node->graph->name));
    MU_GO(run_iterations(&t, limit, &made));
    status = give_results(&t, made, out);
out:
    for (int i = 0; t.values && i < t.carried; i++)
        mu_release(t.values[i]);
    for (int k = 0; t.stacks && k < t.n_stacks; k++)
        mu__free(t.stacks[k].data);
    mu__free(t.values);
    mu__free(t.results);
    mu__free(t.stacks);
    return status;
}

mu_status mu__control_dynamic(struct control *control, const cpu_call *call, void *const *in, const mu_spec *specs,
                              mu_tensor **out)
{
    if (control->node->op == &mu_op_cond)
        return dynamic_cond(control, call, in, specs, out);
    if (control->node->op == &mu_op_call)
        return run_body(control, 0, call, in, specs, NULL, out);
    return dynamic_loop(control, call, in, specs, out);
}
