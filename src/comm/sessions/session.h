// Sessions: identified connections between processes, apart from who belongs to a job.
//
// A node is one process's end of all its sessions. It listens, admits processes that have proven the key, dials others,
// reads and sends frames, gives signs of life, and notices when the other end falls silent. It is a state machine:
// mu__node_step does what is due and never waits for anything but input, so that a thread drives it, or a simulator
// that runs many nodes (tests/simulator). The end of a session is an ordinary event. What it means, and who may come,
// is decided by the node's membership policy: mesh.c has that of equal ranks, where the end of one is the end of all;
// a server whose clients come and go is another (tests/unit/comm/test_own_membership.c).
//
// A node takes no lock: its owner calls all functions on one thread, or holds node->lock.
#ifndef MU_SRC_COMM_SESSION_H
#define MU_SRC_COMM_SESSION_H

#include "comm/sessions/net.h"

#include <pthread.h>

enum { MU_MAX_INCOMING = 64, MU_MOST_UNSENT = 8 << 20 };

typedef struct mu_node mu_node;
typedef struct mu_member mu_member;

// A link with the frames on it.
typedef struct mu_handshake {
    mu_link *link;
    mu_frames frames;
    mu_bytes out;
    size_t sent; // bytes of `out` already sent
} mu_handshake;
// mu__handshake_flush sends what it can without blocking and sets `all` when everything is sent. Records no error.
mu_status mu__handshake_flush(mu_handshake *handshake, bool *all);
short mu__handshake_events(const mu_handshake *handshake);
void mu__handshake_end(mu_handshake *handshake);

// ---- Sessions (session.c) -----------------------------------------------------------------------

// How a request ended: with code MU_OK and data, or with an error and its message, which need not end with a zero.
// Called once, by mu__node_step or by the function that closes the session. Errors: those of the other end;
// DEADLINE_EXCEEDED; UNAVAILABLE if the session ended first.
typedef void mu_replied(void *arg, const mu_reply *reply);

typedef struct mu_pending_request {
    uint64_t id;
    int64_t deadline_ns;
    mu_replied *replied;
    void *arg;
} mu_pending_request;

typedef struct mu_session {
    mu_handshake handshake; // link NULL: the session is closed
    uint32_t number;        // of the next frame that this end sends
    bool closed_there;      // it has ended, and the other end, or its system when that died, has ended it
    // How many sessions have ended here, or have begun to end. It is raised before the other end can hear of it.
    atomic_uint n_ended;
    bool wants_out;       // the poller reports when the socket has room
    bool paused;          // nothing is read from the other end until it has taken some of what waits for it
    mu_endpoint endpoint; // where the other end listens
    uint16_t port;
    uint8_t incarnation[MU_INCARNATION]; // which process the other end is
    int version;                         // that both ends speak (MU_WIRE_VERSION)
    mu_role role;                        // of the other end, proven
    bool same_host;                      // the other end can share memory with this process
    int64_t heard_ns;                    // when something last came
    int64_t doing_since_ns;
    char doing[MU_MAX_WORD + 1]; // the last word of the other end; "": it has never said what it does
    uint64_t n_requests;         // requests that this end has made
    struct {
        mu_pending_request *items;
        size_t n, capacity;
    } requests; // that wait for their replies
} mu_session;

bool mu__session_is_open(const mu_session *session);
// mu__session_is_full says whether as much waits to be sent as the node lets wait.
bool mu__session_is_full(const mu_node *node, const mu_session *session);

// mu__session_queued counts a frame that a mu__frame_put function has appended to session->handshake.out, with
// session->number, and returns the status of that call. The node sends it in its next step.
mu_status mu__session_queued(mu_session *session, mu_status put);

typedef struct mu_request_options {
    const char *method; // at most MU_MAX_METHOD bytes; what it means is agreed on by the two ends
    const void *data;
    size_t bytes; // at most MU_MAX_BLOCK
    double seconds;
    mu_replied *replied;
    void *arg;
} mu_request_options;
// mu__session_request asks the other end. Errors: UNAVAILABLE if the session is closed; INVALID_ARGUMENT;
// RESOURCE_EXHAUSTED; then `replied` is not called.
mu_status mu__session_request(mu_session *session, const mu_request_options *request);
// mu__session_reply answers a request: code MU_OK with data, or an error with its message as data. An end of an older
// version does not get the mark of an error that is the caller's fault. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT
// (too many bytes). A closed session ignores it.
mu_status mu__session_reply(mu_session *session, const mu_reply *reply);

