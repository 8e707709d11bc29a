// The result of a call on a worker: see remote_value.h.
#include "coordinator/remote_value.h"

static void remote_value_destroy(void *object)
{
    mu_remote_value *value = object;
    mu_release(value->result);
    mu__monitor_free(&value->monitor);
}

mu_type mu__remote_value_type = {.name = "remote value", .destroy = remote_value_destroy};

mu_remote_value *mu__remote_value_new(void)
{
    mu_remote_value *value = mu__new(&mu__remote_value_type, sizeof *value);
    if (value && mu__monitor_init(&value->monitor, "remote value") == MU_OK)
        return value;
    mu_release(value);
    return NULL;
}

static void settle(mu_remote_value *value, mu_remote_state state, void *result, const mu_error_value *error)
{
    mu_object *old = NULL;
    pthread_mutex_lock(&value->monitor.lock);
    if (value->state != MU_REMOTE_READY || state == MU_REMOTE_ABORTED) {
        old = value->result;
        value->state = state;
        value->result = mu_retain(result);
        value->error = error ? *error : (mu_error_value){0};
        pthread_cond_broadcast(&value->monitor.changed);
    }
    pthread_mutex_unlock(&value->monitor.lock);
    mu_release(old); // its destructor may take time
}

void mu__remote_value_set(mu_remote_value *value, void *result) { settle(value, MU_REMOTE_READY, result, NULL); }

void mu__remote_value_fail(mu_remote_value *value, const mu_error_value *error)
{
    settle(value, MU_REMOTE_READY, NULL, error);
}

void mu__remote_value_abort(mu_remote_value *value, const mu_error_value *error)
{
    settle(value, MU_REMOTE_ABORTED, NULL, error);
}

// Called with the lock held.
static mu_status outcome(const mu_remote_value *value)
{
    if (value->state == MU_REMOTE_NOT_READY)
        return mu__error(MU_DEADLINE_EXCEEDED, "the call whose result is fetched has not ended in time; wait longer, "
                                               "or see whether its worker still runs");
    if (value->state == MU_REMOTE_ABORTED)
        return mu__error(MU_CANCELLED, "the result was lost with its worker: %s", value->error.message);
    return mu__error_raise(&value->error);
}

void *mu__remote_value_take(mu_remote_value *value, int64_t deadline_ns)
{
    mu_status status = MU_OK;
    void *result = NULL;
    pthread_mutex_lock(&value->monitor.lock);
    while (value->state == MU_REMOTE_NOT_READY && status == MU_OK && mu__monitor_wait(&value->monitor, deadline_ns))
        status = mu__check_stop();
    if (status == MU_OK && outcome(value) == MU_OK)
        result = mu_retain(value->result);
    pthread_mutex_unlock(&value->monitor.lock);
    return result;
}

mu_remote_state mu__remote_value_state(mu_remote_value *value)
{
    pthread_mutex_lock(&value->monitor.lock);
    const mu_remote_state state = value->state;
    pthread_mutex_unlock(&value->monitor.lock);
    return state;
}
