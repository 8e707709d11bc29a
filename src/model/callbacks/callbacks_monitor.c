// Callbacks that watch a value: model checkpoint, early stopping, reducing the learning rate on a plateau.
//
// Rules and defaults are Keras's; which direction is better follows from the metric's class.
#include "model/callbacks/callback.h"

#include "model/files/checkpoint.h"
#include "model/metrics/metric.h"
#include "model/training/training.h"

#include <ctype.h>
#include <math.h>
#include <muster/checkpoint.h>
#include <stdlib.h>

// ---- The watched value --------------------------------------------------------------------------

static const char *const modes[] = {"auto", "min", "max", NULL};

typedef struct monitor {
    double best;
    bool seen;  // `best` is a value to improve on
} monitor;

// Whether larger values are better.
static bool is_maximized(const mu_model *model, const char *name, const char *mode)
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

static bool is_better(double value, double reference, bool maximized, double min_delta)
{
    return maximized ? value - min_delta > reference : value + min_delta < reference;
}

// Whether the value is the best so far, which it then is from now on. NaN is never an improvement.
static bool improved(monitor *m, double value, bool maximized, double min_delta)
{
    if (isnan(value) || (m->seen && !is_better(value, m->best, maximized, min_delta)))
        return false;
    *m = (monitor){.best = value, .seen = true};
    return true;
}

// ---- Model checkpoint ---------------------------------------------------------------------------

static const mu_field checkpoint_fields[] = {
    MU_FIELD(mu_model_checkpoint_args, path, TEXT),
    MU_FIELD(mu_model_checkpoint_args, monitor, TEXT),
    MU_FIELD(mu_model_checkpoint_args, save_best_only, FLAG),
    MU_FIELD(mu_model_checkpoint_args, mode, WORD, .text = "auto", .words = modes),
    MU_FIELD(mu_model_checkpoint_args, save_freq, INT64, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_model_checkpoint_args, initial_value_threshold, DOUBLE, .number = NAN),
    {0},
};

typedef struct checkpoint {
    monitor monitor;
    int64_t steps;  // since the last save
} checkpoint;

static mu_status checkpoint_complete(void *arguments)
{
    mu_model_checkpoint_args *args = arguments;
    if (!args->path || !*args->path)
        return mu__error(MU_INVALID_ARGUMENT, "mu_model_checkpoint: the path is %s; give a file's name",
                         args->path ? "empty" : "NULL");
    args->monitor = args->monitor ? args->monitor : "val_loss";
    if (args->save_best_only && args->save_freq > 0 && strncmp(args->monitor, "val_", 4) == 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_model_checkpoint: monitor '%s' is known at the end of an epoch; "
                         "leave out .save_freq, or watch a value of training", args->monitor);
    return MU_OK;
}

void mu__number_text(double value, size_t bytes, char *text)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value || isnan(value))
            break;
    }
    if (isfinite(value) && !strpbrk(text, ".e"))
        strncat(text, ".0", bytes - strlen(text) - 1);
}

// Writes a value as Python's format() does for specifications such as "", "02d", ".3f", "8.2e".
static bool format_value(double value, bool whole, const char *spec, size_t bytes, char *out)
{
    char form[24];
    const size_t n = strlen(spec), digits = strspn(spec, "0123456789.");
    const char kind = n > 0 ? spec[n - 1] : '\0';
    if (n == 0 && !whole)
        mu__number_text(value, bytes, out);
    else if ((n == 0 || (kind == 'd' && digits == n - 1 && !strchr(spec, '.'))) && whole && n < 8) {
        snprintf(form, sizeof form, "%%%.*slld", (int)(n ? n - 1 : 0), spec);
        snprintf(out, bytes, form, (long long)value);
    } else if (n > 0 && n < 8 && strchr("feg", kind) && digits == n - 1 && strspn(spec, "0123456789") <= 4) {
        snprintf(form, sizeof form, "%%%s", spec);
        snprintf(out, bytes, form, value);
    } else {
        return false;
    }
    return true;
}

static mu_status bad_field(const char *path, const char *field, const mu_logs *logs)
{
    char known[512] = "";
    for (int i = 0; i < logs->n; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", logs->names[i]);
    }
    return mu__error(MU_INVALID_ARGUMENT, "mu_model_checkpoint: the path '%s' has {%s}; expected one of epoch, batch "
                     "(with .save_freq)%s, and after a colon a format such as 02d or .3f", path, field, known);
}

