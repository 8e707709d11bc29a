// Learning rates of single layers and variables: factors that optimizers of every kind obey.
//
// The factor belongs to the variable, so an optimizer needs to know no layers; a layer keeps one for weights to come.

#include "model/core/layer.h"

#include <math.h>

static mu_status check_factor(double factor, const char *function)
{
    return factor > 0 && isfinite(factor) ? MU_OK
                                          : mu__error(MU_INVALID_ARGUMENT,
                                                      "%s: the multiplier is %g; it must be above 0. Freeze a layer "
                                                      "with mu_layer_set_trainable(layer, false)",
                                                      function, factor);
}

static void set(mu_variable *variable, double factor)
{
    variable->has_rate_factor = true;
    variable->rate_factor = factor;
    for (int i = 0; i < variable->n_shards; i++)
        set(variable->shards[i], factor);
}

mu_status mu_variable_set_learning_rate_multiplier(mu_variable *variable, double multiplier)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(variable, "mu_variable_set_learning_rate_multiplier: the variable"));
    MU_TRY(check_factor(multiplier, "mu_variable_set_learning_rate_multiplier"));
    set(variable, multiplier);
    return MU_OK;
}

void mu__layer_set_rate(mu_layer *layer, double factor)
{
    layer->has_rate_factor = true;
    layer->rate_factor = factor;
    for (size_t i = 0; i < layer->weights.n; i++)
        if (!layer->weights.items[i].shared)
            set(layer->weights.items[i].variable, factor);
    for (size_t i = 0; i < layer->sublayers.n; i++)
        mu__layer_set_rate(layer->sublayers.items[i], factor);
}

mu_status mu_layer_set_learning_rate_multiplier(mu_layer *layer, double multiplier)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_layer_set_learning_rate_multiplier: the layer"));
    MU_TRY(check_factor(multiplier, "mu_layer_set_learning_rate_multiplier"));
    mu__layer_set_rate(layer, multiplier);
    return MU_OK;
}
