// Measures one pair of processes on its own stream: round trips with time stamps, then bandwidth in each direction.
//
// The lower rank asks, the higher one answers. The clock difference is taken from the fastest round trip, in which the
// answer is closest to the middle. Independent of clusters and tables.
#include "tools/doctor.h"

#include <linux/tcp.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { TRIPS = 300, WARM_UP = 20, CHUNK = 1 << 20 };
#define FLOW_NS 200000000
#define SPIN_NS 20000

typedef struct talk {
    mu_mesh *mesh;
    mu_stream *stream;
    int peer;
    double seconds;
    uint8_t *chunk;
} talk;

static double wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static mu_status lost(const talk *t, mu_status status)
{
    MU_TRY(mu__mesh_check(t->mesh, t->peer));
    return mu__error(status, "the connection to %s broke while it was measured: %s", mu__mesh_name(t->mesh, t->peer),
                     status == MU_DATA_LOSS ? "what came was damaged" : "it was closed");
}

// Polls without sleeping for SPIN_NS, so that a fast answer is not measured with a sleep; then sleeps, because the peer
// may share this core.
static mu_status wait_for(const talk *t, short events, int64_t since, int64_t deadline)
{
    const int64_t now = mu__now_ns();
    if (now - since < SPIN_NS)
        return MU_OK;
    struct pollfd one = {.fd = mu__stream_fd(t->stream), .events = events};
    poll(&one, 1, 200);
    MU_TRY(mu__mesh_check(t->mesh, -1));
    if (now < deadline)
        return MU_OK;
    char doing[200];
    mu__mesh_peer_doing(t->mesh, t->peer, doing, sizeof doing);
    return mu__error(MU_DEADLINE_EXCEEDED, "%s does not answer for %g s; it %s", mu__mesh_name(t->mesh, t->peer),
                     t->seconds, doing);
}

static mu_status move(const talk *t, void *data, size_t bytes, bool out)
{
    const int64_t since = mu__now_ns(), deadline = mu__deadline_ns(t->seconds);
    for (size_t done = 0; done < bytes;) {
        size_t moved;
        uint8_t *at = (uint8_t *)data + done;
        const mu_status status = out ? mu__stream_send(t->stream, at, bytes - done, &moved)
                                     : mu__stream_recv(t->stream, at, bytes - done, &moved);
        if (status != MU_OK)
            return lost(t, status);
        done += moved;
        if (moved == 0)
            MU_TRY(wait_for(t, out ? POLLOUT : POLLIN, since, deadline));
    }
    return MU_OK;
}

// ---- Round trips --------------------------------------------------------------------------------

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static mu_status ask(const talk *t, mu_doctor_pair *out)
{
    double trips[TRIPS], best = 1e300;
    for (int i = -WARM_UP; i < TRIPS; i++) {
        double theirs = 0;
        const double before = wall_clock();
        const int64_t begin = mu__now_ns();
        MU_TRY(move(t, &theirs, sizeof theirs, true));
        MU_TRY(move(t, &theirs, sizeof theirs, false));
        const double took = (double)(mu__now_ns() - begin) / 1e3;
        if (took < best) {
            best = took;
            out->clock_s = theirs - (before + took / 2e6);
        }
        if (i >= 0)
            trips[i] = took;
    }
    qsort(trips, TRIPS, sizeof *trips, by_size);
    out->round_trip_us = trips[TRIPS / 2];
    out->slowest_us = trips[TRIPS - 1];
    return MU_OK;
}

static mu_status answer(const talk *t)
{
    for (int i = -WARM_UP; i < TRIPS; i++) {
        double ours;
        MU_TRY(move(t, &ours, sizeof ours, false));
        ours = wall_clock();
        MU_TRY(move(t, &ours, sizeof ours, true));
    }
    return MU_OK;
}

// ---- Bytes --------------------------------------------------------------------------------------

// Sends chunks, each after a byte that announces it, until time is up; the receiver confirms the end.
static mu_status pour(const talk *t, double *mb_s)
{
    const int64_t begin = mu__now_ns();
    uint8_t more = 1;
    double bytes = 0;
    do {
        MU_TRY(move(t, &more, 1, true));
        MU_TRY(move(t, t->chunk, CHUNK, true));
        bytes += CHUNK;
    } while (mu__now_ns() - begin < FLOW_NS);
    more = 0;
    MU_TRY(move(t, &more, 1, true));
    MU_TRY(move(t, &more, 1, false));
    *mb_s = bytes / ((double)(mu__now_ns() - begin) / 1e3);
    return MU_OK;
}

static mu_status drink(const talk *t)
{
    uint8_t more;
    for (;;) {
        MU_TRY(move(t, &more, 1, false));
        if (more == 0)
            return move(t, &more, 1, true);
        MU_TRY(move(t, t->chunk, CHUNK, false));
    }
}

// Packets that this end has sent and retransmitted; zeros if the system does not report them.
static struct tcp_info sent(const talk *t)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(mu__stream_fd(t->stream), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        info = (struct tcp_info){0};
    return info;
}

// Retransmissions during the round trips: these packets cannot overload the network, so a loss indicates a fault.
static mu_status measure_trips(const talk *t, bool asks, mu_doctor_pair *out)
{
    const struct tcp_info before = sent(t);
    MU_TRY(asks ? ask(t, out) : answer(t));
    const struct tcp_info after = sent(t);
    out->resent = (double)(after.tcpi_total_retrans - before.tcpi_total_retrans) / (TRIPS + WARM_UP);
    return MU_OK;
}

static mu_status measure(const talk *t, mu_doctor_pair *out)
{
    const bool asks = out->from == mu__mesh_rank(t->mesh);
    MU_TRY(measure_trips(t, asks, out));
    MU_TRY(asks ? pour(t, &out->out_mb_s) : drink(t));
    // The sender knows the bandwidth and reports it.
    MU_TRY(asks ? drink(t) : pour(t, &out->in_mb_s));
    double theirs[] = {out->in_mb_s, out->resent};
    MU_TRY(move(t, theirs, sizeof theirs, !asks));
    out->in_mb_s = theirs[0];
    out->resent = fmax(theirs[1], out->resent);
    return MU_OK;
}

mu_status mu__doctor_measure(mu_mesh *mesh, int peer, double seconds, mu_doctor_pair *out)
{
    const int rank = mu__mesh_rank(mesh);
    *out = (mu_doctor_pair){.from = MU_MIN(rank, peer), .to = MU_MAX(rank, peer)};
    talk t = {.mesh = mesh, .peer = peer, .seconds = seconds, .chunk = mu__calloc(1, CHUNK)};
    if (t.chunk == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu__mesh_doing(mesh, "measuring with", -1, mu__mesh_name(mesh, peer));
    t.stream = mu__mesh_stream(mesh, peer, "doctor");
    const mu_status status = t.stream != NULL ? measure(&t, out) : mu_error_code();
    mu__stream_close(t.stream);
    mu__free(t.chunk);
    return status;
}
