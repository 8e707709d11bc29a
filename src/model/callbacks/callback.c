// Callbacks of fit: objects with hooks. Built-in callbacks (callbacks*.c) have options and a state as well.
#include "model/callbacks/callback_class.h"
#include "model/training/training.h"

#include <stdarg.h>
#include <stdio.h>

static void callback_destroy(void *object)
{
    mu_callback *callback = object;
    if (callback->state && callback->on_destroy)
        callback->on_destroy(callback->state);
    mu__free(callback->state);
    if (callback->class)
        mu__fields_drop(callback->class, callback->args);
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

mu_callback *mu__callback_of_class(const mu_callback_class *class, const void *given)
{
    void *filled = mu__pending() ? NULL : mu__alloc(class->class.args_bytes);
    mu_callback *callback = NULL;
    if (filled && mu__fields_fill(&class->class, filled, given) == MU_OK)
        callback = mu__new(&mu__callback_type, sizeof *callback);
    if (callback) {
        callback->hooks = class->hooks;
        callback->class = &class->class;
        callback->on_destroy = class->on_destroy;
        callback->args = mu__fields_keep(&class->class, filled);
        callback->state = mu__calloc(1, class->state_bytes);
        callback->hooks.arg = callback;
        callback = mu__give(callback);
    }
    const bool whole = callback && callback->args && callback->state;
    mu__free(filled);
    return whole ? callback : NULL;
}

bool mu__logged(const mu_logs *logs, const char *name, double *value)
{
    for (int i = 0; i < logs->n; i++)
        if (strcmp(logs->names[i], name) == 0) {
            *value = logs->values[i];
            return true;
        }
    return false;
}

void mu__callback_say(const mu_logs *logs, const char *format, ...)
{
    va_list rest;
    if (!mu_strategy_should_checkpoint(logs->model->strategy))
        return;
    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    fflush(stdout);
}

void mu_stop_training(mu_model *model)
{
    if (model && model->trainer)
        model->trainer->stop = true;
}
