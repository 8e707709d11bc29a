// Collectives: an algorithm is a list of steps for one rank, and a transport executes the steps.
//
// A builder (algorithms.c, hosts.c) is a pure function from a problem to a list of steps. schedule.c runs one rank's
// list on a transport, or simulates the lists of all ranks in one thread, which finds deadlocks and wrong sums without
// a network. group.c gives each rank its mu_collective and checks that all ranks call the same operation; join.c makes
// groups of several processes. Does not depend on graphs, strategies or devices.
#ifndef MU_SRC_COMM_H
#define MU_SRC_COMM_H

#include "comm/mesh/mesh.h"
#include "comm/transports/network.h"
#include "ops/core/op.h"

#include <muster/comm.h>

// ---- Reduction of memory (local_reduce.c) -------------------------------------------------------

typedef struct mu_local_reduce_args {
    mu_dtype dtype;
    mu_reduction reduction;
    int divide;  // a mean is divided by this in this step; 1: the step does not divide
    bool stream; // write with non-temporal stores, which bypass the caches
    int n_dst, n_src;
    void *const *dst;       // each receives the result; may be one of the sources
    const void *const *src; // combined in this order
    int64_t count;          // elements
    // Unrounded sums, mu__reduce_width elements each, which the ranks of a chain pass on to each other.
    const void *prefix; // added before the sources; NULL: no prefix
    void *partial;      // if not NULL, receives the unrounded result; dst is not written
} mu_local_reduce_args;

// mu__reduce combines sources element by element, in their order, and writes the result to all
// destinations. f16 and bf16 are added in f32 and rounded once; integers wrap; min and max return NaN if a source
// has one.
void mu__reduce(const mu_local_reduce_args *args);

// mu__reduce_supports is true for every numeric type and false for bool.
bool mu__reduce_supports(mu_dtype dtype);

// mu__reduce_width returns the number of elements that an unrounded sum takes: 2 for f16 and bf16, which are added in
// f32, else 1.
int mu__reduce_width(mu_dtype dtype);

// ---- Problems and steps -------------------------------------------------------------------------

typedef enum mu_collective_kind {
    MU_KIND_ALL_REDUCE,
    MU_KIND_ALL_GATHER,
    MU_KIND_BROADCAST,
    MU_KIND_ALL_TO_ALL,
    MU_KIND_REDUCE_SCATTER,
    MU_KIND_BARRIER,
    MU_KIND_PERMUTE,
    MU_N_KINDS
} mu_collective_kind;
const char *mu__kind_name(mu_collective_kind kind); // "all_reduce"

// The input of a builder, for one rank. Counts are in elements.
typedef struct mu_problem {
    mu_collective_kind kind;
    int rank, ranks;
    int root;               // broadcast only
    int64_t count;          // elements of DATA; all-gather: of this rank's INPUT; all-to-all and reduce-scatter: of one
                            // block; permute: of INPUT
    size_t element;         // bytes of one element
    int width;              // mu__reduce_width; 0 counts as 1
    const int64_t *counts;  // all-gather: every rank's count
    const int64_t *sources; // permute: the rank whose INPUT each rank receives; -1: none
    int hosts;              // number of hosts, whose ranks are numbered consecutively; 0 or 1: one host
    const int *first;       // [hosts + 1] first rank of each host, then `ranks`; NULL for one host
} mu_problem;

// The memory that steps refer to. WINDOW belongs to the transport: every rank can read it after RENDEZVOUS. Each rank
// has two windows and alternates between them, so one barrier per collective is enough. STAGING is a buffer of the
// transport that all ranks of the host can address; data that other ranks cannot address is copied through it in
// chunks.
typedef enum mu_area {
    MU_AREA_DATA,
    MU_AREA_INPUT,
    MU_AREA_WINDOW,
    MU_AREA_STAGING,
    MU_AREA_SCRATCH,
    MU_N_AREAS
} mu_area;
#define MU_WINDOW_BYTES  ((size_t)32768)
#define MU_STAGING_BYTES ((size_t)1 << 20)

