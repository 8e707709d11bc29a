// A session: numbered frames on an identified link, both ways; the requests that wait for replies; its end.
//
// Does not know who belongs to a job: what a frame of the job means, and what the session's end means, is decided by
// the node's membership policy.
#include "comm/sessions/session.h"

#include <poll.h>

// ---- Frames on a link ---------------------------------------------------------------------------

mu_status mu__handshake_flush(mu_handshake *handshake, bool *all)
{
    size_t moved = 0;
    *all = handshake->out.n == 0;
    if (*all)
        return MU_OK;
    const mu_status status = mu__link_send(handshake->link, handshake->out.items + handshake->sent,
                                           handshake->out.n - handshake->sent, &moved);
    handshake->sent += moved;
    *all = handshake->sent == handshake->out.n;
    if (*all)
        handshake->sent = handshake->out.n = 0;
    // What was sent leaves the buffer once it is as much as what was not: one that is never empty stays small.
    if (handshake->sent > 0 && 2 * handshake->sent >= handshake->out.n) {
        handshake->out.n -= handshake->sent;
        memmove(handshake->out.items, handshake->out.items + handshake->sent, handshake->out.n);
        handshake->sent = 0;
    }
    return status;
}

short mu__handshake_events(const mu_handshake *handshake)
{
    return (short)(mu__link_events(handshake->link) | (handshake->out.n > 0 ? POLLOUT : 0));
}

void mu__handshake_end(mu_handshake *handshake)
{
    mu__link_free(handshake->link);
    mu__frames_free(&handshake->frames);
    mu__bytes_free(&handshake->out);
    *handshake = (mu_handshake){0};
}

bool mu__session_is_open(const mu_session *session) { return session->handshake.link != NULL; }

bool mu__session_is_full(const mu_node *node, const mu_session *session)
{
    return node->most_unsent > 0 && session->handshake.out.n - session->handshake.sent >= node->most_unsent;
}

mu_status mu__session_queued(mu_session *session, mu_status put)
{
    session->number += put == MU_OK;
    return put;
}

// ---- Requests -----------------------------------------------------------------------------------

mu_status mu__session_request(mu_session *session, const mu_request_options *request)
{
    mu_request frame = {.id = session->n_requests + 1, .data = request->data, .bytes = request->bytes};
    if (!mu__session_is_open(session))
        return mu__error(MU_UNAVAILABLE, "the request \"%.60s\" cannot be sent: the connection is closed",
                         request->method);
    if (request->bytes > MU_MAX_BLOCK || strlen(request->method) > MU_MAX_METHOD)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the request \"%.60s\" has %zu bytes; at most %d fit, and %d bytes in a method's name",
                         request->method, request->bytes, MU_MAX_BLOCK, MU_MAX_METHOD);
    snprintf(frame.method, sizeof frame.method, "%s", request->method);
    const mu_pending_request pending = {.id = frame.id,
                                        .deadline_ns = mu__deadline_ns(request->seconds),
                                        .replied = request->replied,
                                        .arg = request->arg};
    const int64_t patience_ns = pending.deadline_ns - mu__now_ns();
    frame.patience_ns = (uint64_t)MU_MAX(patience_ns, 0);
    MU_TRY(MU_PUSH(&session->requests, pending));
    const mu_status status =
        mu__session_queued(session, mu__frame_put_request(&session->handshake.out, session->number, &frame));
    if (status != MU_OK)
        session->requests.n--;
    else
        session->n_requests++;
    return status;
}

mu_status mu__session_reply(mu_session *session, const mu_reply *reply)
{
    mu_reply spoken = *reply;
    if (reply->bytes > MU_MAX_BLOCK)
        return mu__error(MU_INVALID_ARGUMENT, "a reply has %zu bytes; at most %d fit", reply->bytes, MU_MAX_BLOCK);
    if (!mu__session_is_open(session))
        return MU_OK;
    spoken.of_caller &= session->version >= MU_WIRE_OF_CALLER;
    return mu__session_queued(session, mu__frame_put_reply(&session->handshake.out, session->number, &spoken));
}

// Takes a request out of the list before its caller hears: the caller may make another one.
static void finish_request(mu_session *session, size_t index, const mu_reply *reply)
{
    const mu_pending_request pending = session->requests.items[index];
    session->requests.items[index] = session->requests.items[--session->requests.n];
    pending.replied(pending.arg, reply);
}

