// The callback mu_model_checkpoint: writes the model, or its weights, to files whose names have values of the history.
//
// A path that ends with .keras is one of whole models, as in Keras; other formats hold weights. Whatever can be checked
// without a value of training (the names and formats in braces, whether the file can hold the model) is checked when
// training begins, so that no epoch is lost by a mistake.
#include "model/callbacks/callback_class.h"

#include "io/io.h"
#include "model/files/checkpoint.h"
#include "model/files/keras_names.h"
#include "model/metrics/metric.h"
#include "model/training/pass.h"
#include "model/training/training.h"

#include "base/directory.h"

#include <math.h>
#include <muster/checkpoint.h>
#include <muster/saved_model.h>
#include <stdlib.h>

static const mu_field checkpoint_fields[] = {
    MU_FIELD(mu_model_checkpoint_args, path, TEXT),
    MU_FIELD(mu_model_checkpoint_args, monitor, TEXT),
    MU_FIELD(mu_model_checkpoint_args, save_best_only, FLAG),
    MU_FIELD(mu_model_checkpoint_args, save_weights_only, FLAG),
    MU_FIELD(mu_model_checkpoint_args, mode, CHOICE, .text = "auto", .choices = mu__monitor_modes),
    MU_FIELD(mu_model_checkpoint_args, save_freq, INT64, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_model_checkpoint_args, initial_value_threshold, DOUBLE, .number = NAN),
    MU_FIELD(mu_model_checkpoint_args, verbose, FLAG),
    {0},
};

typedef struct checkpoint {
    mu_watched watched;
    mu_counted_steps counted; // since the last save
} checkpoint;

static bool holds_models(const char *path) { return mu__file_format_of(path) == &mu__keras_format; }

static mu_status checkpoint_complete(void *arguments)
{
    mu_model_checkpoint_args *args = arguments;
    if (!args->path || !*args->path)
        return mu__error(MU_INVALID_ARGUMENT, "mu_model_checkpoint: the path is %s; give a file's name",
                         args->path ? "empty" : "NULL");
    args->monitor = args->monitor ? args->monitor : "val_loss";
    if (args->save_weights_only && holds_models(args->path))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_model_checkpoint: '%s' is the name of a file of a whole model, and save_weights_only asks "
                         "for weights; end the name with .weights.h5 or .safetensors, or leave out save_weights_only",
                         args->path);
    if (args->save_best_only && args->save_freq > 0 && strncmp(args->monitor, "val_", 4) == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_model_checkpoint: monitor '%s' is known at the end of an epoch; leave out .save_freq, or "
                         "watch a value of training",
                         args->monitor);
    return MU_OK;
}

static mu_status bad_field(const char *path, const char *field, const mu_logs *logs)
{
    char known[512] = "";
    for (int i = 0; i < logs->n; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", logs->names[i]);
    }
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_model_checkpoint: the path '%s' has {%s}; expected one of epoch, batch (with .save_freq)%s, "
                     "and after a colon a format such as 02d or .3f",
                     path, field, known);
}

// Writes the value for "name:spec".
static mu_status put_field(const char *path, char *field, const mu_logs *logs, bool in_batch, size_t bytes, char *out)
{
    char *colon = strchr(field, ':');
    const char *spec = colon ? colon + 1 : "";
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(colon ? colon - field : (long)strlen(field)), field);
    const bool epoch = strcmp(name, "epoch") == 0, batch = in_batch && strcmp(name, "batch") == 0;
    double value = epoch ? logs->epoch + 1 : (double)logs->step;
    const bool found = epoch || batch || mu__logged(logs, name, &value);
    return found && mu__number_format(value, epoch || batch, spec, bytes, out) ? MU_OK : bad_field(path, field, logs);
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
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_model_checkpoint: the path '%.80s…' with its values has more than %zu characters", path,
                         bytes - 1);
    out[used] = '\0';
    return MU_OK;
}

bool mu__steps_are_due(mu_counted_steps *counted, const mu_logs *logs, int64_t freq)
{
    counted->n += logs->step - counted->last;
    counted->last = logs->step;
    const bool due = counted->n >= freq;
    counted->n = due ? 0 : counted->n;
    return due;
}

enum { PATH_BYTES = 4096 };

// Prints Keras's words about an epoch. Within an epoch the bar has not ended its line.
static void say(const mu_model_checkpoint_args *args, const mu_logs *logs, bool in_batch, const char *what,
                const char *path)
{
    char text[PATH_BYTES];
    snprintf(text, sizeof text, "%s", path);
    mu__printable(text, false);
    if (args->verbose)
        mu__callback_say(logs, "%sEpoch %d: %s%s\n", in_batch ? "\n" : "", logs->epoch + 1, what, text);
}

