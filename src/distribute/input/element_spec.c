// The structure of a dataset's elements as text, for workers that have no element to take it from.
//
// Lists and maps become JSON arrays and objects; a tensor is "float32[?,28,28]". The text comes from another worker of
// the job, but the reader validates it.
#include "distribute/distribute.h"

#include <jansson.h>
#include <stdlib.h>

enum { DEEPEST = 32 };

static json_t *leaf_to_json(const mu_tensor *tensor)
{
    char text[MU_SHAPE_TEXT], whole[MU_SHAPE_TEXT + 16];
    snprintf(whole, sizeof whole, "%s%s", mu_dtype_name(tensor->dtype), mu__shape_text(&tensor->shape, text));
    return json_string(whole);
}

static json_t *to_json(const mu_value *value)
{
    if (value->kind == MU_VALUE_TENSOR)
        return leaf_to_json((const mu_tensor *)value->leaf);
    json_t *json = value->kind == MU_VALUE_MAP ? json_object() : json_array();
    for (int i = 0; i < value->n; i++) {
        json_t *item = to_json(value->items[i]);
        if (value->kind == MU_VALUE_MAP)
            json_object_set_new(json, value->keys[i], item);
        else
            json_array_append_new(json, item);
    }
    return json;
}

char *mu__element_text(const mu_value *element)
{
    json_t *json = to_json(element);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    char *copy = mu__strdup(text ? text : "");
    free(text); // allocated by jansson
    json_decref(json);
    return copy;
}

// ---- Back ---------------------------------------------------------------------------------------

static bool leaf_spec(const char *text, mu_spec *spec)
{
    char name[16];
    const char *at = text ? strchr(text, '[') : NULL;
    if (!at || at - text >= (ptrdiff_t)sizeof name)
        return false;
    memcpy(name, text, (size_t)(at - text));
    name[at - text] = '\0';
    *spec = (mu_spec){.dtype = mu__dtype_from_name(name)};
    for (at++; *at && *at != ']'; at += strspn(at, ", ")) {
        char *end = (char *)at + 1;
        const long long dim = *at == '?' ? MU_UNKNOWN : strtoll(at, &end, 10);
        if (end == at || (dim < 0 && *at != '?') || spec->shape.rank == MU_MAX_RANK)
            return false;
        spec->shape.dims[spec->shape.rank++] = dim;
        at = end;
    }
    mu_error_value why;
    if (*at != ']' || at[1] != '\0' || !(mu__dtype_ok(spec->dtype) || spec->dtype == MU_STRING))
        return false;
    if (mu__shape_check(&spec->shape, "element") == MU_OK)
        return true;
    mu__error_move(&why);
    return false;
}

static mu_value *from_json(const json_t *json, int depth);

static mu_value *container_from(const json_t *json, int depth)
{
    const bool map = json_is_object(json);
    const size_t n = map ? json_object_size(json) : json_array_size(json);
    mu_value **items = mu__calloc(n + 1, sizeof *items), *value = NULL;
    const char **keys = mu__calloc(n + 1, sizeof *keys), *key;
    size_t made = 0;
    json_t *item;
    if (!items || !keys)
        goto out;
    if (map)
        json_object_foreach((json_t *)json, key, item)
        {
            keys[made] = key;
            if (!(items[made] = from_json(item, depth + 1)))
                break;
            made++;
        }
    while (!map && made < n && (items[made] = from_json(json_array_get(json, made), depth + 1)))
        made++;
    if (made == n)
        value = mu__value_container(map ? MU_VALUE_MAP : MU_VALUE_LIST, (int)n, items, map ? keys : NULL);
out:
    for (size_t i = 0; i < made; i++)
        mu_release(items[i]);
    mu__free(keys);
    mu__free(items);
    return value;
}

static mu_value *from_json(const json_t *json, int depth)
{
    mu_spec spec;
    if (depth < DEEPEST && (json_is_array(json) || json_is_object(json)))
        return container_from(json, depth);
    if (json_is_string(json) && leaf_spec(json_string_value(json), &spec))
        return mu__spec_leaf(spec.dtype, &spec.shape);
    mu__error(MU_DATA_LOSS,
              "another worker's description of its data is invalid; run the same version of Muster on all workers");
    return NULL;
}

mu_value *mu__element_from_text(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    mu_value *value = from_json(json, 0);
    json_decref(json);
    return value;
}
