// Divides a model into the part that runs on the host and its step. See host_part.h.
#include "model/models/host_part.h"

#include "graph/trace.h"
#include "model/core/names.h"
#include "model/models/functional.h"
#include "model/models/model.h"
#include "model/training/samples.h"

#include <muster/ops.h>

bool mu__has_host_part(const mu_layer *layer)
{
    bool has = layer->ops->host_spec != NULL;
    const bool model = mu__layer_only_calls(layer);
    for (size_t i = 0; model && !has && i < layer->sublayers.n; i++)
        has = mu__has_host_part(layer->sublayers.items[i]);
    return has;
}

mu_dtype mu__host_input_dtype(const mu_layer *layer, mu_dtype other)
{
    static const mu_dtype kinds[] = {MU_STRING, MU_I64};
    if (layer->ops == &mu__input_layer_ops)
        return ((const mu_input_args *)layer->args)->dtype ? ((const mu_input_args *)layer->args)->dtype : other;
    if (layer->ops == &mu__sequential_ops)
        return mu__host_input_dtype(layer->sublayers.items[0], other);
    for (size_t i = 0; layer->ops->host_spec && i < MU_COUNT(kinds); i++) {
        const mu_spec in = {.dtype = kinds[i], .shape = {.rank = 1, .dims = {MU_UNKNOWN}}};
        mu_spec out;
        if (layer->ops->host_spec(layer, 1, &in, &out) == MU_OK)
            return kinds[i];
        mu_error_take();
    }
    return other;
}

// ---- Before the step ----------------------------------------------------------------------------

typedef struct host_run {
    mu_host_calls calls;
    struct {
        mu_value **items;
        size_t n, capacity;
    } results; // of each call; they belong to the pool
} host_run;

static mu_value *run_layer(host_run *h, const mu_layer *layer, mu_value *inputs, bool whole);

// What a layer notes when it is called is left to the step, which may run at the same time.
static mu_value *call_one(const mu_layer *layer, mu_value *inputs)
{
    const mu_call_context context = {0};
    inputs = mu__layer_convert(layer, inputs);
    mu_value *outputs = inputs ? layer->ops->call((mu_layer *)(uintptr_t)layer, inputs, &context) : NULL;
    if (!outputs)
        mu__error_context("in layer '%s'", mu_layer_name((mu_layer *)(uintptr_t)layer));
    return outputs;
}

enum { UNUSED, CALLED, USED }; // is not called; is called; and its output is used on the host

