// Dialling: opens a connection to a process by its name, proves the key, says who this process is, and becomes a
// session when the other end welcomes it.
//
// Every address of the name is tried; then the membership policy hears that the process was not reached and decides
// when to try again.
#include "comm/sessions/session.h"

#include <errno.h>
#include <poll.h>

// A connection that is begun while the network is cut hears nothing before the kernel sends again, which it does more
// and more rarely: after a heartbeat a new one is quicker. The least leaves time for slow machines.
#define CONNECT_SECONDS 5.0
#define SHAKE_SECONDS   10.0
#define LEAST_SECONDS   2.0
#define LOOKUP_NS       5000000 // how often an unfinished look-up is asked

static mu_dial *dial_of(mu_node *node, int member) { return &node->members[member]->dial; }

static int64_t deadline_of(const mu_node *node, double most, int64_t now)
{
    return now + (int64_t)(MU_MIN(MU_MAX(node->heartbeat_seconds, LEAST_SECONDS), most) * 1e9);
}

void mu__dial_end(mu_dial *dial)
{
    mu__handshake_end(&dial->handshake);
    if (dial->state == MU_DIAL_CONNECT)
        mu__system->close(dial->fd);
    mu__system->lookup_drop(dial->lookup);
    dial->lookup = NULL;
    dial->state = MU_DIAL_IDLE;
}

static void give_reason(mu_dial *dial, const char *why)
{
    snprintf(dial->reason, sizeof dial->reason, "%.*s", (int)sizeof dial->reason - 1, why);
}

// Of the address at which the last session was: what others say of their addresses does not concern that process.
static void note_error(mu_dial *dial, int error)
{
    const mu_endpoint *tried = &dial->endpoints.items[dial->endpoint], *reached = &dial->reached;
    dial->refused_there |= error == ECONNREFUSED && tried->bytes == reached->bytes &&
                           memcmp(&tried->address, &reached->address, reached->bytes) == 0;
    give_reason(dial, mu__network_reason(error));
}

static void unreached(mu_node *node, int member, int64_t now)
{
    mu__dial_end(dial_of(node, member));
    if (node->membership->unreached != NULL)
        node->membership->unreached(node, member, now);
}

// Tries the next address, starting at dial->endpoint.
static void connect_next(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    mu__handshake_end(&dial->handshake);
    for (; dial->endpoint < dial->endpoints.n; dial->endpoint++) {
        dial->fd = mu__system->connect(&dial->endpoints.items[dial->endpoint], &node->from);
        if (dial->fd >= 0) {
            dial->state = MU_DIAL_CONNECT;
            dial->deadline_ns = deadline_of(node, CONNECT_SECONDS, now);
            mu__node_watch(node, dial->fd, MU_SOURCE_DIAL, member, POLLOUT);
            return;
        }
        note_error(dial, errno);
    }
    unreached(node, member, now);
}

// Tries the next address; the dial has the reason.
static void try_next(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    if (dial->state == MU_DIAL_CONNECT)
        mu__system->close(dial->fd);
    dial->state = MU_DIAL_LOOKUP; // without a connection
    dial->endpoint++;
    connect_next(node, member, now);
}

static void endpoint_failed(mu_node *node, int member, const char *reason, int64_t now)
{
    give_reason(dial_of(node, member), reason);
    try_next(node, member, now);
}

static void looked_up(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    const char *reason;
    if (!mu__system->lookup_done(dial->lookup, &dial->endpoints, &reason))
        return;
    mu__system->lookup_drop(dial->lookup);
    dial->lookup = NULL;
    dial->endpoint = 0;
    if (dial->endpoints.n == 0)
        give_reason(dial, reason);
    for (int i = 0; !node->open && i < dial->endpoints.n; i++)
        dial->not_open = dial->not_open || !mu__endpoint_is_loopback(&dial->endpoints.items[i]);
    if (dial->not_open)
        unreached(node, member, now);
    else
        connect_next(node, member, now);
}

void mu__dial_start(mu_node *node, int member, const char *address, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    char host[MU_MAX_HOST + 1];
    int port;
    mu_error_value error = {.code = MU_OK};
    dial->refused.code = MU_OK;
    dial->not_open = false;
    if (mu__address_split(address, host, &port) == MU_OK)
        dial->lookup = mu__system->lookup_start(host, port);
    mu__error_move(&error);
    if (dial->lookup == NULL) {
        give_reason(dial, error.message);
        unreached(node, member, now);
        return;
    }
    dial->state = MU_DIAL_LOOKUP;
    looked_up(node, member, now);
}

// ---- The connection -----------------------------------------------------------------------------

static void welcomed(mu_node *node, int member, const mu_hello *hello, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    if (node->membership->welcomed != NULL && !node->membership->welcomed(node, member, hello)) {
        mu__dial_end(dial);
        return;
    }
    mu_handshake taken = dial->handshake;
    dial->handshake = (mu_handshake){0};
    dial->state = MU_DIAL_IDLE;
    dial->reached = dial->endpoints.items[dial->endpoint];
    dial->refused_there = false;
    if (mu__session_is_open(&node->members[member]->session))
        mu__handshake_end(&taken); // it has come itself meanwhile
    else
        mu__session_open(node, member, hello, &taken, now);
}

