// Functional models as Keras's JSON, in both directions.
//
// The configuration lists the operations with the calls of each ("inbound_nodes"); an argument of a call names the
// operation, which of its calls, and which of that call's outputs it is. A nested functional model counts its calls
// from 1. What a call takes besides tensors (a causal mask) is an option of the layer here.
#include "model/models/functional.h"
#include "model/layers/operation.h"
#include "model/layers/recurrent.h"
#include "model/models/model.h"

#include <muster/ops.h>

enum {
    MOST_LAYERS = 20000,
    MOST_SEARCHED = 1 << 27,  // names that the search for masks among the operations of a model may compare
};

// Attention layers take their operands one by one in Keras, and as one list here.
static bool takes_operands(const mu_layer_ops *ops)
{
    return ops == &mu__multi_head_attention_ops || ops == &mu__grouped_query_attention_ops;
}

// Recurrent layers take their first states as the argument "initial_state" in Keras, and behind the sequence here.
static bool takes_states(const mu_layer *layer)
{
    return mu__recurrent_of(layer) || layer->ops == &mu__bidirectional_ops;
}

// Keras's arguments for the masks of these operands.
enum { N_OPERAND_MASKS = 3 };
static const char *const operand_masks[N_OPERAND_MASKS] = {"query_mask", "value_mask", "key_mask"};

// The number that Keras gives to the first call.
static int first_call(const mu_layer *layer) { return layer && layer->ops == &mu__functional_ops; }

// ---- Writing ------------------------------------------------------------------------------------

typedef struct writer {
    const mu_layer *model;
    const mu_functional *f;
    mu_operation_list operations;
    char **names;                // [operations.n] of inputs; NULL: that of the layer
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
                            : names[i]       ? names[i] : operation->call->name;
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
    int number = first_call(call->layer);
    for (size_t i = 0; i < f->calls.n; i++)
        number += call->layer && f->calls.items[i]->layer == call->layer && f->calls.items[i]->moment < call->moment;
    return number;
}

const mu_layer_call *mu__nth_call(const mu_functional *f, const mu_layer *layer, int n)
{
    for (size_t i = f->n_inputs; i < f->calls.n; i++)
        if (f->calls.items[i]->layer == layer && mu__call_number(f, f->calls.items[i]) - first_call(layer) == n)
            return f->calls.items[i];
    return NULL;
}

// [operation, call, output]
static json_t *history_json(const writer *w, const mu_tensor *tensor)
{
    const mu_layer_call *call = mu__call_of(tensor);
    const int operation = operation_of(w, call);
    return json_pack("[s, i, i]", name_of(w, operation), mu__call_number(w->f, call), tensor->node->id);
}

static json_t *shape_json(const mu_shape *shape)
{
    json_t *list = json_array();
    for (int i = 0; i < shape->rank; i++)
        json_array_append_new(list, i == 0 || shape->dims[i] == MU_UNKNOWN ? json_null()
                                                                           : json_integer(shape->dims[i]));
    return list;
}

// A nest of layer tensors: each as `leaf` writes it. NULL on error.
static json_t *nest_json(const writer *w, const mu_value *nest, json_t *(*leaf)(const writer *, const mu_tensor *))
{
    if (nest->leaf) {
        const mu_tensor *tensor = (const mu_tensor *)nest->leaf;
        if (mu__is_layer_tensor(tensor) && operation_of(w, mu__call_of(tensor)) >= 0)
            return leaf(w, tensor);
        mu__error(MU_UNIMPLEMENTED, "the model '%s' has a layer that is called on a constant, or on a tensor inside of "
                  "another model, which its configuration cannot hold", mu_layer_name(w->model));
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
                     history_json(w, tensor));
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
    const bool apart = takes_operands(call->layer->ops);
    for (int i = 0; i < (apart && !mask->leaf ? MU_MIN(mask->n, N_OPERAND_MASKS) : 1); i++) {
        json_t *json = masks_json(w, apart && !mask->leaf ? mask->items[i] : mask);
        if (!json)
            return mu__pending() ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
        MU_TRY(mu__json_member(kwargs, apart ? operand_masks[i] : "mask", json));
    }
    return MU_OK;
}

