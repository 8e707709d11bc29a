// Reads TensorFlow's checkpoints: the index at once, elements from the shards on demand.
//
// Names of shards follow from the checkpoint's own, none is read from the file. Each tensor's checksum is verified. A
// variable that was partitioned is put together from its slices. Texts other than the object graph are left out.
#include "io/tensor_bundle.h"

#include "data/formats/crc32c.h"

#include <fcntl.h>
#include <unistd.h>

enum { MOST_SHARDS = 10000, SLICED = 1 << 30, MOST_GRAPH = 1 << 28 };

// Part of a partitioned tensor: where its elements are, and where they belong.
typedef struct part {
    mu_file_entry at;
    int64_t start[MU_MAX_RANK];
} part;

// A slice as the index has it, under an encoded name; `used` by its tensor.
typedef struct raw_slice {
    uint8_t *key;
    size_t key_bytes;
    mu_file_entry at;
} raw_slice;

typedef struct bundle {
    char *prefix;
    int n_shards;
    uint64_t *shard_bytes; // [n_shards]
    uint64_t all_bytes;
    Mu__BundleGraph *graph; // NULL: the checkpoint has none
    mu_file_entry graph_at;
    bool has_header;
    struct {
        raw_slice *items;
        size_t n, capacity;
    } slices;
    struct {
        part *items;
        size_t n, capacity;
    } parts;
    // of entries whose part is SLICED + i: their first part and how many there are
    struct {
        uint32_t *items;
        size_t n, capacity;
    } sliced;
} bundle;

static void close_bundle(mu_tensor_file *file)
{
    bundle *b = file->state;
    for (size_t i = 0; i < b->slices.n; i++)
        mu__free(b->slices.items[i].key);
    if (b->graph)
        mu__bundle_graph__free_unpacked(b->graph, NULL);
    mu__free(b->slices.items);
    mu__free(b->parts.items);
    mu__free(b->sliced.items);
    mu__free(b->shard_bytes);
    mu__free(b->prefix);
    mu__free(b);
}

static mu_status damaged(const mu_tensor_file *file, const char *name, const char *what)
{
    return mu__error(MU_DATA_LOSS, "the checkpoint %s%s%.200s: %s; is it whole?", file->path, *name ? ", " : "", name,
                     what);
}

// ---- Shards -------------------------------------------------------------------------------------

static char *shard_path(const bundle *b, int shard)
{
    return mu__sprintf("%s.data-%05d-of-%05d", b->prefix, shard, b->n_shards);
}

static mu_status open_shard(const bundle *b, int shard, char **path, int *fd, uint64_t *bytes)
{
    *fd = -1;
    *path = shard_path(b, shard);
    return *path ? mu__file_open_regular(*path, fd, bytes) : mu_error_code();
}

static mu_status read_header(mu_tensor_file *file, const uint8_t *value, size_t value_bytes)
{
    bundle *b = file->state;
    Mu__BundleHeader *header = mu__bundle_header__unpack(NULL, value_bytes, value);
    const int shards = header ? header->num_shards : 0;
    const bool is_big = header && header->endianness != 0;
    if (header)
        mu__bundle_header__free_unpacked(header, NULL);
    if (shards < 1 || shards > MOST_SHARDS)
        return damaged(file, "", "the header of the index does not say how many shards there are");
    if (is_big)
        return mu__error(MU_UNIMPLEMENTED, "the checkpoint %s is big-endian; save it on a little-endian machine",
                         file->path);
    b->has_header = true;
    b->n_shards = shards;
    b->shard_bytes = mu__calloc((size_t)shards, sizeof *b->shard_bytes);
    mu_status status = b->shard_bytes ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < shards; i++) {
        char *path;
        int fd;
        status = open_shard(b, i, &path, &fd, &b->shard_bytes[i]);
        b->all_bytes += b->shard_bytes[i];
        mu__free(path);
        if (fd >= 0)
            close(fd);
    }
    return status;
}