// A rank runs its steps in order. Only SEND continues during later steps: its memory must not change until the receiver
// has the data. FLUSH waits for that, and so does the end of the list.
typedef enum mu_step_kind {
    MU_STEP_RENDEZVOUS, // barrier of all ranks, at which they compare signatures; once in each list
    MU_STEP_ANNOUNCE,   // sends the signature before RENDEZVOUS, so that it travels during the steps between the two
    MU_STEP_BARRIER,    // barrier of the ranks of this host
    MU_STEP_SEND,       // the owner's from[from_at, +count] to `peer`; messages of a pair arrive in order
    MU_STEP_RECV,       // the owner's to[to_at, +count] from `peer`
    MU_STEP_FLUSH,      // waits until the memory of every earlier SEND may be reused
    MU_STEP_COPY,       // the owner's to[to_at] = from[from_at] of `peer`'s memory (often the rank itself)
    MU_STEP_REDUCE,     // the owner's to[to_at] = `parts` operands combined: operand `own_operand` is to[to_at] (-1:
                        // none), the others are consecutive in this rank's `from`
    MU_STEP_REDUCE_ALL  // combines from[from_at] of ranks `low` to `low` + `parts`, in rank order, into the owner's
                        // to[to_at]; with `push` into that of all these ranks
} mu_step_kind;
const char *mu__step_name(mu_step_kind kind); // "send"

typedef struct mu_step {
    mu_step_kind kind;
    int peer, owner;
    mu_area from, to;
    int64_t from_at, to_at, count; // elements
    int low, parts;
    int own_operand;    // REDUCE
    int64_t partial_at; // REDUCE_ALL in a chain
    bool push;
    bool last; // REDUCE, REDUCE_ALL: the last addition, so a mean divides here
    // REDUCE_ALL in a chain: starts from, or leaves, an unrounded sum in SCRATCH at element `partial_at`.
    bool continues, leaves_partial;
} mu_step;

typedef struct mu_steps {
    mu_step *items;
    size_t n, capacity;
    int64_t scratch; // elements of SCRATCH that the steps need
    int64_t window;  // elements of the window that the rank fills
    int rank;        // the rank that runs the list; by default it owns the memory of the steps
} mu_steps;
void mu__steps_free(mu_steps *steps);

// Sends to one peer that may be in flight at once; the next send blocks. The simulation applies the same limit.
enum { MU_SENDS_IN_FLIGHT = 8 };

// ---- Algorithms (algorithms.c, hosts.c) ---------------------------------------------------------

typedef enum mu_algorithm_needs {
    MU_NEEDS_WINDOW = 1 << 0,   // the message must fit into the window of a rank
    MU_NEEDS_PEERS = 1 << 1,    // ranks of one host can address each other's DATA and INPUT, or use staging buffers
    MU_NEEDS_MESSAGES = 1 << 2, // every rank can send to every other; without it only the first rank of each host can
    MU_NEEDS_ONE_HOST = 1 << 3  // all ranks on one host
} mu_algorithm_needs;

typedef struct mu_algorithm {
    mu_collective_kind kind;
    const char *name;
    unsigned needs;  // mu_algorithm_needs
    bool rank_order; // elements are added in rank order, so the result does not depend on the placement of ranks
    // build appends the steps of problem->rank to `out`. A pure function; fails only when out of memory.
    mu_status (*build)(const mu_problem *problem, mu_steps *out);
    const char *sentence; // description for the documentation
} mu_algorithm;

const mu_algorithm *mu__algorithm(mu_collective_kind kind, const char *name); // NULL if there is none
const mu_algorithm *mu__algorithm_at(int i);                                  // NULL after the last

// mu__algorithm_fits says whether the algorithm can solve the problem on a transport with these capabilities
// (MU_NEEDS_WINDOW, MU_NEEDS_PEERS, MU_NEEDS_MESSAGES).
bool mu__algorithm_fits(const mu_algorithm *algorithm, const mu_problem *problem, unsigned means);

