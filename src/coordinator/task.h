// A worker as the coordinator sees it: something that runs a function, may be lost, and may come back.
//
// The table of functions is the seam between the coordinator, which knows what to do about failures, and whatever runs
// the function: a device of this process (local_task.c), or another process (remote_task.c).
#ifndef MU_SRC_COORDINATOR_TASK_H
#define MU_SRC_COORDINATOR_TASK_H

#include "distribute/strategies/parameter_server.h"

// Why a call failed.
typedef enum mu_blame {
    MU_BLAME_CALL,   // the call itself: no worker can run it
    MU_BLAME_WORKER, // the worker is lost
    MU_BLAME_SERVER  // the worker did not reach a parameter server
} mu_blame;

typedef struct mu_task_failure {
    mu_blame blame;
    int server; // MU_BLAME_SERVER: which
} mu_task_failure;

typedef struct mu_task mu_task;
typedef struct mu_task_ops {
    const char *name;
    // call runs a function with these arguments (NULL: none) and returns the result, owned by the caller. It waits for
    // the end; the thread's cancellation ends it earlier. On error it returns NULL and fills `failure`, which is zeroed
    // before.
    mu_value *(*call)(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure);
    // keep takes over a per-worker value or dataset: it returns what arguments then have in its
    // place (a mu_remote_input), owned by the caller. Fails as call does; with UNIMPLEMENTED for what can only stay
    // here. Optional: everything stays here.
    void *(*keep)(mu_task *task, void *made, mu_task_failure *failure);
    // specs returns arguments as a function is traced for them, of the pool: where `keep` has put something, its spec.
    // Fails as call does. There if keep is.
    mu_value *(*specs)(mu_task *task, mu_value *arguments, mu_task_failure *failure);
    // reach tries once to reach the worker for the first time; until it succeeds, the other slots are not called. It
    // fails with the reason; the thread's cancellation ends it. Optional: the worker is there.
    mu_status (*reach)(mu_task *task);
    // recover does the same for a worker that was lost. Optional: the worker is never lost.
    mu_status (*recover)(mu_task *task);
    void (*free)(mu_task *task);
} mu_task_ops;

// The head of a task. One thread at a time uses it.
struct mu_task {
    const mu_task_ops *ops;
    mu_strategy *strategy; // borrowed
    int worker;
    mu_cancellation *ending; // of the coordinator: a call that is cancelled is not awaited any longer; borrowed
};

// Makes the task of one worker; NULL on error.
typedef mu_task *mu_task_maker(mu_strategy *strategy, int worker, void *arg);

// mu__local_task makes a worker that is a device of this process (local_task.c). `arg` is not used.
mu_task *mu__local_task(mu_strategy *strategy, int worker, void *arg);

// mu__remote_task makes a worker that is another process, at its address in the strategy's cluster, and begins to
// connect to it (remote_task.c). `arg` is not used.
mu_task *mu__remote_task(mu_strategy *strategy, int worker, void *arg);

#endif
