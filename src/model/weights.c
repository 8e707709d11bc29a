// Saves and loads a model's weights in safetensors format, under Keras's names.
#include "base/temporary.h"
#include "model/model.h"

#include <muster/io.h>

// A map from names to the weights' values outside of replicas.
static mu_value *named_weights(const mu_model *model)
{
    int n;
    mu_variable **variables;
    if (mu__model_variables(model, false, &n, &variables) != MU_OK)
        return NULL;
    mu_value *result = NULL;
    const char **names = mu__calloc((size_t)n + 1, sizeof *names);
    mu_value **items = mu__calloc((size_t)n + 1, sizeof *items);
    bool whole = names && items;
    for (int i = 0; whole && i < n; i++) {
        mu_tensor *value = mu_variable_read(variables[i]);
        names[i] = mu_variable_name(variables[i]);
        items[i] = value ? mu_of(value) : NULL;
        whole = items[i] != NULL;
    }
    if (whole)
        result = mu_map_of(n, names, items);
    mu__free(names);
    mu__free(items);
    mu__free(variables);
    return result;
}

static mu_status need_built(const mu_model *model, const char *path, const char *function)
{
    if (!model || !path)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, model ? "path" : "model");
    for (int i = 0; i < model->n_layers; i++)
        if (!model->layers[i]->built)
            return mu__error(MU_FAILED_PRECONDITION,
                             "%s: layer '%s' has no weights yet; call mu_model_build, or run the model once", function,
                             model->layers[i]->name);
    return MU_OK;
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
    int n = 0;
    mu_variable **variables = NULL;
    if (file)
        status = mu__model_variables(model, false, &n, &variables);
    for (int i = 0; file && status == MU_OK && i < n; i++)
        status = check_one(file, variables[i], path);
    for (int i = 0; file && status == MU_OK && i < n; i++)
        status = load_one(file, variables[i], path);
    mu__free(variables);
    mu_pool_close(pool);
    return status;
}
