// Reads safetensors files; the header is untrusted until every claim in it has been checked.
//
// Opening reads only the length and the JSON header (both bounded by the file itself), checks that dtype, shape and
// offsets of each tensor agree, and that the tensors cover the data without holes or overlaps, as the format
// requires. Tensors are read later, one by one, directly into their memory.
#include "io/io.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

// Reads the header's text; the caller frees it.
static mu_status read_header(mu_tensor_file *file, uint64_t file_bytes, char **text, size_t *length)
{
    uint8_t prefix[8] = {0};
    if (file_bytes < sizeof prefix)
        return mu__error(MU_DATA_LOSS,
                         "%s has %" PRIu64
                         " bytes; a safetensors file starts with 8 bytes of header length; it is damaged or not a "
                         "safetensors file (`muster convert --help` lists the formats)",
                         file->path, file_bytes);
    MU_TRY(mu__file_read_at(file->fd, file->path, 0, prefix, sizeof prefix));
    mu_cursor cursor = mu__cursor(prefix, sizeof prefix);
    const uint64_t claimed = mu__cursor_u64_little(&cursor);
    if (claimed > MU_SAFETENSORS_HEADER_LIMIT || claimed > file_bytes - sizeof prefix || claimed < 2)
        return mu__error(MU_DATA_LOSS,
                         "%s claims a header of %" PRIu64 " bytes; expected 2 to %" PRIu64 " (the file has %" PRIu64
                         " bytes); it is damaged or not a safetensors file (`muster convert --help` lists the formats)",
                         file->path, claimed, MU_MIN((uint64_t)MU_SAFETENSORS_HEADER_LIMIT, file_bytes - sizeof prefix),
                         file_bytes);
    *length = (size_t)claimed;
    file->data_at = sizeof prefix + claimed;
    file->data_bytes = file_bytes - file->data_at;
    *text = mu__alloc(*length);
    return *text ? mu__file_read_at(file->fd, file->path, sizeof prefix, *text, *length) : mu_error_code();
}

