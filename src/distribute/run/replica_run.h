// One run of a traced function on the replicas of this process (strategy_run.c, launched_run.c, joined_run.c).
#ifndef MU_SRC_DISTRIBUTE_REPLICA_RUN_H
#define MU_SRC_DISTRIBUTE_REPLICA_RUN_H

#include "distribute/distribute.h"

typedef struct mu_replica_job {
    struct mu_replica_run *running;
    int replica;
    mu_tensor **in, **out;
    mu_spec *specs;
    mu_status status;
    mu_error_value error;
} mu_replica_job;

typedef struct mu_replica_run {
    mu_running head;           // first
    mu_concrete *concrete;     // retained
    mu_device *const *devices; // [n] where it runs; the strategy's
    int64_t number;            // among the runs of this worker; 0: it has not started
    int64_t common;            // among those with collectives, which all workers compare
    int n, n_in, n_out;
    bool equal; // tensors of replicas may not differ in shape, also between workers
    mu_replica_job *jobs;
    mu_tensor **tensors; // owned references to inputs and outputs of all jobs
    mu_spec *specs;
    int64_t input_begin_ns, input_end_ns; // with a timeline: when the thread waited for the batch
    struct mu_cancellation *cancellation; // of the thread that started the run
    mu_latch done;                        // of the posted jobs
    // of a launched run:
    bool launched;
    bool joined; // with all other workers, in this world
    mu_launch_world world;
    int64_t launch_id; // the same on all workers, of no other program of the job
    mu_plan *plan;     // in use
    mu_launch *launch; // NULL: it failed at once
    mu_run_args *args; // [n]
} mu_replica_run;

// mu__devices_for returns the devices on which a function runs under a strategy, which owns the array; NULL with
// FAILED_PRECONDITION if the function has to be compiled and nothing here can (compiled_devices.c).
mu_device *const *mu__devices_for(mu_strategy *strategy, const mu_function *function);

// mu__run_devices returns the devices of the run's replicas: mu__run_partitions logical ones for each.
static inline int mu__run_partitions(const mu_strategy *strategy) { return strategy->cores ? strategy->n_cores : 1; }
static inline mu_device *const *mu__run_devices(const mu_replica_run *running)
{
    const mu_strategy *strategy = running->head.strategy;
    return strategy->cores ? strategy->cores : running->devices;
}

// mu__joins returns whether the run's replicas may run one program with those of all other workers.
// mu__agree_to_run asks them, a collective of the workers: `joined` says whether all launch it now, else all run the
// parts between the collectives. It fails on all workers if one of them cannot run. The job's lock of launches is held
// until the run has started. mu__agree_on_trace, where the strategy's devices may run such programs, comes before
// collectives of a trace. mu__refuse_run takes the place of both on a worker that cannot run (the pending error, which
// stays), if the function is known to have collectives; `concrete`: its graph for these arguments, NULL if there is
// none.
bool mu__joins(const mu_replica_run *running);
mu_status mu__agree_to_run(mu_replica_run *running);
mu_status mu__agree_on_trace(mu_strategy *strategy, const char *function);
void mu__refuse_run(mu_strategy *strategy, mu_function *function, const mu_concrete *concrete);

// mu__run_equal is mu_run for tensors that have one shape on all replicas, or fails with INVALID_ARGUMENT: on all
// workers, if the function has collectives and their replicas may run one program.
mu_value *mu__run_equal(mu_strategy *strategy, mu_function *function, mu_value *arguments);
extern const char mu__equal_option[]; // what asked for it, for messages

// mu__begin_run counts a run that starts. Called with the strategy's lock held.
void mu__begin_run(mu_replica_run *running);

// mu__find_plan finds or makes the plan for the first replica's arguments.
mu_status mu__find_plan(mu_replica_run *running);

// mu__launches returns whether the run's replicas can be launched together: their devices work by themselves, all
// replicas are here, and their arguments have the same shapes. mu__launch_run starts it, and mu__finish_run waits for
// its end; its errors are then the jobs'.
bool mu__launches(const mu_replica_run *running);
mu_status mu__launch_run(mu_replica_run *running);
void mu__finish_run(mu_replica_run *running);

#endif
