// The result of a call on a worker, before and after it is there (TensorFlow's RemoteValue).
//
// The thread that runs the call fills it in; any thread may wait for it. A resource that is made once on each worker
// goes from ready to aborted when its worker is lost, and back when it has been made again.
#ifndef MU_SRC_COORDINATOR_REMOTE_VALUE_H
#define MU_SRC_COORDINATOR_REMOTE_VALUE_H

#include "tensor/tensor.h"

typedef enum mu_remote_state { MU_REMOTE_NOT_READY, MU_REMOTE_READY, MU_REMOTE_ABORTED } mu_remote_state;

typedef struct mu_remote_value {
    mu_object object;
    mu_monitor monitor; // guards the fields below
    mu_remote_state state;
    mu_object *result;    // of a ready call that succeeded; retained
    mu_error_value error; // code MU_OK: it succeeded, or is not ready
} mu_remote_value;

extern mu_type mu__remote_value_type;

mu_remote_value *mu__remote_value_new(void); // owned by the caller

// mu__remote_value_set makes it ready with a result, which it retains; mu__remote_value_fail with an error. Without
// effect on one that is ready, so that the first outcome stays.
void mu__remote_value_set(mu_remote_value *value, void *result);
void mu__remote_value_fail(mu_remote_value *value, const mu_error_value *error);

// mu__remote_value_abort drops the result, because its worker is lost; `error` says how. It may be set again.
void mu__remote_value_abort(mu_remote_value *value, const mu_error_value *error);

// mu__remote_value_take waits until the value is ready or aborted and returns the result with a reference that the
// caller owns. Errors (NULL): the stored one; CANCELLED if it was aborted, or if a signal asks to stop;
// DEADLINE_EXCEEDED.
void *mu__remote_value_take(mu_remote_value *value, int64_t deadline_ns);

mu_remote_state mu__remote_value_state(mu_remote_value *value);

#endif
