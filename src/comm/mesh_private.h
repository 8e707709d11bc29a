// What the files of a mesh share with each other; nobody else includes this.
//
// One thread per mesh owns all connections but the streams that are handed out. Whatever others may ask or change is
// under the mesh's lock; `changed` is signalled after each change that somebody may wait for.
#ifndef MU_SRC_COMM_MESH_PRIVATE_H
#define MU_SRC_COMM_MESH_PRIVATE_H

#include "comm/mesh.h"
#include "comm/net.h"

#include <pthread.h>

enum { MU_MAX_PROCESSES = 4096, MU_MAX_INCOMING = 64, MU_MAX_PEER_NAME = 100, MU_MAX_STRANGERS = 3 };

// A block that has come for an exchange.
typedef struct mu_exchange_block {
    bool here;
    uint64_t number;
    char what[MU_MAX_WHAT + 1];
    void *data;
    size_t bytes;
} mu_exchange_block;

// A link on which the two ends still say who they are.
typedef struct mu_handshake {
    mu_link *link;
    mu_frames frames;
    mu_bytes out;
    size_t sent; // of `out`
} mu_handshake;
// mu__handshake_flush sends what it can; `all` when nothing is left. Nothing is recorded.
mu_status mu__handshake_flush(mu_handshake *handshake, bool *all);
short mu__handshake_events(const mu_handshake *handshake);
void mu__handshake_end(mu_handshake *handshake);

// A connection to a lower rank in the making.
typedef enum mu_outgoing_state {
    MU_OUTGOING_IDLE,
    MU_OUTGOING_LOOKUP,
    MU_OUTGOING_CONNECT,
    MU_OUTGOING_HANDSHAKE,
    MU_OUTGOING_WELCOME
} mu_outgoing_state;
typedef struct mu_outgoing {
    mu_outgoing_state state;
    mu_lookup *lookup;
    mu_endpoints endpoints;
    int endpoint;           // the one tried
    int fd;                 // CONNECT
    mu_handshake handshake; // from SHAKE on
    int64_t retry_ns, deadline_ns, pause_ns;
    int64_t refused_ns; // since when the other end, which has the key, has not wanted us; 0: it has not said so
    mu_status refused;  // why, in this round
    mu_status unproven; // why the last one that answered there could not prove the key; MU_OK: none did
} mu_outgoing;

// Calls that were turned away, one soon after the other.
typedef struct mu_refusals {
    int64_t first_ns, last_ns; // 0: none
} mu_refusals;

typedef enum mu_peer_state { MU_PEER_AWAY, MU_PEER_HERE, MU_PEER_LEFT, MU_PEER_LOST } mu_peer_state;
typedef struct mu_peer {
    char *name, *address; // the address may be learned
    bool learned;
    mu_peer_state state;
    char reason[200];       // AWAY: why
    mu_handshake handshake; // HERE
    uint32_t number;        // of the next frame to it
    mu_endpoint endpoint;
    uint16_t port;
    uint8_t incarnation[MU_INCARNATION];
    bool ready, same_host, wants_out;
    bool told; // of the job's failure
    int64_t heard_ns, doing_since_ns;
    char doing[MU_MAX_WORD + 1];
    mu_exchange_block exchange_blocks[2]; // by number of the exchange
    mu_outgoing outgoing;
    mu_refusals twins; // others with the key that say they are this one
} mu_peer;

// Somebody who connected and has not said who it is, or who waits to be told that it may stay.
typedef struct mu_incoming {
    mu_handshake handshake; // link NULL: a free place
    bool shaken, answered, refused;
    mu_hello hello;
    mu_endpoint there; // where it calls from
    int64_t deadline_ns;
} mu_incoming;

// Connections from one address that did not prove the key, during the bootstrap.
typedef struct mu_strangers {
    char address[80];
    unsigned long n; // 0: a free row
    mu_status why;   // of the last one, with the sentence's end
    const char *reason;
} mu_strangers;

