// Remote procedure calls: functions that a process registers by name and other processes call with values.
//
// TensorFlow's tf.distribute.experimental.rpc. Both ends prove the cluster's key (MUSTER_CLUSTER_KEY) and encrypt, as
// all processes of a cluster do; without a key, both are on the loopback. In a process that has only a worker's
// key (`muster key --for`), a server is reached by clients with the same key only, and a client reaches the servers of
// tasks (muster/server.h) and of processes with its key. docs/rpc.md describes the protocol.
//
// Errors: a function that names none fails for NULL alone, with INVALID_ARGUMENT (false, 0).
#ifndef MUSTER_RPC_H
#define MUSTER_RPC_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Servers ------------------------------------------------------------------------------------

typedef struct mu_rpc_server mu_rpc_server; // answers calls of any number of clients

typedef struct mu_rpc_server_args {
    size_t size;
    const char *given;
    const char *rpc_layer; // "muster", the only one
    const char *address;   // "host:port" where the server listens; port 0: the system chooses
    mu_keyword_only only_;
    int max_clients; // connections at the same time; default 256
    int max_threads; // calls that run at the same time; default 64
    int credits;     // calls of one client that the server holds at the same time; default 256
    // bytes of arguments and results that the server holds at the same time; further calls fail with
    // RESOURCE_EXHAUSTED; default 4 GiB
    int64_t max_bytes;
} mu_rpc_server_args;

// mu_rpc_server_new makes a server that does not listen yet. Errors: INVALID_ARGUMENT for another RPC layer, an address
// that is not "host:port", or a negative limit; FAILED_PRECONDITION if this process has the key of one worker
// (`muster key --for`) and MUSTER_WIRE_VERSION is older than such keys.
#define mu_rpc_server_new(...) mu_rpc_server_new_with(MU_ARGS(mu_rpc_server_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_rpc_server *mu_rpc_server_new_with(const mu_rpc_server_args *args);

// A function that a server calls: returns the result; NULL means no result or, after mu_fail, an error. Several threads
// of the server call it at the same time. A cancelled call's waits end (mu_cancellation_use).
typedef mu_value *mu_rpc_method(mu_value *arguments, void *arg);

typedef struct mu_rpc_server_register_args {
    size_t size;
    const char *given;
    mu_rpc_server *server;
    const char *name; // at most 200 bytes
    mu_keyword_only only_;
    mu_rpc_method *fn;     // one of fn and function
    void *arg;             // passed to fn; must live as long as the server
    mu_function *function; // retained; calls of it run one after the other
    // Which arguments fn takes, such as "(int32[], {rows: float32[?, 64]})": element type and shape of each tensor,
    // with ? for an axis of any size and [*] for any shape; lists in round, maps in curly brackets. Other arguments are
    // refused before fn is called. Default: any.
    const char *input_signature;
    const char *output_signature; // for the list of methods, in the same form; default: not known
} mu_rpc_server_register_args;

