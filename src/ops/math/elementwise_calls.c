// Public functions of the element-wise ops on one tensor; elementwise.c has the op definitions.
//
// The activations under their tf.nn names are in nn_compose.c.
#include "ops/core/op.h"

#include <muster/ops.h>

mu_tensor *mu_neg(mu_tensor *x)
{
    return mu__apply1(&mu_op_neg, NULL, x);
}

mu_tensor *mu_abs(mu_tensor *x)
{
    return mu__apply1(&mu_op_abs, NULL, x);
}

mu_tensor *mu_sign(mu_tensor *x)
{
    return mu__apply1(&mu_op_sign, NULL, x);
}

mu_tensor *mu_square(mu_tensor *x)
{
    return mu__apply1(&mu_op_square, NULL, x);
}

mu_tensor *mu_floor(mu_tensor *x)
{
    return mu__apply1(&mu_op_floor, NULL, x);
}

mu_tensor *mu_ceil(mu_tensor *x)
{
    return mu__apply1(&mu_op_ceil, NULL, x);
}

mu_tensor *mu_round(mu_tensor *x)
{
    return x && mu__dtype_is_integer(x->dtype) ? mu_identity(x) : mu__apply1(&mu_op_round, NULL, x);
}

mu_tensor *mu_exp(mu_tensor *x)
{
    return mu__apply1(&mu_op_exp, NULL, x);
}

mu_tensor *mu_expm1(mu_tensor *x)
{
    return mu__apply1(&mu_op_expm1, NULL, x);
}

mu_tensor *mu_log(mu_tensor *x)
{
    return mu__apply1(&mu_op_log, NULL, x);
}

mu_tensor *mu_log1p(mu_tensor *x)
{
    return mu__apply1(&mu_op_log1p, NULL, x);
}

mu_tensor *mu_sqrt(mu_tensor *x)
{
    return mu__apply1(&mu_op_sqrt, NULL, x);
}

mu_tensor *mu_rsqrt(mu_tensor *x)
{
    return mu__apply1(&mu_op_rsqrt, NULL, x);
}

mu_tensor *mu_reciprocal(mu_tensor *x)
{
    return mu__apply1(&mu_op_reciprocal, NULL, x);
}

mu_tensor *mu_erf(mu_tensor *x)
{
    return mu__apply1(&mu_op_erf, NULL, x);
}

mu_tensor *mu_erfc(mu_tensor *x)
{
    return mu__apply1(&mu_op_erfc, NULL, x);
}

mu_tensor *mu_lgamma(mu_tensor *x)
{
    return mu__apply1(&mu_op_lgamma, NULL, x);
}

mu_tensor *mu_digamma(mu_tensor *x)
{
    return mu__apply1(&mu_op_digamma, NULL, x);
}

mu_tensor *mu_sin(mu_tensor *x)
{
    return mu__apply1(&mu_op_sin, NULL, x);
}

mu_tensor *mu_cos(mu_tensor *x)
{
    return mu__apply1(&mu_op_cos, NULL, x);
}

mu_tensor *mu_tan(mu_tensor *x)
{
    return mu__apply1(&mu_op_tan, NULL, x);
}

mu_tensor *mu_asin(mu_tensor *x)
{
    return mu__apply1(&mu_op_asin, NULL, x);
}

mu_tensor *mu_acos(mu_tensor *x)
{
    return mu__apply1(&mu_op_acos, NULL, x);
}

mu_tensor *mu_atan(mu_tensor *x)
{
    return mu__apply1(&mu_op_atan, NULL, x);
}

mu_tensor *mu_sinh(mu_tensor *x)
{
    return mu__apply1(&mu_op_sinh, NULL, x);
}

mu_tensor *mu_cosh(mu_tensor *x)
{
    return mu__apply1(&mu_op_cosh, NULL, x);
}

mu_tensor *mu_tanh(mu_tensor *x)
{
    return mu__apply1(&mu_op_tanh, NULL, x);
}

mu_tensor *mu_asinh(mu_tensor *x)
{
    return mu__apply1(&mu_op_asinh, NULL, x);
}

mu_tensor *mu_acosh(mu_tensor *x)
{
    return mu__apply1(&mu_op_acosh, NULL, x);
}

mu_tensor *mu_atanh(mu_tensor *x)
{
    return mu__apply1(&mu_op_atanh, NULL, x);
}

mu_tensor *mu_sigmoid(mu_tensor *x)
{
    return mu__apply1(&mu_op_sigmoid, NULL, x);
}

mu_tensor *mu_is_nan(mu_tensor *x)
{
    return mu__apply1(&mu_op_is_nan, NULL, x);
}

mu_tensor *mu_is_inf(mu_tensor *x)
{
    return mu__apply1(&mu_op_is_inf, NULL, x);
}

mu_tensor *mu_is_finite(mu_tensor *x)
{
    return mu__apply1(&mu_op_is_finite, NULL, x);
}
