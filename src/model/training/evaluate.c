// evaluate and predict, and what fit shares with them.
#include "model/callbacks/callback_class.h"
#include "model/metrics/metric.h"
#include "model/models/functional.h"
#include "model/models/host_part.h"
#include "model/models/model.h"
#include "model/training/arguments.h"
#include "model/training/hooks.h"
#include "model/training/progress.h"
#include "model/training/samples.h"
#include "model/training/training.h"

#include <math.h>
#include <muster/ops.h>

// ---- Data ---------------------------------------------------------------------------------------

static mu_type creator_type = {.name = "dataset creator"};

mu_dataset_creator *mu_dataset_creator_new(mu_dataset *(*fn)(const mu_input_context *context, void *arg), void *arg)
{
    if (mu__pending())
        return NULL;
    if (!fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_creator_new: the function is NULL");
        return NULL;
    }
    mu_dataset_creator *creator = mu__new(&creator_type, sizeof *creator);
    if (creator) {
        creator->fn = fn;
        creator->arg = arg;
    }
    return mu__give(creator);
}

const mu_dataset_creator *mu__creator_of(const void *samples)
{
    return mu__is(samples, &creator_type) ? samples : NULL;
}

// Where elements belong to calls, a creator's datasets are read here.
static mu_status take_creator(const mu_model *model, mu_dataset_creator *creator, mu_step_data *out)
{
    out->creator = creator;
    out->workers = model && model->trainer ? mu__worker_data_new(model->strategy, creator) : NULL;
    if (out->workers)
        *out = (mu_step_data){.dataset = mu__worker_data_dataset(out->workers), .workers = out->workers};
    return mu_error_code();
}

mu_status mu__step_data(const mu_model *model, const mu_samples *samples, const char *function, mu_step_data *out)
{
    *out = (mu_step_data){0};
    if (!mu__creator_of(samples->x)) {
        out->dataset = mu__samples_dataset(samples, function);
        return mu__pending() ? mu_error_code() : MU_OK;
    }
    return !samples->y && !samples->weights && samples->batch_size == 0
               ? take_creator(model, (mu_dataset_creator *)(uintptr_t)samples->x, out)
               : mu__error(MU_INVALID_ARGUMENT,
                           "%s: x is a dataset creator, whose datasets have labels, sample weights and batches; leave "
                           "out y, .sample_weight and .batch_size",
                           function);
}

int64_t mu__data_steps(const mu_step_data *data)
{
    return data->dataset ? mu_dataset_cardinality(data->dataset) : MU_UNKNOWN;
}

// Endless data need a limit on the number of steps, as do those of a creator, of which each worker reads its own.
mu_status mu__need_end(const mu_step_data *data, int64_t steps, const char *function, const char *argument)
{
    if (steps <= 0 && data->workers)
        mu__worker_data_must_end(data->workers, function, argument);
    if (steps > 0 || (!data->creator && (!data->dataset || mu_dataset_cardinality(data->dataset) != MU_INFINITE)))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s; say with .%s when to stop", function,
                     data->creator ? "the length of what a dataset creator makes is not known"
                                   : "the dataset repeats for ever",
                     argument);
}

// ---- evaluate and predict -----------------------------------------------------------------------

mu_status mu__need_compiled(const mu_model *model, const mu_step_data *data, const char *function)
{
    MU_TRY(mu__need_model(model, function));
    if (!data->dataset && !data->creator)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the dataset is NULL", function);
    return model->trainer->compiled
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION, "%s: the model is not compiled; call mu_compile first", function);
}

mu_status mu__no_batches(const char *function)
{
    return mu__error(
        MU_INVALID_ARGUMENT,
        "%s: the dataset gave no batch; it is empty, or a stage such as take, filter or .drop_remainder leaves nothing",
        function);
}

// With several workers only the chief shows the progress, unless the user chose lines.
mu_verbose mu__verbose_on(const mu_model *model, mu_verbose verbose)
{
    return mu_strategy_should_checkpoint(model->strategy) || verbose == MU_VERBOSE_LINES ? verbose : MU_VERBOSE_SILENT;
}

// Runs a pass of its own over the data.
static mu_status run_on(mu_pass *p, const mu_step_data *data)
{
    p->batch_each = data->workers != NULL;
    mu_status status = mu__step_runner(p->model)->begin(p->model, data, &p->opened);
    status = status == MU_OK ? mu__pass_run(p) : status;
    mu_release(p->opened);
    p->opened = NULL;
    return status;
}

