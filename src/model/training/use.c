// Which call of fit, evaluate or predict uses a model.
//
// A callback of fit may evaluate, predict with or fit the same model, as in Keras: the inner call is nested in the
// outer one, which continues when it returns. They share weights, optimizer, metrics and mu_stop_training. Any other
// concurrent use of the model is an error.
#include "base/callback.h"
#include "model/training/training.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards every model's `use`; held briefly

static mu_status refuse(const mu_model_use *present, const char *function)
{
    if (!pthread_equal(present->thread, pthread_self()))
        return mu__error(MU_FAILED_PRECONDITION,
                         "%s: another thread is inside %s of the same model; one call at a time may use a model. Wait "
                         "until it has returned, or give this thread a model of its own",
                         function, present->function);
    return mu__error(MU_FAILED_PRECONDITION,
                     "%s is called while %s of the same model takes its data or runs a step; only a callback may do "
                     "that. Move the call into a callback such as on_epoch_end",
                     function, present->function);
}

mu_status mu__model_enter(mu_model *model, mu_model_use *use, const char *function)
{
    *use = (mu_model_use){.function = function, .thread = pthread_self()};
    pthread_mutex_lock(&lock);
    mu_model_use *present = model->trainer->use;
    const bool allowed = !present || (present->in_callback && pthread_equal(present->thread, use->thread));
    if (allowed) {
        use->outer = present;
        model->trainer->use = use;
    }
    pthread_mutex_unlock(&lock);
    return allowed ? MU_OK : refuse(present, function);
}

void mu__model_leave(mu_model *model)
{
    pthread_mutex_lock(&lock);
    model->trainer->use = model->trainer->use->outer;
    pthread_mutex_unlock(&lock);
}

mu_status mu__model_need_idle(const mu_model *model, const char *function)
{
    pthread_mutex_lock(&lock);
    const char *user = model->trainer->use ? model->trainer->use->function : NULL;
    pthread_mutex_unlock(&lock);
    return user ? mu__error(MU_FAILED_PRECONDITION, "%s: %s of the same model has not returned; call %s after it",
                            function, user, function)
                : MU_OK;
}

void mu__model_callback_begin(mu_model *model)
{
    mu_model_use *use = model->trainer->use;
    pthread_mutex_lock(&lock);
    use->in_callback = true;
    pthread_mutex_unlock(&lock);
    snprintf(use->callback, sizeof use->callback, "a callback of %s", use->function);
    use->callback_before = mu__callback_enter(use->callback);
}

void mu__model_callback_end(mu_model *model)
{
    mu__callback_leave(model->trainer->use->callback_before);
    pthread_mutex_lock(&lock);
    model->trainer->use->in_callback = false;
    pthread_mutex_unlock(&lock);
}
