// A link: a connection whose two ends greet each other, prove that they have the cluster's key, and then carry bytes.
//
// The greeting has a fixed size and contains only version, protection, role, ranks, whose key the sender has and a
// random number, so nothing else from an unknown sender is interpreted. Both ends must want the same protection: it is
// never negotiated. The version is the older of the two; a server of version 3 takes only its own, so a client that
// meets one tries again with that (dial.c). Then follows TLS (secure.c), whose key depends on both greetings, or a
// proof of the key over them, the client's first. The key is the cluster's, or, if one end has only a worker's key,
// that worker's, which the other end derives; who has only a worker's key has proven no other role. Independent of
// frames.
#include "comm/sessions/net.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>

enum { GREETING = 48, PROOF = MU_KEY_BYTES, ROLE_BITS = 4, RANK_BITS = 16 };

typedef enum phase {
    PHASE_SEND_GREETING,
    PHASE_RECV_GREETING,
    PHASE_SEND_PROOF,
    PHASE_RECV_PROOF,
    PHASE_TLS,
    PHASE_OPEN,
    PHASE_FAILED
} phase;

struct mu_link {
    mu_keyring *keyring;
    int fd;
    bool client;
    int from, to; // rank of this end and of the other
    int version;
    mu_role role; // of the other end
    int accepts;  // whose worker's key the other end may have in place of the cluster's
    int bearer;   // whose key proves this link
    phase at;
    size_t moved;                    // bytes transferred of the current part
    uint8_t greetings[2 * GREETING]; // the client's, then the server's; the proof signs both
    uint8_t proof[PROOF];
    mu_tls *tls;
    bool blocked;
    int send_error, recv_error; // that broke the connection; 0: none. One thread may send while another receives
    const char *reason;
    pthread_mutex_t lock; // one OpenSSL object serves both directions
};

// ---- Creation -----------------------------------------------------------------------------------

static uint8_t *own_greeting(mu_link *link) { return link->greetings + (link->client ? 0 : GREETING); }
static uint8_t *their_greeting(mu_link *link) { return link->greetings + (link->client ? GREETING : 0); }

static void put_rank(uint8_t *at, int rank)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)((uint32_t)rank >> 8 * i);
}

static int get_rank(const uint8_t *at)
{
    return (int)(int32_t)(at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24);
}

// Version 3 has no roles.
static void put_version(mu_link *link, int version)
{
    uint8_t *text = own_greeting(link);
    const int role = version >= MU_WIRE_ROLES ? (int)mu__keyring_role(link->keyring) : 0;
    link->version = version;
    text[6] = (uint8_t)version;
    text[7] = (uint8_t)((int)mu__keyring_protection(link->keyring) | role << ROLE_BITS);
}

// Layout: 0 "MUSTER", 6 version, 7 protection and role, 8 sender's rank, 10 whose key it has (0 before version 7),
// 12 intended receiver's rank, 16 random bytes
static mu_status greet(mu_link *link)
{
    uint8_t *text = own_greeting(link);
    memcpy(text, "MUSTER", 6);
    put_version(link, mu__keyring_version(link->keyring));
    put_rank(text + 8, link->from);
    for (int i = 0; i < 2; i++)
        text[10 + i] |= (uint8_t)(mu__keyring_bearer(link->keyring) >> 8 * i);
    put_rank(text + 12, link->to);
    return mu__random(text + 16, MU_NONCE_BYTES);
}

mu_link *mu__link_new(mu_keyring *keyring, int fd, bool client, int from, int to)
{
    mu_link *link = mu__calloc(1, sizeof *link);
    if (link == NULL) {
        mu__system->close(fd);
        return NULL;
    }
    *link = (mu_link){.keyring = mu_retain(keyring),
                      .fd = fd,
                      .client = client,
                      .from = from,
                      .to = to,
                      .reason = "",
                      .bearer = mu__keyring_bearer(keyring)};
    link->at = client ? PHASE_SEND_GREETING : PHASE_RECV_GREETING;
    pthread_mutex_init(&link->lock, NULL);
    if (mu__keyring_protection(keyring) == MU_PROTECTION_TLS)
        link->tls = mu__tls_new(keyring, fd, client);
    if (greet(link) == MU_OK && (link->tls != NULL || mu__keyring_protection(keyring) != MU_PROTECTION_TLS))
        return link;
    mu__link_free(link);
    return NULL;
}

