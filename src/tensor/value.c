// Values: nested lists and maps of tensors, for datasets, run and callbacks.
//
// A leaf holds a tensor or a variable (an object of a higher layer, known here by its reference count only); a
// container holds values. Flattening walks depth first, maps in order of insertion, so two values of the same
// structure have their leaves in the same order.
#include "tensor/tensor.h"

#include "base/type_name.h"

#include <stdarg.h>

static void destroy_value(void *object)
{
    mu_value *value = object;
    mu_release(value->leaf);
    mu_release(value->sources);
    for (int i = 0; i < value->n; i++) {
        mu_release(value->items ? value->items[i] : NULL);
        mu__free(value->keys ? value->keys[i] : NULL);
    }
    mu__free(value->items);
    mu__free(value->keys);
}

// Bytes that nothing else holds; a tensor that is also in a pool is counted there.
static size_t value_bytes(const void *object)
{
    const mu_value *value = object;
    size_t bytes = 0;
    if (mu__is(value->leaf, &mu__tensor_type) && atomic_load(&value->leaf->references) == 1)
        bytes += mu__tensor_type.bytes(value->leaf);
    for (int i = 0; i < value->n; i++)
        if (value->items != NULL && value->items[i] != NULL && atomic_load(&value->items[i]->object.references) == 1)
            bytes += value_bytes(value->items[i]);
    return bytes;
}

mu_type mu__value_type = {.name = "value", .destroy = destroy_value, .bytes = value_bytes};

mu_value *mu__value_leaf(mu_value_kind kind, void *object)
{
    mu_value *value = mu__new(&mu__value_type, sizeof *value);
    if (!value)
        return NULL;
    value->kind = kind;
    value->leaf = mu_retain(object);
    return value;
}

// The depth of a container around these elements. Per-replica and mirrored values add no level: they only wrap
// existing values.
static int depth_around(mu_value_kind kind, int n, mu_value *const *items)
{
    int deepest = 0;
    for (int i = 0; i < n; i++)
        deepest = MU_MAX(deepest, items[i] ? items[i]->depth : 0);
    return deepest + (kind == MU_VALUE_LIST || kind == MU_VALUE_MAP);
}

mu_value *mu__value_container(mu_value_kind kind, int n, mu_value *const *items, const char *const *keys)
{
    const int depth = depth_around(kind, n, items);
    if (depth > MU_MAX_NEST) {
        mu__error(MU_INVALID_ARGUMENT,
                  "a nest of %d lists and maps, one in the other; at most %d are allowed: put the tensors of a chain "
                  "side by side in one list",
                  depth, MU_MAX_NEST);
        return NULL;
    }
    mu_value *value = mu__new(&mu__value_type, sizeof *value);
    if (!value)
        return NULL;
    value->kind = kind;
    value->depth = depth;
    value->items = mu__calloc((size_t)n, sizeof value->items[0]);
    value->keys = keys ? mu__calloc((size_t)n, sizeof value->keys[0]) : NULL;
    if (!value->items || (keys && !value->keys))
        goto failed;
    value->n = n;
    for (int i = 0; i < n; i++) {
        value->items[i] = mu_retain(items[i]);
        if (keys && !(value->keys[i] = mu__strdup(keys[i])))
            goto failed;
    }
    return value;
failed:
    mu_release(value);
    return NULL;
}

mu_value *mu_of(mu_tensor *tensor)
{
    if (mu__pending())
        return NULL;
    if (!tensor) {
        mu__error(MU_INVALID_ARGUMENT, "mu_of: the tensor is NULL");
        return NULL;
    }
    return mu__give(mu__value_leaf(MU_VALUE_TENSOR, tensor));
}

// An element given by the caller, a tensor or a value, as a value of the innermost pool.
static mu_value *as_value(void *element, const char *function, int i)
{
    if (mu__pending())
        return NULL;
    if (element && mu__is(element, &mu__value_type))
        return element;
    if (element && mu__is(element, &mu__tensor_type))
        return mu_of(element);
    const char *name = mu__type_name(element);
    const bool variable = strcmp(name, "variable") == 0;
    mu__error(MU_INVALID_ARGUMENT, "%s: element %d is %s%s; expected a tensor or a value%s", function, i,
              element ? "a " : "", name,
              variable ? ". Give its tensor (mu_variable_read), or the variables as one value (mu_variables)"
                       : " (MU_END ends a list of arguments)");
    return NULL;
}

typedef struct element_list {
    struct {
        mu_value **items;
        size_t n, capacity;
    } values;
    struct {
        const char **items;
        size_t n, capacity;
    } keys;
} element_list;

