// Servers of a cluster: processes without code of their own, which keep variables for a coordinator and work for it.
//
// TensorFlow's tf.distribute.Server. The command `muster serve` is such a process. A coordinator that has ended leaves
// nothing on it: what it made there is freed when the next one begins, or when the coordinator's connections have been
// closed for a heartbeat (MUSTER_HEARTBEAT, at least 2 s), or silent for MUSTER_TIMEOUT.
//
// Errors: where a function names no others, only those that every call may give (muster/base.h).
#ifndef MUSTER_SERVER_H
#define MUSTER_SERVER_H

#include <muster/cluster.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_server mu_server; // the server of one task

typedef struct mu_server_args {
    size_t size;
    const char *given;
    mu_cluster *cluster;
    mu_keyword_only only_;
    const char *job_name; // default: this process's in the cluster, else the cluster's only job
    int task_index;       // default: this process's in the cluster, else the job's only task
    const char *protocol; // "muster", the only one and the default
    bool no_start;        // do not start it; default: started
    int64_t max_bytes;    // of its variables together; default: no limit
} mu_server_args;

// mu_server_new makes the server of a task and starts it at the task's address. Errors: INVALID_ARGUMENT for another
// protocol, for a task that is not in the cluster, and if the job or the task is not given and there are several;
// PERMISSION_DENIED if this process has the key of one worker (`muster key --for`) and the task is another; those of
// mu_server_start.
#define mu_server_new(...) mu_server_new_with(MU_ARGS(mu_server_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_server *mu_server_new_with(const mu_server_args *args);

// mu_server_create_local_server makes a server on a port of the loopback that the system chooses: the only task of the
// job "local". With `start` false it is not started. Errors: as mu_server_new.
MU_API mu_server *mu_server_create_local_server(bool start);

// mu_server_start begins to serve. A second call does nothing. Errors: ALREADY_EXISTS if the port is taken;
// UNAUTHENTICATED for an address that is not on the loopback if there is no cluster key; DEADLINE_EXCEEDED if the
// address is not resolved.
MU_API mu_status mu_server_start(mu_server *server);

// mu_server_target returns what clients connect to, "muster://host:port"; it belongs to the server. Errors:
// FAILED_PRECONDITION before the start.
MU_API const char *mu_server_target(mu_server *server);

// mu_server_spec returns the cluster that the server was made for.
MU_API mu_cluster_spec *mu_server_spec(mu_server *server);

// mu_server_join blocks until mu_server_stop ends the server. If a signal asks to stop (mu_stop_on_signals), the server
// is drained first: it refuses new calls with UNAVAILABLE and waits for those that run, for at most MUSTER_DRAIN
// seconds. Errors: CANCELLED after that, or if this thread's cancellation is cancelled; FAILED_PRECONDITION before the
// start.
MU_API mu_status mu_server_join(mu_server *server);

// mu_server_stop ends all connections; the port is free again. Works with an error pending. The last release does so
// too.
MU_API mu_status mu_server_stop(mu_server *server);

// mu_server_main is the main function of a worker or a parameter server: it serves until SIGTERM or SIGINT, ends the
// library (mu_exit), and returns the exit code: 0 if it was asked to end, else that of the errors of mu_server_new and
// mu_server_join.
//     if (!mu_cluster_is_coordinator(cluster))
//         return mu_server_main(cluster);
MU_API int mu_server_main(mu_cluster *cluster);

#ifdef __cplusplus
}
#endif
#endif
