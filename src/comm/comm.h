// Collectives as data: an algorithm is a list of steps for one rank, a transport carries the steps out.
//
// A builder (algorithms.c) is pure: a problem in, a list out. schedule.c runs a list on a transport, or
// the lists of all ranks at once in one thread, where deadlocks and wrong sums show without a network.
// group.c gives each rank its mu_collective and makes sure that all ranks mean the same operation.
// Knows nothing of graphs, strategies and devices.
#ifndef MU_SRC_COMM_H
#define MU_SRC_COMM_H

#include "ops/op.h"

#include <muster/comm.h>

// ---- Reduction of memory (reduce.c) -------------------------------------------------------------

typedef struct mu_reduce_args {
    mu_dtype dtype;
    mu_reduction reduction;
    int divide;  // a mean that this step finishes: by how many; 1: not here
    bool stream; // stores go past the caches
    int n_dst, n_src;
    void *const *dst;       // each gets the result; may be one of the sources
    const void *const *src; // combined in this order
    int64_t count;          // elements
} mu_reduce_args;

// mu__reduce combines sources element by element, in their order, and writes the result to all
// destinations. f16 and bf16 are added in f32 and rounded once; integers wrap; NaN wins min and max.
void mu__reduce(const mu_reduce_args *args);

// Element types that can be reduced: every number, no bool.
bool mu__reduce_supports(mu_dtype dtype);

// ---- Problems and steps -------------------------------------------------------------------------

typedef enum mu_collective_kind {
    MU_KIND_ALL_REDUCE,
    MU_KIND_ALL_GATHER,
    MU_KIND_BROADCAST,
    MU_KIND_ALL_TO_ALL,
    MU_KIND_BARRIER,
    MU_N_KINDS
} mu_collective_kind;
const char *mu__kind_name(mu_collective_kind kind); // "all_reduce"

// What a builder is asked, for one rank. Counts are in elements.
typedef struct mu_problem {
    mu_collective_kind kind;
    int rank, ranks;
    int root;              // broadcast
    int64_t count;         // of DATA; all-gather: of this rank's INPUT; all-to-all: of one block
    size_t element;        // bytes of one
    const int64_t *counts; // all-gather: of every rank
    int per_host;          // ranks are numbered host by host, so many on each; 0: not known
} mu_problem;

// The memory that a rank's steps name. The window is a piece of the transport's own that every rank can
// address, one of two in turn, so that one barrier per collective is enough.
typedef enum mu_area { MU_AREA_DATA, MU_AREA_INPUT, MU_AREA_WINDOW, MU_AREA_SCRATCH, MU_N_AREAS } mu_area;
#define MU_WINDOW_BYTES ((size_t)16384)

// Steps of one rank run in order. Only SEND goes on behind the next steps: its memory must stay as it is
// until the receiver has it, which FLUSH waits for; the end of a list flushes too.
typedef enum mu_step_kind {
    MU_STEP_MEET, // barrier at which the ranks compare what they were asked to do; once in each list
    MU_STEP_BARRIER,
    MU_STEP_SEND,   // from[from_at, +count] to `peer`; messages of a pair arrive in order
    MU_STEP_RECV,   // to[to_at, +count] from `peer`
    MU_STEP_FLUSH,  // every SEND so far has left its memory
    MU_STEP_COPY,   // to[to_at] = from[from_at] of `peer`'s memory (often the rank itself)
    MU_STEP_REDUCE, // to[to_at] = parts combined: number `place` is to[to_at], the others follow each other in `from`
    MU_STEP_REDUCE_ALL // from[from_at] of all ranks, in rank order, into to[to_at] here, or with `push` of all ranks
} mu_step_kind;
const char *mu__step_name(mu_step_kind kind); // "send"

typedef struct mu_step {
    mu_step_kind kind;
    int peer;
    mu_area from, to;
    int64_t from_at, to_at, count; // elements
    int parts, place;              // REDUCE
    bool push;                     // REDUCE_ALL
    bool last;                     // REDUCE, REDUCE_ALL: nothing is added after it; a mean divides here
} mu_step;

typedef struct mu_steps {
    mu_step *items;
    size_t n, capacity;
    int64_t scratch; // elements of SCRATCH that the list uses
} mu_steps;
void mu__steps_free(mu_steps *steps);

// Sends to one peer that may be under way at once; one more waits. Simulation counts them too.
enum { MU_SENDS_IN_FLIGHT = 8 };

// ---- Algorithms (algorithms.c) ------------------------------------------------------------------

