// Reads zip archives in memory: the directory, and members that are stored or deflated.
//
// Every offset and size is checked against the archive before it is used. Members do not overlap, and all reads of an
// archive together may inflate only to what deflate can make of its bytes, so a small file cannot take much memory.
#include "data/formats/zip.h"

#include <zlib.h>

#define MOST_DEFLATE_RATIO 1032
#define MOST_MEMBERS       16384

enum { END_BYTES = 22, LOCATOR_BYTES = 20, MOST_COMMENT = 65535 };

static mu_status damaged(const char *path, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s: %s; is it a zip archive, and whole?", path, what);
}

static uint16_t u16(mu_cursor *cursor)
{
    uint16_t low = mu__cursor_u8(cursor);
    return (uint16_t)(low | mu__cursor_u8(cursor) << 8);
}

// Archives with large numbers have a second end record, which a locator in front of the first points to.
static mu_status find_wide_directory(const mu_zip *zip, size_t end, uint64_t *entries, uint64_t *offset)
{
    if (end < LOCATOR_BYTES || memcmp(zip->data + end - LOCATOR_BYTES, "PK\6\7", 4) != 0)
        return damaged(zip->path, "the directory of the 64-bit kind has no locator");
    mu_cursor locator = mu__cursor(zip->data + end - LOCATOR_BYTES + 8, 8);
    const uint64_t at = mu__cursor_u64_little(&locator);
    if (at > zip->bytes)
        return damaged(zip->path, "the directory of the 64-bit kind begins after the end of the archive");
    mu_cursor record = mu__cursor(zip->data + at, zip->bytes - (size_t)at);
    const uint8_t *head = mu__cursor_bytes(&record, 32);
    *entries = mu__cursor_u64_little(&record);
    mu__cursor_u64_little(&record);
    *offset = mu__cursor_u64_little(&record);
    return record.bad || memcmp(head, "PK\6\6", 4) != 0
               ? damaged(zip->path, "the directory of the 64-bit kind is cut off")
               : MU_OK;
}

// Finds the end record by searching for its signature from the end.
static mu_status find_directory(const mu_zip *zip, uint64_t *entries, uint64_t *offset)
{
    const size_t lowest = zip->bytes > END_BYTES + MOST_COMMENT ? zip->bytes - END_BYTES - MOST_COMMENT : 0;
    for (size_t at = zip->bytes < END_BYTES ? 0 : zip->bytes - END_BYTES + 1; at-- > lowest;) {
        if (memcmp(zip->data + at, "PK\5\6", 4) != 0)
            continue;
        mu_cursor cursor = mu__cursor(zip->data + at + 10, zip->bytes - at - 10);
        *entries = u16(&cursor);
        mu__cursor_u32_little(&cursor);
        *offset = mu__cursor_u32_little(&cursor);
        if (*entries == UINT16_MAX || *offset == UINT32_MAX)
            return find_wide_directory(zip, at, entries, offset);
        return cursor.bad ? damaged(zip->path, "the end of the archive is cut off") : MU_OK;
    }
    return damaged(zip->path, "it has no zip directory");
}

// Sizes of 4 GiB and more are in an extra field (id 1), in the order size, packed, offset.
static void read_zip64(mu_cursor extra, mu_zip_entry *entry)
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

static mu_status read_entry(const mu_zip *zip, mu_cursor *cursor, mu_zip_entry *entry)
{
    const uint8_t *signature = mu__cursor_bytes(cursor, 10);
    *entry = (mu_zip_entry){.method = u16(cursor)};
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
        return damaged(zip->path, "a member has no name, or one too long");
    memcpy(entry->name, text, name);
    read_zip64(mu__cursor(more, extra), entry);
    return MU_OK;
}

