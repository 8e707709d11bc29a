// Walks the wire format of protocol buffers for tf.train.Example: fields, maps, and lists of values packed or not.
//
// TensorFlow's parsers of these messages read a stricter form than protocol buffers: an entry of a map is a key and a
// value, a Feature begins with its one list, and a list has its values packed in one field or each in a field of its
// own. Other forms are damage here too, unknown fields among them, except where TensorFlow passes over them: in the
// outermost message, and behind a Feature's list and a packed field that are not in a step of a sequence. A second list
// or packed field there, whose values it would drop without a word, is damage here.
#include "data/formats/example.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // wire types

typedef struct field {
    uint64_t number;
    int type;
    uint64_t varint; // VARINT
    mu_span bytes;   // all other types
} field;

static uint64_t read_varint(mu_cursor *cursor)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = mu__cursor_u8(cursor);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    cursor->bad = true; // more than ten bytes
    return 0;
}

// Reads the next field; false at the end, and for damage, where the cursor is bad.
static bool next_field(mu_cursor *cursor, field *out)
{
    if (mu__cursor_left(cursor) == 0)
        return false;
    const uint64_t key = read_varint(cursor);
    *out = (field){.number = key >> 3, .type = (int)(key & 7)};
    uint64_t n = 0;
    switch (out->type) {
    case VARINT: out->varint = read_varint(cursor); break;
    case FIXED64: n = 8; break;
    case FIXED32: n = 4; break;
    case BYTES: n = read_varint(cursor); break;
    default: cursor->bad = true;
    }
    if (n > mu__cursor_left(cursor) || out->number == 0)
        cursor->bad = true;
    else if (out->type != VARINT)
        out->bytes = (mu_span){mu__cursor_bytes(cursor, (size_t)n), (size_t)n};
    return !cursor->bad;
}

static bool is_message(const field *f, uint64_t number) { return f->number == number && f->type == BYTES; }

// ---- Maps ---------------------------------------------------------------------------------------

// A map is a list of entries with a key (1) and a value (2), each once. As in TensorFlow, an empty Feature of an
// Example does not replace one that has a list; one of a context does, and so does an empty list of steps.
static bool read_entry(mu_span entry, mu_example_map map, int n, const char *const *keys, mu_span *values)
{
    mu_cursor cursor = mu__cursor(entry.bytes, entry.n);
    field a = {0}, b = {0};
    if (!next_field(&cursor, &a) || !next_field(&cursor, &b) || mu__cursor_left(&cursor) > 0)
        return false;
    const bool in_order = is_message(&a, 1) && is_message(&b, 2);
    if (!in_order && !(is_message(&a, 2) && is_message(&b, 1)))
        return false;
    const mu_span key = in_order ? a.bytes : b.bytes, value = in_order ? b.bytes : a.bytes;
    for (int i = 0; i < n; i++)
        if (strlen(keys[i]) == key.n && memcmp(keys[i], key.bytes, key.n) == 0 &&
            (value.n > 0 || map != MU_EXAMPLE_FEATURES || values[i].bytes == NULL))
            values[i] = value;
    return true;
}

bool mu__example_find(mu_span message, mu_example_map map, int n, const char *const *keys, mu_span *values)
{
    mu_cursor cursor = mu__cursor(message.bytes, message.n);
    bool good = true;
    for (int i = 0; i < n; i++)
        values[i] = (mu_span){0};
    for (field f; good && next_field(&cursor, &f);) {
        mu_cursor entries = mu__cursor(f.bytes.bytes, f.bytes.n);
        if (!is_message(&f, map == MU_EXAMPLE_LISTS ? MU_EXAMPLE_LISTS_FIELD : MU_EXAMPLE_FEATURES_FIELD))
            continue;
        for (field entry; good && next_field(&entries, &entry);)
            good = is_message(&entry, 1) && read_entry(entry.bytes, map, n, keys, values);
        good = good && !entries.bad;
    }
    return good && !cursor.bad;
}

