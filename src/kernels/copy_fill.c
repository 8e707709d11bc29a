// Copies of dense blocks and fills with a constant, for ops that move memory; see copy_fill.h.
//
// Short blocks are copied inline, because a call of memcpy costs more than copying their bytes. Independent of tensors.
#include "copy_fill.h"
#include "dispatch.h"

#include <string.h>

// In bytes: a cache line; longest block copied inline; largest block that stays cached while it is copied repeatedly.
enum { LINE = 64, SHORT = 512, REPEATED = 16384 };
enum { AHEAD = 8 }; // blocks between the one that is fetched and the one that is copied

// Copies blocks whose size is a compile-time constant.
#define COPY_FIXED(size)                                                      \
    for (int64_t i = 0; i < n; i++)                                           \
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, size); \
    return

// Copies whole lines; the last one may overlap the line before it.
MU_PER_ISA(copy_short,
           (char *restrict to, size_t to_step, const char *restrict from, size_t from_step, size_t bytes, int64_t n),
           (to, to_step, from, from_step, bytes, n))
{
    switch (bytes) {
    case 1: COPY_FIXED(1);
    case 2: COPY_FIXED(2);
    case 4: COPY_FIXED(4);
    case 8: COPY_FIXED(8);
    case 16: COPY_FIXED(16);
    case 32: COPY_FIXED(32);
    case LINE: COPY_FIXED(LINE);
    }
    for (int64_t i = 0; i < n; i++, to += to_step, from += from_step) {
        if (bytes < LINE) {
            memcpy(to, from, bytes);
            continue;
        }
        for (size_t at = 0; at + LINE < bytes; at += LINE)
            memcpy(to + at, from + at, LINE);
        memcpy(to + bytes - LINE, from + bytes - LINE, LINE);
    }
}

MU_PER_ISA(repeat_block, (char *restrict to, size_t to_step, const char *restrict from, size_t bytes, int64_t n),
           (to, to_step, from, bytes, n))
{
    for (int64_t i = 0; i < n; i++, to += to_step) {
        for (size_t at = 0; at + LINE < bytes; at += LINE)
            memcpy(to + at, from + at, LINE);
        memcpy(to + bytes - LINE, from + bytes - LINE, LINE);
    }
}

void mu__copy_blocks(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, int64_t n)
{
    if (bytes == 0)
        return;
    if (bytes <= SHORT) {
        copy_short(to, to_step, from, from_step, bytes, n);
        return;
    }
    if (from_step == 0 && bytes <= REPEATED) {
        repeat_block(to, to_step, from, bytes, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * to_step, (const char *)from + (size_t)i * from_step, bytes);
}

// Such blocks are in no cache. The loop has nothing else in it, so that out-of-order execution overlaps as many cache
// misses as possible; prefetching the lines of a later block helps while other programs use the memory too.
MU_PER_ISA(copy_scattered, (char *restrict to, const char *const *from, size_t bytes, int64_t n), (to, from, bytes, n))
{
    for (int64_t i = 0; i < n; i++, to += bytes) {
        const char *later = from[i + AHEAD < n ? i + AHEAD : n - 1];
        for (size_t at = 0; at < bytes; at += LINE)
            __builtin_prefetch(later + at);
        for (size_t at = 0; at + LINE < bytes; at += LINE)
            memcpy(to + at, from[i] + at, LINE);
        memcpy(to + bytes - LINE, from[i] + bytes - LINE, LINE);
    }
}

void mu__copy_scattered(void *to, const char *const *from, size_t bytes, int64_t n)
{
    if (bytes >= LINE && bytes <= SHORT) {
        copy_scattered(to, from, bytes, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        mu__copy_blocks((char *)to + (size_t)i * bytes, 0, from[i], 0, bytes, 1);
}

// Repeats a line, up to `bytes` bytes.
MU_PER_ISA(fill_lines, (char *to, const char *line, size_t bytes), (to, line, bytes))
{
    size_t at = 0;
    for (; at + LINE <= bytes; at += LINE)
        memcpy(to + at, line, LINE);
    memcpy(to + at, line, bytes - at);
}

void mu__fill(void *to, const void *element, size_t bytes, int64_t n)
{
    _Alignas(LINE) char line[LINE];
    const int64_t most = (int64_t)(LINE / bytes);
    copy_short(line, bytes, element, 0, bytes, n < most ? n : most);
    fill_lines(to, line, (size_t)n * bytes);
}
