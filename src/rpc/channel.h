// Messages of any size on a session, both ways.
//
// A message that does not fit into one frame is sent in parts, which are requests "rpc.part" of their own: the answer
// to a part is what lets the next one be sent, so that neither end queues more than a window of them, and small
// messages pass between the parts of large ones. The request or reply that the message belongs to follows its last part
// and names its transfer. Between two processes of one host, the bytes of parts go through shared memory
// (slots.h) as soon as both ends have agreed on it, and then also those of smaller messages. All functions are
// called with the lock of the node held.
#ifndef MU_SRC_RPC_CHANNEL_H
#define MU_SRC_RPC_CHANNEL_H

#include "comm/sessions/session.h"
#include "comm/sessions/slots.h"
#include "rpc/rpc.h"

enum {
    MU_RPC_INLINE = 1 << 19,      // most bytes of a message that goes within a frame
    MU_RPC_SHARED = 1 << 15,      // the same where there is shared memory
    MU_RPC_PART = 1 << 19,        // bytes of a part
    MU_RPC_NAME = 200,            // most bytes in a method's name
    MU_RPC_HEAD = 2 * MU_RPC_NAME // more than what goes before a message in its frame
};

// Bytes that the two lists of one end's channels may hold together.
typedef struct mu_budget {
    size_t used, limit;
} mu_budget;

typedef struct mu_outgoing mu_outgoing;
typedef struct mu_arriving mu_arriving;

// How far this end is with the memory into which it writes parts.
typedef enum mu_sharing {
    MU_SHARING_POSSIBLE, // not asked for yet
    MU_SHARING_ASKED,    // the other end's answer is missing
    MU_SHARING_YES,
    MU_SHARING_NO
} mu_sharing;

typedef struct mu_channel {
    mu_node *node;
    int member; // of the node, whose session this is
    mu_session *session;
    mu_budget *budget;     // of what arrives
    mu_outgoing *outgoing; // messages being sent, the next one to send a part first
    mu_arriving *arriving; // messages of which parts have come
    uint64_t n_transfers;  // that this end has begun
    int n_unanswered;      // parts whose answers are missing
    int n_arriving;
    uint8_t *part; // a part, while it is written

    mu_sharing sharing;
    mu_slots *own, *theirs; // memory that this end writes, and reads; NULL: none
    unsigned in_use;        // slots of `own` that the other end has not read yet, a bit for each
    bool challenged;        // `challenge` was sent to the other end
    uint8_t challenge[MU_SLOTS_CHALLENGE];
} mu_channel;

// mu__channel_begin sets up a channel on the session of a node's member, which has just opened.
void mu__channel_begin(mu_channel *channel, mu_node *node, int member, mu_budget *budget);
// mu__channel_fits_inline says whether a message of so many bytes goes within a frame; asks for shared memory when it
// would be of use.
bool mu__channel_fits_inline(mu_channel *channel, size_t bytes);

// mu__channel_end frees what a channel holds, after its session was closed.
void mu__channel_end(mu_channel *channel);

// What to do when the last part of a message has been sent, or has failed (code not MU_OK, with the reason).
typedef void mu_sent(void *arg, uint64_t transfer, mu_status code, const char *why);

// mu__channel_send begins to send a message in parts and retains it. `sent` is called once, by mu__channel_pump, unless
// mu__channel_drop is called before. Returns the number of the transfer; 0: no memory, recorded.
uint64_t mu__channel_send(mu_channel *channel, mu_message *message, mu_sent *sent, void *arg);
void mu__channel_drop(mu_channel *channel, uint64_t transfer);
// mu__channel_sent returns how many of its bytes were sent; 0: it has ended.
size_t mu__channel_sent(const mu_channel *channel, uint64_t transfer);
// mu__channel_pump sends parts while the window has room.
void mu__channel_pump(mu_channel *channel);

// mu__channel_asked handles "rpc.part", "rpc.slot", "rpc.drop" and "rpc.memory"; false: another request.
bool mu__channel_asked(mu_channel *channel, const mu_request *request);
// mu__channel_take returns the message of a complete transfer, with a reference for the caller, who gives its bytes
// back to the budget; NULL: there is none.
mu_message *mu__channel_take(mu_channel *channel, uint64_t transfer);
// mu__budget_take reserves bytes; false: they are not there.
bool mu__budget_take(mu_budget *budget, size_t bytes);

// ---- Shared memory (sharing.c) ------------------------------------------------------------------

// mu__sharing_ask begins to agree on memory that this end writes, unless that is impossible.
void mu__sharing_ask(mu_channel *channel);
// mu__sharing_asked handles the data of "rpc.memory": without an address it answers with a challenge, with one it maps
// the memory. Returns the bytes of the answer, written to `out`. Errors: as mu__slots_find.
mu_status mu__sharing_asked(mu_channel *channel, const mu_request *request, uint8_t out[MU_SLOTS_CHALLENGE],
                            size_t *bytes);
void mu__sharing_end(mu_channel *channel);

// mu__put_number and mu__put_bytes append to a buffer that has room; they return its new end.
uint8_t *mu__put_number(uint8_t *to, uint64_t number, int bytes);
uint8_t *mu__put_bytes(uint8_t *to, const void *from, size_t bytes);

// ---- What both ends say of themselves (greeting.c) ----------------------------------------------

typedef struct mu_rpc_greeting {
    int credits;        // of a server: calls that it takes at the same time
    double heartbeat;   // seconds
    int64_t most_bytes; // of a server: of one message, if it has room for nothing else; 0: it does not say
} mu_rpc_greeting;
void mu__rpc_greet(const mu_rpc_greeting *greeting, char *text, size_t bytes);
bool mu__rpc_greeted(const char *text, mu_rpc_greeting *out); // false: another kind of connection

// mu__rpc_prepare fills a node that is to listen or dial: key, role, heartbeat, lock. Errors: as mu__mesh_key.
mu_status mu__rpc_prepare(mu_node *node, mu_role role, pthread_mutex_t *lock);
// mu__rpc_check_layer refuses every RPC layer but "muster"; `what` begins the message: "mu_rpc_…: the RPC layer".
mu_status mu__rpc_check_layer(const char *layer, const char *what);

#endif
