// A mesh: the processes of one job, joined. Each knows every other by name, hears at once when one dies, and can
// talk to it.
//
// Joining is a bootstrap: every process connects to every other, proves that it has the cluster's key before any of
// its bytes are interpreted, and learns who is there. The control connections then carry heartbeats, small messages
// and news of failures; groups (group.c) make their data paths out of the same mesh: a shared segment where
// processes are on one host, streams elsewhere. Knows nothing of cluster files, strategies and tensors.
#ifndef MU_SRC_COMM_MESH_H
#define MU_SRC_COMM_MESH_H

#include "base/base.h"

#include <sys/uio.h>

typedef struct mu_mesh mu_mesh; // an object: mu_retain, mu_release; the last release leaves the job in order

// Who is to join. Texts are copied.
typedef struct mu_mesh_peer {
    const char *name;    // "/job:worker/task:1", for messages
    const char *address; // "host:port"; "" where only rank 0's is known: the others tell it when they join
} mu_mesh_peer;

typedef struct mu_mesh_options {
    int rank, ranks;
    const mu_mesh_peer *peers; // [ranks]
    const char *key;           // the cluster's shared key; NULL: none, then every address must be of the loopback
    bool plain;                // authenticate, but do not encrypt: see below
    double join_seconds;       // how long the bootstrap may take; 0: MUSTER_TIMEOUT
    double heartbeat_seconds;  // without a sign of life for so long a peer is lost; 0: MUSTER_HEARTBEAT (30)
    const char *greeting;      // what must be the same everywhere: version and options that change results
} mu_mesh_options;

// What the key protects. Encrypted (the default, TLS 1.3): who lacks the key can neither join, nor read, nor change
// a byte without being noticed. Plain: who lacks the key cannot join, and proofs cannot be replayed; but who sits on
// the wire can read what passes and change it unnoticed. Without a key: only processes on this host can join, and any
// of them; MUSTER_ALLOW_UNAUTHENTICATED lets anyone who reaches the port.

// mu__mesh_key reads the cluster's key from MUSTER_CLUSTER_KEY or MUSTER_CLUSTER_KEY_FILE into `out`, freed with
// mu__free; NULL there if neither is set. Errors: INVALID_ARGUMENT for both, or a file that is not a text; the file's.
mu_status mu__mesh_key(char **out);

// mu__mesh_join joins the job; owned by the caller, NULL on error. Blocks; after 10 s it says on the log who is
// there, who is missing and why (refused, unreachable, name not found, wrong key, another version).
// Errors: DEADLINE_EXCEEDED naming those missing, and who came without proof of the key; INVALID_ARGUMENT for a key
// that can be guessed, or two processes of one task; UNAUTHENTICATED for addresses that need a key where there is none;
// FAILED_PRECONDITION where greetings of processes with the key differ.
mu_mesh *mu__mesh_join(const mu_mesh_options *options);

int mu__mesh_rank(const mu_mesh *mesh);
int mu__mesh_ranks(const mu_mesh *mesh);
const char *mu__mesh_name(const mu_mesh *mesh, int rank);
bool mu__mesh_same_host(const mu_mesh *mesh, int rank); // shares memory with this process: same boot, same namespace

// mu__mesh_check says whether waiting for `rank` (-1: nobody in particular) still makes sense: the job's failure, or
// UNAVAILABLE when that process has left the job in order. Cheap as long as all is well.
mu_status mu__mesh_check(mu_mesh *mesh, int rank);

// mu__mesh_is_gone says what mu__mesh_check would, without an error.
bool mu__mesh_is_gone(mu_mesh *mesh, int rank);

// ---- Small messages -----------------------------------------------------------------------------

// One block from each process; freed with mu__blocks_free.
typedef struct mu_blocks {
    int n;
    void **data;
    size_t *bytes;
} mu_blocks;

// mu__mesh_exchange gives every process all processes' blocks (1 MiB at most each), by rank. All must call it in
// the same order with the same `what`: a mismatch is an error on all that names both. One thread at a time. Blocks up
// to MUSTER_TIMEOUT. Errors: FAILED_PRECONDITION (mismatch), DEADLINE_EXCEEDED naming who did not call and what it
// does, the job's failure.
mu_status mu__mesh_exchange(mu_mesh *mesh, const char *what, const void *data, size_t bytes, mu_blocks *out);
void mu__blocks_free(mu_blocks *blocks);

// ---- Streams ------------------------------------------------------------------------------------

