// Authentication and encryption: keys derived from the cluster's key, and TLS 1.3 on a socket through OpenSSL.
//
// The cluster's key is never used directly. HKDF derives one key for TLS (an external pre-shared key, with an ephemeral
// Diffie-Hellman exchange, so that recorded traffic remains secret if the key leaks later), one for proofs, and one for
// each worker, from which that worker's keys for TLS and proofs are derived in the same way. A key that may consist of
// words is first stretched with scrypt, which makes guessing from a recorded handshake expensive. There are no
// certificates, so a peer without the key fails in OpenSSL's handshake. Independent of frames.
#include "comm/sessions/net.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>

static const char identity[] = "muster";           // identity of the pre-shared key in the handshake
static const unsigned char suite[] = {0x13, 0x01}; // TLS_AES_128_GCM_SHA256

enum {
    RECORD = 16384,     // most plaintext bytes in a TLS record
    RECORDS = 8,        // records encrypted before they are sent together
    RECORD_MORE = 512,  // upper bound of the bytes that encryption adds to a record
    SHAKE_BYTES = 8192, // upper bound of what a handshake and a key update write
    READ_AHEAD = 4 * (RECORD + RECORD_MORE)
};
// An AES-GCM key is safe for about 2^24 records; it is replaced well before that.
#define REKEY_AFTER ((int64_t)64 << 30)
// scrypt needs 128 * COST * BLOCKS bytes = 32 MiB and about 0.1 s for one key.
enum { STRETCH_COST = 1 << 15, STRETCH_BLOCKS = 8, STRETCH_MOST = 64 << 20 };

// What the links of one key use.
typedef struct link_keys {
    uint8_t tls[MU_KEY_BYTES], proof[MU_KEY_BYTES];
} link_keys;

struct mu_keyring {
    mu_object object;
    mu_protection protection;
    int bearer;
    uint8_t root[MU_KEY_BYTES]; // HKDF's pseudorandom key: all others are expanded from it
    link_keys own;
    SSL_CTX *context;
    BIO_METHOD *socket;
    int64_t rekey_after;
    mu_role role;
    int version;
};

struct mu_tls {
    mu_keyring *keyring;
    uint8_t key[MU_KEY_BYTES]; // of this connection
    SSL *ssl;
    int fd;
    bool gone;           // the socket is closed
    int error;           // that broke the connection; 0: none
    int64_t since_rekey; // bytes sent since the last key update
    size_t held;         // bytes of the caller that are encrypted in `out` but not yet reported as moved
    size_t out_from, out_n, out_capacity;
    uint8_t *out; // encrypted bytes not sent yet
};

// ---- Keys ---------------------------------------------------------------------------------------

static mu_status crypto_error(const char *what)
{
    char text[200] = "no reason given";
    const unsigned long error = ERR_get_error();
    if (error != 0)
        ERR_error_string_n(error, text, sizeof text);
    ERR_clear_error();
    return mu__error(MU_INTERNAL, "OpenSSL cannot %s: %s", what, text);
}

static const char salt[] = "muster cluster key, version 1";

static mu_status run_kdf(const char *name, const OSSL_PARAM *parameters, uint8_t out[MU_KEY_BYTES])
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, name, NULL);
    EVP_KDF_CTX *context = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    const bool good = context != NULL && EVP_KDF_derive(context, out, MU_KEY_BYTES, parameters) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return good ? MU_OK : crypto_error("make a key of the cluster's key");
}

static OSSL_PARAM octets(const char *name, const void *data, size_t bytes)
{
    return OSSL_PARAM_construct_octet_string(name, (void *)(uintptr_t)data, bytes);
}

static mu_status stretch(const char *key, uint8_t out[MU_KEY_BYTES])
{
    uint64_t cost = STRETCH_COST, most = STRETCH_MOST;
    uint32_t blocks = STRETCH_BLOCKS, lanes = 1;
    const OSSL_PARAM parameters[] = {octets(OSSL_KDF_PARAM_PASSWORD, key, strlen(key)),
                                     octets(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
                                     OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_N, &cost),
                                     OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_R, &blocks),
                                     OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_P, &lanes),
                                     OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_MAXMEM, &most),
                                     OSSL_PARAM_construct_end()};
    return run_kdf("SCRYPT", parameters, out);
}