mu_status mu__measure(mu_pass *p, const mu_step_data *data)
{
    mu_logs logs = {.model = p->model, .epoch = p->epoch};
    MU_TRY(mu__pass_reset(p->model));
    MU_TRY(mu__call_hooks(p->callbacks, MU_HOOK_TEST_BEGIN, &logs));
    p->function = p->model->trainer->test_function;
    const mu_status status = run_on(p, data);
    if (status == MU_OK && p->steps == 0)
        return mu__no_batches("mu_evaluate");
    logs = mu__pass_logs(p);
    return status == MU_OK ? mu__call_hooks(p->callbacks, MU_HOOK_TEST_END, &logs) : status;
}

mu_status mu__add_epoch(mu_history *history, const mu_pass *train, const mu_pass *validation, const double *rate)
{
    char name[128];
    for (int i = 0; train && i < train->model->trainer->n_metrics; i++)
        MU_TRY(mu__history_put(history, train->names[i], train->values[i]));
    for (int i = 0; validation && i < validation->model->trainer->n_metrics; i++) {
        snprintf(name, sizeof name, "%s%s", train ? "val_" : "",
                 mu__metric_label(validation->model->trainer->metrics[i]));
        MU_TRY(mu__history_put(history, name, validation->values[i]));
    }
    if (rate)
        MU_TRY(mu__history_put(history, MU_RATE_LOG, *rate));
    history->epochs++;
    return MU_OK;
}

static mu_history *evaluate(const mu_evaluate_args *args, const mu_step_data *data, mu_callback *const *callbacks)
{
    mu_progress progress;
    bool warned_of_nan = false;
    mu_history *history = NULL;
    mu_pass p = {.model = args->model,
                 .limit = args->steps > 0 ? args->steps : -1,
                 .progress = &progress,
                 .callbacks = callbacks,
                 .warned_of_nan = &warned_of_nan};
    const int64_t target = p.limit > 0 ? p.limit : mu__data_steps(data), begin = mu__now_ns();
    mu__progress_begin(&progress, mu__verbose_on(args->model, args->verbose), 0, 0, target);
    if (mu__measure(&p, data) == MU_OK) {
        mu__progress_end(&progress, p.steps, args->model->trainer->n_metrics, p.names, p.values);
        history = mu__history_new();
    } else {
        mu__progress_abandon(&progress);
    }
    const mu_status status = history ? mu__add_epoch(history, NULL, &p, NULL) : mu_error_code();
    if (status == MU_OK) {
        history->seconds = (double)(mu__now_ns() - begin) / 1e9;
        history->samples = p.samples;
    }
    mu__pass_end(&p);
    if (status == MU_OK)
        return mu__give(history);
    mu_release(history);
    return NULL;
}

// The callbacks of an argument, for mu__free, also after an error.
static mu_status take_callbacks(const mu_evaluate_args *args, const char *function, mu_callback ***callbacks)
{
    MU_TRY(mu__callbacks_argument(args->callbacks, function, callbacks));
    return mu__need_callbacks(*callbacks, function);
}

mu_history *mu_evaluate_with(const mu_evaluate_args *given)
{
    mu_evaluate_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_evaluate") != MU_OK)
        return NULL;
    mu_step_data data;
    const mu_samples samples = {args.x, args.y, args.batch_size, false, args.sample_weight};
    if (mu__step_data(args.model, &samples, "mu_evaluate", &data) != MU_OK ||
        mu__args_positive(&args, "steps", args.steps, "mu_evaluate") != MU_OK ||
        mu__need_compiled(args.model, &data, "mu_evaluate") != MU_OK ||
        mu__need_end(&data, args.steps, "mu_evaluate", "steps") != MU_OK || mu__host_data(args.model, &data) != MU_OK)
        return NULL;
    mu_model_use use;
    mu_callback **callbacks = NULL;
    mu_history *history = NULL;
    if (take_callbacks(&args, "mu_evaluate", &callbacks) == MU_OK &&
        mu__model_enter(args.model, &use, "mu_evaluate") == MU_OK) {
        history = evaluate(&args, &data, callbacks);
        mu__model_leave(args.model);
    }
    mu__free(callbacks);
    return history;
}

// Joins leaf i of the outputs of all batches.
static mu_object *joined(const mu_pass *p, int i, mu_tensor **parts)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    for (size_t k = 0; k < p->outputs.n; k++) {
        mu__value_flatten(p->outputs.items[k], leaves, MU_MAX_MODEL_INPUTS);
        parts[k] = (mu_tensor *)leaves[i];
    }
    return (mu_object *)mu_concat((int)p->outputs.n, parts, 0);
}

