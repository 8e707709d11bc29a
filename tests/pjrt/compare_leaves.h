// Compares what replicas return on XLA devices with what they return on the native engine.
#ifndef MU_TEST_COMPARE_LEAVES_H
#define MU_TEST_COMPARE_LEAVES_H

#include "distribute/distribute.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

// Compares types, shapes and, within tolerance * (1 + the number), elements; `what` names the comparison in failures.
static inline void compare_leaves(const char *what, const mu_value *native, const mu_value *xla, double tolerance)
{
    mu_object *wanted[64], *seen[64];
    const int n = mu__value_flatten(native, wanted, 64);
    assert_int_equal(mu__value_flatten(xla, seen, 64), n);
    for (int i = 0; i < n; i++) {
        const mu_tensor *a = (const mu_tensor *)wanted[i], *b = (const mu_tensor *)seen[i];
        if (a->dtype != b->dtype || !mu__shape_equal(&a->shape, &b->shape))
            fail_msg("%s: leaf %d has another type or shape than on the native engine", what, i);
        const void *x = mu__host_read(a), *y = mu__host_read(b);
        for (int64_t k = 0; k < mu_tensor_elements(a); k++) {
            const double left = mu__read_element(a->dtype, x, k), right = mu__read_element(b->dtype, y, k);
            if (!(fabs(left - right) <= tolerance * (1 + fabs(left))))
                fail_msg("%s: leaf %d, element %lld is %.9g, on the native engine %.9g", what, i, (long long)k, right,
                         left);
        }
    }
}

#endif
