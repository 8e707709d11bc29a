// Strategies: how a model's variables and steps are spread over devices. The names and the behaviour are
// those of tf.distribute.
#ifndef MUSTER_DISTRIBUTE_H
#define MUSTER_DISTRIBUTE_H

#include <muster/cluster.h>
#include <muster/comm.h>
#include <muster/data.h>
#include <muster/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_strategy mu_strategy;

typedef enum mu_reduce_op { MU_SUM = 0, MU_MEAN = 1 } mu_reduce_op;

// ---- Making strategies --------------------------------------------------------------------------

typedef struct mu_cross_device_ops mu_cross_device_ops;

typedef struct mu_mirrored_strategy_args {
    size_t size;
    const char *const *devices;  // names, the last one NULL; default: every device
    mu_keyword_only only_;
    int replicas;                // or: the first so many devices
    mu_cross_device_ops *cross_device_ops;  // default: in replica order
} mu_mirrored_strategy_args;

// mu_mirrored_strategy keeps a copy of each variable on every device and all-reduces the gradients.
// Errors: INVALID_ARGUMENT for an unknown device, one named twice, none, or more replicas than devices.
#define mu_mirrored_strategy(...) \
    mu_mirrored_strategy_with(MU_ARGS(mu_mirrored_strategy_args, __VA_ARGS__))
MU_API mu_strategy *mu_mirrored_strategy_with(const mu_mirrored_strategy_args *args);

// Ways to reduce values of several replicas. num_packs: tensors reduced together are put into so many packs of
// equal size, the last one takes the rest; 0: each by itself.
MU_API mu_cross_device_ops *mu_reduction_to_one_device(void);        // one after the other, in replica order
MU_API mu_cross_device_ops *mu_hierarchical_copy(int num_packs);     // two halves first; any number of devices
// mu_nccl_all_reduce is for XLA GPU devices; where there are none the default way is used, with one warning in the log.
MU_API mu_cross_device_ops *mu_nccl_all_reduce(int num_packs);
// mu_cross_device_ops_new makes one of your own: `reduce` returns the sum or mean of n tensors of one type and shape,
// with that type and shape; to fail it calls mu_fail and returns NULL. In compiled functions every replica calls it, at
// the same time, with the same tensors: it must be thread-safe, and give all of them the same.
MU_API mu_cross_device_ops *
mu_cross_device_ops_new(mu_tensor *(*reduce)(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg), void *arg);

// Ways of reducing can be used directly: mu_cross_device_reduce reduces the components of a value (per replica or
// mirrored, a variable, or one tensor) and puts the result on as many devices as `like` is on, mirrored with several;
// mu_cross_device_batch_reduce does so with a list of values and one of as many destinations; mu_cross_device_broadcast
// copies a tensor, always mirrored. Indexed slices are put behind each other.
// Errors: INVALID_ARGUMENT for a list or map as value or destination, lists of unequal length, NULL, and for components
// that differ in type or shape.
MU_API mu_value *mu_cross_device_reduce(mu_cross_device_ops *ops, mu_reduce_op op, mu_value *value, mu_value *like);
MU_API mu_value *mu_cross_device_batch_reduce(mu_cross_device_ops *ops, mu_reduce_op op, mu_value *values,
                                              mu_value *likes);
MU_API mu_value *mu_cross_device_broadcast(mu_cross_device_ops *ops, mu_tensor *tensor, mu_value *like);

typedef struct mu_central_storage_strategy_args {
    size_t size;
    const char *const *compute_devices;  // names, the last one NULL; default: every XLA device, or else "CPU:0"
    const char *parameter_device;        // default: the compute device if there is one, else "CPU:0"
    mu_keyword_only only_;
    int replicas;                        // instead of names: the first so many devices
} mu_central_storage_strategy_args;

