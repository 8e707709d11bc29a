// The mesh object: creation, queries, failure, release; and the thread that owns its connections.
//
// The thread sleeps in epoll. Other threads append output to a peer's `out` under the lock and wake it. It reads input
// before it judges peers, so that heartbeats which arrived while this process was stopped still count. Connecting
// (bootstrap.c), admission (incoming.c) and detection of dead peers (heartbeat.c) are elsewhere.
#include "comm/mesh_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINGER_NS 2000000000
enum { EVENTS = 64, PAUSE_MS = 200, LEAVE_MS = 1000 };
enum { MOST_GREETING = MU_MAX_GREETING - 80 }; // limit for the caller's part of the greeting

// ---- The thread's descriptors -------------------------------------------------------------------

void mu__mesh_listen_for(mu_mesh *mesh, int fd, mu_source source, int index, short events)
{
    struct epoll_event event = {.events = (events & POLLIN ? EPOLLIN : 0u) | (events & POLLOUT ? EPOLLOUT : 0u),
                                .data.u64 = (uint64_t)source << 32 | (uint32_t)index};
    if (epoll_ctl(mesh->epoll, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT &&
        epoll_ctl(mesh->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        mu__log(MU_LOG_WARNING, "cannot watch a connection: %s", strerror(errno));
}

void mu__mesh_forget(mu_mesh *mesh, int fd) { epoll_ctl(mesh->epoll, EPOLL_CTL_DEL, fd, NULL); }

void mu__mesh_wake(mu_mesh *mesh)
{
    const uint64_t one = 1;
    if (write(mesh->wake, &one, sizeof one) < 0)
        return; // already awake: the counter is full
}

mu_status mu__mesh_pause(mu_mesh *mesh)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PAUSE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&mesh->changed, &mesh->lock, &until);
    return mu__check_stop();
}

// ---- Failing ------------------------------------------------------------------------------------

void mu__peer_tell(mu_mesh *mesh, int rank)
{
    mu_peer *peer = &mesh->peers[rank];
    mu_failure news = {.code = mesh->failure.code};
    snprintf(news.message, sizeof news.message, "%s", mesh->failure.message);
    if (peer->state != MU_PEER_HERE ||
        mu__frame_put_failure(&peer->handshake.out, peer->number, MU_FRAME_FAILURE, &news) != MU_OK)
        return;
    peer->number++;
    peer->told = true;
}

void mu__mesh_fail_with(mu_mesh *mesh, const mu_error_value *error)
{
    if (mesh->failure.code != MU_OK || error->code == MU_OK)
        return;
    mesh->failure = *error;
    mesh->failed_ns = mu__now_ns();
    atomic_store(&mesh->trouble, true);
    for (int rank = 0; rank < mesh->ranks; rank++)
        mu__peer_tell(mesh, rank);
    pthread_cond_broadcast(&mesh->changed);
    mu__mesh_wake(mesh);
}

bool mu__mesh_lingers(const mu_mesh *mesh, int64_t now)
{
    const bool misfit = mesh->failure.code == MU_FAILED_PRECONDITION || mesh->refusing;
    if (mesh->joined || !misfit || now - mesh->failed_ns > LINGER_NS)
        return false;
    for (int rank = 0; rank < mesh->ranks; rank++)
        if (rank != mesh->rank && !mesh->peers[rank].told)
            return true;
    return false;
}

void mu__mesh_fail_text(mu_mesh *mesh, mu_status code, const char *format, ...)
{
    mu_error_value error = {.code = code, .file = __FILE__, .line = __LINE__};
    va_list values;
    va_start(values, format);
    vsnprintf(error.message, sizeof error.message, format, values);
    va_end(values);
    mu__mesh_fail_with(mesh, &error);
}

void mu__mesh_fail(mu_mesh *mesh, const mu_error_value *error)
{
    mu_error_value named = *error;
    const int used = snprintf(named.message, sizeof named.message, "%s failed: ", mesh->peers[mesh->rank].name);
    snprintf(named.message + used, sizeof named.message - (size_t)used, "%s", error->message);
    pthread_mutex_lock(&mesh->lock);
    mu__mesh_fail_with(mesh, &named);
    pthread_mutex_unlock(&mesh->lock);
}

bool mu__mesh_has_failed(mu_mesh *mesh, mu_error_value *out)
{
    if (!atomic_load(&mesh->trouble))
        return false;
    pthread_mutex_lock(&mesh->lock);
    const bool failed = mesh->failure.code != MU_OK;
    if (failed && out != NULL)
        *out = mesh->failure;
    pthread_mutex_unlock(&mesh->lock);
    return failed;
}

static bool has_left(mu_mesh *mesh, int rank)
{
    pthread_mutex_lock(&mesh->lock);
    const bool left = rank >= 0 && rank != mesh->rank && mesh->peers[rank].state == MU_PEER_LEFT;
    pthread_mutex_unlock(&mesh->lock);
    return left;
}

bool mu__mesh_is_gone(mu_mesh *mesh, int rank)
{
    return atomic_load(&mesh->trouble) && (mu__mesh_has_failed(mesh, NULL) || has_left(mesh, rank));
}

mu_status mu__mesh_check(mu_mesh *mesh, int rank)
{
    mu_error_value failure;
    if (!atomic_load(&mesh->trouble))
        return MU_OK;
    if (mu__mesh_has_failed(mesh, &failure))
        return mu__error_raise(&failure);
    return has_left(mesh, rank)
               ? mu__error(MU_UNAVAILABLE,
                           "%s (%s) has left the job, while this process still needs it: all processes must "
                           "run the same program",
                           mesh->peers[rank].name, mu__peer_where(&mesh->peers[rank]))
               : MU_OK;
}

// ---- Watching -----------------------------------------------------------------------------------

mu_status mu__mesh_watch(mu_mesh *mesh, mu_mesh_failed *failed, void *arg)
{
    pthread_mutex_lock(&mesh->lock);
    const mu_status status = MU_PUSH(&mesh->watches, ((mu_watch){.failed = failed, .arg = arg}));
    pthread_mutex_unlock(&mesh->lock);
    mu__mesh_wake(mesh);
    return status;
}

void mu__mesh_unwatch(mu_mesh *mesh, mu_mesh_failed *failed, void *arg)
{
    pthread_mutex_lock(&mesh->lock);
    for (size_t i = 0; i < mesh->watches.n; i++) {
        if (mesh->watches.items[i].failed != failed || mesh->watches.items[i].arg != arg)
            continue;
        mesh->watches.items[i] = mesh->watches.items[--mesh->watches.n];
        break;
    }
    while (mesh->calling)
        pthread_cond_wait(&mesh->changed, &mesh->lock);
    pthread_mutex_unlock(&mesh->lock);
}

// Calls watchers that have not been called yet, one at a time and without the lock.
static void tell_watchers(mu_mesh *mesh)
{
    for (size_t i = 0; mesh->failure.code != MU_OK && i < mesh->watches.n;) {
        if (mesh->watches.items[i].told) {
            i++;
            continue;
        }
        mesh->watches.items[i].told = true;
        const mu_watch watch = mesh->watches.items[i];
        const mu_error_value failure = mesh->failure;
        mesh->calling = true;
        pthread_mutex_unlock(&mesh->lock);
        watch.failed(watch.arg, &failure);
        pthread_mutex_lock(&mesh->lock);
        mesh->calling = false;
        pthread_cond_broadcast(&mesh->changed);
        i = 0;
    }
}

// ---- Peers --------------------------------------------------------------------------------------

const char *mu__peer_where(const mu_peer *peer)
{
    return peer->address[0] != '\0' ? peer->address : "address not known yet";
}

void mu__peer_reason(mu_peer *peer, const char *why)
{
    snprintf(peer->reason, sizeof peer->reason, "%.*s", (int)sizeof peer->reason - 1, why);
}

void mu__peer_close(mu_mesh *mesh, int rank)
{
    mu_peer *peer = &mesh->peers[rank];
    mu__handshake_end(&peer->handshake);
    peer->ready = peer->wants_out = false;
}

void mu__peer_gone(mu_mesh *mesh, int rank, const char *why)
{
    mu_peer *peer = &mesh->peers[rank];
    if (peer->state == MU_PEER_LEFT)
        return;
    mu__peer_close(mesh, rank);
    if (!mesh->joined) {
        peer->state = MU_PEER_AWAY;
        snprintf(peer->reason, sizeof peer->reason, "it was here, but is gone: %s", why);
        peer->outgoing.retry_ns = 0;
        return;
    }
    peer->state = MU_PEER_LOST;
    char word[MU_MAX_WORD + 80], own[MU_MAX_WORD + 16];
    mu__last_word(peer, word, sizeof word);
    mu__own_doing(mesh, own, sizeof own);
    mu__mesh_fail_text(mesh, MU_UNAVAILABLE,
                       "%s (%s) is gone: %s; %s. %s noticed while %s. Look at that process and its host, then start "
                       "the job again.",
                       peer->name, mu__peer_where(peer), why, word, mesh->peers[mesh->rank].name, own);
}

void mu__peer_flush(mu_mesh *mesh, int rank)
{
    mu_peer *peer = &mesh->peers[rank];
    bool all;
    if (peer->handshake.link == NULL)
        return;
    const int fd = mu__link_fd(peer->handshake.link);
    if (mu__handshake_flush(&peer->handshake, &all) != MU_OK) {
        // Input that the peer sent before it closed is read first; the end of that input then ends the peer.
        shutdown(fd, SHUT_WR);
        peer->handshake.sent = peer->handshake.out.n = 0;
        all = true;
    }
    if (all == peer->wants_out)
        mu__mesh_listen_for(mesh, fd, MU_SOURCE_PEER, rank, all ? POLLIN : POLLIN | POLLOUT);
    peer->wants_out = !all;
}

static void peer_failed(mu_mesh *mesh, const mu_failure *news)
{
    mu_error_value error = {.code = news->code, .file = ""};
    snprintf(error.message, sizeof error.message, "%.*s", (int)sizeof error.message - 1, news->message);
    mu__mesh_fail_with(mesh, &error);
}

// Returns false for a frame that is invalid or not allowed here.
static bool handle(mu_mesh *mesh, int rank, const mu_frame *frame)
{
    mu_peer *peer = &mesh->peers[rank];
    mu_heartbeat beat;
    mu_block block;
    mu_failure news;
    mu_peer_address whereabouts;
    switch (frame->type) {
    case MU_FRAME_HEARTBEAT:
        if (!mu__frame_heartbeat(frame, &beat))
            return false;
        mu__heartbeat_heard(mesh, rank, &beat);
        return true;
    case MU_FRAME_BLOCK: return mu__frame_block(frame, &block) && mu__exchange_arrived(mesh, rank, &block) == MU_OK;
    case MU_FRAME_FAILURE:
        if (!mu__frame_failure(frame, &news))
            return false;
        peer_failed(mesh, &news);
        return true;
    case MU_FRAME_ADDRESS:
        if (rank != 0 || !mu__frame_peer_address(frame, &whereabouts))
            return false;
        mu__bootstrap_learn(mesh, &whereabouts);
        return true;
    case MU_FRAME_READY: peer->ready = true; return mesh->rank == 0;
    case MU_FRAME_GO:
        if (rank != 0)
            return false;
        mu__bootstrap_go(mesh);
        return true;
    case MU_FRAME_LEAVE:
        peer->state = MU_PEER_LEFT;
        atomic_store(&mesh->trouble, true);
        pthread_cond_broadcast(&mesh->changed);
        return true;
    default: return false;
    }
}

void mu__peer_event(mu_mesh *mesh, int rank, int64_t now)
{
    mu_peer *peer = &mesh->peers[rank];
    while (peer->handshake.link != NULL && peer->state == MU_PEER_HERE) {
        mu_frame frame;
        const size_t before = peer->handshake.frames.have;
        const mu_status status = mu__frames_next(&peer->handshake.frames, peer->handshake.link, &frame);
        // Part of a large frame is a sign of life too.
        if (peer->handshake.frames.have != before)
            peer->heard_ns = now;
        if (status == MU_OK && frame.type == 0)
            break;
        if (status == MU_OK && handle(mesh, rank, &frame))
            continue;
        mu_error_value ignored;
        mu__error_move(&ignored);
        mu__peer_gone(mesh, rank,
                      status == MU_UNAVAILABLE          ? "connection closed"
                      : status == MU_RESOURCE_EXHAUSTED ? "no memory here for what it sent"
                                                        : "what came from it was damaged or tampered with");
        return;
    }
    if (peer->state == MU_PEER_LEFT)
        mu__peer_close(mesh, rank);
    else
        mu__peer_flush(mesh, rank);
}

// ---- The thread ---------------------------------------------------------------------------------

static void dispatch(mu_mesh *mesh, uint64_t data, int64_t now)
{
    const int index = (int)(data & UINT32_MAX);
    uint64_t count;
    switch ((mu_source)(data >> 32)) {
    case MU_SOURCE_WAKE:
        if (read(mesh->wake, &count, sizeof count) < 0)
            break; // another wake-up has already been read
        break;
    case MU_SOURCE_LISTENER: mu__incoming_accept(mesh, mesh->listener.fds[index], now); break;
    case MU_SOURCE_PEER: mu__peer_event(mesh, index, now); break;
    case MU_SOURCE_OUTGOING: mu__bootstrap_event(mesh, index, now); break;
    case MU_SOURCE_INCOMING: mu__incoming_event(mesh, index, now); break;
    }
}

// How long the thread may sleep: until the next heartbeat is due; while processes still join, 5 ms, and 50 ms after 2
// s.
static int poll_ms(const mu_mesh *mesh)
{
    const int64_t now = mu__now_ns(), due = mesh->beat_ns + (int64_t)(mu__heartbeat_seconds(mesh) * 1e9) - now;
    if (mesh->joined)
        return MU_MAX((int)(due / 1000000) + 1, 1);
    return now - mesh->began_ns < 2000000000 ? 5 : 50;
}

static void flush_all(mu_mesh *mesh)
{
    for (int rank = 0; rank < mesh->ranks; rank++)
        if (mesh->peers[rank].handshake.out.n > 0 && !mesh->peers[rank].wants_out)
            mu__peer_flush(mesh, rank);
}

// Reads input, at most once per possible connection: epoll reports every ready connection before it repeats one, so
// peers are heard however many unknown connections there are. Returns with the lock held.
static int64_t read_all(mu_mesh *mesh)
{
    struct epoll_event events[EVENTS];
    const int most = (mesh->ranks + MU_MAX_INCOMING + MU_MAX_LISTENERS) / EVENTS + 1;
    int wait_ms = poll_ms(mesh), n = EVENTS;
    int64_t now = 0;
    for (int round = 0; round < most && n == EVENTS; round++, wait_ms = 0) {
        pthread_mutex_unlock(&mesh->lock);
        n = epoll_wait(mesh->epoll, events, EVENTS, wait_ms);
        pthread_mutex_lock(&mesh->lock);
        now = mu__now_ns();
        for (int i = 0; i < n; i++)
            dispatch(mesh, events[i].data.u64, now);
    }
    return now;
}

// One iteration: sleep, read, check peers, send. Returns with the lock held.
static void poll_once(mu_mesh *mesh)
{
    const int64_t now = read_all(mesh);
    if (!mesh->joined && (mesh->failure.code == MU_OK || mu__mesh_lingers(mesh, now)))
        mu__bootstrap_poll(mesh, now);
    mu__incoming_poll(mesh, now);
    mu__heartbeats_poll(mesh, now);
    flush_all(mesh);
    tell_watchers(mesh);
}

static bool all_sent(const mu_mesh *mesh)
{
    for (int rank = 0; rank < mesh->ranks; rank++) {
        const mu_peer *peer = &mesh->peers[rank];
        const mu_link *link = peer->handshake.link;
        int unread = 0;
        if (link != NULL && (peer->handshake.out.n > 0 || (ioctl(mu__link_fd(link), SIOCOUTQ,
                                                                 &unread) == 0 && unread > 0)))
            return false;
    }
    return true;
}

// Sends LEAVE and waits until other hosts have received it; closing earlier could discard it.
static void leave(mu_mesh *mesh)
{
    for (int rank = 0; rank < mesh->ranks; rank++) {
        mu_peer *peer = &mesh->peers[rank];
        if (peer->handshake.link != NULL && mu__frame_put_word(&peer->handshake.out, peer->number,
                                                               MU_FRAME_LEAVE) == MU_OK)
            peer->number++;
    }
    const int64_t deadline = mu__now_ns() + LEAVE_MS * 1000000LL;
    for (;;) {
        for (int rank = 0; rank < mesh->ranks; rank++)
            mu__peer_flush(mesh, rank);
        if (all_sent(mesh) || mu__now_ns() >= deadline)
            return;
        pthread_mutex_unlock(&mesh->lock);
        usleep(500);
        pthread_mutex_lock(&mesh->lock);
    }
}

static void run(void *arg)
{
    mu_mesh *mesh = arg;
    pthread_mutex_lock(&mesh->lock);
    while (!mesh->ending)
        poll_once(mesh);
    leave(mesh);
    pthread_mutex_unlock(&mesh->lock);
}

// ---- Creation and release -----------------------------------------------------------------------

static void mesh_destroy(void *object)
{
    mu_mesh *mesh = object;
    if (mesh->thread != NULL) {
        pthread_mutex_lock(&mesh->lock);
        mesh->ending = true;
        pthread_mutex_unlock(&mesh->lock);
        mu__mesh_wake(mesh);
        mu__worker_free(mesh->thread);
    }
    mu__bootstrap_end(mesh);
    mu__incoming_end(mesh);
    mu__pending_streams_end(mesh);
    for (int rank = 0; mesh->peers != NULL && rank < mesh->ranks; rank++) {
        mu__peer_close(mesh, rank);
        mu__exchange_blocks_free(&mesh->peers[rank]);
        mu__free(mesh->peers[rank].name);
        mu__free(mesh->peers[rank].address);
    }
    mu__free(mesh->peers);
    mu__free(mesh->watches.items);
    mu__free(mesh->greeting);
    mu__listener_close(&mesh->listener);
    if (mesh->epoll >= 0)
        close(mesh->epoll);
    if (mesh->wake >= 0)
        close(mesh->wake);
    mu_release(mesh->keyring);
    if (!mesh->has_lock)
        return;
    pthread_cond_destroy(&mesh->changed);
    pthread_mutex_destroy(&mesh->lock);
    pthread_mutex_destroy(&mesh->doing_lock);
}

static mu_type mesh_type = {.name = "mesh", .destroy = mesh_destroy};

static void make_locks(mu_mesh *mesh)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&mesh->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&mesh->lock, NULL);
    pthread_mutex_init(&mesh->doing_lock, NULL);
    mesh->has_lock = true;
}

