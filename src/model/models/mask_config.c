// The masks in Keras's configurations of functional models.
//
// A layer that makes a mask leaves operations behind: not_equal(input, value), and what combines masks on their way.
// Layers get the result as the argument "mask". Here layers pass masks on by themselves, so these operations are left
// out; but only if they are what Keras computes for a layer of the model, not a mask of the program's own. A mask that
// a call is given is Keras's if the tensor it is for carries it: if a layer that makes such a mask is found on the way
// back from that tensor over layers that pass masks on. Operations of keras.ops drop masks.
#include "model/layers/operation.h"
#include "model/models/functional.h"

enum { MOST_DEPTH = 200, MOST_STEPS = 1 << 24 };

static const char *class_of(const json_t *json) { return json_string_value(json_object_get(json, "class_name")); }

static bool is_one_of(const char *class_name, const char *const *classes)
{
    for (int i = 0; class_name && classes[i]; i++)
        if (strcmp(classes[i], class_name) == 0)
            return true;
    return false;
}

// Operations that combine masks; those that make one of another tensor's shape.
static const char *const combining[] = {"Any",         "All",     "LogicalOr",       "LogicalAnd", "ExpandDims",
                                        "Concatenate", "Squeeze", "Reshape",         "Tile",       "Repeat",
                                        "BroadcastTo", "Cast",    "ConvertToTensor", NULL};
static const char *const shaping[] = {"ZerosLike", "OnesLike", NULL};

static bool is_unequal(const json_t *operation)
{
    const char *class_name = class_of(operation);
    return class_name && strcmp(class_name, "NotEqual") == 0;
}

// Whether an operation is of a class that masks are computed with.
static bool may_mask(const json_t *operation)
{
    return mu__is_operation_json(operation) && (is_unequal(operation) || is_one_of(class_of(operation), combining) ||
                                                is_one_of(class_of(operation), shaping));
}

static const json_t *history_of(const json_t *tensor)
{
    return json_object_get(json_object_get(tensor, "config"), "keras_history");
}

static const json_t *first_argument(const json_t *call) { return json_array_get(json_object_get(call, "args"), 0); }

static const json_t *entry_named(const mu_mask_search *s, const char *name)
{
    const json_t *index = name ? json_object_get(s->indices, name) : NULL;
    return index ? json_array_get(s->layers, (size_t)json_integer_value(index)) : NULL;
}

// Whether a layer makes a mask, by comparing its input with *value.
static bool is_source(const json_t *layer, double *value)
{
    const char *class_name = class_of(layer);
    const json_t *config = json_object_get(layer, "config");
    const bool embeds =
        class_name && strcmp(class_name, "Embedding") == 0 && json_is_true(json_object_get(config, "mask_zero"));
    *value = embeds ? 0 : json_number_value(json_object_get(config, "mask_value"));
    return embeds || (class_name && strcmp(class_name, "Masking") == 0);
}

// Whether one of the layers that make masks makes one of a tensor by comparing it with this value.
static bool some_layer_masks(mu_mask_search *s, const json_t *sources, const json_t *history, double value)
{
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const json_t *layer = json_array_get(sources, i), *calls = json_object_get(layer, "inbound_nodes");
        double masked;
        if (!is_source(layer, &masked) || masked != value)
            continue;
        for (size_t c = 0; c < json_array_size(calls) && --s->steps >= 0; c++)
            if (json_equal(history_of(first_argument(json_array_get(calls, c))), history))
                return true;
    }
    return false;
}

// Whether a tensor is a mask that Keras computes for one of the layers `sources`.
static bool is_mask(mu_mask_search *s, const json_t *sources, const json_t *value, int depth);

// Whether all tensors in the arguments of an operation are masks.
static bool are_masks(mu_mask_search *s, const json_t *sources, const json_t *arguments, int depth)
{
    for (size_t i = 0; i < json_array_size(arguments); i++) {
        const json_t *argument = json_array_get(arguments, i);
        if (json_is_array(argument) ? !are_masks(s, sources, argument, depth + 1)
                                    : json_is_object(argument) && !is_mask(s, sources, argument, depth + 1))
            return false;
    }
    return true;
}

// Whether an operation of such a class computes a mask.
static bool makes_mask(mu_mask_search *s, const json_t *sources, const json_t *operation, int depth)
{
    const json_t *call = json_array_get(json_object_get(operation, "inbound_nodes"), 0);
    const json_t *arguments = json_object_get(call, "args"), *number = json_array_get(arguments, 1);
    if (is_unequal(operation))
        return json_is_number(number) &&
               some_layer_masks(s, sources, history_of(first_argument(call)), json_number_value(number));
    return is_one_of(class_of(operation), shaping) || are_masks(s, sources, arguments, depth);
}

static bool is_mask(mu_mask_search *s, const json_t *sources, const json_t *value, int depth)
{
    if (depth > MOST_DEPTH || --s->steps < 0)
        return false;
    const json_t *operation = entry_named(s, json_string_value(json_array_get(history_of(value), 0)));
    return operation && may_mask(operation) && makes_mask(s, sources, operation, depth);
}

