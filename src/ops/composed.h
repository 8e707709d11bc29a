// What functions made of other ops say when one of those fails.
//
// The record's sentence names the op that failed and what that was given; who called knows neither. So it gets a line
// more, with the function and its tensors as they were handed in; a traced function's ops keep its name for when they
// run. Where one op under another name does all the work, that name takes the op's place.
#ifndef MU_SRC_OPS_COMPOSED_H
#define MU_SRC_OPS_COMPOSED_H

#include "ops/op.h"

// mu__composed returns `result`. Where that is NULL the pending record gets a line "in NAME of float32[2, 3] and …",
// unless its sentence begins with that name. No record may have been pending when the function began. Inputs may be
// NULL.
mu_tensor *mu__composed(const char *name, int n_in, mu_tensor *const *in, mu_tensor *result);

// mu__called returns `result`, of the op alone; a pending record that begins with the op's name begins with `name`
// instead. mu__error_names tells whether the pending record begins with a name.
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
