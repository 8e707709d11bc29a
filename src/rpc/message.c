// Messages: a value, a nest of tensors, as bytes that another process can read.
//
// A node of the nest is a byte with its kind, then what docs/rpc.md says. Numbers are little-endian. The elements of a
// large tensor begin at a multiple of 64 bytes, so that the receiver can use them in place. A first pass counts the
// bytes, a second writes them. What is read is untrusted.
#include "rpc/channel.h"
#include "rpc/services/service.h"

enum { NOTHING, TENSOR, LIST, MAP, SLICES };
enum { ALIGNMENT = 64, LARGE = 4096, BORROWED = 1 << 15, MOST_NESTED = 64, MOST_KEY = 1000, MOST_ITEMS = 1 << 20 };

// ---- Messages -----------------------------------------------------------------------------------

static void message_destroy(void *object)
{
    mu_message *message = object;
    for (size_t i = 0; i < message->extents.n; i++)
        mu_release(message->extents.items[i].owner);
    mu__free(message->extents.items);
    if (message->data != NULL)
        mu__free_data(message->data, message->held);
}

static mu_type message_type = {.name = "rpc message", .destroy = message_destroy};

mu_message *mu__message_new(size_t bytes)
{
    mu_message *message = mu__new(&message_type, sizeof *message);
    if (message == NULL)
        return NULL;
    message->bytes = message->held = bytes;
    message->data = mu__alloc_data(bytes);
    if (message->data != NULL)
        return message;
    mu_release(message);
    return NULL;
}

// ---- Writing ------------------------------------------------------------------------------------

// With message NULL, bytes are only counted.
typedef struct writer {
    mu_message *message;
    size_t n, held, begun; // bytes written; of them in the message's memory; of these before the current extent
    size_t n_items;        // of lists and maps so far
    bool borrows;          // the elements of large tensors are not copied
    const char *what;
} writer;

static void put(writer *w, const void *from, size_t bytes)
{
    if (w->message != NULL && bytes > 0)
        memcpy(w->message->data + w->held, from, bytes);
    w->n += bytes;
    w->held += bytes;
}

// Ends the extent of the message's own memory.
static mu_status end_extent(writer *w)
{
    const mu_extent own = {.at = w->message->data + w->begun, .bytes = w->held - w->begun};
    w->begun = w->held;
    return own.bytes > 0 ? MU_PUSH(&w->message->extents, own) : MU_OK;
}

static mu_status put_borrowed(writer *w, const mu_tensor *tensor, const void *elements, size_t bytes)
{
    w->n += bytes;
    if (w->message == NULL)
        return MU_OK;
    MU_TRY(end_extent(w));
    MU_TRY(MU_PUSH(&w->message->extents, ((mu_extent){.at = elements, .bytes = bytes})));
    w->message->extents.items[w->message->extents.n - 1].owner = mu_retain((mu_tensor *)(uintptr_t)tensor);
    return MU_OK;
}

static void put_number(writer *w, uint64_t number, int bytes)
{
    uint8_t text[8];
    for (int i = 0; i < bytes; i++)
        text[i] = (uint8_t)(number >> 8 * i);
    put(w, text, (size_t)bytes);
}

static size_t padding(size_t at, size_t bytes) { return bytes < LARGE ? 0 : -at & (ALIGNMENT - 1); }

// All of a tensor but its elements. Strings are not aligned.
static void put_spec(writer *w, const mu_spec *spec)
{
    static const uint8_t zeros[ALIGNMENT];
    put_number(w, TENSOR, 1);
    put_number(w, (uint64_t)spec->dtype, 1);
    put_number(w, (uint64_t)spec->shape.rank, 1);
    for (int i = 0; i < spec->shape.rank; i++)
        put_number(w, (uint64_t)spec->shape.dims[i], 8);
    if (spec->dtype != MU_STRING)
        put(w, zeros, padding(w->n, mu__spec_bytes(spec)));
}

static mu_status put_tensor(writer *w, const mu_tensor *tensor)
{
    if (tensor == NULL || tensor->buffer == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: a value of a trace cannot be sent to another process; call outside of traced functions",
                         w->what);
    const mu_spec spec = mu__spec_of(tensor);
    const size_t bytes = mu__spec_bytes(&spec);
    put_spec(w, &spec);
    if (spec.dtype == MU_STRING) {
        const size_t wire = mu__strings_wire_bytes(tensor);
        if (w->message != NULL)
            mu__strings_to_wire(tensor, w->message->data + w->held);
        w->n += wire;
        w->held += wire;
        return MU_OK;
    }
    const void *elements = w->message != NULL ? mu__host_read(tensor) : NULL;
    if (w->message != NULL && elements == NULL)
        return mu_error_code();
    if (w->borrows && bytes >= BORROWED)
        return put_borrowed(w, tensor, elements, bytes);
    put(w, elements, bytes);
    return MU_OK;
}

