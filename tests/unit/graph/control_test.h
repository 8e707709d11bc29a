// What the tests of control flow share: running the same function eagerly and traced.
#ifndef MU_TEST_CONTROL_H
#define MU_TEST_CONTROL_H

#include "../model/model_test.h"

#include <muster/control.h>

static inline mu_value *traced(mu_traceable *fn, void *arg, mu_value *arguments)
{
    mu_value *result = mu_run(NULL, mu_function_new(fn, arg), arguments);
    if (!result)
        fail_msg("%s", mu_error_message());
    return result;
}

// Calls a function both ways, compares, and returns the value of the traced call.
static inline mu_value *both_ways(mu_traceable *fn, void *arg, mu_value *arguments, double tolerance)
{
    mu_value *eager = fn(arguments, arg);
    if (!eager)
        fail_msg("%s", mu_error_message());
    mu_value *seen = traced(fn, arg, arguments);
    for (int i = 0; i < mu_value_count(eager); i++) {
        mu_tensor *a = mu_at(seen, i), *b = mu_at(eager, i);
        assert_int_equal(mu_tensor_dtype(a), mu_tensor_dtype(b));
        assert_true(mu__shape_equal(&a->shape, &b->shape));
        if (mu_tensor_dtype(a) == MU_F64)
            assert_near(doubles(a), doubles(b), mu_tensor_elements(a), tolerance);
    }
    return seen;
}

#endif
