// The callback that measures a model with the moving averages of its weights, which an optimizer with use_ema keeps: it
// exchanges both while the model is evaluated or predicts.
//
// Whether they are exchanged is known to the optimizer, so that the end of training, and a run after one that failed,
// find the weights where they are.
#include "model/callbacks/callback_class.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"

static const mu_field swap_fields[] = {
    MU_FIELD(mu_swap_ema_weights_args, swap_on_epoch, FLAG),
    {0},
};

static mu_status exchange(const mu_logs *logs, bool averages)
{
    mu_optimizer *optimizer = logs->model->trainer->optimizer;
    if (optimizer && mu__optimizer_averages_in_place(optimizer) == averages)
        return MU_OK;
    if (!optimizer || !mu__optimizer_has_averages(optimizer))
        return mu__error(
            MU_FAILED_PRECONDITION,
            "mu_swap_ema_weights: the optimizer of '%s' keeps no moving averages; make it with .use_ema = true",
            mu_layer_name(logs->model));
    mu_scope_guard scope = mu_scope_open(logs->model->strategy);
    const mu_status status = mu__optimizer_swap_averages(optimizer);
    mu_scope_close(&scope);
    return status;
}

static mu_status to_averages(const mu_logs *logs, void *arg)
{
    (void)arg;
    return exchange(logs, true);
}

static mu_status to_weights(const mu_logs *logs, void *arg)
{
    (void)arg;
    return exchange(logs, false);
}

static mu_status epoch_end(const mu_logs *logs, void *arg)
{
    const mu_swap_ema_weights_args *args = ((const mu_callback *)arg)->args;
    return args->swap_on_epoch ? exchange(logs, true) : MU_OK;
}

mu_callback *mu_swap_ema_weights_with(const mu_swap_ema_weights_args *given)
{
    static const mu_callback_class class = {.class = {"swap_ema_weights", "SwapEMAWeights", "mu_swap_ema_weights",
                                                      MU_OPTIONS(mu_swap_ema_weights_args), swap_fields, NULL},
                                            .state_bytes = 1,
                                            .hooks = {.on_epoch_begin = to_weights,
                                                      .on_epoch_end = epoch_end,
                                                      .on_test_begin = to_averages,
                                                      .on_test_end = to_weights,
                                                      .on_predict_begin = to_averages,
                                                      .on_predict_end = to_weights}};
    return mu__callback_of_class(&class, given);
}
