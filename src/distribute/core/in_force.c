// What a program sets for the calls that follow: the device in use, and how long a strategy waits.
#include "distribute/distribute.h"

#include <math.h>

mu_status mu_set_device(const char *device)
{
    if (mu__pending())
        return mu_error_code();
    mu_strategy *strategy = device ? mu_one_device_strategy(device) : NULL;
    if (mu__pending() || mu__set_strategy(strategy, "mu_set_device") != MU_OK)
        return mu_error_code();
    if (strategy)
        ((mu_strategy_scope *)mu__context()->scope)->device = true;
    return MU_OK;
}

// ---- Timeouts -----------------------------------------------------------------------------------

double mu_strategy_timeout(const mu_strategy *strategy)
{
    if (!strategy) {
        mu__error(MU_INVALID_ARGUMENT, "mu_strategy_timeout: the strategy is NULL");
        return NAN;
    }
    return strategy->group ? mu__group_timeout(strategy->group) : mu__setting_real(MU_SETTING_TIMEOUT);
}

mu_status mu_strategy_set_timeout(mu_strategy *strategy, double seconds)
{
    if (mu__pending())
        return mu_error_code();
    if (!strategy || !(seconds > 0))
        return mu__error(MU_INVALID_ARGUMENT, "mu_strategy_set_timeout: %s",
                         strategy ? "the timeout must be more than 0 seconds" : "the strategy is NULL");
    pthread_mutex_lock(&strategy->order);
    const bool busy = strategy->under_way > 0;
    if (!busy && strategy->group)
        mu__group_set_timeout(strategy->group, seconds);
    if (!busy && strategy->workers)
        mu__group_set_timeout(strategy->workers, seconds);
    if (!busy && strategy->agreements)
        mu__group_set_timeout(strategy->agreements, seconds);
    pthread_mutex_unlock(&strategy->order);
    if (!busy)
        return MU_OK;
    return mu__error(
        MU_FAILED_PRECONDITION,
        "mu_strategy_set_timeout: a function is running under the strategy; set its timeout before or after the run");
}

mu_timeout_guard mu_timeout_open(mu_strategy *strategy, double seconds)
{
    const double before = strategy && !mu__pending() ? mu_strategy_timeout(strategy) : 0;
    const bool set = mu_strategy_set_timeout(strategy, seconds) == MU_OK;
    return (mu_timeout_guard){.strategy = set ? mu_retain(strategy) : NULL, .seconds_before = before, .once = true};
}

void mu_timeout_close(mu_timeout_guard *guard)
{
    if (!guard)
        return;
    mu_error_value pending;
    mu__error_move(&pending); // closing works with an error pending
    if (guard->strategy) {
        mu_strategy_set_timeout(guard->strategy, guard->seconds_before);
        mu_release(guard->strategy);
    }
    if (pending.code != MU_OK)
        mu_error_take();
    mu__error_raise(&pending);
    guard->strategy = NULL;
    guard->once = false;
}