static mu_value *container_of(element_list *list, mu_value_kind kind, mu_status status)
{
    mu_value *value = NULL;
    static const char *const no_key = "";
    if (status == MU_OK)
        value = mu__value_container(kind, (int)list->values.n, list->values.items,
                                    kind != MU_VALUE_MAP ? NULL
                                    : list->keys.n       ? list->keys.items
                                                         : &no_key);
    mu__free(list->values.items);
    mu__free(list->keys.items);
    return mu__give(value);
}

mu_value *mu_list(void *first, ...)
{
    if (mu__pending())
        return NULL;
    element_list list = {0};
    mu_status status = MU_OK;
    va_list rest;
    va_start(rest, first);
    for (void *element = first; element != MU_END && status == MU_OK; element = va_arg(rest, void *)) {
        mu_value *value = as_value(element, "mu_list", (int)list.values.n);
        status = value ? MU_PUSH(&list.values, value) : mu_error_code();
    }
    va_end(rest);
    return container_of(&list, MU_VALUE_LIST, status);
}

mu_value *mu_map(const char *first_key, ...)
{
    if (mu__pending())
        return NULL;
    element_list list = {0};
    mu_status status = MU_OK;
    va_list rest;
    va_start(rest, first_key);
    for (const char *key = first_key; key != MU_END && status == MU_OK; key = va_arg(rest, const char *)) {
        if (!key) {
            status = mu__error(MU_INVALID_ARGUMENT, "mu_map: key %zu is NULL; end the map with MU_END", list.keys.n);
            break;
        }
        mu_value *value = as_value(va_arg(rest, void *), "mu_map", (int)list.values.n);
        status = value ? MU_PUSH(&list.values, value) : mu_error_code();
        if (status == MU_OK)
            status = MU_PUSH(&list.keys, key);
    }
    va_end(rest);
    return container_of(&list, MU_VALUE_MAP, status);
}

// Makes a container of the elements in an array, which may hold tensors as well as values.
static mu_value *container_of_array(const char *function, mu_value_kind kind, int n, const char *const *keys,
                                    mu_value *const *items)
{
    element_list list = {0};
    mu_status status = MU_OK;
    if (n < 0)
        status = mu__error(MU_INVALID_ARGUMENT, "%s: n is %d; give the number of elements, 0 or more", function, n);
    else if (n > 0 && (!items || (kind == MU_VALUE_MAP && !keys)))
        status = mu__error(MU_INVALID_ARGUMENT, "%s: %s is NULL; give one for each of the %d elements", function,
                           items ? "keys" : "items", n);
    for (int i = 0; i < n && status == MU_OK; i++) {
        mu_value *value = as_value(items[i], function, i);
        status = value ? MU_PUSH(&list.values, value) : mu_error_code();
        if (status != MU_OK || kind != MU_VALUE_MAP)
            continue;
        status = keys[i] ? MU_PUSH(&list.keys, keys[i])
                         : mu__error(MU_INVALID_ARGUMENT, "%s: key %d is NULL; give each element a name", function, i);
    }
    return container_of(&list, kind, status);
}

mu_value *mu_list_of(int n, mu_value *const *items)
{
    return mu__pending() ? NULL : container_of_array("mu_list_of", MU_VALUE_LIST, n, NULL, items);
}

mu_value *mu_map_of(int n, const char *const *keys, mu_value *const *items)
{
    return mu__pending() ? NULL : container_of_array("mu_map_of", MU_VALUE_MAP, n, keys, items);
}

mu_value_kind mu_value_kind_of(const mu_value *value) { return value ? value->kind : MU_VALUE_TENSOR; }

int mu_value_count(const mu_value *value) { return !value ? 0 : value->leaf ? 1 : value->n; }

mu_value *mu_value_at(const mu_value *value, int i)
{
    if (mu__need(value, "mu_value_at: the value") != MU_OK)
        return NULL;
    if (value->leaf && i == 0)
        return (mu_value *)value;
    if (i >= 0 && i < value->n)
        return value->items[i];
    mu__error(MU_OUT_OF_RANGE, "mu_value_at: element %d of a value that has %d", i, mu_value_count(value));
    return NULL;
}

mu_value *mu_value_get(const mu_value *map, const char *key)
{
    if (mu__need(map, "mu_value_get: the map") != MU_OK || mu__need(key, "mu_value_get: the key") != MU_OK)
        return NULL;
    if (map->kind != MU_VALUE_MAP) {
        mu__error(MU_INVALID_ARGUMENT, "mu_value_get: the value is not a map, so it has no key \"%s\"", key);
        return NULL;
    }
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->keys[i], key) == 0)
            return map->items[i];
    mu__error(MU_NOT_FOUND, "mu_value_get: the map has no key \"%s\"; its first of %d is \"%s\"", key, map->n,
              map->n ? map->keys[0] : "");
    return NULL;
}

