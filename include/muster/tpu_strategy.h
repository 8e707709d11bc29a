// TPUStrategy: one replica for each core of a TPU, or of any device of an XLA plugin.
//
// A program finds the TPU (mu_tpu_cluster_resolver in cluster.h), initialises it and makes the strategy:
//   mu_cluster *tpu = mu_tpu_cluster_resolver(.tpu = "");
//   mu_connect_to_cluster(tpu);
//   mu_tpu_initialize(tpu);
//   mu_strategy *strategy = mu_tpu_strategy(tpu);
// The cores are the devices of the plugin "tpu" (libtpu); without it those of the plugin that MUSTER_PJRT or the first
// entry of PJRT_NAMES_AND_LIBRARY_PATHS names; without any plugin the CPU devices of the native engine, with a warning.
// Names and behaviour are those of tf.distribute.TPUStrategy and tf.tpu.experimental.
//
// A TPU with several hosts: TensorFlow's program runs on one machine and commands the TPU's workers. Here the same
// program runs on every host, as under mu_multi_worker_mirrored_strategy: mu_connect_to_cluster joins them, and all
// hosts make the calls below in the same order. The resolver says where the workers are; which of them a process is,
// TPU_WORKER_ID (as on a TPU's machines), mu_cluster_set_task_id or its own address says.
//
// Errors: what talks to other hosts fails with UNAVAILABLE if one dies, DEADLINE_EXCEEDED if one is late, and DATA_LOSS
// if one runs another version; what starts cores with NOT_FOUND if the plugin is not there, FAILED_PRECONDITION if it
// cannot be used, and UNIMPLEMENTED if it lacks a function that is needed.
#ifndef MUSTER_TPU_STRATEGY_H
#define MUSTER_TPU_STRATEGY_H

#include <muster/distribute.h>
#include <muster/tpu.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- The TPU system -----------------------------------------------------------------------------

// mu_connect_to_cluster joins the workers of a cluster, whose cores then are those of one TPU system, until the program
// ends. This host's own TPU (an empty specification), or a single worker that is this host, needs nothing. Call it
// before any device of a plugin is made. Between hosts it needs the cluster's key (MUSTER_CLUSTER_KEY or its file).
// Retains: cluster. Collective: every worker. Blocks until all are there, at most MUSTER_TIMEOUT. Errors:
// FAILED_PRECONDITION if it is unknown which worker this is, or for another cluster than before; DEADLINE_EXCEEDED
// naming the workers that are missing; UNAUTHENTICATED for an address of this worker that is not on the loopback if
// there is no key; PERMISSION_DENIED if this process has the key of one worker (`muster key --for`).
MU_API mu_status mu_connect_to_cluster(mu_cluster *cluster);

// mu_tpu_initialize starts the TPU of a cluster (NULL: the one that this process has connected to, else this host's)
// and returns its topology, with a task for each host: the mesh that the coordinates of all cores span, if the plugin
// reports them, else [n/2, 1, 1, 2] for n cores, an even number on each host, or [n, 1, 1, 1]. The cores of this host
// are then devices "TPU:0", "TPU:1", … wherever a device is named. Initialising again warns, and what was made on the
// TPU before is lost: its strategies and their variables fail with FAILED_PRECONDITION. Collective: every host of the
// cluster. Blocks until all have started their cores. Errors: FAILED_PRECONDITION before mu_connect_to_cluster for a
// cluster of several hosts, if hosts differ in the kind or number of their cores, and inside a scope or a replica;
// those of the plugin; UNAVAILABLE naming a host that has died.
MU_API mu_tpu_topology *mu_tpu_initialize(mu_cluster *cluster);

// mu_tpu_shutdown ends the TPU system; what was made on it is lost. Errors: FAILED_PRECONDITION if it is not running.
MU_API mu_status mu_tpu_shutdown(mu_cluster *cluster);

// ---- The strategy -------------------------------------------------------------------------------

