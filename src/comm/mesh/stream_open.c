// Opening a stream: a state machine, which a caller's thread drives and waits for, or the simulator.
//
// The higher rank of the pair connects, proves the key, and says which stream it means; the lower rank waits until the
// mesh has accepted that stream. The other end closes a connection that does not prove the key quickly, and an
// interrupted network may take longer; then the opener tries again until the mesh considers the peer lost.
#include "comm/mesh/mesh_private.h"

#include <errno.h>
#include <poll.h>

enum { MOST_TRIES = 20, PAUSE_NS = 200000000 };

typedef enum stage {
    STAGE_ACCEPT, // the other end opens it
    STAGE_CONNECT,
    STAGE_SHAKE, // proves the key
    STAGE_HELLO, // says which stream it is, and waits for the welcome
    STAGE_PAUSE  // before the next try
} stage;

struct mu_stream_opening {
    mu_mesh *mesh;
    int rank;
    mu_endpoint at;
    char name[MU_MAX_STREAM_NAME + 1];
    double seconds;
    int64_t deadline_ns, again_ns;
    int tries;
    stage stage;
    int fd; // while it connects; -1: none
    mu_handshake handshake;
    bool cut_off; // the connection was closed or interrupted before the other end accepted the stream
    mu_lateness lateness;
};

static mu_status cannot_open(const mu_stream_opening *o, const char *why)
{
    // If the mesh knows that the peer died, that is the better reason.
    MU_TRY(mu__mesh_check(o->mesh, o->rank));
    return mu__error(MU_UNAVAILABLE, "cannot open the stream \"%s\" to %s (%s): %s", o->name,
                     o->mesh->peers[o->rank].name, mu__peer_where(&o->mesh->peers[o->rank]), why);
}

// ---- The accepting side -------------------------------------------------------------------------

static bool is_rank(const void *arg, int rank) { return *(const int *)arg == rank; }

static mu_status await_peer(mu_stream_opening *o, mu_link **out)
{
    char what[MU_MAX_STREAM_NAME + 32], who[400];
    // The opener may have left since; what it sent can still be read.
    pthread_mutex_lock(&o->mesh->lock);
    *out = mu__pending_stream_take(o->mesh, o->rank, o->name);
    pthread_mutex_unlock(&o->mesh->lock);
    if (*out != NULL)
        return MU_OK;
    MU_TRY(mu__mesh_check(o->mesh, o->rank));
    snprintf(what, sizeof what, "the stream \"%s\"", o->name);
    mu__mesh_late(o->mesh, &o->lateness, what, is_rank, &o->rank);
    if (mu__now_ns() < o->deadline_ns)
        return MU_OK;
    mu__mesh_late_text(o->mesh, is_rank, &o->rank, who, sizeof who);
    return mu__error(MU_DEADLINE_EXCEEDED, "waited %g s (MUSTER_TIMEOUT) for %s from %s", o->seconds, what, who);
}

// ---- The opening side ---------------------------------------------------------------------------

// These two set `blocked` where they can do nothing before something arrives.
static mu_status connect_socket(mu_stream_opening *o, bool *blocked)
{
    if (o->fd < 0)
        o->fd = mu__system->connect(&o->at, &o->mesh->node.from);
    if (o->fd < 0)
        return cannot_open(o, mu__network_reason(errno));
    const int error = mu__system->connect_result(o->fd);
    if (error == EINPROGRESS) {
        *blocked = true;
        return MU_OK;
    }
    mu__system->settle(o->fd, o->mesh->node.heartbeat_seconds * 1.5);
    o->cut_off = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    if (error != 0)
        return cannot_open(o, mu__network_reason(error));
    o->handshake.link = mu__link_new(o->mesh->node.keyring, o->fd, true, o->mesh->rank, o->rank);
    o->fd = -1;
    o->stage = STAGE_SHAKE;
    return o->handshake.link != NULL ? MU_OK : mu_error_code();
}

