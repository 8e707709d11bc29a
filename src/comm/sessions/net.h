// The parts of a mesh: addresses and sockets, links (authenticated connections), and frames on them.
//
// No function here blocks for long, and none depends on who takes part in the job. All bytes from a peer pass through
// fixed-size greetings, OpenSSL's records, or frames whose lengths are checked before memory is allocated for them.
#ifndef MU_SRC_COMM_NET_H
#define MU_SRC_COMM_NET_H

#include "base/system.h"
#include "comm/mesh/mesh.h"
#include "comm/sessions/wire.h"

#include <errno.h>

// ---- Addresses (address.c, listen.c) ------------------------------------------------------------

enum { MU_MAX_ADDRESS = MU_MAX_HOST + 10, MU_MAX_LISTENERS = 8 };

// mu__address_split splits "host:port" or "[ipv6]:port"; `host` has MU_MAX_HOST + 1 bytes. Errors: INVALID_ARGUMENT
// naming the address.
mu_status mu__address_split(const char *address, char *host, int *port);

// A listener: several descriptors if a name has several addresses.
typedef struct mu_listener {
    int n, fds[MU_MAX_LISTENERS];
    int port;
} mu_listener;

// What is needed to listen on this process's own address; "": on a port that the system chooses. With `open` false only
// loopback addresses are allowed. If the name resolves to an address that this host does not have (of a service in
// front of it), or to the loopback although it is the host's name, it listens on all addresses. If `own` has addresses,
// it listens only on these, unless the address is the loopback.
typedef struct mu_listening {
    const char *address; // must outlive the listening
    bool open;
    mu_endpoints own;
    // The rest is the state of listen.c; zero at the start.
    mu_lookup *lookup;
    mu_endpoints endpoints;
    int port;
    bool found, all;
    int64_t name_deadline_ns, busy_deadline_ns;
} mu_listening;

// mu__listen_step continues without blocking and sets `done` when `out` listens; otherwise it is called again some
// milliseconds later, because the name is still looked up or the port may become free. Errors: UNAUTHENTICATED for a
// network address if `open` is false; ALREADY_EXISTS naming the port and the process that has it; INVALID_ARGUMENT,
// NOT_FOUND. mu__listen_end frees what the state holds.
mu_status mu__listen_step(mu_listening *listening, mu_listener *out, bool *done);
void mu__listen_end(mu_listening *listening);
void mu__listener_close(mu_listener *listener);

// A reserved port: bound but not listened on, so that the system gives it to no other process.
typedef struct mu_kept_port {
    int fd, port;
} mu_kept_port;

// mu__ports_keep reserves `n` free ports, of the loopback only or of all addresses. Errors: RESOURCE_EXHAUSTED and the
// system's; then no port stays reserved.
mu_status mu__ports_keep(mu_kept_port *ports, int n, bool loopback);
void mu__ports_give_back(mu_kept_port *ports, int n);

// mu__listen_more listens on one more address of this host, at the listener's port; false: it failed.
bool mu__listen_more(const mu_endpoint *at, mu_listener *listener);

// mu__network_endpoints finds the addresses of all network interfaces that are up, except loopback and link-local
// addresses.
mu_status mu__network_endpoints(mu_endpoints *out);

// mu__interface_endpoints finds the addresses of a network interface ("eth0"). Errors: NOT_FOUND naming the existing
// ones.
mu_status mu__interface_endpoints(const char *interface, mu_endpoints *out);

// mu__network_reason returns the end of a sentence for a failed call: "connection refused".
const char *mu__network_reason(int error_number);

// ---- Links (link.c, secure.c) -------------------------------------------------------------------

// How the ends of a link authenticate each other. Both must want the same.
typedef enum mu_protection {
    MU_PROTECTION_NONE,  // no key: loopback only, unless a setting allows more
    MU_PROTECTION_PROOF, // both prove that they have the key; later bytes are neither encrypted nor signed
    MU_PROTECTION_TLS    // TLS 1.3 with a pre-shared key derived from the cluster's key
} mu_protection;

enum { MU_KEY_BYTES = 32, MU_NONCE_BYTES = 32 };