typedef struct mu_tpu_strategy_args {
    size_t size;
    const char *given;
    // default: the cluster that this process has connected to, else mu_tpu_cluster_resolver(.tpu = ""); retained
    mu_cluster *cluster_resolver;
    mu_keyword_only only_;
    // default: one replica for each core, in the order of the cores; retained
    mu_tpu_device_assignment *device_assignment;
    bool use_spmd_for_xla_partitioning; // then mu_assign_to_logical_device is an error, as in TensorFlow
} mu_tpu_strategy_args;

// mu_tpu_strategy makes a strategy with a replica for each core, or as many as the assignment has. Variables, input,
// reductions and checkpoints are as under mu_mirrored_strategy, with several hosts as under
// mu_multi_worker_mirrored_strategy, but functions on replicas must be compiled: mu_run takes an mu_function, and
// mu_run_callback is UNIMPLEMENTED. A replica with several logical cores has its variables on the first one, and
// computes there unless the function has annotations ("Logical devices" below).
// With several hosts an assignment must give each of them as many replicas, and a replica's cores must be on one host;
// replicas are numbered host by host, in the assignment's order on each, and devices are named
// "/job:worker/task:1/device:TPU:0". Collective then: every host. Errors: FAILED_PRECONDITION before mu_tpu_initialize;
// INVALID_ARGUMENT for an assignment of another topology; with several hosts also as
// mu_multi_worker_mirrored_strategy.
#define mu_tpu_strategy(...) mu_tpu_strategy_with(MU_ARGS(mu_tpu_strategy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_strategy *mu_tpu_strategy_with(const mu_tpu_strategy_args *args);

// As TensorFlow's RunOptions, without experimental_xla_options: its use_spmd_for_xla_partitioning is a property of the
// strategy here (mu_tpu_strategy), and its enable_xla_dynamic_padder has nothing to do, since nothing is padded.
typedef struct mu_run_options {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    // Default true: the replicas' tensors may differ in size. TensorFlow pads them; here each replica computes on its
    // own rows, exactly. false: tensors that differ in shape are INVALID_ARGUMENT; if the function has collectives and
    // all hosts' cores run one program, on every host, also where only the hosts differ.
    bool enable_dynamic_batch_size;
    // TensorFlow pads sizes to powers of two, to compile less often. Nothing is padded here, so this has no effect.
    bool bucketizing_dynamic_shape;
} mu_run_options;
#define MU_RUN_OPTIONS(...) MU_ARGS(mu_run_options, #__VA_ARGS__, __VA_ARGS__)

// mu_run_with_options is mu_run with options (NULL: defaults), under any strategy. Errors: as mu_run.
MU_API mu_value *mu_run_with_options(mu_strategy *strategy, mu_function *function, mu_value *arguments,
                                     const mu_run_options *options);

// ---- Logical devices ----------------------------------------------------------------------------

// Where a tensor of a replica with several logical cores is to be computed. These return the tensor, whose value they
// never change. In a function that replicas run, on devices of an XLA plugin, they divide the function's work among the
// cores: XLA's partitioner places these tensors as annotated and the others as follows from them. Outside of functions,
// on the CPU devices, and where the replicas' tensors differ in shape, they only check. A size that is unknown in the
// trace is checked when the function is compiled. Errors of all: INVALID_ARGUMENT for a strategy other than
// mu_tpu_strategy.
// mu_assign_to_logical_device: one core. Errors: INVALID_ARGUMENT for a core that the replicas do not have, and with
// use_spmd_for_xla_partitioning.
MU_API mu_tensor *mu_assign_to_logical_device(mu_strategy *strategy, mu_tensor *tensor, int logical_device_id);
// mu_split_to_logical_devices: parts[i] pieces along axis i, n of them. Errors: INVALID_ARGUMENT if n is not the
// tensor's rank, a known size is not divisible by its number of pieces, or the product is not the number of cores of a
// replica.
MU_API mu_tensor *mu_split_to_logical_devices(mu_strategy *strategy, mu_tensor *tensor, int n, const int *parts);
// mu_replicate_to_logical_devices: a copy on every core.
MU_API mu_tensor *mu_replicate_to_logical_devices(mu_strategy *strategy, mu_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
