// Functions that a coordinator sends to workers: the worker keeps a graph, and runs it when asked.
//
// A graph arrives in its serialised form, with the address of the server that keeps each of its variables. The worker
// runs it as a call on one of its devices (served_run.c): segments as plans of the engine, effects as requests to the
// servers. docs/rpc.md has the methods; remote_function.c is the coordinator's end.
#ifndef MU_SRC_DISTRIBUTE_FUNCTION_SERVICE_H
#define MU_SRC_DISTRIBUTE_FUNCTION_SERVICE_H

#include "distribute/servers/input_service.h"

#include <muster/rpc.h>

// mu__remote_function_register sends a graph to a worker and returns the number by which it is run; -1 on error. Every
// variable of the graph must be kept by a server. Errors: FAILED_PRECONDITION for one that is not; those of a call and
// of reading a graph.
int64_t mu__remote_function_register(mu_rpc_client *worker, const mu_graph *graph);

// A worker, and what ends the wait for the end of a call that is cancelled there (NULL: nothing but the connection's
// loss); both are borrowed.
typedef struct mu_remote_worker {
    mu_rpc_client *client;
    mu_cancellation *ending;
} mu_remote_worker;

// mu__remote_function_run runs it with the graph's inputs and waits; `out` [graph outputs] gets tensors of the pool.
// The thread's cancellation ends it: the worker has then ended it too, unless it is lost. Errors: UNAVAILABLE, also if
// the worker does not know the number (it is a new process, or has freed what it had; a worker of an earlier release
// says NOT_FOUND); FAILED_PRECONDITION if the run's request has come to the worker before; those of the function.
mu_status mu__remote_function_run(const mu_remote_worker *worker, int64_t number, const mu_graph *graph,
                                  mu_tensor *const *in, mu_tensor **out);

// mu__remote_function_run_on does so where the worker has some of the inputs, whose positions in `in` have tensors
// without elements. *fits: false, and nothing has happened, if their next elements are others than the graph takes.
mu_status mu__remote_function_run_on(const mu_remote_worker *worker, int64_t number, const mu_graph *graph,
                                     mu_tensor *const *in, const mu_input_positions *positions, mu_tensor **out,
                                     bool *fits);

// mu__remote_function_delete lets the worker forget it. Errors: UNAVAILABLE, as for a run.
mu_status mu__remote_function_delete(mu_rpc_client *worker, int64_t number);

#endif
