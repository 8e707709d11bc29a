// A mesh connects the processes of one job: each can send to every other and hears at once when one dies.
//
// During the bootstrap every process connects to every other and proves that it has the cluster's key before any of its
// bytes are interpreted. The control connections then carry heartbeats, small messages and reports of failures. Groups
// (group.c) use the mesh to make their data paths: a shared segment for processes on one host, streams between hosts.
// Does not depend on cluster files, strategies or tensors.
#ifndef MU_SRC_COMM_MESH_H
#define MU_SRC_COMM_MESH_H

#include "base/base.h"

#include <sys/uio.h>

typedef struct mu_mesh mu_mesh; // an object: mu_retain, mu_release; the last release leaves the job in an orderly way

// A process that is to join. Texts are copied.
typedef struct mu_mesh_peer {
    const char *name;    // "/job:worker/task:1", for messages
    const char *address; // "host:port"; "" where only rank 0's is known: the other ranks send theirs when they join
} mu_mesh_peer;

typedef struct mu_mesh_options {
    int rank, ranks;
    const mu_mesh_peer *peers; // [ranks]
    const char *key;           // the cluster's shared key; NULL: no key, and every address must be a loopback address
    bool plain;                // authenticate, but do not encrypt: see below
    double join_seconds;       // longest duration of the bootstrap; 0: MUSTER_TIMEOUT
    double heartbeat_seconds;  // a peer that is silent for this long is lost; 0: MUSTER_HEARTBEAT (30)
    const char *greeting;      // must be equal on all processes: version and options that change results
} mu_mesh_options;

// What the key protects. Encrypted (the default, TLS 1.3): without the key an attacker can neither join nor read, and
// changed bytes are detected. Plain: without the key an attacker cannot join, and proofs cannot be replayed, but an
// attacker on the network can read the traffic and change it undetected. Without a key: any process on this host can
// join, and no other; with MUSTER_ALLOW_UNAUTHENTICATED anyone who reaches the port can.

// mu__mesh_key reads the cluster's key from MUSTER_CLUSTER_KEY or MUSTER_CLUSTER_KEY_FILE into `out`, to be freed with
// mu__free; NULL if neither is set. Errors: INVALID_ARGUMENT if both are set or the file is not text; errors of reading
// the file.
mu_status mu__mesh_key(char **out);

// mu__mesh_join joins the job; the caller owns the mesh; NULL on error. Blocks; after 10 s it logs who has joined, who
// is missing and why (refused, unreachable, name not found, wrong key, another version). Errors: DEADLINE_EXCEEDED
// naming the missing tasks and the addresses that connected without a proof of the key; INVALID_ARGUMENT for a key that
// is easy to guess, or two processes with one task; UNAUTHENTICATED for addresses that need a key if there is none;
// FAILED_PRECONDITION if processes that have the key send different greetings.
mu_mesh *mu__mesh_join(const mu_mesh_options *options);

// The same in steps, for a caller that drives the mesh itself, as the simulator does. mu__mesh_begin returns a mesh
// that has begun to join and has no thread; errors as above, if known at once. mu__mesh_step sleeps until something
// arrives, at most until `until_ns` (0: not at all), does what is due, and returns the time by which it must be called
// again. mu__mesh_is_joining is false as soon as the mesh has joined or the job has failed (mu__mesh_check). After
// mu__mesh_leave, steps continue until mu__mesh_has_left; then the mesh is released. A mesh that is released without a
// thread and before it has left just closes its connections.
mu_mesh *mu__mesh_begin(const mu_mesh_options *options);
int64_t mu__mesh_step(mu_mesh *mesh, int64_t until_ns);
bool mu__mesh_is_joining(mu_mesh *mesh);
void mu__mesh_leave(mu_mesh *mesh);
bool mu__mesh_has_left(mu_mesh *mesh);

int mu__mesh_rank(const mu_mesh *mesh);
int mu__mesh_ranks(const mu_mesh *mesh);
const char *mu__mesh_name(const mu_mesh *mesh, int rank);
bool mu__mesh_same_host(const mu_mesh *mesh, int rank); // can share memory with this process: same boot, same namespace

