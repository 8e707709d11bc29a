// Redirects this process's standard error to a file for a while, so that a test can look for words in it. At the end
// the text is copied to the old standard error.
#ifndef MU_TESTS_SERVED_LOG_H
#define MU_TESTS_SERVED_LOG_H

#include "served_tasks.h"

typedef struct served_log {
    FILE *file;
    int before;
} served_log;

static inline served_log log_begin(void)
{
    served_log l = {.file = tmpfile(), .before = dup(STDERR_FILENO)};
    expect(l.file && dup2(fileno(l.file), STDERR_FILENO) >= 0, "messages go to a file");
    return l;
}

static inline bool log_says(const served_log *l, const char *words)
{
    char line[2000];
    bool found = false;
    rewind(l->file);
    while (!found && fgets(line, sizeof line, l->file))
        found = strstr(line, words) != NULL;
    fseek(l->file, 0, SEEK_END);
    return found;
}

static inline void log_end(served_log *l)
{
    char line[2000];
    rewind(l->file);
    dup2(l->before, STDERR_FILENO);
    close(l->before);
    while (fgets(line, sizeof line, l->file))
        fputs(line, stderr);
    fclose(l->file);
}

#endif
