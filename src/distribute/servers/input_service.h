// Inputs that a worker keeps for a coordinator: values, and datasets that it iterates itself. Functions name them.
//
// A value is sent once. Of a dataset a description is sent (data/describe.h), from which the worker makes the
// pipeline; a call of a function takes its next element there. docs/rpc.md has the methods; input_service.c is the
// worker's end, remote_input.c the coordinator's.
#ifndef MU_SRC_DISTRIBUTE_INPUT_SERVICE_H
#define MU_SRC_DISTRIBUTE_INPUT_SERVICE_H

#include "graph/graph.h"
#include "rpc/services/service.h"

#include <muster/data.h>

// ---- On the worker ------------------------------------------------------------------------------

typedef struct mu_worker_inputs mu_worker_inputs; // an object

// mu__worker_inputs_add registers the methods "muster.input.…" with a server that has not started. It frees the inputs
// when their coordinator is gone, or the next one comes (mu__server_owned). Owned by the caller.
mu_worker_inputs *mu__worker_inputs_add(mu_rpc_server *server, mu_kept *kept);

// mu__worker_inputs_take writes the tensors that a graph gets: those of `sent`, and where `positions` ([position,
// number of an input], …) says so, an input's value or its dataset's next element. They belong to the pool. An element
// that the graph does not take stays the next one, and *fits becomes false. Errors: UNAVAILABLE for an input that is
// not here (it was another process, or was freed); OUT_OF_RANGE at the end of a dataset; INVALID_ARGUMENT.
mu_status mu__worker_inputs_take(mu_worker_inputs *inputs, const mu_graph *graph, const mu_value *sent,
                                 const mu_value *positions, mu_tensor **out, bool *fits);

// ---- In the coordinator -------------------------------------------------------------------------

// An input on one worker. When it is destroyed, the worker is asked to free the input, without waiting.
typedef struct mu_remote_input {
    mu_object object;
    mu_rpc_client *client; // retained
    uint64_t process;      // that has it (mu_rpc_client_server)
    int64_t number;        // there
    bool dataset;
    mu_value *element; // spec of the value, or of the next element; NULL: not requested yet. Retained
} mu_remote_input;
extern mu_type mu__remote_input_type;

// mu__remote_input_value sends a value, mu__remote_input_dataset the description of a dataset; `name` is used in the
// worker's messages. Owned by the caller. Errors: UNIMPLEMENTED if the dataset cannot be described, or the worker
// speaks an older version of the wire; those of a call.
mu_remote_input *mu__remote_input_value(mu_rpc_client *worker, const char *name, mu_value *value);
mu_remote_input *mu__remote_input_dataset(mu_rpc_client *worker, const char *name, mu_dataset *dataset);

// mu__remote_input_leaf returns the input that a leaf of arguments is (a value of kind MU_VALUE_PER_WORKER); NULL: it
// is none.
mu_remote_input *mu__remote_input_leaf(const mu_value *leaf);

// mu__remote_input_specs returns arguments with the spec of its next element in the place of each input, of the pool.
// It asks the worker for specs that are not known.
mu_value *mu__remote_input_specs(mu_value *arguments);

// The positions of the inputs among the tensors of some arguments.
typedef struct mu_input_positions {
    struct {
        int64_t *items; // position, number of the input, position, …
        size_t n, capacity;
    } pairs;
    struct {
        mu_remote_input **items; // borrowed
        size_t n, capacity;
    } inputs;
} mu_input_positions;
mu_status mu__input_positions_find(mu_input_positions *positions, const mu_value *arguments);
void mu__input_positions_free(mu_input_positions *positions);
// mu__input_positions_forget makes the next call request the specs of next elements again, because they differed from
// the expected ones.
void mu__input_positions_forget(const mu_input_positions *positions);

#endif
