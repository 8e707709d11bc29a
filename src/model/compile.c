// compile: what a model is trained with.
#include "model/model.h"

static void forget_losses(mu_trainer *trainer)
{
    for (int i = 0; i < trainer->n_losses; i++)
        mu_release(trainer->losses[i]);
    mu__free(trainer->losses);
    mu__free(trainer->loss_weights);
    trainer->losses = NULL;
    trainer->loss_weights = NULL;
    trainer->n_losses = 0;
}

static void forget_metrics(mu_trainer *trainer)
{
    for (int i = 0; i < trainer->n_metrics; i++)
        mu_release(trainer->metrics[i]);
    mu__free(trainer->metrics);
    mu__free(trainer->metric_outputs);
    trainer->metrics = NULL;
    trainer->metric_outputs = NULL;
    trainer->n_metrics = 0;
}

static void forget_compiled(mu_trainer *trainer)
{
    forget_losses(trainer);
    forget_metrics(trainer);
    mu_release(trainer->train_function);
    mu_release(trainer->test_function);
    mu_release(trainer->optimizer);
    trainer->train_function = trainer->test_function = NULL;
    trainer->optimizer = NULL;
}

void mu__trainer_free(mu_trainer *trainer)
{
    if (!trainer)
        return;
    forget_compiled(trainer);
    mu_release(trainer->predict_function);
    mu__free(trainer);
}

// Values are logged by name; names of validation values begin with "val_".
static mu_status check_name(mu_metric *const *metrics, int n)
{
    const char *name = metrics[n]->name;
    bool taken = strcmp(name, "loss") == 0 || strncmp(name, "val_", 4) == 0;
    for (int i = 0; i < n; i++)
        taken |= strcmp(metrics[i]->name, name) == 0;
    return taken ? mu__error(MU_INVALID_ARGUMENT,
                             "mu_compile: metric %d is named '%s'; names must differ, 'loss' is taken and "
                             "'val_' is for validation",
                             n, name)
                 : MU_OK;
}

static int count_metrics(mu_metric *const *metrics)
{
    int n = 0;
    while (metrics && (const void *)metrics[n] != MU_END)
        n++;
    return n;
}

static mu_status check_metrics(mu_metric *const *metrics, const int *outputs, int n)
{
    for (int i = 0; i < n; i++) {
        if (!metrics[i])
            return mu__error(MU_INVALID_ARGUMENT, "mu_compile: metric %d is NULL", i);
        MU_TRY(check_name(metrics, i));
        if (outputs && outputs[i] < 0)
            return mu__error(MU_INVALID_ARGUMENT, "mu_compile: metric %d compares output %d; outputs count from 0", i,
                             outputs[i]);
    }
    if (2 * (n + 1) > MU_MAX_LOGS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: %d metrics; at most %d are supported", n,
                         MU_MAX_LOGS / 2 - 1);
    return MU_OK;
}

static mu_status keep_metrics(mu_trainer *trainer, mu_metric *const *metrics, const int *outputs)
{
    const int n = count_metrics(metrics);
    MU_TRY(check_metrics(metrics, outputs, n));
    mu_metric *loss = mu_mean_metric("loss");
    trainer->metrics = loss ? mu__calloc((size_t)n + 1, sizeof *trainer->metrics) : NULL;
    trainer->metric_outputs = mu__calloc((size_t)n + 1, sizeof *trainer->metric_outputs);
    if (!trainer->metrics || !trainer->metric_outputs)
        return mu_error_code();
    trainer->metrics[trainer->n_metrics++] = mu_retain(loss);
    for (int i = 0; i < n; i++) {
        trainer->metric_outputs[trainer->n_metrics] = outputs ? outputs[i] : 0;
        trainer->metrics[trainer->n_metrics++] = mu_retain(metrics[i]);
    }
    return MU_OK;
}

static mu_status keep_losses(mu_trainer *trainer, mu_loss *const *losses, const double *weights)
{
    int n = 0;
    for (; (const void *)losses[n] != MU_END; n++)
        if (!losses[n])
            return mu__error(MU_INVALID_ARGUMENT, "mu_compile: loss %d is NULL", n);
    trainer->losses = mu__calloc((size_t)n + 1, sizeof *trainer->losses);
    trainer->loss_weights = mu__calloc((size_t)n + 1, sizeof *trainer->loss_weights);
    if (!trainer->losses || !trainer->loss_weights)
        return mu_error_code();
    for (int i = 0; i < n; i++) {
        trainer->loss_weights[i] = weights ? weights[i] : 1;
        trainer->losses[trainer->n_losses++] = mu_retain(losses[i]);
    }
    return n > 0 ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "mu_compile: .losses is empty; give one for each output");
}

static mu_status check_compile(const mu_compile_args *args)
{
    MU_TRY(mu__need_model(args->model, "mu_compile"));
    if (!args->loss == !args->losses)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: %s",
                         args->loss ? "loss and .losses are both given; give one of them" : "give a loss");
    return mu__model_need_idle(args->model, "mu_compile");
}

mu_status mu_compile_with(const mu_compile_args *given)
{
    mu_compile_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_compile"));
    MU_TRY(check_compile(&args));
    mu_trainer *trainer = args.model->trainer;
    mu_loss *const one[] = {args.loss, MU_END};
    forget_compiled(trainer);
    MU_TRY(keep_metrics(trainer, args.metrics, args.metric_outputs));
    MU_TRY(keep_losses(trainer, args.losses ? args.losses : one, args.loss_weights));
    trainer->optimizer = mu_retain(args.optimizer);
    trainer->train_function = mu_retain(mu_function_new(mu__train_step, args.model));
    trainer->test_function = mu_retain(mu_function_new(mu__test_step, args.model));
    return mu_error_code();
}
