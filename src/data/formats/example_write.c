// Writes tf.train.Example and tf.train.SequenceExample, and TFRecord files.
//
// A message that holds another one begins with its length, so messages are written from the inside to the outside: each
// into a list of bytes of its own, which the outer one copies.
#include "data/formats/example.h"
#include "data/formats/tfrecord.h"

#include <stdlib.h>

typedef struct bytes {
    uint8_t *items;
    size_t n, capacity;
} bytes;

enum { BYTES_FIELD = 2, MAP_FIELD = 1, KEY_FIELD = 1, VALUE_FIELD = 2, ITEM_FIELD = 1 };

static mu_status put(bytes *out, const void *from, size_t n)
{
    MU_TRY(mu__grow((void **)&out->items, &out->capacity, out->n + n, 1));
    if (n > 0)
        memcpy(out->items + out->n, from, n);
    out->n += n;
    return MU_OK;
}

static mu_status put_varint(bytes *out, uint64_t value)
{
    uint8_t text[10];
    size_t n = 0;
    for (; value > 0x7f; value >>= 7)
        text[n++] = (uint8_t)(value | 0x80);
    text[n++] = (uint8_t)value;
    return put(out, text, n);
}

// A field of bytes: a string, or a message.
static mu_status put_field(bytes *out, int number, const void *from, size_t n)
{
    MU_TRY(put_varint(out, (uint64_t)number << 3 | BYTES_FIELD));
    MU_TRY(put_varint(out, n));
    return put(out, from, n);
}

// ---- A feature ----------------------------------------------------------------------------------

static mu_status put_number(bytes *list, const mu_tensor *tensor, int64_t i)
{
    if (!mu__dtype_is_float(tensor->dtype))
        return put_varint(list, (uint64_t)mu_tensor_item_int(tensor, i));
    const float value = (float)mu__read_element(tensor->dtype, mu__host_read(tensor), i);
    uint8_t text[4];
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int byte = 0; byte < 4; byte++)
        text[byte] = (uint8_t)(bits >> 8 * byte);
    return put(list, text, sizeof text);
}

// Values [begin, end) of a tensor as a Feature.
static mu_status put_feature(bytes *out, const mu_tensor *tensor, int64_t begin, int64_t end)
{
    const int kind = tensor->dtype == MU_STRING ? 1 : mu__dtype_is_float(tensor->dtype) ? 2 : 3;
    bytes values = {0}, list = {0};
    mu_status status = MU_OK;
    for (int64_t i = begin; i < end && status == MU_OK; i++) {
        if (kind == 1) {
            const mu_string string = mu__string_at(tensor, i);
            status = put_field(&list, ITEM_FIELD, string.bytes, string.n);
        } else {
            status = put_number(&values, tensor, i);
        }
    }
    if (status == MU_OK && values.n > 0)
        status = put_field(&list, ITEM_FIELD, values.items, values.n);
    if (status == MU_OK)
        status = put_field(out, kind, list.items, list.n);
    mu__free(values.items);
    mu__free(list.items);
    return status;
}

static const mu_tensor *tensor_of(const mu_value *value, const char *key)
{
    const mu_tensor *tensor = value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    if (tensor == NULL || tensor->buffer == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "mu_serialize_example: '%s' is not a tensor with elements", key);
        return NULL;
    }
    return mu__host_read(tensor) != NULL ? tensor : NULL;
}

static mu_status put_whole(bytes *out, const mu_value *value, const char *key)
{
    const mu_tensor *tensor = tensor_of(value, key);
    return tensor != NULL ? put_feature(out, tensor, 0, mu__elements(&tensor->shape)) : mu_error_code();
}

// ---- Sequences ----------------------------------------------------------------------------------

static mu_status put_step(bytes *out, const mu_tensor *tensor, int64_t begin, int64_t end)
{
    bytes feature = {0};
    mu_status status = put_feature(&feature, tensor, begin, end);
    if (status == MU_OK)
        status = put_field(out, ITEM_FIELD, feature.items, feature.n);
    mu__free(feature.items);
    return status;
}

static mu_status put_sequence(bytes *out, const mu_value *value, const char *key)
{
    if (value->kind == MU_VALUE_LIST) {
        for (int i = 0; i < value->n; i++) {
            const mu_tensor *tensor = tensor_of(value->items[i], key);
            if (tensor == NULL)
                return mu_error_code();
            MU_TRY(put_step(out, tensor, 0, mu__elements(&tensor->shape)));
        }
        return MU_OK;
    }
    const mu_tensor *tensor = tensor_of(value, key);
    if (tensor == NULL)
        return mu_error_code();
    if (tensor->shape.rank == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_serialize_sequence_example: sequence '%s' is a scalar; give a tensor whose axis 0 are the "
                         "steps, or a list of tensors",
                         key);
    const int64_t steps = tensor->shape.dims[0], width = steps > 0 ? mu__elements(&tensor->shape) / steps : 0;
    for (int64_t i = 0; i < steps; i++)
        MU_TRY(put_step(out, tensor, i * width, (i + 1) * width));
    return MU_OK;
}

// ---- Maps ---------------------------------------------------------------------------------------

