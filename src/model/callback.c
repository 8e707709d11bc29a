// Callbacks of fit: the user's hooks, and the built-in callbacks made of the same hooks.
#include "model/model.h"

#include <math.h>

static void callback_destroy(void *object)
{
    mu__free(((mu_callback *)object)->state);
}

mu_type mu__callback_type = {.name = "callback", .destroy = callback_destroy};

mu_callback *mu_callback_new_with(const mu_callback_args *given)
{
    mu_callback_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_callback_new") != MU_OK)
        return NULL;
    mu_callback *callback = mu__new(&mu__callback_type, sizeof *callback);
    if (!callback)
        return NULL;
    callback->hooks = args;
    return mu__give(callback);
}

mu_callback *mu__callback_built_in(mu_callback_args hooks, void *state)
{
    hooks.size = sizeof hooks;
    hooks.arg = state;
    mu_callback *callback = state ? mu_callback_new_with(&hooks) : NULL;
    if (callback)
        callback->state = state;
    else
        mu__free(state);
    return callback;
}

void mu_stop_training(mu_model *model)
{
    if (model && model->trainer)
        model->trainer->stop = true;
}

// The watched value. Smaller is better, except for names that contain "accuracy".
typedef struct monitor {
    char name[64];
    double best;
    bool seen;
} monitor;

static double logged(const mu_logs *logs, const char *name)
{
    for (int i = 0; i < logs->n; i++)
        if (strcmp(logs->names[i], name) == 0)
            return logs->values[i];
    return NAN;
}

// Whether the watched value is the best so far. fit has checked that it is logged.
static bool improved(monitor *m, const mu_logs *logs, double min_delta)
{
    const double value = logged(logs, m->name);
    const double gain = strstr(m->name, "accuracy") ? value - m->best : m->best - value;
    const bool better = !isnan(value) && (!m->seen || gain > min_delta);
    if (better)
        m->best = value;
    m->seen |= better;
    return better;
}

// The name is stored in the callback's state.
static mu_callback *watching(mu_callback *callback, const char *name)
{
    if (callback)
        callback->monitor = name;
    return callback;
}

// ---- Model checkpoint ---------------------------------------------------------------------------

typedef struct checkpoint {
    monitor monitor;
    bool best_only;
    char path[];
} checkpoint;

static mu_status save_epoch(const mu_logs *logs, void *arg)
{
    checkpoint *state = arg;
    const bool wanted = !state->best_only || improved(&state->monitor, logs, 0);
    return wanted ? mu_save_weights(logs->model, state->path) : MU_OK;
}

mu_callback *mu_model_checkpoint_with(const mu_model_checkpoint_args *given)
{
    mu_model_checkpoint_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_model_checkpoint") != MU_OK)
        return NULL;
    if (!args.path) {
        mu__error(MU_INVALID_ARGUMENT, "mu_model_checkpoint: the path is NULL");
        return NULL;
    }
    checkpoint *state = mu__calloc(1, sizeof *state + strlen(args.path) + 1);
    if (!state)
        return NULL;
    strcpy(state->path, args.path);
    state->best_only = args.save_best_only;
    snprintf(state->monitor.name, sizeof state->monitor.name, "%s", args.monitor ? args.monitor : "val_loss");
    const char *watched = state->best_only ? state->monitor.name : NULL;
    return watching(mu__callback_built_in((mu_callback_args){.on_epoch_end = save_epoch}, state), watched);
}

// ---- Early stopping -----------------------------------------------------------------------------

typedef struct stopping {
    monitor monitor;
    double min_delta;
    int patience, waited;
} stopping;

static mu_status start_watching(const mu_logs *logs, void *arg)
{
    (void)logs;
    stopping *state = arg;
    state->waited = 0;
    state->monitor.seen = false;
    return MU_OK;
}

static mu_status watch_epoch(const mu_logs *logs, void *arg)
{
    stopping *state = arg;
    state->waited = improved(&state->monitor, logs, state->min_delta) ? 0 : state->waited + 1;
    if (state->waited > 0 && state->waited >= state->patience)
        mu_stop_training(logs->model);
    return MU_OK;
}

mu_callback *mu_early_stopping_with(const mu_early_stopping_args *given)
{
    mu_early_stopping_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_early_stopping") != MU_OK)
        return NULL;
    if (args.patience < 0 || !(args.min_delta >= 0)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_early_stopping: patience %d, min_delta %g; both must be 0 or more",
                  args.patience, args.min_delta);
        return NULL;
    }
    stopping *state = mu__calloc(1, sizeof *state);
    if (!state)
        return NULL;
    state->min_delta = args.min_delta;
    state->patience = args.patience;
    snprintf(state->monitor.name, sizeof state->monitor.name, "%s", args.monitor ? args.monitor : "val_loss");
    const char *watched = state->monitor.name;
    const mu_callback_args hooks = {.on_train_begin = start_watching, .on_epoch_end = watch_epoch};
    return watching(mu__callback_built_in(hooks, state), watched);
}