// mu_central_storage_strategy keeps one copy of each variable, on the parameter device, for all replicas: they read
// it, and what they assign is put together and assigned once, as the variable's aggregation says (NONE: an error;
// synchronisation means nothing). Scatters act as they are, one replica's after the other's.
// Errors: as mu_mirrored_strategy.
#define mu_central_storage_strategy(...) \
    mu_central_storage_strategy_with(MU_ARGS(mu_central_storage_strategy_args, __VA_ARGS__))
MU_API mu_strategy *mu_central_storage_strategy_with(const mu_central_storage_strategy_args *args);

typedef struct mu_multi_worker_mirrored_strategy_args {
    size_t size;
    mu_cluster *cluster_resolver;  // default: mu_cluster_from_environment; retained
    mu_keyword_only only_;
    mu_communication communication;  // ahead of the options' implementation
    const mu_communication_options *communication_options;
} mu_multi_worker_mirrored_strategy_args;

// mu_multi_worker_mirrored_strategy is mu_mirrored_strategy over every device of every worker of a cluster: each worker
// runs the same program, and what concerns all replicas (making variables, reduce, gather, reading ON_READ variables,
// input) is done by all workers together, in the same order. Without a cluster it has this process's devices only.
// A second strategy of the same cluster uses the connections of the first one; a process is in one cluster at a time.
// Workers of one host that may run on the same cores divide them, and have as many devices as their part has cores
// (MUSTER_CPU_DEVICES chooses another number). With `deterministic` in the options all replicas of the job have as many
// threads as the one with fewest.
// After any failure on any worker (a failed step or reduction, a lost worker) the job is dead: every later call on
// every worker fails with the error of that first failure. End the process and start the job again, from a checkpoint.
// Blocks: until all workers have joined (MUSTER_TIMEOUT); after 10 s the log says who is missing, and from where
// connections came that did not prove the cluster's key.
// Errors: INVALID_ARGUMENT for a cluster that cannot be, or that does not say which task this is; DEADLINE_EXCEEDED
// naming who is missing, also where a worker has another key; FAILED_PRECONDITION if workers differ in version or in
// number of devices, the cluster's variables changed after the first strategy was made, or an earlier strategy of this
// process has another cluster.
#define mu_multi_worker_mirrored_strategy(...) \
    mu_multi_worker_mirrored_strategy_with(MU_ARGS(mu_multi_worker_mirrored_strategy_args, __VA_ARGS__))
MU_API mu_strategy *mu_multi_worker_mirrored_strategy_with(const mu_multi_worker_mirrored_strategy_args *args);

// mu_strategy_cluster_resolver is the cluster that a strategy was made from, NULL for those of one process.
// mu_strategy_worker_count and _index say how many processes there are, and which this is. Files that only one of
// them may write are the chief's, worker 0's: mu_strategy_should_checkpoint, and _should_save_summary for logs.
MU_API mu_cluster *mu_strategy_cluster_resolver(const mu_strategy *strategy);
MU_API int mu_strategy_worker_count(const mu_strategy *strategy);
MU_API int mu_strategy_worker_index(const mu_strategy *strategy);
MU_API bool mu_strategy_should_checkpoint(const mu_strategy *strategy);
MU_API bool mu_strategy_should_save_summary(const mu_strategy *strategy);
// Properties that TensorFlow's StrategyExtended answers: between_graph is true for central storage and for several
// workers, should_init always (each process makes its variables), require_static_shapes never.
MU_API bool mu_strategy_between_graph(const mu_strategy *strategy);
MU_API bool mu_strategy_should_init(const mu_strategy *strategy);
MU_API bool mu_strategy_require_static_shapes(const mu_strategy *strategy);

// mu_one_device_strategy puts everything on one device ("CPU:0").
MU_API mu_strategy *mu_one_device_strategy(const char *device);

// mu_default_strategy is the one in force where no scope is open.
MU_API mu_strategy *mu_default_strategy(void);

// ---- Contexts -----------------------------------------------------------------------------------

MU_API mu_strategy *mu_get_strategy(void);
MU_API bool mu_has_strategy(void);
MU_API bool mu_in_cross_replica_context(void);

