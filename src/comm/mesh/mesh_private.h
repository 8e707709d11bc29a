// Declarations that the source files of the mesh share; no other file includes this header.
//
// A mesh is a node (session.h) whose membership policy is that of equal ranks. One thread per mesh drives it and owns
// all connections except the streams that the mesh has given to callers. The mesh's lock protects all state that other
// threads read or change; `changed` is signalled after each change that a thread may wait for.
#ifndef MU_SRC_COMM_MESH_PRIVATE_H
#define MU_SRC_COMM_MESH_PRIVATE_H

#include "comm/mesh/mesh.h"
#include "comm/sessions/session.h"

#include <stddef.h>

enum { MU_MAX_PROCESSES = 4096, MU_MAX_PEER_NAME = 100, MU_MAX_UNPROVEN = 3 };

// A block received for an exchange.
typedef struct mu_exchange_block {
    bool here;
    uint64_t number;
    char what[MU_MAX_WHAT + 1];
    void *data;
    size_t bytes;
} mu_exchange_block;

// A series of refused connections that follow each other closely.
typedef struct mu_refusals {
    int64_t first_ns, last_ns; // 0: none yet
} mu_refusals;

typedef enum mu_peer_state { MU_PEER_AWAY, MU_PEER_HERE, MU_PEER_LEFT, MU_PEER_LOST } mu_peer_state;
typedef struct mu_peer {
    mu_member member;     // its index in the node is the rank
    char *name, *address; // the address may be learned from rank 0
    bool learned;
    mu_peer_state state; // HERE: its session is open
    char reason[200];    // AWAY: why the peer is away
    bool ready;
    bool notified;                        // this peer has been notified of the job's failure
    int64_t retry_ns, pause_ns;           // of dialling it
    int64_t refused_ns;                   // since when it, which has the key, has refused this process; 0: it has not
    mu_exchange_block exchange_blocks[2]; // indexed by the parity of the exchange's number
    mu_refusals duplicates;               // other processes that have the key and claim to be this task
} mu_peer;

// Connections from one address that did not prove the key, during the bootstrap.
typedef struct mu_unproven {
    char address[80];
    unsigned long n; // 0: this entry is free
    mu_status why;   // of the last connection; `reason` completes the sentence
    const char *reason;
} mu_unproven;

// A stream that the other side has opened and that this process has not opened yet.
typedef struct mu_pending_stream {
    mu_link *link;
    int rank;
    char name[MU_MAX_STREAM_NAME + 1];
} mu_pending_stream;

typedef struct mu_watch {
    mu_mesh_failed *failed;
    void *arg;
    bool notified;
} mu_watch;

// An object that stays until the mesh has left the job.
typedef struct mu_kept_object {
    void *object;
    mu_mesh_progress *progress;
} mu_kept_object;

typedef struct mu_key_values mu_key_values;

struct mu_mesh {
    mu_object object;
    mu_node node;
    int rank, ranks;
    double join_seconds, timeout;
    mu_worker *thread; // NULL: the owner calls mu__mesh_step

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_lock, joined, ready_sent;
    bool leaving, said_goodbye, has_left;
    bool refusing;       // the job failed because processes were refused, and some of them have not been notified yet
    atomic_bool trouble; // the job failed or a process has left: waits must take the lock and check
    int64_t began_ns, report_ns, leave_deadline_ns;
    mu_error_value failure; // code MU_OK: no failure
    int64_t failed_ns;
    mu_peer *peers;
    mu_unproven unproven[MU_MAX_UNPROVEN];
    unsigned long more_unproven; // connections from addresses that have no entry
    struct {
        mu_pending_stream *items;
        size_t n, capacity;
    } pending_streams;
    struct {
        mu_watch *items;
        size_t n, capacity;
    } watches;
    struct {
        mu_kept_object *items;
        size_t n, capacity;
    } kept;
    bool calling;              // a watcher's callback is running
    uint64_t exchange;         // number of the exchange in progress, or of the next
    mu_key_values *key_values; // on rank 0, from the first request on; NULL: none yet
};

static inline mu_session *mu__peer_session(mu_mesh *mesh, int rank) { return &mesh->peers[rank].member.session; }
static inline mu_mesh *mu__mesh_of(mu_node *node) { return (mu_mesh *)((char *)node - offsetof(mu_mesh, node)); }

// ---- The mesh (mesh.c): called with the lock held, on any thread --------------------------------

// mu__mesh_pause waits for `changed`, for 0.1 s at most, and lets kept objects make progress, without the lock; the
// caller then checks again. Errors: CANCELLED by a signal.
mu_status mu__mesh_pause(mu_mesh *mesh);

