// Calls the hooks of fit's callbacks, and checks their arguments before training.
#include "model/callbacks/callback_class.h"
#include "model/metrics/metric.h"
#include "model/optimizers/optimizer.h"
#include "model/training/hooks.h"
#include "model/training/pass.h"
#include "model/training/training.h"

static bool is_end(mu_callback *const *callbacks, int i) { return !callbacks || (const void *)callbacks[i] == MU_END; }

// ---- Before training ----------------------------------------------------------------------------

static bool is_logged(const mu_model *model, mu_callback *const *callbacks, const char *name, bool validates)
{
    static const char prefix[] = "val_";
    if (strcmp(name, MU_RATE_LOG) == 0 && mu__hooks_set_rate(callbacks))
        return true;
    const bool of_validation = strncmp(name, prefix, sizeof prefix - 1) == 0;
    for (int i = 0; i < model->trainer->n_metrics; i++)
        if (strcmp(name + (of_validation ? sizeof prefix - 1 : 0), mu__metric_label(model->trainer->metrics[i])) == 0)
            return !of_validation || validates;
    return false;
}

// "'loss', 'accuracy', 'learning_rate'": what is logged without validation; `callbacks` NULL: the metrics alone.
static void list_logged(const mu_model *model, mu_callback *const *callbacks, size_t bytes, char *text)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < model->trainer->n_metrics && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s'%s'", i ? ", " : "",
                                 mu__metric_label(model->trainer->metrics[i]));
    if (mu__hooks_set_rate(callbacks) && used < bytes)
        snprintf(text + used, bytes - used, "%s'%s'", used ? ", " : "", MU_RATE_LOG);
}

static mu_status not_logged(const mu_model *model, mu_callback *const *callbacks, int i, const char *monitor)
{
    char logged[512];
    const bool with_validation = is_logged(model, callbacks, monitor, true);
    list_logged(model, with_validation ? callbacks : NULL, sizeof logged, logged);
    if (with_validation)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_fit: callback %d watches '%s', which is not logged without .validation_data; give that to "
                         "mu_fit, or one of %s as .monitor to the callback",
                         i, monitor, logged);
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_fit: callback %d watches '%s', which is not logged; logged are %s, and with .validation_data "
                     "the same with the prefix 'val_'%s. Give one of them as .monitor, or the metric to mu_compile",
                     i, monitor, logged, mu__hooks_set_rate(callbacks) ? "; and '" MU_RATE_LOG "'" : "");
}

static const char *missing_validation(mu_validates validates)
{
    return validates == MU_VALIDATES_NEVER
               ? " without .validation_data"
               : " after an epoch without validation; validate after each, or give the callback .save_best_only";
}

// The names in braces in a callback's path; "{{" is a brace. What follows a colon is checked by the callback, when
// training begins.
static mu_status check_path(const mu_model *model, mu_callback *const *callbacks, int i, mu_validates validates)
{
    const char *path = callbacks[i]->path;
    const bool always = validates == MU_VALIDATES_EACH_EPOCH;
    char logged[512], name[64];
    for (const char *at = strchr(path, '{'); at; at = strchr(at, '{')) {
        const size_t n = strcspn(at + 1, ":}");
        snprintf(name, sizeof name, "%.*s", (int)n, at + 1);
        if (at[1] == '{') {
            at += 2;
            continue;
        }
        at++;
        if (at[n] == '\0' || strcmp(name, "epoch") == 0 || strcmp(name, "batch") == 0 ||
            is_logged(model, callbacks, name, always))
            continue;
        list_logged(model, callbacks, sizeof logged, logged);
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_fit: the path '%s' of callback %d has {%s}, which is not logged%s; expected 'epoch', "
                         "'batch', or one of %s",
                         path, i, name, is_logged(model, callbacks, name, true) ? missing_validation(validates) : "",
                         logged);
    }
    return MU_OK;
}

mu_status mu__need_callbacks(mu_callback *const *callbacks, const char *function)
{
    for (int i = 0; !is_end(callbacks, i); i++)
        if (!callbacks[i])
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: callback %d is NULL; give what mu_callback_new and its like returned", function, i);
    return MU_OK;
}

// Whether the callback acts only on epochs that have a value of validation.
static bool waits_for_validation(const mu_callback *callback, mu_validates validates)
{
    return validates != MU_VALIDATES_NEVER && callback->monitor && strncmp(callback->monitor, "val_", 4) == 0;
}

