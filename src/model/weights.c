// Saves and loads a model's weights in safetensors format, under Keras's names.
#include "base/temporary.h"
#include "model/model.h"

#include <muster/io.h>

// A map from names to the weights' values outside of replicas.
static mu_value *named_weights(const mu_model *model)
{
    mu_variable_list list = {0};
    if (mu__layer_collect(model, MU_WEIGHTS_ALL, &list) != MU_OK)
        return NULL;
    mu_value *result = NULL;
    const char **names = mu__calloc(list.n + 1, sizeof *names);
    mu_value **items = mu__calloc(list.n + 1, sizeof *items);
    bool whole = names && items;
    for (size_t i = 0; whole && i < list.n; i++) {
        mu_tensor *value = mu_variable_read(list.items[i]);
        names[i] = mu_variable_name(list.items[i]);
        items[i] = value ? mu_of(value) : NULL;
        whole = items[i] != NULL;
    }
    if (whole)
        result = mu_map_of((int)list.n, names, items);
    mu__free(names);
    mu__free(items);
    mu__free(list.items);
    return result;
}

// The first layer without weights of its own to come; NULL: all are built.
static const mu_layer *not_built(const mu_layer *layer)
{
    for (size_t i = 0; i < layer->sublayers.n; i++) {
        const mu_layer *found = not_built(layer->sublayers.items[i]);
        if (found)
            return found;
    }
    return layer->built || layer->sublayers.n > 0 ? NULL : layer;
}

static mu_status need_built(const mu_model *model, const char *path, const char *function)
{
    if (!model || !path)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, model ? "path" : "model");
    MU_TRY(mu__need_model(model, function));
    const mu_layer *layer = not_built(model);
    return !layer ? MU_OK
                  : mu__error(MU_FAILED_PRECONDITION,
                              "%s: layer '%s' has no weights yet; call mu_model_build, or run the model once", function,
                              mu_layer_name(layer));
}

mu_status mu_save_weights(mu_model *model, const char *path)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(need_built(model, path, "mu_save_weights"));
    mu_pool *pool = mu_pool_open();
    mu_value *weights = pool ? named_weights(model) : NULL;
    mu_status status = mu_error_code();
    mu__strategy_doing(model->strategy, "saving", -1);
    if (weights && mu_strategy_should_checkpoint(model->strategy))
        status = mu_save_tensors(path, weights);
    status = mu__workers_written(model->strategy, status);
    mu_pool_close(pool);
    return status;
}

static mu_status load_one(const mu_tensor_file *file, mu_variable *variable, const char *path)
{
    mu_tensor *value = mu_tensor_file_read(file, mu_tensor_file_find(file, mu_variable_name(variable)));
    if (!value)
        return mu_error_code();
    mu_status status = mu_variable_assign(variable, value);
    if (status != MU_OK)
        mu__error_context("while loading '%s'", path);
    return status;
}

// Checks every name, type and shape before the first weight changes.
static mu_status check_one(const mu_tensor_file *file, const mu_variable *variable, const char *path)
{
    const char *name = mu_variable_name(variable);
    char text[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    int i = mu_tensor_file_find(file, name);
    if (i < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_load_weights: '%s' has no tensor '%s' of this model (muster inspect lists what it "
                         "has)",
                         path, name);
    mu_spec seen = {.dtype = mu_tensor_file_dtype(file, i), .shape = mu_tensor_file_shape(file, i)};
    const mu_spec *wanted = &variable->resource.spec;
    if (seen.dtype == wanted->dtype && mu__shape_equal(&wanted->shape, &seen.shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "mu_load_weights: '%s' in '%s' is %s%s; the model's is %s%s", name, path,
                     mu_dtype_name(seen.dtype), mu__shape_text(&seen.shape, text), mu_dtype_name(wanted->dtype),
                     mu__shape_text(&wanted->shape, other));
}

mu_status mu_load_weights(mu_model *model, const char *path)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(need_built(model, path, "mu_load_weights"));
    mu__temporary_sweep(path);
    mu_pool *pool = mu_pool_open();
    mu_tensor_file *file = pool ? mu_tensor_file_open(path) : NULL;
    mu_status status = mu_error_code();
    mu_variable_list list = {0};
    if (file)
        status = mu__layer_collect(model, MU_WEIGHTS_ALL, &list);
    for (size_t i = 0; file && status == MU_OK && i < list.n; i++)
        status = check_one(file, list.items[i], path);
    for (size_t i = 0; file && status == MU_OK && i < list.n; i++)
        status = load_one(file, list.items[i], path);
    mu__free(list.items);
    mu_pool_close(pool);
    return status;
}
