// Tests of streams: much data in both directions at once, encrypted and plain, with keys that change on the way; names
// that cross; ends that close.
#include "mesh_test.h"

#include <pthread.h>

enum { MEGABYTE = 1 << 20, TOTAL = 64 * MEGABYTE };

static uint8_t pattern(size_t at, int rank) { return (uint8_t)(at * 2654435761u >> 11 ^ (size_t)rank * 77); }

typedef struct direction {
    mu_stream *stream;
    int rank; // whose bytes
    size_t bytes;
    mu_status status;
    bool wrong;
} direction;

static void wait_for(const mu_stream *stream, short events)
{
    struct pollfd one = {.fd = mu__stream_fd(stream), .events = events};
    poll(&one, 1, 1000);
}

// Three extents: up to the next multiple of 64 KiB, the 64 KiB behind it, and the rest.
static mu_status send_extents(mu_stream *stream, uint8_t *data, size_t at, size_t bytes, size_t *moved)
{
    struct iovec extents[3];
    int n = 0;
    for (size_t begin = at; begin < bytes && n < 3; n++) {
        const size_t end = n == 2 ? bytes : MU_MIN((begin / 65536 + 1) * 65536, bytes);
        extents[n] = (struct iovec){.iov_base = data + begin, .iov_len = end - begin};
        begin = end;
    }
    return mu__stream_send_all(stream, extents, n, moved);
}

static void *send_all(void *arg)
{
    direction *d = arg;
    uint8_t *data = malloc(d->bytes);
    for (size_t i = 0; i < d->bytes; i++)
        data[i] = pattern(i, d->rank);
    for (size_t sent = 0; sent < d->bytes && d->status == MU_OK;) {
        size_t moved;
        // The last part is sent in one piece.
        d->status = d->bytes - sent > MEGABYTE ? send_extents(d->stream, data, sent, d->bytes, &moved)
                                               : mu__stream_send(d->stream, data + sent, d->bytes - sent, &moved);
        sent += moved;
        if (moved == 0)
            wait_for(d->stream, POLLOUT);
    }
    free(data);
    return NULL;
}

static void *recv_all(void *arg)
{
    direction *d = arg;
    uint8_t *data = malloc(MEGABYTE);
    for (size_t got = 0; got < d->bytes && d->status == MU_OK;) {
        size_t moved;
        d->status = mu__stream_recv(d->stream, data, MU_MIN(d->bytes - got, (size_t)MEGABYTE), &moved);
        for (size_t i = 0; i < moved; i++)
            d->wrong = d->wrong || data[i] != pattern(got + i, d->rank);
        got += moved;
        if (moved == 0)
            wait_for(d->stream, POLLIN);
    }
    free(data);
    return NULL;
}

// Both ways at the same time, on two threads.
static int move_both_ways(mu_stream *stream, int rank, int peer, size_t bytes)
{
    direction out = {.stream = stream, .rank = rank, .bytes = bytes},
              in = {.stream = stream, .rank = peer, .bytes = bytes};
    pthread_t sender;
    CHECK(pthread_create(&sender, NULL, send_all, &out) == 0);
    recv_all(&in);
    pthread_join(sender, NULL);
    CHECK(out.status == MU_OK && in.status == MU_OK && !in.wrong);
    return 0;
}

typedef struct variant {
    const char *key;
    bool plain;
} variant;

static int much_rank(int rank, void *arg)
{
    const variant *v = arg;
    mu_mesh_options options = options_of(rank);
    options.key = v->key;
    options.plain = v->plain;
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    mu_stream *stream = mu__mesh_stream(mesh, 1 - rank, "much");
    CHECK(stream != NULL);
    const double begin = seconds_now();
    CHECK(move_both_ways(stream, rank, 1 - rank, TOTAL) == 0);
    if (rank == 0)
        printf("64 MiB both ways, %s: %.3f s\n",
               v->key == NULL ? "no key"
               : v->plain     ? "plain"
                              : "encrypted",
               seconds_now() - begin);
    CHECK(move_both_ways(stream, rank, 1 - rank, 1) == 0);
    // A stream may outlive its mesh.
    mu_blocks blocks;
    CHECK(mu__mesh_exchange(mesh, "end", NULL, 0, &blocks) == MU_OK);
    mu__blocks_free(&blocks);
    mu_release(mesh);
    CHECK(move_both_ways(stream, rank, 1 - rank, 100000) == 0);
    mu__stream_close(stream);
    return 0;
}

static void test_much(void **state)
{
    (void)state;
    static const variant variants[] = {{.key = NULL}, {.key = TEST_KEY, .plain = true}, {.key = TEST_KEY}};
    for (size_t v = 0; v < MU_COUNT(variants); v++)
        run_ranks(2, much_rank, (void *)(uintptr_t)&variants[v]);
}

// Each pair of processes opens two streams, one side in the opposite order.
static int names_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    for (int peer = 0; peer < test_ranks; peer++) {
        if (peer == rank)
            continue;
        const bool swapped = rank < peer;
        mu_stream *first = mu__mesh_stream(mesh, peer, swapped ? "b" : "a");
        CHECK(first != NULL);
        mu_stream *second = mu__mesh_stream(mesh, peer, swapped ? "a" : "b");
        CHECK(second != NULL);
        const direction a = {.stream = swapped ? second : first, .rank = rank, .bytes = 1000};
        direction out = a, in = a;
        in.rank = peer;
        send_all(&out);
        recv_all(&in);
        CHECK(out.status == MU_OK && in.status == MU_OK && !in.wrong);
        mu__stream_close(first);
        mu__stream_close(second);
    }
    CHECK(mu__mesh_stream(mesh, rank, "a") == NULL);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "another rank");
    mu_blocks blocks;
    CHECK(mu__mesh_exchange(mesh, "end", NULL, 0, &blocks) == MU_OK);
    mu__blocks_free(&blocks);
    mu_release(mesh);
    return 0;
}

static void test_names(void **state)
{
    (void)state;
    run_ranks(4, names_rank, NULL);
}

static int closing_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    mu_stream *stream = mu__mesh_stream(mesh, 1 - rank, "short");
    CHECK(stream != NULL);
    if (rank == 1) {
        direction out = {.stream = stream, .rank = 1, .bytes = 5000};
        send_all(&out);
        CHECK(out.status == MU_OK);
    } else {
        direction in = {.stream = stream, .rank = 1, .bytes = 5000};
        recv_all(&in);
        CHECK(in.status == MU_OK && !in.wrong);
        in.bytes = 1;
        recv_all(&in);
        CHECK(in.status == MU_UNAVAILABLE && !mu__pending());
        // A closed connection raises no signal.
        direction out = {.stream = stream, .rank = 0, .bytes = 4 * MEGABYTE};
        send_all(&out);
        CHECK(out.status == MU_UNAVAILABLE && !mu__pending());
    }
    mu__stream_close(stream);
    mu_release(mesh);
    return 0;
}

static void test_closing(void **state)
{
    (void)state;
    run_ranks(2, closing_rank, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_much),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
