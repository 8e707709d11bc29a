// Models that subcommands read from files: .keras, or Keras's JSON.
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

mu_model *mu__tool_model(const char *path, const char *function)
{
    mu_model *model = mu__file_format_of(path) == &mu__keras_format ? mu_load_model(path) : from_json(path, function);
    if (!model)
        mu__error_context("while reading the model %s", path);
    return model;
}
