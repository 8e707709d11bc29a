// Callbacks that watch a value: early stopping, reducing the learning rate on a plateau; and what watching a value is.
//
// Rules and defaults are Keras's; which direction is better follows from the metric's class. An epoch without the
// value, because .validation_freq leaves out its validation, counts as neither better nor worse.
#include "model/callbacks/callback_class.h"

#include "model/metrics/metric.h"
#include "model/training/training.h"

#include <math.h>

// ---- The watched value --------------------------------------------------------------------------

const char *const mu__monitor_modes[] = {"auto", "min", "max", NULL};

bool mu__is_maximized(const mu_model *model, const char *name, const char *mode)
{
    static const char prefix[] = "val_";
    const mu_trainer *trainer = model->trainer;
    if (strcmp(mode, "auto") != 0)
        return strcmp(mode, "max") == 0;
    if (strncmp(name, prefix, sizeof prefix - 1) == 0)
        name += sizeof prefix - 1;
    for (int i = 0; i < trainer->n_metrics; i++)
        if (strcmp(mu__metric_label(trainer->metrics[i]), name) == 0 && trainer->metrics[i]->ops->maximized)
            return true;
    return strstr(name, "accuracy") != NULL;
}

// A number in the type of mu_set_floatx. Keras compares in f32, also where its floats are f64.
static double rounded(double value) { return mu__floatx() == MU_F64 ? value : (double)(float)value; }

// In f64, an f32 accuracy of 0.8 would be more than 0.1 better than one of 0.7.
static bool is_better(double value, double reference, bool maximized, double min_delta)
{
    const double delta = maximized ? -min_delta : min_delta, moved = rounded(rounded(value) + delta);
    return maximized ? moved > rounded(reference) : moved < rounded(reference);
}

bool mu__improved(mu_watched *m, double value, bool maximized, double min_delta)
{
    if (isnan(value) || (m->seen && !is_better(value, m->best, maximized, min_delta)))
        return false;
    *m = (mu_watched){.best = value, .seen = true};
    return true;
}

// ---- Early stopping -----------------------------------------------------------------------------

static const mu_field stopping_fields[] = {
    MU_FIELD(mu_early_stopping_args, monitor, TEXT),
    MU_FIELD(mu_early_stopping_args, min_delta, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_early_stopping_args, patience, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_early_stopping_args, mode, CHOICE, .text = "auto", .choices = mu__monitor_modes),
    MU_FIELD(mu_early_stopping_args, baseline, DOUBLE, .number = NAN),
    MU_FIELD(mu_early_stopping_args, restore_best_weights, FLAG),
    MU_FIELD(mu_early_stopping_args, start_from_epoch, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_early_stopping_args, verbose, FLAG),
    {0},
};

typedef struct stopping {
    mu_watched watched;
    int waited;
    int best_epoch, stopped_epoch;
    int n;            // of the best weights; 0: there are none yet
    mu_tensor **best; // retained
} stopping;

static mu_status stopping_complete(void *arguments)
{
    mu_early_stopping_args *args = arguments;
    args->monitor = args->monitor ? args->monitor : "val_loss";
    return MU_OK;
}

static void forget_weights(void *object)
{
    stopping *state = object;
    for (int i = 0; i < state->n; i++)
        mu_release(state->best[i]);
    mu__free(state->best);
    state->best = NULL;
    state->n = 0;
}

static mu_status keep_weights(stopping *state, mu_model *model)
{
    mu_value *weights = mu_model_weights(model);
    const int n = weights ? mu_value_count(weights) : 0;
    forget_weights(state);
    state->best = mu__calloc((size_t)n + 1, sizeof(mu_tensor *));
    for (int i = 0; state->best && i < n; i++) {
        mu_tensor *value = mu_variable_read(mu_value_variable(mu_value_at(weights, i)));
        if (!value)
            return mu_error_code();
        state->best[state->n++] = mu_retain(value);
    }
    return mu_error_code();
}

static mu_status put_back(const stopping *state, mu_model *model)
{
    mu_value *weights = mu_model_weights(model);
    mu_scope_guard scope = mu_scope_open(model->strategy);
    for (int i = 0; weights && i < state->n && !mu__pending(); i++)
        mu_variable_assign(mu_value_variable(mu_value_at(weights, i)), state->best[i]);
    mu_scope_close(&scope);
    return mu_error_code();
}

static mu_status stopping_begin(const mu_logs *logs, void *arg)
{
    (void)logs;
    stopping *state = ((const mu_callback *)arg)->state;
    forget_weights(state);
    *state = (stopping){0};
    return MU_OK;
}

static mu_status stopping_epoch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const mu_early_stopping_args *args = callback->args;
    stopping *state = callback->state;
    double value;
    const bool maximized = mu__is_maximized(logs->model, args->monitor, args->mode);
    if (!mu__logged(logs, args->monitor, &value) || logs->epoch < args->start_from_epoch)
        return MU_OK;
    const bool better = mu__improved(&state->watched, value, maximized, args->min_delta);
    state->waited++;
    if (better || (args->restore_best_weights && !state->best))
        state->best_epoch = logs->epoch;
    if (args->restore_best_weights && (better || !state->best))
        MU_TRY(keep_weights(state, logs->model));
    if (better && (isnan(args->baseline) || is_better(value, args->baseline, maximized, args->min_delta)))
        state->waited = 0;
    if (!better && state->waited >= args->patience && logs->epoch > 0) {
        state->stopped_epoch = logs->epoch;
        mu_stop_training(logs->model);
    }
    return MU_OK;
}