// Instead of a reply.
static void fail_request(mu_session *session, size_t index, mu_status code, const char *why)
{
    finish_request(session, index, &(mu_reply){.code = code, .data = (const uint8_t *)why, .bytes = strlen(why)});
}

// A reply to an unknown request is ignored: it may have come after the request's deadline.
static void take_reply(mu_session *session, const mu_reply *reply)
{
    for (size_t i = 0; i < session->requests.n; i++)
        if (session->requests.items[i].id == reply->id) {
            finish_request(session, i, reply);
            return;
        }
}

void mu__session_poll(mu_session *session, int64_t now)
{
    for (size_t i = 0; i < session->requests.n;) {
        if (now < session->requests.items[i].deadline_ns) {
            i++;
            continue;
        }
        fail_request(session, i, MU_DEADLINE_EXCEEDED, "no reply in time");
        i = 0; // the caller that heard may have changed the list
    }
}

int64_t mu__session_due(const mu_session *session)
{
    int64_t due = MU_FOREVER;
    for (size_t i = 0; i < session->requests.n; i++)
        mu__sooner(&due, session->requests.items[i].deadline_ns);
    return due;
}

static void answer(mu_node *node, int member, const mu_request *request)
{
    static const char no_answer[] = "this process answers no requests";
    const mu_reply reply = {
        .id = request->id, .code = MU_UNIMPLEMENTED, .data = (const uint8_t *)no_answer, .bytes = sizeof no_answer - 1};
    if (node->membership->asked != NULL)
        node->membership->asked(node, member, request);
    else if (mu__session_reply(&node->members[member]->session, &reply) != MU_OK)
        mu__session_lost(node, member, "no memory here for an answer to it");
}

// ---- Beginning and end --------------------------------------------------------------------------

void mu__session_open(mu_node *node, int member, const mu_hello *hello, mu_handshake *handshake, int64_t now)
{
    mu_session *session = &node->members[member]->session;
    const int fd = mu__link_fd(handshake->link);
    session->handshake = *handshake;
    *handshake = (mu_handshake){0};
    session->number = 1; // HELLO and WELCOME had number 0
    session->heard_ns = now;
    session->port = hello->port;
    session->version = mu__link_version(session->handshake.link);
    session->role = mu__link_role(session->handshake.link);
    session->wants_out = session->closed_there = session->paused = false;
    memcpy(session->incarnation, hello->incarnation, sizeof session->incarnation);
    session->same_host = memcmp(hello->host_id, node->own.host_id, sizeof node->own.host_id) == 0;
    if (mu__system->endpoint(fd, true, &session->endpoint))
        mu__endpoint_set_port(&session->endpoint, hello->port);
    mu__node_watch(node, fd, MU_SOURCE_SESSION, member, POLLIN);
    mu__heartbeat_send(node, member);
    node->membership->joined(node, member, hello);
    mu__session_event(node, member, now);
}

// `why` NULL: the reason is unknown.
static void close_session(mu_session *session, const char *why)
{
    char ended[300];
    snprintf(ended, sizeof ended, "the connection ended before the reply%s%s", why != NULL ? ": " : "",
             why != NULL ? why : "");
    atomic_fetch_add(&session->n_ended, 1);
    mu__handshake_end(&session->handshake);
    session->wants_out = session->paused = false;
    while (session->requests.n > 0)
        fail_request(session, session->requests.n - 1, MU_UNAVAILABLE, ended);
    mu__free(session->requests.items);
    session->requests.items = NULL;
    session->requests.capacity = 0;
}

void mu__session_close(mu_session *session) { close_session(session, NULL); }

void mu__session_lost(mu_node *node, int member, const char *why)
{
    close_session(&node->members[member]->session, why);
    node->membership->lost(node, member, why);
}

void mu__session_last_word(const mu_session *session, char *text, size_t bytes)
{
    const int64_t now = mu__now_ns();
    if (session->doing[0] == '\0')
        snprintf(text, bytes, "last heard from %.1f s ago; it never reported what it was doing",
                 (double)(now - session->heard_ns) / 1e9);
    else
        snprintf(text, bytes, "last heard from %.1f s ago, while %s (for %.1f s)",
                 (double)(now - session->heard_ns) / 1e9, session->doing,
                 (double)(now - session->doing_since_ns) / 1e9);
}

