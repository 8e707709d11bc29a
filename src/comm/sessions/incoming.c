// Incoming connections: untrusted until they have proven the key and identified themselves.
//
// Who is admitted is the membership policy's decision. Each connection has little time and few are allowed, so that
// connections which never identify themselves cannot exhaust this process. If no entry is free, the oldest connection
// of the address with the most connections is closed, so that one host cannot displace the connections of another. Only
// some are accepted per iteration, so that existing ones can finish first.
#include "comm/sessions/session.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>

#define INCOMING_NS 10000000000
#define REST_NS     100000000 // how long listeners rest when this process has no descriptor for a connection
enum { AT_ONCE = MU_MAX_INCOMING / 4 };

static void send_away(mu_incoming *in)
{
    mu__handshake_end(&in->handshake);
    *in = (mu_incoming){0};
}

void mu__incoming_end(mu_node *node)
{
    for (int i = 0; i < MU_MAX_INCOMING; i++)
        if (node->incoming[i].handshake.link != NULL)
            send_away(&node->incoming[i]);
}

static void watch_listeners(mu_node *node, short events)
{
    for (int i = 0; i < node->listener.n; i++)
        mu__node_watch(node, node->listener.fds[i], MU_SOURCE_LISTENER, i, events);
}

// A connection that cannot be taken leaves its listener ready, so that the node would not sleep any more.
static void rest(mu_node *node, int error, int64_t now)
{
    if (!node->warned_of_rest)
        mu__log(MU_LOG_WARNING,
                "connections wait until they can be accepted: %s (`ulimit -n` is the number of descriptors that a "
                "process may have)",
                strerror(error));
    node->warned_of_rest = true;
    node->rests_until_ns = now + REST_NS;
    watch_listeners(node, 0);
}

static void end_rest(mu_node *node, int64_t now, int64_t *next)
{
    if (node->rests_until_ns > now) {
        mu__sooner(next, node->rests_until_ns);
    } else if (node->rests_until_ns != 0) {
        node->rests_until_ns = 0;
        watch_listeners(node, POLLIN);
    }
}

void mu__incoming_poll(mu_node *node, int64_t now, int64_t *next)
{
    end_rest(node, now, next);
    for (int i = 0; i < MU_MAX_INCOMING; i++) {
        mu_incoming *in = &node->incoming[i];
        if (in->handshake.link != NULL && now >= in->deadline_ns)
            send_away(in);
        if (in->handshake.link != NULL)
            mu__sooner(next, in->deadline_ns);
    }
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

static int count_from(const mu_node *node, const mu_endpoint *there)
{
    int n = 0;
    for (int i = 0; i < MU_MAX_INCOMING; i++)
        n += same_source(&node->incoming[i].there, there);
    return n;
}

static int free_slot(mu_node *node)
{
    int worst = 0, most = 0;
    for (int i = 0; i < MU_MAX_INCOMING; i++)
        if (node->incoming[i].handshake.link == NULL)
            return i;
    for (int i = 0; i < MU_MAX_INCOMING; i++) {
        const int n = count_from(node, &node->incoming[i].there);
        if (n < most || (n == most && node->incoming[i].deadline_ns >= node->incoming[worst].deadline_ns))
            continue;
        worst = i;
        most = n;
    }
    send_away(&node->incoming[worst]);
    return worst;
}

static void take_in(mu_node *node, int fd, int64_t now)
{
    mu_endpoint there;
    mu_error_value ignored;
    if (!mu__system->endpoint(fd, true, &there) || (!node->open && !mu__endpoint_is_loopback(&there))) {
        mu__system->close(fd);
        return;
    }
    const int slot = free_slot(node);
    mu_incoming *in = &node->incoming[slot];
    mu__system->settle(fd, node->heartbeat_seconds * 1.5);
    in->handshake.link = mu__link_new(node->keyring, fd, false, node->own.rank, -1);
    in->deadline_ns = now + INCOMING_NS;
    in->there = there;
    mu__error_move(&ignored);
    if (in->handshake.link == NULL)
        return;
    mu__link_accept(in->handshake.link, node->accepts);
    mu__node_watch(node, fd, MU_SOURCE_INCOMING, slot, POLLIN);
    mu__incoming_event(node, slot, now);
}

void mu__incoming_accept(mu_node *node, int listener, int64_t now)
{
    int fd = 0;
    for (int i = 0; i < AT_ONCE && (fd = mu__system->accept(listener)) >= 0; i++)
        take_in(node, fd, now);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        rest(node, errno, now);
}

// ---- Admission ----------------------------------------------------------------------------------

// Returns false if the connection must be closed at once.
static bool answer(mu_node *node, mu_incoming *in, int64_t now)
{
    mu_frame frame;
    mu_failure why = {.code = MU_UNAVAILABLE};
    mu_hello own;
    if (mu__frames_next(&in->handshake.frames, in->handshake.link, &frame) != MU_OK)
        return false;
    if (frame.type == 0)
        return true;
    if (frame.type != MU_FRAME_HELLO || !mu__frame_hello(&frame, &in->hello))
        return false;
    const mu_hello *hello = &in->hello;
    if (hello->to != node->own.rank || hello->rank != mu__link_from(in->handshake.link))
        return false;
    in->answered = true;
    in->member = node->membership->admit(node, hello, &why, now);
    in->refused = in->member < 0;
    if (in->refused)
        return mu__frame_put_failure(&in->handshake.out, 0, MU_FRAME_REFUSE, &why) == MU_OK;
    mu__node_hello(node, hello->rank, &own);
    return mu__frame_put_hello(&in->handshake.out, 0, MU_FRAME_WELCOME, &own) == MU_OK;
}

// An admitted connection becomes a session or a stream. Two connections of one process may be admitted before either
// has its answer: the first one counts.
static void let_in(mu_node *node, mu_incoming *in, int64_t now)
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
    if (taken.hello.stream[0] != '\0')
        node->membership->stream(node, &taken.handshake, &taken.hello);
    else if (mu__session_is_open(&node->members[taken.member]->session))
        mu__handshake_end(&taken.handshake);
    else
        mu__session_open(node, taken.member, &taken.hello, &taken.handshake, now);
}

void mu__incoming_event(mu_node *node, int index, int64_t now)
{
    mu_incoming *in = &node->incoming[index];
    mu_error_value ignored;
    if (in->handshake.link == NULL)
        return;
    const mu_status shaken = in->shaken ? MU_OK : mu__link_shake(in->handshake.link, &in->shaken);
    if (shaken != MU_OK) {
        if (node->membership->refused != NULL)
            node->membership->refused(node, &in->there, in->handshake.link, shaken);
        mu__log(MU_LOG_DEBUG, "a connection was refused: %s", mu__link_reason(in->handshake.link));
        send_away(in);
        return;
    }
    const bool good = !in->shaken || in->answered || answer(node, in, now);
    mu__error_move(&ignored);
    if (!good)
        send_away(in);
    else if (in->answered)
        let_in(node, in, now);
    if (in->handshake.link != NULL)
        mu__node_watch(node, mu__link_fd(in->handshake.link), MU_SOURCE_INCOMING, index,
                       mu__handshake_events(&in->handshake));
}
