// The names of a model's variables in Keras's files and in TensorFlow's checkpoints.
//
// Keras walks the attributes of the model's objects: layers are stored in "layers" under their class's name with a
// number, inner layers under the attribute that holds them, and variables under "vars" with theirs (keras.src.saving).
// TensorFlow's object graph has the same attributes, numbers the operations, and names each variable.
#include "model/files/keras_names.h"

#include "model/models/functional.h"
#include "model/layers/token_lookup.h"
#include "model/layers/recurrent.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"

static void free_item(mu_named_variable *item)
{
    mu_release(item->constant);
    mu__free(item->keras);
    mu__free(item->object);
}

void mu__keras_names_free(mu_named_variables *list)
{
    for (size_t i = 0; i < list->n; i++)
        free_item(&list->items[i]);
    mu__free(list->items);
    *list = (mu_named_variables){0};
}

const char *mu__named_as(const mu_named_variable *variable, mu_file_names names)
{
    return names == MU_NAMES_KERAS     ? variable->keras
           : names == MU_NAMES_OBJECTS ? variable->object
                                       : mu_variable_name(variable->variable);
}

// ---- Weights ------------------------------------------------------------------------------------

// Takes over the names, also on failure.
static mu_status add(mu_named_variables *out, mu_variable *variable, char *keras, char *object, bool of_optimizer)
{
    const mu_named_variable named = {
        .variable = variable, .keras = keras, .object = object, .of_optimizer = of_optimizer};
    const mu_status status = keras && object ? MU_PUSH(out, named) : MU_RESOURCE_EXHAUSTED;
    if (status != MU_OK) {
        mu__free(keras);
        mu__free(object);
    }
    return status;
}

// A name below another; the outermost model's is empty.
static char *joined(const char *around, const char *name)
{
    return mu__sprintf("%s%s%s", around, *around ? "/" : "", name);
}

static bool is_listed(const mu_named_variables *out, const mu_variable *variable)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->items[i].variable == variable && !out->items[i].again)
            return true;
    return false;
}

// Weights such as "query/kernel" are those of a layer of Keras, which is an attribute of the layer here.
static const char *attribute_of(const char *name, size_t length)
{
    static const struct {
        const char *name, *attribute;
    } known[] = {{"query", "query_dense"},
                 {"key", "key_dense"},
                 {"value", "value_dense"},
                 {"gate", "gate_dense"},
                 {"attention_output", "output_dense"}};
    for (size_t i = 0; i < MU_COUNT(known); i++)
        if (strlen(known[i].name) == length && strncmp(known[i].name, name, length) == 0)
            return known[i].attribute;
    return NULL;
}

// The length of the part of a weight's name that is such a layer; 0: it has none.
static size_t inner_length(const mu_weight *weight)
{
    const char *slash = strchr(weight->name, '/');
    return slash ? (size_t)(slash - weight->name) : 0;
}

static bool same_inner(const mu_weight *a, const mu_weight *b)
{
    const size_t length = inner_length(a);
    return length == inner_length(b) && strncmp(a->name, b->name, length) == 0;
}

// The number of a weight among those of its layer of Keras: the trained ones come first.
static int number_of(const mu_layer *layer, const mu_weight *weight)
{
    const bool trained = mu_variable_is_trainable(weight->variable);
    int number = 0;
    for (size_t i = 0; i < layer->weights.n; i++) {
        const mu_weight *other = &layer->weights.items[i];
        const bool before = mu_variable_is_trainable(other->variable) == trained
                                ? other < weight
                                : mu_variable_is_trainable(other->variable);
        number += !other->uncounted && same_inner(other, weight) && before;
    }
    return number;
}

// The attribute of Keras's object that is a weight: its name, except where a name has been given to another value.
static const char *variable_attribute(const mu_layer *layer, const char *name)
{
    if (layer->ops != &mu__normalization_ops || strcmp(name, "count") == 0)
        return name;
    return strcmp(name, "mean") == 0 ? "adapt_mean" : "adapt_variance";
}