// A stream that the other side has opened and nobody here has asked for yet.
typedef struct mu_pending_stream {
    mu_link *link;
    int rank;
    char name[MU_MAX_STREAM_NAME + 1];
} mu_pending_stream;

typedef struct mu_watch {
    mu_mesh_failed *failed;
    void *arg;
    bool told;
} mu_watch;

struct mu_mesh {
    mu_object object;
    int rank, ranks;
    double join_seconds, heartbeat_seconds, timeout;
    bool open; // the network is allowed, not only the loopback
    char *greeting;
    mu_keyring *keyring;
    mu_endpoints own; // of MUSTER_INTERFACE
    mu_listener listener;
    uint8_t incarnation[MU_INCARNATION], place[MU_PLACE];
    int epoll, wake; // descriptors
    mu_worker *thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_lock, joined, ready_sent, ending;
    bool refusing; // it failed because of who was turned away, which is still to hear so
    atomic_bool trouble; // failed, or somebody has left: look closer
    int64_t began_ns, report_ns, beat_ns, poll_ns;
    mu_error_value failure; // code MU_OK: none
    int64_t failed_ns;
    mu_peer *peers;
    mu_incoming incoming[MU_MAX_INCOMING];
    mu_strangers strangers[MU_MAX_STRANGERS];
    unsigned long more_strangers; // from addresses that have no row
    struct {
        mu_pending_stream *items;
        size_t n, capacity;
    } pending_streams;
    struct {
        mu_watch *items;
        size_t n, capacity;
    } watches;
    bool calling;      // a watcher is being called
    uint64_t exchange; // number of the one under way, or of the next

    pthread_mutex_t doing_lock;
    char doing[MU_MAX_WORD + 1];
    int64_t doing_since_ns;
};

// ---- The thread (mesh.c): called with the lock held, on any thread -------------------------------

// What an event of epoll is about.
typedef enum mu_source {
    MU_SOURCE_WAKE,
    MU_SOURCE_LISTENER,
    MU_SOURCE_PEER,
    MU_SOURCE_OUTGOING,
    MU_SOURCE_INCOMING
} mu_source;

// mu__mesh_listen_for tells epoll which of poll's events of `fd` wake the thread.
void mu__mesh_listen_for(mu_mesh *mesh, int fd, mu_source source, int index, short events);
void mu__mesh_forget(mu_mesh *mesh, int fd);
void mu__mesh_wake(mu_mesh *mesh);
// mu__mesh_pause waits for `changed` or a fifth of a second; the caller looks again. Errors: CANCELLED by a signal.
mu_status mu__mesh_pause(mu_mesh *mesh);

// mu__mesh_fail_with makes the job fail and tells all peers; the first failure stays.
void mu__mesh_fail_with(mu_mesh *mesh, const mu_error_value *error);
void mu__mesh_fail_text(mu_mesh *mesh, mu_status code, const char *format, ...) MU_PRINTF(3, 4);

// mu__mesh_lingers: the processes do not fit together, and those that have not been linked yet are still to be told or
// turned away.
bool mu__mesh_lingers(const mu_mesh *mesh, int64_t now);
void mu__peer_tell(mu_mesh *mesh, int rank); // of the failure

// mu__peer_flush sends what a peer's `out` has. mu__peer_gone ends a peer whose connection failed.
void mu__peer_flush(mu_mesh *mesh, int rank);
void mu__peer_gone(mu_mesh *mesh, int rank, const char *why);
void mu__peer_close(mu_mesh *mesh, int rank);
const char *mu__peer_where(const mu_peer *peer);      // its address, for messages
void mu__peer_reason(mu_peer *peer, const char *why); // why it is away; cut if too long

// mu__peer_event reads what has come from a peer.
void mu__peer_event(mu_mesh *mesh, int rank, int64_t now);

// ---- Joining (bootstrap.c, incoming.c) ----------------------------------------------------------

