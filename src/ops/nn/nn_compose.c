// Functions of tf.nn that are composed of other ops without loss of speed: activations by name.
//
// Convolutions and pools of other dimensions are in nn_spatial.c.
#include "ops/core/attrs.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

// ---- Activations --------------------------------------------------------------------------------

// Integers have their own op definitions for this, without gradients.
static bool is_whole(const mu_tensor *x) { return x && !mu__pending() && mu__dtype_is_integer(x->dtype); }

mu_tensor *mu_nn_relu(mu_tensor *x)
{
    if (is_whole(x))
        return mu_maximum(x, mu_constant(x->dtype, 0));
    return mu__apply1(&mu_op_relu, NULL, x);
}

mu_tensor *mu_nn_relu6(mu_tensor *x)
{
    if (is_whole(x))
        return mu_clip_by_value(x, mu_constant(x->dtype, 0), mu_constant(x->dtype, 6));
    return mu__apply1(&mu_op_relu6, NULL, x);
}

mu_tensor *mu_nn_leaky_relu(mu_tensor *x, double alpha)
{
    return mu__apply1(&mu_op_leaky_relu, &(mu_alpha_attrs){alpha}, is_whole(x) ? mu_cast(x, MU_F32) : x);
}

mu_tensor *mu_nn_elu(mu_tensor *x) { return mu__apply1(&mu_op_elu, &(mu_alpha_attrs){1}, x); }

mu_tensor *mu_nn_selu(mu_tensor *x) { return mu__apply1(&mu_op_selu, NULL, x); }

mu_tensor *mu_nn_gelu(mu_tensor *x, bool approximate)
{
    const mu_op *op = approximate ? &mu_op_gelu_tanh : &mu_op_gelu;
    return mu__pending() ? NULL : mu__called("gelu", op, mu__apply1(op, NULL, x));
}

mu_tensor *mu_nn_silu(mu_tensor *x) { return mu__apply1(&mu_op_silu, NULL, x); }

mu_tensor *mu_nn_mish(mu_tensor *x) { return mu__apply1(&mu_op_mish, NULL, x); }

mu_tensor *mu_nn_softplus(mu_tensor *x) { return mu__apply1(&mu_op_softplus, NULL, x); }

mu_tensor *mu_nn_softsign(mu_tensor *x) { return mu__apply1(&mu_op_softsign, NULL, x); }

mu_tensor *mu_nn_log_sigmoid(mu_tensor *x) { return mu__apply1(&mu_op_log_sigmoid, NULL, x); }

mu_tensor *mu_nn_hard_sigmoid(mu_tensor *x) { return mu__apply1(&mu_op_hard_sigmoid, NULL, x); }
