// Strategies: how a model's variables and steps are distributed over devices. Names and behaviour are those of
// tf.distribute.
//
// Errors: a question about a strategy does not fail, unless it names an error; for NULL it returns NULL, 0 or false, or
// what holds for the default strategy. What works with several replicas fails with FAILED_PRECONDITION in the scope of
// another strategy, where it is called on a replica and not for one (mu_run, mu_reduce), or on none and for one
// (mu_all_reduce), and under a strategy whose TPU was lost. A function that XLA devices run fails with UNIMPLEMENTED
// for what they cannot do. What needs a plugin's devices first fails with NOT_FOUND if the plugin is not there, and
// with FAILED_PRECONDITION or UNIMPLEMENTED if it cannot be used; what waits for other replicas or workers with
// DEADLINE_EXCEEDED, UNAVAILABLE and CANCELLED (muster/base.h).
#ifndef MUSTER_DISTRIBUTE_H
#define MUSTER_DISTRIBUTE_H

#include <muster/cluster.h>
#include <muster/comm.h>
#include <muster/data.h>
#include <muster/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_strategy mu_strategy; // how variables and steps are distributed over devices

typedef enum mu_reduce_op { MU_SUM = 0, MU_MEAN = 1 } mu_reduce_op;

// ---- Making strategies --------------------------------------------------------------------------

typedef struct mu_cross_device_ops mu_cross_device_ops; // a way to reduce the values of several replicas

typedef struct mu_mirrored_strategy_args {
    size_t size;
    const char *given;
    const char *const *devices; // names, ends with NULL or MU_END; default: see below
    mu_keyword_only only_;
    int replicas;                          // or: how many of the first default devices
    mu_cross_device_ops *cross_device_ops; // default: reduce in replica order; retained
} mu_mirrored_strategy_args;

