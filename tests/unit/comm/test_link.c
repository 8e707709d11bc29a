// Tests of links and frames against an attacker on the wire: changed, cut, repeated and invented bytes are refused.
// Both ends are in this process; the test carries the bytes between them.
#include "mesh_test.h"

#include <fcntl.h>

// Two links and the wires to their other sides.
typedef struct pair {
    mu_keyring *client_key, *server_key;
    mu_link *client, *server;
    int client_wire, server_wire;
    uint8_t sent[40000]; // the bytes that the client sent
    size_t n_sent;
    mu_status client_status, server_status;
    bool client_done, server_done;
    long flip; // place of a byte of the client's first words to change; below 0: none
} pair;

// What an end has and says.
typedef struct end {
    const char *key;
    mu_role role;
    int accepts, version; // version 0: the newest
} end;

static void open_wire(int ends[2]) { assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0); }

static mu_keyring *keyring_of(const end *one, bool plain)
{
    mu_keyring *keyring = mu__keyring_new(one->key, plain);
    assert_non_null(keyring);
    mu__keyring_set(keyring, one->role, one->version > 0 ? one->version : MU_WIRE_VERSION);
    return keyring;
}

static void open_ends(pair *p, const end *client, const end *server, bool plain)
{
    int ends[2];
    *p = (pair){.client_key = keyring_of(client, plain), .server_key = keyring_of(server, plain), .flip = -1};
    open_wire(ends);
    p->client = mu__link_new(p->client_key, ends[0], true, 1, 0);
    p->client_wire = ends[1];
    open_wire(ends);
    p->server = mu__link_new(p->server_key, ends[0], false, 0, -1);
    p->server_wire = ends[1];
    assert_true(p->client != NULL && p->server != NULL);
    mu__link_accept(p->client, client->accepts);
    mu__link_accept(p->server, server->accepts);
}

static void open_pair(pair *p, const char *client_key, const char *server_key, bool plain)
{
    open_ends(p, &(end){.key = client_key}, &(end){.key = server_key}, plain);
}

static void close_pair(pair *p)
{
    mu__link_free(p->client);
    mu__link_free(p->server);
    close(p->client_wire);
    close(p->server_wire);
    mu_release(p->client_key);
    mu_release(p->server_key);
    assert_int_equal(mu__live_objects(NULL), 0);
}

// Carries the bytes that are there from one wire to the other; `flip` is the position of a byte to change (below 0:
// none).
static size_t carry(int from, int to, uint8_t *copy, size_t room, long flip)
{
    uint8_t bytes[20000];
    const ssize_t n = read(from, bytes, sizeof bytes);
    if (n <= 0)
        return 0;
    if (flip >= 0 && flip < n)
        bytes[flip] ^= 0x20;
    assert_int_equal(write(to, bytes, (size_t)n), n);
    if (copy != NULL && (size_t)n <= room)
        memcpy(copy, bytes, (size_t)n);
    return (size_t)n;
}

static void shake(pair *p)
{
    for (int turn = 0; turn < 12; turn++) {
        if (p->client_status == MU_OK && !p->client_done)
            p->client_status = mu__link_shake(p->client, &p->client_done);
        p->n_sent += carry(p->client_wire, p->server_wire, p->sent + p->n_sent, sizeof p->sent - p->n_sent,
                           turn == 0 ? p->flip : -1);
        if (p->server_status == MU_OK && !p->server_done)
            p->server_status = mu__link_shake(p->server, &p->server_done);
        carry(p->server_wire, p->client_wire, NULL, 0, -1);
        if (p->server_status != MU_OK)
            shutdown(p->client_wire, SHUT_WR); // as when the server hangs up
    }
}

