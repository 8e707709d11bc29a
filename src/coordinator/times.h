// Histograms of what a coordinator does, which any thread may add to and read.
#ifndef MU_SRC_COORDINATOR_TIMES_H
#define MU_SRC_COORDINATOR_TIMES_H

#include "base/base.h"

#include <muster/coordinator.h>
#include <pthread.h>

typedef enum mu_timed { MU_TIMED_TRACING, MU_TIMED_EXECUTION, MU_TIMED_FETCH, MU_TIMED_KINDS } mu_timed;

typedef struct mu_times {
    pthread_mutex_t lock;
    bool has_lock;
    mu_coordinator_times of[MU_TIMED_KINDS];
} mu_times;

mu_status mu__times_init(mu_times *times);
void mu__times_free(mu_times *times);
// mu__times_add adds a sample that began at this time and ends now.
void mu__times_add(mu_times *times, mu_timed what, int64_t begin_ns);

#endif
