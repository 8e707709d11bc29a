// Private header of the layer rpc: values and signatures as bytes, and the channel that both ends of a connection use.
//
// A connection is a session of the mesh (session.h); channel.c puts messages of any size on it, server.c and
// client.c give them their meaning. docs/rpc.md has the protocol. Nothing here knows graphs, engines or strategies.
#ifndef MU_SRC_RPC_H
#define MU_SRC_RPC_H

#include "comm/sessions/wire.h"
#include "tensor/tensor.h"

#include <muster/cancellation.h>
#include <muster/rpc.h>

// ---- Messages (message.c) -----------------------------------------------------------------------

// A range of a message that is to be sent: bytes of the message's own memory, or the elements of a tensor.
typedef struct mu_extent {
    const uint8_t *at;
    size_t bytes;
    mu_tensor *owner; // retained; NULL: the message's memory
} mu_extent;

// The bytes of a value, aligned to 64: tensors of a received message use its memory. An object.
typedef struct mu_message {
    mu_object object;
    uint8_t *data; // [held]
    size_t bytes, held;
    struct {
        mu_extent *items;
        size_t n, capacity;
    } extents; // n 0: the message is in `data`
} mu_message;

// mu__message_new makes a message with undefined bytes; the caller owns it. NULL: RESOURCE_EXHAUSTED, recorded.
mu_message *mu__message_new(size_t bytes);

// mu__message_of encodes a value (NULL: nothing). Owned by the caller. Errors: INVALID_ARGUMENT for what cannot be
// sent, naming `what`: variables, per-replica values, symbolic tensors.
mu_message *mu__message_of(const mu_value *value, const char *what);

// mu__message_bytes counts the bytes of such a message, without reading elements. Errors: as mu__message_of.
mu_status mu__message_bytes(const mu_value *value, const char *what, size_t *bytes);

// mu__message_filled makes the message of one tensor, whose elements `fill` writes; `elements` is aligned. Elements of
// a large tensor are written where they are sent from. Owned by the caller; NULL if `fill` fails.
typedef mu_status mu_message_fill(void *elements, void *arg);
mu_message *mu__message_filled(const mu_spec *spec, mu_message_fill *fill, void *arg);

// mu__message_to_send is mu__message_of for a message that is only read by mu__message_copy: the elements of large
// tensors stay where they are.
mu_message *mu__message_to_send(const mu_value *value, const char *what);
// mu__message_copy copies `bytes` of a message from `offset` on.
void mu__message_copy(const mu_message *message, size_t offset, void *to, size_t bytes);

// mu__message_value decodes untrusted bytes from `offset` to the message's end; `out` is owned by the caller, NULL:
// nothing. Large tensors use the message's memory and retain it. Errors: DATA_LOSS.
mu_status mu__message_value(mu_message *message, size_t offset, mu_value **out);
// mu__message_value_of_file does so for what a server has written itself, perhaps before there was a limit of elements:
// there are as many as the file has bytes for.
mu_status mu__message_value_of_file(mu_message *message, mu_value **out);

// ---- Signatures (signature.c) -------------------------------------------------------------------

// mu__signature_check checks that arguments (NULL: none) match a signature such as "(int32[], {a: float32[?, 2]})".
// mu__signature_valid checks the signature itself. Errors: INVALID_ARGUMENT naming the place.
mu_status mu__signature_check(const char *signature, const mu_value *arguments);
mu_status mu__signature_valid(const char *signature);

// ---- What the library registers itself (server.c) -----------------------------------------------

// mu__server_add registers a method of any name, also one of the library's own, with a server that has not started.
// mu__server_keep retains an object until the server is released, such as a method's `arg`.
mu_status mu__server_add(mu_rpc_server *server, const mu_rpc_server_register_args *args);
mu_status mu__server_keep(mu_rpc_server *server, void *object);
// mu__server_add_metrics adds numbers to those that the server shows (mu__metrics_gauge), before it starts.
struct mu_text;
mu_status mu__server_add_metrics(mu_rpc_server *server, mu_status (*writer)(void *arg, struct mu_text *out), void *arg);
// mu__server_drain refuses new calls and clients with UNAVAILABLE and waits until those that run have ended, for at
// most so long. Returns whether none runs.
bool mu__server_drain(mu_rpc_server *server, double seconds);
// mu__server_metrics_port returns the port of the loopback at which a server shows its numbers; -1: none.
int mu__server_metrics_port(const mu_rpc_server *server);

