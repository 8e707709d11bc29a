// The bootstrap: how the processes of a job find each other.
//
// Each process connects to all lower ranks and accepts connections from all higher ones (incoming.c). It retries a
// connection, with growing pauses, until the deadline: the other process may not have started, its name may not be in
// the DNS yet, or its port may still belong to the previous job. A process that is connected to all others tells rank
// 0; when all have, rank 0 sends GO. A process that dies earlier only counts as away again, and may come back.
#include "comm/mesh_private.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define FIRST_PAUSE_NS   10000000
#define LONGEST_PAUSE_NS 1000000000
// Processes started together arrive within about two seconds; during that time pauses are short.
#define YOUNG_NS         2000000000
#define YOUNG_PAUSE_NS   20000000
#define CONNECT_NS       5000000000
#define SHAKE_NS         10000000000
// A little less than the documented 10 s, so that a thread that wakes late is still in time.
#define FIRST_REPORT_NS  9600000000
#define REPORT_NS        60000000000
enum { NAMES_SHOWN = 6 };

// ---- Handshakes ---------------------------------------------------------------------------------

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

// ---- Identity -----------------------------------------------------------------------------------

void mu__hello_fill(const mu_mesh *mesh, int to, mu_hello *out)
{
    *out = (mu_hello){.rank = mesh->rank,
                      .to = to,
                      .ranks = mesh->ranks,
                      .process = (uint32_t)getpid(),
                      .port = (uint16_t)mesh->listener.port};
    memcpy(out->incarnation, mesh->incarnation, sizeof out->incarnation);
    memcpy(out->place, mesh->place, sizeof out->place);
    snprintf(out->version, sizeof out->version, "%s", mu_version());
    snprintf(out->greeting, sizeof out->greeting, "%s", mesh->greeting);
}

// Index at which the list item begins in which two texts first differ.
static size_t difference(const char *a, const char *b)
{
    size_t at = 0, part = 0;
    for (; a[at] != '\0' && a[at] == b[at]; at++)
        if (strchr(";,\n ", a[at]) != NULL)
            part = at + 1;
    return at - part < 60 ? part : at;
}

bool mu__hello_differs(const mu_mesh *mesh, const mu_hello *hello, char *text, size_t bytes)
{
    const char *own = mesh->peers[mesh->rank].name,
               *other = mesh->peers[hello->rank < mesh->ranks ? hello->rank : 0].name;
    if (hello->ranks != mesh->ranks)
        snprintf(text, bytes, "%s is one of %d processes, rank %d one of %d; give all the same cluster", own,
                 mesh->ranks, hello->rank, hello->ranks);
    else if (strcmp(hello->version, mu_version()) != 0)
        snprintf(text, bytes, "%s runs Muster %s, %s %s; install the same version everywhere", own, mu_version(), other,
                 hello->version);
    else if (strcmp(hello->greeting, mesh->greeting) != 0) {
        const size_t at = difference(mesh->greeting, hello->greeting);
        snprintf(text, bytes, "the processes do not fit together: %s has \"%.80s\", %s has \"%.80s\"", own,
                 mesh->greeting + at, other, hello->greeting + at);
    } else {
        return false;
    }
    return true;
}

// ---- Addresses that only rank 0 knows -----------------------------------------------------------

// Sends rank `to` the address on which `rank` listens. If rank 0 sees a loopback address, others use rank 0's host.
static void tell_address(mu_mesh *mesh, int to, int rank)
{
    mu_peer *peer = &mesh->peers[to];
    mu_endpoint at = mesh->peers[rank].endpoint, here;
    if (to == rank || peer->state != MU_PEER_HERE || mesh->peers[rank].state != MU_PEER_HERE ||
        !mesh->peers[rank].learned)
        return;
    if (mu__endpoint_is_loopback(&at) && !mu__endpoint_is_loopback(&peer->endpoint) &&
        mu__endpoint_here(mu__link_fd(peer->handshake.link), &here))
        at = here;
    mu__endpoint_set_port(&at, mesh->peers[rank].port);
    mu_peer_address whereabouts = {.rank = rank};
    mu__endpoint_text(&at, whereabouts.address, sizeof whereabouts.address);
    if (mu__frame_put_peer_address(&peer->handshake.out, peer->number, &whereabouts) == MU_OK)
        peer->number++;
}

