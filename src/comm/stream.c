// Streams: separate connections for the data of groups, opened by the higher rank of a pair.
//
// The opener connects to the address that the control connection uses and names the stream and both processes, so that
// a process of an earlier job is rejected. At the other end the mesh's thread accepts the stream and keeps it until a
// caller asks for it by name.
#include "comm/mesh_private.h"

#include <errno.h>
#include <poll.h>

// A stream over a connection of the mesh.
typedef struct link_stream {
    mu_stream head; // must be first
    mu_link *link;
} link_stream;

enum { MAX_PENDING = 4096, MOST_TRIES = 20, PAUSE_NS = 200000000 };

void mu__pending_streams_end(mu_mesh *mesh)
{
    for (size_t i = 0; i < mesh->pending_streams.n; i++)
        mu__link_free(mesh->pending_streams.items[i].link);
    mu__free(mesh->pending_streams.items);
}

void mu__equals_stream(mu_node *node, mu_handshake *handshake, const mu_hello *hello)
{
    mu_mesh *mesh = mu__mesh_of(node);
    mu_pending_stream pending = {.link = handshake->link, .rank = hello->rank};
    memcpy(pending.name, hello->stream, sizeof pending.name);
    handshake->link = NULL;
    mu__handshake_end(handshake);
    // The mesh's thread no longer polls this descriptor.
    mu__system->poller_unset(node->poller, mu__link_fd(pending.link));
    mu_error_value ignored;
    if (mesh->pending_streams.n >= MAX_PENDING || MU_PUSH(&mesh->pending_streams, pending) != MU_OK)
        mu__link_free(pending.link);
    mu__error_move(&ignored);
    pthread_cond_broadcast(&mesh->changed);
}

// ---- The accepting side -------------------------------------------------------------------------

// Index of the oldest such stream; items.n if there is none.
static size_t find_pending(const mu_mesh *mesh, int rank, const char *name)
{
    size_t i = 0;
    while (i < mesh->pending_streams.n &&
           (mesh->pending_streams.items[i].rank != rank || strcmp(mesh->pending_streams.items[i].name, name) != 0))
        i++;
    return i;
}

static mu_link *take_pending(mu_mesh *mesh, int rank, const char *name)
{
    const size_t i = find_pending(mesh, rank, name);
    if (i == mesh->pending_streams.n)
        return NULL;
    mu_pending_stream *pending = &mesh->pending_streams.items[i];
    mu_link *link = pending->link;
    memmove(pending, pending + 1, (--mesh->pending_streams.n - i) * sizeof *pending);
    return link;
}

static bool is_rank(const void *arg, int rank) { return *(const int *)arg == rank; }

static mu_link *await_pending(mu_mesh *mesh, int rank, const char *name)
{
    const int64_t deadline = mu__deadline_ns(mesh->timeout);
    mu_lateness lateness = mu__lateness();
    char what[MU_MAX_STREAM_NAME + 32], who[400];
    snprintf(what, sizeof what, "the stream \"%s\"", name);
    for (;;) {
        // The opener may have left since; what it sent can still be read.
        pthread_mutex_lock(&mesh->lock);
        mu_link *link = take_pending(mesh, rank, name);
        pthread_mutex_unlock(&mesh->lock);
        if (link != NULL)
            return link;
        if (mu__mesh_check(mesh, rank) != MU_OK)
            return NULL;
        pthread_mutex_lock(&mesh->lock);
        const mu_status status = find_pending(mesh, rank, name) < mesh->pending_streams.n ? MU_OK :
            mu__mesh_pause(mesh);
        pthread_mutex_unlock(&mesh->lock);
        if (status != MU_OK)
            return NULL;
        mu__mesh_late(mesh, &lateness, what, is_rank, &rank);
        if (mu__now_ns() < deadline)
            continue;
        mu__mesh_late_text(mesh, is_rank, &rank, who, sizeof who);
        mu__error(MU_DEADLINE_EXCEEDED, "waited %g s (MUSTER_TIMEOUT) for %s from %s", mesh->timeout, what, who);
        return NULL;
    }
}

// ---- The opening side ---------------------------------------------------------------------------

typedef struct opening {
    mu_mesh *mesh;
    int rank;
    const mu_endpoint *at;
    const char *name;
    int64_t deadline_ns;
    bool cut_off; // the connection was closed or interrupted before the other end accepted the stream
} opening;

