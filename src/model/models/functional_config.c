// Functional models written as Keras's JSON (read: functional_read.c).
//
// The configuration lists the operations with the calls of each ("inbound_nodes"); an argument of a call names the
// operation, which of its calls, and which of that call's outputs it is. Calls count from 0, but those of a nested
// functional model count from 1 where they are inputs or outputs of the model around it. What a call takes besides
// tensors (a causal mask) is an option of the layer here.
#include "model/models/functional.h"
#include "model/layers/operation.h"
#include "model/layers/recurrent.h"
#include "model/models/model.h"

#include <muster/ops.h>

const char *const mu__operand_masks[MU_OPERAND_MASKS] = {"query_mask", "value_mask", "key_mask"};

bool mu__takes_operands(const mu_layer_ops *ops)
{
    return ops == &mu__multi_head_attention_ops || ops == &mu__grouped_query_attention_ops;
}

const char *mu__further_inputs(const mu_layer *layer)
{
    if (layer->ops == &mu__category_encoding_ops)
        return "count_weights";
    return mu__recurrent_of(layer) || layer->ops == &mu__bidirectional_ops ? "initial_state" : NULL;
}

int mu__first_end(const mu_layer *layer) { return layer && layer->ops == &mu__functional_ops; }

// ---- Writing ------------------------------------------------------------------------------------

typedef struct writer {
    const mu_layer *model;
    const mu_functional *f;
    mu_operation_list operations;
    char **names; // [operations.n] of inputs; NULL: that of the layer
} writer;

static int operation_of(const writer *w, const mu_layer_call *call)
{
    for (size_t i = 0; i < w->operations.n; i++) {
        const mu_operation *operation = &w->operations.items[i];
        if (operation->layer ? operation->layer == call->layer : operation->call == call)
            return (int)i;
    }
    return -1;
}

static const char *name_of(const writer *w, int i)
{
    return w->names[i] ? w->names[i] : mu_layer_name(w->operations.items[i].layer);
}

static bool is_taken(const mu_operation_list *operations, char *const *names, const char *name)
{
    for (size_t i = 0; i < operations->n; i++) {
        const mu_operation *operation = &operations->items[i];
        const char *other = operation->layer ? mu_layer_name(operation->layer)
                            : names[i]       ? names[i]
                                             : operation->call->name;
        if (other && strcmp(other, name) == 0)
            return true;
    }
    return false;
}

mu_status mu__name_inputs(const mu_operation_list *operations, char **names)
{
    for (size_t i = 0; i < operations->n; i++) {
        const mu_operation *operation = &operations->items[i];
        if (operation->layer)
            continue;
        char *name = operation->call->name ? mu__strdup(operation->call->name) : mu__strdup("input_layer");
        for (int k = 1; !operation->call->name && name && is_taken(operations, names, name); k++) {
            mu__free(name);
            name = mu__sprintf("input_layer_%d", k);
        }
        if (!(names[i] = name))
            return mu_error_code();
    }
    return MU_OK;
}

int mu__call_number(const mu_functional *f, const mu_layer_call *call)
{
    int number = 0;
    for (size_t i = 0; i < f->calls.n; i++)
        number += call->layer && f->calls.items[i]->layer == call->layer && f->calls.items[i]->moment < call->moment;
    return number;
}

const mu_layer_call *mu__nth_call(const mu_functional *f, const mu_layer *layer, int n)
{
    for (size_t i = f->n_inputs; i < f->calls.n; i++)
        if (f->calls.items[i]->layer == layer && mu__call_number(f, f->calls.items[i]) == n)
            return f->calls.items[i];
    return NULL;
}

// [operation, call, output]; `first`: the number of the operation's first call.
static json_t *history_json(const writer *w, const mu_tensor *tensor, int first)
{
    const mu_layer_call *call = mu__call_of(tensor);
    const int operation = operation_of(w, call);
    return json_pack("[s, i, i]", name_of(w, operation), first + mu__call_number(w->f, call), tensor->node->id);
}

// An input or an output of the model.
static json_t *end_json(const writer *w, const mu_tensor *tensor)
{
    return history_json(w, tensor, mu__first_end(mu__call_of(tensor)->layer));
}

static json_t *shape_json(const mu_shape *shape)
{
    json_t *list = json_array();
    for (int i = 0; i < shape->rank; i++)
        json_array_append_new(list,
                              i == 0 || shape->dims[i] == MU_UNKNOWN ? json_null() : json_integer(shape->dims[i]));
    return list;
}

