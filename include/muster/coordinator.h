// The coordinator: hands out calls of functions to the workers of a parameter-server strategy, and keeps their results.
//
// TensorFlow's ClusterCoordinator. A program schedules steps, does other things, and joins. Each worker takes the next
// call as soon as it is free. A call whose worker is lost goes to another worker; it starts from the beginning, so its
// updates may happen twice. A worker may start later than the coordinator, and takes no calls before.
//
// Errors. The first call that fails is remembered. The next mu_schedule, mu_join or mu_done cancels all other calls,
// waits until none runs, and fails with that error. Afterwards the coordinator is as new, and no error is raised twice.
// If a cancelled call does not end, the wait for it ends after MUSTER_TIMEOUT with DEADLINE_EXCEEDED, which names its
// worker; the next call of one of these functions returns the error, and until then no call begins. A coordinator that
// has ended gives FAILED_PRECONDITION.
#ifndef MUSTER_COORDINATOR_H
#define MUSTER_COORDINATOR_H

#include <muster/parameter_server.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_coordinator mu_coordinator;

typedef struct mu_coordinator_args {
    size_t size;
    const char *given;
    mu_strategy *strategy; // a parameter-server strategy; retained
    mu_keyword_only only_;
    int64_t max_queued; // most calls that wait for a worker; default 262144; 0 or less: any number
    // Reports of an unreachable parameter server, for each server, that are ignored less one: the call is tried again.
    // Default 3; 0: the first report is the call's error.
    int ignore_transient_ps_failures;
    int ignore_transient_timeouts; // the same for calls that exceed a time limit; default: the workers / 10
    // Worker i takes its first call i times so many seconds after the start; default 0. The maximum limits that, if it
    // is above 0.
    double schedule_start_delay, schedule_start_delay_max;
} mu_coordinator_args;

// mu_coordinator_new makes the coordinator of a strategy, with a thread for each worker. Each strategy has one: a
// second call returns the same, whatever its arguments. Its end cancels all calls and waits for those that run; the log
// names a worker whose call runs for longer than a heartbeat. After MUSTER_TIMEOUT it waits no longer: the log names
// the call that still runs and its worker, and what the library keeps for it stays in memory. Errors: INVALID_ARGUMENT
// for another kind of strategy; ALREADY_EXISTS if the port of MUSTER_METRICS_PORT is taken.
#define mu_coordinator_new(...) mu_coordinator_new_with(MU_ARGS(mu_coordinator_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_coordinator *mu_coordinator_new_with(const mu_coordinator_args *args);

// ---- Calls --------------------------------------------------------------------------------------

typedef struct mu_schedule_args {
    size_t size;
    const char *given;
    mu_coordinator *coordinator;
    mu_function *function; // retained until the call has ended
    mu_value *arguments;   // default: none; retained likewise
    mu_keyword_only only_;
    bool no_wait; // fails instead of waiting for space in the queue or for another thread's mu_join
} mu_schedule_args;

// mu_schedule puts a call of a function into the queue, and returns its result, which is not there yet (a value of kind
// MU_VALUE_REMOTE). Where the arguments hold a per-worker value, the function gets the value of the worker that runs
// it, and of a per-worker dataset its next element. The function is traced under the strategy, as for one replica: here
// if no argument is per worker, else on the thread of the first worker that runs it. In it, what is for all replicas
// (mu_run, mu_reduce, mu_strategy_gather, mu_local_results) is done with the worker alone, its only replica. Calls
// begin in the order of their schedules. Blocks: while the queue is full, or another thread is in mu_join; and if an
// earlier call has failed, also with no_wait, until the cancelled calls have ended, for MUSTER_TIMEOUT at most. Errors:
// of an earlier call (then this one is cancelled too); DEADLINE_EXCEEDED, likewise, if cancelled calls do not end;
// INVALID_ARGUMENT for a result of mu_schedule among the arguments (fetch it first), and for values of another
// coordinator; RESOURCE_EXHAUSTED with no_wait.
#define mu_schedule(...) mu_schedule_with(MU_ARGS(mu_schedule_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_schedule_with(const mu_schedule_args *args);

typedef struct mu_join_args {
    size_t size;
    const char *given;
    mu_coordinator *coordinator;
    mu_keyword_only only_;
    double timeout_seconds; // longest wait; default: no limit
} mu_join_args;

// mu_join waits until all scheduled calls have ended. Errors: of the first call that failed; DEADLINE_EXCEEDED;
// UNAVAILABLE if no worker was reachable for MUSTER_TIMEOUT; CANCELLED if a signal asks to stop.
#define mu_join(...) mu_join_with(MU_ARGS(mu_join_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_join_with(const mu_join_args *args);

// mu_done sets *done to whether all scheduled calls have ended. Errors: of the first call that failed;
// DEADLINE_EXCEEDED if cancelled calls do not end.
MU_API mu_status mu_done(mu_coordinator *coordinator, bool *done);

// mu_fetch waits for results: it returns the value with each result of mu_schedule in it replaced by what the call
// returned (an empty list if that is nothing). A result can be fetched often, also after its worker was lost. Blocks:
// until the calls have ended. Errors: of the call; CANCELLED for a call that was cancelled; INVALID_ARGUMENT for a
// per-worker value.
MU_API mu_value *mu_fetch(mu_value *value);

// ---- Per-worker values and datasets -------------------------------------------------------------

typedef mu_value mu_per_worker; // a value of kind MU_VALUE_PER_WORKER

