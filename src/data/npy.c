// NumPy's formats: .npy (a header in Python's notation, then the elements) and .npz (a zip archive of them).
//
// Numbers from the file are checked against the file's size before memory is allocated for them. Big-endian elements
// are byte-swapped; Fortran order is an error. Elements become tensors, and these the rows.
#include "data/dataset.h"
#include "data/npy.h"
#include "data/file_stream.h"

#include <ctype.h>
#include <zlib.h>

#define MOST_FILE_BYTES ((size_t)1 << 40)
#define MOST_DEFLATE_RATIO 1032
#define MOST_ARRAYS 4096

// ---- The header of an array ---------------------------------------------------------------------

typedef struct npy_header {
    mu_spec spec;
    bool swapped;       // big-endian
    const uint8_t *data;
    size_t bytes;
} npy_header;

static mu_status damaged(const char *name, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s: %s; is it a NumPy file, and whole?", name, what);
}

// The value of a key in the header's dictionary: the text after 'key': .
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (at == NULL)
        return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    return *at == ':' ? at + 1 + strspn(at + 1, " ") : NULL;
}

static const struct {
    const char code[3];
    mu_dtype dtype;
} types[] = {{"f4", MU_F32}, {"f8", MU_F64}, {"f2", MU_F16}, {"i4", MU_I32}, {"i8", MU_I64},
             {"i2", MU_I16}, {"i1", MU_I8},  {"u1", MU_U8},  {"b1", MU_BOOL}};

static mu_status parse_type(const char *name, const char *text, npy_header *header)
{
    if (text == NULL || (*text != '\'' && *text != '"'))
        return damaged(name, "the header has no 'descr'");
    char order = text[1];
    for (size_t i = 0; i < MU_COUNT(types) && order != 0; i++)
        if (strncmp(text + 2, types[i].code, 2) == 0 && text[4] == text[0] && strchr("<>|=", order) != NULL) {
            header->spec.dtype = types[i].dtype;
            header->swapped = order == '>';
            return MU_OK;
        }
    return mu__error(
        MU_UNIMPLEMENTED,
        "%s: elements of type %.12s; Muster reads floats of 2, 4, 8 bytes, integers of 1, 2, 4, 8, uint8 and bool",
        name, text);
}

static mu_status parse_shape(const char *name, const char *text, mu_shape *shape)
{
    if (text == NULL || *text++ != '(')
        return damaged(name, "the header has no 'shape'");
    for (;;) {
        text += strspn(text, ", ");
        if (*text == ')')
            return mu__shape_check(shape, name);
        int64_t dim = 0;
        if (!isdigit((unsigned char)*text))
            return damaged(name, "the shape is not a list of numbers");
        for (; isdigit((unsigned char)*text); text++) {
            if (dim > (INT64_MAX - 9) / 10)
                return damaged(name, "a dimension is too large");
            dim = dim * 10 + (*text - '0');
        }
        if (shape->rank == MU_MAX_RANK)
            return mu__error(MU_UNIMPLEMENTED, "%s: the array has more than %d dimensions", name, MU_MAX_RANK);
        shape->dims[shape->rank++] = dim;
    }
}

static mu_status parse_dictionary(const char *name, const char *text, npy_header *header)
{
    const char *order = value_of(text, "'fortran_order'");
    MU_TRY(parse_type(name, value_of(text, "'descr'"), header));
    if (order == NULL)
        return damaged(name, "the header has no 'fortran_order'");
    if (strncmp(order, "False", 5) != 0)
        return mu__error(MU_UNIMPLEMENTED, "%s is stored in Fortran order; save it with numpy.ascontiguousarray", name);
    return parse_shape(name, value_of(text, "'shape'"), &header->spec.shape);
}