static void answered(mu_node *node, int member, const mu_frame *frame, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    mu_hello hello;
    mu_failure failure;
    char text[600];
    if (frame->type == MU_FRAME_WELCOME && mu__frame_hello(frame, &hello) && hello.to == node->own.rank &&
        hello.rank == mu__link_from(dial->handshake.link)) {
        welcomed(node, member, &hello, now);
    } else if (frame->type == MU_FRAME_REFUSE && mu__frame_failure(frame, &failure)) {
        dial->refused = failure;
        snprintf(text, sizeof text, "it says: %.500s", failure.message);
        endpoint_failed(node, member, text, now);
    } else {
        endpoint_failed(node, member, "its answer was damaged", now);
    }
}

static void connected(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    const int error = mu__system->connect_result(dial->fd);
    if (error == EINPROGRESS)
        return;
    if (error != 0) {
        note_error(dial, error);
        try_next(node, member, now);
        return;
    }
    mu__system->settle(dial->fd, node->heartbeat_seconds * 1.5);
    dial->handshake.link = mu__link_new(node->keyring, dial->fd, true, node->own.rank, member);
    if (dial->handshake.link != NULL)
        mu__link_accept(dial->handshake.link, node->accepts);
    if (dial->handshake.link != NULL && dial->offers > 0)
        mu__link_speak(dial->handshake.link, dial->offers);
    dial->state = MU_DIAL_SHAKE;
    dial->deadline_ns = deadline_of(node, SHAKE_SECONDS, now);
    mu_error_value error_value = {.code = MU_OK};
    mu__error_move(&error_value);
    if (dial->handshake.link == NULL)
        endpoint_failed(node, member, error_value.message, now);
}

// An end that answered with an older version and hung up takes only that (link.c): once, it is offered.
static bool offers_older(mu_dial *dial, const mu_node *node)
{
    const int answered = mu__link_version(dial->handshake.link);
    const bool again = dial->offers == 0 && answered < mu__keyring_version(node->keyring);
    dial->offers = again ? answered : 0;
    return again;
}

static void shake(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    bool done;
    const mu_status status = mu__link_shake(dial->handshake.link, &done);
    // A process that cannot prove the key may be anybody: it is reported, and the connection is retried.
    if (status == MU_UNAUTHENTICATED || status == MU_FAILED_PRECONDITION)
        dial->unproven = status;
    if (status != MU_OK) {
        char reason[200];
        snprintf(reason, sizeof reason, "%s", mu__link_reason(dial->handshake.link));
        if (offers_older(dial, node)) {
            dial->state = MU_DIAL_LOOKUP; // the same address again
            connect_next(node, member, now);
            return;
        }
        endpoint_failed(node, member, reason, now);
        return;
    }
    if (!done)
        return;
    dial->unproven = MU_OK;
    mu_hello hello;
    mu__node_hello(node, member, &hello);
    if (mu__frame_put_hello(&dial->handshake.out, 0, MU_FRAME_HELLO, &hello) == MU_OK)
        dial->state = MU_DIAL_WELCOME;
}

static void await_welcome(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    mu_frame frame;
    bool all;
    mu_status status = mu__handshake_flush(&dial->handshake, &all);
    if (status == MU_OK)
        status = mu__frames_next(&dial->handshake.frames, dial->handshake.link, &frame);
    if (status != MU_OK)
        endpoint_failed(node, member, "connection closed before the process identified itself", now);
    else if (frame.type != 0)
        answered(node, member, &frame, now);
}

void mu__dial_event(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    if (dial->state == MU_DIAL_CONNECT)
        connected(node, member, now);
    if (dial->state == MU_DIAL_SHAKE)
        shake(node, member, now);
    if (dial->state == MU_DIAL_WELCOME)
        await_welcome(node, member, now);
    if (dial->handshake.link != NULL)
        mu__node_watch(node, mu__link_fd(dial->handshake.link), MU_SOURCE_DIAL, member,
                       mu__handshake_events(&dial->handshake));
}

void mu__dial_poll(mu_node *node, int member, int64_t now)
{
    mu_dial *dial = dial_of(node, member);
    if (dial->state == MU_DIAL_LOOKUP)
        looked_up(node, member, now);
    else if (dial->state == MU_DIAL_CONNECT && now >= dial->deadline_ns)
        endpoint_failed(node, member, mu__network_reason(ETIMEDOUT), now);
    else if (dial->state != MU_DIAL_IDLE && now >= dial->deadline_ns)
        endpoint_failed(node, member, "it does not answer the greeting", now);
}

int64_t mu__dial_due(const mu_dial *dial, int64_t now)
{
    switch (dial->state) {
    case MU_DIAL_IDLE: return MU_FOREVER;
    case MU_DIAL_LOOKUP: return now + LOOKUP_NS;
    default: return dial->deadline_ns;
    }
}
