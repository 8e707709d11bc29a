// Clusters: which processes train together, at which addresses, and which of them this process is.
//
// A specification (mu_cluster_spec) lists the tasks. A cluster (mu_cluster, TensorFlow's cluster resolver) adds this
// process's own task and knows where both are read from. Most programs call mu_cluster_from_environment or nothing at
// all, because the multi-worker strategies call it. Strings returned here belong to the pool, as objects do.
//
// Errors: where a function names no others, INVALID_ARGUMENT, for a cluster that its source describes wrongly too.
#ifndef MUSTER_CLUSTER_H
#define MUSTER_CLUSTER_H

#include <muster/base.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Specifications -----------------------------------------------------------------------------

// Jobs ("chief", "worker", "ps", "evaluator") and their tasks. A task has an index and an address "host:port". The
// address is "" if only the task itself will know it (RANK, MPI); the task then sends it to the leader when it joins.
typedef struct mu_cluster_spec mu_cluster_spec;

// mu_cluster_spec_parse reads JSON: {"worker": ["a:2222", "b:2222"], "ps": {"3": "c:2222"}}; NULL or "{}" is empty.
// Errors: INVALID_ARGUMENT for anything else, for a name twice, or for more than 65536 tasks; ALREADY_EXISTS for an
// index that is written in two ways ("3" and "03").
MU_API mu_cluster_spec *mu_cluster_spec_parse(const char *json);

// mu_cluster_spec_add adds one task; index -1 means the next after the job's last. Errors: ALREADY_EXISTS for an index
// that the job has.
MU_API mu_status mu_cluster_spec_add(mu_cluster_spec *spec, const char *job, int index, const char *address);

// mu_cluster_spec_json returns the JSON that mu_cluster_spec_parse reads, with jobs sorted by name. A job is a list if
// its indices are 0 to n-1, otherwise a map.
MU_API const char *mu_cluster_spec_json(const mu_cluster_spec *spec);

// Jobs are numbered from 0 in the order of their names. mu_cluster_spec_job returns NULL past the last.
MU_API int mu_cluster_spec_job_count(const mu_cluster_spec *spec);
MU_API const char *mu_cluster_spec_job(const mu_cluster_spec *spec, int i);

// The tasks of a job, in ascending order of index. Errors (-1, NULL): INVALID_ARGUMENT for an unknown job or task.
MU_API int mu_cluster_spec_num_tasks(const mu_cluster_spec *spec, const char *job);
MU_API int mu_cluster_spec_task_index(const mu_cluster_spec *spec, const char *job, int i);
MU_API const char *mu_cluster_spec_task_address(const mu_cluster_spec *spec, const char *job, int index);

// ---- What a task is in its cluster --------------------------------------------------------------

// These functions work for any task of a specification. Errors (-1, NULL): INVALID_ARGUMENT for a job other than chief,
// worker, ps and evaluator, for a second chief or evaluator, or for a task that is not in the specification.
// mu_cluster_spec_is_chief returns 1 for the chief, for an evaluator, and for worker 0 if there is no chief; else 0.
MU_API int mu_cluster_spec_is_chief(const mu_cluster_spec *spec, const char *task_type, int task_id);
// mu_cluster_spec_worker_count returns the number of chiefs and workers; for an evaluator the number of evaluators. A
// ps is an error.
MU_API int mu_cluster_spec_worker_count(const mu_cluster_spec *spec, const char *task_type);
// mu_cluster_spec_worker_index returns 0 for the chief; workers follow. Evaluators are numbered separately.
MU_API int mu_cluster_spec_worker_index(const mu_cluster_spec *spec, const char *task_type, int task_id);
// mu_cluster_spec_leader returns the leader's name: the chief's, else "/job:worker/replica:0/task:0"; "" for an
// evaluator or an empty cluster.
MU_API const char *mu_cluster_spec_leader(const mu_cluster_spec *spec, const char *task_type, int task_id);

// ---- Clusters -----------------------------------------------------------------------------------

typedef struct mu_cluster mu_cluster; // a cluster specification with this process's own task