static mu_status stopping_end(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const mu_early_stopping_args *args = callback->args;
    stopping *state = callback->state;
    if (args->verbose && state->stopped_epoch > 0)
        mu__callback_say(logs, "Epoch %d: early stopping\n", state->stopped_epoch + 1);
    if (args->verbose && state->n > 0)
        mu__callback_say(logs, "Restoring model weights from the end of the best epoch: %d.\n", state->best_epoch + 1);
    const mu_status status = state->n > 0 ? put_back(state, logs->model) : MU_OK;
    forget_weights(state);
    return status;
}

mu_callback *mu_early_stopping_with(const mu_early_stopping_args *given)
{
    static const mu_callback_class class = {
        .class = {"early_stopping", "EarlyStopping", "mu_early_stopping", MU_OPTIONS(mu_early_stopping_args),
                  stopping_fields, stopping_complete},
        .state_bytes = sizeof(stopping),
        .on_destroy = forget_weights,
        .hooks = {.on_train_begin = stopping_begin, .on_epoch_end = stopping_epoch, .on_train_end = stopping_end}};
    mu_callback *callback = mu__callback_of_class(&class, given);
    if (callback)
        callback->monitor = ((const mu_early_stopping_args *)callback->args)->monitor;
    return callback;
}

// ---- The learning rate on a plateau -------------------------------------------------------------

static const mu_field plateau_fields[] = {
    MU_FIELD(mu_reduce_lr_on_plateau_args, monitor, TEXT),
    MU_FIELD(mu_reduce_lr_on_plateau_args, factor, DOUBLE, .limit = MU_BELOW_ONE, .number = .1),
    MU_FIELD(mu_reduce_lr_on_plateau_args, patience, INT, .limit = MU_NOT_NEGATIVE, .number = 10),
    MU_FIELD(mu_reduce_lr_on_plateau_args, mode, CHOICE, .text = "auto", .choices = mu__monitor_modes),
    MU_FIELD(mu_reduce_lr_on_plateau_args, min_delta, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-4),
    MU_FIELD(mu_reduce_lr_on_plateau_args, cooldown, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_reduce_lr_on_plateau_args, min_lr, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_reduce_lr_on_plateau_args, verbose, FLAG),
    {0},
};

typedef struct plateau {
    mu_watched watched;
    int waited, cooldown;
} plateau;

static mu_status plateau_complete(void *arguments)
{
    mu_reduce_lr_on_plateau_args *args = arguments;
    args->monitor = args->monitor ? args->monitor : "val_loss";
    return MU_OK;
}

static mu_status plateau_begin(const mu_logs *logs, void *arg)
{
    (void)logs;
    *(plateau *)((const mu_callback *)arg)->state = (plateau){0};
    return MU_OK;
}

// Reduces the learning rate if it is above the least.
static mu_status reduce(plateau *state, const mu_reduce_lr_on_plateau_args *args, const mu_logs *logs)
{
    double rate;
    char text[32];
    MU_TRY(mu__learning_rate_read(logs->model, &rate));
    if (rate <= fmax(args->min_lr, (double)(float)args->min_lr)) // a rate in float32 may be min_lr rounded up
        return MU_OK;
    state->cooldown = args->cooldown;
    state->waited = 0;
    const double reduced = fmax(rate * args->factor, args->min_lr);
    mu__number_text(reduced, sizeof text, text);
    if (args->verbose)
        mu__callback_say(logs, "Epoch %d: ReduceLROnPlateau reducing learning rate to %s.\n", logs->epoch + 1, text);
    return mu__learning_rate_write(logs->model, reduced);
}

static mu_status plateau_epoch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const mu_reduce_lr_on_plateau_args *args = callback->args;
    plateau *state = callback->state;
    double value;
    if (!mu__logged(logs, args->monitor, &value))
        return MU_OK;
    if (state->cooldown > 0) {
        state->cooldown--;
        state->waited = 0;
    }
    if (mu__improved(&state->watched, value, mu__is_maximized(logs->model, args->monitor, args->mode), args->min_delta))
        state->waited = 0;
    else if (state->cooldown == 0 && ++state->waited >= args->patience)
        return reduce(state, args, logs);
    return MU_OK;
}

mu_callback *mu_reduce_lr_on_plateau_with(const mu_reduce_lr_on_plateau_args *given)
{
    static const mu_callback_class class = {
        .class = {"reduce_lr_on_plateau", "ReduceLROnPlateau", "mu_reduce_lr_on_plateau",
                  MU_OPTIONS(mu_reduce_lr_on_plateau_args), plateau_fields, plateau_complete},
        .state_bytes = sizeof(plateau),
        .hooks = {.on_train_begin = plateau_begin, .on_epoch_end = plateau_epoch}};
    mu_callback *callback = mu__callback_of_class(&class, given);
    if (callback) {
        callback->monitor = ((const mu_reduce_lr_on_plateau_args *)callback->args)->monitor;
        callback->sets_rate = true;
    }
    return callback;
}