// mu__mesh_fail_with makes the job fail and informs all peers; the first failure is kept.
void mu__mesh_fail_with(mu_mesh *mesh, const mu_error_value *error);
void mu__mesh_fail_text(mu_mesh *mesh, mu_status code, const char *format, ...) MU_PRINTF(3, 4);

// mu__mesh_lingers says whether the mesh must stay alive after the processes were found not to match, because some that
// have not joined still have to be notified or refused.
bool mu__mesh_lingers(const mu_mesh *mesh, int64_t now);
void mu__peer_tell(mu_mesh *mesh, int rank); // tells a peer of the job's failure

// mu__peer_gone handles the end of a peer without a goodbye.
void mu__peer_gone(mu_mesh *mesh, int rank, const char *why);
const char *mu__peer_where(const mu_peer *peer); // its address, for messages
// mu__peer_doing writes "has been saving for 12 s", as snprintf does.
int mu__peer_doing(const mu_peer *peer, char *text, size_t bytes);

// ---- The key-value store (key_value.c): called with the lock held, on the mesh's thread ---------

void mu__key_value_asked(mu_node *node, int rank, const mu_request *request);
int64_t mu__key_value_step(mu_mesh *mesh, int64_t now); // ends waits that are over; returns when the next one is due
void mu__key_values_free(mu_key_values *values);        // accepts NULL

// ---- The membership policy of equal ranks (mesh.c, bootstrap.c, refusal.c) ----------------------

// Its slots (struct mu_membership), without the three that mesh.c has itself.
int mu__peers_admit(mu_node *node, const mu_hello *hello, mu_failure *why, int64_t now);
bool mu__peers_welcomed(mu_node *node, int rank, const mu_hello *hello);
void mu__peers_joined(mu_node *node, int rank, const mu_hello *hello);
void mu__peers_unreached(mu_node *node, int rank, int64_t now);
void mu__peers_refused(mu_node *node, const mu_endpoint *there, const mu_link *link, mu_status why);
void mu__peers_stream(mu_node *node, mu_handshake *handshake, const mu_hello *hello);
int64_t mu__peers_step(mu_node *node, int64_t now);

// ---- Joining (bootstrap.c) ----------------------------------------------------------------------

void mu__bootstrap_learn(mu_mesh *mesh, const mu_peer_address *address);
void mu__bootstrap_go(mu_mesh *mesh); // all processes are connected to each other
// mu__hello_differs writes what this process and the sender of `hello` disagree on; false: they agree.
bool mu__hello_differs(const mu_mesh *mesh, const mu_hello *hello, char *text, size_t bytes);

// ---- Refused connections (refusal.c) ------------------------------------------------------------

// mu__refusal_patience returns how long a refusal for this reason must persist until it is final.
int64_t mu__refusal_patience(const mu_mesh *mesh, mu_status why);
const char *mu__refusal_remedy(mu_status why);
// mu__refusal_text writes "; 3 connections from 10.0.0.7 failed the proof of the key …", or nothing if there were none.
int mu__refusal_text(const mu_mesh *mesh, char *text, size_t bytes);
// mu__refusal_unproven returns why an incoming connection, or the listener at the address of a missing task, did not
// prove the key.
mu_status mu__refusal_unproven(const mu_mesh *mesh);
// mu__refusal_of_duplicate handles a second process that claims a task which has already joined, and fills `why`. The
// job fails if that process keeps trying.
void mu__refusal_of_duplicate(mu_mesh *mesh, const mu_hello *hello, mu_failure *why, int64_t now);

// ---- Exchange (exchange.c), streams (stream.c, stream_open.c) -----------------------------------

mu_status mu__exchange_arrived(mu_mesh *mesh, int rank, const mu_block *block);
void mu__exchange_blocks_free(mu_peer *peer);
void mu__pending_streams_end(mu_mesh *mesh);
// mu__pending_stream_take takes the oldest stream of this name that a rank has opened, NULL if there is none. It and
// mu__pending_stream_has are called with the lock held.
mu_link *mu__pending_stream_take(mu_mesh *mesh, int rank, const char *name);
bool mu__pending_stream_has(const mu_mesh *mesh, int rank, const char *name);
mu_stream *mu__stream_of(mu_link *link); // takes the link over, also on error
// mu__stream_at is mu__mesh_stream to a lower rank through a given endpoint, with a timeout in seconds.
mu_stream *mu__stream_at(mu_mesh *mesh, int rank, const mu_endpoint *at, const char *name, double seconds);

// ---- Which network (routes.c) -------------------------------------------------------------------

// mu__mesh_choose_routes finds the fastest network to each other host; later streams use it. All processes call it.
// Errors: the job's failure.
mu_status mu__mesh_choose_routes(mu_mesh *mesh);

#endif