static mu_status put_value(writer *w, const mu_value *value, int depth);

static mu_status put_items(writer *w, const mu_value *value, int depth)
{
    const bool map = value->kind == MU_VALUE_MAP;
    if ((w->n_items += (size_t)value->n) > MOST_ITEMS)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: lists and maps have more than %d elements together, which is the limit; make tensors of numbers",
            w->what, MOST_ITEMS);
    put_number(w, map ? MAP : LIST, 1);
    put_number(w, (uint64_t)value->n, 4);
    for (int i = 0; i < value->n; i++) {
        const size_t bytes = map ? strlen(value->keys[i]) : 0;
        if (bytes > MOST_KEY)
            return mu__error(MU_INVALID_ARGUMENT, "%s: a key of %zu bytes; at most %d can be sent", w->what, bytes,
                             MOST_KEY);
        if (map) {
            put_number(w, bytes, 2);
            put(w, value->keys[i], bytes);
        }
        MU_TRY(put_value(w, value->items[i], depth + 1));
    }
    return MU_OK;
}

static mu_status put_slices(writer *w, const mu_value *value)
{
    put_number(w, SLICES, 1);
    for (int i = 0; i < 3; i++)
        MU_TRY(put_tensor(w, (const mu_tensor *)value->items[i]->leaf));
    return MU_OK;
}

static mu_status put_value(writer *w, const mu_value *value, int depth)
{
    if (depth > MOST_NESTED)
        return mu__error(MU_INVALID_ARGUMENT, "%s: values are nested more than %d deep; at most that can be sent",
                         w->what, MOST_NESTED);
    if (value == NULL) {
        put_number(w, NOTHING, 1);
        return MU_OK;
    }
    switch (value->kind) {
    case MU_VALUE_TENSOR: return put_tensor(w, (const mu_tensor *)value->leaf);
    case MU_VALUE_LIST:
    case MU_VALUE_MAP: return put_items(w, value, depth);
    case MU_VALUE_SLICES: return put_slices(w, value);
    case MU_VALUE_VARIABLE:
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: a variable cannot be sent to another process; read it first (mu_variable_read)", w->what);
    default:
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: a value with a component for each replica cannot be sent to another process; take a "
                         "component (mu_value_at) or reduce it",
                         w->what);
    }
}

mu_status mu__message_bytes(const mu_value *value, const char *what, size_t *bytes)
{
    writer count = {.what = what};
    MU_TRY(put_value(&count, value, 0));
    *bytes = count.n;
    return MU_OK;
}

static mu_message *write_message(const mu_value *value, const char *what, bool borrows)
{
    writer count = {.what = what, .borrows = borrows};
    if (put_value(&count, value, 0) != MU_OK)
        return NULL;
    mu_message *message = mu__message_new(count.held);
    if (message == NULL)
        return NULL;
    writer w = {.message = message, .what = what, .borrows = borrows};
    message->bytes = count.n;
    if (put_value(&w, value, 0) == MU_OK && (message->extents.n == 0 || end_extent(&w) == MU_OK))
        return message;
    mu_release(message);
    return NULL;
}

mu_message *mu__message_of(const mu_value *value, const char *what) { return write_message(value, what, false); }

mu_message *mu__message_to_send(const mu_value *value, const char *what) { return write_message(value, what, true); }

// Small elements have no aligned place in a message.
static mu_message *fill_small(const mu_spec *spec, mu_message_fill *fill, void *arg)
{
    mu_tensor *tensor = mu__tensor_alloc(spec->dtype, &spec->shape);
    mu_value *value = NULL;
    mu_message *message = NULL;
    if (tensor != NULL && fill(mu__host_write(tensor), arg) == MU_OK)
        value = mu__value_leaf(MU_VALUE_TENSOR, tensor);
    if (value != NULL)
        message = mu__message_of(value, "the result");
    mu_release(value);
    mu_release(tensor);
    return message;
}

mu_message *mu__message_filled(const mu_spec *spec, mu_message_fill *fill, void *arg)
{
    writer w = {0};
    if (mu__spec_bytes(spec) < LARGE)
        return fill_small(spec, fill, arg);
    put_spec(&w, spec);
    const size_t bytes = w.n + mu__spec_bytes(spec);
    const bool fits = mu__change_repeated() || mu__call_reserve(bytes) == MU_OK;
    mu_message *message = fits ? mu__message_new(bytes) : NULL;
    if (message == NULL)
        return NULL;
    w = (writer){.message = message};
    put_spec(&w, spec);
    if (fill(message->data + w.n, arg) == MU_OK)
        return message;
    mu_release(message);
    return NULL;
}