// What two processes must share in order to share memory: boot, user, and the namespaces of sockets, process IDs and
// /dev/shm.
static mu_status find_place(uint8_t out[MU_PLACE])
{
    char text[512] = "", net[64] = "", pid[64] = "", boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL && fgets(boot, sizeof boot, file) == NULL)
        boot[0] = '\0';
    if (file != NULL)
        fclose(file);
    const bool known = boot[0] != '\0' && readlink("/proc/self/ns/net", net, sizeof net - 1) > 0 &&
                       readlink("/proc/self/ns/pid", pid, sizeof pid - 1) > 0;
    struct stat shm = {0};
    if (!known || stat("/dev/shm", &shm) != 0)
        return mu__nonce(out, MU_PLACE); // random, so that it equals no other process's
    snprintf(text, sizeof text, "%s %s %s %lu %lu %u", boot, net, pid, (unsigned long)shm.st_dev,
             (unsigned long)shm.st_ino, (unsigned)geteuid());
    unsigned n = 0;
    if (EVP_Digest(text, strlen(text), out, &n, EVP_sha256(), NULL) == 1)
        return MU_OK;
    return mu__error(MU_INTERNAL, "OpenSSL cannot compute SHA-256");
}

static mu_status check_addresses(const mu_mesh_options *options)
{
    char host[MU_MAX_HOST + 1];
    int port;
    for (int rank = 0; rank < options->ranks; rank++)
        if (options->peers[rank].address[0] != '\0')
            MU_TRY(mu__address_split(options->peers[rank].address, host, &port));
    if (options->ranks > 1 && options->peers[0].address[0] == '\0')
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s has no address, so no other process can find it; the first process of a cluster needs "
                         "one (\"host:port\")",
                         options->peers[0].name);
    return MU_OK;
}