static void set_address(mu_peer *peer, const char *address)
{
    char *copy = mu__strdup(address);
    if (copy == NULL)
        return;
    mu__free(peer->address);
    peer->address = copy;
}

static void share_addresses(mu_mesh *mesh, int rank)
{
    char text[MU_MAX_ADDRESS + 1];
    mu_peer *peer = &mesh->peers[rank];
    if (peer->learned) {
        mu__endpoint_text(&peer->endpoint, text, sizeof text);
        set_address(peer, text);
    }
    for (int other = 1; other < mesh->ranks; other++) {
        tell_address(mesh, other, rank);
        tell_address(mesh, rank, other);
    }
}

// ---- Outgoing connections -----------------------------------------------------------------------

static void hang_up(mu_outgoing *outgoing)
{
    mu__handshake_end(&outgoing->handshake);
    if (outgoing->fd >= 0)
        close(outgoing->fd);
    outgoing->fd = -1;
    mu__lookup_drop(outgoing->lookup);
    outgoing->lookup = NULL;
    outgoing->state = MU_OUTGOING_IDLE;
}

void mu__bootstrap_end(mu_mesh *mesh)
{
    for (int rank = 0; mesh->peers != NULL && rank < mesh->ranks; rank++)
        hang_up(&mesh->peers[rank].outgoing);
}

void mu__bootstrap_learn(mu_mesh *mesh, const mu_peer_address *whereabouts)
{
    if (whereabouts->rank >= mesh->ranks || !mesh->peers[whereabouts->rank].learned)
        return;
    mu_peer *peer = &mesh->peers[whereabouts->rank];
    if (strcmp(peer->address, whereabouts->address) == 0)
        return;
    set_address(peer, whereabouts->address);
    hang_up(&peer->outgoing);
    peer->outgoing.retry_ns = 0;
}

static void refused_for_good(mu_mesh *mesh, int rank)
{
    const mu_peer *peer = &mesh->peers[rank];
    mu__mesh_fail_text(mesh, peer->outgoing.refused, "%s cannot join %s (%s): %s; %s", mesh->peers[mesh->rank].name,
                       peer->name, mu__peer_where(peer), peer->reason, mu__refusal_remedy(peer->outgoing.refused));
}

// All addresses of a peer have failed; peer->reason says why.
static void round_failed(mu_mesh *mesh, int rank, int64_t now)
{
    mu_outgoing *outgoing = &mesh->peers[rank].outgoing;
    hang_up(outgoing);
    const int64_t longest = now - mesh->began_ns < YOUNG_NS ? YOUNG_PAUSE_NS : LONGEST_PAUSE_NS;
    outgoing->pause_ns = MU_MIN(MU_MAX(2 * outgoing->pause_ns, FIRST_PAUSE_NS), longest);
    outgoing->retry_ns = now + outgoing->pause_ns;
    if (outgoing->refused == MU_OK)
        outgoing->refused_ns = 0;
    else if (outgoing->refused_ns == 0)
        outgoing->refused_ns = now;
    else if (now - outgoing->refused_ns >= mu__refusal_patience(mesh, outgoing->refused))
        refused_for_good(mesh, rank);
    outgoing->refused = MU_OK;
}