void mu__link_free(mu_link *link)
{
    if (link == NULL)
        return;
    mu__tls_free(link->tls);
    mu__system->close(link->fd);
    pthread_mutex_destroy(&link->lock);
    mu_release(link->keyring);
    mu__free(link);
}

const char *mu__link_reason(const mu_link *link) { return link->reason; }
int mu__link_fd(const mu_link *link) { return link->fd; }
int mu__link_from(const mu_link *link) { return link->to; }
void mu__link_speak(mu_link *link, int version) { put_version(link, version); }
void mu__link_accept(mu_link *link, int bearer) { link->accepts = bearer; }
int mu__link_bearer(const mu_link *link) { return link->bearer; }
int mu__link_version(const mu_link *link) { return link->version; }
mu_role mu__link_role(const mu_link *link) { return link->role; }

short mu__link_events(const mu_link *link)
{
    const bool out = link->blocked || link->at == PHASE_SEND_GREETING || link->at == PHASE_SEND_PROOF ||
                     (link->tls != NULL && mu__tls_wants_out(link->tls));
    return (short)(POLLIN | (out ? POLLOUT : 0));
}

// ---- Bytes --------------------------------------------------------------------------------------

static mu_status plain_send_all(mu_link *link, const struct iovec *extents, int n_extents, size_t *moved)
{
    const ssize_t n = mu__system->send(link->fd, extents, n_extents);
    *moved = n > 0 ? (size_t)n : 0;
    if (n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK)
        return MU_OK;
    link->send_error = mu__first_break(link->send_error);
    return MU_UNAVAILABLE;
}

static mu_status plain_send(mu_link *link, const uint8_t *data, size_t bytes, size_t *moved)
{
    const struct iovec whole = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    return plain_send_all(link, &whole, 1, moved);
}

static mu_status plain_recv(mu_link *link, uint8_t *data, size_t bytes, size_t *moved)
{
    const ssize_t n = mu__system->recv(link->fd, data, bytes);
    *moved = n > 0 ? (size_t)n : 0;
    if (n > 0 || bytes == 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)))
        return MU_OK;
    if (n < 0)
        link->recv_error = mu__first_break(link->recv_error);
    return MU_UNAVAILABLE;
}

mu_status mu__link_send(mu_link *link, const void *data, size_t bytes, size_t *moved)
{
    if (link->tls == NULL) {
        const mu_status status = plain_send(link, data, bytes, moved);
        link->blocked = *moved < bytes;
        return status;
    }
    pthread_mutex_lock(&link->lock);
    const mu_status status = mu__tls_send(link->tls, data, bytes, moved);
    pthread_mutex_unlock(&link->lock);
    link->blocked = *moved < bytes;
    return status;
}

mu_status mu__link_send_all(mu_link *link, const struct iovec *extents, int n, size_t *moved)
{
    if (link->tls != NULL)
        return mu__link_send(link, extents[0].iov_base, extents[0].iov_len, moved);
    return plain_send_all(link, extents, n, moved);
}

mu_status mu__link_recv(mu_link *link, void *data, size_t bytes, size_t *moved)
{
    if (link->tls == NULL)
        return plain_recv(link, data, bytes, moved);
    pthread_mutex_lock(&link->lock);
    const mu_status status = mu__tls_recv(link->tls, data, bytes, moved);
    pthread_mutex_unlock(&link->lock);
    return status;
}

int mu__link_error(const mu_link *link)
{
    const int error = link->recv_error != 0 ? link->recv_error : link->send_error;
    return error != 0 || link->tls == NULL ? error : mu__tls_error(link->tls);
}

// ---- Greeting and proof -------------------------------------------------------------------------

static mu_status refuse(mu_link *link, mu_status code, const char *reason)
{
    link->at = PHASE_FAILED;
    link->reason = reason;
    return code;
}

