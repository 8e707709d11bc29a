// Time, waiting and random bytes of the system in use (system.h), and deadlines on its clock.
#include "base/system.h"

#include <errno.h>
#include <math.h>

int64_t mu__now_ns(void) { return mu__system->now_ns(); }

void mu__sleep_ns(int64_t ns) { mu__system->sleep_ns(ns); }

int64_t mu__deadline_ns(double seconds_from_now)
{
    const int64_t now = mu__now_ns();
    if (isnan(seconds_from_now) || seconds_from_now <= 0)
        return now;
    const double ns = seconds_from_now * 1e9;
    return ns < (double)(MU_FOREVER / 2) ? now + (int64_t)ns : MU_FOREVER;
}

mu_status mu__random(void *out, size_t bytes)
{
    return mu__system->random(out, bytes)
               ? MU_OK
               : mu__error(MU_INTERNAL, "the system gives no random bytes: %s", strerror(errno));
}