// Tries the next address, starting at outgoing->endpoint.
static void connect_next(mu_mesh *mesh, int rank, int64_t now)
{
    mu_peer *peer = &mesh->peers[rank];
    mu_outgoing *outgoing = &peer->outgoing;
    mu__handshake_end(&outgoing->handshake);
    for (; outgoing->endpoint < outgoing->endpoints.n; outgoing->endpoint++) {
        outgoing->fd = mu__connect_start(&outgoing->endpoints.items[outgoing->endpoint], &mesh->own);
        if (outgoing->fd >= 0) {
            outgoing->state = MU_OUTGOING_CONNECT;
            outgoing->deadline_ns = now + CONNECT_NS;
            mu__mesh_listen_for(mesh, outgoing->fd, MU_SOURCE_OUTGOING, rank, POLLOUT);
            return;
        }
        mu__peer_reason(peer, mu__network_reason(errno));
    }
    round_failed(mesh, rank, now);
}

static void endpoint_failed(mu_mesh *mesh, int rank, const char *reason, int64_t now)
{
    mu_peer *peer = &mesh->peers[rank];
    mu__peer_reason(peer, reason);
    if (peer->outgoing.fd >= 0)
        close(peer->outgoing.fd);
    peer->outgoing.fd = -1;
    peer->outgoing.endpoint++;
    connect_next(mesh, rank, now);
}

static void looked_up(mu_mesh *mesh, int rank, int64_t now)
{
    mu_peer *peer = &mesh->peers[rank];
    const char *reason;
    if (!mu__lookup_done(peer->outgoing.lookup, &peer->outgoing.endpoints, &reason))
        return;
    mu__lookup_drop(peer->outgoing.lookup);
    peer->outgoing.lookup = NULL;
    peer->outgoing.endpoint = 0;
    if (peer->outgoing.endpoints.n == 0)
        mu__peer_reason(peer, reason);
    for (int i = 0; !mesh->open && i < peer->outgoing.endpoints.n; i++) {
        if (mu__endpoint_is_loopback(&peer->outgoing.endpoints.items[i]))
            continue;
        mu__mesh_fail_text(mesh, MU_UNAUTHENTICATED,
                           "%s (%s) is not on this host's loopback, and there is no cluster key; give all "
                           "processes the same MUSTER_CLUSTER_KEY (`openssl rand -hex 32` makes one)",
                           peer->name, peer->address);
        return;
    }
    connect_next(mesh, rank, now);
}

static void start_outgoing(mu_mesh *mesh, int rank, int64_t now)
{
    mu_peer *peer = &mesh->peers[rank];
    char host[MU_MAX_HOST + 1];
    int port;
    if (peer->address[0] == '\0') {
        snprintf(peer->reason, sizeof peer->reason, "%s has not told its address", mesh->peers[0].name);
        return;
    }
    mu_error_value ignored;
    if (mu__address_split(peer->address, host, &port) == MU_OK)
        peer->outgoing.lookup = mu__lookup_start(host, port);
    mu__error_move(&ignored);
    if (peer->outgoing.lookup == NULL) {
        round_failed(mesh, rank, now);
        return;
    }
    peer->outgoing.state = MU_OUTGOING_LOOKUP;
    looked_up(mesh, rank, now);
}

static void welcomed(mu_mesh *mesh, int rank, const mu_frame *frame, int64_t now)
{
    mu_hello hello;
    mu_failure news;
    char text[600];
    if (frame->type == MU_FRAME_WELCOME && mu__frame_hello(frame, &hello) && hello.rank == rank &&
        hello.to == mesh->rank) {
        if (mu__hello_differs(mesh, &hello, text, sizeof text)) {
            mesh->peers[rank].told = true;
            mu__mesh_fail_text(mesh, MU_FAILED_PRECONDITION, "%s", text);
            hang_up(&mesh->peers[rank].outgoing);
            return;
        }
        mu_outgoing *outgoing = &mesh->peers[rank].outgoing;
        outgoing->state = MU_OUTGOING_IDLE;
        outgoing->pause_ns = outgoing->refused_ns = 0;
        mu__peer_take(mesh, &hello, &outgoing->handshake);
    } else if (frame->type == MU_FRAME_REFUSE && mu__frame_failure(frame, &news)) {
        if (news.code == MU_FAILED_PRECONDITION) {
            mesh->peers[rank].told = true;
            mu__mesh_fail_text(mesh, news.code, "%s", news.message);
        }
        if (news.code == MU_INVALID_ARGUMENT || news.code == MU_ALREADY_EXISTS)
            mesh->peers[rank].outgoing.refused = news.code;
        snprintf(text, sizeof text, "it says: %.500s", news.message);
        endpoint_failed(mesh, rank, text, now);
    } else {
        endpoint_failed(mesh, rank, "its answer was damaged", now);
    }
}

