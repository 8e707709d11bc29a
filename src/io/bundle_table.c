// Sorted tables of keys and values, as in LevelDB and in the index of TensorFlow's checkpoints.
//
// A table is blocks, an index block with the last key and the place of each, and a footer. In a block a key leaves out
// the prefix that it shares with the previous key. Every block ends with its checksum.
#include "io/tensor_bundle.h"

#include "data/formats/crc32c.h"

enum {
    FOOTER_BYTES = 48,
    TRAILER_BYTES = 5, // of a block: how it is compressed, checksum
    MOST_KEY = 4096,
    RESTART_INTERVAL = 16,
    BLOCK_BYTES = 256 << 10,
};
#define MAGIC          UINT64_C(0xdb4775248b80fb57)
#define MOST_KEY_BYTES ((size_t)256 << 20) // of all keys together, which share their beginnings in the file

uint64_t mu__cursor_varint(mu_cursor *cursor)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = mu__cursor_u8(cursor);
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    cursor->bad = true;
    return 0;
}

// ---- Reading ------------------------------------------------------------------------------------

typedef struct reader {
    const char *path;
    const uint8_t *data;
    size_t bytes;
    mu_table_fn fn;
    void *arg;
    size_t key_bytes; // of all keys so far
} reader;

static mu_status damaged(const char *path, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s: %s; is it the index of a checkpoint, and whole?", path, what);
}

// The contents of the block that a handle describes: offset and size.
static mu_status read_block(const reader *r, mu_cursor *handle, mu_cursor *block)
{
    const uint64_t offset = mu__cursor_varint(handle), size = mu__cursor_varint(handle);
    if (handle->bad || offset > r->bytes || size > r->bytes - offset || r->bytes - offset - size < TRAILER_BYTES)
        return damaged(r->path, "a block is not in the file");
    const uint8_t *at = r->data + offset;
    mu_cursor trailer = mu__cursor(at + size + 1, TRAILER_BYTES - 1);
    if (mu__cursor_u32_little(&trailer) != mu__crc32c_mask(mu__crc32c(0, at, (size_t)size + 1)))
        return damaged(r->path, "the checksum of a block does not fit");
    if (at[size] != 0)
        return mu__error(MU_UNIMPLEMENTED, "%s has compressed blocks, which TensorFlow does not write for checkpoints",
                         r->path);
    if (size < 4)
        return damaged(r->path, "a block is cut off");
    mu_cursor count = mu__cursor(at + size - 4, 4);
    const uint64_t restarts = 4 * ((uint64_t)mu__cursor_u32_little(&count) + 1);
    if (restarts > size)
        return damaged(r->path, "a block is cut off");
    *block = mu__cursor(at, (size_t)(size - restarts));
    return MU_OK;
}

// Calls a function with each row of a block; `key` is the last key, which must grow.
static mu_status each_row(reader *r, mu_cursor block, uint8_t key[MOST_KEY], size_t *key_bytes, mu_table_fn fn,
                          void *arg)
{
    bool first = true;
    while (mu__cursor_left(&block) > 0) {
        const uint64_t shared = mu__cursor_varint(&block), own = mu__cursor_varint(&block),
                       value_bytes = mu__cursor_varint(&block);
        if (block.bad || shared > *key_bytes || (first && shared > 0) || own > MOST_KEY - shared)
            return damaged(r->path, "a key is damaged or too long");
        const uint8_t *rest = mu__cursor_bytes(&block, (size_t)own);
        const uint8_t *value =
            value_bytes <= mu__cursor_left(&block) ? mu__cursor_bytes(&block, (size_t)value_bytes) : NULL;
        if (block.bad || !rest || !value)
            return damaged(r->path, "a row is cut off");
        memcpy(key + shared, rest, (size_t)own);
        *key_bytes = (size_t)(shared + own);
        r->key_bytes += *key_bytes;
        if (r->key_bytes > MOST_KEY_BYTES)
            return damaged(r->path, "the names are longer than those of any checkpoint");
        first = false;
        MU_TRY(fn(arg, key, *key_bytes, value, (size_t)value_bytes));
    }
    return MU_OK;
}

// A row of the index block: its value is the handle of a block.
static mu_status data_block(void *arg, const uint8_t *last_key, size_t last_key_bytes, const uint8_t *value,
                            size_t value_bytes)
{
    reader *r = arg;
    mu_cursor handle = mu__cursor(value, value_bytes), block;
    uint8_t key[MOST_KEY];
    size_t key_bytes = 0;
    (void)last_key;
    (void)last_key_bytes;
    MU_TRY(read_block(r, &handle, &block));
    return each_row(r, block, key, &key_bytes, r->fn, r->arg);
}