static mu_status add_weight(const mu_layer *layer, const mu_weight *weight, const char *keras, const char *object,
                            mu_named_variables *out)
{
    const size_t length = inner_length(weight);
    const char *inner = length ? attribute_of(weight->name, length) : NULL;
    const char *last = variable_attribute(layer, length ? weight->name + length + 1 : weight->name);
    const char *slash = inner ? "/" : "";
    // Keras's grouped-query attention, unlike its multi-head attention, has these layers as private attributes only.
    const char *private = inner && layer->ops == &mu__grouped_query_attention_ops ? "_" : "";
    inner = inner ? inner : "";
    char *vars = mu__sprintf("%s%s%svars/%d", private, inner, slash, number_of(layer, weight));
    char *attribute = mu__sprintf("%s%s%s%s", private, inner, slash, last);
    const mu_status status = vars && attribute
                                 ? add(out, weight->variable, joined(keras, vars), joined(object, attribute), false)
                                 : MU_RESOURCE_EXHAUSTED;
    mu__free(vars);
    mu__free(attribute);
    return status;
}

static mu_status add_idf_as(const mu_layer *layer, mu_tensor *weights, char *keras, char *object,
                            mu_named_variables *out)
{
    MU_TRY(add(out, NULL, keras, object, false));
    out->items[out->n - 1].constant = mu_retain(weights);
    out->items[out->n - 1].look_up = (mu_layer *)(uintptr_t)layer;
    return MU_OK;
}

// Keras's text vectorisation has a look-up inside, which is saved too, in checkpoints alone.
static mu_status add_idf(const mu_layer *layer, const char *keras, const char *object, mu_named_variables *out)
{
    static const char inner[] = "_lookup_layer";
    const bool text = layer->ops == &mu__text_vectorization_ops;
    mu_tensor *weights = NULL;
    MU_TRY(mu__lookup_weights(layer, &weights));
    if (!weights)
        return MU_OK;
    MU_TRY(add_idf_as(layer, weights, mu__sprintf("%s/vars/idf_weights", keras),
                      text ? mu__strdup("") : mu__sprintf("%s/idf_weights", object), out));
    return text ? add_idf_as(layer, weights, mu__sprintf("%s/%s/vars/idf_weights", keras, inner),
                             mu__sprintf("%s/%s/idf_weights", object, inner), out)
                : MU_OK;
}

static mu_status add_constant(mu_tensor *value, const char *object, const char *name, const char *end,
                              mu_named_variables *out)
{
    MU_TRY(value ? add(out, NULL, mu__strdup(""), joined(object, name), false) : mu_error_code());
    out->items[out->n - 1].constant = mu_retain(value);
    out->items[out->n - 1].end = end;
    return MU_OK;
}

// A hash table from tokens to numbers, without any.
static mu_status add_table(const mu_lookup *l, const char *object, const char *name, mu_named_variables *out)
{
    const int64_t none = 0;
    mu_tensor *numbers = mu_tensor_new(MU_I64, 1, &none, NULL);
    mu_tensor *keys = l->integers ? numbers : mu_tensor_strings(1, &none, (const char *const[]){""});
    MU_TRY(add_constant(keys, object, name, MU_BUNDLE_TABLE "-keys", out));
    return add_constant(numbers, object, name, MU_BUNDLE_TABLE "-values", out);
}

// What Keras's checkpoints have besides of a look-up that was adapted, and a program that restores all objects expects:
// the counts of tokens and the number of documents, which adapt leaves at none.
static mu_status add_counts(const mu_layer *layer, const char *object, mu_named_variables *out)
{
    const bool text = layer->ops == &mu__text_vectorization_ops;
    const mu_lookup *l = mu__lookup_adapted(layer);
    if (!l)
        return MU_OK;
    char *inner = mu__sprintf("%s%s", object, text ? "/_lookup_layer" : "");
    mu_status status = inner ? add_table(l, inner, "token_counts", out) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && l->idf)
        status = add_table(l, inner, "token_document_counts", out);
    if (status == MU_OK && l->idf)
        status = add_constant(mu_constant(MU_I64, 0), inner, "num_documents", NULL, out);
    mu__free(inner);
    return status;
}

static mu_status walk(const mu_layer *layer, const char *keras, const char *object, mu_named_variables *out);

// Walks a sublayer under the two names, which it takes over.
static mu_status walk_under(const mu_layer *layer, char *keras, char *object, mu_named_variables *out)
{
    const mu_status status = keras && object ? walk(layer, keras, object, out) : MU_RESOURCE_EXHAUSTED;
    mu__free(keras);
    mu__free(object);
    return status;
}

