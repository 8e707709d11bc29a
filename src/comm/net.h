// What a mesh is made of: addresses and sockets, links (an authenticated connection), and frames on them.
//
// Nothing here blocks for long and nothing here knows who takes part in a job. All bytes of a peer pass through
// fixed-size greetings, OpenSSL's records, or frames whose lengths are bounded before memory is made for them.
#ifndef MU_SRC_COMM_NET_H
#define MU_SRC_COMM_NET_H

#include "base/base.h"

#include <sys/socket.h>

// ---- Addresses and sockets (socket.c) -----------------------------------------------------------

enum { MU_MAX_HOST = 255, MU_MAX_ADDRESS = MU_MAX_HOST + 10, MU_MAX_ENDPOINTS = 8, MU_MAX_LISTENERS = 8 };

typedef struct mu_endpoint {
    socklen_t bytes;
    struct sockaddr_storage address;
} mu_endpoint;

typedef struct mu_endpoints {
    int n;
    mu_endpoint items[MU_MAX_ENDPOINTS];
} mu_endpoints;

// mu__address_split takes "host:port" or "[ipv6]:port" apart; `host` has MU_MAX_HOST + 1 bytes. Errors:
// INVALID_ARGUMENT naming the address.
mu_status mu__address_split(const char *address, char *host, int *port);

bool mu__endpoint_is_loopback(const mu_endpoint *endpoint);
int mu__endpoint_port(const mu_endpoint *endpoint);
void mu__endpoint_set_port(mu_endpoint *endpoint, int port);
// mu__endpoint_text writes "1.2.3.4:5" or "[::1]:5".
void mu__endpoint_text(const mu_endpoint *endpoint, char *text, size_t bytes);
bool mu__endpoint_here(int fd, mu_endpoint *out);  // of a connected socket: this end
bool mu__endpoint_there(int fd, mu_endpoint *out); // the other end

// A look-up of a host's name, on a thread of its own, since it may block for long. Numbers are done at once.
typedef struct mu_lookup mu_lookup;
mu_lookup *mu__lookup_start(const char *host, int port);
// mu__lookup_done says whether it has ended: `out` has what was found; if that is nothing, `reason` says why.
bool mu__lookup_done(const mu_lookup *lookup, mu_endpoints *out, const char **reason);
void mu__lookup_drop(mu_lookup *lookup); // NULL accepted; does not wait

// What listens: several descriptors where a name has several addresses.
typedef struct mu_listener {
    int n, fds[MU_MAX_LISTENERS];
    int port;
} mu_listener;

// mu__listen listens at this process's own address; "": on a port of the system's choice. With `open` false only
// the loopback is allowed. Where the name stands for an address that this host does not have (a service in front
// of it) or for the loopback under the host's name, it listens on all addresses. `own` (none: not wanted) are the
// only addresses to listen on, as long as the loopback is not meant. Errors: UNAUTHENTICATED for a network address
// that is not open; ALREADY_EXISTS naming the port and who has it; INVALID_ARGUMENT, NOT_FOUND.
mu_status mu__listen(const char *address, bool open, const mu_endpoints *own, mu_listener *out);
void mu__listener_close(mu_listener *listener);

// A port that is kept for somebody who will listen on it: bound, but not listened on, so that nobody else is given it.
typedef struct mu_kept_port {
    int fd, port;
} mu_kept_port;

// mu__ports_keep keeps `n` free ports, of the loopback alone or of all addresses. Errors: RESOURCE_EXHAUSTED and what
// the system says; all are given back then.
mu_status mu__ports_keep(mu_kept_port *ports, int n, bool loopback);
void mu__ports_give_back(mu_kept_port *ports, int n);

// mu__listen_more listens at one more address of this host, at the listener's port; false: it cannot.
bool mu__listen_more(const mu_endpoint *at, mu_listener *listener);

// mu__network_endpoints finds the addresses of all network interfaces that are up, but for the loopback's and those
// that mean something on one link alone.
mu_status mu__network_endpoints(mu_endpoints *out);

// mu__interface_endpoints finds the addresses of a network interface ("eth0"). Errors: NOT_FOUND naming those there
// are.
mu_status mu__interface_endpoints(const char *interface, mu_endpoints *out);

// mu__connect_start begins to connect, from one of `own` unless to the loopback: a descriptor that becomes writable,
// -1 with errno.
int mu__connect_start(const mu_endpoint *endpoint, const mu_endpoints *own);
int mu__connect_result(int fd); // 0, EINPROGRESS or the error

// mu__accept takes a connection: non-blocking; -1 if there is none.
int mu__accept(int listener);

// mu__socket_settle sets what all connections have: no delay, and data unacknowledged for `seconds` ends it.
void mu__socket_settle(int fd, double seconds);

