// The kinds of strategies, side by side: which function is in which slot (strategy_ops.h).
#include "distribute/strategy_ops.h"

// ---- Values outside of replicas -----------------------------------------------------------------

// Slots of all strategies whose replicas are devices of this process, for values that exist.
#define COMPILED_SLOTS                                                                                         \
    .variable_components = mu__components_local, .read_variable = mu__read_components, .copy = mu__copy_local, \
    .run = mu__run_replicas, .wait = mu__wait_replicas
#define DEVICE_SLOTS COMPILED_SLOTS, .run_callback = mu__run_callback_replicas

static const mu_cross_replica_ops plain_values = {
    DEVICE_SLOTS,
    .reduce_to = mu__reduce_plain,
    .batch_reduce_to = mu__batch_reduce_local,
    .gather_to = mu__gather_local,
    .local_results = mu__results_plain,
    .update_variable = mu__update_plain,
    .broadcast_to = mu__broadcast_plain,
    .distribute_values = mu__distribute_plain,
};

#define MIRRORED_SLOTS                                                                                              \
    .reduce_to = mu__reduce_local, .batch_reduce_to = mu__batch_reduce_local, .gather_to = mu__gather_local,        \
    .local_results = mu__results_local, .update_variable = mu__update_copies, .broadcast_to = mu__broadcast_copies, \
    .distribute_values = mu__distribute_each

static const mu_cross_replica_ops mirrored_values = {DEVICE_SLOTS, MIRRORED_SLOTS};

static const mu_cross_replica_ops tpu_values = {COMPILED_SLOTS, MIRRORED_SLOTS, .run_callback = mu__tpu_run_callback};

static const mu_cross_replica_ops central_values = {
    DEVICE_SLOTS,
    .reduce_to = mu__reduce_local,
    .batch_reduce_to = mu__batch_reduce_local,
    .gather_to = mu__gather_local,
    .local_results = mu__results_local,
    .update_variable = mu__update_central,
    .broadcast_to = mu__broadcast_copies,
    .distribute_values = mu__distribute_each,
};

// One replica in each worker; effects on variables are requests to their servers.
static const mu_cross_replica_ops server_values = {
    .variable_components = mu__components_local,
    .read_variable = mu__read_components,
    .copy = mu__copy_local,
    .run = mu__run_served,
    .wait = mu__wait_served,
    .run_callback = mu__run_callback_replicas,
    .reduce_to = mu__reduce_plain,
    .batch_reduce_to = mu__batch_reduce_local,
    .gather_to = mu__gather_local,
    .local_results = mu__results_plain,
    .update_variable = mu__update_plain,
    .broadcast_to = mu__broadcast_plain,
    .distribute_values = mu__distribute_plain,
};

#define WORKER_SLOTS                                                                                                \
    .reduce_to = mu__reduce_workers, .batch_reduce_to = mu__batch_reduce_each, .gather_to = mu__gather_workers,     \
    .local_results = mu__results_local, .update_variable = mu__update_copies, .broadcast_to = mu__broadcast_copies, \
    .distribute_values = mu__distribute_each

static const mu_cross_replica_ops worker_values = {DEVICE_SLOTS, WORKER_SLOTS};

static const mu_cross_replica_ops tpu_worker_values = {COMPILED_SLOTS, WORKER_SLOTS,
                                                       .run_callback = mu__tpu_run_callback};

// Slots of a merge_call that is traced. It starts no runs, so it waits for none.
#define TRACED_SLOTS                                                                                     \
    .batch_reduce_to = mu__traced_batch_reduce, .local_results = mu__traced_results,                     \
    .variable_components = mu__traced_components, .read_variable = mu__traced_read,                      \
    .update_variable = mu__traced_update, .broadcast_to = mu__traced_broadcast, .copy = mu__traced_copy, \
    .distribute_values = mu__traced_distribute_values, .run = mu__traced_run, .wait = mu__wait_replicas, \
    .run_callback = mu__traced_run_callback

static const mu_cross_replica_ops traced_values = {
    TRACED_SLOTS,
    .reduce_to = mu__traced_reduce,
    .gather_to = mu__traced_gather,
};

