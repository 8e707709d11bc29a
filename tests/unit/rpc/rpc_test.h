// What the tests of remote calls share: a key, small values, and checks of results.
#ifndef MU_TESTS_RPC_TEST_H
#define MU_TESTS_RPC_TEST_H

#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <muster.h>
#include <stdlib.h>

// Random digits, so that no process spends time on stretching it.
#define TEST_KEY "7c1b0e5fa29d4368b1e07f4c5d82a6930f6e1d2c3b4a59687786958a4b3c2d1e"

static inline mu_value *number(int value) { return mu_of(mu_constant(MU_I32, value)); }
static inline mu_value *pair(int a, int b) { return mu_list(number(a), number(b), MU_END); }

static inline double number_at(const mu_value *value, int i) { return mu_scalar(mu_at(value, i)); }

static inline void expect_error(mu_status code, const char *part)
{
    const mu_error error = mu_error_take();
    if (error.code != code || strstr(error.message, part) == NULL)
        fail_msg("expected %s with \"%s\", got %s: %s", mu_status_name(code), part, mu_status_name(error.code),
                 error.message);
}

static inline void expect_result(mu_rpc_result *result, mu_status code, const char *part)
{
    assert_non_null(result);
    const mu_error error = mu_rpc_result_error(result);
    if (error.code != code || strstr(error.message, part) == NULL)
        fail_msg("expected %s with \"%s\", got %s: %s", mu_status_name(code), part, mu_status_name(error.code),
                 error.message);
}

// Set-up and tear-down of a group of tests: the library, with a key that both ends prove.
static inline int start_with_key(void **state)
{
    (void)state;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    return mu_init(.cpu_devices = 1) == MU_OK ? 0 : -1;
}

static inline int end_library(void **state)
{
    (void)state;
    return mu_exit(true);
}

#endif
