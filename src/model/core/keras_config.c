// Layers and sequential models as Keras's JSON, in both directions.
//
// A layer is {"module": …, "class_name": "Dense", "config": {…}}; its options come from the class's table of fields.
// The reader executes nothing: it knows the classes in layers.def, and refuses what it does not know.
#include "model/core/layer.h"
#include "model/layers/operation.h"
#include "model/models/functional.h"
#include "model/models/host_part.h"

#include <muster/recurrent.h>

// ---- Writing ------------------------------------------------------------------------------------

static json_t *batch_shape(const mu_shape *shape)
{
    json_t *list = json_array();
    for (int i = 0; i < shape->rank; i++)
        json_array_append_new(list, shape->dims[i] == MU_UNKNOWN ? json_null() : json_integer(shape->dims[i]));
    return list;
}

json_t *mu__input_json(const char *name, mu_dtype dtype, const mu_shape *shape)
{
    return mu__keras_json("keras.layers", "InputLayer",
                          json_pack("{s:s, s:s, s:b, s:b, s:o}", "name", name, "dtype", mu_dtype_name(dtype), "sparse",
                                    0, "ragged", 0, "batch_shape", batch_shape(shape)));
}

mu_shape mu__input_shape(const mu_input_args *args)
{
    mu_shape shape = {.rank = 1, .dims = {args->batch_size ? args->batch_size : MU_UNKNOWN}};
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && args->shape[i] != 0; i++)
        shape.dims[shape.rank++] = args->shape[i];
    return shape;
}

static mu_status add_sublayers(const mu_layer *model, json_t *list)
{
    const mu_layer *first = model->sublayers.items[0];
    const mu_dtype dtype = mu__host_input_dtype(model, mu__layer_takes_integers(model) ? MU_I32 : mu__floatx());
    if (model->built && first->ops != &mu__input_layer_ops)
        json_array_append_new(list, mu__input_json("input_layer", dtype, &model->input));
    for (size_t i = 0; i < model->sublayers.n; i++) {
        json_t *layer = mu__layer_json(model->sublayers.items[i]);
        if (!layer)
            return mu_error_code();
        json_array_append_new(list, layer);
    }
    return MU_OK;
}

static json_t *sequential_json(const mu_layer *model)
{
    json_t *list = json_array();
    if (add_sublayers(model, list) != MU_OK) {
        json_decref(list);
        return NULL;
    }
    return mu__keras_json("keras", "Sequential",
                          json_pack("{s:s, s:b, s:s, s:o}", "name", mu_layer_name(model), "trainable", !model->frozen,
                                    "dtype", mu_layer_dtype_policy(model), "layers", list));
}

static json_t *cells_json(const mu_layer *stack)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stack->sublayers.n; i++) {
        json_t *cell = mu__layer_json(stack->sublayers.items[i]);
        if (!cell) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, cell);
    }
    return mu__keras_json("keras.layers", "StackedRNNCells",
                          json_pack("{s:s, s:b, s:s, s:o}", "name", mu_layer_name(stack), "trainable", !stack->frozen,
                                    "dtype", mu_layer_dtype_policy(stack), "cells", list));
}

// Keras's name of the type of a layer's outputs.
static const char *type_of(const mu_layer *layer)
{
    const char *mode =
        layer->ops->typed_by_mode ? mu__fields_text(&layer->ops->class, layer->args, "output_mode") : NULL;
    return mode && strcmp(mode, "int") == 0 ? "int64" : mu_layer_dtype_policy(layer);
}

