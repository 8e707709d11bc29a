// The order in which Keras lists the layers of a model.
//
// Keras walks back from the outputs. A layer's depth is the longest way from it to an output; the deepest come first,
// and among equals those that the walk met first. Files number layers in this order, and optimizers keep the state of
// variables in it, so it is part of Keras's formats (keras.src.ops.function.map_graph).
#include "model/models/functional.h"
#include "model/models/model.h"

#include <stdlib.h>

// An operation while the order is computed. `index`: when the walk met it first.
typedef struct ranked {
    mu_operation operation;
    int node; // of its first call
    int depth, index;
} ranked;

// The walk: the nodes in the order in which they were finished, and the depth of each.
typedef struct walk {
    mu_order_graph graph;
    struct {
        ranked *items;
        size_t n, capacity;
    } operations;
    int *finished; // [n_finished] nodes
    int n_finished;
    int *depths;   // [nodes]
    bool *visited; // [nodes]
} walk;

// An operation that computes a mask is called once.
static ranked *operation_of(const walk *w, int i)
{
    const mu_order_node *node = &w->graph.nodes.items[i];
    for (size_t k = 0; k < w->operations.n; k++) {
        ranked *known = &w->operations.items[k];
        if (node->layer ? known->operation.layer == node->layer : known->node == i)
            return known;
    }
    return NULL;
}

static mu_status add_operation(walk *w, int i, int index)
{
    const mu_order_node *node = &w->graph.nodes.items[i];
    const ranked added = {.operation = {.layer = node->layer, .call = node->call}, .node = i, .index = index};
    return operation_of(w, i) ? MU_OK : MU_PUSH(&w->operations, added);
}

static mu_status visit(walk *w, int i)
{
    const mu_order_node *node = &w->graph.nodes.items[i];
    if (w->visited[i])
        return MU_OK;
    w->visited[i] = true;
    MU_TRY(add_operation(w, i, (int)w->operations.n));
    for (size_t k = 0; k < node->parents.n; k++)
        MU_TRY(visit(w, node->parents.items[k]));
    w->finished[w->n_finished++] = i;
    return MU_OK;
}

static void measure(walk *w)
{
    for (int k = w->n_finished - 1; k >= 0; k--) {
        const int i = w->finished[k];
        const mu_order_node *node = &w->graph.nodes.items[i];
        ranked *operation = operation_of(w, i);
        operation->depth = MU_MAX(w->depths[i], operation->depth);
        for (size_t p = 0; p < node->parents.n; p++) {
            int *depth = &w->depths[node->parents.items[p]];
            *depth = MU_MAX(*depth, operation->depth + 1);
        }
    }
}

static int by_depth(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    return a->depth != b->depth ? b->depth - a->depth : a->index - b->index;
}

// Orders the operations that the outputs depend on, and the first `n_inputs` nodes, which may be unused.
static mu_status rank(walk *w, const int *outputs, int n_outputs, int n_inputs, mu_operation_list *out)
{
    const size_t n = w->graph.nodes.n;
    w->finished = mu__calloc(n + 1, sizeof *w->finished);
    w->depths = mu__calloc(n + 1, sizeof *w->depths);
    w->visited = mu__calloc(n + 1, sizeof *w->visited);
    if (!w->finished || !w->depths || !w->visited)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n_outputs; i++)
        MU_TRY(visit(w, outputs[i]));
    measure(w);
    for (int i = 0; i < n_inputs; i++)
        MU_TRY(add_operation(w, i, i - n_inputs));
    if (w->operations.n > 0)
        qsort(w->operations.items, w->operations.n, sizeof *w->operations.items, by_depth);
    for (size_t i = 0; i < w->operations.n; i++) {
        mu_operation *operation = &w->operations.items[i].operation;
        operation->number = (int)i;
        if (operation->layer || operation->call)
            MU_TRY(MU_PUSH(out, *operation));
    }
    return MU_OK;
}

static void walk_free(walk *w)
{
    mu__order_free(&w->graph);
    mu__free(w->operations.items);
    mu__free(w->finished);
    mu__free(w->depths);
    mu__free(w->visited);
}

// ---- Functional models --------------------------------------------------------------------------

// The element of a map whose key comes next in alphabetical order; `last`: the key before it, or NULL.
static int next_by_key(const mu_value *map, const char *last)
{
    int next = -1;
    for (int i = 0; i < map->n; i++)
        if ((!last || strcmp(map->keys[i], last) > 0) && (next < 0 || strcmp(map->keys[i], map->keys[next]) < 0))
            next = i;
    return next;
}