// mu__network_reason is a sentence's end for a failed call: "connection refused".
const char *mu__network_reason(int error_number);

void mu__socket_close(int fd); // below 0: nothing

// mu__wait_fd sleeps until the descriptor has one of `events` (poll's): true; or until a second has passed, or
// `deadline_ns`.
bool mu__wait_fd(int fd, short events, int64_t deadline_ns);

// ---- Links (link.c, secure.c) -------------------------------------------------------------------

// How the ends of a link know each other. Both must want the same.
typedef enum mu_protection {
    MU_PROTECTION_NONE,  // no key: loopback only, unless told otherwise
    MU_PROTECTION_PROOF, // both prove that they have the key; the bytes after that are neither hidden nor signed
    MU_PROTECTION_TLS    // TLS 1.3 with a pre-shared key made of the cluster's key
} mu_protection;

enum { MU_KEY_BYTES = 32, MU_NONCE_BYTES = 32 };

// mu__key_check refuses a cluster's key that can be guessed by trying: under 16 characters, or fewer than 8 different
// ones. mu__key_is_random: it is 32 or more hexadecimal digits, as `openssl rand -hex 32` writes them, which nobody
// tries out; any other could be words. (key.c)
mu_status mu__key_check(const char *key);
bool mu__key_is_random(const char *key);

// What the links of a mesh share: the key, and OpenSSL's context. An object.
typedef struct mu_keyring mu_keyring;
// mu__keyring_new makes the keys of links of the cluster's key; owned by the caller. A key that is not random digits is
// stretched first: about 0.1 s and 32 MiB of memory, for us once and for who tries out keys each time.
mu_keyring *mu__keyring_new(const char *key, bool plain);
mu_protection mu__keyring_protection(const mu_keyring *keyring);
// mu__keyring_rekey_after: a TLS link takes new keys after so many bytes sent. For tests.
void mu__keyring_rekey_after(mu_keyring *keyring, int64_t bytes);

// mu__nonce fills random bytes for an identity or a challenge.
mu_status mu__nonce(uint8_t *out, size_t bytes);

// A connection whose ends greet each other, prove the key, and then carry bytes. Sending and receiving may be on
// two threads.
typedef struct mu_link mu_link;

// mu__link_new takes `fd`, also when it fails. `from` and `to` are ranks; a server's `to` is -1 until the other has
// greeted. The client speaks first.
mu_link *mu__link_new(mu_keyring *keyring, int fd, bool client, int from, int to);
void mu__link_free(mu_link *link); // NULL accepted

// mu__link_shake continues with the greeting and the proof; `done` when they are over. It never blocks; when it is not
// done, mu__link_events says what to wait for. Errors: UNAVAILABLE, UNAUTHENTICATED, FAILED_PRECONDITION (another
// version, or one end wants encryption); nothing is recorded, mu__link_reason has a sentence's end.
mu_status mu__link_shake(mu_link *link, bool *done);
const char *mu__link_reason(const mu_link *link);
short mu__link_events(const mu_link *link);
int mu__link_fd(const mu_link *link);
int mu__link_from(const mu_link *link); // what a server's client says to be; -1: nothing yet

// As mu__stream_send and mu__stream_recv. mu__link_blocked says whether a send stopped for want of room.
mu_status mu__link_send(mu_link *link, const void *data, size_t bytes, size_t *moved);
mu_status mu__link_send_all(mu_link *link, const struct iovec *extents, int n, size_t *moved);
mu_status mu__link_recv(mu_link *link, void *data, size_t bytes, size_t *moved);

// Records of TLS on a link (secure.c); the caller holds the link's lock.
typedef struct mu_tls mu_tls;
mu_tls *mu__tls_new(mu_keyring *keyring, int fd, bool client); // owned by the caller
void mu__tls_free(mu_tls *tls);
mu_status mu__tls_shake(mu_tls *tls, bool *done, const char **reason);
mu_status mu__tls_send(mu_tls *tls, const void *data, size_t bytes, size_t *moved);
mu_status mu__tls_recv(mu_tls *tls, void *data, size_t bytes, size_t *moved);
bool mu__tls_wants_out(const mu_tls *tls); // something waits for room in the socket
// mu__keyring_proof signs the texts of a greeting: HMAC-SHA256 with a key made of the cluster's key.
mu_status mu__keyring_proof(const mu_keyring *keyring, const char *who, const void *text, size_t bytes,
                            uint8_t out[MU_KEY_BYTES]);

// ---- Frames (frame.c) ---------------------------------------------------------------------------