static mu_status introduce(mu_stream_opening *o)
{
    mu_hello hello;
    mu__node_hello(&o->mesh->node, o->rank, &hello);
    memcpy(hello.peer, mu__peer_session(o->mesh, o->rank)->incarnation, sizeof hello.peer);
    memcpy(hello.stream, o->name, strlen(o->name) + 1);
    o->stage = STAGE_HELLO;
    return mu__frame_put_hello(&o->handshake.out, 0, MU_FRAME_HELLO, &hello);
}

static mu_status shake_hands(mu_stream_opening *o, bool *blocked)
{
    bool done;
    const mu_status status = mu__link_shake(o->handshake.link, &done);
    o->cut_off = status == MU_UNAVAILABLE;
    if (status != MU_OK)
        return cannot_open(o, mu__link_reason(o->handshake.link));
    *blocked = !done;
    return done ? introduce(o) : MU_OK;
}

static mu_status check_welcome(const mu_stream_opening *o, const mu_frame *frame)
{
    mu_hello hello;
    mu_failure failure;
    if (frame->type == MU_FRAME_REFUSE && mu__frame_failure(frame, &failure))
        return cannot_open(o, failure.message);
    if (frame->type != MU_FRAME_WELCOME || !mu__frame_hello(frame, &hello) || hello.rank != o->rank ||
        memcmp(hello.incarnation, mu__peer_session(o->mesh, o->rank)->incarnation, MU_INCARNATION) != 0)
        return cannot_open(o, "another process listens there now");
    return MU_OK;
}

static mu_status await_welcome(mu_stream_opening *o, mu_link **out)
{
    mu_frame frame = {0};
    bool all;
    mu_status status = mu__handshake_flush(&o->handshake, &all);
    if (status == MU_OK && all)
        status = mu__frames_next(&o->handshake.frames, o->handshake.link, &frame);
    o->cut_off = status == MU_UNAVAILABLE;
    if (status != MU_OK)
        return cannot_open(o, "connection closed");
    if (frame.type == 0)
        return MU_OK;
    MU_TRY(check_welcome(o, &frame));
    *out = o->handshake.link;
    o->handshake.link = NULL;
    return MU_OK;
}

static void hang_up(mu_stream_opening *o)
{
    if (o->fd >= 0)
        mu__system->close(o->fd);
    o->fd = -1;
    mu__handshake_end(&o->handshake);
    o->handshake = (mu_handshake){0};
}

// One try, as far as it gets without waiting.
static mu_status try_to_open(mu_stream_opening *o, mu_link **out)
{
    bool blocked = false;
    while (!blocked && o->stage < STAGE_HELLO)
        MU_TRY(o->stage == STAGE_CONNECT ? connect_socket(o, &blocked) : shake_hands(o, &blocked));
    return o->stage == STAGE_HELLO ? await_welcome(o, out) : MU_OK;
}

// Nothing has arrived: the other end may have left, the job failed, or the time be over.
static mu_status may_wait(mu_stream_opening *o)
{
    o->cut_off = false;
    MU_TRY(mu__mesh_check(o->mesh, o->rank));
    MU_TRY(mu__check_stop());
    return mu__now_ns() < o->deadline_ns ? MU_OK : cannot_open(o, "no answer in time (MUSTER_TIMEOUT)");
}

static mu_status open_link(mu_stream_opening *o, mu_link **out)
{
    mu_error_value why;
    if (o->stage == STAGE_PAUSE && mu__now_ns() < o->again_ns)
        return may_wait(o);
    if (o->stage == STAGE_PAUSE)
        o->stage = STAGE_CONNECT;
    o->cut_off = false;
    const mu_status status = try_to_open(o, out);
    if (status == MU_OK)
        return *out != NULL ? MU_OK : may_wait(o);
    hang_up(o);
    if (!o->cut_off || ++o->tries == MOST_TRIES || mu__now_ns() + PAUSE_NS >= o->deadline_ns)
        return status;
    mu__error_move(&why);
    o->stage = STAGE_PAUSE;
    o->again_ns = mu__now_ns() + PAUSE_NS;
    return may_wait(o);
}

