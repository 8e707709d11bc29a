// The bytes of a fuzzer as text.
#ifndef MU_TESTS_FUZZ_TEXT_H
#define MU_TESTS_FUZZ_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Returns a copy of the bytes with a zero behind it; the caller frees it.
static inline char *fuzz_text(const uint8_t *data, size_t bytes)
{
    char *text = calloc(bytes + 1, 1);
    if (!text)
        abort();
    if (bytes > 0)
        memcpy(text, data, bytes);
    return text;
}

#endif
