// Helpers for gradient rules. They are built of ops, so they work eagerly and in traces.
#ifndef MU_SRC_OPS_GRADS_H
#define MU_SRC_OPS_GRADS_H

#include "ops/core/op.h"

// mu__unbroadcast sums the gradient `dy` of an element-wise op's output over the axes along which input i was
// broadcast, so that the result has the input's shape. Returns dy itself if no axis can have been broadcast.
mu_tensor *mu__unbroadcast(const mu_grad *g, mu_tensor *dy, int i);

// mu__scalar_like makes a scalar constant with the dtype of `like`; mu__scale multiplies by such a scalar.
mu_tensor *mu__scalar_like(const mu_tensor *like, double value);
mu_tensor *mu__scale(mu_tensor *x, double factor);

// mu__gather_slices returns the gradient of a gather along the first axis as flat slices of its input: values and their
// indices. Returns false for any other op or input, and for other kinds of gather.
bool mu__gather_slices(const mu_grad *g, int i, mu_tensor **values, mu_tensor **indices);

// mu__dim_product returns the product of x's sizes over the given axes, as an int64 scalar.
mu_tensor *mu__dim_product(mu_tensor *x, const mu_ints *axes);

#endif