// Records an error about one tensor's header entry: `what` is a phrase, `seen` the JSON found there.
static mu_status bad_entry(const mu_tensor_file *file, const char *name, const char *what, const json_t *seen)
{
    char *text = seen ? json_dumps(seen, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    const mu_status status = mu__error(MU_DATA_LOSS, "tensor '%.200s' in %s: %s, found %.200s", name, file->path, what,
                                       text ? text : "nothing");
    free(text);
    return status;
}

static mu_status parse_dtype(const mu_tensor_file *file, const char *name, const json_t *json, mu_dtype *out)
{
    if (!json_is_string(json))
        return bad_entry(file, name, "\"dtype\" must be a text such as \"F32\"", json);
    *out = mu__dtype_from_safetensors(json_string_value(json));
    if (*out == MU_DTYPE_DEFAULT)
        return mu__error(MU_UNIMPLEMENTED,
                         "tensor '%.200s' in %s has the element type %.40s, which Muster does not have; convert it, "
                         "for example to F32",
                         name, file->path, json_string_value(json));
    return MU_OK;
}

// Fills in the shape and the number of bytes that it takes with this dtype.
static mu_status parse_shape(const mu_tensor_file *file, const char *name, const json_t *json, mu_spec *spec,
                             uint64_t *bytes)
{
    if (!json_is_array(json))
        return bad_entry(file, name, "\"shape\" must be a list of integers", json);
    if (json_array_size(json) > MU_MAX_RANK)
        return mu__error(MU_UNIMPLEMENTED, "tensor '%.200s' in %s has %zu dimensions; Muster has at most %d", name,
                         file->path, json_array_size(json), MU_MAX_RANK);
    spec->shape.rank = (int)json_array_size(json);
    for (int d = 0; d < spec->shape.rank; d++) {
        const json_t *item = json_array_get(json, (size_t)d);
        spec->shape.dims[d] = json_integer_value(item);
        if (!json_is_integer(item) || spec->shape.dims[d] < 0)
            return bad_entry(file, name, "each dimension must be an integer from 0 up", item);
    }
    return mu__spec_file_bytes(spec, bytes)
               ? MU_OK
               : bad_entry(file, name, "the product of the dimensions does not fit 63 bits", json);
}

static mu_status parse_offsets(const mu_tensor_file *file, const json_t *json, uint64_t bytes, mu_file_entry *entry)
{
    const json_t *begin = json_array_get(json, 0), *end = json_array_get(json, 1);
    if (json_array_size(json) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return bad_entry(file, entry->name, "\"data_offsets\" must be two integers", json);
    const int64_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > file->data_bytes)
        return bad_entry(file, entry->name, "\"data_offsets\" must rise and lie inside the file's data", json);
    if ((uint64_t)(to - from) != bytes)
        return mu__error(MU_DATA_LOSS,
                         "tensor '%.200s' in %s: its dtype and shape take %" PRIu64 " bytes, its offsets span %" PRId64,
                         entry->name, file->path, bytes, to - from);
    entry->begin = (uint64_t)from;
    entry->end = (uint64_t)to;
    return MU_OK;
}

static mu_status parse_entry(mu_tensor_file *file, const char *name, const json_t *json)
{
    uint64_t bytes = 0;
    mu_file_entry entry = {0};
    if (!json_is_object(json))
        return bad_entry(file, name, "expected an object with dtype, shape and data_offsets", json);
    MU_TRY(parse_dtype(file, name, json_object_get(json, "dtype"), &entry.spec.dtype));
    MU_TRY(parse_shape(file, name, json_object_get(json, "shape"), &entry.spec, &bytes));
    entry.name = mu__strdup(name);
    if (!entry.name)
        return mu_error_code();
    const mu_status status = parse_offsets(file, json_object_get(json, "data_offsets"), bytes, &entry);
    if (status == MU_OK)
        return mu__file_add_entry(file, entry);
    mu__free(entry.name);
    return status;
}

static mu_status parse_metadata(mu_tensor_file *file, json_t *json)
{
    const char *key;
    json_t *text;
    if (!json_is_object(json))
        return bad_entry(file, "__metadata__", "expected an object of texts", json);
    json_object_foreach(json, key, text)
    {
        if (!json_is_string(text))
            return bad_entry(file, "__metadata__", "every value must be a text", text);
        MU_TRY(mu__file_add_metadata(file, key, json_string_value(text)));
    }
    return MU_OK;
}

static int by_offset(const void *left, const void *right)
{
    const mu_file_entry *a = *(const mu_file_entry *const *)left, *b = *(const mu_file_entry *const *)right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

// The tensors must be contiguous and fill the data: a hole could hide bytes, an overlap could alias.
static mu_status check_cover(const mu_tensor_file *file)
{
    const size_t n = file->entries.n;
    uint64_t at = 0;
    const mu_file_entry **sorted = mu__calloc(n + 1, sizeof *sorted);
    if (!sorted)
        return mu_error_code();
    for (size_t i = 0; i < n; i++)
        sorted[i] = &file->entries.items[i];
    qsort(sorted, n, sizeof *sorted, by_offset);
    mu_status status = MU_OK;
    for (size_t i = 0; i < n && status == MU_OK; i++) {
        if (sorted[i]->begin != at)
            status = mu__error(MU_DATA_LOSS,
                               "tensor '%.200s' in %s starts at byte %" PRIu64 " of the data; expected %" PRIu64
                               ", where the tensor before it ends",
                               sorted[i]->name, file->path, sorted[i]->begin, at);
        at = sorted[i]->end;
    }
    mu__free(sorted);
    if (status == MU_OK && at != file->data_bytes)
        status = mu__error(MU_DATA_LOSS,
                           "%s holds %" PRIu64 " bytes of data, its tensors take %" PRIu64
                           "; it is damaged, fetch or save it again",
                           file->path, file->data_bytes, at);
    return status;
}

static mu_status parse_header(mu_tensor_file *file, const char *text, size_t length)
{
    json_error_t error;
    json_t *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error), *json;
    const char *name;
    if (!header)
        return mu__error(json_error_code(&error) == json_error_out_of_memory ? MU_RESOURCE_EXHAUSTED : MU_DATA_LOSS,
                         "the header of %s is not valid JSON: %s at byte %d", file->path, error.text,
                         error.position + 8);
    mu_status status =
        json_is_object(header)
            ? MU_OK
            : mu__error(MU_DATA_LOSS, "the header of %s is JSON, but not an object of tensors", file->path);
    json_object_foreach(header, name, json)
    {
        if (status == MU_OK)
            status = strcmp(name, "__metadata__") == 0 ? parse_metadata(file, json) : parse_entry(file, name, json);
    }
    json_decref(header);
    return status == MU_OK ? check_cover(file) : status;
}

static mu_status open_file(mu_tensor_file *file)
{
    uint64_t file_bytes = 0;
    char *text = NULL;
    size_t length = 0;
    MU_TRY(mu__file_open_regular(file->path, &file->fd, &file_bytes));
    mu_status status = read_header(file, file_bytes, &text, &length);
    if (status == MU_OK)
        status = parse_header(file, text, length);
    mu__free(text);
    return status;
}

static mu_status read_entry(const mu_tensor_file *file, const mu_file_entry *entry, void *out)
{
    return mu__file_read_at(file->fd, file->path, file->data_at + entry->begin, out,
                            (size_t)(entry->end - entry->begin));
}

// The eight bytes of length are followed by the brace of a JSON object. Files that no format claims are opened as
// safetensors too, so that the error says what a header should be.
static bool recognise(const uint8_t *head, size_t bytes) { return bytes > 8 && head[8] == '{'; }

const mu_file_format mu__safetensors_format = {
    .name = "safetensors",
    .extension = ".safetensors",
    .text = "tensors under Keras's names of variables",
    .names = MU_NAMES_OWN,
    .recognise = recognise,
    .open = open_file,
    .read = read_entry,
    .save = mu__safetensors_save,
};
