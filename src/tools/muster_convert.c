// `muster convert IN OUT`: copies tensors from one format of files to another.
//
// Without a model the tensors keep their names. With one, which Keras's files bring along, they get the names that the
// format's own readers look for: Keras those of its layers, TensorFlow the object graph. Keras's JSON is the
// configuration of a model alone.
#include "tools/models.h"
#include "tools/tools.h"

enum { MODEL };

static const mu_tool_option options[] = {
    [MODEL] = {.name = "model",
               .value = "FILE",
               .text = "a model.json of Keras's to_json(), or a .keras file, that the tensors belong to"},
    {.text = NULL},
};

// The texts of the file as a list that ends with NULL, if the target can hold them. For mu__free.
static const char **metadata_for(const mu_tensor_file *file, const mu_file_format *format)
{
    const bool holds = !format->metadata || format == file->format;
    const char **list = mu__calloc(file->metadata.n + 1, sizeof *list);
    for (size_t i = 0; list && holds && i < file->metadata.n; i++)
        list[i] = file->metadata.items[i];
    return list;
}

static mu_status copy(const mu_tensor_file *file, const char *out)
{
    const mu_file_format *format = mu__file_format_of(out);
    const size_t n = file->entries.n;
    const char **names = mu__calloc(n + 1, sizeof *names);
    mu_tensor **tensors = mu__calloc(n + 1, sizeof *tensors);
    const char **metadata = metadata_for(file, format);
    mu_status status = names && tensors && metadata ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < n; i++) {
        names[i] = file->entries.items[i].name;
        tensors[i] = mu_tensor_file_read(file, (int)i);
        status = tensors[i] ? MU_OK : mu_error_code();
    }
    const mu_tensors all = {.n = (int)n, .names = names, .tensors = tensors, .metadata = metadata};
    if (status == MU_OK)
        status = mu__tensors_save_as(format, out, &all);
    mu__free(metadata);
    mu__free(names);
    mu__free(tensors);
    return status;
}

static mu_status convert_model(mu_model *model, const mu_tensor_file *file, const char *out)
{
    MU_TRY(mu__model_need_built(model, file->path, "muster convert"));
    MU_TRY(mu__model_load(model, file, "muster convert"));
    return mu__tool_save(model, out, "muster convert");
}

static mu_status check_names(const char *in, const char *out)
{
    if (mu__tool_is_json(in))
        return mu__error(MU_INVALID_ARGUMENT,
                         "muster convert: %s is the configuration of a model and holds no tensors; convert a file of "
                         "its weights with --model %s",
                         in, in);
    return mu__tool_check_target(out, "muster convert");
}

static bool run(const mu_tool_arguments *a)
{
    const char *in = a->operands[0], *out = a->operands[1];
    mu_tensor_file *file = check_names(in, out) == MU_OK ? mu_tensor_file_open(in) : NULL;
    if (!file)
        return false;
    const char *config = mu_tensor_file_metadata(file, "config.json");
    const bool json = mu__tool_is_json(out), same = !json && mu__file_format_of(out) == file->format;
    mu_model *model = a->values[MODEL]  ? mu__tool_model(a->values[MODEL], "muster convert")
                      : config && !same ? mu__model_from_json(config, file, true, "muster convert")
                                        : NULL;
    if (mu__pending())
        return false;
    if (!model && (json || mu__file_format_of(out) == &mu__keras_format) && !same) {
        mu__error(
            MU_INVALID_ARGUMENT,
            "muster convert: %s holds no model, which a .keras file and .json have; give it with --model model.json",
            in);
        return false;
    }
    return (model ? convert_model(model, file, out) : copy(file, out)) == MU_OK;
}

const mu_tool_command mu__tool_convert = {
    .name = "muster convert",
    .usage = "[--model FILE] IN OUT",
    .summary = "convert a file of tensors to another format",
    .description =
        "Converts between safetensors, Keras's .weights.h5 and .keras, TensorFlow's checkpoints (a name with .ckpt, or "
        "the .index file) and .npz; OUT may also be Keras's JSON, the configuration of the model without its weights. "
        "The contents of IN determine its format, the extension of OUT that of OUT. With --model, and from a .keras "
        "file, the tensors get the names by which Keras (keras.Model.load_weights), TensorFlow (tf.train.Checkpoint) "
        "or Muster (mu_load_weights) finds them, and .weights.h5, .keras and checkpoints include the state of the "
        "optimizer. Without, they keep their names.",
    .example = "muster convert model.keras model.safetensors\n"
               "muster convert model.keras model.json\n"
               "muster convert --model model.json weights.safetensors model.ckpt\n",
    .options = options,
    .needs = "it needs the names of two files",
    .fewest = 2,
    .most = 2,
    .run = run,
};
