// Clusters: which processes train together, at which addresses, and which of them this one is.
//
// A specification says which tasks there are; a cluster (TensorFlow's cluster resolver) adds who this process
// is and where both are read from. Most programs call mu_cluster_from_environment, or nothing: the strategies
// for many machines call it themselves. Texts returned here belong to the pool, as objects do.
#ifndef MUSTER_CLUSTER_H
#define MUSTER_CLUSTER_H

#include <muster/base.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Specifications -----------------------------------------------------------------------------

// Jobs ("chief", "worker", "ps", "evaluator") with their tasks, each an index and an address "host:port". An
// address is "" where only the task itself will know it (RANK, MPI): it tells the leader when it joins.
typedef struct mu_cluster_spec mu_cluster_spec;

// mu_cluster_spec_parse reads JSON: {"worker": ["a:2222", "b:2222"], "ps": {"3": "c:2222"}}; NULL or "{}" is empty.
// Errors: INVALID_ARGUMENT for anything else, an index that stands twice, or more than 65536 tasks.
MU_API mu_cluster_spec *mu_cluster_spec_parse(const char *json);

// mu_cluster_spec_add adds one task; index -1: the one after the job's last. Errors: ALREADY_EXISTS.
MU_API mu_status mu_cluster_spec_add(mu_cluster_spec *spec, const char *job, int index, const char *address);

// mu_cluster_spec_json writes what mu_cluster_spec_parse reads, jobs by name: lists where the indices are
// 0 to n-1, maps otherwise.
MU_API const char *mu_cluster_spec_json(const mu_cluster_spec *spec);

// Jobs are counted in order of their names. mu_cluster_spec_job is NULL past the last.
MU_API int mu_cluster_spec_job_count(const mu_cluster_spec *spec);
MU_API const char *mu_cluster_spec_job(const mu_cluster_spec *spec, int i);

// The tasks of a job, by rising index. Errors (-1, NULL): INVALID_ARGUMENT for a job or task that is not there.
MU_API int mu_cluster_spec_num_tasks(const mu_cluster_spec *spec, const char *job);
MU_API int mu_cluster_spec_task_index(const mu_cluster_spec *spec, const char *job, int i);
MU_API const char *mu_cluster_spec_task_address(const mu_cluster_spec *spec, const char *job, int index);

// ---- What a task is in its cluster --------------------------------------------------------------

// These hold for any task of a specification. Errors: INVALID_ARGUMENT for a job other than chief, worker, ps
// and evaluator, a second chief or evaluator, or a task that is not in it; -1 or NULL then.
// mu_cluster_spec_is_chief: 1 for the chief, an evaluator, and worker 0 where there is no chief; else 0.
MU_API int mu_cluster_spec_is_chief(const mu_cluster_spec *spec, const char *task_type, int task_id);
// mu_cluster_spec_worker_count: chief and workers; for an evaluator the evaluators. A ps has none: an error.
MU_API int mu_cluster_spec_worker_count(const mu_cluster_spec *spec, const char *task_type);
// mu_cluster_spec_worker_index: the chief is 0, workers follow; evaluators count by themselves.
MU_API int mu_cluster_spec_worker_index(const mu_cluster_spec *spec, const char *task_type, int task_id);
// mu_cluster_spec_leader: "/job:worker/replica:0/task:0" or the chief's; "" for an evaluator or an empty cluster.
MU_API const char *mu_cluster_spec_leader(const mu_cluster_spec *spec, const char *task_type, int task_id);

// ---- Clusters -----------------------------------------------------------------------------------

typedef struct mu_cluster mu_cluster;

// mu_cluster_from_environment finds the cluster of this process. The first of these that is there is used:
//   MUSTER_CLUSTER               JSON as in TF_CONFIG; or the name of what to use: tf_config, rank, mpi, slurm, none
//   TF_CONFIG                    {"cluster": {"worker": […]}, "task": {"type": "worker", "index": 0}}
//   RANK, WORLD_SIZE             with MASTER_ADDR and MASTER_PORT
//   HOROVOD_RANK, _SIZE          likewise
//   OMPI_COMM_WORLD_RANK, _SIZE  or PMI_RANK, PMI_SIZE: under mpirun
//   SLURM_PROCID                 inside a job step (srun)
// and otherwise this process is alone: an empty cluster. What cannot work is refused: see mu_cluster_check.
// Errors: FAILED_PRECONDITION if those variables changed after a strategy was made from them, or if one says which
// process this is and none of how many.
MU_API mu_cluster *mu_cluster_from_environment(void);

// mu_cluster_check refuses what cannot work, and says what to change: an unknown job, two chiefs or evaluators,
// a task that is not in the cluster, workers that are not numbered from 0 without holes (where there are no parameter
// servers), an address that two tasks share, one without a port, or one that means "this machine" where others name
// hosts. Errors: INVALID_ARGUMENT.
MU_API mu_status mu_cluster_check(mu_cluster *cluster);