// mu__server_run_on has the calls of a method run on a thread, one after the other, from now on: on a device's thread,
// so that a call does not pass through two. The first thread stays. Without threads (mu__system) nothing changes.
mu_status mu__server_run_on(mu_rpc_server *server, const char *method, mu_worker *thread);

// mu__server_once refuses calls of a method, which was added, whose number is that of one of its last 1024: a request
// that comes again is done once (once.c). Errors: INTERNAL if no method has the name; RESOURCE_EXHAUSTED.
mu_status mu__server_once(mu_rpc_server *server, const char *method);

// mu__server_add_writer registers a method that writes its answer itself; NULL with an error recorded if it fails.
typedef mu_message *mu_rpc_writer(const mu_value *arguments, void *arg);
mu_status mu__server_add_writer(mu_rpc_server *server, const char *name, mu_rpc_writer *writer, void *arg);

// mu__call_wait_begin announces that the running method waits for other calls, and mu__call_wait_end that it no longer
// does: its thread does not count meanwhile, so that the others get through. Errors: RESOURCE_EXHAUSTED if too many
// wait.
mu_status mu__call_wait_begin(void);
void mu__call_wait_end(void);

// mu__client_forget has the client's next request tell the server that what it keeps under a name is released
// (forgotten.c).
typedef enum mu_released { MU_RELEASED_VALUE, MU_RELEASED_TABLE, MU_N_RELEASED } mu_released; // value: or accumulator
void mu__client_forget(mu_rpc_client *client, mu_released what, const char *name);

// mu__call_reserve counts memory that a method takes for its answer in the server's budget, before it takes it; outside
// of methods nothing happens. Errors: RESOURCE_EXHAUSTED, naming the calls that hold the most.
mu_status mu__call_reserve(size_t bytes);

// ---- Calls that end later (calls.c) -------------------------------------------------------------

// mu__call_defer is for a method: its call ends by mu__call_answer, on any thread, and not when the method returns. The
// value (NULL: nothing) is copied. A server that stops ends the calls that are left; mu__server_at_stop registers who
// must not answer any after that.
typedef struct mu_server_call mu_server_call;
mu_server_call *mu__call_defer(void);
void mu__call_answer(mu_server_call *call, const mu_value *value);
// mu__call_cancelled returns whether the client no longer waits for such a call; it must be answered all the same.
bool mu__call_cancelled(mu_server_call *call);
void mu__server_at_stop(mu_rpc_server *server, void (*stop)(void *arg), void *arg);

// mu__server_accept_workers lets in clients that have only a worker's key, and with it a worker's role. Before the
// start.
void mu__server_accept_workers(mu_rpc_server *server);

// mu__call_client returns the number of the connection from which the running method was called. mu__server_client
// says what became of it.
typedef enum mu_client_state {
    MU_CLIENT_OPEN,
    MU_CLIENT_CLOSED, // by the other end: its process has ended, or has given the connection up
    MU_CLIENT_SILENT  // by this end, which has not heard from it, or by the network; or too many have ended since
} mu_client_state;
uint64_t mu__call_client(void);
// mu__call_may fails with PERMISSION_DENIED if the caller of the running method may not call another one.
mu_status mu__call_may(const char *method);
mu_client_state mu__server_client(mu_rpc_server *server, uint64_t client);

// ---- What a server keeps for a coordinator (owner.c) --------------------------------------------

// mu__server_owned registers, before the server has started, how something is freed that coordinators make on it.
// mu__server_free_owned frees all of it. mu__server_free_orphans does so if a coordinator has been gone for long
// enough, and returns when it is due again; without the server's lock. mu__server_on_owner_left registers a function
// that is called when that time has become sooner, with the server's lock held: it may only wake another thread.
mu_status mu__server_owned(mu_rpc_server *server, void (*free)(void *arg), void *arg);
void mu__server_free_owned(mu_rpc_server *server);
int64_t mu__server_free_orphans(mu_rpc_server *server, int64_t now);
void mu__server_on_owner_left(mu_rpc_server *server, void (*left)(void *arg), void *arg);

// ---- Without threads ----------------------------------------------------------------------------

// In a system without threads (mu_system.threads) the owner of a server or a client calls its step function repeatedly.
// Each returns when it is due again.
int64_t mu__server_step(mu_rpc_server *server);
int64_t mu__client_step(mu_rpc_client *client);

// ---- Requests in timelines ----------------------------------------------------------------------

