// Functions of tf.nn that are made of other ops at no loss: activations by name, attention.
//
// Convolutions and pools of other dimensions stand in nn_spatial.c. Nothing here knows rows' kernels.
#include "ops/attrs.h"
#include "ops/grads.h"
#include "ops/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

// ---- Activations --------------------------------------------------------------------------------

mu_tensor *mu_nn_relu(mu_tensor *x)
{
    return mu__apply1(&mu_op_relu, NULL, x);
}

mu_tensor *mu_nn_relu6(mu_tensor *x)
{
    return mu__apply1(&mu_op_relu6, NULL, x);
}

mu_tensor *mu_nn_leaky_relu(mu_tensor *x, double alpha)
{
    return mu__apply1(&mu_op_leaky_relu, &(mu_slope_attrs){alpha}, x);
}

mu_tensor *mu_nn_elu(mu_tensor *x)
{
    return mu__apply1(&mu_op_elu, &(mu_slope_attrs){1}, x);
}

mu_tensor *mu_nn_selu(mu_tensor *x)
{
    return mu__apply1(&mu_op_selu, NULL, x);
}

mu_tensor *mu_nn_gelu(mu_tensor *x, bool approximate)
{
    return mu__apply1(approximate ? &mu_op_gelu_tanh : &mu_op_gelu, NULL, x);
}

mu_tensor *mu_nn_silu(mu_tensor *x)
{
    return mu__apply1(&mu_op_silu, NULL, x);
}

mu_tensor *mu_nn_mish(mu_tensor *x)
{
    return mu__apply1(&mu_op_mish, NULL, x);
}

mu_tensor *mu_nn_softplus(mu_tensor *x)
{
    return mu__apply1(&mu_op_softplus, NULL, x);
}

mu_tensor *mu_nn_softsign(mu_tensor *x)
{
    return mu__apply1(&mu_op_softsign, NULL, x);
}

mu_tensor *mu_nn_log_sigmoid(mu_tensor *x)
{
    return mu__apply1(&mu_op_log_sigmoid, NULL, x);
}

mu_tensor *mu_nn_hard_sigmoid(mu_tensor *x)
{
    return mu__apply1(&mu_op_hard_sigmoid, NULL, x);
}

// ---- Attention ----------------------------------------------------------------------------------

// True where position `key` is not after position `query`, both counted from the end.
static mu_tensor *causal_mask(int64_t queries, int64_t keys)
{
    const mu_shape shape = MU_SHAPE(queries, keys);
    mu_tensor *mask = mu__tensor_alloc(MU_BOOL, &shape);
    if (!mask)
        return NULL;
    bool *to = mu__data(mask);
    for (int64_t q = 0; q < queries; q++)
        for (int64_t k = 0; k < keys; k++)
            to[q * keys + k] = k <= q + keys - queries;
    return mu__give(mask);
}

mu_tensor *mu_nn_attention_with(const mu_nn_attention_args *args)
{
    mu_nn_attention_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_attention") != MU_OK)
        return NULL;
    mu_tensor *scores = mu_matmul_transposed(a.query, a.key, false, true);
    if (!scores)
        return NULL;
    const int64_t width = mu_tensor_dim(a.query, -1);
    scores = mu__scale(scores, a.scale != 0 ? a.scale : 1 / sqrt((double)width));
    mu_tensor *lowest = mu__scalar_like(scores, scores->dtype == MU_F16 ? -6e4 : -1e30);
    if (a.causal) {
        const int64_t queries = mu_tensor_dim(a.query, -2), keys = mu_tensor_dim(a.key, -2);
        if (queries < 0 || keys < 0) {
            mu__error(MU_INVALID_ARGUMENT, "attention: causal attention needs known lengths of query and key");
            return NULL;
        }
        scores = mu_where(causal_mask(queries, keys), scores, lowest);
    }
    if (a.mask)
        scores = mu_where(a.mask, scores, lowest);
    return mu_matmul(mu_nn_softmax(scores, -1), a.value);
}