// What one end of a link says to the other. Every frame: length of the body, type, number in this direction.
typedef enum mu_frame_type {
    MU_FRAME_HELLO = 1, // client: who I am and what this link is for
    MU_FRAME_WELCOME,   // server: who I am
    MU_FRAME_REFUSE,    // server: why not; the link ends
    MU_FRAME_ADDRESS,   // rank 0: where a rank listens
    MU_FRAME_READY,     // to rank 0: linked with everyone
    MU_FRAME_GO,        // rank 0: all are
    MU_FRAME_HEARTBEAT, // I live, and am doing this
    MU_FRAME_BLOCK,     // exchange
    MU_FRAME_FAILURE,   // the job has failed
    MU_FRAME_LEAVE,     // I end in order
    MU_N_FRAMES
} mu_frame_type;
const char *mu__frame_name(mu_frame_type type); // "hello"

enum {
    MU_MESH_VERSION = 2,
    MU_FRAME_HEADER = 12,
    MU_MAX_GREETING = 4000,
    MU_MAX_STREAM_NAME = 120,
    MU_MAX_WORD = 160,    // what somebody does
    MU_MAX_WHAT = 120,    // of an exchange
    MU_MAX_REASON = 1000, // of a failure
    MU_MAX_BLOCK = 1 << 20,
    MU_INCARNATION = 16,
    MU_PLACE = 32
};

// Bytes to send; grows.
typedef struct mu_bytes {
    uint8_t *items;
    size_t n, capacity;
} mu_bytes;
void mu__bytes_free(mu_bytes *bytes);

// A frame that has come. `body` belongs to the reader until the next one.
typedef struct mu_frame {
    mu_frame_type type;
    size_t bytes;
    const uint8_t *body;
} mu_frame;

// Reads frames off a link, never a byte beyond the frame.
typedef struct mu_frames {
    uint8_t header[MU_FRAME_HEADER];
    uint8_t *body;
    size_t have, bytes; // of header and body; of the body
    uint32_t number;    // of the next frame
    bool complete;
} mu_frames;

// mu__frames_header reads a header: DATA_LOSS for an unknown type, a body over its type's limit or a wrong number.
mu_status mu__frames_header(const uint8_t header[MU_FRAME_HEADER], uint32_t number, mu_frame_type *type, size_t *bytes);
// mu__frames_next continues reading; `out->type` is 0 as long as no frame is complete. Errors: the link's; DATA_LOSS;
// RESOURCE_EXHAUSTED. Nothing is recorded.
mu_status mu__frames_next(mu_frames *frames, mu_link *link, mu_frame *out);
void mu__frames_free(mu_frames *frames);

typedef struct mu_hello {
    int rank, to, ranks;
    uint32_t process;
    uint16_t port; // where the sender listens
    uint8_t incarnation[MU_INCARNATION];
    uint8_t peer[MU_INCARNATION]; // for a stream: whom the sender means
    uint8_t place[MU_PLACE];      // equal where processes share memory
    char version[32];
    char stream[MU_MAX_STREAM_NAME + 1]; // "": the control connection
    char greeting[MU_MAX_GREETING + 1];
} mu_hello;

typedef struct mu_heartbeat {
    uint64_t age_ns; // for how long
    char doing[MU_MAX_WORD + 1];
} mu_heartbeat;

typedef struct mu_block {
    uint64_t number;
    char what[MU_MAX_WHAT + 1];
    const uint8_t *data;
    size_t bytes;
} mu_block;

typedef struct mu_failure { // of REFUSE and FAILURE
    mu_status code;
    char message[MU_MAX_REASON + 1];
} mu_failure;

typedef struct mu_peer_address {
    int rank;
    char address[MU_MAX_ADDRESS + 1];
} mu_peer_address;

// Each appends one frame with `number`. Errors: RESOURCE_EXHAUSTED, recorded. Texts that are too long are cut.
mu_status mu__frame_put_hello(mu_bytes *out, uint32_t number, mu_frame_type type, const mu_hello *hello);
mu_status mu__frame_put_heartbeat(mu_bytes *out, uint32_t number, const mu_heartbeat *beat);
mu_status mu__frame_put_block(mu_bytes *out, uint32_t number, const mu_block *block);
mu_status mu__frame_put_failure(mu_bytes *out, uint32_t number, mu_frame_type type, const mu_failure *news);
mu_status mu__frame_put_peer_address(mu_bytes *out, uint32_t number, const mu_peer_address *whereabouts);
mu_status mu__frame_put_word(mu_bytes *out, uint32_t number, mu_frame_type type); // READY, GO, LEAVE

// Each reads a body; false if it is not one. A block's data point into the body.
bool mu__frame_hello(const mu_frame *frame, mu_hello *out);
bool mu__frame_heartbeat(const mu_frame *frame, mu_heartbeat *out);
bool mu__frame_block(const mu_frame *frame, mu_block *out);
bool mu__frame_failure(const mu_frame *frame, mu_failure *out);
bool mu__frame_peer_address(const mu_frame *frame, mu_peer_address *out);

#endif
