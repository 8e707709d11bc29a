// The transport between ranks that share memory: threads of a process, or processes with a common segment.
//
// Collectives use the barrier, the windows and staging buffers, and each other's data where all can address it: always
// between threads, and between processes if the data is in the segment. Messages exist too, so that any list runs here:
// a sender puts address and size in the mailbox of the pair, and the receiver copies directly from there; data that the
// receiver cannot address is first copied by the sender. Does not depend on what is reduced.
#include "base/system.h"
#include "comm/transports/shm.h"

typedef struct shm_message {
    uint64_t at;
    size_t bytes;
} shm_message;

// Messages of one ordered pair of ranks: numbers `taken` to `posted` are in flight.
typedef struct mu_mailbox {
    _Alignas(64) atomic_uint posted;
    atomic_uint taken;
    shm_message messages[MU_SENDS_IN_FLIGHT];
} mu_mailbox;

enum { NAP_NS = 50 * 1000, PAGE = 4096 };

// ---- Layout -------------------------------------------------------------------------------------

static int ranks_here(const mu_topology *s)
{
    return s->hosts > 1 ? s->first[s->host + 1] - s->first[s->host] : s->ranks;
}

static size_t mailboxes_at(const mu_topology *s)
{
    return sizeof(mu_shm_header) + (size_t)s->ranks * sizeof(mu_shm_slot);
}

static size_t work_queue_at(const mu_topology *s)
{
    const size_t here = (size_t)ranks_here(s);
    return mailboxes_at(s) + here * here * sizeof(mu_mailbox);
}

static size_t work_queue_bytes(const mu_topology *s)
{
    const size_t entries = MU_MAX_REQUESTS * (size_t)s->ranks;
    return s->hosts > 1 ? 0 : sizeof(mu_work_queue) + entries * sizeof(mu_work_post);
}

static size_t staging_at(const mu_topology *s)
{
    return (work_queue_at(s) + work_queue_bytes(s) + PAGE - 1) / PAGE * PAGE;
}

size_t mu__shm_bytes(const mu_topology *topology)
{
    return staging_at(topology) + (topology->staged ? (size_t)ranks_here(topology) * MU_STAGING_BYTES : 0);
}

static size_t n_copies(const mu_shm *shm)
{
    return (size_t)shm->topology.n_local * (size_t)shm->here * MU_SENDS_IN_FLIGHT;
}