json_t *mu__layer_json(const mu_layer *layer)
{
    const mu_class *class = &layer->ops->class;
    if (layer->ops == &mu__sequential_ops)
        return sequential_json(layer);
    if (layer->ops == &mu__functional_ops)
        return mu__functional_json(layer);
    if (layer->ops == &mu__stacked_rnn_cells_ops)
        return cells_json(layer);
    if (layer->ops == &mu__operation_ops)
        return mu__operation_json(layer);
    if (mu__layer_is_own(layer))
        return mu__own_layer_json(layer);
    if (layer->ops == &mu__input_layer_ops) {
        const mu_input_args *args = layer->args;
        const mu_shape shape = mu__input_shape(args);
        return mu__input_json(mu_layer_name(layer), args->dtype ? args->dtype : mu__floatx(), &shape);
    }
    bool listed = false;
#define MU_LAYER(name) listed |= layer->ops == &mu__##name##_ops;
#include "model/layers/layers.def"
#undef MU_LAYER
    if (!listed) {
        mu__error(MU_UNIMPLEMENTED,
                  "mu_layer_config: '%s' is a %s, which Keras's JSON and .keras files cannot describe; save the "
                  "model's weights in another format (mu_save_weights)",
                  mu_layer_name(layer), class->keras);
        return NULL;
    }
    json_t *config = json_pack("{s:s, s:s}", "name", mu_layer_name(layer), "dtype", type_of(layer));
    // "trainable" has the default true, and some of Keras's classes do not take it.
    if (config && layer->frozen)
        json_object_set_new(config, "trainable", json_false());
    if (config && mu__fields_json(class, layer->args, config) == MU_OK)
        return mu__keras_json("keras.layers", class->keras, config);
    json_decref(config);
    return NULL;
}

const char *mu_layer_config(const mu_layer *layer)
{
    if (mu__pending() || mu__need(layer, "mu_layer_config: the layer") != MU_OK)
        return NULL;
    json_t *json = mu__layer_json(layer);
    return json ? mu__json_text(json, "mu_layer_config") : NULL;
}

// ---- Reading ------------------------------------------------------------------------------------

enum { MAX_CONFIG_DEPTH = 32 };

mu_status mu__input_args(const json_t *config, mu_input_args *args)
{
    const json_t *of_keras_2 = json_object_get(config, "batch_input_shape"); // Keras 3 takes this name too
    const json_t *shape = of_keras_2 ? of_keras_2 : json_object_get(config, "batch_shape");
    const char *dtype = json_string_value(json_object_get(config, "dtype"));
    if (json_array_size(shape) < 1 || json_array_size(shape) > MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "the configuration of InputLayer has no batch_shape of 1 to %d axes",
                         MU_MAX_RANK);
    args->batch_size = json_integer_value(json_array_get(shape, 0));
    for (size_t i = 1; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (json_is_integer(size) && json_integer_value(size) < 1)
            return mu__error(MU_INVALID_ARGUMENT,
                             "the configuration of InputLayer has the size %lld in axis %zu of its batch_shape; "
                             "expected 1 or more, or null for a size that is known later",
                             (long long)json_integer_value(size), i);
        args->shape[i - 1] = json_is_integer(size) ? json_integer_value(size) : MU_UNKNOWN;
    }
    args->dtype = dtype ? mu__dtype_from_name(dtype) : MU_DTYPE_DEFAULT;
    if (dtype && args->dtype == MU_DTYPE_DEFAULT)
        return mu__error(MU_UNIMPLEMENTED,
                         "the configuration of InputLayer has the type '%.40s', which Muster's tensors cannot have",
                         dtype);
    return MU_OK;
}

static mu_layer *input_from(const json_t *config, const char *name)
{
    mu_input_args args = {.size = sizeof args, .name = name};
    return mu__input_args(config, &args) == MU_OK ? mu_input_layer_with(&args) : NULL;
}

// Makes a layer of the layers in a list.
static mu_layer *list_from(const json_t *list, int depth, mu_layer *(*of)(mu_layer *const *layers))
{
    const size_t n = json_array_size(list);
    mu_layer **layers = mu__calloc(n + 1, sizeof *layers);
    bool whole = layers != NULL;
    for (size_t i = 0; whole && i < n; i++)
        whole = (layers[i] = mu__layer_from_json(json_array_get(list, i), depth + 1)) != NULL;
    if (whole)
        layers[n] = MU_END;
    mu_layer *layer = whole ? of(layers) : NULL;
    mu__free(layers);
    return layer;
}