typedef struct mu_simple_cluster_resolver_args {
    size_t size;
    mu_cluster_spec *cluster_spec; // copied
    mu_keyword_only only_;
    const char *task_type;         // default: none
    int task_id;                   // of task_type
    const char *master;            // what mu_cluster_master answers without a task; default ""
    const char *environment;       // default ""
    const char *rpc_layer;         // default: none
    int num_accelerators;          // of each task; default 0
    const char *accelerator_type;  // default "GPU"
} mu_simple_cluster_resolver_args;

// mu_simple_cluster_resolver makes a cluster of what it is given.
#define mu_simple_cluster_resolver(...) \
    mu_simple_cluster_resolver_with(MU_ARGS(mu_simple_cluster_resolver_args, __VA_ARGS__))
MU_API mu_cluster *mu_simple_cluster_resolver_with(const mu_simple_cluster_resolver_args *args);

typedef struct mu_tf_config_cluster_resolver_args {
    size_t size;
    mu_keyword_only only_;
    const char *task_type;   // in place of the variable's
    int task_id;             // of task_type; used only with it
    const char *rpc_layer;   // in place of the variable's
    const char *environment; // default ""
} mu_tf_config_cluster_resolver_args;

// mu_tf_config_cluster_resolver reads TF_CONFIG each time it is asked, so a mistake in it is the error of the
// function that asks. The old job name master is taken for chief.
#define mu_tf_config_cluster_resolver(...) \
    mu_tf_config_cluster_resolver_with(MU_ARGS(mu_tf_config_cluster_resolver_args, __VA_ARGS__))
MU_API mu_cluster *mu_tf_config_cluster_resolver_with(const mu_tf_config_cluster_resolver_args *args);

typedef struct mu_job_size {
    const char *job;
    int tasks;
} mu_job_size;

typedef struct mu_host_tasks {
    const char *host;
    int tasks;
} mu_host_tasks;

typedef struct mu_slurm_cluster_resolver_args {
    size_t size;
    mu_keyword_only only_;
    const mu_job_size *jobs; // the last one has job NULL; default: every task of the step is a worker
    int port_base;           // port of each host's first task; default 8888
    int gpus_per_node;       // default: those that CUDA_VISIBLE_DEVICES names, 0 without it
    int gpus_per_task;       // default: gpus_per_node over the most tasks of a node
    int tasks_per_node;      // the same on every host; default SLURM_STEP_TASKS_PER_NODE
    bool no_auto_set_gpu;    // do not set CUDA_VISIBLE_DEVICES to the GPUs of this task
    const char *rpc_layer;   // default "grpc"
    const mu_host_tasks *tasks_per_host; // in place of tasks_per_node; the last one has host NULL
} mu_slurm_cluster_resolver_args;

// mu_slurm_cluster_resolver reads the variables that srun gives to each task of a job step. Tasks are dealt to
// the jobs by name, hosts by name.
// Errors: FAILED_PRECONDITION if a variable is missing, or jobs, tasks and GPUs do not fit together.
#define mu_slurm_cluster_resolver(...) \
    mu_slurm_cluster_resolver_with(MU_ARGS(mu_slurm_cluster_resolver_args, __VA_ARGS__))
MU_API mu_cluster *mu_slurm_cluster_resolver_with(const mu_slurm_cluster_resolver_args *args);

// mu_rank_cluster_resolver reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and others set them:
// all are workers. Where torchrun itself listens on MASTER_PORT, worker 0 takes the port after it. Without the first
// two, HOROVOD_RANK and HOROVOD_SIZE.
// Errors: FAILED_PRECONDITION if one is missing; INVALID_ARGUMENT if one cannot be.
MU_API mu_cluster *mu_rank_cluster_resolver(void);

// mu_mpi_cluster_resolver reads rank and size from the variables of Open MPI or of PMI: all are workers.
// MASTER_ADDR and MASTER_PORT give worker 0's address if they are set. Errors: as above.
MU_API mu_cluster *mu_mpi_cluster_resolver(void);

typedef struct mu_job_labels {
    const char *job;
    const char *const *labels; // label selectors, the last one NULL: "job-name=tensorflow"
} mu_job_labels;

typedef enum mu_executable_location { MU_WITHIN_CLUSTER = 0, MU_OFF_CLUSTER = 1 } mu_executable_location;

