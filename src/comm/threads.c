// The transport between threads of one process: every rank's memory can be addressed by all.
//
// Collectives use the barrier and each other's pointers. Messages exist too, so that any list runs here: a
// sender leaves pointer and size in the pair's box, the receiver copies straight from the sender's memory.
// Knows nothing of what is reduced.
#include "comm/comm.h"

#include <time.h>

typedef struct letter {
    const void *data;
    size_t bytes;
} letter;

// Messages of one ordered pair of ranks: numbers `taken` to `posted` are under way.
typedef struct box {
    _Alignas(64) atomic_uint posted;
    atomic_uint taken;
    letter letters[MU_SENDS_IN_FLIGHT];
} box;

// What a rank shows to the others; two of each, used in turn (see MU_AREA_WINDOW).
typedef struct seat {
    _Alignas(64) mu_ticket tickets[2];
    _Alignas(64) unsigned char windows[2][MU_WINDOW_BYTES];
    _Alignas(64) atomic_uint barriers; // entered so far, for messages only
} seat;

typedef struct threads_shared {
    mu_barrier barrier;
    seat *seats;
    box *boxes; // [sender * ranks + receiver]
    int ranks;
} threads_shared;

typedef struct threads_rank {
    uint32_t epoch;
} threads_rank;

enum { NAP_NS = 50 * 1000 };

static size_t seats_bytes(int ranks) { return (size_t)ranks * sizeof(seat); }

static size_t boxes_bytes(int ranks) { return (size_t)ranks * (size_t)ranks * sizeof(box); }

static mu_status threads_open(void *shared, int ranks)
{
    threads_shared *s = shared;
    s->ranks = ranks;
    s->seats = mu__alloc_data(seats_bytes(ranks));
    s->boxes = mu__alloc_data(boxes_bytes(ranks));
    if (s->seats == NULL || s->boxes == NULL)
        return MU_RESOURCE_EXHAUSTED;
    memset(s->seats, 0, seats_bytes(ranks));
    memset(s->boxes, 0, boxes_bytes(ranks));
    return MU_OK;
}

static void threads_close(void *shared)
{
    threads_shared *s = shared;
    if (s->seats != NULL)
        mu__free_data(s->seats, seats_bytes(s->ranks));
    if (s->boxes != NULL)
        mu__free_data(s->boxes, boxes_bytes(s->ranks));
}

static mu_ticket *threads_ticket(const mu_port *port, int rank)
{
    threads_shared *s = port->shared;
    return &s->seats[rank].tickets[port->turn % 2];
}

static mu_status threads_barrier(mu_port *port)
{
    threads_shared *s = port->shared;
    threads_rank *own = port->state;
    port->waiting_for = -1;
    atomic_store_explicit(&s->seats[port->rank].barriers, own->epoch + 1, memory_order_relaxed);
    return mu__barrier_wait(&s->barrier, &own->epoch, port->ranks, (mu_patience)MU_PATIENCE(port));
}

static bool threads_has_come(const mu_port *port, int rank)
{
    const threads_shared *s = port->shared;
    const threads_rank *own = port->state;
    const uint32_t theirs = atomic_load_explicit(&s->seats[rank].barriers, memory_order_relaxed);
    return (int32_t)(theirs - own->epoch) >= 0;
}

static void *threads_area(const mu_port *port, int rank, mu_area area)
{
    threads_shared *s = port->shared;
    if (area == MU_AREA_WINDOW)
        return s->seats[rank].windows[port->turn % 2];
    return s->seats[rank].tickets[port->turn % 2].areas[area];
}

// Waits until *counter is no longer `value`. Messages are not the fast path here, so it ends in short naps.
static mu_status wait_change(mu_port *port, int peer, atomic_uint *counter, unsigned value)
{
    threads_shared *s = port->shared;
    mu_patience patience = MU_PATIENCE(port);
    while (atomic_load(counter) == value) {
        if (atomic_load(&s->barrier.failed))
            return MU_ABORTED;
        if (mu__patience_turn(&patience))
            continue;
        if (mu__patience_over(&patience)) {
            port->waiting_for = peer;
            return MU_DEADLINE_EXCEEDED;
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return atomic_load(&s->barrier.failed) ? MU_ABORTED : MU_OK;
}

static box *box_of(const mu_port *port, int sender, int receiver)
{
    threads_shared *s = port->shared;
    return &s->boxes[sender * s->ranks + receiver];
}

static mu_status threads_send(mu_port *port, int peer, const void *data, size_t bytes)
{
    box *b = box_of(port, port->rank, peer);
    const unsigned posted = atomic_load_explicit(&b->posted, memory_order_relaxed);
    MU_TRY(wait_change(port, peer, &b->taken, posted - MU_SENDS_IN_FLIGHT));
    b->letters[posted % MU_SENDS_IN_FLIGHT] = (letter){.data = data, .bytes = bytes};
    atomic_store(&b->posted, posted + 1);
    return MU_OK;
}

static mu_status threads_recv(mu_port *port, int peer, void *data, size_t bytes)
{
    box *b = box_of(port, peer, port->rank);
    const unsigned taken = atomic_load_explicit(&b->taken, memory_order_relaxed);
    MU_TRY(wait_change(port, peer, &b->posted, taken));
    const letter *from = &b->letters[taken % MU_SENDS_IN_FLIGHT];
    if (from->bytes != bytes)
        return MU_INTERNAL;
    memcpy(data, from->data, bytes);
    atomic_store(&b->taken, taken + 1);
    return MU_OK;
}

static mu_status threads_flush(mu_port *port)
{
    for (int peer = 0; peer < port->ranks; peer++) {
        box *b = box_of(port, port->rank, peer);
        const unsigned posted = atomic_load_explicit(&b->posted, memory_order_relaxed);
        for (unsigned taken; (taken = atomic_load(&b->taken)) != posted;)
            MU_TRY(wait_change(port, peer, &b->taken, taken));
    }
    return MU_OK;
}

static void threads_abort(void *shared) { mu__barrier_abort(&((threads_shared *)shared)->barrier); }

static void threads_reset(void *shared)
{
    threads_shared *s = shared;
    atomic_store(&s->barrier.arrivals, 0);
    atomic_store(&s->barrier.failed, false);
    for (int i = 0; i < s->ranks; i++)
        atomic_store(&s->seats[i].barriers, 0);
    for (int i = 0; i < s->ranks * s->ranks; i++) {
        atomic_store(&s->boxes[i].posted, 0);
        atomic_store(&s->boxes[i].taken, 0);
    }
}

static void threads_reset_rank(mu_port *port) { *(threads_rank *)port->state = (threads_rank){0}; }

const mu_transport mu__transport_threads = {
    .name = "threads",
    .shared_bytes = sizeof(threads_shared),
    .rank_bytes = sizeof(threads_rank),
    .means = MU_NEEDS_WINDOW | MU_NEEDS_PEERS,
    .open = threads_open,
    .close = threads_close,
    .ticket = threads_ticket,
    .barrier = threads_barrier,
    .area = threads_area,
    .send = threads_send,
    .recv = threads_recv,
    .flush = threads_flush,
    .has_come = threads_has_come,
    .abort = threads_abort,
    .reset = threads_reset,
    .reset_rank = threads_reset_rank,
};
