// Reads safetensors files; the header is untrusted until every claim in it has been checked.
//
// Opening reads only the length and the JSON header (both bounded by the file itself), checks that dtype, shape and
// offsets of each tensor agree, and that the tensors cover the data without holes or overlaps, as the format
// requires. Tensors are read later, one by one, directly into their memory.
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void destroy(void *object)
{
    mu_tensor_file *file = object;
    for (size_t i = 0; i < file->entries.n; i++)
        mu__free(file->entries.items[i].name);
    for (size_t i = 0; i < file->metadata.n; i++)
        mu__free(file->metadata.items[i]);
    mu__free(file->entries.items);
    mu__free(file->metadata.items);
    mu__free(file->path);
    if (file->fd >= 0)
        close(file->fd);
}

mu_type mu__tensor_file_type = {.name = "tensor_file", .destroy = destroy};

// Reads exactly `bytes` bytes at an offset; a file that ends earlier is DATA_LOSS.
static mu_status read_at(const mu_tensor_file *file, uint64_t offset, void *out, size_t bytes)
{
    char *to = out;
    size_t left = bytes;
    while (left > 0) {
        const ssize_t got = pread(file->fd, to, left, (off_t)(offset + bytes - left));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mu__error(MU_UNAVAILABLE, "cannot read %s at byte %" PRIu64 ": %s", file->path,
                             offset + bytes - left, strerror(errno));
        if (got == 0)
            return mu__error(MU_DATA_LOSS,
                             "%s ends at byte %" PRIu64 ", %zu bytes before the end of what its header promises; "
                             "it is truncated, fetch or save it again",
                             file->path, offset + bytes - left, left);
        to += got;
        left -= (size_t)got;
    }
    return MU_OK;
}

