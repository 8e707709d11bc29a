// Locks, conditions, and monitors: a lock and a condition that are used together, with waits that end.
#include "base/base.h"

#include <time.h>

bool mu__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    const bool made =
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 && pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return made;
}

static mu_status no_lock(const char *what)
{
    return mu__error(MU_RESOURCE_EXHAUSTED, "%s: the system cannot make a lock; free memory", what);
}

bool mu__lock_init(pthread_mutex_t *lock, const char *what)
{
    return pthread_mutex_init(lock, NULL) == 0 || no_lock(what) == MU_OK;
}

mu_status mu__monitor_init(mu_monitor *monitor, const char *what)
{
    monitor->made = false;
    if (!mu__lock_init(&monitor->lock, what))
        return mu_error_code();
    monitor->made = mu__condition_init(&monitor->changed);
    if (monitor->made)
        return MU_OK;
    pthread_mutex_destroy(&monitor->lock);
    return no_lock(what);
}

void mu__monitor_free(mu_monitor *monitor)
{
    if (!monitor->made)
        return;
    pthread_cond_destroy(&monitor->changed);
    pthread_mutex_destroy(&monitor->lock);
    monitor->made = false;
}

bool mu__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns)
{
    enum { SECOND = 1000000000 };
    static const int64_t longest = SECOND / 10;
    const int64_t now = mu__now_ns();
    if (now >= deadline_ns)
        return false;
    const int64_t until = deadline_ns - now < longest ? deadline_ns : now + longest;
    const struct timespec time = {.tv_sec = until / SECOND, .tv_nsec = until % SECOND};
    pthread_cond_timedwait(condition, lock, &time);
    return true;
}

bool mu__monitor_wait(mu_monitor *monitor, int64_t deadline_ns)
{
    return mu__condition_wait(&monitor->changed, &monitor->lock, deadline_ns);
}