// One that makes a mask of another tensor's shape may as well be the program's; a model that does not use it takes no
// notice of it.
bool mu__is_mask_operation(mu_mask_search *s, const json_t *operation)
{
    return may_mask(operation) && !is_one_of(class_of(operation), shaping) && --s->steps >= 0 &&
           makes_mask(s, s->sources, operation, 0);
}

// ---- The way back from a tensor -----------------------------------------------------------------

static mu_status no_memory(void)
{
    return mu__error(MU_RESOURCE_EXHAUSTED,
                     "no memory for the search for masks in the configuration of a functional model");
}

mu_status mu__mask_search_begin(mu_mask_search *s, const json_t *layers)
{
    *s = (mu_mask_search){.layers = layers,
                          .steps = MOST_STEPS,
                          .indices = json_object(),
                          .sources = json_array(),
                          .passing = json_object()};
    bool whole = s->indices && s->sources && s->passing;
    for (size_t i = 0; whole && i < json_array_size(layers); i++) {
        json_t *layer = json_array_get(layers, i);
        const char *name = json_string_value(json_object_get(layer, "name"));
        double value;
        if (name && !json_object_get(s->indices, name))
            whole = json_object_set_new(s->indices, name, json_integer((json_int_t)i)) == 0;
        if (whole && is_source(layer, &value))
            whole = json_array_append(s->sources, layer) == 0;
    }
    return whole ? MU_OK : no_memory();
}

void mu__mask_search_end(mu_mask_search *s)
{
    json_decref(s->indices);
    json_decref(s->sources);
    json_decref(s->passing);
}

mu_status mu__mask_search_passes(mu_mask_search *s, const char *name)
{
    return json_object_set_new(s->passing, name, json_true()) == 0 ? MU_OK : no_memory();
}

// Adds the arguments of the call that returned a tensor to the queue, unless the call has been seen.
static mu_status step_back(const mu_mask_search *s, const json_t *history, json_t *seen, json_t *queue)
{
    const char *name = json_string_value(json_array_get(history, 0)), *key;
    const json_int_t number = json_integer_value(json_array_get(history, 1));
    const json_t *calls = json_object_get(entry_named(s, name), "inbound_nodes");
    const json_t *call = number >= 0 ? json_array_get(calls, (size_t)number) : NULL;
    char *id = mu__sprintf("%lld %s", (long long)number, name);
    const bool again = id && json_object_get(seen, id);
    const bool marked = id && json_object_set_new(seen, id, json_true()) == 0;
    json_t *value;
    mu__free(id);
    if (!marked)
        return mu__pending() ? mu_error_code() : no_memory();
    if (again)
        return MU_OK;
    MU_TRY(mu__operation_tensors(json_object_get(call, "args"), queue));
    json_object_foreach(json_object_get(call, "kwargs"), key, value) MU_TRY(mu__operation_tensors(value, queue));
    return MU_OK;
}

// Adds the layers whose masks a tensor, or one of a list, may carry to `reached`.
static mu_status reach_sources(mu_mask_search *s, const json_t *operand, json_t *seen, json_t *queue, json_t *reached)
{
    MU_TRY(mu__operation_tensors(operand, queue));
    for (size_t i = 0; i < json_array_size(queue); i++) {
        const json_t *history = history_of(json_array_get(queue, i));
        const char *name = json_string_value(json_array_get(history, 0));
        const json_t *entry = entry_named(s, name);
        double value;
        if (--s->steps < 0)
            return mu__error(MU_RESOURCE_EXHAUSTED,
                             "the masks in the configuration of a functional model take a search of more than %d "
                             "steps; expected fewer layers that take masks",
                             (int)MOST_STEPS);
        if (entry && is_source(entry, &value)) {
            if (json_array_append(reached, (json_t *)(uintptr_t)entry) != 0)
                return no_memory();
        } else if (entry && json_object_get(s->passing, name))
            MU_TRY(step_back(s, history, seen, queue));
    }
    return MU_OK;
}

static mu_status is_carried(mu_mask_search *s, const json_t *operand, const json_t *value, bool *carried)
{
    if (!operand) {
        *carried = is_mask(s, s->sources, value, 0);
        return MU_OK;
    }
    json_t *reached = json_array(), *seen = json_object(), *queue = json_array();
    mu_status status = reached && seen && queue ? reach_sources(s, operand, seen, queue, reached) : no_memory();
    *carried = status == MU_OK && is_mask(s, reached, value, 0);
    json_decref(reached);
    json_decref(seen);
    json_decref(queue);
    return status;
}

mu_status mu__computes_mask(mu_mask_search *s, const json_t *operand, const json_t *value, bool *computed)
{
    *computed = json_is_array(value);
    if (json_is_object(value))
        return is_carried(s, operand, value, computed);
    for (size_t i = 0; *computed && i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_null(item))
            MU_TRY(mu__computes_mask(s, json_is_array(operand) ? json_array_get(operand, i) : operand, item, computed));
    }
    return MU_OK;
}
