// Functional models: layers called on tensors that stand for values to come, and the models made of these calls.
//
// mu_input makes such a layer tensor; calling a layer on layer tensors builds the layer and makes others. Each knows
// the call that made it, so a model is the graph between its inputs and its outputs. To run the model is to repeat the
// calls, in the order in which each finds its inputs: eagerly or in a trace, like any other layer.
#include "model/models/functional.h"

#include "model/core/names.h"
#include "model/models/host_part.h"
#include "model/models/model.h"

#include <muster/ops.h>
#include <stdatomic.h>

// ---- Layer tensors ------------------------------------------------------------------------------

static void call_destroy(void *object)
{
    mu_layer_call *call = object;
    mu_release(call->layer);
    mu_release(call->inputs);
    mu_release(call->mask);
    mu_release(call->graph);
    mu__free(call->name);
}

static mu_type call_type = {.name = "layer call", .destroy = call_destroy};

bool mu__is_layer_tensor(const mu_tensor *tensor) { return tensor->graph && mu__is(tensor->graph, &call_type); }

mu_layer_call *mu__call_of(const mu_tensor *tensor) { return (mu_layer_call *)tensor->graph; }

bool mu__has_layer_tensor(const mu_value *value)
{
    if (value->leaf)
        return mu__is(value->leaf, &mu__tensor_type) && mu__is_layer_tensor((mu_tensor *)value->leaf);
    for (int i = 0; i < value->n; i++)
        if (mu__has_layer_tensor(value->items[i]))
            return true;
    return false;
}

static mu_layer_call *new_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    static _Atomic int64_t calls_made;
    mu_layer_call *call = mu__new(&call_type, sizeof *call);
    if (!call)
        return NULL;
    call->moment = atomic_fetch_add(&calls_made, 1);
    call->layer = mu_retain(layer);
    call->inputs = mu_retain(inputs);
    call->mask = mu_retain(context->mask);
    call->reverse = context->reverse;
    call->has_mode = !context->training_left_out;
    call->training = context->training;
    call->graph = mu__graph_new(layer ? mu_layer_name(layer) : "mu_input");
    return call->graph ? mu__give(call) : (mu_release(call), NULL);
}

// The next output of a call. Belongs to the pool.
static mu_tensor *new_tensor(mu_layer_call *call, const mu_spec *spec)
{
    mu_node *node = mu__graph_input(call->graph, spec, NULL);
    return node ? mu__give(mu__tensor_symbolic(node, 0, spec, &call->object)) : NULL;
}

mu_tensor *mu_input_with(const mu_input_args *given)
{
    mu_input_args args;
    if (mu__pending() || mu__fields_fill(&mu__input_layer_ops.class, &args, given) != MU_OK)
        return NULL;
    if (args.dtype && args.dtype != MU_STRING && !mu__dtype_ok(args.dtype)) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_input: dtype is %d; it must be an element type, such as MU_F32, or MU_STRING", (int)args.dtype);
        return NULL;
    }
    mu_layer_call *call = new_call(NULL, NULL, &(mu_call_context){.training_left_out = true});
    if (!call || (args.name && !(call->name = mu__strdup(args.name))))
        return NULL;
    mu_spec spec = {.dtype = args.dtype ? args.dtype : mu__floatx(), .shape = mu__input_shape(&args)};
    return new_tensor(call, &spec);
}

// ---- Calling a layer on layer tensors -----------------------------------------------------------

typedef struct connection {
    mu_layer *layer;
    const mu_call_context *context;
    bool masked; // the arguments are a list of the inputs and their masks, not the inputs alone
} connection;

static mu_value *trace_call(mu_value *arguments, void *arg)
{
    const connection *c = arg;
    if (!c->masked)
        return mu__layer_call(c->layer, arguments, c->context, NULL);
    const mu_call_context context = {.training = c->context->training,
                                     .mask = mu_value_at(arguments, 1),
                                     .reverse = c->context->reverse,
                                     .training_left_out = c->context->training_left_out};
    return mu__layer_call(c->layer, mu_value_at(arguments, 0), &context, NULL);
}

