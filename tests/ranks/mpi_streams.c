// Streams and groups over MPI, run by mpirun: the processes find the first one's address through MPI, join the mesh,
// exchange messages pair by pair, and add numbers up. Argument: "multiple", where any thread may call MPI, or "single",
// where another thread moves the bytes and only the one that opened the network calls MPI.
#include "../unit/comm/network_test.h"
#include "../unit/comm/operations_test.h"

#include <pthread.h>

#include <mpi.h>

typedef struct job {
    mu_network *network;
    int rank;
    atomic_int result; // -1: not yet
} job;

static int meet_all(const job *j)
{
    for (int hop = 1; hop < test_ranks; hop++)
        for (int peer = 0; peer < test_ranks; peer++)
            if (abs(peer - j->rank) == hop) {
                mu_stream *stream = mu__network_stream(j->network, peer, hop);
                CHECK(stream && exchange_messages(stream, j->rank, peer) == 0);
                mu__stream_close(stream);
            }
    return 0;
}

static void *meet_on_thread(void *arg)
{
    job *j = arg;
    atomic_store(&j->result, meet_all(j));
    return NULL;
}

// Every operation, type and size over MPI, with one and two replicas in each process.
static int do_everything(mu_mesh *mesh)
{
    static const mu_communication_options mpi = {.size = sizeof mpi, .implementation = MU_COMM_MPI};
    for (int n_local = 1; n_local <= 2; n_local++)
        for (int types = 0; types < 2; types++) {
            world w = {.processes = test_ranks, .n_local = n_local, .run = types ? every_type : every_operation};
            w.group = mu__group_join(mesh, n_local, types ? "types" : "operations", &mpi);
            CHECK(w.group && strcmp(mu__group_path(w.group), "mpi") == 0);
            CHECK(run_members(&w) == 0);
            mu_release(w.group);
        }
    return 0;
}

static mu_mesh *join(int rank)
{
    static mu_mpi_bootstrap bootstrap;
    mu_kept_port kept; // until this process ends
    if (mu__network_bootstrap(NULL, rank == 0, &bootstrap, &kept) != MU_OK)
        return NULL;
    for (int i = 0; i < test_ranks; i++) {
        snprintf(test_peer_names[i], sizeof test_peer_names[i], "/job:worker/task:%d", i);
        test_peers[i] = (mu_mesh_peer){.name = test_peer_names[i], .address = ""};
    }
    test_peers[0].address = bootstrap.address;
    mu_mesh_options options = options_of(rank);
    options.key = bootstrap.key;
    return mu__mesh_join(&options);
}

int main(int argc, char **argv)
{
    const bool single = argc > 1 && strcmp(argv[1], "single") == 0;
    int rank = 0;
    mu_init();
    if (single)
        MPI_Init(&argc, &argv);
    else
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &test_ranks);
    test_rank = rank;
    mu_mesh *mesh = join(rank);
    CHECK(mesh);
    job j = {.network = mu__network_open(mesh, "mpi", NULL), .rank = rank, .result = -1};
    CHECK(j.network && mu__network_needs_service(j.network) == single);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, meet_on_thread, &j) == 0);
    while (atomic_load(&j.result) < 0) {
        mu__network_serve(j.network);
        sched_yield();
    }
    pthread_join(thread, NULL);
    mu_release(j.network);
    CHECK(j.result == 0 && group_adds(mesh, MU_COMM_MPI, "mpi") == 0 && do_everything(mesh) == 0);
    mu_release(mesh);
    MPI_Finalize();
    if (j.result == 0 && rank == 0)
        printf("%d processes exchanged their messages\n", test_ranks);
    return mu_exit(j.result == 0);
}
