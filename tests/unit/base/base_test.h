// What the tests of the base layer share: cmocka's prerequisites, a temporary folder, and a run with each allocation
// failing in turn.
#ifndef MU_TESTS_BASE_TEST_H
#define MU_TESTS_BASE_TEST_H

#include "../assert_taken.h"
#include "../caught_output.h"
#include "base/private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define assert_no_error() assert_string_equal(mu_error_message(), "")

// A new empty folder (static storage), to be removed with remove_folder.
static inline const char *temporary_folder(void)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "%s", P_tmpdir "/muster-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

// Removes a folder of files; returns how many there were.
static inline int remove_folder(const char *folder)
{
    int n = 0;
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        if (unlinkat(dirfd(listing), entry->d_name, 0) == 0)
            n++;
    }
    closedir(listing);
    assert_int_equal(rmdir(folder), 0);
    return n;
}

// Runs fn(arg) with the first, second, … allocation failing, until fn makes fewer allocations than that. Returns
// whether the last run succeeded. Every failed run must record RESOURCE_EXHAUSTED and leave no object alive.
static inline void with_failing_allocations(bool (*fn)(void *arg), void *arg)
{
    const long live = mu__live_objects(NULL);
    for (long n = 1;; n++) {
        assert_true(n < 1000);
        mu__alloc_fail_at(n);
        const bool succeeded = fn(arg);
        const long made = mu__alloc_fail_at(0);
        assert_int_equal(mu__live_objects(NULL), live);
        if (made < n) {
            assert_true(succeeded);
            assert_no_error();
            return;
        }
        if (!succeeded)
            assert_taken(MU_RESOURCE_EXHAUSTED, "memory");
        mu_error_take();
    }
}

#endif