static void test_all_protections(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        pair p;
        char text[64] = "";
        size_t moved;
        const char *key = kind == 0 ? NULL : TEST_KEY;
        open_pair(&p, key, key, kind == 1);
        shake(&p);
        assert_true(p.client_done && p.server_done);
        assert_int_equal(mu__link_from(p.server), 1);
        assert_int_equal(mu__link_send(p.client, "hello there", 11, &moved), MU_OK);
        assert_int_equal(moved, 11);
        uint8_t wire[200] = {0};
        const size_t n = carry(p.client_wire, p.server_wire, wire, sizeof wire, -1);
        // What is encrypted cannot be read on the wire.
        assert_int_equal(memmem(wire, n, "hello", 5) != NULL, kind < 2);
        assert_int_equal(mu__link_recv(p.server, text, sizeof text, &moved), MU_OK);
        assert_true(moved == 11 && memcmp(text, "hello there", 11) == 0);
        assert_int_equal(mu__link_recv(p.server, text, sizeof text, &moved), MU_OK);
        assert_int_equal(moved, 0);
        close_pair(&p);
    }
}

// If a process dies with unread input, the connection is reset; if it has read everything, the connection is closed.
static void test_how_a_link_ends(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int unread = 0; unread < 2; unread++) {
            pair p;
            char text[64] = "";
            size_t moved;
            const char *key = kind == 0 ? NULL : TEST_KEY;
            open_pair(&p, key, key, kind == 1);
            shake(&p);
            assert_int_equal(mu__link_send(p.client, "hello", unread ? 5 : 0, &moved), MU_OK);
            assert_int_equal(mu__link_error(p.client), 0);
            close(p.client_wire);
            assert_int_equal(mu__link_recv(p.client, text, sizeof text, &moved), MU_UNAVAILABLE);
            assert_int_equal(mu__link_error(p.client), unread ? ECONNRESET : 0);
            assert_int_equal(mu__link_send(p.client, "hello", 5, &moved), MU_UNAVAILABLE); // EPIPE
            assert_int_equal(mu__link_error(p.client), unread ? ECONNRESET : 0);
            p.client_wire = dup(p.server_wire);
            close_pair(&p);
        }
}

static void test_wrong_keys(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        pair p;
        open_pair(&p, "not the same key at all", TEST_KEY, plain);
        shake(&p);
        assert_true(!p.client_done && !p.server_done);
        assert_int_equal(p.server_status, MU_UNAUTHENTICATED);
        assert_int_equal(p.client_status, MU_UNAUTHENTICATED);
        assert_string_equal(mu__link_reason(p.client), "its cluster key is not ours");
        close_pair(&p);
    }
}

// Both ends learn that the other has another version; bytes after the greeting are not looked at.
static void test_other_version(void **state)
{
    (void)state;
    pair p;
    uint8_t greeting[100];
    open_pair(&p, TEST_KEY, TEST_KEY, false);
    assert_int_equal(mu__link_shake(p.client, &p.client_done), MU_OK);
    assert_int_equal(read(p.client_wire, greeting, sizeof greeting), 48);
    greeting[6] = MU_WIRE_OLDEST - 1;
    assert_int_equal(write(p.server_wire, greeting, 48), 48);
    assert_int_equal(mu__link_shake(p.server, &p.server_done), MU_FAILED_PRECONDITION);
    assert_string_equal(mu__link_reason(p.server), "it runs another version of Muster");
    assert_int_equal(read(p.server_wire, greeting, sizeof greeting), 48);
    greeting[6]++;
    assert_int_equal(write(p.client_wire, greeting, 48), 48);
    assert_int_equal(mu__link_shake(p.client, &p.client_done), MU_FAILED_PRECONDITION);
    assert_string_equal(mu__link_reason(p.client), "it runs another version of Muster");
    close_pair(&p);
}

// Replays everything that a client once said.
static void test_replay(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        pair first, second;
        open_pair(&first, TEST_KEY, TEST_KEY, plain);
        shake(&first);
        assert_true(first.server_done && first.n_sent > 48);
        open_pair(&second, TEST_KEY, TEST_KEY, plain);
        assert_int_equal(write(second.server_wire, first.sent, first.n_sent), first.n_sent);
        for (int turn = 0; turn < 8 && second.server_status == MU_OK; turn++)
            second.server_status = mu__link_shake(second.server, &second.server_done);
        assert_false(second.server_done);
        assert_int_equal(second.server_status, MU_UNAUTHENTICATED);
        mu__link_free(first.client);
        mu__link_free(first.server);
        close(first.client_wire);
        close(first.server_wire);
        mu_release(first.client_key);
        mu_release(first.server_key);
        close_pair(&second);
    }
}

