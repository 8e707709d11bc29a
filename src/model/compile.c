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
    trainer->compiled = false;
    trainer->n_metrics = 0;
}

static void forget_compiled(mu_trainer *trainer)
{
    forget_losses(trainer);
    forget_metrics(trainer);
    mu_release(trainer->train_function);
    mu_release(trainer->loop_function);
    mu_release(trainer->test_function);
    mu_release(trainer->optimizer);
    trainer->train_function = trainer->loop_function = trainer->test_function = NULL;
    trainer->optimizer = NULL;
}

void mu__trainer_free(mu_trainer *trainer)
{
    if (!trainer)
        return;
    forget_compiled(trainer);
    mu_release(trainer->predict_function);
    mu_release(trainer->coordinator);
    mu__free(trainer);
}

static mu_status check_metrics(const int *outputs, int n)
{
    for (int i = 0; i < n; i++)
        if (outputs && outputs[i] < 0)
            return mu__error(MU_INVALID_ARGUMENT, "mu_compile: metric %d compares output %d; outputs count from 0", i,
                             outputs[i]);
    return MU_OK;
}

static void add_metrics(mu_trainer *trainer, mu_metric *const *metrics, int n, const int *outputs)
{
    for (int i = 0; i < n; i++) {
        trainer->metric_outputs[trainer->n_metrics] = outputs ? outputs[i] : 0;
        trainer->metrics[trainer->n_metrics++] = mu_retain(metrics[i]);
    }
}

// What the arguments are or name; the lists are for mu__free.
typedef struct compiled {
    mu_optimizer *optimizer;
    mu_loss **losses;
    mu_metric **metrics, **weighted;
    int n_losses, n_metrics, n_weighted;
} compiled;

// The metric of the mean loss, then the metrics, then those that sample weights count in.
static mu_status keep_metrics(mu_trainer *trainer, const compiled *from, const mu_compile_args *args)
{
    const size_t n = (size_t)from->n_metrics + (size_t)from->n_weighted + 1;
    MU_TRY(check_metrics(args->metric_outputs, from->n_metrics));
    MU_TRY(check_metrics(args->weighted_metric_outputs, from->n_weighted));
    mu_metric *loss = mu_mean_metric("loss");
    trainer->metrics = loss ? mu__calloc(n, sizeof *trainer->metrics) : NULL;
    trainer->metric_outputs = mu__calloc(n, sizeof *trainer->metric_outputs);
    if (!trainer->metrics || !trainer->metric_outputs)
        return mu_error_code();
    add_metrics(trainer, &loss, 1, NULL);
    add_metrics(trainer, from->metrics, from->n_metrics, args->metric_outputs);
    trainer->first_weighted = trainer->n_metrics;
    add_metrics(trainer, from->weighted, from->n_weighted, args->weighted_metric_outputs);
    return MU_OK;
}

static mu_status keep_losses(mu_trainer *trainer, mu_loss *const *losses, int n, const double *weights)
{
    trainer->losses = mu__calloc((size_t)n + 1, sizeof *trainer->losses);
    trainer->loss_weights = mu__calloc((size_t)n + 1, sizeof *trainer->loss_weights);
    if (!trainer->losses || !trainer->loss_weights)
        return mu_error_code();
    for (int i = 0; i < n; i++) {
        trainer->loss_weights[i] = weights ? weights[i] : 1;
        trainer->losses[trainer->n_losses++] = mu_retain(losses[i]);
    }
    return MU_OK;
}

static mu_status check_both(const compiled *found)
{
    const int n = found->n_metrics + found->n_weighted;
    if (2 * (n + 1) > MU_MAX_LOGS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: %d metrics; at most %d are supported", n,
                         MU_MAX_LOGS / 2 - 1);
    for (int i = 0; i < found->n_metrics; i++)
        for (int k = 0; k < found->n_weighted; k++)
            if (strcmp(mu_metric_name(found->metrics[i]), mu_metric_name(found->weighted[k])) == 0)
                return mu__error(MU_INVALID_ARGUMENT, "mu_compile: a metric and a weighted metric are both named '%s'; "
                                 "give one of them another .name", mu_metric_name(found->metrics[i]));
    return MU_OK;
}

// Gradients in float16 need a scaled loss.
static mu_optimizer *scaling(mu_optimizer *optimizer, const mu_compile_args *args)
{
    const mu_layer_policy policy = args->model->policy;
    const bool mixed = policy.compute == MU_F16 && policy.variable != MU_F16;
    if (!optimizer || optimizer->inner || !mixed || args->no_auto_scale_loss)
        return optimizer;
    return mu_loss_scale_optimizer(optimizer);
}

static mu_status resolve(const mu_compile_args *args, compiled *out)
{
    MU_TRY(mu__need_model(args->model, "mu_compile"));
    MU_TRY(mu__model_need_idle(args->model, "mu_compile"));
    MU_TRY(mu__losses_argument(args->loss, "mu_compile", &out->losses, &out->n_losses));
    if (out->n_losses == 0)
        MU_TRY(args->train_step ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "mu_compile: give a loss"));
    MU_TRY(mu__args_positive(args, "steps_per_execution", args->steps_per_execution, "mu_compile"));
    if (args->steps_per_execution > MU_MOST_LOOPED_STEPS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: steps_per_execution is %lld; at most %d",
                         (long long)args->steps_per_execution, (int)MU_MOST_LOOPED_STEPS);
    out->optimizer = scaling(mu__optimizer_argument(args->optimizer, "mu_compile"), args);
    MU_TRY(mu_error_code());
    MU_TRY(mu__metrics_argument(args->metrics, "mu_compile", &out->metrics, &out->n_metrics));
    MU_TRY(mu__metrics_argument(args->weighted_metrics, "mu_compile", &out->weighted, &out->n_weighted));
    return check_both(out);
}

static mu_status keep(mu_model *model, const compiled *from, const mu_compile_args *args)
{
    mu_trainer *trainer = model->trainer;
    forget_compiled(trainer);
    MU_TRY(keep_metrics(trainer, from, args));
    MU_TRY(keep_losses(trainer, from->losses, from->n_losses, args->loss_weights));
    trainer->optimizer = mu_retain(from->optimizer);
    trainer->train_function = mu_retain(mu_function_new(mu__train_step, model));
    trainer->test_function = mu_retain(mu_function_new(mu__test_step, model));
    trainer->train_step = args->train_step;
    trainer->test_step = args->test_step;
    trainer->step_arg = args->step_arg;
    trainer->run_eagerly = args->run_eagerly;
    trainer->steps_per_execution = MU_MAX(args->steps_per_execution, 1);
    if (trainer->steps_per_execution > 1)
        trainer->loop_function = mu_retain(mu_function_new(mu__train_steps, model));
    trainer->compiled = mu_error_code() == MU_OK;
    return mu_error_code();
}

mu_optimizer *mu_model_optimizer(mu_model *model)
{
    if (mu__pending() || mu__need_model(model, "mu_model_optimizer") != MU_OK)
        return NULL;
    if (!model->trainer->optimizer)
        mu__error(MU_FAILED_PRECONDITION, "mu_model_optimizer: '%s' has no optimizer; give mu_compile one first",
                  mu_layer_name(model));
    return model->trainer->optimizer;
}

mu_status mu_compile_with(const mu_compile_args *given)
{
    mu_compile_args args;
    compiled found = {0};
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_compile"));
    const mu_status status = resolve(&args, &found) == MU_OK ? keep(args.model, &found, &args) : mu_error_code();
    mu__free(found.losses);
    mu__free(found.metrics);
    mu__free(found.weighted);
    return status;
}