// Marks the calls that made the tensors of a nest.
static mu_status mark_used(const mu_functional *f, const mu_value *nest, char *marks)
{
    const int n = mu__value_flatten(nest, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    if (!leaves)
        return MU_RESOURCE_EXHAUSTED;
    mu__value_flatten(nest, leaves, n);
    for (int i = 0; i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        const int index = mu__is_layer_tensor(tensor) ? mu__call_index(f, mu__call_of(tensor)) : -1;
        if (index >= 0)
            marks[index] = USED;
    }
    mu__free(leaves);
    return MU_OK;
}

// Which calls of a model the look-ups need, and, with `whole`, its outputs.
static mu_status mark_calls(const mu_functional *f, bool whole, char *marks)
{
    if (whole)
        MU_TRY(mark_used(f, f->outputs, marks));
    for (size_t i = f->calls.n; i-- > f->n_inputs;) {
        const mu_layer_call *call = f->calls.items[i];
        if (marks[i] == UNUSED && mu__has_host_part(call->layer))
            marks[i] = CALLED;
        if (marks[i] != UNUSED)
            MU_TRY(mark_used(f, call->inputs, marks));
    }
    return MU_OK;
}

static mu_status run_calls(host_run *h, mu_functional_run *r, const char *marks)
{
    for (size_t i = r->f->n_inputs; i < r->f->calls.n; i++) {
        const mu_layer_call *call = r->f->calls.items[i];
        mu_value *inputs = marks[i] != UNUSED ? mu__functional_replace(r, call->inputs, false) : NULL;
        if (inputs)
            r->values[i] = run_layer(h, call->layer, inputs, marks[i] == USED);
        MU_TRY(mu_error_code());
    }
    return MU_OK;
}

static mu_value *run_functional(host_run *h, const mu_layer *model, mu_value *inputs, bool whole)
{
    const mu_functional *f = model->state;
    mu_functional_run r = {.f = f};
    mu_value *outputs = NULL;
    char *marks = mu__calloc(f->calls.n + 1, 1);
    r.values = mu__calloc(2 * f->calls.n + 1, sizeof *r.values);
    r.masks = r.values + f->calls.n;
    if (marks && r.values && mark_calls(f, whole, marks) == MU_OK && mu__functional_take(&r, inputs, NULL) == MU_OK &&
        run_calls(h, &r, marks) == MU_OK && whole)
        outputs = mu__functional_replace(&r, f->outputs, false);
    mu__free(r.values);
    mu__free(marks);
    return outputs;
}

static mu_value *run_sequential(host_run *h, const mu_layer *model, mu_value *value, bool whole)
{
    size_t end = whole ? model->sublayers.n : 0;
    for (size_t i = 0; i < model->sublayers.n; i++)
        if (mu__has_host_part(model->sublayers.items[i]))
            end = MU_MAX(end, i + 1);
    for (size_t i = 0; i < end && value; i++)
        value = run_layer(h, model->sublayers.items[i], value, whole || i + 1 < end);
    return value;
}

static mu_value *run_layer(host_run *h, const mu_layer *layer, mu_value *inputs, bool whole)
{
    if (layer->ops == &mu__functional_ops)
        return run_functional(h, layer, inputs, whole);
    if (layer->ops == &mu__sequential_ops)
        return run_sequential(h, layer, inputs, whole);
    if (layer->weights.n > 0 || layer->sublayers.n > 0 || (layer->ops->build && !layer->built)) {
        mu__error(MU_FAILED_PRECONDITION,
                  "a layer that looks values up follows layer '%s' (%s), which has weights or layers of its own, or is "
                  "not built (mu_model_build). Look-ups run before the step and can follow only inputs and layers "
                  "without weights; look the values up first, or in the function of mu_dataset_map",
                  mu_layer_name((mu_layer *)(uintptr_t)layer), layer->ops->class.keras);
        return NULL;
    }
    mu_value *outputs = call_one(layer, inputs);
    if (outputs && layer->ops->host_spec &&
        (MU_PUSH(&h->calls, layer) != MU_OK || MU_PUSH(&h->results, outputs) != MU_OK))
        return NULL;
    return outputs;
}

// The inputs for the step: bools of the same shape in the places of strings, which nothing reads.
static mu_value *without_strings(mu_value *inputs)
{
    const int n = mu__value_flatten(inputs, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_value *numbers = NULL;
    bool whole = leaves != NULL;
    if (whole)
        mu__value_flatten(inputs, leaves, n);
    for (int i = 0; whole && i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        if (mu__has_strings(tensor))
            leaves[i] = (mu_object *)mu_zeros(MU_BOOL, tensor->shape.rank, tensor->shape.dims);
        whole = leaves[i] != NULL;
    }
    if (whole)
        numbers = mu__give(mu__value_pack(inputs, leaves, n));
    mu__free(leaves);
    return numbers;
}

// An element with its first part, the inputs, divided. Of one that is no list, but the inputs alone, the results are in
// a list of their own, which tells a step of the program's own to take the inputs alone.
static mu_value *divided(mu_value *element, mu_value *inputs, mu_value *results)
{
    const bool parts = mu_value_kind_of(element) == MU_VALUE_LIST;
    const int n = parts ? mu_value_count(element) : 1;
    mu_value *items[MU_MAX_MODEL_INPUTS], *numbers = without_strings(inputs);
    if (!numbers || n > MU_MAX_MODEL_INPUTS) {
        if (numbers)
            mu__error(MU_INVALID_ARGUMENT,
                      "an element of the dataset has %d parts; expected inputs, labels and weights", n);
        return NULL;
    }
    items[0] = mu_list(numbers, parts ? results : mu_list(results, MU_END), MU_END);
    for (int i = 1; i < n; i++)
        items[i] = mu_value_at(element, i);
    return mu__pending() ? NULL : mu_list_of(n, items);
}

static mu_value *look_up(mu_value *element, void *model)
{
    host_run h = {0};
    const bool parts = mu_value_kind_of(element) == MU_VALUE_LIST;
    mu_value *inputs = parts ? mu_value_at(element, 0) : element, *result = NULL;
    if (inputs)
        run_layer(&h, model, inputs, false);
    mu_value *results = mu__pending() ? NULL : mu_list_of((int)h.results.n, h.results.items);
    if (results)
        result = divided(element, inputs, results);
    mu__free(h.calls.items);
    mu__free(h.results.items);
    return result;
}

static mu_dataset *look_up_in(mu_model *model, mu_dataset *data)
{
    return data ? mu_dataset_map(data, look_up, model, .name = "the model's look-ups") : NULL;
}

// A creator of datasets with look-ups, from the program's.
typedef struct host_creator {
    mu_object object;
    mu_model *model;
    const mu_dataset_creator *inner; // retained
} host_creator;

static void creator_destroy(void *object) { mu_release((void *)(uintptr_t)((host_creator *)object)->inner); }

static mu_type host_creator_type = {.name = "dataset creator with look-ups", .destroy = creator_destroy};

static mu_dataset *create(const mu_input_context *context, void *arg)
{
    const host_creator *creator = arg;
    return look_up_in(creator->model, creator->inner->fn(context, creator->inner->arg));
}

mu_status mu__host_data(mu_model *model, mu_step_data *data)
{
    if (mu__pending() || !model || !mu__has_host_part(model))
        return mu_error_code();
    if (data->dataset)
        data->dataset = look_up_in(model, data->dataset);
    if (data->creator) {
        host_creator *creator = mu__new(&host_creator_type, sizeof *creator);
        if (!creator)
            return MU_RESOURCE_EXHAUSTED;
        creator->model = model;
        creator->inner = mu_retain(data->creator);
        data->creator = mu_dataset_creator_new(create, mu__give(creator));
    }
    return mu_error_code();
}

// ---- In the step --------------------------------------------------------------------------------

// The results that an element has for the layers that run on the host; `alone`: the element was the inputs alone.
static mu_value *results_of(const mu_value *divided, bool *alone)
{
    mu_value *results = mu_value_at(divided, 1), *first = results ? mu_value_at(results, 0) : NULL;
    *alone = first && mu_value_kind_of(first) == MU_VALUE_LIST;
    return *alone ? first : results;
}

// The layers that `look_up` calls, without calling them.
static mu_status list_calls(const mu_layer *layer, mu_host_calls *out)
{
    if (layer->ops->host_spec)
        return MU_PUSH(out, layer);
    if (layer->ops == &mu__functional_ops) {
        const mu_functional *f = layer->state;
        for (size_t i = f->n_inputs; i < f->calls.n; i++)
            MU_TRY(list_calls(f->calls.items[i]->layer, out));
    }
    for (size_t i = 0; layer->ops == &mu__sequential_ops && i < layer->sublayers.n; i++)
        MU_TRY(list_calls(layer->sublayers.items[i], out));
    return MU_OK;
}

mu_value *mu__host_model_call(mu_model *model, mu_value *inputs, const mu_call_context *context, mu_value **mask)
{
    if (!mu__has_host_part(model) || mu__host_shapes_only())
        return mu__layer_call(model, inputs, context, mask);
    mu_context *thread = mu__context();
    bool alone = false;
    mu_host_results results = {.values = results_of(inputs, &alone)}, *outer = thread->host_results;
    mu_value *numbers = mu_value_at(inputs, 0), *outputs = NULL;
    if (numbers && results.values && list_calls(model, &results.calls) == MU_OK) {
        thread->host_results = &results;
        outputs = mu__layer_call(model, numbers, context, mask);
        thread->host_results = outer;
    }
    mu__free(results.calls.items);
    return outputs;
}

// ---- In a step of the program's own -------------------------------------------------------------

mu_value *mu__host_step_begin(mu_model *model, mu_value *batch, mu_host_results *results)
{
    *results = (mu_host_results){0};
    if (!mu__has_host_part(model))
        return batch;
    bool alone = false;
    const int n = mu_value_count(batch);
    mu_value *items[MU_MAX_MODEL_INPUTS], *divided = mu_value_at(batch, 0);
    items[0] = divided ? mu_value_at(divided, 0) : NULL;
    for (int i = 1; i < MU_MIN(n, MU_MAX_MODEL_INPUTS); i++)
        items[i] = mu_value_at(batch, i);
    *results = (mu_host_results){
        .model = model, .inputs = items[0], .outside = true, .values = divided ? results_of(divided, &alone) : NULL};
    mu_value *whole = mu__pending() ? NULL : alone ? items[0] : mu_list_of(n, items);
    if (!whole || list_calls(model, &results->calls) != MU_OK) {
        mu__free(results->calls.items);
        return NULL;
    }
    mu__context()->host_results = results;
    return whole;
}

void mu__host_step_end(mu_host_results *results)
{
    if (!results->model)
        return;
    mu__context()->host_results = NULL;
    mu__free(results->calls.items);
}

static bool is_same(const mu_object *a, const mu_object *b)
{
    const mu_tensor *x = (const mu_tensor *)a, *y = (const mu_tensor *)b;
    return a == b ||
           (a && b &&
            (x->node ? x->node == y->node && x->output == y->output
                     : x->buffer == y->buffer && x->offset == y->offset && mu__shape_equal(&x->shape, &y->shape)));
}

// The tensors of a nest in the order of a model's inputs; returns how many there are.
static int in_order(const mu_functional *f, const mu_value *nest, mu_object *out[MU_MAX_MODEL_INPUTS])
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    int indices[MU_MAX_MODEL_INPUTS];
    const int n = f ? (int)f->n_inputs : 1, seen = mu__value_flatten(nest, leaves, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < n; i++)
        indices[i] = i;
    if (f && mu__is_flat_map(nest) &&
        mu__indices_by_name(nest, &f->input_names, MU_NAMES_ALL, "inputs", indices) != MU_OK)
        return 0;
    for (int i = 0; i < n; i++)
        out[i] = indices[i] < MU_MIN(seen, MU_MAX_MODEL_INPUTS) ? leaves[indices[i]] : NULL;
    return n;
}

static mu_status need_same(const mu_host_results *r, const mu_value *given, const char *marks)
{
    const mu_functional *f = r->model->ops == &mu__functional_ops ? r->model->state : NULL;
    mu_object *wanted[MU_MAX_MODEL_INPUTS], *seen[MU_MAX_MODEL_INPUTS];
    const int n = in_order(f, r->inputs, wanted);
    in_order(f, given, seen);
    MU_TRY(mu_error_code());
    for (int i = 0; i < n; i++)
        if (marks[i] != UNUSED && !is_same(wanted[i], seen[i]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "a step of the program's own calls the model '%s', which has look-ups, on inputs that are "
                             "not those of the step's batch%s%s. Look-ups run before the step, on the batch's inputs; "
                             "call the model on these, or look other values up in the function of mu_dataset_map",
                             mu_layer_name((mu_layer *)(uintptr_t)r->model), f ? ": input " : "",
                             f ? f->input_names.items[i] : "");
    return MU_OK;
}

mu_status mu__host_enter(const mu_layer *layer, const mu_value *inputs)
{
    mu_host_results *r = mu__context()->host_results;
    if (r->model != layer)
        return MU_OK;
    const mu_functional *f = layer->ops == &mu__functional_ops ? layer->state : NULL;
    char *marks = mu__calloc((f ? f->calls.n : 0) + 1, 1);
    mu_status status = !marks ? MU_RESOURCE_EXHAUSTED : f ? mark_calls(f, false, marks) : MU_OK;
    if (status == MU_OK && !f)
        marks[0] = USED;
    if (status == MU_OK)
        status = need_same(r, inputs, marks);
    mu__free(marks);
    r->next = 0;
    r->outside = status != MU_OK;
    return status;
}

void mu__host_leave(const mu_layer *layer)
{
    mu_host_results *r = mu__context()->host_results;
    r->outside |= r->model == layer;
}

// ---- Shapes -------------------------------------------------------------------------------------

mu_host_results *mu__host_shapes_begin(mu_host_results *results)
{
    mu_host_results *outer = mu__context()->host_results;
    *results = (mu_host_results){.shapes_only = true};
    mu__context()->host_results = results;
    return outer;
}

void mu__host_shapes_end(mu_host_results *outer) { mu__context()->host_results = outer; }

bool mu__host_shapes_only(void)
{
    const mu_context *thread = mu__context();
    return thread->host_results && thread->host_results->shapes_only && thread->trace;
}

static bool is_symbolic(const mu_value *inputs)
{
    mu_object *leaf = NULL;
    mu__value_flatten(inputs, &leaf, 1);
    return leaf && mu__is(leaf, &mu__tensor_type) && ((const mu_tensor *)leaf)->node;
}

mu_tensor *mu__host_stand_in(const mu_spec *spec)
{
    mu_graph *graph = ((mu_graph_trace *)mu__context()->trace)->graph;
    mu_node *node = mu__graph_input(graph, spec, NULL);
    return node ? mu__give(mu__tensor_symbolic(node, 0, spec, &graph->object)) : NULL;
}

// The output of a look-up in a trace of which only shapes are used.
static mu_value *symbolic_output(const mu_layer *layer, const mu_value *inputs)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    mu_spec specs[MU_MAX_MODEL_INPUTS], out;
    const int n = MU_MIN(mu__value_flatten(inputs, leaves, MU_MAX_MODEL_INPUTS), MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < n; i++)
        specs[i] = mu__spec_of((const mu_tensor *)leaves[i]);
    if (layer->ops->host_spec(layer, n, specs, &out) != MU_OK)
        return NULL;
    mu_tensor *tensor = mu__host_stand_in(&out);
    return tensor ? mu_of(tensor) : NULL;
}

mu_value *mu__host_layer_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    mu_host_results *r = mu__context()->host_results;
    if (mu__host_shapes_only() && is_symbolic(inputs))
        return symbolic_output(layer, inputs);
    if (r && !r->outside && r->next < r->calls.n && r->calls.items[r->next] == layer)
        return mu_value_at(r->values, (int)r->next++);
    return layer->ops->call(layer, inputs, context);
}
