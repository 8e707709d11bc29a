// Collectives as data: an algorithm is a list of steps for one rank, a transport carries the steps out.
//
// A builder (algorithms.c) is pure: a problem in, a list out. schedule.c runs a list on a transport, or
// the lists of all ranks at once in one thread, where deadlocks and wrong sums show without a network.
// group.c gives each rank its mu_collective and makes sure that all ranks mean the same operation; join.c
// makes groups of several processes. Knows nothing of graphs, strategies and devices.
#ifndef MU_SRC_COMM_H
#define MU_SRC_COMM_H

#include "comm/mesh.h"
#include "comm/network.h"
#include "ops/op.h"

#include <muster/comm.h>

// ---- Reduction of memory (local_reduce.c) -------------------------------------------------------

typedef struct mu_reduce_args {
    mu_dtype dtype;
    mu_reduction reduction;
    int divide;  // a mean that this step finishes: by how many; 1: not here
    bool stream; // stores go past the caches
    int n_dst, n_src;
    void *const *dst;       // each gets the result; may be one of the sources
    const void *const *src; // combined in this order
    int64_t count;          // elements
    // What a chain of ranks hands on: sums in the type that they are added in, mu__reduce_width elements each.
    const void *prefix; // combined before the sources; NULL: none
    void *partial;      // gets the result unrounded, in place of dst; NULL: not wanted
} mu_reduce_args;

// mu__reduce combines sources element by element, in their order, and writes the result to all
// destinations. f16 and bf16 are added in f32 and rounded once; integers wrap; NaN wins min and max.
void mu__reduce(const mu_reduce_args *args);

// Element types that can be reduced: every number, no bool.
bool mu__reduce_supports(mu_dtype dtype);

// How many elements an unrounded sum takes: 2 for f16 and bf16, which are added in f32, else 1.
int mu__reduce_width(mu_dtype dtype);

// ---- Problems and steps -------------------------------------------------------------------------

typedef enum mu_collective_kind {
    MU_KIND_ALL_REDUCE,
    MU_KIND_ALL_GATHER,
    MU_KIND_BROADCAST,
    MU_KIND_ALL_TO_ALL,
    MU_KIND_REDUCE_SCATTER,
    MU_KIND_BARRIER,
    MU_N_KINDS
} mu_collective_kind;
const char *mu__kind_name(mu_collective_kind kind); // "all_reduce"

// What a builder is asked, for one rank. Counts are in elements.
typedef struct mu_problem {
    mu_collective_kind kind;
    int rank, ranks;
    int root;              // broadcast
    int64_t count;         // of DATA; all-gather: of this rank's INPUT; all-to-all, reduce-scatter: of one block
    size_t element;        // bytes of one
    int width;             // mu__reduce_width; 0 counts as 1
    const int64_t *counts; // all-gather: of every rank
    int hosts;             // that the ranks are on, numbered host by host; 0 or 1: all on one
    const int *first;      // [hosts + 1] the first rank of each, then `ranks`; NULL with one
} mu_problem;

// The memory that a rank's steps name. The window is a piece of the transport's own whose contents every rank
// can read after RENDEZVOUS, one of two in turn, so that one barrier per collective is enough. The staging buffer is
// another, that the ranks of the same host can address: data that they cannot address passes through it, a piece at a
// time.
typedef enum mu_area {
    MU_AREA_DATA,
    MU_AREA_INPUT,
    MU_AREA_WINDOW,
    MU_AREA_STAGING,
    MU_AREA_SCRATCH,
    MU_N_AREAS
} mu_area;
#define MU_WINDOW_BYTES ((size_t)32768)
#define MU_STAGING_BYTES  ((size_t)1 << 20)

// Steps of one rank run in order. Only SEND continues during the next steps: its memory must stay as it is
// until the receiver has it, which FLUSH waits for; the end of a list flushes too.
typedef enum mu_step_kind {
    MU_STEP_RENDEZVOUS, // barrier of all ranks at which they compare what they were asked to do; once in each list
    MU_STEP_ANNOUNCE,   // tells it to the others ahead of RENDEZVOUS: what is sent in between is on its way meanwhile
    MU_STEP_BARRIER,    // of the ranks of this host
    MU_STEP_SEND,       // the owner's from[from_at, +count] to `peer`; messages of a pair arrive in order
    MU_STEP_RECV,       // the owner's to[to_at, +count] from `peer`
    MU_STEP_FLUSH,      // every SEND so far has left its memory
    MU_STEP_COPY,       // the owner's to[to_at] = from[from_at] of `peer`'s memory (often the rank itself)
    MU_STEP_REDUCE,     // the owner's to[to_at] = parts combined: number `place` (-1: none) is to[to_at], the others
                       // follow each other in `from` of this rank
    MU_STEP_REDUCE_ALL // from[from_at] of ranks `low` to `low` + `parts`, in rank order, into the owner's to[to_at],
                       // or with `push` of all these ranks
} mu_step_kind;
const char *mu__step_name(mu_step_kind kind); // "send"

