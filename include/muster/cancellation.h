// Cancellation: ends the waits of calls that another thread has made.
//
// Errors: only those that every call may give (muster/base.h).
#ifndef MUSTER_CANCELLATION_H
#define MUSTER_CANCELLATION_H

#include <muster/base.h>

#ifdef __cplusplus
extern "C" {
#endif

// A cancellation is used by any number of threads, and cancelled once, from any thread.
typedef struct mu_cancellation mu_cancellation;

// mu_cancellation_new makes a cancellation that is not cancelled yet.
MU_API mu_cancellation *mu_cancellation_new(void);

// mu_cancellation_use selects the cancellation of this thread's calls (NULL: none) and returns the previous one. It
// also applies to the replica functions that these calls run. The caller keeps the cancellation alive meanwhile.
MU_API mu_cancellation *mu_cancellation_use(mu_cancellation *cancellation);

// mu_cancellation_cancel ends the waits of all threads that use the cancellation: they fail with MU_CANCELLED, as do
// their later waits. This applies to waits for gradients: mu_accumulator_take_grad and the other functions that take. A
// second call does nothing. Works with an error pending.
MU_API mu_status mu_cancellation_cancel(mu_cancellation *cancellation);

// mu_cancellation_is_cancelled returns whether it was cancelled; false for NULL.
MU_API bool mu_cancellation_is_cancelled(const mu_cancellation *cancellation);

#ifdef __cplusplus
}
#endif
#endif