// `mode` is one of HKDF's two steps, or both.
static mu_status hkdf(int mode, const void *key, size_t bytes, const void *use, size_t use_bytes,
                      uint8_t out[MU_KEY_BYTES])
{
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
                                     OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                                     octets(OSSL_KDF_PARAM_KEY, key, bytes),
                                     octets(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
                                     octets(OSSL_KDF_PARAM_INFO, use, use_bytes),
                                     OSSL_PARAM_construct_end()};
    return run_kdf("HKDF", parameters, out);
}

static mu_status extract(const void *key, size_t bytes, uint8_t out[MU_KEY_BYTES])
{
    return hkdf(EVP_KDF_HKDF_MODE_EXTRACT_ONLY, key, bytes, "", 0, out);
}

static mu_status expand(const uint8_t root[MU_KEY_BYTES], const char *use, uint8_t out[MU_KEY_BYTES])
{
    return hkdf(EVP_KDF_HKDF_MODE_EXPAND_ONLY, root, MU_KEY_BYTES, use, strlen(use), out);
}

static mu_status expand_keys(const uint8_t root[MU_KEY_BYTES], link_keys *out)
{
    MU_TRY(expand(root, "TLS pre-shared key", out->tls));
    return expand(root, "proof of the key", out->proof);
}

static mu_status make_keys(mu_keyring *keyring, const char *key)
{
    uint8_t secret[MU_KEY_BYTES];
    mu_status status = mu__key_read(key, &keyring->bearer, secret);
    const bool text = keyring->bearer == MU_BEARER_ALL && mu__key_is_random(key);
    if (status == MU_OK && keyring->bearer == MU_BEARER_ALL && !text)
        status = stretch(key, secret);
    if (status == MU_OK)
        status = text ? extract(key, strlen(key), keyring->root) : extract(secret, sizeof secret, keyring->root);
    if (status == MU_OK)
        status = expand_keys(keyring->root, &keyring->own);
    OPENSSL_cleanse(secret, sizeof secret);
    return status;
}

static mu_status worker_secret(const mu_keyring *keyring, int bearer, uint8_t out[MU_KEY_BYTES])
{
    char use[sizeof "key of the task worker:" + 11]; // and any int
    snprintf(use, sizeof use, "key of the task worker:%d", bearer - 1);
    return expand(keyring->root, use, out);
}

// The keys of a link that is proven with this bearer's key.
static mu_status keys_of(const mu_keyring *keyring, int bearer, link_keys *out)
{
    uint8_t secret[MU_KEY_BYTES];
    *out = keyring->own;
    if (bearer == keyring->bearer)
        return MU_OK;
    assert(keyring->bearer == MU_BEARER_ALL);
    mu_status status = worker_secret(keyring, bearer, secret);
    if (status == MU_OK)
        status = extract(secret, sizeof secret, secret);
    if (status == MU_OK)
        status = expand_keys(secret, out);
    OPENSSL_cleanse(secret, sizeof secret);
    return status;
}

mu_status mu__keyring_worker_key(const mu_keyring *keyring, int worker, char out[MU_WORKER_KEY])
{
    uint8_t secret[MU_KEY_BYTES];
    if (keyring->bearer != MU_BEARER_ALL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the key of worker %d is made of the cluster's key, and the key that this process has is that "
                         "of worker %d; set MUSTER_CLUSTER_KEY or MUSTER_CLUSTER_KEY_FILE to the cluster's",
                         worker, keyring->bearer - 1);
    MU_TRY(worker_secret(keyring, worker + 1, secret));
    int n = snprintf(out, MU_WORKER_KEY, "worker:%d:", worker);
    for (size_t i = 0; i < sizeof secret; i++)
        n += snprintf(out + n, (size_t)(MU_WORKER_KEY - n), "%02x", secret[i]);
    OPENSSL_cleanse(secret, sizeof secret);
    return MU_OK;
}

