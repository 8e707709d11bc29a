// A client's parts: its one connection, the calls that wait or are on their way, and their results. client.c makes and
// ends it and keeps the connection; result.c is what a caller waits for; methods.c lists what the server can be asked.
//
// Two locks, always taken in this order: the client's, which protects the connection and the lists, and a result's,
// which protects how the call ended. A result outlives its client, so the client ends all of its results.
#ifndef MU_SRC_RPC_CLIENT_H
#define MU_SRC_RPC_CLIENT_H

#include "rpc/channel.h"

#include <stddef.h>

struct mu_rpc_result {
    mu_object object;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int made; // locks that exist
    bool done;
    bool gone; // the server has answered, or is not reached any more: also of a call that was cancelled before
    mu_rpc_client *client; // NULL when done
    mu_error_value error;  // how it ended
    mu_message *reply;     // MU_OK: the value, from `offset`
    size_t offset;
    mu_value *value; // decoded by the first who asked
    bool decoded;
    void (*ended)(void *arg); // called once, when done; may be NULL
    void *ended_arg;
    char method[MU_RPC_NAME + 1];

    // Protected by the client's lock.
    mu_rpc_client *owner; // while it is in one of the client's lists
    struct mu_rpc_result *next;
    mu_message *message;
    uint64_t id, transfer; // transfer: of the arguments while parts are sent; 0: none
    int64_t deadline_ns, begun_ns;
    mu_wire_need need;
    bool cancel_sent; // the server is informed that the call is cancelled
    bool too_large;   // for the server, whatever else that does
    atomic_bool cancelled;
};

// Calls in the order of their beginning.
typedef struct mu_result_list {
    mu_rpc_result *first, *last;
    int n;
} mu_result_list;

// A deletion request: it names what was released (forgotten.c).
typedef struct mu_deletion {
    mu_rpc_result *result; // retained, as the list of names is
    mu_value *names;
    mu_released what;
} mu_deletion;

struct mu_rpc_client {
    mu_object object;
    mu_node node;
    mu_member member, *members[1];
    pthread_mutex_t lock;
    bool has_lock, ending, said_goodbye, ended;
    int64_t goodbye_ns, retry_ns, pause_ns; // retry_ns: when to dial again
    int64_t until_ns;                       // how long the thread sleeps at most
    char *name, *address;
    char *place;    // the address, and which task is there if that is known
    double timeout; // of calls, in seconds
    bool fail_fast;
    bool tried; // a dial has failed since there was a connection
    int max_waiting, credits;
    int64_t most_bytes; // that the server takes in one message; 0: not known
    mu_worker *driver;
    mu_channel channel;
    mu_budget budget;
    mu_result_list waiting, sent; // sent: to be answered, or on their way
    atomic_bool cancels;          // a call was cancelled, and the thread has not seen it
    int64_t due_ns;               // no call's deadline is earlier
    uint64_t n_calls, server;     // server: its number; 0: not connected
    uint64_t keeper;              // the server that keeps what this process has made (mu__client_keep); 0: not known
    // Names that no deletion request has yet (forgotten.c).
    struct {
        char **items;
        size_t n, capacity;
    } forgotten[MU_N_RELEASED];
    struct {
        mu_deletion *items;
        size_t n, capacity;
    } deletions;                // on their way
    bool closed, gone;          // the last connection, by the server; its process is gone (mu__client_server)
    void (*changed)(void *arg); // mu__client_watch; may be NULL
    void *changed_arg;
    void *route; // of mu__remote_call; NULL: this client
    int store;
    char **methods, **signatures; // of the last listing
    int n_methods;
};

static inline mu_rpc_client *mu__client_of(mu_node *node)
{
    return (mu_rpc_client *)((char *)node - offsetof(mu_rpc_client, node));
}

// mu__client_new makes a client that says this role and, beside whoever has the cluster's key, takes a server with the
// worker's key that `accepts` names (mu__link_accept).
mu_rpc_client *mu__client_new(const mu_rpc_client_args *given, mu_role role, int accepts);

void mu__forgotten_free(mu_rpc_client *client);        // forgotten.c
void mu__client_forget_methods(mu_rpc_client *client); // methods.c

// mu__result_new makes a result with a reference for the caller. mu__result_end ends it once; later calls do nothing.
// `reply` is retained.
mu_rpc_result *mu__result_new(mu_rpc_client *client, const char *method);
void mu__result_end(mu_rpc_result *result, const mu_error_value *error, mu_message *reply, size_t offset);
bool mu__result_is_done(mu_rpc_result *result);
void mu__result_gone(mu_rpc_result *result);

#endif