// ---- Layers in lists ----------------------------------------------------------------------------

// The number of earlier layers of the same class in a list, which Keras appends to the class's name.
static int same_class_before(mu_layer *const *layers, size_t i)
{
    int n = 0;
    for (size_t k = 0; k < i; k++)
        n += layers[k] && strcmp(mu__layer_class(layers[k]), mu__layer_class(layers[i])) == 0;
    return n;
}

static char *listed_name(const char *around, const char *list, mu_layer *const *layers, size_t i)
{
    const char *slash = *around ? "/" : "", *class_name = mu__layer_class(layers[i]);
    const int before = same_class_before(layers, i);
    return before ? mu__sprintf("%s%s%s/%s_%d", around, slash, list, class_name, before)
                  : mu__sprintf("%s%s%s/%s", around, slash, list, class_name);
}

// Walks the layers of a list, in which an operation that is not a layer is NULL.
static mu_status walk_list(mu_layer *const *layers, size_t n, const char *list, const char *keras, const char *object,
                           mu_named_variables *out)
{
    const char *slash = *object ? "/" : "";
    for (size_t i = 0; i < n; i++)
        if (layers[i])
            MU_TRY(walk_under(
                layers[i], listed_name(keras, list, layers, i),
                mu__sprintf("%s%s%s/%d", object, slash, strcmp(list, "layers") == 0 ? "_operations" : list, (int)i),
                out));
    return MU_OK;
}

// Walks the layers of a functional or sequential model.
static mu_status walk_model(const mu_layer *model, const char *keras, const char *object, mu_named_variables *out)
{
    mu_operation_list operations = {0};
    bool unknown;
    MU_TRY(mu__model_operations(model, &operations, &unknown));
    const size_t n = operations.n > 0 ? (size_t)operations.items[operations.n - 1].number + 1 : 0;
    mu_layer **layers = mu__calloc(n + 1, sizeof *layers);
    for (size_t i = 0; layers && i < operations.n; i++)
        layers[operations.items[i].number] = operations.items[i].layer;
    const mu_status status = layers ? walk_list(layers, n, "layers", keras, object, out) : MU_RESOURCE_EXHAUSTED;
    mu__free(layers);
    mu__free(operations.items);
    return status;
}

// Keras keeps a sequential model's layers in a functional model behind it.
static mu_status walk_sequential(const mu_layer *model, const char *keras, const char *object, mu_named_variables *out)
{
    char *inside = joined(object, "_functional");
    const mu_status status = inside ? walk_model(model, keras, inside, out) : MU_RESOURCE_EXHAUSTED;
    mu__free(inside);
    return status;
}

mu_status mu__numbers_operations(const mu_layer *layer, bool *out)
{
    mu_operation_list operations = {0};
    bool unknown = false;
    if (mu__layer_only_calls(layer))
        MU_TRY(mu__model_operations(layer, &operations, &unknown));
    mu__free(operations.items);
    *out = !unknown;
    for (size_t i = 0; *out && i < layer->sublayers.n; i++)
        MU_TRY(mu__numbers_operations(layer->sublayers.items[i], out));
    return MU_OK;
}

// ---- Layers in attributes -----------------------------------------------------------------------

// The attribute of Keras's class that holds sublayer i; a layer of a program's own that names none holds it under the
// sublayer's name.
static const char *sublayer_attribute(const mu_layer *layer, size_t i)
{
    static const char *const directions[] = {"forward_layer", "backward_layer"};
    if (layer->ops == &mu__bidirectional_ops)
        return directions[i];
    if (mu__recurrent_of(layer))
        return "cell";
    if (layer->sublayers.n == 1 && !mu__layer_is_own(layer))
        return "layer";
    const char *attribute = mu__layer_attribute_of(layer, layer->sublayers.items[i]);
    return attribute ? attribute : mu_layer_name(layer->sublayers.items[i]);
}

