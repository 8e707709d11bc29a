// Sublayers of layers and models of the program's own, which their functions call; the attributes that hold them.
//
// An attribute is the name under which Keras's files and TensorFlow's checkpoints keep a sublayer. It belongs to the
// layer around it, because several may share one sublayer.
#include "model/core/layer.h"

// Whether `layer` is `around` or a layer inside of it, at any depth.
static bool is_inside(const mu_layer *layer, const mu_layer *around)
{
    bool inside = layer == around;
    for (size_t i = 0; !inside && i < around->sublayers.n; i++)
        inside = is_inside(layer, around->sublayers.items[i]);
    return inside;
}

// Adds a sublayer as the last one, or nothing. Layers are a tree: paths of a cycle would have no end.
static mu_status add(mu_layer *layer, mu_layer *sublayer, const char *function)
{
    if (layer == sublayer)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the sublayer of '%s' is itself; give another layer", function,
                         mu_layer_name(layer));
    if (is_inside(layer, sublayer))
        return mu__error(MU_INVALID_ARGUMENT, "%s: '%s' is inside of '%s', which therefore cannot be its sublayer",
                         function, mu_layer_name(layer), mu_layer_name(sublayer));
    MU_TRY(mu__layer_adopt(layer, sublayer));
    const mu_status status = mu__layer_name_sublayers(layer, function);
    if (status != MU_OK)
        mu_release(layer->sublayers.items[--layer->sublayers.n]);
    return status;
}

mu_status mu_layer_add_sublayer(mu_layer *layer, mu_layer *sublayer)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_layer_add_sublayer: the layer"));
    MU_TRY(mu__need(sublayer, "mu_layer_add_sublayer: the sublayer"));
    return add(layer, sublayer, "mu_layer_add_sublayer");
}

mu_layer_parts mu__layer_given(const mu_layer *layer)
{
    return layer->built ? layer->before_build
                        : (mu_layer_parts){.sublayers = layer->sublayers.n, .attributes = layer->attributes.n};
}

void mu__layer_drop_built(mu_layer *layer)
{
    while (layer->sublayers.n > layer->before_build.sublayers)
        mu_release(layer->sublayers.items[--layer->sublayers.n]);
    while (layer->attributes.n > layer->before_build.attributes)
        mu__free(layer->attributes.items[--layer->attributes.n].name);
}

// ---- Attributes ---------------------------------------------------------------------------------

const char *mu__layer_attribute_of(const mu_layer *layer, const mu_layer *sublayer)
{
    for (size_t i = 0; i < layer->attributes.n; i++)
        if (layer->attributes.items[i].layer == sublayer)
            return layer->attributes.items[i].name;
    return NULL;
}

static mu_layer *attribute_named(const mu_layer *layer, const char *name)
{
    for (size_t i = 0; i < layer->attributes.n; i++)
        if (strcmp(layer->attributes.items[i].name, name) == 0)
            return layer->attributes.items[i].layer;
    return NULL;
}

static bool has_sublayer(const mu_layer *layer, const mu_layer *sublayer)
{
    bool has = layer == sublayer;
    for (size_t i = 0; !has && i < layer->sublayers.n; i++)
        has = layer->sublayers.items[i] == sublayer;
    return has;
}

static mu_status check_attribute(const mu_layer *layer, const char *name, const mu_layer *sublayer)
{
    static const char function[] = "mu_layer_set_attribute";
    MU_TRY(mu__need(layer, "mu_layer_set_attribute: the layer"));
    MU_TRY(mu__need(name, "mu_layer_set_attribute: the name"));
    MU_TRY(mu__need(sublayer, "mu_layer_set_attribute: the sublayer"));
    if (!*name || strchr(name, '/'))
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: the name is '%.60s'; it must not be empty or have a '/', as files have paths of such names", function,
            name);
    if (layer->trainer && strcmp(name, "layers") == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the name is 'layers', which Keras reserves in models for the list of all layers; give "
                         "the layer another name",
                         function);
    if (!mu__layer_is_own(layer))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: '%s' is a %s, which has its layers already; layers of mu_layer_new and models of "
                         "mu_model_subclass have attributes",
                         function, mu_layer_name(layer), mu__layer_keras_class(layer));
    if (attribute_named(layer, name))
        return mu__error(MU_ALREADY_EXISTS, "%s: '%s' has an attribute '%.60s' already; give each layer another name",
                         function, mu_layer_name(layer), name);
    return has_sublayer(layer, sublayer)
               ? mu__error(MU_INVALID_ARGUMENT,
                           "%s: '%.60s' is to be '%s', which '%s' has already or is itself; set each layer once",
                           function, name, mu_layer_name(sublayer), mu_layer_name(layer))
               : MU_OK;
}

mu_status mu_layer_set_attribute(mu_layer *layer, const char *name, mu_layer *sublayer)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(check_attribute(layer, name, sublayer));
    char *copy = mu__strdup(name);
    if (!copy || MU_PUSH(&layer->attributes, ((mu_attribute){copy, sublayer})) != MU_OK) {
        mu__free(copy);
        return MU_RESOURCE_EXHAUSTED;
    }
    const mu_status status = add(layer, sublayer, "mu_layer_set_attribute");
    if (status != MU_OK)
        mu__free(layer->attributes.items[--layer->attributes.n].name);
    return status;
}

mu_layer *mu_layer_attribute(const mu_layer *layer, const char *name)
{
    if (mu__pending() || mu__need(layer, "mu_layer_attribute: the layer") != MU_OK ||
        mu__need(name, "mu_layer_attribute: the name") != MU_OK)
        return NULL;
    mu_layer *found = attribute_named(layer, name);
    char known[256] = "";
    for (size_t i = 0, used = 0; !found && i < layer->attributes.n && used < sizeof known; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", layer->attributes.items[i].name);
    if (!found)
        mu__error(MU_NOT_FOUND, "mu_layer_attribute: '%s' has no attribute '%.60s'; mu_layer_set_attribute has set %s",
                  mu_layer_name(layer), name, *known ? known : "none");
    return found;
}