// mu_cluster_from_environment finds the cluster of this process. It uses the first of these variables that is set:
//   MUSTER_CLUSTER               JSON as in TF_CONFIG, or a source: tf_config, rank, mpi, slurm, sagemaker, none
//   TF_CONFIG                    {"cluster": {"worker": […]}, "task": {"type": "worker", "index": 0}}
//   RANK, WORLD_SIZE             with MASTER_ADDR and MASTER_PORT
//   HOROVOD_RANK, _SIZE          with MASTER_ADDR and MASTER_PORT
//   OMPI_COMM_WORLD_RANK, _SIZE  or PMI_RANK, PMI_SIZE: under mpirun
//   SLURM_PROCID                 inside a job step (srun)
//   SM_HOSTS, SM_CURRENT_HOST    in a training job of SageMaker
// If none is set, the process is alone: the cluster is empty. An unusable cluster is an error, see mu_cluster_check.
// Errors: FAILED_PRECONDITION if these variables changed after a strategy was made from them, or if they give this
// process's rank but not the number of processes.
MU_API mu_cluster *mu_cluster_from_environment(void);

// mu_cluster_check fails for a cluster that cannot work; the message says what to change. It checks for: an unknown
// job; two chiefs or evaluators; a task of this process that is not in the cluster; workers not numbered 0 to n-1 (if
// there are no parameter servers); an address shared by two tasks; an address without a port; and a loopback address
// where other tasks are on other hosts. Errors: INVALID_ARGUMENT.
MU_API mu_status mu_cluster_check(mu_cluster *cluster);

typedef struct mu_simple_cluster_resolver_args {
    size_t size;
    const char *given;
    mu_cluster_spec *cluster_spec; // copied
    mu_keyword_only only_;
    const char *task_type;        // default: none
    int task_id;                  // default: 0 with a task_type, else none
    const char *master;           // what mu_cluster_master returns if no task is set; default ""
    const char *environment;      // default ""
    const char *rpc_layer;        // default: none
    int num_accelerators;         // per task; default 0
    const char *accelerator_type; // default "GPU"
} mu_simple_cluster_resolver_args;