mu_status mu__shm_open(void *shared, const mu_topology *topology)
{
    mu_shm *shm = shared;
    shm->topology = *topology;
    shm->here = ranks_here(topology);
    shm->low = topology->hosts > 1 ? topology->first[topology->host] : 0;
    shm->bytes = mu__shm_bytes(topology);
    char *memory = topology->memory;
    if (memory == NULL) {
        memory = mu__alloc_data(shm->bytes);
        if (memory == NULL)
            return MU_RESOURCE_EXHAUSTED;
        memset(memory, 0, staging_at(topology));
    }
    shm->head = (mu_shm_header *)(void *)memory;
    shm->slots = (mu_shm_slot *)(void *)(memory + sizeof(mu_shm_header));
    shm->mailboxes = (mu_mailbox *)(void *)(memory + mailboxes_at(topology));
    shm->work_queue = topology->hosts > 1 ? NULL : (mu_work_queue *)(void *)(memory + work_queue_at(topology));
    shm->staging_buffers = topology->staged ? (unsigned char *)memory + staging_at(topology) : NULL;
    if (topology->memory == NULL)
        return MU_OK;
    atomic_store(&shm->head->barrier.between_processes, true);
    if (shm->work_queue != NULL)
        atomic_store(&shm->work_queue->changes.between_processes, true);
    shm->copies = mu__calloc(n_copies(shm), sizeof *shm->copies);
    return shm->copies != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

void mu__shm_close(void *shared)
{
    mu_shm *shm = shared;
    for (size_t i = 0; shm->copies != NULL && i < n_copies(shm); i++)
        mu_release(shm->copies[i]);
    mu__free(shm->copies);
    if (shm->head != NULL && shm->topology.memory == NULL)
        mu__free_data(shm->head, shm->bytes);
}

bool mu__shm_is_here(const mu_shm *shm, int rank) { return rank >= shm->low && rank < shm->low + shm->here; }

// ---- Memory -------------------------------------------------------------------------------------

mu_signature *mu__shm_signature(const mu_channel *channel, int rank)
{
    mu_shm *shm = channel->shared;
    return &shm->slots[rank].signatures[channel->op_count % 2];
}

// Between threads an address is used as it is; between processes it is an offset from the start of the segment.
static uintptr_t base_of(const mu_shm *shm) { return (uintptr_t)shm->topology.memory; }

bool mu__shm_locate(const mu_channel *channel, const void *data, size_t bytes, uint64_t *at)
{
    const mu_shm *shm = channel->shared;
    const uintptr_t begin = (uintptr_t)data, base = base_of(shm);
    *at = begin - base;
    return base == 0 || bytes == 0 ||
           (begin >= base && begin - base <= shm->topology.bytes && bytes <= shm->topology.bytes - (begin - base));
}

void *mu__shm_area(const mu_channel *channel, int rank, mu_area area)
{
    mu_shm *shm = channel->shared;
    if (area == MU_AREA_WINDOW)
        return shm->slots[rank].windows[channel->op_count % 2];
    if (area == MU_AREA_STAGING)
        return shm->staging_buffers + (size_t)(rank - shm->low) * MU_STAGING_BYTES;
    return (void *)(base_of(shm) + (uintptr_t)shm->slots[rank].signatures[channel->op_count % 2].areas[area]);
}

bool mu__shm_enter(mu_channel *channel)
{
    mu_shm *shm = channel->shared;
    return !atomic_exchange(&shm->slots[channel->rank].inside, true);
}

void mu__shm_leave(mu_channel *channel)
{
    mu_shm *shm = channel->shared;
    atomic_store_explicit(&shm->slots[channel->rank].inside, false, memory_order_release);
}

bool mu__shm_is_inside(const mu_channel *channel, int rank)
{
    mu_shm *shm = channel->shared;
    return atomic_load(&shm->slots[rank].inside);
}

// ---- Barrier and rendezvous ---------------------------------------------------------------------

mu_status mu__shm_barrier(mu_channel *channel)
{
    mu_shm *shm = channel->shared;
    mu_shm_rank *own = channel->state;
    channel->waiting_for = -1;
    atomic_store_explicit(&shm->slots[channel->rank].barriers, own->epoch + 1, memory_order_relaxed);
    return mu__barrier_wait(&shm->head->barrier, &own->epoch, shm->here, (mu_backoff)MU_BACKOFF(channel));
}

void mu__shm_begin_rendezvous(mu_channel *channel)
{
    mu_shm *shm = channel->shared;
    mu_shm_rank *own = channel->state;
    own->rendezvous = true;
    atomic_store_explicit(&shm->slots[channel->rank].n_rendezvous, ++own->n_rendezvous, memory_order_release);
}

mu_work_queue *mu__shm_work_queue(const mu_channel *channel) { return ((mu_shm *)channel->shared)->work_queue; }

uint32_t mu__shm_rendezvous_count(const mu_channel *channel, int rank)
{
    const mu_shm *shm = channel->shared;
    return atomic_load_explicit(&shm->slots[rank].n_rendezvous, memory_order_acquire);
}

static mu_status shm_rendezvous(mu_channel *channel)
{
    mu_shm_rank *own = channel->state;
    mu__shm_begin_rendezvous(channel);
    const mu_status status = mu__shm_barrier(channel);
    own->rendezvous = status != MU_OK;
    return status;
}

// A rendezvous consists of several waits, so n_rendezvous says who has arrived, on any host. A wait for a particular
// rank is a wait for a message.
bool mu__shm_has_come(const mu_channel *channel, int rank)
{
    const mu_shm *shm = channel->shared;
    const mu_shm_rank *own = channel->state;
    if (channel->waiting_for >= 0)
        return rank != channel->waiting_for || (own->messages != NULL && atomic_load(own->messages) != own->seen);
    const atomic_uint *theirs = own->rendezvous ? &shm->slots[rank].n_rendezvous : &shm->slots[rank].barriers;
    const uint32_t count = atomic_load_explicit(theirs, memory_order_relaxed);
    if (!own->rendezvous && !mu__shm_is_here(shm, rank))
        return true;
    return (int32_t)(count - (own->rendezvous ? own->n_rendezvous : own->epoch)) >= 0;
}

// ---- Messages -----------------------------------------------------------------------------------

// Waits until *counter is no longer `value`. Messages are not the fast path of this transport, so long waits end in
// short sleeps.
static mu_status wait_change(mu_channel *channel, int peer, const atomic_uint *counter, unsigned value)
{
    mu_shm *shm = channel->shared;
    mu_shm_rank *own = channel->state;
    mu_backoff backoff = MU_BACKOFF(channel);
    mu_status status = MU_OK;
    while (status == MU_OK && atomic_load(counter) == value) {
        if (atomic_load(&shm->head->barrier.failed))
            return MU_ABORTED;
        if (mu__backoff_pause(&backoff))
            continue;
        own->messages = counter;
        own->seen = value;
        channel->waiting_for = peer;
        status = mu__backoff_check(&backoff);
        own->messages = NULL;
        mu__sleep_ns(NAP_NS);
    }
    return status == MU_OK && atomic_load(&shm->head->barrier.failed) ? MU_ABORTED : status;
}

static mu_mailbox *mailbox_of(const mu_channel *channel, int sender, int receiver)
{
    const mu_shm *shm = channel->shared;
    return &shm->mailboxes[(sender - shm->low) * shm->here + receiver - shm->low];
}

static void **copies_for(const mu_channel *channel, int peer)
{
    const mu_shm *shm = channel->shared;
    const int slot = (channel->rank - shm->topology.first_local) * shm->here + peer - shm->low;
    return &shm->copies[(size_t)slot * MU_SENDS_IN_FLIGHT];
}

// Copies data that the receiver cannot address into shared memory; the block is reused or freed eight messages later.
static mu_status copy_for(mu_channel *channel, void **copy, const void *data, size_t bytes, uint64_t *at)
{
    const mu_shm *shm = channel->shared;
    mu_buffer *block = *copy;
    if (block == NULL || block->bytes < bytes) {
        mu_release(block);
        *copy = block = mu__segment_take(shm->topology.segment, channel->rank - shm->low, bytes);
    }
    if (block == NULL)
        return mu__error(MU_RESOURCE_EXHAUSTED,
                         "The shared memory of this host has no %zu bytes left for a message from rank %d; use the "
                         "communication AUTO, which needs less, or smaller tensors.",
                         bytes, channel->rank);
    memcpy(block->data, data, bytes);
    mu__shm_locate(channel, block->data, bytes, at);
    return MU_OK;
}

mu_status mu__shm_send(mu_channel *channel, int peer, const void *data, size_t bytes)
{
    mu_mailbox *b = mailbox_of(channel, channel->rank, peer);
    const unsigned posted = atomic_load_explicit(&b->posted, memory_order_relaxed), slot = posted % MU_SENDS_IN_FLIGHT;
    shm_message message = {.bytes = bytes};
    MU_TRY(wait_change(channel, peer, &b->taken, posted - MU_SENDS_IN_FLIGHT));
    if (!mu__shm_locate(channel, data, bytes, &message.at))
        MU_TRY(copy_for(channel, &copies_for(channel, peer)[slot], data, bytes, &message.at));
    b->messages[slot] = message;
    atomic_store(&b->posted, posted + 1);
    return MU_OK;
}

mu_status mu__shm_recv(mu_channel *channel, int peer, void *data, size_t bytes)
{
    const mu_shm *shm = channel->shared;
    mu_mailbox *b = mailbox_of(channel, peer, channel->rank);
    const unsigned taken = atomic_load_explicit(&b->taken, memory_order_relaxed);
    MU_TRY(wait_change(channel, peer, &b->posted, taken));
    const shm_message *from = &b->messages[taken % MU_SENDS_IN_FLIGHT];
    channel->waiting_for = peer;
    if (from->bytes != bytes)
        return MU_INTERNAL;
    if (base_of(shm) != 0 && (from->at > shm->topology.bytes || bytes > shm->topology.bytes - from->at))
        return MU_DATA_LOSS;
    memcpy(data, (const void *)(base_of(shm) + (uintptr_t)from->at), bytes);
    atomic_store(&b->taken, taken + 1);
    return MU_OK;
}

mu_status mu__shm_flush(mu_channel *channel)
{
    const mu_shm *shm = channel->shared;
    for (int peer = shm->low; peer < shm->low + shm->here; peer++) {
        mu_mailbox *b = mailbox_of(channel, channel->rank, peer);
        const unsigned posted = atomic_load_explicit(&b->posted, memory_order_relaxed);
        for (unsigned taken; (taken = atomic_load(&b->taken)) != posted;)
            MU_TRY(wait_change(channel, peer, &b->taken, taken));
    }
    return MU_OK;
}

// ---- Failing ------------------------------------------------------------------------------------

// Stores the first error where the other processes of this host find it. Its file name points into this process's
// memory.
void mu__shm_abort(void *shared, const mu_error_value *error)
{
    mu_shm *shm = shared;
    int none = 0;
    if (atomic_compare_exchange_strong(&shm->head->error_state, &none, 1)) {
        shm->head->error = *error;
        atomic_store(&shm->head->error_state, 2);
    }
    mu__barrier_abort(&shm->head->barrier);
    if (shm->work_queue != NULL)
        mu__eventcount_notify(&shm->work_queue->changes);
}

bool mu__shm_aborted(void *shared, mu_error_value *out)
{
    mu_shm *shm = shared;
    if (atomic_load(&shm->head->error_state) != 2)
        return false;
    *out = shm->head->error;
    out->file = __FILE__;
    out->line = __LINE__;
    return true;
}

void mu__shm_reset(void *shared)
{
    mu_shm *shm = shared;
    atomic_store(&shm->head->barrier.arrivals, 0);
    atomic_store(&shm->head->barrier.failed, false);
    atomic_store(&shm->head->error_state, 0);
    if (shm->work_queue != NULL)
        memset(shm->work_queue, 0, work_queue_bytes(&shm->topology));
    for (int i = 0; i < shm->topology.ranks; i++) {
        atomic_store(&shm->slots[i].barriers, 0);
        atomic_store(&shm->slots[i].n_rendezvous, 0);
    }
    for (int i = 0; i < shm->here * shm->here; i++) {
        atomic_store(&shm->mailboxes[i].posted, 0);
        atomic_store(&shm->mailboxes[i].taken, 0);
    }
}

void mu__shm_reset_rank(mu_channel *channel) { *(mu_shm_rank *)channel->state = (mu_shm_rank){0}; }

const mu_transport mu__transport_shm = {
    .name = "shm",
    .shared_bytes = sizeof(mu_shm),
    .rank_bytes = sizeof(mu_shm_rank),
    .open = mu__shm_open,
    .close = mu__shm_close,
    .signature = mu__shm_signature,
    .locate = mu__shm_locate,
    .rendezvous = shm_rendezvous,
    .barrier = mu__shm_barrier,
    .area = mu__shm_area,
    .send = mu__shm_send,
    .recv = mu__shm_recv,
    .flush = mu__shm_flush,
    .has_come = mu__shm_has_come,
    .work_queue = mu__shm_work_queue,
    .n_rendezvous = mu__shm_rendezvous_count,
    .enter = mu__shm_enter,
    .leave = mu__shm_leave,
    .is_inside = mu__shm_is_inside,
    .abort = mu__shm_abort,
    .aborted = mu__shm_aborted,
    .reset = mu__shm_reset,
    .reset_rank = mu__shm_reset_rank,
};
