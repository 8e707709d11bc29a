// Declarations that the source files of the mesh share; no other file includes this header.
//
// One thread per mesh owns all connections except the streams that the mesh has given to callers. The mesh's lock
// protects all state that other threads read or change; `changed` is signalled after each change that a thread may wait
// for.
#ifndef MU_SRC_COMM_MESH_PRIVATE_H
#define MU_SRC_COMM_MESH_PRIVATE_H

#include "comm/mesh.h"
#include "comm/net.h"

#include <pthread.h>

enum { MU_MAX_PROCESSES = 4096, MU_MAX_INCOMING = 64, MU_MAX_PEER_NAME = 100, MU_MAX_STRANGERS = 3 };

// A block received for an exchange.
typedef struct mu_exchange_block {
    bool here;
    uint64_t number;
    char what[MU_MAX_WHAT + 1];
    void *data;
    size_t bytes;
} mu_exchange_block;

// A link whose two ends are identifying themselves.
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

// A connection that this process is opening to a lower rank.
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
    int endpoint;           // index of the endpoint being tried
    int fd;                 // valid in state CONNECT
    mu_handshake handshake; // valid from state HANDSHAKE on
    int64_t retry_ns, deadline_ns, pause_ns;
    int64_t refused_ns; // since when the other end, which has the key, has refused this process; 0: it has not
    mu_status refused;  // why it was refused in this round
    mu_status unproven; // why the last process that answered there could not prove the key; MU_OK: no such process
} mu_outgoing;

// A series of refused connections that follow each other closely.
typedef struct mu_refusals {
    int64_t first_ns, last_ns; // 0: none yet
} mu_refusals;

typedef enum mu_peer_state { MU_PEER_AWAY, MU_PEER_HERE, MU_PEER_LEFT, MU_PEER_LOST } mu_peer_state;
typedef struct mu_peer {
    char *name, *address; // the address may be learned from rank 0
    bool learned;
    mu_peer_state state;
    char reason[200];       // AWAY: why the peer is away
    mu_handshake handshake; // valid in state HERE
    uint32_t number;        // number of the next frame to this peer
    mu_endpoint endpoint;
    uint16_t port;
    uint8_t incarnation[MU_INCARNATION];
    bool ready, same_host, wants_out;
    bool told; // this peer has been told of the job's failure
    int64_t heard_ns, doing_since_ns;
    char doing[MU_MAX_WORD + 1];
    mu_exchange_block exchange_blocks[2]; // indexed by the parity of the exchange's number
    mu_outgoing outgoing;
    mu_refusals twins; // other processes that have the key and claim to be this task
} mu_peer;

// An accepted connection whose other end is not identified yet, or has not been admitted yet.
typedef struct mu_incoming {
    mu_handshake handshake; // link NULL: this entry is free
    bool shaken, answered, refused;
    mu_hello hello;
    mu_endpoint there; // where it connects from
    int64_t deadline_ns;
} mu_incoming;

// Connections from one address that did not prove the key, during the bootstrap.
typedef struct mu_strangers {
    char address[80];
    unsigned long n; // 0: this entry is free
    mu_status why;   // of the last connection; `reason` completes the sentence
    const char *reason;
} mu_strangers;

// A stream that the other side has opened and that this process has not opened yet.
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
    bool open; // listen on the network, not only on the loopback
    char *greeting;
    mu_keyring *keyring;
    mu_endpoints own; // endpoints of MUSTER_INTERFACE
    mu_listener listener;
    uint8_t incarnation[MU_INCARNATION], place[MU_PLACE];
    int epoll, wake; // file descriptors
    mu_worker *thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_lock, joined, ready_sent, ending;
    bool refusing; // the job failed because processes were refused, and some of them have not been told yet
    atomic_bool trouble; // the job failed or a process has left: waits must take the lock and check
    int64_t began_ns, report_ns, beat_ns, poll_ns;
    mu_error_value failure; // code MU_OK: no failure
    int64_t failed_ns;
    mu_peer *peers;
    mu_incoming incoming[MU_MAX_INCOMING];
    mu_strangers strangers[MU_MAX_STRANGERS];
    unsigned long more_strangers; // connections from addresses that have no entry
    struct {
        mu_pending_stream *items;
        size_t n, capacity;
    } pending_streams;
    struct {
        mu_watch *items;
        size_t n, capacity;
    } watches;
    bool calling;      // a watcher's callback is running
    uint64_t exchange; // number of the exchange in progress, or of the next

    pthread_mutex_t doing_lock;
    char doing[MU_MAX_WORD + 1];
    int64_t doing_since_ns;
};

// ---- The thread (mesh.c): called with the lock held, on any thread -------------------------------

// What an epoll event belongs to.
typedef enum mu_source {
    MU_SOURCE_WAKE,
    MU_SOURCE_LISTENER,
    MU_SOURCE_PEER,
    MU_SOURCE_OUTGOING,
    MU_SOURCE_INCOMING
} mu_source;

// mu__mesh_listen_for registers poll-style events of `fd` with epoll; they wake the thread.
void mu__mesh_listen_for(mu_mesh *mesh, int fd, mu_source source, int index, short events);
void mu__mesh_forget(mu_mesh *mesh, int fd);
void mu__mesh_wake(mu_mesh *mesh);
// mu__mesh_pause waits for `changed`, at most 200 ms; the caller then checks again. Errors: CANCELLED by a signal.
mu_status mu__mesh_pause(mu_mesh *mesh);