// ---- In steps -----------------------------------------------------------------------------------

static mu_stream_opening *begin(mu_mesh *mesh, int rank, const mu_endpoint *at, const char *name, double seconds)
{
    mu_stream_opening *o = mu__calloc(1, sizeof *o);
    if (o == NULL)
        return NULL;
    *o = (mu_stream_opening){.mesh = mesh,
                             .rank = rank,
                             .at = *at,
                             .seconds = seconds,
                             .fd = -1,
                             .deadline_ns = mu__deadline_ns(seconds),
                             .lateness = mu__lateness(),
                             .stage = rank < mesh->rank ? STAGE_CONNECT : STAGE_ACCEPT};
    memcpy(o->name, name, strlen(name) + 1);
    return o;
}

mu_stream_opening *mu__stream_begin(mu_mesh *mesh, int rank, const char *name)
{
    if (mu__pending())
        return NULL;
    const size_t length = strlen(name);
    if (rank < 0 || rank >= mesh->ranks || rank == mesh->rank || length == 0 || length > MU_MAX_STREAM_NAME) {
        mu__error(
            MU_INVALID_ARGUMENT,
            "the stream \"%.130s\" to rank %d is not valid; expected another rank of %d and a name of 1 to %d bytes",
            name, rank, mesh->ranks, MU_MAX_STREAM_NAME);
        return NULL;
    }
    if (mu__mesh_check(mesh, -1) != MU_OK)
        return NULL;
    return begin(mesh, rank, &mu__peer_session(mesh, rank)->endpoint, name, mesh->timeout);
}

mu_status mu__stream_step(mu_stream_opening *o, mu_stream **out)
{
    mu_link *link = NULL;
    *out = NULL;
    MU_TRY(o->stage == STAGE_ACCEPT ? await_peer(o, &link) : open_link(o, &link));
    if (link == NULL)
        return MU_OK;
    *out = mu__stream_of(link);
    return *out != NULL ? MU_OK : mu_error_code();
}

void mu__stream_end(mu_stream_opening *o)
{
    if (o == NULL)
        return;
    hang_up(o);
    mu__free(o);
}

// ---- On the caller's thread ---------------------------------------------------------------------

// Waits until a step may do something.
static mu_status wait_for_step(const mu_stream_opening *o)
{
    mu_status status = MU_OK;
    switch (o->stage) {
    case STAGE_ACCEPT:
        pthread_mutex_lock(&o->mesh->lock);
        if (!mu__pending_stream_has(o->mesh, o->rank, o->name))
            status = mu__mesh_pause(o->mesh);
        pthread_mutex_unlock(&o->mesh->lock);
        break;
    case STAGE_CONNECT: mu__system->wait(o->fd, POLLOUT, o->deadline_ns); break;
    case STAGE_SHAKE:
        mu__system->wait(mu__link_fd(o->handshake.link), mu__link_events(o->handshake.link), o->deadline_ns);
        break;
    case STAGE_HELLO:
        mu__system->wait(mu__link_fd(o->handshake.link), mu__handshake_events(&o->handshake), o->deadline_ns);
        break;
    case STAGE_PAUSE: mu__sleep_ns(MU_MAX(o->again_ns - mu__now_ns(), 0)); break;
    }
    return status;
}

static mu_stream *open_now(mu_stream_opening *o)
{
    mu_stream *stream = NULL;
    while (o != NULL && mu__stream_step(o, &stream) == MU_OK && stream == NULL && wait_for_step(o) == MU_OK)
        continue;
    mu__stream_end(o);
    return stream;
}

mu_stream *mu__mesh_stream(mu_mesh *mesh, int rank, const char *name)
{
    return open_now(mu__stream_begin(mesh, rank, name));
}

mu_stream *mu__stream_at(mu_mesh *mesh, int rank, const mu_endpoint *at, const char *name, double seconds)
{
    return open_now(begin(mesh, rank, at, name, seconds));
}
