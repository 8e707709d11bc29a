// Error context for functions that are composed of several ops.
//
// The error record's message names the op that failed and that op's inputs, which the caller never saw. mu__composed
// adds a line with the public function and its arguments. In a trace the function's name is also recorded with its ops,
// for errors at run time. Where a single op does all the work under another name, mu__called replaces the op's name.
#ifndef MU_SRC_OPS_COMPOSED_H
#define MU_SRC_OPS_COMPOSED_H

#include "ops/core/op.h"

// mu__composed returns `result`. If that is NULL, the pending record gets a line "in NAME of float32[2, 3] and …",
// unless its message already begins with that name. No record may be pending when the function starts. Inputs may be
// NULL.
mu_tensor *mu__composed(const char *name, int n_in, mu_tensor *const *in, mu_tensor *result);

// mu__called returns `result`, which one op made. If the pending record begins with the op's name, `name` replaces it.
// mu__error_names returns whether the pending record begins with a name.
mu_tensor *mu__called(const char *name, const mu_op *op, mu_tensor *result);
bool mu__error_names(const char *name);

static inline mu_tensor *mu__composed1(const char *name, mu_tensor *a, mu_tensor *result)
{
    return mu__composed(name, 1, &a, result);
}

static inline mu_tensor *mu__composed2(const char *name, mu_tensor *a, mu_tensor *b, mu_tensor *result)
{
    mu_tensor *in[] = {a, b};
    return mu__composed(name, 2, in, result);
}

#endif
