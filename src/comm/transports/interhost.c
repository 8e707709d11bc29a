// The transport between hosts. The first rank of each host, its leader, has a stream to every other leader.
//
// Ranks of one host share memory (shm.c), which also has slots for the ranks of other hosts. At a rendezvous the
// leaders exchange the signatures and windows of their hosts and store what they receive in those slots. Sends wait in
// one queue per stream and continue whenever the leader waits for anything. Does not depend on what is reduced.
#include "base/system.h"
#include "comm/transports/shm.h"

#include <poll.h>
#include <sched.h>

enum { QUEUE = MU_SENDS_IN_FLIGHT + 1, BUFFER_BYTES = 1 << 13, POLL_MS = 20, MAGIC = 0x6d757374 };

typedef struct span {
    mu_stream *stream; // NULL: this host itself
    int n_out;
    struct iovec out[QUEUE];
    unsigned char *buffer; // bytes received beyond the current request
    size_t buffered, taken;
} span;

struct mu_interhost {
    int hosts, host;
    span *spans;            // [hosts]
    struct pollfd *fds;     // [hosts], for poll
    unsigned char *message; // sent at the last rendezvous
    size_t message_bytes;
};

#define GRACE_SECONDS 1.0

// Header of the message that leaders send at a rendezvous; the signatures of the host's ranks and then their windows
// follow.
typedef struct message_header {
    uint32_t magic, rendezvous;
} message_header;

static size_t longest_message(const mu_topology *topology)
{
    size_t most = 0;
    for (int host = 0; host < topology->hosts; host++)
        most = MU_MAX(most, (size_t)(topology->first[host + 1] - topology->first[host]));
    return sizeof(message_header) + most * (sizeof(mu_signature) + MU_WINDOW_BYTES);
}

