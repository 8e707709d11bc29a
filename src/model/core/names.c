// Names of a model's inputs and outputs, as in Keras, and nests whose parts are given under them.
//
// The names are the keys of a map; of a list of tensors those of the inputs and of the layers that made them. What has
// no names is given in order.
#include "model/core/names.h"
#include "model/models/functional.h"
#include "model/models/model.h"

void mu__name_list_free(mu_name_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        mu__free(list->items[i]);
    mu__free(list->items);
    *list = (mu_name_list){0};
}

int mu__name_list_find(const mu_name_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], name) == 0)
            return (int)i;
    return -1;
}

// A name that another part has gets a number, as layers do.
mu_status mu__name_list_add(mu_name_list *list, const char *name)
{
    char *own = mu__strdup(name);
    for (int k = 1; own && mu__name_list_find(list, own) >= 0; k++) {
        mu__free(own);
        own = mu__sprintf("%s_%d", name, k);
    }
    if (own && MU_PUSH(list, own) == MU_OK)
        return MU_OK;
    mu__free(own);
    return mu_error_code();
}

mu_status mu__name_list_copy(mu_name_list *list, size_t n, char *const *names)
{
    mu_status status = MU_OK;
    for (size_t i = 0; status == MU_OK && i < n; i++)
        status = mu__name_list_add(list, names[i]);
    return status;
}

void mu__name_list_text(const mu_name_list *list, char text[MU_NAME_LIST_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < list->n && used < MU_NAME_LIST_TEXT; i++)
        used += (size_t)snprintf(text + used, MU_NAME_LIST_TEXT - used, "%s'%s'", i > 0 ? ", " : "", list->items[i]);
}

bool mu__is_flat_map(const mu_value *nest)
{
    bool flat = nest->kind == MU_VALUE_MAP;
    for (int i = 0; flat && i < nest->n; i++)
        flat = mu__value_flatten(nest->items[i], NULL, 0) == 1;
    return flat;
}

mu_status mu__layer_tensor_names(const mu_value *nest, mu_name_list *out)
{
    if (mu__is_flat_map(nest))
        return mu__name_list_copy(out, (size_t)nest->n, nest->keys);
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    const int n = MU_MIN(mu__value_flatten(nest, leaves, MU_MAX_MODEL_INPUTS), MU_MAX_MODEL_INPUTS);
    mu_status status = MU_OK;
    for (int i = 0; status == MU_OK && i < n; i++) {
        const mu_layer_call *call = mu__call_of((const mu_tensor *)leaves[i]);
        const char *own = call->layer ? mu_layer_name(call->layer) : call->name;
        status = mu__name_list_add(out, own ? own : "input_layer");
    }
    return status;
}

static const mu_functional *functional_of(const mu_model *model, const char *function)
{
    if (mu__pending() || mu__need_model(model, function) != MU_OK || model->ops != &mu__functional_ops)
        return NULL;
    return model->state;
}

const char *mu_model_input_name(const mu_model *model, int i)
{
    const mu_functional *f = functional_of(model, "mu_model_input_name");
    return f && i >= 0 && (size_t)i < f->input_names.n ? f->input_names.items[i] : NULL;
}

const char *mu_model_output_name(const mu_model *model, int i)
{
    const mu_functional *f = functional_of(model, "mu_model_output_name");
    return f && i >= 0 && (size_t)i < f->output_names.n ? f->output_names.items[i] : NULL;
}

// ---- What is given by name ----------------------------------------------------------------------

static mu_status keys_text(const mu_value *map, char text[MU_NAME_LIST_TEXT])
{
    mu_name_list keys = {0};
    const mu_status status = mu__name_list_copy(&keys, (size_t)map->n, map->keys);
    mu__name_list_text(&keys, text);
    mu__name_list_free(&keys);
    return status;
}

// Errors name both what there is and what is expected.
static mu_status not_found(const mu_value *map, const mu_name_list *names, const char *what, const char *name)
{
    char given[MU_NAME_LIST_TEXT], known[MU_NAME_LIST_TEXT];
    MU_TRY(keys_text(map, given));
    mu__name_list_text(names, known);
    return mu__error(MU_INVALID_ARGUMENT,
                     "the %s are a map with the keys %s, which lacks '%s'; the model has the names %s", what, given,
                     name, known);
}

static mu_status not_known(const mu_name_list *names, const char *what, const char *key)
{
    char known[MU_NAME_LIST_TEXT];
    mu__name_list_text(names, known);
    return mu__error(MU_INVALID_ARGUMENT,
                     "the %s are a map with the key '%s', but the model has no output of this name; its outputs are %s",
                     what, key, known);
}

mu_status mu__indices_by_name(const mu_value *map, const mu_name_list *names, mu_name_rule rule, const char *what,
                              int *indices)
{
    if (!mu__is_flat_map(map))
        return mu__error(MU_INVALID_ARGUMENT,
                         "the %s are a map of which a part is not one tensor; give a tensor for each name", what);
    for (size_t i = 0; i < names->n; i++)
        indices[i] = -1;
    for (int k = 0; k < map->n; k++) {
        const int i = mu__name_list_find(names, map->keys[k]);
        if (i >= 0)
            indices[i] = k;
        else if (rule == MU_NAMES_KNOWN)
            return not_known(names, what, map->keys[k]);
    }
    for (size_t i = 0; rule == MU_NAMES_ALL && i < names->n; i++)
        if (indices[i] < 0)
            return not_found(map, names, what, names->items[i]);
    return MU_OK;
}