mu_status mu__zip_open(mu_zip *zip, const char *path, const void *data, size_t bytes)
{
    uint64_t n = 0, offset = 0, packed = 0;
    *zip = (mu_zip){.path = path, .data = data, .bytes = bytes};
    MU_TRY(find_directory(zip, &n, &offset));
    if (n == 0 || n > MOST_MEMBERS || offset > bytes)
        return damaged(path, "the directory of the archive is empty or misplaced");
    mu_cursor cursor = mu__cursor(zip->data + offset, bytes - (size_t)offset);
    for (uint64_t i = 0; i < n; i++) {
        mu_zip_entry entry;
        MU_TRY(read_entry(zip, &cursor, &entry));
        packed += MU_MIN(entry.packed, (uint64_t)bytes);
        if (packed > bytes)
            return damaged(path, "members share their bytes");
        if (mu__zip_find(zip, entry.name))
            return damaged(path, "two members have one name");
        MU_TRY(MU_PUSH(&zip->entries, entry));
    }
    return MU_OK;
}

void mu__zip_close(mu_zip *zip)
{
    mu__free(zip->entries.items);
    zip->entries.items = NULL;
    zip->entries.n = zip->entries.capacity = 0;
}

const mu_zip_entry *mu__zip_find(const mu_zip *zip, const char *name)
{
    for (size_t i = 0; i < zip->entries.n; i++)
        if (strcmp(zip->entries.items[i].name, name) == 0)
            return &zip->entries.items[i];
    return NULL;
}

// ---- Members ------------------------------------------------------------------------------------

static mu_status inflate_entry(const mu_zip *zip, const mu_zip_entry *entry, const uint8_t *packed, uint8_t *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)packed};
    uint64_t in_left = entry->packed, out_left = entry->size;
    int result = Z_OK;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return mu__error(MU_RESOURCE_EXHAUSTED, "no memory to inflate %s", entry->name);
    z.next_out = out;
    while (result == Z_OK) {
        uInt in = (uInt)MU_MIN(in_left, (uint64_t)1 << 30), space = (uInt)MU_MIN(out_left, (uint64_t)1 << 30);
        z.avail_in = in;
        z.avail_out = space;
        result = inflate(&z, Z_NO_FLUSH);
        in_left -= in - z.avail_in;
        out_left -= space - z.avail_out;
    }
    inflateEnd(&z);
    return result == Z_STREAM_END && out_left == 0
               ? MU_OK
               : damaged(zip->path, "a member of the archive does not inflate to its size");
}

// The member's bytes without a check of their sum.
static mu_status entry_bytes(mu_zip *zip, const mu_zip_entry *entry, const uint8_t **bytes, uint8_t **own)
{
    if (entry->offset > zip->bytes)
        return damaged(zip->path, "a member begins after the end of the archive");
    mu_cursor cursor = mu__cursor(zip->data + entry->offset, zip->bytes - (size_t)entry->offset);
    const uint8_t *header = mu__cursor_bytes(&cursor, 26);
    uint16_t name = u16(&cursor), extra = u16(&cursor);
    mu__cursor_bytes(&cursor, (size_t)name + extra);
    const uint8_t *packed =
        entry->packed <= mu__cursor_left(&cursor) ? mu__cursor_bytes(&cursor, (size_t)entry->packed) : NULL;
    if (cursor.bad || packed == NULL || memcmp(header, "PK\3\4", 4) != 0)
        return damaged(zip->path, "a member of the archive is cut off");
    if (entry->method == 0 && entry->packed == entry->size) {
        *bytes = packed;
        return MU_OK;
    }
    if (entry->method != Z_DEFLATED)
        return mu__error(MU_UNIMPLEMENTED, "%s: %s is packed by method %d; Muster reads stored and deflated members",
                         zip->path, entry->name, entry->method);
    if (entry->size / MOST_DEFLATE_RATIO > zip->bytes - MU_MIN(zip->inflated / MOST_DEFLATE_RATIO, zip->bytes))
        return damaged(zip->path, "the members claim to be larger than the file can make them");
    zip->inflated += entry->size;
    *own = mu__alloc((size_t)entry->size + 1);
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

mu_status mu__zip_read(mu_zip *zip, const mu_zip_entry *entry, const uint8_t **bytes, uint8_t **own)
{
    *bytes = *own = NULL;
    mu_status status = entry_bytes(zip, entry, bytes, own);
    if (status == MU_OK && crc_of(*bytes, entry->size) != entry->crc)
        status =
            mu__error(MU_DATA_LOSS, "%s: the checksum of %s does not fit; get the file again", zip->path, entry->name);
    if (status != MU_OK) {
        mu__free(*own);
        *bytes = *own = NULL;
    }
    return status;
}