mu_interhost *mu__interhost_new(const mu_topology *topology, mu_stream **streams)
{
    const size_t n = (size_t)topology->hosts;
    mu_interhost *interhost = mu__calloc(1, sizeof *interhost);
    if (interhost == NULL)
        return NULL;
    *interhost = (mu_interhost){.hosts = topology->hosts, .host = topology->host};
    interhost->spans = mu__calloc(n, sizeof *interhost->spans);
    interhost->fds = mu__calloc(n, sizeof *interhost->fds);
    interhost->message = mu__alloc(longest_message(topology));
    bool whole = interhost->spans != NULL && interhost->fds != NULL && interhost->message != NULL;
    for (size_t i = 0; i < n && whole; i++)
        whole = (interhost->spans[i].buffer = mu__alloc(BUFFER_BYTES)) != NULL;
    if (!whole) {
        mu__interhost_free(interhost);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        interhost->spans[i].stream = streams[i];
    return interhost;
}

void mu__interhost_free(mu_interhost *interhost)
{
    if (interhost == NULL)
        return;
    for (int i = 0; interhost->spans != NULL && i < interhost->hosts; i++) {
        if (interhost->spans[i].stream != NULL)
            mu__stream_close(interhost->spans[i].stream);
        mu__free(interhost->spans[i].buffer);
    }
    mu__free(interhost->spans);
    mu__free(interhost->fds);
    mu__free(interhost->message);
    mu__free(interhost);
}

// ---- Moving bytes -------------------------------------------------------------------------------

static mu_interhost *interhost_of(const mu_channel *channel)
{
    return ((const mu_shm *)channel->shared)->topology.interhost;
}

static int leader_of(const mu_channel *channel, int host)
{
    return ((const mu_shm *)channel->shared)->topology.first[host];
}

static int host_of(const mu_channel *channel, int rank)
{
    const mu_topology *at = &((const mu_shm *)channel->shared)->topology;
    int host = 0;
    while (rank >= at->first[host + 1])
        host++;
    return host;
}

// On failure, notes which rank the failed connection leads to.
static mu_status trouble(mu_channel *channel, int host, mu_status status)
{
    if (status != MU_OK)
        channel->waiting_for = leader_of(channel, host);
    return status;
}

// Removes `moved` bytes from the front of the queue.
static void advance(span *l, size_t moved)
{
    int done = 0;
    for (; done < l->n_out && moved >= l->out[done].iov_len; done++)
        moved -= l->out[done].iov_len;
    l->n_out -= done;
    memmove(&l->out[0], &l->out[done], (size_t)l->n_out * sizeof l->out[0]);
    if (l->n_out > 0) {
        l->out[0].iov_base = (char *)l->out[0].iov_base + moved;
        l->out[0].iov_len -= moved;
    }
}

static mu_status push(span *l)
{
    while (l->n_out > 0) {
        const int before = l->n_out;
        size_t moved = 0;
        MU_TRY(mu__stream_send_all(l->stream, l->out, l->n_out, &moved));
        advance(l, moved);
        if (l->n_out == before)
            break;
    }
    return MU_OK;
}

static mu_status push_all(mu_channel *channel)
{
    mu_interhost *interhost = interhost_of(channel);
    for (int host = 0; host < interhost->hosts; host++)
        MU_TRY(trouble(channel, host, push(&interhost->spans[host])));
    return MU_OK;
}

// Sleeps at most POLL_MS until data can be sent, or received from `host` (-1: nothing is expected). A network without
// file descriptors is polled again after 20 us.
static void sleep_shortly(mu_interhost *interhost, int host)
{
    const span *other = &interhost->spans[interhost->host == 0 ? 1 : 0];
    if (mu__stream_fd(other->stream) < 0) {
        mu__sleep_ns(20000);
        return;
    }
    nfds_t n = 0;
    for (int i = 0; i < interhost->hosts; i++) {
        const short events = (short)((i == host ? POLLIN : 0) | (interhost->spans[i].n_out > 0 ? POLLOUT : 0));
        if (events != 0)
            interhost->fds[n++] = (struct pollfd){.fd = mu__stream_fd(interhost->spans[i].stream), .events = events};
    }
    (void)poll(interhost->fds, n, POLL_MS);
}

// One iteration of a wait for data from or to `host`.
static mu_status wait_once(mu_channel *channel, mu_backoff *backoff, int host, bool for_input)
{
    const mu_shm *shm = channel->shared;
    if (atomic_load_explicit(&shm->head->barrier.failed, memory_order_relaxed))
        return MU_ABORTED;
    MU_TRY(push_all(channel));
    if (mu__backoff_pause(backoff))
        return MU_OK;
    channel->waiting_for = leader_of(channel, host);
    MU_TRY(mu__backoff_check(backoff));
    sleep_shortly(interhost_of(channel), for_input ? host : -1);
    return MU_OK;
}

// With `now` false the data may be sent together with what is posted next.
static mu_status post(mu_channel *channel, int host, const void *data, size_t bytes, bool now)
{
    span *l = &interhost_of(channel)->spans[host];
    mu_backoff backoff = MU_BACKOFF(channel);
    while (l->n_out >= MU_SENDS_IN_FLIGHT)
        MU_TRY(wait_once(channel, &backoff, host, false));
    l->out[l->n_out++] = (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    return now ? trouble(channel, host, push(l)) : MU_OK;
}

// Short reads go through the buffer, which also receives what follows; long ones go directly into `data`.
static mu_status pull(span *l, char **data, size_t *bytes)
{
    size_t moved = 0;
    if (l->taken == l->buffered && *bytes >= BUFFER_BYTES) {
        MU_TRY(mu__stream_recv(l->stream, *data, *bytes, &moved));
    } else {
        if (l->taken == l->buffered) {
            l->taken = l->buffered = 0;
            MU_TRY(mu__stream_recv(l->stream, l->buffer, BUFFER_BYTES, &l->buffered));
        }
        moved = MU_MIN(*bytes, l->buffered - l->taken);
        memcpy(*data, l->buffer + l->taken, moved);
        l->taken += moved;
    }
    *data += moved;
    *bytes -= moved;
    return MU_OK;
}

static mu_status take(mu_channel *channel, int host, void *data, size_t bytes)
{
    span *l = &interhost_of(channel)->spans[host];
    mu_backoff backoff = MU_BACKOFF(channel);
    char *to = data;
    while (bytes > 0) {
        const size_t before = bytes;
        MU_TRY(trouble(channel, host, pull(l, &to, &bytes)));
        if (bytes < before)
            backoff = (mu_backoff)MU_BACKOFF(channel);
        else
            MU_TRY(wait_once(channel, &backoff, host, true));
    }
    return MU_OK;
}

static mu_status flush(mu_channel *channel)
{
    mu_interhost *interhost = interhost_of(channel);
    mu_backoff backoff = MU_BACKOFF(channel);
    for (int host = 0; host < interhost->hosts; host++)
        while (interhost->spans[host].n_out > 0)
            MU_TRY(wait_once(channel, &backoff, host, false));
    return MU_OK;
}

// ---- Rendezvous ---------------------------------------------------------------------------------

static void write_message(mu_channel *channel)
{
    mu_shm *shm = channel->shared;
    const mu_shm_rank *own = channel->state;
    mu_interhost *interhost = interhost_of(channel);
    unsigned char *at = interhost->message;
    memcpy(at, &(message_header){.magic = MAGIC, .rendezvous = own->n_rendezvous}, sizeof(message_header));
    at += sizeof(message_header);
    for (int rank = shm->low; rank < shm->low + shm->here; rank++, at += sizeof(mu_signature))
        memcpy(at, mu__shm_signature(channel, rank), sizeof(mu_signature));
    for (int rank = shm->low; rank < shm->low + shm->here; rank++) {
        const size_t bytes = (size_t)mu__shm_signature(channel, rank)->window;
        memcpy(at, mu__shm_area(channel, rank, MU_AREA_WINDOW), bytes);
        at += bytes;
    }
    interhost->message_bytes = (size_t)(at - interhost->message);
}

static mu_status read_message(mu_channel *channel, int host)
{
    mu_shm *shm = channel->shared;
    const mu_shm_rank *own = channel->state;
    const int low = leader_of(channel, host), high = leader_of(channel, host + 1);
    message_header first;
    MU_TRY(take(channel, host, &first, sizeof first));
    if (first.magic != MAGIC || first.rendezvous != own->n_rendezvous)
        return trouble(channel, host, MU_INTERNAL);
    for (int rank = low; rank < high; rank++) {
        MU_TRY(take(channel, host, mu__shm_signature(channel, rank), sizeof(mu_signature)));
        if (!mu__signature_can_be(mu__shm_signature(channel, rank)))
            return trouble(channel, host, MU_DATA_LOSS);
    }
    for (int rank = low; rank < high; rank++) {
        const size_t bytes = (size_t)mu__shm_signature(channel, rank)->window;
        MU_TRY(take(channel, host, mu__shm_area(channel, rank, MU_AREA_WINDOW), bytes));
        atomic_store_explicit(&shm->slots[rank].n_rendezvous, own->n_rendezvous, memory_order_relaxed);
    }
    return MU_OK;
}

// After one host misses the deadline, messages that have already arrived are still read, so that the error names only
// the missing ranks.
static mu_status read_messages(mu_channel *channel)
{
    const mu_interhost *interhost = interhost_of(channel);
    const double timeout = channel->timeout;
    mu_status status = MU_OK;
    for (int hop = interhost->hosts - 1; hop > 0 && (status == MU_OK || status == MU_DEADLINE_EXCEEDED); hop--) {
        const mu_status one = read_message(channel, (interhost->host + hop) % interhost->hosts);
        status = one == MU_OK || status != MU_OK ? status : one;
        if (status == MU_DEADLINE_EXCEEDED)
            channel->timeout = 0;
    }
    channel->timeout = timeout;
    if (status == MU_DEADLINE_EXCEEDED)
        channel->waiting_for = -1; // has_come then finds the ranks that have not arrived
    return status;
}

// Each leader begins with the next host, so that not all leaders send to the same host first.
static mu_status send_message(mu_channel *channel, bool alone)
{
    const mu_interhost *interhost = interhost_of(channel);
    MU_TRY(flush(channel));
    write_message(channel);
    for (int hop = 1; hop < interhost->hosts; hop++)
        MU_TRY(post(channel, (interhost->host + hop) % interhost->hosts, interhost->message, interhost->message_bytes,
                    alone));
    return MU_OK;
}

// Only if this host has one rank; else the leader would have to wait for the others first. Later sends are combined
// with it.
static mu_status interhost_announce(mu_channel *channel)
{
    const mu_shm *shm = channel->shared;
    mu_shm_rank *own = channel->state;
    if (shm->here > 1)
        return MU_OK;
    mu__shm_begin_rendezvous(channel);
    own->announced = true;
    return send_message(channel, false);
}

// Ranks that wait for their leader wait longer than it does, so that the leader can report who is missing.
static mu_status wait_for_leader(mu_channel *channel)
{
    const double timeout = channel->timeout;
    channel->timeout += GRACE_SECONDS;
    const mu_status status = mu__shm_barrier(channel);
    channel->timeout = timeout;
    return status;
}

static mu_status interhost_rendezvous(mu_channel *channel)
{
    const mu_shm *shm = channel->shared;
    mu_shm_rank *own = channel->state;
    if (!own->announced)
        mu__shm_begin_rendezvous(channel);
    if (shm->here > 1)
        MU_TRY(mu__shm_barrier(channel));
    if (channel->rank == shm->low && !own->announced) {
        MU_TRY(send_message(channel, true));
        if (channel->crowded)
            sched_yield(); // ranks that share this core have not sent yet, so their messages cannot be here
    }
    // If no send followed the announcement, it is still in the queue.
    if (own->announced)
        MU_TRY(push_all(channel));
    if (channel->rank == shm->low)
        MU_TRY(read_messages(channel));
    own->announced = false;
    MU_TRY(channel->rank == shm->low ? mu__shm_barrier(channel) : wait_for_leader(channel));
    own->rendezvous = false;
    return MU_OK;
}

static mu_status interhost_send(mu_channel *channel, int peer, const void *data, size_t bytes)
{
    if (mu__shm_is_here(channel->shared, peer))
        return mu__shm_send(channel, peer, data, bytes);
    return post(channel, host_of(channel, peer), data, bytes, true);
}

static mu_status interhost_recv(mu_channel *channel, int peer, void *data, size_t bytes)
{
    if (mu__shm_is_here(channel->shared, peer))
        return mu__shm_recv(channel, peer, data, bytes);
    return take(channel, host_of(channel, peer), data, bytes);
}

static mu_status interhost_flush(mu_channel *channel)
{
    const mu_shm *shm = channel->shared;
    if (channel->rank == shm->low)
        MU_TRY(flush(channel));
    return mu__shm_flush(channel);
}

const mu_transport mu__transport_interhost = {
    .name = "interhost",
    .shared_bytes = sizeof(mu_shm),
    .rank_bytes = sizeof(mu_shm_rank),
    .open = mu__shm_open,
    .close = mu__shm_close,
    .signature = mu__shm_signature,
    .locate = mu__shm_locate,
    .announce = interhost_announce,
    .rendezvous = interhost_rendezvous,
    .barrier = mu__shm_barrier,
    .area = mu__shm_area,
    .send = interhost_send,
    .recv = interhost_recv,
    .flush = interhost_flush,
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