typedef struct mu_step {
    mu_step_kind kind;
    int peer, owner;
    mu_area from, to;
    int64_t from_at, to_at, count; // elements
    int low, parts, place;
    bool push;
    bool last; // REDUCE, REDUCE_ALL: nothing is added after it; a mean divides here
    // REDUCE_ALL in a chain: it continues from an unrounded sum in SCRATCH, at element `place`; it leaves one there.
    bool continues, leaves_partial;
} mu_step;

typedef struct mu_steps {
    mu_step *items;
    size_t n, capacity;
    int64_t scratch; // elements of SCRATCH that the list uses
    int64_t window;  // elements that the rank shows in its window
    int rank;        // whose list it is: the owner of its steps' memory unless they say otherwise
} mu_steps;
void mu__steps_free(mu_steps *steps);

// Sends to one peer that may be under way at once; one more waits. Simulation counts them too.
enum { MU_SENDS_IN_FLIGHT = 8 };

// ---- Algorithms (algorithms.c, hosts.c) ---------------------------------------------------------

typedef enum mu_algorithm_needs {
    MU_NEEDS_WINDOW = 1 << 0,   // a window per rank; the message must fit into it
    MU_NEEDS_PEERS = 1 << 1,    // ranks of one host can address each other's DATA and INPUT, or a stage in their place
    MU_NEEDS_MESSAGES = 1 << 2, // every rank can send to every other; otherwise only the first of each host can
    MU_NEEDS_ONE_HOST = 1 << 3  // all ranks on one host
} mu_algorithm_needs;

typedef struct mu_algorithm {
    mu_collective_kind kind;
    const char *name;
    unsigned needs;  // mu_algorithm_needs
    bool rank_order; // elements are added in rank order, so bits do not depend on where ranks are
    // build appends the steps of problem->rank to `out`. Pure; fails only for want of memory.
    mu_status (*build)(const mu_problem *problem, mu_steps *out);
    const char *sentence; // what it does, for documents
} mu_algorithm;

const mu_algorithm *mu__algorithm(mu_collective_kind kind, const char *name); // NULL if there is none
const mu_algorithm *mu__algorithm_at(int i);                                  // NULL behind the last

// mu__algorithm_fits says whether the algorithm can run this problem with these means (MU_NEEDS_WINDOW, _PEERS,
// _MESSAGES).
bool mu__algorithm_fits(const mu_algorithm *algorithm, const mu_problem *problem, unsigned means);

// mu__algorithm_build makes the list of problem->rank. With `staged` other ranks' DATA and INPUT are not touched:
// what the algorithm does with them it does with the staging buffers, piece by piece (staging.c); both lists begin with
// RENDEZVOUS.
mu_status mu__algorithm_build(const mu_algorithm *algorithm, const mu_problem *problem, bool staged, mu_steps *out);
mu_status mu__build_staged(const mu_algorithm *algorithm, const mu_problem *problem, mu_steps *out);

// ---- Policy (policy.c) --------------------------------------------------------------------------

// Which algorithm for which size: "allreduce:0-16k:slots,16k-:direct;broadcast:tree". Sizes are bytes of
// one rank, with k, m or g; a range ends before its upper end; the first that holds counts.
typedef struct mu_policy_rule {
    int64_t low, high; // bytes; high is excluded
    const mu_algorithm *algorithm;
} mu_policy_rule;
enum { MU_MAX_RULES = 24 };
typedef struct mu_policy {
    int n;
    mu_policy_rule rules[MU_MAX_RULES];
} mu_policy;

// mu__policy_parse reads `text`. Errors: INVALID_ARGUMENT naming the part and what would be right.
mu_status mu__policy_parse(const char *text, mu_policy *out);

