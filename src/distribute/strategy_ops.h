// The slots of a strategy: tables of functions that say what differs between kinds of strategies. strategy_kinds.c
// lists them.
//
// A caller finds the table of its context (mu__cross_replica) and calls a slot. It never asks how many workers there
// are, whether variables have copies, or whether a function is traced. Implementations that several kinds share are
// ordinary functions that several tables point to. Public functions check arguments and context before they call a
// slot.
#ifndef MU_SRC_DISTRIBUTE_STRATEGY_OPS_H
#define MU_SRC_DISTRIBUTE_STRATEGY_OPS_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "ops/state/embedding_table.h"

#include <muster/accumulator.h>
#include <muster/distribute.h>

typedef mu_value *mu_replica_fn(mu_value *arguments, void *arg);
typedef mu_value *mu_merge_fn(mu_strategy *strategy, mu_value *arguments, void *arg);
typedef mu_value *mu_value_fn(const mu_value_context *context, void *arg);

// A started run; the head of what `run` keeps for `wait`. Several runs may be in progress; they execute in order.
typedef struct mu_running {
    mu_strategy *strategy; // retained
} mu_running;

// One call of reduce.
typedef struct mu_reducing {
    mu_strategy *strategy;
    const char *what; // the called function, or the variable being read, for errors
    mu_reduce_op op;
    int n_axes; // 0: no reduction inside replicas
    const int *axes;
    const mu_cross_device_ops *ops; // NULL: in replica order
} mu_reducing;

// One call of an update function on each copy of a variable, or without a variable on each device of variables.
typedef struct mu_updating {
    mu_strategy *strategy;
    const char *function;  // for errors
    mu_variable *variable; // NULL: an update without a variable
    mu_value *(*with_variable)(mu_variable *variable, mu_value *arguments, void *arg);
    mu_replica_fn *without;
    void *arg;
    mu_value *arguments;
    bool local_results;
} mu_updating;

// What a strategy does with values outside of replicas, under the names of TensorFlow's StrategyExtended. Results
// belong to the pool; NULL on error.
typedef struct mu_cross_replica_ops {
    mu_value *(*reduce_to)(const mu_reducing *r, mu_value *value);
    // Reduces the elements of a list; out[i] is NULL before.
    mu_status (*batch_reduce_to)(mu_strategy *strategy, mu_reduce_op op, const mu_value *values, mu_value **out);
    mu_value *(*gather_to)(mu_strategy *strategy, mu_value *value, int axis);
    mu_value *(*local_results)(const mu_strategy *strategy, mu_value *value);
    mu_value *(*variable_components)(mu_variable *variable); // a list
    mu_tensor *(*read_variable)(mu_variable *variable);      // of a variable whose copies differ (ON_READ)
    mu_value *(*update_variable)(const mu_updating *u);
    mu_value *(*broadcast_to)(mu_value *value, int copies);
    mu_value *(*copy)(mu_value *value); // one device's copy of a value
    mu_value *(*distribute_values)(mu_strategy *strategy, mu_value_fn *fn, void *arg);
    // `run` starts a function on all replicas, `wait` frees the run and returns the regrouped results.
    mu_running *(*run)(mu_strategy *strategy, mu_function *function, mu_value *arguments);
    mu_value *(*wait)(mu_running *running);
    mu_value *(*run_callback)(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments);
} mu_cross_replica_ops;

// One array of each local replica, to be reduced with those of all replicas.
typedef struct mu_replica_arrays {
    const char *name;
    const mu_form *form; // of the tensors they belong to, for workers to compare
    mu_reduction reduction;
    mu_dtype dtype;
    int64_t count; // elements of each
    int n;         // arrays: one per local replica
    void *const *data;
    void *const *out; // where each result goes, if not in place
} mu_replica_arrays;

struct mu_parts_name;