mu_status mu__keyring_proof(const mu_keyring *keyring, int bearer, const char *who, const void *text, size_t bytes,
                            uint8_t out[MU_KEY_BYTES])
{
    uint8_t message[512];
    const size_t begin = strlen(who) + 1;
    link_keys keys;
    assert(begin + bytes <= sizeof message);
    MU_TRY(keys_of(keyring, bearer, &keys));
    memcpy(message, who, begin);
    memcpy(message + begin, text, bytes);
    unsigned n = 0;
    const bool good =
        HMAC(EVP_sha256(), keys.proof, MU_KEY_BYTES, message, begin + bytes, out, &n) != NULL && n == MU_KEY_BYTES;
    OPENSSL_cleanse(&keys, sizeof keys);
    return good ? MU_OK : crypto_error("sign a greeting");
}

// ---- OpenSSL's socket BIO: gathers writes; a closed socket raises no signal ---------------------

static int socket_write(BIO *bio, const char *data, int bytes)
{
    mu_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (bytes < 0 || (size_t)bytes > tls->out_capacity - tls->out_n) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(tls->out + tls->out_n, data, (size_t)bytes);
    tls->out_n += (size_t)bytes;
    return bytes;
}

static int socket_read(BIO *bio, char *data, int bytes)
{
    mu_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t n = mu__system->recv(tls->fd, data, (size_t)MU_MAX(bytes, 0));
    if (n > 0)
        return (int)n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        BIO_set_retry_read(bio);
    else
        tls->gone = true;
    if (n < 0 && tls->gone)
        tls->error = mu__first_break(tls->error);
    return n < 0 ? -1 : 0;
}

static long socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)number;
    (void)pointer;
    const mu_tls *tls = BIO_get_data(bio);
    return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && tls->gone);
}

static BIO_METHOD *socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "muster socket");
    if (method != NULL && BIO_meth_set_write(method, socket_write) == 1 &&
        BIO_meth_set_read(method, socket_read) == 1 && BIO_meth_set_ctrl(method, socket_control) == 1)
        return method;
    BIO_meth_free(method);
    return NULL;
}

// ---- The keyring --------------------------------------------------------------------------------

