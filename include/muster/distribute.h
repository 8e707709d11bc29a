// Strategies: how a model's variables and steps are spread over devices. The names and the behaviour are
// those of tf.distribute.
#ifndef MUSTER_DISTRIBUTE_H
#define MUSTER_DISTRIBUTE_H

#include <muster/data.h>
#include <muster/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_strategy mu_strategy;

typedef enum mu_reduce_op { MU_SUM = 0, MU_MEAN = 1 } mu_reduce_op;

// ---- Making strategies --------------------------------------------------------------------------

typedef struct mu_mirrored_strategy_args {
    size_t size;
    const char *const *devices;  // names, the last one NULL; default: every device
    mu_keyword_only only_;
    int replicas;                // or: the first so many devices
} mu_mirrored_strategy_args;

// mu_mirrored_strategy keeps a copy of each variable on every device and all-reduces the gradients.
// Errors: INVALID_ARGUMENT for an unknown device, one named twice, none, or more replicas than devices.
#define mu_mirrored_strategy(...) \
    mu_mirrored_strategy_with(&(mu_mirrored_strategy_args){.size = sizeof(mu_mirrored_strategy_args), __VA_ARGS__})
MU_API mu_strategy *mu_mirrored_strategy_with(const mu_mirrored_strategy_args *args);

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
    mu_pool *unused;
    void *scope;
    bool once;
} mu_scope_guard;
MU_API mu_scope_guard mu_scope_open(mu_strategy *strategy);
MU_API void mu_scope_close(mu_scope_guard *guard);
#define MU_SCOPE(strategy) MU_SCOPE_AT(strategy, __LINE__)
#define MU_SCOPE_AT(strategy, line) MU_SCOPE_AS(strategy, line)  // a name per line: nested scopes shadow nothing
#define MU_SCOPE_AS(strategy, line) \
    for (mu_scope_guard mu_scope_##line = mu_scope_open(strategy); mu_scope_##line.once; mu_scope_close(&mu_scope_##line))

// ---- Running ------------------------------------------------------------------------------------

// mu_run runs a traced function on every replica at the same time and returns its results, per replica.
// `arguments`: per-replica values give each replica its component, other values go to all; NULL: none.
// Errors: whatever a replica failed with; the others are released. Also when the function returns nothing
// the result is not NULL (an empty list), so NULL always means failure.
MU_API mu_value *mu_run(mu_strategy *strategy, mu_function *function, mu_value *arguments);

// mu_run_callback calls a C function for every local replica, eagerly: one replica at a time, which runs until it
// meets the others (mu_merge_call, a collective, an assignment that aggregates) or ends, so the function needs no
// locks. Arguments and results as in mu_run; a callback fails with mu_fail, and what it fails with is returned.
// Errors: FAILED_PRECONDITION if replicas make different numbers of merge or collective calls.
MU_API mu_value *mu_run_callback(mu_strategy *strategy, mu_value *(*fn)(mu_value *arguments, void *arg), void *arg,
                                 mu_value *arguments);

// mu_reduce adds or averages over replicas; mu_reduce_axis also over an axis inside each replica, where
// MEAN weighs every element alike.
MU_API mu_value *mu_reduce(mu_strategy *strategy, mu_reduce_op op, mu_value *value);
MU_API mu_value *mu_reduce_axis(mu_strategy *strategy, mu_reduce_op op, mu_value *value, int axis);

// mu_strategy_gather concatenates the replicas' values along an axis, in replica order.
MU_API mu_value *mu_strategy_gather(mu_strategy *strategy, mu_value *value, int axis);

// mu_local_results returns a list with one element per local replica.
MU_API mu_value *mu_local_results(mu_strategy *strategy, mu_value *value);

// ---- Inside a function that runs on replicas ----------------------------------------------------

// mu_replica_id returns this replica's id in the group, an int32 scalar.
MU_API mu_tensor *mu_replica_id(void);
MU_API int mu_replica_count(void);

// mu_merge_call waits until every replica has called it, then calls fn of the first once, in the cross-replica
// state, with the replicas' arguments per replica; each replica gets its part of the result.
// Errors: UNIMPLEMENTED while a function is traced for several replicas; FAILED_PRECONDITION where replicas
// call it different numbers of times.
MU_API mu_value *mu_merge_call(mu_value *(*fn)(mu_strategy *strategy, mu_value *arguments, void *arg), void *arg,
                               mu_value *arguments);

// mu_all_reduce reduces over all replicas; every replica gets the result. Collective.
MU_API mu_tensor *mu_all_reduce(mu_reduce_op op, mu_tensor *value);

// mu_all_gather concatenates the replicas' tensors along an axis, in replica order; every replica gets the whole.
// They may differ in size along the axis (in traced functions they may not). Collective.
MU_API mu_tensor *mu_all_gather(mu_tensor *value, int axis);
// The same for nests, variables (their component on this replica) and, for reductions, indexed slices.
MU_API mu_value *mu_all_reduce_value(mu_reduce_op op, mu_value *value);
MU_API mu_value *mu_all_gather_value(mu_value *value, int axis);
// mu_sync_on_read switches on or off that this replica reads ON_READ variables as they are seen outside of
// replicas: such a read is a collective.
MU_API mu_status mu_sync_on_read(bool on);

// ---- Input --------------------------------------------------------------------------------------

// mu_distribute_dataset splits each batch of `dataset` (a global batch) among the replicas: nothing is
// dropped or repeated; parts differ by one element at most, and may be empty at the end. Use it with MU_EACH.
typedef struct mu_distributed_dataset mu_distributed_dataset;
MU_API mu_distributed_dataset *mu_distribute_dataset(mu_strategy *strategy, mu_dataset *dataset);

#ifdef __cplusplus
}
#endif
#endif
