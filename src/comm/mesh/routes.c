// Finds the fastest network between two hosts that are connected by several, by measuring them.
//
// Every process listens on all its addresses, at its one port, and sends them to all. Then pairs of processes on
// different hosts measure in the rounds of a tournament: the higher rank opens a stream to each address of the
// lower one, measures its bandwidth, and keeps the best address for the streams that groups open later. An address that
// does not answer, or leads to another process, is not an error. Independent of what the streams carry.
#include "comm/mesh/mesh_private.h"

#include <netinet/in.h>
#include <poll.h>

enum { PROBE = 256 << 10, ROUNDS = 2, ADDRESS = 17, USUAL = 0xfe, DONE = 0xff };
#define REACH_SECONDS 1.5 // for an address to answer
#define PROBE_SECONDS 5.0 // for one measurement
#define BETTER        1.3 // another route must be faster than the usual one by this factor

// The circle method: all ranks but the last rotate on a ring; the last is paired with the rank that would be paired
// with itself.
int mu__mesh_partner(int rank, int round, int ranks)
{
    const int n = ranks + ranks % 2, ring = n - 1;
    if (rank == n - 1)
        for (int other = 0; other < ring; other++)
            if ((2 * other) % ring == round)
                return other;
    const int other = ((round - rank) % ring + ring) % ring;
    return other == rank ? n - 1 : other;
}

// ---- Addresses ----------------------------------------------------------------------------------

// One byte for the address family, then the address.
static void put_address(const mu_endpoint *endpoint, uint8_t out[ADDRESS])
{
    const bool v6 = endpoint->address.ss_family == AF_INET6;
    memset(out, 0, ADDRESS);
    out[0] = v6 ? 6 : 4;
    if (v6)
        memcpy(out + 1, &((const struct sockaddr_in6 *)(const void *)&endpoint->address)->sin6_addr, 16);
    else
        memcpy(out + 1, &((const struct sockaddr_in *)(const void *)&endpoint->address)->sin_addr, 4);
}

// False: the address family is unknown.
static bool get_address(const uint8_t in[ADDRESS], int port, mu_endpoint *out)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    memcpy(&v6.sin6_addr, in + 1, 16);
    memcpy(&v4.sin_addr, in + 1, 4);
    if (in[0] == 6) {
        *out = (mu_endpoint){.bytes = sizeof v6};
        memcpy(&out->address, &v6, sizeof v6);
    } else {
        *out = (mu_endpoint){.bytes = sizeof v4};
        memcpy(&out->address, &v4, sizeof v4);
    }
    mu__endpoint_set_port(out, port);
    return in[0] == 4 || in[0] == 6;
}

// Listens on addresses where it does not listen yet. If that fails, another process may have the port; the measurement
// then shows it.
static mu_status listen_at_all(mu_mesh *mesh, mu_endpoints *own)
{
    MU_TRY(mu__network_endpoints(own));
    pthread_mutex_lock(&mesh->lock);
    for (int i = 0; i < own->n; i++)
        if (mu__listen_more(&own->items[i], &mesh->node.listener))
            mu__node_watch(&mesh->node, mesh->node.listener.fds[mesh->node.listener.n - 1], MU_SOURCE_LISTENER,
                           mesh->node.listener.n - 1, POLLIN);
    pthread_mutex_unlock(&mesh->lock);
    return MU_OK;
}

static mu_status share_addresses(mu_mesh *mesh, mu_blocks *all)
{
    uint8_t mine[MU_MAX_ENDPOINTS * ADDRESS];
    mu_endpoints own = {0};
    if (mesh->node.open)
        MU_TRY(listen_at_all(mesh, &own));
    for (int i = 0; i < own.n; i++)
        put_address(&own.items[i], mine + (size_t)i * ADDRESS);
    return mu__mesh_exchange(mesh, "addresses of all networks", mine, (size_t)own.n * ADDRESS, all);
}

// ---- Bytes --------------------------------------------------------------------------------------