static mu_status check_options(const mu_mesh_options *options)
{
    if (options->ranks < 1 || options->ranks > MU_MAX_PROCESSES || options->rank < 0 || options->rank >= options->ranks)
        return mu__error(MU_INVALID_ARGUMENT, "rank %d of %d is not valid; expected a rank from 0 of at most %d",
                         options->rank, options->ranks, MU_MAX_PROCESSES);
    if (options->greeting != NULL && strlen(options->greeting) > MOST_GREETING)
        return mu__error(MU_INVALID_ARGUMENT, "the greeting has %zu bytes; at most %d fit", strlen(options->greeting),
                         MOST_GREETING);
    if (options->key != NULL)
        MU_TRY(mu__key_check(options->key));
    return check_addresses(options);
}

static bool wants_fastest(void)
{
    const char *interface = mu__setting_text(MU_SETTING_INTERFACE);
    return interface != NULL && strcmp(interface, "fastest") == 0;
}

static mu_status copy_options(mu_mesh *mesh, const mu_mesh_options *options)
{
    mesh->rank = options->rank;
    mesh->timeout = mu__setting_real(MU_SETTING_TIMEOUT);
    mesh->join_seconds = options->join_seconds > 0 ? options->join_seconds : mesh->timeout;
    mesh->heartbeat_seconds =
        options->heartbeat_seconds > 0 ? options->heartbeat_seconds : mu__setting_real(MU_SETTING_HEARTBEAT);
    mesh->open = options->key != NULL || mu__setting_bool(MU_SETTING_ALLOW_UNAUTHENTICATED);
    // The sender's own setting determines how often heartbeats are sent, so all processes must have the same.
    mesh->greeting = mu__sprintf("MUSTER_HEARTBEAT=%g%s, %s", mesh->heartbeat_seconds,
                                 wants_fastest() ? ", MUSTER_INTERFACE=fastest" : "",
                                 options->greeting != NULL ? options->greeting : "");
    mesh->peers = mu__calloc((size_t)options->ranks, sizeof *mesh->peers);
    if (mesh->greeting == NULL || mesh->peers == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mesh->ranks = options->ranks;
    for (int rank = 0; rank < mesh->ranks; rank++) {
        mu_peer *peer = &mesh->peers[rank];
        peer->name = mu__strdup(options->peers[rank].name);
        peer->address = mu__strdup(options->peers[rank].address);
        if (peer->name == NULL || peer->address == NULL)
            return MU_RESOURCE_EXHAUSTED;
        peer->learned = peer->address[0] == '\0';
        peer->outgoing.fd = -1;
        snprintf(peer->reason, sizeof peer->reason, "%s", rank > mesh->rank ? "it has not come yet" : "not tried yet");
    }
    const char *interface = mu__setting_text(MU_SETTING_INTERFACE);
    return interface != NULL && !wants_fastest() ? mu__interface_endpoints(interface, &mesh->own) : MU_OK;
}

static mu_status start(mu_mesh *mesh, const mu_mesh_options *options)
{
    MU_TRY(check_options(options));
    MU_TRY(copy_options(mesh, options));
    MU_TRY(mu__nonce(mesh->incarnation, sizeof mesh->incarnation));
    MU_TRY(find_place(mesh->place));
    mesh->keyring = mu__keyring_new(options->key, options->plain);
    if (mesh->keyring == NULL)
        return mu_error_code();
    mesh->joined = mesh->ranks == 1;
    mesh->began_ns = mu__now_ns();
    mesh->doing_since_ns = mesh->began_ns;
    if (!mesh->joined)
        MU_TRY(mu__listen(mesh->peers[mesh->rank].address, mesh->open, &mesh->own, &mesh->listener));
    mesh->epoll = epoll_create1(EPOLL_CLOEXEC);
    mesh->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (mesh->epoll < 0 || mesh->wake < 0)
        return mu__error(mu__errno_code(errno), "cannot make the mesh's descriptors: %s; raise the limit on open files",
                         strerror(errno));
    mu__mesh_listen_for(mesh, mesh->wake, MU_SOURCE_WAKE, 0, POLLIN);
    for (int i = 0; i < mesh->listener.n; i++)
        mu__mesh_listen_for(mesh, mesh->listener.fds[i], MU_SOURCE_LISTENER, i, POLLIN);
    mesh->thread = mu__worker_new("mesh", NULL, 0, mu__context()->runtime);
    return mesh->thread != NULL ? mu__worker_post(mesh->thread, run, mesh) : mu_error_code();
}

static mu_status wait_for_all(mu_mesh *mesh)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&mesh->lock);
    while (!mesh->joined && status == MU_OK && (mesh->failure.code == MU_OK || mu__mesh_lingers(mesh, mu__now_ns())))
        status = mu__mesh_pause(mesh);
    const mu_error_value failure = mesh->failure;
    pthread_mutex_unlock(&mesh->lock);
    return status != MU_OK ? status : mu__error_raise(&failure);
}

mu_mesh *mu__mesh_join(const mu_mesh_options *options)
{
    if (mu__pending() || mu__runtime() == NULL)
        return NULL;
    mu_mesh *mesh = mu__new(&mesh_type, sizeof *mesh);
    if (mesh == NULL)
        return NULL;
    mesh->epoll = mesh->wake = -1;
    make_locks(mesh);
    if (start(mesh, options) == MU_OK && wait_for_all(mesh) == MU_OK &&
        (!wants_fastest() || mu__mesh_choose_routes(mesh) == MU_OK))
        return mesh;
    mu_release(mesh);
    return NULL;
}

// ---- Queries ------------------------------------------------------------------------------------

int mu__mesh_rank(const mu_mesh *mesh) { return mesh->rank; }
int mu__mesh_ranks(const mu_mesh *mesh) { return mesh->ranks; }
const char *mu__mesh_name(const mu_mesh *mesh, int rank) { return mesh->peers[rank].name; }

bool mu__mesh_same_host(const mu_mesh *mesh, int rank) { return rank == mesh->rank || mesh->peers[rank].same_host; }