// Sends a part of fixed size; true when all of it is sent.
static bool send_part(mu_link *link, const uint8_t *part, size_t bytes, mu_status *status)
{
    size_t n = 0;
    *status = plain_send(link, part + link->moved, bytes - link->moved, &n);
    link->moved += n;
    if (*status != MU_OK)
        *status = refuse(link, MU_UNAVAILABLE, "connection closed during the greeting");
    return *status == MU_OK && link->moved == bytes;
}

static bool recv_part(mu_link *link, uint8_t *part, size_t bytes, mu_status *status)
{
    size_t n = 0;
    *status = plain_recv(link, part + link->moved, bytes - link->moved, &n);
    link->moved += n;
    // A server that rejects our proof closes the connection.
    const bool judged = link->client && link->at == PHASE_RECV_PROOF;
    if (*status != MU_OK)
        *status = refuse(link, judged ? MU_UNAUTHENTICATED : MU_UNAVAILABLE,
                         judged ? "its cluster key is not ours" : "connection closed during the greeting");
    return *status == MU_OK && link->moved == bytes;
}

// The version that both speak. An end that has only a worker's key needs one that knows of such keys.
static mu_status check_version(mu_link *link)
{
    const int theirs = their_greeting(link)[6];
    if (theirs < MU_WIRE_OLDEST || (link->client && theirs > link->version))
        return refuse(link, MU_FAILED_PRECONDITION, "it runs another version of Muster");
    if (mu__keyring_bearer(link->keyring) != MU_BEARER_ALL && MU_MIN(theirs, link->version) < MU_WIRE_BEARERS)
        return refuse(link, MU_FAILED_PRECONDITION,
                      "one end speaks a version of Muster before 7, which has no keys of workers");
    if (link->client)
        link->version = theirs;
    else if (theirs < link->version)
        put_version(link, theirs);
    return MU_OK;
}

static mu_status check_protection(mu_link *link, int theirs)
{
    const int own = (int)mu__keyring_protection(link->keyring);
    if (theirs == own)
        return MU_OK;
    if (theirs != MU_PROTECTION_NONE && own != MU_PROTECTION_NONE)
        return refuse(link, MU_FAILED_PRECONDITION, "one end wants encryption, the other does not");
    return refuse(link, MU_UNAUTHENTICATED,
                  theirs != MU_PROTECTION_NONE ? "it has a cluster key and this process has none"
                                               : "it has no cluster key");
}

// Whose key the link is proven with. A worker's key is for links of that worker with those that have the cluster's, and
// with itself.
static mu_status check_bearer(mu_link *link, int theirs)
{
    const int own = mu__keyring_bearer(link->keyring);
    if (theirs == MU_BEARER_ALL)
        return MU_OK;
    if (link->role != MU_ROLE_WORKER)
        return refuse(link, MU_UNAUTHENTICATED, "it claims a role other than worker with a worker's key");
    if (theirs == own)
        return MU_OK;
    if (own != MU_BEARER_ALL)
        return refuse(link, MU_UNAUTHENTICATED, "it has another worker's key, and workers do not speak to each other");
    if (link->accepts == MU_BEARER_ALL)
        return refuse(link, MU_UNAUTHENTICATED, "it has only a worker's key, which does not suffice here");
    if (link->accepts != MU_BEARER_ANY_WORKER && link->accepts != theirs)
        return refuse(link, MU_UNAUTHENTICATED, "it has the key of another worker than the one called");
    link->bearer = theirs;
    return MU_OK;
}

static mu_status check_greeting(mu_link *link)
{
    const uint8_t *text = their_greeting(link);
    if (memcmp(text, "MUSTER", 6) != 0)
        return refuse(link, MU_UNAVAILABLE, "the process that listens there is not Muster");
    const bool bearers = text[6] >= MU_WIRE_BEARERS;
    const int sender = get_rank(text + 8), to = get_rank(text + 12);
    const int from = bearers ? sender & ((1 << RANK_BITS) - 1) : sender;
    if (!link->client)
        link->to = from;
    if (text[7] >> ROLE_BITS >= MU_N_ROLES)
        return refuse(link, MU_FAILED_PRECONDITION, "it runs another version of Muster");
    link->role = (mu_role)(text[7] >> ROLE_BITS);
    MU_TRY(check_version(link));
    MU_TRY(check_protection(link, text[7] & ((1 << ROLE_BITS) - 1)));
    if (to != link->from || from != link->to)
        return refuse(link, MU_UNAVAILABLE, "another task of the cluster listens there");
    return check_bearer(link, bearers ? (int)((uint32_t)sender >> RANK_BITS) : MU_BEARER_ALL);
}