// What each worker reads: a dataset, or one that mu_distribute_dataset or mu_distribute_datasets_from_function made
// with the coordinator's strategy.
MU_ANY(mu_any_iterable, mu_dataset *, mu_distributed_dataset *);

typedef struct mu_create_per_worker_dataset_args {
    size_t size;
    const char *given;
    mu_coordinator *coordinator;
    mu_dataset *(*fn)(void *arg); // makes a worker's dataset; NULL with .dataset
    void *arg;                    // must live as long as the result
    mu_keyword_only only_;
    mu_any_iterable dataset; // instead of fn: what every worker reads from its beginning; retained
} mu_create_per_worker_dataset_args;

// mu_create_per_worker_dataset calls fn once for each worker and iterates the dataset that it returns there; the result
// (of kind MU_VALUE_PER_WORKER) is an argument of mu_schedule. Each worker reads its whole dataset, unless fn gives
// each another part (mu_get_current_worker_index); a .dataset is read by every worker as a whole, as in TensorFlow. A
// call that finds no further element fails with OUT_OF_RANGE. Threads: the workers' threads in this process run fn,
// one call at a time; functions of the program in a dataset's stages may run on several of them at once. Errors:
// INVALID_ARGUMENT for both or neither of fn and .dataset, and for a distributed dataset of another strategy; of calls
// that use it: those of fn; INVALID_ARGUMENT if fn makes a variable; those of elements, naming the worker.
//
// A worker in another process gets a description of the dataset, makes the pipeline there, and prefetches; calls refer
// to it, and no element is sent. It opens the files that the dataset names under their paths as this process has them.
// It frees the dataset when the result is released or this process is gone. What calls a function of this program (a
// map without a traced function, a filter, a generator, flat_map, interleave, scan, take_while,
// bucket_by_sequence_length), writes a file (a cache with a path), reads a folder of images, or has more than 1 GiB in
// memory stays here: its elements are drawn here and sent with each call, and so they are to a worker of an older
// version. The log says so once, at level info, with the stage.
//
// A worker that was lost and is back begins again with a new dataset. A call that is run again takes the next element
// of the worker that runs it then, as in TensorFlow, so the element of the lost attempt is not used again.
//
// With replicas_to_aggregate or visitation_guarantee an element belongs to its call instead: this process draws it, in
// the order of the calls, from the datasets of worker 0, 1, … in rotation, and sends it with the call. A retry and a
// backup get the same element, and no dataset begins again. So the schedule alone decides which data a step has. A
// distributed dataset is then one for all workers, whose elements are drawn once each; with replicas_to_aggregate
// each batch of mu_distribute_dataset is divided among the calls of a step (of 7 rows two get 3 and the third 1).
#define mu_create_per_worker_dataset(...) \
    mu_create_per_worker_dataset_with(MU_ARGS(mu_create_per_worker_dataset_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_create_per_worker_dataset_with(const mu_create_per_worker_dataset_args *args);

// mu_create_per_worker_values calls fn once for each worker and keeps the value that it returns for that worker's
// calls: a worker in another process gets it once, and calls name it there, however they are run. Otherwise as
// mu_create_per_worker_dataset.
MU_API mu_value *mu_create_per_worker_values(mu_coordinator *coordinator, mu_value *(*fn)(void *arg), void *arg);

// mu_get_current_worker_index returns the worker for which fn above runs now. Errors (-1): FAILED_PRECONDITION
// elsewhere.
MU_API int mu_get_current_worker_index(void);

// ---- Numbers ------------------------------------------------------------------------------------

// What a worker has done so far, in calls; making what is per worker does not count.
typedef struct mu_worker_calls {
    int64_t in_flight; // 1 while it runs a call
    int64_t done;      // succeeded
    int64_t failed;    // with an error of the call
    int64_t retried;   // put back, because the worker was lost or a server not reachable
    int64_t dropped;   // copies of calls that another worker ended first
    bool lost;         // it is not reachable now, or has not started after MUSTER_HEARTBEAT
    // The worker is there, but has run its call for more than a second and ten times the usual time; a warning has said
    // so.
    bool slow;
    double call_seconds; // age of the call that it runs; 0: none
} mu_worker_calls;

// mu_coordinator_worker_calls writes the numbers of one worker. Errors: OUT_OF_RANGE.
MU_API mu_status mu_coordinator_worker_calls(mu_coordinator *coordinator, int worker, mu_worker_calls *out);
// How long parts of a coordinator's work have taken, in seconds: TensorFlow's histograms of these names.
#define MU_COORDINATOR_BUCKETS 7
typedef struct mu_coordinator_times {
    int64_t n;                               // samples
    double sum;                              // of them all
    int64_t buckets[MU_COORDINATOR_BUCKETS]; // up to 0.001, 0.01, … 100 seconds, and above
} mu_coordinator_times;

// mu_coordinator_times_read writes one histogram: "function_tracing" (traces that really happened), "closure_execution"
// (calls on workers) or "remote_value_fetch" (results that were taken over from a worker). Errors: NOT_FOUND for
// another name.
MU_API mu_status mu_coordinator_times_read(mu_coordinator *coordinator, const char *name, mu_coordinator_times *out);

// mu_coordinator_queued returns how many calls wait for a worker; -1 for NULL.
MU_API int64_t mu_coordinator_queued(mu_coordinator *coordinator);

#ifdef __cplusplus
}
#endif
#endif
