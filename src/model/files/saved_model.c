// Whole models in Keras's .keras files: the configuration, what the model was compiled with, weights, optimizer.
//
// Loading executes nothing: the configuration is read by keras_config.c, which knows Muster's layers, and the archive
// is read in memory.
#include "model/files/keras_names.h"
#include "model/models/model.h"

#include <muster/saved_model.h>
#include <time.h>

// The version of Keras whose format this is.
static const char keras_version[] = "3.15.1";

json_t *mu__model_json(const mu_model *model)
{
    json_t *json = mu__layer_json(model);
    json_t *compiled = json ? mu__compile_json(model) : NULL;
    if (compiled)
        json_object_set_new(json, "compile_config", compiled);
    if (!mu__pending())
        return json;
    json_decref(json);
    return NULL;
}

mu_status mu__model_check_config(const mu_model *model, const char *function)
{
    json_decref(mu__model_json(model));
    if (mu__pending())
        mu__error_context("while %s makes the configuration of the model '%s' for a .keras file", function,
                          mu_layer_name(model));
    return mu_error_code();
}

static const char *metadata_text(void)
{
    char date[40] = "";
    const time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(date, sizeof date, "%Y-%m-%d@%H:%M:%S", &local);
    return mu__json_text(json_pack("{s:s, s:s}", "keras_version", keras_version, "date_saved", date), "mu_save_model");
}

mu_status mu_save_model(mu_model *model, const char *path)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__model_need_built(model, path, "mu_save_model"));
    if (mu__file_format_of(path) != &mu__keras_format)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_save_model: '%s' does not end with .keras, the format of whole models; mu_save_weights "
                         "saves weights in other formats",
                         path);
    mu_pool *pool = mu_pool_open();
    json_t *json = pool ? mu__model_json(model) : NULL;
    const char *config = json ? mu__json_text(json, "mu_save_model") : NULL;
    const char *metadata = config ? metadata_text() : NULL;
    const char *const texts[] = {"config.json", config, "metadata.json", metadata, NULL};
    const mu_status status = metadata ? mu__model_save(model, &mu__keras_format, path, texts) : mu_error_code();
    mu_pool_close(pool);
    return status;
}

// ---- Loading ------------------------------------------------------------------------------------

static mu_model *model_from(const json_t *root, bool compiles, const char *function)
{
    mu_model *model = mu__layer_from_json(root, 0);
    const json_t *compiled = json_object_get(root, "compile_config");
    if (!model || mu__need_model(model, function) != MU_OK)
        return NULL;
    if (compiles && json_is_object(compiled) && json_object_size(compiled) > 0 &&
        mu__compile_from(model, compiled, function) != MU_OK)
        return NULL;
    return model;
}

mu_model *mu__model_from_json(const char *text, const mu_tensor_file *file, bool compiles, const char *function)
{
    json_t *root = mu__json_read(text, function);
    const bool whole = root && (!file || mu__keras_assets_into(root, file) == MU_OK);
    mu_model *model = whole ? model_from(root, compiles, function) : NULL;
    json_decref(root);
    return model;
}

static mu_model *load(const mu_tensor_file *file, bool compiles)
{
    const char *config = mu_tensor_file_metadata(file, "config.json");
    if (!config) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_load_model: '%s' (%s) holds no model, only tensors; make the model and call mu_load_weights",
                  file->path, file->format->name);
        return NULL;
    }
    mu_model *model = mu__model_from_json(config, file, compiles, "mu_load_model");
    return model && mu__model_need_built(model, file->path, "mu_load_model") == MU_OK &&
                   mu__model_load(model, file, "mu_load_model") == MU_OK
               ? model
               : NULL;
}

mu_model *mu_load_model_with(const mu_load_model_args *given)
{
    mu_load_model_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_load_model") != MU_OK ||
        mu__need(args.path, "mu_load_model: the path") != MU_OK)
        return NULL;
    mu__tensor_file_sweep(args.path);
    mu_tensor_file *file = mu__tensor_file_open(args.path);
    mu_model *model = file ? load(file, !args.no_compile) : NULL;
    mu_release(file);
    if (!model && mu__pending())
        mu__error_context("while loading the model '%s'", args.path);
    return model;
}
