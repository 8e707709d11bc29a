// The memory that the ranks of one host share, as room.c lays it out and bridge.c uses it.
//
// Everything in it is found by its place from the start, so that processes may map it where they like. A room
// holds a seat for every rank of the group; those of ranks on other hosts are filled by bridge.c.
// Knows nothing of what is reduced.
#ifndef MU_SRC_COMM_ROOM_H
#define MU_SRC_COMM_ROOM_H

#include "comm/comm.h"

// What a rank shows to the others; two of each, used in turn (see MU_AREA_WINDOW).
typedef struct mu_seat {
    _Alignas(64) mu_ticket tickets[2];
    _Alignas(64) unsigned char windows[2][MU_WINDOW_BYTES];
    _Alignas(64) atomic_uint barriers; // entered so far, for messages only
    atomic_uint meetings;              // likewise
    atomic_bool inside;                // may be touching the others' memory
} mu_seat;

// Head of the memory: the barrier, and the error that a process aborted with.
typedef struct mu_room_head {
    mu_barrier barrier;
    _Alignas(64) atomic_int error_state; // 0: none, 1: being written, 2: there
    mu_error_value error;
} mu_room_head;

// One process's view of it: the shared state of the transports.
typedef struct mu_room {
    mu_seating seating;
    int low, here; // ranks of this host: the first, and how many
    mu_room_head *head;
    mu_seat *seats;        // [ranks]
    struct mu_box *boxes;  // [here * here]
    mu_board *board;       // NULL: there are other hosts
    unsigned char *stages; // [here][MU_STAGE_BYTES]; NULL: none are needed
    void **copies;         // [n_local][here][MU_SENDS_IN_FLIGHT] of messages that others cannot address
    size_t bytes;
} mu_room;

// One rank's.
typedef struct mu_room_rank {
    uint32_t epoch;             // barriers entered
    uint32_t meetings;          // entered
    bool meeting;               // what it waits at is one
    bool announced;             // it has sent its part of the meeting ahead
    const atomic_uint *letters; // the count of messages that it waits for to change; NULL: it waits for none
    unsigned seen;              // that count when it looked
} mu_room_rank;

mu_status mu__room_open(void *shared, const mu_seating *seating);
void mu__room_close(void *shared);
mu_ticket *mu__room_ticket(const mu_port *port, int rank);
bool mu__room_locate(const mu_port *port, const void *data, size_t bytes, uint64_t *at);
mu_status mu__room_barrier(mu_port *port);
void *mu__room_area(const mu_port *port, int rank, mu_area area);
mu_status mu__room_send(mu_port *port, int peer, const void *data, size_t bytes);
mu_status mu__room_recv(mu_port *port, int peer, void *data, size_t bytes);
mu_status mu__room_flush(mu_port *port);
bool mu__room_has_come(const mu_port *port, int rank);
mu_board *mu__room_board(const mu_port *port);
uint32_t mu__room_meetings(const mu_port *port, int rank);
bool mu__room_enter(mu_port *port);
void mu__room_leave(mu_port *port);
bool mu__room_is_inside(const mu_port *port, int rank);
void mu__room_abort(void *shared, const mu_error_value *error);
bool mu__room_aborted(void *shared, mu_error_value *out);
void mu__room_reset(void *shared);
void mu__room_reset_rank(mu_port *port);

// mu__room_begin_meeting notes that this rank has come; mu__room_is_here says whether `rank` is on this host.
void mu__room_begin_meeting(mu_port *port);
bool mu__room_is_here(const mu_room *room, int rank);

#endif
