// Who is turned away during the roll call, and when that is final: a wrong key, another version, a second process of
// one task. It could be the job before ours that is still ending, so it must last for some seconds.
//
// Both sides decide: who is turned away ends with the reason, and who turns away ends too where the one it waits for
// cannot come any more. A stranger must not end a job by what it says of itself: without proof of the key it counts
// only if it calls from an address of the task that it claims to be. Knows nothing of what was not liked.
#include "comm/mesh_private.h"

#include <netinet/in.h>

#define PATIENCE_NS  5000000000
#define SILENT_BEATS 1.5       // who lives is heard in that time
#define PAUSE_NS     3000000000 // after so long without another call it is given up, and the next one is new

int64_t mu__refusal_patience(const mu_mesh *mesh, mu_status why)
{
    // A running job may need its heartbeat to notice that the process before this one has died.
    const int64_t most = PATIENCE_NS + (why == MU_ALREADY_EXISTS ? (int64_t)(mesh->heartbeat_seconds * 1e9) : 0);
    return MU_MIN(most, (int64_t)(mesh->join_seconds * 0.5e9));
}

const char *mu__refusal_remedy(mu_status why)
{
    switch (why) {
    case MU_UNAUTHENTICATED: return "give all processes the same MUSTER_CLUSTER_KEY or MUSTER_CLUSTER_KEY_FILE";
    case MU_INVALID_ARGUMENT:
    case MU_ALREADY_EXISTS: return "give each process its own task index, and start each only once";
    default: return "install the same version and use the same settings everywhere";
    }
}

// Notes one more call; true when calls have gone on for long enough. The caller's own patience is a little longer, so
// that both sides have seen the same calls when it gives up.
static bool goes_on(const mu_mesh *mesh, mu_refusals *calls, mu_status why, int64_t now)
{
    if (calls->last_ns == 0 || now - calls->last_ns > PAUSE_NS)
        calls->first_ns = now;
    calls->last_ns = now;
    return now - calls->first_ns >= mu__refusal_patience(mesh, why) / 5 * 4;
}

static bool same_host(const mu_endpoint *a, const mu_endpoint *b)
{
    if (mu__endpoint_is_loopback(a) && mu__endpoint_is_loopback(b))
        return true;
    mu_endpoint x = *a, y = *b;
    char text_x[80], text_y[80];
    mu__endpoint_set_port(&x, 0);
    mu__endpoint_set_port(&y, 0);
    mu__endpoint_text(&x, text_x, sizeof text_x);
    mu__endpoint_text(&y, text_y, sizeof text_y);
    return strcmp(text_x, text_y) == 0;
}

// Where only the loopback is listened on, nobody of the job is elsewhere.
static bool all_are_here(const mu_mesh *mesh)
{
    mu_endpoint here;
    for (int i = 0; i < mesh->listener.n; i++)
        if (!mu__endpoint_here(mesh->listener.fds[i], &here) || !mu__endpoint_is_loopback(&here))
            return false;
    return true;
}

// Whether a caller is on the host of the task that it claims to be. Its name is looked up at the first call; until
// then, and for tasks of other hosts without an address, nobody knows.
static bool from_its_host(const mu_mesh *mesh, mu_peer *peer, const mu_link *link)
{
    char host[MU_MAX_HOST + 1];
    const char *reason;
    int port;
    mu_endpoint there;
    if (peer->learned || !mu__endpoint_there(mu__link_fd(link), &there))
        return peer->learned && all_are_here(mesh);
    if (peer->call.endpoints.n == 0 && peer->call.lookup == NULL &&
        mu__address_split(peer->address, host, &port) == MU_OK)
        peer->call.lookup = mu__lookup_start(host, port);
    if (peer->call.lookup != NULL && mu__lookup_done(peer->call.lookup, &peer->call.endpoints, &reason)) {
        mu__lookup_drop(peer->call.lookup);
        peer->call.lookup = NULL;
    }
    for (int i = 0; i < peer->call.endpoints.n; i++)
        if (same_host(&peer->call.endpoints.items[i], &there))
            return true;
    return false;
}

// "somebody at 10.0.0.7 came as it, but its cluster key is not ours": what stands beside the seat as long as it is
// empty.
static void note_caller(mu_peer *peer, const mu_link *link, bool at_home)
{
    mu_endpoint there;
    char address[80] = "an unknown address";
    if (mu__endpoint_there(mu__link_fd(link), &there)) {
        mu__endpoint_set_port(&there, 0);
        mu__endpoint_text(&there, address, sizeof address);
        *strrchr(address, ':') = '\0';
    }
    snprintf(peer->reason, sizeof peer->reason, "%s%s came%s, but %s", at_home ? "it" : "somebody at ",
             at_home ? "" : address, at_home ? "" : " as it", mu__link_reason(link));
}

void mu__refusal_by_proof(mu_mesh *mesh, const mu_link *link, mu_status why, int64_t now)
{
    const int claimed = mu__link_from(link);
    if (mesh->joined || claimed <= mesh->rank || claimed >= mesh->ranks || mesh->peers[claimed].state != MU_PEER_AWAY)
        return;
    mu_peer *peer = &mesh->peers[claimed];
    const bool first = !peer->was_refused;
    // That it hung up is less than what was said of it before.
    if (why == MU_UNAVAILABLE && !first)
        return;
    const bool at_home = from_its_host(mesh, peer, link);
    note_caller(peer, link, at_home);
    if (why != MU_UNAUTHENTICATED && why != MU_FAILED_PRECONDITION)
        return;
    peer->was_refused = true;
    if (first)
        mu__log(MU_LOG_WARNING, "%s turns %s away: %s", mesh->peers[mesh->rank].name, peer->name, peer->reason);
    mesh->refusing = mesh->refusing || (at_home && goes_on(mesh, &peer->refusals, why, now));
    if (mesh->refusing)
        mu__mesh_fail_text(mesh, why, "%s (%s) cannot join %s: %s; %s", peer->name, mu__peer_where(peer),
                           mesh->peers[mesh->rank].name, mu__link_reason(link), mu__refusal_remedy(why));
}

void mu__refusal_of_twin(mu_mesh *mesh, const mu_hello *hello, mu_news *why, int64_t now)
{
    mu_peer *peer = &mesh->peers[hello->rank];
    const size_t bytes = sizeof why->message;
    if (mesh->joined) {
        why->code = MU_ALREADY_EXISTS;
        snprintf(why->message, bytes,
                 "a job runs there already, with another process of this rank; it must end first");
        return;
    }
    // A host that was switched off leaves a connection behind that only its silence ends.
    const double silent = (double)(now - peer->heard_ns) / 1e9;
    if (silent > SILENT_BEATS * mu__beat_seconds(mesh)) {
        peer->twins = (mu_refusals){0};
        snprintf(why->message, bytes, "the process that was %s before has been silent for %.1f s; it is taken for gone "
                 "after %g s (MUSTER_HEARTBEAT)", peer->name, silent, mesh->heartbeat_seconds);
        return;
    }
    why->code = MU_INVALID_ARGUMENT;
    snprintf(why->message, bytes, "another process is %s already; are there two with the same task index?", peer->name);
    mesh->refusing = mesh->refusing || goes_on(mesh, &peer->twins, why->code, now);
    if (mesh->refusing)
        mu__mesh_fail_text(mesh, why->code, "two processes say that they are %s: the one at %s, and process %lu; %s",
                           peer->name, mu__peer_where(peer), (unsigned long)hello->process,
                           mu__refusal_remedy(why->code));
}
