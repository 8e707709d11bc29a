// What a function writes to the log.
#ifndef MU_TEST_LOG_TEXT_H
#define MU_TEST_LOG_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Runs fn() with standard error in a file and returns what it wrote. The caller frees it.
static inline char *log_of(void (*fn)(void))
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int original = dup(2);
    dup2(fileno(file), 2);
    fn();
    fflush(stderr);
    dup2(original, 2);
    close(original);
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    rewind(file);
    assert_in_range(fread(text, 1, (1 << 16) - 1, file), 0, (1 << 16) - 1);
    fclose(file);
    return text;
}

#endif