// The outputs of a traced call as layer tensors in the same structure.
static mu_value *outputs_of(mu_layer_call *call, const mu_value *traced)
{
    const int n = mu__value_flatten(traced, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_value *outputs = NULL;
    bool whole = leaves != NULL;
    if (whole)
        mu__value_flatten(traced, leaves, n);
    for (int i = 0; whole && i < n; i++) {
        const mu_spec spec = mu__spec_of((const mu_tensor *)leaves[i]);
        leaves[i] = (mu_object *)new_tensor(call, &spec);
        whole = leaves[i] != NULL;
    }
    if (whole)
        outputs = mu__give(mu__value_pack(traced, leaves, n));
    mu__free(leaves);
    return outputs;
}

// Writes what a trace needs to know of the leaves of a value.
static mu_status specs_of(const mu_layer *layer, const mu_value *arguments, int n, mu_spec *specs)
{
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_status status = leaves ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (leaves)
        mu__value_flatten(arguments, leaves, n);
    for (int i = 0; status == MU_OK && i < n; i++)
        if (mu__is(leaves[i], &mu__tensor_type))
            specs[i] = mu__spec_of((const mu_tensor *)leaves[i]);
        else
            status = mu__error(MU_INVALID_ARGUMENT, "layer '%s': input %d is a variable; give tensors of mu_input",
                               mu_layer_name(layer), i);
    mu__free(leaves);
    return status;
}

mu_value *mu__layer_connect(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    connection c = {.layer = layer, .context = context, .masked = context->mask != NULL};
    mu_value *arguments = c.masked ? mu_list_of(2, (mu_value *[]){inputs, context->mask}) : inputs, *outputs = NULL;
    if (!arguments)
        return NULL;
    const int n = mu__value_flatten(arguments, NULL, 0);
    mu_spec *specs = mu__calloc((size_t)n + 1, sizeof *specs);
    mu_traced traced = {0};
    mu_status status = specs ? specs_of(layer, arguments, n, specs) : MU_RESOURCE_EXHAUSTED;
    mu_host_results shapes, *outer = mu__host_shapes_begin(&shapes);
    if (status == MU_OK)
        status = mu__trace_run(mu_layer_name(layer), trace_call, &c, arguments, specs, true, &traced);
    mu__host_shapes_end(outer);
    mu__losses_begin(layer); // those of the trace end with it
    mu_layer_call *call = status == MU_OK ? new_call(layer, inputs, context) : NULL;
    if (call)
        outputs = outputs_of(call, traced.outputs);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    mu__free(specs);
    return outputs;
}

// ---- The model ----------------------------------------------------------------------------------

static void functional_release(mu_layer *layer)
{
    mu_functional *f = layer->state;
    for (size_t i = 0; i < f->calls.n; i++)
        mu_release(f->calls.items[i]);
    mu__free(f->calls.items);
    mu__free(f->order.items);
    mu__name_list_free(&f->input_names);
    mu__name_list_free(&f->output_names);
    mu_release(f->inputs);
    mu_release(f->outputs);
    mu__free(f);
}

int mu__call_index(const mu_functional *f, const mu_layer_call *call)
{
    for (size_t i = 0; i < f->calls.n; i++)
        if (f->calls.items[i] == call)
            return (int)i;
    return -1;
}

// The position of a tensor among the leaves of a value; -1 if it is none of them.
static int leaf_of(const mu_value *value, const mu_tensor *tensor)
{
    const int n = mu__value_flatten(value, NULL, 0);
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    mu__value_flatten(value, leaves, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < MU_MIN(n, MU_MAX_MODEL_INPUTS); i++)
        if (((mu_tensor *)leaves[i])->node == tensor->node)
            return i;
    return -1;
}

static mu_status visit(mu_functional *f, const mu_value *value);

static mu_status visit_call(mu_functional *f, const mu_tensor *tensor)
{
    mu_layer_call *call = mu__call_of(tensor);
    if (mu__call_index(f, call) >= 0)
        return MU_OK;
    if (leaf_of(f->inputs, tensor) < 0) {
        if (!call->layer)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_model_new: an output depends on the input '%s', which is not among the model's "
                             "inputs; add it to .inputs",
                             call->name ? call->name : "mu_input");
        MU_TRY(visit(f, call->inputs));
        if (call->mask)
            MU_TRY(visit(f, call->mask));
    }
    MU_TRY(MU_PUSH(&f->calls, call));
    mu_retain(call);
    return MU_OK;
}

// Adds the calls that a nest of layer tensors depends on, deepest first.
static mu_status visit(mu_functional *f, const mu_value *value)
{
    if (!value->leaf) {
        for (int i = 0; i < value->n; i++)
            MU_TRY(visit(f, value->items[i]));
        return MU_OK;
    }
    const mu_tensor *tensor = (const mu_tensor *)value->leaf;
    return mu__is_layer_tensor(tensor) ? visit_call(f, tensor) : MU_OK;
}