MU_API int mu_num_replicas_in_sync(const mu_strategy *strategy);
MU_API const char *mu_strategy_name(const mu_strategy *strategy);

// A scope is open from mu_scope_open to mu_scope_close; variables made inside belong to the strategy.
// MU_SCOPE(strategy) { … } does both. Its body runs once even if the strategy is NULL (with an error
// pending nothing is made); return, goto and break may not leave it.
typedef struct mu_scope_guard {
    void *scope;
    bool once;
} mu_scope_guard;
MU_API mu_scope_guard mu_scope_open(mu_strategy *strategy);
MU_API void mu_scope_close(mu_scope_guard *guard);
#define MU_SCOPE(strategy) MU_SCOPE_AT(strategy, __LINE__)
#define MU_SCOPE_AT(strategy, line) MU_SCOPE_AS(strategy, line)  // a name per line: nested scopes shadow nothing
#define MU_SCOPE_AS(strategy, line) \
    for (mu_scope_guard mu_in_##line = mu_scope_open(strategy); mu_in_##line.once; mu_scope_close(&mu_in_##line))

// mu_set_strategy makes a strategy the one in force without a block, until it is replaced (NULL: none) or the
// pool that is open here closes. Errors: FAILED_PRECONDITION inside a scope or a replica.
MU_API mu_status mu_set_strategy(mu_strategy *strategy);

// mu_colocate_open is mu_scope_open for variables on the devices of another one.
// Errors: FAILED_PRECONDITION outside of the strategy's scope; INVALID_ARGUMENT for a variable of another one.
MU_API mu_scope_guard mu_colocate_open(mu_strategy *strategy, mu_variable *variable);
#define MU_COLOCATE(strategy, variable) \
    for (mu_scope_guard mu_scope_ = mu_colocate_open(strategy, variable); mu_scope_.once; mu_scope_close(&mu_scope_))

// mu_strategy_device_count and _device tell a strategy's devices; -1 and NULL for the default one
// (FAILED_PRECONDITION).
MU_API int mu_strategy_device_count(const mu_strategy *strategy);
MU_API const char *mu_strategy_device(const mu_strategy *strategy, int i);

// mu_strategy_parameter_device_count and _parameter_device tell where variables live: for central storage its one
// parameter device, else the strategy's devices.
MU_API int mu_strategy_parameter_device_count(const mu_strategy *strategy);
MU_API const char *mu_strategy_parameter_device(const mu_strategy *strategy, int i);

// mu_variable_strategy returns the strategy that a variable was made under, NULL for none.
MU_API mu_strategy *mu_variable_strategy(const mu_variable *variable);
// mu_variable_created_in_scope: was it made under this strategy; for the default one: under none.
MU_API bool mu_variable_created_in_scope(const mu_strategy *strategy, const mu_variable *variable);
// mu_variable_component_count is the number of copies; mu_variable_component_name writes the name of one as
// snprintf does ("w", "w/replica_1", …).
MU_API int mu_variable_component_count(const mu_variable *variable);
MU_API int mu_variable_component_name(const mu_variable *variable, int component, char *name, size_t bytes);

// ---- Running ------------------------------------------------------------------------------------

// From here on a strategy that is NULL (with no error pending) is the default one.

// mu_run runs a traced function on every replica at the same time and returns its results, per replica.
// `arguments`: per-replica values give each replica its component, other values go to all; NULL: none. Tensors of one
// argument may differ between replicas in sizes along any axis. What a function returns from outside of it comes back
// as one value, what it has made as a value per replica.
// Errors: INVALID_ARGUMENT for a per-replica or mirrored value with another number of components than there are local
// replicas, here and in all functions below that take values, and if replicas' tensors differ in type or number of
// axes; whatever a replica failed with; the others are released. Also when the function returns nothing
// the result is not NULL (an empty list), so NULL always means failure.
MU_API mu_value *mu_run(mu_strategy *strategy, mu_function *function, mu_value *arguments);

// mu_function_call calls a function from anywhere: while another one is traced it becomes part of that, in a replica
// of mu_run_callback it is done there eagerly, and otherwise it is run by the default strategy. Several threads may
// call and run one function at the same time: it is traced by one of them while the others wait, and runs on one
// device follow each other. Errors: FAILED_PRECONDITION for functions that call each other without end.
MU_API mu_value *mu_function_call(mu_function *function, mu_value *arguments);

// mu_run_callback calls a C function for every local replica, eagerly: one replica at a time, which runs until it
// meets the others (mu_merge_call, a collective, an assignment that aggregates) or ends, so the function needs no
// locks. Arguments and results as in mu_run; a callback fails with mu_fail, and what it fails with is returned.
// What was assigned before a failure stays assigned, on all replicas alike. What the callback makes, variables too,
// is freed when it ends unless it is returned or retained.
// Errors: FAILED_PRECONDITION if replicas make different numbers of merge or collective calls, or meet for different
// ones, or for different variables: both are named, and nothing is written.
MU_API mu_value *mu_run_callback(mu_strategy *strategy, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                                 mu_value *arguments);

// mu_reduce adds or averages over replicas; mu_reduce_axis also over an axis inside each replica, where
// MEAN weighs every element alike.
// Errors: INVALID_ARGUMENT if replicas differ in type or shape; with an axis sizes along it may differ.
MU_API mu_value *mu_reduce(mu_strategy *strategy, mu_reduce_op op, mu_value *value);
MU_API mu_value *mu_reduce_axis(mu_strategy *strategy, mu_reduce_op op, mu_value *value, int axis);
// mu_reduce_axes reduces over several axes inside each replica, 1 to MU_MAX_RANK of them.
MU_API mu_value *mu_reduce_axes(mu_strategy *strategy, mu_reduce_op op, mu_value *value, int n_axes, const int *axes);

// mu_reduce_op_from_name knows "sum" and "mean" in any case. Errors (-1): INVALID_ARGUMENT.
MU_API int mu_reduce_op_from_name(const char *name);

// mu_strategy_gather concatenates the replicas' values along an axis, in replica order; of a nest each leaf. What is
// the same everywhere comes back as it is, but for tensors of several workers, each of which has its own.
// Errors: INVALID_ARGUMENT if ranks differ, or sizes of other axes; UNIMPLEMENTED for indexed slices.
MU_API mu_value *mu_strategy_gather(mu_strategy *strategy, mu_value *value, int axis);

// mu_local_results returns a list with one element per local replica: of a per-replica or mirrored value and of a
// variable its components, of a nest one whole nest for each. Anything else is the one element.
MU_API mu_value *mu_local_results(mu_strategy *strategy, mu_value *value);

// mu_distribute_values makes a per-replica value of what fn returns for each local replica.
typedef struct mu_value_context {
    int replica_id, num_replicas;
} mu_value_context;
MU_API mu_value *mu_distribute_values(mu_strategy *strategy,
                                      mu_value *(*fn)(const mu_value_context *context, void *arg), void *arg);

// mu_reduce_to reduces as mu_reduce and puts the result where it is wanted: mirrored with several destinations,
// plain with one.
typedef struct mu_reduce_to_args {
    size_t size;
    mu_strategy *strategy;
    mu_reduce_op op;
    mu_value *value;
    mu_keyword_only only_;
    mu_value *like;                 // the devices of this variable or value; default: the host
    const char *const *devices;     // or these, the last one NULL
} mu_reduce_to_args;
#define mu_reduce_to(...) mu_reduce_to_with(MU_ARGS(mu_reduce_to_args, __VA_ARGS__))
MU_API mu_value *mu_reduce_to_with(const mu_reduce_to_args *args);

// mu_batch_reduce_to reduces a list of values, each to the devices of its like in the second list (NULL: its own).
MU_API mu_value *mu_batch_reduce_to(mu_strategy *strategy, mu_reduce_op op, mu_value *values, mu_value *likes);

typedef struct mu_broadcast_to_devices_args {
    size_t size;
    mu_strategy *strategy;
    mu_value *value;
    mu_value *like;                 // the devices of this variable or value
    mu_keyword_only only_;
    const char *const *devices;     // or these, the last one NULL
} mu_broadcast_to_devices_args;

// mu_broadcast_to_devices copies a value to devices; mirrored with several, plain with one.
#define mu_broadcast_to_devices(...) mu_broadcast_to_devices_with(MU_ARGS(mu_broadcast_to_devices_args, __VA_ARGS__))
MU_API mu_value *mu_broadcast_to_devices_with(const mu_broadcast_to_devices_args *args);

// mu_update_variable calls fn for each copy of a variable, on its device; inside, the variable (and every other
// distributed one) is that copy. Per-replica arguments give each its component. On replicas it is a merge_call.
// The results are grouped as a mirrored value, or with .local_results a list with one for each copy.
typedef struct mu_update_variable_args {
    size_t size;
    mu_strategy *strategy;
    mu_variable *variable;
    mu_value *(*fn)(mu_variable *variable, mu_value *arguments, void *arg);
    void *arg;
    mu_value *arguments;
    mu_keyword_only only_;
    bool local_results;
} mu_update_variable_args;
#define mu_update_variable(...) \
    mu_update_variable_with(MU_ARGS(mu_update_variable_args, __VA_ARGS__))
MU_API mu_value *mu_update_variable_with(const mu_update_variable_args *args);

// mu_update_non_slot calls fn once for each device that variables without a slot live on: all of them, for central
// storage the parameter device. Errors: FAILED_PRECONDITION on replicas; call it in a mu_merge_call.
MU_API mu_value *mu_update_non_slot(mu_strategy *strategy, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                                    mu_value *arguments);

// The scatter family changes rows of a variable: indices [n] of int32 or int64, values [n, …]. On replicas the
// variable's aggregation puts the replicas' slices behind each other (MEAN divides the values). Indices and values that
// are both from outside of the replica function are one value for all replicas, as with mu_variable_assign.
// Errors: INVALID_ARGUMENT for SUM of such slices, and for integers with aggregation MEAN that are per-replica;
// UNIMPLEMENTED for ON_READ variables, and for min, max and update with aggregation SUM or MEAN.
MU_API mu_status mu_variable_scatter_add(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_sub(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_mul(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_div(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_min(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_max(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_update(mu_variable *variable, mu_tensor *indices, mu_tensor *values);

// ---- Inside a function that runs on replicas ----------------------------------------------------

// mu_replica_id returns this replica's id in the group, an int32 scalar; 0 where no strategy is in force.
// Errors: FAILED_PRECONDITION in the cross-replica state. mu_replica_count says how many there are; 1 outside.
MU_API mu_tensor *mu_replica_id(void);
MU_API int mu_replica_count(void);

// mu_merge_call waits until every replica has called it, then calls fn of the first once, in the cross-replica
// state, with the replicas' arguments per replica; each replica gets its part of the result.
// While a function is traced for several replicas fn is called once, with values that stand for those of all
// replicas: they can be reduced, gathered, taken apart with mu_local_results, and given to updates.
// Errors: UNIMPLEMENTED for anything else with such a value; FAILED_PRECONDITION where replicas call it different
// numbers of times, in the cross-replica state, and in the body of a loop or branch of a traced function.
MU_API mu_value *mu_merge_call(mu_value *(*fn)(mu_strategy *strategy, mu_value *arguments, void *arg), void *arg,
                               mu_value *arguments);

// mu_all_reduce reduces over all replicas; every replica gets the result. The mean of integers is a float64.
// Collective.
MU_API mu_tensor *mu_all_reduce(mu_reduce_op op, mu_tensor *value);

// mu_all_gather concatenates the replicas' tensors along an axis, in replica order; every replica gets the whole.
// They may differ in size along the axis. Collective.
MU_API mu_tensor *mu_all_gather(mu_tensor *value, int axis);
// The same for nests, variables (their component on this replica) and, for reductions, indexed slices.
MU_API mu_value *mu_all_reduce_value(mu_reduce_op op, mu_value *value);
MU_API mu_value *mu_all_gather_value(mu_value *value, int axis);
// mu_sync_on_read switches on or off that this replica reads ON_READ variables as they are seen outside of
// replicas: such a read is a collective.
MU_API mu_status mu_sync_on_read(bool on);

// ---- Input --------------------------------------------------------------------------------------

// mu_distribute_dataset splits each batch of `dataset` (a global batch) among the replicas: nothing is
// dropped or repeated; parts differ by one element at most, and may be empty at the end. Use it with MU_EACH, or
// mu_iterate and mu_next.
typedef struct mu_distributed_dataset mu_distributed_dataset;
MU_API mu_distributed_dataset *mu_distribute_dataset(mu_strategy *strategy, mu_dataset *dataset);

// Which pipelines there are: one for each worker, or for each replica.
typedef enum mu_input_replication_mode { MU_PER_WORKER = 0, MU_PER_REPLICA = 1 } mu_input_replication_mode;

// Batches lie in the host's memory, which CPU devices compute in; so of TensorFlow's options only the mode changes
// what happens here. Those that contradict each other are refused as they are there.
typedef struct mu_input_options {
    bool no_fetch_to_device;                    // default: batches are brought to the replicas' devices
    mu_input_replication_mode replication_mode;
    bool place_dataset_on_device;               // only with MU_PER_REPLICA and no_fetch_to_device
    int per_replica_buffer_size;                // batches fetched ahead for each replica; default 1
} mu_input_options;

// mu_distribute_dataset_options is mu_distribute_dataset with options (NULL: defaults).
// Errors: UNIMPLEMENTED for MU_PER_REPLICA: one dataset is not iterated once for each replica.
MU_API mu_distributed_dataset *mu_distribute_dataset_options(mu_strategy *strategy, mu_dataset *dataset,
                                                             const mu_input_options *options);

// What a function that makes an input pipeline is told; num_input_pipelines and num_replicas_in_sync 0 count as 1.
typedef struct mu_input_context {
    int num_input_pipelines, input_pipeline_id, num_replicas_in_sync;
} mu_input_context;

// mu_distribute_datasets_from_function distributes a dataset that fn makes, whose elements are what one replica
// gets: a step takes one for each replica, and near the end some replicas get an empty batch.
MU_API mu_distributed_dataset *
mu_distribute_datasets_from_function(mu_strategy *strategy,
                                     mu_dataset *(*fn)(const mu_input_context *context, void *arg), void *arg);

// mu_distribute_datasets_from_function_options is the same with options (NULL: defaults). With MU_PER_REPLICA fn is
// called for each replica, which is an input pipeline of its own then. Errors: UNIMPLEMENTED for that mode under
// another strategy than mu_mirrored_strategy; INVALID_ARGUMENT for options that contradict each other.
MU_API mu_distributed_dataset *
mu_distribute_datasets_from_function_options(mu_strategy *strategy,
                                             mu_dataset *(*fn)(const mu_input_context *context, void *arg), void *arg,
                                             const mu_input_options *options);

// mu_distributed_element_spec tells what a step gets: symbolic tensors with type and shape (MU_UNKNOWN where it may
// change, as the rows of a replica's part mostly do), per replica where there are several on this worker.
// Errors: FAILED_PRECONDITION where only an element would tell, as mu_dataset_element_spec.
MU_API mu_value *mu_distributed_element_spec(mu_distributed_dataset *distributed);

// mu_per_replica_batch_size divides a global batch among the replicas. Errors (-1): INVALID_ARGUMENT if it
// cannot be divided evenly.
MU_API int64_t mu_per_replica_batch_size(const mu_input_context *context, int64_t global_batch_size);

#ifdef __cplusplus
}
#endif
#endif
