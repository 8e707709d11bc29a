// Histograms of what a coordinator does: see times.h.
#include "coordinator/coordinator.h"

mu_status mu__times_init(mu_times *times)
{
    times->has_lock = mu__lock_init(&times->lock, "mu_coordinator_new");
    return times->has_lock ? MU_OK : mu_error_code();
}

void mu__times_free(mu_times *times)
{
    if (times->has_lock)
        pthread_mutex_destroy(&times->lock);
}

void mu__times_add(mu_times *times, mu_timed what, int64_t begin_ns)
{
    const double seconds = (double)(mu__now_ns() - begin_ns) / 1e9;
    int bucket = 0;
    for (double limit = 0.001; bucket < MU_COORDINATOR_BUCKETS - 1 && seconds > limit; limit *= 10)
        bucket++;
    pthread_mutex_lock(&times->lock);
    times->of[what].n++;
    times->of[what].sum += seconds;
    times->of[what].buckets[bucket]++;
    pthread_mutex_unlock(&times->lock);
}

mu_status mu_coordinator_times_read(mu_coordinator *coordinator, const char *name, mu_coordinator_times *out)
{
    static const char *const names[MU_TIMED_KINDS] = {"function_tracing", "closure_execution", "remote_value_fetch"};
    MU_TRY(mu__need(coordinator, "mu_coordinator_times_read: the coordinator"));
    MU_TRY(mu__need(name, "mu_coordinator_times_read: the name"));
    MU_TRY(mu__need(out, "mu_coordinator_times_read: the result"));
    for (int i = 0; i < MU_TIMED_KINDS; i++)
        if (strcmp(name, names[i]) == 0) {
            pthread_mutex_lock(&coordinator->times.lock);
            *out = coordinator->times.of[i];
            pthread_mutex_unlock(&coordinator->times.lock);
            return MU_OK;
        }
    return mu__error(MU_NOT_FOUND,
                     "mu_coordinator_times_read: there is no \"%.40s\"; there are \"function_tracing\", "
                     "\"closure_execution\" and \"remote_value_fetch\"",
                     name);
}