// Whether the logged value is the best so far.
static bool is_best(const mu_callback *callback, const mu_logs *logs, bool in_batch, const char *path)
{
    const mu_model_checkpoint_args *args = callback->args;
    mu_watched *watched = &((checkpoint *)callback->state)->watched;
    const mu_watched before = *watched;
    char what[256], best[32] = "None";
    double value = NAN;
    mu__logged(logs, args->monitor, &value);
    const bool better = mu__improved(watched, value, mu__is_maximized(logs->model, args->monitor, args->mode), 0);
    if (before.seen)
        snprintf(best, sizeof best, "%.5f", before.best);
    if (better)
        snprintf(what, sizeof what, "%s improved from %s to %.5f, saving model to ", args->monitor, best, value);
    else
        snprintf(what, sizeof what, "%s did not improve from %s", args->monitor, best);
    say(args, logs, in_batch, what, better ? path : "");
    return better;
}

// Whether to save now, by the options.
static bool is_wanted(const mu_callback *callback, const mu_logs *logs, bool in_batch, const char *path)
{
    const mu_model_checkpoint_args *args = callback->args;
    if (args->save_best_only)
        return is_best(callback, logs, in_batch, path);
    say(args, logs, in_batch, "saving model to ", path);
    return true;
}

static mu_status save(const mu_callback *callback, const mu_logs *logs, bool in_batch)
{
    const mu_model_checkpoint_args *args = callback->args;
    char path[PATH_BYTES];
    double value;
    // An epoch without the value is not the best: Keras warns and overwrites the best file.
    if (args->save_best_only && !mu__logged(logs, args->monitor, &value))
        return MU_OK;
    MU_TRY(format_path(args->path, logs, in_batch, sizeof path, path));
    if (!is_wanted(callback, logs, in_batch, path))
        return MU_OK;
    char *slash = strrchr(path, '/');
    if (slash && slash != path) {
        *slash = '\0';
        MU_TRY(mu__directory_make(path));
        *slash = '/';
    }
    MU_TRY(holds_models(path) ? mu_save_model(logs->model, path) : mu_save_weights(logs->model, path));
    say(args, logs, in_batch, "finished saving model to ", path);
    return MU_OK;
}

// Whether files can be written as the path says, with every value 0. That a callback sets the learning rate, if the
// path has it, has been checked before training (hooks.c).
static mu_status check_files(const mu_model_checkpoint_args *args, mu_model *model)
{
    static const double zeros[2 * MU_MAX_LOGS + 1];
    char labels[2 * MU_MAX_LOGS][72], path[PATH_BYTES];
    const char *names[2 * MU_MAX_LOGS + 1];
    mu_logs logs = {.model = model, .names = names, .values = zeros};
    for (int i = 0; i < model->trainer->n_metrics; i++)
        for (int of_validation = 0; of_validation < (args->save_freq > 0 ? 1 : 2); of_validation++) {
            snprintf(labels[logs.n], sizeof labels[0], "%s%s", of_validation ? "val_" : "",
                     mu__metric_label(model->trainer->metrics[i]));
            names[logs.n] = labels[logs.n];
            logs.n++;
        }
    if (args->save_freq == 0)
        names[logs.n++] = MU_RATE_LOG;
    MU_TRY(format_path(args->path, &logs, args->save_freq > 0, sizeof path, path));
    return holds_models(path) ? mu__model_check_config(model, "mu_model_checkpoint") : MU_OK;
}

static mu_status checkpoint_begin(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const double threshold = ((const mu_model_checkpoint_args *)callback->args)->initial_value_threshold;
    checkpoint *state = callback->state;
    if (!state->watched.seen) // a second fit continues from the best of the first, and counts its steps on
        state->watched = (mu_watched){.best = threshold, .seen = !isnan(threshold)};
    return check_files(callback->args, logs->model);
}

static mu_status checkpoint_epoch_begin(const mu_logs *logs, void *arg)
{
    ((checkpoint *)((const mu_callback *)arg)->state)->counted.last = logs->step;
    return MU_OK;
}

static mu_status checkpoint_batch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    checkpoint *state = callback->state;
    const int64_t save_freq = ((const mu_model_checkpoint_args *)callback->args)->save_freq;
    return mu__steps_are_due(&state->counted, logs, save_freq) ? save(callback, logs, true) : MU_OK;
}

static mu_status checkpoint_epoch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const bool wanted = ((const mu_model_checkpoint_args *)callback->args)->save_freq == 0;
    return wanted ? save(callback, logs, false) : MU_OK;
}

mu_callback *mu_model_checkpoint_with(const mu_model_checkpoint_args *given)
{
    static const mu_callback_class class = {.class = {"model_checkpoint", "ModelCheckpoint", "mu_model_checkpoint",
                                                      MU_OPTIONS(mu_model_checkpoint_args), checkpoint_fields,
                                                      checkpoint_complete},
                                            .state_bytes = sizeof(checkpoint),
                                            .hooks = {.on_train_begin = checkpoint_begin,
                                                      .on_epoch_begin = checkpoint_epoch_begin,
                                                      .on_batch_end = checkpoint_batch,
                                                      .on_epoch_end = checkpoint_epoch}};
    mu_callback *callback = mu__callback_of_class(&class, given);
    if (!callback)
        return NULL;
    const mu_model_checkpoint_args *args = callback->args;
    callback->monitor = args->save_best_only ? args->monitor : NULL;
    callback->path = args->path;
    if (args->save_freq == 0)
        callback->hooks.on_batch_end = NULL; // callbacks that see each step make steps wait for each other
    return callback;
}
