// mu_clone_model: a model of the same layers with new weights, made of its configuration.
//
// Layers of the program's own are functions, which no configuration holds. While a model is cloned, its configuration
// refers to them by their index in a list that belongs to the thread, and each is cloned by its own function.
#include "base/callback.h"
#include "model/models/model.h"

#define OWN_CLASS "ProgramsOwnLayer"

// The layers of the program's own in the model that is being cloned; borrowed.
typedef struct own_layers {
    const mu_layer **items;
    size_t n, capacity;
} own_layers;

// A layer without an argument is what its functions make of it and of its attributes, so they make another: build
// makes the rest again.
static bool has_other_sublayers(const mu_layer *layer)
{
    const mu_layer_parts given = mu__layer_given(layer);
    return given.sublayers > given.attributes;
}

static json_t *attributes_json(const mu_layer *layer)
{
    json_t *attributes = json_object();
    for (size_t i = 0; attributes && i < mu__layer_given(layer).attributes; i++) {
        json_t *json = mu__layer_json(layer->attributes.items[i].layer);
        if (!json || json_object_set_new(attributes, layer->attributes.items[i].name, json) != 0) {
            json_decref(attributes);
            return NULL;
        }
    }
    return attributes;
}

json_t *mu__own_layer_json(const mu_layer *layer)
{
    own_layers *own = mu__context()->clones;
    const mu_layer_args *args = layer->args;
    const char *name = mu_layer_name(layer), *kind = layer->trainer ? "model" : "layer";
    if (layer->entry)
        return mu__registered_json(layer);
    if (!own)
        mu__error(MU_UNIMPLEMENTED,
                  "mu_layer_config: '%s' is a %s of your own, whose functions no configuration holds; save the weights "
                  "alone (mu_save_weights), and make the model by the function that made it",
                  name, kind);
    else if (!args->clone && (args->arg || has_other_sublayers(layer)))
        mu__error(MU_UNIMPLEMENTED,
                  "mu_clone_model: '%s' is a %s of your own with %s; give %s a .clone that makes another one, or make "
                  "the model by the function that made it",
                  name, kind,
                  has_other_sublayers(layer) ? "sublayers that are not attributes (mu_layer_set_attribute)"
                                             : "an .arg, which may refer to other layers",
                  layer->ops->class.function);
    if (mu__pending() || MU_PUSH(own, layer) != MU_OK)
        return NULL;
    const int index = (int)own->n - 1;
    json_t *attributes = args->clone ? json_object() : attributes_json(layer);
    return attributes
               ? mu__keras_json("muster", OWN_CLASS,
                                json_pack("{s:s, s:s, s:i, s:o}", "name", name, "dtype", mu_layer_dtype_policy(layer),
                                          "index", index, "attributes", attributes))
               : NULL;
}

static mu_layer *clone_of(const mu_layer *layer)
{
    const mu_layer_args *args = layer->args;
    if (!args->clone)
        return mu__own_like(layer);
    mu_layer *clone;
    MU_CALLBACK("the clone function of a layer", clone = args->clone(layer, args->arg));
    const char *wrong = !clone           ? "NULL without an error; return a layer, or NULL after mu_fail(code, reason)"
                        : clone == layer ? "the layer itself; make another by mu_layer_new"
                        : layer->trainer && !clone->trainer ? "a layer; make a model by mu_model_subclass"
                        : mu__layer_is_built(clone) && clone->weights.n > 0
                            ? "a layer that has weights already; make a new one by mu_layer_new"
                            : NULL;
    if (!wrong || mu__pending())
        return mu__pending() ? NULL : clone;
    mu__error(MU_INVALID_ARGUMENT, "mu_clone_model: the .clone of layer '%s' returned %s", mu_layer_name(layer), wrong);
    return NULL;
}

bool mu__is_own_layer_json(const char *class_name)
{
    return mu__context()->clones && strcmp(class_name, OWN_CLASS) == 0;
}

static mu_status set_attributes(mu_layer *clone, json_t *attributes, int depth)
{
    const char *name;
    json_t *json;
    json_object_foreach(attributes, name, json)
    {
        mu_layer *sublayer = mu__layer_from_json(json, depth + 1);
        MU_TRY(sublayer ? mu_layer_set_attribute(clone, name, sublayer) : mu_error_code());
    }
    return MU_OK;
}

// The function of the program may clone and load models itself.
mu_layer *mu__own_layer_from(const json_t *config, int depth)
{
    mu_context *thread = mu__context();
    own_layers *own = thread->clones;
    const json_int_t index = json_integer_value(json_object_get(config, "index"));
    if (index < 0 || (size_t)index >= own->n) {
        mu__error(MU_INTERNAL, "mu_clone_model: the configuration refers to layer %lld of %zu of the program's own",
                  (long long)index, own->n);
        return NULL;
    }
    const mu_layer *layer = own->items[index];
    thread->clones = NULL;
    mu_layer *clone = clone_of(layer);
    thread->clones = own;
    if (!clone || set_attributes(clone, json_object_get(config, "attributes"), depth) != MU_OK)
        return NULL;
    char *name = mu__strdup(mu_layer_name(layer));
    if (!name)
        return NULL;
    mu__free(clone->name);
    clone->name = name;
    if (layer->frozen)
        mu_layer_set_trainable(clone, false);
    return clone;
}

mu_model *mu_clone_model(const mu_model *model)
{
    if (mu__pending() || mu__need_model(model, "mu_clone_model") != MU_OK)
        return NULL;
    mu_context *thread = mu__context();
    own_layers own = {0};
    void *outer = thread->clones;
    thread->clones = &own;
    json_t *json = mu__layer_json(model);
    mu_model *clone = json ? mu__layer_from_json(json, 0) : NULL;
    thread->clones = outer;
    json_decref(json);
    mu__free(own.items);
    if (clone)
        clone->frozen = model->frozen; // Keras's configuration of a sequential model does not say
    return clone;
}
