// Reverse-mode differentiation: tapes and the pullback over what they recorded.
//
// A tape keeps every application of an op, eager or traced, in order. The pullback walks it backwards and
// asks each row for the gradients of its inputs; the rules are written with ops, so the result can be
// recorded by an outer tape (second derivatives) or traced into the same graph. Tensors are told apart by
// identity: a symbolic one by node and output, an eager one by its handle.
#include "graph/graph.h"

typedef struct entry {
    const mu_op *op;
    void *attrs;
    int n_in, n_out, n_resources;
    mu_tensor **in, **out;       // retained
    mu_resource **resources;     // retained
    mu_site site;                // where it was made: its gradient is made there too
} entry;

typedef struct graph_tape {
    mu_object object;
    struct mu_tape interface;
    mu_arena arena;
    struct { entry **items; size_t n, capacity; } entries;
} graph_tape;

static graph_tape *tape_of(mu_tape *interface)
{
    return (graph_tape *)((char *)interface - offsetof(graph_tape, interface));
}

static void forget_entry(entry *e)
{
    for (int i = 0; i < e->n_in; i++)
        mu_release(e->in[i]);
    for (int i = 0; i < e->n_out; i++)
        mu_release(e->out[i]);
    for (int i = 0; i < e->n_resources; i++)
        mu_release(e->resources[i]);
    mu__attrs_release(e->op, e->attrs);
}

static void unlink_tape(graph_tape *tape)
{
    for (mu_tape **at = &mu__context()->tape; *at; at = &(*at)->outer)
        if (*at == &tape->interface) {
            *at = tape->interface.outer;
            return;
        }
}

static void tape_destroy(void *object)
{
    graph_tape *tape = object;
    unlink_tape(tape);
    for (size_t i = 0; i < tape->entries.n; i++)
        forget_entry(tape->entries.items[i]);
    mu__free(tape->entries.items);
    mu__arena_free(&tape->arena);
}

static mu_type tape_type = {.name = "tape", .destroy = tape_destroy};

static mu_status tape_record(mu_tape *interface, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                             int n_resources, mu_resource *const *resources, int n_out, mu_tensor *const *out)
{
    graph_tape *tape = tape_of(interface);
    mu_arena *arena = &tape->arena;
    entry *e = mu__arena_alloc(arena, sizeof *e);
    if (!e)
        return MU_RESOURCE_EXHAUSTED;
    *e = (entry){.op = op,
                 .attrs = attrs ? mu__arena_copy(arena, attrs, op->attrs_bytes) : NULL,
                 .in = mu__arena_copy(arena, in, sizeof(void *) * (size_t)n_in),
                 .out = mu__arena_copy(arena, out, sizeof(void *) * (size_t)n_out),
                 .resources = mu__arena_copy(arena, resources, sizeof(void *) * (size_t)n_resources),
                 .n_in = n_in, .n_out = n_out, .n_resources = n_resources, .site = mu__line()};
    if ((attrs && !e->attrs) || !e->in || !e->out || !e->resources || MU_PUSH(&tape->entries, e) != MU_OK)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n_in; i++)
        mu_retain(in[i]);
    for (int i = 0; i < n_out; i++)
        mu_retain(out[i]);
    for (int i = 0; i < n_resources; i++)
        mu_retain(resources[i]);
    mu__attrs_retain(op, e->attrs);
    return MU_OK;
}

mu_tape *mu_tape_open(void)
{
    if (mu__pending())
        return NULL;
    graph_tape *tape = mu__new(&tape_type, sizeof *tape);
    if (!tape)
        return NULL;
    mu_context *context = mu__context();
    tape->interface = (struct mu_tape){.outer = context->tape, .record = tape_record};
    if (!mu__give(tape))
        return NULL;
    context->tape = &tape->interface;
    return &tape->interface;
}

void mu_tape_close(mu_tape *tape)
{
    if (tape)
        unlink_tape(tape_of(tape));
}

// ---- Gradients by identity ----------------------------------------------------------------------

