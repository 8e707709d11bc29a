// The masks in Keras's configurations of functional models.
//
// A layer that makes a mask leaves operations behind: not_equal(input, value), and what combines masks on their way.
// Layers get the result as the argument "mask". Here layers pass masks on by themselves, so these operations are left
// out; but only if they are what Keras computes for a layer of the model, not a mask of the program's own.
#include "model/layers/operation.h"
#include "model/models/functional.h"

enum { MOST_STEPS = 10000, MOST_DEPTH = 200 };  // of the search for one argument

static const char *class_of(const json_t *json) { return json_string_value(json_object_get(json, "class_name")); }

static bool is_one_of(const char *class_name, const char *const *classes)
{
    for (int i = 0; class_name && classes[i]; i++)
        if (strcmp(classes[i], class_name) == 0)
            return true;
    return false;
}

// Operations that combine masks; those that make one of another tensor's shape.
static const char *const combining[] = {"Any", "All", "LogicalOr", "LogicalAnd", "ExpandDims", "Concatenate", "Squeeze",
                                        "Reshape", "Tile", "Repeat", "BroadcastTo", "Cast", NULL};
static const char *const shaping[] = {"ZerosLike", "OnesLike", NULL};

static bool is_unequal(const json_t *operation)
{
    const char *class_name = class_of(operation);
    return class_name && strcmp(class_name, "NotEqual") == 0;
}

// Whether an operation is of a class that masks are computed with.
static bool may_mask(const json_t *operation)
{
    return mu__is_operation_json(operation) &&
           (is_unequal(operation) || is_one_of(class_of(operation), combining) ||
            is_one_of(class_of(operation), shaping));
}

static const json_t *operation_named(const json_t *layers, const char *name)
{
    for (size_t i = 0; name && i < json_array_size(layers); i++) {
        const json_t *operation = json_array_get(layers, i);
        const char *other = json_string_value(json_object_get(operation, "name"));
        if (other && strcmp(other, name) == 0)
            return operation;
    }
    return NULL;
}

static const json_t *history_of(const json_t *tensor)
{
    return json_object_get(json_object_get(tensor, "config"), "keras_history");
}

static const json_t *first_argument(const json_t *call) { return json_array_get(json_object_get(call, "args"), 0); }

// Whether a layer of the model makes a mask of a tensor by comparing it with this value.
static bool some_layer_masks(const json_t *layers, const json_t *history, double value)
{
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i), *config = json_object_get(layer, "config");
        const char *class_name = class_of(layer);
        const bool embeds = class_name && strcmp(class_name, "Embedding") == 0 && value == 0 &&
                            json_is_true(json_object_get(config, "mask_zero"));
        const bool masks = class_name && strcmp(class_name, "Masking") == 0 &&
                           json_number_value(json_object_get(config, "mask_value")) == value;
        const json_t *calls = json_object_get(layer, "inbound_nodes");
        for (size_t c = 0; (embeds || masks) && c < json_array_size(calls); c++)
            if (json_equal(history_of(first_argument(json_array_get(calls, c))), history))
                return true;
    }
    return false;
}

static bool is_mask(const json_t *layers, const json_t *value, int depth, int *steps);

// Whether all tensors in the arguments of an operation are masks.
static bool are_masks(const json_t *layers, const json_t *arguments, int depth, int *steps)
{
    for (size_t i = 0; i < json_array_size(arguments); i++) {
        const json_t *argument = json_array_get(arguments, i);
        if (json_is_array(argument) ? !are_masks(layers, argument, depth + 1, steps)
                                    : json_is_object(argument) && !is_mask(layers, argument, depth + 1, steps))
            return false;
    }
    return true;
}

// Whether an operation of such a class computes a mask.
static bool makes_mask(const json_t *layers, const json_t *operation, int depth, int *steps)
{
    const json_t *call = json_array_get(json_object_get(operation, "inbound_nodes"), 0);
    const json_t *arguments = json_object_get(call, "args"), *number = json_array_get(arguments, 1);
    if (is_unequal(operation))
        return json_is_number(number) &&
               some_layer_masks(layers, history_of(first_argument(call)), json_number_value(number));
    return is_one_of(class_of(operation), shaping) || are_masks(layers, arguments, depth, steps);
}

static bool is_mask(const json_t *layers, const json_t *value, int depth, int *steps)
{
    if (depth > MOST_DEPTH || --*steps < 0)
        return false;
    const json_t *operation = operation_named(layers, json_string_value(json_array_get(history_of(value), 0)));
    return operation && may_mask(operation) && makes_mask(layers, operation, depth, steps);
}

// One that makes a mask of another tensor's shape may as well be the program's; a model that does not use it takes no
// notice of it.
bool mu__is_mask_operation(const json_t *layers, const json_t *operation, int *steps)
{
    return may_mask(operation) && !is_one_of(class_of(operation), shaping) && --*steps >= 0 &&
           makes_mask(layers, operation, 0, steps);
}

bool mu__computes_mask(const json_t *layers, const char *argument, const json_t *value)
{
    const size_t length = strlen(argument);
    int steps = MOST_STEPS;
    if (length < 4 || strcmp(argument + length - 4, "mask") != 0)
        return false;
    return json_is_array(value) ? are_masks(layers, value, 0, &steps) : is_mask(layers, value, 0, &steps);
}