// mu__policy_select returns the policy's algorithm where it fits the means, else the best that does.
const mu_algorithm *mu__policy_select(const mu_policy *policy, const mu_problem *problem, unsigned means);

// mu__policy_of returns the policy text of an implementation for ranks on one host (CROWDED: more than it has cores),
// on hosts with one rank each, and on any others (static storage); with `in_rank_order` one whose sums do not depend on
// where ranks are.
// NCCL, which CPU devices cannot have, is the ring, with one warning in the log, or AUTO with `in_rank_order`.
// Errors (NULL with a record): INVALID_ARGUMENT for one whose order depends on where ranks are.
typedef enum mu_placing { MU_PLACED_TOGETHER, MU_PLACED_CROWDED, MU_PLACED_APART, MU_PLACED_MIXED } mu_placing;
const char *mu__policy_of(mu_communication communication, mu_placing placing, bool in_rank_order);

// mu__policy_check_order refuses a policy that does not always add in rank order.
mu_status mu__policy_check_order(const mu_policy *policy);

// ---- Transports (shm.c, interhost.c) -------------------------------------------------------------

// What a rank says about the operation that it enters. `same` must be equal on all ranks, byte by byte:
// it is zeroed before it is filled. Travels between hosts as it is.
enum { MU_SIGNATURE_NAME = 64 };
typedef struct mu_signature {
    struct {
        int64_t run, number; // identity, with the group
        int32_t kind, reduction, dtype, root;
        int64_t count;                // all-gather: a hash of all counts
        uint64_t form;                // hash of the shapes, whatever their ranks: the fast path compares 120 bytes
        char name[MU_SIGNATURE_NAME]; // longer ones end in ~ and a hash
    } same;
    int64_t count;                  // this rank's own
    uint64_t areas[MU_AREA_WINDOW]; // where its DATA and INPUT are, for the ranks of its host
    int32_t reached;                // whether they can address them there
    int32_t window;                 // bytes that it shows in its window
    mu_form form;                   // read only where the hashes differ, to say how
} mu_signature;

// mu__signature_can_be says whether one that came from another host could have been written by mu__write_signature, as
// far as what is read of it before it is compared.
bool mu__signature_can_be(const mu_signature *signature);

// Where the ranks of a group are, as one process sees it.
typedef struct mu_interhost mu_interhost;
typedef struct mu_work_queue mu_work_queue;
typedef struct mu_topology {
    int ranks;
    int first_local, n_local; // of this process
    int hosts, host;          // how many, and which one this is
    const int *first;         // [hosts + 1] the first rank of each host, then `ranks`; outlives the transport
    bool staged;              // some ranks cannot address each other's memory: staging buffers are needed
    // Zeroed memory that the processes of this host share, `bytes` long, of which mu__shm_bytes are the transport's.
    void *memory; // NULL: the ranks of this host are threads of one process
    size_t bytes;
    struct mu_segment *segment; // that it is in
    mu_interhost *interhost; // between the first ranks of the hosts; NULL: one host, or this is not the first process
} mu_topology;

// One rank's end of a transport. Used by one thread at a time.
typedef struct mu_channel {
    const struct mu_transport *transport;
    void *shared; // the group's state
    void *state;  // this rank's own
    int rank, ranks;
    bool crowded;      // more ranks than cores: waiting threads step aside at once
    uint32_t op_count; // collectives entered: which of the two windows and signatures
    double timeout;    // seconds that a wait may take
    int waiting_for;   // in a wait that sleeps, and after one that failed: the peer, or -1 for all who have not come
    // Called now and then while a wait sleeps; anything but MU_OK ends it. NULL: nothing to do.
    mu_status (*idle)(void *arg);
    void *idle_arg;
    const atomic_bool *calm; // while it is true waits neither spin nor yield, but sleep
} mu_channel;