// A callback that sets the learning rate may do so after many epochs: whether it can is found out before.
static mu_status check_rate(const mu_model *model, int i)
{
    const mu_optimizer *optimizer = model->trainer->optimizer;
    if (!optimizer)
        return mu__error(MU_FAILED_PRECONDITION,
                         "mu_fit: callback %d sets the learning rate, and the model was compiled without an optimizer; "
                         "give mu_compile one, or leave out the callback",
                         i);
    optimizer = optimizer->inner ? optimizer->inner : optimizer;
    if (!((const mu_optimizer_args *)optimizer->args)->schedule)
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "mu_fit: callback %d sets the learning rate, and '%s' follows a schedule; give the optimizer a "
                     ".learning_rate in its place, or leave out the callback",
                     i, mu__optimizer_name(optimizer));
}

mu_status mu__check_callbacks(mu_callback *const *callbacks, const mu_model *model, mu_validates validates)
{
    MU_TRY(mu__need_callbacks(callbacks, "mu_fit"));
    for (int i = 0; !is_end(callbacks, i); i++) {
        if (callbacks[i]->monitor &&
            !is_logged(model, callbacks, callbacks[i]->monitor, validates != MU_VALIDATES_NEVER))
            return not_logged(model, callbacks, i, callbacks[i]->monitor);
        if (callbacks[i]->sets_rate)
            MU_TRY(check_rate(model, i));
        if (callbacks[i]->path)
            MU_TRY(check_path(model, callbacks, i,
                              waits_for_validation(callbacks[i], validates) ? MU_VALIDATES_EACH_EPOCH : validates));
    }
    return MU_OK;
}

// ---- While training -----------------------------------------------------------------------------

typedef mu_status hook_function(const mu_logs *logs, void *arg);

// The names of the hooks, and where they are in a mu_callback_args.
#define HOOK(word)                              \
    {                                           \
#word, offsetof(mu_callback_args, word) \
    }
static const struct {
    const char *name;
    size_t offset;
} hooks[] = {
    [MU_HOOK_TRAIN_BEGIN] = HOOK(on_train_begin),
    [MU_HOOK_TRAIN_END] = HOOK(on_train_end),
    [MU_HOOK_EPOCH_BEGIN] = HOOK(on_epoch_begin),
    [MU_HOOK_EPOCH_END] = HOOK(on_epoch_end),
    [MU_HOOK_BATCH_BEGIN] = HOOK(on_batch_begin),
    [MU_HOOK_BATCH_END] = HOOK(on_batch_end),
    [MU_HOOK_TEST_BEGIN] = HOOK(on_test_begin),
    [MU_HOOK_TEST_END] = HOOK(on_test_end),
    [MU_HOOK_TEST_BATCH_BEGIN] = HOOK(on_test_batch_begin),
    [MU_HOOK_TEST_BATCH_END] = HOOK(on_test_batch_end),
    [MU_HOOK_PREDICT_BEGIN] = HOOK(on_predict_begin),
    [MU_HOOK_PREDICT_END] = HOOK(on_predict_end),
    [MU_HOOK_PREDICT_BATCH_BEGIN] = HOOK(on_predict_batch_begin),
    [MU_HOOK_PREDICT_BATCH_END] = HOOK(on_predict_batch_end),
};

static hook_function *hook_of(const mu_callback *callback, mu_hook which)
{
    hook_function *found;
    memcpy(&found, (const char *)&callback->hooks + hooks[which].offset, sizeof found);
    return found;
}

bool mu__watches(mu_callback *const *callbacks, mu_hook which)
{
    for (int i = 0; !is_end(callbacks, i); i++)
        if (hook_of(callbacks[i], which))
            return true;
    return false;
}

static mu_status call_one(const mu_callback *callback, int i, mu_hook which, const mu_logs *logs)
{
    hook_function *hook = hook_of(callback, which);
    const char *function = logs->model->trainer->use->function;
    if (!hook)
        return MU_OK;
    mu__model_callback_begin(logs->model);
    const mu_status status = hook(logs, callback->hooks.arg);
    mu__model_callback_end(logs->model);
    if (mu__pending() || status == MU_OK)
        return mu_error_code();
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: %s of callback %d returned %d (%s) without an error; to end the training with one return "
                     "mu_fail(code, reason), to end it without one call mu_stop_training and return MU_OK",
                     function, hooks[which].name, i, (int)status, mu_status_name(status));
}

bool mu__hooks_set_rate(mu_callback *const *callbacks)
{
    bool sets = false;
    for (int i = 0; !is_end(callbacks, i); i++)
        sets |= callbacks[i]->sets_rate;
    return sets;
}

mu_status mu__call_hooks(mu_callback *const *callbacks, mu_hook which, const mu_logs *logs)
{
    for (int i = 0; !is_end(callbacks, i); i++)
        MU_TRY(call_one(callbacks[i], i, which, logs));
    return MU_OK;
}
