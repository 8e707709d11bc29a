// Declarations that the source files of a group share: members, their state, and messages about them (diagnostics.c).
//
// Uses algorithms and transports only through their interfaces.
#ifndef MU_SRC_COMM_GROUP_H
#define MU_SRC_COMM_GROUP_H

#include "comm/comm.h"

#include <pthread.h>
#include <sched.h>

enum { MU_MAX_RANKS = 256, MU_CACHED_LISTS = 32, MU_TEXT_BYTES = 384 };

// A call of a collective on one rank.
typedef struct mu_collective_call {
    mu_collective_kind kind;
    int64_t number;
    const char *name;
    mu_reduction reduction;
    mu_dtype dtype;
    int root;
    int64_t count;
    const int64_t *counts; // of an all-gather; the sources of a permute
    void *data;
    const void *input;
    const mu_form *form; // NULL: the caller gave no shapes
} mu_collective_call;

// A nonblocking operation (nonblocking.c). Each member's requests are a ring: request s is at index s modulo its
// length.
typedef enum request_mode {
    REQUEST_QUEUE,      // the ranks of this host run it when they wait for it
    REQUEST_BACKGROUND, // a background thread of this rank runs it
    REQUEST_DONE        // it was completed by the call that started it
} request_mode;
typedef struct request {
    struct member *member;
    mu_collective_call call;
    mu_form form; // copy of the call's form
    request_mode way;
    int64_t begin_ns, end_ns;        // set if a timeline is recorded
    uint32_t n_rendezvous, op_count; // REQUEST_QUEUE: this rank's counts when it started the operation
    mu_latch done;                   // REQUEST_BACKGROUND
    mu_error_value error;
} request;

// What a process sends when it joins a group (join.c). mu__card_clean validates a received card and terminates its
// text; false: no member of a group of `processes` would send this card.
enum { MU_ISA_BYTES = 16 };
typedef struct mu_card {
    int32_t n_local;
    int32_t leader; // the first process of its host
    int32_t implementation, deterministic, shares;
    uint32_t policy; // hash of its text
    char isa[MU_ISA_BYTES];
    cpu_set_t cpus; // the CPUs on which it may run
} mu_card;
bool mu__card_clean(mu_card *card, int processes);

// Cache key of a list of steps; the rank and the policy are fixed.
typedef struct list_key {
    int32_t kind, root, staged, unused;
    int64_t count;
    uint64_t counts_hash, element;
} list_key;

typedef struct cached_list {
    list_key key;
    mu_steps steps;
} cached_list;

typedef struct member {
    mu_collective collective; // must be first
    mu_group *group;
    mu_channel channel;
    mu_form form; // shapes of the next operation
    int64_t run;
    cached_list lists[MU_CACHED_LISTS];
    void *scratch;
    size_t scratch_bytes;
    void **pointers;      // [2 * ranks + 1]
    int64_t *counts;      // [ranks], of the all-gather in progress, or the sources of the permute
    mu_lateness lateness; // of the wait in progress
    bool waits;           // the wait is long: it is reported as late, and peers are told what this rank waits for
    request *queue;       // [MU_MAX_REQUESTS]; NULL: no operation started yet
    int64_t n_started, n_ended;
    int64_t awaited; // 1 + number of the work queue operation that messages describe; 0: none
    mu_worker *background;
    atomic_bool calm; // the wait in progress is not urgent: it leaves the cores to computing threads
} member;

struct mu_group {
    mu_object object;
    mu_joining joined;
    char *name;
    const mu_transport *transport;
    void *shared;
    char *states;
    member *members; // [n_local]
    unsigned means;
    mu_policy policy;
    int64_t stream_bytes; // results bypass the caches when the data of all ranks together has at least this size
    pthread_mutex_t lock;
    atomic_bool failed;
    mu_error_value error; // protected by `lock`
};

// mu__group_inside calls `work` between the transport's enter and leave; after a failure it returns once all ranks have
// left.
typedef mu_status mu_work(member *m, const mu_collective_call *c);
mu_status mu__group_inside(member *m, const mu_collective_call *c, mu_work *work);

// mu__run_collective_call runs a collective by messages and barriers. mu__write_signature writes this rank's signature;
// mu__agree compares the signatures of all ranks.
mu_status mu__run_collective_call(member *m, const mu_collective_call *c);
void mu__write_signature(member *m, const mu_collective_call *c, int64_t window);
mu_status mu__agree(member *m, const mu_collective_call *c);
const mu_algorithm *mu__algorithm_for(const member *m, const mu_collective_call *c);

// mu__fail_wait fails the group with the message for a wait that returned `status` without a record.
// mu__raise_group_error raises the error with which the group failed; mu__fail_group fails the group with this thread's
// recorded error.
mu_status mu__fail_wait(member *m, mu_status status);
mu_status mu__raise_group_error(mu_group *group);
mu_status mu__fail_group(mu_group *group);
mu_status mu__member_idle(void *arg); // mu_channel.idle of a group of several processes

// rank_calls.c: slots of mu_collective.
mu_status mu__member_all_reduce(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                mu_dtype dtype, void *data, int64_t count);
mu_status mu__member_all_gather(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                                int64_t count, void *out, const int64_t *counts);
mu_status mu__member_broadcast(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, void *data,
                               int64_t count, int root);

// nonblocking.c: slots of mu_collective. mu__requests_settle returns when the rank's background thread is idle.
mu_status mu__member_start(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                           mu_dtype dtype, void *data, int64_t count, bool soon, int64_t *number_started);
mu_status mu__member_wait(mu_collective *self, int64_t number_started);
void mu__member_abandon(mu_collective *self);
void mu__requests_settle(member *m);
void mu__requests_free(member *m);

// work_queue.c: operations of which any waiting rank of the host can reduce slices.
bool mu__work_fits(const member *m, const mu_collective_call *c);
mu_status mu__work_post(member *m, request *s, int64_t number);
mu_status mu__work_end(member *m, request *s, int64_t number);
mu_signature *mu__work_signature(const member *m, int rank);
bool mu__work_has_come(const member *m, int rank);

mu_signature *mu__signature_of(const member *m, int rank);
int mu__n_local(const mu_group *group);

// mu__signature_text writes "all_reduce \"dense_2/kernel\" (run 4, op 12, float32[3, 4], sum)", or "2 elements of
// float32" if the caller gave no shape. The signature may come from another host.
const char *mu__signature_text(const mu_signature *signature, char text[MU_TEXT_BYTES]);

// mu__rank_text writes "rank 3"; in a group of several processes "rank 3 of /job:worker/task:1".
enum { MU_RANK_BYTES = 96 };
const char *mu__rank_text(const mu_group *group, int rank, char text[MU_RANK_BYTES]);

// mu__complain_mismatch records how this rank and rank 0 differ; mu__complain_passed that `rank` entered `theirs` and
// never started the operation that this rank waits for.
mu_status mu__complain_mismatch(const member *m, int rank);
mu_status mu__complain_passed(const member *m, int rank, const mu_signature *theirs);

// mu__complain_of_peer records why a wait in `what` ended with `status`: the connection to a peer was closed, or the
// data received is not valid.
void mu__complain_of_peer(const member *m, mu_status status, const char *what);

// mu__missing_text writes which ranks a wait is waiting for; mu__process_is_late is a mu_is_late for mu__mesh_late,
// with the member as `arg`.
const char *mu__missing_text(const member *m, char text[MU_TEXT_BYTES]);
bool mu__process_is_late(const void *arg, int process);

#endif
