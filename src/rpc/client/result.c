// The result of a call: waited for, read, cancelled.
#include "rpc/client/client.h"

#include <muster/cancellation.h>

static void result_destroy(void *object)
{
    mu_rpc_result *result = object;
    mu_release(result->reply);
    mu_release(result->value);
    mu_release(result->message);
    if (result->made > 1)
        pthread_cond_destroy(&result->changed);
    if (result->made > 0)
        pthread_mutex_destroy(&result->lock);
}

static mu_type result_type = {.name = "rpc result", .destroy = result_destroy};

mu_rpc_result *mu__result_new(mu_rpc_client *client, const char *method)
{
    mu_rpc_result *result = mu__new(&result_type, sizeof *result);
    if (result == NULL)
        return NULL;
    result->client = client;
    snprintf(result->method, sizeof result->method, "%s", method);
    result->made += pthread_mutex_init(&result->lock, NULL) == 0;
    result->made += result->made == 1 && mu__condition_init(&result->changed);
    if (result->made == 2)
        return result;
    mu__error(MU_RESOURCE_EXHAUSTED, "mu_rpc_call: the system cannot make a lock; free memory");
    mu_release(result);
    return NULL;
}

// With the result's lock held; the result has not ended.
static void end_now(mu_rpc_result *result, const mu_error_value *error, mu_message *reply, size_t offset)
{
    result->done = true;
    result->client = NULL;
    result->error = *error;
    result->reply = mu_retain(reply);
    result->offset = offset;
    mu__span_request("call", result->method, mu__request_of(result->id), result->begun_ns, mu__now_ns());
    pthread_cond_broadcast(&result->changed);
}

// Takes the result's lock, and returns whether the result has not ended yet.
static bool lock_open(mu_rpc_result *result)
{
    pthread_mutex_lock(&result->lock);
    return !result->done;
}

static void unlock_ended(mu_rpc_result *result, bool now)
{
    void (*ended)(void *arg) = now ? result->ended : NULL;
    pthread_mutex_unlock(&result->lock);
    if (ended != NULL)
        ended(result->ended_arg);
}

void mu__result_end(mu_rpc_result *result, const mu_error_value *error, mu_message *reply, size_t offset)
{
    const bool now = lock_open(result);
    if (now)
        end_now(result, error, reply, offset);
    unlock_ended(result, now);
}

bool mu__result_is_done(mu_rpc_result *result)
{
    pthread_mutex_lock(&result->lock);
    const bool done = result->done;
    pthread_mutex_unlock(&result->lock);
    return done;
}

// ---- Cancelling ---------------------------------------------------------------------------------

// The client's thread tells the server; the result's lock keeps the client alive meanwhile, and the server's answer to
// that away from the result.
static void end_cancelled(mu_rpc_result *result, const char *why)
{
    mu_error_value error = {.code = MU_CANCELLED, .file = __FILE__, .line = __LINE__};
    snprintf(error.message, sizeof error.message, "the call of \"%s\" was cancelled%s", result->method, why);
    const bool now = lock_open(result);
    if (now) {
        atomic_store(&result->cancelled, true);
        atomic_store(&result->client->cancels, true);
        mu__node_wake(&result->client->node);
        end_now(result, &error, NULL, 0);
    }
    unlock_ended(result, now);
}

mu_status mu_rpc_result_cancel(mu_rpc_result *result)
{
    MU_TRY(mu__need(result, "mu_rpc_result_cancel: the result"));
    end_cancelled(result, "");
    return MU_OK;
}

// ---- Waiting ------------------------------------------------------------------------------------

static void wake(void *arg)
{
    mu_rpc_result *result = arg;
    pthread_mutex_lock(&result->lock);
    pthread_cond_broadcast(&result->changed);
    pthread_mutex_unlock(&result->lock);
}

// Waits until `happened`, which the result's lock protects, or the cancellation. Returns whether a signal ended the
// wait. The client's thread ends the call at its deadline, so there is none here.
static bool wait_until(mu_rpc_result *result, const bool *happened, mu_cancellation *cancellation)
{
    mu_cancel_hook hook = {.wake = wake, .arg = result};
    mu_error_value before, stopped = {.code = MU_OK};
    mu__cancel_hook_add(cancellation, &hook);
    mu__error_move(&before);
    pthread_mutex_lock(&result->lock);
    while (!*happened && stopped.code == MU_OK && !mu_cancellation_is_cancelled(cancellation)) {
        mu__condition_wait(&result->changed, &result->lock, MU_FOREVER);
        if (mu__check_stop() != MU_OK)
            mu__error_move(&stopped);
    }
    pthread_mutex_unlock(&result->lock);
    mu__cancel_hook_remove(cancellation, &hook);
    mu__error_raise(&before);
    return stopped.code != MU_OK;
}

// Waits for the end; a signal or the thread's cancellation cancels the call.
static void wait_for_end(mu_rpc_result *result)
{
    mu_cancellation *cancellation = mu__context()->cancellation;
    const bool stopped = wait_until(result, &result->done, cancellation);
    if (stopped || mu_cancellation_is_cancelled(cancellation))
        end_cancelled(result, stopped ? " by a signal" : ", as was the thread that waits for it");
}

void mu__result_gone(mu_rpc_result *result)
{
    pthread_mutex_lock(&result->lock);
    result->gone = true;
    pthread_cond_broadcast(&result->changed);
    pthread_mutex_unlock(&result->lock);
}

void mu__result_settle(mu_rpc_result *result, mu_cancellation *leaves)
{
    end_cancelled(result, "");
    (void)wait_until(result, &result->gone, leaves);
}

bool mu_rpc_result_is_done(mu_rpc_result *result)
{
    return mu__need(result, "mu_rpc_result_is_done: the result") == MU_OK && mu__result_is_done(result);
}

bool mu_rpc_result_is_ok(mu_rpc_result *result)
{
    if (mu__need(result, "mu_rpc_result_is_ok: the result") != MU_OK)
        return false;
    wait_for_end(result);
    return result->error.code == MU_OK;
}

mu_error mu_rpc_result_error(mu_rpc_result *result)
{
    if (mu__need(result, "mu_rpc_result_error: the result") != MU_OK)
        return (mu_error){.code = MU_INVALID_ARGUMENT, .message = "the result is NULL", .file = "", .line = 0};
    wait_for_end(result);
    const mu_error_value *error = &result->error;
    return (mu_error){.code = error->code,
                      .message = error->message,
                      .file = error->file != NULL ? error->file : "",
                      .line = error->line};
}

bool mu__result_too_large(const mu_rpc_result *result) { return result->too_large; }

static mu_status decode(mu_rpc_result *result)
{
    if (!result->decoded)
        MU_TRY(mu__message_value(result->reply, result->offset, &result->value));
    result->decoded = true;
    return MU_OK;
}

mu_value *mu_rpc_result_value(mu_rpc_result *result)
{
    if (mu__pending() || mu__need(result, "mu_rpc_result_value: the result") != MU_OK)
        return NULL;
    wait_for_end(result);
    if (mu__error_raise(&result->error) != MU_OK)
        return NULL;
    pthread_mutex_lock(&result->lock);
    const mu_status status = decode(result);
    pthread_mutex_unlock(&result->lock);
    return status == MU_OK ? mu__give(mu_retain(result->value)) : NULL;
}
