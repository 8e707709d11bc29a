// Parameter servers: variables that live on servers, and workers that use them each at its own pace.
//
// ParameterServerStrategy is for asynchronous training. A coordinator (muster/coordinator.h) hands out steps to
// workers. A worker reads the newest values of the variables that its step needs, computes, and sends updates, which
// the server of each variable applies one at a time. Workers do not wait for each other.
//
// Errors: what needs a server or a worker fails with UNAVAILABLE if it is lost, with CANCELLED if the thread's
// cancellation is cancelled or a signal asks to stop, and with DATA_LOSS for an answer that cannot be read; an op on
// variables of which different processes keep some fails with FAILED_PRECONDITION. What only counts does not fail.
#ifndef MUSTER_PARAMETER_SERVER_H
#define MUSTER_PARAMETER_SERVER_H

#include <muster/distribute.h>
#include <muster/sharding.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_parameter_server_strategy_args {
    size_t size;
    const char *given;
    mu_cluster *cluster_resolver; // default: mu_cluster_from_environment; retained
    mu_partitioner *partitioner;  // divides variables among the servers, retained; default: they stay whole
    mu_keyword_only only_;
    int replicas_to_aggregate;   // synchronous steps: gradients of so many calls make one; default: none do
    bool visitation_guarantee;   // updates of every call happen once; default: perhaps again in a retry
    bool in_process;             // workers and servers are threads of this process; default: the tasks'
                                 // processes (mu_server_main, muster serve)
    int replicas;                // copies of each server's variables, on another server: 0 (default) or 1
    double snapshot_every;       // seconds between snapshots of all servers; default: none
    const char *snapshot_folder; // where servers write them, of this job alone; copied
} mu_parameter_server_strategy_args;