typedef struct mu_kubernetes_cluster_resolver_args {
    size_t size;
    const mu_job_labels *jobs;  // the last one has job NULL; default: worker, "job-name=tensorflow"
    mu_keyword_only only_;
    int port;                   // that every task listens on; default 8470
    const char *rpc_layer;      // default "grpc"
    mu_executable_location location;
    const char *namespace_name; // default: all of them
    const char *api_server;     // default: as the pod is told; off the cluster "http://127.0.0.1:8001" (kubectl proxy)
    const char *credentials;    // folder with the files token and ca.crt; default: the pod's service account
} mu_kubernetes_cluster_resolver_args;

// mu_kubernetes_cluster_resolver asks the Kubernetes API for the pods of each selector, every time it is asked: tasks
// stand in order of selectors, then of pods' names; addresses are those of the pods' hosts. Which task this process is
// must be set (mu_cluster_set_task_type). Needs libcurl (Debian: libcurl4), which is opened when first used.
// Errors, when asked: FAILED_PRECONDITION for a pod that does not run, or without libcurl; UNAVAILABLE if the API does
// not answer within 30 s; UNAUTHENTICATED and PERMISSION_DENIED as it says; DATA_LOSS or INVALID_ARGUMENT (no
// JSON) for an answer that is none.
#define mu_kubernetes_cluster_resolver(...) \
    mu_kubernetes_cluster_resolver_with(MU_ARGS(mu_kubernetes_cluster_resolver_args, __VA_ARGS__))
MU_API mu_cluster *mu_kubernetes_cluster_resolver_with(const mu_kubernetes_cluster_resolver_args *args);

typedef struct mu_union_cluster_resolver_args {
    size_t size;
    mu_cluster *const *resolvers; // the last one MU_END; retained
    mu_keyword_only only_;
    const char *task_type;        // default: the first one's
    int task_id;                  // of task_type
    const char *rpc_layer;        // default: the first one's
} mu_union_cluster_resolver_args;

// mu_union_cluster_resolver has the tasks of all: lists of a job are joined in order; as soon as one is a map the
// indices count. Everything else is the first one's. Errors: INVALID_ARGUMENT without any; ALREADY_EXISTS, when
// asked, for an index that two have.
#define mu_union_cluster_resolver(...) \
    mu_union_cluster_resolver_with(MU_ARGS(mu_union_cluster_resolver_args, __VA_ARGS__))
MU_API mu_cluster *mu_union_cluster_resolver_with(const mu_union_cluster_resolver_args *args);
// MU_CLUSTERS(a, b) is a list for .resolvers.
#define MU_CLUSTERS(...) MU_LIST_OF(mu_cluster, __VA_ARGS__)

// ---- Asking a cluster ---------------------------------------------------------------------------

// Each answers as of now and may fail with what its source is like: NULL or -1 with an error recorded; NULL or
// -1 without one means that the source does not say.
MU_API mu_cluster_spec *mu_cluster_get_spec(mu_cluster *cluster);
MU_API const char *mu_cluster_task_type(mu_cluster *cluster);
MU_API int mu_cluster_task_id(mu_cluster *cluster);
MU_API const char *mu_cluster_rpc_layer(mu_cluster *cluster);
MU_API const char *mu_cluster_environment(mu_cluster *cluster);
MU_API int mu_cluster_num_accelerators(mu_cluster *cluster, const char *type);
// mu_cluster_source names what was read: "TF_CONFIG", "SLURM_PROCID" (static storage).
MU_API const char *mu_cluster_source(const mu_cluster *cluster);

// What is set wins over what the source says. NULL and -1: as the source says (that of a simple
// cluster says nothing).
MU_API mu_status mu_cluster_set_task_type(mu_cluster *cluster, const char *task_type);
MU_API mu_status mu_cluster_set_task_id(mu_cluster *cluster, int task_id);
MU_API mu_status mu_cluster_set_rpc_layer(mu_cluster *cluster, const char *rpc_layer);

typedef struct mu_cluster_master_args {
    size_t size;
    mu_cluster *cluster;
    const char *task_type; // default: the cluster's own task
    int task_id;           // of task_type
    mu_keyword_only only_;
    const char *rpc_layer; // default: the cluster's
} mu_cluster_master_args;

// mu_cluster_master is where to connect to: "grpc://host:port", or without a layer "host:port".
#define mu_cluster_master(...) mu_cluster_master_with(MU_ARGS(mu_cluster_master_args, __VA_ARGS__))
MU_API const char *mu_cluster_master_with(const mu_cluster_master_args *args);

// The rules above for this process. Alone (an empty cluster) it is the chief and the only worker.
MU_API int mu_cluster_is_chief(mu_cluster *cluster);
MU_API int mu_cluster_worker_count(mu_cluster *cluster);
MU_API int mu_cluster_worker_index(mu_cluster *cluster);
// mu_cluster_is_coordinator: 1 unless this is a worker, a ps or an evaluator of a cluster.
MU_API int mu_cluster_is_coordinator(mu_cluster *cluster);

#ifdef __cplusplus
}
#endif
#endif
