// Returns what a function writes to the log.
#ifndef MU_TEST_LOG_TEXT_H
#define MU_TEST_LOG_TEXT_H

#include "../caught_output.h"

#include <stdlib.h>

enum { LOG_BYTES = 1 << 16 };

static inline void call(void *fn) { (*(void (**)(void))fn)(); }

// Runs fn() and returns what it wrote to standard error. The caller frees it.
static inline char *log_of(void (*fn)(void))
{
    char *text = malloc(LOG_BYTES);
    assert_non_null(text);
    catch_stderr(call, &fn, text, LOG_BYTES);
    return text;
}

#endif
