// Incoming connections: untrusted until they have proven the key and identified themselves.
//
// An accepted connection comes from a higher rank that joins, or from a process of the job that opens a stream; all
// others are closed. Each has little time and few are allowed, so that connections which never identify themselves
// cannot exhaust this process. If no entry is free, the oldest connection of the address with the most connections is
// closed, so that one host cannot displace the connections of another. Only some are accepted per iteration, so that
// existing ones can finish first.
#include "comm/mesh_private.h"

#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#define INCOMING_NS 10000000000
enum { AT_ONCE = MU_MAX_INCOMING / 4 };

static void send_away(mu_incoming *in)
{
    mu__handshake_end(&in->handshake);
    *in = (mu_incoming){0};
}

void mu__incoming_end(mu_mesh *mesh)
{
    for (int i = 0; i < MU_MAX_INCOMING; i++)
        if (mesh->incoming[i].handshake.link != NULL)
            send_away(&mesh->incoming[i]);
}

void mu__incoming_poll(mu_mesh *mesh, int64_t now)
{
    for (int i = 0; i < MU_MAX_INCOMING; i++)
        if (mesh->incoming[i].handshake.link != NULL && now >= mesh->incoming[i].deadline_ns)
            send_away(&mesh->incoming[i]);
}

// Whether two connections have the same source: an IPv4 address, or the network part of an IPv6 address.
static bool same_source(const mu_endpoint *a, const mu_endpoint *b)
{
    if (a->address.ss_family != b->address.ss_family)
        return false;
    if (a->address.ss_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)&a->address)->sin6_addr,
                      &((const struct sockaddr_in6 *)&b->address)->sin6_addr, 8) == 0;
    return ((const struct sockaddr_in *)&a->address)->sin_addr.s_addr ==
           ((const struct sockaddr_in *)&b->address)->sin_addr.s_addr;
}

static int count_from(const mu_mesh *mesh, const mu_endpoint *there)
{
    int n = 0;
    for (int i = 0; i < MU_MAX_INCOMING; i++)
        n += same_source(&mesh->incoming[i].there, there);
    return n;
}

static int free_place(mu_mesh *mesh)
{
    int worst = 0, most = 0;
    for (int i = 0; i < MU_MAX_INCOMING; i++)
        if (mesh->incoming[i].handshake.link == NULL)
            return i;
    for (int i = 0; i < MU_MAX_INCOMING; i++) {
        const int n = count_from(mesh, &mesh->incoming[i].there);
        if (n < most || (n == most && mesh->incoming[i].deadline_ns >= mesh->incoming[worst].deadline_ns))
            continue;
        worst = i;
        most = n;
    }
    send_away(&mesh->incoming[worst]);
    return worst;
}

static void take_in(mu_mesh *mesh, int fd, int64_t now)
{
    mu_endpoint there;
    mu_error_value ignored;
    if (!mu__endpoint_there(fd, &there) || (!mesh->open && !mu__endpoint_is_loopback(&there))) {
        close(fd);
        return;
    }
    const int place = free_place(mesh);
    mu_incoming *in = &mesh->incoming[place];
    mu__socket_settle(fd, mesh->heartbeat_seconds * 1.5);
    in->handshake.link = mu__link_new(mesh->keyring, fd, false, mesh->rank, -1);
    in->deadline_ns = now + INCOMING_NS;
    in->there = there;
    mu__error_move(&ignored);
    if (in->handshake.link == NULL)
        return;
    mu__mesh_listen_for(mesh, fd, MU_SOURCE_INCOMING, place, POLLIN);
    mu__incoming_event(mesh, place, now);
}

void mu__incoming_accept(mu_mesh *mesh, int listener, int64_t now)
{
    for (int i = 0, fd; i < AT_ONCE && (fd = mu__accept(listener)) >= 0; i++)
        take_in(mesh, fd, now);
}

// ---- Purpose of an incoming connection ----------------------------------------------------------