// A server's own words, sent back to it, prove nothing.
static void test_mirror(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, TEST_KEY, TEST_KEY, true);
    bool done = false;
    mu_status status = MU_OK;
    uint8_t greeting[80];
    status = mu__link_shake(p.client, &done);
    assert_int_equal(status, MU_OK);
    assert_int_equal(read(p.client_wire, greeting, sizeof greeting), 48);
    assert_int_equal(write(p.server_wire, greeting, 48), 48);
    assert_int_equal(mu__link_shake(p.server, &done), MU_OK);
    assert_int_equal(read(p.server_wire, greeting, sizeof greeting), 48);
    assert_int_equal(write(p.server_wire, greeting, 32), 32);
    assert_int_equal(mu__link_shake(p.server, &done), MU_UNAUTHENTICATED);
    assert_false(done);
    close_pair(&p);
}

// Each byte of an encrypted record changed in turn: never data, always a refusal.
static void test_tampered(void **state)
{
    (void)state;
    for (long flip = 0; flip < 60; flip++) {
        pair p;
        uint8_t text[64];
        size_t moved;
        open_pair(&p, TEST_KEY, TEST_KEY, false);
        shake(&p);
        assert_int_equal(mu__link_send(p.client, "0123456789abcdef0123456789", 26, &moved), MU_OK);
        const size_t n = carry(p.client_wire, p.server_wire, NULL, 0, flip);
        const mu_status status = mu__link_recv(p.server, text, sizeof text, &moved);
        if (flip < (long)n && !(flip == 3 || flip == 4)) // a longer record is only waited for
            assert_int_equal(status, MU_DATA_LOSS);
        assert_true(flip >= (long)n || moved == 0);
        close_pair(&p);
    }
}

static void test_new_keys(void **state)
{
    (void)state;
    pair p;
    static uint8_t data[100000], seen[100000];
    size_t got = 0, sent = 0;
    open_pair(&p, TEST_KEY, TEST_KEY, false);
    mu__keyring_rekey_after(p.client_key, 20000);
    shake(&p);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7 + i / 1000);
    for (int turn = 0; turn < 500 && got < sizeof data; turn++) {
        size_t moved = 0;
        if (sent < sizeof data)
            assert_int_equal(mu__link_send(p.client, data + sent, sizeof data - sent, &moved), MU_OK);
        sent += moved;
        carry(p.client_wire, p.server_wire, NULL, 0, -1);
        assert_int_equal(mu__link_recv(p.server, seen + got, sizeof seen - got, &moved), MU_OK);
        got += moved;
    }
    assert_int_equal(got, sizeof data);
    assert_memory_equal(seen, data, sizeof data);
    close_pair(&p);
}

// ---- Keys of workers ----------------------------------------------------------------------------

// Two workers' keys: the first one used as if it were the second's, and its digits used as if they were a cluster's
// key.
static char key_1[MU_WORKER_KEY], key_2[MU_WORKER_KEY], forged[MU_WORKER_KEY];
#define digits_1 (key_1 + sizeof "worker:1:" - 1)

static void expect_taken(mu_status code, const char *part)
{
    const mu_error error = mu_error_take();
    if (error.code != code || strstr(error.message, part) == NULL)
        fail_msg("expected \"%s\", got %s: %s", part, mu_status_name(error.code), error.message);
}

static int derive_keys(void **state)
{
    mu_keyring *keyring = mu__keyring_new(TEST_KEY, true);
    (void)state;
    assert_int_equal(mu__keyring_worker_key(keyring, 1, key_1), MU_OK);
    assert_int_equal(mu__keyring_worker_key(keyring, 2, key_2), MU_OK);
    snprintf(forged, sizeof forged, "worker:2:%s", digits_1);
    mu_release(keyring);
    return 0;
}