static mu_status move(mu_mesh *mesh, int rank, mu_stream *stream, void *data, size_t bytes, bool out, double seconds)
{
    const int64_t deadline = mu__deadline_ns(seconds);
    for (size_t done = 0, moved; done < bytes; done += moved) {
        uint8_t *at = (uint8_t *)data + done;
        const mu_status status =
            out ? mu__stream_send(stream, at, bytes - done, &moved) : mu__stream_recv(stream, at, bytes - done, &moved);
        if (status != MU_OK) {
            MU_TRY(mu__mesh_check(mesh, rank));
            return mu__error(status, "the connection to %s broke while networks were tried", mesh->peers[rank].name);
        }
        if (moved > 0)
            continue;
        MU_TRY(mu__mesh_check(mesh, rank));
        MU_TRY(mu__check_stop());
        if (!mu__system->wait(mu__stream_fd(stream), out ? POLLOUT : POLLIN, deadline) && mu__now_ns() >= deadline)
            return mu__error(MU_DEADLINE_EXCEEDED, "%s does not answer for %g s while networks are tried",
                             mesh->peers[rank].name, seconds);
    }
    return MU_OK;
}

// Bandwidth to the peer, from the fastest of ROUNDS measurements; the peer's answer confirms that the bytes have
// arrived.
static mu_status send_probe(mu_mesh *mesh, int rank, mu_stream *stream, uint8_t *buffer, double *mb_s)
{
    *mb_s = 0;
    for (int turn = 0; turn < ROUNDS; turn++) {
        const int64_t begin = mu__now_ns();
        MU_TRY(move(mesh, rank, stream, buffer, PROBE, true, PROBE_SECONDS));
        MU_TRY(move(mesh, rank, stream, buffer, 1, false, PROBE_SECONDS));
        const double seen = PROBE / ((double)(mu__now_ns() - begin) / 1e3);
        *mb_s = MU_MAX(*mb_s, seen);
    }
    return MU_OK;
}

static mu_status receive_probe(mu_mesh *mesh, int rank, mu_stream *stream, uint8_t *buffer)
{
    for (int turn = 0; turn < ROUNDS; turn++) {
        MU_TRY(move(mesh, rank, stream, buffer, PROBE, false, PROBE_SECONDS));
        MU_TRY(move(mesh, rank, stream, buffer, 1, true, PROBE_SECONDS));
    }
    return MU_OK;
}

// A failure on one network is ignored unless the job has failed.
static mu_status forgive(mu_mesh *mesh, int rank, mu_status status)
{
    mu_error_value ignored;
    if (status == MU_OK || mu__mesh_has_failed(mesh, NULL) || mu__check_stop() != MU_OK)
        return status;
    mu__error_move(&ignored);
    return mu__mesh_check(mesh, rank);
}

// ---- The measuring side -------------------------------------------------------------------------

typedef struct trial {
    mu_mesh *mesh;
    int rank;
    mu_stream *control; // the usual route; carries the index of the next address
    uint8_t *buffer;
    mu_endpoint best;
    double usual, fastest;
} trial;

static mu_status send_index(const trial *t, uint8_t index)
{
    return move(t->mesh, t->rank, t->control, &index, 1, true, t->mesh->timeout);
}

static mu_status try_address(trial *t, int number, const mu_endpoint *at)
{
    char name[24];
    double mb_s = 0;
    snprintf(name, sizeof name, "route %d", number);
    mu_stream *stream = mu__stream_at(t->mesh, t->rank, at, name, REACH_SECONDS);
    if (stream == NULL)
        return forgive(t->mesh, t->rank, mu_error_code());
    mu_status status = send_index(t, (uint8_t)number);
    if (status == MU_OK)
        status = forgive(t->mesh, t->rank, send_probe(t->mesh, t->rank, stream, t->buffer, &mb_s));
    mu__stream_close(stream);
    if (mb_s > t->fastest) {
        t->fastest = mb_s;
        t->best = *at;
    }
    return status;
}

static bool same_address(const mu_endpoint *a, const mu_endpoint *b)
{
    uint8_t x[ADDRESS], y[ADDRESS];
    put_address(a, x);
    put_address(b, y);
    return memcmp(x, y, ADDRESS) == 0;
}

