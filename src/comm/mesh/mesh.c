// The mesh object: creation, queries, failure, release; its steps, and the thread that drives them.
//
// A mesh is a node whose members are equal ranks: all join, and the death of one is the death of all. The thread sleeps
// in the node's poller. Other threads append output to a session under the lock and wake it. Joining (bootstrap.c),
// sessions and the detection of dead peers (session.c, heartbeat.c) are elsewhere.
#include "comm/mesh/mesh_private.h"

#include <stdarg.h>

#define LINGER_NS     2000000000
#define LEAVE_NS      1000000000
#define LEAVE_POLL_NS 500000
#define PROGRESS_NS   10000000
enum { MOST_GREETING = MU_MAX_GREETING - 80 }; // limit for the caller's part of the greeting

// ---- Waiting ------------------------------------------------------------------------------------

mu_status mu__mesh_keep(mu_mesh *mesh, void *object, mu_mesh_progress *progress)
{
    pthread_mutex_lock(&mesh->lock);
    const mu_status status = MU_PUSH(&mesh->kept, ((mu_kept_object){.object = object, .progress = progress}));
    if (status == MU_OK)
        mu_retain(object);
    pthread_mutex_unlock(&mesh->lock);
    return status;
}

void *mu__mesh_kept(mu_mesh *mesh, size_t i)
{
    pthread_mutex_lock(&mesh->lock);
    void *object = i < mesh->kept.n ? mesh->kept.items[i].object : NULL;
    pthread_mutex_unlock(&mesh->lock);
    return object;
}

mu_status mu__mesh_pause(mu_mesh *mesh)
{
    mu__condition_wait(&mesh->changed, &mesh->lock, mesh->kept.n > 0 ? mu__now_ns() + PROGRESS_NS : MU_FOREVER);
    for (size_t i = 0; i < mesh->kept.n; i++) {
        const mu_kept_object kept = mesh->kept.items[i];
        pthread_mutex_unlock(&mesh->lock);
        kept.progress(kept.object);
        pthread_mutex_lock(&mesh->lock);
    }
    return mu__check_stop();
}

// ---- Failing ------------------------------------------------------------------------------------

void mu__peer_tell(mu_mesh *mesh, int rank)
{
    mu_peer *peer = &mesh->peers[rank];
    mu_failure failure = {.code = mesh->failure.code, .of_caller = mesh->failure.of_caller};
    snprintf(failure.message, sizeof failure.message, "%s", mesh->failure.message);
    mu_session *session = &peer->member.session;
    if (peer->state == MU_PEER_HERE &&
        mu__session_queued(session, mu__frame_put_failure(&session->handshake.out, session->number, MU_FRAME_FAILURE,
                                                          &failure)) == MU_OK)
        peer->notified = true;
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
    mu__node_wake(&mesh->node);
}

bool mu__mesh_lingers(const mu_mesh *mesh, int64_t now)
{
    const bool misfit = mesh->failure.code == MU_FAILED_PRECONDITION || mesh->refusing;
    if (mesh->joined || !mesh->node.listens || !misfit || now - mesh->failed_ns > LINGER_NS)
        return false;
    for (int rank = 0; rank < mesh->ranks; rank++)
        if (rank != mesh->rank && !mesh->peers[rank].notified)
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
    return has_left(mesh, rank) ? mu__error(MU_UNAVAILABLE,
                                            "%s (%s) has left the job, while this process still needs it: all "
                                            "processes must run the same program",
                                            mesh->peers[rank].name, mu__peer_where(&mesh->peers[rank]))
                                : MU_OK;
}

// ---- Watching -----------------------------------------------------------------------------------