// A nest of layer tensors: each as `leaf` writes it. NULL on error.
static json_t *nest_json(const writer *w, const mu_value *nest, json_t *(*leaf)(const writer *, const mu_tensor *))
{
    if (nest->leaf) {
        const mu_tensor *tensor = (const mu_tensor *)nest->leaf;
        if (mu__is_layer_tensor(tensor) && operation_of(w, mu__call_of(tensor)) >= 0)
            return leaf(w, tensor);
        mu__error(MU_UNIMPLEMENTED,
                  "the model '%s' has a layer that is called on a constant, or on a tensor inside of another model, "
                  "which its configuration cannot hold",
                  mu_layer_name(w->model));
        return NULL;
    }
    json_t *json = nest->keys ? json_object() : json_array();
    for (int i = 0; i < nest->n; i++) {
        json_t *item = nest_json(w, nest->items[i], leaf);
        if (!item) {
            json_decref(json);
            return NULL;
        }
        if (nest->keys)
            json_object_set_new(json, nest->keys[i], item);
        else
            json_array_append_new(json, item);
    }
    return json;
}

static json_t *tensor_json(const writer *w, const mu_tensor *tensor)
{
    return json_pack("{s:s, s:{s:o, s:s, s:o}}", "class_name", "__keras_tensor__", "config", "shape",
                     shape_json(&tensor->shape), "dtype", mu_dtype_name(tensor->dtype), "keras_history",
                     history_json(w, tensor, 0));
}

// Masks of inputs that the caller gave: null where an input has none. NULL on error.
static json_t *masks_json(const writer *w, const mu_value *mask)
{
    if (mask->leaf)
        return nest_json(w, mask, tensor_json);
    json_t *json = mask->n > 0 ? json_array() : json_null();
    for (int i = 0; json && i < mask->n; i++)
        if (json_array_append_new(json, masks_json(w, mask->items[i])) != 0) {
            json_decref(json);
            return NULL;
        }
    return json;
}

// Keras's argument for the masks: one for all inputs, or one for each operand.
static mu_status add_masks(const writer *w, const mu_layer_call *call, json_t *kwargs)
{
    const mu_value *mask = call->mask;
    const bool apart = mu__takes_operands(call->layer->ops);
    for (int i = 0; i < (apart && !mask->leaf ? MU_MIN(mask->n, MU_OPERAND_MASKS) : 1); i++) {
        json_t *json = masks_json(w, apart && !mask->leaf ? mask->items[i] : mask);
        if (!json)
            return mu__pending() ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
        MU_TRY(mu__json_member(kwargs, apart ? mu__operand_masks[i] : "mask", json));
    }
    return MU_OK;
}

// The first input, and what stands behind it: the first states of a sequence as a list, weights as they are.
static mu_status add_further(const writer *w, const mu_layer *layer, const mu_value *inputs, json_t *args,
                             json_t *kwargs)
{
    json_t *further = json_array();
    for (int i = 0; i < inputs->n; i++) {
        json_t *argument = nest_json(w, inputs->items[i], tensor_json);
        if (!argument || json_array_append_new(i == 0 ? args : further, argument) != 0) {
            json_decref(further);
            return mu__pending() ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
        }
    }
    if (layer->ops == &mu__category_encoding_ops) {
        json_t *weights = json_incref(json_array_get(further, 0));
        json_decref(further);
        further = weights;
    }
    return mu__json_member(kwargs, mu__further_inputs(layer), further);
}

// The arguments of an operation's call, with constants among them.
static mu_status add_operands(const writer *w, const mu_layer_call *call, json_t *args)
{
    json_t *tensors = json_array(), *written = NULL;
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    const int n = MU_MIN(mu__value_flatten(call->inputs, leaves, MU_MAX_MODEL_INPUTS), MU_MAX_MODEL_INPUTS);
    mu_status status = tensors ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n; i++) {
        mu_value *leaf = mu_of((mu_tensor *)leaves[i]);
        json_t *json = leaf ? nest_json(w, leaf, tensor_json) : NULL;
        status = json && json_array_append_new(tensors, json) == 0 ? MU_OK
                 : mu__pending()                                   ? mu_error_code()
                                                                   : MU_RESOURCE_EXHAUSTED;
    }
    if (status == MU_OK &&
        (!(written = mu__operation_args(call->layer, tensors)) || json_array_extend(args, written) != 0))
        status = mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the configuration of '%s'", mu_layer_name(w->model));
    json_decref(written);
    json_decref(tensors);
    return status;
}