// As another program would derive it: HKDF-SHA256 (RFC 5869).
static void test_a_workers_key(void **state)
{
    static const char expected[] = "worker:3:a20be5316959083247eca58a57821866289ef4f8408a8f67fd4acef0b9bb1c2b";
    char key[MU_WORKER_KEY];
    uint8_t secret[MU_KEY_BYTES];
    int bearer;
    (void)state;
    mu_keyring *keyring = mu__keyring_new(TEST_KEY, true), *words = mu__keyring_new("a key made of words", true),
               *worker = mu__keyring_new(expected, true);
    assert_int_equal(mu__keyring_worker_key(keyring, 3, key), MU_OK);
    assert_string_equal(key, expected);
    assert_int_equal(mu__key_read(key, &bearer, secret), MU_OK);
    assert_true(bearer == 4 && secret[0] == 0xa2 && secret[31] == 0x2b);
    assert_int_equal(mu__keyring_worker_key(words, 65534, key), MU_OK);
    assert_int_equal(mu__key_check(key), MU_OK);
    assert_int_equal(mu__keyring_worker_key(worker, 3, key), MU_INVALID_ARGUMENT);
    expect_taken(MU_INVALID_ARGUMENT, "that of worker 3");
    mu_release(keyring);
    mu_release(words);
    mu_release(worker);
}

static void test_damaged_keys_of_workers(void **state)
{
    static const char *const damaged[] = {
        "worker:",          "worker:3",        "worker:3:",
        "worker::a20be531", "worker:-1:%s",    "worker: 3:%s",
        "worker:3 :%s",     "worker:65535:%s", "worker:99999999999999999999:%s",
        "worker:3:%s0",     "worker:3:x%s",    "worker:3: %s",
        "worker:%s",
    };
    (void)state;
    for (size_t i = 0; i < MU_COUNT(damaged); i++) {
        char text[200];
        snprintf(text, sizeof text, "%s", damaged[i]);
        char *at = strstr(text, "%s");
        if (at != NULL)
            snprintf(at, sizeof text - (size_t)(at - text), "%s%s", digits_1, strstr(damaged[i], "%s") + 2);
        assert_int_equal(mu__key_check(text), MU_INVALID_ARGUMENT);
        expect_taken(MU_INVALID_ARGUMENT, "this one is incomplete");
    }
    assert_int_equal(mu__key_check("worker:3:0101010101010101010101010101010101010101010101010101010101010101"),
                     MU_INVALID_ARGUMENT);
    expect_taken(MU_INVALID_ARGUMENT, "repeats 2 different digits");
}

// Who is accepted, and the reason for refusing others; `whose` is the owner of the link's key.
static const struct claim {
    end client, server;
    int whose;
    const char *client_why, *server_why; // NULL: it hears nothing; both NULL: the link opens
} claims[] = {
    {{key_1, MU_ROLE_WORKER}, {TEST_KEY, MU_ROLE_PS, MU_BEARER_ANY_WORKER}, 2},
    {{key_1, MU_ROLE_WORKER}, {TEST_KEY, MU_ROLE_PS, 2}, 2},
    {{key_1, MU_ROLE_WORKER}, {key_1, MU_ROLE_WORKER}, 2},
    {{TEST_KEY, MU_ROLE_COORDINATOR, 2}, {key_1, MU_ROLE_WORKER}, 2},
    {{TEST_KEY, MU_ROLE_COORDINATOR, MU_BEARER_ANY_WORKER}, {key_1, MU_ROLE_WORKER}, 2},
    {{TEST_KEY, MU_ROLE_COORDINATOR, 2}, {TEST_KEY, MU_ROLE_WORKER}, 0},
    {{TEST_KEY, MU_ROLE_COORDINATOR, 2, 6}, {TEST_KEY, MU_ROLE_WORKER}, 0},
    // Every other role, another worker, and a process with the cluster's key.
    {{key_1, MU_ROLE_NONE}, {TEST_KEY, MU_ROLE_PS, -1}, .server_why = "it claims a role other than worker"},
    {{key_1, MU_ROLE_PS}, {TEST_KEY, MU_ROLE_PS, -1}, .server_why = "it claims a role other than worker"},
    {{key_1, MU_ROLE_COORDINATOR}, {TEST_KEY, MU_ROLE_PS, -1}, .server_why = "it claims a role other than worker"},
    {{key_1, MU_ROLE_METRICS}, {TEST_KEY, MU_ROLE_PS, -1}, .server_why = "it claims a role other than worker"},
    {{forged, MU_ROLE_WORKER}, {TEST_KEY, MU_ROLE_PS, -1}, .server_why = "its cluster key is not ours"},
    {{digits_1, MU_ROLE_COORDINATOR}, {TEST_KEY, MU_ROLE_PS, -1}, .server_why = "its cluster key is not ours"},
    // Connections to ends that accept no workers, and to other workers.
    {{key_1, MU_ROLE_WORKER}, {TEST_KEY}, .server_why = "only a worker's key"},
    {{key_1, MU_ROLE_WORKER}, {TEST_KEY, MU_ROLE_PS, 3}, .server_why = "another worker than the one called"},
    {{key_1, MU_ROLE_WORKER}, {key_2, MU_ROLE_WORKER, -1}, .server_why = "workers do not speak to each other"},
    {{digits_1, MU_ROLE_COORDINATOR, 3}, {key_2, MU_ROLE_WORKER}, .server_why = "its cluster key is not ours"},
    // At an address where the client expects somebody else.
    {{TEST_KEY, MU_ROLE_COORDINATOR, 3}, {key_1, MU_ROLE_WORKER}, .client_why = "another worker than the one called"},
    {{TEST_KEY, MU_ROLE_COORDINATOR}, {key_1, MU_ROLE_WORKER}, .client_why = "only a worker's key"},
    {{TEST_KEY, MU_ROLE_COORDINATOR, 2}, {key_1, MU_ROLE_PS}, .client_why = "it claims a role other than worker"},
    {{TEST_KEY, MU_ROLE_COORDINATOR, 3}, {forged, MU_ROLE_WORKER}, .server_why = "its cluster key is not ours"},
    {{key_2, MU_ROLE_WORKER}, {digits_1, MU_ROLE_PS, -1}, .server_why = "its cluster key is not ours"},
    // Both supported versions.
    {{key_1, MU_ROLE_WORKER}, {TEST_KEY, MU_ROLE_PS, -1, 6}, .client_why = "before 7"},
    {{TEST_KEY, MU_ROLE_COORDINATOR, 2, 6},
     {key_1, MU_ROLE_WORKER},
     .client_why = "it runs another version of Muster",
     .server_why = "before 7"},
};