mu_status mu__mesh_watch(mu_mesh *mesh, mu_mesh_failed *failed, void *arg)
{
    pthread_mutex_lock(&mesh->lock);
    const mu_status status = MU_PUSH(&mesh->watches, ((mu_watch){.failed = failed, .arg = arg}));
    pthread_mutex_unlock(&mesh->lock);
    mu__node_wake(&mesh->node);
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
        if (mesh->watches.items[i].notified) {
            i++;
            continue;
        }
        mesh->watches.items[i].notified = true;
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

void mu__peer_gone(mu_mesh *mesh, int rank, const char *why)
{
    mu_peer *peer = &mesh->peers[rank];
    peer->ready = false;
    if (!mesh->joined) {
        peer->state = MU_PEER_AWAY;
        snprintf(peer->reason, sizeof peer->reason, "it was here, but is gone: %s", why);
        peer->retry_ns = 0;
        return;
    }
    peer->state = MU_PEER_LOST;
    char word[MU_MAX_WORD + 80], own[MU_MAX_WORD + 16];
    mu__session_last_word(&peer->member.session, word, sizeof word);
    mu__node_own_word(&mesh->node, own, sizeof own);
    mu__mesh_fail_text(
        mesh, MU_UNAVAILABLE,
        "%s (%s) is gone: %s; %s. %s noticed while %s. Look at that process and its host, then start the job again.",
        peer->name, mu__peer_where(peer), why, word, mesh->peers[mesh->rank].name, own);
}

static void peer_failed(mu_mesh *mesh, const mu_failure *failure)
{
    mu_error_value error = {.code = failure->code, .of_caller = failure->of_caller, .file = ""};
    snprintf(error.message, sizeof error.message, "%.*s", (int)sizeof error.message - 1, failure->message);
    mu__mesh_fail_with(mesh, &error);
}

// ---- The membership policy of equal ranks -------------------------------------------------------

static bool received(mu_node *node, int rank, const mu_frame *frame)
{
    mu_mesh *mesh = mu__mesh_of(node);
    mu_block block;
    mu_failure failure;
    mu_peer_address address;
    switch (frame->type) {
    case MU_FRAME_BLOCK: return mu__frame_block(frame, &block) && mu__exchange_arrived(mesh, rank, &block) == MU_OK;
    case MU_FRAME_FAILURE:
        if (!mu__frame_failure(frame, &failure))
            return false;
        peer_failed(mesh, &failure);
        return true;
    case MU_FRAME_ADDRESS:
        if (rank != 0 || !mu__frame_peer_address(frame, &address))
            return false;
        mu__bootstrap_learn(mesh, &address);
        return true;
    case MU_FRAME_READY: mesh->peers[rank].ready = true; return mesh->rank == 0;
    case MU_FRAME_GO:
        if (rank != 0)
            return false;
        mu__bootstrap_go(mesh);
        return true;
    default: return false;
    }
}

// A process may leave before this one has heard that the job began; if the job has not begun, it may come again.
static void left(mu_node *node, int rank)
{
    mu_mesh *mesh = mu__mesh_of(node);
    mu_peer *peer = &mesh->peers[rank];
    peer->state = MU_PEER_LEFT;
    peer->ready = false;
    snprintf(peer->reason, sizeof peer->reason, "it has left");
    atomic_store(&mesh->trouble, true);
    pthread_cond_broadcast(&mesh->changed);
}

// All die together. While this process leaves, others close their ends because they have heard its goodbye.
static void lost(mu_node *node, int rank, const char *why)
{
    if (!mu__mesh_of(node)->leaving)
        mu__peer_gone(mu__mesh_of(node), rank, why);
}

static int64_t on_step(mu_node *node, int64_t now)
{
    const int64_t next = mu__peers_step(node, now);
    return MU_MIN(next, mu__key_value_step(mu__mesh_of(node), now));
}

static const mu_membership equal_ranks = {
    .name = "equal ranks",
    .admit = mu__peers_admit,
    .welcomed = mu__peers_welcomed,
    .joined = mu__peers_joined,
    .received = received,
    .asked = mu__key_value_asked,
    .stream = mu__peers_stream,
    .left = left,
    .lost = lost,
    .unreached = mu__peers_unreached,
    .refused = mu__peers_refused,
    .on_step = on_step,
};

// ---- Steps, and the thread ----------------------------------------------------------------------

// Says goodbye once, and is done when other hosts have received it; closing earlier could discard it. A network that is
// cut for less than the heartbeat's limit must not turn that into a death; after a failure no process depends on it.
static int64_t continue_leaving(mu_mesh *mesh, int64_t next)
{
    const int64_t now = mu__now_ns(), heartbeat_ns = (int64_t)(mesh->node.heartbeat_seconds * 1e9);
    if (!mesh->said_goodbye) {
        mesh->said_goodbye = true;
        mesh->leave_deadline_ns = now + (mesh->failure.code != MU_OK ? LEAVE_NS : heartbeat_ns);
        mu__node_leave(&mesh->node);
    }
    for (int rank = 0; rank < mesh->ranks; rank++)
        mu__session_flush(&mesh->node, rank);
    mesh->has_left = mu__node_all_sent(&mesh->node) || now >= mesh->leave_deadline_ns;
    return MU_MIN(next, now + LEAVE_POLL_NS);
}

int64_t mu__mesh_step(mu_mesh *mesh, int64_t until_ns)
{
    pthread_mutex_lock(&mesh->lock);
    int64_t next = mu__node_step(&mesh->node, until_ns);
    mu__mesh_fail_with(mesh, &mesh->node.failure);
    tell_watchers(mesh);
    if (mesh->leaving)
        next = continue_leaving(mesh, next);
    pthread_mutex_unlock(&mesh->lock);
    return next;
}

void mu__mesh_leave(mu_mesh *mesh)
{
    pthread_mutex_lock(&mesh->lock);
    mesh->leaving = true;
    pthread_mutex_unlock(&mesh->lock);
    mu__node_wake(&mesh->node);
}

bool mu__mesh_has_left(mu_mesh *mesh)
{
    pthread_mutex_lock(&mesh->lock);
    const bool has_left = mesh->has_left;
    pthread_mutex_unlock(&mesh->lock);
    return has_left;
}

static void run(void *arg)
{
    mu_mesh *mesh = arg;
    for (int64_t until_ns = 0; !mu__mesh_has_left(mesh);)
        until_ns = mu__mesh_step(mesh, until_ns);
}

// ---- Creation and release -----------------------------------------------------------------------

static void mesh_destroy(void *object)
{
    mu_mesh *mesh = object;
    if (mesh->thread != NULL) {
        mu__mesh_leave(mesh);
        mu__worker_free(mesh->thread);
    }
    for (size_t i = 0; i < mesh->kept.n; i++)
        mu_release(mesh->kept.items[i].object);
    mu__free(mesh->kept.items);
    mu__node_end(&mesh->node);
    mu__pending_streams_end(mesh);
    for (int rank = 0; mesh->peers != NULL && rank < mesh->ranks; rank++) {
        mu__exchange_blocks_free(&mesh->peers[rank]);
        mu__free(mesh->peers[rank].name);
        mu__free(mesh->peers[rank].address);
    }
    mu__free(mesh->node.members);
    mu__free(mesh->peers);
    mu__free(mesh->watches.items);
    mu__key_values_free(mesh->key_values);
    mu_release(mesh->node.keyring);
    if (!mesh->has_lock)
        return;
    pthread_cond_destroy(&mesh->changed);
    pthread_mutex_destroy(&mesh->lock);
}

static mu_type mesh_type = {.name = "mesh", .destroy = mesh_destroy};

static void make_locks(mu_mesh *mesh)
{
    mu__condition_init(&mesh->changed);
    pthread_mutex_init(&mesh->lock, NULL);
    mesh->has_lock = true;
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
                         "%s has no address, so no other process can find it; the first process of a cluster needs one "
                         "(\"host:port\")",
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

static mu_status copy_peers(mu_mesh *mesh, const mu_mesh_options *options)
{
    mesh->peers = mu__calloc((size_t)options->ranks, sizeof *mesh->peers);
    mesh->node.members = mu__calloc((size_t)options->ranks, sizeof(mu_member *));
    if (mesh->peers == NULL || mesh->node.members == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mesh->ranks = mesh->node.n_members = options->ranks;
    for (int rank = 0; rank < mesh->ranks; rank++)
        mesh->node.members[rank] = &mesh->peers[rank].member;
    for (int rank = 0; rank < mesh->ranks; rank++) {
        mu_peer *peer = &mesh->peers[rank];
        peer->name = mu__strdup(options->peers[rank].name);
        peer->address = mu__strdup(options->peers[rank].address);
        if (peer->name == NULL || peer->address == NULL)
            return MU_RESOURCE_EXHAUSTED;
        peer->learned = peer->address[0] == '\0';
        snprintf(peer->reason, sizeof peer->reason, "%s", rank > mesh->rank ? "it has not come yet" : "not tried yet");
    }
    return MU_OK;
}

static mu_status copy_options(mu_mesh *mesh, const mu_mesh_options *options)
{
    mu_node *node = &mesh->node;
    mesh->rank = node->own.rank = options->rank;
    node->own.ranks = options->ranks;
    mesh->timeout = mu__setting_real(MU_SETTING_TIMEOUT);
    mesh->join_seconds = options->join_seconds > 0 ? options->join_seconds : mesh->timeout;
    node->heartbeat_seconds =
        options->heartbeat_seconds > 0 ? options->heartbeat_seconds : mu__setting_real(MU_SETTING_HEARTBEAT);
    node->open = options->key != NULL || mu__setting_bool(MU_SETTING_ALLOW_UNAUTHENTICATED);
    node->membership = &equal_ranks;
    node->lock = &mesh->lock;
    // The sender's own setting determines how often heartbeats are sent, so all processes must have the same.
    snprintf(node->own.greeting, sizeof node->own.greeting, "MUSTER_HEARTBEAT=%g%s, %s", node->heartbeat_seconds,
             wants_fastest() ? ", MUSTER_INTERFACE=fastest" : "", options->greeting != NULL ? options->greeting : "");
    MU_TRY(copy_peers(mesh, options));
    const char *interface = mu__setting_text(MU_SETTING_INTERFACE);
    return interface != NULL && !wants_fastest() ? mu__interface_endpoints(interface, &node->from) : MU_OK;
}

// Ranks trust each other with everything, so each has the cluster's key.
static mu_status check_bearer(const mu_mesh *mesh)
{
    char who[200];
    snprintf(who, sizeof who, "%.120s, one of several equal tasks", mesh->peers[mesh->rank].name);
    return mu__key_suits_role(mu__keyring_bearer(mesh->node.keyring), who);
}

static mu_status begin(mu_mesh *mesh, const mu_mesh_options *options)
{
    MU_TRY(check_options(options));
    MU_TRY(copy_options(mesh, options));
    mesh->node.keyring = mu__keyring_new(options->key, options->plain);
    if (mesh->node.keyring != NULL)
        mu__keyring_set(mesh->node.keyring, MU_ROLE_NONE, mu__setting_int(MU_SETTING_WIRE_VERSION));
    if (mesh->node.keyring == NULL)
        return mu_error_code();
    MU_TRY(check_bearer(mesh));
    mesh->joined = mesh->ranks == 1;
    mesh->began_ns = mu__now_ns();
    MU_TRY(mu__node_start(&mesh->node));
    return mesh->joined ? MU_OK : mu__node_listen(&mesh->node, mesh->peers[mesh->rank].address);
}

mu_mesh *mu__mesh_begin(const mu_mesh_options *options)
{
    mu_mesh *mesh = mu__new(&mesh_type, sizeof *mesh);
    if (mesh == NULL)
        return NULL;
    mesh->node.poller = mesh->node.waker = -1;
    make_locks(mesh);
    if (begin(mesh, options) == MU_OK)
        return mesh;
    mu_release(mesh);
    return NULL;
}

static bool is_joining(const mu_mesh *mesh)
{
    return !mesh->joined && (mesh->failure.code == MU_OK || mu__mesh_lingers(mesh, mu__now_ns()));
}

bool mu__mesh_is_joining(mu_mesh *mesh)
{
    pthread_mutex_lock(&mesh->lock);
    const bool joining = is_joining(mesh);
    pthread_mutex_unlock(&mesh->lock);
    return joining;
}

static mu_status wait_for_all(mu_mesh *mesh)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&mesh->lock);
    while (status == MU_OK && is_joining(mesh))
        status = mu__mesh_pause(mesh);
    const mu_error_value failure = mesh->failure;
    pthread_mutex_unlock(&mesh->lock);
    return status != MU_OK ? status : mu__error_raise(&failure);
}

static mu_status start_thread(mu_mesh *mesh)
{
    mesh->thread = mu__worker_new("mesh", NULL, 0, mu__context()->runtime);
    return mesh->thread != NULL ? mu__worker_post(mesh->thread, run, mesh) : mu_error_code();
}

mu_mesh *mu__mesh_join(const mu_mesh_options *options)
{
    if (mu__pending() || mu__runtime() == NULL)
        return NULL;
    mu_mesh *mesh = mu__mesh_begin(options);
    if (mesh == NULL)
        return NULL;
    if (start_thread(mesh) == MU_OK && wait_for_all(mesh) == MU_OK &&
        (!wants_fastest() || mu__mesh_choose_routes(mesh) == MU_OK))
        return mesh;
    mu_release(mesh);
    return NULL;
}

// ---- Queries ------------------------------------------------------------------------------------

int mu__mesh_rank(const mu_mesh *mesh) { return mesh->rank; }
int mu__mesh_ranks(const mu_mesh *mesh) { return mesh->ranks; }
const char *mu__mesh_name(const mu_mesh *mesh, int rank) { return mesh->peers[rank].name; }

bool mu__mesh_same_host(const mu_mesh *mesh, int rank)
{
    return rank == mesh->rank || mesh->peers[rank].member.session.same_host;
}