static const mu_cross_replica_ops traced_worker_values = {
    TRACED_SLOTS,
    .reduce_to = mu__traced_reduce_workers,
    .gather_to = mu__traced_gather_workers,
};

// ---- Strategies ---------------------------------------------------------------------------------

// Slots of all strategies of one process.
#define ONE_PROCESS                                                                                \
    .known_rows = true, .has_copies = mu__has_local_copies, .distribute_dataset = mu__shard_local, \
    .next_step = mu__next_step_local, .traced = &traced_values, .cross_worker = &mu__one_process

// A variable of the default strategy has no owner, wherever it is made: as one that is made outside of functions.
static mu_variable *make_for_none(mu_strategy *strategy, const mu_variable_args *args)
{
    (void)strategy;
    return mu__variable_make(args, args->initial_value, 1);
}

const mu_strategy_ops mu__default_ops = {
    ONE_PROCESS,
    .name = "DefaultStrategy",
    .make_variable = make_for_none,
    .values = &plain_values,
};

const mu_strategy_ops mu__one_device_ops = {
    ONE_PROCESS,
    .name = "OneDeviceStrategy",
    .eager_on_device = true,
    .make_variable = mu__make_plain_variable,
    .values = &plain_values,
};

const mu_strategy_ops mu__mirrored_ops = {
    ONE_PROCESS,
    .name = "MirroredStrategy",
    .replica_pipelines = true,
    .make_variable = mu__make_mirrored_variable,
    .on_write = &mu__mirrored_rules,
    .on_read = &mu__on_read_rules,
    .values = &mirrored_values,
};

const mu_strategy_ops mu__central_ops = {
    ONE_PROCESS,
    .name = "CentralStorageStrategy",
    .between_graph = true,
    .whole_steps = true,
    .make_variable = mu__make_central_variable,
    .on_write = &mu__central_rules,
    .values = &central_values,
};

const mu_strategy_ops mu__parameter_server_ops = {
    ONE_PROCESS,
    .name = "ParameterServerStrategy",
    .between_graph = true,
    .scheduled = true,
    .make_variable = mu__make_served_variable,
    .make_accumulator = mu__make_served_accumulator,
    .make_table = mu__make_served_table,
    .values = &server_values,
};

const mu_strategy_ops mu__tpu_ops = {
    ONE_PROCESS,
    .name = "TPUStrategy",
    .static_shapes = true,
    .usable = mu__tpu_usable,
    .device_name = mu__tpu_device_name,
    .make_variable = mu__make_mirrored_variable,
    .on_write = &mu__mirrored_rules,
    .on_read = &mu__on_read_rules,
    .values = &tpu_values,
};

// The only worker of a cluster needs no other process.
const mu_strategy_ops mu__single_worker_ops = {
    ONE_PROCESS,
    .name = "MultiWorkerMirroredStrategy",
    .between_graph = true,
    .make_variable = mu__make_mirrored_variable,
    .on_write = &mu__mirrored_rules,
    .on_read = &mu__on_read_rules,
    .values = &mirrored_values,
};

// Slots of mirrored strategies of several processes.
#define MANY_PROCESSES                                                                                            \
    .make_variable = mu__make_mirrored_variable, .make_table = mu__refuse_table, .on_write = &mu__mirrored_rules, \
    .on_read = &mu__on_read_rules, .has_copies = mu__has_own_copies, .next_step = mu__next_step_workers,          \
    .distribute_dataset = mu__shard_workers, .traced = &traced_worker_values, .cross_worker = &mu__many_workers

const mu_strategy_ops mu__multi_worker_ops = {
    MANY_PROCESSES,
    .name = "MultiWorkerMirroredStrategy",
    .between_graph = true,
    .values = &worker_values,
};

const mu_strategy_ops mu__tpu_workers_ops = {
    MANY_PROCESSES,
    .name = "TPUStrategy",
    .static_shapes = true,
    .usable = mu__tpu_usable,
    .device_name = mu__tpu_device_name,
    .values = &tpu_worker_values,
};