// ---- Running ------------------------------------------------------------------------------------

// Leaf i of a value, which may have any number of them; NULL: it has fewer.
static mu_tensor *leaf_at(const mu_value *value, int i)
{
    if (value->leaf)
        return i == 0 ? (mu_tensor *)value->leaf : NULL;
    for (int k = 0; k < value->n; k++) {
        const int n = mu__value_flatten(value->items[k], NULL, 0);
        if (i < n)
            return leaf_at(value->items[k], i);
        i -= n;
    }
    return NULL;
}

// The value of a layer tensor in this run.
static mu_tensor *value_in_run(const mu_functional_run *r, const mu_tensor *tensor)
{
    if (!mu__is_layer_tensor(tensor))
        return (mu_tensor *)(uintptr_t)tensor;
    const int input = leaf_of(r->f->inputs, tensor);
    if (input >= 0)
        return leaf_at(r->given, input);
    const int index = mu__call_index(r->f, mu__call_of(tensor));
    if (!r->values[index])
        mu__error(MU_FAILED_PRECONDITION,
                  "the model needs another output of layer '%s', whose output is one of the model's inputs; add it to "
                  ".inputs",
                  mu_layer_name(mu__call_of(tensor)->layer));
    return r->values[index] ? leaf_at(r->values[index], tensor->node->id) : NULL;
}

// The mask of what stands for a layer tensor; NULL: none.
static mu_tensor *mask_of(const mu_functional_run *r, const mu_tensor *tensor)
{
    mu_tensor *masks[MU_MAX_MODEL_INPUTS] = {NULL};
    const int input = mu__is_layer_tensor(tensor) ? leaf_of(r->f->inputs, tensor) : -1;
    const int index = mu__is_layer_tensor(tensor) && input < 0 ? mu__call_index(r->f, mu__call_of(tensor)) : -1;
    if (input >= 0 && r->given_mask)
        mu__mask_leaves(r->given, r->given_mask, masks, MU_MAX_MODEL_INPUTS);
    else if (index >= 0 && r->masks[index])
        mu__mask_leaves(r->values[index], r->masks[index], masks, MU_MAX_MODEL_INPUTS);
    const int i = input >= 0 ? input : index >= 0 ? tensor->node->id : MU_MAX_MODEL_INPUTS;
    return i < MU_MAX_MODEL_INPUTS ? masks[i] : NULL;
}