// The outputs for all samples, in the structure of the model's outputs.
static mu_value *join_outputs(const mu_pass *p)
{
    const mu_value *first = p->outputs.items[0];
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    const int n = mu__value_flatten(first, leaves, MU_MAX_MODEL_INPUTS);
    if (n > MU_MAX_MODEL_INPUTS) {
        mu__error(MU_INVALID_ARGUMENT, "mu_predict: %d outputs; at most %d are supported", n, MU_MAX_MODEL_INPUTS);
        return NULL;
    }
    mu_tensor **parts = mu__calloc(p->outputs.n + 1, sizeof *parts);
    bool whole = parts != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = (leaves[i] = joined(p, i, parts)) != NULL;
    mu__free(parts);
    return whole ? mu__give(mu__value_pack(first, leaves, n)) : NULL;
}

static mu_value *predict(const mu_evaluate_args *args, const mu_step_data *data, mu_callback *const *callbacks)
{
    mu_model *model = args->model;
    mu_logs logs = {.model = model};
    if (mu__call_hooks(callbacks, MU_HOOK_PREDICT_BEGIN, &logs) != MU_OK)
        return NULL;
    if (!model->trainer->predict_function)
        model->trainer->predict_function = mu_retain(mu_function_new(mu__predict_step, model, .name = "predict_step",
                                                                     .jit_compile = model->trainer->jit_compile));
    mu_pass p = {.model = model,
                 .function = model->trainer->predict_function,
                 .limit = args->steps > 0 ? args->steps : -1,
                 .callbacks = callbacks};
    mu_status status = run_on(&p, data);
    if (status == MU_OK && p.outputs.n == 0)
        status = mu__no_batches("mu_predict");
    mu_value *all = status == MU_OK ? join_outputs(&p) : NULL;
    logs.step = p.steps;
    mu__pass_end(&p);
    return all && mu__call_hooks(callbacks, MU_HOOK_PREDICT_END, &logs) == MU_OK ? all : NULL;
}

static mu_value *predict_on(const mu_evaluate_args *args, const mu_step_data *data, const char *function)
{
    mu_model_use use;
    mu_callback **callbacks = NULL;
    mu_value *outputs = NULL;
    if (take_callbacks(args, function, &callbacks) == MU_OK && mu__model_enter(args->model, &use, function) == MU_OK) {
        outputs = predict(args, data, callbacks);
        mu__model_leave(args->model);
    }
    mu__free(callbacks);
    return outputs;
}

// Rows of several inputs in a list are inputs alone, as in Keras, not the inputs and the labels.
static const void *rows_to_predict(const mu_evaluate_args *args)
{
    mu_value *x = mu__is(args->x, &mu__value_type) ? (mu_value *)(uintptr_t)args->x : NULL;
    const mu_functional *f = args->model && args->model->ops == &mu__functional_ops ? args->model->state : NULL;
    const bool list = x && f && !args->y && mu_value_kind_of(x) == MU_VALUE_LIST && x->n > 1;
    return list && (size_t)x->n == f->input_names.n && x->items[0]->leaf ? mu_list_of(1, &x) : args->x;
}

static mu_value *predict_values(const mu_evaluate_args *given, const char *function)
{
    mu_evaluate_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK)
        return NULL;
    mu_step_data data;
    const mu_samples samples = {rows_to_predict(&args), args.y, args.batch_size, false, args.sample_weight};
    if (mu__pending() || mu__step_data(args.model, &samples, function, &data) != MU_OK ||
        mu__args_positive(&args, "steps", args.steps, function) != MU_OK ||
        mu__need_model(args.model, function) != MU_OK ||
        (!data.creator && !data.dataset && mu__error(MU_INVALID_ARGUMENT, "%s: the dataset is NULL", function)) ||
        mu__need_end(&data, args.steps, function, "steps") != MU_OK || mu__host_data(args.model, &data) != MU_OK)
        return NULL;
    return predict_on(&args, &data, function);
}

mu_value *mu_predict_values_with(const mu_evaluate_args *args) { return predict_values(args, "mu_predict_values"); }

mu_tensor *mu_predict_with(const mu_evaluate_args *args)
{
    mu_value *outputs = predict_values(args, "mu_predict");
    const int n = outputs ? mu__value_flatten(outputs, NULL, 0) : 1;
    if (n == 1)
        return outputs ? mu_value_tensor(outputs) : NULL;
    mu__error(MU_INVALID_ARGUMENT, "mu_predict: the model has %d outputs; get them all with mu_predict_values", n);
    return NULL;
}