static mu_status parse_header(const char *name, const void *data, size_t bytes, npy_header *header)
{
    mu_cursor cursor = mu__cursor(data, bytes);
    const uint8_t *magic = mu__cursor_bytes(&cursor, 8);
    *header = (npy_header){0};
    if (magic == NULL || memcmp(magic, "\x93NUMPY", 6) != 0 || magic[6] < 1 || magic[6] > 3)
        return damaged(name, "it does not begin as version 1 to 3 of the format does");
    uint32_t length = mu__cursor_u8(&cursor);
    length |= (uint32_t)mu__cursor_u8(&cursor) << 8;
    if (magic[6] > 1) {
        length |= (uint32_t)mu__cursor_u8(&cursor) << 16;
        length |= (uint32_t)mu__cursor_u8(&cursor) << 24;
    }
    const uint8_t *dictionary = mu__cursor_bytes(&cursor, length);
    char text[4096];
    if (dictionary == NULL || length >= sizeof text)
        return damaged(name, "its header is cut off or too long");
    memcpy(text, dictionary, length);
    text[length] = 0;
    MU_TRY(parse_dictionary(name, text, header));
    header->data = cursor.at;
    header->bytes = mu__spec_bytes(&header->spec);
    if (header->bytes == mu__cursor_left(&cursor))
        return MU_OK;
    return mu__error(MU_DATA_LOSS, "%s: %zu bytes of elements seen, %zu expected by the header; get the file again",
                     name,
                     mu__cursor_left(&cursor), header->bytes);
}

mu_tensor *mu__npy_parse(const char *name, const void *data, size_t bytes)
{
    npy_header header;
    if (parse_header(name, data, bytes, &header) != MU_OK)
        return NULL;
    mu_tensor *tensor = mu__tensor_alloc(header.spec.dtype, &header.spec.shape);
    if (tensor == NULL)
        return NULL;
    if (header.bytes > 0)
        memcpy(mu__host_write(tensor), header.data, header.bytes);
    uint8_t *out = mu__host_write(tensor);
    if (header.swapped)
        mu__swap_bytes(out, header.bytes, mu_dtype_bytes(header.spec.dtype));
    for (size_t i = 0; header.spec.dtype == MU_BOOL && i < header.bytes; i++)
        out[i] = out[i] != 0;
    return tensor;
}

static const char *code_of(mu_dtype dtype)
{
    for (size_t i = 0; i < MU_COUNT(types); i++)
        if (types[i].dtype == dtype)
            return types[i].code;
    return NULL;
}

size_t mu__npy_header(const mu_tensor *tensor, char out[MU_NPY_HEADER])
{
    const char *code = code_of(tensor->dtype);
    if (code == NULL) {
        mu__error(MU_UNIMPLEMENTED, "NumPy's format has no type for %s; cast first", mu_dtype_name(tensor->dtype));
        return 0;
    }
    int n = 10 + snprintf(out + 10, MU_NPY_HEADER - 10, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                          mu_dtype_bytes(tensor->dtype) == 1 ? '|' : '<', code);
    for (int i = 0; i < tensor->shape.rank; i++)
        n += snprintf(out + n, (size_t)(MU_NPY_HEADER - n), "%lld,", (long long)tensor->shape.dims[i]);
    n += snprintf(out + n, (size_t)(MU_NPY_HEADER - n), "), }");
    while (n % 64 != 63)
        out[n++] = ' ';
    out[n++] = '\n';
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)((n - 10) & 255);
    out[9] = (char)((n - 10) >> 8);
    return (size_t)n;
}

// ---- The archive --------------------------------------------------------------------------------

typedef struct zip_entry {
    char name[256];
    uint16_t method;
    uint32_t crc;
    uint64_t packed, size, offset;
} zip_entry;

typedef struct archive {
    const char *path;
    const uint8_t *data;
    size_t bytes;
    uint64_t inflated;   // by all arrays so far; entries may share their packed bytes
    struct { char **items; size_t n, capacity; } names;
    struct { mu_value **items; size_t n, capacity; } arrays;
} archive;

static uint16_t u16(mu_cursor *cursor)
{
    uint16_t low = mu__cursor_u8(cursor);
    return (uint16_t)(low | mu__cursor_u8(cursor) << 8);
}

// Finds the end record by searching for its signature from the end.
static mu_status find_directory(const archive *zip, uint64_t *entries, uint64_t *offset)
{
    size_t lowest = zip->bytes > 65557 ? zip->bytes - 65557 : 0;
    for (size_t at = zip->bytes < 22 ? 0 : zip->bytes - 21; at-- > lowest;) {
        if (memcmp(zip->data + at, "PK\5\6", 4) != 0)
            continue;
        mu_cursor cursor = mu__cursor(zip->data + at + 10, zip->bytes - at - 10);
        *entries = u16(&cursor);
        mu__cursor_u32_little(&cursor);
        *offset = mu__cursor_u32_little(&cursor);
        if (*entries == UINT16_MAX || *offset == UINT32_MAX)
            return mu__error(MU_UNIMPLEMENTED,
                             "%s has a directory of the 64-bit kind; save fewer or smaller arrays per file", zip->path);
        return cursor.bad ? damaged(zip->path, "the end of the archive is cut off") : MU_OK;
    }
    return damaged(zip->path, "it has no zip directory");
}