static mu_status make_proof(mu_link *link, bool of_client)
{
    return mu__keyring_proof(link->keyring, link->bearer, of_client ? "client" : "server", link->greetings,
                             sizeof link->greetings, link->proof);
}

// The phase after both greetings.
static mu_status greeted(mu_link *link)
{
    switch (mu__keyring_protection(link->keyring)) {
    case MU_PROTECTION_NONE: link->at = PHASE_OPEN; return MU_OK;
    case MU_PROTECTION_TLS:
        link->at = PHASE_TLS;
        return link->version < MU_WIRE_ROLES
                   ? MU_OK
                   : mu__tls_bind(link->tls, link->bearer, link->greetings, sizeof link->greetings);
    case MU_PROTECTION_PROOF: break;
    }
    link->at = link->client ? PHASE_SEND_PROOF : PHASE_RECV_PROOF;
    return make_proof(link, link->client);
}

static mu_status check_proof(mu_link *link)
{
    uint8_t theirs[PROOF];
    memcpy(theirs, link->proof, sizeof theirs);
    if (make_proof(link, !link->client) != MU_OK || CRYPTO_memcmp(theirs, link->proof, PROOF) != 0)
        return refuse(link, MU_UNAUTHENTICATED, "its cluster key is not ours");
    link->at = link->client ? PHASE_OPEN : PHASE_SEND_PROOF;
    return link->client ? MU_OK : make_proof(link, false);
}

// Runs the current phase; `moved` starts at zero. False: no further progress now.
static bool step(mu_link *link, mu_status *status)
{
    const phase before = link->at;
    switch (before) {
    case PHASE_SEND_GREETING:
        if (!send_part(link, own_greeting(link), GREETING, status))
            return false;
        if (link->client)
            link->at = PHASE_RECV_GREETING;
        else
            *status = greeted(link);
        break;
    case PHASE_RECV_GREETING:
        if (!recv_part(link, their_greeting(link), GREETING, status))
            return false;
        *status = check_greeting(link);
        if (*status == MU_OK && link->client)
            *status = greeted(link);
        else if (*status == MU_OK) {
            put_rank(own_greeting(link) + 12, link->to);
            link->at = PHASE_SEND_GREETING;
        }
        break;
    case PHASE_SEND_PROOF:
        if (!send_part(link, link->proof, PROOF, status))
            return false;
        link->at = link->client ? PHASE_RECV_PROOF : PHASE_OPEN;
        break;
    case PHASE_RECV_PROOF:
        if (!recv_part(link, link->proof, PROOF, status))
            return false;
        *status = check_proof(link);
        break;
    default: return false;
    }
    link->moved = 0;
    return *status == MU_OK;
}

// Tells a client of another version or protection which version and protection this end has, so that it can report why.
static void answer_refused(mu_link *link)
{
    size_t moved;
    if (link->client || memcmp(their_greeting(link), "MUSTER", 6) != 0 || link->reason[0] == '\0')
        return;
    put_rank(own_greeting(link) + 12, link->to);
    if (plain_send(link, own_greeting(link), GREETING, &moved) != MU_OK)
        return; // the client has already gone
}

mu_status mu__link_shake(mu_link *link, bool *done)
{
    mu_status status = MU_OK;
    const bool at_greeting = link->at == PHASE_RECV_GREETING;
    *done = false;
    while (step(link, &status))
        continue;
    if (status != MU_OK && at_greeting)
        answer_refused(link);
    if (status == MU_OK && link->at == PHASE_TLS) {
        bool proven = false;
        const char *reason = "";
        pthread_mutex_lock(&link->lock);
        status = mu__tls_shake(link->tls, &proven, &reason);
        pthread_mutex_unlock(&link->lock);
        if (status != MU_OK)
            return refuse(link, status, reason);
        if (proven)
            link->at = PHASE_OPEN;
    }
    *done = link->at == PHASE_OPEN;
    return status;
}
