// Writes TensorFlow's checkpoints: one shard of data, then the index that makes it valid.
//
// If names are those of variables in an object graph, the graph is written too, so that tf.train.Checkpoint restores
// them. Each file appears under its name complete or not at all; a crash between the two leaves an index whose
// checksums do not fit the data.
#include "io/tensor_bundle.h"

#include "data/formats/crc32c.h"

#include <stdlib.h>

typedef struct rows {
    const mu_tensors *all;
    int *order;          // [n]: the tensors by name
    mu_table_row *items; // [n + 2]
    size_t n;
    uint64_t at; // end of the data so far
} rows;

static int by_name(const void *left, const void *right, void *names)
{
    return strcmp(((const char *const *)names)[*(const int *)left], ((const char *const *)names)[*(const int *)right]);
}

static mu_status add_row(rows *r, const char *key, uint8_t *value, size_t bytes)
{
    if (!value)
        return MU_RESOURCE_EXHAUSTED;
    r->items[r->n++] = (mu_table_row){.key = key, .value = value, .bytes = bytes};
    return MU_OK;
}

static mu_status add_header(rows *r)
{
    Mu__BundleVersion version = MU__BUNDLE_VERSION__INIT;
    Mu__BundleHeader header = MU__BUNDLE_HEADER__INIT;
    version.producer = 1;
    header.num_shards = 1;
    header.version = &version;
    const size_t bytes = mu__bundle_header__get_packed_size(&header);
    uint8_t *value = mu__alloc(bytes);
    if (value)
        mu__bundle_header__pack(&header, value);
    return add_row(r, "", value, bytes);
}

static mu_status add_entry(rows *r, const char *key, int dtype, const mu_shape *shape, uint64_t size, uint32_t crc)
{
    Mu__BundleDim dims[MU_MAX_RANK], *list[MU_MAX_RANK];
    Mu__BundleShape dimensions = MU__BUNDLE_SHAPE__INIT;
    Mu__BundleEntry entry = MU__BUNDLE_ENTRY__INIT;
    for (int d = 0; d < shape->rank; d++) {
        dims[d] = (Mu__BundleDim)MU__BUNDLE_DIM__INIT;
        dims[d].size = shape->dims[d];
        list[d] = &dims[d];
    }
    dimensions.n_dim = (size_t)shape->rank;
    dimensions.dim = list;
    entry.dtype = dtype;
    entry.shape = &dimensions;
    entry.offset = (int64_t)r->at;
    entry.size = (int64_t)size;
    entry.crc32c = mu__crc32c_mask(crc);
    const size_t bytes = mu__bundle_entry__get_packed_size(&entry);
    uint8_t *value = mu__alloc(bytes);
    if (value)
        mu__bundle_entry__pack(&entry, value);
    r->at += size;
    return add_row(r, key, value, bytes);
}

// A text in the data: its length, a checksum of that as a number of four bytes, its bytes.
static mu_status write_graph(rows *r, mu_file_writer *file, const uint8_t *graph, size_t bytes)
{
    uint8_t head[16];
    size_t n = 0;
    for (size_t left = bytes; left > 0 || n == 0; left >>= 7)
        head[n++] = (uint8_t)(left >= 128 ? left | 128 : left);
    const uint8_t number[] = {(uint8_t)bytes, (uint8_t)(bytes >> 8), (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 24)};
    uint32_t crc = mu__crc32c(0, number, sizeof number);
    const uint32_t masked = mu__crc32c_mask(crc);
    uint8_t *sum = head + n;
    for (int i = 0; i < 4; i++)
        head[n++] = (uint8_t)(masked >> 8 * i);
    crc = mu__crc32c(mu__crc32c(crc, sum, 4), graph, bytes);
    MU_TRY(mu__file_write(file, head, n));
    MU_TRY(mu__file_write(file, graph, bytes));
    return add_entry(r, MU_BUNDLE_GRAPH, MU_BUNDLE_STRING, &(mu_shape){0}, n + bytes, crc);
}

