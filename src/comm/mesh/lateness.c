// What the processes of a mesh are doing, and who is late: for the messages of processes that wait.
#include "comm/mesh/mesh_private.h"

#define LATE_NS 10000000000

// ---- What a process is doing --------------------------------------------------------------------

void mu__mesh_doing(mu_mesh *mesh, const char *what, int64_t number, const char *name)
{
    char text[sizeof mesh->node.doing];
    int used = snprintf(text, sizeof text, "%s", what);
    if (number >= 0 && used < (int)sizeof text)
        used += snprintf(text + used, sizeof text - (size_t)used, " #%lld", (long long)number);
    if (name != NULL && used < (int)sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, " \"%s\"", name);
    mu__node_doing(&mesh->node, text);
}

int mu__peer_doing(const mu_peer *peer, char *text, size_t bytes)
{
    if (peer->state == MU_PEER_LEFT)
        return snprintf(text, bytes, "has left the job");
    const mu_session *session = &peer->member.session;
    if (session->doing[0] == '\0')
        return snprintf(text, bytes, "has not reported what it is doing");
    return snprintf(text, bytes, "has been %s for %.0f s", session->doing,
                    (double)(mu__now_ns() - session->doing_since_ns) / 1e9);
}

int mu__mesh_peer_doing(const mu_mesh *mesh, int rank, char *text, size_t bytes)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&mesh->lock;
    pthread_mutex_lock(lock);
    const int n = mu__peer_doing(&mesh->peers[rank], text, bytes);
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
