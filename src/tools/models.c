// Models that subcommands read from files (.keras, Keras's JSON), and write to files of any format.
#include "tools/models.h"

#include <muster/saved_model.h>

enum { MOST_BYTES = 64 << 20 };

static mu_model *from_json(const char *path, const char *function)
{
    void *text = NULL;
    size_t bytes;
    if (mu__file_read(path, MOST_BYTES, &text, &bytes) != MU_OK)
        return NULL;
    mu_model *model = mu__model_from_json(text, NULL, true, function);
    mu__free(text);
    return model;
}

bool mu__tool_is_json(const char *path)
{
    const size_t length = strlen(path);
    return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

mu_status mu__tool_check_target(const char *path, const char *function)
{
    if (mu__tool_is_json(path) || mu__file_format_named(path))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: the name %s ends with the extension of no format; end it with .safetensors, .weights.h5, "
                     ".keras, .npz or .ckpt, or with .json for the configuration of a model",
                     function, path);
}

static mu_status save_json(const mu_model *model, const char *path, const char *function)
{
    json_t *json = mu__model_json(model);
    const char *text = json ? mu__json_text(json, function) : NULL;
    mu_file_writer *file = text ? mu__file_create(path) : NULL;
    if (!file)
        return mu_error_code();
    const mu_status status = mu__file_write(file, text, strlen(text));
    if (status == MU_OK)
        return mu__file_commit(file);
    mu__file_abandon(file);
    return status;
}

mu_status mu__tool_save(mu_model *model, const char *path, const char *function)
{
    if (mu__tool_is_json(path))
        return save_json(model, path, function);
    return mu__file_format_of(path) == &mu__keras_format ? mu_save_model(model, path) : mu_save_weights(model, path);
}

mu_model *mu__tool_model(const char *path, const char *function)
{
    mu_model *model = mu__file_format_of(path) == &mu__keras_format ? mu_load_model(path) : from_json(path, function);
    if (!model)
        mu__error_context("while reading the model %s", path);
    return model;
}
