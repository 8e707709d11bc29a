// Calls the hooks of fit's callbacks, and checks their arguments before training.
#include "model/model.h"

static bool is_end(mu_callback *const *callbacks, int i)
{
    return !callbacks || (const void *)callbacks[i] == MU_END;
}

// ---- Before training ----------------------------------------------------------------------------

static bool is_logged(const mu_model *model, const char *name, bool validates)
{
    static const char prefix[] = "val_";
    const bool of_validation = strncmp(name, prefix, sizeof prefix - 1) == 0;
    for (int i = 0; i < model->trainer->n_metrics; i++)
        if (strcmp(name + (of_validation ? sizeof prefix - 1 : 0), model->trainer->metrics[i]->name) == 0)
            return !of_validation || validates;
    return false;
}

// "'loss', 'accuracy'": what is logged without validation.
static void list_logged(const mu_model *model, size_t bytes, char *text)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < model->trainer->n_metrics && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s'%s'", i ? ", " : "", model->trainer->metrics[i]->name);
}

static mu_status not_logged(const mu_model *model, int i, const char *monitor)
{
    char logged[512];
    list_logged(model, sizeof logged, logged);
    if (is_logged(model, monitor, true))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_fit: callback %d watches '%s', which is not logged without .validation_data; give that to "
                         "mu_fit, or one of %s as .monitor to the callback",
                         i, monitor, logged);
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_fit: callback %d watches '%s', which is not logged; logged are %s, and with "
                     ".validation_data the "
                     "same with the prefix 'val_'. Give one of them as .monitor, or the metric to mu_compile",
                     i, monitor, logged);
}

mu_status mu__check_callbacks(mu_callback *const *callbacks, const mu_model *model, bool validates)
{
    for (int i = 0; !is_end(callbacks, i); i++) {
        if (!callbacks[i])
            return mu__error(MU_INVALID_ARGUMENT, "mu_fit: callback %d is NULL; give what mu_callback_new and its like "
                             "returned", i);
        if (callbacks[i]->monitor && !is_logged(model, callbacks[i]->monitor, validates))
            return not_logged(model, i, callbacks[i]->monitor);
    }
    return MU_OK;
}

bool mu__watches_batches(mu_callback *const *callbacks)
{
    for (int i = 0; !is_end(callbacks, i); i++)
        if (callbacks[i]->hooks.on_batch_end)
            return true;
    return false;
}

// ---- While training -----------------------------------------------------------------------------

static mu_status call_one(const mu_callback *callback, int i, mu_hook which, const mu_logs *logs)
{
    static const char *const names[] = {"on_train_begin", "on_epoch_begin", "on_batch_end", "on_epoch_end",
                                        "on_train_end"};
    const mu_callback_args *h = &callback->hooks;
    mu_status (*const hooks[])(const mu_logs *, void *) = {h->on_train_begin, h->on_epoch_begin, h->on_batch_end,
                                                           h->on_epoch_end, h->on_train_end};
    if (!hooks[which])
        return MU_OK;
    mu__model_callback_begin(logs->model);
    const mu_status status = hooks[which](logs, h->arg);
    mu__model_callback_end(logs->model);
    if (mu__pending() || status == MU_OK)
        return mu_error_code();
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_fit: %s of callback %d returned %d (%s) without an error; to end the training with one return "
                     "mu_fail(code, reason), to end it without one call mu_stop_training and return MU_OK",
                     names[which], i, (int)status, mu_status_name(status));
}

mu_status mu__call_hooks(mu_callback *const *callbacks, mu_hook which, const mu_logs *logs)
{
    for (int i = 0; !is_end(callbacks, i); i++)
        MU_TRY(call_one(callbacks[i], i, which, logs));
    return MU_OK;
}
