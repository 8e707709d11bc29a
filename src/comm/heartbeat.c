// Heartbeats: every process regularly says that it is alive and what it is doing; a silent peer is lost.
//
// The mesh's own thread sends them and does nothing else, so a process that computes, saves or waits still sends
// heartbeats; a process that is stopped, swapped out or disconnected does not. What a process is doing is information
// for users: it appears in the messages of processes that wait for it.
#include "comm/mesh_private.h"

#define LONGEST_HEARTBEAT_SECONDS 2.0
#define LATE_NS              10000000000

// ---- Heartbeats ---------------------------------------------------------------------------------

double mu__heartbeat_seconds(const mu_mesh *mesh)
{
    return MU_MIN(mesh->heartbeat_seconds / 5, LONGEST_HEARTBEAT_SECONDS);
}

void mu__heartbeat_send(mu_mesh *mesh, int rank)
{
    mu_peer *peer = &mesh->peers[rank];
    mu_heartbeat beat;
    pthread_mutex_lock(&mesh->doing_lock);
    beat.age_ns = (uint64_t)(mu__now_ns() - mesh->doing_since_ns);
    memcpy(beat.doing, mesh->doing, sizeof beat.doing);
    pthread_mutex_unlock(&mesh->doing_lock);
    // A peer that does not read gets no more heartbeats; it is still expected to send its own.
    if (peer->state != MU_PEER_HERE || peer->wants_out ||
        mu__frame_put_heartbeat(&peer->handshake.out, peer->number, &beat) != MU_OK)
        return;
    peer->number++;
}

void mu__heartbeat_heard(mu_mesh *mesh, int rank, const mu_heartbeat *beat)
{
    mu_peer *peer = &mesh->peers[rank];
    memcpy(peer->doing, beat->doing, sizeof peer->doing);
    const int64_t now = mu__now_ns();
    peer->doing_since_ns = now - (int64_t)MU_MIN(beat->age_ns, (uint64_t)now);
}

// Writes "last heard of 2 s ago, while saving (for 5 s)".
void mu__last_word(const mu_peer *peer, char *text, size_t bytes)
{
    const int64_t now = mu__now_ns();
    if (peer->doing[0] == '\0')
        snprintf(text, bytes, "it never reported what it was doing");
    else
        snprintf(text, bytes, "last heard from %.1f s ago, while %s (for %.1f s)", (double)(now - peer->heard_ns) / 1e9,
                 peer->doing, (double)(now - peer->doing_since_ns) / 1e9);
}

void mu__own_doing(mu_mesh *mesh, char *text, size_t bytes)
{
    pthread_mutex_lock(&mesh->doing_lock);
    snprintf(text, bytes, "%s (for %.1f s)", mesh->doing[0] != '\0' ? mesh->doing : "running the program",
             (double)(mu__now_ns() - mesh->doing_since_ns) / 1e9);
    pthread_mutex_unlock(&mesh->doing_lock);
}

static int count_silent(const mu_mesh *mesh, int64_t now, double seconds)
{
    int n = 0;
    for (int rank = 0; rank < mesh->ranks; rank++)
        n += mesh->peers[rank].state == MU_PEER_HERE && (double)(now - mesh->peers[rank].heard_ns) > seconds * 1e9;
    return n;
}

static void lose_silent(mu_mesh *mesh, int64_t now)
{
    const int silent = count_silent(mesh, now, mesh->heartbeat_seconds * 0.8);
    for (int rank = 0; rank < mesh->ranks; rank++) {
        const mu_peer *peer = &mesh->peers[rank];
        const double seconds = (double)(now - peer->heard_ns) / 1e9;
        char why[200];
        if (peer->state != MU_PEER_HERE || seconds < mesh->heartbeat_seconds)
            continue;
        snprintf(why, sizeof why, "no sign of life for %.3g s (MUSTER_HEARTBEAT is %g s)%s", seconds,
                 mesh->heartbeat_seconds,
                 silent == mesh->ranks - 1 && silent > 1 ? ", nor of any other process: this host may be cut off"
                                                         : ": it is stopped, or the network between is cut");
        mu__peer_gone(mesh, rank, why);
    }
}