// mu_rpc_server_register registers a function. Errors: FAILED_PRECONDITION after the start; INVALID_ARGUMENT for a name
// that is registered, empty, too long or begins with "muster.", for a malformed signature, and unless exactly one of fn
// and function is given.
#define mu_rpc_server_register(...) \
    mu_rpc_server_register_with(MU_ARGS(mu_rpc_server_register_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_rpc_server_register_with(const mu_rpc_server_register_args *args);

// mu_rpc_server_start begins to listen and to answer. Errors: ALREADY_EXISTS if the port is taken; UNAUTHENTICATED for
// an address that is not on the loopback if there is no cluster key (with port 0 the server then listens on the
// loopback alone); DEADLINE_EXCEEDED if the address is not resolved; FAILED_PRECONDITION if the server was started
// before.
MU_API mu_status mu_rpc_server_start(mu_rpc_server *server);

// mu_rpc_server_stop cancels all calls and ends all connections. A stopped server is not started again. The last
// release of a server stops it; both wait until the functions that it runs have returned. Works with an error pending.
// Errors: FAILED_PRECONDITION if one of these functions calls it; nor may one have the last reference.
MU_API mu_status mu_rpc_server_stop(mu_rpc_server *server);

// mu_rpc_server_address returns the "host:port" that clients use, after the start; it belongs to the server. Errors:
// FAILED_PRECONDITION before.
MU_API const char *mu_rpc_server_address(mu_rpc_server *server);

// ---- Clients ------------------------------------------------------------------------------------

typedef struct mu_rpc_client mu_rpc_client; // one connection to a server, opened again when it was lost
typedef struct mu_rpc_result mu_rpc_result; // the result of one call, which may not be there yet

typedef struct mu_rpc_client_args {
    size_t size;
    const char *given;
    const char *rpc_layer; // "muster", the only one
    const char *address;   // "host:port" of the server
    mu_keyword_only only_;
    const char *name;      // of the client, for messages; default: the address
    int64_t timeout_in_ms; // of calls without one of their own; default: MUSTER_TIMEOUT
    // Asks for the list of methods and waits for it, at most timeout_in_ms. Errors: DEADLINE_EXCEEDED.
    bool list_registered_methods;
    // While the server cannot be reached, calls fail with UNAVAILABLE; default: they wait for it until their deadline.
    bool fail_fast;
    int max_waiting;   // calls that wait to be sent; further ones fail with RESOURCE_EXHAUSTED; default 65536
    int64_t max_bytes; // bytes of results that arrive at the same time; default 4 GiB
} mu_rpc_client_args;

// mu_rpc_client_new makes a client, which begins to connect; the server may start later. Errors: INVALID_ARGUMENT for
// another RPC layer or an address that is not "host:port"; with list_registered_methods those of mu_rpc_client_methods;
// FAILED_PRECONDITION if this process has the key of one worker (`muster key --for`) and MUSTER_WIRE_VERSION is older
// than such keys.
#define mu_rpc_client_new(...) mu_rpc_client_new_with(MU_ARGS(mu_rpc_client_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_rpc_client *mu_rpc_client_new_with(const mu_rpc_client_args *args);

// mu_rpc_client_methods asks for the server's methods: a list of names in the order of their registration, or NULL.
// mu_rpc_client_signature returns a method's signatures as text, "(int32[]) -> int32[]", with "?" for one that is not
// known; list and text belong to the client. Blocks: up to the client's timeout. Errors: NOT_FOUND for another method;
// DATA_LOSS for an answer that is not a list of methods; those of a call.
MU_API const char *const *mu_rpc_client_methods(mu_rpc_client *client);
MU_API const char *mu_rpc_client_signature(mu_rpc_client *client, const char *method);

// mu_rpc_client_server returns a number that is different for each process that has been this client's server; 0: the
// client is not connected now. Works with an error pending.
MU_API uint64_t mu_rpc_client_server(mu_rpc_client *client);

typedef struct mu_rpc_call_args {
    size_t size;
    const char *given;
    mu_rpc_client *client;
    const char *method;
    mu_value *arguments; // of tensors and variables, whose values are read now; default: none. Copied
    mu_keyword_only only_;
    int64_t timeout_in_ms; // default: the client's
} mu_rpc_call_args;

// mu_rpc_call begins a call and does not wait for it. Errors: INVALID_ARGUMENT for an argument that cannot be sent, as
// a per-replica value; those of reading a variable; RESOURCE_EXHAUSTED if too many calls wait. All other errors are
// the result's.
#define mu_rpc_call(...) mu_rpc_call_with(MU_ARGS(mu_rpc_call_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_rpc_result *mu_rpc_call_with(const mu_rpc_call_args *args);

// mu_rpc_result_is_done returns without waiting whether the call has ended.
MU_API bool mu_rpc_result_is_done(mu_rpc_result *result);

// mu_rpc_result_is_ok waits for the end of the call and returns whether it succeeded. mu_rpc_result_error waits and
// returns how the call ended, MU_OK or an error whose message belongs to the result; it records nothing. Both return at
// the call's deadline at the latest; a signal or this thread's cancellation ends the wait and cancels the call.
MU_API bool mu_rpc_result_is_ok(mu_rpc_result *result);
MU_API mu_error mu_rpc_result_error(mu_rpc_result *result);

// mu_rpc_result_value waits and returns the result's value. Errors: NULL without an error: the function returned
// nothing; INVALID_ARGUMENT for a method that the server does not have and for arguments that do not match its
// signature; DEADLINE_EXCEEDED; UNAVAILABLE if the connection ended (then the function may have run); CANCELLED;
// PERMISSION_DENIED for a method of a task ("muster.…") that the key of this process does not let it call; DATA_LOSS if
// parts of a large result did not arrive; those of the function.
MU_API mu_value *mu_rpc_result_value(mu_rpc_result *result);

// mu_rpc_result_cancel ends the call with CANCELLED, here at once; the server ends the function's waits. A call that
// has ended stays as it is. Works with an error pending.
MU_API mu_status mu_rpc_result_cancel(mu_rpc_result *result);

#ifdef __cplusplus
}
#endif
#endif