mu_status mu__table_each(const char *path, const uint8_t *data, size_t bytes, mu_table_fn fn, void *arg)
{
    reader r = {.path = path, .data = data, .bytes = bytes, .fn = fn, .arg = arg};
    if (bytes < FOOTER_BYTES)
        return damaged(path, "it is shorter than the footer of a table");
    mu_cursor footer = mu__cursor(data + bytes - FOOTER_BYTES, FOOTER_BYTES), metadata, index;
    mu_cursor magic = mu__cursor(data + bytes - 8, 8);
    if (mu__cursor_u64_little(&magic) != MAGIC)
        return damaged(path, "it does not end as a table does");
    MU_TRY(read_block(&r, &footer, &metadata));
    uint8_t key[MOST_KEY];
    size_t key_bytes = 0;
    MU_TRY(read_block(&r, &footer, &index));
    return each_row(&r, index, key, &key_bytes, data_block, &r);
}

// ---- Writing ------------------------------------------------------------------------------------

// The block that is being filled, and the index block.
typedef struct block {
    struct {
        uint8_t *items;
        size_t n, capacity;
    } bytes;
    struct {
        uint32_t *items;
        size_t n, capacity;
    } restarts;
    const char *last; // key; NULL: the block is empty
    int rows;
} block;

typedef struct writer {
    mu_file_writer *file;
    uint64_t at;
    block rows, index;
} writer;

static mu_status put(block *b, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        MU_TRY(MU_PUSH(&b->bytes, ((const uint8_t *)data)[i]));
    return MU_OK;
}

static size_t encode_varint(uint64_t value, uint8_t out[10])
{
    size_t n = 0;
    for (; value >= 128; value >>= 7)
        out[n++] = (uint8_t)(value | 128);
    out[n++] = (uint8_t)value;
    return n;
}

static mu_status put_varint(block *b, uint64_t value)
{
    uint8_t out[10];
    return put(b, out, encode_varint(value, out));
}

static mu_status put_u32(block *b, uint32_t value)
{
    const uint8_t out[] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    return put(b, out, sizeof out);
}

static mu_status add_row(block *b, const char *key, const void *value, size_t bytes)
{
    size_t shared = 0;
    if (b->rows % RESTART_INTERVAL == 0) {
        const uint32_t at = (uint32_t)b->bytes.n;
        MU_TRY(MU_PUSH(&b->restarts, at));
    } else {
        while (key[shared] && key[shared] == b->last[shared])
            shared++;
    }
    MU_TRY(put_varint(b, shared));
    MU_TRY(put_varint(b, strlen(key) - shared));
    MU_TRY(put_varint(b, bytes));
    MU_TRY(put(b, key + shared, strlen(key) - shared));
    MU_TRY(put(b, value, bytes));
    b->last = key;
    b->rows++;
    return MU_OK;
}

// Writes a block with its trailer and empties it; `handle` becomes its place, of `handle_bytes` bytes.
static mu_status write_block(writer *w, block *b, uint8_t handle[20], size_t *handle_bytes)
{
    if (b->restarts.n == 0) {
        const uint32_t first = 0;
        MU_TRY(MU_PUSH(&b->restarts, first));
    }
    for (size_t i = 0; i < b->restarts.n; i++)
        MU_TRY(put_u32(b, b->restarts.items[i]));
    MU_TRY(put_u32(b, (uint32_t)b->restarts.n));
    const size_t size = b->bytes.n;
    *handle_bytes = encode_varint(w->at, handle);
    *handle_bytes += encode_varint(size, handle + *handle_bytes);
    const uint8_t not_compressed = 0;
    MU_TRY(put(b, &not_compressed, 1));
    MU_TRY(put_u32(b, mu__crc32c_mask(mu__crc32c(0, b->bytes.items, size + 1))));
    MU_TRY(mu__file_write(w->file, b->bytes.items, b->bytes.n));
    w->at += b->bytes.n;
    b->bytes.n = b->restarts.n = 0;
    b->rows = 0;
    return MU_OK;
}

static mu_status flush_rows(writer *w)
{
    uint8_t handle[20];
    size_t bytes;
    const char *last = w->rows.last;
    MU_TRY(write_block(w, &w->rows, handle, &bytes));
    return add_row(&w->index, last, handle, bytes);
}

static mu_status write_table(writer *w, size_t n, const mu_table_row *rows)
{
    uint8_t footer[FOOTER_BYTES] = {0};
    size_t metadata, index;
    for (size_t i = 0; i < n; i++) {
        MU_TRY(add_row(&w->rows, rows[i].key, rows[i].value, rows[i].bytes));
        if (w->rows.bytes.n >= BLOCK_BYTES || i + 1 == n)
            MU_TRY(flush_rows(w));
    }
    MU_TRY(write_block(w, &w->rows, footer, &metadata));
    MU_TRY(write_block(w, &w->index, footer + metadata, &index));
    for (int i = 0; i < 8; i++)
        footer[FOOTER_BYTES - 8 + i] = (uint8_t)(MAGIC >> 8 * i);
    return mu__file_write(w->file, footer, sizeof footer);
}

mu_status mu__table_write(mu_file_writer *file, size_t n, const mu_table_row *rows)
{
    writer w = {.file = file};
    const mu_status status = write_table(&w, n, rows);
    mu__free(w.rows.bytes.items);
    mu__free(w.rows.restarts.items);
    mu__free(w.index.bytes.items);
    mu__free(w.index.restarts.items);
    return status;
}