static bool takes_layers(const mu_class *class)
{
    for (const mu_field *field = class->fields; field->name; field++)
        if (field->kind == MU_FIELD_LAYER)
            return true;
    return false;
}

// Makes a layer of a class from its options. Layers that it was given have entries of their own, which say whether
// they are trained.
static mu_layer *make(const mu_layer_ops *ops, const json_t *config, int depth)
{
    void *args = mu__fields_from(&ops->class, config, depth);
    mu_layer *layer = args ? mu__layer_make(ops, args) : NULL;
    mu__fields_from_free(args);
    if (!layer || !json_is_false(json_object_get(config, "trainable")))
        return layer;
    if (takes_layers(&ops->class))
        layer->frozen = true;
    else
        mu_layer_set_trainable(layer, false);
    return layer;
}

// Keras writes the last axis as -1 or by its number, and in some classes as a list; here it is -1.
static void name_last_axis(const json_t *json, json_t *config)
{
    const json_t *input = json_object_get(json_object_get(json, "build_config"), "input_shape");
    const size_t rank = json_array_size(json_is_array(json_array_get(input, 0)) ? json_array_get(input, 0) : input);
    const json_t *axis = json_object_get(config, "axis");
    const json_t *number = json_array_size(axis) == 1 ? json_array_get(axis, 0) : axis;
    const json_int_t at = json_integer_value(number);
    if (json_is_integer(number) && (at == -1 || (rank > 1 && at == (json_int_t)rank - 1)))
        json_object_set_new(config, "axis", json_integer(-1));
}

static const mu_layer_ops *class_named(const char *class_name)
{
    static const mu_layer_ops *const known[] = {
#define MU_LAYER(word) &mu__##word##_ops,
#include "model/layers/layers.def"
#undef MU_LAYER
    };
    for (size_t i = 0; i < MU_COUNT(known); i++)
        if (strcmp(known[i]->class.keras, class_name) == 0)
            return known[i];
    return NULL;
}

static bool has_class(const char *class_name)
{
    static const char *const others[] = {"Functional", "Sequential", "StackedRNNCells", "InputLayer", "Lambda"};
    bool has = class_named(class_name) != NULL;
    for (size_t i = 0; !has && i < MU_COUNT(others); i++)
        has = strcmp(others[i], class_name) == 0;
    return has;
}

static bool is_module_of_keras(const char *module)
{
    // AlphaDropout is one of Keras's legacy layers.
    static const char *const modules[] = {"keras.layers", "keras.src.layers", "keras.models", "keras.src.models",
                                          "keras._legacy.layers"};
    bool is = strcmp(module, "keras") == 0;
    for (size_t i = 0; !is && i < MU_COUNT(modules); i++)
        is = strncmp(module, modules[i], strlen(modules[i])) == 0;
    return is;
}

// Classes of a script or a notebook have a registered name and no module, those of a package "package>Class". Old files
// have neither modules nor registered names.
bool mu__is_keras_json(const json_t *json)
{
    const char *class_name = json_string_value(json_object_get(json, "class_name"));
    const char *module = json_string_value(json_object_get(json, "module"));
    const char *registered = json_string_value(json_object_get(json, "registered_name"));
    if (registered && (!module || strchr(registered, '>')))
        return false;
    return module ? is_module_of_keras(module) : class_name && has_class(class_name);
}

// What is made of a configuration executes nothing, so what a program has to define or run is refused by its name.
static mu_status check_class(const json_t *json, const char *class_name, const char *name)
{
    const char *module = json_string_value(json_object_get(json, "module"));
    const char *registered = json_string_value(json_object_get(json, "registered_name"));
    const bool package = registered && strchr(registered, '>');
    if (strcmp(class_name, "Lambda") == 0)
        return mu__error(MU_UNIMPLEMENTED,
                         "'%.60s' is a Lambda layer: its function is Python code, which Muster does not execute. "
                         "Replace it by layers, or by mu_layer_new",
                         name ? name : class_name);
    if (mu__is_keras_json(json) || (!module && !registered))
        return MU_OK;
    return mu__error(MU_UNIMPLEMENTED,
                     "'%.60s' is of the class %.60s of %.60s, not one of Keras's layers; write the layer in C and "
                     "register a function that makes it: mu_register_layer(\"%.80s\", …)",
                     name ? name : "?", class_name,
                     package  ? registered
                     : module ? module
                              : "a script",
                     registered ? registered : class_name);
}

