// Reverse-mode differentiation: tapes, and the pullback over the ops that they recorded.
//
// A tape keeps every applied op in order, eager or traced. The pullback goes through them backwards and asks each op's
// definition for the gradients of its inputs. These rules use ops, so an outer tape can record the result (second
// derivatives), or the same graph can contain it. Tensors are identified by node and output (symbolic) or by handle
// (eager). The gradient of a variable that is gathered from stays a list of slices until a dense gradient is added.
// Gradients of a tensor's slices are kept separate until all are known (slice_gradients.c).
#include "graph/gradients/parts.h"
#include "ops/array/dynamic_partition.h"
#include "ops/core/grads.h"

#include <muster/ops.h>

typedef struct entry {
    const mu_op *op;
    void *attrs;
    int n_in, n_out, n_resources;
    mu_tensor **in, **out;   // retained
    mu_resource **resources; // retained
    mu_site site;            // where it was made; its gradient is made there too
} entry;

typedef struct graph_tape {
    mu_object object;
    struct mu_tape interface;
    mu_arena arena;
    struct {
        entry **items;
        size_t n, capacity;
    } entries;
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

// A copy of a name, shared with the previous entry if that has the same.
static mu_status keep_name(graph_tape *tape, const char *before, const char **name)
{
    if (!*name)
        return MU_OK;
    *name = before && strcmp(before, *name) == 0 ? before : mu__arena_strdup(&tape->arena, *name);
    return *name ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// The tape may outlive the layer and the graph of the entry's node, so it keeps copies of both names.
static mu_status keep_site(graph_tape *tape, mu_site *site)
{
    const mu_site before = tape->entries.n ? tape->entries.items[tape->entries.n - 1]->site : (mu_site){0};
    MU_TRY(keep_name(tape, before.file, &site->file));
    return keep_name(tape, before.layer, &site->layer);
}

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
                 .n_in = n_in,
                 .n_out = n_out,
                 .n_resources = n_resources,
                 .site = mu__line()};
    if ((attrs && !e->attrs) || !e->in || !e->out || !e->resources || keep_site(tape, &e->site) != MU_OK ||
        MU_PUSH(&tape->entries, e) != MU_OK)
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

mu_tape *mu__tape_detached(void)
{
    graph_tape *tape = mu__pending() ? NULL : mu__new(&tape_type, sizeof *tape);
    if (tape)
        tape->interface = (struct mu_tape){.record = tape_record};
    return mu__give(tape) ? &tape->interface : NULL;
}

// ---- Gradients by identity ----------------------------------------------------------------------

// An open-addressing table from a tensor's identity to whether it depends on a source, and its gradient.
typedef struct slot {
    const void *key; // node or tensor; NULL: free
    int output;
    bool active;
    bool sparse; // a read of a variable: its gradient may be slices
    mu_gradient gradient;
    mu_parts *parts;     // gradients of its slices, not yet added; NULL: none
    const entry *sliced; // the latest slice
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

// Which of the resources that an op reads is this one; -1: none.
static int part_read(const entry *e, const void *variable)
{
    const bool is_read = e->op == &mu_op_read_variable || e->op == &mu_op_gather_variable;
    int part = is_read ? e->n_resources - 1 : -1;
    while (part >= 0 && (const void *)e->resources[part] != variable)
        part--;
    return part;
}

static bool reads(const entry *e, const void *variable) { return part_read(e, variable) >= 0; }

// Whether an input can carry a gradient back.
static bool differentiable(const entry *e, int i)
{
    return e->op->grad && mu__dtype_is_float(e->in[i]->dtype) && !(i < 32 && e->op->shape_only >> i & 1);
}

// Marks every tensor that depends differentiably on a source.
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
        for (int i = 0; active && i < e->n_out; i++) {
            slot *s = insert(t, e->out[i]);
            s->active = true;
            s->sparse = e->op == &mu_op_read_variable;
        }
    }
}

static bool has_gradient(const slot *s) { return s->gradient.dense || s->gradient.values; }

// The gradient of a tensor as a dense one; NULL if there is none, or on error.
static mu_tensor *dense_gradient(const mu_gradient *g, int64_t rows)
{
    return g->values ? mu_unsorted_segment_sum(g->values, g->indices, rows) : g->dense;
}

