// Tensors of strings: one buffer with the offsets of the elements and then their bytes.
//
// Offsets count from the begin of the buffer, so that a view of some elements is an offset into the table, as it is for
// numbers, and shares the buffer. Each string is followed by a zero, for C. A tensor is made at once and never changed.
#include "tensor/tensor.h"

static const int64_t *table_of(const mu_tensor *tensor)
{
    return (const int64_t *)(const void *)((const char *)tensor->buffer->data + tensor->offset);
}

mu_string mu__string_at(const mu_tensor *tensor, int64_t i)
{
    const int64_t *table = table_of(tensor);
    return (mu_string){.bytes = (const char *)tensor->buffer->data + table[i],
                       .n = (size_t)(table[i + 1] - table[i] - 1)};
}

size_t mu__string_bytes(const mu_tensor *tensor)
{
    const int64_t *table = table_of(tensor), n = mu__elements(&tensor->shape);
    return (size_t)(table[n] - table[0] - n);
}

// ---- Making -------------------------------------------------------------------------------------

mu_status mu__strings_add(mu_strings *strings, const void *bytes, size_t n)
{
    if (n > (size_t)INT64_MAX / 2 - strings->bytes.n)
        return mu__error(MU_RESOURCE_EXHAUSTED, "the strings of a tensor have more bytes than can be counted");
    const size_t with_zero = strings->bytes.n + n + 1;
    MU_TRY(mu__grow((void **)&strings->bytes.items, &strings->bytes.capacity, with_zero, 1));
    if (n > 0)
        memcpy(strings->bytes.items + strings->bytes.n, bytes, n);
    strings->bytes.items[with_zero - 1] = 0;
    MU_TRY(MU_PUSH(&strings->ends, (int64_t)with_zero));
    strings->bytes.n = with_zero;
    return MU_OK;
}

mu_status mu__strings_copy(mu_strings *strings, const mu_tensor *from, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const mu_string string = mu__string_at(from, i);
        MU_TRY(mu__strings_add(strings, string.bytes, string.n));
    }
    return MU_OK;
}

void mu__strings_free(mu_strings *strings)
{
    mu__free(strings->ends.items);
    mu__free(strings->bytes.items);
    *strings = (mu_strings){0};
}

mu_tensor *mu__strings_end(mu_strings *strings, const mu_shape *shape)
{
    const size_t n = strings->ends.n, first = (n + 1) * sizeof(int64_t);
    assert(mu__elements(shape) == (int64_t)n);
    mu_buffer *buffer = mu__buffer_new(first + strings->bytes.n);
    if (buffer != NULL) {
        int64_t *table = buffer->data;
        table[0] = (int64_t)first;
        for (size_t i = 0; i < n; i++)
            table[i + 1] = (int64_t)first + strings->ends.items[i];
        if (strings->bytes.n > 0)
            memcpy((char *)buffer->data + first, strings->bytes.items, strings->bytes.n);
    }
    mu__strings_free(strings);
    mu_tensor *tensor = buffer != NULL ? mu__tensor_view(buffer, 0, MU_STRING, shape) : NULL;
    mu_release(buffer);
    return tensor;
}

mu_tensor *mu__strings_text(const void *bytes, size_t n)
{
    mu_strings strings = {0};
    if (mu__strings_add(&strings, bytes, n) == MU_OK)
        return mu__strings_end(&strings, &mu__scalar_shape);
    mu__strings_free(&strings);
    return NULL;
}

// ---- As bytes for files and other processes -----------------------------------------------------

size_t mu__strings_wire_bytes(const mu_tensor *tensor)
{
    return (size_t)mu__elements(&tensor->shape) * 8 + mu__string_bytes(tensor);
}

void mu__strings_to_wire(const mu_tensor *tensor, uint8_t *out)
{
    const int64_t n = mu__elements(&tensor->shape);
    uint8_t *bytes = out + 8 * n;
    for (int64_t i = 0; i < n; i++) {
        const mu_string string = mu__string_at(tensor, i);
        for (int byte = 0; byte < 8; byte++)
            *out++ = (uint8_t)((uint64_t)string.n >> 8 * byte);
        memcpy(bytes, string.bytes, string.n);
        bytes += string.n;
    }
}

