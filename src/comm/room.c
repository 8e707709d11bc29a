// The transport between ranks that share memory: threads of a process, or processes with a segment in common.
//
// Collectives use the barrier, windows and stages, and each other's data where all can address it: threads
// always, processes where it lies in the segment. Messages exist too, so that any list runs here: a sender leaves
// place and size in the pair's box, the receiver copies straight from there; what the receiver cannot address the
// sender copies first. Knows nothing of what is reduced.
#include "comm/room.h"

#include <time.h>

typedef struct letter {
    uint64_t at;
    size_t bytes;
} letter;

// Messages of one ordered pair of ranks: numbers `taken` to `posted` are under way.
typedef struct mu_box {
    _Alignas(64) atomic_uint posted;
    atomic_uint taken;
    letter letters[MU_SENDS_IN_FLIGHT];
} mu_box;

enum { NAP_NS = 50 * 1000, PAGE = 4096 };

// ---- Layout -------------------------------------------------------------------------------------

static int ranks_here(const mu_seating *s)
{
    return s->hosts > 1 ? s->first[s->host + 1] - s->first[s->host] : s->ranks;
}

static size_t boxes_at(const mu_seating *s) { return sizeof(mu_room_head) + (size_t)s->ranks * sizeof(mu_seat); }

static size_t board_at(const mu_seating *s)
{
    const size_t here = (size_t)ranks_here(s);
    return boxes_at(s) + here * here * sizeof(mu_box);
}

static size_t board_bytes(const mu_seating *s)
{
    const size_t entries = MU_MOST_STARTED * (size_t)s->ranks;
    return s->hosts > 1 ? 0 : sizeof(mu_board) + entries * sizeof(mu_board_entry);
}

static size_t stages_at(const mu_seating *s) { return (board_at(s) + board_bytes(s) + PAGE - 1) / PAGE * PAGE; }

size_t mu__room_bytes(const mu_seating *seating)
{
    return stages_at(seating) + (seating->staged ? (size_t)ranks_here(seating) * MU_STAGE_BYTES : 0);
}

static size_t n_copies(const mu_room *room)
{
    return (size_t)room->seating.n_local * (size_t)room->here * MU_SENDS_IN_FLIGHT;
}

