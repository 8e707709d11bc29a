// The processes of the other tasks that `muster launch` started beside this one, found by their environment. For tests
// and benches that kill tasks.
#ifndef MU_TESTS_LAUNCHED_H
#define MU_TESTS_LAUNCHED_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline bool is_task(long pid, const char *wanted)
{
    static char environment[1 << 18];
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(environment, 1, sizeof environment - 1, file) : 0;
    if (file)
        fclose(file);
    for (size_t i = 0; i < n; i++) // the variables end with zeros
        environment[i] = environment[i] ? environment[i] : '\n';
    environment[n] = '\0';
    return strstr(environment, wanted) != NULL;
}

// The process of a task: a child of the launcher, as this one is. 0: there is none now.
static inline long process_of(const char *job, int index)
{
    char path[64], wanted[64];
    long pid, found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    snprintf(wanted, sizeof wanted, "\"type\":\"%s\",\"index\":%d", job, index);
    FILE *children = fopen(path, "re");
    while (children && fscanf(children, "%ld", &pid) == 1)
        if (pid != getpid() && is_task(pid, wanted))
            found = pid;
    if (children)
        fclose(children);
    return found;
}

#endif