// A stream carries bytes between two processes, in order, authenticated and (unless plain) encrypted. One thread
// sends and one receives at a time. mu__mesh_stream opens the one called `name` to `rank`; both sides must call it.
// Owned by the caller; may outlive the mesh. Blocks up to MUSTER_TIMEOUT.
typedef struct mu_stream mu_stream;
// What carries a stream: a connection of the mesh, or a network that a module knows (network.c).
typedef struct mu_stream_ops {
    mu_status (*send)(mu_stream *stream, const void *data, size_t bytes, size_t *moved);
    // send_all sends several extents, one behind the other, at once. NULL: `send` does, one by one.
    mu_status (*send_all)(mu_stream *stream, const struct iovec *extents, int n, size_t *moved);
    mu_status (*recv)(mu_stream *stream, void *data, size_t bytes, size_t *moved);
    int (*fd)(const mu_stream *stream);
    void (*close)(mu_stream *stream);
} mu_stream_ops;
struct mu_stream {
    const mu_stream_ops *ops;
};
mu_stream *mu__mesh_stream(mu_mesh *mesh, int rank, const char *name);
void mu__stream_close(mu_stream *stream);

// Each moves what it can without blocking and says how much in `moved` (0: nothing just now). What a send did not
// move must be offered again, at least as much of it and the same bytes: part of it may be encrypted already. Errors:
// UNAVAILABLE when the connection is gone, DATA_LOSS when it was tampered with; nothing is recorded.
mu_status mu__stream_send(mu_stream *stream, const void *data, size_t bytes, size_t *moved);
mu_status mu__stream_send_all(mu_stream *stream, const struct iovec *extents, int n, size_t *moved);
mu_status mu__stream_recv(mu_stream *stream, void *data, size_t bytes, size_t *moved);
// The descriptor to poll for more to come, and to go, when a call moved nothing; -1: there is none, ask again.
int mu__stream_fd(const mu_stream *stream);

// mu__mesh_partner is whom `rank` meets in a round of a tournament in which each meets each other: there are as many
// rounds as others, and one more where the ranks are odd; then it may be `ranks`, nobody.
int mu__mesh_partner(int rank, int round, int ranks);

// ---- Life and death -----------------------------------------------------------------------------

// A loop that waits for peers calls mu__mesh_late each turn: 10 s after `lateness` began, and every 10 s from then on,
// it logs one line: "waiting 10 s for WHAT: /job:worker/task:1 is saving since 12 s". `is_late` says which ranks.
typedef struct mu_lateness {
    int64_t began_ns, next_ns;
} mu_lateness;
typedef bool mu_is_late(const void *arg, int rank);
mu_lateness mu__lateness(void); // begins now
void mu__mesh_late(mu_mesh *mesh, mu_lateness *lateness, const char *what, mu_is_late *is_late, const void *arg);
// mu__mesh_late_text writes "/job:worker/task:1, which is saving since 12 s, and …", for the error at the deadline.
int mu__mesh_late_text(const mu_mesh *mesh, mu_is_late *is_late, const void *arg, char *text, size_t bytes);

// mu__mesh_doing says what this process is busy with ("compiling", "saving", "in collective #412 \"dense_2/kernel\"");
// peers that wait for it print that after 10 s. `number` below 0 and `name` NULL: none. Texts are copied. Cheap.
void mu__mesh_doing(mu_mesh *mesh, const char *what, int64_t number, const char *name);

// mu__mesh_peer_doing writes what a peer said last, and for how long, as snprintf does; heartbeats carry it.
int mu__mesh_peer_doing(const mu_mesh *mesh, int rank, char *text, size_t bytes);

// mu__mesh_watch calls `failed` once, on the mesh's own thread, as soon as the job has failed: a peer died, fell
// silent or said that it failed. Groups abort there. mu__mesh_unwatch returns when no call is under way.
typedef void mu_mesh_failed(void *arg, const mu_error_value *error);
mu_status mu__mesh_watch(mu_mesh *mesh, mu_mesh_failed *failed, void *arg);
void mu__mesh_unwatch(mu_mesh *mesh, mu_mesh_failed *failed, void *arg);

// mu__mesh_fail tells all peers that this process failed with `error`: the job fails on all of them with that error,
// which then names this process. mu__mesh_has_failed copies the first failure; false: all is well.
void mu__mesh_fail(mu_mesh *mesh, const mu_error_value *error);
bool mu__mesh_has_failed(mu_mesh *mesh, mu_error_value *out);

#endif