// Writes the leaves of a nest in Keras's order, which is that of the keys for a map; returns their number with n.
static int leaves_of(const mu_value *nest, mu_object **leaves, int n)
{
    if (nest->leaf && n < MU_MAX_MODEL_INPUTS)
        leaves[n++] = nest->leaf;
    const char *last = NULL;
    for (int i = 0; i < nest->n; i++) {
        const int k = nest->keys ? next_by_key(nest, last) : i;
        last = nest->keys ? nest->keys[k] : NULL;
        n = leaves_of(nest->items[k], leaves, n);
    }
    return n;
}

// The layer tensors in a nest as nodes and outputs; `nodes`: of the model's calls. Returns how many there are.
static int tensors_of(const mu_functional *f, const int *nodes, const mu_value *nest, mu_order_tensor *out)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    const int n = nest ? leaves_of(nest, leaves, 0) : 0;
    int found = 0;
    for (int i = 0; i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        const int index = mu__is_layer_tensor(tensor) ? mu__call_index(f, mu__call_of(tensor)) : -1;
        if (index >= 0)
            out[found++] = (mu_order_tensor){.node = nodes[index], .output = tensor->node->id};
    }
    return found;
}

static mu_status add_calls(mu_order_graph *g, const mu_functional *f, int *nodes)
{
    for (size_t i = 0; i < f->calls.n; i++) {
        const mu_layer_call *call = f->calls.items[i];
        mu_order_call c = {0};
        if (call->layer && i >= f->n_inputs) {
            c.n_inputs = tensors_of(f, nodes, call->inputs, c.inputs);
            c.n_masks = tensors_of(f, nodes, call->mask, c.masks);
        }
        MU_TRY(mu__order_add(g, call->layer, call, &c, &nodes[i]));
    }
    return MU_OK;
}

static mu_status order_functional(const mu_functional *f, mu_operation_list *out, bool *unknown)
{
    walk w = {0};
    int *nodes = mu__calloc(f->calls.n + 1, sizeof *nodes), outputs[MU_MAX_MODEL_INPUTS];
    mu_order_tensor tensors[MU_MAX_MODEL_INPUTS];
    mu_status status = nodes ? add_calls(&w.graph, f, nodes) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK) {
        const int n = tensors_of(f, nodes, f->outputs, tensors);
        for (int i = 0; i < n; i++)
            outputs[i] = tensors[i].node;
        status = rank(&w, outputs, n, (int)f->n_inputs, out);
    }
    *unknown = w.graph.unknown;
    mu__free(nodes);
    walk_free(&w);
    return status;
}

// ---- Sequential models --------------------------------------------------------------------------

// Keras makes a functional model of the layers, whose first operation is the input.
static mu_status order_sequential(const mu_layer *model, mu_operation_list *out, bool *unknown)
{
    walk w = {0};
    mu_order_call c = {0};
    int last = 0;
    mu_status status = mu__order_add(&w.graph, NULL, NULL, &c, &last);
    c.n_inputs = 1;
    for (size_t i = model->sublayers.items[0]->ops == &mu__input_layer_ops; i < model->sublayers.n; i++) {
        c.inputs[0] = (mu_order_tensor){.node = last};
        if (status == MU_OK)
            status = mu__order_add(&w.graph, model->sublayers.items[i], NULL, &c, &last);
    }
    if (status == MU_OK)
        status = rank(&w, &last, 1, 1, out);
    *unknown = w.graph.unknown;
    walk_free(&w);
    return status;
}

mu_status mu__model_operations(const mu_layer *model, mu_operation_list *out, bool *unknown)
{
    const mu_functional *f = model->ops == &mu__functional_ops ? model->state : NULL;
    const bool ordered = f && f->order.n > 0;
    mu_status status = MU_OK;
    *unknown = false;
    if (!ordered)
        status = f ? order_functional(f, out, unknown) : order_sequential(model, out, unknown);
    for (size_t i = 0; ordered && status == MU_OK && i < f->order.n; i++)
        status = MU_PUSH(out, f->order.items[i]);
    if (status == MU_OK)
        return MU_OK;
    mu__free(out->items);
    *out = (mu_operation_list){0};
    return status;
}