// mu__mesh_fail_with makes the job fail and tells all peers; the first failure is kept.
void mu__mesh_fail_with(mu_mesh *mesh, const mu_error_value *error);
void mu__mesh_fail_text(mu_mesh *mesh, mu_status code, const char *format, ...) MU_PRINTF(3, 4);

// mu__mesh_lingers says whether the mesh must stay alive after the processes were found not to match, because some that
// have not joined still have to be told or refused.
bool mu__mesh_lingers(const mu_mesh *mesh, int64_t now);
void mu__peer_tell(mu_mesh *mesh, int rank); // tells a peer of the job's failure

// mu__peer_flush sends a peer's queued output. mu__peer_gone handles the end of a peer's connection.
void mu__peer_flush(mu_mesh *mesh, int rank);
void mu__peer_gone(mu_mesh *mesh, int rank, const char *why);
void mu__peer_close(mu_mesh *mesh, int rank);
const char *mu__peer_where(const mu_peer *peer);      // its address, for messages
void mu__peer_reason(mu_peer *peer, const char *why); // why it is away; truncated if too long

// mu__peer_event reads what a peer has sent.
void mu__peer_event(mu_mesh *mesh, int rank, int64_t now);

// ---- Joining (bootstrap.c, incoming.c) ----------------------------------------------------------

void mu__bootstrap_poll(mu_mesh *mesh, int64_t now); // starts connections that are due, reports, fails at the deadline
void mu__bootstrap_event(mu_mesh *mesh, int rank, int64_t now);
void mu__bootstrap_learn(mu_mesh *mesh, const mu_peer_address *whereabouts);
void mu__bootstrap_go(mu_mesh *mesh);  // all processes are connected to each other
void mu__bootstrap_end(mu_mesh *mesh); // frees the outgoing connections
void mu__incoming_accept(mu_mesh *mesh, int listener, int64_t now);
void mu__incoming_event(mu_mesh *mesh, int index, int64_t now);
void mu__incoming_poll(mu_mesh *mesh, int64_t now); // closes connections that have taken too long
void mu__incoming_end(mu_mesh *mesh);
void mu__hello_fill(const mu_mesh *mesh, int to, mu_hello *out);
// mu__hello_differs writes what this process and the sender of `hello` disagree on; false: they agree.
bool mu__hello_differs(const mu_mesh *mesh, const mu_hello *hello, char *text, size_t bytes);
// mu__peer_take sets a peer to HERE on an identified link, and takes over the contents of `handshake`.
void mu__peer_take(mu_mesh *mesh, const mu_hello *hello, mu_handshake *handshake);

// ---- Refused connections (refusal.c) ------------------------------------------------------------

// mu__refusal_patience returns how long a refusal for this reason must persist until it is final.
int64_t mu__refusal_patience(const mu_mesh *mesh, mu_status why);
const char *mu__refusal_remedy(mu_status why);
// mu__refusal_by_proof counts a connection that did not prove the key, or has another version; used in reports only.
void mu__refusal_by_proof(mu_mesh *mesh, const mu_incoming *in, mu_status why);
// mu__refusal_text writes "; 3 connections from 10.0.0.7 failed the proof of the key …", or nothing if there were none.
int mu__refusal_text(const mu_mesh *mesh, char *text, size_t bytes);
// mu__refusal_unproven returns why an incoming connection, or the listener at the address of a missing task, did not
// prove the key.
mu_status mu__refusal_unproven(const mu_mesh *mesh);
// mu__refusal_of_twin handles a second process that claims a task which has already joined, and fills `why`. The job
// fails if that process keeps trying.
void mu__refusal_of_twin(mu_mesh *mesh, const mu_hello *hello, mu_failure *why, int64_t now);

// ---- Life (heartbeat.c), exchange (exchange.c), streams (stream.c) ------------------------------

double mu__heartbeat_seconds(const mu_mesh *mesh);
void mu__heartbeats_poll(mu_mesh *mesh, int64_t now); // sends heartbeats, detects silent peers
void mu__heartbeat_heard(mu_mesh *mesh, int rank, const mu_heartbeat *beat);
void mu__heartbeat_send(mu_mesh *mesh, int rank);
// mu__last_word writes when a peer was last heard from and what it was doing; mu__own_doing writes what this process is
// doing.
void mu__last_word(const mu_peer *peer, char *text, size_t bytes);
void mu__own_doing(mu_mesh *mesh, char *text, size_t bytes);
mu_status mu__exchange_arrived(mu_mesh *mesh, int rank, const mu_block *block);
void mu__exchange_blocks_free(mu_peer *peer);
void mu__stream_arrived(mu_mesh *mesh, mu_handshake *handshake, const mu_hello *hello); // takes over the link
void mu__pending_streams_end(mu_mesh *mesh);
// mu__stream_at is mu__mesh_stream to a lower rank through a given endpoint, with a timeout in seconds.
mu_stream *mu__stream_at(mu_mesh *mesh, int rank, const mu_endpoint *at, const char *name, double seconds);

// ---- Which network (routes.c) -------------------------------------------------------------------

// mu__mesh_choose_routes finds the fastest network to each other host; later streams use it. All processes call it.
// Errors: the job's failure.
mu_status mu__mesh_choose_routes(mu_mesh *mesh);

#endif