void mu__heartbeats_poll(mu_mesh *mesh, int64_t now)
{
    const int64_t beat = (int64_t)(mu__heartbeat_seconds(mesh) * 1e9);
    // If this process itself was stopped, it could not hear anybody: restart the clock of every peer.
    if (mesh->poll_ns != 0 && now - mesh->poll_ns > 2 * beat)
        for (int rank = 0; rank < mesh->ranks; rank++)
            mesh->peers[rank].heard_ns = now;
    mesh->poll_ns = now;
    if (now - mesh->beat_ns >= beat) {
        mesh->beat_ns = now;
        for (int rank = 0; rank < mesh->ranks; rank++)
            mu__heartbeat_send(mesh, rank);
    }
    if (mesh->failure.code == MU_OK)
        lose_silent(mesh, now);
}

// ---- What a process is doing --------------------------------------------------------------------

void mu__mesh_doing(mu_mesh *mesh, const char *what, int64_t number, const char *name)
{
    char text[sizeof mesh->doing];
    int used = snprintf(text, sizeof text, "%s", what);
    if (number >= 0 && used < (int)sizeof text)
        used += snprintf(text + used, sizeof text - (size_t)used, " #%lld", (long long)number);
    if (name != NULL && used < (int)sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, " \"%s\"", name);
    const int64_t now = mu__now_ns();
    pthread_mutex_lock(&mesh->doing_lock);
    memcpy(mesh->doing, text, sizeof text);
    mesh->doing_since_ns = now;
    pthread_mutex_unlock(&mesh->doing_lock);
}

// The caller holds the lock.
static int doing_text(const mu_peer *peer, char *text, size_t bytes)
{
    if (peer->state == MU_PEER_LEFT)
        return snprintf(text, bytes, "has left the job");
    if (peer->doing[0] == '\0')
        return snprintf(text, bytes, "has not reported what it is doing");
    return snprintf(text, bytes, "is %s since %.0f s", peer->doing,
                    (double)(mu__now_ns() - peer->doing_since_ns) / 1e9);
}

int mu__mesh_peer_doing(const mu_mesh *mesh, int rank, char *text, size_t bytes)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&mesh->lock;
    pthread_mutex_lock(lock);
    const int n = doing_text(&mesh->peers[rank], text, bytes);
    pthread_mutex_unlock(lock);
    return n;
}

// ---- Late processes -----------------------------------------------------------------------------

mu_lateness mu__lateness(void)
{
    const int64_t now = mu__now_ns();
    return (mu_lateness){.began_ns = now, .next_ns = now + LATE_NS};
}

int mu__mesh_late_text(const mu_mesh *mesh, mu_is_late *is_late, const void *arg, char *text, size_t bytes)
{
    enum { SHOWN = 4 };
    int n = 0, late = 0;
    text[0] = '\0';
    for (int rank = 0; rank < mesh->ranks; rank++) {
        char doing[MU_MAX_WORD + 64];
        if (rank == mesh->rank || !is_late(arg, rank) || late++ >= SHOWN)
            continue;
        mu__mesh_peer_doing(mesh, rank, doing, sizeof doing);
        n += snprintf(text + n, bytes - (size_t)n, "%s%s, which %s", n > 0 ? ", and " : "", mesh->peers[rank].name,
                      doing);
        n = MU_MIN(n, (int)bytes - 1);
    }
    if (late > SHOWN)
        n += snprintf(text + n, bytes - (size_t)n, ", and %d more", late - SHOWN);
    return MU_MIN(n, (int)bytes - 1);
}

void mu__mesh_late(mu_mesh *mesh, mu_lateness *lateness, const char *what, mu_is_late *is_late, const void *arg)
{
    const int64_t now = mu__now_ns();
    if (now < lateness->next_ns)
        return;
    lateness->next_ns += LATE_NS;
    char who[800];
    if (mu__mesh_late_text(mesh, is_late, arg, who, sizeof who) > 0)
        mu__log(MU_LOG_WARNING, "waiting %.0f s for %s: %s", (double)(now - lateness->began_ns) / 1e9, what, who);
}
