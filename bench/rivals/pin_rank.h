// Pins the calling thread to one processor, the same for a rank in Muster's programs and in the rivals'. C and C++.
#ifndef MU_BENCH_PIN_RANK_H
#define MU_BENCH_PIN_RANK_H

#include <sched.h>

// Rank r gets the r-th processor that the process may use, counted round. Where that is forbidden, nothing happens and
// the measurement runs unpinned.
static inline void pin_rank(int rank)
{
    cpu_set_t all, one;
    int seen = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && seen++ == rank % CPU_COUNT(&all))
            CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

#endif
