// Classes of layers that a program registers by the name that Keras's files have for them, such as layers of
// keras.applications. A function of the program makes a layer of the configuration; the file executes nothing.
//
// The layer keeps its entry of the configuration, as which it is written again.
#include "base/callback.h"
#include "model/models/model.h"

#include <pthread.h>

typedef struct registered_class {
    char *name;
    mu_layer *(*from_config)(const char *config, void *arg);
    void *arg;
} registered_class;

// Of the process; classes are added and never taken away.
static struct {
    registered_class *items;
    size_t n, capacity;
} classes;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

// With the lock held: adding a class may move the items.
static const registered_class *find_locked(const char *name)
{
    for (size_t i = 0; i < classes.n; i++)
        if (strcmp(classes.items[i].name, name) == 0)
            return &classes.items[i];
    return NULL;
}

static bool find(const char *name, registered_class *out)
{
    pthread_mutex_lock(&registering);
    const registered_class *found = find_locked(name);
    if (found)
        *out = *found;
    pthread_mutex_unlock(&registering);
    return found != NULL;
}

mu_status mu_register_layer(const char *registered_name, mu_layer *(*from_config)(const char *config, void *arg),
                            void *arg)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(registered_name, "mu_register_layer: the name"));
    if (!from_config || !*registered_name)
        return mu__error(MU_INVALID_ARGUMENT, "mu_register_layer: %s",
                         from_config ? "the name is empty; give that of the file's \"registered_name\""
                                     : "from_config is NULL; give the function that makes the layer");
    registered_class class = {.name = mu__strdup(registered_name), .from_config = from_config, .arg = arg};
    if (!class.name)
        return mu_error_code();
    pthread_mutex_lock(&registering);
    const registered_class *known = find_locked(registered_name);
    const bool added = !known, same = known && known->from_config == from_config && known->arg == arg;
    const mu_status status = added ? MU_PUSH(&classes, class) : MU_OK;
    pthread_mutex_unlock(&registering);
    if (!added || status != MU_OK)
        mu__free(class.name);
    return added || same
               ? status
               : mu__error(MU_ALREADY_EXISTS,
                           "mu_register_layer: another function is registered for '%.80s'; register each class once",
                           registered_name);
}

// Keras's own layers have no registered name, and are not found by that of their class.
static bool find_class(const json_t *json, registered_class *out)
{
    const char *name = json_string_value(json_object_get(json, "registered_name"));
    if (!name && !mu__is_keras_json(json))
        name = json_string_value(json_object_get(json, "class_name"));
    return name && find(name, out);
}

bool mu__is_registered_json(const json_t *json)
{
    registered_class known;
    return find_class(json, &known);
}

// What the file has of the layer besides its calls.
static json_t *entry_of(const json_t *json)
{
    static const char *const members[] = {"module", "class_name", "config", "registered_name", "build_config"};
    json_t *entry = json_object();
    for (size_t i = 0; entry && i < MU_COUNT(members); i++) {
        const json_t *member = json_object_get(json, members[i]);
        if (member && json_object_set_new(entry, members[i], json_deep_copy(member)) != 0) {
            json_decref(entry);
            return NULL;
        }
    }
    return entry;
}

static mu_status complete(mu_layer *layer, const json_t *json)
{
    const json_t *config = json_object_get(json, "config");
    const char *name = json_string_value(json_object_get(config, "name"));
    char *own = name ? mu__strdup(name) : NULL;
    if (name && !own)
        return mu_error_code();
    if (own) {
        mu__free(layer->name);
        layer->name = own;
    }
    layer->entry = entry_of(json);
    if (json_is_false(json_object_get(config, "trainable")))
        mu_layer_set_trainable(layer, false);
    return layer->entry ? mu_error_code()
                        : mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the configuration of a registered layer");
}

// Calls the function of the program, which may clone and load models itself.
static mu_layer *call_from_config(const registered_class *class, const char *config)
{
    mu_context *thread = mu__context();
    void *clones = thread->clones;
    mu_layer *layer;
    thread->clones = NULL;
    MU_CALLBACK("the from_config function of a layer", layer = class->from_config(config, class->arg));
    thread->clones = clones;
    return layer;
}

mu_layer *mu__registered_from(const json_t *json)
{
    registered_class known;
    if (!find_class(json, &known))
        return NULL;
    const char *config = mu__json_text(json_incref(json_object_get(json, "config")), "mu_layer_from_config");
    if (!config)
        return NULL;
    mu_layer *layer = call_from_config(&known, config);
    if (mu__pending())
        return NULL;
    const char *wrong =
        !layer                     ? "NULL without an error; return a layer, or NULL after mu_fail(code, reason)"
        : !mu__layer_is_own(layer) ? "a layer of another class; return one of mu_layer_new"
        : layer->entry             ? "a layer that it has returned before; make one for each configuration"
        : mu__layer_is_built(layer)
            ? "a layer that has its weights already; make a new one, and leave its first call to the model"
            : NULL;
    if (wrong) {
        mu__error(MU_INVALID_ARGUMENT, "mu_layer_from_config: the function that is registered for '%.80s' returned %s",
                  known.name, wrong);
        return NULL;
    }
    return complete(layer, json) == MU_OK ? layer : NULL;
}

json_t *mu__registered_json(const mu_layer *layer)
{
    json_t *entry = json_deep_copy(layer->entry), *config = json_object_get(entry, "config");
    const bool says_trainable = layer->frozen || json_object_get(config, "trainable");
    if (json_object_set_new(config, "name", json_string(mu_layer_name(layer))) == 0 &&
        (!says_trainable || json_object_set_new(config, "trainable", json_boolean(!layer->frozen)) == 0))
        return entry;
    json_decref(entry);
    mu__error(MU_RESOURCE_EXHAUSTED, "mu_layer_config: no memory for the configuration of '%s'", mu_layer_name(layer));
    return NULL;
}