void mu__message_copy(const mu_message *message, size_t offset, void *to, size_t bytes)
{
    const mu_extent whole = {.at = message->data, .bytes = message->bytes};
    const mu_extent *extent = message->extents.n > 0 ? message->extents.items : &whole;
    uint8_t *out = to;
    for (; bytes > 0; extent++) {
        const size_t skipped = MU_MIN(offset, extent->bytes), n = MU_MIN(extent->bytes - skipped, bytes);
        out = mu__put_bytes(out, extent->at + skipped, n);
        offset -= skipped;
        bytes -= n;
    }
}

// ---- Reading ------------------------------------------------------------------------------------

typedef struct reader {
    mu_cursor cursor;
    const uint8_t *first;       // of the value: padding counts from here
    size_t n_items, most_items; // of lists and maps so far, and at most
    mu_message *message;
} reader;

static mu_status damaged(const char *why)
{
    return mu__error(MU_DATA_LOSS, "a value from another process is damaged: %s", why);
}

static void release_message(void *message) { mu_release(message); }

// A tensor whose elements are in the message.
static mu_tensor *borrow(reader *r, const mu_spec *spec, const uint8_t *elements, size_t bytes)
{
    mu_buffer *buffer = mu__new(&mu__buffer_type, sizeof *buffer);
    if (buffer == NULL)
        return NULL;
    *buffer = (mu_buffer){.object = buffer->object,
                          .data = (void *)(uintptr_t)elements,
                          .bytes = bytes,
                          .memory_space = &mu__host_memory,
                          .release = release_message,
                          .arg = mu_retain(r->message)};
    mu_tensor *tensor = mu__tensor_view(buffer, 0, spec->dtype, &spec->shape);
    mu_release(buffer);
    return tensor;
}

static mu_tensor *copy(const mu_spec *spec, const uint8_t *elements, size_t bytes)
{
    mu_tensor *tensor = mu__tensor_alloc(spec->dtype, &spec->shape);
    if (tensor != NULL && bytes > 0)
        memcpy(mu__host_write(tensor), elements, bytes);
    return tensor;
}

// A bool that is neither 0 nor 1 would be undefined in C.
static bool are_bools(const uint8_t *elements, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (elements[i] > 1)
            return false;
    return true;
}

static mu_status get_spec(reader *r, mu_spec *spec)
{
    *spec = (mu_spec){.dtype = (mu_dtype)mu__cursor_u8(&r->cursor)};
    spec->shape.rank = mu__cursor_u8(&r->cursor);
    if (r->cursor.bad || !(mu__dtype_ok(spec->dtype) || spec->dtype == MU_STRING) || spec->shape.rank > MU_MAX_RANK)
        return damaged("a tensor has an unknown type or too many axes");
    for (int i = 0; i < spec->shape.rank; i++) {
        const uint64_t size = mu__cursor_u64_little(&r->cursor);
        if (size > INT64_MAX)
            return damaged("the size of an axis is negative");
        spec->shape.dims[i] = (int64_t)size;
    }
    return mu__shape_check(&spec->shape, "a tensor from another process");
}

static mu_status get_tensor(reader *r, mu_tensor **out)
{
    mu_spec spec;
    MU_TRY(get_spec(r, &spec));
    if (spec.dtype == MU_STRING) {
        *out = mu__strings_from_wire(&r->cursor, &spec.shape);
        return *out != NULL ? MU_OK : mu_error_code();
    }
    const size_t bytes = mu__spec_bytes(&spec);
    mu__cursor_bytes(&r->cursor, padding((size_t)(r->cursor.at - r->first), bytes));
    const uint8_t *elements = mu__cursor_bytes(&r->cursor, bytes);
    if (r->cursor.bad)
        return damaged("it ends within a tensor");
    if (spec.dtype == MU_BOOL && !are_bools(elements, bytes))
        return damaged("an element of a bool tensor is neither 0 nor 1");
    const bool aligned = ((uintptr_t)elements & (ALIGNMENT - 1)) == 0;
    *out = bytes >= LARGE && aligned ? borrow(r, &spec, elements, bytes) : copy(&spec, elements, bytes);
    return *out != NULL ? MU_OK : mu_error_code();
}

static mu_status get_leaf(reader *r, mu_value **out)
{
    mu_tensor *tensor = NULL;
    MU_TRY(get_tensor(r, &tensor));
    *out = mu__value_leaf(MU_VALUE_TENSOR, tensor);
    mu_release(tensor);
    return *out != NULL ? MU_OK : mu_error_code();
}