// The arguments of a call: one value; for attention the operands one by one, of which the fourth is a mask.
static mu_status add_arguments(const writer *w, const mu_layer_call *call, json_t *args, json_t *kwargs)
{
    const mu_value *inputs = call->inputs;
    const bool apart = mu__takes_operands(call->layer->ops) && !inputs->leaf;
    const bool further = mu__further_inputs(call->layer) && !inputs->leaf && inputs->n > 1;
    if (call->layer->ops == &mu__operation_ops)
        return add_operands(w, call, args);
    if (further)
        MU_TRY(add_further(w, call->layer, inputs, args, kwargs));
    for (int i = 0; !further && i < (apart ? inputs->n : 1); i++) {
        json_t *argument = nest_json(w, apart ? inputs->items[i] : inputs, tensor_json);
        if (!argument)
            return mu_error_code();
        if (i < 3)
            json_array_append_new(args, argument);
        else
            json_object_set_new(kwargs, "attention_mask", argument);
    }
    if (call->mask)
        MU_TRY(add_masks(w, call, kwargs));
    if (call->reverse)
        MU_TRY(mu__json_member(kwargs, "reverse", json_true()));
    if (call->has_mode)
        MU_TRY(mu__json_member(kwargs, "training", json_boolean(call->training)));
    return mu__fields_call_json(&call->layer->ops->class, call->layer->args, kwargs);
}

static json_t *calls_json(const writer *w, const mu_layer *layer)
{
    json_t *list = json_array();
    const mu_layer_call *call;
    for (int n = 0; (call = mu__nth_call(w->f, layer, n)); n++) {
        json_t *args = json_array(), *kwargs = json_object();
        const mu_status status = add_arguments(w, call, args, kwargs);
        json_t *entry = json_pack("{s:o, s:o}", "args", args, "kwargs", kwargs);
        if (layer->ops == &mu__multi_head_attention_ops && json_object_get(kwargs, mu__operand_masks[0]))
            json_object_set_new(entry, MU_QUERY_MASK_COUNTS, json_true());
        if (json_array_append_new(list, entry) != 0 || status != MU_OK) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *operation_json(const writer *w, int i)
{
    const mu_operation *operation = &w->operations.items[i];
    const mu_tensor *tensor = NULL;
    json_t *json, *calls;
    if (operation->layer) {
        json = mu__layer_json(operation->layer);
        calls = json ? calls_json(w, operation->layer) : NULL;
    } else {
        mu_object *leaves[MU_MAX_MODEL_INPUTS];
        const int n = MU_MIN(mu__value_flatten(w->f->inputs, leaves, MU_MAX_MODEL_INPUTS), MU_MAX_MODEL_INPUTS);
        for (int k = 0; k < n; k++)
            if (mu__call_of((const mu_tensor *)leaves[k]) == operation->call)
                tensor = (const mu_tensor *)leaves[k];
        json = tensor ? mu__input_json(name_of(w, i), tensor->dtype, &tensor->shape) : NULL;
        calls = json_array();
    }
    if (json && calls && mu__json_member(json, "name", json_string(name_of(w, i))) == MU_OK &&
        mu__json_member(json, "inbound_nodes", calls) == MU_OK)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *model_json(const writer *w)
{
    json_t *layers = json_array(), *inputs = NULL, *outputs = NULL;
    bool whole = true;
    for (size_t i = 0; whole && i < w->operations.n; i++) {
        json_t *operation = operation_json(w, (int)i);
        whole = operation != NULL && json_array_append_new(layers, operation) == 0;
    }
    inputs = whole ? nest_json(w, w->f->inputs, end_json) : NULL;
    outputs = inputs ? nest_json(w, w->f->outputs, end_json) : NULL;
    if (outputs)
        return mu__keras_json("keras.src.models.functional", "Functional",
                              json_pack("{s:s, s:b, s:o, s:o, s:o}", "name", mu_layer_name(w->model), "trainable",
                                        !w->model->frozen, "layers", layers, "input_layers", inputs, "output_layers",
                                        outputs));
    json_decref(layers);
    json_decref(inputs);
    return NULL;
}

json_t *mu__functional_json(const mu_layer *model)
{
    writer w = {.model = model, .f = model->state};
    json_t *json = NULL;
    bool unknown;
    if (mu__model_operations(model, &w.operations, &unknown) == MU_OK) {
        w.names = mu__calloc(w.operations.n + 1, sizeof *w.names);
        if (w.names && mu__name_inputs(&w.operations, w.names) == MU_OK)
            json = model_json(&w);
        for (size_t i = 0; w.names && i < w.operations.n; i++)
            mu__free(w.names[i]);
        mu__free(w.names);
    }
    mu__free(w.operations.items);
    return json;
}