static SSL_SESSION *session_of(SSL *ssl)
{
    const mu_tls *tls = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = cipher != NULL ? SSL_SESSION_new() : NULL;
    if (session != NULL && SSL_SESSION_set1_master_key(session, tls->key, MU_KEY_BYTES) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int client_key(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes, SSL_SESSION **session)
{
    (void)digest;
    *id = (const unsigned char *)identity;
    *id_bytes = sizeof identity - 1;
    *session = session_of(ssl);
    return *session != NULL;
}

static int server_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    const bool ours = id_bytes == sizeof identity - 1 && memcmp(id, identity, id_bytes) == 0;
    *session = ours ? session_of(ssl) : NULL;
    return !ours || *session != NULL;
}

static mu_status make_context(mu_keyring *keyring)
{
    SSL_CTX *context = keyring->context = SSL_CTX_new(TLS_method());
    keyring->socket = socket_method();
    if (context == NULL || keyring->socket == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 || SSL_CTX_set_num_tickets(context, 0) != 1)
        return crypto_error("prepare TLS 1.3");
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
    SSL_CTX_set_psk_use_session_callback(context, client_key);
    SSL_CTX_set_psk_find_session_callback(context, server_key);
    return MU_OK;
}

static void keyring_destroy(void *object)
{
    mu_keyring *keyring = object;
    SSL_CTX_free(keyring->context);
    BIO_meth_free(keyring->socket);
    OPENSSL_cleanse(keyring->root, sizeof keyring->root);
    OPENSSL_cleanse(&keyring->own, sizeof keyring->own);
}

static mu_type keyring_type = {.name = "keyring", .destroy = keyring_destroy};

mu_keyring *mu__keyring_new(const char *key, bool plain)
{
    mu_keyring *keyring = mu__new(&keyring_type, sizeof *keyring);
    if (keyring == NULL)
        return NULL;
    keyring->protection = key == NULL ? MU_PROTECTION_NONE : plain ? MU_PROTECTION_PROOF : MU_PROTECTION_TLS;
    keyring->rekey_after = REKEY_AFTER;
    keyring->version = MU_WIRE_VERSION;
    mu_status status = MU_OK;
    if (key != NULL)
        MU_GO(make_keys(keyring, key));
    if (keyring->protection == MU_PROTECTION_TLS)
        MU_GO(make_context(keyring));
out:
    if (status == MU_OK)
        return keyring;
    mu_release(keyring);
    return NULL;
}

mu_protection mu__keyring_protection(const mu_keyring *keyring) { return keyring->protection; }

void mu__keyring_set(mu_keyring *keyring, mu_role role, int version)
{
    keyring->role = role;
    keyring->version = version;
}

int mu__keyring_bearer(const mu_keyring *keyring) { return keyring->bearer; }
mu_role mu__keyring_role(const mu_keyring *keyring) { return keyring->role; }
int mu__keyring_version(const mu_keyring *keyring) { return keyring->version; }

const char *mu__role_name(mu_role role)
{
    static const char *const names[MU_N_ROLES] = {[MU_ROLE_NONE] = "none",
                                                  [MU_ROLE_WORKER] = "worker",
                                                  [MU_ROLE_PS] = "ps",
                                                  [MU_ROLE_COORDINATOR] = "coordinator",
                                                  [MU_ROLE_METRICS] = "metrics"};
    return names[role];
}

void mu__keyring_rekey_after(mu_keyring *keyring, int64_t bytes) { keyring->rekey_after = bytes; }

// ---- One connection -----------------------------------------------------------------------------

mu_tls *mu__tls_new(mu_keyring *keyring, int fd, bool client)
{
    mu_tls *tls = mu__calloc(1, sizeof *tls);
    if (tls == NULL)
        return NULL;
    tls->keyring = mu_retain(keyring);
    memcpy(tls->key, keyring->own.tls, sizeof tls->key);
    tls->fd = fd;
    tls->ssl = SSL_new(keyring->context);
    BIO *bio = tls->ssl != NULL ? BIO_new(keyring->socket) : NULL;
    if (mu__grow((void **)&tls->out, &tls->out_capacity, SHAKE_BYTES, 1) != MU_OK || bio == NULL) {
        BIO_free(bio);
        crypto_error("begin a connection");
        mu__tls_free(tls);
        return NULL;
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_app_data(tls->ssl, tls);
    // Rejects a server that sends a certificate instead of using the key: there is no trusted issuer.
    SSL_set_verify(tls->ssl, client ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    if (client)
        SSL_set_connect_state(tls->ssl);
    else
        SSL_set_accept_state(tls->ssl);
    return tls;
}

void mu__tls_free(mu_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    OPENSSL_cleanse(tls->key, sizeof tls->key);
    mu_release(tls->keyring);
    mu__free(tls->out);
    mu__free(tls);
}

mu_status mu__tls_bind(mu_tls *tls, int bearer, const void *text, size_t bytes)
{
    link_keys keys;
    MU_TRY(keys_of(tls->keyring, bearer, &keys));
    const mu_status status =
        hkdf(EVP_KDF_HKDF_MODE_EXTRACT_AND_EXPAND, keys.tls, sizeof keys.tls, text, bytes, tls->key);
    OPENSSL_cleanse(&keys, sizeof keys);
    return status;
}

// Sends encrypted bytes; what does not fit into the socket's buffer is kept.
static mu_status flush(mu_tls *tls)
{
    while (tls->out_from < tls->out_n) {
        const struct iovec rest = {.iov_base = tls->out + tls->out_from, .iov_len = tls->out_n - tls->out_from};
        const ssize_t n = mu__system->send(tls->fd, &rest, 1);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return MU_OK;
        if (n < 0) {
            tls->error = mu__first_break(tls->error);
            return MU_UNAVAILABLE;
        }
        tls->out_from += (size_t)n;
    }
    tls->out_from = tls->out_n = 0;
    return MU_OK;
}

// The status of a failed OpenSSL call: MU_OK if it only has to wait.
static mu_status status_of(mu_tls *tls, int result)
{
    const int error = SSL_get_error(tls->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return MU_OK;
    const unsigned long first = ERR_peek_error();
    const bool cut = error != SSL_ERROR_SSL || ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    ERR_clear_error();
    return cut || tls->gone ? MU_UNAVAILABLE : MU_DATA_LOSS;
}

mu_status mu__tls_shake(mu_tls *tls, bool *done, const char **reason)
{
    ERR_clear_error();
    const int result = SSL_do_handshake(tls->ssl);
    mu_status status = result == 1 ? MU_OK : status_of(tls, result);
    // An alert may still have to be sent.
    const mu_status flushed = flush(tls);
    status = status == MU_OK ? flushed : status;
    *done = status == MU_OK && result == 1 && tls->out_n == 0;
    if (*done && SSL_session_reused(tls->ssl) != 1)
        status = MU_DATA_LOSS;
    *reason = status == MU_UNAVAILABLE ? "connection closed while the key was proven" : "its cluster key is not ours";
    return status == MU_DATA_LOSS ? MU_UNAUTHENTICATED : status;
}

static mu_status rekey(mu_tls *tls)
{
    if (tls->since_rekey < tls->keyring->rekey_after)
        return MU_OK;
    tls->since_rekey = 0;
    return SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 ? MU_OK : MU_INTERNAL;
}

// Encrypts up to RECORDS records of `data`; tls->held is the number of bytes encrypted.
static mu_status encrypt(mu_tls *tls, const uint8_t *data, size_t bytes)
{
    const size_t now = MU_MIN(bytes, (size_t)RECORDS * RECORD);
    MU_TRY(mu__grow((void **)&tls->out, &tls->out_capacity, SHAKE_BYTES + now + now / RECORD * RECORD_MORE, 1));
    while (tls->held < now) {
        MU_TRY(rekey(tls));
        size_t written = 0;
        const int result = SSL_write_ex(tls->ssl, data + tls->held, MU_MIN(now - tls->held, (size_t)RECORD), &written);
        if (result != 1)
            return status_of(tls, result);
        tls->held += written;
        tls->since_rekey += (int64_t)written;
    }
    return MU_OK;
}

mu_status mu__tls_send(mu_tls *tls, const void *data, size_t bytes, size_t *moved)
{
    const uint8_t *from = data;
    *moved = 0;
    ERR_clear_error();
    if (bytes < tls->held)
        return MU_INVALID_ARGUMENT;
    for (;;) {
        MU_TRY(flush(tls));
        if (tls->out_n > 0)
            return MU_OK;
        *moved += tls->held;
        tls->held = 0;
        if (*moved == bytes)
            return MU_OK;
        MU_TRY(encrypt(tls, from + *moved, bytes - *moved));
    }
}

mu_status mu__tls_recv(mu_tls *tls, void *data, size_t bytes, size_t *moved)
{
    uint8_t *to = data;
    *moved = 0;
    while (*moved < bytes) {
        size_t got = 0;
        ERR_clear_error();
        const int result = SSL_read_ex(tls->ssl, to + *moved, bytes - *moved, &got);
        *moved += got;
        if (result == 1)
            continue;
        const mu_status status = status_of(tls, result);
        // data received before the end is delivered first
        return *moved > 0 ? MU_OK : status;
    }
    return MU_OK;
}

bool mu__tls_wants_out(const mu_tls *tls) { return tls->out_n > 0; }
int mu__tls_error(const mu_tls *tls) { return tls->error; }