static void expect_reason(const mu_link *link, const char *why)
{
    if (why != NULL && strstr(mu__link_reason(link), why) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", why, mu__link_reason(link));
}

static void test_claims(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * MU_COUNT(claims); i++) {
        const struct claim *claim = &claims[i / 2];
        const bool opens = claim->client_why == NULL && claim->server_why == NULL;
        pair p;
        open_ends(&p, &claim->client, &claim->server, i % 2 == 0);
        shake(&p);
        if (p.client_done != opens || p.server_done != opens)
            fail_msg("claim %zu: %s, %s", i / 2, mu__link_reason(p.client), mu__link_reason(p.server));
        expect_reason(p.client, claim->client_why);
        expect_reason(p.server, claim->server_why);
        if (opens) {
            assert_int_equal(mu__link_bearer(p.client), claim->whose);
            assert_int_equal(mu__link_bearer(p.server), claim->whose);
            assert_int_equal(mu__link_role(p.server), claim->client.role);
            assert_int_equal(mu__link_role(p.client), claim->server.role);
        }
        close_pair(&p);
    }
}

// Any byte of a worker's greeting, changed on the way.
static void test_changed_greeting(void **state)
{
    (void)state;
    for (long i = 0; i < 2 * 48; i++) {
        pair p;
        open_ends(&p, &(end){key_1, MU_ROLE_WORKER}, &(end){TEST_KEY, MU_ROLE_PS, MU_BEARER_ANY_WORKER}, i % 2 == 0);
        p.flip = i / 2;
        shake(&p);
        assert_true(!p.client_done && !p.server_done);
        close_pair(&p);
    }
}

// ---- Want of memory -----------------------------------------------------------------------------

static bool talk_once(void)
{
    int ends[2];
    bool done = false;
    mu_bytes out = {0};
    const mu_heartbeat beat = {.age_ns = 1, .doing = "testing"};
    mu_keyring *keyring = mu__keyring_new(TEST_KEY, false);
    open_wire(ends);
    mu_link *link = keyring != NULL ? mu__link_new(keyring, ends[0], true, 1, 0) : NULL;
    if (keyring == NULL)
        close(ends[0]);
    bool good = link != NULL && mu__link_shake(link, &done) == MU_OK;
    good =
        good && mu__frame_put_heartbeat(&out, 0, &beat) == MU_OK && mu__frame_put_word(&out, 1, MU_FRAME_GO) == MU_OK;
    mu__bytes_free(&out);
    mu__link_free(link);
    mu_release(keyring);
    close(ends[1]);
    return good;
}

