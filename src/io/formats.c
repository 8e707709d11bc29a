// The formats of files with named tensors, and what is common to them: recognising, opening, reading and saving.
#include "base/temporary.h"
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

const mu_file_format *const mu__file_formats[] = {
    &mu__safetensors_format, &mu__keras_format, &mu__npz_format, &mu__hdf5_format, &mu__checkpoint_format, NULL,
};

static bool ends_with(const char *path, const char *extension)
{
    const size_t length = strlen(path), n = strlen(extension);
    return length >= n && strcmp(path + length - n, extension) == 0;
}

const mu_file_format *mu__file_format_named(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int i = 0; mu__file_formats[i]; i++)
        if (ends_with(name, mu__file_formats[i]->extension))
            return mu__file_formats[i];
    if (ends_with(name, ".hdf5") || ends_with(name, ".h5"))
        return &mu__hdf5_format;
    // A checkpoint's path is the beginning of its files' names: "model.ckpt", "model.ckpt-12".
    return strstr(name, mu__checkpoint_format.extension) || ends_with(name, ".index") ? &mu__checkpoint_format : NULL;
}

const mu_file_format *mu__file_format_of(const char *path)
{
    const mu_file_format *named = mu__file_format_named(path);
    return named ? named : mu__file_formats[0];
}

// ---- Opening ------------------------------------------------------------------------------------

static void destroy(void *object)
{
    mu_tensor_file *file = object;
    if (file->format && file->format->close && file->state)
        file->format->close(file);
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

mu_status mu__file_open_regular(const char *path, int *fd, uint64_t *bytes)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return mu__error(mu__errno_code(errno), "cannot open the tensor file %s: %s", path, strerror(errno));
    if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode))
        return mu__error(MU_FAILED_PRECONDITION, "%s is not a regular file; expected a file of tensors", path);
    *bytes = (uint64_t)info.st_size;
    return MU_OK;
}

mu_status mu__file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t bytes)
{
    char *to = out;
    size_t left = bytes;
    while (left > 0) {
        const ssize_t got = pread(fd, to, left, (off_t)(offset + bytes - left));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mu__error(mu__errno_code(errno), "cannot read %s at byte %" PRIu64 ": %s", path,
                             offset + bytes - left, strerror(errno));
        if (got == 0)
            return mu__error(
                MU_DATA_LOSS,
                "%s ends at byte %" PRIu64
                ", %zu bytes before the end of what its header promises; it is truncated, fetch or save it again",
                path, offset + bytes - left, left);
        to += got;
        left -= (size_t)got;
    }
    return MU_OK;
}