// A transport is a row of functions; the group allocates, zeroes and frees the states. Waiting functions return
// MU_OK, MU_DEADLINE_EXCEEDED, MU_ABORTED or what the link said, and record nothing: the group makes the sentence.
typedef struct mu_transport {
    const char *name;
    size_t shared_bytes; // state of the group in this process, 64-byte aligned
    size_t rank_bytes;   // state of one rank, likewise
    // open makes what the shared state holds; close frees it, also after a failed open.
    mu_status (*open)(void *shared, const mu_topology *topology);
    void (*close)(void *shared);
    // signature is where rank `rank` writes its signature before RENDEZVOUS, and where the others read it after.
    mu_signature *(*signature)(const mu_channel *channel, int rank);
    // locate says where `data` is for the ranks of this host; false: they cannot address it.
    bool (*locate)(const mu_channel *channel, const void *data, size_t bytes, uint64_t *at);
    // announce sends ahead what rendezvous would begin with: signature and window are written. NULL: nothing is gained
    // by it.
    mu_status (*announce)(mu_channel *channel);
    // rendezvous returns when every rank has called it; what each wrote before into its signature and its window is
    // seen by all, what else it wrote by the ranks of its host. Blocks.
    mu_status (*rendezvous)(mu_channel *channel);
    // barrier is the same among the ranks of this host. Blocks.
    mu_status (*barrier)(mu_channel *channel);
    // area returns the memory of a rank of this host, or the window of any; between RENDEZVOUS and the next barrier.
    void *(*area)(const mu_channel *channel, int rank, mu_area area);
    // send starts sending; it blocks only while MU_SENDS_IN_FLIGHT to this peer are under way.
    mu_status (*send)(mu_channel *channel, int peer, const void *data, size_t bytes);
    // recv blocks until the next message of `peer` is in `data`. INTERNAL if it has another size.
    mu_status (*recv)(mu_channel *channel, int peer, void *data, size_t bytes);
    // flush blocks until no send needs its memory.
    mu_status (*flush)(mu_channel *channel);
    // has_come says whether `rank` has reached what this rank waits at, or sent what it waits for.
    bool (*has_come)(const mu_channel *channel, int rank);
    // work_queue is where the ranks of one host post what they have started; NULL: they are not on one. n_rendezvous
    // counts those that a rank has entered; reading the count acquires the rank's earlier writes.
    mu_work_queue *(*work_queue)(const mu_channel *channel);
    uint32_t (*n_rendezvous)(const mu_channel *channel, int rank);
    // enter and leave say that this rank may be touching the memory of others; is_inside asks about `rank`.
    bool (*enter)(mu_channel *channel); // false: it is inside already
    void (*leave)(mu_channel *channel);
    bool (*is_inside)(const mu_channel *channel, int rank);
    // abort makes every wait of every rank on this host, present and to come, fail with MU_ABORTED. Any thread.
    void (*abort)(void *shared, const mu_error_value *error);
    // aborted copies the error that another process of this host aborted with; false: none did.
    bool (*aborted)(void *shared, mu_error_value *out);
    // reset undoes abort and forgets messages under way; no rank may be inside.
    void (*reset)(void *shared);
    void (*reset_rank)(mu_channel *channel);
} mu_transport;

extern const mu_transport mu__transport_shm;       // ranks on one host: threads, or processes that share memory
extern const mu_transport mu__transport_interhost; // several hosts

// mu__shm_bytes is how many bytes the shared memory of this host takes.
size_t mu__shm_bytes(const mu_topology *topology);

// mu__interhost_new joins the first rank of host `seating->host` to those of the others by streams[host], which the
// transport then owns; NULL at its own place. NULL on error: they are the caller's.
mu_interhost *mu__interhost_new(const mu_topology *topology, mu_stream **streams);
void mu__interhost_free(mu_interhost *interhost); // NULL accepted

// ---- Waiting (barrier.c) ------------------------------------------------------------------------

// A wait in three stages: spin while an answer is near, yield while it may be, then sleep.
typedef struct mu_backoff {
    int64_t began_ns, deadline_ns;
    double timeout;
    unsigned turns;
    bool crowded;
    mu_status (*idle)(void *arg); // as in mu_channel
    void *idle_arg;
    const atomic_bool *calm;
} mu_backoff;
#define MU_BACKOFF(channel)                                                                                         \
    {                                                                                                               \
        .timeout = (channel)->timeout, .crowded = (channel)->crowded, .idle = (channel)->idle,                         \
            .idle_arg = (channel)->idle_arg,                                                                           \
        .calm = (channel)->calm                                                                                     \
    }

// mu__backoff_pause pauses or yields once; false: it is time to sleep. mu__backoff_check is asked before each sleep:
// DEADLINE_EXCEEDED when that has passed, or what `idle` says.
bool mu__backoff_pause(mu_backoff *backoff);
mu_status mu__backoff_check(const mu_backoff *backoff);

