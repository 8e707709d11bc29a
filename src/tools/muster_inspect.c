// `muster inspect FILE`: prints the contents of a file of tensors, as a table or as JSON; of Keras's JSON the summary
// of the model.
//
// Tensors are read one at a time. Range and mean are over the finite elements; the
// others are counted.
#include "io/io.h"
#include "tools/models.h"
#include "tools/tools.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

typedef struct summary {
    double low, high, mean; // NaN if there are no finite elements
    int64_t not_finite;
} summary;

static summary summarize(const mu_tensor *tensor)
{
    const void *data = mu__host_read(tensor);
    const int64_t n = mu__elements(&tensor->shape);
    summary s = {.low = NAN, .high = NAN, .mean = NAN};
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++) {
        const double value = mu__read_element(tensor->dtype, data, i);
        if (!isfinite(value))
            continue;
        s.low = fmin(s.low, value);
        s.high = fmax(s.high, value);
        sum += value;
        finite++;
    }
    s.not_finite = n - finite;
    if (finite > 0)
        s.mean = sum / (double)finite;
    return s;
}

static bool summarize_entry(const mu_tensor_file *file, int i, summary *out)
{
    mu_tensor *tensor = mu__tensor_file_read(file, i);
    if (!tensor)
        return false;
    *out = summarize(tensor);
    mu_release(tensor);
    return true;
}

static int name_width(const mu_tensor_file *file)
{
    size_t width = strlen("total");
    for (size_t i = 0; i < file->entries.n; i++)
        width = MU_MAX(width, strlen(file->entries.items[i].name));
    return (int)MU_MIN(width, (size_t)60);
}

static void print_number(double value)
{
    if (isnan(value))
        printf(" %12s", "-");
    else
        printf(" %12.5g", value);
}

static bool print_table(const mu_tensor_file *file)
{
    const int width = name_width(file);
    int64_t elements = 0;
    printf("%-*s  %-8s %-18s %14s %12s %12s %12s  %s\n", width, "name", "dtype", "shape", "bytes", "min", "max", "mean",
           "nan/inf");
    for (size_t i = 0; i < file->entries.n; i++) {
        const mu_file_entry *entry = &file->entries.items[i];
        char shape[MU_SHAPE_TEXT];
        summary s;
        if (!summarize_entry(file, (int)i, &s))
            return false;
        mu__tool_print_name(entry->name, width);
        printf("  %-8s %-18s %14" PRIu64, mu_dtype_name(entry->spec.dtype), mu__shape_text(&entry->spec.shape, shape),
               entry->end - entry->begin);
        print_number(s.low);
        print_number(s.high);
        print_number(s.mean);
        printf("  %" PRId64 "\n", s.not_finite);
        elements += mu__elements(&entry->spec.shape);
    }
    printf("%-*s  %zu tensors, %" PRId64 " elements, %" PRIu64 " bytes\n", width, "total", file->entries.n, elements,
           file->data_bytes);
    return true;
}

static json_t *number_json(double value) { return isnan(value) ? json_null() : json_real(value); }

static json_t *entry_json(const mu_file_entry *entry, const summary *s)
{
    json_t *shape = json_array();
    for (int d = 0; d < entry->spec.shape.rank; d++)
        json_array_append_new(shape, json_integer(entry->spec.shape.dims[d]));
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:o, s:o, s:I}", "name", entry->name, "dtype",
                     mu_dtype_name(entry->spec.dtype), "shape", shape, "bytes", (json_int_t)(entry->end - entry->begin),
                     "min", number_json(s->low), "max", number_json(s->high), "mean", number_json(s->mean),
                     "not_finite", (json_int_t)s->not_finite);
}

static json_t *metadata_json(const mu_tensor_file *file)
{
    json_t *map = json_object();
    for (size_t i = 0; i + 1 < file->metadata.n; i += 2)
        json_object_set_new(map, file->metadata.items[i], json_string(file->metadata.items[i + 1]));
    return map;
}

static bool print_json(const mu_tensor_file *file)
{
    json_t *list = json_array();
    for (size_t i = 0; i < file->entries.n; i++) {
        summary s;
        if (!summarize_entry(file, (int)i, &s)) {
            json_decref(list);
            return false;
        }
        json_array_append_new(list, entry_json(&file->entries.items[i], &s));
    }
    json_t *root = json_pack("{s:s, s:s, s:I, s:o, s:o}", "path", file->path, "format", file->format->name, "bytes",
                             (json_int_t)file->data_bytes, "metadata", metadata_json(file), "tensors", list);
    const bool ok = root && json_dumpf(root, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    if (!ok)
        mu__error(MU_RESOURCE_EXHAUSTED, "cannot write the description of %s to standard output", file->path);
    json_decref(root);
    return ok;
}

enum { JSON };

static const mu_tool_option options[] = {
    [JSON] = {.name = "json", .text = "print JSON instead of a table"},
    {.text = NULL},
};

static bool print_model(const char *path, bool as_json)
{
    mu_model *model = mu__tool_model(path, "muster inspect");
    if (!model || !as_json)
        return model && mu_summary(model, stdout) == MU_OK;
    json_t *json = mu__model_json(model);
    const bool ok = json && json_dumpf(json, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    if (json && !ok)
        mu__error(MU_RESOURCE_EXHAUSTED, "cannot write the description of %s to standard output", path);
    json_decref(json);
    return ok;
}

static bool run(const mu_tool_arguments *a)
{
    if (mu__tool_is_json(a->operands[0]))
        return print_model(a->operands[0], a->values[JSON] != NULL);
    mu_tensor_file *file = mu__tensor_file_open(a->operands[0]);
    const bool ok = file && (a->values[JSON] ? print_json(file) : print_table(file));
    mu_release(file);
    return ok;
}

const mu_tool_command mu__tool_inspect = {
    .name = "muster inspect",
    .usage = "[--json] FILE",
    .summary = "print the tensors of a file: type, shape, bytes, range and mean",
    .description = "Prints the tensors of a safetensors file, of Keras's .weights.h5 or .keras, of a TensorFlow "
                   "checkpoint (PREFIX or PREFIX.index) or of an .npz archive; of Keras's JSON, the layers of the "
                   "model. For each tensor: name, element type, shape, size in bytes, minimum, maximum and mean of the "
                   "finite elements, and the number of elements that are NaN or infinite. With --json also the texts "
                   "that the file has, such as the configuration of a model.",
    .example = "muster inspect fashion_mnist.safetensors\n",
    .options = options,
    .needs = "it needs the name of one file",
    .fewest = 1,
    .most = 1,
    .run = run,
};
