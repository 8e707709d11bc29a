// What the files of a group share: its members and their state, and the sentences about them (diagnostics.c).
//
// Knows nothing of algorithms and transports but their interfaces.
#ifndef MU_SRC_COMM_GROUP_H
#define MU_SRC_COMM_GROUP_H

#include "comm/comm.h"

#include <pthread.h>
#include <sched.h>

enum { MU_MAX_RANKS = 256, MU_CACHED_LISTS = 32, MU_TEXT_BYTES = 384 };

// What a rank is asked to do.
typedef struct mu_collective_call {
    mu_collective_kind kind;
    int64_t number;
    const char *name;
    mu_reduction reduction;
    mu_dtype dtype;
    int root;
    int64_t count;
    const int64_t *counts;
    void *data;
    const void *input;
    const mu_form *form; // NULL: nothing was said of shapes
} mu_collective_call;

// An operation that was started and not waited for (nonblocking.c). The queue is a ring: number s stands at s modulo
// its length.
typedef enum request_mode {
    REQUEST_QUEUE,      // the ranks of this host do it as they come to wait for it
    REQUEST_BACKGROUND, // a thread of this rank's does it
    REQUEST_DONE        // it was done at once
} request_mode;
typedef struct request {
    struct member *member;
    mu_collective_call call;
    mu_form form; // the call's
    request_mode way;
    int64_t begin_ns, end_ns;        // with a timeline
    uint32_t n_rendezvous, op_count; // board: of this rank, when it started
    mu_latch done;                   // background
    mu_error_value error;
} request;

// What a process tells of itself when it joins a group (join.c); mu__card_clean looks at one that has come and ends its
// text: false for what none of `processes` would say.
enum { MU_ISA_BYTES = 16 };
typedef struct mu_card {
    int32_t n_local;
    int32_t leader; // the first process of its host
    int32_t implementation, deterministic, shares;
    uint32_t policy; // hash of its text
    char isa[MU_ISA_BYTES];
    cpu_set_t cpus; // on which it may run
} mu_card;
bool mu__card_clean(mu_card *card, int processes);

// What a list depends on, besides rank and policy.
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
    mu_collective collective; // first
    mu_group *group;
    mu_channel channel;
    mu_form form; // what the next operation is of
    int64_t run;
    cached_list lists[MU_CACHED_LISTS];
    void *scratch;
    size_t scratch_bytes;
    void **pointers;      // [2 * ranks + 1]
    int64_t *counts;      // [ranks], of the all-gather in progress
    mu_lateness lateness; // of the wait in progress
    bool waits;           // it is long enough that lateness counts, and that peers know what this rank waits for
    request *queue;       // [MU_MAX_REQUESTS]; NULL: nothing was started yet
    int64_t n_started, n_ended;
    int64_t awaited;      // 1 + number of the started operation in the work queue that this rank speaks of; 0: none
    mu_worker *background;
    atomic_bool calm;     // the wait in progress is not urgent: its thread leaves the cores to those who compute
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
    int64_t stream_bytes; // from here on, all ranks' data together, results bypass the caches
    pthread_mutex_t lock;
    atomic_bool failed;
    mu_error_value error; // behind `lock`
};

// mu__group_inside does `work` as one that may touch the others' memory; after a failure it returns when they are out.
typedef mu_status mu_work(member *m, const mu_collective_call *c);
mu_status mu__group_inside(member *m, const mu_collective_call *c, mu_work *work);

// Ways of working: by messages and barriers. And parts of it: the signature is written, all signatures are compared.
mu_status mu__run_collective_call(member *m, const mu_collective_call *c);
void mu__write_signature(member *m, const mu_collective_call *c, int64_t window);
mu_status mu__agree(member *m, const mu_collective_call *c);
const mu_algorithm *mu__algorithm_for(const member *m, const mu_collective_call *c);

// What a wait that ended with `status` and no record says; the group has failed then. mu__raise_group_error raises
// what it failed with; mu__fail_group makes this thread's record that.
mu_status mu__fail_wait(member *m, mu_status status);
mu_status mu__raise_group_error(mu_group *group);
mu_status mu__fail_group(mu_group *group);
mu_status mu__member_idle(void *arg); // mu_channel.idle of a group of several processes

// nonblocking.c: the slots of a mu_collective; mu__requests_settle returns when no thread of the rank's own works for
// it.
mu_status mu__member_start(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                           mu_dtype dtype, void *data, int64_t count, bool soon, int64_t *number_started);
mu_status mu__member_wait(mu_collective *self, int64_t number_started);
void mu__member_abandon(mu_collective *self);
void mu__requests_settle(member *m);
void mu__requests_free(member *m);

// work_queue.c: operations that the ranks of one host do together, whoever has time.
bool mu__work_fits(const member *m, const mu_collective_call *c);
mu_status mu__work_post(member *m, request *s, int64_t number);
mu_status mu__work_end(member *m, request *s, int64_t number);
mu_signature *mu__work_signature(const member *m, int rank);
bool mu__work_has_come(const member *m, int rank);

mu_signature *mu__signature_of(const member *m, int rank);
int mu__n_local(const mu_group *group);

// mu__signature_text writes "all_reduce \"dense_2/kernel\" (run 4, op 12, float32[3, 4], sum)", or "2 elements of
// float32" where the shape was not said. The signature may be of another host.
const char *mu__signature_text(const mu_signature *signature, char text[MU_TEXT_BYTES]);

// mu__rank_text writes "rank 3", in a group of several processes "rank 3 of /job:worker/task:1".
enum { MU_RANK_BYTES = 96 };
const char *mu__rank_text(const mu_group *group, int rank, char text[MU_RANK_BYTES]);

// mu__complain_mismatch records how this rank and rank 0 differ; mu__complain_passed that `rank` is in `theirs` and
// never started what this rank waits for.
mu_status mu__complain_mismatch(const member *m, int rank);
mu_status mu__complain_passed(const member *m, int rank, const mu_signature *theirs);

// mu__complain_of_peer records why a wait in `what` ended with `status`: the connection to a peer has ended, or what
// came from it cannot be.
void mu__complain_of_peer(const member *m, mu_status status, const char *what);

// mu__missing_text writes which ranks a wait waits for; mu__process_is_late is for mu__mesh_late, `arg` the member.
const char *mu__missing_text(const member *m, char text[MU_TEXT_BYTES]);
bool mu__process_is_late(const void *arg, int process);

#endif
