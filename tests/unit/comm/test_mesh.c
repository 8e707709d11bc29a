// Tests of meshes: processes join, exchange blocks and report what they do; the reason that keeps processes from
// joining is named.
#include "mesh_test.h"

// ---- Joining and exchanging ---------------------------------------------------------------------

typedef struct variant {
    const char *key;
    bool plain;
    bool unknown; // only rank 0's address is known
} variant;

static mu_mesh *join(int rank, const variant *v)
{
    mu_mesh_options options = options_of(rank);
    options.key = v->key;
    options.plain = v->plain;
    for (int i = 1; v->unknown && i < test_ranks; i++)
        test_peers[i].address = "";
    return mu__mesh_join(&options);
}

static int exchange_rank(int rank, void *arg)
{
    mu_mesh *mesh = join(rank, arg);
    CHECK(mesh != NULL);
    CHECK(mu__mesh_rank(mesh) == rank && mu__mesh_ranks(mesh) == test_ranks);
    for (int turn = 0; turn < 50; turn++) {
        char mine[64];
        mu_blocks blocks;
        const int bytes = snprintf(mine, sizeof mine, "turn %d of rank %d", turn, rank);
        CHECK(mu__mesh_exchange(mesh, "greetings", mine, turn == 7 ? 0 : (size_t)bytes, &blocks) == MU_OK);
        CHECK(blocks.n == test_ranks);
        for (int i = 0; i < test_ranks; i++) {
            char theirs[64];
            const int wanted = snprintf(theirs, sizeof theirs, "turn %d of rank %d", turn, i);
            CHECK(blocks.bytes[i] == (turn == 7 ? 0 : (size_t)wanted));
            CHECK(memcmp(blocks.data[i], theirs, blocks.bytes[i]) == 0);
        }
        mu__blocks_free(&blocks);
    }
    for (int i = 0; i < test_ranks; i++)
        CHECK(mu__mesh_same_host(mesh, i));
    CHECK(!mu__mesh_has_failed(mesh, NULL));
    mu_release(mesh);
    return 0;
}

static void test_join(void **state)
{
    (void)state;
    static const variant variants[] = {
        {.key = NULL}, {.key = TEST_KEY, .plain = true}, {.key = TEST_KEY}, {.key = TEST_KEY, .unknown = true}};
    for (size_t v = 0; v < MU_COUNT(variants); v++)
        for (int ranks = 1; ranks <= 5; ranks++)
            run_ranks(ranks, exchange_rank, (void *)(uintptr_t)&variants[v]);
}

static int big_exchange_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh != NULL);
    uint8_t *mine = malloc(MU_MAX_BLOCK + 1);
    mu_blocks blocks;
    memset(mine, rank + 1, MU_MAX_BLOCK);
    CHECK(mu__mesh_exchange(mesh, "big", mine, MU_MAX_BLOCK, &blocks) == MU_OK);
    for (int i = 0; i < test_ranks; i++)
        for (size_t at = 0; at < MU_MAX_BLOCK; at += 4095)
            CHECK(blocks.bytes[i] == MU_MAX_BLOCK && ((uint8_t *)blocks.data[i])[at] == i + 1);
    mu__blocks_free(&blocks);
    CHECK(mu__mesh_exchange(mesh, "too big", mine, MU_MAX_BLOCK + 1, &blocks) == MU_INVALID_ARGUMENT);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "too big");
    free(mine);
    mu_release(mesh);
    return 0;
}

static void test_big_exchange(void **state)
{
    (void)state;
    run_ranks(3, big_exchange_rank, NULL);
}

static int mismatch_rank(int rank, void *arg)
{
    (void)arg;
    mu_mesh_options options = options_of(rank);
    mu_mesh *mesh = mu__mesh_join(&options);
    mu_blocks blocks;
    CHECK(mesh != NULL);
    CHECK(mu__mesh_exchange(mesh, rank == 1 ? "apples" : "pears", "x", 1, &blocks) == MU_FAILED_PRECONDITION);
    CHECK_TAKEN(MU_FAILED_PRECONDITION, "exchanges \"");
    // The next exchange matches again.
    CHECK(mu__mesh_exchange(mesh, "plums", "y", 1, &blocks) == MU_OK);
    mu__blocks_free(&blocks);
    mu_release(mesh);
    return 0;
}

static void test_mismatch(void **state)
{
    (void)state;
    run_ranks(3, mismatch_rank, NULL);
}

// A process alone, with each allocation failing in turn.
static int no_memory_rank(int rank, void *arg)
{
    (void)arg;
    (void)rank;
    CHECK(mu_init() == MU_OK);
    for (long n = 1;; n++) {
        CHECK(n < 100);
        const mu_mesh_options options = options_of(0);
        mu_blocks blocks = {0};
        mu__alloc_fail_at(n);
        mu_mesh *mesh = mu__mesh_join(&options);
        const bool good = mesh != NULL && mu__mesh_exchange(mesh, "alone", "x", 1, &blocks) == MU_OK;
        const long made = mu__alloc_fail_at(0);
        mu__blocks_free(&blocks);
        mu_release(mesh);
        if (made < n) {
            CHECK(good);
            return mu_exit(true);
        }
        CHECK(!good);
        CHECK_TAKEN(MU_RESOURCE_EXHAUSTED, "out of memory");
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    make_peers(1);
    assert_int_equal(wait_rank(start_rank(0, no_memory_rank, NULL)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_big_exchange),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