static mu_status cannot_open(const opening *o, const char *why)
{
    // If the mesh knows that the peer died, that is the better reason.
    MU_TRY(mu__mesh_check(o->mesh, o->rank));
    return mu__error(MU_UNAVAILABLE, "cannot open the stream \"%s\" to %s (%s): %s", o->name,
                     o->mesh->peers[o->rank].name, mu__peer_where(&o->mesh->peers[o->rank]), why);
}

static mu_status sleep_on(const opening *o, int fd, short events)
{
    // Data that has arrived counts, even if the peer has left or the job has failed since.
    if (mu__system->wait(fd, events, o->deadline_ns))
        return MU_OK;
    MU_TRY(mu__mesh_check(o->mesh, o->rank));
    MU_TRY(mu__check_stop());
    return mu__now_ns() < o->deadline_ns ? MU_OK : cannot_open(o, "no answer in time (MUSTER_TIMEOUT)");
}

static mu_status connect_socket(opening *o, int *out)
{
    const int fd = mu__system->connect(o->at, &o->mesh->node.from);
    *out = fd;
    if (fd < 0)
        return cannot_open(o, mu__network_reason(errno));
    int error = mu__system->connect_result(fd);
    while (error == EINPROGRESS) {
        MU_TRY(sleep_on(o, fd, POLLOUT));
        error = mu__system->connect_result(fd);
    }
    mu__system->settle(fd, o->mesh->node.heartbeat_seconds * 1.5);
    o->cut_off = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    return error == 0 ? MU_OK : cannot_open(o, mu__network_reason(error));
}

static mu_status shake_hands(opening *o, mu_handshake *handshake)
{
    for (;;) {
        bool done;
        const mu_status status = mu__link_shake(handshake->link, &done);
        o->cut_off = status == MU_UNAVAILABLE;
        if (status != MU_OK)
            return cannot_open(o, mu__link_reason(handshake->link));
        if (done)
            return MU_OK;
        MU_TRY(sleep_on(o, mu__link_fd(handshake->link), mu__link_events(handshake->link)));
    }
}

static mu_status check_welcome(const opening *o, const mu_frame *frame)
{
    mu_hello hello;
    mu_failure news;
    if (frame->type == MU_FRAME_REFUSE && mu__frame_failure(frame, &news))
        return cannot_open(o, news.message);
    if (frame->type != MU_FRAME_WELCOME || !mu__frame_hello(frame, &hello) || hello.rank != o->rank ||
        memcmp(hello.incarnation, mu__peer_session(o->mesh, o->rank)->incarnation, MU_INCARNATION) != 0)
        return cannot_open(o, "another process listens there now");
    return MU_OK;
}

static mu_status introduce(opening *o, mu_handshake *handshake)
{
    mu_hello hello;
    mu__node_hello(&o->mesh->node, o->rank, &hello);
    memcpy(hello.peer, mu__peer_session(o->mesh, o->rank)->incarnation, sizeof hello.peer);
    memcpy(hello.stream, o->name, strlen(o->name) + 1);
    MU_TRY(mu__frame_put_hello(&handshake->out, 0, MU_FRAME_HELLO, &hello));
    for (;;) {
        mu_frame frame = {0};
        bool all;
        mu_status status = mu__handshake_flush(handshake, &all);
        if (status == MU_OK && all)
            status = mu__frames_next(&handshake->frames, handshake->link, &frame);
        o->cut_off = status == MU_UNAVAILABLE;
        if (status != MU_OK)
            return cannot_open(o, "connection closed");
        if (frame.type != 0)
            return check_welcome(o, &frame);
        MU_TRY(sleep_on(o, mu__link_fd(handshake->link), mu__handshake_events(handshake)));
    }
}

static mu_link *try_to_open(opening *o)
{
    mu_handshake handshake = {0};
    int fd = -1;
    mu_link *link = NULL;
    mu_status status = MU_OK;
    o->cut_off = false;
    MU_GO(connect_socket(o, &fd));
    handshake.link = mu__link_new(o->mesh->node.keyring, fd, true, o->mesh->rank, o->rank);
    fd = -1;
    if (handshake.link == NULL)
        return NULL;
    MU_GO(shake_hands(o, &handshake));
    MU_GO(introduce(o, &handshake));
    link = handshake.link;
    handshake.link = NULL;
out:
    if (fd >= 0)
        mu__system->close(fd);
    mu__handshake_end(&handshake);
    return status == MU_OK ? link : NULL;
}

