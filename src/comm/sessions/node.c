// A node: one process's end of all its sessions; its listener, its poller, and the step that drives everything.
//
// A step reads input before it judges silent sessions, so that heartbeats which arrived while this process was stopped
// still count.
#include "comm/sessions/session.h"

#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sched.h>

enum { EVENTS = 64 };
#define SPIN_NS   100000  // after input; a call and its answer take less
#define LOST_NS   15000   // longer than a look with its yield takes where nothing else runs
#define LISTEN_NS 5000000 // how often a listener that is not ready yet is asked

// ---- The poller ---------------------------------------------------------------------------------

void mu__node_watch(mu_node *node, int fd, mu_source source, int index, short events)
{
    if (!mu__system->poller_set(node->poller, fd, events, (uint64_t)source << 32 | (uint32_t)index))
        mu__log(MU_LOG_WARNING, "cannot watch a connection: %s", strerror(errno));
}

void mu__node_wake(mu_node *node) { mu__system->waker_wake(node->waker); }

static void dispatch(mu_node *node, uint64_t tag, int64_t now)
{
    const int index = (int)(tag & UINT32_MAX);
    switch ((mu_source)(tag >> 32)) {
    case MU_SOURCE_WAKER: mu__system->waker_clear(node->waker); break;
    case MU_SOURCE_LISTENER: mu__incoming_accept(node, node->listener.fds[index], now); break;
    case MU_SOURCE_SESSION: mu__session_event(node, index, now); break;
    case MU_SOURCE_DIAL: mu__dial_event(node, index, now); break;
    case MU_SOURCE_INCOMING: mu__incoming_event(node, index, now); break;
    }
}

// Looks again and again until the moment is over, something else runs on this processor, or there is input. To wake a
// processor that idles takes as long as a whole call, above all on a virtual machine.
static int spin(const mu_node *node, mu_ready ready[EVENTS], int64_t until_ns)
{
    int64_t now = mu__now_ns(), before = now;
    int n = 0;
    while (n == 0 && now < until_ns && now - before < LOST_NS) {
        before = now;
        n = mu__system->poller_wait(node->poller, ready, EVENTS, 0);
        if (n == 0)
            sched_yield();
        now = mu__now_ns();
    }
    return n;
}

static int wait_for_input(mu_node *node, mu_ready ready[EVENTS], int64_t until_ns)
{
    if (node->lock != NULL)
        pthread_mutex_unlock(node->lock);
    int n = node->spins && mu__system->threads ? spin(node, ready, MU_MIN(until_ns, node->spins_until_ns)) : 0;
    if (n == 0)
        n = mu__system->poller_wait(node->poller, ready, EVENTS, until_ns);
    if (node->lock != NULL)
        pthread_mutex_lock(node->lock);
    if (n > 0)
        node->spins_until_ns = mu__now_ns() + SPIN_NS;
    return n;
}

// Reads input, at most once per possible connection: the poller reports every ready connection before it repeats one,
// so members are heard however many unknown connections there are. Returns the time.
static int64_t read_all(mu_node *node, int64_t until_ns)
{
    mu_ready ready[EVENTS];
    const int most = (node->n_members + MU_MAX_INCOMING + MU_MAX_LISTENERS) / EVENTS + 1;
    int64_t now = 0;
    for (int round = 0, n = EVENTS; round < most && n == EVENTS; round++, until_ns = 0) {
        n = wait_for_input(node, ready, until_ns);
        now = mu__now_ns();
        for (int i = 0; i < n; i++)
            dispatch(node, ready[i].tag, now);
    }
    return now;
}

// ---- One step -----------------------------------------------------------------------------------

static mu_status continue_listening(mu_node *node)
{
    MU_TRY(mu__listen_step(&node->listening, &node->listener, &node->listens));
    if (!node->listens)
        return MU_OK;
    mu__listen_end(&node->listening);
    node->own.port = (uint16_t)node->listener.port;
    for (int i = 0; i < node->listener.n; i++)
        mu__node_watch(node, node->listener.fds[i], MU_SOURCE_LISTENER, i, POLLIN);
    return MU_OK;
}

static void poll_listening(mu_node *node, int64_t now, int64_t *next)
{
    if (node->listening.address == NULL || node->listens || node->failure.code != MU_OK)
        return;
    if (continue_listening(node) != MU_OK)
        mu__error_move(&node->failure);
    else if (!node->listens)
        mu__sooner(next, now + LISTEN_NS);
}

static void flush_all(mu_node *node)
{
    for (int i = 0; i < node->n_members; i++)
        if (node->members[i]->session.handshake.out.n > 0 && !node->members[i]->session.wants_out)
            mu__session_flush(node, i);
}

// When the next dial or request has to be looked at.
static int64_t members_due(const mu_node *node, int64_t now)
{
    int64_t due = MU_FOREVER;
    for (int i = 0; i < node->n_members; i++) {
        const mu_member *member = node->members[i];
        mu__sooner(&due, mu__dial_due(&member->dial, now));
        mu__sooner(&due, mu__session_due(&member->session));
    }
    return due;
}

