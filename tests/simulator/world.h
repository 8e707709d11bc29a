// A virtual system (base/system.h): hosts, processes, connections and a clock, all of them values in this process.
//
// Time passes only by world_advance, so a run takes as long as its computations. All that the real world decides is
// drawn from one seed: delays of packets and look-ups, the order in which ready descriptors are reported, random bytes.
// What the processes do to the world is folded into a hash: the same seed gives the same hash.
#ifndef MU_TESTS_WORLD_H
#define MU_TESTS_WORLD_H

#include "base/system.h"

enum { MOST_HOSTS = 32, MOST_DESCRIPTORS = 8192 };

// world_begin makes an empty world and puts it in the place of the system. With `print` every event is written to
// standard output. Nobody lives in the world at first: calls of mu__system need a process (world_enter).
void world_begin(uint64_t seed, bool print);
void world_end(void); // frees it, and puts the real system back

// Times are in nanoseconds since the world began, plus one second.
int64_t world_now(void);
uint64_t world_hash(void);
uint64_t world_draw(uint64_t below);               // from 0 to below - 1
int64_t world_draw_ns(double from_s, double to_s); // a time span
bool world_chance(double probability);
void world_note(const char *format, ...) MU_PRINTF(1, 2); // an event of the trace

// A process has a number and lives on a host; the caller chooses both. world_enter makes the following calls of
// mu__system its calls. world_count_open counts the descriptors that a process has not closed.
void world_enter(int process, int host);
int world_count_open(int process);

// world_kill ends a process as a kernel does: its connections are closed, and whatever it does from then on reaches
// nobody. Its descriptors stay numbers that it may close.
void world_kill(int process);
// world_fill_disks lets every write to a file fail with ENOSPC until a time.
void world_fill_disks(int64_t until_ns);

// world_ready says for the processes 0 to n - 1 whether a poller of theirs has something to report;
// world_ready_pollers for each poller, by its descriptor less FIRST_FD, whether it has. world_next is the
// time of the next event of the network, MU_FOREVER if there is none. world_advance lets time pass until `until_ns`.
void world_ready(bool *ready, int n);
void world_ready_pollers(bool ready[MOST_DESCRIPTORS]);
int64_t world_next(void);
void world_advance(int64_t until_ns);

// The network. Packets from one host to another take from `least_s` to `most_s`, and do not overtake each other on one
// connection. A cut holds up what one host sends to another until a time; then it is sent again, within a second. A
// dark host neither sends nor receives any more.
void world_delays(double least_s, double most_s);
void world_cut(int from, int to, int64_t until_ns);
void world_darken(int host);
// world_break ends all connections between two hosts, as a firewall does that has forgotten them: both ends are reset,
// and what was on its way is lost.
void world_break(int a, int b);
// world_reject puts a firewall before host a until a time, one that answers host b with resets: the ends of their
// connections at b are reset, those at a become silent, and new ones are refused.
void world_reject(int a, int b, int64_t until_ns);
// Names of hosts ("host3") are found after at most `most_s`; before `found_ns`, not at all.
void world_names(double most_s, int64_t found_ns);

// ---- Between world.c and wire.c -----------------------------------------------------------------

typedef enum kind { KIND_FREE, KIND_LISTENER, KIND_STREAM, KIND_POLLER, KIND_WAKER } kind;

// What a descriptor stands for.
typedef struct descriptor {
    kind kind;
    int process, host;
    mu_endpoint at; // LISTENER
    int connection; // STREAM
    int end;        // STREAM: 0 connected, 1 accepted
    bool awake;     // WAKER
    int poller;     // that watches it; -1: none
    short events;
    uint64_t tag;
} descriptor;

enum { FIRST_FD = 1000 };
int world_descriptors(void); // the numbers from FIRST_FD that are or were in use
int world_open(kind what);   // for the process that was entered; -1 with errno EMFILE
descriptor *world_at(int fd);
int world_process(void);
int world_host(void);
void world_fold(const void *data, size_t bytes); // into the hash
int64_t world_travel(int from, int to);          // when a packet sent now arrives
bool world_rejects(int from, int to);            // a connection that is asked for now

void wire_begin(void);
void wire_end(void);
int64_t wire_next(void);
void wire_advance(void); // delivers what is due by now
bool wire_readable(const descriptor *at);
bool wire_writable(const descriptor *at);
void wire_close(descriptor *at);
void wire_kill(descriptor *at);                 // a stream's or a listener's
void wire_break(int a, int b, bool only_there); // the ends on host b
bool wire_pending(const descriptor *listener);

int wire_listen(const mu_endpoint *at, bool both_families);
int wire_accept(int listener);
int wire_connect(const mu_endpoint *to, const mu_endpoints *own);
int wire_connect_result(int fd);
bool wire_endpoint(int fd, bool there, mu_endpoint *out);
void wire_settle(int fd, double seconds);
ssize_t wire_send(int fd, const struct iovec *extents, int n);
ssize_t wire_recv(int fd, void *data, size_t bytes);
void wire_end_output(int fd);
bool wire_all_received(int fd);

#endif
