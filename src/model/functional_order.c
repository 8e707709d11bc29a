// The order in which Keras lists the layers of a functional model.
//
// Keras walks back from the outputs. A layer's depth is the longest way from it to an output; the deepest come first,
// and among equals those that the walk met first. Files number layers in this order, and optimizers keep the state of
// variables in it, so it is part of Keras's formats (keras.src.ops.function.map_graph).
#include "model/functional.h"

#include <stdlib.h>

// An operation while the order is computed. `index`: when the walk met it first.
typedef struct ranked {
    mu_operation operation;
    int depth, index;
} ranked;

// The walk: the calls in the order in which they were finished, and the depth of each.
typedef struct walk {
    const mu_functional *f;
    struct { ranked *items; size_t n, capacity; } operations;
    int *finished;       // [n] places of calls
    int n_finished;
    int *depths;         // [calls] by place
    bool *visited;       // [calls] by place
} walk;

static bool is_input(const mu_functional *f, int place) { return (size_t)place < f->n_inputs; }

static ranked *operation_of(const walk *w, const mu_layer_call *call)
{
    for (size_t i = 0; i < w->operations.n; i++) {
        ranked *known = &w->operations.items[i];
        if (call->layer ? known->operation.layer == call->layer : known->operation.call == call)
            return known;
    }
    return NULL;
}

static mu_status add_operation(walk *w, const mu_layer_call *call, int index)
{
    const ranked added = {.operation = {.layer = call->layer, .call = call}, .index = index};
    return operation_of(w, call) ? MU_OK : MU_PUSH(&w->operations, added);
}

static mu_status visit(walk *w, const mu_value *value);

static mu_status visit_arguments(walk *w, const mu_layer_call *call)
{
    MU_TRY(visit(w, call->inputs));
    return call->mask ? visit(w, call->mask) : MU_OK;
}

static mu_status visit(walk *w, const mu_value *value)
{
    if (!value->leaf) {
        for (int i = 0; i < value->n; i++)
            MU_TRY(visit(w, value->items[i]));
        return MU_OK;
    }
    const mu_tensor *tensor = (const mu_tensor *)value->leaf;
    if (!mu__is_layer_tensor(tensor))
        return MU_OK;
    const mu_layer_call *call = mu__call_of(tensor);
    const int place = mu__call_place(w->f, call);
    if (place < 0 || w->visited[place])
        return MU_OK;
    w->visited[place] = true;
    MU_TRY(add_operation(w, call, (int)w->operations.n));
    if (call->layer && !is_input(w->f, place))
        MU_TRY(visit_arguments(w, call));
    w->finished[w->n_finished++] = place;
    return MU_OK;
}

// Makes the calls that a value depends on at least this deep.
static void deepen(walk *w, const mu_value *value, int depth)
{
    for (int i = 0; !value->leaf && i < value->n; i++)
        deepen(w, value->items[i], depth);
    const mu_tensor *tensor = (const mu_tensor *)value->leaf;
    const int place = tensor && mu__is_layer_tensor(tensor) ? mu__call_place(w->f, mu__call_of(tensor)) : -1;
    if (place >= 0)
        w->depths[place] = MU_MAX(w->depths[place], depth);
}

static void measure(walk *w)
{
    for (int i = w->n_finished - 1; i >= 0; i--) {
        const int place = w->finished[i];
        const mu_layer_call *call = w->f->calls.items[place];
        ranked *operation = operation_of(w, call);
        operation->depth = MU_MAX(MU_MAX(w->depths[place], 0), operation->depth);
        if (!call->layer || is_input(w->f, place))
            continue;
        deepen(w, call->inputs, operation->depth + 1);
        if (call->mask)
            deepen(w, call->mask, operation->depth + 1);
    }
}

static int by_depth(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    return a->depth != b->depth ? b->depth - a->depth : a->index - b->index;
}

static mu_status walk_all(walk *w)
{
    MU_TRY(visit(w, w->f->outputs));
    measure(w);
    // An input that no output depends on.
    for (size_t i = 0; i < w->f->n_inputs; i++)
        MU_TRY(add_operation(w, w->f->calls.items[i], (int)i - (int)w->f->n_inputs));
    qsort(w->operations.items, w->operations.n, sizeof *w->operations.items, by_depth);
    return MU_OK;
}

static mu_status compute_order(const mu_functional *f, mu_operation_list *out)
{
    walk w = {.f = f};
    w.finished = mu__calloc(f->calls.n + 1, sizeof *w.finished);
    w.depths = mu__calloc(f->calls.n + 1, sizeof *w.depths);
    w.visited = mu__calloc(f->calls.n + 1, sizeof *w.visited);
    mu_status status = w.finished && w.depths && w.visited ? walk_all(&w) : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < w.operations.n; i++) {
        w.operations.items[i].operation.number = (int)i;
        status = MU_PUSH(out, w.operations.items[i].operation);
    }
    mu__free(w.operations.items);
    mu__free(w.finished);
    mu__free(w.depths);
    mu__free(w.visited);
    return status;
}

mu_status mu__functional_operations(const mu_layer *model, mu_operation_list *out)
{
    const mu_functional *f = model->state;
    mu_status status = f->order.n == 0 ? compute_order(f, out) : MU_OK;
    for (size_t i = 0; status == MU_OK && i < f->order.n; i++)
        status = MU_PUSH(out, f->order.items[i]);
    if (status == MU_OK)
        return MU_OK;
    mu__free(out->items);
    *out = (mu_operation_list){0};
    return status;
}
