// NumPy's formats: .npy (a header in Python's notation, then the elements) and .npz (a zip archive of them).
//
// Numbers from the file are checked against the file's size before memory is allocated for them. Big-endian elements
// are byte-swapped, those in Fortran order brought into C's. Elements become tensors, and these the rows.
#include "data/dataset.h"
#include "data/formats/npy.h"
#include "data/formats/file_stream.h"
#include "data/formats/zip.h"

#include <ctype.h>

#define MOST_FILE_BYTES ((size_t)1 << 40)

// ---- The header of an array ---------------------------------------------------------------------

typedef struct npy_header {
    mu_spec spec;
    bool swapped; // big-endian
    bool fortran; // the first axis varies fastest
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
    header->fortran = strncmp(order, "False", 5) != 0;
    if (header->fortran && strncmp(order, "True", 4) != 0)
        return damaged(name, "the header's 'fortran_order' is neither True nor False");
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
                     name, mu__cursor_left(&cursor), header->bytes);
}

mu_status mu__npy_spec(const char *name, const void *data, size_t bytes, mu_spec *spec)
{
    npy_header header;
    MU_TRY(parse_header(name, data, bytes, &header));
    *spec = header.spec;
    return MU_OK;
}

// Copies elements whose first axis varies fastest, as NumPy writes transposed arrays and the values of pandas.
static void copy_from_fortran(const npy_header *header, uint8_t *out)
{
    const mu_shape *shape = &header->spec.shape;
    const size_t size = mu_dtype_bytes(header->spec.dtype);
    int64_t strides[MU_MAX_RANK], index[MU_MAX_RANK] = {0}, from = 0;
    for (int d = 0; d < shape->rank; d++)
        strides[d] = d == 0 ? 1 : strides[d - 1] * shape->dims[d - 1];
    for (size_t to = 0; to < header->bytes; to += size) {
        memcpy(out + to, header->data + (size_t)from * size, size);
        for (int d = shape->rank - 1; d >= 0; d--) {
            from += strides[d];
            if (++index[d] < shape->dims[d])
                break;
            from -= strides[d] * shape->dims[d];
            index[d] = 0;
        }
    }
}

mu_tensor *mu__npy_parse(const char *name, const void *data, size_t bytes)
{
    npy_header header;
    if (parse_header(name, data, bytes, &header) != MU_OK)
        return NULL;
    mu_tensor *tensor = mu__tensor_alloc(header.spec.dtype, &header.spec.shape);
    if (tensor == NULL)
        return NULL;
    uint8_t *out = mu__host_write(tensor);
    if (header.fortran)
        copy_from_fortran(&header, out);
    else if (header.bytes > 0)
        memcpy(out, header.data, header.bytes);
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

// The arrays of an archive and their names.
typedef struct arrays {
    struct {
        char **items;
        size_t n, capacity;
    } names;
    struct {
        mu_value **items;
        size_t n, capacity;
    } values;
} arrays;

char *mu__npz_name(const char *member)
{
    char *name = mu__strdup(member);
    const size_t length = strlen(member);
    if (name != NULL && length > 4 && strcmp(name + length - 4, ".npy") == 0)
        name[length - 4] = 0;
    return name;
}

static mu_status add_array(mu_zip *zip, const mu_zip_entry *entry, arrays *all)
{
    const uint8_t *bytes = NULL;
    uint8_t *own = NULL;
    mu_value *array = NULL;
    char *name = mu__npz_name(entry->name);
    mu_status status = name != NULL ? mu__zip_read(zip, entry, &bytes, &own) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK) {
        array = mu__leaf_value(mu__npy_parse(entry->name, bytes, (size_t)entry->size));
        status = array != NULL ? MU_OK : mu_error_code();
    }
    mu__free(own);
    if (status == MU_OK && (status = MU_PUSH(&all->names, name)) == MU_OK)
        name = NULL;
    if (status == MU_OK && (status = MU_PUSH(&all->values, array)) == MU_OK)
        array = NULL;
    mu__free(name);
    mu_release(array);
    return status;
}

mu_value *mu__npz_parse(const char *path, const void *data, size_t bytes)
{
    mu_zip zip;
    arrays all = {0};
    mu_value *map = NULL;
    mu_status status = mu__zip_open(&zip, path, data, bytes);
    for (size_t i = 0; status == MU_OK && i < zip.entries.n; i++)
        status = add_array(&zip, &zip.entries.items[i], &all);
    if (status == MU_OK)
        map = mu__value_container(MU_VALUE_MAP, (int)all.values.n, all.values.items,
                                  (const char *const *)all.names.items);
    for (size_t i = 0; i < all.values.n; i++)
        mu_release(all.values.items[i]);
    for (size_t i = 0; i < all.names.n; i++)
        mu__free(all.names.items[i]);
    mu__free(all.values.items);
    mu__free(all.names.items);
    mu__zip_close(&zip);
    return map;
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

mu_dataset *mu_dataset_npy(const char *path) { return rows_of_file(path, false); }

mu_dataset *mu_dataset_npz(const char *path) { return rows_of_file(path, true); }