const char *mu_value_key(const mu_value *map, int i)
{
    return map && map->keys && i >= 0 && i < map->n ? map->keys[i] : NULL;
}

// The component of a distributed value that the calling thread sees: on an eager replica its own; outside, the first
// component of a mirrored value, since all are equal. A trace represents all replicas, so it has no component of its
// own.
static const mu_value *own_component(const mu_value *value)
{
    const mu_context *context = mu__context();
    const bool own = context->component > 0 && context->component < value->n && !context->trace;
    if (value->n == 0 || (value->kind != MU_VALUE_MIRRORED && value->kind != MU_VALUE_PER_REPLICA))
        return NULL;
    if (value->kind == MU_VALUE_PER_REPLICA &&
        (!context->replica || context->trace || value->n != context->n_components))
        return NULL;
    return value->items[own ? context->component : 0];
}

// A replica can find its own component only in a value with one component per replica.
static mu_status need_own_component(const mu_value *value)
{
    const mu_context *context = mu__context();
    if (value->kind != MU_VALUE_PER_REPLICA || !context->replica || context->trace || value->n == context->n_components)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_value_tensor: a per-replica value has %d components, but the function runs on %d replica%s in "
                     "this process; give a value that was made for this strategy, with one component for each replica",
                     value->n, context->n_components, context->n_components == 1 ? "" : "s");
}

mu_tensor *mu_value_tensor(const mu_value *value)
{
    const mu_value *at = value;
    while (at && !at->leaf)
        at = at->n == 1 ? at->items[0] : own_component(value = at);
    if (at && mu__is(at->leaf, &mu__tensor_type))
        return (mu_tensor *)at->leaf;
    if (mu__need(value, "mu_value_tensor: the value") != MU_OK || need_own_component(value) != MU_OK)
        return NULL;
    mu__error(MU_INVALID_ARGUMENT, "mu_value_tensor: the value is %s, not a single tensor",
              at && mu__value_is_remote(at) ? "on workers (mu_fetch gives the result of a call)"
              : at                          ? "a variable (mu_value_variable gives it, mu_variable_read its tensor)"
              : value->kind == MU_VALUE_PER_REPLICA
                  ? "per replica and used outside of eager functions that run on replicas (pass it to mu_run as an "
                    "argument, choose one of mu_local_results, or reduce it)"
                  : "a container of several or none");
    return NULL;
}

mu_tensor *mu_at(const mu_value *value, int i) { return mu_value_tensor(mu_value_at(value, i)); }

int mu__value_flatten(const mu_value *value, mu_object **leaves, int capacity)
{
    if (!value)
        return 0;
    if (value->leaf) {
        if (capacity > 0)
            leaves[0] = value->leaf;
        return 1;
    }
    int n = 0;
    for (int i = 0; i < value->n; i++)
        n += mu__value_flatten(value->items[i], leaves ? leaves + MU_MIN(n, capacity) : NULL, MU_MAX(capacity - n, 0));
    return n;
}

static mu_value *pack(const mu_value *like, mu_object *const **next)
{
    if (like->leaf) {
        mu_object *leaf = *(*next)++;
        return mu__value_leaf(mu__is(leaf, &mu__tensor_type) ? MU_VALUE_TENSOR : MU_VALUE_VARIABLE, leaf);
    }
    mu_value **items = mu__calloc((size_t)like->n, sizeof items[0]);
    mu_value *value = NULL;
    int made = 0;
    while (items && made < like->n && (items[made] = pack(like->items[made], next)))
        made++;
    if (items && made == like->n)
        value = mu__value_container(like->kind, like->n, items, (const char *const *)like->keys);
    for (int i = 0; i < made; i++)
        mu_release(items[i]);
    mu__free(items);
    return value;
}

mu_value *mu__value_pack(const mu_value *like, mu_object *const *leaves, int n)
{
    assert(mu__value_flatten(like, NULL, 0) == n);
    (void)n;
    return pack(like, &leaves);
}

bool mu__value_same_structure(const mu_value *a, const mu_value *b)
{
    if (!a || !b)
        return a == b;
    if (a->leaf || b->leaf)
        return a->leaf && b->leaf;
    if (a->kind != b->kind || a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++) {
        if (a->keys && strcmp(a->keys[i], b->keys[i]) != 0)
            return false;
        if (!mu__value_same_structure(a->items[i], b->items[i]))
            return false;
    }
    return true;
}