// Keras visits the attributes of a model in the order of their names, those that begin with "_" last, and among them
// "layers", a list of all layers of the model: what comes behind it has been found there, under its class.
static char *sublayer_name(const mu_layer *layer, const char *keras, const char *attribute, size_t i)
{
    const bool own_model = mu__layer_is_own(layer) && layer->trainer;
    const bool named = mu__layer_attribute_of(layer, layer->sublayers.items[i]) != NULL;
    return own_model && (!named || attribute[0] == '_' || strcmp(attribute, "layers") > 0)
               ? listed_name(keras, "layers", layer->sublayers.items, i)
               : joined(keras, attribute);
}

static mu_status walk(const mu_layer *layer, const char *keras, const char *object, mu_named_variables *out)
{
    for (size_t i = 0; i < layer->weights.n; i++) {
        const mu_weight *weight = &layer->weights.items[i];
        if (weight->uncounted || (!weight->shared && is_listed(out, weight->variable)))
            continue;
        MU_TRY(add_weight(layer, weight, keras, object, out));
        out->items[out->n - 1].again = weight->shared;
    }
    if (layer->ops->host_spec)
        return add_idf(layer, keras, object, out) == MU_OK ? add_counts(layer, object, out) : mu_error_code();
    if (layer->ops == &mu__functional_ops)
        return walk_model(layer, keras, object, out);
    if (layer->ops == &mu__sequential_ops)
        return walk_sequential(layer, keras, object, out);
    if (layer->ops == &mu__stacked_rnn_cells_ops)
        return walk_list(layer->sublayers.items, layer->sublayers.n, "cells", keras, object, out);
    for (size_t i = 0; i < layer->sublayers.n; i++) {
        const char *attribute = sublayer_attribute(layer, i);
        MU_TRY(walk_under(layer->sublayers.items[i], sublayer_name(layer, keras, attribute, i),
                          joined(object, attribute), out));
    }
    return MU_OK;
}

// ---- The optimizer ------------------------------------------------------------------------------

// Where the state of an optimizer is, and the number of its next variable.
typedef struct state_place {
    const char *around; // "optimizer", or that of the optimizer inside
    int next;
    bool again;  // under another name too
    bool inside; // it is the state of an optimizer inside of another
} state_place;

static mu_status add_state(mu_named_variables *out, mu_variable *variable, state_place *place)
{
    if (!variable)
        return MU_OK;
    const int n = place->next++;
    MU_TRY(add(out, variable, mu__sprintf("%s/vars/%d", place->around, n),
               mu__sprintf("%s/_variables/%d", place->around, n), true));
    out->items[out->n - 1].again = place->again;
    return MU_OK;
}

static mu_status add_constant_state(mu_named_variables *out, mu_tensor *value, state_place *place)
{
    const int n = place->next++;
    MU_TRY(value ? add(out, NULL, mu__sprintf("%s/vars/%d", place->around, n),
                       mu__sprintf("%s/_variables/%d", place->around, n), false)
                 : mu_error_code());
    out->items[out->n - 1].constant = mu_retain(value);
    return MU_OK;
}

// How many slots, from this one on, Keras makes for one variable before it takes the next variable.
static int slots_together(const mu_optimizer *optimizer, int slot)
{
    const int own = optimizer->n_slots - (optimizer->average >= 0) - (optimizer->accumulator >= 0);
    return slot == 0 ? MU_MAX(MU_MIN(optimizer->ops->slots_together, own), 1) : 1;
}

static bool holds(const mu_variable_list *list, const mu_variable *variable)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i] == variable)
            return true;
    return false;
}

static mu_status add_slots(mu_named_variables *out, mu_optimizer *optimizer, const mu_variable_list *trained, int slot,
                           int together, state_place *place)
{
    const size_t n_weights = out->n;
    for (size_t i = 0; i < n_weights; i++) {
        mu_variable *variable = out->items[i].variable;
        if (out->items[i].of_optimizer || out->items[i].again || !holds(trained, variable))
            continue;
        mu_variable *const *slots = mu__optimizer_slots(optimizer, variable);
        if (!slots)
            return mu_error_code();
        for (int s = slot; s < slot + together; s++)
            if (!mu__optimizer_lacks(optimizer, variable, s))
                MU_TRY(add_state(out, slots[s], place));
    }
    return MU_OK;
}

