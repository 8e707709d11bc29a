// The exchange: every process sends every other one a small block over the control connections.
//
// A process that has all blocks of one exchange may be one exchange ahead of the others, but never two, so two entries
// per peer are enough. Each block carries the number and the name of its exchange.
#include "comm/mesh/mesh_private.h"

void mu__exchange_blocks_free(mu_peer *peer)
{
    for (size_t i = 0; i < MU_COUNT(peer->exchange_blocks); i++) {
        mu__free(peer->exchange_blocks[i].data);
        peer->exchange_blocks[i] = (mu_exchange_block){0};
    }
}

mu_status mu__exchange_arrived(mu_mesh *mesh, int rank, const mu_block *block)
{
    // A late block of an exchange that failed here.
    if (block->number < mesh->exchange)
        return MU_OK;
    mu_exchange_block *exchange_block = &mesh->peers[rank].exchange_blocks[block->number % 2];
    if (block->number > mesh->exchange + 1 || exchange_block->here)
        return MU_DATA_LOSS;
    void *data = mu__alloc(block->bytes);
    if (data == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (block->bytes > 0)
        memcpy(data, block->data, block->bytes);
    *exchange_block = (mu_exchange_block){.here = true, .number = block->number, .data = data, .bytes = block->bytes};
    memcpy(exchange_block->what, block->what, sizeof exchange_block->what);
    pthread_cond_broadcast(&mesh->changed);
    return MU_OK;
}

// ---- One exchange -------------------------------------------------------------------------------

// The caller does not hold the lock.
static bool is_late(const void *arg, int rank)
{
    mu_mesh *mesh = *(mu_mesh *const *)arg;
    pthread_mutex_lock(&mesh->lock);
    const bool late = !mesh->peers[rank].exchange_blocks[mesh->exchange % 2].here;
    pthread_mutex_unlock(&mesh->lock);
    return late;
}

static mu_status differs(const mu_mesh *mesh, const mu_peer *peer, const char *own, const char *theirs)
{
    return mu__error(MU_FAILED_PRECONDITION,
                     "the processes do not agree on what comes next: %s exchanges \"%s\", %s \"%s\"; all must run the "
                     "same program with the same settings",
                     mesh->peers[mesh->rank].name, own, peer->name, theirs);
}

static mu_status check_exchange_blocks(mu_mesh *mesh, const char *what, bool *complete)
{
    const mu_peer *left = NULL;
    char own[MU_MAX_WHAT + 1];
    snprintf(own, sizeof own, "%s", what);
    *complete = true;
    for (int rank = 0; rank < mesh->ranks; rank++) {
        const mu_peer *peer = &mesh->peers[rank];
        const mu_exchange_block *exchange_block = &peer->exchange_blocks[mesh->exchange % 2];
        if (rank == mesh->rank)
            continue;
        if (exchange_block->here && strcmp(exchange_block->what, own) != 0)
            return differs(mesh, peer, own, exchange_block->what);
        *complete = *complete && exchange_block->here;
        left = !exchange_block->here && peer->state == MU_PEER_LEFT ? peer : left;
    }
    if (mesh->failure.code != MU_OK && !*complete)
        return mu__error_raise(&mesh->failure);
    return left == NULL
               ? MU_OK
               : mu__error(MU_UNAVAILABLE, "%s (%s) has left the job, while %s waits for it to exchange \"%s\"",
                           left->name, mu__peer_where(left), mesh->peers[mesh->rank].name, own);
}

static mu_status send_blocks(mu_mesh *mesh, const char *what, const void *data, size_t bytes)
{
    mu_block block = {.number = mesh->exchange, .data = data, .bytes = bytes};
    snprintf(block.what, sizeof block.what, "%s", what);
    for (int rank = 0; rank < mesh->ranks; rank++) {
        mu_session *session = mu__peer_session(mesh, rank);
        if (mesh->peers[rank].state != MU_PEER_HERE)
            continue;
        MU_TRY(mu__session_queued(session, mu__frame_put_block(&session->handshake.out, session->number, &block)));
        mu__session_flush(&mesh->node, rank);
    }
    return MU_OK;
}

// Moves the blocks of this exchange to `out`; frees those of a failed exchange.
static void take_blocks(mu_mesh *mesh, mu_blocks *out)
{
    for (int rank = 0; rank < mesh->ranks; rank++) {
        mu_exchange_block *exchange_block = &mesh->peers[rank].exchange_blocks[mesh->exchange % 2];
        if (rank == mesh->rank)
            continue;
        if (out != NULL) {
            out->data[rank] = exchange_block->data;
            out->bytes[rank] = exchange_block->bytes;
        } else {
            mu__free(exchange_block->data);
        }
        *exchange_block = (mu_exchange_block){0};
    }
}

static mu_status make_blocks(const mu_mesh *mesh, const void *data, size_t bytes, mu_blocks *out)
{
    *out = (mu_blocks){.n = mesh->ranks, .data = mu__calloc((size_t)mesh->ranks, sizeof *out->data)};
    out->bytes = mu__calloc((size_t)mesh->ranks, sizeof *out->bytes);
    void *own = mu__alloc(bytes);
    if (out->data == NULL || out->bytes == NULL || own == NULL) {
        mu__free(own);
        mu__blocks_free(out);
        return MU_RESOURCE_EXHAUSTED;
    }
    if (bytes > 0)
        memcpy(own, data, bytes);
    out->data[mesh->rank] = own;
    out->bytes[mesh->rank] = bytes;
    return MU_OK;
}

mu_status mu__exchange_begin(mu_mesh *mesh, const char *what, const void *data, size_t bytes, mu_exchange *out)
{
    *out = (mu_exchange){.mesh = mesh};
    if (mu__pending())
        return mu_error_code();
    if (bytes > MU_MAX_BLOCK)
        return mu__error(MU_INVALID_ARGUMENT, "the block \"%.120s\" has %zu bytes; an exchange takes at most %d", what,
                         bytes, MU_MAX_BLOCK);
    MU_TRY(make_blocks(mesh, data, bytes, &out->blocks));
    snprintf(out->what, sizeof out->what, "%s", what);
    out->deadline_ns = mu__deadline_ns(mesh->timeout);
    pthread_mutex_lock(&mesh->lock);
    mu_status status = mu__error_raise(&mesh->failure);
    if (status == MU_OK)
        status = send_blocks(mesh, what, data, bytes);
    pthread_mutex_unlock(&mesh->lock);
    if (status != MU_OK)
        mu__exchange_end(out, NULL);
    return status;
}

static mu_status too_late(const mu_exchange *exchange)
{
    char who[700];
    mu__mesh_late_text(exchange->mesh, is_late, &exchange->mesh, who, sizeof who);
    return mu__error(MU_DEADLINE_EXCEEDED, "waited %g s (MUSTER_TIMEOUT) to exchange \"%.120s\" with %s",
                     exchange->mesh->timeout, exchange->what, who);
}

mu_status mu__exchange_check(mu_exchange *exchange, bool *complete)
{
    pthread_mutex_lock(&exchange->mesh->lock);
    const mu_status status = check_exchange_blocks(exchange->mesh, exchange->what, complete);
    pthread_mutex_unlock(&exchange->mesh->lock);
    if (status != MU_OK || *complete || mu__now_ns() < exchange->deadline_ns)
        return status;
    return too_late(exchange);
}

void mu__exchange_end(mu_exchange *exchange, mu_blocks *out)
{
    pthread_mutex_lock(&exchange->mesh->lock);
    take_blocks(exchange->mesh, out != NULL ? &exchange->blocks : NULL);
    exchange->mesh->exchange++;
    pthread_mutex_unlock(&exchange->mesh->lock);
    if (out != NULL)
        *out = exchange->blocks;
    else
        mu__blocks_free(&exchange->blocks);
}

// Waits until something changes, unless it has done so since the last check.
static mu_status wait_for_change(mu_exchange *exchange)
{
    bool complete;
    pthread_mutex_lock(&exchange->mesh->lock);
    mu_status status = check_exchange_blocks(exchange->mesh, exchange->what, &complete);
    if (status == MU_OK && !complete)
        status = mu__mesh_pause(exchange->mesh);
    pthread_mutex_unlock(&exchange->mesh->lock);
    return status;
}

static mu_status wait_for_blocks(mu_exchange *exchange)
{
    char about[MU_MAX_WHAT + 32];
    snprintf(about, sizeof about, "the exchange of \"%s\"", exchange->what);
    mu_lateness lateness = mu__lateness();
    for (bool complete;;) {
        MU_TRY(mu__exchange_check(exchange, &complete));
        if (complete)
            return MU_OK;
        mu__mesh_late(exchange->mesh, &lateness, about, is_late, &exchange->mesh);
        MU_TRY(wait_for_change(exchange));
    }
}

mu_status mu__mesh_exchange(mu_mesh *mesh, const char *what, const void *data, size_t bytes, mu_blocks *out)
{
    mu_exchange exchange;
    *out = (mu_blocks){0};
    MU_TRY(mu__exchange_begin(mesh, what, data, bytes, &exchange));
    const mu_status status = wait_for_blocks(&exchange);
    mu__exchange_end(&exchange, status == MU_OK ? out : NULL);
    return status;
}

void mu__blocks_free(mu_blocks *blocks)
{
    for (int i = 0; blocks->data != NULL && i < blocks->n; i++)
        mu__free(blocks->data[i]);
    mu__free(blocks->data);
    mu__free(blocks->bytes);
    *blocks = (mu_blocks){0};
}