// mu__mesh_check fails if waiting for `rank` (-1: for no particular rank) is useless: with the job's failure, or with
// UNAVAILABLE if that process has left the job in an orderly way. Cheap while nothing has failed.
mu_status mu__mesh_check(mu_mesh *mesh, int rank);

// mu__mesh_is_gone returns whether mu__mesh_check would fail, without recording an error.
bool mu__mesh_is_gone(mu_mesh *mesh, int rank);

// ---- Small messages -----------------------------------------------------------------------------

// One block of bytes from each process; freed with mu__blocks_free.
typedef struct mu_blocks {
    int n;
    void **data;
    size_t *bytes;
} mu_blocks;

// mu__mesh_exchange gives every process the blocks of all processes (at most 1 MiB each), ordered by rank. All
// processes must call it in the same order with the same `what`; if they do not, all get an error that names both. One
// thread at a time. Blocks up to MUSTER_TIMEOUT. Errors: FAILED_PRECONDITION (mismatch); DEADLINE_EXCEEDED naming the
// processes that did not call it and what they are doing; the job's failure.
mu_status mu__mesh_exchange(mu_mesh *mesh, const char *what, const void *data, size_t bytes, mu_blocks *out);
void mu__blocks_free(mu_blocks *blocks);

// An exchange in steps: begin, check until complete or an error, end. mu__exchange_begin sends this process's block;
// after an error there is nothing to end. mu__exchange_check never blocks. mu__exchange_end gives the blocks to `out`;
// NULL: the exchange failed.
enum { MU_MAX_WHAT = 120 }; // bytes in the name of an exchange
typedef struct mu_exchange {
    mu_mesh *mesh;
    char what[MU_MAX_WHAT + 1];
    int64_t deadline_ns;
    mu_blocks blocks;
} mu_exchange;
mu_status mu__exchange_begin(mu_mesh *mesh, const char *what, const void *data, size_t bytes, mu_exchange *out);
mu_status mu__exchange_check(mu_exchange *exchange, bool *complete);
void mu__exchange_end(mu_exchange *exchange, mu_blocks *out);

// ---- Streams ------------------------------------------------------------------------------------

// A stream carries bytes between two processes, in order, authenticated and (unless plain) encrypted. One thread may
// send and one may receive at a time. mu__mesh_stream opens the stream `name` to `rank`; both sides must call it. The
// caller owns the stream, which may outlive the mesh. Blocks up to MUSTER_TIMEOUT.
typedef struct mu_stream mu_stream;
// The implementation of a stream: a connection of the mesh, or a network of a module (network.c).
typedef struct mu_stream_ops {
    mu_status (*send)(mu_stream *stream, const void *data, size_t bytes, size_t *moved);
    // send_all sends several extents, one after the other, in one call. NULL: `send` is called for each.
    mu_status (*send_all)(mu_stream *stream, const struct iovec *extents, int n, size_t *moved);
    mu_status (*recv)(mu_stream *stream, void *data, size_t bytes, size_t *moved);
    int (*fd)(const mu_stream *stream);
    void (*close)(mu_stream *stream);
} mu_stream_ops;
struct mu_stream {
    const mu_stream_ops *ops;
};
mu_stream *mu__mesh_stream(mu_mesh *mesh, int rank, const char *name);
// The same in steps, for a caller that drives the mesh itself. mu__stream_step never blocks: it gives the stream to
// `out` when it is open, and NULL before; after an error the opening only has to be ended. mu__stream_end accepts NULL.
typedef struct mu_stream_opening mu_stream_opening;
mu_stream_opening *mu__stream_begin(mu_mesh *mesh, int rank, const char *name);
mu_status mu__stream_step(mu_stream_opening *opening, mu_stream **out);
void mu__stream_end(mu_stream_opening *opening);
void mu__stream_close(mu_stream *stream);

