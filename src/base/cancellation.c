// Cancellations: a flag that ends waits, and the hooks that wake them.
//
// A wait adds a hook before it locks what it waits for, checks the flag in its loop, and removes the hook after it has
// unlocked. Cancelling calls the hooks under the cancellation's lock, so a hook may lock what the wait sleeps on. A
// hook is called once, also where it is added late.
#include "base/base.h"

#include <muster/cancellation.h>
#include <pthread.h>

struct mu_cancellation {
    mu_object object;
    pthread_mutex_t lock;
    bool has_lock;
    atomic_bool cancelled;
    mu_cancel_hook *hooks;
};

static void cancellation_destroy(void *object)
{
    mu_cancellation *cancellation = object;
    assert(cancellation->hooks == NULL);
    if (cancellation->has_lock)
        pthread_mutex_destroy(&cancellation->lock);
}

static mu_type cancellation_type = {.name = "cancellation", .destroy = cancellation_destroy};

mu_cancellation *mu_cancellation_new(void)
{
    if (mu__pending())
        return NULL;
    mu_cancellation *cancellation = mu__new(&cancellation_type, sizeof *cancellation);
    if (cancellation != NULL)
        cancellation->has_lock = mu__lock_init(&cancellation->lock, "mu_cancellation_new");
    if (cancellation != NULL && !cancellation->has_lock) {
        mu_release(cancellation);
        return NULL;
    }
    return mu__give(cancellation);
}

mu_cancellation *mu_cancellation_use(mu_cancellation *cancellation)
{
    mu_context *context = mu__context();
    mu_cancellation *before = context->cancellation;
    context->cancellation = cancellation;
    return before;
}

mu_status mu_cancellation_cancel(mu_cancellation *cancellation)
{
    MU_TRY(mu__need(cancellation, "mu_cancellation_cancel: the cancellation"));
    pthread_mutex_lock(&cancellation->lock);
    if (!atomic_exchange(&cancellation->cancelled, true))
        for (mu_cancel_hook *hook = cancellation->hooks; hook != NULL; hook = hook->next)
            hook->wake(hook->arg);
    pthread_mutex_unlock(&cancellation->lock);
    return MU_OK;
}

bool mu_cancellation_is_cancelled(const mu_cancellation *cancellation)
{
    return cancellation != NULL && atomic_load(&cancellation->cancelled);
}

void mu__cancel_hook_add(mu_cancellation *cancellation, mu_cancel_hook *hook)
{
    if (cancellation == NULL)
        return;
    pthread_mutex_lock(&cancellation->lock);
    hook->next = cancellation->hooks;
    cancellation->hooks = hook;
    if (atomic_load(&cancellation->cancelled))
        hook->wake(hook->arg);
    pthread_mutex_unlock(&cancellation->lock);
}

void mu__cancel_hook_remove(mu_cancellation *cancellation, mu_cancel_hook *hook)
{
    if (cancellation == NULL)
        return;
    pthread_mutex_lock(&cancellation->lock);
    mu_cancel_hook **at = &cancellation->hooks;
    while (*at != hook)
        at = &(*at)->next;
    *at = hook->next;
    pthread_mutex_unlock(&cancellation->lock);
}
