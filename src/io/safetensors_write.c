// Writes safetensors files: eight bytes of header length, a JSON header, the tensors' bytes.
//
// The header keeps the caller's order of names; the data is ordered by falling element size, so that every tensor is
// aligned to its elements, and the header is padded so that the data starts at a cache line. All output goes through
// base's atomic writer.
#include "io/io.h"

#include <jansson.h>

enum { DATA_ALIGNMENT = 64 };

// The state of one write: the caller's arrays and the offset of each tensor's bytes.
typedef struct layout {
    int n;
    const char *const *names;
    mu_tensor *const *tensors;
    uint64_t *begin;
    int *order; // order of the tensors' data in the file
} layout;

static mu_status out_of_memory(const char *path)
{
    return mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the header of %s; close other programs and save again",
                     path);
}

// Assigns the offsets of the data: one pass for each element size, from 8 bytes down.
static void place(layout *l)
{
    uint64_t at = 0;
    int placed = 0;
    for (size_t size = 8; size > 0; size /= 2)
        for (int i = 0; i < l->n; i++) {
            const mu_spec spec = mu__spec_of(l->tensors[i]);
            if (mu_dtype_bytes(spec.dtype) != size)
                continue;
            l->order[placed++] = i;
            l->begin[i] = at;
            at += mu__spec_bytes(&spec);
        }
}

static json_t *entry_json(const mu_tensor *tensor, uint64_t begin)
{
    const mu_spec spec = mu__spec_of(tensor);
    json_t *dims = json_array();
    for (int d = 0; d < spec.shape.rank; d++)
        if (json_array_append_new(dims, json_integer(spec.shape.dims[d])) != 0) {
            json_decref(dims);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", mu__dtype_safetensors(spec.dtype), "shape", dims, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + mu__spec_bytes(&spec)));
}

static mu_status add_metadata(json_t *header, const char *path, const char *const *metadata)
{
    if (!metadata || mu__texts_end(metadata[0]))
        return MU_OK;
    json_t *map = json_object();
    for (int i = 0; !mu__texts_end(metadata[i]); i += 2) {
        if (mu__texts_end(metadata[i + 1])) {
            json_decref(map);
            return mu__error(MU_INVALID_ARGUMENT,
                             "metadata key '%s' for %s has no text; alternate keys and texts, and end with NULL",
                             metadata[i], path);
        }
        json_t *text = json_string(metadata[i + 1]);
        if (!text || json_object_set_new(map, metadata[i], text) != 0) {
            json_decref(map);
            return mu__error(MU_INVALID_ARGUMENT, "metadata '%s' for %s is not UTF-8", metadata[i], path);
        }
    }
    return json_object_set_new(header, "__metadata__", map) == 0 ? MU_OK : out_of_memory(path);
}

static mu_status add_entries(json_t *header, const char *path, const layout *l)
{
    for (int i = 0; i < l->n; i++) {
        if (strcmp(l->names[i], "__metadata__") == 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "tensor %d to save in %s is called '__metadata__', which safetensors keeps for itself; "
                             "give it another name",
                             i, path);
        if (json_object_get(header, l->names[i]))
            return mu__error(MU_INVALID_ARGUMENT, "two tensors to save in %s are called '%s'; names must differ", path,
                             l->names[i]);
        json_t *entry = entry_json(l->tensors[i], l->begin[i]);
        if (!entry)
            return out_of_memory(path);
        if (json_object_set_new(header, l->names[i], entry) != 0)
            return mu__error(MU_INVALID_ARGUMENT, "the name of tensor %d to save in %s is not UTF-8", i, path);
    }
    return MU_OK;
}

static mu_status write_header(mu_file_writer *file, const char *path, const char *text)
{
    static const char spaces[DATA_ALIGNMENT] = "                                                               ";
    uint8_t prefix[8];
    const size_t length = strlen(text);
    const size_t padding = (DATA_ALIGNMENT - (sizeof prefix + length) % DATA_ALIGNMENT) % DATA_ALIGNMENT;
    const uint64_t header_bytes = length + padding;
    if (header_bytes > MU_SAFETENSORS_HEADER_LIMIT)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the names and shapes for %s take %llu bytes, the format allows %u; use several files", path,
                         (unsigned long long)header_bytes, MU_SAFETENSORS_HEADER_LIMIT);
    for (size_t i = 0; i < sizeof prefix; i++)
        prefix[i] = (uint8_t)(header_bytes >> 8 * i);
    MU_TRY(mu__file_write(file, prefix, sizeof prefix));
    MU_TRY(mu__file_write(file, text, length));
    return mu__file_write(file, spaces, padding);
}

static mu_status write_file(const char *path, const char *header, const layout *l)
{
    mu_file_writer *file = mu__file_create(path);
    if (!file)
        return mu_error_code();
    mu_status status;
    MU_GO(write_header(file, path, header));
    for (int i = 0; i < l->n; i++) {
        const mu_tensor *tensor = l->tensors[l->order[i]];
        const mu_spec spec = mu__spec_of(tensor);
        MU_GO(mu__file_write(file, mu__host_read(tensor), mu__spec_bytes(&spec)));
    }
    return mu__file_commit(file);
out:
    mu__file_abandon(file);
    return status;
}

static mu_status save(const char *path, layout *l, const char *const *metadata)
{
    json_t *header = json_object();
    char *text = NULL;
    mu_status status;
    if (!header) {
        status = out_of_memory(path);
        goto out;
    }
    place(l);
    MU_GO(add_metadata(header, path, metadata));
    MU_GO(add_entries(header, path, l));
    text = json_dumps(header, JSON_COMPACT);
    status = text ? write_file(path, text, l) : out_of_memory(path);
out:
    free(text);
    json_decref(header);
    return status;
}

mu_status mu__safetensors_save(const char *path, const mu_tensors *all)
{
    layout l = {.n = all->n, .names = all->names, .tensors = all->tensors};
    l.begin = mu__calloc((size_t)l.n + 1, sizeof *l.begin);
    l.order = mu__calloc((size_t)l.n + 1, sizeof *l.order);
    const mu_status status = l.begin && l.order ? save(path, &l, all->metadata) : mu_error_code();
    mu__free(l.begin);
    mu__free(l.order);
    return status;
}