// Collectives of the worker processes outside of steps: all workers call them in the same order, and compare `what`,
// which also names the operation in errors. In one process each is trivial.
typedef struct mu_cross_worker_ops {
    mu_status (*all_reduce)(mu_strategy *strategy, const char *what, mu_reduction reduction, mu_dtype dtype,
                            void *numbers, int64_t n);
    // Concatenates counts[w] elements of each worker w. `form` (NULL: none) describes their tensors, for the workers to
    // compare. `mine` may be this worker's part of `all`.
    mu_status (*all_gather)(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype,
                            const void *mine, void *all, const int64_t *counts);
    mu_status (*broadcast)(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype, void *data,
                           int64_t n, int worker);
    mu_tensor *(*broadcast_tensor)(mu_strategy *strategy, const char *what, mu_tensor *mine); // the chief's
    // Returns n tensors of each worker, in worker order, and their number in *n_all. The array is freed with mu__free.
    mu_tensor **(*gather)(mu_strategy *strategy, const char *what, int n, mu_tensor *const *mine, int *n_all);
    // Combines n tensors of each worker in replica order. `name` names them in errors. Errors, on all workers:
    // INVALID_ARGUMENT if types, shapes, operations or `name->what` differ.
    mu_tensor *(*reduce)(mu_strategy *strategy, const struct mu_parts_name *name, const mu_cross_device_ops *ops,
                         mu_reduce_op op, int n, mu_tensor *const *mine);
    mu_status (*reduce_arrays)(mu_strategy *strategy, const mu_replica_arrays *arrays); // in place
    // Each array has a block of `count` elements for every replica: the reduced block of each local one goes to `out`.
    mu_status (*scatter_arrays)(mu_strategy *strategy, const mu_replica_arrays *arrays);
    // A value from outside of the replica function, as all replicas use it: each worker's own one becomes their mean
    // (`mean`) or the chief's.
    mu_tensor *(*common_value)(mu_strategy *strategy, const char *what, bool mean, mu_tensor *value);
    // Makes unknown the sizes in which the workers' tensors differ. Errors: INVALID_ARGUMENT for another type or rank.
    mu_status (*join_specs)(mu_strategy *strategy, int n, mu_spec *specs);
    bool chief_writes; // files are written by the chief, when all workers have read what they hold
    // Sums two numbers over the workers, and returns on all of them whether a signal asked one of them to stop. Then
    // all set strategy->stopping and note the signal (mu__stop_signal), after the same call on each.
    mu_status (*agree)(mu_strategy *strategy, const char *what, int64_t numbers[2]);
    const char *(*worker_name)(const mu_strategy *strategy, int worker); // for errors; borrowed
    // What this worker is busy with, for messages of workers that wait for it (number -1: none); `done` ends it.
    void (*doing)(const mu_strategy *strategy, const char *what, int64_t number);
    void (*done)(mu_strategy *strategy);
    void (*failed)(const mu_strategy *strategy); // sends the pending error to the other workers, which fail with it
    void (*recover)(mu_strategy *strategy);      // after a failed run, when no run is in progress
    // Between hold_stop(true) and hold_stop(false), a signal stops the loop only where check_stop says so: after the
    // same step on every worker.
    void (*hold_stop)(bool hold);
    mu_status (*check_stop)(const mu_strategy *strategy);
} mu_cross_worker_ops;

// What this process reads from a dataset.
typedef struct mu_shard_plan {
    mu_dataset *dataset; // borrowed; NULL on error
    bool pieces;         // elements are for one replica; else for all replicas of this worker
    bool same_order;     // parts of one sequence, which all workers must read in the same order
} mu_shard_plan;

// What an iterator over distributed batches keeps between steps.
typedef struct mu_step_input {
    mu_value *like; // owned: spec of one replica's batch; NULL until several workers have agreed on it
    int64_t rows;   // rows of the last step, over all workers
} mu_step_input;

