// Network modules between processes of this machine: UCX over TCP. A module that is missing or not allowed is reported
// on all processes. Skipped where the module was not built. MPI has a test under mpirun.
#include "network_test.h"
#include "operations_test.h"

static int ucx_rank(int rank, void *arg)
{
    (void)arg;
    const mu_mesh_options options = options_of(rank);
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh);
    mu_network *network = mu__network_open(mesh, "ucx", NULL);
    CHECK(network && !mu__network_needs_service(network));
    for (int hop = 1; hop < test_ranks; hop++)
        for (int peer = 0; peer < test_ranks; peer++)
            if (abs(peer - rank) == hop) {
                mu_stream *stream = mu__network_stream(network, peer, hop);
                CHECK(stream && exchange_messages(stream, rank, peer) == 0);
                mu__stream_close(stream);
            }
    mu_blocks blocks;
    CHECK(mu__mesh_exchange(mesh, "end", NULL, 0, &blocks) == MU_OK);
    mu__blocks_free(&blocks);
    mu_release(network);
    CHECK(group_adds(mesh, MU_COMM_UCX, "ucx") == 0);
    mu_release(mesh);
    return 0;
}

static void ucx_moves_bytes(void **state)
{
    (void)state;
    if (access(MU_TEST_MODULES "/libmuster-ucx.so", R_OK) != 0) {
        print_message("SKIPPED: the UCX module was not built (libucx-dev)\n");
        skip();
    }
    setenv("MUSTER_MODULES", MU_TEST_MODULES, 1);
    setenv("MUSTER_TRUSTED_NETWORK", "1", 1);
    setenv("MUSTER_SHARED_MEMORY", "0", 1);
    setenv("UCX_TLS", "tcp", 1);
    run_ranks(2, ucx_rank, NULL);
    run_ranks(3, ucx_rank, NULL);
}

// Every operation, type and size over UCX, on each of its transports that every machine has.
static void ucx_carries_every_operation(void **state)
{
    (void)state;
    static const char *const transports[] = {"tcp,self", "shm,self"};
    static const mu_communication_options ucx = {.implementation = MU_COMM_UCX};
    static const mu_communication_options in_order = {.implementation = MU_COMM_UCX, .deterministic = true};
    if (access(MU_TEST_MODULES "/libmuster-ucx.so", R_OK) != 0)
        skip();
    for (size_t i = 0; i < MU_COUNT(transports); i++) {
        setenv("UCX_TLS", transports[i], 1);
        for (int processes = 2; processes <= 4; processes++) {
            const int n_local = 1 + processes % 2;
            run_world((world){.processes = processes,
                              .n_local = n_local,
                              .tcp = true,
                              .path = "ucx",
                              .options = &ucx,
                              .run = every_operation});
            run_world((world){.processes = processes,
                              .n_local = n_local,
                              .tcp = true,
                              .path = "ucx",
                              .options = processes == 3 ? &in_order : &ucx,
                              .run = every_type});
        }
    }
}

// Groups come and go, while each process only waits in the mesh for the others.
static int rank_with_late_messages(int rank, void *arg)
{
    (void)arg;
    static const mu_communication_options ucx = {.implementation = MU_COMM_UCX};
    static const char *const names[] = {"first", "second", "third"};
    const mu_mesh_options options = options_of(rank);
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh);
    for (size_t i = 0; i < MU_COUNT(names); i++) {
        mu_group *group = mu__group_join(mesh, 1, names[i], &ucx);
        CHECK(group && strcmp(mu__group_path(group), "ucx") == 0);
        mu_collective *c = mu__group_member(group, 0);
        mu__collective_begin(c, 1);
        CHECK(check_all_reduce(c, MU_F32, MU_REDUCTION_SUM, 1000) == 0);
        usleep(60000u * (unsigned)rank); // the last one finds all messages there, and leaves before its own have gone
        CHECK(mu__collective_barrier(c, 1, "end") == MU_OK);
        mu_release(group);
    }
    mu_blocks blocks;
    CHECK(mu__mesh_exchange(mesh, "end", NULL, 0, &blocks) == MU_OK);
    mu__blocks_free(&blocks);
    mu_release(mesh);
    return 0;
}

// What a library has kept when a group's last operation ends, leaves it while the process waits for other things.
static void kept_messages_leave(void **state)
{
    (void)state;
    if (access(MU_TEST_MODULES "/libmuster-ucx.so", R_OK) != 0)
        skip();
    setenv("MUSTER_MODULES", MU_TEST_LATE_MODULES, 1);
    setenv("MUSTER_TIMEOUT", "60", 1);
    setenv("UCX_TLS", "tcp,self", 1);
    run_ranks(2, rank_with_late_messages, NULL);
    run_ranks(3, rank_with_late_messages, NULL);
    setenv("MUSTER_MODULES", MU_TEST_MODULES, 1);
    unsetenv("MUSTER_TIMEOUT");
}

static int untrusted_rank(int rank, void *arg)
{
    (void)arg;
    const mu_mesh_options options = options_of(rank);
    mu_mesh *mesh = mu__mesh_join(&options);
    CHECK(mesh && !mu__network_open(mesh, "ucx", NULL));
    CHECK_TAKEN(MU_PERMISSION_DENIED, "MUSTER_TRUSTED_NETWORK");
    CHECK(!mu__network_open(mesh, "smoke", NULL));
    CHECK_TAKEN(MU_FAILED_PRECONDITION, "smoke");
    mu_release(mesh);
    return 0;
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    unsetenv("MUSTER_TRUSTED_NETWORK");
    run_ranks(2, untrusted_rank, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ucx_moves_bytes),
        cmocka_unit_test(ucx_carries_every_operation),
        cmocka_unit_test(kept_messages_leave),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