static mu_status add_slices(mu_gradient *to, mu_tensor *values, mu_tensor *indices)
{
    mu_tensor *both_values[] = {to->values, values}, *both_indices[] = {to->indices, indices};
    if (to->values && to->indices->dtype != indices->dtype)
        for (int i = 0; i < 2; i++)
            both_indices[i] = mu_cast(both_indices[i], MU_I64);
    to->indices = to->values ? mu_concat(2, both_indices, 0) : indices;
    to->values = to->values ? mu_concat(2, both_values, 0) : values;
    return to->values && to->indices ? MU_OK : mu_error_code();
}

// Adds gradients: slices are concatenated; if one is dense, the sum is dense.
static mu_status accumulate(mu_gradient *sum, const mu_gradient *more, int64_t rows)
{
    if (more->values && !sum->dense)
        return add_slices(sum, more->values, more->indices);
    mu_tensor *dense = dense_gradient(more, rows), *before = dense_gradient(sum, rows);
    *sum = (mu_gradient){.dense = dense && before ? mu__apply2(&mu_op_add, NULL, before, dense) : dense};
    return sum->dense && !mu__pending() ? MU_OK : mu_error_code();
}

static int64_t first_axis(const mu_tensor *tensor) { return tensor->shape.rank > 0 ? tensor->shape.dims[0] : 1; }

// Ops of an entry's gradient get the entry's source position.
static void enter_site(const entry *e)
{
    mu_site site = mu__line();
    site.layer = e->site.layer;
    mu__line_push(mu__context(), e->site.file ? e->site : site);
}

static void leave_site(const entry *e, int i)
{
    if (mu__pending()) {
        mu__error_add_site(mu__line());
        mu__error_context("in the gradient of %s with respect to input %d", e->op->name, i);
    }
    mu__line_pop(mu__context());
}

static void gradient_of_input(mu_grad *g, const entry *e, int i, bool sparse, mu_gradient *out)
{
    enter_site(e);
    if (!sparse || !mu__gather_slices(g, i, &out->values, &out->indices))
        out->dense = e->op->grad(g, i);
    leave_site(e, i);
}

// Keeps the gradient of a slice for later; `kept`: the entry is a slice.
static mu_status keep_part(slot *s, const entry *e, mu_tensor *dy, bool *kept)
{
    mu_part part;
    *kept = dy && mu__slice_part(e->op, e->attrs, e->in[0], dy, &part);
    if (!*kept)
        return mu_error_code();
    if (!s->parts && !(s->parts = mu__calloc(1, sizeof *s->parts)))
        return MU_RESOURCE_EXHAUSTED;
    s->sliced = e;
    return MU_PUSH(s->parts, part);
}

// Adds the kept gradients of a tensor's slices to its gradient, when all are known.
static mu_status join_kept(slot *s, mu_tensor *tensor)
{
    if (!s->parts || s->parts->n == 0)
        return MU_OK;
    enter_site(s->sliced);
    const mu_gradient joined = {.dense = mu__join_parts(s->parts, tensor)};
    leave_site(s->sliced, 0);
    s->parts->n = 0;
    return joined.dense ? accumulate(&s->gradient, &joined, first_axis(tensor)) : mu_error_code();
}

static void table_free(table *t)
{
    for (size_t i = 0; t->slots && i <= t->mask; i++) {
        mu__free(t->slots[i].parts ? t->slots[i].parts->items : NULL);
        mu__free(t->slots[i].parts);
    }
    mu__free(t->slots);
}