mu_status mu__room_open(void *shared, const mu_seating *seating)
{
    mu_room *room = shared;
    room->seating = *seating;
    room->here = ranks_here(seating);
    room->low = seating->hosts > 1 ? seating->first[seating->host] : 0;
    room->bytes = mu__room_bytes(seating);
    char *memory = seating->memory;
    if (memory == NULL) {
        memory = mu__alloc_data(room->bytes);
        if (memory == NULL)
            return MU_RESOURCE_EXHAUSTED;
        memset(memory, 0, stages_at(seating));
    }
    room->head = (mu_room_head *)(void *)memory;
    room->seats = (mu_seat *)(void *)(memory + sizeof(mu_room_head));
    room->boxes = (mu_box *)(void *)(memory + boxes_at(seating));
    room->board = seating->hosts > 1 ? NULL : (mu_board *)(void *)(memory + board_at(seating));
    room->stages = seating->staged ? (unsigned char *)memory + stages_at(seating) : NULL;
    if (seating->memory == NULL)
        return MU_OK;
    atomic_store(&room->head->barrier.between_processes, true);
    if (room->board != NULL)
        atomic_store(&room->board->bell.between_processes, true);
    room->copies = mu__calloc(n_copies(room), sizeof *room->copies);
    return room->copies != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

void mu__room_close(void *shared)
{
    mu_room *room = shared;
    for (size_t i = 0; room->copies != NULL && i < n_copies(room); i++)
        mu_release(room->copies[i]);
    mu__free(room->copies);
    if (room->head != NULL && room->seating.memory == NULL)
        mu__free_data(room->head, room->bytes);
}

bool mu__room_is_here(const mu_room *room, int rank) { return rank >= room->low && rank < room->low + room->here; }

// ---- Memory -------------------------------------------------------------------------------------

mu_ticket *mu__room_ticket(const mu_port *port, int rank)
{
    mu_room *room = port->shared;
    return &room->seats[rank].tickets[port->turn % 2];
}

// Among threads a place is the address itself, between processes it counts from the start of the segment.
static uintptr_t base_of(const mu_room *room) { return (uintptr_t)room->seating.memory; }

bool mu__room_locate(const mu_port *port, const void *data, size_t bytes, uint64_t *at)
{
    const mu_room *room = port->shared;
    const uintptr_t begin = (uintptr_t)data, base = base_of(room);
    *at = begin - base;
    return base == 0 || bytes == 0 ||
           (begin >= base && begin - base <= room->seating.bytes && bytes <= room->seating.bytes - (begin - base));
}

void *mu__room_area(const mu_port *port, int rank, mu_area area)
{
    mu_room *room = port->shared;
    if (area == MU_AREA_WINDOW)
        return room->seats[rank].windows[port->turn % 2];
    if (area == MU_AREA_STAGE)
        return room->stages + (size_t)(rank - room->low) * MU_STAGE_BYTES;
    return (void *)(base_of(room) + (uintptr_t)room->seats[rank].tickets[port->turn % 2].areas[area]);
}

bool mu__room_enter(mu_port *port)
{
    mu_room *room = port->shared;
    return !atomic_exchange(&room->seats[port->rank].inside, true);
}

void mu__room_leave(mu_port *port)
{
    mu_room *room = port->shared;
    atomic_store_explicit(&room->seats[port->rank].inside, false, memory_order_release);
}

bool mu__room_is_inside(const mu_port *port, int rank)
{
    mu_room *room = port->shared;
    return atomic_load(&room->seats[rank].inside);
}

// ---- Meeting ------------------------------------------------------------------------------------

mu_status mu__room_barrier(mu_port *port)
{
    mu_room *room = port->shared;
    mu_room_rank *own = port->state;
    port->waiting_for = -1;
    atomic_store_explicit(&room->seats[port->rank].barriers, own->epoch + 1, memory_order_relaxed);
    return mu__barrier_wait(&room->head->barrier, &own->epoch, room->here, (mu_patience)MU_PATIENCE(port));
}

void mu__room_begin_meeting(mu_port *port)
{
    mu_room *room = port->shared;
    mu_room_rank *own = port->state;
    own->meeting = true;
    atomic_store_explicit(&room->seats[port->rank].meetings, ++own->meetings, memory_order_release);
}

mu_board *mu__room_board(const mu_port *port) { return ((mu_room *)port->shared)->board; }

uint32_t mu__room_meetings(const mu_port *port, int rank)
{
    const mu_room *room = port->shared;
    return atomic_load_explicit(&room->seats[rank].meetings, memory_order_acquire);
}

static mu_status room_meet(mu_port *port)
{
    mu_room_rank *own = port->state;
    mu__room_begin_meeting(port);
    const mu_status status = mu__room_barrier(port);
    own->meeting = status != MU_OK;
    return status;
}

// A meeting has several waits; who has not come to it is known by the meetings, wherever they are. Who is waited for by
// name comes with a message.
bool mu__room_has_come(const mu_port *port, int rank)
{
    const mu_room *room = port->shared;
    const mu_room_rank *own = port->state;
    if (port->waiting_for >= 0)
        return rank != port->waiting_for || (own->letters != NULL && atomic_load(own->letters) != own->seen);
    const atomic_uint *theirs = own->meeting ? &room->seats[rank].meetings : &room->seats[rank].barriers;
    const uint32_t count = atomic_load_explicit(theirs, memory_order_relaxed);
    if (!own->meeting && !mu__room_is_here(room, rank))
        return true;
    return (int32_t)(count - (own->meeting ? own->meetings : own->epoch)) >= 0;
}

// ---- Messages -----------------------------------------------------------------------------------

// Waits until *counter is no longer `value`. Messages are not the fast path here, so it ends in short naps.
static mu_status wait_change(mu_port *port, int peer, const atomic_uint *counter, unsigned value)
{
    mu_room *room = port->shared;
    mu_room_rank *own = port->state;
    mu_patience patience = MU_PATIENCE(port);
    mu_status status = MU_OK;
    while (status == MU_OK && atomic_load(counter) == value) {
        if (atomic_load(&room->head->barrier.failed))
            return MU_ABORTED;
        if (mu__patience_turn(&patience))
            continue;
        own->letters = counter;
        own->seen = value;
        port->waiting_for = peer;
        status = mu__patience_end(&patience);
        own->letters = NULL;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return status == MU_OK && atomic_load(&room->head->barrier.failed) ? MU_ABORTED : status;
}

static mu_box *box_of(const mu_port *port, int sender, int receiver)
{
    const mu_room *room = port->shared;
    return &room->boxes[(sender - room->low) * room->here + receiver - room->low];
}

static void **copies_for(const mu_port *port, int peer)
{
    const mu_room *room = port->shared;
    const int place = (port->rank - room->seating.first_local) * room->here + peer - room->low;
    return &room->copies[(size_t)place * MU_SENDS_IN_FLIGHT];
}

// Copies what the receiver cannot address into memory where it can; it is used again or freed eight messages later.
static mu_status copy_for(mu_port *port, void **copy, const void *data, size_t bytes, uint64_t *at)
{
    const mu_room *room = port->shared;
    mu_shared_memory *block = *copy;
    if (block == NULL || block->bytes < bytes) {
        mu_release(block);
        *copy = block = mu__segment_take(room->seating.segment, port->rank - room->low, bytes);
    }
    if (block == NULL)
        return mu__error(MU_RESOURCE_EXHAUSTED,
                         "The shared memory of this host has no %zu bytes left for a message from rank %d; use the "
                         "communication AUTO, which needs less, or smaller tensors.",
                         bytes, port->rank);
    memcpy(block->data, data, bytes);
    mu__room_locate(port, block->data, bytes, at);
    return MU_OK;
}

mu_status mu__room_send(mu_port *port, int peer, const void *data, size_t bytes)
{
    mu_box *b = box_of(port, port->rank, peer);
    const unsigned posted = atomic_load_explicit(&b->posted, memory_order_relaxed), place = posted % MU_SENDS_IN_FLIGHT;
    letter message = {.bytes = bytes};
    MU_TRY(wait_change(port, peer, &b->taken, posted - MU_SENDS_IN_FLIGHT));
    if (!mu__room_locate(port, data, bytes, &message.at))
        MU_TRY(copy_for(port, &copies_for(port, peer)[place], data, bytes, &message.at));
    b->letters[place] = message;
    atomic_store(&b->posted, posted + 1);
    return MU_OK;
}

mu_status mu__room_recv(mu_port *port, int peer, void *data, size_t bytes)
{
    const mu_room *room = port->shared;
    mu_box *b = box_of(port, peer, port->rank);
    const unsigned taken = atomic_load_explicit(&b->taken, memory_order_relaxed);
    MU_TRY(wait_change(port, peer, &b->posted, taken));
    const letter *from = &b->letters[taken % MU_SENDS_IN_FLIGHT];
    port->waiting_for = peer;
    if (from->bytes != bytes)
        return MU_INTERNAL;
    if (base_of(room) != 0 && (from->at > room->seating.bytes || bytes > room->seating.bytes - from->at))
        return MU_DATA_LOSS;
    memcpy(data, (const void *)(base_of(room) + (uintptr_t)from->at), bytes);
    atomic_store(&b->taken, taken + 1);
    return MU_OK;
}

mu_status mu__room_flush(mu_port *port)
{
    const mu_room *room = port->shared;
    for (int peer = room->low; peer < room->low + room->here; peer++) {
        mu_box *b = box_of(port, port->rank, peer);
        const unsigned posted = atomic_load_explicit(&b->posted, memory_order_relaxed);
        for (unsigned taken; (taken = atomic_load(&b->taken)) != posted;)
            MU_TRY(wait_change(port, peer, &b->taken, taken));
    }
    return MU_OK;
}

// ---- Failing ------------------------------------------------------------------------------------

// The first error is kept where the other processes of this host find it; its file is a text of this process.
void mu__room_abort(void *shared, const mu_error_value *error)
{
    mu_room *room = shared;
    int none = 0;
    if (atomic_compare_exchange_strong(&room->head->error_state, &none, 1)) {
        room->head->error = *error;
        atomic_store(&room->head->error_state, 2);
    }
    mu__barrier_abort(&room->head->barrier);
    if (room->board != NULL)
        mu__bell_ring(&room->board->bell);
}

bool mu__room_aborted(void *shared, mu_error_value *out)
{
    mu_room *room = shared;
    if (atomic_load(&room->head->error_state) != 2)
        return false;
    *out = room->head->error;
    out->file = __FILE__;
    out->line = __LINE__;
    return true;
}

void mu__room_reset(void *shared)
{
    mu_room *room = shared;
    atomic_store(&room->head->barrier.arrivals, 0);
    atomic_store(&room->head->barrier.failed, false);
    atomic_store(&room->head->error_state, 0);
    if (room->board != NULL)
        memset(room->board, 0, board_bytes(&room->seating));
    for (int i = 0; i < room->seating.ranks; i++) {
        atomic_store(&room->seats[i].barriers, 0);
        atomic_store(&room->seats[i].meetings, 0);
    }
    for (int i = 0; i < room->here * room->here; i++) {
        atomic_store(&room->boxes[i].posted, 0);
        atomic_store(&room->boxes[i].taken, 0);
    }
}

void mu__room_reset_rank(mu_port *port) { *(mu_room_rank *)port->state = (mu_room_rank){0}; }

const mu_transport mu__transport_room = {
    .name = "room",
    .shared_bytes = sizeof(mu_room),
    .rank_bytes = sizeof(mu_room_rank),
    .open = mu__room_open,
    .close = mu__room_close,
    .ticket = mu__room_ticket,
    .locate = mu__room_locate,
    .meet = room_meet,
    .barrier = mu__room_barrier,
    .area = mu__room_area,
    .send = mu__room_send,
    .recv = mu__room_recv,
    .flush = mu__room_flush,
    .has_come = mu__room_has_come,
    .board = mu__room_board,
    .meetings = mu__room_meetings,
    .enter = mu__room_enter,
    .leave = mu__room_leave,
    .is_inside = mu__room_is_inside,
    .abort = mu__room_abort,
    .aborted = mu__room_aborted,
    .reset = mu__room_reset,
    .reset_rank = mu__room_reset_rank,
};
