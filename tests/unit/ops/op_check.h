// What the tests of the mathematical ops share: short tensors, reading elements and errors.
#ifndef MU_TESTS_OP_CHECK_H
#define MU_TESTS_OP_CHECK_H

#include "../assert_taken.h"
#include "ops/core/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <muster/ops.h>

#include <cmocka.h>

#define DIMS(...) \
    (const int64_t[]) { __VA_ARGS__ }
#define VECTOR(...)           vector_of(MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__}, MU_F32)
#define VECTOR_OF(dtype, ...) vector_of(MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__}, dtype)
#define EXPECT(tensor, ...) \
    expect_elements(tensor, MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__}, __LINE__)

static inline mu_tensor *vector_of(size_t n, const double *values, mu_dtype dtype)
{
    mu_tensor *tensor = mu_tensor_new(dtype, 1, DIMS((int64_t)n), NULL);
    for (size_t i = 0; tensor && i < n; i++)
        mu__write_element(dtype, mu__host_write(tensor), (int64_t)i, values[i]);
    return tensor;
}

static inline void expect_elements(const mu_tensor *tensor, size_t n, const double *wanted, int line)
{
    if (!tensor)
        fail_msg("line %d: %s", line, mu_error_message());
    if (mu_tensor_elements(tensor) != (int64_t)n)
        fail_msg("line %d: %lld elements, expected %zu", line, (long long)mu_tensor_elements(tensor), n);
    for (size_t i = 0; i < n; i++) {
        double value = mu__read_element(tensor->dtype, mu__host_read(tensor), (int64_t)i);
        bool same =
            isnan(wanted[i]) ? isnan(value) : value == wanted[i] || fabs(value - wanted[i]) <= 1e-6 * fabs(wanted[i]);
        if (!same)
            fail_msg("line %d: element %zu is %.9g, expected %.9g", line, i, value, wanted[i]);
    }
}

#endif