static mu_layer *sequential_from(const json_t *config, int depth)
{
    const char *name = json_string_value(json_object_get(config, "name"));
    mu_layer *model = list_from(json_object_get(config, "layers"), depth, mu_sequential_of);
    return model && name && !(model->name = mu__strdup(name)) ? NULL : model;
}

static mu_layer *cells_from(const json_t *config, int depth)
{
    mu_layer *stack = list_from(json_object_get(config, "cells"), depth, mu_stacked_rnn_cells_of);
    if (stack)
        stack->frozen = json_is_false(json_object_get(config, "trainable"));
    return stack;
}

static mu_layer *layer_of(const char *class_name, const json_t *config, int depth)
{
    if (strcmp(class_name, "Functional") == 0)
        return mu__functional_from(config, depth);
    if (strcmp(class_name, "Sequential") == 0)
        return sequential_from(config, depth);
    if (strcmp(class_name, "StackedRNNCells") == 0)
        return cells_from(config, depth);
    if (strcmp(class_name, "InputLayer") == 0)
        return input_from(config, json_string_value(json_object_get(config, "name")));
    if (mu__is_own_layer_json(class_name))
        return mu__own_layer_from(config, depth);
    const mu_layer_ops *ops = class_named(class_name);
    if (ops)
        return make(ops, config, depth);
    mu__error(MU_UNIMPLEMENTED, "mu_layer_from_config: Muster has no layer of Keras's class '%.60s'", class_name);
    return NULL;
}

// The policy in the configuration. That of an input is the type of its tensor.
static mu_status read_policy(const char *class_name, const json_t *config, mu_layer_policy *out)
{
    const mu_layer_ops *ops = class_named(class_name);
    const json_t *dtype = strcmp(class_name, "InputLayer") == 0 ? NULL : json_object_get(config, "dtype");
    return mu__layer_policy_from_json(dtype, ops && (ops->takes_integers || ops->takes_strings), out);
}

mu_layer *mu__layer_from_json(const json_t *json, int depth)
{
    const char *class_name = json_string_value(json_object_get(json, "class_name"));
    json_t *config = json_object_get(json, "config");
    const char *name = json_string_value(json_object_get(config, "name"));
    mu_layer_policy policy;
    if (!class_name || !json_is_object(config) || depth > MAX_CONFIG_DEPTH) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_layer_from_config: expected {\"class_name\": …, \"config\": {…}}, at most %d deep",
                  MAX_CONFIG_DEPTH);
        return NULL;
    }
    const bool registered = !mu__is_own_layer_json(class_name) && mu__is_registered_json(json);
    if ((!registered && !mu__is_own_layer_json(class_name) && check_class(json, class_name, name) != MU_OK) ||
        read_policy(class_name, config, &policy) != MU_OK)
        return NULL;
    name_last_axis(json, config);
    mu_context *thread = mu__context();
    const void *outer = thread->policy;
    thread->policy = &policy;
    mu_layer *layer = registered ? mu__registered_from(json) : layer_of(class_name, config, depth);
    thread->policy = outer;
    return layer;
}

mu_layer *mu_layer_from_config(const char *json)
{
    if (mu__pending() || mu__need(json, "mu_layer_from_config: the text") != MU_OK)
        return NULL;
    json_t *root = mu__json_read(json, "mu_layer_from_config");
    if (!root)
        return NULL;
    mu_layer *layer = mu__layer_from_json(root, 0);
    json_decref(root);
    return layer;
}