static void test_no_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        assert_true(n < 100);
        mu__alloc_fail_at(n);
        const bool good = talk_once();
        const long made = mu__alloc_fail_at(0);
        assert_int_equal(mu__live_objects(NULL), 0);
        if (made < n) {
            assert_true(good);
            return;
        }
        assert_false(good);
        assert_int_equal(mu_error_take().code, MU_RESOURCE_EXHAUSTED);
    }
}

// ---- Frames -------------------------------------------------------------------------------------

// Reads the frames in `bytes`; returns how many there were and the status that ended the reading.
static mu_status read_frames(const uint8_t *bytes, size_t n, int *frames)
{
    pair p;
    mu_frames reader = {.number = 0};
    mu_frame frame;
    open_pair(&p, NULL, NULL, false);
    shake(&p);
    assert_int_equal(write(p.server_wire, bytes, n), n);
    shutdown(p.server_wire, SHUT_WR);
    mu_status status = MU_OK;
    *frames = 0;
    for (int turn = 0; turn < 100 && status == MU_OK; turn++) {
        status = mu__frames_next(&reader, p.server, &frame);
        *frames += status == MU_OK && frame.type != 0;
    }
    mu__frames_free(&reader);
    close_pair(&p);
    return status;
}

static void test_frames(void **state)
{
    (void)state;
    mu_bytes out = {0};
    int frames;
    const mu_heartbeat beat = {.age_ns = 1, .doing = "saving\nmuch"};
    assert_int_equal(mu__frame_put_word(&out, 0, MU_FRAME_READY), MU_OK);
    assert_int_equal(mu__frame_put_heartbeat(&out, 1, &beat), MU_OK);
    const size_t whole = out.n;
    assert_int_equal(read_frames(out.items, whole, &frames), MU_UNAVAILABLE);
    assert_int_equal(frames, 2);
    // Cut anywhere: the frames before the cut, then the end.
    for (size_t cut = 0; cut < whole; cut++) {
        assert_int_equal(read_frames(out.items, cut, &frames), MU_UNAVAILABLE);
        assert_int_equal(frames, cut >= MU_FRAME_HEADER);
    }
    // The same frame twice, a frame left out, a number from another connection.
    assert_int_equal(mu__frame_put_heartbeat(&out, 1, &beat), MU_OK);
    assert_int_equal(read_frames(out.items, out.n, &frames), MU_DATA_LOSS);
    assert_int_equal(frames, 2);
    assert_int_equal(read_frames(out.items + MU_FRAME_HEADER, whole - MU_FRAME_HEADER, &frames), MU_DATA_LOSS);
    assert_int_equal(frames, 0);
    mu__bytes_free(&out);
}

// For each type a body that is larger than allowed: refused by the header alone, before memory is allocated for it.
static void test_oversized(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < MU_N_FRAMES + 3; type++) {
        static const uint32_t sizes[] = {(1 << 20) + 4096, 0x7fffffff, 0xffffffff};
        for (size_t i = 0; i < MU_COUNT(sizes); i++) {
            int frames;
            uint8_t header[MU_FRAME_HEADER] = {0};
            for (int b = 0; b < 4; b++) {
                header[b] = (uint8_t)(sizes[i] >> 8 * b);
                header[4 + b] = (uint8_t)(type >> 8 * b);
            }
            mu__alloc_fail_at(0);
            assert_int_equal(read_frames(header, sizeof header, &frames), MU_DATA_LOSS);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_protections),
        cmocka_unit_test(test_wrong_keys),
        cmocka_unit_test(test_how_a_link_ends),
        cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_mirror),
        cmocka_unit_test(test_tampered),
        cmocka_unit_test(test_new_keys),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_oversized),
        cmocka_unit_test(test_a_workers_key),
        cmocka_unit_test(test_damaged_keys_of_workers),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_changed_greeting),
    };
    return cmocka_run_group_tests(tests, derive_keys, NULL);
}
