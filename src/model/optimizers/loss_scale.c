// Loss scaling: the loss, and with it every gradient, is multiplied so that small gradients do not become 0 in float16.
//
// With loss_scale_factor the scale is fixed. The loss scale optimizer finds the largest scale at which gradients stay
// finite; apply_gradients.c divides the gradients, and asks here for the next scale. Micikevicius et al., "Mixed
// precision training", 2018.

#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"

#include <muster/ops.h>

enum { STEP_COUNTER, DYNAMIC_SCALE }; // the scalars of the optimizer

static mu_status complete(void *arguments)
{
    const mu_loss_scale_args *args = arguments;
    if (!args->inner_optimizer)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_loss_scale_optimizer: inner_optimizer is NULL; give the optimizer that updates the variables");
    if (args->inner_optimizer->inner)
        return mu__error(MU_INVALID_ARGUMENT, "mu_loss_scale_optimizer: inner_optimizer is a loss scale optimizer "
                                              "itself; give it to mu_compile as it is");
    return MU_OK;
}

static const mu_field fields[] = {
    MU_FIELD(mu_loss_scale_args, inner_optimizer, OPTIMIZER),
    MU_FIELD(mu_loss_scale_args, initial_scale, DOUBLE, .limit = MU_POSITIVE, .number = 32768),
    MU_FIELD(mu_loss_scale_args, dynamic_growth_steps, INT64, .limit = MU_POSITIVE, .number = 2000),
    MU_FIELD(mu_loss_scale_args, name, NAME),
    {0},
};

static int scalars(const void *args, mu_optimizer_scalar *kinds)
{
    kinds[STEP_COUNTER] = (mu_optimizer_scalar){.name = "step_counter", .dtype = MU_I64};
    kinds[DYNAMIC_SCALE] = (mu_optimizer_scalar){
        .name = "dynamic_scale", .dtype = MU_F32, .initial = ((const mu_loss_scale_args *)args)->initial_scale};
    return 2;
}

const mu_optimizer_ops mu__loss_scale_ops = {
    .class = {"loss_scale_optimizer", "LossScaleOptimizer", "mu_loss_scale_optimizer", MU_OPTIONS(mu_loss_scale_args),
              fields, complete},
    .scalars = scalars,
};

mu_optimizer *mu_loss_scale_optimizer_with(const mu_loss_scale_args *args)
{
    return mu__optimizer_make(&mu__loss_scale_ops, args);
}

mu_tensor *mu__loss_scale(const mu_optimizer *optimizer) { return mu_variable_read(optimizer->scalars[DYNAMIC_SCALE]); }

mu_status mu__loss_scale_update(mu_optimizer *optimizer, mu_tensor *finite)
{
    const int64_t growth = ((const mu_loss_scale_args *)optimizer->args)->dynamic_growth_steps;
    mu_tensor *counter = mu__variable_read(optimizer->scalars[STEP_COUNTER]), *zero = mu_constant(MU_I64, 0);
    mu_tensor *grows = mu_logical_and(finite, mu_equal(counter, mu_constant(MU_I64, (double)(growth - 1))));
    mu_tensor *counts = mu_logical_and(finite, mu_logical_not(grows));
    mu_tensor *next = mu_where(counts, mu_add(counter, mu_constant(MU_I64, 1)), zero);
    mu_tensor *kept = mu_where(finite, mu_constant(MU_F32, 1), mu_constant(MU_F32, .5));
    mu_tensor *factor = mu_where(grows, mu_constant(MU_F32, 2), kept);
    mu_tensor *scale = mu_multiply(mu__loss_scale(optimizer), factor);
    MU_TRY(next && scale ? MU_OK : mu_error_code());
    MU_TRY(mu__variable_update(optimizer->scalars[STEP_COUNTER], MU_UPDATE_ASSIGN, next));
    return mu__variable_update(optimizer->scalars[DYNAMIC_SCALE], MU_UPDATE_ASSIGN, scale);
}

mu_tensor *mu_scale_loss(mu_optimizer *optimizer, mu_tensor *loss)
{
    if (mu__pending() || mu__need(optimizer, "mu_scale_loss: the optimizer") != MU_OK ||
        mu__need(loss, "mu_scale_loss: the loss") != MU_OK)
        return NULL;
    if (!optimizer->inner) {
        const double factor = ((const mu_optimizer_args *)optimizer->args)->loss_scale_factor;
        return factor == 0 ? loss : mu_multiply(loss, mu_constant(mu_tensor_dtype(loss), factor));
    }
    if (mu__optimizer_need(optimizer) != MU_OK)
        return NULL;
    return mu_multiply(loss, mu_cast(mu__loss_scale(optimizer), mu_tensor_dtype(loss)));
}
