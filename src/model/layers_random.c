// Layers that draw random numbers while training: dropout.
#include "model/model.h"
#include "ops/nn/nn.h"

#include <muster/nn.h>
#include <muster/ops.h>

static const mu_field dropout_fields[] = {
    MU_FIELD(mu_dropout_args, rate, DOUBLE, .limit = MU_BELOW_ONE),
    MU_FIELD(mu_dropout_args, seed, SEED),
    MU_FIELD(mu_dropout_args, name, NAME),
    {0},
};

static mu_status dropout_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    (void)input;
    const mu_dropout_args *args = layer->args;
    return mu__weight_seed(layer, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_value *dropout_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_dropout_args *args = layer->args;
    if (!context->training || args->rate == 0)
        return inputs;
    return mu_of(mu_nn_stateless_dropout(mu_at(inputs, 0), args->rate, mu__weight_next_seed(layer)));
}

const mu_layer_ops mu__dropout_ops = {
    .class = {"dropout", "Dropout", "mu_dropout", MU_OPTIONS(mu_dropout_args), dropout_fields, NULL},
    .passes_mask = true, .build = dropout_build, .call = dropout_call,
};

mu_layer *mu_dropout_with(const mu_dropout_args *args)
{
    return mu__layer_make(&mu__dropout_ops, args);
}