void mu__bootstrap_poll(mu_mesh *mesh, int64_t now); // calls who is due, reports, ends at the deadline
void mu__bootstrap_event(mu_mesh *mesh, int rank, int64_t now);
void mu__bootstrap_learn(mu_mesh *mesh, const mu_peer_address *whereabouts);
void mu__bootstrap_go(mu_mesh *mesh);  // everyone is linked with everyone
void mu__bootstrap_end(mu_mesh *mesh); // frees what calls hold
void mu__incoming_accept(mu_mesh *mesh, int listener, int64_t now);
void mu__incoming_event(mu_mesh *mesh, int index, int64_t now);
void mu__incoming_poll(mu_mesh *mesh, int64_t now); // sends away who has taken too long
void mu__incoming_end(mu_mesh *mesh);
void mu__hello_fill(const mu_mesh *mesh, int to, mu_hello *out);
// mu__hello_differs writes what this process and the sender of `hello` do not agree on; false: nothing.
bool mu__hello_differs(const mu_mesh *mesh, const mu_hello *hello, char *text, size_t bytes);
// mu__peer_take makes a peer HERE by a link that has said who it is; takes what `talk` holds.
void mu__peer_take(mu_mesh *mesh, const mu_hello *hello, mu_handshake *handshake);

// ---- Who is turned away (refusal.c) -------------------------------------------------------------

// mu__refusal_patience is for how long a refusal for this reason must last until it is final.
int64_t mu__refusal_patience(const mu_mesh *mesh, mu_status why);
const char *mu__refusal_remedy(mu_status why);
// mu__refusal_by_proof counts a caller that did not prove the key, or is of another version: for the reports alone.
void mu__refusal_by_proof(mu_mesh *mesh, const mu_incoming *in, mu_status why);
// mu__refusal_text writes "; 3 connections from 10.0.0.7 failed the proof of the key …", nothing if there were none.
int mu__refusal_text(const mu_mesh *mesh, char *text, size_t bytes);
// mu__refusal_unproven is why a caller, or whoever listens at the address of a missing task, did not prove the key.
mu_status mu__refusal_unproven(const mu_mesh *mesh);
// mu__refusal_of_twin: a second process says that it is a task that is here; fills `why`. The job fails when that
// continues.
void mu__refusal_of_twin(mu_mesh *mesh, const mu_hello *hello, mu_failure *why, int64_t now);

// ---- Life (heartbeat.c), exchange (exchange.c), streams (stream.c) ------------------------------

double mu__heartbeat_seconds(const mu_mesh *mesh);
void mu__heartbeats_poll(mu_mesh *mesh, int64_t now); // sends heartbeats, finds who is silent
void mu__heartbeat_heard(mu_mesh *mesh, int rank, const mu_heartbeat *beat);
void mu__heartbeat_send(mu_mesh *mesh, int rank);
// mu__last_word writes when a peer was heard from last and what it was doing; mu__own_doing what this process is doing.
void mu__last_word(const mu_peer *peer, char *text, size_t bytes);
void mu__own_doing(mu_mesh *mesh, char *text, size_t bytes);
mu_status mu__exchange_arrived(mu_mesh *mesh, int rank, const mu_block *block);
void mu__exchange_blocks_free(mu_peer *peer);
void mu__stream_arrived(mu_mesh *mesh, mu_handshake *handshake, const mu_hello *hello); // takes the link
void mu__pending_streams_end(mu_mesh *mesh);
// mu__stream_at is mu__mesh_stream to a lower rank, by this of its addresses and within so many seconds.
mu_stream *mu__stream_at(mu_mesh *mesh, int rank, const mu_endpoint *at, const char *name, double seconds);

// ---- Which network (routes.c) -------------------------------------------------------------------

// mu__mesh_choose_routes finds the fastest of all networks to each other host; streams then go there. Collective.
// Errors: the job's failure.
mu_status mu__mesh_choose_routes(mu_mesh *mesh);

#endif
