// Activations by Keras's names.
#include "model/model.h"

#include <muster/nn.h>
#include <muster/ops.h>

static mu_tensor *softmax(mu_tensor *x)
{
    return mu_nn_softmax(x, -1);
}

static mu_tensor *log_softmax(mu_tensor *x)
{
    return mu_nn_log_softmax(x, -1);
}

static mu_tensor *leaky_relu(mu_tensor *x)
{
    return mu_nn_leaky_relu(x, .2);
}

static mu_tensor *gelu(mu_tensor *x)
{
    return mu_nn_gelu(x, false);
}

static mu_tensor *hard_silu(mu_tensor *x)
{
    return mu_multiply(x, mu_nn_hard_sigmoid(x));
}

static const struct {
    const char *name;
    mu_tensor *(*call)(mu_tensor *x);
} activations[] = {
    {"relu", mu_nn_relu}, {"sigmoid", mu_sigmoid}, {"tanh", mu_tanh}, {"softmax", softmax}, {"exponential", mu_exp},
    {"relu6", mu_nn_relu6}, {"leaky_relu", leaky_relu}, {"elu", mu_nn_elu}, {"selu", mu_nn_selu}, {"gelu", gelu},
    {"silu", mu_nn_silu}, {"swish", mu_nn_silu}, {"mish", mu_nn_mish}, {"softplus", mu_nn_softplus},
    {"softsign", mu_nn_softsign}, {"hard_sigmoid", mu_nn_hard_sigmoid}, {"hard_silu", hard_silu},
    {"hard_swish", hard_silu}, {"log_sigmoid", mu_nn_log_sigmoid}, {"log_softmax", log_softmax},
};

static mu_tensor *(*find_activation(const char *name))(mu_tensor *)
{
    for (size_t i = 0; i < MU_COUNT(activations); i++)
        if (strcmp(activations[i].name, name) == 0)
            return activations[i].call;
    return NULL;
}

static bool is_linear(const char *activation)
{
    return !activation || strcmp(activation, "linear") == 0;
}

mu_status mu__activation_known(const char *activation, const char *function)
{
    if (is_linear(activation) || find_activation(activation))
        return MU_OK;
    char known[512] = "linear";
    for (size_t i = 0, used; i < MU_COUNT(activations); i++) {
        used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", activations[i].name);
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s: no activation is named '%s'; there are %s", function, activation, known);
}

mu_tensor *mu__activate(const char *activation, mu_tensor *x)
{
    return is_linear(activation) || !x ? x : find_activation(activation)(x);
}