// An open-addressing table from a tensor's identity to whether it depends on a source, and its gradient.
typedef struct slot {
    const void *key;     // node or tensor; NULL: free
    int output;
    bool active;
    mu_tensor *gradient;
} slot;
typedef struct table {
    slot *slots;
    size_t mask, used;
} table;

static slot *probe(const table *t, const void *key, int output)
{
    size_t hash = ((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u + (size_t)output * 0x85EBCA6Bu;
    size_t i = (hash ^ hash >> 29) & t->mask;
    while (t->slots[i].key && (t->slots[i].key != key || t->slots[i].output != output))
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

static slot *find(const table *t, const mu_tensor *tensor)
{
    return tensor->node ? probe(t, tensor->node, tensor->output) : probe(t, tensor, 0);
}

static slot *insert(table *t, const mu_tensor *tensor)
{
    slot *s = find(t, tensor);
    if (!s->key) {
        s->key = tensor->node ? (const void *)tensor->node : (const void *)tensor;
        s->output = tensor->node ? tensor->output : 0;
        t->used++;
    }
    return s;
}

static mu_status table_init(table *t, const graph_tape *tape, int extra)
{
    size_t wanted = 64, tensors = (size_t)extra;
    for (size_t i = 0; i < tape->entries.n; i++)
        tensors += (size_t)(tape->entries.items[i]->n_in + tape->entries.items[i]->n_out);
    while (wanted < 2 * tensors)
        wanted *= 2;
    *t = (table){.slots = mu__calloc(wanted, sizeof *t->slots), .mask = wanted - 1};
    return t->slots ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static bool reads(const entry *e, const void *variable)
{
    return e->op == &mu_op_read_variable && (const void *)e->resources[0] == variable;
}

// Whether an input can carry a gradient back.
static bool differentiable(const entry *e, int i)
{
    return e->op->grad && mu__dtype_is_float(e->in[i]->dtype) && !(i < 32 && e->op->shape_only >> i & 1);
}

// Marks every tensor that depends on a source in a way that can be differentiated.
static void mark_active(table *t, const graph_tape *tape, int n_x, void *const *xs)
{
    for (int i = 0; i < n_x; i++)
        if (mu__is(xs[i], &mu__tensor_type))
            insert(t, xs[i])->active = true;
    for (size_t k = 0; k < tape->entries.n; k++) {
        const entry *e = tape->entries.items[k];
        bool active = false;
        for (int i = 0; i < e->n_in && !active; i++)
            active = differentiable(e, i) && find(t, e->in[i])->active;
        for (int i = 0; i < n_x && !active; i++)
            active = reads(e, xs[i]);
        for (int i = 0; active && i < e->n_out; i++)
            insert(t, e->out[i])->active = true;
    }
}

static mu_status accumulate(slot *s, mu_tensor *gradient)
{
    if (!gradient)
        return mu_error_code();
    s->gradient = s->gradient ? mu__apply2(&mu_op_add, NULL, s->gradient, gradient) : gradient;
    return s->gradient ? MU_OK : mu_error_code();
}

static mu_tensor *gradient_of_input(mu_grad *g, const entry *e, int i)
{
    mu_context *context = mu__context();
    if (e->site.file)
        mu__line_push(context, e->site);
    mu_tensor *dx = e->op->grad(g, i);
    if (mu__pending()) {
        mu__error_place(mu__line());
        mu__error_context("in the gradient of %s with respect to input %d", e->op->name, i);
    }
    if (e->site.file)
        mu__line_pop(context);
    return dx;
}

static mu_status pull_entry(table *t, const entry *e)
{
    mu_tensor *few[8], **dys = few;
    bool wanted = false;
    if (e->n_out > 8 && !(dys = mu__alloc(sizeof *dys * (size_t)e->n_out)))
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < e->n_out; i++) {
        const slot *s = find(t, e->out[i]);
        dys[i] = s->gradient;
        wanted |= s->active && s->gradient;
    }
    mu_status status = MU_OK;
    mu_grad g = {.op = e->op, .attrs = e->attrs, .n_in = e->n_in, .n_out = e->n_out, .n_resources = e->n_resources,
                 .x = e->in, .y = e->out, .dys = dys, .dy = e->n_out ? dys[0] : NULL, .resources = e->resources};
    for (int i = 0; wanted && i < e->n_in; i++) {
        slot *s = find(t, e->in[i]);
        if (!s->active || !differentiable(e, i))
            continue;
        mu_tensor *dx = gradient_of_input(&g, e, i);
        if (mu__pending())
            MU_GO(mu_error_code());
        if (dx)
            MU_GO(accumulate(s, dx));
    }
out:
    if (dys != few)
        mu__free(dys);
    return status;
}

// A variable's gradient is the sum over all reads of it.
static mu_status variable_gradient(const table *t, const graph_tape *tape, const void *variable, mu_tensor **out)
{
    slot sum = {0};
    for (size_t k = 0; k < tape->entries.n; k++) {
        const entry *e = tape->entries.items[k];
        const slot *s = reads(e, variable) ? find(t, e->out[0]) : NULL;
        // Reads shared by one node (a trace may hand it out twice) count once.
        bool seen = false;
        for (size_t j = 0; s && j < k && !seen; j++)
            seen = reads(tape->entries.items[j], variable) && find(t, tape->entries.items[j]->out[0]) == s;
        if (s && !seen && s->gradient)
            MU_TRY(accumulate(&sum, s->gradient));
    }
    *out = sum.gradient;
    return MU_OK;
}

mu_status mu__pullback(mu_tape *interface, int n_y, mu_tensor *const *ys, mu_tensor *const *dys, int n_x,
                       void *const *xs, mu_tensor **dxs)
{
    const graph_tape *tape = tape_of(interface);
    mu_status status = MU_OK;
    table t = {0};
    bool was_paused = interface->paused;
    interface->paused = true;
    size_t n_entries = tape->entries.n;
    MU_GO(table_init(&t, tape, n_x + n_y));
    mark_active(&t, tape, n_x, xs);
    for (int i = 0; i < n_y; i++) {
        mu_tensor *seed = dys && dys[i] ? dys[i] : mu__ones_like(ys[i]);
        MU_GO(accumulate(insert(&t, ys[i]), seed));
    }
    for (size_t k = n_entries; k-- > 0;)
        MU_GO(pull_entry(&t, tape->entries.items[k]));
    for (int i = 0; i < n_x; i++) {
        if (mu__is(xs[i], &mu__tensor_type))
            dxs[i] = find(&t, xs[i])->gradient;
        else
            MU_GO(variable_gradient(&t, tape, xs[i], &dxs[i]));
    }
out:
    interface->paused = was_paused;
    mu__free(t.slots);
    return status;
}

// ---- The public call ----------------------------------------------------------------------------

static mu_tensor *zeros_for(void *source)
{
    if (mu__is(source, &mu__tensor_type))
        return mu__zeros_like(source);
    const mu_spec *spec = &((mu_variable *)source)->resource.spec;
    return mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL);
}

mu_value *mu_gradients(mu_tape *tape, mu_tensor *loss, mu_value *sources)
{
    if (mu__pending())
        return NULL;
    if (!tape || !loss || !sources) {
        mu__error(MU_INVALID_ARGUMENT, "mu_gradients: %s is NULL", !tape ? "tape" : !loss ? "loss" : "sources");
        return NULL;
    }
    int n = mu__value_flatten(sources, NULL, 0);
    void **xs = mu__calloc((size_t)n + 1, 2 * sizeof *xs);
    mu_value *result = NULL;
    if (!xs)
        return NULL;
    mu_tensor **dxs = (mu_tensor **)(xs + n);
    mu__value_flatten(sources, (mu_object **)xs, n);
    if (mu__pullback(tape, 1, &loss, NULL, n, xs, dxs) != MU_OK)
        goto out;
    for (int i = 0; i < n; i++)
        if (!dxs[i] && !(dxs[i] = zeros_for(xs[i])))
            goto out;
    result = mu__give(mu__value_pack(sources, (mu_object *const *)dxs, n));
    if (result)
        result->sources = mu_retain(sources);
out:
    mu__free(xs);
    return result;
}
