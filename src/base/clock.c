// The monotonic clock, and deadlines on it.
//
// There is deliberately no wall-clock time here: it jumps, and no wait may depend on it.
#include "base/base.h"

#include <math.h>
#include <time.h>

int64_t mu__now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t mu__deadline_ns(double seconds_from_now)
{
    const int64_t now = mu__now_ns();
    if (isnan(seconds_from_now) || seconds_from_now <= 0)
        return now;
    const double ns = seconds_from_now * 1e9;
    return ns < (double)(MU_FOREVER / 2) ? now + (int64_t)ns : MU_FOREVER;
}
