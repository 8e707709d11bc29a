// A server's parts: its methods, its connections, and the calls that it runs. server.c makes and ends it; calls.c
// answers calls.
//
// One thread drives the node and does nothing else, so that heartbeats go out while functions run; functions run on
// threads of their own, as many as there are calls, up to a limit, or on the thread of a device. The server's lock
// protects everything; it is not held while a function runs.
#ifndef MU_SRC_RPC_SERVER_H
#define MU_SRC_RPC_SERVER_H

#include "rpc/channel.h"
#include "rpc/server/call_metrics.h"

#include <muster/cancellation.h>

#include <stddef.h>

enum { MU_MOST_BLOCKED = 1024 };

// Calls that wait for a thread, the first to come first.
typedef struct mu_call_list {
    mu_server_call *first, *last;
    int n;
} mu_call_list;

// Calls of a method that run on a thread of somebody else, one after the other. That thread may get to a call only when
// the server has ended long ago.
typedef struct mu_call_queue {
    mu_object object;
    mu_worker *thread;
    mu_call_list waiting; // with the server's lock
    bool posted;          // with the server's lock: the thread will look at `waiting`
    pthread_mutex_t lock; // of `server`; taken before the server's
    bool has_lock;
    mu_rpc_server *server; // NULL: it has stopped
} mu_call_queue;

typedef struct mu_rpc_entry {
    char *name, *input, *output; // signatures; NULL: not known
    mu_rpc_method *fn;
    void *arg;
    mu_function *function; // retained; NULL: fn
    mu_method_metrics metrics;
    mu_rpc_writer *writer; // instead of either
    mu_call_queue *queue;  // retained; NULL: calls run on the server's threads
    struct mu_once *once;  // owned; NULL: a call is done however often its request comes
} mu_rpc_entry;

typedef struct mu_connection {
    mu_member member;
    mu_channel channel;
    uint64_t number; // of this client among all: a slot is used again
    int n_calls;
    bool is_owner; // of a coordinator
} mu_connection;

struct mu_server_call {
    struct mu_server_call *next_waiting, *next;
    mu_call_list *list; // in which it waits; NULL: it runs, or has run
    mu_rpc_server *server;
    mu_connection *connection;
    uint64_t client; // connection->number when it came
    mu_role role;    // of that client, and the version of the wire that it speaks: another may have the slot later
    int version;
    uint64_t request; // of the session
    uint64_t id;      // of the client's choice
    int64_t deadline_ns;
    mu_rpc_entry *entry; // NULL: the list of methods
    int64_t begun_ns;
    mu_message *message; // the arguments, from `offset`
    size_t offset;
    size_t held;                       // bytes of the budget,
    size_t reserved;                   // of these for the answer
    size_t refused;                    // of a deferred answer that had no room; 0: it has
    bool cancelled, overdue;           // overdue: because its deadline passed
    bool deferred, returned, answered; // deferred: the answer comes by mu__call_answer, before or after the return
    mu_cancellation *cancellation;     // while the function runs; borrowed
    mu_message *reply;
};