// ---- Entries ------------------------------------------------------------------------------------

static mu_status spec_of(const mu_tensor_file *file, const char *name, const Mu__BundleEntry *entry, mu_spec *spec)
{
    const size_t rank = entry->shape ? entry->shape->n_dim : 0;
    *spec = (mu_spec){.dtype = (mu_dtype)entry->dtype};
    if (rank > MU_MAX_RANK || (entry->shape && entry->shape->unknown_rank))
        return mu__error(MU_UNIMPLEMENTED, "'%.200s' in the checkpoint %s has %zu dimensions; Muster has at most %d",
                         name, file->path, rank, MU_MAX_RANK);
    spec->shape.rank = (int)rank;
    for (size_t d = 0; d < rank; d++)
        spec->shape.dims[d] = entry->shape->dim[d]->size;
    return MU_OK;
}

// Where an entry's elements are; false if they are not in a shard, or `bytes` is not their size.
static bool location_of(const bundle *b, const Mu__BundleEntry *entry, uint64_t bytes, mu_file_entry *out)
{
    const uint64_t size = (uint64_t)entry->size, offset = (uint64_t)entry->offset;
    if (entry->shard_id < 0 || entry->shard_id >= b->n_shards || entry->size < 0 || entry->offset < 0 ||
        size != bytes || size > b->shard_bytes[entry->shard_id] || offset > b->shard_bytes[entry->shard_id] - size)
        return false;
    out->part = (uint32_t)entry->shard_id;
    out->begin = offset;
    out->end = offset + size;
    out->crc = entry->crc32c;
    return true;
}

// ---- Slices -------------------------------------------------------------------------------------

// TensorFlow's ordered code of a signed number: from 1 to 10 bytes whose order is that of the numbers.
static size_t encode_signed(int64_t value, uint8_t out[10])
{
    static const uint8_t heads[11][2] = {{0, 0},    {0x80, 0}, {0xc0, 0}, {0xe0, 0},    {0xf0, 0},   {0xf8, 0},
                                         {0xfc, 0}, {0xfe, 0}, {0xff, 0}, {0xff, 0x80}, {0xff, 0xc0}};
    const uint64_t magnitude = value < 0 ? ~(uint64_t)value : (uint64_t)value;
    const int bits = magnitude ? 64 - __builtin_clzll(magnitude) : 0;
    const int length = bits / 7 + 1;
    for (int i = 0; i < length; i++) {
        const int shift = 8 * (length - 1 - i);
        out[i] = shift > 56 ? (value < 0 ? 0xff : 0) : (uint8_t)((uint64_t)value >> shift);
    }
    out[0] ^= heads[length][0];
    if (length > 1)
        out[1] ^= heads[length][1];
    return (size_t)length;
}

typedef struct bytes {
    uint8_t *items;
    size_t n, capacity;
} bytes;

static mu_status put(bytes *to, const uint8_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        MU_TRY(MU_PUSH(to, from[i]));
    return MU_OK;
}

// The key under which the index has a slice: 0, the name, the rank, then start and length of each axis.
static mu_status slice_key(const char *name, const Mu__BundleSlice *slice, bytes *key)
{
    uint8_t code[10];
    MU_TRY(put(key, (const uint8_t *)"", 1));
    for (; *name; name++) {
        MU_TRY(put(key, (const uint8_t *)name, 1));
        if ((uint8_t)*name == 0xff)
            MU_TRY(put(key, (const uint8_t *)"", 1));
    }
    MU_TRY(put(key, (const uint8_t *)"\0\1", 2));
    const uint8_t rank[] = {1, (uint8_t)slice->n_extent};
    MU_TRY(put(key, rank, slice->n_extent > 0 ? 2 : 1));
    for (size_t d = 0; d < slice->n_extent; d++) {
        const Mu__BundleExtent *extent = slice->extent[d];
        const bool whole = extent->has_length_case != MU__BUNDLE_EXTENT__HAS_LENGTH_LENGTH;
        MU_TRY(put(key, code, encode_signed(extent->start, code)));
        MU_TRY(put(key, code, encode_signed(whole ? -1 : extent->length, code)));
    }
    return MU_OK;
}

