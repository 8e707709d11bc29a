// Layout of the memory that the ranks of one host share; shm.c defines it and interhost.c uses it.
//
// Everything is found by its offset from the start, so each process may map the memory at another address. It has a
// slot for every rank of the group; interhost.c fills the slots of ranks on other hosts. Does not depend on what is
// reduced.
#ifndef MU_SRC_COMM_SHM_H
#define MU_SRC_COMM_SHM_H

#include "comm/comm.h"

// What a rank publishes to the others. It alternates between two signatures and two windows (see MU_AREA_WINDOW).
typedef struct mu_shm_slot {
    _Alignas(64) mu_signature signatures[2];
    _Alignas(64) unsigned char windows[2][MU_WINDOW_BYTES];
    _Alignas(64) atomic_uint barriers; // barriers entered; used in messages only
    atomic_uint n_rendezvous;          // rendezvous entered
    atomic_bool inside;                // may be accessing the memory of others
} mu_shm_slot;

// Start of the memory: the barrier, and the error with which a process aborted.
typedef struct mu_shm_header {
    mu_barrier barrier;
    _Alignas(64) atomic_int error_state; // 0: none, 1: being written, 2: complete
    mu_error_value error;
} mu_shm_header;

// One process's view of the memory: the shared state of the transports.
typedef struct mu_shm {
    mu_topology topology;
    int low, here; // first rank of this host, and number of ranks on it
    mu_shm_header *head;
    mu_shm_slot *slots;             // [ranks]
    struct mu_mailbox *mailboxes;   // [here * here]
    mu_work_queue *work_queue;      // NULL: there are several hosts
    unsigned char *staging_buffers; // [here][MU_STAGING_BYTES]; NULL: not needed
    void **copies;                  // [n_local][here][MU_SENDS_IN_FLIGHT] copies of messages whose memory others cannot
                                    // address
    size_t bytes;
} mu_shm;

// State of one rank.
typedef struct mu_shm_rank {
    uint32_t epoch;              // barriers entered
    uint32_t n_rendezvous;       // rendezvous entered
    bool rendezvous;             // the rank is waiting at a rendezvous, not at a barrier
    bool announced;              // it has already sent its part of the rendezvous
    const atomic_uint *messages; // the message counter that this rank waits on; NULL: none
    unsigned seen;               // value of that counter when the wait began
} mu_shm_rank;

mu_status mu__shm_open(void *shared, const mu_topology *topology);
void mu__shm_close(void *shared);
mu_signature *mu__shm_signature(const mu_channel *channel, int rank);
bool mu__shm_locate(const mu_channel *channel, const void *data, size_t bytes, uint64_t *at);
mu_status mu__shm_barrier(mu_channel *channel);
void *mu__shm_area(const mu_channel *channel, int rank, mu_area area);
mu_status mu__shm_send(mu_channel *channel, int peer, const void *data, size_t bytes);
mu_status mu__shm_recv(mu_channel *channel, int peer, void *data, size_t bytes);
mu_status mu__shm_flush(mu_channel *channel);
bool mu__shm_has_come(const mu_channel *channel, int rank);
mu_work_queue *mu__shm_work_queue(const mu_channel *channel);
uint32_t mu__shm_rendezvous_count(const mu_channel *channel, int rank);
bool mu__shm_enter(mu_channel *channel);
void mu__shm_leave(mu_channel *channel);
bool mu__shm_is_inside(const mu_channel *channel, int rank);
void mu__shm_abort(void *shared, const mu_error_value *error);
bool mu__shm_aborted(void *shared, mu_error_value *out);
void mu__shm_reset(void *shared);
void mu__shm_reset_rank(mu_channel *channel);

// mu__shm_begin_rendezvous notes that this rank has arrived; mu__shm_is_here says whether `rank` is on this host.
void mu__shm_begin_rendezvous(mu_channel *channel);
bool mu__shm_is_here(const mu_shm *shm, int rank);

#endif
