// Heartbeats: every node regularly says that it is alive and what its process is doing; a silent session is lost.
//
// The node's own thread sends them and does nothing else, so a process that computes, saves or waits still sends
// heartbeats; a process that is stopped, swapped out or disconnected does not. What a process is doing is information
// for users: it appears in the messages of processes that wait for it.
#include "comm/sessions/session.h"

#define LONGEST_HEARTBEAT_SECONDS 2.0

double mu__heartbeat_seconds(const mu_node *node)
{
    return MU_MIN(node->heartbeat_seconds / 5, LONGEST_HEARTBEAT_SECONDS);
}

void mu__heartbeat_send(mu_node *node, int member)
{
    mu_session *session = &node->members[member]->session;
    mu_heartbeat beat;
    // An end that does not read gets no more heartbeats; it is still expected to send its own.
    if (!mu__session_is_open(session) || session->wants_out)
        return;
    pthread_mutex_lock(&node->doing_lock);
    beat.age_ns = (uint64_t)(mu__now_ns() - node->doing_since_ns);
    memcpy(beat.doing, node->doing, sizeof beat.doing);
    pthread_mutex_unlock(&node->doing_lock);
    // Without memory this heartbeat is skipped, as on a busy host; the next one may be sent.
    mu_error_value ignored;
    if (mu__session_queued(session, mu__frame_put_heartbeat(&session->handshake.out, session->number, &beat)) != MU_OK)
        mu__error_move(&ignored);
}

void mu__heartbeat_heard(mu_session *session, const mu_heartbeat *beat)
{
    memcpy(session->doing, beat->doing, sizeof session->doing);
    const int64_t now = mu__now_ns();
    session->doing_since_ns = now - (int64_t)MU_MIN(beat->age_ns, (uint64_t)now);
}

// Counts the open sessions, and those of them that have been silent for longer than `seconds`.
static int count_silent(const mu_node *node, int64_t now, double seconds, int *open)
{
    int n = 0;
    *open = 0;
    for (int i = 0; i < node->n_members; i++) {
        const mu_session *session = &node->members[i]->session;
        *open += mu__session_is_open(session);
        n += mu__session_is_open(session) && (double)(now - session->heard_ns) > seconds * 1e9;
    }
    return n;
}

static void lose_silent(mu_node *node, int64_t now, int64_t *next)
{
    int open;
    const int silent = count_silent(node, now, node->heartbeat_seconds * 0.8, &open);
    const int64_t longest = (int64_t)(node->heartbeat_seconds * 1e9);
    for (int i = 0; i < node->n_members; i++) {
        const mu_session *session = &node->members[i]->session;
        char why[200];
        if (!mu__session_is_open(session))
            continue;
        if (now - session->heard_ns < longest) {
            mu__sooner(next, session->heard_ns + longest);
            continue;
        }
        snprintf(why, sizeof why, "no sign of life for %.3g s (MUSTER_HEARTBEAT is %g s)%s",
                 (double)(now - session->heard_ns) / 1e9, node->heartbeat_seconds,
                 session->paused                ? ": it does not read what is sent to it"
                 : silent == open && silent > 1 ? ", nor of any other process: this host may be cut off"
                                                : ": it is stopped, or the network between is cut");
        mu__session_lost(node, i, why);
    }
}

void mu__heartbeats_poll(mu_node *node, int64_t now, int64_t *next)
{
    const int64_t beat = (int64_t)(mu__heartbeat_seconds(node) * 1e9);
    // If this process itself was stopped, it could not hear anybody: restart the clock of every session.
    if (node->poll_ns != 0 && now - node->poll_ns > 2 * beat)
        for (int i = 0; i < node->n_members; i++)
            node->members[i]->session.heard_ns = now;
    node->poll_ns = now;
    if (now - node->beat_ns >= beat) {
        node->beat_ns = now;
        for (int i = 0; i < node->n_members; i++)
            mu__heartbeat_send(node, i);
    }
    mu__sooner(next, node->beat_ns + beat);
    lose_silent(node, now, next);
}
