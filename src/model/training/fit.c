// fit: epochs of training and validation.
//
// The steps (step.c) are traced once. The runner decides where they run (pass.h): each batch is split among the
// replicas, or goes to a worker of a coordinator.
#include "model/callbacks/callback_class.h"
#include "model/models/host_part.h"
#include "model/training/arguments.h"
#include "model/training/hooks.h"
#include "model/training/progress.h"
#include "model/training/samples.h"
#include "model/training/training.h"

typedef struct fitting {
    mu_fit_args args;
    mu_step_data data, validation;
    mu_dataset *given, *given_validation; // of these, before the model's look-ups; NULL: none
    mu_callback **callbacks;              // ends with MU_END
    mu_history *history;
    mu_object *opened; // data in use; kept over epochs if steps_per_epoch is set
    mu_fit_position position;
    mu_progress progress;
    int64_t last_steps;  // steps of the last epoch
    int64_t known_steps; // steps of a complete epoch, if the dataset's length is unknown; 0: none yet
    bool warned_of_nan;
    mu_class_weights by_class;
    const mu_dataset_creator *creator; // whose datasets get weights by class; NULL: none
} fitting;

// Opens an epoch's data: a new iteration, or the position where the last epoch or a restored run stopped. A creator is
// called again in each run.
static mu_status open_data(fitting *f)
{
    mu_fit_position *at = &f->position;
    const bool whole = f->data.dataset != NULL;
    if (!at->begun) {
        mu_release(f->opened);
        f->opened = NULL;
        MU_TRY(mu__step_runner(f->args.model)->begin(f->args.model, &f->data, &f->opened));
        at->iterator = whole ? (mu_iterator *)f->opened : NULL;
        at->begun = true;
        if (whole && at->restored)
            MU_TRY(mu_iterator_restore(at->iterator, at->restored));
        mu__free(at->restored);
        at->restored = NULL;
    }
    return MU_OK;
}

char *mu__fit_data_state(const mu_model *model)
{
    const mu_fit_position *at = model->trainer->use->position;
    if (!at->data)
        return mu__strdup("");
    mu_iterator *next = at->begun ? mu_retain(at->iterator) : mu__dataset_iterate(at->data);
    const char *state = next ? mu_iterator_state(next) : NULL;
    char *copy = state ? mu__strdup(state) : NULL;
    mu_release(next);
    return copy;
}

static void warn_of_early_end(const mu_pass *p, int epochs)
{
    mu__log(MU_LOG_WARNING,
            "mu_fit: the data ended after %lld of %lld steps of epoch %d%s; repeat the dataset or give fewer "
            "steps_per_epoch",
            (long long)p->steps, (long long)p->limit, p->epoch + 1,
            p->epoch + 1 < epochs ? ", and the next begins them anew" : "");
}

// Runs the steps of an epoch for which the epochs before have left no data: they begin anew, as in Keras.
static mu_status run_anew(fitting *f, mu_pass *p)
{
    f->position.begun = false;
    MU_TRY(open_data(f));
    p->opened = f->opened;
    return mu__pass_run(p);
}

static mu_status train_epoch(fitting *f, int epoch, mu_pass *p)
{
    mu_model *model = f->args.model;
    int64_t limit = f->args.steps_per_epoch > 0 ? f->args.steps_per_epoch : -1;
    int64_t target = limit > 0 ? limit : mu__data_steps(&f->data);
    if (target < 0)
        target = f->known_steps;
    *p = (mu_pass){.model = model,
                   .function = model->trainer->train_function,
                   .limit = limit,
                   .training = true,
                   .progress = &f->progress,
                   .callbacks = f->callbacks,
                   .warned_of_nan = &f->warned_of_nan,
                   .epoch = epoch,
                   .steps = f->position.step};
    const bool continues = f->position.begun || f->position.restored;
    MU_TRY(open_data(f));
    // A run restored within an epoch has values so far, and no further steps if all were done.
    MU_TRY(p->steps == 0 ? mu__pass_reset(model) : mu__pass_read(p));
    p->opened = f->opened;
    p->batch_each = f->data.workers != NULL;
    mu_logs logs = mu__pass_logs(p);
    logs.n = 0;
    MU_TRY(mu__call_hooks(f->callbacks, MU_HOOK_EPOCH_BEGIN, &logs));
    mu__progress_begin(&f->progress, mu__verbose_on(model, f->args.verbose), epoch + 1, f->args.epochs, target);
    int64_t begin = mu__now_ns();
    MU_TRY(mu__pass_run(p));
    if (p->steps == 0 && continues && !model->trainer->stop)
        MU_TRY(run_anew(f, p));
    f->history->seconds += (double)(mu__now_ns() - begin) / 1e9;
    f->history->samples += p->samples;
    if (p->steps == 0 && epoch == f->args.initial_epoch)
        return mu__no_batches("mu_fit");
    if (limit > 0 && p->steps < limit && !model->trainer->stop)
        warn_of_early_end(p, f->args.epochs);
    if (limit < 0 && !model->trainer->stop)
        f->known_steps = p->steps;
    return MU_OK;
}