static mu_status pull_entry(table *t, const entry *e)
{
    mu_tensor *few[8], **dys = few;
    bool wanted = false;
    if (e->n_out > 8 && !(dys = mu__alloc(sizeof *dys * (size_t)e->n_out)))
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = MU_OK;
    bool *wanted_in = NULL;
    for (int i = 0; i < e->n_out; i++) {
        slot *s = find(t, e->out[i]);
        MU_GO(join_kept(s, e->out[i]));
        dys[i] = s->gradient.dense; // only variables have slices, and they are no results
        wanted |= s->active && s->gradient.dense;
    }
    wanted_in = wanted ? mu__calloc((size_t)e->n_in + 1, sizeof *wanted_in) : NULL;
    if (wanted && !wanted_in)
        MU_GO(MU_RESOURCE_EXHAUSTED);
    for (int i = 0; wanted && i < e->n_in; i++)
        wanted_in[i] = find(t, e->in[i])->active && differentiable(e, i);
    mu_grad g = {.op = e->op,
                 .attrs = e->attrs,
                 .n_in = e->n_in,
                 .n_out = e->n_out,
                 .n_resources = e->n_resources,
                 .x = e->in,
                 .y = e->out,
                 .dys = dys,
                 .dy = e->n_out ? dys[0] : NULL,
                 .resources = e->resources,
                 .wanted = wanted_in};
    for (int i = 0; wanted && i < e->n_in; i++) {
        if (!wanted_in[i])
            continue;
        slot *s = find(t, e->in[i]);
        mu_gradient dx = {0};
        bool kept = false;
        MU_GO(keep_part(s, e, g.dy, &kept));
        if (kept)
            continue;
        gradient_of_input(&g, e, i, s->sparse, &dx);
        if (mu__pending())
            MU_GO(mu_error_code());
        if (dx.dense || dx.values)
            MU_GO(accumulate(&s->gradient, &dx, first_axis(e->in[i])));
    }
out:
    mu__free(wanted_in);
    if (dys != few)
        mu__free(dys);
    return status;
}

// Of slices of a variable in several parts, those of one part, with its own numbers of rows.
static mu_status keep_slices_of(const entry *e, int part, mu_gradient *slices)
{
    mu_tensor *local[2], *positions[2];
    int64_t begin = 0;
    for (int i = 0; i < part; i++)
        begin += e->resources[i]->spec.shape.dims[0];
    const int64_t end = begin + e->resources[part]->spec.shape.dims[0];
    mu_tensor *rows = mu_cast(slices->indices, MU_I64), *first = mu_constant(MU_I64, (double)begin);
    mu_tensor *inside =
        mu_cast(mu_logical_and(mu_greater_equal(rows, first), mu_less(rows, mu_constant(MU_I64, (double)end))), MU_I32);
    MU_TRY(mu__dynamic_partition(mu_subtract(rows, first), inside, 2, local));
    MU_TRY(mu__dynamic_partition(mu__positions(rows), inside, 2, positions));
    slices->indices = local[1];
    slices->values = mu_gather(slices->values, positions[1], 0, 0);
    return mu_error_code();
}

// The gradient of a read of a variable: of the whole, or of rows, which are slices.
static mu_status read_gradient(const entry *e, const slot *s, int part, mu_gradient *out)
{
    *out = s->gradient;
    if (e->op != &mu_op_gather_variable)
        return MU_OK;
    const mu_shape *variable = &e->resources[0]->spec.shape;
    int64_t dims[MU_MAX_RANK] = {-1}, inner = 1;
    for (int a = 1; a < variable->rank; a++)
        inner *= dims[a] = variable->dims[a];
    *out = (mu_gradient){0};
    if (inner == 0)
        return MU_OK;
    out->values = mu_reshape(dense_gradient(&s->gradient, 0), variable->rank, dims);
    out->indices = mu_reshape(e->in[0], 1, (int64_t[]){-1});
    return e->n_resources > 1 ? keep_slices_of(e, part, out) : mu_error_code();
}

// A variable's gradient is the sum over all reads of it.
static mu_status variable_gradient(const table *t, const graph_tape *tape, const void *variable, mu_gradient *out)
{
    *out = (mu_gradient){0};
    for (size_t k = 0; k < tape->entries.n; k++) {
        const entry *e = tape->entries.items[k];
        const slot *s = reads(e, variable) ? find(t, e->out[0]) : NULL;
        // Reads shared by one node (a trace may hand it out twice) count once.
        bool seen = false;
        for (size_t j = 0; s && j < k && !seen; j++)
            seen = reads(tape->entries.items[j], variable) && find(t, tape->entries.items[j]->out[0]) == s;
        mu_gradient more = {0};
        const int part = part_read(e, variable);
        if (s && !seen && has_gradient(s))
            MU_TRY(read_gradient(e, s, part, &more));
        if (more.dense || more.values)
            MU_TRY(accumulate(out, &more, e->resources[part]->spec.shape.dims[0]));
    }
    return MU_OK;
}