int64_t mu__node_step(mu_node *node, int64_t until_ns)
{
    // What the owner has queued since the last step is sent, and counts, before the sleep.
    flush_all(node);
    if (until_ns > 0)
        mu__sooner(&until_ns, members_due(node, mu__now_ns()));
    const int64_t now = read_all(node, until_ns);
    int64_t next = MU_FOREVER;
    poll_listening(node, now, &next);
    mu__incoming_poll(node, now, &next);
    for (int i = 0; i < node->n_members; i++) {
        mu__dial_poll(node, i, now);
        mu__session_poll(&node->members[i]->session, now);
    }
    mu__heartbeats_poll(node, now, &next);
    if (node->membership->on_step != NULL)
        mu__sooner(&next, node->membership->on_step(node, now));
    flush_all(node);
    mu__sooner(&next, members_due(node, now));
    return next;
}

// ---- Beginning and end --------------------------------------------------------------------------

// What two processes must share in order to share memory, as a digest.
static mu_status find_host_id(uint8_t out[MU_HOST_ID])
{
    char text[512] = "";
    if (!mu__system->memory_domain(text, sizeof text))
        return mu__random(out, MU_HOST_ID); // so that it equals no other process's
    unsigned n = 0;
    if (EVP_Digest(text, strlen(text), out, &n, EVP_sha256(), NULL) == 1)
        return MU_OK;
    return mu__error(MU_INTERNAL, "OpenSSL cannot compute SHA-256");
}

mu_status mu__node_start(mu_node *node)
{
    pthread_mutex_init(&node->doing_lock, NULL);
    node->has_lock = true;
    node->doing_since_ns = mu__now_ns();
    node->own.process = mu__system->process();
    snprintf(node->own.version, sizeof node->own.version, "%s", mu_version());
    MU_TRY(mu__random(node->own.incarnation, sizeof node->own.incarnation));
    MU_TRY(find_host_id(node->own.host_id));
    node->poller = mu__system->poller_new();
    node->waker = mu__system->waker_new();
    if (node->poller < 0 || node->waker < 0)
        return mu__error(mu__errno_code(errno), "cannot make the mesh's descriptors: %s; raise the limit on open files",
                         strerror(errno));
    mu__node_watch(node, node->waker, MU_SOURCE_WAKER, 0, POLLIN);
    return MU_OK;
}

mu_status mu__node_listen(mu_node *node, const char *address)
{
    node->listening = (mu_listening){.address = address, .open = node->open, .own = node->from};
    return continue_listening(node);
}

void mu__node_end(mu_node *node)
{
    for (int i = 0; i < node->n_members; i++) {
        mu__dial_end(&node->members[i]->dial);
        mu__session_close(&node->members[i]->session);
    }
    mu__incoming_end(node);
    mu__listen_end(&node->listening);
    mu__listener_close(&node->listener);
    if (node->poller >= 0)
        mu__system->close(node->poller);
    if (node->waker >= 0)
        mu__system->close(node->waker);
    if (node->has_lock)
        pthread_mutex_destroy(&node->doing_lock);
}

void mu__node_leave(mu_node *node)
{
    for (int i = 0; i < node->n_members; i++) {
        mu_session *session = &node->members[i]->session;
        mu_error_value ignored;
        if (mu__session_is_open(session) &&
            mu__session_queued(session, mu__frame_put_word(&session->handshake.out, session->number, MU_FRAME_LEAVE)) !=
                MU_OK)
            mu__error_move(&ignored); // the others will count this process as dead
    }
}

bool mu__node_all_sent(const mu_node *node)
{
    for (int i = 0; i < node->n_members; i++) {
        const mu_handshake *handshake = &node->members[i]->session.handshake;
        if (handshake->link != NULL &&
            (handshake->out.n > 0 || !mu__system->all_received(mu__link_fd(handshake->link))))
            return false;
    }
    return true;
}

// ---- Who this process is, and what it is doing --------------------------------------------------

void mu__node_hello(const mu_node *node, int to, mu_hello *out)
{
    *out = node->own;
    out->to = to;
}

void mu__node_doing(mu_node *node, const char *text)
{
    const int64_t now = mu__now_ns();
    pthread_mutex_lock(&node->doing_lock);
    snprintf(node->doing, sizeof node->doing, "%s", text);
    node->doing_since_ns = now;
    pthread_mutex_unlock(&node->doing_lock);
}

void mu__node_own_word(mu_node *node, char *text, size_t bytes)
{
    pthread_mutex_lock(&node->doing_lock);
    snprintf(text, bytes, "%s (for %.1f s)", node->doing[0] != '\0' ? node->doing : "running the program",
             (double)(mu__now_ns() - node->doing_since_ns) / 1e9);
    pthread_mutex_unlock(&node->doing_lock);
}
