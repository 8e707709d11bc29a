// Functional models read from Keras's JSON (written: functional_config.c).
//
// First all layers are made, then the operations of keras.ops that the program uses, then the calls, in rounds. What
// Keras has only to compute masks for layers is left out (mask_config.c).
#include "model/layers/operation.h"
#include "model/models/functional.h"
#include "model/models/model.h"

#include <muster/ops.h>

enum { MOST_LAYERS = 20000 };

// An operation of the configuration, and what its calls have returned so far.
typedef struct operation {
    const char *name, *class_name;
    mu_layer *layer; // NULL: an input, or an operation that is left out
    const json_t *calls;
    bool computes_mask; // an operation that Keras computes masks with
    bool needed;        // one whose value the program uses too
    struct {
        mu_value **items;
        size_t n, capacity;
    } outputs;
} operation;

typedef struct reader {
    size_t n;
    operation *operations;
    bool waits; // a call needs the output of one that has not been made
    mu_mask_search search;
} reader;

static mu_status wrong(const char *what)
{
    return mu__error(MU_INVALID_ARGUMENT,
                     "the configuration of a functional model has %s; expected that of model.to_json() of Keras 3",
                     what);
}

// The tensor that [operation, call, output] stands for; NULL without an error: it is not there yet. `end`: it is an
// input or an output of the model.
static mu_tensor *tensor_of(reader *r, const json_t *history, bool end)
{
    const char *name = json_string_value(json_array_get(history, 0));
    const json_int_t call = json_integer_value(json_array_get(history, 1)),
                     output = json_integer_value(json_array_get(history, 2));
    for (size_t i = 0; name && i < r->n; i++) {
        const operation *o = &r->operations[i];
        if (strcmp(o->name, name) != 0)
            continue;
        const json_int_t number = call - (end ? mu__first_end(o->layer) : 0);
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
    mu__error(MU_INVALID_ARGUMENT,
              "the configuration of a functional model refers to an output of '%.60s' that does not exist",
              name ? name : "?");
    return NULL;
}

static const json_t *history_of(const json_t *tensor)
{
    const char *class_name = json_string_value(json_object_get(tensor, "class_name"));
    return class_name && strcmp(class_name, "__keras_tensor__") == 0
               ? json_object_get(json_object_get(tensor, "config"), "keras_history")
               : NULL;
}

static bool is_history(const json_t *value)
{
    return json_array_size(value) == 3 && json_is_string(json_array_get(value, 0)) &&
           json_is_integer(json_array_get(value, 1));
}

static bool is_map(const json_t *value) { return json_is_object(value) && !json_object_get(value, "class_name"); }

// A nest of tensors; `bare`: the model's inputs or outputs, which are histories, else each is an object around one.
// NULL: an error, or r->waits.
static mu_value *nest_of(reader *r, const json_t *json, bool bare, int depth)
{
    const json_t *history = bare ? (is_history(json) ? json : NULL) : history_of(json);
    if (history) {
        mu_tensor *tensor = tensor_of(r, history, bare);
        return tensor ? mu_of(tensor) : NULL;
    }
    const size_t n = json_is_array(json) ? json_array_size(json) : bare || is_map(json) ? json_object_size(json) : 0;
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

// Whether an option of a call says nothing: no mask, for none of several inputs, not in training.
static bool says_nothing(const json_t *value)
{
    const char *key;
    json_t *item;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!json_is_null(json_array_get(value, i)))
            return false;
    json_object_foreach((json_t *)(uintptr_t)value, key, item) if (!json_is_null(item)) return false;
    return json_is_null(value) || json_is_false(value) || json_is_array(value) || is_map(value);
}

static operation *operation_named(const reader *r, const char *name)
{
    const json_t *index = name ? json_object_get(r->search.indices, name) : NULL;
    return index ? &r->operations[json_integer_value(index)] : NULL;
}

// Whether an argument of a call is masks that the program gave: tensors of inputs, of layers or of operations.
static bool is_given_mask(const reader *r, const json_t *value)
{
    const operation *o = operation_named(r, json_string_value(json_array_get(history_of(value), 0)));
    bool given = json_is_array(value) || (o && (o->layer || strcmp(o->class_name, "InputLayer") == 0));
    for (size_t i = 0; given && i < json_array_size(value); i++)
        given = json_is_null(json_array_get(value, i)) || is_given_mask(r, json_array_get(value, i));
    return given;
}

// The index of an argument among the masks of a call; -1: it is something else.
static int mask_index(const operation *o, const char *key)
{
    if (!mu__takes_operands(o->layer->ops))
        return strcmp(key, "mask") == 0 ? 0 : -1;
    for (int i = 0; i < MU_OPERAND_MASKS; i++)
        if (strcmp(mu__operand_masks[i], key) == 0)
            return i;
    return -1;
}

static const char *const operand_names[] = {"query", "value", "key", "attention_mask"};

static bool is_operand(const operation *o, const char *key)
{
    for (size_t i = 0; mu__takes_operands(o->layer->ops) && i < MU_COUNT(operand_names); i++)
        if (strcmp(operand_names[i], key) == 0)
            return true;
    return false;
}

// What a mask is for: the operand of that place, in order or by name. The key is the value by default.
static const json_t *masked_operand(const operation *o, const json_t *call, const char *key)
{
    const json_t *args = json_object_get(call, "args"), *kwargs = json_object_get(call, "kwargs"), *operand;
    const int index = mask_index(o, key);
    if (index < 0)
        return args;
    if (!mu__takes_operands(o->layer->ops))
        return json_array_get(args, 0);
    operand = json_array_get(args, (size_t)index);
    operand = operand ? operand : json_object_get(kwargs, operand_names[index]);
    return operand || index < 2 ? operand : masked_operand(o, call, "value_mask");
}

// Whether an argument of a call by name is a mask that Keras computed: the layer here computes it too.
static mu_status is_computed(reader *r, const operation *o, const json_t *call, const char *key, bool *computed)
{
    const json_t *value = json_object_get(json_object_get(call, "kwargs"), key);
    const size_t length = strlen(key);
    *computed = false;
    if (says_nothing(value) || is_operand(o, key) || length < 4 || strcmp(key + length - 4, "mask") != 0)
        return MU_OK;
    *computed = o->layer->ops == &mu__multi_head_attention_ops && mask_index(o, key) == 0 &&
                !json_is_true(json_object_get(call, MU_QUERY_MASK_COUNTS));
    return *computed ? MU_OK : mu__computes_mask(&r->search, masked_operand(o, call, key), value, computed);
}

// The arguments of a call that has been read: its operands, in the order of the layers here (query, value, key, mask),
// and the masks that the program gave.
typedef struct arguments {
    json_t *operands; // owned
    bool further;     // behind the first operand are first states, or weights
    bool reverse;
    bool has_mode, training; // the mode of a run that is given none
    const json_t *masks[MU_OPERAND_MASKS];
    int n_masks; // up to the last one that is given
} arguments;

static mu_status refuse_argument(const operation *o, const char *key)
{
    return mu__error(MU_UNIMPLEMENTED,
                     "'%.60s' (%.60s) is called with '%.60s' in this configuration, which Muster's layer does not take",
                     o->name, o->class_name, key);
}

static void add_further(const json_t *value, arguments *out)
{
    out->further = true;
    for (size_t i = 0; i < json_array_size(value); i++)
        json_array_append(out->operands, json_array_get(value, i));
    if (!json_is_array(value))
        json_array_append(out->operands, (json_t *)(uintptr_t)value);
}

// What stands behind the first input, where the call gives it by position.
static void add_second(const operation *o, arguments *out)
{
    if (!mu__further_inputs(o->layer) || json_array_size(out->operands) != 2)
        return;
    json_t *second = json_incref(json_array_get(out->operands, 1));
    json_array_remove(out->operands, 1);
    if (!json_is_null(second))
        add_further(second, out);
    json_decref(second);
}

static void add_operands_of(const operation *o, const json_t *kwargs, arguments *out)
{
    for (size_t i = 0; mu__takes_operands(o->layer->ops) && i < MU_COUNT(operand_names); i++) {
        json_t *operand = json_object_get(kwargs, operand_names[i]);
        if (!operand || json_is_null(operand))
            continue;
        // A mask is the fourth operand, so the key, which is the value by default, is written out.
        if (i == 3 && json_array_size(out->operands) == 2)
            json_array_append(out->operands, json_array_get(out->operands, 1));
        json_array_append(out->operands, operand);
    }
}

static mu_status add_keywords(reader *r, const operation *o, const json_t *call, arguments *out)
{
    const json_t *kwargs = json_object_get(call, "kwargs");
    const char *key, *further = mu__further_inputs(o->layer);
    json_t *value;
    bool computed;
    add_second(o, out);
    json_object_foreach((json_t *)(uintptr_t)kwargs, key, value)
    {
        const bool known =
            says_nothing(value) || mu__fields_call_option(&o->layer->ops->class, key) || is_operand(o, key);
        MU_TRY(is_computed(r, o, call, key, &computed));
        const int index = known ? -1 : mask_index(o, key);
        if (strcmp(key, "training") == 0 && json_is_boolean(value)) {
            out->has_mode = true;
            out->training = json_is_true(value);
        } else if (!known && o->layer->ops->takes_reverse && strcmp(key, "reverse") == 0 && json_is_true(value))
            out->reverse = true;
        else if (!known && further && strcmp(key, further) == 0)
            add_further(value, out);
        else if (!computed && index >= 0 && is_given_mask(r, value)) {
            out->masks[index] = value;
            out->n_masks = MU_MAX(out->n_masks, index + 1);
        } else if (!known && !computed)
            return refuse_argument(o, key);
    }
    add_operands_of(o, kwargs, out);
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
    mu_value *items[MU_OPERAND_MASKS];
    if (!mu__takes_operands(o->layer->ops))
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
    if (!tensors)
        mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the arguments of an operation");
    else if (mu__operation_tensors(args, tensors) == MU_OK)
        operands = nest_of(r, json_array_size(tensors) == 1 ? json_array_get(tensors, 0) : tensors, false, 0);
    json_decref(tensors);
    return operands;
}

static mu_status call_operation(reader *r, operation *o, const json_t *call)
{
    mu_value *inputs = operands_of(r, json_object_get(call, "args"));
    mu_value *outputs =
        inputs ? mu__layer_connect(o->layer, inputs, &(mu_call_context){.training_left_out = true}) : NULL;
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
    mu_status status = add_keywords(r, o, call, &a);
    const bool apart = mu__takes_operands(o->layer->ops) || a.further;
    if (status == MU_OK && !apart && json_array_size(a.operands) != 1)
        status =
            mu__error(MU_UNIMPLEMENTED,
                      "'%.60s' (%.60s) is called with %zu arguments in this configuration; Muster's layer takes one",
                      o->name, o->class_name, json_array_size(a.operands));
    mu_value *inputs =
        status == MU_OK ? nest_of(r, apart ? a.operands : json_array_get(a.operands, 0), false, 0) : NULL;
    mu_value *masks = inputs && a.n_masks > 0 ? given_masks(r, o, &a) : NULL;
    json_decref(a.operands);
    if (!inputs || (a.n_masks > 0 && !masks))
        return mu_error_code();
    const mu_call_context context = {
        .training = a.training, .training_left_out = !a.has_mode, .mask = masks, .reverse = a.reverse};
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
            return mu__error(MU_UNIMPLEMENTED,
                             "a layer is called with %s and without it in this configuration; in Muster it is an "
                             "option of the layer",
                             options[k]);
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

static mu_status read_entry(reader *r, const json_t *json)
{
    operation *o = &r->operations[r->n];
    o->name = json_string_value(json_object_get(json, "name"));
    o->class_name = json_string_value(json_object_get(json, "class_name"));
    o->calls = json_object_get(json, "inbound_nodes");
    if (!o->name || !o->class_name || !json_is_array(o->calls))
        return wrong("a layer without a name, a class or calls");
    if (operation_named(r, o->name) != o)
        return wrong("two layers of one name");
    r->n++;
    o->computes_mask = mu__is_mask_operation(&r->search, json);
    return MU_OK;
}

static mu_status read_layer(reader *r, operation *o, json_t *json, int depth)
{
    if (strcmp(o->class_name, "InputLayer") == 0)
        return read_input(o, json_object_get(json, "config"));
    MU_TRY(take_call_options(json));
    o->layer = mu__layer_from_json(json, depth + 1);
    if (!o->layer)
        return mu_error_code();
    return mu__may_pass_mask(o->layer) ? mu__mask_search_passes(&r->search, o->name) : MU_OK;
}

// Adds the tensors that an entry's calls take to a list, except for masks that Keras computed.
static mu_status add_taken(reader *r, const operation *o, json_t *taken)
{
    const char *key;
    json_t *value;
    for (size_t i = 0; i < json_array_size(o->calls); i++) {
        const json_t *call = json_array_get(o->calls, i);
        MU_TRY(mu__operation_tensors(json_object_get(call, "args"), taken));
        json_object_foreach(json_object_get(call, "kwargs"), key, value)
        {
            bool computed = false;
            if (o->layer)
                MU_TRY(is_computed(r, o, call, key, &computed));
            if (!computed)
                MU_TRY(mu__operation_tensors(value, taken));
        }
    }
    return MU_OK;
}

static mu_status add_histories(const json_t *nest, json_t *out)
{
    const char *key;
    json_t *value;
    if (is_history(nest) && json_array_append(out, (json_t *)(uintptr_t)nest) != 0)
        return mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the outputs of a model");
    for (size_t i = 0; !is_history(nest) && i < json_array_size(nest); i++)
        MU_TRY(add_histories(json_array_get(nest, i), out));
    json_object_foreach((json_t *)(uintptr_t)nest, key, value) MU_TRY(add_histories(value, out));
    return MU_OK;
}

// Marks what the program uses of the operations that masks are computed with: back from all that is kept.
static mu_status mark_needed(reader *r, const json_t *outputs, json_t *taken)
{
    MU_TRY(add_histories(outputs, taken));
    for (size_t i = 0; i < r->n; i++)
        if (!r->operations[i].computes_mask)
            MU_TRY(add_taken(r, &r->operations[i], taken));
    for (size_t i = 0; i < json_array_size(taken); i++) {
        const json_t *item = json_array_get(taken, i), *history = json_is_array(item) ? item : history_of(item);
        operation *o = operation_named(r, json_string_value(json_array_get(history, 0)));
        if (!o || !o->computes_mask || o->needed)
            continue;
        o->needed = true;
        MU_TRY(add_taken(r, o, taken));
    }
    return MU_OK;
}

// Operations that only compute masks for layers are left out.
static mu_status read_operations(reader *r, const json_t *layers, const json_t *outputs)
{
    json_t *taken = json_array();
    mu_status status = taken ? mark_needed(r, outputs, taken)
                             : mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the operations of a model");
    json_decref(taken);
    for (size_t i = 0; i < r->n && status == MU_OK; i++) {
        operation *o = &r->operations[i];
        const json_t *json = json_array_get(layers, i);
        if (!mu__is_operation_json(json))
            continue;
        const bool kept = !o->computes_mask || o->needed;
        o->layer = kept ? mu__operation_from(json) : NULL;
        status = mu_error_code();
    }
    return status;
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

static mu_status read_layers(reader *r, const json_t *config, int depth)
{
    const json_t *layers = json_object_get(config, "layers");
    MU_TRY(mu__mask_search_begin(&r->search, layers));
    for (size_t i = 0; i < json_array_size(layers); i++)
        MU_TRY(read_entry(r, json_array_get(layers, i)));
    for (size_t i = 0; i < r->n; i++)
        if (!mu__is_operation_json(json_array_get(layers, i)))
            MU_TRY(read_layer(r, &r->operations[i], json_array_get(layers, i), depth));
    return read_operations(r, layers, json_object_get(config, "output_layers"));
}

static mu_layer *read_model(reader *r, const json_t *config, int depth)
{
    if (read_layers(r, config, depth) != MU_OK || make_calls(r) != MU_OK)
        return NULL;
    mu_value *inputs = nest_of(r, json_object_get(config, "input_layers"), true, 0);
    mu_value *outputs = inputs ? nest_of(r, json_object_get(config, "output_layers"), true, 0) : NULL;
    if ((!inputs || !outputs) && !mu__pending())
        wrong("an input or output that does not exist");
    mu_model *model = outputs ? mu_model_new(.inputs = inputs, .outputs = outputs,
                                             .name = json_string_value(json_object_get(config, "name")))
                              : NULL;
    if (!model || keep_order(r, model->state) != MU_OK)
        return NULL;
    model->frozen = json_is_false(json_object_get(config, "trainable")); // its layers have entries of their own
    return model;
}

mu_layer *mu__functional_from(const json_t *config, int depth)
{
    reader r = {0};
    const size_t n = json_array_size(json_object_get(config, "layers"));
    if (n == 0 || n > MOST_LAYERS) {
        wrong("no layers, or too many");
        return NULL;
    }
    r.operations = mu__calloc(n, sizeof *r.operations);
    mu_layer *model = r.operations ? read_model(&r, config, depth) : NULL;
    for (size_t i = 0; i < r.n; i++)
        mu__free(r.operations[i].outputs.items);
    mu__free(r.operations);
    mu__mask_search_end(&r.search);
    return model;
}