static mu_status tensor_gradient(const table *t, mu_tensor *tensor, mu_gradient *out)
{
    slot *s = find(t, tensor);
    MU_TRY(join_kept(s, tensor));
    *out = (mu_gradient){.dense = dense_gradient(&s->gradient, first_axis(tensor))};
    return mu_error_code();
}

mu_status mu__pullback_slices(mu_tape *interface, int n_y, mu_tensor *const *ys, mu_tensor *const *dys, int n_x,
                              void *const *xs, mu_gradient *dxs)
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
        const mu_gradient seed = {.dense = dys && dys[i] ? dys[i] : mu__ones_like(ys[i])};
        if (!seed.dense)
            MU_GO(mu_error_code());
        MU_GO(accumulate(&insert(&t, ys[i])->gradient, &seed, first_axis(ys[i])));
    }
    for (size_t k = n_entries; k-- > 0;)
        MU_GO(pull_entry(&t, tape->entries.items[k]));
    for (int i = 0; i < n_x; i++) {
        if (mu__is(xs[i], &mu__tensor_type))
            MU_GO(tensor_gradient(&t, xs[i], &dxs[i]));
        else
            MU_GO(variable_gradient(&t, tape, xs[i], &dxs[i]));
    }
out:
    interface->paused = was_paused;
    table_free(&t);
    return status;
}

mu_status mu__pullback(mu_tape *tape, int n_y, mu_tensor *const *ys, mu_tensor *const *dys, int n_x, void *const *xs,
                       mu_tensor **dxs)
{
    mu_gradient *found = mu__calloc((size_t)n_x + 1, sizeof *found);
    mu_status status = found ? mu__pullback_slices(tape, n_y, ys, dys, n_x, xs, found) : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n_x && status == MU_OK; i++) {
        const mu_spec *spec = mu__is(xs[i], &mu__tensor_type) ? NULL : &((const mu_variable *)xs[i])->resource.spec;
        dxs[i] = dense_gradient(&found[i], spec ? spec->shape.dims[0] : 0);
        status = mu_error_code();
    }
    mu__free(found);
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

// A gradient as a value of the pool: slices, or a tensor.
static mu_value *gradient_value(const mu_gradient *g, void *source)
{
    if (g->values) {
        const mu_shape *shape = &((const mu_variable *)source)->resource.spec.shape;
        return mu_indexed_slices(g->values, g->indices, shape->rank, shape->dims);
    }
    mu_tensor *dense = g->dense ? g->dense : zeros_for(source);
    mu_value *value = dense ? mu_of(dense) : NULL;
    if (value)
        value->unconnected = !g->dense;
    return value;
}

// The structure of `sources` with the next gradients as leaves; of the pool.
static mu_value *pack_gradients(const mu_value *sources, const mu_gradient **next)
{
    if (sources->leaf)
        return gradient_value((*next)++, sources->leaf);
    mu_value **items = mu__calloc((size_t)sources->n + 1, sizeof *items), *packed = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < sources->n; i++)
        whole = (items[i] = pack_gradients(sources->items[i], next)) != NULL;
    if (whole)
        packed = mu__give(mu__value_container(sources->kind, sources->n, items, (const char *const *)sources->keys));
    mu__free(items);
    return packed;
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
    void **xs = mu__calloc((size_t)n + 1, sizeof *xs);
    mu_gradient *dxs = mu__calloc((size_t)n + 1, sizeof *dxs);
    mu_value *result = NULL;
    if (xs && dxs) {
        mu__value_flatten(sources, (mu_object **)xs, n);
        const mu_gradient *next = dxs;
        if (mu__pullback_slices(tape, 1, &loss, NULL, n, xs, dxs) == MU_OK)
            result = pack_gradients(sources, &next);
    }
    if (result)
        result->sources = mu_retain(sources);
    mu__free(xs);
    mu__free(dxs);
    return result;
}
