// Streams: separate connections for the data of groups, opened by the higher rank of a pair.
//
// The opener connects to the address that the control connection uses and names the stream and both processes, so that
// a process of an earlier job is rejected (stream_open.c). At the other end the mesh's thread accepts the stream and
// keeps it until a caller asks for it by name.
#include "comm/mesh/mesh_private.h"

// A stream over a connection of the mesh.
typedef struct link_stream {
    mu_stream head; // must be first
    mu_link *link;
} link_stream;

// ---- Streams that the other end has opened ------------------------------------------------------

enum { MAX_PENDING = 4096 };

void mu__pending_streams_end(mu_mesh *mesh)
{
    for (size_t i = 0; i < mesh->pending_streams.n; i++)
        mu__link_free(mesh->pending_streams.items[i].link);
    mu__free(mesh->pending_streams.items);
}

void mu__peers_stream(mu_node *node, mu_handshake *handshake, const mu_hello *hello)
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

// Index of the oldest such stream; items.n if there is none.
static size_t find_pending(const mu_mesh *mesh, int rank, const char *name)
{
    size_t i = 0;
    while (i < mesh->pending_streams.n &&
           (mesh->pending_streams.items[i].rank != rank || strcmp(mesh->pending_streams.items[i].name, name) != 0))
        i++;
    return i;
}

bool mu__pending_stream_has(const mu_mesh *mesh, int rank, const char *name)
{
    return find_pending(mesh, rank, name) < mesh->pending_streams.n;
}

mu_link *mu__pending_stream_take(mu_mesh *mesh, int rank, const char *name)
{
    const size_t i = find_pending(mesh, rank, name);
    if (i == mesh->pending_streams.n)
        return NULL;
    mu_pending_stream *pending = &mesh->pending_streams.items[i];
    mu_link *link = pending->link;
    memmove(pending, pending + 1, (--mesh->pending_streams.n - i) * sizeof *pending);
    return link;
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

mu_stream *mu__stream_of(mu_link *link)
{
    link_stream *stream = mu__calloc(1, sizeof *stream);
    if (stream == NULL) {
        mu__link_free(link);
        return NULL;
    }
    *stream = (link_stream){.head = {.ops = &link_ops}, .link = link};
    return &stream->head;
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