// mu__algorithm_build makes the list of problem->rank. With `staged` the list does not access other ranks' DATA and
// INPUT: their data is copied through the staging buffers in chunks (staging.c). Both lists begin with RENDEZVOUS.
mu_status mu__algorithm_build(const mu_algorithm *algorithm, const mu_problem *problem, bool staged, mu_steps *out);
mu_status mu__build_staged(const mu_algorithm *algorithm, const mu_problem *problem, mu_steps *out);

// ---- Policy (policy.c) --------------------------------------------------------------------------

// Which algorithm to use for which size: "allreduce:0-16k:slots,16k-:direct;broadcast:tree". Sizes are bytes of one
// rank, with the suffix k, m or g; a range excludes its upper end; the first rule that matches is used.
typedef struct mu_policy_rule {
    int64_t low, high; // bytes; high is excluded
    const mu_algorithm *algorithm;
} mu_policy_rule;
enum { MU_MAX_RULES = 24 };
typedef struct mu_policy {
    int n;
    mu_policy_rule rules[MU_MAX_RULES];
} mu_policy;

// mu__policy_parse parses `text`. Errors: INVALID_ARGUMENT naming the wrong part and what is allowed there.
mu_status mu__policy_parse(const char *text, mu_policy *out);

// mu__policy_select returns the policy's algorithm if the means allow it, else the best algorithm that they allow.
const mu_algorithm *mu__policy_select(const mu_policy *policy, const mu_problem *problem, unsigned means);

// mu__policy_of returns the policy text of an implementation (static storage) for a placement: all ranks on one host,
// the same with more ranks than cores (CROWDED), one rank on each host (APART), or any other (MIXED). With
// `in_rank_order` the policy's sums do not depend on where ranks are. NCCL, which CPU devices cannot use, becomes RING,
// or AUTO with `in_rank_order`, with one warning in the log. Errors (NULL with a record): INVALID_ARGUMENT if
// `in_rank_order` is set and the implementation does not add in rank order.
typedef enum mu_placing { MU_PLACED_TOGETHER, MU_PLACED_CROWDED, MU_PLACED_APART, MU_PLACED_MIXED } mu_placing;
const char *mu__policy_of(mu_communication communication, mu_placing placing, bool in_rank_order);

// mu__policy_check_order fails if the policy has an algorithm that does not add in rank order.
mu_status mu__policy_check_order(const mu_policy *policy);

// ---- Transports (shm.c, interhost.c) ------------------------------------------------------------

// What a rank says about the operation that it enters. `same` must be equal byte by byte on all ranks, so it is zeroed
// before it is filled. Hosts send each other this struct unchanged.
enum { MU_SIGNATURE_NAME = 64 };
typedef struct mu_signature {
    struct {
        int64_t run, number;                  // which operation of which run
        int32_t kind, reduction, dtype, root; // permute: in place of the root a hash of all sources
        int64_t count;                        // all-gather: a hash of all counts
        uint64_t form;                // hash of all shapes, of any number of axes, so that the fast path compares 120
                                      // bytes
        char name[MU_SIGNATURE_NAME]; // by mu__fit_name
    } same;
    int64_t count;                  // this rank's own count
    uint64_t areas[MU_AREA_WINDOW]; // address of its DATA and INPUT for the ranks of its host
    int32_t reached;                // whether the ranks of its host can address them
    int32_t window;                 // bytes of its window that it fills
    mu_form form;                   // read only to describe the difference when hashes differ
} mu_signature;

// mu__fit_name copies a name into `bytes` (20 or more). A longer name is cut and ends in ~ and a hash of the whole one,
// so that different names stay different.
void mu__fit_name(const char *name, size_t bytes, char *out);

// mu__reduction_name returns "sum", "mean", "min" or "max", "unknown" for another number.
const char *mu__reduction_name(int32_t reduction);

// mu__signature_can_be checks a signature from another host: whether mu__write_signature could have written the fields
// that are used before signatures are compared.
bool mu__signature_can_be(const mu_signature *signature);