enum {
    MU_RANDOM_KEY = 2 * MU_KEY_BYTES + 1, // size of a new cluster key
    MU_WORKER_KEY = 2 * MU_KEY_BYTES + 14 // of a worker's key, "worker:3:" and hexadecimal digits
};

// mu__key_check refuses a key that can be guessed: of a cluster under 16 characters, or with fewer than 8 different
// ones. mu__key_is_random is true for 32 or more hexadecimal digits, as `openssl rand -hex 32` writes them; any other
// key may consist of words. mu__key_random makes one. mu__key_forget overwrites a text and frees it. (key.c)
mu_status mu__key_check(const char *key);
bool mu__key_is_random(const char *key);
mu_status mu__key_random(char out[MU_RANDOM_KEY]);
void mu__key_forget(char *key); // NULL accepted

// mu__key_read finds whose key a text is, and the secret in a worker's. Errors: INVALID_ARGUMENT for a text that begins
// as a worker's key and is none.
mu_status mu__key_read(const char *key, int *bearer, uint8_t secret[MU_KEY_BYTES]);
// mu__key_suits_task refuses with PERMISSION_DENIED, naming both, a key of this process that is another task's;
// mu__key_suits_role one that is a worker's, where the process is `who` ("the coordinator").
mu_status mu__key_suits_task(const char *job, int index);
mu_status mu__key_suits_role(int bearer, const char *who);

// What the links of a mesh share: the keys and OpenSSL's context. An object.
typedef struct mu_keyring mu_keyring;
// mu__keyring_new derives the keys of links from the cluster's key or a worker's; the caller owns the result. A
// cluster's key that is not random digits is stretched first, which takes about 0.1 s and 32 MiB: once for this
// process, but once per guess for an attacker.
mu_keyring *mu__keyring_new(const char *key, bool plain);
mu_protection mu__keyring_protection(const mu_keyring *keyring);
// What the links of a keyring say of this process: its role (default MU_ROLE_NONE) and the newest version that it
// speaks (default MU_WIRE_VERSION). Set before the first link.
void mu__keyring_set(mu_keyring *keyring, mu_role role, int version);
mu_role mu__keyring_role(const mu_keyring *keyring);
int mu__keyring_bearer(const mu_keyring *keyring); // whose key it was made of
// mu__keyring_worker_key derives a worker's key from the cluster's. Errors: INVALID_ARGUMENT if the keyring is a
// worker's.
mu_status mu__keyring_worker_key(const mu_keyring *keyring, int worker, char out[MU_WORKER_KEY]);
int mu__keyring_version(const mu_keyring *keyring);
// mu__keyring_rekey_after makes a TLS link update its keys after this many bytes sent. For tests.
void mu__keyring_rekey_after(mu_keyring *keyring, int64_t bytes);

// A connection whose ends greet each other, prove the key, and then carry bytes. One thread may send while another
// receives.
typedef struct mu_link mu_link;

// mu__link_new takes ownership of `fd`, also when it fails. `from` and `to` are ranks; a server's `to` is -1 until the
// client has greeted. The client greets first.
mu_link *mu__link_new(mu_keyring *keyring, int fd, bool client, int from, int to);
void mu__link_free(mu_link *link); // NULL accepted

// mu__link_shake continues the greeting and the proof and sets `done` when both are complete. It never blocks; if not
// done, mu__link_events says what to wait for. Errors: UNAVAILABLE, UNAUTHENTICATED, FAILED_PRECONDITION (another
// version, or only one end wants encryption); none is recorded; mu__link_reason returns the end of a sentence.
mu_status mu__link_shake(mu_link *link, bool *done);
const char *mu__link_reason(const mu_link *link);
short mu__link_events(const mu_link *link);
int mu__link_fd(const mu_link *link);
int mu__link_from(const mu_link *link); // server: the rank that the client claims; -1: not known yet
// mu__link_speak makes a client's link, before its greeting, offer an older version. mu__link_version returns the
// version that both ends speak, or what this end offers; mu__link_role the role of the other end, proven when the link
// is open.
void mu__link_speak(mu_link *link, int version);
// mu__link_accept makes a link, before its greeting, take another end that has only this worker's key, i + 1, or any
// worker's; without it only whoever has the cluster's key is taken. mu__link_bearer returns whose key proves the link.
void mu__link_accept(mu_link *link, int bearer);
int mu__link_bearer(const mu_link *link);
int mu__link_version(const mu_link *link);
mu_role mu__link_role(const mu_link *link);

