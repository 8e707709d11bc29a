// The bounded cursor: parses all untrusted bytes.
//
// A reader need not check each step: after a read past the end the cursor is bad, does not advance and returns zeros,
// so one check at the end of a header is enough.
#include "base/base.h"

mu_cursor mu__cursor(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    return (mu_cursor){.at = at, .end = bytes > 0 ? at + bytes : at};
}

size_t mu__cursor_left(const mu_cursor *cursor) { return cursor->bad ? 0 : (size_t)(cursor->end - cursor->at); }

const uint8_t *mu__cursor_bytes(mu_cursor *cursor, size_t bytes)
{
    static const uint8_t nothing;
    if (cursor->bad || (size_t)(cursor->end - cursor->at) < bytes) {
        cursor->bad = true;
        return NULL;
    }
    const uint8_t *start = cursor->at;
    if (bytes == 0)
        return start != NULL ? start : &nothing;
    cursor->at += bytes;
    return start;
}

uint8_t mu__cursor_u8(mu_cursor *cursor)
{
    const uint8_t *byte = mu__cursor_bytes(cursor, 1);
    return byte != NULL ? *byte : 0;
}

static uint64_t little(mu_cursor *cursor, size_t bytes)
{
    const uint8_t *from = mu__cursor_bytes(cursor, bytes);
    uint64_t value = 0;
    for (size_t i = bytes; from != NULL && i > 0; i--)
        value = value << 8 | from[i - 1];
    return value;
}

uint32_t mu__cursor_u32_little(mu_cursor *cursor) { return (uint32_t)little(cursor, 4); }

uint64_t mu__cursor_u64_little(mu_cursor *cursor) { return little(cursor, 8); }

uint32_t mu__cursor_u32_big(mu_cursor *cursor)
{
    const uint8_t *from = mu__cursor_bytes(cursor, 4);
    if (from == NULL)
        return 0;
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}
