// Public functions that do nothing but apply one op to one or two tensors, made from the list of ops.
#include "ops/core/op.h"

#include <muster/ops.h>

#define MU_OP(word)
#define MU_UNARY_OP(word) \
    mu_tensor *mu_##word(mu_tensor *x) { return mu__apply1(&mu_op_##word, NULL, x); }
#define MU_BINARY_OP(word) \
    mu_tensor *mu_##word(mu_tensor *a, mu_tensor *b) { return mu__apply2(&mu_op_##word, NULL, a, b); }
#include "ops/core/ops.def"