// mu_simple_cluster_resolver makes a cluster from the given values.
#define mu_simple_cluster_resolver(...) \
    mu_simple_cluster_resolver_with(MU_ARGS(mu_simple_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_simple_cluster_resolver_with(const mu_simple_cluster_resolver_args *args);

typedef struct mu_tf_config_cluster_resolver_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *task_type;   // overrides the one in TF_CONFIG
    int task_id;             // overrides the index in TF_CONFIG, by itself too
    const char *rpc_layer;   // overrides the one in TF_CONFIG
    const char *environment; // default ""
} mu_tf_config_cluster_resolver_args;

// mu_tf_config_cluster_resolver reads TF_CONFIG at each query, so the query reports a mistake in it. The old job name
// "master" is read as chief.
#define mu_tf_config_cluster_resolver(...) \
    mu_tf_config_cluster_resolver_with(MU_ARGS(mu_tf_config_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_tf_config_cluster_resolver_with(const mu_tf_config_cluster_resolver_args *args);

typedef struct mu_job_size {
    const char *job;
    int tasks; // number of tasks of the job
} mu_job_size;

typedef struct mu_host_tasks {
    const char *host;
    int tasks; // number of tasks on the host
} mu_host_tasks;

typedef struct mu_slurm_cluster_resolver_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const mu_job_size *jobs;             // ends with job NULL; default: every task of the step is a worker
    int port_base;                       // port of the first task on each host; default 8888
    int gpus_per_node;                   // default: the number in CUDA_VISIBLE_DEVICES, 0 if it is not set
    int gpus_per_task;                   // default: gpus_per_node / the largest number of tasks on a node
    int tasks_per_node;                  // same on every host; default SLURM_STEP_TASKS_PER_NODE
    bool no_auto_set_gpu;                // do not set CUDA_VISIBLE_DEVICES to this task's GPUs
    const char *rpc_layer;               // default "grpc"
    const mu_host_tasks *tasks_per_host; // instead of tasks_per_node; ends with host NULL
} mu_slurm_cluster_resolver_args;

// mu_slurm_cluster_resolver reads the variables that srun sets for each task of a job step. Tasks are assigned to jobs
// in the order of the jobs' names, on hosts in the order of the hosts' names. Errors: FAILED_PRECONDITION if a variable
// is missing, or if jobs, tasks and GPUs do not match.
#define mu_slurm_cluster_resolver(...) \
    mu_slurm_cluster_resolver_with(MU_ARGS(mu_slurm_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_slurm_cluster_resolver_with(const mu_slurm_cluster_resolver_args *args);

typedef struct mu_sagemaker_cluster_resolver_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int port;                // of every host; default 2223
    const char *task_type;   // overrides "worker"
    int task_id;             // overrides the place of SM_CURRENT_HOST
    const char *rpc_layer;   // default: none
    const char *environment; // default ""
} mu_sagemaker_cluster_resolver_args;

// mu_sagemaker_cluster_resolver reads SM_HOSTS, a JSON list of names, and SM_CURRENT_HOST at each query, as SageMaker
// sets them in the containers of a training job. Every host is a worker, in the order of their names. If the current
// host is none of them, the cluster is empty and a warning says so. Errors, at the query: FAILED_PRECONDITION if a
// variable is missing; INVALID_ARGUMENT if SM_HOSTS is no list of names.
#define mu_sagemaker_cluster_resolver(...) \
    mu_sagemaker_cluster_resolver_with(MU_ARGS(mu_sagemaker_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_sagemaker_cluster_resolver_with(const mu_sagemaker_cluster_resolver_args *args);

// mu_rank_cluster_resolver reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them; without the
// first two, HOROVOD_RANK and HOROVOD_SIZE. Every process is a worker. If torchrun itself listens on MASTER_PORT,
// worker 0 uses the next port. Errors: FAILED_PRECONDITION if a variable is missing; INVALID_ARGUMENT if a value is
// invalid.
MU_API mu_cluster *mu_rank_cluster_resolver(void);

// mu_mpi_cluster_resolver reads rank and size from the variables of Open MPI or PMI. Every process is a worker.
// MASTER_ADDR and MASTER_PORT, if set, are worker 0's address. Errors: as mu_rank_cluster_resolver.
MU_API mu_cluster *mu_mpi_cluster_resolver(void);

typedef struct mu_job_labels {
    const char *job;
    const char *const *labels; // label selectors such as "job-name=tensorflow"; ends with NULL or MU_END
} mu_job_labels;

typedef enum mu_executable_location { MU_WITHIN_CLUSTER = 0, MU_OFF_CLUSTER = 1 } mu_executable_location;

typedef struct mu_kubernetes_cluster_resolver_args {
    size_t size;
    const char *given;
    const mu_job_labels *jobs; // ends with job NULL; default: worker with "job-name=tensorflow"
    mu_keyword_only only_;
    int port;                        // port of every task; default 8470
    const char *rpc_layer;           // default "grpc"
    mu_executable_location location; // MU_WITHIN_CLUSTER (default) or MU_OFF_CLUSTER
    const char *namespace_name;      // default: all namespaces
    // default: from the pod's environment; off the cluster "http://127.0.0.1:8001" (kubectl proxy)
    const char *api_server;
    const char *credentials; // folder with the files "token" and "ca.crt"; default: the pod's service account
} mu_kubernetes_cluster_resolver_args;

// mu_kubernetes_cluster_resolver asks the Kubernetes API at each query for the pods that match each selector. Tasks are
// ordered by selector, then by pod name; addresses are those of the pods' hosts. A job whose selectors match no pod has
// no tasks. Set this process's own task with mu_cluster_set_task_type. Needs libcurl (Debian: libcurl4), which is
// loaded on first use. Errors, at the query: FAILED_PRECONDITION for a pod that is not running, a server that refuses
// the request, or without libcurl; NOT_FOUND for a server that is not the API; UNAVAILABLE if the API is not reached,
// or has an error itself; DEADLINE_EXCEEDED if it does not answer within 30 s; UNAUTHENTICATED and PERMISSION_DENIED
// from the API; DATA_LOSS or INVALID_ARGUMENT (not JSON) for a malformed answer.
#define mu_kubernetes_cluster_resolver(...) \
    mu_kubernetes_cluster_resolver_with(MU_ARGS(mu_kubernetes_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_kubernetes_cluster_resolver_with(const mu_kubernetes_cluster_resolver_args *args);

typedef struct mu_gce_cluster_resolver_args {
    size_t size;
    const char *given;
    const char *project;        // name of the project
    const char *zone;           // zone of the instance group, such as "us-west1-a"
    const char *instance_group; // name of the instance group
    int port;                   // port of every task, 1 to 65535; default 8470
    const char *task_type;      // job of all instances; default "worker"
    int task_id;                // this process's, which no query finds out; default 0
    const char *rpc_layer;      // default "grpc"; "": none
    mu_keyword_only only_;
    const char *token;            // OAuth 2.0 access token, sent as it is; default: asked for at the metadata server
    const char *api;              // URL of the API; default "https://compute.googleapis.com/compute/v1"
    const char *metadata_address; // "host:port"; default GCE_METADATA_HOST, else metadata.google.internal
    double timeout_seconds;       // longest wait of a query, for all its requests; default 30
} mu_gce_cluster_resolver_args;

// mu_gce_cluster_resolver asks the API of Google Compute Engine at each query for the running instances of an instance
// group, then for the address of each (of its first network interface). Tasks are ordered by address as a text,
// "10.0.0.10:8470" before "10.0.0.2:8470". A group without running instances has no tasks. The texts are copied. The
// token is that of this machine's service account, which must be allowed to read Compute Engine; it is sent to .api,
// readable by others if that is an http:// URL. The task type cannot be set afterwards. Needs libcurl (Debian:
// libcurl4), which is loaded on first use. Errors: INVALID_ARGUMENT for a missing project, zone or group, for one that
// has characters of no such name, for a port, task_id, timeout_seconds, task type or token out of range; at the query:
// NOT_FOUND for a project, zone, group or service account that is not there; UNAUTHENTICATED and PERMISSION_DENIED for
// a refused token; FAILED_PRECONDITION for another refusal, or without libcurl; UNAVAILABLE if the API or the metadata
// server (after 5 s: DEADLINE_EXCEEDED) is not reached or has an error itself; DEADLINE_EXCEEDED after timeout_seconds;
// RESOURCE_EXHAUSTED for an answer of more than 4 MiB; INVALID_ARGUMENT for one that is not JSON, DATA_LOSS for another
// malformed one, or an instance without an address.
#define mu_gce_cluster_resolver(...) \
    mu_gce_cluster_resolver_with(MU_ARGS(mu_gce_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_gce_cluster_resolver_with(const mu_gce_cluster_resolver_args *args);

typedef struct mu_tpu_cluster_resolver_args {
    size_t size;
    const char *given;
    // "" or "local": the TPU of this host; "grpc://10.0.0.2:8470", several separated by commas: workers at these
    // addresses; else the name of a TPU. Default: KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS (addresses), else TPU_NAME (a name)
    const char *tpu;
    mu_keyword_only only_;
    const char *job_name;         // of the TPU's workers; default "worker"
    const char *coordinator_name; // a job of one task for the coordinator; needs coordinator_address
    const char *coordinator_address;
    const char *metadata_address; // "host:port" of the metadata server; default GCE_METADATA_HOST
} mu_tpu_cluster_resolver_args;

// mu_tpu_cluster_resolver finds a TPU. A name is looked up when the cluster is queried: if TPU_NAME has this name, the
// workers are those of TPU_WORKER_HOSTNAMES; else the metadata server is asked, if its address is known, which times
// out after 5 s. A TPU whose only worker is this host has an empty specification, as "local". The task is the worker
// that TPU_WORKER_ID names, without it number 0, the RPC layer "grpc". The number of accelerators ("TPU") is that of
// this host's cores once mu_tpu_initialize has run, 0 before. Errors: INVALID_ARGUMENT for an address without a port or
// a coordinator's name without an address; at the query: NOT_FOUND for an unknown name; INVALID_ARGUMENT for a
// TPU_WORKER_ID that is none of the workers, unless mu_cluster_set_task_id gave one; those of the metadata server.
#define mu_tpu_cluster_resolver(...) \
    mu_tpu_cluster_resolver_with(MU_ARGS(mu_tpu_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_tpu_cluster_resolver_with(const mu_tpu_cluster_resolver_args *args);

typedef struct mu_union_cluster_resolver_args {
    size_t size;
    const char *given;
    mu_cluster *const *resolvers; // ends with MU_END; retained
    mu_keyword_only only_;
    const char *task_type; // default: the first one's
    int task_id;           // likewise
    const char *rpc_layer; // default: the first one's
} mu_union_cluster_resolver_args;

// mu_union_cluster_resolver combines the tasks of several clusters. The lists of a job are concatenated in order; if
// the indices of one are not 0 to n-1, all are used as they are. Everything else comes from the first cluster. Errors:
// INVALID_ARGUMENT for an empty list; ALREADY_EXISTS, at the query, for an index that two clusters have.
#define mu_union_cluster_resolver(...) \
    mu_union_cluster_resolver_with(MU_ARGS(mu_union_cluster_resolver_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_cluster *mu_union_cluster_resolver_with(const mu_union_cluster_resolver_args *args);
// MU_CLUSTERS(a, b) makes the list for .resolvers.
#define MU_CLUSTERS(...) MU_LIST_OF(mu_cluster, __VA_ARGS__)

// ---- Querying a cluster -------------------------------------------------------------------------

// Each function queries the cluster's source now. NULL or -1 with an error recorded means that the query failed; NULL
// or -1 without an error means that the source has no such value. Errors: those "at the query" of the function that
// made the cluster.
MU_API mu_cluster_spec *mu_cluster_get_spec(mu_cluster *cluster);
MU_API const char *mu_cluster_task_type(mu_cluster *cluster);
MU_API int mu_cluster_task_id(mu_cluster *cluster);
MU_API const char *mu_cluster_rpc_layer(mu_cluster *cluster);
MU_API const char *mu_cluster_environment(mu_cluster *cluster);
MU_API int mu_cluster_num_accelerators(mu_cluster *cluster, const char *type);
// mu_cluster_source names the source, such as "TF_CONFIG" or "SLURM_PROCID" (static storage).
MU_API const char *mu_cluster_source(const mu_cluster *cluster);

// A value set here overrides the source's. NULL and -1 return to the source's value (a simple cluster has none).
// Errors: FAILED_PRECONDITION for the task type of mu_gce_cluster_resolver, which its argument alone gives.
MU_API mu_status mu_cluster_set_task_type(mu_cluster *cluster, const char *task_type);
MU_API mu_status mu_cluster_set_task_id(mu_cluster *cluster, int task_id);
MU_API mu_status mu_cluster_set_rpc_layer(mu_cluster *cluster, const char *rpc_layer);

typedef struct mu_cluster_master_args {
    size_t size;
    const char *given;
    mu_cluster *cluster;   // the cluster to ask
    const char *task_type; // default: this process's
    int task_id;           // default: this process's; 0 with a task_type
    mu_keyword_only only_;
    const char *rpc_layer; // default: the cluster's
} mu_cluster_master_args;

// mu_cluster_master returns the address to connect to: "grpc://host:port", or "host:port" without an RPC layer. Where
// no task is named, a simple cluster returns its .master, and a union what its first cluster returns.
#define mu_cluster_master(...) mu_cluster_master_with(MU_ARGS(mu_cluster_master_args, #__VA_ARGS__, __VA_ARGS__))
MU_API const char *mu_cluster_master_with(const mu_cluster_master_args *args);

// As the mu_cluster_spec_ functions, for this process. A process that is alone (an empty cluster) is the chief and the
// only worker.
MU_API int mu_cluster_is_chief(mu_cluster *cluster);
MU_API int mu_cluster_worker_count(mu_cluster *cluster);
MU_API int mu_cluster_worker_index(mu_cluster *cluster);
// mu_cluster_is_coordinator returns 0 for a worker, a ps or an evaluator of a cluster, else 1.
MU_API int mu_cluster_is_coordinator(mu_cluster *cluster);

#ifdef __cplusplus
}
#endif
#endif
