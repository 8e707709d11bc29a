// The MPI module: sends messages through the MPI under which the program runs. It needs only this file,
// muster/network.h and MPI 3 or later; compile it with the program's own mpicc.
//
// If the program has not initialised MPI, the module does, with MPI_THREAD_MULTIPLE, and finalises it when the process
// exits. It uses its own communicator, so its messages do not mix with the program's. Messages have at most 1 GiB;
// Muster splits longer ones.
#include <mpi.h>
#include <muster/network.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct network {
    MPI_Comm communicator; // a duplicate of the program's
} network;

static void finalize(void)
{
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized)
        MPI_Finalize();
}

static int complain(char *error, size_t bytes, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    if (bytes > 0)
        snprintf(error, bytes, "%s: %s", what, text);
    return 0;
}

static int need_mpi(char *error, size_t bytes)
{
    int initialized = 0, provided = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized) {
        snprintf(error, bytes, "the program has finalised MPI already; make the strategy before MPI_Finalize");
        return 0;
    }
    if (initialized)
        return 1;
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    if (code != MPI_SUCCESS)
        return complain(error, bytes, code, "MPI_Init_thread");
    atexit(finalize);
    return 1;
}

static MPI_Comm given_or_world(const void *communicator)
{
    return communicator != NULL ? *(const MPI_Comm *)communicator : MPI_COMM_WORLD;
}

static int check_size(const mu_network_args *args, MPI_Comm communicator)
{
    int rank = 0, ranks = 0;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &ranks);
    if (rank == args->rank && ranks == args->ranks)
        return 1;
    snprintf(args->error, args->error_bytes,
             "in MPI this is process %d of %d, in the cluster %d of %d; they must be the same (a cluster of mpirun's "
             "variables is)",
             rank, ranks, args->rank, args->ranks);
    return 0;
}

static void *mpi_open(mu_network_args *args)
{
    int level = MPI_THREAD_SINGLE;
    if (!need_mpi(args->error, args->error_bytes) || !check_size(args, given_or_world(args->communicator)))
        return NULL;
    MPI_Query_thread(&level);
    args->threads = level == MPI_THREAD_MULTIPLE     ? MU_NETWORK_ANY
                    : level == MPI_THREAD_SERIALIZED ? MU_NETWORK_ONE
                                                     : MU_NETWORK_OPENER;
    network *made = calloc(1, sizeof *made);
    if (made == NULL) {
        snprintf(args->error, args->error_bytes, "no memory");
        return NULL;
    }
    const int code = MPI_Comm_dup(given_or_world(args->communicator), &made->communicator);
    if (code != MPI_SUCCESS) {
        complain(args->error, args->error_bytes, code, "MPI_Comm_dup");
        free(made);
        return NULL;
    }
    MPI_Comm_set_errhandler(made->communicator, MPI_ERRORS_RETURN);
    return made;
}

// Does not free the communicator: that is a collective operation, and other processes may be dead.
static void mpi_close(void *self) { free(self); }

static void *request_of(int code, MPI_Request request)
{
    MPI_Request *kept = code == MPI_SUCCESS ? malloc(sizeof *kept) : NULL;
    if (kept != NULL)
        *kept = request;
    return kept;
}

static void *mpi_send(void *self, int peer, int tag, const void *data, size_t bytes)
{
    const network *n = self;
    MPI_Request request;
    const int code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, n->communicator, &request);
    return request_of(code, request);
}

static int mpi_probe(void *self, int peer, int tag, size_t *bytes, void **message)
{
    const network *n = self;
    MPI_Message found;
    MPI_Status status;
    int there = 0, count = 0, finalized = 0;
    MPI_Finalized(&finalized); // the program may do so before the job has ended here
    if (finalized || MPI_Improbe(peer, tag, n->communicator, &there, &found, &status) != MPI_SUCCESS)
        return -1;
    if (!there)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    MPI_Message *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return -1;
    *kept = found;
    *message = kept;
    *bytes = (size_t)count;
    return 1;
}

static void *mpi_receive(void *self, void *message, void *data, size_t bytes)
{
    (void)self;
    MPI_Request request;
    const int code = MPI_Imrecv(data, (int)bytes, MPI_BYTE, message, &request);
    free(message);
    return request_of(code, request);
}

static int mpi_test(void *self, void *request)
{
    (void)self;
    int done = 0;
    const int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && !done)
        return 0;
    free(request);
    return code == MPI_SUCCESS ? 1 : -1;
}

static int mpi_broadcast(const void *communicator, void *data, size_t bytes, char *error, size_t error_bytes)
{
    if (!need_mpi(error, error_bytes))
        return 0;
    const int code = MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, given_or_world(communicator));
    return code == MPI_SUCCESS ? 1 : complain(error, error_bytes, code, "MPI_Bcast");
}

const mu_network_module muster_network = {
    .version = MU_NETWORK_VERSION,
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .send = mpi_send,
    .probe = mpi_probe,
    .receive = mpi_receive,
    .test = mpi_test,
    .broadcast = mpi_broadcast,
};
