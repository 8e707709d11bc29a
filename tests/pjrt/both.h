// Runs a function on the native engine and on the plugin's first device, and compares the results.
#ifndef MU_TESTS_PJRT_BOTH_H
#define MU_TESTS_PJRT_BOTH_H

#include "graph/graph.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void compare_tensors(const char *what, int number, const mu_tensor *native, const mu_tensor *plugin,
                            double tolerance)
{
    assert_int_equal(native->dtype, plugin->dtype);
    assert_true(mu__shape_equal(&native->shape, &plugin->shape));
    const void *wanted = mu__host_read(native), *seen = mu__host_read(plugin);
    for (int64_t i = 0; i < mu_tensor_elements(native); i++) {
        const double a = mu__read_element(native->dtype, wanted, i), b = mu__read_element(plugin->dtype, seen, i);
        if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(a))))
            fail_msg("%s: result %d, element %lld is %.9g on the plugin, %.9g on the native engine", what, number,
                     (long long)i, b, a);
    }
}

static mu_value *run_on(const char *device, mu_traceable *fn, void *arg, mu_value *arguments)
{
    mu_value *result = mu_run(mu_one_device_strategy(device), mu_function_new(fn, arg), arguments);
    if (!result)
        fail_msg("on %s: %s", device, mu_error_message());
    return result;
}

// The function returns a list of tensors. Tolerance 0: the same bits.
static inline void check_both(const char *what, mu_traceable *fn, void *arg, mu_value *arguments, double tolerance)
{
    mu_pool *pool = mu_pool_open();
    mu_value *native = run_on("CPU:0", fn, arg, arguments), *plugin = run_on("XLA_CPU:0", fn, arg, arguments);
    assert_int_equal(mu_value_count(native), mu_value_count(plugin));
    for (int i = 0; i < mu_value_count(native); i++)
        compare_tensors(what, i, mu_at(native, i), mu_at(plugin, i), tolerance);
    mu_pool_close(pool);
}

// The plugin's engine refuses a function: its message names the op and has the advice.
static inline void check_refused(const char *op, const char *advice, mu_traceable *fn, void *arg, mu_value *arguments)
{
    mu_pool *pool = mu_pool_open();
    assert_null(mu_run(mu_one_device_strategy("XLA_CPU:0"), mu_function_new(fn, arg), arguments));
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_UNIMPLEMENTED);
    if (!strstr(error.message, op) || !strstr(error.message, advice))
        fail_msg("'%s' does not have \"%s\" and \"%s\"", error.message, op, advice);
    mu_pool_close(pool);
}

#endif