// A kind of strategy.
typedef struct mu_strategy_ops {
    const char *name;       // "MirroredStrategy"
    bool between_graph;     // what mu_strategy_between_graph reports
    bool replica_pipelines; // input may have a pipeline for each replica (MU_PER_REPLICA)
    bool static_shapes;     // what mu_strategy_require_static_shapes reports
    bool scheduled;         // workers of a coordinator read distributed datasets and do the steps of mu_fit
    bool eager_on_device;   // eager ops in its scope run on its device, if that launches programs
    // Whether the strategy can still be used; NULL: always.
    mu_status (*usable)(const mu_strategy *strategy);
    // The name of local device i for the program, in the pool; NULL: the name of the engine's device.
    const char *(*device_name)(const mu_strategy *strategy, int i);
    bool known_rows;  // sizes of the replicas' parts follow from the batch size
    bool whole_steps; // TensorFlow leaves out steps in which some replicas have no element (MUSTER_TF_COMPAT)
    mu_variable *(*make_variable)(mu_strategy *strategy, const mu_variable_args *args); // owned; NULL on error
    // Optional: accumulators are in this process. NULL on error, or without one for an accumulator of this process.
    mu_accumulator *(*make_accumulator)(mu_strategy *strategy, const mu_conditional_accumulator_args *args,
                                        bool sparse);
    // Optional: embedding tables are in this process. Owned; NULL on error.
    mu_resource *(*make_table)(const mu_strategy *strategy, const mu_table_options *options, const char *name);
    const mu_variable_rules *on_write, *on_read; // reads and updates of variables by their synchronization
    // Whether every replica of every worker has a copy of the variable for itself.
    bool (*has_copies)(const mu_strategy *strategy, const mu_variable *variable);
    mu_shard_plan (*distribute_dataset)(mu_strategy *strategy, mu_dataset *dataset);
    // This process's next batches become those of the step; NULL: no step. Takes ownership of `own`. Owned.
    mu_value *(*next_step)(mu_strategy *strategy, mu_step_input *input, mu_value *own);
    const mu_cross_replica_ops *values; // for values that exist
    const mu_cross_replica_ops *traced; // while a merge_call is traced: for symbolic values of nodes
    const mu_cross_worker_ops *cross_worker;
} mu_strategy_ops;

extern const mu_strategy_ops mu__default_ops, mu__one_device_ops, mu__mirrored_ops, mu__central_ops,
    mu__multi_worker_ops, mu__single_worker_ops, mu__tpu_ops, mu__tpu_workers_ops, mu__parameter_server_ops;
extern const mu_cross_worker_ops mu__one_process, mu__many_workers;

// mu__cross_replica returns the table for values outside of replicas in this thread's context.
const mu_cross_replica_ops *mu__cross_replica(const mu_strategy *strategy);

// ---- Implementations that tables share ----------------------------------------------------------

// Variables (variables.c, scatter_update.c).
mu_variable *mu__make_plain_variable(mu_strategy *strategy, const mu_variable_args *args);
mu_variable *mu__make_central_variable(mu_strategy *strategy, const mu_variable_args *args);
mu_variable *mu__make_mirrored_variable(mu_strategy *strategy, const mu_variable_args *args);
mu_variable *mu__make_served_variable(mu_strategy *strategy, const mu_variable_args *args); // (parameter_server.c)
mu_variable *mu__make_per_worker_variable(mu_strategy *strategy, const mu_variable_args *args);
mu_accumulator *mu__make_served_accumulator(mu_strategy *strategy, const mu_conditional_accumulator_args *args,
                                            bool sparse);
mu_resource *mu__make_served_table(const mu_strategy *strategy, const mu_table_options *options, const char *name);
mu_resource *mu__refuse_table(const mu_strategy *strategy, const mu_table_options *options, const char *name);
extern const mu_variable_rules mu__mirrored_rules, mu__central_rules, mu__on_read_rules;
mu_status mu__mirrored_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values);
mu_status mu__central_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values);
// mu__parts_scatter is for a sharded variable whose parts are on servers: one op on all of them.
mu_status mu__parts_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values);
mu_status mu__on_read_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values);
mu_status mu__deferred_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values);
// mu__need_own_replica fails on a replica of another strategy than the variable's, unless the variable is whole there:
// mu__is_whole_by_default returns whether this is a replica of the default strategy and the variable has one copy.
mu_status mu__need_own_replica(const mu_variable *variable);
bool mu__is_whole_by_default(const mu_variable *variable);
// mu__has_other_copies returns whether several replicas of another strategy than this one have a copy each.
bool mu__has_other_copies(const mu_strategy *strategy, const mu_variable *variable);
bool mu__has_local_copies(const mu_strategy *strategy, const mu_variable *variable);
bool mu__has_own_copies(const mu_strategy *strategy, const mu_variable *variable);
mu_tensor *mu__read_components(mu_variable *variable);