// Whether the learning rate is among the values of an epoch: a callback sets it, and no metric has its name.
static bool logs_rate(const fitting *f, int n, const char *const *names)
{
    bool logs = mu__hooks_set_rate(f->callbacks);
    for (int i = 0; i < n; i++)
        logs &= strcmp(names[i], MU_RATE_LOG) != 0;
    return logs;
}

// Ends an epoch with the values of training and validation together, for the progress bar and on_epoch_end.
static mu_status end_epoch(fitting *f, const mu_pass *train, const mu_pass *validation)
{
    static const char *const prefix = "val_";
    const char *names[2 * MU_MAX_LOGS + 1];
    double values[2 * MU_MAX_LOGS + 1];
    char val_names[MU_MAX_LOGS][72];
    int n = 0;
    for (int i = 0; i < train->model->trainer->n_metrics; i++, n++) {
        names[n] = train->names[i];
        values[n] = train->values[i];
    }
    for (int i = 0; validation && i < validation->model->trainer->n_metrics; i++, n++) {
        snprintf(val_names[i], sizeof val_names[i], "%s%s", prefix, validation->names[i]);
        names[n] = val_names[i];
        values[n] = validation->values[i];
    }
    const bool rate = logs_rate(f, n, names);
    if (rate) {
        MU_TRY(mu__learning_rate_read(train->model, &values[n]));
        names[n++] = MU_RATE_LOG;
    }
    mu__progress_end(&f->progress, train->steps, n, names, values);
    MU_TRY(mu__add_epoch(f->history, train, validation, rate ? &values[n - 1] : NULL));
    f->last_steps = train->steps;
    mu_logs logs = mu__pass_logs(train);
    logs.n = n;
    logs.names = names;
    logs.values = values;
    return mu__call_hooks(f->callbacks, MU_HOOK_EPOCH_END, &logs);
}

// Validation uses the metrics of training: if it is interrupted, their values are restored.
static void put_back_metrics(const mu_pass *train)
{
    mu_error_value first;
    mu__error_move(&first);
    mu__pass_write(train);
    mu_error_take();
    mu__error_raise(&first);
}

// Whether to validate after an epoch, counted from 0.
static bool validates_after(const mu_fit_args *args, int epoch)
{
    if (!args->validation_epochs)
        return (epoch + 1) % MU_MAX(args->validation_freq, 1) == 0;
    for (const int *at = args->validation_epochs; *at != 0; at++)
        if (*at == epoch + 1)
            return true;
    return false;
}

static mu_status fit_epoch(fitting *f, int epoch)
{
    mu_pass train, validation = {.model = f->args.model,
                                 .limit = f->args.validation_steps > 0 ? f->args.validation_steps : -1,
                                 .epoch = epoch,
                                 .callbacks = f->callbacks,
                                 .warned_of_nan = &f->warned_of_nan};
    const bool validates = validates_after(&f->args, epoch) && (f->validation.dataset || f->validation.creator);
    mu_status status = train_epoch(f, epoch, &train);
    if (status == MU_OK && train.steps > 0 && validates &&
        (status = mu__measure(&validation, &f->validation)) != MU_OK) {
        mu__error_context("in the validation after epoch %d (validation_data, validation_split)", epoch + 1);
        put_back_metrics(&train);
    }
    if (status == MU_OK && train.steps == 0) {
        f->args.model->trainer->stop = true;
    } else if (status == MU_OK) {
        f->position.epoch = epoch + 1;
        f->position.step = 0;
        f->position.begun = train.steps == f->args.steps_per_epoch;
        status = end_epoch(f, &train, validates ? &validation : NULL);
    }
    mu__pass_end(&train);
    mu__pass_end(&validation);
    return status;
}