// Whether this process may join; if not, fills `why`.
static bool may_join(mu_mesh *mesh, const mu_hello *hello, mu_failure *why, int64_t now)
{
    mu_peer *peer = &mesh->peers[MU_MIN(hello->rank, mesh->ranks - 1)];
    const size_t bytes = sizeof why->message;
    *why = (mu_failure){.code = MU_UNAVAILABLE};
    if (mesh->joined && mesh->failure.code != MU_OK)
        snprintf(why->message, bytes, "the job that runs there has failed and is ending");
    else if (mesh->joined && hello->ranks == mesh->ranks && peer->state == MU_PEER_HERE)
        mu__refusal_of_twin(mesh, hello, why, now);
    else if (mesh->joined)
        snprintf(why->message, bytes, "a job runs there already, without this process; it must end first");
    else if (mesh->failure.code != MU_OK || mu__hello_differs(mesh, hello, why->message, bytes)) {
        why->code = MU_FAILED_PRECONDITION;
        mu__mesh_fail_text(mesh, why->code, "%s", why->message);
        why->code = mesh->failure.code;
        snprintf(why->message, bytes, "%s", mesh->failure.message);
        peer->told = true;
    } else if (hello->rank <= mesh->rank)
        snprintf(why->message, bytes, "rank %d must not connect to rank %d", hello->rank, mesh->rank);
    else if (peer->state == MU_PEER_HERE)
        mu__refusal_of_twin(mesh, hello, why, now);
    else
        return true;
    return false;
}

static bool may_stream(const mu_mesh *mesh, const mu_hello *hello, mu_failure *why)
{
    *why = (mu_failure){.code = MU_UNAVAILABLE, .message = "the stream belongs to another job"};
    return hello->ranks == mesh->ranks && mesh->peers[hello->rank].state == MU_PEER_HERE &&
           memcmp(hello->incarnation, mesh->peers[hello->rank].incarnation, MU_INCARNATION) == 0 &&
           memcmp(hello->peer, mesh->incarnation, MU_INCARNATION) == 0;
}

// Returns false if the connection must be closed at once.
static bool answer(mu_mesh *mesh, mu_incoming *in, int64_t now)
{
    mu_frame frame;
    mu_failure why;
    mu_hello own;
    if (mu__frames_next(&in->handshake.frames, in->handshake.link, &frame) != MU_OK)
        return false;
    if (frame.type == 0)
        return true;
    if (frame.type != MU_FRAME_HELLO || !mu__frame_hello(&frame, &in->hello))
        return false;
    const mu_hello *hello = &in->hello;
    if (hello->to != mesh->rank || hello->rank != mu__link_from(in->handshake.link))
        return false;
    in->answered = true;
    in->refused = !(hello->stream[0] == '\0' ? may_join(mesh, hello, &why, now) : may_stream(mesh, hello, &why));
    if (in->refused)
        return mu__frame_put_failure(&in->handshake.out, 0, MU_FRAME_REFUSE, &why) == MU_OK;
    mu__hello_fill(mesh, hello->rank, &own);
    return mu__frame_put_hello(&in->handshake.out, 0, MU_FRAME_WELCOME, &own) == MU_OK;
}

// An admitted connection becomes a peer or a stream.
static void let_in(mu_mesh *mesh, mu_incoming *in)
{
    bool all;
    if (mu__handshake_flush(&in->handshake, &all) != MU_OK || (all && in->refused)) {
        send_away(in);
        return;
    }
    if (!all)
        return;
    mu_incoming taken = *in;
    *in = (mu_incoming){0};
    if (taken.hello.stream[0] == '\0')
        mu__peer_take(mesh, &taken.hello, &taken.handshake);
    else
        mu__stream_arrived(mesh, &taken.handshake, &taken.hello);
}

void mu__incoming_event(mu_mesh *mesh, int index, int64_t now)
{
    mu_incoming *in = &mesh->incoming[index];
    mu_error_value ignored;
    if (in->handshake.link == NULL)
        return;
    const mu_status shaken = in->shaken ? MU_OK : mu__link_shake(in->handshake.link, &in->shaken);
    if (shaken != MU_OK) {
        mu__refusal_by_proof(mesh, in, shaken);
        mu__log(MU_LOG_DEBUG, "a connection was refused: %s", mu__link_reason(in->handshake.link));
        send_away(in);
        return;
    }
    const bool good = !in->shaken || in->answered || answer(mesh, in, now);
    mu__error_move(&ignored);
    if (!good)
        send_away(in);
    else if (in->answered)
        let_in(mesh, in);
    if (in->handshake.link != NULL)
        mu__mesh_listen_for(mesh, mu__link_fd(in->handshake.link), MU_SOURCE_INCOMING, index,
                            mu__handshake_events(&in->handshake));
}