// mu__session_last_word writes "last heard from 2 s ago, while saving (for 5 s)".
void mu__session_last_word(const mu_session *session, char *text, size_t bytes);

// ---- Dialling (dial.c) --------------------------------------------------------------------------

typedef enum mu_dial_state {
    MU_DIAL_IDLE,
    MU_DIAL_LOOKUP,
    MU_DIAL_CONNECT,
    MU_DIAL_SHAKE,
    MU_DIAL_WELCOME
} mu_dial_state;

// A connection that this process is opening. It tries the addresses of a name one after the other.
typedef struct mu_dial {
    mu_dial_state state;
    mu_lookup *lookup;
    mu_endpoints endpoints;
    int endpoint; // index of the endpoint being tried
    int fd;       // valid in state CONNECT
    mu_handshake handshake;
    int64_t deadline_ns;
    char reason[200];    // why the last address failed
    mu_failure refused;  // by an end that has the key; code MU_OK: it was not refused since the dial began
    mu_status unproven;  // why the last process that answered could not prove the key; MU_OK: no such process
    int offers;          // version to offer: the last try has met an end that takes only that; 0: the newest
    bool not_open;       // the name is not on the loopback, and the node may only use the loopback
    mu_endpoint reached; // to which the last session was opened; bytes 0: there was none
    bool refused_there;  // since then, connections to it are refused: no process listens there
} mu_dial;

// mu__dial_start dials a member at "host:port". The outcome is membership->joined or membership->unreached.
void mu__dial_start(mu_node *node, int member, const char *address, int64_t now);
void mu__dial_end(mu_dial *dial); // hangs up

// ---- Nodes (node.c) -----------------------------------------------------------------------------

// The other end as the node knows it: its session, and the dial by which this process reaches it.
struct mu_member {
    mu_session session;
    mu_dial dial;
};

// A membership policy. All functions are called by mu__node_step. `member` is an index of node->members. Slots marked
// optional may be NULL.
typedef struct mu_membership {
    const char *name;
    // admit: the member that a process which has proven the key becomes, or the member to which the stream that it
    // opens belongs (hello->stream is not empty); -1: refused, and `why` is filled.
    int (*admit)(mu_node *node, const mu_hello *hello, mu_failure *why, int64_t now);
    // welcomed: a dialled end has admitted this process and says who it is; false: hang up. Optional: stay.
    bool (*welcomed)(mu_node *node, int member, const mu_hello *hello);
    // joined: the session is open.
    void (*joined)(mu_node *node, int member, const mu_hello *hello);
    // received: a frame that sessions do not handle themselves; false: it is invalid or not allowed, and the session is
    // lost. Optional: none is allowed.
    bool (*received)(mu_node *node, int member, const mu_frame *frame);
    // asked: the other end requests something; the answer is mu__session_reply with request->id, now or later.
    // Optional: every request is answered with UNIMPLEMENTED.
    void (*asked)(mu_node *node, int member, const mu_request *request);
    // stream: an admitted stream; takes over the handshake's link. Optional: streams must not be admitted.
    void (*stream)(mu_node *node, mu_handshake *handshake, const mu_hello *hello);
    // left: the other end has left in an orderly way; the session is closed. lost: it has ended without a word, or is
    // silent; `why` is part of a sentence: "connection closed".
    void (*left)(mu_node *node, int member);
    void (*lost)(mu_node *node, int member, const char *why);
    // unreached: no address of the dialled end has led to a session; the dial says why. Optional.
    void (*unreached)(mu_node *node, int member, int64_t now);
    // refused: a process that connected did not prove the key, or has another version. Optional.
    void (*refused)(mu_node *node, const mu_endpoint *there, const mu_link *link, mu_status why);
    // on_step: called once in each step, for the policy's own timers; returns when the next one is due. Optional.
    int64_t (*on_step)(mu_node *node, int64_t now);
} mu_membership;

// An accepted connection whose other end is not identified yet, or has not been admitted yet.
typedef struct mu_incoming {
    mu_handshake handshake; // link NULL: this entry is free
    bool shaken, answered, refused;
    int member;
    mu_hello hello;
    mu_endpoint there; // where it connects from
    int64_t deadline_ns;
} mu_incoming;

// What an event of the poller belongs to.
typedef enum mu_source {
    MU_SOURCE_WAKER,
    MU_SOURCE_LISTENER,
    MU_SOURCE_SESSION,
    MU_SOURCE_DIAL,
    MU_SOURCE_INCOMING
} mu_source;

