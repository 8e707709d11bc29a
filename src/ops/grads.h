// What gradient rules share. All of it is made of ops, so it works eagerly and in traces.
#ifndef MU_SRC_OPS_GRADS_H
#define MU_SRC_OPS_GRADS_H

#include "ops/op.h"

// mu__unbroadcast sums the gradient `dy` of an element-wise op's output over the axes along which input i was
// broadcast, so that it has the input's shape. Where no axis can have been, dy itself is returned.
mu_tensor *mu__unbroadcast(const mu_grad *g, mu_tensor *dy, int i);

// mu__scalar_like makes a scalar constant of the type of `like`; mu__scale multiplies by one.
mu_tensor *mu__scalar_like(const mu_tensor *like, double value);
mu_tensor *mu__scale(mu_tensor *x, double factor);

// mu__gather_slices gives the gradient of a gather along the first axis as slices of its input: values and
// their places, flat. False where this is another op or input, or another kind of gather.
bool mu__gather_slices(const mu_grad *g, int i, mu_tensor **values, mu_tensor **indices);

// mu__dim_product is the number of elements of x's axes, taken together, as an int64 scalar.
mu_tensor *mu__dim_product(mu_tensor *x, const mu_ints *axes);

#endif