static const raw_slice *find_slice(const bundle *b, const bytes *key)
{
    for (size_t i = 0; i < b->slices.n; i++)
        if (b->slices.items[i].key_bytes == key->n && memcmp(b->slices.items[i].key, key->items, key->n) == 0)
            return &b->slices.items[i];
    return NULL;
}

// Start and length of a slice on each axis of the whole; false if it is not inside.
static bool slice_extents(const mu_spec *whole, const Mu__BundleSlice *slice, int64_t *start, mu_spec *spec)
{
    *spec = *whole;
    if (slice->n_extent != (size_t)whole->shape.rank)
        return false;
    for (int d = 0; d < whole->shape.rank; d++) {
        const Mu__BundleExtent *extent = slice->extent[d];
        const bool all = extent->has_length_case != MU__BUNDLE_EXTENT__HAS_LENGTH_LENGTH;
        start[d] = all ? 0 : extent->start;
        spec->shape.dims[d] = all ? whole->shape.dims[d] : extent->length;
        if (start[d] < 0 || spec->shape.dims[d] < 0 || start[d] > whole->shape.dims[d] ||
            spec->shape.dims[d] > whole->shape.dims[d] - start[d])
            return false;
    }
    return true;
}

static mu_status add_part(mu_tensor_file *file, const char *name, const mu_spec *whole, const Mu__BundleSlice *slice,
                          uint64_t *covered)
{
    bundle *b = file->state;
    part p = {0};
    uint64_t size = 0;
    bytes key = {0};
    if (!slice_extents(whole, slice, p.start, &p.at.spec) || !mu__spec_file_bytes(&p.at.spec, &size))
        return damaged(file, name, "a slice is not inside of the tensor");
    mu_status status = slice_key(name, slice, &key);
    const raw_slice *found = status == MU_OK ? find_slice(b, &key) : NULL;
    mu__free(key.items);
    MU_TRY(status);
    if (!found || found->at.end - found->at.begin != size)
        return damaged(file, name, "a slice has no entry, or one of another size");
    p.at.part = found->at.part;
    p.at.begin = found->at.begin;
    p.at.end = found->at.end;
    p.at.crc = found->at.crc;
    *covered += size;
    return MU_PUSH(&b->parts, p);
}

// The slices of one tensor do not overlap, so those that are all inside and have its size cover it.
static bool overlap(const part *a, const part *b)
{
    for (int d = 0; d < a->at.spec.shape.rank; d++)
        if (a->start[d] + a->at.spec.shape.dims[d] <= b->start[d] ||
            b->start[d] + b->at.spec.shape.dims[d] <= a->start[d])
            return false;
    return true;
}

static mu_status add_sliced(mu_tensor_file *file, const char *name, const Mu__BundleEntry *entry, mu_file_entry *out,
                            uint64_t wanted)
{
    bundle *b = file->state;
    uint64_t covered = 0;
    const uint32_t first = (uint32_t)b->parts.n, number = (uint32_t)(b->sliced.n / 2);
    for (size_t i = 0; i < entry->n_slices; i++)
        MU_TRY(add_part(file, name, &out->spec, entry->slices[i], &covered));
    for (size_t i = first; i < b->parts.n; i++)
        for (size_t k = first; k < i; k++)
            if (overlap(&b->parts.items[i], &b->parts.items[k]))
                return damaged(file, name, "two slices overlap");
    if (covered != wanted)
        return damaged(file, name, "the slices do not make up the tensor");
    const uint32_t count = (uint32_t)b->parts.n - first;
    MU_TRY(MU_PUSH(&b->sliced, first));
    MU_TRY(MU_PUSH(&b->sliced, count));
    out->part = SLICED + number;
    out->begin = 0;
    out->end = wanted;
    return MU_OK;
}

