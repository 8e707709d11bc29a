// A folder of its own for each run of a test program, so that two runs in one place do not share files: for cmocka's
// group functions.
#ifndef MU_TESTS_SCRATCH_H
#define MU_TESTS_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char scratch_folder[] = P_tmpdir "/muster-test-XXXXXX";

// Makes the folder and goes there.
static inline int scratch_enter(void **state)
{
    (void)state;
    return mkdtemp(scratch_folder) != NULL ? chdir(scratch_folder) : -1;
}

static inline int scratch_remove(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    return remove(path);
}

static inline int scratch_leave(void **state)
{
    (void)state;
    return chdir("/") == 0 ? nftw(scratch_folder, scratch_remove, 16, FTW_DEPTH | FTW_PHYS) : -1;
}

#endif