// mu_mirrored_strategy keeps a copy of each variable on every device and all-reduces the gradients. The default devices
// of every strategy are those of the plugin that MUSTER_PJRT names, else all visible GPUs of the first GPU plugin that
// starts (CUDA_VISIBLE_DEVICES counts), else the CPU devices; never devices of two kinds. Errors: INVALID_ARGUMENT for
// a device that is unknown, whose plugin is not there or cannot be used (the message says why) or that is named twice,
// for devices of two kinds, no devices, and more replicas than devices; NOT_FOUND if MUSTER_PJRT names no plugin,
// FAILED_PRECONDITION if it cannot be used; FAILED_PRECONDITION for devices of another process.
#define mu_mirrored_strategy(...) \
    mu_mirrored_strategy_with(MU_ARGS(mu_mirrored_strategy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_strategy *mu_mirrored_strategy_with(const mu_mirrored_strategy_args *args);

// Ways to reduce the values of several replicas. num_packs: tensors reduced together are split into this many packs of
// equal size, and the last pack takes the remainder; 0: each tensor by itself.
MU_API mu_cross_device_ops *mu_reduction_to_one_device(void); // adds in replica order
// mu_hierarchical_copy adds within each half of the devices first, then the two sums; any number of devices.
// num_packs: as above.
MU_API mu_cross_device_ops *mu_hierarchical_copy(int num_packs);
// mu_nccl_all_reduce is for functions that replicas on XLA GPU devices run. Outside of functions and on other devices
// values are reduced in replica order, with one warning in the log.
MU_API mu_cross_device_ops *mu_nccl_all_reduce(int num_packs);
// mu_cross_device_ops_new makes a user-defined way to reduce. `reduce` returns the sum or mean of n tensors of one type
// and shape, with that type and shape; to fail, it calls mu_fail and returns NULL. In compiled functions every replica
// calls it at the same time with the same tensors, so it must be thread-safe and return the same result to all.
MU_API mu_cross_device_ops *
mu_cross_device_ops_new(mu_tensor *(*reduce)(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg), void *arg);

// Direct use. mu_cross_device_reduce reduces the components of a value (a per-replica or mirrored value, a variable, or
// one tensor) and puts the result on the devices of `like`: mirrored if there are several. mu_cross_device_batch_reduce
// reduces a list of values to a list of as many destinations. mu_cross_device_broadcast copies a tensor to the devices
// of `like`; the result is always mirrored. Indexed slices are concatenated. Errors: INVALID_ARGUMENT for a list or map
// as value or destination, lists of different lengths, NULL, and components that differ in type or shape.
MU_API mu_value *mu_cross_device_reduce(mu_cross_device_ops *ops, mu_reduce_op op, mu_value *value, mu_value *like);
MU_API mu_value *mu_cross_device_batch_reduce(mu_cross_device_ops *ops, mu_reduce_op op, mu_value *values,
                                              mu_value *likes);
MU_API mu_value *mu_cross_device_broadcast(mu_cross_device_ops *ops, mu_tensor *tensor, mu_value *like);

typedef struct mu_central_storage_strategy_args {
    size_t size;
    const char *given;
    const char *const *compute_devices; // names, ends with NULL or MU_END; default: as of mirrored, but one CPU
    const char *parameter_device;       // default: the compute device if there is only one, else "CPU:0"
    mu_keyword_only only_;
    int replicas; // instead of names: how many of the first devices
} mu_central_storage_strategy_args;

// mu_central_storage_strategy keeps one copy of each variable, on the parameter device, for all replicas. Replicas read
// that copy. What they assign is combined by the variable's aggregation and assigned once (aggregation NONE is an
// error; synchronization is ignored). Scatter updates are applied one replica after the other. Errors: as
// mu_mirrored_strategy.
#define mu_central_storage_strategy(...) \
    mu_central_storage_strategy_with(MU_ARGS(mu_central_storage_strategy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_strategy *mu_central_storage_strategy_with(const mu_central_storage_strategy_args *args);

typedef struct mu_multi_worker_mirrored_strategy_args {
    size_t size;
    const char *given;
    mu_cluster *cluster_resolver; // default: mu_cluster_from_environment; retained
    mu_keyword_only only_;
    mu_communication communication;                        // overrides the implementation in the options
    const mu_communication_options *communication_options; // default: the library chooses
} mu_multi_worker_mirrored_strategy_args;

// mu_multi_worker_mirrored_strategy is mu_mirrored_strategy over all devices of all workers of a cluster. Each worker
// runs the same program. Operations that concern all replicas (making variables, reduce, gather, reading ON_READ
// variables, input) are collective: all workers call them in the same order. Without a cluster the strategy uses this
// process's devices only. A second strategy on the same cluster shares the first one's connections. A process belongs
// to one cluster at a time. Workers on one host that may use the same cores divide the cores, and each has as many
// devices as its share has cores (MUSTER_CPU_DEVICES sets another number). With `deterministic` in the options, every
// replica of the job uses as many threads as the replica with the fewest. After any failure on any worker (a failed
// step or reduction, a lost worker) the job is dead: every later call on every worker fails with the first failure's
// error. End the processes and restart the job from a checkpoint. Blocks: until all workers have joined
// (MUSTER_TIMEOUT). After 10 s the log lists the missing workers, and the hosts whose connections did not prove the
// cluster's key. Errors: INVALID_ARGUMENT for an invalid cluster, or one that does not name this process's task;
// DEADLINE_EXCEEDED naming the missing workers (also if a worker has another key); FAILED_PRECONDITION if workers
// differ in version or in number of devices, if the cluster's variables changed after the first strategy was made, or
// if an earlier strategy of this process uses another cluster; DATA_LOSS for a message of a worker that cannot be read;
// UNAUTHENTICATED for an address of this worker that is not on the loopback if there is no cluster key;
// PERMISSION_DENIED if this process has the key of one worker (`muster key --for`), or names UCX without
// MUSTER_TRUSTED_NETWORK=1.
#define mu_multi_worker_mirrored_strategy(...) \
    mu_multi_worker_mirrored_strategy_with(MU_ARGS(mu_multi_worker_mirrored_strategy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_strategy *mu_multi_worker_mirrored_strategy_with(const mu_multi_worker_mirrored_strategy_args *args);

// mu_strategy_cluster_resolver returns the strategy's cluster, which belongs to it; NULL for strategies of one process.
// mu_strategy_worker_count and _index return the number of worker processes and this worker's index. Only the chief,
// worker 0, writes shared files: mu_strategy_should_checkpoint, and _should_save_summary for logs, are true there.
MU_API mu_cluster *mu_strategy_cluster_resolver(const mu_strategy *strategy);
MU_API int mu_strategy_worker_count(const mu_strategy *strategy);
MU_API int mu_strategy_worker_index(const mu_strategy *strategy);
MU_API bool mu_strategy_should_checkpoint(const mu_strategy *strategy);
MU_API bool mu_strategy_should_save_summary(const mu_strategy *strategy);
// mu_strategy_between_graph, _should_init and _require_static_shapes are properties of TensorFlow's StrategyExtended:
// between_graph is true for central storage and for several workers, should_init is always true (each process makes its
// variables), require_static_shapes is true for mu_tpu_strategy.
MU_API bool mu_strategy_between_graph(const mu_strategy *strategy);
MU_API bool mu_strategy_should_init(const mu_strategy *strategy);
MU_API bool mu_strategy_require_static_shapes(const mu_strategy *strategy);

// mu_one_device_strategy puts all variables and computation on one device, such as "CPU:0". Errors: as
// mu_mirrored_strategy.
MU_API mu_strategy *mu_one_device_strategy(const char *device);

// mu_default_strategy returns the strategy that applies outside of all scopes; it belongs to the runtime.
MU_API mu_strategy *mu_default_strategy(void);

// ---- Contexts -----------------------------------------------------------------------------------

// mu_get_strategy: the strategy in force here: of the replica, else of the scope, else the default strategy.
MU_API mu_strategy *mu_get_strategy(void);
MU_API bool mu_has_strategy(void);             // whether a strategy other than the default one is in force here
MU_API bool mu_in_cross_replica_context(void); // whether this is in a scope (or a merge call), not on a replica

MU_API int mu_num_replicas_in_sync(const mu_strategy *strategy);  // replicas over all workers; 1 for NULL
MU_API const char *mu_strategy_name(const mu_strategy *strategy); // such as "MirroredStrategy" (static storage)

// A scope is open from mu_scope_open to mu_scope_close. Variables made inside belong to the strategy, which the scope
// retains. MU_SCOPE(strategy) { … } opens and closes it around a block. The block runs once, even if the strategy is
// NULL (the pending error then makes all calls fail). Do not leave it with return, goto or break. Errors:
// FAILED_PRECONDITION on a replica, or in the scope of another strategy.
typedef struct mu_scope_guard {
    void *scope;
    bool once;
} mu_scope_guard;
MU_API mu_scope_guard mu_scope_open(mu_strategy *strategy);
MU_API void mu_scope_close(mu_scope_guard *guard);
#define MU_SCOPE(strategy) MU_SCOPE_AT(strategy, __LINE__)
// one name per line, so that nested scopes do not shadow
#define MU_SCOPE_AT(strategy, line) MU_SCOPE_AS(strategy, line)
#define MU_SCOPE_AS(strategy, line) \
    for (mu_scope_guard mu_in_##line = mu_scope_open(strategy); mu_in_##line.once; mu_scope_close(&mu_in_##line))

// mu_set_strategy makes a strategy current without a block, until another one is set (NULL: none) or the pool that is
// innermost now closes. Retains: strategy. Errors: FAILED_PRECONDITION inside a scope or a replica.
MU_API mu_status mu_set_strategy(mu_strategy *strategy);

// mu_set_device makes one device current, such as "CPU:1" (NULL: none): variables that are made and functions that run
// from here on use it, as under mu_one_device_strategy. On an XLA device ("GPU:0") eager ops use it too: each is
// compiled once for the types and shapes of its inputs, and its result stays on the device until it is read. What a
// device program cannot do, the host does. It does not change what belongs to another strategy: its functions and
// scopes may be used, its variables stay where they are, and mu_variable_read of one with a copy on every device reads
// the copy on this device, if there is one, else the first. It lasts as mu_set_strategy does. Errors: those of
// mu_one_device_strategy and mu_set_strategy.
MU_API mu_status mu_set_device(const char *device);

// mu_colocate_open is mu_scope_open for variables that go on the devices of `variable`. In a function that runs on
// replicas, whose variables all do, and for the default strategy it opens nothing. Errors: FAILED_PRECONDITION outside
// of the strategy's scope, and on replicas of mu_parameter_server_strategy; INVALID_ARGUMENT for a variable of another
// strategy.
MU_API mu_scope_guard mu_colocate_open(mu_strategy *strategy, mu_variable *variable);
#define MU_COLOCATE(strategy, variable) \
    for (mu_scope_guard mu_scope_ = mu_colocate_open(strategy, variable); mu_scope_.once; mu_scope_close(&mu_scope_))

// mu_strategy_device_count and _device list a strategy's devices, by names that belong to it. Errors (-1, NULL):
// FAILED_PRECONDITION for the default strategy; OUT_OF_RANGE for an index that is none.
MU_API int mu_strategy_device_count(const mu_strategy *strategy);
MU_API const char *mu_strategy_device(const mu_strategy *strategy, int i);

// mu_strategy_parameter_device_count and _parameter_device list the devices that hold variables: for central storage
// its parameter device, otherwise all devices of the strategy. Errors: as mu_strategy_device.
MU_API int mu_strategy_parameter_device_count(const mu_strategy *strategy);
MU_API const char *mu_strategy_parameter_device(const mu_strategy *strategy, int i);

// mu_variable_strategy returns the strategy that a variable was made under, NULL if none.
MU_API mu_strategy *mu_variable_strategy(const mu_variable *variable);
// mu_variable_created_in_scope returns whether the variable was made under this strategy; for the default strategy,
// whether it was made under none.
MU_API bool mu_variable_created_in_scope(const mu_strategy *strategy, const mu_variable *variable);
// mu_variable_component_count returns the number of copies. mu_variable_component_name writes the name of one copy
// ("w", "w/replica_1", …) as snprintf does, and returns its length.
MU_API int mu_variable_component_count(const mu_variable *variable);
MU_API int mu_variable_component_name(const mu_variable *variable, int component, char *name, size_t bytes);

// mu_strategy_timeout returns how long the strategy's replicas wait for each other, in seconds; a collective that takes
// longer fails with DEADLINE_EXCEEDED. mu_strategy_set_timeout sets it (at first: timeout_seconds of the communication
// options, else MUSTER_TIMEOUT). MU_TIMEOUT(strategy, seconds) { … } sets it for the calls in the block, by
// mu_timeout_open and mu_timeout_close, and retains the strategy; do not leave it with return, goto or break. Errors
// (mu_strategy_timeout: NaN): INVALID_ARGUMENT for NULL, and for 0 or less; FAILED_PRECONDITION while a function runs.
typedef struct mu_timeout_guard {
    mu_strategy *strategy;
    double seconds_before;
    bool once;
} mu_timeout_guard;
MU_API double mu_strategy_timeout(const mu_strategy *strategy);
MU_API mu_status mu_strategy_set_timeout(mu_strategy *strategy, double seconds);
MU_API mu_timeout_guard mu_timeout_open(mu_strategy *strategy, double seconds);
MU_API void mu_timeout_close(mu_timeout_guard *guard);
#define MU_TIMEOUT(strategy, seconds)                                                         \
    for (mu_timeout_guard mu_timeout_ = mu_timeout_open(strategy, seconds); mu_timeout_.once; \
         mu_timeout_close(&mu_timeout_))

// ---- Running ------------------------------------------------------------------------------------

// From here on, NULL as a strategy (with no error pending) means the default strategy.

// mu_run runs a traced function on every replica in parallel and returns its results, one component per replica.
// `arguments`: each replica gets its component of a per-replica value; other values go to all replicas; NULL means
// none. The replicas' tensors for one argument may differ in size along any axis. A result that comes from outside the
// function is returned as one value; a result made inside is returned per replica. Arguments may hold variables; other
// variables than in an earlier call are traced again. A function that returns nothing yields an empty list, so NULL
// always means failure. Errors: INVALID_ARGUMENT if a per-replica or mirrored value has a number of components other
// than the number of local replicas (so too in all functions below that take values), or if the replicas' tensors
// differ in type or rank. If a replica fails, mu_run fails with its error and the other replicas are released.
MU_API mu_value *mu_run(mu_strategy *strategy, mu_function *function, mu_value *arguments);

// mu_function_call calls a function from any context. During a trace the call becomes part of that trace; in a replica
// of mu_run_callback it runs eagerly there. In a scope, a merge or an update of a strategy it is ordinary code, op by
// op, which may do what is done outside of replicas, such as mu_run and mu_reduce. Otherwise it runs traced, on the
// device of mu_set_device if one is set, or under the default strategy, where variables with a copy for each of several
// replicas can be read, ON_READ ones excepted, but not written. Several threads may call one function at the same time:
// one of them traces it while the others wait, and runs on the same device are serialized. Errors: FAILED_PRECONDITION
// for endless recursion of functions, and under the default strategy for such variables and what is for replicas.
MU_API mu_value *mu_function_call(mu_function *function, mu_value *arguments);

// mu_run_callback calls a C function eagerly for every local replica. Only one replica runs at a time, until it ends or
// waits for the others (mu_merge_call, a collective, an assignment that aggregates), so the function needs no locks. On
// XLA devices the ops of each run on its device (mu_set_device says how).
// Arguments and results are as in mu_run. A callback fails with mu_fail, and mu_run_callback fails with that error.
// Assignments made before a failure remain, equally on all replicas. Objects that the callback makes, variables too,
// are freed when it ends unless they are returned or retained. Errors: FAILED_PRECONDITION if replicas make different
// numbers of merge or collective calls, or different calls at the same point, or for different variables; the message
// names both, and nothing is written.
MU_API mu_value *mu_run_callback(mu_strategy *strategy, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                                 mu_value *arguments);

typedef struct mu_reduce_args {
    size_t size;
    const char *given;
    mu_strategy *strategy;
    mu_reduce_op op;
    mu_value *value;
    int axis; // also reduces over this axis inside each replica; default: none
    mu_keyword_only only_;
    const int *axes; // over several, 1 to MU_MAX_RANK of them
    int n_axes;
} mu_reduce_args;
// mu_reduce adds or averages a value over the replicas: mu_reduce(strategy, MU_SUM, losses). With axes, MEAN weights
// every element equally. Without axes the value of an only replica is returned as it is, also by MEAN; the mean of
// several replicas' integers has the type that mu_divide gives: float64 of int32 and int64, float32 of shorter ones (so
// in all functions below). Errors: INVALID_ARGUMENT if replicas differ in type or shape (with an axis,
// sizes along it may differ), for bools and strings, and for SUM of what is the same on all of several replicas: a
// plain tensor other than 0, a mirrored value, a variable that is not ON_READ.
#define mu_reduce(...) mu_reduce_with(MU_ARGS(mu_reduce_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_reduce_with(const mu_reduce_args *args);

// mu_reduce_op_name returns "SUM" or "MEAN", "UNRECOGNIZED" for another number (static storage). mu_reduce_op_from_name
// returns the value of a name, in any case. Errors (-1): INVALID_ARGUMENT.
MU_API const char *mu_reduce_op_name(mu_reduce_op op);
MU_API int mu_reduce_op_from_name(const char *name);

// mu_strategy_gather concatenates the replicas' tensors along an axis, in replica order; in a nest, each leaf. A value
// that is the same on all replicas is returned unchanged, except that plain tensors are gathered from several workers;
// so is the value of an only replica, whatever the axis.
// Errors: INVALID_ARGUMENT if ranks differ, or sizes of other axes; UNIMPLEMENTED for indexed slices.
MU_API mu_value *mu_strategy_gather(mu_strategy *strategy, mu_value *value, int axis);

// mu_local_results returns a list with one element per local replica: the components of a per-replica or mirrored value
// or of a variable; for a nest, one whole nest per replica. Any other value is the only element.
MU_API mu_value *mu_local_results(mu_strategy *strategy, mu_value *value);

// mu_distribute_values makes a per-replica value from what fn returns for each local replica.
typedef struct mu_value_context {
    int replica_id, num_replicas;
} mu_value_context;
MU_API mu_value *mu_distribute_values(mu_strategy *strategy,
                                      mu_value *(*fn)(const mu_value_context *context, void *arg), void *arg);

// mu_per_replica makes a per-replica value of one component for each local replica, in their order; the last argument
// is MU_END. mu_per_replica_of takes an array of n. Components are values or tensors, as the elements of mu_list.
// Errors: INVALID_ARGUMENT for another number of components than the strategy has local replicas.
MU_API mu_value *mu_per_replica(mu_strategy *strategy, ...);
MU_API mu_value *mu_per_replica_of(mu_strategy *strategy, int n, mu_value *const *components);

// mu_reduce_to reduces as mu_reduce does and puts the result on the given devices: mirrored with several, plain with
// one. Errors: as mu_reduce, and INVALID_ARGUMENT for an unknown device.
typedef struct mu_reduce_to_args {
    size_t size;
    const char *given;
    mu_strategy *strategy;
    mu_reduce_op op; // MU_SUM (default) or MU_MEAN
    mu_value *value;
    mu_keyword_only only_;
    mu_value *like;             // use the devices of this variable or value; default: the host
    const char *const *devices; // or these devices; ends with NULL or MU_END
} mu_reduce_to_args;
#define mu_reduce_to(...) mu_reduce_to_with(MU_ARGS(mu_reduce_to_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_reduce_to_with(const mu_reduce_to_args *args);

// mu_batch_reduce_to reduces a list of values; the result of each goes to the devices of the element of `likes` with
// the same index (likes NULL: to the value's own devices). Errors: as mu_cross_device_batch_reduce.
MU_API mu_value *mu_batch_reduce_to(mu_strategy *strategy, mu_reduce_op op, mu_value *values, mu_value *likes);

typedef struct mu_broadcast_to_devices_args {
    size_t size;
    const char *given;
    mu_strategy *strategy;
    mu_value *value;
    mu_value *like; // the devices of this variable or value
    mu_keyword_only only_;
    const char *const *devices; // or these devices; ends with NULL or MU_END
} mu_broadcast_to_devices_args;

// mu_broadcast_to_devices copies a value to devices: mirrored with several, plain with one. Of a variable it copies the
// value that mu_variable_read returns. Errors: INVALID_ARGUMENT for a per-replica value, for an unknown device, or
// without like and devices; UNIMPLEMENTED under the default strategy.
#define mu_broadcast_to_devices(...) \
    mu_broadcast_to_devices_with(MU_ARGS(mu_broadcast_to_devices_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_broadcast_to_devices_with(const mu_broadcast_to_devices_args *args);

// mu_update_variable calls fn once for each copy of a variable, on the copy's device. Inside fn the variable (and every
// other distributed variable) is that copy, and a per-replica argument is its component. On its replicas it is a
// mu_merge_call. The results are grouped as a mirrored value or, with .local_results, as a list with one for each copy.
typedef struct mu_update_variable_args {
    size_t size;
    const char *given;
    mu_strategy *strategy;
    mu_variable *variable;
    mu_value *(*fn)(mu_variable *variable, mu_value *arguments, void *arg);
    void *arg;
    mu_value *arguments;
    mu_keyword_only only_;
    bool local_results;
} mu_update_variable_args;
#define mu_update_variable(...) mu_update_variable_with(MU_ARGS(mu_update_variable_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_update_variable_with(const mu_update_variable_args *args);

// mu_update_non_slot calls fn once for each device that holds variables other than optimizer slots: all devices; for
// central storage the parameter device. Errors: FAILED_PRECONDITION on replicas; call it in a mu_merge_call.
MU_API mu_value *mu_update_non_slot(mu_strategy *strategy, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                                    mu_value *arguments);

// The scatter functions update rows of a variable: indices [n] of int32 or int64, values [n, …]. On replicas, the
// variable's aggregation concatenates the replicas' slices (MEAN divides the values by the number of replicas). If
// indices and values both come from outside the replica function, they are one update for all replicas, as in
// mu_variable_assign. Errors: INVALID_ARGUMENT for aggregation SUM of an update from outside, and for per-replica
// integers with aggregation MEAN; UNIMPLEMENTED for ON_READ variables, and for min, max and update with aggregation SUM
// or MEAN.
MU_API mu_status mu_variable_scatter_add(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_sub(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_mul(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_div(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_min(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_max(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
MU_API mu_status mu_variable_scatter_update(mu_variable *variable, mu_tensor *indices, mu_tensor *values);

// ---- Inside a function that runs on replicas ----------------------------------------------------

// mu_replica_id returns this replica's id among all replicas, an int32 scalar; 0 without a strategy. Errors:
// FAILED_PRECONDITION in cross-replica context. mu_replica_count returns the number of replicas; 1 outside.
MU_API mu_tensor *mu_replica_id(void);
MU_API int mu_replica_count(void);

// mu_merge_call waits until every replica has called it, then calls the first replica's fn once, in cross-replica
// context, with the replicas' arguments as per-replica values. Each replica gets its component of the result. While a
// function is traced for several replicas, fn is called once with symbolic values for the replicas' values. They can be
// reduced, gathered, split with mu_local_results, and passed to updates. Errors: UNIMPLEMENTED for any other use of a
// symbolic value; FAILED_PRECONDITION if replicas call it different numbers of times, in cross-replica context, and in
// the body of a loop or branch of a traced function.
MU_API mu_value *mu_merge_call(mu_value *(*fn)(mu_strategy *strategy, mu_value *arguments, void *arg), void *arg,
                               mu_value *arguments);

// mu_all_reduce reduces a tensor over all replicas; every replica gets the result, an only one what it brought. The
// mean of several replicas' integers is a float. Errors (of all collectives): FAILED_PRECONDITION in cross-replica
// context; INVALID_ARGUMENT on every replica if shapes or axes differ, INTERNAL if types or operations do, which is
// TensorFlow's code. Collective.
MU_API mu_tensor *mu_all_reduce(mu_reduce_op op, mu_tensor *value);

// mu_all_gather concatenates the replicas' tensors along an axis, in replica order; every replica gets the result.
// Sizes along that axis may differ. Collective.
MU_API mu_tensor *mu_all_gather(mu_tensor *value, int axis);
// As the two above, for nests and variables (each replica's component) and, in reductions, indexed slices.
MU_API mu_value *mu_all_reduce_value(mu_reduce_op op, mu_value *value);
MU_API mu_value *mu_all_gather_value(mu_value *value, int axis);

// mu_reduce_scatter reduces a tensor over all replicas and divides the result along an axis into equal parts, of which
// each replica gets the one of its id: [6, 4] on 3 replicas becomes [2, 4] along axis 0. Half of an all-reduce, and
// mu_all_gather is the other. All replicas bring the same shape. The mean is that of mu_all_reduce. Its gradient is an
// all-gather. Errors: INVALID_ARGUMENT if the number of replicas does not divide the size of the axis, and on every
// replica if shapes, axes or operations differ; types that differ are INTERNAL, as in mu_all_reduce. Collective.
MU_API mu_tensor *mu_reduce_scatter(mu_reduce_op op, mu_tensor *value, int axis);

// mu_collective_permute sends each source's tensor to its target, for all pairs at once. A replica that no pair names
// as target gets zeros; a replica may be its own source. All replicas bring the same shape and the same pairs. Its
// gradient goes back along the pairs. Errors: INVALID_ARGUMENT for an id that no replica has, for a source or a target
// in two pairs, and with more than 1024 replicas; on every replica if shapes or pairs differ. Collective.
typedef struct mu_replica_pair {
    int source, target; // ids of replicas
} mu_replica_pair;
MU_API mu_tensor *mu_collective_permute(mu_tensor *value, const mu_replica_pair *pairs, int n_pairs);

// mu_sync_on_read makes this replica's reads of ON_READ variables return the aggregated value instead of its own copy
// (on), or not (off). Each such read is a collective. Errors: FAILED_PRECONDITION outside of a function that runs on
// replicas.
MU_API mu_status mu_sync_on_read(bool on);

// ---- Input --------------------------------------------------------------------------------------

// mu_distribute_dataset splits each batch of `dataset` (a global batch) among the replicas. No sample is dropped or
// repeated. Parts differ by at most one sample, and may be empty near the end. Iterate it with MU_EACH, or with
// mu_iterate and mu_next; under mu_parameter_server_strategy that is INVALID_ARGUMENT, because it is for
// mu_create_per_worker_dataset. Retains: strategy, dataset. Errors: INVALID_ARGUMENT for elements without rows
// (scalars), if there are several replicas; where that is not known before (mu_dataset_element_spec), reading the first
// one fails; NOT_FOUND, with several workers, for MU_AUTO_SHARD_FILE and a source without files.
typedef struct mu_distributed_dataset mu_distributed_dataset;
MU_API mu_distributed_dataset *mu_distribute_dataset(mu_strategy *strategy, mu_dataset *dataset);

// How many input pipelines: one per worker, or one per replica.
typedef enum mu_input_replication_mode { MU_PER_WORKER = 0, MU_PER_REPLICA = 1 } mu_input_replication_mode;

// mu_input_replication_mode_name returns "PER_WORKER" or "PER_REPLICA", and "UNRECOGNIZED" for another number (static
// storage). mu_input_replication_mode_from_name returns the value of a name, in any case. Errors (-1):
// INVALID_ARGUMENT.
MU_API const char *mu_input_replication_mode_name(mu_input_replication_mode mode);
MU_API int mu_input_replication_mode_from_name(const char *name);

// As TensorFlow's InputOptions. Batches are in host memory, which CPU devices use directly, so only replication_mode
// has an effect. Combinations that TensorFlow rejects are rejected too.
typedef struct mu_input_options {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    bool no_fetch_to_device;                    // default: batches are copied to the replicas' devices
    mu_input_replication_mode replication_mode; // default MU_PER_WORKER
    bool place_dataset_on_device;               // only with MU_PER_REPLICA and no_fetch_to_device
    int per_replica_buffer_size;                // batches prefetched for each replica; default 1
} mu_input_options;
// MU_INPUT_OPTIONS(.replication_mode = MU_PER_REPLICA) is a pointer to options; they live until the call returns.
#define MU_INPUT_OPTIONS(...) MU_ARGS(mu_input_options, #__VA_ARGS__, __VA_ARGS__)

// mu_distribute_dataset_options is mu_distribute_dataset with options (NULL: defaults). Errors: UNIMPLEMENTED for
// MU_PER_REPLICA, which needs a dataset per replica.
MU_API mu_distributed_dataset *mu_distribute_dataset_options(mu_strategy *strategy, mu_dataset *dataset,
                                                             const mu_input_options *options);

// Passed to a function that makes an input pipeline. 0 in num_input_pipelines or num_replicas_in_sync counts as 1.
typedef struct mu_input_context {
    int num_input_pipelines, input_pipeline_id, num_replicas_in_sync;
} mu_input_context;

// mu_distribute_datasets_from_function distributes a dataset made by fn, whose elements are batches for one replica:
// each step takes one element per replica, and near the end some replicas get an empty batch. Retains: strategy.
MU_API mu_distributed_dataset *
mu_distribute_datasets_from_function(mu_strategy *strategy,
                                     mu_dataset *(*fn)(const mu_input_context *context, void *arg), void *arg);

// mu_distribute_datasets_from_function_options is mu_distribute_datasets_from_function with options (NULL: defaults).
// With MU_PER_REPLICA, fn is called once per replica, and each replica is an input pipeline. Errors: UNIMPLEMENTED for
// that mode under a strategy other than mu_mirrored_strategy; INVALID_ARGUMENT for options that contradict each other.
// Retains: strategy.
MU_API mu_distributed_dataset *
mu_distribute_datasets_from_function_options(mu_strategy *strategy,
                                             mu_dataset *(*fn)(const mu_input_context *context, void *arg), void *arg,
                                             const mu_input_options *options);

// mu_distributed_element_spec returns the structure of what a step gets: symbolic tensors with type and shape (a
// dimension that may vary, such as the rows of a replica's part, is MU_UNKNOWN), per replica if this worker has
// several. Errors: FAILED_PRECONDITION if the structure is known only once an element is read, as in
// mu_dataset_element_spec.
MU_API mu_value *mu_distributed_element_spec(mu_distributed_dataset *distributed);

// mu_per_replica_batch_size returns global_batch_size / number of replicas. Errors (-1): INVALID_ARGUMENT if that is
// not a whole number.
MU_API int64_t mu_per_replica_batch_size(const mu_input_context *context, int64_t global_batch_size);

#ifdef __cplusplus
}
#endif
#endif
