// ParameterServerStrategy inside the library: its servers, the devices of its workers, and running a function on one.
#ifndef MU_SRC_DISTRIBUTE_PARAMETER_SERVER_H
#define MU_SRC_DISTRIBUTE_PARAMETER_SERVER_H

#include "distribute/distribute.h"

#include <muster/parameter_server.h>
#include <muster/rpc.h>

// One parameter server. It applies one effect on its variables at a time.
typedef struct mu_parameter_server {
    pthread_mutex_t lock;  // of a server in this process
    mu_rpc_client *client; // of a server in another process, retained; NULL: in this process
} mu_parameter_server;

// What a ParameterServerStrategy has in addition to other strategies.
typedef struct mu_servers {
    int n;
    int n_made;                         // servers whose lock exists
    mu_parameter_server *servers;       // [n]
    pthread_mutex_t outside;            // of variables that workers use and no server has; taken before a server's
    atomic_llong n_placed;              // variables and parts of variables placed so far
    atomic_llong n_runs;                // of mu_run, and steps of fit
    atomic_bool warned;                 // that they run here (mu__warn_unscheduled)
    mu_partitioner *partitioner;        // retained; NULL: variables stay whole
    struct mu_aggregation *aggregation; // of gradients (aggregation.h); owned. NULL: updates happen at once
    int n_workers;
    mu_device **worker_devices;       // [n_workers] several workers may share a device
    void *coordinator;                // the strategy's only coordinator, not retained; NULL: none (coordinator)
    pthread_mutex_t coordinator_lock; // guards it
    bool remote;                      // the tasks are other processes
    mu_rpc_client **workers;          // [n_workers] retained; NULL unless they are
    pthread_mutex_t names_lock;       // guards `names`
    struct mu_served_copies *copies;  // NULL: a variable is on one server only (served_copies.c)
    struct {
        char **items;
        size_t n, capacity;
    } names; // of the variables on servers in other processes, all different
} mu_servers;

void mu__servers_free(mu_servers *servers);

// mu__variable_server returns the index of the server that has the variable, -1 if none has.
int mu__variable_server(const mu_variable *variable);

// ---- Servers in other processes (remote_servers.c) ----------------------------------------------

// mu__servers_reach connects to the servers of a cluster, and deletes what a coordinator before this one left there. It
// blocks until every server is there; it begins to connect to the workers, but waits for none. Errors: UNAVAILABLE
// naming the server that is not there after MUSTER_TIMEOUT.
mu_status mu__servers_reach(mu_servers *servers, const mu_cluster_spec *spec);

// mu__new_name returns a name that is free on the servers: the requested one, or the requested one with a number
// appended. It belongs to the servers; NULL on error.
const char *mu__new_name(mu_servers *servers, const char *wanted);
// ---- Copies and snapshots (served_copies.c) -----------------------------------------------------

// mu__served_copies_begin makes the variables on servers in other processes survive them: with a copy of each on
// another server, or from snapshots. It blocks until every store has its primary and its copy, at most MUSTER_TIMEOUT.
// mu__served_copies_end ends the thread that watches over them; it must precede the release of the servers' clients.
mu_status mu__served_copies_begin(mu_servers *servers, const mu_parameter_server_strategy_args *args);
void mu__served_copies_end(mu_servers *servers);

// ---- Servers in other processes (remote_servers.c), continued -----------------------------------

// mu__make_remote_variable makes a variable on a server, which identifies variables by name: if the name is taken, a
// number is appended. Owned by the caller.
mu_variable *mu__make_remote_variable(mu_strategy *strategy, const mu_variable_args *args, int server);

// ---- Per-worker values (per_worker_variable.c) --------------------------------------------------

// mu__per_worker_values_make gives a worker in another process its values of a graph's per-worker variables, unless it
// has them.
mu_status mu__per_worker_values_make(mu_rpc_client *worker, const mu_graph *graph);

// mu__warn_unscheduled says once that a function works in this process, if the strategy has parameter servers and no
// call of a coordinator runs here.
void mu__warn_unscheduled(mu_strategy *strategy, const char *function);

// ---- Running functions (served_run.c) -----------------------------------------------------------

// mu__served_trace returns the graph of a function for such arguments (as mu__function_concrete, NULL: none). Tracing
// happens on the calling thread; it may make variables. Borrowed.
mu_concrete *mu__served_trace(mu_strategy *strategy, mu_function *function, const mu_value *arguments);

// mu__served_arguments writes the inputs of a graph that such arguments have, each retained.
mu_status mu__served_arguments(const mu_graph *graph, const mu_value *arguments, mu_tensor **out);

// mu__served_call runs a function on the device of a worker in this process and waits for it. Effects on variables
// happen one by one, as requests to their servers, so that calls on several devices at the same time see each other's
// updates. Per-worker variables are those of the worker. Any thread may call it. The result belongs to the caller; NULL
// on error.
mu_value *mu__served_call(mu_strategy *strategy, int worker, mu_function *function, mu_value *arguments);

// mu__served_run runs a graph with these inputs on a device in the same way and waits; `out` [graph outputs] gets owned
// references. The inputs must fit the graph (mu__check_inputs). Of `concrete` only graph, lock and plans are used. It
// may be called on the device's thread, which mu__served_thread returns (NULL: it cannot be started).
mu_status mu__served_run(mu_device *device, mu_concrete *concrete, mu_tensor *const *in, mu_tensor **out);
mu_worker *mu__served_thread(mu_device *device);

#endif