struct mu_node {
    // Set by the owner, whose storage is zeroed, before mu__node_start.
    const mu_membership *membership;
    mu_keyring *keyring;   // retained by the owner
    pthread_mutex_t *lock; // released while a step sleeps; NULL: none
    bool open;             // may use the network, not only the loopback
    int accepts;           // whose worker's key the other end may have in place of the cluster's (mu__link_accept)
    double heartbeat_seconds;
    bool spins; // looks for more input for a moment before it sleeps, where answers are awaited
    // Bytes that may wait for an end that does not read: beyond them nothing is read from it, and it is lost when it
    // takes nothing for the heartbeat. 0: no limit. Of two ends at most one may have a limit, or both could wait.
    size_t most_unsent;
    mu_hello own;        // what this process says of itself: rank, ranks, greeting; mu__node_start fills the rest
    mu_endpoints from;   // endpoints of the interface to use; n 0: any
    mu_member **members; // [n_members], of the owner
    int n_members;

    // The node's own state.
    mu_listening listening;
    mu_listener listener;
    bool listens;           // listening is complete
    mu_error_value failure; // why it cannot listen; code MU_OK: it can, or does not yet
    int poller, waker;
    mu_incoming incoming[MU_MAX_INCOMING];
    int64_t rests_until_ns; // out of descriptors: accepts again from then on; 0: listeners are watched
    bool warned_of_rest;
    int64_t beat_ns, poll_ns;
    int64_t spins_until_ns; // since the last input
    bool has_lock;
    pthread_mutex_t doing_lock;
    char doing[MU_MAX_WORD + 1];
    int64_t doing_since_ns;
};

// mu__node_start makes an identity and a poller. mu__node_listen begins to listen at an address, which must outlive the
// node; steps continue it until node->listens. Errors: as mu__listen_step. mu__node_end closes everything, without a
// word to the others; it accepts a node that was never started if node->poller and node->waker are -1.
mu_status mu__node_start(mu_node *node);
mu_status mu__node_listen(mu_node *node, const char *address);
void mu__node_end(mu_node *node);

// mu__node_step sleeps until something is ready, at most until `until_ns` (0: not at all), then reads, judges and
// sends. Returns the time by which it must be called again. mu__node_wake ends the sleep; it may be called on any
// thread and without the lock.
int64_t mu__node_step(mu_node *node, int64_t until_ns);
void mu__node_wake(mu_node *node);

// mu__node_watch registers poll-style events of a descriptor.
void mu__node_watch(mu_node *node, int fd, mu_source source, int index, short events);
void mu__node_hello(const mu_node *node, int to, mu_hello *out);

// mu__node_leave says goodbye to all; the node is done when mu__node_all_sent: closing earlier could discard the word.
void mu__node_leave(mu_node *node);
bool mu__node_all_sent(const mu_node *node);

// mu__node_doing sets what this process is doing, which its heartbeats report; on any thread, without the lock.
// mu__node_own_word writes it: "saving (for 5.0 s)".
void mu__node_doing(mu_node *node, const char *text);
void mu__node_own_word(mu_node *node, char *text, size_t bytes);

// mu__sooner lowers the time of the next timer.
static inline void mu__sooner(int64_t *next_ns, int64_t due_ns) { *next_ns = MU_MIN(*next_ns, due_ns); }

// Between the files of nodes: session.c, dial.c, incoming.c, heartbeat.c. `next` is lowered to their next timer.
void mu__session_open(mu_node *node, int member, const mu_hello *hello, mu_handshake *handshake, int64_t now);
void mu__session_event(mu_node *node, int member, int64_t now);
void mu__session_flush(mu_node *node, int member);
void mu__session_close(mu_session *session);
void mu__session_lost(mu_node *node, int member, const char *why);
void mu__session_poll(mu_session *session, int64_t now); // ends requests whose deadline has passed
int64_t mu__session_due(const mu_session *session);
void mu__dial_event(mu_node *node, int member, int64_t now);
void mu__dial_poll(mu_node *node, int member, int64_t now);
int64_t mu__dial_due(const mu_dial *dial, int64_t now);
void mu__incoming_accept(mu_node *node, int listener, int64_t now);
void mu__incoming_event(mu_node *node, int index, int64_t now);
void mu__incoming_poll(mu_node *node, int64_t now, int64_t *next); // closes connections that have taken too long
void mu__incoming_end(mu_node *node);
double mu__heartbeat_seconds(const mu_node *node); // between two heartbeats
void mu__heartbeats_poll(mu_node *node, int64_t now, int64_t *next);
void mu__heartbeat_heard(mu_session *session, const mu_heartbeat *beat);
void mu__heartbeat_send(mu_node *node, int member);

#endif