static mu_status open_path(mu_tensor_file *file, const char *path, uint64_t *file_bytes)
{
    struct stat info;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) {
        const int code = errno;
        return mu__error(code == ENOENT || code == ENOTDIR ? MU_NOT_FOUND
                         : code == EACCES                  ? MU_PERMISSION_DENIED
                                                           : MU_UNAVAILABLE,
                         "cannot open the tensor file %s: %s", path, strerror(code));
    }
    if (fstat(file->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return mu__error(MU_INVALID_ARGUMENT, "%s is not a regular file; expected a safetensors file", path);
    *file_bytes = (uint64_t)info.st_size;
    return MU_OK;
}

// Reads the header's text; the caller frees it.
static mu_status read_header(mu_tensor_file *file, uint64_t file_bytes, char **text, size_t *length)
{
    uint8_t prefix[8] = {0};
    if (file_bytes < sizeof prefix)
        return mu__error(MU_DATA_LOSS,
                         "%s has %" PRIu64 " bytes; a safetensors file starts with 8 bytes of header length",
                         file->path, file_bytes);
    MU_TRY(read_at(file, 0, prefix, sizeof prefix));
    mu_cursor cursor = mu__cursor(prefix, sizeof prefix);
    const uint64_t claimed = mu__cursor_u64_little(&cursor);
    if (claimed > MU_SAFETENSORS_HEADER_LIMIT || claimed > file_bytes - sizeof prefix || claimed < 2)
        return mu__error(MU_DATA_LOSS,
                         "%s claims a header of %" PRIu64 " bytes; expected 2 to %" PRIu64 " (the file has %" PRIu64
                         " bytes); it is damaged or not a safetensors file",
                         file->path, claimed, MU_MIN((uint64_t)MU_SAFETENSORS_HEADER_LIMIT, file_bytes - sizeof prefix),
                         file_bytes);
    *length = (size_t)claimed;
    file->data_at = sizeof prefix + claimed;
    file->data_bytes = file_bytes - file->data_at;
    *text = mu__alloc(*length);
    return *text ? read_at(file, sizeof prefix, *text, *length) : mu_error_code();
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
                         "tensor '%.200s' in %s has the element type %.40s, which Muster does not have; "
                         "convert it, for example to F32",
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
    *bytes = mu_dtype_bytes(spec->dtype);
    bool empty = false;
    for (int d = 0; d < spec->shape.rank; d++) {
        const json_t *item = json_array_get(json, (size_t)d);
        const int64_t dim = json_integer_value(item);
        if (!json_is_integer(item) || dim < 0)
            return bad_entry(file, name, "each dimension must be an integer from 0 up", item);
        spec->shape.dims[d] = dim;
        empty |= dim == 0;
        if (__builtin_mul_overflow(*bytes, (uint64_t)MU_MAX(dim, 1), bytes) || *bytes > INT64_MAX)
            return bad_entry(file, name, "the product of the dimensions does not fit 63 bits", json);
    }
    if (empty)
        *bytes = 0;
    return MU_OK;
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
    mu_status status = parse_offsets(file, json_object_get(json, "data_offsets"), bytes, &entry);
    if (status == MU_OK)
        status = MU_PUSH(&file->entries, entry);
    if (status != MU_OK)
        mu__free(entry.name);
    return status;
}

static mu_status push_text(mu_tensor_file *file, const char *text)
{
    char *copy = mu__strdup(text);
    if (!copy)
        return mu_error_code();
    const mu_status status = MU_PUSH(&file->metadata, copy);
    if (status != MU_OK)
        mu__free(copy);
    return status;
}

static mu_status parse_metadata(mu_tensor_file *file, json_t *json)
{
    const char *key;
    json_t *text;
    if (!json_is_object(json))
        return bad_entry(file, "__metadata__", "expected an object of texts", json);
    json_object_foreach(json, key, text) {
        if (!json_is_string(text))
            return bad_entry(file, "__metadata__", "every value must be a text", text);
        MU_TRY(push_text(file, key));
        MU_TRY(push_text(file, json_string_value(text)));
    }
    return MU_OK;
}

static int by_place(const void *left, const void *right)
{
    const mu_file_entry *a = *(const mu_file_entry *const *)left, *b = *(const mu_file_entry *const *)right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

// The tensors must lie end to end and fill the data: a hole could hide bytes, an overlap could alias.
static mu_status check_cover(const mu_tensor_file *file)
{
    const size_t n = file->entries.n;
    uint64_t at = 0;
    const mu_file_entry **sorted = mu__calloc(n + 1, sizeof *sorted);
    if (!sorted)
        return mu_error_code();
    for (size_t i = 0; i < n; i++)
        sorted[i] = &file->entries.items[i];
    qsort(sorted, n, sizeof *sorted, by_place);
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
        status = mu__error(MU_DATA_LOSS, "%s holds %" PRIu64 " bytes of data, its tensors take %" PRIu64
                           "; it is damaged, fetch or save it again", file->path, file->data_bytes, at);
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
    mu_status status = json_is_object(header) ? MU_OK
        : mu__error(MU_DATA_LOSS, "the header of %s is JSON, but not an object of tensors", file->path);
    json_object_foreach(header, name, json) {
        if (status == MU_OK)
            status = strcmp(name, "__metadata__") == 0 ? parse_metadata(file, json) : parse_entry(file, name, json);
    }
    json_decref(header);
    return status == MU_OK ? check_cover(file) : status;
}

static mu_status open_file(mu_tensor_file *file, const char *path)
{
    uint64_t file_bytes = 0;
    char *text = NULL;
    size_t length = 0;
    file->path = mu__strdup(path);
    if (!file->path)
        return mu_error_code();
    MU_TRY(open_path(file, path, &file_bytes));
    mu_status status = read_header(file, file_bytes, &text, &length);
    if (status == MU_OK)
        status = parse_header(file, text, length);
    mu__free(text);
    return status;
}

mu_tensor_file *mu__tensor_file_open(const char *path)
{
    if (mu__pending())
        return NULL;
    if (!path) {
        mu__error(MU_INVALID_ARGUMENT, "the path of a tensor file is NULL; give the name of a safetensors file");
        return NULL;
    }
    mu_tensor_file *file = mu__new(&mu__tensor_file_type, sizeof *file);
    if (!file)
        return NULL;
    file->fd = -1;
    if (open_file(file, path) == MU_OK)
        return file;
    mu_release(file);
    return NULL;
}

static const mu_file_entry *entry_at(const mu_tensor_file *file, int i)
{
    return file && i >= 0 && (size_t)i < file->entries.n ? &file->entries.items[i] : NULL;
}

mu_tensor *mu__tensor_file_read(const mu_tensor_file *file, int i)
{
    if (mu__pending())
        return NULL;
    const mu_file_entry *entry = entry_at(file, i);
    if (!entry) {
        mu__error(MU_OUT_OF_RANGE, "tensor %d of %s does not exist; it has %d", i, file ? file->path : "no file (NULL)",
                  mu_tensor_file_count(file));
        return NULL;
    }
    mu_tensor *tensor = mu__tensor_alloc(entry->spec.dtype, &entry->spec.shape);
    if (!tensor)
        return NULL;
    if (read_at(file, file->data_at + entry->begin, mu__host_write(tensor),
                (size_t)(entry->end - entry->begin)) == MU_OK)
        return tensor;
    mu_release(tensor);
    return NULL;
}

mu_tensor_file *mu_tensor_file_open(const char *path) { return mu__give(mu__tensor_file_open(path)); }

mu_tensor *mu_tensor_file_read(const mu_tensor_file *file, int i) { return mu__give(mu__tensor_file_read(file, i)); }

int mu_tensor_file_count(const mu_tensor_file *file) { return file ? (int)file->entries.n : 0; }

const char *mu_tensor_file_name(const mu_tensor_file *file, int i)
{
    const mu_file_entry *entry = entry_at(file, i);
    return entry ? entry->name : NULL;
}

mu_dtype mu_tensor_file_dtype(const mu_tensor_file *file, int i)
{
    const mu_file_entry *entry = entry_at(file, i);
    return entry ? entry->spec.dtype : MU_DTYPE_DEFAULT;
}

mu_shape mu_tensor_file_shape(const mu_tensor_file *file, int i)
{
    const mu_file_entry *entry = entry_at(file, i);
    return entry ? entry->spec.shape : (mu_shape){.rank = -1};
}

int mu_tensor_file_find(const mu_tensor_file *file, const char *name)
{
    for (int i = 0; name && i < mu_tensor_file_count(file); i++)
        if (strcmp(file->entries.items[i].name, name) == 0)
            return i;
    return -1;
}

const char *mu_tensor_file_metadata(const mu_tensor_file *file, const char *key)
{
    for (size_t i = 0; file && key && i + 1 < file->metadata.n; i += 2)
        if (strcmp(file->metadata.items[i], key) == 0)
            return file->metadata.items[i + 1];
    return NULL;
}

// Reads tensor i as an element of a map; the pool owns it.
static mu_value *read_element(const mu_tensor_file *file, int i)
{
    mu_tensor *tensor = mu_tensor_file_read(file, i);
    return tensor ? mu_of(tensor) : NULL;
}

static mu_value *load_all(const mu_tensor_file *file, const char **names, mu_value **items)
{
    const int n = mu_tensor_file_count(file);
    for (int i = 0; i < n; i++) {
        names[i] = mu_tensor_file_name(file, i);
        items[i] = read_element(file, i);
        if (!items[i])
            return NULL;
    }
    return mu_map_of(n, names, items);
}

mu_value *mu_load_tensors(const char *path)
{
    if (mu__pending())
        return NULL;
    mu_pool *pool = mu_pool_open();
    mu_tensor_file *file = pool ? mu_tensor_file_open(path) : NULL;
    const size_t n = (size_t)mu_tensor_file_count(file);
    const char **names = file ? mu__calloc(n + 1, sizeof *names) : NULL;
    mu_value **items = names ? mu__calloc(n + 1, sizeof *items) : NULL;
    mu_value *map = items ? load_all(file, names, items) : NULL;
    map = mu__pool_return(pool, map);
    mu__free(names);
    mu__free(items);
    mu_pool_close(pool);
    return map;
}