static mu_status add_graph(rows *r, mu_file_writer *file)
{
    uint8_t *graph = NULL;
    size_t bytes = 0;
    bool has_objects = false;
    for (int i = 0; i < r->all->n; i++)
        has_objects |= strstr(r->all->names[i], MU_BUNDLE_SUFFIX) != NULL;
    if (!has_objects)
        return MU_OK;
    mu_status status = mu__bundle_graph(r->all->n, r->all->names, &graph, &bytes);
    if (status == MU_OK)
        status = write_graph(r, file, graph, bytes);
    mu__free(graph);
    return status;
}

// A tensor of no strings: of each there would be its length, then comes the checksum of the lengths.
static mu_status write_no_strings(rows *r, mu_file_writer *file, const char *name, const mu_shape *shape)
{
    const uint32_t masked = mu__crc32c_mask(0);
    uint8_t sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = (uint8_t)(masked >> 8 * i);
    MU_TRY(mu__file_write(file, sum, sizeof sum));
    return add_entry(r, name, MU_BUNDLE_STRING, shape, sizeof sum, mu__crc32c(0, sum, sizeof sum));
}

static mu_status write_tensor(rows *r, mu_file_writer *file, const char *name, const mu_tensor *tensor)
{
    const mu_spec spec = mu__spec_of(tensor);
    const size_t bytes = mu__spec_bytes(&spec);
    const void *data = mu__host_read(tensor);
    if (mu__has_strings(tensor))
        return write_no_strings(r, file, name, &spec.shape);
    MU_TRY(mu__file_write(file, data, bytes));
    return add_entry(r, name, (int)spec.dtype, &spec.shape, bytes, mu__crc32c(0, data, bytes));
}

static mu_status write_data(rows *r, mu_file_writer *file)
{
    for (int i = 0; i < r->all->n; i++) {
        const char *name = r->all->names[r->order[i]];
        if (i > 0 && strcmp(name, r->all->names[r->order[i - 1]]) == 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "two tensors to save in a checkpoint are called '%s'; names must differ", name);
        if (!*name)
            return mu__error(MU_INVALID_ARGUMENT, "a tensor to save in a checkpoint has an empty name");
        MU_TRY(write_tensor(r, file, name, r->all->tensors[r->order[i]]));
    }
    return add_graph(r, file);
}

static int by_key(const void *left, const void *right)
{
    return strcmp(((const mu_table_row *)left)->key, ((const mu_table_row *)right)->key);
}

// Writes one of the two files. `fill` writes its contents.
static mu_status write_file(rows *r, const char *path, mu_status (*fill)(rows *r, mu_file_writer *file))
{
    mu_file_writer *file = path ? mu__file_create(path) : NULL;
    if (!file)
        return mu_error_code();
    const mu_status status = fill(r, file);
    if (status == MU_OK)
        return mu__file_commit(file);
    mu__file_abandon(file);
    return status;
}

static mu_status write_index(rows *r, mu_file_writer *file)
{
    qsort(r->items, r->n, sizeof *r->items, by_key);
    return mu__table_write(file, r->n, r->items);
}

static mu_status write_files(rows *r, const char *data, const char *index)
{
    for (int i = 0; i < r->all->n; i++)
        r->order[i] = i;
    qsort_r(r->order, (size_t)r->all->n, sizeof *r->order, by_name, (void *)(uintptr_t)r->all->names);
    MU_TRY(add_header(r));
    MU_TRY(write_file(r, data, write_data));
    return write_file(r, index, write_index);
}

mu_status mu__bundle_save(const char *path, const mu_tensors *all)
{
    rows r = {.all = all};
    const size_t length = strlen(path);
    const int prefix = (int)(length > 6 && strcmp(path + length - 6, ".index") == 0 ? length - 6 : length);
    char *data = mu__sprintf("%.*s.data-00000-of-00001", prefix, path);
    char *index = mu__sprintf("%.*s.index", prefix, path);
    r.order = mu__calloc((size_t)all->n + 1, sizeof *r.order);
    r.items = mu__calloc((size_t)all->n + 2, sizeof *r.items);
    const mu_status status = data && index && r.order && r.items ? write_files(&r, data, index) : mu_error_code();
    for (size_t i = 0; i < r.n; i++)
        mu__free(r.items[i].value);
    mu__free(r.items);
    mu__free(r.order);
    mu__free(data);
    mu__free(index);
    return status;
}