// A barrier for threads: one counter of arrivals that only grows. The last one wakes the sleepers.
typedef struct mu_barrier {
    _Alignas(64) atomic_uint arrivals;
    _Alignas(64) atomic_int sleepers;
    atomic_bool failed;
    atomic_bool between_processes; // it lies in memory that they share
} mu_barrier;

// mu__barrier_wait enters for the `*epoch`-th time (counted by the caller, from 0) of `ranks`. Returns MU_OK,
// MU_DEADLINE_EXCEEDED or MU_ABORTED.
mu_status mu__barrier_wait(mu_barrier *barrier, uint32_t *epoch, int ranks, mu_backoff backoff);
void mu__barrier_abort(mu_barrier *barrier);

// An eventcount: waiters sleep until a condition holds; whoever changes it notifies them, and they look again.
typedef struct mu_eventcount {
    _Alignas(64) atomic_uint notified;
    atomic_int sleepers;
    atomic_bool between_processes;
} mu_eventcount;
void mu__eventcount_notify(mu_eventcount *changes);
mu_status mu__eventcount_wait(mu_eventcount *changes, bool (*so)(const void *arg), const void *arg, mu_backoff backoff);

// ---- The work queue (work_queue.c) -------------------------------------------------------------------

// Where the ranks of one host post what they have started: in the shared memory, zeroed. Whoever comes to wait for an
// operation that all have posted takes slices of it, until none is left.
enum { MU_MAX_REQUESTS = 16 };
typedef struct mu_work_item {
    _Alignas(64) atomic_uint posted; // by ranks, ever
    atomic_uint ended;               // by ranks, ever
    atomic_uint ready;               // times that all had posted
    atomic_uint next, done;          // slices: taken, and written
    atomic_llong end_ns;
} mu_work_item;
typedef struct mu_work_post {
    _Alignas(64) mu_signature signature;
    atomic_uint came; // 1 + number of the operation that it is of
} mu_work_post;
struct mu_work_queue {
    mu_eventcount changes;
    mu_work_item places[MU_MAX_REQUESTS];
    mu_work_post entries[]; // [MU_MAX_REQUESTS][ranks]
};

// ---- Running lists (schedule.c) -----------------------------------------------------------------

// What a list runs on.
typedef struct mu_schedule {
    mu_dtype dtype;
    mu_reduction reduction;
    bool stream;                        // results are larger than the caches
    void *areas[MU_N_AREAS];            // this rank's own; WINDOW is the transport's
    void **pointers;                    // room for 2 * ranks + 1
    mu_status (*rendezvous)(void *arg); // called when the ranks have met: compares signatures. NULL: nothing to compare
    void *arg;
} mu_schedule;

// mu__schedule_run carries out one rank's steps on its channel. Returns what the transport or `rendezvous` returned;
// `at` (may be NULL) is the step to begin with, and gets the one that failed, or how many there are.
mu_status mu__schedule_run(const mu_steps *steps, mu_channel *channel, const mu_schedule *schedule, size_t *at);

// What the lists of all ranks cost together.
typedef struct mu_cost {
    int64_t steps;     // of the longest list
    int64_t messages;  // sent by all ranks together
    int64_t max_bytes; // sent by the rank that sends most
    int64_t rounds;    // messages and barriers on the longest chain
} mu_cost;

// mu__schedule_simulate carries out the lists of all ranks in this thread, in an order drawn from `seed`;
// schedules[r].areas holds rank r's memory, WINDOW and STAGE included. Messages are read as late as possible.
// Errors: INTERNAL for a deadlock, a message of the wrong size or one that nobody receives; the
// message names rank and step.
mu_status mu__schedule_simulate(const mu_steps *lists, const mu_problem *problem, const mu_schedule *schedules,
                                uint64_t seed, mu_cost *cost);

// ---- Groups (group.c, join.c) -------------------------------------------------------------------

// A group of ranks that run the same collectives: threads of this process, or of each process of a mesh.
typedef struct mu_group mu_group;

// mu__group_new makes a group of n threads; NULL on error. Owned by the caller (mu_release); no rank may be inside
// a collective when it goes.
mu_group *mu__group_new(int n, const char *name);

// mu__group_join makes a group of n_local threads of each process of the mesh: rank = process * n_local + local.
// Every process calls it with the same name; NULL on error. Processes of one host share memory, others talk through
// streams of the mesh. Keeps: the mesh. Blocks. Errors: INVALID_ARGUMENT where numbers or options differ, on all,
// naming two that do; UNIMPLEMENTED for an implementation that CPU devices cannot have.
mu_group *mu__group_join(mu_mesh *mesh, int n_local, const char *name, const mu_communication_options *options);