static void connected(mu_mesh *mesh, int rank, int64_t now)
{
    mu_outgoing *outgoing = &mesh->peers[rank].outgoing;
    const int error = mu__connect_result(outgoing->fd);
    if (error == EINPROGRESS)
        return;
    if (error != 0) {
        endpoint_failed(mesh, rank, mu__network_reason(error), now);
        return;
    }
    mu__socket_settle(outgoing->fd, mesh->heartbeat_seconds * 1.5);
    const int fd = outgoing->fd;
    outgoing->fd = -1;
    outgoing->handshake.link = mu__link_new(mesh->keyring, fd, true, mesh->rank, rank);
    outgoing->state = MU_OUTGOING_HANDSHAKE;
    outgoing->deadline_ns = now + SHAKE_NS;
    mu_error_value error_value = {.code = MU_OK};
    mu__error_move(&error_value);
    if (outgoing->handshake.link == NULL)
        endpoint_failed(mesh, rank, error_value.message, now);
}

static void shake(mu_mesh *mesh, int rank, int64_t now)
{
    mu_outgoing *outgoing = &mesh->peers[rank].outgoing;
    bool done;
    const mu_status status = mu__link_shake(outgoing->handshake.link, &done);
    // A process that cannot prove the key may be anybody: it is reported, and the connection is retried.
    if (status == MU_UNAUTHENTICATED || status == MU_FAILED_PRECONDITION)
        outgoing->unproven = status;
    if (status != MU_OK) {
        char reason[200];
        snprintf(reason, sizeof reason, "%s", mu__link_reason(outgoing->handshake.link));
        endpoint_failed(mesh, rank, reason, now);
        return;
    }
    if (!done)
        return;
    outgoing->unproven = MU_OK;
    mu_hello hello;
    mu__hello_fill(mesh, rank, &hello);
    if (mu__frame_put_hello(&outgoing->handshake.out, 0, MU_FRAME_HELLO, &hello) == MU_OK)
        outgoing->state = MU_OUTGOING_WELCOME;
}

static void await_welcome(mu_mesh *mesh, int rank, int64_t now)
{
    mu_outgoing *outgoing = &mesh->peers[rank].outgoing;
    mu_frame frame;
    bool all;
    mu_status status = mu__handshake_flush(&outgoing->handshake, &all);
    if (status == MU_OK)
        status = mu__frames_next(&outgoing->handshake.frames, outgoing->handshake.link, &frame);
    if (status != MU_OK)
        endpoint_failed(mesh, rank, "connection closed before the process identified itself", now);
    else if (frame.type != 0)
        welcomed(mesh, rank, &frame, now);
}

void mu__bootstrap_event(mu_mesh *mesh, int rank, int64_t now)
{
    mu_outgoing *outgoing = &mesh->peers[rank].outgoing;
    if (outgoing->state == MU_OUTGOING_CONNECT)
        connected(mesh, rank, now);
    if (outgoing->state == MU_OUTGOING_HANDSHAKE)
        shake(mesh, rank, now);
    if (outgoing->state == MU_OUTGOING_WELCOME)
        await_welcome(mesh, rank, now);
    if (outgoing->handshake.link != NULL)
        mu__mesh_listen_for(mesh, mu__link_fd(outgoing->handshake.link), MU_SOURCE_OUTGOING, rank,
                            mu__handshake_events(&outgoing->handshake));
}