// Sizes of 4 GiB and more are in an extra field (id 1), in the order size, packed, offset.
static void read_zip64(mu_cursor extra, zip_entry *entry)
{
    while (mu__cursor_left(&extra) >= 4) {
        uint16_t id = u16(&extra), length = u16(&extra);
        mu_cursor field = mu__cursor(extra.at, MU_MIN((size_t)length, mu__cursor_left(&extra)));
        mu__cursor_bytes(&extra, length);
        if (id != 1)
            continue;
        uint64_t *values[] = {&entry->size, &entry->packed, &entry->offset};
        for (size_t i = 0; i < MU_COUNT(values); i++)
            if (*values[i] == UINT32_MAX)
                *values[i] = mu__cursor_u64_little(&field);
    }
}

static mu_status read_entry(const archive *zip, mu_cursor *cursor, zip_entry *entry)
{
    const uint8_t *signature = mu__cursor_bytes(cursor, 10);
    *entry = (zip_entry){.method = u16(cursor)};
    mu__cursor_u32_little(cursor);
    entry->crc = mu__cursor_u32_little(cursor);
    entry->packed = mu__cursor_u32_little(cursor);
    entry->size = mu__cursor_u32_little(cursor);
    uint16_t name = u16(cursor), extra = u16(cursor), comment = u16(cursor);
    mu__cursor_bytes(cursor, 8);
    entry->offset = mu__cursor_u32_little(cursor);
    const uint8_t *text = mu__cursor_bytes(cursor, name);
    const uint8_t *more = mu__cursor_bytes(cursor, extra);
    mu__cursor_bytes(cursor, comment);
    if (cursor->bad || memcmp(signature, "PK\1\2", 4) != 0)
        return damaged(zip->path, "the directory of the archive is cut off");
    if (name == 0 || name >= sizeof entry->name || memchr(text, 0, name) != NULL)
        return damaged(zip->path, "an array has no name, or one too long");
    memcpy(entry->name, text, name);
    read_zip64(mu__cursor(more, extra), entry);
    return MU_OK;
}

static mu_status inflate_entry(const archive *zip, const zip_entry *entry, const uint8_t *packed, uint8_t *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)packed};
    uint64_t in_left = entry->packed, out_left = entry->size;
    int result = Z_OK;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return mu__error(MU_RESOURCE_EXHAUSTED, "no memory to inflate %s", entry->name);
    z.next_out = out;
    while (result == Z_OK) {
        uInt in = (uInt)MU_MIN(in_left, (uint64_t)1 << 30), room = (uInt)MU_MIN(out_left, (uint64_t)1 << 30);
        z.avail_in = in;
        z.avail_out = room;
        result = inflate(&z, Z_NO_FLUSH);
        in_left -= in - z.avail_in;
        out_left -= room - z.avail_out;
    }
    inflateEnd(&z);
    return result == Z_STREAM_END && out_left == 0
               ? MU_OK
               : damaged(zip->path, "an array of the archive does not inflate to its size");
}

// Returns the bytes of an entry: in the archive itself, or inflated into *own.
static mu_status entry_bytes(archive *zip, const zip_entry *entry, const uint8_t **bytes, uint8_t **own)
{
    if (entry->offset > zip->bytes)
        return damaged(zip->path, "an array begins after the end of the archive");
    mu_cursor cursor = mu__cursor(zip->data + entry->offset, zip->bytes - (size_t)entry->offset);
    const uint8_t *header = mu__cursor_bytes(&cursor, 26);
    uint16_t name = u16(&cursor), extra = u16(&cursor);
    mu__cursor_bytes(&cursor, (size_t)name + extra);
    const uint8_t *packed =
        entry->packed <= mu__cursor_left(&cursor) ? mu__cursor_bytes(&cursor, (size_t)entry->packed) : NULL;
    if (cursor.bad || packed == NULL || memcmp(header, "PK\3\4", 4) != 0)
        return damaged(zip->path, "an array of the archive is cut off");
    if (entry->method == 0 && entry->packed == entry->size) {
        *bytes = packed;
        return MU_OK;
    }
    if (entry->method != Z_DEFLATED)
        return mu__error(MU_UNIMPLEMENTED, "%s: %s is packed by method %d; Muster reads stored and deflated arrays",
                         zip->path, entry->name, entry->method);
    if (entry->size / MOST_DEFLATE_RATIO > zip->bytes - MU_MIN(zip->inflated / MOST_DEFLATE_RATIO, zip->bytes))
        return damaged(zip->path, "the arrays claim to be larger than the file can make them");
    zip->inflated += entry->size;
    *own = mu__alloc((size_t)entry->size);
    *bytes = *own;
    return *own != NULL ? inflate_entry(zip, entry, packed, *own) : MU_RESOURCE_EXHAUSTED;
}