typedef enum mu_algorithm_needs {
    MU_NEEDS_WINDOW = 1 << 0, // a window per rank; the message must fit into it
    MU_NEEDS_PEERS = 1 << 1,  // every rank's DATA and INPUT can be addressed by all
    MU_NEEDS_HOSTS = 1 << 2   // problem.per_host
} mu_algorithm_needs;

typedef struct mu_algorithm {
    mu_collective_kind kind;
    const char *name;
    unsigned needs; // mu_algorithm_needs
    // build appends the steps of problem->rank to `out`. Pure; fails only for want of memory.
    mu_status (*build)(const mu_problem *problem, mu_steps *out);
    const char *sentence; // what it does, for documents
} mu_algorithm;

const mu_algorithm *mu__algorithm(mu_collective_kind kind, const char *name); // NULL if there is none
const mu_algorithm *mu__algorithm_at(int i);                                  // NULL behind the last

// mu__algorithm_fits says whether the algorithm can run this problem with these means.
bool mu__algorithm_fits(const mu_algorithm *algorithm, const mu_problem *problem, unsigned means);

// ---- Policy (select.c) --------------------------------------------------------------------------

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

// mu__policy_of returns the policy text of an implementation for threads of one process (static storage).
// Errors (NULL with a record): UNIMPLEMENTED for one that they cannot have.
const char *mu__policy_of(mu_communication communication);

// ---- Transports (threads.c) ---------------------------------------------------------------------

// What a rank says about the operation that it enters. `same` must be equal on all ranks, byte by byte:
// it is zeroed before it is filled.
enum { MU_TICKET_NAME = 64 };
typedef struct mu_ticket {
    struct {
        int64_t run, number; // identity, with the group
        int32_t kind, reduction, dtype, root;
        int64_t count;             // 0 where ranks may differ
        char name[MU_TICKET_NAME]; // cut if longer
    } same;
    int64_t count;               // this rank's own
    void *areas[MU_AREA_WINDOW]; // its DATA and INPUT, for transports that can address them
} mu_ticket;

// One rank's end of a transport. Used by one thread at a time.
typedef struct mu_port {
    const struct mu_transport *transport;
    void *shared; // the group's state
    void *state;  // this rank's own
    int rank, ranks;
    bool crowded;    // more ranks than cores: waiting threads step aside at once
    uint32_t turn;   // collectives entered: which of the two windows and tickets
    double timeout;  // seconds that a wait may take
    int waiting_for; // after a failed wait: the peer, or -1 for everyone
} mu_port;

// A transport is a row of functions; the group allocates, zeroes and frees the states. Waiting functions
// return MU_OK, MU_DEADLINE_EXCEEDED or MU_ABORTED and record nothing: the group makes the sentence.
typedef struct mu_transport {
    const char *name;
    size_t shared_bytes; // state of the group in this process, 64-byte aligned
    size_t rank_bytes;   // state of one rank, likewise
    unsigned means;      // MU_NEEDS_WINDOW and MU_NEEDS_PEERS that it has
    // open makes what the shared state holds for `ranks`; close frees it, also after a failed open.
    mu_status (*open)(void *shared, int ranks);
    void (*close)(void *shared);
    // ticket is where rank `rank` writes its ticket before MEET, and where the others read it after.
    mu_ticket *(*ticket)(const mu_port *port, int rank);
    // barrier returns when every rank has called it, and what each wrote before is seen by all. Blocks.
    mu_status (*barrier)(mu_port *port);
    // area returns another rank's memory; only for what `means` lists; between MEET and the next barrier.
    void *(*area)(const mu_port *port, int rank, mu_area area);
    // send starts sending; it blocks only while MU_SENDS_IN_FLIGHT to this peer are under way.
    mu_status (*send)(mu_port *port, int peer, const void *data, size_t bytes);
    // recv blocks until the next message of `peer` is in `data`. INTERNAL if it has another size.
    mu_status (*recv)(mu_port *port, int peer, void *data, size_t bytes);
    // flush blocks until no send needs its memory.
    mu_status (*flush)(mu_port *port);
    // has_come says whether `rank` has reached the barrier that this rank waits at, for messages.
    bool (*has_come)(const mu_port *port, int rank);
    // abort makes every wait of every rank, present and to come, fail with MU_ABORTED. Any thread.
    void (*abort)(void *shared);
    // reset undoes abort and forgets messages under way; no rank may be inside.
    void (*reset)(void *shared);
    void (*reset_rank)(mu_port *port);
} mu_transport;

extern const mu_transport mu__transport_threads;

// ---- Waiting (barrier.c) ------------------------------------------------------------------------