// Where the ranks of a group run, as seen by one process.
typedef struct mu_interhost mu_interhost;
typedef struct mu_work_queue mu_work_queue;
typedef struct mu_topology {
    int ranks;
    int first_local, n_local; // ranks of this process
    int hosts, host;          // number of hosts, and the number of this one
    const int *first;         // [hosts + 1] first rank of each host, then `ranks`; must outlive the transport
    bool staged;              // some ranks cannot address each other's memory, so staging buffers are needed
    // Zeroed memory that the processes of this host share, `bytes` long; the transport uses its first mu__shm_bytes.
    void *memory; // NULL: the ranks of this host are threads of one process
    size_t bytes;
    struct mu_segment *segment; // the segment that contains `memory`
    mu_interhost *interhost; // connects the first ranks of the hosts; NULL: one host, or not the first process of this
                             // host
} mu_topology;

// One rank's handle of a transport. One thread at a time uses it.
typedef struct mu_channel {
    const struct mu_transport *transport;
    void *shared; // the group's state
    void *state;  // this rank's state
    int rank, ranks;
    bool crowded;      // more ranks than cores: waiting threads yield at once
    uint32_t op_count; // collectives entered; its parity selects one of the two windows and signatures
    double timeout;    // longest wait, in seconds
    int waiting_for;   // the peer that a sleeping or failed wait waits for; -1: every rank that has not arrived
    // Called from time to time while a wait sleeps; a status other than MU_OK ends the wait. NULL: not called.
    mu_status (*idle)(void *arg);
    void *idle_arg;
    const atomic_bool *calm; // while true, waits sleep at once instead of spinning and yielding
} mu_channel;

// A transport is a table of functions; the group allocates, zeroes and frees the states. Functions that wait return
// MU_OK, MU_DEADLINE_EXCEEDED, MU_ABORTED or the error of the connection, and record no error: the group writes the
// message.
typedef struct mu_transport {
    const char *name;
    size_t shared_bytes; // size of the group's state in this process, aligned to 64 bytes
    size_t rank_bytes;   // size of one rank's state, aligned to 64 bytes
    // open allocates what the shared state refers to; close frees it, also after a failed open.
    mu_status (*open)(void *shared, const mu_topology *topology);
    void (*close)(void *shared);
    // signature returns where `rank` writes its signature before RENDEZVOUS; other ranks read it there afterwards.
    mu_signature *(*signature)(const mu_channel *channel, int rank);
    // locate writes the address of `data` for the ranks of this host to `at`; false: they cannot address it.
    bool (*locate)(const mu_channel *channel, const void *data, size_t bytes, uint64_t *at);
    // announce sends this rank's part of the rendezvous early; signature and window are already written. NULL: the
    // transport does not benefit from it.
    mu_status (*announce)(mu_channel *channel);
    // rendezvous returns when every rank has called it. After it, all ranks see what a rank wrote to its signature and
    // window before, and the ranks of its host see all its earlier writes. Blocks.
    mu_status (*rendezvous)(mu_channel *channel);
    // barrier returns when every rank of this host has called it. Blocks.
    mu_status (*barrier)(mu_channel *channel);
    // area returns the memory of a rank of this host, or the window of any rank. Valid from RENDEZVOUS to the next
    // barrier.
    void *(*area)(const mu_channel *channel, int rank, mu_area area);
    // send starts a send; it blocks only while MU_SENDS_IN_FLIGHT sends to this peer are in flight.
    mu_status (*send)(mu_channel *channel, int peer, const void *data, size_t bytes);
    // recv blocks until the next message of `peer` is in `data`. Returns INTERNAL if the message has another size.
    mu_status (*recv)(mu_channel *channel, int peer, void *data, size_t bytes);
    // flush blocks until the memory of all sends may be reused.
    mu_status (*flush)(mu_channel *channel);
    // has_come says whether `rank` has reached the barrier, or sent the message, that this rank waits for.
    bool (*has_come)(const mu_channel *channel, int rank);
    // work_queue returns the queue to which the ranks of this host post nonblocking operations; NULL: the ranks are on
    // several hosts. n_rendezvous returns how many rendezvous a rank has entered; reading it acquires the rank's
    // earlier writes.
    mu_work_queue *(*work_queue)(const mu_channel *channel);
    uint32_t (*n_rendezvous)(const mu_channel *channel, int rank);
    // Between enter and leave this rank may access the memory of others; is_inside says whether `rank` may.
    bool (*enter)(mu_channel *channel); // false: this rank has already entered
    void (*leave)(mu_channel *channel);
    bool (*is_inside)(const mu_channel *channel, int rank);
    // abort makes every current and future wait of every rank on this host fail with MU_ABORTED. Any thread may call
    // it.
    void (*abort)(void *shared, const mu_error_value *error);
    // aborted copies the error with which another process of this host aborted; false: none has aborted.
    bool (*aborted)(void *shared, mu_error_value *out);
    // reset undoes abort and drops messages in flight; no rank may have entered.
    void (*reset)(void *shared);
    void (*reset_rank)(mu_channel *channel);
} mu_transport;

