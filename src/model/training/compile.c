// compile: what a model is trained with.
#include "model/core/names.h"
#include "model/metrics/metric.h"
#include "model/models/model.h"
#include "model/optimizers/optimizer.h"
#include "model/training/arguments.h"
#include "model/training/training.h"

static void forget_losses(mu_trainer *trainer)
{
    for (int i = 0; i < trainer->n_losses; i++)
        mu_release(trainer->losses[i]);
    mu__free(trainer->losses);
    mu__free(trainer->loss_weights);
    mu__name_list_free(&trainer->outputs);
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
    mu_release(trainer->predict_function); // it is compiled, or not, as mu_compile says
    mu_release(trainer->optimizer);
    trainer->train_function = trainer->loop_function = trainer->test_function = trainer->predict_function = NULL;
    trainer->optimizer = NULL;
}

void mu__trainer_free(mu_trainer *trainer)
{
    if (!trainer)
        return;
    forget_compiled(trainer);
    mu_release(trainer->coordinator);
    mu__free(trainer);
}

static mu_status add_metric(mu_trainer *trainer, mu_metric *metric, int output)
{
    trainer->metric_outputs[trainer->n_metrics] = output;
    trainer->metrics[trainer->n_metrics++] = mu_retain(metric);
    return metric ? MU_OK : mu_error_code();
}

// Adds a metric that is logged as OUTPUT_WHAT_NAME; of a model with one output there is no `output`.
static mu_status add_labelled(mu_trainer *trainer, mu_metric *metric, int output, const char *name, const char *what)
{
    MU_TRY(add_metric(trainer, metric, output));
    char *prefix = mu__sprintf("%s%s%s", name ? name : "", name ? "_" : "", what);
    const mu_status status = prefix ? mu__metric_set_label(metric, prefix) : MU_RESOURCE_EXHAUSTED;
    mu__free(prefix);
    return status;
}

// Of several outputs' losses each has a mean of its own, before it is weighted. A step of the program's own knows no
// losses.
static mu_status add_output_losses(mu_trainer *trainer, const mu_for_outputs *from, bool own_step)
{
    mu_name_list names = {0};
    mu_status status = MU_OK;
    int n = 0;
    for (int i = 0; i < from->n_losses; i++) {
        n += from->losses[i] != NULL;
        const char *of_loss = from->losses[i] ? mu_loss_name(from->losses[i]) : "none";
        MU_TRY(mu__name_list_add(&names, from->names.n > 0 ? from->names.items[i] : of_loss));
    }
    for (int i = 0; status == MU_OK && n > 1 && !own_step && i < from->n_losses; i++)
        if (from->losses[i])
            status = add_labelled(trainer, mu_mean_metric("loss"), i, names.items[i], "");
    mu__name_list_free(&names);
    return status;
}

// Whether a weighted metric has the name of one that is not weighted.
static bool is_again(const mu_for_outputs *from, size_t i)
{
    bool found = false;
    for (size_t k = 0; i >= from->first_weighted && k < from->first_weighted; k++)
        found |= from->metrics[k].output == from->metrics[i].output &&
                 strcmp(mu_metric_name(from->metrics[k].metric), mu_metric_name(from->metrics[i].metric)) == 0;
    return found;
}

// The metric of the mean loss, those of the outputs' losses, the metrics, then those that sample weights count in.
static mu_status keep_metrics(mu_trainer *trainer, const mu_for_outputs *from, bool own_step)
{
    const size_t n = (size_t)from->n_losses + from->n_metrics + 1;
    mu_metric *loss = mu_mean_metric("loss");
    trainer->metrics = loss ? mu__calloc(n, sizeof *trainer->metrics) : NULL;
    trainer->metric_outputs = mu__calloc(n, sizeof *trainer->metric_outputs);
    if (!trainer->metrics || !trainer->metric_outputs)
        return mu_error_code();
    MU_TRY(add_metric(trainer, loss, 0));
    MU_TRY(add_output_losses(trainer, from, own_step));
    trainer->first_metric = trainer->n_metrics;
    trainer->first_weighted = trainer->n_metrics + (int)from->first_weighted;
    for (size_t i = 0; i < from->n_metrics; i++) {
        const struct mu_output_metric *item = &from->metrics[i];
        const char *output = from->names.n > 1 ? from->names.items[item->output] : NULL;
        MU_TRY(add_labelled(trainer, item->metric, item->output, output, is_again(from, i) ? "weighted_" : ""));
    }
    trainer->first_of_layers = trainer->n_metrics;
    return MU_OK;
}

