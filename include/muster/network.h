// What a network module offers: messages between the processes of a job, on a network that Muster does not know itself.
//
// A module is a shared library that exports one of these tables as `muster_network`. Muster comes with two, for
// MPI and for UCX; the MPI one is also installed as source (share/muster/muster_mpi.c), to be compiled against the MPI
// that the program uses: mpicc -shared -fPIC muster_mpi.c -o libmuster-mpi.so, found by MUSTER_MODULES=folder.
// Functions are called from one thread at a time unless `threads` says otherwise; none may block but open and close.
#ifndef MUSTER_NETWORK_H
#define MUSTER_NETWORK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MU_NETWORK_VERSION 1

// Who may call the functions of an open network.
typedef enum mu_network_threads {
    MU_NETWORK_ANY,    // any thread, several at once
    MU_NETWORK_ONE,    // any thread, one at a time
    MU_NETWORK_OPENER  // only the thread that opened it
} mu_network_threads;

typedef struct mu_network_args {
    size_t size;
    int rank, ranks;
    const void *communicator; // MPI: the program's MPI_Comm, by address; NULL: MPI_COMM_WORLD
    // exchange gives every process the blocks of all, rank by rank, `bytes` from each; 0: it failed.
    int (*exchange)(void *arg, const void *mine, size_t bytes, void *all);
    void *arg;
    mu_network_threads threads; // filled by open
    char *error;                // filled by open when it fails
    size_t error_bytes;
} mu_network_args;

typedef struct mu_network_module {
    int version;      // MU_NETWORK_VERSION
    const char *name; // "mpi"
    // open joins the network; NULL on error. Called by all processes. close leaves it; requests under way are dropped.
    void *(*open)(mu_network_args *args);
    void (*close)(void *network);
    // send starts sending a message, which stays in place until test says that it is done; messages of a pair with one
    // tag arrive in order. NULL on error.
    void *(*send)(void *network, int peer, int tag, const void *data, size_t bytes);
    // probe asks for the next message of a peer: 1 there is one, of so many bytes; 0 none yet; -1 error.
    int (*probe)(void *network, int peer, int tag, size_t *bytes, void **message);
    // receive starts moving a message that probe has found, of `bytes`, into place. NULL on error.
    void *(*receive)(void *network, void *message, void *data, size_t bytes);
    // test says how a request stands: 1 done, 0 under way, -1 error; after anything but 0 the request is gone.
    int (*test)(void *network, void *request);
    // broadcast gives every process of the launcher's world what process 0 has, before addresses are known; 0: it
    // failed. NULL: this network cannot.
    int (*broadcast)(const void *communicator, void *data, size_t bytes, char *error, size_t error_bytes);
} mu_network_module;

extern const mu_network_module muster_network; // each module has its own

#ifdef __cplusplus
}
#endif
#endif
