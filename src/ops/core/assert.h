// Checks whose messages end with a number that is known only when they run.
#ifndef MU_SRC_OPS_ASSERT_H
#define MU_SRC_OPS_ASSERT_H

#include "ops/core/op.h"

// mu__assert_number is mu_assert of a scalar condition; the message ends with `number`, an int64 scalar.
mu_status mu__assert_number(mu_tensor *condition, const char *message, mu_tensor *number);

#endif
