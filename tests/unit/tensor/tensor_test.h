// What the tests of the tensor layer share: cmocka's prerequisites and a look at the error record.
#ifndef MU_TESTS_TENSOR_TEST_H
#define MU_TESTS_TENSOR_TEST_H

#include "tensor/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define assert_taken(wanted, part)                              \
    do {                                                        \
        const mu_error taken_ = mu_error_take();                \
        assert_int_equal(taken_.code, wanted);                  \
        if (strstr(taken_.message, part) == NULL)               \
            fail_msg("no \"%s\" in: %s", part, taken_.message); \
    } while (0)

#endif