static mu_status make_slices(mu_tensor *const parts[3], mu_value **out)
{
    mu_shape shape = {.rank = (int)MU_MIN(mu__elements(&parts[2]->shape), MU_MAX_RANK + 1)};
    if (parts[2]->dtype != MU_I64 || parts[2]->shape.rank != 1 || shape.rank > MU_MAX_RANK)
        return damaged("the shape of slices is not a vector of int64");
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = mu_tensor_item_int(parts[2], i);
    mu_pool *pool = mu_pool_open();
    *out = mu_retain(mu_indexed_slices(parts[0], parts[1], shape.rank, shape.dims));
    mu_pool_close(pool);
    return *out != NULL ? MU_OK : mu_error_code();
}

static mu_status get_slices(reader *r, mu_value **out)
{
    mu_tensor *parts[3] = {NULL};
    mu_status status = MU_OK;
    for (int i = 0; i < 3 && status == MU_OK; i++)
        status = mu__cursor_u8(&r->cursor) == TENSOR ? get_tensor(r, &parts[i])
                                                     : damaged("a part of slices is not a tensor");
    if (status == MU_OK)
        status = make_slices(parts, out);
    for (int i = 0; i < 3; i++)
        mu_release(parts[i]);
    return status;
}

static mu_status get_value(reader *r, int depth, mu_value **out);

static mu_status get_key(reader *r, char **out)
{
    const unsigned low = mu__cursor_u8(&r->cursor);
    const size_t bytes = low | (unsigned)mu__cursor_u8(&r->cursor) << 8;
    const uint8_t *text = bytes <= MOST_KEY ? mu__cursor_bytes(&r->cursor, bytes) : NULL;
    if (text == NULL || memchr(text, '\0', bytes) != NULL)
        return damaged("a key of a map is too long, or no text");
    *out = mu__calloc(bytes + 1, 1);
    if (*out == NULL)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(*out, text, bytes);
    return MU_OK;
}

static mu_status get_items(reader *r, bool map, int depth, mu_value **out)
{
    const uint32_t n = mu__cursor_u32_little(&r->cursor);
    if (r->cursor.bad || n > mu__cursor_left(&r->cursor)) // each takes at least a byte
        return damaged("a list is longer than its bytes");
    if ((r->n_items += n) > r->most_items) // an element of 4 bytes takes a hundred times as many here
        return damaged("its lists and maps have too many elements");
    mu_value **items = mu__calloc(n + 1, sizeof *items);
    char **keys = mu__calloc(n + 1, sizeof *keys);
    mu_status status = items != NULL && keys != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < n && status == MU_OK; i++) {
        if (map)
            MU_GO(get_key(r, &keys[i]));
        MU_GO(get_value(r, depth + 1, &items[i]));
        if (items[i] == NULL)
            status = damaged("an element of a list is missing");
    }
    if (status == MU_OK) {
        *out = mu__value_container(map ? MU_VALUE_MAP : MU_VALUE_LIST, (int)n, items,
                                   map ? (const char *const *)keys : NULL);
        status = *out != NULL ? MU_OK : mu_error_code();
    }
out:
    for (uint32_t i = 0; i < n; i++) {
        mu_release(items != NULL ? items[i] : NULL);
        mu__free(keys != NULL ? keys[i] : NULL);
    }
    mu__free(items);
    mu__free(keys);
    return status;
}

static mu_status get_value(reader *r, int depth, mu_value **out)
{
    if (depth > MOST_NESTED)
        return damaged("it is nested too deep");
    const int kind = mu__cursor_u8(&r->cursor);
    if (r->cursor.bad)
        return damaged("it ends early");
    switch (kind) {
    case NOTHING: return MU_OK;
    case TENSOR: return get_leaf(r, out);
    case LIST: return get_items(r, false, depth, out);
    case MAP: return get_items(r, true, depth, out);
    case SLICES: return get_slices(r, out);
    default: return damaged("it has a part of an unknown kind");
    }
}

static mu_status read_message(mu_message *message, size_t offset, size_t most_items, mu_value **out)
{
    reader r = {.message = message, .most_items = most_items};
    *out = NULL;
    if (offset > message->bytes)
        return damaged("it ends early");
    r.first = message->data + offset;
    r.cursor = mu__cursor(r.first, message->bytes - offset);
    const mu_status status = get_value(&r, 0, out);
    if (status == MU_OK && r.cursor.at == r.cursor.end)
        return MU_OK;
    mu_release(*out);
    *out = NULL;
    return status != MU_OK ? status : damaged("bytes follow its end");
}

mu_status mu__message_value(mu_message *message, size_t offset, mu_value **out)
{
    return read_message(message, offset, MOST_ITEMS, out);
}

mu_status mu__message_value_of_file(mu_message *message, mu_value **out)
{
    return read_message(message, 0, SIZE_MAX, out);
}