mu_value *mu__functional_replace(const mu_functional_run *r, const mu_value *nest, bool mask)
{
    const int n = mu__value_flatten(nest, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_tensor **masks = mu__calloc((size_t)n + 1, sizeof *masks);
    mu_value *value = NULL;
    bool whole = leaves && masks;
    if (whole)
        mu__value_flatten(nest, leaves, n);
    for (int i = 0; whole && i < n; i++)
        if (mask)
            masks[i] = mask_of(r, (const mu_tensor *)leaves[i]);
        else
            whole = (leaves[i] = (mu_object *)value_in_run(r, (const mu_tensor *)leaves[i])) != NULL;
    if (whole)
        value = mask ? mu__mask_nest(nest, masks) : mu__give(mu__value_pack(nest, leaves, n));
    mu__free(leaves);
    mu__free(masks);
    return value;
}

// The masks of a call's inputs. NULL: an error, or none.
static mu_value *call_mask(const mu_functional_run *r, const mu_layer_call *call, const mu_value *inputs)
{
    mu_value *given = call->mask ? mu__functional_replace(r, call->mask, false) : NULL;
    if (call->mask && !mu__takes_operands(call->layer->ops))
        return given;
    mu_value *carried = mu__pending() ? NULL : mu__functional_replace(r, call->inputs, true);
    return call->mask ? mu__masks_complete(given, carried, inputs->n) : carried;
}

// A run that is given no mode leaves it to each call.
static mu_call_context mode_of(const mu_layer_call *call, const mu_call_context *run)
{
    const bool own = run->training_left_out && call->has_mode;
    return (mu_call_context){.training = own ? call->training : run->training,
                             .training_left_out = run->training_left_out && !own};
}

bool mu__calls_in_training(const mu_layer *layer)
{
    const mu_functional *f = layer->ops == &mu__functional_ops ? layer->state : NULL;
    bool calls = false;
    for (size_t i = 0; f && i < f->calls.n && !calls; i++)
        calls = f->calls.items[i]->has_mode && f->calls.items[i]->training;
    for (size_t i = 0; i < layer->sublayers.n && !calls; i++)
        calls = mu__calls_in_training(layer->sublayers.items[i]);
    return calls;
}

static mu_status run_calls(mu_functional_run *r, const mu_call_context *run)
{
    for (size_t i = r->f->n_inputs; i < r->f->calls.n; i++) {
        const mu_layer_call *call = r->f->calls.items[i];
        mu_value *inputs = mu__functional_replace(r, call->inputs, false);
        if (!inputs)
            return mu_error_code();
        mu_value *mask = call_mask(r, call, inputs);
        if (mu__pending())
            return mu_error_code();
        mu_call_context context = mode_of(call, run);
        context.mask = mask;
        context.reverse = call->reverse;
        r->values[i] = mu__layer_call(call->layer, inputs, &context, &r->masks[i]);
        if (!r->values[i])
            return mu_error_code();
    }
    return MU_OK;
}

static mu_status need_inputs(const mu_functional *f, int n, int seen)
{
    char names[MU_NAME_LIST_TEXT];
    mu__name_list_text(&f->input_names, names);
    return seen == n ? MU_OK
                     : mu__error(MU_INVALID_ARGUMENT,
                                 "the model has %d input%s and was given %d tensor%s; give them in the order of "
                                 ".inputs, or as a map with the keys %s",
                                 n, n == 1 ? "" : "s", seen, seen == 1 ? "" : "s", names);
}

// A tensor in the type of input i, whose shape it must have. In a step there are unused values in place of strings,
// which look-ups read before.
static mu_object *typed(const mu_functional *f, int i, mu_tensor *tensor, const mu_tensor *declared)
{
    const mu_host_results *results = mu__context()->host_results;
    const mu_dtype dtype = declared->dtype;
    const bool strings = mu__has_strings(tensor), replaced = results && !results->shapes_only;
    if (dtype == MU_STRING ? strings || replaced : !strings) {
        if (dtype == MU_STRING && replaced)
            return (mu_object *)tensor;
        mu_tensor *same = mu__as_declared(f->input_names.items[i], &declared->shape, tensor);
        return (mu_object *)(dtype == MU_STRING ? same : mu_cast(same, dtype));
    }
    mu__error(MU_INVALID_ARGUMENT, "the model's input '%s' takes %s; it was given %s", f->input_names.items[i],
              mu_dtype_name(dtype), mu_dtype_name(tensor->dtype));
    return NULL;
}

// A map gives the inputs, and their masks, by name.
mu_status mu__functional_take(mu_functional_run *r, const mu_value *given, const mu_value *mask)
{
    const mu_functional *f = r->f;
    mu_object *wanted[MU_MAX_MODEL_INPUTS];
    mu_tensor *masks[MU_MAX_MODEL_INPUTS] = {NULL}, *placed[MU_MAX_MODEL_INPUTS];
    const int n = mu__value_flatten(f->inputs, wanted, MU_MAX_MODEL_INPUTS), seen = mu__value_flatten(given, NULL, 0);
    int indices[MU_MAX_MODEL_INPUTS];
    for (int i = 0; i < n; i++)
        indices[i] = i;
    MU_TRY(mu__is_flat_map(given) ? mu__indices_by_name(given, &f->input_names, MU_NAMES_ALL, "inputs", indices)
                                  : need_inputs(f, n, seen));
    mu_object **leaves = mu__calloc((size_t)seen + 1, sizeof *leaves);
    MU_TRY(leaves ? MU_OK : MU_RESOURCE_EXHAUSTED);
    mu__value_flatten(given, leaves, seen);
    mu__mask_leaves(given, mask, masks, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < n; i++) {
        const mu_tensor *declared = (const mu_tensor *)wanted[i];
        wanted[i] = mu__pending() ? NULL : typed(f, i, (mu_tensor *)leaves[indices[i]], declared);
        placed[i] = indices[i] < MU_MAX_MODEL_INPUTS ? masks[indices[i]] : NULL;
    }
    mu__free(leaves);
    r->given = mu__pending() ? NULL : mu__give(mu__value_pack(f->inputs, wanted, n));
    r->given_mask = r->given && mask ? mu__mask_nest(f->inputs, placed) : NULL;
    return mu_error_code();
}

static mu_value *functional_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_functional *f = layer->state;
    mu_functional_run r = {.f = f};
    mu_value *outputs = NULL;
    if (mu__functional_take(&r, inputs, context->mask) != MU_OK)
        return NULL;
    r.values = mu__calloc(2 * f->calls.n + 1, sizeof *r.values);
    r.masks = r.values ? r.values + f->calls.n : NULL;
    if (r.values && run_calls(&r, context) == MU_OK) {
        outputs = mu__functional_replace(&r, f->outputs, false);
        mu_call_set_mask(context, mu__functional_replace(&r, f->outputs, true));
    }
    mu__free(r.values);
    return outputs;
}