// Writes the value that "name:spec" stands for.
static mu_status put_field(const char *path, char *field, const mu_logs *logs, bool in_batch, size_t bytes, char *out)
{
    char *colon = strchr(field, ':');
    const char *spec = colon ? colon + 1 : "";
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(colon ? colon - field : (long)strlen(field)), field);
    const bool epoch = strcmp(name, "epoch") == 0, batch = in_batch && strcmp(name, "batch") == 0;
    bool found = epoch || batch;
    for (int i = 0; i < logs->n; i++)
        found |= strcmp(logs->names[i], name) == 0;
    const double value = epoch ? logs->epoch + 1 : batch ? (double)logs->step : mu__logged(logs, name);
    return found && format_value(value, epoch || batch, spec, bytes, out) ? MU_OK : bad_field(path, field, logs);
}

// The path with its values; "{{" is a brace.
static mu_status format_path(const char *path, const mu_logs *logs, bool in_batch, size_t bytes, char *out)
{
    size_t used = 0;
    for (const char *at = path; *at && used + 1 < bytes; at++) {
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        char field[64];
        out[used] = '\0';
        if ((*at == '{' || *at == '}') && at[1] == *at) {
            out[used++] = *at++;
        } else if (end && (size_t)(end - at) < sizeof field) {
            snprintf(field, sizeof field, "%.*s", (int)(end - at - 1), at + 1);
            MU_TRY(put_field(path, field, logs, in_batch, bytes - used, out + used));
            used += strlen(out + used);
            at = end;
        } else {
            out[used++] = *at;
        }
    }
    if (used + 1 >= bytes)
        return mu__error(MU_INVALID_ARGUMENT, "mu_model_checkpoint: the path '%.80s…' with its values has more than "
                         "%zu characters", path, bytes - 1);
    out[used] = '\0';
    return MU_OK;
}

static mu_status save_weights(const mu_callback *callback, const mu_logs *logs, bool in_batch)
{
    const mu_model_checkpoint_args *args = callback->args;
    checkpoint *state = callback->state;
    char path[4096];
    if (args->save_best_only && !improved(&state->monitor, mu__logged(logs, args->monitor),
                                          is_maximized(logs->model, args->monitor, args->mode), 0))
        return MU_OK;
    MU_TRY(format_path(args->path, logs, in_batch, sizeof path, path));
    char *slash = strrchr(path, '/');
    if (slash && slash != path) {
        *slash = '\0';
        MU_TRY(mu__directory_make(path));
        *slash = '/';
    }
    return mu_save_weights(logs->model, path);
}

static mu_status checkpoint_begin(const mu_logs *logs, void *arg)
{
    (void)logs;
    const mu_callback *callback = arg;
    const double threshold = ((const mu_model_checkpoint_args *)callback->args)->initial_value_threshold;
    checkpoint *state = callback->state;
    state->steps = 0;
    if (!state->monitor.seen)  // a second fit continues from the best of the first
        state->monitor = (monitor){.best = threshold, .seen = !isnan(threshold)};
    return MU_OK;
}

static mu_status checkpoint_batch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    checkpoint *state = callback->state;
    if (++state->steps < ((const mu_model_checkpoint_args *)callback->args)->save_freq)
        return MU_OK;
    state->steps = 0;
    return save_weights(callback, logs, true);
}

static mu_status checkpoint_epoch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const bool wanted = ((const mu_model_checkpoint_args *)callback->args)->save_freq == 0;
    return wanted ? save_weights(callback, logs, false) : MU_OK;
}

mu_callback *mu_model_checkpoint_with(const mu_model_checkpoint_args *given)
{
    static const mu_callback_class class = {
        .class = {"model_checkpoint", "ModelCheckpoint", "mu_model_checkpoint", MU_OPTIONS(mu_model_checkpoint_args),
                  checkpoint_fields, checkpoint_complete},
        .state_bytes = sizeof(checkpoint),
        .hooks = {.on_train_begin = checkpoint_begin, .on_batch_end = checkpoint_batch,
                  .on_epoch_end = checkpoint_epoch}};
    mu_callback *callback = mu__callback_of_class(&class, given);
    if (!callback)
        return NULL;
    const mu_model_checkpoint_args *args = callback->args;
    callback->monitor = args->save_best_only ? args->monitor : NULL;
    callback->path = args->path;
    if (args->save_freq == 0)
        callback->hooks.on_batch_end = NULL;  // callbacks that see each step make steps wait for each other
    return callback;
}