extern const mu_transport mu__transport_shm;       // ranks on one host: threads, or processes that share memory
extern const mu_transport mu__transport_interhost; // several hosts

// mu__shm_bytes returns the number of bytes that the transport needs of the host's shared memory.
size_t mu__shm_bytes(const mu_topology *topology);

// mu__interhost_new connects the first rank of host `topology->host` to the first ranks of the other hosts:
// streams[host] leads to each, NULL at its own index. The transport owns the streams; on error (NULL) the caller keeps
// them.
mu_interhost *mu__interhost_new(const mu_topology *topology, mu_stream **streams);
void mu__interhost_free(mu_interhost *interhost); // NULL accepted

// ---- Waiting (barrier.c) ------------------------------------------------------------------------

// A wait in three phases: spin, then yield, then sleep.
typedef struct mu_backoff {
    int64_t began_ns, deadline_ns;
    double timeout;
    unsigned spins;
    bool crowded;
    mu_status (*idle)(void *arg); // as in mu_channel
    void *idle_arg;
    const atomic_bool *calm;
} mu_backoff;
#define MU_BACKOFF(channel)                                                                    \
    {                                                                                          \
        .timeout = (channel)->timeout, .crowded = (channel)->crowded, .idle = (channel)->idle, \
        .idle_arg = (channel)->idle_arg, .calm = (channel)->calm                               \
    }

// mu__backoff_pause spins or yields once; false: the caller should sleep now. The caller runs mu__backoff_check before
// each sleep: it returns DEADLINE_EXCEEDED after the deadline, or the status of `idle`.
bool mu__backoff_pause(mu_backoff *backoff);
mu_status mu__backoff_check(const mu_backoff *backoff);

// A barrier: one counter of arrivals that only grows. The last rank to arrive wakes the sleeping ones.
typedef struct mu_barrier {
    _Alignas(64) atomic_uint arrivals;
    _Alignas(64) atomic_int sleepers;
    atomic_bool failed;
    atomic_bool between_processes; // it is in memory that several processes share
} mu_barrier;

// mu__barrier_wait enters the barrier of `ranks` ranks. `epoch` counts how often the caller has entered, from 0; the
// function increments it. Returns MU_OK, MU_DEADLINE_EXCEEDED or MU_ABORTED.
mu_status mu__barrier_wait(mu_barrier *barrier, uint32_t *epoch, int ranks, mu_backoff backoff);
void mu__barrier_abort(mu_barrier *barrier);

// An eventcount: waiters sleep until a condition holds; a thread that changes the condition notifies them, and they
// test it again.
typedef struct mu_eventcount {
    _Alignas(64) atomic_uint notified;
    atomic_int sleepers;
    atomic_bool between_processes;
} mu_eventcount;
void mu__eventcount_notify(mu_eventcount *changes);
mu_status mu__eventcount_wait(mu_eventcount *changes, bool (*so)(const void *arg), const void *arg, mu_backoff backoff);

// ---- The work queue (work_queue.c) --------------------------------------------------------------

