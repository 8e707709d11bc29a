// The bootstrap: how the processes of a job find each other.
//
// Each process connects to all lower ranks and accepts connections from all higher ones (incoming.c). It retries a
// connection, with growing pauses, until the deadline: the other process may not have started, its name may not be in
// the DNS yet, or its port may still belong to the previous job. A process that is connected to all others reports it
// to rank 0; when all have, rank 0 sends GO. A process that dies earlier only counts as away again, and may come back.
#include "comm/mesh/mesh_private.h"

#define FIRST_PAUSE_NS   10000000
#define LONGEST_PAUSE_NS 1000000000
// Processes started together arrive within about two seconds; during that time pauses are short.
#define YOUNG_NS       2000000000
#define YOUNG_PAUSE_NS 20000000
#define SAY_NS         500000000 // how long after a heartbeat the next one's word on what is missing is made
#define POLL_NS        50000000  // how often a failed job that lingers is looked at
#define MOST_SECONDS   1e9       // that a deadline can be away
// A little less than the documented 10 s, so that a thread that wakes late is still in time.
#define FIRST_REPORT_NS 9600000000
#define REPORT_NS       60000000000
enum { NAMES_SHOWN = 6 };

// ---- Who fits -----------------------------------------------------------------------------------

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
    const char *greeting = mesh->node.own.greeting, *own = mesh->peers[mesh->rank].name,
               *other = mesh->peers[hello->rank < mesh->ranks ? hello->rank : 0].name;
    if (hello->ranks != mesh->ranks)
        snprintf(text, bytes, "%s is one of %d processes, rank %d one of %d; give all the same cluster", own,
                 mesh->ranks, hello->rank, hello->ranks);
    else if (strcmp(hello->version, mu_version()) != 0)
        snprintf(text, bytes, "%s runs Muster %s, %s %s; install the same version everywhere", own, mu_version(), other,
                 hello->version);
    else if (strcmp(hello->greeting, greeting) != 0) {
        const size_t at = difference(greeting, hello->greeting);
        snprintf(text, bytes, "the processes do not fit together: %s has \"%.80s\", %s has \"%.80s\"", own,
                 greeting + at, other, hello->greeting + at);
    } else {
        return false;
    }
    return true;
}

// Whether this process may join; if not, fills `why`.
static bool may_join(mu_mesh *mesh, const mu_hello *hello, mu_failure *why, int64_t now)
{
    mu_peer *peer = &mesh->peers[MU_MIN(hello->rank, mesh->ranks - 1)];
    const size_t bytes = sizeof why->message;
    if (mesh->joined && mesh->failure.code != MU_OK)
        snprintf(why->message, bytes, "the job that runs there has failed and is ending");
    else if (mesh->joined && hello->ranks == mesh->ranks && peer->state == MU_PEER_HERE)
        mu__refusal_of_duplicate(mesh, hello, why, now);
    else if (mesh->joined)
        snprintf(why->message, bytes, "a job runs there already, without this process; it must end first");
    else if (mesh->failure.code != MU_OK || mu__hello_differs(mesh, hello, why->message, bytes)) {
        why->code = MU_FAILED_PRECONDITION;
        mu__mesh_fail_text(mesh, why->code, "%s", why->message);
        why->code = mesh->failure.code;
        snprintf(why->message, bytes, "%s", mesh->failure.message);
        peer->notified = true;
    } else if (hello->rank <= mesh->rank)
        snprintf(why->message, bytes, "rank %d must not connect to rank %d", hello->rank, mesh->rank);
    else if (peer->state == MU_PEER_HERE)
        mu__refusal_of_duplicate(mesh, hello, why, now);
    else
        return true;
    return false;
}

static bool may_stream(const mu_mesh *mesh, const mu_hello *hello, mu_failure *why)
{
    snprintf(why->message, sizeof why->message, "the stream belongs to another job");
    const mu_peer *peer = &mesh->peers[MU_MIN(hello->rank, mesh->ranks - 1)];
    return hello->ranks == mesh->ranks && peer->state == MU_PEER_HERE &&
           memcmp(hello->incarnation, peer->member.session.incarnation, MU_INCARNATION) == 0 &&
           memcmp(hello->peer, mesh->node.own.incarnation, MU_INCARNATION) == 0;
}

int mu__peers_admit(mu_node *node, const mu_hello *hello, mu_failure *why, int64_t now)
{
    mu_mesh *mesh = mu__mesh_of(node);
    *why = (mu_failure){.code = MU_UNAVAILABLE};
    const bool may = hello->stream[0] == '\0' ? may_join(mesh, hello, why, now) : may_stream(mesh, hello, why);
    return may ? hello->rank : -1;
}