bool mu__example_step(mu_span list, size_t *at, mu_span *feature, bool *bad)
{
    mu_cursor cursor = mu__cursor(list.bytes + *at, list.n - *at);
    field f;
    const bool found = next_field(&cursor, &f);
    *bad = cursor.bad || (found && !is_message(&f, 1));
    if (!found || *bad)
        return false;
    *feature = f.bytes;
    *at = (size_t)(cursor.at - list.bytes);
    return true;
}

// ---- Values -------------------------------------------------------------------------------------

bool mu__example_kind(mu_span feature, bool step, mu_dtype *dtype, mu_span *list)
{
    static const mu_dtype kinds[] = {MU_DTYPE_DEFAULT, MU_STRING, MU_F32, MU_I64};
    mu_cursor cursor = mu__cursor(feature.bytes, feature.n);
    *dtype = MU_DTYPE_DEFAULT;
    field f;
    if (!next_field(&cursor, &f))
        return !cursor.bad;
    if (f.type != BYTES || f.number >= MU_COUNT(kinds) || (step && mu__cursor_left(&cursor) > 0))
        return false;
    *dtype = kinds[f.number];
    *list = f.bytes;
    while (next_field(&cursor, &f))
        if (f.type == BYTES && f.number < MU_COUNT(kinds))
            return false;
    return !cursor.bad;
}

static float float_at(const uint8_t *bytes)
{
    mu_cursor cursor = mu__cursor(bytes, 4);
    const uint32_t bits = mu__cursor_u32_little(&cursor);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static mu_status add_floats(mu_span packed, mu_value_sink *sink)
{
    if (packed.n % 4 != 0)
        return MU_DATA_LOSS;
    for (size_t i = 0; i < packed.n / 4; i++, sink->n++)
        if (sink->numbers != NULL)
            ((float *)sink->numbers)[sink->n] = float_at(packed.bytes + 4 * i);
    return MU_OK;
}

static void add_integer(uint64_t value, mu_value_sink *sink)
{
    if (sink->numbers != NULL)
        ((int64_t *)sink->numbers)[sink->n] = (int64_t)value;
    sink->n++;
}

static mu_status add_integers(mu_span packed, mu_value_sink *sink)
{
    mu_cursor cursor = mu__cursor(packed.bytes, packed.n);
    while (mu__cursor_left(&cursor) > 0) {
        const uint64_t value = read_varint(&cursor);
        if (!cursor.bad)
            add_integer(value, sink);
    }
    return cursor.bad ? MU_DATA_LOSS : MU_OK;
}

static mu_status add_string(mu_span bytes, mu_value_sink *sink)
{
    sink->n++;
    return sink->strings != NULL ? mu__strings_add(sink->strings, bytes.bytes, bytes.n) : MU_OK;
}

// The values are field 1.
mu_status mu__example_values(mu_span list, bool step, mu_dtype dtype, mu_value_sink *sink)
{
    mu_cursor cursor = mu__cursor(list.bytes, list.n);
    mu_status status = MU_OK;
    bool packed = false, single = false;
    for (field f; status == MU_OK && next_field(&cursor, &f);) {
        if (packed && !step && f.number != 1)
            continue;
        if (packed || f.number != 1)
            return MU_DATA_LOSS;
        packed = f.type == BYTES && dtype != MU_STRING;
        if (dtype == MU_STRING && f.type == BYTES)
            status = add_string(f.bytes, sink);
        else if (packed && !single)
            status = dtype == MU_F32 ? add_floats(f.bytes, sink) : add_integers(f.bytes, sink);
        else if (dtype == MU_F32 && f.type == FIXED32)
            status = add_floats(f.bytes, sink);
        else if (dtype == MU_I64 && f.type == VARINT)
            add_integer(f.varint, sink);
        else
            status = MU_DATA_LOSS;
        single = true;
    }
    return status != MU_OK ? status : cursor.bad ? MU_DATA_LOSS : MU_OK;
}