// The queue, in zeroed shared memory, to which the ranks of one host post nonblocking operations. A rank that waits for
// an operation which all have posted reduces slices of it until none is left.
enum { MU_MAX_REQUESTS = 16 };
typedef struct mu_work_item {
    _Alignas(64) atomic_uint posted; // ranks that have posted, over the life of the item
    atomic_uint ended;               // ranks that have finished waiting, over the life of the item
    atomic_uint ready;               // number of times that all ranks had posted
    atomic_uint next, done;          // slices: taken, and written
    atomic_llong end_ns;
} mu_work_item;
typedef struct mu_work_post {
    _Alignas(64) mu_signature signature;
    atomic_uint came; // 1 + number of the operation that the signature describes
} mu_work_post;
struct mu_work_queue {
    mu_eventcount changes;
    mu_work_item slots[MU_MAX_REQUESTS];
    mu_work_post entries[]; // [MU_MAX_REQUESTS][ranks]
};

// ---- Running lists (schedule.c) -----------------------------------------------------------------

// What a list of steps runs on.
typedef struct mu_schedule {
    mu_dtype dtype;
    mu_reduction reduction;
    bool stream;                        // bypass the caches: results are larger than they are
    void *areas[MU_N_AREAS];            // this rank's memory; the transport provides WINDOW
    void **pointers;                    // [2 * ranks + 1], working memory
    mu_status (*rendezvous)(void *arg); // called after RENDEZVOUS to compare signatures; NULL: nothing to compare
    void *arg;
} mu_schedule;

// mu__schedule_run runs one rank's steps on its channel. Returns the status of the transport or of `rendezvous`. `at`
// (may be NULL) holds the step to begin with; it receives the step that failed, or the number of steps.
mu_status mu__schedule_run(const mu_steps *steps, mu_channel *channel, const mu_schedule *schedule, size_t *at);

// What the lists of all ranks cost in total.
typedef struct mu_cost {
    int64_t steps;     // steps of the longest list
    int64_t messages;  // sent by all ranks together
    int64_t max_bytes; // bytes sent by the rank that sends most
    int64_t rounds;    // messages and barriers on the critical path
} mu_cost;

// mu__schedule_simulate runs the lists of all ranks in this thread, in an order drawn from `seed`; schedules[r].areas
// holds rank r's memory, including WINDOW and STAGING. Messages are read as late as possible. Errors: INTERNAL for a
// deadlock, a message of the wrong size or a message that no rank receives; the message names rank and step.
mu_status mu__schedule_simulate(const mu_steps *lists, const mu_problem *problem, const mu_schedule *schedules,
                                uint64_t seed, mu_cost *cost);

// ---- Groups (group.c, join.c) -------------------------------------------------------------------

// A group of ranks that run the same collectives: threads of this process, or of each process of a mesh.
typedef struct mu_group mu_group;

// mu__group_new makes a group of n threads; NULL on error. The caller owns it (mu_release) and must not release it
// while a rank is in a collective.
mu_group *mu__group_new(int n, const char *name);

// mu__group_join makes a group of n_local threads of each process of the mesh: rank = process * n_local + local. Every
// process calls it with the same name; NULL on error. Processes of one host share memory; others use streams of the
// mesh. Retains the mesh. Blocks. Errors: INVALID_ARGUMENT on all processes if numbers or options differ, naming two
// processes that differ; UNIMPLEMENTED for an implementation that CPU devices do not support.
mu_group *mu__group_join(mu_mesh *mesh, int n_local, const char *name, const mu_communication_options *options);

// mu__group_member returns the communicator of a local rank, owned by the group. One thread at a time uses it.
mu_collective *mu__group_member(mu_group *group, int local);

// mu__collective_begin sets the number of the run to which the rank's next collectives belong.
void mu__collective_begin(mu_collective *self, int64_t run);

// mu__collective_barrier waits for all ranks. mu__collective_all_to_all sends block r of `in` to rank r and receives
// rank r's block as block r of `out`. mu__collective_reduce_scatter reduces block r of all ranks' `in` for rank r.
// `count` is the size of one block. mu__collective_permute copies `count` elements of rank sources[r] to each rank r,
// zeros where that is -1; no rank is the source of two.
mu_status mu__collective_barrier(mu_collective *self, int64_t number, const char *name);
mu_status mu__collective_all_to_all(mu_collective *self, int64_t number, const char *name, mu_dtype dtype,
                                    const void *in, void *out, int64_t count);
mu_status mu__collective_reduce_scatter(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                        mu_dtype dtype, const void *in, void *out, int64_t count);
mu_status mu__collective_permute(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                                 void *out, int64_t count, const int64_t *sources);