bool mu__peers_welcomed(mu_node *node, int rank, const mu_hello *hello)
{
    mu_mesh *mesh = mu__mesh_of(node);
    char text[600];
    if (!mu__hello_differs(mesh, hello, text, sizeof text))
        return true;
    mesh->peers[rank].notified = true;
    mu__mesh_fail_text(mesh, MU_FAILED_PRECONDITION, "%s", text);
    return false;
}

// ---- Addresses that only rank 0 knows -----------------------------------------------------------

// Sends rank `to` the address on which `rank` listens. If rank 0 sees a loopback address, others use rank 0's host.
static void tell_address(mu_mesh *mesh, int to, int rank)
{
    mu_peer *peer = &mesh->peers[to];
    mu_session *session = &peer->member.session;
    mu_endpoint at = mu__peer_session(mesh, rank)->endpoint, here;
    if (to == rank || peer->state != MU_PEER_HERE || mesh->peers[rank].state != MU_PEER_HERE ||
        !mesh->peers[rank].learned)
        return;
    if (mu__endpoint_is_loopback(&at) && !mu__endpoint_is_loopback(&session->endpoint) &&
        mu__system->endpoint(mu__link_fd(session->handshake.link), false, &here))
        at = here;
    mu__endpoint_set_port(&at, mu__peer_session(mesh, rank)->port);
    mu_peer_address address = {.rank = rank};
    mu__endpoint_text(&at, address.address, sizeof address.address);
    mu_error_value ignored;
    if (mu__session_queued(session, mu__frame_put_peer_address(&session->handshake.out, session->number, &address)) !=
        MU_OK)
        mu__error_move(&ignored); // that process does not find the other, and says so at its deadline
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
        mu__endpoint_text(&peer->member.session.endpoint, text, sizeof text);
        set_address(peer, text);
    }
    for (int other = 1; other < mesh->ranks; other++) {
        tell_address(mesh, other, rank);
        tell_address(mesh, rank, other);
    }
}

// ---- Outgoing connections -----------------------------------------------------------------------

void mu__bootstrap_learn(mu_mesh *mesh, const mu_peer_address *address)
{
    if (address->rank >= mesh->ranks || !mesh->peers[address->rank].learned)
        return;
    mu_peer *peer = &mesh->peers[address->rank];
    if (strcmp(peer->address, address->address) == 0)
        return;
    set_address(peer, address->address);
    mu__dial_end(&peer->member.dial);
    peer->retry_ns = 0;
}

static void refused_for_good(mu_mesh *mesh, int rank)
{
    const mu_peer *peer = &mesh->peers[rank];
    const mu_status why = peer->member.dial.refused.code;
    mu__mesh_fail_text(mesh, why, "%s cannot join %s (%s): %s; %s", mesh->peers[mesh->rank].name, peer->name,
                       mu__peer_where(peer), peer->reason, mu__refusal_remedy(why));
}

// A refusal for one of these reasons must persist, because the reason may pass.
static bool may_pass(mu_status why) { return why == MU_INVALID_ARGUMENT || why == MU_ALREADY_EXISTS; }

static void try_again_later(mu_mesh *mesh, int rank, int64_t now)
{
    mu_peer *peer = &mesh->peers[rank];
    const mu_status why = peer->member.dial.refused.code;
    const int64_t longest = now - mesh->began_ns < YOUNG_NS ? YOUNG_PAUSE_NS : LONGEST_PAUSE_NS;
    peer->pause_ns = MU_MIN(MU_MAX(2 * peer->pause_ns, FIRST_PAUSE_NS), longest);
    peer->retry_ns = now + peer->pause_ns;
    if (!may_pass(why))
        peer->refused_ns = 0;
    else if (peer->refused_ns == 0)
        peer->refused_ns = now;
    else if (now - peer->refused_ns >= mu__refusal_patience(mesh, why))
        refused_for_good(mesh, rank);
}

void mu__peers_unreached(mu_node *node, int rank, int64_t now)
{
    mu_mesh *mesh = mu__mesh_of(node);
    mu_peer *peer = &mesh->peers[rank];
    const mu_dial *dial = &peer->member.dial;
    memcpy(peer->reason, dial->reason, sizeof peer->reason);
    if (dial->not_open)
        mu__mesh_fail_text(mesh, MU_UNAUTHENTICATED,
                           "%s (%s) is not on this host's loopback, and there is no cluster key; give all processes "
                           "the same MUSTER_CLUSTER_KEY (`openssl rand -hex 32` makes one)",
                           peer->name, peer->address);
    if (dial->refused.code == MU_FAILED_PRECONDITION) {
        peer->notified = true;
        mu__mesh_fail_text(mesh, dial->refused.code, "%s", dial->refused.message);
    }
    try_again_later(mesh, rank, now);
}