// mu_parameter_server_strategy puts the variables made in its scope on the parameter servers of a cluster, in turn: the
// k-th variable on server k modulo the number of servers. Each part of a sharded variable counts as one. An optimizer's
// slots are on the server of their variable, as is a variable made in MU_COLOCATE; neither counts, nor is divided. A
// mu_set_device has no effect. The cluster has jobs "worker" and "ps" with one task or more, and may have a "chief" and
// an "evaluator".
//
// The tasks are processes of mu_server_main or `muster serve`, at their addresses in the cluster, and this process is
// their coordinator. A cluster has one coordinator at a time: making the strategy deletes all variables that are on the
// servers. A variable's value is on its server only; a read, an assignment or an optimizer's update of it is one
// request. Servers identify variables by name; if a name is taken, a number is appended: "kernel", "kernel_1". A
// variable's last release here deletes it there, with the next request. A function for workers uses variables of the
// strategy only.
//
// With in_process the tasks are threads of this process, whatever their addresses: worker i computes on CPU device i
// modulo the number of devices, and the variables are in this process's memory. That is asynchronous training on the
// cores of one machine.
//
// mu_num_replicas_in_sync is 1, because workers are not synchronized; the aggregation of a variable is therefore not
// used. mu_schedule runs a function on a worker that is free, as do mu_fit, mu_evaluate and mu_predict with their
// steps; with several workers the order of updates, and the last digits of the weights, differ from run to run. mu_run
// computes in this process, on its devices in turn.
//
// With replicas_to_aggregate (the name of TensorFlow's SyncReplicasOptimizer) training is synchronous: so many calls,
// in the order of their schedules, make a step. mu_apply_gradients in their functions leaves gradients in accumulators
// on the variables' servers; when all calls of the step have ended, the sums are applied at once, and only then the
// next step's calls begin. A batch of mu_fit is divided among the calls as among so many replicas, so the weights are
// those of mu_mirrored_strategy with as many (a loss that a mask shortens is weighted by the rows of each part);
// mu_num_replicas_in_sync is this number. A call whose worker is lost is run by another, and counts once. Workers
// beyond the number are backups: they run copies of calls that take more than twice the usual time; what ends first
// counts, and the gradients of the other are dropped. Every run of a call gets the same data, also where that is an
// element of a per-worker dataset (mu_create_per_worker_dataset). So neither a lost nor a slow worker changes the
// weights. mu_join applies a last step of fewer calls.
//
// With visitation_guarantee alone each call is a step of its own, whose gradients are applied once, as they come,
// although workers come and go: every batch of mu_fit is used exactly once per epoch, also those of a dataset creator,
// whose datasets mu_fit reads here in rotation. In both cases this holds for what mu_apply_gradients updates, for
// results of calls, for metrics, and for assignments in the functions: the values that calls assign are combined by the
// variable's aggregation, as those of replicas, when the step is applied, and so are the moving statistics of
// mu_batch_normalization. What a call cannot know fails with FAILED_PRECONDITION while the function is traced: the
// value of a variable that it has assigned, and with several calls in a step .synchronized statistics, collectives and
// merges. Updates of rows of embedding tables happen as the function runs, and again if it is run again. Gradients of
// lookups become dense. The updates are computed in this process. If a step cannot be applied, nothing of it is; if a
// server is lost while it is, its variables are in doubt: they cannot be read, and no further step can be scheduled,
// until they are assigned or restored.
//
// A server that ends loses its variables, and what needs them fails with UNAVAILABLE, also when the server has started
// again, unless there are copies or snapshots. With replicas 1 every server's variables, accumulators and rows of
// embedding tables are on a second server too. An update counts as done when both have it; if one of them is lost, the
// other takes over, without a restart of anything, and a server that starts again, or another one, becomes the second;
// it leads again when the other is lost, not before (docs/decisions/0152).
// No update that was acknowledged is lost, and one that had to be sent again is applied once, unless both are lost
// before a new copy is complete; a take of gradients that waits keeps waiting at the other. Synchronous steps and the
// visitation guarantee then hold although servers are lost. With snapshot_every all variables are written to
// snapshot_folder, which all servers must reach under this path, as one state of all servers; when a server is lost
// that has no copy, all variables go back to the last snapshot. What was acknowledged after it is lost; the log says
// so, and mu_parameter_server_recovery counts it. docs/decisions/0040 has what orders hold. Without copies and
// snapshots updates are as fast as the network; a copy adds its round trip to each update.
//
// Blocks: until all parameter servers are there, at most MUSTER_TIMEOUT; workers may come later. Errors:
// INVALID_ARGUMENT for an empty cluster, another job, a task of this process that is not in the cluster, two chiefs or
// evaluators, a cluster without workers or servers, replicas for less than two servers, snapshot_every without a
// folder, and with replicas_to_aggregate or visitation_guarantee, because going back undoes steps; UNAVAILABLE for a
// server that does not answer; PERMISSION_DENIED if this process has the key of one worker (`muster key --for`);
// NOT_FOUND, FAILED_PRECONDITION, UNIMPLEMENTED and DEADLINE_EXCEEDED of a plugin whose devices this process is to use.
#define mu_parameter_server_strategy(...) \
    mu_parameter_server_strategy_with(MU_ARGS(mu_parameter_server_strategy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_strategy *mu_parameter_server_strategy_with(const mu_parameter_server_strategy_args *args);

// mu_strategy_ps_count returns the number of parameter servers, mu_strategy_ps_worker_count that of the workers which
// run the coordinator's steps; 0 for other strategies.
MU_API int mu_strategy_ps_count(const mu_strategy *strategy);
MU_API int mu_strategy_ps_worker_count(const mu_strategy *strategy);

// mu_variable_device returns where a variable is: "/job:ps/replica:0/task:1/device:CPU:0" on a parameter server, else
// NULL: it is in this process, on each device of its strategy. The text belongs to the pool.
MU_API const char *mu_variable_device(const mu_variable *variable);

// mu_variable_read_all returns the values of a per-worker variable (per_worker_variable of mu_variable_new), a list
// with one value for each worker in their order. Such a variable is TensorFlow's PerWorkerVariable: a function that
// runs on a worker reads and assigns that worker's value, which no other worker sees; elsewhere the variable is this
// process's own value, which is what checkpoints save. All begin with the initial value. A worker gets its value when
// it needs it, and again from the initial value when it comes back as a new process. It is not trainable and never
// partitioned. Blocks: until all workers have answered. Errors: INVALID_ARGUMENT for another variable; UNAVAILABLE
// naming a worker that is not there after MUSTER_TIMEOUT.
MU_API mu_value *mu_variable_read_all(mu_variable *variable);

// What became of lost parameter servers, of a strategy with copies or snapshots.
typedef struct mu_ps_recovery {
    int64_t failovers;        // times that another server took over a server's variables
    int64_t restores;         // servers' variables that went back to a snapshot
    int64_t snapshots;        // complete snapshots
    int64_t failed_snapshots; // of which a server's part could not be written
    // Changes of variables that were undone by going back to snapshots, at least so many: those that some process had
    // seen, in an answer of the server, and that it has told the server since. What only processes knew that have ended
    // is missing. A change counts too whose own process had no answer yet and makes it again, if another had seen it.
    int64_t updates_lost;
    int copies_behind; // servers whose variables have no complete copy now
} mu_ps_recovery;

// mu_parameter_server_recovery returns counts of lost servers and of how they recovered; all 0 without copies and
// snapshots. Works with an error pending. Errors: INVALID_ARGUMENT for another strategy.
MU_API mu_status mu_parameter_server_recovery(mu_strategy *strategy, mu_ps_recovery *out);

// MU_CACHE_VARIABLE_READS { … } reads each variable of a parameter server once: later reads in the block return the
// same value, also after an assignment in the block or by a worker. Outside, reads are fresh. Reads of rows (lookups)
// are not cached. In a function that is traced the block is part of the trace. It opens and closes the block by
// mu_cache_variable_reads_open and _close; do not leave it with return, goto or break. Errors: INVALID_ARGUMENT inside
// another such block.
typedef struct mu_read_cache_guard {
    void *cache;
    bool once;
} mu_read_cache_guard;
MU_API mu_read_cache_guard mu_cache_variable_reads_open(void);
MU_API void mu_cache_variable_reads_close(mu_read_cache_guard *guard);
#define MU_CACHE_VARIABLE_READS                                                            \
    for (mu_read_cache_guard mu_cached_ = mu_cache_variable_reads_open(); mu_cached_.once; \
         mu_cache_variable_reads_close(&mu_cached_))

#ifdef __cplusplus
}
#endif
#endif
