// What the tests of the tensor layer share: cmocka's prerequisites and checks of the error record.
#ifndef MU_TESTS_TENSOR_TEST_H
#define MU_TESTS_TENSOR_TEST_H

#include "../assert_taken.h"
#include "tensor/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#endif