static mu_status add_raw_slice(bundle *b, const uint8_t *key, size_t key_bytes, const Mu__BundleEntry *entry)
{
    raw_slice slice = {.key_bytes = key_bytes};
    if (entry->size < 0 || !location_of(b, entry, (uint64_t)entry->size, &slice.at))
        return MU_OK; // it is missing when its tensor looks for it
    if (!(slice.key = mu__alloc(key_bytes)))
        return mu_error_code();
    memcpy(slice.key, key, key_bytes);
    const mu_status status = MU_PUSH(&b->slices, slice);
    if (status != MU_OK)
        mu__free(slice.key);
    return status;
}

// ---- The index ----------------------------------------------------------------------------------

static mu_status add_tensor(mu_tensor_file *file, const char *name, const Mu__BundleEntry *entry)
{
    bundle *b = file->state;
    mu_file_entry out = {0};
    uint64_t size = 0;
    if (entry->dtype == MU_BUNDLE_STRING) {
        if (strcmp(name, MU_BUNDLE_GRAPH) == 0 && location_of(b, entry, (uint64_t)entry->size, &out))
            b->graph_at = out;
        return MU_OK;
    }
    if (!mu__dtype_ok((mu_dtype)entry->dtype))
        return mu__error(MU_UNIMPLEMENTED,
                         "'%.200s' in the checkpoint %s has TensorFlow's element type %d, which Muster does not have",
                         name, file->path, entry->dtype);
    MU_TRY(spec_of(file, name, entry, &out.spec));
    if (!mu__spec_file_bytes(&out.spec, &size))
        return damaged(file, name, "the product of the dimensions does not fit 63 bits");
    if (entry->n_slices > 0)
        MU_TRY(add_sliced(file, name, entry, &out, size));
    else if (!location_of(b, entry, size, &out))
        return damaged(file, name, "its elements are not in a shard");
    file->data_bytes += size;
    if (file->data_bytes > b->all_bytes)
        return damaged(file, name, "tensors share their elements");
    return (out.name = mu__strdup(name)) ? mu__file_add_entry(file, out) : mu_error_code();
}

static mu_status read_entry(mu_tensor_file *file, const uint8_t *key, size_t key_bytes, const Mu__BundleEntry *entry)
{
    bundle *b = file->state;
    char name[4097];
    if (key[0] == 0)
        return add_raw_slice(b, key, key_bytes, entry);
    if (key_bytes >= sizeof name || memchr(key, 0, key_bytes))
        return damaged(file, "", "a name is too long, or not a text");
    memcpy(name, key, key_bytes);
    name[key_bytes] = '\0';
    if (file->entries.n > 0 && strcmp(file->entries.items[file->entries.n - 1].name, name) >= 0)
        return damaged(file, name, "the names of the index are not in order");
    return add_tensor(file, name, entry);
}

static mu_status read_row(void *arg, const uint8_t *key, size_t key_bytes, const uint8_t *value, size_t value_bytes)
{
    mu_tensor_file *file = arg;
    bundle *b = file->state;
    if (key_bytes == 0 && !b->has_header)
        return read_header(file, value, value_bytes);
    if (!b->has_header || key_bytes == 0)
        return damaged(file, "", "the index does not begin with its header");
    Mu__BundleEntry *entry = mu__bundle_entry__unpack(NULL, value_bytes, value);
    if (!entry)
        return damaged(file, "", "an entry of the index is not a protocol buffer of a BundleEntryProto");
    const mu_status status = read_entry(file, key, key_bytes, entry);
    mu__bundle_entry__free_unpacked(entry, NULL);
    return status;
}