static uint32_t crc_of(const uint8_t *bytes, uint64_t n)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t at = 0; at < n;) {
        uInt part = (uInt)MU_MIN(n - at, (uint64_t)1 << 30);
        crc = crc32(crc, bytes + at, part);
        at += part;
    }
    return (uint32_t)crc;
}

static mu_status add_array(archive *zip, const zip_entry *entry)
{
    const uint8_t *bytes = NULL;
    uint8_t *own = NULL;
    mu_value *array = NULL;
    char *name = mu__strdup(entry->name);
    mu_status status = name != NULL ? entry_bytes(zip, entry, &bytes, &own) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && crc_of(bytes, entry->size) != entry->crc)
        status =
            mu__error(MU_DATA_LOSS, "%s: the checksum of %s does not fit; get the file again", zip->path, entry->name);
    if (status == MU_OK) {
        array = mu__leaf_value(mu__npy_parse(entry->name, bytes, (size_t)entry->size));
        status = array != NULL ? MU_OK : mu_error_code();
    }
    mu__free(own);
    size_t length = strlen(entry->name);
    if (name != NULL && length > 4 && strcmp(name + length - 4, ".npy") == 0)
        name[length - 4] = 0;
    if (status == MU_OK && (status = MU_PUSH(&zip->names, name)) == MU_OK)
        name = NULL;
    if (status == MU_OK && (status = MU_PUSH(&zip->arrays, array)) == MU_OK)
        array = NULL;
    mu__free(name);
    mu_release(array);
    return status;
}

mu_value *mu__npz_parse(const char *path, const void *data, size_t bytes)
{
    archive zip = {.path = path, .data = data, .bytes = bytes};
    uint64_t entries = 0, offset = 0;
    mu_value *map = NULL;
    mu_status status = MU_OK;
    MU_GO(find_directory(&zip, &entries, &offset));
    if (entries == 0 || entries > MOST_ARRAYS || offset > bytes) {
        status = damaged(path, "the directory of the archive is empty or misplaced");
        goto out;
    }
    mu_cursor cursor = mu__cursor(zip.data + offset, bytes - (size_t)offset);
    for (uint64_t i = 0; i < entries; i++) {
        zip_entry entry;
        MU_GO(read_entry(&zip, &cursor, &entry));
        MU_GO(add_array(&zip, &entry));
    }
    map = mu__value_container(MU_VALUE_MAP, (int)zip.arrays.n, zip.arrays.items, (const char *const *)zip.names.items);
out:
    for (size_t i = 0; i < zip.arrays.n; i++)
        mu_release(zip.arrays.items[i]);
    for (size_t i = 0; i < zip.names.n; i++)
        mu__free(zip.names.items[i]);
    mu__free(zip.arrays.items);
    mu__free(zip.names.items);
    return status == MU_OK ? map : NULL;
}

// ---- Datasets -----------------------------------------------------------------------------------

static mu_dataset *rows_of_file(const char *path, bool archived)
{
    void *data = NULL;
    size_t bytes = 0;
    if (mu__pending())
        return NULL;
    if (path == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "%s got no path (NULL); give the path of a file",
                  archived ? "mu_dataset_npz" : "mu_dataset_npy");
        return NULL;
    }
    if (mu__file_read(path, MOST_FILE_BYTES, &data, &bytes) != MU_OK)
        return NULL;
    mu_value *value = archived ? mu__npz_parse(path, data, bytes) : mu__leaf_value(mu__npy_parse(path, data, bytes));
    mu__free(data);
    mu_dataset *dataset = value != NULL ? mu_dataset_from_tensor_slices(value) : NULL;
    mu_release(value);
    return dataset;
}

mu_dataset *mu_dataset_npy(const char *path)
{
    return rows_of_file(path, false);
}

mu_dataset *mu_dataset_npz(const char *path)
{
    return rows_of_file(path, true);
}