typedef struct functional_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
} functional_args;

static const mu_field functional_fields[] = {MU_FIELD(functional_args, name, NAME), {0}};

const mu_layer_ops mu__functional_ops = {
    .class = {"functional", "Functional", "mu_model_new", MU_OPTIONS(functional_args), functional_fields, NULL},
    .takes_integers = true,
    .takes_several = true,
    .call = functional_call,
    .release = functional_release,
};

// ---- Making the model ---------------------------------------------------------------------------

static mu_status check_nest(const mu_value *nest, const char *what)
{
    const int n = mu__value_flatten(nest, NULL, 0);
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    if (n < 1 || n > MU_MAX_MODEL_INPUTS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_model_new: %d %s; a model has 1 to %d", n, what, MU_MAX_MODEL_INPUTS);
    mu__value_flatten(nest, leaves, MU_MAX_MODEL_INPUTS);
    if (mu__is(leaves[0], &mu__value_type))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_model_new: a list or map is given in the place of one tensor; give several as .%s", what);
    for (int i = 0; i < n; i++)
        if (!mu__is(leaves[i], &mu__tensor_type) || !mu__is_layer_tensor((mu_tensor *)leaves[i]))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "mu_model_new: element %d of the %s is not a tensor of mu_input, nor what a layer returned for one", i,
                what);
    return MU_OK;
}

static mu_status collect_layers(mu_model *model)
{
    const mu_functional *f = model->state;
    for (size_t i = f->n_inputs; i < f->calls.n; i++) {
        mu_layer *layer = f->calls.items[i]->layer;
        bool known = false;
        for (size_t k = 0; !known && k < model->sublayers.n; k++)
            known = model->sublayers.items[k] == layer;
        if (!known)
            MU_TRY(mu__layer_adopt(model, layer));
    }
    return mu__layer_name_sublayers(model, "mu_model_new");
}

static mu_status connect_layers(mu_model *model, mu_value *inputs, mu_value *outputs)
{
    mu_functional *f = model->state = mu__calloc(1, sizeof *f);
    if (!f)
        return MU_RESOURCE_EXHAUSTED;
    f->inputs = mu_retain(inputs);
    f->outputs = mu_retain(outputs);
    MU_TRY(visit(f, inputs));
    f->n_inputs = f->calls.n;
    MU_TRY(visit(f, outputs));
    MU_TRY(collect_layers(model));
    MU_TRY(mu__layer_tensor_names(inputs, &f->input_names));
    MU_TRY(mu__layer_tensor_names(outputs, &f->output_names));
    mu_object *first = NULL, *last = NULL;
    mu__value_flatten(inputs, &first, 1);
    mu__value_flatten(outputs, &last, 1);
    model->input = ((mu_tensor *)first)->shape;
    model->output = ((mu_tensor *)last)->shape;
    model->built = true;
    return MU_OK;
}

mu_model *mu_model_new_with(const mu_model_args *given)
{
    mu_model_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_model_new") != MU_OK)
        return NULL;
    if ((args.input && args.inputs) || (args.output && args.outputs)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_model_new: %s are both given; give one of them",
                  args.input && args.inputs ? "input and .inputs" : "output and .outputs");
        return NULL;
    }
    mu_value *inputs = args.input ? mu_of(args.input) : args.inputs;
    mu_value *outputs = args.output ? mu_of(args.output) : args.outputs;
    if (mu__need(inputs, "mu_model_new: the input") != MU_OK ||
        mu__need(outputs, "mu_model_new: the output") != MU_OK || check_nest(inputs, "inputs") != MU_OK ||
        check_nest(outputs, "outputs") != MU_OK)
        return NULL;
    const functional_args options = {.size = sizeof options, .name = args.name};
    mu_model *model = mu__model_make(&mu__functional_ops, &options);
    return model && connect_layers(model, inputs, outputs) == MU_OK ? model : NULL;
}