// The number of a call has two parts: the request that it is for, which calls made meanwhile by the method have too,
// and its own. So timelines of all processes show what belongs together.
enum { MU_CALL_BITS = 24 };
#define MU_REQUEST_MASK ((UINT64_C(1) << (64 - MU_CALL_BITS)) - 1)
static inline uint64_t mu__request_of(uint64_t call) { return call >> MU_CALL_BITS; }

// ---- Clients ------------------------------------------------------------------------------------

// mu__client_call is mu_rpc_call with a function that is called once, when the call has ended, on any thread and with
// locks held: it may only wake another thread. Owned by the caller.
mu_rpc_result *mu__client_call(mu_rpc_client *client, const char *method, mu_value *arguments, double seconds,
                               void (*ended)(void *arg), void *arg);
// mu__result_settle cancels a call and waits until it no longer runs at the server: until that has answered, the
// connection is lost, the call's deadline has passed, or `leaves` is cancelled (NULL: nothing).
void mu__result_settle(mu_rpc_result *result, mu_cancellation *leaves);
// mu__client_call_since is mu__client_call of what came with a version of the wire. If the server speaks an older one
// the call ends with UNIMPLEMENTED, which names both, and is not sent. need NULL: every version has it.
mu_rpc_result *mu__client_call_since(mu_rpc_client *client, const mu_wire_need *need, const char *method,
                                     mu_value *arguments, double seconds, void (*ended)(void *arg), void *arg);
// mu__result_too_large returns whether a failed call exceeds what its server can ever take.
bool mu__result_too_large(const mu_rpc_result *result);
// mu__client_sent returns how many bytes of a large call's arguments are on their way or have arrived; SIZE_MAX: all
// are.
size_t mu__client_sent(mu_rpc_client *client, const mu_rpc_result *result);
double mu__client_timeout(const mu_rpc_client *client); // seconds that a call has
// mu__call_failure writes why a call failed, and returns `text`. For a program's own method the text begins with it:
// "f" at ADDRESS: why. For a method of the library, which no program has called, it follows the first line of `why`, in
// brackets. `place`: mu__client_place.
enum { MU_FAILURE_TEXT = 900 };
const char *mu__call_failure(char text[MU_FAILURE_TEXT], const char *method, const char *place, const char *why);
// mu__client_watch registers such a function for every change of what mu__client_server returns; NULL: none any more.
// mu__client_server returns the number of the process that is connected, 0: none, and says of the same moment whether
// the process that was connected last is gone: it has ended its connection, and its address refuses new ones.
void mu__client_watch(mu_rpc_client *client, void (*changed)(void *arg), void *arg);
uint64_t mu__client_server(mu_rpc_client *client, bool *gone);
// mu__client_keep says that what this process makes on the server from now on is all that it has there.
// mu__client_has_lost returns whether that is lost, because the server's process is another one since. The first comes
// before all calls of the second; without it nothing is lost.
void mu__client_keep(mu_rpc_client *client);
bool mu__client_has_lost(mu_rpc_client *client);
// mu__lost_text writes that a parameter server has started again, which one it is and what is lost; returns `text`.
enum { MU_LOST_TEXT = 480 };
const char *mu__lost_text(char text[MU_LOST_TEXT], const mu_rpc_client *client);
// mu__client_ended counts the connections to the server that this end has closed or has seen end: whoever holds
// something that a connection's end takes back compares two counts. Takes no lock.
unsigned mu__client_ended(const mu_rpc_client *client);
// mu__client_route sets what mu__remote_call goes through (store_client.c), which must outlive the client's calls.
void mu__client_route(mu_rpc_client *client, void *route, int store);
void *mu__client_routed(const mu_rpc_client *client, int *store); // NULL: the client itself

// mu__client_address returns the address that a client was made for; it belongs to the client.
const char *mu__client_address(const mu_rpc_client *client);
// mu__client_task returns which task of the cluster the client is for ("parameter server 0"), if whoever made it has
// said so (mu__client_of_task); NULL: nobody has. mu__client_place returns the address, followed by ", " and that. Both
// belong to the client.
const char *mu__client_task(const mu_rpc_client *client);
const char *mu__client_place(const mu_rpc_client *client);

// ---- Functions ----------------------------------------------------------------------------------

// Implemented by distribute, as part of the public interface: calls a traced function outside of traces and replicas.
mu_value *mu_function_call(mu_function *function, mu_value *arguments);

#endif