// ---- Input and output ---------------------------------------------------------------------------

void mu__session_flush(mu_node *node, int member)
{
    mu_session *session = &node->members[member]->session;
    bool all;
    if (!mu__session_is_open(session))
        return;
    const int fd = mu__link_fd(session->handshake.link);
    const size_t unsent = session->handshake.out.n - session->handshake.sent;
    if (mu__handshake_flush(&session->handshake, &all) != MU_OK) {
        // Input that the other end sent before it closed is read first; the end of that input then ends the session.
        atomic_fetch_add(&session->n_ended, 1);
        mu__system->end_output(fd);
        session->handshake.sent = session->handshake.out.n = 0;
        all = true;
    }
    // What it says cannot be heard meanwhile, so that it takes something is its sign of life.
    if (session->paused && session->handshake.out.n - session->handshake.sent < unsent)
        session->heard_ns = mu__now_ns();
    const bool paused = mu__session_is_full(node, session);
    if (all == session->wants_out || paused != session->paused)
        mu__node_watch(node, fd, MU_SOURCE_SESSION, member, (short)((paused ? 0 : POLLIN) | (all ? 0 : POLLOUT)));
    session->wants_out = !all;
    session->paused = paused;
}

// Returns false for a frame that is invalid or not allowed here.
static bool handle(mu_node *node, int member, const mu_frame *frame)
{
    mu_session *session = &node->members[member]->session;
    mu_heartbeat beat;
    mu_request request;
    mu_reply reply;
    switch (frame->type) {
    case MU_FRAME_HEARTBEAT:
        if (!mu__frame_heartbeat(frame, &beat))
            return false;
        mu__heartbeat_heard(session, &beat);
        return true;
    case MU_FRAME_REQUEST:
        if (!mu__frame_request(frame, &request))
            return false;
        answer(node, member, &request);
        return true;
    case MU_FRAME_REPLY:
        if (!mu__frame_reply(frame, &reply))
            return false;
        take_reply(session, &reply);
        return true;
    case MU_FRAME_LEAVE:
        session->closed_there = true;
        mu__session_close(session);
        node->membership->left(node, member);
        return true;
    default: return node->membership->received != NULL && node->membership->received(node, member, frame);
    }
}

// Whether the other end has ended the connection: it closed it, or its system did when its process died. That system
// resets a connection with unread input; so may any firewall on the way, but none is between processes of one host.
static bool is_closed_there(const mu_session *session)
{
    const int error = mu__link_error(session->handshake.link);
    return error == 0 || (error == ECONNRESET && session->same_host);
}

// Handles what has come, until as much waits to be sent as may wait. False: the session has ended.
static bool read_frames(mu_node *node, int member, int64_t now)
{
    mu_session *session = &node->members[member]->session;
    while (mu__session_is_open(session) && !mu__session_is_full(node, session)) {
        mu_frame frame;
        const size_t before = session->handshake.frames.have;
        const mu_status status = mu__frames_next(&session->handshake.frames, session->handshake.link, &frame);
        // Part of a large frame is a sign of life too.
        if (session->handshake.frames.have != before)
            session->heard_ns = now;
        if (status == MU_OK && frame.type == 0)
            break;
        if (status == MU_OK && handle(node, member, &frame))
            continue;
        mu_error_value ignored;
        mu__error_move(&ignored);
        session->closed_there = status == MU_UNAVAILABLE && is_closed_there(session);
        mu__session_lost(node, member,
                         status == MU_UNAVAILABLE          ? "connection closed"
                         : status == MU_RESOURCE_EXHAUSTED ? "no memory here for what it sent"
                                                           : "what came from it was damaged or tampered with");
        return false;
    }
    return mu__session_is_open(session);
}

// Frames that came before a pause are here already, and the poller does not report them again.
void mu__session_event(mu_node *node, int member, int64_t now)
{
    mu_session *session = &node->members[member]->session;
    bool again = true;
    if (session->paused)
        mu__session_flush(node, member);
    while (again && read_frames(node, member, now)) {
        again = mu__session_is_full(node, session);
        mu__session_flush(node, member);
        again = again && !session->paused;
    }
}