static void take_best(const trial *t)
{
    char before[MU_MAX_ADDRESS + 1], now[MU_MAX_ADDRESS + 1];
    const mu_peer *peer = &t->mesh->peers[t->rank];
    mu_session *session = mu__peer_session(t->mesh, t->rank);
    if (t->fastest < BETTER * t->usual)
        return;
    mu__endpoint_text(&session->endpoint, before, sizeof before);
    mu__endpoint_text(&t->best, now, sizeof now);
    mu__log(MU_LOG_WARNING, "%s reaches %s by %s with %.3g MB/s; by %s, where it was found, with %.3g MB/s",
            t->mesh->peers[t->mesh->rank].name, peer->name, now, t->fastest, before, t->usual);
    session->endpoint = t->best;
}

static mu_status try_all(trial *t, const uint8_t *addresses, int n)
{
    const mu_session *session = mu__peer_session(t->mesh, t->rank);
    MU_TRY(send_index(t, USUAL));
    MU_TRY(send_probe(t->mesh, t->rank, t->control, t->buffer, &t->usual));
    for (int i = 0; i < n; i++) {
        mu_endpoint at;
        if (!get_address(addresses + (size_t)i * ADDRESS, session->port, &at))
            continue;
        if (!same_address(&at, &session->endpoint))
            MU_TRY(try_address(t, i, &at));
    }
    take_best(t);
    return send_index(t, DONE);
}

// ---- The measured side --------------------------------------------------------------------------

static mu_status serve(const trial *t)
{
    for (;;) {
        uint8_t index;
        char name[24];
        MU_TRY(move(t->mesh, t->rank, t->control, &index, 1, false, t->mesh->timeout));
        if (index == DONE)
            return MU_OK;
        if (index == USUAL) {
            MU_TRY(receive_probe(t->mesh, t->rank, t->control, t->buffer));
            continue;
        }
        snprintf(name, sizeof name, "route %d", index);
        mu_stream *stream = mu__mesh_stream(t->mesh, t->rank, name);
        mu_status status = stream != NULL ? receive_probe(t->mesh, t->rank, stream, t->buffer) : mu_error_code();
        mu__stream_close(stream);
        MU_TRY(forgive(t->mesh, t->rank, status));
    }
}

// ---- All pairs ----------------------------------------------------------------------------------

static mu_status compare_routes(mu_mesh *mesh, int rank, const uint8_t *addresses, size_t bytes)
{
    trial t = {.mesh = mesh, .rank = rank, .buffer = mu__calloc(1, PROBE)};
    if (t.buffer == NULL)
        return MU_RESOURCE_EXHAUSTED;
    t.control = mu__mesh_stream(mesh, rank, "routes");
    const int n = (int)(MU_MIN(bytes, MU_MAX_ENDPOINTS * ADDRESS) / ADDRESS);
    const mu_status status = t.control == NULL   ? mu_error_code()
                             : rank < mesh->rank ? try_all(&t, addresses, n)
                                                 : serve(&t);
    mu__stream_close(t.control);
    mu__free(t.buffer);
    return status;
}

mu_status mu__mesh_choose_routes(mu_mesh *mesh)
{
    mu_blocks all = {0};
    if (mesh->ranks == 1)
        return MU_OK;
    mu__mesh_doing(mesh, "trying networks", -1, NULL);
    mu_status status = share_addresses(mesh, &all);
    const int rounds = mesh->ranks + mesh->ranks % 2 - 1;
    for (int round = 0; status == MU_OK && round < rounds; round++) {
        const int rank = mu__mesh_partner(mesh->rank, round, mesh->ranks);
        if (rank < mesh->ranks && !mu__mesh_same_host(mesh, rank))
            status = compare_routes(mesh, rank, all.data[rank], all.bytes[rank]);
    }
    mu__blocks_free(&all);
    mu__mesh_doing(mesh, "starting", -1, NULL);
    return status;
}
