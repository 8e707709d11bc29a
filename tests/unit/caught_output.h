// What a function writes to standard output or standard error.
#ifndef MU_TEST_CAUGHT_OUTPUT_H
#define MU_TEST_CAUGHT_OUTPUT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

// Runs fn(arg) while what goes to `stream` (STDOUT_FILENO or STDERR_FILENO) is written to `text`.
static inline void catch_output(int stream, void (*fn)(void *arg), void *arg, char *text, size_t capacity)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(NULL);
    const int kept = dup(stream);
    assert_true(kept >= 0 && dup2(fileno(file), stream) >= 0);
    fn(arg);
    fflush(NULL);
    assert_true(dup2(kept, stream) >= 0);
    close(kept);
    rewind(file);
    text[fread(text, 1, capacity - 1, file)] = '\0';
    fclose(file);
}

// The same for standard error.
static inline void catch_stderr(void (*fn)(void *arg), void *arg, char *text, size_t capacity)
{
    catch_output(STDERR_FILENO, fn, arg, text, capacity);
}

#endif