// The sequence, and the first states.
static mu_status add_states(const writer *w, const mu_value *inputs, json_t *args, json_t *kwargs)
{
    json_t *states = json_array();
    for (int i = 0; i < inputs->n; i++) {
        json_t *argument = nest_json(w, inputs->items[i], tensor_json);
        if (!argument || json_array_append_new(i == 0 ? args : states, argument) != 0) {
            json_decref(states);
            return mu__pending() ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
        }
    }
    return mu__json_member(kwargs, "initial_state", states);
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
    if (status == MU_OK && (!(written = mu__operation_args(call->layer, tensors)) ||
                            json_array_extend(args, written) != 0))
        status = mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the configuration of '%s'", mu_layer_name(w->model));
    json_decref(written);
    json_decref(tensors);
    return status;
}

// The arguments of a call: one value; for attention the operands one by one, of which the fourth is a mask.
static mu_status add_arguments(const writer *w, const mu_layer_call *call, json_t *args, json_t *kwargs)
{
    const mu_value *inputs = call->inputs;
    const bool apart = takes_operands(call->layer->ops) && !inputs->leaf;
    const bool states = takes_states(call->layer) && !inputs->leaf && inputs->n > 1;
    if (call->layer->ops == &mu__operation_ops)
        return add_operands(w, call, args);
    if (states)
        MU_TRY(add_states(w, inputs, args, kwargs));
    for (int i = 0; !states && i < (apart ? inputs->n : 1); i++) {
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
    return mu__fields_call_json(&call->layer->ops->class, call->layer->args, kwargs);
}

static json_t *calls_json(const writer *w, const mu_layer *layer)
{
    json_t *list = json_array();
    const mu_layer_call *call;
    for (int n = 0; (call = mu__nth_call(w->f, layer, n)); n++) {
        json_t *args = json_array(), *kwargs = json_object();
        const mu_status status = add_arguments(w, call, args, kwargs);
        json_array_append_new(list, json_pack("{s:o, s:o}", "args", args, "kwargs", kwargs));
        if (status != MU_OK) {
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
    inputs = whole ? nest_json(w, w->f->inputs, history_json) : NULL;
    outputs = inputs ? nest_json(w, w->f->outputs, history_json) : NULL;
    if (outputs)
        return mu__keras_json("keras.src.models.functional", "Functional",
                              json_pack("{s:s, s:b, s:o, s:o, s:o}", "name", mu_layer_name(w->model), "trainable", 1,
                                        "layers", layers, "input_layers", inputs, "output_layers", outputs));
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

// ---- Reading ------------------------------------------------------------------------------------

// An operation of the configuration, and what its calls have returned so far.
typedef struct operation {
    const char *name, *class_name;
    mu_layer *layer;             // NULL: an input
    const json_t *calls;
    struct { mu_value **items; size_t n, capacity; } outputs;
} operation;

typedef struct reader {
    const json_t *layers;
    size_t n;
    operation *operations;
    bool waits;                  // a call needs the output of one that has not been made
    int steps;                   // of the search for masks that are left
} reader;

static mu_status wrong(const char *what)
{
    return mu__error(MU_INVALID_ARGUMENT, "the configuration of a functional model has %s; expected that of "
                     "model.to_json() of Keras 3", what);
}

// The tensor that [operation, call, output] stands for; NULL without an error: it is not there yet.
static mu_tensor *tensor_of(reader *r, const json_t *history)
{
    const char *name = json_string_value(json_array_get(history, 0));
    const json_int_t call = json_integer_value(json_array_get(history, 1)),
                     output = json_integer_value(json_array_get(history, 2));
    for (size_t i = 0; name && i < r->n; i++) {
        const operation *o = &r->operations[i];
        if (strcmp(o->name, name) != 0)
            continue;
        const json_int_t number = call - first_call(o->layer);
        mu_object *leaves[MU_MAX_MODEL_INPUTS];
        if (number < 0 || output < 0 || output >= MU_MAX_MODEL_INPUTS)
            break;
        if (number >= (json_int_t)o->outputs.n) {
            r->waits = true;
            return NULL;
        }
        if (mu__value_flatten(o->outputs.items[number], leaves, MU_MAX_MODEL_INPUTS) > output)
            return (mu_tensor *)leaves[output];
        break;
    }
    mu__error(MU_INVALID_ARGUMENT, "the configuration of a functional model refers to an output of '%.60s' that does "
              "not exist", name ? name : "?");
    return NULL;
}

static const json_t *history_of(const json_t *tensor)
{
    const char *class_name = json_string_value(json_object_get(tensor, "class_name"));
    return class_name && strcmp(class_name, "__keras_tensor__") == 0
               ? json_object_get(json_object_get(tensor, "config"), "keras_history") : NULL;
}

static bool is_history(const json_t *value)
{
    return json_array_size(value) == 3 && json_is_string(json_array_get(value, 0)) &&
           json_is_integer(json_array_get(value, 1));
}

// A nest of tensors; `bare`: they are histories, else each is an object around one. NULL: an error, or r->waits.
static mu_value *nest_of(reader *r, const json_t *json, bool bare, int depth)
{
    const json_t *history = bare ? (is_history(json) ? json : NULL) : history_of(json);
    if (history) {
        mu_tensor *tensor = tensor_of(r, history);
        return tensor ? mu_of(tensor) : NULL;
    }
    const size_t n = json_is_array(json) ? json_array_size(json) : bare ? json_object_size(json) : 0;
    if (n == 0 || n > MU_MAX_MODEL_INPUTS || depth > 8) {
        wrong("an argument that is neither a tensor nor a list of tensors");
        return NULL;
    }
    mu_value *items[MU_MAX_MODEL_INPUTS];
    const char *keys[MU_MAX_MODEL_INPUTS], *key;
    json_t *item;
    size_t i = 0;
    if (json_is_array(json)) {
        for (; i < n; i++)
            if (!(items[i] = nest_of(r, json_array_get(json, i), bare, depth + 1)))
                return NULL;
        return mu_list_of((int)n, items);
    }
    json_object_foreach((json_t *)(uintptr_t)json, key, item)
    {
        keys[i] = key;
        if (!(items[i++] = nest_of(r, item, bare, depth + 1)))
            return NULL;
    }
    return mu_map_of((int)n, keys, items);
}

// Whether an option of a call says nothing: no mask, not in training.
static bool says_nothing(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!json_is_null(json_array_get(value, i)))
            return false;
    return json_is_null(value) || json_is_false(value) || json_is_array(value);
}

// Whether an argument of a call is masks that the program gave: tensors of inputs, of layers or of operations other
// than those that Keras computes masks with, which have no layer.
static bool is_given_mask(const reader *r, const json_t *value)
{
    const char *name = json_string_value(json_array_get(history_of(value), 0));
    bool given = name != NULL || json_is_array(value);
    for (size_t i = 0; name && i < r->n; i++)
        if (strcmp(r->operations[i].name, name) == 0)
            given = r->operations[i].layer || strcmp(r->operations[i].class_name, "InputLayer") == 0;
    for (size_t i = 0; given && i < json_array_size(value); i++)
        given = json_is_null(json_array_get(value, i)) || is_given_mask(r, json_array_get(value, i));
    return given;
}

// The index of an argument among the masks of a call; -1: it is something else.
static int mask_index(const operation *o, const char *key)
{
    if (!takes_operands(o->layer->ops))
        return strcmp(key, "mask") == 0 ? 0 : -1;
    for (int i = 0; i < N_OPERAND_MASKS; i++)
        if (strcmp(operand_masks[i], key) == 0)
            return i;
    return -1;
}

// The arguments of a call that has been read: its operands, in the order of the layers here (query, value, key, mask),
// and the masks that the program gave.
typedef struct arguments {
    json_t *operands;                    // owned
    bool states;                         // behind the first operand are first states
    bool reverse;
    const json_t *masks[N_OPERAND_MASKS];
    int n_masks;                         // up to the last one that is given
} arguments;

static mu_status refuse_argument(const operation *o, const char *key)
{
    return mu__error(MU_UNIMPLEMENTED, "'%.60s' (%.60s) is called with '%.60s' in this configuration, which Muster's "
                     "layer does not take", o->name, o->class_name, key);
}

static void add_states_of(const json_t *value, arguments *out)
{
    out->states = true;
    for (size_t i = 0; i < json_array_size(value); i++)
        json_array_append(out->operands, json_array_get(value, i));
    if (!json_is_array(value))
        json_array_append(out->operands, (json_t *)(uintptr_t)value);
}

static mu_status add_keywords(const reader *r, const operation *o, const json_t *kwargs, arguments *out)
{
    static const char *const names[] = {"query", "value", "key", "attention_mask"};
    const char *key;
    json_t *value;
    bool computes = false;
    json_object_foreach((json_t *)(uintptr_t)kwargs, key, value)
    {
        bool known = says_nothing(value) || mu__fields_call_option(&o->layer->ops->class, key);
        for (size_t i = 0; takes_operands(o->layer->ops) && i < MU_COUNT(names); i++)
            known |= strcmp(names[i], key) == 0;
        const int index = known ? -1 : mask_index(o, key);
        if (!known && o->layer->ops->takes_reverse && strcmp(key, "reverse") == 0 && json_is_true(value))
            out->reverse = true;
        else if (!known && takes_states(o->layer) && strcmp(key, "initial_state") == 0)
            add_states_of(value, out);
        else if (!known && mu__computes_mask(r->layers, key, value))
            computes = true;
        else if (index >= 0 && is_given_mask(r, value)) {
            out->masks[index] = value;
            out->n_masks = MU_MAX(out->n_masks, index + 1);
        } else if (!known)
            return refuse_argument(o, key);
    }
    // Layers compute either all masks of a call or none.
    if (computes && out->n_masks > 0)
        return refuse_argument(o, mask_index(o, "mask") == 0 ? "mask" : operand_masks[out->n_masks - 1]);
    for (size_t i = 0; takes_operands(o->layer->ops) && i < MU_COUNT(names); i++) {
        json_t *operand = json_object_get(kwargs, names[i]);
        if (!operand || json_is_null(operand))
            continue;
        // A mask is the fourth operand, so the key, which is the value by default, is written out.
        if (i == 3 && json_array_size(out->operands) == 2)
            json_array_append(out->operands, json_array_get(out->operands, 1));
        json_array_append(out->operands, operand);
    }
    return MU_OK;
}

// Masks as a value; an empty list where there is none. NULL: an error, or r->waits.
static mu_value *masks_of(reader *r, const json_t *json, int depth)
{
    if (!json || json_is_null(json))
        return mu_list_of(0, NULL);
    if (!json_is_array(json))
        return nest_of(r, json, false, depth);
    mu_value *items[MU_MAX_MODEL_INPUTS];
    const size_t n = json_array_size(json);
    if (n > MU_MAX_MODEL_INPUTS || depth > 8) {
        wrong("too many masks");
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (!(items[i] = masks_of(r, json_array_get(json, i), depth + 1)))
            return NULL;
    return mu_list_of((int)n, items);
}

static mu_value *given_masks(reader *r, const operation *o, const arguments *a)
{
    mu_value *items[N_OPERAND_MASKS];
    if (!takes_operands(o->layer->ops))
        return masks_of(r, a->masks[0], 0);
    for (int i = 0; i < a->n_masks; i++)
        if (!(items[i] = masks_of(r, a->masks[i], 0)))
            return NULL;
    return mu_list_of(a->n_masks, items);
}

// The tensors that an operation is called on. NULL: an error, or r->waits.
static mu_value *operands_of(reader *r, const json_t *args)
{
    json_t *tensors = json_array();
    mu_value *operands = NULL;
    if (tensors && mu__operation_tensors(args, tensors) == MU_OK)
        operands = nest_of(r, json_array_size(tensors) == 1 ? json_array_get(tensors, 0) : tensors, false, 0);
    json_decref(tensors);
    return operands;
}

static mu_status call_operation(reader *r, operation *o, const json_t *call)
{
    mu_value *inputs = operands_of(r, json_object_get(call, "args"));
    mu_value *outputs = inputs ? mu__layer_connect(o->layer, inputs, &(mu_call_context){0}) : NULL;
    return outputs ? MU_PUSH(&o->outputs, outputs) : mu_error_code();
}

// Makes one call; the operation's outputs grow unless r->waits.
static mu_status make_call(reader *r, operation *o, const json_t *call)
{
    const json_t *args = json_object_get(call, "args"), *kwargs = json_object_get(call, "kwargs");
    if (!json_is_array(args) || !json_is_object(kwargs))
        return wrong("calls in an older form than Keras 3's");
    if (o->layer->ops == &mu__operation_ops)
        return call_operation(r, o, call);
    arguments a = {.operands = json_copy((json_t *)(uintptr_t)args)};
    mu_status status = add_keywords(r, o, kwargs, &a);
    const bool apart = takes_operands(o->layer->ops) || a.states;
    if (status == MU_OK && !apart && json_array_size(a.operands) != 1)
        status = mu__error(MU_UNIMPLEMENTED, "'%.60s' (%.60s) is called with %zu arguments in this configuration; "
                           "Muster's layer takes one", o->name, o->class_name, json_array_size(a.operands));
    mu_value *inputs =
        status == MU_OK ? nest_of(r, apart ? a.operands : json_array_get(a.operands, 0), false, 0) : NULL;
    mu_value *masks = inputs && a.n_masks > 0 ? given_masks(r, o, &a) : NULL;
    json_decref(a.operands);
    if (!inputs || (a.n_masks > 0 && !masks))
        return mu_error_code();
    const mu_call_context context = {.mask = masks, .reverse = a.reverse};
    mu_value *outputs = mu__layer_connect(o->layer, inputs, &context);
    return outputs ? MU_PUSH(&o->outputs, outputs) : mu_error_code();
}

// Makes calls until none is left, in rounds: a call may need the output of a later operation.
static mu_status make_calls(reader *r)
{
    bool left = true;
    while (left) {
        bool progress = false;
        left = false;
        for (size_t i = 0; i < r->n; i++) {
            operation *o = &r->operations[i];
            r->waits = false;
            while (!r->waits && o->layer && o->outputs.n < json_array_size(o->calls)) {
                MU_TRY(make_call(r, o, json_array_get(o->calls, o->outputs.n)));
                progress |= !r->waits;
            }
            left |= r->waits;
        }
        if (left && !progress)
            return wrong("calls that wait for each other");
    }
    return MU_OK;
}

// Options that Keras has in the calls become options of the layer, if all of its calls have them.
static mu_status take_call_options(json_t *json)
{
    static const char *const options[] = {"use_causal_mask", "return_attention_scores"};
    json_t *calls = json_object_get(json, "inbound_nodes"), *config = json_object_get(json, "config");
    for (size_t k = 0; k < MU_COUNT(options); k++) {
        size_t with = 0;
        for (size_t i = 0; i < json_array_size(calls); i++)
            with += json_is_true(json_object_get(json_object_get(json_array_get(calls, i), "kwargs"), options[k]));
        if (with > 0 && with < json_array_size(calls))
            return mu__error(MU_UNIMPLEMENTED, "a layer is called with %s and without it in this configuration; in "
                             "Muster it is an option of the layer", options[k]);
        if (with > 0)
            MU_TRY(mu__json_member(config, options[k], json_true()));
    }
    return MU_OK;
}

static mu_status read_input(operation *o, const json_t *config)
{
    mu_input_args args = {.size = sizeof args, .name = o->name};
    MU_TRY(mu__input_args(config, &args));
    mu_tensor *tensor = mu_input_with(&args);
    mu_value *value = tensor ? mu_of(tensor) : NULL;
    return value ? MU_PUSH(&o->outputs, value) : mu_error_code();
}

static mu_status read_operation(reader *r, json_t *json, int depth)
{
    operation *o = &r->operations[r->n];
    o->name = json_string_value(json_object_get(json, "name"));
    o->class_name = json_string_value(json_object_get(json, "class_name"));
    o->calls = json_object_get(json, "inbound_nodes");
    if (!o->name || !o->class_name || !json_is_array(o->calls))
        return wrong("a layer without a name, a class or calls");
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->operations[i].name, o->name) == 0)
            return wrong("two layers of one name");
    r->n++;
    if (mu__is_operation_json(json)) {
        const bool masks = mu__is_mask_operation(r->layers, json, &r->steps);
        o->calls = masks ? NULL : o->calls;
        o->layer = masks ? NULL : mu__operation_from(json);
        return mu_error_code();
    }
    if (strcmp(o->class_name, "InputLayer") == 0)
        return read_input(o, json_object_get(json, "config"));
    MU_TRY(take_call_options(json));
    o->layer = mu__layer_from_json(json, depth + 1);
    return o->layer ? MU_OK : mu_error_code();
}

static const mu_layer_call *input_call(const operation *o)
{
    return o->outputs.n > 0 && o->outputs.items[0]->leaf ? mu__call_of((const mu_tensor *)o->outputs.items[0]->leaf)
                                                         : NULL;
}

// The configuration's order is Keras's, and counts the operations that compute masks.
static mu_status keep_order(const reader *r, mu_functional *f)
{
    for (size_t i = 0; i < r->n; i++) {
        const operation *o = &r->operations[i];
        const mu_operation kept = {.layer = o->layer, .call = o->layer ? NULL : input_call(o), .number = (int)i};
        bool is_part = false;
        for (size_t k = 0; k < f->calls.n; k++)
            is_part |= o->layer ? f->calls.items[k]->layer == o->layer : f->calls.items[k] == kept.call;
        if (is_part)
            MU_TRY(MU_PUSH(&f->order, kept));
    }
    return MU_OK;
}

static mu_layer *read_model(reader *r, const json_t *config, int depth)
{
    for (size_t i = 0; i < json_array_size(r->layers); i++)
        if (read_operation(r, json_array_get(r->layers, i), depth) != MU_OK)
            return NULL;
    if (make_calls(r) != MU_OK)
        return NULL;
    mu_value *inputs = nest_of(r, json_object_get(config, "input_layers"), true, 0);
    mu_value *outputs = inputs ? nest_of(r, json_object_get(config, "output_layers"), true, 0) : NULL;
    mu_model *model = outputs ? mu_model_new(.inputs = inputs, .outputs = outputs,
                                             .name = json_string_value(json_object_get(config, "name"))) : NULL;
    return model && keep_order(r, model->state) == MU_OK ? model : NULL;
}

mu_layer *mu__functional_from(const json_t *config, int depth)
{
    reader r = {0};
    const size_t n = json_array_size(json_object_get(config, "layers"));
    if (n == 0 || n > MOST_LAYERS) {
        wrong("no layers, or too many");
        return NULL;
    }
    r.layers = json_object_get(config, "layers");
    r.steps = (int)(MOST_SEARCHED / n);
    r.operations = mu__calloc(n, sizeof *r.operations);
    mu_layer *model = r.operations ? read_model(&r, config, depth) : NULL;
    for (size_t i = 0; i < r.n; i++)
        mu__free(r.operations[i].outputs.items);
    mu__free(r.operations);
    return model;
}