mu_status mu__file_add_entry(mu_tensor_file *file, mu_file_entry entry)
{
    const mu_status status = MU_PUSH(&file->entries, entry);
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

mu_status mu__file_add_metadata(mu_tensor_file *file, const char *key, const char *text)
{
    MU_TRY(push_text(file, key));
    return push_text(file, text);
}

bool mu__spec_file_bytes(const mu_spec *spec, uint64_t *bytes)
{
    bool empty = false;
    *bytes = mu_dtype_bytes(spec->dtype);
    for (int d = 0; d < spec->shape.rank; d++) {
        const int64_t dim = spec->shape.dims[d];
        empty |= dim == 0;
        if (dim < 0 || __builtin_mul_overflow(*bytes, (uint64_t)MU_MAX(dim, 1), bytes) || *bytes > INT64_MAX)
            return false;
    }
    *bytes = empty ? 0 : *bytes;
    return true;
}

// The format by the first bytes of the file; by its name if there is no file, or if no format has these bytes.
static const mu_file_format *format_by_contents(const char *path)
{
    uint8_t head[MU_FILE_HEAD];
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mu__file_format_of(path);
    const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    const ssize_t got = regular ? pread(fd, head, sizeof head, 0) : 0;
    close(fd);
    for (int i = 0; got > 0 && mu__file_formats[i]; i++)
        if (mu__file_formats[i]->recognise && mu__file_formats[i]->recognise(head, (size_t)got))
            return mu__file_formats[i];
    return regular ? mu__file_format_of(path) : mu__file_formats[0];
}

// A checkpoint of TensorFlow is named by the beginning of its files' names, and its index need not say ".ckpt".
static const mu_file_format *format_to_open(const char *path)
{
    char *index = mu__sprintf("%s.index", path);
    const bool is_checkpoint = index && access(path, F_OK) != 0 && access(index, F_OK) == 0;
    mu__free(index);
    return is_checkpoint ? &mu__checkpoint_format : format_by_contents(path);
}

mu_tensor_file *mu__tensor_file_open(const char *path)
{
    if (mu__pending())
        return NULL;
    if (!path) {
        mu__error(MU_INVALID_ARGUMENT, "the path of a tensor file is NULL; give the name of a file of tensors");
        return NULL;
    }
    mu_tensor_file *file = mu__new(&mu__tensor_file_type, sizeof *file);
    if (!file)
        return NULL;
    file->fd = -1;
    file->path = mu__strdup(path);
    file->format = file->path ? format_to_open(path) : NULL;
    if (file->format && file->format->open(file) == MU_OK)
        return file;
    mu_release(file);
    return NULL;
}

void mu__tensor_file_sweep(const char *path)
{
    static const char index[] = ".index";
    const size_t length = strlen(path), end = sizeof index - 1;
    const bool is_index = length > end && strcmp(path + length - end, index) == 0;
    char *prefix = mu__sprintf("%.*s", (int)(is_index ? length - end : length), path);
    if (prefix)
        mu__temporary_sweep_parts(prefix);
    mu__free(prefix);
}

// ---- Saving -------------------------------------------------------------------------------------

static bool holds_strings(const mu_file_format *format, const mu_tensor *tensor)
{
    return format->no_strings && mu__has_strings(tensor) && mu__elements(&tensor->shape) == 0;
}

static mu_status check_tensors(const mu_file_format *format, const char *path, const mu_tensors *all)
{
    for (int i = 0; i < all->n; i++) {
        if (!all->names[i] || !all->tensors[i])
            return mu__error(MU_INVALID_ARGUMENT, "tensor %d of %d to save in %s has no %s", i, all->n, path,
                             all->names[i] ? "value" : "name");
        if (holds_strings(format, all->tensors[i]))
            continue;
        if (mu__has_strings(all->tensors[i]))
            return mu__error(MU_UNIMPLEMENTED,
                             "tensor '%s' to save in %s has strings, which files of tensors do not hold here",
                             all->names[i], path);
        if (!mu_tensor_data(all->tensors[i]))
            return mu__pending()
                       ? mu_error_code()
                       : mu__error(MU_FAILED_PRECONDITION, "tensor %s has no elements to save", all->names[i]);
    }
    return MU_OK;
}

static bool holds(const mu_file_format *format, const char *key)
{
    for (int i = 0; format->metadata && format->metadata[i]; i++) {
        const char *known = format->metadata[i];
        const size_t n = strlen(known);
        if (n > 0 && known[n - 1] == '/' ? strncmp(known, key, n) == 0 : strcmp(known, key) == 0)
            return true;
    }
    return !format->metadata;
}

static mu_status check_metadata(const char *path, const mu_file_format *format, const char *const *metadata)
{
    for (int i = 0; metadata && metadata[i]; i += 2) {
        if (!metadata[i + 1])
            return mu__error(MU_INVALID_ARGUMENT,
                             "metadata key '%s' for %s has no text; alternate keys and texts, and end with NULL",
                             metadata[i], path);
        if (!holds(format, metadata[i]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: a file of the format %s cannot hold the metadata '%s'; save it as %s", path,
                             format->name, metadata[i], mu__file_formats[0]->extension);
    }
    return MU_OK;
}

const char *mu__tensors_metadata(const mu_tensors *all, const char *key)
{
    for (int i = 0; all->metadata && all->metadata[i]; i += 2)
        if (strcmp(all->metadata[i], key) == 0)
            return all->metadata[i + 1];
    return NULL;
}

mu_status mu__tensors_save_as(const mu_file_format *format, const char *path, const mu_tensors *all)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(check_tensors(format, path, all));
    MU_TRY(check_metadata(path, format, all->metadata));
    return format->save(path, all);
}

mu_status mu__tensors_save(const char *path, int n, const char *const *names, mu_tensor *const *tensors,
                           const char *const *metadata)
{
    const mu_tensors all = {.n = n, .names = names, .tensors = tensors, .metadata = metadata};
    return mu__tensors_save_as(mu__file_format_of(path), path, &all);
}

// ---- The public functions -----------------------------------------------------------------------

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
    if (entry->end == entry->begin || file->format->read(file, entry, mu__host_write(tensor)) == MU_OK)
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
    return file && name && file->format->find ? file->format->find(file, name) : -1;
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