// Values (cross_device.c, local_results.c, extended.c, replica_parts.c). Plain: one replica, whose values are not
// wrapped.
mu_value *mu__reduce_plain(const mu_reducing *r, mu_value *value);
mu_value *mu__reduce_local(const mu_reducing *r, mu_value *value);
mu_value *mu__reduce_workers(const mu_reducing *r, mu_value *value);
mu_status mu__batch_reduce_local(mu_strategy *strategy, mu_reduce_op op, const mu_value *values, mu_value **out);
mu_status mu__batch_reduce_each(mu_strategy *strategy, mu_reduce_op op, const mu_value *values, mu_value **out);
mu_value *mu__gather_local(mu_strategy *strategy, mu_value *value, int axis);
mu_value *mu__gather_workers(mu_strategy *strategy, mu_value *value, int axis);
mu_value *mu__results_plain(const mu_strategy *strategy, mu_value *value);
mu_value *mu__results_local(const mu_strategy *strategy, mu_value *value);
mu_value *mu__components_local(mu_variable *variable);
mu_value *mu__update_plain(const mu_updating *u);
mu_value *mu__update_copies(const mu_updating *u);
mu_value *mu__update_central(const mu_updating *u);
mu_value *mu__broadcast_plain(mu_value *value, int copies);
mu_value *mu__broadcast_copies(mu_value *value, int copies);
mu_value *mu__copy_local(mu_value *value);
mu_value *mu__distribute_plain(mu_strategy *strategy, mu_value_fn *fn, void *arg);
mu_value *mu__distribute_each(mu_strategy *strategy, mu_value_fn *fn, void *arg);

// The same on the nodes that symbolic values stand for (traced_values.c).
mu_value *mu__traced_reduce(const mu_reducing *r, mu_value *value);
mu_value *mu__traced_reduce_workers(const mu_reducing *r, mu_value *value);
mu_status mu__traced_batch_reduce(mu_strategy *strategy, mu_reduce_op op, const mu_value *values, mu_value **out);
mu_value *mu__traced_gather(mu_strategy *strategy, mu_value *value, int axis);
mu_value *mu__traced_gather_workers(mu_strategy *strategy, mu_value *value, int axis);
mu_value *mu__traced_results(const mu_strategy *strategy, mu_value *value);
mu_value *mu__traced_components(mu_variable *variable);
mu_tensor *mu__traced_first_copy(mu_variable *variable);
mu_tensor *mu__traced_read(mu_variable *variable);
mu_value *mu__traced_update(const mu_updating *u);
mu_value *mu__traced_broadcast(mu_value *value, int copies);
mu_value *mu__traced_copy(mu_value *value);
mu_value *mu__traced_distribute_values(mu_strategy *strategy, mu_value_fn *fn, void *arg);
mu_running *mu__traced_run(mu_strategy *strategy, mu_function *function, mu_value *arguments);
mu_value *mu__traced_run_callback(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments);

// What differs under TPUStrategy (tpu_strategy.c).
mu_status mu__tpu_usable(const mu_strategy *strategy);
const char *mu__tpu_device_name(const mu_strategy *strategy, int i);
mu_value *mu__tpu_run_callback(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments);

// What several workers do in cross-worker slots (like.c).
mu_status mu__workers_join_specs(mu_strategy *strategy, int n, mu_spec *specs);

// Input (sharding.c, input.c, worker_input.c).
mu_shard_plan mu__shard_local(mu_strategy *strategy, mu_dataset *dataset);
mu_shard_plan mu__shard_workers(mu_strategy *strategy, mu_dataset *dataset);
// mu__known_spec returns the structure of elements as far as it is known before one is read; NULL without an error if
// it is not.
mu_value *mu__known_spec(const mu_dataset *dataset);
mu_value *mu__next_step_local(mu_strategy *strategy, mu_step_input *input, mu_value *own);
mu_value *mu__next_step_workers(mu_strategy *strategy, mu_step_input *input, mu_value *own);

// Running (strategy_run.c, run_callback.c).
mu_running *mu__run_replicas(mu_strategy *strategy, mu_function *function, mu_value *arguments);
mu_value *mu__wait_replicas(mu_running *running);
mu_value *mu__run_callback_replicas(mu_strategy *strategy, mu_replica_fn *fn, void *arg, mu_value *arguments);
mu_running *mu__run_served(mu_strategy *strategy, mu_function *function, mu_value *arguments); // (served_run.c)
mu_value *mu__wait_served(mu_running *running);

#endif