mu_tensor *mu__strings_from_wire(mu_cursor *cursor, const mu_shape *shape)
{
    mu_strings strings = {0};
    const size_t n = (size_t)mu__elements(shape);
    const bool fits = n <= mu__cursor_left(cursor) / 8;
    mu_cursor lengths = mu__cursor(fits ? mu__cursor_bytes(cursor, n * 8) : NULL, fits ? n * 8 : 0);
    mu_status status = fits ? MU_OK : MU_DATA_LOSS;
    for (size_t i = 0; i < n && status == MU_OK; i++) {
        const uint64_t length = mu__cursor_u64_little(&lengths);
        const bool whole = length <= mu__cursor_left(cursor);
        const uint8_t *bytes = whole ? mu__cursor_bytes(cursor, (size_t)length) : NULL;
        status = whole ? mu__strings_add(&strings, bytes, (size_t)length) : MU_DATA_LOSS;
    }
    if (status == MU_OK)
        return mu__strings_end(&strings, shape);
    mu__strings_free(&strings);
    if (!mu__pending())
        mu__error(MU_DATA_LOSS, "a tensor of strings ends within a string; its bytes are damaged");
    return NULL;
}

// ---- The public functions -----------------------------------------------------------------------

// Adds string i of whichever array is given.
static mu_status add_given(mu_strings *strings, const char *const *texts, const mu_string *given, int64_t i)
{
    const mu_string string = texts == NULL ? given[i] : (mu_string){texts[i], texts[i] != NULL ? strlen(texts[i]) : 0};
    if (string.bytes == NULL && (texts != NULL || string.n > 0))
        return mu__error(MU_INVALID_ARGUMENT, "mu_tensor_strings: string %lld is NULL; give \"\" for an empty one",
                         (long long)i);
    return mu__strings_add(strings, string.bytes, string.n);
}

static mu_tensor *make(int rank, const int64_t *dims, const char *const *texts, const mu_string *given)
{
    mu_strings strings = {0};
    const mu_shape shape = mu_shape_make(rank, dims);
    if (mu__shape_check(&shape, "mu_tensor_strings") != MU_OK)
        return NULL;
    if (!mu__shape_known(&shape)) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_tensor_strings: the shape has an unknown dimension; a tensor with elements has none");
        return NULL;
    }
    const int64_t n = mu__elements(&shape);
    if (n > 0 && mu__need(texts != NULL ? (const void *)texts : given, "mu_tensor_strings: the strings") != MU_OK)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        if (add_given(&strings, texts, given, i) != MU_OK) {
            mu__strings_free(&strings);
            return NULL;
        }
    return mu__give(mu__strings_end(&strings, &shape));
}

mu_tensor *mu_tensor_strings(int rank, const int64_t *dims, const char *const *texts)
{
    return mu__pending() ? NULL : make(rank, dims, texts, NULL);
}

mu_tensor *mu_tensor_byte_strings(int rank, const int64_t *dims, const mu_string *strings)
{
    return mu__pending() ? NULL : make(rank, dims, NULL, strings);
}

mu_tensor *mu_string_scalar(const char *text) { return mu_tensor_strings(0, NULL, &text); }

mu_string mu_tensor_string(const mu_tensor *tensor, int64_t i)
{
    const mu_string none = {0};
    if (mu__need(tensor, "mu_tensor_string: the tensor") != MU_OK)
        return none;
    if (tensor->dtype != MU_STRING) {
        mu__error(MU_INVALID_ARGUMENT, "mu_tensor_string: the tensor has type %s; mu_tensor_item reads numbers",
                  mu_dtype_name(tensor->dtype));
        return none;
    }
    if (tensor->buffer == NULL) {
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_tensor_string: the tensor only describes a dataset's elements; take an element of the dataset");
        return none;
    }
    const int64_t n = mu__elements(&tensor->shape);
    if (i >= 0 && i < n)
        return mu__string_at(tensor, i);
    mu__error(MU_OUT_OF_RANGE, "mu_tensor_string: string %lld of a tensor with %lld; the first is 0", (long long)i,
              (long long)n);
    return none;
}