// Each function transfers what it can without blocking and stores the number of bytes in `moved` (0: none at present).
// The caller must offer the unsent bytes again, unchanged and at least as many, because some may already be encrypted.
// Errors, not recorded: UNAVAILABLE if the connection is closed, DATA_LOSS if data was tampered with.
mu_status mu__stream_send(mu_stream *stream, const void *data, size_t bytes, size_t *moved);
mu_status mu__stream_send_all(mu_stream *stream, const struct iovec *extents, int n, size_t *moved);
mu_status mu__stream_recv(mu_stream *stream, void *data, size_t bytes, size_t *moved);
// mu__stream_fd returns the descriptor to poll when a call transferred nothing; -1: there is none, call again.
int mu__stream_fd(const mu_stream *stream);

// mu__mesh_partner returns the partner of `rank` in one round of a round-robin tournament, in which each rank is paired
// with every other one once. It has ranks - 1 rounds; if `ranks` is odd, one more, and in one round each rank has no
// partner: the function then returns `ranks`.
int mu__mesh_partner(int rank, int round, int ranks);

// ---- Life and death -----------------------------------------------------------------------------

// A loop that waits for peers calls mu__mesh_late in each iteration. 10 s after `lateness` began, and every 10 s
// afterwards, it logs one line: "waiting 10 s for WHAT: /job:worker/task:1 has been saving for 12 s". `is_late` says
// which ranks are late.
typedef struct mu_lateness {
    int64_t began_ns, next_ns;
} mu_lateness;
typedef bool mu_is_late(const void *arg, int rank);
mu_lateness mu__lateness(void); // begins now
void mu__mesh_late(mu_mesh *mesh, mu_lateness *lateness, const char *what, mu_is_late *is_late, const void *arg);
// mu__mesh_late_text writes "/job:worker/task:1, which has been saving for 12 s, and …", for the error at the deadline.
int mu__mesh_late_text(const mu_mesh *mesh, mu_is_late *is_late, const void *arg, char *text, size_t bytes);

// mu__mesh_doing sets what this process is doing ("compiling", "saving", "in collective #412 \"dense_2/kernel\"");
// peers that wait for it print this after 10 s. `number` may be negative and `name` NULL: none. Texts are copied.
// Cheap.
void mu__mesh_doing(mu_mesh *mesh, const char *what, int64_t number, const char *name);

// mu__mesh_peer_doing writes what a peer's last heartbeat said it was doing, and for how long, as snprintf does.
int mu__mesh_peer_doing(const mu_mesh *mesh, int rank, char *text, size_t bytes);

// mu__mesh_keep gives the mesh an object, which it retains until it has left the job. Each thread that waits in the
// mesh for another process calls `progress` with it about every 10 ms, without the mesh's lock: libraries such as MPI
// may keep a message that was sent until they are called again. mu__mesh_kept returns object i, NULL behind the last.
typedef void mu_mesh_progress(void *object);
mu_status mu__mesh_keep(mu_mesh *mesh, void *object, mu_mesh_progress *progress);
void *mu__mesh_kept(mu_mesh *mesh, size_t i);

// mu__mesh_watch calls `failed` once, on the mesh's own thread, as soon as the job has failed: a peer died, fell silent
// or reported its failure. Groups abort there. After mu__mesh_unwatch returns, no call of `failed` is in progress.
typedef void mu_mesh_failed(void *arg, const mu_error_value *error);
mu_status mu__mesh_watch(mu_mesh *mesh, mu_mesh_failed *failed, void *arg);
void mu__mesh_unwatch(mu_mesh *mesh, mu_mesh_failed *failed, void *arg);

// mu__mesh_fail reports to all peers that this process failed with `error`: the job fails on all of them with that
// error, prefixed with this process's name. mu__mesh_has_failed copies the first failure; false: the job has not
// failed.
void mu__mesh_fail(mu_mesh *mesh, const mu_error_value *error);
bool mu__mesh_has_failed(mu_mesh *mesh, mu_error_value *out);

#endif
