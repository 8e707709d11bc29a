// Configurations of layers and optimizers as the text of Keras's JSON.
#include "model/core/fields.h"

enum { MAX_BYTES = 64 << 20 };

typedef struct text_object {
    mu_object object;
    char text[];
} text_object;
static mu_type text_type = {.name = "text"};

json_t *mu__keras_json(const char *module, const char *class_name, json_t *config)
{
    return json_pack("{s:s, s:s, s:o, s:n}", "module", module, "class_name", class_name, "config", config,
                     "registered_name");
}

const char *mu__json_text(json_t *json, const char *function)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if (!text) {
        if (!mu__pending())
            mu__error(MU_RESOURCE_EXHAUSTED, "%s: no memory for the configuration", function);
        return NULL;
    }
    const size_t bytes = strlen(text) + 1;
    text_object *copy = mu__new(&text_type, sizeof *copy + bytes);
    if (copy)
        memcpy(copy->text, text, bytes);
    free(text);
    return mu__give(copy) ? copy->text : NULL;
}

json_t *mu__json_read(const char *text, const char *function)
{
    json_error_t error;
    const size_t bytes = strlen(text);
    json_t *root = bytes <= MAX_BYTES ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (!root)
        mu__error(MU_INVALID_ARGUMENT, "%s: the text is not JSON: %s", function,
                  bytes <= MAX_BYTES ? error.text : "it is too long");
    return root;
}

mu_status mu__json_member(json_t *object, const char *key, json_t *value)
{
    if (value && json_object_set_new(object, key, value) == 0)
        return MU_OK;
    return mu__pending() ? mu_error_code()
                         : mu__error(MU_RESOURCE_EXHAUSTED, "no memory for '%s' of the JSON configuration", key);
}