// ---- Elements -----------------------------------------------------------------------------------

static mu_status read_elements(const mu_tensor_file *file, const mu_file_entry *at, void *out, uint32_t *crc)
{
    char *path = NULL;
    int fd = -1;
    uint64_t size;
    mu_status status = open_shard(file->state, (int)at->part, &path, &fd, &size);
    if (status == MU_OK)
        status = mu__file_read_at(fd, path, at->begin, out, (size_t)(at->end - at->begin));
    if (fd >= 0)
        close(fd);
    mu__free(path);
    *crc = status == MU_OK ? mu__crc32c(0, out, (size_t)(at->end - at->begin)) : 0;
    return status;
}

static mu_status read_checked(const mu_tensor_file *file, const char *name, const mu_file_entry *at, void *out)
{
    uint32_t crc;
    MU_TRY(read_elements(file, at, out, &crc));
    return mu__crc32c_mask(crc) == at->crc ? MU_OK : damaged(file, name, "the checksum of its elements does not fit");
}

// Copies a part's elements, row by row, to their offsets in the whole.
static void copy_part(const mu_spec *whole, const part *p, const uint8_t *from, uint8_t *out)
{
    const int rank = whole->shape.rank;
    const size_t element = mu_dtype_bytes(whole->dtype);
    const int64_t row = rank > 0 ? p->at.spec.shape.dims[rank - 1] : 1;
    int64_t index[MU_MAX_RANK] = {0}, rows = 1;
    for (int d = 0; d + 1 < rank; d++)
        rows *= p->at.spec.shape.dims[d];
    for (int64_t r = 0; row > 0 && r < rows; r++) {
        int64_t row_at = 0;
        for (int d = 0; d < rank; d++)
            row_at = row_at * whole->shape.dims[d] + p->start[d] + index[d];
        memcpy(out + (size_t)row_at * element, from, (size_t)row * element);
        from += (size_t)row * element;
        for (int d = rank - 2; d >= 0 && ++index[d] == p->at.spec.shape.dims[d]; d--)
            index[d] = 0;
    }
}

static mu_status read_parts(const mu_tensor_file *file, const mu_file_entry *entry, void *out)
{
    const bundle *b = file->state;
    const uint32_t *range = &b->sliced.items[2 * (size_t)(entry->part - SLICED)];
    mu_status status = MU_OK;
    for (uint32_t i = range[0]; status == MU_OK && i < range[0] + range[1]; i++) {
        const part *p = &b->parts.items[i];
        uint8_t *elements = mu__alloc((size_t)(p->at.end - p->at.begin) + 1);
        status = elements ? read_checked(file, entry->name, &p->at, elements) : MU_RESOURCE_EXHAUSTED;
        if (status == MU_OK)
            copy_part(&entry->spec, p, elements, out);
        mu__free(elements);
    }
    return status;
}

static mu_status read_tensor(const mu_tensor_file *file, const mu_file_entry *entry, void *out)
{
    MU_TRY(entry->part >= SLICED ? read_parts(file, entry, out) : read_checked(file, entry->name, entry, out));
    for (uint64_t i = 0; entry->spec.dtype == MU_BOOL && i < entry->end - entry->begin; i++)
        ((uint8_t *)out)[i] = ((uint8_t *)out)[i] != 0;
    return MU_OK;
}

// ---- The object graph ---------------------------------------------------------------------------