static void outgoing_poll(mu_mesh *mesh, int rank, int64_t now)
{
    mu_outgoing *outgoing = &mesh->peers[rank].outgoing;
    switch (outgoing->state) {
    case MU_OUTGOING_IDLE:
        if (now >= outgoing->retry_ns)
            start_outgoing(mesh, rank, now);
        break;
    case MU_OUTGOING_LOOKUP: looked_up(mesh, rank, now); break;
    case MU_OUTGOING_CONNECT:
        if (now >= outgoing->deadline_ns)
            endpoint_failed(mesh, rank, mu__network_reason(ETIMEDOUT), now);
        break;
    default:
        if (now >= outgoing->deadline_ns)
            endpoint_failed(mesh, rank, "it does not answer the greeting", now);
    }
}

// ---- State of the bootstrap ---------------------------------------------------------------------

void mu__peer_take(mu_mesh *mesh, const mu_hello *hello, mu_handshake *handshake)
{
    mu_peer *peer = &mesh->peers[hello->rank];
    const int64_t now = mu__now_ns();
    peer->handshake = *handshake;
    *handshake = (mu_handshake){0};
    peer->state = MU_PEER_HERE;
    peer->number = 1; // HELLO and WELCOME had number 0
    peer->heard_ns = now;
    peer->port = hello->port;
    peer->wants_out = false;
    memcpy(peer->incarnation, hello->incarnation, sizeof peer->incarnation);
    peer->same_host = memcmp(hello->place, mesh->place, sizeof mesh->place) == 0;
    if (mu__endpoint_there(mu__link_fd(peer->handshake.link), &peer->endpoint))
        mu__endpoint_set_port(&peer->endpoint, hello->port);
    mu__mesh_listen_for(mesh, mu__link_fd(peer->handshake.link), MU_SOURCE_PEER, hello->rank, POLLIN);
    if (mesh->rank == 0)
        share_addresses(mesh, hello->rank);
    mu__heartbeat_send(mesh, hello->rank);
    if (mesh->failure.code != MU_OK)
        mu__peer_tell(mesh, hello->rank);
    mu__peer_event(mesh, hello->rank, now);
}

static int count_here(const mu_mesh *mesh)
{
    int n = 0;
    for (int rank = 0; rank < mesh->ranks; rank++)
        n += rank == mesh->rank || mesh->peers[rank].state == MU_PEER_HERE;
    return n;
}

static bool all_ready(const mu_mesh *mesh)
{
    for (int rank = 1; rank < mesh->ranks; rank++)
        if (!mesh->peers[rank].ready)
            return false;
    return true;
}

static void send_word(mu_mesh *mesh, int rank, mu_frame_type type)
{
    mu_peer *peer = &mesh->peers[rank];
    if (mu__frame_put_word(&peer->handshake.out, peer->number, type) == MU_OK)
        peer->number++;
}

void mu__bootstrap_go(mu_mesh *mesh)
{
    mesh->joined = true;
    mu__mesh_doing(mesh, "starting", -1, NULL);
    for (int rank = 0; rank < mesh->ranks; rank++) {
        char reason[sizeof mesh->peers[rank].reason];
        if (rank == mesh->rank || mesh->peers[rank].state != MU_PEER_AWAY)
            continue;
        memcpy(reason, mesh->peers[rank].reason, sizeof reason);
        mu__peer_gone(mesh, rank, reason);
    }
    pthread_cond_broadcast(&mesh->changed);
}

static void all_here(mu_mesh *mesh)
{
    if (mesh->rank != 0) {
        if (!mesh->ready_sent)
            send_word(mesh, 0, MU_FRAME_READY);
        mesh->ready_sent = true;
        return;
    }
    if (!all_ready(mesh))
        return;
    for (int rank = 1; rank < mesh->ranks; rank++)
        send_word(mesh, rank, MU_FRAME_GO);
    mu__bootstrap_go(mesh);
}