// After a signal ended fit, callbacks save backups, and the error says where. Their failures are reported; the exit
// code stays the signal's.
static void call_interrupt_hooks(fitting *f)
{
    mu_error_value first;
    const char *saved_in = NULL;
    mu__error_move(&first);
    const mu_logs logs = {.model = f->args.model, .epoch = f->position.epoch, .step = f->position.step};
    for (int i = 0; f->callbacks && (const void *)f->callbacks[i] != MU_END; i++) {
        const mu_callback *callback = f->callbacks[i];
        if (callback && callback->on_interrupt &&
            callback->on_interrupt(&logs, &saved_in, callback->hooks.arg) != MU_OK) {
            mu_error_value error;
            mu__error_move(&error);
            mu__log(MU_LOG_ERROR, "mu_fit was stopped, and its state could not be saved: %s", error.message);
        }
    }
    const size_t n = strlen(first.message);
    if (saved_in)
        snprintf(first.message + n, sizeof first.message - n,
                 "; progress is saved in '%.400s': run the same command to continue", saved_in);
    mu__error_raise(&first);
}

static mu_validates when_validated(const fitting *f)
{
    if (!f->validation.dataset && !f->validation.creator)
        return MU_VALIDATES_NEVER;
    if (!f->args.validation_epochs && f->args.validation_freq <= 1)
        return MU_VALIDATES_EACH_EPOCH;
    for (int epoch = f->args.initial_epoch; epoch < f->args.epochs; epoch++)
        if (!validates_after(&f->args, epoch))
            return MU_VALIDATES_SOME_EPOCHS;
    return MU_VALIDATES_EACH_EPOCH;
}