// The graph is one text: its length, a checksum of that, and its bytes. The checksum of the whole counts the length as
// a number of four bytes.
static mu_status unpack_graph(mu_tensor_file *file, const uint8_t *data, size_t size)
{
    bundle *b = file->state;
    mu_cursor c = mu__cursor(data, size);
    const uint64_t length = mu__cursor_varint(&c);
    const uint8_t number[] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16),
                              (uint8_t)(length >> 24)};
    const uint8_t *sum = mu__cursor_bytes(&c, 4);
    if (c.bad || length != mu__cursor_left(&c))
        return damaged(file, "", "the object graph is cut off");
    uint32_t crc = mu__crc32c(0, number, sizeof number);
    mu_cursor stored = mu__cursor(sum, 4);
    if (mu__cursor_u32_little(&stored) != mu__crc32c_mask(crc))
        return damaged(file, "", "the checksum of the object graph's length does not fit");
    crc = mu__crc32c(mu__crc32c(crc, sum, 4), c.at, (size_t)length);
    if (mu__crc32c_mask(crc) != b->graph_at.crc)
        return damaged(file, "", "the checksum of the object graph does not fit");
    b->graph = mu__bundle_graph__unpack(NULL, (size_t)length, c.at);
    return b->graph ? MU_OK : damaged(file, "", "the object graph is not a protocol buffer of a TrackableObjectGraph");
}

static mu_status read_graph(mu_tensor_file *file)
{
    bundle *b = file->state;
    const uint64_t size = b->graph_at.end - b->graph_at.begin;
    uint32_t crc;
    if (size == 0)
        return MU_OK;
    if (size > MOST_GRAPH)
        return damaged(file, "", "the object graph is larger than any checkpoint's");
    uint8_t *data = mu__alloc((size_t)size);
    mu_status status = data ? read_elements(file, &b->graph_at, data, &crc) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = unpack_graph(file, data, (size_t)size);
    mu__free(data);
    return status;
}

static int entry_named(const mu_tensor_file *file, const char *name)
{
    size_t low = 0, high = file->entries.n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const int order = strcmp(file->entries.items[middle].name, name);
        if (order == 0)
            return (int)middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

// A path of attributes, with or without the end that the keys of variables have.
static int find(const mu_tensor_file *file, const char *name)
{
    const bundle *b = file->state;
    const char *end = strstr(name, MU_BUNDLE_SUFFIX);
    char *path = mu__sprintf("%.*s", end ? (int)(end - name) : (int)strlen(name), name);
    char *key = path ? mu__sprintf("%s%s", path, MU_BUNDLE_SUFFIX) : NULL;
    int found = key ? entry_named(file, key) : -1;
    const char *other = found < 0 && path && b->graph ? mu__bundle_find(b->graph, path) : NULL;
    if (other)
        found = entry_named(file, other);
    mu__free(path);
    mu__free(key);
    return found;
}

// ---- The format ---------------------------------------------------------------------------------

static mu_status open_bundle(mu_tensor_file *file)
{
    void *data = NULL;
    size_t size = 0;
    bundle *b = file->state = mu__calloc(1, sizeof *b);
    const size_t length = strlen(file->path);
    const bool is_index = length > 6 && strcmp(file->path + length - 6, ".index") == 0;
    if (!b || !(b->prefix = mu__sprintf("%.*s", (int)(is_index ? length - 6 : length), file->path)))
        return mu_error_code();
    char *index = mu__sprintf("%s.index", b->prefix);
    mu_status status = index ? mu__file_read(index, MU_TENSOR_FILE_LIMIT, &data, &size) : mu_error_code();
    if (status == MU_OK)
        status = mu__table_each(index, data, size, read_row, file);
    if (status == MU_OK && !b->has_header)
        status = damaged(file, "", "the index has no header");
    if (status == MU_OK)
        status = read_graph(file);
    mu__free(index);
    mu__free(data);
    return status;
}

static const char *const no_metadata[] = {NULL};

const mu_file_format mu__checkpoint_format = {
    .name = "checkpoint",
    .extension = ".ckpt",
    .text = "TensorFlow's checkpoint, PREFIX.index and its data",
    .names = MU_NAMES_OBJECTS,
    .metadata = no_metadata,
    .no_strings = true,
    .open = open_bundle,
    .close = close_bundle,
    .read = read_tensor,
    .find = find,
    .save = mu__bundle_save,
};
