// Which connections are refused during the bootstrap, and when a refusal ends the job.
//
// Anybody can connect and send anything, so a connection that has not proven the key is counted for reports and changes
// nothing else, neither where this process connects nor what it accepts. Only a process with the key can end the
// bootstrap, by being a second process of one task. It may belong to a previous job that is still ending, so the
// conflict must last for some seconds.
#include "comm/mesh/mesh_private.h"

#define PATIENCE_NS       5000000000
#define SILENT_HEARTBEATS 1.5        // a live process is heard within this time
#define PAUSE_NS          3000000000 // a series of refused connections ends after a pause of this length

int64_t mu__refusal_patience(const mu_mesh *mesh, mu_status why)
{
    // A running job may need a full heartbeat timeout to notice that the previous process of this task has died.
    const int64_t most = PATIENCE_NS + (why == MU_ALREADY_EXISTS ? (int64_t)(mesh->node.heartbeat_seconds * 1e9) : 0);
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

// Notes one more refused connection; true when the series has lasted long enough. The connecting side waits a little
// longer, so that both sides have seen the same connections when it times out.
static bool continues(const mu_mesh *mesh, mu_refusals *calls, mu_status why, int64_t now)
{
    if (calls->last_ns == 0 || now - calls->last_ns > PAUSE_NS)
        calls->first_ns = now;
    calls->last_ns = now;
    return now - calls->first_ns >= mu__refusal_patience(mesh, why) / 5 * 4;
}

// ---- Connections without proof ------------------------------------------------------------------

static mu_unproven *find_unproven(mu_mesh *mesh, const char *address)
{
    for (int i = 0; i < MU_MAX_UNPROVEN; i++) {
        mu_unproven *at = &mesh->unproven[i];
        if (at->n == 0)
            snprintf(at->address, sizeof at->address, "%s", address);
        if (strcmp(at->address, address) == 0)
            return at;
    }
    return NULL;
}

void mu__peers_refused(mu_node *node, const mu_endpoint *there, const mu_link *link, mu_status why)
{
    mu_mesh *mesh = mu__mesh_of(node);
    mu_endpoint at = *there;
    char address[80];
    const int claimed = mu__link_from(link);
    if (mesh->joined || (why != MU_UNAUTHENTICATED && why != MU_FAILED_PRECONDITION))
        return;
    mu__endpoint_set_port(&at, 0);
    mu__endpoint_text(&at, address, sizeof address);
    *strrchr(address, ':') = '\0';
    if (claimed > mesh->rank && claimed < mesh->ranks && mesh->peers[claimed].state == MU_PEER_AWAY)
        snprintf(mesh->peers[claimed].reason, sizeof mesh->peers[claimed].reason, "somebody at %s came as it, but %s",
                 address, mu__link_reason(link));
    mu_unproven *from = find_unproven(mesh, address);
    if (from == NULL) {
        mesh->more_unproven++;
        return;
    }
    from->why = why;
    from->reason = mu__link_reason(link);
    if (from->n++ == 0)
        mu__log(MU_LOG_WARNING, "%s refuses a connection from %s: %s; it continues waiting",
                mesh->peers[mesh->rank].name, address, from->reason);
}

int mu__refusal_text(const mu_mesh *mesh, char *text, size_t bytes)
{
    int n = 0;
    text[0] = '\0';
    for (int i = 0; i < MU_MAX_UNPROVEN && n < (int)bytes; i++) {
        const mu_unproven *from = &mesh->unproven[i];
        if (from->n == 0)
            continue;
        n += snprintf(text + n, bytes - (size_t)n, "; %lu connection%s from %s ", from->n, from->n == 1 ? "" : "s",
                      from->address);
        if (n < (int)bytes && from->why == MU_UNAUTHENTICATED)
            n += snprintf(text + n, bytes - (size_t)n, "failed the proof of the key (wrong MUSTER_CLUSTER_KEY?)");
        else if (n < (int)bytes)
            n += snprintf(text + n, bytes - (size_t)n, "%s turned away: %s", from->n == 1 ? "was" : "were",
                          from->reason);
    }
    if (mesh->more_unproven > 0 && n < (int)bytes)
        n += snprintf(text + n, bytes - (size_t)n, "; %lu more from other addresses", mesh->more_unproven);
    return MU_MIN(n, (int)bytes - 1);
}

mu_status mu__refusal_unproven(const mu_mesh *mesh)
{
    for (int rank = 0; rank < mesh->ranks; rank++) {
        const mu_peer *peer = &mesh->peers[rank];
        if (rank != mesh->rank && peer->state == MU_PEER_AWAY && peer->member.dial.unproven != MU_OK)
            return peer->member.dial.unproven;
    }
    return mesh->unproven[0].why;
}

// ---- Two processes of one task ------------------------------------------------------------------

void mu__refusal_of_duplicate(mu_mesh *mesh, const mu_hello *hello, mu_failure *why, int64_t now)
{
    mu_peer *peer = &mesh->peers[hello->rank];
    const size_t bytes = sizeof why->message;
    if (mesh->joined) {
        why->code = MU_ALREADY_EXISTS;
        snprintf(why->message, bytes, "a job runs there already, with another process of this rank; it must end first");
        return;
    }
    // A host that was switched off leaves a connection open; only its silence shows that it is gone.
    const double silent = (double)(now - peer->member.session.heard_ns) / 1e9;
    if (silent > SILENT_HEARTBEATS * mu__heartbeat_seconds(&mesh->node)) {
        peer->duplicates = (mu_refusals){0};
        snprintf(why->message, bytes,
                 "the process that was %s before has been silent for %.1f s; it counts as lost after %g s "
                 "(MUSTER_HEARTBEAT)",
                 peer->name, silent, mesh->node.heartbeat_seconds);
        return;
    }
    why->code = MU_INVALID_ARGUMENT;
    snprintf(why->message, bytes, "another process is %s already; are there two with the same task index?", peer->name);
    mesh->refusing = mesh->refusing || continues(mesh, &peer->duplicates, why->code, now);
    if (mesh->refusing)
        mu__mesh_fail_text(mesh, why->code, "two processes say that they are %s: the one at %s, and process %lu; %s",
                           peer->name, mu__peer_where(peer), (unsigned long)hello->process,
                           mu__refusal_remedy(why->code));
}