struct mu_rpc_server {
    mu_object object;
    mu_runtime *runtime; // of the thread that made it: the functions run with it
    mu_node node;
    pthread_mutex_t lock;
    pthread_cond_t work; // a call waits, or the threads shall end
    bool has_lock, started, draining, stopping, said_goodbye, ended;
    int64_t goodbye_ns;     // when a stopped server no longer waits for its clients to hear of it
    char *wanted, *address; // as given; with the port that it has
    int max_threads, credits, n_threads, n_idle;
    int n_blocked; // threads whose methods wait for other calls; at most MU_MOST_BLOCKED
    int n_queued;  // calls that run on the threads of queues
    mu_worker *driver, **threads;
    pthread_mutex_t function_lock; // traced functions run one after the other
    struct {
        mu_rpc_entry *items;
        size_t n, capacity;
    } methods;
    struct {
        void **items;
        size_t n, capacity;
    } kept;                     // objects, retained
    mu_connection *connections; // [node.n_members]
    uint64_t n_clients;
    // [node.n_members]: numbers of the clients that ended their connections last, in a ring. Not in the connection: its
    // slot may belong to another client by the time of the query.
    uint64_t *closed;
    size_t n_closed; // since the start
    void (*at_stop)(void *arg);
    void *at_stop_arg;
    struct {
        struct {
            void (*free)(void *arg);
            void *arg;
        } * items;
        size_t n, capacity;
        pthread_mutex_t lock; // held while it is freed; taken before all others
    } owned;                  // by coordinators: what is freed when they are gone (owner.c)
    int n_owners;             // open connections of coordinators
    int64_t orphaned_ns;      // when that happens; MU_FOREVER: there is a coordinator, or there was none
    void (*owner_left)(void *arg);
    void *owner_left_arg;
    struct {
        struct {
            mu_metrics_writer *writer;
            void *arg;
        } * items;
        size_t n, capacity;
    } gauges;                 // numbers of others, such as the service of variables
    mu_metrics_http *metrics; // NULL: not served
    mu_budget budget;
    mu_server_call *calls; // all
    mu_call_list waiting;  // for one of the server's threads
};

static inline mu_rpc_server *mu__server_of(mu_node *node)
{
    return (mu_rpc_server *)((char *)node - offsetof(mu_rpc_server, node));
}

// mu__server_method returns the method with this name; NULL: there is none.
mu_rpc_entry *mu__server_method(const mu_rpc_server *server, const char *name);

// permissions.c. `version`: of the wire, as the client's connection speaks it. mu__permission_check's errors:
// PERMISSION_DENIED naming role and method.
bool mu__is_permitted(mu_role role, int version, const char *method);
mu_status mu__permission_check(mu_role role, int version, const char *method);

// once.c, with the lock held: takes the number of a call. False: the method's calls are done once, and one of the last
// had it.
bool mu__once_take(mu_rpc_entry *entry, uint64_t number);

// call_budget.c: an answer counts in the budget before memory is taken for it, if it has MU_RESERVE_FROM bytes or more;
// smaller ones when they are sent. mu__call_reserve_for (call NULL: nothing happens) is without the lock. Errors:
// RESOURCE_EXHAUSTED, with the text of mu__call_no_room. The others are with the lock held; mu__call_no_room names the
// calls that hold the most.
enum { MU_RESERVE_FROM = 1 << 16, MU_NO_ROOM_TEXT = 600 };
mu_status mu__call_reserve_for(mu_server_call *call, size_t bytes);
bool mu__call_reserve_locked(mu_server_call *call, size_t bytes);
void mu__call_no_room(const mu_rpc_server *server, size_t bytes, char *text, size_t size);

// owner.c; with the lock held: a connection has begun, or ended.
void mu__owner_joined(mu_rpc_server *server, mu_connection *connection);
void mu__owner_left(mu_rpc_server *server, mu_connection *connection);

// calls.c; with the lock held. mu__server_asked takes a request of a client. mu__server_cancel_of cancels the calls of
// a connection that has ended. mu__server_overdue cancels calls whose clients no longer wait and returns the next such
// time.
void mu__server_asked(mu_node *node, int member, const mu_request *request);
void mu__server_cancel_of(mu_rpc_server *server, uint64_t client);
int64_t mu__server_overdue(mu_rpc_server *server, int64_t now);
// mu__server_run_waiting runs the calls that wait, on the calling thread.
void mu__server_run_waiting(mu_rpc_server *server);
// mu__server_stop_calls cancels all calls and ends the threads; without the lock.
void mu__server_stop_calls(mu_rpc_server *server);
// mu__server_runs_here tells whether this thread runs a call of the server.
bool mu__server_runs_here(const mu_rpc_server *server);

#endif