// A number that a class keeps, such as Nadam's product of momenta. Keras does not count it among the variables of an
// optimizer inside of another, where it is an attribute: checkpoints have it, Keras's own formats lack it.
static mu_status add_scalar(mu_named_variables *out, const mu_optimizer *optimizer, int i, mu_file_names names,
                            state_place *place)
{
    if (!place->inside)
        return add_state(out, optimizer->scalars[i], place);
    return names == MU_NAMES_KERAS ? MU_OK
                                   : add(out, optimizer->scalars[i], mu__strdup(""),
                                         mu__sprintf("%s/_%s", place->around, optimizer->scalar_kinds[i].name), true);
}

// In the order in which Keras makes them: averages and accumulators, then what the class has, its scalars last.
static mu_status add_own_state(mu_named_variables *out, mu_optimizer *optimizer, const mu_variable_list *trained,
                               mu_file_names names, state_place *place)
{
    MU_TRY(add_state(out, optimizer->iterations, place));
    MU_TRY(add_state(out, optimizer->learning_rate, place));
    if (optimizer->average >= 0)
        MU_TRY(add_slots(out, optimizer, trained, optimizer->average, 1, place));
    if (optimizer->accumulator >= 0)
        MU_TRY(add_slots(out, optimizer, trained, optimizer->accumulator, 1, place));
    const int own = optimizer->n_slots - (optimizer->average >= 0) - (optimizer->accumulator >= 0);
    for (int slot = 0, together; slot < own; slot += together) {
        together = slots_together(optimizer, slot);
        MU_TRY(add_slots(out, optimizer, trained, slot, together, place));
    }
    for (int i = 0; i < optimizer->n_scalars; i++)
        MU_TRY(add_scalar(out, optimizer, i, names, place));
    return MU_OK;
}

// In Keras a loss scale optimizer has an iteration and a learning rate that stay 0, and its scalars; Keras's own
// formats then have the state of the optimizer inside twice.
static mu_status add_optimizer(mu_named_variables *out, mu_optimizer *optimizer, const mu_variable_list *trained,
                               mu_file_names names)
{
    state_place place = {.around = "optimizer"};
    MU_TRY(mu__optimizer_need(optimizer));
    if (!optimizer->inner)
        return add_own_state(out, optimizer, trained, names, &place);
    MU_TRY(add_constant_state(out, mu_constant(MU_I64, 0), &place));
    MU_TRY(add_constant_state(out, mu_constant(mu__floatx(), 0), &place));
    for (int i = 0; i < optimizer->n_scalars; i++)
        MU_TRY(add_state(out, optimizer->scalars[i], &place));
    place.again = place.inside = true;
    if (names == MU_NAMES_KERAS)
        MU_TRY(add_own_state(out, optimizer->inner, trained, names, &place));
    place = (state_place){.around = "optimizer/inner_optimizer", .inside = true};
    return add_own_state(out, optimizer->inner, trained, names, &place);
}

// Only Keras's own formats have a weight twice; Muster's have no idf weights, and checkpoints alone have tables.
static bool is_in(const mu_named_variable *named, mu_file_names names)
{
    if (named->constant && !named->look_up)
        return names == MU_NAMES_OBJECTS;
    return names == MU_NAMES_KERAS ||
           (!named->again && (!named->constant || (names == MU_NAMES_OBJECTS && *named->object)));
}

static void drop_others(mu_named_variables *list, mu_file_names names)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++)
        if (is_in(&list->items[i], names))
            list->items[kept++] = list->items[i];
        else
            free_item(&list->items[i]);
    list->n = kept;
}

mu_status mu__keras_names(mu_model *model, mu_file_names names, mu_named_variables *out)
{
    mu_optimizer *optimizer = names != MU_NAMES_OWN ? model->trainer->optimizer : NULL;
    MU_TRY(walk(model, "", "", out));
    drop_others(out, names);
    if (!optimizer)
        return MU_OK;
    mu_variable_list trained = {0};
    mu_scope_change change;
    mu_scope_guard scope = mu__scope_open_apart(&change, model->strategy);
    mu_status status = mu__pending() ? mu_error_code() : mu__layer_collect(model, MU_WEIGHTS_TRAINABLE, &trained);
    if (status == MU_OK)
        status = add_optimizer(out, optimizer, &trained, names);
    mu__scope_close_apart(&change, &scope);
    mu__free(trained.items);
    return status;
}