// mu__group_serve runs network operations for the ranks if only the thread that opened the network may use it; that
// thread calls this function while it waits for the ranks. mu__group_needs_service says whether that is the case.
void mu__group_serve(mu_group *group);
bool mu__group_needs_service(const mu_group *group);

// mu__group_set_timeout sets the longest wait in seconds (default MUSTER_TIMEOUT). mu__group_set_policy sets the
// algorithms from a text for mu__policy_parse; all processes must set the same. Call both while no rank is in a
// collective.
void mu__group_set_timeout(mu_group *group, double seconds);
double mu__group_timeout(const mu_group *group);
mu_status mu__group_set_policy(mu_group *group, const char *policy);

// mu__group_price writes what `deterministic` costs this group, as the rest of a sentence.
enum { MU_PRICE_BYTES = 240 };
const char *mu__group_price(const mu_group *group, char text[MU_PRICE_BYTES]);

// mu__group_path returns how ranks are connected: "threads", "shared memory", "tcp", "mpi" or "ucx" (static storage).
const char *mu__group_path(const mu_group *group);
// mu__group_algorithm returns the algorithm that the policy selects for an all-reduce of this size, such as "direct"
// (static storage); "none" for a type that cannot be reduced.
const char *mu__group_algorithm(const mu_group *group, mu_dtype dtype, int64_t count);

// mu__group_abort makes every current and later collective of the group fail at once with `error`, in all processes;
// the first error is kept. Any thread may call it. mu__group_reset makes the group work again. Errors:
// FAILED_PRECONDITION while a rank is in a collective, and always for a group of several processes, because their job
// has failed.
void mu__group_abort(mu_group *group, const mu_error_value *error);
mu_status mu__group_reset(mu_group *group);

// mu__group_failed copies the error with which the group failed; false: it has not failed.
bool mu__group_failed(mu_group *group, mu_error_value *out);

// The result of mu__group_join, from which mu__group_open makes a group. The group then owns the inter-host transport,
// segment, mesh, network and `first`, also on failure.
typedef struct mu_joining {
    mu_topology topology;
    const mu_transport *transport;
    int *first;          // memory of topology.first
    mu_mesh *mesh;       // NULL: a group of threads
    mu_network *network; // carries the streams between hosts; NULL: the mesh's connections do
    bool crowded;        // more ranks on this host than cores
    const char *policy;
    double timeout;
} mu_joining;
mu_group *mu__group_open(const char *name, mu_joining *joining);

// ---- Shared memory between processes (shm_segment.c) --------------------------------------------

// A segment is anonymous memory that several processes map: `bytes` shared by all, zeroed, then one heap for each of n
// ranks. The system frees it when the last process ends, even if that process is killed.
typedef struct mu_segment mu_segment;
enum { MU_SEGMENT_ADDRESS = 64 }; // size of the text by which another process finds the segment

// mu__segment_new creates a segment and writes its address to `address`. mu__segment_find maps the segment of another
// process, which must have the same `bytes` and `n`. The caller owns both (mu_release); NULL on error. Errors:
// RESOURCE_EXHAUSTED if memory is short; PERMISSION_DENIED or NOT_FOUND if the other process's segment cannot be
// opened.
mu_segment *mu__segment_new(size_t bytes, int n, char address[MU_SEGMENT_ADDRESS]);
mu_segment *mu__segment_find(const char *address, size_t bytes, int n);
void *mu__segment_memory(const mu_segment *segment, size_t *bytes); // all of it

// mu__segment_take allocates from the heap of that number; one process may use each heap. NULL if the heap is full,
// without an error record; with one only if ordinary memory ran out.
mu_buffer *mu__segment_take(mu_segment *segment, int heap_number, size_t bytes);

// ---- Options of the user (options.c) ------------------------------------------------------------

// mu__communication_options_copy copies a caller's options (NULL: defaults) and checks them. Errors: INVALID_ARGUMENT.
mu_status mu__communication_options_copy(mu_communication_options *out, const mu_communication_options *options);

#endif