// As mu__stream_send and mu__stream_recv.
mu_status mu__link_send(mu_link *link, const void *data, size_t bytes, size_t *moved);
mu_status mu__link_send_all(mu_link *link, const struct iovec *extents, int n, size_t *moved);
mu_status mu__link_recv(mu_link *link, void *data, size_t bytes, size_t *moved);

// mu__link_error returns the errno that broke a link; 0: none did, as when the other end has closed the connection.
int mu__link_error(const mu_link *link);
// The errno that broke a connection, after a failed send or receive: the first one counts, because the system reports
// an error once, and then the end of the input. EPIPE only repeats that the other end has closed the connection.
static inline int mu__first_break(int before) { return before != 0 || errno == EPIPE ? before : errno; }

// TLS records on a link (secure.c); the caller holds the link's lock.
typedef struct mu_tls mu_tls;
mu_tls *mu__tls_new(mu_keyring *keyring, int fd, bool client); // the caller owns the result
void mu__tls_free(mu_tls *tls);
// mu__tls_bind makes the key of the handshake that of a bearer and depend on a text, so that both ends have proven it.
// Before the handshake. A keyring of the cluster's key has the keys of all bearers.
mu_status mu__tls_bind(mu_tls *tls, int bearer, const void *text, size_t bytes);
mu_status mu__tls_shake(mu_tls *tls, bool *done, const char **reason);
mu_status mu__tls_send(mu_tls *tls, const void *data, size_t bytes, size_t *moved);
mu_status mu__tls_recv(mu_tls *tls, void *data, size_t bytes, size_t *moved);
bool mu__tls_wants_out(const mu_tls *tls); // encrypted bytes wait for room in the socket's buffer
int mu__tls_error(const mu_tls *tls);      // as mu__link_error
// mu__keyring_proof signs the texts of a greeting: HMAC-SHA256 with a key made of the bearer's key.
mu_status mu__keyring_proof(const mu_keyring *keyring, int bearer, const char *who, const void *text, size_t bytes,
                            uint8_t out[MU_KEY_BYTES]);

// ---- Frames (frame.c) ---------------------------------------------------------------------------

// What one end of a link sends to the other. Every frame: length of the body, type, sequence number in this direction.
typedef enum mu_frame_type {
    MU_FRAME_HELLO = 1, // client: its identity and the purpose of the link
    MU_FRAME_WELCOME,   // server: its identity
    MU_FRAME_REFUSE,    // server: why it refuses; the link ends
    MU_FRAME_ADDRESS,   // rank 0: the address on which a rank listens
    MU_FRAME_READY,     // to rank 0: connected to all processes
    MU_FRAME_GO,        // rank 0: all processes are ready
    MU_FRAME_HEARTBEAT, // this process is alive, and what it is doing
    MU_FRAME_BLOCK,     // a block of an exchange
    MU_FRAME_FAILURE,   // the job has failed
    MU_FRAME_LEAVE,     // this process leaves in an orderly way
    MU_FRAME_REQUEST,   // asks the other end for something
    MU_FRAME_REPLY,     // answers a request
    MU_N_FRAMES
} mu_frame_type;
const char *mu__frame_name(mu_frame_type type); // "hello"

enum {
    MU_FRAME_HEADER = 12,
    MU_MAX_GREETING = 4000,
    MU_MAX_STREAM_NAME = 120,
    MU_MAX_WORD = 160,    // what a process is doing
    MU_MAX_REASON = 1000, // the reason of a failure
    MU_MAX_METHOD = 60,   // the name of what a request asks for
    MU_MAX_BLOCK = 1 << 20,
    MU_INCARNATION = 16,
    MU_HOST_ID = 32
};

// A growing buffer of bytes to send.
typedef struct mu_bytes {
    uint8_t *items;
    size_t n, capacity;
} mu_bytes;
void mu__bytes_free(mu_bytes *bytes);