// A wait in three stages: spin while an answer is near, yield while it may be, then sleep.
typedef struct mu_patience {
    int64_t began_ns, deadline_ns;
    double timeout;
    unsigned turns;
    bool crowded;
} mu_patience;
#define MU_PATIENCE(port)                                      \
    {                                                          \
        .timeout = (port)->timeout, .crowded = (port)->crowded \
    }

// mu__patience_turn pauses or yields once; false: it is time to sleep. mu__patience_over: the deadline passed.
bool mu__patience_turn(mu_patience *patience);
bool mu__patience_over(const mu_patience *patience);

// A barrier for threads: one counter of arrivals that only grows. The last one wakes the sleepers.
typedef struct mu_barrier {
    _Alignas(64) atomic_uint arrivals;
    _Alignas(64) atomic_int sleepers;
    atomic_bool failed;
} mu_barrier;

// mu__barrier_wait enters for the `*epoch`-th time (counted by the caller, from 0) of `ranks`. Returns MU_OK,
// MU_DEADLINE_EXCEEDED or MU_ABORTED.
mu_status mu__barrier_wait(mu_barrier *barrier, uint32_t *epoch, int ranks, mu_patience patience);
void mu__barrier_abort(mu_barrier *barrier);

// ---- Running lists (schedule.c) -----------------------------------------------------------------

// What a list runs on.
typedef struct mu_schedule {
    mu_dtype dtype;
    mu_reduction reduction;
    bool stream;                  // results are larger than the caches
    void *areas[MU_N_AREAS];      // this rank's own; WINDOW is the transport's
    void **pointers;              // room for 2 * ranks
    mu_status (*meet)(void *arg); // called when the ranks have met: compares tickets. NULL: nothing to compare
    void *arg;
} mu_schedule;

// mu__schedule_run carries out one rank's steps on its port. Returns what the transport or `meet` returned;
// `at` (may be NULL) is the step that failed.
mu_status mu__schedule_run(const mu_steps *steps, mu_port *port, const mu_schedule *schedule, size_t *at);

// What the lists of all ranks cost together.
typedef struct mu_cost {
    int64_t steps;     // of the longest list
    int64_t messages;  // sent by all ranks together
    int64_t max_bytes; // sent by the rank that sends most
    int64_t rounds;    // messages and barriers on the longest chain
} mu_cost;

// mu__schedule_simulate carries out the lists of all ranks in this thread, in an order drawn from `seed`;
// schedules[r].areas holds rank r's memory, WINDOW included. Messages are read as late as possible.
// Errors: INTERNAL for a deadlock, a message of the wrong size or one that nobody receives; the
// message names rank and step.
mu_status mu__schedule_simulate(const mu_steps *lists, int ranks, const mu_schedule *schedules, size_t element,
                                uint64_t seed, mu_cost *cost);

// ---- Groups (group.c) ---------------------------------------------------------------------------

// A group of ranks that run the same collectives. Here: threads of this process.
typedef struct mu_group mu_group;

// mu__group_new makes a group of n; NULL on error. Owned by the caller (mu_release); no rank may be inside
// a collective when it goes.
mu_group *mu__group_new(int n, const char *name);

// mu__group_member returns rank's communicator, borrowed from the group. One thread at a time uses it.
mu_collective *mu__group_member(mu_group *group, int rank);

// mu__collective_begin tells a rank the number of the run that its next collectives belong to.
void mu__collective_begin(mu_collective *self, int64_t run);

// mu__collective_barrier waits for all ranks. mu__collective_all_to_all gives block r of `in` to rank r, and
// gets rank r's block at place r of `out`; `count` is of one block.
mu_status mu__collective_barrier(mu_collective *self, int64_t number, const char *name);
mu_status mu__collective_all_to_all(mu_collective *self, int64_t number, const char *name, mu_dtype dtype,
                                    const void *in, void *out, int64_t count);

// mu__group_set_timeout sets how long one wait may take (new: MUSTER_TIMEOUT). mu__group_set_policy sets the
// algorithms, text as mu__policy_parse has it. Both while no rank is inside.
void mu__group_set_timeout(mu_group *group, double seconds);
mu_status mu__group_set_policy(mu_group *group, const char *policy);

// mu__group_abort makes every pending and later collective of the group fail at once with `error`; the first
// one wins. Threads: any. mu__group_reset makes the group work again. Errors: FAILED_PRECONDITION while a rank
// is inside a collective.
void mu__group_abort(mu_group *group, const mu_error_value *error);
mu_status mu__group_reset(mu_group *group);

// mu__group_failed copies the error that the group fails with; false: it works.
bool mu__group_failed(mu_group *group, mu_error_value *out);

#endif
