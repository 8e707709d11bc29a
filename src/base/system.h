// The door to the outside: clock, random bytes, waiting, sockets, look-ups of names, and the files of protocols.
//
// Protocols (comm, cluster, rpc, distribute, coordinator) reach the outside through this table only. A test can put a
// virtual system in its place and run many tasks of the library in one thread: there, time passes only when no task has
// anything to do, and the same seed gives the same run (tests/simulator). The default is Linux; its functions are the
// system's own calls. A file descriptor is a number that only the same table understands.
#ifndef MU_SRC_BASE_SYSTEM_H
#define MU_SRC_BASE_SYSTEM_H

#include "base/base.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { MU_MAX_HOST = 255, MU_MAX_ENDPOINTS = 8 };

// ---- Endpoints (endpoint.c) ---------------------------------------------------------------------

typedef struct mu_endpoint {
    socklen_t bytes;
    struct sockaddr_storage address;
} mu_endpoint;

typedef struct mu_endpoints {
    int n;
    mu_endpoint items[MU_MAX_ENDPOINTS];
} mu_endpoints;

bool mu__endpoint_is_loopback(const mu_endpoint *endpoint);
int mu__endpoint_port(const mu_endpoint *endpoint);
void mu__endpoint_set_port(mu_endpoint *endpoint, int port);
// mu__endpoint_text writes "1.2.3.4:5" or "[::1]:5".
void mu__endpoint_text(const mu_endpoint *endpoint, char *text, size_t bytes);

// ---- The table ----------------------------------------------------------------------------------

// A descriptor that a poller reports: `tag` is what poller_set was given.
typedef struct mu_ready {
    uint64_t tag;
} mu_ready;

// A look-up of a host name in progress. Its contents belong to the system that started it.
typedef struct mu_lookup mu_lookup;

// Unless stated otherwise, no function blocks, each may be called on any thread, and a failed call returns -1 or false
// and sets errno as the system call of that name does. Every descriptor is non-blocking and closed by exec.
typedef struct mu_system {
    const char *name;
    // threads: whether protocols may start threads of their own; if not, their owner calls their step functions
    // repeatedly.
    bool threads;

    // now_ns: nanoseconds on a clock that never goes back and never jumps.
    int64_t (*now_ns)(void);
    // sleep_ns blocks for `ns` nanoseconds, or less if a signal arrives.
    void (*sleep_ns)(int64_t ns);
    // random fills `out` with unpredictable bytes. May block shortly after the host has started.
    bool (*random)(void *out, size_t bytes);
    // process: the number of this process, for messages.
    uint32_t (*process)(void);
    // memory_domain writes a text that is equal for two processes if they can share memory, else not; false: unknown.
    bool (*memory_domain)(char *text, size_t bytes);
    // read_file is mu__file_read.
    mu_status (*read_file)(const char *path, size_t limit, void **data, size_t *bytes);
    // write_file writes to a file that is being made (mu__file_write); may block.
    ssize_t (*write_file)(int fd, const void *data, size_t bytes);

    // lookup_start begins to look up a host name; numeric addresses are found at once. NULL: no memory, recorded.
    // lookup_done says whether the look-up has ended: `out` has the addresses, with the port that lookup_start was
    // given; if there are none, `reason` says why (static text). lookup_drop frees it, ended or not; NULL is accepted.
    mu_lookup *(*lookup_start)(const char *host, int port);
    bool (*lookup_done)(const mu_lookup *lookup, mu_endpoints *out, const char **reason);
    void (*lookup_drop)(mu_lookup *lookup);

    // listen listens at an endpoint; with `both_families`, an IPv6 listener accepts IPv4 too. accept returns a new
    // connection, or -1 if there is none. port_holder writes which process listens at a port of this host.
    int (*listen)(const mu_endpoint *at, bool both_families);
    int (*accept)(int listener);
    void (*port_holder)(int port, char *text, size_t bytes);
    // connect starts to connect, from one of the addresses in `own` unless the target is the loopback; the descriptor
    // becomes writable when connect_result has the outcome: 0, EINPROGRESS or the error.
    int (*connect)(const mu_endpoint *to, const mu_endpoints *own);
    int (*connect_result)(int fd);
    // endpoint: the address of this end of a connection or listener, or with `there` of the other end.
    bool (*endpoint)(int fd, bool there, mu_endpoint *out);
    // settle sets the options of a new connection: no delay, and an error if sent bytes are not acknowledged within
    // `seconds`.
    void (*settle)(int fd, double seconds);
    // send and recv move what fits; errno is EAGAIN if nothing did. recv returns 0 at the end of the input.
    ssize_t (*send)(int fd, const struct iovec *extents, int n);
    ssize_t (*recv)(int fd, void *data, size_t bytes);
    // end_output closes this direction: the other end reads the end of the input after all that was sent.
    void (*end_output)(int fd);
    // all_received says whether the other end's system has acknowledged all that was sent.
    bool (*all_received)(int fd);
    void (*close)(int fd);
    // wait blocks until one of `events` (POLLIN, POLLOUT) and returns true; false after one second or at the deadline.
    bool (*wait)(int fd, short events, int64_t deadline_ns);

    // A poller reports which of its descriptors are ready. poller_set adds a descriptor or changes its events;
    // poller_wait writes at most `most` ready descriptors and returns their number; it blocks until there is one, until
    // the deadline, or until a waker that it watches is woken. Closing a descriptor takes it out of its poller.
    int (*poller_new)(void);
    bool (*poller_set)(int poller, int fd, short events, uint64_t tag);
    void (*poller_unset)(int poller, int fd);
    int (*poller_wait)(int poller, mu_ready *out, int most, int64_t deadline_ns);
    // A waker becomes readable by waker_wake, and stays so until waker_clear.
    int (*waker_new)(void);
    void (*waker_wake)(int waker);
    void (*waker_clear)(int waker);
} mu_system;

// mu__system is the system that this process uses. Only a test changes it, before it starts any thread.
extern const mu_system mu__linux;
extern const mu_system *mu__system;

// mu__sleep_ns sleeps for that long, or less if a signal arrives. (clock.c; the clock itself is mu__now_ns)
void mu__sleep_ns(int64_t ns);

// mu__random writes random bytes for an identity or a challenge. Errors: INTERNAL, recorded.
mu_status mu__random(void *out, size_t bytes);

#endif