// A received frame. `body` belongs to the reader and is valid until the next frame.
typedef struct mu_frame {
    mu_frame_type type;
    size_t bytes;
    const uint8_t *body;
} mu_frame;

// Reads frames from a link, and never a byte beyond the frame.
typedef struct mu_frames {
    uint8_t header[MU_FRAME_HEADER];
    uint8_t *body;
    size_t have, bytes; // received of header and body; size of the body
    uint32_t number;    // of the next frame
    bool complete;
} mu_frames;

// mu__frames_header parses a header. Errors: DATA_LOSS for an unknown type, a body over its type's limit or a wrong
// number.
mu_status mu__frames_header(const uint8_t header[MU_FRAME_HEADER], uint32_t number, mu_frame_type *type, size_t *bytes);
// mu__frames_next continues reading; `out->type` is 0 while no frame is complete. Errors, not recorded: the link's;
// DATA_LOSS; RESOURCE_EXHAUSTED.
mu_status mu__frames_next(mu_frames *frames, mu_link *link, mu_frame *out);
void mu__frames_free(mu_frames *frames);

typedef struct mu_hello {
    int rank, to, ranks;
    uint32_t process;
    uint16_t port; // port on which the sender listens
    uint8_t incarnation[MU_INCARNATION];
    uint8_t peer[MU_INCARNATION]; // for a stream: the incarnation of the intended receiver
    uint8_t host_id[MU_HOST_ID];  // equal for processes that can share memory
    char version[32];
    char stream[MU_MAX_STREAM_NAME + 1]; // "": the control connection
    char greeting[MU_MAX_GREETING + 1];
} mu_hello;

typedef struct mu_heartbeat {
    uint64_t age_ns; // how long it has been doing this
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
    bool of_caller; // see mu_error_value; FAILURE only, whose two ends have the same version of Muster
    char message[MU_MAX_REASON + 1];
} mu_failure;

typedef struct mu_request {
    uint64_t id;          // of the sender's choice, echoed in the reply
    uint64_t patience_ns; // for how long the sender waits for the reply
    char method[MU_MAX_METHOD + 1];
    const uint8_t *data;
    size_t bytes;
} mu_request;

typedef struct mu_reply {
    uint64_t id;
    mu_status code;
    bool of_caller;      // of an error: see mu_error_value; sent from version MU_WIRE_OF_CALLER on
    const uint8_t *data; // MU_OK: what was asked for; else the error's message
    size_t bytes;
} mu_reply;

typedef struct mu_peer_address {
    int rank;
    char address[MU_MAX_ADDRESS + 1];
} mu_peer_address;

// These functions append one frame with `number`. Errors: RESOURCE_EXHAUSTED, recorded. Texts that are too long are
// cut.
mu_status mu__frame_put_hello(mu_bytes *out, uint32_t number, mu_frame_type type, const mu_hello *hello);
mu_status mu__frame_put_heartbeat(mu_bytes *out, uint32_t number, const mu_heartbeat *beat);
mu_status mu__frame_put_block(mu_bytes *out, uint32_t number, const mu_block *block);
mu_status mu__frame_put_failure(mu_bytes *out, uint32_t number, mu_frame_type type, const mu_failure *failure);
mu_status mu__frame_put_peer_address(mu_bytes *out, uint32_t number, const mu_peer_address *address);
mu_status mu__frame_put_request(mu_bytes *out, uint32_t number, const mu_request *request);
mu_status mu__frame_put_reply(mu_bytes *out, uint32_t number, const mu_reply *reply);
mu_status mu__frame_put_word(mu_bytes *out, uint32_t number, mu_frame_type type); // READY, GO, LEAVE

// These functions parse a body; false if it is not valid. The data of blocks, requests and replies point into the body.
bool mu__frame_hello(const mu_frame *frame, mu_hello *out);
bool mu__frame_heartbeat(const mu_frame *frame, mu_heartbeat *out);
bool mu__frame_block(const mu_frame *frame, mu_block *out);
bool mu__frame_failure(const mu_frame *frame, mu_failure *out);
bool mu__frame_request(const mu_frame *frame, mu_request *out);
bool mu__frame_reply(const mu_frame *frame, mu_reply *out);
bool mu__frame_peer_address(const mu_frame *frame, mu_peer_address *out);

#endif