// Dials a lower rank when that is due; returns when it is due next, unless an event comes first.
static int64_t dial_when_due(mu_mesh *mesh, int rank, int64_t now)
{
    mu_peer *peer = &mesh->peers[rank];
    const bool away = peer->state == MU_PEER_AWAY || peer->state == MU_PEER_LEFT;
    if (!away || peer->notified || peer->member.dial.state != MU_DIAL_IDLE)
        return MU_FOREVER;
    if (peer->address[0] == '\0') {
        snprintf(peer->reason, sizeof peer->reason, "%s has not sent its address", mesh->peers[0].name);
        return MU_FOREVER;
    }
    if (now >= peer->retry_ns)
        mu__dial_start(&mesh->node, rank, peer->address, now);
    return peer->member.dial.state == MU_DIAL_IDLE ? peer->retry_ns : MU_FOREVER;
}

// ---- State of the bootstrap ---------------------------------------------------------------------

void mu__peers_joined(mu_node *node, int rank, const mu_hello *hello)
{
    mu_mesh *mesh = mu__mesh_of(node);
    mu_peer *peer = &mesh->peers[hello->rank];
    peer->state = MU_PEER_HERE;
    peer->pause_ns = peer->refused_ns = 0;
    if (mesh->rank == 0)
        share_addresses(mesh, rank);
    if (mesh->failure.code != MU_OK)
        mu__peer_tell(mesh, rank);
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

static bool send_word(mu_mesh *mesh, int rank, mu_frame_type type)
{
    mu_session *session = mu__peer_session(mesh, rank);
    mu_error_value ignored;
    if (mu__session_queued(session, mu__frame_put_word(&session->handshake.out, session->number, type)) == MU_OK)
        return true;
    mu__error_move(&ignored);
    return false;
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
        mesh->ready_sent = mesh->ready_sent || send_word(mesh, 0, MU_FRAME_READY);
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
        const char *doing = peer->member.session.doing;
        const bool missing = here < mesh->ranks ? peer->state != MU_PEER_HERE
                             : mesh->rank != 0  ? rank == 0
                                                : !peer->ready;
        if (rank == mesh->rank || !missing || n >= (int)bytes || shown++ >= NAMES_SHOWN)
            continue;
        n += here < mesh->ranks
                 ? snprintf(text + n, bytes - (size_t)n, "%s %s at %s (%s)", shown == 1 ? "; missing:" : ",",
                            peer->name, mu__peer_where(peer), peer->reason)
                 : snprintf(text + n, bytes - (size_t)n, "%s %s, which is %s", shown == 1 ? "; waiting for" : ",",
                            peer->name, doing[0] != '\0' ? doing : "silent");
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

static int64_t join_deadline_ns(const mu_mesh *mesh)
{
    return mesh->began_ns + (int64_t)(MU_MIN(mesh->join_seconds, MOST_SECONDS) * 1e9);
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
    if (now >= join_deadline_ns(mesh)) {
        describe(mesh, text, sizeof text);
        mu__mesh_fail_text(mesh, MU_DEADLINE_EXCEEDED, "%s waited %g s for all processes to join: %s; %s", own,
                           mesh->join_seconds, text, remedy(mesh));
    } else if (now - mesh->node.beat_ns > SAY_NS) {
        say_what_is_missing(mesh);
    }
}

// When the bootstrap has something to do, if nothing arrives.
static int64_t next_turn(const mu_mesh *mesh, int64_t now)
{
    const int64_t say_ns = mesh->node.beat_ns + SAY_NS;
    int64_t next = mesh->report_ns;
    mu__sooner(&next, join_deadline_ns(mesh));
    if (say_ns >= now)
        mu__sooner(&next, say_ns + 1);
    if (mesh->failure.code != MU_OK)
        mu__sooner(&next, now + POLL_NS);
    return next;
}

int64_t mu__peers_step(mu_node *node, int64_t now)
{
    mu_mesh *mesh = mu__mesh_of(node);
    int64_t next = MU_FOREVER;
    if (mesh->joined || !node->listens || (mesh->failure.code != MU_OK && !mu__mesh_lingers(mesh, now)))
        return MU_FOREVER;
    for (int rank = 0; rank < mesh->rank; rank++)
        mu__sooner(&next, dial_when_due(mesh, rank, now));
    if (mesh->failure.code == MU_OK && count_here(mesh) == mesh->ranks)
        all_here(mesh);
    else
        mesh->ready_sent = mesh->ready_sent && mesh->peers[0].state == MU_PEER_HERE;
    if (mesh->report_ns == 0)
        mesh->report_ns = mesh->began_ns + MU_MIN(FIRST_REPORT_NS, (int64_t)(mesh->join_seconds * 1e9 / 3));
    if (!mesh->joined && mesh->failure.code == MU_OK)
        report(mesh, now);
    mu__sooner(&next, next_turn(mesh, now));
    return mesh->joined ? MU_FOREVER : next;
}