// ---- One batch ----------------------------------------------------------------------------------

// A history of one epoch, or NULL after an error.
static mu_history *history_of(mu_pass *p)
{
    mu_history *history = mu__pending() ? NULL : mu__history_new();
    if (history && mu__add_epoch(history, NULL, p, NULL) == MU_OK)
        history->samples = p->samples;
    mu__pass_end(p);
    if (!mu__pending())
        return mu__give(history);
    mu_release(history);
    return NULL;
}

static mu_history *step_on(mu_model *model, const mu_step_data *data, bool training)
{
    bool warned_of_nan = false;
    mu_pass p = {.model = model,
                 .training = training,
                 .limit = -1,
                 .warned_of_nan = &warned_of_nan,
                 .function = training ? model->trainer->train_function : model->trainer->test_function};
    mu_fit_position position = {.data = data->dataset};
    model->trainer->use->position = &position;
    model->trainer->stop = false;
    if (mu__pass_reset(model) == MU_OK)
        run_on(&p, data);
    return history_of(&p);
}

static mu_status check_batch(const mu_batch_args *args, const mu_step_data *data, bool training, const char *function)
{
    MU_TRY(mu__need_compiled(args->model, data, function));
    if (!training || args->model->trainer->optimizer || args->model->trainer->train_step)
        return MU_OK;
    return mu__error(
        MU_FAILED_PRECONDITION,
        "%s: the model was compiled without an optimizer; give mu_compile one, such as .optimizer = \"adam\"",
        function);
}

static mu_history *on_batch(const mu_batch_args *given, bool training, const char *function)
{
    mu_batch_args args;
    mu_model_use use;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK)
        return NULL;
    const mu_class_weights by = {args.class_weight, args.n_class_weight};
    const mu_samples samples = {.x = args.x, .y = args.y, .weights = args.sample_weight};
    mu_value *element = args.x ? mu__samples_element(&samples, function) : NULL;
    mu_dataset *one = element ? mu__class_weights(mu_dataset_from_tensors(element), &by, function) : NULL;
    mu_step_data data = {.dataset = one};
    if (mu__pending() || check_batch(&args, &data, training, function) != MU_OK ||
        mu__host_data(args.model, &data) != MU_OK || mu__model_enter(args.model, &use, function) != MU_OK)
        return NULL;
    mu_history *history = step_on(args.model, &data, training);
    mu__model_leave(args.model);
    return history;
}

mu_history *mu_train_on_batch_with(const mu_batch_args *args) { return on_batch(args, true, "mu_train_on_batch"); }

mu_history *mu_test_on_batch_with(const mu_batch_args *args) { return on_batch(args, false, "mu_test_on_batch"); }

mu_value *mu_predict_on_batch_with(const mu_batch_args *given)
{
    static const char function[] = "mu_predict_on_batch";
    mu_batch_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK ||
        mu__need_model(args.model, function) != MU_OK || mu__need(args.x, "mu_predict_on_batch: x") != MU_OK)
        return NULL;
    if (args.y || args.sample_weight || args.class_weight) {
        mu__error(MU_INVALID_ARGUMENT, "mu_predict_on_batch: there are labels or weights; give inputs alone");
        return NULL;
    }
    const mu_samples samples = {.x = args.x};
    mu_value *inputs = mu__samples_element(&samples, function);
    mu_value *element = inputs ? mu_list_of(1, &inputs) : NULL; // a list of inputs is one part of it
    mu_step_data data = {.dataset = element ? mu_dataset_from_tensors(element) : NULL};
    const mu_evaluate_args on = {.size = sizeof on, .model = args.model};
    return data.dataset && mu__host_data(args.model, &data) == MU_OK ? predict_on(&on, &data, function) : NULL;
}

static mu_status need_idle(const mu_model *model, const char *function)
{
    MU_TRY(mu__need_model(model, function));
    MU_TRY(mu__model_need_idle(model, function));
    return model->trainer->compiled
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION, "%s: the model is not compiled; call mu_compile first", function);
}

mu_status mu_reset_metrics(mu_model *model)
{
    if (mu__pending() || need_idle(model, "mu_reset_metrics") != MU_OK)
        return mu_error_code();
    return mu__pass_reset(model);
}

mu_history *mu_metrics_result(mu_model *model)
{
    if (mu__pending() || need_idle(model, "mu_metrics_result") != MU_OK)
        return NULL;
    mu_pass p = {.model = model};
    mu__pass_read(&p);
    return history_of(&p);
}
