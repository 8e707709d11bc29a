// Writes zip archives: stored members, each from its pieces, then the directory (PKWARE's APPNOTE 6.3).
//
// Members and archives of 4 GiB and more get the records of the 64-bit kind. The time of every member is the format's
// first, 1 January 1980, so that the same contents are the same bytes.
#include "data/formats/zip.h"

#include <zlib.h>

enum { FIRST_DATE = 1 << 5 | 1, VERSION = 20, WIDE_VERSION = 45, LOCAL_BYTES = 30, ENTRY_BYTES = 46, END_BYTES = 22 };

static uint8_t *put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static mu_status write_bytes(mu_zip_writer *zip, const void *data, size_t bytes)
{
    zip->at += bytes;
    return mu__file_write(zip->file, data, bytes);
}

static bool is_wide(const mu_zip_entry *entry) { return entry->size >= UINT32_MAX || entry->offset >= UINT32_MAX; }

// What the local header and the directory have in common: from the version to the length of the name.
static uint8_t *put_entry(uint8_t *at, const mu_zip_entry *entry)
{
    at = put(at, is_wide(entry) ? WIDE_VERSION : VERSION, 2);
    at = put(at, 1 << 11, 2); // the name is UTF-8
    at = put(at, 0, 2);       // stored
    at = put(at, 0, 2);
    at = put(at, FIRST_DATE, 2);
    at = put(at, entry->crc, 4);
    at = put(at, is_wide(entry) ? UINT32_MAX : entry->size, 4);
    at = put(at, is_wide(entry) ? UINT32_MAX : entry->size, 4);
    return put(at, strlen(entry->name), 2);
}

static mu_status write_local(mu_zip_writer *zip, const mu_zip_entry *entry)
{
    uint8_t header[LOCAL_BYTES], extra[20];
    uint8_t *at = put_entry(put(header, 0x04034b50, 4), entry);
    put(at, is_wide(entry) ? sizeof extra : 0, 2);
    MU_TRY(write_bytes(zip, header, sizeof header));
    MU_TRY(write_bytes(zip, entry->name, strlen(entry->name)));
    put(put(put(put(extra, 1, 2), 16, 2), entry->size, 8), entry->size, 8);
    return write_bytes(zip, extra, is_wide(entry) ? sizeof extra : 0);
}

mu_status mu__zip_add(mu_zip_writer *zip, const char *name, size_t n, const mu_zip_piece *pieces)
{
    mu_zip_entry entry = {.offset = zip->at};
    if (strlen(name) >= sizeof entry.name)
        return mu__error(MU_INVALID_ARGUMENT, "the name '%.80s…' has %zu bytes; a member of an archive has at most %zu",
                         name, strlen(name), sizeof entry.name - 1);
    memcpy(entry.name, name, strlen(name));
    uLong crc = crc32(0, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        crc = crc32_z(crc, pieces[i].bytes > 0 ? pieces[i].data : (const void *)"", pieces[i].bytes);
        entry.size += pieces[i].bytes;
    }
    entry.crc = (uint32_t)crc;
    entry.packed = entry.size;
    MU_TRY(MU_PUSH(&zip->entries, entry));
    MU_TRY(write_local(zip, &entry));
    for (size_t i = 0; i < n; i++)
        MU_TRY(write_bytes(zip, pieces[i].data, pieces[i].bytes));
    return MU_OK;
}

static mu_status write_entry(mu_zip_writer *zip, const mu_zip_entry *entry)
{
    uint8_t header[ENTRY_BYTES], extra[28];
    uint8_t *at = put(put(header, 0x02014b50, 4), is_wide(entry) ? WIDE_VERSION : VERSION, 2);
    at = put(put_entry(at, entry), is_wide(entry) ? sizeof extra : 0, 2);
    at = put(put(put(put(at, 0, 2), 0, 2), 0, 2), 0, 4); // no comment, first disk, attributes
    put(at, is_wide(entry) ? UINT32_MAX : entry->offset, 4);
    MU_TRY(write_bytes(zip, header, sizeof header));
    MU_TRY(write_bytes(zip, entry->name, strlen(entry->name)));
    put(put(put(put(put(extra, 1, 2), 24, 2), entry->size, 8), entry->size, 8), entry->offset, 8);
    return write_bytes(zip, extra, is_wide(entry) ? sizeof extra : 0);
}

// The end record of the 64-bit kind and its locator.
static mu_status write_wide_end(mu_zip_writer *zip, uint64_t directory)
{
    uint8_t record[76];
    const uint64_t n = zip->entries.n;
    uint8_t *at = put(put(put(put(record, 0x06064b50, 4), 44, 8), WIDE_VERSION, 2), WIDE_VERSION, 2);
    at = put(put(put(at, 0, 4), 0, 4), n, 8);
    at = put(put(put(at, n, 8), zip->at - directory, 8), directory, 8);
    at = put(put(put(at, 0x07064b50, 4), 0, 4), zip->at, 8);
    put(at, 1, 4);
    return write_bytes(zip, record, sizeof record);
}

mu_status mu__zip_finish(mu_zip_writer *zip)
{
    const uint64_t directory = zip->at, n = zip->entries.n;
    for (size_t i = 0; i < n; i++)
        MU_TRY(write_entry(zip, &zip->entries.items[i]));
    const uint64_t bytes = zip->at - directory;
    const bool wide = n >= UINT16_MAX || bytes >= UINT32_MAX || directory >= UINT32_MAX;
    if (wide)
        MU_TRY(write_wide_end(zip, directory));
    uint8_t end[END_BYTES] = {0};
    uint8_t *at = put(put(end, 0x06054b50, 4), 0, 4);
    at = put(put(at, wide ? UINT16_MAX : n, 2), wide ? UINT16_MAX : n, 2);
    put(put(at, wide ? UINT32_MAX : bytes, 4), wide ? UINT32_MAX : directory, 4);
    return write_bytes(zip, end, sizeof end);
}

void mu__zip_free(mu_zip_writer *zip) { mu__free(zip->entries.items); }
