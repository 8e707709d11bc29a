// What the files of a group share: its members and their state, and the sentences about them (sentences.c).
//
// Knows nothing of algorithms and transports but their interfaces.
#ifndef MU_SRC_COMM_GROUP_H
#define MU_SRC_COMM_GROUP_H

#include "comm/comm.h"

#include <pthread.h>

enum { MU_MAX_RANKS = 256, MU_CACHED_LISTS = 32, MU_TEXT_BYTES = 256 };

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
    mu_port port;
    int64_t run;
    cached_list lists[MU_CACHED_LISTS];
    void *scratch;
    size_t scratch_bytes;
    void **pointers;      // [2 * ranks + 1]
    int64_t *counts;      // [ranks], of the all-gather in progress
    mu_lateness lateness; // of the wait in progress
    bool waits;           // it is long enough that lateness counts, and that peers know what this rank waits for
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

mu_ticket *mu__ticket_of(const member *m, int rank);
int mu__n_local(const mu_group *group);

// mu__ticket_text writes "all_reduce \"dense_2/kernel\" (run 4, op 12, 2 elements of float32, sum)".
const char *mu__ticket_text(const mu_ticket *ticket, char text[MU_TEXT_BYTES]);

// mu__complain_mismatch records how this rank and rank 0 differ.
mu_status mu__complain_mismatch(const member *m, int rank);

// mu__missing_text writes which ranks a wait waits for; mu__process_is_late is for mu__mesh_late, `arg` the member.
const char *mu__missing_text(const member *m, char text[MU_TEXT_BYTES]);
bool mu__process_is_late(const void *arg, int process);

#endif