static mu_status check_validation_epochs(const mu_fit_args *args)
{
    if (args->validation_epochs && args->validation_freq > 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_fit: validation_freq and validation_epochs are both given; give one");
    for (const int *at = args->validation_epochs; at && *at != 0; at++)
        if (*at < 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_fit: validation_epochs has %d; epochs are counted from 1, and the list ends with 0",
                             *at);
    return MU_OK;
}

static mu_status check_fit(const fitting *f)
{
    const mu_fit_args *args = &f->args;
    MU_TRY(mu__need_compiled(args->model, &f->data, "mu_fit"));
    if (!args->model->trainer->optimizer && !args->model->trainer->train_step)
        return mu__error(
            MU_FAILED_PRECONDITION,
            "mu_fit: the model was compiled without an optimizer; give mu_compile one, such as .optimizer = \"adam\"");
    if (args->epochs < 0 || args->initial_epoch < 0 || args->steps_per_epoch < 0 || args->validation_steps < 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_fit: epochs %d, initial_epoch %d, steps_per_epoch %lld, validation_steps %lld; none may be negative",
            args->epochs, args->initial_epoch, (long long)args->steps_per_epoch, (long long)args->validation_steps);
    if (args->validation_freq < 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_fit: validation_freq is %d; it must be 1 or more",
                         args->validation_freq);
    MU_TRY(mu__args_positive(args, "validation_freq", args->validation_freq, "mu_fit"));
    MU_TRY(check_validation_epochs(args));
    MU_TRY(mu__args_positive(args, "steps_per_epoch", args->steps_per_epoch, "mu_fit"));
    MU_TRY(mu__args_positive(args, "validation_steps", args->validation_steps, "mu_fit"));
    MU_TRY(mu__check_callbacks(f->callbacks, args->model, when_validated(f)));
    MU_TRY(mu__need_end(&f->validation, args->validation_steps, "mu_fit", "validation_steps"));
    return mu__need_end(&f->data, args->steps_per_epoch, "mu_fit", "steps_per_epoch");
}

// Calls on_train_end with the values of the last epoch; of none, if there was no epoch.
static mu_status call_train_end(const fitting *f)
{
    const char *names[2 * MU_MAX_LOGS + 1];
    double values[2 * MU_MAX_LOGS + 1];
    const int epochs = f->history->epochs;
    const mu_logs logs = {.model = f->args.model,
                          .epoch = f->position.epoch - (epochs > 0),
                          .step = f->last_steps,
                          .n = epochs > 0 ? mu__history_last_epoch(f->history, names, values) : 0,
                          .names = names,
                          .values = values};
    return mu__call_hooks(f->callbacks, MU_HOOK_TRAIN_END, &logs);
}

static mu_status fit(fitting *f)
{
    mu_model *model = f->args.model;
    model->strategy->ops->cross_worker->hold_stop(true);
    model->trainer->stop = false;
    model->trainer->use->position = &f->position;
    f->position.epoch = f->args.initial_epoch;
    f->position.data = f->data.dataset;
    mu_logs logs = {.model = model};
    mu_status status =
        when_validated(f) == MU_VALIDATES_NEVER ? MU_OK : mu__check_validation(model, f->given, f->given_validation);
    status = status == MU_OK ? mu__call_hooks(f->callbacks, MU_HOOK_TRAIN_BEGIN, &logs) : status;
    for (int epoch = f->position.epoch; status == MU_OK && epoch < f->args.epochs && !model->trainer->stop; epoch++)
        status = fit_epoch(f, epoch);
    if (status == MU_OK && f->args.epochs > 0 && model->trainer->optimizer)
        status = mu_optimizer_finalize_variable_values(model->trainer->optimizer);
    if (status == MU_OK)
        status = call_train_end(f);
    else
        mu__progress_abandon(&f->progress);
    if (status == MU_CANCELLED && mu__stop_signal() != 0)
        call_interrupt_hooks(f);
    model->strategy->ops->cross_worker->hold_stop(false);
    return status;
}

static mu_dataset *make_weighted(const mu_input_context *context, void *arg)
{
    const fitting *f = arg;
    mu_dataset *dataset = f->creator->fn(context, f->creator->arg);
    return mu__class_weights(dataset, &f->by_class, "mu_fit");
}

// The datasets of a creator get weights by class where they are made.
static mu_status weight_creator(fitting *f, mu_samples *samples)
{
    f->creator = mu__creator_of(samples->x);
    if (f->creator && (f->by_class.weights || f->by_class.n != 0))
        samples->x = mu_dataset_creator_new(make_weighted, f);
    return mu_error_code();
}

// Makes datasets and callbacks of the arguments.
static mu_status resolve(fitting *f)
{
    const mu_fit_args *args = &f->args;
    mu_samples samples = {args->x, args->y, args->batch_size, !args->no_shuffle, args->sample_weight};
    mu_samples validation = {.x = args->validation_data};
    if (args->validation_split != 0 && args->validation_data)
        return mu__error(MU_INVALID_ARGUMENT, "mu_fit: validation_split and validation_data are both given; give one");
    if (args->validation_split != 0)
        MU_TRY(mu__samples_split(&samples, args->validation_split, &validation, "mu_fit"));
    const bool rows = mu__is(validation.x, &mu__tensor_type) || mu__is(validation.x, &mu__value_type);
    if (rows)
        validation.batch_size = args->validation_batch_size ? args->validation_batch_size : args->batch_size;
    f->by_class = (mu_class_weights){args->class_weight, args->n_class_weight};
    MU_TRY(weight_creator(f, &samples));
    MU_TRY(mu__step_data(args->model, &samples, "mu_fit", &f->data));
    MU_TRY(mu__step_data(args->model, &validation, "mu_fit", &f->validation));
    if (f->data.dataset && !f->creator)
        f->data.dataset = mu__class_weights(f->data.dataset, &f->by_class, "mu_fit");
    f->given = f->data.workers ? NULL : f->data.dataset;
    f->given_validation = f->validation.workers ? NULL : f->validation.dataset;
    MU_TRY(mu__host_data(args->model, &f->data));
    MU_TRY(mu__host_data(args->model, &f->validation));
    return mu__callbacks_argument(args->callbacks, "mu_fit", &f->callbacks);
}

mu_history *mu_fit_with(const mu_fit_args *given)
{
    fitting f = {0};
    mu_model_use use;
    if (mu__pending() || mu__args_copy(&f.args, sizeof f.args, given, "mu_fit") != MU_OK)
        return NULL;
    f.args.epochs = MU_GIVEN(&f.args, epochs) ? f.args.epochs : 1;
    if (resolve(&f) != MU_OK || check_fit(&f) != MU_OK || mu__model_enter(f.args.model, &use, "mu_fit") != MU_OK) {
        mu__free(f.callbacks);
        return NULL;
    }
    f.history = mu__history_new();
    const mu_status status = f.history ? fit(&f) : mu_error_code();
    mu__model_leave(f.args.model);
    mu__free(f.position.restored);
    mu__free(f.callbacks);
    mu_release(f.opened);
    if (status == MU_OK)
        return mu__give(f.history);
    mu_release(f.history);
    return NULL;
}