// "3 of 4 processes are here; missing: /job:worker/task:1 at b:5000 (connection refused)".
static void describe(const mu_mesh *mesh, char *text, size_t bytes)
{
    const int here = count_here(mesh);
    int n = snprintf(text, bytes, "%d of %d processes are here", here, mesh->ranks), shown = 0;
    for (int rank = 0; rank < mesh->ranks; rank++) {
        const mu_peer *peer = &mesh->peers[rank];
        const bool missing = here < mesh->ranks ? peer->state != MU_PEER_HERE
                             : mesh->rank != 0  ? rank == 0
                                                : !peer->ready;
        if (rank == mesh->rank || !missing || n >= (int)bytes || shown++ >= NAMES_SHOWN)
            continue;
        n += here < mesh->ranks
                 ? snprintf(text + n, bytes - (size_t)n, "%s %s at %s (%s)", shown == 1 ? "; missing:" : ",",
                            peer->name, mu__peer_where(peer), peer->reason)
                 : snprintf(text + n, bytes - (size_t)n, "%s %s, which is %s", shown == 1 ? "; waiting for" : ",",
                            peer->name, peer->doing[0] != '\0' ? peer->doing : "silent");
    }
    if (shown > NAMES_SHOWN && n < (int)bytes)
        n += snprintf(text + n, bytes - (size_t)n, " and %d more", shown - NAMES_SHOWN);
    if (here < mesh->ranks && n < (int)bytes)
        mu__refusal_text(mesh, text + n, bytes - (size_t)n);
}

static void say_what_is_missing(mu_mesh *mesh)
{
    char text[800], word[MU_MAX_WORD];
    describe(mesh, text, sizeof text);
    snprintf(word, sizeof word, "joining: %.140s", text);
    mu__mesh_doing(mesh, word, -1, NULL);
}

static const char *remedy(const mu_mesh *mesh)
{
    const mu_status why = mu__refusal_unproven(mesh);
    return why != MU_OK ? mu__refusal_remedy(why) : "start the missing processes, or correct their addresses";
}

static void report(mu_mesh *mesh, int64_t now)
{
    char text[760];
    const double seconds = (double)(now - mesh->began_ns) / 1e9;
    const char *own = mesh->peers[mesh->rank].name;
    if (now >= mesh->report_ns) {
        mesh->report_ns += REPORT_NS;
        describe(mesh, text, sizeof text);
        mu__log(MU_LOG_WARNING, "%s waits %.0f s for the others: %s", own, seconds, text);
    }
    if (seconds >= mesh->join_seconds) {
        describe(mesh, text, sizeof text);
        mu__mesh_fail_text(mesh, MU_DEADLINE_EXCEEDED, "%s waited %g s for all processes to join: %s; %s", own,
                           mesh->join_seconds, text, remedy(mesh));
    } else if (now - mesh->beat_ns > 500000000) {
        say_what_is_missing(mesh);
    }
}

void mu__bootstrap_poll(mu_mesh *mesh, int64_t now)
{
    for (int rank = 0; rank < mesh->rank; rank++)
        if (mesh->peers[rank].state == MU_PEER_AWAY && !mesh->peers[rank].told)
            outgoing_poll(mesh, rank, now);
    if (mesh->failure.code != MU_OK)
        return;
    if (count_here(mesh) == mesh->ranks)
        all_here(mesh);
    else
        mesh->ready_sent = mesh->ready_sent && mesh->peers[0].state == MU_PEER_HERE;
    if (mesh->joined || mesh->failure.code != MU_OK)
        return;
    if (mesh->report_ns == 0)
        mesh->report_ns = mesh->began_ns + MU_MIN(FIRST_REPORT_NS, (int64_t)(mesh->join_seconds * 1e9 / 3));
    report(mesh, now);
}