// mu__group_member returns the communicator of a local rank, borrowed from the group. One thread at a time uses it.
mu_collective *mu__group_member(mu_group *group, int local);

// mu__collective_begin tells a rank the number of the run that its next collectives belong to.
void mu__collective_begin(mu_collective *self, int64_t run);

// mu__collective_barrier waits for all ranks. mu__collective_all_to_all gives block r of `in` to rank r, and
// gets rank r's block at place r of `out`; mu__collective_reduce_scatter reduces the blocks number r of all ranks for
// rank r. `count` is of one block.
mu_status mu__collective_barrier(mu_collective *self, int64_t number, const char *name);
mu_status mu__collective_all_to_all(mu_collective *self, int64_t number, const char *name, mu_dtype dtype,
                                    const void *in, void *out, int64_t count);
mu_status mu__collective_reduce_scatter(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                        mu_dtype dtype, const void *in, void *out, int64_t count);

// mu__group_serve carries out what the ranks have asked for on a network that only its opener may touch; who opened it
// calls this while it waits for them. mu__group_needs_service says whether that is so.
void mu__group_serve(mu_group *group);
bool mu__group_needs_service(const mu_group *group);

// mu__group_set_timeout sets how long one wait may take (new: MUSTER_TIMEOUT). mu__group_set_policy sets the
// algorithms, text as mu__policy_parse has it; the same in all processes. Both while no rank is inside.
void mu__group_set_timeout(mu_group *group, double seconds);
mu_status mu__group_set_policy(mu_group *group, const char *policy);

// mu__group_price writes what `deterministic` costs this group, the rest of a sentence.
enum { MU_PRICE_BYTES = 240 };
const char *mu__group_price(const mu_group *group, char text[MU_PRICE_BYTES]);

// mu__group_path says how ranks are connected: "threads", "shared memory", "tcp", "mpi" or "ucx" (static storage).
const char *mu__group_path(const mu_group *group);

// mu__group_abort makes every pending and later collective of the group fail at once with `error`, in all processes;
// the first one wins. Threads: any. mu__group_reset makes the group work again. Errors: FAILED_PRECONDITION while a
// rank is inside a collective, and always for a group of several processes: their job has failed.
void mu__group_abort(mu_group *group, const mu_error_value *error);
mu_status mu__group_reset(mu_group *group);

// mu__group_failed copies the error that the group fails with; false: it works.
bool mu__group_failed(mu_group *group, mu_error_value *out);

// What mu__group_join has found out. mu__group_open makes a group of it, which owns the inter-host transport, segment,
// mesh, network and `first` from then on, also on failure.
typedef struct mu_joining {
    mu_topology topology;
    const mu_transport *transport;
    int *first;          // seating.first
    mu_mesh *mesh;       // NULL: threads
    mu_network *network; // of the streams between hosts; NULL: the mesh's own
    bool crowded;        // more ranks on this host than cores
    const char *policy;
    double timeout;
} mu_joining;
mu_group *mu__group_open(const char *name, mu_joining *joining);

// ---- Shared memory between processes (shm_segment.c) --------------------------------------------

// A segment is anonymous memory that several processes map: `bytes` for all, zeroed, then a heap for each of n places.
// Nothing of it is left when the last process has gone, however it went.
typedef struct mu_segment mu_segment;
enum { MU_SEGMENT_ADDRESS = 64 }; // bytes of the text by which another process finds it

// mu__segment_new makes one; its address is written to `address`. mu__segment_find maps another process's of the same
// measures. Owned by the caller (mu_release); NULL on error. Errors: RESOURCE_EXHAUSTED where memory is short;
// PERMISSION_DENIED, NOT_FOUND where the other process's cannot be opened.
mu_segment *mu__segment_new(size_t bytes, int n, char address[MU_SEGMENT_ADDRESS]);
mu_segment *mu__segment_find(const char *address, size_t bytes, int n);
void *mu__segment_memory(const mu_segment *segment, size_t *bytes); // all of it

// mu__segment_take takes memory of a place's heap; one process per place. NULL: none is left, with no record but of
// a lack of ordinary memory.
mu_shared_memory *mu__segment_take(mu_segment *segment, int place, size_t bytes);

#endif