// ---- Early stopping -----------------------------------------------------------------------------

static const mu_field stopping_fields[] = {
    MU_FIELD(mu_early_stopping_args, monitor, TEXT),
    MU_FIELD(mu_early_stopping_args, min_delta, DOUBLE, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_early_stopping_args, patience, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_early_stopping_args, mode, WORD, .text = "auto", .words = modes),
    MU_FIELD(mu_early_stopping_args, baseline, DOUBLE, .number = NAN),
    MU_FIELD(mu_early_stopping_args, restore_best_weights, FLAG),
    MU_FIELD(mu_early_stopping_args, start_from_epoch, INT, .limit = MU_NOT_NEGATIVE),
    {0},
};

typedef struct stopping {
    monitor monitor;
    int waited;
    int n;              // of the best weights; 0: there are none yet
    mu_tensor **best;   // retained
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
    const double value = mu__logged(logs, args->monitor);
    const bool maximized = is_maximized(logs->model, args->monitor, args->mode);
    if (logs->epoch < args->start_from_epoch)
        return MU_OK;
    const bool better = improved(&state->monitor, value, maximized, args->min_delta);
    state->waited++;
    if (args->restore_best_weights && (better || !state->best))
        MU_TRY(keep_weights(state, logs->model));
    if (better && (isnan(args->baseline) || is_better(value, args->baseline, maximized, args->min_delta)))
        state->waited = 0;
    if (!better && state->waited >= args->patience && logs->epoch > 0)
        mu_stop_training(logs->model);
    return MU_OK;
}

static mu_status stopping_end(const mu_logs *logs, void *arg)
{
    stopping *state = ((const mu_callback *)arg)->state;
    const mu_status status = state->n > 0 ? put_back(state, logs->model) : MU_OK;
    forget_weights(state);
    return status;
}

mu_callback *mu_early_stopping_with(const mu_early_stopping_args *given)
{
    static const mu_callback_class class = {
        .class = {"early_stopping", "EarlyStopping", "mu_early_stopping", MU_OPTIONS(mu_early_stopping_args),
                  stopping_fields, stopping_complete},
        .state_bytes = sizeof(stopping), .on_destroy = forget_weights,
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
    MU_FIELD(mu_reduce_lr_on_plateau_args, mode, WORD, .text = "auto", .words = modes),
    MU_FIELD(mu_reduce_lr_on_plateau_args, min_delta, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-4),
    MU_FIELD(mu_reduce_lr_on_plateau_args, cooldown, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_reduce_lr_on_plateau_args, min_lr, DOUBLE, .limit = MU_NOT_NEGATIVE),
    {0},
};

typedef struct plateau {
    monitor monitor;
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
static mu_status reduce(plateau *state, const mu_reduce_lr_on_plateau_args *args, const mu_model *model)
{
    double rate;
    MU_TRY(mu__learning_rate_read(model, &rate));
    if (rate <= args->min_lr)
        return MU_OK;
    state->cooldown = args->cooldown;
    state->waited = 0;
    return mu__learning_rate_write(model, fmax(rate * args->factor, args->min_lr));
}

static mu_status plateau_epoch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const mu_reduce_lr_on_plateau_args *args = callback->args;
    plateau *state = callback->state;
    if (state->cooldown > 0) {
        state->cooldown--;
        state->waited = 0;
    }
    if (improved(&state->monitor, mu__logged(logs, args->monitor),
                 is_maximized(logs->model, args->monitor, args->mode), args->min_delta))
        state->waited = 0;
    else if (state->cooldown == 0 && ++state->waited >= args->patience)
        return reduce(state, args, logs->model);
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
    if (callback)
        callback->monitor = ((const mu_reduce_lr_on_plateau_args *)callback->args)->monitor;
    return callback;
}