typedef mu_status put_value_fn(bytes *out, const mu_value *value, const char *key);

static mu_status put_entry(bytes *out, const mu_value *map, int i, put_value_fn *put_value)
{
    bytes entry = {0}, value = {0};
    mu_status status = put_value(&value, map->items[i], map->keys[i]);
    if (status == MU_OK)
        status = put_field(&entry, KEY_FIELD, map->keys[i], strlen(map->keys[i]));
    if (status == MU_OK)
        status = put_field(&entry, VALUE_FIELD, value.items, value.n);
    if (status == MU_OK)
        status = put_field(out, MAP_FIELD, entry.items, entry.n);
    mu__free(entry.items);
    mu__free(value.items);
    return status;
}

static int by_key(const void *a, const void *b) { return strcmp(**(char **const *)a, **(char **const *)b); }

// Writes a map as a field of the message; NULL: nothing.
static mu_status put_map(bytes *message, int field, const mu_value *map, const char *what, put_value_fn *put_value)
{
    if (map == NULL)
        return MU_OK;
    if (map->kind != MU_VALUE_MAP)
        return mu__error(MU_INVALID_ARGUMENT, "the %s of an example are not a map (mu_map) of names to tensors", what);
    bytes entries = {0};
    char ***order = mu__calloc((size_t)map->n + 1, sizeof *order); // addresses of keys, so that they give the position
    mu_status status = order != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < map->n; i++)
        order[i] = &map->keys[i];
    if (status == MU_OK && map->n > 1)
        qsort(order, (size_t)map->n, sizeof *order, by_key);
    for (int i = 0; status == MU_OK && i < map->n; i++)
        status = put_entry(&entries, map, (int)(order[i] - map->keys), put_value);
    if (status == MU_OK)
        status = put_field(message, field, entries.items, entries.n);
    mu__free(order);
    mu__free(entries.items);
    return status;
}

static mu_tensor *finish(bytes *message, mu_status status)
{
    mu_tensor *tensor = status == MU_OK ? mu__strings_text(message->items, message->n) : NULL;
    mu__free(message->items);
    return mu__give(tensor);
}

mu_tensor *mu_serialize_example(mu_value *features)
{
    bytes message = {0};
    if (mu__need(features, "mu_serialize_example: the features") != MU_OK)
        return NULL;
    return finish(&message, put_map(&message, MU_EXAMPLE_FEATURES_FIELD, features, "features", put_whole));
}

mu_tensor *mu_serialize_sequence_example(mu_value *context, mu_value *sequences)
{
    bytes message = {0};
    if (mu__pending())
        return NULL;
    mu_status status = put_map(&message, MU_EXAMPLE_FEATURES_FIELD, context, "features", put_whole);
    if (status == MU_OK)
        status = put_map(&message, MU_EXAMPLE_LISTS_FIELD, sequences, "sequences", put_sequence);
    return finish(&message, status);
}

// ---- TFRecord files -----------------------------------------------------------------------------

struct mu_tfrecord_writer {
    mu_object object;
    mu_file_writer *file; // NULL: closed
};

static void writer_destroy(void *object) { mu__file_abandon(((mu_tfrecord_writer *)object)->file); }

static mu_type writer_type = {.name = "TFRecord writer", .destroy = writer_destroy};

mu_tfrecord_writer *mu_tfrecord_writer_new(const char *path)
{
    if (mu__need(path, "mu_tfrecord_writer_new: the path") != MU_OK)
        return NULL;
    mu_tfrecord_writer *writer = mu__new(&writer_type, sizeof *writer);
    if (writer != NULL && (writer->file = mu__file_create(path)) == NULL) {
        mu_release(writer);
        return NULL;
    }
    return mu__give(writer);
}

static mu_status check_open(const mu_tfrecord_writer *writer, const char *function)
{
    MU_TRY(mu__need(writer, function));
    return writer->file != NULL ? MU_OK : mu__error(MU_FAILED_PRECONDITION, "%s: the file is closed", function);
}

mu_status mu_tfrecord_write(mu_tfrecord_writer *writer, mu_tensor *record)
{
    MU_TRY(check_open(writer, "mu_tfrecord_write"));
    MU_TRY(mu__need(record, "mu_tfrecord_write: the record"));
    const bool string = record->dtype == MU_STRING && record->shape.rank == 0;
    if (record->buffer == NULL || !(string || (record->dtype == MU_U8 && record->shape.rank == 1))) {
        char text[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tfrecord_write: the record is %s %s; expected one string, or a vector of uint8",
                         mu_dtype_name(record->dtype), mu__shape_text(&record->shape, text));
    }
    const mu_string content =
        string ? mu__string_at(record, 0) : (mu_string){mu__host_read(record), (size_t)record->shape.dims[0]};
    return mu__record_write(writer->file, content.bytes, content.n, "", 0);
}

mu_status mu_tfrecord_writer_close(mu_tfrecord_writer *writer)
{
    MU_TRY(check_open(writer, "mu_tfrecord_writer_close"));
    mu_file_writer *file = writer->file;
    writer->file = NULL;
    return mu__file_commit(file);
}