static mu_status keep_losses(mu_trainer *trainer, const mu_for_outputs *from)
{
    const size_t n = (size_t)from->n_losses;
    MU_TRY(mu__name_list_copy(&trainer->outputs, from->names.n, from->names.items));
    trainer->losses = mu__calloc(n + 1, sizeof *trainer->losses);
    trainer->loss_weights = mu__calloc(n + 1, sizeof *trainer->loss_weights);
    if (!trainer->losses || !trainer->loss_weights)
        return mu_error_code();
    for (size_t i = 0; i < n; i++) {
        trainer->loss_weights[i] = from->weights[i];
        trainer->losses[trainer->n_losses++] = mu_retain(from->losses[i]);
    }
    return MU_OK;
}

// Values are logged by name; names of validation values begin with "val_".
static mu_status check_label(mu_metric *const *metrics, int n)
{
    const char *label = mu__metric_label(metrics[n]);
    bool taken = strncmp(label, "val_", 4) == 0;
    for (int i = 0; i < n; i++)
        taken |= strcmp(mu__metric_label(metrics[i]), label) == 0;
    return taken ? mu__error(MU_INVALID_ARGUMENT,
                             "mu_compile: two values would be logged as '%s', or it begins with 'val_', which is for "
                             "validation; give metrics and losses different names (.name)",
                             label)
                 : MU_OK;
}

mu_status mu__check_labels(const mu_trainer *trainer)
{
    if (2 * trainer->n_metrics > MU_MAX_LOGS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: %d losses and metrics; at most %d are supported",
                         trainer->n_metrics, MU_MAX_LOGS / 2);
    for (int i = 1; i < trainer->n_metrics; i++)
        MU_TRY(check_label(trainer->metrics, i));
    return MU_OK;
}

// What the arguments are or name.
typedef struct compiled {
    mu_optimizer *optimizer;
    mu_for_outputs outputs;
} compiled;

// Gradients in float16 need a scaled loss.
static mu_optimizer *scaling(mu_optimizer *optimizer, const mu_compile_args *args)
{
    const mu_layer_policy policy = args->model->policy;
    const bool mixed = policy.compute == MU_F16 && policy.variable != MU_F16;
    if (!optimizer || optimizer->inner || !mixed || args->no_auto_scale_loss)
        return optimizer;
    return mu_loss_scale_optimizer(optimizer);
}

static bool has_loss(const mu_for_outputs *from)
{
    for (int i = 0; i < from->n_losses; i++)
        if (from->losses[i])
            return true;
    return false;
}

static mu_status resolve(const mu_compile_args *args, compiled *out)
{
    MU_TRY(mu__need_model(args->model, "mu_compile"));
    MU_TRY(mu__model_need_idle(args->model, "mu_compile"));
    MU_TRY(mu__for_outputs(args, &out->outputs));
    if (!has_loss(&out->outputs))
        MU_TRY(args->train_step ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "mu_compile: give a loss"));
    MU_TRY(mu__args_positive(args, "steps_per_execution", args->steps_per_execution, "mu_compile"));
    if (args->steps_per_execution > MU_MOST_LOOPED_STEPS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: steps_per_execution is %lld; at most %d",
                         (long long)args->steps_per_execution, (int)MU_MOST_LOOPED_STEPS);
    out->optimizer = scaling(mu__optimizer_argument(args->optimizer, "mu_compile"), args);
    return mu_error_code();
}

static mu_status keep(mu_model *model, const compiled *from, const mu_compile_args *args)
{
    mu_trainer *trainer = model->trainer;
    forget_compiled(trainer);
    MU_TRY(keep_metrics(trainer, &from->outputs, args->train_step != NULL));
    MU_TRY(mu__check_labels(trainer));
    MU_TRY(keep_losses(trainer, &from->outputs));
    trainer->optimizer = mu_retain(from->optimizer);
    trainer->train_function =
        mu_retain(mu_function_new(mu__train_step, model, .name = "train_step", .jit_compile = args->jit_compile));
    trainer->test_function =
        mu_retain(mu_function_new(mu__test_step, model, .name = "test_step", .jit_compile = args->jit_compile));
    trainer->train_step = args->train_step;
    trainer->test_step = args->test_step;
    trainer->step_arg = args->step_arg;
    trainer->run_eagerly = args->run_eagerly;
    trainer->jit_compile = args->jit_compile;
    trainer->steps_per_execution = MU_MAX(args->steps_per_execution, 1);
    if (trainer->steps_per_execution > 1)
        trainer->loop_function =
            mu_retain(mu_function_new(mu__train_steps, model, .name = "train_steps", .jit_compile = args->jit_compile));
    MU_TRY(mu__adopt_metrics(model));
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
    mu__for_outputs_free(&found.outputs);
    return status;
}