// The other end closes a connection that does not prove the key quickly, and an interrupted network may take longer;
// then the opener retries until the mesh considers the peer lost.
static mu_link *open_link(mu_mesh *mesh, int rank, const mu_endpoint *at, const char *name, double seconds)
{
    opening o = {.mesh = mesh, .rank = rank, .at = at, .name = name, .deadline_ns = mu__deadline_ns(seconds)};
    mu_error_value why;
    for (int tries = 1;; tries++) {
        mu_link *link = try_to_open(&o);
        if (link != NULL || !o.cut_off || tries == MOST_TRIES || mu__now_ns() + PAUSE_NS >= o.deadline_ns)
            return link;
        mu__error_move(&why);
        mu__sleep_ns(PAUSE_NS);
        if (mu__mesh_check(mesh, rank) != MU_OK || mu__check_stop() != MU_OK)
            return NULL;
    }
}

// ---- Streams ------------------------------------------------------------------------------------

static mu_status link_send(mu_stream *stream, const void *data, size_t bytes, size_t *moved)
{
    return mu__link_send(((link_stream *)stream)->link, data, bytes, moved);
}

static mu_status link_send_all(mu_stream *stream, const struct iovec *extents, int n, size_t *moved)
{
    return mu__link_send_all(((link_stream *)stream)->link, extents, n, moved);
}

static mu_status link_recv(mu_stream *stream, void *data, size_t bytes, size_t *moved)
{
    return mu__link_recv(((link_stream *)stream)->link, data, bytes, moved);
}

static int link_fd(const mu_stream *stream) { return mu__link_fd(((const link_stream *)stream)->link); }

static void link_close(mu_stream *stream)
{
    mu__link_free(((link_stream *)stream)->link);
    mu__free(stream);
}

static const mu_stream_ops link_ops = {
    .send = link_send, .send_all = link_send_all, .recv = link_recv, .fd = link_fd, .close = link_close};

static mu_stream *stream_of(mu_link *link)
{
    link_stream *stream = mu__calloc(1, sizeof *stream);
    if (stream == NULL) {
        mu__link_free(link);
        return NULL;
    }
    *stream = (link_stream){.head = {.ops = &link_ops}, .link = link};
    return &stream->head;
}

mu_stream *mu__mesh_stream(mu_mesh *mesh, int rank, const char *name)
{
    if (mu__pending())
        return NULL;
    const size_t length = strlen(name);
    if (rank < 0 || rank >= mesh->ranks || rank == mesh->rank || length == 0 || length > MU_MAX_STREAM_NAME) {
        mu__error(MU_INVALID_ARGUMENT,
                  "the stream \"%.130s\" to rank %d is not valid; expected another rank of %d and a name of 1 to %d "
                  "bytes",
                  name, rank, mesh->ranks, MU_MAX_STREAM_NAME);
        return NULL;
    }
    if (mu__mesh_check(mesh, -1) != MU_OK)
        return NULL;
    const mu_endpoint *at = &mu__peer_session(mesh, rank)->endpoint;
    mu_link *link = rank < mesh->rank ? open_link(mesh, rank, at, name, mesh->timeout)
                                      : await_pending(mesh, rank, name);
    return link != NULL ? stream_of(link) : NULL;
}

mu_stream *mu__stream_at(mu_mesh *mesh, int rank, const mu_endpoint *at, const char *name, double seconds)
{
    mu_link *link = open_link(mesh, rank, at, name, seconds);
    return link != NULL ? stream_of(link) : NULL;
}

void mu__stream_close(mu_stream *stream)
{
    if (stream != NULL)
        stream->ops->close(stream);
}

mu_status mu__stream_send(mu_stream *stream, const void *data, size_t bytes, size_t *moved)
{
    return stream->ops->send(stream, data, bytes, moved);
}

mu_status mu__stream_send_all(mu_stream *stream, const struct iovec *extents, int n, size_t *moved)
{
    return stream->ops->send_all != NULL ? stream->ops->send_all(stream, extents, n, moved)
                                         : stream->ops->send(stream, extents[0].iov_base, extents[0].iov_len, moved);
}

mu_status mu__stream_recv(mu_stream *stream, void *data, size_t bytes, size_t *moved)
{
    return stream->ops->recv(stream, data, bytes, moved);
}

int mu__stream_fd(const mu_stream *stream) { return stream->ops->fd(stream); }
