// Runs a function while one of its allocations fails.
#ifndef MU_TESTS_FAIL_ALLOCATION_H
#define MU_TESTS_FAIL_ALLOCATION_H

#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct allocation_failed {
    bool reached; // fn makes so many allocations
    bool failed;  // fn left an error
} allocation_failed;

// Runs fn(arg) with the n-th allocation failing, in a pool of its own. The error must be RESOURCE_EXHAUSTED, and no
// object may be left.
static inline allocation_failed fail_allocation(long n, void (*fn)(void *arg), void *arg)
{
    mu_pool *pool = mu_pool_open();
    const long before = mu__live_objects(NULL);
    mu__alloc_fail_at(n);
    fn(arg);
    const bool reached = mu__alloc_fail_at(0) >= n;
    const mu_error error = mu_error_take();
    if (error.code != MU_OK && error.code != MU_RESOURCE_EXHAUSTED)
        fail_msg("allocation %ld: %s %s", n, mu_status_name(error.code), error.message);
    mu_pool_close(pool);
    if (mu__live_objects(NULL) != before)
        fail_msg("allocation %ld leaves %ld objects (%ld live)", n, mu__live_objects(stderr) - before, before);
    return (allocation_failed){reached, error.code != MU_OK};
}

#endif
